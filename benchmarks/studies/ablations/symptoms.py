"""What the log of PPO shows when one flag is far off, of the runs of PARTS=symptoms scripts/ablations.sh.

    python benchmarks/studies/ablations/symptoms.py runs/symptoms --output \
        benchmarks/studies/ablations/results/symptoms.csv

A scalar is its mean over the second quarter of a run's steps: early enough to look, and before the learning rate, which
falls to 0, hides how far an update goes. docs/generate.py makes the table of docs/not-learning.md from the file.
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


def main(source: tyro.conf.Positional[Path], output: Path) -> None:
    """Write the rows of the run folders below a folder to a CSV file."""
    check(source.is_dir(), f"{source} is no folder")
    check_output("--output", output)
    found, left_out = results.read_folders([source])
    lacking = [f"{row.exp_name}, seed {row.seed}" for row in found if row.metric == results.MISSING]
    check(not left_out + lacking, f"{source} is incomplete: {'; '.join(left_out + lacking)}")
    rows = [row for file in results.find(source, "summary.json") for row in read_run(file.parent)]
    runs = Counter(row[:3] for row in rows if row.metric == SCORE)
    twice = [" ".join(map(str, run)) for run, number in runs.items() if number > 1]
    check(not twice, f"{source}: {', '.join(twice)}: more than one run; take a folder of their own")
    seeds = {tuple(sorted(runs)) for runs in finals_of(rows, SCORE).values()}
    check(len(seeds) == 1, f"{source}: not every case has the same seeds")
    with writing():
        results.export(output, rows)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
