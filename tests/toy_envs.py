"""Environments whose every number is known beforehand; importing this registers them."""

import os
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
from probe import Aim, Constant, Endless, Shown, TwoSteps  # noqa: E402


def box(size: int, bound: float = np.inf) -> gym.spaces.Box:
    return gym.spaces.Box(-bound, bound, (size,), np.float32)


class Counter(gym.Env):
    """Observation (id, steps taken, episode), id being the seed's parity; step s of an episode pays s + id.
    Episode k is 3, 2, 4, 3, 2, 4, ... + id steps long; even ones terminate, odd ones are truncated."""

    observation_space, action_space = box(3), box(1, 1.0)
    LENGTHS = 3, 2, 4
    rows: list = []  # (observation, action, reward) of every step of every instance since the list was cleared

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.id, self.episode = seed % 2, -1
        self.steps, self.episode = 0, self.episode + 1
        return self.observe(), {}

    def observe(self):
        return np.array([self.id, self.steps, self.episode], dtype=np.float32)

    def length(self):
        return self.LENGTHS[self.episode % 3] + self.id

    def step(self, action):
        before, self.steps = self.observe(), self.steps + 1
        reward = float(self.steps + self.id)
        Counter.rows.append((before, np.array(action), reward))
        done = self.steps == self.length()
        return self.observe(), reward, done and self.episode % 2 == 0, done and self.episode % 2 == 1, {}


class Uneven(Counter):
    """Episodes of 2 steps, which return 3, where the id is 0, and of 12 steps, which return 90, where it is 1."""

    def length(self):
        return 2 + 10 * self.id


class Broken(gym.Env):
    """Pays 1; the step number `at` of each instance returns `value` as its reward or as its observation."""

    observation_space, action_space = box(1), box(1, 1.0)

    def __init__(self, what: str, value: float = np.nan, at: int = 20):
        self.what, self.value, self.at, self.steps = what, value, at, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        self.steps += 1
        broken = {self.what: self.value} if self.steps == self.at else {}
        observation = np.full(1, broken.get("observation", 0.5), dtype=np.float32)
        return observation, broken.get("reward", 1.0), False, self.steps % 7 == 0, {}


class Signal(Counter):
    """Sends SIGNAL_NUMBER to its own process after SIGNAL_STEP steps of training: at once, or, with SIGNAL_WHERE set
    to evaluate, in the next evaluation."""

    trained, sent = 0, False

    def step(self, action):
        frame, callers = sys._getframe(), set()
        while frame := frame.f_back:
            callers.add(frame.f_code.co_name)
        where = "evaluate" if "evaluate" in callers else "train"
        Signal.trained += where == "train"
        due = Signal.trained >= int(os.environ["SIGNAL_STEP"]) and where == os.environ["SIGNAL_WHERE"]
        if due and not Signal.sent:
            Signal.sent = True
            os.kill(os.getpid(), int(os.environ["SIGNAL_NUMBER"]))
        return super().step(action)


class Unbounded(Constant):
    """Actions without bounds."""

    action_space = box(1)


for cls in (Counter, Uneven, Signal, Constant, Shown, TwoSteps, Aim, Endless, Unbounded):
    if f"{cls.__name__}-v0" not in gym.registry:
        gym.register(f"{cls.__name__}-v0", entry_point=cls, disable_env_checker=True)
for name, kwargs in {
    "NanReward": {"what": "reward"},
    "NanObservation": {"what": "observation"},
    "InfiniteReward": {"what": "reward", "value": np.inf},
}.items():
    if f"{name}-v0" not in gym.registry:
        gym.register(f"{name}-v0", entry_point=Broken, kwargs=kwargs, disable_env_checker=True)
