"""Categorical DQN (C51) for Discrete actions: deep Q-learning of the distribution of returns.

    python algos/c51.py --env-id CartPole-v1

C51: Bellemare et al. 2017, arXiv:1707.06887. Double Q-learning: van Hasselt et al. 2016,
arXiv:1509.06461.
The parent is dqn.py; search for "C51:". The network predicts the probabilities of --n-atoms possible
returns instead of the mean return. The target is the distribution of the next state, shifted and
shrunk by the Bellman equation and projected onto the same atoms. The loss is the cross-entropy.
What differs from the paper:
1. The network is small and has PyTorch's own initialisation. Gradients are clipped.
2. Several environments, best.pt and the other deviations 2, 4, 5 and 6 of dqn.py.
3. The atoms lie between --v-min and --v-max, which must enclose the task's discounted returns. The
   default is that of CartPole-v1: rewards of 1 and a discount factor of 0.99 give 0 to 100.
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
    torch_threads: int = 1  # CPU threads of PyTorch; networks this small are slower with more
    runs_dir: str = "runs"  # parent of the run folder
    resume: str = ""  # run folder to continue; flags given with it replace the saved ones
    checkpoint_frequency: int = 20_000  # steps between checkpoints
    keep_checkpoints: int = 0  # keep this many of the last checkpoints, as checkpoint-STEP.pt
    eval_frequency: int = 10_000  # steps between evaluations; 0 evaluates only at the end
    eval_episodes: int = 100  # episodes of an evaluation, each in an environment of its own
    eval_max_steps: int = 50_000  # an evaluation truncates longer episodes
    eval_e: float = 0.0  # epsilon of evaluations
    capture_video: bool = False  # record the first 3 episodes of every evaluation
    track: bool = False  # log to Weights & Biases as well
    wandb_project_name: str = "plainrl"  # W&B project
    wandb_entity: str | None = None  # W&B user or team
    compile: bool = False  # torch.compile network and loss; CUDA graphs on a GPU
    env_id: str = "CartPole-v1"  # Gymnasium or EnvPool id: Box observations, Discrete actions
    env_backend: Literal["auto", "gymnasium", "envpool"] = "auto"  # for training
    num_envs: int = 16  # parallel environments
    total_timesteps: int = 200_000  # steps of all environments
    learning_rate: float = 2.5e-4  # C51: of Adam; C51's paper has 2.5e-4
    buffer_size: int = 100_000  # steps in the replay buffer
    gamma: float = 0.99  # discount factor
    tau: float = 1.0  # soft-update coefficient of the target network; 1 copies the online network
    target_network_frequency: int = 500  # steps between updates of the target network
    batch_size: int = 128  # transitions per update
    start_e: float = 1.0  # epsilon, the probability of a random action, up to --learning-starts
    end_e: float = 0.05  # final epsilon
    exploration_fraction: float = 0.2  # fraction of total_timesteps over which epsilon is annealed
    learning_starts: int = 1000  # steps stored, with resets, before the first update
    train_frequency: int = 4  # steps between updates
    double_dqn: bool = False  # the online network selects the action that the target one evaluates
    n_atoms: int = 51  # C51: atoms, the returns whose probabilities are predicted
    v_min: float = 0.0  # C51: smallest atom; smaller returns count as this one
    v_max: float = 100.0  # C51: largest atom; larger returns count as this one
    max_grad_norm: float = 10.0  # gradients are clipped to this norm

    def __post_init__(self):
        self.runs_dir = os.path.expanduser(self.runs_dir)  # shells leave --runs-dir=~/runs as it is
        name = self.exp_name
        is_text = name.isprintable() and name.strip() != ""
        if not is_text or len(name.encode()) > 150:
            wrong = f"--exp-name {name[:150]!r} must be printable, 1 to 150 bytes in UTF-8"
            raise ValueError(f"{wrong}; without it, the file's name is used")
        largest = {"num_envs": 10_000, "eval_episodes": 10_000, "torch_threads": 1024}
        fractions = ("gamma", "tau", "start_e", "end_e", "eval_e", "exploration_fraction")
        # A flag whose default is 0 may be 0. So may these
        may_be_zero = ("seed", "eval_frequency", "keep_checkpoints", *fractions)
        limits = ("v_min", "v_max")  # C51: any finite numbers
        for name, value in asdict(self).items():
            flag = f"--{name.replace('_', '-')} {value}"
            if type(value) not in (int, float):  # text and switches
                continue
            if name in limits:  # C51: they may be 0 or negative
                if not math.isfinite(value):
                    raise ValueError(f"{flag} must be a finite number")
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
        if self.n_atoms < 2:  # C51: the distribution needs two possible returns
            raise ValueError(f"--n-atoms {self.n_atoms} must be at least 2")
        if self.v_min >= self.v_max:
            raise ValueError(f"--v-min {self.v_min} must be below --v-max {self.v_max}")
        learning_starts = f"--learning-starts {self.learning_starts}"
        # The replay buffer holds rows, each with a step of every environment. Of three rows, the
        # newest has no next observation yet, and one of the others can be an autoreset step (see
        # make_envs). So there is always one to sample.
        if self.learning_starts < 3 * self.num_envs:
            least = f"{3 * self.num_envs} (3 x --num-envs {self.num_envs})"
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


class Agent(nn.Module):
    """The distribution of each action's return."""  # C51: not its mean alone

    def __init__(self, obs_dim: int, action_space: gym.spaces.Discrete, args: Args):
        super().__init__()
        self.args = args
        self.num_actions = int(action_space.n)
        self.network = nn.Sequential(
            nn.Linear(obs_dim, 128),
            nn.ReLU(),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Linear(128, self.num_actions * args.n_atoms),  # C51: a logit for each atom
        )
        # C51: not saved, as --v-min and --v-max decide
        atoms = torch.linspace(args.v_min, args.v_max, args.n_atoms)
        self.register_buffer("atoms", atoms, persistent=False)

    def forward(self, obs):
        # C51: the value is the mean of the distribution, (n, obs_dim) -> (n, num_actions)
        return (self.log_probs(obs).exp() * self.atoms).sum(-1)

    def log_probs(self, obs):
        """C51: log-probabilities of the atoms for each action, (n, num_actions, n_atoms)."""
        logits = self.network(obs).unflatten(-1, (self.num_actions, -1))
        return logits.log_softmax(-1)

    def get_action(self, obs, epsilon: float):
        """Epsilon-greedy actions (n,): each is random with probability epsilon, else greedy."""
        # Drawn on the CPU, so that a seed gives the same random numbers on every device
        random_action = torch.randint(self.num_actions, (len(obs),))
        explores = torch.rand(len(obs)) < epsilon
        greedy_action = self(obs).argmax(-1).cpu()
        return torch.where(explores, random_action, greedy_action)


