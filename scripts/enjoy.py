"""Watch a trained agent: rebuild it from a run folder and its algorithm's file, and play episodes.

    python scripts/enjoy.py runs/BipedalWalker-v3__ppo_continuous__1__1700000000
    python scripts/enjoy.py runs/CartPole-v1__dqn__1__1700000000/best.pt --video out.mp4

The second needs no display. The agent acts as in the run's evaluation: by the policy's mode, under frozen statistics,
or, in an Atari game, as its file says. Of the algorithm's file this uses Args, make_envs, flatten, Agent and evaluate;
--stochastic puts the agent's get_action in place of actor_mean or actor.
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

# before what takes seconds to import: Ctrl-C leaves no traceback then either
from common import ROOT, check, check_output, check_script, load, one_line

# isort: split
import gymnasium as gym
import numpy as np
import torch
import tyro

# of MuJoCo: Gymnasium 1.4 lets these run out of the picture
FOLLOWED = ("HalfCheetah", "Ant", "Swimmer")


@dataclass
class Options:
    run: tyro.conf.Positional[Path]  # run folder, or the checkpoint.pt or best.pt in one
    episodes: int = 5  # episodes to play
    video: Path | None = None  # write all episodes to this one mp4 in place of opening a window
    render: bool = True  # off: open no window, only print the returns
    seed: int = 2**30  # episode i starts from seed + i; training stays below 2**30
    algo_file: Path | None = None  # default: algos/<name in the checkpoint>.py
    stochastic: bool = False  # sample the actions


def load_run(run: Path, script: Path | None = None):
    """The algorithm's file as a module, the run's Args, and the agent's weights."""
    file = run / "checkpoint.pt" if run.is_dir() else run
    missing = f"{file} does not exist; give the folder of a run that has saved a checkpoint"
    check(file.is_file(), missing)
    try:  # data only: nothing in the checkpoint can run code
        saved = torch.load(file, map_location="cpu", weights_only=True)
        script = script or ROOT / "algos" / f"{Path(saved['algo']).name}.py"
    except Exception as error:
        reason = one_line(error)[:120]
        check(False, f"{file} is no checkpoint of an algorithm in algos/ ({reason})")
    missing = f"{script} does not exist; name the algorithm's file with --algo-file"
    check(script.exists(), f"{missing} (the run folder has a copy of it)")
    check_script(script)
    copy = file.parent / script.name  # code of whoever made the folder: played when it is named
    if copy.is_file() and copy.read_bytes() != script.read_bytes():
        other = f"{script} is not what this run was made with; that is --algo-file {copy}"
        print(f"enjoy.py: {other}", file=sys.stderr)
    try:
        module = load(script)
        args = module.Args(**saved["args"])
        if hasattr(args, "precision"):  # what auto became there
            default = args.precision.replace("auto", "float32")
            args.precision = saved.get("precision", default)
        return module, args, saved["agent"]
    except Exception as error:
        ours = f"of {script}; is another file right for --algo-file?"
        check(False, f"{file} is no checkpoint {ours} ({one_line(error)[:120]})")


class InColour(gym.vector.VectorWrapper):
    """An emulator beside a second one, which shows colours: the same actions, the same game."""

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


class Stage(gym.vector.VectorWrapper):
    """Counts the steps of an episode and films them; a window stays open for the next one."""

    def __init__(self, envs, writer):
        super().__init__(envs)
        self.writer = writer
        self.length = 0
        self.film()

    def film(self) -> None:
        if self.writer:
            self.writer.append_data(self.env.render()[0])

    def step(self, action):
        result = self.env.step(action)
        self.length += 1
        self.film()
        return result

    def close(self):
        if self.env.render_mode != "human":
            self.env.close()


@contextmanager
def rendered(spec, mode: str):
    """In here the algorithm's make_envs makes this environment with a render mode, and a camera that follows: by its
    own id, whose entry in gym.registry asks for them."""
    kwargs = spec.kwargs | {"render_mode": mode}
    if spec.name in FOLLOWED and "mujoco" in str(spec.entry_point):
        kwargs["camera_name"] = "track"
    gym.registry[spec.id] = replace(spec, kwargs=kwargs)
    try:
        yield
    finally:
        gym.registry[spec.id] = spec


