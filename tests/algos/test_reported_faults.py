"""Faults that users of such files report: each ends in one sentence at the start, or does not happen."""

import errno
import functools
import importlib.util
import random
import re
import signal
import sys
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
import toy_envs
from conftest import (
    CLASSIC,
    CONTINUOUS,
    EVERY,
    NAMES,
    OFF_POLICY,
    PIXELS,
    RANKS,
    RUNNERS,
    SEEDS,
    command_line,
    every_of,
    has,
    load,
    longer,
    run_folder,
    script,
    tiny,
    toy,
)
from test_bad_input import refused
from test_failures import as_taken
from test_runs import Terminal

APART = RANKS + RUNNERS  # they start processes; what they share with their parents is compared
BOXES = [*[name for name in NAMES if name not in APART], *OFF_POLICY]
VECTORS = [*BOXES, *CLASSIC]
ALONE = [name for name in EVERY if name not in APART]


def open_envs(algo, args):
    """What the file's own function returns, at the start of a run with seed 1."""
    return algo.open_envs(args, [1]) if algo.__name__ in SEEDS else algo.open_envs(args, 1, 0)


def open_run(algo, folder, **flags):
    """Open a run and close it; returns its folder."""
    more = ["float32"] if has(algo, "precision") else []
    run_dir, _, writer = algo.open_run(tiny(algo, folder, **flags), "cpu", *more, 0)
    writer.close()
    return run_dir


class Integers(toy_envs.Counter):
    action_space = gym.spaces.Box(0, 3, (1,), np.int64)


@pytest.mark.parametrize("name", BOXES)
def test_integer_actions(name, tmp_path, registered):
    """Would break: an environment of integer actions that silently gets fractions."""
    registered("Integers-v0", Integers)
    words = "numbers" if name in ("ppo_rnd", "ppo_icm") else "WRAPPERS"
    refused(load(name), tmp_path, "--env-id", "real numbers", words, env_id="Integers-v0")


class Pictures(toy_envs.Counter):
    observation_space = gym.spaces.Box(0, 255, (84, 84), np.uint8)

    def observe(self):
        return np.zeros((84, 84), np.uint8)


@pytest.mark.parametrize("name", VECTORS)
def test_images_into_a_network_for_vectors(name, tmp_path, registered):
    """Would break: hours of training on flattened frames, without a word."""
    env_id = registered("Pictures-v0", Pictures)
    if name in CLASSIC:
        env_id = registered("PicturesDiscrete-v0", lambda: toy_envs.WithChoices(Pictures()))
    words = ["image", "ppo_atari.py", "ppo_pixels.py", "(Box actions) ppo_pixels_continuous.py"]
    refused(load(name), tmp_path, *words, env_id=env_id)


@pytest.mark.parametrize("name", VECTORS)
def test_ids_that_cannot_be_made(name, tmp_path):
    """Would break: "have you installed ALE?" where it is, and a module that is not found without a way out."""
    algo = load(name)
    for env_id in ("ALE/Pong-v5", "PongNoFrameskip-v4"):
        refused(algo, tmp_path, "ppo_atari.py", env_id=env_id)
    refused(algo, tmp_path, "PYTHONPATH", "nowhere", env_id="nowhere:Task-v0")


@pytest.mark.parametrize("name", PIXELS)
def test_atari_id_in_a_file_for_images(name, tmp_path):
    """In a process of its own, which does not know ale-py. Would break: "have you installed ALE?" where it is."""
    process = command_line("--env-id", "ALE/Pong-v5", script=script(name), cwd=tmp_path)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1 and errors.count("\n") == 1, errors
    assert "ppo_atari.py" in errors and list(tmp_path.iterdir()) == []


@every_of("ppo_atari", "a2c_atari", "dqn_atari")
def test_atari_id_with_its_module(every, tmp_path):
    """Would break: `ale_py:ALE/Pong-v5`, as Gymnasium's page of Atari writes it, that is not found."""
    args = tiny(every, tmp_path, env_id="ale_py:ALE/Pong-v5")
    envs, _ = every.make_envs(args, 1, 1)
    envs.close()


