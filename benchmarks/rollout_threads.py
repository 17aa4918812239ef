"""What two settings of the operating system do for a2c_atari.py on a CPU.

    python benchmarks/rollout_threads.py

Emulators run in threads of their own, and so does PyTorch. As a program, the file asks for two things: PyTorch's idle
threads soon stop looping for work (GOMP_SPINCOUNT, of GCC's OpenMP), and an emulator that wakes does not interrupt the
thread that wakes the others (SCHED_BATCH, of Linux). A way is the unmodified file with both, one or neither. Where
GOMP_SPINCOUNT is set the file asks for nothing: so for the other ways it holds 10000 or the library's own number, and
the class is set before. Rounds and ratios are as in speed.py. Prints a Markdown table, and writes every figure to
--output.
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
from plainrl_tools.common import ROOT, check, writing
from speed import machine, run, words_of

THREADS = {"A2C": 0, "A2C, 1 thread": 1}  # of PyTorch; 0 is its own choice
OWN_SPINS = "300000"  # libgomp's number, without OMP_WAIT_POLICY and with a core for each thread
WAYS = {  # short spins, batch
    "neither": (False, False),
    "GOMP_SPINCOUNT": (True, False),
    "SCHED_BATCH": (False, True),
    "both": (True, True),
}


@dataclass
class Args:
    repeats: int = 3  # rounds; round r runs every way once, with seed r
    steps: int = 20_000  # of a run: 11 to 15 seconds on two cores
    output: Path = ROOT / "benchmarks/results/rollout_threads.csv"


def measure(case: str, way: str, seed: int, steps: int) -> dict:
    """summary.json of a fresh process."""
    short, batch = WAYS[way]
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS"):
        os.environ.pop(name, None)
    if way != "both":
        os.environ["GOMP_SPINCOUNT"] = "10000" if short else OWN_SPINS
    lines = ["import os, runpy, sys"]
    if way == "SCHED_BATCH":
        lines.append("os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))")
    lines += ["sys.argv = sys.argv[1:]", "runpy.run_path(sys.argv[0], run_name='__main__')"]
    lines.append("if 'libgomp' not in open('/proc/self/maps').read():")
    lines.append("    sys.exit('PyTorch does not use GCC\\'s OpenMP here')")
    lines.append(f"if (os.sched_getscheduler(0) != os.SCHED_OTHER) != {batch}:")
    lines.append("    sys.exit('the system refuses SCHED_BATCH')")
    with tempfile.TemporaryDirectory() as folder:
        flags = {"runs_dir": folder, "seed": seed, "total_timesteps": steps, "device": "cpu"}
        flags |= {"torch_threads": THREADS[case], "eval_episodes": 1, "eval_max_steps": 10}
        program = [sys.executable, "-c", "\n".join(lines), ROOT / "algos/a2c_atari.py"]
        run([*program, *words_of(flags)])
        (summary,) = Path(folder).glob("*/summary.json")
        return json.loads(summary.read_text())


def table(rows: list[dict]) -> list[str]:
    """Medians over the rounds of each way, and of the ratio of both to neither (least-greatest)."""
    names = [way if way.islower() else f"`{way}`" for way in WAYS]
    lines = ["| Breakout, steps/s | " + " | ".join(names) + " | both / neither |"]
    lines.append("|---" + "|--:" * (len(WAYS) + 1) + "|")
    for case in dict.fromkeys(row["case"] for row in rows):
        values = {way: [] for way in WAYS}
        for row in rows:
            if row["case"] == case:
                values[row["way"]].append(row["sps"])
        ratios = [both / neither for both, neither in zip(values["both"], values["neither"])]
        cells = [f"{median(values[way]):,.0f}" for way in WAYS]
        cells.append(f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return lines


def main(args: Args) -> None:
    check(hasattr(os, "SCHED_BATCH"), "there is nothing to compare: only Linux has SCHED_BATCH")
    positive = args.repeats >= 1 and args.steps >= 2000
    check(positive, "--repeats must be positive, --steps 2,000 or more")
    ordinary = os.sched_getscheduler(0) == os.SCHED_OTHER
    check(ordinary, "start it in the ordinary scheduling class: chrt --other 0 python ...")
    conditions = machine()
    if os.getloadavg()[0] > 0.5:
        print("other programs are running here; the figures will suffer", file=sys.stderr)
    rows, ways = [], list(WAYS)
    with writing():
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.open("a").close()
    for case in THREADS:
        for seed in range(1, args.repeats + 1):
            for way in ways[seed % 4 :] + ways[: seed % 4]:  # drift meets another way each time
                summary = measure(case, way, seed, args.steps)
                row = {"case": case, "seed": seed, "way": way, "sps": summary["sps"]}
                rows.append(row | {"commit": summary["commit"]})
                print(f"{case}, seed {seed}, {way}: {row['sps']:,.0f}", file=sys.stderr)
    print("\n".join([*table(rows), "", conditions]))
    with writing(), args.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"sps": round(row["sps"], 1)} for row in rows)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
