"""Exact checks for every file: optimiser steps, log, environments, evaluation and checkpoint."""

import contextlib
import copy
import itertools
import math
import random
import re
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import gymnasium as gym
import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from plainrl_tools.probing.policy import inputs_of, rows_of_batch
from plainrl_tools.probing.q_learning import rows_drawn
from plainrl_tools.probing.subject import (
    NUM_ACTIONS,
    Finding,
    Skip,
    Subject,
    Trace,
    Unable,
    broken,
    check,
    compare,
    differs,
    epsilon_after,
    largest,
    memory,
    parameters_of,
    passes,
    peak,
    rows_of,
    scores,
    seed_everything,
    witness,
)


@check("update", of="clips")
def gradient_clipping(subject: Subject) -> Finding:
    """With --max-grad-norm 0.001 no optimiser step uses a longer gradient."""
    calls, original = [], torch.nn.utils.clip_grad_norm_

    def spy(*a, **k):
        calls.append(1)
        return original(*a, **k)

    with patch.object(torch.nn.utils, "clip_grad_norm_", spy):
        updates = Trace(subject, max_grad_norm=1e-3).stepped()
    longest = peak(*(norm for record in updates for norm in record["norms"]))
    measured, expected = f"largest norm {longest:.1e}", "1.0e-03"
    if longest < 1.01e-3:
        return passes(measured, expected)
    if calls and longest > 2e-2:
        return broken(
            measured,
            expected,
            "gradients are clipped before they are computed, or to another length",
        )
    return differs(measured, expected, "the gradient is not clipped to --max-grad-norm")


@check("update")
def fresh_gradients(subject: Subject) -> Finding:
    """With a learning rate of 0 and identical samples every optimiser step uses the same gradient."""
    trace = subject.trace
    trace.stepped()
    if trace.update_call is None:
        raise Unable("the arguments of update cannot be copied")
    arguments = copy.deepcopy(trace.update_call)
    args = arguments["args"]
    for name, value in {
        "max_grad_norm": 1e9,
        "update_epochs": 8,
        "norm_adv": False,
        "target_kl": None,
    }.items():
        if hasattr(args, name):
            setattr(args, name, value)
    policy = "policy" in subject.kinds
    batch = arguments["batch"]
    first = batch.values() if isinstance(batch, dict) else batch
    rows = len(next(iter(first)))

    def repeat(tensor):
        return tensor[:1].repeat_interleave(rows if policy else 8 * args.batch_size, 0)

    same = [
        repeat(tensor) if torch.is_tensor(tensor) and len(tensor) == rows else tensor
        for tensor in first
    ]
    arguments["batch"] = dict(zip(batch, same)) if isinstance(batch, dict) else same
    norms = []

    def hook(optimizer, *_):
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * 0
        grads = [p.grad for p in parameters_of(optimizer) if p.grad is not None]
        norms.append((id(optimizer), float(sum(g.norm() ** 2 for g in grads) ** 0.5)))

    handle = register_optimizer_step_pre_hook(hook)
    try:
        for _ in range(
            1 if "ratio" in subject.kinds or not policy else 4
        ):  # an update may have a single step
            trace.names["update"](**arguments)
    finally:
        handle.remove()
    series = [
        [norm for who, norm in norms if who == one]
        for one in dict.fromkeys(who for who, _ in norms)
    ]
    if not series or max(map(len, series)) < 2:
        raise Unable(f"{len(norms)} optimiser steps in an update on {rows} samples")
    worst = peak(*(peak(*one) / max(min(one), 1e-12) for one in series))
    measured = ", ".join(f"{norm:.3g}" for norm in series[0][:6])
    if worst < 1.01:
        return passes(f"norms {measured}", "all equal")
    grows = any(
        np.corrcoef(range(len(one)), one)[0, 1] > 0.8 and one[-1] > 1.5 * one[0]
        for one in series
        if len(one) > 1
    )
    if grows:
        mistake = "gradients accumulate from step to step: zero_grad is missing or misplaced"
        return broken(f"norms {measured}", "all equal", mistake)
    return differs(
        f"norms {measured}", "all equal", "steps on identical samples use different gradients"
    )


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype):
    """Set the dtype of uint8 tensors after a division."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@check("Agent", follows="density probabilities")
def derivatives(subject: Subject) -> Finding:
    """Derivatives of the mean log-probability, the value and the entropy by every parameter: autograd equals finite
    differences in float64. Two step sizes are tried, since a step may cross the kink of a ReLU."""
    agent = subject.agent().double()
    rows = 4 if "pixels" in subject.kinds else 32
    x = subject.observations(rows)
    with torch.no_grad():
        action = (
            None
            if "q-learning" in subject.kinds
            else subject.act(copy.deepcopy(agent).float(), x)[0]
        )
    x = x.double() if x.is_floating_point() else x
    action = action.double() if action is not None and action.is_floating_point() else action

    def outputs() -> torch.Tensor:
        # a network may convert its last layers to float32, or divide uint8 by 255
        with patch.object(torch.Tensor, "float", torch.Tensor.double), default_dtype(torch.float64):
            torch.manual_seed(subject.seed)
            if action is None:
                return (agent(x) * torch.linspace(0.5, 1.5, NUM_ACTIONS)).mean(0)
            if hasattr(agent, "get_action_and_value"):  # the value that the loss receives
                _, logprob, entropy, value = agent.get_action_and_value(x, action)
            else:
                _, logprob, entropy = subject.act(agent, x, action)
                value = subject.value(agent, x)
            return torch.stack([logprob.mean(), value.mean(), entropy.mean()])

    worst, wrong = 0.0, {}
    for name, parameter in agent.named_parameters():
        if not parameter.requires_grad:
            continue
        direction = torch.randn_like(parameter)
        direction /= direction.norm()
        graph = outputs()
        ours = [
            torch.autograd.grad(output, parameter, retain_graph=True, allow_unused=True)[0]
            if output.requires_grad
            else None
            for output in graph
        ]
        ours = np.array([0.0 if grad is None else float((grad * direction).sum()) for grad in ours])
        trials = []
        for size in (1e-6, 1e-8):
            with torch.no_grad():
                parameter += size * direction
                above = outputs()
                parameter -= 2 * size * direction
                trials.append(((above - outputs()) / (2 * size)).numpy())
                parameter += size * direction
        theirs = min(trials, key=lambda trial: largest(ours, trial))
        worst = max(worst, largest(ours, theirs))
        for k, (a, b) in enumerate(zip(ours, theirs)):
            if peak(a - b) > 1e-4 * max(1, abs(b)):
                wrong.setdefault(k if action is not None else "q", []).append((name, a == 0))
    if not wrong:
        return passes(f"error {worst:.1e}", "below 1e-04")
    measured = "wrong for " + ", ".join(
        sorted({name for found in wrong.values() for name, _ in found})[:4]
    )
    if set(wrong) == {1} and all(zero for _, zero in wrong[1]) and "pixels" not in subject.kinds:
        return differs(
            measured, "none", "the gradient of the value does not reach a part of its network"
        )
    if set(wrong) == {2}:
        return differs(measured, "none", "a part of the entropy has no gradient")
    what = {0: "log-probability", 1: "value", "q": "value"}[sorted(wrong, key=str)[0]]
    return broken(measured, "none", f"a part of the {what} is detached from the computation graph")


@check("Agent", follows="derivatives")
def gradients_reach_everything(subject: Subject) -> Finding:
    """Every parameter that affects the network's output has changed by the end of the run."""
    trace = subject.trace
    first, last = (dict(agent.named_parameters()) for agent in (trace.first, trace.after))
    still = [
        name for name in first if first[name].requires_grad and torch.equal(first[name], last[name])
    ]
    if not still:
        return passes("all trained")
    agent, x = copy.deepcopy(trace.after), subject.observations(16)
    idle = []
    with torch.no_grad():
        said = subject.outputs(agent, x)
        for name, parameter in agent.named_parameters():
            if name in still:
                kept = parameter.clone()
                parameter += 0.3 * torch.randn_like(parameter)
                same = all(torch.equal(a, b) for a, b in zip(said, subject.outputs(agent, x)))
                idle += [name] if same else []
                parameter.copy_(kept)
    matter = [name for name in still if name not in idle]
    measured = "not trained: " + ", ".join(matter or idle)
    if matter:
        reached = [name for name in matter if name in trace.learned]
        mistake = (
            "the parameter has a gradient but does not change: it is not in the optimiser"
            if reached
            else "no gradient reaches the parameter"
        )
        return broken(measured, "all trained", mistake)
    return differs(measured, "all trained", "some parameters are not used")


