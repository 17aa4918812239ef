"""Exact checks of policy gradients: PPO and A2C."""

import contextlib
import copy
import math
from unittest.mock import patch

import numpy as np
import torch

from probing.environments import box
from probing.subject import (
    NUM_ACTIONS,
    Subject,
    Trace,
    check,
    close,
    largest,
    minibatch,
    reference_gae,
)


@check("train", "the file does not run: a plain run on a small environment shows the same error")
def trains(subject: Subject):
    """The file trains on a small environment and returns a summary."""
    trace = subject.trace
    return f"{len(trace.updates)} updates", "some", len(trace.updates) > 2


@check("compute_gae", "the advantages are not those of equation 16", of="gae")
def gae(subject: Subject):
    """compute_gae on random rewards, values and ends, against the sum of equation 16 in float64."""
    given, gamma, lam = rollout(subject.seed), 0.9, 0.6
    ours = subject.load().compute_gae(*given, gamma, lam).double().numpy()
    r, v, te, do = (tensor.double().numpy() for tensor in given)
    right = reference_gae((r, te, do), v, gamma, lam)
    mistakes = {
        text: reference_gae(case, v, gamma, lam) for text, case in wrong_ends(r, te, do).items()
    }
    mistakes |= {
        "the sign of the advantage": -right,
        "gamma and lambda are swapped": reference_gae((r, te, do), v, lam, gamma),
        "lambda is not used": reference_gae((r, te, do), v, gamma, 1.0),
        "gamma is missing from the trace": reference_gae((r, te, do), v, gamma, lam / gamma),
    }
    return *close(largest(ours, right)), likeliest(ours, mistakes)


@check("n_step_returns", "the targets are not those of algorithm S3", of="n-step")
def n_step_returns(subject: Subject):
    """n_step_returns on random rewards, values and ends, against the sum of discounted rewards in float64."""
    given, gamma = rollout(subject.seed), 0.9
    ours = subject.load().n_step_returns(*given, gamma).double().numpy()
    r, v, te, do = (tensor.double().numpy() for tensor in given)
    right = reference_gae((r, te, do), v, gamma, 1.0) + v[:-1]
    mistakes = {
        text: reference_gae(case, v, gamma, 1.0) + v[:-1]
        for text, case in wrong_ends(r, te, do).items()
    }
    mistakes |= {
        "gamma is missing": reference_gae((r, te, do), v, 1.0, 1.0) + v[:-1],
        "the targets look one step ahead only": reference_gae((r, te, do), v, gamma, 0.0) + v[:-1],
        "the rollout's last value is left out": reference_gae(
            (r, np.concatenate([te[:-1], np.ones_like(te[:1])]), do), v, gamma, 1.0
        )
        + v[:-1],
        "advantages in place of returns": right - v[:-1],
    }
    return *close(largest(ours, right)), likeliest(ours, mistakes)


@check(
    "compute_returns",
    "the returns are not the discounted sums of the rewards that follow",
    of="monte-carlo",
)
def monte_carlo_returns(subject: Subject):
    """compute_returns on random rewards against the sum in float64."""
    rewards, gamma = torch.randn(16, 8), 0.9
    ours = subject.load().compute_returns(rewards, gamma).double().numpy()
    r = rewards.double().numpy()
    none, zero = np.zeros_like(r), np.zeros((17, 8))
    right = reference_gae((r, none, none), zero, gamma, 1.0)
    mistakes = {
        "gamma is missing": reference_gae((r, none, none), zero, 1.0, 1.0),
        "the reward of the step itself is left out": right - r,
        "the sum of the whole episode, with the rewards before the action": np.broadcast_to(
            right[:1], r.shape
        ),
        "rewards are summed from the start": reference_gae((r[::-1], none, none), zero, gamma, 1.0)[
            ::-1
        ],
    }
    return *close(largest(ours, right)), likeliest(ours, mistakes)


def rollout(seed: int, T: int = 16, N: int = 8) -> tuple[torch.Tensor, ...]:
    """Random rewards, values, terminateds and dones."""
    generator = torch.Generator().manual_seed(seed)
    rewards, values = (
        torch.randn(T, N, generator=generator),
        torch.randn(T + 1, N, generator=generator),
    )
    kind = torch.randint(0, 6, (T, N), generator=generator)
    return rewards, values, (kind == 0).float(), (kind < 2).float()


