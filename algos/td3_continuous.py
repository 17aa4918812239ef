"""Twin Delayed Deep Deterministic policy gradient (TD3), for Box actions.

    python algos/td3_continuous.py --env-id HalfCheetah-v5

TD3: Fujimoto et al. 2018, arXiv:1802.09477. The policy is deterministic and follows the critic's
gradient with respect to the action, as in DDPG. The paper's three changes to DDPG:
1. Two critics are trained, and the smaller of their target values counts (section 4.2).
2. Policy and target networks are updated less often than the critics (section 5.2). The paper's d
   is --policy-frequency and --target-network-frequency: give both the same value.
3. The critics' targets use the target policy's action plus clipped noise (section 5.3).
This file is sac_continuous.py with the changes tagged "TD3:". What differs from the paper:
1. Networks, batch size and learning rates are those of the authors' later code (paper: 400 and 300
   units, 100 transitions, 1e-3).
2. --precision auto computes the layers between the first and the last in bfloat16 where the
   processor does so natively.
3. The environments' actions are scaled to [-1, 1], where policy, critics and noise see them.
4. Several environments can step at once. --updates-per-step counts the steps of all of them.
5. Truncation is not termination: a truncated episode bootstraps from its last observation.
6. The first 5,000 steps are random (paper: 1,000 or 10,000, by task).
7. A resumed run starts with an empty replay buffer, unless --save-replay has stored it.
"""

import argparse
import copy
import json
import math
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
from collections import defaultdict
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
    torch_threads: int = 1  # CPU threads of PyTorch; a second one helps little
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 where it is native
    runs_dir: str = "runs"  # parent of the run folder
    resume: str = ""  # run folder to continue; flags given with it replace the saved ones
    checkpoint_frequency: int = 20_000  # steps between checkpoints
    keep_checkpoints: int = 0  # keep this many of the last checkpoints, as checkpoint-STEP.pt
    save_replay: bool = False  # save the replay buffer with each checkpoint
    eval_frequency: int = 0  # steps between evaluations; 0 evaluates only at the end
    eval_episodes: int = 100  # episodes of an evaluation, each in an environment of its own
    eval_max_steps: int = 50_000  # an evaluation truncates longer episodes
    capture_video: bool = False  # record the first 3 episodes of every evaluation
    track: bool = False  # log to Weights & Biases as well
    wandb_project_name: str = "plainrl"  # W&B project
    wandb_entity: str | None = None  # W&B user or team
    compile: bool = False  # torch.compile the losses; CUDA graphs on a GPU
    env_id: str = "HalfCheetah-v5"  # Gymnasium or EnvPool id with Box observations and actions
    env_backend: Literal["auto", "gymnasium", "envpool"] = "auto"  # for training
    num_envs: int = 1  # parallel environments
    total_timesteps: int = 1_000_000  # steps of all environments
    policy_lr: float = 3e-4  # TD3: learning rate of the policy
    q_lr: float = 3e-4  # learning rate of the critics
    buffer_size: int = 1_000_000  # steps in the replay buffer
    gamma: float = 0.99  # discount factor
    tau: float = 0.005  # soft-update coefficient of the target networks
    target_network_frequency: int = 2  # TD3: updates of the critics per update of the targets
    batch_size: int = 256  # transitions per update
    learning_starts: int = 5_000  # random steps before the first update
    updates_per_step: float = 1.0  # critic updates per environment step
    policy_frequency: int = 2  # TD3: updates of the critics per update of the policy
    exploration_noise: float = 0.1  # TD3: standard deviation of the noise on training's actions
    policy_noise: float = 0.2  # TD3: standard deviation of the noise on the target policy's actions
    noise_clip: float = 0.5  # TD3: the noise on the target's actions is clipped to +- this

    def __post_init__(self):
        self.runs_dir = os.path.expanduser(self.runs_dir)  # shells leave --runs-dir=~/runs as it is
        name = self.exp_name
        is_text = name.isprintable() and name.strip() != ""
        if not is_text or len(name.encode()) > 150:
            wrong = f"--exp-name {name[:150]!r} must be printable, 1 to 150 bytes in UTF-8"
            raise ValueError(f"{wrong}; without it, the file's name is used")
        largest = {"num_envs": 10_000, "eval_episodes": 10_000, "torch_threads": 1024}
        fractions = ("gamma", "tau")
        # A flag whose default is 0 may be 0. So may these
        may_be_zero = ("seed", "eval_frequency", "keep_checkpoints", *fractions)
        may_be_zero += ("exploration_noise", "policy_noise", "noise_clip")  # TD3: 0 is allowed
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
        learning_starts = f"--learning-starts {self.learning_starts}"
        # The replay buffer holds rows, each with a step of every environment. Of four rows, the
        # newest has no next observation yet, nor has the last one before a resume. Two autoreset
        # steps (see make_envs) never follow each other. So there is always one to sample.
        if self.learning_starts < 4 * self.num_envs:
            least = f"{4 * self.num_envs} (4 x --num-envs {self.num_envs})"
            raise ValueError(f"{learning_starts} must be at least {least}")
        if self.learning_starts > self.buffer_size // self.num_envs * self.num_envs:
            buffer = f"--buffer-size {self.buffer_size} in rows of --num-envs {self.num_envs}"
            raise ValueError(f"{learning_starts} does not fit in {buffer}. Raise --buffer-size")
        if self.learning_starts >= self.total_timesteps:
            total = f"--total-timesteps {self.total_timesteps}"
            raise ValueError(f"{learning_starts} leaves no step of {total} to learn. Lower it")


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


