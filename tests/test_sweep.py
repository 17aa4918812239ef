"""Sweeps: every run once, whatever ends the sweep in between; a failure is tried again, then named; so too on Ray.

Most tests sweep a script that only writes down what happens to it, in a journal shared by all its runs."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from conftest import ALGOS, ROOT, load
from ray.cluster_utils import Cluster

sys.path.insert(0, str(ROOT / "scripts"))
import sweep  # noqa: E402

FAKE = """
import json, os, signal, sys, time
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
            raise SystemExit("this is the cause")
    if not args.lie:
        variables = {key: os.environ.get(key) for key in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")}
        (folder / "summary.json").write_text(json.dumps(run | {"eval_return_mean": args.seed, "variables": variables}))
    say(args, "end")

if __name__ == "__main__":
    main(tyro.cli(Args))
"""
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
    (run / "config.json").write_text(json.dumps({"algo": algo, "args": args}))
    if summary:
        (run / "summary.json").write_text(json.dumps({"algo": algo, "args": args} | summary))
    return run


def options(*scripts, env_ids=("Toy",), **more) -> sweep.Options:
    return sweep.Options(tuple(map(Path, scripts)), env_ids, **more)


def old_args(**changed) -> dict:
    """What config.json holds of the fake script's first run."""
    (job,) = sweep.expand(options("fake.py"), [])
    return job.args | changed


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
        options(scripts[1], grid=("rpo-alpha=0.1,0.5",), tag="paper", device="cpu", ray="local"), []
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
        "fake.py does not take the flags: Unrecognized options: --rpo-alpha",
    ),
    ("fake.py", {}, ["--lr", "much"], "fake.py does not take the flags: Error parsing --lr"),
    ("fake.py", {"grid": ("rpo-alpha=1,2",)}, [], "--rpo-alpha"),
    ("fake.py", {"grid": ("lr=1,2",)}, ["--lr", "3"], "--lr is in --grid and behind -- as well"),
    (
        "fake.py",
        {"grid": ("tail=True,False",)},
        ["--no-tail"],
        "--tail is in --grid and behind -- as well",
    ),
    ("fake.py", {"seeds": ("1-3", "10-5")}, [], "--seeds 1-3 10-5 holds an empty range"),
    ("fake.py", {"grid": ("lr=1,much",)}, [], "--lr"),
    ("fake.py", {"grid": ("tail=1",)}, [], "--grid tail"),
    ("fake.py", {"grid": ("lr",)}, [], "--grid lr"),
    ("fake.py", {"grid": ("seed=1,2",)}, [], "--seed is for the sweep"),
    ("fake.py", {}, ["--exp_name=x"], "--exp-name is for the sweep"),
    ("fake.py", {"seeds": ("one",)}, [], "--seeds one"),
    ("fake.py", {"seeds": ("3-1",)}, [], "--seeds 3-1"),
    ("fake.py", {"tag": "a/b"}, [], "--tag a/b"),
    ("fake.py", {"workers": 0}, [], "--workers"),
    ("fake.py", {"env_ids": ()}, [], "nothing to run"),
    ("fake.py", {"ray": "127.0.0.1:9"}, [], "--ray 127.0.0.1:9 cannot be reached"),
    (ALGOS / "ppo_continuous.py", {"env_ids": ("Pendlum-v1",)}, [], "--env-id Pendlum-v1"),
]


@pytest.mark.parametrize("script, more, common, words", BAD)
def test_bad_input(folder, capsys, script, more, common, words):
    """Would break: a typing error that comes to light after the first hundred runs, or as a traceback."""
    Path("broken.py").write_text("import no_such_module")
    Path("empty.py").write_text("")
    Path("poor.py").write_text(FAKE.replace("seed: int", "sed: int"))
    with pytest.raises(SystemExit) as stopped:
        sweep.main(options(script, **more), common)
    output, errors = capsys.readouterr()
    assert stopped.value.code == 2
    assert len((output + errors).splitlines()) == 1 and words in errors
    assert not Path("runs").exists() and not journal()


