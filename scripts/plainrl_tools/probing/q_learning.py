"""Exact checks of Q-learning: targets, target network, exploration and replay buffer."""

import math
from unittest.mock import patch

import numpy as np
import torch

from plainrl_tools.probing.subject import (
    NUM_ACTIONS,
    Finding,
    Minibatch,
    Subject,
    Trace,
    Unable,
    broken,
    check,
    compare,
    differs,
    epsilon_after,
    gradient,
    largest,
    passes,
    peak,
    tensors_of,
)


def targets(reward, terminal, next_values, next_chooser, gamma: float) -> np.ndarray:
    """Targets (n,) in float64: equation 4 of arXiv:1509.06461. With the same values for choosing and evaluating it
    gives DQN's target."""
    reward, terminal, values, chooser = (
        np.asarray(t, np.float64) for t in (reward, terminal, next_values, next_chooser)
    )
    return reward + gamma * (1 - terminal) * values[np.arange(len(values)), chooser.argmax(1)]


@check("td_target", of="q-learning")
def td_target(subject: Subject) -> Finding:
    """td_target of random rewards, terminations and values equals the targets of DQN and double DQN in float64."""
    call, result = subject.trace.returns[0]
    n, finding = len(result), None
    reward, values, other = torch.randn(n), torch.randn(n, NUM_ACTIONS), torch.randn(n, NUM_ACTIONS)
    terminal = (torch.arange(n) % 3 == 0).float()
    for chooser in (values, other):
        given = {
            "reward": reward,
            "terminal": terminal,
            "next_values": values,
            "next_action": chooser.argmax(-1),
            "next_chooser": chooser,  # instead of next_action in copies of older files
            "gamma": 0.9,
        }
        taken = {*call.arguments}
        if not {*list(given)[:3]} <= taken or not {"next_action", "next_chooser"} & taken:
            raise Unable(f"td_target takes {', '.join(call.arguments)}: keep the original names")
        ours = call.again(
            **{name: value for name, value in given.items() if name in call.arguments}
        )
        right = targets(reward, terminal, values, chooser, 0.9)
        one_for_all = chooser.mean(0, keepdim=True).expand_as(chooser)
        mistakes = {
            "the value after a termination is bootstrapped": targets(
                reward, 0 * terminal, values, chooser, 0.9
            ),
            "gamma is missing": targets(reward, terminal, values, chooser, 1.0),
            "the termination mask is inverted": targets(reward, 1 - terminal, values, chooser, 0.9),
            "the worst action is used instead of the best": targets(
                reward, terminal, values, -chooser, 0.9
            ),
            "one action is used as the best for all samples": targets(
                reward, terminal, values, one_for_all, 0.9
            ),
            "the networks of double DQN are swapped": targets(
                reward, terminal, chooser, values, 0.9
            ),
        }
        choices = {
            "the largest value is used, so this is not double DQN": targets(
                reward, terminal, values, values, 0.9
            ),
            "the choosing network also evaluates, so this is not double DQN": targets(
                reward, terminal, chooser, chooser, 0.9
            ),
        }
        question = "the target is not reward + gamma x the value of the best next action"
        one = compare(ours, right, mistakes, choices, question)
        if one.verdict == "differs":
            ours = np.asarray(ours)
            at_end = (
                np.abs(ours - reward.numpy())[terminal.numpy() > 0].max()
                if ours.shape == (n,)
                else math.inf
            )
            if ours.shape != (n,):
                one = broken(
                    f"shape {ours.shape}", f"({n},)", "a target with the wrong shape is broadcast"
                )
            elif at_end > 1e-3 and np.abs(ours - right)[terminal.numpy() == 0].max() < 1e-3:
                one = broken(
                    one.measured,
                    one.expected,
                    "the target after a termination is not the reward alone",
                )
        if finding is None or finding.verdict == "passes" or one.verdict == "broken":
            finding = one
    return finding


