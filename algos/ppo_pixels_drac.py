"""PPO from images with data-regularized actor-critic (DrAC).

    python algos/ppo_pixels_drac.py --env-id CartPole-v1

DrAC: Raileanu et al. 2021, arXiv:2006.12862. The loss makes policy and value invariant to a random
shift f of the image by up to --max-shift pixels in each direction: it adds
--aug-coef * (KL[pi(x) || pi(f(x))] + (V(x) - V(f(x)))^2), with pi(x) and V(x) as fixed targets. Each
sample of a minibatch has a shift of its own. The rollout and the evaluation see x itself.
The file is ppo_pixels.py apart from the places tagged "DrAC:", and shares its deviations from PPO.
What differs from the authors' code:
1. The KL is exact. Their code estimates it from one action.
2. Their code halves the squared error.
3. The shift is smaller: their crop moves images of 64 x 64 by up to 12 pixels.
"""

import argparse
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
from torch.distributions import Categorical
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

# The one place for wrappers, innermost first, and for keyword arguments of gym.make, for example
#   WRAPPERS = (partial(gym.wrappers.MaxAndSkipObservation, skip=4),)
# They come before the images are turned grey, resized and stacked.
WRAPPERS = ()
ENV_KWARGS = {}

CHECKPOINT_FORMAT = 1  # changes when this file can no longer read the checkpoints it wrote before


@dataclass
class Args:
    exp_name: str = Path(__file__).stem  # name of the experiment, part of the run folder's name
    seed: int = 1  # seeds Python, NumPy, PyTorch and every environment
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"  # auto uses CUDA if it is available
    torch_threads: int = 0  # CPU threads of PyTorch; 0 is PyTorch's default, one per core
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 where it is native
    runs_dir: str = "runs"  # parent of the run folder
    resume: str = ""  # run folder to continue; flags given with it replace the saved ones
    checkpoint_frequency: int = 20_000  # steps between checkpoints
    keep_checkpoints: int = 0  # keep this many of the last checkpoints, as checkpoint-STEP.pt
    eval_frequency: int = 0  # steps between evaluations; 0 evaluates only at the end
    eval_episodes: int = 30  # episodes of an evaluation, each in an environment of its own
    eval_max_steps: int = 50_000  # an evaluation truncates longer episodes
    capture_video: bool = False  # record the first 3 episodes of every evaluation
    track: bool = False  # log to Weights & Biases as well
    wandb_project_name: str = "plainrl"  # W&B project
    wandb_entity: str | None = None  # W&B user or team
    compile: bool = False  # torch.compile policy, advantages and loss; CUDA graphs on a GPU
    env_id: str = "CartPole-v1"  # Gymnasium id with Discrete actions that shows or renders images
    num_envs: int = 16  # parallel environments
    total_timesteps: int = 100_000  # steps of all environments
    learning_rate: float = 5e-4  # of Adam
    anneal_lr: bool = True  # anneal the learning rate linearly to zero over --total-timesteps
    num_steps: int = 128  # steps of each environment in a rollout
    gamma: float = 0.99  # discount factor
    gae_lambda: float = 0.95  # lambda of generalized advantage estimation
    num_minibatches: int = 8  # minibatches per epoch
    update_epochs: int = 4  # passes over a rollout
    norm_reward: bool = True  # divide rewards by the discounted return's standard deviation
    aug_coef: float = 0.1  # DrAC: coefficient of the invariance loss; 0 is PPO
    max_shift: int = 4  # DrAC: an image moves by at most so many pixels
    norm_adv: bool = True  # standardise the advantages of each minibatch
    clip_coef: float = 0.2  # epsilon of the clipped surrogate and of --clip-vloss
    clip_vloss: bool = False  # clip the change of the value by --clip-coef too
    ent_coef: float = 0.0  # entropy coefficient
    vf_coef: float = 0.5  # value loss coefficient
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
        may_be_zero = ("seed", "torch_threads", "eval_frequency", "keep_checkpoints")
        may_be_zero += ("ent_coef", "vf_coef", *fractions)
        may_be_zero += ("aug_coef", "max_shift")  # DrAC: 0 switches it off
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


