"""Runs that end early and go on: what is saved when, what a resumed run takes from where."""

import functools
import inspect
import json
import os
import pickle
import random
import re
import runpy
import shutil
import signal
import sys
import time

import numpy as np
import pytest
import torch
from conftest import (
    ATARI,
    LOOPS,
    PARENTS,
    ROOT,
    SEEDS,
    command_line,
    equal,
    every_of,
    has,
    load,
    longer,
    read_checkpoint,
    run_folder,
    scalars,
    script,
    spy,
    tiny,
    toy,
)


class Killed(BaseException):
    """Ends a run with no word, as kill -9 does."""


def at_row(monkeypatch, algo, row: int, event) -> None:
    """Call event() before the row-th step of training's environments from now on."""
    original, signature = algo.make_envs, inspect.signature(algo.make_envs)

    def make_envs(*args, **kwargs):
        made = original(*args, **kwargs)
        if signature.bind(*args, **kwargs).arguments["seed"] < 2**30:
            envs, step, count = made[0], made[0].step, iter(range(1, 10**6))

            def watched(action):
                if next(count) == row:
                    event()
                return step(action)

            envs.step = watched
        return made

    monkeypatch.setattr(algo, "make_envs", make_envs)


def killed():
    raise Killed


def updates_of(monkeypatch, algo) -> list[tuple]:
    """(agent, optimizers, target agent or None) as each update of the runs to come finds them."""
    seen = []

    def before(*args):
        given = [arg for arg in args if isinstance(arg, torch.optim.Optimizer)]
        optimizers = {"": given[0]} if given else args[2]
        networks = [arg for arg in args if isinstance(arg, torch.nn.Module)]
        copied = [
            {key: value.clone() for key, value in one.state_dict().items()} for one in networks
        ]
        states = {name: optimizer.state_dict() for name, optimizer in optimizers.items()}
        states = pickle.loads(pickle.dumps(states))
        seen.append((copied[0], states, copied[1] if copied[1:] else None))

    spy(monkeypatch, algo, "update", before)
    return seen


# ---- what a resumed run takes from where

ALONE = [name for name in PARENTS if name not in SEEDS]  # those are compared with single runs


@every_of(*ALONE)
def test_resume_restores_weights_and_moments(every, monkeypatch, tmp_path):
    """Would break: weights, a target network, moments, the scale of rewards or a clock that start afresh; draws that
    were there before; a doubled curve."""
    seeds = {"random": [], "numpy.random": [], "torch": []}
    for module, name in ((random, "seed"), (np.random, "seed"), (torch, "manual_seed")):
        spy(monkeypatch, module, name, lambda seed, to=seeds[module.__name__]: to.append(seed))
    every.train(tiny(every, tmp_path))
    begun = {name: given.copy() for name, given in seeds.items()}
    run, seen = run_folder(tmp_path), updates_of(monkeypatch, every)
    saved, before = read_checkpoint(run), scalars(run)
    more = saved["global_step"] + 60
    torch.save(saved | {"wall_time_s": saved["wall_time_s"] + 1000}, run / "checkpoint.pt")
    args = tiny(every, tmp_path, resume=str(run), total_timesteps=more)
    summary = every.train(args)
    assert 1000 < summary["wall_time_s"] < 2000
    for name, given in begun.items():
        assert given and seeds[name][len(given)] not in given, name
    agent, optimizers, target = seen[0]
    changed = {key for key in agent if not torch.equal(agent[key], saved["agent"][key])}
    assert all("return_rms" in key for key in changed)  # updated before the first update
    if (key := "return_rms.count") in agent:
        rows = agent[key] - saved["agent"][key]  # of one rollout
        assert 0 < rows <= args.num_envs * args.num_steps
    if target:
        assert equal(target, saved["target_agent"])
    for name, optimizer in (saved.get("optimizers") or {"": saved["optimizer"]}).items():
        moments = optimizer["state"]
        assert moments and any(tensor.any() for tensor in moments[0].values())
        for key, state in moments.items():
            assert equal(optimizers[name]["state"][key], state)
    assert run_folder(tmp_path) == run and summary["global_step"] >= more
    logged = scalars(run)
    for key in logged.keys() - {"eval/episodic_return"}:
        steps = [step for step, _ in logged[key]]
        assert steps == sorted(set(steps)), key
        assert logged[key][: len(before[key])] == before[key], key


