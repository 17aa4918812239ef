"""REINFORCE, the Monte Carlo policy gradient, with and without a baseline. The file to read first.

    python algos/reinforce.py --env-id CartPole-v1

Play whole episodes, then make every action more likely in proportion to the return that followed it:
    gradient of the mean over steps of  log pi(a_t | s_t) * (G_t - b(s_t)),   G_t = r_t + gamma * r_t+1 + gamma^2 * ...
Paper: Williams 1992, Machine Learning 8:229; Sutton and Barto 2018, section 13.4, has the baseline b(s). Deviations:
1. The mean is over the steps of num_envs episodes, and G_t is not weighted by gamma^t, as everywhere in practice.
2. G_t - b is standardised over the batch (--no-norm-adv for the plain estimate); Adam in place of plain ascent.
3. An episode that a time limit cuts counts as ended: a Monte Carlo return has nothing to bootstrap from.
4. Environments play one episode per update each. Whoever is done waits: its steps are neither counted nor learned from.
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
    checkpoint_frequency: int = 20_000  # environment steps between two checkpoints
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
    torch_threads: int = 1  # CPU threads of PyTorch; networks this small are slower with more
    env_id: str = (
        "CartPole-v1"  # a Gymnasium or EnvPool id with Box observations and Discrete actions
    )
    env_backend: Literal["auto", "gymnasium", "envpool"] = (
        "auto"  # auto takes EnvPool where it has the environment
    )
    num_envs: int = 8  # parallel environments, and episodes per update
    total_timesteps: int = 200_000  # environment steps, all environments together
    learning_rate: float = 3e-3  # step size of Adam
    anneal_lr: bool = True  # let the learning rate fall linearly to zero
    gamma: float = 0.99  # discount factor
    baseline: Literal["value", "none"] = (
        "value"  # what is subtracted from the return: a learned value, or nothing
    )
    norm_adv: bool = True  # standardise the returns, less the baseline, of each batch
    vf_coef: float = 0.5  # weight of the value loss
    activation: Literal["SiLU", "Tanh"] = (
        "SiLU"  # of the hidden layers; papers have Tanh, SiLU is faster on a CPU
    )


def check(ok, message: str, status: int = 2) -> None:  # one line and this exit status, unless ok
    if not ok:
        print(f"{Path(__file__).name}: {message}", file=sys.stderr)
        raise SystemExit(status)


def check_args(args: Args) -> tuple[str, str]:
    """(backend that trains, backend that evaluates); one line and exit status 2, with nothing created, on bad input."""
    counts = "total_timesteps num_envs eval_episodes checkpoint_frequency"
    for name in (*counts.split(), "torch_threads", "learning_rate"):
        check(
            getattr(args, name) > 0,
            f"--{name.replace('_', '-')} must be positive, not {getattr(args, name)}",
        )
    for name, most in (("seed", 2**32 - 1), ("eval_frequency", math.inf), ("gamma", 1)):
        check(
            0 <= getattr(args, name) <= most,
            f"--{name.replace('_', '-')} {getattr(args, name)} not in [0, {most}]",
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
    made, errors = {}, {}
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


def layer_init(layer: nn.Linear, std: float = math.sqrt(2)) -> nn.Linear:
    nn.init.orthogonal_(layer.weight, std), nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """A network for the logarithms of the actions' odds, and a value network for the baseline."""

    def __init__(self, obs_dim: int, num_actions: int, args: Args):
        super().__init__()

        def mlp(out_dim: int, std: float) -> nn.Sequential:
            act = getattr(nn, args.activation)
            hidden = layer_init(nn.Linear(obs_dim, 64)), act(), layer_init(nn.Linear(64, 64)), act()
            return nn.Sequential(*hidden, layer_init(nn.Linear(64, out_dim), std))

        self.actor, self.critic = mlp(num_actions, std=0.01), mlp(1, std=1.0)

    def get_value(self, obs: torch.Tensor) -> torch.Tensor:
        return self.critic(obs).squeeze(-1)  # (n, obs_dim) -> (n,)

    def get_action(self, obs: torch.Tensor, action: torch.Tensor | None = None):
        """obs (n, obs_dim) and, in the update, the action taken (n,) -> action, logprob, entropy, all (n,)."""
        logprobs = self.actor(obs).log_softmax(-1)
        if (
            action is None
        ):  # Gumbel-max: the largest of logprob + Gumbel noise is a draw from the policy
            action = (logprobs - torch.empty_like(logprobs).exponential_().log()).argmax(-1)
        logprob = logprobs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        return action, logprob, -(logprobs.exp() * logprobs).sum(-1)