class EnsembleLinear(nn.Module):
    """A linear layer of each critic, as one batched product: (k, n, in_dim) -> (k, n, out_dim).

    Other layers with parameters need a leading dimension k, too: the critics would share those of
    nn.LayerNorm.
    """

    def __init__(self, num_critics: int, in_dim: int, out_dim: int):
        super().__init__()
        bound = in_dim**-0.5  # the initialisation of nn.Linear
        weight = torch.empty(num_critics, in_dim, out_dim).uniform_(-bound, bound)
        bias = torch.empty(num_critics, 1, out_dim).uniform_(-bound, bound)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(self, x):
        return torch.baddbmm(self.bias, x, self.weight)


class Agent(nn.Module):
    """Deterministic policy and two critics. Actions are in [-1, 1]."""  # TD3: no temperature

    def __init__(self, obs_dim: int, action_space: gym.spaces.Box, args: Args, precision: str):
        super().__init__()
        self.args = args
        self.action_space = action_space
        self.bfloat16 = precision == "bfloat16"
        self.action_dim = int(np.prod(action_space.shape))
        self.actor = nn.Sequential(
            nn.Linear(obs_dim, 256),
            nn.ReLU(),
            nn.Linear(256, 256),
            nn.ReLU(),
            nn.Linear(256, self.action_dim),  # TD3: the action before tanh
        )
        self.num_critics = 2
        self.critics = nn.Sequential(
            EnsembleLinear(self.num_critics, obs_dim + self.action_dim, 256),
            nn.ReLU(),
            EnsembleLinear(self.num_critics, 256, 256),
            nn.ReLU(),
            EnsembleLinear(self.num_critics, 256, 1),
        )
        # TD3: there is no temperature
        # For checkpoints. In float32, as MPS has no float64; action_space has the exact bounds
        self.register_buffer("action_low", torch.from_numpy(action_space.low).float())
        self.register_buffer("action_high", torch.from_numpy(action_space.high).float())

    def compute(self, network: nn.Sequential, x):
        """The output of actor or critics; only layers between the first and last may use bfloat16."""
        first_layer, *hidden_layers, last_layer = network
        x = first_layer(x)  # inputs rounded to bfloat16 would switch some of the ReLUs
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bfloat16):
            for layer in hidden_layers:
                x = layer(x)
        return last_layer(x.float())

    def get_values(self, obs, action):
        """obs (n, obs_dim) and action (n, action_dim) -> values of the critics (num_critics, n)."""
        x = torch.cat([obs, action], -1)
        x = x.expand(self.num_critics, -1, -1)  # the same for each critic
        return self.compute(self.critics, x).squeeze(-1)

    def get_action(self, obs):
        """obs (n, obs_dim) -> action with exploration noise (n, action_dim)."""
        action = self.get_mean_action(obs)
        noise = self.args.exploration_noise * torch.randn_like(action)  # TD3: it is Gaussian
        return (action + noise).clamp(-1, 1)

    def get_mean_action(self, obs):
        return self.compute(self.actor, obs).tanh()  # TD3: it has no standard deviation

    def to_env(self, action) -> np.ndarray:
        """Actions (n, action_dim) from [-1, 1] to their bounds, in the shape of the action space."""
        low = self.action_space.low
        high = self.action_space.high
        action = action.cpu().numpy().reshape(-1, *low.shape)
        center = (high + low) / 2
        half_range = (high - low) / 2
        action = center + half_range * action
        return action.clip(low, high)  # rounding may exceed the bounds


