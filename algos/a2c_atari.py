"""Advantage actor-critic (A2C), the synchronous form of A3C, for Atari games from pixels.

    python algos/a2c_atari.py --env-id BreakoutNoFrameskip-v4

Paper: A3C, Mnih et al. 2016, arXiv:1602.01783; settings as published with OpenAI Baselines' a2c. What differs from
ppo_atari.py: rollouts of 5 steps, n-step returns for targets, one step of RMSprop per rollout over all of its rows, and
the plain policy gradient, since the policy that is updated is the one that acted. Deviations from the paper:
1. All environments step together and one network learns from all of them; the paper has asynchronous copies.
2. A lost life is terminal for the learner, as in DQN, but the game goes on; logged returns are raw, of whole games.
3. The first convolution is a space-to-depth and a dense one (the same sums); --precision auto may take bfloat16.
4. A time limit is no terminal state: a truncated game bootstraps from the value of its true final observation.
5. Evaluation samples from the policy, like the published figures: its mode can wait for ever for a ball to be served.
"""

import atexit, difflib, importlib.util, json, math, os, random, signal, subprocess, sys, time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import gymnasium as gym, numpy as np, torch, torch.nn as nn, tyro
from ale_py import AtariVectorEnv
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
    eval_episodes: int = 30  # games of an evaluation, one in each of as many parallel environments
    capture_video: bool = (
        False  # record the first 3 episodes of every evaluation as mp4 in the run folder
    )
    track: bool = False  # send the run to Weights & Biases as well, project plainrl
    compile: bool = False  # torch.compile for policy and loss, with CUDA graphs on a GPU
    torch_threads: int = 0  # CPU threads of PyTorch; 0 leaves its own choice, one for each core
    precision: Literal["auto", "float32", "bfloat16"] = (
        "auto"  # of the hidden layers; auto: bfloat16 if it is native
    )
    env_id: str = (
        "BreakoutNoFrameskip-v4"  # an Atari id; its stickiness and its own frame skip are kept
    )
    frame_skip: int = (
        0  # frames per action; 0: as many as the id says, and 4 where it says 1 (NoFrameskip)
    )
    num_envs: int = 16  # parallel environments
    terminal_on_life_loss: bool = True  # a lost life ends the bootstrap, though not the game
    clip_reward: bool = True  # learn from the sign of the reward
    bootstrap_truncation: bool = (
        True  # off: treat a time limit as a terminal state (a common mistake, to measure it)
    )
    total_timesteps: int = 10_000_000  # agent steps, all environments together; a step is 4 frames
    learning_rate: float = 7e-4  # step size of RMSprop
    anneal_lr: bool = True  # let the learning rate fall linearly to zero
    num_steps: int = 5  # steps per environment and rollout, the n of the n-step returns
    gamma: float = 0.99  # discount factor
    ent_coef: float = 0.01  # weight of the entropy bonus
    vf_coef: float = 0.5  # weight of the value loss
    max_grad_norm: float = 0.5  # largest norm of the gradient
    rms_alpha: float = 0.99  # decay of RMSprop's mean square gradient
    rms_eps: float = 1e-5  # added to it, under the root


def check(ok, message: str, status: int = 2) -> None:  # one line and this exit status, unless ok
    if not ok:
        print(f"{Path(__file__).name}: {message}", file=sys.stderr)
        raise SystemExit(status)


