"""Figures, tables and statistics of runs.

    python scripts/plot.py runs                                       run folders -> curves/runs_curves.png and the rest
    python scripts/plot.py runs --export benchmarks/results/NAME.csv  run folders -> one long CSV, and its figures
    python scripts/plot.py benchmarks/results/*.csv                   every published figure and table again
    python scripts/plot.py FILE.csv --figure curves.png               the learning curves alone, into this file

Each CSV file, and all run folders together, are a set NAME with one kind of figure a file, as PNG and PDF, in curves/:
NAME_curves (a metric over steps), NAME_scores (final scores, where there is something to compare), NAME_bars (speed),
on request NAME_minutes (--minutes), NAME_aggregate and NAME_profile (--normalise), and NAME.html (--page, interactive).
NAME.md has the tables, NAME_scores.csv and NAME_comparisons.csv all of their columns.

Intervals, tests and "too few to test": compare.py. What is read, and the clock of --minutes: results.py.
Figures call an experiment what --labels says, or labels.csv (set,exp_name,label) in the folder above curves/.

A set is incomplete where a run has no summary.json of its last arguments, where a run that a sweep declared
(sweep.json) is missing, where two exp_names of an environment have different seeds, or where a score is not finite. Of
run folders the environments that are whole are drawn, the others are named, and the exit status is 1; a CSV file or an
--export is refused as a whole. --allow-incomplete draws and marks all. Runs that differ in flags are experiments of
their own, named by these flags; a seed that is there twice needs --duplicates.
"""

import csv
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
import tyro

sys.path.insert(0, str(Path(__file__).resolve().parent))
import results  # noqa: E402
from common import check, check_least, check_output, writing  # noqa: E402
from compare import (  # noqa: E402
    aggregate,
    comparison_table,
    interval,
    program,
    score_table,
    write_tables,
)
from results import CLOCK, CURVE, EVALUATION, Row, curves_of, finals_of  # noqa: E402

WORDS = {CURVE: "training return", EVALUATION: "evaluation return", "sps": "steps per second"}
WORDS |= {"eval_return_mean": "evaluation return", "mean": "mean", "iqm": "interquartile mean"}
WORDS |= {"noise": "noise on the action", "observation noise": "noise on the observation"}
MOST = 6  # experiments in one panel
FAMILIES = {  # first word or two of an exp_name: what figures call it, its colour on every page
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
    "a2c": ("A2C", "#CC79A7"),
    "reinforce": ("REINFORCE", "#E69F00"),
    "sb3": ("Stable-Baselines3", "#666666"),
    "sbx": ("SBX", "#000000"),
    "rllib": ("RLlib", "#882255"),
    "ours": ("plainrl", "#0072B2"),
}
OTHERS = ("#882255", "#117733", "#332288", "#999933", "#AA4499", "#44AA99")
SHADES = (0.0, 0.5, -0.5, 0.25, -0.75, 0.65)  # of variants: towards white, below 0 towards black
STYLES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))


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
    duplicates: Literal["ask", "newest", "oldest"] = "ask"  # of runs of one seed, which
    bins: int = 50  # most points of a run's learning curve
    bootstrap_reps: int = 2000  # resamples behind each interval
    allow_incomplete: bool = False  # average an incomplete set, and mark it


# ---- figures -----------------------------------------------------------------------------------


def family_of(exp_name: str) -> str:
    """The algorithm's key in FAMILIES, by two words or by the first; "" where neither is there."""
    first, *words = re.split("[-_]", exp_name)
    if program(exp_name) == "sbx":
        return "sbx"
    two = "_".join([first, *words[:1]])
    return two if two in FAMILIES else first if first in FAMILIES else ""


def display(exp_name: str, options: Options) -> str:
    """What figures call an experiment: as --labels says, or its algorithm and what else its exp_name says."""
    for label in options.labels:
        name, text = label.rsplit("=", 1)
        if name == exp_name:
            return text
    first, *words = re.split(r"(?<!\de)(?<!=)-|_", exp_name)  # 5e-4 and =-1 stay whole
    if program(exp_name) == "sbx":  # started by sb3_ppo.py
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
    """The colour, on its way to white (0 to 1) or to black (0 to -1)."""
    from matplotlib.colors import to_rgb

    if shade < 0:
        return tuple(x * (1 + shade) for x in to_rgb(colour))
    return tuple(x + shade * (1 - x) for x in to_rgb(colour))


