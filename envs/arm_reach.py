"""The robot arm of Gymnasium's Pusher-v5 with a sparse reward: 1 when the hand reaches the cylinder."""

import gymnasium as gym
import numpy as np
from gymnasium.envs.mujoco.pusher_v5 import PusherEnv

TORQUE = 2.0  # N m
NEAR = 0.1  # m


class ArmReach(PusherEnv):
    """An arm with seven joints has to move its hand to a cylinder on a table.

    Observation: Box(23), float32: the angles (rad) and angular velocities (rad/s) of the seven joints, then the
        positions (m) of the hand, of the cylinder and of Pusher-v5's goal, three numbers each. The bounds are never
        reached.
    Action: Box(-1, 1, (7,)): the torques of the joints in units of 2 N m, clipped and applied for 0.05 s.
    Reward: 1 for the step that terminates the episode, 0 for all others. The mean return of an evaluation is therefore
        the success rate.
    Terminated: the distance between the centres of the hand and the cylinder is less than 0.1 m.
    Truncated: after 100 steps (by gym.make's time limit).
    Initial state: as in Pusher-v5. The hand is 0.41 to 0.84 m from the cylinder.

    The physics, the model and the initial state are those of Gymnasium's Pusher-v5. Pusher-v5 has a dense reward, which
    decreases with the distance, and no termination.
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
        reached = bool(np.linalg.norm(obs[17:20] - obs[14:17]) < NEAR)
        return obs, float(reached), reached, False, {}

    def _get_obs(self) -> np.ndarray:
        return super()._get_obs().astype(np.float32)
