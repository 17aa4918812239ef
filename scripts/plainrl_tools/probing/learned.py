"""Learned checks: environments so small that the right value or action is known in advance."""

from unittest.mock import patch

import numpy as np
import torch

from plainrl_tools.probing.environments import Choices, stack
from plainrl_tools.probing.subject import (
    Finding,
    Recorder,
    Subject,
    Unable,
    broken,
    check,
    differs,
    passes,
    peak,
    rows_of,
)

# Exact checks of what a file does with an agent, but not of how the agent learns: what they ask about cannot change the
# values that are right.
AFTERWARDS = (
    "first-policy",
    "logged-losses",
    "evaluation-on-the-way",
    "evaluation-is-frozen",
    "evaluation-actions",
    "best-model",
    "resuming",
    "flags",
    "seeds",
    "same-seed-twice",
    "checkpoint",
)
# Observations since the reset. The agent sees the last number alone or, with pixels, a stack of images.
START, LATER, LEFT, RIGHT = [0.0], [0.0, 1.0], [-1.0], [1.0]


def settings(subject: Subject) -> dict:
    """Flags of a short run. Networks for pixels need 10 to 20 ms for an update, so they get a few hundred updates at
    most. The learning rate is the probe's; the file's own is tried first."""
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
    """Flags of a run on pixels that is long enough for a value that depends on another value."""
    if "policy" not in subject.kinds:
        return {}
    return {"total_timesteps": 4000 if "n-step" in subject.kinds else 1920}


def learn(
    subject: Subject, name: str, *histories: list[float], **flags
) -> tuple[np.ndarray, np.ndarray]:
    """Train on Probe{name}-v0. Return the values, and the best actions as the environment receives them, after
    `histories`."""
    module = subject.load()
    # use the file's own noise of RPO, RAD and DrAC, which the exact checks switch off
    noise = ("rpo_alpha", "amplitude_low", "amplitude_high", "aug_coef")
    given = settings(subject) | {name: getattr(module.Args, name, None) for name in noise} | flags
    agents, evaluate, make_envs = [], module.evaluate, module.make_envs
    pixels, shown = "pixels" in subject.kinds, {}  # observations after the file's wrappers

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
            raise Unable("wrappers make different states of the task look the same")
    with torch.no_grad():
        x = subject.seen(agents[-1], np.stack(obs))
        best = subject.best(agents[-1], np.stack(obs)).numpy()
        if "continuous" in subject.kinds:
            actions = received(subject, module, name, best)
        else:
            actions = np.array(Choices.values)[best]
        return subject.value(agents[-1], x).numpy(), actions


def watch(envs, obs, shown: dict) -> None:
    """Keep what the agent first saw for each of the environment's own observations, which are single numbers."""
    step, games = envs.step, [env.unwrapped for env in envs.unwrapped.envs]

    def note(obs) -> None:
        for game, row in zip(games, rows_of(obs, flat=True)):
            shown.setdefault(round(float(game.show()[0]), 4), row)

    def spied_step(actions):
        moves = [game.moves for game in games]
        made = step(actions)
        if any(game.moves > before + 1 for game, before in zip(games, moves)):
            raise Unable(
                "a wrapper makes several steps per action, for which the tasks are too short"
            )
        note(made[0])
        return made

    envs.step = spied_step
    note(obs)


def wrapped(number: float, shown: dict) -> np.ndarray:
    """The environment's own observation after the file's wrappers, taken from the nearest one that they returned."""
    plain = np.array([number], np.float32)
    nearest = min(shown, key=lambda seen: abs(seen - number))
    row = shown[nearest]
    return plain if row.shape == (1,) and abs(float(row[0]) - nearest) < 1e-3 else row


def received(subject: Subject, module, name: str, actions: np.ndarray) -> np.ndarray:
    """(n,): the actions that the environment receives for the agent's actions (n, 1), after the file's wrappers."""
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
    """The value or the action after each history is close to the right one. The file's own learning rate is tried
    first, then another one, and finally three times as many steps."""
    probes = settings(subject)
    own, steps = (
        getattr(subject.module.Args, "learning_rate", probes["learning_rate"]),
        probes["total_timesteps"],
    )
    steps = flags.pop("total_timesteps", steps)
    trials = [(own, 1), (probes["learning_rate"], 1)]
    if subject.slow_learner:  # in an earlier check the file's own learning rate was too small
        trials = trials[::-1]
    if (
        not subject.suspect
    ):  # the exact checks found nothing broken, so the file may just learn slowly
        trials += [(rate * probes["learning_rate"], 3) for rate in (1, 10, 0.1)]
    expected = ", ".join(f"{number:.2f}" for number in right) + f" +- {limit}"
    found, sizes = [], []
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
        sizes.append(peak(values))
    if what == "value" and subject.unusual and not subject.suspect:
        # a modification may change the right value, but not to more than the sum of all rewards, which are 1 at most
        most = reward_of_one(subject) / (1 - flags.get("gamma", settings(subject)["gamma"]))
        beyond = [text for text, size in zip(found, sizes) if not size <= 1.1 * most + limit]
        if 2 * len(beyond) < len(found):
            return differs(found[-1], expected, mistake)
        mistake = f"the value is larger than the discounted sum of all rewards, which is at most {most:.1f}"
        return broken(beyond[-1], expected, mistake)
    return broken(found[-1], expected, mistake)


