"""The same weights in two sets of wrappers: returns in our files' environments and in stable-baselines3's.

    python benchmarks/studies/atari/wrappers.py runs/BreakoutNoFrameskip-v4__dqn_atari__* \
        --output benchmarks/studies/atari/results/atari_wrappers.csv

A policy plays as in its file's evaluation (PPO and A2C by draws, DQN with --eval-e random actions), from starts that
neither training nor its evaluations have. Prints a Markdown table of mean returns and their standard errors.
"""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from modes import load_agent, report
from plainrl_tools.common import check, check_least, check_output
from plainrl_tools.results import Row

SIDES = ("our environments", "stable-baselines3's wrappers")


@dataclass
class Args:
    runs: tyro.conf.Positional[tuple[Path, ...]]  # finished run folders of our Atari files
    games: int = 120  # on each side, in as many environments
    output: Path | None = None  # a CSV of means and standard errors, in long format


class Policy:
    """Our agent, as stable-baselines3 asks its models."""

    def __init__(self, agent):
        self.agent = agent

    @torch.inference_mode()
    def predict(self, obs: np.ndarray, deterministic: bool = False):
        """obs (n, 84, 84, 4) uint8 -> actions (n,), and no state."""
        x = torch.from_numpy(np.ascontiguousarray(obs.transpose(0, 3, 1, 2)))
        if hasattr(self.agent, "get_action"):
            return self.agent.get_action(x, self.agent.args.eval_e).numpy(), None
        return self.agent.to_env(self.agent.get_action_and_value(x)[0]), None


def play(algo, agent, side: str, games: int, seed: int) -> np.ndarray:
    """Returns (games,) of each environment's first whole game."""
    torch.manual_seed(seed)
    if side == SIDES[0]:
        return algo.evaluate(agent, *algo.make_envs(agent.args, games, seed))
    from sb3_atari import evaluate
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    importlib.import_module("ale_py")  # registers its games
    envs = VecFrameStack(make_atari_env(agent.args.env_id, n_envs=games, seed=seed), 4)
    returns = np.array(evaluate(Policy(agent), envs, games))
    envs.close()
    return returns


def main(args: Args) -> None:
    check(args.runs, "give run folders of our Atari files")
    check_least(2, args, "games")
    check_output("--output", args.output)
    lines, rows = [], []
    for run in args.runs:
        algo, agent, summary, start = load_agent(run, "ppo_atari", "a2c_atari", "dqn_atari")
        env_id, seed = summary["env_id"], summary["seed"]
        words = f"{run}: stable-baselines3's wrappers skip frames, and so does {env_id}"
        check("NoFrameskip" in env_id, words)
        line = {"exp_name": summary["args"]["exp_name"], "seed": seed}
        key = line["exp_name"], env_id, seed, summary["global_step"]
        for side in SIDES:
            returns = play(algo, agent, side, args.games, start)
            error = returns.std(ddof=1) / len(returns) ** 0.5
            line[side] = f"{returns.mean():.1f} ± {error:.1f}"
            print(f"{key[0]} {seed}, {side}: {line[side]}", file=sys.stderr, flush=True)
            for metric, value in ((side, returns.mean()), (f"{side}, standard error", error)):
                rows.append(Row(*key, metric, float(value), summary["commit"]))
        lines.append(line)
    report(lines, rows, args.output)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
