"""How far a trial of scripts/tune.py is: its score so far, at points that are the same in every trial."""

import math
from pathlib import Path
from statistics import fmean

import numpy as np
import sweep
from common import read_json
from compare import aggregate
from results import CURVE, read_scalars

SCORE = "eval_return_mean"
PARTS = 4  # points of a run at which its trial may be pruned


def score_of(scores: list[float], statistic: str) -> float:
    """Of the normalised scores of a trial's runs, or of those there are so far."""
    return float(aggregate(np.array(scores), statistic))


def mean_returns(jobs, scores: list[float], scales: dict) -> dict[str, float]:
    """env_id -> the mean evaluation over the seeds."""
    means = {}
    for env_id, (low, high) in scales.items():
        mine = [score for job, score in zip(jobs, scores) if job.args["env_id"] == env_id]
        means[env_id] = low + fmean(mine) * (high - low)
    return means


def partial_returns(run: Path, total_timesteps: int) -> list[float]:
    """The mean training return in each part of a run that is over, but for the last part, which ends in the evaluation;
    NaN where no episode ended."""
    try:
        scalars = read_scalars(run)
    except OSError:  # a leftover, which is being removed
        return []
    last = max((points[-1][0] for points in scalars.values() if points), default=0)
    parts = [[] for _ in range(min(PARTS - 1, last * PARTS // total_timesteps))]
    for step, _, value in scalars.get(CURVE, ()):
        place = step * PARTS // total_timesteps
        if place < len(parts):
            parts[place].append(value)
    return [fmean(values) if values else math.nan for values in parts]


def advance(jobs, scores: list[float], folder: Path, scales: dict, statistic: str) -> dict:
    """point -> score so far, from the run that was not over at the last look on. What is over goes to `scores`."""
    points, runs = {}, sweep.read_runs(folder)

    def add(point: int, values: list[float]) -> None:
        value = score_of(values, statistic)
        if math.isfinite(value):
            points[point] = value

    for job in jobs[len(scores) :]:
        low, high = scales[job.args["env_id"]]
        found = sweep.find(job, runs)
        first = len(scores) * PARTS
        for run in (found["done"] + found["half"] + found["empty"])[:1]:
            total = job.args.get("total_timesteps", 0)
            returns = partial_returns(run, total) if total else []
            for part, value in enumerate(returns, 1):
                add(first + part, [*scores, (value - low) / (high - low)])
        if not found["done"]:
            break
        value = read_json(found["done"][0] / "summary.json")[SCORE]
        scores.append((value - low) / (high - low))
        add(first + PARTS, scores)
    return points
