"""Run scripts x environments x seeds x grids of flags. Each run is a separate process of an unmodified script.

    python scripts/sweep.py --scripts algos/ppo_continuous.py algos/rpo_continuous.py --env-ids Pendulum-v1 \
        --seeds 1-10 --grid bootstrap-truncation=True,False --workers 2 -- --total-timesteps 400000
    python scripts/sweep.py --jobs FILE --workers 2     # a line of FILE: --scripts ... --env-ids ... -- FLAGS
    python scripts/sweep.py --status                    # show the state of the runs in runs/

Flags after `--` go to every run. If a sweep ends early, even by Ctrl-C or kill -9, the same command continues it:
complete runs are skipped, and unfinished ones are resumed. A run is identified by its flags and by the version of its
script, of which its folder has a copy, and not by its name. Runs of another version of the script move to runs/.old and
are run again. Modules that a script imports are not compared. Several sweeps can share a folder; no run is executed
twice.

A run that crashes is tried again, from its checkpoint if it has one. A run that ends with its own error message (bad
input, NaN or infinity) or exceeds --timeout is not tried again. The report lists every run that failed, and the exit
status is then 1.

A script with --num-seeds trains several seeds in one process; --seeds-per-process sets how many. Each has a run folder
and a log of its own, and a run that the process did not finish is continued in a process of its own.

--ray ADDRESS (or local) executes the runs on a Ray cluster on which the requirements are installed. The working folder
is copied to it; checkpoints and results are copied back. --slurm N submits an array of N tasks that share the runs.
"""

import contextlib
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from plainrl_tools.common import (
    KEYS,
    check,
    check_least,
    declared,
    has_args,
    has_text,
    num_cores,
    one_line,
    read_json,
)
from plainrl_tools.sweeping import clusters
from plainrl_tools.sweeping.claims import Keeper, hold, is_held, release
from plainrl_tools.sweeping.plan import TIMED_OUT, Job, Plan, expand, read_flags
from tqdm import tqdm

# flags that do not change the result of a run
NO_EFFECT = ("runs_dir", "resume", "track", "wandb_project_name", "wandb_entity")
NEEDED = 50e6  # bytes of disk space that must be free for a run to start
EDITED = "the script was edited during the sweep; start the sweep again"
GRACE = 120  # seconds that a run has to save its checkpoint after SIGTERM
RAY_KEEPER = Keeper()  # of all runs on Ray, since they end with this process


@dataclass
class Options(Plan):
    jobs: Path | None = None  # file with further plans, one per line; - is the standard input
    workers: int = 1  # runs at a time on this machine; 0: one per core; ignored with --ray
    runs_dir: Path = Path("runs")  # parent of the run folders and of logs/ with each run's output
    device: str = ""  # --device of every run; several GPUs are assigned to the workers in turn
    timeout: float = 0.0  # minutes after which a run is ended and counts as failed; 0: no limit
    retries: int = 1  # further attempts after a crash
    # of scripts with --num-seeds; 0: divide the seeds among the workers, but train at most 10 at once
    seeds_per_process: int = 0
    ray: str = ""  # address of a Ray cluster; local starts one on this machine
    num_cpus: float = 1  # CPUs that Ray reserves for a run
    # GPUs that Ray reserves for a run, such as 0.25; default: 1 with --device cuda, otherwise 0
    num_gpus: float | None = None
    slurm: int = 0  # number of tasks of a Slurm array that share the runs, each with --workers
    slurm_options: tuple[str, ...] = ()  # NAME=VALUE for submitit, such as timeout_min=600
    dry_run: bool = False  # only print which runs would be skipped, resumed or started, and how
    status: bool = False  # only print the state of the runs in --runs-dir


# ---- existing runs ---------------------------------------------------------------------------------------------------


def read_checkpoint(folder: Path) -> dict:
    import torch

    try:  # weights_only=True: loading a checkpoint cannot execute code
        return dict(torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True))
    except Exception:
        return {}


