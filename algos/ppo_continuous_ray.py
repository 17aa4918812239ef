"""PPO for Box actions whose environments live in actors of Ray, on one machine or on many.

    python algos/ppo_continuous_ray.py --env-id BipedalWalker-v3 --num-runners 2
    python algos/ppo_continuous_ray.py --num-runners 32 --ray 10.0.0.1:6379

Moritz et al. 2018, arXiv:1712.05889. Differs from ppo_continuous.py where tagged, and shares its
deviations: Ray steps the environments, while the learner is this process and stays as it is. It
needs requirements-cluster.txt.
1. A runner is an actor with one CPU, a part of the environments and a copy of the agent. A rollout
   has the rows of all runners, which act by the weights and the statistics of now.
2. Each runner takes the learner's generator, draws the actions of all environments and plays its
   part of them. So a run is bit for bit that of ppo_continuous.py, with any number of runners, as
   long as all compute alike: on CPUs of one kind, in one thread, without --compile.
3. In place of a runner that dies a new one collects its part again, in environments seeded by the
   step; the episodes that were lost are not counted. The 31st death of one runner ends the run.
   It waits for a CPU if none is free, and a signal waits for the end of the rollout.
4. Actors must know what --env-id names: of Gymnasium, of EnvPool, or in a module that each node can
   import (module:Name-v0).
5. Runners act on the CPU, and --compile is for the learner only. Each passes the observations of as
   many environments as there are through the policy, most of them zeros, for the draws of item 2.
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
    eval_max_steps: int = 50_000  # an evaluation cuts longer episodes
    capture_video: bool = False  # film the first 3 episodes of every evaluation
    track: bool = False  # send the run to Weights & Biases as well
    wandb_project_name: str = "plainrl"  # its project there
    wandb_entity: str | None = None  # its user or team there
    compile: bool = False  # torch.compile policy, advantages and loss; CUDA graphs on a GPU
    env_id: str = "BipedalWalker-v3"  # a Gymnasium or EnvPool id with Box observations and actions
    env_backend: Literal["auto", "gymnasium", "envpool"] = "auto"  # auto: EnvPool if it has the id
    num_envs: int = 64  # parallel environments
    num_runners: int = 2  # Ray: actors that share them; at most one for each
    ray: str = "local"  # where they are: local starts Ray here; else the address of a cluster
    total_timesteps: int = 1_000_000  # steps of all environments; schedules stretch to a new total
    learning_rate: float = 5e-4  # step size of Adam
    anneal_lr: bool = True  # let the learning rate fall linearly to zero
    num_steps: int = 32  # steps of each environment in a rollout
    gamma: float = 0.995  # discount factor
    gae_lambda: float = 0.95  # lambda of generalized advantage estimation
    num_minibatches: int = 32  # minibatches of an epoch
    update_epochs: int = 5  # passes over a rollout
    activation: Literal["Tanh", "SiLU"] = "Tanh"  # of the hidden layers
    init_std: float = 0.6  # standard deviation of the action at the start
    norm_obs: bool = True  # standardise observations by running statistics
    norm_reward: bool = True  # divide rewards by the discounted return's deviation, clip to +-10
    norm_adv: bool = False  # standardise the advantages of each minibatch
    bootstrap_truncation: bool = True  # off: a time limit counts as terminal, a common mistake
    clip_coef: float = 0.2  # epsilon of the clipped surrogate, and of --clip-vloss
    clip_vloss: bool = False  # clip the change of the value as well
    ent_coef: float = 0.0  # weight of the entropy bonus
    vf_coef: float = 0.25  # weight of the value loss
    max_grad_norm: float = 0.5  # largest norm of the gradient
    target_kl: float | None = None  # end an update once an epoch's last approximate KL exceeds it

    def __post_init__(self):
        may_be_zero = ("seed", "eval_frequency", "gamma", "gae_lambda", "ent_coef", "vf_coef")
        for name, value in asdict(self).items():
            least = 0 if name in may_be_zero else 1e-9
            most = 1 if name in ("gamma", "gae_lambda") else 2**32 - 1
            if type(value) in (int, float) and not least <= value <= most:
                raise ValueError(f"--{name.replace('_', '-')} {value} is not in [{least}, {most}]")
        batch_size = self.num_envs * self.num_steps
        if self.num_steps < 2 or batch_size > self.total_timesteps:
            raise ValueError("--num-steps: at least 2; x --num-envs within --total-timesteps")
        if batch_size % self.num_minibatches or batch_size == self.num_minibatches:
            raise ValueError(f"--num-minibatches must cut {batch_size} steps in equal parts of 2+")


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


class RunningMeanStd(nn.Module):
    """Mean and variance of all rows seen (Chan et al. 1983); buffers, so checkpoints carry them."""

    def __init__(self, *shape: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("var", torch.ones(shape))
        self.register_buffer("count", torch.zeros(()))

    def update(self, rows):
        delta = rows.mean(0) - self.mean
        share = len(rows) / (self.count + len(rows))
        self.var += share * (rows.var(0, correction=0) - self.var + delta**2 * (1 - share))
        self.mean += share * delta
        self.count += len(rows)


def layer_init(layer: nn.Linear, std: float = 2**0.5) -> nn.Linear:
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """Gaussian policy, value network, and the statistics that both see the world through."""

    def __init__(self, obs_dim: int, action_space, args: Args):
        super().__init__()
        action_dim = int(np.prod(action_space.shape))
        act = getattr(nn, args.activation)

        def mlp(out_dim, std):
            first, second = layer_init(nn.Linear(obs_dim, 64)), layer_init(nn.Linear(64, 64))
            last = layer_init(nn.Linear(64, out_dim), std)
            return nn.Sequential(first, act(), second, act(), last)

        self.args = args
        self.actor_mean = mlp(action_dim, std=0.01)
        self.critic = mlp(1, std=1.0)
        self.actor_logstd = nn.Parameter(torch.full([action_dim], args.init_std).log())
        self.obs_rms = RunningMeanStd(obs_dim)
        self.return_rms = RunningMeanStd()
        self.register_buffer("action_low", torch.from_numpy(action_space.low))
        self.register_buffer("action_high", torch.from_numpy(action_space.high))

    def normalize(self, obs):
        """Raw observations (..., obs_dim) to what the networks take, called x everywhere."""
        if not self.args.norm_obs:
            return obs
        return ((obs - self.obs_rms.mean) / (self.obs_rms.var + 1e-8).sqrt()).clamp(-10, 10)

    def get_value(self, x):
        return self.critic(x).squeeze(-1)  # (..., obs_dim) -> (...)

    def get_action(self, x, action=None):
        """x (n, obs_dim) -> unclipped action (n, action_dim), logprob (n,) and entropy (n,)."""
        policy = Normal(self.actor_mean(x), self.actor_logstd.exp(), validate_args=False)
        if action is None:
            action = policy.sample()
        return action, policy.log_prob(action).sum(-1), policy.entropy().sum(-1)

    def to_env(self, action):
        action = action.view(-1, *self.action_low.shape)
        return action.clamp(self.action_low, self.action_high).cpu().numpy()


class Runner:  # Ray: an actor with a part of the environments and a copy of the agent
    @torch.inference_mode()
    def collect(self, args: Args, weights, generator, seed: int, own):
        """Arrays (num_steps, own, ...), whether the first is of new episodes, and the generator."""
        if getattr(self, "asked", None) == seed:  # once more: the answer was lost on its way
            return self.answer
        if new := not hasattr(self, "agent"):  # at the start, and in place of one that died
            self.envs, self.obs = make_envs(args, args.env_backend, len(own), seed + int(own[0]))
            self.agent = Agent(self.obs.shape[1], self.envs.single_action_space, args)
        self.agent.load_state_dict(weights)
        torch.set_rng_state(generator)
        x = torch.zeros(args.num_envs, self.obs.shape[1])
        rows = []
        for _ in range(args.num_steps):
            x[own] = self.agent.normalize(torch.from_numpy(self.obs))
            action, logprob, _ = self.agent.get_action(x)  # of all, as one process draws them
            obs, *answer, _ = self.envs.step(self.agent.to_env(action[own]))
            rows.append((self.obs, action[own], logprob[own], flatten(obs), *answer))
            self.obs = flatten(obs)
        self.asked = seed
        self.answer = [np.stack(column) for column in zip(*rows)], new, torch.get_rng_state()
        return self.answer


def compute_gae(rewards, values, terminateds, dones, gamma, gae_lambda):
    """Advantages (T, N) of arXiv:1506.02438 eq. 16, from values (T + 1, N) and the rest (T, N)."""
    # A terminal state is worth nothing, a truncated one its value; the trace stops at both
    deltas = rewards + gamma * values[1:] * (1 - terminateds) - values[:-1]
    advantages = torch.zeros_like(values)
    for t in reversed(range(len(rewards))):
        advantages[t] = deltas[t] + gamma * gae_lambda * (1 - dones[t]) * advantages[t + 1]
    return advantages[:-1]


def ppo_loss(agent: Agent, args: Args, x, action, old_logprob, advantage, target, old_value):
    """Loss of a minibatch of tensors (n, ...), and the metrics (5,) that train() names in order."""
    _, logprob, entropy = agent.get_action(x, action)
    value = agent.get_value(x)
    assert logprob.shape == old_logprob.shape == advantage.shape == value.shape == target.shape
    if args.norm_adv:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    logratio = logprob - old_logprob
    ratio = logratio.exp()
    clipped_ratio = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
    policy_loss = -torch.min(ratio * advantage, clipped_ratio * advantage).mean()  # PPO eq. 7
    value_error = (value - target) ** 2
    if args.clip_vloss:
        clipped_value = old_value + (value - old_value).clamp(-args.clip_coef, args.clip_coef)
        value_error = torch.max(value_error, (clipped_value - target) ** 2)
    value_loss = 0.5 * value_error.mean()
    entropy = entropy.mean()
    loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * entropy
    approx_kl = (ratio - 1 - logratio).mean()  # k3, http://joschu.net/blog/kl-approx.html
    clipfrac = ((ratio - 1).abs() > args.clip_coef).float().mean()
    return loss, torch.stack([policy_loss, value_loss, entropy, approx_kl, clipfrac]).detach()


def update(agent: Agent, optimizer, args: Args, batch, loss_fn=ppo_loss):
    """Epochs of minibatches of ppo_loss's tensors (rows, ...); mean metrics, each before a step."""
    batch_size = args.num_envs * args.num_steps  # rows come again for reset rows, 2 of 3 at most
    parameters = list(agent.parameters())
    metrics = []
    for _ in range(args.update_epochs):
        order = torch.randperm(len(batch[0])).repeat(3)[:batch_size].to(batch[0].device)
        for minibatch in zip(*(tensor[order].chunk(args.num_minibatches) for tensor in batch)):
            loss, mb_metrics = loss_fn(agent, args, *minibatch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, args.max_grad_norm)
            optimizer.step()
            metrics.append(mb_metrics.clone())
        if args.target_kl is not None and metrics[-1][3] > args.target_kl:  # approx_kl
            break
    return torch.stack(metrics).mean(0)


