"""The same weights in two sets of wrappers: returns in our files' environments and in stable-baselines3's.

    python benchmarks/atari_wrappers.py runs/BreakoutNoFrameskip-v4__dqn_atari__* --output benchmarks/atari_wrappers.csv

A policy plays as in its file's evaluation (PPO and A2C by draws, DQN with --eval-e random actions), from starts that
neither training nor its evaluations have. Prints a Markdown table of mean returns and their standard errors.
"""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
import tyro

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
from common import ROOT, check, is_complete, load, read_json, writing  # noqa: E402
from compare import markdown  # noqa: E402
from results import Row, export  # noqa: E402

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


def load_agent(run: Path):
    """The run's file as a module, its agent, and its summary."""
    summary = read_json(run / "summary.json")
    known = summary.get("algo") in ("ppo_atari", "a2c_atari", "dqn_atari")
    check(known, f"{run} is no finished run of ppo_atari.py, a2c_atari.py or dqn_atari.py")
    words = f"{run}: stable-baselines3's wrappers skip frames, and so does {summary['env_id']}"
    check("NoFrameskip" in summary["env_id"], words)
    check(is_complete(run), f"{run} was trained on: its weights are not those of its summary")
    algo = load(ROOT / "algos" / f"{summary['algo']}.py")
    saved = torch.load(run / "checkpoint.pt", map_location="cpu", weights_only=True)
    args = algo.Args(**saved["args"])
    actions = gym.make(args.env_id).action_space
    agent = algo.Agent(actions, args, summary["precision"]).to(memory_format=torch.channels_last)
    agent.load_state_dict(saved["agent"])
    return algo, agent, summary


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
    lines, rows = [], []
    for run in args.runs:
        algo, agent, summary = load_agent(run)
        seed = summary["seed"]
        line = {"exp_name": summary["args"]["exp_name"], "seed": seed}
        key = line["exp_name"], summary["env_id"], seed, summary["global_step"]
        for side in SIDES:
            returns = play(algo, agent, side, args.games, seed * 10_007 % 2**30 + 2**29)
            error = returns.std(ddof=1) / len(returns) ** 0.5
            line[side] = f"{returns.mean():.1f} ± {error:.1f}"
            print(f"{key[0]} {seed}, {side}: {line[side]}", file=sys.stderr, flush=True)
            for metric, value in ((side, returns.mean()), (f"{side}, standard error", error)):
                rows.append(Row(*key, metric, float(value), summary["commit"]))
        lines.append(line)
    print(markdown(lines))
    if args.output:
        with writing():
            export(args.output, rows)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
