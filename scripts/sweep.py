"""Run scripts x environments x seeds x grids of flags, each run a process of its own of an unmodified script.

    python scripts/sweep.py --scripts algos/ppo_continuous.py algos/rpo_continuous.py --env-ids Pendulum-v1 \
        --seeds 1-10 --grid bootstrap-truncation=True,False --workers 2 -- --total-timesteps 400000

What stands behind `--` goes to every run. After any end, Ctrl-C and kill -9 included, the same command goes on: runs
that are complete are skipped, half-done ones resumed. A run is known by the flags in its folder, not by its name.
A failed run is tried once more, from its checkpoint where there is one; the end of its log closes the sweep, status 1.
--ray ADDRESS (or local) gives the same runs to a Ray cluster, which needs the requirements installed and nothing else:
the script and the checkpoint travel with the task, the run folder comes back with every checkpoint. Linux and macOS.
"""

import contextlib
import fcntl
import functools
import importlib.util
import inspect
import io
import itertools
import json
import logging
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path

import tyro

OURS = "exp_name", "env_id", "seed", "runs_dir"  # flags the sweep itself gives to every run
# flags in which two runs may differ and still be the same run
ELSEWHERE = ("runs_dir", "resume", "track", "wandb_project_name", "wandb_entity")


@dataclass
class Options:
    scripts: tuple[Path, ...]  # files with an Args, such as algos/ppo_continuous.py
    env_ids: tuple[str, ...]  # environments
    seeds: tuple[str, ...] = ("1",)  # seeds and ranges of them, such as 1-10 42
    grid: tyro.conf.UseAppendAction[
        tuple[str, ...]
    ] = ()  # NAME=v1,v2: a run for every value; repeat it for a product
    tag: str = ""  # a word that becomes part of every exp_name
    workers: int = (
        1  # runs at a time on this machine; a Ray cluster takes as many as it has room for
    )
    runs_dir: Path = Path("runs")  # holds the run folders, and logs/ with the output of every run
    device: str = ""  # handed on to every run; several GPUs are dealt out to the workers in turn
    ray: str = ""  # address of a Ray cluster; local starts one on this machine
    num_cpus: float = 1  # CPUs that Ray reserves for a run
    num_gpus: float | None = (
        None  # GPUs that Ray reserves for a run, such as 0.25; without it 1 for --device cuda
    )
    dry_run: bool = (
        False  # print the commands, and which of them would be skipped, resumed or started
    )


@dataclass
class Job:
    """One run: its command line, what its script makes of it, and how far it is."""

    script: Path
    flags: list[str]
    args: dict  # all arguments, as config.json records them
    defaults: dict  # the script's own, for records from before a flag existed
    name: str  # of the log, and of the run folder without its time
    state: str = "waiting"  # or running, done, failed
    started: float = 0.0
    attempts: int = 0
    outcome: str = ""


def check(ok, message: str) -> None:
    if not ok:
        print(f"sweep.py: {' '.join(message.split())[:400]}", file=sys.stderr)
        raise SystemExit(2)


def load(script: Path):
    """The script as a module, to read its Args; importing one has no side effect."""
    check(script.is_file(), f"{script} does not exist")
    try:
        spec = importlib.util.spec_from_file_location(f"sweep_{script.stem}", script)
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        missing = [
            name for name in OURS if name not in {field.name for field in fields(module.Args)}
        ]
    except (Exception, SystemExit) as error:
        check(
            False, f"{script} cannot be imported, or has no Args ({type(error).__name__}: {error})"
        )
    check(not missing, f"{script} has no {', '.join(missing)} in its Args")
    return module


