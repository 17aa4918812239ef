"""Proximal Policy Optimization (PPO-clip) with generalized advantage estimation, for discrete actions.

    python algos/ppo.py --env-id CartPole-v1

Papers: PPO, Schulman et al. 2017, arXiv:1707.06347; GAE, Schulman et al. 2016, arXiv:1506.02438. What differs from
ppo_continuous.py: a categorical policy over Discrete actions, its mode in evaluation, and the defaults. Deviations:
1. Many environments, short rollouts and large minibatches: fewer and cheaper calls for the same number of steps.
2. Actor and critic apart. With --activation SiLU, as in ppo_continuous.py, rare states look bad: see docs/classic.md.
3. Observations are standardised and rewards divided by the deviation of the discounted return, both inside the agent.
4. Advantages are standardised per minibatch, gradients are clipped, the learning rate falls linearly to zero.
5. A time limit is no terminal state: a truncated episode bootstraps from the value of its true final observation.
"""

import atexit, difflib, importlib.util, json, math, os, random, signal, subprocess, sys, tempfile, time, warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import gymnasium as gym, numpy as np, torch, torch.nn as nn, tyro
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm


@dataclass
class Args:
    exp_name: str = Path(__file__).stem  # name of this experiment, part of the run folder's name
    seed: int = 1  # seeds Python, NumPy, PyTorch and every environment
    device: Literal["auto", "cpu", "cuda", "mps"] = (
        "auto"  # auto takes CUDA where there is one, else the CPU
    )
    runs_dir: str = "runs"  # the run folder is created in here
    checkpoint_frequency: int = 100_000  # environment steps between two checkpoints
    resume: str = (
        ""  # run folder or checkpoint.pt to continue; flags given beside it override the saved ones
    )
    eval_frequency: int = (
        0  # environment steps between two evaluations; 0 evaluates at the end only
    )
    eval_episodes: int = (
        100  # episodes of an evaluation, one in each of as many parallel environments
    )
    capture_video: bool = (
        False  # record the first 3 episodes of every evaluation as mp4 in the run folder
    )
    track: bool = False  # send the run to Weights & Biases as well, project plainrl
    compile: bool = (
        False  # torch.compile for policy, advantages and loss, with CUDA graphs on a GPU
    )
    torch_threads: int = (
        1  # CPU threads of PyTorch; 2 are faster while a core is free, and far slower where none is
    )
    env_id: str = (
        "CartPole-v1"  # a Gymnasium or EnvPool id with Box observations and Discrete actions
    )
    env_backend: Literal["auto", "gymnasium", "envpool"] = (
        "auto"  # auto takes EnvPool where it has the environment
    )
    num_envs: int = 64  # parallel environments
    norm_obs: bool = True  # standardise observations by running statistics, clipped to +-10
    norm_reward: bool = (
        True  # divide rewards by the running deviation of the discounted return, clipped to +-10
    )
    bootstrap_truncation: bool = (
        True  # off: treat a time limit as a terminal state (a common mistake, to measure it)
    )
    total_timesteps: int = 200_000  # environment steps, all environments together
    learning_rate: float = 1e-3  # step size of Adam
    anneal_lr: bool = True  # let the learning rate fall linearly to zero
    num_steps: int = 64  # steps per environment and rollout
    gamma: float = 0.99  # discount factor
    gae_lambda: float = 0.95  # lambda of generalized advantage estimation
    num_minibatches: int = 2  # minibatches per epoch
    update_epochs: int = 8  # passes over each rollout
    norm_adv: bool = True  # standardise the advantages of each minibatch
    clip_coef: float = 0.2  # epsilon of the clipped surrogate objective
    clip_vloss: bool = False  # clip the value loss around the old value
    ent_coef: float = 0.0  # weight of the entropy bonus
    vf_coef: float = 0.5  # weight of the value loss
    max_grad_norm: float = 0.5  # largest norm of the gradient
    target_kl: float | None = (
        None  # stop the epochs of an update once the approximate KL exceeds this
    )
    activation: Literal["Tanh", "SiLU"] = (
        "Tanh"  # of the hidden layers; SiLU explores less: see docs/classic.md
    )


