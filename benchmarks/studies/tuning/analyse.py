"""The candidates of scripts/tuning.sh by the score that it declares: python benchmarks/studies/tuning/analyse.py

Of each candidate the number of seeds, the score, the seconds of a run, and of each task the mean evaluation over the
seeds (least to most), from results/settings_search_*.csv or the files given.
"""

from collections import defaultdict
from pathlib import Path
from statistics import mean

import tyro
from plainrl_tools.common import check
from plainrl_tools.results import read_csv

PUBLISHED = {  # return of a random policy, and published; as declared
    "HalfCheetah-v5": (-280, 5784),
    "BipedalWalker-v3": (-100, 300),
    "LunarLanderContinuous-v3": (-200, 271),
}
FILES = tuple(sorted((Path(__file__).parent / "results").glob("settings_search_*.csv")))


def main(files: tyro.conf.Positional[tuple[Path, ...]] = FILES) -> None:
    rows = [row for file in files for row in read_csv(file)]
    found = {name: defaultdict(dict) for name in ("eval_return_mean", "wall_time_s")}  # by seed
    for row in rows:
        if row.metric in found:
            candidate = row.exp_name.partition("-")[2]
            # one run, even where two files have it
            found[row.metric][candidate, row.env_id][row.seed] = row.value
    returns, times = found.values()
    check(returns, f"no run of a candidate in {' '.join(map(str, files))}")
    lines = []
    for candidate in {candidate for candidate, _ in returns}:
        scores, cells = [], []
        for env_id, (random, published) in PUBLISHED.items():
            values = returns[candidate, env_id].values()
            check(values and times[candidate, env_id], f"{candidate or 'a file'} has no {env_id}")
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
