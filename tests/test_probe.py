"""scripts/probe.py: it passes what is right, names what is wrong, and says so when a file is none of ours.

tests/mutations holds the list of mistakes that it must catch."""

import inspect
import json
import subprocess
import sys

import numpy as np
import pytest
from ale_py import AtariVectorEnv
from conftest import ALGOS, ROOT, command_line
from probing import environments, run

PROBE = ROOT / "scripts" / "probe.py"


def probe(*flags, cwd) -> tuple[int, str, str]:
    process = command_line(*flags, script=PROBE, cwd=cwd)
    out, err = process.communicate(timeout=900)
    return process.returncode, out, err


def edited(name: str, *edits: tuple[str, str]) -> str:
    """Text of an algorithm's file with each edit made, which must apply exactly once."""
    text = (ALGOS / f"{name}.py").read_text()
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_agent_of_the_notes(tmp_path):
    """The Pendulum agent that never learned: (n,) - (n, 1), GAE without a mask, the critic at 1e-5, one full batch."""
    groups = "[dict(params=[*agent.actor_mean.parameters(), agent.actor_logstd]),"
    groups += " dict(params=agent.critic.parameters(), lr=1e-5)]"
    text = edited(
        "ppo_continuous",
        ("logratio = logprob - old_logprob", "logratio = logprob - old_logprob.unsqueeze(1)"),
        (" * (1 - dones[t]) * advantages[-1]", " * advantages[-1]"),
        ("torch.optim.Adam(agent.parameters(),", f"torch.optim.Adam({groups},"),
        ("num_envs: int = 64", "num_envs: int = 1"),
        ("num_steps: int = 64", "num_steps: int = 2048"),
        ("num_minibatches: int = 2", "num_minibatches: int = 1"),
    )
    (tmp_path / "pendulum.py").write_text(text)
    exact = [name for name in checks(tmp_path) if not name.startswith("learns")]
    status, out, err = probe("pendulum.py", "--json", "--only", *exact, cwd=tmp_path)
    failed = {row["check"]: row for row in json.loads(out) if not row["passed"]}
    assert (status, err) == (1, "")
    # a ratio that is a matrix also spoils what is logged
    told = {"gae", "rows-are-independent", "clipping", "advantages", "annealing"}
    assert told <= set(failed) <= told | {"logged-losses", "target-kl"}
    assert failed["rows-are-independent"]["section"] == "update"
    assert "(n, 1)" in failed["rows-are-independent"]["hint"]
    assert (
        failed["gae"]["section"] == "compute_gae" and "no mask of `done`" in failed["gae"]["hint"]
    )
    assert "never learns" in failed["annealing"]["hint"]


def checks(folder) -> list[str]:
    """Names of all checks."""
    status, out, err = probe(ALGOS / "ppo_continuous.py", "--list", cwd=folder)
    assert (status, err) == (0, "")
    return [line.split()[0] for line in out.splitlines()]


def test_learned_checks_catch_it_too(tmp_path):
    """Would break: thresholds so wide that an agent which learns nothing passes. The others are in the test below."""
    dead = edited(
        "ppo_continuous", ("            loss.backward()\n", "            (0 * loss).backward()\n")
    )
    (tmp_path / "dead.py").write_text(dead)
    below = {
        "endless-value",
        "discounting",
        "behind-an-offset",
        "while-observations-drift",
        "delayed-reward",
    }
    learned = {name for name in checks(tmp_path) if name.startswith("learns")} - {
        f"learns-{name}" for name in below
    }
    assert len(learned) == 4
    status, out, _ = probe("dead.py", "--json", "--only", *learned, cwd=tmp_path)
    assert status == 1 and [row["check"] for row in json.loads(out) if row["passed"]] == []