def wrong_ends(r, te, do) -> dict[str, tuple]:
    """What a file may mistake for (rewards, terminal states, ends of the trace)."""
    none, late = (
        np.zeros_like(do),
        [np.concatenate([np.zeros_like(ends[:1]), ends[:-1]]) for ends in (te, do)],
    )
    return {
        "the recursion runs on over the ends of episodes: no mask of `done`": (r, te, none),
        "no episode end reaches the advantages": (r, none, none),
        "a time limit is treated as a terminal state": (r, do, do),
        "a terminal state is bootstrapped": (r, none, do),
        "the trace runs on over time limits": (r, te, te),
        "`done` acts one step late": (r, te, late[1]),
        "`terminated` acts one step late": (r, late[0], do),
    }


def likeliest(ours, mistakes: dict) -> str | None:
    return next((text for text, wrong in mistakes.items() if largest(ours, wrong) < 1e-3), None)


def log_slope(agent, u: torch.Tensor) -> torch.Tensor:
    """log |d to_env(u) / du|, summed over dimensions, by differentiating to_env in float64."""
    agent = copy.deepcopy(agent).double()
    with torch.enable_grad():
        u = u.double().requires_grad_()
        return torch.autograd.grad(agent.to_env(u).sum(), u)[0].clamp(min=1e-300).log().sum(-1)


@check(
    "Agent",
    "log-probability or entropy is not that of the distribution the actions are drawn from",
    of="continuous",
)
def density(subject: Subject):
    """The density of two-dimensional actions must integrate to 1, and to the entropy."""
    module, worst, where = subject.load(), 0.0, ""
    cases = [{"distribution": name} for name in getattr(module, "NOISES", {"": 0})]
    cases += [case | {"squash": True} for case in cases]
    for case in cases:
        agent = subject.agent(module, subject.args(module, **case))
        agent.actor_logstd.data = torch.tensor([0.2, -0.4])
        reach = 7 if case["distribution"] == "normal" else 18
        axis = torch.linspace(-reach, reach, 700)
        grid = torch.cartesian_prod(axis, axis)
        with torch.no_grad():
            x = torch.tensor([[0.3, -0.2, 0.5]])
            grid = grid + agent.actor_mean(x)
            logprob, entropy = agent.get_action(x.expand(len(grid), -1), grid)[1:]
            if logprob.shape != (len(grid),):
                return (
                    f"log-probabilities {tuple(logprob.shape)}",
                    f"({len(grid)},)",
                    False,
                    "sum over action dimensions",
                )
            slope = log_slope(agent, grid) if case.get("squash") else torch.zeros(())
            weight = (logprob + slope).double().exp() * float((axis[1] - axis[0]) ** 2)
            mass, ours = float(weight.sum()), float(entropy.mean())
            theirs = float(-(weight * logprob.clamp(min=-1e4)).sum())
        error = max(abs(mass - 1), abs(ours - theirs))
        if error > worst:
            worst, where = (
                error,
                f" ({case['distribution']}{', squash' * ('squash' in case)}: mass {mass:.3f})",
            )
    measured, expected, passed = close(worst, 3e-2)
    return measured + where, expected, passed


@check(
    "Agent",
    "actions are not drawn from the distribution whose log-probability is reported",
    of="continuous",
)
def sampling(subject: Subject):
    """Minus the mean log-probability of many draws is the entropy."""
    module, worst = subject.load(), 0.0
    for name in getattr(module, "NOISES", {"": 0}):
        agent = subject.agent(module, subject.args(module, distribution=name))
        agent.actor_logstd.data = torch.tensor([0.2, -0.4])
        with torch.no_grad():
            x = torch.tensor([[0.3, -0.2, 0.5]]).expand(200_000, -1)
            action, logprob, entropy = agent.get_action(x)
            logprob = agent.get_action(x, action)[1] if logprob is None else logprob
        worst = max(worst, abs(float(logprob.mean() + entropy.mean())))
        drawn = action.std(0) / {"normal": 1, "laplace": 2**0.5, "gumbel": math.pi / 6**0.5}.get(
            name, 1
        )
        worst = max(worst, float((drawn.log() - agent.actor_logstd).abs().max()))
    return close(worst, 3e-2)


