"""Sweeps: every run once, whatever ends the sweep in between; a failure is tried again, then named; so too on Ray.

Most tests sweep a script that only writes down what happens to it, in a journal shared by all its runs."""

import hashlib
import json
import math
import os
import re
import shlex
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
from conftest import ALGOS, ROOT, load
from plainrl_tools import results
from plainrl_tools.sweeping import claims, clusters, plan

FAKE = """
import json, os, shutil, signal, sys, time
from dataclasses import asdict, dataclass
from pathlib import Path
import tyro

@dataclass
class Args:
    env_id: str
    exp_name: str = "fake"
    seed: int = 1
    runs_dir: str = "runs"
    device: str = "cpu"
    resume: str = ""
    journal: str = "journal"
    steps: int = 2
    delay: float = 0.0  # seconds a step takes
    crash: int = 0  # the seed that fails at its second step
    refuse: int = 0  # the seed that ends with a message of its own there
    hang: int = 0  # the seed that never ends and does not hear a signal
    lie: bool = False  # exit with status 0 and no summary
    lr: float = 0.5
    tail: bool = True

def say(args, *words):
    with open(args.journal, "a") as file:
        print(args.exp_name, args.seed, *words, file=file)

def main(args):
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(15))
    name = f"{args.env_id}__{args.exp_name}__{args.seed}__{time.time_ns()}"
    folder, step = Path(args.resume or Path(args.runs_dir) / name), 0
    if args.resume:
        step = int((folder / "checkpoint.pt").read_text())
    say(args, "resume" if args.resume else "start", step)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(__file__, folder)
    run = {"algo": Path(__file__).stem, "args": asdict(args), "commit": "unknown"}
    (folder / "config.json").write_text(json.dumps(run))
    while step < args.steps:
        time.sleep(args.delay)
        if stop:
            say(args, "stopped")
            sys.exit(143)
        step += 1
        (folder / "aside").write_text(str(step))
        os.replace(folder / "aside", folder / "checkpoint.pt")
        if args.crash == args.seed and step > 1:
            print("\\n".join(f"line {number}" for number in range(30)))
            raise RuntimeError("this is the cause")
        if args.refuse == args.seed and step > 1:
            raise SystemExit("NaN or infinity in the loss before step 2")
        while args.hang == args.seed:
            time.sleep(1)
    if not args.lie:
        variables = {key: os.environ.get(key) for key in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")}
        (folder / "summary.json").write_text(json.dumps(run | {"eval_return_mean": args.seed, "variables": variables}))
    say(args, "end")

if __name__ == "__main__":
    main(tyro.cli(Args))
"""
KEEPER = SimpleNamespace(hold=claims.hold, is_alive=lambda: True)  # without a process
TINY = "--num-envs 2 --num-steps 8 --num-minibatches 2 --update-epochs 1 --total-timesteps 64 --eval-episodes 1"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with the script in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fake.py").write_text(FAKE)
    return tmp_path


