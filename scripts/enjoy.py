"""Watch a trained agent: rebuild it from a run folder and its algorithm's file, and play episodes.

    python scripts/enjoy.py runs/BipedalWalker-v3__ppo_continuous__1__1700000000
    python scripts/enjoy.py runs/CartPole-v1__dqn__1__1700000000/best.pt --video out.mp4

The first command opens a window; closing it ends the program. The second command needs no display. The agent acts as
in the evaluation of the run: it uses the deterministic (mode) action and frozen normalisation statistics; in Atari
games the algorithm's file decides. With --stochastic the agent samples its actions. This program uses Args, make_envs,
flatten, Agent and evaluate of the algorithm's file.

Episode i of an evaluation, counted from 0 as in eval_returns of summary.json, starts from the seed
(10007 * --seed of the run) % 2**30 + 2**30 + i. With --seeds it starts from the
same state; docs/runs.md says when it also has the same return.
"""

import importlib.util
import inspect
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from unittest.mock import patch

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
    episodes: int | None = None  # episodes to play; None plays 5
    video: Path | None = None  # write all episodes to this mp4 file and open no window
    render: bool = True  # off: open no window, only print the returns
    seed: int | None = None  # episode i starts from seed + i; None is 2**30, training stays below
    seeds: tuple[int, ...] = ()  # play the episodes that start from these seeds, such as 5 9 12
    algo_file: Path | None = None  # file of the algorithm; default: algos/<name in checkpoint>.py
    stochastic: bool = False  # sample the actions from the policy


def load_run(run: Path, script: Path | None = None):
    """Return the algorithm's file as a module, the run's Args and the agent's weights.

    The run folder has a copy of its script. It is never run unless `script` names it: it may not be trusted.
    """
    named = script is not None
    file = run / "checkpoint.pt" if run.is_dir() else run
    missing = f"{file} does not exist; give the folder of a run that has saved a checkpoint"
    check(file.is_file(), missing)
    try:  # weights_only=True: loading a checkpoint cannot execute code
        saved = torch.load(file, map_location="cpu", weights_only=True)
        script = script or ROOT / "algos" / f"{Path(saved['algo']).name}.py"
    except Exception as error:
        kind = type(error).__name__
        check(False, f"{file} is damaged or not a checkpoint of an algorithm in algos/ ({kind})")
    copy = file.parent / script.name
    same = copy.is_file() and script.is_file() and copy.read_bytes() == script.read_bytes()
    what_to_do = "give the algorithm's file with --algo-file"
    if copy.is_file() and not same and not named:
        command = command_with_copy(run, copy)
        what_to_do = f"if you trust the copy in the run folder, use it with: {command}"
    if not named:
        missing = f"{file} was saved by {script.name}, which algos/ does not contain"
        check(script.exists(), f"{missing}; {what_to_do}")
        if copy.is_file() and not same:
            differs = f"{script} differs from the script of this run"
            print(f"enjoy.py: {differs}; {what_to_do}", file=sys.stderr)
    check_script(script)
    try:
        module = load(script)
    except Exception as error:
        hint = ""
        if isinstance(error, ModuleNotFoundError):
            hint = "; a script that imports from its own folder must be given there, not as a copy"
        check(False, f"{script} cannot be imported ({one_line(error)[:120]}){hint}")
    try:
        args = module.Args(**saved["args"])
        if hasattr(args, "precision"):  # the precision that "auto" meant when the run was trained
            default = args.precision.replace("auto", "float32")
            args.precision = saved.get("precision", default)
        return module, args, saved["agent"]
    except Exception as error:
        wrong = f"{file} is not a checkpoint of {script} ({one_line(error)[:120]})"
        check(False, f"{wrong}; {what_to_do}")


def command_with_copy(run: Path, copy: Path) -> str:
    """The command that was typed, with --algo-file and the run folder's copy of the script."""
    typed = sys.argv
    if Path(sys.argv[0]).name != "enjoy.py":  # another program that imports this file
        typed = ["scripts/enjoy.py", str(run)]
    return shlex.join(["python", *typed, "--algo-file", str(copy)])


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

    def close(self, **kwargs):
        self.camera.close()
        return self.env.close(**kwargs)


class EpisodeRecorder(gym.vector.VectorWrapper):
    """Counts the steps of an episode and passes its frames on to a video file or a window."""

    def __init__(self, envs, writer):
        super().__init__(envs)
        self.writer = writer
        self.length = 0
        self.record_frame()

    def record_frame(self) -> None:
        if not self.writer:
            return
        frame = self.env.render()[0]
        try:
            self.writer.append_data(frame)
        except OSError as error:
            reason = one_line(error).partition(" FFMPEG")[0]
            check(False, f"the file of --video cannot be written ({reason}); is the disk full?")

    def step(self, action):
        result = self.env.step(action)
        self.length += 1
        self.record_frame()
        return result


class WindowClosed(Exception):
    """The user has closed the window."""


