"""What a run leaves: checkpoints that survive any end, resumed curves, summaries, the same metrics for one seed."""

import json
import math
import os
import pickle
import re
import signal
import time

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import (
    ALGOS,
    ROOT,
    command_line,
    is_disturbed_by_evaluations,
    load,
    read_checkpoint,
    run_folder,
    scalars,
    seeds_1_1_2,
    spy,
    tiny,
)

CHARTS = {"charts/episodic_return", "charts/episodic_length", "charts/SPS", "charts/learning_rate"}
LOSSES = {
    f"losses/{name}" for name in ("policy_loss", "value_loss", "entropy", "approx_kl", "clipfrac")
}
KEYS = CHARTS | LOSSES | {"losses/explained_variance", "eval/episodic_return"}
SUMMARY = {
    "algo",
    "env_id",
    "seed",
    "total_timesteps",
    "global_step",
    "wall_time_s",
    "sps",
    "eval_return_mean",
    "eval_return_std",
    "eval_returns",
    "eval_episodes",
    "train_return_last100",
    "device",
    "args",
    "versions",
    "commit",
}
TINY = [
    "--env-backend",
    "gymnasium",
    "--num-envs",
    2,
    "--num-steps",
    8,
    "--num-minibatches",
    2,
    "--update-epochs",
    1,
]


def test_run_folder(algo, tmp_path, capsys):
    """Would break: a key of the tables and plots that is missing, or a summary unlike what train() returned."""
    summary = algo.train(
        tiny(algo, tmp_path, total_timesteps=450, num_steps=32, eval_frequency=200, seed=4)
    )
    run = run_folder(tmp_path)
    assert re.fullmatch(rf"Pendulum-v1__{algo.__name__}__4__\d+", run.name)
    assert {"config.json", "checkpoint.pt", "summary.json"} <= {path.name for path in run.iterdir()}
    assert not list(run.glob("*.tmp"))
    assert json.loads((run / "summary.json").read_text()) == summary
    assert summary.keys() >= SUMMARY
    assert (summary["algo"], summary["env_id"], summary["seed"]) == (
        algo.__name__,
        "Pendulum-v1",
        4,
    )
    assert summary["args"]["num_steps"] == 32 and summary["device"] == "cpu"
    assert summary["versions"]["torch"] == torch.__version__ and summary["commit"]
    assert len(summary["eval_returns"]) == summary["eval_episodes"] == 2
    assert summary["eval_return_mean"] == pytest.approx(np.mean(summary["eval_returns"]))
    assert summary["sps"] > 0 and summary["wall_time_s"] > 0
    logged = scalars(run)
    assert logged.keys() >= KEYS
    assert all(math.isfinite(value) for points in logged.values() for _, value in points)
    assert [step for step, _ in logged["eval/episodic_return"]] == [
        256,
        510,
    ]  # none before training, one at its end
    assert logged["eval/episodic_return"][-1] == (
        summary["global_step"],
        pytest.approx(summary["eval_return_mean"]),
    )
    assert read_checkpoint(run).keys() >= {
        "args",
        "agent",
        "optimizer",
        "global_step",
        "versions",
        "commit",
    }
    assert "0x" not in capsys.readouterr().err


def test_slashes_in_an_id_become_dashes(algo, tmp_path):
    """Would break: a run that hides in a folder of its own."""
    if "tests/Counter-v0" not in gym.registry:
        gym.register("tests/Counter-v0", entry_point="toy_envs:Counter")
    algo.train(tiny(algo, tmp_path, env_id="tests/Counter-v0"))
    assert run_folder(tmp_path).name.startswith("tests-Counter-v0__")


def test_videos(algo, tmp_path):
    """Would break: --capture-video that records nothing."""
    algo.train(tiny(algo, tmp_path, capture_video=True, eval_episodes=1))
    videos = list((run_folder(tmp_path) / "videos").rglob("*.mp4"))
    assert len(videos) == 1 and videos[0].stat().st_size > 1000


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_same_seed_same_metrics(algo, tmp_path, backend):
    """Would break: any generator that is not seeded, any order that depends on time."""
    returns, logged = seeds_1_1_2(
        algo, tiny, tmp_path, env_backend=backend, num_steps=64, total_timesteps=450
    )
    assert returns[0] == returns[1] != returns[2]
    assert logged[0] == logged[1]
    for key in KEYS - {
        "charts/SPS",
        "charts/learning_rate",
        "charts/episodic_length",
        "losses/clipfrac",
    }:
        assert logged[0][key] != logged[2][key]