@check(
    "Agent",
    "log-probability or entropy is not that of the softmax of the logits",
    of="policy discrete",
)
def probabilities(subject: Subject):
    """The probabilities of all actions add up to 1, and give the entropy; a row does not depend on the others."""
    module = subject.load()
    agent, x = subject.agent(module, subject.args(module)), subject.observations(32)
    with torch.no_grad():
        logprobs, entropy = subject.outputs(agent, x)[0].double(), subject.act(agent, x)[2].double()
        alone = torch.cat([subject.outputs(agent, row[None])[0] for row in x]).double()
    mass, theirs = logprobs.exp().sum(-1), -(logprobs.exp() * logprobs).sum(-1)
    return close(
        max(largest(mass, torch.ones(32)), largest(entropy, theirs), largest(logprobs, alone))
    )


@check(
    "Agent",
    "actions are not drawn from the policy, or one draw serves all environments",
    of="policy discrete",
)
def action_frequencies(subject: Subject):
    """Of 3,200 draws in one state: how often each action comes, and that the rows of one call differ."""
    module = subject.load()
    agent, x = subject.agent(module, subject.args(module)), subject.observations(64)
    with torch.no_grad():
        # a state whose probabilities differ, but none of them so much that it never comes
        x = x[[(subject.act(agent, x)[2] - 0.7 * math.log(NUM_ACTIONS)).abs().argmin()]].expand_as(
            x
        )
        draws = torch.stack([subject.act(agent, x)[0] for _ in range(50)])  # (50 calls, 64 rows)
        expected = 64 * subject.outputs(agent, x[:1])[0][0].double().exp()
    counts = torch.nn.functional.one_hot(draws, NUM_ACTIONS).double().sum(1)  # (50 calls, actions)
    common = expected > 3  # of the others there are too few
    counts, expected = counts[:, common], expected[common]
    deviation = (expected * (1 - expected / 64)).sqrt()
    off = float(((counts.mean(0) - expected) / deviation).abs().max() * 50**0.5)
    spread = float((counts.var(0) / deviation**2).mean().sqrt())
    hint = "one draw serves several rows" if spread > 2 else None
    measured = f"{off:.1f} deviations off, spread {spread:.2f}"
    return measured, "below 5.5, 1 +- 0.5", off < 5.5 and abs(spread - 1) < 0.5, hint


@check(
    "Agent",
    "what the environment gets leaves the action space, or is not the clipped or squashed action",
    of="continuous",
)
def bounds(subject: Subject):
    """Actions from -3 to 3 through to_env, clipped and squashed to [-0.5, 0.8]."""
    module, worst = subject.load(), 0.0
    space = box(2, -0.5, 0.8)
    action = torch.linspace(-3, 3, 601)[:, None].expand(-1, 2)
    for squash in (False, True):
        agent = subject.agent(module, subject.args(module, squash=squash), action_space=space)
        squashed = -0.5 + 1.3 * (action.tanh() + 1) / 2
        worst = max(
            worst, largest(agent.to_env(action), squashed if squash else action.clamp(-0.5, 0.8))
        )
    return close(worst)


@check(
    "Agent",
    "normalize is not (obs - mean) / deviation clipped to +-10, or it writes into its input",
    of="normaliser",
)
def normaliser(subject: Subject):
    """Of observations far and near, by statistics of the probe's own; the input stays as it is."""
    module = subject.load()
    agent = subject.agent(module, subject.args(module))
    agent.obs_rms.mean += torch.tensor([3.0, -2.0, 0.5])
    agent.obs_rms.var += torch.tensor([8.0, -0.75, 99.0])
    obs = 30 * torch.randn(200, 3)
    kept, mean, var = obs.clone(), agent.obs_rms.mean.double(), agent.obs_rms.var.double()
    theirs = ((obs.double() - mean) / (var + 1e-8).sqrt()).clamp(-10, 10)
    error = largest(agent.normalize(obs), theirs)
    untouched = torch.equal(obs, kept)
    hint = None if untouched else "normalize writes into its input: stored observations change"
    return f"error {error:.1e}", "below 1e-03", error < 1e-3 and untouched, hint


@check(
    "Agent",
    "the scale of the action is clamped or transformed: its parameter loses its effect",
    of="continuous",
)
def scale(subject: Subject):
    """The entropy rises by 1 for each dimension and each 1 that the log of the scale rises by."""
    module, found = subject.load(), []
    agent, x = subject.agent(module, subject.args(module)), torch.randn(8, 3)
    for value in (-2.0, 0.0, 1.0):
        agent.actor_logstd.data.fill_(value)
        found.append(float(agent.get_action(x)[2].mean()) - value * agent.actor_logstd.numel())
    return close(max(found) - min(found))


