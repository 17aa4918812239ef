"""Tasks that need memory: classic ones without velocities, and a cue to be recalled after 51 steps."""

import gymnasium as gym
import numpy as np


class PositionsOnly(gym.ObservationWrapper):
    """A task of Gymnasium that shows only the numbers `kept` of each observation, which are no velocities.

    CartPoleNoVel-v0: Box(2), float32: position of the cart (m) and angle of the pole (rad) of CartPole-v1.
    PendulumNoVel-v0: Box(2), float32: cosine and sine of the angle of Pendulum-v1.

    Actions, rewards, initial states, terminations and truncations are those of the task. A velocity follows from two
    observations, so a policy has to remember at least the observation before.
    """

    def __init__(self, env_id: str, kept: tuple[int, ...], render_mode: str | None = None):
        super().__init__(gym.make(env_id, render_mode=render_mode))
        self.kept = list(kept)
        space = self.env.observation_space
        self.observation_space = gym.spaces.Box(space.low[self.kept], space.high[self.kept])

    def observation(self, observation) -> np.ndarray:
        return observation[self.kept]


class RecallCue(gym.Env):
    """A cue at the start of a corridor says which way to turn at its end, where it is no longer seen.

    Observation: Box(2), float32: the cue, -1 or 1 in an episode's first observation and 0 in all others; 1 in the last
        observation, at the junction, and 0 in all others.
    Action: Discrete(2). At the junction 0 turns left and 1 right. In the corridor each action only leads to the next
        step.
    Reward: at the junction 1 for the turn that the cue asked for (-1: left, 1: right) and -1 for the other; else 0.
    Terminated: after the turn. With `length` = 50 observations of the corridor between cue and junction an episode has
        52 steps, and the cue has to be recalled 51 steps after it was seen.
    Initial state: both cues have probability 1/2.

    The best mean return is 1. Without memory it is 0 for every policy: the observation at the junction is the same for
    both cues, and nothing that an agent does in the corridor changes what it observes. Such a policy turns right with
    one probability p, whatever the cue was. With a cue for right its expected return is p - (1 - p) = 2 p - 1, with a
    cue for left 1 - 2 p, and the mean of both is 0.
    """

    def __init__(self, render_mode: str | None = None, length: int = 50):
        if length < 0:
            raise ValueError(f"length {length} must be at least 0")
        if render_mode is not None:
            raise ValueError(f"render_mode {render_mode!r}: this task has no images; use None")
        self.render_mode = None
        self.length = length
        self.observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.right = int(self.np_random.integers(2))
        self.steps_to_junction = self.length + 1
        cue = 2 * self.right - 1
        return np.array([cue, 0], np.float32), {}

    def step(self, action):
        if action not in self.action_space:
            raise ValueError(f"action {action!r} must be 0 or 1")
        if self.steps_to_junction == 0:
            reward = 1.0 if action == self.right else -1.0
            return np.zeros(2, np.float32), reward, True, False, {}
        self.steps_to_junction -= 1
        at_junction = self.steps_to_junction == 0
        return np.array([0, at_junction], np.float32), 0.0, False, False, {}