@check("train", of="policy")
def annealing(subject: Subject) -> Finding:
    """The learning rate of every parameter in each update is linear to 0, or constant with --no-anneal-lr. In TRPO it
    is constant unless the file has --anneal-lr."""
    trace, args = subject.trace, subject.trace.args
    if not hasattr(args, "learning_rate"):
        raise Unable("the file has no flag --learning-rate")
    ours, right = [], []
    falls = getattr(args, "anneal_lr", "trust-region" not in subject.kinds)
    for record, step in zip(trace.stepped(), [0, *trace.steps]):
        if not record["lrs"]:  # gradients are accumulated over several updates
            continue
        share = 1 - step / args.total_timesteps if falls else 1.0
        ours.append(record["lrs"])
        right.append([args.learning_rate * share] * len(record["lrs"]))
    spread = any(max(lrs) > 1.001 * min(lrs) for lrs in ours if lrs)
    shown = [" and ".join(f"{lr:.2g}" for lr in dict.fromkeys(lrs)) for lrs in (ours[0], ours[-1])]
    measured, expected = " to ".join(shown), f"{right[0][0]:.2g} to {right[-1][0]:.2g}"
    if spread:
        return differs(measured, expected, "parameters have different learning rates")
    if (
        largest(
            [lrs[0] / args.learning_rate for lrs in ours],
            [lrs[0] / args.learning_rate for lrs in right],
        )
        > 1e-3
    ):
        still = all(lrs == ours[0] for lrs in ours)
        text = "stays constant" if still else "is not linear from --learning-rate to 0"
        text = text if falls else "changes"
        return differs(measured, expected, f"the learning rate {text}")
    if hasattr(args, "anneal_lr"):
        constant = {
            lr for record in Trace(subject, anneal_lr=False).updates for lr in record["lrs"]
        }
        if constant != {args.learning_rate}:
            return differs(
                f"with --no-anneal-lr {sorted(constant)[:3]}",
                f"{args.learning_rate}",
                "the learning rate changes despite --no-anneal-lr",
            )
    return passes(measured, expected)


@check("train")
def optimiser(subject: Subject) -> Finding:
    """The agent has one optimiser, Adam (A2C: RMSprop) without weight decay, for the parameters of the trained network
    only. Its state is kept between updates and saved in the checkpoint."""
    trace = subject.trace
    updates = [record for record in trace.stepped() if record["steps"]]
    for before, record in itertools.pairwise(updates):
        if record["memory"][0] != before["memory"][1]:
            return broken(
                "its state changes between updates",
                "the same state",
                "the optimiser is recreated between updates",
            )
    owned = {id(p) for one in trace.optimizers for p in parameters_of(one)}
    target = {id(p) for p in trace.target.parameters()} if trace.target is not None else set()
    if owned & target:
        return broken(
            "the target network's parameters",
            "the trained network's",
            "the optimiser trains the target network",
        )
    content = torch.load(trace.run_dir / "checkpoint.pt", weights_only=False)
    states = [value for value in content.values() if isinstance(value, dict)]
    states += [inner for state in states for inner in state.values() if isinstance(inner, dict)]
    states = [state for state in states if "param_groups" in state]
    saved = [
        [
            float(kept[key].double().sum())
            for key in sorted(kept, key=str)
            if torch.is_tensor(kept[key])
        ]
        for state in states
        for kept in state["state"].values()
    ]
    if states and any(kept not in saved for kept in memory(trace.optimizers)):
        return broken(
            "another state in the checkpoint",
            "that of the training",
            "the checkpoint holds the state of another optimiser",
        )
    if owned - {id(p) for p in trace.online.parameters()}:
        return differs(
            "other parameters",
            "the agent's",
            "the optimiser holds parameters that do not belong to the agent",
        )
    published = "RMSprop" if "n-step" in subject.kinds else "Adam"
    names = [type(one).__name__ for one in trace.optimizers]
    groups = [group for one in trace.optimizers for group in one.param_groups]
    decay = {float(group.get("weight_decay", 0)) for group in groups} - {0.0}
    if names != [published] or decay:
        extra = f" with weight decay {max(decay):g}" if decay else ""
        extra += f" with momentum {groups[0]['momentum']:g}" if groups[0].get("momentum") else ""
        return differs(
            f"{', '.join(names)}{extra}",
            published,
            f"the optimiser is {' and '.join(names)}{extra}",
        )
    return passes(f"one {published}, state kept")


LOSSES = (
    "rows-are-independent clipping policy-gradient value-loss td-loss loss-in-training first-ratio"
)


@check("train", follows=f"{LOSSES} density probabilities annealing epsilon-schedule")
def logged_losses(subject: Subject) -> Finding:
    """losses/*, charts/learning_rate and charts/epsilon equal the values recomputed from the minibatches since the last
    logged step."""
    trace, errors, pending, lasts = subject.long_trace, {}, [], {}
    finite = {name: dict(points) for name, points in trace.scalars.items()}
    updates = list(trace.updates)
    for k, step in enumerate(trace.steps):
        while updates and (
            updates[0]["tick"] == k + 1
            if "q-learning" in subject.kinds
            else updates[0] is trace.updates[min(k, len(trace.updates) - 1)]
        ):
            pending.append(losses_of(subject, trace, updates.pop(0), k))
        if not pending or step not in finite.get("charts/SPS", {}):
            continue
        right = {name: np.mean([losses[name][0] for losses in pending]) for name in pending[0]}
        right |= {
            name: pending[-1][name][0]
            for name in right
            if "explained" in name or name.startswith("charts")
        }
        last = {name: pending[-1][name][1] for name in right}
        if "q-learning" in subject.kinds:
            right["charts/epsilon"] = last["charts/epsilon"] = trace.epsilon(k)
        for name, value in right.items():
            unknown = name.startswith("charts") and math.isnan(value)  # no optimiser step
            if name in finite and not unknown:  # ignore values that the file does not log
                ours = finite[name].get(step, math.inf)
                errors.setdefault(name, []).append(abs(ours - value) / max(0.01, abs(value)))
                lasts.setdefault(name, []).append(
                    abs(ours - last[name]) / max(0.01, abs(last[name]))
                )
        pending = []
    if not errors:
        raise Unable("no logged value was found at the steps of the updates")
    bad = sorted(name for name, error in errors.items() if peak(*error) >= 0.01)
    if not bad:
        return passes("all agree")
    if all(peak(*lasts[name]) < 0.01 for name in bad):
        return differs(
            ", ".join(bad), "means over minibatches", "only the last minibatch is logged"
        )
    return differs(
        "wrong: " + ", ".join(bad),
        "all agree",
        f"{bad[0]} is not the mean of this quantity over the minibatches",
    )