@check(
    "Agent",
    "RPO's noise: z ~ U(-alpha, alpha) on the location, new for each row and dimension, in the update only",
    of="continuous",
)
def rpo_noise(subject: Subject):
    """At the location itself the squares of z can be read off the log-probability: 2 alpha^2 / 3 on the mean."""
    module, alpha = subject.load(), 0.4
    if not hasattr(module.Args, "rpo_alpha"):
        return "no --rpo-alpha", "nothing to check", True
    noisy, plain = (
        subject.agent(module, subject.args(module, rpo_alpha=a, rpo_perturb_rollout=False))
        for a in (alpha, 0.0)
    )
    x = torch.tensor([[0.3, -0.2, 0.5]]).expand(100_000, -1)
    with torch.no_grad():
        same = []
        for agent in (noisy, plain):
            agent.actor_logstd.zero_()
            torch.manual_seed(subject.seed)
            same.append(agent.get_action(x[:100])[0])
        location = plain.actor_mean(x)
        squares, beside = (
            2 * (plain.get_action(x, action)[1] - noisy.get_action(x, action)[1])
            for action in (location, location + 1)
        )  # sums over the two dimensions of z^2, and of z^2 - 2 z
    ratio, top = float(squares.mean() / (2 * alpha**2 / 3)), float(squares.max())
    spread, middle = (
        float(squares.std() / (alpha**2 * (8 / 45) ** 0.5)),
        float((squares - beside).mean() / 4),
    )
    acting = "equal" if torch.equal(*same) else "noisy"
    passed = max(abs(ratio - 1), abs(spread - 1), abs(middle)) < 0.03 and top <= 2 * alpha**2 + 1e-4
    measured = f"z^2 {ratio:.2f}, spread {spread:.2f}, z {middle:.2f}, acting {acting}"
    return measured, "1.00, 1.00, 0.00, equal", passed and acting == "equal"


def slopes(subject: Subject, module, agent, args, batch: dict, wanted: str) -> torch.Tensor:
    """d loss / d logprob or d loss / d value of every row, by moving that row's output of the agent."""
    shift = torch.zeros(len(batch["x"]), requires_grad=True)
    place = {"logprob": 1, "value": 3}[wanted]

    def moved(call, first: int):
        def inner(*a):
            result = call(*a)
            if not isinstance(result, tuple):
                return result + shift
            return tuple(
                part + shift if i + first == place else part for i, part in enumerate(result)
            )

        return inner

    # what each function returns, counted in (action, logprob, entropy, value)
    parts = {"get_action_and_value": 0, "get_action": 0, "get_value": 3}
    with contextlib.ExitStack() as patches:
        for name, first in parts.items():
            if hasattr(agent, name) and (name != "get_value" or place == 3):
                patches.enter_context(patch.object(agent, name, moved(getattr(agent, name), first)))
        loss = subject.loss(module, agent, args, batch)
    slope = torch.autograd.grad(loss, shift, allow_unused=True)[0] if loss.requires_grad else None
    return torch.zeros(len(shift)).double() if slope is None else slope.double()


@check("update", "a broadcast such as (n,) - (n, 1): every row meets every other")
def rows_are_independent(subject: Subject):
    """The loss of a minibatch is the mean of the losses of its rows, when advantages are not standardised."""
    module = subject.load()
    args = subject.args(module, norm_adv=False)
    agent, batch = minibatch(subject, module, args)
    with torch.no_grad():
        whole = float(subject.loss(module, agent, args, batch))
        rows = [
            {name: tensor[i : i + 1] for name, tensor in batch.items()}
            for i in range(len(batch["x"]))
        ]
        single = float(np.mean([float(subject.loss(module, agent, args, row)) for row in rows]))
    return close(abs(whole - single), 1e-4)


