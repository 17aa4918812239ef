"""REINFORCE, the Monte Carlo policy gradient, with and without a baseline. The file to read first.

    python algos/reinforce.py --env-id CartPole-v1

Play whole episodes, then make every action likelier in proportion to the return that followed it:
gradient of the mean of  log pi(a_t | s_t) * (G_t - b(s_t)),   G_t = r_t + gamma * r_t+1 + ...
Williams 1992, Machine Learning 8:229; the baseline b(s): Sutton and Barto 2018, section 13.4.
1. Adam in place of plain ascent; G_t - b standardised over the batch; no weight gamma^t.
2. One episode of each environment for an update; a time limit ends it. No --track, no --compile.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass
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

try:
    import envpool
except ImportError:  # it has no build for this machine
    envpool = None


@dataclass
class Args:
    exp_name: str = Path(__file__).stem  # name of this experiment, part of the run folder's name
    seed: int = 1  # seeds Python, NumPy, PyTorch and every environment
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"  # auto takes CUDA where there is one
    torch_threads: int = 1  # CPU threads of PyTorch; networks this small are slower with more
    runs_dir: str = "runs"  # the run folder is created in here
    resume: str = ""  # run folder to continue; flags beside it replace the saved flags
    checkpoint_frequency: int = 20_000  # steps between two checkpoints
    eval_frequency: int = 0  # steps between two evaluations; 0 evaluates at the end only
    eval_episodes: int = 100  # episodes of an evaluation, one in each of as many environments
    eval_max_steps: int = 50_000  # evaluation and training cut longer episodes
    capture_video: bool = False  # film the first 3 episodes of every evaluation
    env_id: str = "CartPole-v1"  # a Gymnasium or EnvPool id: Box observations, Discrete actions
    env_backend: Literal["auto", "gymnasium", "envpool"] = "auto"  # auto: EnvPool if it has the id
    num_envs: int = 8  # parallel environments, and episodes of an update
    total_timesteps: int = 200_000  # steps of all environments; schedules stretch to a new total
    learning_rate: float = 3e-3  # step size of Adam
    anneal_lr: bool = True  # let the learning rate fall linearly to zero
    gamma: float = 0.99  # discount factor
    baseline: Literal["value", "none"] = "value"  # subtracted: a value, or --norm-adv's mean alone
    norm_adv: bool = True  # standardise the returns, less the baseline, of each batch

    def __post_init__(self):
        for name, value in asdict(self).items():
            least = 0 if name in ("seed", "eval_frequency", "gamma") else 1e-9
            most = 1 if name == "gamma" else 2**32 - 1
            if type(value) in (int, float) and not least <= value <= most:
                raise ValueError(f"--{name.replace('_', '-')} {value} is not in [{least}, {most}]")


def make_envs(args: Args, backend: str, num_envs: int, seed: int, video_dir=None):
    """Vector environment seeded seed, seed + 1, ... in NEXT_STEP mode, and its first observation.

    The step after an episode's end is a reset row: its action is ignored, it belongs to no episode.
    """

    def make_env(index):
        if video_dir is None or index >= 3 or not args.capture_video:
            return gym.make(args.env_id)
        env = gym.make(args.env_id, render_mode="rgb_array")
        return gym.wrappers.RecordVideo(env, f"{video_dir}/env-{index}", lambda n: n == 0)

    if backend == "auto":
        backend = "envpool" if envpool and args.env_id in envpool.list_all_envs() else "gymnasium"
    if backend == "envpool":
        assert envpool, "--env-backend envpool needs a package: pip install envpool"
        envs = envpool.make_gymnasium(args.env_id, num_envs=num_envs, seed=seed)
        seed = None  # it takes seeds when it is made, and then no others
    else:
        envs = gym.vector.SyncVectorEnv([lambda i=i: make_env(i) for i in range(num_envs)])
    assert envs.metadata["autoreset_mode"] == gym.vector.AutoresetMode.NEXT_STEP
    return envs, flatten(envs.reset(seed=seed)[0])


def flatten(obs) -> np.ndarray:
    """(n, ...), or a dictionary of such in the order of its keys, to (n, obs_dim) float32."""
    if isinstance(obs, dict):
        return np.concatenate([flatten(obs[key]) for key in sorted(obs)], axis=1)
    assert isinstance(obs, np.ndarray), "a Tuple of observations; FlattenObservation wraps it"
    return obs.reshape(len(obs), -1).astype(np.float32)


def layer_init(layer: nn.Linear, std: float = 2**0.5) -> nn.Linear:
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """Categorical policy, and a value network for the baseline."""

    def __init__(self, obs_dim: int, action_space, args: Args):
        super().__init__()

        def mlp(out_dim, std):
            first, second = layer_init(nn.Linear(obs_dim, 64)), layer_init(nn.Linear(64, 64))
            last = layer_init(nn.Linear(64, out_dim), std)
            return nn.Sequential(first, nn.SiLU(), second, nn.SiLU(), last)

        self.args = args
        self.actor = mlp(int(action_space.n), std=0.01)
        self.critic = mlp(1, std=1.0)

    def get_value(self, x):
        return self.critic(x).squeeze(-1)  # (..., obs_dim) -> (...)

    def get_action(self, x, action=None):
        policy = Categorical(logits=self.actor(x), validate_args=False)
        if action is None:
            action = policy.sample()
        return action, policy.log_prob(action), policy.entropy()  # x (n, obs_dim) -> each (n,)

    def to_env(self, action):
        return action.cpu().numpy()


def compute_returns(rewards, gamma: float):
    """G_t = r_t + gamma * G_t+1, (T, N) like the rewards, which are 0 after an episode's end."""
    returns = rewards.clone()
    for t in reversed(range(len(rewards) - 1)):
        returns[t] += gamma * returns[t + 1]
    return returns


