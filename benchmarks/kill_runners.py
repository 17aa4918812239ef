"""Does killing Ray's runners cost return? ppo_continuous_ray.py with kill -9 on one every few seconds, and without.

    python benchmarks/kill_runners.py -- --env-id Pendulum-v1 --num-runners 2 --total-timesteps 400000
    python scripts/plot.py runs --export benchmarks/results/kill_runners.csv

Of each seed one run is let alone (exp_name ppo_continuous_ray-whole) and one loses a runner, the one that has lived
longest, every --every seconds (ppo_continuous_ray-killed). Prints for each run how many were killed, how many of them
the log tells of, and the evaluation. Linux: it reads /proc.
"""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tyro
from plainrl_tools.common import ROOT, writing

DEATH = re.compile(r"step \d+: a runner died")


@dataclass
class Options:
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    every: float = 5.0  # seconds between two kills
    runs_dir: Path = Path("runs")


def runners_of(group: int) -> list[int]:
    """The processes of a run that are runners, oldest first; Ray writes the actor's class into their titles."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes()
            words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        session, started = int(words[3]), int(words[19])  # man 5 proc
        if title.startswith(b"ray::Runner") and session == group:
            found.append((started, int(folder.name)))
    return [process for _, process in sorted(found)]


def run(options: Options, flags: list[str], seed: int, kill: bool) -> tuple[int, int, str]:
    """Killed, told of, and the line of the evaluation."""
    name = "ppo_continuous_ray-killed" if kill else "ppo_continuous_ray-whole"
    line = [sys.executable, ROOT / "algos/ppo_continuous_ray.py", "--seed", seed]
    line += ["--exp-name", name, "--runs-dir", options.runs_dir, *flags]
    with writing(f"--runs-dir {options.runs_dir}"):
        options.runs_dir.mkdir(parents=True, exist_ok=True)
    log = options.runs_dir / f"{name}-{seed}.log"
    with log.open("w") as output:
        streams = {"stdout": output, "stderr": subprocess.STDOUT, "start_new_session": True}
        process = subprocess.Popen([str(word) for word in line], **streams)
        killed, last = 0, time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            if kill and time.monotonic() - last > options.every:
                for runner in runners_of(process.pid)[:1]:
                    os.kill(runner, signal.SIGKILL)
                    killed, last = killed + 1, time.monotonic()
    text = log.read_text()
    if process.returncode:
        sys.exit(f"{log}: exit status {process.returncode}\n{text[-2000:]}")
    (result,) = (line for line in text.splitlines() if ": evaluation " in line)
    return killed, len(DEATH.findall(text)), result


def main() -> None:
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = tyro.cli(Options, description=__doc__, args=sys.argv[1:cut])
    for seed in options.seeds:
        for kill in (False, True):
            killed, told, result = run(options, sys.argv[cut + 1 :], seed, kill)
            print(f"seed {seed}: {killed} killed, {told} told of, {result}", flush=True)


if __name__ == "__main__":
    main()
