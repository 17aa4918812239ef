"""The robot arm of Gymnasium's Pusher-v5 with a reward that comes once, at the end."""

import gymnasium as gym
import numpy as np
from gymnasium.envs.mujoco.pusher_v5 import PusherEnv

TORQUE = 2.0  # N m
NEAR = 0.1  # m
DISC = 0.08  # m, the radius of the goal that is drawn


class SparseArm(PusherEnv):
    """An arm of seven joints, a cylinder on a table, and 1 for the step that does what was asked.

    Observation: Box(23), float32: the angles (rad) and speeds (rad/s) of the seven joints, then the positions (m)
        of the hand, the cylinder and the goal, three numbers each. The bounds are never reached.
    Action: Box(-1, 1, (7,)): the joints' torques in units of 2 N m, clipped, held for 0.05 s.
    Reward: 1 for the step that terminates the episode, 0 for every other one. So the mean return of an evaluation is
        the share of its episodes that succeed.
    Terminated: task "reach": the hand is less than 0.1 m from the cylinder, centre to centre, where its two fingers are
        beside it. Task "push": the cylinder's centre is over the goal, a disc of 0.08 m radius.
    Truncated: after 100 steps (by gym.make's time limit).
    Start: Pusher-v5's. The cylinder is 0.17 to 0.36 m from the goal, the hand 0.41 to 0.84 m from the cylinder.

    Physics, model and start are Gymnasium's; its reward falls with both distances at every step and never ends an
    episode.
    """

    def __init__(self, task: str, render_mode: str | None = None):
        if task not in ("reach", "push"):
            raise ValueError(f"task must be reach or push, not {task}")
        super().__init__(render_mode=render_mode)
        self.task = task
        self.action_space = gym.spaces.Box(-1, 1, (7,), np.float32)
        high = np.repeat([10, 1000, 20], [7, 7, 9]).astype(np.float32)
        self.observation_space = gym.spaces.Box(-high, high)

    def step(self, action):
        self.do_simulation(TORQUE * np.clip(action, -1, 1), self.frame_skip)
        if self.render_mode == "human":
            self.render()
        obs = self._get_obs()
        hand, cylinder, goal = obs[14:].reshape(3, 3)
        if self.task == "reach":
            succeeded = bool(np.linalg.norm(cylinder - hand) < NEAR)
        else:
            succeeded = bool(np.linalg.norm((cylinder - goal)[:2]) < DISC)
        return obs, float(succeeded), succeeded, False, {}

    def _get_obs(self) -> np.ndarray:
        return super()._get_obs().astype(np.float32)
