"""Questions 14 and 17 of benchmarks/studies/rpo/predictions.md: 8M steps with the paper's settings.

    python benchmarks/studies/rpo/long.py benchmarks/studies/rpo/results/rpo_long.csv --figure docs/rpo_long.png

The training return is the mean of the last 100 episodes, with sampled actions. A run's curve is cut into ten parts of
equal length, and its fall is the highest mean of a part minus the training return at the end. The highest of ten means
is above the true one by chance, so a run that stays level has a small positive fall.

Differences pair runs of one seed; p is that of the exact sign-flip test, corrected for the four planned comparisons of
a task (Holm). With five pairs p before the correction is at least 0.0625, so no difference can be significant, and the
table counts the pairs in which the first experiment is higher.
"""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import tyro
from analyse import Options, stepwise
from plainrl_tools.common import check, check_output, writing
from plainrl_tools.compare import compare, interval, markdown, with_interval
from plainrl_tools.results import CURVE, ENTROPY, curves_of, finals_of, read_csv

STEPS = 8_000_000
PARTS = 10
PPO, RPO = "ppo_continuous_seeds-8M", "rpo_continuous_seeds-8M"
BONUS, FIXED = f"{PPO}-ent-coef=0.01", "fixed_scale_seeds-8M"
MISTAKEN = "-no-bootstrap-truncation"
CONFIGURATIONS = {  # exp_name: (title, colour, line style)
    PPO: ("PPO", "#0072B2", "-"),
    RPO: ("RPO", "#D55E00", "-"),
    BONUS: ("PPO, entropy coefficient 0.01", "#56B4E9", "-"),
    FIXED: ("PPO, standard deviation 1", "#009E73", "-"),
    PPO + MISTAKEN: ("PPO, truncation as termination", "#0072B2", "--"),
    RPO + MISTAKEN: ("RPO, truncation as termination", "#D55E00", "--"),
}
PLANNED = ((RPO, PPO), (BONUS, PPO), (FIXED, PPO), (RPO + MISTAKEN, PPO + MISTAKEN))
PUBLISHED = {  # CleanRL's training return, mean and standard deviation over seeds: its documentation's table
    "BipedalWalker-v3": {PPO: (172.12, 96.05), RPO: (227.11, 18.23)},
    "Pendulum-v1": {PPO: (-1141.98, 135.55), RPO: (-151.08, 3.73)},
}


@dataclass
class Args:
    input: tyro.conf.Positional[Path]  # long CSV of plot.py --export with --metric losses/entropy
    figure: Path | None = None  # where to draw return and entropy over steps