def reinforce_loss(agent: Agent, args: Args, x, action, target):
    """Loss of a batch of tensors (rows, ...), and [policy_loss, value_loss, entropy]."""
    _, logprob, entropy = agent.get_action(x, action)
    value = agent.get_value(x)
    assert logprob.shape == value.shape == target.shape
    advantage = target - value.detach() if args.baseline == "value" else target
    if args.norm_adv and len(target) > 1:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss = -(logprob * advantage).mean()
    value_loss = 0.5 * ((value - target) ** 2).mean()
    loss = policy_loss + value_loss  # a weight would do nothing: no shared layers, and Adam
    return loss, torch.stack([policy_loss, value_loss, entropy.mean()]).detach()


def update(agent: Agent, optimizer, args: Args, batch, loss_fn=reinforce_loss):
    """One step on reinforce_loss's tensors (rows, ...), whole episodes; its metrics (3,)."""
    loss, metrics = loss_fn(agent, args, *batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return metrics


@torch.inference_mode()
def evaluate(agent: Agent, envs, obs):
    """Raw return of each environment's first episode, by the policy's mode."""
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, bool)
    for _ in range(agent.args.eval_max_steps):
        x = torch.from_numpy(flatten(obs)).to(agent.actor[0].weight.device)
        obs, reward, terminated, truncated, _ = envs.step(agent.to_env(agent.actor(x).argmax(-1)))
        returns += np.where(running, reward, 0.0)
        running &= ~(terminated | truncated)
        if not running.any():
            break
    if running.any():
        print(f"{running.sum()} episodes cut: longer than --eval-max-steps", file=sys.stderr)
    envs.close()
    return returns


def write(path: Path, content):
    """Aside, then moved: a kill at any moment leaves the old file or the new one, whole."""
    aside = path.with_suffix(".tmp")
    if path.suffix == ".pt":
        torch.save(content, aside)
    else:
        aside.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(aside, path)


def load_checkpoint(run_dir) -> dict:
    """The run's checkpoint, read as data: nothing in it can run code."""
    try:
        saved = torch.load(Path(run_dir, "checkpoint.pt"), map_location="cpu", weights_only=True)
        assert saved["algo"] == Path(__file__).stem, f"it is of {saved['algo']}.py"
        return saved | {"args": asdict(Args(**saved["args"])) | {"resume": run_dir}}
    except Exception as error:
        sys.exit(f"--resume {run_dir} is no run folder of this file: {error!r:.120}")


