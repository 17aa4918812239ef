"""A Ray cluster or a Slurm array for scripts/sweep.py: the same runs, on other machines.

On Ray a run is a task: the script's text and the half-done run folder go along with it, the working folder is shipped
once by Ray's runtime environment, and what the run writes comes back at every checkpoint. On Slurm the tasks of an
array are sweeps of their own that share the runs folder.
"""

import contextlib
import hashlib
import importlib.util
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import check, commit_of, one_line


def run_on_node(
    script: str,
    text: bytes,
    flags: list[str],
    resume: str,
    files: dict[str, bytes],
    variables: dict[str, str],
):
    """The task on a node: the script as a process in Ray's copy of the working folder. Yields (exit status, new output,
    {path in the runs folder: content} of changed files) at every checkpoint, then without a status, and at the end. If
    the sweep stops or dies, Ray interrupts this and what came after the last checkpoint is lost."""
    with tempfile.TemporaryDirectory(prefix="sweep-") as home:
        runs_dir, log, sent = Path(home, "runs"), Path(home, "log"), {}

        def changed() -> dict[str, bytes]:
            new = {}
            for file in runs_dir.rglob("*"):
                with contextlib.suppress(FileNotFoundError):  # a run removes files of its own
                    mark = file.stat().st_mtime_ns, file.stat().st_size
                    if file.is_file() and file.suffix != ".tmp" and sent.get(file) != mark:
                        new[str(file.relative_to(runs_dir))] = file.read_bytes()
                        sent[file] = mark
            return new

        Path(home, script).write_bytes(text)
        for name, content in files.items():
            Path(runs_dir, name).parent.mkdir(parents=True, exist_ok=True)
            Path(runs_dir, name).write_bytes(content)
        changed()
        line = [sys.executable, str(Path(home, script)), *flags, "--runs-dir", str(runs_dir)]
        line += ["--resume", str(runs_dir / resume)] if resume else []
        with log.open("wb") as sink, log.open("rb") as output:
            streams = dict(stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT)
            process = subprocess.Popen(line, env=os.environ | variables, **streams)
            saved = None
            try:
                while (code := process.poll()) is None:
                    marks = [file.stat().st_mtime_ns for file in runs_dir.glob("*/checkpoint.pt")]
                    if marks != saved:
                        saved = marks
                        yield None, output.read(), changed()
                    time.sleep(0.2)
                yield code, output.read(), changed()
            finally:
                process.terminate()
                try:
                    process.wait(120)
                except subprocess.TimeoutExpired:
                    process.kill()


def receive(files: dict[str, bytes], runs_dir: Path, commit: str) -> None:
    """Put what came from a node into runs_dir file by file, each whole, in the order in which a run writes them, so
    that a kill at any moment leaves what a killed run here would leave: curves, summary, checkpoint."""

    def order(name: str) -> tuple[bool, bool]:
        return name.endswith("checkpoint.pt"), name.endswith("summary.json")

    for name in sorted(files, key=order):
        content, target = files[name], (runs_dir / name).resolve()
        if not target.is_relative_to(runs_dir.resolve()):
            raise OSError(f"a node sent a file that is outside of the runs folder: {name}")
        if target.suffix == ".json":  # the script came from this repository, but could not see that
            content = content.replace(b'"commit": "unknown"', f'"commit": "{commit}"'.encode())
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f"{target.name}.tmp")
        aside.write_bytes(content)
        os.replace(aside, target)


def shipped(path: str) -> str:
    """A folder as a node finds it: relative to the working folder if it lies in it, else by its path, which the node
    must have as well."""
    folder, here = Path(path).resolve(), Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