@check(
    "update",
    "the clipped surrogate: its sign, min taken for max, or the clip on the wrong side",
    of="ratio",
)
def clipping(subject: Subject):
    """Slope of the loss by each row's log-probability: -ratio x advantage, and 0 where clipping must hold it."""
    module = subject.load()
    args = subject.args(module, norm_adv=False, ent_coef=0.0)
    agent, batch = minibatch(subject, module, args, 256)
    with torch.no_grad():
        ratio = (
            (subject.act(agent, batch["x"], batch["action"])[1] - batch["old_logprob"])
            .exp()
            .double()
        )
    advantage, eps = batch["advantage"].double(), args.clip_coef
    held = ((advantage > 0) & (ratio > 1 + eps)) | ((advantage < 0) & (ratio < 1 - eps))
    theirs = torch.where(held, 0, -ratio * advantage) / len(ratio)
    ours = slopes(subject, module, agent, args, batch, "logprob")
    scale = float(theirs.abs().max())
    hints = {
        "the sign of the policy loss: it lowers good actions": -theirs,
        "the ratio is not clipped": -ratio * advantage / len(ratio),
        "max in place of min: the clip holds the wrong side": torch.where(
            ((advantage < 0) & (ratio > 1 + eps)) | ((advantage > 0) & (ratio < 1 - eps)),
            0,
            -ratio * advantage,
        )
        / len(ratio),
        "no gradient reaches the policy": 0 * theirs,
    }
    hint = next(
        (text for text, other in hints.items() if largest(ours / scale, other / scale) < 1e-3), None
    )
    return *close(largest(ours / scale, theirs / scale)), hint


@check(
    "update", "the policy gradient: its sign, its advantage, or the rows that it counts", of="score"
)
def policy_gradient(subject: Subject):
    """Slope of the loss by each row's log-probability: -(target - value), and 0 in reset rows where it gets them; with
    --norm-adv and each --baseline, where there are such flags."""
    module, worst, hint = subject.load(), 0.0, None
    baselines = ("value", "none") if hasattr(module.Args, "baseline") else ("value",)
    for baseline, norm in [
        (b, n) for b in baselines for n in (False, True)[: 1 + hasattr(module.Args, "norm_adv")]
    ]:
        args = subject.args(module, ent_coef=0.0, norm_adv=norm, baseline=baseline)
        agent, batch = minibatch(subject, module, args)
        valid = batch.get("valid", torch.ones(len(batch["x"]))).double()
        if "valid" in batch:
            valid[::5] = batch["valid"][::5] = 0
        with torch.no_grad():
            value, target = subject.value(agent, batch["x"]).double(), batch["target"].double()
        advantage = target - (value if baseline == "value" else 0)
        if norm:
            advantage = (advantage - advantage.mean()) / advantage.std()
        theirs = -advantage * valid / valid.sum()
        ours, scale = (
            slopes(subject, module, agent, args, batch, "logprob"),
            float(theirs.abs().max()),
        )
        hints = {
            "the sign of the policy loss: it lowers good actions": -theirs,
            "the target stands in for the advantage": -target * valid / valid.sum(),
            "reset rows count": -advantage / len(advantage),
            "no gradient reaches the policy": 0 * theirs,
        }
        error = largest(ours / scale, theirs / scale)
        if not error < 1e-3:
            hint = (
                likeliest(ours / scale, {text: wrong / scale for text, wrong in hints.items()})
                or hint
            )
        worst = max(worst, error)
    return *close(worst), hint


@check(
    "RMSprop",
    "not theta - lr x gradient / sqrt(g + eps), g being the running mean of its square, from 1",
    of="n-step",
)
def rmsprop(subject: Subject):
    """Ten steps of RMSprop on given gradients, against the formula in float64."""
    parameter = torch.nn.Parameter(torch.randn(20))
    optimizer = subject.load().RMSprop([parameter], lr=0.1, alpha=0.8, eps=0.01)
    theirs, square = parameter.detach().double(), torch.ones(20).double()
    for gradient in 0.1 * torch.randn(10, 20):
        parameter.grad = gradient
        optimizer.step()
        square = 0.8 * square + 0.2 * gradient.double() ** 2
        theirs = theirs - 0.1 * gradient.double() / (square + 0.01).sqrt()
    return close(largest(parameter.detach(), theirs), 1e-5)


def value_slopes(value, target, centre, eps: float) -> torch.Tensor:
    """Slope by `value` of half the larger of the squared errors of value and of value clipped around `centre`."""
    inside = centre + (value - centre).clamp(-eps, eps)
    plain = (value - target).abs() >= (inside - target).abs()
    return torch.where(plain, value - target, (inside - target) * ((value - centre).abs() < eps))


