"""Variants of CartPole in pictures, each with one thing changed, for docs/pixels.md. From the repository's root:

    PYTHONPATH=. python algos/ppo_pixels.py --env-id envs.cartpole_variants:Skip4-v0

| id | what is different from envs:CartPolePixels-v0 |
|---|---|
| Skip1-v0, Skip4-v0 | an action lasts 1 or 4 physics steps, not 2 |
| Line-v0, Skip4Line-v0 | a vertical line is drawn at the track's centre; the second also lasts 4 steps |
| Stack1-v0 | one picture in place of four: no speed can be seen |
| Whole-v0 | pixels are of one object or the other, never in between: motion below a pixel cannot be seen |
| Rendered4-v0 | Gymnasium's own rendering, scaled to 84 x 84 by the algorithm's file; an action lasts 4 steps |
| Averaged4-v0 | the same, and an action is paid the mean of its 4 rewards, not their sum: the most is 125 |
"""

import gymnasium as gym
import numpy as np

from envs.cartpole import CART_GREY, POLE_GREY, CartPolePixels


class Whole(CartPolePixels):
    def draw(self) -> np.ndarray:
        levels = np.array([0, CART_GREY, POLE_GREY], np.uint8)
        return levels[np.abs(super().draw()[..., None] - levels.astype(int)).argmin(-1)]


class Skip(gym.Wrapper):
    """Plays each action `skip` times and pays the sum of the rewards, or, with `average`, their mean."""

    def __init__(self, render_mode: str | None = None, skip: int = 4, average: bool = False):
        super().__init__(gym.make("CartPole-v1", render_mode=render_mode))
        self.skip, self.average = skip, average

    def step(self, action):
        rewards, terminated, truncated = [], False, False
        while len(rewards) < self.skip and not (terminated or truncated):
            obs, reward, terminated, truncated, info = self.env.step(action)
            rewards.append(reward)
        return (
            obs,
            float(np.mean(rewards) if self.average else np.sum(rewards)),
            terminated,
            truncated,
            info,
        )


for name, entry_point, kwargs in (
    ("Skip1", CartPolePixels, {"frame_skip": 1}),
    ("Skip4", CartPolePixels, {"frame_skip": 4}),
    ("Line", CartPolePixels, {"reference_line": True}),
    ("Skip4Line", CartPolePixels, {"frame_skip": 4, "reference_line": True}),
    ("Stack1", CartPolePixels, {"frame_stack": 1}),
    ("Whole", Whole, {}),
    ("Rendered4", Skip, {}),
    ("Averaged4", Skip, {"average": True}),
):
    gym.register(f"{name}-v0", entry_point=entry_point, kwargs=kwargs)
