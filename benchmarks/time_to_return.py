"""Minutes and steps that runs took to a return, and the figure of return over minutes.

    python benchmarks/time_to_return.py runs/minutes --output benchmarks/results/time_to_return.csv
    python benchmarks/time_to_return.py benchmarks/results/time_to_return.csv --figure docs/minutes.png

A run reaches a return when what it logged in its last 20,000 training steps has that mean, each point being the mean of
the episodes that ended since the one before (a rollout of ours, a rollout or 1,000 steps of a peer); with many
environments, in its last num_envs * time limit steps, since in fewer only short episodes end: of 64 landers those
that landed, none of those that hover. Of games of Atari, which have no such limit, 100,000 steps. The clock is the
run's own, from the opening of its log: compilation is in it; imports, evaluations and pauses are not. A run that never
gets there counts with its whole length, and a median that rests on that is marked. Ratios are of medians, >= where runs
that did not get there could have raised them. Tasks without a goal are left out.
"""

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, median_high

import tyro
from plainrl_tools import results
from plainrl_tools.common import check, check_output, is_complete, read_json, writing
from plainrl_tools.peers import GOALS, WINDOW, is_there, window_of
from plainrl_tools.results import CLOCK, CURVE
from plot import canvas, save

FLOOR = {"Pendulum-v1": -600.0}  # the figure shows returns from here on
SIDES = {  # exp_name: what the figure calls it, its colour
    "ppo_continuous": ("plainrl", "#0072B2"),
    "sb3_ppo-sb3-ours": ("Stable-Baselines3, our settings", "#D55E00"),
    "sb3_ppo-sb3-zoo": ("Stable-Baselines3, RL-Zoo's settings", "#999999"),
    "cleanrl_ppo": ("CleanRL's file", "#56B4E9"),
    "sb3_ppo-sbx-ours": ("SBX, our settings", "#CC79A7"),
    "sb3_ppo-sbx-zoo": ("SBX, RL-Zoo's settings", "#009E73"),
    "ppo_atari-fast": ("plainrl, fast setting", "#0072B2"),
    "ppo_atari-fast-h200": ("plainrl, compiled, on an H200 and four cores", "#E69F00"),
    "ppo_atari-fast-pong-4m": ("plainrl, fast setting", "#0072B2"),
    "ppo_atari-fast-pong": ("plainrl, the rate falling within 2.5M steps", "#56B4E9"),
    "c51_atari": ("plainrl's C51", "#E69F00"),
    "pqn_atari": ("plainrl's PQN", "#CC79A7"),
    "dqn_atari": ("plainrl's DQN", "#56B4E9"),
    "sb3_atari-ppo-fast": ("Stable-Baselines3, fast setting", "#D55E00"),
    "sb3_atari-ppo-minutes": ("Stable-Baselines3, published settings", "#999999"),
}


@dataclass
class Options:
    inputs: tyro.conf.Positional[tuple[Path, ...]]  # hold run folders, or CSVs that --output wrote
    ours: str = "ppo_continuous"  # the exp_name that the others are compared with
    sides: tuple[str, ...] = ()  # exp_names to compare and to show; default: all
    window: int = WINDOW  # steps, at least; of Atari's goals at least 100,000
    output: Path | None = None  # a CSV of every run and its curve, in long format
    figure: Path | None = None  # return over minutes


def time_to(goal: float, curve: list[tuple[int, float, float]], window: int):
    """(step, seconds) of the first point at which the curve is there, or None."""
    for i, (step, seconds, _) in enumerate(curve, 1):
        if is_there(goal, curve[:i], window):
            return step, seconds
    return None


def read_run(run: Path, window: int) -> dict | None:
    """What a finished run of a task with a goal gives."""
    summary = json.loads((run / "summary.json").read_text())
    if summary["env_id"] not in GOALS:
        return None
    total = summary["total_timesteps"]
    points = defaultdict(dict)
    for step, metric, value in results.read_curve(run, total, bins=total):
        points[step][metric] = value
    curve = [
        (step, point[CLOCK], point[CURVE])
        for step, point in sorted(points.items())
        if CURVE in point
    ]
    check(curve, f"{run} has no training returns")
    num_envs = summary.get("num_envs") or summary["args"]["num_envs"] * summary.get("ranks", 1)
    window_here = window_of(summary["env_id"], num_envs, window)
    reached = time_to(GOALS[summary["env_id"]], curve, window_here)
    logged = [point[1] for points in results.read_scalars(run).values() for point in points]
    step, seconds = reached or (summary["global_step"], max(logged))
    key = {"exp_name": summary["args"]["exp_name"], "env_id": summary["env_id"]}
    key |= {"seed": summary["seed"], "commit": summary["commit"], "curve": thin(curve, window)}
    return key | {"steps": step, "minutes": seconds / 60, "reached": reached is not None}