class Window:
    """Shows frames, (height, width, 3) uint8, at their speed. It has the method of imageio's video writer.

    Gymnasium's windows (render_mode="human") do not serve here: they ignore the user who closes them, and tasks whose
    observations are rendered frames have none.
    """

    def __init__(self, title: str, fps: float):
        import pygame

        self.title = title
        self.fps = fps
        self.clock = pygame.time.Clock()
        self.surface = None

    def append_data(self, frame) -> None:
        import pygame

        if frame.ndim == 2:  # a grey image
            frame = np.stack([frame] * 3, axis=-1)
        frame = frame[:, :, :3]  # without the transparency of an RGBA image
        # Small frames are enlarged by a whole factor, such as Atari's 160 x 210 pixels by 3
        factor = max(1, 700 // max(frame.shape[:2]))
        image = frame.repeat(factor, 0).repeat(factor, 1).swapaxes(0, 1)  # (width, height, 3)
        if self.surface is None:
            self.surface = pygame.display.set_mode(image.shape[:2])
            pygame.display.set_caption(self.title)
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                raise WindowClosed
        self.surface.blit(pygame.surfarray.make_surface(image), (0, 0))
        pygame.display.flip()
        self.clock.tick(self.fps)


@contextmanager
def window(title: str, fps: float):
    """A Window, which stays open from one episode to the next."""
    import pygame

    try:
        # Gymnasium's Box2D and classic tasks end pygame when they are closed, and with it the window
        with patch.object(pygame, "quit"), patch.object(pygame.display, "quit"):
            yield Window(title, fps)
    finally:
        pygame.quit()


@contextmanager
def video_file(video: Path, fps: float):
    """imageio's writer of a video, which gets its name when it is complete."""
    from imageio.v2 import get_writer
    from imageio_ffmpeg import count_frames_and_secs

    with TemporaryDirectory(prefix=".", dir=video.parent) as folder:
        temporary = Path(folder) / "video.mp4"
        with get_writer(temporary, fps=fps, macro_block_size=2) as writer:
            yield writer
        try:  # imageio does not tell whether the end of the file could be written
            count_frames_and_secs(str(temporary))
        except RuntimeError:
            check(False, f"--video {video} cannot be written; is the disk full?")
        os.replace(temporary, video)


def has_display() -> bool:
    """Whether X11 or Wayland has a display, on Linux."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def check_display() -> None:
    """End the program if no window can be opened."""
    advice = "use --video FILE to write a video, or --no-render to print the returns only"
    no_display = f"there is no display for a window; {advice}"
    check(sys.platform != "linux" or has_display(), no_display)
    package = importlib.util.find_spec("pygame")
    check(package, f"a window requires a package: pip install pygame-ce; or {advice}")
    import pygame

    # With OpenGL the window would take the context from MuJoCo, whose frames would then be black
    os.environ["SDL_FRAMEBUFFER_ACCELERATION"] = "0"
    try:
        pygame.display.init()
    except pygame.error:
        check(False, no_display)
    # SDL draws into memory if it cannot reach the display that DISPLAY names
    check(pygame.display.get_driver() != "offscreen", no_display)


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


def episode_starter(module, args, output: Literal["video", "window"] | None) -> Callable:
    """Return a function seed -> (envs, obs) that starts an episode, rendered for this output."""
    name = args.env_id
    atari = hasattr(module, "AtariVectorEnv")
    pixels = not atari and "backend" not in inspect.signature(module.make_envs).parameters
    in_gymnasium = name in gym.registry or ":" in name or "-v" not in name
    backend = "gymnasium"
    if not in_gymnasium and getattr(module, "envpool", None):
        backend = "envpool"
    given = [args] if atari or pixels else [args, backend]
    spec = None  # set if Gymnasium renders the environment
    mode = "rgb_array"

    def start(seed: int):
        # Every episode has a new environment, since Box2D keeps some state after an episode.
        with rendered(spec, mode) if spec else nullcontext():
            envs, obs = module.make_envs(*given, 1, seed)[:2]
        if atari and output:
            screen = {"grayscale": False, "img_height": 210, "img_width": 160, "stack_num": 1}
            envs = InColour(envs, *module.make_envs(args, 1, seed, **screen)[:2])
        return envs, obs

    try:
        if output and backend == "gymnasium" and not atari:
            # gym.make imports the module of MODULE:NAME, and completes a name without a version.
            with gym.make(name) as env:
                spec = gym.spec(env.unwrapped.spec.id)
                offered = env.unwrapped.metadata.get("render_modes", [])
            if output == "window" and "human" in offered and "rgb_array" not in offered:
                mode = "human"
        envs, _ = start(0)
        if output and backend == "gymnasium" and mode == "rgb_array":
            # If rendering fails, it fails here, before anything is written
            frame = envs.render()[0]
            if not isinstance(frame, np.ndarray):
                raise TypeError(f"render() returned {type(frame).__name__}, not an image")
        envs.close()
    except Exception as error:
        problem = "cannot be made"
        if spec:
            problem = "cannot be rendered; use --no-render to print the returns only"
            if "mujoco" in str(spec.entry_point):
                problem += ", or try MUJOCO_GL=egl or osmesa"
        check(False, f"{name} {problem} ({one_line(error)}{module_advice(name)})")
    hidden = f"{name} exists in EnvPool only, which cannot render it; use --no-render"
    check(backend == "gymnasium" or not output, hidden)
    return start


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

    def actor_mean(self, *inputs):
        action = self.agent.get_action(*inputs)
        return action[0] if isinstance(action, tuple) else action  # some return the logprob as well

    get_mode = actor_mean  # the name in the files with an intrinsic reward or several actions
    get_mean_action = actor_mean  # the name in the files with a replay buffer


def sample_actions(module, agent):
    """Return the agent or a stand-in with which evaluate() samples actions although it asks for the policy's mode."""
    if any(hasattr(agent, name) for name in ("actor_mean", "get_mode", "get_mean_action")):
        return Sampler(agent)
    always_samples = hasattr(module, "AtariVectorEnv")
    useless = f"--stochastic: {module.__file__} already samples its actions, or its Agent has no"
    check(hasattr(agent, "actor") and not always_samples, f"{useless} actor; omit the flag")

    def sample(layer, inputs, output):
        if hasattr(agent, "actor_logstd"):  # Box actions: the output is their mean
            return torch.distributions.Normal(output, agent.actor_logstd.exp()).sample()
        action = torch.distributions.Categorical(logits=output).sample()
        return torch.nn.functional.one_hot(action, output.shape[-1])

    agent.actor.register_forward_hook(sample)
    return agent


def episode_seeds(options: Options) -> list[int]:
    """The seed of each episode to play."""
    if options.seeds:
        flag = f"--seeds {' '.join(map(str, options.seeds))}"
        agree = options.seed is None and options.episodes in (None, len(options.seeds))
        check(agree, f"{flag} says which episodes to play; leave out --seed and --episodes")
        in_range = all(0 <= seed < 2**31 for seed in options.seeds)
        check(in_range, f"{flag}: each seed must be at least 0 and below 2**31")
        return list(options.seeds)
    episodes = 5 if options.episodes is None else options.episodes
    seed = 2**30 if options.seed is None else options.seed
    check(episodes > 0, f"--episodes {episodes} must be at least 1")
    seed_range = f"--seed {seed} must be at least 0 and at most 2**31 minus --episodes"
    check(0 <= seed <= 2**31 - episodes, seed_range)
    return list(range(seed, seed + episodes))


def play(module, agent, start: Callable, seeds: list[int], writer) -> list[float]:
    """Play an episode for each seed, until the window is closed; the returns of whole episodes."""
    returns = []
    for number, seed in enumerate(seeds, 1):
        envs, obs = start(seed)
        torch.manual_seed(seed)
        try:
            with closing(EpisodeRecorder(envs, writer)) as envs:
                returns.append(float(module.evaluate(agent, envs, obs)[0]))
        except WindowClosed:
            print(f"the window was closed in episode {number}")
            break
        played = f"return {returns[-1]:.2f}, length {envs.length}"
        print(f"episode {number} (seed {seed}): {played}", flush=True)
    return returns


def main(options: Options) -> None:
    video = options.video
    seeds = episode_seeds(options)
    output = None
    if video:
        output = "video"
        check_output("--video", video, ".mp4")
        package = importlib.util.find_spec("imageio_ffmpeg")
        check(package, "--video requires a package: pip install moviepy")
    elif options.render:
        output = "window"
        check_display()
    if sys.platform == "linux" and not has_display():
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # otherwise SDL prints what it misses
    warnings.simplefilter("ignore")
    module, args, weights = load_run(options.run, options.algo_file)
    sys.path.append(str(ROOT))  # for envs:NAME
    start = episode_starter(module, args, output)
    envs, obs = start(seeds[0])
    try:
        torch.manual_seed(seeds[0])
        agent = make_agent(module, args, weights, envs, obs)
    except Exception as error:
        wrong = f"the weights in {options.run} do not fit Agent in {module.__file__}"
        reason = one_line(error)[:120]
        check(False, f"{wrong} ({reason}); give the algorithm's file with --algo-file")
    if options.stochastic:
        agent = sample_actions(module, agent)
    # An Atari game has 60 frames per second, of which the environment returns every fourth.
    fps = envs.metadata.get("render_fps") or (15 if isinstance(envs, InColour) else 30)
    recording = nullcontext()
    if video:
        recording = video_file(video, fps)
    elif output and envs.render_mode == "rgb_array":
        recording = window(f"{args.env_id}, {Path(module.__file__).stem}", fps)
    envs.close()
    with recording as writer:
        returns = play(module, agent, start, seeds, writer)
    if returns:
        print(f"mean {np.mean(returns):.2f} +- {np.std(returns):.2f} over {len(returns)} episodes")


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    main(tyro.cli(Options, description=__doc__))
