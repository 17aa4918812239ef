"""Are parallel environments copies of one another? python benchmarks/studies/classic/same_environments.py

Each library makes --num-envs environments its usual way, with seed S and then with S + 1, and gives all of them equal
actions. A column counts different states: 8 of 8 is as it should be, 1 of 8 means that all are one environment.
Prints a Markdown table, and on stderr what is not installed. RLlib has an environment of its own
(benchmarks/peers/requirements-rllib.txt), where the others are left out.
"""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import tyro
from plainrl_tools.common import ROOT, check, check_env, check_least, load


@dataclass
class Args:
    env_id: str = "CartPole-v1"  # with Discrete actions, in Gymnasium and in EnvPool
    num_envs: int = 8  # parallel environments
    seed: int = 1
    steps: int = 300  # long enough that every environment was reset on the way


def gymnasium_sync(args: Args, seed: int):
    envs = gym.make_vec(args.env_id, args.num_envs, vectorization_mode="sync")
    return envs.reset(seed=seed)[0], lambda action: envs.step(action)[0]


def gymnasium_async(args: Args, seed: int):
    envs = gym.make_vec(args.env_id, args.num_envs, vectorization_mode="async")
    return envs.reset(seed=seed)[0], lambda action: envs.step(action)[0]


def gymnasium_one_seed(args: Args, seed: int):
    envs = gym.make_vec(args.env_id, args.num_envs, vectorization_mode="sync")
    return envs.reset(seed=[seed] * args.num_envs)[0], lambda action: envs.step(action)[0]


def sb3(args: Args, seed: int, kind: str):
    from stable_baselines3.common import env_util, vec_env

    envs = env_util.make_vec_env(
        args.env_id, args.num_envs, seed=seed, vec_env_cls=getattr(vec_env, kind)
    )
    return envs.reset(), lambda action: envs.step(action)[0]


def envpool_seeded(args: Args, seed: int):
    import envpool

    envs = envpool.make_gymnasium(args.env_id, num_envs=args.num_envs, seed=seed)
    return envs.reset()[0], lambda action: envs.step(action)[0]


def envpool_unseeded(args: Args, seed: int):
    import envpool

    envs = envpool.make_gymnasium(args.env_id, num_envs=args.num_envs)
    return envs.reset(seed=seed)[0], lambda action: envs.step(action)[0]


def rllib(args: Args, seed: int):
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    config = PPOConfig().environment(args.env_id).debugging(seed=seed)
    config = config.env_runners(num_env_runners=0, num_envs_per_env_runner=args.num_envs)
    envs = SingleAgentEnvRunner(config=config, worker_index=1).env
    return envs.reset(seed=seed)[0], lambda action: envs.step(action)[0]


def ours(args: Args, seed: int):
    algo = load(ROOT / "algos" / "ppo.py")
    start = seed * 10_007 % 2**30  # as in train()
    envs, obs = algo.make_envs(algo.Args(env_id=args.env_id), "auto", args.num_envs, start)
    return obs, lambda action: envs.step(action)[0]


SIDES: dict[str, Callable] = {
    "Gymnasium `SyncVectorEnv`, `reset(seed=S)`": gymnasium_sync,
    "Gymnasium `AsyncVectorEnv`, `reset(seed=S)`": gymnasium_async,
    "Gymnasium `SyncVectorEnv`, `reset(seed=[S] * 8)`": gymnasium_one_seed,
    "stable-baselines3 `make_vec_env(seed=S)`, `DummyVecEnv`": lambda *a: sb3(*a, "DummyVecEnv"),
    "the same, `SubprocVecEnv`": lambda *a: sb3(*a, "SubprocVecEnv"),
    "EnvPool `make(seed=S)`": envpool_seeded,
    "EnvPool `make()`, then `reset(seed=S)`": envpool_unseeded,
    "RLlib's environment runner, `reset(seed=S)`": rllib,
    "`algos/`, `--seed S`": ours,
}


def states(side: Callable, args: Args, seed: int) -> list[np.ndarray]:
    """First states, and those after --steps equal actions: (num_envs, ...) each, rounded for float32."""
    first, step = side(args, seed)
    first = np.array(first)  # some libraries write the next states into it
    for action in np.random.default_rng(0).integers(0, 2, args.steps):
        last = step(np.full(args.num_envs, action))
    return [np.round(obs, 5).reshape(args.num_envs, -1) for obs in (first, last)]


def different(rows: np.ndarray) -> int:
    return len(np.unique(rows, axis=0))


def row(side: Callable, args: Args) -> list[str]:
    """Cells: different states at first and at last, the same again with the same seed, first states shared with the
    next seed."""
    first, last = states(side, args, args.seed)
    again = all(map(np.array_equal, states(side, args, args.seed), (first, last)))
    after, _ = states(side, args, args.seed + 1)
    shared = 2 * args.num_envs - different(np.concatenate([first, after]))
    shared -= 2 * args.num_envs - different(first) - different(after)  # within one seed
    cells = f"{different(first)} of {args.num_envs}", f"{different(last)} of {args.num_envs}"
    return [*cells, "yes" if again else "no", f"{shared} of {args.num_envs}"]


def main(args: Args) -> None:
    check_least(1, args, "num_envs", "steps")
    check_least(0, args, "seed")
    words = f"--env-id {args.env_id} has no Discrete actions"
    check(hasattr(check_env(args.env_id), "n"), words)
    logging.disable(logging.WARNING)  # of Ray
    titles = "made and seeded by", "different at first", f"after {args.steps} steps"
    titles += "same seed, same run", "first states shared with seed S + 1"
    print(f"| {' | '.join(titles)} |", "|---|--:|--:|---|--:|", sep="\n")
    for name, side in SIDES.items():
        try:
            print(f"| {name} | {' | '.join(row(side, args))} |", flush=True)
        except ImportError as error:
            print(f"left out: {name} ({error})", file=sys.stderr)


if __name__ == "__main__":
    main(tyro.cli(Args))
