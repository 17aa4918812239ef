"""Figures, tables and statistics of runs.

    python scripts/plot.py runs                                       run folders -> curves/runs.png and the rest
    python scripts/plot.py runs --export benchmarks/results/NAME.csv  run folders -> one long CSV, and its figures
    python scripts/plot.py benchmarks/results/*.csv                   every published figure and table again
    python scripts/plot.py runs --figure curves.png                   the learning curves alone, a panel an environment

Each CSV file, and all run folders together, give one set of files in `curves/`: NAME.png and NAME.svg, NAME.html
(interactive, self-contained), NAME.md (tables), NAME_scores.csv and NAME_comparisons.csv (the tables' figures).
Intervals are 95 % percentile intervals of the stratified bootstrap over seeds (Agarwal et al. 2021,
arXiv:2108.13264, by rliable); those of curves hold point by point. On few seeds they are too narrow: the tables say by
how much. Seeds of two experiments are not paired. A difference is called significant where its interval leaves out 0
and a permutation test has p < 0.05, one pair at a time.

A set is incomplete where a run has no summary.json of its last arguments, where a run that a sweep declared
(sweep.json) is missing, where two exp_names of an environment have different seeds, or where a score is not finite.
Then the exit status is 1 and nothing is written, unless --allow-incomplete, which marks every figure and table. Runs
of one exp_name and environment with different flags are never averaged.
"""

import csv
import json
import math
import os
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean, median
from typing import Literal

import numpy as np
import tyro

