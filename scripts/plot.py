"""Figures, tables and statistics of runs.

    python scripts/plot.py runs                     the figures and tables of run folders, in curves/
    python scripts/plot.py runs --export NAME.csv   the same, and one long CSV
    python scripts/plot.py NAME.csv                 figures and tables of such a CSV
    python scripts/plot.py FILE.csv --figure curves.png               draw only the learning curves, into this file

Each CSV file is a set of runs called NAME, and so are all run folders together. The figures of a set are written to
curves/ as PNG and PDF: NAME_curves (a metric against steps), NAME_scores (final scores, if there are experiments to
compare) and NAME_bars (throughput). With --normalise also NAME_aggregate and NAME_profile. NAME.md has the tables;
NAME_scores.csv and NAME_comparisons.csv have all of their columns.

compare.py explains the intervals, the tests and "underpowered". results.py explains which results are read, and how
time is measured. Figures call an experiment by its name in --labels, or in labels.csv (set,exp_name,label) in the
folder above curves/ or up to two folders higher.

A set is incomplete in five cases: a run has no summary.json for its last arguments; a run that a sweep declared
(sweep.json) is missing; a seed has several runs and --duplicates does not choose; a score is not finite; in a CSV file
or an --export, two exp_names of an environment have different seeds. Of run folders, incomplete runs are left out and
listed, the figures and tables say so, and the exit status is 1. A CSV file or an --export is refused as a whole.
--allow-incomplete draws everything and marks it. Runs that differ in flags become separate experiments, named by these
flags. If a seed has several runs, --duplicates chooses one.
"""

import csv
import math
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
import tyro
from plainrl_tools import results
from plainrl_tools.common import check, check_least, check_output, writing
from plainrl_tools.compare import (
    aggregate,
    comparison_table,
    interval,
    program,
    score_table,
    write_tables,
)
from plainrl_tools.results import CURVE, EVALUATION, Row, curves_of, finals_of

WORDS = {CURVE: "training return", EVALUATION: "evaluation return", "sps": "steps per second"}
WORDS |= {"eval_return_mean": "evaluation return", "mean": "mean", "iqm": "interquartile mean"}
WORDS |= {"noise": "noise on the action", "observation noise": "noise on the observation"}
MOST = 100_000  # points of a curve and bootstrap resamples; more fill the memory
PANEL_EXPERIMENTS = 6  # largest number of experiments in one panel
FAMILIES = {  # first one or two words of an exp_name: (name in figures, colour in all figures)
    "ppo": ("PPO", "#0072B2"),
    "ppo_penalty": ("PPO penalty", "#882255"),
    "ppo_rnd": ("RND", "#D55E00"),
    "ppo_icm": ("ICM", "#009E73"),
    "rnd": ("RND", "#D55E00"),
    "icm": ("ICM", "#009E73"),
    "ppo_rad": ("RAD", "#CC79A7"),
    "ppo_drac": ("DrAC", "#E69F00"),
    "rpo": ("RPO", "#D55E00"),
    "trpo": ("TRPO", "#56B4E9"),
    "dqn": ("DQN", "#009E73"),
    "pqn": ("PQN", "#56B4E9"),
    "a2c": ("A2C", "#CC79A7"),
    "reinforce": ("REINFORCE", "#E69F00"),
    "sb3": ("Stable-Baselines3", "#666666"),
    "sbx": ("SBX", "#000000"),
    "rllib": ("RLlib", "#882255"),
    "ours": ("plainrl", "#0072B2"),
}
OTHERS = ("#882255", "#117733", "#332288", "#999933", "#AA4499", "#44AA99")
SHADES = (0.0, 0.5, -0.5, 0.25, -0.75, 0.65)  # of variants: lighter above 0, darker below
STYLES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))


