"""Execute the runs of scripts/sweep.py on a Ray cluster or in a Slurm array.

On Ray each run is a task. The script and the folder of an unfinished run are sent with the task, and Ray's runtime
environment copies the working folder once. The files that the run writes come back at every checkpoint. On Slurm each
task of the array is a separate sweep, and all of them share the runs folder.
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

from plainrl_tools.common import check, commit_of, one_line
from plainrl_tools.sweeping.plan import TIMED_OUT


def run_on_node(
    script: str,
    text: bytes,
    flags: list[str],
    resume: str,
    files: dict[str, bytes],
    variables: dict[str, str],
):
    """The task on a node: execute the script as a process in Ray's copy of the working folder.

    Yields (exit status, new output, {path in the runs folder: content} of changed files) at every checkpoint and at the
    end. The exit status is None until the end. If the sweep stops or dies, Ray interrupts this task, and everything
    after the last checkpoint is lost.
    """
    with tempfile.TemporaryDirectory(prefix="sweep-") as home:
        runs_dir, log, sent = Path(home, "runs"), Path(home, "log"), {}

        def changed() -> dict[str, bytes]:
            new = {}
            for file in runs_dir.rglob("*"):
                with contextlib.suppress(FileNotFoundError):  # the run may remove its files
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
    """Write the files that came from a node into runs_dir, each of them atomically.

    They are written in the same order as by a run: event files, summary, checkpoint. If the sweep is killed meanwhile,
    the folder is in the same state as after a killed local run.
    """

    def order(name: str) -> tuple[bool, bool]:
        return name.endswith("checkpoint.pt"), name.endswith("summary.json")

    for name in sorted(files, key=order):
        content, target = files[name], (runs_dir / name).resolve()
        if not target.is_relative_to(runs_dir.resolve()):
            raise OSError(f"a node sent a file with a path outside of the runs folder: {name}")
        if target.suffix == ".json":  # the node has no Git repository; the commit is known here
            content = content.replace(b'"commit": "unknown"', f'"commit": "{commit}"'.encode())
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.tmp")
        temporary.write_bytes(content)
        os.replace(temporary, target)


def shipped(path: str) -> str:
    """The path of a folder on a node.

    It is relative for a folder in the working folder. Any other folder must have the same path on the node.
    """
    folder, working = Path(path).resolve(), Path.cwd()
    return str(folder.relative_to(working)) if folder.is_relative_to(working) else str(folder)


def ray_runner(options, variables: dict[str, str], log_file: Callable, stop: list[int]) -> Callable:
    """Connect to a Ray cluster and return a function run(job, slot, resume, keeper) like that of sweep.local_runner.

    `variables` are the environment variables of a run; log_file(name, runs_dir) is the path of its log.
    """
    missing = "--ray requires a package: pip install -e '.[cluster]'"
    check(importlib.util.find_spec("ray"), missing)
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # suppress a warning
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # send no usage statistics
    import ray

    def gpus_of(device: str) -> float:
        return float(device.startswith("cuda")) if options.num_gpus is None else options.num_gpus

    num_gpus = gpus_of(options.device)
    excludes = [f"/{shipped(str(options.runs_dir))}", ".git", ".venv", "venv", "__pycache__"]
    runtime = {"working_dir": str(Path.cwd()), "excludes": excludes}  # Ray accepts at most 512 MB
    try:
        if ":" in options.ray:  # Ray itself would try to connect for many minutes
            host, port = options.ray.removeprefix("ray://").rsplit(":", 1)
            socket.create_connection((host, int(port)), timeout=10).close()
        quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        ray.init(address=options.ray, runtime_env=runtime, ignore_reinit_error=True, **quiet)
    except Exception as error:
        check(False, f"--ray {options.ray} cannot be used: {one_line(error)}")
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]

    def shortage(gpus: float) -> str:
        """Why no node can execute such a run, or "" if one can."""
        needs = {"CPU": options.num_cpus} | ({"GPU": gpus} if gpus else {})
        fits = (all(node.get(kind, 0) >= count for kind, count in needs.items()) for node in nodes)
        small = f"no node has the resources of a run, {needs}; change --num-cpus and --num-gpus"
        return "" if any(fits) else small

    check(not shortage(num_gpus), f"--ray {options.ray}: {shortage(num_gpus)}")
    # The nodes do not have this file, so its functions are pickled by value.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    own = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]

    def run(job, slot: int, resume: Path | None, keeper) -> int:
        files, job.state, code, cancelled = {}, "waiting", None, False
        # A line of --jobs or a grid may have given this run a --device of its own.
        gpus = gpus_of(job.args.get("device", options.device))
        if shortage(gpus):
            raise OSError(shortage(gpus))
        resources = {"num_cpus": options.num_cpus, "num_gpus": gpus, "max_retries": 0}
        task = ray.remote(run_on_node).options(**resources)
        environment = variables | ({} if gpus else {"CUDA_VISIBLE_DEVICES": ""})
        if resume:
            found = [file for file in resume.rglob("*") if file.is_file()]
            files = {str(file.relative_to(options.runs_dir)): file.read_bytes() for file in found}
        paths = [shipped(str(job.script.parent)), *map(shipped, own)]
        path = {"PYTHONPATH": os.pathsep.join(paths)}
        name = resume.name if resume else ""
        commit = commit_of(job.script)
        stream = task.remote(job.script.name, job.text, job.flags, name, files, environment | path)
        deadline = float("inf")
        try:
            while code is None:
                ends = stop or time.monotonic() > deadline or not keeper.is_alive()
                if ends and not cancelled:
                    cancelled = True
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
                    deadline = time.monotonic() + (options.timeout * 60 or float("inf"))
        except BaseException:  # such as a full disk: end the run on the node as well
            ray.cancel(stream)
            raise
        if cancelled and code and not stop and keeper.is_alive():
            raise TimeoutError(f"{TIMED_OUT} after {options.timeout:g} minutes")
        return code

    return run


TASK = "PLAINRL_SWEEP_TASK"  # set in a task of the array, so that the task does not submit another array


class Share:
    """A task of the array: it repeats the sweep's command. Claims share the runs among the tasks."""

    def __init__(self, line: list[str]):
        self.line = line

    def __call__(self) -> None:
        subprocess.run(self.line, check=True, env=os.environ | {TASK: "1"})

    def checkpoint(self):
        """What submitit puts into the queue again when the task reaches its time limit or is preempted."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def submit(options, lines: str, declare: Callable) -> int:
    """Submit the sweep as a Slurm array job."""
    missing = "--slurm requires a package: pip install -e '.[cluster]'"
    check(importlib.util.find_spec("submitit"), missing)
    no_slurm = "--slurm: sbatch is not available on this machine; submit from a login node"
    check(shutil.which("sbatch"), no_slurm)
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
    print(f"submitted job {number}, {options.slurm} tasks; sweep.py --status shows their progress")
    return 0
