"""Exact checks of random amplitude scaling of observations, in RAD (trains on scaled observations) and DrAC (keeps its
outputs unchanged under scaling)."""

import copy

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from plainrl_tools.probing.subject import (
    Call,
    Finding,
    Subject,
    Trace,
    Unable,
    broken,
    check,
    compare,
    differs,
    gaussian_kl,
    gradient,
    largest,
    nearest,
    passes,
    peak,
    sketch,
)

LOW, HIGH = 0.5, 1.5
WIDE = {"amplitude_low": LOW, "amplitude_high": HIGH}
HALF = {"amplitude_low": 0.5, "amplitude_high": 0.5}  # a fixed factor: nothing is random


def judge_factors(groups: list, of: str) -> Finding:
    """The factors of the samples of each rollout or minibatch are uniform between LOW and HIGH, and independent for
    each sample."""
    factors = np.concatenate(groups)
    middle, spread = (LOW + HIGH) / 2, (HIGH - LOW) / 12**0.5
    measured = (
        f"{factors.min():.2f} to {factors.max():.2f}, {factors.mean():.2f} +- {factors.std():.2f}"
    )
    expected = f"{LOW:.2f} to {HIGH:.2f}, {middle:.2f} +- {spread:.2f}"
    if np.ptp(factors) < 1e-3:
        return differs(measured, expected, "all observations have the same factor")
    if any(np.ptp(group) < 1e-3 for group in groups):
        return broken(measured, expected, f"one factor is used for a whole {of}")
    if len(np.unique(factors.round(4))) < 0.8 * len(factors):
        return differs(measured, expected, f"the factors of one {of} are reused in another")
    off = peak(factors.mean() - middle) > 5 * spread / len(factors) ** 0.5
    off |= peak(factors.std() / spread - 1) > 0.2
    if off or factors.min() < LOW - 1e-3 or factors.max() > HIGH + 1e-3:
        question = "the factors are not uniform between --amplitude-low and --amplitude-high"
        return differs(measured, expected, question)
    return passes(measured, expected)


# ---- RAD


@check("train", of="continuous rad", follows="first-ratio")
def scaled_ratio(subject: Subject) -> Finding:
    """With factors between 0.5 and 1.5 the ratio in the first minibatch is 1: the update uses the same scaled
    observations as the rollout."""
    worst = 0.0
    for record in Trace(subject, **WIDE).updates:
        mb = record["minibatches"][0]
        worst = peak(worst, (mb["logprob"] - mb["old_logprob"]).exp() - 1)
    measured, expected = f"ratio 1 +- {worst:.1e}", "1 +- 1e-03"
    if worst < 1e-3:
        return passes(measured, expected)
    mistake = "the update uses other factors than the rollout, or the rollout uses none"
    return broken(measured, expected, mistake)


@check("train", of="continuous rad", follows="scaled-ratio reset-rows")
def amplitudes(subject: Subject) -> Finding:
    """With factors between 0.5 and 1.5 each sample in the batch is the standardised observation times a factor. The
    factors are uniform, independent for each sample, and new in each rollout."""
    trace, groups, lost, total = Trace(subject, **WIDE), [], 0, 0

    def unit(rows: np.ndarray) -> np.ndarray:
        return rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-9)

    # skip the first rollout: without statistics, some observations have the same direction
    for record, expected in list(zip(trace.updates, trace.expected))[1:]:
        ours, plain = sketch(trace.batch(record)["x"]), expected["x"]
        places = nearest(unit(plain), unit(ours))
        here = places >= 0
        lost, total = lost + int((~here).sum()), total + len(here)
        lengths = np.linalg.norm(ours[places[here]], axis=1)
        groups.append(lengths / np.linalg.norm(plain[here], axis=1).clip(1e-9))
    if lost > 0.02 * total:
        question = "a sample is not the standardised observation times a factor"
        return differs(f"{lost} of {total} samples have another direction", "none", question)
    return judge_factors(groups, "rollout")