@torch.inference_mode()
def evaluate(agent: Agent, envs, obs):
    """Raw return of each environment's first episode, by the policy's mode, statistics frozen."""
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, bool)
    for _ in range(agent.args.eval_max_steps):
        x = agent.normalize(torch.from_numpy(flatten(obs)).to(agent.action_low.device))
        obs, reward, terminated, truncated, _ = envs.step(agent.to_env(agent.actor_mean(x)))
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
        if global_step >= args.total_timesteps:
            sys.exit(f"--resume {args.resume} is at step {global_step}: more --total-timesteps")
        for name in ("env_id", "activation", "norm_obs"):
            if getattr(args, name) != saved["args"][name]:
                sys.exit(f"--resume {args.resume}: {name} must stay {saved['args'][name]}")
    seed = (args.seed + global_step) % 2**32  # a resumed run differs from an unbroken one
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    env_seed = args.seed * 10_007 % 2**30  # evaluations add 2**30, which training never reaches
    eval_backend = "gymnasium" if args.env_id in gym.registry else "auto"
    try:
        make_envs(args, eval_backend, 1, env_seed)  # the run ends by them: if they fail, then now
        envs, next_obs = make_envs(args, args.env_backend, 1, env_seed)  # Ray: for its spaces
    except (gym.error.Error, ImportError, AssertionError) as error:
        sys.exit(f"--env-id {args.env_id}: {error}")
    parts = getattr(envs.single_observation_space, "spaces", {"obs": envs.single_observation_space})
    for name, space in {**parts, "action": envs.single_action_space}.items():
        if not isinstance(space, gym.spaces.Box):
            sys.exit(f"--env-id {args.env_id}: {name} {space} is no Box: wrap it; Discrete: ppo.py")
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    agent = Agent(next_obs.shape[1], envs.single_action_space, args).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    if saved:
        agent.load_state_dict(saved["agent"])
        constants = {"param_groups": optimizer.state_dict()["param_groups"]}  # as the flags say
        optimizer.load_state_dict(saved["optimizer"] | constants)
    functions = [agent.get_action, compute_gae, ppo_loss]
    if args.compile:
        functions = [torch.compile(function, mode="reduce-overhead") for function in functions]
    policy, gae, loss_fn = functions
    del policy  # Ray: runners have it
    next_obs = next_obs.repeat(args.num_envs, axis=0)  # as from all
    shares = np.array_split(np.arange(args.num_envs), min(args.num_runners, args.num_envs))
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_NUM_REDIS_GET_RETRIES": "2"}
    here = {"num_cpus": len(shares), "include_dashboard": False} if args.ray == "local" else {}
    try:
        import ray

        ray.init(args.ray, log_to_driver=False, logging_level=40, ignore_reinit_error=True, **here)
        assert ray.cluster_resources()["CPU"] >= len(shares), "fewer CPUs than --num-runners"
    except Exception as error:
        sys.exit(f"--ray {args.ray}: {error!r:.150} (Ray: pip install -r requirements-cluster.txt)")
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # Ray had taken it
    actor = ray.remote(num_cpus=1, max_restarts=30, max_task_retries=-1)(Runner)
    runners = [actor.remote() for _ in shares]
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
    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros(args.num_steps + 1, *next_obs.shape, device=device)
    actions = torch.zeros(*shape, len(agent.actor_logstd), device=device)
    logprobs = torch.zeros(shape, device=device)
    storage = np.zeros((5, *shape), np.float32)  # rewards, terminals, dones, valid, discounted
    done = np.zeros(args.num_envs, bool)
    trace = np.zeros(args.num_envs)  # discounted return so far, to scale rewards by
    played = np.zeros((2, args.num_envs))  # Ray: return and length so far, to log
    paces = []  # seconds per step of the iterations
    saved_step = global_step
    look = "{desc}{percentage:3.0f}% {bar:10} {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
    bar = tqdm(total=args.total_timesteps, initial=global_step, bar_format=look, disable=None)
    bar.postfix = "no episode yet"
    while global_step < args.total_timesteps and not (stop and saved_step):  # saves first
        first_step = global_step
        iteration_started = time.perf_counter()
        finished = []  # (return, length) of the episodes that end in this rollout
        fraction = 1 - global_step / args.total_timesteps if args.anneal_lr else 1.0
        optimizer.param_groups[0]["lr"] = fraction * args.learning_rate

        # Rollout
        weights = {key: value.cpu() for key, value in agent.state_dict().items()}  # Ray: of now
        job = args, ray.put(weights), torch.get_rng_state(), env_seed + global_step
        jobs = [runner.collect.remote(*job, share) for runner, share in zip(runners, shares)]
        columns, new, generators = zip(*ray.get(jobs))
        torch.set_rng_state(generators[0])  # all have drawn the same
        columns = [np.concatenate(parts, axis=1) for parts in zip(*columns)]
        new = np.repeat(new, [len(share) for share in shares])
        done[new] = trace[new] = played[:, new] = 0
        if paces and new.any():
            bar.write(f"step {global_step}: a runner died; {new.sum()} environments start anew")
        for t in range(args.num_steps):
            obs[t], actions[t], logprobs[t] = (torch.from_numpy(x[t]) for x in columns[:3])  # Ray:
            valid = ~done  # not a reset row
            next_obs, reward, terminated, truncated = (x[t] for x in columns[3:])  # Ray: the answer
            played = (played + [reward, valid]) * valid
            done = terminated | truncated
            if done.any():
                finished.extend(played[:, done].T)  # Ray: as the wrapper would
                envs.return_queue.extend(played[0, done])
            trace = (trace * args.gamma + reward) * valid
            terminal = terminated if args.bootstrap_truncation else done
            storage[:, t] = reward, terminal, done, valid, trace
            global_step += int(valid.sum())
        obs[-1] = torch.from_numpy(flatten(next_obs))

        # Advantages
        rewards, terminals, dones, valid, discounted = torch.from_numpy(storage).to(device)
        valid = valid.bool()
        if args.norm_reward:
            agent.return_rms.update(discounted[valid])
            rewards = (rewards / (agent.return_rms.var + 1e-8).sqrt()).clamp(-10, 10)
        x = agent.normalize(obs)
        with torch.no_grad():
            values = agent.get_value(x)  # row t + 1 is the true next state, also at an end
            advantages = gae(rewards, values, terminals, dones, args.gamma, args.gae_lambda)
        targets = advantages + values[:-1]

        # Update: ppo_loss's tensors in its order, without reset rows: (T, N, ...) -> (rows, ...)
        batch = (x[:-1], actions, logprobs, advantages, targets, values[:-1])
        batch = [tensor[valid] for tensor in batch]
        metrics = update(agent, optimizer, args, batch, loss_fn).tolist()
        agent.obs_rms.update(obs[:-1][valid])  # last: one iteration sees one set of statistics
        numbers = metrics + [w.sum().item() for w in [obs, *agent.parameters()]]
        if not np.isfinite(numbers).all():
            sys.exit(f"non-finite numbers before step {global_step}; saved {saved_step}: {run_dir}")

        # Log
        paces.append((time.perf_counter() - iteration_started) / (global_step - first_step))
        sps = float(1 / np.mean(paces[1:] or paces))  # the first iteration warms up
        names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clipfrac")
        scalars = {f"losses/{name}": value for name, value in zip(names, metrics)}
        unexplained = (targets - values[:-1])[valid].var() / targets[valid].var()
        scalars["losses/explained_variance"] = 1 - float(unexplained)
        scalars |= {"charts/learning_rate": fraction * args.learning_rate, "charts/SPS": sps}
        if finished:
            recent = np.mean(envs.return_queue)  # of the last 100 episodes
            bar.postfix = f"return {recent:.1f}, SPS {sps:.0f}"
            means = np.mean(finished, axis=0)
            scalars |= {"charts/episodic_return": means[0], "charts/episodic_length": means[1]}
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
            last100 = float(np.mean(envs.return_queue)) if envs.return_queue else None
            summary = run | state | {"train_return_last100": last100}
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
