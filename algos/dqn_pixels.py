"""Deep Q-learning (DQN), with double Q-learning as an option, from pixels.

    python algos/dqn_pixels.py --env-id CartPole-v1

Papers: DQN, Mnih et al. 2015, Nature 518:529; double DQN, van Hasselt et al. 2016, arXiv:1509.06461. Takes any
Gymnasium environment: stacks of pictures (frames, height, width) as they are; pictures in colour, and of all others
what they render, as the last four in grey, 84 x 84. What differs from dqn.py: pictures, a convolutional network, and a
replay of bytes. Atari has its own file, dqn_atari.py, whose replay takes a quarter of the memory. Deviations:
1. Adam in place of RMSprop, and schedules for problems that take minutes.
2. Several environments; the steps between updates are counted over all of them.
3. The first convolution is computed as space-to-depth and a dense convolution: the same sums, in another order.
4. --precision auto computes the hidden layers in bfloat16 where the processor has it.
5. A time limit is no terminal state: a truncated episode bootstraps from the value of its true final observation.
6. The error is squared, not clipped, and the best weights are kept: see dqn.py.
"""

import atexit, copy, difflib, importlib.util, json, math, os, random, signal, subprocess, sys, tempfile, time, warnings
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
    checkpoint_frequency: int = 50_000  # environment steps between two checkpoints
    resume: str = ""  # run folder or checkpoint.pt to continue with a new replay; flags given override the saved ones
    eval_frequency: int = (
        10_000  # environment steps between two evaluations; 0 evaluates at the end only
    )
    eval_episodes: int = (
        30  # episodes of an evaluation, one in each of as many parallel environments
    )
    capture_video: bool = (
        False  # record the first 3 episodes of every evaluation as mp4 in the run folder
    )
    track: bool = False  # send the run to Weights & Biases as well, project plainrl
    compile: bool = False  # torch.compile for networks and loss, with CUDA graphs on a GPU
    torch_threads: int = 0  # CPU threads of PyTorch; 0 leaves its own choice, one for each core
    precision: Literal["auto", "float32", "bfloat16"] = (
        "auto"  # of the hidden layers; auto: bfloat16 if it is native
    )
    env_id: str = "CartPole-v1"  # a Gymnasium id with Discrete actions, whose observations or renderings are pictures
    num_envs: int = 8  # parallel environments
    bootstrap_truncation: bool = (
        True  # off: treat a time limit as a terminal state (a common mistake, to measure it)
    )
    total_timesteps: int = 100_000  # environment steps, all environments together
    learning_rate: float = 2.5e-4  # step size of Adam
    buffer_size: int = 50_000  # steps that the replay holds, all environments together; 28 KB each with 4 x 84 x 84
    gamma: float = 0.99  # discount factor
    tau: float = 1.0  # share of the online network in an update of the target network
    target_network_frequency: int = (
        500  # environment steps between two updates of the target network
    )
    batch_size: int = 64  # transitions per update
    start_e: float = 1.0  # share of random actions at the start
    end_e: float = 0.05  # share of random actions at the end
    exploration_fraction: float = 0.2  # part of total_timesteps over which it falls linearly
    learning_starts: int = 1000  # steps that the replay must hold before the first update
    train_frequency: int = 8  # environment steps between two updates
    double_dqn: bool = False  # the online network picks the action that the target network values
    loss: Literal["huber", "mse"] = (
        "mse"  # of the temporal-difference error; huber is the paper's clipped error
    )
    max_grad_norm: float = 10.0  # largest norm of the gradient
    eval_e: float = 0.0  # share of random actions in evaluations


def check(ok, message: str, status: int = 2) -> None:  # one line and this exit status, unless ok
    if not ok:
        print(f"{Path(__file__).name}: {message}", file=sys.stderr)
        raise SystemExit(status)