def read_runs(runs_dir: Path) -> list[tuple[Path, dict, dict]]:
    """Return (folder, its configuration, its summary) of every run in the folder.

    A run that is being continued to more steps has new arguments in config.json, and perhaps another version of its
    script, but still its old summary.
    """
    runs = []
    for folder in sorted(runs_dir.glob("*/")):
        config, summary = read_json(folder / "config.json"), read_json(folder / "summary.json")
        # os.path.isfile() is False for an unreadable folder, for which Path.is_file() raises an error
        if not config and not summary and os.path.isfile(folder / "checkpoint.pt"):
            config = read_checkpoint(folder)
        runs.append((folder, config or summary, summary))
    return runs


def relevant(args: dict) -> dict:
    return {key: value for key, value in args.items() if key not in NO_EFFECT}


def same(job: Job, record: dict) -> bool:
    """Whether a record belongs to this run: the same script and arguments. Missing arguments have their defaults."""
    args = record.get("args")
    if record.get("algo") != job.script.stem or not isinstance(args, dict):
        return False
    return relevant(job.defaults | args) == relevant(job.args)


def has_checkpoint(folder: Path) -> bool:
    """Whether the folder has a checkpoint that is not empty. A power cut can leave an empty file."""
    file = folder / "checkpoint.pt"
    return file.is_file() and file.stat().st_size > 0


def find(job: Job, runs) -> dict[str, list[Path]]:
    """Sort the folders of the run by their state; folders of other runs are left out.

    done: the run is complete. half: it can be resumed from a checkpoint, the furthest one first. empty: it has saved
    nothing. outdated: it used another version of the script.
    """
    found = {"done": [], "half": [], "empty": [], "outdated": []}
    for folder, config, summary in runs:
        copy = folder / job.script.name
        if not same(job, config):
            continue
        complete = same(job, summary) and "eval_return_mean" in summary
        if not has_checkpoint(folder) and not summary:
            found["empty"].append(folder)
        elif not copy.is_file() or copy.read_bytes() != job.text:
            found["outdated"].append(folder)
        elif complete:
            found["done"].append(folder)
        elif "resume" in job.args and has_checkpoint(folder):
            found["half"].append(folder)
    if len(found["half"]) > 1:
        found["half"].sort(key=lambda folder: -read_checkpoint(folder).get("global_step", -1))
    return found


def remove_half_written(folder: Path) -> None:
    """Remove what a run that was killed while writing has left: the files of algos/ write a *.tmp and rename it."""
    for file in folder.glob("*.tmp"):
        file.unlink(missing_ok=True)


def prepare(job: Job, runs_dir: Path) -> Path | None:
    """Return the folder to resume, or None.

    Runs of another version of the script move to .old. Before a start from scratch, folders of this run without a
    checkpoint are removed.
    """
    found = find(job, read_runs(runs_dir))
    for folder in found["outdated"]:
        old = runs_dir / ".old" / folder.name
        old.parent.mkdir(exist_ok=True)
        shutil.rmtree(old, ignore_errors=True)
        os.replace(folder, old)
    for folder in found["half"]:
        remove_half_written(folder)
        return folder
    for folder in found["empty"]:
        shutil.rmtree(folder)
    return None


def command(job: Job, resume: Path | None = None) -> list[str]:
    """The command line of a run, as its log shows it."""
    line = [*job.launcher, str(job.script), *job.flags]
    if job.num_seeds > 1:
        line += ["--num-seeds", str(job.num_seeds)]
    return line + (["--resume", str(resume)] if resume else [])


def log_file(name: str, runs_dir: Path) -> Path:
    (runs_dir / "logs").mkdir(parents=True, exist_ok=True)  # the user may have removed it
    return runs_dir / "logs" / f"{name}.log"


def claim_file(name: str, runs_dir: Path) -> Path:
    (runs_dir / ".claims").mkdir(parents=True, exist_ok=True)
    return runs_dir / ".claims" / name


def tail(file: Path, after: int = 0) -> str:
    """The last 10 kB of a log, or less if they begin before the byte `after`; "" if there is no log."""
    try:
        with file.open("rb") as log:
            log.seek(max(after, file.stat().st_size - 10_000))
            return log.read(10_000).decode(errors="replace")
    except OSError:
        return ""


