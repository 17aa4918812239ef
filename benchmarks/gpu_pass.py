"""What we want to know from the first GPU that comes along, in one command of at most nine minutes, without network.

    python benchmarks/gpu_pass.py                                              # CUDA; writes gpu_pass/report.md
    python benchmarks/gpu_pass.py --device cpu --steps 5000 --only reinforce   # the same code, small, on a CPU

train      every file of algos/, as a user starts it: it ends, and all that it logs is finite
agree      three updates on the same rows; metrics of the third: the GPU's against the CPU's, compiled against eager
speed      steps/s, shares of the time, peak memory; nothing runs beside it
... peer   stable-baselines3's at the same settings, with its environments in one process and in one each
resume     a run that a signal stopped after a checkpoint goes on to its full number of steps
... ranks  the files for several GPUs: agree with one process through NCCL, train with two
probe      scripts/probe.py --exact, on the CPU: it has no flag for a device

The most valuable comes first. What would not fit into --minutes is skipped by name. The report, Markdown, JSON and its
numbers as CSV, is written anew whenever something ends, so that a pass that is cut off leaves one. Exit status 1:
something failed.
"""

import functools
import itertools
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
import tyro
from plainrl_tools.common import (
    ROOT,
    check,
    check_least,
    commit_of,
    load,
    num_cores,
    one_line,
    read_json,
    writing,
)
from plainrl_tools.results import read_scalars

CORES = num_cores()
# Part: seconds that must be left for one of its cases to begin
PARTS = {"train": 40, "agree": 30, "agree compiled": 60, "resume": 40, "agree ranks": 30}
PARTS |= {"train ranks": 40, "speed": 20, "speed peer": 30, "speed compiled": 50}
PARTS |= {"train compiled": 90, "probe": 60}
SPEED = ("ppo_atari", "ppo_continuous", "dqn_atari", "dqn", "a2c_atari")
PEERS = {"ppo_atari": "PPO", "dqn_atari": "DQN", "a2c_atari": "A2C", "ppo_continuous": "PPO"}
RESUMED = ("ppo_atari", "ppo_continuous", "dqn", "dqn_atari")
PROBED = ("ppo_continuous", "dqn")
SMALL = {"eval_frequency": 0, "eval_episodes": 2, "eval_max_steps": 500, "buffer_size": 20_000}
# Tolerance of a metric. Values off by 1e-6 of themselves stay within it, by 0.01 not (test_gpu_pass.py).
RELATIVE, ABSOLUTE = 1e-3, 1e-5


