"""Categorical DQN (C51) for Atari games: deep Q-learning of the distribution of returns.

    python algos/c51_atari.py --env-id PongNoFrameskip-v4

C51: Bellemare et al. 2017, arXiv:1707.06887. Double Q-learning: van Hasselt et al. 2016,
arXiv:1509.06461.
This is dqn_atari.py with the changes tagged "C51:". The network predicts the probabilities of --n-atoms
possible returns instead of the mean return. The target is the distribution of the next state, shifted
and shrunk by the Bellman equation and projected onto the same atoms. The loss is the cross-entropy.
What differs from the paper:
1. The network is initialised orthogonally, and --precision auto may compute it in bfloat16. Gradients
   are clipped.
2. Several environments, frames stored once, FIRE at the start of a life and the other deviations 2
   to 6 of dqn_atari.py.
3. The schedules are those of dqn_atari.py: the target network is copied every 1,000 steps
   (CleanRL's file: 10,000).
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
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import tyro
from ale_py import Action, AtariVectorEnv
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

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
    save_replay: bool = False  # save the replay buffer with checkpoints: 7 GB per million steps
    eval_frequency: int = 0  # steps between evaluations; 0 evaluates only at the end
    eval_episodes: int = 30  # episodes of an evaluation, each in an environment of its own
    eval_max_steps: int = 50_000  # an evaluation truncates longer episodes
    eval_e: float = 0.05  # epsilon of evaluations
    capture_video: bool = False  # record the first 3 episodes of every evaluation
    track: bool = False  # log to Weights & Biases as well
    wandb_project_name: str = "plainrl"  # W&B project
    wandb_entity: str | None = None  # W&B user or team
    compile: bool = False  # torch.compile network and loss; CUDA graphs on a GPU
    env_id: str = (
        "BreakoutNoFrameskip-v4"  # sticky actions as in the id; a frame skip of 1 becomes 4
    )
    num_envs: int = 8  # parallel environments
    total_timesteps: int = 10_000_000  # steps of all environments, but no scripted ones
    learning_rate: float = 2.5e-4  # C51: of Adam; C51's paper has 2.5e-4
    buffer_size: int = 1_000_000  # steps in the replay buffer, one frame of 7,056 bytes each
    gamma: float = 0.99  # discount factor
    tau: float = 1.0  # soft-update coefficient of the target network; 1 copies the online network
    target_network_frequency: int = 1000  # steps between updates of the target network
    batch_size: int = 32  # transitions per update
    start_e: float = 1.0  # epsilon, the probability of a random action, up to --learning-starts
    end_e: float = 0.01  # final epsilon
    exploration_fraction: float = 0.1  # fraction of total_timesteps over which epsilon is annealed
    learning_starts: int = 80_000  # steps stored, with resets, before the first update
    train_frequency: int = 4  # steps between updates
    clip_reward: bool = True  # learn from the sign of the reward
    terminal_on_life_loss: bool = True  # treat a lost life as termination; the game continues
    fire_on_life_loss: bool = True  # begin each life with FIRE and action 2 if the game has FIRE
    double_dqn: bool = False  # the online network selects the action that the target one evaluates
    n_atoms: int = 51  # C51: atoms, the returns whose probabilities are predicted
    v_min: float = -10.0  # C51: smallest atom; smaller returns count as this one
    v_max: float = 10.0  # C51: largest atom; larger returns count as this one
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
        may_be_zero = ("seed", "torch_threads", "eval_frequency", "keep_checkpoints", *fractions)
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
        buffer_size = f"--buffer-size {self.buffer_size}"
        # Replay stores rows, each with a step of every environment. sample() cannot use the 3 oldest
        # (their earlier frames are overwritten), the newest (its next frame is missing), the last of a
        # loaded buffer and 3 steps of a script for each life that has just been lost (FireOnLifeLoss).
        if self.buffer_size < 16 * self.num_envs:
            least = f"{16 * self.num_envs} (16 x --num-envs {self.num_envs})"
            raise ValueError(f"{buffer_size} must be at least {least}")
        if self.buffer_size * 84 * 84 > 2**33:  # probably a typing error
            most = f"use at most {2**33 // 84**2}"
            raise ValueError(f"{buffer_size} needs more than 8 GiB of memory; {most}")
        if self.n_atoms < 2:  # C51: the distribution needs two possible returns
            raise ValueError(f"--n-atoms {self.n_atoms} must be at least 2")
        if self.v_min >= self.v_max:
            raise ValueError(f"--v-min {self.v_min} must be below --v-max {self.v_max}")
        learning_starts = f"--learning-starts {self.learning_starts}"
        # Of the first 4 rows sample() can use one: the script begins the first game with 2 steps, and the
        # newest row lacks its next frame.
        if self.learning_starts < 4 * self.num_envs:
            least = f"{4 * self.num_envs} (4 x --num-envs {self.num_envs})"
            raise ValueError(f"{learning_starts} must be at least {least}")
        if self.learning_starts > self.buffer_size // self.num_envs * self.num_envs:
            buffer = f"{buffer_size} in rows of --num-envs {self.num_envs}"
            raise ValueError(f"{learning_starts} does not fit in {buffer}. Raise --buffer-size")
        if self.learning_starts >= self.total_timesteps:
            total = f"--total-timesteps {self.total_timesteps}"
            raise ValueError(f"{learning_starts} leaves no step of {total} to learn. Lower it")
        if self.fire_on_life_loss and not self.terminal_on_life_loss:
            # After a lost life FireOnLifeLoss chooses the actions, and nothing is learned from these
            # steps. The step before them would bootstrap from values that are never trained.
            raise ValueError("--no-terminal-on-life-loss requires --no-fire-on-life-loss")


class FireOnLifeLoss(gym.vector.VectorWrapper):
    """Plays a no-op, FIRE and action 2 at the start of each life, as OpenAI Baselines does.

    info["scripted"] (num_envs,) tells which actions were replaced by the script's, and
    info["life_lost"] (num_envs,) in which environments the step lost a life but not the game.
    """

    def __init__(self, envs, enabled: bool):
        super().__init__(envs)
        has_fire = envs.ale.get_action_set()[1] == Action.FIRE
        self.script_length = 3 if enabled and has_fire else 0  # actions 0 (no-op), 1 (FIRE) and 2

    def reset(self, **kwargs):
        # Steps of the script still to play. The reset serves as the no-op: FIRE and action 2 remain
        self.steps_left = np.full(self.num_envs, max(self.script_length - 1, 0))
        self.lives = np.zeros(self.num_envs)  # before the next step; 0 at the start of a game
        return self.env.reset(**kwargs)

    def step(self, action):
        scripted = self.steps_left > 0
        script_action = self.script_length - self.steps_left  # 0, then 1, then 2
        action = np.where(scripted, script_action, action)
        obs, reward, terminated, truncated, info = self.env.step(action)
        done = terminated | truncated
        life_lost = (info["lives"] > 0) & (info["lives"] < self.lives)
        self.lives = np.where(done, 0, info["lives"])
        # The next life begins with the next step. After the end of a game that step only resets
        # (see make_envs): it ignores its action and so serves as the no-op.
        self.steps_left = np.maximum(self.steps_left - 1, 0)
        self.steps_left[life_lost | done] = self.script_length
        info["scripted"] = scripted
        info["life_lost"] = life_lost
        return obs, reward, terminated, truncated, info


class RecordVideos(gym.vector.VectorWrapper):
    """Records the first games in colour, one file each.

    The agent's images are small and grey. A second vector environment renders in colour; it has
    the same seeds and gets the same actions, so it plays the same games.
    """

    def __init__(self, envs, colour_envs, video_dir: Path):
        import imageio

        super().__init__(envs)
        self.colour_envs = colour_envs
        self.running = np.ones(colour_envs.num_envs, bool)
        video_dir.mkdir(parents=True, exist_ok=True)
        paths = [video_dir / f"env-{index}.mp4" for index in range(colour_envs.num_envs)]
        # A second of the game is 15 steps of 4 frames. The encoder requires even sizes: 160 x 210
        self.writers = [imageio.get_writer(path, fps=15, macro_block_size=2) for path in paths]

    def step(self, action):
        colour_action = action[: self.colour_envs.num_envs]
        images, _, terminated, truncated, _ = self.colour_envs.step(colour_action)
        for index in np.flatnonzero(self.running):
            self.writers[index].append_data(images[index, 0])  # images (n, 1, 210, 160, 3)
        self.running &= ~(terminated | truncated)
        return self.env.step(action)

    def close(self, **kwargs):
        for resource in (*self.writers, self.colour_envs):
            resource.close()
        return self.env.close(**kwargs)


def make_envs(args: Args, num_envs: int, seed: int, video_dir=None, **options):
    """Vector environment in NEXT_STEP mode, seeded seed, seed + 1, ..., and its first observation.

    In this mode the step after an episode's end only resets the environment ("autoreset step"):
    its action is ignored, and it belongs to no episode. The observation before it is the
    episode's true last one. `options` are keyword arguments of AtariVectorEnv.
    """
    # The id's arguments are those of AtariVectorEnv: game (its ROM), frameskip, sticky actions, ...
    game = dict(gym.spec(args.env_id.removeprefix("ale_py:")).kwargs)
    if "game" not in game:
        raise ValueError("not an Atari game; use dqn_pixels.py for images of other environments")
    if not isinstance(game["frameskip"], int):
        raise ValueError("random frame skip; use an id with NoFrameskip-v4 or ALE/...-v5")
    if game["frameskip"] == 1:
        game["frameskip"] = 4
    game["reward_clipping"] = False  # train() clips; logged returns are raw
    # Without the script of FireOnLifeLoss, ale-py presses FIRE once a game
    game["use_fire_reset"] = not args.fire_on_life_loss
    game.update(options)
    envs = AtariVectorEnv(num_envs=num_envs, **game)
    if envs.metadata["autoreset_mode"] != gym.vector.AutoresetMode.NEXT_STEP:
        raise ValueError("ale-py does not reset this environment in NEXT_STEP mode")
    envs = FireOnLifeLoss(envs, args.fire_on_life_loss)
    # Add vector wrappers (gym.vector.VectorWrapper) here: training and evaluation both use them.
    # AtariVectorEnv steps all games itself, so that wrappers of single environments do not apply.
    if video_dir is not None:
        colour = {"grayscale": False, "stack_num": 1, "img_height": 210, "img_width": 160}
        # The script of FireOnLifeLoss is played in these environments, too. Vector wrappers
        # that you add above get them as well, with images (n, 1, 210, 160, 3)
        colour_envs, _ = make_envs(args, min(3, num_envs), seed, **colour)
        envs = RecordVideos(envs, colour_envs, video_dir)
    obs, _ = envs.reset(seed=seed)  # (num_envs, 4, 84, 84) uint8 without options
    return envs, obs


def layer_init(layer, std: float = 2**0.5):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """Network of Mnih et al. 2015: the distribution of each action's return."""  # C51: not its mean

    def __init__(self, action_space: gym.spaces.Discrete, args: Args, precision: str):
        super().__init__()
        self.args = args
        self.num_actions = int(action_space.n)
        self.bfloat16 = precision == "bfloat16"
        self.network = nn.Sequential(
            layer_init(nn.Conv2d(4, 32, 8, stride=4)),
            nn.ReLU(),
            layer_init(nn.Conv2d(32, 64, 4, stride=2)),
            nn.ReLU(),
            layer_init(nn.Conv2d(64, 64, 3)),
            nn.ReLU(),
            nn.Flatten(),
            layer_init(nn.Linear(64 * 7 * 7, 512)),
            nn.ReLU(),
        )
        # C51: a logit for each action and atom
        self.head = layer_init(nn.Linear(512, self.num_actions * args.n_atoms), std=1.0)
        atoms = torch.linspace(args.v_min, args.v_max, args.n_atoms)
        self.register_buffer("atoms", atoms, persistent=False)

    def forward(self, obs):
        """obs (n, 4, 84, 84) uint8 -> (n, num_actions) float32."""
        return (self.log_probs(obs).exp() * self.atoms).sum(-1)  # C51: the mean is the value

    def log_probs(self, obs):
        """C51: log-probabilities of the atoms for each action, (n, num_actions, n_atoms)."""
        dtype = torch.bfloat16 if self.bfloat16 else self.head.weight.dtype
        # channels_last like the weights; reordered before the cast, while a pixel is one byte
        x = obs.contiguous(memory_format=torch.channels_last).to(dtype).div_(255)
        with torch.autocast(obs.device.type, torch.bfloat16, enabled=self.bfloat16):
            features = self.network(x).float()
        logits = self.head(features).unflatten(-1, (self.num_actions, -1))  # C51: for each atom
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

    A row holds one step of all environments. Of its observation, a stack of 4 frames, only the
    newest frame is stored: sample() takes the older ones from the rows before. Likewise the next
    observation ends with the frame of the next row. This is also true where a game ends, as the
    row of the autoreset step holds the game's true last frame.
    """

    def __init__(self, rows: int, num_envs: int):
        self.frame = np.zeros((rows, num_envs, 84, 84), np.uint8)
        self.age = np.zeros((rows, num_envs), np.int8)  # steps since the reset, 3 and more as 3
        self.action = np.zeros((rows, num_envs), np.int64)
        self.reward = np.zeros((rows, num_envs), np.float32)
        self.terminal = np.zeros((rows, num_envs), np.float32)  # 1 where no value follows
        self.valid = np.zeros((rows, num_envs), bool)  # False for autoreset and scripted steps
        self.count = 0  # rows added so far, including those that are overwritten

    def add(self, obs, age, action, reward, terminal, valid):
        """A step of all environments: obs (num_envs, 4, 84, 84), the other arrays (num_envs,)."""
        row = self.count % len(self.frame)
        self.frame[row] = obs[:, -1]
        self.age[row] = age
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
        position = np.zeros(size, int)  # of a row in the order of time, 0 for the oldest
        env = np.zeros(size, int)
        # Draw all samples, then draw those again that hit an autoreset or scripted step, or a step
        # whose older frames are overwritten, until none does
        redraw = np.ones(size, bool)
        while redraw.any():
            num_draws = redraw.sum()
            # The newest row is never drawn: its next frame has not been added yet
            position[redraw] = np.random.randint(filled - 1, size=num_draws)
            env[redraw] = np.random.randint(num_envs, size=num_draws)
            row = (oldest + position) % rows
            age = self.age[row, env]
            # A sample needs the frames of `age` older rows, and `position` older rows are stored
            redraw = ~self.valid[row, env] | (age > position)

        # Frames of rows row - 3 to row + 1. Those from before the reset are black, as in the
        # environment. For example, one step after the reset (age 1):
        #     offset             -3     -2     -1      0      1
        #     age + offset       -2     -1      0      1      2
        #     frame           black  black  reset  newest  next
        #     obs            [black  black  reset  newest]
        #     next_obs              [black  reset  newest  next]
        offsets = np.arange(-3, 2)
        # As age <= position, an index before the oldest row means a frame from before the reset: it
        # wraps around to another row here, and the frame is blackened below
        frames = self.frame[(row[:, None] + offsets) % rows, env[:, None]]  # (size, 5, 84, 84)
        before_reset = age[:, None] + offsets < 0
        frames[before_reset] = 0
        return {
            "obs": torch.from_numpy(frames[:, :4]),
            "next_obs": torch.from_numpy(frames[:, 1:]),
            "action": torch.from_numpy(self.action[row, env]),
            "reward": torch.from_numpy(self.reward[row, env]),
            "terminal": torch.from_numpy(self.terminal[row, env]),
        }

    def state_dict(self) -> dict:
        """The rows that are filled, as tensors that share the buffer's memory."""
        rows = len(self.frame)
        filled = min(self.count, rows)
        return {
            "rows": rows,
            "count": self.count,
            "frame": torch.from_numpy(self.frame[:filled]),
            "age": torch.from_numpy(self.age[:filled]),
            "action": torch.from_numpy(self.action[:filled]),
            "reward": torch.from_numpy(self.reward[:filled]),
            "terminal": torch.from_numpy(self.terminal[:filled]),
            "valid": torch.from_numpy(self.valid[:filled]),
        }

    def load_state_dict(self, state: dict):
        """Load what state_dict() has returned; new games begin after it."""
        filled = len(state["frame"])
        self.count = state["count"]
        self.frame[:filled] = state["frame"]
        self.age[:filled] = state["age"]
        self.action[:filled] = state["action"]
        self.reward[:filled] = state["reward"]
        self.terminal[:filled] = state["terminal"]
        self.valid[:filled] = state["valid"]
        newest = (self.count - 1) % len(self.frame)
        self.valid[newest] = False  # its next frame is lost: the next row belongs to new games


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


