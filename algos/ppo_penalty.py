"""PPO with an adaptive KL penalty instead of the clipped surrogate, for Box actions.

    python algos/ppo_penalty.py --env-id BipedalWalker-v3

PPO: Schulman et al. 2017, arXiv:1707.06347, section 4. The loss adds beta * KL[old || new] (eq. 8),
where old is the policy of the rollout. After each update, beta is doubled if the KL exceeds
1.5 * --kl-target, and lowered if the KL is below --kl-target / 1.5.
The file is ppo_continuous.py apart from the lines tagged Penalty, and shares its deviations from
the paper. In addition:
1. Beta is multiplied by 0.84 to lower it (paper: 0.5), so that four such updates undo a doubling.
2. Beta stays between 1e-6 and 1e6, so that it can always recover.
3. --clip-coef is too large to clip anything. With --clip-coef 0.2, clip and penalty act together.
"""

import argparse
import copy  # Penalty: to keep the policy of the rollout
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import tyro
from torch.distributions import Normal
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

try:
    import envpool
except ImportError:  # no wheel for this platform: Gymnasium steps the environments instead
    envpool = None

# The one place for wrappers around gym.make's environment, innermost first, and for keyword
# arguments of gym.make. For example:
#   WRAPPERS = (partial(gym.wrappers.TransformReward, func=lambda reward: 0.1 * reward),)
#   ENV_KWARGS = {"g": 9.81}
# EnvPool takes neither: with any of them Gymnasium steps the environments, in training as in
# evaluation. For a fair comparison, run the baseline with --env-backend gymnasium as well. Logged
# returns are sums of the rewards that the wrappers return.
WRAPPERS = ()
ENV_KWARGS = {}

CHECKPOINT_FORMAT = 1  # changes when this file can no longer read the checkpoints it wrote before


@dataclass
class Args:
    exp_name: str = Path(__file__).stem  # name of the experiment, part of the run folder's name
    seed: int = 1  # seeds Python, NumPy, PyTorch and every environment
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"  # auto uses CUDA if it is available
    torch_threads: int = 1  # CPU threads of PyTorch; networks this small are slower with more
    runs_dir: str = "runs"  # parent of the run folder
    resume: str = ""  # run folder to continue; flags given with it replace the saved ones
    checkpoint_frequency: int = 20_000  # steps between checkpoints
    keep_checkpoints: int = 0  # keep this many of the last checkpoints, as checkpoint-STEP.pt
    eval_frequency: int = 0  # steps between evaluations; 0 evaluates only at the end
    eval_episodes: int = 100  # episodes of an evaluation, each in an environment of its own
    eval_max_steps: int = 50_000  # an evaluation truncates longer episodes
    capture_video: bool = False  # record the first 3 episodes of every evaluation
    track: bool = False  # log to Weights & Biases as well
    wandb_project_name: str = "plainrl"  # W&B project
    wandb_entity: str | None = None  # W&B user or team
    compile: bool = False  # torch.compile policy, advantages and loss; CUDA graphs on a GPU
    env_id: str = "BipedalWalker-v3"  # Gymnasium or EnvPool id with Box observations and actions
    env_backend: Literal["auto", "gymnasium", "envpool"] = "auto"  # for training
    num_envs: int = 64  # parallel environments
    total_timesteps: int = 1_000_000  # steps of all environments
    learning_rate: float = 5e-4  # of Adam
    anneal_lr: bool = True  # anneal the learning rate linearly to zero over --total-timesteps
    num_steps: int = 32  # steps of each environment in a rollout
    gamma: float = 0.995  # discount factor
    gae_lambda: float = 0.95  # lambda of generalized advantage estimation
    num_minibatches: int = 32  # minibatches per epoch
    update_epochs: int = 5  # passes over a rollout
    activation: Literal["Tanh", "SiLU"] = "Tanh"  # of the hidden layers
    init_std: float = 0.6  # initial standard deviation of the policy
    norm_obs: bool = True  # standardise observations by running statistics
    norm_reward: bool = True  # divide rewards by the discounted return's standard deviation
    norm_adv: bool = False  # standardise the advantages of each minibatch
    bootstrap_truncation: bool = True  # off: treat truncation as termination, a common mistake
    kl_target: float = 0.01  # Penalty: the KL per update that beta aims at; not --target-kl
    init_beta: float = 1.0  # Penalty: coefficient of the KL in the first update
    beta_decay: float = 0.84  # Penalty: factor of beta after too small a KL; the paper's is 0.5
    clip_coef: float = 1e6  # Penalty: epsilon of both clips; 1e6 clips nothing
    clip_vloss: bool = False  # clip the change of the value by --clip-coef too
    ent_coef: float = 0.0  # entropy coefficient
    vf_coef: float = 0.25  # value loss coefficient
    max_grad_norm: float = 0.5  # gradients are clipped to this norm
    target_kl: float | None = None  # end an update if an epoch's last minibatch exceeds this KL

    def __post_init__(self):
        self.runs_dir = os.path.expanduser(self.runs_dir)  # shells leave --runs-dir=~/runs as it is
        name = self.exp_name
        is_text = name.isprintable() and name.strip() != ""
        if not is_text or len(name.encode()) > 150:
            wrong = f"--exp-name {name[:150]!r} must be printable, 1 to 150 bytes in UTF-8"
            raise ValueError(f"{wrong}; without it, the file's name is used")
        largest = {"num_envs": 10_000, "eval_episodes": 10_000, "torch_threads": 1024}
        fractions = ("gamma", "gae_lambda")
        # A flag whose default is 0 may be 0. So may these
        may_be_zero = ("seed", "eval_frequency", "keep_checkpoints")
        may_be_zero += ("ent_coef", "vf_coef", *fractions)
        fractions += ("beta_decay",)  # Penalty: at most 1, and not 0
        for name, value in asdict(self).items():
            flag = f"--{name.replace('_', '-')} {value}"
            if type(value) not in (int, float):  # text and switches
                continue
            zero_is_allowed = name in may_be_zero or getattr(Args, name) == 0
            if value == 0 and zero_is_allowed:
                continue
            least = "at least 0" if zero_is_allowed else "above 0"
            if not 0 < value < 2**32:  # excludes NaN and infinity; 2**32 is NumPy's limit for seeds
                raise ValueError(f"{flag} must be {least} and below 2**32")
            if value > largest.get(name, value):
                raise ValueError(f"{flag} must be at most {largest[name]}")
            if name in fractions and value > 1:
                raise ValueError(f"{flag} must be at most 1")
        batch_size = self.num_envs * self.num_steps
        batch = f"{batch_size} steps (--num-envs {self.num_envs} x --num-steps {self.num_steps})"
        # In one step all environments could be resetting (see make_envs): no sample would remain
        if self.num_steps < 2:
            raise ValueError(f"--num-steps {self.num_steps} must be at least 2")
        if batch_size > self.total_timesteps:
            total = f"--total-timesteps {self.total_timesteps}"
            raise ValueError(
                f"{total} is less than one rollout of {batch}. Lower --num-envs or --num-steps"
            )
        if batch_size % self.num_minibatches or batch_size == self.num_minibatches:
            # A single sample has no standard deviation for --norm-adv
            wrong = f"--num-minibatches {self.num_minibatches} must divide the batch of {batch}"
            divisors = [n for n in range(1, batch_size) if batch_size % n == 0]
            nearest = min(divisors, key=lambda n: abs(n - self.num_minibatches))
            raise ValueError(f"{wrong} into equal parts of at least 2. Try {nearest}")


