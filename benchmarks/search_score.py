"""The candidates of scripts/settings_search.sh by the score that it declares: python benchmarks/search_score.py

Of each candidate and task the mean evaluation over its seeds, from results/settings_search_1.csv or the files given.
"""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import mean

import tyro

PUBLISHED = {  # return of a random policy, and published; as declared
    "HalfCheetah-v5": (-280, 5784),
    "BipedalWalker-v3": (-100, 300),
    "LunarLanderContinuous-v3": (-200, 271),
}
STAGE_1 = Path(__file__).parent / "results" / "settings_search_1.csv"


def main(files: tyro.conf.Positional[tuple[Path, ...]] = (STAGE_1,)) -> None:
    returns = defaultdict(lambda: defaultdict(list))
    for file in files:
        for row in csv.DictReader(file.open()):
            if row["metric"] == "eval_return_mean":
                candidate = row["exp_name"].partition("-")[2]
                returns[candidate][row["env_id"]].append(float(row["value"]))
    lines = []
    for candidate, tasks in returns.items():
        means = [mean(tasks[env_id]) for env_id in PUBLISHED]
        ends = PUBLISHED.values()
        shares = [(value - low) / (high - low) for value, (low, high) in zip(means, ends)]
        cells = " | ".join(f"{value:.0f}" for value in means)
        lines.append((mean(shares), f"| {candidate} | {mean(shares):.3f} | {cells} |"))
    print(f"| candidate | score | {' | '.join(PUBLISHED)} |\n|---|--:|--:|--:|--:|")
    for _, line in sorted(lines, reverse=True):
        print(line)


if __name__ == "__main__":
    tyro.cli(main)
