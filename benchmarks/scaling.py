"""Steps per second over Ray's runners and over ranks, on environments that wait, and a model of the runners.

    PYTHONPATH=benchmarks python benchmarks/scaling.py   # --iterations 3: 19 minutes; needs requirements-dev.txt
    python benchmarks/scaling.py --table benchmarks/results/scaling.csv         # tables, model and figure from the file

A step of a waiting environment takes its milliseconds and no processor, so that two cores can hold sixteen runners. Of
each iteration of ppo_continuous_ray.py but the first two: seconds in all, seconds in which the learner waits for
rollouts, of these the seconds in which the slowest runner collects, bytes that come back and that go out. The median
over iterations. Of ppo_continuous_ddp.py the run's own steps per second.

The model of an iteration of S steps in E environments, R runners and C cores, w seconds a step of one environment:
    collect = S (w E / R + (f0 + f1 E) max(1, R / C)),   transfer = a + b R,   learner = u0 + u1 S E
Each runner passes all E rows through the policy (f1 E): the price of a run that is bit for bit that of one process. The
coefficients are fitted to the waits and environments of FITTED, and the model is checked on the others.
"""

import contextlib
import csv
import functools
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import gymnasium as gym
import numpy as np
import tyro
from plainrl_tools.common import check, check_least, check_output, load, read_json, writing

ROOT = Path(__file__).resolve().parents[1]
STEPS = 32  # of each environment in a rollout
EPISODE = 50  # steps
CORES = 2  # of the machine that was measured
RUNNERS = (1, 2, 4, 8, 16)
# (milliseconds, environments): runners, or ranks
CONFIGURATIONS = {(ms, 16): RUNNERS for ms in (0, 5, 20, 50)} | {(0, 128): (1, 4), (5, 64): (2, 8)}
RANKS = {(ms, 16): (1, 2, 4) for ms in (0, 5, 20)}
FITTED = {(0, 16), (20, 16), (0, 128)}
NAMES = ("wait_ms", "environments", "runners", "ranks", "bytes_in", "bytes_out")  # whole numbers
SECONDS = ("seconds", "waiting", "collect")


class Waiting(gym.Env):
    """Eight numbers between -1 and 1 to see, two to act on, a wait to bear."""

    observation_space = gym.spaces.Box(-1, 1, (8,))
    action_space = gym.spaces.Box(-1, 1, (2,))

    def __init__(self, wait_ms: int = 0):
        self.wait = wait_ms / 1000

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 8).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.wait:
            time.sleep(self.wait)
        obs = self.np_random.uniform(-1, 1, 8).astype(np.float32)
        return obs, float(-abs(action).sum()), False, self.steps == EPISODE, {}


# as a script it leaves this to "scaling:Waiting20-v0", which imports it again
for wait in {ms for ms, _ in CONFIGURATIONS} if __name__ != "__main__" else ():
    gym.register(f"Waiting{wait}-v0", functools.partial(Waiting, wait))


@dataclass
class Options:
    output: Path = Path("benchmarks/results/scaling.csv")  # a line each configuration
    figure: Path = Path("docs/scaling.png")
    table: Path | None = None  # read these lines in place of measuring
    iterations: int = 5  # of each configuration that count


class Columns(list):
    """What a runner gives back, with the seconds that it took to collect it."""

    seconds = 0.0


def timed(module):
    """The file's runner with a clock."""

    class Timed(module.Runner):
        def collect(self, *job):
            start = time.perf_counter()
            columns, *rest = super().collect(*job)
            columns = Columns(columns)
            columns.seconds = time.perf_counter() - start
            return columns, *rest

    return Timed