class DropInfo(gym.Wrapper):
    """Discards the environment's info: vector environments fail if an entry changes its type."""

    def reset(self, **kwargs):
        obs, _ = self.env.reset(**kwargs)
        return obs, {}

    def step(self, action):
        obs, reward, terminated, truncated, _ = self.env.step(action)
        return obs, reward, terminated, truncated, {}


def make_envs(args: Args, backend: str, num_envs: int, seed: int, video_dir=None):
    """Vector environment in NEXT_STEP mode, seeded seed, seed + 1, ..., and its first observation.

    In this mode the step after an episode's end only resets the environment ("autoreset step"):
    its action is ignored, and it belongs to no episode. The observation before it is the
    episode's true last one.
    """

    def make_env(index: int):
        records_video = video_dir is not None and index < 3
        render_mode = {"render_mode": "rgb_array"} if records_video else {}
        env = gym.make(args.env_id, **render_mode, **ENV_KWARGS)
        # Extend WRAPPERS, not this function: EnvPool would train without a wrapper added here
        for wrapper in WRAPPERS:
            env = wrapper(env)
        if records_video:
            env = gym.wrappers.RecordVideo(env, f"{video_dir}/env-{index}", lambda n: n == 0)
        return DropInfo(env)

    if backend == "envpool":
        envs = envpool.make_gymnasium(args.env_id, num_envs=num_envs, seed=seed)
        obs, _ = envs.reset()  # EnvPool takes seeds only when it is constructed
    else:
        envs = gym.vector.SyncVectorEnv([partial(make_env, index) for index in range(num_envs)])
        obs, _ = envs.reset(seed=seed)
    if envs.metadata["autoreset_mode"] != gym.vector.AutoresetMode.NEXT_STEP:
        raise ValueError(f"{backend} does not use NEXT_STEP mode; try --env-backend gymnasium")
    return envs, flatten(obs)


def choose_backend(args: Args, evaluation: bool) -> str:
    """EnvPool for training, as it is faster; Gymnasium for evaluations, to be comparable.

    If the preferred one lacks the environment, the other is used.
    """
    in_envpool = envpool is not None and args.env_id in envpool.list_all_envs()
    only_in_envpool = in_envpool and args.env_id not in gym.registry
    if WRAPPERS or ENV_KWARGS:
        if args.env_backend == "envpool":
            raise ValueError("EnvPool takes no WRAPPERS or ENV_KWARGS; use --env-backend auto")
        if only_in_envpool:
            name, _, _ = args.env_id.rpartition("-v")
            versions = [env_id for env_id in gym.registry if env_id.startswith(f"{name}-v")]
            wrong = "only EnvPool has this task, and it takes no WRAPPERS or ENV_KWARGS"
            raise ValueError(f"{wrong}; versions in Gymnasium: {', '.join(versions) or 'none'}")
        return "gymnasium"
    if args.env_backend == "gymnasium" and only_in_envpool:
        raise ValueError("only EnvPool has this task; use --env-backend auto")
    if evaluation:
        return "envpool" if only_in_envpool else "gymnasium"
    if args.env_backend == "envpool" and envpool is None:
        raise ValueError("--env-backend envpool requires a package: pip install envpool")
    if args.env_backend == "envpool" and not in_envpool:
        raise ValueError("EnvPool does not have this environment; use --env-backend auto")
    if args.env_backend == "auto":
        return "envpool" if in_envpool else "gymnasium"
    return args.env_backend


def flatten(obs) -> np.ndarray:
    """Observations (n, ...), or a dictionary of them in the order of its keys, as (n, obs_dim)."""
    if isinstance(obs, dict):
        return np.concatenate([flatten(obs[key]) for key in sorted(obs)], axis=1)
    if isinstance(obs, tuple):
        way_out = "add gym.wrappers.FlattenObservation to WRAPPERS, or, where the length varies"
        way_out += " (Sequence, Graph), gym.wrappers.TransformObservation into a Box"
        raise ValueError(f"Tuple, Sequence, Graph or Text observations: {way_out}")
    return obs.reshape(len(obs), -1).astype(np.float32)