def losses_of(
    subject: Subject, trace: Trace, record: dict, k: int
) -> dict[str, tuple[float, float]]:
    """What an update should log, as (mean, last value) over its minibatches. Advantages must not be standardised."""
    lists, clip_coef = {}, getattr(trace.args, "clip_coef", 0.0)
    if trace.value_call is not None:
        return losses_of_trust_region(subject, trace, record, k)
    for row in record["minibatches"]:
        mb = {
            name: v.double() if torch.is_tensor(v) else v for name, v in row.items() if name != "x"
        }
        if "q-learning" in subject.kinds:
            chosen = mb["values"].gather(1, mb["action"].long()[:, None])
            losses = {"td_loss": mb["loss"], "q_values": chosen.mean()}
        elif "ratio" in subject.kinds:
            mb["logprob"] = row["logprob"].double()
            logratio, advantage = mb["logprob"] - mb["old_logprob"], mb["advantage"]
            ratio = logratio.exp()
            clipped = ratio.clamp(1 - clip_coef, 1 + clip_coef)
            losses = {"policy_loss": -torch.min(ratio * advantage, clipped * advantage).mean()}
            losses |= {"approx_kl": (ratio - 1 - logratio).mean()}
            losses |= {"clipfrac": ((ratio - 1).abs() > clip_coef).double().mean()}
        else:
            valid = mb.get("valid", torch.ones(len(mb["target"]))) > 0
            mb = {name: tensor[valid] for name, tensor in mb.items() if torch.is_tensor(tensor)}
            losses = {"policy_loss": -(mb["logprob"] * (mb["target"] - mb["value"])).mean()}
        if "policy" in subject.kinds:
            weight = 1.0 if "n-step" in subject.kinds else 0.5  # A2C uses the whole squared error
            losses["value_loss"] = weight * ((mb["value"] - mb["target"]) ** 2).mean()
            losses["entropy"] = mb["entropy"].mean()
        for name, value in losses.items():
            lists.setdefault(name, []).append(float(value))
    means = {
        f"losses/{name}": (float(np.mean(values)), values[-1]) for name, values in lists.items()
    }
    if "policy" in subject.kinds:
        means["losses/explained_variance"] = (explained(subject, trace, k),) * 2
        means["charts/learning_rate"] = (record["lrs"][0] if record["lrs"] else math.nan,) * 2
    return means


def losses_of_trust_region(subject: Subject, trace: Trace, record: dict, k: int) -> dict:
    """The same for TRPO: the last trial of the policy's step, and the minibatches of the critic."""
    last = record["minibatches"][-1]
    ratio = (last["logprob"].double() - last["old_logprob"]).exp()
    values = [
        0.5 * (mb["value"].double() - mb["target"]) ** 2 for mb in record["value_minibatches"]
    ]
    numbers = {
        "losses/policy_loss": -(ratio * last["advantage"]).mean(),
        "losses/entropy": last["entropy"].mean(),
        "losses/kl": trace.kl(k),
        "losses/value_loss": np.mean([float(errors.mean()) for errors in values]),
        "losses/explained_variance": explained(subject, trace, k),
        "charts/learning_rate": record["lrs"][0] if record["lrs"] else math.nan,
    }
    return {name: (float(number),) * 2 for name, number in numbers.items()}


def explained(subject: Subject, trace: Trace, k: int) -> float:
    """The explained variance of the targets: 1 minus the fraction of their variance that the values leave."""
    call, result = trace.returns[k]
    valid = torch.from_numpy(trace.truth[k]["valid"])
    if (
        "values" not in call.arguments
    ):  # returns of whole episodes: use the values of the rollout's states
        with torch.no_grad():
            values = torch.from_numpy(trace.values(trace.truth[k], trace.updates[k]["agent"]))[:-1]
        targets = result.double()
    else:
        values = call.arguments["values"][:-1].double()
        targets = result + values if "gae" in subject.kinds else result.double()
    return 1 - float((targets - values)[valid].var() / targets[valid].var())


@check("update", of="ratio", follows="minibatches first-ratio rows-are-independent")
def target_kl(subject: Subject) -> Finding:
    """With --target-kl 0.0001 and 5 epochs each update stops after the first epoch whose last minibatch exceeds the
    limit."""
    if not hasattr(subject.module.Args, "target_kl"):
        raise Skip
    flags = {"target_kl": 1e-4, "update_epochs": 5, "learning_rate": 1e-3}
    trace, wrong, cut = Trace(subject, **flags), 0, 0
    per_epoch = trace.args.num_minibatches
    for record in trace.updates:
        parts = record["minibatches"]
        for epoch in range(1, 6):
            last = parts[min(epoch * per_epoch, len(parts)) - 1]
            logratio = last["logprob"].double() - last["old_logprob"].double()
            over = float((logratio.exp() - 1 - logratio).mean()) - 1e-4
            whole = len(parts) == epoch * per_epoch
            if over > 0 if abs(over) > 1e-6 else whole:  # close to the limit, rounding decides
                break
        wrong, cut = wrong + (len(parts) != epoch * per_epoch), cut + (epoch < 5)
    measured = f"{wrong} of {len(trace.updates)} updates wrong, {cut} should stop early"
    if wrong == 0 < cut:
        return passes(measured, "0 wrong, some stop early")
    if all(len(record["minibatches"]) == 5 * per_epoch for record in trace.updates):
        return differs(measured, "0 wrong, some stop early", "--target-kl has no effect")
    return differs(
        measured,
        "0 wrong, some stop early",
        "an update does not stop after the first epoch whose last minibatch exceeds --target-kl",
    )


@check("train", follows="same-seed-twice")
def evaluation_on_the_way(subject: Subject) -> Finding:
    """Intermediate evaluations do not change the final weights. They happen at the multiples of --eval-frequency, with
    the same seeds each time, and their results are logged and saved."""
    if "q-learning" in subject.kinds:  # an iteration has 1000 or 2000 steps
        every, plain, trace = 1000, subject.long_trace, subject.evaluating_trace
    else:
        every, plain = subject.trace.args.total_timesteps * 3 // 10, subject.trace
        trace = Trace(subject, eval_frequency=every)
    ours, theirs = (run.after.state_dict() for run in (trace, plain))
    if not all(torch.equal(ours[name], theirs[name]) for name in ours):
        return broken(
            "other final weights", "the same", "intermediate evaluations disturb the training"
        )
    last, summary = np.asarray(trace.evaluations[-1][2]), trace.summary
    if len(last) != trace.args.eval_episodes:
        return broken(
            f"{len(last)} episodes",
            f"{trace.args.eval_episodes}",
            "the number of evaluation episodes is not --eval-episodes",
        )
    points = trace.scalars.get("eval/episodic_return", [])
    logged = [value for _, value in points]
    saved = summary["eval_return_mean"], summary["eval_return_std"]
    errors = (
        largest(logged, [np.mean(e[2]) for e in trace.evaluations]),
        largest(saved, (np.mean(last), np.std(last))),
    )
    if max(errors) > 1e-3:
        return broken(
            "other results",
            "mean and standard deviation of the returns",
            "the logged or saved results are not those of the evaluation",
        )
    ends = (
        trace.steps
        if "policy" in subject.kinds
        else [step for step, _ in trace.scalars.get("charts/SPS", [])]
    )
    due = [
        step
        for before, step in itertools.pairwise([0, *ends])
        if step // every > before // every or step == ends[-1]
    ]
    if [step for step, _ in points] != due:
        return differs(
            f"at {[step for step, _ in points]}",
            f"{due}",
            "evaluations are not at the multiples of --eval-frequency",
        )
    best = trace.judged[1] if trace.judged else None
    groups = [
        envs for envs, _ in trace.envs if len(envs) == trace.args.eval_episodes and envs is not best
    ]
    seeds = {tuple(env.seeds[0] for env in envs if env.seeds) for envs in groups}
    if len(seeds) != 1:
        return differs(f"{len(seeds)} sets of seeds", "one set", "evaluations use different seeds")
    return passes("as expected")


