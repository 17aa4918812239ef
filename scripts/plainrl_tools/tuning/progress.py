"""The progress of a trial of scripts/tune.py: its score so far, at points that are the same in every trial."""

import math
from pathlib import Path
from statistics import fmean

import numpy as np
import sweep

from plainrl_tools.common import read_json
from plainrl_tools.compare import aggregate
from plainrl_tools.results import CURVE, read_scalars

SCORE = "eval_return_mean"
PARTS = 4  # points of a run at which its trial may be pruned


def score_of(scores: list[float], statistic: str) -> float:
    """The score of a trial, from the normalised scores of its runs so far."""
    return float(aggregate(np.array(scores), statistic))


def mean_returns(jobs, scores: list[float], scales: dict) -> dict[str, float]:
    """Map env_ids to the mean evaluation return over the seeds."""
    means = {}
    for env_id, (low, high) in scales.items():
        own = [score for job, score in zip(jobs, scores) if job.args["env_id"] == env_id]
        means[env_id] = low + fmean(own) * (high - low)
    return means


def partial_returns(run: Path, total_timesteps: int) -> list[float]:
    """The mean training return in each completed part of a run, or NaN if no episode ended in it.

    The last part of a run is not included: its score is the evaluation.
    """
    try:
        scalars = read_scalars(run)
    except OSError:  # a run without a checkpoint, whose folder is being removed
        return []
    last = max((points[-1][0] for points in scalars.values() if points), default=0)
    parts = [[] for _ in range(min(PARTS - 1, last * PARTS // total_timesteps))]
    for step, _, value in scalars.get(CURVE, ()):
        part = step * PARTS // total_timesteps
        if part < len(parts):
            parts[part].append(value)
    return [fmean(values) if values else math.nan for values in parts]


def advance(jobs, scores: list[float], folder: Path, scales: dict, statistic: str) -> dict:
    """Map points to the score so far, from the first run that had not finished at the last call.

    The scores of runs that have finished since are appended to `scores`.
    """
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