CONSTANTS = [(name, {"learning_rate": 3e-6}) for name in ALONE if name != "sac_continuous"]
CONSTANTS += [("sac_continuous", {rate: 3e-6}) for rate in ("policy_lr", "q_lr")]
CONSTANTS += [("a2c_atari", {"rms_eps": 0.25}), ("a2c_atari", {"rms_alpha": 0.5})]


@pytest.mark.parametrize(("every", "given"), CONSTANTS, indirect=["every"], ids=str)
def test_constants_of_the_optimiser_come_from_the_flags(every, given, monkeypatch, tmp_path):
    """Would break: --resume RUN --learning-rate X that acts in summary.json only."""
    every.train(tiny(every, tmp_path))
    run, seen = run_folder(tmp_path), updates_of(monkeypatch, every)
    start, total = read_checkpoint(run)["global_step"], 200
    args = tiny(every, tmp_path, resume=str(run), total_timesteps=total, **given)
    summary = every.train(args)
    ((name, value),) = given.items()
    optimizer = {"policy_lr": "policy", "q_lr": "critics"}.get(name, "")
    group = seen[0][1][optimizer]["param_groups"][0]
    if name == "learning_rate" and has(every, "anneal_lr"):
        value *= 1 - start / total
    key = "lr" if name in ("learning_rate", "policy_lr", "q_lr") else name.removeprefix("rms_")
    assert group[key] == pytest.approx(value)
    assert summary["args"] | given == summary["args"]


def test_temperature_comes_from_the_flags(monkeypatch, tmp_path):
    """Would break: --resume RUN --no-autotune --alpha X that acts in summary.json only."""
    sac = load("sac_continuous")
    sac.train(tiny(sac, tmp_path))
    seen, flags = updates_of(monkeypatch, sac), {"resume": str(run_folder(tmp_path))}
    for total, alpha in ((128, 0.3), (192, 0.7)):
        flags |= {"autotune": False, "alpha": alpha, "total_timesteps": total}
        sac.train(tiny(sac, tmp_path, **flags))
        assert seen[-1][0]["log_alpha"].exp().item() == pytest.approx(alpha)


@pytest.mark.parametrize("spelling", [["--resume", "{}"], ["--resume={}"]], ids=str)
def test_resume_from_the_command_line(monkeypatch, tmp_path, spelling):
    """Its code is one for all files (test_files.py). Would break: a resumed run in a folder of its own, from step 0, or
    with default flags; flags that fit the run, refused beside the defaults, as 96 steps are no rollout of those."""
    algo = load("ppo_continuous")
    algo.train(tiny(algo, tmp_path, env_id="Pendulum-v1", seed=3, gamma=0.9))
    run = run_folder(tmp_path)
    flags = [part.format(run) for part in spelling] + ["--total-timesteps", "96"]
    flags += ["--runs-dir", str(tmp_path / "other"), "--learning-rate", "1e-4"]
    monkeypatch.setattr(sys, "argv", ["ppo_continuous.py", *flags])
    runpy.run_path(str(script("ppo_continuous")), run_name="__main__")
    assert run_folder(tmp_path) == run and not (tmp_path / "other").exists()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["global_step"] == read_checkpoint(run)["global_step"] == 96
    used = summary["args"]
    assert (used["seed"], used["gamma"], used["num_envs"]) == (3, 0.9, 2)  # as saved
    assert (used["total_timesteps"], used["learning_rate"]) == (96, 1e-4)  # as given
    steps = [step for step, _ in scalars(run)["losses/value_loss"]]
    assert steps == sorted(set(steps)) and steps[-1] == 96


