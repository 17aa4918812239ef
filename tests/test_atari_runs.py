"""Runs of the Atari files: what they leave, one seed twice, resume, signals, bad input. See test_runs.py."""

import itertools
import json
import os
import pickle
import re
import shutil
import signal
import time

import conftest
import cv2
import numpy as np
import pytest
import torch
from conftest import (
    ALGOS,
    ATARI,
    ROOT,
    cheap,
    command_line,
    load,
    only,
    read_checkpoint,
    run_folder,
    scalars,
    spy,
)
from conftest import tiny_atari as tiny
from test_bad_input import flag, hide, refused
from test_runs import SUMMARY, Evil

CHARTS = {"charts/episodic_return", "charts/episodic_length", "charts/SPS", "eval/episodic_return"}
LOSSES = {
    "ppo_atari": {
        "policy_loss",
        "value_loss",
        "entropy",
        "approx_kl",
        "clipfrac",
        "explained_variance",
    },
    "a2c_atari": {"policy_loss", "value_loss", "entropy", "explained_variance"},
    "dqn_atari": {"td_loss", "q_values"},
}


def test_run_folder(small, tmp_path):
    """Would break: a key of the tables and plots that is missing, a summary unlike what train() returned."""
    summary = small.train(tiny(small, tmp_path, seed=4, total_timesteps=40, eval_frequency=20))
    run, name = run_folder(tmp_path), small.__name__
    assert re.fullmatch(rf"BreakoutNoFrameskip-v4__{name}__4__\d+", run.name)
    assert {path.name.split(".")[0] for path in run.iterdir()} == {
        "config",
        "checkpoint",
        "summary",
        "events",
    }
    assert json.loads((run / "summary.json").read_text()) == summary and summary.keys() >= SUMMARY
    assert (summary["algo"], summary["env_id"], summary["seed"]) == (
        name,
        "BreakoutNoFrameskip-v4",
        4,
    )
    assert summary["versions"].keys() == {"torch", "numpy", "gymnasium", "ale_py"}
    logged = scalars(run)
    assert logged.keys() >= CHARTS | {f"losses/{key}" for key in LOSSES[name]}
    assert all(np.isfinite(value) for points in logged.values() for _, value in points)
    evaluated = [step for step, _ in logged["eval/episodic_return"]]
    assert (
        len(evaluated) == 2 and 20 <= evaluated[0] < 36 and evaluated[1] == summary["global_step"]
    )
    assert read_checkpoint(run).keys() >= {
        "args",
        "agent",
        "optimizer",
        "global_step",
        "versions",
        "commit",
    }


def test_an_id_with_a_slash(small, tmp_path):
    """Would break: a run that hides in a folder of its own."""
    small.train(tiny(small, tmp_path, env_id="ALE/Breakout-v5"))
    assert run_folder(tmp_path).name.startswith("ALE-Breakout-v5__")