def check_finite(agent: Agent, scalars: dict, global_step, saved_step, run_dir):
    """Exit if a loss or a weight is NaN or infinite. Images and rewards are integers."""
    sums = [weight.detach().sum() for weight in agent.parameters()]  # NaN if an element is NaN
    numbers = {
        "losses": torch.tensor(list(scalars.values())),
        "weights": torch.stack(sums),
    }
    for name, tensor in numbers.items():
        if not tensor.isfinite().all():
            checkpoint = f"the last checkpoint in {run_dir} is at step {saved_step}"
            if saved_step == 0:
                checkpoint = f"{run_dir} has no checkpoint yet"
            problem = f"NaN or infinity in the {name} before step {global_step}"
            sys.exit(f"{problem}; try a lower learning rate; {checkpoint}")


@torch.inference_mode()
def evaluate(agent: Agent, envs, obs, signals=()) -> np.ndarray:
    """Raw return of each environment's first game, with --eval-e as epsilon.

    A signal in the list `signals` ends it at once; the returns are then incomplete.
    """
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, bool)
    with torch.random.fork_rng(devices=[]):  # leaves training's random numbers alone
        for _ in range(agent.args.eval_max_steps):
            x = torch.from_numpy(obs).to(agent.head.weight.device)
            action = agent.get_action(x, agent.args.eval_e).numpy()
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
        sys.exit(f"NaN or infinity in the return of evaluation environment {env}; mend its reward")
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
    for name in ("n_atoms", "v_min", "v_max"):  # C51: the weights fit these returns alone
        value = saved["args"][name]
        if getattr(args, name) != value:
            sys.exit(f"--resume {args.resume}: {name} must stay {value}")
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


