"""Sweeps at work: every run once, whatever ends the sweep in between; a failure is tried again, then named; so too on
Ray."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import sweep
import torch
from conftest import ALGOS, ROOT
from plainrl_tools.sweeping import claims
from test_sweep import FAKE, finish, half_way, journal, options, start, wait_for


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with the script in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fake.py").write_text(FAKE)
    return tmp_path


KEEPER = SimpleNamespace(hold=claims.hold, is_alive=lambda: True)  # without a process


TINY = "--num-envs 2 --num-steps 8 --num-minibatches 2 --update-epochs 1 --total-timesteps 64 --eval-episodes 1"


@pytest.mark.parametrize(
    ("device", "launcher", "gpus"),
    [("cuda", "env FROM=launcher python", {"4", "7"}), ("cpu", "", {"4,7"})],
)
def test_variables_of_a_run(folder, monkeypatch, device, launcher, gpus):
    """Would break: two runs on the same GPU, also by a launcher that deals none, or more threads than cores."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    launcher = f"--launcher '{launcher.replace('python', sys.executable)}'" if launcher else ""
    finish(
        start(f"--env-ids Toy --seeds 1-2 --workers 2 --device {device} {launcher} -- --delay 0.2")
    )
    found = [
        json.loads(file.read_text())["variables"] for file in Path("runs").glob("*/summary.json")
    ]
    assert {one["OMP_NUM_THREADS"] for one in found} == {
        str(max(1, len(os.sched_getaffinity(0)) // 2))
    }
    assert {one["CUDA_VISIBLE_DEVICES"] for one in found} == gpus


def test_a_worker_a_core(folder, monkeypatch):
    """Would break: --workers 0, with which the shell scripts start, that leaves cores idle or runs one by one."""
    monkeypatch.setattr(sweep, "num_cores", lambda: 3)
    plan = options("fake.py", seeds=("1-3",), workers=0)
    assert sweep.main(plan, ["--delay", "1"]) == 0  # long beside the start of a process
    found = [json.loads(file.read_text()) for file in Path("runs").glob("*/summary.json")]
    assert [one["variables"]["OMP_NUM_THREADS"] for one in found] == ["1", "1", "1"]
    assert [line.split()[2] for line in journal()] == ["start"] * 3 + ["end"] * 3


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM"])
def test_killed_and_started_again(folder, how):
    """Would break: a run that is lost or done twice; one that starts from scratch though it has a checkpoint."""
    flags = "--env-ids Toy --seeds 1-5 --workers 2 -- --steps 6 --delay 0.2"
    process = start(flags)
    wait_for(lambda: half_way(ended=2))
    before = journal()
    ended = {line.split()[1] for line in before if "end" in line}
    if how == "SIGKILL":
        os.killpg(
            process.pid, signal.SIGKILL
        )  # the sweep and all its runs at once, as in a power cut
        finish(process, -9)
    else:
        process.send_signal(getattr(signal, how))
        output = finish(process, 128 + getattr(signal, how))
        assert "Traceback" not in output and "FAILED" not in output
        stopped = {line.split()[1] for line in journal() if "stopped" in line}
        assert stopped | ended >= {line.split()[1] for line in before}, (
            "a run did not get the signal"
        )
    whole = {path.parent.name.split("__")[2] for path in Path("runs").glob("*/summary.json")}
    half = {
        path.parent.name.split("__")[2] for path in Path("runs").glob("*/checkpoint.pt")
    } - whole
    assert half and ended <= whole
    finish(start(flags))
    count = Counter(tuple(line.split()[1:3]) for line in journal())
    for seed in map(str, range(1, 6)):
        assert count[seed, "end"] == 1
        assert count[seed, "resume"] == (seed in half)
        assert (
            count[seed, "start"] == 1 or seed not in half | whole
        )  # again only where nothing had been saved
    assert all(line.split()[3] > "0" for line in journal() if "resume" in line)
    assert (
        len(list(Path("runs").glob("*/summary.json")))
        == len(list(Path("runs").glob("Toy__*/config.json")))  # not what was killed before it
        == 5
    )
    assert "5 done before, 0 now" in finish(start(flags))


def test_runs_that_outlive_their_sweep(folder):
    """Would break: after kill -9 of the sweep alone, two processes that write to one run folder."""
    flags = "--env-ids Toy --seeds 1-2 --workers 2 -- --steps 16 --delay 0.5"
    process = start(flags)
    wait_for(lambda: sum("start" in line for line in journal()) == 2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    output = finish(start(flags))
    assert "waiting for 2 runs that another sweep is executing" in output
    assert output.count("done after 0 s: finished by another sweep") == 2
    assert Counter(line.split()[2] for line in journal()) == {"start": 2, "end": 2}


def test_two_sweeps_share_a_folder(folder):
    """Would break: a run that both do, or that neither does; a sweep that ends before the other's share is done."""
    flags = "--env-ids Toy --seeds 1-{} -- --steps 4 --delay 0.4"
    first = start(flags.format(4))
    wait_for(journal)
    second = start(flags.format(5))
    assert "4 runs: 0 done before, 4 now, 0 failed" in finish(first)
    output = finish(second)
    assert re.search("5 runs: [0-4] done before, [1-5] now, 0 failed", output)
    ends = [line.split()[1] for line in journal() if "end" in line]
    assert sorted(ends) == ["1", "2", "3", "4", "5"] and len(journal()) == 10
    declared = json.loads(Path("runs/sweep.json").read_text())["runs"]
    assert [run["seed"] for run in declared] == [1, 2, 3, 4, 5]


def test_claims(folder, monkeypatch):
    """Would break: a run taken from a sweep on another machine that renews its claim, or taken by two at once from one
    that does not; a released claim that is not free; --status that calls a run of a dead machine running."""
    file = sweep.claim_file("run", Path("runs"))
    claim = claims.hold(file)
    assert claim.read_text().startswith("claimed ") and claims.is_held(file)
    assert claims.hold(file) is None
    claims.release(claim)
    assert not claims.is_held(file)
    monkeypatch.setattr(claims, "STALE", 0.5)

    def many(_) -> Path | None:
        return claims.hold(file)

    def taken() -> list[Path]:
        with ThreadPoolExecutor(16) as pool:
            return [claim for claim in pool.map(many, range(64)) if claim]

    (second,) = taken()
    begin = time.monotonic()
    while time.monotonic() < begin + 1.5:  # a heartbeat now and then, by a clock that is wrong
        os.utime(second, (time.monotonic(), time.monotonic()))
        assert taken() == []
        time.sleep(0.1)
    assert not claims.is_held(file)
    wait_for(lambda: claims.is_void(second))
    (third,) = taken()
    assert [path.name for path in (claim, second, third)] == ["run.1", "run.2", "run.3"]


def test_keeper(folder, monkeypatch):
    """Would break: a claim without heartbeats while a run lives that its sweep has left behind; one that is held though
    all have ended."""
    monkeypatch.setattr(claims, "BEAT", 0.1)
    keeper, file = claims.Keeper(), sweep.claim_file("run", Path("runs"))
    claim = keeper.hold(file)
    run = subprocess.Popen(["sleep", "60"], stdin=keeper.pipe)
    keeper.close()  # as after kill -9 of the sweep
    for _ in range(2):
        os.utime(claim, (0, 0))
        wait_for(lambda: claims.is_held(file))
    run.kill()
    run.wait()
    wait_for(lambda: claims.is_released(claim))


def test_lost_claim(folder, monkeypatch, capsys):
    """Would break: two machines that write to one run folder, after one was cut off and its claim was taken over."""
    monkeypatch.setattr(claims, "BEAT", 0.1)
    monkeypatch.setattr(sweep.signal, "signal", lambda *_: None)

    def another_machine() -> None:
        wait_for(lambda: half_way(ended=0))
        taken = Path("runs/.claims/Toy__fake__1.2")
        taken.write_text("claimed  by another machine\n")
        wait_for(lambda: "stopped" in "".join(journal()))
        time.sleep(2)
        assert len(journal()) == 2
        (run,) = Path("runs").glob("Toy__*")
        config = json.loads((run / "config.json").read_text())
        (run / "summary.json").write_text(json.dumps(config | {"eval_return_mean": 1.0}))
        claims.release(taken)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(another_machine)
        assert sweep.main(options("fake.py"), ["--steps", "99", "--delay", "0.2"]) == 0
        other.result()
    assert [line.split()[2] for line in journal()] == ["start", "stopped"]
    assert "finished by another sweep" in capsys.readouterr().out


UNIX_ONLY = """
import os, runpy, signal, subprocess, sys
real = subprocess.Popen
class Popen(real):
    def __init__(self, *args, pass_fds=(), preexec_fn=None, **more):
        assert not pass_fds and not preexec_fn, "not on Windows"
        super().__init__(*args, **more)
subprocess.Popen = Popen
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty"):
    sys.modules[name] = None
for name in ("SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGHUP", "SIGKILL"):
    delattr(signal, name)
for name in ("sched_getaffinity", "fork", "killpg", "getuid"):
    delattr(os, name)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_what_only_unix_has(folder):
    """Would break: a traceback on Windows, which has no fcntl, SIGUSR2, SIGPIPE and inherited descriptors."""
    Path("windows.py").write_text(UNIX_ONLY)
    line = [sys.executable, "windows.py", str(ROOT / "scripts/sweep.py")]
    plan = ["--scripts", "fake.py", "--env-ids", "Toy", "--seeds", "1-2"]
    for flags, said in (
        (plan, "2 now, 0 failed"),
        (plan, "2 done before"),
        (["--status"], "total"),
    ):
        done = subprocess.run([*line, *flags], capture_output=True, text=True)
        assert done.returncode == 0 and said in done.stdout, done.stdout + done.stderr


def test_failures(folder):
    """Would break: a failed run that is hidden, tried for ever, or stops the others."""
    output = finish(start("--env-ids Toy --seeds 1-3 --workers 2 -- --crash 2 --steps 3"), 1)
    assert "3 runs: 0 done before, 2 now, 1 failed" in output
    what = [line.split()[1:] for line in journal()]
    tries = [words for words in what if words[0] == "2"]
    assert tries == [["2", "start", "0"], ["2", "resume", "2"]]
    assert {words[0] for words in what if words[1] == "end"} == {"1", "3"}
    report = output[output.index("FAILED") :].splitlines()
    reason = "exit status 1: RuntimeError: this is the cause"
    assert report[0] == f"FAILED fake.py on Toy, seed 2: {reason}"
    assert "--seed 2" in report[1] and "runs/logs/Toy__fake__2.log" in report[2]
    assert report[3].strip().startswith("line ")
    assert report[-1].strip() == "RuntimeError: this is the cause" and len(report) == 18
    assert output.count("FAILED") == 1


def test_retries(folder):
    """Would break: another number of attempts than was asked for; half a checkpoint that a full disk leaves behind."""
    half = '(folder / "unfinished.tmp").write_text("x"); raise RuntimeError'
    Path("fake.py").write_text(FAKE.replace("raise RuntimeError", half))
    finish(start("--env-ids Toy --retries 2 -- --crash 1 --steps 9"), 1)
    assert [line.split()[2] for line in journal()] == ["start", "resume", "resume"]
    assert list(Path("runs").rglob("checkpoint.pt")) and not list(Path("runs").rglob("*.tmp"))


def test_what_is_not_tried_twice(folder):
    """Would break: hours spent on a run that says itself that it cannot go on."""
    output = finish(start("--env-ids Toy --seeds 1-2 -- --refuse 2 --steps 3"), 1)
    assert "exit status 1: NaN or infinity in the loss before step 2" in output
    assert [line.split()[1:3] for line in journal() if line.split()[1] == "2"] == [["2", "start"]]
    text = FAKE.replace(
        '    say(args, "resume"', '    say(args, "x"); sys.exit(2)\n    say(args, "resume"'
    )
    Path("stubborn.py").write_text(text)
    assert "exit status 2" in finish(start("--env-ids Toy", "stubborn.py"), 1)
    assert sum("stubborn" in line for line in journal()) == 1


def test_a_result_counts_however_its_process_ends(folder):
    """Would break: a finished run that dies while it exits trained again from the start, and left twice."""
    text = FAKE.replace('    say(args, "end")', '    say(args, "end"); os.kill(os.getpid(), 11)')
    Path("frail.py").write_text(text)
    output = finish(start("--env-ids Toy", "frail.py"))
    assert "done after" in output and "evaluation 1.0, then exit status -11" in output
    assert [line.split()[2] for line in journal()] == ["start", "end"]


def test_what_another_sweep_has_given_up(folder):
    """Would break: a run that says itself that it cannot go on, done once more by each of the sweeps at work."""
    begun = time.time()
    jobs = sweep.expand(options("fake.py", seeds=("1-4",)), [])
    ends = ("= failed: exit status 1", "= waiting: stopped", "step 1", f"= failed: {sweep.EDITED}")
    for job, words in zip(jobs, ends):
        log = sweep.log_file(job.name, Path("runs"))
        log.write_text(f"$ python fake.py\n{words}\n")
        os.utime(log, (begun + 1, begun + 1))
    common = (options("fake.py"), [], KEEPER, threading.Lock())
    taken = [sweep.take(jobs, *common, begun) for _ in range(4)]
    assert [job.args["seed"] for ((job, _),) in taken[:3]] == [2, 3, 4] and taken[3] == []
    assert (jobs[0].state, jobs[0].outcome) == ("failed", "failed in another sweep")
    again = sweep.expand(options("fake.py"), [])
    assert sweep.take(again, *common, begun + 2)  # begun since


def test_a_run_that_hangs(folder, monkeypatch, capsys):
    """Would break: a sweep that waits for ever; a second attempt at what will hang again."""
    monkeypatch.setattr(sweep, "GRACE", 1)
    monkeypatch.setattr(sweep.signal, "signal", lambda *_: None)
    seeds = options("fake.py", seeds=("1-2",), timeout=0.05)
    assert sweep.main(seeds, ["--hang", "1", "--steps", "3"]) == 1
    assert [line.split()[1:3] for line in journal()] == [
        ["1", "start"],
        ["2", "start"],
        ["2", "end"],
    ]
    log = Path("runs/logs/Toy__fake__1.log").read_text()
    assert log.endswith("= failed: stopped by --timeout after 0.05 minutes\n")
    output = capsys.readouterr().out
    assert "FAILED fake.py on Toy, seed 1: stopped by --timeout after 0.05 minutes" in output
    assert sweep.main(replace(seeds, timeout=0), ["--hang", "9", "--steps", "3"]) == 0


def test_an_end_after_the_timeout(folder, monkeypatch, capsys):
    """Would break: a result that is there, called a failure, as it came between the timeout and the end of GRACE."""
    monkeypatch.setattr(sweep.signal, "signal", lambda *_: None)
    handler = "signal.signal(signal.SIGTERM, lambda *_: stop.append(15))"
    text = FAKE.replace(f"    stop = []\n    {handler}\n", "")
    stopped = 'say(args, "stopped")\n            sys.exit(143)'
    text = text.replace(stopped, "break")
    first = f"import signal\nstop = []\nif __name__ == '__main__':\n    {handler}\n"
    Path("fake.py").write_text(first + text)
    flags = ["--steps", "9999", "--delay", "0.1"]
    assert sweep.main(options("fake.py", timeout=0.03), flags) == 0
    assert "1 runs: 0 done before, 1 now, 0 failed" in capsys.readouterr().out


def test_full_disk(folder, monkeypatch, capsys):
    """Would break: a traceback of the sweep, or seeds that are never tried, when there is no room."""
    monkeypatch.setattr(sweep.signal, "signal", lambda *_: None)
    # as on a full disk, it cannot be written to
    Path("runs/logs/Toy__fake__2.log").mkdir(parents=True)
    assert sweep.main(options("fake.py", seeds=("1-3",)), []) == 1
    output = capsys.readouterr().out
    assert "3 runs: 0 done before, 2 now, 1 failed" in output
    assert "FAILED fake.py on Toy, seed 2: [Errno 21] Is a directory" in output
    monkeypatch.setattr(sweep, "NEEDED", 1e18)
    assert sweep.main(options("fake.py", seeds=("1-5",)), []) == 1
    output = capsys.readouterr().out
    assert "5 runs: 2 done before, 0 now, 3 failed" in output
    assert output.count("not started:") == 6 and "Traceback" not in output


def test_edited_script(folder):
    """Would break: another program's result reported as this one's."""
    flags = "--env-ids Toy --seeds 1-2 -- --steps 3"
    finish(start(flags))
    assert "2 done before, 0 now" in finish(start(flags))
    (old,) = Path("runs").glob("Toy__fake__1__*")
    (half,) = Path("runs").glob("Toy__fake__2__*")
    (half / "summary.json").unlink()  # as if it had been stopped
    Path("fake.py").write_text(FAKE + "# another program\n")
    assert "start" in finish(start("--env-ids Toy --dry-run -- --steps 3")).split()[0]
    output = finish(start(flags))
    said = "2 runs of another version of their script move to .old and are run again"
    assert said in output and "2 runs: 0 done before, 2 now" in output
    assert (Path("runs/.old") / old.name / "summary.json").exists()
    assert (Path("runs/.old") / half.name / "checkpoint.pt").exists()
    assert Counter(line.split()[2] for line in journal()) == {"start": 4, "end": 4}
    assert "2 done before, 0 now" in finish(start(flags))
    shas = {run["sha256"] for run in json.loads(Path("runs/sweep.json").read_text())["runs"]}
    assert shas == {hashlib.sha256(Path("fake.py").read_bytes()).hexdigest()}


def test_edited_while_it_runs(folder):
    """Would break: the second half of a sweep done by another program than the first."""
    process = start("--env-ids Toy --seeds 1-2 -- --steps 3 --delay 0.4")
    wait_for(journal)
    Path("fake.py").write_text(FAKE + "# another program\n")
    output = finish(process, 1)
    assert "seed 2: the script was edited during the sweep" in output


def test_edited_between_two_attempts(folder):
    """Would break: half a run of the old text and half of the new one, reported as the new one's result."""
    process = start("--env-ids Toy -- --crash 1 --steps 6 --delay 0.5")
    wait_for(lambda: list(Path("runs").glob("*/checkpoint.pt")))
    Path("fake.py").write_text(FAKE.replace("raise RuntimeError", "str"))  # the fault is cured
    assert "the script was edited during the sweep" in finish(process, 1)
    output = finish(start("--env-ids Toy -- --crash 1 --steps 6 --delay 0.5"))
    assert "1 runs of another version of their script" in output and "1 now" in output
    assert [line.split()[2] for line in journal()] == ["start", "start", "end"]


def test_a_copy_that_need_not_be_what_ran(folder):
    """Would break: an edit between the start of a process and its copy of the script makes the old program's result the
    new one's."""
    text = FAKE.replace("def main(args):", "time.sleep(2)\ndef main(args):")
    Path("fake.py").write_text(text)
    process = start("--env-ids Toy")
    wait_for(lambda: list(Path("runs/logs").glob("*.log")))
    time.sleep(0.5)
    Path("fake.py").write_text(FAKE)
    assert "the script was edited" in finish(process, 1)
    assert "1 runs of another version" in finish(start("--env-ids Toy"))


def test_claims_outlive_the_logs(folder):
    """Would break: two processes that write to one run folder after logs/ was deleted."""
    flags = "--env-ids Toy -- --steps 12 --delay 0.5"
    process = start(flags)
    wait_for(journal)
    shutil.rmtree("runs/logs")
    assert "by another sweep" in finish(start(flags))
    assert "1 now" in finish(process) and len(journal()) == 2


def test_stopped_while_it_plans(folder):
    """Would break: a stop signal that is taken for the script's own end, so that the runs start."""
    text = "\ndef train(args, stop):\n    Path('planning').touch()\n    time.sleep(60)\n\ndef main(args):"
    Path("fake.py").write_text(FAKE.replace("\ndef main(args):", text))
    process = start("--env-ids Toy")
    wait_for(Path("planning").exists)
    process.send_signal(signal.SIGTERM)
    assert finish(process, 143) == "" and not Path("runs").exists()


def test_jobs_from_a_file_and_a_pipe(folder):
    """Would break: a sweep of several scripts that does not go on after a stop."""
    for number in range(5):
        Path(f"script{number}.py").write_text(FAKE)
    lines = [
        f"--scripts script{n}.py --env-ids Toy Other Third -- --steps 3 --delay 0.2"
        for n in range(5)
    ]
    Path("list").write_text("\n".join(lines))
    line = [sys.executable, str(ROOT / "scripts/sweep.py"), "--workers", "3", "--jobs"]
    process = subprocess.Popen([*line, "list"], start_new_session=True, stdout=subprocess.DEVNULL)
    wait_for(lambda: half_way(ended=3))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    again = subprocess.run([*line, "-"], input="\n".join(lines), text=True, capture_output=True)
    assert again.returncode == 0 and "15 runs: " in again.stdout and "0 failed" in again.stdout
    assert Counter(line.split()[2] for line in journal())["end"] == 15
    assert any("resume" in line for line in journal())


def test_status_0_is_not_enough(folder):
    """Would break: a run counted as done that has left no result."""
    output = finish(start("--env-ids Toy -- --lie"), 1)
    assert "no summary.json" in output and sum("end" in line for line in journal()) == 1


def scores(runs: str) -> dict:
    summaries = [json.loads(file.read_text()) for file in Path(runs).glob("*/summary.json")]
    return {(r["env_id"], r["seed"]): (r["eval_returns"], r["commit"]) for r in summaries}


def curves(runs: str) -> dict:
    """The weights of a layer of every run's critic."""
    found = {}
    for file in Path(runs).glob("*/checkpoint.pt"):
        saved = torch.load(file)
        found[saved["env_id"], saved["seed"]] = saved["agent"]["critic.0.weight"]
    return found


MINE = """
import gymnasium as gym
from gymnasium.envs.classic_control.pendulum import PendulumEnv
print("imported from", __file__)
gym.register("Mine-v0", PendulumEnv, max_episode_steps=20)
"""


@pytest.mark.slow
def test_on_ray(folder, cluster, monkeypatch):
    """Would break: another script, seed or flag on the way to a node, results that stay there; an environment of one's
    own that stays here; checkpoints that come back with the end of a run only; a timeout that is hidden."""
    Path("own").mkdir()
    Path("own/mine.py").write_text(MINE)
    monkeypatch.setenv("PYTHONPATH", "own")
    Path("list").write_text(f"--scripts {ALGOS}/ppo_continuous.py --env-ids mine:Mine-v0 -- {TINY}")
    line = [sys.executable, ROOT / "scripts/sweep.py", "--jobs", "list", "--runs-dir"]
    for where in (["here"], ["cluster", "--ray", cluster]):
        done = subprocess.run([*line, *where], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert scores("here") == scores("cluster") and len(scores("here")) == 1
    assert "_ray_pkg" in Path("cluster/logs/mine-Mine-v0__ppo_continuous__1.log").read_text()
    (here,), (there,) = (curves(runs).values() for runs in ("here", "cluster"))
    assert torch.equal(here, there)

    toy = f"--env-ids Toy --seeds 1-2 --ray {cluster} -- --journal {folder}/journal"
    process = start(f"{toy} --steps 8 --crash 2 --delay 0.4")
    wait_for(lambda: len(list(Path("runs").glob("*/checkpoint.pt"))) == 2)
    process.send_signal(signal.SIGTERM)
    finish(process, 143)
    what = [line.split()[1:3] for line in journal()]
    assert sorted(what[:2]) == [["1", "start"], ["2", "start"]]
    assert ["1", "stopped"] in what  # 2 may have crashed
    output = finish(start(f"{toy} --steps 8 --crash 2 --delay 0.4"), 1)
    assert "1 now, 1 failed" in output
    assert output.count("\n  RuntimeError: this is the cause") == 1
    what = [line.split()[1:3] for line in journal()][len(what) :]
    assert what.count(["1", "resume"]) == what.count(["1", "end"]) == 1
    assert not list(Path("runs").rglob("*.tmp"))
    toy = toy.replace("1-2", "1")
    output = finish(start(f"--timeout 0.03 {toy} --lr 3 --delay 9"), 1)
    assert output.count("stopped by --timeout after 0.03 minutes") == 2


SEVERAL = ALGOS / "ppo_continuous_seeds.py"


def finished(runs: Path) -> dict[int, Path]:
    """{seed: folder} of the runs that have a summary."""
    found = {}
    for file in runs.glob("*/summary.json"):
        found[json.loads(file.read_text())["seed"]] = file.parent
    return found


def test_several_seeds_in_a_process(tmp_path, monkeypatch):
    """Would break: a seed that no process trains, or two; a log without an outcome; runs that are made again."""
    monkeypatch.chdir(tmp_path)
    flags = f"--env-ids Pendulum-v1 --seeds 1-5 --workers 2 -- {TINY}"
    output = finish(start(flags, SEVERAL))
    assert "5 runs: 0 done before, 5 now, 0 failed" in output
    assert finished(Path("runs")).keys() == {1, 2, 3, 4, 5}
    assert len(list(Path("runs").glob("Pendulum*"))) == 5
    logs = {file.stem[-1]: file.read_text() for file in Path("runs/logs").glob("*.log")}
    assert "--num-seeds 3" in logs["1"] and "--num-seeds 2" in logs["4"]
    assert "in the process of Pendulum-v1__ppo_continuous_seeds__1" in logs["3"]
    assert all(log.splitlines()[-1].startswith("= done: evaluation -") for log in logs.values())
    assert "5 runs: 5 done before, 0 now" in finish(start(flags, SEVERAL))
    more = flags.replace("1-5", "1-6")
    assert "6 runs: 5 done before, 1 now" in finish(start(more, SEVERAL))


def test_seeds_that_a_process_did_not_finish(tmp_path, monkeypatch):
    """Would break: a seed that is lost with the process of others; one that starts from scratch with a checkpoint."""
    monkeypatch.chdir(tmp_path)
    steps = TINY.replace("64", "4000000")
    flags = f"--seeds 1-2 --seeds-per-process 2 -- {steps} --checkpoint-frequency 64"
    process = start(f"--env-ids Pendulum-v1 {flags}", SEVERAL)
    wait_for(lambda: len(list(Path("runs").glob("*/checkpoint.pt"))) == 2)
    (run,) = subprocess.run(["pgrep", "-f", "num-seeds 2"], capture_output=True).stdout.split()
    os.kill(int(run), signal.SIGKILL)
    wait_for(
        lambda: "--resume" in Path("runs/logs/Pendulum-v1__ppo_continuous_seeds__1.log").read_text()
    )
    process.send_signal(signal.SIGTERM)
    output = finish(process, 128 + signal.SIGTERM)
    assert "2 not finished" in output
    assert len(list(Path("runs").glob("Pendulum*"))) == 2


def test_seeds_per_process_of_other_scripts(tmp_path, monkeypatch):
    """Would break: a flag that does nothing."""
    monkeypatch.chdir(tmp_path)
    flags = "--env-ids Pendulum-v1 --seeds 1-2"
    output = finish(start(f"{flags} --seeds-per-process 2", ALGOS / "ppo_continuous.py"), 2)
    assert "has no --num-seeds" in output
    output = finish(start(f"{flags} -- --num-seeds 2", SEVERAL), 2)
    assert "--num-seeds is set by the sweep" in output