@only("a2c_atari", "dqn_atari")
def test_log_every_2000_steps(small, monkeypatch, tmp_path):
    """Would break: a line for each of a million updates."""
    monkeypatch.setattr(
        small, "update", lambda *_: torch.ones(3 if small.__name__ == "a2c_atari" else 2)
    )
    flags = {"learning_starts": 9} if small.__name__ == "dqn_atari" else {}
    small.train(
        tiny(small, tmp_path, total_timesteps=4100, num_envs=8 if not flags else 3, **flags)
    )
    logged = scalars(run_folder(tmp_path))
    points = [step for step, _ in logged["charts/episodic_return"]]
    assert (
        [step // 2000 for step in points] == [1, 2, 2]
        and points[1] - 4000 < 64
        and points[2] >= 4100
    )
    assert [
        step for step, _ in logged["losses/td_loss" if flags else "losses/value_loss"]
    ] == points
    assert logged["charts/SPS"][0][1] > 0


@pytest.mark.parametrize("env_id", ["ShortBreakout-v4"])
def test_same_seed_same_metrics(atari, monkeypatch, tmp_path, env_id):
    """Would break: any generator that is not seeded, any order that depends on time or threads."""
    cheap(atari, monkeypatch)
    returns, logged = conftest.seeds_1_1_2(
        atari, tiny, tmp_path, env_id=env_id, total_timesteps=240, eval_episodes=2
    )
    assert (returns[0], logged[0]) == (returns[1], logged[1])
    key = "losses/td_loss" if atari.__name__ == "dqn_atari" else "losses/value_loss"
    assert logged[0][key] != logged[2][key]


def test_evaluating_on_the_way_does_not_change_training(small, tmp_path):
    """Would break: an evaluation that draws from training's generators, or steps its environments."""
    assert not conftest.is_disturbed_by_evaluations(small, tiny, tmp_path, 10, total_timesteps=60)


def same(one, other) -> bool:
    """Two checkpoints' parts, tensors and all."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_resume_restores_everything(small, monkeypatch, tmp_path):
    """Would break: an optimiser, a target network, a generator or a replay that starts afresh. The first thing a
    resumed run writes is its own state; then it goes on, with its curve."""
    flags = {"save_replay": True} if small.__name__ == "dqn_atari" else {}
    small.train(tiny(small, tmp_path, **flags))
    run, written = run_folder(tmp_path), []
    saved, before = read_checkpoint(run), scalars(run)
    if flags:
        replay = torch.load(run / saved["replay"], weights_only=True)
        assert replay["filled"] == 16 and replay["valid"][15].any()
        replay["valid"][15] = False  # its next observation never comes
    spy(
        monkeypatch,
        small,
        "write",
        lambda path, content: written.append((path.name, pickle.dumps(content))),
    )
    monkeypatch.setattr(small.time, "time", lambda: 0.0)
    args = tiny(small, tmp_path, resume=str(run / "checkpoint.pt"), total_timesteps=56, **flags)
    summary = small.train(args)
    first = next(pickle.loads(content) for name, content in written if name == "checkpoint.pt")
    for key in {"agent", "optimizer", "random_states", "global_step"} | (
        {"target_agent", "replay"} if flags else set()
    ):
        assert same(first[key], saved[key]), key
    assert all(tensor.any() for tensor in saved["optimizer"]["state"][0].values())
    if flags:
        assert same(
            pickle.loads(next(content for name, content in written if name.startswith("replay"))),
            replay,
        )
        assert [path.name for path in run.glob("replay*")] == [read_checkpoint(run)["replay"]]
    assert summary["global_step"] >= 56 and run_folder(tmp_path) == run
    logged = scalars(run)
    for key in logged.keys() - {"eval/episodic_return"}:
        steps = [step for step, _ in logged[key]]
        assert steps == sorted(set(steps)) and logged[key][: len(before[key])] == before[key], key


@only("dqn_atari")
def test_resume_without_a_saved_replay_fills_a_new_one(small, monkeypatch, tmp_path):
    """Would break: updates from an empty replay, or from a few rows of it."""
    small.train(tiny(small, tmp_path))
    run, filled, sample = run_folder(tmp_path), [], small.Replay.sample
    assert read_checkpoint(run)["replay"] == "" and not list(run.glob("replay*"))

    def watch(self, size):
        filled.append(self.filled)
        return sample(self, size)

    monkeypatch.setattr(small.Replay, "sample", watch)
    small.train(
        tiny(
            small,
            tmp_path,
            resume=str(run),
            total_timesteps=80,
            learning_starts=20,
            train_frequency=1,
        )
    )
    assert filled[0] == 10


@only("dqn_atari")
def test_replay_that_cannot_be_used(small, tmp_path, capsys):
    """Would break: a run that goes on without the replay it was told to keep; a traceback."""
    small.train(tiny(small, tmp_path / "first", save_replay=True))
    run, nothing = run_folder(tmp_path / "first"), tmp_path / "second"
    nothing.mkdir(), capsys.readouterr()
    for flags in ({"num_envs": 1}, {"buffer_size": 100}):
        args = tiny(small, nothing, resume=str(run), total_timesteps=99, **flags)
        refused(small, args, capsys, nothing, "--resume", "--num-envs", "--buffer-size")
    (replay,) = run.glob("replay*")
    whole = replay.read_bytes()
    for content in (whole[:1000], b"", None):
        replay.write_bytes(content) if content is not None else replay.unlink()
        args = tiny(small, nothing, resume=str(run), total_timesteps=99)
        refused(small, args, capsys, nothing, "--resume", "replay")
    replay.write_bytes(whole)
    small.train(tiny(small, tmp_path, resume=str(run), total_timesteps=40))


KILLER = """
import itertools, json, os, random, signal, sys, time
from pathlib import Path
import pytest, torch
from conftest import cheap, load, tiny_atari
from toy_envs import FakeAtari

torch.set_num_threads(1)
name, folder, rng, steps, last = sys.argv[1], Path(sys.argv[2]), random.Random(0), [], 0
algo, runs = load(name), folder / "runs"
cheap(algo, pytest.MonkeyPatch())
algo.AtariVectorEnv, algo.evaluate = FakeAtari, lambda agent, envs, *_: [0.0] * envs.num_envs
flags = {"save_replay": True, "buffer_size": 2000} if name == "dqn_atari" else {}
algo.train(tiny_atari(algo, folder / "warm", **flags))  # loads what is loaded late
flags |= dict(checkpoint_frequency=1, total_timesteps=10**7)
for attempt in range(10):
    resume = str(next(runs.iterdir())) if runs.exists() else ""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        algo.train(tiny_atari(algo, folder, resume=resume, **flags))
    while not (saved := list(runs.glob("*/checkpoint.pt"))) or saved[0].stat().st_mtime_ns == last:
        time.sleep(0.001)
    time.sleep(rng.uniform(0, 0.4))
    assert os.waitpid(child, os.WNOHANG) == (0, 0), "the run ended by itself"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    (saved,) = runs.glob("*/checkpoint.pt")
    state = torch.load(saved, weights_only=True)
    if flags.get("save_replay"):
        replay = torch.load(saved.parent / state["replay"], weights_only=True)
        assert len(replay["frame"]) == replay["filled"]
    steps.append(state["global_step"])
    last = saved.stat().st_mtime_ns
time.sleep(1.1)  # TensorBoard orders the files of a run by the second they were opened in, then by process number
algo.train(tiny_atari(algo, folder, resume=str(saved), **(flags | {"total_timesteps": steps[-1] + 40})))
print(json.dumps([steps, [path.name for path in saved.parent.glob("replay*")]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn_atari"])  # the others save as ppo_continuous.py does
def test_kill_at_10_random_moments(name, tmp_path):
    """Would break: a checkpoint or a replay written in place; one removed before the checkpoint that names it; parts of
    replays left behind."""
    (tmp_path / "killer.py").write_text(KILLER)
    process = command_line(
        name, tmp_path, script=tmp_path / "killer.py", cwd=tmp_path, PYTHONPATH=str(ROOT / "tests")
    )
    output, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    steps, replays = json.loads(output.splitlines()[-1])
    assert len(steps) == 10 and steps == sorted(steps) and len(set(steps)) > 3
    assert len(replays) == (name == "dqn_atari")
    curve = [step for step, _ in scalars(run_folder(tmp_path))["charts/SPS"]]
    assert curve == sorted(set(curve)) and curve[-1] >= steps[-1] + 40


@pytest.mark.parametrize(("number", "where"), [(2, "train"), (15, "evaluate")])
def test_stop_saves_first(small, monkeypatch, tmp_path, capsys, number, where):
    """Would break: a stopped run that loses steps, or counts an evaluation that was cut short."""
    stop, calls, step = [], itertools.count(1), small.AtariVectorEnv.step

    def until(envs, actions):
        if envs.training == (where == "train") and next(calls) == (5 if where == "train" else 2):
            stop.append(number)
        return step(envs, actions)

    monkeypatch.setattr(small.AtariVectorEnv, "step", until)
    with pytest.raises(SystemExit) as stopped:
        small.train(tiny(small, tmp_path, total_timesteps=10**6, eval_frequency=20), stop)
    assert stopped.value.code == 128 + number
    assert capsys.readouterr().err.startswith(f"{small.__name__}.py: stopped at step ")
    run = run_folder(tmp_path)
    assert read_checkpoint(run)["global_step"] == len(small.AtariVectorEnv.rows)
    assert "eval/episodic_return" not in scalars(run) and not (run / "summary.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"), [*zip(ATARI, itertools.cycle([signal.SIGTERM, signal.SIGINT]))]
)
def test_signal_from_outside(name, number, tmp_path):
    """Would break: a signal that ends in a traceback or in another status when it comes at any moment."""
    process = command_line(
        "--total-timesteps", 10**7, "--num-envs", 2, script=ALGOS / f"{name}.py", cwd=tmp_path
    )
    while not list(tmp_path.glob("runs/*/checkpoint.pt")) and process.poll() is None:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number, errors
    assert "Traceback" not in errors
    assert read_checkpoint(run_folder(tmp_path))["global_step"] > 0


@pytest.mark.parametrize("kind", ["text", "pickle", "torch", "missing", "list", "other"])
def test_foreign_file_as_resume(small, tmp_path, capsys, kind):
    """Would break: a checkpoint that runs code when it is read; a traceback for a wrong path."""
    path, trap, other = (
        tmp_path / "checkpoint.pt",
        tmp_path / "trap",
        ATARI[ATARI.index(small.__name__) - 1],
    )
    if kind == "text":
        path.write_text("hello")
    elif kind == "pickle":
        path.write_bytes(pickle.dumps(Evil(trap)))
    elif kind == "torch":
        torch.save({"algo": small.__name__, "args": {}, "agent": Evil(trap)}, path)
    elif kind == "list":
        torch.save([1, 2, 3], path)
    elif kind == "other":
        torch.save({"algo": other, "args": vars(load(other).Args())}, path)
    with pytest.raises(SystemExit) as stopped:
        small.train(tiny(small, tmp_path, resume=str(path)))
    assert stopped.value.code == 2
    output, errors = capsys.readouterr()
    assert (
        output == ""
        and len(errors.splitlines()) == 1
        and "--resume" in errors
        and str(path) in errors
    )
    assert kind != "other" or other in errors
    assert not trap.exists() and not (tmp_path / "runs").exists()


def test_resume_of_another_game(small, tmp_path, capsys):
    """Would break: weights of another game loaded into the agent."""
    small.train(tiny(small, tmp_path / "first"))
    nothing = tmp_path / "second"
    nothing.mkdir(), capsys.readouterr()
    args = tiny(
        small, nothing, resume=str(run_folder(tmp_path / "first")), env_id="PongNoFrameskip-v4"
    )
    refused(small, args, capsys, nothing, "--resume", "BreakoutNoFrameskip-v4")


COUNTS = "num_envs num_steps num_minibatches update_epochs total_timesteps eval_episodes checkpoint_frequency batch_size"
COUNTS += " train_frequency target_network_frequency buffer_size learning_starts"
SHARES = "start_e end_e eval_e tau gamma gae_lambda"
BAD = [
    ({"env_id": "BreakoutNoFramskip-v4"}, ["BreakoutNoFrameskip-v4"]),
    ({"env_id": "ALE/Breakot-v5"}, ["ALE/Breakout-v5"]),
    ({"env_id": "Pong"}, ["Pong"]),
    ({"env_id": "CartPole-v1"}, ["Atari"]),
    ({"env_id": ""}, []),
    ({"env_id": "no_such_module:Pong-v4"}, []),
    ({"env_id": "Breakout-v4"}, ["frame skip", "NoFrameskip-v4"]),
    ({"env_id": "Breakout-v0"}, ["frame skip"]),
    *[({name: value}, []) for name in COUNTS.split() for value in (0, -1)],
    *[({name: -1}, []) for name in ("frame_skip", "eval_frequency", "torch_threads", "seed")],
    *[({name: -1.0}, []) for name in ("max_grad_norm", "clip_coef", "rms_alpha", "rms_eps")],
    *[({"learning_rate": value}, []) for value in (0.0, -1e-3, float("nan"))],
    *[({name: value}, []) for name in SHARES.split() for value in (-0.1, 1.1, float("nan"))],
    ({"exploration_fraction": 2.0}, []),
    ({"seed": 2**40}, []),
    ({"num_steps": 1}, ["2"]),
    ({"num_steps": 2**20, "total_timesteps": 2**21}, [str(2**21), "8 GiB"]),
    ({"num_minibatches": 3}, ["16"]),
    ({"num_minibatches": 16}, []),
    ({"total_timesteps": 15}, ["16"]),
    ({"buffer_size": 15}, ["16"]),
    ({"learning_starts": 65}, ["64"]),
    ({"learning_starts": 5}, ["6"]),
    ({"device": "cuda"}, ["auto"]),
    ({"device": "mps"}, ["auto"]),
    ({"track": True}, ["wandb"]),
    ({"capture_video": True}, ["moviepy"]),
    ({"resume": "no/such/run"}, ["no/such/run"]),
]


@pytest.mark.parametrize("name", ATARI)
def test_refused(name, monkeypatch, tmp_path, capsys):
    """Would break: a traceback, a run that fails after an hour, an empty run folder."""
    algo = load(name)
    for package in ("wandb", "moviepy"):
        hide(monkeypatch, package)
    for device in ("cuda", "mps", "backends.mps"):
        monkeypatch.setattr(f"torch.{device}.is_available", lambda: False)
    tried = 0
    for flags, words in BAD:
        key = next(iter(flags))
        if hasattr(algo.Args, key) and not (
            name == "dqn_atari" and flags == {"total_timesteps": 15}
        ):
            refused(algo, tiny(algo, tmp_path, **flags), capsys, tmp_path, flag(key), *words)
            tried += 1
    assert tried > 30


def test_non_finite_loss_stops_the_run(small, tmp_path, capsys):
    """Would break: a run that goes on with weights that are not numbers, or saves them."""
    with pytest.raises(SystemExit) as stopped:
        small.train(
            tiny(small, tmp_path, learning_rate=1e30, total_timesteps=1000, checkpoint_frequency=1)
        )
    assert stopped.value.code not in (0, None)
    (line,) = capsys.readouterr().err.splitlines()
    assert "loss" in line and re.search(r"step \d+", line)
    assert all(
        value.isfinite().all() for value in read_checkpoint(run_folder(tmp_path))["agent"].values()
    )


def test_videos_show_the_evaluated_games(atari, monkeypatch, tmp_path):
    """Would break: films of other games than those whose returns are reported; of the frames of the next game."""
    imageio = pytest.importorskip("imageio.v3")
    cheap(atari, monkeypatch)
    seen, make_envs = [], atari.make_envs

    def watched(args, num_envs, seed, **view):
        envs, obs, info = make_envs(args, num_envs, seed, **view)
        step = envs.step

        def keep(action):
            result = step(action)
            seen.append((result[0][:, -1].copy(), result[2] | result[3]))
            return result

        if seed >= 2**30 and not view:
            envs.step = keep
        return envs, obs, info

    monkeypatch.setattr(atari, "make_envs", watched)
    atari.train(
        tiny(atari, tmp_path, env_id="ShortBreakout-v4", capture_video=True, eval_episodes=4)
    )
    films = sorted((run_folder(tmp_path) / "videos").rglob("*.mp4"))
    assert [film.name for film in films] == ["env-0.mp4", "env-1.mp4", "env-2.mp4"]
    for i, film in enumerate(films):
        frames = imageio.imread(film)
        length = 1 + next(k for k, (_, done) in enumerate(seen) if done[i])
        assert frames.shape == (length, 210, 160, 3)
        assert (frames.max(-1).astype(int) - frames.min(-1)).max() > 100  # in colour
        errors = []  # of each frame from what each of the four saw then
        for frame, (grey, _) in zip(frames, seen):
            small = cv2.resize(
                cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), (84, 84), interpolation=cv2.INTER_AREA
            )
            errors.append([np.abs(small.astype(int) - one).mean() for one in grey])
        assert np.max(errors, axis=0)[i] < 3 and np.argmin(np.sum(errors, axis=0)) == i, np.sum(
            errors, axis=0
        )


@pytest.mark.slow
@only("ppo_atari", "dqn_atari")  # to save time: a2c_atari.py compiles what ppo_atari.py does
@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler")
def test_compiled(fake, monkeypatch, tmp_path):
    """Would break: --compile on a CPU; other losses than without it."""
    logged = []
    for compiled in (False, True):
        folder = tmp_path / str(compiled)
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
        fake.train(tiny(fake, folder, compile=compiled, total_timesteps=16, eval_episodes=1))
        points = scalars(run_folder(folder))
        logged.append([points[key][0][1] for key in points if key.startswith("losses/")])
    assert os.listdir(tmp_path / "cache")
    assert logged[1] == pytest.approx(logged[0], rel=0.2, abs=0.02)
