"""Figures, tables and statistics of runs.

    python scripts/plot.py runs                                       run folders -> curves/runs_curves.png and the rest
    python scripts/plot.py runs --export benchmarks/results/NAME.csv  run folders -> one long CSV, and its figures
    python scripts/plot.py benchmarks/results/*.csv                   every published figure and table again
    python scripts/plot.py FILE.csv --figure curves.png               the learning curves alone, into this file

Each CSV file, and all run folders together, are a set NAME with one kind of figure a file, as PNG and PDF, in curves/:
NAME_curves (a metric over steps), NAME_scores (final scores, where there is something to compare), NAME_bars (speed),
on request NAME_minutes (--minutes) and NAME_aggregate (--normalise: scores over environments), and NAME.html (--page,
interactive). NAME.md has the tables, NAME_scores.csv and NAME_comparisons.csv all of their columns.

Intervals are 95 % percentile bootstrap intervals over seeds (Agarwal et al. 2021, arXiv:2108.13264); within one
environment their stratified bootstrap is the plain one. Those of curves hold point by point. Two experiments with the
same seeds are paired: the interval resamples pairs, and p is of a sign-flip test, over all 2^n flips where they are
few. With other seeds p is of a permutation test. p is two-sided and corrected by Holm's method (Holm 1979) for the
comparisons of the table. Where even the least p that the seeds can give, 2 / 2^n paired, 2 / C(n + m, n) if not, stays
above 0.05, the table says "too few to test", and the comparison takes no part in the correction.

The minutes axis is training time: from the opening of the event file, so imports are not in it and compilation is,
without evaluations, without pauses between sessions, and without gaps of more than ten minutes (a machine suspended).
Steps that a resumed run did again count once. CSV files exported by older versions have the evaluations in it.

A set is incomplete where a run has no summary.json of its last arguments, where a run that a sweep declared
(sweep.json) is missing, where two exp_names of an environment have different seeds, or where a score is not finite. Of
run folders the environments that are whole are drawn, the others are named, and the exit status is 1; a CSV file, or
an --export, is refused as a whole. --allow-incomplete draws and marks all. Runs that differ in flags become
experiments of their own, named by these flags; a seed that is there twice needs --duplicates.
"""

import csv
import json
import math
import os
import re
import struct
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Literal

import numpy as np
import tyro

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import check, read_json  # noqa: E402

COLUMNS = ("exp_name", "env_id", "seed", "step", "metric", "value", "commit")
CURVE = "charts/episodic_return"
EVALUATION = "eval/episodic_return"
CLOCK = "charts/wall_time_s"
ENTROPY = "losses/entropy"
MISSING = "missing"
SUMMARY = ("eval_return_mean", "eval_return_std", "eval_return_median", "eval_return_min")
SUMMARY += ("best_return_mean", "train_return_last100", "sps", "wall_time_s")
SCORES = ("eval_return_mean", "sps")  # the score of a set is the first of these that it has
# the Markdown table has the first two of these that the set has; the CSV file has everything
SHOWN = ("best_return_mean", "falls_percent", "return_of_worst_tenth", "memory_mib")
SHOWN += ("train_return_last100", "wall_time_s")
PAUSE = 600  # seconds without a log
MOST = 6  # experiments in one panel
# flags in which the runs of one experiment may differ
APART = ("seed", "runs_dir", "resume", "track", "wandb_project_name", "wandb_entity")
APART += ("capture_video", "checkpoint_frequency")
FAMILIES = {  # beginning of an exp_name: what figures call it, its colour on every page
    "ppo": ("PPO", "#0072B2"),
    "rpo": ("RPO", "#D55E00"),
    "dqn": ("DQN", "#009E73"),
    "a2c": ("A2C", "#CC79A7"),
    "reinforce": ("REINFORCE", "#E69F00"),
    "sb3": ("Stable-Baselines3", "#666666"),
    "sbx": ("SBX", "#000000"),
    "zoo": ("Stable-Baselines3", "#666666"),
    "ours": ("plainrl", "#0072B2"),
}
OTHERS = ("#882255", "#117733", "#332288", "#999933", "#AA4499", "#44AA99")
SHADES = (0.0, 0.5, -0.5, 0.25, -0.75, 0.7)  # towards white, or below 0 towards black
STYLES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
WORDS = {
    CURVE: "training return",
    EVALUATION: "evaluation return",
    "eval_return_mean": "evaluation return",
}
COVERAGE = """Worst and best run are over seeds; a column without an interval is a mean over seeds. On so few seeds a
percentile bootstrap interval is too narrow: of normal scores it holds the true mean in 74 % of cases with 3 seeds, 83 %
with 5, 89 % with 10 (benchmarks/coverage.py)."""
HOLM = """p is corrected by Holm's method for the {} of the table that can be tested. "Too few to test": so few seeds
cannot give a p below 0.05, whatever they score."""


@dataclass
class Options:
    inputs: tyro.conf.Positional[tuple[Path, ...]]  # run folders, folders of such, or long CSVs
    output: Path | None = None  # folder of the figures; default: curves/ here, or beside results/
    metric: str = CURVE  # of the curves; eval/episodic_return are the evaluations during training
    statistic: Literal["mean", "iqm"] = "mean"  # over seeds; iqm is the mean of the middle half
    exp_names: tuple[str, ...] = ()  # only these
    env_ids: tuple[str, ...] = ()  # only these
    baseline: str = ""  # compare the others with this one; default: all pairs, above 4 the first
    labels: tuple[str, ...] = ()  # names in the figures: exp_name=Name
    minutes: bool = False  # also the curves over minutes of training
    normalise: Path | None = None  # CSV env_id,random,reference: also scores over environments
    page: bool = False  # also an interactive HTML page of the curves
    figure: Path | None = None  # only draw the learning curves, over steps, into this file
    export: Path | None = None  # write the run folders' results into this long CSV
    duplicates: Literal["ask", "newest", "oldest"] = (
        "ask"  # which run of a seed that is there twice
    )
    bins: int = 50  # most points of a run's learning curve
    bootstrap_reps: int = 2000  # resamples behind each interval
    allow_incomplete: bool = False  # average an incomplete set, and mark it


