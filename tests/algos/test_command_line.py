"""Flags on the command line: what is wrong ends in one sentence that names the flag and a way out."""

import re
import runpy
import signal
import sys
from pathlib import Path

import pytest
from conftest import (
    EVERY,
    PARENTS,
    ROOT,
    command_line,
    load,
    script,
)

ENVIRONMENT = "--env-id Pendulm-v1"  # ends what is not refused before the environment is made


COMMANDS = [  # file, flags, words of the message
    ("ppo_continuous", "--num-envs 0", "--num-envs 0 must be above 0"),
    ("ppo_continuous", "--total-timesteps 1e6", "Error parsing --total-timesteps"),
    ("ppo_continuous", "--total-timesteps 100", "less than one rollout of 2048 steps"),
    ("ppo_continuous", "--num-minibatches 7", "Try 8"),
    ("ppo_continuous", "--learning-rate nan", "--learning-rate nan must be above 0"),
    ("ppo_continuous", "--seed 8589934592", "below 2**32"),
    ("ppo_continuous", "--device gpu", "Expected one of ('auto', 'cpu', 'cuda', 'mps')"),
    ("ppo_continuous", "--num-env 8", "Perhaps you meant"),
    ("ppo_continuous", "--env-id", "Missing value for argument '--env-id'"),
    ("ppo_continuous", "--resume", "--resume: expected one argument"),
    *((name, "--resume=", "--resume is empty; give the folder") for name in PARENTS),
    ("ppo_continuous", "Pendulum-v1", "Unrecognized options: Pendulum-v1"),
    ("ppo_continuous", f"--seed 1 --seed 2 {ENVIRONMENT}", "Did you mean: `Pendulum`?"),
    ("ppo_continuous", "--norm-adv=False", "--norm-adv takes no value"),
    ("rpo_continuous", "--rpo-alpha nan", "--rpo-alpha nan must be at least 0"),
    ("ppo_icm", "--icm-beta 1.5", "--icm-beta 1.5 must be at most 1"),
    ("ppo_rad", "--amplitude-low 2 --amplitude-high 1", "must not exceed --amplitude-high 1.0"),
    ("a2c_atari", "--rms-alpha 1.5", "--rms-alpha 1.5 must be at most 1"),
    ("dqn_atari", "--buffer-size 4000000000", "needs more than 8 GiB of memory; use at most"),
    ("pqn", "--num-minibatches 7", "into equal parts. Try 8"),
    ("pqn_atari", "--num-steps 3", "--num-steps 3 must be at least 4"),
    ("dqn_pixels", "--learning-starts 10", "must be at least 24 (3 x --num-envs 8)"),
    ("td3_continuous", "--autotune", "Unrecognized options: --autotune"),
]


@pytest.mark.parametrize(("name", "flags", "words"), COMMANDS)
def test_command_lines(name, flags, words, tmp_path, monkeypatch, capfd):
    """In this process, for speed. Would break: a traceback; status 0; advice that is lost."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *flags.split()])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(script(name)), run_name="__main__")
    code = stopped.value.code
    message = code if isinstance(code, str) else capfd.readouterr().err
    assert code not in (None, 0) and words in message and "Traceback" not in message, message
    assert isinstance(code, int) or len(message.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "module"),
    [("probe", "torch"), ("enjoy", "gymnasium"), ("tune", "optuna"), ("sweep", "tqdm")],
)
def test_interrupted_at_the_start(name, module, tmp_path):
    """Would break: the traceback of a Ctrl-C in the seconds in which a script of scripts/ imports its libraries."""
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt")
    file = ROOT / "scripts" / f"{name}.py"
    process = command_line(script=file, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert process.communicate(timeout=60) == ("", "") and process.wait() == -signal.SIGINT


def test_on_the_command_line(tmp_path):
    """tyro's box for a value, one line for the rest. Would break: a library's warnings around it, exit
    status 0, a traceback; all at once for speed."""
    processes = {}
    for number, (name, flags, word, status) in enumerate(
        [
            ("ppo_continuous", ["--env-id", "Pendulum-v11"], "--env-id", 1),
            ("dqn_atari", ["--total-timesteps", "100"], "--learning-starts", 2),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        process = command_line(*flags, script=script(name), cwd=folder)
        processes[folder] = word, status, process
    for folder, (word, status, process) in processes.items():
        output, errors = process.communicate(timeout=240)
        lines = [line for line in errors.splitlines() if not re.match("[╭╰│]", line)]
        assert process.returncode == status, errors
        assert word in errors and "Traceback" not in errors, errors
        assert len(lines) == (status == 1) and output == "", errors
        assert list(folder.iterdir()) == []


CLEANRL = {  # words on the command line: the advice
    "--cuda": "--cuda is not a flag of this file; use --device cuda",
    "--cuda True": "--cuda is not a flag of this file; use --device cuda",
    "--cuda False": "--cuda is not a flag of this file; use --device cpu",
    "--cuda=False": "--cuda is not a flag of this file; use --device cpu",
    "--no-cuda": "--no-cuda is not a flag of this file; use --device cpu",
    "--no_cuda": "--no-cuda is not a flag of this file; use --device cpu",
    "--gym-id Hopper-v5": "--gym-id is not a flag of this file; use --env-id",
    "--save_model": "--save-model is not a flag of this file; leave it out",
    "--no-save-model": "--no-save-model is not a flag of this file; leave it out",
    "--hf-entity me": "--hf-entity is not a flag of this file; leave it out",
    "--anneal-lr False": "--anneal-lr takes no value: --anneal-lr or --no-anneal-lr",
    "--no-norm_adv=1": "--no-norm-adv takes no value: --norm-adv or --no-norm-adv",
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


def test_home_folder():
    """Would break: runs in a folder that is called ~, in which --runs-dir=~/runs puts them without a word."""
    for name in EVERY:
        assert load(name).Args(runs_dir="~/runs").runs_dir == str(Path.home() / "runs")
