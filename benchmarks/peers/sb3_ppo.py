"""PPO of stable-baselines3 or SBX with the settings of RL Baselines3 Zoo, CleanRL or ours, as a run folder like ours.

    python benchmarks/peers/sb3_ppo.py --env-id BipedalWalker-v3 --total-timesteps 2000000
    python benchmarks/peers/sb3_ppo.py --settings cleanrl --env-id HalfCheetah-v5 --total-timesteps 1000000
    python benchmarks/peers/sb3_ppo.py --settings ours --library sbx --env-id Pendulum-v1   # needs: pip install sbx-rl

For comparisons beside our own files: scripts/sweep.py runs it and scripts/plot.py reads what it leaves. The Zoo's
learning rate is constant, so that a shorter run is the beginning of a longer one; CleanRL's and ours fall to zero.
"""

import importlib.metadata
import importlib.util
import json
import math
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro
from plainrl_tools.common import ROOT, check, check_env, check_least, commit_of, load, writing

CLEANRL = {"n_envs": 1, "n_steps": 2048, "batch_size": 64, "n_epochs": 10, "gamma": 0.99}
CLEANRL |= {"gae_lambda": 0.95, "clip_range": 0.2, "clip_range_vf": 0.2, "ent_coef": 0.0}
CLEANRL |= {"max_grad_norm": 0.5, "norm_obs": True, "norm_reward": True, "learning_rate": 3e-4}
# CleanRL: 0.5 of half the squared error; the libraries do not halve it
CLEANRL["vf_coef"] = 0.25
NETWORKS = {"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": "Tanh"}


@dataclass
class Args:
    exp_name: str = "sb3_ppo"  # name of this experiment, part of the run folder's name
    settings: Literal["zoo", "cleanrl", "ours"] = "zoo"  # ours: the defaults of ppo_continuous.py
    library: Literal["sb3", "sbx"] = "sb3"  # sbx: its JAX twin
    env_id: str = "BipedalWalker-v3"  # zoo: one that ZOO of plainrl_tools/peers.py has; else any with Box actions
    seed: int = 1  # seeds Python, NumPy, PyTorch and every environment
    total_timesteps: int = 2_000_000  # environment steps
    torch_threads: int = 1  # CPU threads of PyTorch; 0 leaves its own choice
    eval_episodes: int = 100  # episodes of the evaluation, one in each of as many environments
    until_goal: float | None = None  # minutes: end at time_to_return.py's goal or after this time
    runs_dir: str = "runs"  # the run folder is created in here


def evaluate(model, envs) -> list[float]:
    """Raw returns of each environment's first episode, played by the policy's mode under frozen statistics."""
    envs.training, envs.norm_reward = (
        False,
        False,
    )  # of VecNormalize; a plain vector environment ignores them
    returns, running, obs = (
        np.zeros(envs.num_envs),
        np.ones(envs.num_envs, dtype=bool),
        envs.reset(),
    )
    while running.any():
        obs, reward, done, _ = envs.step(model.predict(obs, deterministic=True)[0])
        returns += np.where(running, reward, 0.0)
        running &= ~done
    return returns.tolist()


def first_seed(seed: int) -> int:
    """Of a run's first environment, the others count on from it: as in algos/, the runs of two seeds share none."""
    return seed * 10_007 % 2**30


