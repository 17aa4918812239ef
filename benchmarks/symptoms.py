"""What the log of PPO shows when one flag is far off: a Markdown table, of the runs of scripts/symptoms.sh.

    python benchmarks/symptoms.py runs/symptoms --output benchmarks/symptoms.csv    # from run folders
    python benchmarks/symptoms.py benchmarks/symptoms.csv

A scalar is its mean over the second quarter of a run's steps: early enough to look, and before the learning rate, which
falls to 0, hides how far an update goes. The table has the least and the greatest of the seeds, of the evaluation their
mean as well.
"""

import sys
from pathlib import Path
from statistics import fmean

import tyro

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
from common import check, is_complete, read_json  # noqa: E402
from results import Row, export, finals_of, find, read_csv, read_scalars  # noqa: E402

SCALARS = ("entropy", "approx_kl", "clipfrac", "explained_variance", "value_loss")
SCORE = "eval_return_mean"


def read_run(run: Path) -> list[Row]:
    """Evaluation, and the means of the scalars, of a finished run."""
    summary = read_json(run / "summary.json")
    total = summary["total_timesteps"]
    key = summary["args"]["exp_name"], summary["env_id"], summary["seed"], total
    rows = [Row(*key, SCORE, summary[SCORE], summary["commit"])]
    scalars = read_scalars(run)
    for name in SCALARS:
        points = scalars[f"losses/{name}"]
        values = [value for step, _, value in points if total / 4 < step <= total / 2]
        rows.append(Row(*key, name, fmean(values), summary["commit"]))
    return rows


def table(rows: list[Row]) -> str:
    """A line an experiment, from the best evaluation to the worst."""
    lines = []
    scores = finals_of(rows, SCORE)
    for key in sorted(scores, key=lambda key: -fmean(scores[key].values())):
        cells = [key[1].removeprefix("ppo_continuous-"), f"{fmean(scores[key].values()):.0f}"]
        for name in (SCORE, *SCALARS):
            values = finals_of(rows, name)[key].values()
            form = ".0f" if name == SCORE else ".2g"
            cells.append(f"{min(values):{form}} to {max(values):{form}}")
        lines.append(f"| {' | '.join(cells)} |")
    head = ["case", "evaluation", "least to most", *SCALARS]
    return "\n".join(
        [f"| {' | '.join(head)} |", "|---|--:" + "|---" * (len(head) - 2) + "|", *lines]
    )


def main(source: tyro.conf.Positional[Path], output: Path | None = None) -> None:
    """The table of run folders below a folder, or of a CSV file; --output writes the rows to such a file."""
    check(source.exists(), f"{source} does not exist")
    if source.is_dir():
        summaries = sorted(find(source, "summary.json"))
        check(summaries, f"no finished run in {source}")
        for file in summaries:
            check(is_complete(file.parent), f"{file.parent} is not finished")
        rows = [row for file in summaries for row in read_run(file.parent)]
    else:
        rows = read_csv(source)
    if output:
        export(output, rows)
    print(table(rows))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