class RunningMeanStd(nn.Module):
    """Running mean and variance (Chan et al. 1983), as buffers: checkpoints contain them."""

    def __init__(self, *shape: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.register_buffer("count", torch.zeros(()))

    def update(self, samples):
        """Merge the statistics of samples (n, *shape) into the running ones."""
        delta = samples.mean(0) - self.mean
        weight = len(samples) / (self.count + len(samples))
        batch_var = samples.var(0, correction=0)
        # var becomes (1 - w) * var + w * batch_var + w * (1 - w) * delta**2, with w the weight
        self.var += weight * (batch_var - self.var + delta**2 * (1 - weight))
        self.mean += weight * delta
        self.count += len(samples)


def layer_init(layer: nn.Linear, std: float = 2**0.5) -> nn.Linear:
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """Gaussian policy, value network, and the statistics of observations and returns."""

    def __init__(self, obs_dim: int, action_space: gym.spaces.Box, args: Args):
        super().__init__()
        self.args = args
        self.action_space = action_space
        self.action_dim = int(np.prod(action_space.shape))
        self.actor_mean = self.mlp(obs_dim, self.action_dim, std=0.01)
        self.critic = self.mlp(obs_dim, 1, std=1.0)
        logstd = torch.full([self.action_dim], args.init_std).log()
        self.actor_logstd = nn.Parameter(logstd)
        self.obs_rms = RunningMeanStd(obs_dim)
        self.return_rms = RunningMeanStd()
        # For checkpoints. In float32, as MPS has no float64; action_space has the exact bounds
        self.register_buffer("action_low", torch.from_numpy(action_space.low).float())
        self.register_buffer("action_high", torch.from_numpy(action_space.high).float())
        self.register_buffer("beta", torch.tensor(float(args.init_beta)))  # Penalty: in checkpoints

    def mlp(self, in_dim: int, out_dim: int, std: float) -> nn.Sequential:
        """Two hidden layers; `std` is the gain of the last layer's orthogonal initialisation."""
        activation = getattr(nn, self.args.activation)
        return nn.Sequential(
            layer_init(nn.Linear(in_dim, 64)),
            activation(),
            layer_init(nn.Linear(64, 64)),
            activation(),
            layer_init(nn.Linear(64, out_dim), std),
        )

    def normalize(self, obs):
        """Raw observations (..., obs_dim) to the networks' input, called x everywhere."""
        if not self.args.norm_obs:
            return obs
        std = (self.obs_rms.var + 1e-8).sqrt()
        return ((obs - self.obs_rms.mean) / std).clamp(-10, 10)

    def get_value(self, x):
        return self.critic(x).squeeze(-1)  # (..., obs_dim) -> (...)

    def get_action(self, x, action=None):
        """x (n, obs_dim) -> unclipped action (n, action_dim), logprob (n,) and entropy (n,)."""
        mean = self.actor_mean(x)  # which evaluate() plays
        std = self.actor_logstd.exp()
        policy = Normal(mean, std, validate_args=False)  # train() checks for NaN itself
        if action is None:
            action = policy.sample()
        logprob = policy.log_prob(action).sum(-1)  # the dimensions are independent
        entropy = policy.entropy().sum(-1)
        return action, logprob, entropy

    def get_kl(self, old, x):  # Penalty: section 4
        """KL[old || self] in nats, the mean over the inputs x (n, obs_dim)."""
        old_policy = Normal(old.actor_mean(x), old.actor_logstd.exp(), validate_args=False)
        new_policy = Normal(self.actor_mean(x), self.actor_logstd.exp(), validate_args=False)
        return torch.distributions.kl_divergence(old_policy, new_policy).sum(-1).mean()

    def to_env(self, action) -> np.ndarray:
        """Actions (n, action_dim) clipped to their bounds, in the shape of the action space."""
        low = self.action_space.low
        high = self.action_space.high
        action = action.cpu().numpy().reshape(-1, *low.shape)
        return action.clip(low, high)


def compute_gae(rewards, values, terminateds, dones, gamma, gae_lambda):
    """Advantages (T, N) of arXiv:1506.02438 eq. 16, from values (T + 1, N) and the rest (T, N)."""
    # values[t + 1] is that of the true next state, also where an episode ends (see make_envs). A
    # terminal state is worth nothing, a truncated one its value. The recursion stops at both.
    next_values = values[1:] * (1 - terminateds)
    deltas = rewards + gamma * next_values - values[:-1]
    decay = gamma * gae_lambda * (1 - dones)
    advantages = torch.zeros_like(values)
    for t in reversed(range(len(rewards))):
        advantages[t] = deltas[t] + decay[t] * advantages[t + 1]
    return advantages[:-1]


def ppo_loss(agent: Agent, args: Args, x, action, old_logprob, advantage, target, old_value):
    """Loss of a minibatch of tensors (n, ...), and its metrics by name."""
    _, logprob, entropy = agent.get_action(x, action)
    value = agent.get_value(x)
    assert logprob.shape == old_logprob.shape == advantage.shape == value.shape == target.shape
    if args.norm_adv:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)

    # Policy loss, PPO eq. 7
    logratio = logprob - old_logprob
    ratio = logratio.exp()
    clipped_ratio = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
    policy_loss = -torch.min(ratio * advantage, clipped_ratio * advantage).mean()

    # Value loss
    value_error = (value - target) ** 2
    if args.clip_vloss:
        clipped_value = old_value + (value - old_value).clamp(-args.clip_coef, args.clip_coef)
        value_error = torch.max(value_error, (clipped_value - target) ** 2)
    value_loss = 0.5 * value_error.mean()

    entropy = entropy.mean()
    loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * entropy
    metrics = {
        "losses/policy_loss": policy_loss,
        "losses/value_loss": value_loss,
        "losses/entropy": entropy,
        "losses/approx_kl": (ratio - 1 - logratio).mean(),  # k3 of joschu.net/blog/kl-approx.html
        "losses/clipfrac": ((ratio - 1).abs() > args.clip_coef).float().mean(),
    }
    return loss, metrics


def update(agent: Agent, optimizer, args: Args, batch: dict, loss_fn=ppo_loss) -> dict:
    """Epochs of minibatches over a batch of tensors (samples, ...); mean metrics by name."""
    num_samples = len(batch["x"])
    parameters = list(agent.parameters())
    old = copy.deepcopy(agent).requires_grad_(False)  # Penalty: the policy of the rollout
    history = []
    for _ in range(args.update_epochs):
        # The batch lacks the autoreset steps, so its size varies. The first of the shuffled samples
        # are repeated at the end, as CUDA graphs require minibatches of one size.
        order = torch.randperm(num_samples)
        order = order[torch.arange(args.num_envs * args.num_steps) % num_samples]
        for indices in order.to(batch["x"].device).chunk(args.num_minibatches):
            minibatch = {name: tensor.index_select(0, indices) for name, tensor in batch.items()}
            loss, metrics = loss_fn(agent, args, **minibatch)
            loss += agent.beta * agent.get_kl(old, minibatch["x"])  # Penalty: PPO eq. 8
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, args.max_grad_norm)
            optimizer.step()
            # stack() copies: the next call of a CUDA graph overwrites these tensors
            history.append(torch.stack(list(metrics.values())).detach())
        if args.target_kl is not None and metrics["losses/approx_kl"] > args.target_kl:
            break
    kl = agent.get_kl(old, batch["x"])  # Penalty: of the whole update, PPO section 4
    if kl > 1.5 * args.kl_target:
        agent.beta.mul_(2).clamp_(max=1e6)
    elif kl < args.kl_target / 1.5:
        agent.beta.mul_(args.beta_decay).clamp_(min=1e-6)
    means = torch.stack(history).mean(0).tolist()
    return dict(zip(metrics, means))


def check_finite(agent: Agent, obs, rewards, scalars: dict, global_step, saved_step, run_dir):
    """Exit if a number is not finite, or too large. obs and rewards are (steps, environments, ...)."""
    numbers = {
        "observations": obs,
        "rewards": torch.from_numpy(rewards),
        "losses": torch.tensor(list(scalars.values())),
        "weights": nn.utils.parameters_to_vector(agent.parameters()),
    }
    for name, tensor in numbers.items():
        problem = "NaN or infinity"
        way_out = "try a lower learning rate"
        is_right = tensor.isfinite()
        if name in ("observations", "rewards"):
            problem = "NaN, None, or a number too large for statistics in float32 (limit 1e15)"
            way_out = "correct the environment"
            is_right = tensor.abs() < 1e15  # sums of larger squares overflow
        if not is_right.all():
            where = name
            if name in ("observations", "rewards"):
                first = (~is_right).nonzero()[0]  # its indices: step, environment, ...
                where = f"{name} of environment {first[1]}"
            checkpoint = f"the last checkpoint in {run_dir} is at step {saved_step}"
            if saved_step == 0:
                checkpoint = f"{run_dir} has no checkpoint yet"
            sys.exit(f"{problem} in the {where} before step {global_step}; {way_out}; {checkpoint}")


