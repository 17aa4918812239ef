"""Statistics of runs: intervals over seeds, comparisons of two experiments, and their tables.

Intervals are 95 % percentile bootstrap intervals over seeds (Agarwal et al. 2021, arXiv:2108.13264). For a single
environment their stratified bootstrap is the ordinary bootstrap.

Two experiments are compared on their common seeds, in pairs: the interval resamples pairs, and p comes from a sign-flip
test. All runs are compared without pairs, and p comes from a permutation test, in two cases: (a) the experiments have
different seeds and at most five in common, or (b) one experiment was made by another program, such as
Stable-Baselines3, where an equal seed does not mean equal random numbers.

Both tests try all 2^n sign flips, or all C(n + m, n) regroupings, if there are at most 20,000, and otherwise 20,000
random ones. p is two-sided, always tests the difference of means, and is corrected for the number of comparisons in the
table (Holm 1979). The smallest possible p is 2 / 2^n or 2 / C(n + m, n), and with random arrangements 2 / 20,001. If
even this value is 0.05 or more after the correction, the verdict is "underpowered", and the comparison does not count
for the correction.

`options` has statistic ("mean" or "iqm"), bootstrap_reps, baseline and metric, as in plot.py.
"""

import math
import re
from itertools import combinations, product
from pathlib import Path
from statistics import fmean, median

import numpy as np

from plainrl_tools.results import (
    CLOCK,
    CURVE,
    EVALUATION,
    MISSING,
    SUMMARY,
    Row,
    finals_of,
    write_csv,
)

# The Markdown table has columns for the first two of these that exist; the CSV file has all columns.
SHOWN = ("best_return_mean", "falls_percent", "return_of_worst_tenth", "memory_mib")
SHOWN += ("train_return_last100", "wall_time_s")
PEERS = ("sb3", "sbx", "cleanrl", "rllib")  # first words of the exp_names of other programs
MANY = 20_000  # arrangements of a test; if more are possible, the test draws this many at random
COVERAGE = """Worst and best run are over seeds; a column without an interval is a mean over seeds. With few seeds a
percentile bootstrap interval is too narrow: for normally distributed scores it contains the true mean in 50 % of cases
with 2 seeds, 75 % with 3, 84 % with 5, 90 % with 10 (benchmarks/coverage.py)."""
HOLM = """p is corrected by Holm's method for the number of comparisons that can be tested: {}. "Underpowered" means
that no result of so few seeds could give a p below 0.05."""


def aggregate(values: np.ndarray, statistic: str, axis: int = 0) -> np.ndarray:
    """The mean over runs, or the interquartile mean, which leaves out the worst and the best quarter of the runs."""
    runs = values.shape[axis]
    cut = runs // 4 if statistic == "iqm" else 0
    middle = np.sort(values, axis).take(range(cut, runs - cut), axis).mean(axis)
    # Sorting puts a NaN last, where the interquartile mean would leave it out with the best runs.
    return np.where(np.isnan(values).any(axis), np.nan, middle)


def resample(values: np.ndarray, options, seed: int = 0) -> np.ndarray:
    """The statistic of each bootstrap resample of the runs: (runs, ...) -> (resamples, ...)."""
    size = (options.bootstrap_reps, len(values))
    drawn = np.random.RandomState(seed).randint(0, len(values), size)  # as rliable draws
    return aggregate(values[drawn], options.statistic, axis=1)


def interval(values: np.ndarray, options) -> np.ndarray:
    """Bounds of the 95 % interval, (runs, ...) -> (2, ...). They are NaN for a single run."""
    if len(values) < 2:
        return np.full((2, *values.shape[1:]), math.nan)
    return np.percentile(resample(values, options), (2.5, 97.5), axis=0)