def declare(jobs: list[Job], runs_dir: Path) -> None:
    """Add the runs to sweep.json, from which scripts/plot.py knows of runs without a folder.

    The program ends if the folder cannot be written to.
    """
    file, temporary = runs_dir / "sweep.json", runs_dir / "sweep.tmp"
    try:
        while not (claim := hold(claim_file("sweep.json", runs_dir))):
            time.sleep(0.1)
        runs = declared(runs_dir)
        for job in jobs:
            record = {key: job.args[key] for key in KEYS}
            record |= {"script": str(job.script), "sha256": hashlib.sha256(job.text).hexdigest()}
            record |= {"log": job.name, "args": relevant(job.args)}
            runs[tuple(record[key] for key in KEYS)] = record
        temporary.write_text(json.dumps({"runs": list(runs.values())}, indent=1) + "\n")
        os.replace(temporary, file)
        release(claim)
    except OSError as error:
        check(False, f"--runs-dir {runs_dir} cannot be written to: {error.strerror}")


# ---- runs on this machine --------------------------------------------------------------------------------------------


def visible_gpus(visible: str | None, count: int) -> list[str]:
    """Ids of the GPUs to use: those in CUDA_VISIBLE_DEVICES, or all `count` GPUs if it is not set."""
    if visible is None:
        return [str(index) for index in range(count)]
    return [gpu for gpu in visible.replace(" ", "").split(",") if gpu not in ("", "-1")]


