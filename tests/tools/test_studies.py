"""The shell scripts of the studies: what each declares, by a dry run of scripts/sweep.py."""

import inspect
import io
import sys
from dataclasses import replace

import pytest
import sweep
from conftest import ROOT, stub_of
from plainrl_tools.sweeping import plan

DECLARED = [  # a study and its PARTS, runs
    ("ablations", 96),
    ("ablations symptoms", 33),
    ("ablations notes", 80),
    ("ablations resets", 54),
    ("ablations questions", 40),
    ("ablations squash", 16),
    ("pitfalls", 51),
    ("atari", 27),
    ("atari published", 52),
    ("atari mistakes", 12),
    ("atari notes", 18),
    ("atari values", 12),
    ("augmentation", 44),
    ("augmentation images", 15),
    ("augmentation game", 9),
    ("classic", 168),
    ("classic line", 24),
    ("classic average", 20),
    ("classic endless", 20),
    ("classic one_step", 10),
    ("continuous", 80),
    ("continuous published", 49),
    ("continuous swimmer", 45),
    ("continuous pusher", 10),
    ("curiosity", 60),
    ("curiosity causes", 200),
    ("curiosity arm", 50),
    ("curiosity mistakes", 55),
    ("lstm", 142),
    ("pqn", 10),
    ("pqn epsilon", 10),
    ("pqn atari", 6),
    ("rpo", 230),
    ("rpo all", 694),
    ("rpo long", 120),
    ("rpo schedule", 20),
    ("rpo small", 15),
    ("rpo paper", 60),
    ("rpo first_defaults", 180),
    ("time_to_return", 60),
    ("time_to_return_atari", 9),
    ("trust_region", 135),
    ("tuning", 30),
]


STARTED = set()  # (task, how the file makes it) of all studies


@pytest.mark.parametrize(("study", "runs"), DECLARED)
def test_declared_sweeps(tmp_path, monkeypatch, capsys, study, runs):
    """Would break: a flag that one of the files does not have, a task that it cannot make; a dry run that starts
    something. Each task is made once; the flags are parsed, as all their checks are in Args."""
    (script, *words), lines = stub_of(study, tmp_path)
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)  # for envs:NAME
    assert script == "scripts/sweep.py"
    dry_start = plan.dry_start

    def of_what_is_new(script, module, args):
        make_envs = getattr(module, "make_envs", None)
        key = args.env_id, make_envs and inspect.getsource(make_envs)
        small = {"num_envs": 2, "num_steps": 8, "num_minibatches": 2, "total_timesteps": 32}
        small |= {"buffer_size": 64, "learning_starts": 16, "batch_size": 4}
        if key not in STARTED:
            dry_start(
                script, module, replace(args, **{x: small[x] for x in small if hasattr(args, x)})
            )
        STARTED.add(key)

    monkeypatch.setattr(plan, "dry_start", of_what_is_new)
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    monkeypatch.setattr(sys, "argv", ["sweep.py", *words])
    assert sweep.main(*plan.read_flags(sweep.Options, "")) == 0
    starts = capsys.readouterr().out.splitlines()
    assert len(starts) == runs and all(line.startswith("start ") for line in starts)
    left = [path.name for path in (tmp_path / "the runs").rglob("*") if path.suffix != ".py"]
    assert left in ([], ["mistakes"], ["notes"], ["patched"])


@pytest.mark.parametrize("study", [*(study for study, _ in DECLARED), "off_policy"])
def test_steps_of_a_study(tmp_path, study):
    """Would break: a study that trains for its usual number of steps, hours, though STEPS asks for a short test."""
    words, lines = stub_of(study, tmp_path, STEPS="4320")
    jobs = lines.replace("\\\n", " ").splitlines() or [" ".join(words)]
    wanted = "--total-timesteps 4320", "--total-timesteps 6480"  # a peer on Atari takes longer
    assert [job for job in jobs if job and not any(steps in job for steps in wanted)] == []