@pytest.mark.parametrize(
    ("mistake", "check"),
    [
        (("agent.normalize(obs), terminateds if", "agent.normalize(obs), dones if"), "learns-endless-value"),
        (("gamma * values[1:] * (1 - terminateds)", "values[1:] * (1 - terminateds)"), "learns-discounting"),
        (("return x if self.args.norm_obs else obs", "return obs"), "learns-behind-an-offset"),
        (("agent.obs_rms.update(obs[:-1][valids])", "agent.obs_rms.count or agent.obs_rms.update(obs[:-1][valids])"),
         "learns-while-observations-drift"),
        (("+ gamma * gae_lambda * (1 - dones[t]) * advantages[-1]", "+ gamma * gae_lambda * dones[t] * advantages[-1]"),
         "learns-delayed-reward"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_learned_check_of_its_mistake(mistake, check, tmp_path):
    """Would break: a learned check that its own mistake passes."""
    (tmp_path / "wrong.py").write_text(edited("ppo_continuous", mistake))
    status, out, _ = probe("wrong.py", "--only", check, cwd=tmp_path)
    assert status == 1 and f"FAIL  {check}" in out


def test_output(tmp_path):
    """Would break: a failure without its section and hint; JSON that is none; a check that --only does not keep out."""
    text = edited("ppo_continuous", ("policy_loss = -torch.min(", "policy_loss = torch.min("))
    (tmp_path / "wrong.py").write_text(text)
    status, out, err = probe("wrong.py", "--only", "clipping", "gae", cwd=tmp_path)
    lines = out.splitlines()
    assert (status, err, len(lines)) == (1, "", 5)
    assert lines[1].startswith("pass  gae") and lines[2].startswith("FAIL  clipping")
    assert lines[3].strip() == "look at update: the sign of the policy loss: it lowers good actions"
    assert lines[4].startswith("2 checks, 1 failed")
    status, out, _ = probe("wrong.py", "--only", "gae", "--json", cwd=tmp_path)
    assert status == 0 and [sorted(row) for row in json.loads(out)] == [
        ["check", "expected", "hint", "measured", "passed", "section"]
    ]


@pytest.mark.parametrize(
    ("text", "flags", "words"),
    [
        (None, [], "wrong.py does not exist"),
        ("import nothing_of_this_name", [], "cannot be imported (ModuleNotFoundError"),
        (
            "x = 1",
            [],
            "evaluate, train, compute_gae or n_step_returns or compute_returns or td_target",
        ),
        ("x = 1", ["--only", "gea"], "--only gea: no such check; --list shows them"),
    ],
)
def test_bad_input(text, flags, words, tmp_path):
    if text is not None:
        (tmp_path / "wrong.py").write_text(text)
    status, out, err = probe("wrong.py", *flags, cwd=tmp_path)
    assert (status, out, len(err.splitlines())) == (2, "", 1) and words in err


def test_file_that_does_not_run(tmp_path):
    """Would break: forty failures in place of the one that matters."""
    text = edited(
        "ppo_continuous", ("    started, (train_backend", "    1 / 0\n    started, (train_backend")
    )
    (tmp_path / "wrong.py").write_text(text)
    done = subprocess.run(
        [sys.executable, PROBE, "wrong.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (
        done.returncode == 1
        and done.stdout.count("FAIL") == 1
        and "ZeroDivisionError" in done.stdout
    )


def test_check_of_another_kind(tmp_path):
    """Would break: a check that is silently left out, or run on a file that it does not fit."""
    status, out, err = probe(ALGOS / "dqn_atari.py", "--only", "gae", cwd=tmp_path)
    assert (status, out) == (2, "") and "--only gae: not for a file such as" in err
    _, out, _ = probe(ALGOS / "dqn_atari.py", "--list", cwd=tmp_path)
    names = {line.split()[0] for line in out.splitlines()}
    assert {"td-target", "replay-rows", "logging", "learns-life-lost"} <= names
    assert not {"gae", "clipping", "density", "normaliser"} & names


def played(envs, steps: int) -> list[tuple]:
    """(reward, terminated, truncated, lives, black frames of the stack, dtype and shape) of each step of the first."""
    obs, info = envs.reset(seed=3)
    rows = [(0, False, False, info["lives"][0], obs)]
    for _ in range(steps):
        obs, reward, terminated, truncated, info = envs.step(np.ones(envs.num_envs, np.int64))
        rows.append(
            (float(reward[0]), bool(terminated[0]), bool(truncated[0]), info["lives"][0], obs)
        )
    return [
        (*row[:4], [not frame.any() for frame in row[4][0]], row[4].dtype, row[4].shape)
        for row in rows
    ]


def test_games_are_like_atari():
    """Would break: checks on games in pictures that differ from ale-py's in what the algorithms rely on."""
    real = AtariVectorEnv(
        game="breakout", num_envs=2, reward_clipping=False, max_num_frames_per_episode=60
    )
    games = (
        played(real, 60),
        played(environments.AtariVector(environments.Arcade, "breakout", 2), 60),
    )
    assert (
        real.metadata["autoreset_mode"]
        == environments.AtariVector(environments.Arcade, "", 1).metadata["autoreset_mode"]
    )
    for rows in games:
        lives = rows[0][3]
        assert {row[5:] for row in rows} == {(np.dtype(np.uint8), (2, 4, 84, 84))}
        assert rows[0][4] == [True, True, True, False]
        ends = [k for k, row in enumerate(rows[:-1]) if row[1] or row[2]]
        assert len(ends) > 2
        for k in ends:  # the row after an end is a reset row
            assert rows[k][4] == [False] * 4 or k < 3
            assert rows[k + 1][:5] == (0.0, False, False, lives, [True, True, True, False])
    parameters = inspect.signature(AtariVectorEnv).parameters
    assert all(parameters[name].default == value for name, value in run.ATARI_DEFAULTS.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "check"),
    [
        (
            ("ends = terminateds if args.bootstrap_truncation else dones", "ends = dones"),
            "learns-endless-value",
        ),
        (
            ("terminated | life_lost if args.terminal_on_life_loss else terminated", "terminated"),
            "learns-life-lost",
        ),
        (
            ("gamma * next_return * (1 - terminateds[t])", "next_return * (1 - terminateds[t])"),
            "learns-discounting",
        ),
        (("policy_loss = -(weight", "policy_loss = (weight"), "learns-action-of-observation"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_learned_check_of_its_mistake_in_pixels(mistake, check, tmp_path):
    (tmp_path / "wrong.py").write_text(edited("a2c_atari", mistake))
    status, out, _ = probe("wrong.py", "--only", check, cwd=tmp_path)
    assert status == 1 and f"FAIL  {check}" in out
