"""Gymnasium's CartPole seen as pictures, and without its time limit."""

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from envs.window import Window

SIZE = 84  # pixels on each side of the picture
AXLE = 70  # row of the axle, at the top of the cart, counted from the picture's top
POLE = 60  # pixels from the axle to the tip of an upright pole
POLE_WIDTH = 3  # pixels
CART_WIDTH, CART_HEIGHT = 0.4, 8  # metres, pixels
LINE_GREY, CART_GREY, POLE_GREY = 64, 128, 255


class CartPolePixels(gym.Env):
    """CartPole-v1 seen as grey pictures; the physics is Gymnasium's own, with steps of 0.02 s.

    Observation: Box(0, 255, (frame_stack, 84, 84), uint8), the pictures after the last `frame_stack` actions, newest
        last. After a reset all of them are the first picture. Black ground, grey cart, white pole.
    Action: Discrete(2). 0 pushes the cart to the left, 1 to the right, with 10 N, for `frame_skip` physics steps.
    Reward: 1 for each physics step, also for the one that ends the episode; an action gets the sum of its steps.
    Terminated: the cart's centre is beyond 2.4 m, or the pole leans by more than 12 degrees.
    Truncated: after `max_steps` physics steps, if need be within an action. So the best return is 500 at any
        `frame_skip`, and one at frame_skip=1 compares with CartPole-v1's. max_steps=None sets no limit.
    Start: position, speed, angle and angular speed uniform in +-0.05 (m, m/s, rad, rad/s), as in CartPole-v1: the
        same seed starts from the same state. reset(options={"low": ..., "high": ...}) sets other bounds.

    Args:
        frame_skip: physics steps for each action; at 2 the agent decides 25 times a second. A good linear policy that
            sees the state holds 500 steps at up to 4, as in Atari games, and no longer at 5.
        frame_stack: pictures in an observation; from one alone no speed can be told.
        reference_line: draw a vertical line at the track's centre, behind cart and pole.
        width: metres of track from the picture's left edge to its right one. 4.8 shows all of it; with less, the cart
            can leave the picture and the episode goes on. The pole's height on the picture does not depend on it.
        max_steps: time limit in physics steps.

    How it is drawn: a pixel's grey is the share of it that is covered, computed and not sampled, so that motion far
    below a pixel is seen: at width 4.8 a pixel is 0.057 m, and 0.001 m changes the greys along the pole by 4 or 5.
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
            ("max_steps", max_steps or 1),
        ):
            if count != int(count) or count < 1:
                raise ValueError(f"{name} must be a positive whole number, not {count}")
        if not width > 0:
            raise ValueError(f"width must be positive, not {width}")
        self.physics, self.frame_skip, self.max_steps = CartPoleEnv(), frame_skip, max_steps
        self.action_space = gym.spaces.Discrete(2)
        self.observation_space = gym.spaces.Box(0, 255, (frame_stack, SIZE, SIZE), np.uint8)
        self.render_mode, self.window = render_mode, Window()
        self.metadata = self.metadata | {"render_fps": 50 / frame_skip}
        self.scale = SIZE / width  # pixels per metre, across
        self.columns = np.arange(SIZE, dtype=np.float32) + 0.5  # centres of the pixels
        self.heights = (
            np.arange(POLE, dtype=np.float32)[::-1, None] + 0.5
        )  # of the pole's rows above the axle
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
        centre, picture = SIZE / 2 + x * self.scale, self.ground.copy()
        axis = centre + self.heights * (
            np.tan(angle) * self.scale / POLE
        )  # of the pole in each of its rows, (60, 1)
        pole = (POLE_WIDTH / 2 + 0.5 - np.abs(self.columns - axis.astype(np.float32))).clip(0, 1)
        pole *= (POLE * np.cos(angle) + 0.5 - self.heights).clip(0, 1)  # up to the tip
        cart = (CART_WIDTH * self.scale / 2 + 0.5 - np.abs(self.columns - centre)).clip(0, 1)
        for part, cover, grey in (
            (picture[AXLE - POLE : AXLE], pole, POLE_GREY),
            (picture[AXLE : AXLE + CART_HEIGHT], cart, CART_GREY),
        ):
            part += cover * (grey - part)
        return (picture + 0.5).astype(np.uint8)

    def render(self) -> np.ndarray | None:
        """The newest picture, five times as large: (420, 420, 3) uint8 under rgb_array."""
        if self.render_mode is None:
            return gym.logger.warn(
                "render() shows nothing without a render_mode: gym.make(..., render_mode=...)"
            )
        picture = np.repeat(self.frames[-1].repeat(5, 0).repeat(5, 1)[:, :, None], 3, axis=2)
        return (
            picture
            if self.render_mode == "rgb_array"
            else self.window.show(picture, self.metadata["render_fps"])
        )

    def close(self) -> None:
        self.window.close()


class CartPoleEndless(CartPoleEnv):
    """CartPole-v1 without its limit of 500 steps: an episode ends only when the pole falls or the cart leaves.

    Observation: Box(4), float32: position (m), speed (m/s), angle (rad), angular speed (rad/s). CartPole-v1's speeds
        have no bounds; here they are 20 m/s and 10 rad/s. Within the track and 12 degrees no push can lead beyond
        half of that, from a start in the usual range.
    Action: Discrete(2), 10 N to the left or to the right. Reward: 1 a step.
    Terminated: |position| > 2.4 m or |angle| > 12 degrees. Never truncated.
    """

    def __init__(self, render_mode: str | None = None):
        super().__init__(render_mode=render_mode)
        high = np.array([4.8, 20, 2 * self.theta_threshold_radians, 10], dtype=np.float32)
        self.observation_space = gym.spaces.Box(-high, high)
