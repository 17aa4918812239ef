"""A task whose actions have two components, of which most values are not allowed."""

import gymnasium as gym
import numpy as np


class Switchboard(gym.Env):
    """Connects a plug with a socket of the same colour. Only two plugs and two sockets can be used at a time.

    Observation: Box(2 * size), float32: for each plug, then for each socket, its colour, -1 or 1, or 0 if it cannot be
        used now. In each step one plug and one socket of each colour can be used, at random places.
    Action: MultiDiscrete([size, size]): plug and socket.
    Reward: 1 for two of the same colour; 0 for two colours, and for what cannot be used.
    Terminated: after `length` connections, or as soon as an action names what cannot be used.
    action_masks(): bool (2 * size): the plugs, then the sockets that can be used. With `masks` False there is no such
        method: the same task without them.

    The best return is `length`, which is 20. Random actions that are allowed have half of it. With size = 20, random
    actions without masks have (2 / 20)^2 = 0.01 as the probability of being allowed, so that nearly all episodes end
    after a step without a reward.
    """

    def __init__(
        self, render_mode: str | None = None, size: int = 20, length: int = 20, masks: bool = True
    ):
        if size < 2 or length < 1:
            raise ValueError(f"size {size} must be at least 2 and length {length} at least 1")
        if render_mode is not None:
            raise ValueError(f"render_mode {render_mode!r}: this task has no images; use None")
        self.render_mode = None
        self.size = size
        self.length = length
        if masks:
            self.action_masks = self.can_be_used
        self.observation_space = gym.spaces.Box(-1, 1, (2 * size,), np.float32)
        self.action_space = gym.spaces.MultiDiscrete([size, size])

    def can_be_used(self) -> np.ndarray:
        return self.colours.flatten() != 0

    def draw(self) -> np.ndarray:
        """Places of the colours -1 and 1 among the plugs and among the sockets; the observation."""
        self.colours = np.zeros((2, self.size), np.float32)
        for row in self.colours:
            row[self.np_random.choice(self.size, 2, replace=False)] = -1, 1
        return self.colours.flatten()

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.connections = 0
        return self.draw(), {}

    def step(self, action):
        if action not in self.action_space:
            raise ValueError(f"action {action!r} must be two numbers from 0 to {self.size - 1}")
        plug, socket = self.colours[0, action[0]], self.colours[1, action[1]]
        if plug == 0 or socket == 0:
            return self.colours.flatten(), 0.0, True, False, {}
        self.connections += 1
        reward = float(plug == socket)
        return self.draw(), reward, self.connections == self.length, False, {}
