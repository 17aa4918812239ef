"""Several ranks of ppo_continuous_ddp.py: together they are one process with all the environments. What
ppo_atari_ddp.py shares with it line by line (a test says so) is not tried again; tests/probe has both."""

import difflib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_envs
from conftest import (
    ATARI,
    cheap,
    equal,
    fake_atari,
    load,
    read_checkpoint,
    run_folder,
    scalars,
    script,
    tiny,
    without_docstring,
)
from plainrl_tools.probing.ranks import in_ranks

NAME = "ppo_continuous_ddp"


def drawn_from_the_state(algo, kept: list) -> None:
    """The action follows from the observation, so that it is the same in whatever process; agents are kept."""

    class Determined(algo.Agent):
        def __init__(self, *args):
            super().__init__(*args)
            kept.append(self)

        def get_action(self, x, action=None):
            if action is None:
                noise = torch.sin(1000 * x.sum(-1, keepdim=True))
                action = self.actor_mean(x) + self.actor_logstd.exp() * noise
            return super().get_action(x, action)

    algo.Agent = Determined


def first_update(folder: str, num_envs: int, flags: dict) -> dict:
    """State of the agent after one iteration on Pendulum."""
    algo, agents = load(NAME), []
    drawn_from_the_state(algo, agents)
    one = {"num_minibatches": 1, "env_id": "Pendulum-v1", "total_timesteps": num_envs * 8}
    algo.train(tiny(algo, Path(folder), num_envs=num_envs, **one, **flags))
    return {key: value.numpy() for key, value in agents[0].state_dict().items()}


@pytest.mark.parametrize(
    "flags", [{}, {"norm_adv": True, "max_grad_norm": 0.01, "target_kl": 1e-9}], ids=str
)
def test_ranks_are_one_process_with_their_environments(tmp_path, flags):
    """Two ranks of 4 environments, and one process of 8. Would break: gradients summed, clipped before the
    mean or of one rank; other weights, statistics or rows than those of all."""
    one, other = in_ranks(first_update, str(tmp_path), 4, flags)
    whole = first_update(str(tmp_path / "whole"), 8, flags)
    for key in whole.keys():
        np.testing.assert_array_equal(one[key], other[key], key)
        np.testing.assert_allclose(one[key], whole[key], rtol=1e-5, atol=1e-5, err_msg=key)
    assert one["obs_rms.count"] == one["return_rms.count"] == 64
    saved = read_checkpoint(run_folder(tmp_path))
    assert saved["global_step"] == 64
    assert all(np.array_equal(saved["agent"][key], one[key]) for key in whole)


@pytest.mark.parametrize(
    ("parent", "flags"),
    [
        ("ppo_continuous", {}),
        ("ppo_continuous", {"norm_adv": True, "target_kl": 0.01}),
        ("ppo_atari", {}),
    ],
    ids=str,
)
def test_one_process_is_the_parent_bit_for_bit(tmp_path, monkeypatch, parent, flags):
    """Would break: a file that one has to leave when there is one GPU."""
    agents, curves = [], []
    for name in (parent, f"{parent}_ddp"):
        algo, steps = load(name), 450
        if parent in ATARI:
            fake_atari(algo, monkeypatch)
            cheap(algo, monkeypatch)
            steps = 150
        algo.train(tiny(algo, tmp_path / name, total_timesteps=steps, num_steps=32, **flags))
        run = run_folder(tmp_path / name)
        agents.append(read_checkpoint(run)["agent"])
        curves.append(scalars(run))
        del curves[-1]["charts/SPS"]
    assert equal(*agents)
    assert curves[0] == curves[1]


OWN = {  # lines of one of the two files alone: statistics, and which rank has a NaN
    "ppo_continuous": {
        "# DDP: the samples of all ranks, so that all have the same statistics",
        "samples = torch.cat(gather(samples.cpu())).to(samples.device)",
        'found = ""  # DDP: in this rank',
        "# DDP: the first one, such as the reward that has made the losses NaN",
        'found = f"{problem} in the {where} before step {global_step}; {way_out}; {checkpoint}"',
        'found = f"rank {RANK}: {found}"',
        "break",
        "reports = [report for report in gather(found) if report]  # one stops all before rank 0 saves",
        "if reports:",
        "sys.exit(found or reports[0])",
        "if RANK > 0:  # DDP: rank 0 alone writes files",
        "return None, None, None",
        "check_finite(agent, obs, rewards, scalars, global_step, *saved)",
        "num_envs: int = 64  # DDP: parallel environments of each rank",
    },
    "ppo_atari": {
        "check_finite(agent, scalars, global_step, *saved)",
        "num_envs: int = 8  # DDP: parallel environments of each rank",
        "run_dir = None",
        "if RANK == 0:  # DDP: it alone logs, evaluates and saves",
        "run_dir, record, writer = open_run(args, device, precision, global_step)",
    },
}