def environment(threads: int, slot: int = 0, gpus: list[str] | None = None) -> dict[str, str]:
    """Environment variables of a run: its number of threads, and the GPU of its worker."""
    names = "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHON_CPU_COUNT"
    variables = dict.fromkeys(names, str(threads))
    return variables | ({"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {})


def local_runner(options: Options, jobs: list[Job], stop: list[int]) -> Callable:
    """Return run(job, slot, resume, keeper), which executes a run in a local process and returns its exit status."""
    threads, gpus = max(1, num_cores() // options.workers), []
    devices = {job.args.get("device", "cpu") for job in jobs}
    if devices - {"cpu"}:
        import torch

        gpus = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count())
    check(gpus or "cuda" not in devices, "--device cuda is not available; use --device cpu")

    def run(job: Job, slot: int, resume: Path | None, keeper: Keeper) -> int:
        line = command(job, resume)
        on_gpu = job.args.get("device", "cpu") != "cpu"
        launches_ranks = {"torchrun", "torch.distributed.run"} & {
            *map(os.path.basename, job.launcher)
        }
        assigned = gpus if on_gpu and not launches_ranks else None
        variables = os.environ | environment(threads, slot, assigned)
        with log_file(job.name, options.runs_dir).open("a", encoding="utf-8") as log:
            print(f"$ {shlex.join(line)}", file=log, flush=True)
            streams = dict(stdin=keeper.pipe, stdout=log, stderr=subprocess.STDOUT)
            process = subprocess.Popen(line, env=variables, **streams)
        deadline = time.monotonic() + (options.timeout * 60 or float("inf"))
        while process.poll() is None and not stop and time.monotonic() < deadline:
            if not keeper.is_alive():
                break
            time.sleep(0.1)
        ended = process.poll() is not None
        # The run saves a checkpoint first; no effect if it has ended. On Windows it would end without a checkpoint, but
        # there Ctrl-C has reached the run as well.
        if os.name == "posix" or signal.SIGINT not in stop:
            process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
        code = process.wait()
        # code 0: it has finished in the meantime
        if code and not ended and not stop and keeper.is_alive():
            raise TimeoutError(f"{TIMED_OUT} after {options.timeout:g} minutes")
        return code

    return run


# ---- the queue -------------------------------------------------------------------------------------------------------


def take(
    jobs, options: Options, stop: list[int], keeper: Keeper, guard: threading.Lock, begun=math.inf
) -> list:
    """Return [(job, claim to it), ...] for the next waiting run that no other sweep executes; [] at the end.

    There are several only if one process is to train them.

    A run that another sweep has finished is done here as well. A run that has failed in another sweep since this one
    has `begun` has failed here as well.
    """
    while not stop:
        with guard:
            waiting = [job for job in jobs if job.state == "waiting" and not job.taken]
            for job in waiting:
                try:
                    claim = keeper.hold(claim_file(job.name, options.runs_dir))
                except OSError as error:  # such as a full disk
                    job.state, job.outcome = "failed", str(error)
                    continue
                if not claim:
                    continue
                if find(job, read_runs(options.runs_dir))["done"]:
                    job.state, job.outcome = "done", "finished by another sweep"
                elif failed_since(log_file(job.name, options.runs_dir), begun):
                    job.state, job.outcome = "failed", "failed in another sweep"
                else:
                    job.state, job.taken = "running", True
                    return [(job, claim), *next_seeds(job, jobs, options, keeper)]
                release(claim)
        if not waiting:
            break
        time.sleep(1)
    return []


def next_seeds(first: Job, jobs: list[Job], options: Options, keeper: Keeper) -> list:
    """Return [(job, claim to it), ...] for the runs to train in the process of the first: those of the next seeds.

    All of them, and the first, must start from scratch. There are none if the script has no --num-seeds.
    """
    if "num_seeds" not in first.args or options.ray:
        return []

    def key(job: Job):
        return job.script, job.launcher, job.args | {"seed": 0}

    alike = {job.args["seed"]: job for job in jobs if key(job) == key(first)}
    most = options.seeds_per_process or min(10, math.ceil(len(alike) / options.workers))
    runs = read_runs(options.runs_dir)
    taken = []
    for seed in range(first.args["seed"] + 1, first.args["seed"] + most):
        job = alike.get(seed)
        has_folder = job and any([*find(first, runs).values(), *find(job, runs).values()])
        if not job or job.state != "waiting" or job.taken or has_folder:
            break
        claim = keeper.hold(claim_file(job.name, options.runs_dir))
        if not claim:
            break
        job.state, job.taken = "running", True
        taken.append((job, claim))
    return taken


def failed_since(log: Path, begun: float) -> bool:
    """Whether a sweep has recorded in this log since then that the run itself has failed.

    An edited script, a full disk and --timeout do not count: they concern only that sweep.
    """
    if not log.exists() or log.stat().st_mtime < begun:
        return False
    return tail(log).rstrip().rpartition("\n")[2].startswith("= failed: exit status")


def settle(job: Job, code: int, output: str, runs_dir: Path) -> bool:
    """Record the outcome of a run that has ended, and return whether another attempt could help.

    The run is done only if it has left a complete summary for its arguments and its version of the script.
    """
    folders = find(job, read_runs(runs_dir))["done"]
    lines = output.splitlines()
    if folders:  # even if its process crashed afterwards
        score = read_json(folders[0] / "summary.json")["eval_return_mean"]
        crashed = f", then exit status {code}" * (code != 0)
        job.state, job.outcome = "done", f"evaluation {score:.1f}{crashed}"
        return False
    if code == 0 and job.script.read_bytes() != job.text:
        job.outcome = EDITED
    elif code == 0:
        job.outcome = "exit status 0, but the run has written no summary.json"
    else:
        job.outcome = f"exit status {code}: {one_line(lines[-1] if lines else 'no output')}"
    return code not in (0, 1, 2) or (code == 1 and "Traceback" in output)


def check_start(job: Job, runs_dir: Path) -> None:
    """Raise an OSError if the run cannot start."""
    free = shutil.disk_usage(runs_dir).free
    if free < NEEDED:
        room = f"{free / 1e6:.1f} MB of disk space are free, {NEEDED / 1e6:.0f} MB are needed"
        raise OSError(f"not started: {room}")
    if job.script.read_bytes() != job.text:
        raise OSError(EDITED)


def note_outcome(job: Job, runs_dir: Path) -> None:
    """Write the outcome of a run as the last line of its log."""
    output = tail(log_file(job.name, runs_dir))
    gap = "\n" if output and not output.endswith("\n") else ""
    with (
        contextlib.suppress(OSError),
        log_file(job.name, runs_dir).open("a", encoding="utf-8") as log,
    ):
        print(f"{gap}= {job.state}: {job.outcome}", file=log)


def carry_out_together(
    jobs: list[Job], slot: int, keeper: Keeper, run: Callable, options: Options
) -> None:
    """Try once to execute runs of successive seeds in one process. Those that it does not finish stay "running"."""
    first, *others = jobs
    begin, timed_out = time.monotonic(), ""
    try:
        log = log_file(first.name, options.runs_dir)
        before = log.stat().st_size if log.exists() else 0
        check_start(first, options.runs_dir)
        for job in others:
            with log_file(job.name, options.runs_dir).open("a", encoding="utf-8") as other:
                print(f"in the process of {first.name}, whose log has the output", file=other)
        first.num_seeds = len(jobs)
        code = run(first, slot, None, keeper)
    except TimeoutError as error:
        code, timed_out = 1, str(error)
    except OSError:  # carry_out() fails as well, and says why
        return
    finally:
        first.num_seeds = 1
    for job in jobs:
        job.seconds = time.monotonic() - begin
        settle(job, code, tail(log, before), options.runs_dir)
        if timed_out and job.state != "done":
            job.state, job.outcome = "failed", timed_out
        if job.state != "running":
            note_outcome(job, options.runs_dir)


def carry_out(
    job: Job, slot: int, keeper: Keeper, run: Callable, options: Options, stop: list[int]
):
    """Try to execute a run until it is done, has no attempts left, or the sweep stops.

    An error of the sweep itself, such as a full disk, makes only this run fail. If the claim was lost, because this
    machine could not renew it, the run goes back to the queue: another sweep may be executing it.
    """
    begin = time.monotonic()
    try:
        for _ in range(options.retries + 1):
            log = log_file(job.name, options.runs_dir)
            before = log.stat().st_size if log.exists() else 0
            check_start(job, options.runs_dir)
            code = run(job, slot, prepare(job, options.runs_dir), keeper)
            if not keeper.is_alive():
                job.taken, job.state = False, "waiting"
                return
            # Set this before the state, which another thread watches.
            job.seconds = time.monotonic() - begin
            if job.script.read_bytes() != job.text:  # its copy may differ from the executed version
                for folder in find(job, read_runs(options.runs_dir))["outdated"]:
                    (folder / job.script.name).unlink(missing_ok=True)
            if not settle(job, code, tail(log, before), options.runs_dir) or stop:
                break
    except Exception as error:  # mostly an error of the disk
        job.outcome = str(error) if isinstance(error, OSError) else one_line(error)
    with contextlib.suppress(OSError):
        for folder in find(job, read_runs(options.runs_dir))["half"]:
            remove_half_written(folder)
    if job.state != "done":
        job.seconds = time.monotonic() - begin
        job.state = "waiting" if stop else "failed"
    note_outcome(job, options.runs_dir)


def work(slot: int, jobs: list[Job], run: Callable, options: Options, stop: list[int], *shared):
    """Execute one run after the other, in a thread for each worker."""
    keeper = RAY_KEEPER if options.ray else Keeper()
    while group := take(jobs, options, stop, keeper, *shared):
        if len(group) > 1:
            carry_out_together([job for job, _ in group], slot, keeper, run, options)
        for job, claim in group:
            if job.state == "running" and (stop or not keeper.is_alive()):
                job.taken, job.state = False, "waiting"
            elif job.state == "running":
                carry_out(job, slot, keeper, run, options, stop)
            release(claim)
    if not options.ray:
        keeper.close()


def table(runs: list[tuple[str, str, str]]) -> list[str]:
    """Count the states of the runs (script, environment, state) for each script and environment."""
    states = "done", "running", "failed", "waiting"
    count, total = Counter(runs), Counter(state for _, _, state in runs)
    lines = [("script", "environment", *states)]
    for pair in dict.fromkeys(run[:2] for run in runs):
        lines.append((*pair, *(count[(*pair, state)] for state in states)))
    lines.append(("total", "", *(total[state] for state in states)))
    widths = [max(len(str(line[column])) for line in lines) for column in range(2)]
    rows = []
    for script, env_id, *numbers in lines:
        row = f"{script:{widths[0]}}  {env_id:{widths[1]}}"
        rows.append(row + "".join(f"{number:>9}" for number in numbers))
    return rows


def watch(futures, jobs: list[Job], stop: list[int]) -> None:
    """Show a progress bar on a terminal, a line for each run that ends, and a line when the sweep stops."""
    reported = {job.name for job in jobs if job.state == "done"}
    bar_format = "{l_bar}{bar:20} {n_fmt}/{total_fmt} runs [{elapsed}<{remaining}{postfix}]"
    silent = not sys.stdout.isatty()
    bar = tqdm(total=len(jobs), initial=len(reported), bar_format=bar_format, disable=silent)
    stopping, idle_since = False, time.monotonic()
    while True:
        ended = all(future.done() for future in futures)
        count = Counter(job.state for job in jobs)
        for job in jobs:
            if job.state in ("done", "failed") and job.name not in reported:
                reported.add(job.name)
                bar.update()
                result = f"{job.name} {job.state} after {job.seconds:.0f} s: {job.outcome}"
                bar.write(f"{len(reported)}/{len(jobs)} {result}")
        bar.set_postfix_str(f"{count['running']} running, {count['failed']} failed")
        if stop and count["running"] and not stopping:
            stopping = True
            bar.write(f"stopping: waiting until {count['running']} runs have saved a checkpoint")
        if count["running"] or ended:
            idle_since = time.monotonic()
        elif time.monotonic() > idle_since + 3:
            idle_since = float("inf")  # print this only once
            submitted = sum(job.taken for job in jobs if job.state == "waiting")
            if submitted:
                bar.write(f"waiting for free resources in the cluster for {submitted} runs")
            if other := count["waiting"] - submitted:
                bar.write(f"waiting for {other} runs that another sweep is executing")
        sys.stdout.flush()
        if ended:
            break
        time.sleep(0.2)
    bar.close()
    for future in futures:
        future.result()  # raises an error of the sweep itself


def status(runs_dir: Path) -> int:
    """Print the state of every run that a sweep declared in this folder.

    Runs that are running are listed with the last line of their log, failed runs with the reason.
    """
    runs, file = declared(runs_dir), runs_dir / "sweep.json"
    broken = f"--status: {file} is not the file of a sweep; start the sweep again to replace it"
    check(runs or not file.exists(), broken)
    check(runs, f"--status: no sweep was started in {runs_dir} (--runs-dir)")
    done = set()
    for folder, config, summary in read_runs(runs_dir):
        new, args = (known.get("args") or {} for known in (config, summary))
        key = tuple(args.get(name) for name in KEYS)
        run = runs.get(key, {})
        same_run = has_args(run, new) and has_args(run, args) and has_text(run, folder)
        if same_run and "eval_return_mean" in summary:  # the same rule as in find()
            done.add(key)
    states, lines = [], []
    for key, run in runs.items():
        log = runs_dir / "logs" / f"{run.get('log', '')}.log"
        last = re.split("[\r\n]+", tail(log).strip())[-1]
        if is_held(runs_dir / ".claims" / log.stem):
            state = "running"
            lines.append(f"running {log.stem}: {last}")
        elif key in done:  # the user may have repeated a failed run by hand
            state = "done"
        elif last.startswith("= failed"):
            state = "failed"
            lines.append(f"FAILED {log.stem}{last.removeprefix('= failed')}")
        else:
            state = "waiting"
        states.append((Path(run.get("script", "?")).stem, run["env_id"], state))
    print(*table(states), *lines, sep="\n")
    return 0


def report(jobs: list[Job], before: int, runs_dir: Path, stop: list[int]) -> None:
    """Print the result of a sweep, and for each run that failed the end of its log."""
    count = Counter(job.state for job in jobs)
    left = f", {count['waiting']} not finished" if stop else ""
    now = count["done"] - before
    print(f"{len(jobs)} runs: {before} done before, {now} now, {count['failed']} failed{left}")
    for job in jobs:
        if job.state == "failed":
            script, env_id, seed = job.script, job.args["env_id"], job.args["seed"]
            print(f"\nFAILED {script} on {env_id}, seed {seed}: {job.outcome}")
            print(f"$ {shlex.join(command(job))}")
            log = runs_dir / "logs" / f"{job.name}.log"
            print(f"end of {log}:", *tail(log).splitlines()[-16:-1], sep="\n  ")
    if stop:
        print("stopped; the same command continues the sweep")


def main(options: Options, common: list[str]) -> int:
    runs_dir, stop = options.runs_dir, []
    if options.status:
        return status(runs_dir)
    numbers = ("workers", "retries", "timeout", "slurm", "num_cpus", "num_gpus")
    check_least(0, options, *numbers, "seeds_per_process")
    needed = f"--slurm {options.slurm} needs --workers, the number of runs at a time in each task"
    check(options.workers or not options.slurm, needed)
    options = replace(options, workers=options.workers or num_cores())
    lines = ""
    if options.jobs:
        try:
            is_pipe = str(options.jobs) == "-"
            lines = sys.stdin.read() if is_pipe else options.jobs.read_text("utf-8-sig")
        except (OSError, ValueError) as error:
            check(False, f"--jobs {options.jobs} cannot be read ({one_line(error)})")
    jobs = expand(options, common, lines)
    if options.seeds_per_process > 1:
        check(not options.ray, "--seeds-per-process cannot be used with --ray")
        for job in jobs:
            several = "algos/ppo_continuous_seeds.py has it"
            wrong = f"--seeds-per-process: {job.script} has no --num-seeds; {several}"
            check("num_seeds" in job.args, wrong)
    runs = read_runs(runs_dir)
    found = {job.name: find(job, runs) for job in jobs}
    if options.dry_run:
        for job in jobs:
            half = (found[job.name]["half"] or [None])[0]
            what = "skip" if found[job.name]["done"] else "resume" if half else "start"
            print(what, shlex.join(command(job, half if what == "resume" else None)))
        return 0
    if options.slurm and clusters.TASK not in os.environ:
        return clusters.submit(options, lines, lambda: declare(jobs, runs_dir))
    if options.ray:
        alone = all(job.launcher == [sys.executable] for job in jobs)
        check(alone, "--launcher cannot be used with --ray, where each run is one process")
        variables = environment(max(1, int(options.num_cpus)))
        run = clusters.ray_runner(options, variables, log_file, stop)
    else:
        run = local_runner(options, jobs, stop)
    declare(jobs, runs_dir)
    for job in jobs:
        job.state = "done" if found[job.name]["done"] else "waiting"
    before = sum(job.state == "done" for job in jobs)
    old = [found[job.name]["outdated"] for job in jobs if job.state == "waiting"]
    old = [folder for folders in old for folder in folders]
    if old:
        action = "move to .old and are run again, for example"
        print(f"{len(old)} runs of another version of their script {action} {old[0]}", flush=True)
    for name in (
        "SIGINT",
        "SIGTERM",
        "SIGUSR2",
    ):  # Slurm sends SIGUSR2, which Windows does not have
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda number, _: stop.append(number))
    workers, guard = min(options.workers, len(jobs)), threading.Lock()
    if options.ray:
        workers = len(jobs)
    with ThreadPoolExecutor(workers) as pool:
        shared = jobs, run, options, stop, guard, time.time()
        watch([pool.submit(work, slot, *shared) for slot in range(workers)], jobs, stop)
    report(jobs, before, runs_dir, stop)
    if stop:
        return 128 + stop[0]
    return int(any(job.state == "failed" for job in jobs))


def interrupt(number, _) -> None:
    # Unlike SystemExit, this is not caught by the code that imports a script or reads its flags.
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        options, common = read_flags(Options, __doc__)
        if (options.status or options.dry_run) and hasattr(signal, "SIGPIPE"):
            # Without this, `sweep.py --status | head` would print a traceback.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        sys.exit(main(options, common))
    except KeyboardInterrupt as stopped:
        sys.exit(128 + stopped.args[0])
