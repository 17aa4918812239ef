"""Deep Q-learning (DQN), with double Q-learning as an option, for Atari games from pixels.

    python algos/dqn_atari.py --env-id PongNoFrameskip-v4

Papers: DQN, Mnih et al. 2015, Nature 518:529; double DQN, van Hasselt et al. 2016, arXiv:1509.06461. Deviations:
1. Adam in place of RMSprop, and its step size, the target network's and the exploration's schedule of CleanRL's file.
2. Several environments act at a time; the steps of all of them count for the schedules and for --train-frequency.
3. The replay holds each 84 x 84 frame once, in place of the 8 frames of a transition.
4. The first convolution is computed as space-to-depth and a dense convolution: the same sums, in another order.
5. --precision auto computes the hidden layers in bfloat16 where the processor has it; float32 is the published way.
6. A time limit is no terminal state: a truncated game bootstraps from the value of its true final observation.
"""

import atexit, copy, difflib, importlib.util, json, math, os, random, signal, subprocess, sys, time
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
    checkpoint_frequency: int = 500_000  # environment steps between two checkpoints
    save_replay: bool = (
        False  # save the replay with every checkpoint; without it --resume fills a new one first
    )
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
    compile: bool = False  # torch.compile for networks and loss, with CUDA graphs on a GPU
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
    num_envs: int = 8  # parallel environments
    terminal_on_life_loss: bool = True  # a lost life ends the bootstrap, though not the game
    clip_reward: bool = True  # learn from the sign of the reward
    bootstrap_truncation: bool = (
        True  # off: treat a time limit as a terminal state (a common mistake, to measure it)
    )
    total_timesteps: int = 10_000_000  # agent steps, all environments together; a step is 4 frames
    learning_rate: float = 1e-4  # step size of Adam
    buffer_size: int = (
        1_000_000  # steps that the replay holds, all environments together; 7,056 bytes each
    )
    gamma: float = 0.99  # discount factor
    tau: float = 1.0  # share of the online network in an update of the target network
    target_network_frequency: int = (
        1000  # environment steps between two updates of the target network
    )
    batch_size: int = 32  # transitions per update
    start_e: float = 1.0  # share of random actions at the start
    end_e: float = 0.01  # share of random actions at the end
    exploration_fraction: float = 0.1  # part of total_timesteps over which it falls linearly
    learning_starts: int = 80_000  # steps that the replay must hold before the first update
    train_frequency: int = 4  # environment steps between two updates
    double_dqn: bool = False  # the online network picks the action that the target network values
    loss: Literal["huber", "mse"] = (
        "huber"  # of the temporal-difference error; huber is the paper's clipped error
    )
    max_grad_norm: float = 10.0  # largest norm of the gradient
    eval_e: float = 0.05  # share of random actions in evaluations


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
    limits |= {
        "seed": 2**32 - 1,
        "eval_frequency": math.inf,
        "torch_threads": math.inf,
        "frame_skip": math.inf,
    }
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
    """The network of Mnih et al. 2015: a value for each action."""

    def __init__(self, num_actions: int, args: Args, bfloat16: bool):
        super().__init__()
        self.args, self.num_actions, self.bfloat16 = args, num_actions, bfloat16
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
        self.head = layer_init(nn.Linear(512, num_actions), std=1.0)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """(n, 4, 84, 84) uint8 to the values of all actions, (n, num_actions) float32."""
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
    """The last `rows` steps of each environment, as a ring. A row holds the newest frame of an observation and what was
    done there; stacks of frames are put together when they are drawn. The next observation of a row is that of the
    row after it; the true final one of an episode is that of the reset row."""

    def __init__(self, rows: int, num_envs: int):
        self.rows, self.num_envs, self.row, self.filled = (
            rows,
            num_envs,
            0,
            0,
        )  # the ring's next row; rows written
        self.frame = np.empty((rows, num_envs, 84, 84), np.uint8)  # takes memory as it fills
        self.action, self.age = np.zeros(
            (2, rows, num_envs), np.uint8
        )  # age: steps since the reset, 3 and more as 3
        self.reward, self.terminal = np.zeros((2, rows, num_envs), np.float32)
        self.valid = np.zeros((rows, num_envs), bool)  # not a reset row

    def add(self, obs, age, action, reward, terminal, valid) -> None:
        """A step of all environments, obs being what the action was chosen for, (num_envs, 4, 84, 84)."""
        self.frame[self.row], self.age[self.row], self.action[self.row] = obs[:, -1], age, action
        self.reward[self.row], self.terminal[self.row], self.valid[self.row] = (
            reward,
            terminal,
            valid,
        )
        self.row, self.filled = (self.row + 1) % self.rows, min(self.filled + 1, self.rows)

    def sample(self, batch_size: int):
        """obs, next_obs (batch_size, 4, 84, 84) uint8, action, reward, terminal (batch_size,), uniform with replacement
        over all steps but reset rows, the newest row, whose next frame is not here yet, and the few oldest, whose first
        frames are overwritten."""
        older, env = np.empty(
            (2, batch_size), np.int64
        )  # how many rows are older than the drawn one
        draw = np.ones(batch_size, bool)
        while count := draw.sum():
            older[draw] = np.random.randint(self.filled - 1, size=count)
            env[draw] = np.random.randint(self.num_envs, size=count)
            row = (self.row - self.filled + older) % self.rows
            draw = ~self.valid[row, env] | (self.age[row, env] > older)
        past = np.arange(-3, 2)
        frames = self.frame[
            (row[:, None] + past) % self.rows, env[:, None]
        ]  # (batch_size, 5, 84, 84)
        frames[self.age[row, env][:, None] + past < 0] = (
            0  # from before the reset: black, as in the environment
        )
        rest = (
            torch.from_numpy(kind[row, env]) for kind in (self.action, self.reward, self.terminal)
        )
        frames = torch.from_numpy(frames)
        return frames[:, :4], frames[:, 1:], *rest

    def state_dict(self) -> dict:
        kinds = ("frame", "age", "action", "reward", "terminal", "valid")
        return {"row": self.row, "filled": self.filled} | {
            kind: torch.from_numpy(getattr(self, kind)[: self.filled]) for kind in kinds
        }

    def load_state_dict(self, state: dict) -> None:
        for kind in ("frame", "age", "action", "reward", "terminal", "valid"):
            getattr(self, kind)[: state["filled"]] = state[kind].numpy()
        self.row, self.filled = state["row"], state["filled"]
        self.valid[self.row - 1] = (
            False  # the environments start anew: its next observation never comes
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
def evaluate(
    agent: Agent, envs: gym.vector.VectorEnv, obs: np.ndarray, stop=(), camera=None, videos=""
) -> list[float]:
    """Raw returns of each environment's first game, with --eval-e for epsilon. The camera,
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
            action = agent.get_action(
                torch.from_numpy(obs).to(agent.head.weight.device), agent.args.eval_e
            )
            action = action.cpu().numpy()
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
    kept = saved.get("replay") and saved["run_dir"] / saved["replay"]
    same = not kept or [
        saved["args"][key] == getattr(args, key) for key in ("num_envs", "buffer_size")
    ] == [True, True]
    check(
        same,
        f"--resume {args.resume} has a replay of other --num-envs or --buffer-size; leave both as they were",
    )
    try:
        kept = kept and torch.load(kept, weights_only=True, mmap=True)
    except Exception as error:
        check(False, f"--resume {args.resume} has lost its replay, {kept} ({type(error).__name__})")
    run_dir, global_step, N = saved["run_dir"], saved["global_step"], args.num_envs
    device = torch.device(
        args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    )
    torch.set_num_threads(args.torch_threads or torch.get_num_threads())
    random.seed(args.seed), np.random.seed(args.seed), torch.manual_seed(args.seed)
    env_seed = (
        args.seed * 10_007 % 2**30
    )  # evaluation adds 2**30: its seeds and those of training never meet
    envs, obs, info = make_envs(args, N, (env_seed + global_step) % 2**30)
    native = (
        torch.cpu.get_capabilities().get("avx512_bf16")
        if device.type == "cpu"
        else device.type == "cuda"
    )
    bfloat16 = args.precision == "bfloat16" or args.precision == "auto" and bool(native)
    agent = Agent(envs.single_action_space.n, args, bfloat16).to(
        device, memory_format=torch.channels_last
    )
    target_agent, replay = copy.deepcopy(agent), Replay(args.buffer_size // N, N)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, fused=True)
    loss_fn = (
        torch.compile(dqn_loss, mode="reduce-overhead") if args.compile else dqn_loss
    )  # CUDA graphs on a GPU
    if args.compile:
        agent.compile(mode="reduce-overhead"), target_agent.compile(mode="reduce-overhead")
    if args.resume:
        agent.load_state_dict(saved["agent"]), optimizer.load_state_dict(saved["optimizer"])
        target_agent.load_state_dict(saved["target_agent"])
        if kept:
            replay.load_state_dict(kept)
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
    episode, done, age, lives = (
        np.zeros((2, N)),
        np.zeros(N, dtype=bool),
        np.zeros(N, dtype=np.uint8),
        info["lives"],
    )
    last100, ended, metrics, busy, warm = (
        [],
        [],
        [],
        np.zeros(2),
        False,
    )  # busy: steps and seconds since the warm-up
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
            kept = f"replay-{global_step}.pt" if args.save_replay else ""
            if kept:
                write(run_dir / kept, replay.state_dict())
            write(
                run_dir / "checkpoint.pt",
                run
                | {
                    "global_step": global_step,
                    "wall_time_s": saved["wall_time_s"] + time.time() - started,
                    "agent": agent.state_dict(),
                    "target_agent": target_agent.state_dict(),
                    "replay": kept,
                    "optimizer": optimizer.state_dict(),
                    "random_states": (*random_states, torch.cuda.get_rng_state_all()),
                },
            )
            for file in run_dir.glob(
                "replay-*"
            ):  # older, and no checkpoint names it, or cut short by a kill
                _ = file.name == kept or file.unlink()
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
        share = min(global_step / max(args.exploration_fraction * args.total_timesteps, 1), 1)
        epsilon = args.start_e + share * (args.end_e - args.start_e)
        with torch.inference_mode():
            action = agent.get_action(torch.from_numpy(obs).to(device), epsilon).cpu().numpy()
        next_obs, reward, terminated, truncated, info = envs.step(action)
        valid, done = ~done, terminated | truncated
        life_lost, lives = (0 < info["lives"]) & (info["lives"] < lives) & valid, info["lives"]
        terminal = terminated | life_lost if args.terminal_on_life_loss else terminated
        terminal = terminal if args.bootstrap_truncation else terminal | truncated
        replay.add(
            obs, age, action, np.sign(reward) if args.clip_reward else reward, terminal, valid
        )
        obs, age = (
            next_obs,
            np.where(valid, np.minimum(age + 1, 3), 0),
        )  # after a reset row comes a first observation
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
        if global_step // 2000 == first_step // 2000 and global_step < args.total_timesteps:
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
