"""What two settings of the operating system do for our Atari files: python benchmarks/rollout_threads.py

Emulators run in threads of their own, and so does PyTorch. On Linux our files ask for two things: PyTorch's threads
soon stop looping for work (GOMP_SPINCOUNT), and an emulator that wakes does not interrupt the thread that wakes the
others (SCHED_BATCH). A way is the unmodified file with both, one or neither: the first is undone as a user would, the
second as on a system that lacks it. Rounds, ratios and load are as in speed.py. Prints a Markdown table, and writes
every figure to --output.
"""

import csv
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import tyro

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
from common import ROOT, check  # noqa: E402
from speed import CASES, machine, run, words_of  # noqa: E402

# steps of a run: eight to fourteen seconds on two cores
STEPS = {"PPO": 10_240, "PPO fast": 16_384, "A2C": 20_000}
DEFAULT_SPINS = "300000"  # libgomp's own, where there are no more threads than cores
WAYS = {"neither": (True, False), "spins": (False, False), "batch": (True, True)}
WAYS["both"] = (False, True)  # (PyTorch's threads spin as they would, SCHED_BATCH is there)


@dataclass
class Args:
    repeats: int = 3  # rounds; round r runs every way once, with seed r
    cases: tuple[str, ...] = tuple(STEPS)  # of STEPS
    output: Path = ROOT / "benchmarks/rollout_threads.csv"


def sps(case: str, way: str, seed: int) -> float:
    """Steps per second of a fresh process."""
    script, _, flags = CASES["atari"][case]
    spins, batch = WAYS[way]
    os.environ.pop("GOMP_SPINCOUNT", None)
    if spins:
        os.environ["GOMP_SPINCOUNT"] = DEFAULT_SPINS
    lines = ["import os, runpy, sys", "" if batch else "del os.SCHED_BATCH"]
    lines += ["sys.argv = sys.argv[1:]", "runpy.run_path(sys.argv[0], run_name='__main__')"]
    with tempfile.TemporaryDirectory() as folder:
        flags = flags | {"runs_dir": folder, "seed": seed, "total_timesteps": STEPS[case]}
        flags |= {"device": "cpu", "eval_episodes": 1, "eval_max_steps": 10}
        program = [sys.executable, "-c", "\n".join(lines), ROOT / "algos" / script]
        run([*program, *words_of(flags)])
        (summary,) = Path(folder).glob("*/summary.json")
        return json.loads(summary.read_text())["sps"]


def table(rows: list[dict]) -> list[str]:
    """Median over the rounds of each way, and of the ratio of both to neither (least-greatest)."""
    lines = ["| | " + " | ".join(WAYS) + " | both / neither |", "|---" + "|--:" * 5 + "|"]
    for case in dict.fromkeys(row["case"] for row in rows):
        values = {
            way: [r["sps"] for r in rows if (r["case"], r["way"]) == (case, way)] for way in WAYS
        }
        ratios = [both / neither for both, neither in zip(values["both"], values["neither"])]
        cells = [f"{median(values[way]):,.0f}" for way in WAYS]
        cells.append(f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return lines


def main(args: Args) -> None:
    check(hasattr(os, "SCHED_BATCH"), "there is nothing to compare: only Linux has SCHED_BATCH")
    check(set(args.cases) <= set(STEPS), f"--cases are of {', '.join(STEPS)}")
    conditions = machine()
    rows = []
    for case in args.cases:
        for seed in range(1, args.repeats + 1):
            for way in WAYS:
                rows.append({"case": case, "seed": seed, "way": way, "sps": sps(case, way, seed)})
                print(rows[-1], file=sys.stderr)
    with args.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"sps": round(row["sps"], 1)} for row in rows)
    print("\n".join([*table(rows), "", conditions]))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
