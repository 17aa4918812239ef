"""Training speed of algos/ppo_continuous.py against stable-baselines3's PPO and, where `sbx` is installed, SBX's.

    python benchmarks/speed.py

Every figure is environment steps per second (sps), all environments together, rollouts and updates included, the first
iteration (warm-up) and the evaluation excluded. benchmarks/README.md says what is measured, how, and why so.
Prints a Markdown table on stdout and writes every single measurement to --output; progress goes to stderr.
"""

import csv
import importlib.metadata
import importlib.util
import itertools
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import tyro

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("torch", "numpy", "gymnasium", "envpool", "stable-baselines3", "sbx-rl", "jax")
# RL Baselines3 Zoo's tuned settings, hyperparams/ppo.yml at commit 22e3ff2; what it leaves out is the library's default
ZOO = {
    "BipedalWalker-v3": {
        "n_envs": 32, "norm_obs": True, "norm_reward": True, "n_steps": 2048, "batch_size": 64, "n_epochs": 10,
        "gamma": 0.999, "gae_lambda": 0.95, "ent_coef": 0.0, "learning_rate": 3e-4, "clip_range": 0.18,
    },
    "Pendulum-v1": {
        "n_envs": 4, "n_steps": 1024, "batch_size": 64, "n_epochs": 10, "gamma": 0.9, "gae_lambda": 0.95,
        "ent_coef": 0.0, "learning_rate": 1e-3, "clip_range": 0.2, "use_sde": True, "sde_sample_freq": 4,
    },
}  # fmt: skip


@dataclass
class Args:
    env_ids: tuple[str, ...] = ("BipedalWalker-v3", "Pendulum-v1")  # one pair of table rows each
    repeats: int = 3  # rounds per environment; round r runs every side once, with seed r
    seconds: float = 25.0  # length of a measurement, warm-up not counted
    max_rollout: int = 8192  # most steps per rollout at the Zoo's settings, whose n_steps is cut to it; 0 cuts nothing
    calibration_steps: int = 50_000  # steps of the uncounted run of ours that finds how many steps --seconds takes
    device: str = "cpu"  # of every side
    script: Path = ROOT / "algos" / "ppo_continuous.py"  # ours
    output: Path = ROOT / "benchmarks" / "results" / "speed.csv"  # every measurement, in long format


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


# ---------------------------------------------------------------------------- one side each, run in a fresh process


def measure_peer(side: str, env_id: str, settings: dict, seed: int, seconds: float, device: str, threads: int) -> dict:
    """{"sps": steps per second, "steps": steps measured} of stable-baselines3's (side "sb3") or SBX's PPO ("sbx") on a
    DummyVecEnv, from the end of the first update to the end of the first later update that is at least `seconds` (s)
    away. `threads` is given to torch.set_num_threads, 0 leaves PyTorch's own choice."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    if side == "sbx":
        from sbx import PPO
    if threads:
        torch.set_num_threads(threads)
    settings = dict(settings)
    norm_obs, norm_reward = settings.pop("norm_obs", False), settings.pop("norm_reward", False)
    envs = make_vec_env(env_id, n_envs=settings.pop("n_envs"), seed=seed, vec_env_cls=DummyVecEnv)
    if norm_obs or norm_reward:
        envs = VecNormalize(envs, norm_obs=norm_obs, norm_reward=norm_reward, gamma=settings["gamma"])

    class Clock(BaseCallback):
        def _on_training_start(self) -> None:
            self.marks = []  # (time in s, steps so far) at the start of every rollout, that is after every update

        def _on_rollout_start(self) -> None:
            self.marks.append((time.perf_counter(), self.num_timesteps))

        def _on_step(self) -> bool:  # a rollout cannot be refused at its start; one step later it can
            return len(self.marks) < 3 or self.marks[-1][0] - self.marks[1][0] < seconds

    clock = Clock()
    PPO("MlpPolicy", envs, seed=seed, device=device, **settings).learn(10**9, callback=clock)
    (start, steps_before), (end, steps_after) = clock.marks[1], clock.marks[-1]
    return {"sps": (steps_after - steps_before) / (end - start), "steps": steps_after - steps_before}


def measure_bare(env_id: str, num_envs: int, seed: int, seconds: float) -> dict:
    """{"sps", "steps"} as measure_peer, and the "backend", of the environment alone with random actions, as many
    environments as ours and as many threads as cores. Reset rows are not counted, since ours does not count them."""
    import gymnasium as gym
    import numpy as np

    backend = "gymnasium"
    if importlib.util.find_spec("envpool"):
        import envpool

        backend = "envpool" if env_id in envpool.list_all_envs() else backend
    if backend == "envpool":
        threads = min(num_cores(), num_envs)
        envs = envpool.make(env_id, env_type="gymnasium", num_envs=num_envs, seed=seed, num_threads=threads)
        action_space = envs.action_space  # EnvPool's is that of one environment
        envs.reset()
    else:
        next_step = gym.vector.AutoresetMode.NEXT_STEP
        envs = gym.vector.SyncVectorEnv([lambda: gym.make(env_id)] * num_envs, autoreset_mode=next_step)
        action_space = envs.single_action_space
        envs.reset(seed=seed)
    action_space.seed(seed)
    # drawn beforehand: Gymnasium's sampling would cost more than a step of the faster environments
    actions = itertools.cycle([np.stack([action_space.sample() for _ in range(num_envs)]) for _ in range(64)])
    prev_done = np.zeros(num_envs, bool)
    for duration in (1.0, seconds):  # the first second is the warm-up
        steps, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < duration:
            _, _, terminated, truncated, _ = envs.step(next(actions))
            steps += num_envs - int(prev_done.sum())
            prev_done = terminated | truncated
    return {"sps": steps / elapsed, "steps": steps, "backend": backend}


# ------------------------------------------------------------------------------------------------ the parent process


def run(command: list) -> str:
    """Stdout of a command run from the repository's root; its failure ends this script with the end of its output."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        sys.exit(f"speed.py: exit status {done.returncode} from {' '.join(map(str, command))}\n{tail}")
    return done.stdout


