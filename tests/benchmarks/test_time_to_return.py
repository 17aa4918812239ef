"""benchmarks/time_to_return.py on curves and run folders whose answer is known."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import cleanrl_ppo
import gymnasium as gym
import pytest
import time_to_return
from conftest import ROOT
from plainrl_tools import peers
from torch.utils.tensorboard import SummaryWriter


def make_run(folder, side, seed: int, returns: list[float], env_id="Pendulum-v1", ends: int = 0):
    """A finished run that logs a return every 1,000 steps and 60 seconds, and its pace after `ends` minutes."""
    run = folder / f"{env_id}__{side}__{seed}__1"
    writer = SummaryWriter(run)
    start = time.time()  # of the event file; the clock begins there
    for i, value in enumerate(returns, 1):
        writer.add_scalar("charts/episodic_return", value, 1000 * i, walltime=start + 60 * i)
    if ends:
        writer.add_scalar("charts/SPS", 1.0, 1000 * i, walltime=start + 60 * ends)
    writer.close()
    data = {"env_id": env_id, "seed": seed, "commit": "abc", "global_step": 1000 * len(returns)}
    data |= {"total_timesteps": 1000 * len(returns), "args": {"exp_name": side, "num_envs": 1}}
    (run / "summary.json").write_text(json.dumps(data))
    return run


def test_time_to():
    """Would break: the best single point taken for the mean, a window that looks ahead, < for >=."""
    curve = [(1000, 1.0, -500.0), (2000, 2.0, -100.0), (3000, 3.0, -300.0), (4000, 4.0, -100.0)]
    assert time_to_return.time_to(-200, curve, window=1000) == (2000, 2.0)
    assert time_to_return.time_to(-200, curve, window=2000) == (3000, 3.0)  # -100 and -300
    assert time_to_return.time_to(-150, curve, window=4000) is None
    assert time_to_return.time_to(-500, curve, window=2000) == (
        2000,
        2.0,
    )  # not before two are seen
    windows = [time_to_return.window_of("LunarLanderContinuous-v3", n) for n in (1, 20, 64)]
    assert windows == [20_000, 20_000, 64_000]
    limits = {env_id: gym.spec(env_id).max_episode_steps for env_id in peers.TIME_LIMITS}
    assert peers.TIME_LIMITS == limits
    assert time_to_return.window_of("PongNoFrameskip-v4", 8) == 100_000
    games = {"BreakoutNoFrameskip-v4", "PongNoFrameskip-v4"}
    assert {*time_to_return.GOALS} == {*limits} | games


def test_table_and_csv(tmp_path, capsys, monkeypatch):
    """Would break: a run that never gets there counted as fast, ratios of other seeds, a lost mark."""
    monkeypatch.setattr(
        time_to_return.results, "read_curve", lambda run, total, bins: CURVES[run.name]
    )
    CURVES = {}
    for side, seed, minutes, value in [
        ("ppo_continuous", 1, 1, -150),
        ("ppo_continuous", 2, 2, -150),
        ("peer", 1, 4, -150),
        ("peer", 2, 10, -900),
    ]:
        run = make_run(tmp_path, side, seed, [value] * minutes)
        step = 1000 * minutes
        CURVES[run.name] = [
            (step, time_to_return.results.CURVE, float(value)),
            (step, time_to_return.results.CLOCK, 60.0 * minutes),
        ]
    make_run(tmp_path, "ppo_continuous", 1, [5.0], env_id="Swimmer-v5")  # has no goal
    output = tmp_path / "out.csv"
    time_to_return.main(time_to_return.Options((tmp_path,), window=1000, output=output))
    ours, peer = capsys.readouterr().out.splitlines()[2:]
    task = "| Pendulum-v1 to -200 |"
    assert ours == f"{task} plainrl | 2 of 2 | 1.5 (1.0 to 2.0) | 1,500 |  |"
    assert peer == f"{task} peer | 1 of 2 | >= 7.0 (4.0 to >= 10.0) | >= 7,000 | >= 4.6 |"
    lines = output.read_text().splitlines()
    assert "peer,Pendulum-v1,2,10000,reached,0,abc" in lines
    figure = tmp_path / "minutes.png"
    time_to_return.main(time_to_return.Options((output,), figure=figure))
    assert capsys.readouterr().out.splitlines()[2:] == [ours, peer]  # from the CSV as from the runs
    assert figure.stat().st_size > 10_000
    time_to_return.main(time_to_return.Options((output,), sides=("peer",)))
    assert capsys.readouterr().out.splitlines()[2:] == [peer.replace(" >= 4.6 |", "  |")]
    with pytest.raises(SystemExit):
        time_to_return.main(time_to_return.Options((output,), window=1000))
    assert f"--window: {output} keeps the one it was written with" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        time_to_return.main(time_to_return.Options((output,), sides=("peers",)))
    assert "--sides: peers not among peer, ppo_continuous" in capsys.readouterr().err


def test_runs_that_are_not_there(tmp_path, capsys):
    """Would break: a side that is faster because its slow runs crashed; a seed that counts as its last run alone."""
    run = make_run(tmp_path, "ppo_continuous", 1, [-100.0] * 30)
    config = json.loads((run / "summary.json").read_text())
    (run / "config.json").write_text(json.dumps(config))
    time_to_return.main(time_to_return.Options((tmp_path,)))
    with pytest.raises(SystemExit):
        time_to_return.main(time_to_return.Options((tmp_path, tmp_path)))
    assert "seed 1 of ppo_continuous on Pendulum-v1 is there twice" in capsys.readouterr().err
    (run / "summary.json").unlink()
    with pytest.raises(SystemExit):
        time_to_return.main(time_to_return.Options((tmp_path,)))
    assert f"{run} is not finished" in capsys.readouterr().err


def test_declared_runs_that_left_no_folder(tmp_path, capsys):
    """Would break: a ratio over the seeds that did not fail; a task without a goal that refuses the others."""
    make_run(tmp_path, "ppo_continuous", 1, [-100.0] * 30)
    keys = [("ppo_continuous", "Pendulum-v1", 1), ("peer", "Swimmer-v5", 1)]
    for more, status in ((), 0), ((("peer", "Pendulum-v1", 2),), 1):
        listing = [dict(zip(("exp_name", "env_id", "seed"), key)) for key in [*keys, *more]]
        (tmp_path / "sweep.json").write_text(json.dumps({"runs": listing}))
        if status:
            with pytest.raises(SystemExit) as stopped:
                time_to_return.main(time_to_return.Options((tmp_path,)))
            assert stopped.value.code == status
        else:
            time_to_return.main(time_to_return.Options((tmp_path,)))
    err = capsys.readouterr().err
    assert "peer on Pendulum-v1 with seed 2 is not there" in err and err.count("\n") == 1


def test_what_a_late_run_may_move():
    """Would break: a mark where the median is exact, none where it is not, a ratio that a late run of ours flatters."""

    def run(side, seed, minutes, reached):
        run = {"exp_name": side, "env_id": "Pendulum-v1", "seed": seed, "reached": reached}
        return run | {"minutes": minutes, "steps": 1000 * minutes}

    ours = [run("ppo_continuous", 1 + i, 1, True) for i in range(2)]
    late = run("ppo_continuous", 3, 5, False)
    peers = [run("peer", 1, 4, True), run("peer", 2, 6, False), run("peer", 3, 6, False)]
    mine, theirs = time_to_return.table([*ours, late, *peers], "ppo_continuous")[2:]
    assert mine.endswith("| 2 of 3 | 1.0 (1.0 to >= 5.0) | 1,000 |  |")
    assert theirs.endswith("| 1 of 3 | >= 6.0 (4.0 to >= 6.0) | >= 6,000 | >= 6.0 |")
    early = {seed: run("peer", seed, seed, seed != 2) for seed in (1, 2, 3)}
    assert time_to_return.spread(early) == "(1.0 to >= 3.0)"
    # our late run is above the median, whatever it needs, and so is the peer's
    peers = [run("peer", 1, 4, True), run("peer", 2, 2.99, True), run("peer", 3, 1, True)]
    assert time_to_return.sooner([*ours, late], peers) == "3.0"
    peers[1]["reached"] = False  # 2.99 or more
    assert time_to_return.sooner([*ours, late], peers) == ">= 2.9"
    peers[1]["minutes"] = 9
    assert time_to_return.sooner([*ours, late], peers) == "4.0"  # 4 minutes in any case
    assert time_to_return.sooner([ours[0], late, late], peers) == ">= 0.0"


def test_a_stopped_run_counts_whole(tmp_path):
    """Would break: a peer that was stopped, counted up to the last episode that ended."""
    run = make_run(tmp_path, "sb3_ppo-sb3-ours", 1, [-900.0] * 3)
    before = time_to_return.read_run(run, 20_000)["minutes"]
    shutil.rmtree(run)
    run = make_run(tmp_path, "sb3_ppo-sb3-ours", 1, [-900.0] * 3, ends=5)
    assert before == pytest.approx(3, abs=0.1)
    assert time_to_return.read_run(run, 20_000)["minutes"] == pytest.approx(5, abs=0.1)


def test_ranks_widen_the_window(tmp_path):
    """Would break: the environments of one rank taken for those of all, whose steps the curve counts."""
    run = make_run(tmp_path, "ppo_continuous_ddp", 1, [-100.0] * 30)
    assert time_to_return.read_run(run, 20_000)["steps"] == 20_000
    summary = json.loads((run / "summary.json").read_text()) | {"ranks": 2}
    summary["args"]["num_envs"] = 64
    (run / "summary.json").write_text(json.dumps(summary))
    assert time_to_return.read_run(run, 20_000)["steps"] == 26_000  # from 25,600 on
    assert not time_to_return.read_run(run, 40_000)["reached"]


def test_thin():
    """Would break: a window's last step in the next one, seconds averaged as returns are."""
    curve = [(500, 1.0, 10.0), (1000, 2.0, 20.0), (1001, 3.0, 40.0), (3000, 4.0, 50.0)]
    thinned = time_to_return.thin(curve, window=1000)
    assert thinned == [(1000, 2.0, 15.0), (1001, 3.0, 40.0), (3000, 4.0, 50.0)]
    # a single last game is no point of its own
    assert time_to_return.thin([*curve, (3001, 5.0, 90.0)], window=1000)[2:] == [(3001, 5.0, 70.0)]


