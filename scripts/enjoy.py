"""Watch a trained agent: rebuild it from a run folder and its algorithm's file, and play episodes.

    python scripts/enjoy.py runs/BipedalWalker-v3__ppo_continuous__1__1700000000
    python scripts/enjoy.py runs/CartPole-v1__dqn__1__1700000000/best.pt --video out.mp4

The second command needs no display. The agent acts as in the evaluation of the run: it uses the deterministic (mode)
action and frozen normalisation statistics; in Atari games the algorithm's file decides. This program uses Args,
make_envs, flatten, Agent and evaluate of the algorithm's file. With --stochastic the agent samples its actions.
"""

import importlib.util
import inspect
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

# Imported before the slow packages below, so that Ctrl-C during their import leaves no traceback.
from plainrl_tools.common import (
    ROOT,
    check,
    check_output,
    check_script,
    load,
    module_advice,
    one_line,
)

# isort: split
import gymnasium as gym
import numpy as np
import torch
import tyro

# The default camera of these MuJoCo tasks in Gymnasium 1.4 does not follow the robot, which leaves the frame.
FOLLOWED = ("HalfCheetah", "Ant", "Swimmer")


@dataclass
class Options:
    run: tyro.conf.Positional[Path]  # run folder, or a .pt file in one, such as best.pt
    episodes: int = 5  # episodes to play
    video: Path | None = None  # write all episodes to this mp4 file and open no window
    render: bool = True  # off: open no window, only print the returns
    seed: int = 2**30  # episode i starts from seed + i; training stays below 2**30
    algo_file: Path | None = None  # file of the algorithm; default: algos/<name in checkpoint>.py
    stochastic: bool = False  # sample the actions from the policy


def load_run(run: Path, script: Path | None = None):
    """Return the algorithm's file as a module, the run's Args and the agent's weights."""
    file = run / "checkpoint.pt" if run.is_dir() else run
    missing = f"{file} does not exist; give the folder of a run that has saved a checkpoint"
    check(file.is_file(), missing)
    try:  # weights_only=True: loading a checkpoint cannot execute code
        saved = torch.load(file, map_location="cpu", weights_only=True)
        script = script or ROOT / "algos" / f"{Path(saved['algo']).name}.py"
    except Exception as error:
        kind = type(error).__name__
        check(False, f"{file} is damaged or not a checkpoint of an algorithm in algos/ ({kind})")
    missing = f"{script} does not exist; give the algorithm's file with --algo-file"
    check(script.exists(), f"{missing} (the run folder has a copy of it)")
    check_script(script)
    copy = file.parent / script.name  # never run unless --algo-file names it: it may not be trusted
    if copy.is_file() and copy.read_bytes() != script.read_bytes():
        changed = f"{script} has changed since this run; use --algo-file {copy} for its version"
        print(f"enjoy.py: {changed}", file=sys.stderr)
    try:
        module = load(script)
        args = module.Args(**saved["args"])
        if hasattr(args, "precision"):  # the precision that "auto" meant when the run was trained
            default = args.precision.replace("auto", "float32")
            args.precision = saved.get("precision", default)
        return module, args, saved["agent"]
    except Exception as error:
        wrong = f"{file} is not a checkpoint of {script}; give its file with --algo-file"
        check(False, f"{wrong} ({one_line(error)[:120]})")


class InColour(gym.vector.VectorWrapper):
    """Renders an Atari game in colour with a second emulator, which plays the same actions in the same game."""

    render_mode = "rgb_array"

    def __init__(self, envs, camera, frame):
        super().__init__(envs)
        self.camera = camera
        self.frame = frame

    def step(self, action):
        self.frame = self.camera.step(action)[0]
        return self.env.step(action)

    def render(self):
        return self.frame[0]  # (1, 1, 210, 160, 3) -> (1, 210, 160, 3)


class EpisodeRecorder(gym.vector.VectorWrapper):
    """Counts the steps of an episode and records them on video. A window stays open for the next episode."""

    def __init__(self, envs, writer):
        super().__init__(envs)
        self.writer = writer
        self.length = 0
        self.record_frame()

    def record_frame(self) -> None:
        if self.writer:
            self.writer.append_data(self.env.render()[0])

    def step(self, action):
        result = self.env.step(action)
        self.length += 1
        self.record_frame()
        return result

    def close(self):
        if self.env.render_mode != "human":
            self.env.close()


@contextmanager
def rendered(spec, mode: str):
    """Within this context the algorithm's make_envs renders this environment, with a camera that follows the robot.

    The entry of the id in gym.registry is replaced by one with these arguments, and restored at the end.
    """
    kwargs = spec.kwargs | {"render_mode": mode}
    if spec.name in FOLLOWED and "mujoco" in str(spec.entry_point):
        kwargs["camera_name"] = "track"
    gym.registry[spec.id] = replace(spec, kwargs=kwargs)
    try:
        yield
    finally:
        gym.registry[spec.id] = spec