COLUMNS = ("exp_name", "env_id", "seed", "step", "metric", "value", "commit")
CURVE, CLOCK, ENTROPY, MISSING = (
    "charts/episodic_return",
    "charts/wall_time_s",
    "losses/entropy",
    "missing",
)
SUMMARY = ("eval_return_mean", "eval_return_std", "eval_return_median", "eval_return_min")
SUMMARY += ("best_return_mean", "train_return_last100", "sps", "wall_time_s")
SCORES = ("eval_return_mean", "sps")  # the score of a set is the first of these that it has
# flags in which the runs of one experiment may differ
APART = ("seed", "runs_dir", "resume", "track", "wandb_project_name", "wandb_entity")
COVERAGE = """Median, worst and best run are over seeds, the other columns are means over seeds. On so few seeds a
percentile bootstrap interval is too narrow: of normal scores it holds the true mean in 74 % of cases with 3 seeds, 83 %
with 5, 89 % with 10 (benchmarks/coverage.py). p is of one pair, not corrected for the number of pairs."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")


@dataclass
class Options:
    inputs: tyro.conf.Positional[
        tuple[Path, ...]
    ]  # run folders, folders of such, or long CSV files
    output: Path | None = (
        None  # folder of the figures; default: curves/ here, or for results/NAME.csv beside results/
    )
    statistic: Literal["mean", "iqm"] = "mean"  # over seeds; iqm is the mean of the middle half
    exp_names: tuple[str, ...] = ()  # only these
    env_ids: tuple[str, ...] = ()  # only these
    baseline: str = ""  # compare every other exp_name with this one; default: all pairs, with more than 4 the first
    figure: Path | None = None  # only draw the learning curves, over steps, into this picture
    export: Path | None = None  # write the run folders' results into this long CSV
    bins: int = 50  # most points of a run's learning curve
    bootstrap_reps: int = 2000  # resamples behind each interval
    allow_incomplete: bool = False  # average an incomplete set, and mark it


def check(ok, message: str, status: int = 2) -> None:
    if not ok:
        print(f"plot.py: {message}", file=sys.stderr)
        raise SystemExit(status)


# ---- reading -------------------------------------------------------------------------------------------------------


def read_curve(run: Path, total_timesteps: int, bins: int) -> list[tuple[int, str, float]]:
    """(step, metric, value): the training return, averaged over bins of steps, the training time at each bin's step,
    and the last entropy of the policy, where it is logged. A resumed run has several event files. What its sessions did
    again counts once, and time runs from the opening of each file to the last step that was kept."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    files = sorted(run.glob("events.out.tfevents.*"), key=lambda file: file.name.split(".")[3:])
    starts = [
        next(iter(EventFileLoader(str(file)).Load())).wall_time
        for file in files
        if file.stat().st_size
    ]
    events = EventAccumulator(str(run), size_guidance={"scalars": 0}).Reload()
    scalars = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    ticks, used = scalars.get("charts/SPS", scalars.get(CURVE, ())), 0.0
    clock, groups = {}, defaultdict(list)
    for start, end in zip(starts, [*starts[1:], math.inf]):
        clock |= {
            point: used + point.wall_time - start
            for point in scalars.get(CURVE, ())
            if start <= point.wall_time < end
        }
        used += max(
            (tick.wall_time - start for tick in ticks if start <= tick.wall_time < end), default=0.0
        )
    for point, seconds in clock.items():
        groups[min(point.step * bins // total_timesteps, bins - 1)].append(
            (point.step, seconds, point.value)
        )
    means = [tuple(map(mean, zip(*group))) for _, group in sorted(groups.items())]
    curve = [
        row
        for step, clock, value in means
        for row in ((round(step), CURVE, value), (round(step), CLOCK, clock))
    ]
    return curve + [(point.step, ENTROPY, point.value) for point in scalars.get(ENTROPY, ())[-1:]]


def read_json(file: Path) -> dict:
    """A JSON object; one that is not there or not whole is empty."""
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def read_run(run: Path, bins: int) -> list[dict]:
    """Rows of one complete run folder."""
    try:
        summary = json.loads((run / "summary.json").read_text())
        returns = summary["eval_returns"]
        summary |= {"eval_return_median": median(returns), "eval_return_min": min(returns)}
        key = summary["args"]["exp_name"], summary["env_id"], summary["seed"]
        points = read_curve(run, summary["total_timesteps"], bins)
        points += [
            (summary["global_step"], name, summary[name])
            for name in SUMMARY
            if summary.get(name) is not None
        ]
        return [
            dict(zip(COLUMNS, (*key, *point[:2], f"{point[2]:.8g}", summary["commit"])))
            for point in points
        ]
    except (ValueError, KeyError, TypeError) as error:
        check(
            False,
            f"{run / 'summary.json'} is not a run's summary ({type(error).__name__}: {error})",
        )


def read_folders(folders: list[Path], bins: int) -> list[dict]:
    """Rows of every run in `folders`; a run that has not finished gives one row of the metric `missing`. That is a run
    without a summary, or with new arguments since: one that was resumed to go on further."""
    marks = ("summary.json", "config.json", "checkpoint.pt")
    files = [
        (file, file.relative_to(folder).parts)
        for folder in folders
        for mark in marks
        for file in folder.rglob(mark)
    ]
    runs = sorted(
        {file.parent for file, parts in files if not any(part.startswith(".") for part in parts)}
    )
    check(runs, f"no run folder in {', '.join(map(str, folders))}")
    rows, complete, expected, flags = [], Counter(), set(), {}
    for run in runs:
        config, summary = read_json(run / "config.json"), read_json(run / "summary.json")
        goes_on = config.get("args") and summary.get("args", config["args"]) != config["args"]
        if (run / "summary.json").is_file() and not goes_on:
            rows += read_run(run, bins)
            key = tuple(rows[-1][column] for column in COLUMNS[:3])
            complete[key] += 1
            ours = {name: value for name, value in summary["args"].items() if name not in APART}
            theirs = flags.setdefault(key[:2], ours)
            mixed = [name for name in ours if name in theirs and ours[name] != theirs[name]]
            listed = f"--{' --'.join(mixed)}"
            check(
                not mixed,
                f"runs of {key[0]} on {key[1]} have different {listed}; keep them apart",
                status=1,
            )
        else:
            exp_name = config.get("args", {}).get("exp_name", run.name)
            expected.add((exp_name, config.get("env_id", "?"), config.get("seed", "?")))
    declared = set()
    manifests = {file for folder in folders for file in folder.rglob("sweep.json")}
    for manifest in manifests | {run.parent / "sweep.json" for run in runs}:
        new = {
            tuple(run.get(name) for name in COLUMNS[:3])
            for run in read_json(manifest).get("runs", ())
        }
        whole = manifest in manifests  # of run folders given one by one, only what goes with them
        declared |= {key for key in new if whole or key[:2] in flags}
    twice = [
        f"{name} on {env_id} with seed {seed}"
        for (name, env_id, seed), count in complete.items()
        if count > 1
    ]
    check(
        not twice,
        f"more than one complete run of {'; '.join(twice)}: move all but one of each away",
        status=1,
    )
    missing = sorted((expected | declared) - set(complete), key=str)
    return rows + [dict(zip(COLUMNS, (*key, 0, MISSING, "1", "unknown"))) for key in missing]


def read_csv(file: Path) -> list[dict]:
    try:
        with file.open(newline="") as stream:
            rows = list(csv.DictReader(stream, strict=True))
    except (csv.Error, UnicodeDecodeError):
        rows = []
    check(
        rows and tuple(rows[0]) == COLUMNS, f"{file} is no CSV with the columns {','.join(COLUMNS)}"
    )
    for number, row in enumerate(rows, 2):
        try:
            float(row["value"]), int(row["step"]), row["metric"] == MISSING or int(row["seed"])
        except (TypeError, ValueError):
            check(False, f"{file}, line {number}: seed, step and value must be numbers")
    return rows


def write_csv(file: Path, columns, rows) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([columns, *rows])


def group(rows: list[dict], metric: str) -> dict[tuple[str, str], dict[int, list[float]]]:
    """(env_id, exp_name) -> seed -> [(step, value), ...] of one metric, all sorted."""
    groups = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["metric"] == metric:
            groups[row["env_id"], row["exp_name"]][int(row["seed"])].append(
                (int(row["step"]), float(row["value"]))
            )
    return {
        key: {seed: sorted(groups[key][seed]) for seed in sorted(groups[key])}
        for key in sorted(groups)
    }


def problems(rows: list[dict], score: str) -> list[str]:
    """What is missing from the set, one line each."""
    unfinished = [row for row in rows if row["metric"] == MISSING]
    lines = [
        f"{row['exp_name']} on {row['env_id']} with seed {row['seed']} is not finished"
        for row in unfinished
    ]
    told = {(row["env_id"], row["exp_name"], str(row["seed"])) for row in unfinished}
    scores, curves = group(rows, score), group(rows, CURVE)
    lines += [
        f"{name} on {env_id} has no {score}"
        for env_id, name in curves
        if (env_id, name) not in scores
    ]
    for env_id, name in scores:
        here = {seed: points[-1][1] for seed, points in scores[env_id, name].items()}
        seeds = set().union(*(scores[key] for key in scores if key[0] == env_id))
        lacking = [
            str(seed) for seed in sorted(seeds - set(here)) if (env_id, name, str(seed)) not in told
        ]
        lines += [f"{name} on {env_id} lacks seeds {' '.join(lacking)} that others have"] * bool(
            lacking
        )
        lines += [
            f"{name} on {env_id} with seed {s} scores {v}"
            for s, v in here.items()
            if not math.isfinite(v)
        ]
        bare = [str(seed) for seed in here if seed not in curves.get((env_id, name), here)]
        lines += [f"{name} on {env_id} has no learning curve of seeds {' '.join(bare)}"] * bool(
            bare
        )
    return lines


# ---- statistics ----------------------------------------------------------------------------------------------------


def aggregate(scores: np.ndarray, statistic: str) -> np.ndarray:
    """(runs, ...) -> (...): the mean over runs, or the interquartile mean (a quarter of the runs cut at each end)."""
    from scipy.stats import trim_mean

    return trim_mean(scores, 0.25, axis=0) if statistic == "iqm" else scores.mean(0)


def interval(scores: np.ndarray, statistic: str, reps: int) -> tuple[np.ndarray, np.ndarray]:
    """The two ends of the 95 % interval of `aggregate`, scores (runs, points) -> (points,) each; NaN for one run."""
    from rliable.library import get_interval_estimates

    if len(scores) < 2:
        return np.full((2, *scores.shape[1:]), math.nan)
    np.random.seed(0)  # rliable draws from NumPy's global generator
    return get_interval_estimates({"": scores}, lambda s: aggregate(s, statistic), reps=reps)[1][""]


def difference(a: np.ndarray, b: np.ndarray, statistic: str, reps: int) -> dict[str, float]:
    """Of the runs of `a` and of `b`: the difference of their aggregates, its interval with the two resampled apart,
    and the two-sided p of a permutation test, by all regroupings where they are few (5 against 5: 252), else by 9999
    random ones. Three seeds against three cannot get below 0.1."""
    from rliable.library import get_interval_estimates
    from scipy.stats import permutation_test

    def statistics(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return aggregate(x, statistic) - aggregate(y, statistic)

    np.random.seed(0)
    point, ends = get_interval_estimates({"": [a[:, None], b[:, None]]}, statistics, reps=reps)
    (low, high), finite = ends[""].ravel().tolist(), np.isfinite([*a, *b]).all()
    p = (
        float(permutation_test((a, b), statistics, n_resamples=9999, rng=0).pvalue)
        if finite
        else math.nan
    )
    return {"difference": float(point[""][0]), "low": low, "high": high, "p": p}


def improvement(a: np.ndarray, b: np.ndarray, reps: int) -> tuple[float, float, float]:
    """Probability that a run of `a` scores above a run of `b`, ties counting half, with its interval."""
    from rliable.library import get_interval_estimates
    from rliable.metrics import probability_of_improvement

    np.random.seed(0)
    pair = {"": [a[:, None], b[:, None]]}
    point, ends = get_interval_estimates(
        pair, lambda x, y: np.array([probability_of_improvement(x, y)]), reps=reps
    )
    return float(point[""][0]), *ends[""].ravel().tolist()


def score_table(rows: list[dict], score: str, options: Options) -> list[dict]:
    """One row per environment and exp_name. Besides the score: the mean over seeds of every other final metric."""
    metrics = {row["metric"] for row in rows} - {score, CURVE, CLOCK, MISSING}
    others = [metric for metric in SUMMARY if metric in metrics] + sorted(metrics - set(SUMMARY))
    finals, curves, table = {m: group(rows, m) for m in others}, group(rows, CURVE), []
    for key, seeds in group(rows, score).items():
        values = np.array([points[-1][1] for points in seeds.values()])
        low, high = interval(values[:, None], options.statistic, options.bootstrap_reps)
        row = {"env_id": key[0], "exp_name": key[1], "seeds": len(values)}
        row |= {
            options.statistic: float(aggregate(values, options.statistic)),
            "low": float(low[0]),
            "high": float(high[0]),
        }
        row |= {"median": median(values), "worst_run": min(values), "best_run": max(values)}
        if set(seeds) == set(curves.get(key, ())):
            row["best_training_return"] = mean(
                max(v for _, v in points) for points in curves[key].values()
            )
        for metric in others:
            there = finals[metric].get(key, {})
            if there:  # a mean over some of the seeds would pass for one over all
                row[metric] = (
                    mean(p[-1][1] for p in there.values()) if set(there) == set(seeds) else math.nan
                )
        table.append(row)
    return table


def comparison_table(rows: list[dict], score: str, options: Options) -> list[dict]:
    """Pairs of exp_names in one environment with two runs each, or each exp_name against the baseline."""
    groups, table = group(rows, score), []
    for env_id in dict.fromkeys(env_id for env_id, _ in groups):
        scores = {
            name: np.array([p[-1][1] for p in groups[env, name].values()])
            for env, name in groups
            if env == env_id
        }
        names = [name for name, values in scores.items() if len(values) > 1]
        baseline = (
            options.baseline if options.baseline in names else names[0] if len(names) > 4 else ""
        )
        pairs = (
            [(baseline, name) for name in names if name != baseline]
            if baseline
            else combinations(names, 2)
        )
        for first, second in pairs:
            a, b = scores[second], scores[first]
            row = {"env_id": env_id, "exp_name": second, "against": first}
            row |= difference(a, b, options.statistic, options.bootstrap_reps)
            row["significant"] = (
                "yes" if row["p"] < 0.05 and (row["low"] > 0 or row["high"] < 0) else "no"
            )
            probability = improvement(a, b, options.bootstrap_reps)
            table.append(
                row | dict(zip(("probability", "probability_low", "probability_high"), probability))
            )
    return table


# ---- writing -------------------------------------------------------------------------------------------------------


def short(value) -> str:
    """A figure for a table: no exponent, and no more digits than anybody reads."""
    if isinstance(value, str | int):
        return str(value)
    if math.isnan(value) or abs(value) >= 1000:
        return "n/a" if math.isnan(value) else f"{value:.0f}"
    return (
        f"{value:.1f}"
        if abs(value) >= 10
        else f"{value:.2f}"
        if abs(value) >= 0.1 or not value
        else f"{value:.2g}"
    )


def markdown(header: list[str], rows: list[list]) -> str:
    rule = ["---" if title in ("env_id", "exp_name", "against") else "--:" for title in header]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (header, rule, *rows))


def write_tables(
    stem: Path, rows: list[dict], score: str, lacks: list[str], options: Options
) -> None:
    scores, comparisons = score_table(rows, score, options), comparison_table(rows, score, options)
    for name, table in (("scores", scores), ("comparisons", comparisons)):
        table = [row | ({"set": "incomplete"} if lacks else {}) for row in table]
        columns = list(dict.fromkeys(column for row in table for column in row))
        cells = [[row.get(c, "") for c in columns] for row in table]
        rounded = [[f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in cells]
        write_csv(stem.with_name(f"{stem.name}_{name}.csv"), columns, rounded)

    def with_interval(row: dict, *keys: str) -> str:
        middle, low, high = (short(row[key]) for key in keys)
        return f"{middle} [{low}, {high}]"

    texts = [f"**Incomplete set**: {line}." for line in lacks]
    skip = {"env_id", "exp_name", "seeds", options.statistic, "low", "high", "eval_return_median"}
    extra = [c for c in dict.fromkeys(column for row in scores for column in row) if c not in skip]
    statistic = {"mean": "mean", "iqm": "IQM"}[options.statistic]
    header = ["env_id", "exp_name", "seeds", f"{score}: {statistic} [95 %]", *extra]
    lines = []
    for row in scores:
        lines.append(
            [
                row["env_id"],
                row["exp_name"],
                row["seeds"],
                with_interval(row, options.statistic, "low", "high"),
            ]
        )
        lines[-1] += [short(row.get(column, "")) for column in extra]
    texts.append(markdown(header, lines))
    if comparisons:
        header = [
            "env_id",
            "exp_name",
            "against",
            f"{statistic} difference [95 %]",
            "p",
            "",
            "P(better) [95 %]",
        ]
        lines = []
        for row in comparisons:
            lines.append(
                [
                    row["env_id"],
                    row["exp_name"],
                    row["against"],
                    with_interval(row, "difference", "low", "high"),
                ]
            )
            lines[-1] += [
                f"{row['p']:.2g}",
                "significant" if row["significant"] == "yes" else "not significant",
            ]
            lines[-1] += [with_interval(row, "probability", "probability_low", "probability_high")]
        texts.append(markdown(header, lines))
    texts.append(COVERAGE)
    stem.with_name(f"{stem.name}.md").write_text("\n\n".join(texts) + "\n")


def summarise_curves(rows: list[dict], axis: str, options: Options) -> dict:
    """(env_id, exp_name) -> the single runs [(x, y), ...], and x, middle, low, high over them, where all have points.
    `axis` is "steps" or "minutes"."""
    curves, clocks, result = group(rows, CURVE), group(rows, CLOCK), {}
    for key, seeds in curves.items():
        if axis == "minutes" and set(clocks.get(key, ())) != set(seeds):
            continue
        runs = [np.array(points).T for points in seeds.values()]
        if axis == "minutes":
            runs = [
                (np.array(clocks[key][seed])[:, 1] / 60, y) for seed, (_, y) in zip(seeds, runs)
            ]
        start, end = max(x[0] for x, _ in runs), min(x[-1] for x, _ in runs)
        grid = np.linspace(start, end, options.bins) if start < end else np.empty(0)
        values = np.array([np.interp(grid, x, y) for x, y in runs])
        middle, (low, high) = aggregate(values, options.statistic), (grid, grid)
        if len(grid):
            low, high = interval(values, options.statistic, options.bootstrap_reps)
        result[key] = runs, grid, middle, low, high
    return result


def drawing():
    """pyplot, without a display and in our style."""
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    plt.rcParams |= {"font.size": 9, "axes.titlesize": 10, "axes.grid": True, "grid.alpha": 0.25}
    plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False}
    plt.rcParams |= {"svg.hashsalt": "plainrl", "svg.fonttype": "none"}
    return plt


def draw_figure(curves: dict, lacks: list[str], options: Options) -> None:
    """The learning curves alone: one panel per environment, one legend that says what is drawn."""
    plt = drawing()
    env_ids, names = (list(dict.fromkeys(key[i] for key in curves)) for i in (0, 1))
    looks = {name: look(i) for i, name in enumerate(names)}
    columns = min(3, len(env_ids))
    lines = -(-len(env_ids) // columns)
    size = (3.4 * columns, 2.5 * lines + 0.7)
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[len(env_ids) :]:
        axis.remove()
    for axis, env_id in zip(axes.flat, env_ids):
        here = {name: curves.get((env_id, name)) for name in names}
        draw_curves(axis, here, looks)
        seeds = sorted({len(curve[0]) for curve in here.values() if curve})
        axis.set_title(f"{env_id} ({' or '.join(map(str, seeds))} seeds)")
        axis.set(xlabel="environment steps")
    handles = [plt.Line2D([], [], **looks[name], linewidth=2.5, label=name) for name in names]
    title = f"{options.statistic} of the seeds, 95 % bootstrap band, single runs faint"
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, title=title)
    if lacks:
        figure.suptitle("INCOMPLETE SET", color="red", x=0.01, ha="left")
    options.figure.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.figure, dpi=130, metadata={"Software": None})
    plt.close(figure)


