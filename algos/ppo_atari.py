"""Proximal Policy Optimization (PPO-clip) with generalized advantage estimation, for Atari games.

    python algos/ppo_atari.py --env-id BreakoutNoFrameskip-v4

PPO: Schulman et al. 2017, arXiv:1707.06347. GAE: Schulman et al. 2016, arXiv:1506.02438.
Network and pictures: Mnih et al. 2015, Nature 518:529. Settings: CleanRL's.
1. The network is initialised orthogonally; --precision auto may compute its layers in bfloat16.
2. A lost life is terminal for the learner, but the game goes on, after a no-op, FIRE and action 2.
3. Rewards are clipped to their sign; logged returns are raw, of whole games.
4. Advantages are standardised, gradients and values clipped; only the learning rate falls.
5. A time limit is no terminal state: a truncated game bootstraps from its last observation.
6. Evaluation draws from the policy, and plays it greedily with 1 % random actions beside it.
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
from ale_py import Action, AtariVectorEnv
from torch.distributions import Categorical
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm


@dataclass
class Args:
    exp_name: str = Path(__file__).stem  # name of this experiment, part of the run folder's name
    seed: int = 1  # seeds Python, NumPy, PyTorch and every environment
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"  # auto takes CUDA where there is one
    torch_threads: int = 0  # CPU threads of PyTorch; 0 leaves its own choice, one for each core
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 if it is native
    runs_dir: str = "runs"  # the run folder is created in here
    resume: str = ""  # run folder to continue; flags beside it replace the saved flags
    checkpoint_frequency: int = 20_000  # steps between two checkpoints
    eval_frequency: int = 0  # steps between two evaluations; 0 evaluates at the end only
    eval_episodes: int = 30  # games of an evaluation, one in each of as many environments
    eval_max_steps: int = 50_000  # an evaluation cuts longer episodes
    capture_video: bool = False  # film the first 3 games of every evaluation
    track: bool = False  # send the run to Weights & Biases as well
    wandb_project_name: str = "plainrl"  # its project there
    wandb_entity: str | None = None  # its user or team there
    compile: bool = False  # torch.compile policy, advantages and loss; CUDA graphs on a GPU
    env_id: str = "BreakoutNoFrameskip-v4"  # its stickiness is kept, its frame skip of 1 becomes 4
    num_envs: int = 8  # parallel environments
    total_timesteps: int = 10_000_000  # steps of 4 frames; schedules stretch to a new total
    learning_rate: float = 2.5e-4  # step size of Adam
    anneal_lr: bool = True  # let the learning rate fall linearly to zero
    num_steps: int = 128  # steps of each environment in a rollout
    gamma: float = 0.99  # discount factor
    gae_lambda: float = 0.95  # lambda of generalized advantage estimation
    num_minibatches: int = 4  # minibatches of an epoch
    update_epochs: int = 4  # passes over a rollout
    clip_reward: bool = True  # learn from the sign of the reward
    terminal_on_life_loss: bool = True  # no value follows a lost life, though the game goes on
    fire_on_life_loss: bool = True  # FIRE and action 2 begin each life, where the game has FIRE
    norm_adv: bool = True  # standardise the advantages of each minibatch
    clip_coef: float = 0.1  # epsilon of the clipped surrogate, and of --clip-vloss
    clip_vloss: bool = True  # clip the change of the value as well
    ent_coef: float = 0.01  # weight of the entropy bonus
    vf_coef: float = 0.5  # weight of the value loss
    max_grad_norm: float = 0.5  # largest norm of the gradient
    target_kl: float | None = None  # end an update once an epoch's last approximate KL exceeds it

    def __post_init__(self):
        may_be_zero = "seed eval_frequency torch_threads gamma gae_lambda ent_coef vf_coef".split()
        for name, value in asdict(self).items():
            least = 0 if name in may_be_zero else 1e-9
            most = 1 if name in ("gamma", "gae_lambda") else 2**32 - 1
            if type(value) in (int, float) and not least <= value <= most:
                raise ValueError(f"--{name.replace('_', '-')} {value} is not in [{least}, {most}]")
        batch_size = self.num_envs * self.num_steps
        if self.num_steps < 5 or batch_size > min(self.total_timesteps, 2**33 // (4 * 84 * 84)):
            raise ValueError("--num-steps: at least 5; rollouts within --total-timesteps and 8 GiB")
        if batch_size % self.num_minibatches or batch_size == self.num_minibatches:
            raise ValueError(f"--num-minibatches must cut {batch_size} steps in equal parts of 2+")
        if self.fire_on_life_loss and not self.terminal_on_life_loss:  # values nobody learns
            raise ValueError("--no-terminal-on-life-loss needs --no-fire-on-life-loss")


class FireOnLifeLoss(gym.vector.VectorWrapper):
    """Begins a life as OpenAI Baselines does: a no-op if one was lost, FIRE, action 2.

    info["life_lost"], (num_envs,): by this step, but not the game; info["scripted"]: not the agent's.
    """

    def __init__(self, envs, enabled: bool):
        super().__init__(envs)
        self.script_length = 3 if enabled and envs.ale.get_action_set()[1] == Action.FIRE else 0

    def reset(self, **kwargs):
        self.left = np.full(self.num_envs, max(self.script_length - 1, 0))  # steps of the script
        self.lives = np.zeros(self.num_envs)  # left before a step; at first none can be lost
        return self.env.reset(**kwargs)

    def step(self, action):
        scripted = self.left > 0
        action = np.where(scripted, 3 - self.left, action)  # 0, 1, 2: no-op, FIRE, action 2
        obs, reward, terminated, truncated, info = self.env.step(action)
        life_lost = (info["lives"] > 0) & (info["lives"] < self.lives)
        over = terminated | truncated  # then the reset row is the no-op
        self.lives = np.where(over, 0, info["lives"])
        self.left = np.where(life_lost | over, self.script_length, np.maximum(self.left - 1, 0))
        info |= {"life_lost": life_lost, "scripted": scripted}
        return obs, reward, terminated, truncated, info


def make_envs(args: Args, num_envs: int, seed: int, **view):
    """Vector environment seeded seed, seed + 1, ... in NEXT_STEP mode, and its first observation.

    The step after an episode's end is a reset row: its action is ignored, it belongs to no episode.
    """
    game = dict(gym.spec(args.env_id).kwargs)  # name, stickiness, frame skip, actions, longest game
    assert "game" in game, "it is no Atari game; ppo_pixels.py takes pictures of others"
    assert isinstance(game["frameskip"], int), "it skips at random; take NoFrameskip-v4 or ALE/..."
    if game["frameskip"] == 1:
        game["frameskip"] = 4
    game |= {"reward_clipping": False, "use_fire_reset": not args.fire_on_life_loss, **view}
    envs = AtariVectorEnv(num_envs=num_envs, **game)
    assert envs.metadata["autoreset_mode"] == gym.vector.AutoresetMode.NEXT_STEP
    envs = FireOnLifeLoss(envs, args.fire_on_life_loss)
    return envs, envs.reset(seed=seed)[0]  # (num_envs, 4, 84, 84) uint8, or another view


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
        x = obs.contiguous(memory_format=torch.channels_last).to(dtype).div_(255)
        with torch.autocast(obs.device.type, torch.bfloat16, enabled=self.bfloat16):
            return self.network(x).float()

    def get_value(self, obs):
        return self.critic(self.features(obs)).squeeze(-1)  # (n, ...) -> (n,)

    def get_action_and_value(self, obs, action=None):
        """obs (n, ...) -> action, logprob, entropy and value, each (n,)."""
        features = self.features(obs)
        policy = Categorical(logits=self.actor(features), validate_args=False)
        if action is None:
            action = policy.sample()
        value = self.critic(features).squeeze(-1)
        return action, policy.log_prob(action), policy.entropy(), value

    def get_greedy_action(self, obs, epsilon: float = 0.01):
        """The likeliest action (n,) or, with probability epsilon in each row, any action."""
        logits = self.actor(self.features(obs))
        random_action = torch.randint(logits.shape[1], (len(obs),), device=obs.device)
        explores = torch.rand(len(obs), device=obs.device) < epsilon
        return torch.where(explores, random_action, logits.argmax(-1))

    def to_env(self, action):
        return action.cpu().numpy()


def compute_gae(rewards, values, terminateds, dones, gamma, gae_lambda):
    """Advantages (T, N) of arXiv:1506.02438 eq. 16, from values (T + 1, N) and the rest (T, N)."""
    # A terminal state is worth nothing, a truncated one its value; the trace stops at both
    deltas = rewards + gamma * values[1:] * (1 - terminateds) - values[:-1]
    advantages = torch.zeros_like(values)
    for t in reversed(range(len(rewards))):
        advantages[t] = deltas[t] + gamma * gae_lambda * (1 - dones[t]) * advantages[t + 1]
    return advantages[:-1]


def ppo_loss(agent: Agent, args: Args, obs, action, old_logprob, advantage, target, old_value):
    """Loss of a minibatch of tensors (n, ...), and the metrics (5,) that train() names in order."""
    _, logprob, entropy, value = agent.get_action_and_value(obs, action)
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
        for rows in order.chunk(args.num_minibatches):
            minibatch = [tensor.index_select(0, rows) for tensor in batch]  # [rows] goes by bytes
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
def evaluate(agent: Agent, envs, obs, camera=None, films=(), greedy=False):
    """Raw return of each environment's first game, by draws from the policy or by greedy actions.

    The camera shows the first of them in colour: with their seeds and actions, the same games.
    """
    returns = np.zeros(envs.num_envs)
    running = np.ones(envs.num_envs, bool)
    for _ in range(agent.args.eval_max_steps):
        x = torch.from_numpy(obs).to(agent.critic.weight.device)
        action = agent.get_greedy_action(x) if greedy else agent.get_action_and_value(x)[0]
        action = agent.to_env(action)
        obs, reward, terminated, truncated, _ = envs.step(action)
        if films:
            pictures = camera.step(action[: len(films)])[0]  # (n, 1, 210, 160, 3)
            for index in np.flatnonzero(running[: len(films)]):
                films[index].append_data(pictures[index, 0])
        returns += np.where(running, reward, 0.0)
        running &= ~(terminated | truncated)
        if not running.any():
            break
    if running.any():
        print(f"{running.sum()} episodes cut: longer than --eval-max-steps", file=sys.stderr)
    for resource in (envs, *films):
        resource.close()
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
    torch.set_num_threads(args.torch_threads or torch.get_num_threads())
    native = torch.cpu.get_capabilities().get("avx512_bf16", False)
    if device != "cpu":
        native = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    precision = args.precision.replace("auto", "bfloat16" if native else "float32")
    if precision == "bfloat16" and not native:
        print("bfloat16 is not native here: --precision auto may be faster", file=sys.stderr)
    started = time.time()
    saved = load_checkpoint(args.resume) if args.resume else None
    global_step = saved["global_step"] if saved else 0
    if saved:
        started -= saved["wall_time_s"]
        if global_step >= args.total_timesteps:
            sys.exit(f"--resume {args.resume} is at step {global_step}: more --total-timesteps")
        if args.env_id != saved["env_id"]:
            sys.exit(f"--resume {args.resume}: env_id must stay {saved['env_id']}")
    seed = (args.seed + global_step) % 2**32  # a resumed run differs from an unbroken one
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    env_seed = args.seed * 10_007 % 2**30  # evaluations add 2**30, which training never reaches
    try:
        envs, next_obs = make_envs(args, args.num_envs, env_seed + global_step)
    except (gym.error.Error, ImportError, AssertionError) as error:
        sys.exit(f"--env-id {args.env_id}: {error}")
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    agent = Agent(envs.single_action_space, args, precision)
    agent = agent.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    if saved:
        agent.load_state_dict(saved["agent"])
        constants = {"param_groups": optimizer.state_dict()["param_groups"]}  # as the flags say
        optimizer.load_state_dict(saved["optimizer"] | constants)
    functions = [agent.get_action_and_value, compute_gae, ppo_loss]
    if args.compile:
        functions = [torch.compile(function, mode="reduce-overhead") for function in functions]
    policy, gae, loss_fn = functions
    name = f"{args.env_id}__{args.exp_name}__{args.seed}__{int(time.time())}"
    run_dir = Path(args.resume or Path(args.runs_dir, name.replace("/", "-").replace(":", "-")))
    run_dir.mkdir(parents=True, exist_ok=bool(saved))
    shutil.copy(__file__, run_dir)
    git = f"git -C '{Path(__file__).resolve().parent}' describe --always --dirty 2>/dev/null"
    run = {"algo": Path(__file__).stem, "env_id": args.env_id, "seed": args.seed, "device": device}
    run |= {"precision": precision, "total_timesteps": args.total_timesteps, "args": asdict(args)}
    run["commit"] = os.popen(git).read().strip() or "unknown"
    run["versions"] = {m.__name__: str(m.__version__) for m in (torch, np, gym)}
    write(run_dir / "config.json", run)
    if args.track:
        import wandb

        place = {"project": args.wandb_project_name, "entity": args.wandb_entity}
        place |= {"id": run_dir.name, "resume": "allow", "sync_tensorboard": True}
        wandb.init(**place, config=asdict(args))
    writer = SummaryWriter(run_dir, purge_step=global_step + 1)
    writer.add_text("config", f"```\n{json.dumps(run, indent=2)}\n```", global_step)
    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros(args.num_steps + 1, *next_obs.shape, dtype=torch.uint8, device=device)
    actions = torch.zeros(shape, dtype=torch.int64, device=device)
    logprobs = torch.zeros(shape, device=device)
    values = torch.zeros(args.num_steps + 1, args.num_envs, device=device)
    storage = np.zeros((4, *shape), np.float32)  # rewards, terminals, dones, valid
    done = np.zeros(args.num_envs, bool)
    last100 = None  # mean return of the last 100 episodes
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
        for t in range(args.num_steps):
            obs[t] = torch.from_numpy(next_obs)
            with torch.inference_mode():
                actions[t], logprobs[t], _, values[t] = policy(obs[t])
            next_obs, reward, terminated, truncated, info = envs.step(agent.to_env(actions[t]))
            valid = ~(done | info["scripted"])  # no reset row, and played by the agent
            done = terminated | truncated
            if done.any():
                finished.extend(zip(info["episode"]["r"][done], info["episode"]["l"][done]))
            if args.terminal_on_life_loss:
                terminated = terminated | info["life_lost"]
            if args.clip_reward:
                reward = np.sign(reward)
            storage[:, t] = reward, terminated, terminated | truncated, valid
            global_step += int(valid.sum())
        obs[-1] = torch.from_numpy(next_obs)

        # Advantages
        rewards, terminals, dones, valid = torch.from_numpy(storage).to(device)
        valid = valid.bool()
        with torch.no_grad():
            values[-1] = agent.get_value(obs[-1])  # t + 1: the true next state, also at an end
            advantages = gae(rewards, values, terminals, dones, args.gamma, args.gae_lambda).clone()
        targets = advantages + values[:-1]

        # Update: ppo_loss's tensors in its order, of valid rows: (T, N, ...) -> (rows, ...)
        batch = (obs[:-1], actions, logprobs, advantages, targets, values[:-1])
        batch = [tensor[valid] for tensor in batch]
        metrics = update(agent, optimizer, args, batch, loss_fn).tolist()
        weights = torch.stack([weight.detach().sum() for weight in agent.parameters()])
        if not np.isfinite([*metrics, weights.sum().item()]).all():
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
            last100 = float(np.mean(envs.return_queue))
            bar.postfix = f"return {last100:.1f}, SPS {sps:.0f}"
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
            eval_envs = make_envs(args, args.eval_episodes, env_seed + 2**30)
            camera, films = None, []
            if args.capture_video:
                import imageio

                colour = {"grayscale": False, "stack_num": 1, "img_height": 210, "img_width": 160}
                camera, _ = make_envs(args, min(3, args.eval_episodes), env_seed + 2**30, **colour)
                film = run_dir / f"videos/step-{global_step}"
                film.mkdir(parents=True, exist_ok=True)
                paths = [film / f"env-{index}.mp4" for index in range(camera.num_envs)]
                films = [imageio.get_writer(path, fps=15, macro_block_size=2) for path in paths]
            with torch.random.fork_rng([0] if device == "cuda" else []):  # training's draws stay
                returns = evaluate(agent, *eval_envs, camera, films)
                eval_envs = make_envs(args, args.eval_episodes, env_seed + 2**30)
                greedy = evaluate(agent, *eval_envs, greedy=True)
            writer.add_scalar("eval/episodic_return", returns.mean(), global_step)
            writer.add_scalar("eval/greedy_return", greedy.mean(), global_step)
        writer.flush()
        state = {"global_step": global_step, "wall_time_s": time.time() - started, "sps": sps}
        if over:
            summary = run | state | {"train_return_last100": last100}
            summary |= {"eval_episodes": args.eval_episodes, "eval_returns": returns.tolist()}
            summary |= {"eval_return_mean": returns.mean(), "eval_return_std": returns.std()}
            summary |= {"eval_greedy_mean": greedy.mean(), "eval_greedy_returns": greedy.tolist()}
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
    print(f"greedy, with 1 % random actions: {greedy.mean():.1f} +- {greedy.std():.1f}")
    return summary


if __name__ == "__main__":
    first_look = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first_look.add_argument("--resume")
    resume = first_look.parse_known_args()[0].resume  # its arguments are the defaults
    args = tyro.cli(Args, default=Args(**load_checkpoint(resume)["args"]) if resume else Args())
    stop = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stop.append(number))
    train(args, stop)