@check("train", of="q-learning")
def best_model(subject: Subject) -> Finding:
    """best.pt holds the weights of the best of several evaluations, and the first one if two are equal. The score in
    the summary belongs to these weights and to new seeds."""
    if not (subject.trace.run_dir / "best.pt").exists():
        raise Skip
    # if the last model is the best, a file that always keeps the last one looks right: try another seed
    for more in range(4):
        flags = subject.long_flags | {"eval_frequency": 1000, "seed": subject.seed + more}
        trace = Trace(subject, **flags) if more else subject.evaluating_trace
        means = [float(np.mean(returns)) for _, _, returns in trace.evaluations]
        if np.argmax(means) < len(means) - 1:
            break
    (judged, _, returns), envs = trace.judged
    saved = torch.load(trace.run_dir / "best.pt", weights_only=True)["agent"]

    def is_of(weights, k: int) -> bool:
        other = trace.evaluations[k][1].state_dict()
        return all(torch.equal(other[key], weights[key]) for key in other)

    expected, measured = f"the best of {len(means)}", f"means {min(means):.2f} to {max(means):.2f}"
    best = int(np.argmax(means))
    if means[best] > means[-1] and is_of(saved, len(means) - 1):
        return broken(measured, expected, "the model of the last evaluation is saved as the best")
    if not any(is_of(saved, k) for k in range(len(means))):
        return broken(measured, expected, "best.pt holds weights that were not evaluated")
    chosen = next(k for k in range(len(means)) if is_of(saved, k))
    if means[chosen] < means[best]:
        return broken(measured, expected, "best.pt does not hold the best of the evaluated models")
    if not is_of(judged, chosen):
        return broken(
            measured, expected, "the final score belongs to another model than the one in best.pt"
        )
    seeds = [{env.seeds[0] for env in group} for group in (envs, trace.eval_envs, trace.train_envs)]
    if seeds[0] & (seeds[1] | seeds[2]):
        return broken(
            "seeds used before",
            "new seeds",
            "the best model is scored on the episodes that selected it",
        )
    if largest(trace.summary["best_returns"], returns) > 1e-6:
        return broken(
            "another score",
            "that of its episodes",
            "the best model's score in the summary is not that of its episodes",
        )
    if chosen != best:
        return differs(measured, expected, "of two equal models the later one is saved")
    return passes(measured, expected)


@check("train")
def resuming(subject: Subject) -> Finding:
    """A finished run continues with more steps. Weights, statistics, optimiser, target network and a saved replay
    buffer are kept; the learning rate and the optimiser's constants come from the new flags."""
    kept = {"save_replay": True, "norm_reward": True}
    first, wrong = Trace(subject, **kept), {}
    flags = kept | {"resume": str(first.run_dir), "runs_dir": first.args.runs_dir}
    constants = {"learning_rate": "lr", "rms_eps": "eps", "rms_alpha": "alpha", "adam_eps": "eps"}
    given = {
        name: 0.8 * getattr(first.args, name) for name in constants if hasattr(first.args, name)
    }
    more = {
        "total_timesteps": first.args.total_timesteps * 8 // 5,
        "target_network_frequency": 10_000,
    }
    after = Trace(subject, **more, **flags, **given)
    ended, record, left = final_agent(first), after.updates[0], first.updates[-1]
    # with accumulated gradients, the update at the end of a run may make no step
    begun = next((one for one in after.updates if one["steps"]), record)
    left = next((one for one in first.updates[::-1] if one["steps"]), left)
    pairs = zip(after.first.parameters(), ended.parameters())
    wrong["weights"] = not all(torch.equal(a, b) for a, b in pairs)
    start, end = (dict(agent.named_buffers()) for agent in (after.first, ended))
    same = all(torch.equal(start[name], end[name]) for name in start if name.startswith("obs_rms"))
    grown = "return_rms.count" not in start or start["return_rms.count"] >= end["return_rms.count"]
    wrong["statistics"] = not same or not bool(grown)
    wrong["optimiser state"] = begun["memory"][0] != left["memory"][1]
    seeds = [{env.seeds[0] for env in trace.train_envs if env.seeds} for trace in (first, after)]
    wrong["seeds (the first environments are repeated)"] = bool(seeds[0] & seeds[1])
    wrong["step count"] = (
        after.summary["global_step"] != first.summary["global_step"] + after.steps[-1]
    )
    if "q-learning" in subject.kinds and first.target is not None:
        wrong["target network"] = not on_the_way(after.ticks[0][1], *first.ticks[-1][::-1])
        # with a restored replay buffer, updates start at once
        wrong["replay buffer"] = hasattr(first.args, "save_replay") and record["tick"] > 3
    lost = [name for name, is_wrong in wrong.items() if is_wrong]
    if lost:
        return broken(
            "wrong: " + ", ".join(lost),
            "none",
            f"a resumed run does not continue with the right {lost[0]}",
        )
    for name, value in given.items():
        finding = constant_on_resume(first, after, name, constants[name], value)
        if finding:
            return finding
    if "q-learning" in subject.kinds and after.epsilons and after.epsilons[0] is not None:
        right = epsilon_after(after.args, first.summary["global_step"])
        if peak(float(after.epsilons[0]) - right) > 1e-3:
            return differs(
                f"epsilon {float(after.epsilons[0]):.3f}",
                f"{right:.3f}",
                "epsilon does not continue from the step count",
            )
    return passes("state kept, new flags used")


def final_agent(trace: Trace):
    """The trained agent at the end of a run: the one that was evaluated last, unless that was another agent."""
    if trace.judged:
        return trace.after
    return trace.evaluations[-1][1] if trace.evaluates_online else trace.online


def on_the_way(now: torch.Tensor, before: torch.Tensor, online: torch.Tensor) -> bool:
    """Whether a target network is unchanged, or has moved a part of the way to the online network."""
    way = online - before
    share = float((now - before) @ way / (way @ way).clamp(min=1e-12))
    return -1e-6 < share < 0.99 and largest(now, before + share * way) < 1e-5


