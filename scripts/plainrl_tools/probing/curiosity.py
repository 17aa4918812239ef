"""Exact checks of intrinsic rewards (RND and ICM): how they are computed, their returns, and what learns from them."""

import numpy as np
import torch

from plainrl_tools.probing.policy import found_rows, inputs_of
from plainrl_tools.probing.subject import (
    Finding,
    Minibatch,
    Subject,
    Trace,
    Unable,
    broken,
    check,
    compare,
    gradient,
    largest,
    passes,
    reference_gae,
)

# Flags of the runs in this file; none is a default.
FLAGS = {"int_coef": 0.7, "ext_coef": 1.6, "int_gamma": 0.6}


def curious_trace(subject: Subject) -> Trace:
    """One run that all checks of this file share."""
    if not hasattr(subject, "curious"):
        subject.curious = Trace(subject, **FLAGS)
    return subject.curious


def part(agent, *names: str) -> list:
    """Parts of the agent; raises Unable if one is missing."""
    missing = ", ".join(name for name in names if not hasattr(agent, name))
    if missing:
        raise Unable(f"the agent has no {missing}")
    return [getattr(agent, name) for name in names]


def bonus_again(agent, x, action, next_x) -> torch.Tensor:
    """The intrinsic reward that the file's agent gives for steps x, action -> next_x."""
    if hasattr(agent, "get_errors"):
        return agent.get_errors(x, action, next_x)[0]
    return intrinsic_reward(agent)(next_x)


def intrinsic_reward(agent):
    """The method that computes the intrinsic reward, under its current or its former name."""
    name = "get_bonus" if hasattr(agent, "get_bonus") else "get_intrinsic_reward"
    return part(agent, name)[0]


@check("Agent", of="rnd")
def random_network(subject: Subject) -> Finding:
    """get_intrinsic_reward is the mean squared difference of two networks, one of which no update changes."""
    agent, trace = subject.agent(), subject.trace
    target, predictor = part(agent, "random_net", "predictor")
    next_x = subject.observations(32)
    with torch.no_grad():
        error = (predictor(next_x) - target(next_x)).double()
        finding = compare(
            intrinsic_reward(agent)(next_x),
            error.square().mean(-1),
            {"the intrinsic reward is the difference instead of its square": error.mean(-1)},
            {"the squares are summed instead of averaged": error.square().sum(-1)},
            "the intrinsic reward is not the predictor's mean squared error",
        )
    if finding.verdict != "passes":
        return finding
    moved = [
        name
        for name in ("random_net", "predictor")
        if any(
            not torch.equal(*pair)
            for pair in zip(*(getattr(a, name).parameters() for a in (trace.first, trace.after)))
        )
    ]
    if "random_net" in moved:
        return broken(
            "the random network changed",
            "fixed",
            "the random network is trained towards the predictor",
        )
    if not moved:
        return broken(
            "no network changed", "the predictor changes", "the predictor is never trained"
        )
    return finding


@check("Agent", of="icm")
def curiosity_models(subject: Subject) -> Finding:
    """get_errors returns the error of the forward model (half the squared distance of the features) and that of the
    inverse model."""
    agent, steps = subject.agent().double(), Minibatch(subject, 32).batch
    encoder, inverse, forward, errors = part(
        agent, "encoder", "inverse_model", "forward_model", "get_errors"
    )
    x, next_x, action = steps["x"].double(), steps["next_x"].double(), steps["action"]
    with torch.no_grad():
        here, there = encoder(x), encoder(next_x)
        guess = inverse(torch.cat([here, there], -1))
        if "discrete" in subject.kinds:
            inverse_error = torch.nn.functional.cross_entropy(guess, action, reduction="none")
            taken = {"": torch.eye(guess.shape[-1]).double()[action]}
        else:
            low, high = agent.action_low.flatten(), agent.action_high.flatten()
            taken = {"": action.double().clamp(low, high), "unclipped": action.double()}
            inverse_error = (guess - taken[""]).square().mean(-1)
        ours = [error.double() for error in errors(x, action, next_x)]
        distance = {}
        for name, played in taken.items():
            forecast = forward(torch.cat([here, played], -1))
            distance[name] = (forecast - there).square()
        right = 0.5 * distance[""].sum(-1)
        choices = {"the squared distance is not halved": 2 * right}
        choices |= {
            "the squares are averaged instead of summed and halved": 2
            * right
            / distance[""].shape[-1]
        }
        if "unclipped" in distance:
            text = "the forward model receives the unclipped action, which the environment never received"
            choices[text] = 0.5 * distance["unclipped"].sum(-1)
        mistakes = {"the two errors are swapped": inverse_error}
        finding = compare(
            ours[0],
            right,
            mistakes,
            choices,
            "the intrinsic reward is not the forward model's error",
        )
        if finding.verdict != "passes":
            return finding
        return compare(
            ours[1],
            inverse_error,
            {},
            {},
            "the error of the inverse model is not that of the action",
        )