def make_envs(args: Args, num_envs: int, seed: int, video_dir=None):
    """Vector environment in NEXT_STEP mode, seeded seed, seed + 1, ..., and its first observation.

    In this mode the step after an episode's end only resets the environment ("autoreset step"):
    its action is ignored, and it belongs to no episode. The observation before it is the
    episode's true last one.
    """

    def make_unprocessed(**render_mode):
        env = gym.make(args.env_id, **render_mode, **ENV_KWARGS)
        for wrapper in WRAPPERS:
            env = wrapper(env)
        return env

    with make_unprocessed() as env:
        space = env.observation_space
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
    for name, part in parts.items():
        if len(part.shape or ()) > 1:
            way_out = "take it out with gym.wrappers.TransformObservation in WRAPPERS"
            other = "gym.wrappers.FlattenObservation there trains on what the environment renders"
            raise ValueError(f"{name} is an image in a dictionary; {way_out}. {other}")
    is_image = isinstance(space, gym.spaces.Box) and len(space.shape) > 1
    if is_image and (space.dtype != np.uint8 or len(space.shape) > 3):
        right = "(height, width), (height, width, 1), (height, width, 3) or (frames, height, width)"
        way_out = "convert them with gym.wrappers.TransformObservation in WRAPPERS"
        other = "gym.wrappers.FlattenObservation there trains on what the environment renders"
        raise ValueError(f"images must be uint8 and {right}, not {space}; {way_out}. {other}")
    is_stack = is_image and len(space.shape) == 3 and space.shape[-1] not in (1, 3)
    if is_image:
        bounds = {*space.low.flat, *space.high.flat}
        if bounds != {0, 255}:
            way_out = "convert them with gym.wrappers.TransformObservation in WRAPPERS"
            raise ValueError(f"images must have the bounds 0 and 255, not {space}; {way_out}")

    def make_env(index: int):
        records_video = video_dir is not None and index < 3
        render_mode = {"render_mode": "rgb_array"} if records_video or not is_image else {}
        env = make_unprocessed(**render_mode)
        if not is_image:
            env = gym.wrappers.AddRenderObservation(env)  # replaces the observation by the image
            frame = env.render()
            if frame.dtype != np.uint8 or frame.shape[-1] == 4:  # 4: with transparency
                wrong = f"render() returns {frame.dtype} of shape {frame.shape}"
                raise TypeError(f"{wrong}, not uint8 of shape (height, width, 3); mend it")
        if records_video:
            env = gym.wrappers.RecordVideo(env, f"{video_dir}/env-{index}", lambda n: n == 0)
        if not is_stack:
            env = gym.wrappers.ResizeObservation(env, (84, 84))
            if env.observation_space.shape == (84, 84, 1):
                env = gym.wrappers.ReshapeObservation(env, (84, 84))
            if env.observation_space.shape == (84, 84, 3):
                env = gym.wrappers.GrayscaleObservation(env)
            # The newest frame is the last. An episode begins with four times its first one.
            env = gym.wrappers.FrameStackObservation(env, 4)
        return DropInfo(env)

    envs = gym.vector.SyncVectorEnv([partial(make_env, index) for index in range(num_envs)])
    obs, _ = envs.reset(seed=seed)  # (num_envs, frames, height, width) uint8
    if envs.metadata["autoreset_mode"] != gym.vector.AutoresetMode.NEXT_STEP:
        raise ValueError("Gymnasium does not reset this environment in NEXT_STEP mode")
    return envs, obs


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


