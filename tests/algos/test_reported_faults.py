"""Faults that users of such files report: each ends in one sentence at the start, or does not happen."""

import errno
import signal
import sys
import time

import gymnasium as gym
import numpy as np
import pytest
import toy_envs
from conftest import (
    CLASSIC,
    EVERY,
    NAMES,
    OFF_POLICY,
    PIXELS,
    RANKS,
    RUNNERS,
    command_line,
    every_of,
    load,
    longer,
    run_folder,
    script,
    tiny,
    toy,
)
from test_bad_input import refused
from test_runs import Terminal

APART = RANKS + RUNNERS  # they start processes; what they share with their parents is compared
BOXES = [*[name for name in NAMES if name not in APART], *OFF_POLICY]
VECTORS = [*BOXES, *CLASSIC]


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
    refused(load(name), tmp_path, "image", "ppo_atari.py", "ppo_pixels.py", env_id=env_id)


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

    with pytest.raises(ValueError, match="EnvPool"):
        algo.check_video(tiny(algo, tmp_path), "envpool")


class Nan:
    """Environments of an evaluation, the second of which pays no number."""

    num_envs = 2

    def __init__(self, obs):
        self.obs = obs

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


@pytest.mark.parametrize("name", [name for name in EVERY if name not in APART])
def test_runs_dir_that_cannot_be_made(name, monkeypatch, tmp_path):
    """Would break: a traceback of pathlib."""
    algo = load(name)

    def refuse(self, *_, **__):
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(algo.Path, "mkdir", refuse)
    more = ["float32"] if "precision" in algo.Args.__dataclass_fields__ else []
    with pytest.raises(SystemExit, match="--runs-dir .* Permission denied"):
        algo.open_run(tiny(algo, tmp_path), "cpu", *more, 0)


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
