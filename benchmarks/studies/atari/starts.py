"""How many different games the no-ops at an Atari game's start give, and what an agent makes of each of them.

    python benchmarks/studies/atari/starts.py
    python benchmarks/studies/atari/starts.py --runs runs/BreakoutNoFrameskip-v4__*

Without sticky actions a game is set by its number of no-ops and by the actions. The first command plays the same random
actions after 0 to 29 of them and counts the games that look different to an agent. The second one sorts the games of
runs' evaluations, ours and sb3_atari.py's, by no-ops modulo 4, the frames of a step. Both print a Markdown table.
"""

import hashlib
import importlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from plainrl_tools.common import ROOT, check, check_env, check_least, is_complete, load, read_json
from plainrl_tools.compare import markdown

GAMES = (
    "Breakout",
    "Pong",
    "BeamRider",
    "Enduro",
    "MsPacman",
    "Qbert",
    "Seaquest",
    "SpaceInvaders",
)


@dataclass
class Args:
    games: tuple[str, ...] = GAMES  # played as NoFrameskip-v4
    steps: int = 100  # of 4 frames, in each game
    num_envs: int = 64  # whose no-ops are drawn
    seed: int = 1  # of the actions
    runs: tuple[Path, ...] = ()  # run folders of one NoFrameskip game


def no_ops(env_id: str, number: int, seed: int):
    """Our environments, seeded seed, seed + 1, ..., and the number of no-ops of each, (number,)."""
    algo = load(ROOT / "algos" / "ppo_atari.py")
    check_env(env_id)
    envs, _ = algo.make_envs(algo.Args(env_id=env_id), number, seed)
    return envs, envs.reset(seed=seed)[1]["episode_frame_number"]


def games(env_id: str, args: Args) -> tuple[int, int]:
    """Different numbers of no-ops, and of different games among them, by all their pictures."""
    envs, begun = no_ops(env_id, args.num_envs, 0)
    _, one_each = np.unique(begun, return_index=True)
    rng = np.random.default_rng(args.seed)
    pictures = [hashlib.sha256() for _ in one_each]
    running = np.ones(len(begun), bool)
    for _ in range(args.steps):
        action = np.full(len(begun), rng.integers(envs.single_action_space.n))
        obs, _, terminated, truncated, _ = envs.step(action)
        for picture, i in zip(pictures, one_each):
            if running[i]:
                picture.update(obs[i, -1])
        running &= ~(terminated | truncated)
    envs.close()
    return len(one_each), len({picture.digest() for picture in pictures})


def peers_no_ops(env_id: str, number: int, seed: int) -> np.ndarray:
    """Of stable-baselines3's environments, (number,): the frames before FIRE and action 2, if the game has these."""
    importlib.import_module("ale_py")  # registers its games
    from stable_baselines3.common.env_util import make_atari_env

    envs = make_atari_env(env_id, n_envs=number, seed=seed)
    envs.reset()
    fire = "FIRE" == envs.envs[0].unwrapped.get_action_meanings()[1]
    begun = [env.unwrapped.ale.getEpisodeFrameNumber() - 8 * fire for env in envs.envs]
    envs.close()
    return np.array(begun)


def by_start(runs: tuple[Path, ...]) -> list[dict]:
    """One line an experiment: of each start the mean return and the games, and the mean of the starts' means."""
    returns, env_ids = defaultdict(lambda: defaultdict(list)), set()
    for run in runs:
        summary = read_json(run / "summary.json")
        check(is_complete(run) and "eval_returns" in summary, f"{run} is no finished run")
        env_ids.add(summary["env_id"])
        check(len(env_ids) == 1, f"--runs are of several games: {', '.join(sorted(env_ids))}")
        check("NoFrameskip" in summary["env_id"], f"{run} is of no NoFrameskip game")
        number, seed = summary["eval_episodes"], summary["seed"] * 10_007 % 2**30 + 2**30
        if "sb3" in summary["algo"]:
            begun = peers_no_ops(summary["env_id"], number, seed)
        else:
            envs, begun = no_ops(summary["env_id"], number, seed)
            envs.close()
        for start, value in zip(begun % 4, summary["eval_returns"]):
            returns[summary["args"]["exp_name"]][start].append(value)
    lines = []
    everyones = sorted({start for starts in returns.values() for start in starts})
    for name, starts in sorted(returns.items()):
        line = {"exp_name": name}
        for start in everyones:
            values = starts.get(start)
            line[f"start {start}"] = f"{np.mean(values):.1f} ({len(values)})" if values else ""
        lines.append(line | {"all starts alike": float(np.mean([*map(np.mean, starts.values())]))})
    return lines


def main(args: Args) -> None:
    check_least(1, args, "steps", "num_envs")
    check_least(0, args, "seed")
    lines = by_start(args.runs)
    for game in () if args.runs else args.games:
        numbers, different = games(f"{game}NoFrameskip-v4", args)
        lines.append({"game": game, "no-ops": numbers, "different games": different})
    print(markdown(lines))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