class Replay:
    """Replay buffer: the last `rows` steps of each environment, in a ring of rows on the device.

    A row holds one step of all environments. The next observation of a step is not stored twice:
    it is the observation of the next row. This is also true where an episode ends, as the row of
    the autoreset step holds the episode's true last observation. So a step is the last one of its
    episode, or the last before a resume, if the next row is not valid.
    """

    def __init__(self, rows: int, num_envs: int, obs_dim: int, action_dim: int, device: str):
        self.device = device
        self.obs = torch.zeros(rows, num_envs, obs_dim, device=device)
        self.action = torch.zeros(rows, num_envs, action_dim, device=device)
        self.reward = torch.zeros(rows, num_envs, device=device)
        self.terminal = torch.zeros(rows, num_envs, device=device)  # 1 where no value follows
        self.valid = np.zeros((rows, num_envs), bool)  # False for autoreset steps
        self.count = 0  # rows added so far, including those that are overwritten

    def add(self, obs, action, reward, terminal, valid):
        """A step of all environments, arrays (num_envs, ...); action is a tensor."""
        row = self.count % len(self.obs)
        self.obs[row] = torch.from_numpy(obs)
        self.action[row] = action
        self.reward[row] = torch.from_numpy(reward)
        self.terminal[row] = torch.from_numpy(terminal)
        self.valid[row] = valid
        self.count += 1

    def sample(self, size: int) -> dict:
        """Transitions, tensors (size, ...) by name, drawn uniformly with replacement."""
        rows, num_envs = self.valid.shape
        filled = min(self.count, rows)
        oldest = self.count - filled
        row = np.zeros(size, int)
        env = np.zeros(size, int)
        # Draw all samples, then draw those again that hit an autoreset step, until none does
        redraw = np.ones(size, bool)
        while redraw.any():
            num_draws = redraw.sum()
            # The newest row is never drawn: its next observation has not been added yet. An
            # n-step target would have to end at it, as the rows after it are the oldest.
            row[redraw] = (oldest + np.random.randint(filled - 1, size=num_draws)) % rows
            env[redraw] = np.random.randint(num_envs, size=num_draws)
            redraw = ~self.valid[row, env]
        indices = np.stack([row, (row + 1) % rows, env])
        row, next_row, env = torch.from_numpy(indices).to(self.device)
        return {
            "obs": self.obs[row, env],
            "next_obs": self.obs[next_row, env],
            "action": self.action[row, env],
            "reward": self.reward[row, env],
            "terminal": self.terminal[row, env],
        }

    def state_dict(self) -> dict:
        """The rows that are filled."""
        rows = len(self.obs)
        filled = min(self.count, rows)
        tensors = [self.obs, self.action, self.reward, self.terminal]
        if filled < rows:  # without the copies torch.save() writes all rows
            tensors = [tensor[:filled].clone() for tensor in tensors]
        obs, action, reward, terminal = tensors
        return {
            "rows": rows,
            "count": self.count,
            "obs": obs,
            "action": action,
            "reward": reward,
            "terminal": terminal,
            "valid": torch.from_numpy(self.valid[:filled]),
        }

    def load_state_dict(self, state: dict):
        """Load what state_dict() has returned; new episodes begin after it."""
        filled = len(state["obs"])
        self.count = state["count"]
        self.obs[:filled] = state["obs"]
        self.action[:filled] = state["action"]
        self.reward[:filled] = state["reward"]
        self.terminal[:filled] = state["terminal"]
        self.valid[:filled] = state["valid"]
        newest = (self.count - 1) % len(self.obs)
        self.valid[newest] = False  # the next row belongs to new episodes


def td_target(reward, terminal, next_value, gamma: float):
    """Targets (n,) of the critics, from tensors (n,)."""
    # A terminal state is worth nothing, a truncated one its value
    return reward + gamma * next_value * (1 - terminal)