def ray_runner(options, variables: dict[str, str], log_file: Callable, stop: list[int]) -> Callable:
    """run(job, slot, resume, held) -> exit status like that of sweep.local_runner, for a Ray cluster, to which this
    connects. `variables` are of the run's environment; log_file(name, runs_dir) is the log to write to."""
    missing = "--ray needs a package: pip install -r requirements-cluster.txt"
    check(importlib.util.find_spec("ray"), missing)
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # no tips
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no telephone
    import ray

    def gpus_of(device: str) -> float:
        return float(device.startswith("cuda")) if options.num_gpus is None else options.num_gpus

    num_gpus = gpus_of(options.device)
    leave = [f"/{shipped(str(options.runs_dir))}", ".git", ".venv", "venv", "__pycache__"]
    along = {"working_dir": str(Path.cwd()), "excludes": leave}  # Ray refuses more than 512 MB
    try:
        if ":" in options.ray:  # Ray itself would try for many minutes
            host, port = options.ray.removeprefix("ray://").rsplit(":", 1)
            socket.create_connection((host, int(port)), timeout=10).close()
        quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        ray.init(address=options.ray, runtime_env=along, ignore_reinit_error=True, **quiet)
    except Exception as error:
        check(False, f"--ray {options.ray} cannot be used: {one_line(error)}")
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]

    def lacking(gpus: float) -> str:
        """Why no node can have such a run; nothing where one can."""
        needs = {"CPU": options.num_cpus} | ({"GPU": gpus} if gpus else {})
        fits = (all(node.get(kind, 0) >= count for kind, count in needs.items()) for node in nodes)
        small = f"no node has what a run needs, {needs}; see --num-cpus and --num-gpus"
        return "" if any(fits) else small

    check(not lacking(num_gpus), f"--ray {options.ray}: {lacking(num_gpus)}")
    # the nodes do not have this file
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    own = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]

    def run(job, slot: int, resume: Path | None, held: int) -> int:
        files, job.state, code, told = {}, "waiting", None, False
        # the run's own, which a line of --jobs or a grid may have given
        gpus = gpus_of(job.args.get("device", options.device))
        if lacking(gpus):
            raise OSError(lacking(gpus))
        resources = {"num_cpus": options.num_cpus, "num_gpus": gpus, "max_retries": 0}
        task = ray.remote(run_on_node).options(**resources)
        here = variables | ({} if gpus else {"CUDA_VISIBLE_DEVICES": ""})
        if resume:
            found = [file for file in resume.rglob("*") if file.is_file()]
            files = {str(file.relative_to(options.runs_dir)): file.read_bytes() for file in found}
        paths = [shipped(str(job.script.parent)), *map(shipped, own)]
        path = {"PYTHONPATH": os.pathsep.join(paths)}
        name = resume.name if resume else ""
        commit = commit_of(job.script)
        stream = task.remote(job.script.name, job.text, job.flags, name, files, here | path)
        late = float("inf")
        try:
            while code is None:
                if (stop or time.monotonic() > late) and not told:
                    told = True
                    ray.cancel(stream)
                if not ray.wait([stream], timeout=0.2)[0]:
                    continue
                try:
                    code, output, files = ray.get(next(stream))
                except (Exception, StopIteration) as error:  # a node died, or the sweep stopped
                    code, output, files = 1, f"Traceback: {one_line(error)}\n".encode(), {}
                with log_file(job.name, options.runs_dir).open("ab") as log:
                    log.write(output)
                receive(files, options.runs_dir, commit)
                if job.state == "waiting":
                    job.state = "running"
                    late = time.monotonic() + (options.timeout * 60 or float("inf"))
        except BaseException:  # of the disk here: the run over there is not to go on unseen
            ray.cancel(stream)
            raise
        if told and code and not stop:
            raise TimeoutError(f"no end after {options.timeout:g} minutes (--timeout)")
        return code

    return run


TASK = "PLAINRL_SWEEP_TASK"  # set in a task of the array, which is not to submit again


class Share:
    """A task of the array: this sweep once more, which shares the runs with the other tasks by their locks."""

    def __init__(self, line: list[str]):
        self.line = line

    def __call__(self) -> None:
        subprocess.run(self.line, check=True, env=os.environ | {TASK: "1"})

    def checkpoint(self):
        """What submitit queues again when the time of the task is over or somebody else needs its place."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def submit(options, lines: str, declare: Callable) -> int:
    """The sweep as a Slurm array job."""
    missing = "--slurm needs a package: pip install -r requirements-cluster.txt"
    check(importlib.util.find_spec("submitit"), missing)
    check(shutil.which("sbatch"), "--slurm: there is no sbatch here; submit from a login node")
    wrong = f"--slurm-options {' '.join(options.slurm_options)}: give NAME=VALUE"
    check(all("=" in item for item in options.slurm_options), wrong)
    import submitit

    declare()
    folder, line = options.runs_dir / "logs" / "slurm", [sys.executable, *sys.argv]
    folder.mkdir(parents=True, exist_ok=True)
    if str(options.jobs) == "-":  # the tasks have no standard input
        file = str(folder / f"jobs-{hashlib.sha256(lines.encode()).hexdigest()[:12]}")
        Path(file).write_text(lines)
        line = [{"-": file, "--jobs=-": f"--jobs={file}"}.get(word, word) for word in line]
    settings = dict(item.split("=", 1) for item in options.slurm_options)
    settings = {key: int(value) if value.isdigit() else value for key, value in settings.items()}
    settings = {"name": "sweep", "cpus_per_task": options.workers} | settings
    try:
        executor = submitit.AutoExecutor(folder, cluster="slurm")
        executor.update_parameters(**settings)
        submitit.core.utils.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        with executor.batch():
            tasks = [executor.submit(Share(line)) for _ in range(options.slurm)]
        number = tasks[0].job_id.partition("_")[0]
    except Exception as error:
        check(False, f"--slurm: {one_line(error)}")
    print(f"submitted job {number}, {options.slurm} tasks; sweep.py --status shows how they get on")
    return 0