def layer_init(layer, std: float = 2**0.5):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """The network of Mnih et al. 2015, shared by a categorical policy and a value function."""

    def __init__(self, obs_shape, action_space: gym.spaces.Discrete, args: Args, precision: str):
        super().__init__()
        frames, height, width = obs_shape
        self.args = args
        self.bfloat16 = precision == "bfloat16"
        self.network = nn.Sequential(
            layer_init(nn.Conv2d(frames, 32, 8, stride=4)),
            nn.ReLU(),
            layer_init(nn.Conv2d(32, 64, 4, stride=2)),
            nn.ReLU(),
            layer_init(nn.Conv2d(64, 64, 3)),
            nn.ReLU(),
            nn.Flatten(),
            layer_init(nn.Linear(64 * self.convolved(height) * self.convolved(width), 512)),
            nn.ReLU(),
        )
        self.actor = layer_init(nn.Linear(512, int(action_space.n)), std=0.01)
        self.critic = layer_init(nn.Linear(512, 1), std=1.0)
        self.return_rms = RunningMeanStd()

    @staticmethod
    def convolved(side: int) -> int:
        """Height or width of the images after the three convolutions."""
        side = (side - 8) // 4 + 1
        side = (side - 4) // 2 + 1
        return side - 3 + 1

    def features(self, obs):
        """obs (n, frames, height, width) uint8 -> (n, 512) float32."""
        dtype = torch.bfloat16 if self.bfloat16 else self.actor.weight.dtype
        # channels_last before the cast, while a pixel is a byte: 22 % more steps/s in float32
        x = obs.contiguous(memory_format=torch.channels_last).to(dtype).div_(255)
        with torch.autocast(obs.device.type, torch.bfloat16, enabled=self.bfloat16):
            return self.network(x).float()

    def get_value(self, obs):
        return self.critic(self.features(obs)).squeeze(-1)  # (n, ...) -> (n,)

    def get_action_and_value(self, obs, action=None):
        """obs (n, ...) -> action, logprob, entropy and value, each (n,)."""
        features = self.features(obs)
        logits = self.actor(features)
        policy = Categorical(logits=logits, validate_args=False)  # train() checks for NaN itself
        if action is None:
            action = policy.sample()
        value = self.critic(features).squeeze(-1)
        return action, policy.log_prob(action), policy.entropy(), value

    def get_aug_loss(self, obs):  # DrAC: G_pi + G_V of the paper
        """Mean over obs (n, ...) of KL[pi(obs) || pi(f(obs))] + (V(obs) - V(f(obs)))^2."""
        max_shift = self.args.max_shift
        # NumPy draws the shifts, so that PyTorch's draws are those of PPO
        size = (len(obs), 2)
        shifts = np.random.randint(-max_shift, max_shift + 1, size)
        shifts = torch.from_numpy(shifts).to(obs.device)
        with torch.no_grad():
            features = self.features(obs)
            target = Categorical(logits=self.actor(features), validate_args=False)
            target_value = self.critic(features)
        features = self.features(shift(obs, shifts))
        policy = Categorical(logits=self.actor(features), validate_args=False)
        kl = torch.distributions.kl_divergence(target, policy)
        value_error = (target_value - self.critic(features)).squeeze(-1) ** 2
        return (kl + value_error).mean()

    def to_env(self, action) -> np.ndarray:
        return action.cpu().numpy()


def shift(obs, shifts):  # DrAC: a random translation, the augmentation of RAD and DrAC for images
    """Images (n, frames, height, width), each moved down and right by its shifts (n, 2); edges repeat."""
    n, frames, height, width = obs.shape
    device = obs.device
    rows = torch.arange(height, device=device) - shifts[:, :1]  # (n, height)
    columns = torch.arange(width, device=device) - shifts[:, 1:]  # (n, width)
    rows = rows.clamp(0, height - 1)[:, None, :, None]
    columns = columns.clamp(0, width - 1)[:, None, None, :]
    images = torch.arange(n, device=device).view(n, 1, 1, 1)
    frames = torch.arange(frames, device=device).view(frames, 1, 1)
    return obs[images, frames, rows, columns]


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