@check("update", of="q-learning", follows="td-target rows-are-independent")
def td_loss(subject: Subject) -> Finding:
    """Gradient of the loss, for each --loss and --double-dqn: it flows through the value of the chosen action, and not
    through the targets."""
    flags, finding = subject.module.Args.__dataclass_fields__, None
    kinds = ("huber", "mse") if "loss" in flags else (None,)
    for double, kind in [
        (double, kind) for double in (False, True)[: 1 + ("double_dqn" in flags)] for kind in kinds
    ]:
        mb = Minibatch(subject, 32, double_dqn=double, **({"loss": kind} if kind else {}))
        one = td_slopes(mb, double, kind)
        if finding is None or finding.verdict == "passes" or one.verdict == "broken":
            finding = one
    return finding


def td_slopes(mb: Minibatch, double: bool, kind: str | None) -> Finding:
    agent, batch, n = mb.agent, mb.batch, len(mb.batch["x"])
    parameters = [p for p in agent.parameters() if p.requires_grad]
    ours = gradient(mb.loss(), parameters)
    forward = agent.forward

    def no_gradient_elsewhere(obs, *a, **k):
        said = forward(obs, *a, **k)
        return (
            said
            if obs.shape == batch["x"].shape and torch.equal(obs, batch["x"])
            else said.detach()
        )

    with patch.object(agent, "forward", no_gradient_elsewhere):
        alone = gradient(mb.loss(), parameters)
    with torch.no_grad():
        next_values = (
            batch["next_values"] if "next_values" in batch else mb.target(batch["next_obs"])
        )
        chooser = agent(batch["next_obs"]) if double else next_values
    values = agent(batch["x"])
    action = batch["action"].long()[:, None]
    chosen = values.gather(1, action)[:, 0]
    error = chosen.detach().double() - torch.from_numpy(
        targets(batch["reward"], batch["terminal"], next_values, chooser, mb.args.gamma)
    )

    def summed(slope, what=chosen) -> torch.Tensor:
        return gradient((slope.float() * what).sum() / n, parameters)

    cases = {"huber": summed(error.clamp(-1, 1)), "mse": summed(2 * error)}
    right = cases[kind] if kind else min(cases.values(), key=lambda case: largest(case, ours))
    size = float(right.abs().max())
    if ours.abs().max() < 1e-9 * size:
        return broken("no gradient", "a gradient", "no gradient reaches the Q-network")
    if largest(ours / size, alone / size) > 1e-3:
        return broken(
            f"error {largest(ours / size, alone / size):.1e}",
            "below 1e-03",
            "a gradient flows through the target",
        )
    mistakes = {"the sign of the loss is wrong": -right / size}
    beside = values.gather(1, (action + 1) % NUM_ACTIONS)[:, 0]
    mistakes["the value of another action is trained"] = summed(error.clamp(-1, 1), beside) / size
    choices = {
        f"--loss {kind} computes {name}": case / size
        for name, case in cases.items()
        if kind and name != kind
    }
    choices["the loss is half the squared error"] = cases["mse"] / 2 / size
    finding = compare(
        ours / size,
        right / size,
        mistakes,
        choices,
        "the loss is not that of the TD error",
    )
    factor = float(ours @ right / (right @ right))
    if finding.verdict == "differs" and factor < -0.2:
        return broken(finding.measured, finding.expected, "the sign of the loss is wrong")
    return finding


