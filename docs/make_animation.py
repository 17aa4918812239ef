"""The animation on the front page: trained agents side by side, as a GIF.

    MUJOCO_GL=egl python docs/make_animation.py runs/RUN_1 runs/RUN_2 runs/RUN_3

The three runs of docs/agents.gif, each with seed 1:

    python algos/ppo_continuous.py --env-id BipedalWalker-v3
    python algos/ppo_continuous.py --env-id HalfCheetah-v5 --total-timesteps 500000
    python algos/ppo_continuous.py --env-id LunarLanderContinuous-v3 --total-timesteps 300000 \\
        --gamma 0.999 --gae-lambda 0.98

Each argument is a run folder. Its agent plays as in its evaluation, in an environment of its own. MuJoCo's frames need
a way to render without a display: MUJOCO_GL=egl or MUJOCO_GL=osmesa.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import enjoy
import tyro
from PIL import Image
from plainrl_tools.common import check

# Left, top, right and bottom of what is shown of a frame, as shares of it
AREAS = {"BipedalWalker-v3": (0, 0.28, 0.66, 0.94), "HalfCheetah-v5": (0, 0.3, 1, 0.97)}


@dataclass
class Options:
    runs: tyro.conf.Positional[tuple[Path, ...]]  # run folders, from left to right
    output: Path = Path("docs/agents.gif")  # the animation
    seconds: float = 7.0  # length
    fps: int = 20  # frames per second
    width: int = 300  # pixels of each agent
    height: int = 200  # pixels
    colors: int = 48  # of the common palette
    seed: int = 2**30 + 3  # of the episodes
    skip: float = 4.0  # seconds of each episode that are left out at the start


class Film:
    """Receives the frames of an episode, as enjoy.py's video writer does."""

    def __init__(self, frames: int):
        self.left = frames
        self.frames = []

    def append_data(self, frame) -> None:
        if self.left > 0:
            self.frames.append(Image.fromarray(frame))
            self.left -= 1


def play(run: Path, options: Options) -> list[Image.Image]:
    """Frames of one episode at options.fps; the last one stays where the episode is shorter."""
    module, args, weights = enjoy.load_run(run)
    start = enjoy.episode_starter(module, args, "video")
    envs, obs = start(options.seed)
    rate = envs.metadata["render_fps"]
    wanted = int(options.seconds * options.fps)
    skip = int(options.skip * rate)
    film = Film(skip + int(options.seconds * rate) + 1)
    args.eval_max_steps = film.left
    agent = enjoy.make_agent(module, args, weights, envs, obs)
    module.evaluate(agent, enjoy.EpisodeRecorder(envs, film), obs)
    check(film.frames, f"{run} rendered nothing")
    indices = [skip + round(i * rate / options.fps) for i in range(wanted)]
    chosen = [film.frames[min(i, len(film.frames) - 1)] for i in indices]
    return [fit(frame, args.env_id, options) for frame in chosen]


def fit(frame: Image.Image, env_id: str, options: Options) -> Image.Image:
    """The part of a frame with the agent, in the shape and size of its place."""
    left, top, right, bottom = AREAS.get(env_id, (0, 0, 1, 1))
    left, right = left * frame.width, right * frame.width
    top, bottom = top * frame.height, bottom * frame.height
    shape = options.width / options.height
    w, h = min(right - left, (bottom - top) * shape), min(bottom - top, (right - left) / shape)
    left, top = (left + right - w) / 2, (top + bottom - h) / 2
    box = left, top, left + w, top + h
    return frame.resize((options.width, options.height), Image.Resampling.BOX, box)


def main(options: Options) -> None:
    warnings.simplefilter("ignore")
    films = [play(run, options) for run in options.runs]
    size = (options.width * len(films), options.height)
    frames = []
    for parts in zip(*films):
        frame = Image.new("RGB", size)
        for i, part in enumerate(parts):
            frame.paste(part, (i * options.width, 0))
        frames.append(frame)
    # One palette for all frames, from a sheet of some of them: areas that do not change compress to nothing
    some = frames[:: max(1, len(frames) // 12)]
    sheet = Image.new("RGB", (size[0], size[1] * len(some)))
    for i, frame in enumerate(some):
        sheet.paste(frame, (0, i * size[1]))
    palette = sheet.quantize(options.colors, Image.Quantize.MEDIANCUT)
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    delay = 1000 // options.fps
    frames[0].save(
        options.output,
        save_all=True,
        append_images=frames[1:],
        duration=delay,
        loop=0,
        optimize=False,
    )
    megabytes = options.output.stat().st_size / 1e6
    print(f"{options.output}: {len(frames)} frames, {size[0]} x {size[1]}, {megabytes:.2f} MB")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
