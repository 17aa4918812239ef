"""The candidates of scripts/settings_search.sh by the score that it declares: python benchmarks/search_score.py

Of each candidate the number of seeds, the score, the seconds of a run, and of each task the mean evaluation over the
seeds (least to most), from results/settings_search_*.csv or the files given.
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
FILES = tuple(sorted((Path(__file__).parent / "results").glob("settings_search_*.csv")))


def main(files: tyro.conf.Positional[tuple[Path, ...]] = FILES) -> None:
    found = {name: defaultdict(dict) for name in ("eval_return_mean", "wall_time_s")}  # by seed
    for file in files:
        for row in csv.DictReader(file.open()):
            if row["metric"] in found:
                candidate = row["exp_name"].partition("-")[2]
                runs = found[row["metric"]][candidate, row["env_id"]]
                runs[row["seed"]] = float(row["value"])  # one run, even where two files have it
    returns, times = found.values()
    lines = []
    for candidate in {candidate for candidate, _ in returns}:
        scores, cells = [], []
        for env_id, (random, published) in PUBLISHED.items():
            values = returns[candidate, env_id].values()
            scores.append((mean(values) - random) / (published - random))
            spread = f" ({min(values):.0f} to {max(values):.0f})" if len(values) > 1 else ""
            cells.append(f"{mean(values):.0f}{spread}")
        seconds = mean(mean(times[candidate, env_id].values()) for env_id in PUBLISHED)
        cells = [candidate, str(len(values)), f"{mean(scores):.3f}", f"{seconds:.0f}", *cells]
        lines.append((len(values), mean(scores), f"| {' | '.join(cells)} |"))
    print(f"| candidate | seeds | score | seconds a run | {' | '.join(PUBLISHED)} |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for *_, line in sorted(lines, reverse=True):
        print(line)


if __name__ == "__main__":
    tyro.cli(main)