def check_args(args: Args) -> None:
    """One line and exit status 2, with nothing created, on bad input."""
    counts = (
        "total_timesteps num_envs batch_size train_frequency target_network_frequency eval_episodes"
    )
    for name in (
        *counts.split(),
        "checkpoint_frequency",
        "learning_rate",
        "max_grad_norm",
        "learning_starts",
    ):
        check(
            getattr(args, name) > 0,
            f"--{name.replace('_', '-')} must be positive, not {getattr(args, name)}",
        )
    limits = dict.fromkeys(
        ("start_e", "end_e", "eval_e", "exploration_fraction", "tau", "gamma"), 1
    )
    limits |= {"seed": 2**32 - 1, "eval_frequency": math.inf, "torch_threads": math.inf}
    for name, most in limits.items():
        check(
            0 <= getattr(args, name) <= most,
            f"--{name.replace('_', '-')} {getattr(args, name)} not in [0, {most}]",
        )
    check(
        args.buffer_size >= 8 * args.num_envs,
        f"--buffer-size must be at least 8 x num_envs = {8 * args.num_envs}",
    )
    few, many = (
        3 * args.num_envs,
        args.buffer_size - args.buffer_size % args.num_envs,
    )  # the newest row cannot be drawn
    check(
        few <= args.learning_starts <= many,
        f"--learning-starts {args.learning_starts} must lie in [{few}, {many}]: "
        "at least 3 steps of each environment, at most --buffer-size",
    )
    check(
        args.learning_starts < args.total_timesteps,
        "--learning-starts must be less than --total-timesteps",
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
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
            envs, obs = make_envs(
                args, num_envs=1, seed=0, video_dir=folder if args.capture_video else ""
            )
            envs.close()
    except Exception as error:
        error = " ".join(f"{type(error).__name__} {error}".split())
        near = difflib.get_close_matches(
            args.env_id, () if args.env_id in gym.registry else gym.registry, cutoff=0.3
        )
        way = (
            "; MUJOCO_GL=egl draws without a display"
            if "GL" in error
            else f"; nearest: {near}"
            if near
            else ""
        )
        way = (
            "; PYTHONPATH must name the folder of its module" if "ModuleNotFound" in error else way
        )
        check(
            False,
            f"--env-id {args.env_id} cannot be made or neither shows nor renders pictures: {error}{way}",
        )
    actions, (_, _, *size), memory = (
        envs.single_action_space,
        obs.shape,
        obs.nbytes * args.buffer_size / 2**30,
    )
    fits = isinstance(actions, gym.spaces.Discrete) and actions.start == 0
    check(fits, f"--env-id {args.env_id} has {actions} actions; this file: Discrete from 0")
    fits = all(side >= 36 and side % 4 == 0 for side in size)
    check(
        fits,
        f"--env-id {args.env_id} shows {obs.shape[1:]}; this file: frames, height, width, 36 or more, whole 4s",
    )
    check(
        memory < 8,
        f"--buffer-size {args.buffer_size} of these pictures takes {memory:.0f} GiB; take less",
    )


def make_envs(args: Args, num_envs: int, seed: int, video_dir: str | Path = ""):
    """Vector environment seeded seed, seed + 1, ... and its first observation, (num_envs, frames, height, width) uint8,
    in NEXT_STEP mode: the step after a `done` is a reset row, whose action is ignored. With video_dir the first 3 film
    their first episode."""
    with gym.make(args.env_id) as env:
        box = env.observation_space
        picture = isinstance(box, gym.spaces.Box) and box.dtype == np.uint8 and len(box.shape) == 3

    def make_env(index: int) -> gym.Env:
        film = video_dir and index < 3
        env = gym.make(args.env_id, **({"render_mode": "rgb_array"} if film or not picture else {}))
        env = (
            env if picture else gym.wrappers.AddRenderObservation(env)
        )  # (height, width, 3); resets it
        env = (
            gym.wrappers.RecordVideo(env, f"{video_dir}/env-{index}", lambda n: n == 0)
            if film
            else env
        )
        if picture and box.shape[-1] != 3:
            return env
        env = gym.wrappers.ResizeObservation(gym.wrappers.GrayscaleObservation(env), (84, 84))
        return gym.wrappers.FrameStackObservation(
            env, 4
        )  # newest last; after a reset four times the first

    envs = gym.vector.SyncVectorEnv([lambda i=i: make_env(i) for i in range(num_envs)])
    assert envs.metadata["autoreset_mode"] == gym.vector.AutoresetMode.NEXT_STEP
    return envs, envs.reset(seed=seed)[0]


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
    """The network of Mnih et al. 2015: a value for each action."""

    def __init__(
        self, obs_shape: tuple[int, int, int], num_actions: int, args: Args, bfloat16: bool
    ):
        super().__init__()
        self.args, self.num_actions, self.bfloat16 = args, num_actions, bfloat16
        frames, height, width = (
            obs_shape[0],
            *((side // 4 - 5) // 2 - 1 for side in obs_shape[1:]),
        )  # convolved
        self.network = nn.Sequential(
            layer_init(PixelConv2d(frames, 32, 8, stride=4)),
            nn.ReLU(),
            layer_init(nn.Conv2d(32, 64, 4, stride=2)),
            nn.ReLU(),
            layer_init(nn.Conv2d(64, 64, 3)),
            nn.ReLU(),
            Flatten(),
            layer_init(nn.Linear(64 * height * width, 512)),
            nn.ReLU(),
        )
        self.head = layer_init(nn.Linear(512, num_actions), std=1.0)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """(n, frames, height, width) uint8 to the values of all actions, (n, num_actions) float32."""
        with torch.autocast(obs.device.type, torch.bfloat16, enabled=self.bfloat16):
            features = self.network(obs)
        return self.head(features.float())

    def get_action(self, obs: torch.Tensor, epsilon: float) -> torch.Tensor:
        """The best action (n,) or, with probability epsilon in each row for itself, any action."""
        action = torch.randint(self.num_actions, (len(obs),), device=obs.device)
        if epsilon < 1:
            explores = torch.rand(len(obs), device=obs.device) < epsilon
            action = torch.where(explores, action, self(obs).argmax(-1))
        return action


class Replay:
    """The last `rows` steps of each environment, as a ring. A row holds an observation and what was done there. The
    next observation of a row is that of the row after it; the true final one of an episode is that of the reset row."""

    def __init__(self, rows: int, num_envs: int, obs_shape: tuple[int, int, int]):
        self.rows, self.num_envs, self.row, self.filled = (
            rows,
            num_envs,
            0,
            0,
        )  # the ring's next row; rows written
        self.obs, self.action = (
            np.empty((rows, num_envs, *obs_shape), np.uint8),
            np.zeros((rows, num_envs), np.int64),
        )
        self.reward, self.terminal = np.zeros((2, rows, num_envs), np.float32)
        self.valid = np.zeros((rows, num_envs), bool)  # not a reset row

    def add(self, obs, action, reward, terminal, valid) -> None:
        """A step of all environments: obs (num_envs, *obs_shape), action, reward, terminal, valid (num_envs,)."""
        self.obs[self.row], self.action[self.row], self.reward[self.row] = obs, action, reward
        self.terminal[self.row], self.valid[self.row] = terminal, valid
        self.row, self.filled = (self.row + 1) % self.rows, min(self.filled + 1, self.rows)

    def sample(self, batch_size: int):
        """obs, next_obs (batch_size, *obs_shape), action, reward, terminal (batch_size,), uniform with replacement
        over all steps but reset rows and the newest row, whose next observation is not here yet."""
        row, env = np.empty((2, batch_size), np.int64)
        draw = np.ones(batch_size, bool)
        while count := draw.sum():
            row[draw] = (
                self.row - self.filled + np.random.randint(self.filled - 1, size=count)
            ) % self.rows
            env[draw] = np.random.randint(self.num_envs, size=count)
            draw = ~self.valid[row, env]
        rest = (kind[row, env] for kind in (self.action, self.reward, self.terminal))
        return tuple(
            map(torch.from_numpy, (self.obs[row, env], self.obs[(row + 1) % self.rows, env], *rest))
        )


def td_target(reward, terminal, next_values, next_chooser, gamma: float) -> torch.Tensor:
    """Targets (n,): the reward plus the discounted value, from next_values (n, num_actions), of the action that is best
    in next_chooser: the same values in DQN, the online network's in double DQN (arXiv:1509.06461 equation 4)."""
    best = next_chooser.argmax(-1, keepdim=True)
    return reward + gamma * next_values.gather(-1, best).squeeze(-1) * (1 - terminal)


def dqn_loss(agent: Agent, args: Args, obs, next_obs, action, reward, terminal, next_values):
    """Loss of a batch, tensors (batch_size, ...), and [td_loss, q_values]; next_values are the target network's."""
    with torch.no_grad():
        next_chooser = agent(next_obs) if args.double_dqn else next_values
        target = td_target(reward, terminal, next_values, next_chooser, args.gamma)
    value = agent(obs).gather(-1, action.long().unsqueeze(-1)).squeeze(-1)
    assert value.shape == target.shape == reward.shape == terminal.shape
    loss = (nn.functional.smooth_l1_loss if args.loss == "huber" else nn.functional.mse_loss)(
        value, target
    )
    return loss, torch.stack([loss, value.mean()]).detach()


def update(
    agent: Agent, target_agent: Agent, optimizer, args: Args, batch: tuple, loss_fn=dqn_loss
) -> torch.Tensor:
    """A step for each batch_size rows of `batch`, dqn_loss's tensors but the last; the mean of its metrics, (2,).
    The target network changes in none of these steps, so it values the next observations of all of them at once."""
    with torch.no_grad():
        next_values = target_agent(batch[1]).clone()
    metrics = []
    for minibatch in zip(*(tensor.split(args.batch_size) for tensor in (*batch, next_values))):
        loss, mb_metrics = loss_fn(agent, args, *minibatch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], args.max_grad_norm)
        optimizer.step()
        metrics.append(mb_metrics.clone())
    return torch.stack(metrics).mean(0)


@torch.inference_mode()
def evaluate(agent: Agent, envs: gym.vector.VectorEnv, obs: np.ndarray, stop=()) -> list[float]:
    """Raw returns of each environment's first episode, played with --eval-e for epsilon."""
    returns, running = np.zeros(envs.num_envs), np.ones(envs.num_envs, dtype=bool)
    with torch.random.fork_rng():  # training goes on with the draws it would have had
        while running.any() and not stop:
            obs = torch.from_numpy(obs).to(agent.head.weight.device)
            obs, reward, terminated, truncated, _ = envs.step(
                agent.get_action(obs, agent.args.eval_e).cpu().numpy()
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
    run_dir, global_step, N = saved["run_dir"], saved["global_step"], args.num_envs
    device = torch.device(
        args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    )
    torch.set_num_threads(args.torch_threads or torch.get_num_threads())
    random.seed(args.seed), np.random.seed(args.seed), torch.manual_seed(args.seed)
    env_seed = (
        args.seed * 10_007 % 2**30
    )  # evaluation adds 2**30: its seeds and those of training never meet
    envs, obs = make_envs(args, N, (env_seed + global_step) % 2**30)
    native = (
        torch.cpu.get_capabilities().get("avx512_bf16")
        if device.type == "cpu"
        else device.type == "cuda"
    )
    bfloat16 = args.precision == "bfloat16" or args.precision == "auto" and bool(native)
    shape, num_actions = obs.shape[1:], envs.single_action_space.n
    agent = Agent(shape, num_actions, args, bfloat16).to(device, memory_format=torch.channels_last)
    target_agent, replay = copy.deepcopy(agent), Replay(args.buffer_size // N, N, shape)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, fused=True)
    loss_fn = (
        torch.compile(dqn_loss, mode="reduce-overhead") if args.compile else dqn_loss
    )  # CUDA graphs on a GPU
    if args.compile:
        agent.compile(mode="reduce-overhead"), target_agent.compile(mode="reduce-overhead")
    if args.resume:
        agent.load_state_dict(saved["agent"]), optimizer.load_state_dict(saved["optimizer"])
        target_agent.load_state_dict(saved["target_agent"])
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
        name: str(sys.modules[name].__version__) for name in ("torch", "numpy", "gymnasium")
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
    episode, done, last100, ended, metrics = np.zeros((2, N)), np.zeros(N, dtype=bool), [], [], []
    busy, warm, best = (
        np.zeros(2),
        False,
        {"eval_return_mean": -math.inf},
    )  # busy: steps and seconds since the warm-up
    if args.resume and (run_dir / "best.pt").exists():
        best = torch.load(run_dir / "best.pt", map_location=device, weights_only=True)
        if any(
            best["args"][key] != getattr(args, key) for key in ("seed", "eval_e", "eval_episodes")
        ):
            best["eval_return_mean"] = -math.inf  # of other episodes: no bar for those to come
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
                    "target_agent": target_agent.state_dict(),
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
                agent, *make_envs(args, args.eval_episodes, eval_seed, film), stop
            )
            check(
                np.isfinite(eval_returns).all(),
                f"non-finite evaluation at step {global_step}; see {run_dir}",
            )
            _ = stop or writer.add_scalar(
                "eval/episodic_return", np.mean(eval_returns), global_step
            )
            if not stop and np.mean(eval_returns) > best["eval_return_mean"]:
                best = {
                    "agent": copy.deepcopy(agent.state_dict()),
                    "eval_return_mean": float(np.mean(eval_returns)),
                }
                write(run_dir / "best.pt", run | best | {"global_step": global_step})
        if (
            finished and not stop
        ):  # the best one's score was the reason to choose it: other episodes judge it
            agent.load_state_dict(best["agent"])
            best_envs = make_envs(args, args.eval_episodes, eval_seed + args.eval_episodes)
            best_returns = evaluate(agent, *best_envs, stop)
        if finished or stop:
            break
        tick, first_step = time.perf_counter(), global_step
        share = min(global_step / max(args.exploration_fraction * args.total_timesteps, 1), 1)
        epsilon = args.start_e + share * (args.end_e - args.start_e)
        with torch.inference_mode():
            action = agent.get_action(torch.from_numpy(obs).to(device), epsilon).cpu().numpy()
        next_obs, reward, terminated, truncated, _ = envs.step(action)
        valid, done = ~done, terminated | truncated
        check(
            np.isfinite(reward).all(),
            f"non-finite reward after step {global_step}; last good state: {run_dir}",
        )
        replay.add(obs, action, reward, terminated if args.bootstrap_truncation else done, valid)
        obs = next_obs
        global_step += int(valid.sum())
        episode += reward * valid, valid
        ended.extend(episode[:, done].T)
        episode[:, done] = 0

        learns = replay.filled * N >= args.learning_starts
        updates = learns * (
            global_step // args.train_frequency - first_step // args.train_frequency
        )
        if updates:
            batch = tuple(tensor.to(device) for tensor in replay.sample(updates * args.batch_size))
            metrics.append(update(agent, target_agent, optimizer, args, batch, loss_fn).tolist())
            check(
                np.isfinite(metrics[-1]).all(),
                f"non-finite loss at step {global_step}; last good state: {run_dir}",
            )
        if (
            learns
            and global_step // args.target_network_frequency
            > first_step // args.target_network_frequency
        ):
            with torch.no_grad():
                for target, online in zip(target_agent.parameters(), agent.parameters()):
                    target.lerp_(online, args.tau)
        busy += warm * (global_step - first_step), warm * (time.perf_counter() - tick)
        warm = learns  # the steps before the first update and the one with it warm up
        bar.update(global_step - first_step)
        if global_step // 1000 == first_step // 1000 and global_step < args.total_timesteps:
            continue
        sps = busy[0] / max(busy[1], 1e-9)
        scalars = {"charts/SPS": sps, "charts/epsilon": epsilon}
        if metrics:
            scalars |= zip(("losses/td_loss", "losses/q_values"), np.mean(metrics, axis=0))
        scalars |= zip(
            ("charts/episodic_return", "charts/episodic_length"),
            np.mean(ended, axis=0) if ended else (),
        )
        last100 = (last100 + [float(episodic_return) for episodic_return, _ in ended])[-100:]
        metrics, ended = [], []
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
        "best_return_mean": float(np.mean(best_returns)),
        "best_returns": best_returns,
    }
    write(run_dir / "summary.json", summary)
    print(
        f"{run_dir}: evaluation {mean:.1f} +- {std:.1f} over {args.eval_episodes} episodes, "
        f"of the best model {summary['best_return_mean']:.1f}"
    )
    return summary


if __name__ == "__main__":
    args, stop = tyro.cli(Args), []
    if args.resume:
        args = tyro.cli(Args, default=Args(**load_checkpoint(args.resume)["args"]))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stop.append(number))
    train(args, stop)
