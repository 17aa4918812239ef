"""How often a 95 % percentile bootstrap interval of a mean holds the true mean, by number of seeds, for normal scores.

python benchmarks/coverage.py
"""

import numpy as np

CASES, REPS = 20_000, 1000

for seeds in (2, 3, 5, 10, 20):
    generator = np.random.default_rng(seeds)
    held = 0
    for _ in range(CASES):
        scores = generator.standard_normal(seeds)
        means = scores[generator.integers(0, seeds, (REPS, seeds))].mean(1)
        low, high = np.percentile(means, [2.5, 97.5])
        held += low <= 0 <= high
    print(f"{seeds} seeds: {held / CASES:.1%} of {CASES} cases")