def reward_of_one(subject: Subject) -> float:
    """What the file makes of a reward of 1: the value that it learns in episodes of one step with this reward."""
    if not hasattr(subject, "one"):
        rate = settings(subject)["learning_rate"]
        subject.one = float(np.abs(learn(subject, "Constant", START, learning_rate=rate)[0]).max())
    return subject.one


@check("update")
def learns_constant_value(subject: Subject) -> Finding:
    """Episodes of one step with reward 1: the value is 1."""
    return learns(
        subject,
        "value",
        [1.0],
        0.1,
        "the value does not converge to a constant reward",
        "Constant",
        START,
    )


@check("Agent")
def learns_value_of_observation(subject: Subject) -> Finding:
    """Episodes of one step whose reward is the observation: the value is the observation."""
    limit = 0.5 if "pixels" in subject.kinds else 0.2
    mistake = "the value does not depend on the observation as it should"
    return learns(subject, "value", [-1.0, 1.0], limit, mistake, "Shown", LEFT, RIGHT)


@check("compute_gae")
def learns_discounting(subject: Subject) -> Finding:
    """Two steps, reward 1 at the second, gamma 0.9: the values are 0.9 and 1 (pixels: gamma 0.5, values 0.5 and 1)."""
    mistake = "the value of a state is not gamma times that of the next state"
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
    """Episodes of one step: the best action is 0.5."""
    return learns(
        subject, "action", [0.5], 0.2, "the policy does not learn the best action", "Better", START
    )


@check("Agent")
def learns_action_of_observation(subject: Subject) -> Finding:
    """Episodes of one step: the best action is half the observation."""
    mistake = "the action does not depend on the observation as it should"
    return learns(subject, "action", [-0.5, 0.5], 0.2, mistake, "Aim", LEFT, RIGHT)


@check("train", of="bootstrap")
def learns_endless_value(subject: Subject) -> Finding:
    """Reward 1 at every step, truncation after 10 steps, gamma 0.9: the value is 10, not 4.1 (pixels: 5 steps, gamma
    0.5, value 2, not 1.25)."""
    mistake = "the value is not that of endless rewards: truncation may be treated as termination"
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
    """Two steps with rewards 1 and 0.5, and a lost life in between: the values are 1 and 0.5."""
    mistake = "the values are not those of episodes that end with a lost life"
    return learns(
        subject, "value", [1.0, 0.5], 0.35, mistake, "LifeLost", START, LATER, **settled(subject)
    )


@check("compute_gae")
def learns_delayed_reward(subject: Subject) -> Finding:
    """The first of two actions determines the reward of the second step."""
    name = "Told" if "q-learning" in subject.kinds else "Delayed"
    return learns(
        subject,
        "action",
        [0.5],
        0.2,
        "an action gets no credit for the reward of the next step",
        name,
        START,
    )


@check("Agent", of="normaliser")
def learns_behind_an_offset(subject: Subject) -> Finding:
    """The best action is half the observation, which the agent sees with an offset of 1000 and a scale of 100."""
    mistake = "the agent does not learn with large offsets and scales of observations"
    return learns(subject, "action", [-0.5, 0.5], 0.25, mistake, "Far", [900.0], [1100.0])


@check("train", of="normaliser")
def learns_while_observations_drift(subject: Subject) -> Finding:
    """In 20,000 one-step episodes of 16 environments the observations drift by 0.012 x 1250 = 15, while the two
    possible observations are 2 apart. Statistics of the first episodes alone would clip both to the same number. An
    entropy coefficient of 0.05 keeps the policy from becoming deterministic."""
    mistake, ends = "the agent does not adapt to observations that drift", ([15 - 1.0], [15 + 1.0])
    # far from the mean, random amplitudes would hide which of the two observations it is
    flags = {"ent_coef": 0.05, "amplitude_low": 1.0, "amplitude_high": 1.0}
    return learns(subject, "action", [-0.5, 0.5], 0.3, mistake, "Drift", *ends, **flags)