def contents(folder) -> dict:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_run_stays_as_it_is(every, tmp_path):
    """Would break: a summary with a speed of 0 and no training return in place of a good one."""
    every.train(tiny(every, tmp_path))
    before = contents(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        every.train(tiny(every, tmp_path, resume=str(run_folder(tmp_path))))
    assert "--total-timesteps" in str(stopped.value) and "\n" not in str(stopped.value)
    assert contents(tmp_path) == before


# ---- evaluations


@every_of("dqn", "sac_continuous")
def test_too_few_steps_to_learn(every, monkeypatch, tmp_path, capsys):
    """Would break: a run that is given more steps and ends before its new replay is full, trained on nothing, without
    a word; one that was stopped shortly before its end, and can never be finished, or says nothing."""
    args = tiny(every, tmp_path)
    enough = every.train(args)["global_step"] + args.learning_starts + 1
    run = run_folder(tmp_path)
    with pytest.raises(
        SystemExit, match="the replay buffer starts empty, .* raise --total-timesteps"
    ):
        every.train(tiny(every, tmp_path, total_timesteps=enough - 1, resume=str(run)))
    summary = every.train(tiny(every, tmp_path, total_timesteps=enough, resume=str(run)))
    assert summary["global_step"] >= enough
    assert json.loads((run / "summary.json").read_text()) == summary
    flags, folder = {"total_timesteps": 17, "checkpoint_frequency": 10}, tmp_path / "stopped"
    stop = []
    at_row(monkeypatch, every, 3, lambda: stop.append(15))
    with pytest.raises(SystemExit):
        every.train(tiny(every, folder, **flags), stop)
    assert read_checkpoint(run_folder(folder))["global_step"] + args.learning_starts > 17
    assert "starts empty" not in capsys.readouterr().err
    every.train(tiny(every, folder, resume=str(run_folder(folder)), **flags))
    assert "starts empty" in capsys.readouterr().err


@every_of("a2c_atari")
def test_a_stop_leaves_what_was_not_yet_logged(every, monkeypatch, tmp_path):
    """Would break: games that ended since the last line of the log, of which it has one in 2,000 steps."""
    stop = []
    at_row(monkeypatch, every, 20, lambda: stop.append(15))
    with pytest.raises(SystemExit):
        every.train(tiny(every, tmp_path, total_timesteps=200), stop)
    run = run_folder(tmp_path)
    assert scalars(run)["charts/episodic_return"][0][0] == read_checkpoint(run)["global_step"]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_evaluations_fall_on_multiples(every, monkeypatch, tmp_path, how):
    """One in the iteration that passes each multiple, and one at the end. Would break: times that start
    anew with each resume, drift by what an iteration is longer, or are lost with a kill."""
    steps = {"eval_frequency": 40, "total_timesteps": 220, "checkpoint_frequency": 30}
    factor, flags = longer(every, **steps)
    resume = ""
    for row in {"stopped": (27, 30, 28), "killed": (27, 30, 28, 33)}[how]:
        stop = []
        event = killed if how == "killed" else functools.partial(stop.append, 15)
        with monkeypatch.context() as patch:
            at_row(patch, every, row * factor, event)
            with pytest.raises(Killed if how == "killed" else SystemExit):
                every.train(tiny(every, tmp_path, resume=resume, **flags), stop)
        resume = str(run_folder(tmp_path))
    summary = every.train(tiny(every, tmp_path, resume=resume, **flags))
    steps = [step for step, _ in scalars(run_folder(tmp_path))["eval/episodic_return"]]
    assert [step // flags["eval_frequency"] for step in steps] == [1, 2, 3, 4, 5, 5]
    assert steps[-1] == summary["global_step"]


@every_of("dqn", "sac_continuous")
def test_evaluations_are_on_time(every, tmp_path):
    """Where 100 is no multiple of the least steps between two lines of the log. Would break: an evaluation that waits
    for the line after next."""
    flags = {"eval_frequency": 100, "checkpoint_frequency": 40, "total_timesteps": 510}
    flags |= {"train_frequency": 50} if has(every, "train_frequency") else {}
    args = tiny(every, tmp_path, **flags)
    summary = every.train(args)
    *steps, last = [step for step, _ in scalars(run_folder(tmp_path))["eval/episodic_return"]]
    assert [step // 100 for step in steps] == [1, 2, 3, 4, 5] and last == summary["global_step"]
    assert max(step % 100 for step in steps) <= args.num_envs


@every_of("dqn")
def test_best_model(every, monkeypatch, tmp_path):
    """Would break: the last model kept in place of the best, a score of the episodes that chose it."""
    scores, seen, seeds = iter([3.0, 9.0, 9.0, 5.0, 7.0]), [], []
    signature = inspect.signature(every.make_envs)

    def note(*args, **kwargs):
        seeds.append(signature.bind(*args, **kwargs).arguments["seed"])

    def evaluate(agent, envs, *_):
        weights = {key: value.clone() for key, value in agent.state_dict().items()}
        seen.append((weights, seeds[-1]))
        return np.full(envs.num_envs, next(scores))

    spy(monkeypatch, every, "make_envs", note)
    monkeypatch.setattr(every, "evaluate", evaluate)
    flags = {"eval_frequency": 1000, "learning_rate": 0.1, "train_frequency": 500}
    summary = every.train(tiny(every, tmp_path, total_timesteps=4000, **flags))
    run = run_folder(tmp_path)
    best = read_checkpoint(run, "best.pt")
    weights = [agent for agent, _ in seen]
    assert len(seen) == 5 and equal(best["agent"], weights[1]) and equal(weights[4], weights[1])
    assert not any(equal(weights[1], weights[i]) for i in (0, 2, 3))
    assert best["eval_return_mean"] == 9.0 and best["global_step"] // 1000 == 2
    first, *_, last = [seed for _, seed in seen]
    assert [seed for _, seed in seen] == [first] * 4 + [last] and abs(first - last) >= 2
    assert (summary["eval_returns"], summary["best_returns"]) == ([5.0, 5.0], [7.0, 7.0])
    assert summary["best_return_mean"] == 7.0
    assert equal(read_checkpoint(run)["agent"], weights[3])


@every_of("dqn")
@pytest.mark.parametrize("given", [{}, {"eval_episodes": 3}], ids=str)
def test_best_model_survives_a_resume(every, monkeypatch, tmp_path, given):
    """Each model has a score of its own, whoever asks. Would break: a resumed run that forgets how good
    the best one was, or takes its score on other episodes for the bar and keeps a worse one."""
    scores, known = iter([3.0, 9.0, 5.0, 4.0, 7.0, 2.0, 6.0, 11.0, 8.0, 1.0]), {}

    def evaluate(agent, envs, *_):
        key = torch.cat([weight.detach().flatten() for weight in agent.parameters()])
        key = key.numpy().tobytes()
        if key not in known:
            known[key] = next(scores)
        return np.full(envs.num_envs, known[key])

    monkeypatch.setattr(every, "evaluate", evaluate)
    flags = {"eval_frequency": 1000, "learning_rate": 0.1, "train_frequency": 500}
    every.train(tiny(every, tmp_path, total_timesteps=3500, **flags))  # 3 9 5 4
    run = run_folder(tmp_path)
    best = read_checkpoint(run, "best.pt")
    assert best["eval_return_mean"] == 9
    for total, expected in ((5500, 9), (7500, 11)):  # 7 2 6, then 11 8 1
        flags |= given
        every.train(tiny(every, tmp_path, resume=str(run), total_timesteps=total, **flags))
        after = read_checkpoint(run, "best.pt")
        assert after["eval_return_mean"] == expected
        assert equal(after["agent"], best["agent"]) == (expected == 9)


@every_of(*[name for name in PARENTS if name not in ("dqn", "dqn_pixels")])
def test_best_evaluation_of_all_sessions(every, monkeypatch, tmp_path):
    """Would break: the last model, or the later one of two equal ones, in best.pt; a resumed run that replaces a better
    one; a file that enjoy.py cannot read."""
    scores, seen = iter([3.0, 9.0, 9.0] + 3 * [5.0]), []
    name = "evaluate_both" if hasattr(every, "evaluate_both") else "evaluate"

    def evaluate(agent, *_):
        returns = np.full(2, next(scores))
        seen.append({key: value.clone() for key, value in agent.state_dict().items()})
        return (returns, returns) if name == "evaluate_both" else returns

    monkeypatch.setattr(every, name, evaluate)
    every.train(tiny(every, tmp_path, eval_frequency=30, total_timesteps=120))
    run = run_folder(tmp_path)
    config, best = json.loads((run / "config.json").read_text()), read_checkpoint(run, "best.pt")
    assert best["eval_return_mean"] == 9.0 and equal(best["agent"], seen[1])
    assert not equal(seen[1], seen[0]) and not equal(seen[1], seen[2])
    assert {key: best[key] for key in config} == config
    assert best["global_step"] // 30 == 2 and best["wall_time_s"] > 0
    scores = iter([7.0, 11.0] + 3 * [10.0])
    before = (run / "best.pt").read_bytes()

    def unchanged(*_):
        assert len(seen) > evaluated + 1 or (run / "best.pt").read_bytes() == before

    evaluated = len(seen)
    spy(monkeypatch, every, name, unchanged)
    flags = {"eval_frequency": 30, "total_timesteps": 240}
    every.train(tiny(every, tmp_path, resume=str(run), **flags))
    best = read_checkpoint(run, "best.pt")
    assert best["eval_return_mean"] == 11.0 and equal(best["agent"], seen[evaluated + 1])


def test_a_best_model_that_cannot_be_read(tmp_path):
    """Would break: a traceback, or a file of the user that is replaced."""
    algo = load("ppo_continuous")
    algo.train(tiny(algo, tmp_path))
    run = run_folder(tmp_path)
    (run / "best.pt").write_bytes(b"half")
    with pytest.raises(SystemExit, match="best.pt cannot be read: .* Remove it") as stopped:
        args = tiny(algo, tmp_path, resume=str(run), total_timesteps=120, eval_frequency=30)
        algo.train(args)
    assert len(str(stopped.value).splitlines()) == 1
    assert (run / "best.pt").read_bytes() == b"half"


# ---- earlier checkpoints


def kept(run) -> list[int]:
    """The steps in the names of the earlier checkpoints."""
    return sorted(int(path.stem.split("-")[1]) for path in run.glob("checkpoint-[0-9]*.pt"))


def test_last_checkpoints_are_kept(every, monkeypatch, tmp_path):
    """Would break: --keep-checkpoints that keeps the first ones, one too many, or a part of what checkpoint.pt has."""
    steps = []
    spy(monkeypatch, every, "save_checkpoint", lambda *given: steps.append(given[2]["global_step"]))
    flags = {"checkpoint_frequency": 10, "keep_checkpoints": 2, "total_timesteps": 64}
    every.train(tiny(every, tmp_path, **flags))
    run = run_folder(tmp_path)
    assert len(steps) > 2 and kept(run) == steps[-2:]
    last, same = (run / "checkpoint.pt"), (run / f"checkpoint-{steps[-1]}.pt")
    last, same, older = (
        read_checkpoint(run, name) for name in (last, same, f"checkpoint-{steps[-2]}.pt")
    )
    assert last.keys() == same.keys() == older.keys() and equal(last["agent"], same["agent"])
    assert (last["global_step"], older["global_step"]) == (steps[-1], steps[-2])
    assert not list(run.glob("*.tmp"))


@every_of("ppo_continuous")
def test_a_run_goes_back_to_an_earlier_checkpoint(every, tmp_path):
    """As docs/runs.md says. Would break: checkpoints of the abandoned steps that push out the new ones, a file of the
    user that is removed."""
    flags = {"checkpoint_frequency": 10, "keep_checkpoints": 3}
    every.train(tiny(every, tmp_path, **flags))
    run = run_folder(tmp_path)
    (run / "checkpoint-good.pt").write_bytes(b"mine")
    first, *abandoned = kept(run)
    shutil.copy(run / f"checkpoint-{first}.pt", run / "checkpoint.pt")
    stop = [15]  # after an iteration
    with pytest.raises(SystemExit):
        every.train(tiny(every, tmp_path, resume=str(run), **flags), stop)
    step = read_checkpoint(run)["global_step"]
    assert first < step < abandoned[-1]
    assert {first, step} < set(kept(run)) and len(kept(run)) == 3
    every.train(tiny(every, tmp_path, resume=str(run), total_timesteps=160, **flags))
    assert kept(run)[-1] == read_checkpoint(run)["global_step"] >= 160
    assert (run / "checkpoint-good.pt").read_bytes() == b"mine"


@pytest.mark.parametrize("how", ["full disk", "killed"])
def test_an_earlier_checkpoint_is_half_written(monkeypatch, tmp_path, how):
    """Would break: a traceback; half a file that stays, also where a kill leaves it; a checkpoint.pt that is lost."""
    algo = load("ppo_continuous")
    save, calls = torch.save, iter(range(10**6))

    def full(content, path):
        if next(calls) == 3:  # the second checkpoint is complete, its copy is not
            path.write_bytes(b"half")
            if how == "killed":
                raise Killed
            raise RuntimeError("[enforce fail at inline_container.cc] . unexpected pos")
        save(content, path)

    flags = {"checkpoint_frequency": 10, "keep_checkpoints": 2}
    with monkeypatch.context() as patch:
        patch.setattr(algo.torch, "save", full)
        with pytest.raises((SystemExit, Killed)) as ended:
            algo.train(tiny(algo, tmp_path, **flags))
    full_disk = re.search(r"checkpoint-\d+.pt cannot be written: .* disk", str(ended.value))
    assert bool(full_disk) == (how == "full disk")
    run = run_folder(tmp_path)
    (first,) = kept(run)
    assert read_checkpoint(run)["global_step"] > first
    assert len(list(run.glob("*.tmp"))) == (how == "killed")
    algo.train(tiny(algo, tmp_path, resume=str(run), **flags))
    assert kept(run)[-1] == read_checkpoint(run)["global_step"] >= 64
    assert not list(run.glob("*.tmp"))


# ---- stops and kills


@pytest.mark.parametrize(("number", "where"), [(2, "train"), (15, "evaluate")])
def test_stop_saves_first(every, monkeypatch, tmp_path, capsys, number, where):
    """Would break: a stopped run that loses steps, or exits as if it had finished; a Ctrl-C that waits for the end of
    an evaluation; an evaluation that was cut short and counts, or that the resumed run leaves out."""
    stop = []
    if where == "train":
        at_row(monkeypatch, every, 5, lambda: stop.append(number))
    else:
        spy(monkeypatch, every, "evaluate", lambda *_, **__: stop.append(number))
    factor, flags = longer(every, total_timesteps=40, eval_frequency=40)
    with pytest.raises(SystemExit) as stopped:
        every.train(tiny(every, tmp_path, **flags), stop)
    assert stopped.value.code == 128 + number
    run = run_folder(tmp_path)
    step = read_checkpoint(run)["global_step"]
    assert 0 <= step < 40 * factor
    assert f"step {step};" in capsys.readouterr().err
    assert not scalars(run).get("eval/episodic_return")
    assert not (run / "summary.json").exists() and not (run / "best.pt").exists()
    every.train(tiny(every, tmp_path, resume=str(run), **flags))
    (evaluated,) = scalars(run)["eval/episodic_return"]
    assert evaluated[0] == read_checkpoint(run)["global_step"] >= 40 * factor
    assert (run / "summary.json").exists()


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac_continuous", "ppo_continuous_seeds"])
def test_ctrl_c_in_the_final_evaluation(name, tmp_path):
    """Would break: a Ctrl-C that waits until the final evaluation ends, here for hours, or that loses the run."""
    (tmp_path / "endless.py").write_text(ENDLESS)
    discrete = name in ("ppo", "dqn")
    env_id = "endless:EndlessDiscrete-v0" if discrete else "endless:EndlessBox-v0"
    flags = ["--env-id", env_id, "--total-timesteps", 300, "--eval-max-steps", 10**9]
    if name in ("dqn", "sac_continuous"):
        flags += ["--learning-starts", 100]
    else:
        flags += ["--num-envs", 4, "--num-steps", 20, "--num-minibatches", 2]
    environment = {"PYTHONPATH": str(tmp_path)}
    process = command_line(*flags, script=script(name), cwd=tmp_path, **environment)
    while not (tmp_path / "evaluating").exists() and process.poll() is None:
        time.sleep(0.05)
    time.sleep(0.5)
    sent = time.time()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, errors
    assert time.time() - sent < 8  # Python needs up to two seconds to end, more on a busy machine
    run = run_folder(tmp_path)
    assert 0 <= read_checkpoint(run)["global_step"] < 300
    assert "--resume" in errors.splitlines()[-1] and str(run.name) in errors.splitlines()[-1]
    assert "Traceback" not in errors
    again = ["--resume", run, "--eval-max-steps", 5]
    process = command_line(*again, script=script(name), cwd=tmp_path, **environment)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert (run / "summary.json").exists()


ENDLESS = """
from pathlib import Path

import gymnasium as gym
import numpy as np


class Endless(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,))

    def __init__(self, actions):
        self.action_space = actions
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps > 1000:  # training is shorter
            Path("evaluating").touch()
        return np.zeros(2, np.float32), 1.0, False, False, {}


gym.register("EndlessDiscrete-v0", lambda: Endless(gym.spaces.Discrete(2)))
gym.register("EndlessBox-v0", lambda: Endless(gym.spaces.Box(-1, 1, (1,))))
"""


def test_stop_before_the_first_iteration(every, tmp_path):
    """Would break: a folder that nothing can resume, left by a signal that came while the environments were made."""
    flags = {"total_timesteps": 120, "eval_frequency": 40}
    with pytest.raises(SystemExit) as stopped:
        every.train(tiny(every, tmp_path, **flags), [2])
    assert stopped.value.code == 128 + 2
    run = run_folder(tmp_path)
    assert 0 <= read_checkpoint(run)["global_step"] < 120
    summary = every.train(tiny(every, tmp_path, resume=str(run), **flags))
    assert run_folder(tmp_path) == run and summary["global_step"] >= 120


def test_signal_from_outside(tmp_path):
    """Would break: a signal that ends in a traceback or in another status when it comes at any moment."""
    flags = ["--total-timesteps", 10**7, "--num-envs", 2, "--checkpoint-frequency", 100]
    process = command_line(*flags, script=script("ppo_continuous"), cwd=tmp_path)
    while not list(tmp_path.glob("runs/*/checkpoint.pt")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT, errors
    first, *_ = errors.splitlines()
    assert first.startswith("stopping after this iteration") and "second Ctrl-C" in first
    assert "Traceback" not in errors
    assert read_checkpoint(run_folder(tmp_path))["global_step"] > 0


KILLER = """
import json, os, random, signal, sys, time
from pathlib import Path
import torch
from conftest import load, tiny

torch.set_num_threads(1)
folder, rng, steps, last = Path(sys.argv[1]), random.Random(0), [], 0
algo, runs = load("ppo_continuous"), folder / "runs"
algo.train(tiny(algo, folder / "warm"))  # loads what is loaded late
flags = dict(checkpoint_frequency=1, total_timesteps=10**7, eval_frequency=100, eval_episodes=1)
for attempt in range(6):
    resume = str(next(runs.iterdir())) if runs.exists() else ""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        algo.train(tiny(algo, folder, resume=resume, **flags))
    while not (saved := list(runs.glob("*/checkpoint.pt"))) or saved[0].stat().st_mtime_ns == last:
        time.sleep(0.001)
    time.sleep(rng.uniform(0, 0.2))
    assert os.waitpid(child, os.WNOHANG) == (0, 0), "the run ended by itself"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    (saved,) = runs.glob("*/checkpoint.pt")
    steps.append(torch.load(saved, weights_only=True)["global_step"])
    last = saved.stat().st_mtime_ns
time.sleep(1.1)
algo.train(tiny(algo, folder, resume=str(saved.parent), **flags | {"total_timesteps": steps[-1] + 80}))
print(json.dumps(steps))
"""


@pytest.mark.slow
def test_kill_at_random_moments(tmp_path):
    """All files share `write`. Would break: a checkpoint written in place, which a kill leaves half-written; one that
    cannot be resumed; an evaluation lost or made twice."""
    (tmp_path / "killer.py").write_text(KILLER)
    path = str(ROOT / "tests")
    process = command_line(tmp_path, script=tmp_path / "killer.py", cwd=tmp_path, PYTHONPATH=path)
    output, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    steps = json.loads(output.splitlines()[-1])
    assert len(steps) == 6 and steps == sorted(steps) and len(set(steps)) > 3
    run = run_folder(tmp_path)
    assert json.loads((run / "summary.json").read_text())["global_step"] >= steps[-1] + 80
    assert not list(run.glob("*.tmp"))
    logged = scalars(run)
    curve = [step for step, _ in logged["charts/SPS"]]
    assert curve == sorted(set(curve)) and curve[-1] >= steps[-1] + 80
    evaluated = [step // 100 for step, _ in logged["eval/episodic_return"]][:-1]
    assert evaluated == [*range(1, len(evaluated) + 1)]


# ---- what cannot be resumed


class Evil:
    """Unpickling this creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_a_checkpoint_runs_no_code(tmp_path, kind):
    """Would break: a checkpoint that runs code when it is read."""
    algo, trap, run = load("ppo_continuous"), tmp_path / "trap", tmp_path / "run"
    run.mkdir()
    if kind == "pickle":
        (run / "checkpoint.pt").write_bytes(pickle.dumps(Evil(trap)))
    else:
        content = {"algo": algo.__name__, "args": {}, "agent": Evil(trap)}
        torch.save(content, run / "checkpoint.pt")
    with pytest.raises(SystemExit, match="--resume .*is damaged or not a checkpoint"):
        algo.train(tiny(algo, tmp_path, resume=str(run)))
    assert not trap.exists() and not (tmp_path / "runs").exists()


def test_a_file_of_a_run_is_no_run(tmp_path):
    """Would break: --resume RUN/best.pt that ends in a traceback."""
    algo = load("dqn")
    algo.train(tiny(algo, tmp_path))
    for name in ("best.pt", "checkpoint.pt", "summary.json"):
        path = run_folder(tmp_path) / name
        assert path.exists()
        with pytest.raises(SystemExit, match=f"--resume {path}"):
            algo.load_checkpoint(str(path))


OTHER = [(name, "env_id") for name in [*LOOPS, "trpo_continuous"]]  # of each check_resume()
OTHER += [("ppo_continuous", "activation"), ("ppo_continuous", "norm_obs")]


@pytest.mark.parametrize(("every", "name"), OTHER, indirect=["every"])
def test_other_functions_under_trained_weights(every, name, tmp_path):
    """Would break: weights of Pendulum in another environment, of SiLU under tanh, of standardised
    observations under raw ones."""
    every.train(tiny(every, tmp_path))
    run = run_folder(tmp_path)
    was = getattr(tiny(every, tmp_path), name)
    other = toy(every, "Uneven") if every.__name__ not in ATARI else "PongNoFrameskip-v4"
    value = {"env_id": other, "norm_obs": not was, "activation": "Tanh"}[name]
    if value == was:
        value = "SiLU"
    before = contents(tmp_path)
    args = tiny(every, tmp_path, resume=str(run), total_timesteps=200, **{name: value})
    with pytest.raises(SystemExit) as stopped:
        every.train(args)
    message = str(stopped.value)
    assert name.replace("_", "-") in message.replace("_", "-") and str(was) in message
    assert len(message.splitlines()) == 1
    assert contents(tmp_path) == before