@check("train", of="curiosity", follows="random-network curiosity-models")
def bonus_returns(subject: Subject) -> Finding:
    """The targets of the intrinsic critic in float64: discounted, scaled intrinsic rewards, which continue across
    episode boundaries. Autoreset steps have no intrinsic reward; their value is the discounted value of the next
    state."""
    trace = curious_trace(subject)
    args, traces, rows = trace.args, {}, []
    stay = lambda values, valid: values  # noqa: E731
    ways = {  # (1 for the next observation, the mask of autoreset steps, gamma, whether episodes end the returns)
        "right": (1, np.multiply, args.int_gamma, False),
        "the intrinsic reward is that of the observation before the action": (
            0,
            np.multiply,
            args.int_gamma,
            False,
        ),
        "autoreset steps have an intrinsic reward, although the agent did not act in them": (
            1,
            stay,
            args.int_gamma,
            False,
        ),
        "the discount is --gamma instead of --int-gamma": (1, np.multiply, args.gamma, False),
        "the intrinsic returns stop at episode boundaries": (1, np.multiply, args.int_gamma, True),
    }
    untaught = "an autoreset step uses the value of the last observation, which no update trains"
    ours, so_far = [], ([], [])  # observations before and after the actions, for the statistics
    results = {name: [] for name in (*ways, "unscaled", untaught)}
    for batch, _, here, record, truth in found_rows(trace):
        if "int_target" not in batch:
            raise Unable("the loss takes no argument int_target")
        agent, valid = record["agent"], truth["valid"]
        states = np.concatenate([truth["obs"], truth["next_obs"][-1:]])
        rms = getattr(agent, "seen_rms", None)
        own = None
        for seen, new in zip(so_far, (states[:-1], states[1:])):
            seen.extend(new.reshape(-1, states.shape[-1]))
            whole = np.asarray(seen, np.float64)
            mean, var = whole.mean(0), whole.var(0)
            if rms and max(largest(rms.mean, mean), largest(rms.var, var)) < 1e-5:
                own = rms.mean.numpy(), rms.var.numpy()  # float32, as in the file
        mean, var = own or (mean, var)  # by default those of the observations after the actions
        std = np.sqrt(var + 1e-8)
        with torch.no_grad():
            x = subject.seen(agent, states)
            values = part(agent, "int_critic")[0](x).squeeze(-1).double().numpy()
            shown = torch.from_numpy(((states - mean) / std).clip(-5, 5)).float()
            shown = x if "icm" in subject.kinds else shown
            action = torch.from_numpy(truth["action"])
            action = action.long() if "discrete" in subject.kinds else action.float()
            paid = bonus_again(agent, x[:-1], action, shown[1:]).double().numpy()
            early = bonus_again(agent, x[:-1], action, shown[:-1]).double().numpy()
        for name, (shift, mask, gamma, ends) in ways.items():
            bonus = mask(paid if shift else early, valid)
            last, sums = traces.setdefault(name, (np.zeros(bonus.shape[1]), []))
            for row in bonus:
                last = last * gamma + row
                sums.extend(last)
            traces[name] = last, sums
            scaled = bonus / np.sqrt(np.var(sums) + 1e-8)
            never = np.zeros_like(bonus)
            stops = truth["learner"][1:] if ends else (never, never)
            worth = values.copy()
            if not ends:
                worth[:-1] = np.where(valid, values[:-1], gamma * values[1:])
            gae = reference_gae((scaled, *stops), worth, gamma, args.gae_lambda)
            results[name].append((gae + worth[:-1])[valid][here])
            if name == "right":
                gae = reference_gae((bonus, never, never), worth, gamma, args.gae_lambda)
                results["unscaled"].append((gae + worth[:-1])[valid][here])
                gae = reference_gae((scaled, never, never), values, gamma, args.gae_lambda)
                results[untaught].append((gae + values[:-1])[valid][here])
        ours.append(batch["int_target"].double().numpy())
        rows.append((batch, values[:-1][valid][here]))
    found = {name: np.concatenate(result) for name, result in results.items()}
    right, unscaled = found.pop("right"), found.pop("unscaled")
    texts = list(found)
    mistakes = {name: found[name] for name in (*texts[:2], untaught)}
    choices = {name: found[name] for name in texts[2:] if name != untaught}
    choices["the intrinsic rewards are not scaled"] = unscaled
    subject.curious_rows = rows
    question = "the targets are not the returns of the scaled intrinsic rewards"
    return compare(np.concatenate(ours), right, mistakes, choices, question)


