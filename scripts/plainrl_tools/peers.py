"""What the benchmarks and the peers' runners share: settings of the peers, and the returns that count as learned."""

from statistics import mean

# RL Baselines3 Zoo's tuned settings, hyperparams/ at commit 22e3ff2; what it leaves out is the library's default
ZOO = {
    "BipedalWalker-v3": {
        "n_envs": 32, "norm_obs": True, "norm_reward": True, "n_steps": 2048, "batch_size": 64, "n_epochs": 10,
        "gamma": 0.999, "gae_lambda": 0.95, "ent_coef": 0.0, "learning_rate": 3e-4, "clip_range": 0.18,
    },
    "Pendulum-v1": {
        "n_envs": 4, "n_steps": 1024, "batch_size": 64, "n_epochs": 10, "gamma": 0.9, "gae_lambda": 0.95,
        "ent_coef": 0.0, "learning_rate": 1e-3, "clip_range": 0.2, "use_sde": True, "sde_sample_freq": 4,
    },
    "LunarLanderContinuous-v3": {
        "n_envs": 16, "n_steps": 1024, "batch_size": 64, "n_epochs": 4, "gamma": 0.999, "gae_lambda": 0.98,
        "ent_coef": 0.01,
    },
    "HalfCheetah-v5": {  # the Zoo's of v4
        "n_envs": 1, "norm_obs": True, "norm_reward": True, "n_steps": 512, "batch_size": 64, "n_epochs": 20,
        "gamma": 0.98, "gae_lambda": 0.92, "ent_coef": 0.000401762, "learning_rate": 2.0633e-05, "clip_range": 0.1,
        "max_grad_norm": 0.8, "vf_coef": 0.58096, "policy_kwargs": {
            "log_std_init": -2, "ortho_init": False, "activation_fn": "ReLU",
            "net_arch": {"pi": [256, 256], "vf": [256, 256]},
        },
    },
}  # fmt: skip
# DQN learns from the first thousand steps on, with the exploration of later, so that a measurement has what the long
# rest of a run has.
LATE = {"buffer_size": 20_000, "learning_starts": 1000, "start_e": 0.01}
# Breakout: as many updates as published, each of a quarter of the rows. Pong: each row is used twice, and clips less.
FAST = {"update_epochs": 1, "num_minibatches": 16, "learning_rate": 5e-4, "clip_vloss": False}
FAST_PONG = FAST | {"num_envs": 16, "update_epochs": 2, "clip_coef": 0.2}
GOALS = {
    "HalfCheetah-v5": 3000.0,
    "BipedalWalker-v3": 250.0,
    "LunarLanderContinuous-v3": 200.0,
    "Pendulum-v1": -200.0,
    "BreakoutNoFrameskip-v4": 30.0,
    "PongNoFrameskip-v4": 18.0,
}
TIME_LIMITS = {  # steps of an episode
    "HalfCheetah-v5": 1000,
    "BipedalWalker-v3": 1600,
    "LunarLanderContinuous-v3": 1000,
    "Pendulum-v1": 200,
}
WINDOW = 20_000  # steps
GAMES = 100_000  # the same of Atari: with 20,000 one game of 258 points lifts the mean of 20 poor games over the goal


def with_activation(settings: dict, side: str) -> dict:
    """A copy of the settings; an activation named by a word becomes what the library (side "sb3" or "sbx") takes."""
    kwargs = dict(settings.get("policy_kwargs", {}))
    if "activation_fn" not in kwargs:
        return dict(settings)
    name = kwargs["activation_fn"]
    if side == "sbx":
        import flax.linen

        kwargs["activation_fn"] = getattr(flax.linen, name.lower())
    else:
        import torch.nn

        kwargs["activation_fn"] = getattr(torch.nn, name)
    return settings | {"policy_kwargs": kwargs}


def is_atari(env_id: str) -> bool:
    return env_id.startswith("ALE/") or "NoFrameskip" in env_id


def identical(flags: dict) -> dict:
    """Ours as keywords for the peers, from the flags a run of ours recorded. The learning rate stays constant."""
    return {
        "n_envs": flags["num_envs"], "n_steps": flags["num_steps"], "n_epochs": flags["update_epochs"],
        "batch_size": flags["num_envs"] * flags["num_steps"] // flags["num_minibatches"],
        "norm_obs": flags["norm_obs"], "norm_reward": flags["norm_reward"],
        "learning_rate": flags["learning_rate"], "gamma": flags["gamma"], "gae_lambda": flags["gae_lambda"],
        "clip_range": flags["clip_coef"], "clip_range_vf": flags["clip_coef"] if flags["clip_vloss"] else None,
        "normalize_advantage": flags["norm_adv"], "ent_coef": flags["ent_coef"], "target_kl": flags["target_kl"],
        "vf_coef": flags["vf_coef"] / 2,  # of half the squared error, in ours
        "max_grad_norm": flags["max_grad_norm"],
    }  # fmt: skip


def identical_case(env_id: str, algo: str, flags: dict) -> dict:
    """Ours as keywords for stable-baselines3's agents. Learning rate and exploration stay constant."""
    if algo == "PPO" and not is_atari(env_id):
        return identical(flags)
    shared = {key: flags[key] for key in ("gamma", "max_grad_norm", "learning_rate")} | {
        "n_envs": flags["num_envs"]
    }
    if algo == "DQN":  # its train_freq counts steps of all environments together as one
        updates = flags["num_envs"] / flags["train_frequency"]
        return shared | {
            "buffer_size": flags["buffer_size"], "batch_size": flags["batch_size"], "tau": flags["tau"],
            "learning_starts": flags["learning_starts"], "target_update_interval": flags["target_network_frequency"],
            "train_freq": max(1, round(1 / updates)), "gradient_steps": max(1, round(updates)),
            "exploration_initial_eps": flags["start_e"], "exploration_final_eps": flags["end_e"],
        } | ({
            "optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False},
        } if is_atari(env_id) else {"policy_kwargs": {"net_arch": [128, 128]}})  # fmt: skip
    shared |= {key: flags[key] for key in ("ent_coef", "vf_coef")} | {"n_steps": flags["num_steps"]}
    if algo == "A2C":
        return shared | {"rms_prop_eps": flags["rms_eps"]}
    shared["vf_coef"] /= 2  # of half the squared error, in ours
    return shared | {
        "n_epochs": flags["update_epochs"], "gae_lambda": flags["gae_lambda"], "clip_range": flags["clip_coef"],
        "batch_size": flags["num_envs"] * flags["num_steps"] // flags["num_minibatches"],
        "clip_range_vf": flags["clip_coef"] if flags["clip_vloss"] else None,
        "normalize_advantage": flags["norm_adv"], "target_kl": flags["target_kl"],
    }  # fmt: skip


def window_of(env_id: str, num_envs: int, least: int = WINDOW) -> int:
    """Steps in which each of num_envs environments ends an episode; of Atari, about 130 games of Breakout."""
    return max(least, num_envs * TIME_LIMITS[env_id] if env_id in TIME_LIMITS else GAMES)


def is_there(goal: float, curve: list[tuple[int, float, float]], window: int) -> bool:
    """Whether the last `window` steps of a curve have a mean return of at least goal. Its points are
    (step, seconds, mean return of the episodes that ended since the point before)."""
    last = curve[-1][0]
    values = [value for step, _, value in curve if step > last - window]
    return last >= window and mean(values) >= goal
