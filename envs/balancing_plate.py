"""A ball on a plate that tilts about two axes, simulated with MuJoCo."""

from collections import deque

import gymnasium as gym
import numpy as np

from envs.mujoco_env import MujocoEnv

HINGES = 0.15  # m, height of the plate's hinges above the floor
THICKNESS = 0.02  # m, of the plate
RADIUS = 0.02  # m, of the ball
DROP = 0.20  # m, from which the ball falls onto the plate
TORQUE = 0.0003  # N m
# observation with the ball at rest in the centre of the plate
CENTRE = np.array([0, 0, HINGES + THICKNESS / 2 + RADIUS, 0, 0, 0, 0, 0], np.float32)
UNITS = np.array([0.05, 0.05, 0.05, 0.2, 0.2, 0.2, 0.05, 0.05], np.float32)  # m, m/s, rad
# torques about x and about y of the four actions
TORQUES = TORQUE * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])

XML = f"""
<mujoco>
  <option timestep="0.002" integrator="implicitfast" cone="elliptic"/>
  <default><geom solref=".004 1.5"/></default>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1=".55 .65 .75" rgb2=".2 .25 .3" width="64" height="64"/>
    <texture name="squares" type="2d" builtin="checker" rgb1=".25 .3 .35" rgb2=".3 .36 .42" width="64" height="64"/>
    <material name="floor" texture="squares" texrepeat="8 8"/>
    <texture name="grid" type="cube" builtin="flat" mark="edge" rgb1=".2 .5 .8" markrgb="1 1 1" width="64" height="64"/>
    <material name="plate" texture="grid"/>
  </asset>
  <worldbody>
    <light pos="-.3 -.5 1.5" dir=".2 .35 -1" type="directional"/>
    <camera name="view" pos="0 -.62 .52" xyaxes="1 0 0 0 .5 .87"/>
    <geom type="plane" size="1 1 .1" material="floor" contype="1" conaffinity="0"/>
    <body name="plate" pos="0 0 {HINGES}">
      <joint name="pitch" axis="1 0 0" damping=".0005"/>
      <joint name="roll" axis="0 1 0" damping=".0005"/>
      <geom type="box" size=".15 .15 {THICKNESS / 2}" mass=".3" material="plate" contype="1" conaffinity="0"/>
    </body>
    <body name="ball">
      <freejoint name="ball"/>
      <geom type="sphere" size="{RADIUS}" mass=".0007" rgba=".9 .3 .2 1" contype="0" conaffinity="1"/>
    </body>
  </worldbody>
  <actuator>
    <motor joint="pitch"/>
    <motor joint="roll"/>
  </actuator>
</mujoco>
"""


class BalancingPlate(MujocoEnv):
    """A foam ball falls onto a plate, which the agent has to tilt so that the ball stays on it.

    Plate: 0.3 x 0.3 x 0.02 m and 0.3 kg, on two hinges through its centre, 0.15 m above the floor: pitch about x and
        roll about y (rad). Both are right-handed: positive pitch raises the side with positive y, positive roll lowers
        the side with positive x.
    Ball: radius 0.02 m, 0.7 g, solid. It rolls without slipping.
    Observation: Box(8), float32: position of the ball's centre (x, y, z in m, z above the floor), its velocity (m/s),
        pitch, roll. The angular velocities of the plate are not observed. The bounds are never reached before an
        episode's end.
    Action: applied for frame_skip x 0.01 s (100 decisions per second). Discrete(4): a torque of 0.0003 N m about x (0
        positive, 1 negative) or about y (2 positive, 3 negative). With continuous=True, Box(-1, 1, (2,)): the torques
        about x and y in units of 0.0003 N m, clipped.
    Reward: frame_skip for each step, including the last one: 100 per second.
    Terminated: the ball's centre is lower than 0.1 m at the end of an action.
    Truncated: after 6000 steps, 60 s with a frame_skip of 1 (by gym.make's time limit).
    Initial state: the plate is level and at rest; the ball is at rest 0.20 m above it, x and y uniform in +-0.01 m.

    Difficulty: 0.044 m from the centre, the ball's weight exerts the same torque as the motor, and without control its
    distance from the centre doubles every 0.3 s. We chose the hinges' damping of 0.0005 N m s/rad because without it no
    linear memoryless policy on these 8 numbers is stable: the four roots of each axis sum to minus the damping divided
    by the plate's inertia. The contact is stiff and does not bounce (solref): the ball penetrates the plate by 2 mm at
    the impact and by 0.05 mm at rest.
    """

    def __init__(
        self, continuous: bool = False, frame_skip: int = 1, render_mode: str | None = None
    ):
        if frame_skip < 1:
            raise ValueError(f"frame_skip must be 1 or more, not {frame_skip}")
        super().__init__(XML, substeps=5 * frame_skip, render_mode=render_mode)
        self.continuous, self.frame_skip = continuous, frame_skip
        box = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = box if continuous else gym.spaces.Discrete(4)
        high = np.array([2, 2, 2, 10, 10, 10, np.pi, np.pi], dtype=np.float32)
        self.observation_space = gym.spaces.Box(-high, high)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        height = HINGES + THICKNESS / 2 + DROP + RADIUS
        ball = [*self.np_random.uniform(-0.01, 0.01, 2), height, 1, 0, 0, 0]
        self.restart(qpos=[0, 0, *ball], qvel=np.zeros(8))
        return self.observe(), {}

    def step(self, action):
        if not self.continuous and action not in self.action_space:
            raise ValueError(f"action {action!r} must be 0, 1, 2 or 3")
        self.advance(TORQUE * np.clip(action, -1, 1) if self.continuous else TORQUES[action])
        return self.observe(), float(self.frame_skip), bool(self.data.qpos[4] < 0.1), False, {}

    def observe(self) -> np.ndarray:
        qpos, qvel = self.data.qpos, self.data.qvel
        return np.concatenate([qpos[2:5], qvel[2:5], qpos[:2]], dtype=np.float32)


class StackedPlate(BalancingPlate):
    """BalancingPlate with four actions, for agents without memory and normalisation, such as dqn.py.

    Observation: Box(8 x frame_stack), float32: the last frame_stack observations of BalancingPlate, oldest first, from
        which the angular velocities of the plate follow. After a reset all of them are the first observation. Each
        observation is (observation - CENTRE) / UNITS, which is of order 1 while the ball is balanced.
    Truncated: after 1500 steps, 60 s with a frame_skip of 4 (by gym.make's time limit).
    Everything else is as in BalancingPlate with a frame_skip of 4 (25 decisions per second).
    """

    def __init__(self, frame_skip: int = 4, frame_stack: int = 3, render_mode: str | None = None):
        if frame_stack < 1:
            raise ValueError(f"frame_stack must be 1 or more, not {frame_stack}")
        super().__init__(frame_skip=frame_skip, render_mode=render_mode)
        low, high = (
            (bound - CENTRE) / UNITS
            for bound in (self.observation_space.low, self.observation_space.high)
        )
        self.observation_space = gym.spaces.Box(
            np.tile(low, frame_stack), np.tile(high, frame_stack), dtype=np.float32
        )
        self.seen = deque(maxlen=frame_stack)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self.seen.clear()
        return super().reset(seed=seed)

    def observe(self) -> np.ndarray:
        obs = (super().observe() - CENTRE) / UNITS
        self.seen.extend([obs] * max(1, self.seen.maxlen - len(self.seen)))
        return np.concatenate(self.seen)
