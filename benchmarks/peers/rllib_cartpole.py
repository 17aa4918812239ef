"""PPO or DQN of RLlib on CartPole-v1 with RLlib's own tuned settings, as a run folder like ours.

    python -m venv rllib && rllib/bin/pip install -r benchmarks/peers/requirements-rllib.txt
    rllib/bin/python benchmarks/peers/rllib_cartpole.py --algo PPO --seed 1
    python scripts/plot.py runs           # reads it beside the runs of ppo.py and dqn.py

Settings: rllib/tuned_examples/ppo/cartpole_ppo.py and dqn/cartpole_dqn.py of Ray's repository, which stop at 200,000
steps; what they leave out is RLlib's default. Everything runs in one process, on the CPU.
"""

import json
import logging
import os
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import gymnasium as gym
import numpy as np
import tyro
from plainrl_tools.common import check, check_env, check_least, commit_of, one_line, writing


@dataclass
class Args:
    algo: Literal["PPO", "DQN"] = "PPO"  # of RLlib
    exp_name: str = ""  # name of this experiment, part of the run folder's name; default: rllib_ppo
    env_id: str = "CartPole-v1"  # the task that the settings are for
    seed: int = 1  # of everything that RLlib seeds
    total_timesteps: int = 200_000  # environment steps
    torch_threads: int = 1  # CPU threads of PyTorch
    eval_episodes: int = 100  # episodes of the evaluation, one in each of as many environments
    runs_dir: str = "runs"  # the run folder is created in here


def configuration(args: Args):
    """RLlib's config object."""
    from ray.rllib.algorithms.dqn import DQNConfig
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    if args.algo == "PPO":
        nets = {"fcnet_hiddens": [32], "fcnet_activation": "linear", "vf_share_layers": True}
        config = PPOConfig().training(
            gamma=0.99, lr=3e-4, num_epochs=6, vf_loss_coeff=0.01, use_kl_loss=True
        )
    else:
        nets = {"fcnet_hiddens": [256], "fcnet_activation": "tanh", "head_fcnet_hiddens": [256]}
        nets |= {"fcnet_bias_initializer": "zeros_", "head_fcnet_bias_initializer": "zeros_"}
        replay = {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 50_000}
        config = DQNConfig().training(
            lr=5e-4,
            train_batch_size_per_learner=32,
            replay_buffer_config=replay | {"alpha": 0.6, "beta": 0.4},
            n_step=(2, 5),
            double_q=True,
            dueling=True,
            epsilon=[(0, 1.0), (10_000, 0.02)],
        )
    config = config.environment(args.env_id).rl_module(model_config=DefaultModelConfig(**nets))
    return config.env_runners(num_env_runners=0).debugging(seed=args.seed, log_level="ERROR")


def evaluate(algorithm, args: Args) -> list[float]:
    """Returns of each environment's first episode, played greedily."""
    import torch
    from ray.rllib.core.columns import Columns

    module = algorithm.get_module()
    envs = gym.make_vec(args.env_id, args.eval_episodes, vectorization_mode="sync")
    obs, _ = envs.reset(seed=args.seed + 2**30)
    returns, running = np.zeros(args.eval_episodes), np.ones(args.eval_episodes, bool)
    while running.any():
        with torch.inference_mode():
            out = module.forward_inference({Columns.OBS: torch.from_numpy(obs).float()})
        greedy = out[Columns.ACTIONS if args.algo == "DQN" else Columns.ACTION_DIST_INPUTS]
        action = greedy if args.algo == "DQN" else greedy.argmax(-1)
        obs, reward, terminated, truncated, _ = envs.step(action.numpy())
        returns += np.where(running, reward, 0.0)
        running &= ~(terminated | truncated)
    envs.close()
    return returns.tolist()


def train(args: Args) -> dict:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
        import ray.rllib
    except ImportError as error:
        words = "RLlib is missing: pip install -r benchmarks/peers/requirements-rllib.txt"
        check(False, f"{words} ({one_line(error)})")
    check_env(args.env_id)
    check_least(1, args, "total_timesteps", "eval_episodes")
    import torch
    from torch.utils.tensorboard import SummaryWriter

    logging.disable(logging.WARNING)
    torch.set_num_threads(args.torch_threads or torch.get_num_threads())
    ray.init(num_cpus=1, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    algorithm = configuration(args).build_algo()
    started = time.time()
    args.exp_name = args.exp_name or f"rllib_{args.algo.lower()}"
    name = f"{args.env_id}__{args.exp_name}__{args.seed}__{int(started)}"
    run_dir = Path(args.runs_dir) / name
    with writing(f"--runs-dir {args.runs_dir}"):
        run_dir.mkdir(parents=True)
    shutil.copy(__file__, run_dir)
    commit = commit_of(Path(__file__))
    run = {"algo": Path(__file__).stem, "env_id": args.env_id, "seed": args.seed, "device": "cpu"}
    run |= {"versions": {"torch": str(torch.__version__), "ray": ray.__version__}}
    run |= {"gymnasium": gym.__version__, "commit": commit}
    run |= {"total_timesteps": args.total_timesteps, "args": asdict(args)}
    (run_dir / "config.json").write_text(json.dumps(run, indent=2) + "\n")
    writer = SummaryWriter(run_dir)
    step, begun = 0, None  # the clock of sps starts after the first iteration, as in ours
    while step < args.total_timesteps:
        result = algorithm.train()
        step = int(result["num_env_steps_sampled_lifetime"])
        value = result["env_runners"].get("episode_return_mean", np.nan)
        if np.isfinite(value):  # RLlib's is the mean of the last 100 episodes
            writer.add_scalar("charts/episodic_return", value, step)
        begun = begun or (time.perf_counter(), step)
    seconds = time.perf_counter() - begun[0]
    writer.close()
    returns = evaluate(algorithm, args)
    summary = run | {"global_step": step, "wall_time_s": time.time() - started}
    summary |= {"sps": (step - begun[1]) / max(seconds, 1e-9), "train_return_last100": float(value)}
    summary |= {"eval_episodes": args.eval_episodes, "eval_return_mean": float(np.mean(returns))}
    summary |= {"eval_return_std": float(np.std(returns)), "eval_returns": returns}
    (run_dir / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(
        f"{run_dir}: evaluation {np.mean(returns):.1f} +- {np.std(returns):.1f}, {summary['sps']:.0f} steps/s"
    )
    algorithm.stop()
    ray.shutdown()
    return summary


if __name__ == "__main__":
    train(tyro.cli(Args))