def start(flags: str, script: str | Path = "fake.py") -> subprocess.Popen:
    """A sweep as from the command line, leading a process group of its own."""
    line = [sys.executable, ROOT / "scripts/sweep.py", "--scripts", script, *shlex.split(flags)]
    return subprocess.Popen(
        line, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def finish(process: subprocess.Popen, status: int = 0) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == status, output
    return output


def journal() -> list[str]:
    """Lines "exp_name seed start|resume|stopped|end ..." in the order of time."""
    return Path("journal").read_text().splitlines() if Path("journal").exists() else []


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def half_way(ended: int) -> bool:
    """So many runs have ended, and a later one has saved a checkpoint."""
    saved = [path.parent for path in Path("runs").glob("*/checkpoint.pt")]
    return sum("end" in line for line in journal()) >= ended and any(
        not (f / "summary.json").exists() for f in saved
    )


def record(name: str, args: dict, algo: str = "fake", **summary) -> Path:
    """A run folder as an earlier run would have left it."""
    run = Path("runs") / name
    run.mkdir(parents=True)
    shutil.copy("fake.py", run)
    (run / "config.json").write_text(json.dumps({"algo": algo, "args": args}))
    if summary:
        (run / "summary.json").write_text(json.dumps({"algo": algo, "args": args} | summary))
    return run


def options(*scripts, env_ids=("Toy",), **more) -> sweep.Options:
    return sweep.Options(scripts=tuple(map(Path, scripts)), env_ids=env_ids, **more)


def old_args(**changed) -> dict:
    """What config.json holds of the fake script's first run."""
    (job,) = sweep.expand(options("fake.py"), [])
    return job.args | changed


def finished(name: str, seed: int = 1, env_id: str = "Toy", **flags) -> Path:
    """The folder of a finished run, with all that plot.py reads."""
    more = {"env_id": env_id, "seed": seed, "eval_returns": [1.0], "eval_return_mean": 1.0}
    more |= {"total_timesteps": 2, "global_step": 2, "commit": "abc"}
    return record(name, old_args(seed=seed, env_id=env_id, **flags), **more)


def declare(*flags: str, seeds: str = "1", env_ids=("Toy",)) -> None:
    jobs = sweep.expand(options("fake.py", seeds=(seeds,), env_ids=env_ids), list(flags))
    sweep.declare(jobs, Path("runs"))


def refusals() -> list[str]:
    """What plot.py refuses the runs for."""
    rows, _ = results.read_folders([Path("runs")])
    return [line for _, line in results.problems(rows, "eval_return_mean")]


def test_names_and_flags():
    """Would break: two runs that share a folder's name, or a default that gets a name of its own."""
    scripts = ALGOS / "ppo_continuous.py", ALGOS / "rpo_continuous.py"
    grid = ("bootstrap-truncation=True,False", "gamma=0.995,0.9")
    jobs = sweep.expand(
        options(*scripts, env_ids=("Pendulum-v1",), seeds=("1-2", "7"), grid=grid),
        ["--num-envs", "2"],
    )
    assert len({job.name for job in jobs}) == len(jobs) == 2 * 3 * 4
    assert [job.args["seed"] for job in jobs] == [1] * 8 + [2] * 8 + [7] * 8
    names = [f"{a}{b}{c}" for a in ("ppo_continuous", "rpo_continuous")
             for b in ("", "-no-bootstrap-truncation") for c in ("", "-gamma=0.9")]  # fmt: skip
    assert [job.args["exp_name"] for job in jobs[:8]] == names
    assert {(job.args["num_envs"], job.args["env_id"]) for job in jobs} == {(2, "Pendulum-v1")}
    assert jobs[3].args["bootstrap_truncation"] is False and jobs[3].args["gamma"] == 0.9
    assert "--no-bootstrap-truncation" in jobs[3].flags and "--torch-threads" not in jobs[3].flags
    (low, usual) = sweep.expand(
        options(
            scripts[1],
            env_ids=("Pendulum-v1",),
            grid=("rpo-alpha=0.1,0.5",),
            tag="paper",
            device="cpu",
        ),
        [],
    )
    assert low.args["exp_name"] == "rpo_continuous-paper-rpo-alpha=0.1"
    assert usual.args["exp_name"] == "rpo_continuous-paper" and usual.args["device"] == "cpu"


BAD = [
    ("missing.py", {}, [], "missing.py does not exist"),
    ("broken.py", {}, [], "broken.py"),
    ("empty.py", {}, [], "empty.py"),
    ("poor.py", {}, [], "poor.py has no seed"),
    (
        "fake.py",
        {},
        ["--rpo-alpha", "1"],
        "fake.py does not accept the flags: Unrecognized options: --rpo-alpha",
    ),
    ("fake.py", {}, ["--lr", "much"], "fake.py does not accept the flags: Error parsing --lr"),
    ("fake.py", {"grid": ("rpo-alpha=1,2",)}, [], "--grid rpo-alpha=1: fake.py has no --rpo-alpha"),
    ("fake.py", {"grid": ("=1,2",)}, [], "--grid =1,2: give NAME=v1,v2"),
    ("fake.py", {"grid": ("lr=",)}, [], "--grid lr=: give NAME=v1,v2"),
    (
        "fake.py",
        {"grid": ("lr=1,2",)},
        ["--lr", "3"],
        "--lr is in --grid and after --; remove one of them",
    ),
    (
        "fake.py",
        {"grid": ("tail=True,False",)},
        ["--no-tail"],
        "--tail is in --grid and after --; remove one of them",
    ),
    ("fake.py", {"seeds": ("1-3", "10-5")}, [], "--seeds 1-3 10-5: 10-5 is an empty range"),
    ("fake.py", {"grid": ("lr=1,much",)}, [], "--lr"),
    (
        "fake.py",
        {"grid": ("lr=1", "lr=2")},
        [],
        "--grid lr=1 lr=2 has a name twice; give all its values as NAME=v1,v2",
    ),
    ("fake.py", {"grid": ("tail=1",)}, [], "--grid tail"),
    ("fake.py", {"grid": ("lr",)}, [], "--grid lr"),
    ("fake.py", {"grid": ("seed=1,2",)}, [], "--seed is set by the sweep"),
    ("fake.py", {}, ["--exp_name=x"], "--exp-name is set by the sweep"),
    ("fake.py", {"seeds": ("one",)}, [], "--seeds one"),
    ("fake.py", {"seeds": ("3-1",)}, [], "--seeds 3-1"),
    ("fake.py", {"seeds": ()}, [], "--seeds: give numbers and ranges such as 1-10"),
    ("fake.py", {"seeds": ("1,2,3",)}, [], "--seeds 1,2,3: give numbers and ranges"),
    ("fake.py", {"seeds": ("1.5",)}, [], "--seeds 1.5: give numbers and ranges"),
    ("fake.py", {"seeds": ("1-",)}, [], "--seeds 1-: give numbers and ranges"),
    ("fake.py", {"seeds": ("-3",)}, [], "--seeds -3: give numbers and ranges"),
    ("fake.py", {"seeds": ("1-1000000000",)}, [], "1-1000000000 has more than 10,000 seeds"),
    ("fake.py", {"tag": "a/b"}, [], "--tag a/b"),
    ("fake.py", {"workers": -1}, [], "--workers must be at least 0"),
    ("fake.py", {"workers": 0, "slurm": 2}, [], "--slurm 2 needs --workers"),
    ("fake.py", {"num_gpus": -1.0}, [], "--num-gpus must be at least 0, not -1.0"),
    ("fake.py", {"num_cpus": math.inf}, [], "--num-cpus must be a finite number, not inf"),
    ("fake.py", {"timeout": math.nan}, [], "--timeout must be at least 0, not nan"),
    ("fake.py", {"retries": -1}, [], "--retries must be at least 0, not -1"),
    ("fake.py", {"jobs": Path("nowhere")}, [], "--jobs nowhere cannot be read (FileNotFoundError"),
    ("fake.py", {"launcher": "nowhere -n 2"}, [], "the program nowhere does not exist in PATH"),
    ("fake.py", {"slurm": 2}, [], "--slurm: sbatch is not available on this machine"),
    ("syntax.py", {}, [], "syntax.py cannot be imported, or has no Args (SyntaxError"),
    ("fake.py", {"jobs": Path("binary")}, [], "--jobs binary cannot be read (UnicodeDecodeError"),
    ("fake.py", {"jobs": Path(".")}, [], "--jobs . cannot be read (IsADirectoryError"),
    ("fake.py", {"launcher": "'"}, [], "--launcher ': No closing quotation"),
    ("fake.py", {}, ["--seeds", "1-3"], "--seeds, 1-3; flags of"),
    ("fake.py", {"device": "cuda"}, [], "--device cuda is not available; use --device cpu"),
    ("fake.py", {"grid": ("device=cpu,cuda",)}, [], "--device cuda is not available"),
    (Path(), {}, [], ". is a folder; name a Python file"),
    ("text.md", {}, [], "text.md is not a Python file"),
    ("fake.py", {"env_ids": ()}, [], "nothing to run"),
    ("fake.py", {"ray": "127.0.0.1:9"}, [], "--ray 127.0.0.1:9 cannot be used"),
    (ALGOS / "ppo_continuous.py", {"env_ids": ("Pendlum-v1",)}, [], "--env-id Pendlum-v1"),
    (
        ALGOS / "ppo.py",
        {"env_ids": ("nowhere:Task-v0",)},
        [],
        "Set PYTHONPATH to the folder that contains nowhere,",
    ),
]


@pytest.mark.parametrize("script, more, common, words", BAD)
def test_bad_input(folder, capsys, script, more, common, words):
    """Would break: a typing error that comes to light after the first hundred runs, or as a traceback."""
    Path("broken.py").write_text("import no_such_module")
    Path("empty.py").write_text("")
    Path("poor.py").write_text(FAKE.replace("seed: int", "sed: int"))
    Path("syntax.py").write_text("x =")
    Path("text.md").write_text("")
    Path("binary").write_bytes(b"\xff")
    with pytest.raises(SystemExit) as stopped:
        sweep.main(options(script, **more), common)
    output, errors = capsys.readouterr()
    assert stopped.value.code == 2
    assert len((output + errors).splitlines()) == 1 and words in errors
    assert not Path("runs").exists() and not journal()


def test_checks_are_shown_on_a_terminal(folder, monkeypatch, capsys):
    """Would break: a --dry-run that prints nothing for a minute, while it starts each script once."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    sweep.expand(options("fake.py", env_ids=("A", "B"), seeds=("1-2",)), [])
    assert capsys.readouterr().err == "checking fake.py on A\nchecking fake.py on B\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--lr 0.1", "unknown flag --lr: flags of the runs belong after --"),
        ("--env-id Toy", "unknown flag --env-id: did you mean --env-ids?"),
    ],
)
def test_flags_on_the_wrong_side(monkeypatch, capsys, words, said):
    """Would break: a newcomer who is told that a flag does not exist, but not where it goes."""
    monkeypatch.setattr(sys, "argv", ["sweep.py", "--scripts", "fake.py", *words.split()])
    with pytest.raises(SystemExit) as stopped:
        plan.read_flags(sweep.Options, "")
    errors = capsys.readouterr().err
    assert stopped.value.code == 2 and said in errors and len(errors.splitlines()) == 1


def test_missing_ray(folder, capsys, monkeypatch):
    """Would break: a traceback in place of what to install."""
    find_spec = clusters.importlib.util.find_spec
    monkeypatch.setattr(
        clusters.importlib.util,
        "find_spec",
        lambda name: None if name == "ray" else find_spec(name),
    )
    with pytest.raises(SystemExit) as stopped:
        sweep.main(options("fake.py", ray="local"), [])
    assert stopped.value.code == 2 and "pip install -e '.[cluster]'" in capsys.readouterr().err


STUB = """#!/bin/sh
[ "$2" = "import sbx" ] && exit 1
printf '%s\\n' "$@" > {folder}/words; cat > {folder}/lines
"""


DECLARED = [  # a study and its PARTS, runs
    ("ablations", 96),
    ("ablations symptoms", 33),
    ("atari", 27),
    ("atari published", 72),
    ("atari mistakes", 12),
    ("augmentation", 44),
    ("classic", 112),
    ("continuous", 80),
    ("continuous published", 49),
    ("curiosity", 60),
    ("curiosity causes", 200),
    ("curiosity arm", 80),
    ("pqn", 10),
    ("pqn epsilon", 10),
    ("pqn atari", 6),
    ("rpo", 230),
    ("rpo all", 694),
    ("rpo paper", 60),
    ("rpo first_defaults", 180),
    ("time_to_return", 60),
    ("time_to_return_atari", 9),
    ("trust_region", 135),
    ("tuning", 30),
]


@pytest.mark.parametrize(("name", "runs"), DECLARED)
def test_declared_sweeps(tmp_path, monkeypatch, capsys, name, runs):
    """Would break: a flag that one of the files does not have; a dry run that starts something. The script's python is
    one that writes its arguments and its input down: the sweep is made here, in one process."""
    python, folder = tmp_path / "bin" / "python", tmp_path / "the runs"
    name, _, parts = name.partition(" ")
    python.parent.mkdir()
    python.write_text(STUB.format(folder=tmp_path))
    python.chmod(0o755)
    variables = os.environ | {
        "WORKERS": "1",
        "RUNS": str(folder),
        "PARTS": parts,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
    }
    line = ["bash", ROOT / f"scripts/{name}.sh", "--dry-run"]
    pipes = dict(stdin=subprocess.DEVNULL, text=True, capture_output=True)
    process = subprocess.run(line, env=variables, cwd=tmp_path, **pipes)
    assert process.returncode == 0, process.stderr
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)  # for envs:NAME
    script, *words = (tmp_path / "words").read_text().splitlines()
    assert script == "scripts/sweep.py"
    dry_start, known = plan.dry_start, set()

    def of_what_is_new(script, module, args):
        """Each task and each set of flags starts once, not every pair of them, with eight environments at most: of
        dm_control 64 take five seconds."""
        same = {"env_id": "", "exp_name": "", "seed": 0}
        found = {args.env_id, f"{script} {replace(args, **same)}"}
        if getattr(args, "num_envs", 1) > 8 and hasattr(args, "num_minibatches"):
            args = replace(args, num_envs=8, num_minibatches=8)
        if found - known:
            dry_start(script, module, args)
        known.update(found)

    monkeypatch.setattr(plan, "dry_start", of_what_is_new)
    monkeypatch.setattr("sys.stdin", (tmp_path / "lines").open())
    monkeypatch.setattr(sys, "argv", ["sweep.py", *words])
    assert sweep.main(*plan.read_flags(sweep.Options, "")) == 0
    starts = capsys.readouterr().out.splitlines()
    assert len(starts) == runs and all(line.startswith("start ") for line in starts)
    left = [path.name for path in folder.rglob("*") if path.suffix != ".py"]
    assert left in ([], ["mistakes"], ["notes"], ["patched"])


@pytest.mark.parametrize("name", [*(name for name, _ in DECLARED), "off_policy"])
def test_steps_of_a_study(tmp_path, name):
    """Would break: a study that trains for its usual number of steps, hours, though STEPS asks for a short test."""
    name, _, parts = name.partition(" ")
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(STUB.format(folder=tmp_path))
    python.chmod(0o755)
    path = f"{python.parent}:{os.environ['PATH']}"
    variables = {"WORKERS": "1", "RUNS": str(tmp_path / "runs"), "STEPS": "4320", "PATH": path}
    variables["PARTS"] = parts
    done = subprocess.run(
        ["bash", ROOT / f"scripts/{name}.sh"], env=os.environ | variables, stdin=subprocess.DEVNULL
    )
    words, lines = ((tmp_path / file).read_text() for file in ("words", "lines"))
    jobs = lines.replace("\\\n", " ").splitlines() or [" ".join(words.splitlines())]
    wanted = "--total-timesteps 4320", "--total-timesteps 6480"  # a peer on Atari takes longer
    assert done.returncode == 0
    assert [job for job in jobs if job and not any(steps in job for steps in wanted)] == []


def test_dry_run(folder, capsys):
    """Would break: a dry run that starts, creates or removes something, or tells another story than the sweep."""
    record("done", old_args(), eval_return_mean=1.0)
    (record("half", old_args(seed=2)) / "checkpoint.pt").write_text("1")
    record("leftover", old_args(seed=3))
    before = sorted(Path("runs").rglob("*"))
    assert sweep.main(options("fake.py", seeds=("1-4",), dry_run=True), []) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["skip", "resume", "start", "start"]
    assert (
        "--resume runs/half" in lines[1] and "--seed 2" in lines[1] and "--resume" not in lines[2]
    )
    assert sorted(Path("runs").rglob("*")) == before and not journal()


def test_dry_run_in_front_of_head(folder):
    """Would break: a traceback behind what `--dry-run | head -1` shows."""
    plan = "--scripts fake.py --env-ids Toy --seeds 1-3 --dry-run"
    line = [sys.executable, ROOT / "scripts/sweep.py", *plan.split()]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()  # as head does when it has seen enough
    assert process.stderr.read() == b"" and process.wait() == -signal.SIGPIPE


def test_gpus_are_dealt_out():
    """Would break: workers that share one GPU while others idle, or that leave the GPUs they were given."""
    assert sweep.visible_gpus(None, 3) == ["0", "1", "2"] and sweep.visible_gpus(None, 0) == []
    assert (
        sweep.visible_gpus("4,7", 2) == ["4", "7"]
        and sweep.visible_gpus("", 0) == sweep.visible_gpus("-1", 0) == []
    )
    dealt = [sweep.environment(1, slot, ["4", "7"])["CUDA_VISIBLE_DEVICES"] for slot in range(5)]
    assert dealt == ["4", "7", "4", "7", "4"]
    assert "CUDA_VISIBLE_DEVICES" not in sweep.environment(1, 0, [])
    assert set(sweep.environment(3).values()) == {"3"}


@pytest.mark.parametrize(
    ("device", "launcher", "gpus"),
    [
        ("cuda", "", {"4", "7"}),
        ("cuda", "env FROM=launcher python", {"4", "7"}),
        ("cuda", "python -m torch.distributed.run --standalone --nproc-per-node 1", {"4,7"}),
        ("cpu", "", {"4,7"}),
    ],
)
def test_variables_of_a_run(folder, monkeypatch, device, launcher, gpus):
    """Would break: two runs on the same GPU, also by a launcher that deals none, GPUs that torchrun does not get to
    deal, or more threads than cores."""
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


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGINT"])
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
        == len(list(Path("runs").glob("Toy__*")))
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
    assert "5 runs: 0 done before, 5 now, 0 failed" in output and "by another sweep" in output
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


@pytest.mark.parametrize("retries", [0, 3])
def test_retries(folder, retries):
    """Would break: another number of attempts than was asked for."""
    finish(start(f"--env-ids Toy --retries {retries} -- --crash 1 --steps 9"), 1)
    assert [line.split()[2] for line in journal()] == ["start", *["resume"] * retries]


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


def test_last_words_without_a_line_end(folder):
    """Would break: a run that failed listed as waiting, because its end is glued to what it said last."""
    job = sweep.expand(options("fake.py"), [])[0]
    log = sweep.log_file(job.name, Path("runs"))

    def run(*_) -> int:
        log.write_text("$ python fake.py\nabout to die")
        return 3

    sweep.carry_out(job, 0, KEEPER, run, options("fake.py", retries=0), [])
    assert log.read_text().splitlines()[1:] == [
        "about to die",
        "= failed: exit status 3: about to die",
    ]


def test_what_another_sweep_has_given_up(folder):
    """Would break: a run that says itself that it cannot go on, done once more by each of the sweeps at work."""
    begun = time.time()
    jobs = sweep.expand(options("fake.py", seeds=("1-4",)), [])
    ends = ("= failed: exit status 1", "= waiting: stopped", "step 1", f"= failed: {sweep.EDITED}")
    for job, words in zip(jobs, ends):
        log = sweep.log_file(job.name, Path("runs"))
        log.write_text(f"$ python fake.py\n{words}\n")
        os.utime(log, (begun + 1, begun + 1))
    taken = [sweep.take(jobs, Path("runs"), [], KEEPER, threading.Lock(), begun) for _ in range(4)]
    assert [found[0].args["seed"] for found in taken[:3]] == [2, 3, 4] and taken[3] is None
    assert (jobs[0].state, jobs[0].outcome) == ("failed", "failed in another sweep")
    again = sweep.expand(options("fake.py"), [])
    assert sweep.take(again, Path("runs"), [], KEEPER, threading.Lock(), begun + 2)  # begun since


def test_a_run_that_hangs(folder, monkeypatch):
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
    assert sweep.main(replace(seeds, timeout=0), ["--hang", "9", "--steps", "3"]) == 0


def test_report_of_a_hang(folder, monkeypatch, capsys):
    """Would break: a run that was ended without a word why."""
    monkeypatch.setattr(sweep, "GRACE", 1)
    monkeypatch.setattr(sweep.signal, "signal", lambda *_: None)
    sweep.main(options("fake.py", timeout=0.03), ["--hang", "1"])
    output = capsys.readouterr().out
    assert "FAILED fake.py on Toy, seed 1: stopped by --timeout after 0.03 minutes" in output
    assert re.search("Toy__fake__1 failed after [1-9]", output)
    assert (
        Path("runs/logs/Toy__fake__1.log")
        .read_text()
        .endswith("= failed: stopped by --timeout after 0.03 minutes\n")
    )


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


def test_logs_deleted_in_the_middle(folder):
    """Would break: an OSError when the next log is opened."""
    process = start("--env-ids Toy --seeds 1-3 -- --steps 3 --delay 0.3")
    wait_for(lambda: half_way(ended=1))
    shutil.rmtree("runs/logs")
    assert "3 runs: 0 done before, 3 now, 0 failed" in finish(process)


def test_folder_that_cannot_be_written(folder, capsys):
    """Would break: a traceback in place of one line."""
    Path("file").write_text("")
    for place in ("file/runs", "/proc/runs"):
        with pytest.raises(SystemExit) as stopped:
            sweep.main(options("fake.py", runs_dir=Path(place)), [])
        errors = capsys.readouterr().err.splitlines()
        assert stopped.value.code == 2 and len(errors) == 1
        assert f"--runs-dir {place} cannot be written to" in errors[0]


def test_unfinished_files_do_not_stay(folder):
    """Would break: half a checkpoint that a full disk leaves behind."""
    text = FAKE.replace(
        "raise RuntimeError", '(folder / "checkpoint.tmp").write_text("x"); raise RuntimeError'
    )
    Path("fake.py").write_text(text)
    finish(start("--env-ids Toy -- --crash 1 --steps 9"), 1)
    assert list(Path("runs").rglob("checkpoint.pt")) and not list(Path("runs").rglob("*.tmp"))


RAISES = """
import gymnasium as gym
from gymnasium.envs.classic_control.pendulum import PendulumEnv
class Raises(PendulumEnv):
    def step(self, action):
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps == 20:
            raise ValueError("the robot fell off the table")
        return super().step(action)
gym.register("Raises-v0", Raises, max_episode_steps=200)
"""


def test_environment_that_raises(folder, monkeypatch):
    """Would break: other runs that end with it; a relative PYTHONPATH that is not the user's."""
    Path("own").mkdir()
    Path("own/table.py").write_text(RAISES)
    monkeypatch.setenv("PYTHONPATH", "own")
    tiny = TINY.replace("64", "256") + " --env-backend gymnasium"
    flags = f"--env-ids table:Raises-v0 Pendulum-v1 --retries 0 -- {tiny}"
    output = finish(start(flags, ALGOS / "ppo_continuous.py"), 1)
    assert "2 runs: 0 done before, 1 now, 1 failed" in output
    assert "on table:Raises-v0, seed 1: exit status 1: ValueError: the robot fell" in output


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


def test_texts_are_not_averaged(folder):
    """Would break: runs of the text before and after an edit drawn as one complete set."""
    runs = {(e, seed): finished(f"{e}{seed}", seed, e) for e in ("E", "F") for seed in (1, 2, 3)}
    declare(seeds="1-3", env_ids=("E", "F"))
    assert refusals() == []
    Path("fake.py").write_text(FAKE + "# another program\n")
    declare(seeds="1-3", env_ids=("E", "F"))  # and the sweep is killed before F is done
    for seed in (1, 2, 3):
        shutil.copy("fake.py", runs["E", seed])
    why = "used a different version of its script than sweep.json records"
    assert refusals() == [f"fake on F with seed {seed} {why}" for seed in (1, 2, 3)]
    rows, _ = results.read_folders([Path("runs")])
    assert {row[1] for row in rows if row.metric != "missing"} == {"E"}
    (runs["E", 2] / "fake.py").unlink()
    assert refusals()[0] == f"fake on E with seed 2 {why}"
    finished("again", 2, "E")
    assert refusals() == [f"fake on F with seed {seed} {why}" for seed in (1, 2, 3)]


@pytest.mark.parametrize("manifest", [True, False])
def test_texts_are_told(folder, capsys, manifest):
    """Would break: an edit between two sweeps for other seeds that nobody is told of."""
    for seeds, text in (((1, 2), FAKE), ((3, 4), FAKE + "# another program\n")):
        Path("fake.py").write_text(text)
        for seed in seeds:
            finished(str(seed), seed)
        if manifest:
            declare(seeds="{}-{}".format(*seeds))
        told = "" if 1 in seeds else "fake on Toy mixes 2 versions of its script: seeds 1 2; 3 4\n"
        assert refusals() == [] and capsys.readouterr().err.partition(": ")[2] == told


def test_older_run_of_other_flags(folder, capsys):
    """Would break: a run that failed before it made a folder, hidden by one that had other flags; results that are
    refused since an older sweep wrote no arguments down."""
    finished("old", track=True)
    declare("--lr", "0.2")
    assert refusals() == [
        "fake-lr=0.2 on Toy with seed 1 is declared in sweep.json, but there is no such run"
    ]
    assert sweep.main(options("fake.py", dry_run=True), ["--lr", "0.2"]) == 0
    assert capsys.readouterr().out.startswith("start")
    assert sweep.main(sweep.Options(status=True), []) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["total", "0", "0", "0", "1"]
    went_on = finished("on", lr=0.2)
    assert refusals() == []
    config = {"algo": "fake", "args": old_args(lr=0.2, steps=9)}
    (went_on / "config.json").write_text(json.dumps(config))
    sweep.main(sweep.Options(status=True), [])
    assert capsys.readouterr().out.splitlines()[-1].split() == ["total", "0", "0", "0", "1"]
    shutil.rmtree(went_on)
    file = Path("runs/sweep.json")
    (run,) = json.loads(file.read_text())["runs"]
    assert run.pop("args")["lr"] == 0.2
    file.write_text(json.dumps({"runs": [run]}))
    assert refusals() == []
    sweep.main(sweep.Options(status=True), [])
    assert capsys.readouterr().out.splitlines()[-1].split() == ["total", "1", "0", "0", "0"]


JOBS = """
# different things in one queue
--scripts fake.py --env-ids Toy Other --seeds 1-2 -- --lr 0.1
--scripts second.py --env-ids Toy --tag t --grid lr=0.5,0.7 \\
  -- --tail

"""


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


def test_empty_checkpoint_and_foreign_summary(folder):
    """Would break: a run that can never be started again after a power cut; a result that is removed as a leftover."""
    (record("Toy__fake__1__5", old_args()) / "checkpoint.pt").write_text("")
    went_on = record("Toy__fake__1__6", old_args(), eval_return_mean=1.0)
    other = {"algo": "fake", "args": old_args(steps=1), "eval_return_mean": 2.0}
    (went_on / "summary.json").write_text(json.dumps(other))  # and config.json has new arguments
    finish(start("--env-ids Toy"))
    assert [line.split()[2] for line in journal()] == ["start", "end"]
    assert went_on.exists() and not Path("runs/Toy__fake__1__5").exists()


def test_stopped_while_it_plans(folder):
    """Would break: a stop signal that is taken for the script's own end, so that the runs start."""
    text = "\ndef train(args, stop):\n    Path('planning').touch()\n    time.sleep(60)\n\ndef main(args):"
    Path("fake.py").write_text(FAKE.replace("\ndef main(args):", text))
    process = start("--env-ids Toy")
    wait_for(Path("planning").exists)
    process.send_signal(signal.SIGTERM)
    assert finish(process, 143) == "" and not Path("runs").exists()


def test_grid_of_flags_that_go_together(folder):
    """Would break: a grid refused since one of its flags alone does not fit the defaults."""
    check = "    def __post_init__(self):\n        assert (self.lr == 0.5) == (self.steps == 2)\n"
    Path("fake.py").write_text(
        FAKE.replace("    tail: bool = True\n", f"    tail: bool = True\n{check}")
    )
    (job,) = sweep.expand(options("fake.py", grid=("lr=0.7", "steps=3")), [])
    assert job.args["exp_name"] == "fake-lr=0.7-steps=3"


def test_jobs_in_one_queue(folder):
    """Would break: a line's flags that reach another line's runs; seeds that wait for all of an earlier line's."""
    Path("second.py").write_text(FAKE)
    jobs = sweep.expand(replace(options(env_ids=()), jobs=Path("list")), ["--delay", "0.5"], JOBS)
    names = [(job.args["exp_name"], job.args["env_id"], job.args["seed"]) for job in jobs]
    assert names == [("fake", "Toy", 1), ("fake", "Other", 1), ("second-t", "Toy", 1),
                     ("second-t-lr=0.7", "Toy", 1), ("fake", "Toy", 2), ("fake", "Other", 2)]  # fmt: skip
    assert [job.args["lr"] for job in jobs] == [0.1, 0.1, 0.5, 0.7, 0.1, 0.1]
    assert {job.args["delay"] for job in jobs} == {0.5}


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


@pytest.mark.parametrize(
    "lines, words",
    [
        ("", "--jobs list: no line gives --scripts and --env-ids"),
        ("# nothing", "--jobs list: no line gives --scripts and --env-ids"),
        ("rm -rf x", "--jobs list, line 1, does not accept the flags"),
        ("--scripts fake.py --env-ids", "line 1"),
        ("--scripts 'fake.py --env-ids Toy", "line 1: No closing quotation"),
        ("\n--scripts fake.py", "line 2: give --scripts and --env-ids"),
        ("--scripts fake.py --env-ids Toy --workers 3", "line 1"),
        ("--scripts fake.py --env-ids Toy -- --no-such 1", "fake.py does not accept the flags"),
        ("--scripts fake.py --env-ids Toy\n--scripts fake.py --env-ids Toy -- --lr 3", "give one of them a --tag"),
        ("--scripts fake.py --env-ids Toy\n--scripts fake.py --env-ids Toy --launcher env", "give one of them a --tag"),
        ("--scripts fake.py --env-ids Toy --launcher 'nowhere -n 2'", "the program nowhere does not exist"),
    ],
)  # fmt: skip
def test_bad_lines(folder, capsys, lines, words):
    """Would break: a typing error on line 40 that comes to light after the runs of line 39."""
    Path("list").write_text(lines)
    with pytest.raises(SystemExit) as stopped:
        sweep.main(sweep.Options(jobs=Path("list")), [])
    errors = capsys.readouterr().err
    assert stopped.value.code == 2 and words in errors and len(errors.splitlines()) == 1
    assert not Path("runs").exists()


def test_byte_order_mark_of_jobs(folder):
    """Would break: a list of jobs that was written by an editor of Windows."""
    Path("list").write_text("\ufeff--scripts fake.py --env-ids Toy", "utf-8")
    assert sweep.main(sweep.Options(jobs=Path("list"), dry_run=True), []) == 0


def test_no_more_workers_than_runs(folder, monkeypatch):
    """Would break: a million threads for one run, after a typing error in --workers."""
    pool, sizes = sweep.ThreadPoolExecutor, []
    monkeypatch.setattr(
        sweep, "ThreadPoolExecutor", lambda size: [sizes.append(size), pool(size)][1]
    )
    assert sweep.main(options("fake.py", workers=20), []) == 0
    assert sizes == [1]


def test_launcher(folder, capsys):
    """Would break: python before the launcher's words, or a launcher that a dry run shows and a run does not have."""
    launcher = f"env FROM=launcher {sys.executable} -W ignore"
    assert sweep.main(options("fake.py", launcher=launcher), []) == 0
    assert [line.split()[2] for line in journal()] == ["start", "end"]
    (log,) = Path("runs/logs").glob("*.log")
    assert f"env FROM=launcher {sys.executable} -W ignore fake.py --exp-name" in log.read_text()
    with pytest.raises(SystemExit):
        sweep.main(options("fake.py", launcher=launcher, ray="local"), [])
    assert "--launcher cannot be used with --ray" in capsys.readouterr().err


def test_a_folder_of_somebody_else(folder, monkeypatch):
    """Would break: a traceback of the sweep because of lost+found, or of a run that only its owner may read."""
    Path("runs/lost+found").mkdir(parents=True)

    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refused)
    assert [summary for *_, summary in sweep.read_runs(Path("runs"))] == [{}]