def draw(
    stem: Path, rows: list[dict], curves: dict, score: str, lacks: list[str], options: Options
) -> None:
    """One row of panels per environment: return over steps, return over minutes, final scores, performance profile."""
    plt = drawing()
    finals = group(rows, score)
    env_ids, names = (sorted({key[i] for key in finals}) for i in (0, 1))
    colours = {name: look(i) for i, name in enumerate(names)}
    panels = [axis for axis in curves if curves[axis]] + ["final", "profile"]
    size = 3.3 * len(panels), 2.5 * len(env_ids) + 0.5 + 0.16 * len(names)
    figure, axes = plt.subplots(
        len(env_ids), len(panels), figsize=size, squeeze=False, layout="constrained"
    )
    for line, env_id in zip(axes, env_ids):
        scores = {
            name: np.array([p[-1][1] for p in finals[env_id, name].values()])
            for env, name in finals
            if env == env_id
        }
        for axis, panel in zip(line, panels):
            axis.set_title(env_id)
            if panel == "final":
                draw_scores(axis, scores, colours, options)
                axis.set(xlabel=score)
            elif panel == "profile":
                draw_profile(axis, scores, colours, options)
                axis.set(xlabel=f"{score} τ")
            else:
                draw_curves(
                    axis, {name: curves[panel].get((env_id, name)) for name in scores}, colours
                )
                axis.set(xlabel="environment steps" if panel == "steps" else panel)
    handles = [plt.Line2D([], [], **colours[name], linewidth=2.5, label=name) for name in names]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(len(names), 3), frameon=False
    )
    if lacks:
        figure.suptitle(f"INCOMPLETE SET, see {stem.name}.md", color="red", x=0.01, ha="left")
    figure.savefig(stem.with_name(f"{stem.name}.png"), dpi=110, metadata={"Software": None})
    figure.savefig(stem.with_name(f"{stem.name}.svg"), metadata={"Date": None, "Creator": None})
    plt.close(figure)