@torch.inference_mode()
def evaluate(agent: Agent, envs, obs, signals=()) -> np.ndarray:
    """Raw return of each environment's first episode, with mean actions and frozen statistics.

    A signal in the list `signals` ends it at once; the returns are then incomplete.
    """
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, bool)
    for _ in range(agent.args.eval_max_steps):
        x = agent.normalize(torch.from_numpy(obs).to(agent.action_low.device))
        action = agent.to_env(agent.actor_mean(x))
        obs, reward, terminated, truncated, _ = envs.step(action)
        obs = flatten(obs)
        returns += np.where(running, reward, 0.0)
        running &= ~(terminated | truncated)
        if signals or not running.any():
            break
    if running.any() and not signals:
        print(f"{running.sum()} episodes truncated at --eval-max-steps", file=sys.stderr)
    envs.close()
    if not np.isfinite(returns).all():
        env = np.flatnonzero(~np.isfinite(returns))[0]
        wrong = f"NaN or infinity in the return of evaluation environment {env}"
        sys.exit(f"{wrong}; its rewards must be finite numbers (None counts as NaN)")
    return returns


def write(path: Path, content):
    """Write atomically: a killed process leaves the old file or the new one, never half of one."""
    partial_path = path.with_name("unfinished.tmp")  # one name: the next write replaces a leftover
    try:
        if path.suffix == ".pt":
            torch.save(content, partial_path)
        else:
            partial_path.write_text(json.dumps(content, indent=2) + "\n")
        os.replace(partial_path, path)
    except (OSError, RuntimeError) as error:  # torch.save() on a full disk: a RuntimeError
        partial_path.unlink(missing_ok=True)
        sys.exit(f"{path} cannot be written: {error}. Is the disk full or write-protected?")


def save_checkpoint(args: Args, run_dir: Path, content: dict):
    """Write checkpoint.pt, and keep the last --keep-checkpoints as checkpoint-STEP.pt as well."""
    write(run_dir / "checkpoint.pt", content)
    if args.keep_checkpoints == 0:
        return
    global_step = content["global_step"]
    write(run_dir / f"checkpoint-{global_step}.pt", content)
    names = [path.stem.removeprefix("checkpoint-") for path in run_dir.glob("checkpoint-*.pt")]
    steps = [int(name) for name in names if name.isdecimal()]  # other names are the user's
    # A run that was resumed at an earlier step has files of later steps: they are removed first
    steps.sort(key=lambda step: (step <= global_step, step))  # False is first
    for step in steps[: -args.keep_checkpoints]:
        Path(run_dir, f"checkpoint-{step}.pt").unlink(missing_ok=True)


def save_best(run_dir: Path, record: dict, agent: Agent, eval_returns: np.ndarray):
    """Write best.pt if the mean return is higher than the one in it, also in a resumed run."""
    path = run_dir / "best.pt"
    mean = float(eval_returns.mean())
    if path.exists():
        try:
            best_mean = torch.load(path, map_location="cpu", weights_only=True)["eval_return_mean"]
        except Exception as error:
            sys.exit(f"{path} cannot be read: {error!r:.120}. Remove it, then use --resume")
        if mean <= best_mean:
            return
    write(path, {**record, "agent": agent.state_dict(), "eval_return_mean": mean})


def load_checkpoint(run_dir: str) -> dict:
    """The checkpoint of a run. It is loaded as data, so that it cannot execute code."""
    path = Path(run_dir, "checkpoint.pt")
    if not Path(run_dir).is_dir():
        sys.exit(f"--resume {run_dir}: no such folder; give the folder of a run, such as runs/RUN")
    if not path.exists():
        sys.exit(f"--resume {run_dir} has no checkpoint yet; start the run again without --resume")
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        script = f"{saved['algo']}.py"
    except Exception as error:  # torch.load() raises errors of many types
        wrong = f"{path} is damaged or not a checkpoint ({type(error).__name__})"
        sys.exit(f"--resume {run_dir}: {wrong}; give the folder of another run")
    if saved["algo"] != Path(__file__).stem:
        sys.exit(f"--resume {run_dir} was written by {script}; resume it with that file")
    file_format = saved.get("format", 1)  # checkpoints without the number are of format 1
    if file_format != CHECKPOINT_FORMAT:
        wrong = f"has format {file_format}, and this file reads format {CHECKPOINT_FORMAT}"
        sys.exit(f"--resume {run_dir} {wrong}; use the copy of {script} in that folder")
    if "optimizer" not in saved and "optimizers" not in saved:  # best.pt has none
        sys.exit(f"--resume {run_dir}: {path} holds weights alone; use the run's own checkpoint")
    config = Path(run_dir, "config.json")
    try:
        if config.exists():  # it is newer if a resumed run was killed before it saved
            saved["args"] = json.loads(config.read_text())["args"]
        # Flags that are newer than the run get their defaults
        saved["args"] = asdict(Args(**saved["args"]))
    except Exception as error:  # what is wrong in a file can be of any type
        wrong = f"the saved arguments do not fit this file ({error!r:.120})"
        sys.exit(f"--resume {run_dir}: {wrong}; use the copy of {script} in that folder")
    return saved


def load_weights(agent: Agent, weights: dict, run_dir: str):
    """Load the weights of a checkpoint into the agent."""
    try:
        agent.load_state_dict(weights)
    except RuntimeError as error:
        _, first, *_ = str(error).splitlines()
        wrong = f"the weights do not fit Agent in this file ({first.strip()})"
        sys.exit(f"--resume {run_dir}: {wrong}; use the copy of the script in that folder")


def check_resume(args: Args, saved: dict):
    """Exit if the flags contradict the checkpoint."""
    if saved["global_step"] >= args.total_timesteps:
        at_step = f"--resume {args.resume} is at step {saved['global_step']}"
        sys.exit(f"{at_step} and has ended; raise --total-timesteps to continue it")
    for name in ("env_id", "activation", "norm_obs"):  # with other values the weights are wrong
        value = saved["args"][name]
        if getattr(args, name) != value:
            sys.exit(f"--resume {args.resume}: {name} must stay {value}")