@dataclass
class Options:
    inputs: tyro.conf.Positional[tuple[Path, ...]]  # run folders, their parents, or long CSV files
    # folder of the figures; default: curves/, which is next to results/ for a CSV file in results/
    output: Path | None = None
    metric: str = CURVE  # of the curves; eval/episodic_return are the evaluations during training
    statistic: Literal["mean", "iqm"] = "mean"  # over seeds; iqm is the interquartile mean
    exp_names: tuple[str, ...] = ()  # restrict the set to these experiments
    env_ids: tuple[str, ...] = ()  # restrict the set to these environments
    # compare all other exp_names with this one; default: all pairs, or with the first of more than 4
    baseline: str = ""
    labels: tuple[str, ...] = ()  # names in the figures: exp_name=Name
    normalise: Path | None = None  # CSV env_id,random,reference; also draw normalised scores
    figure: Path | None = None  # only draw the learning curves, against steps, into this file
    export: Path | None = None  # write the results of the run folders into this long CSV
    duplicates: Literal["ask", "newest", "oldest"] = "ask"  # which of several runs of a seed to use
    bins: int = 50  # largest number of points of a run's learning curve
    bootstrap_reps: int = 2000  # bootstrap resamples for each interval
    allow_incomplete: bool = False  # average an incomplete set, and mark it


# ---- figures -----------------------------------------------------------------------------------


def family_of(exp_name: str) -> str:
    """The key in FAMILIES of the first two words or the first word of an exp_name, or ""."""
    first, *words = re.split("[-_]", exp_name)
    if program(exp_name) == "sbx":
        return "sbx"
    two = "_".join([first, *words[:1]])
    return two if two in FAMILIES else first if first in FAMILIES else ""


def display(exp_name: str, options: Options) -> str:
    """The name of an experiment in figures: its label, or its algorithm and the further words of its exp_name."""
    for label in options.labels:
        name, text = label.rsplit("=", 1)
        if name == exp_name:
            return text
    first, *words = re.split(r"(?<!\de)(?<!=)-|_", exp_name)  # does not split 5e-4 and =-1
    if program(exp_name) == "sbx":  # run by sb3_ppo.py
        first = "sbx"
        words = [word for word in words if word != "sbx"]
    if words and family_of(exp_name) == f"{first}_{words[0]}":
        first = f"{first}_{words.pop(0)}"
    if first in FAMILIES:
        implied = (first, "continuous", "atari", "pixels")
        words = [word for word in words if word not in implied]
    names = [FAMILIES.get(word, [word])[0] for word in (first, *words)]
    return " ".join(names)


def shaded(colour: str, shade: float) -> tuple[float, ...]:
    """The colour, mixed with white (shade from 0 to 1) or with black (0 to -1)."""
    from matplotlib.colors import to_rgb

    if shade < 0:
        return tuple(x * (1 + shade) for x in to_rgb(colour))
    return tuple(x + shade * (1 - x) for x in to_rgb(colour))


def line_styles(exp_names, options: Options) -> dict[str, dict]:
    """Map exp_names to a label, a colour and a line style.

    Each algorithm has one colour and its variants have shades of it, or other colours if it is the only algorithm.
    """
    labels = {name: display(name, options) for name in exp_names}
    alone = len({family_of(name) for name in labels}) == 1 and len(set(labels.values())) > 2
    counts = Counter()
    drawn = {}
    for name in sorted(labels, key=lambda name: (labels[name], name)):
        if labels[name] in drawn:
            continue
        family = family_of(name)
        colour = FAMILIES[family][1] if family else OTHERS[counts["others"] % len(OTHERS)]
        counts["others"] += not family
        variant = counts[colour]  # two families may share a colour
        counts[colour] += 1
        shade = shaded(colour, SHADES[variant % len(SHADES)])
        if alone and family and variant:
            shade = OTHERS[variant % len(OTHERS)]
        style = {"label": labels[name], "color": shade}
        drawn[labels[name]] = style | {"linestyle": STYLES[variant % len(STYLES)]}
    return {name: drawn[labels[name]] for name in sorted(labels)}


def titles_of(env_ids) -> dict[str, str]:
    """Map env_ids to panel titles: the id without its module, unless two ids would then have the same title."""
    short = {env_id: env_id.rpartition(":")[2] for env_id in env_ids}
    counts = Counter(short.values())
    return {env_id: env_id if counts[title] > 1 else title for env_id, title in short.items()}


