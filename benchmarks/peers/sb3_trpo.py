"""TRPO of sb3-contrib with the settings of our trpo_continuous.py, as a run folder like ours.

    python benchmarks/peers/sb3_trpo.py --env-id Walker2d-v5

Its KL is a mean over the dimensions of the action, ours the sum, which is the KL of the policies: its limit and damping
are ours divided by their number (docs/trust-region.md).
"""

import math
from dataclasses import asdict, dataclass

import tyro
from plainrl_tools.common import ROOT, check_env, load


@dataclass
class Args:
    exp_name: str = "sb3_trpo"  # name of this experiment, part of the run folder's name
    env_id: str = "Walker2d-v5"  # a Gymnasium id with Box observations and actions
    seed: int = 1  # seeds Python, NumPy, PyTorch and every environment
    total_timesteps: int = 1_000_000  # environment steps
    torch_threads: int = 1  # CPU threads of PyTorch
    eval_episodes: int = 100  # episodes of the evaluation, one in each of as many environments
    runs_dir: str = "runs"  # the run folder is created in here


def ours(flags: dict, action_dim: int) -> dict:
    """Our defaults as sb3-contrib's keywords. Its line search has ten steps of 0.8, as ours."""
    rollout = flags["num_envs"] * flags["num_steps"]
    return {
        "n_envs": flags["num_envs"],
        "n_steps": flags["num_steps"],
        "batch_size": rollout // flags["num_minibatches"],
        "n_critic_updates": flags["update_epochs"],
        "learning_rate": flags["learning_rate"],
        "gamma": flags["gamma"],
        "gae_lambda": flags["gae_lambda"],
        "normalize_advantage": flags["norm_adv"],
        "norm_obs": True,
        "norm_reward": flags["norm_reward"],
        "target_kl": flags["max_kl"] / action_dim,
        "cg_max_steps": flags["cg_steps"],
        "cg_damping": flags["cg_damping"] / action_dim,
    }


def train(args: Args) -> dict:
    from plainrl_tools.peers import with_activation
    from sb3_ppo import NETWORKS, train_on

    flags = asdict(load(ROOT / "algos" / "trpo_continuous.py").Args())
    settings = ours(flags, math.prod(check_env(args.env_id).shape))
    networks = NETWORKS | {"log_std_init": math.log(flags["init_std"])}
    # of Adam, ours is 1e-8; its value loss is the squared error and ours half of it
    settings["policy_kwargs"] = networks | {"optimizer_kwargs": {"eps": 2e-8}}
    return train_on(args, "TRPO", with_activation(settings, "sb3"), "sb3_contrib")


if __name__ == "__main__":
    train(tyro.cli(Args))