def episode_starter(module, args, mode: Literal["human", "rgb_array"] | None) -> Callable:
    """Return a function seed -> (envs, obs) that starts an episode, rendered in `mode`."""
    name = args.env_id
    atari = hasattr(module, "AtariVectorEnv")
    pixels = not atari and "backend" not in inspect.signature(module.make_envs).parameters
    backend = "gymnasium" if name in gym.registry or ":" in name or "-v" not in name else "envpool"
    given = [args] if atari or pixels else [args, backend]
    spec = None  # set if Gymnasium renders the environment

    def start(seed: int):
        # Every episode has a new environment, since Box2D keeps some state after an episode.
        with rendered(spec, mode) if spec else nullcontext():
            envs, obs = module.make_envs(*given, 1, seed)[:2]
        if atari and mode == "rgb_array":
            screen = {"grayscale": False, "img_height": 210, "img_width": 160, "stack_num": 1}
            envs = InColour(envs, *module.make_envs(args, 1, seed, **screen)[:2])
        return envs, obs

    def start_in_window(seed: int):
        obs, _ = envs.reset(seed=seed)
        return envs, module.flatten(obs) if hasattr(module, "flatten") else obs

    try:
        if mode and backend == "gymnasium" and not atari:
            # gym.make imports the module of MODULE:NAME, and completes a name without a version.
            with gym.make(name) as env:
                spec = gym.spec(env.unwrapped.spec.id)
        envs, _ = start(0)
        if envs.render_mode:
            envs.render()  # if rendering fails, it fails here, before anything is written
    except (Exception, SystemExit) as error:
        done = "rendered" if mode else "made"
        if mode and "mujoco" in str(gym.registry.get(name)):
            done += "; try MUJOCO_GL=egl or osmesa"
        check(False, f"{name} cannot be {done} ({one_line(error)}{module_advice(name)})")
    hidden = f"{name} exists in EnvPool only, which cannot render it; use --no-render"
    check(backend == "gymnasium" or not mode, hidden)
    if mode != "human":
        return start
    shown = envs.render_mode == "human"  # false if the agent's observations are the rendered frames
    check(shown, f"{name} cannot be shown in a window; use --video out.mp4")
    return start_in_window  # one window for all episodes


def make_agent(module, args, weights: dict, envs, obs):
    """Make the file's Agent with these weights. The parameter names of its __init__ decide which arguments it gets."""
    actions = envs.single_action_space
    given = {"args": args, "action_space": actions, "num_actions": int(getattr(actions, "n", 0))}
    given |= {"obs_dim": obs.shape[-1], "obs_shape": obs.shape[1:]}
    given["precision"] = getattr(args, "precision", "float32")
    given["bfloat16"] = given["precision"] == "bfloat16"
    names = inspect.signature(module.Agent).parameters
    agent = module.Agent(**{name: given[name] for name in names})
    agent.load_state_dict(weights)
    return agent


class Sampler:
    """The agent, but with actions sampled from its policy where evaluate() asks for the mean action."""

    def __init__(self, agent):
        self.agent = agent

    def __getattr__(self, name: str):
        return getattr(self.agent, name)

    def actor_mean(self, x):
        action = self.agent.get_action(x)
        return action[0] if isinstance(action, tuple) else action  # some return the logprob as well

    get_mode = actor_mean  # the name in the files with an intrinsic reward
    get_mean_action = actor_mean  # the name in the files with a replay buffer


def sample_actions(module, agent):
    """Return the agent or a stand-in with which evaluate() samples actions although it asks for the policy's mode."""
    if hasattr(agent, "actor_mean") or hasattr(agent, "get_mean_action"):
        return Sampler(agent)
    always_samples = hasattr(module, "AtariVectorEnv")
    useless = f"--stochastic: {module.__file__} already samples its actions, or its Agent has no"
    check(hasattr(agent, "actor") and not always_samples, f"{useless} actor; omit the flag")

    def sample(layer, inputs, logits):
        action = torch.distributions.Categorical(logits=logits).sample()
        return torch.nn.functional.one_hot(action, logits.shape[-1])

    agent.actor.register_forward_hook(sample)
    return agent


def main(options: Options) -> None:
    video, seed, episodes = options.video, options.seed, options.episodes
    check(episodes > 0, f"--episodes {episodes} must be at least 1")
    seed_range = f"--seed {seed} must be at least 0 and below 2**31 minus --episodes"
    check(0 <= seed <= 2**31 - episodes, seed_range)
    if video:
        check_output("--video", video, ".mp4")
        package = importlib.util.find_spec("imageio_ffmpeg")
        check(package, "--video requires a package: pip install moviepy")
    warnings.simplefilter("ignore")
    torch.manual_seed(seed)
    module, args, weights = load_run(options.run, options.algo_file)
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform == "linux" and not screen:
        no_display = "there is no display for a window; use --video out.mp4 or --no-render"
        check(video or not options.render, no_display)
        os.environ.setdefault("MUJOCO_GL", "egl")
    sys.path.append(str(ROOT))  # for envs:NAME
    mode = None
    if video:
        mode = "rgb_array"
    elif options.render:
        mode = "human"
    start = episode_starter(module, args, mode)
    try:
        agent = make_agent(module, args, weights, *start(seed))
    except Exception:
        wrong = f"the weights in {options.run} do not fit Agent in {module.__file__}"
        check(False, f"{wrong}; give the algorithm's file with --algo-file")
    if options.stochastic:
        agent = sample_actions(module, agent)
    returns = []
    with TemporaryDirectory(prefix=".", dir=video and video.parent) as folder:
        writer = None
        for i in range(episodes):
            envs, obs = start(seed + i)
            if video and not writer:
                from imageio.v2 import get_writer

                # An Atari game has 60 frames per second, of which the environment returns every fourth.
                fps = envs.metadata.get("render_fps", 15 if isinstance(envs, InColour) else 30)
                temporary = Path(folder) / "video.mp4"
                writer = get_writer(temporary, fps=fps, macro_block_size=2)
            torch.manual_seed(seed + i)
            envs = EpisodeRecorder(envs, writer)
            returns.append(float(module.evaluate(agent, envs, obs)[0]))
            print(f"episode {i + 1}: return {returns[-1]:.2f}, length {envs.length}", flush=True)
        if video:
            writer.close()
            os.replace(temporary, video)
    print(f"mean {np.mean(returns):.2f} +- {np.std(returns):.2f} over {episodes} episodes")


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    main(tyro.cli(Options, description=__doc__))
