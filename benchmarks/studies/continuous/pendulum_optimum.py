"""The best return that any policy can have on Pendulum-v1: python benchmarks/studies/continuous/pendulum_optimum.py

Dynamic programming backward through the 200 steps of an episode, on a grid of angles and speeds, linear between its
points: the value of each state at each step, for the best of --actions torques. The policy that is greedy for these
values then plays Gymnasium's environment: its return is one that can be had, the values say that little more can.
"""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import tyro
from plainrl_tools.common import check_least

STEPS, DT, MAX_SPEED, MAX_TORQUE = 200, 0.05, 8.0, 2.0  # of Gymnasium's Pendulum-v1


@dataclass
class Args:
    angles: int = 300  # points of the grid in [-pi, pi)
    speeds: int = 321  # points of the grid in [-8, 8]
    actions: int = 21  # torques in [-2, 2]
    episodes: int = 2000  # of Gymnasium's environment, with seeds 0, 1, ...
    claim: float = -77.0  # how often does the mean of a few episodes reach it?


def step(angle, speed, torque):
    """Reward and next state of Pendulum-v1 (g 10, mass 1, length 1); arrays of one shape, angle in any turn."""
    wrapped = (angle + np.pi) % (2 * np.pi) - np.pi
    reward = -(wrapped**2 + 0.1 * speed**2 + 0.001 * torque**2)
    speed = speed + (15 * np.sin(angle) + 3 * torque) * DT
    speed = np.clip(speed, -MAX_SPEED, MAX_SPEED)
    return reward, angle + speed * DT, speed


def interpolate(values, angle, speed):
    """values (angles, speeds) at states of any shape: linear, round the circle in the angle."""
    angles, speeds = values.shape
    row = (angle + np.pi) / (2 * np.pi) * angles
    column = (speed + MAX_SPEED) / (2 * MAX_SPEED) * (speeds - 1)
    low, left = np.floor(row).astype(int), np.minimum(column.astype(int), speeds - 2)
    row, column = row - low, column - left
    low, high = low % angles, (low + 1) % angles
    lower = values[low, left] * (1 - column) + values[low, left + 1] * column
    upper = values[high, left] * (1 - column) + values[high, left + 1] * column
    return lower * (1 - row) + upper * row


def look_ahead(values, angle, speed, actions: int):
    """(n, actions): reward of each torque plus the value of where it leads, from states (n,)."""
    torque = np.linspace(-MAX_TORQUE, MAX_TORQUE, actions)
    reward, *following = step(angle[:, None], speed[:, None], torque)
    return reward + interpolate(values, *following)


def solve(args: Args) -> list:
    """Values (angles, speeds) with 200, 199, ... 0 steps to go."""
    angle = np.linspace(-np.pi, np.pi, args.angles, endpoint=False)
    grid = np.meshgrid(angle, np.linspace(-MAX_SPEED, MAX_SPEED, args.speeds), indexing="ij")
    states = [axis.ravel() for axis in grid]
    values = [np.zeros(grid[0].shape)]
    for _ in range(STEPS):
        best = look_ahead(values[0], *states, args.actions).max(1)
        values.insert(0, best.reshape(grid[0].shape))
    return values


def play(values: list, args: Args) -> tuple[np.ndarray, np.ndarray]:
    """Returns (episodes,) of the greedy policy in Gymnasium, and what the values say of the same starts."""
    torques = np.linspace(-MAX_TORQUE, MAX_TORQUE, args.actions)
    envs = gym.make_vec("Pendulum-v1", args.episodes, vectorization_mode="sync")
    obs, _ = envs.reset(seed=0)
    returns = np.zeros(args.episodes)
    for t in range(STEPS):
        angle, speed = np.arctan2(obs[:, 1], obs[:, 0]), obs[:, 2]
        if t == 0:
            expected = interpolate(values[0], angle, speed)
        best = look_ahead(values[t + 1], angle, speed, args.actions).argmax(1)
        obs, reward, *_ = envs.step(torques[best, None].astype(np.float32))
        returns += reward
    return returns, expected


def main(args: Args) -> None:
    check_least(2, args, "angles", "speeds")
    check_least(1, args, "actions", "episodes")
    returns, expected = play(solve(args), args)
    error = returns.std() / args.episodes**0.5
    print(
        f"played: mean {returns.mean():.1f} +- {error:.1f} (standard error), values: mean {expected.mean():.1f}"
    )
    print(
        "single episodes:",
        " ".join(f"{q} % {np.percentile(returns, q):.0f}" for q in (5, 25, 50, 75, 95)),
    )
    rng = np.random.default_rng(0)
    for few in (1, 5, 10, 100):
        means = rng.choice(returns, (100_000, few)).mean(1)
        print(
            f"mean of {few} episodes: {args.claim:.0f} or more in {(means >= args.claim).mean():.2%} of draws"
        )


if __name__ == "__main__":
    main(tyro.cli(Args))