def parse(script: Path, module, flags: list[str]):
    """The script's Args for these flags; what tyro says in a box becomes one line."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            return tyro.cli(module.Args, args=flags, prog=script.name)
    except SystemExit:
        said = re.split("[─-]{9,}", re.sub("[│╭╮╰╯]", "", output.getvalue()))[
            1:2
        ]  # between the title and the hints
        check(False, f"{script} does not take the flags: {''.join(said)}")


def dry_start(script: Path, module, args) -> None:
    """What train() says of the machine and the environment before its first step, such as an id that is not there: with
    a stop signal beforehand it makes everything, takes no step and ends. Its run folder is thrown away."""
    if not hasattr(module, "train") or "stop" not in inspect.signature(module.train).parameters:
        return
    wandb = not getattr(args, "track", False) or importlib.util.find_spec("wandb")
    check(wandb, "--track needs a package: pip install wandb")
    away = {"resume": "", "track": False, "device": "cpu"}
    away = {name: value for name, value in away.items() if hasattr(args, name)}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                module.train(replace(args, runs_dir=folder, **away), [signal.SIGTERM])
        except SystemExit as end:
            check(not isinstance(end.code, str), f"{script}: {end.code}")
        except Exception:  # a fault in the script: the runs will show it, with its traceback
            pass


def plain(content: dict) -> dict:
    """As it reads after a round trip through a JSON file."""
    return json.loads(json.dumps(content, default=str))


def seed_list(items: tuple[str, ...]) -> list[int]:
    """("1-3", "7") -> [1, 2, 3, 7]"""
    ranges = [re.fullmatch(r"(\d+)(?:-(\d+))?", item) for item in items]
    check(all(ranges), f"--seeds {' '.join(items)}: give numbers and ranges such as 1-10")
    ranges = [
        range(int(first), int(last or first) + 1) for first, last in (r.groups() for r in ranges)
    ]
    check(all(ranges), f"--seeds {' '.join(items)} holds an empty range")
    seeds = [seed for numbers in ranges for seed in numbers]
    return list(dict.fromkeys(seeds))


def expand(options: Options, common: list[str]) -> list[Job]:
    """All runs, in the order seed, script, environment, grid, so that an early stop leaves whole seeds. Every flag is
    tried on its script first: bad input ends the sweep before anything is created or started."""
    grid = [item.partition("=")[::2] for item in options.grid]
    grid = [(name.strip("-").replace("_", "-"), values.split(",")) for name, values in grid]
    check(
        all(name and all(values) for name, values in grid),
        f"--grid {' '.join(options.grid)}: give NAME=v1,v2",
    )
    given = [flag.strip("-").partition("=")[0] for flag in common if flag.startswith("--")]
    given, varied = (
        {name.replace("_", "-").removeprefix("no-") for name in n}
        for n in (given, [g for g, _ in grid])
    )
    check(
        not given & varied,
        f"--{' --'.join(sorted(given & varied))} is in --grid and behind -- as well",
    )
    clash = (given | varied) & {name.replace("_", "-") for name in (*OURS, "resume")}
    check(not clash, f"--{' --'.join(sorted(clash))} is for the sweep to set")
    check(re.fullmatch(r"[\w.+-]*", options.tag), f"--tag {options.tag} is not one word")
    check(options.workers > 0, f"--workers must be positive, not {options.workers}")
    common = common + (["--device", options.device] if options.device else [])
    scripts = list(dict.fromkeys(options.scripts))
    check(
        len({script.stem for script in scripts}) == len(scripts),
        "--scripts holds two files of one name",
    )
    modules, seeds, jobs = (
        {script: load(script) for script in scripts},
        seed_list(options.seeds),
        {},
    )
    for seed, script, env_id in itertools.product(seeds, scripts, options.env_ids):
        module, exp_name = modules[script], "-".join(filter(None, (script.stem, options.tag)))
        given = [
            "--env-id",
            env_id,
            "--seed",
            str(seed),
            "--runs-dir",
            str(options.runs_dir),
            *common,
        ]
        base = parse(script, module, [*given, "--exp-name", exp_name])
        for values in itertools.product(*(values for _, values in grid)):
            chosen, label = [], exp_name
            for (name, _), value in zip(grid, values):
                key, switch = name.replace("-", "_"), {"True": f"--{name}", "False": f"--no-{name}"}
                is_bool = isinstance(getattr(base, key, None), bool)
                check(
                    value in switch or not is_bool,
                    f"--grid {name}: {script} takes True or False, not {value}",
                )
                flag = [switch[value]] if is_bool else [f"--{name}", value]
                if getattr(
                    parse(script, module, [*given, "--exp-name", exp_name, *flag]), key
                ) != getattr(base, key):
                    chosen, label = chosen + flag, label + "=".join(flag)[1:].replace("/", "-")
            flags = ["--exp-name", label, *given, *chosen]
            args = parse(script, module, flags)
            if seed == seeds[0] and not options.ray:
                dry_start(script, module, args)
            defaults = {
                field.name: field.default
                for field in fields(module.Args)
                if field.default is not MISSING
            }
            name = f"{env_id.replace('/', '-').replace(':', '-')}__{label}__{seed}"
            jobs[name] = Job(script, flags, plain(asdict(args)), plain(defaults), name)
    check(jobs, "nothing to run: give --scripts and --env-ids")
    return list(jobs.values())


def read(file: Path) -> dict:
    """A JSON object; one that is not there or not whole is empty."""
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def read_checkpoint(folder: Path) -> dict:
    import torch

    try:  # data only: nothing in it can run code
        return dict(torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True))
    except Exception:
        return {}


def read_runs(runs_dir: Path) -> list[tuple[Path, dict, dict]]:
    """(folder, what it says of its arguments, its summary) of every run there. A resumed run has new arguments in
    config.json while its old summary still stands, so only the summary's own arguments say what it is a result of."""
    runs = []
    for folder in sorted(runs_dir.glob("*/")):
        config, summary = read(folder / "config.json"), read(folder / "summary.json")
        if not config and not summary and (folder / "checkpoint.pt").is_file():
            config = read_checkpoint(folder)
        runs.append((folder, config or summary, summary))
    return runs