def thin(curve: list[tuple[int, float, float]], window: int) -> list[tuple[int, float, float]]:
    """A point for each `window` steps: the last step and second in it, the mean of its returns. What is left at the end
    joins the one before where it is less than half a window."""
    groups = defaultdict(list)
    for point in curve:
        groups[(point[0] - 1) // window].append(point)
    last, *others = sorted(groups, reverse=True)
    if others and curve[-1][0] - last * window < window / 2:
        groups[others[0]] += groups.pop(last)
    return [(*group[-1][:2], mean(point[2] for point in group)) for group in groups.values()]


def read_csv(file: Path) -> list[dict]:
    """The runs that --output wrote."""
    runs = defaultdict(lambda: {"curve": defaultdict(dict)})
    for row in results.read_csv(file):
        run = runs[row[:3]]
        run |= {"exp_name": row.exp_name, "env_id": row.env_id, "seed": row.seed}
        run["commit"] = row.commit
        if row.metric in (CURVE, CLOCK):
            run["curve"][row.step][row.metric] = row.value
        else:
            run |= {"steps": row.step, row.metric: row.value}
    for run in runs.values():
        whole = run["env_id"] in GOALS and "minutes" in run and "reached" in run
        check(whole, f"{file} was not written by --output; plot.py takes other results")
        points = sorted(run["curve"].items())
        run["curve"] = [(step, point[CLOCK], point[CURVE]) for step, point in points]
    return list(runs.values())


def rows_of(run: dict) -> list[results.Row]:
    key = run["exp_name"], run["env_id"], run["seed"]
    values = [(run["steps"], name, float(run[name])) for name in ("minutes", "reached")]
    for step, seconds, value in run["curve"]:
        values += [(step, CLOCK, seconds), (step, CURVE, value)]
    return [results.Row(*key, *value, run["commit"]) for value in values]


def draw(file: Path, runs: list[dict], ours: str) -> None:
    """Return over minutes, a panel a task, a line a run; a dot where it is there."""
    tasks = [env_id for env_id in GOALS if any(run["env_id"] == env_id for run in runs)]
    sides = sorted({run["exp_name"] for run in runs}, key=lambda side: (side == ours, side))
    named = {side: SIDES.get(side, (side, "black")) for side in sides}
    look = {side: {"label": named[side][0], "color": named[side][1]} for side in sides[::-1]}
    figure, axes, columns = canvas(len(tasks), height=2.2)
    words = "A dot: the mean of its last steps has reached the threshold."
    if not all(run["reached"] for run in runs):
        words += " No dot: not before the run ended."
    below = False
    for axis, env_id in zip(axes, tasks):
        axis.axhline(GOALS[env_id], color="0.4", lw=0.8, ls="--")
        for side in sides:
            for run in runs:
                if (run["env_id"], run["exp_name"]) != (env_id, side):
                    continue
                x = [seconds / 60 for _, seconds, _ in run["curve"]]
                y = [value for *_, value in run["curve"]]
                if max(y) < FLOOR.get(env_id, -math.inf):  # nothing to see but a wider axis
                    below = True
                    continue
                color, goal = look[side]["color"], GOALS[env_id]
                axis.plot(x, y, color=color, lw=0.9, alpha=0.8)
                if run["reached"]:
                    axis.plot(run["minutes"], goal, "o", color=color, ms=5, zorder=3)
        axis.set(title=f"{env_id} to {GOALS[env_id]:,.0f}", xlim=(0, None))
        axis.set_ylim(bottom=FLOOR.get(env_id))
    for axis in axes[::columns]:
        axis.set_ylabel("training return")
    for axis in axes[-columns:]:
        axis.set_xlabel("minutes of training")
    counts = Counter((run["env_id"], run["exp_name"]) for run in runs).values()
    seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
    words += " Not shown: runs below the axis." * below
    caption = f"Every run, {seeds} seeds each. {words}"
    save(figure, [file], caption, [], look)


def middle(seeds: dict[int, dict], what: str, form: str) -> str:
    """The median, marked where a run that did not get there could have moved it."""
    values = [run[what] for run in seeds.values()]
    top, value = median_high(values), median(values)
    late = any(not run["reached"] and run[what] <= top for run in seeds.values())
    return f"{'>= ' if late else ''}{value:{form}}"


def spread(seeds: dict[int, dict]) -> str:
    """The least and the most minutes, marked where a run that did not get there may have needed more."""
    runs = sorted(seeds.values(), key=lambda run: run["minutes"])
    least = "" if runs[0]["reached"] else ">= "
    most = "" if all(run["reached"] for run in runs) else ">= "
    return f"({least}{runs[0]['minutes']:.1f} to {most}{runs[-1]['minutes']:.1f})"


def sooner(ours: list[dict], others: list[dict]) -> str:
    """How many times sooner ours is there: the ratio of the medians, as seeds of two programs are no pairs. >= and
    rounded down where that is the least it can be: a run that did not get there may have needed any time from its end
    on."""
    (least, most), (least_other, most_other) = (
        (median(run["minutes"] for run in runs),
         median(run["minutes"] if run["reached"] else math.inf for run in runs))
        for runs in (ours, others)
    )  # fmt: skip
    if (least, least_other) == (most, most_other):
        return f"{least_other / least:.1f}"
    return f">= {math.floor(10 * least_other / most) / 10:.1f}"


def table(runs: list[dict], ours: str) -> list[str]:
    """Markdown rows: a task and a side each."""
    groups = defaultdict(dict)
    for run in runs:
        seeds = groups[run["env_id"], run["exp_name"]]
        words = f"seed {run['seed']} of {run['exp_name']} on {run['env_id']}"
        check(run["seed"] not in seeds, f"{words} is there twice; keep one", 1)
        seeds[run["seed"]] = run
    rows = [
        "| task | side | got there | minutes: median (least to most) | steps: median | theirs / ours |"
    ]
    rows.append("|---|---|--:|--:|--:|--:|")
    order = sorted(groups, key=lambda key: (list(GOALS).index(key[0]), key[1] != ours, key[1]))
    for env_id, side in order:
        seeds, mine = groups[env_id, side], groups.get((env_id, ours), {})
        reached = [bool(run["reached"]) for run in seeds.values()]
        minutes = f"{middle(seeds, 'minutes', '.1f')} {spread(seeds)}"
        steps = middle(seeds, "steps", ",.0f")
        ratio = sooner([*mine.values()], [*seeds.values()]) if mine and side != ours else ""
        name, goal = SIDES.get(side, [side])[0], f"{env_id} to {GOALS[env_id]:,.0f}"
        there = f"{sum(reached)} of {len(reached)}"
        rows.append(f"| {goal} | {name} | {there} | {minutes} | {steps} | {ratio} |")
    return rows


def main(options: Options) -> None:
    check_output("--output", options.output)
    check_output("--figure", options.figure, ".png", ".pdf", ".svg")
    runs = []
    finished = defaultdict(list)
    for place in options.inputs:
        check(place.exists(), f"{place} does not exist", 1)
        if place.suffix == ".csv":
            check(options.window == WINDOW, f"--window: {place} keeps the one it was written with")
            runs += read_csv(place)
        for file in results.find(place, "config.json"):  # a run that crashed is no fast run
            known = read_json(file).get("env_id") in GOALS
            words = f"{file.parent} is not finished; finish or remove it"
            check(is_complete(file.parent) or not known, words, 1)
        for file in sorted(results.find(place, "summary.json")):
            if run := read_run(file.parent, options.window):
                runs.append(run)
                key = run["exp_name"], run["env_id"], run["seed"]
                finished[key].append((read_json(file)["args"], file.parent))
    for (exp_name, env_id, seed), _ in results.absent_runs(options.inputs, finished):
        words = f"{exp_name} on {env_id} with seed {seed} is not there as its sweep declared it"
        check(env_id not in GOALS, f"{words} (sweep.json)", 1)
    check(runs, f"no finished run of {', '.join(GOALS)} in {' '.join(map(str, options.inputs))}", 1)
    known = {run["exp_name"]: None for run in runs}
    wrong = [side for side in options.sides if side not in known]
    check(not wrong, f"--sides: {', '.join(wrong)} not among {', '.join(known)}")
    shown = options.sides or tuple(known)
    there = options.ours in shown or options.sides
    check(there, f"--ours {options.ours} is not among {', '.join(shown)}")
    runs = [run for run in runs if run["exp_name"] in shown]
    print("\n".join(table(runs, options.ours)))
    with writing():
        if options.output:
            results.export(options.output, [row for run in runs for row in rows_of(run)])
        if options.figure:
            draw(options.figure, runs, options.ours)


if __name__ == "__main__":
    main(tyro.cli(Options))