class Replay:
    """Replay buffer: the last `rows` steps of each environment, in a ring of rows.

    A row holds one step of all environments. The next observation of a step is not stored twice:
    it is the observation of the next row. This is also true where an episode ends, as the row of
    the autoreset step holds the episode's true last observation.
    """

    def __init__(self, rows: int, num_envs: int, obs_dim: int):
        self.obs = np.zeros((rows, num_envs, obs_dim), np.float32)
        self.action = np.zeros((rows, num_envs), np.int64)
        self.reward = np.zeros((rows, num_envs), np.float32)
        self.terminal = np.zeros((rows, num_envs), np.float32)  # 1 where no value follows
        self.valid = np.zeros((rows, num_envs), bool)  # False for autoreset steps
        self.count = 0  # rows added so far, including those that are overwritten

    def add(self, obs, action, reward, terminal, valid):
        """A step of all environments: obs (num_envs, obs_dim), the other arrays (num_envs,)."""
        row = self.count % len(self.obs)
        self.obs[row] = obs
        self.action[row] = action
        self.reward[row] = reward
        self.terminal[row] = terminal
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
            # The newest row is never drawn: its next observation has not been added yet
            row[redraw] = (oldest + np.random.randint(filled - 1, size=num_draws)) % rows
            env[redraw] = np.random.randint(num_envs, size=num_draws)
            redraw = ~self.valid[row, env]
        next_row = (row + 1) % rows
        return {
            "obs": torch.from_numpy(self.obs[row, env]),
            "next_obs": torch.from_numpy(self.obs[next_row, env]),
            "action": torch.from_numpy(self.action[row, env]),
            "reward": torch.from_numpy(self.reward[row, env]),
            "terminal": torch.from_numpy(self.terminal[row, env]),
        }