# ---- reading -----------------------------------------------------------------------------------


def records(file: Path):
    """The events of a TensorBoard file: length, checksum, bytes, checksum of each. A torn one ends it."""
    from tensorboard.compat.proto.event_pb2 import Event

    data, start = file.read_bytes(), 0
    while start + 16 <= len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        if not 0 < length <= len(data) - start - 16:
            return
        yield Event.FromString(data[start + 12 : start + 12 + length])
        start += length + 16


def read_scalars(run: Path) -> dict[str, list[tuple[int, float, float]]]:
    """tag -> [(step, seconds of training so far, value), ...], each step once. An evaluation is logged when it ends,
    right after what was logged before it began: that gap is no training. A resumed run has several files."""
    scalars, seconds = defaultdict(list), 0.0
    files = run.glob("events.out.tfevents.*")
    for file in sorted(files, key=lambda file: file.name.split(".")[3:]):
        last = math.inf
        for event in records(file):
            if event.session_log.status == event.session_log.START:  # resumed: steps are done again
                for tag, points in scalars.items():
                    scalars[tag] = [point for point in points if point[0] < event.step]
                kept = [point[1] for points in scalars.values() for point in points]
                seconds = max(kept, default=0.0)
            values = [value for value in event.summary.value if value.HasField("simple_value")]
            evaluated = any(value.tag.startswith("eval/") for value in values)
            if 0 < event.wall_time - last < PAUSE and not evaluated:
                seconds += event.wall_time - last
            last = event.wall_time
            for value in values:
                scalars[value.tag].append((event.step, seconds, value.simple_value))
    return scalars


