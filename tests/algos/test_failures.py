"""What goes wrong while a run goes on: it ends at once, says what was saved, and saves nothing bad."""

import functools
import re
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_envs
from conftest import (
    ATARI,
    CLASSIC,
    CONTINUOUS,
    EVALUATES,
    PIXELS,
    ROOT,
    command_line,
    every_of,
    has,
    longer,
    read_checkpoint,
    run_folder,
    scalars,
    script,
    spy,
    tiny,
)
from test_resume import at_row
from test_runs import Terminal


def finite(checkpoint: dict) -> bool:
    return all(value.isfinite().all() for value in checkpoint["agent"].values())


def stopped(algo, folder, **flags) -> str:
    """The line that a run ends in; its checkpoints hold numbers only."""
    with pytest.raises(SystemExit) as ended:
        algo.train(tiny(algo, folder, checkpoint_frequency=1, **flags))
    run = run_folder(folder)
    assert not (run / "summary.json").exists()
    for file in run.glob("*.pt"):
        assert finite(read_checkpoint(run, file.name))
    message = str(ended.value)
    assert len(message.splitlines()) == 1
    return message


def steps_in(message: str, run: Path) -> list[int]:
    """The numbers of a message, without those of the folder's name."""
    return [int(number) for number in re.findall(r"\d+", message.replace(str(run), ""))]


BAD = {
    "a reward that is none": {"what": "reward", "value": np.nan},
    "a reward of None": {"what": "reward", "value": None},
    "an infinite reward": {"what": "reward", "value": np.inf},
    "a huge reward": {"what": "reward", "value": 1e20},
    "a huge observation": {"what": "observation", "value": 1e20},
    "an observation that is none": {"what": "observation", "value": np.nan},
}


NOT_NUMBERS = ("a reward that is none", "an observation that is none")  # of all loops but Atari's
CASES = [("ppo_continuous", kind) for kind in BAD] + [("ppo_pixels", NOT_NUMBERS[0])]
CASES += [(name, kind) for name in ("reinforce", "sac_continuous", "dqn") for kind in NOT_NUMBERS]


@pytest.mark.parametrize(("every", "kind"), CASES, indirect=["every"])
def test_non_finite_environment(every, tmp_path, registered, kind):
    """Its 25th step is bad. Would break: a NaN that reaches weights, statistics or a
    checkpoint; a "last good state" that is never named."""
    make = functools.partial(toy_envs.Broken, **BAD[kind], at=25)
    env_id = registered("Bad-v0", lambda: as_taken(every, make()))
    message = stopped(every, tmp_path, env_id=env_id, total_timesteps=1000)
    run = run_folder(tmp_path)
    saved = read_checkpoint(run)["global_step"]
    at, last = steps_in(message, run)[-2:]
    assert last == saved and 20 <= saved < 50 <= at + 10 < 90
    problem = "NaN, None, or a number too large for statistics in float32"
    assert re.match(rf"{problem} .* in the {BAD[kind]['what']}s of environment ", message)
    assert "correct the environment" in message and str(run) in message


def test_non_finite_update(every, monkeypatch, tmp_path):
    """The loss is taken before the step, so that of the last minibatch says nothing of the weights after
    it. Would break: a run that goes on with weights that are no numbers, or saves them."""
    update, rows = every.update, []

    def poison(agent, *rest):
        scalars = update(agent, *rest)
        if rows:
            next(agent.parameters()).data.view(-1)[0] = torch.nan
        return scalars

    monkeypatch.setattr(every, "update", poison)
    at_row(monkeypatch, every, 35, lambda: rows.append(1))
    message = stopped(every, tmp_path, total_timesteps=300)
    run = run_folder(tmp_path)
    assert "NaN or infinity in the weights" in message and "a lower learning rate" in message
    assert steps_in(message, run)[1] == read_checkpoint(run)["global_step"] > 0


def test_an_exception_names_what_was_saved(every, monkeypatch, tmp_path):
    """Would break: an exception in the environment after which one has to guess what is left."""

    def fail():
        raise RuntimeError("the robot fell over")

    terminal, saved = Terminal(), []
    factor, flags = longer(every, total_timesteps=500, checkpoint_frequency=20)
    if every.__name__ == "a2c_atari":  # shows it every 2,000 steps
        factor, flags = 45, {"total_timesteps": 10**5, "checkpoint_frequency": 900}
    at_row(monkeypatch, every, 60 * factor, fail)
    spy(monkeypatch, every, "write", lambda path, content: saved.append(content.get("global_step")))
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="fell over"):
        patch.setattr(sys, "stderr", terminal)
        every.train(tiny(every, tmp_path, **flags))
    shown = [int(number) for number in re.findall(r"checkpoint (\d+)", terminal.text)]
    assert shown and shown[-1] == [step for step in saved if step][-1]
    assert read_checkpoint(run_folder(tmp_path))["global_step"] == saved[-1]
    assert scalars(run_folder(tmp_path))["charts/SPS"]