def constant_on_resume(
    first: Trace, after: Trace, name: str, key: str, value: float
) -> Finding | None:
    """None if the optimiser has the constant that was given together with --resume."""
    left = [record for record in first.updates if record["steps"]]
    place = next((k for k, record in enumerate(after.updates) if record["steps"]), None)
    if place is None or not left:
        return None
    groups = [group for one in after.optimizers for group in one.param_groups]
    flag = "--" + name.replace("_", "-")
    if key != "lr":
        ours = [group[key] for group in groups if key in group]
        before = [
            group[key] for one in first.optimizers for group in one.param_groups if key in group
        ]
        if ours and ours == before and abs(before[0] - getattr(first.args, name)) < 1e-12:
            return broken(
                f"{key} {ours[0]:g}", f"{value:g}", f"{flag} has no effect together with --resume"
            )
        return None
    share = 1.0
    if getattr(after.args, "anneal_lr", False):
        passed = first.summary["global_step"] + [0, *after.steps][place]
        share -= passed / after.args.total_timesteps
    old, ours = getattr(first.args, name), after.updates[place]["lrs"]
    if all(abs(lr / (value * share) - 1) < 1e-2 for lr in ours):
        return None
    ends = left[-1]["lrs"]
    if all(abs(lr / (old * share) - 1) < 1e-2 for lr in ours) or ours == ends:
        return broken(
            f"learning rate {ours[0]:.3g}",
            f"{value * share:.3g}",
            f"{flag} has no effect together with --resume",
        )
    fell = ends[0] < 0.9 * left[0]["lrs"][0]
    if fell and all(abs(lr / value - 1) < 1e-2 for lr in ours):
        mistake = "the schedule of a resumed run starts from the beginning"
        return broken(f"learning rate {ours[0]:.3g}", f"{value * share:.3g}", mistake)
    return None  # the file has another schedule


@check("Args")
def flags(subject: Subject) -> Finding:
    """Each flag is read as args.NAME somewhere in the file, and still has its value after the run."""
    read = set(re.findall(r"\bargs(?:\.|, \")(\w+)", subject.file.read_text()))
    given, kept = asdict(subject.trace.given), asdict(subject.trace.args)
    if not read & set(given):
        raise Unable("the file reads no flag as args.NAME")
    for name, value in given.items():
        if kept[name] != value:
            question = f"the run changes args.{name}; a factor applied in each iteration compounds"
            return differs(f"{value} becomes {kept[name]}", f"{value}", question)
    unread = [name for name in given if name not in read]
    if unread:
        return differs(", ".join(unread), "none", f"the file never reads args.{unread[0]}")
    return passes("read and kept")


@check("make_envs")
def wrappers(subject: Subject) -> Finding:
    """Between the agent and its environments, episode ends, first observations and actions are passed on unchanged. An
    episode that does not end is not terminated within 1,000 steps."""
    rows, firsts, shown = [], [], True
    for one in subject.trace.train_envs:
        rows += [row for row in one.protocol[1:] if not row["reset"]]
        same = [largest(row["next_obs"], row["own"][-1]["next_obs"]) < 1e-6 for row in one.protocol]
        firsts.append(same[0])
        shown &= all(same[1:])
    played = [[own for own in row["own"] if not own["reset"]] for row in rows]
    both = [(row, own[-1]) for row, own in zip(rows, played) if own]
    expected, space = "none", subject.trace.train_envs[0].env.action_space

    def off(own) -> bool:
        low, high = getattr(space, "low", 0) - 1e-4, getattr(space, "high", NUM_ACTIONS - 1) + 1e-4
        return not np.all((own["action"] >= low) & (own["action"] <= high))

    mistakes = {
        "an environment is reset within the last step of an episode: use AutoresetMode.NEXT_STEP": [
            any(own["reset"] for own in row["own"][1:]) for row in rows
        ],
        "truncation is reported as termination": [
            row["terminated"] and own["truncated"] and not own["terminated"] for row, own in both
        ],
        "the environment receives actions outside its action space": [off(own) for _, own in both],
        "the first observation is not that of the environment": [
            shown and not same for same in firsts
        ],
    }
    for mistake, wrong in mistakes.items():
        if any(wrong):
            return broken(f"{sum(wrong)} of {len(wrong)}", expected, mistake)
    lost = sum(own["terminated"] and not row["terminated"] for row, own in both)
    if lost:
        return differs(
            f"{lost} of {len(both)}", expected, "terminations are reported as truncations"
        )
    if subject.trace.action_space == space:
        changed = sum(largest(row["action"], own["action"]) > 1e-3 for row, own in both)
        if changed:
            question = "the environment receives other actions than those of the agent"
            return differs(f"{changed} of {len(both)}", expected, question)
    if step := unending(subject):
        question = "a wrapper terminates episodes, whereas a time limit should set `truncated`"
        return differs(f"termination at step {step}", expected, question)
    return passes("none", expected)


@check("make_envs", of="vector", follows="wrappers")
def wrappers_reach_training(subject: Subject) -> Finding:
    """If EnvPool trains, Gymnasium's environment for the evaluation has no wrapper and no keyword argument of its own.
    A wrapper in make_env acts in the evaluation alone; one in WRAPPERS acts in both."""
    module = subject.load()
    if not hasattr(module, "choose_backend"):
        raise Skip
    env_id = "Pendulum-v1" if "continuous" in subject.kinds else "CartPole-v1"
    args = subject.args(module, env_id=env_id, env_backend="auto")
    args.env_id = env_id
    if module.choose_backend(args, evaluation=False) != "envpool":
        return passes("Gymnasium is used for both")
    make, made, keywords = gym.make, [], {}

    def spied_make(*a, **k):
        made.append(make(*a, **k))
        keywords.update(k)
        return made[-1]

    with patch.object(gym, "make", spied_make):
        envs = module.make_envs(args, "gymnasium", 1, 7)[0]
    env, own = envs.unwrapped.envs[0], []
    while env is not made[-1] and isinstance(env, gym.Wrapper):
        own.append(type(env).__name__)
        env = env.env
    envs.close()
    own = [name for name in own if name != "DropInfo"]
    own += [f"gym.make(..., {name}=...)" for name in keywords if name not in ("id", "render_mode")]
    if own:
        mistake = "EnvPool trains without what make_env adds: put wrappers into WRAPPERS and keywords into ENV_KWARGS"
        return broken(f"{', '.join(own)} in evaluation only", "the same environment", mistake)
    return passes("the same environment")


def unending(subject: Subject) -> int:
    """The step at which an episode that does not end is terminated, or 0."""
    module, backend = subject.load(), [] if "pixels" in subject.kinds else ["gymnasium"]
    args = subject.args(module, env_id="ProbeUnending-v0")
    envs = module.make_envs(args, *backend, 1, 7)[0]
    space = envs.single_action_space
    action = np.zeros((1, *space.shape), space.dtype)
    ends = (step for step in range(1, 1001) if envs.step(action)[2].any())
    first = next(ends, 0)
    envs.close()
    return first


@check("train", follows="reset-rows wrappers")
def logging(subject: Subject) -> Finding:
    """Logged returns and lengths match the record of the environments: raw rewards, no autoreset steps, the last step
    of an episode included. The run ends at --total-timesteps."""
    finding = logged(subject, "raw")
    if finding.verdict != "passes" and logged(subject, "reward").verdict == "passes":
        return differs(finding.measured, finding.expected, WRAPPED)
    return finding


WRAPPED = (
    "returns are computed from rewards that a wrapper changed instead of the environment's own"
)