@check("update", "the value loss, or its clipping, which must be around the old value", of="policy")
def value_loss(subject: Subject):
    """Slope of the loss by each row's value, without and with --clip-vloss."""
    module, worst, hint = subject.load(), 0.0, None
    for clip in (False, True) if "ratio" in subject.kinds else (False,):
        args = subject.args(module, norm_adv=False, clip_vloss=clip)
        agent, batch = minibatch(subject, module, args, 256)
        with torch.no_grad():
            value = subject.value(agent, batch["x"]).double()
        target, old = batch["target"].double(), batch.get("old_value", value).double()
        theirs = value_slopes(value, target, old, args.clip_coef if clip else math.inf)
        around_target = value_slopes(value, target, target, getattr(args, "clip_coef", math.inf))
        theirs, around_target = (
            args.vf_coef * slope / len(value) for slope in (theirs, around_target)
        )
        ours, scale = (
            slopes(subject, module, agent, args, batch, "value"),
            float(theirs.abs().max()),
        )
        worst = max(worst, largest(ours / scale, theirs / scale))
        if ours.abs().max() < 1e-12:
            hint = "no gradient reaches the value network"
        elif largest(-ours / scale, theirs / scale) < 1e-3:
            hint = "the sign of the value loss"
        elif clip and largest(ours / scale, around_target / scale) < 1e-3:
            hint = "values are clipped around the target in place of the old value"
    return *close(worst), hint


@check("update", "the sign or the weight of the entropy bonus", of="policy bootstrap")
def entropy_bonus(subject: Subject):
    """With --ent-coef c the loss is lower by c times the entropy."""
    module = subject.load()
    args, plain = subject.args(module, ent_coef=0.3), subject.args(module, ent_coef=0.0)
    agent, batch = minibatch(subject, module, args)
    with torch.no_grad():
        entropy = float(subject.act(agent, batch["x"], batch["action"])[2].mean())
        change = float(
            subject.loss(module, agent, args, batch) - subject.loss(module, agent, plain, batch)
        )
    return (
        f"loss changes by {change:+.3f}",
        f"{-0.3 * entropy:+.3f}",
        abs(change + 0.3 * entropy) < 1e-3,
    )


@check("update", "advantages are standardised over the wrong axis, or not at all", of="ratio")
def advantage_normalisation(subject: Subject):
    """With --norm-adv the loss does not change when all advantages are scaled and shifted; without it, it does."""
    module, changes = subject.load(), {}
    for norm in (True, False):
        args = subject.args(module, norm_adv=norm)
        agent, batch = minibatch(subject, module, args)
        other = batch | {"advantage": 7 * batch["advantage"] + 3}
        with torch.no_grad():
            losses = [float(subject.loss(module, agent, args, b)) for b in (batch, other)]
        changes[norm] = abs(losses[1] - losses[0])
    measured = f"loss changes by {changes[True]:.1e} with --norm-adv, {changes[False]:.1e} without"
    return measured, "below 1e-3 with, above without", changes[True] < 1e-3 < changes[False]


@check(
    "train",
    "log-probabilities are stale, of another action, or under other statistics than those of the rollout",
    of="ratio",
)
def first_ratio(subject: Subject):
    """In the first minibatch of each update nothing has changed since the rollout: the ratio is 1."""
    worst = 0.0
    for record in subject.trace.updates:
        first = record["minibatches"][0]
        if first["logprob"].shape != first["old_logprob"].shape:
            shapes = f"{tuple(first['logprob'].shape)} - {tuple(first['old_logprob'].shape)}"
            return (
                f"log-probabilities {shapes}",
                "the same shape",
                False,
                "a broadcast: the ratio becomes a matrix",
            )
        worst = max(worst, float(((first["logprob"] - first["old_logprob"]).exp() - 1).abs().max()))
    return f"ratio 1 +- {worst:.1e}", "1 +- 1e-03", worst < 1e-3


@check("train", "a tensor of the batch has another shape: it will broadcast", of="policy")
def shapes(subject: Subject):
    """Log-probabilities, advantages, targets and old values of every minibatch have the shape (minibatch,)."""
    wrong, names = set(), ("logprob", "old_logprob", "advantage", "target", "old_value", "valid")
    for record in subject.trace.updates:
        for mb in record["minibatches"]:
            size = len(mb["x"])
            for name in names:
                if name in mb and mb[name].shape != (size,):
                    wrong.add(f"{name} {tuple(mb[name].shape)} for {size} rows")
    return "; ".join(sorted(wrong)) or "all (minibatch,)", "all (minibatch,)", not wrong