def test_evaluating_on_the_way_does_not_change_training(algo, tmp_path):
    """Would break: an evaluation that draws from training's generators, or steps its environments."""
    assert not is_disturbed_by_evaluations(algo, tiny, tmp_path, 16, env_id="Counter-v0")


def test_checkpoint_round_trip(algo, monkeypatch, tmp_path):
    """Would break: a part of the agent, such as its statistics, that is not saved."""
    agents, x = [], torch.randn(20, 3)
    spy(monkeypatch, algo, "evaluate", lambda agent, *_: agents.append(agent))
    args = tiny(algo, tmp_path, total_timesteps=450, num_steps=64)
    algo.train(args)
    checkpoint = read_checkpoint(run_folder(tmp_path))
    envs, _ = algo.make_envs(args, "gymnasium", 1, 0)
    agent = algo.Agent(3, envs.single_action_space, algo.Args(**checkpoint["args"]))
    assert not torch.equal(agent.normalize(x), agents[-1].normalize(x))
    agent.load_state_dict(checkpoint["agent"])
    assert torch.equal(agent.normalize(x), agents[-1].normalize(x))
    assert torch.equal(agent.get_value(x), agents[-1].get_value(x))
    actions = []
    for one in (agent, agents[-1]):
        torch.manual_seed(0)
        actions.append(one.get_action(one.normalize(x)))
    assert all(torch.equal(*both) for both in zip(*actions))
    assert agent.return_rms.count > 0 and torch.equal(
        agent.return_rms.var, agents[-1].return_rms.var
    )


def test_resume_from_the_command_line(algo, tmp_path):
    """Would break: a resumed run in a folder of its own, from step 0, with default flags, or with a doubled curve."""
    algo.train(tiny(algo, tmp_path, seed=3, gamma=0.9, learning_rate=1e-3))
    run = run_folder(tmp_path)
    before = scalars(run)
    flags = (
        "--resume",
        run,
        "--total-timesteps",
        128,
        "--update-epochs",
        3,
        "--runs-dir",
        tmp_path / "other",
    )
    process = command_line(*flags, script=ALGOS / f"{algo.__name__}.py", cwd=tmp_path)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    assert run_folder(tmp_path) == run and not (tmp_path / "other").exists()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["global_step"] == read_checkpoint(run)["global_step"] == 128
    used = summary["args"]
    assert (used["seed"], used["gamma"], used["num_envs"]) == (3, 0.9, 2)  # as saved
    assert (used["total_timesteps"], used["update_epochs"]) == (128, 3)  # as given beside --resume
    logged = scalars(run)
    for key in LOSSES | {"charts/learning_rate"}:
        assert [step for step, _ in logged[key]] == [16, 32, 48, 64, 80, 96, 112, 128], key
        assert logged[key][:4] == before[key], "the first part of the curve was trained again"
    evaluated = [step for step, _ in logged["eval/episodic_return"]]
    assert evaluated == sorted(set(evaluated)) and evaluated[-1] == 128
    assert [rate for _, rate in logged["charts/learning_rate"]][4:] == pytest.approx(
        [5e-4, 3.75e-4, 2.5e-4, 1.25e-4]
    )


def test_resume_restores_everything(algo, monkeypatch, tmp_path):
    """Would break: an optimiser that starts afresh, which throws the policy off at the first step."""
    algo.train(tiny(algo, tmp_path))
    run, seen = run_folder(tmp_path), []
    saved = read_checkpoint(run)

    def first(agent, optimizer, *_):
        if not seen:
            seen.extend(
                [
                    {key: value.clone() for key, value in agent.state_dict().items()},
                    optimizer.state_dict(),
                ]
            )
            for key, value in saved["optimizer"]["state"].items():
                for name, tensor in value.items():
                    assert torch.equal(optimizer.state_dict()["state"][key][name], tensor)

    spy(monkeypatch, algo, "update", first)
    algo.train(tiny(algo, tmp_path, resume=str(run / "checkpoint.pt"), total_timesteps=128))
    assert all(
        torch.equal(seen[0][key], value)
        for key, value in saved["agent"].items()
        if "return_rms" not in key
    )
    assert saved["optimizer"]["state"][0]["step"] == 16  # 4 rollouts x 2 epochs x 2 minibatches
    assert read_checkpoint(run)["optimizer"]["state"][0]["step"] == 32


