"""Minutes and steps that finished runs took to a return: python benchmarks/time_to_return.py runs

A run reaches a return when the episodes that ended in its last 20,000 training steps have that mean. The clock is the
run's own, from the opening of its log: compilation is in it; imports, evaluations and pauses are not. A run that never
gets there counts with its whole length and is marked. Ratios are taken between runs of one seed, ours first.
"""

import csv
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import tyro

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import results  # noqa: E402

GOALS = {
    "HalfCheetah-v5": 3000.0,
    "BipedalWalker-v3": 250.0,
    "LunarLanderContinuous-v3": 200.0,
    "Pendulum-v1": -200.0,
}
WINDOW = 20_000  # steps
COLUMNS = ("exp_name", "env_id", "seed", "step", "metric", "value", "commit")


@dataclass
class Options:
    folders: tyro.conf.Positional[
        tuple[Path, ...]
    ]  # hold run folders; tasks without a goal are left out
    ours: str = "ppo_continuous"  # the exp_name that the others are compared with
    window: int = WINDOW  # steps
    output: Path | None = None  # a CSV of every run, in long format


def is_there(goal: float, curve: list[tuple[int, float, float]], window: int = WINDOW) -> bool:
    """Whether the last `window` steps of a curve have a mean return of at least goal. Its points are
    (step, seconds, mean return of the episodes that ended since the point before)."""
    last = curve[-1][0]
    return mean(value for step, _, value in curve if step > last - window) >= goal


def time_to(goal: float, curve: list[tuple[int, float, float]], window: int = WINDOW):
    """(step, seconds) of the first point at which the curve is there, or None."""
    for i, (step, seconds, _) in enumerate(curve, 1):
        if is_there(goal, curve[:i], window):
            return step, seconds
    return None


def read(run: Path, window: int) -> dict | None:
    """What a finished run of a task with a goal gives."""
    summary = json.loads((run / "summary.json").read_text())
    if summary["env_id"] not in GOALS:
        return None
    total = summary["total_timesteps"]
    points = defaultdict(dict)
    for step, metric, value in results.read_curve(run, total, bins=total):
        points[step][metric] = value
    curve = [
        (step, point[results.CLOCK], point[results.CURVE])
        for step, point in sorted(points.items())
        if results.CURVE in point
    ]
    if not curve:
        raise SystemExit(f"time_to_return.py: {run} has no training returns")
    reached = time_to(GOALS[summary["env_id"]], curve, window)
    step, seconds = reached or (summary["global_step"], curve[-1][1])
    key = {"exp_name": summary["args"]["exp_name"], "env_id": summary["env_id"]}
    key |= {"seed": summary["seed"], "commit": summary["commit"]}
    return key | {"steps": step, "minutes": seconds / 60, "reached": reached is not None}


def table(runs: list[dict], ours: str) -> list[str]:
    """Markdown rows: a task and a side each."""
    groups = defaultdict(dict)
    for run in runs:
        groups[run["env_id"], run["exp_name"]][run["seed"]] = run
    rows = [
        "| task | side | got there | minutes: median (least to most) | steps: median | ours is faster by |"
    ]
    rows.append("|---|---|--:|--:|--:|--:|")
    order = sorted(groups, key=lambda key: (list(GOALS).index(key[0]), key[1] != ours, key[1]))
    for env_id, side in order:
        seeds, mine = groups[env_id, side], groups.get((env_id, ours), {})
        reached = [run["reached"] for run in seeds.values()]
        mark = "" if all(reached) else ">= "
        minutes = [run["minutes"] for run in seeds.values()]
        ratios = [seeds[seed]["minutes"] / mine[seed]["minutes"] for seed in seeds if seed in mine]
        spread = f"{mark}{median(minutes):.1f} ({min(minutes):.1f} to {max(minutes):.1f})"
        steps = f"{mark}{median(run['steps'] for run in seeds.values()):,.0f}"
        late = not all(run["reached"] for run in mine.values())
        bound = "about " if mark and late else "<= " if late else mark
        ratio = f"{bound}{median(ratios):.1f}" if ratios and side != ours else ""
        goal = f"{env_id} to {GOALS[env_id]:,.0f}"
        rows.append(
            f"| {goal} | {side} | {sum(reached)} of {len(reached)} | {spread} | {steps} | {ratio} |"
        )
    return rows


def main(options: Options) -> None:
    files = sorted(file for folder in options.folders for file in folder.rglob("summary.json"))
    runs = [run for file in files if (run := read(file.parent, options.window))]
    if not runs:
        sys.exit(f"time_to_return.py: no finished run of {', '.join(GOALS)} in these folders")
    print("\n".join(table(runs, options.ours)))
    if options.output:
        with options.output.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            for run in runs:
                key = {name: run[name] for name in ("exp_name", "env_id", "seed", "commit")}
                key["step"] = run["steps"]
                for metric in ("minutes", "reached"):
                    writer.writerow(key | {"metric": metric, "value": f"{float(run[metric]):.6g}"})


if __name__ == "__main__":
    main(tyro.cli(Options))