def check_video(args: Args, backend: str):
    """Exit if the evaluations of this backend cannot be recorded."""
    if backend == "envpool":
        sys.exit(f"--capture-video: only EnvPool has {args.env_id}, and it renders no frames")
    if not find_spec("moviepy"):
        sys.exit("--capture-video requires a package: pip install moviepy")
    try:
        env = gym.make(args.env_id, render_mode="rgb_array", **ENV_KWARGS)
        for wrapper in WRAPPERS:
            env = wrapper(env)
        env.reset(seed=args.seed)
        env.action_space.seed(args.seed)
        frames = [env.render()]
        done = False
        while len(frames) < 10 and not done:  # later frames can differ from the first
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            done = terminated or truncated
            frames.append(env.render())
        env.close()
    except Exception as error:  # renderers raise errors of any type
        sys.exit(f"--capture-video cannot render {args.env_id}: {error!r}")
    for frame in frames:
        if not isinstance(frame, np.ndarray):
            sys.exit(f"--capture-video needs render_mode rgb_array, which {args.env_id} lacks")
        is_rgb = frame.ndim == 3 and frame.shape[2] in (3, 4)  # 4: with transparency
        is_same_size = frame.shape == frames[0].shape
        if frame.dtype != np.uint8 or not is_rgb or not is_same_size:
            needed = "--capture-video needs frames (height, width, 3) of uint8, all of one size"
            got = f"render() of {args.env_id} returns {frame.shape} of {frame.dtype}"
            sys.exit(f"{needed}; {got}. Mend it, or add a wrapper to WRAPPERS")
    if not env.metadata.get("render_fps", 30):  # 30 is Gymnasium's default
        needed = 'a number as metadata["render_fps"]'
        sys.exit(f"--capture-video needs {needed}; set it in {args.env_id}")


def check_env(args: Args, seed: int):
    """Raise a ValueError that says what is wrong if the environment breaks Gymnasium's rules.

    Gymnasium warns of most mistakes, but the run would fail later, with an error about an array.
    """
    env = gym.make(args.env_id, **ENV_KWARGS)
    with gym.make(args.env_id, **ENV_KWARGS) as another:
        if another.unwrapped is env.unwrapped:
            raise ValueError("its entry point must make a new object in each call, not reuse one")
    limit = env.spec.max_episode_steps
    if not isinstance(WRAPPERS, (tuple, list)):
        raise ValueError("WRAPPERS must be a tuple; a single wrapper needs a comma: (WRAPPER,)")
    for wrapper in WRAPPERS:
        env = wrapper(env)
        if isinstance(env, gym.wrappers.TimeLimit) and limit and env._max_episode_steps > limit:
            wrong = f"TimeLimit in WRAPPERS cannot lengthen its time limit of {limit} steps"
            raise ValueError(f'{wrong}; use ENV_KWARGS = {{"max_episode_steps": NUMBER}} instead')
    layer = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, (gym.wrappers.NormalizeObservation, gym.wrappers.NormalizeReward)):
            name = type(layer).__name__
            wrong = f"its wrapper {name} has statistics that evaluations do not share"
            way_out = "remove it; PPO files have --norm-reward and, for vectors, --norm-obs instead"
            raise ValueError(f"{wrong}; {way_out}")
        layer = layer.env
    env.action_space.seed(seed)
    try:
        first_obs, _ = env.reset(seed=seed, options=None)
        done = False
        steps = 0
        deadline = time.time() + 5
        # Some environments fail only at the end of an episode; slow ones are not played so far
        while not done and steps < 200 and time.time() < deadline:
            next_obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            done = terminated or truncated
            steps += 1
    except Exception as error:
        source = traceback.extract_tb(error.__traceback__)[-1].filename  # of the line that failed
        if source != __file__ and "gymnasium" not in Path(source).parts:
            raise  # the environment's own error
        rules = "reset(seed, options) must return (obs, info), and step(action) must return"
        results = "(obs, reward, bool terminated, bool truncated, info)"
        raise ValueError(f"its first episode fails: {error!r}. {rules} {results}") from error
    env.close()
    if reward is None or np.shape(reward) != ():
        wrong = f"a reward of type {type(reward).__name__} and shape {np.shape(reward)}"
        raise ValueError(f"step() returns {wrong}; it must be a single number")
    spaces = {"observation": env.observation_space}
    if isinstance(env.observation_space, gym.spaces.Dict):
        spaces = env.observation_space.spaces
    for call, obs in (("reset()", first_obs), (f"step() number {steps}", next_obs)):
        parts = obs if isinstance(obs, dict) else {"observation": obs}
        for name, space in spaces.items():
            if not isinstance(space, gym.spaces.Box):
                continue
            part = np.asarray(parts[name])
            can_cast = np.can_cast(part.dtype, space.dtype, "same_kind")
            if part.shape != space.shape or not can_cast:
                wrong = f"{call} returns {name} of shape {part.shape} and type {part.dtype}"
                raise ValueError(f"{wrong}, but its space is {space}. Correct one of them")


def hint_for(env_id: str, error: Exception) -> str:
    """What to do about an environment that cannot be made, where the error does not say it."""
    module, _, name = env_id.rpartition(":")
    if "ALE/" in env_id or "NoFrameskip-v" in env_id:
        return ". Atari games are for ppo_atari.py and the other files with atari in their name"
    if module.startswith("."):
        return ". Add the module's folder to the variable PYTHONPATH, and write its name alone"
    if isinstance(error, ImportError) and module:
        return f". Install {module}, or add its folder to the variable PYTHONPATH"
    if isinstance(error, gym.error.NameNotFound) and "Did you mean" not in str(error):
        return f". Check that the id is MODULE:NAME, and that MODULE registers {name}"
    if isinstance(error, TypeError) and "environment creator" in str(error):
        return ". Put keyword arguments of the environment into ENV_KWARGS"
    *_, source = traceback.extract_tb(error.__traceback__)  # the line that raised the error
    folders = Path(source.filename).parts
    if source.filename == __file__ or "gymnasium" in folders or "importlib" in source.filename:
        return ""
    return f" ({type(error).__name__} in {source.filename}, line {source.lineno})"


def warn_of_bounds(args: Args, space: gym.spaces.Box):
    """Warn if a policy that begins near 0 tries few of the actions, or only a bound."""
    low = space.low.flatten()
    high = space.high.flatten()
    std = args.init_std
    largest = np.maximum(np.abs(low), np.abs(high))
    is_wide = (largest > 10) & (largest < 1e15)  # larger ones are no bounds
    is_apart = (low > std) | (high < -std)
    is_clipped = is_apart | (high < low + 0.1 * std)
    unusual = np.flatnonzero((is_wide | is_clipped) & (low < high))
    if len(unusual):
        i = unusual[0]
        effect = "most samples are clipped to a bound"
        if is_wide[i]:
            effect = "few of its values are tried"
        start = f"but begins near 0 (--init-std {std}): {effect}"
        way_out = "use ppo_squashed.py, or add gym.wrappers.RescaleAction to WRAPPERS"
        if largest.max() > 1e15:  # these need bounds
            way_out = "shift or scale it by gym.wrappers.TransformAction in WRAPPERS"
        bounds = f"{low[i]:g} to {high[i]:g}"
        wrong = f"action {i} is from {bounds}, {start}"
        print(f"--env-id {args.env_id}: {wrong}; {way_out}", file=sys.stderr)