def run(
    args, algo: str, policy: str, settings: dict, envs, evaluate, library="stable_baselines3"
) -> dict:
    """Trains the library's `algo` on `envs`; leaves and returns what summary.json of algos/ has. evaluate(model)
    gives the raw returns of the evaluation's episodes."""
    import stable_baselines3
    import torch
    from plainrl_tools.peers import GOALS, is_there, window_of
    from stable_baselines3.common.callbacks import BaseCallback
    from torch.utils.tensorboard import SummaryWriter

    check_least(1, args, "total_timesteps", "eval_episodes")
    check_least(0, args, "torch_threads")
    started = time.time()
    torch.set_num_threads(args.torch_threads or torch.get_num_threads())
    name = f"{args.env_id.replace('/', '-')}__{args.exp_name}__{args.seed}__{int(started)}"
    run_dir = Path(args.runs_dir) / name
    with writing(f"--runs-dir {args.runs_dir}"):
        run_dir.mkdir(parents=True)
    shutil.copy(sys.argv[0], run_dir)  # this file, or the one that calls this function
    commit = commit_of(Path(__file__))
    run = {
        "algo": Path(sys.argv[0]).stem,
        "env_id": args.env_id,
        "seed": args.seed,
        "device": "cpu",
        "num_envs": envs.num_envs,
    }
    run["versions"] = {
        "torch": str(torch.__version__),
        "stable-baselines3": stable_baselines3.__version__,
    }
    for package in {"sbx": ("sbx-rl", "jax"), "sb3_contrib": ("sb3-contrib",)}.get(library, ()):
        run["versions"][package] = importlib.metadata.version(package)
    run |= {"commit": commit, "total_timesteps": args.total_timesteps, "args": asdict(args)}
    (run_dir / "config.json").write_text(json.dumps(run, indent=2) + "\n")
    module = importlib.import_module(library)  # before the log: its opening starts the clock
    writer = SummaryWriter(run_dir)

    class Log(BaseCallback):
        """The mean return of the episodes that ended in rollouts, every 1000 steps or more, at a rollout's end."""

        def _on_training_start(self) -> None:
            self.ended, self.last100, self.marks, self.logged = [], [], [], 0
            self.curve, self.started, self.there = [], time.time(), False
            self.limit = getattr(args, "until_goal", None)

        def _on_rollout_start(self) -> None:
            self.marks.append((time.perf_counter(), self.num_timesteps))

        def _on_step(self) -> bool:
            self.ended += [
                info["episode"]["r"] for info in self.locals["infos"] if "episode" in info
            ]
            late = self.limit and time.time() > self.started + 60 * self.limit
            return not (self.there or late)

        def _on_rollout_end(self) -> None:
            if self.num_timesteps >= self.logged + 1000:
                self.log()

        def _on_training_end(self) -> None:
            self.log()
            pace = self.num_timesteps / (time.time() - self.started)  # where no episode ended, too
            writer.add_scalar("charts/SPS", pace, self.num_timesteps)

        def log(self) -> None:
            if self.ended:
                self.logged = self.num_timesteps
                value, seconds = float(np.mean(self.ended)), time.time() - self.started
                writer.add_scalar("charts/episodic_return", value, self.num_timesteps)
                self.curve.append((self.num_timesteps, seconds, value))
                if self.limit:
                    window = window_of(args.env_id, envs.num_envs)
                    self.there = is_there(GOALS[args.env_id], self.curve, window)
                self.last100, self.ended = (self.last100 + self.ended)[-100:], []

    log = Log()
    model = getattr(module, algo)(
        policy, envs, seed=first_seed(args.seed), device="cpu", **settings
    )
    model.learn(args.total_timesteps, callback=log)
    writer.close()
    waits = getattr(model, "learning_starts", 0)  # Q-learning's steps without updates are no pace
    first = next((mark for mark in log.marks[1:] if mark[1] >= waits), log.marks[-1])
    last = log.marks[-1]
    eval_returns = evaluate(model)
    summary = run | {
        "global_step": model.num_timesteps, "wall_time_s": time.time() - started,
        "sps": (last[1] - first[1]) / max(last[0] - first[0], 1e-9), "eval_episodes": args.eval_episodes,
        "train_return_last100": float(np.mean(log.last100)) if log.last100 else None,
        "eval_return_mean": float(np.mean(eval_returns)), "eval_return_std": float(np.std(eval_returns)),
        "eval_returns": eval_returns}  # fmt: skip
    (run_dir / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(
        f"{run_dir}: evaluation {summary['eval_return_mean']:.1f} +- {summary['eval_return_std']:.1f}"
    )
    return summary


def train(args: Args) -> dict:
    from plainrl_tools.peers import GOALS, ZOO, identical, with_activation

    found = args.library == "sb3" or importlib.util.find_spec("sbx")
    check(found, "--library sbx needs a package: pip install sbx-rl")
    goal = args.until_goal is None or args.env_id in GOALS
    check(goal, f"--until-goal: {args.env_id} has no goal; these have: {', '.join(GOALS)}")
    missing = f"--env-id {args.env_id} has no tuned settings here; take one of {', '.join(ZOO)}"
    check(args.settings != "zoo" or args.env_id in ZOO, missing)
    settings = (
        ZOO.get(args.env_id) if args.settings == "zoo" else CLEANRL | {"policy_kwargs": NETWORKS}
    )
    if args.settings == "ours":
        defaults = asdict(load(ROOT / "algos" / "ppo_continuous.py").Args())
        networks = NETWORKS | {"activation_fn": defaults["activation"]}
        networks["log_std_init"] = math.log(defaults["init_std"])
        settings = identical(defaults) | {"policy_kwargs": networks}
    settings = with_activation(settings, args.library)
    if args.settings != "zoo":
        start, rollout = settings["learning_rate"], settings["n_envs"] * settings["n_steps"]

        def learning_rate(left: float) -> float:
            """It asks after a rollout, with the share of steps that is left then; ours counts from its start."""
            return start * min(left + rollout / args.total_timesteps, 1)

        settings["learning_rate"] = learning_rate
    library = "sbx" if args.library == "sbx" else "stable_baselines3"
    return train_on(args, "PPO", settings, library)


def train_on(args, algo: str, settings: dict, library: str) -> dict:
    """Gymnasium's environments, normalised as `settings` say; the algorithm of `library` trained on them."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    check_env(args.env_id)
    norms = {name: settings.pop(name, False) for name in ("norm_obs", "norm_reward")}

    def make_envs(number: int, seed: int):
        # not its rgb_array: with that, Gymnasium's lander keeps every particle until it is drawn
        bare = {"render_mode": None}
        envs = make_vec_env(args.env_id, n_envs=number, seed=seed, env_kwargs=bare)
        return VecNormalize(envs, gamma=settings["gamma"], **norms) if any(norms.values()) else envs

    envs = make_envs(settings.pop("n_envs"), first_seed(args.seed))

    def evaluation(model) -> list[float]:
        eval_envs = make_envs(args.eval_episodes, first_seed(args.seed) + 2**30)
        if any(norms.values()):
            eval_envs.obs_rms, eval_envs.ret_rms = envs.obs_rms, envs.ret_rms
        return evaluate(model, eval_envs)

    return run(args, algo, "MlpPolicy", settings, envs, evaluation, library)


if __name__ == "__main__":
    train(tyro.cli(Args))
