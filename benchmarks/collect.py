"""Collect run folders into one long-format CSV, print a Markdown table of them, and draw their learning curves.

    python benchmarks/collect.py runs/ --output benchmarks/results/NAME.csv --plot benchmarks/curves/NAME.png
    python benchmarks/collect.py --output benchmarks/results/NAME.csv --plot FILE.png    table and figure of a CSV alone

Learning curves are charts/episodic_return averaged over bins of steps; everything else is from summary.json. A run
folder without summary.json has not finished: nothing is written then, and the exit status is 1.
"""

import csv
import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import tyro

COLUMNS = ("exp_name", "env_id", "seed", "step", "metric", "value", "commit")
FINAL = ("eval_return_mean", "eval_return_std", "eval_return_median", "sps", "wall_time_s", "train_return_last100")
CURVE = "charts/episodic_return"


@dataclass
class Options:
    runs: tyro.conf.Positional[tuple[Path, ...]] = ()  # run folders, or folders of such; none: read --output
    output: Path = Path("benchmarks/results/runs.csv")  # the CSV
    plot: Path | None = None  # draw the learning curves of the CSV into this file
    bins: int = 200  # most points of a run's learning curve


def check(ok, message: str, status: int = 2) -> None:
    if not ok:
        print(f"collect.py: {message}", file=sys.stderr)
        raise SystemExit(status)


def find_runs(folders: tuple[Path, ...]) -> list[Path]:
    """Every run folder in `folders`, each of them complete."""
    for folder in folders:
        check(folder.is_dir(), f"{folder} is not a folder")
    marks = ("summary.json", "config.json", "checkpoint.pt", "events.out.tfevents.*")
    runs = sorted({file.parent for folder in folders for mark in marks for file in folder.rglob(mark)})
    check(runs, f"no run folder in {', '.join(map(str, folders))}")
    incomplete = [str(run) for run in runs if not (run / "summary.json").is_file()]
    check(not incomplete, f"not finished, no summary.json (rerun, or move away): {', '.join(incomplete)}", status=1)
    return runs


def read_curve(run: Path, total_timesteps: int, bins: int) -> list[tuple[int, float]]:
    """(step, mean return) for each bin of steps that holds a point; the step is the mean of the bin's."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run), size_guidance={"scalars": 0}).Reload()  # a resumed run has several files
    points = events.Scalars(CURVE) if CURVE in events.Tags()["scalars"] else []
    groups = defaultdict(list)
    for point in points:
        groups[min(point.step * bins // total_timesteps, bins - 1)].append((point.step, point.value))
    return [(round(mean(step for step, _ in g)), mean(value for _, value in g)) for _, g in sorted(groups.items())]


def read_run(run: Path, bins: int) -> list[tuple]:
    """Rows of one run."""
    summary = json.loads((run / "summary.json").read_text())
    summary["eval_return_median"] = median(summary["eval_returns"])
    points = [(step, CURVE, value) for step, value in read_curve(run, summary["total_timesteps"], bins)]
    points += [(summary["global_step"], name, summary[name]) for name in FINAL if summary[name] is not None]
    key = summary["args"]["exp_name"], summary["env_id"], summary["seed"]
    return [(*key, step, metric, f"{value:.8g}", summary["commit"]) for step, metric, value in points]


def group(rows: list[dict], metric: str) -> dict[tuple[str, str], dict[int, list[tuple[int, float]]]]:
    """(exp_name, env_id) -> seed -> [(step, value)] of one metric."""
    groups = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["metric"] == metric:
            point = int(row["step"]), float(row["value"])
            groups[row["exp_name"], row["env_id"]][int(row["seed"])].append(point)
    return groups


def table(rows: list[dict]) -> str:
    final = {name: group(rows, name) for name in FINAL}
    lines = ["exp_name | env_id | seeds | evaluation per seed | median | mean | min | wall s, median | max | steps/s"]
    lines.append(" | ".join(["---"] * 2 + ["--:"] * 8))
    for key, seeds in sorted(final["eval_return_mean"].items()):
        scores = [seeds[seed][0][1] for seed in sorted(seeds)]
        wall, sps = ([points[0][1] for points in final[name][key].values()] for name in ("wall_time_s", "sps"))
        cells = [", ".join(f"{score:.1f}" for score in scores)]
        cells += [f"{value:.1f}" for value in (median(scores), mean(scores), min(scores))]
        cells += [f"{value:.0f}" for value in (median(wall), max(wall), median(sps))]
        lines.append(" | ".join([*key, " ".join(map(str, sorted(seeds))), *cells]))
    return "\n".join(f"| {line} |" for line in lines)


def plot(rows: list[dict], file: Path) -> None:
    """One panel per environment, one colour per exp_name: the mean over seeds, and each run faintly."""
    import matplotlib.pyplot as plt
    import numpy as np

    curves = group(rows, CURVE)
    plt.switch_backend("Agg")
    check(curves, f"no {CURVE} to plot")
    names, env_ids = (sorted({key[i] for key in curves}) for i in (0, 1))
    plt.rcParams |= {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10}
    columns = min(len(env_ids), 3)
    lines = -(-len(env_ids) // columns)
    size = 3.4 * columns, 2.6 * lines + 0.3
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[len(env_ids) :]:
        axis.remove()
    for (name, env_id), seeds in sorted(curves.items()):
        axis, colour = axes.flat[env_ids.index(env_id)], f"C{names.index(name)}"
        runs = [np.array(sorted(points)).T for points in seeds.values()]
        for steps, values in runs:
            axis.plot(steps, values, "" if len(steps) > 1 else "o", color=colour, alpha=0.25, linewidth=0.7)
        steps = np.linspace(max(x[0] for x, _ in runs), min(x[-1] for x, _ in runs), 200)  # where all have points
        average = np.mean([np.interp(steps, *run) for run in runs], axis=0)
        axis.plot(steps, average, color=colour, linewidth=1.8, label=f"{name} ({len(runs)} seeds)")
        axis.set(title=env_id, xlabel="environment steps", ylabel="episodic return")
        axis.ticklabel_format(axis="x", style="sci", scilimits=(0, 0), useMathText=True)
        axis.grid(alpha=0.25, linewidth=0.6)
        axis.legend(frameon=False, fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=200, metadata={"Software": None} if file.suffix == ".png" else None)


def main(options: Options) -> None:
    check(options.bins > 0, f"--bins must be positive, not {options.bins}")
    if options.runs:
        runs = [read_run(run, options.bins) for run in find_runs(options.runs)]
        keys = Counter("{} on {} with seed {}".format(*rows[0][:3]) for rows in runs)
        twice = "; ".join(key for key, count in keys.items() if count > 1)
        check(not twice, f"more than one run of {twice}: leave one of each", status=1)
        rows = sorted(row for rows in runs for row in rows)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        with options.output.open("w", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows([COLUMNS, *rows])
    check(options.output.is_file(), f"{options.output} does not exist; give run folders to collect")
    rows = list(csv.DictReader(options.output.open(newline="")))
    print(table(rows))
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