def looks(exp_names, options: Options) -> dict[str, dict]:
    """exp_name -> label, colour and line style: one colour an algorithm, variants in shades of it; in other colours if
    there is no other algorithm."""
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
        place = counts[colour]  # two families may share a colour
        counts[colour] += 1
        shade = shaded(colour, SHADES[place % len(SHADES)])
        if alone and family and place:
            shade = OTHERS[place % len(OTHERS)]
        look = {"label": labels[name], "color": shade}
        drawn[labels[name]] = look | {"linestyle": STYLES[place % len(STYLES)]}
    return {name: drawn[labels[name]] for name in sorted(labels)}


def titles_of(env_ids) -> dict[str, str]:
    """env_id -> the same without its module, where no other one is then called so."""
    short = {env_id: env_id.rpartition(":")[2] for env_id in env_ids}
    counts = Counter(short.values())
    return {env_id: env_id if counts[title] > 1 else title for env_id, title in short.items()}


def canvas(panels: int, most: int = 4, height: float = 0):
    """A figure as wide as a page, and one axis a panel, at most `most` side by side."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams |= {"font.size": 9, "axes.titlesize": 9, "pdf.fonttype": 42}
    matplotlib.rcParams |= {"axes.formatter.useoffset": False, "axes.formatter.limits": (-5, 9)}
    matplotlib.rcParams |= {"axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.25}
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


def save(figure, files: list[Path], caption: str, lacks: list[str], look: dict) -> None:
    """Write the figure with its legend and, below, what it shows."""
    from matplotlib.lines import Line2D

    handles = {}
    for one in look.values():
        handles[one["label"]] = Line2D([], [], lw=2.5, **one)
    if handles:
        width = max(map(len, handles)) + 8
        columns = max(1, min(len(handles), 110 // width))
        where = {"loc": "outside upper left", "ncols": columns, "frameon": False}
        figure.legend(handles=list(handles.values()), handlelength=3, **where)  # room for -.
    if lacks:
        caption = f"INCOMPLETE SET, see its table. {caption}"
    figure.supxlabel(caption, x=0.01, ha="left", size=8, color="red" if lacks else "0.3")
    for file in files:
        metadata = {".png": {"Software": None, "Description": caption}}
        metadata[".pdf"] = {"CreationDate": None, "Subject": caption}
        figure.savefig(file, dpi=200, metadata=metadata.get(file.suffix))
        figure.set_layout_engine("none")  # it is laid out now, for all files


def both(stem: Path, kind: str) -> list[Path]:
    base = f"{stem.name}_{kind}"
    return [stem.with_name(f"{base}.png"), stem.with_name(f"{base}.pdf")]


def describe(counts: list[int], options: Options) -> str:
    """What a line or a tick is, of experiments with so many seeds each."""
    if max(counts) == 1:
        return "one seed each, so no interval"
    seeds = f"{counts[0]} seeds" if len(set(counts)) == 1 else "the seeds"
    return f"{WORDS[options.statistic]} of {seeds}, 95 % bootstrap interval"


def short_steps(value: float, _=None) -> str:
    """A tick: 500k, 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def summarise(rows: list[Row], options: Options, minutes: bool = False) -> dict:
    """(env_id, exp_name) -> the single runs [(x, y), ...], and x, middle, low, high over them: over steps as far as
    all runs have points, over minutes as far as any has. A run that has ended keeps its last return."""
    curves, clocks = curves_of(rows, options.metric), curves_of(rows, CLOCK)
    result = {}
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
        ends = [x[-1] for x, _ in runs]
        end = max(ends) if minutes else min(ends)
        grid = np.linspace(start, end, options.bins) if start < end else np.empty(0)
        values = np.array([np.interp(grid, x, y) for x, y in runs])
        middle = aggregate(values, options.statistic)
        low, high = interval(values, options)
        result[key] = (runs, grid, middle, low, high)
    return result


