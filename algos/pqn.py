"""Parallelised Q-Network (PQN) for Discrete actions: Q-learning without replay and target network.

    python algos/pqn.py --env-id CartPole-v1

PQN: Gallici et al. 2025 (ICLR), arXiv:2407.04811. Many environments step at once, so that a rollout
is a batch of varied samples. Layer normalisation is meant to keep the values from diverging. So PQN learns as
PPO does, in epochs of minibatches over a rollout, and needs neither a replay buffer nor a target
network. The default settings are CleanRL's, but for the shape of the rollout, the number of minibatches
and the final epsilon, which are those of the paper's code for CartPole. What differs from the paper:
1. Weights are initialised orthogonally. The loss lacks the factor 1/2 and the L2 penalty that
   the paper's proof needs.
2. Truncation is not termination: a truncated episode bootstraps from its last observation.
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
    eval_frequency: int = 0  # steps between evaluations; 0 evaluates only at the end
    eval_episodes: int = 100  # episodes of an evaluation, each in an environment of its own
    eval_max_steps: int = 50_000  # an evaluation truncates longer episodes
    eval_e: float = 0.0  # epsilon of evaluations
    capture_video: bool = False  # record the first 3 episodes of every evaluation
    track: bool = False  # log to Weights & Biases as well
    wandb_project_name: str = "plainrl"  # W&B project
    wandb_entity: str | None = None  # W&B user or team
    compile: bool = False  # torch.compile network, targets and loss; CUDA graphs on a GPU
    env_id: str = "CartPole-v1"  # Gymnasium or EnvPool id: Box observations, Discrete actions
    env_backend: Literal["auto", "gymnasium", "envpool"] = "auto"  # for training
    num_envs: int = 32  # parallel environments
    total_timesteps: int = 500_000  # steps of all environments
    learning_rate: float = 2.5e-4  # of RAdam
    anneal_lr: bool = True  # anneal the learning rate linearly to zero over --total-timesteps
    num_steps: int = 64  # steps of each environment in a rollout
    gamma: float = 0.99  # discount factor
    q_lambda: float = 0.65  # lambda of Q(lambda): 0 is the one-step target, 1 the whole rollout
    num_minibatches: int = 16  # minibatches per epoch
    update_epochs: int = 4  # passes over a rollout
    start_e: float = 1.0  # epsilon, the probability of a random action, at the start
    end_e: float = 0.2  # final epsilon
    exploration_fraction: float = 0.5  # fraction of total_timesteps over which epsilon is annealed
    max_grad_norm: float = 10.0  # gradients are clipped to this norm

    def __post_init__(self):
        self.runs_dir = os.path.expanduser(self.runs_dir)  # shells leave --runs-dir=~/runs as it is
        name = self.exp_name
        is_text = name.isprintable() and name.strip() != ""
        if not is_text or len(name.encode()) > 150:
            wrong = f"--exp-name {name[:150]!r} must be printable, 1 to 150 bytes in UTF-8"
            raise ValueError(f"{wrong}; without it, the file's name is used")
        largest = {"num_envs": 10_000, "eval_episodes": 10_000, "torch_threads": 1024}
        fractions = ("gamma", "q_lambda", "start_e", "end_e", "eval_e", "exploration_fraction")
        # A flag whose default is 0 may be 0. So may these
        may_be_zero = ("seed", "eval_frequency", "keep_checkpoints", *fractions)
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
        if batch_size % self.num_minibatches:
            wrong = f"--num-minibatches {self.num_minibatches} must divide the batch of {batch}"
            divisors = [n for n in range(1, batch_size + 1) if batch_size % n == 0]
            nearest = min(divisors, key=lambda n: abs(n - self.num_minibatches))
            raise ValueError(f"{wrong} into equal parts. Try {nearest}")


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


def layer_init(layer: nn.Linear, std: float = 2**0.5) -> nn.Linear:
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """Q-network with layer normalisation: the value of each action."""

    def __init__(self, obs_dim: int, action_space: gym.spaces.Discrete, args: Args):
        super().__init__()
        self.args = args
        self.num_actions = int(action_space.n)
        self.network = nn.Sequential(
            layer_init(nn.Linear(obs_dim, 120)),
            nn.LayerNorm(120),
            nn.ReLU(),
            layer_init(nn.Linear(120, 84)),
            nn.LayerNorm(84),
            nn.ReLU(),
            layer_init(nn.Linear(84, self.num_actions)),
        )

    def forward(self, obs):
        return self.network(obs)  # (n, obs_dim) -> (n, num_actions)

    def get_action(self, obs, epsilon: float):
        """Epsilon-greedy actions (n,): each is random with probability epsilon, else greedy."""
        # Drawn on the CPU, so that a seed gives the same random numbers on every device
        random_action = torch.randint(self.num_actions, (len(obs),))
        explores = torch.rand(len(obs)) < epsilon
        greedy_action = self(obs).argmax(-1).cpu()
        return torch.where(explores, random_action, greedy_action)


def compute_q_lambda(rewards, values, terminateds, dones, gamma, q_lambda):
    """Targets Q(lambda) (T, N) of arXiv:2407.04811, from values (T + 1, N) and the rest (T, N).

        target[t] = r[t] + gamma * (lambda * target[t + 1] + (1 - lambda) * max_a Q(s[t + 1], a))

    values[t] is max_a Q(s[t], a), the value of the greedy action, whichever action was taken: an
    action that explores does not cut the trace (Peng's Q(lambda), not Watkins's).
    """
    # values[t + 1] is that of the true next state, also where an episode ends (see make_envs). A
    # terminal state is worth nothing, a truncated one its value. The recursion stops at both.
    next_values = values[1:] * (1 - terminateds)
    trace = q_lambda * (1 - dones)
    targets = torch.zeros_like(values)
    targets[-1] = values[-1]  # nothing else is known of what follows the rollout
    for t in reversed(range(len(rewards))):
        next_target = trace[t] * targets[t + 1] + (1 - trace[t]) * next_values[t]
        targets[t] = rewards[t] + gamma * next_target
    return targets[:-1]


def pqn_loss(agent: Agent, obs, action, target):
    """Loss of a minibatch of tensors (n, ...), and its metrics by name."""
    value = agent(obs).gather(-1, action.unsqueeze(-1)).squeeze(-1)  # Q(s, a) of the action taken
    assert value.shape == target.shape
    loss = nn.functional.mse_loss(value, target)
    metrics = {
        "losses/td_loss": loss,
        "losses/q_values": value.mean(),
    }
    return loss, metrics


def update(agent: Agent, optimizer, args: Args, batch: dict, loss_fn=pqn_loss) -> dict:
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
            minibatch = {name: tensor.index_select(0, indices) for name, tensor in batch.items()}
            loss, metrics = loss_fn(agent, **minibatch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, args.max_grad_norm)
            optimizer.step()
            # stack() copies: the next call of a CUDA graph overwrites these tensors
            history.append(torch.stack(list(metrics.values())).detach())
    means = torch.stack(history).mean(0).tolist()
    return dict(zip(metrics, means))


def epsilon_at(step: int, args: Args) -> float:
    """Epsilon of a step: annealed linearly from --start-e to --end-e, then constant."""
    end = args.exploration_fraction * args.total_timesteps
    return float(np.interp(step, [0, end], [args.start_e, args.end_e]))


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
    sizes = (*obs.shape[1:], int(action_space.n))
    eval_sizes = (*eval_obs.shape[1:], int(getattr(eval_envs.single_action_space, "n", 0)))
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
    # foreach: operations on all weights at once, as on a GPU; 28 % less time per update on a CPU
    optimizer = torch.optim.RAdam(agent.parameters(), lr=args.learning_rate, foreach=True)
    if args.resume:
        load_weights(agent, saved["agent"], args.resume)
        moments = saved["optimizer"]["state"]  # the hyperparameters come from the flags
        optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    if args.compile:  # static shapes: acting, targets, evaluation and update each have their own
        agent.compile(mode="reduce-overhead", dynamic=False)
    q_lambda_targets = maybe_compile(compute_q_lambda, args)
    loss_fn = maybe_compile(pqn_loss, args)
    run_dir, record, writer = open_run(args, device, global_step)

    # Storage of a rollout: what the network needs on the device, the rest in NumPy
    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros(args.num_steps + 1, *next_obs.shape, device=device)
    actions = torch.zeros(shape, dtype=torch.int64, device=device)
    rewards = np.zeros(shape, np.float32)
    terminateds = np.zeros(shape, np.float32)
    dones = np.zeros(shape, np.float32)
    valids = np.zeros(shape, bool)  # False for autoreset steps

    done = np.zeros(args.num_envs, bool)
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
            epsilon = epsilon_at(global_step, args)
            with torch.inference_mode():
                action = agent.get_action(obs[t], epsilon)
            actions[t] = action
            valid = ~done  # the step after the end of an episode only resets
            next_obs, reward, terminated, truncated, info = envs.step(action.numpy())
            next_obs = flatten(next_obs)
            done = terminated | truncated
            if done.any():
                episode = info["episode"]
                episodes.extend(zip(episode["r"][done], episode["l"][done]))
            rewards[t] = reward
            terminateds[t] = terminated
            dones[t] = done
            valids[t] = valid
            global_step += int(valid.sum())
        obs[-1] = torch.from_numpy(next_obs)

        # Targets. b_rewards and its like are the rollout's arrays on the device, (T, N)
        b_valid = torch.from_numpy(valids).to(device)
        b_rewards = torch.from_numpy(rewards).to(device)
        b_terminateds = torch.from_numpy(terminateds).to(device)
        b_dones = torch.from_numpy(dones).to(device)
        with torch.no_grad():
            # In NEXT_STEP mode obs[t + 1] is the true next state, also where an episode ends
            values = agent(obs).amax(-1)
            targets = q_lambda_targets(
                b_rewards, values, b_terminateds, b_dones, args.gamma, args.q_lambda
            )

        # Update on all steps but the autoreset steps: (T, N, ...) -> (samples, ...)
        batch = {
            "obs": obs[:-1][b_valid],
            "action": actions[b_valid],
            "target": targets[b_valid],
        }
        scalars = update(agent, optimizer, args, batch, loss_fn)
        check_finite(agent, obs, rewards, scalars, global_step, saved_step, run_dir)

        # Log
        seconds = time.perf_counter() - iteration_started
        seconds_per_step.append(seconds / (global_step - first_step))
        sps = float(1 / np.mean(seconds_per_step[1:] or seconds_per_step))  # without the warm-up
        scalars["charts/learning_rate"] = learning_rate
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