def open_envs(args: Args, env_seed: int, global_step: int):
    """Training environments and their first observation."""
    try:
        # A resumed run plays other episodes than those before
        envs, obs = make_envs(args, args.num_envs, env_seed + global_step)
    except gym.error.Error as error:
        examples = "ids of games are such as PongNoFrameskip-v4 and ALE/Pong-v5"
        sys.exit(f"--env-id {args.env_id}: {error} ({examples})")
    except (ImportError, ValueError) as error:
        sys.exit(f"--env-id {args.env_id}: {error}")
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
    envs, obs = open_envs(args, env_seed, global_step)
    agent = Agent(envs.single_action_space, args, precision)
    agent = agent.to(device, memory_format=torch.channels_last)
    optimizer = make_optimizer(agent, args)  # C51: another epsilon
    target_agent = copy.deepcopy(agent)
    replay = Replay(args.buffer_size // args.num_envs, args.num_envs)
    if args.resume:
        load_weights(agent, saved["agent"], args.resume)
        target_agent.load_state_dict(saved["target_agent"])
        moments = saved["optimizer"]["state"]  # the hyperparameters come from the flags
        optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
        load_replay(args, replay, global_step)
    loss_fn = dqn_loss
    if args.compile:  # static shapes: acting, evaluation and update each have their own
        agent.compile(mode="reduce-overhead", dynamic=False)
        loss_fn = torch.compile(loss_fn, mode="reduce-overhead", dynamic=False)
    run_dir, record, writer = open_run(args, device, precision, global_step)

    eval_frequency = args.eval_frequency or args.total_timesteps
    # Scalars and checkpoints are written at the end of an iteration
    longest_iteration = min(2000, args.checkpoint_frequency)  # in steps
    done = np.zeros(args.num_envs, bool)
    age = np.zeros(args.num_envs, int)  # steps since the reset, 3 and more as 3
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

        while global_step < min(log_step, args.total_timesteps):
            # Step
            step_before = global_step
            epsilon = epsilon_at(step_before, args)
            with torch.inference_mode():
                action = agent.get_action(torch.from_numpy(obs).to(device), epsilon).numpy()
            autoreset = done  # the step after the end of a game only resets
            next_obs, reward, terminated, truncated, info = envs.step(action)
            valid = ~(autoreset | info["scripted"])
            done = terminated | truncated
            if done.any():
                episode = info["episode"]
                episodes.extend(zip(episode["r"][done], episode["l"][done]))
            if args.clip_reward:
                reward = np.sign(reward)
            if args.terminal_on_life_loss:  # for the learner; the environment plays on
                terminated = terminated | info["life_lost"]
            replay.add(obs, age, action, reward, terminated, valid)
            obs = next_obs
            age = np.where(autoreset, 0, np.minimum(age + 1, 3))
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
        check_finite(agent, scalars, global_step, saved_step, run_dir)

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
            envs_and_obs = make_envs(args, args.eval_episodes, eval_seed, video_dir)
            eval_returns = evaluate(agent, *envs_and_obs, signals)
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
                "optimizer": optimizer.state_dict(),
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