def rearranged(x: np.ndarray, y: np.ndarray, paired: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rearrange the runs of two experiments, as the null hypothesis of no difference allows.

    Returns all arrangements, or MANY random ones, as two arrays (arrangements, runs). With `paired` the two scores of a
    pair may be swapped; otherwise any run may move to the other experiment.
    """
    generator = np.random.default_rng(0)
    runs = np.concatenate([x, y])
    if paired:
        swap = generator.random((MANY, len(x))) < 0.5
        if 2 ** len(x) <= MANY:
            swap = np.array(list(product((False, True), repeat=len(x))))
        return np.where(swap, y, x), np.where(swap, x, y)
    everyone = range(len(runs))
    order = generator.permuted(np.tile(everyone, (MANY, 1)), axis=1)
    if math.comb(len(runs), len(x)) <= MANY:
        firsts = list(combinations(everyone, len(x)))
        order = np.array([(*first, *(i for i in everyone if i not in first)) for first in firsts])
    return runs[order[:, : len(x)]], runs[order[:, len(x) :]]


def program(exp_name: str) -> str:
    """The other program that made these runs, or "" for plainrl.

    Equal seeds mean equal random numbers only within one program.
    """
    first, *words = re.split("[-_]", exp_name)
    if first not in PEERS:
        return ""
    return "sbx" if "sbx" in words else first  # sb3_ppo-sbx-... is SBX, run by sb3_ppo.py


def compare(a: dict[int, float], b: dict[int, float], options, same_program: bool = True) -> dict:
    """Compare two experiments, given as {seed: score}.

    Returns the difference a - b, its interval, p, and the smallest p that a test of this many seeds can give.
    Swapping the scores of a pair flips the sign of their difference.
    """
    common = sorted(set(a) & set(b)) if same_program else []
    paired = len(common) > 5 or (len(common) > 1 and set(a) == set(b))
    x = np.array([a[seed] for seed in (common if paired else sorted(a))])
    y = np.array([b[seed] for seed in (common if paired else sorted(b))])
    draws = resample(x, options) - resample(y, options, seed=0 if paired else 1)
    low, high = np.percentile(draws, (2.5, 97.5))
    difference = aggregate(x, options.statistic) - aggregate(y, options.statistic)
    first, second = rearranged(x, y, paired)
    # The test uses means: an IQM does not change with the flip of a pair that it leaves out.
    differences = first.mean(1) - second.mean(1)
    slack = 1e-9 * np.abs([*x, *y]).max()  # the order of a sum changes its last bits
    above = (differences >= x.mean() - y.mean() - slack).mean()
    below = (differences <= x.mean() - y.mean() + slack).mean()
    if paired:
        test = f"paired, {len(x)} seeds"
        arrangements = 2 ** len(x)
    else:
        test = f"unpaired, {len(x)} and {len(y)} seeds"
        arrangements = math.comb(len(x) + len(y), len(x))
    share = min(above, below)
    if arrangements > MANY:  # the observed arrangement counts as one more of the random ones
        share = (share * MANY + 1) / (MANY + 1)
    row = {"test": test, "difference": float(difference), "low": float(low), "high": float(high)}
    finite = np.isfinite([*x, *y]).all()
    row["p"] = min(1.0, 2 * float(share)) if finite else math.nan
    row["least_p"] = 2 / min(arrangements, MANY + 1)
    return row


def holm(ps: list[float]) -> list[float]:
    """Holm's correction: multiply the k-th smallest of m values by m - k + 1, and keep the result non-decreasing."""
    corrected = [math.nan] * len(ps)
    bound = 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        bound = max(bound, min(1.0, ps[i] * (len(ps) - rank)))
        corrected[i] = bound
    return corrected


def comparison_table(rows: list[Row], score: str, options) -> list[dict]:
    """Compare all pairs of exp_names of an environment that have two or more runs, or each with the baseline."""
    scores, table = finals_of(rows, score), []
    for env_id in dict.fromkeys(env_id for env_id, _ in scores):
        names = [name for env, name in scores if env == env_id and len(scores[env, name]) > 1]
        first = options.baseline or (names[0] if len(names) > 4 else "")
        pairs = list(combinations(names, 2))
        if first in names:
            pairs = [(first, name) for name in names if name != first]
        elif options.baseline:  # this environment has no runs of the baseline
            pairs = []
        for against, name in pairs:
            row = {"env_id": env_id, "exp_name": name, "against": against}
            both = (scores[env_id, name], scores[env_id, against])
            row |= compare(*both, options, same_program=program(name) == program(against))
            table.append(row | {"p_holm": math.nan, "verdict": "not tested"})
    for row in table:
        if row["least_p"] >= 0.05:
            row["verdict"] = f"underpowered (least p {row['least_p']:.3g})"
    tested = [row for row in table if row["least_p"] < 0.05 and math.isfinite(row["p"])]
    # as if every comparison were as clear as can be; those of the fewest seeds go first
    bounds = holm([row["least_p"] for row in tested])
    while max(bounds, default=0) >= 0.05:
        worst = max(row["least_p"] for row in tested)
        for row, least in zip(tested, bounds):
            if row["least_p"] == worst:
                row |= {"least_p": least, "verdict": f"underpowered (least p {least:.3g})"}
        tested = [row for row in tested if row["least_p"] < worst]
        bounds = holm([row["least_p"] for row in tested])
    for row, p, least in zip(tested, holm([row["p"] for row in tested]), bounds):
        row |= {"p_holm": p, "least_p": least}
        row["verdict"] = "significant" if p < 0.05 else "not significant"
    return table


def score_table(rows: list[Row], score: str, options) -> list[dict]:
    """One row per environment and exp_name. Besides the score: the mean over seeds of every other final metric."""
    others = {row.metric for row in rows}
    others -= {score, CURVE, EVALUATION, CLOCK, MISSING, options.metric}
    first = [metric for metric in SUMMARY if metric in others]
    order = first + sorted(others - set(first))
    finals = {metric: finals_of(rows, metric) for metric in order}
    table = []
    for (env_id, name), seeds in finals_of(rows, score).items():
        values = np.array(list(seeds.values()))
        low, high = interval(values, options)
        row = {"env_id": env_id, "exp_name": name, "seeds": len(values)}
        row[options.statistic] = float(aggregate(values, options.statistic))
        row["low"] = float(low)
        row["high"] = float(high)
        row["median"] = median(values)
        row["worst_run"] = min(values)
        row["best_run"] = max(values)
        for metric in order:
            found = finals[metric].get((env_id, name), {})
            if found:  # NaN rather than a mean over only some of the seeds
                row[metric] = fmean(found.values()) if set(found) == set(seeds) else math.nan
        table.append(row)
    return table


def short(value) -> str:
    """A number for a table, with few digits."""
    if isinstance(value, str | int):
        return str(value)
    if math.isnan(value):
        return "n/a"
    if abs(value) >= 10:
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.2g}"


