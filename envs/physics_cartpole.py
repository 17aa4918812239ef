"""A cart with a pole, simulated with MuJoCo."""

import gymnasium as gym
import numpy as np

from envs.mujoco_env import MujocoEnv

FORCES = -50.0, 50.0  # N

XML = """
<mujoco>
  <option timestep="0.025" integrator="RK4"><flag contact="disable"/></option>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1=".55 .65 .75" rgb2=".2 .25 .3" width="64" height="64"/>
    <texture name="squares" type="2d" builtin="checker" rgb1=".25 .3 .35" rgb2=".3 .36 .42" width="64" height="64"/>
    <material name="squares" texture="squares" texrepeat="12 12"/>
  </asset>
  <worldbody>
    <light pos="0 -3 4" dir="0 .6 -1" type="directional"/>
    <geom type="plane" size="12 12 1" material="squares"/>
    <geom type="capsule" fromto="-10 0 .4 10 0 .4" size=".02" rgba=".6 .6 .6 1"/>
    <body name="cart" pos="0 0 .4">
      <camera name="view" mode="track" pos="0 -3 .7" xyaxes="1 0 0 0 .1 1"/>
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="box" size=".2 .12 .08" mass="5" rgba=".2 .5 .8 1"/>
      <body name="pole">
        <joint name="hinge" type="hinge" axis="0 1 0"/>
        <inertial pos="0 0 .5" mass=".5" diaginertia=".0416667 .0416667 .0001"/>
        <geom type="capsule" fromto="0 0 0 0 0 1" size=".03" rgba=".85 .6 .3 1"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slide"/></actuator>
</mujoco>
"""


class PhysicsCartPole(MujocoEnv):
    """A pole of 1 m and 0.5 kg is hinged on a cart of 5 kg, which slides on a rail without friction.

    Observation: Box(4), float32: position of the cart (m), its velocity (m/s), angle of the pole (rad, positive to the
        right), angular velocity (rad/s). The bounds are never reached before an episode's end.
    Action: Discrete(2). 0 pushes the cart with 50 N to the left, 1 to the right, for 0.05 s (20 decisions per second).
    Reward: 1 for each step, including the last one.
    Terminated: |position| > 10 m or |angle| > 0.2095 rad.
    Truncated: after 500 steps, 25 s (by gym.make's time limit).
    Initial state: all four numbers uniform in +-0.05.

    The masses and the force are five times those of CartPole-v1, so the motion is the same. Two things differ: there is
    an action every 0.05 s instead of every 0.02 s, and the integrator uses Runge-Kutta steps of 0.025 s instead of
    Euler steps of 0.02 s. The pole is a uniform thin rod.
    """

    def __init__(self, render_mode: str | None = None):
        super().__init__(XML, substeps=2, render_mode=render_mode)
        self.action_space = gym.spaces.Discrete(2)
        high = np.array([20, 40, 1, 20], dtype=np.float32)
        self.observation_space = gym.spaces.Box(-high, high)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        start = self.np_random.uniform(-0.05, 0.05, 4)
        self.restart(qpos=start[[0, 2]], qvel=start[[1, 3]])
        return self.observe(), {}

    def step(self, action):
        if action not in self.action_space:
            raise ValueError(f"action {action!r} must be 0 or 1")
        self.advance(FORCES[action])
        x, angle = self.data.qpos
        return self.observe(), 1.0, bool(abs(x) > 10 or abs(angle) > 0.2095), False, {}

    def observe(self) -> np.ndarray:
        (x, angle), (speed, angular_speed) = self.data.qpos, self.data.qvel
        return np.array([x, speed, angle, angular_speed], dtype=np.float32)