KILLER = """
import importlib.util, json, os, random, signal, sys, time
from pathlib import Path
import torch

path, runs, rng = Path(sys.argv[1]), Path(sys.argv[2]), random.Random(0)
torch.set_num_threads(1)
spec = importlib.util.spec_from_file_location(path.stem, path)
module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
flags = dict(env_id="Pendulum-v1", env_backend="gymnasium", runs_dir=str(runs), num_envs=2, num_steps=4,
             num_minibatches=1, update_epochs=1, checkpoint_frequency=1, total_timesteps=10**7, eval_episodes=1)
module.train(module.Args(**flags | dict(total_timesteps=8, runs_dir=str(runs) + "-warm")))  # loads what is loaded late
steps, last = [], 0
for attempt in range(20):
    resume = str(next(runs.iterdir())) if runs.exists() else ""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        module.train(module.Args(resume=resume, **flags))
    while not (saved := list(runs.glob("*/checkpoint.pt"))) or saved[0].stat().st_mtime_ns == last:
        time.sleep(0.001)
    time.sleep(rng.uniform(0, 0.3))
    assert os.waitpid(child, os.WNOHANG) == (0, 0), "the run ended by itself"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    (saved,) = runs.glob("*/checkpoint.pt")
    steps.append(torch.load(saved, weights_only=True)["global_step"])
    last = saved.stat().st_mtime_ns
print(json.dumps(steps))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "algo", ["ppo_continuous"], indirect=True
)  # rpo_continuous.py and ppo.py save as it does
def test_kill_at_20_random_moments(algo, tmp_path):
    """Would break: a checkpoint written in place, which a kill leaves half-written; one that cannot be resumed."""
    (tmp_path / "killer.py").write_text(KILLER)
    file = ALGOS / f"{algo.__name__}.py"
    process = command_line(file, tmp_path / "runs", script=tmp_path / "killer.py", cwd=tmp_path)
    output, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    steps = json.loads(output.splitlines()[-1])
    assert len(steps) == 20 and steps == sorted(steps) and len(set(steps)) > 10
    run = run_folder(tmp_path)
    total = steps[-1] + 80
    process = command_line("--resume", run, "--total-timesteps", total, script=file, cwd=tmp_path)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    assert json.loads((run / "summary.json").read_text())["global_step"] == total
    curve = [step for step, _ in scalars(run)["losses/value_loss"]]
    assert curve == sorted(set(curve)) and curve[-1] == total


@pytest.mark.slow
def test_signals_save_first(algo, tmp_path):
    """Would break: a stopped run that loses the steps since its last checkpoint, or exits as if it had finished.

    One signal in training, the other in an evaluation on the way. The numbers are those of test_rollout:
    rollouts end at steps 13 and 25, a whole evaluation is worth 10."""
    script, processes = ALGOS / f"{algo.__name__}.py", {}
    flags = [
        *TINY,
        "--env-id",
        "toy_envs:Signal-v0",
        "--total-timesteps",
        10**7,
        "--eval-episodes",
        2,
    ]
    for number, code, where, more in (
        (signal.SIGINT, 130, "train", []),
        (signal.SIGTERM, 143, "evaluate", ["--eval-frequency", 20]),
    ):
        folder = tmp_path / where
        folder.mkdir()
        variables = {"SIGNAL_NUMBER": str(int(number)), "SIGNAL_STEP": "18", "SIGNAL_WHERE": where}
        processes[folder, code] = command_line(
            *flags, *more, script=script, cwd=folder, PYTHONPATH=str(ROOT / "tests"), **variables
        )
    for (folder, code), process in processes.items():
        _, errors = process.communicate(timeout=240)
        assert process.returncode == code, errors
        assert "Traceback" not in errors
        run = run_folder(folder)
        assert read_checkpoint(run)["global_step"] == 25, folder.name
        logged = scalars(run)
        assert [step for step, _ in logged["losses/value_loss"]] == [13, 25]
        assert {value for _, value in logged.get("eval/episodic_return", [])} <= {10.0}, (
            "an evaluation cut short"
        )
        assert not (run / "summary.json").exists()


def test_signal_from_outside(tmp_path):
    """Would break: a signal that ends in a traceback or in another status when it comes at any moment."""
    process = command_line(
        *TINY,
        "--env-id",
        "Pendulum-v1",
        "--total-timesteps",
        10**7,
        script=ALGOS / "ppo_continuous.py",
        cwd=tmp_path,
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/checkpoint.pt")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert "Traceback" not in errors
    assert read_checkpoint(run_folder(tmp_path))["global_step"] > 0


class Evil:
    """Unpickling this creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "kind", ["text", "pickle", "torch", "image", "empty", "folder", "missing", "list", "other"]
)
def test_foreign_file_as_resume(algo, tmp_path, capsys, kind):
    """Would break: a checkpoint that runs code when it is read; a traceback for a wrong path."""
    path, trap = tmp_path / "checkpoint.pt", tmp_path / "trap"
    if kind == "text":
        path.write_text("hello")
    elif kind == "pickle":
        path.write_bytes(pickle.dumps(Evil(trap)))
    elif kind == "torch":
        torch.save({"algo": algo.__name__, "args": {}, "agent": Evil(trap)}, path)
    elif kind == "image":
        path.write_bytes(bytes(range(256)) * 100)
    elif kind == "empty":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    elif kind == "list":
        torch.save([1, 2, 3], path)
    elif kind == "other":
        (other,) = {"ppo_continuous", "rpo_continuous"} - {algo.__name__}
        module = load(other)
        module.train(tiny(module, tmp_path / "other"))
        path = run_folder(tmp_path / "other")
        capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        algo.train(tiny(algo, tmp_path, resume=str(path)))
    assert stopped.value.code == 2
    output, errors = capsys.readouterr()
    assert len(errors.splitlines()) == 1 and "--resume" in errors and str(path) in errors
    if kind == "other":
        assert other in errors
    assert not trap.exists()
    assert not (tmp_path / "runs").exists()