def canvas(panels: int, most: int = 4, height: float = 0):
    """A figure as wide as a page with one axis for each panel, and at most `most` panels in a row."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams |= {"font.size": 9, "axes.titlesize": 9, "pdf.fonttype": 42}
    matplotlib.rcParams |= {"axes.formatter.useoffset": False, "axes.formatter.limits": (-5, 9)}
    matplotlib.rcParams |= {"axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.25}
    matplotlib.rcParams |= {"text.parse_math": False}  # a $ in a name is a dollar
    matplotlib.rcParams |= {"axes.spines.top": False, "axes.spines.right": False}
    columns = min(most, {1: 1, 2: 2, 4: 2, 7: 4, 8: 4}.get(panels, 3))
    lines = -(-panels // columns)
    if not height:
        height = {1: 3.2, 2: 2.5, 3: 2.1, 4: 1.9}[columns]
    figure = Figure(figsize=(8, height * lines + 0.6), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis in axes.flat[panels:]:
        axis.remove()
    return figure, list(axes.flat[:panels]), columns


def save(figure, files: list[Path], caption: str, missing: list[str], styles: dict) -> None:
    """Write the figure with its legend and its caption."""
    from matplotlib.lines import Line2D

    handles = {}
    for style in styles.values():
        handles[style["label"]] = Line2D([], [], lw=2.5, **style)
    if handles:
        width = max(map(len, handles)) + 8
        columns = max(1, min(len(handles), 110 // width))
        where = {"loc": "outside upper left", "ncols": columns, "frameon": False}
        figure.legend(handles=list(handles.values()), handlelength=3, **where)  # 3 shows a whole -.
    if missing:
        caption = f"INCOMPLETE SET, see its table. {caption}"
    figure.supxlabel(caption, x=0.01, ha="left", size=8, color="red" if missing else "0.3")
    for file in files:
        metadata = {".png": {"Software": None, "Description": caption}}
        metadata[".pdf"] = {"CreationDate": None, "Subject": caption}
        figure.savefig(file, dpi=200, metadata=metadata.get(file.suffix))
        figure.set_layout_engine("none")  # keep the layout of the first file for the others


def both(stem: Path, kind: str) -> list[Path]:
    base = f"{stem.name}_{kind}"
    return [stem.with_name(f"{base}.png"), stem.with_name(f"{base}.pdf")]


def describe(counts: list[int], options: Options) -> str:
    """Explain a line or a tick in a caption, for experiments with these numbers of seeds."""
    if max(counts) == 1:
        return "one seed each, so no interval"
    seeds = f"{counts[0]} seeds" if len(set(counts)) == 1 else "the seeds"
    return f"{WORDS[options.statistic]} of {seeds}, 95 % bootstrap interval"


def short_steps(value: float, _=None) -> str:
    """A tick label such as 500k or 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def summarise(rows: list[Row], options: Options) -> dict:
    """Map (env_id, exp_name) to the single runs [(x, y), ...] and to x, middle, low and high over all of them.

    Curves end where the shortest run ends.
    """
    result = {}
    for key, seeds in curves_of(rows, options.metric).items():
        runs = [tuple(np.array(points).T) for points in seeds.values()]
        start = max(x[0] for x, _ in runs)
        end = min(x[-1] for x, _ in runs)
        grid = np.linspace(start, end, options.bins) if start < end else np.empty(0)
        values = np.array([np.interp(grid, x, y) for x, y in runs])
        middle = aggregate(values, options.statistic)
        low, high = interval(values, options)
        result[key] = (runs, grid, middle, low, high)
    return result


def over_settings(rows: list[Row], score: str) -> tuple[list[Row], str]:
    """Turn scores of env_ids such as "Walker-v3, noise 0.2" or "Walker-v3, mass x2" into curves.

    The x axis, whose name is returned as well, is the strength of the disturbance. With several kinds of disturbance
    each kind has a panel. The env_id without a setting is at 0, or at x1.
    """
    of = re.compile(r"(.+), (.+) (x?)([\d.]+)").fullmatch
    found = [(row, of(row.env_id)) for row in rows if row.metric == score]
    kinds = {setting[2]: float(bool(setting[3])) for _, setting in found if setting}
    alone = len({setting[1] if setting else row.env_id for row, setting in found}) == 1
    points = []
    for row, setting in found:
        settings = [(row.env_id, kind, step) for kind, step in kinds.items()]
        if setting:
            settings = [(setting[1], setting[2], float(setting[4]))]
        for env_id, kind, step in settings:
            several = kind if alone else f"{env_id}, {kind}"
            title = env_id if len(kinds) == 1 else several
            points.append(row._replace(env_id=title, step=step))
    points.sort(key=lambda row: row.step)
    return points, "strength" if len(kinds) > 1 else "".join(kinds)


