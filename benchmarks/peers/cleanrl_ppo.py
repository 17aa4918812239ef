"""CleanRL's own ppo_continuous_action.py, unchanged and in its own environment, as a run folder like ours.

    python -m venv cleanrl && source cleanrl/bin/activate && pip install swig wheel setuptools==67.7.2
    pip install --no-build-isolation box2d-py==2.3.5
    pip install "gymnasium[mujoco,classic-control]==0.29.1" mujoco==2.3.3 numpy==1.26.4 torch tyro tensorboard imageio
    deactivate
    python benchmarks/peers/cleanrl_ppo.py --python cleanrl/bin/python --file CLEANRL/cleanrl/ppo_continuous_action.py \
        --env-id BipedalWalker-v3 --until-goal 6

The file is not part of this project: https://github.com/vwxyzjn/cleanrl. Its default flags are its published settings.
It needs Gymnasium 0.29 and MuJoCo 2.3.3, so that it plays HalfCheetah-v4 and LunarLanderContinuous-v2, which the run
folder calls by their newer names. It evaluates nothing: eval_return_mean is not a number.
"""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tyro
from plainrl_tools import results
from plainrl_tools.common import check, commit_of, one_line, writing
from plainrl_tools.peers import GOALS, is_there, window_of

HERE = Path(__file__).resolve().parent
THEIRS = {
    "HalfCheetah-v5": "HalfCheetah-v4",
    "LunarLanderContinuous-v3": "LunarLanderContinuous-v2",
}
LOOK_EVERY = 2.0  # seconds


@dataclass
class Args:
    file: Path  # CleanRL's ppo_continuous_action.py
    python: Path  # the interpreter of the environment that it is installed in
    exp_name: str = "cleanrl_ppo"  # name of this experiment, part of the run folder's name
    env_id: str = "BipedalWalker-v3"  # one that has a goal in time_to_return.py
    seed: int = 1  # seeds Python, NumPy, PyTorch and the environment
    total_timesteps: int = 1_000_000  # environment steps
    until_goal: float | None = None  # minutes: end at time_to_return.py's goal or after this time
    runs_dir: str = "runs"  # the run folder is created in here


def logged_returns(run_dir: Path) -> list[tuple[int, float, float]]:
    """(step, seconds, return) of the episodes that the file has logged so far."""
    logs = [results.read_scalars(folder) for folder in run_dir.glob("runs/*")]
    return [point for log in logs for point in log.get(results.CURVE, [])]


def follow(process: subprocess.Popen, logs: Path, args: Args) -> None:
    """Wait until the process ends, or end it at the goal or after the time."""
    started = time.time()
    while process.poll() is None:
        time.sleep(LOOK_EVERY)
        curve = logged_returns(logs)
        if not args.until_goal or (not curve and time.time() < started + 60 * args.until_goal + 60):
            continue
        # the clock starts with the log: a minute is for imports
        late = not curve or curve[-1][1] > 60 * args.until_goal
        if late or is_there(GOALS[args.env_id], curve, window_of(args.env_id, num_envs=1)):
            process.terminate()
            process.wait()
            return
    check(process.returncode == 0, f"{args.file} ended with {process.returncode}: {logs}/log", 1)


def train(args: Args) -> dict:
    check(args.env_id in GOALS, f"--env-id {args.env_id} has no goal; {', '.join(GOALS)} have")
    check(args.file.is_file(), f"--file {args.file} is not there")
    python = shutil.which(args.python)
    check(python, f"--python {args.python} is no interpreter")
    python = os.path.abspath(python)  # the file runs in a folder of its own
    asked = "import gymnasium, torch; print(gymnasium.__version__, torch.__version__)"
    found = subprocess.run([python, "-c", asked], capture_output=True, text=True)
    check(found.returncode == 0, f"--python {args.python}: {one_line(found.stderr[-200:])}")

    started = time.time()
    run_dir = Path(args.runs_dir, f"{args.env_id}__{args.exp_name}__{args.seed}__{int(started)}")
    with writing(f"--runs-dir {args.runs_dir}"):
        run_dir.mkdir(parents=True)
    shutil.copy(sys.argv[0], run_dir)
    versions = dict(zip(("gymnasium", "torch"), found.stdout.split()))
    values = {
        name: str(value) if name in ("file", "python") else value
        for name, value in asdict(args).items()
    }
    run = {"algo": "cleanrl_ppo", "env_id": args.env_id, "seed": args.seed, "device": "cpu"}
    run["num_envs"] = 1  # the file's own
    run |= {"versions": versions, "commit": commit_of(Path(__file__))}
    run |= {"total_timesteps": args.total_timesteps, "args": values}
    (run_dir / "config.json").write_text(json.dumps(run, indent=2) + "\n")

    command = [python, args.file.resolve(), "--env-id", THEIRS.get(args.env_id, args.env_id)]
    command += ["--seed", str(args.seed), "--total-timesteps", str(args.total_timesteps)]
    with open(run_dir / "log", "w") as log:
        one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, cwd=run_dir, env=one_thread, stdout=log, stderr=log)
        try:
            follow(process, run_dir, args)
        finally:
            process.kill()
            process.wait()
    curve = logged_returns(run_dir)
    check(curve, f"{args.file} has logged no episode: {run_dir}/log", 1)
    for events in run_dir.glob("runs/*/events.out.tfevents.*"):
        events.rename(run_dir / events.name)
    shutil.rmtree(run_dir / "runs")
    step, seconds, _ = curve[-1]
    summary = run | {
        "global_step": step,
        "wall_time_s": time.time() - started,
        "sps": step / seconds,
    }
    last100 = float(np.mean([value for *_, value in curve[-100:]]))
    summary |= {
        "eval_return_mean": math.nan,
        "eval_returns": [],
        "eval_episodes": 0,
        "train_return_last100": last100,
    }
    (run_dir / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(f"{run_dir}: return {last100:.1f} in training, {step} steps, {seconds / 60:.1f} minutes")
    return summary


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the file ends with this one
    train(tyro.cli(Args))
