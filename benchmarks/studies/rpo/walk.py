"""How trained walkers walk, undisturbed and disturbed: return, falls, worst episode, speed, entropy.

    python benchmarks/studies/rpo/walk.py runs/BipedalWalker-v3__* --output benchmarks/studies/rpo/results/NAME.csv
    python benchmarks/studies/rpo/walk.py runs/BipedalWalker-v3__* --noise 0 \
        --observation-noise 0.2 0.4 --output NAME.csv
    python benchmarks/studies/rpo/walk.py runs/BipedalWalker-v3__* --noise 0 --hull-mass 0.5 2 --output NAME.csv

Every run folder's final agent plays --episodes first episodes of as many BipedalWalker-v3 environments of Gymnasium, by
its policy's mode, undisturbed and under one disturbance at a time: Gaussian noise on the action, clipped to the action
space; Gaussian noise on the standardised observation; a heavier or lighter hull. Each counts as an environment of its
own in the long CSV that scripts/plot.py reads. A fall is an episode that ends with the hull on the ground. Runs of a
patched copy of a file (scripts/plainrl_tools/edits.py) need --algo-file, the file itself.
"""

from dataclasses import dataclass
from pathlib import Path

import enjoy
import numpy as np
import torch
import tyro
from plainrl_tools.common import check, check_least, check_output, is_complete, read_json, writing
from plainrl_tools.results import write_csv

COLUMNS = ("exp_name", "env_id", "seed", "step", "metric", "value", "commit")
STEPS_PER_SECOND = 50  # of the simulation


@dataclass
class Options:
    runs: tyro.conf.Positional[tuple[Path, ...]]  # run folders of BipedalWalker-v3
    output: Path = Path("benchmarks/studies/rpo/results/walk.csv")  # the long CSV
    algo_file: Path | None = None  # of the runs whose own file is not in algos/
    noise: tuple[float, ...] = (0.2, 0.4, 0.6)  # on actions, in [-1, 1]: standard deviation
    observation_noise: tuple[float, ...] = ()  # standard deviation, in those of each number so far
    hull_mass: tuple[float, ...] = ()  # times the mass and the inertia that the walker learned with
    episodes: int = 100  # for each run and disturbance
    seed: int = 2**30 + 2**29  # of the first environment: in no training and no run's evaluation


@torch.inference_mode()
def walk(
    module,
    args,
    weights: dict,
    episodes: int,
    seed: int,
    noise: float = 0,
    observation_noise: float = 0,
    hull_mass: float = 1,
) -> dict[str, float]:
    """Metrics of one agent over the first episodes of `episodes` environments."""
    envs, obs = module.make_envs(args, "gymnasium", episodes, seed)
    agent = module.Agent(obs.shape[1], envs.single_action_space, args)
    agent.load_state_dict(weights)
    generator = torch.Generator().manual_seed(seed)
    returns, steps, falls, distance, outside = np.zeros((5, episodes))
    running = np.ones(episodes, dtype=bool)
    starts = np.array([env.unwrapped.hull.position.x for env in envs.envs])
    for env in envs.envs:
        hull = env.unwrapped.hull
        for fixture in hull.fixtures:
            fixture.density *= hull_mass
        hull.ResetMassData()
    while running.any():
        seen = agent.normalize(torch.from_numpy(module.flatten(obs)))
        if observation_noise:
            seen = seen + observation_noise * torch.randn(seen.shape, generator=generator)
        mean = agent.actor_mean(seen)
        action = agent.to_env(mean + noise * torch.randn(mean.shape, generator=generator))
        obs, reward, terminated, truncated, _ = envs.step(action)
        returns += np.where(running, reward, 0.0)
        steps += running
        outside += np.where(running, (mean.abs() > 1).float().mean(1), 0.0)
        ended = running & (terminated | truncated)
        for i in np.flatnonzero(ended):
            falls[i] = envs.envs[i].unwrapped.game_over
            distance[i] = envs.envs[i].unwrapped.hull.position.x - starts[i]
        running &= ~ended
    envs.close()
    entropy = agent.get_action(seen)[2].mean()  # of the policy, whose mode walks
    speed = distance.sum() / (steps.sum() / STEPS_PER_SECOND)
    metrics = {"eval_return_mean": returns.mean(), "eval_return_median": np.median(returns)}
    metrics |= {
        "eval_return_min": returns.min(),
        "return_of_worst_tenth": np.sort(returns)[: -(-episodes // 10)].mean(),
    }
    metrics |= {"falls_percent": 100 * falls.mean(), "steps": steps.mean(), "speed_m_per_s": speed}
    metrics |= {"mode_outside_bounds_percent": 100 * outside.sum() / steps.sum()}
    return metrics | {"entropy": float(entropy)}


def main(options: Options) -> None:
    check(options.runs, "give run folders of BipedalWalker-v3")
    check_output("--output", options.output)
    check_least(1, options, "episodes")
    rows = []
    disturbances = {"": {}}
    disturbances |= {f"noise {x:g}": {"noise": x} for x in options.noise if x}
    disturbances |= {
        f"observation noise {x:g}": {"observation_noise": x} for x in options.observation_noise
    }
    disturbances |= {f"hull mass x{x:g}": {"hull_mass": x} for x in options.hull_mass}
    for run in options.runs:
        summary = read_json(run / "summary.json")
        right = is_complete(run) and summary.get("env_id") == "BipedalWalker-v3"
        check(right, f"{run} is no finished run of BipedalWalker-v3")
        own = enjoy.ROOT / "algos" / f"{summary['algo']}.py"
        module, args, weights = enjoy.load_run(run, None if own.is_file() else options.algo_file)
        for title, disturbance in disturbances.items():
            metrics = walk(module, args, weights, options.episodes, options.seed, **disturbance)
            env_id = ", ".join(["BipedalWalker-v3", *filter(None, [title])])
            print(f"{args.exp_name} seed {args.seed}, {title or 'undisturbed'}:", end=" ")
            print(", ".join(f"{name} {value:.1f}" for name, value in metrics.items()), flush=True)
            key = args.exp_name, env_id, args.seed, summary["global_step"]
            rows += [
                (*key, name, f"{value:.6g}", summary["commit"]) for name, value in metrics.items()
            ]
    with writing():
        write_csv(options.output, COLUMNS, rows)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
