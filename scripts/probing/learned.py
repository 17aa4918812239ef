"""Learned checks: environments so small that the right value or action is known beforehand."""

from unittest.mock import patch

import numpy as np
import torch

from probing.environments import Choices, stack
from probing.subject import Recorder, Subject, check

# What is seen in the environments, as the numbers since the reset: the last of them alone, or, of pixels, a stack.
START, LATER, LEFT, RIGHT = [0.0], [0.0, 1.0], [-1.0], [1.0]


def settings(subject: Subject) -> dict:
    """Flags of a short run. Networks for pixels take 10 to 20 ms for an update, and so get a few hundred at most."""
    common = {"gamma": 0.9, "eval_episodes": 1, "terminal_on_life_loss": True, "clip_reward": False}
    if "vector" in subject.kinds and "policy" in subject.kinds:
        return common | {"num_envs": 16, "num_steps": 16, "num_minibatches": 4, "update_epochs": 4,
                         "total_timesteps": 20_000, "learning_rate": 3e-3, "max_grad_norm": 0.5}  # fmt: skip
    common |= {
        "num_envs": 8,
        "anneal_lr": False,
        "learning_rate": 1e-3,
        "ent_coef": 0.02,
        "max_grad_norm": 0.5,
    }
    if "ratio" in subject.kinds:
        return common | {"num_steps": 8, "num_minibatches": 2, "update_epochs": 4, "total_timesteps": 960,
                         "clip_vloss": False, "vf_coef": 0.5, "anneal_lr": True}  # fmt: skip
    if "policy" in subject.kinds:
        return common | {"num_steps": 4, "vf_coef": 0.5, "learning_rate": 7e-4, "anneal_lr": True,
                         "rms_alpha": 0.9, "total_timesteps": 1600}  # fmt: skip
    return common | {"buffer_size": 4000, "learning_starts": 160, "batch_size": 16, "train_frequency": 8, "tau": 1.0,
                     "target_network_frequency": 64, "start_e": 1.0, "end_e": 0.5, "exploration_fraction": 1.0,
                     "max_grad_norm": 10.0, "total_timesteps": 1200}  # fmt: skip


def settled(subject: Subject) -> dict:
    """Flags of a run on pixels that is long enough for a value that depends on another one."""
    return (
        {"total_timesteps": 4000 if "n-step" in subject.kinds else 1920}
        if "policy" in subject.kinds
        else {}
    )


def learn(
    subject: Subject, name: str, *histories: list[float], **flags
) -> tuple[np.ndarray, np.ndarray]:
    """Trains on Probe{name}-v0; the values, and the best actions as the environment gets them, after `histories`."""
    module = subject.load()
    # RPO's noise is the algorithm: here it is on
    given = settings(subject) | {"rpo_alpha": getattr(module.Args, "rpo_alpha", None)} | flags
    agents, evaluate = [], module.evaluate

    def spy(agent, *a, **k):
        agents.append(agent)
        return evaluate(agent, *a, **k)

    with patch.object(module, "evaluate", spy), patch.object(module, "SummaryWriter", Recorder):
        subject.train(module, subject.args(module, env_id=f"Probe{name}-v0", **given))
    pixels = "pixels" in subject.kinds
    obs = [
        stack(*history) if pixels else np.array(history[-1:], np.float32) for history in histories
    ]
    with torch.no_grad():
        x = subject.seen(agents[-1], np.stack(obs))
        best = subject.best(agents[-1], x).numpy()
        actions = best[:, 0] if "continuous" in subject.kinds else np.array(Choices.values)[best]
        return subject.value(agents[-1], x).numpy(), actions


def near(ours, theirs, limit: float) -> tuple[str, str, bool]:
    measured = ", ".join(f"{float(number):.2f}" for number in ours)
    expected = ", ".join(f"{number:.2f}" for number in theirs)
    return measured, f"{expected} +- {limit}", bool(np.max(np.abs(np.array(ours) - theirs)) < limit)