def measure(wait_ms: int, environments: int, runners: int, iterations: int) -> dict:
    """Medians over the iterations of one run of ppo_continuous_ray.py, in this process."""
    import ray

    module = load(ROOT / "algos" / "ppo_continuous_ray.py", "scaled")
    ray.cloudpickle.register_pickle_by_value(module)
    module.Runner = timed(module)
    gets, puts = [], []
    plain_get, plain_put = ray.get, ray.put

    def get(jobs):
        start = time.perf_counter()
        answers = plain_get(jobs)
        end = time.perf_counter()
        bytes_in = sum(column.nbytes for answer in answers for column in answer[0])
        gets.append((start, end - start, max(answer[0].seconds for answer in answers), bytes_in))
        return answers

    def put(weights):
        puts.append(sum(value.nbytes for value in weights.values()) * runners)
        return plain_put(weights)

    rows = STEPS * environments
    with tempfile.TemporaryDirectory() as folder:
        args = module.Args(
            env_id=f"scaling:Waiting{wait_ms}-v0",
            env_backend="gymnasium",
            num_envs=environments,
            num_steps=STEPS,
            num_minibatches=max(rows // 64, 1),
            num_runners=runners,
            total_timesteps=rows * (iterations + 3),
            eval_episodes=1,
            device="cpu",
            runs_dir=folder,
        )
        ray.get, ray.put = get, put
        try:
            with contextlib.redirect_stdout(sys.stderr):
                module.train(args)
        finally:
            ray.get, ray.put = plain_get, plain_put
            ray.shutdown()
    seconds = np.diff([start for start, *_ in gets])[2:]  # the first two warm up
    _, waiting, collect, size = zip(*gets[2:-1])
    return {
        "wait_ms": wait_ms,
        "environments": environments,
        "runners": runners,
        "ranks": 0,
        "bytes_in": size[0],
        "bytes_out": puts[0],
        "seconds": float(median(seconds)),
        "waiting": median(waiting),
        "collect": median(collect),
    }


def measure_ranks(wait_ms: int, environments: int, ranks: int, iterations: int) -> dict:
    """The same of one run of ppo_continuous_ddp.py, as torchrun starts it; it tells its speed alone."""
    rows = STEPS * environments
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        line += ["--nproc-per-node", ranks, ROOT / "algos" / "ppo_continuous_ddp.py"]
        line += ["--env-id", f"scaling:Waiting{wait_ms}-v0", "--env-backend", "gymnasium"]
        line += ["--num-envs", environments // ranks, "--num-steps", STEPS]
        line += ["--num-minibatches", max(rows // 64, 1)]
        line += ["--total-timesteps", rows * (iterations + 3), "--eval-episodes", 1]
        line += ["--device", "cpu", "--runs-dir", folder]
        variables = os.environ | {"PYTHONPATH": str(ROOT / "benchmarks")}
        process = subprocess.run([*map(str, line)], env=variables, capture_output=True, text=True)
        check(process.returncode == 0, process.stderr[-2000:])
        (summary,) = Path(folder).glob("*/summary.json")
        seconds = rows / read_json(summary)["sps"]
    row = dict.fromkeys(NAMES, 0) | dict.fromkeys(SECONDS, 0.0)
    row |= {"wait_ms": wait_ms, "environments": environments, "ranks": ranks}
    return row | {"seconds": seconds}


def parts_of(row: dict, cores: int = CORES) -> tuple[tuple[list[float], ...], float]:
    """What the coefficients of collect, transfer and learner are multiplied by, and the seconds of pure waiting."""
    crowd = max(1.0, row["runners"] / cores)
    largest_share = -(-row["environments"] // row["runners"])
    collect = [STEPS * crowd, STEPS * row["environments"] * crowd]
    learner = [1.0, STEPS * row["environments"]]
    return (collect, [1.0, row["runners"]], learner), STEPS * largest_share * row["wait_ms"] / 1000


def fit(rows: list[dict]) -> list[np.ndarray]:
    """(f0, f1), (a, b), (u0, u1): least squares of each part by itself, relative to the iteration's seconds."""
    coefficients = []
    for part in range(3):
        x, y = [], []
        for row in rows:
            inputs, wait = parts_of(row)
            collect, waiting, seconds = row["collect"], row["waiting"], row["seconds"]
            measured = (collect - wait, waiting - collect, seconds - waiting)
            x.append(np.array(inputs[part]) / seconds)
            y.append(measured[part] / seconds)
        coefficients.append(np.linalg.lstsq(np.array(x), np.array(y), rcond=None)[0])
    return coefficients


def predict(row: dict, coefficients: list[np.ndarray], cores: int = CORES) -> float:
    """Seconds of an iteration."""
    inputs, wait = parts_of(row, cores)
    return wait + sum(float(np.dot(part, c)) for part, c in zip(inputs, coefficients))


def outlook(coefficients: list[np.ndarray]) -> str:
    """What the model says of machines that nobody measured: a runner a core, four environments each."""
    head = (
        "wait, ms",
        "cores",
        "steps/s",
        "of linear",
        "environments",
        "policy",
        "transfer",
        "learner",
    )
    lines = []
    for wait_ms in (5, 20):
        for cores in (16, 256, 4096):
            row = {"wait_ms": wait_ms, "runners": cores, "environments": 4 * cores}
            inputs, wait = parts_of(row, cores)
            seconds = predict(row, coefficients, cores)
            parts = [wait, *(float(np.dot(part, c)) for part, c in zip(inputs, coefficients))]
            speed = STEPS * row["environments"] / seconds
            ideal = 1000 / wait_ms * cores  # all cores do nothing but step
            cells = (wait_ms, cores, f"{speed:.0f}", f"{speed / ideal:.2f}")
            lines.append((*cells, *(f"{part / seconds:.0%}" for part in parts)))
    return table(head, lines)


def table(head: tuple, lines: list[tuple]) -> str:
    rows = [head, ["--:"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def linear(row: dict, rows: list[dict], count: str) -> float:
    """Steps per second as a share of those of one, times their number."""
    same = [r for r in rows if all(r[key] == row[key] for key in ("wait_ms", "environments"))]
    one = min(same, key=lambda r: r[count])
    return one["seconds"] * one[count] / (row["seconds"] * row[count])


def report(rows: list[dict], figure: Path) -> None:
    """Both tables, the errors of the model where it was not fitted, and the figure."""
    ranks = [row for row in rows if row["ranks"]]
    rows = [row for row in rows if not row["ranks"]]
    fitted = [row for row in rows if (row["wait_ms"], row["environments"]) in FITTED]
    coefficients = fit(fitted)
    values = np.concatenate(coefficients)
    names = ("f0", "f1", "a", "b", "u0", "u1")
    print(", ".join(f"{name} {value:.3g} s" for name, value in zip(names, values)), "\n")
    head = ("wait, ms", "environments", "runners", "steps/s", "of linear")
    lines, errors = [], []
    for row in rows:
        seconds, ratio = row["seconds"], predict(row, coefficients) / row["seconds"]
        held_out = row not in fitted
        errors += [abs(ratio - 1)] * held_out
        cells = (row["wait_ms"], row["environments"], row["runners"])
        cells += (
            f"{STEPS * row['environments'] / seconds:.0f}",
            f"{linear(row, rows, 'runners'):.2f}",
        )
        cells += (
            f"{1 - row['waiting'] / seconds:.0%}, {(row['waiting'] - row['collect']) / seconds:.0%}",
        )
        lines.append((*cells, f"{ratio:.2f}{' held out' * held_out}"))
    print(table((*head, "learner, transfer", "model / measured"), lines))
    print(
        f"\nHeld out: {len(errors)} configurations, {sum(e <= 0.2 for e in errors)} of them within 20 %.\n"
    )
    head = ("wait, ms", "environments", "ranks", "steps/s", "of linear")
    lines = []
    for row in ranks:
        cells = (row["wait_ms"], row["environments"], row["ranks"])
        cells += (f"{STEPS * row['environments'] / row['seconds']:.0f}",)
        lines.append((*cells, f"{linear(row, ranks, 'ranks'):.2f}"))
    print(table(head, lines))
    print(f"\n{outlook(coefficients)}")
    draw(rows, coefficients, figure)


def draw(rows: list[dict], coefficients: list[np.ndarray], figure: Path) -> None:
    import matplotlib.pyplot as plt

    canvas, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
    colours = ("#332288", "#0072B2", "#56B4E9", "#009E73")
    for ms, colour in zip(sorted({row["wait_ms"] for row in rows}), colours):
        lines = [row for row in rows if (row["wait_ms"], row["environments"]) == (ms, 16)]
        x = [row["runners"] for row in lines]
        measured = [STEPS * 16 / row["seconds"] for row in lines]
        axis.plot(x, measured, "o", color=colour, label=f"a step waits {ms} ms")
        modelled = [STEPS * 16 / predict(row, coefficients) for row in lines]
        axis.plot(x, modelled, color=colour, lw=1)
    axis.set(xscale="log", yscale="log", xlabel="runners", ylabel="steps per second")
    axis.set_xticks(RUNNERS, RUNNERS)
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    canvas.legend(frameon=False, fontsize=8, loc="outside upper center", ncols=4)
    canvas.savefig(figure, dpi=200)


def main(options: Options) -> None:
    check_output("--output", options.output)
    check_output("--figure", options.figure, ".png", ".pdf", ".svg")
    check_least(1, options, "iterations")
    if options.table is None:
        check(find_spec("ray"), "Ray is missing: pip install -r requirements-dev.txt")
        aside = options.output.with_suffix(
            ".tmp"
        )  # the table of before stays until the new one is whole
        with aside.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, NAMES + SECONDS, lineterminator="\n")
            writer.writeheader()
            for measure_one, kinds in ((measure, CONFIGURATIONS), (measure_ranks, RANKS)):
                for (wait_ms, environments), counts in kinds.items():
                    for count in counts:
                        row = measure_one(wait_ms, environments, count, options.iterations)
                        writer.writerow(row | {key: f"{row[key]:.6g}" for key in SECONDS})
                        stream.flush()
        os.replace(aside, options.output)
    kinds = dict.fromkeys(NAMES, int) | dict.fromkeys(SECONDS, float)
    try:
        with (options.table or options.output).open(newline="") as stream:
            lines = list(csv.DictReader(stream))
        rows = [{key: kind(line[key]) for key, kind in kinds.items()} for line in lines]
    except (OSError, ValueError, TypeError, KeyError):
        rows = []
    check(rows, f"{options.table} is no table of this script")
    with writing():
        report(rows, options.figure)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