def check(ok, message: str, status: int = 2) -> None:  # one line and this exit status, unless ok
    if not ok:
        print(f"{Path(__file__).name}: {message}", file=sys.stderr)
        raise SystemExit(status)


def check_args(args: Args) -> tuple[str, str]:
    """(backend that trains, backend that evaluates); one line and exit status 2, with nothing created, on bad input."""
    counts = "total_timesteps num_envs num_steps num_minibatches update_epochs eval_episodes checkpoint_frequency"
    for name in (*counts.split(), "torch_threads", "learning_rate", "max_grad_norm", "clip_coef"):
        check(
            getattr(args, name) > 0,
            f"--{name.replace('_', '-')} must be positive, not {getattr(args, name)}",
        )
    for name, most in (
        ("seed", 2**32 - 1),
        ("eval_frequency", math.inf),
        ("gamma", 1),
        ("gae_lambda", 1),
    ):
        check(
            0 <= getattr(args, name) <= most,
            f"--{name.replace('_', '-')} {getattr(args, name)} not in [0, {most}]",
        )
    check(
        args.num_steps > 1,
        "--num-steps must be at least 2: a single step can be a reset row in every environment",
    )
    rows, made, errors = args.num_envs * args.num_steps, {}, {}
    whole = rows % args.num_minibatches == 0 and args.num_minibatches < rows <= args.total_timesteps
    check(
        whole,
        f"must hold: --total-timesteps >= num_envs x num_steps = {rows} > --num-minibatches, its divisor",
    )
    here = args.device in ("auto", "cpu") or getattr(torch, args.device).is_available()
    check(here, f"--device {args.device} is not there; take --device auto")
    for flag, wanted, package in (
        ("track", args.track, "wandb"),
        ("capture-video", args.capture_video, "moviepy"),
    ):
        check(
            not wanted or importlib.util.find_spec(package),
            f"--{flag} needs a package: pip install {package}",
        )
    for backend in ("envpool", "gymnasium"):
        try:
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
                made[backend], _ = make_envs(
                    args, backend, 1, seed=0, video_dir=folder if args.capture_video else ""
                )
                made[backend].close()
        except Exception as error:
            errors[backend] = " ".join(f"{type(error).__name__} {error}".split())
    known = {
        *gym.registry,
        *(sys.modules["envpool"].list_all_envs() if "envpool" in sys.modules else ()),
    }
    near = (
        ""
        if args.env_id in known
        else f"; nearest: {difflib.get_close_matches(args.env_id, known, cutoff=0.3)}"
    )
    near = "; PYTHONPATH must name the folder of its module" if ":" in args.env_id else near
    backend = next(iter(made), "gymnasium") if args.env_backend == "auto" else args.env_backend
    check(
        backend in made,
        f"--env-id {args.env_id} cannot be made by {backend}: {errors.get(backend)}{near}",
    )
    here = "gymnasium" in made or not args.capture_video
    check(
        here,
        f"--capture-video cannot film: {errors.get('gymnasium')}; without a display set MUJOCO_GL=egl",
    )
    actions, obs = made[backend].single_action_space, made[backend].single_observation_space
    boxes = all(
        isinstance(space, gym.spaces.Box)
        for space in (obs.values() if hasattr(obs, "values") else [obs])
    )
    kinds = f"{actions} actions and {type(obs).__name__} observations"
    fits = boxes and isinstance(actions, gym.spaces.Discrete) and actions.start == 0
    check(
        fits,
        f"--env-id {args.env_id} has {kinds}; this file: Discrete from 0, Box (both Box: ppo_continuous.py)",
    )
    return backend, "gymnasium" if "gymnasium" in made else "envpool"


