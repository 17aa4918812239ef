"""What the log of PPO shows when one flag is far off: a table of the runs of PARTS=symptoms scripts/ablations.sh.

    python benchmarks/studies/ablations/symptoms.py runs/symptoms --output \
        benchmarks/studies/ablations/results/symptoms.csv    # from run folders
    python benchmarks/studies/ablations/symptoms.py benchmarks/studies/ablations/results/symptoms.csv

A scalar is its mean over the second quarter of a run's steps: early enough to look, and before the learning rate, which
falls to 0, hides how far an update goes. The table has the least and the greatest of the seeds, of the evaluation their
mean before them.
"""

from collections import Counter
from pathlib import Path
from statistics import fmean

import tyro
from plainrl_tools import results
from plainrl_tools.common import check, check_output, read_json, writing
from plainrl_tools.results import Row, finals_of

SCALARS = ("entropy", "approx_kl", "clipfrac", "explained_variance", "value_loss")
SCORE = "eval_return_mean"


def read_run(run: Path) -> list[Row]:
    """Evaluation, and the means of the scalars, of a finished run."""
    summary = read_json(run / "summary.json")
    total = summary["total_timesteps"]
    key = summary["args"]["exp_name"], summary["env_id"], summary["seed"], total
    rows = [Row(*key, SCORE, summary[SCORE], summary["commit"])]
    scalars = results.read_scalars(run)
    for name in SCALARS:
        points = scalars.get(f"losses/{name}", [])
        values = [value for step, _, value in points if total / 4 < step <= total / 2]
        check(values, f"{run} has no losses/{name} in its second quarter")
        rows.append(Row(*key, name, fmean(values), summary["commit"]))
    return rows


def table(rows: list[Row]) -> str:
    """A line an experiment, from the best evaluation to the worst."""
    lines = []
    scores = finals_of(rows, SCORE)
    for key in sorted(scores, key=lambda key: -fmean(scores[key].values())):
        values = scores[key].values()
        spread = f"({min(values):.0f} to {max(values):.0f})"
        cells = [key[1].removeprefix("ppo_continuous-"), f"{fmean(values):.0f} {spread}"]
        for name in SCALARS:
            values = finals_of(rows, name)[key].values()
            cells.append(f"{min(values):.2g} to {max(values):.2g}")
        lines.append(f"| {' | '.join(cells)} |")
    head = ["case", "evaluation", *SCALARS]
    rule = "|---" + "|--:" * (len(head) - 1) + "|"
    return "\n".join([f"| {' | '.join(head)} |", rule, *lines])


def main(source: tyro.conf.Positional[Path], output: Path | None = None) -> None:
    """The table of run folders below a folder, or of a CSV file; --output writes the rows to such a file."""
    check(source.exists(), f"{source} does not exist")
    check_output("--output", output)
    if source.is_dir():
        found, left_out = results.read_folders([source])
        lacking = [
            f"{row.exp_name}, seed {row.seed}" for row in found if row.metric == results.MISSING
        ]
        check(not left_out + lacking, f"{source} is incomplete: {'; '.join(left_out + lacking)}")
        rows = [
            row for file in results.find(source, "summary.json") for row in read_run(file.parent)
        ]
    else:
        rows = results.read_csv(source)
    runs = Counter(row[:3] for row in rows if row.metric == SCORE)
    twice = [" ".join(map(str, run)) for run, number in runs.items() if number > 1]
    check(not twice, f"{source}: {', '.join(twice)}: more than one run; take a folder of their own")
    seeds = {tuple(sorted(runs)) for runs in finals_of(rows, SCORE).values()}
    check(len(seeds) == 1, f"{source}: not every case has the same seeds")
    if output:
        with writing():
            results.export(output, rows)
    print(table(rows))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