def logged(subject: Subject, rewards: str) -> Finding:
    """Compare the log with the raw rewards in the record, or with those that the file's wrappers made of them."""
    trace = subject.trace if "ratio" in subject.kinds else subject.long_trace
    episodes, pending, waiting, wrong = [], [], 0, []
    longest = (
        0 if "ratio" in subject.kinds else 2000
    )  # steps after which an episode must have been logged
    totals = np.zeros((2, trace.args.num_envs))
    at = {
        name: dict(trace.scalars.get(f"charts/episodic_{name}", []))
        for name in ("return", "length")
    }
    for truth, steps in zip(trace.truth, trace.steps):
        for t, valid in enumerate(truth["valid"]):
            totals += np.stack([truth[rewards][t] * valid, valid])
            for n in np.flatnonzero(np.maximum(truth["terminated"][t], truth["truncated"][t])):
                pending.append(tuple(totals[:, n]))
                totals[:, n] = 0
        waiting += int(truth["valid"].sum())
        last = steps == trace.steps[-1]
        due = (
            any(steps in at[name] for name in at) or waiting > longest + trace.args.num_envs or last
        )
        if pending and due:
            recent = np.mean((episodes + pending)[-100:], axis=0)
            for i, name in enumerate(("return", "length")):
                ours, means = at[name].get(steps, math.nan), np.mean(pending, axis=0)
                if not abs(ours - means[i]) < 1e-3:
                    one = any(abs(ours - episode[i]) < 1e-3 for episode in pending)
                    choice = "only one of the finished episodes is logged" if one else ""
                    if abs(ours - recent[i]) < 1e-3:
                        choice = "the mean of the last 100 episodes is logged"
                    wrong.append((choice, f"{name} {ours:.3f} at step {steps}", f"{means[i]:.3f}"))
            episodes, pending, waiting = episodes + pending, [], 0
    logged = trace.summary["global_step"]
    if logged != trace.steps[-1]:
        counts = sum(truth["valid"].size for truth in trace.truth) == logged
        return broken(
            f"global_step {logged}",
            f"{trace.steps[-1]}",
            "autoreset steps are counted"
            if counts
            else "global_step is not the number of the agent's steps",
        )
    before, after = [0, *trace.steps][-2:]
    if not before < trace.args.total_timesteps <= after:
        question = "the run does not end at the first step that reaches --total-timesteps"
        return differs(f"{after} steps", f"{trace.args.total_timesteps}", question)
    last100 = np.mean(episodes[-100:], axis=0)[0]
    if wrong and all(choice for choice, *_ in wrong):
        return differs(wrong[0][1], wrong[0][2], wrong[0][0])
    if wrong:
        return broken(
            wrong[0][1],
            wrong[0][2],
            "logged returns or lengths are not those of the environments",
        )
    ours = trace.summary["train_return_last100"]
    if ours is None or not abs(ours - last100) < 1e-3:
        return broken(
            f"train_return_last100 {ours}",
            f"{last100:.3f}",
            "train_return_last100 is not the mean return of the last 100 episodes",
        )
    return passes("all agree")


@check("train", of="bootstrap")
def no_resets_between_rollouts(subject: Subject) -> Finding:
    """An environment is reset once at the start, and later only after the end of an episode."""
    cut = 0
    for env in subject.trace.train_envs:
        for before, row in itertools.pairwise(env.protocol):
            cut += row["reset"] and not (before["terminated"] or before["truncated"])
    if cut:
        return broken(
            f"{cut} episodes cut",
            "0",
            "environments are reset between rollouts, so unfinished episodes are lost",
        )
    return passes("0 episodes cut", "0")


@check("make_envs")
def seeds(subject: Subject) -> Finding:
    """The environments of training and evaluation, and those of a run with another --seed, have no seed in common."""
    trace, other = subject.trace, Trace(subject, seed=subject.seed + 1, total_timesteps=130)
    train, test, again, test_again = (
        [env.seeds[0] if env.seeds else None for env in envs]
        for one in (trace, other)
        for envs in (one.train_envs, one.eval_envs)
    )
    wrong = []
    if None in {*train, *test} or len({*train}) < len(train) or len({*test}) < len(test):
        wrong.append("environments have the same seed, or none")
    if any(len(env.seeds) > 1 for env in trace.train_envs):
        wrong.append("environments are seeded more than once")
    greedy = [env.seeds[0] for env in trace.greedy[1] if env.seeds] if trace.greedy else []
    if {*train} & {*test, *greedy}:
        wrong.append("evaluation and training share seeds")
    if wrong:
        return broken("; ".join(wrong), "all different", wrong[0])
    if {*train} & {*again, *test_again} or {*test} & {*again}:
        question = "two values of --seed share environment seeds"
        return differs("some are equal", "all different", question)
    if {*test} & {*test_again}:
        question = "two values of --seed share evaluation seeds"
        return differs("some are equal", "all different", question)
    return passes("all different")


@check("make_envs")
def statistics_of_wrappers(subject: Subject) -> Finding:
    """Environments that were used before and new ones give the same observations and rewards after the same seed."""
    module, backend = subject.load(), [] if "pixels" in subject.kinds else ["gymnasium"]
    args, seen = subject.args(module, env_id="ProbeShown-v0"), []
    for steps in (40, 0):
        envs = module.make_envs(args, *backend, 4, 7)[0]
        space = envs.single_action_space
        action = np.zeros((4, *space.shape), space.dtype)
        for _ in range(steps):
            envs.step(action)
        obs, _ = envs.reset(seed=11)
        seen.append((rows_of(obs, flat=True), envs.step(action)[1]))
        envs.close()
    error = max(largest(*pair) for pair in zip(*seen))
    if error < 1e-3:
        return passes(f"error {error:.1e}", "below 1e-03")
    question = "a wrapper keeps a state that no reset restores, such as statistics: evaluations and resumed runs "
    question += "start without this state"
    return differs(f"error {error:.1e}", "below 1e-03", question)


@check("train")
def same_seed_twice(subject: Subject) -> Finding:
    """Two runs with one seed end with the same evaluation and the same weights, bit for bit. No random generator
    returns to an earlier state during the training."""
    for states in subject.trace.generators:
        states = [state for state, _ in itertools.groupby(states)]
        if again := len(states) - len(set(states)):
            mistake = "a random generator is seeded during the run, so it repeats its numbers"
            return broken(f"{again} of {len(states)} states repeated", "none", mistake)
    states = []
    for _ in range(2):
        random.seed()
        np.random.seed()
        torch.seed()
        module = subject.load()
        noise = {"rpo_alpha": 0.5, "amplitude_low": 0.5, "amplitude_high": 1.5, "int_coef": 1.0}
        args = subject.args(module, **noise)
        summary = subject.train(module, args)
        (run,) = Path(args.runs_dir).iterdir()
        weights = torch.load(run / "checkpoint.pt", weights_only=False)["agent"]
        weights = weights if isinstance(weights, dict) else weights.state_dict()
        states.append((summary["eval_returns"], summary["train_return_last100"], weights))
    same = states[0][:2] == states[1][:2] and all(
        torch.equal(states[0][2][k], states[1][2][k]) for k in states[0][2]
    )
    return (
        passes("equal")
        if same
        else broken(
            "different", "equal", "the file uses a random generator that --seed does not set"
        )
    )


@check("evaluate")
def evaluation_is_frozen(subject: Subject) -> Finding:
    """Weights and statistics are the same before and after an evaluation."""
    changed = set()
    for before, after, _ in subject.trace.evaluations:
        changed |= {
            name
            for name, tensor in after.state_dict().items()
            if not torch.equal(tensor, before[name])
        }
    if changed:
        return broken(
            "changed: " + ", ".join(sorted(changed)),
            "unchanged",
            "the evaluation changes the agent: statistics and weights must be frozen",
        )
    return passes("unchanged")