@check("train", of="curiosity", follows="bonus-returns advantages")
def two_advantages(subject: Subject) -> Finding:
    """The advantage in the loss is --ext-coef times that of the environment's rewards plus --int-coef times that of the
    intrinsic rewards. The intrinsic rewards do not change the environment's rewards themselves."""
    trace = curious_trace(subject)
    finding = inputs_of(subject, trace)
    if finding.verdict != "passes":
        return finding
    flags, parts = trace.args, {"ours": [], "reward": [], "bonus": []}
    for k, (batch, _, here, record, truth) in enumerate(found_rows(trace)):
        if "int_target" not in batch:
            raise Unable("the loss takes no argument int_target")
        with torch.no_grad():
            int_value = part(record["agent"], "int_critic")[0](batch["x"]).squeeze(-1)
        parts["ours"].append(batch["advantage"])
        parts["reward"].append(trace.returns[k][1][torch.from_numpy(truth["valid"])][here])
        parts["bonus"].append(batch["int_target"] - int_value)
    ours, reward, bonus = (torch.cat(rows).double() for rows in parts.values())
    ext_coef, int_coef = flags.ext_coef, flags.int_coef
    mistakes = {
        "the coefficients are swapped": int_coef * reward + ext_coef * bonus,
        "the sign of the intrinsic reward is wrong: the agent avoids what is new": ext_coef * reward
        - int_coef * bonus,
        "the intrinsic reward does not reach the policy": ext_coef * reward,
    }
    choices = {"--ext-coef and --int-coef have no effect": reward + bonus}
    question = "the advantage is not the weighted sum of the extrinsic and the intrinsic one"
    return compare(ours, ext_coef * reward + int_coef * bonus, mistakes, choices, question)


@check("update", of="curiosity", follows="random-network curiosity-models")
def bonus_losses(subject: Subject) -> Finding:
    """Gradients of the loss: the intrinsic critic has that of --vf-coef times half its squared error, the networks of
    the intrinsic reward have those of their errors, and the policy has none from either."""
    mb = Minibatch(subject, 64, norm_adv=False, ent_coef=0.0)
    agent, batch = mb.agent, mb.batch
    loss = mb.loss()
    loss = loss[0] if isinstance(loss, tuple) else loss
    int_value = part(agent, "int_critic")[0](batch["x"]).squeeze(-1)
    wanted = [
        ("int_critic", 0.5 * mb.args.vf_coef * (int_value - batch["int_target"]).square().mean())
    ]
    if hasattr(agent, "get_errors"):
        steps = agent.get_errors(batch["x"], batch["action"], batch["next_x"])
        forward, inverse = (error.mean() for error in steps)
        both = mb.args.icm_beta * forward + (1 - mb.args.icm_beta) * inverse
        wanted += [(name, both) for name in ("forward_model", "inverse_model", "encoder")]
    else:
        wanted.append(("predictor", intrinsic_reward(agent)(batch["next_x"]).mean()))
    for name, right in wanted:
        weights = list(part(agent, name)[0].parameters())
        ours, theirs = gradient(loss, weights), gradient(right, weights)
        size = float(theirs.abs().max()) or 1.0
        mistakes = {f"the loss does not train {name}": 0 * theirs}
        mistakes |= {f"the sign of the loss is wrong for {name}": -theirs / size}
        question = f"the error of {name} does not have the right weight in the loss"
        finding = compare(ours / size, theirs / size, mistakes, {}, question)
        if finding.verdict != "passes":
            return finding
    actor = list(agent.actor_mean.parameters())
    with_bonus = gradient(loss, actor)
    other = mb.loss(int_target=batch["int_target"] + 1, next_x=batch["next_x"] * 0.5)
    other = other[0] if isinstance(other, tuple) else other
    if largest(with_bonus, gradient(other, actor)) > 1e-6:
        return broken(
            "the policy's gradient changes",
            "unchanged",
            "the losses of the intrinsic reward train the policy",
        )
    return passes("gradients agree")
