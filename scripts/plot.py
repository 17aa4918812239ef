"""Figures, tables and statistics of runs.

    python scripts/plot.py runs                                       run folders -> curves/runs.png and the rest
    python scripts/plot.py runs --export benchmarks/results/NAME.csv  run folders -> one long CSV, and its figures
    python scripts/plot.py benchmarks/results/*.csv                   every published figure and table again

Each CSV file, and all run folders together, give one set of files in `curves/` beside the folder that holds them:
NAME.png and NAME.svg, NAME.html (interactive, self-contained), NAME.md (tables), NAME_scores.csv and
NAME_comparisons.csv (the tables' figures). Intervals are 95 % percentile intervals of the stratified bootstrap over
seeds (Agarwal et al. 2021, arXiv:2108.13264, by rliable); those of curves hold point by point. A difference is
called significant where its interval leaves out 0 and a permutation test has p < 0.05.

A set is incomplete where a run has no summary.json, where a run that a sweep declared (sweep.json) is missing, or
where two exp_names of an environment have different seeds. Then the exit status is 1 and nothing is written, unless
--allow-incomplete, which marks every figure and table.
"""

import csv
import json
import math
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
CURVE, CLOCK, ENTROPY, MISSING = "charts/episodic_return", "charts/wall_time_s", "losses/entropy", "missing"
SUMMARY = ("eval_return_mean", "eval_return_std", "eval_return_median", "eval_return_min")
SUMMARY += ("train_return_last100", "sps", "wall_time_s")
SCORES = ("eval_return_mean", "sps")  # the score of a set is the first of these that it has
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")