@every_of("ppo_continuous", "dqn")
def test_an_exception_loses_little_by_default(every, monkeypatch, tmp_path):
    """Would break: checkpoints so rare that an exception loses up to 100,000 steps."""

    def fail():
        raise RuntimeError

    at_row(monkeypatch, every, 2500, fail)
    replays = has(every, "learning_starts")
    loss = torch.tensor(0.0) if replays else 0.0
    monkeypatch.setattr(every, "update", lambda *_: {"losses/loss": loss})
    starts = {"learning_starts": 64} if replays else {}
    with pytest.raises(RuntimeError):
        every.train(tiny(every, tmp_path, total_timesteps=10**6, num_envs=16, **starts))
    assert read_checkpoint(run_folder(tmp_path))["global_step"] >= 20_000


def test_curve_is_complete_after_a_non_finite_reward(tmp_path):
    """Would break: events that wait in memory and are lost just when one wants to see what went wrong."""
    flags = ["--num-envs", 2, "--num-steps", 8, "--num-minibatches", 2, "--total-timesteps", 1000]
    flags += ["--env-id", "toy_envs:NanReward-v0", "--env-backend", "gymnasium"]
    file, path = script("ppo_continuous"), str(ROOT / "tests")
    process = command_line(*flags, script=file, cwd=tmp_path, PYTHONPATH=path)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1 and len(errors.splitlines()) == 1, errors
    logged = scalars(run_folder(tmp_path))["losses/value_loss"]
    assert [step for step, _ in logged] == [14, 28]


class Patience(Exception):
    pass


class Endless(toy_envs.Counter):
    """No end; it loses its patience."""

    def step(self, action):
        if self.steps > 5000:
            raise Patience
        return super().step(action)

    def length(self):
        return 10**9


class EndlessAtari(toy_envs.FakeAtari):
    @staticmethod
    def length(i: int, game: int) -> int:
        return 10**9

    def step(self, actions):
        if self.steps.max() > 5000:
            raise Patience
        return super().step(actions)


def as_taken(algo, env):
    """The environment with the actions and observations that the file takes."""
    if algo.__name__ in CONTINUOUS:
        return env
    env = toy_envs.WithChoices(env)
    return toy_envs.InPictures(env) if algo.__name__ in PIXELS else env


@every_of(*EVALUATES)
def test_an_evaluation_ends(every, tmp_path, capsys, monkeypatch, registered):
    """Would break: an evaluation that never ends, or is cut and does not say so."""
    flags = {"eval_max_steps": 30}
    if every.__name__ in ATARI:
        monkeypatch.setattr(every, "AtariVectorEnv", EndlessAtari)
    else:
        flags["env_id"] = registered("NoEnd-v0", lambda: as_taken(every, Endless()))
    summary = every.train(tiny(every, tmp_path, **flags))
    assert "2 episodes truncated at --eval-max-steps" in capsys.readouterr().err
    assert len(summary["eval_returns"]) == 2
    if every.__name__ not in ATARI:  # 1 + 2 + ... + 30, and one more each
        assert sorted(summary["eval_returns"]) == [465, 495]


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


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has no SIGUSR1")
@pytest.mark.parametrize("sent", [["SIGTERM"], ["SIGUSR1"], ["SIGINT", "SIGINT"]])
def test_signals(sent, tmp_path):
    """SIGUSR1 is Slurm's warning, SIGTERM that of kill and Docker. Would break: a run that ends unsaved by it;
    a second Ctrl-C that does nothing."""
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
        assert process.returncode == 128 + getattr(signal, sent[0]), errors
        assert (run_folder(tmp_path) / "checkpoint.pt").exists()
    assert "Traceback" not in errors


@every_of("ppo", "dqn", "trpo_continuous", "sac_continuous")
def test_extension_that_is_killed_at_once(every, tmp_path):
    """Would break: a resume to more steps, killed before its first checkpoint, that forgets the new total."""
    every.train(tiny(every, tmp_path, total_timesteps=64))
    run = str(run_folder(tmp_path))

    def killed(*_):
        raise KeyboardInterrupt

    more = tiny(every, tmp_path, resume=run, total_timesteps=128)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(every, "open_bar", killed)
        every.train(more)
    again = every.Args(**every.load_checkpoint(run)["args"])
    assert again.total_timesteps == 128
    assert every.train(again)["global_step"] >= 128
