"""What a young value function says about rare states (docs/classic.md).

    python benchmarks/studies/classic/rare_states.py

PPO learns for 5 rollouts on an environment that has not paid anything but -1 yet, so that all values are on their way
to the same one. The states of random play are sorted by how far they lie from their mean, in standard deviations, and
the values averaged over the nearest quarter, the second, the third, the next 20 % and the farthest 5 %.
"""

import contextlib
import io
import tempfile
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
import tyro
from plainrl_tools.common import ROOT, check, check_env, load

SHARES = 0.0, 0.25, 0.5, 0.75, 0.95, 1.0


@dataclass
class Options:
    env_id: str = "Acrobot-v1"
    seeds: tuple[int, ...] = (41, 42, 43)


def states_of_random_play(env_id: str) -> torch.Tensor:
    """(64 x 500, obs_dim)"""
    envs, generator = gym.make_vec(env_id, 64), np.random.default_rng(1)
    seen = [envs.reset(seed=5)[0]]
    while len(seen) < 500:
        seen.append(envs.step(generator.integers(envs.single_action_space.n, size=64))[0])
    return torch.tensor(np.concatenate(seen), dtype=torch.float32)


def values(algo, states: torch.Tensor, folder: str, **flags) -> torch.Tensor:
    """(len(states),) after 5 rollouts."""
    steps = 4 * algo.Args.num_envs * algo.Args.num_steps + 1  # the fifth rollout is the last
    args = algo.Args(
        total_timesteps=steps, anneal_lr=False, eval_episodes=1, runs_dir=folder, **flags
    )
    with contextlib.redirect_stdout(io.StringIO()):
        algo.train(args)
    (checkpoint,) = Path(folder).glob("*/checkpoint.pt")
    agent = algo.Agent(states.shape[1], gym.make(args.env_id).action_space, args)
    agent.load_state_dict(torch.load(checkpoint, weights_only=True)["agent"])
    with torch.no_grad():
        return agent.get_value(agent.normalize(states))


def main(options: Options) -> None:
    words = f"--env-id {options.env_id} has no Discrete actions"
    check(hasattr(check_env(options.env_id), "n"), words)
    algo = load(ROOT / "algos" / "ppo.py")
    states = states_of_random_play(options.env_id)
    distance = ((states - states.mean(0)) / states.std(0)).norm(dim=-1)
    edges = distance.quantile(torch.tensor(SHARES))
    print(
        "| activation | observations standardised | seed | nearest 25 % | to 50 % | to 75 % | to 95 % | farthest 5 % |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for activation, norm_obs, seed in product(("SiLU", "Tanh"), (True, False), options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            flags = {
                "env_id": options.env_id,
                "activation": activation,
                "norm_obs": norm_obs,
                "seed": seed,
            }
            value = values(algo, states, folder, **flags)
        parts = [
            value[(low <= distance) & (distance <= high)].mean() for low, high in pairwise(edges)
        ]
        cells = activation, "yes" if norm_obs else "no", seed, *(f"{value:.2f}" for value in parts)
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