@dataclass
class Options:
    device: Literal["cuda", "cpu"] = "cuda"
    minutes: float = 9.0  # of the whole pass
    steps: int = 20_000  # of a training run
    only: tuple[str, ...] = ()  # files of algos/, such as ppo_atari; default: all
    parts: tuple[str, ...] = tuple(PARTS)  # such as train, or "train compiled"
    num_envs: tuple[int, ...] = (0,)  # of part speed; 0: the file's own
    window: float = 3.0  # seconds of a measurement of part speed, which has two
    workers: int = max(1, CORES // 2)  # processes side by side
    timeout: float = 150.0  # seconds after which a case has failed
    folder: Path = ROOT / "algos"  # where the files are
    output: Path = Path("gpu_pass")  # folder of report.md, report.json and report.csv


@dataclass
class Case:
    part: str
    name: str
    work: Callable  # the moment by which it must end -> a row of the part's table
    state: Literal["not reached", "passed", "failed", "skipped"] = "not reached"
    words: str = ""  # why it failed or was skipped
    log: str = ""  # the end of what it printed
    seconds: float = 0.0
    row: dict = field(default_factory=dict)


class Failed(Exception):
    def __init__(self, words: str, log: str = "", row: dict | None = None):
        super().__init__(words)
        self.log, self.row = log, row or {}


# ------------------------------------------------------------------------------------------------ processes


def run(command: list, end: float, options: Options, stop_when=lambda: False) -> str:
    """Run a command to its end; the last lines it prints. Once stop_when() holds it gets SIGTERM, and must end as the
    files do then."""
    environment = dict(os.environ)
    if options.workers > 1:
        threads = str(max(1, CORES // options.workers))
        environment |= {"OMP_NUM_THREADS": threads, "TORCHINDUCTOR_COMPILE_THREADS": threads}
    expected = 0
    with tempfile.TemporaryFile("w+") as output:
        streams = {"stdout": output, "stderr": subprocess.STDOUT, "env": environment}
        process = subprocess.Popen([str(word) for word in command], **streams)
        while process.poll() is None and time.monotonic() < end:
            if expected == 0 and stop_when():
                expected = 128 + signal.SIGTERM
                process.terminate()
            time.sleep(0.02)
        late = process.poll() is None
        if late:
            process.terminate()  # torchrun then ends its ranks
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
        status = process.wait()
        output.seek(0)
        log = "\n".join(output.read().splitlines()[-40:])  # torchrun ends with lines of its own
    if late:
        raise TimeoutError(log)
    if status != expected:
        raise Failed(f"exit status {status}, not {expected}", log)
    return log


def python(file: Path, ranks: int = 1) -> list:
    """What starts a file, or a job on it."""
    if not file.stem.endswith("_ddp"):
        return [sys.executable]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
    return [sys.executable, *torchrun]


def has(file: Path, flag: str) -> bool:
    return f"\n    {flag}: " in file.read_text()


def start(file: Path, options: Options, folder: str, ranks: int = 1, **flags) -> list:
    """The command line of a run; flags that the file does not have are left out."""
    small = SMALL | {"total_timesteps": options.steps, "learning_starts": options.steps // 20}
    flags = small | {"device": options.device, "runs_dir": folder} | flags
    command = [*python(file, ranks), file]
    for name, value in flags.items():
        if has(file, name):
            command.append(f"--{name.replace('_', '-')}")
            command += [] if value is True else [value]
    return command


def finished(folder: str, options: Options, steps: int) -> dict:
    """What the one run in the folder has reached: all its steps, and finite numbers."""
    (run_dir,) = Path(folder).iterdir()
    summary = read_json(run_dir / "summary.json")
    if summary.get("global_step", 0) < steps or summary["device"] != options.device:
        raise Failed(f"no summary of {steps} steps on {options.device}", json.dumps(summary))
    scalars = read_scalars(run_dir)
    for tag, points in scalars.items():
        for step, _, value in points:
            if not math.isfinite(value):
                raise Failed(f"{tag} is {value} at step {step}")
    row = {"steps": summary["global_step"], "metrics": len(scalars)}
    return row | {"return": summary["eval_return_mean"]}


def job(kind: str, file: Path, options: Options, end: float, **more) -> dict:
    """The result of gpu_jobs.py."""
    script = Path(__file__).with_name("gpu_jobs.py")
    with tempfile.TemporaryDirectory() as folder:
        more |= {"kind": kind, "file": str(file), "device": options.device, "folder": folder}
        run([*python(file), script, json.dumps(more)], end, options)
        return read_json(Path(folder, "result.json"))


# ------------------------------------------------------------------------------------------------ the parts


def train(file: Path, options: Options, end: float, **flags) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        run(start(file, options, folder, **flags), end, options)
        return finished(folder, options, options.steps)


def resume(file: Path, options: Options, end: float) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        flags = {"total_timesteps": 1000 * options.steps}  # so that the signal comes first
        flags["checkpoint_frequency"] = max(1, options.steps // 4)
        command = start(file, options, folder, **flags)
        run(command, end, options, lambda: any(Path(folder).glob("*/checkpoint.pt")))
        (run_dir,) = Path(folder).iterdir()
        step = torch.load(run_dir / "checkpoint.pt", "cpu", weights_only=True)["global_step"]
        total = step + options.steps
        again = ["--resume", run_dir, "--total-timesteps", total]
        run([*python(file), file, *again], end, options)
        return {"stopped at": step} | finished(folder, options, total)


def probe(file: Path, options: Options, end: float) -> dict:
    run([sys.executable, ROOT / "scripts" / "probe.py", file, "--exact"], end, options)
    return {"device": "cpu"}


def speed(file: Path, options: Options, end: float, **flags) -> dict:
    alone = replace(options, workers=1)
    return job("speed", file, alone, end, window=options.window, flags=flags)


def peer(file: Path, options: Options, end: float, processes: bool, **flags) -> dict:
    """Stable-baselines3's class at the file's settings, as speed.py measures it."""
    from plainrl_tools.peers import LATE, identical_case

    args, algo = load(file).Args(**flags), PEERS[file.stem]
    settings = identical_case(args.env_id, algo, vars(args) | (LATE if algo == "DQN" else {}))
    this = {"side": "sb3", "algo": algo, "settings": settings, "env_id": args.env_id, "seed": 1}
    this |= {"threads": 0, "seconds": options.window, "device": options.device}
    this |= {"processes": processes}
    command = [sys.executable, Path(__file__).with_name("speed.py"), "--measure", json.dumps(this)]
    log = run(command, end, replace(options, workers=1))
    measured = json.loads(log.splitlines()[-1])
    return {"steps/s": measured["sps"]}


def agree(file: Path, options: Options, end: float, this: str, that: str) -> dict:
    metrics = job("agree", file, options, end, variants=[that, this])
    tag, apart = furthest(metrics[this], metrics[that])
    row = {"this": this, "that": that, "furthest apart": tag, "this has": metrics[this][tag]}
    row |= {"that has": metrics[that][tag], "tolerances": apart}
    if apart > 1:
        raise Failed(f"{this} and {that} are {apart:.3g} tolerances apart in {tag}", row=row)
    return row


def furthest(this: dict, that: dict) -> tuple[str, float]:
    """The metric that is furthest from the other's, and by how many tolerances; up to 1 they agree."""
    if this.keys() != that.keys() or not this:
        raise Failed(f"they log {', '.join(this)} and {', '.join(that)}")
    apart = {}
    for tag, value in this.items():
        distance = abs(value - that[tag]) / (ABSOLUTE + RELATIVE * abs(that[tag]))
        apart[tag] = distance if math.isfinite(distance) else math.inf
    tag = max(apart, key=apart.get)
    return tag, apart[tag]


def plan(options: Options) -> list[Case]:
    """All cases, the most valuable first; those that a file or the machine rules out are skipped by name."""
    files = {file.stem: file for file in sorted(options.folder.resolve().glob("*.py"))}
    for flag, names, known in (("only", options.only, files), ("parts", options.parts, PARTS)):
        unknown = ", ".join(name for name in names if name not in known)
        check(not unknown, f"--{flag}: {unknown} is none of {', '.join(known)}")
    ranked = [name for name in files if name.endswith("_ddp")]
    speeds = [{"num_envs": number} if number else {} for number in options.num_envs]
    ways = [{"processes": False}, {"processes": True}]
    work = {
        "train": (files, train, [{}]),
        "agree": (files, agree, [{"this": "eager", "that": "cpu"}]),
        "speed": (SPEED, speed, speeds),
        "agree compiled": (files, agree, [{"this": "compiled", "that": "eager"}]),
        "train compiled": (files, train, [{"compile": True}]),
        "resume": (RESUMED, resume, [{}]),
        "agree ranks": (ranked, agree, [{"this": "ranks", "that": "eager"}]),
        "train ranks": (ranked, train, [{"ranks": 2}]),
        "probe": (PROBED, probe, [{}]),
        "speed compiled": (SPEED, speed, [flags | {"compile": True} for flags in speeds]),
        "speed peer": (PEERS, peer, [flags | way for flags in speeds for way in ways]),
    }
    cases = []
    for part in [part for part in PARTS if part in options.parts]:
        names, function, variants = work[part]
        for name, flags in itertools.product(names, variants):
            if name not in files or name not in (options.only or files):
                continue
            case = Case(part, name, functools.partial(function, files[name], options, **flags))
            if "num_envs" in flags:
                case.name += f", {flags['num_envs']} environments"
            if "processes" in flags:
                case.name += ", a process each" if flags["processes"] else ", one process"
            if part.endswith("compiled") and not has(files[name], "compile"):
                case.state, case.words = "skipped", "the file has no --compile"
            if "ranks" in flags and options.device == "cuda" and torch.cuda.device_count() < 2:
                case.state, case.words = "skipped", "two ranks need two GPUs"
            cases.append(case)
    return cases


def carry_out(case: Case, end: float, options: Options) -> None:
    """Do what fits before the moment end; whatever goes wrong is kept in the case."""
    began = time.monotonic()
    left = end - began
    if left < PARTS[case.part]:
        case.state = "skipped"
        case.words = f"it takes about {PARTS[case.part]} s, {max(left, 0):.0f} s were left"
        return
    try:
        case.row = case.work(end=began + min(left, options.timeout))
        case.state = "passed"
    except TimeoutError as error:
        case.state, case.words = "failed", f"no end within {options.timeout:.0f} s"
        if left < options.timeout:
            case.state, case.words = "skipped", f"cut off by --minutes after {left:.0f} s"
        case.log = str(error)
    except Failed as error:
        case.state, case.words, case.log, case.row = "failed", str(error), error.log, error.row
    except Exception as error:  # the other cases go on
        case.state, case.words = "failed", one_line(error)
    case.seconds = time.monotonic() - began


# ------------------------------------------------------------------------------------------------ the report


def machine(options: Options) -> dict:
    cuda = options.device == "cuda"
    name = torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine()
    facts = {"device": name, "cores": CORES, "python": platform.python_version()}
    facts |= {"torch": str(torch.__version__), "commit": commit_of(Path(__file__))}
    return facts | {"begun": time.strftime("%Y-%m-%d %H:%M"), "steps": options.steps}


def numbers(cases: list[Case], facts: dict, device: str) -> str:
    """The cases that ended, in long format: a row per number, or one without a number where there is none."""
    lines = ["part,name,device,cores,commit,state,metric,value"]
    for case in [case for case in cases if case.state in ("passed", "failed")]:
        found = [pair for pair in case.row.items() if isinstance(pair[1], (int, float))]
        for metric, value in found or [("", "")]:
            where = f'{case.part},"{case.name}",{device},{facts["cores"]},{facts["commit"]}'
            value = f"{value:.6g}" if isinstance(value, float) else value
            lines.append(f"{where},{case.state},{metric},{value}")
    return "\n".join(lines) + "\n"


def cell(value) -> str:
    if isinstance(value, (int, float)):
        return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.4g}"
    return "" if value is None else str(value)


def markdown(cases: list[Case], facts: dict, seconds: float) -> str:
    count = Counter(case.state for case in cases)
    states = ("failed", "skipped", "not reached")
    verdict = ", ".join(f"{count[state]} {state}" for state in ("passed", *states))
    lines = ["# GPU pass", "", f"**{verdict}** after {seconds:.0f} s.", ""]
    lines.append(", ".join(f"{key} {value}" for key, value in facts.items()))
    for state in [state for state in states if count[state]]:
        lines += ["", f"## {state.capitalize()}", ""]
        for case in [case for case in cases if case.state == state]:
            lines.append(f"- {case.part}: {case.name}: {case.words}".removesuffix(": "))
            if case.log:
                lines += ["", "```", case.log, "```", ""]
    for part in dict.fromkeys(case.part for case in cases if case.row):
        shown = [case for case in cases if case.part == part and case.row]
        columns = ["file", *shown[0].row]
        lines += ["", f"## {part.capitalize()}", "", f"| {' | '.join(columns)} |"]
        lines.append("|---" * len(columns) + "|")
        for case in shown:
            lines.append(f"| {' | '.join([case.name, *map(cell, case.row.values())])} |")
    return "\n".join(lines) + "\n"


def main(options: Options) -> int:
    began = time.monotonic()
    there = options.device == "cpu" or torch.cuda.is_available()
    check(there, "--device cuda is not there; --device cpu tries the same code")
    check(options.folder.is_dir(), f"--folder {options.folder} is no folder")
    check_least(1, options, "workers", "steps")
    cases, facts, lock = plan(options), machine(options), threading.Lock()
    with writing(f"--output {options.output}"):
        options.output.mkdir(parents=True, exist_ok=True)

    def report() -> None:
        seconds = time.monotonic() - began
        kept = [
            {key: value for key, value in vars(case).items() if key != "work"} for case in cases
        ]
        content = {"machine": facts, "options": vars(options), "seconds": seconds, "cases": kept}
        as_json = json.dumps(content, indent=2, default=str) + "\n"
        texts = {"json": as_json, "md": markdown(cases, facts, seconds)}
        for name, text in (texts | {"csv": numbers(cases, facts, options.device)}).items():
            aside = options.output / "report.tmp"  # then moved: a reader never finds half a report
            aside.write_text(text)
            os.replace(aside, options.output / f"report.{name}")

    def do(case: Case) -> None:
        if case.state == "not reached":
            carry_out(case, began + 60 * options.minutes, options)
        with lock:
            print(f"{case.state}: {case.part}: {case.name}: {case.words}", flush=True)
            report()

    report()
    for alone, group in itertools.groupby(cases, lambda case: case.part.startswith("speed")):
        with ThreadPoolExecutor(1 if alone else options.workers) as pool:
            list(pool.map(do, group))
    print(options.output / "report.md")
    return int(any(case.state == "failed" for case in cases))


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