@check("update", "the value network does not learn: its loss, its learning rate, or its targets")
def learns_constant_value(subject: Subject):
    """One step that pays 1: the value is 1."""
    return near(learn(subject, "Constant", START)[0], [1.0], 0.1)


@check("Agent", "the value network does not see the observation of its own row")
def learns_value_of_observation(subject: Subject):
    """One step that pays the observation: the value is the observation."""
    return near(
        learn(subject, "Shown", LEFT, RIGHT)[0],
        [-1.0, 1.0],
        0.5 if "pixels" in subject.kinds else 0.2,
    )


@check("compute_gae", "rewards are not discounted back by gamma over one step")
def learns_discounting(subject: Subject):
    """Two steps, the second pays 1, gamma 0.9: the values are 0.9 and 1 (pixels: 0.5, 0.5 and 1)."""
    if "pixels" in subject.kinds:
        return near(
            learn(subject, "TwoSteps", START, LATER, gamma=0.5, **settled(subject))[0],
            [0.5, 1.0],
            0.2,
        )
    return near(learn(subject, "TwoSteps", START, LATER)[0], [0.9, 1.0], 0.07)


@check("update", "the policy does not move towards actions with a positive advantage")
def learns_better_action(subject: Subject):
    """One step; the best action is 0.5."""
    return near(learn(subject, "Better", START)[1], [0.5], 0.2)


@check(
    "Agent",
    "the policy does not see the observation, or actions and advantages of different rows are paired",
)
def learns_action_of_observation(subject: Subject):
    """One step; the best action is half the observation."""
    return near(learn(subject, "Aim", LEFT, RIGHT)[1], [-0.5, 0.5], 0.2)


@check(
    "train",
    "a time limit is treated as a terminal state: the value stays far below 1 / (1 - gamma)",
    of="bootstrap",
)
def learns_endless_value(subject: Subject):
    """Pays 1 for ever, cut every 10 steps, gamma 0.9: the value is 10, not 4.1 (pixels: 5 steps, 0.5: 2, not 1.25)."""
    if "pixels" in subject.kinds:
        return near(
            learn(subject, "Brief", 4 * LEFT, 4 * RIGHT, gamma=0.5, **settled(subject))[0],
            [2.0, 2.0],
            0.5,
        )
    return near(
        learn(subject, "Endless", LEFT, RIGHT, total_timesteps=40_000)[0], [10.0, 10.0], 1.0
    )


@check(
    "train",
    "a lost life does not end the bootstrap, or the step after it is taken for a reset row",
    of="atari",
)
def learns_life_lost(subject: Subject):
    """Two steps that pay 1 and 0.5, with a lost life in between: the values are 1 and 0.5."""
    return near(learn(subject, "LifeLost", START, LATER, **settled(subject))[0], [1.0, 0.5], 0.35)


@check("compute_gae", "credit is lost over a step, or leaks over a reset into the next episode")
def learns_delayed_reward(subject: Subject):
    """The first of two actions decides what the second step pays."""
    return near(
        learn(subject, "Told" if "q-learning" in subject.kinds else "Delayed", START)[1], [0.5], 0.2
    )


@check(
    "Agent",
    "observations are not standardised: large offsets and scales keep the networks from learning",
    of="normaliser",
)
def learns_behind_an_offset(subject: Subject):
    """The best action is half of what is seen through an offset of 1000 and a scale of 100."""
    return near(learn(subject, "Far", [900.0], [1100.0])[1], [-0.5, 0.5], 0.25)


@check("train", "the normaliser does not follow the observations", of="normaliser")
def learns_while_observations_drift(subject: Subject):
    """20,000 one-step episodes in 16 environments drift by 0.012 x 1250 = 15, while the two observations are 2 apart:
    statistics of the beginning would clip both to the same number. An entropy bonus keeps the policy from settling."""
    return near(learn(subject, "Drift", [15 - 1.0], [15 + 1.0], ent_coef=0.05)[1], [-0.5, 0.5], 0.3)