@check("evaluate")
def evaluation_returns(subject: Subject) -> Finding:
    """Returns and actions of the evaluation match the record: the first episode of each environment, with deterministic
    (mode) actions, also of an agent with large means. The log and the summary contain these returns."""
    trace = subject.trace
    _, agent, ours = trace.evaluations[-1]
    steps = []
    evaluations = [(ours, trace.eval_envs, "eval_returns", "eval/episodic_return")]
    if trace.greedy:
        evaluations.append((*trace.greedy, "eval_greedy_returns", "eval/greedy_return"))
    for returns, envs, key, tag in evaluations:
        returns = np.asarray(returns).tolist()
        firsts = [first_episode(env.protocol) for env in envs]
        steps = steps or sum(firsts, [])
        error, wrapped = (
            largest(sorted(returns), sorted(sum(row[of] for row in rows) for rows in firsts))
            for of in ("raw", "reward")
        )
        if error > 1e-3:
            measured, expected = f"returns off by {error:.1e}", "below 1e-03"
            if wrapped < 1e-3:
                return differs(measured, expected, WRAPPED)
            mistake = "the results are not the raw returns of each environment's first episode"
            return broken(measured, expected, mistake)
        lasts = [rows[-1] for rows in firsts]
        if not all(row["terminated"] or row["truncated"] for row in lasts):
            return broken(
                "unfinished episodes", "complete episodes", "the evaluation stops too early"
            )
        written = trace.summary.get(key), [value for _, value in trace.scalars.get(tag, [])][-1:]
        for name, values in zip((key, tag), written):
            if values and largest(np.mean(values), np.mean(returns)) > 1e-3:
                verdict = broken if name == key else differs  # the log may use another mean
                text = f"{name} is not what evaluate() returned"
                return verdict(f"{np.mean(values):.3f}", f"{np.mean(returns):.3f}", text)
    if "draws" in subject.kinds and "atari" in subject.kinds:
        return passes("returns agree")
    if not trace.evaluates_online and not trace.judged:
        question = "evaluate() gets another agent than update(), such as one with averaged weights"
        return differs("another agent", "the trained agent", question)
    findings = [judge_actions(subject, agent, steps)]
    if hasattr(agent, "actor_mean"):  # of a new agent, which has means far from 0
        agent = subject.agent()
        findings.append(judge_actions(subject, agent, play(subject, agent), "large "))
    return next((one for one in findings if one.verdict != "passes"), findings[0])


def play(subject: Subject, agent) -> list[dict]:
    """The steps of an evaluation of this agent, in new environments."""
    module, number = subject.trace.module, subject.trace.args.eval_episodes
    backend = [] if "pixels" in subject.kinds else ["gymnasium"]
    envs, obs, *_ = module.make_envs(subject.args(module), *backend, number, 7)
    games = witness(envs, obs, hasattr(module, "flatten"))
    subject.trace.names["evaluate"](agent, envs, obs)
    return sum((first_episode(env.protocol) for env in games), [])


def judge_actions(subject: Subject, agent, steps: list[dict], what: str = "") -> Finding:
    """Compare an evaluation's actions with the policy's mode."""
    obs, ours = (np.stack([row[name] for row in steps]) for name in ("obs", "action"))
    with torch.no_grad():
        right, mistakes = subject.best(agent, obs), {}
        if hasattr(agent, "actor_mean"):
            mean = agent.actor_mean(subject.seen(agent, obs))
            text = "the evaluation squashes actions once more than the training"
            mistakes = {text: agent.to_env(mean.tanh())} if what else {}
    question = f"the {what}actions of the evaluation are not deterministic (the policy's mode)"
    finding = compare(ours, right, mistakes, {}, question)
    if finding.verdict == "passes":
        return passes("returns and actions agree")
    again = []
    for seed in (1, 2):
        seed_everything(subject.seed + seed)
        again.append([row["action"] for row in play(subject, agent)])
    if finding.verdict == "differs" and largest(*again) < 1e-3:
        question = f"the {what}actions of the evaluation are deterministic, but not those of the trained network "
        question += "(its mode), as with averaged weights"
        return differs(f"actions off by {finding.measured[6:]}", finding.expected, question)
    return finding


def first_episode(protocol: list[dict]) -> list[dict]:
    """The steps of the first episode in an environment's record."""
    ends = [i for i, row in enumerate(protocol) if row["terminated"] or row["truncated"]]
    return protocol[1 : ends[0] + 1 if ends else None]


@check("evaluate", of="draws", follows="evaluation-returns")
def evaluation_actions(subject: Subject) -> Finding:
    """Over 400 steps the evaluation samples from the policy. In Q-learning it is epsilon-greedy with --eval-e, and the
    greedy evaluation of Atari's policies is epsilon-greedy with 1 %."""
    if "q-learning" in subject.kinds:
        return played(subject, 0.3, "--eval-e implies")
    finding = played(subject, None, "samples from the policy would have")
    if finding.verdict != "passes" or not hasattr(subject.module.Agent, "get_greedy_action"):
        return finding
    return played(subject, 0.01, "epsilon = 0.01 implies", greedy=True)


def played(subject: Subject, epsilon: float | None, what: str, **how) -> Finding:
    """Compare the evaluation's actions with epsilon-greedy ones, or with samples from the policy if epsilon is None."""
    module = subject.trace.module
    agent = subject.agent(eval_episodes=100, eval_e=epsilon)
    args = subject.args(module, eval_episodes=100, eval_e=epsilon)
    if hasattr(agent, "args"):
        agent.args = args
    backend = [] if "pixels" in subject.kinds else ["gymnasium"]
    envs, obs, *_ = module.make_envs(args, *backend, 100, 7)
    games = witness(envs, obs, hasattr(module, "flatten"))
    subject.trace.names["evaluate"](agent, envs, obs, **how)
    rows = [row for env in games for row in env.protocol[1:] if not row["reset"]][:400]
    off = variance = 0.0
    for i in range(0, len(rows), 50):
        part = rows[i : i + 50]
        action = torch.tensor([int(row["action"]) for row in part])
        with torch.no_grad():
            seen = subject.seen(agent, np.stack([row["obs"] for row in part]))
            said = subject.outputs(agent, seen)[0].double()
        if epsilon is not None:
            right = 1 - epsilon + epsilon / NUM_ACTIONS
            off += float((action == said.argmax(-1)).double().sum()) - right * len(part)
            variance += right * (1 - right) * len(part)
        else:
            p = said.exp()
            mean = (p * said).sum(-1)
            off += float((said.gather(1, action[:, None])[:, 0] - mean).sum())
            variance += float((p * (said - mean[:, None]) ** 2).sum())
    deviations = off / variance**0.5
    measured = f"off by {deviations:+.1f} standard deviations"
    if abs(deviations) < 5:
        return passes(measured, "below 5")
    more = "more greedy actions than" if deviations > 0 else "fewer greedy actions than"
    which = "greedy evaluation" if how else "evaluation"
    return differs(measured, "below 5", f"the {which} has {more} {what}")


