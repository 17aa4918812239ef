"""The logs of runs as a CSV file: their scalars, averaged over bins of steps, and their final evaluations.

    python benchmarks/studies/pitfalls/run_logs.py runs/pitfalls --bins 20 \
        --output benchmarks/studies/pitfalls/results/pitfalls.csv
    python benchmarks/studies/pitfalls/run_logs.py runs/symptoms --bins 40 --stopped \
        --output benchmarks/studies/ablations/results/symptoms_log.csv

docs/generate.py and benchmarks/make_figures.py read them for docs/pitfalls.md and docs/not-learning.md.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import tyro
from plainrl_tools import results
from plainrl_tools.common import check, check_least, check_output, read_json, writing
from plainrl_tools.results import Row

SCALARS = (
    "charts/episodic_return",
    "losses/entropy",
    "losses/approx_kl",
    "losses/clipfrac",
    "losses/explained_variance",
    "losses/value_loss",
    "losses/q_values",
)
SCORES = ("eval_return_mean", "eval_return_std")


@dataclass
class Options:
    folder: tyro.conf.Positional[Path]  # run folders are looked for in it
    output: Path  # CSV file
    bins: int = 20  # of a run's steps
    stopped: bool = False  # also runs that were stopped: what they logged, and no evaluation


def rows_of(run: Path, bins: int) -> list[Row]:
    """The scores of a run, if it has finished, and the mean of each scalar over each bin at the mean of its steps."""
    record = read_json(run / "config.json")
    summary = read_json(run / "summary.json")
    total = record["total_timesteps"]
    key = record["args"]["exp_name"], record["env_id"], record["seed"]
    points = [(summary["global_step"], name, summary[name]) for name in SCORES if summary]
    scalars = results.read_scalars(run)
    for name in SCALARS:
        groups = defaultdict(list)
        for step, _, value in scalars.get(name, ()):
            index = step * bins // total
            groups[min(index, bins - 1)].append((step, value))
        for _, group in sorted(groups.items()):
            steps, values = zip(*group)
            points.append((round(fmean(steps)), name, fmean(values)))
    return [
        Row(*key, step, name, float(f"{value:.5g}"), record["commit"])
        for step, name, value in points
    ]


def main(options: Options) -> None:
    check(options.folder.is_dir(), f"{options.folder} is not a folder")
    check_output("--output", options.output)
    check_least(1, options, "bins")
    found, left_out = results.read_folders([options.folder])
    missing = [f"{row.exp_name}, seed {row.seed}" for row in found if row.metric == results.MISSING]
    incomplete = f"{options.folder} is incomplete: {'; '.join(missing + left_out)}"
    check(options.stopped or not missing + left_out, incomplete)
    rows = []
    for config in results.find(options.folder, "config.json"):
        rows += rows_of(config.parent, options.bins)
    with writing():
        results.export(options.output, rows)
    print(f"{options.output}: {len(rows)} rows")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