def with_interval(row: dict, middle: str) -> str:
    return f"{short(row[middle])} [{short(row['low'])}, {short(row['high'])}]"


def markdown(lines: list[dict]) -> str:
    """A Markdown table whose columns are the keys of its lines. Numbers and intervals are right-aligned."""
    words = ("env_id", "exp_name", "against", "test", "verdict", "evaluations", "flags")
    rule = ["---" if title in words else "--:" for title in lines[0]]
    cells = [list(lines[0]), rule, *(map(short, line.values()) for line in lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def tables_text(scores, comparisons, score: str, missing: list[str], options) -> str:
    """The two tables in Markdown: the scores, and the comparisons if there are any."""
    statistic = {"mean": "mean", "iqm": "IQM"}[options.statistic]
    extra = [name for name in SHOWN if any(name in row for row in scores)][:2]
    lines = []
    for row in scores:
        line = {name: row[name] for name in ("env_id", "exp_name", "seeds")}
        line[f"{score}: {statistic} [95 %]"] = with_interval(row, options.statistic)
        line["worst and best run"] = f"{short(row['worst_run'])}, {short(row['best_run'])}"
        lines.append(line | {name: row.get(name, "") for name in extra})
    texts = [f"**Incomplete set**: {line}." for line in missing] + [markdown(lines), COVERAGE]
    lines = []
    for row in comparisons:
        line = {name: row[name] for name in ("env_id", "exp_name", "against", "test")}
        line[f"{statistic} difference [95 %]"] = with_interval(row, "difference")
        lines.append(line | {"p (Holm)": row["p_holm"], "verdict": row["verdict"]})
    if lines:
        tested = sum(math.isfinite(row["p_holm"]) for row in comparisons)
        texts += [markdown(lines), HOLM.format(tested)]
        if options.statistic == "iqm":
            texts.append(
                "p and verdict test the difference of means, which may have the opposite sign."
            )
    return "\n\n".join(texts) + "\n"


def write_tables(stem: Path, scores, comparisons, score: str, missing: list[str], options) -> None:
    for name, table in (("scores", scores), ("comparisons", comparisons)):
        if missing:
            table = [row | {"set": "incomplete"} for row in table]
        columns = list(dict.fromkeys(column for row in table for column in row))
        cells = []
        for row in table:
            values = [row.get(column, "") for column in columns]
            cells.append([f"{x:.6g}" if isinstance(x, float) else x for x in values])
        file = stem.with_name(f"{stem.name}_{name}.csv")
        file.unlink(missing_ok=True)  # remove the table of an earlier call
        if table:
            write_csv(file, columns, cells)
    text = tables_text(scores, comparisons, score, missing, options)
    stem.with_name(f"{stem.name}.md").write_text(text)