def open_envs(args: Args, env_seed: int, global_step: int):
    """Training environments, their first observation, and the backend of the evaluations."""
    try:
        backend = choose_backend(args, evaluation=False)
        eval_backend = choose_backend(args, evaluation=True)
        if eval_backend == "gymnasium":
            check_env(args, env_seed + 2**30)  # a seed of the evaluations, not of training
        # Fail now, not after training
        eval_envs, eval_obs = make_envs(args, eval_backend, 1, env_seed)
        eval_envs.close()
        if args.capture_video:
            check_video(args, eval_backend)
        # A resumed run plays other episodes than those before
        envs, obs = make_envs(args, backend, args.num_envs, env_seed + global_step)
    except Exception as error:  # environments raise errors of any type
        reason = " ".join(str(error).split()).rstrip(".")  # in one line
        hint = hint_for(args.env_id, error)
        sys.exit(f"--env-id {args.env_id}: {reason}{hint}")
    obs_space = envs.single_observation_space
    obs_spaces = {"observation": obs_space}
    if isinstance(obs_space, gym.spaces.Dict):
        obs_spaces = obs_space.spaces
    for name, space in obs_spaces.items():
        if not isinstance(space, gym.spaces.Box):
            wrong = f"{name} is {space}, not a Box"
            way_out = "add gym.wrappers.FlattenObservation to WRAPPERS"
            sys.exit(f"--env-id {args.env_id}: {wrong}; {way_out}")
        if space.dtype == np.uint8 and len(space.shape) > 1:
            way_out = "use ppo_atari.py, ppo_pixels.py or (Box actions) ppo_pixels_continuous.py"
            sys.exit(f"--env-id {args.env_id}: {name} is an image; {way_out}")
    largest = np.abs(obs).max(initial=0)  # in float32, see flatten()
    if largest > 1e6:
        rounded = f"float32 rounds observations near {largest:.3g}"
        rounded += f" to multiples of {np.spacing(largest):.3g}"
        way_out = "if smaller changes matter, subtract a constant in a wrapper in WRAPPERS"
        print(f"--env-id {args.env_id}: {rounded}; {way_out}", file=sys.stderr)
    action_space = envs.single_action_space
    if isinstance(action_space, gym.spaces.Discrete):
        sys.exit(f"--env-id {args.env_id}: {action_space} actions; use ppo.py")
    if isinstance(action_space, (gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)):
        sys.exit(f"--env-id {args.env_id}: {action_space} actions; use ppo_multidiscrete.py")
    is_box = isinstance(action_space, gym.spaces.Box) and 0 not in action_space.shape
    if not is_box or action_space.dtype.kind != "f":
        way_out = "add a wrapper to WRAPPERS whose actions are a Box of at least one real number"
        sys.exit(f"--env-id {args.env_id}: {action_space} actions; {way_out}")
    warn_of_bounds(args, action_space)
    sizes = (*obs.shape[1:], *action_space.shape)
    eval_sizes = (*eval_obs.shape[1:], *eval_envs.single_action_space.shape)
    if sizes != eval_sizes:
        wrong = f"training has observations and actions of sizes {sizes}, evaluations {eval_sizes}"
        sys.exit(f"--env-id {args.env_id}: {wrong}; each environment must have the same spaces")
    gibibytes = obs.nbytes * args.num_steps / 2**30  # of the observations that a rollout stores
    if gibibytes > 8:
        memory = f"{gibibytes:.0f} GiB of observations; at most 8 are allowed"
        rollout = f"--num-envs {args.num_envs} x --num-steps {args.num_steps}"
        sys.exit(f"A rollout of {rollout} has {memory}. Lower --num-envs or --num-steps")
    # make_envs() has reset envs already. This wrapper needs no reset: its counters start at 0
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    return envs, obs, eval_backend