@check(
    "train",
    "reset rows, the step after an episode's end, reach the loss, or valid rows are lost",
    of="policy",
)
def reset_rows(subject: Subject):
    """The batch holds each valid step once, and no reset row."""
    trace, extra, lost = subject.trace, 0, 0
    for places, record in zip(trace.places, trace.updates):
        lost += int((places < 0).sum())
        extra += len(record["batch"]["x"]) - len(set(places.tolist()) - {-1})
    return f"{extra} rows too many, {lost} lost", "0, 0", extra == lost == 0


def batch_error(subject: Subject, name: str, key: str) -> float:
    trace, worst = subject.trace, 0.0
    for places, expected, record in zip(trace.places, trace.expected, trace.updates):
        if (places < 0).all():
            return math.inf
        ours = record["batch"][name].double().numpy()[places[places >= 0]]
        worst = max(worst, largest(ours, expected[key][places >= 0]))
    return worst


@check("train", "the stored action is not the one that was drawn in this state", of="policy")
def stored_actions(subject: Subject):
    """Clipped, the stored action is what the environment got; unclipped, it leaves the bounds now and then."""
    trace, worst, beyond = subject.trace, 0.0, 0
    discrete = "discrete" in subject.kinds
    for places, expected, record in zip(trace.places, trace.expected, trace.updates):
        if (places < 0).any():
            return "rows are missing", "a row for each step", False, "see reset-rows"
        action = record["batch"]["action"].double().numpy()[places]
        worst = max(
            worst, largest(action if discrete else np.clip(action, -0.5, 0.8), expected["action"])
        )
        beyond += 0 if discrete else int(((action < -0.5001) | (action > 0.8001)).any(1).sum())
    if discrete:
        return close(worst)
    hint = (
        "the clipped action is stored: its log-probability is not that of the draw"
        if worst < 1e-3
        else None
    )
    return (
        f"error {worst:.1e}, {beyond} beyond the bounds",
        "below 1e-03, some",
        worst < 1e-3 and beyond > 0,
        hint,
    )


@check("train", "old values are not those of the rollout's states", of="ratio")
def stored_values(subject: Subject):
    """Old values of the batch against the agent's own values of the states in the protocol."""
    return close(batch_error(subject, "old_value", "value"))


@check("train", "what reaches compute_gae is not what the environments gave", of="policy bootstrap")
def gae_inputs(subject: Subject):
    """Rewards, values, terminateds and dones of the whole rollout; reset rows do not count."""
    trace, errors = (
        subject.trace,
        dict.fromkeys(("rewards", "values", "last value", "terminateds", "dones"), 0.0),
    )
    late, learner_hint = 0.0, None
    for call, truth, record in zip(trace.returns, trace.truth, trace.updates):
        valid, values = truth["valid"], trace.values(truth, record["agent"])
        rewards, terminals, dones = truth["learner"]
        pairs = {"rewards": (call["rewards"], rewards), "dones": (call["dones"], dones)}
        pairs |= {
            "terminateds": (call["terminateds"], terminals),
            "values": (call["values"], values),
        }
        for name, (ours, theirs) in pairs.items():
            here = valid  # what stands in a reset row matters to nothing, but its state is the end of the row before
            if name == "values":
                here = np.concatenate([valid, valid[-1:]]) | np.concatenate([valid[:1], valid])
            same = ours.shape == theirs.shape
            errors[name] = max(
                errors[name], largest(ours[here], theirs[here]) if same else math.inf
            )
        errors["last value"] = max(errors["last value"], largest(call["values"][-1], values[-1]))
        late = max(late, largest(call["dones"][1:], dones[:-1]))
        if call["terminateds"].shape == valid.shape:
            wrong = (call["terminateds"] != terminals) & valid
            if wrong.any() and (truth["life_lost"] | ~wrong).all():
                learner_hint = "a lost life does not end the bootstrap"
        if (
            call["rewards"].shape == rewards.shape
            and largest(call["rewards"][valid], truth["reward"][valid]) < 1e-6
        ):
            learner_hint = learner_hint or "rewards are not clipped"
    hints = {"terminateds": "a time limit is treated as a terminal state, or ends are stored in the wrong row",
             "dones": "`done` is cleared before it is stored, or stored a row " + ("late" if late < 1e-6 else "off"),
             "last value": "the last value is that of another state, such as the one after an automatic reset",
             "rewards": "rewards are changed, or stored in the wrong row",
             "values": "values are of other states: the true final observation is lost"}  # fmt: skip
    bad = [name for name, error in errors.items() if not error < 1e-3]
    hint = learner_hint or hints[bad[-1]] if bad else None
    return "wrong: " + ", ".join(bad) if bad else "all agree", "all agree", not bad, hint


