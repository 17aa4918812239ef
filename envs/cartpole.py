"""Gymnasium's CartPole with image observations, and without its time limit."""

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from envs.window import Window

SIZE = 84  # height and width of the image in pixels
AXLE = 70  # row of the axle, which is at the top of the cart, counted from the top of the image
POLE = 60  # pixels from the axle to the tip of an upright pole
POLE_WIDTH = 3  # pixels
CART_WIDTH, CART_HEIGHT = 0.4, 8  # metres, pixels
LINE_GREY, CART_GREY, POLE_GREY = 64, 128, 255


class CartPolePixels(gym.Env):
    """CartPole-v1 with grey images as observations. The physics is Gymnasium's, with steps of 0.02 s.

    Observation: Box(0, 255, (frame_stack, 84, 84), uint8): the images after the last `frame_stack` actions, newest
        last. After a reset all of them are the first image. The background is black, the cart grey, the pole white.
    Action: Discrete(2). 0 pushes the cart to the left, 1 to the right, with 10 N, for `frame_skip` physics steps.
    Reward: 1 for each physics step, including the last one. An action receives the sum over its physics steps.
    Terminated: the cart's centre is more than 2.4 m from the track's centre, or the pole leans by over 12 degrees.
    Truncated: after `max_steps` physics steps, also during an action. The best return is therefore 500 for every
        `frame_skip`, and returns with frame_skip=1 are comparable with those of CartPole-v1. max_steps=None sets no
        limit.
    Initial state: position, velocity, angle and angular velocity uniform in +-0.05 (m, m/s, rad, rad/s). The same seed
        gives the same state as in CartPole-v1. reset(options={"low": ..., "high": ...}) sets other bounds.

    Args:
        frame_skip: physics steps for each action; with 2 the agent acts 25 times per second. A good linear policy on
            the state balances the pole for 500 steps with a frame_skip of up to 4, as in Atari games, but not with 5.
        frame_stack: images in an observation. A single image contains no velocities.
        reference_line: draw a vertical line at the track's centre, behind cart and pole.
        width: metres of track between the left and right edge of the image. 4.8 shows the whole track. With less, the
            cart can leave the image without an end of the episode. The pole's height in the image does not change.
        max_steps: time limit in physics steps.

    Drawing: the grey value of a pixel is the covered share of its area, computed exactly, so motion of much less than a
    pixel is visible. With width 4.8 a pixel is 0.057 m, and 0.001 m changes the grey values along the pole by 4 or 5.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 25}

    def __init__(
        self,
        frame_skip: int = 2,
        frame_stack: int = 4,
        reference_line: bool = False,
        width: float = 4.8,
        max_steps: int | None = 500,
        render_mode: str | None = None,
    ):
        for name, count in (
            ("frame_skip", frame_skip),
            ("frame_stack", frame_stack),
            ("max_steps", 1 if max_steps is None else max_steps),
        ):
            if count != int(count) or count < 1:
                raise ValueError(f"{name} must be a positive integer, not {count}")
        if not width > 0:
            raise ValueError(f"width must be positive, not {width}")
        self.physics, self.frame_skip, self.max_steps = CartPoleEnv(), frame_skip, max_steps
        self.action_space = gym.spaces.Discrete(2)
        self.observation_space = gym.spaces.Box(0, 255, (frame_stack, SIZE, SIZE), np.uint8)
        self.render_mode, self.window = render_mode, Window()
        self.metadata = self.metadata | {"render_fps": 50 / frame_skip}
        self.scale = SIZE / width  # pixels per metre, horizontally
        self.columns = np.arange(SIZE, dtype=np.float32) + 0.5  # centres of the pixels
        # heights of the pole's rows above the axle
        self.heights = np.arange(POLE, dtype=np.float32)[::-1, None] + 0.5
        self.ground = np.zeros((SIZE, SIZE), dtype=np.float32)
        if reference_line:
            self.ground[:, SIZE // 2 - 1 : SIZE // 2 + 1] = LINE_GREY
        self.frames = np.zeros(self.observation_space.shape, dtype=np.uint8)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.physics.np_random = self.np_random
        self.physics.reset(options=options)
        self.steps = 0
        self.frames[:] = self.draw()
        if self.render_mode == "human":
            self.render()
        return self.frames.copy(), {}

    def step(self, action):
        total, terminated, truncated = 0.0, False, False
        for _ in range(self.frame_skip):
            _, reward, terminated, _, _ = self.physics.step(action)
            total, self.steps = total + reward, self.steps + 1
            truncated = self.steps == self.max_steps
            if terminated or truncated:
                break
        self.frames[:-1] = self.frames[1:]
        self.frames[-1] = self.draw()
        if self.render_mode == "human":
            self.render()
        return self.frames.copy(), total, terminated, truncated, {}

    def draw(self) -> np.ndarray:
        """(84, 84) uint8. Each row of pixels is cut by an object of width w around c; a pixel that begins at p is
        covered by clip(w / 2 + 1 / 2 - |p + 1 / 2 - c|, 0, 1), where w >= 1."""
        x, _, angle, _ = self.physics.state
        centre, image = SIZE / 2 + x * self.scale, self.ground.copy()
        # centre of the pole in each of its rows, (60, 1)
        axis = centre + self.heights * (np.tan(angle) * self.scale / POLE)
        pole = (POLE_WIDTH / 2 + 0.5 - np.abs(self.columns - axis.astype(np.float32))).clip(0, 1)
        pole *= (POLE * np.cos(angle) + 0.5 - self.heights).clip(0, 1)  # cut off above the tip
        cart = (CART_WIDTH * self.scale / 2 + 0.5 - np.abs(self.columns - centre)).clip(0, 1)
        for part, cover, grey in (
            (image[AXLE - POLE : AXLE], pole, POLE_GREY),
            (image[AXLE : AXLE + CART_HEIGHT], cart, CART_GREY),
        ):
            part += cover * (grey - part)
        return (image + 0.5).astype(np.uint8)

    def render(self) -> np.ndarray | None:
        """The newest image, enlarged five times: (420, 420, 3) uint8 with render_mode="rgb_array"."""
        if self.render_mode is None:
            return gym.logger.warn(
                "render() needs a render_mode; use gym.make(..., render_mode='rgb_array')"
            )
        image = np.repeat(self.frames[-1].repeat(5, 0).repeat(5, 1)[:, :, None], 3, axis=2)
        return (
            image
            if self.render_mode == "rgb_array"
            else self.window.show(image, self.metadata["render_fps"])
        )

    def close(self) -> None:
        self.window.close()


class CartPoleEndless(CartPoleEnv):
    """CartPole-v1 without its time limit: an episode ends only when the pole falls or the cart leaves the track.

    Observation: Box(4), float32: position (m), velocity (m/s), angle (rad), angular velocity (rad/s). The velocities
        have no bounds in CartPole-v1 and the bounds 20 m/s and 10 rad/s here. From a usual initial state, an episode
        never exceeds half of these bounds.
    Action: Discrete(2): 10 N to the left or to the right.
    Reward: 1 for each step.
    Terminated: |position| > 2.4 m or |angle| > 12 degrees.
    Truncated: never.
    """

    def __init__(self, render_mode: str | None = None):
        super().__init__(render_mode=render_mode)
        high = np.array([4.8, 20, 2 * self.theta_threshold_radians, 10], dtype=np.float32)
        self.observation_space = gym.spaces.Box(-high, high)