def compute_returns(rewards: torch.Tensor, gamma: float) -> torch.Tensor:
    """G_t = r_t + gamma * G_t+1, (steps, episodes) like the rewards, which are 0 after an episode's end."""
    returns = [torch.zeros_like(rewards[0])]
    for reward in rewards.flip(0):
        returns.append(reward + gamma * returns[-1])
    return torch.stack(returns[:0:-1])


def reinforce_loss(agent: Agent, args: Args, obs, action, target):
    """Loss of a batch of steps, tensors (rows, ...), and [policy_loss, value_loss, entropy]."""
    _, logprob, entropy = agent.get_action(obs, action)
    value = agent.get_value(obs)
    assert logprob.shape == value.shape == target.shape
    advantage = target - value.detach() if args.baseline == "value" else target
    if args.norm_adv and len(target) > 1:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss, value_loss = -(logprob * advantage).mean(), 0.5 * ((value - target) ** 2).mean()
    return policy_loss + args.vf_coef * value_loss, torch.stack(
        [policy_loss, value_loss, entropy.mean()]
    ).detach()


def update(
    agent: Agent, optimizer: torch.optim.Optimizer, args: Args, batch: tuple
) -> torch.Tensor:
    """One step on whole episodes, `batch` being reinforce_loss's tensors (rows, ...); its metrics, (3,)."""
    loss, metrics = reinforce_loss(agent, args, *batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return metrics


@torch.inference_mode()
def evaluate(agent: Agent, envs: gym.vector.VectorEnv, obs: np.ndarray, stop=()) -> list[float]:
    """Raw returns of each environment's first episode, played by the policy's mode."""
    returns, running = np.zeros(envs.num_envs), np.ones(envs.num_envs, dtype=bool)
    while running.any() and not stop:
        logits = agent.actor(torch.from_numpy(flatten(obs)).to(next(agent.parameters()).device))
        obs, reward, terminated, truncated, _ = envs.step(logits.argmax(-1).cpu().numpy())
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
    run_dir, global_step, N = saved["run_dir"], saved["global_step"], args.num_envs
    device = torch.device(
        args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    )
    torch.set_num_threads(args.torch_threads)
    random.seed(args.seed), np.random.seed(args.seed), torch.manual_seed(args.seed)
    env_seed = (
        args.seed * 10_007 % 2**30
    )  # evaluation adds 2**30: its seeds and those of training never meet
    envs, next_obs = make_envs(args, train_backend, N, (env_seed + global_step) % 2**30)
    agent = Agent(flatten(next_obs).shape[1], int(envs.single_action_space.n), args).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, fused=True)
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
    last100, busy = [], []
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
        tick, first_step = time.perf_counter(), global_step
        lr = args.learning_rate * (1 - global_step / args.total_timesteps if args.anneal_lr else 1)
        optimizer.param_groups[0]["lr"] = lr
        obs, steps, running = flatten(envs.reset()[0]), [], np.ones(N, dtype=bool)
        while (
            running.any() and not stop
        ):  # until every environment has played one episode to its end
            with torch.inference_mode():
                action = agent.get_action(torch.from_numpy(obs).to(device))[0].cpu().numpy()
            next_obs, reward, terminated, truncated, _ = envs.step(action)
            next_obs = flatten(next_obs)
            finite = np.isfinite(next_obs).all() and np.isfinite(reward).all()
            check(
                finite,
                f"non-finite observation or reward after step {global_step}; last good state: {run_dir}",
            )
            steps.append((obs, action, (reward * running).astype(np.float32), running))
            obs, running = next_obs, running & ~(terminated | truncated)
        if stop:
            continue

        obs, actions, rewards, valids = (
            torch.from_numpy(np.stack(values)).to(device) for values in zip(*steps)
        )
        global_step += int(valids.sum())
        ended = torch.stack([rewards.sum(0), valids.sum(0)]).T.tolist()
        targets = compute_returns(rewards, args.gamma)
        batch = tuple(
            tensor[valids] for tensor in (obs, actions, targets)
        )  # (steps, N, ...) -> (rows, ...)
        metrics = update(agent, optimizer, args, batch).tolist()
        check(
            np.isfinite(metrics).all(),
            f"non-finite loss at step {global_step}; last good state: {run_dir}",
        )
        busy.append((global_step - first_step, time.perf_counter() - tick))
        sps = float(np.divide(*np.sum(busy[1:] or busy, axis=0)))  # the first iteration warms up
        scalars = dict(zip(("losses/policy_loss", "losses/value_loss", "losses/entropy"), metrics))
        scalars |= {"charts/SPS": sps, "charts/learning_rate": lr}
        last100 = (last100 + [episodic_return for episodic_return, _ in ended])[-100:]
        scalars |= zip(("charts/episodic_return", "charts/episodic_length"), np.mean(ended, axis=0))
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