@check("train", "advantages or targets are not those of the rollout", of="policy")
def advantages(subject: Subject):
    """Of every valid row, against float64, with --bootstrap-truncation and without normalised rewards."""
    ours, theirs = (
        batch_error(subject, name, name) if name in subject.loss_names else 0.0
        for name in ("advantage", "target")
    )
    hint = "the target is not advantage + old value" if ours < 1e-3 < theirs else None
    return *close(max(ours, theirs)), hint


@check(
    "train",
    "rewards are not divided by the deviation of the discounted return of the rows so far",
    of="scales",
)
def reward_normalisation(subject: Subject):
    """With --norm-reward: rewards over the deviation of all discounted returns so far, clipped to +-10."""
    trace = Trace(subject, norm_reward=True)
    discounted, seen, worst = np.zeros(trace.args.num_envs), [], 0.0
    for call, truth in zip(trace.returns, trace.truth):
        for t, valid in enumerate(truth["valid"]):
            discounted = discounted * trace.args.gamma * valid + truth["reward"][t]
            seen.extend(discounted[valid])
        theirs = np.clip(truth["reward"] / np.sqrt(np.var(seen) + 1e-8), -10, 10)
        worst = max(worst, largest(call["rewards"][truth["valid"]], theirs[truth["valid"]]))
    return close(worst)


@check(
    "train",
    "the normaliser takes in reset rows, forgets rows, or changes before the update has used it",
    of="normaliser",
)
def observation_statistics(subject: Subject):
    """Mean, variance and count of all valid observations up to the last rollout, each taken in after its update."""
    trace, worst, count = subject.trace, 0.0, 0
    seen = np.zeros((0, 3))
    for record, truth in zip(trace.updates, trace.truth):
        rms = record["agent"].obs_rms
        mean, var = (seen.mean(0), seen.var(0)) if len(seen) else (np.zeros(3), np.ones(3))
        worst = max(worst, largest(rms.mean, mean), largest(rms.var, var))
        count = max(count, abs(int(rms.count) - len(seen)))
        seen = np.concatenate([seen, truth["obs"][truth["valid"]]])
    return f"error {worst:.1e}, count off by {count}", "below 1e-03, 0", worst < 1e-3 and count == 0


@check(
    "update",
    "rows are left out, repeated or not shuffled; or the number of updates is wrong",
    of="ratio",
)
def minibatches(subject: Subject):
    """Each epoch passes over every row, in a new order, in --num-minibatches parts."""
    trace, wrong = subject.trace, ""
    for record in trace.updates:
        parts, per_epoch = record["minibatches"], trace.args.num_minibatches
        if len(parts) != per_epoch * trace.args.update_epochs:
            wrong = f"{len(parts)} minibatches in place of {per_epoch} x {trace.args.update_epochs}"
            break
        orders, row_of = (
            [],
            {x.numpy().tobytes(): row for row, x in enumerate(record["batch"]["x"])},
        )
        for epoch in range(trace.args.update_epochs):
            x = torch.cat(
                [part["x"] for part in parts[epoch * per_epoch : (epoch + 1) * per_epoch]]
            )
            orders.append([row_of[row.numpy().tobytes()] for row in x])
            if set(orders[-1]) != set(range(len(record["batch"]["x"]))):
                wrong = "an epoch leaves rows out"
            for name, tensor in record["batch"].items():
                part = torch.cat(
                    [mb[name] for mb in parts[epoch * per_epoch : (epoch + 1) * per_epoch]]
                )
                if not torch.equal(part, tensor[orders[-1]]):
                    wrong = wrong or f"{name} of other rows"
        if orders[0] == orders[-1]:
            wrong = wrong or "the same order in every epoch"
        if orders[0][:20] == list(range(20)):
            wrong = wrong or "not shuffled"
    return wrong or "every row, shuffled", "every row, shuffled", not wrong