def test_missing_ray(folder, capsys, monkeypatch):
    """Would break: a traceback in place of what to install."""
    find_spec = sweep.importlib.util.find_spec
    monkeypatch.setattr(
        sweep.importlib.util, "find_spec", lambda name: None if name == "ray" else find_spec(name)
    )
    with pytest.raises(SystemExit) as stopped:
        sweep.main(options("fake.py", ray="local"), [])
    assert (
        stopped.value.code == 2
        and "pip install -r requirements-cluster.txt" in capsys.readouterr().err
    )


STUB = """#!/bin/sh
[ "$1" = - ] && exec {python} "$@"  # not a sweep: copies of a file with a line changed
printf '%s\\t' "$@" && echo
"""


DECLARED = [("atari", 27), ("atari_breakout", 9), ("atari_mistakes", 12), ("classic", 112)]
DECLARED += [("continuous", 70), ("mujoco_published", 49), ("ppo_vs_rpo", 205), ("rpo_paper", 60)]


@pytest.mark.parametrize(("name", "runs"), DECLARED)
def test_declared_sweeps(tmp_path, monkeypatch, capsys, name, runs):
    """Would break: a flag that one of the files does not have; a dry run that starts something. The script's python is
    one that writes its arguments down: the sweeps are made here, in one process."""
    python, folder = tmp_path / "bin" / "python", tmp_path / "runs"
    python.parent.mkdir()
    python.write_text(STUB.format(python=shlex.quote(sys.executable)))
    python.chmod(0o755)
    variables = os.environ | {"RUNS": str(folder), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    line = ["bash", ROOT / f"scripts/{name}.sh", "--dry-run"]
    process = subprocess.run(line, env=variables, cwd=tmp_path, text=True, capture_output=True)
    assert process.returncode == 0, process.stderr
    monkeypatch.chdir(ROOT)
    for line in process.stdout.splitlines():
        script, *flags = line.split("\t")[:-1]
        ours, _, common = (" ".join(flags)).partition(" -- ")
        assert script == "scripts/sweep.py"
        assert sweep.main(sweep.tyro.cli(sweep.Options, args=ours.split()), common.split()) == 0
    starts = capsys.readouterr().out.splitlines()
    assert len(starts) == runs and all(line.startswith("start ") for line in starts)
    assert [path.name for path in folder.rglob("*") if path.suffix != ".py"] in (
        [],
        ["fire"],
        ["mistakes"],
    )


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


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_variables_of_a_run(folder, monkeypatch, device):
    """Would break: two runs on the same GPU, or more threads than cores."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    finish(start(f"--env-ids Toy --seeds 1-2 --workers 2 --device {device} -- --delay 0.2"))
    found = [
        json.loads(file.read_text())["variables"] for file in Path("runs").glob("*/summary.json")
    ]
    assert {one["OMP_NUM_THREADS"] for one in found} == {
        str(max(1, len(os.sched_getaffinity(0)) // 2))
    }
    assert {one["CUDA_VISIBLE_DEVICES"] for one in found} == (
        {"4", "7"} if device == "cuda" else {"4,7"}
    )


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
    flags = "--env-ids Toy --seeds 1-2 --workers 2 -- --steps 8 --delay 0.3"
    process = start(flags)
    wait_for(lambda: sum("start" in line for line in journal()) == 2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    output = finish(start(flags))
    assert "waiting for the runs" in output and "2 done before, 0 now" in output
    assert Counter(line.split()[2] for line in journal()) == {"start": 2, "end": 2}


def test_second_sweep_is_refused(folder):
    """Would break: two sweeps that do the same runs at the same time."""
    process = start("--env-ids Toy -- --steps 20 --delay 0.1")
    wait_for(journal)
    (line,) = finish(start("--env-ids Toy --seeds 5"), 2).splitlines()
    assert "another sweep" in line and "runs" in line
    finish(process)
    assert len(journal()) == 2


def test_failures(folder):
    """Would break: a failed run that is hidden, tried for ever, or stops the others."""
    output = finish(start("--env-ids Toy --seeds 1-3 --workers 2 -- --crash 2 --steps 3"), 1)
    assert "3 runs: 0 done before, 2 now, 1 failed" in output
    what = [line.split()[1:] for line in journal()]
    assert [words for words in what if words[0] == "2"] == [
        ["2", "start", "0"],
        ["2", "resume", "2"],
    ]
    assert {words[0] for words in what if words[1] == "end"} == {"1", "3"}
    report = output[output.index("FAILED") :].splitlines()
    assert (
        "fake.py" in report[0]
        and "Toy" in report[0]
        and "seed 2" in report[0]
        and "exit status 1" in report[0]
    )
    assert "--seed 2" in report[1] and "runs/logs/Toy__fake__2.log" in report[2]
    assert [line.strip() for line in report[3:18]] == [
        *(f"line {n}" for n in range(16, 30)),
        "this is the cause",
    ]
    assert output.count("FAILED") == 1


def test_failed_sweep_is_not_averaged(folder):
    """Would break: a figure of those scripts that did not crash; a script that is forgotten as it left no folder."""
    text = (ALGOS / "ppo_continuous.py").read_text()
    line = "    bar = tqdm("
    assert text.count(line) == 1
    Path("ppo_broken.py").write_text(text.replace(line, f"    1 / 0\n{line}"))
    sweep_of_both = f"ppo_broken.py --env-ids Pendulum-v1 --seeds 1-2 --workers 2 -- {TINY}"
    output = finish(start(sweep_of_both, ALGOS / "ppo_continuous.py"), 1)
    assert (
        output.count("FAILED ppo_broken.py on Pendulum-v1") == 2 and "ZeroDivisionError" in output
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
    assert "no summary.json" in output and sum("end" in line for line in journal()) == 2


def test_leftover_folder_without_a_checkpoint(folder):
    """Would break: folders of runs that never got anywhere, beside the real ones; removing a run of someone else."""
    leftover = record("Toy__fake__1__5", old_args())
    other = record("Toy__fake__1__6", old_args(lr=0.1))
    finish(start("--env-ids Toy"))
    assert not leftover.exists() and (other / "config.json").exists()
    assert len(list(Path("runs").glob("*/summary.json"))) == 1


def test_what_counts_as_the_same_run(folder):
    """Would break: results of other flags taken for these; all runs done again once a file has got a new flag."""

    def what(args, **more) -> str:
        runs = [(Path("run"), {}, {"algo": "fake", "args": args, "eval_return_mean": 0.0} | more)]
        return sweep.find(job, runs)[0]

    (job,) = sweep.expand(options("fake.py"), [])
    older = {key: value for key, value in old_args().items() if key != "lr"}
    assert what(old_args()) == what(older) == "skip"
    assert what(old_args(runs_dir="elsewhere", resume="x", track=True)) == "skip"
    assert (
        what(old_args(lr=0.1))
        == what(old_args(steps=3))
        == what(old_args(future_flag=1))
        == "start"
    )
    assert what(old_args(), algo="other") == what(None) == "start"
    (job,) = sweep.expand(options("fake.py"), ["--lr", "0.7"])
    assert what(older) == "start" and what(old_args(lr=0.7)) == "skip"


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
    assert sweep.find(job, sweep.read_runs(Path("runs"))) == ("resume", [Path("runs/b")])
    record("e", job.args, eval_return_mean=1.0)
    assert sweep.find(job, sweep.read_runs(Path("runs"))) == ("skip", [Path("runs/e")])


def test_script_without_resume(folder):
    """Would break: --resume given to a script that does not know it."""
    text = FAKE.replace('    resume: str = ""\n', "").replace("args.resume", '""')
    Path("fake.py").write_text(text)
    (record("half", old_args()) / "checkpoint.pt").write_text("1")
    (job,) = sweep.expand(options("fake.py"), [])
    assert sweep.find(job, sweep.read_runs(Path("runs"))) == ("start", [])
    finish(start("--env-ids Toy"))
    assert [line.split()[2] for line in journal()] == ["start", "end"] and Path(
        "runs/half"
    ).exists()


def test_table(folder):
    """Would break: a row that does not add up, or a table that grows down the screen."""
    jobs = sweep.expand(options("fake.py", env_ids=("Toy", "Other"), seeds=("1-3",)), [])
    for job, state in zip(jobs, ("done", "failed", "running", "waiting", "running", "waiting")):
        job.state = state
    lines = sweep.table(jobs, [60.0, 180.0])
    assert [line.split()[:6] for line in lines[1:3]] == [
        ["fake", "Toy", *"1200"],
        ["fake", "Other", *"0012"],
    ]
    assert lines[3].split()[:5] == ["total", *"1212"] and "about 4 min left" in lines[3]


def test_archive_stays_in_its_folder(folder):
    """Would break: a node that can write anywhere on the machine of the sweep."""
    buffer = sweep.io.BytesIO()
    Path("file").write_text("x")
    with sweep.tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add("file", "../../escaped")
    with pytest.raises(sweep.tarfile.FilterError):
        sweep.receive(buffer.getvalue(), folder / "runs", "")
    assert not (folder / "escaped").exists() and not (folder.parent / "escaped").exists()


def scores(runs: str) -> dict:
    summaries = [json.loads(file.read_text()) for file in Path(runs).glob("*/summary.json")]
    return {run["seed"]: (run["eval_returns"], run["commit"]) for run in summaries}


def curves(runs: str) -> dict:
    return {json.loads((file.parent / "config.json").read_text())["seed"]: torch.load(file)["agent"]["critic.0.weight"]
            for file in Path(runs).glob("*/checkpoint.pt")}  # fmt: skip


@pytest.fixture
def cluster():
    """Two nodes of one CPU each; one cluster, as its start takes most of the time."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        made.add_node(num_cpus=1)
        yield made.address
    finally:
        made.shutdown()


@pytest.mark.slow
def test_on_ray(folder, cluster):
    """Would break: another script, seed or flag on the way to a node, results that stay there, one node
    left idle; checkpoints that come back with the end of a run only, processes left on a node."""
    ppo, flags = ALGOS / "ppo_continuous.py", "--env-ids Pendulum-v1 --seeds 1-2 --runs-dir"
    finish(start(f"{flags} here --workers 2 -- {TINY}", ppo))
    finish(start(f"{flags} cluster --ray {cluster} -- {TINY}", ppo))
    assert scores("here") == scores("cluster") and scores("here").keys() == {1, 2}
    weights = [curves(runs) for runs in ("here", "cluster")]
    assert all(torch.equal(weights[0][seed], weights[1][seed]) for seed in (1, 2))

    toy = f"--env-ids Toy --seeds 1-2 --ray {cluster} -- --journal {folder}/journal"
    process = start(f"{toy} --steps 8 --crash 2 --delay 0.5")
    wait_for(lambda: len(list(Path("runs").glob("*/checkpoint.pt"))) == 2)
    process.send_signal(signal.SIGTERM)
    finish(process, 143)
    what = [line.split()[1:3] for line in journal()]
    assert (
        sorted(what[:2]) == [["1", "start"], ["2", "start"]] and ["1", "stopped"] in what
    )  # 2 may have crashed
    output = finish(start(f"{toy} --steps 8 --crash 2 --delay 0.5"), 1)
    assert "1 now, 1 failed" in output
    assert output[output.index("FAILED") :].count("this is the cause") == 1
    what = [line.split()[1:3] for line in journal()][len(what) :]
    assert what.count(["1", "resume"]) == what.count(["1", "end"]) == 1
    assert not list(Path("runs").glob(".incoming"))


def test_flags_of_the_algorithms_fit(folder):
    """Would break: a change in the algorithms that this script relies on."""
    for name in ("ppo_continuous", "rpo_continuous"):
        assert set(sweep.OURS) | {"resume", "device"} <= load(name).Args.__dataclass_fields__.keys()