@check("train", of="bootstrap continuous rad", follows="gae-inputs scaled-ratio")
def scaled_values(subject: Subject) -> Finding:
    """With a factor of 0.5 the values of the whole rollout and of the state after it are those of halved
    observations."""
    trace = Trace(subject, **HALF)
    cases = {name: [] for name in ("ours", "right", "plain", "last")}
    for (call, _), truth, record in zip(trace.returns, trace.truth, trace.updates):
        if "values" not in call.arguments:
            raise Unable(
                f"{subject.returns_name} takes {', '.join(call.arguments)}: keep the original names"
            )
        both = np.concatenate([truth["obs"], truth["next_obs"][-1:]])
        x, valid = subject.seen(record["agent"], both), truth["valid"]
        with torch.no_grad():
            plain, right = (
                subject.value(record["agent"], f * x).double().numpy() for f in (1, 0.5)
            )
        edge = np.concatenate([valid, valid[-1:]]) | np.concatenate([valid[:1], valid])
        last = np.concatenate([right[:-1], plain[-1:]])
        ours = call.arguments["values"].double().numpy()
        for name, values in zip(cases, (ours, right, plain, last)):
            cases[name].append(values[edge])
    ours, right, plain, last = (np.concatenate(cases[name]) for name in cases)
    choices = {
        "the values are those of unscaled observations": plain,
        "the value after the rollout is that of an unscaled observation": last,
    }
    return compare(ours, right, {}, choices, "the values are not those of scaled observations")


# ---- RAD and DrAC


@check("evaluate", of="amplitude continuous", follows="evaluation-returns observation-statistics")
def plain_elsewhere(subject: Subject) -> Finding:
    """With a factor of 0.5 the statistics, the evaluation and DrAC's PPO loss use unscaled observations."""
    trace, seen = Trace(subject, **HALF), []
    agent, played = trace.evaluations[-1][1], []
    for env in trace.eval_envs:
        played += [row for row in env.protocol[1:] if not row["reset"]]
    x = subject.seen(agent, np.stack([row["obs"] for row in played]))
    ours = np.stack([row["action"] for row in played])
    with torch.no_grad():
        plain, half = (agent.to_env(agent.actor_mean(f * x)) for f in (1, 0.5))
    mistakes = {"the evaluation uses scaled observations": half}
    question = "the actions of the evaluation are not deterministic (the policy's mode)"
    findings = [compare(ours, plain, mistakes, {}, question)]
    if hasattr(agent, "obs_rms"):
        means = {name: [] for name in ("ours", "right")}
        for record, truth in zip(trace.updates, trace.truth):
            if seen:
                means["ours"].append(record["agent"].obs_rms.mean.double().numpy())
                means["right"].append(np.concatenate(seen).mean(0))
            seen.append(truth["obs"][truth["valid"]])
        ours, right = (np.stack(means[name]) for name in means)
        mistakes = {"scaled observations enter the normaliser's statistics": right / 2}
        question = "the normaliser's mean is not that of all observations so far"
        findings.append(compare(ours, right, mistakes, {}, question))
    for record, expected in zip(trace.updates, trace.expected):
        rows = sketch(trace.batch(record)["x"])
        if "drac" in subject.kinds and (nearest(expected["x"], rows) < 0).any():
            findings.append(
                broken("scaled observations", "unscaled", "the PPO loss uses scaled observations")
            )
    findings.sort(key=lambda finding: finding.verdict == "passes")
    return findings[0]


# ---- DrAC


class Once:
    """Call update again with the probe's own agent and a PPO loss whose derivatives are 0. Record the inputs of the
    networks for each minibatch, and the gradient of the first step."""

    def __init__(self, subject: Subject, **flags):
        call = copy.deepcopy(subject.trace.update_call)
        if call is None or not {"agent", "args", "batch", "loss_fn"} <= set(call):
            raise Unable("update has no arguments agent, args, batch and loss_fn")
        agent, args, loss_fn = call["agent"], call["args"], call["loss_fn"]
        if not (hasattr(agent, "actor_mean") and hasattr(agent, "critic")):
            raise Unable("the agent has no actor_mean and critic")
        none = {"vf_coef": 0.0, "ent_coef": 0.0, "max_grad_norm": 1e9, "target_kl": None}
        for name, value in (none | {"norm_adv": False, "num_minibatches": 1} | flags).items():
            setattr(args, name, value)
        agent.args = args
        agent.load_state_dict(subject.agent().state_dict())
        batch = subject.changed(call["batch"], "advantage", torch.zeros_like)
        self.minibatches, self.inputs, self.gradient = [], [], None
        x = next(own for own, name in subject.loss_names.items() if name == "x")

        def loss(*a, **k):
            self.minibatches.append(Call(loss_fn, a, k).arguments[x].clone())
            return loss_fn(*a, **k)

        def before_step(*_):
            if self.gradient is None:
                parts = [p.grad for p in agent.parameters()]
                pairs = zip(parts, agent.parameters())
                flat = [torch.zeros_like(p) if grad is None else grad for grad, p in pairs]
                self.gradient = torch.cat([part.flatten() for part in flat]).double()

        def before_network(module, given):
            self.inputs.append((len(self.minibatches) - 1, given[0].detach().clone()))

        agent.critic.register_forward_pre_hook(before_network)
        handle = register_optimizer_step_pre_hook(before_step)
        try:
            subject.trace.names["update"](**call | {"batch": batch, "loss_fn": loss})
        finally:
            handle.remove()
        if not self.minibatches or self.gradient is None:
            raise Unable("update does not call its loss_fn, or makes no optimiser step")