def test_real_event_file(tmp_path, capsys):
    """Would break: steps or minutes that are not those of the log; a folder without runs passed over."""
    make_run(tmp_path, "ppo_continuous", 1, [-900.0] * 30 + [-100.0] * 30)
    time_to_return.main(time_to_return.Options((tmp_path,)))
    cells = capsys.readouterr().out.splitlines()[2].split(" | ")
    # of the last 20 points, 18 must be -100 for a mean of -180; 17 give -220
    assert cells[2] == "1 of 1" and cells[3].startswith("48.0 ") and cells[4] == "48,000"
    with pytest.raises(SystemExit):
        time_to_return.main(time_to_return.Options((tmp_path / "none",)))
    assert "none does not exist" in capsys.readouterr().err
    (tmp_path / "none").mkdir()
    with pytest.raises(SystemExit):
        time_to_return.main(time_to_return.Options((tmp_path / "none",)))
    assert "no finished run of HalfCheetah-v5" in capsys.readouterr().err


CLEANRL = """
import argparse, time
from torch.utils.tensorboard import SummaryWriter
parser = argparse.ArgumentParser()
parser.add_argument("--env-id"), parser.add_argument("--seed"), parser.add_argument("--total-timesteps", type=int)
args = parser.parse_args()
assert args.env_id == "LunarLanderContinuous-v2"
writer = SummaryWriter(f"runs/{args.env_id}__{args.seed}")
for step in range(1000, args.total_timesteps + 1, 1000):
    writer.add_scalar("charts/episodic_return", {RETURN}, step)
    writer.flush()
    time.sleep(0.01)
writer.close()
"""