def open_run(args: Args, device: str, global_step: int):
    """Run folder, the record of the run that goes into all its files, and TensorBoard's writer."""
    if args.track:
        try:
            import wandb

            wandb.login()
        except Exception as error:  # no login or no network: exit before the run folder is made
            way_out = "Run `wandb login`, or set the variable WANDB_MODE=offline"
            sys.exit(f"--track cannot log in to Weights & Biases: {error!r}. {way_out}")
    name = f"{args.env_id}__{args.exp_name}__{args.seed}"
    name = name.replace("/", "-").replace(":", "-")
    timestamp = int(time.time())
    while True:
        run_dir = Path(args.resume) if args.resume else Path(args.runs_dir, f"{name}__{timestamp}")
        try:
            run_dir.mkdir(parents=True, exist_ok=bool(args.resume))
            break
        except OSError as error:
            if not os.path.isdir(run_dir):
                wrong = f"--runs-dir {args.runs_dir}: {error}"
                sys.exit(f"{wrong}. Choose a folder that can be written")
        timestamp += 1  # another run with these flags has started in this second
    script = run_dir / Path(__file__).name
    if script.resolve() != Path(__file__).resolve():  # equal if the run folder's copy is running
        try:
            shutil.copyfile(__file__, script)
        except OSError as error:
            if not args.resume:
                shutil.rmtree(run_dir)  # nothing was written but a part of the copy
            sys.exit(f"{script} cannot be written: {error}. Is the disk full or write-protected?")
    git = ["git", "-C", Path(__file__).resolve().parent, "describe", "--always", "--dirty"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    except OSError:  # git is not installed
        commit = ""
    record = {
        "algo": Path(__file__).stem,
        "format": CHECKPOINT_FORMAT,
        "env_id": args.env_id,
        "seed": args.seed,
        "device": device,
        "total_timesteps": args.total_timesteps,
        "args": asdict(args),
        "commit": commit or "unknown",
        "versions": {
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "gymnasium": gym.__version__,
            "envpool": envpool.__version__ if envpool else None,
        },
    }
    write(run_dir / "config.json", record)
    if args.track:
        wandb.init(
            project=args.wandb_project_name,
            entity=args.wandb_entity,
            id=re.sub("[:;,#?/']", "-", run_dir.resolve().name),  # W&B reserves these characters
            resume="allow",
            sync_tensorboard=True,
            config=asdict(args),
        )
    # A resumed run logs again what was logged after the last checkpoint. TensorBoard hides the
    # earlier points whose step is purge_step or more.
    writer = SummaryWriter(run_dir, purge_step=global_step + 1)
    writer.add_text("config", f"```\n{json.dumps(record, indent=2)}\n```", global_step)
    return run_dir, record, writer


def open_bar(args: Args, global_step: int) -> tqdm:
    """Progress bar; it is disabled without a terminal, and train() prints lines instead."""
    # The numbers come first, and the bar takes what is left of the line. tqdm puts a comma before
    # the postfix.
    layout = "{desc}{percentage:3.0f}% {n_fmt}/{total_fmt}{postfix} [{remaining}] {bar}"
    bar = tqdm(
        total=args.total_timesteps,
        initial=global_step,
        bar_format=layout,
        disable=None,
        dynamic_ncols=True,
    )
    bar.postfix = "no episode yet"
    if bar.disable:
        steps = args.checkpoint_frequency
        print(f"training; a line follows each checkpoint, every {steps} steps", flush=True)
    return bar


def print_step(bar: tqdm, global_step: int):
    """Without a terminal, and so without a progress bar, print a line at each checkpoint."""
    if bar.disable:
        print(f"step {global_step}/{bar.total}, {bar.postfix}", flush=True)


def close_run(run_dir: Path, finished: bool, global_step: int, signals, resources: tuple):
    """Close the resources, and exit if a signal has stopped the run before its end."""
    for resource in resources:
        resource.close()
    if not finished:
        print(f"stopped at step {global_step}; continue with --resume {run_dir}", file=sys.stderr)
        sys.exit(128 + signals[0])


def summarize(record: dict, train_returns, eval_returns: np.ndarray) -> dict:
    """What train() returns and summary.json holds; train_returns are the last 100 at most."""
    return {
        **record,
        "train_return_last100": float(np.mean(train_returns)) if train_returns else None,
        "eval_episodes": len(eval_returns),
        "eval_returns": eval_returns.tolist(),
        "eval_return_mean": eval_returns.mean(),
        "eval_return_std": eval_returns.std(),
    }


def choose_device(args: Args) -> str:
    device = args.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if not getattr(torch, device).is_available():  # torch.cpu, torch.cuda or torch.mps
        sys.exit(f"--device {device} is not available; use --device auto")
    default_compiler = "cl" if os.name == "nt" else "g++"
    compiler = os.environ.get("CXX", default_compiler)  # the one that torch.compile uses
    if args.compile and device == "cpu" and not shutil.which(compiler):
        sys.exit(f"--compile requires a C++ compiler: install {compiler}, or set the variable CXX")
    return device


def maybe_compile(function, args: Args):
    """The function, compiled if --compile is set; on a GPU it then runs as a CUDA graph."""
    if args.compile:
        return torch.compile(function, mode="reduce-overhead")
    return function


def seed_everything(seed: int):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def train(args: Args, signals=()) -> dict:
    """Train, evaluate, and return the summary.

    A signal handler may append to the list `signals`: the run then saves a checkpoint and exits.
    """
    # Set up
    if args.track and not find_spec("wandb"):
        sys.exit("--track requires a package: pip install wandb")
    device = choose_device(args)
    torch.set_num_threads(args.torch_threads)
    started = time.time()
    global_step = 0
    if args.resume:
        saved = load_checkpoint(args.resume)
        check_resume(args, saved)
        global_step = saved["global_step"]
        started -= saved["wall_time_s"]
    seed_everything((args.seed + global_step) % 2**32)  # a resumed run draws other numbers
    # Environment i gets the seed env_seed + i. The factor keeps runs with neighbouring --seed apart.
    env_seed = args.seed * 10_007 % 2**30  # evaluations add 2**30, to have seeds of their own
    envs, next_obs, eval_backend = open_envs(args, env_seed, global_step)
    agent = Agent(next_obs.shape[1], envs.single_action_space, args).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    if args.resume:
        load_weights(agent, saved["agent"], args.resume)
        moments = saved["optimizer"]["state"]  # the hyperparameters come from the flags
        optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    policy = maybe_compile(agent.get_action, args)
    gae = maybe_compile(compute_gae, args)
    loss_fn = maybe_compile(ppo_loss, args)
    run_dir, record, writer = open_run(args, device, global_step)

    # Storage of a rollout: what the networks need on the device, the rest in NumPy
    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros(args.num_steps + 1, *next_obs.shape, device=device)
    actions = torch.zeros(*shape, agent.action_dim, device=device)
    logprobs = torch.zeros(shape, device=device)
    rewards = np.zeros(shape, np.float32)
    terminateds = np.zeros(shape, np.float32)
    dones = np.zeros(shape, np.float32)
    valids = np.zeros(shape, bool)  # False for autoreset steps
    discounted_returns = np.zeros(shape, np.float32)

    done = np.zeros(args.num_envs, bool)
    discounted_return = np.zeros(args.num_envs)  # of the episode so far; it scales rewards
    seconds_per_step = []  # of each iteration
    saved_step = global_step
    bar = open_bar(args, global_step)

    while global_step < args.total_timesteps:
        first_step = global_step
        iteration_started = time.perf_counter()
        episodes = []  # (return, length) of those that end in this rollout
        learning_rate = args.learning_rate
        if args.anneal_lr:
            learning_rate *= 1 - global_step / args.total_timesteps
        optimizer.param_groups[0]["lr"] = learning_rate  # there is one group

        # Rollout
        for t in range(args.num_steps):
            obs[t] = torch.from_numpy(next_obs)
            with torch.inference_mode():
                x = agent.normalize(obs[t])
                actions[t], logprobs[t], _ = policy(x)
            valid = ~done  # the step after the end of an episode only resets
            action = agent.to_env(actions[t])
            next_obs, reward, terminated, truncated, info = envs.step(action)
            next_obs = flatten(next_obs)
            done = terminated | truncated
            if done.any():
                episode = info["episode"]
                episodes.extend(zip(episode["r"][done], episode["l"][done]))
            discounted_return = (discounted_return * args.gamma + reward) * valid  # 0 at a reset
            rewards[t] = reward
            terminateds[t] = terminated if args.bootstrap_truncation else done
            dones[t] = done
            valids[t] = valid
            discounted_returns[t] = discounted_return
            global_step += int(valid.sum())
        obs[-1] = torch.from_numpy(next_obs)

        # Advantages. b_rewards and its like are the rollout's arrays on the device, (T, N)
        b_valid = torch.from_numpy(valids).to(device)
        b_rewards = torch.from_numpy(rewards).to(device)
        if args.norm_reward:
            agent.return_rms.update(torch.from_numpy(discounted_returns[valids]).to(device))
            std = (agent.return_rms.var + 1e-8).sqrt()
            b_rewards = (b_rewards / std).clamp(-10, 10)
        b_terminateds = torch.from_numpy(terminateds).to(device)
        b_dones = torch.from_numpy(dones).to(device)
        x = agent.normalize(obs)
        with torch.no_grad():
            # In NEXT_STEP mode obs[t + 1] is the true next state, also where an episode ends
            values = agent.get_value(x)
            advantages = gae(b_rewards, values, b_terminateds, b_dones, args.gamma, args.gae_lambda)
        targets = advantages + values[:-1]

        # Update on all steps but the autoreset steps: (T, N, ...) -> (samples, ...)
        batch = {
            "x": x[:-1][b_valid],
            "action": actions[b_valid],
            "old_logprob": logprobs[b_valid],
            "advantage": advantages[b_valid],
            "target": targets[b_valid],
            "old_value": values[:-1][b_valid],
        }
        scalars = update(agent, optimizer, args, batch, loss_fn)
        agent.obs_rms.update(obs[:-1][b_valid])  # the next rollout is the first to use them
        check_finite(agent, obs, rewards, scalars, global_step, saved_step, run_dir)

        # Log
        seconds = time.perf_counter() - iteration_started
        seconds_per_step.append(seconds / (global_step - first_step))
        sps = float(1 / np.mean(seconds_per_step[1:] or seconds_per_step))  # without the warm-up
        residuals = batch["target"] - batch["old_value"]
        unexplained = residuals.var() / batch["target"].var()
        scalars["losses/explained_variance"] = 1 - float(unexplained)
        scalars["charts/learning_rate"] = learning_rate
        scalars["charts/SPS"] = sps
        scalars["charts/beta"] = float(agent.beta)  # Penalty: for the next update
        if episodes:
            mean_return, mean_length = np.mean(episodes, axis=0)
            scalars["charts/episodic_return"] = mean_return
            scalars["charts/episodic_length"] = mean_length
            recent_return = np.mean(envs.return_queue)  # of the last 100 episodes
            bar.postfix = f"return {recent_return:.1f}, SPS {sps:.0f}"
        for name, value in scalars.items():
            writer.add_scalar(name, value, global_step)
        bar.update(min(global_step, args.total_timesteps) - bar.n)

        # Evaluate
        finished = global_step >= args.total_timesteps
        every = args.eval_frequency or args.total_timesteps  # 0 evaluates at the end only
        evaluates = finished or global_step // every > first_step // every
        if evaluates:
            bar.set_description_str(f"evaluating {args.eval_episodes} episodes ")
            video_dir = run_dir / f"videos/step-{global_step}" if args.capture_video else None
            eval_seed = env_seed + 2**30
            envs_and_obs = make_envs(args, eval_backend, args.eval_episodes, eval_seed, video_dir)
            eval_returns = evaluate(agent, *envs_and_obs, signals)
            del envs_and_obs  # if not freed now, old MuJoCo renderers would blacken the next videos
        interrupted = bool(signals)
        if evaluates and interrupted:
            global_step = first_step  # a resumed run repeats this iteration, from these weights
            evaluates = finished = False
        elif evaluates:
            writer.add_scalar("eval/episodic_return", eval_returns.mean(), global_step)
        writer.flush()

        # Save
        record["global_step"] = global_step
        record["wall_time_s"] = time.time() - started
        record["sps"] = sps
        if evaluates and args.eval_frequency > 0:
            save_best(run_dir, record, agent, eval_returns)
        if finished:
            summary = summarize(record, envs.return_queue, eval_returns)
            write(run_dir / "summary.json", summary)
        if finished or interrupted or global_step - saved_step >= args.checkpoint_frequency:
            state = {"agent": agent.state_dict(), "optimizer": optimizer.state_dict()}
            save_checkpoint(args, run_dir, {**record, **state})
            saved_step = global_step
            print_step(bar, global_step)
        bar.set_description_str(f"checkpoint {saved_step} ")
        if interrupted:
            break

    close_run(run_dir, finished, global_step, signals, (bar, envs, writer))
    print(f"{run_dir}: evaluation {eval_returns.mean():.1f} +- {eval_returns.std():.1f}")
    return summary


def check_flags(words: list[str]):
    """Exit if there are flags that only CleanRL has, or switches with a value, and say what to do."""
    replaced = {  # flags of CleanRL, and what takes their place
        "gym-id": "use --env-id",
        "save-model": "leave it out: every run saves checkpoint.pt",
        "upload-model": "leave it out: nothing is uploaded",
        "hf-entity": "leave it out: nothing is uploaded",
        "torch-deterministic": "leave it out: on a CPU a seed fixes the run",
    }
    problems = []
    next_words = [*words[1:], "--"]  # no value follows the last word
    for word, next_word in zip(words, next_words):
        if not word.startswith("--"):
            continue
        flag, _, value = word.partition("=")
        if not value and not next_word.startswith("-"):
            value = next_word
        flag = flag.replace("_", "-")
        name = flag.removeprefix("--").removeprefix("no-")
        if name == "cuda":
            wants_cpu = flag == "--no-cuda" or value.lower() in ("false", "0")
            device = "cpu" if wants_cpu else "cuda"
            problems.append(f"{flag} is not a flag of this file; use --device {device}")
        elif name in replaced:
            problems.append(f"{flag} is not a flag of this file; {replaced[name]}")
        elif value and isinstance(getattr(Args, name.replace("-", "_"), None), bool):
            problems.append(f"{flag} takes no value: --{name} or --no-{name}")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    # EnvPool declares float64 bounds, and Gymnasium warns that it stores them as float32
    warnings.filterwarnings("ignore", ".*precision lowered by casting")
    check_flags(sys.argv[1:])
    # The defaults of a resumed run are its saved arguments, so --resume is parsed first
    first_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first_parser.add_argument("--resume")
    resume = first_parser.parse_known_args()[0].resume
    if resume == "":  # an unset variable of the shell
        sys.exit("--resume is empty; give the folder of a run, or leave the flag out")
    defaults = Args(**load_checkpoint(resume)["args"]) if resume else Args()
    args = tyro.cli(Args, default=defaults)
    signals = []

    def stop(number, frame):
        """Let train() save a checkpoint and exit; a second Ctrl-C ends the run at once."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if not signals:
            line = "stopping after this iteration; a running evaluation is left to the resumed run"
            second = "a second Ctrl-C ends at once and loses the steps since the last checkpoint"
            new_line = "\n" if sys.stderr.isatty() else ""  # the progress bar has not ended its own
            with suppress(OSError):  # the terminal may be closed
                os.write(2, f"{new_line}{line}; {second}\n".encode())  # print() may be at work
        signals.append(number)

    for name in ("SIGINT", "SIGTERM", "SIGUSR1"):  # Slurm sends SIGUSR1, which Windows lacks
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), stop)
    train(args, signals)