@pytest.mark.parametrize("name", VECTORS)
def test_video_is_tried_at_the_start(name, tmp_path, registered):
    """Would break: a run that trains to its end and then fails to record."""
    algo = load(name)
    refused(algo, tmp_path, "--capture-video", env_id=toy(algo), capture_video=True)

    with pytest.raises(SystemExit, match="--capture-video: only EnvPool"):
        algo.check_video(tiny(algo, tmp_path), "envpool")


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


class InGrey(gym.Wrapper):
    def render(self):
        return self.env.render()[..., 0]


@pytest.mark.parametrize("name", [*VECTORS, *PIXELS])
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


@pytest.mark.parametrize("name", PIXELS)
def test_rendered_fractions_into_a_network_for_images(name, tmp_path, registered):
    """Would break: a training whose every pixel is 0."""

    def make(render_mode=None):
        fractions = np.full((40, 60, 3), 0.8)
        return toy_envs.WithChoices(Filmed(fractions, fractions, {}, render_mode))

    env_id = registered("Fractions-v0", make)
    refused(load(name), tmp_path, "--env-id", "float64", "uint8", env_id=env_id)


@pytest.mark.parametrize("name", [*VECTORS, *PIXELS])
def test_wrappers_with_statistics(name, tmp_path):
    """Would break: evaluations with statistics of their own, and returns that are not raw."""
    algo = load(name)
    words = ("in WRAPPERS", "--norm-obs", "--norm-reward")
    algo.WRAPPERS = (gym.wrappers.NormalizeObservation,)
    refused(algo, tmp_path, "NormalizeObservation", *words)
    algo.WRAPPERS = (InGrey, functools.partial(gym.wrappers.NormalizeReward, gamma=0.9))
    refused(algo, tmp_path, "NormalizeReward", *words)


@pytest.mark.parametrize("name", [*VECTORS, *PIXELS])
def test_time_limit_in_wrappers(name, tmp_path, registered):
    """Would break: episodes that keep the shorter limit of the id, and not a word."""
    algo = load(name)
    env_id = registered("Limited-v0", lambda: as_taken(algo, toy_envs.Long()))
    algo.ENV_KWARGS = {"max_episode_steps": 20}
    algo.WRAPPERS = (functools.partial(gym.wrappers.TimeLimit, max_episode_steps=21),)
    words = ("TimeLimit in WRAPPERS", "20 steps", "ENV_KWARGS", "max_episode_steps")
    refused(algo, tmp_path, *words, env_id=env_id)
    algo.WRAPPERS = (functools.partial(gym.wrappers.TimeLimit, max_episode_steps=19),)
    algo.check_env(tiny(algo, tmp_path, env_id=env_id), 1)
    algo.ENV_KWARGS = {}  # an id without a limit
    algo.check_env(tiny(algo, tmp_path, env_id=env_id), 1)


class Nan:
    """Environments of an evaluation, the second of which pays no number."""

    num_envs = 2

    def __init__(self, obs):
        self.obs = obs
        self.unwrapped = self

    def step(self, action):
        ended = np.ones(2, bool)
        return self.obs, np.array([1.0, np.nan]), ended, ~ended, {}

    def close(self):
        pass


@every_of("ppo_continuous", "trpo_continuous", "sac_continuous", *CLASSIC)
def test_nan_in_an_evaluation(every, tmp_path):
    """Would break: exit status 0, "evaluation nan" and a summary that is no JSON."""
    args = tiny(every, tmp_path)
    envs, obs = every.make_envs(args, "gymnasium", 2, 1)
    more = ["float32"] if every.__name__ == "sac_continuous" else []
    agent = every.Agent(obs.shape[1], envs.single_action_space, args, *more)
    envs.close()
    with pytest.raises(SystemExit, match="NaN or infinity .* evaluation environment 1"):
        every.evaluate(agent, Nan(obs), obs)