def critic_loss(agent: Agent, target_agent, args: Args, obs, next_obs, action, reward, terminal):
    """Loss of the critics for a minibatch of tensors (n, ...), and its metrics by name."""
    with torch.no_grad():  # TD3: algorithm 1, with clipped noise on the target policy's action
        next_action = target_agent.get_mean_action(next_obs)
        noise = args.policy_noise * torch.randn_like(next_action)
        noise = noise.clamp(-args.noise_clip, args.noise_clip)
        next_action = (next_action + noise).clamp(-1, 1)
        next_value = target_agent.get_values(next_obs, next_action).amin(0)  # TD3: the smaller
        target = td_target(reward, terminal, next_value, args.gamma)
    values = agent.get_values(obs, action)
    assert values.shape == (agent.num_critics, *target.shape)
    assert target.shape == reward.shape == terminal.shape
    squared_error = (values - target) ** 2
    loss = 0.5 * squared_error.mean(-1).sum()  # the critics' losses are added
    metrics = {
        "losses/qf_loss": loss,
        "losses/qf_values": values.mean(),
    }
    return loss, metrics


def policy_loss(agent: Agent, args: Args, obs):
    """Loss of the policy for observations (n, obs_dim), and its metrics by name."""
    action = agent.get_mean_action(obs)
    loss = -agent.get_values(obs, action)[0].mean()  # TD3: a critic's value of its actions
    metrics = {
        "losses/actor_loss": loss,  # TD3: of the policy alone
    }
    return loss, metrics


def copy_metrics(metrics: dict) -> dict:
    """Copies without gradients: the next call of a CUDA graph overwrites the tensors themselves."""
    return {name: value.detach().clone() for name, value in metrics.items()}


def update(
    agent: Agent,
    target_agent: Agent,
    optimizers: dict,
    args: Args,
    num_updates: int,
    minibatch: dict,
    critic_loss_fn=critic_loss,
    policy_loss_fn=policy_loss,
) -> dict:
    """Update number num_updates, on a minibatch of tensors (n, ...) by name; metrics by name."""
    loss, metrics = critic_loss_fn(agent, target_agent, args, **minibatch)
    optimizers["critics"].zero_grad()
    loss.backward()
    optimizers["critics"].step()
    copies = copy_metrics(metrics)
    if num_updates % args.policy_frequency == 0:
        agent.critics.requires_grad_(False)  # the policy's loss needs no gradient of their weights
        loss, metrics = policy_loss_fn(agent, args, minibatch["obs"])
        optimizers["policy"].zero_grad()
        loss.backward()
        optimizers["policy"].step()
        agent.critics.requires_grad_(True)
        copies.update(copy_metrics(metrics))
    if num_updates % args.target_network_frequency == 0:
        update_target(target_agent, agent, args.tau)  # TD3: the policy has a target, too
    return copies


@torch.no_grad()
def update_target(target: nn.Module, online: nn.Module, tau: float):
    """Move the target's weights, not its buffers, to the online ones: w += tau * (online - w)."""
    torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), tau)


def crossed(first_step: int, step: int, every: int) -> int:
    """How many multiples of `every` come after first_step, up to step.

    All environments step at once, so that the step count can jump over a multiple, or several.
    """
    return step // every - first_step // every


def next_log_step(step: int, eval_frequency: int, longest: int) -> int:
    """First step after `step` that ends an iteration of train(); eval_frequency is above 0.

    Scalars are logged and evaluations made only there. So the steps between two evaluations are
    divided into equal intervals of at most `longest`. With evaluations every 5000 steps and
    2000 as the longest, iterations end at 1667, 3334, 5000, ...
    """
    intervals = math.ceil(eval_frequency / longest)  # between two evaluations
    # The k-th interval ends at ceil(k * eval_frequency / intervals)
    completed = step * intervals // eval_frequency  # intervals that end at `step` or before
    return math.ceil((completed + 1) * eval_frequency / intervals)


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
    """Raw return of each environment's first episode, with mean actions.

    A signal in the list `signals` ends it at once; the returns are then incomplete.
    """
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, bool)
    for _ in range(agent.args.eval_max_steps):
        x = torch.from_numpy(obs).to(agent.action_low.device)
        action = agent.to_env(agent.get_mean_action(x))
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
    if args.env_id != saved["env_id"]:
        sys.exit(f"--resume {args.resume}: env_id must stay {saved['env_id']}")
    if args.save_replay and Path(args.resume, "replay.pt").exists():
        return  # the replay buffer does not start empty
    steps_left = args.total_timesteps - saved["global_step"]
    if steps_left <= args.learning_starts:
        message = f"--resume {args.resume}: the replay buffer starts empty, so that the last "
        message += f"{steps_left} steps hardly train (--learning-starts {args.learning_starts})"
        # To extend a run by so little is a mistake; an interrupted run may still reach its end
        if args.total_timesteps != saved["total_timesteps"]:
            sys.exit(f"{message}; raise --total-timesteps")
        print(message, file=sys.stderr)