def read_curve(
    run: Path, total_timesteps: int, bins: int, metric: str = CURVE
) -> list[tuple[int, str, float]]:
    """(step, metric, value): training and evaluation returns and `metric`, averaged over bins of steps; the training
    time at each bin's step; and the last entropy of the policy, where it is logged."""
    scalars, rows = read_scalars(run), []
    for tag in dict.fromkeys((CURVE, EVALUATION, metric)):
        groups = defaultdict(list)
        for point in scalars.get(tag, ()):
            groups[min(point[0] * bins // total_timesteps, bins - 1)].append(point)
        for _, points in sorted(groups.items()):
            step, seconds, value = map(fmean, zip(*points))
            rows.append((round(step), tag, value))
            if tag == CURVE:
                rows.append((round(step), CLOCK, seconds))
    return rows + [(point[0], ENTROPY, point[2]) for point in scalars.get(ENTROPY, ())[-1:]]


def read_run(run: Path, options: Options) -> tuple[tuple, dict, list[dict]]:
    """(exp_name, env_id, seed), the arguments and the rows of one complete run folder."""
    try:
        summary = json.loads((run / "summary.json").read_text())
        returns = summary["eval_returns"]
        summary |= {"eval_return_median": median(returns), "eval_return_min": min(returns)}
        key = (summary["args"]["exp_name"], summary["env_id"], summary["seed"])
        points = read_curve(run, summary["total_timesteps"], options.bins, options.metric)
        finals = [name for name in SUMMARY if summary.get(name) is not None]
        points += [(summary["global_step"], name, summary[name]) for name in finals]
        rows = []
        for step, metric, value in points:
            cells = (*key, step, metric, f"{value:.8g}", summary["commit"])
            rows.append(dict(zip(COLUMNS, cells)))
        return key, summary["args"], rows
    except (ValueError, KeyError, TypeError) as error:
        words = f"({type(error).__name__}: {error})"
        check(False, f"{run / 'summary.json'} is not a run's summary {words}")


def find(folder: Path, name: str) -> list[Path]:
    """Files of this name in the folder, but not under one whose name begins with a dot."""
    files = folder.rglob(name)
    return [
        file for file in files if not any(part[0] == "." for part in file.relative_to(folder).parts)
    ]


def age(run: Path) -> float:
    """When a run began: the end of its folder's name, or of another one the time of its summary."""
    start = run.name.rpartition("__")[2]
    return float(start) if start.isdigit() else (run / "summary.json").stat().st_mtime


def read_folders(folders: list[Path], options: Options) -> tuple[list[dict], list[str]]:
    """Rows of every run in `folders`, and what was left out for a choice of the reader's. A run that has not finished
    gives one row of the metric `missing`: one without a summary, or with new arguments since (it was resumed to go
    on), or declared by a sweep and never begun."""
    marks = ("summary.json", "config.json", "checkpoint.pt")
    files = [file for folder in folders for mark in marks for file in find(folder, mark)]
    runs = sorted({file.parent for file in files})
    check(runs, f"no run folder in {', '.join(map(str, folders))}")
    groups, expected = defaultdict(list), set()
    for run in runs:
        config, summary = read_json(run / "config.json"), read_json(run / "summary.json")
        goes_on = config.get("args") and summary.get("args", config["args"]) != config["args"]
        if (run / "summary.json").is_file() and not goes_on:
            key, args, rows = read_run(run, options)
            groups[key[:2]].append((age(run), key, args, rows))
        else:
            exp_name = config.get("args", {}).get("exp_name", run.name)
            expected.add((exp_name, config.get("env_id", "?"), config.get("seed", "?")))
    manifests = {file for folder in folders for file in find(folder, "sweep.json")}
    for manifest in manifests | {run.parent / "sweep.json" for run in runs}:
        for run in read_json(manifest).get("runs", ()):
            key = tuple(run.get(name) for name in COLUMNS[:3])
            if manifest in manifests or key[:2] in groups:  # of folders given one by one, their own
                expected.add(key)
    rows, left_out = [], []
    for (exp_name, env_id), group in groups.items():
        expected -= {key for _, key, *_ in group}
        named = defaultdict(list)
        for start, key, args, mine in sorted(group, key=lambda run: run[0]):
            name = exp_name + difference_in_flags(args, [other[2] for other in group])
            named[name, key[2]].append([row | {"exp_name": name} for row in mine])
        twice = {key: runs for key, runs in named.items() if len(runs) > 1}
        asking = options.duplicates == "ask"
        for name, seed in twice if asking else ():
            left_out.append(f"{name} on {env_id} is left out: {len(twice[name, seed])} runs of seed"
                            f" {seed}; --duplicates newest or oldest takes one")  # fmt: skip
        barred = {name for name, _ in twice} if asking else set()
        for (name, _), runs in named.items():
            if name not in barred:
                rows += runs[0 if options.duplicates == "oldest" else -1]
    missing = sorted(expected, key=str)
    return rows + [
        dict(zip(COLUMNS, (*key, 0, MISSING, "1", "unknown"))) for key in missing
    ], left_out


def difference_in_flags(args: dict, others: list[dict]) -> str:
    """-FLAG=VALUE of every flag in which the runs of one exp_name differ; empty where they differ in none."""
    name = ""
    for flag in args:
        values = {str(other[flag]) for other in others if flag in other}
        if flag not in APART and len(values) > 1:
            name += f"-{flag.replace('_', '-')}={args[flag]}"
    return name


def read_csv(file: Path) -> list[dict]:
    try:
        with file.open(newline="") as stream:
            rows = list(csv.DictReader(stream, strict=True))
    except (csv.Error, UnicodeDecodeError):
        rows = []
    columns = ",".join(COLUMNS)
    check(rows and tuple(rows[0]) == COLUMNS, f"{file} is no CSV with the columns {columns}")
    for number, row in enumerate(rows, 2):
        try:
            float(row["value"])
            int(row["step"])
            int(row["seed"] if row["metric"] != MISSING else 0)
        except (TypeError, ValueError):
            check(False, f"{file}, line {number}: seed, step and value must be numbers")
    return rows


def write_csv(file: Path, columns, rows) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([columns, *rows])


def group(rows: list[dict], metric: str) -> dict[tuple[str, str], dict[int, list[tuple]]]:
    """(env_id, exp_name) -> seed -> [(step, value), ...] of one metric, all sorted."""
    groups = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["metric"] == metric:
            point = (int(row["step"]), float(row["value"]))
            groups[row["env_id"], row["exp_name"]][int(row["seed"])].append(point)
    return {
        key: {seed: sorted(groups[key][seed]) for seed in sorted(groups[key])}
        for key in sorted(groups)
    }


def last_values(rows: list[dict], metric: str) -> dict[tuple[str, str], dict[int, float]]:
    """(env_id, exp_name) -> seed -> the last value of a metric."""
    groups = group(rows, metric)
    return {key: {seed: groups[key][seed][-1][1] for seed in groups[key]} for key in groups}


def problems(rows: list[dict], score: str) -> list[tuple[str, str]]:
    """(env_id, what is missing from its part of the set)."""
    lines, told = [], set()
    for row in rows:
        if row["metric"] == MISSING:
            words = f"{row['exp_name']} on {row['env_id']} with seed {row['seed']} is not finished"
            lines.append((row["env_id"], words))
            told.add((row["env_id"], row["exp_name"], str(row["seed"])))
    scores, curves = last_values(rows, score), group(rows, CURVE)
    for env_id, name in curves:
        if (env_id, name) not in scores:
            lines.append((env_id, f"{name} on {env_id} has no {score}"))
    for (env_id, name), here in scores.items():
        who = f"{name} on {env_id}"
        seeds = sorted(set().union(*(scores[key] for key in scores if key[0] == env_id)))
        lacking = [str(s) for s in seeds if s not in here and (env_id, name, str(s)) not in told]
        if lacking:
            lines.append((env_id, f"{who} lacks seeds {' '.join(lacking)} that others have"))
        for seed, value in here.items():
            if not math.isfinite(value):
                lines.append((env_id, f"{who} with seed {seed} scores {value}"))
        bare = [str(seed) for seed in here if seed not in curves.get((env_id, name), here)]
        if bare:
            lines.append((env_id, f"{who} has no learning curve of seeds {' '.join(bare)}"))
    return lines


# ---- statistics --------------------------------------------------------------------------------


def aggregate(values: np.ndarray, statistic: str, axis: int = 0) -> np.ndarray:
    """The mean over runs, or the interquartile mean: a quarter of the runs is cut off at each end."""
    runs = values.shape[axis]
    cut = runs // 4 if statistic == "iqm" else 0
    return np.sort(values, axis).take(range(cut, runs - cut), axis).mean(axis)


def resample(values: np.ndarray, options: Options, seed: int = 0) -> np.ndarray:
    """The statistic of each bootstrap resample of the runs: (runs, ...) -> (resamples, ...)."""
    size = (options.bootstrap_reps, len(values))
    drawn = np.random.default_rng(seed).integers(0, len(values), size)
    return aggregate(values[drawn], options.statistic, axis=1)


def interval(values: np.ndarray, options: Options) -> np.ndarray:
    """The two ends of the 95 % interval, (runs, ...) -> (2, ...); NaN for one run, which says nothing of its spread."""
    if len(values) < 2:
        return np.full((2, *values.shape[1:]), math.nan)
    return np.percentile(resample(values, options), (2.5, 97.5), axis=0)


def compare(a: dict[int, float], b: dict[int, float], options: Options) -> dict:
    """Of the scores by seed of two experiments: the difference a - b, its interval, two-sided p, and the least p that
    a test of so many seeds can give. Swapping a pair's two scores flips the sign of its difference."""
    from scipy.stats import permutation_test

    paired = set(a) == set(b)
    x, y = (np.array([scores[seed] for seed in sorted(scores)]) for scores in (a, b))
    apart = resample(x, options) - resample(y, options, seed=0 if paired else 1)
    low, high = np.percentile(apart, (2.5, 97.5))
    row = {"test": f"paired, {len(x)} seeds", "least_p": 2 / 2 ** len(x)}
    if not paired:
        least = 2 / math.comb(len(x) + len(y), len(x))
        row = {"test": f"unpaired, {len(x)} and {len(y)} seeds", "least_p": least}

    def differ(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        return aggregate(x, options.statistic, axis) - aggregate(y, options.statistic, axis)

    row |= {"difference": float(differ(x, y, 0)), "low": float(low), "high": float(high)}
    row["p"] = math.nan
    if np.isfinite([*x, *y]).all():
        kind = "samples" if paired else "independent"
        test = permutation_test((x, y), differ, permutation_type=kind, n_resamples=20_000, rng=0)
        row["p"] = float(test.pvalue)
    # how often a run of a scores above one of b, ties counting half
    row["better"] = float(np.mean((x[:, None] > y) + 0.5 * (x[:, None] == y)))
    return row


def holm(ps: list[float]) -> list[float]:
    """Corrected for their number: the k-th least of m times m - k + 1, never below the one before (Holm 1979)."""
    corrected, bound = [math.nan] * len(ps), 0.0
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    for rank, i in enumerate(order):
        bound = max(bound, min(1.0, ps[i] * (len(ps) - rank)))
        corrected[i] = bound
    return corrected


def comparison_table(rows: list[dict], score: str, options: Options) -> list[dict]:
    """Pairs of exp_names in one environment with two runs each, or each exp_name against the baseline."""
    scores, table = last_values(rows, score), []
    for env_id in dict.fromkeys(env_id for env_id, _ in scores):
        names = [name for env, name in scores if env == env_id and len(scores[env, name]) > 1]
        first = options.baseline or (names[0] if len(names) > 4 else "")
        pairs = list(combinations(names, 2))
        if first in names:
            pairs = [(first, name) for name in names if name != first]
        for against, name in pairs:
            row = {"env_id": env_id, "exp_name": name, "against": against}
            row |= compare(scores[env_id, name], scores[env_id, against], options)
            table.append(row | {"p_holm": math.nan, "verdict": "not tested"})
    tested = [row for row in table if row["least_p"] <= 0.05 and math.isfinite(row["p"])]
    least = holm([row["least_p"] for row in tested])
    for row, p, bound in zip(tested, holm([row["p"] for row in tested]), least):
        row["p_holm"] = p
        row["least_p"] = bound
        row["verdict"] = "significant" if p < 0.05 else "not significant"
    for row in table:
        if row["least_p"] > 0.05:
            row["verdict"] = f"too few to test (least p {short(row['least_p'])})"
    return table


def score_table(rows: list[dict], score: str, options: Options) -> list[dict]:
    """One row per environment and exp_name. Besides the score: the mean over seeds of every other final metric."""
    metrics = {row["metric"] for row in rows} - {score, CURVE, EVALUATION, CLOCK, MISSING}
    metrics -= {options.metric}
    others = [metric for metric in SUMMARY if metric in metrics] + sorted(metrics - set(SUMMARY))
    finals = {metric: last_values(rows, metric) for metric in others}
    curves, table = group(rows, CURVE), []
    for key, seeds in last_values(rows, score).items():
        values = np.array(list(seeds.values()))
        low, high = map(float, interval(values, options))
        row = {"env_id": key[0], "exp_name": key[1], "seeds": len(values)}
        row |= {options.statistic: float(aggregate(values, options.statistic))}
        row |= {"low": low, "high": high, "median": median(values)}
        row |= {"worst_run": min(values), "best_run": max(values)}
        if set(seeds) == set(curves.get(key, ())):
            most = [max(value for _, value in points) for points in curves[key].values()]
            row["best_training_return"] = fmean(most)
        for metric in others:
            there = finals[metric].get(key, {})
            if there:  # a mean over some of the seeds would pass for one over all
                row[metric] = fmean(there.values()) if set(there) == set(seeds) else math.nan
        table.append(row)
    return table


# ---- tables ------------------------------------------------------------------------------------


def short(value) -> str:
    """A number for a table: no exponent, and no more digits than anybody reads."""
    if isinstance(value, str | int):
        return str(value)
    if math.isnan(value):
        return "n/a"
    if abs(value) >= 10:
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.2g}"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    words = ("env_id", "exp_name", "against", "test", "")
    rule = ["---" if title in words else "--:" for title in header]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


def write_tables(stem: Path, scores: list, comparisons: list, score: str, lacks, options) -> None:
    for name, table in (("scores", scores), ("comparisons", comparisons)):
        table = [row | ({"set": "incomplete"} if lacks else {}) for row in table]
        columns = list(dict.fromkeys(column for row in table for column in row))
        cells = [[row.get(column, "") for column in columns] for row in table]
        rounded = [[f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in cells]
        if table:
            write_csv(stem.with_name(f"{stem.name}_{name}.csv"), columns, rounded)

    def with_interval(row: dict, middle: str) -> str:
        return f"{short(row[middle])} [{short(row['low'])}, {short(row['high'])}]"

    statistic = {"mean": "mean", "iqm": "IQM"}[options.statistic]
    extra = [name for name in SHOWN if any(name in row for row in scores)][:2]
    header = ["env_id", "exp_name", "seeds", f"{score}: {statistic} [95 %]"]
    lines = []
    for row in scores:
        lines.append([row["env_id"], row["exp_name"], short(row["seeds"])])
        lines[-1].append(with_interval(row, options.statistic))
        lines[-1].append(f"{short(row['worst_run'])}, {short(row['best_run'])}")
        lines[-1] += [short(row.get(column, "")) for column in extra]
    texts = [f"**Incomplete set**: {line}." for line in lacks]
    texts += [markdown([*header, "worst and best run", *extra], lines), COVERAGE]
    if comparisons:
        header = ["env_id", "exp_name", "against", "test", f"{statistic} difference [95 %]"]
        lines = []
        for row in comparisons:
            lines.append([row["env_id"], row["exp_name"], row["against"], row["test"]])
            lines[-1] += [with_interval(row, "difference"), short(row["p_holm"]), row["verdict"]]
        tested = sum(math.isfinite(row["p_holm"]) for row in comparisons)
        count = f"{tested} comparison{'s' * (tested != 1)}"
        texts += [markdown([*header, "p (Holm)", ""], lines), HOLM.format(count)]
    stem.with_name(f"{stem.name}.md").write_text("\n\n".join(texts) + "\n")


# ---- figures -----------------------------------------------------------------------------------


def display(exp_name: str, options: Options) -> str:
    """What figures call an experiment: as --labels says, or its algorithm, then what else its exp_name says."""
    for label in options.labels:
        if label.rpartition("=")[0] == exp_name:
            return label.rpartition("=")[2]
    first, *words = re.split(r"(?<!\de)-|_", exp_name)  # 5e-4 is one word
    if first in FAMILIES:
        words = [word for word in words if word not in (first, "continuous", "atari", "pixels")]
    return " ".join(FAMILIES.get(word, [word])[0] for word in (first, *words))


def looks(names) -> dict[str, dict]:
    """exp_name -> colour and line style: an algorithm has its colour everywhere, its variants other shades of it."""
    from matplotlib.colors import to_rgb

    counts, found = Counter(), {}
    for name in sorted(set(names)):
        family = re.split("[-_]", name)[0]
        i = counts[family]
        if family not in FAMILIES:
            family, i = "other", 0
        colour = OTHERS[counts["other"] % len(OTHERS)] if family == "other" else FAMILIES[family][1]
        shade = SHADES[i % len(SHADES)]
        rgb = [x + shade * (1 - x) if shade > 0 else x * (1 + shade) for x in to_rgb(colour)]
        found[name] = {"color": rgb, "linestyle": STYLES[i % len(STYLES)]}
        counts[family] += 1
    return found


def canvas(panels: int, most: int = 4, height: float = 0):
    """A figure as wide as a page, and one axis a panel, at most `most` side by side."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams |= {"font.size": 9, "axes.titlesize": 9, "axes.formatter.useoffset": False}
    matplotlib.rcParams |= {"axes.formatter.limits": (-5, 9), "axes.grid": True, "grid.alpha": 0.25}
    matplotlib.rcParams |= {"axes.spines.top": False, "axes.spines.right": False}
    columns = min(most, {1: 1, 2: 2, 4: 2, 7: 4, 8: 4}.get(panels, 3))
    lines = -(-panels // columns)
    height = height or {1: 3.2, 2: 2.5, 3: 2.1, 4: 1.9}[columns]
    figure = Figure(figsize=(8, height * lines + 0.6), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis in axes.flat[panels:]:
        axis.remove()
    return figure, list(axes.flat[:panels])


def save(figure, files: list[Path], caption: str, lacks: list[str], look: dict, options) -> None:
    """Write the figure with its legend and, below, what it shows."""
    from matplotlib.lines import Line2D

    names = {name: display(name, options) for name in look}
    handles = [Line2D([], [], lw=2.5, label=names[name], **look[name]) for name in look]
    if handles:
        columns = max(1, min(len(handles), 110 // (max(map(len, names.values())) + 8)))
        figure.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False)
    caption = f"INCOMPLETE SET: {len(lacks)} lacking. {caption}" if lacks else caption
    figure.supxlabel(caption, x=0.01, ha="left", size=8, color="red" if lacks else "0.3")
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"png": {"Software": None, "Description": caption}}
        metadata["pdf"] = {"CreationDate": None, "Subject": caption}
        figure.savefig(file, dpi=200, metadata=metadata.get(file.suffix[1:]))


def both(stem: Path, kind: str) -> list[Path]:
    return [stem.with_name(f"{stem.name}_{kind}.{suffix}") for suffix in ("png", "pdf")]


def describe(counts, options: Options) -> str:
    """What line and band are, for numbers of seeds."""
    if max(counts) == 1:
        return "one seed each, so no interval"
    statistic = {"mean": "mean", "iqm": "interquartile mean"}[options.statistic]
    seeds = f"{min(counts)} seeds" if len(set(counts)) == 1 else "the seeds"
    return f"{statistic} of {seeds}, 95 % bootstrap interval"


def short_steps(value: float, _=None) -> str:
    """A tick: 500k, 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def summarise(rows: list[dict], minutes: bool, options: Options) -> dict:
    """(env_id, exp_name) -> the single runs [(x, y), ...], and x, middle, low, high over them: over steps as far as
    all runs have points, over minutes as far as any has. A run that has ended keeps its last return."""
    curves, clocks, result = group(rows, options.metric), group(rows, CLOCK), {}
    for key, seeds in curves.items():
        if minutes and set(clocks.get(key, ())) != set(seeds):
            continue
        runs = []
        for seed, points in seeds.items():
            x, y = np.array(points).T
            if minutes:
                x = np.interp(x, *np.array(clocks[key][seed]).T) / 60
            runs.append((x, y))
        start = max(x[0] for x, _ in runs)
        end = (max if minutes else min)(x[-1] for x, _ in runs)
        grid = np.linspace(start, end, options.bins) if start < end else np.empty(0)
        values = np.array([np.interp(grid, x, y) for x, y in runs])
        result[key] = (runs, grid, aggregate(values, options.statistic), *interval(values, options))
    return result


def over_settings(rows: list[dict], score: str, options: Options) -> tuple[list[dict], str]:
    """Scores of env_ids such as "Walker-v3, noise 0.2" as points of a curve over the noise, and what it is over. The
    env_id without a setting is noise 0."""
    points, words = [], ""
    for row in rows:
        found = re.fullmatch(r"(.+), (.+) ([\d.]+)", row["env_id"])
        base, name, value = found.groups() if found else (row["env_id"], "", 0)
        words = name or words
        if row["metric"] == score:
            points.append(row | {"env_id": base, "metric": options.metric, "step": value})
    return (points, words) if words else ([], "")


def draw_curves(files: list[Path], curves: dict, over: str, lacks: list[str], options) -> None:
    """A panel for each environment; one with more than MOST experiments has several."""
    from matplotlib.ticker import FuncFormatter

    panels = []
    for env_id in dict.fromkeys(env_id for env_id, _ in curves):
        names = [name for env, name in curves if env == env_id]
        size = -(-len(names) // -(-len(names) // MOST))
        panels += [(env_id, names[i : i + size]) for i in range(0, len(names), size)]
    figure, axes = canvas(len(panels))
    columns = axes[0].get_gridspec().ncols
    look = looks(name for _, name in curves)
    counts = [len(runs) for runs, *_ in curves.values()]
    for place, (axis, (env_id, names)) in enumerate(zip(axes, panels)):
        for name in names:
            runs, x, middle, low, high = curves[env_id, name]
            colour = look[name]["color"]
            for run in runs:
                dot = "o" if len(run[0]) == 1 else None
                axis.plot(*run, color=colour, alpha=0.3, lw=0.5, marker=dot)
            axis.plot(x, middle, **look[name], lw=1.6)
            axis.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)
        title = env_id.rpartition(":")[2]
        seeds = len(curves[env_id, names[0]][0])
        axis.set_title(title if len(set(counts)) == 1 else f"{title}, {seeds} seeds")
        if place % columns == 0:
            axis.set_ylabel(WORDS.get(options.metric, options.metric))
        if place + columns >= len(panels):
            axis.set_xlabel(over)
        if over == "environment steps":
            axis.xaxis.set_major_formatter(FuncFormatter(short_steps))
        axis.locator_params(axis="x", nbins=5)
    caption = describe(counts, options)
    if max(counts) > 1:
        caption += " (band); faint: single runs"
    if over == "minutes of training":
        caption += "; a run that has ended keeps its last return"
    save(figure, files, caption, lacks, look, options)


def draw_scores(files: list[Path], rows, table, score: str, lacks: list[str], options) -> None:
    """A dot for each run, a bar for the interval, a tick for the statistic; environments with two experiments."""
    finals, groups = last_values(rows, score), defaultdict(list)
    for row in table:
        groups[row["env_id"]].append(row)
    groups = {env_id: lines for env_id, lines in groups.items() if len(lines) > 1}
    most = max(map(len, groups.values()))
    figure, axes = canvas(len(groups), height=0.7 + 0.25 * most)
    look = looks(row["exp_name"] for row in table)
    columns, before = axes[0].get_gridspec().ncols, []
    for place, (axis, (env_id, lines)) in enumerate(zip(axes, groups.items())):
        names = [row["exp_name"] for row in lines]
        for height, row in enumerate(lines):
            colour = look[row["exp_name"]]["color"]
            values = list(finals[env_id, row["exp_name"]].values())
            axis.plot(values, [height + 0.25] * len(values), "o", color=colour, alpha=0.5, ms=3)
            axis.plot([row["low"], row["high"]], [height] * 2, color=colour, lw=2.5)
            axis.plot(row[options.statistic], height, "|", color=colour, ms=11, mew=2)
        labels = [display(name, options) for name in names]
        axis.set_yticks(range(len(lines)), labels)
        if place % columns and names == before:
            axis.set_yticklabels([])
        before = names
        axis.set_ylim(len(lines) - 0.4, -0.6)
        axis.grid(axis="y", visible=False)
        axis.locator_params(axis="x", nbins=5)
        axis.set_title(env_id.rpartition(":")[2])
        if place + columns >= len(groups):
            axis.set_xlabel(WORDS.get(score, score))
    counts = [row["seeds"] for lines in groups.values() for row in lines]
    caption = f"{describe(counts, options)} (tick and bar); dots: single runs"
    save(figure, files, caption, lacks, {}, options)


def draw_bars(files: list[Path], rows: list[dict], lacks: list[str], options: Options) -> None:
    """Median steps per second of each side of benchmarks/speed.py, and how many times faster ours is within a round. Of
    a peer's two settings of threads the faster one is drawn."""
    cases = defaultdict(dict)
    for (env_id, name), rounds in last_values(rows, "sps").items():
        case, _, side = name.rpartition(" ")
        side = re.sub("-(default-threads|1-thread)$", "", side)
        side = {"sb3": "sb3-identical", "zoo": "sb3-recommended"}.get(side, side)
        title = f"{case} on {env_id}" if case else env_id
        best = cases[title].get(side)
        if best is None or median(rounds.values()) > median(best.values()):
            cases[title][side] = rounds
    figure, axes = canvas(len(cases), most=2, height=1.6)
    for axis, (title, sides) in zip(axes, cases.items()):
        sides.pop("bare", None)  # no learner; it would flatten all others
        ours = sides.get("ours", {})
        for place, (side, rounds) in enumerate(sides.items()):
            middle, least, most = (f(rounds.values()) for f in (median, min, max))
            spread = [[middle - least], [most - middle]]
            axis.barh(place, middle, xerr=spread, color=looks([side])[side]["color"], height=0.6)
            text = f"  {middle:,.0f}"
            if side != "ours" and set(ours) == set(rounds):
                ratio = median(ours[seed] / rounds[seed] for seed in rounds)
                text += f" (ours: {ratio:.1f} times)"
            axis.annotate(text, (most, place), va="center", size=8)
        labels = [display(side, options).replace("Stable-Baselines3", "SB3") for side in sides]
        axis.set_yticks(range(len(sides)), labels)
        axis.invert_yaxis()
        axis.set_xlim(0, 1.45 * max(max(rounds.values()) for rounds in sides.values()))
        axis.xaxis.set_major_formatter(short_steps)
        axis.locator_params(axis="x", nbins=5)
        axis.grid(axis="y", visible=False)
        axis.set_title(title)
    axes[-1].set_xlabel("steps per second")
    rounds = max(len(rounds) for sides in cases.values() for rounds in sides.values())
    caption = f"median of {rounds} rounds, whisker: least to greatest"
    save(
        figure, files, f"{caption}; in brackets the median ratio within a round", lacks, {}, options
    )


def read_normalisation(file: Path) -> dict[str, tuple[float, float]]:
    """env_id -> the scores that count as 0 and as 1."""
    columns = ("env_id", "random", "reference")
    try:
        with file.open(newline="") as stream:
            rows = list(csv.DictReader(stream, strict=True))
        return {row["env_id"]: (float(row["random"]), float(row["reference"])) for row in rows}
    except (OSError, csv.Error, KeyError, TypeError, ValueError):
        check(False, f"--normalise {file} is no CSV with the columns {','.join(columns)}")


def draw_aggregate(stem: Path, rows: list[dict], score: str, lacks: list[str], options) -> None:
    """Normalised scores over all environments, (score - random) / (reference - random): interquartile mean and mean
    with rliable's stratified bootstrap and, from five seeds on, the share of runs above each score."""
    from rliable.library import create_performance_profile, get_interval_estimates
    from rliable.metrics import aggregate_iqm, aggregate_mean

    scales, scores = read_normalisation(options.normalise), last_values(rows, score)
    env_ids = sorted({env_id for env_id, _ in scores})
    unknown = [env_id for env_id in env_ids if env_id not in scales]
    check(not unknown, f"--normalise {options.normalise} has no {', '.join(unknown)}")
    matrices = {}
    for name in sorted({name for _, name in scores}):
        columns = [list(scores.get((env_id, name), {}).values()) for env_id in env_ids]
        if columns[0] and len({len(column) for column in columns}) == 1:
            random, reference = np.array([scales[env_id] for env_id in env_ids]).T
            matrices[name] = (np.array(columns).T - random) / (reference - random)
    check(matrices, "--normalise: no exp_name has equally many seeds in every environment")
    statistics = {"interquartile mean": aggregate_iqm, "mean": aggregate_mean}

    def both_statistics(matrix: np.ndarray) -> np.ndarray:
        return np.array([function(matrix) for function in statistics.values()])

    np.random.seed(0)  # rliable draws from NumPy's global generator
    reps = options.bootstrap_reps
    points, ends = get_interval_estimates(matrices, both_statistics, reps=reps)
    counts = [len(matrix) for matrix in matrices.values()]
    figure, axes = canvas(3 if min(counts) >= 5 else 2, height=1.2 + 0.25 * len(matrices))
    look, table = looks(matrices), []
    for height, name in enumerate(matrices):
        row = {"exp_name": name, "seeds": len(matrices[name]), "env_ids": len(env_ids)}
        for i, statistic in enumerate(statistics):
            low, high = map(float, ends[name][:, i])
            values = {statistic: float(points[name][i]), "low": low, "high": high}
            row |= {f"{statistic} {key}".replace(f"{statistic} {statistic}", statistic): f"{value:.6g}"
                    for key, value in values.items()}  # fmt: skip
            axes[i].plot([low, high], [height] * 2, color=look[name]["color"], lw=4)
            axes[i].plot(points[name][i], height, "|", color="black", ms=11, mew=2)
            axes[i].set_xlabel(f"normalised score, {statistic}")
        table.append(row)
    for axis in axes[:2]:
        axis.set_yticks(range(len(matrices)), [])
        axis.set_ylim(len(matrices) - 0.4, -0.6)
        axis.grid(axis="y", visible=False)
    axes[0].set_yticklabels([display(name, options) for name in matrices])
    if len(axes) == 3:
        taus = np.linspace(0, max(matrix.max() for matrix in matrices.values()), 100)
        shares, bands = create_performance_profile(matrices, taus, reps=reps)
        for name in matrices:
            axes[2].plot(taus, shares[name], **look[name])
            axes[2].fill_between(taus, *bands[name], color=look[name]["color"], alpha=0.18, lw=0)
        axes[2].set_xlabel("normalised score")
        axes[2].set_ylabel("share of runs above it")
    seeds = " or ".join(map(str, sorted(set(counts))))
    caption = f"{len(env_ids)} environments, {seeds} seeds each, 95 % stratified bootstrap interval"
    save(figure, both(stem, "aggregate"), caption, lacks, {}, options)
    write_csv(
        stem.with_name(f"{stem.name}_aggregate.csv"), table[0], [row.values() for row in table]
    )


def write_page(file: Path, curves: dict, lacks: list[str], options: Options) -> None:
    """The curves as one HTML page that needs no network: hover, zoom, and switch exp_names off in the legend."""
    from matplotlib.colors import to_hex
    from plotly.subplots import make_subplots

    env_ids, names = (list(dict.fromkeys(key[i] for key in curves)) for i in (0, 1))
    page, look, shown = make_subplots(len(env_ids), 1, subplot_titles=env_ids), looks(names), set()
    for (env_id, name), (runs, x, middle, low, high) in curves.items():
        colour = to_hex(look[name]["color"])
        common = {"mode": "lines", "legendgroup": name, "row": env_ids.index(env_id) + 1, "col": 1}
        hidden = common | {"showlegend": False, "hoverinfo": "skip"}
        thin = {"color": colour, "width": 0.7}
        for run_x, run_y in runs:
            page.add_scatter(x=run_x, y=run_y, line=thin, opacity=0.3, **hidden)
        page.add_scatter(x=x, y=low, line={"width": 0}, **hidden)
        filled = {"fill": "tonexty", "fillcolor": f"{colour}2e"}
        page.add_scatter(x=x, y=high, line={"width": 0}, **filled, **hidden)
        common |= {"name": display(name, options), "showlegend": name not in shown}
        page.add_scatter(x=x, y=middle, line={"color": colour, "width": 2.5}, **common)
        shown.add(name)
    title = describe([len(runs) for runs, *_ in curves.values()], options)
    title = f"INCOMPLETE SET: {'; '.join(lacks)}" if lacks else title
    height = 380 * len(env_ids) + 120
    page.update_layout(height=height, template="plotly_white", title=title)
    page.update_xaxes(title_text="environment steps")
    page.update_yaxes(title_text=WORDS.get(options.metric, options.metric))
    page.write_html(file, include_plotlyjs=True, div_id="curves")


# ---- command line ------------------------------------------------------------------------------


def write_set(stem: Path, rows: list[dict], score: str, lacks: list[str], options) -> None:
    """All figures and tables of a set."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    table = score_table(rows, score, options)
    comparisons = [] if score == "sps" else comparison_table(rows, score, options)
    write_tables(stem, table, comparisons, score, lacks, options)
    curves, over = summarise(rows, False, options), "environment steps"
    if not curves:
        points, over = over_settings(rows, score, options)
        curves = summarise(points, False, options)
    if curves:
        draw_curves(both(stem, "curves"), curves, over, lacks, options)
    if options.page and curves:
        write_page(stem.with_name(f"{stem.name}.html"), curves, lacks, options)
    if options.minutes:
        minutes = summarise(rows, True, options)
        check(minutes, f"{stem.name} has no times ({CLOCK}) for --minutes")
        draw_curves(both(stem, "minutes"), minutes, "minutes of training", lacks, options)
    if score == "sps":
        draw_bars(both(stem, "bars"), rows, lacks, options)
    elif comparisons:
        draw_scores(both(stem, "scores"), rows, table, score, lacks, options)
    if options.normalise:
        draw_aggregate(stem, rows, score, lacks, options)
    text = stem.with_name(f"{stem.name}.md").read_text()
    print(f"# {os.path.relpath(stem)}\n\n{text}")


def select(name: str, rows: list[dict], options: Options) -> tuple[list[dict], str]:
    """The rows of the wanted exp_names and env_ids, and the metric that is their score."""
    for flag, column in (("exp_names", "exp_name"), ("env_ids", "env_id")):
        wanted, there = getattr(options, flag), {row[column] for row in rows}
        unknown = [word for word in wanted if word not in there]
        check(not unknown, f"{name} has no {' '.join(unknown)} (--{flag.replace('_', '-')})")
        rows = [row for row in rows if row[column] in (wanted or there)]
    metrics = {row["metric"] for row in rows}
    score = next((score for score in SCORES if score in metrics), SCORES[0])
    finals = [row for row in rows if row["metric"] == score]
    keys = Counter((row["env_id"], row["exp_name"], row["seed"]) for row in finals)
    twice = [" ".join(map(str, key)) for key, count in keys.items() if count > 1]
    check(not twice, f"{name} has more than one {score} of {'; '.join(twice)}")
    return rows, score


def whole(name: str, rows: list[dict], left_out, part: bool, options: Options):
    """What of a set may be drawn: its rows, their score, and what is missing from them. What may not is named. A set of
    which a part may be drawn (run folders) loses the environments that are incomplete."""
    rows, score = select(name, rows, options)
    found = problems(rows, score)
    lacks = [line for _, line in found]
    if found and not options.allow_incomplete or left_out:
        told = left_out + ([] if options.allow_incomplete else lacks)
        listing = "".join(f"\n  {line}" for line in told)
        allow = "--allow-incomplete averages what is there and marks it"
        print(f"plot.py: {name} is incomplete; {allow}{listing}", file=sys.stderr)
    if found and not options.allow_incomplete:
        barred, lacks = {env_id for env_id, _ in found}, []
        rows = [row for row in rows if part and "?" not in barred and row["env_id"] not in barred]
    finals = last_values(rows, score)
    failed = bool(found) and not options.allow_incomplete or bool(left_out)
    check(finals or failed, f"{name} has no finished run of these exp_names and env_ids")
    few = min(map(len, finals.values()), default=4)
    check(options.statistic == "mean" or few > 3,
          f"--statistic iqm cuts nothing off {few} seeds; it needs 4")  # fmt: skip
    return (rows if finals else []), score, lacks, failed


def main(options: Options) -> None:
    for name in ("bins", "bootstrap_reps"):
        value = getattr(options, name)
        check(value > 1, f"--{name.replace('_', '-')} must be at least 2, not {value}")
    check(options.inputs, "give run folders or CSV files, for example: python scripts/plot.py runs")
    folders = [path for path in options.inputs if path.is_dir()]
    files = [path for path in options.inputs if path not in folders and path.name != "sweep.json"]
    for file in files:
        check(file.is_file(), f"{file} does not exist")
    export, output = options.export, options.output
    check(folders or not export, "--export takes run folders; CSV files are exported already")
    is_folder = export and export.is_dir()
    check(not is_folder, f"--export {export} is a folder; name a CSV file")
    is_file = output and output.is_file()
    check(not is_file, f"--output {output} is a file; name a folder")
    for label in options.labels:
        check("=" in label, f"--labels {label}: write exp_name=Name")
    sets = [(file.resolve(), read_csv(file), [], False) for file in files]
    if folders:
        file = (export or Path(f"{folders[0].resolve().name}.csv")).resolve()
        sets.append((file, *read_folders(folders, options), not export))
    twice = [name for name, n in Counter(file.stem for file, *_ in sets).items() if n > 1]
    words = "they would overwrite each other's figures"
    check(not twice, f"two inputs are named {' '.join(twice)}: {words}")
    check(len(sets) == 1 or not options.figure, "--figure takes one set of runs, or one CSV file")
    ready = [(file, *whole(file.stem, *rest, options)) for file, *rest in sets]
    failed = any(failed for *_, failed in ready)
    parts = [part for *_, part in sets]
    if failed and not all(parts):
        raise SystemExit(1)
    for file, rows, score, lacks, _ in ready:
        if not rows:
            continue
        if options.figure:
            curves = summarise(rows, False, options)
            check(curves, f"{file.stem} has no {options.metric}")
            draw_curves([options.figure], curves, "environment steps", lacks, options)
            print(f"{options.figure}: {file.stem}")
            continue
        if export and file == export.resolve():
            cells = [[row[column] for column in COLUMNS] for row in rows]
            write_csv(file, COLUMNS, sorted(cells, key=sort_key))
        home = file.parent.parent if file.parent.name == "results" else file.parent
        write_set((output or home / "curves") / file.stem, rows, score, lacks, options)
    raise SystemExit(int(failed))


def sort_key(row: list) -> tuple:
    """exp_name, environment, seed, metric, step."""
    return row[0], row[1], int(row[2]) if str(row[2]).isdigit() else -1, row[4], int(row[3])


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