def make_envs(args: Args, backend: str, num_envs: int, seed: int, video_dir: str | Path = ""):
    """Vector environment seeded seed, seed + 1, ... and its first observation, in NEXT_STEP mode: the step after a
    `done` is a reset row, whose action is ignored. With video_dir the first 3 film their first episode."""

    def make_env(index: int) -> gym.Env:
        film = video_dir and index < 3
        env = gym.make(args.env_id, **({"render_mode": "rgb_array"} if film else {}))
        return (
            gym.wrappers.RecordVideo(env, f"{video_dir}/env-{index}", lambda n: n == 0)
            if film
            else env
        )

    if backend == "envpool":  # takes its seed here and nowhere else
        config = dict(num_envs=num_envs, num_threads=min(num_envs, os.cpu_count()), seed=seed)
        envs = importlib.import_module("envpool").make(args.env_id, env_type="gymnasium", **config)
    else:
        envs = gym.vector.SyncVectorEnv([lambda i=i: make_env(i) for i in range(num_envs)])
    assert envs.metadata["autoreset_mode"] == gym.vector.AutoresetMode.NEXT_STEP
    envs.single_action_space.seed(seed)
    return envs, envs.reset(seed=None if backend == "envpool" else seed)[0]


def flatten(obs) -> np.ndarray:
    """(n, ...), or a dictionary of such joined in the order of its keys, to (n, obs_dim) float32."""
    if isinstance(obs, dict):
        return np.concatenate([flatten(obs[key]) for key in sorted(obs)], axis=1)
    return np.asarray(obs, dtype=np.float32).reshape(len(obs), -1)


class RunningMeanStd(nn.Module):
    """Mean and variance of all rows seen, combined batch by batch (Chan et al. 1983); saved with the agent."""

    def __init__(self, *shape: int):
        super().__init__()
        self.mean, self.var, self.count = map(
            nn.Buffer, (torch.zeros(shape), torch.ones(shape), torch.zeros(()))
        )

    def update(self, rows: torch.Tensor) -> None:  # (n, *shape)
        delta, share = rows.mean(0) - self.mean, len(rows) / (self.count + len(rows))
        self.var += share * (rows.var(0, correction=0) - self.var + delta**2 * (1 - share))
        self.mean += share * delta
        self.count += len(rows)


def layer_init(layer: nn.Linear, std: float = math.sqrt(2)) -> nn.Linear:
    nn.init.orthogonal_(layer.weight, std), nn.init.zeros_(layer.bias)
    return layer


class TanhFunction(torch.autograd.Function):
    """tanh(x) = 2 sigmoid(2x) - 1: of large tensors on a CPU PyTorch's sigmoid is several times as fast as its tanh."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        y = (2 * x).sigmoid_().mul_(2).sub_(1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        return torch.addcmul(grad, grad * y, y, value=-1)


class Tanh(nn.Module):
    """nn.Tanh, in updates on a CPU faster."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.tanh() if x.is_cuda else TanhFunction.apply(x)


class Agent(nn.Module):
    """A network for the logarithms of the actions' odds, and a value network."""

    def __init__(self, obs_dim: int, num_actions: int, args: Args):
        super().__init__()

        def mlp(out_dim: int, std: float) -> nn.Sequential:
            act = Tanh if args.activation == "Tanh" else getattr(nn, args.activation)
            hidden = layer_init(nn.Linear(obs_dim, 64)), act(), layer_init(nn.Linear(64, 64)), act()
            return nn.Sequential(*hidden, layer_init(nn.Linear(64, out_dim), std))

        self.args = args
        self.actor, self.critic = mlp(num_actions, std=0.01), mlp(1, std=1.0)
        self.obs_rms, self.return_rms = RunningMeanStd(obs_dim), RunningMeanStd()

    def normalize(self, obs: torch.Tensor) -> torch.Tensor:
        """Raw observations (..., obs_dim) to what the networks take, called x everywhere."""
        x = ((obs - self.obs_rms.mean) / (self.obs_rms.var + 1e-8).sqrt()).clamp(-10, 10)
        return x if self.args.norm_obs else obs

    def get_value(self, x: torch.Tensor) -> torch.Tensor:
        return self.critic(x).squeeze(-1)  # (..., obs_dim) -> (...)

    def get_action(self, x: torch.Tensor, action: torch.Tensor | None = None):
        """x (n, obs_dim) and, in the update, the stored action (n,) -> action, logprob, entropy, all (n,)."""
        logprobs = self.actor(x).log_softmax(-1)
        if (
            action is None
        ):  # Gumbel-max: the largest of logprob + Gumbel noise is a draw from the policy
            action = (logprobs - torch.empty_like(logprobs).exponential_().log()).argmax(-1)
        logprob = logprobs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        return action, logprob, -(logprobs.exp() * logprobs).sum(-1)


