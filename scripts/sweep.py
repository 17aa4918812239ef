"""Run scripts x environments x seeds x grids of flags, each run a process of its own of an unmodified script.

    python scripts/sweep.py --scripts algos/ppo_continuous.py algos/rpo_continuous.py --env-ids Pendulum-v1 \
        --seeds 1-10 --grid bootstrap-truncation=True,False --workers 2 -- --total-timesteps 400000
    python scripts/sweep.py --jobs FILE --workers 2     # a line of FILE: --scripts ... --env-ids ... -- FLAGS
    python scripts/sweep.py --status                    # what has become of the runs in runs/

What stands behind `--` goes to every run. After any end, Ctrl-C and kill -9 included, the same command goes on: runs
that are complete are skipped, half-done ones resumed. A run is known by its flags and by the text of its script, of
which its folder holds a copy, not by its name; runs of another text move to runs/.old and are run anew. What a script
imports is not compared. Several sweeps can share a folder: each takes runs that no other has at work.
A crash is tried again, from the checkpoint where there is one; what ends with a message of its own (bad input, numbers
that are not finite) or runs into --timeout is not. The report names every run that failed, status 1.
--ray ADDRESS (or local) gives the runs to a Ray cluster that has the requirements installed: the working folder goes
along, checkpoints and results come back. --slurm N submits an array of N tasks which share the runs. Linux and macOS.
"""

import contextlib
import fcntl
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

from common import (
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
from sweeping import clusters
from sweeping.plan import Job, Plan, expand, read_flags
from tqdm import tqdm

# flags in which two runs may differ and still be the same run
ELSEWHERE = ("runs_dir", "resume", "track", "wandb_project_name", "wandb_entity")
NEEDED = 50e6  # bytes that must be free on the disk for a run to start
EDITED = "the script was edited while the sweep was at work"
GRACE = 120  # seconds in which a run that is to end can save its checkpoint


@dataclass
class Options(Plan):
    jobs: Path | None = None  # a file of further plans, one a line; - is the standard input
    workers: int = 1  # runs at a time on this machine, 0: one a core; a cluster: as it has room
    runs_dir: Path = Path("runs")  # holds the run folders, and logs/ with the output of every run
    device: str = ""  # handed on to every run; several GPUs are dealt out to the workers in turn
    timeout: float = 0.0  # minutes after which a run is ended and counts as failed; 0: never
    retries: int = 1  # further attempts after a crash
    ray: str = ""  # address of a Ray cluster; local starts one on this machine
    num_cpus: float = 1  # CPUs that Ray reserves for a run
    # GPUs that Ray reserves for a run, such as 0.25; without it 1 for --device cuda
    num_gpus: float | None = None
    slurm: int = 0  # tasks of an array job that shares the runs, each with --workers
    slurm_options: tuple[str, ...] = ()  # NAME=VALUE for submitit, such as timeout_min=600
    dry_run: bool = False  # print the commands, and which would be skipped, resumed or started
    status: bool = False  # print what has become of the runs in --runs-dir


# ---- what there is of them -------------------------------------------------------------------------------------------


def read_checkpoint(folder: Path) -> dict:
    import torch

    try:  # data only: nothing in it can run code
        return dict(torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True))
    except Exception:
        return {}


def read_runs(runs_dir: Path) -> list[tuple[Path, dict, dict]]:
    """(folder, what it says of its arguments, its summary) of every run there. A run that goes on to more steps has new
    arguments in config.json, and perhaps another text of its script, while its old summary still stands."""
    runs = []
    for folder in sorted(runs_dir.glob("*/")):
        config, summary = read_json(folder / "config.json"), read_json(folder / "summary.json")
        # of a folder that is not ours to see, isfile() says no where Path.is_file() raises
        if not config and not summary and os.path.isfile(folder / "checkpoint.pt"):
            config = read_checkpoint(folder)
        runs.append((folder, config or summary, summary))
    return runs


def own(args: dict) -> dict:
    return {key: value for key, value in args.items() if key not in ELSEWHERE}