@check("Agent", of="q-learning")
def greedy_action(subject: Subject) -> Finding:
    """get_action for 64 observations with random Q-values: with epsilon 0 each observation gets its own argmax, with
    epsilon 1 all actions are equally frequent."""
    agent, x, values = subject.agent(), subject.observations(64), torch.randn(64, NUM_ACTIONS)
    with torch.no_grad(), patch.object(agent, "forward", lambda obs: values):
        action, best = agent.get_action(x, 0.0), values.argmax(-1)
        drawn = torch.cat([agent.get_action(x, 1.0) for _ in range(50)])
    if action.shape != best.shape:
        return broken(f"actions {tuple(action.shape)}", "(64,)", "actions have the wrong shape")
    wrong, counts = int((action != best).sum()), torch.bincount(drawn, minlength=NUM_ACTIONS)
    off = (
        float((counts.double() / counts.sum() - 1 / NUM_ACTIONS).abs().max())
        / (0.25 * 0.75 / 3200) ** 0.5
    )
    measured, expected = (
        f"{wrong} of 64 wrong; random actions off by {off:.1f} standard deviations",
        "0; below 5.5",
    )
    if wrong and torch.equal(action, values.argmin(-1)):
        return broken(measured, expected, "the worst action is used instead of the best")
    if wrong and len(set(action.tolist())) == 1:
        return broken(measured, expected, "one action is used for all observations")
    if wrong:
        return differs(
            measured, expected, "with epsilon 0 the action is not the one with the largest value"
        )
    if off > 5.5:
        return differs(measured, expected, "random actions are not uniform")
    return passes(measured, expected)


@check("Agent", of="q-learning", follows="greedy-action")
def exploration(subject: Subject) -> Finding:
    """With epsilon 0.4, in 200 calls with 64 observations: epsilon is the fraction of random actions, and each
    observation has its own draw."""
    agent, x = subject.agent(), subject.observations(64)
    fixed = torch.zeros(64, NUM_ACTIONS)
    fixed[:, 2] = 1.0
    with torch.no_grad(), patch.object(agent, "forward", lambda obs: fixed[: len(obs)]):
        others = torch.stack([agent.get_action(x, 0.4) != 2 for _ in range(200)]).double()
    p = 0.4 * (1 - 1 / NUM_ACTIONS)
    off = float((others.mean() - p).abs()) / (p * (1 - p) / others.numel()) ** 0.5
    spread = float(others.sum(1).std()) / (64 * p * (1 - p)) ** 0.5
    measured, expected = (
        f"off by {off:.1f} standard deviations, spread {spread:.2f}",
        "below 5, 1 +- 0.3",
    )
    if spread > 2:
        return broken(measured, expected, "one draw is used for all environments")
    if off < 5 and abs(spread - 1) < 0.3:
        return passes(measured, expected)
    return differs(measured, expected, "epsilon is not the fraction of random actions")


@check("train", of="q-learning")
def epsilon_schedule(subject: Subject) -> Finding:
    """Epsilon at every training step: --start-e until --learning-starts, then linear to --end-e."""
    trace = subject.trace
    if any(epsilon is None for epsilon in trace.epsilons) or not trace.epsilons:
        raise Unable("Agent.get_action takes no argument epsilon")
    right = [trace.epsilon(k) for k in range(len(trace.truth))]
    ours = [float(epsilon) for epsilon in trace.epsilons]
    if len(right) != len(ours):
        return differs(
            f"{len(ours)} calls for {len(right)} steps",
            "one for each step",
            "get_action is not called exactly once per step",
        )
    args, every = trace.args, [0, *trace.steps]
    mistakes = {}
    if every[-1] > 2 * len(right):
        single = [epsilon_after(args, k) for k in range(len(right))]
        mistakes["the schedule counts the steps of one environment only"] = single
    early = [epsilon_after(args, step + args.learning_starts) for step in every[: len(right)]]
    choices = {"epsilon decreases from the first step, before --learning-starts": early}
    question = "epsilon does not decrease linearly from --start-e to --end-e over --exploration-fraction of the steps"
    return compare(ours, right, mistakes, choices, question)


@check("train", of="q-learning")
def acting_network(subject: Subject) -> Finding:
    """The network that selects the actions is the trained one, with its current weights."""
    trace = subject.trace
    if not trace.actors or trace.target is None:
        raise Unable("Agent.get_action is not called, or update gets no target network")
    online = [
        networks[0] for networks in trace.ticks[:-1]
    ]  # the last entry belongs to the end of the run
    pairs = list(zip(trace.actors[::-1], online[::-1]))
    others = sum(not torch.equal(*pair) for pair in pairs)
    measured = f"another network in {others} of {len(pairs)} steps"
    if others == 0:
        return passes(measured, "none")
    if torch.equal(trace.actors[0], trace.actors[-1]):
        return differs(
            measured, "none", "a copy of the agent acts and is never updated in this run"
        )
    return differs(measured, "none", "the network that acts is not the trained one")