@pytest.mark.parametrize("name", ["ppo", "dqn_atari"])
def test_full_disk(name, monkeypatch, tmp_path):
    """All files share `write`. Would break: PyTorch's "unexpected pos", and half a file that stays."""
    algo = load(name)

    def full(content, path):
        path.write_bytes(b"half")
        raise RuntimeError("[enforce fail at inline_container.cc] . unexpected pos")

    monkeypatch.setattr(algo.torch, "save", full)
    (tmp_path / "checkpoint.pt").write_bytes(b"old")
    with pytest.raises(SystemExit, match="cannot be written: .* disk"):
        algo.write(tmp_path / "checkpoint.pt", {})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "checkpoint.pt": b"old"
    }


@pytest.mark.parametrize("name", ALONE)
def test_runs_dir_that_cannot_be_made(name, monkeypatch, tmp_path):
    """Would break: a traceback of pathlib."""
    algo = load(name)

    def refuse(self, *_, **__):
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(algo.Path, "mkdir", refuse)
    with pytest.raises(SystemExit, match="--runs-dir .* Permission denied"):
        open_run(algo, tmp_path)


@pytest.mark.parametrize("name", ALONE)
def test_two_runs_in_a_second(name, monkeypatch, tmp_path):
    """Would break: the second run of an array of jobs, which ends with "File exists" and a way out that is none."""
    algo = load(name)
    monkeypatch.setattr(algo.time, "time", lambda: 1000.0)
    folders = [open_run(algo, tmp_path) for _ in range(3)]
    assert [folder.name.split("__")[-1] for folder in folders] == ["1000", "1001", "1002"]
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")  # every attempt raises FileExistsError
    with pytest.raises(SystemExit, match="--runs-dir .* File exists"):
        open_run(algo, tmp_path, runs_dir=str(tmp_path / "link"))


@pytest.mark.parametrize("name", ALONE)
def test_track_with_reserved_characters_and_without_a_login(name, monkeypatch, tmp_path):
    """Weights & Biases, faked. Would break: its traceback, which does not name --exp-name, and an empty run folder."""
    algo, ids = load(name), []
    fake = SimpleNamespace(init=lambda **given: ids.append(given["id"]), login=lambda: True)
    fake.__spec__ = importlib.util.spec_from_loader("wandb", None)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    folder = open_run(algo, tmp_path, track=True, exp_name="lr=1e-4 #2;3,4?5'6")
    assert "__lr=1e-4 #2;3,4?5'6__" in folder.name
    assert ids == [re.sub("[#;,?']", "-", folder.name)]

    def login():
        raise RuntimeError("No API key configured.\nUse `wandb login`.")

    fake.login = login
    with pytest.raises(SystemExit, match="^--track .*No API key.*WANDB_MODE=offline$"):
        open_run(algo, tmp_path, track=True)
    assert run_folder(tmp_path) == folder


@pytest.mark.parametrize(
    "name", [name for name in ALONE if name not in ("trpo_continuous", "reinforce")]
)
def test_compile_without_a_compiler(name, monkeypatch, tmp_path):
    """Would break: twenty lines of PyTorch's traceback, after the run folder was made."""
    monkeypatch.setenv("CXX", "/nowhere/g++")
    refused(load(name), tmp_path, "--compile", "C++ compiler", "/nowhere/g++", "CXX", compile=True)


CLEANRL = {  # words on the command line: the advice
    "--cuda": "--cuda is not a flag of this file; use --device cuda",
    "--cuda True": "--cuda is not a flag of this file; use --device cuda",
    "--cuda False": "--cuda is not a flag of this file; use --device cpu",
    "--cuda=False": "--cuda is not a flag of this file; use --device cpu",
    "--no-cuda": "--no-cuda is not a flag of this file; use --device cpu",
    "--gym-id Hopper-v5": "--gym-id is not a flag of this file; use --env-id",
    "--save_model": "--save_model is not a flag of this file; leave it out",
    "--no-save-model": "--no-save-model is not a flag of this file; leave it out",
    "--hf-entity me": "--hf-entity is not a flag of this file; leave it out",
    "--anneal-lr False": "--anneal-lr takes no value: --anneal-lr or --no-anneal-lr",
    "--no-norm_adv=1": "--no-norm_adv takes no value: --norm-adv or --no-norm-adv",
}


