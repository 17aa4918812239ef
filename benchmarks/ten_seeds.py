"""Minutes from the start of a sweep to the figure of ten seeds: one seed in a process, and five in a process.

    python benchmarks/ten_seeds.py --output benchmarks/results/ten_seeds.csv

For each task, scripts/sweep.py trains the seeds 1 to 10 of ppo_continuous.py with two workers, and the same seeds of
ppo_continuous_seeds.py, and scripts/plot.py draws each. The file that goes first changes from task to task. The runs
are exported into --output; the seconds of each sweep and its figure go into the file beside it that ends in
_seconds.csv. The same command continues a benchmark that was stopped: it does not repeat a sweep
with the same seeds and steps whose folder in --runs-dir has its figure.
"""

import csv
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tyro
from plainrl_tools.common import ROOT, check, check_output, commit_of
from plainrl_tools.results import write_csv

COLUMNS = ["exp_name", "env_id", "seeds", "steps", "seconds", "commit"]


@dataclass
class Args:
    output: Path
    env_ids: tuple[str, ...] = ("HalfCheetah-v5", "BipedalWalker-v3", "Pendulum-v1")
    seeds: str = "1-10"
    workers: int = 2
    steps: int = 1_000_000  # of each seed
    runs_dir: Path = Path("runs_ten_seeds")


def run(*command) -> None:
    words = [sys.executable, *map(str, command)]
    status = subprocess.run(words, stdout=subprocess.DEVNULL, cwd=ROOT).returncode
    check(status == 0, f"{' '.join(words)} ended with status {status}", 1)


def main(args: Args) -> None:
    check_output("--output", args.output)
    output, runs_dir = args.output.resolve(), args.runs_dir.resolve()
    seconds_file = output.with_name(f"{output.stem}_seconds.csv")
    rows = []
    if seconds_file.exists():
        with seconds_file.open(newline="") as file:
            rows = list(csv.reader(file))[1:]
    names = ["ppo_continuous", "ppo_continuous_seeds"]
    for env_id in args.env_ids:
        for name in names:
            folder = runs_dir / f"{env_id}__{name}"
            settings = [name, env_id, args.seeds, str(args.steps)]
            if any(row[:4] == settings for row in rows) and (folder / "curves.png").exists():
                continue
            rows = [row for row in rows if row[:2] != settings[:2]]
            shutil.rmtree(folder, ignore_errors=True)
            start = time.perf_counter()
            sweep = [
                ROOT / "scripts" / "sweep.py",
                "--scripts",
                ROOT / "algos" / f"{name}.py",
                "--env-ids",
                env_id,
            ]
            sweep += ["--seeds", args.seeds, "--workers", args.workers, "--runs-dir", folder]
            run(*sweep, "--", "--total-timesteps", args.steps)
            run(ROOT / "scripts" / "plot.py", folder, "--figure", folder / "curves.png")
            seconds = time.perf_counter() - start
            print(f"{env_id}, {name}: {seconds / 60:.1f} minutes", flush=True)
            rows.append([*settings, round(seconds, 1), commit_of(Path(__file__))])
            write_csv(seconds_file, COLUMNS, rows)
        names.reverse()
    folders = [runs_dir / f"{env_id}__{name}" for env_id in args.env_ids for name in names]
    run(ROOT / "scripts" / "plot.py", *folders, "--export", output)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