def train(args: Args, stop=()) -> dict:
    """Train and evaluate; the content of summary.json. A signal's number in stop: save and end."""
    device = args.device.replace("auto", "cuda" if torch.cuda.is_available() else "cpu")
    if not getattr(torch, device).is_available():
        sys.exit(f"--device {device} is not there; take --device auto")
    torch.set_num_threads(args.torch_threads)
    started = time.time()
    saved = load_checkpoint(args.resume) if args.resume else None
    global_step = saved["global_step"] if saved else 0
    if saved:
        started -= saved["wall_time_s"]
        if global_step >= args.total_timesteps:
            sys.exit(f"--resume {args.resume} is at step {global_step}: more --total-timesteps")
        if args.env_id != saved["args"]["env_id"]:
            sys.exit(f"--resume {args.resume}: env_id must stay {saved['args']['env_id']}")
    seed = (args.seed + global_step) % 2**32  # a resumed run differs from an unbroken one
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    env_seed = args.seed * 10_007 % 2**30  # evaluations add 2**30, which training never reaches
    eval_backend = "gymnasium" if args.env_id in gym.registry else "auto"
    try:
        make_envs(args, eval_backend, 1, env_seed)  # the run ends by them: if they fail, then now
        envs, next_obs = make_envs(args, args.env_backend, args.num_envs, env_seed + global_step)
    except (gym.error.Error, ImportError, AssertionError) as error:
        sys.exit(f"--env-id {args.env_id}: {error}")
    parts = getattr(envs.single_observation_space, "spaces", {"obs": envs.single_observation_space})
    for name, space in {**parts, "action": envs.single_action_space}.items():
        kind = "Discrete" if name == "action" else "Box"
        if not isinstance(space, getattr(gym.spaces, kind)) or getattr(space, "start", 0) != 0:
            sys.exit(f"--env-id: {name} {space}, no plain {kind}: wrap it; Box: ppo_continuous.py")
    agent = Agent(next_obs.shape[1], envs.single_action_space, args).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, fused=True)
    if saved:
        agent.load_state_dict(saved["agent"])
        constants = {"param_groups": optimizer.state_dict()["param_groups"]}  # as the flags say
        optimizer.load_state_dict(saved["optimizer"] | constants)
    name = f"{args.env_id}__{args.exp_name}__{args.seed}__{int(time.time())}"
    run_dir = Path(args.resume or Path(args.runs_dir, name.replace("/", "-").replace(":", "-")))
    run_dir.mkdir(parents=True, exist_ok=bool(saved))
    shutil.copy(__file__, run_dir)
    git = f"git -C '{Path(__file__).resolve().parent}' describe --always --dirty 2>/dev/null"
    run = {"algo": Path(__file__).stem, "env_id": args.env_id, "seed": args.seed, "device": device}
    run |= {"total_timesteps": args.total_timesteps, "args": asdict(args)}
    run["commit"] = os.popen(git).read().strip() or "unknown"
    run["versions"] = {m.__name__: str(m.__version__) for m in (torch, np, gym, envpool) if m}
    write(run_dir / "config.json", run)
    writer = SummaryWriter(run_dir, purge_step=global_step + 1)
    writer.add_text("config", f"```\n{json.dumps(run, indent=2)}\n```", global_step)
    returns100 = []  # of the last 100 episodes
    paces = []  # (steps, seconds) of the iterations; the first warms up
    saved_step = global_step
    look = "{desc}{percentage:3.0f}% {bar:10} {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
    bar = tqdm(total=args.total_timesteps, initial=global_step, bar_format=look, disable=None)
    while global_step < args.total_timesteps and not (stop and saved_step):  # saves first
        first_step = global_step
        iteration_started = time.perf_counter()
        fraction = 1 - global_step / args.total_timesteps if args.anneal_lr else 1.0
        optimizer.param_groups[0]["lr"] = fraction * args.learning_rate

        # Rollout: an episode of each, whoever is done plays on, unseen; a NaN is seen after the update
        obs = flatten(envs.reset()[0])
        steps = []
        running = np.ones(args.num_envs, bool)
        while running.any() and len(steps) < args.eval_max_steps:
            with torch.inference_mode():
                action, *_ = agent.get_action(torch.from_numpy(obs).to(device).nan_to_num(0, 0, 0))
            next_obs, reward, terminated, truncated, _ = envs.step(agent.to_env(action))
            steps.append((obs, agent.to_env(action), np.where(running, reward, 0.0), running))
            obs = flatten(next_obs)
            running = running & ~(terminated | truncated)

        # Update, on all rows of the episodes: (T, N, ...) -> (rows, ...)
        obs, actions, rewards, valid = [torch.from_numpy(np.stack(part)) for part in zip(*steps)]
        global_step += int(valid.sum())
        batch = (obs, actions, compute_returns(rewards.float(), args.gamma))
        batch = [tensor[valid].to(device) for tensor in batch]
        metrics = update(agent, optimizer, args, batch).tolist()
        if not nn.utils.parameters_to_vector(agent.parameters()).isfinite().all():
            sys.exit(f"non-finite numbers before step {global_step}; saved {saved_step}: {run_dir}")

        # Log
        paces.append((global_step - first_step, time.perf_counter() - iteration_started))
        sps = float(np.divide(*np.sum(paces[1:] or paces, axis=0)))
        scalars = dict(zip(("losses/policy_loss", "losses/value_loss", "losses/entropy"), metrics))
        scalars |= {"charts/learning_rate": fraction * args.learning_rate, "charts/SPS": sps}
        returns100 = (returns100 + rewards.sum(0).tolist())[-100:]
        bar.postfix = f"return {np.mean(returns100):.1f}, SPS {sps:.0f}"
        scalars["charts/episodic_return"] = rewards.sum(0).mean().item()
        scalars["charts/episodic_length"] = valid.sum(0).float().mean().item()
        for key, value in scalars.items():
            writer.add_scalar(key, value, global_step)
        bar.update(min(global_step, args.total_timesteps) - bar.n)

        # Evaluate and save
        over = global_step >= args.total_timesteps
        every = args.eval_frequency or args.total_timesteps
        if over or global_step // every > first_step // every:
            bar.set_description("evaluation ")
            film = run_dir / f"videos/step-{global_step}"
            eval_envs = make_envs(args, eval_backend, args.eval_episodes, env_seed + 2**30, film)
            returns = evaluate(agent, *eval_envs)
            writer.add_scalar("eval/episodic_return", returns.mean(), global_step)
        writer.flush()
        state = {"global_step": global_step, "wall_time_s": time.time() - started, "sps": sps}
        if over:
            summary = run | state | {"train_return_last100": np.mean(returns100)}
            summary |= {"eval_episodes": args.eval_episodes, "eval_returns": returns.tolist()}
            summary |= {"eval_return_mean": returns.mean(), "eval_return_std": returns.std()}
            write(run_dir / "summary.json", summary)
        if over or stop or global_step - saved_step >= args.checkpoint_frequency:
            state |= {"agent": agent.state_dict(), "optimizer": optimizer.state_dict()}
            write(run_dir / "checkpoint.pt", run | state)
            saved_step = global_step
            if bar.disable:  # there is no terminal
                print(f"step {global_step}/{args.total_timesteps}, {bar.postfix}", flush=True)
        bar.set_description_str(f"saved {saved_step} ")
    for resource in (bar, envs, writer):
        resource.close()
    if global_step < args.total_timesteps:
        print(f"stopped at step {global_step}; go on with --resume {run_dir}", file=sys.stderr)
        sys.exit(128 + stop[0])
    print(f"{run_dir}: evaluation {returns.mean():.1f} +- {returns.std():.1f}")
    return summary


if __name__ == "__main__":
    gym.logger.min_level = gym.logger.ERROR
    first_look = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first_look.add_argument("--resume")
    resume = first_look.parse_known_args()[0].resume  # its arguments are the defaults
    args = tyro.cli(Args, default=Args(**load_checkpoint(resume)["args"]) if resume else Args())
    stop = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stop.append(number))
    train(args, stop)