@pytest.mark.parametrize("words", CLEANRL)
def test_flags_of_cleanrl(words):
    """Would break: an unknown flag, and no word of what takes its place; the opposite of what was meant."""
    with pytest.raises(SystemExit) as stopped:
        load("ppo").check_flags(words.split())
    assert str(stopped.value).startswith(CLEANRL[words]) and "\n" not in str(stopped.value)


def test_all_flags_of_cleanrl_at_once(tmp_path):
    """Would break: a command of CleanRL's that is refused one flag at a time."""
    words = "--upload-model --seed 3 --cuda False --norm-adv True --hf-entity me --clip-vloss"
    process = command_line(*words.split(), script=script("ppo"), cwd=tmp_path)
    _, errors = process.communicate(timeout=120)
    named = [line.split()[0] for line in errors.splitlines()]
    assert process.returncode == 1, errors
    assert named == ["--upload-model", "--cuda", "--norm-adv", "--hf-entity"], errors
    assert list(tmp_path.iterdir()) == []


def test_flags_that_are_right():
    """Would break: a right command that is refused: a switch before a flag, a text that looks like a value."""
    words = "--norm-adv --no-anneal-lr --exp-name True --seed 1 --env-id=CartPole-v1 --track"
    load("ppo").check_flags(words.split())


def test_squash_of_a_constant_action(tmp_path, registered):
    """Would break: log(0), and a NaN some steps later."""

    class Constant(toy_envs.Counter):
        action_space = gym.spaces.Box(np.float32([0, -1]), np.float32([0, 1]))

    env_id = registered("Constant-v0", Constant)
    refused(load("ppo_squashed"), tmp_path, "constant", "WRAPPERS", env_id=env_id)


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_numbers_of_the_bar(columns, monkeypatch, tmp_path):
    """Would break: "SPS 586" at 80 columns that means 5,860, as the line is cut within the number."""
    algo, terminal = load("ppo"), Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("tqdm.std._screen_shape_wrapper", lambda: lambda _: (columns, 24))
    bar = algo.open_bar(tiny(algo, tmp_path, total_timesteps=1_000_000), 0)
    bar.set_description_str("checkpoint 980000 ")
    bar.postfix = "return -1234.5, SPS 5860"
    bar.update(990_000)
    bar.refresh()
    bar.close()
    lines = [line.split("\n")[0] for line in terminal.text.split("\r")]
    assert all(len(line) < columns + 8 for line in lines)  # 8: moves of the cursor
    assert any("990000/1000000, return -1234.5" in line for line in lines)
    if columns >= 80:
        assert any("SPS 5860 [" in line for line in lines)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has no SIGUSR1")
@pytest.mark.parametrize("sent", [["SIGUSR1"], ["SIGINT", "SIGINT"]])
def test_signals(sent, tmp_path):
    """SIGUSR1 is Slurm's warning. Would break: a run that ends unsaved by it; a second Ctrl-C that does nothing."""
    flags = ["--env-id", "CartPole-v1", "--total-timesteps", 10**9]
    if len(sent) == 2:  # an iteration that lasts longer than the test
        flags += ["--num-envs", 8, "--num-steps", 10**6, "--num-minibatches", 8]
        flags += ["--env-backend", "gymnasium"]
    process = command_line(*flags, script=script("ppo"), cwd=tmp_path)
    deadline = time.time() + 60
    while not list(tmp_path.glob("runs/*/events*")) and time.time() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    for name in sent:
        process.send_signal(getattr(signal, name))
        time.sleep(0.5)
    _, errors = process.communicate(timeout=60)
    if len(sent) == 2:
        assert process.returncode == -signal.SIGINT, errors
    else:
        assert process.returncode == 128 + signal.SIGUSR1, errors
        assert (run_folder(tmp_path) / "checkpoint.pt").exists()
    assert "Traceback" not in errors


@every_of("ppo", "dqn", "trpo_continuous", "sac_continuous")
def test_extension_that_is_killed_at_once(every, tmp_path):
    """Would break: a resume to more steps, killed before its first checkpoint, that forgets the new total."""
    factor, flags = longer(every, total_timesteps=64)
    every.train(tiny(every, tmp_path, **flags))
    run = str(run_folder(tmp_path))

    def killed(*_):
        raise KeyboardInterrupt

    more = tiny(every, tmp_path, resume=run, total_timesteps=128 * factor)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(every, "open_bar", killed)
        every.train(more)
    again = every.Args(**every.load_checkpoint(run)["args"])
    assert again.total_timesteps == 128 * factor
    assert every.train(again)["global_step"] >= 128 * factor


