"""Exact checks of files that pay a bonus for what is new: how it is made, what it is worth, and what learns from it."""

import numpy as np
import torch

from probing.policy import found_rows, inputs_of
from probing.subject import (
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

FLAGS = {"int_coef": 0.7, "ext_coef": 1.6, "int_gamma": 0.6}  # of the runs here; none is a default


def curious_trace(subject: Subject) -> Trace:
    """The same run for all checks here, made once."""
    if not hasattr(subject, "curious"):
        subject.curious = Trace(subject, **FLAGS)
    return subject.curious


def part(agent, *names: str) -> list:
    """Parts of the agent, if it has them all."""
    missing = ", ".join(name for name in names if not hasattr(agent, name))
    if missing:
        raise Unable(f"the agent has no {missing}")
    return [getattr(agent, name) for name in names]


def bonus_again(agent, x, action, next_x) -> torch.Tensor:
    """What the file's agent says of steps x, action -> next_x."""
    if hasattr(agent, "get_errors"):
        return agent.get_errors(x, action, next_x)[0]
    return intrinsic_reward(agent)(next_x)


def intrinsic_reward(agent):
    """The method, under the name that it has now or had before."""
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
            {"the bonus is the difference, not its square": error.mean(-1)},
            {"the squares are summed": error.square().sum(-1)},
            "the bonus is not the predictor's squared error",
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
        return broken("it moved", "fixed", "the random network is trained towards the predictor")
    if not moved:
        return broken("nothing moved", "the predictor", "the predictor never learns")
    return finding


@check("Agent", of="icm")
def curiosity_models(subject: Subject) -> Finding:
    """get_errors: that of the forward model, half the squared distance of features, and that of the inverse one."""
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
        choices = {"the squares are averaged, or not halved": 2 * right}
        choices |= {"the squares are averaged, or not halved ": 2 * right / distance[""].shape[-1]}
        if "unclipped" in distance:
            text = "the forward model gets the unclipped action, which nobody played"
            choices[text] = 0.5 * distance["unclipped"].sum(-1)
        mistakes = {"the two errors are swapped": inverse_error}
        finding = compare(
            ours[0], right, mistakes, choices, "the bonus is not the forward model's error"
        )
        if finding.verdict != "passes":
            return finding
        return compare(
            ours[1], inverse_error, {}, {}, "the inverse model's error is not that of the action"
        )


@check("train", of="curiosity", follows="random-network curiosity-models")
def bonus_returns(subject: Subject) -> Finding:
    """The targets of the bonus values, in float64: the discounted, scaled bonus, across the ends of episodes, nothing
    for reset rows, which are worth what comes after them."""
    trace = curious_trace(subject)
    args, traces, rows = trace.args, {}, []
    stay = lambda values, valid: values  # noqa: E731
    ways = {  # the row that the bonus is of, what is left out of it, gamma, the ends
        "right": (1, np.multiply, args.int_gamma, False),
        "the bonus is that of the observation before the action": (
            0,
            np.multiply,
            args.int_gamma,
            False,
        ),
        "a bonus is paid for reset rows, which nobody played": (1, stay, args.int_gamma, False),
        "the discount is --gamma, not --int-gamma": (1, np.multiply, args.gamma, False),
        "the returns of the bonus end with the episode": (1, np.multiply, args.int_gamma, True),
    }
    untaught = "a reset row has the value of the last observation, which no update teaches"
    ours, so_far = [], ([], [])  # observations before and after the actions, for the statistics
    results = {name: [] for name in (*ways, "unscaled", untaught)}
    for batch, _, here, record, truth in found_rows(trace):
        if "int_target" not in batch:
            raise Unable("the loss takes no int_target")
        agent, valid = record["agent"], truth["valid"]
        states = np.concatenate([truth["obs"], truth["next_obs"][-1:]])
        rms = getattr(agent, "seen_rms", None)
        own = None
        for seen, new in zip(so_far, (states[:-1], states[1:])):
            seen.extend(new.reshape(-1, states.shape[-1]))
            whole = np.asarray(seen, np.float64)
            mean, var = whole.mean(0), whole.var(0)
            if rms and max(largest(rms.mean, mean), largest(rms.var, var)) < 1e-5:
                own = rms.mean.numpy(), rms.var.numpy()  # float32, and so are the bonuses
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
    choices["the bonus is not scaled"] = unscaled
    subject.curious_rows = rows
    question = "the targets are not the scaled returns of the bonus"
    return compare(np.concatenate(ours), right, mistakes, choices, question)


@check("train", of="curiosity", follows="bonus-returns advantages")
def two_advantages(subject: Subject) -> Finding:
    """The advantage of the loss: --ext-coef times the reward's and --int-coef times that of the bonus, which does not
    reach the rewards themselves."""
    trace = curious_trace(subject)
    finding = inputs_of(subject, trace)
    if finding.verdict != "passes":
        return finding
    flags, parts = trace.args, {"ours": [], "reward": [], "bonus": []}
    for k, (batch, _, here, record, truth) in enumerate(found_rows(trace)):
        if "int_target" not in batch:
            raise Unable("the loss takes no int_target")
        with torch.no_grad():
            int_value = part(record["agent"], "int_critic")[0](batch["x"]).squeeze(-1)
        parts["ours"].append(batch["advantage"])
        parts["reward"].append(trace.returns[k][1][torch.from_numpy(truth["valid"])][here])
        parts["bonus"].append(batch["int_target"] - int_value)
    ours, reward, bonus = (torch.cat(rows).double() for rows in parts.values())
    ext_coef, int_coef = flags.ext_coef, flags.int_coef
    mistakes = {
        "the coefficients are swapped": int_coef * reward + ext_coef * bonus,
        "the sign of the bonus: what is new is avoided": ext_coef * reward - int_coef * bonus,
        "the bonus does not reach the policy": ext_coef * reward,
    }
    choices = {"the coefficients do not act": reward + bonus}
    question = "the advantage is not the weighted sum of the reward's and the bonus'"
    return compare(ours, ext_coef * reward + int_coef * bonus, mistakes, choices, question)


@check("update", of="curiosity", follows="random-network curiosity-models")
def bonus_losses(subject: Subject) -> Finding:
    """Derivatives of the loss: by the value network of the bonus those of --vf-coef times half its squared error, by
    the networks of the bonus those of their errors, and none of the bonus by the policy."""
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
        mistakes = {f"{name} learns nothing from the loss": 0 * theirs}
        mistakes |= {f"{name} learns the opposite": -theirs / size}
        question = f"{name} does not learn by the weight that its error should have"
        finding = compare(ours / size, theirs / size, mistakes, {}, question)
        if finding.verdict != "passes":
            return finding
    actor = list(agent.actor_mean.parameters())
    with_bonus = gradient(loss, actor)
    other = mb.loss(int_target=batch["int_target"] + 1, next_x=batch["next_x"] * 0.5)
    other = other[0] if isinstance(other, tuple) else other
    if largest(with_bonus, gradient(other, actor)) > 1e-6:
        return broken("it moves", "still", "the networks of the bonus move the policy")
    return passes("as the errors say")