def compute_gae(
    rewards, values, terminateds, dones, gamma: float, gae_lambda: float
) -> torch.Tensor:
    """Advantages (num_steps, num_envs), arXiv:1506.02438 equation 16, from values (num_steps + 1, num_envs) and the
    rest like the result. A terminal state is worth nothing, a truncated one its value; the trace stops at both."""
    deltas = rewards + gamma * values[1:] * (1 - terminateds) - values[:-1]
    advantages = [torch.zeros_like(deltas[0])]
    for t in reversed(range(len(deltas))):
        advantages.append(deltas[t] + gamma * gae_lambda * (1 - dones[t]) * advantages[-1])
    return torch.stack(advantages[:0:-1])


def ppo_loss(agent: Agent, args: Args, x, action, old_logprob, advantage, target, old_value):
    """Loss of a minibatch, tensors (minibatch, ...), and [policy_loss, value_loss, entropy, approx_kl, clipfrac]."""
    _, logprob, entropy = agent.get_action(x, action)
    value = agent.get_value(x)
    assert (
        logprob.shape
        == old_logprob.shape
        == advantage.shape
        == value.shape
        == target.shape
        == old_value.shape
    )
    advantage = (
        (advantage - advantage.mean()) / (advantage.std() + 1e-8) if args.norm_adv else advantage
    )
    logratio = logprob - old_logprob
    ratio = logratio.exp()
    clipped_ratio = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
    policy_loss = -torch.min(
        ratio * advantage, clipped_ratio * advantage
    ).mean()  # arXiv:1707.06347 equation 7
    value_error = (value - target) ** 2
    if args.clip_vloss:
        clipped_value = old_value + (value - old_value).clamp(-args.clip_coef, args.clip_coef)
        value_error = torch.max(value_error, (clipped_value - target) ** 2)
    value_loss, entropy = 0.5 * value_error.mean(), entropy.mean()
    loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * entropy
    approx_kl = (
        ratio - 1 - logratio
    ).mean()  # the k3 estimator of http://joschu.net/blog/kl-approx.html
    clipfrac = ((ratio - 1).abs() > args.clip_coef).float().mean()
    return loss, torch.stack([policy_loss, value_loss, entropy, approx_kl, clipfrac]).detach()


def update(
    agent: Agent, optimizer: torch.optim.Optimizer, args: Args, batch: tuple, loss_fn=ppo_loss
) -> torch.Tensor:
    """Epochs over a rollout, `batch` being ppo_loss's tensors (valid rows, ...); the mean of its metrics, (5,).
    The places of reset rows in an epoch go to valid rows drawn once more, so that shapes never change."""
    rows, device, parameters, metrics = len(batch[0]), batch[0].device, list(agent.parameters()), []
    places = torch.arange(args.num_envs * args.num_steps, device=device) % rows
    for _ in range(args.update_epochs):
        order = torch.randperm(rows, device=device)[places]
        for minibatch in zip(*(tensor[order].chunk(args.num_minibatches) for tensor in batch)):
            loss, mb_metrics = loss_fn(agent, args, *minibatch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, args.max_grad_norm)
            optimizer.step()
            metrics.append(mb_metrics.clone())
        if args.target_kl is not None and metrics[-1][3] > args.target_kl:
            break
    return torch.stack(metrics).mean(0)