@check("train")
def checkpoint(subject: Subject) -> Finding:
    """The checkpoint loads with weights_only=True into a new agent, whose actions and values equal those of the trained
    one."""
    trace = subject.trace
    try:
        content = torch.load(trace.run_dir / "checkpoint.pt", map_location="cpu", weights_only=True)
    except Exception as error:
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
        scalar = "numpy" in str(error) and "scalar" in str(error)
        mistake = (
            "a NumPy number is saved, which --resume cannot load: convert it to a float"
            if scalar
            else ""
        )
        mistake = (
            mistake
            or "a pickled module or another object is saved, which can run code when it is loaded"
        )
        return broken(words, "loads", mistake + " (tensors and plain data are safe)")
    if "agent" not in content:
        raise Unable("the checkpoint has no entry named agent")
    weights, other = content["agent"], content.get("target_agent")
    copied, target = subject.new_agent(), subject.new_agent()
    try:
        copied.load_state_dict(weights)
        if trace.target is not None:
            target.load_state_dict(other or {})
    except RuntimeError as error:
        return broken(
            f"RuntimeError: {' '.join(str(error).split())}",
            "loads",
            "the checkpoint does not contain everything that the agent needs",
        )
    final = final_agent(trace)
    obs = subject.observations(20)
    with torch.no_grad():
        said = [subject.outputs(agent, obs) for agent in (copied, final)]
    error = max(largest(*pair) for pair in zip(*said))
    buffers = [dict(agent.named_buffers()) for agent in (copied, final)]
    error = max(
        [
            error,
            *(
                largest(buffers[0][name], buffers[1][name])
                for name in buffers[0]
                if name in buffers[1]
            ),
        ]
    )
    if hasattr(final, "normalize"):  # also with statistics that are not in a buffer
        error = max(error, largest(*(agent.normalize(5 * obs) for agent in (copied, final))))
    if trace.target is not None:
        error = max(error, largest(scores(target), trace.ticks[-1][1]))
    if error > 1e-3:
        return broken(
            f"error {error:.1e}",
            "below 1e-03",
            "the checkpoint does not hold the trained agent",
        )
    return passes(f"error {error:.1e}", "below 1e-03")


@check("make_envs", of="atari")
def atari_settings(subject: Subject) -> Finding:
    """The settings of AtariVectorEnv, for an id without frame skip and for one that skips 4 frames. An evaluation plays
    whole games."""
    module, wrong, serious = subject.load(), [], ""
    greedy = subject.trace.greedy[1] if subject.trace.greedy else []
    if any(env.env.settings.get("episodic_life") for env in [*subject.trace.eval_envs, *greedy]):
        return broken(
            "episodic_life True", "False", "an evaluation episode ends with the first lost life"
        )
    args = subject.args(module)
    for env_id in (args.env_id, "ALE/Breakout-v5"):
        args.env_id = env_id
        envs = module.make_envs(args, 3, 5)[0].unwrapped
        spec, defaults = gym.spec(env_id).kwargs, ATARI_DEFAULTS | envs.settings
        right = ATARI_DEFAULTS | {"game": spec["game"], "frameskip": 4, "reward_clipping": False}
        right |= {
            name: spec[name] for name in ("repeat_action_probability", "max_num_frames_per_episode")
        }
        # ale-py's FIRE comes before the no-ops, which use up much of the first life; the published one comes after them
        right["use_fire_reset"] = not getattr(args, "fire_on_life_loss", False)
        for name in right:
            if defaults.get(name) != right[name]:
                wrong.append(f"{name} {defaults.get(name)} for {env_id}")
        serious = serious or "the environment clips the rewards, so raw returns are lost" * (
            defaults["reward_clipping"] is True
        )
        serious = serious or "frames are skipped twice or not at all" * (defaults["frameskip"] != 4)
        serious = serious or "the number of environments is wrong" * (envs.num_envs != 3)
    if serious:
        return broken("; ".join(wrong[:2]), "the published settings", serious)
    if wrong:
        return differs(
            "; ".join(wrong[:2]),
            "the published settings",
            f"AtariVectorEnv is created with {wrong[0]}",
        )
    return passes("the published settings")


ATARI_DEFAULTS = {
    "reward_clipping": True,
    "episodic_life": False,
    "frameskip": 4,
    "repeat_action_probability": 0.0,
    "full_action_space": False,
    "maxpool": True,
    "grayscale": True,
    "stack_num": 4,
    "noop_max": 30,
    "img_height": 84,
    "img_width": 84,
    "use_fire_reset": True,
    "max_num_frames_per_episode": 108_000,
}


@check("train", of="atari", follows="reset-rows replay-rows gae-inputs")
def first_steps_of_lives(subject: Subject) -> Finding:
    """In a game with FIRE each life begins with a no-op (after a lost life), FIRE and action 2. These steps are neither
    trained on nor counted."""
    if not hasattr(subject.module.Args, "fire_on_life_loss"):
        raise Skip
    both = {"fire_on_life_loss": True, "terminal_on_life_loss": True}
    trace = Trace(subject, env_id="ProbeFire-v0", num_steps=32, **both)
    for env in (*trace.train_envs, *trace.eval_envs):
        rows = [row for row in env.protocol if row["script"] is not None]
        got = [int(row["own"][-1]["action"]) for row in rows]
        if got != (due := [row["script"] for row in rows]):
            question = "a life does not begin with a no-op (after a lost life), FIRE and action 2"
            return differs(f"{got[:5]}...", f"{due[:5]}...", question)
    mistake = (
        "the first steps of lives are trained on, although the agent did not choose their actions"
    )
    judge = rows_drawn if "q-learning" in subject.kinds else rows_of_batch
    finding = judge(trace, mistake)
    if finding.verdict == "passes" and "policy" in subject.kinds:
        finding = inputs_of(subject, trace)
    steps, counted = trace.steps[-1], trace.summary["global_step"]
    if finding.verdict == "passes" and counted != steps:
        return broken(
            f"global_step {counted}", f"{steps}", "the forced first steps of lives are counted"
        )
    return finding


@check("Agent", of="pixels")
def convolutions(subject: Subject) -> Finding:
    """Every convolution of the network equals PyTorch's own with the same weights. The first one receives values
    between -2 and 2, not all below 0.1, in the order of the image."""
    errors, ranges, seen = [], [], []
    agent, pictures = subject.agent(), subject.observations(2)

    def compare(layer, inputs, output):
        x = inputs[0] if inputs[0].is_floating_point() else inputs[0].float() / 255
        ranges.append(peak(x))
        seen.append(x)
        theirs = torch.nn.Conv2d._conv_forward(
            layer, x.to(layer.weight.dtype), layer.weight, layer.bias
        )
        errors.append(largest(output, theirs))

    for layer in agent.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.register_forward_hook(compare)
    with torch.no_grad():
        subject.outputs(agent, pictures)
    if not errors:
        raise Skip
    measured = f"error {max(errors):.1e}, input up to {ranges[0]:.3g}"
    expected = "below 1e-03, 0.1 to 2"
    if max(errors) > 1e-3:
        return broken(
            measured,
            expected,
            "a custom convolution gives other results: check its scale, kernel, stride and order",
        )
    if ranges[0] > 2:
        return broken(measured, expected, "images are not divided by 255")
    if ranges[0] < 0.1:
        return broken(measured, expected, "images are divided by 255 twice")
    ours, theirs = seen[0].double() / ranges[0], pictures.double() / pictures.max()
    same = [largest(*(rows.flatten().sort()[0] for rows in (ours, theirs))), largest(ours, theirs)]
    if same[0] < 1e-3 < same[1]:
        question = "the first convolution receives the pixels in another order"
        return differs(measured, "the image", question)
    return passes(measured, expected)