def same(job: Job, record: dict) -> bool:
    """Whether the record is of this run: same script, same arguments. One it lacks had the default of today."""
    args = record.get("args")
    if record.get("algo") != job.script.stem or not isinstance(args, dict):
        return False
    wanted = {key: value for key, value in job.args.items() if key not in ELSEWHERE}
    found = {key: value for key, value in (job.defaults | args).items() if key not in ELSEWHERE}
    return found == wanted


def find(job: Job, runs) -> tuple[str, list[Path]]:
    """What there is of a run: ("skip", ...), ("resume", [folder]), or ("start", [folders that never got anywhere])."""
    if complete := [
        folder
        for folder, _, summary in runs
        if same(job, summary) and "eval_return_mean" in summary
    ]:
        return "skip", complete
    ours = [folder for folder, config, _ in runs if same(job, config)]
    halves = [folder for folder in ours if (folder / "checkpoint.pt").is_file()]
    if halves and "resume" in job.args:
        steps = (
            [read_checkpoint(folder).get("global_step", -1) for folder in halves]
            if halves[1:]
            else [0]
        )
        return "resume", [halves[steps.index(max(steps))]]
    return "start", [
        folder for folder in ours if folder not in halves and not (folder / "summary.json").exists()
    ]


def prepare(job: Job, runs_dir: Path) -> Path | None:
    """The folder to resume, if any; a leftover that never came to a checkpoint is removed."""
    what, folders = find(job, read_runs(runs_dir))
    if what == "start":
        for folder in folders:
            shutil.rmtree(folder)
    resumable = (
        what != "start" and "resume" in job.args and (folders[0] / "checkpoint.pt").is_file()
    )
    return folders[0] if resumable else None


def command(job: Job, resume: Path | None = None) -> list[str]:
    """The command line of a run, as in its log."""
    return [
        sys.executable,
        str(job.script),
        *job.flags,
        *(["--resume", str(resume)] if resume else []),
    ]


def log_file(job: Job, runs_dir: Path) -> Path:
    return runs_dir / "logs" / f"{job.name}.log"


def visible_gpus(visible: str | None, count: int) -> list[str]:
    """Ids of the GPUs to deal out: those that CUDA_VISIBLE_DEVICES leaves, or without it all that were counted."""
    if visible is None:
        return [str(index) for index in range(count)]
    return [gpu for gpu in visible.replace(" ", "").split(",") if gpu not in ("", "-1")]