@torch.inference_mode()
def evaluate(agent: Agent, envs: gym.vector.VectorEnv, obs: np.ndarray, stop=()) -> list[float]:
    """Raw returns of each environment's first episode, played by the policy's mode under frozen statistics."""
    returns, running = np.zeros(envs.num_envs), np.ones(envs.num_envs, dtype=bool)
    while running.any() and not stop:
        x = agent.normalize(torch.from_numpy(flatten(obs)).to(agent.obs_rms.mean.device))
        obs, reward, terminated, truncated, _ = envs.step(agent.actor(x).argmax(-1).cpu().numpy())
        returns += np.where(running, reward, 0.0)
        running &= ~(terminated | truncated)
    envs.close()
    return returns.tolist()


def write(path: Path, content: dict) -> None:
    """Write aside, then move: a kill at any moment leaves the old file or the new one, whole."""
    aside = path.with_suffix(".tmp")
    torch.save(content, aside) if path.suffix == ".pt" else aside.write_text(
        json.dumps(content, indent=2) + "\n"
    )
    os.replace(aside, path)


def load_checkpoint(path: str) -> dict:
    """Content of a checkpoint of this file; it is read as data, nothing in it can run code."""
    file = Path(path) / "checkpoint.pt" if Path(path).is_dir() else Path(path)
    try:
        checkpoint = torch.load(file, map_location="cpu", weights_only=True) | {
            "run_dir": file.parent
        }
        ours = checkpoint["algo"] == Path(__file__).stem and Args(**checkpoint["args"])
    except Exception as error:
        check(
            False,
            f"--resume {path} is no checkpoint of this file ({type(error).__name__}); give a run folder",
        )
    check(
        ours,
        f"--resume {path} is a checkpoint of {checkpoint['algo']}.py; resume it with that file",
    )
    return checkpoint


