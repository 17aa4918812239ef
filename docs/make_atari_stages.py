"""Draw an Atari frame at every stage of its preprocessing, as make_envs() of algos/ppo_atari.py produces it.

    python docs/make_atari_stages.py docs/atari_stages.png --env-id SpaceInvadersNoFrameskip-v4

The stages are the same environment with parts of its preprocessing switched off, all played with the same seed and the
same actions. The figure shows the step at which the maximum over two frames differs most from the last frame alone.
"""

from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import tyro
from plainrl_tools.common import ROOT, check, check_env, check_least, check_output, load, writing

SCREEN = dict(img_height=210, img_width=160, stack_num=1)
STAGES = {  # title: what differs from the preprocessing of training
    "screen, 210 x 160,\nlast of 4 frames": dict(grayscale=False, maxpool=False) | SCREEN,
    "grey": dict(maxpool=False) | SCREEN,
    "maximum of the\nlast 2 frames": SCREEN,
    "84 x 84": dict(stack_num=1),
    "stack of 4": {},
}


@dataclass
class Options:
    output: tyro.conf.Positional[Path]  # file of the figure: .png, .pdf or .svg
    env_id: str = "SpaceInvadersNoFrameskip-v4"  # an Atari id
    seed: int = 1  # of the game and of the random actions
    steps: int = 200  # random steps, of which the figure shows one


def play(algo, options: Options, view: dict) -> np.ndarray:
    """Observations of the first environment, (steps, stack, height, width[, 3])."""
    envs, *_ = algo.make_envs(algo.Args(env_id=options.env_id), 1, options.seed, **view)
    actions = np.random.default_rng(options.seed).integers(
        envs.single_action_space.n, size=(options.steps, 1)
    )
    return np.stack([envs.step(action)[0][0] for action in actions])


def main(options: Options) -> None:
    check_output("output", options.output, ".png", ".pdf", ".svg")
    check_least(5, options, "steps")  # during the first four steps the frame stack is not yet full
    check_least(0, options, "seed")
    algo = load(ROOT / "algos" / "ppo_atari.py")
    check_env(options.env_id)
    try:
        films = {title: play(algo, options, STAGES[title]) for title in STAGES}
    except ValueError as error:  # such as "not an Atari game"
        check(False, f"--env-id {options.env_id}: {error}")
    _, single, maximum, *_ = films.values()
    step = int(np.argmax(np.abs(maximum.astype(int) - single).sum(axis=(1, 2, 3))[4:])) + 4
    frames = [
        (title * (i == 0), frame) for title in films for i, frame in enumerate(films[title][step])
    ]
    figure, axes = plt.subplots(
        1, len(frames), figsize=(1.7 * len(frames), 2.8), layout="constrained"
    )
    for axis, (title, frame) in zip(axes, frames, strict=True):
        axis.imshow(frame, cmap="gray", vmin=0, vmax=255, aspect="auto")
        axis.set_xticks([]), axis.set_yticks([])
        axis.set_title(title, fontsize=8)
        axis.set_box_aspect(frame.shape[0] / frame.shape[1])
    with writing():
        figure.savefig(options.output, dpi=110)
    print(f"{options.output}: step {step} of {options.env_id}")


if __name__ == "__main__":
    main(tyro.cli(Options))