def ppo_loss(agent: Agent, args: Args, obs, action, old_logprob, advantage, target, old_value):
    """Loss of a minibatch of tensors (n, ...), and its metrics by name."""
    _, logprob, entropy, value = agent.get_action_and_value(obs, action)
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
    num_samples = len(batch["obs"])
    parameters = list(agent.parameters())
    history = []
    for _ in range(args.update_epochs):
        # The batch lacks the autoreset steps, so its size varies. The first of the shuffled samples
        # are repeated at the end, as CUDA graphs require minibatches of one size.
        order = torch.randperm(num_samples)
        order = order[torch.arange(args.num_envs * args.num_steps) % num_samples]
        for indices in order.to(batch["obs"].device).chunk(args.num_minibatches):
            # index_select copies whole images, tensor[indices] one byte after the other
            minibatch = {name: tensor.index_select(0, indices) for name, tensor in batch.items()}
            loss, metrics = loss_fn(agent, args, **minibatch)
            loss += args.aug_coef * agent.get_aug_loss(minibatch["obs"])  # DrAC: J_DrAC
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, args.max_grad_norm)
            optimizer.step()
            # stack() copies: the next call of a CUDA graph overwrites these tensors
            history.append(torch.stack(list(metrics.values())).detach())
        if args.target_kl is not None and metrics["losses/approx_kl"] > args.target_kl:
            break
    means = torch.stack(history).mean(0).tolist()
    return dict(zip(metrics, means))


def check_finite(agent: Agent, rewards, scalars: dict, global_step, saved_step, run_dir):
    """Exit if a number is not finite, or too large: rewards (T, N), weights. Images are integers."""
    sums = [weight.detach().sum() for weight in agent.parameters()]  # NaN if an element is NaN
    numbers = {
        "rewards": torch.from_numpy(rewards),
        "losses": torch.tensor(list(scalars.values())),
        "weights": torch.stack(sums),
    }
    for name, tensor in numbers.items():
        problem = "NaN or infinity"
        way_out = "try a lower learning rate"
        is_right = tensor.isfinite()
        if name == "rewards":
            problem = "NaN, None, or a number too large for statistics in float32 (limit 1e15)"
            way_out = "correct the environment"
            is_right = tensor.abs() < 1e15  # sums of larger squares overflow
        if not is_right.all():
            where = name
            if name == "rewards":
                _, env = (~is_right).nonzero()[0]
                where = f"rewards of environment {env}"
            checkpoint = f"the last checkpoint in {run_dir} is at step {saved_step}"
            if saved_step == 0:
                checkpoint = f"{run_dir} has no checkpoint yet"
            sys.exit(f"{problem} in the {where} before step {global_step}; {way_out}; {checkpoint}")


@torch.inference_mode()
def evaluate(agent: Agent, envs, obs, signals=()) -> np.ndarray:
    """Raw return of each environment's first episode, with the most probable actions.

    A signal in the list `signals` ends it at once; the returns are then incomplete.
    """
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, bool)
    for _ in range(agent.args.eval_max_steps):
        x = torch.from_numpy(obs).to(agent.critic.weight.device)
        logits = agent.actor(agent.features(x))
        action = agent.to_env(logits.argmax(-1))
        obs, reward, terminated, truncated, _ = envs.step(action)
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


def check_video(args: Args):
    """Exit if the evaluations cannot be recorded."""
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