def load_replay(args: Args, replay: Replay, global_step: int):
    """Fill the replay buffer from the run folder, if --save-replay is set and has saved it."""
    path = Path(args.resume, "replay.pt")
    if not args.save_replay or not path.exists():
        return
    hint = "add --no-save-replay to start with an empty replay buffer"
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a damaged file raises errors of any type
        sys.exit(f"--save-replay: {path} cannot be read: {error!r}; {hint}")
    if state.get("format") != CHECKPOINT_FORMAT:
        sys.exit(f"--save-replay: this file cannot read the format of {path}; {hint}")
    if state["global_step"] < global_step:  # it can be newer, as it is saved first
        sys.exit(f"--save-replay: {path} is older than the checkpoint; {hint}")
    num_envs = state["valid"].shape[1]
    if (state["rows"], num_envs) != replay.valid.shape:
        keep = "keep --buffer-size and --num-envs"
        sys.exit(f"--save-replay: {path} is of another size; {keep}, or {hint}")
    replay.load_state_dict(state)


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
    refused = f"--env-id {args.env_id}: {action_space} actions"
    if isinstance(action_space, gym.spaces.Discrete):
        sys.exit(f"{refused}; use dqn.py")
    if isinstance(action_space, (gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)):
        sys.exit(f"--env-id {args.env_id}: {action_space} actions; use ppo_multidiscrete.py")
    is_box = isinstance(action_space, gym.spaces.Box) and 0 not in action_space.shape
    if not is_box or action_space.dtype.kind != "f":
        way_out = "add a wrapper to WRAPPERS whose actions are a Box of at least one real number"
        sys.exit(f"{refused}; {way_out}")
    if np.abs([action_space.low, action_space.high]).max() > 1e15:  # or infinite
        way_out = "set bounds with gym.wrappers.TransformAction in WRAPPERS"
        sys.exit(f"{refused} have no bounds, or too large ones; {way_out}")
    largest_buffer = 2**33 // max(1, obs[0].nbytes)  # steps whose observations fill 8 GiB
    if args.buffer_size > largest_buffer:
        wrong = f"--buffer-size {args.buffer_size} needs more than 8 GiB of memory"
        sys.exit(f"{wrong} for these observations; use at most {largest_buffer}")
    sizes = (*obs.shape[1:], *action_space.shape)
    eval_sizes = (*eval_obs.shape[1:], *eval_envs.single_action_space.shape)
    if sizes != eval_sizes:
        wrong = f"training has observations and actions of sizes {sizes}, evaluations {eval_sizes}"
        sys.exit(f"--env-id {args.env_id}: {wrong}; each environment must have the same spaces")
    # make_envs() has reset envs already. This wrapper needs no reset: its counters start at 0
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    return envs, obs, eval_backend


def open_run(args: Args, device: str, precision: str, global_step: int):
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
        "precision": precision,
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


def warn_of_rounding(args: Args, obs, precision: str):
    largest = np.abs(obs).max(initial=0)
    if precision == "bfloat16" and largest > 256:
        rounded = f"observations near {largest:.3g} lose small differences in bfloat16"
        print(f"--env-id {args.env_id}: {rounded}; use --precision float32", file=sys.stderr)


