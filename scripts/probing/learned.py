"""Learned checks: environments so small that the right value or action is known beforehand."""

from unittest.mock import patch

import numpy as np
import torch

from probing.environments import Choices, stack
from probing.subject import (
    Finding,
    Recorder,
    Subject,
    Unable,
    broken,
    check,
    differs,
    passes,
    rows_of,
)

# What is seen in the environments, as the numbers since the reset: the last of them alone, or, of pixels, a stack.
START, LATER, LEFT, RIGHT = [0.0], [0.0, 1.0], [-1.0], [1.0]


def settings(subject: Subject) -> dict:
    """Flags of a short run. Networks for pixels take 10 to 20 ms for an update, and so get a few hundred at most. The
    learning rate is the probe's: the file's own is tried first."""
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
    if "policy" not in subject.kinds:
        return {}
    return {"total_timesteps": 4000 if "n-step" in subject.kinds else 1920}


def learn(
    subject: Subject, name: str, *histories: list[float], **flags
) -> tuple[np.ndarray, np.ndarray]:
    """Trains on Probe{name}-v0; the values, and the best actions as the environment gets them, after `histories`."""
    module = subject.load()
    # the noise of RPO, RAD and DrAC is the algorithm: here it is on
    noise = ("rpo_alpha", "amplitude_low", "amplitude_high", "aug_coef")
    given = settings(subject) | {name: getattr(module.Args, name, None) for name in noise} | flags
    agents, evaluate, make_envs = [], module.evaluate, module.make_envs
    pixels, shown = "pixels" in subject.kinds, {}  # what the file's wrappers make of observations

    def spied_envs(*a, **k):
        made = make_envs(*a, **k)
        if not pixels:
            watch(*made[:2], shown)
        return made

    def spy(agent, *a, **k):
        agents.append(agent)
        return evaluate(agent, *a, **k)

    spies = {"make_envs": spied_envs, "evaluate": spy, "SummaryWriter": Recorder}
    with patch.multiple(module, **spies):
        subject.train(module, subject.args(module, env_id=f"Probe{name}-v0", **given))
    if pixels:
        obs = [stack(*history) for history in histories]
    else:
        obs = [wrapped(history[-1], shown) for history in histories]
        if len({row.tobytes() for row in obs}) < len(obs):
            raise Unable("wrappers show different states of the task alike")
    with torch.no_grad():
        x = subject.seen(agents[-1], np.stack(obs))
        best = subject.best(agents[-1], np.stack(obs)).numpy()
        if "continuous" in subject.kinds:
            actions = received(subject, module, name, best)
        else:
            actions = np.array(Choices.values)[best]
        return subject.value(agents[-1], x).numpy(), actions


def watch(envs, obs, shown: dict) -> None:
    """Keeps what an agent first saw of each of the environment's own observations, one number each."""
    step, games = envs.step, [env.unwrapped for env in envs.unwrapped.envs]

    def note(obs) -> None:
        for game, row in zip(games, rows_of(obs, flat=True)):
            shown.setdefault(round(float(game.show()[0]), 4), row)

    def spied_step(actions):
        moves = [game.moves for game in games]
        made = step(actions)
        if any(game.moves > before + 1 for game, before in zip(games, moves)):
            raise Unable("a wrapper makes several steps of one, for which the tasks are too short")
        note(made[0])
        return made

    envs.step = spied_step
    note(obs)


def wrapped(number: float, shown: dict) -> np.ndarray:
    """The environment's own observation, as the file's wrappers would show it: as they did show the nearest one."""
    plain = np.array([number], np.float32)
    nearest = min(shown, key=lambda seen: abs(seen - number))
    row = shown[nearest]
    return plain if row.shape == (1,) and abs(float(row[0]) - nearest) < 1e-3 else row


def received(subject: Subject, module, name: str, actions: np.ndarray) -> np.ndarray:
    """(n,): what the environment itself gets of the actions (n, 1), through the file's wrappers."""
    args = subject.args(module, env_id=f"Probe{name}-v0")
    envs = module.make_envs(args, "gymnasium", len(actions), 7)[0]
    games = [env.unwrapped for env in envs.unwrapped.envs]
    envs.step(actions)
    return np.array([game.action for game in games])


def learns(
    subject: Subject,
    what: str,
    right: list,
    limit: float,
    mistake: str,
    name: str,
    *histories,
    **flags,
) -> Finding:
    """The value or the action after each history is near the right one: with the file's own learning rate or, where it
    learns nothing in so few steps, with another one, and in the end with three times as many."""
    probes = settings(subject)
    own, steps = (
        getattr(subject.module.Args, "learning_rate", probes["learning_rate"]),
        probes["total_timesteps"],
    )
    steps = flags.pop("total_timesteps", steps)
    trials = [(own, 1), (probes["learning_rate"], 1)]
    if subject.slow_learner:  # an earlier check has seen that its own rate is too small here
        trials = trials[::-1]
    if not subject.suspect:  # the exact checks have found nothing, so that it may just be slow
        trials += [(rate * probes["learning_rate"], 3) for rate in (1, 10, 0.1)]
    expected = ", ".join(f"{number:.2f}" for number in right) + f" +- {limit}"
    found = []
    for rate, times in dict.fromkeys(trials):
        values, actions = learn(
            subject, name, *histories, learning_rate=rate, total_timesteps=times * steps, **flags
        )
        ours = values if what == "value" else actions
        measured = f"{what} " + ", ".join(f"{float(number):.2f}" for number in ours)
        if np.abs(np.array(ours) - right).max() < limit:
            subject.slow_learner |= rate != own
            note = f" (learning rate {rate:g})" if rate != own else ""
            note += " (3 times the steps)" if times > 1 else ""
            return passes(measured + note, expected)
        found.append(measured)
    if what == "value" and subject.unusual and not subject.suspect:
        return differs(found[-1], expected, mistake)
    return broken(found[-1], expected, mistake)


