"""Advantage actor-critic (A2C), the synchronous form of A3C, for Atari games.

    python algos/a2c_atari.py --env-id BreakoutNoFrameskip-v4

A3C: Mnih et al. 2016, arXiv:1602.01783. The default settings, but for --total-timesteps and the place
of --rms-eps, are those of OpenAI Baselines' a2c.
Network and preprocessing: Mnih et al. 2015, Nature 518:529. What differs from ppo_atari.py:
rollouts have 5 steps, the targets are n-step returns, and the update is one step of RMSprop along
the plain policy gradient of the whole rollout. What differs from A3C's paper:
1. All environments step together and one network learns; the paper has asynchronous copies.
2. The network is larger and initialised orthogonally, and --precision auto may compute it in
   bfloat16. The loss is a mean over steps (paper: a sum), and gradients are clipped.
3. A lost life is terminal for the learner, although the game continues. Each life begins with
   FIRE and action 2, in games that have FIRE.
4. The learner's rewards are clipped to their sign. Logged returns are raw and of whole games.
5. Truncation is not termination: a truncated game bootstraps from its last observation.
6. RMSprop adds its epsilon to the root, as PyTorch does, and not under it. Under the root the same
   1e-5 outweighs nearly all squared gradients: on Breakout two runs of 1M steps learned next to
   nothing.
7. An evaluation plays by the sampled policy, and once more epsilon-greedily with epsilon = 0.01.
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
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

# ruff: noqa: E402 (the imports below this function)


def share_cores():
    """Settings for a CPU whose cores PyTorch's threads and the emulators' threads share.

    They make 10 to 23 % more steps per second on two cores that are otherwise free. Several runs
    at once need --torch-threads 1, or they slow each other down. See docs/atari-speed.md.
    """
    if "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ:
        return  # the user has decided
    os.environ["GOMP_SPINCOUNT"] = "10000"  # idle threads of PyTorch go to sleep sooner
    try:
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            # With this class a thread that wakes up does not interrupt the one that woke it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (AttributeError, OSError):
        pass  # not Linux, or not permitted


if __name__ == "__main__":
    share_cores()  # here, because PyTorch reads GOMP_SPINCOUNT when it is imported

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import tyro
from ale_py import Action, AtariVectorEnv
from torch.distributions import Categorical
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
    eval_frequency: int = 0  # steps between evaluations; 0 evaluates only at the end
    eval_episodes: int = 30  # episodes of an evaluation, each in an environment of its own
    eval_max_steps: int = 50_000  # an evaluation truncates longer episodes
    capture_video: bool = False  # record the first 3 episodes of every evaluation
    track: bool = False  # log to Weights & Biases as well
    wandb_project_name: str = "plainrl"  # W&B project
    wandb_entity: str | None = None  # W&B user or team
    compile: bool = False  # torch.compile policy and loss; CUDA graphs on a GPU
    env_id: str = (
        "BreakoutNoFrameskip-v4"  # sticky actions as in the id; a frame skip of 1 becomes 4
    )
    num_envs: int = 16  # parallel environments
    total_timesteps: int = 10_000_000  # steps of all environments, but no scripted ones
    learning_rate: float = 7e-4  # of RMSprop
    anneal_lr: bool = True  # anneal the learning rate linearly to zero over --total-timesteps
    num_steps: int = 5  # steps of each environment in a rollout, the n of the n-step returns
    gamma: float = 0.99  # discount factor
    clip_reward: bool = True  # learn from the sign of the reward
    terminal_on_life_loss: bool = True  # treat a lost life as termination; the game continues
    fire_on_life_loss: bool = True  # begin each life with FIRE and action 2 if the game has FIRE
    ent_coef: float = 0.01  # entropy coefficient
    vf_coef: float = 0.5  # value loss coefficient
    max_grad_norm: float = 0.5  # gradients are clipped to this norm
    rms_alpha: float = 0.99  # decay of RMSprop's running mean of squared gradients
    rms_eps: float = 1e-5  # added to the square root of that mean

    def __post_init__(self):
        self.runs_dir = os.path.expanduser(self.runs_dir)  # shells leave --runs-dir=~/runs as it is
        name = self.exp_name
        is_text = name.isprintable() and name.strip() != ""
        if not is_text or len(name.encode()) > 150:
            wrong = f"--exp-name {name[:150]!r} must be printable, 1 to 150 bytes in UTF-8"
            raise ValueError(f"{wrong}; without it, the file's name is used")
        largest = {"num_envs": 10_000, "eval_episodes": 10_000, "torch_threads": 1024}
        fractions = ("gamma", "rms_alpha")
        # A flag whose default is 0 may be 0. So may these
        may_be_zero = ("seed", "torch_threads", "eval_frequency", "keep_checkpoints")
        may_be_zero += ("ent_coef", "vf_coef", *fractions)
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
        gibibytes = batch_size * 4 * 84 * 84 / 2**30  # of the images that a rollout stores
        if gibibytes > 8:  # probably a typing error
            memory = f"{gibibytes:.0f} GiB of images; at most 8 are allowed"
            raise ValueError(f"A rollout of {batch} has {memory}. Lower --num-envs or --num-steps")
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
        raise ValueError("not an Atari game; use ppo_pixels.py for images of other environments")
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
    """The network of Mnih et al. 2015, shared by a categorical policy and a value function."""

    def __init__(self, action_space: gym.spaces.Discrete, args: Args, precision: str):
        super().__init__()
        self.args = args
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
        self.actor = layer_init(nn.Linear(512, int(action_space.n)), std=0.01)
        self.critic = layer_init(nn.Linear(512, 1), std=1.0)

    def features(self, obs):
        """obs (n, 4, 84, 84) uint8 -> (n, 512) float32."""
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

    def get_greedy_action(self, obs, epsilon: float = 0.01):
        """Epsilon-greedy actions (n,): random with probability epsilon, else the most probable."""
        logits = self.actor(self.features(obs))
        random_action = torch.randint(logits.shape[1], (len(obs),), device=obs.device)
        explores = torch.rand(len(obs), device=obs.device) < epsilon
        return torch.where(explores, random_action, logits.argmax(-1))

    def to_env(self, action) -> np.ndarray:
        return action.cpu().numpy()


def n_step_returns(rewards, values, terminateds, dones, gamma):
    """Targets (T, N) of arXiv:1602.01783 algorithm S3, from values (T + 1, N), the rest (T, N)."""
    # A terminal state is worth nothing; a truncated one and the rollout's last one their value.
    targets = values.clone()
    for t in reversed(range(len(rewards))):
        next_return = torch.where(dones[t] > 0, values[t + 1], targets[t + 1])
        targets[t] = rewards[t] + gamma * next_return * (1 - terminateds[t])
    return targets[:-1]


def a2c_loss(agent: Agent, args: Args, obs, action, target, valid):
    """Loss of a rollout of tensors (n, ...), and its metrics by name."""
    _, logprob, entropy, value = agent.get_action_and_value(obs, action)
    assert logprob.shape == value.shape == target.shape == valid.shape

    # Means over the valid steps: the weights of autoreset and scripted steps are 0. They stay in
    # the batch so that its size is constant, which CUDA graphs require. PPO repeats samples
    # instead. A2C makes only one step on a rollout, in which they would count twice.
    weight = valid / valid.sum().clamp(min=1)  # all of a short rollout can be scripted

    advantage = target - value.detach()
    policy_loss = -(weight * logprob * advantage).sum()
    value_loss = (weight * (target - value) ** 2).sum()
    entropy = (weight * entropy).sum()
    loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * entropy
    metrics = {
        "losses/policy_loss": policy_loss,
        "losses/value_loss": value_loss,
        "losses/entropy": entropy,
    }
    return loss, metrics


def update(agent: Agent, optimizer, args: Args, batch: dict, loss_fn=a2c_loss) -> dict:
    """One step on a batch of tensors (samples, ...); its metrics by name."""
    loss, metrics = loss_fn(agent, args, **batch)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
    optimizer.step()
    values = torch.stack(list(metrics.values())).tolist()
    return dict(zip(metrics, values))


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
def evaluate(
    agent: Agent,
    envs,
    obs,
    greedy: bool = False,
    signals=(),
) -> np.ndarray:
    """Raw return of each environment's first game, with sampled or epsilon-greedy actions.

    A signal in the list `signals` ends it at once; the returns are then incomplete.
    """
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, bool)
    for _ in range(agent.args.eval_max_steps):
        x = torch.from_numpy(obs).to(agent.critic.weight.device)
        if greedy:
            action = agent.get_greedy_action(x)
        else:
            action, *_ = agent.get_action_and_value(x)
        obs, reward, terminated, truncated, _ = envs.step(agent.to_env(action))
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


def evaluate_both(agent: Agent, args: Args, seed: int, video_dir, signals):
    """Returns with sampled and with epsilon-greedy actions, in games with the same starts."""
    cuda_devices = [0] if agent.critic.weight.is_cuda else []
    with torch.random.fork_rng(cuda_devices):  # evaluations do not change the draws of training
        envs_and_obs = make_envs(args, args.eval_episodes, seed, video_dir)
        sampled = evaluate(agent, *envs_and_obs, signals=signals)
        envs_and_obs = make_envs(args, args.eval_episodes, seed)
        greedy = evaluate(agent, *envs_and_obs, greedy=True, signals=signals)
    return sampled, greedy


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


def summarize(record: dict, train_returns, eval_returns, greedy_returns) -> dict:
    """What train() returns and summary.json holds; train_returns are the last 100 at most."""
    return {
        **record,
        "train_return_last100": float(np.mean(train_returns)) if train_returns else None,
        "eval_episodes": len(eval_returns),
        "eval_returns": eval_returns.tolist(),
        "eval_return_mean": eval_returns.mean(),
        "eval_return_std": eval_returns.std(),
        "eval_greedy_mean": greedy_returns.mean(),
        "eval_greedy_returns": greedy_returns.tolist(),
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
    agent = Agent(envs.single_action_space, args, precision)
    agent = agent.to(device, memory_format=torch.channels_last)
    parameters = agent.parameters()
    optimizer = torch.optim.RMSprop(parameters, args.learning_rate, args.rms_alpha, args.rms_eps)
    if args.resume:
        load_weights(agent, saved["agent"], args.resume)
        moments = saved["optimizer"]["state"]  # the hyperparameters come from the flags
        optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    policy = maybe_compile(agent.get_action_and_value, args)
    loss_fn = maybe_compile(a2c_loss, args)
    run_dir, record, writer = open_run(args, device, precision, global_step)

    # Storage of a rollout: what the networks need on the device, the rest in NumPy
    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros(args.num_steps + 1, *next_obs.shape, dtype=torch.uint8, device=device)
    actions = torch.zeros(shape, dtype=torch.int64, device=device)
    values = torch.zeros(args.num_steps + 1, args.num_envs, device=device)
    rewards = np.zeros(shape, np.float32)
    terminateds = np.zeros(shape, np.float32)
    dones = np.zeros(shape, np.float32)
    valids = np.zeros(shape, bool)  # False for autoreset and scripted steps

    done = np.zeros(args.num_envs, bool)
    episodes = []  # (return, length) of those that ended since the last log
    history = []  # metrics of the updates since the last log
    iteration_steps = []  # a rollout of 5 steps may count none: no seconds per step of each
    iteration_seconds = []
    sps = 0.0  # steps per second
    saved_step = global_step
    bar = open_bar(args, global_step)

    while global_step < args.total_timesteps:
        first_step = global_step
        iteration_started = time.perf_counter()
        learning_rate = args.learning_rate
        if args.anneal_lr:
            learning_rate *= 1 - global_step / args.total_timesteps
        optimizer.param_groups[0]["lr"] = learning_rate  # there is one group

        # Rollout
        for t in range(args.num_steps):
            obs[t] = torch.from_numpy(next_obs)
            with torch.inference_mode():
                actions[t], _, _, values[t] = policy(obs[t])
            autoreset = done  # the step after the end of a game only resets
            action = agent.to_env(actions[t])
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
            rewards[t] = reward
            terminateds[t] = terminated
            dones[t] = terminated | truncated
            valids[t] = valid
            global_step += int(valid.sum())
        obs[-1] = torch.from_numpy(next_obs)

        # Targets
        b_valid = torch.from_numpy(valids).to(device)
        b_rewards = torch.from_numpy(rewards).to(device)
        b_terminateds = torch.from_numpy(terminateds).to(device)
        b_dones = torch.from_numpy(dones).to(device)
        with torch.no_grad():
            # In NEXT_STEP mode obs[t + 1] is the true next state, also where an episode ends
            values[-1] = agent.get_value(obs[-1])
            targets = n_step_returns(b_rewards, values, b_terminateds, b_dones, args.gamma)

        # Update on the whole rollout: (T, N, ...) -> (samples, ...)
        batch = {
            "obs": obs[:-1].flatten(0, 1),
            "action": actions.flatten(0, 1),
            "target": targets.flatten(0, 1),
            "valid": b_valid.flatten(0, 1),
        }
        metrics = update(agent, optimizer, args, batch, loss_fn)
        check_finite(agent, metrics, global_step, saved_step, run_dir)

        # Log every 2,000 steps and before an evaluation: there are many updates
        history.append(list(metrics.values()))
        iteration_steps.append(global_step - first_step)
        iteration_seconds.append(time.perf_counter() - iteration_started)
        bar.update(min(global_step, args.total_timesteps) - bar.n)
        finished = global_step >= args.total_timesteps
        every = args.eval_frequency or args.total_timesteps  # 0 evaluates at the end only
        evaluates = finished or global_step // every > first_step // every
        if evaluates or signals or global_step // 2000 > first_step // 2000:
            # Without the first iteration, the warm-up
            steps = sum(iteration_steps[1:] or iteration_steps)
            sps = steps / sum(iteration_seconds[1:] or iteration_seconds)
            scalars = dict(zip(metrics, np.mean(history, axis=0)))
            residuals = (targets - values[:-1])[b_valid]
            unexplained = residuals.var() / targets[b_valid].var()
            scalars["losses/explained_variance"] = 1 - float(unexplained)  # of the last rollout
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
            episodes = []
            history = []

        # Evaluate
        if evaluates:
            bar.set_description_str(f"evaluating {args.eval_episodes} episodes ")
            video_dir = run_dir / f"videos/step-{global_step}" if args.capture_video else None
            eval_seed = env_seed + 2**30
            both_returns = evaluate_both(agent, args, eval_seed, video_dir, signals)
            eval_returns, greedy_returns = both_returns
        interrupted = bool(signals)
        if evaluates and interrupted:
            global_step = first_step  # a resumed run repeats this iteration, from these weights
            evaluates = finished = False
        elif evaluates:
            writer.add_scalar("eval/episodic_return", eval_returns.mean(), global_step)
            writer.add_scalar("eval/greedy_return", greedy_returns.mean(), global_step)
        writer.flush()

        # Save
        record["global_step"] = global_step
        record["wall_time_s"] = time.time() - started
        record["sps"] = sps
        if evaluates and args.eval_frequency > 0:
            save_best(run_dir, record, agent, eval_returns)
        if finished:
            summary = summarize(record, envs.return_queue, eval_returns, greedy_returns)
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
    print(f"epsilon-greedy evaluation: {greedy_returns.mean():.1f} +- {greedy_returns.std():.1f}")
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
