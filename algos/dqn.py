"""Deep Q-learning (DQN), with double Q-learning as an option, for Discrete actions.

    python algos/dqn.py --env-id CartPole-v1

Mnih et al. 2015, Nature 518:529; double: van Hasselt et al. 2016, arXiv:1509.06461. Deviations:
1. A small network in PyTorch's own initialisation, Adam in place of RMSprop, gradients clipped.
2. Many environments: the steps of all of them count for the schedules and --train-frequency.
3. The error is squared: clipped, terminal states, far off at first, would count too little.
4. DQN forgets what it knew: the best model of all evaluations is kept in best.pt.
5. A time limit is no terminal state: a truncated episode bootstraps from its last observation.
"""

import argparse
import copy
import json
import os
import random
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass
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
except ImportError:  # it has no build for this machine
    envpool = None


@dataclass
class Args:
    exp_name: str = Path(__file__).stem  # name of this experiment, part of the run folder's name
    seed: int = 1  # seeds Python, NumPy, PyTorch and every environment
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"  # auto takes CUDA where there is one
    torch_threads: int = 1  # CPU threads of PyTorch; networks this small are slower with more
    runs_dir: str = "runs"  # the run folder is created in here
    resume: str = ""  # run folder to continue with a new replay; flags beside it replace the saved
    checkpoint_frequency: int = 20_000  # steps between two checkpoints
    eval_frequency: int = 10_000  # steps between two evaluations; 0 evaluates at the end only
    eval_episodes: int = 100  # episodes of an evaluation, one in each of as many environments
    eval_max_steps: int = 50_000  # an evaluation cuts longer episodes
    eval_e: float = 0.0  # share of random actions in evaluations
    capture_video: bool = False  # film the first 3 episodes of every evaluation
    track: bool = False  # send the run to Weights & Biases as well
    wandb_project_name: str = "plainrl"  # its project there
    wandb_entity: str | None = None  # its user or team there
    compile: bool = False  # torch.compile network and loss; CUDA graphs on a GPU
    env_id: str = "CartPole-v1"  # a Gymnasium or EnvPool id: Box observations, Discrete actions
    env_backend: Literal["auto", "gymnasium", "envpool"] = "auto"  # auto: EnvPool if it has the id
    num_envs: int = 16  # parallel environments
    total_timesteps: int = 200_000  # steps of all environments; schedules stretch to a new total
    learning_rate: float = 1e-3  # step size of Adam
    buffer_size: int = 100_000  # steps that the replay holds, of all environments
    gamma: float = 0.99  # discount factor
    tau: float = 1.0  # share of the online network in an update of the target network
    target_network_frequency: int = 500  # steps between two updates of the target network
    batch_size: int = 128  # transitions of an update
    start_e: float = 1.0  # epsilon, the share of random actions, until learning starts
    end_e: float = 0.05  # epsilon at the end
    exploration_fraction: float = 0.2  # part of total_timesteps over which it then falls linearly
    learning_starts: int = 1000  # steps that the replay must hold before the first update
    train_frequency: int = 4  # steps between two updates
    double_dqn: bool = False  # the online network picks the action that the target network values
    loss: Literal["huber", "mse"] = "mse"  # of the error; huber is the paper's clipped one
    max_grad_norm: float = 10.0  # largest norm of the gradient

    def __post_init__(self):
        shares = ("gamma", "tau", "start_e", "end_e", "eval_e", "exploration_fraction")
        for name, value in asdict(self).items():
            least = 0 if name in (*shares, "seed", "eval_frequency") else 1e-9
            most = 1 if name in shares else 2**32 - 1
            if type(value) in (int, float) and not least <= value <= most:
                raise ValueError(f"--{name.replace('_', '-')} {value} is not in [{least}, {most}]")
        most = min(self.buffer_size // self.num_envs * self.num_envs, self.total_timesteps - 1)
        if not 3 * self.num_envs <= self.learning_starts <= most:
            raise ValueError(f"--learning-starts: 3 x --num-envs to {most}: buffer, total steps")


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


class Agent(nn.Module):
    """A value for each action."""

    def __init__(self, obs_dim: int, action_space: gym.spaces.Discrete, args: Args):
        super().__init__()
        self.args = args
        self.num_actions = int(action_space.n)
        hidden = [nn.Linear(obs_dim, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()]
        self.network = nn.Sequential(*hidden, nn.Linear(128, self.num_actions))

    def forward(self, obs):
        return self.network(obs)  # (n, obs_dim) -> (n, num_actions)

    def get_action(self, obs, epsilon: float):
        """The best action (n,) or, with probability epsilon in each row for itself, any action."""
        action = torch.randint(self.num_actions, (len(obs),))  # drawn on the CPU on any device
        explores = torch.rand(len(obs)) < epsilon
        return torch.where(explores, action, self(obs).argmax(-1).cpu())


class Replay:
    """The last `rows` steps of each environment, as a ring. The next observation is one row on.

    Where an episode ends, too: the reset row holds its true final observation.
    """

    def __init__(self, rows: int, num_envs: int, obs_dim: int):
        self.obs = np.zeros((rows, num_envs, obs_dim), np.float32)
        self.rest = np.zeros((4, rows, num_envs), np.float32)
        self.count = 0  # rows written, overwritten ones included

    def add(self, obs, action, reward, terminal, valid):
        """A step of all environments: obs (num_envs, obs_dim), the rest (num_envs,)."""
        row = self.count % len(self.obs)
        self.obs[row] = obs
        self.rest[:, row] = action, reward, terminal, valid
        self.count += 1

    def sample(self, size: int):
        """obs, next_obs (size, obs_dim), action, reward, terminal (size,), with replacement."""
        rows, num_envs = self.obs.shape[:2]
        filled = min(self.count, rows)
        row, env = np.empty((2, size), dtype=int)
        draw = np.ones(size, dtype=bool)
        while count := draw.sum():  # the newest row has no next observation yet: not drawn
            row[draw] = (self.count - filled + np.random.randint(filled - 1, size=count)) % rows
            env[draw] = np.random.randint(num_envs, size=count)
            draw = self.rest[3, row, env] == 0  # reset rows
        batch = [self.obs[row, env], self.obs[(row + 1) % rows, env], *self.rest[:3, row, env]]
        return [torch.from_numpy(array) for array in batch]


def td_target(reward, terminal, next_values, next_chooser, gamma: float):
    """Targets (n,), by the next_values (n, num_actions) of the actions best in next_chooser."""
    best = next_chooser.argmax(-1, keepdim=True)
    return reward + gamma * next_values.gather(-1, best).squeeze(-1) * (1 - terminal)


def dqn_loss(agent: Agent, target_agent, args: Args, obs, next_obs, action, reward, terminal):
    """Loss of a batch of tensors (n, ...), and [loss, mean value]."""
    with torch.no_grad():
        next_values = target_agent(next_obs)
        next_chooser = agent(next_obs) if args.double_dqn else next_values  # double DQN eq. 4
        target = td_target(reward, terminal, next_values, next_chooser, args.gamma)
    value = agent(obs).gather(-1, action.long().unsqueeze(-1)).squeeze(-1)
    assert value.shape == target.shape == reward.shape == terminal.shape
    losses = {"huber": nn.functional.smooth_l1_loss, "mse": nn.functional.mse_loss}
    loss = losses[args.loss](value, target)
    return loss, torch.stack([loss, value.mean()]).detach()


def update(agent: Agent, target_agent: Agent, optimizer, args: Args, batch, loss_fn=dqn_loss):
    """A step for each batch_size rows of dqn_loss's tensors (rows, ...); the mean metrics (2,)."""
    metrics = []
    for minibatch in zip(*(tensor.split(args.batch_size) for tensor in batch)):
        loss, mb_metrics = loss_fn(agent, target_agent, args, *minibatch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
        optimizer.step()
        metrics.append(mb_metrics.clone())
    return torch.stack(metrics).mean(0)


@torch.inference_mode()
def evaluate(agent: Agent, envs, obs):
    """Raw return of each environment's first episode, with --eval-e for epsilon."""
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, bool)
    with torch.random.fork_rng(devices=[]):  # training goes on with the draws it would have had
        for _ in range(agent.args.eval_max_steps):
            x = torch.from_numpy(flatten(obs)).to(agent.network[0].weight.device)
            action = agent.get_action(x, agent.args.eval_e).numpy()
            obs, reward, terminated, truncated, _ = envs.step(action)
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
    if args.track and not find_spec("wandb"):
        sys.exit("--track needs a package: pip install wandb")
    device = args.device.replace("auto", "cuda" if torch.cuda.is_available() else "cpu")
    if not getattr(torch, device).is_available():
        sys.exit(f"--device {device} is not there; take --device auto")
    torch.set_num_threads(args.torch_threads)
    started = time.time()
    saved = load_checkpoint(args.resume) if args.resume else None
    global_step = saved["global_step"] if saved else 0
    if saved:
        started -= saved["wall_time_s"]
        extended = args.total_timesteps != saved["total_timesteps"]
        left = args.total_timesteps - global_step
        if left <= (args.learning_starts if extended else 0):
            sys.exit(f"--resume {args.resume}: no steps left to learn from; more --total-timesteps")
        if args.env_id != saved["env_id"]:
            sys.exit(f"--resume {args.resume}: env_id must stay {saved['env_id']}")
        if left <= args.learning_starts:
            print("no update before the end: the replay begins empty", file=sys.stderr)
    seed = (args.seed + global_step) % 2**32  # a resumed run differs from an unbroken one
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    env_seed = args.seed * 10_007 % 2**30  # evaluations add 2**30, which training never reaches
    eval_backend = "gymnasium" if args.env_id in gym.registry else "auto"
    evaluation = (args, eval_backend, args.eval_episodes)  # what make_envs takes for one
    try:
        make_envs(args, eval_backend, 1, env_seed)  # the run ends by them: if they fail, then now
        envs, obs = make_envs(args, args.env_backend, args.num_envs, env_seed + global_step)
    except (gym.error.Error, ImportError, AssertionError) as error:
        sys.exit(f"--env-id {args.env_id}: {error}")
    parts = getattr(envs.single_observation_space, "spaces", {"obs": envs.single_observation_space})
    for name, space in {**parts, "action": envs.single_action_space}.items():
        kind = "Discrete" if name == "action" else "Box"
        if not isinstance(space, getattr(gym.spaces, kind)) or getattr(space, "start", 0) != 0:
            sys.exit(f"--env-id: {name} {space}, no plain {kind}: wrap it; Box: ppo_continuous.py")
    if args.buffer_size * obs[0].nbytes > 2**33:
        sys.exit(f"--buffer-size {args.buffer_size} takes over 8 GiB with these observations")
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    agent = Agent(obs.shape[1], envs.single_action_space, args).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, fused=True)
    target_agent = copy.deepcopy(agent)
    best_agent = copy.deepcopy(agent)
    best_mean = -np.inf  # of an evaluation of best_agent
    replay = Replay(args.buffer_size // args.num_envs, args.num_envs, obs.shape[1])
    if saved:
        agent.load_state_dict(saved["agent"])
        target_agent.load_state_dict(saved["target_agent"])
        constants = {"param_groups": optimizer.state_dict()["param_groups"]}  # as the flags say
        optimizer.load_state_dict(saved["optimizer"] | constants)
        best_file = Path(args.resume, "best.pt")
        if best_file.exists():  # scored anew: the flags of now may ask for other episodes
            best_agent.load_state_dict(torch.load(best_file, "cpu", weights_only=True)["agent"])
            best_mean = evaluate(best_agent, *make_envs(*evaluation, env_seed + 2**30)).mean()
    loss_fn = dqn_loss
    if args.compile:  # of one shape each: acting, an evaluation, an update
        agent.compile(mode="reduce-overhead", dynamic=False)
        loss_fn = torch.compile(dqn_loss, mode="reduce-overhead", dynamic=False)
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
    if args.track:
        import wandb

        place = {"project": args.wandb_project_name, "entity": args.wandb_entity}
        place |= {"id": run_dir.name, "resume": "allow", "sync_tensorboard": True}
        wandb.init(**place, config=asdict(args))
    writer = SummaryWriter(run_dir, purge_step=global_step + 1)
    writer.add_text("config", f"```\n{json.dumps(run, indent=2)}\n```", global_step)
    done = np.zeros(args.num_envs, bool)
    last100 = None  # mean return of the last 100 episodes
    paces = []  # (steps, seconds) of the iterations; sps is of those with updates
    every = args.eval_frequency or args.total_timesteps
    period = every / np.ceil(every / min(1000, args.checkpoint_frequency))  # of log lines
    saved_step = global_step
    look = "{desc}{percentage:3.0f}% {bar:10} {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
    bar = tqdm(total=args.total_timesteps, initial=global_step, bar_format=look, disable=None)
    bar.postfix = "no episode yet"
    while global_step < args.total_timesteps and not (stop and saved_step):  # saves first
        first_step = global_step
        iteration_started = time.perf_counter()
        finished = []  # (return, length) of the episodes that end in this iteration
        metrics = []
        checksum = 0.0  # of all observations and rewards

        while global_step // period == first_step // period and global_step < args.total_timesteps:
            # Act
            row_step = global_step
            end = args.learning_starts + args.exploration_fraction * args.total_timesteps
            epsilon = np.interp(row_step, [args.learning_starts, end], [args.start_e, args.end_e])
            with torch.inference_mode():
                action = agent.get_action(torch.from_numpy(obs).to(device), epsilon).numpy()
            valid = ~done  # not a reset row
            next_obs, reward, terminated, truncated, info = envs.step(action)
            done = terminated | truncated
            if done.any():
                finished.extend(zip(info["episode"]["r"][done], info["episode"]["l"][done]))
            replay.add(obs, action, reward, terminated, valid)
            obs = flatten(next_obs)
            checksum += obs.sum() + reward.sum()
            global_step += int(valid.sum())

            # Update
            updates = global_step // args.train_frequency - row_step // args.train_frequency
            if updates > 0 and replay.count * args.num_envs >= args.learning_starts:
                batch = [tensor.to(device) for tensor in replay.sample(updates * args.batch_size)]
                metrics.append(update(agent, target_agent, optimizer, args, batch, loss_fn))
            frequency = args.target_network_frequency
            for _ in range(global_step // frequency - row_step // frequency):
                for target, online in zip(target_agent.parameters(), agent.parameters()):
                    target.data.lerp_(online.data, args.tau)

        weights = nn.utils.parameters_to_vector(agent.parameters())
        losses = np.mean([step.tolist() for step in metrics], axis=0) if metrics else []
        if not np.isfinite([*losses, checksum, weights.sum().item()]).all():
            sys.exit(f"non-finite numbers before step {global_step}; saved {saved_step}: {run_dir}")

        # Log
        paces = paces if metrics else []
        paces.append((global_step - first_step, time.perf_counter() - iteration_started))
        sps = float(np.divide(*np.sum(paces[2:] or paces, axis=0)))  # the first two warm up
        scalars = {"charts/epsilon": epsilon, "charts/SPS": sps}
        scalars |= zip(("losses/td_loss", "losses/q_values"), losses)
        if finished:
            last100 = float(np.mean(envs.return_queue))
            bar.postfix = f"return {last100:.1f}, SPS {sps:.0f}"
            means = np.mean(finished, axis=0)
            scalars |= {"charts/episodic_return": means[0], "charts/episodic_length": means[1]}
        for key, value in scalars.items():
            writer.add_scalar(key, value, global_step)
        bar.update(min(global_step, args.total_timesteps) - bar.n)

        # Evaluate and save
        over = global_step >= args.total_timesteps
        if over or global_step // every > first_step // every:
            bar.set_description("evaluation ")
            film = run_dir / f"videos/step-{global_step}"
            returns = evaluate(agent, *make_envs(*evaluation, env_seed + 2**30, film))
            writer.add_scalar("eval/episodic_return", returns.mean(), global_step)
            if returns.mean() > best_mean:
                best_mean = float(returns.mean())
                best_agent.load_state_dict(agent.state_dict())
                best = {"agent": best_agent.state_dict(), "eval_return_mean": best_mean}
                write(run_dir / "best.pt", run | best | {"global_step": global_step})
        writer.flush()
        state = {"global_step": global_step, "wall_time_s": time.time() - started, "sps": sps}
        if over:
            new_seed = env_seed + 2**30 + args.eval_episodes  # these did not choose the best
            best_returns = evaluate(best_agent, *make_envs(*evaluation, new_seed))
            summary = run | state | {"train_return_last100": last100}
            summary |= {"eval_episodes": args.eval_episodes, "eval_returns": returns.tolist()}
            summary |= {"eval_return_mean": returns.mean(), "eval_return_std": returns.std()}
            summary |= {"best_return_mean": best_returns.mean(), "best_returns": [*best_returns]}
            write(run_dir / "summary.json", summary)
        if over or stop or global_step - saved_step >= args.checkpoint_frequency:
            state |= {"agent": agent.state_dict(), "optimizer": optimizer.state_dict()}
            state["target_agent"] = target_agent.state_dict()
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
    print(f"{run_dir}: evaluation {returns.mean():.1f}, best model {best_returns.mean():.1f}")
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
