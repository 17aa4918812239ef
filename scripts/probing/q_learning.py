"""Exact checks of Q-learning: targets, target network, exploration, replay."""

import math
from unittest.mock import patch

import numpy as np
import torch

from probing.subject import NUM_ACTIONS, Subject, Trace, check, close, largest, minibatch


def targets(reward, terminal, next_values, next_chooser, gamma: float) -> np.ndarray:
    """Targets (n,) in float64: arXiv:1509.06461 equation 4, which is DQN's where chooser and values are the same."""
    reward, terminal, values, chooser = (
        np.asarray(t, np.float64) for t in (reward, terminal, next_values, next_chooser)
    )
    return reward + gamma * (1 - terminal) * values[np.arange(len(values)), chooser.argmax(1)]


@check(
    "td_target",
    "the target is not reward + gamma x the value of the best next action, 0 after a terminal state",
    of="q-learning",
)
def td_target(subject: Subject):
    """td_target of random rewards, ends and values, as DQN's and as double DQN's, against float64."""
    module, n, worst, hint = subject.load(), 64, 0.0, None
    reward, values, other = torch.randn(n), torch.randn(n, NUM_ACTIONS), torch.randn(n, NUM_ACTIONS)
    terminal = (torch.rand(n) < 0.3).float()
    for chooser in (values, other):
        ours = module.td_target(reward, terminal, values, chooser, 0.9)
        right = targets(reward, terminal, values, chooser, 0.9)
        mistakes = {
            "a terminal state is bootstrapped": targets(reward, 0 * terminal, values, chooser, 0.9),
            "gamma is missing": targets(reward, terminal, values, chooser, 1.0),
            "the mask of terminal states is turned round": targets(
                reward, 1 - terminal, values, chooser, 0.9
            ),
            "the worst action is taken for the best": targets(
                reward, terminal, values, -chooser, 0.9
            ),
            "one action is taken for the best in all rows": targets(
                reward, terminal, values, chooser.mean(0, keepdim=True).expand_as(chooser), 0.9
            ),
            "the largest value is taken: no double DQN": targets(
                reward, terminal, values, values, 0.9
            ),
            "the networks of double DQN are swapped": targets(
                reward, terminal, chooser, values, 0.9
            ),
            "the chooser's own value is taken: no double DQN": targets(
                reward, terminal, chooser, chooser, 0.9
            ),
        }
        error = largest(ours, right)
        if not error < 1e-3:
            hint = next(
                (text for text, wrong in mistakes.items() if largest(ours, wrong) < 1e-3), hint
            )
        worst = max(worst, error)
    return *close(worst), hint


@check(
    "update",
    "the loss of the temporal-difference error, the value it is taken of, or a gradient that must not be",
    of="q-learning",
)
def td_loss(subject: Subject):
    """Slope of the loss by the value of every action, with each --loss and --double-dqn; none through the targets."""
    module, worst, where = subject.load(), 0.0, ""
    kinds = [loss for loss in ("huber", "mse") if hasattr(module.Args, "loss")] or [None]
    for double, kind in [(double, kind) for double in (False, True) for kind in kinds]:
        args = subject.args(module, double_dqn=double, **({"loss": kind} if kind else {}))
        agent, batch = minibatch(subject, module, args)
        rows, shifts = (
            len(batch["x"]),
            [torch.zeros(len(batch["x"]), NUM_ACTIONS, requires_grad=True) for _ in "abc"],
        )

        def online(obs, now=batch["x"], forward=agent.forward, shifts=shifts):
            return forward(obs) + shifts[0 if obs is now else 1]

        next_values = batch["next_values"]
        with torch.no_grad():
            values = agent(batch["x"]).double().numpy()
            chooser = agent(batch["next_obs"]) if double else next_values
        with patch.object(agent, "forward", online):
            loss = subject.loss(
                module, agent, args, batch | {"next_values": next_values + shifts[2]}
            )
        slopes = (
            torch.autograd.grad(loss, shifts, allow_unused=True)
            if loss.requires_grad
            else [None] * 3
        )
        ours, *through = (
            np.zeros_like(values) if s is None else s.double().numpy() for s in slopes
        )
        right = targets(batch["reward"], batch["terminal"], next_values, chooser, args.gamma)
        place = (np.arange(rows), batch["action"].numpy())
        error = values[place] - right
        shapes = {"huber": np.clip(error, -1, 1), "mse": 2 * error}
        cases = {}
        for name, slope in shapes.items():
            cases[name] = np.zeros_like(values)
            cases[name][place] = slope / rows
        wrong = {name: largest(rows * ours, rows * slope) for name, slope in cases.items()}
        error = wrong[kind] if kind else min(wrong.values())
        leak = max(float(np.abs(s).max()) for s in through)
        if leak > 0:
            where = "a gradient runs through the target"
        elif error > 1e-3 and not np.abs(ours).max() > 0:
            where = "no gradient reaches the values"
        elif error > 1e-3 and kind and min(wrong.values()) < 1e-3:
            where = f"--loss {kind} is not that loss"
        elif error > 1e-3 and (np.abs(ours).sum(1) > 0).all() and np.abs(ours[place]).max() < 1e-12:
            where = "the value of another action"
        worst = max(worst, error, leak)
    return *close(worst), where or None


