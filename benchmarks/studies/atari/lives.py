"""What random play earns in the first life of a game and in later ones, by who begins the game.

    python benchmarks/studies/atari/lives.py

Rows: our files (FIRE and action 2 after the no-ops), the same with ale-py's own FIRE (one frame, before the no-ops),
and stable-baselines3's wrappers. Prints a Markdown table.
"""

import importlib
from dataclasses import dataclass

import numpy as np
import tyro
from plainrl_tools.common import ROOT, check, check_env, check_least, load


@dataclass
class Args:
    env_id: str = "BreakoutNoFrameskip-v4"  # a game with lives
    num_envs: int = 8  # parallel environments
    steps: int = 5000  # of each environment
    seed: int = 1  # of environments and actions


def ours(args: Args, **view):
    """Step by step: reward, is the life over, is the game, does the step count; each (num_envs,)."""
    algo = load(ROOT / "algos" / "ppo_atari.py")
    envs, _ = algo.make_envs(algo.Args(env_id=args.env_id), args.num_envs, args.seed, **view)
    if view:
        envs.steps_left[:] = 0  # ale-py has begun the game
    rng, over = np.random.default_rng(args.seed), np.zeros(args.num_envs, bool)
    while True:
        action = rng.integers(envs.single_action_space.n, size=args.num_envs)
        _, reward, terminated, truncated, info = envs.step(action)
        counts = ~(over | info["scripted"])
        over = terminated | truncated
        if view:
            envs.steps_left[over] = 0
        yield reward, info["life_lost"] | over, over, counts


def stable_baselines3(args: Args):
    importlib.import_module("ale_py")  # registers its games
    from stable_baselines3.common.env_util import make_atari_env

    envs = make_atari_env(args.env_id, n_envs=args.num_envs, seed=args.seed)
    envs.reset()
    rng = np.random.default_rng(args.seed)
    while True:
        _, reward, life_over, infos = envs.step(
            rng.integers(envs.action_space.n, size=args.num_envs)
        )
        over = np.array(["episode" in info for info in infos])
        yield reward, life_over, over, np.ones(args.num_envs, bool)


def lives(side, steps: int) -> dict[str, list[tuple[int, float]]]:
    """(steps, sum of the rewards' signs) of each life, of first and later ones."""
    found, played = {"first": [], "later": []}, None
    for _, (reward, life_over, over, counts) in zip(range(steps), side):
        if played is None:
            played, earned = np.zeros(len(over), int), np.zeros(len(over))
            first = np.ones(len(over), bool)
        played += counts
        earned += np.sign(reward) * counts
        for i in np.flatnonzero(life_over):
            found["first" if first[i] else "later"].append((int(played[i]), float(earned[i])))
        played[life_over], earned[life_over] = 0, 0
        first = np.where(life_over, over, first)
    return found


def main(args: Args) -> None:
    check_least(1, args, "num_envs", "steps")
    check_least(0, args, "seed")
    load(ROOT / "algos" / "ppo_atari.py")  # registers the games
    check_env(args.env_id)
    sides = {
        "our files": ours(args),
        "ale-py's own FIRE": ours(args, use_fire_reset=True),
        "stable-baselines3": stable_baselines3(args),
    }
    print("| who begins the game | first lives | steps | reward | later lives | steps | reward |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name, side in sides.items():
        cells = [name]
        for kind in lives(side, args.steps).values():
            check(kind, f"--steps {args.steps}: too few, no life or no game ended")
            steps, rewards = np.array(kind).T
            error = rewards.std() / len(rewards) ** 0.5
            cells += [f"{len(kind)}", f"{steps.mean():.1f}", f"{rewards.mean():.2f} ± {error:.2f}"]
        print(f"| {' | '.join(cells)} |")
    print("\n± is the standard error.")


if __name__ == "__main__":
    main(tyro.cli(Args))
