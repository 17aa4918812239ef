"""Exact checks of a file whose environments live in Ray actors, which the probe replaces by objects of this process."""

from pathlib import Path

import numpy as np
import torch

from plainrl_tools.probing.subject import Finding, Subject, broken, check, differs, passes


def with_runners(subject: Subject, number: int) -> tuple[dict, list[int]]:
    """The agent after a short run, and the seeds of its environments."""
    module, seeds = subject.load(), []
    make_envs = module.make_envs

    def noted(args, backend, num_envs, seed, *rest):
        made = make_envs(args, backend, num_envs, seed, *rest)
        new, step = [[seed + i for i in range(num_envs)]], made[0].step

        def spied_step(action):  # ignore environments that are made but never used
            seeds.extend(new)
            new.clear()
            return step(action)

        made[0].step = spied_step
        return made

    module.make_envs = noted
    args = subject.args(module, num_runners=number, total_timesteps=200)
    subject.train(module, args)
    (run,) = Path(args.runs_dir).iterdir()
    return torch.load(run / "checkpoint.pt", weights_only=True)["agent"], sum(seeds[:number], [])


@check("train", of="runners")
def number_of_runners(subject: Subject) -> Finding:
    """With 1 and with 3 runners for 4 environments: the seeds differ, and the final weights are equal, bit for bit."""
    (one, alone), (three, seeds) = (with_runners(subject, number) for number in (1, 3))
    if len(set(seeds)) < len(alone):
        return broken(
            "equal seeds", "all different", "runners have environments with the same seed"
        )
    unequal = [key for key in one if not np.array_equal(one[key], three[key])]
    if unequal:
        question = "the result of a run depends on the number of runners"
        return differs(f"{len(unequal)} tensors unequal", "equal", question)
    return passes("equal")