def test_both_files_have_the_same_lines_more():
    """In order, but for OWN. Would break: a fix made in one of the two files only, of which only one is tried here."""
    found = []
    for parent, own in OWN.items():
        old, new = without_docstring(parent), without_docstring(f"{parent}_ddp")
        opcodes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        hunks = [new[start:end] for kind, _, _, start, end in opcodes if kind != "equal"]
        lines = [line.strip() for hunk in hunks for line in hunk if line]
        assert own <= {*lines} and len(lines) > 40
        found.append([line for line in lines if line not in own])
    assert found[0] == found[1]


def ends(folder: str, how: str) -> dict:
    """A run that one rank ends."""
    algo, stop = load(NAME), []
    flags = {"checkpoint_frequency": 1, "total_timesteps": 10**5}
    make_envs, evaluate = algo.make_envs, algo.evaluate

    def with_an_event(*args):
        envs, obs = make_envs(*args)
        step, count = envs.step, iter(range(10**6))

        def watched(action):
            number = next(count)
            obs, reward, *rest = step(action)
            if number == 20 and algo.RANK == 1:
                if how == "signal":
                    stop.append(signal.SIGTERM)
                if how == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                if how == "nan":
                    reward = reward * np.nan
            return obs, reward, *rest

        envs.step = watched
        return envs, obs

    def interrupted(*args, **flags):
        stop.append(signal.SIGINT)
        return evaluate(*args, **flags)

    algo.make_envs = with_an_event
    if how == "evaluation":
        algo.evaluate, flags["eval_frequency"] = interrupted, 60
    return algo.train(tiny(algo, Path(folder), **flags), stop)


@pytest.mark.parametrize(
    ("how", "first", "second"),
    [
        ("signal", 128 + 15, None),
        ("evaluation", 128 + 2, None),
        (
            "nan",
            "rank 0: NaN or infinity in the losses",
            "rank 1: NaN, None, or a number too large",
        ),
        ("killed", "rank 0: another rank has ended or does not answer", None),
    ],
)
def test_one_rank_ends_all(tmp_path, how, first, second):
    """Would break: a rank that waits for ever for one that has stopped, no checkpoint, a bad one."""
    one, other = in_ranks(ends, str(tmp_path), how, limit=120)
    saved, run = read_checkpoint(run_folder(tmp_path)), run_folder(tmp_path)
    assert saved["global_step"] > 0 and not (run / "summary.json").exists()
    assert all(value.isfinite().all() for value in saved["agent"].values())
    if second is None:
        assert not other.get("exit") and not other.get("said") and "error" not in other
    else:
        assert second in other["exit"] and len(other["exit"].splitlines()) == 1
    if isinstance(first, int):
        assert one["exit"] == first
        assert f"step {saved['global_step']}; continue with --resume {run}" in one["said"]
    else:
        assert first in one["exit"] and len(one["exit"].splitlines()) == 1


def torchrun(folder: Path, *flags) -> subprocess.Popen:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "aside")}
    environment["PYTHONPATH"] = str(Path(toy_envs.__file__).parent)
    (folder / "aside").mkdir(exist_ok=True)
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *ranks, script(NAME), *map(str, flags)]
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )  # fmt: skip


def ranks_of(process: subprocess.Popen) -> dict[str, int]:
    """{rank: process id}"""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    found = {}
    for child in children:
        variables = Path(f"/proc/{child}/environ").read_text().split("\0")
        found |= {text[5:]: int(child) for text in variables if text.startswith("RANK=")}
    return found


def goes_on(run: str, total_timesteps: int) -> dict:
    """A resumed run, as the command line makes it."""
    algo = load(NAME)
    args = algo.load_checkpoint(run)["args"] | {"resume": run, "total_timesteps": total_timesteps}
    return algo.train(algo.Args(**args))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the ranks in /proc")
def test_kill_a_rank_of_torchrun_and_resume(tmp_path):
    """Would break: a rank that hangs when another is killed, a checkpoint that does not go on, a second
    folder, lines twice."""
    flags = ["--env-id", "Pendulum-v1", "--num-envs", 2, "--num-steps", 8, "--num-minibatches", 2]
    flags += ["--eval-episodes", 2, "--checkpoint-frequency", 32, "--total-timesteps", 10**7]
    process = torchrun(tmp_path, *flags)
    while not list(tmp_path.glob("runs/*/checkpoint.pt")) and process.poll() is None:
        time.sleep(0.05)
    os.kill(ranks_of(process)["1"], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    said = "rank 0: another rank has ended or does not answer; continue with --resume" in errors
    assert said or "Unable to shutdown process" in errors  # gloo may overlook it, torchrun does not
    run = run_folder(tmp_path)
    last = read_checkpoint(run)["global_step"]
    one, other = in_ranks(goes_on, str(run), last + 64)
    assert one["global_step"] >= last + 64 and "error" not in other
    assert json.loads((run / "summary.json").read_text())["global_step"] == one["global_step"]
    assert run_folder(tmp_path) == run and len(list(run.glob("events*"))) == 2
    steps = [step for step, _ in scalars(run)["losses/value_loss"]]
    assert steps == sorted(set(steps)) and steps[-1] == one["global_step"]