@check("train", of="q-learning")
def update_frequency(subject: Subject) -> Finding:
    """One update for every --train-frequency steps, as soon as the replay buffer holds --learning-starts steps. If
    several updates are due at once, each has its own batch."""
    notes = []
    for trace in (
        subject.trace,
        Trace(subject, train_frequency=3, total_timesteps=120, batch_size=2),
    ):
        args, steps, N = trace.args, [0, *trace.steps], trace.args.num_envs
        made = np.zeros(len(steps), int)
        for record in trace.stepped():
            made[record["tick"]] += len(record["norms"])
        due = np.zeros(len(steps), int)
        due[1:] = np.diff(np.array(steps) // args.train_frequency)
        first = int(np.flatnonzero(made)[0])
        batches = (
            [mb[name].numpy().tobytes() for mb in record["minibatches"]]
            for record in trace.updates
            for name in ("x", "next_obs")
        )
        same = sum(len(set(batch)) < len(batch) for batch in batches)
        if same > 1:
            return broken(
                f"the same batch twice in {same} calls of update",
                "none",
                "several updates that are due at once use the same batch",
            )
        if first * N < args.learning_starts:
            notes.append("updates start before the replay buffer holds --learning-starts steps")
        if any(due[k] and steps[k] >= args.learning_starts for k in range(first)):
            notes.append("updates start late")
        wrong, more = made[first:] != due[first:], made[first:].sum() - due[first:].sum()
        if (
            wrong.any()
            and not (made[first:] > due[first:]).any()
            and more < 0
            and (made[first:] <= 1).all()
            and due.max() > 1
        ):
            notes.append("only one update is made where several are due at once")
        elif wrong.any():
            notes.append(
                f"{made[first:].sum()} updates instead of {due[first:].sum()}"
                if more
                else "updates happen at other steps than the multiples of --train-frequency"
            )
    return (
        differs("; ".join(dict.fromkeys(notes)), "as scheduled", notes[0])
        if notes
        else passes("as scheduled")
    )


@check("train", of="q-learning")
def target_network(subject: Subject) -> Finding:
    """After each completed --target-network-frequency steps of all environments the target network moves by --tau
    towards the online network. It does not change at any other step."""
    finding = None
    if subject.trace.target is None:
        return differs(
            "no target network", "a target network", "update() receives no target network"
        )
    short = {"total_timesteps": 150, "target_network_frequency": 2, "tau": 0.2}
    for trace in (subject.trace, Trace(subject, **short)):
        one = target_updates(trace)
        if finding is None or finding.verdict == "passes" or one.verdict == "broken":
            finding = one
    return finding


def target_updates(trace: Trace) -> Finding:
    steps, every, tau = [0, *trace.steps], trace.args.target_network_frequency, trace.args.tau
    shared = {p.data_ptr() for p in trace.online.parameters()} & {
        p.data_ptr() for p in trace.target.parameters()
    }
    if shared:
        return broken(
            "shared memory",
            "its own memory",
            "the target network shares the online network's memory",
        )
    missed = extra = wrong = due_ever = single = 0
    for k in range(trace.updates[0]["tick"] - 1, len(steps) - 1):
        before, (online, after) = trace.ticks[k], trace.ticks[k + 1]
        if torch.equal(online, before[1]) and torch.equal(before[1], after):
            continue  # the networks are still equal, as with a learning rate of 0
        due, moved = steps[k + 1] // every - steps[k] // every, not torch.equal(before[1], after)
        missed, extra, due_ever = (
            missed + (due and not moved),
            extra + (moved and not due),
            due_ever + (due > 0),
        )
        if due and moved:
            off = [
                min(
                    peak(after - before[1].lerp(now, 1 - (1 - tau) ** times))
                    for now in (online, before[0])
                )
                for times in (due, 1)
            ]
            scale = float((online - before[1]).abs().max())
            wrong += not off[0] <= 0.02 * scale
            single += off[0] > 0.02 * scale >= off[1] and due > 1
    measured = f"{missed} of {due_ever} missed, {extra} too many, {wrong} with another tau"
    if not (missed or extra or wrong):
        return passes(measured, "0, 0, 0")
    if missed == due_ever and not extra:
        return broken(measured, "0, 0, 0", "the target network is never updated")
    if missed and not extra:
        return broken(
            measured, "0, 0, 0", "updates are missed when the step count jumps over a multiple"
        )
    if single == wrong and not extra:
        return broken(measured, "0, 0, 0", "only one update is made where several are due at once")
    if wrong and not extra:
        return differs(
            measured, "0, 0, 0", "the target network moves by another fraction than --tau"
        )
    return differs(
        measured,
        "0, 0, 0",
        "the target network is updated at other steps than the multiples of --target-network-frequency",
    )


@check("update", of="q-learning", follows="td-target td-loss")
def loss_in_training(subject: Subject) -> Finding:
    """The loss of every batch of a run, with and without --double-dqn, equals the one recomputed from its tensors and
    both networks."""
    flags = subject.module.Args.__dataclass_fields__
    traces = [subject.trace] + [Trace(subject, double_dqn=True, total_timesteps=200)] * (
        "double_dqn" in flags
    )
    off = {}  # the largest error that remains with each explanation of the targets
    for trace in traces:
        double, kind = getattr(trace.args, "double_dqn", False), getattr(trace.args, "loss", "mse")
        for mb in (mb for record in trace.updates for mb in record["minibatches"]):
            value = mb["values"].gather(1, mb["action"].long()[:, None])[:, 0].double().numpy()
            networks = {
                "right": (mb["next_target"], mb["next_online" if double else "next_target"]),
                "the networks of double DQN are swapped": (mb["next_online"], mb["next_target"]),
                "the online network evaluates the next state": (
                    mb["next_online"],
                    mb["next_online"],
                ),
                "--double-dqn has no effect": (mb["next_target"], mb["next_target"]),
            }
            next_values, chooser = networks["right"]
            networks["the worst action is used instead of the best"] = next_values, -chooser
            one_for_all = chooser.mean(0, keepdim=True).expand_as(chooser)
            networks["one action is used as the best for all samples"] = next_values, one_for_all
            for name, (next_values, chooser) in networks.items():
                target = targets(
                    mb["reward"], mb["terminal"], next_values, chooser, trace.args.gamma
                )
                error = np.abs(value - target)
                huber = np.where(error < 1, 0.5 * error**2, error - 0.5)
                error = abs(mb["loss"] - float((huber if kind == "huber" else error**2).mean()))
                off[name] = peak(off.get(name, 0.0), error)
    worst = off.pop("right")
    if worst < 1e-3:
        return passes(f"error {worst:.1e}", "below 1e-03")
    nearest = min(off, key=off.get)
    if off[nearest] < 1e-3:
        return broken(f"error {worst:.1e}", "below 1e-03", nearest)
    question = "the loss is not computed from the batch, --gamma and both networks as in DQN"
    return differs(f"error {worst:.1e}", "below 1e-03", question)


class Draws:
    """The samples of a replay buffer, matched with the recorded steps."""

    def __init__(self, trace: Trace):
        self.trace, self.rows, self.finals = trace, {}, set()
        for k, truth in enumerate(trace.truth):
            for n, valid in enumerate(truth["valid"][0]):
                # an autoreset step starts from the last observation of the previous episode
                name = truth["obs"][0, n].tobytes()
                if valid and self.rows.get(name):
                    raise Unable("the agent cannot distinguish some of the recorded states")
                self.rows[name] = (k, n) if valid else self.rows.get(name)
                self.finals |= set() if valid else {name}
        self.batches = [(record["tick"], trace.batch(record)) for record in trace.updates]

    def find(self, batch: dict) -> list[tuple]:
        """(index in the batch, step or None, environment) of each sample."""
        names = [np.asarray(x).tobytes() for x in batch["x"]]
        return [
            (i, *(self.rows.get(name) or ("reset" if name in self.finals else None, 0)))
            for i, name in enumerate(names)
        ]


@check("Replay", of="q-learning")
def replay_rows(subject: Subject) -> Finding:
    """Every sampled observation belongs to one of the last --buffer-size steps, is complete, and is not that of an
    autoreset step."""
    return rows_drawn(subject.trace, "autoreset steps are sampled, whose actions were ignored")


def rows_drawn(trace: Trace, mistake: str) -> Finding:
    """Whether all samples are valid; `mistake` says what invalid ones mean."""
    draws = Draws(trace)
    count = {"invalid samples": 0, "broken": 0, "too old": 0, "too new": 0}
    rows = trace.args.buffer_size // trace.args.num_envs
    for tick, batch in draws.batches:
        for _, k, _ in draws.find(batch):
            name = {"reset": "invalid samples", None: "broken"}.get(k)
            if name is None:
                name = "too old" if k < tick - rows else "too new" if k >= tick else None
            if name:
                count[name] += 1
    mistakes = {
        "invalid samples": mistake,
        "broken": "a frame stack crosses an episode boundary or the end of the ring buffer, or belongs to other steps"
        if "pixels" in trace.subject.kinds
        else "sampled observations do not belong to any step",
        "too old": "a transition is read after it was overwritten",
        "too new": "a transition is read before it was written",
    }
    bad = [name for name in mistakes if count[name]]
    total = sum(len(batch["x"]) for _, batch in draws.batches)
    if count["broken"] == total:
        raise Unable("no sample of the batch is an observation of the environments")
    measured = ", ".join(f"{count[name]} {name}" for name in bad) or "all valid"
    if bad:
        return broken(f"{measured}, of {total}", "all valid", mistakes[bad[0]])
    return passes(f"{measured}, of {total}", "all valid")


def look_ahead(trace: Trace, k: int, n: int, steps: int) -> tuple | None:
    """(reward, termination, next observation) of an n-step transition from step k; None beyond the end of the run."""
    total = 0.0
    for i in range(steps):
        if k + i >= len(trace.truth):
            return None
        truth = trace.truth[k + i]
        reward, terminal, end = (part[0, n] for part in truth["learner"])
        total += trace.args.gamma**i * reward
        if end or i == steps - 1:
            return total, terminal, truth["next_obs"][0, n]
    return None


@check("Replay", of="q-learning", follows="replay-rows")
def replay_contents(subject: Subject) -> Finding:
    """Action, reward, terminal and, where it is used, the next observation of every sample match the record. Also with
    --no-bootstrap-truncation, if the file has this flag."""
    runs = [subject.trace]
    if hasattr(subject.module.Args, "bootstrap_truncation"):
        runs.append(Trace(subject, bootstrap_truncation=False, total_timesteps=260))
    found = [
        (trace, batch, i, k, n)
        for trace in runs
        for draws in [Draws(trace)]
        for _, batch in draws.batches
        for i, k, n in draws.find(batch)
        if isinstance(k, int)
    ]
    wrong, total = {}, 0
    beside = {"reward": [0, 0, 0], "own": 0}
    for trace, batch, i, k, n in found:
        truth = trace.truth[k]
        reward, terminal, _ = (part[0, n] for part in truth["learner"])
        truncated, life = truth["truncated"][0, n], truth["life_lost"][0, n]
        end = (
            "a lost life"
            if life
            else "a truncation"
            if truncated
            else "a termination"
            if terminal
            else "a step"
        )
        ours = {name: float(batch[name][i]) for name in ("action", "reward", "terminal")}
        theirs = {"action": truth["action"][0, n], "reward": reward, "terminal": terminal}
        total += 1
        for name in ours:
            if peak(ours[name] - theirs[name]) > 1e-3:
                wrong.setdefault(f"{name} of {end}", []).append(ours[name] == truth["reward"][0, n])
        next_obs = batch["next_obs"][i].numpy()
        if not terminal and not np.array_equal(next_obs, truth["next_obs"][0, n]):
            wrong.setdefault(f"next_obs of {end}", []).append(
                np.array_equal(next_obs, truth["obs"][0, n])
            )
        for place, late in enumerate((-1, 1)):
            if 0 <= k + late < len(trace.truth):
                beside["reward"][place] += (
                    abs(ours["reward"] - trace.truth[k + late]["learner"][0][0, n]) < 1e-3
                )
    if not total:
        raise Unable("no sample of the batch is an observation of the environments")
    if not wrong:
        return passes("all agree")
    measured = ", ".join(sorted(wrong))
    for steps in range(2, 11):
        ahead = [
            (batch["reward"][i], batch["terminal"][i], look_ahead(trace, k, n, steps))
            for trace, batch, i, k, n in found
        ]
        right = [
            abs(float(r) - true[0]) < 1e-3 and float(end) == true[1]
            for r, end, true in ahead
            if true
        ]
        if np.mean(right or [0]) > 0.8:
            return differs(measured, "all agree", f"the targets are {steps}-step returns")
    if any(name.startswith("action") for name in wrong):
        return broken(measured, "all agree", "actions belong to other steps")
    mistakes = {
        "terminal of a truncation": "truncation is treated as termination, or --no-bootstrap-truncation has no effect",
        "terminal of a lost life": "the value after a lost life is bootstrapped",
        "terminal of a termination": "the value after a termination is bootstrapped",
        "next_obs of a step": "the next observation belongs to another step",
        "next_obs of a truncation": "the final observation is replaced by the first one of the next episode",
        "next_obs of a lost life": "the next observation belongs to another step",
        "terminal of a step": "ordinary steps are stored as terminations",
    }
    for name, mistake in mistakes.items():
        if name in wrong:
            return broken(measured, "all agree", mistake)
    if all(flag for name in wrong for flag in wrong[name]):
        return differs(measured, "all agree", "rewards are not clipped")
    if max(beside["reward"]) > 0.9 * total:
        return broken(measured, "all agree", "rewards belong to other steps")
    return differs(measured, "all agree", "rewards are not those of the environments")


@check("Replay", of="q-learning", follows="replay-rows")
def replay_draws(subject: Subject) -> Finding:
    """In 4,000 samples after a run all transitions occur equally often, apart from the newest and the four oldest in
    the buffer."""
    trace = subject.trace
    if not trace.replays or not trace.samples:
        raise Unable("Replay.sample is not called")
    draws, (_, sample) = Draws(trace), trace.replays[0]
    (positional, named), counts = trace.samples[-1], {}
    for _ in range(40):
        result = sample(
            *([100, *positional[1:]] if positional else ()),
            **(named if positional else named | {"size": 100}),
        )
        own = result if isinstance(result, dict) else subject.loss_names
        own = [subject.loss_names.get(name, name) for name in own]
        for _, k, n in draws.find(dict(zip(own, tensors_of(result)))):
            counts[k, n] = counts.get((k, n), 0) + 1
    K, rows = len(trace.truth), min(len(trace.truth), trace.args.buffer_size // trace.args.num_envs)
    eligible = [
        (k, n)
        for k in range(K - rows + 4, K - 1)
        for n in np.flatnonzero(trace.truth[k]["valid"][0])
    ]
    found = np.array([counts.get(row, 0) for row in eligible])
    expected = found.sum() / len(eligible)
    if not expected:
        raise Unable("no sample of the replay buffer is an observation of the environments")
    excess = (((found - expected) ** 2 / expected).sum() - len(eligible)) / (
        2 * len(eligible)
    ) ** 0.5
    never = int((found == 0).sum())
    measured = f"{never} of {len(eligible)} never sampled, excess {excess:.1f} standard deviations"
    if never == 0 and excess < 6:
        return passes(measured, "0, below 6")
    if never > 0.2 * len(eligible):
        return broken(
            measured, "0, below 6", "some transitions in the replay buffer are never sampled"
        )
    return differs(measured, "0, below 6", "some transitions are sampled more often than others")
