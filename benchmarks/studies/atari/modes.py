"""What a trained policy is worth by draws, and by less and less of them.

    python benchmarks/studies/atari/modes.py runs/PongNoFrameskip-v4__* \
        --output benchmarks/studies/atari/results/atari_modes.csv

The same weights play in six ways, from starts that neither training nor its evaluations have: by draws from the
policy; by the same with 1 % random actions, as have all that follow but the last, and the greedy evaluation of
ppo_atari.py; by draws from p ** 4, which has less entropy; by the likeliest action; by the likeliest move, an action's
probability added to that of the same move with FIRE, played without FIRE; and by the likeliest action alone. Prints a
Markdown table of mean returns.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
import tyro
from ale_py import Action
from plainrl_tools.common import (
    ROOT,
    check,
    check_least,
    check_output,
    is_complete,
    load,
    read_json,
    writing,
)
from plainrl_tools.compare import markdown
from plainrl_tools.results import Row, export
from torch.distributions import Categorical

WAYS = ("draws", "draws, some random", "sharpened draws", "likeliest action", "likeliest move")
WAYS += ("likeliest action, none random",)
EPSILON = 0.01  # of random actions, but for the first way and the last
SHARPER = 4.0  # the power


@dataclass
class Args:
    runs: tyro.conf.Positional[tuple[Path, ...]]  # finished run folders of ppo_atari.py
    ways: tuple[str, ...] = WAYS  # some of them
    games: int = 30  # of each way, in as many environments
    output: Path | None = None  # a CSV of every way's mean, in long format


def moves(actions: list[Action]) -> torch.Tensor:
    """Of each action the first one that is the same move without FIRE, (n,)."""
    names = [action.name.replace("FIRE", "") or "NOOP" for action in actions]
    return torch.tensor([names.index(name) for name in names])


def choose(logits: torch.Tensor, way: str, move: torch.Tensor) -> torch.Tensor:
    """Actions (n,) of logits (n, actions), by one of WAYS."""
    if way == "likeliest move":
        probs = torch.zeros_like(logits).index_add(1, move, logits.softmax(-1))
        logits = probs.log()  # -inf for the action with FIRE
    if way.startswith("likeliest"):
        action = logits.argmax(-1)
    else:
        power = SHARPER if way == "sharpened draws" else 1.0
        action = Categorical(logits=power * logits).sample()
    explores = torch.rand(len(action)) < EPSILON * (way not in (WAYS[0], WAYS[-1]))
    return torch.where(explores, torch.randint(logits.shape[1], action.shape), action)


@torch.inference_mode()
def play(algo, agent, way: str, games: int, seed: int) -> np.ndarray:
    """Returns (games,) of whole games, each environment's first."""
    envs, obs = algo.make_envs(agent.args, games, seed)
    move = moves(envs.env.ale.get_action_set())
    returns, running = np.zeros(games), np.ones(games, bool)
    torch.manual_seed(seed)
    for _ in range(agent.args.eval_max_steps):
        logits = agent.actor(agent.features(torch.from_numpy(obs)))
        obs, reward, terminated, truncated, _ = envs.step(choose(logits, way, move).numpy())
        returns += np.where(running, reward, 0.0)
        running &= ~(terminated | truncated)
        if not running.any():
            break
    envs.close()
    return returns


def load_agent(run: Path, *algos: str):
    """A finished run of one of the files: its module, its agent, its summary, and a seed of starts that neither its
    training nor its evaluations have."""
    summary = read_json(run / "summary.json")
    files = " or ".join(f"{algo}.py" for algo in algos)
    check(summary.get("algo") in algos, f"{run} is no finished run of {files}")
    check(is_complete(run), f"{run} was trained on: its weights are not those of its summary")
    check((run / "checkpoint.pt").is_file(), f"{run} has lost its checkpoint.pt")
    algo = load(ROOT / "algos" / f"{summary['algo']}.py")
    saved = torch.load(run / "checkpoint.pt", map_location="cpu", weights_only=True)
    args = algo.Args(**saved["args"])
    actions = gym.make(args.env_id).action_space
    agent = algo.Agent(actions, args, summary["precision"]).to(memory_format=torch.channels_last)
    agent.load_state_dict(saved["agent"])
    return algo, agent, summary, summary["seed"] * 10_007 % 2**30 + 2**29


def report(lines: list[dict], rows: list[Row], output: Path | None) -> None:
    """The lines as a Markdown table on stdout, the rows as a CSV."""
    print(markdown(lines))
    if output:
        with writing():
            export(output, rows)


def main(args: Args) -> None:
    wrong = [way for way in args.ways if way not in WAYS]
    check(args.runs, "give run folders of ppo_atari.py")
    check_least(1, args, "games")
    check_output("--output", args.output)
    check(not wrong, f"--ways: {'; '.join(wrong)} not among {'; '.join(WAYS)}")
    lines, rows = [], []
    for run in args.runs:
        algo, agent, summary, start = load_agent(run, "ppo_atari")
        name, seed = summary["args"]["exp_name"], summary["seed"]
        line = {"exp_name": name, "seed": seed}
        for way in args.ways:
            print(f"{name} {seed}: {way}", end=" ", file=sys.stderr, flush=True)
            returns = play(algo, agent, way, args.games, start)
            print(f"{returns.mean():.1f} +- {returns.std():.1f}", file=sys.stderr)
            line[way] = float(returns.mean())
            key = name, summary["env_id"], seed, summary["global_step"]
            rows.append(Row(*key, way, line[way], summary["commit"]))
        lines.append(line)
    report(lines, rows, args.output)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