def open_envs(args: Args, env_seed: int, global_step: int):
    """Training environments and their first observation."""
    try:
        check_env(args, env_seed + 2**30)  # a seed of the evaluations, not of training
        # A resumed run plays other episodes than those before
        envs, obs = make_envs(args, args.num_envs, env_seed + global_step)
    except (gym.error.Error, ImportError, ValueError) as error:
        hint = hint_for(args.env_id, error)
        sys.exit(f"--env-id {args.env_id}: {error}{hint}")
    except Exception as error:  # renderers raise errors of any type
        sys.exit(f"--env-id {args.env_id} does not show images: {error.__cause__ or error!r}")
    if args.capture_video:
        check_video(args)
    action_space = envs.single_action_space
    if not isinstance(action_space, gym.spaces.Discrete) or action_space.start != 0:
        needed = "this file takes Discrete ones from 0 on, ppo_pixels_continuous.py a Box"
        sys.exit(f"--env-id {args.env_id}: {action_space} actions; {needed}")
    _, frames, height, width = obs.shape
    if frames == 3:
        advice = "if they are colours, move them to the end, (height, width, 3), by a wrapper"
        print(f"--env-id {args.env_id}: 3 images are taken for 3 frames; {advice}", file=sys.stderr)
    if min(height, width) < 36:  # the convolutions would leave nothing
        wrong = f"{frames} images of {height} x {width}, but the network needs 36 x 36"
        way_out = "change size or order with gym.wrappers.TransformObservation in WRAPPERS"
        other = "ppo.py learns from small images with gym.wrappers.FlattenObservation there"
        sys.exit(f"--env-id {args.env_id}: {wrong}; {way_out}. {other}")
    gibibytes = obs.nbytes * args.num_steps / 2**30  # of the images that a rollout stores
    if gibibytes > 8:
        memory = f"{gibibytes:.0f} GiB of images; at most 8 are allowed"
        rollout = f"--num-envs {args.num_envs} x --num-steps {args.num_steps}"
        sys.exit(f"A rollout of {rollout} has {memory}. Lower --num-envs or --num-steps")
    # make_envs() has reset envs already. This wrapper needs no reset: its counters start at 0
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    return envs, obs


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
    precision = choose_precision(args, device)
    torch.set_num_threads(args.torch_threads or torch.get_num_threads())
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
    envs, next_obs = open_envs(args, env_seed, global_step)
    agent = Agent(next_obs.shape[1:], envs.single_action_space, args, precision)
    agent = agent.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    if args.resume:
        load_weights(agent, saved["agent"], args.resume)
        moments = saved["optimizer"]["state"]  # the hyperparameters come from the flags
        optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    policy = maybe_compile(agent.get_action_and_value, args)
    gae = maybe_compile(compute_gae, args)
    loss_fn = maybe_compile(ppo_loss, args)
    run_dir, record, writer = open_run(args, device, precision, global_step)

    # Storage of a rollout: what the networks need on the device, the rest in NumPy
    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros(args.num_steps + 1, *next_obs.shape, dtype=torch.uint8, device=device)
    actions = torch.zeros(shape, dtype=torch.int64, device=device)
    logprobs = torch.zeros(shape, device=device)
    values = torch.zeros(args.num_steps + 1, args.num_envs, device=device)
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
                actions[t], logprobs[t], _, values[t] = policy(obs[t])
            valid = ~done  # the step after the end of an episode only resets
            action = agent.to_env(actions[t])
            next_obs, reward, terminated, truncated, info = envs.step(action)
            done = terminated | truncated
            if done.any():
                episode = info["episode"]
                episodes.extend(zip(episode["r"][done], episode["l"][done]))
            discounted_return = (discounted_return * args.gamma + reward) * valid  # 0 at a reset
            rewards[t] = reward
            terminateds[t] = terminated
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
        with torch.no_grad():
            # In NEXT_STEP mode obs[t + 1] is the true next state, also where an episode ends
            values[-1] = agent.get_value(obs[-1])
            advantages = gae(b_rewards, values, b_terminateds, b_dones, args.gamma, args.gae_lambda)
        targets = advantages + values[:-1]

        # Update on all steps but the autoreset steps: (T, N, ...) -> (samples, ...)
        batch = {
            "obs": obs[:-1][b_valid],
            "action": actions[b_valid],
            "old_logprob": logprobs[b_valid],
            "advantage": advantages[b_valid],
            "target": targets[b_valid],
            "old_value": values[:-1][b_valid],
        }
        scalars = update(agent, optimizer, args, batch, loss_fn)
        check_finite(agent, rewards, scalars, global_step, saved_step, run_dir)

        # Log
        seconds = time.perf_counter() - iteration_started
        seconds_per_step.append(seconds / (global_step - first_step))
        sps = float(1 / np.mean(seconds_per_step[1:] or seconds_per_step))  # without the warm-up
        residuals = batch["target"] - batch["old_value"]
        unexplained = residuals.var() / batch["target"].var()
        scalars["losses/explained_variance"] = 1 - float(unexplained)
        scalars["charts/learning_rate"] = learning_rate
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
        every = args.eval_frequency or args.total_timesteps  # 0 evaluates at the end only
        evaluates = finished or global_step // every > first_step // every
        if evaluates:
            bar.set_description_str(f"evaluating {args.eval_episodes} episodes ")
            video_dir = run_dir / f"videos/step-{global_step}" if args.capture_video else None
            eval_seed = env_seed + 2**30
            envs_and_obs = make_envs(args, args.eval_episodes, eval_seed, video_dir)
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
