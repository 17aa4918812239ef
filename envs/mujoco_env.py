"""What the MuJoCo environments here share."""

import gymnasium as gym
import mujoco
import numpy as np

from envs.window import Window


class MujocoEnv(gym.Env):
    """A MuJoCo model, `substeps` physics steps for each action, and its pictures from the camera "view".

    A subclass gives the model's XML and substeps, and defines reset() and step().
    """

    metadata = {"render_modes": ["human", "rgb_array"]}

    def __init__(self, xml: str, substeps: int, render_mode: str | None = None):
        self.model = mujoco.MjModel.from_xml_string(xml)
        self.data, self.substeps = mujoco.MjData(self.model), substeps
        self.render_mode, self.window, self.renderer = render_mode, Window(), None
        self.metadata = self.metadata | {
            "render_fps": round(1 / (self.model.opt.timestep * substeps))
        }

    def advance(self, control) -> None:
        """Hold `control`, one number for each actuator, for the physics steps of one action."""
        self.data.ctrl[:] = control
        mujoco.mj_step(self.model, self.data, nstep=self.substeps)
        if self.render_mode == "human":
            self.render()

    def restart(self, qpos, qvel) -> None:
        """Begin an episode from these positions and speeds."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        mujoco.mj_forward(self.model, self.data)
        if self.render_mode == "human":
            self.render()

    def render(self) -> np.ndarray | None:
        """(480, 640, 3) uint8 under rgb_array. Without a display this needs MUJOCO_GL=egl or osmesa from the start."""
        if self.render_mode is None:
            return gym.logger.warn(
                "render() shows nothing without a render_mode: gym.make(..., render_mode=...)"
            )
        try:
            self.renderer = self.renderer or mujoco.Renderer(self.model, 480, 640)
        except Exception as error:
            raise RuntimeError(
                "MuJoCo cannot draw; without a display set MUJOCO_GL=egl or osmesa"
            ) from error
        mujoco.mj_kinematics(
            self.model, self.data
        )  # mj_step leaves the bodies' places one physics step behind
        self.renderer.update_scene(self.data, camera="view")
        picture = self.renderer.render()
        return (
            picture
            if self.render_mode == "rgb_array"
            else self.window.show(picture, self.metadata["render_fps"])
        )

    def close(self) -> None:
        self.window.close()
        if self.renderer is not None:
            self.renderer.close()
            self.renderer = None
