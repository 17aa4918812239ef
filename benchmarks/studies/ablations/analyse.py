"""The answers of docs/ablations.md from the runs of scripts/ablations.sh: Markdown tables.

    python benchmarks/studies/ablations/analyse.py runs/ablations --output \
        benchmarks/studies/ablations/results/ablations.csv    # from run folders
    python benchmarks/studies/ablations/analyse.py benchmarks/studies/ablations/results/ablations.csv \
        --figure docs/ablations.png

Runs of one seed are paired, p is of the exact sign-flip test, corrected by Holm's method over the comparisons of a
question. A run that is reset before any episode ends has no training return.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from plainrl_tools.common import check, check_output, writing
from plainrl_tools.compare import compare, holm, interval, markdown, with_interval
from plainrl_tools.results import ENTROPY, Row, export, finals_of, read_source


@dataclass
class Options:  # of compare.py
    statistic: str = "mean"
    bootstrap_reps: int = 2000


PLANNED = {  # question -> [(experiment, the one it is compared with)]
    "resets": [
        ("reset_rollouts-short", "ppo_continuous-short"),
        ("reset_rollouts-long", "ppo_continuous-long"),
    ],
    "minibatches": [
        ("unshuffled-short", "ppo_continuous-short"),
        ("ppo_continuous-one-batch", "ppo_continuous-short"),
        ("ppo_continuous-one-batch-40", "ppo_continuous-short"),
        ("ppo_continuous-one-batch-40", "ppo_continuous-one-batch"),
    ],
    "squash": [
        ("ppo_squashed-short", "ppo_continuous-short"),
        ("uncorrected_squash-short-ent-coef=0.01", "ppo_squashed-short-ent-coef=0.01"),
        ("uncorrected_squash-short-ent-coef=0.05", "ppo_squashed-short-ent-coef=0.05"),
    ],
}
TRAINING = "train_return_last100"
BASES = ("ppo_continuous-short", "ppo_continuous-long")  # as they are
LABELS = {  # of the figure
    "ppo_continuous-short": "PPO, default flags",
    "reset_rollouts-short": "reset before each rollout",
    "ppo_continuous-long": "rollouts of 256 steps",
    "reset_rollouts-long": "the same, reset before each rollout",
    "unshuffled-short": "samples not shuffled",
    "ppo_continuous-one-batch": "one batch, 5 updates",
    "ppo_continuous-one-batch-40": "one batch, 40 updates",
    "ppo_squashed-short": "squashed",
    "ppo_squashed-short-ent-coef=0.01": "squashed, entropy coefficient 0.01",
    "uncorrected_squash-short-ent-coef=0.01": "the same, uncorrected",
    "ppo_squashed-short-ent-coef=0.05": "squashed, entropy coefficient 0.05",
    "uncorrected_squash-short-ent-coef=0.05": "the same, uncorrected",
}


def cells(rows: list[Row]) -> list[dict]:
    """A line an experiment: evaluation, training return and, at the end, the entropy that the file reports, in nats."""
    lines = []
    training, entropies = finals_of(rows, TRAINING), finals_of(rows, ENTROPY)
    for key, scores in finals_of(rows, "eval_return_mean").items():
        values = np.array(list(scores.values()))
        score = dict(zip(("low", "high"), interval(values, Options())), mean=values.mean())
        line = {"experiment": key[1], "seeds": len(values)}
        line |= {"evaluation: mean [95 %]": with_interval(score, "mean")}
        line |= {"least": values.min(), "most": values.max()}
        line["training, last 100"] = (
            float(np.mean(list(training[key].values()))) if key in training else "none ends"
        )
        lines.append(line | {"entropy": float(np.mean(list(entropies[key].values())))})
    return lines


def comparisons(rows: list[Row], question: str) -> list[dict]:
    """A line a planned comparison; one without its runs stops the table."""
    scores = {name: runs for (_, name), runs in finals_of(rows, "eval_return_mean").items()}
    lines = []
    for name, other in PLANNED[question]:
        check(name in scores and other in scores, f"no runs of {name} or {other}")
        check(scores[name].keys() == scores[other].keys(), f"{name}, {other}: different seeds")
        row = compare(scores[name], scores[other], Options())
        line = {"experiment": name, "against": other, "p": row["p"]}
        lines.append(line | {"difference [95 %]": with_interval(row, "difference")})
    for line, p in zip(lines, holm([line["p"] for line in lines])):
        line["p"] = p
    return lines


def draw(file: Path, rows: list[Row]) -> None:
    """A line an experiment: the single runs, their mean and its interval, over the logarithm of the cost."""
    import matplotlib.pyplot as plt

    finals = {name: runs for (_, name), runs in finals_of(rows, "eval_return_mean").items()}
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for height, name in enumerate(LABELS):
        costs = -np.array(list(finals[name].values()))
        colour = "#555555" if name in BASES else "#0072B2"
        axis.plot(costs, [height + 0.25] * len(costs), "o", color=colour, alpha=0.5, ms=3)
        axis.plot(interval(costs, Options()), [height] * 2, color=colour, lw=2.5)
        axis.plot(costs.mean(), height, "|", color=colour, ms=9, mew=2)
        axis.axhline(height, color="#dddddd", lw=0.5, zorder=0)
    axis.set_yticks(range(len(LABELS)), LABELS.values())
    axis.set_xscale("log")
    axis.set_xticks(
        [150, 200, 300, 400, 800, 1600], ["-150", "-200", "-300", "-400", "-800", "-1600"]
    )
    axis.xaxis.set_minor_locator(plt.NullLocator())
    axis.invert_xaxis()
    axis.invert_yaxis()
    axis.set_xlabel("return, log scale; tick and bar: mean and 95 % interval")
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=200)


def main(
    source: tyro.conf.Positional[Path], output: Path | None = None, figure: Path | None = None
) -> None:
    """The tables of run folders below a folder, or of a CSV file; --output writes the rows to such a file, --figure
    draws them."""
    check_output("--output", output)
    check_output("--figure", figure, ".png", ".pdf", ".svg")
    planned = {name for pairs in PLANNED.values() for pair in pairs for name in pair}
    rows = read_source(source, ("eval_return_mean", TRAINING, ENTROPY, "missing"))
    rows = [row for row in rows if row.exp_name in planned]
    lacking = sorted(
        {f"{row.exp_name}, seed {row.seed}" for row in rows if row.metric == "missing"}
    )
    check(not lacking, f"not finished: {'; '.join(lacking)}")
    absent = sorted(planned - {row.exp_name for row in rows})
    check(not absent, f"{source} has no runs of {', '.join(absent)}")
    with writing():
        if output:
            export(output, rows)
        if figure:
            draw(figure, rows)
    print(markdown(cells(rows)))
    for question, pairs in PLANNED.items():
        print(f"\n{question.capitalize()}: differences, p corrected for {len(pairs)}\n")
        print(markdown(comparisons(rows, question)))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
