"""The largest update of each run, by its mean KL, and the first fall of its returns.

    python benchmarks/studies/trust_region/analyse.py runs/Pendulum-v1__* \
        --output benchmarks/studies/trust_region/results/penalty_kl.csv

Of run folders of a file that logs losses/approx_kl, the mean over an update's minibatches, in nats. A fall is a mean
training return of 1/50 of the run (20,000 of 1M steps) below --fall, after --after steps; it begins with the first
return below that in there. Updates are those between --after and the first fall, or the end where there is none: what
came after a fall is no reason for it. A row for each run; no fall is an empty field.
"""

import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import tyro
from plainrl_tools.common import check, check_output, is_complete, read_json, writing
from plainrl_tools.results import CURVE, read_scalars

KL = "losses/approx_kl"
COLUMNS = ("exp_name", "env_id", "seed", "updates", "median_kl", "above", "largest_kl")
COLUMNS += ("largest_step", "first_fall", "commit")


@dataclass
class Options:
    runs: tyro.conf.Positional[tuple[Path, ...]]  # finished run folders
    output: Path = Path("largest_kl.csv")  # the CSV
    after: int = 250_000  # steps that a run has for learning, before a fall is one
    fall: float = -400  # returns below are a fall
    above: float = 0.1  # updates with a larger KL are counted


def look(run: Path, options: Options) -> tuple:
    """The row of one run folder."""
    summary = read_json(run / "summary.json")
    check(is_complete(run), f"{run} is no finished run folder")
    scalars = read_scalars(run)
    check(scalars.get(KL), f"{run} has no {KL}")
    size = summary["total_timesteps"] // 50
    bins = defaultdict(list)
    for step, _, value in scalars[CURVE]:
        bins[step // size].append((step, value))
    fallen = [
        min(step for step, value in points if value < options.fall)
        for place, points in sorted(bins.items())
        if place * size >= options.after and fmean(value for _, value in points) < options.fall
    ]
    end = fallen[0] if fallen else summary["global_step"]
    updates = [(kl, step) for step, _, kl in scalars[KL] if options.after <= step <= end]
    check(updates, f"{run} has no update behind --after {options.after} steps; give fewer")
    largest, step = max(updates)
    sizes = [kl for kl, _ in updates]
    above = sum(kl > options.above for kl in sizes)
    key = summary["args"]["exp_name"], summary["env_id"], summary["seed"]
    found = len(sizes), f"{median(sizes):.4g}", above, f"{largest:.4g}", step
    return *key, *found, fallen[0] if fallen else "", summary["commit"]


def main(options: Options) -> None:
    check(options.runs, "give run folders")
    check_output("--output", options.output)
    rows = sorted(look(run, options) for run in options.runs)
    with writing(), options.output.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([COLUMNS, *rows])
    for row in rows:
        print(*row)


if __name__ == "__main__":
    main(tyro.cli(Options))