def starter(module, args, mode: Literal["human", "rgb_array"] | None) -> Callable:
    """seed -> envs, obs: starts an episode of the algorithm's own environment, rendered in `mode`."""
    name = args.env_id
    atari = hasattr(module, "AtariVectorEnv")
    pixels = not atari and "backend" not in inspect.signature(module.make_envs).parameters
    backend = "gymnasium" if name in gym.registry or ":" in name or "-v" not in name else "envpool"
    given = [args] if atari or pixels else [args, backend]
    spec = None  # where rendering is Gymnasium's

    def start(seed: int):  # makes it anew: Box2D carries a little from one episode to the next
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
            with gym.make(name) as env:  # finds MODULE:NAME, and the last version of a bare name
                spec = gym.spec(env.unwrapped.spec.id)
        envs, _ = start(0)
        if envs.render_mode:
            envs.render()  # what cannot be rendered fails here, before anything is written
    except (Exception, SystemExit) as error:
        done = "rendered" if mode else "made"
        if mode and "mujoco" in str(gym.registry.get(name)):
            done += "; try MUJOCO_GL=egl or osmesa"
        check(False, f"{name} cannot be {done} ({one_line(error)})")
    hidden = f"{name} exists in EnvPool only: no window and no --video; take --no-render"
    check(backend == "gymnasium" or not mode, hidden)
    if mode != "human":
        return start
    shown = envs.render_mode == "human"  # not so where the agent sees what is rendered
    check(shown, f"{name} cannot be shown in a window; take --video out.mp4")
    return start_in_window  # one window for all episodes


def make_agent(module, args, weights: dict, envs, obs):
    """The file's Agent, given what its __init__ asks for by name."""
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
    """The agent with draws from its policy in the place of their mean."""

    def __init__(self, agent):
        self.agent = agent

    def __getattr__(self, name: str):
        return getattr(self.agent, name)

    def actor_mean(self, x):
        return self.agent.get_action(x)[0]

    get_mode = actor_mean  # so the files with a bonus call it


def draw_actions(module, agent):
    """The agent, or one like it, for evaluate(), which takes the policy's mode."""
    if hasattr(agent, "actor_mean"):
        return Sampler(agent)
    draws_anyway = hasattr(module, "AtariVectorEnv")
    nothing = f"--stochastic: {module.__file__} draws anyway, or its Agent has no actor"
    check(hasattr(agent, "actor") and not draws_anyway, nothing)

    def draw(layer, inputs, logits):
        action = torch.distributions.Categorical(logits=logits).sample()
        return torch.nn.functional.one_hot(action, logits.shape[-1])

    agent.actor.register_forward_hook(draw)
    return agent


def main(options: Options) -> None:
    video, seed, episodes = options.video, options.seed, options.episodes
    limits = f"--episodes {episodes} --seed {seed}: positive, and below 2**31"
    check(episodes > 0 and 0 <= seed <= 2**31 - episodes, limits)
    if video:
        check_output("--video", video, ".mp4")
        package = importlib.util.find_spec("imageio_ffmpeg")
        check(package, "--video needs a package: pip install moviepy")
    warnings.simplefilter("ignore")
    torch.manual_seed(seed)
    module, args, weights = load_run(options.run, options.algo_file)
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform == "linux" and not screen:
        way = "no display for a window; take --video out.mp4, or --no-render"
        check(video or not options.render, way)
        os.environ.setdefault("MUJOCO_GL", "egl")
    sys.path.append(str(ROOT))  # for envs:NAME
    mode = None
    if video:
        mode = "rgb_array"
    elif options.render:
        mode = "human"
    start = starter(module, args, mode)
    try:
        agent = make_agent(module, args, weights, *start(seed))
    except Exception:
        wrong = f"the weights in {options.run} do not fit Agent in {module.__file__}"
        check(False, f"{wrong}; see --algo-file")
    if options.stochastic:
        agent = draw_actions(module, agent)
    returns = []
    with TemporaryDirectory(prefix=".", dir=video and video.parent) as folder:
        writer = None
        for i in range(episodes):
            envs, obs = start(seed + i)
            if video and not writer:
                from imageio.v2 import get_writer

                # an Atari game has 60 frames a second and shows every fourth
                fps = envs.metadata.get("render_fps", 15 if isinstance(envs, InColour) else 30)
                aside = Path(folder) / "video.mp4"
                writer = get_writer(aside, fps=fps, macro_block_size=2)
            torch.manual_seed(seed + i)
            stage = Stage(envs, writer)
            returns.append(float(module.evaluate(agent, stage, obs)[0]))
            print(f"episode {i + 1}: return {returns[-1]:.2f}, length {stage.length}", flush=True)
        if video:
            writer.close()
            os.replace(aside, video)
    print(f"mean {np.mean(returns):.2f} +- {np.std(returns):.2f} over {episodes} episodes")


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    main(tyro.cli(Options, description=__doc__))
