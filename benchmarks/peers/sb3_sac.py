"""SAC, TD3 or DDPG of stable-baselines3 or SBX with the settings of our file, as a run folder like ours.

python benchmarks/peers/sb3_sac.py --env-id HalfCheetah-v5
python benchmarks/peers/sb3_sac.py --algo TD3 --exp-name sb3_td3 --env-id HalfCheetah-v5
python benchmarks/peers/sb3_sac.py --library sbx --exp-name sbx_sac   # needs: pip install sbx-rl
"""

import importlib.util
from dataclasses import asdict, dataclass
from typing import Literal

import tyro
from plainrl_tools.common import ROOT, check, check_env, load


@dataclass
class Args:
    algo: Literal["SAC", "TD3", "DDPG"] = "SAC"  # class of the library
    library: Literal["sb3", "sbx"] = "sb3"  # sbx: its JAX twin
    exp_name: str = "sb3_sac"  # name of this experiment, part of the run folder's name
    env_id: str = "HalfCheetah-v5"  # a Gymnasium id with Box observations and actions
    seed: int = 1  # seeds Python, NumPy, PyTorch and every environment
    total_timesteps: int = 1_000_000  # environment steps
    learning_starts: int | None = None  # default: that of our file
    torch_threads: int = 1  # CPU threads of PyTorch
    eval_episodes: int = 100  # episodes of the evaluation, one in each of as many environments
    runs_dir: str = "runs"  # the run folder is created in here


def settings_of(flags: dict, algo: str) -> dict:
    """Our flags as keywords of the library, which has one learning rate for all networks."""
    settings = {
        "n_envs": flags["num_envs"],
        "learning_rate": flags["q_lr"],
        "buffer_size": flags["buffer_size"],
        "learning_starts": flags["learning_starts"],
        "batch_size": flags["batch_size"],
        "tau": flags["tau"],
        "gamma": flags["gamma"],
        "train_freq": 1,
        "gradient_steps": 1,
        "policy_kwargs": {"net_arch": [256, 256]},
    }
    if algo == "SAC":
        settings["ent_coef"] = "auto" if flags["autotune"] else flags["alpha"]
    if algo == "TD3":
        settings["policy_delay"] = flags["policy_frequency"]
        settings["target_policy_noise"] = flags["policy_noise"]
        settings["target_noise_clip"] = flags["noise_clip"]
    return settings


def train(args: Args) -> dict:
    import numpy as np
    from sb3_ppo import train_on
    from stable_baselines3.common.noise import NormalActionNoise

    found = args.library == "sb3" or importlib.util.find_spec("sbx")
    check(found, "--library sbx needs a package: pip install sbx-rl")
    file = ROOT / "algos" / f"{args.algo.lower()}_continuous.py"
    flags = asdict(load(file).Args())
    if args.learning_starts is not None:
        flags["learning_starts"] = args.learning_starts
    settings = settings_of(flags, args.algo)
    if args.algo != "SAC":
        shape = check_env(args.env_id).shape
        scale = flags["exploration_noise"] * np.ones(shape)
        settings["action_noise"] = NormalActionNoise(np.zeros(shape), scale)
    library = "sbx" if args.library == "sbx" else "stable_baselines3"
    return train_on(args, args.algo, settings, library)


if __name__ == "__main__":
    train(tyro.cli(Args))