def test_status(folder, capsys):
    """Would break: a fate that --status does not tell, or tells wrongly."""
    finish(start("--env-ids Toy --seeds 1-2 -- --crash 2 --steps 3 --lr 0.5"), 1)
    process = start("--env-ids Other --seeds 3-4 -- --steps 60 --delay 0.2 --lr 0.5")
    wait_for(lambda: sum("start" in line for line in journal()) == 3)
    assert sweep.main(sweep.Options(status=True), []) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["fake", "Toy", "1", "0", "1", "0"],
        ["fake", "Other", "0", "1", "0", "1"],
        ["total", "1", "1", "1", "1"],
    ]
    assert lines[4].startswith(
        "FAILED Toy__fake__2: exit status 1: RuntimeError: this is the cause"
    )
    assert lines[5].startswith("running Other__fake__3: $ ")
    process.send_signal(signal.SIGTERM)
    finish(process, 143)
    shutil.rmtree("runs/.claims")  # a look at a folder of others' writes nothing
    sweep.main(sweep.Options(status=True), [])
    assert capsys.readouterr().out.splitlines()[3].split() == ["total", "1", "0", "1", "2"]
    assert not Path("runs/.claims").exists()
    for text in ('{"runs": [', "[1]", '{"runs": 3}', '{"runs": [1, {"seed": 1}]}'):
        Path("runs/sweep.json").write_text(text)
        with pytest.raises(SystemExit):
            sweep.main(sweep.Options(status=True), [])
        assert "runs/sweep.json is not the file of a sweep" in capsys.readouterr().err
    Path("runs/sweep.json").unlink()
    with pytest.raises(SystemExit):
        sweep.main(sweep.Options(status=True), [])
    assert "no sweep was started in runs" in capsys.readouterr().err


