"""What a sweep is to do: its runs, what is refused, what counts as done, --status, Slurm.

Most tests sweep a script that only writes down what happens to it, in a journal shared by all its runs."""

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import sweep
import torch
from conftest import ALGOS, ROOT, load
from plainrl_tools import results
from plainrl_tools.sweeping import clusters, plan

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
    ("poor.py", {}, [], "poor.py has no seed"),
    (
        "fake.py",
        {},
        ["--rpo-alpha", "1"],
        "fake.py does not accept the flags: Unrecognized options: --rpo-alpha",
    ),
    ("fake.py", {"grid": ("rpo-alpha=1,2",)}, [], "--grid rpo-alpha=1: fake.py has no --rpo-alpha"),
    (
        "fake.py",
        {"grid": ("lr=1,2",)},
        ["--lr", "3"],
        "--lr is in --grid and after --; remove one of them",
    ),
    (
        "fake.py",
        {"tag": "x" * 150},
        [],
        "longer than 150 bytes; use fewer flags in --grid or another",
    ),
    ("fake.py", {"seeds": ("1-3", "10-5")}, [], "--seeds 1-3 10-5: 10-5 is an empty range"),
    (
        "fake.py",
        {"grid": ("lr=1", "lr=2")},
        [],
        "--grid lr=1 lr=2 has a name twice; give all its values as NAME=v1,v2",
    ),
    ("fake.py", {"grid": ("seed=1,2",)}, [], "--seed is set by the sweep"),
    ("fake.py", {}, ["--exp_name=x"], "--exp-name is set by the sweep"),
    ("fake.py", {"seeds": ()}, [], "--seeds: give numbers and ranges such as 1-10"),
    ("fake.py", {"seeds": ("1-1000000000",)}, [], "1-1000000000 has more than 10,000 seeds"),
    ("fake.py", {"tag": "a/b"}, [], "--tag a/b"),
    ("fake.py", {"workers": -1}, [], "--workers must be at least 0"),
    ("fake.py", {"workers": 0, "slurm": 2}, [], "--slurm 2 needs --workers"),
    ("fake.py", {"num_cpus": math.inf}, [], "--num-cpus must be a finite number, not inf"),
    ("fake.py", {"jobs": Path("nowhere")}, [], "--jobs nowhere cannot be read (FileNotFoundError"),
    ("fake.py", {"launcher": "nowhere -n 2"}, [], "the program nowhere does not exist in PATH"),
    ("fake.py", {"slurm": 2}, [], "--slurm: sbatch is not available on this machine"),
    ("syntax.py", {}, [], "syntax.py cannot be imported, or has no Args (SyntaxError"),
    ("fake.py", {"launcher": "'"}, [], "--launcher ': No closing quotation"),
    ("fake.py", {}, ["--seeds", "1-3"], "--seeds, 1-3; flags of"),
    ("fake.py", {"device": "cuda"}, [], "--device cuda is not available; use --device cpu"),
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
    Path("poor.py").write_text(FAKE.replace("seed: int", "sed: int"))
    Path("syntax.py").write_text("x =")
    with pytest.raises(SystemExit) as stopped:
        sweep.main(options(script, **more), common)
    output, errors = capsys.readouterr()
    assert stopped.value.code == 2
    assert len((output + errors).splitlines()) == 1 and words in errors
    assert not Path("runs").exists() and not journal()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--lr 0.1", "unknown flag --lr: flags of the runs belong after --"),
        ("--env-id Toy", "unknown flag --env-id: did you mean --env-ids?"),
        ("--grid lr=1,2 a=True,False", "unknown flag a=True,False: write --grid a=True,False"),
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


def test_what_fails_after_the_start_is_a_failed_run(tmp_path, capsys):
    """Would break: a grid that is refused as a whole because one of its settings ends in NaN."""
    args = load("ppo").Args()

    def train(args, signals):
        if folders:
            Path(args.runs_dir, "run").mkdir()
        sys.exit("NaN in the losses")

    for folders in (True, False):
        try:
            plan.dry_start(Path("x.py"), SimpleNamespace(train=train), args)
            assert folders
        except SystemExit as stopped:
            assert stopped.code == 2 and not folders
    assert "x.py: NaN in the losses" in capsys.readouterr().err


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


def test_folder_that_cannot_be_written(folder, capsys):
    """Would break: a traceback in place of one line."""
    Path("file").write_text("")
    for place in ("file/runs", "/proc/runs"):
        with pytest.raises(SystemExit) as stopped:
            sweep.main(options("fake.py", runs_dir=Path(place)), [])
        errors = capsys.readouterr().err.splitlines()
        assert stopped.value.code == 2 and len(errors) == 1
        assert f"--runs-dir {place} cannot be written to" in errors[0]


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


def test_empty_checkpoint_and_foreign_summary(folder):
    """Would break: a run that can never be started again after a power cut; a result that is removed as a leftover."""
    (record("Toy__fake__1__5", old_args()) / "checkpoint.pt").write_text("")
    went_on = record("Toy__fake__1__6", old_args(), eval_return_mean=1.0)
    other = {"algo": "fake", "args": old_args(steps=1), "eval_return_mean": 2.0}
    (went_on / "summary.json").write_text(json.dumps(other))  # and config.json has new arguments
    finish(start("--env-ids Toy"))
    assert [line.split()[2] for line in journal()] == ["start", "end"]
    assert went_on.exists() and not Path("runs/Toy__fake__1__5").exists()


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


@pytest.mark.parametrize(
    "lines, words",
    [
        ("", "--jobs list: no line gives --scripts and --env-ids"),
        ("rm -rf x", "--jobs list, line 1, does not accept the flags"),
        ("--scripts 'fake.py --env-ids Toy", "line 1: No closing quotation"),
        ("\n--scripts fake.py", "line 2: give --scripts and --env-ids"),
        ("--scripts fake.py --env-ids Toy -- --no-such 1", "fake.py does not accept the flags"),
        ("--scripts fake.py --env-ids Toy\n--scripts fake.py --env-ids Toy -- --lr 3", "give one of them a --tag"),
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
