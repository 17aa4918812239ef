"""Figure of the notes' Pendulum agent with each combination of its four suspects (docs/broadcast.md).

    PARTS=notes RUNS=runs/notes scripts/ablations.sh
    python benchmarks/studies/ablations/suspects.py runs/notes --output \
        benchmarks/studies/ablations/results/suspects.csv    # from run folders
    python benchmarks/studies/ablations/suspects.py benchmarks/studies/ablations/results/suspects.csv \
        --figure docs/broadcast.png
"""

from itertools import product
from pathlib import Path

import numpy as np
import tyro
from plainrl_tools.common import check, check_output, writing
from plainrl_tools.results import ENTROPY, Row, export, finals_of, read_source

SCORE = "eval_return_mean"
SUSPECTS = {  # the value of a flag that is a mistake, as it stands in the experiment's name: its words
    "ratio=matrix": "(n,) minus (n, 1)",
    "critic-learning-rate=1e-5": "critic's rate 1e-5",
    "gae=unmasked": "GAE without the mask",
    "squash=uncorrected": "no squash correction",
}


def returns(rows: list[Row]) -> dict[tuple, dict[int, float]]:
    """Evaluation returns by seed of each combination, a tuple of the suspects that are in it."""
    scores = {name: values for (_, name), values in finals_of(rows, SCORE).items()}
    combinations = {}
    for switches in product([False, True], repeat=len(SUSPECTS)):
        names = tuple(name for name, is_on in zip(SUSPECTS, switches) if is_on)
        experiment = "-".join(["notes_agent", *names])
        check(experiment in scores, f"no runs of {experiment}")
        combinations[names] = scores[experiment]
    seeds = {tuple(sorted(values)) for values in combinations.values()}
    check(len(seeds) == 1, "the combinations do not have the same seeds")
    return combinations


def draw(file: Path, combinations: dict) -> None:
    """A line for each combination, from the best to the worst: its suspects, and the return of each run."""
    import matplotlib.pyplot as plt

    figure, (switches, axis) = plt.subplots(
        1, 2, figsize=(7, 4.2), width_ratios=[1, 2.4], layout="constrained", sharey=True
    )
    order = sorted(combinations, key=lambda names: -np.mean(list(combinations[names].values())))
    for height, names in enumerate(order):
        values = list(combinations[names].values())
        colour = "#D55E00" if "ratio=matrix" in names else "#0072B2"
        axis.plot(values, [height] * len(values), "o", color=colour, alpha=0.5, ms=4)
        axis.plot(np.mean(values), height, "|", color=colour, ms=11, mew=2)
        for column, name in enumerate(SUSPECTS):
            face = colour if name in names else "none"
            switches.plot(column, height, "o", color="#999999", mfc=face, ms=7)
        for panel in (axis, switches):
            panel.axhline(height, color="#eeeeee", lw=0.5, zorder=0)
    switches.set_xticks(range(len(SUSPECTS)), SUSPECTS.values(), rotation=40, ha="right")
    switches.set_xlim(-0.5, len(SUSPECTS) - 0.5)
    switches.set_title("filled: the mistake is made", fontsize=10)
    switches.set_yticks([])
    switches.invert_yaxis()
    axis.set_xlabel("evaluation return; the tick is the mean of the runs")
    for panel in (axis, switches):
        panel.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(file, dpi=200)


def main(
    source: tyro.conf.Positional[Path], output: Path | None = None, figure: Path | None = None
) -> None:
    """Of run folders below a folder, or of a CSV file; --output writes the rows to such a file."""
    check_output("--output", output)
    check_output("--figure", figure, ".png", ".pdf", ".svg")
    rows = read_source(source, (SCORE, ENTROPY))
    combinations = returns(rows)
    with writing():
        if output:
            export(output, rows)
        if figure:
            draw(figure, combinations)
    for names, values in combinations.items():
        print(f"{np.mean(list(values.values())):7.0f}  {', '.join(names) or 'none'}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