def test_status_of_a_run_finished_by_hand(folder, capsys):
    """Would break: a failure of last week told of a run that is there."""
    declare()
    log = sweep.log_file("Toy__fake__1", Path("runs"))
    log.write_text("= failed: exit status 1\n")
    for run in ("failed", "done"):
        sweep.main(sweep.Options(status=True), [])
        lines = capsys.readouterr().out.splitlines()
        assert ("FAILED" in lines[-1]) == (run == "failed")
        finished(run)
    assert lines[-1].split() == ["total", "1", "0", "0", "0"]


SBATCH = """#!/bin/sh
cp "$1" {folder}/submitted.sh && echo Submitted batch job 42
"""


def test_slurm_array(folder, monkeypatch, capsys):
    """Would break: an array of another size, tasks that do something else than this sweep, or submit once more."""
    for name in ("sbatch", "srun"):
        Path("bin").mkdir(exist_ok=True)
        Path("bin", name).write_text(SBATCH.format(folder=folder))
        Path("bin", name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    line = [sys.executable, str(ROOT / "scripts/sweep.py"), "--jobs", "-", "--workers", "2"]
    line += ["--slurm", "3", "--slurm-options", "timeout_min=90", "slurm_partition=gpu"]
    jobs = "--scripts fake.py --env-ids Toy --seeds 1-4 -- --delay 0.3"
    done = subprocess.run(line, input=jobs, text=True, capture_output=True)
    assert done.returncode == 0 and "submitted job 42, 3 tasks" in done.stdout, done.stderr
    script = Path("submitted.sh").read_text()
    for wanted in ("array=0-2", "time=90", "partition=gpu", "cpus-per-task=2", "job-name=sweep"):
        assert f"#SBATCH --{wanted}" in script, script
    assert not journal()
    # a task of the array, as submitit would start it
    tasks = sorted(Path("runs/logs/slurm").glob("42_*_submitted.pkl"))
    assert len(tasks) == 3
    wrong = subprocess.run([*line, "--tag", "x"], input=jobs, text=True, capture_output=True)
    assert (
        wrong.returncode == 2
        and "--tag has no effect with --jobs; write it on the lines of --jobs" in wrong.stderr
    )
    again = subprocess.run(line, input=f"\n{jobs}", text=True)
    assert again.returncode == 0 and len(list(Path("runs/logs/slurm").glob("jobs-*"))) == 2
    sweep.main(sweep.Options(status=True), [])
    assert capsys.readouterr().out.splitlines()[-1].split() == ["total", "0", "0", "0", "4"]
    code = "import cloudpickle, sys; cloudpickle.load(open(sys.argv[1], 'rb')).function()"
    two = [subprocess.Popen([sys.executable, "-c", code, task]) for task in tasks[:2]]
    assert [task.wait(120) for task in two] == [0, 0]
    assert sorted(line.split()[1] for line in journal() if "end" in line) == ["1", "2", "3", "4"]
    assert len(journal()) == 8


def test_failed_sweep_is_not_averaged(folder):
    """Would break: a figure of those scripts that did not crash; a script that is forgotten as it left no folder."""
    text = (ALGOS / "ppo_continuous.py").read_text()
    line = "    bar = tqdm("
    assert text.count(line) == 1
    Path("ppo_broken.py").write_text(text.replace(line, f"    1 / 0\n{line}"))
    sweep_of_both = f"ppo_broken.py --env-ids Pendulum-v1 --seeds 2 --workers 2 -- {TINY}"
    output = finish(start(sweep_of_both, ALGOS / "ppo_continuous.py"), 1)
    assert (
        output.count("FAILED ppo_broken.py on Pendulum-v1") == 1 and "ZeroDivisionError" in output
    )
    plot = [sys.executable, str(ROOT / "scripts/plot.py"), "runs", "--bootstrap-reps", "20"]
    refused = subprocess.run(plot, capture_output=True, text=True)
    assert refused.returncode == 1 and not Path("curves").exists()
    assert "ppo_broken on Pendulum-v1 with seed 2 is not finished" in refused.stderr
    marked = subprocess.run([*plot, "--allow-incomplete"], capture_output=True, text=True)
    assert (
        marked.returncode == 0 and "**Incomplete set**: ppo_broken on Pendulum-v1" in marked.stdout
    )
    assert "**Incomplete set**" in Path("curves/runs.md").read_text()


def test_status_0_is_not_enough(folder):
    """Would break: a run counted as done that has left no result."""
    output = finish(start("--env-ids Toy -- --lie"), 1)
    assert "no summary.json" in output and sum("end" in line for line in journal()) == 1


def test_leftover_folder_without_a_checkpoint(folder):
    """Would break: folders of runs that never got anywhere, beside the real ones; removing a run of someone else."""
    leftover = record("Toy__fake__1__5", old_args())
    other = record("Toy__fake__1__6", old_args(lr=0.1))
    finish(start("--env-ids Toy"))
    assert not leftover.exists() and (other / "config.json").exists()
    assert len(list(Path("runs").glob("*/summary.json"))) == 1


def test_what_counts_as_the_same_run(folder):
    """Would break: results of other flags taken for these; all runs done again once a file has got a new flag; a run
    that goes on to more steps, perhaps by another text of its script, taken for the result that it had before."""
    run = record("run", {})

    def what(args, config=None, **more) -> list[str]:
        record = {"algo": "fake", "args": args, "eval_return_mean": 0.0} | more
        found = sweep.find(job, [(run, record | (config or {}), record)])
        return [kind for kind, folders in found.items() if folders]

    (job,) = sweep.expand(options("fake.py"), [])
    older = {key: value for key, value in old_args().items() if key != "lr"}
    assert what(old_args()) == what(older) == ["done"]
    assert what(old_args(runs_dir="elsewhere", resume="x", track=True)) == ["done"]
    assert what(old_args(lr=0.1)) == what(old_args(steps=3)) == what(old_args(future_flag=1)) == []
    assert what(old_args(), algo="other") == what(None) == []
    assert what(old_args(), {"args": old_args(steps=99)}) == []
    (job,) = sweep.expand(options("fake.py"), ["--lr", "0.7"])
    assert what(older) == [] and what(old_args(lr=0.7)) == ["done"]
    Path("runs/run/fake.py").write_text("another program")
    assert what(old_args(lr=0.7)) == ["outdated"]
    Path("runs/run/fake.py").unlink()
    assert what(old_args(lr=0.7)) == ["outdated"]


def test_the_furthest_of_several(folder):
    """Would break: the folder that wins by chance when a run has more than one."""
    (job,) = sweep.expand(options("fake.py"), [])
    for name, step in (("a", 10), ("b", 30), ("c", 20)):
        torch.save(
            {"algo": "fake", "args": job.args, "global_step": step},
            record(name, job.args) / "checkpoint.pt",
        )
    Path("runs/b/config.json").unlink()  # the checkpoint says as well what it is
    (record("d", job.args) / "checkpoint.pt").write_text("no checkpoint")
    torch.save([1, 2], record("f", job.args) / "checkpoint.pt")
    found = sweep.find(job, sweep.read_runs(Path("runs")))
    assert found["half"][:2] == [Path("runs/b"), Path("runs/c")] and not found["done"]
    record("e", job.args, eval_return_mean=1.0)
    assert sweep.find(job, sweep.read_runs(Path("runs")))["done"] == [Path("runs/e")]


def test_script_without_resume(folder):
    """Would break: --resume given to a script that does not know it."""
    text = FAKE.replace('    resume: str = ""\n', "").replace("args.resume", '""')
    Path("fake.py").write_text(text)
    (record("half", old_args()) / "checkpoint.pt").write_text("1")
    (job,) = sweep.expand(options("fake.py"), [])
    assert not any(sweep.find(job, sweep.read_runs(Path("runs"))).values())
    finish(start("--env-ids Toy"))
    assert [line.split()[2] for line in journal()] == ["start", "end"] and Path(
        "runs/half"
    ).exists()


def test_table():
    """Would break: a row that does not add up."""
    states = [("ppo", "Toy", "done"), ("ppo", "Toy", "failed"), ("dqn", "Toy", "running")]
    lines = sweep.table([*states, ("ppo", "Toy", "done"), ("dqn", "Other", "waiting")])
    assert [line.split() for line in lines[1:]] == [
        ["ppo", "Toy", *"2010"],
        ["dqn", "Toy", *"0100"],
        ["dqn", "Other", *"0001"],
        ["total", *"2111"],
    ]
    assert len({len(line) for line in lines}) == 1


def test_what_comes_from_a_node_stays_in_its_folder(folder, monkeypatch):
    """Would break: a node that can write anywhere on the machine of the sweep."""
    with pytest.raises(OSError, match="outside"):
        clusters.receive({"../escaped": b"x"}, folder / "runs", "")
    assert not (folder / "escaped").exists()
    order = []
    monkeypatch.setattr(clusters.os, "replace", lambda _, target: order.append(target.name))
    names = (
        "checkpoint.pt",
        "events",
        "summary.json",
    )  # a run writes its summary, then the checkpoint
    clusters.receive({f"a/{name}": b"" for name in names}, folder / "runs", "abc")
    assert order == ["events", "summary.json", "checkpoint.pt"]
    monkeypatch.undo()
    clusters.receive({"a/summary.json": b'{"commit": "unknown"}'}, folder / "runs", "abc")
    assert json.loads((folder / "runs/a/summary.json").read_text()) == {"commit": "abc"}


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
    """Would break: another script, seed or flag on the way to a node, results that stay there, one node left idle; an
    environment of one's own that stays here; checkpoints that come back with the end of a run only."""
    Path("own").mkdir()
    Path("own/mine.py").write_text(MINE)
    shutil.copytree(ROOT / "envs", "envs", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PYTHONPATH", f"own{os.pathsep}.")
    lines = (
        f"--scripts {ALGOS}/ppo_continuous.py --env-ids mine:Mine-v0",
        f"--scripts {ALGOS}/ppo.py --env-ids envs:BalancingPlate-v0",
    )
    Path("list").write_text("\n".join(f"{line} -- {TINY}" for line in lines))
    line = [sys.executable, ROOT / "scripts/sweep.py", "--jobs", "list", "--runs-dir"]
    for where in (["here", "--workers", "2"], ["cluster", "--ray", cluster]):
        done = subprocess.run([*line, *where], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert scores("here") == scores("cluster") and len(scores("here")) == 2
    assert "_ray_pkg" in Path("cluster/logs/mine-Mine-v0__ppo_continuous__1.log").read_text()
    weights = [curves(runs) for runs in ("here", "cluster")]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert len(weights[0]) == 2

    toy = f"--env-ids Toy --seeds 1-2 --ray {cluster} -- --journal {folder}/journal"
    process = start(f"{toy} --steps 8 --crash 2 --delay 0.5")
    wait_for(lambda: len(list(Path("runs").glob("*/checkpoint.pt"))) == 2)
    process.send_signal(signal.SIGTERM)
    finish(process, 143)
    what = [line.split()[1:3] for line in journal()]
    assert sorted(what[:2]) == [["1", "start"], ["2", "start"]]
    assert ["1", "stopped"] in what  # 2 may have crashed
    output = finish(start(f"{toy} --steps 8 --crash 2 --delay 0.5"), 1)
    assert "1 now, 1 failed" in output
    assert output.count("\n  RuntimeError: this is the cause") == 1
    what = [line.split()[1:3] for line in journal()][len(what) :]
    assert what.count(["1", "resume"]) == what.count(["1", "end"]) == 1
    assert not list(Path("runs").rglob("*.tmp"))

    output = finish(start(f"--timeout 0.03 {toy} --lr 3 --delay 9"), 1)
    assert output.count("stopped by --timeout after 0.03 minutes") == 4


def test_flags_of_the_algorithms_fit(folder):
    """Would break: a change in the algorithms that this script relies on."""
    for name in ("ppo_continuous", "rpo_continuous"):
        assert set(plan.OURS) | {"resume", "device"} <= load(name).Args.__dataclass_fields__.keys()
