"""Base class of the MuJoCo environments in this package."""

import gymnasium as gym
import mujoco
import numpy as np

from envs.window import Window


class MujocoEnv(gym.Env):
    """A MuJoCo model with `substeps` physics steps for each action, rendered from the camera "view".

    A subclass passes the model's XML and substeps, and defines reset() and step().
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
        """Apply `control`, one number for each actuator, during the physics steps of one action."""
        self.data.ctrl[:] = control
        mujoco.mj_step(self.model, self.data, nstep=self.substeps)
        if self.render_mode == "human":
            self.render()

    def restart(self, qpos, qvel) -> None:
        """Begin an episode with these positions and velocities."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        mujoco.mj_forward(self.model, self.data)
        if self.render_mode == "human":
            self.render()

    def render(self) -> np.ndarray | None:
        """Render an image, (480, 640, 3) uint8, with render_mode="rgb_array".

        Without a display, set the environment variable MUJOCO_GL=egl or osmesa before Python starts.
        """
        if self.render_mode is None:
            return gym.logger.warn(
                "render() needs a render_mode; use gym.make(..., render_mode='rgb_array')"
            )
        try:
            self.renderer = self.renderer or mujoco.Renderer(self.model, 480, 640)
        except Exception as error:
            raise RuntimeError(
                "MuJoCo cannot render; without a display set MUJOCO_GL=egl or osmesa"
            ) from error
        # mj_step leaves the positions of the bodies one physics step behind.
        mujoco.mj_kinematics(self.model, self.data)
        self.renderer.update_scene(self.data, camera="view")
        image = self.renderer.render()
        return (
            image
            if self.render_mode == "rgb_array"
            else self.window.show(image, self.metadata["render_fps"])
        )

    def close(self) -> None:
        self.window.close()
        if self.renderer is not None:
            self.renderer.close()
            self.renderer = None
