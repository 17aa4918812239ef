"""Steps per second of the environments in envs/, and how well speeds can be read from CartPole's pictures.

    python benchmarks/studies/classic/env_speed.py    # both tables, one process, about a minute
    python benchmarks/studies/classic/env_speed.py --picture envs/environments.png    # MUJOCO_GL=egl without a display

One process on one core; a second is one of processor time, so that other work on the machine matters less. Random
actions drawn beforehand; resets are in the time and are not counted as steps. The peer of CartPolePixels is
CartPole-v1 drawn by Gymnasium (rgb_array), in the same round: two physics steps, one picture, grey, scaled to 84 x 84
by area, four of them stacked.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import cv2
import gymnasium as gym
import numpy as np
import tyro
from plainrl_tools.common import check_least, check_output

IDS = ("CartPolePixels-v0", "CartPoleEndless-v0", "PhysicsCartPole-v0", "BalancingPlate-v0")
IDS += ("BalancingPlateContinuous-v0",)
STATES = 2000


@dataclass
class Options:
    seconds: float = 2.0  # of each measurement
    repeats: int = 3  # rounds
    picture: Path | None = None  # only draw the environments, side by side, into this file


class Peer(gym.Wrapper):
    """CartPole-v1 seen through Gymnasium's own drawing."""

    def __init__(self):
        super().__init__(gym.make("CartPole-v1", render_mode="rgb_array"))

    def picture(self) -> np.ndarray:
        grey = cv2.cvtColor(self.env.render(), cv2.COLOR_RGB2GRAY)
        return cv2.resize(grey, (84, 84), interpolation=cv2.INTER_AREA)

    def reset(self, **kwargs):
        self.env.reset(**kwargs)
        self.frames = np.repeat(self.picture()[None], 4, axis=0)
        return self.frames, {}

    def step(self, action):
        for _ in range(2):
            _, reward, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                break
        self.frames = np.concatenate([self.frames[1:], self.picture()[None]])
        return self.frames, reward, terminated, truncated, info


def speed(env: gym.Env, seconds: float) -> float:
    """Steps per second, after a warm-up of a tenth of the time."""
    env.reset(seed=0), env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(1000)]
    for limit in (seconds / 10, seconds):
        steps, start = 0, time.process_time()
        while (taken := time.process_time() - start) < limit:
            for action in actions:
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
            steps += len(actions)
    env.close()
    return steps / taken


def lean(picture: np.ndarray, rows: np.ndarray) -> float:
    """Slope of the line through the centres of grey of these rows of a picture that is black but for the pole."""
    part = picture[rows].astype(float)
    return np.polyfit(rows, part @ np.arange(84) / part.sum(1), 1)[0]


def errors() -> dict[str, float]:
    """Error (root mean square, rad/s) of the pole's angular speed as read from two pictures that are 0.04 s apart, with
    the best factor from slope to angle; from STATES states drawn uniformly."""
    ours, peer = gym.make("envs:CartPolePixels-v0"), Peer()
    peer.reset()
    rng, slopes, truth = np.random.default_rng(0), ([], []), []
    for _ in range(STATES):
        state = rng.uniform([-2, -1, -0.18, -1], [2, 1, 0.18, 1])
        pairs = [], []
        for moment in (0.0, 0.04):
            now = state + moment * np.array([state[1], 0, state[3], 0])
            ours.unwrapped.physics.state = peer.unwrapped.state = now
            pairs[0].append(lean(ours.unwrapped.draw(), np.arange(15, 68)))
            pairs[1].append(lean(255 - peer.picture(), np.arange(39, 58)))
        truth.append(state[3])
        for differences, (before, after) in zip(slopes, pairs):
            differences.append((after - before) / 0.04)
    truth, result = np.array(truth), {}
    for name, differences in zip(
        ("CartPolePixels-v0", "CartPole-v1, drawn by Gymnasium"), np.array(slopes)
    ):
        result[name] = np.sqrt(
            np.mean(
                (truth - differences * (differences @ truth) / (differences @ differences)) ** 2
            )
        )
    return result


def draw(file: Path) -> None:
    pictures = []
    for env_id, steps in ((IDS[0], 3), (IDS[2], 5), (IDS[3], 70)):
        env = gym.make(f"envs:{env_id}", render_mode="rgb_array")
        env.reset(seed=1)
        for _ in range(steps):
            env.step(0)
        picture = env.render()
        pictures.append(
            cv2.resize(
                picture,
                (252 * picture.shape[1] // picture.shape[0], 252),
                interpolation=cv2.INTER_AREA,
            )
        )
        env.close()
    cv2.imwrite(str(file), cv2.cvtColor(np.hstack(pictures), cv2.COLOR_RGB2BGR))


def main(options: Options) -> None:
    check_least(1, options, "repeats")
    check_least(0.01, options, "seconds")
    check_output("--picture", options.picture, ".png", ".jpg")
    if options.picture:
        return draw(options.picture)
    sides = {env_id: lambda env_id=env_id: gym.make(f"envs:{env_id}") for env_id in IDS}
    sides["CartPole-v1, drawn by Gymnasium"] = Peer
    rounds = [
        {name: speed(make(), options.seconds) for name, make in sides.items()}
        for _ in range(options.repeats)
    ]
    print("| environment | steps/s, median (least-greatest) |\n| --- | --: |")
    for name in sides:
        figures = [figures[name] for figures in rounds]
        print(f"| {name} | {median(figures):,.0f} ({min(figures):,.0f}-{max(figures):,.0f}) |")
    *_, peer = sides
    print(
        f"\nCartPolePixels / peer: {median(figures[IDS[0]] / figures[peer] for figures in rounds):.1f}"
    )
    print(
        f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores\n\nError of the angular speed, rad/s:"
    )
    print("\n".join(f"{name}: {error:.4f}" for name, error in errors().items()))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