@check("Agent", "the best action is not the one of the largest value", of="q-learning")
def greedy_action(subject: Subject):
    """Of 64 rows of random values: with epsilon 0 the argmax of its own row, with epsilon 1 every action as often."""
    module = subject.load()
    agent, x, values = (
        subject.agent(module, subject.args(module)),
        subject.observations(64),
        torch.randn(64, NUM_ACTIONS),
    )
    with torch.no_grad(), patch.object(agent, "forward", lambda obs: values):
        action, best = agent.get_action(x, 0.0), values.argmax(-1)
        counts = torch.bincount(
            torch.cat([agent.get_action(x, 1.0) for _ in range(50)]), minlength=NUM_ACTIONS
        )
    wrong = int((action != best).sum()) if action.shape == best.shape else math.inf
    share = counts.double() / counts.sum()
    off = float((share - 1 / NUM_ACTIONS).abs().max()) / (0.25 * 0.75 / 3200) ** 0.5
    measured = f"{wrong} of 64 wrong; random {off:.1f} deviations off"
    hint = "random actions are not drawn evenly" if not wrong else None
    return measured, "0; below 5.5", wrong == 0 and off < 5.5, hint


@check(
    "Agent",
    "one draw decides for all environments, or epsilon is not the share of random actions",
    of="q-learning",
)
def exploration(subject: Subject):
    """With epsilon 0.4 over 200 calls of 64 rows: the share of random actions, and that each row draws for itself."""
    module = subject.load()
    agent, x = subject.agent(module, subject.args(module)), subject.observations(64)
    fixed = torch.zeros(64, NUM_ACTIONS)
    fixed[:, 2] = 1.0
    with torch.no_grad(), patch.object(agent, "forward", lambda obs: fixed[: len(obs)]):
        random_actions = torch.stack([agent.get_action(x, 0.4) != 2 for _ in range(200)]).double()
    p = 0.4 * (1 - 1 / NUM_ACTIONS)
    off = float((random_actions.mean() - p).abs()) / (p * (1 - p) / random_actions.numel()) ** 0.5
    spread = float(random_actions.sum(1).std()) / (64 * p * (1 - p)) ** 0.5
    hint = "one draw decides for all environments" if spread > 2 else None
    measured = f"{off:.1f} deviations off, spread {spread:.2f}"
    return measured, "below 5, 1 +- 0.3", off < 5 and abs(spread - 1) < 0.3, hint


@check(
    "train",
    "epsilon does not fall linearly from --start-e to --end-e over --exploration-fraction of the steps",
    of="q-learning",
)
def epsilon_schedule(subject: Subject):
    """Epsilon at every step of the training."""
    trace = subject.trace
    right = [trace.epsilon(k) for k in range(len(trace.truth))]
    if len(right) != len(trace.epsilons):
        return f"{len(trace.epsilons)} draws for {len(right)} steps", "one for each step", False
    return close(largest(trace.epsilons, right))


@check(
    "train",
    "too many or too few updates for the steps of all environments, or they start too early or late",
    of="q-learning",
)
def update_frequency(subject: Subject):
    """One update for every --train-frequency steps, from the moment the replay holds --learning-starts, also where
    several fall due at once."""
    found = []
    for trace in (
        subject.trace,
        Trace(subject, train_frequency=3, total_timesteps=120, batch_size=2),
    ):
        args, steps, N = trace.args, [0, *trace.steps], trace.args.num_envs
        made = np.bincount(
            [record["tick"] for record in trace.updates for _ in record["norms"]],
            minlength=len(steps),
        )
        due = [0] + [after // args.train_frequency - before // args.train_frequency for before, after in
                     zip(steps, steps[1:])]  # fmt: skip
        first = int(np.flatnonzero(made)[0])
        wrong = int((made[first:] != np.array(due)[first : len(made)]).sum())
        # the rows may count with or without reset rows, and the first update comes when the next one is due
        early = first * N < args.learning_starts
        late = any(due[k] and steps[k] >= args.learning_starts for k in range(first))
        batches = (
            [mb["x"].numpy().tobytes() for mb in record["minibatches"]] for record in trace.updates
        )
        same = sum(len(set(batch)) < len(batch) for batch in batches)
        found += [f"{wrong} wrong" * bool(wrong), "too early" * early, "too late" * late]
        found += [f"one batch twice in {same} rows" * (same > 1)]
    found = ", ".join(text for text in found if text)
    return found or "as due", "as due", not found