def highest_part(points: list[tuple]) -> float:
    """The highest mean of the ten parts of a curve [(step, return), ...]."""
    parts = {}
    for step, value in points:
        parts.setdefault(min(step * PARTS // STEPS, PARTS - 1), []).append(value)
    return max(map(fmean, parts.values()))


def falls_of(rows) -> dict[tuple[str, str], dict[int, float]]:
    """(task, exp_name) -> {seed: highest part of the run minus the training return at its end}."""
    ends = finals_of(rows, "train_return_last100")
    return {
        key: {seed: highest_part(points) - ends[key][seed] for seed, points in seeds.items()}
        for key, seeds in curves_of(rows, CURVE).items()
    }


def runs_of(rows, task: str) -> list[dict]:
    """A line for each configuration of a task that has runs: means over seeds."""
    ends, scores = (finals_of(rows, x) for x in ("train_return_last100", "eval_return_mean"))
    falls, nats = falls_of(rows), finals_of(rows, ENTROPY)
    lines = []
    for name, (title, *_) in CONFIGURATIONS.items():
        if (key := (task, name)) not in scores:
            continue
        line = {"task": task, "configuration": title, "seeds": len(scores[key])}
        for word, values in (("training", ends), ("evaluation", scores), ("fall", falls)):
            values = np.array(list(values[key].values()))
            row = dict(zip(("low", "high"), interval(values, Options())), mean=values.mean())
            line[f"{word} [95 %]"] = with_interval(row, "mean")
        line["falls of the seeds"] = ", ".join(f"{x:.0f}" for _, x in sorted(falls[key].items()))
        line["entropy"] = fmean(nats[key].values())
        lines.append(line)
    return lines


def differences_of(rows, task: str) -> list[dict]:
    """A line for each planned comparison of a task that has runs, of training returns at the end."""
    ends = finals_of(rows, "train_return_last100")
    lines = []
    for pair in PLANNED:
        if all((task, name) in ends for name in pair):
            a, b = (ends[task, name] for name in pair)
            check(a.keys() == b.keys(), f"{task}: {' and '.join(pair)} have different seeds")
            row = compare(a, b, Options())
            line = {"task": task}
            line |= dict(zip(("configuration", "against"), (CONFIGURATIONS[x][0] for x in pair)))
            line["difference in training [95 %]"] = with_interval(row, "difference")
            line["higher in"] = f"{sum(a[x] > b[x] for x in a)} of {len(a)} pairs"
            lines.append(line | {"p": row["p"]})
    corrected = stepwise([line["p"] for line in lines], len(PLANNED))
    return [line | {"p": p} for line, p in zip(lines, corrected)]


def draw(rows, file: Path) -> None:
    """A row of panels for each task: return, with the published points after its end, and entropy; a line a seed."""
    import matplotlib.pyplot as plt

    returns, entropies = curves_of(rows, CURVE), curves_of(rows, ENTROPY)
    tasks = [task for task in PUBLISHED if (task, PPO) in returns]
    size = (7.5, 0.6 + 2.5 * len(tasks))
    figure, axes = plt.subplots(len(tasks), 2, figsize=size, squeeze=False, layout="constrained")
    for line, task in zip(axes, tasks):
        for name, (title, colour, style) in CONFIGURATIONS.items():
            for axis, curves in zip(line, (returns, entropies)):
                seeds = curves.get((task, name), {}).values()
                seeds = [np.array(points).T for points in seeds]
                for one in seeds:
                    axis.plot(*one, lw=0.5, alpha=0.4, color=colour, ls=style)
                if seeds:
                    first, last = (f(x[i] for x, _ in seeds) for f, i in ((max, 0), (min, -1)))
                    steps = np.linspace(first, last, 50)
                    mean = np.mean([np.interp(steps, *one) for one in seeds], axis=0)
                    axis.plot(steps, mean, lw=2, color=colour, ls=style, label=title)
        for place, (name, (mean, spread)) in enumerate(PUBLISHED[task].items()):
            title, colour, _ = CONFIGURATIONS[name]
            look = {"fmt": "D", "ms": 5, "capsize": 3, "mec": "black", "clip_on": False}
            x = (1.03 + 0.03 * place) * STEPS
            label = f"{title}, published by CleanRL"
            line[0].errorbar(x, mean, spread, color=colour, label=label, **look)
        for axis, title in zip(line, ("training return", "entropy of the policy (nats)")):
            axis.set_title(f"{task}: {title}", fontsize=10)
            axis.set_xlabel("million steps")
            axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g}")
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
    handles = axes[0][0].get_legend_handles_labels()
    figure.legend(*handles, frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    figure.savefig(file, dpi=200)


def main() -> None:
    args = tyro.cli(Args, description=__doc__)
    check_output("--figure", args.figure, ".png", ".pdf", ".svg")
    rows = read_csv(args.input)
    for lines_of in (runs_of, differences_of):
        lines = [line for task in PUBLISHED for line in lines_of(rows, task)]
        check(lines, f"{args.input} has no runs of {PPO}")
        print(markdown(lines), end="\n\n")
    if args.figure:
        with writing():
            draw(rows, args.figure)


if __name__ == "__main__":
    main()
