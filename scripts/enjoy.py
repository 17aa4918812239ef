"""Watch a trained agent: rebuild it from a run folder and its algorithm's file, and play episodes.

    python scripts/enjoy.py runs/BipedalWalker-v3__ppo_continuous__1__1700000000 [--video out.mp4, without a display]
    python scripts/enjoy.py runs/CartPole-v1__dqn__1__1700000000/best.pt

The agent acts as in the run's evaluation: by the policy's mode, under frozen statistics, or, in an Atari game, as its
file says. Of the algorithm's file this uses Args, make_envs, flatten, Agent and evaluate; --stochastic puts the agent's
get_action in place of actor_mean or actor.
"""

import importlib.util
import inspect
import os
import signal
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock, patch

import gymnasium as gym
import numpy as np
import torch
import tyro


@dataclass
class Options:
    run: tyro.conf.Positional[Path]  # run folder, or the checkpoint.pt or best.pt in one
    episodes: int = 5  # episodes to play
    video: Path | None = None  # write all episodes to this one mp4 in place of opening a window
    render: bool = True  # off: open no window, only print the returns
    seed: int = 2**30  # episode i starts from seed + i; training stays below 2**30
    algo_file: Path | None = (
        None  # the algorithm's file, where it is not algos/<name in the checkpoint>.py
    )
    stochastic: bool = False  # sample the actions


def check(ok, message: str) -> None:
    if not ok:
        print(f"enjoy.py: {' '.join(message.split())[:400]}", file=sys.stderr)
        raise SystemExit(2)