def over_settings(rows: list[Row], score: str) -> tuple[list[Row], str]:
    """Scores of env_ids such as "Walker-v3, noise 0.2" or "Walker-v3, mass x2" as points of curves over the strength of
    the disturbance, and the name of the axis; several kinds take the place of the environments. The env_id without a
    setting is at 0, or at x1."""
    of = re.compile(r"(.+), (.+) (x?)([\d.]+)").fullmatch
    found = [(row, of(row.env_id)) for row in rows if row.metric == score]
    kinds = {setting[2]: float(bool(setting[3])) for _, setting in found if setting}
    alone = len({setting[1] if setting else row.env_id for row, setting in found}) == 1
    points = []
    for row, setting in found:
        places = [(row.env_id, kind, step) for kind, step in kinds.items()]
        if setting:
            places = [(setting[1], setting[2], float(setting[4]))]
        for env_id, kind, step in places:
            several = kind if alone else f"{env_id}, {kind}"
            title = env_id if len(kinds) == 1 else several
            points.append(row._replace(env_id=title, step=step))
    points.sort(key=lambda row: row.step)
    return points, "strength" if len(kinds) > 1 else "".join(kinds)


def draw_curves(
    files: list[Path],
    curves: dict,
    over: str,
    lacks: list[str],
    options: Options,
    caption: str = "",
) -> None:
    """A panel for each environment; one with more than MOST experiments has several."""
    panels, most = [], 1
    for env_id in dict.fromkeys(env_id for env_id, _ in curves):
        names = [name for env, name in curves if env == env_id]
        parts = -(-len(names) // MOST)
        size = -(-len(names) // parts)
        panels += [(env_id, names[i : i + size]) for i in range(0, len(names), size)]
        most = max(most, parts)
    figure, axes, columns = canvas(len(panels), most=most if most > 1 else 4)
    look = looks([name for _, name in curves], options)
    titles = titles_of(env_id for env_id, _ in curves)
    counts = [len(runs) for runs, *_ in curves.values()]
    for place, (axis, (env_id, names)) in enumerate(zip(axes, panels)):
        for name in names:
            runs, x, middle, low, high = curves[env_id, name]
            colour = look[name]["color"]
            for run in runs:
                dot = "o" if len(run[0]) == 1 else None
                axis.plot(*run, color=colour, alpha=0.8 / (1 + len(names)), lw=0.6, marker=dot)
            axis.plot(x, middle, **look[name], lw=1.6)
            axis.fill_between(x, low, high, color=colour, alpha=0.5 / (1 + len(names)), lw=0)
        count = len(curves[env_id, names[0]][0])
        seeds = f"\n{count} seed{'s' if count > 1 else ''}" if len(set(counts)) > 1 else ""
        axis.set_title(WORDS.get(titles[env_id], titles[env_id]) + seeds)
        if place % columns == 0:
            axis.set_ylabel(WORDS.get(options.metric, options.metric))
        if place + columns >= len(panels):
            axis.set_xlabel(over)
        axis.locator_params(axis="x", nbins={1: 8, 4: 3}.get(columns, 5), steps=(1, 2, 5, 10))
        axis.xaxis.set_major_formatter(short_steps)
    band = " (band); faint: single runs" if max(counts) > 1 else ""
    if over == "minutes of training":
        band += "; a run that has ended keeps its last return"
    save(figure, files, caption or describe(counts, options) + band, lacks, look)


def draw_rows(files: list[Path], panels: dict, over: str, caption: str, lacks: list[str]) -> None:
    """title -> [(label, colour, low, middle, high, dots, text), ...]: intervals one below the other, or without dots
    bars with a whisker. Dots that would cover each other hang in a column."""
    lengths = [len(lines) for lines in panels.values()]
    figure, axes, columns = canvas(len(panels), most=3, height=0.6 + 0.25 * max(lengths))
    before = []
    for place, (axis, (title, lines)) in enumerate(zip(axes, panels.items())):
        for height, (_, colour, low, middle, high, dots, text) in enumerate(lines):
            if dots is None:
                spread = [[middle - low], [high - middle]]
                axis.barh(height, middle, 0.6, xerr=spread, color=colour)
                axis.set_xlim(0, 1.4 * max(line[4] for line in lines))
                axis.xaxis.set_major_formatter(short_steps)
            else:
                ends = [x for line in lines for x in line[5]]
                width = (max(ends) - min(ends) or 1.0) / 80
                places = [round(dot / width) for dot in dots]
                ranks = [places[:i].count(place) for i, place in enumerate(places)]
                heights = [height + 0.2 + 0.06 * rank for rank in ranks]
                axis.plot(dots, heights, "o", color=colour, ms=2.5, mec="white", mew=0.3)
                axis.plot([low, high], [height] * 2, color=colour, lw=2.5)
                axis.plot(middle, height, "|", color=colour, ms=11, mew=2)
            axis.annotate(text, (high, height), va="center", size=8)
        labels = [line[0] for line in lines]
        axis.set_yticks(range(len(lines)), labels)
        if place % columns and labels == before:
            axis.set_yticklabels([])
        before = labels
        axis.set_ylim(len(lines) - 0.2, -0.6)
        axis.grid(axis="y", visible=False)
        axis.locator_params(axis="x", nbins=4)
        axis.set_title(title)
        if place + columns >= len(panels):
            axis.set_xlabel(over)
    save(figure, files, caption, lacks, {})


def draw_scores(stem: Path, rows: list[Row], table, score: str, lacks, options: Options) -> None:
    """Dots, interval and statistic of every experiment, in environments that have two."""
    look = looks([row["exp_name"] for row in table], options)
    finals = finals_of(rows, score)
    panels = defaultdict(list)
    titles = titles_of(row["env_id"] for row in table)
    for row in table:
        name = row["exp_name"]
        dots = list(finals[row["env_id"], name].values())
        ends = (row["low"], row[options.statistic], row["high"])
        line = (look[name]["label"], look[name]["color"], *ends, dots, "")
        panels[titles[row["env_id"]]].append(line)
    panels = {title: lines for title, lines in panels.items() if len(lines) > 1}
    counts = [len(line[5]) for lines in panels.values() for line in lines]
    caption = f"{describe(counts, options)} (tick and bar); dots: single runs"
    draw_rows(both(stem, "scores"), panels, WORDS.get(score, score), caption, lacks)


def draw_speed(stem: Path, rows: list[Row], lacks: list[str], options: Options) -> None:
    """Steps per second of each side of benchmarks/speed.py, and how many times as fast ours is within a round. Of a
    peer's settings of threads the fastest one is drawn; the bare environment, no learner, is not."""
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
                text += f"; ours {ratio:.1f}x"
            label = display(side, options).replace("Stable-Baselines3 ", "SB3 ")
            colour = looks([side], options)[side]["color"]
            ends = (min(rounds.values()), middle, max(rounds.values()))
            panels[title].append((label, colour, *ends, None, text))
    count = max(len(rounds) for sides in cases.values() for rounds in sides.values())
    caption = (
        f"median of {count} rounds, whisker: least to greatest; ours 2x: median ratio of a round"
    )
    draw_rows(both(stem, "bars"), panels, "steps per second", caption, lacks)


def draw_aggregate(stem: Path, rows: list[Row], score: str, lacks, options: Options) -> None:
    """Normalised scores, (score - random) / (reference - random), over all environments: the interquartile mean with
    rliable's stratified bootstrap and, of five seeds and more, the share of runs above each score."""
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
            there = ", ".join(f"{env_id} {count}" for env_id, count in counts.items())
            print(f"{name} is not in {stem.name}_aggregate: seeds {there}", file=sys.stderr)
    check(matrices, "--normalise: no exp_name has equally many seeds in every environment")
    np.random.seed(0)  # rliable draws from NumPy's global generator
    reps = options.bootstrap_reps
    points, ends = get_interval_estimates(
        matrices, lambda matrix: np.array([aggregate_iqm(matrix)]), reps=reps
    )
    look = looks(matrices, options)
    counts = sorted({len(matrix) for matrix in matrices.values()})
    seeds = f"{' or '.join(map(str, counts))} seeds in each of {len(env_ids)} environments"
    lines = []
    for name, matrix in matrices.items():
        low, high = ends[name].ravel()
        middle = points[name][0]
        text = f"  {middle:.2f} [{low:.2f}, {high:.2f}]"
        ends_of_line = (low, middle, high)
        dots = matrix.mean(axis=0)
        lines.append((look[name]["label"], look[name]["color"], *ends_of_line, dots, text))
    caption = (
        f"interquartile mean of {seeds}, 95 % stratified bootstrap interval; dots: environments"
    )
    draw_rows(both(stem, "aggregate"), {"": lines}, "normalised score", caption, lacks)
    if counts[0] >= 5:
        taus = np.linspace(0, max(matrix.max() for matrix in matrices.values()), 100)
        shares, bands = create_performance_profile(matrices, taus, reps=reps)
        curves = {("", name): ([], taus, shares[name], *bands[name]) for name in matrices}
        shown = replace(options, metric="share of runs above it")
        caption = f"all runs of {seeds}, 95 % stratified bootstrap interval (band)"
        files = both(stem, "profile")
        draw_curves(files, curves, "normalised score", lacks, shown, caption)


def write_page(file: Path, curves: dict, lacks: list[str], options: Options) -> None:
    """The curves as one HTML page that needs no network: hover, zoom, switch experiments off in the legend."""
    from matplotlib.colors import to_hex
    from plotly.subplots import make_subplots

    env_ids = list(dict.fromkeys(env_id for env_id, _ in curves))
    page = make_subplots(len(env_ids), 1, subplot_titles=env_ids)
    look, shown = looks([name for _, name in curves], options), set()
    for (env_id, name), (runs, x, middle, low, high) in curves.items():
        colour, label = to_hex(look[name]["color"]), look[name]["label"]
        place = {"mode": "lines", "legendgroup": label, "row": env_ids.index(env_id) + 1, "col": 1}
        hidden = place | {"showlegend": False, "hoverinfo": "skip"}
        thin = {"color": colour, "width": 0.7}
        for run_x, run_y in runs:
            page.add_scatter(x=run_x, y=run_y, line=thin, opacity=0.3, **hidden)
        page.add_scatter(x=x, y=low, line={"width": 0}, **hidden)
        fill = {"line": {"width": 0}, "fill": "tonexty", "fillcolor": f"{colour}2e"}
        page.add_scatter(x=x, y=high, **fill, **hidden)
        line = {"color": colour, "width": 2.5}
        page.add_scatter(
            x=x, y=middle, name=label, showlegend=label not in shown, line=line, **place
        )
        shown.add(label)
    title = describe([len(runs) for runs, *_ in curves.values()], options)
    title = f"INCOMPLETE SET: {'; '.join(lacks)}" if lacks else title
    height = 380 * len(env_ids) + 120
    page.update_layout(height=height, template="plotly_white", title=title)
    page.update_yaxes(title_text=WORDS.get(options.metric, options.metric))
    page.write_html(file, include_plotlyjs=True, div_id="curves")


# ---- command line ------------------------------------------------------------------------------


def write_set(stem: Path, rows: list[Row], score: str, lacks: list[str], options: Options) -> None:
    """All tables and figures of a set."""
    table = score_table(rows, score, options)
    comparisons = [] if score == "sps" else comparison_table(rows, score, options)
    stem.parent.mkdir(parents=True, exist_ok=True)
    write_tables(stem, table, comparisons, score, lacks, options)
    curves, over = summarise(rows, options), "environment steps"
    if not curves:
        points, over = over_settings(rows, score)
        options = replace(options, metric=score)
        curves = summarise(points, options)
    if curves:
        draw_curves(both(stem, "curves"), curves, over, lacks, options)
    if curves and options.page:
        write_page(stem.with_name(f"{stem.name}.html"), curves, lacks, options)
    if options.minutes:
        minutes = summarise(rows, options, minutes=True)
        draw_curves(both(stem, "minutes"), minutes, "minutes of training", lacks, options)
    if score == "sps":
        draw_speed(stem, rows, lacks, options)
    elif comparisons and over in ("environment steps", ""):  # "": there are no curves
        draw_scores(stem, rows, table, score, lacks, options)
    if options.normalise:
        draw_aggregate(stem, rows, score, lacks, options)
    print(f"# {stem}\n\n{stem.with_name(f'{stem.name}.md').read_text()}")


def labelled(home: Path, name: str, exp_names: set[str], options: Options) -> Options:
    """The options, and behind --labels what labels.csv (set,exp_name,label) in the set's folder calls its runs."""
    file = home / "labels.csv"
    if not file.is_file():
        return options
    with file.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row.get("set") == name]  # or another's file
    whole = all(row.get("exp_name") and row.get("label") for row in rows)
    check(whole, f"{file} has no columns exp_name and label, or no words in them")
    more = (f"{row['exp_name']}={row['label']}" for row in rows if row["exp_name"] in exp_names)
    return replace(options, labels=(*options.labels, *more))


def check_set(name: str, rows: list[Row], options: Options) -> None:
    metrics = {row.metric for row in rows}
    check(options.metric in (CURVE, *metrics), f"{name} has no {options.metric} (--metric)")
    check(CLOCK in metrics or not options.minutes, f"{name} has no {CLOCK}, which --minutes needs")
    if options.normalise:
        there = results.read_scales(options.normalise)
        unknown = sorted({row.env_id for row in rows} - set(there))
        check(not unknown, f"--normalise {options.normalise} has no {', '.join(unknown)}")


def check_options(options: Options, folders: list[Path], files: list[Path]) -> None:
    check_least(2, options, "bins", "bootstrap_reps")
    check(options.inputs, "give run folders or CSV files, for example: python scripts/plot.py runs")
    for file in files:
        check(file.is_file(), f"{file} does not exist")
    export_to, output = options.export, options.output
    check(folders or not export_to, "--export takes run folders; CSV files are exported already")
    check_output("--export", export_to)
    check_output("--figure", options.figure, ".png", ".pdf", ".svg")
    if output:
        check(not output.is_file(), f"--output {output} is a file; name a folder")
    for label in options.labels:
        check("=" in label, f"--labels {label}: write exp_name=Name")
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
    words = "they would overwrite each other's figures"
    check(not twice, f"two inputs are named {' '.join(twice)}: {words}")
    check(len(sets) == 1 or not options.figure, "--figure takes one set of runs, or one CSV file")
    names = {row.exp_name for _, rows, _ in sets for row in rows}
    words = f"no run is of {options.baseline} (--baseline), but of {', '.join(sorted(names))}"
    for _, _, left_out in sets:
        words += "".join(f"\n{line}" for line in left_out)
    check(options.baseline in (*names, ""), words)
    for label in options.labels:
        name = label.rpartition("=")[0]  # the text has no "=" of its own
        words = f"--labels {label}: no run is of {name}, but of {', '.join(sorted(names))}"
        check(name in names, words)
    ready, failed, given = [], False, options
    for file, rows, left_out in sets:
        rows, score = results.select(file.stem, rows, options, left_out)
        rows, lacks, refused = results.refuse(file.stem, rows, score, left_out, options)
        if rows:
            check_set(file.stem, rows, options)
        ready.append((file, rows, score, lacks))
        failed = failed or refused
    if failed and (files or options.export):
        raise SystemExit(1)
    shown = {row.exp_name for _, rows, *_ in ready for row in rows}
    words = f"--baseline {options.baseline} is not among what is shown: {', '.join(sorted(shown))}"
    check(not options.baseline or not shown or options.baseline in shown, words)
    with writing():
        for file, rows, score, lacks in ready:
            home = file.parent.parent if file.parent.name == "results" else file.parent
            options = labelled(home, file.stem, {row.exp_name for row in rows}, given)
            if rows and options.export:
                results.export(options.export, rows)
            if rows and options.figure:
                curves = summarise(rows, options)
                check(curves, f"{file.stem} has no {options.metric}")
                draw_curves([options.figure], curves, "environment steps", lacks, options)
            elif rows:
                write_set(
                    (options.output or home / "curves") / file.stem, rows, score, lacks, options
                )
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