def same(job: Job, record: dict) -> bool:
    """Whether the record is of this run: same script, same arguments. One it lacks had the default of today."""
    args = record.get("args")
    if record.get("algo") != job.script.stem or not isinstance(args, dict):
        return False
    return own(job.defaults | args) == own(job.args)


def has_checkpoint(folder: Path) -> bool:
    """Whether it has one that is not empty, as a power cut may leave it."""
    file = folder / "checkpoint.pt"
    return file.is_file() and file.stat().st_size > 0


def find(job: Job, runs) -> dict[str, list[Path]]:
    """The run's folders by what they are: done; half, with a checkpoint to go on from, the furthest first; empty, which
    never got anywhere; outdated, of another text of the script. Other folders are in none of these."""
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


def prepare(job: Job, runs_dir: Path) -> Path | None:
    """The folder to resume, if any. Before a start from scratch, leftovers without a checkpoint are removed and runs of
    another text of the script put aside."""
    found = find(job, read_runs(runs_dir))
    for folder in found["outdated"]:
        aside = runs_dir / ".old" / folder.name
        aside.parent.mkdir(exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(folder, aside)
    for folder in found["half"]:
        (folder / "checkpoint.tmp").unlink(missing_ok=True)
        return folder
    for folder in found["empty"]:
        shutil.rmtree(folder)
    return None


def command(job: Job, resume: Path | None = None) -> list[str]:
    """The command line of a run, as in its log."""
    line = [*job.launcher, str(job.script), *job.flags]
    return line + (["--resume", str(resume)] if resume else [])


def log_file(name: str, runs_dir: Path) -> Path:
    (runs_dir / "logs").mkdir(parents=True, exist_ok=True)  # again, if somebody has removed it
    return runs_dir / "logs" / f"{name}.log"


def lock_file(name: str, runs_dir: Path) -> Path:
    (runs_dir / ".locks").mkdir(parents=True, exist_ok=True)
    return runs_dir / ".locks" / f"{name}.lock"


def tail(file: Path, after: int = 0) -> str:
    """The last 10 kB of a log, at most from this byte on; nothing, where it is gone."""
    try:
        with file.open("rb") as log:
            log.seek(max(after, file.stat().st_size - 10_000))
            return log.read(10_000).decode(errors="replace")
    except OSError:
        return ""


def hold(file: Path, wait: bool = False) -> int | None:
    """Lock the file for this process and those that inherit the descriptor; None if another process holds it. The
    system frees a lock when the last of them is gone, however it ended: after kill -9 of a sweep its runs go on and
    keep theirs."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_held(name: str, runs_dir: Path) -> bool:
    """Whether a process holds the run's lock; seen without a write, since the folder may be another's."""
    try:
        with (runs_dir / ".locks" / f"{name}.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # it is not there
        pass
    return False


def declare(jobs: list[Job], runs_dir: Path) -> None:
    """Add the sweep's runs to sweep.json, by which scripts/plot.py knows a run that never left a folder. Ends the sweep
    where the folder cannot be written to."""
    file, aside = runs_dir / "sweep.json", runs_dir / "sweep.tmp"
    try:
        held = hold(lock_file("sweep.json", runs_dir), wait=True)
        runs = declared(runs_dir)
        for job in jobs:
            record = {key: job.args[key] for key in KEYS}
            record |= {"script": str(job.script), "sha256": hashlib.sha256(job.text).hexdigest()}
            record |= {"log": job.name, "args": own(job.args)}
            runs[tuple(record[key] for key in KEYS)] = record
        aside.write_text(json.dumps({"runs": list(runs.values())}, indent=1) + "\n")
        os.replace(aside, file)
        os.close(held)
    except OSError as error:
        check(False, f"--runs-dir {runs_dir} cannot be written to: {error.strerror}")


# ---- on this machine -------------------------------------------------------------------------------------------------


def visible_gpus(visible: str | None, count: int) -> list[str]:
    """Ids of the GPUs to deal out: those that CUDA_VISIBLE_DEVICES leaves, or without it all that were counted."""
    if visible is None:
        return [str(index) for index in range(count)]
    return [gpu for gpu in visible.replace(" ", "").split(",") if gpu not in ("", "-1")]


def environment(threads: int, slot: int = 0, gpus: list[str] | None = None) -> dict[str, str]:
    """Variables of a run in this worker slot: no more threads than its share of the cores, and one of the GPUs."""
    names = "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHON_CPU_COUNT"
    variables = dict.fromkeys(names, str(threads))
    return variables | ({"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {})


def local_runner(options: Options, jobs: list[Job], stop: list[int]) -> Callable:
    """run(job, slot, resume, held) -> exit status of the run, in a process here."""
    threads, gpus = max(1, num_cores() // options.workers), []
    devices = {job.args.get("device", "cpu") for job in jobs}
    if devices - {"cpu"}:
        import torch

        gpus = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count())
    check(gpus or "cuda" not in devices, "--device cuda is not there; take --device cpu")

    def run(job: Job, slot: int, resume: Path | None, held: int) -> int:
        line = command(job, resume)
        on_gpu = job.args.get("device", "cpu") != "cpu"
        deals_itself = {"torchrun", "torch.distributed.run"} & {
            *map(os.path.basename, job.launcher)
        }
        dealt = gpus if on_gpu and not deals_itself else None
        variables = os.environ | environment(threads, slot, dealt)
        with log_file(job.name, options.runs_dir).open("a") as log:
            print(f"$ {shlex.join(line)}", file=log, flush=True)
            streams = dict(stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            process = subprocess.Popen(line, env=variables, pass_fds=[held], **streams)
        late = time.monotonic() + (options.timeout * 60 or float("inf"))
        while process.poll() is None and not stop and time.monotonic() < late:
            time.sleep(0.1)
        ended = process.poll() is not None
        process.terminate()  # nothing, if it has ended; otherwise it saves a checkpoint first
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
        code = process.wait()
        if code and not ended and not stop:  # 0: it came to its end meanwhile
            raise TimeoutError(f"no end after {options.timeout:g} minutes (--timeout)")
        return code

    return run


# ---- the queue -------------------------------------------------------------------------------------------------------


def take(jobs: list[Job], runs_dir: Path, stop: list[int], guard: threading.Lock, begun=math.inf):
    """(job, descriptor of its lock) of the next run that waits here and is not at work in another sweep; None when no
    run waits any more. What another sweep has finished is done here as well, and what has failed for good in another
    one since this one has `begun` has failed here."""
    while not stop:
        with guard:
            waiting = [job for job in jobs if job.state == "waiting" and not job.taken]
            for job in waiting:
                try:
                    held = hold(lock_file(job.name, runs_dir))
                except OSError as error:  # the disk: nothing can be started
                    job.state, job.outcome = "failed", str(error)
                    continue
                if held is not None and find(job, read_runs(runs_dir))["done"]:
                    job.state, job.outcome = "done", "by another sweep"
                    os.close(held)
                elif held is not None and failed_since(log_file(job.name, runs_dir), begun):
                    job.state, job.outcome = "failed", "in another sweep"
                    os.close(held)
                elif held is not None:
                    job.state, job.taken = "running", True
                    return job, held
        if not waiting:
            break
        time.sleep(1)
    return None


def failed_since(log: Path, begun: float) -> bool:
    """Whether a sweep has written since then that the run of this log has failed by itself, not by what is that sweep's
    own affair: an edited script, a full disk, its --timeout."""
    if not log.exists() or log.stat().st_mtime < begun:
        return False
    return tail(log).rstrip().rpartition("\n")[2].startswith("= failed: exit status")


def settle(job: Job, code: int, said: str, runs_dir: Path) -> bool:
    """What has become of a run that has ended; whether another attempt could help. Done is only what left a whole
    summary of its own arguments and text."""
    folders = find(job, read_runs(runs_dir))["done"]
    lines = said.splitlines()
    if folders:  # also where its process has died since
        score = read_json(folders[0] / "summary.json")["eval_return_mean"]
        died = f", then exit status {code}" * (code != 0)
        job.state, job.outcome = "done", f"evaluation {score:.1f}{died}"
        return False
    if code == 0 and job.script.read_bytes() != job.text:
        job.outcome = EDITED
    elif code == 0:
        job.outcome = "exit status 0, but no summary.json of this run"
    else:
        job.outcome = f"exit status {code}: {one_line(lines[-1] if lines else 'no output')}"
    return code not in (0, 1, 2) or (code == 1 and "Traceback" in said)


def carry_out(job: Job, slot: int, held: int, run: Callable, options: Options, stop: list[int]):
    """Attempts, until the run is done or has failed for good or the sweep stops. An error here, such as a full disk,
    fails this run and leaves the others alone."""
    begin = time.monotonic()
    try:
        for _ in range(options.retries + 1):
            log = log_file(job.name, options.runs_dir)
            before = log.stat().st_size if log.exists() else 0
            free = shutil.disk_usage(options.runs_dir).free
            if free < NEEDED:
                raise OSError(f"not started: {free / 1e6:.1f} MB free, {NEEDED / 1e6:.0f} needed")
            if job.script.read_bytes() != job.text:
                raise OSError(EDITED)
            code = run(job, slot, prepare(job, options.runs_dir), held)
            job.seconds = time.monotonic() - begin  # before its state, which is watched
            if job.script.read_bytes() != job.text:  # a copy made since need not be what has run
                for folder in find(job, read_runs(options.runs_dir))["outdated"]:
                    (folder / job.script.name).unlink(missing_ok=True)
            if not settle(job, code, tail(log, before), options.runs_dir) or stop:
                break
    except Exception as error:  # of the disk, above all
        job.outcome = str(error) if isinstance(error, OSError) else one_line(error)
    with contextlib.suppress(OSError):
        for folder in find(job, read_runs(options.runs_dir))["half"]:
            (folder / "checkpoint.tmp").unlink(missing_ok=True)
    if job.state != "done":
        job.seconds = time.monotonic() - begin
        job.state = "waiting" if stop else "failed"
    said = tail(log_file(job.name, options.runs_dir))
    gap = "\n" if said and not said.endswith("\n") else ""
    with contextlib.suppress(OSError), log_file(job.name, options.runs_dir).open("a") as log:
        print(f"{gap}= {job.state}: {job.outcome}", file=log)


def work(slot: int, jobs: list[Job], run: Callable, options: Options, stop: list[int], *shared):
    """A worker: one run after the other."""
    while taken := take(jobs, options.runs_dir, stop, *shared):
        job, held = taken
        carry_out(job, slot, held, run, options, stop)
        os.close(held)


def table(runs: list[tuple[str, str, str]]) -> list[str]:
    """Script x environment: how many of the runs (script, environment, state) are in which state."""
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
    """Show a bar on a terminal, a line for each run that ends, and the runs' reaction to a stop."""
    told = {job.name for job in jobs if job.state == "done"}
    form = "{l_bar}{bar:20} {n_fmt}/{total_fmt} runs [{elapsed}<{remaining}{postfix}]"
    silent = not sys.stdout.isatty()
    bar = tqdm(total=len(jobs), initial=len(told), bar_format=form, disable=silent)
    stopping, idle_since = False, time.monotonic()
    while True:
        over = all(future.done() for future in futures)
        count = Counter(job.state for job in jobs)
        for job in jobs:
            if job.state in ("done", "failed") and job.name not in told:
                told.add(job.name)
                bar.update()
                words = f"{job.name} {job.state} after {job.seconds:.0f} s: {job.outcome}"
                bar.write(f"{len(told)}/{len(jobs)} {words}")
        bar.set_postfix_str(f"{count['running']} running, {count['failed']} failed")
        if stop and count["running"] and not stopping:
            stopping = True
            bar.write(f"stopping: {count['running']} runs save their checkpoints")
        if count["running"] or over:
            idle_since = time.monotonic()
        elif time.monotonic() > idle_since + 3:
            idle_since = float("inf")  # said once
            placed = sum(job.taken for job in jobs if job.state == "waiting")
            if placed:
                bar.write(f"waiting for a place in the cluster for {placed} runs")
            if other := count["waiting"] - placed:
                bar.write(f"waiting for {other} runs that another sweep has at work")
        sys.stdout.flush()
        if over:
            break
        time.sleep(0.2)
    bar.close()
    for future in futures:
        future.result()  # an error of the sweep itself is raised here


def status(runs_dir: Path) -> int:
    """Print what has become of every run that a sweep declared in this folder, with the last words of those that run
    and the reasons of those that failed."""
    runs = declared(runs_dir)
    check(runs, f"--status: no sweep was started in {runs_dir} (--runs-dir)")
    done = set()
    for folder, config, summary in read_runs(runs_dir):
        new, args = (known.get("args") or {} for known in (config, summary))
        key = tuple(args.get(name) for name in KEYS)
        run = runs.get(key, {})
        ours = has_args(run, new) and has_args(run, args) and has_text(run, folder)
        if ours and "eval_return_mean" in summary:  # as in find()
            done.add(key)
    states, words = [], []
    for key, run in runs.items():
        log = runs_dir / "logs" / f"{run.get('log', '')}.log"
        last = re.split("[\r\n]+", tail(log).strip())[-1]
        if is_held(log.stem, runs_dir):
            state = "running"
            words.append(f"running {log.stem}: {last}")
        elif key in done:  # perhaps by hand, after it had failed
            state = "done"
        elif last.startswith("= failed"):
            state = "failed"
            words.append(f"FAILED {log.stem}{last.removeprefix('= failed')}")
        else:
            state = "waiting"
        states.append((Path(run.get("script", "?")).stem, run["env_id"], state))
    print(*table(states), *words, sep="\n")
    return 0


def report(jobs: list[Job], before: int, runs_dir: Path, stop: list[int]) -> None:
    """The last lines of a sweep: the fate of its runs, and of each that failed the end of its log."""
    count = Counter(job.state for job in jobs)
    left = f", {count['waiting']} not done" if stop else ""
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
        print("stopped; the same command goes on from here")


def main(options: Options, common: list[str]) -> int:
    runs_dir, stop = options.runs_dir, []
    if options.status:
        return status(runs_dir)
    check_least(0, options, "workers", "retries", "timeout", "slurm", "num_cpus", "num_gpus")
    check(options.workers or not options.slurm, "--slurm: say how many --workers a task has")
    options = replace(options, workers=options.workers or num_cores())
    lines = ""
    if options.jobs:
        try:
            is_pipe = str(options.jobs) == "-"
            lines = sys.stdin.read() if is_pipe else options.jobs.read_text("utf-8")
        except (OSError, ValueError) as error:
            check(False, f"--jobs {options.jobs} cannot be read ({one_line(error)})")
    jobs = expand(options, common, lines)
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
        check(alone, "--launcher: not with --ray, where a run is one process")
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
        words = "of another text of their script move to .old and are run anew, for example"
        print(f"{len(old)} runs {words} {old[0]}", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):  # the last is Slurm's
        signal.signal(number, lambda number, _: stop.append(number))
    workers, guard = len(jobs) if options.ray else options.workers, threading.Lock()
    with ThreadPoolExecutor(workers) as pool:
        shared = jobs, run, options, stop, guard, time.time()
        watch([pool.submit(work, slot, *shared) for slot in range(workers)], jobs, stop)
    report(jobs, before, runs_dir, stop)
    if stop:
        return 128 + stop[0]
    return int(any(job.state == "failed" for job in jobs))


def interrupt(number, _) -> None:
    # nothing that reads a script takes this for the script's own end
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        options, common = read_flags(Options, __doc__)
        if options.status or options.dry_run:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # in front of head
        sys.exit(main(options, common))
    except KeyboardInterrupt as stopped:
        sys.exit(128 + stopped.args[0])