@dataclass
class Options:
    inputs: tyro.conf.Positional[tuple[Path, ...]]  # run folders, folders of such, or long CSV files
    output: Path | None = None  # folder of the figures and tables; default: curves/ beside the folder of the input
    statistic: Literal["mean", "iqm"] = "mean"  # over seeds; iqm is the mean of the middle half
    exp_names: tuple[str, ...] = ()  # only these
    env_ids: tuple[str, ...] = ()  # only these
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
    and the last entropy of the policy, where it is logged. Time is counted from the opening of the event file; a
    resumed run has several, and no time between them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    points, entropy, offset = [], [], 0.0
    for file in sorted(run.glob("events.out.tfevents.*"), key=lambda file: int(file.name.split(".")[3])):
        events = EventAccumulator(str(file), size_guidance={"scalars": 0}).Reload()
        new = events.Scalars(CURVE) if CURVE in events.Tags()["scalars"] else []
        if new:
            points = [point for point in points if point[0] < new[0].step]  # done again after a resume
            offset = points[-1][1] if points else 0.0
            start = events.FirstEventTimestamp()
            points += [(point.step, offset + point.wall_time - start, point.value) for point in new]
        if ENTROPY in events.Tags()["scalars"]:
            entropy = [(point.step, ENTROPY, point.value) for point in events.Scalars(ENTROPY)[-1:]]
    groups = defaultdict(list)
    for point in points:
        groups[min(point[0] * bins // total_timesteps, bins - 1)].append(point)
    means = [tuple(map(mean, zip(*group))) for _, group in sorted(groups.items())]
    curve = [row for step, clock, value in means for row in ((round(step), CURVE, value), (round(step), CLOCK, clock))]
    return curve + entropy


def read_run(run: Path, bins: int) -> list[dict]:
    """Rows of one complete run folder."""
    try:
        summary = json.loads((run / "summary.json").read_text())
        returns = summary["eval_returns"]
        summary |= {"eval_return_median": median(returns), "eval_return_min": min(returns)}
        key = summary["args"]["exp_name"], summary["env_id"], summary["seed"]
        points = read_curve(run, summary["total_timesteps"], bins)
        points += [(summary["global_step"], name, summary[name]) for name in SUMMARY if summary.get(name) is not None]
    except (ValueError, KeyError, TypeError) as error:
        check(False, f"{run / 'summary.json'} is not a run's summary ({type(error).__name__}: {error})")
    return [dict(zip(COLUMNS, (*key, *point[:2], f"{point[2]:.8g}", summary["commit"]))) for point in points]


def read_folders(folders: list[Path], bins: int) -> list[dict]:
    """Rows of every run in `folders`; a run that has not finished gives one row of the metric `missing`."""
    marks = ("summary.json", "config.json", "checkpoint.pt")
    runs = sorted({file.parent for folder in folders for mark in marks for file in folder.rglob(mark)})
    check(runs, f"no run folder in {', '.join(map(str, folders))}")
    rows, complete, expected = [], Counter(), set()
    for run in runs:
        if (run / "summary.json").is_file():
            rows += read_run(run, bins)
            complete[tuple(rows[-1][column] for column in COLUMNS[:3])] += 1
        else:
            config = json.loads((run / "config.json").read_text()) if (run / "config.json").is_file() else {}
            exp_name = config.get("args", {}).get("exp_name", run.name)
            expected.add((exp_name, config.get("env_id", "?"), config.get("seed", "?")))
    for manifest in (folder / "sweep.json" for folder in folders if (folder / "sweep.json").is_file()):
        expected |= {(run["exp_name"], run["env_id"], run["seed"]) for run in json.loads(manifest.read_text())["runs"]}
    twice = [f"{name} on {env_id} with seed {seed}" for (name, env_id, seed), count in complete.items() if count > 1]
    check(not twice, f"more than one complete run of {'; '.join(twice)}: move all but one of each away", status=1)
    missing = sorted(expected - set(complete), key=str)
    return rows + [dict(zip(COLUMNS, (*key, 0, MISSING, "1", "unknown"))) for key in missing]


def read_csv(file: Path) -> list[dict]:
    try:
        with file.open(newline="") as stream:
            rows = list(csv.DictReader(stream, strict=True))
    except (csv.Error, UnicodeDecodeError):
        rows = []
    check(rows and tuple(rows[0]) == COLUMNS, f"{file} is no CSV with the columns {','.join(COLUMNS)}")
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
            groups[row["env_id"], row["exp_name"]][int(row["seed"])].append((int(row["step"]), float(row["value"])))
    return {key: {seed: sorted(groups[key][seed]) for seed in sorted(groups[key])} for key in sorted(groups)}


def problems(rows: list[dict], score: str) -> list[str]:
    """What is missing from the set, one line each."""
    unfinished = [row for row in rows if row["metric"] == MISSING]
    lines = [f"{row['exp_name']} on {row['env_id']} with seed {row['seed']} is not finished" for row in unfinished]
    scores = group(rows, score)
    for env_id, name in scores:
        seeds = set().union(*(scores[key] for key in scores if key[0] == env_id))
        lacking = sorted(seeds - set(scores[env_id, name]))
        lines += [f"{name} on {env_id} lacks seeds {' '.join(map(str, lacking))} that others have"] * bool(lacking)
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
    function = lambda resampled: aggregate(resampled, statistic)  # noqa: E731
    return get_interval_estimates({"": scores}, function, reps=reps)[1][""]


def p_value(a: np.ndarray, b: np.ndarray, statistic: str) -> float:
    """Two-sided permutation test of the difference between the runs of `a` and `b`, by all regroupings where they are
    few (5 against 5: 252), else by 9999 random ones. Three seeds against three cannot get below 0.1."""
    from scipy.stats import permutation_test

    def difference(x: np.ndarray, y: np.ndarray) -> float:
        return aggregate(x, statistic) - aggregate(y, statistic)

    return float(permutation_test((a, b), difference, n_resamples=9999, rng=0).pvalue)


def improvement(a: np.ndarray, b: np.ndarray, reps: int) -> tuple[float, float, float]:
    """Probability that a run of `a` scores above a run of `b`, ties counting half, with its interval."""
    from rliable.library import get_interval_estimates
    from rliable.metrics import probability_of_improvement

    np.random.seed(0)
    pair = {"": [a[:, None], b[:, None]]}
    point, ends = get_interval_estimates(pair, lambda x, y: np.array([probability_of_improvement(x, y)]), reps=reps)
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
        row |= {options.statistic: aggregate(values, options.statistic), "low": low[0], "high": high[0]}
        row |= {"median": np.median(values), "worst_run": values.min(), "best_run": values.max()}
        if key in curves:
            row["best_training_return"] = mean(max(v for _, v in points) for points in curves[key].values())
        for metric in others:
            if key in finals[metric]:
                row[metric] = mean(points[-1][1] for points in finals[metric][key].values())
        table.append(row)
    return table


def comparison_table(rows: list[dict], score: str, options: Options) -> list[dict]:
    """Pairs of exp_names in one environment: all of them, or with more than four names each one against the first."""
    groups, table = group(rows, score), []
    for env_id in dict.fromkeys(env_id for env_id, _ in groups):
        names = [name for env, name in groups if env == env_id]
        for first, second in combinations(names, 2) if len(names) < 5 else ((names[0], name) for name in names[1:]):
            both = [{seed: p[-1][1] for seed, p in groups[env_id, name].items()} for name in (second, first)]
            shared = sorted(both[0].keys() & both[1].keys())
            if len(shared) < 2:
                continue
            a, b = (np.array([scores[seed] for seed in shared]) for scores in both)
            low, high = interval((a - b)[:, None], options.statistic, options.bootstrap_reps)
            probability = improvement(a, b, options.bootstrap_reps)
            row = {"env_id": env_id, "exp_name": second, "against": first, "seeds": len(shared)}
            row |= {"difference": aggregate(a - b, options.statistic), "low": low[0], "high": high[0]}
            row["p"] = p_value(a, b, options.statistic)
            row["significant"] = "yes" if row["p"] < 0.05 and (low[0] > 0 or high[0] < 0) else "no"
            table.append(row | dict(zip(("probability", "probability_low", "probability_high"), probability)))
    return table


# ---- writing -------------------------------------------------------------------------------------------------------


def short(value) -> str:
    """A figure for a table: no exponent, and no more digits than anybody reads."""
    if isinstance(value, str | int):
        return str(value)
    return "n/a" if math.isnan(value) else f"{value:.{0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2}f}"


def markdown(header: list[str], rows: list[list]) -> str:
    rule = ["---" if title in ("env_id", "exp_name", "against") else "--:" for title in header]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (header, rule, *rows))


def write_tables(stem: Path, rows: list[dict], score: str, lacks: list[str], options: Options) -> None:
    scores, comparisons = score_table(rows, score, options), comparison_table(rows, score, options)
    for name, table in (("scores", scores), ("comparisons", comparisons)):
        columns = list(dict.fromkeys(column for row in table for column in row))
        cells = [[row.get(c, "") for c in columns] for row in table]
        rounded = [[f"{float(x):.6g}" if isinstance(x, float) else x for x in row] for row in cells]
        write_csv(stem.with_name(f"{stem.name}_{name}.csv"), columns, rounded)

    def with_interval(row: dict, keys: tuple[str, str, str]) -> str:
        middle, low, high = (short(row[key]) for key in keys)
        return f"{middle} [{low}, {high}]"

    texts = [f"**Incomplete set**: {line}." for line in lacks]
    skip = {"env_id", "exp_name", "seeds", options.statistic, "low", "high", "eval_return_median"}
    extra = [c for c in dict.fromkeys(column for row in scores for column in row) if c not in skip]
    statistic = {"mean": "mean", "iqm": "IQM"}[options.statistic]
    header = ["env_id", "exp_name", "seeds", f"{score}: {statistic} [95 %]", *extra]
    lines = [[row["env_id"], row["exp_name"], row["seeds"], with_interval(row, (options.statistic, "low", "high"))]
             + [short(row.get(column, "")) for column in extra] for row in scores]  # fmt: skip
    texts.append(markdown(header, lines))
    if comparisons:
        header = [
            "env_id",
            "exp_name",
            "against",
            "seeds",
            f"difference: {statistic} [95 %]",
            "p",
            "",
            "P(better) [95 %]",
        ]
        lines = [[row["env_id"], row["exp_name"], row["against"], row["seeds"],
                  with_interval(row, ("difference", "low", "high")), f"{row['p']:.2g}",
                  "significant" if row["significant"] == "yes" else "not significant",
                  with_interval(row, ("probability", "probability_low", "probability_high"))]
                 for row in comparisons]  # fmt: skip
        texts.append(markdown(header, lines))
    stem.with_suffix(".md").write_text("\n\n".join(texts) + "\n")


def summarise_curves(rows: list[dict], axis: str, options: Options) -> dict:
    """(env_id, exp_name) -> the single runs [(x, y), ...], and x, middle, low, high over them. `axis` is "steps", where
    all runs have points, or "minutes", where a run that has ended keeps its last value."""
    curves, clocks, result = group(rows, CURVE), group(rows, CLOCK), {}
    for key, seeds in curves.items():
        if axis == "minutes" and set(clocks.get(key, ())) != set(seeds):
            continue
        runs = [np.array(points).T for points in seeds.values()]
        if axis == "minutes":
            runs = [(np.array(clocks[key][seed])[:, 1] / 60, y) for seed, (_, y) in zip(seeds, runs)]
        end = (min if axis == "steps" else max)(x[-1] for x, _ in runs)
        grid = np.linspace(max(x[0] for x, _ in runs), end, options.bins)
        values = np.array([np.interp(grid, x, y) for x, y in runs])
        low, high = interval(values, options.statistic, options.bootstrap_reps)
        result[key] = runs, grid, aggregate(values, options.statistic), low, high
    return result


def draw(stem: Path, rows: list[dict], curves: dict, score: str, lacks: list[str], options: Options) -> None:
    """One row of panels per environment: return over steps, return over minutes, final scores, performance profile."""
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    style = {"font.size": 9, "axes.titlesize": 10, "axes.spines.top": False, "axes.spines.right": False}
    plt.rcParams |= style | {"svg.hashsalt": "plainrl", "svg.fonttype": "none", "axes.grid": True, "grid.alpha": 0.25}
    finals = group(rows, score)
    env_ids, names = (sorted({key[i] for key in finals}) for i in (0, 1))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    panels = [axis for axis in curves if curves[axis]] + ["final", "profile"]
    size = 3.3 * len(panels), 2.5 * len(env_ids) + 0.5 + 0.16 * len(names)
    figure, axes = plt.subplots(len(env_ids), len(panels), figsize=size, squeeze=False, layout="constrained")
    for line, env_id in zip(axes, env_ids):
        scores = {
            name: np.array([p[-1][1] for p in finals[env_id, name].values()]) for env, name in finals if env == env_id
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
                draw_curves(axis, {name: curves[panel].get((env_id, name)) for name in scores}, colours)
                axis.set(xlabel="environment steps" if panel == "steps" else panel)
    handles = [plt.Line2D([], [], color=colours[name], linewidth=2.5, label=name) for name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(names), 3), frameon=False)
    if lacks:
        figure.suptitle(f"INCOMPLETE SET: {'; '.join(lacks[:3])}{' ...' * (len(lacks) > 3)}", color="red", fontsize=9)
    figure.savefig(stem.with_suffix(".png"), dpi=110, metadata={"Software": None})
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
    plt.close(figure)


def draw_curves(axis, curves: dict, colours: dict) -> None:
    for name, curve in curves.items():
        if curve:
            runs, x, middle, low, high = curve
            for run in runs:
                axis.plot(*run, color=colours[name], alpha=0.2, linewidth=0.6)
            axis.plot(x, middle, color=colours[name], linewidth=1.8)
            axis.fill_between(x, low, high, color=colours[name], alpha=0.18, linewidth=0)
    axis.set(ylabel="training return")
    axis.ticklabel_format(axis="x", style="sci", scilimits=(-2, 4), useMathText=True)


def draw_scores(axis, scores: dict, colours: dict, options: Options) -> None:
    """A dot for each run, a bar for the interval, a tick for the statistic."""
    for place, (name, values) in enumerate(scores.items()):
        low, high = interval(values[:, None], options.statistic, options.bootstrap_reps)
        look = {"color": colours[name], "markeredgecolor": colours[name]}
        axis.plot(values, [place + 0.2] * len(values), "o", **look, alpha=0.5, markersize=4, markeredgewidth=0)
        axis.plot([low[0], high[0]], [place] * 2, color=colours[name], linewidth=2.5, solid_capstyle="butt")
        axis.plot(aggregate(values, options.statistic), place, "|", **look, markersize=12, markeredgewidth=2)
    axis.set(yticks=range(len(scores)), yticklabels=[], ylim=(len(scores) - 0.4, -0.6))
    axis.grid(axis="y", visible=False)


def draw_profile(axis, scores: dict, colours: dict, options: Options) -> None:
    """Share of the runs that score above tau (Agarwal et al. 2021, section 4.2)."""
    from rliable.library import create_performance_profile

    everything = np.concatenate(list(scores.values()))
    margin = 0.03 * (np.ptp(everything) or 1)
    taus = np.linspace(everything.min() - margin, everything.max() + margin, 100)
    np.random.seed(0)  # rliable draws from NumPy's global generator
    matrices = {name: values[:, None] for name, values in scores.items()}
    shares, bands = create_performance_profile(matrices, taus, reps=options.bootstrap_reps)
    for name in scores:
        axis.plot(taus, shares[name], color=colours[name], linewidth=1.6)
        if len(scores[name]) > 1:
            axis.fill_between(taus, *bands[name], color=colours[name], alpha=0.12, linewidth=0)
    axis.set(ylabel="share of runs above τ", ylim=(-0.03, 1.03))


def write_page(file: Path, curves: dict, lacks: list[str], options: Options) -> None:
    """The curves as one HTML page that needs no network: hover, zoom, and switch exp_names off in the legend."""
    from plotly.subplots import make_subplots

    env_ids, names = (sorted({key[i] for key in curves["steps"]}) for i in (0, 1))
    titles = [f"{env_id}, {axis}" for env_id in env_ids for axis in curves]
    page = make_subplots(len(env_ids), 2, subplot_titles=titles, vertical_spacing=0.25 / len(env_ids))
    shown = set()
    for column, axis in enumerate(curves, 1):
        for (env_id, name), (runs, x, middle, low, high) in curves[axis].items():
            colour, line = COLOURS[names.index(name) % len(COLOURS)], env_ids.index(env_id) + 1
            common = {"mode": "lines", "legendgroup": name, "row": line, "col": column}
            hidden = common | {"showlegend": False, "hoverinfo": "skip"}
            for run_x, run_y in runs:
                page.add_scatter(x=run_x, y=run_y, line={"color": colour, "width": 0.7}, opacity=0.3, **hidden)
            page.add_scatter(x=x, y=low, line={"width": 0}, **hidden)
            page.add_scatter(x=x, y=high, line={"width": 0}, fill="tonexty", fillcolor=f"{colour}2e", **hidden)
            common |= {"name": name, "showlegend": name not in shown, "line": {"color": colour, "width": 2.5}}
            page.add_scatter(x=x, y=middle, **common)
            shown.add(name)
    for column, title in enumerate(("environment steps", "minutes"), 1):
        page.update_xaxes(title_text=title, col=column)
    title = f"INCOMPLETE SET: {'; '.join(lacks)}" if lacks else f"training return, {options.statistic} and 95 % band"
    page.update_layout(
        height=380 * len(env_ids) + 120, template="plotly_white", title=title, legend={"orientation": "h"}
    )
    page.update_yaxes(title_text="training return")
    page.write_html(file, include_plotlyjs=True, div_id="curves")


def main(options: Options) -> None:
    for name in ("bins", "bootstrap_reps"):
        value = getattr(options, name)
        check(value > 1, f"--{name.replace('_', '-')} must be at least 2, not {value}")
    check(options.inputs, "give run folders or CSV files, for example: python scripts/plot.py runs")
    folders = [path for path in options.inputs if path.is_dir()]
    files = [path for path in options.inputs if path not in folders]
    for file in files:
        check(file.is_file(), f"{file} does not exist")
    twice = [stem for stem, count in Counter(file.stem for file in files).items() if count > 1]
    check(not twice, f"two CSV files are named {' '.join(twice)}: they would overwrite each other's figures")
    check(folders or not options.export, "--export takes run folders; CSV files are exported already")
    sets = [(file.resolve(), read_csv(file)) for file in files]
    if folders:
        rows = read_folders(folders, options.bins)
        sets.append(((options.export or folders[0] / f"{folders[0].resolve().name}.csv").resolve(), rows))
    for file, rows in sets:
        rows = [row for row in rows if row["exp_name"] in (options.exp_names or (row["exp_name"],))]
        rows = [row for row in rows if row["env_id"] in (options.env_ids or (row["env_id"],))]
        score = next((score for score in SCORES if any(row["metric"] == score for row in rows)), SCORES[0])
        lacks = problems(rows, score)
        allow = "--allow-incomplete averages what is there and marks it"
        listing = "".join(f"\n  {line}" for line in lacks)
        check(options.allow_incomplete or not lacks, f"{file.stem} is incomplete; {allow}{listing}", status=1)
        check(group(rows, score), f"{file.stem} has no finished run of these exp_names and env_ids")
        if options.export and file == options.export.resolve():
            write_csv(file, COLUMNS, sorted(([row[column] for column in COLUMNS] for row in rows), key=sort_key))
        stem = (options.output or file.parent.parent / "curves") / file.stem
        stem.parent.mkdir(parents=True, exist_ok=True)
        write_tables(stem, rows, score, lacks, options)
        curves = {axis: summarise_curves(rows, axis, options) for axis in ("steps", "minutes")}
        draw(stem, rows, curves, score, lacks, options)
        if curves["steps"]:
            write_page(stem.with_suffix(".html"), curves, lacks, options)
        print(f"# {file.stem}\n\n{stem.with_suffix('.md').read_text()}")


def sort_key(row: list) -> tuple:
    """exp_name, environment, seed, metric, step."""
    return row[0], row[1], int(row[2]) if str(row[2]).isdigit() else -1, row[4], int(row[3])


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