def choose_precision(args: Args, device: str) -> str:
    """Precision of the hidden layers; auto is bfloat16 where the hardware has it natively."""
    native = False
    if device == "cpu":
        native = torch.cpu.get_capabilities().get("avx512_bf16", False)
    elif device == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    if args.precision == "auto":
        return "bfloat16" if native else "float32"
    if args.precision == "bfloat16" and not native:
        print("bfloat16 is not native here and may be slow; use --precision auto", file=sys.stderr)
    return args.precision


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
    precision = choose_precision(args, device)
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
    envs, obs, eval_backend = open_envs(args, env_seed, global_step)
    warn_of_rounding(args, obs, precision)
    agent = Agent(obs.shape[1], envs.single_action_space, args, precision).to(device)
    policy_parameters = agent.actor.parameters()  # TD3: there is no temperature
    optimizers = {
        "policy": torch.optim.Adam(policy_parameters, lr=args.policy_lr, fused=True),
        "critics": torch.optim.Adam(agent.critics.parameters(), lr=args.q_lr, fused=True),
    }
    # TD3: all of the target agent is used
    target_agent = copy.deepcopy(agent)
    rows = args.buffer_size // args.num_envs
    replay = Replay(rows, args.num_envs, obs.shape[1], agent.action_dim, device)
    num_updates = 0  # so far
    updates_due = 0.0
    if args.resume:
        load_weights(agent, saved["agent"], args.resume)
        # TD3: there is no temperature
        target_agent.load_state_dict(saved["target_agent"])
        for name, optimizer in optimizers.items():  # the hyperparameters come from the flags
            moments = saved["optimizers"][name]["state"]
            optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
        num_updates = saved["num_updates"]
        load_replay(args, replay, global_step)
    loss_fns = (critic_loss, policy_loss)
    if args.compile:  # static shapes
        loss_fns = [torch.compile(f, mode="reduce-overhead", dynamic=False) for f in loss_fns]
    run_dir, record, writer = open_run(args, device, precision, global_step)

    eval_frequency = args.eval_frequency or args.total_timesteps
    # Scalars and checkpoints are written at the end of an iteration
    longest_iteration = min(1000, args.checkpoint_frequency)  # in steps
    done = np.zeros(args.num_envs, bool)
    timings = []  # (steps, seconds) of each iteration with updates
    saved_step = global_step
    bar = open_bar(args, global_step)

    while global_step < args.total_timesteps:
        # An iteration lasts until scalars are logged
        first_step = global_step
        log_step = next_log_step(first_step, eval_frequency, longest_iteration)
        iteration_started = time.perf_counter()
        episodes = []  # (return, length) of those that end in this iteration
        history = defaultdict(list)  # metrics of the updates
        obs_history = []  # with the rewards, to be checked for NaN
        reward_history = []

        while global_step < min(log_step, args.total_timesteps):
            # Step
            if global_step < args.learning_starts:
                action = torch.empty(args.num_envs, agent.action_dim).uniform_(-1, 1).to(device)
            else:
                with torch.inference_mode():
                    action = agent.get_action(torch.from_numpy(obs).to(device))  # TD3: no logprob
            valid = ~done  # the step after the end of an episode only resets
            next_obs, reward, terminated, truncated, info = envs.step(agent.to_env(action))
            next_obs = flatten(next_obs)
            done = terminated | truncated
            if done.any():
                episode = info["episode"]
                episodes.extend(zip(episode["r"][done], episode["l"][done]))
            replay.add(obs, action, reward, terminated, valid)
            obs_history.append(next_obs)
            reward_history.append(reward)
            obs = next_obs
            global_step += int(valid.sum())

            # Update, after the random steps and, in a resumed run, after the buffer is filled again
            stored_steps = replay.count * args.num_envs  # after a resume fewer than global_step
            if min(global_step, stored_steps) >= args.learning_starts:
                updates_due += int(valid.sum()) * args.updates_per_step
            while updates_due >= 1:
                updates_due -= 1
                num_updates += 1
                minibatch = replay.sample(args.batch_size)
                metrics = update(
                    agent, target_agent, optimizers, args, num_updates, minibatch, *loss_fns
                )
                for name, value in metrics.items():
                    history[name].append(value)

        # Mean losses of the iteration; there are none before learning starts
        scalars = {name: torch.stack(values).mean().item() for name, values in history.items()}
        new_obs = torch.from_numpy(np.stack(obs_history))
        rewards = np.stack(reward_history)
        check_finite(agent, new_obs, rewards, scalars, global_step, saved_step, run_dir)

        # Log
        seconds = time.perf_counter() - iteration_started
        # charts/SPS leaves out the iterations without updates, which are faster, and the first
        # iteration with updates, a warm-up. Until then it is the speed of this iteration.
        timing = (global_step - first_step, seconds)
        if history:
            timings.append(timing)
        total_steps, total_seconds = np.sum(timings[1:] or [timing], axis=0)
        sps = float(total_steps / total_seconds)
        scalars["charts/SPS"] = sps
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
        evaluates = finished or crossed(first_step, global_step, eval_frequency)
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
            state = {
                "agent": agent.state_dict(),
                "target_agent": target_agent.state_dict(),
                "optimizers": {name: opt.state_dict() for name, opt in optimizers.items()},
                "num_updates": num_updates,
            }
            if args.save_replay:  # first, so that it is never older than the checkpoint
                content = {"format": CHECKPOINT_FORMAT, "global_step": global_step}
                write(run_dir / "replay.pt", {**content, **replay.state_dict()})
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