def test_trap_would_close(tmp_path):
    """The pickle of the test above does run code where it is unpickled without care."""
    pickle.loads(pickle.dumps(Evil(tmp_path / "trap")))
    assert (tmp_path / "trap").exists()


# Broken pays or shows its bad value at step 20 of each of the two environments, so at about step 40 of the run.
# Its episodes are 7 steps long: 8 rows are 7 valid ones, and the rollouts end at steps 14, 28 and 42.


@pytest.mark.parametrize("env_id", ["NanReward-v0", "InfiniteReward-v0", "NanObservation-v0"])
def test_non_finite_environment_stops_the_run(algo, tmp_path, capsys, env_id):
    """Would break: a NaN that reaches the weights, the statistics or the last good checkpoint."""
    with pytest.raises(SystemExit) as stopped:
        algo.train(
            tiny(algo, tmp_path, env_id=env_id, total_timesteps=1000, checkpoint_frequency=1)
        )
    assert stopped.value.code not in (0, None)
    (line,) = capsys.readouterr().err.splitlines()
    assert 38 <= int(re.search(r"step (\d+)", line)[1]) <= 40
    assert "observation" in line or "reward" in line
    checkpoint = read_checkpoint(run_folder(tmp_path))
    assert checkpoint["global_step"] == 28
    assert all(value.isfinite().all() for value in checkpoint["agent"].values())


def test_non_finite_loss_stops_the_run(algo, tmp_path, capsys):
    """Would break: a run that goes on with weights that are not numbers."""
    with pytest.raises(SystemExit) as stopped:
        algo.train(
            tiny(algo, tmp_path, learning_rate=1e30, total_timesteps=1000, checkpoint_frequency=1)
        )
    assert stopped.value.code not in (0, None)
    (line,) = capsys.readouterr().err.splitlines()
    assert "loss" in line and re.search(r"step \d+", line)
    checkpoint = read_checkpoint(run_folder(tmp_path))
    assert all(value.isfinite().all() for value in checkpoint["agent"].values())


def test_curve_is_complete_after_a_non_finite_reward(algo, tmp_path):
    """Would break: events that wait in memory and are lost just when one wants to see what went wrong."""
    process = command_line(
        *TINY,
        "--env-id",
        "toy_envs:NanReward-v0",
        "--total-timesteps",
        1000,
        script=ALGOS / f"{algo.__name__}.py",
        cwd=tmp_path,
        PYTHONPATH=str(ROOT / "tests"),
    )
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2 and len(errors.splitlines()) == 1, errors
    assert [step for step, _ in scalars(run_folder(tmp_path))["losses/value_loss"]] == [14, 28]