def look(i: int) -> dict:
    """Colour of the i-th exp_name; after eight of them the lines are dashed."""
    return {
        "color": COLOURS[i % len(COLOURS)],
        "linestyle": ("-", "--", ":")[i // len(COLOURS) % 3],
    }


def draw_curves(axis, curves: dict, colours: dict) -> None:
    for name, curve in curves.items():
        if curve:
            runs, x, middle, low, high = curve
            for run_x, run_y in runs:
                dot = "o" if len(run_x) == 1 else None
                axis.plot(
                    run_x,
                    run_y,
                    **colours[name],
                    alpha=0.2 if not dot else 0.6,
                    linewidth=0.6,
                    marker=dot,
                )
            axis.plot(x, middle, **colours[name], linewidth=1.8)
            axis.fill_between(x, low, high, color=colours[name]["color"], alpha=0.18, linewidth=0)
    axis.set(ylabel="training return")
    axis.ticklabel_format(axis="x", style="sci", scilimits=(-2, 4), useMathText=True)


def draw_scores(axis, scores: dict, colours: dict, options: Options) -> None:
    """A dot for each run, a bar for the interval, a tick for the statistic."""
    for place, (name, values) in enumerate(scores.items()):
        low, high = interval(values[:, None], options.statistic, options.bootstrap_reps)
        colour = colours[name]["color"]
        axis.plot(
            values,
            [place + 0.2] * len(values),
            "o",
            color=colour,
            alpha=0.5,
            markersize=4,
            markeredgewidth=0,
        )
        axis.plot(
            [low[0], high[0]], [place] * 2, **colours[name], linewidth=2.5, solid_capstyle="butt"
        )
        axis.plot(
            aggregate(values, options.statistic),
            place,
            "|",
            color=colour,
            markersize=12,
            markeredgewidth=2,
        )
    axis.set(yticks=range(len(scores)), yticklabels=[], ylim=(len(scores) - 0.4, -0.6))
    axis.grid(axis="y", visible=False)


def draw_profile(axis, scores: dict, colours: dict, options: Options) -> None:
    """Share of the runs that score above tau (Agarwal et al. 2021, section 4.2)."""
    from rliable.library import create_performance_profile

    everything = np.concatenate(list(scores.values()))
    everything = everything[np.isfinite(everything)]
    margin = 0.03 * (np.ptp(everything) or 1)
    taus = np.linspace(everything.min() - margin, everything.max() + margin, 300)
    np.random.seed(0)  # rliable draws from NumPy's global generator
    matrices = {name: values[:, None] for name, values in scores.items()}
    shares, bands = create_performance_profile(matrices, taus, reps=options.bootstrap_reps)
    for name in scores:
        axis.plot(taus, shares[name], **colours[name], linewidth=1.6, drawstyle="steps-post")
        if len(scores[name]) > 1:
            axis.fill_between(
                taus,
                *bands[name],
                color=colours[name]["color"],
                alpha=0.12,
                linewidth=0,
                step="post",
            )
    axis.set(ylabel="share of runs above τ", ylim=(-0.03, 1.03))


def write_page(file: Path, curves: dict, lacks: list[str], options: Options) -> None:
    """The curves as one HTML page that needs no network: hover, zoom, and switch exp_names off in the legend."""
    from plotly.subplots import make_subplots

    env_ids, names = (sorted({key[i] for key in curves["steps"]}) for i in (0, 1))
    titles = [f"{env_id}, {axis}" for env_id in env_ids for axis in curves]
    page = make_subplots(
        len(env_ids), 2, subplot_titles=titles, vertical_spacing=0.25 / len(env_ids)
    )
    shown = set()
    for column, axis in enumerate(curves, 1):
        for (env_id, name), (runs, x, middle, low, high) in curves[axis].items():
            colour, line = COLOURS[names.index(name) % len(COLOURS)], env_ids.index(env_id) + 1
            common = {"mode": "lines", "legendgroup": name, "row": line, "col": column}
            hidden = common | {"showlegend": False, "hoverinfo": "skip"}
            for run_x, run_y in runs:
                page.add_scatter(
                    x=run_x, y=run_y, line={"color": colour, "width": 0.7}, opacity=0.3, **hidden
                )
            page.add_scatter(x=x, y=low, line={"width": 0}, **hidden)
            page.add_scatter(
                x=x, y=high, line={"width": 0}, fill="tonexty", fillcolor=f"{colour}2e", **hidden
            )
            common |= {
                "name": name,
                "showlegend": name not in shown,
                "line": {"color": colour, "width": 2.5},
            }
            page.add_scatter(x=x, y=middle, **common)
            shown.add(name)
    for column, title in enumerate(("environment steps", "minutes"), 1):
        page.update_xaxes(title_text=title, col=column)
    title = (
        f"INCOMPLETE SET: {'; '.join(lacks)}"
        if lacks
        else f"training return, {options.statistic} and 95 % band"
    )
    legend = {"orientation": "h", "yanchor": "bottom", "y": 1 + 40 / (380 * len(env_ids))}
    margin = {"t": 150 + 20 * len(names)}
    page.update_layout(
        height=380 * len(env_ids) + margin["t"], template="plotly_white", title=title
    )
    page.update_layout(legend=legend, margin=margin)
    page.update_yaxes(title_text="training return")
    page.write_html(file, include_plotlyjs=True, div_id="curves")


def main(options: Options) -> None:
    for name in ("bins", "bootstrap_reps"):
        value = getattr(options, name)
        check(value > 1, f"--{name.replace('_', '-')} must be at least 2, not {value}")
    check(options.inputs, "give run folders or CSV files, for example: python scripts/plot.py runs")
    folders = [path for path in options.inputs if path.is_dir()]
    files = [path for path in options.inputs if path not in folders and path.name != "sweep.json"]
    for file in files:
        check(file.is_file(), f"{file} does not exist")
    check(
        folders or not options.export, "--export takes run folders; CSV files are exported already"
    )
    check(
        not options.export or not options.export.is_dir(),
        f"--export {options.export} is a folder; name a CSV file",
    )
    check(
        not options.output or not options.output.is_file(),
        f"--output {options.output} is a file; name a folder",
    )
    sets = [(file.stem, file.resolve(), read_csv(file)) for file in files]
    if folders:
        file = (options.export or Path(f"{folders[0].resolve().name}.csv")).resolve()
        sets.append(
            (
                file.stem if options.export else folders[0].resolve().name,
                file,
                read_folders(folders, options.bins),
            )
        )
    twice = [name for name, count in Counter(name for name, *_ in sets).items() if count > 1]
    check(
        not twice,
        f"two inputs are named {' '.join(twice)}: they would overwrite each other's figures",
    )
    check(len(sets) == 1 or not options.figure, "--figure takes one set of runs, or one CSV file")
    ready = [(name, file, *select(name, rows, options)) for name, file, rows in sets]
    if options.figure:
        (name, _, rows, _, lacks) = ready[0]
        draw_figure(summarise_curves(rows, "steps", options), lacks, options)
        print(f"{options.figure}: {name}")
        return
    for name, file, rows, score, lacks in ready:
        if options.export and file == options.export.resolve():
            write_csv(
                file,
                COLUMNS,
                sorted(([row[column] for column in COLUMNS] for row in rows), key=sort_key),
            )
        home = file.parent.parent if file.parent.name == "results" else file.parent
        stem = (options.output or home / "curves") / name
        stem.parent.mkdir(parents=True, exist_ok=True)
        write_tables(stem, rows, score, lacks, options)
        curves = {axis: summarise_curves(rows, axis, options) for axis in ("steps", "minutes")}
        draw(stem, rows, curves, score, lacks, options)
        if curves["steps"]:
            write_page(stem.with_name(f"{name}.html"), curves, lacks, options)
        print(f"# {os.path.relpath(stem)}\n\n{stem.with_name(f'{name}.md').read_text()}")


def select(name: str, rows: list[dict], options: Options) -> tuple[list[dict], str, list[str]]:
    """The rows of the wanted exp_names and env_ids, the metric that is their score, and what is missing from them."""
    for flag, column in (("exp_names", "exp_name"), ("env_ids", "env_id")):
        wanted, there = getattr(options, flag), {row[column] for row in rows}
        unknown = [word for word in wanted if word not in there]
        check(not unknown, f"{name} has no {' '.join(unknown)} (--{flag.replace('_', '-')})")
        rows = [row for row in rows if row[column] in (wanted or there)]
    score = next(
        (score for score in SCORES if any(row["metric"] == score for row in rows)), SCORES[0]
    )
    lacks, keys = problems(rows, score), Counter()
    keys.update(
        (row["env_id"], row["exp_name"], row["seed"]) for row in rows if row["metric"] == score
    )
    twice = [" ".join(map(str, key)) for key, count in keys.items() if count > 1]
    check(not twice, f"{name} has more than one {score} of {'; '.join(twice)}")
    allow = "--allow-incomplete averages what is there and marks it; sweeps declare their runs in sweep.json"
    listing = "".join(f"\n  {line}" for line in lacks)
    check(
        options.allow_incomplete or not lacks, f"{name} is incomplete; {allow}{listing}", status=1
    )
    check(
        group(rows, score),
        f"{name} has no finished run of these exp_names and env_ids",
        status=1 if lacks else 2,
    )
    few = min(len(seeds) for seeds in group(rows, score).values())
    check(
        options.statistic == "mean" or few > 3,
        f"--statistic iqm cuts nothing off {few} seeds; it needs 4",
    )
    return rows, score, lacks


def sort_key(row: list) -> tuple:
    """exp_name, environment, seed, metric, step."""
    return row[0], row[1], int(row[2]) if str(row[2]).isdigit() else -1, row[4], int(row[3])


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