def environment(threads: int, slot: int = 0, gpus: list[str] | None = None) -> dict[str, str]:
    """Variables of a run in this worker slot: no more threads than its share of the cores, and one of the GPUs."""
    names = "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHON_CPU_COUNT"
    return dict.fromkeys(names, str(threads)) | (
        {"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {}
    )


def local_runner(options: Options, jobs: list[Job], runs_lock: int, stop: list[int]):
    """run(job, slot): a generator that yields the state of a run in a process here, and returns its exit status."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads, gpus = max(1, cores // options.workers), []
    if any(job.args.get("device", "cpu") != "cpu" for job in jobs):
        import torch

        gpus = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count())

    def run(job: Job, slot: int) -> Iterator[str]:
        line = command(job, prepare(job, options.runs_dir))
        dealt = gpus if job.args.get("device", "cpu") != "cpu" else None
        variables = os.environ | environment(threads, slot, dealt)
        with log_file(job, options.runs_dir).open("a") as log:
            print(f"$ {shlex.join(line)}", file=log, flush=True)
            streams = dict(stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            process = subprocess.Popen(line, env=variables, pass_fds=[runs_lock], **streams)
        try:
            while process.poll() is None and not stop:
                yield "running"
        finally:
            process.terminate()  # nothing, if it has ended; otherwise it saves a checkpoint first
        while process.poll() is None:
            yield "running"
        return process.returncode

    return run


def pack(folder: Path, runs_dir: Path) -> bytes:
    """The files in a folder as a tar file, named as seen from runs_dir; what a run removes meanwhile is left out."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.suffix != ".tmp":
                with contextlib.suppress(FileNotFoundError):
                    tar.add(file, file.relative_to(runs_dir))
    return buffer.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")  # no absolute paths, no links or .. out of the folder


def receive(archive: bytes, runs_dir: Path, commit: str) -> None:
    """Put what came from a node into runs_dir file by file, each whole, in an order such that a kill at any moment
    leaves what a killed run here would leave: the checkpoint comes after the curves, the summary last."""
    aside = runs_dir / ".incoming"
    shutil.rmtree(aside, ignore_errors=True)
    unpack(archive, aside)
    files = [file for file in aside.rglob("*") if file.is_file()]
    for file in sorted(
        files, key=lambda file: (file.name == "summary.json", file.name == "checkpoint.pt")
    ):
        if file.suffix == ".json":  # the script came from this repository, but could not see that
            file.write_text(
                file.read_text().replace('"commit": "unknown"', f'"commit": "{commit}"')
            )
        target = runs_dir / file.relative_to(aside)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, target)
    shutil.rmtree(aside, ignore_errors=True)


def run_on_node(
    script: str,
    source: bytes,
    flags: list[str],
    resume: str,
    archive: bytes,
    variables: dict[str, str],
):
    """The task on a node: the script as a process in a temporary folder. Yields (exit status or None while it goes on,
    new output, run folder as a tar file): at the start, after every checkpoint and at the end. If the sweep stops or
    dies, Ray interrupts this and what came after the last checkpoint that was sent is lost."""
    with tempfile.TemporaryDirectory(prefix="sweep-") as home:
        runs_dir, log, sent = Path(home, "runs"), Path(home, "log"), None
        Path(home, script).write_bytes(source)
        if resume:
            unpack(archive, runs_dir)
        line = [sys.executable, script, *flags, "--runs-dir", "runs"]
        line += ["--resume", f"runs/{resume}"] if resume else []
        with log.open("wb") as sink, log.open("rb") as output:
            streams = dict(stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT)
            process = subprocess.Popen(line, cwd=home, env=os.environ | variables, **streams)
            try:
                while (code := process.poll()) is None:
                    saved = [file.stat().st_mtime_ns for file in runs_dir.glob("*/checkpoint.pt")]
                    if saved != sent:
                        sent = saved
                        yield None, output.read(), pack(runs_dir, runs_dir)
                    time.sleep(0.2)
                yield code, output.read(), pack(runs_dir, runs_dir)
            finally:
                process.terminate()
                process.wait()


def ray_runner(options: Options, stop: list[int]):
    """run(job, slot) like that of local_runner, for tasks on a Ray cluster, to which this connects."""
    check(
        importlib.util.find_spec("ray"),
        "--ray needs a package: pip install -r requirements-cluster.txt",
    )
    os.environ |= {
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }  # no tips, no telephone
    import ray

    num_gpus = (
        options.num_gpus
        if options.num_gpus is not None
        else float(options.device.startswith("cuda"))
    )
    try:
        if ":" in options.ray:  # Ray itself would try for many minutes
            host, port = options.ray.removeprefix("ray://").rsplit(":", 1)
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=options.ray, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:
        check(False, f"--ray {options.ray} cannot be reached ({type(error).__name__}: {error})")
    nodes, needs = (
        [node["Resources"] for node in ray.nodes() if node["Alive"]],
        {"CPU": options.num_cpus},
    )
    needs |= {"GPU": num_gpus} if num_gpus else {}
    fits = any(all(node.get(kind, 0) >= count for kind, count in needs.items()) for node in nodes)
    check(
        fits,
        f"--ray {options.ray}: no node has what a run needs, {needs}; see --num-cpus and --num-gpus",
    )
    task = ray.remote(run_on_node).options(
        num_cpus=options.num_cpus, num_gpus=num_gpus, max_retries=0
    )
    variables = environment(max(1, int(options.num_cpus))) | (
        {} if num_gpus else {"CUDA_VISIBLE_DEVICES": ""}
    )

    def run(job: Job, slot: int) -> Iterator[str]:
        commit, folder = commit_of(job.script), prepare(job, options.runs_dir)
        resume, archive = (folder.name, pack(folder, options.runs_dir)) if folder else ("", b"")
        stream = task.remote(
            job.script.name, job.script.read_bytes(), job.flags, resume, archive, variables
        )
        state, code, told = "waiting", None, False
        while code is None:
            if stop and not told:
                told = not ray.cancel(stream)
            if ray.wait([stream], timeout=0)[0]:
                try:
                    code, output, archive = ray.get(next(stream))
                except (
                    Exception,
                    StopIteration,
                ) as error:  # a node or a worker that died, or the sweep stopped
                    code, output, archive = 1, f"{type(error).__name__}: {error}\n".encode(), None
                with log_file(job, options.runs_dir).open("ab") as log:
                    log.write(output)
                if archive:
                    receive(archive, options.runs_dir, commit)
                state = "running"
            yield state
        return code

    return run


