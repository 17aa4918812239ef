"""The robot arm of Gymnasium's Pusher-v5 with a reward that comes once, at the end."""

import gymnasium as gym
import numpy as np
from gymnasium.envs.mujoco.pusher_v5 import PusherEnv

TORQUE = 2.0  # N m
NEAR = 0.1  # m


class ArmReach(PusherEnv):
    """An arm of seven joints, a cylinder on a table, and 1 for the step that takes the hand to it.

    Observation: Box(23), float32: the angles (rad) and speeds (rad/s) of the seven joints, then the positions (m) of
        the hand, of the cylinder and of Pusher-v5's goal, three numbers each. The bounds are never reached.
    Action: Box(-1, 1, (7,)): the joints' torques in units of 2 N m, clipped, held for 0.05 s.
    Reward: 1 for the step that terminates the episode, 0 for every other one. So the mean return of an evaluation is
        the share of its episodes that succeed.
    Terminated: the hand is less than 0.1 m from the cylinder, centre to centre.
    Truncated: after 100 steps (by gym.make's time limit).
    Start: Pusher-v5's. The hand is 0.41 to 0.84 m from the cylinder.

    Physics, model and start are Gymnasium's. Its own reward falls with the distance at every step and ends nothing.
    """

    def __init__(self, render_mode: str | None = None):
        super().__init__(render_mode=render_mode)
        self.action_space = gym.spaces.Box(-1, 1, (7,), np.float32)
        high = np.repeat([10, 1000, 20], [7, 7, 9]).astype(np.float32)
        self.observation_space = gym.spaces.Box(-high, high)

    def step(self, action):
        self.do_simulation(TORQUE * np.clip(action, -1, 1), self.frame_skip)
        if self.render_mode == "human":
            self.render()
        obs = self._get_obs()
        there = bool(np.linalg.norm(obs[17:20] - obs[14:17]) < NEAR)
        return obs, float(there), there, False, {}

    def _get_obs(self) -> np.ndarray:
        return super()._get_obs().astype(np.float32)