@check(
    "train",
    "the target network is updated at the wrong steps, by another share than --tau, or is no copy",
    of="q-learning",
)
def target_network(subject: Subject):
    """After every step: moved by --tau towards the online network where --target-network-frequency steps of all
    environments are complete, and untouched everywhere else."""
    trace, steps, every = (
        subject.trace,
        [0, *subject.trace.steps],
        subject.trace.args.target_network_frequency,
    )
    missed, extra, wrong, due_ever = 0, 0, 0, 0
    if trace.target is None:
        return "no target network", "one", False
    for k in range(trace.updates[0]["tick"] - 1, len(steps) - 1):
        before, (online, after) = trace.ticks[k], trace.ticks[k + 1]
        due, moved = steps[k + 1] // every > steps[k] // every, not torch.equal(before[1], after)
        missed, extra, due_ever = (
            missed + (due and not moved),
            extra + (moved and not due),
            due_ever + due,
        )
        if due and moved:
            errors = [
                float((after - before[1].lerp(now, trace.args.tau)).abs().max())
                for now in (online, before[0])
            ]
            scale = float((online - before[1]).abs().max())
            wrong += min(errors) > 0.02 * scale
    shared = {p.data_ptr() for p in trace.online.parameters()} & {
        p.data_ptr() for p in trace.target.parameters()
    }
    hint = "the target network shares the online network's memory" if shared else None
    hint = hint or (
        "it is updated by another share than --tau" if wrong and not missed + extra else None
    )
    hint = hint or (
        "updates are lost where the count of steps jumps over a multiple"
        if missed and not extra
        else None
    )
    measured = f"{missed} of {due_ever} missed, {extra} too many, {wrong} by another share"
    return measured, "0, 0, 0", due_ever > 5 and not (missed or extra or wrong or shared), hint


@check(
    "update", "the target is not made of the batch, --gamma and the right networks", of="q-learning"
)
def loss_in_training(subject: Subject):
    """The loss of every batch of a run, with and without --double-dqn, from its tensors and both networks."""
    off = {}  # the largest error that each explanation of the targets leaves
    for trace in (subject.trace, Trace(subject, double_dqn=True, total_timesteps=260)):
        double, kind = getattr(trace.args, "double_dqn", False), getattr(trace.args, "loss", "mse")
        for mb in (mb for record in trace.updates for mb in record["minibatches"]):
            value = mb["values"].gather(1, mb["action"].long()[:, None])[:, 0].double().numpy()
            networks = {
                "right": (mb["next_target"], mb["next_online" if double else "next_target"]),
                "the networks of double DQN are swapped": (mb["next_online"], mb["next_target"]),
                "the online network values the next state": (mb["next_online"], mb["next_online"]),
                "--double-dqn changes nothing": (mb["next_target"], mb["next_target"]),
            }
            for name, (next_values, chooser) in networks.items():
                error = np.abs(
                    value
                    - targets(mb["reward"], mb["terminal"], next_values, chooser, trace.args.gamma)
                )
                huber = np.where(error < 1, 0.5 * error**2, error - 0.5)
                error = abs(mb["loss"] - float((huber if kind == "huber" else error**2).mean()))
                off[name] = max(off.get(name, 0.0), error)
    worst = off.pop("right")
    nearest = min(off, key=off.get)
    return *close(worst), nearest if worst > 1e-3 > off[nearest] else None


class Draws:
    """What a replay has returned, beside what has happened."""

    def __init__(self, subject: Subject, trace: Trace):
        self.trace, self.rows, self.finals = trace, {}, set()
        for k, truth in enumerate(trace.truth):
            for n, valid in enumerate(truth["valid"][0]):
                # a reset row shows the last observation of the episode before it
                name = truth["obs"][0, n].tobytes()
                self.rows[name] = (k, n) if valid else self.rows.get(name)
                self.finals |= set() if valid else {name}
        self.batches = [(record["tick"], record["batch"]) for record in trace.updates]

    def find(self, batch: dict) -> list[tuple]:
        """(index in the batch, step or None, environment) of each row."""
        found = []
        for i, x in enumerate(batch["x"]):
            name = x.numpy().tobytes()
            found.append(
                (i, *(self.rows.get(name) or ("reset" if name in self.finals else None, 0)))
            )
        return found