@check("update")
def learns_constant_value(subject: Subject) -> Finding:
    """One step that pays 1: the value is 1."""
    return learns(
        subject,
        "value",
        [1.0],
        0.1,
        "the value network does not learn a constant",
        "Constant",
        START,
    )


@check("Agent")
def learns_value_of_observation(subject: Subject) -> Finding:
    """One step that pays the observation: the value is the observation."""
    limit = 0.5 if "pixels" in subject.kinds else 0.2
    mistake = "the value does not follow the observation"
    return learns(subject, "value", [-1.0, 1.0], limit, mistake, "Shown", LEFT, RIGHT)


@check("compute_gae")
def learns_discounting(subject: Subject) -> Finding:
    """Two steps, the second pays 1, gamma 0.9: the values are 0.9 and 1 (pixels: 0.5, 0.5 and 1)."""
    mistake = "the value of a state is not gamma times that of the next"
    if "pixels" in subject.kinds:
        return learns(
            subject,
            "value",
            [0.5, 1.0],
            0.2,
            mistake,
            "TwoSteps",
            START,
            LATER,
            gamma=0.5,
            **settled(subject),
        )
    return learns(subject, "value", [0.9, 1.0], 0.07, mistake, "TwoSteps", START, LATER)


@check("update")
def learns_better_action(subject: Subject) -> Finding:
    """One step; the best action is 0.5."""
    return learns(
        subject, "action", [0.5], 0.2, "the policy does not find the better action", "Better", START
    )


@check("Agent")
def learns_action_of_observation(subject: Subject) -> Finding:
    """One step; the best action is half the observation."""
    mistake = "the action does not follow the observation"
    return learns(subject, "action", [-0.5, 0.5], 0.2, mistake, "Aim", LEFT, RIGHT)


@check("train", of="bootstrap")
def learns_endless_value(subject: Subject) -> Finding:
    """Pays 1 for ever, cut every 10 steps, gamma 0.9: the value is 10, not 4.1 (pixels: 5 steps, 0.5: 2, not 1.25)."""
    mistake = "the value is not that of rewards without an end"
    if "pixels" in subject.kinds:
        flags = {"gamma": 0.5} | settled(subject)
        return learns(
            subject, "value", [2.0, 2.0], 0.5, mistake, "Brief", 4 * LEFT, 4 * RIGHT, **flags
        )
    return learns(
        subject, "value", [10.0, 10.0], 1.0, mistake, "Endless", LEFT, RIGHT, total_timesteps=40_000
    )


@check("train", of="atari")
def learns_life_lost(subject: Subject) -> Finding:
    """Two steps that pay 1 and 0.5, with a lost life in between: the values are 1 and 0.5."""
    mistake = "the values are not those of lives that end with the step"
    return learns(
        subject, "value", [1.0, 0.5], 0.35, mistake, "LifeLost", START, LATER, **settled(subject)
    )


@check("compute_gae")
def learns_delayed_reward(subject: Subject) -> Finding:
    """The first of two actions decides what the second step pays."""
    name = "Told" if "q-learning" in subject.kinds else "Delayed"
    return learns(
        subject,
        "action",
        [0.5],
        0.2,
        "an action gets no credit for what the next step pays",
        name,
        START,
    )


@check("Agent", of="normaliser")
def learns_behind_an_offset(subject: Subject) -> Finding:
    """The best action is half of what is seen through an offset of 1000 and a scale of 100."""
    mistake = "large offsets and scales of observations keep it from learning"
    return learns(subject, "action", [-0.5, 0.5], 0.25, mistake, "Far", [900.0], [1100.0])


@check("train", of="normaliser")
def learns_while_observations_drift(subject: Subject) -> Finding:
    """20,000 one-step episodes in 16 environments drift by 0.012 x 1250 = 15, while the two observations are 2 apart:
    statistics of the beginning would clip both to the same number. An entropy bonus keeps the policy from settling."""
    mistake, ends = "it does not follow observations that drift", ([15 - 1.0], [15 + 1.0])
    # so far from the mean a random scale hides which of the two it is
    flags = {"ent_coef": 0.05, "amplitude_low": 1.0, "amplitude_high": 1.0}
    return learns(subject, "action", [-0.5, 0.5], 0.3, mistake, "Drift", *ends, **flags)