def td_target(reward, terminal, next_probs, next_action, atoms, gamma: float):
    """Target probabilities (n, n_atoms), from next_probs (n, num_actions, n_atoms) of the target
    network, the atoms (n_atoms,) and the rest (n,)."""
    sample = torch.arange(len(reward), device=reward.device)
    next_prob = next_probs[sample, next_action]  # (n, n_atoms)
    # C51: eq. 7. The Bellman equation moves the atoms to these returns, (n, n_atoms)
    # A terminal state is worth nothing, a truncated one its value
    moved = reward.unsqueeze(-1) + gamma * (1 - terminal).unsqueeze(-1) * atoms
    moved = moved.clamp(atoms[0], atoms[-1])
    # C51: each moved atom gives its probability to its two neighbours, more to the nearer one
    position = (moved - atoms[0]) / (atoms[1] - atoms[0])  # fractional index among the atoms
    # The neighbours of the last atom are the last two. A NaN gets any, for check_finite() to report
    lower = position.floor().long().clamp(0, len(atoms) - 2)
    share = position - lower  # of the upper neighbour
    target = torch.zeros_like(next_prob)
    target.scatter_add_(-1, lower, next_prob * (1 - share))
    target.scatter_add_(-1, lower + 1, next_prob * share)
    return target


def dqn_loss(agent: Agent, target_agent, args: Args, obs, next_obs, action, reward, terminal):
    """Loss of a minibatch of tensors (n, ...), and its metrics by name."""
    with torch.no_grad():
        next_probs = target_agent.log_probs(next_obs).exp()  # C51: not the mean returns
        if args.double_dqn:  # eq. 4 of the double DQN paper
            next_action = agent(next_obs).argmax(-1)
        else:
            next_action = (next_probs * agent.atoms).sum(-1).argmax(-1)  # C51: by the mean
        target = td_target(reward, terminal, next_probs, next_action, agent.atoms, args.gamma)
    # C51: the cross-entropy of the target and the predicted distribution
    sample = torch.arange(len(action), device=action.device)
    log_prob = agent.log_probs(obs)[sample, action]  # (n, n_atoms)
    assert log_prob.shape == target.shape == (*reward.shape, args.n_atoms)
    assert reward.shape == terminal.shape
    loss = -(target * log_prob).sum(-1).mean()
    value = (log_prob.exp() * agent.atoms).sum(-1)
    metrics = {
        "losses/td_loss": loss,
        "losses/q_values": value.mean(),
    }
    return loss, metrics


def update(agent: Agent, target_agent: Agent, optimizer, args: Args, batch: dict, loss_fn=dqn_loss):
    """One gradient step per --batch-size samples of a batch (samples, ...); mean metrics by name.

    Several updates can be due at once, because all environments step between two updates. The
    batch then holds the samples of all these updates.
    """
    history = []
    for start in range(0, len(batch["obs"]), args.batch_size):
        end = start + args.batch_size
        minibatch = {name: tensor[start:end] for name, tensor in batch.items()}
        loss, metrics = loss_fn(agent, target_agent, args, **minibatch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
        optimizer.step()
        # stack() copies: the next call of a CUDA graph overwrites these tensors
        history.append(torch.stack(list(metrics.values())).detach())
    means = torch.stack(history).mean(0)  # tensors, as a number would make the CPU wait for a GPU
    return dict(zip(metrics, means))


def make_optimizer(agent: Agent, args: Args):  # C51: Adam with the paper's epsilon
    eps = 0.01 / args.batch_size  # as in the paper
    return torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=eps, fused=True)


def update_target(target_agent: Agent, agent: Agent, tau: float):
    """Move the target network's weights towards the online network's: w += tau * (online - w)."""
    for target, online in zip(target_agent.parameters(), agent.parameters()):
        target.data.lerp_(online.data, tau)


def epsilon_at(step: int, args: Args) -> float:
    """Epsilon of a step: --start-e until --learning-starts, then annealed linearly to --end-e."""
    start = args.learning_starts
    end = start + args.exploration_fraction * args.total_timesteps
    return float(np.interp(step, [start, end], [args.start_e, args.end_e]))