@pytest.mark.parametrize(
    ("value", "total", "until_goal", "reached"),
    [
        ("step / 100", 10_000_000, 5, True),
        ("0.0", 10_000_000, 0.05, False),
        ("0.0", 9000, None, False),
    ],
)
def test_a_file_that_is_not_ours(tmp_path, monkeypatch, value, total, until_goal, reached):
    """Would break: a run that goes on after the goal or after its time, another task than the one asked for, a log that
    is left where nothing reads it. The file is a stand-in for CleanRL's."""
    file = tmp_path / "ppo_continuous_action.py"
    file.write_text(CLEANRL.replace("{RETURN}", value))
    monkeypatch.setattr(cleanrl_ppo, "LOOK_EVERY", 0.3)
    monkeypatch.setattr(sys, "argv", [cleanrl_ppo.__file__])
    monkeypatch.chdir(tmp_path)
    python = Path("bin/python")  # a relative one, as the script's header has it
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    args = cleanrl_ppo.Args(file, python, env_id="LunarLanderContinuous-v3")
    args.total_timesteps, args.until_goal, args.runs_dir = total, until_goal, str(tmp_path / "runs")
    summary = cleanrl_ppo.train(args)
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert not (run_dir / "runs").exists()
    run = time_to_return.read_run(run_dir, time_to_return.WINDOW)
    assert run["reached"] == reached and 9000 <= summary["global_step"] < 10_000_000
    assert (run["env_id"], run["exp_name"]) == ("LunarLanderContinuous-v3", "cleanrl_ppo")
    if reached:  # the mean of the last 20,000 steps: 195 at 29,000, 205 at 30,000
        assert run["steps"] == 30_000