def ours(args: Args, env_id: str, seed: int, steps: int) -> dict:
    """summary.json of a run of the unmodified script with its default flags for `steps` environment steps."""
    with tempfile.TemporaryDirectory() as runs_dir:
        flags = {"env-id": env_id, "total-timesteps": steps, "eval-episodes": 1, "runs-dir": runs_dir, "seed": seed}
        flags["device"] = args.device
        run([sys.executable, args.script, *itertools.chain(*((f"--{name}", flags[name]) for name in flags))])
        (path,) = Path(runs_dir).glob("*/summary.json")
        return json.loads(path.read_text())


def other(**job) -> dict:
    """What measure_peer or measure_bare returns, from a fresh process."""
    return json.loads(run([sys.executable, __file__, "--measure", json.dumps(job)]).splitlines()[-1])


def recommended(env_id: str, max_rollout: int) -> dict:
    """The Zoo's settings. A rollout of 65,536 steps and its update take stable-baselines3 about a minute; the same
    number of environments and minibatch size on shorter rollouts cost the same per step and fit the measurement."""
    settings = dict(ZOO[env_id])
    if max_rollout:
        settings["n_steps"] = max(1, min(settings["n_steps"], max_rollout // settings["n_envs"]))
    return settings


def identical(flags: dict) -> dict:
    """Ours as keywords for the peers, from the flags a run of ours recorded. The learning rate stays constant."""
    return {
        "n_envs": flags["num_envs"], "n_steps": flags["num_steps"], "n_epochs": flags["update_epochs"],
        "batch_size": flags["num_envs"] * flags["num_steps"] // flags["num_minibatches"],
        "norm_obs": flags["norm_obs"], "norm_reward": flags["norm_reward"],
        "learning_rate": flags["learning_rate"], "gamma": flags["gamma"], "gae_lambda": flags["gae_lambda"],
        "clip_range": flags["clip_coef"], "clip_range_vf": flags["clip_coef"] if flags["clip_vloss"] else None,
        "normalize_advantage": flags["norm_adv"], "ent_coef": flags["ent_coef"], "vf_coef": flags["vf_coef"],
        "max_grad_norm": flags["max_grad_norm"], "target_kl": flags["target_kl"],
    }  # fmt: skip


def csv_row(exp_name: str, env_id: str, seed: int, result: dict, commit: str) -> dict:
    """A row of --output: `value` in steps per second, measured over `step` steps. Nothing but a number passes."""
    if not (math.isfinite(result["sps"]) and result["sps"] > 0):
        sys.exit(f"speed.py: {exp_name} on {env_id}, seed {seed}, reports {result['sps']} steps per second")
    print(f"{env_id} seed {seed} {exp_name}: {result['sps']:,.0f} steps/s", file=sys.stderr, flush=True)
    return {"exp_name": exp_name, "env_id": env_id, "seed": seed, "step": result["steps"], "metric": "sps",
            "value": round(result["sps"], 1), "commit": commit}  # fmt: skip


def measure_env(args: Args, env_id: str, has_sbx: bool) -> tuple[list[dict], str]:
    """CSV rows of all rounds of one environment, and the backend of the bare environment."""
    first = ours(args, env_id, seed=1, steps=args.calibration_steps)
    result = {"sps": first["sps"], "steps": first["global_step"]}
    csv_row("calibration, not counted,", env_id, 1, result, first["commit"])  # checked like the others, then dropped
    steps = max(args.calibration_steps, math.ceil(first["sps"] * args.seconds))
    settings = {"recommended": recommended(env_id, args.max_rollout), "identical": identical(first["args"])}
    jobs = {}
    for name in settings:
        peer = {"settings": settings[name], "device": args.device}
        jobs[f"sb3-{name}-default-threads"] = {"side": "sb3", "threads": 0, **peer}
        jobs[f"sb3-{name}-1-thread"] = {"side": "sb3", "threads": 1, **peer}
        if has_sbx:
            jobs[f"sbx-{name}"] = {"side": "sbx", "threads": 0, **peer}
    jobs["bare"] = {"side": "bare", "num_envs": first["args"]["num_envs"]}
    rows = []
    for seed in range(1, args.repeats + 1):
        summary = ours(args, env_id, seed, steps)
        result = {"sps": summary["sps"], "steps": summary["global_step"]}
        rows.append(csv_row("ours", env_id, seed, result, first["commit"]))
        for name in jobs:
            result = other(env_id=env_id, seed=seed, seconds=args.seconds, **jobs[name])
            rows.append(csv_row(name, env_id, seed, result, first["commit"]))
    return rows, result["backend"]  # the last result is the bare environment's


def spread(values: list[float], form: str) -> str:
    """Median (least-greatest)."""
    return f"{median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


def table_rows(rows: list[dict], env_id: str, backend: str, has_sbx: bool) -> list[str]:
    """The two Markdown rows of an environment. A ratio is taken within a round; its median is over rounds."""
    values = {name: [r["value"] for r in rows if r["exp_name"] == name] for name in {r["exp_name"] for r in rows}}
    lines = []
    for name in ("recommended", "identical"):
        both = f"sb3-{name}-default-threads", f"sb3-{name}-1-thread"
        worse, sb3 = sorted(both, key=lambda key: median(values[key]))
        threads, other_threads = (key.removeprefix(f"sb3-{name}-").replace("-", " ") for key in (sb3, worse))
        ratio, share = ([a / b for a, b in zip(values["ours"], values[key], strict=True)] for key in (sb3, "bare"))
        sbx = ["not installed"] * 2
        if has_sbx:
            sbx_ratio = [a / b for a, b in zip(values["ours"], values[f"sbx-{name}"], strict=True)]
            sbx = [spread(values[f"sbx-{name}"], ",.0f"), spread(sbx_ratio, ".1f")]
        lines.append(" | ".join([
            f"| {env_id}", name, spread(values["ours"], ",.0f"), spread(values[sb3], ",.0f"),
            f"{threads} ({other_threads}: {median(values[worse]):,.0f})", spread(ratio, ".1f"), *sbx,
            f"{spread(values['bare'], ',.0f')} {backend}", spread(share, ".0%") + " |"]))  # fmt: skip
    return lines


def machine() -> str:
    """One line: processor, cores, load before the start, system, versions."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":")[1].strip() if lines else model
    names = {dist.name.lower().replace("_", "-"): dist.version for dist in importlib.metadata.distributions()}
    versions = [f"Python {platform.python_version()}", *(f"{name} {names[name]}" for name in PACKAGES if name in names)]
    load = f"load {os.getloadavg()[0]:.1f} before the start"
    return f"{model}, {num_cores()} cores, {load}, {platform.system()}; {', '.join(versions)}"


def main(args: Args) -> None:
    if args.repeats < 1 or args.seconds <= 0:
        sys.exit("speed.py: --repeats and --seconds must be positive")
    unknown = [env_id for env_id in args.env_ids if env_id not in ZOO]
    if unknown:
        sys.exit(f"speed.py: no recommended settings for {', '.join(unknown)} in ZOO; it has {', '.join(ZOO)}")
    has_sbx = importlib.util.find_spec("sbx") is not None
    description, rows, lines = machine(), [], []
    if os.getloadavg()[0] > 0.5:
        print("speed.py: other programs are running on this machine; the figures will suffer", file=sys.stderr)
    for env_id in args.env_ids:
        env_rows, backend = measure_env(args, env_id, has_sbx)
        rows += env_rows
        lines += table_rows(env_rows, env_id, backend, has_sbx)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with open(args.output, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print("| environment | settings | ours | SB3 | SB3 ran with | ours / SB3 | SBX | ours / SBX | bare | ours / bare |")
    print("|---" * 10 + "|", *lines, sep="\n")
    print(f"\nSteps per second, median (least-greatest) of {args.repeats} rounds of {args.seconds:g} s a side; "
          "SB3's figure is the better of PyTorch's default threads and one thread.\n"
          f"Commit {rows[0]['commit']}. {description}.")  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:  # how `other` starts this file again
        job = json.loads(sys.argv[2])
        side = job.pop("side")
        print(json.dumps(measure_bare(**job) if side == "bare" else measure_peer(side, **job)))
    else:
        main(tyro.cli(Args))