def train(args: Args, stop: list | tuple = ()) -> dict:
    """Train, evaluate, and return what summary.json holds. Once `stop` holds a signal's number: save and exit."""
    started, (train_backend, eval_backend) = time.time(), check_args(args)
    name = f"{args.env_id.replace('/', '-').replace(':', '-')}__{args.exp_name}__{args.seed}__{int(started)}"
    fresh = {
        "run_dir": Path(args.runs_dir) / name,
        "args": asdict(args),
        "global_step": 0,
        "wall_time_s": 0.0,
    }
    saved = load_checkpoint(args.resume) if args.resume else fresh
    check(
        saved["args"]["env_id"] == args.env_id,
        f"--resume {args.resume} was trained on {saved['args']['env_id']}",
    )
    run_dir, global_step, T, N = (
        saved["run_dir"],
        saved["global_step"],
        args.num_steps,
        args.num_envs,
    )
    device = torch.device(
        args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    )
    torch.set_num_threads(args.torch_threads)
    random.seed(args.seed), np.random.seed(args.seed), torch.manual_seed(args.seed)
    env_seed = (
        args.seed * 10_007 % 2**30
    )  # evaluation adds 2**30: its seeds and those of training never meet
    envs, next_obs = make_envs(args, train_backend, N, (env_seed + global_step) % 2**30)
    next_obs = flatten(next_obs)
    agent = Agent(next_obs.shape[1], int(envs.single_action_space.n), args).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    policy, gae, loss_fn = (
        torch.compile(function, mode="reduce-overhead") if args.compile else function
        for function in (agent.get_action, compute_gae, ppo_loss)
    )  # CUDA graphs on a GPU
    if args.resume:
        agent.load_state_dict(saved["agent"]), optimizer.load_state_dict(saved["optimizer"])
        setters = (
            random.setstate,
            np.random.set_state,
            torch.set_rng_state,
            torch.cuda.set_rng_state_all,
        )
        for setter, state in zip(setters, saved["random_states"]):
            setter(state)
    check(
        args.resume or not run_dir.exists(),
        f"{run_dir} exists already; wait a second or choose another --exp-name",
    )
    run_dir.mkdir(parents=True, exist_ok=True)
    git = dict(shell=True, capture_output=True, text=True, cwd=Path(__file__).resolve().parent)
    commit = (
        subprocess.run("git describe --always --dirty --exclude '*'", **git).stdout.strip()
        or "unknown"
    )
    versions = {
        name: str(sys.modules[name].__version__)
        for name in ("torch", "numpy", "gymnasium", train_backend)
    }
    run = {
        "algo": Path(__file__).stem,
        "env_id": args.env_id,
        "seed": args.seed,
        "device": str(device),
    }
    run |= {
        "total_timesteps": args.total_timesteps,
        "args": asdict(args),
        "versions": versions,
        "commit": commit,
    }
    write(run_dir / "config.json", run)
    if args.track:
        wandb = importlib.import_module("wandb")
        wandb.init(project="plainrl", name=run_dir.name, config=asdict(args), sync_tensorboard=True)
    atexit.register(
        (writer := SummaryWriter(run_dir, purge_step=global_step + 1)).close
    )  # whatever ends the run
    obs = torch.zeros(T + 1, *next_obs.shape, device=device)
    actions, logprobs = (
        torch.zeros(T, N, dtype=torch.int64, device=device),
        torch.zeros(T, N, device=device),
    )
    storage = np.zeros(
        (5, T, N), dtype=np.float32
    )  # rewards, terminateds, truncateds, valids, discounted returns
    episode, done, discounted, last100, busy = (
        np.zeros((2, N)),
        np.zeros(N, dtype=bool),
        np.zeros(N),
        [],
        [],
    )
    sps, printed, next_save, next_eval = (
        0.0,
        started,
        global_step,
        global_step + (args.eval_frequency or math.inf),
    )
    bar = tqdm(
        total=args.total_timesteps, initial=global_step, unit="step", unit_scale=True, disable=None
    )
    while True:
        finished = global_step >= args.total_timesteps
        if global_step >= min(next_save, next_eval) or finished or stop:
            next_save, (name, keys, *rest) = (
                global_step + args.checkpoint_frequency,
                np.random.get_state(),
            )
            random_states = random.getstate(), (name, keys.tolist(), *rest), torch.get_rng_state()
            write(
                run_dir / "checkpoint.pt",
                run
                | {
                    "global_step": global_step,
                    "wall_time_s": saved["wall_time_s"] + time.time() - started,
                    "agent": agent.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "random_states": (*random_states, torch.cuda.get_rng_state_all()),
                },
            )
            writer.flush()
        if (finished or global_step >= next_eval) and not stop:
            next_eval, film = (
                global_step + (args.eval_frequency or math.inf),
                run_dir / f"videos/step-{global_step}",
            )
            eval_seed, film = env_seed + 2**30, film if args.capture_video else ""
            eval_returns = evaluate(
                agent, *make_envs(args, eval_backend, args.eval_episodes, eval_seed, film), stop
            )
            _ = stop or writer.add_scalar(
                "eval/episodic_return", np.mean(eval_returns), global_step
            )
        if finished or stop:
            break
        tick, first_step, ended = time.perf_counter(), global_step, []
        lr = args.learning_rate * (1 - global_step / args.total_timesteps if args.anneal_lr else 1)
        optimizer.param_groups[0]["lr"] = lr
        for t in range(T):
            with torch.inference_mode():
                obs[t] = torch.from_numpy(next_obs)
                actions[t], logprobs[t], _ = policy(agent.normalize(obs[t]))
                env_action = actions[t].cpu().numpy()
            next_obs, reward, terminated, truncated, _ = envs.step(env_action)
            next_obs, valid, done = flatten(next_obs), ~done, terminated | truncated
            finite = np.isfinite(next_obs).all() and np.isfinite(reward).all()
            check(
                finite,
                f"non-finite observation or reward after step {global_step}; last good state: {run_dir}",
            )
            discounted = discounted * args.gamma * valid + reward
            storage[:, t] = reward, terminated, truncated, valid, discounted
            global_step += int(valid.sum())
            episode += reward * valid, valid
            ended.extend(episode[:, done].T)
            episode[:, done] = 0
        obs[T] = torch.from_numpy(next_obs)

        rewards, terminateds, truncateds, valids, traces = torch.from_numpy(storage).to(device)
        valids, dones = valids.bool(), torch.max(terminateds, truncateds)
        agent.return_rms.update(traces[valids])
        rewards = (
            (rewards / (agent.return_rms.var + 1e-8).sqrt()).clamp(-10, 10)
            if args.norm_reward
            else rewards
        )
        x, ends = agent.normalize(obs), terminateds if args.bootstrap_truncation else dones
        with torch.no_grad():
            values = agent.get_value(
                x
            )  # (T + 1, N); row t + 1 is the true next observation, also where row t is done
            advantages = gae(rewards, values, ends, dones, args.gamma, args.gae_lambda)
        batch = x[:-1], actions, logprobs, advantages, advantages + values[:-1], values[:-1]
        batch = tuple(
            tensor[valids] for tensor in batch
        )  # reset rows end here: (T, N, ...) -> (valid rows, ...)
        metrics = update(agent, optimizer, args, batch, loss_fn).tolist()
        check(
            np.isfinite(metrics).all(),
            f"non-finite loss at step {global_step}; last good state: {run_dir}",
        )
        agent.obs_rms.update(
            obs[:-1][valids]
        )  # not before: one iteration sees one set of statistics
        busy.append((global_step - first_step, time.perf_counter() - tick))
        sps = float(np.divide(*np.sum(busy[1:] or busy, axis=0)))  # the first iteration warms up
        explained_variance = 1 - float((batch[4] - batch[5]).var() / batch[4].var())
        keys = "policy_loss", "value_loss", "entropy", "approx_kl", "clipfrac", "explained_variance"
        scalars = {
            f"losses/{key}": value for key, value in zip(keys, (*metrics, explained_variance))
        }
        scalars |= {"charts/SPS": sps, "charts/learning_rate": lr}
        scalars |= zip(
            ("charts/episodic_return", "charts/episodic_length"),
            np.mean(ended, axis=0) if ended else (),
        )
        last100 = (last100 + [float(episodic_return) for episodic_return, _ in ended])[-100:]
        for key, value in scalars.items():
            writer.add_scalar(key, value, global_step)
        status = f"return {np.mean(last100 or [math.nan]):.1f}, SPS {sps:.0f}"
        bar.update(global_step - first_step), bar.set_postfix_str(status, refresh=False)
        if bar.disable and time.time() - printed > 5:
            printed = time.time()
            print(f"step {global_step}/{args.total_timesteps}, {status}", flush=True)

    bar.close(), writer.close(), envs.close()
    check(
        not stop,
        f"stopped at step {global_step}; go on with --resume {run_dir}",
        128 + sum(stop[:1]),
    )
    mean, std = float(np.mean(eval_returns)), float(np.std(eval_returns))
    summary = run | {
        "global_step": global_step,
        "wall_time_s": saved["wall_time_s"] + time.time() - started,
        "sps": sps,
        "train_return_last100": float(np.mean(last100)) if last100 else None,
        "eval_episodes": args.eval_episodes,
        "eval_return_mean": mean,
        "eval_return_std": std,
        "eval_returns": eval_returns,
    }
    write(run_dir / "summary.json", summary)
    print(f"{run_dir}: evaluation {mean:.1f} +- {std:.1f} over {args.eval_episodes} episodes")
    return summary


if __name__ == "__main__":
    warnings.filterwarnings(
        "ignore", ".*precision lowered by casting"
    )  # EnvPool's spaces are float64
    args, stop = tyro.cli(Args), []
    if args.resume:
        args = tyro.cli(Args, default=Args(**load_checkpoint(args.resume)["args"]))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stop.append(number))
    train(args, stop)