def load(run: Path, script: Path | None):
    """The algorithm's file as a module, the run's Args, and the agent's weights."""
    file = run / "checkpoint.pt" if run.is_dir() else run
    check(
        file.is_file(),
        f"{file} does not exist; give the folder of a run that has saved a checkpoint",
    )
    try:
        checkpoint = torch.load(
            file, map_location="cpu", weights_only=True
        )  # data only: nothing in it can run code
        script = (
            script
            or Path(__file__).resolve().parent.parent
            / "algos"
            / f"{Path(checkpoint['algo']).name}.py"
        )
        check(
            script.is_file(), f"{script} does not exist; name the algorithm's file with --algo-file"
        )
        spec = importlib.util.spec_from_file_location(script.stem, script)
        module = sys.modules[script.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module, module.Args(**checkpoint["args"]), checkpoint["agent"]
    except Exception as error:
        ours = (
            f"of {script}; is another file right for --algo-file?"
            if script
            else "of an algorithm in algos/"
        )
        check(False, f"{file} is no checkpoint {ours} ({type(error).__name__}: {str(error)[:100]})")


class InColour(gym.vector.VectorWrapper):
    """An Atari emulator beside a second one, which shows colours: there the same actions play the same game."""

    render_mode = "rgb_array"

    def __init__(self, envs, camera, frame):
        super().__init__(envs)
        self.camera, self.frame = camera, frame

    def step(self, action):
        self.frame = self.camera.step(action)[0]
        return self.env.step(action)

    def render(self):
        return self.frame[0]  # (1, 1, 210, 160, 3) -> (1, 210, 160, 3)


def starter(module, args, mode: str | None):
    """A function that starts an episode of the algorithm's own environment, rendered in `mode`: seed -> envs, obs."""
    gym_make, name = gym.make, args.env_id
    backend = "gymnasium" if name in gym.registry or ":" in name or "-v" not in name else "envpool"

    def start_atari(seed: int):
        envs, obs, _ = module.make_envs(args, 1, seed)
        if mode == "rgb_array":
            screen = dict(grayscale=False, img_height=210, img_width=160, stack_num=1)
            envs = InColour(envs, *module.make_envs(args, 1, seed, **screen)[:2])
        return envs, obs

    shown, given = (
        {"render_mode": mode} if mode else {},
        [] if hasattr(module, "PixelConv2d") else [backend],
    )

    def start(seed: int):  # makes it anew: Box2D carries a little from one episode to the next
        with patch.object(gym, "make", lambda *args, **kwargs: gym_make(*args, **kwargs | shown)):
            return module.make_envs(args, *given, 1, seed)

    start = start_atari if hasattr(module, "AtariVectorEnv") else start
    try:
        envs, _ = start(0)
        _ = (
            envs.render_mode and envs.render()
        )  # what cannot be rendered fails here, before anything is written
    except Exception as error:
        way = (
            "; try MUJOCO_GL=egl or --no-render"
            if mode and "mujoco" in str(gym.registry.get(name))
            else ""
        )
        way = (
            "; take --video out.mp4" if mode == "human" and hasattr(module, "PixelConv2d") else way
        )
        check(
            False,
            f"{name} cannot be {'rendered' if mode else 'made'}{way} ({type(error).__name__}: {error})",
        )
    check(
        backend == "gymnasium" or not mode,
        f"{name} exists in EnvPool only and cannot be rendered; take --no-render",
    )
    check(
        mode != "human" or envs.render_mode,
        f"{name} cannot be shown in a window; take --video out.mp4",
    )
    return (
        start if mode != "human" else lambda seed: (envs, envs.reset(seed=seed)[0])
    )  # one window for all episodes


def play(evaluate, agent, envs, obs, writer) -> tuple[list[float], int]:
    """[return] and length of one episode, played and, with a writer, filmed through the algorithm's evaluate()."""

    def film(obs, *rest):
        if writer:
            writer.append_data(envs.render()[0])
        return obs, *rest

    film(obs)
    step = Mock(side_effect=lambda action, step=envs.step: film(*step(action)))
    close = (
        Mock() if envs.render_mode == "human" else envs.close
    )  # evaluate() would close the window
    with patch.object(envs, "step", step), patch.object(envs, "close", close):
        return evaluate(agent, envs, obs), step.call_count


def main(options: Options) -> None:
    video, render, seed, episodes = options.video, options.render, options.seed, options.episodes
    check(
        episodes > 0 <= seed <= 2**31 - episodes,
        f"--episodes {episodes} --seed {seed}: positive, and below 2**31",
    )
    check(
        not video or video.suffix == ".mp4" and video.parent.is_dir(),
        f"--video {video} is no mp4 in a folder there",
    )
    check(
        not video or importlib.util.find_spec("imageio_ffmpeg"),
        "--video needs a package: pip install moviepy",
    )
    warnings.simplefilter("ignore"), torch.manual_seed(seed)
    module, args, weights = load(options.run, options.algo_file)
    if sys.platform == "linux" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        check(video or not render, "no display for a window; take --video out.mp4, or --no-render")
        os.environ.setdefault("MUJOCO_GL", "egl")
    sys.path.append(str(Path(__file__).resolve().parent.parent))  # for envs:NAME
    start = starter(module, args, "rgb_array" if video else "human" if render else None)
    envs, obs = start(seed)
    try:
        actions = envs.single_action_space
        given = {
            "args": args,
            "action_space": actions,
            "num_actions": int(getattr(actions, "n", 0)),
        }
        given["bfloat16"] = (
            getattr(args, "precision", "") == "bfloat16"
        )  # in float32, unless the run asked for less
        given["obs_shape"] = np.shape(obs)[1:]
        given["obs_dim"] = module.flatten(obs).shape[1] if hasattr(module, "flatten") else 0
        agent = player = module.Agent(
            **{name: given[name] for name in inspect.signature(module.Agent).parameters}
        )
        agent.load_state_dict(weights)
    except Exception:
        check(
            False,
            f"the weights in {options.run} do not fit Agent in {module.__file__}; see --algo-file",
        )
    if options.stochastic:
        names = (
            () if hasattr(module, "AtariVectorEnv") else ("actor_mean", "actor")
        )  # Atari's evaluation draws anyway
        policy = next((name for name in names if hasattr(agent, name)), "")
        check(
            policy,
            f"--stochastic finds no actor_mean or actor of its own in Agent of {module.__file__}",
        )

        def draw(_, x):
            if policy == "actor_mean":
                return agent.get_action(x)[0]
            action = torch.distributions.Categorical(logits=agent.actor(x)).sample()
            return torch.nn.functional.one_hot(action, given["num_actions"])

        player = type(
            "Sampler", (), {"__getattr__": lambda _, name: getattr(agent, name), policy: draw}
        )()
    with TemporaryDirectory(prefix=".", dir=video and video.parent) as folder:
        default = (
            15 if isinstance(envs, InColour) else 30
        )  # of its 60 frames a second, it shows every fourth
        aside, fps, returns = (
            Path(folder) / "video.mp4",
            envs.metadata.get("render_fps", default),
            [],
        )
        writer = video and importlib.import_module("imageio.v2").get_writer(
            aside, fps=fps, macro_block_size=2
        )
        for i in range(episodes):
            torch.manual_seed(seed + i)
            returns[i:], length = play(module.evaluate, player, *start(seed + i), writer)
            print(f"episode {i + 1}: return {returns[i]:.2f}, length {length}", flush=True)
        if video:
            writer.close(), os.replace(aside, video)
    print(f"mean {np.mean(returns):.2f} +- {np.std(returns):.2f} over {episodes} episodes")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    main(tyro.cli(Options, description=__doc__))