@check(
    "Replay",
    "what the replay returns is no observation of a step, or one that it should not hold any more",
    of="q-learning",
)
def replay_rows(subject: Subject):
    """Every observation drawn is that of a step among the last --buffer-size, whole, and of no reset row."""
    draws, count = (
        Draws(subject, subject.trace),
        {"reset rows": 0, "broken": 0, "too old": 0, "too new": 0},
    )
    rows = subject.trace.args.buffer_size // subject.trace.args.num_envs
    for tick, batch in draws.batches:
        for _, k, _ in draws.find(batch):
            name = {"reset": "reset rows", None: "broken"}.get(k)
            if name is None:
                name = "too old" if k < tick - rows else "too new" if k >= tick else None
            if name:
                count[name] += 1
    hints = {
        "reset rows": "reset rows are drawn: their action was ignored",
        "broken": "a stack of frames crosses the end of an episode or the seam of the ring, or is of other steps",
        "too old": "a row is read that has been overwritten",
        "too new": "a row is read before it is written",
    }
    bad = [name for name in hints if count[name]]
    total = sum(len(batch["x"]) for _, batch in draws.batches)
    measured = ", ".join(f"{count[name]} {name}" for name in bad) or "all of steps"
    return (
        f"{measured}, of {total}",
        "all of steps",
        not bad and total > 300,
        hints[bad[0]] if bad else None,
    )


@check(
    "Replay",
    "what the replay returns is not what happened: a column is shifted, or the next observation is another's",
    of="q-learning",
)
def replay_contents(subject: Subject):
    """Action, reward, terminal and, where it counts, the next observation of every row drawn; terminal also with
    --no-bootstrap-truncation."""
    wrong = {}
    runs = subject.trace, Trace(subject, bootstrap_truncation=False, total_timesteps=260)
    found = [(trace, batch, *row) for trace in runs for draws in [Draws(subject, trace)]
             for _, batch in draws.batches for row in draws.find(batch)]  # fmt: skip
    for trace, batch, i, k, n in found:
        if not isinstance(k, int):
            continue  # see replay-rows
        truth = trace.truth[k]
        reward, terminal, _ = (part[0, n] for part in truth["learner"])
        truncated, life = truth["truncated"][0, n], truth["life_lost"][0, n]
        end = (
            "a life lost"
            if life
            else "a truncation"
            if truncated
            else "a terminal state"
            if terminal
            else "a step"
        )
        ours = {name: float(batch[name][i]) for name in ("action", "reward", "terminal")}
        theirs = {"action": truth["action"][0, n], "reward": reward, "terminal": terminal}
        for name in ours:
            if abs(ours[name] - theirs[name]) > 1e-3:
                wrong.setdefault(f"{name} of {end}", []).append(ours[name] == truth["reward"][0, n])
        if not terminal and not np.array_equal(
            batch["next_obs"][i].numpy(), truth["next_obs"][0, n]
        ):
            wrong.setdefault(f"next_obs of {end}", []).append(False)
    raw = all(wrong.get("reward of a step", [False]))
    hints = {
        "terminal of a truncation": "a time limit is a terminal state where it should not be, or the other way round",
        "terminal of a life lost": "a lost life does not end the bootstrap",
        "terminal of a terminal state": "a terminal state is bootstrapped",
        "next_obs of a step": "the next observation is that of another step",
        "next_obs of a truncation": "the true final observation is lost: the next episode's first stands there",
        "reward of a step": "rewards are not clipped" if raw else "rewards of other steps",
    }
    hint = next((hints[name] for name in hints if name in wrong), None)
    return ", ".join(sorted(wrong)) or "all agree", "all agree", not wrong, hint


@check("Replay", "some rows are drawn more often than others, or never", of="q-learning")
def replay_draws(subject: Subject):
    """Of 4,000 draws after a run: how often each row comes, apart from the newest and the four oldest of the ring."""
    trace = subject.trace
    draws, replay = Draws(subject, trace), trace.replays[0]
    rows = min(len(trace.truth), trace.args.buffer_size // trace.args.num_envs)
    counts = {}
    for _ in range(40):
        batch = dict(zip(subject.loss_names, replay.sample(100)))
        for _, k, n in draws.find(batch):
            counts[k, n] = counts.get((k, n), 0) + 1
    K = len(trace.truth)
    eligible = [
        (k, n)
        for k in range(K - rows + 4, K - 1)
        for n in np.flatnonzero(trace.truth[k]["valid"][0])
    ]
    found = np.array([counts.get(row, 0) for row in eligible])
    expected = found.sum() / len(eligible)
    excess = (((found - expected) ** 2 / expected).sum() - len(eligible)) / (
        2 * len(eligible)
    ) ** 0.5
    measured = f"{int((found == 0).sum())} of {len(eligible)} never, excess {excess:.1f} deviations"
    return measured, "0, below 6", (found > 0).all() and excess < 6