def test_a_file_that_fails(tmp_path, monkeypatch, capsys):
    """Would break: a summary of a run that died, a missing file that is found out about later."""
    file = tmp_path / "ppo_continuous_action.py"
    monkeypatch.setattr(cleanrl_ppo, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(sys, "argv", [cleanrl_ppo.__file__])
    args = cleanrl_ppo.Args(file, Path(sys.executable), runs_dir=str(tmp_path / "runs"))
    texts = iter(["raise ValueError", "pass"])
    for words in ("ppo_continuous_action.py is not there", "ended with 1", "has logged no episode"):
        with pytest.raises(SystemExit):
            cleanrl_ppo.train(args)
        assert words in capsys.readouterr().err
        file.write_text(next(texts, ""))
    assert not list((tmp_path / "runs").rglob("summary.json"))


def test_a_signal_ends_the_file_as_well(tmp_path):
    """Would break: a run of CleanRL's that trains on after the sweep was stopped."""
    file = tmp_path / "ppo_continuous_action.py"
    file.write_text("import os, time\nopen('pid', 'w').write(f'{os.getpid()}\\n')\ntime.sleep(999)")
    flags = ["--file", file, "--python", sys.executable, "--runs-dir", tmp_path]
    ours = subprocess.Popen([sys.executable, cleanrl_ppo.__file__, *flags])
    late = time.monotonic() + 120
    while not [pid for pid in tmp_path.glob("*/pid") if pid.read_text().endswith("\n")]:
        assert time.monotonic() < late and ours.poll() is None
        time.sleep(0.05)
    (pid,) = tmp_path.glob("*/pid")
    ours.terminate()
    assert ours.wait(60) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_files_and_sides_that_do_not_fit(tmp_path, capsys):
    """Would break: a traceback for results of another kind, or a table without a single comparison, and status 0."""
    main, options = time_to_return.main, time_to_return.Options
    for name, given, words in (
        ("results/time_to_return.csv", {"ours": "ppo"}, "--ours ppo is not among ppo_continuous, "),
        (
            "studies/atari/results/breakout_fast.csv",
            {},
            "breakout_fast.csv was not written by --output",
        ),
        (
            "studies/continuous/results/continuous.csv",
            {},
            "continuous.csv was not written by --output",
        ),
    ):
        with pytest.raises(SystemExit):
            main(options((ROOT / "benchmarks" / name,), **given))
        assert words in capsys.readouterr().err