def check_args(args: Args) -> None:
    """One line and exit status 2, with nothing created, on bad input."""
    counts = "total_timesteps num_envs num_steps eval_episodes checkpoint_frequency"
    for name in (*counts.split(), "learning_rate", "max_grad_norm", "rms_eps"):
        check(
            getattr(args, name) > 0,
            f"--{name.replace('_', '-')} must be positive, not {getattr(args, name)}",
        )
    limits = {
        "seed": 2**32 - 1,
        "eval_frequency": math.inf,
        "torch_threads": math.inf,
        "frame_skip": math.inf,
    }
    for name, most in (limits | {"gamma": 1, "rms_alpha": 1}).items():
        check(
            0 <= getattr(args, name) <= most,
            f"--{name.replace('_', '-')} {getattr(args, name)} not in [0, {most}]",
        )
    check(
        args.num_steps > 1,
        "--num-steps must be at least 2: a single step can be a reset row in every environment",
    )
    rows = args.num_envs * args.num_steps
    check(
        rows <= args.total_timesteps,
        f"--total-timesteps must be at least num_envs x num_steps = {rows}",
    )
    check(
        rows * 4 * 84 * 84 < 2**33,
        f"--num-envs x --num-steps = {rows} stacks of pictures exceed 8 GiB; take less",
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
    games = [
        env_id for env_id, spec in gym.registry.items() if "game" in spec.kwargs
    ]  # importing ale_py adds them
    near = difflib.get_close_matches(args.env_id, games, cutoff=0.3)
    check(args.env_id in games, f"--env-id {args.env_id} is no Atari game; nearest: {near}")
    known = args.frame_skip or isinstance(gym.spec(args.env_id).kwargs["frameskip"], int)
    check(
        known,
        f"--env-id {args.env_id} draws its frame skip at random; take the NoFrameskip-v4 or ALE/...-v5 id",
    )


def make_envs(args: Args, num_envs: int, seed: int, **view):
    """Vector environment seeded seed, seed + 1, ..., its first observation (num_envs, 4, 84, 84) uint8 and info, in
    NEXT_STEP mode: the step after a `done` is a reset row, whose action is ignored. `view` changes only the picture."""
    game = gym.spec(args.env_id).kwargs  # name, stickiness, frame skip, actions, longest game
    skip = {"frameskip": args.frame_skip or (game["frameskip"] if game["frameskip"] != 1 else 4)}
    envs = AtariVectorEnv(num_envs=num_envs, reward_clipping=False, **game | skip | view)
    assert envs.metadata["autoreset_mode"] == gym.vector.AutoresetMode.NEXT_STEP
    return envs, *envs.reset(seed=seed)


def layer_init(layer: nn.Linear | nn.Conv2d, std: float = math.sqrt(2)) -> nn.Linear | nn.Conv2d:
    nn.init.orthogonal_(layer.weight, std), nn.init.zeros_(layer.bias)
    return layer


class PixelConv2d(nn.Conv2d):
    """nn.Conv2d of a uint8 picture / 255, for stride 4, and faster: each 4 x 4 patch of a frame becomes a pixel of 16
    channels, as in the kernel, and a convolution without stride adds up the same products. 4 bytes move as an int32."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        (n, frames, height, width), device = obs.shape, obs.device.type
        patches = (
            obs.contiguous()
            .view(torch.int32)
            .view(n, frames, height // 4, 4, width // 4)
            .permute(0, 2, 4, 1, 3)
        )
        x = (
            patches.contiguous()
            .view(torch.uint8)
            .view(n, height // 4, width // 4, 16 * frames)
            .permute(0, 3, 1, 2)
        )
        dtype = (
            torch.get_autocast_dtype(device)
            if torch.is_autocast_enabled(device)
            else self.weight.dtype
        )
        return nn.functional.conv2d(
            x.to(dtype), nn.functional.pixel_unshuffle(self.weight, 4) / 255, self.bias
        )


class Flatten(
    nn.Module
):  # (n, channels, height, width) in the order of channels_last memory, so without a copy
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1).flatten(1)


class Agent(nn.Module):
    """The network of Mnih et al. 2015, shared by a categorical policy and a value function."""

    def __init__(self, num_actions: int, bfloat16: bool):
        super().__init__()
        self.bfloat16 = bfloat16
        self.network = nn.Sequential(
            layer_init(PixelConv2d(4, 32, 8, stride=4)),
            nn.ReLU(),
            layer_init(nn.Conv2d(32, 64, 4, stride=2)),
            nn.ReLU(),
            layer_init(nn.Conv2d(64, 64, 3)),
            nn.ReLU(),
            Flatten(),
            layer_init(nn.Linear(64 * 7 * 7, 512)),
            nn.ReLU(),
        )
        self.actor = layer_init(nn.Linear(512, num_actions), std=0.01)
        self.critic = layer_init(nn.Linear(512, 1), std=1.0)

    def features(self, obs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(obs.device.type, torch.bfloat16, enabled=self.bfloat16):
            return self.network(obs).float()  # (n, 4, 84, 84) uint8 -> (n, 512) float32

    def get_value(self, obs: torch.Tensor) -> torch.Tensor:
        return self.critic(self.features(obs)).squeeze(-1)  # (n, 4, 84, 84) -> (n,)

    def get_action_and_value(self, obs: torch.Tensor, action: torch.Tensor | None = None):
        """obs (n, 4, 84, 84) and, in the update, the stored action (n,) -> action, logprob, entropy, value (n,)."""
        features = self.features(obs)
        logprobs = self.actor(features).log_softmax(-1)
        if (
            action is None
        ):  # Gumbel-max: the largest of logprob + Gumbel noise is a draw from the policy
            action = (logprobs - torch.empty_like(logprobs).exponential_().log()).argmax(-1)
        logprob = logprobs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        return (
            action,
            logprob,
            -(logprobs.exp() * logprobs).sum(-1),
            self.critic(features).squeeze(-1),
        )


class RMSprop(torch.optim.Optimizer):
    """RMSprop of arXiv:1602.01783, section 4: theta -= lr * grad / sqrt(g + eps) with g the running mean square of the
    gradient. PyTorch's adds eps outside the root. g starts at 1, as in Baselines, so that the first steps are small."""

    def __init__(self, parameters, lr: float, alpha: float, eps: float):
        super().__init__(parameters, dict(lr=lr, alpha=alpha, eps=eps))
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["square"] = torch.ones_like(parameter)

    @torch.no_grad()
    def step(self) -> None:
        lr, alpha, eps = (self.param_groups[0][key] for key in ("lr", "alpha", "eps"))
        for parameter in self.param_groups[0]["params"]:
            square, grad = self.state[parameter]["square"], parameter.grad
            square.mul_(alpha).addcmul_(grad, grad, value=1 - alpha)
            parameter.addcdiv_(grad, (square + eps).sqrt_(), value=-lr)


def n_step_returns(rewards, values, terminateds, dones, gamma: float) -> torch.Tensor:
    """Targets (num_steps, num_envs), arXiv:1602.01783 algorithm S3, from values (num_steps + 1, num_envs) and the rest
    like the result. A terminal state is worth nothing, a truncated one its value, the rollout's last one its value."""
    targets = [values[-1]]
    for t in reversed(range(len(rewards))):
        next_return = torch.where(dones[t] > 0, values[t + 1], targets[-1])
        targets.append(rewards[t] + gamma * next_return * (1 - terminateds[t]))
    return torch.stack(targets[:0:-1])


def a2c_loss(agent: Agent, args: Args, obs, action, target, valid):
    """Loss of a rollout, tensors (rows, ...), over the rows with valid = 1, and [policy_loss, value_loss, entropy]."""
    _, logprob, entropy, value = agent.get_action_and_value(obs, action)
    assert logprob.shape == value.shape == target.shape == valid.shape
    weight, advantage = valid / valid.sum(), target - value.detach()
    policy_loss = -(weight * logprob * advantage).sum()
    value_loss, entropy = 0.5 * (weight * (target - value) ** 2).sum(), (weight * entropy).sum()
    loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * entropy
    return loss, torch.stack([policy_loss, value_loss, entropy]).detach()


def update(agent: Agent, optimizer, args: Args, batch: tuple, loss_fn=a2c_loss) -> torch.Tensor:
    """One step on a rollout, `batch` being a2c_loss's tensors (rows, ...); its metrics, (3,)."""
    loss, metrics = loss_fn(agent, args, *batch)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
    optimizer.step()
    return metrics.clone()


@torch.inference_mode()
def evaluate(
    agent: Agent, envs: gym.vector.VectorEnv, obs: np.ndarray, stop=(), camera=None, videos=""
) -> list[float]:
    """Raw returns of each environment's first game, played by the policy as it is, random actions and all. The camera,
    if any, is a vector environment with the seeds of the first few: there the same actions play the same games."""
    returns, running = np.zeros(envs.num_envs), np.ones(envs.num_envs, dtype=bool)
    films = [
        importlib.import_module("imageio").get_writer(
            f"{videos}/env-{i}.mp4", fps=15, macro_block_size=2
        )
        for i in range(camera.num_envs if camera else 0)
    ]
    with torch.random.fork_rng():  # training goes on with the draws it would have had
        while running.any() and not stop:
            action = (
                agent.get_action_and_value(torch.from_numpy(obs).to(agent.critic.weight.device))[0]
                .cpu()
                .numpy()
            )
            obs, reward, terminated, truncated, _ = envs.step(action)
            for film, frame, runs in zip(
                films, camera.step(action[: len(films)])[0] if films else (), running
            ):
                _ = runs and film.append_data(frame[0])
            returns += np.where(running, reward, 0.0)
            running &= ~(terminated | truncated)
    for finished in (envs, *films):
        finished.close()
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
    started, _ = time.time(), check_args(args)
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
    torch.set_num_threads(args.torch_threads or torch.get_num_threads())
    random.seed(args.seed), np.random.seed(args.seed), torch.manual_seed(args.seed)
    env_seed = (
        args.seed * 10_007 % 2**30
    )  # evaluation adds 2**30: its seeds and those of training never meet
    envs, next_obs, info = make_envs(args, N, (env_seed + global_step) % 2**30)
    native = (
        torch.cpu.get_capabilities().get("avx512_bf16")
        if device.type == "cpu"
        else device.type == "cuda"
    )
    bfloat16 = args.precision == "bfloat16" or args.precision == "auto" and bool(native)
    agent = Agent(envs.single_action_space.n, bfloat16).to(
        device, memory_format=torch.channels_last
    )
    optimizer = RMSprop(
        agent.parameters(), lr=args.learning_rate, alpha=args.rms_alpha, eps=args.rms_eps
    )
    policy, loss_fn = (
        torch.compile(function, mode="reduce-overhead") if args.compile else function
        for function in (agent.get_action_and_value, a2c_loss)
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
        for name in ("torch", "numpy", "gymnasium", "ale_py")
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
    obs = torch.zeros(T + 1, *next_obs.shape, dtype=torch.uint8, device=device)
    actions, values = (
        torch.zeros(T, N, dtype=torch.int64, device=device),
        torch.zeros(T + 1, N, device=device),
    )
    storage = np.zeros((4, T, N), dtype=np.float32)  # rewards, terminateds, truncateds, valids
    episode, done, lives, last100, ended = (
        np.zeros((2, N)),
        np.zeros(N, dtype=bool),
        info["lives"],
        [],
        [],
    )
    metrics, busy, warm = (
        [],
        np.zeros(2),
        False,
    )  # of the updates since the last line of the log; steps and seconds
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
            next_eval, eval_seed, camera = (
                global_step + (args.eval_frequency or math.inf),
                env_seed + 2**30,
                (),
            )
            if args.capture_video:
                (videos := run_dir / f"videos/step-{global_step}").mkdir(
                    parents=True, exist_ok=True
                )
                screen = dict(grayscale=False, img_height=210, img_width=160, stack_num=1)
                camera = make_envs(args, min(3, args.eval_episodes), eval_seed, **screen)[0], videos
            eval_returns = evaluate(
                agent, *make_envs(args, args.eval_episodes, eval_seed)[:2], stop, *camera
            )
            _ = stop or writer.add_scalar(
                "eval/episodic_return", np.mean(eval_returns), global_step
            )
        if finished or stop:
            break
        tick, first_step = time.perf_counter(), global_step
        lr = args.learning_rate * (1 - global_step / args.total_timesteps if args.anneal_lr else 1)
        optimizer.param_groups[0]["lr"] = lr
        for t in range(T):
            with torch.inference_mode():
                obs[t] = torch.from_numpy(next_obs)
                actions[t], _, _, values[t] = policy(obs[t])
                env_action = actions[t].cpu().numpy()
            next_obs, reward, terminated, truncated, info = envs.step(env_action)
            valid, done = ~done, terminated | truncated
            life_lost, lives = (0 < info["lives"]) & (info["lives"] < lives) & valid, info["lives"]
            terminal = terminated | life_lost if args.terminal_on_life_loss else terminated
            storage[:, t] = (
                np.sign(reward) if args.clip_reward else reward,
                terminal,
                truncated,
                valid,
            )
            global_step += int(valid.sum())
            episode += reward * valid, valid
            ended.extend(episode[:, done].T)
            episode[:, done] = 0
        obs[T] = torch.from_numpy(next_obs)

        rewards, terminateds, truncateds, valids = torch.from_numpy(storage).to(device)
        dones = torch.max(terminateds, truncateds)
        ends = terminateds if args.bootstrap_truncation else dones
        values[T] = agent.get_value(
            obs[T]
        ).detach()  # row t + 1: the true next observation, also where row t is done
        targets = n_step_returns(rewards, values, ends, dones, args.gamma)
        batch = tuple(
            tensor.flatten(0, 1) for tensor in (obs[:-1], actions, targets, valids)
        )  # (T x N, ...)
        metrics.append(update(agent, optimizer, args, batch, loss_fn).tolist())
        check(
            np.isfinite(metrics[-1]).all(),
            f"non-finite loss at step {global_step}; last good state: {run_dir}",
        )
        busy += warm * (global_step - first_step), warm * (time.perf_counter() - tick)
        warm = True  # the first iteration warms up
        bar.update(global_step - first_step)
        if global_step // 2000 == first_step // 2000 and global_step < args.total_timesteps:
            continue
        means, metrics, sps = np.mean(metrics, axis=0), [], busy[0] / max(busy[1], 1e-9)
        seen = valids.bool()
        explained_variance = 1 - float((targets - values[:-1])[seen].var() / targets[seen].var())
        keys = "policy_loss", "value_loss", "entropy", "explained_variance"
        scalars = {f"losses/{key}": value for key, value in zip(keys, (*means, explained_variance))}
        scalars |= {"charts/SPS": sps, "charts/learning_rate": lr}
        scalars |= zip(
            ("charts/episodic_return", "charts/episodic_length"),
            np.mean(ended, axis=0) if ended else (),
        )
        last100, ended = (
            (last100 + [float(episodic_return) for episodic_return, _ in ended])[-100:],
            [],
        )
        for key, value in scalars.items():
            writer.add_scalar(key, value, global_step)
        status = f"return {np.mean(last100 or [math.nan]):.1f}, SPS {sps:.0f}"
        bar.set_postfix_str(status, refresh=False)
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
    args, stop = tyro.cli(Args), []
    if args.resume:
        args = tyro.cli(Args, default=Args(**load_checkpoint(args.resume)["args"]))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stop.append(number))
    train(args, stop)