@check("update", of="continuous drac", follows="density clipping value-loss")
def augmentation_loss(subject: Subject) -> Finding:
    """With a factor of 0.5, --aug-coef 3 and no other loss: the gradient is that of 3 times the sum of KL[pi(x) || pi(x
    / 2)] and (V(x) - V(x / 2))^2 in float64, where no gradient flows into pi(x) and V(x)."""
    once, agent = Once(subject, aug_coef=3.0, update_epochs=1, **HALF), subject.agent().double()
    x, std = once.minibatches[0].double(), agent.actor_logstd.exp()
    mean, value, scaled, scaled_value = (
        output
        for f in (1, 0.5)
        for output in (agent.actor_mean(f * x), subject.value(agent, f * x))
    )
    still, still_value, still_std = mean.detach(), value.detach(), std.detach()
    kl = gaussian_kl(still, still_std, scaled, std)
    square = (still_value - scaled_value) ** 2
    back = gaussian_kl(scaled, std, still, still_std)
    both = gaussian_kl(mean, still_std, scaled, std)
    swapped = gaussian_kl(mean, std, scaled.detach(), still_std)
    moved = (value - scaled_value) ** 2
    parameters = list(agent.parameters())

    def by(policy, values) -> torch.Tensor:
        terms = policy.sum(-1) if policy.dim() == 2 else policy
        return gradient(3 * (terms + values).mean(), parameters)

    right = by(kl, square)
    size = right.abs().max()
    mistakes = {
        "the sign is wrong: differences between scaled and unscaled outputs are rewarded": -right,
        "the gradient flows into the unscaled outputs instead of the scaled ones": by(
            swapped, (value - scaled_value.detach()) ** 2
        ),
    }
    choices = {
        "a gradient also flows into pi(x)": by(both, square),
        "a gradient also flows into V(x)": by(kl, moved),
        "a gradient also flows into pi(x) and V(x)": by(both, moved),
        "the KL is KL[pi(f(x)) || pi(x)]": by(back, square),
        "the KL is averaged over action dimensions": by(kl.mean(-1), square),
        "the squared difference of the values is halved": by(kl, square / 2),
        "the values are missing": by(kl, 0 * square),
        "the policy is missing": by(0 * kl, square),
    }
    ours = once.gradient
    if ours.abs().max() < 1e-9 * size:
        return broken("no gradient", "a gradient", "the augmentation term is not in the loss")
    cases = [{text: other / size for text, other in part.items()} for part in (mistakes, choices)]
    question = "the augmentation term is not that of the DrAC paper"
    finding = compare(ours / size, right / size, *cases, question)
    factor = float(ours @ right / (right @ right))
    if finding.verdict == "differs" and float(torch.cosine_similarity(ours, right, 0)) > 0.9999:
        return differs(
            f"{factor:.3g} times",
            "1",
            f"the augmentation term has {factor:.3g} times the weight --aug-coef",
        )
    return finding


@check("update", of="continuous drac", follows="augmentation-loss")
def augmentation_draws(subject: Subject) -> Finding:
    """With factors between 0.5 and 1.5 the critic also receives each minibatch with every sample multiplied by a
    factor. The factors are uniform, independent for each sample, and new in each minibatch."""
    once = Once(subject, num_minibatches=2, update_epochs=4, **WIDE)
    groups, off = [], 0.0
    for k, given in once.inputs:
        x = once.minibatches[k].double()
        if given.shape != x.shape or largest(given, x) < 1e-6:
            continue
        far = (x * x).sum(-1) > 1e-3
        factors = (given * x).sum(-1)[far] / (x * x).sum(-1)[far]
        off = max(off, largest(given[far], factors[:, None] * x[far]))
        groups.append(factors.numpy())
    if not groups:
        return differs(
            "no scaled observations", "some", "the networks receive unscaled observations only"
        )
    if off > 1e-3:
        question = "a scaled sample is not the sample times a factor"
        return differs(f"error {off:.1e}", "below 1e-03", question)
    return judge_factors(groups, "minibatch")