class Mistaken(toy_envs.Counter):
    """An environment that breaks one of Gymnasium's rules."""

    def __init__(self, mistake: str):
        self.mistake = mistake

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        if self.mistake == "no info":
            return obs
        if self.mistake == "shape":
            obs = np.zeros(4, np.float32)
        if self.mistake == "raises":
            raise ValueError("the robot is not connected")
        return obs, info

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.mistake == "four values":
            return obs, reward, terminated or truncated, info
        if self.mistake == "reward of None":
            reward = None
        if self.mistake == "reward of shape (1,)":
            reward = np.array([reward])
        ended = terminated or truncated
        if self.mistake == "no last observation" and ended:
            obs = None
        if self.mistake == "last shape" and ended:
            obs = np.zeros(4, np.float32)
        if self.mistake == "ends of two":
            terminated = np.array([terminated, terminated])
        return obs, reward, terminated, truncated, info


class NoSeed(toy_envs.Counter):
    def reset(self):
        return super().reset(seed=0)


class Fractions(toy_envs.Counter):
    """Declares integers and shows fractions."""

    observation_space = gym.spaces.Box(-9, 9, (3,), np.int64)


MISTAKES = {  # how the environment is made, words of the message
    "no info": [lambda: Mistaken("no info"), "(obs, info)"],
    "shape": [lambda: Mistaken("shape"), "shape (4,)", "Box(-inf, inf, (3,), float32)"],
    "raises": [lambda: Mistaken("raises"), "the robot is not connected (ValueError in "],
    "four values": [
        lambda: Mistaken("four values"),
        "(obs, reward, bool terminated, bool truncated",
    ],
    "ends of two": [
        lambda: Mistaken("ends of two"),
        "(obs, reward, bool terminated, bool truncated",
    ],
    "no last observation": [lambda: Mistaken("no last observation"), "step() number 4", "object"],
    "last shape": [lambda: Mistaken("last shape"), "step() number 4", "shape (4,)"],
    "reward of None": [lambda: Mistaken("reward of None"), "reward", "NoneType", "number"],
    "reward of shape (1,)": [lambda: Mistaken("reward of shape (1,)"), "reward", "shape (1,)"],
    "no seed": [NoSeed, "reset(seed, options)", "'seed'"],
    "dtype": [Fractions, "type float32", "int64"],
}


@pytest.mark.parametrize("name", [*VECTORS, *PIXELS])
def test_mistakes_of_an_environment(name, tmp_path, registered):
    """Would break: a traceback of NumPy's after the run folder has been made, a NaN in place of None."""
    algo = load(name)
    for mistake, (make, *words) in MISTAKES.items():
        observations = ("shape", "dtype", "no last observation", "last shape")
        if name in PIXELS and mistake in observations:  # the pictures are the toy's own
            continue
        env_id = f"Mistake{len(gym.registry)}-v0"
        registered(env_id, lambda make=make: as_taken(algo, make()))
        refused(algo, tmp_path, "--env-id", *words, env_id=env_id)


class Careless(toy_envs.Counter):
    """Breaks rules that make no difference: float64, out of the bounds, one buffer for all observations."""

    observation_space = toy_envs.box(3, bound=0.5)
    buffer = np.zeros(3)

    def observe(self):
        self.buffer[:] = super().observe()
        return self.buffer


@pytest.mark.parametrize("name", [*VECTORS, *PIXELS])
def test_harmless_warnings(name, tmp_path, registered):
    """Would break: a healthy environment that is refused; other draws in training because of the check."""
    algo = load(name)
    env_id = registered("Careless-v0", lambda: as_taken(algo, Careless()))
    args = tiny(algo, tmp_path, env_id=env_id)
    before = random.getstate(), np.random.get_state()[2], torch.get_rng_state().tolist()
    Careless.rows.clear()
    algo.check_env(args, 2**30)
    assert before == (random.getstate(), np.random.get_state()[2], torch.get_rng_state().tolist())
    assert Careless.rows == []
    envs, *_ = open_envs(algo, args)
    envs.close()