def lock(runs_dir: Path) -> int:
    """Hold runs_dir for this sweep; returns the open file that its runs inherit. The system frees a lock when the last
    process that has its file open is gone, however it ended. So a second sweep is refused while the first one lives.
    After kill -9 of a sweep its runs go on and keep the second lock: the next sweep waits and takes their results."""
    (runs_dir / "logs").mkdir(parents=True, exist_ok=True)
    sweep, runs = (
        os.open(runs_dir / name, os.O_RDWR | os.O_CREAT) for name in (".sweep.lock", ".runs.lock")
    )
    try:
        fcntl.flock(sweep, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        check(False, f"another sweep is at work in {runs_dir}")
    try:
        fcntl.flock(runs, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"waiting for the runs that a killed sweep left going in {runs_dir}", flush=True)
        fcntl.flock(runs, fcntl.LOCK_EX)
    return runs


def declare(jobs: list[Job], runs_dir: Path) -> None:
    """Add the sweep's runs to sweep.json, by which scripts/plot.py knows a run that never left a folder."""
    file, keys = runs_dir / "sweep.json", ("exp_name", "env_id", "seed")
    runs = [*read(file).get("runs", []), *({key: job.args[key] for key in keys} for job in jobs)]
    unique = {tuple(run[key] for key in keys): run for run in runs}
    aside = file.with_suffix(".tmp")
    aside.write_text(json.dumps({"runs": list(unique.values())}, indent=1) + "\n")
    os.replace(aside, file)


@functools.cache
def commit_of(script: Path) -> str:
    """As the script records it."""
    git = ["git", "-C", str(script.resolve().parent), "describe", "--always", "--dirty"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip() or "unknown"


def table(jobs: list[Job], times: list[float]) -> list[str]:
    """Script x environment: how many runs are in which state, and the time left by the mean of the runs so far."""
    states = "done", "running", "failed", "waiting"
    rows, count = Counter(), Counter(job.state for job in jobs)
    for job in jobs:
        rows[job.script.stem, job.args["env_id"], job.state] += 1
    lines = [
        (script, env_id, *(rows[script, env_id, state] for state in states))
        for script, env_id, _ in rows
    ]
    lines = [
        ("script", "environment", *states),
        *dict.fromkeys(lines),
        ("total", "", *(count[s] for s in states)),
    ]
    widths = [max(len(str(line[column])) for line in lines) for column in range(2)]
    lines = [
        f"{a:{widths[0]}}  {b:{widths[1]}}" + "".join(f"{n:>9}" for n in numbers)
        for a, b, *numbers in lines
    ]
    left = count["running"] + count["waiting"]
    minutes = left * sum(times) / max(1, len(times)) / max(1, count["running"]) / 60
    lines[-1] += f"   about {minutes:.0f} min left" if times and left else ""
    return lines


def draw(lines: list[str], drawn: list[str]) -> list[str]:
    """Put the table in the place of the one drawn before; lines too many or too long for the terminal are cut."""
    width, height = shutil.get_terminal_size()
    lines = [line[: width - 1] for line in [lines[0], *lines[1:][2 - height :]]]
    if lines != drawn:
        print((f"\x1b[{len(drawn)}F\x1b[J" if drawn else "") + "\n".join(lines), flush=True)
    return lines


def settle(job: Job, code: int, runs_dir: Path, stop: list[int]) -> None:
    """The state of a run that has ended: done only with status 0 and a whole summary of its own arguments."""
    what, folders = find(job, read_runs(runs_dir))
    job.attempts += 1
    if code == 0 and what == "skip":
        score = read(folders[0] / "summary.json")["eval_return_mean"]
        job.state, job.outcome = "done", f"evaluation {score}"
    else:
        job.state = "waiting" if stop or job.attempts < 2 else "failed"
        job.outcome = (
            f"exit status {code}" if code else "exit status 0, but no summary.json of this run"
        )


def work(jobs: list[Job], run, slots: int, runs_dir: Path, stop: list[int]) -> None:
    """Keep the slots busy until every job is done or has failed twice, or a signal stops it all."""
    waiting, active, times, drawn = deque(job for job in jobs if job.state == "waiting"), {}, [], []
    told = False
    while active or (waiting and not stop):
        for slot, (job, steps) in list(active.items()):
            try:
                state = next(steps)
                job.started = job.started if state == job.state else time.monotonic()
                job.state = state
            except StopIteration as end:
                del active[slot]
                settle(job, end.value, runs_dir, stop)
                seconds, ended = (
                    time.monotonic() - job.started,
                    sum(job.state in ("done", "failed") for job in jobs),
                )
                times += [seconds] if job.state == "done" else []
                waiting.extendleft([job] if job.state == "waiting" else [])
                word = (
                    job.state
                    if job.state != "waiting"
                    else "stopped"
                    if stop
                    else "to be tried again"
                )
                if not sys.stdout.isatty():
                    print(
                        f"{ended}/{len(jobs)} {job.name} {word} after {seconds:.0f} s: {job.outcome}",
                        flush=True,
                    )
        if stop and active and not told:
            told = not print(f"stopping: {len(active)} runs save their checkpoints", flush=True)
        for slot in range(slots):
            if slot not in active and waiting and not stop:
                job = waiting.popleft()
                job.state, job.started, active[slot] = (
                    "running",
                    time.monotonic(),
                    (job, run(job, slot)),
                )
        if sys.stdout.isatty():
            drawn = draw(table(jobs, times), drawn)
        time.sleep(0.1)


def main(options: Options, common: list[str]) -> int:
    jobs, runs_dir, stop = expand(options, common), options.runs_dir, []
    if options.dry_run:
        runs = read_runs(runs_dir)
        for job in jobs:
            what, folders = find(job, runs)
            print(what, shlex.join(command(job, folders[0] if what == "resume" else None)))
        return 0
    ray_run = options.ray and ray_runner(options, stop)
    runs_lock = lock(runs_dir)
    declare(jobs, runs_dir)
    runs = read_runs(runs_dir)
    for job in jobs:
        job.state = "done" if find(job, runs)[0] == "skip" else "waiting"
    before = sum(job.state == "done" for job in jobs)
    done = [(job, find(job, runs)[1][0]) for job in jobs if job.state == "done"]
    old = [
        folder
        for job, folder in done
        if read(folder / "summary.json").get("commit") != commit_of(job.script)
    ]
    if old:
        print(
            f"{len(old)} of the runs that are done are of another commit than the script's, for example {old[0]}"
        )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stop.append(number))
    run = ray_run or local_runner(options, jobs, runs_lock, stop)
    work(jobs, run, len(jobs) if options.ray else options.workers, runs_dir, stop)
    count = Counter(job.state for job in jobs)
    left = f", {count['waiting']} not done" * bool(stop)
    print(
        f"{len(jobs)} runs: {before} done before, {count['done'] - before} now, {count['failed']} failed{left}"
    )
    for job in jobs:
        if job.state == "failed":
            log, script, seed = log_file(job, runs_dir), job.script, job.args["seed"]
            print(f"\nFAILED {script} on {job.args['env_id']}, seed {seed}: {job.outcome}")
            print(f"$ {shlex.join(command(job))}")
            print(f"end of {log}:", *log.read_text(errors="replace").splitlines()[-15:], sep="\n  ")
    if stop:
        print("stopped; the same command goes on from here")
    return 128 + stop[0] if stop else int(count["failed"] > 0)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    sys.exit(
        main(tyro.cli(Options, description=__doc__, args=sys.argv[1:end]), sys.argv[end + 1 :])
    )
