"""Steps per second of two processes, each with one seed or with several at once.

    python benchmarks/seeds.py --output benchmarks/results/seeds.csv

A round trains, for each task, two processes of ppo_continuous.py at a time, and then two of
ppo_continuous_seeds.py with --num-seeds 5. Its figure is the sum over all runs of their `sps`: steps of the run over
the seconds of its process, the first iteration and the evaluation excluded. The output has a row for each; the round
stands in the column `seed`.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro
from plainrl_tools.common import ROOT, check, check_output, commit_of, writing
from plainrl_tools.results import write_csv

COLUMNS = ["exp_name", "env_id", "seed", "step", "metric", "value", "commit"]


@dataclass
class Args:
    env_ids: tuple[str, ...] = ("HalfCheetah-v5", "BipedalWalker-v3", "Pendulum-v1")
    seeds_per_process: tuple[int, ...] = (5,)  # each beside processes of one seed
    processes: int = 2  # at a time
    rounds: int = 3
    steps: int = 60_000  # of each seed
    output: Path | None = None  # a CSV of every round


def steps_per_second(args: Args, env_id: str, num_seeds: int) -> float:
    """Sum over all runs of as many processes as there are at a time."""
    script = ROOT / "algos" / ("ppo_continuous_seeds.py" if num_seeds > 1 else "ppo_continuous.py")
    command = [sys.executable, script, "--env-id", env_id, "--total-timesteps", args.steps]
    command += ["--eval-episodes", 1]
    if num_seeds > 1:
        command += ["--num-seeds", num_seeds]
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for index in range(args.processes):
            flags = ["--seed", 1 + index * num_seeds, "--runs-dir", folder]
            words = [str(word) for word in command + flags]
            running.append(subprocess.Popen(words, stdout=subprocess.DEVNULL))
        statuses = [process.wait() for process in running]
        check(not any(statuses), f"{script.name} on {env_id} ended with status {statuses}", 1)
        summaries = [json.loads(path.read_text()) for path in Path(folder).glob("*/summary.json")]
    check(len(summaries) == args.processes * num_seeds, f"{len(summaries)} runs have finished", 1)
    return sum(summary["sps"] for summary in summaries)


def main(args: Args) -> None:
    check_output("--output", args.output)
    rows = []
    for number in range(1, args.rounds + 1):
        for env_id in args.env_ids:
            for num_seeds in (1, *args.seeds_per_process):
                value = steps_per_second(args, env_id, num_seeds)
                name = "ppo_continuous" if num_seeds == 1 else f"ppo_continuous_seeds-{num_seeds}"
                print(f"round {number}, {env_id}, {name}: {value:,.0f} steps/s", flush=True)
                commit = commit_of(Path(__file__))
                rows.append([name, env_id, number, args.steps, "sps", round(value, 1), commit])
        if args.output:  # after each round, so that a later stop loses nothing
            with writing(f"--output {args.output}"):
                write_csv(args.output, COLUMNS, rows)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