def warn_of_limits(args: Args, episodes: list, episode_count: int):  # C51:
    """Warn if discounted returns of a run's first episodes are outside --v-min and --v-max."""
    if episode_count > len(episodes):  # C51: episodes have ended before
        return
    # C51: the logged returns have no discount, so each step counts as one of the mean reward
    mean_return, mean_length = np.mean(episodes, axis=0)
    discounted_return = mean_return / mean_length * (args.gamma ** np.arange(mean_length)).sum()
    if not args.v_min <= discounted_return <= args.v_max:
        wrong = f"discounted returns near {discounted_return:.4g} are outside"
        limits = f"--v-min {args.v_min} and --v-max {args.v_max}, and count as the nearest of them"
        way_out = "min(0, lowest reward) and max(0, highest), divided by 1 - gamma, are safe"
        print(f"{wrong} {limits}; {way_out}", file=sys.stderr)


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
    """Raw return of each environment's first episode, with --eval-e as epsilon.

    A signal in the list `signals` ends it at once; the returns are then incomplete.
    """
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, bool)
    with torch.random.fork_rng(devices=[]):  # leaves training's random numbers alone
        for _ in range(agent.args.eval_max_steps):
            x = torch.from_numpy(obs).to(agent.network[0].weight.device)
            action = agent.get_action(x, agent.args.eval_e).numpy()
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