def draw_curves(
    files: list[Path],
    curves: dict,
    over: str,
    missing: list[str],
    options: Options,
    caption: str = "",
) -> None:
    """Draw a panel for each environment, or several if it has more than PANEL_EXPERIMENTS experiments."""
    panels, most = [], 1
    for env_id in dict.fromkeys(env_id for env_id, _ in curves):
        names = [name for env, name in curves if env == env_id]
        parts = -(-len(names) // PANEL_EXPERIMENTS)
        size = -(-len(names) // parts)
        panels += [(env_id, names[i : i + size]) for i in range(0, len(names), size)]
        most = max(most, parts)
    figure, axes, columns = canvas(len(panels), most=most if most > 1 else 4)
    styles = line_styles([name for _, name in curves], options)
    titles = titles_of(env_id for env_id, _ in curves)
    counts = [len(runs) for runs, *_ in curves.values()]
    for panel, (axis, (env_id, names)) in enumerate(zip(axes, panels)):
        for name in names:
            runs, x, middle, low, high = curves[env_id, name]
            colour = styles[name]["color"]
            for run in runs:
                dot = "o" if len(run[0]) == 1 else None
                axis.plot(*run, color=colour, alpha=0.8 / (1 + len(names)), lw=0.6, marker=dot)
            axis.plot(x, middle, **styles[name], lw=1.6)
            axis.fill_between(x, low, high, color=colour, alpha=0.5 / (1 + len(names)), lw=0)
        few, many = min(own := [len(curves[env_id, name][0]) for name in names]), max(own)
        words = f"{few} to {many} seeds" if few < many else f"{many} seed{'s' if many > 1 else ''}"
        seeds = f"\n{words}" if len(set(counts)) > 1 else ""
        axis.set_title(WORDS.get(titles[env_id], titles[env_id]) + seeds)
        if panel % columns == 0:
            axis.set_ylabel(WORDS.get(options.metric, options.metric))
        if panel + columns >= len(panels):
            axis.set_xlabel(over)
        axis.locator_params(axis="x", nbins={1: 8, 4: 3}.get(columns, 5), steps=(1, 2, 5, 10))
        axis.xaxis.set_major_formatter(short_steps)
    band = " (band); faint lines: single runs" if max(counts) > 1 else ""
    save(figure, files, caption or describe(counts, options) + band, missing, styles)


def draw_rows(files: list[Path], panels: dict, over: str, caption: str, missing: list[str]) -> None:
    """Draw panels {title: [(label, colour, low, middle, high, dots, text), ...]} with one row for each experiment.

    A row is an interval with dots for the single runs, or a bar with a whisker if `dots` is None. Dots that would
    overlap are stacked.
    """
    lengths = [len(lines) for lines in panels.values()]
    figure, axes, columns = canvas(len(panels), most=3, height=0.6 + 0.25 * max(lengths))
    before = []
    for panel, (axis, (title, lines)) in enumerate(zip(axes, panels.items())):
        for height, (_, colour, low, middle, high, dots, text) in enumerate(lines):
            if dots is None:
                spread = [[middle - low], [high - middle]]
                axis.barh(height, middle, 0.6, xerr=spread, color=colour)
                axis.set_xlim(0, 1.4 * max(line[4] for line in lines))
                axis.xaxis.set_major_formatter(short_steps)
            else:
                ends = [x for line in lines for x in line[5]]
                width = (max(ends) - min(ends) or 1.0) / 80
                positions = [round(dot / width) for dot in dots]
                ranks = [positions[:i].count(x) for i, x in enumerate(positions)]
                heights = [height + 0.2 + 0.06 * rank for rank in ranks]
                axis.plot(dots, heights, "o", color=colour, ms=2.5, mec="white", mew=0.3)
                axis.plot([low, high], [height] * 2, color=colour, lw=2.5)
                axis.plot(middle, height, "|", color=colour, ms=11, mew=2)
            if text:
                axis.annotate(text, (high, height), va="center", size=8)
        labels = [line[0] for line in lines]
        axis.set_yticks(range(len(lines)), labels)
        if panel % columns and labels == before:
            axis.set_yticklabels([])
        before = labels
        axis.set_ylim(len(lines) - 0.2, -0.6)
        axis.grid(axis="y", visible=False)
        axis.locator_params(axis="x", nbins=4)
        axis.set_title(title)
        if panel + columns >= len(panels):
            axis.set_xlabel(over)
    save(figure, files, caption, missing, {})


def draw_scores(stem: Path, rows: list[Row], table, score: str, missing, options: Options) -> None:
    """Draw runs, interval and statistic of every experiment in the environments with two or more experiments."""
    styles = line_styles([row["exp_name"] for row in table], options)
    finals = finals_of(rows, score)
    panels = defaultdict(list)
    titles = titles_of(row["env_id"] for row in table)
    for row in table:
        name = row["exp_name"]
        dots = [x for x in finals[row["env_id"], name].values() if math.isfinite(x)]
        if not dots:
            continue
        ends = (row["low"], row[options.statistic], row["high"])
        line = (styles[name]["label"], styles[name]["color"], *ends, dots, "")
        panels[titles[row["env_id"]]].append(line)
    panels = {title: lines for title, lines in panels.items() if len(lines) > 1}
    if not panels:
        return
    counts = [len(line[5]) for lines in panels.values() for line in lines]
    caption = f"{describe(counts, options)} (tick and bar); dots: single runs"
    draw_rows(both(stem, "scores"), panels, WORDS.get(score, score), caption, missing)


def draw_speed(stem: Path, rows: list[Row], missing: list[str], options: Options) -> None:
    """Draw the steps per second of each program in benchmarks/speed.py, with the ratio of plainrl to it in a round.

    If another program was measured with several numbers of threads, only the fastest is drawn. The bare environment
    without a learner is not drawn.
    """
    cases = defaultdict(dict)
    for (env_id, name), rounds in finals_of(rows, "sps").items():
        case, _, side = name.rpartition(" ")
        side = re.sub("-(default-threads|1-thread|processes)$", "", side)
        side = {"sb3": "sb3-identical", "zoo": "sb3-recommended"}.get(side, side)
        sides = cases[f"{case}\n{env_id}".strip()]
        before = sides.get(side, {0: 0.0})
        if side != "bare" and median(rounds.values()) > median(before.values()):
            sides[side] = rounds
    panels = {}
    for title, sides in cases.items():
        panels[title] = []
        ours = sides.get("ours", {})
        for side, rounds in sides.items():
            middle = median(rounds.values())
            text = f"  {middle:,.0f}"
            if not side.startswith("ours") and set(ours) == set(rounds):
                ratio = median(ours[seed] / rounds[seed] for seed in rounds)
                text += f"; plainrl {ratio:.1f}x"
            label = display(side, options).replace("Stable-Baselines3 ", "SB3 ")
            colour = line_styles([side], options)[side]["color"]
            ends = (min(rounds.values()), middle, max(rounds.values()))
            panels[title].append((label, colour, *ends, None, text))
    count = max(len(rounds) for sides in cases.values() for rounds in sides.values())
    caption = (
        f"median of {count} rounds; whisker: minimum to maximum; "
        "plainrl 2x: median ratio of plainrl to the other program in a round"
    )
    draw_rows(both(stem, "bars"), panels, "steps per second", caption, missing)


def draw_aggregate(stem: Path, rows: list[Row], score: str, missing, options: Options) -> None:
    """Draw normalised scores, (score - random) / (reference - random), over all environments.

    The figures are the interquartile mean with rliable's stratified bootstrap interval and, with five or more seeds,
    the performance profile: the share of runs above each score.
    """
    from rliable.library import create_performance_profile, get_interval_estimates
    from rliable.metrics import aggregate_iqm

    scales, finals = results.read_scales(options.normalise), finals_of(rows, score)
    env_ids = sorted({env_id for env_id, _ in finals})
    random, reference = np.array([scales[env_id] for env_id in env_ids]).T
    matrices = {}
    for name in sorted({name for _, name in finals}):
        columns = [list(finals.get((env_id, name), {}).values()) for env_id in env_ids]
        counts = dict(zip(env_ids, map(len, columns)))
        if len(set(counts.values())) == 1:
            matrices[name] = (np.array(columns).T - random) / (reference - random)
        else:
            numbers = ", ".join(f"{env_id} {count}" for env_id, count in counts.items())
            reason = f"its numbers of seeds differ ({numbers})"
            print(f"{name} is not in {stem.name}_aggregate: {reason}", file=sys.stderr)
    check(matrices, "--normalise: no exp_name has the same number of seeds in every environment")
    np.random.seed(0)  # rliable draws from NumPy's global generator
    reps = options.bootstrap_reps
    points, ends = get_interval_estimates(
        matrices, lambda matrix: np.array([aggregate_iqm(matrix)]), reps=reps
    )
    styles = line_styles(matrices, options)
    counts = sorted({len(matrix) for matrix in matrices.values()})
    seeds = f"{' or '.join(map(str, counts))} seeds in each of {len(env_ids)} environments"
    lines = []
    for name, matrix in matrices.items():
        low, high = ends[name].ravel()
        middle = points[name][0]
        text = f"  {middle:.2f} [{low:.2f}, {high:.2f}]"
        ends_of_line = (low, middle, high)
        dots = matrix.mean(axis=0)
        lines.append((styles[name]["label"], styles[name]["color"], *ends_of_line, dots, text))
    caption = (
        f"interquartile mean of {seeds}, 95 % stratified bootstrap interval; dots: environments"
    )
    draw_rows(both(stem, "aggregate"), {"": lines}, "normalised score", caption, missing)
    if counts[0] >= 5:
        taus = np.linspace(0, max(matrix.max() for matrix in matrices.values()), 100)
        shares, bands = create_performance_profile(matrices, taus, reps=reps)
        curves = {("", name): ([], taus, shares[name], *bands[name]) for name in matrices}
        shown = replace(options, metric="share of runs above the score")
        caption = f"all runs of {seeds}, 95 % stratified bootstrap interval (band)"
        files = both(stem, "profile")
        draw_curves(files, curves, "normalised score", missing, shown, caption)


# ---- command line ------------------------------------------------------------------------------


def not_found(metric: str, name: str) -> str:
    """What to say if the runs have not logged the metric of the curves."""
    other = EVALUATION if metric == CURVE else CURVE
    return f"--metric {metric} is not in {name}; try --metric {other}"


def write_set(
    stem: Path, rows: list[Row], score: str, missing: list[str], options: Options
) -> None:
    """Write all tables and figures of a set."""
    table = score_table(rows, score, options)
    comparisons = [] if score == "sps" else comparison_table(rows, score, options)
    stem.parent.mkdir(parents=True, exist_ok=True)
    write_tables(stem, table, comparisons, score, missing, options)
    curves, over = summarise(rows, options), "environment steps"
    metric = options.metric
    if not curves:
        points, over = over_settings(rows, score)
        options = replace(options, metric=score)
        curves = summarise(points, options)
    if curves:
        draw_curves(both(stem, "curves"), curves, over, missing, options)
    elif score != "sps":
        print(f"no curves: {not_found(metric, stem.name)}", file=sys.stderr)
    if score == "sps":
        draw_speed(stem, rows, missing, options)
    elif comparisons and over in ("environment steps", ""):  # "": there are no curves
        draw_scores(stem, rows, table, score, missing, options)
    if options.normalise:
        draw_aggregate(stem, rows, score, missing, options)
    print(f"# {stem}\n\n{stem.with_name(f'{stem.name}.md').read_text()}")


def labelled(home: Path, name: str, exp_names: set[str], options: Options) -> Options:
    """The options, with the labels of labels.csv (set,exp_name,label) after those of --labels. The file is in the set's
    folder or up to two folders above."""
    folders = [home, *home.parents[:2]]
    file = next((path / "labels.csv" for path in folders if (path / "labels.csv").is_file()), None)
    if file is None:
        return options
    with file.open(newline="") as lines:
        # the folder's labels.csv may belong to another program, without these columns
        rows = [row for row in csv.DictReader(lines) if row.get("set") == name]
    complete = all(row.get("exp_name") and row.get("label") for row in rows)
    check(complete, f"{file} needs an exp_name and a label in each row of the set {name}")
    more = (f"{row['exp_name']}={row['label']}" for row in rows if row["exp_name"] in exp_names)
    return replace(options, labels=(*options.labels, *more))


def check_set(name: str, rows: list[Row], options: Options) -> None:
    metrics = {row.metric for row in rows}
    check(options.metric in (CURVE, *metrics), not_found(options.metric, name))
    if options.normalise:
        known = results.read_scales(options.normalise)
        unknown = sorted({row.env_id for row in rows} - set(known))
        check(not unknown, f"--normalise {options.normalise} has no row for {', '.join(unknown)}")


def check_options(options: Options, folders: list[Path], files: list[Path]) -> None:
    check_least(2, options, "bins", "bootstrap_reps")
    for name, value in (("bins", options.bins), ("bootstrap-reps", options.bootstrap_reps)):
        check(value <= MOST, f"--{name} {value} must be at most {MOST}")
    check(options.inputs, "give run folders or CSV files, for example: python scripts/plot.py runs")
    for file in files:
        check(file.is_file(), f"{file} does not exist")
    export_to, output = options.export, options.output
    check(folders or not export_to, "--export needs run folders; CSV files are exported already")
    check_output("--export", export_to)
    check_output("--figure", options.figure, ".png", ".pdf", ".svg")
    if output:
        check(not output.is_file(), f"--output {output} is a file; give a folder")
    only_curves = f"--figure {options.figure} draws the learning curves alone; leave out"
    for name in ("output", "normalise"):
        check(not (options.figure and getattr(options, name)), f"{only_curves} --{name}")
    used = {"matplotlib": True, "rliable": options.normalise}
    missing = [name for name, needed in used.items() if needed and not find_spec(name)]
    install = "pip install -r requirements-dev.txt"
    check(not missing, f"{' and '.join(missing)} must be installed: {install}")
    for label in options.labels:
        check("=" in label, f"--labels {label} has no =; give exp_name=Name")
    if options.normalise:
        results.read_scales(options.normalise)


def main(options: Options) -> None:
    folders = [path for path in options.inputs if path.is_dir()]
    files = [path for path in options.inputs if path not in folders and path.name != "sweep.json"]
    check_options(options, folders, files)
    sets = [(file.resolve(), results.read_csv(file), []) for file in files]
    if folders:
        file = (options.export or Path(f"{folders[0].resolve().name}.csv")).resolve()
        found = results.read_folders(folders, options.bins, options.metric, options.duplicates)
        sets.append((file, *found))
    twice = [name for name, n in Counter(file.stem for file, *_ in sets).items() if n > 1]
    overwrite = "their figures would overwrite each other; rename one"
    check(not twice, f"two inputs are named {' '.join(twice)}: {overwrite}")
    check(len(sets) == 1 or not options.figure, "--figure needs one set of runs, or one CSV file")
    names = {row.exp_name for _, rows, _ in sets for row in rows}
    known = f"the runs have the exp_names {', '.join(sorted(names))}"
    unknown = f"--baseline {options.baseline} is unknown: {known}"
    for _, _, left_out in sets:
        unknown += "".join(f"\n{line}" for *_, line in left_out)
    check(options.baseline in (*names, ""), unknown)
    for label in options.labels:
        name = label.rpartition("=")[0]  # the label itself has no "="
        check(name in names, f"--labels {label}: {name} is unknown: {known}")
    ready, failed, given = [], False, options
    for file, rows, left_out in sets:
        rows, score = results.select(file.stem, rows, options, left_out)
        published = file in [path.resolve() for path in files] or options.export is not None
        rows, missing, refused = results.refuse(
            file.stem, rows, score, left_out, options, published
        )
        if rows:
            check_set(file.stem, rows, options)
        ready.append((file, rows, score, missing))
        failed = failed or refused
    if failed and (files or options.export):
        raise SystemExit(1)
    shown = {row.exp_name for _, rows, *_ in ready for row in rows}
    absent = f"--baseline {options.baseline} is not among the exp_names that are drawn:"
    absent = f"{absent} {', '.join(sorted(shown))}"
    check(not options.baseline or not shown or options.baseline in shown, absent)
    with writing():
        for file, rows, score, missing in ready:
            home = file.parent.parent if file.parent.name == "results" else file.parent
            options = labelled(home, file.stem, {row.exp_name for row in rows}, given)
            if rows and options.export:
                results.export(options.export, rows)
            if rows and options.figure:
                curves = summarise(rows, options)
                check(curves, not_found(options.metric, file.stem))
                draw_curves([options.figure], curves, "environment steps", missing, options)
            elif rows:
                output = (options.output or home / "curves") / file.stem
                write_set(output, rows, score, missing, options)
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
