"""Robust Policy Optimization (RPO): PPO with uniform noise on the location of the action in every update pass.

    python algos/rpo_continuous.py --env-id BipedalWalker-v3

Paper: RPO, Rahman and Xue 2022, arXiv:2212.07536. What differs from the parent, ppo_continuous.py, is tagged `RPO:`.
Deviations from the paper, beside those that ppo_continuous.py has from its own:
1. --rpo-alpha-final lets alpha fall linearly over the run; the paper keeps it constant.
2. --rpo-perturb-rollout adds the noise while acting as well; the paper's Algorithm 1 acts without it.
With --rpo-alpha 0 this is ppo_continuous.py bit for bit.
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
    torch_threads: int = 1  # CPU threads of PyTorch; networks this small are slower with more
    env_id: str = "BipedalWalker-v3"  # a Gymnasium or EnvPool id with Box observations and actions
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
    total_timesteps: int = 3_000_000  # environment steps, all environments together
    learning_rate: float = 2e-3  # step size of Adam
    anneal_lr: bool = True  # let the learning rate fall linearly to zero
    num_steps: int = 64  # steps per environment and rollout
    gamma: float = 0.99  # discount factor
    gae_lambda: float = 0.95  # lambda of generalized advantage estimation
    num_minibatches: int = 2  # minibatches per epoch
    update_epochs: int = 10  # passes over each rollout
    norm_adv: bool = True  # standardise the advantages of each minibatch
    clip_coef: float = 0.2  # epsilon of the clipped surrogate objective
    clip_vloss: bool = False  # clip the value loss around the old value
    ent_coef: float = 0.0  # weight of the entropy bonus
    vf_coef: float = 0.5  # weight of the value loss
    max_grad_norm: float = 0.5  # largest norm of the gradient
    target_kl: float | None = (
        None  # stop the epochs of an update once the approximate KL exceeds this
    )
    activation: Literal["SiLU", "Tanh"] = (
        "SiLU"  # of the hidden layers; papers have Tanh, SiLU is faster on a CPU
    )
    distribution: Literal["normal", "laplace", "gumbel"] = (
        "normal"  # of the action around the network's output
    )
    squash: bool = False  # tanh to the bounds of the action space in place of clipping
    rpo_alpha: float = (
        0.5  # RPO: the noise on the location of the action is uniform in [-alpha, alpha]
    )
    rpo_alpha_final: float | None = (
        None  # RPO: alpha falls linearly to this; without it alpha is constant
    )
    rpo_perturb_rollout: bool = False  # RPO: add the noise while acting in the rollout as well


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
    final = (
        args.rpo_alpha if args.rpo_alpha_final is None else args.rpo_alpha_final
    )  # RPO: alpha can only fall
    check(
        0 <= final <= args.rpo_alpha,
        f"0 <= --rpo-alpha-final <= --rpo-alpha, not {final} and {args.rpo_alpha}",
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
        isinstance(s, gym.spaces.Box)
        for s in (actions, *(obs.values() if hasattr(obs, "values") else [obs]))
    )
    kinds = f"{type(actions).__name__} actions and {type(obs).__name__} observations"
    check(
        boxes,
        f"--env-id {args.env_id} has {kinds}; this file takes Box for both (ppo.py: Discrete actions)",
    )
    check(
        not args.squash or actions.is_bounded(),
        f"--squash needs finite action bounds, unlike {args.env_id}'s",
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


NOISES = {  # location 0, scale 1: a draw shaped like x, the log-density at z, the entropy
    "normal": (
        torch.randn_like,
        lambda z: -0.5 * (z**2 + math.log(2 * math.pi)),
        0.5 + 0.5 * math.log(2 * math.pi),
    ),
    "laplace": (
        lambda x: torch.empty_like(x).exponential_() * torch.randn_like(x).sign(),
        lambda z: -z.abs() - math.log(2),
        1 + math.log(2),
    ),
    "gumbel": (
        lambda x: -torch.empty_like(x).exponential_().log(),
        lambda z: -z - (-z).exp(),
        1 + np.euler_gamma,
    ),
}


class Agent(nn.Module):
    """A network for the location of the action, its scale as one vector for all states, and a value network."""

    def __init__(self, obs_dim: int, action_space: gym.spaces.Box, args: Args):
        super().__init__()

        def mlp(out_dim: int, std: float) -> nn.Sequential:
            act = getattr(nn, args.activation)
            hidden = layer_init(nn.Linear(obs_dim, 64)), act(), layer_init(nn.Linear(64, 64)), act()
            return nn.Sequential(*hidden, layer_init(nn.Linear(64, out_dim), std))

        self.args, action_dim = args, math.prod(action_space.shape)
        self.actor_mean, self.critic = mlp(action_dim, std=0.01), mlp(1, std=1.0)
        self.actor_logstd = nn.Parameter(torch.zeros(action_dim))
        self.register_buffer(
            "rpo_alpha", torch.tensor(args.rpo_alpha), persistent=False
        )  # RPO: follows the schedule
        self.obs_rms, self.return_rms = RunningMeanStd(obs_dim), RunningMeanStd()
        self.register_buffer("action_low", torch.from_numpy(action_space.low).float().flatten())
        self.register_buffer("action_high", torch.from_numpy(action_space.high).float().flatten())

    def normalize(self, obs: torch.Tensor) -> torch.Tensor:
        """Raw observations (..., obs_dim) to what the networks take, called x everywhere."""
        x = ((obs - self.obs_rms.mean) / (self.obs_rms.var + 1e-8).sqrt()).clamp(-10, 10)
        return x if self.args.norm_obs else obs

    def get_value(self, x: torch.Tensor) -> torch.Tensor:
        return self.critic(x).squeeze(-1)  # (..., obs_dim) -> (...)

    def get_action(self, x: torch.Tensor, action: torch.Tensor | None = None):
        """x (n, obs_dim) and, in the update, the stored action (n, action_dim), neither clipped nor squashed
        -> action, logprob (n,), entropy (n,). Under --squash both are of what the environment gets. The correction
        cancels in PPO's ratio; in the entropy it does not: it has no closed form and is estimated from one draw."""
        draw, log_density, unit_entropy = NOISES[self.args.distribution]
        mean, std = self.actor_mean(x), self.actor_logstd.exp()
        if self.args.rpo_alpha > 0 and (
            action is not None or self.args.rpo_perturb_rollout
        ):  # RPO: Algorithm 1
            mean = mean + self.rpo_alpha * (
                2 * torch.rand_like(mean) - 1
            )  # RPO: z ~ U(-alpha, alpha)
        action = mean + std * draw(mean) if action is None else action
        logprob = log_density((action - mean) / std) - self.actor_logstd
        entropy = (self.actor_logstd + unit_entropy).expand_as(mean)
        if self.args.squash:
            logprob, entropy = (
                logprob - self.log_slope(action),
                entropy + self.log_slope(mean + std * draw(mean)),
            )
        return action, logprob.sum(-1), entropy.sum(-1)

    def log_slope(self, u: torch.Tensor) -> torch.Tensor:
        """log |d to_env(u) / du| under --squash: log(scale) + log(1 - tanh(u)^2), stable far out."""
        scale = (self.action_high - self.action_low) / 2
        return scale.log() + 2 * (math.log(2) - u - nn.functional.softplus(-2 * u))

    def to_env(self, action: torch.Tensor) -> torch.Tensor:
        """What the environment gets: the action clipped or squashed to the bounds of the action space."""
        low, high = self.action_low, self.action_high
        return (
            low + (high - low) * (action.tanh() + 1) / 2
            if self.args.squash
            else action.clamp(low, high)
        )


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
        x = agent.normalize(torch.from_numpy(flatten(obs)).to(agent.action_low.device))
        action = agent.to_env(agent.actor_mean(x)).cpu().numpy()
        obs, reward, terminated, truncated, _ = envs.step(
            action.reshape(-1, *envs.single_action_space.shape)
        )
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
    next_obs, action_space = flatten(next_obs), envs.single_action_space
    agent = Agent(next_obs.shape[1], action_space, args).to(device)
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
        torch.zeros(T, N, len(agent.actor_logstd), device=device),
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
        if args.rpo_alpha_final is not None:  # RPO: linear schedule
            share = global_step / args.total_timesteps
            agent.rpo_alpha.fill_(args.rpo_alpha + (args.rpo_alpha_final - args.rpo_alpha) * share)
        for t in range(T):
            with torch.inference_mode():
                obs[t] = torch.from_numpy(next_obs)
                actions[t], logprobs[t], _ = policy(agent.normalize(obs[t]))
                env_action = agent.to_env(actions[t]).cpu().numpy().reshape(N, *action_space.shape)
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
