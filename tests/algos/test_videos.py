"""--capture-video: what can be recorded is, and what cannot is refused at the start."""

import functools
import weakref
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import toy_envs
from conftest import (
    BOXES,
    CONTINUOUS,
    PIXELS,
    VECTORS,
    every_of,
    files,
    load,
    longer,
    run_folder,
    that_open,
    tiny,
    toy,
)
from test_bad_input import hide, refused


class Filmed(toy_envs.Counter):
    """Renders a frame after every reset, and another one after every step."""

    def __init__(self, first, other, metadata, render_mode=None):
        self.frames, self.render_mode = (first, other), render_mode
        self.metadata = {"render_modes": ["rgb_array"], **metadata}
        self.id, self.episode = 0, -1  # AddRenderObservation resets without a seed

    def render(self):
        return self.frames[min(self.steps, 1)]


def frame(*shape: int, dtype=np.uint8) -> np.ndarray:
    return np.ones(shape, dtype)


def film(algo, registered, first, other=None, **metadata) -> str:
    """The id of such an environment, with the spaces that the file takes."""

    def make(render_mode=None):
        env = Filmed(first, first if other is None else other, metadata, render_mode)
        if algo.__name__ in BOXES:
            return env
        env = toy_envs.WithChoices(env)
        return toy_envs.InPictures(env) if algo.__name__ in PIXELS else env

    return registered(f"Filmed{len(gym.registry)}-v0", make)


@pytest.mark.parametrize("name", that_open(VECTORS))
def test_video_is_tried_at_the_start(name, tmp_path, registered):
    """Would break: a run that trains to its end and then fails to record."""
    algo = load(name)
    refused(algo, tmp_path, "--capture-video", env_id=toy(algo), capture_video=True)

    with pytest.raises(SystemExit, match="--capture-video: only EnvPool"):
        algo.check_video(tiny(algo, tmp_path), "envpool")


class InGrey(gym.Wrapper):
    def render(self):
        return self.env.render()[..., 0]


@pytest.mark.parametrize("name", that_open([*VECTORS, *PIXELS]))
def test_video_of_frames_that_cannot_be_encoded(name, tmp_path, registered):
    """Would break: a video of black frames, or a traceback of MoviePy after the whole training."""
    algo = load(name)
    rgb = frame(40, 60, 3)
    bad = functools.partial(refused, algo, tmp_path, "--capture-video", capture_video=True)
    bad("uint8", "(40, 60)", env_id=film(algo, registered, frame(40, 60)))
    bad("uint8", "float64", env_id=film(algo, registered, frame(40, 60, 3, dtype=float)))
    bad("one size", "(42, 60, 3)", env_id=film(algo, registered, rgb, frame(42, 60, 3)))
    bad("rgb_array", env_id=film(algo, registered, rgb, "text"))
    for fps in (None, 0):
        bad("render_fps", env_id=film(algo, registered, rgb, render_fps=fps))

    backend = [] if name in PIXELS else ["gymnasium"]
    for good in (rgb, frame(40, 60, 4)):  # without render_fps Gymnasium records 30 frames a second
        algo.check_video(tiny(algo, tmp_path, env_id=film(algo, registered, good)), *backend)
    algo.WRAPPERS = (InGrey,)
    bad("(40, 60)", env_id=film(algo, registered, rgb))


# One file for each version of the phase Evaluate of train()
EVALUATING = ["ppo_continuous", "ppo_continuous_seeds", "sac_continuous", "dqn"]


class Camera(Filmed):
    closed = False

    def close(self):
        self.closed = True


@pytest.mark.parametrize("name", [*EVALUATING, *PIXELS])
def test_old_renderers_are_gone(name, tmp_path, registered, monkeypatch):
    """Would break: black videos of MuJoCo from the second evaluation on. The renderers of the first one
    were freed when those of the second one existed, and freed the frames of these."""
    algo = load(name)
    cameras = weakref.WeakSet()

    def make(render_mode=None):
        env = Camera(frame(16, 16, 3), frame(16, 16, 3), {}, render_mode)
        cameras.add(env)
        if name in BOXES:
            return env
        env = toy_envs.WithChoices(env)
        return toy_envs.InPictures(env) if name in PIXELS else env

    make_envs = algo.make_envs
    left = []  # for each evaluation, whether the environments of an earlier one exist

    def watched(*args, **kwargs):
        made = make_envs(*args, **kwargs)
        if any(isinstance(arg, Path) for arg in args):
            left.append(any(camera.closed for camera in cameras))
        return made

    monkeypatch.setattr(algo, "make_envs", watched)
    env_id = registered("Camera-v0", make)
    factor, flags = longer(algo, total_timesteps=32, eval_frequency=16)
    algo.train(tiny(algo, tmp_path, env_id=env_id, capture_video=True, **flags))
    assert len(left) > 1 and not any(left)


@pytest.mark.parametrize("name", ["ppo_continuous", "dqn"])
def test_machines_that_cannot_record(name, tmp_path, registered, monkeypatch):
    """Would break: a run that trains to its end before it says that it cannot record."""

    class NoDisplay(toy_envs.Counter):
        metadata = {"render_modes": ["rgb_array"]}
        render_mode = "rgb_array"

        def render(self):
            raise OSError("no display")

    algo = load(name)

    def make(render_mode=None):
        return NoDisplay() if name in CONTINUOUS else toy_envs.WithChoices(NoDisplay())

    env_id = registered("NoDisplay-v0", make)
    refused(algo, tmp_path, "--capture-video", "no display", env_id=env_id, capture_video=True)
    hide(monkeypatch, "moviepy")
    algo = load(name)
    env_id = "Pendulum-v1" if name in CONTINUOUS else "CartPole-v1"
    refused(algo, tmp_path, "pip install moviepy", env_id=env_id, capture_video=True)


@files("ppo_atari", "dqn_atari")
def test_videos_of_atari(atari, tmp_path):
    """Would break: --capture-video without pictures, in grey, or of more than three games."""
    imageio = pytest.importorskip("imageio.v3")
    flags = {"env_id": "ShortBreakout-v4", "capture_video": True, "eval_episodes": 4}
    flags |= {"num_envs": 2, "eval_max_steps": 20}
    atari.train(tiny(atari, tmp_path, **flags))
    films = sorted((run_folder(tmp_path) / "videos").rglob("*.mp4"))
    pictures = [imageio.imread(film) for film in films]
    assert [len(film) for film in pictures] == [20] * 3
    assert all(film.max() > 100 and film[0].shape[-1] == 3 for film in pictures)


@every_of("ppo_continuous", "ppo_pixels")
def test_videos(every, tmp_path):
    """The whole episode: its first picture and one for each step. Would break: --capture-video that
    records nothing, or another episode."""
    imageio = pytest.importorskip("imageio.v3")
    env_id = "Pendulum-v1" if every.__name__ in CONTINUOUS else "CartPole-v1"
    flags = {"env_id": env_id, "capture_video": True, "eval_episodes": 1, "eval_max_steps": 600}
    summary = every.train(tiny(every, tmp_path, **flags))
    (film,) = (run_folder(tmp_path) / "videos").rglob("*.mp4")
    length = 200 if every.__name__ in CONTINUOUS else summary["eval_returns"][0]
    assert abs(len(imageio.imread(film)) - (length + 1)) <= 1  # its length is rounded