class Stamp(toy_envs.Counter):
    """Observations whose first number is a time stamp."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def observe(self):
        return np.float64([1.7e9, 0, 0]) + super().observe()


class Shifted(gym.ObservationWrapper):
    def observation(self, obs):
        return obs - np.float64([1.7e9, 0, 0])


@pytest.mark.parametrize("name", VECTORS)
def test_time_stamps(name, tmp_path, registered, capsys):
    """Would break: a number that float32 makes constant, without a word; a wrapper that comes too late."""
    algo = load(name)
    env_id = registered("Stamp-v0", lambda: as_taken(algo, Stamp()))
    args = tiny(algo, tmp_path, env_id=env_id)
    for wrappers, told in (((), 1), ((Shifted,), 0)):
        algo.WRAPPERS = wrappers
        envs, *_ = open_envs(algo, args)
        envs.close()
        assert capsys.readouterr().err.count("to multiples of 128; if smaller changes") == told
    _, obs = algo.make_envs(args, "gymnasium", 2, 0)
    assert obs[0, 0] == 0 and obs[1, 0] == 1


@pytest.mark.parametrize("name", CONTINUOUS)
def test_bounds_in_float64(name):
    """MPS has no float64, which EnvPool's bounds are in. Would break: an agent that cannot be moved there, or
    an action that float32 rounds out of its space."""
    algo, rng = load(name), np.random.default_rng(1)
    low, high = rng.integers(-9, 0, 500) / 10, rng.integers(1, 10, 500) / 10
    more = ["float32"] if name in OFF_POLICY else []
    for kind in (np.float32, np.float64):
        space = gym.spaces.Box(kind(low), kind(high), dtype=kind)
        agent = algo.Agent(3, space, algo.Args(), *more)
        tensors = [*agent.parameters(), *agent.buffers()]
        assert all(tensor.dtype == torch.float32 for tensor in tensors)
        for far in (-100.0, 100.0):
            action = agent.to_env(torch.full([1, 500], far))[0]
            assert space.contains(action)
            if name not in OFF_POLICY:  # their actions are in [-1, 1]
                np.testing.assert_allclose(action, low if far < 0 else high, rtol=1e-6)


LAYOUTS = {(40, 60): True, (40, 60, 1): True, (1, 40, 60): False, (40, 60, 3): True}


@pytest.mark.parametrize("name", PIXELS)
def test_layouts_of_images(name, tmp_path, registered):
    """Would break: training on what is rendered although the environment shows images; the environment
    here renders nothing."""
    algo = load(name)
    for shape, becomes_a_stack in LAYOUTS.items():
        env_id = registered(
            f"Layout{len(gym.registry)}-v0", lambda shape=shape: toy_envs.Still(shape)
        )
        envs, obs = open_envs(algo, tiny(algo, tmp_path, env_id=env_id))
        envs.close()
        assert obs.shape[1:] == ((4, 84, 84) if becomes_a_stack else shape)
        assert (obs == 9).all() or shape[-1] == 3  # the sum of three channels is rounded


class Other(toy_envs.Still):
    def __init__(self, shape: tuple, dtype, high: int):
        self.observation_space = gym.spaces.Box(0, high, shape, dtype)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.low, {}


class Bytes(gym.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(0, 255, (3, 84, 84), np.uint8)

    def observation(self, obs):
        return (255 * obs).astype(np.uint8)


@pytest.mark.parametrize("name", PIXELS)
def test_other_layouts_of_images(name, tmp_path, registered):
    """Would break: a run on what is rendered, or no word of the layouts that work."""
    algo = load(name)
    others = [
        ((3, 84, 84), np.float32, 1),
        ((4, 84, 84, 3), np.uint8, 255),
        ((40, 60), np.float64, 1),
    ]
    for other in others:
        env_id = registered(f"Other{len(gym.registry)}-v0", lambda other=other: Other(*other))
        words = ["uint8", "(frames, height, width)", "WRAPPERS", "TransformObservation"]
        refused(algo, tmp_path, "--env-id", *words, env_id=env_id)
    algo.WRAPPERS = (Bytes,)
    env_id = registered("OtherBytes-v0", lambda: Other(*others[0]))
    envs, obs = open_envs(algo, tiny(algo, tmp_path, env_id=env_id))
    envs.close()
    assert obs.shape[1:] == (3, 84, 84)


class InAPart(toy_envs.Still):
    """An image in a dictionary."""

    def __init__(self):
        super().__init__((40, 60))
        self.observation_space = gym.spaces.Dict(camera=self.observation_space)

    def reset(self, *, seed=None, options=None):
        return {"camera": np.full((40, 60), 9, np.uint8)}, {}


@pytest.mark.parametrize("name", PIXELS)
def test_an_image_in_a_dictionary(name, tmp_path, registered):
    """Would break: training on what is rendered, in silence."""
    algo = load(name)
    env_id = registered("InAPart-v0", InAPart)
    words = ["camera", "dictionary", "TransformObservation", "WRAPPERS"]
    refused(algo, tmp_path, "--env-id", *words, env_id=env_id)
    camera = gym.spaces.Box(0, 255, (40, 60), np.uint8)
    taken_out = functools.partial(
        gym.wrappers.TransformObservation, func=lambda obs: obs["camera"], observation_space=camera
    )
    algo.WRAPPERS = (taken_out,)
    envs, obs = open_envs(algo, tiny(algo, tmp_path, env_id=env_id))
    envs.close()
    assert (obs == 9).all()


@every_of(*CLASSIC)
@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Taxi-v4"])
def test_the_wrapper_for_discrete_observations(every, env_id, tmp_path):
    """Would break: advice that does not help."""
    flags = {"env_id": env_id, "env_backend": "auto"}
    refused(every, tmp_path, "Discrete(", "FlattenObservation", "WRAPPERS", **flags)
    every.WRAPPERS = (gym.wrappers.FlattenObservation,)
    assert every.train(tiny(every, tmp_path, **flags))["global_step"] >= 64


@pytest.mark.parametrize("name", VECTORS)
def test_task_that_only_envpool_has(name, tmp_path):
    """Would break: a wrapper as advised, then the word that this task takes none, and no way on."""
    algo = load(name)
    algo.WRAPPERS = (gym.wrappers.FlattenObservation,)
    flags = {"env_id": "Taxi-v3", "env_backend": "auto"}
    refused(algo, tmp_path, "EnvPool", "versions in Gymnasium: Taxi-v4", **flags)
    refused(algo, tmp_path, "versions in Gymnasium: none", **flags | {"env_id": "WalkerRun-v1"})


class Words(toy_envs.Counter):
    """A sequence of numbers, whose length varies."""

    observation_space = gym.spaces.Sequence(toy_envs.box(1))

    def observe(self):
        return tuple(np.ones((self.steps + 1, 1), np.float32))


def longest(words) -> np.ndarray:
    """The sum and the number of these numbers."""
    return np.array([np.sum(words), len(words)], np.float32)


@pytest.mark.parametrize("name", VECTORS)
def test_observations_of_varying_length(name, tmp_path, registered):
    """Would break: the advice to flatten, followed, and the same advice again."""
    env_id = registered("Words-v0", Words)
    if name in CLASSIC:
        env_id = registered("WordsDiscrete-v0", lambda: toy_envs.WithChoices(Words()))
    algo = load(name)
    words = ["Sequence", "gym.wrappers.TransformObservation", "WRAPPERS"]
    refused(algo, tmp_path, *words, env_id=env_id)
    algo.WRAPPERS = (gym.wrappers.FlattenObservation,)
    refused(algo, tmp_path, *words, env_id=env_id)
    transform = gym.wrappers.TransformObservation
    algo.WRAPPERS = (functools.partial(transform, func=longest, observation_space=toy_envs.box(2)),)
    envs, obs, _ = open_envs(algo, tiny(algo, tmp_path, env_id=env_id))
    envs.close()
    assert obs.tolist() == [[1, 1]] * 2


class Wide(toy_envs.Counter):
    action_space = gym.spaces.Box(-2000, 2000, (1,))


def opened(algo, folder, **flags):
    """Open the environments, and close them."""
    envs, *_ = open_envs(algo, tiny(algo, folder, **flags))
    envs.close()


@pytest.mark.parametrize("name", BOXES)
def test_actions_far_from_the_first_policy(name, tmp_path, registered, capsys):
    """Would break: an agent that never leaves a thousandth of its actions, and not a word."""
    algo = load(name)
    env_id = registered("Wide-v0", Wide)
    opened(algo, tmp_path, env_id=env_id)
    errors = capsys.readouterr().err
    scales_by_itself = name in OFF_POLICY or name == "ppo_squashed"
    assert scales_by_itself != ("actions reach 2000" in errors)
    assert scales_by_itself or "gym.wrappers.RescaleAction to WRAPPERS" in errors
    rescale = functools.partial(gym.wrappers.RescaleAction, min_action=-1, max_action=1)
    algo.WRAPPERS = (rescale,)
    opened(algo, tmp_path, env_id=env_id)
    algo.WRAPPERS = ()
    opened(algo, tmp_path)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["ppo_rnd", "ppo_icm"])
def test_discrete_actions_have_no_scale(name, tmp_path, capsys):
    """Would break: a traceback of a Discrete space, which has no bounds."""
    opened(load(name), tmp_path, env_id="CounterDiscrete-v0")
    assert capsys.readouterr().err == ""


LARGEST = np.finfo(np.float32).max


class Unlimited(toy_envs.Counter):
    """Bounds that are numbers, but so large that their distance is infinite."""

    action_space = gym.spaces.Box(-LARGEST, LARGEST, (1,))


@pytest.mark.parametrize("name", [*OFF_POLICY, "ppo_squashed"])
def test_bounds_of_the_largest_number(name, tmp_path, registered):
    """Would break: SAC that plays its bounds alone, and NaN without the reason."""
    env_id = registered("Unlimited-v0", Unlimited)
    algo = load(name)
    if name == "ppo_squashed":
        return refused(algo, tmp_path, "bounds", "ppo_continuous.py", env_id=env_id)
    refused(algo, tmp_path, "too large", "TransformAction", "WRAPPERS", env_id=env_id)
    bounds = {"func": lambda action: action, "action_space": gym.spaces.Box(-1, 1, (1,))}
    algo.WRAPPERS = (functools.partial(gym.wrappers.TransformAction, **bounds),)
    opened(algo, tmp_path, env_id=env_id)


@pytest.mark.parametrize("name", PIXELS)
def test_images_too_small_for_the_network(name, tmp_path, registered):
    """Would break: a grid of 10 x 10 cells with 4 channels, and no hint at their order, nor at a file
    for it."""
    env_id = registered("Small-v0", lambda: toy_envs.Still((10, 10, 4)))
    other = name.removesuffix("_pixels")
    words = ["10 images of 10 x 4", "order", "TransformObservation", f"{other}.py"]
    refused(load(name), tmp_path, *words, "FlattenObservation", env_id=env_id)
    algo = load(other)
    algo.WRAPPERS = (gym.wrappers.FlattenObservation,)
    opened(algo, tmp_path, env_id=env_id)


@pytest.mark.parametrize("name", [*VECTORS, *PIXELS])
def test_entry_point_that_returns_one_object(name, tmp_path, registered):
    """Would break: environments that step each other, in training and in evaluations."""
    algo = load(name)
    the_only_one = gym.make(toy(algo))
    env_id = registered("OneObject-v0", lambda **kwargs: the_only_one)
    refused(algo, tmp_path, "entry point", "new object", env_id=env_id)


class Camera(Filmed):
    closed = False

    def close(self):
        self.closed = True


@pytest.mark.parametrize("name", [*VECTORS, *PIXELS])
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
    factor, flags = longer(algo, total_timesteps=64, eval_frequency=16)
    algo.train(tiny(algo, tmp_path, env_id=env_id, capture_video=True, **flags))
    assert len(left) > 1 and not any(left)