def load_best(run_dir: str) -> dict:
    """The weights of a run's best model, or an empty dictionary if it has none yet."""
    path = Path(run_dir, "best.pt")
    if not path.exists():
        return {}
    try:
        return torch.load(path, map_location="cpu", weights_only=True)["agent"]
    except Exception as error:  # torch.load() raises errors of many types
        sys.exit(f"{path} cannot be read: {error!r:.120}. Remove it, then use --resume")


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
    for name in ("n_atoms", "v_min", "v_max"):  # C51: the weights fit these returns alone
        value = saved["args"][name]
        if getattr(args, name) != value:
            sys.exit(f"--resume {args.resume}: {name} must stay {value}")
    steps_left = args.total_timesteps - saved["global_step"]
    if steps_left <= args.learning_starts:
        message = f"--resume {args.resume}: the replay buffer starts empty, so that the last "
        message += f"{steps_left} steps hardly train (--learning-starts {args.learning_starts})"
        # To extend a run by so little is a mistake; an interrupted run may still reach its end
        if args.total_timesteps != saved["total_timesteps"]:
            sys.exit(f"{message}; raise --total-timesteps")
        print(message, file=sys.stderr)


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
    if isinstance(action_space, gym.spaces.Box):
        sys.exit(f"{refused}; use ppo_continuous.py")
    if not isinstance(action_space, gym.spaces.Discrete):
        way_out = "add a wrapper to WRAPPERS whose actions are Discrete"
        sys.exit(f"{refused}; ppo_multidiscrete.py takes MultiDiscrete ones, or {way_out}")
    if action_space.start != 0:  # the policy's actions are 0, 1, ..., n - 1
        sys.exit(f"{refused} do not start at 0; add a wrapper to WRAPPERS")
    largest_buffer = 2**33 // max(1, obs[0].nbytes)  # steps whose observations fill 8 GiB
    if args.buffer_size > largest_buffer:
        wrong = f"--buffer-size {args.buffer_size} needs more than 8 GiB of memory"
        sys.exit(f"{wrong} for these observations; use at most {largest_buffer}")
    sizes = (*obs.shape[1:], int(action_space.n))
    eval_sizes = (*eval_obs.shape[1:], int(getattr(eval_envs.single_action_space, "n", 0)))
    if sizes != eval_sizes:
        wrong = f"training has observations and actions of sizes {sizes}, evaluations {eval_sizes}"
        sys.exit(f"--env-id {args.env_id}: {wrong}; each environment must have the same spaces")
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
    envs, obs, eval_backend = open_envs(args, env_seed, global_step)
    agent = Agent(obs.shape[1], envs.single_action_space, args).to(device)
    optimizer = make_optimizer(agent, args)  # C51: another epsilon
    target_agent = copy.deepcopy(agent)
    best_agent = copy.deepcopy(agent)
    best_mean = -np.inf  # mean return of the best evaluation so far
    best_step = -1  # step of that evaluation, if this process made it
    replay = Replay(args.buffer_size // args.num_envs, args.num_envs, obs.shape[1])
    if args.resume:
        load_weights(agent, saved["agent"], args.resume)
        target_agent.load_state_dict(saved["target_agent"])
        moments = saved["optimizer"]["state"]  # the hyperparameters come from the flags
        optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
        best_weights = load_best(args.resume)
        if best_weights:
            best_agent.load_state_dict(best_weights)
            # Evaluate it again: its score may come from other episodes than the flags now ask for
            envs_and_obs = make_envs(args, eval_backend, args.eval_episodes, env_seed + 2**30)
            best_mean = evaluate(best_agent, *envs_and_obs, signals).mean()
    loss_fn = dqn_loss
    if args.compile:  # static shapes: acting, evaluation and update each have their own
        agent.compile(mode="reduce-overhead", dynamic=False)
        loss_fn = torch.compile(loss_fn, mode="reduce-overhead", dynamic=False)
    run_dir, record, writer = open_run(args, device, global_step)

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
        history = []  # metrics of the updates
        obs_history = []  # with the rewards, to be checked for NaN
        reward_history = []

        while global_step < min(log_step, args.total_timesteps):
            # Step
            step_before = global_step
            epsilon = epsilon_at(step_before, args)
            with torch.inference_mode():
                action = agent.get_action(torch.from_numpy(obs).to(device), epsilon).numpy()
            valid = ~done  # the step after the end of an episode only resets
            next_obs, reward, terminated, truncated, info = envs.step(action)
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

            # Update
            num_updates = crossed(step_before, global_step, args.train_frequency)
            # --learning-starts counts the replay buffer, which may start empty in a resumed run
            if num_updates > 0 and replay.count * args.num_envs >= args.learning_starts:
                batch = replay.sample(num_updates * args.batch_size)
                batch = {name: tensor.to(device) for name, tensor in batch.items()}
                history.append(update(agent, target_agent, optimizer, args, batch, loss_fn))
            for _ in range(crossed(step_before, global_step, args.target_network_frequency)):
                update_target(target_agent, agent, args.tau)

        # Mean losses of the iteration; there are none before learning starts
        scalars = {}
        if history:
            for name in history[0]:
                values = torch.stack([metrics[name] for metrics in history])
                scalars[name] = np.mean(values.tolist())
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
        scalars["charts/epsilon"] = epsilon
        scalars["charts/SPS"] = sps
        if episodes:
            mean_return, mean_length = np.mean(episodes, axis=0)
            scalars["charts/episodic_return"] = mean_return
            scalars["charts/episodic_length"] = mean_length
            warn_of_limits(args, episodes, envs.episode_count)  # C51: once
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
            if not signals and eval_returns.mean() > best_mean:
                best_mean = float(eval_returns.mean())
                best_step = global_step
                best_agent.load_state_dict(agent.state_dict())
        if finished:
            # The best model was selected for its returns, so it is evaluated in new episodes
            new_seed = env_seed + 2**30 + args.eval_episodes
            envs_and_obs = make_envs(args, eval_backend, args.eval_episodes, new_seed)
            best_returns = evaluate(best_agent, *envs_and_obs, signals)
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
        if best_step == global_step:
            best = {"agent": best_agent.state_dict(), "eval_return_mean": best_mean}
            write(run_dir / "best.pt", {**record, **best})
        if finished:
            summary = summarize(record, envs.return_queue, eval_returns)
            summary["best_return_mean"] = best_returns.mean()
            summary["best_returns"] = best_returns.tolist()
            write(run_dir / "summary.json", summary)
        if finished or interrupted or global_step - saved_step >= args.checkpoint_frequency:
            state = {
                "agent": agent.state_dict(),
                "target_agent": target_agent.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
            save_checkpoint(args, run_dir, {**record, **state})
            saved_step = global_step
            print_step(bar, global_step)
        bar.set_description_str(f"checkpoint {saved_step} ")
        if interrupted:
            break

    close_run(run_dir, finished, global_step, signals, (bar, envs, writer))
    best = f"best model {best_returns.mean():.1f}"
    print(f"{run_dir}: evaluation {eval_returns.mean():.1f}, {best}")
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
