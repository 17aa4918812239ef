"""Exact checks of policy gradients: PPO, A2C, REINFORCE."""

import copy
import itertools
import math

import numpy as np
import torch

from probing.subject import (
    NUM_ACTIONS,
    Finding,
    Minibatch,
    Skip,
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
    reference_gae,
    sketch,
)


@check("train")
def trains(subject: Subject) -> Finding:
    """The file trains on a small environment and returns a summary."""
    updates = len(subject.trace.updates)
    if updates > 2:
        return passes(f"{updates} updates", "some")
    return broken(f"{updates} updates", "some", "train does not call update")


@check("Agent")
def steady_network(subject: Subject) -> Finding:
    """Asked twice about the same rows, the network says the same. What it draws while it trains, as dropout does, is
    off in all other exact checks."""
    agent, x = copy.deepcopy(subject.trace.after), subject.observations(64)
    torch.nn.Module.train(agent)
    with torch.no_grad():
        said = [subject.value(agent, x) for _ in range(2)]
        if "policy" in subject.kinds:
            action = subject.act(agent, x)[0]
            said = [value + subject.act(agent, x, action)[1] for value in said]
    measured = f"{largest(*said):.1e} apart"
    if torch.equal(*said):
        return passes("equal")
    question = "the network draws anew at each call, as with dropout: rollout, update and evaluation see different ones"
    return differs(measured, "equal", question)


ROLLOUT = ("rewards", "values", "terminateds", "dones")

# ---- returns ---------------------------------------------------------------------------------------------------------


def returns_again(subject: Subject, *needed: str, **constants: float) -> tuple:
    """The file's function of returns, called as in the traced run but on random rewards, values and ends: its result,
    and what it was given, in float64."""
    call, result = subject.trace.returns[0]
    T, N = result.shape
    generator = torch.Generator().manual_seed(subject.seed)
    kind = torch.randint(0, 6, (T, N), generator=generator)
    kind[1, 0], kind[2, 1] = 0, 1  # at least one of each
    given = {
        "rewards": torch.randn(T, N, generator=generator),
        "terminateds": (kind == 0).float(),
        "dones": (kind < 2).float(),
        "values": torch.randn(T + 1, N, generator=generator),
    }
    known = {name: tensor for name, tensor in given.items() if name in call.arguments}
    if not {*needed} <= {*known}:
        raise Unable(f"{subject.returns_name} takes {', '.join(call.arguments)}")
    ours = call.again(**known, **constants)
    return ours.double().numpy(), *(given[name].double().numpy() for name in given)


def wrong_ends(r, te, do) -> dict[str, tuple]:
    """What a file may mistake for (rewards, terminal states, ends of the trace)."""
    none = np.zeros_like(do)
    late = [np.concatenate([np.zeros_like(ends[:1]), ends[:-1]]) for ends in (te, do)]
    return {
        "the recursion runs on over the ends of episodes: no mask of `done`": (r, te, none),
        "no episode end reaches the advantages": (r, none, none),
        "a time limit is treated as a terminal state": (r, do, do),
        "a terminal state is bootstrapped": (r, none, do),
        "the trace runs on over time limits": (r, te, te),
        "`done` acts one step late": (r, te, late[1]),
        "`terminated` acts one step late": (r, late[0], do),
    }


def violated(subject: Subject, gamma: float) -> str:
    """What every estimator of advantages or returns keeps, whatever its weights: read off its slopes."""
    call, result = subject.trace.returns[0]
    T, N = result.shape
    rewards = torch.zeros(T, N, requires_grad=True)
    values = torch.zeros(T + 1, N, requires_grad=True)
    terminateds, dones = torch.zeros(T, N), torch.zeros(T, N)
    end, cut, column = T // 2, T // 4, 0  # a terminal state, and before it a truncation
    terminateds[end], dones[end], dones[cut] = 1.0, 1.0, 1.0
    given = {
        "rewards": rewards,
        "values": values,
        "terminateds": terminateds,
        "dones": dones,
        "gamma": gamma,
    }
    with torch.enable_grad():
        ours = call.again(
            **{name: value for name, value in given.items() if name in call.arguments}
        )

        def slope(t: int, of: torch.Tensor) -> torch.Tensor:
            grad = torch.autograd.grad(ours[t, column], of, retain_graph=True, allow_unused=True)[0]
            return torch.zeros_like(of) if grad is None else grad

        by_reward, by_value = slope(cut, rewards), slope(cut, values)
        before_end, before_end_value = slope(end, rewards), slope(end, values)
        early = slope(0, rewards)
    if by_reward[cut, column] < 0 or before_end[end, column] < 0:
        return "the sign: a higher reward lowers it"
    if early[cut + 1 :, column].abs().max() > 1e-6:
        return "the rewards of the next episode flow into it: no mask of `done`"
    if before_end_value[end + 1, column].abs() > 1e-6:
        return "a terminal state is bootstrapped"
    if by_value[cut + 1, column] < 1e-6:
        return "a time limit is treated as a terminal state"
    if abs(float(by_value[cut + 1, column]) - gamma) > 1e-4:
        return "the value of the next state is not discounted by gamma"
    if by_reward[:, column + 1 :].abs().max() > 1e-6:
        return "it depends on other environments"
    return ""


@check("compute_gae", of="gae")
def gae(subject: Subject) -> Finding:
    """compute_gae on random rewards, values and ends, against the sum of equation 16 in float64."""
    gamma, lam = 0.9, 0.6
    ours, r, te, do, v = returns_again(subject, *ROLLOUT, gamma=gamma, gae_lambda=lam)
    right = reference_gae((r, te, do), v, gamma, lam)
    mistakes = {
        text: reference_gae(case, v, gamma, lam) for text, case in wrong_ends(r, te, do).items()
    }
    mistakes |= {
        "the sign of the advantage": -right,
        "gamma and lambda are swapped": reference_gae((r, te, do), v, lam, gamma),
        "gamma is missing from the trace": reference_gae((r, te, do), v, gamma, lam / gamma),
    }
    choices = {
        "lambda has no effect: these are returns minus values": reference_gae(
            (r, te, do), v, gamma, 1.0
        ),
        "lambda has no effect: these are errors of one step": reference_gae(
            (r, te, do), v, gamma, 0.0
        ),
    }
    question = "the advantages are not those of equation 16, though they keep to their episodes"
    return invariant(subject, gamma, compare(ours, right, mistakes, choices, question))


def invariant(subject: Subject, gamma: float, finding: Finding) -> Finding:
    """Where the formula is another one it must still keep what all of them keep."""
    if finding.verdict == "differs" and (mistake := violated(subject, gamma)):
        return broken(finding.measured, finding.expected, mistake)
    return finding


@check("n_step_returns", of="n-step")
def n_step_returns(subject: Subject) -> Finding:
    """n_step_returns on random rewards, values and ends, against the sum of discounted rewards in float64."""
    gamma = 0.9
    ours, r, te, do, v = returns_again(subject, *ROLLOUT, gamma=gamma)
    right = reference_gae((r, te, do), v, gamma, 1.0) + v[:-1]
    cases = wrong_ends(r, te, do)
    cases["the rollout's last value is left out"] = (
        r,
        np.concatenate([te[:-1], np.ones_like(te[:1])]),
        do,
    )
    mistakes = {text: reference_gae(case, v, gamma, 1.0) + v[:-1] for text, case in cases.items()}
    mistakes |= {
        "gamma is missing": reference_gae((r, te, do), v, 1.0, 1.0) + v[:-1],
        "advantages in place of returns": right - v[:-1],
    }
    one_step = reference_gae((r, te, do), v, gamma, 0.0) + v[:-1]
    choices = {"the targets look one step ahead only": one_step}
    question = "the targets are not those of algorithm S3, though they keep to their episodes"
    return invariant(subject, gamma, compare(ours, right, mistakes, choices, question))


@check("compute_returns", of="monte-carlo")
def monte_carlo_returns(subject: Subject) -> Finding:
    """compute_returns on random rewards against the sum in float64."""
    gamma = 0.9
    ours, r, *_ = returns_again(subject, "rewards", gamma=gamma)
    none, zero = np.zeros_like(r), np.zeros((len(r) + 1, r.shape[1]))
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
        "the sign of the returns": -right,
    }
    question = "the returns are not the discounted sums of the rewards that follow"
    return compare(ours, right, mistakes, {}, question)


# ---- the distribution of the action ----------------------------------------------------------------------------------


class Density:
    """What the agent says of two-dimensional actions in one state: its log-probability on a grid that reaches far out
    (by the quantiles of a Cauchy distribution, as wide as the draws), and draws."""

    def __init__(self, subject: Subject, agent, side: int = 400, draws: int = 40_000):
        x = subject.observations(1)
        with torch.no_grad():
            self.drawn = subject.act(agent, x.expand(draws, -1))[0]
            if self.drawn.shape != (draws, 2):
                raise Unable(f"actions of the shape {tuple(self.drawn.shape)}")
            low, middle, high = self.drawn.quantile(torch.tensor([0.25, 0.5, 0.75]), dim=0)
            self.middle, self.spread = middle, ((high - low) / 2).clamp(min=1e-4)
            angle = math.pi * ((torch.arange(side) + 0.5) / side - 0.5)
            axes = [m + s * angle.tan() for m, s in zip(self.middle, self.spread)]
            areas = [s * math.pi / side * (1 + angle.tan() ** 2) for s in self.spread]
            self.grid = torch.cartesian_prod(*axes)
            area = torch.cartesian_prod(*areas).double().prod(-1)
            _, logprob, self.entropy = subject.act(agent, x.expand(len(self.grid), -1), self.grid)
            self.shape, self.logprob = tuple(logprob.shape), logprob.double().nan_to_num(nan=-1e4)
            self.weights = {"action": self.logprob.exp() * area}
            # a squashed action may have the density of what the environment gets
            far, action = copy.deepcopy(agent).double(), self.grid.double()
            step = 1e-4 * self.spread.double()
            try:
                up, down = (torch.from_numpy(far.to_env(action + sign * step)) for sign in (1, -1))
                slope = ((up - down) / (2 * step)).abs().prod(-1)
                self.weights["environment"] = self.logprob.exp() * area * slope
            except Exception:  # to_env may be another one; the density of the action is enough
                pass
        self.masses = {name: float(weight.sum()) for name, weight in self.weights.items()}
        self.kind = min(self.masses, key=lambda name: abs(self.masses[name] - 1))
        self.weight, self.mass = self.weights[self.kind], self.masses[self.kind]


def densities(subject: Subject) -> dict[str, Density]:
    """With each --distribution that the file has."""
    names = getattr(subject.module.Args.__annotations__.get("distribution"), "__args__", ("",))
    flags = [{"distribution": name} if name else {} for name in names]
    return {name: Density(subject, subject.agent(**flag)) for name, flag in zip(names, flags)}


@check("Agent", of="continuous")
def density(subject: Subject) -> Finding:
    """The density of two-dimensional actions must integrate to 1, and to the entropy."""
    finding = passes("mass 1.00, entropy as reported")
    for name, found in densities(subject).items():
        if found.shape != (len(found.grid),):
            return broken(
                f"log-probabilities {found.shape}",
                f"({len(found.grid)},)",
                "sum over action dimensions",
            )
        entropy = float(found.entropy.double().mean())
        theirs = float(-(found.weight * found.logprob.clamp(min=-1e4)).sum())
        measured = f"{name} mass {found.mass:.3f}, entropy {entropy:.2f}".strip()
        expected = f"1 +- 0.03, {theirs:.2f} +- 0.03"
        squares = (
            found.logprob.mul(2).exp()
            * (found.weights["action"] / found.logprob.exp()).nan_to_num()
        )
        if abs(found.mass - 1) > 0.03:
            averaged = abs(float(squares.sum()) - 1) < 0.03
            mistake = (
                "log-probabilities are averaged over action dimensions, not summed"
                if averaged
                else ""
            )
            finding = broken(
                measured, expected, mistake or "the log-probability is not that of a density"
            )
        elif abs(entropy - theirs) > 0.03 and finding.verdict == "passes":
            question = "the entropy is not that of the density whose log-probability is reported"
            finding = differs(measured, expected, question)
    return finding


@check("Agent", of="continuous", follows="density")
def sampling(subject: Subject) -> Finding:
    """Two moments of many draws, and that of both dimensions together, are those of the density; each call draws
    anew."""
    worst, agent, x = 0.0, subject.agent(), subject.observations(8)
    with torch.no_grad():
        if torch.equal(*(subject.act(agent, x)[0] for _ in range(2))):
            return broken("the same draws twice", "others", "every call draws the same actions")
    for found in densities(subject).values():
        drawn, grid = ((a - found.middle) / found.spread for a in (found.drawn, found.grid))
        weight = found.weight / found.mass
        for power in (1, 2):
            theirs = (weight[:, None] * grid.double().tanh() ** power).nan_to_num().sum(0)
            worst = max(worst, largest(drawn.tanh().pow(power).mean(0), theirs))
        theirs = (weight * grid.double().tanh().prod(-1)).nan_to_num().sum()
        worst = max(worst, largest(drawn.tanh().prod(-1).mean(), theirs))
    if worst < 0.03:
        return passes(f"error {worst:.1e}", "below 3e-02")
    mistake = "actions are not drawn from the distribution whose log-probability is reported"
    return broken(f"error {worst:.1e}", "below 3e-02", mistake)


@check("Agent", of="policy discrete")
def probabilities(subject: Subject) -> Finding:
    """The probabilities of all actions add up to 1, and give the entropy; a row does not depend on the others."""
    agent, x = subject.agent(), subject.observations(32)
    with torch.no_grad():
        logprobs, entropy = subject.outputs(agent, x)[0].double(), subject.act(agent, x)[2].double()
        alone = torch.cat([subject.outputs(agent, row[None])[0] for row in x]).double()
    mass, theirs = logprobs.exp().sum(-1), -(logprobs.exp() * logprobs).sum(-1)
    errors = largest(mass, torch.ones(32)), largest(logprobs, alone), largest(entropy, theirs)
    measured = "mass {:.1e}, rows {:.1e}, entropy {:.1e} off".format(*errors)
    if errors[0] > 1e-3:
        return broken(
            measured, "below 1e-03", "the probabilities of all actions do not add up to 1"
        )
    if errors[1] > 1e-3:
        return broken(measured, "below 1e-03", "a row depends on the other rows")
    if largest(-entropy, theirs) < 1e-3 and errors[2] > 1e-3:
        return broken(measured, "below 1e-03", "the sign of the entropy")
    if errors[2] > 1e-3:
        return differs(measured, "below 1e-03", "the entropy is not that of the probabilities")
    return passes(measured, "below 1e-03")


@check("Agent", of="policy discrete")
def action_frequencies(subject: Subject) -> Finding:
    """Of 3,200 draws in one state: how often each action comes, and that the rows of one call differ."""
    agent, x = subject.agent(), subject.observations(64)
    with torch.no_grad():
        # a state whose probabilities differ, but none of them so much that it never comes
        far = (subject.act(agent, x)[2] - 0.7 * math.log(NUM_ACTIONS)).abs()
        x = x[[far.argmin()]].expand_as(x)
        draws = torch.stack([subject.act(agent, x)[0] for _ in range(50)])  # (50 calls, 64 rows)
        expected = 64 * subject.outputs(agent, x[:1])[0][0].double().exp()
    counts = torch.nn.functional.one_hot(draws, NUM_ACTIONS).double().sum(1)  # (50 calls, actions)
    common = expected > 3  # of the others there are too few
    counts, expected = counts[:, common], expected[common]
    deviation = (expected * (1 - expected / 64)).sqrt()
    off = float(((counts.mean(0) - expected) / deviation).abs().max() * 50**0.5)
    spread = float((counts.var(0) / deviation**2).mean().sqrt())
    measured = f"{off:.1f} deviations off, spread {spread:.2f}"
    if spread > 2:
        return broken(measured, "below 5.5, 1 +- 0.5", "one draw serves several rows")
    if off > 5.5 or abs(spread - 1) > 0.5:
        mistake = "actions are not drawn with the probabilities that are reported"
        return broken(measured, "below 5.5, 1 +- 0.5", mistake)
    return passes(measured, "below 5.5, 1 +- 0.5")


@check("Agent", of="continuous")
def bounds(subject: Subject) -> Finding:
    """Draws through to_env keep to the action space, as clipped or squashed ones."""
    agent, space = subject.agent(), subject.trace.action_space
    low, high = torch.from_numpy(space.low.ravel()), torch.from_numpy(space.high.ravel())
    with torch.no_grad():
        action = subject.act(agent, subject.observations(600))[0]
        ours = np.asarray(agent.to_env(action)).reshape(len(action), -1)
    measured = f"{ours.min():.2f} to {ours.max():.2f}"
    expected = f"within {low.min():.2f} and {high.max():.2f}"
    if (ours < low.numpy() - 1e-4).any() or (ours > high.numpy() + 1e-4).any():
        return broken(measured, expected, "what the environment gets leaves the action space")
    clipped, squashed = action.clamp(low, high), low + (high - low) * (action.tanh() + 1) / 2
    if min(largest(ours, clipped), largest(ours, squashed)) > 1e-3:
        return differs(
            measured,
            "clipped or squashed",
            "the environment gets neither the clipped nor the squashed action",
        )
    return passes(measured, expected)


@check("Agent", of="normaliser")
def normaliser(subject: Subject) -> Finding:
    """Of observations far and near, by statistics of the probe's own; the input stays as it is. Without --norm-obs so
    does the output."""
    agent = subject.agent()
    if not hasattr(agent, "obs_rms"):
        raise Skip
    size = agent.obs_rms.mean.numel()
    agent.obs_rms.mean += torch.tensor([3.0, -2.0, 0.5]).repeat(size)[:size]
    agent.obs_rms.var += torch.tensor([8.0, -0.75, 99.0]).repeat(size)[:size]
    obs = 30 * torch.randn(200, size)
    kept, mean, var = obs.clone(), agent.obs_rms.mean.double(), agent.obs_rms.var.double()
    ours = agent.normalize(obs).double()
    if not torch.equal(obs, kept):
        return broken(
            "the input changes",
            "it stays",
            "normalize writes into its input: stored observations change",
        )
    centred = kept.double() - mean
    right = (centred / (var + 1e-8).sqrt()).clamp(-10, 10)
    mistakes = {
        "observations are divided by the variance, not its root": (centred / (var + 1e-8)).clamp(
            -10, 10
        ),
        "observations are not standardised": kept,
        "the mean is not subtracted": (kept / (var + 1e-8).sqrt()).clamp(-10, 10),
    }
    question = "normalize is not (obs - mean) / deviation, clipped to +-10"
    finding = compare(ours, right, mistakes, {}, question)
    if finding.verdict == "passes" and "norm_obs" in subject.module.Args.__dataclass_fields__:
        plain = subject.agent(norm_obs=False).normalize(kept)
        if largest(plain, kept) > 1e-6:
            return differs("observations change", "they stay", "--no-norm-obs has no effect")
    return finding


@check("Agent", of="continuous", follows="density")
def scale(subject: Subject) -> Finding:
    """The entropy rises by 1 for each dimension and each 1 that the log of the scale rises by; the scale begins at
    --init-std."""
    agent, x, found = subject.agent(), subject.observations(8), []
    if not isinstance(getattr(agent, "actor_logstd", None), torch.nn.Parameter):
        raise Skip
    if "init_std" in subject.module.Args.__dataclass_fields__:
        begun = subject.new_agent(init_std=0.3).actor_logstd.detach().exp()
        if largest(begun, torch.full_like(begun, 0.3)) > 1e-3:
            question = "the scale does not begin at --init-std"
            return differs(f"{float(begun.mean()):.2f} with --init-std 0.3", "0.30", question)
    if subject.outputs(agent, x)[0].shape != (8, 2) or agent.actor_logstd.numel() != 2:
        raise Unable(f"actor_logstd has {agent.actor_logstd.numel()} numbers for 2 actions")
    entropies = []
    for value in (-2.0, 0.0, 1.0):
        agent.actor_logstd.data.fill_(value)
        torch.manual_seed(subject.seed)
        entropies.append(float(subject.act(agent, x)[2].mean()))
        action = subject.act(agent, x.expand(8, -1))[0]
        found.append(float(subject.act(agent, x, action)[1].mean()))
    squashed = largest(agent.to_env(torch.tensor([[0.3, 0.1]])), [[0.3, 0.1]]) > 1e-3
    steps = np.diff(entropies) / np.array([4.0, 2.0])
    measured = f"{steps[0]:.2f}, {steps[1]:.2f} for each 1"
    if squashed:  # its entropy is bounded
        return (
            passes(measured, "any")
            if steps[0] > 0.5
            else differs(measured, "1 at small scales", QUESTION)
        )
    return (
        passes(measured, "1.00")
        if np.abs(steps - 1).max() < 1e-3
        else differs(measured, "1.00", QUESTION)
    )


QUESTION = "the scale of the action, or its entropy, is clamped or transformed"


@check("Agent", of="policy")
def first_policy(subject: Subject) -> Finding:
    """Before the first update the policy is almost the same in all states, since the weights of its last layer are
    small."""
    agent, x = subject.trace.first, subject.observations(32)
    with torch.no_grad():
        logprobs = [
            subject.act(agent, x, a.expand(32, *a.shape))[1] for a in subject.act(agent, x)[0]
        ]
    spread = float(torch.stack(logprobs).std(1).mean())
    measured, expected = f"log-probabilities {spread:.1e} apart", "below 3e-02"
    if spread < 0.03:
        return passes(measured, expected)
    question = (
        "the policy begins with preferences of its own: the weights of its last layer are large"
    )
    return differs(measured, expected, question)


@check("Agent", of="continuous rpo", follows="density")
def rpo_noise(subject: Subject) -> Finding:
    """At the location itself the squares of z can be read off the log-probability: 2 alpha^2 / 3 on the mean."""
    alpha = 0.4
    noisy, plain = (subject.agent(rpo_alpha=a, rpo_perturb_rollout=False) for a in (alpha, 0.0))
    if not (hasattr(noisy, "actor_mean") and hasattr(noisy, "actor_logstd")):
        raise Unable(
            "the agent has no actor_mean and actor_logstd, by which the probe reads the noise off"
        )
    x = subject.observations(1).expand(100_000, -1)
    with torch.no_grad():
        same = []
        for agent in (noisy, plain):
            agent.actor_logstd.zero_()
            torch.manual_seed(subject.seed)
            same.append(subject.act(agent, x[:100])[0])
        location = plain.actor_mean(x)
        # sums over the two dimensions of z^2, and of z^2 - 2 z
        squares, beside = (
            2 * (subject.act(plain, x, action)[1] - subject.act(noisy, x, action)[1])
            for action in (location, location + 1)
        )
    ratio, top = float(squares.mean() / (2 * alpha**2 / 3)), float(squares.max())
    spread = float(squares.std() / (alpha**2 * (8 / 45) ** 0.5))
    middle = float((squares - beside).mean() / 4)
    acting = "equal" if torch.equal(*same) else "noisy"
    measured = f"z^2 {ratio:.2f}, spread {spread:.2f}, z {middle:.2f}, acting {acting}"
    expected = "1.00, 1.00, 0.00, equal"
    if acting == "noisy":
        return broken(
            measured, expected, "z is added while acting as well, without --rpo-perturb-rollout"
        )
    if spread < 0.1 < ratio:
        return broken(measured, expected, "one draw of z serves the whole minibatch")
    if abs(middle) > 0.03:
        return broken(measured, expected, "z is not symmetric around 0")
    if max(abs(ratio - 1), abs(spread - 1)) > 0.03 or top > 2 * alpha**2 + 1e-4:
        return differs(
            measured, expected, "z is not uniform in [-alpha, alpha] for each row and dimension"
        )
    return passes(measured, expected)


@check("train", of="continuous rpo", follows="rpo-noise")
def rpo_schedule(subject: Subject) -> Finding:
    """With --rpo-alpha 0.4 --rpo-alpha-final 0.1: alpha falls linearly with the steps, read off the agent."""
    if not hasattr(subject.module.Args, "rpo_alpha_final"):
        raise Skip
    trace = Trace(subject, rpo_alpha=0.4, rpo_alpha_final=0.1)
    if not hasattr(trace.first, "rpo_alpha"):
        raise Unable("the agent has no rpo_alpha")
    ours = [float(record["agent"].rpo_alpha) for record in trace.updates]
    right = [0.4 - 0.3 * step / trace.args.total_timesteps for step in [0, *trace.steps]][
        : len(ours)
    ]
    measured, expected = (f"{alpha[0]:.2f} to {alpha[-1]:.2f}" for alpha in (ours, right))
    if largest(ours, right) < 1e-3:
        return passes(measured, expected)
    if ours[-1] > ours[0] or max(ours) > 0.401:
        return broken(measured, expected, "alpha rises, where it is to fall to --rpo-alpha-final")
    if ours[-1] == ours[0]:
        return broken(measured, expected, "--rpo-alpha-final has no effect")
    return differs(measured, expected, "alpha does not fall linearly")


# ---- the loss --------------------------------------------------------------------------------------------------------


@check("update")
def rows_are_independent(subject: Subject) -> Finding:
    """Rows of the batch keep together: the loss changes when one of its tensors alone is shuffled."""
    mb = Minibatch(subject, 32, norm_adv=False, clip_vloss=True, ent_coef=0.0)
    order = torch.arange(32).roll(5)
    with torch.no_grad():
        whole, spoilt = float(mb.loss()), []
        again = abs(float(mb.loss()) - whole)  # a loss may draw
        for name in sorted(mb.drawn - {"valid"}):
            tensor = mb.batch[name]
            other = (
                1 - tensor
                if name == "terminal"
                else tensor.roll(1, 0) + (tensor.is_floating_point() * 0.5)
            )
            if (
                tensor.is_floating_point()
                and abs(float(mb.loss(**{name: other})) - whole) < 1e-6 + 2 * again
            ):
                continue  # the loss does not depend on it
            change = abs(float(mb.loss(**{name: tensor[order]})) - whole)
            spoilt += [name] if change < 1e-6 * max(1, abs(whole)) + again else []
    if spoilt:
        mistake = (
            "a broadcast such as (n,) - (n, 1), or one row for all: every row meets every other"
        )
        return broken(
            f"shuffled without effect: {', '.join(sorted(spoilt))}", "each has one", mistake
        )
    if "policy" in subject.kinds:
        x = mb.batch["x"]
        with torch.no_grad():
            alone = torch.cat([subject.value(mb.agent, row[None]) for row in x])
            together = subject.value(mb.agent, x)
        if largest(together, alone) > 1e-3:
            return broken(
                "other values beside other rows", "its own", "a row decides the value of others"
            )
    return passes("all rows keep together")


def own(mb: Minibatch, mine: torch.Tensor, other: torch.Tensor) -> list:
    """The parameters that `mine` depends on and `other` does not."""
    parameters = [p for p in mb.agent.parameters() if p.requires_grad]
    if not mine.requires_grad:
        return []
    mine, other = (
        torch.autograd.grad(output.sum(), parameters, retain_graph=True, allow_unused=True)
        if output.requires_grad
        else [None] * len(parameters)
        for output in (mine, other)
    )
    return [p for p, a, b in zip(parameters, mine, other) if a is not None and b is None]


def slopes(
    subject: Subject, mb: Minibatch, part: str, right, mistakes: dict, choices: dict, question: str
) -> Finding:
    """The gradient of the loss, by the parameters that only the policy (or the value) has, is that of a sum over
    rows of slope x log-probability (or value): `right`, or what a mistake would give."""
    x = mb.batch["x"]
    outputs = {
        "logprob": subject.act(mb.agent, x, mb.batch.get("action"))[1],
        "value": subject.value(mb.agent, x),
    }
    output = outputs.pop(part)
    if output.shape != (len(x),):
        return broken(
            f"{part} of the shape {tuple(output.shape)}",
            f"({len(x)},)",
            "a tensor of another shape will broadcast",
        )
    parameters = own(mb, output, *outputs.values())
    if not parameters:
        raise Unable(f"no parameter belongs to the {part} alone")
    ours = gradient(mb.loss(), parameters)
    summed = lambda slope: gradient((slope.float() * output).sum(), parameters)  # noqa: E731
    theirs = summed(right)
    size = float(theirs.abs().max())
    cases = [
        {text: summed(slope) / size for text, slope in part.items()} for part in (mistakes, choices)
    ]
    if ours.abs().max() < 1e-9 * size:
        return broken("no gradient", "one", "no gradient reaches it")
    finding = compare(ours / size, theirs / size, *cases, question)
    factor = float(ours @ theirs / (theirs @ theirs))
    cosine = float(torch.cosine_similarity(ours, theirs, 0))
    if finding.verdict == "differs" and cosine > 0.9999:
        return differs(
            f"{factor:.3g} times the published slope",
            "1",
            f"the {part} has {factor:.3g} times its weight in the loss",
        )
    # beside a ratio a term of its own, such as a KL penalty on made-up old means, may pull anywhere
    limit = -0.7 if "ratio" in subject.kinds else 0
    if finding.verdict == "differs" and factor < -0.2 and cosine < limit:
        return broken(finding.measured, finding.expected, "the loss moves it the wrong way")
    return finding


def rows_of(subject: Subject, many: int) -> int:
    return 64 if subject.world == "Pixels" else many


@check("update", of="ratio", follows="rows-are-independent density")
def clipping(subject: Subject) -> Finding:
    """Slope of the loss by each row's log-probability: -ratio x advantage, and 0 where clipping must hold it, which is
    nowhere in a trust region. The same with --norm-adv and the advantage less its mean, over its deviation."""
    finding = policy_slopes(subject, lambda advantage: advantage)
    if finding.verdict != "passes" or "norm_adv" not in subject.module.Args.__dataclass_fields__:
        return finding
    for n in (1, 0):  # the deviation may be divided by the number of rows less 1, or by it
        whole = lambda a, n=n: (a - a.mean()) / (a.std(correction=n) + 1e-8)  # noqa: E731
        with_norm = policy_slopes(subject, whole, norm_adv=True)
        if with_norm.verdict == "passes":
            return finding
    if with_norm.verdict == "broken":
        return with_norm
    question = "with --norm-adv the advantage is not (advantage - mean) / deviation"
    return differs(with_norm.measured, with_norm.expected, question)


def policy_slopes(subject: Subject, standardise, norm_adv: bool = False) -> Finding:
    """Of the loss by each row's log-probability, with the advantages as the loss should take them."""
    mb = Minibatch(subject, rows_of(subject, 256), norm_adv=norm_adv, ent_coef=0.0)
    with torch.no_grad():
        logprob = subject.act(mb.agent, mb.batch["x"], mb.batch["action"])[1]
        ratio = (logprob - mb.batch["old_logprob"]).exp().double()
    advantage, eps, n = (
        standardise(mb.batch["advantage"].double()),
        getattr(mb.args, "clip_coef", math.inf if "trust-region" in subject.kinds else 0.2),
        len(ratio),
    )
    held = ((advantage > 0) & (ratio > 1 + eps)) | ((advantage < 0) & (ratio < 1 - eps))
    other = ((advantage < 0) & (ratio > 1 + eps)) | ((advantage > 0) & (ratio < 1 - eps))
    plain = -ratio * advantage / n
    right = torch.where(held, 0, plain)
    mistakes = {
        "the sign of the policy loss: it lowers good actions": -right,
        "max in place of min: the clip holds the wrong side": torch.where(other, 0, plain),
        "the sign of the policy loss, and no clip": -plain,
    }
    choices = {
        "the ratio is not clipped": plain,
        "the ratio is clipped on both sides, whatever the advantage": torch.where(
            held | other, 0, plain
        ),
    }
    return slopes(
        subject,
        mb,
        "logprob",
        right,
        mistakes,
        choices,
        "the policy loss is not PPO's clipped surrogate",
    )


# ---- the penalty on the KL -------------------------------------------------------------------------------------------


@check("Agent", of="penalty continuous", follows="density")
def kl_penalty(subject: Subject) -> Finding:
    """get_kl of two agents whose means and scales differ: the KL of old and new Gaussians, in float64."""
    old, new = (subject.agent(seed=seed).double() for seed in (0, 1))
    if not hasattr(new, "get_kl"):
        raise Unable("the agent has no get_kl")
    old.actor_logstd.data += torch.tensor([-0.5, 0.6])
    x = subject.observations(32).double()
    with torch.no_grad():
        pairs = [(agent.actor_mean(x), agent.actor_logstd.exp()) for agent in (old, new)]
        ours, terms = new.get_kl(old, x), gaussian_kl(*pairs[0], *pairs[1])
    error, std = pairs[0][0] - pairs[1][0], pairs[1][1]
    mistakes = {
        "the sign: moving away from the old policy is rewarded": -terms.sum(-1).mean(),
        "the KL is averaged over action dimensions, not summed": terms.mean(),
        "the scales of the policies are left out": (error / std).square().sum(-1).mean() / 2,
        "the old scale is taken for both": (error / pairs[0][1]).square().sum(-1).mean() / 2,
    }
    choices = {"the KL is KL[new || old]": gaussian_kl(*pairs[1], *pairs[0]).sum(-1).mean()}
    return compare(
        ours, terms.sum(-1).mean(), mistakes, choices, "the penalty is not KL[old || new]"
    )


@check("update", of="penalty continuous", follows="kl-penalty")
def penalty_holds(subject: Subject) -> Finding:
    """How far the first update moves with --init-beta 1000, against --init-beta 1e-6."""
    free, held = (Trace(subject, init_beta=beta).kl(0) for beta in (1e-6, 1000.0))
    measured, expected = f"KL {held:.1e} against {free:.1e}", "less than a half"
    if held < free / 2:
        return passes(measured, expected)
    if held > 1.1 * free:
        return broken(measured, expected, "the penalty drives the policy away from the old one")
    return differs(measured, expected, "the penalty hardly holds the policy")


@check("train", of="penalty continuous", follows="kl-penalty penalty-holds")
def penalty_weight(subject: Subject) -> Finding:
    """beta after each update, by its KL: with --kl-target above and below the KLs that there are."""
    usual = float(np.median([subject.trace.kl(k) for k in range(len(subject.trace.updates))]))
    wrong, against, total = 0, 0, 0
    for target in (2 * usual, usual / 3):
        trace = Trace(subject, kl_target=target)
        decay = getattr(trace.updates[0]["agent"].args, "beta_decay", 0.5)
        betas = [float(record["agent"].beta) for record in trace.updates]
        for k, (before, after) in enumerate(itertools.pairwise(betas)):
            share = trace.kl(k) / target
            if min(abs(share - 1.5), abs(share - 1 / 1.5)) < 0.02:
                continue  # rounding decides
            factor = 2.0 if share > 1.5 else decay if share < 1 / 1.5 else 1.0
            right = min(max(factor * before, 1e-6), 1e6) if factor != 1 else before
            total += 1
            wrong += abs(after / right - 1) > 1e-3
            against += (after > before and factor < 1) or (after < before and factor > 1)
    measured, expected = f"{wrong} of {total} updates wrong, {against} the other way", "none"
    if not wrong:
        return passes(measured, expected)
    if against > wrong / 2:
        return broken(
            measured,
            expected,
            "beta falls where the policy moves too far, or rises where it hardly moves",
        )
    return differs(
        measured,
        expected,
        "beta does not double above 1.5 x --kl-target and fall to --beta-decay below --kl-target / 1.5",
    )


# ---- the trust region ------------------------------------------------------------------------------------------------


def policy_parameters(agent) -> list:
    if not isinstance(getattr(agent, "actor_logstd", None), torch.nn.Parameter):
        raise Unable(
            "the agent has no actor_mean and actor_logstd, which the probe takes for its policy"
        )
    return [*agent.actor_mean.parameters(), agent.actor_logstd]


def fisher_root(agent, x) -> torch.Tensor:
    """A matrix R with R^T R the Fisher matrix, averaged over rows x, of the parameters of a Gaussian policy: a row for
    each mean, its derivatives over the deviation, and one for each log of a deviation, whose own information is 2."""
    parameters, mean = policy_parameters(agent), agent.actor_mean(x)
    std = agent.actor_logstd.exp().detach()
    rows = [gradient(number, parameters) for number in (mean / std / len(x) ** 0.5).flatten()]
    rows += [2**0.5 * gradient(number, parameters) for number in agent.actor_logstd]
    return torch.stack(rows)


@check("fisher_product", of="trust-region continuous", follows="density")
def fisher_vector_product(subject: Subject) -> Finding:
    """fisher_product on vectors, with damping 0.3, against the matrix made of the derivatives of means and scales."""
    if not hasattr(subject.module, "fisher_product"):
        raise Unable("there is no function fisher_product")
    agent, x = subject.agent().double(), subject.observations(8).double()
    parameters, root = policy_parameters(agent), fisher_root(agent, x)
    policy = torch.distributions.Normal(agent.actor_mean(x), agent.actor_logstd.exp())
    product = subject.trace.module.fisher_product(policy, parameters, 0.3)
    vectors = torch.randn(4, root.shape[1], dtype=torch.float64)
    ours = torch.stack([product(v).detach() for v in vectors])
    plain = vectors @ root.T @ root
    right, scale = plain + 0.3 * vectors, plain.abs().max()
    mistakes = {"the sign of the damping": plain - 0.3 * vectors}
    mistakes |= {"the sign of the Fisher matrix": 0.3 * vectors - plain}
    mistakes |= {"the Fisher matrix does not enter: this is the plain gradient": 0.3 * vectors}
    mistakes |= {
        f"the KL of {n} rows is summed or halved": f * plain + 0.3 * vectors
        for n, f in ((8, 8), (2, 0.5))
    }
    choices = {"there is no damping": plain}
    cases = [{text: other / scale for text, other in part.items()} for part in (mistakes, choices)]
    question = "the product is not that of the Fisher matrix and the damping"
    return compare(ours / scale, right / scale, *cases, question, 1e-6)


@check("conjugate_gradient", of="trust-region")
def conjugate_gradient(subject: Subject) -> Finding:
    """The solution for a random positive definite matrix, in as many steps as it has rows, against a direct one."""
    root, b = torch.randn(12, 12, dtype=torch.float64), torch.randn(12, dtype=torch.float64)
    matrix = root @ root.T / 12 + torch.eye(12)
    ours = subject.trace.module.conjugate_gradient(lambda v: matrix @ v, b, 12)
    error = largest(ours, torch.linalg.solve(matrix, b))
    if error < 1e-3:
        return passes(f"error {error:.1e}", "below 1e-03")
    return broken(f"error {error:.1e}", "below 1e-03", "it does not solve the equation")


def policy_steps(trace: Trace):
    """Of each update: the agents before and after, the surrogate's tensors, and whether the policy has moved."""
    agents = [*(record["agent"] for record in trace.updates), trace.after]
    for record, (old, new) in zip(trace.updates, itertools.pairwise(agents)):
        pairs = zip(policy_parameters(old), policy_parameters(new))
        yield old, new, record["minibatches"][0], any(not torch.equal(*pair) for pair in pairs)


@check(
    "update",
    of="trust-region continuous",
    follows="conjugate-gradient fisher-vector-product clipping",
)
def natural_gradient(subject: Subject) -> Finding:
    """The direction of the first step that is taken, against (F + damping I)^-1 g with the whole matrix, in float64."""
    trace = Trace(subject, norm_adv=False, max_kl=1e-3, cg_steps=50)
    steps = [(old, new, mb) for old, new, mb, moved in policy_steps(trace) if moved]
    if not steps:
        return broken("no step was taken", "one", "the policy never moves")
    old, new, mb = steps[0][0].double(), steps[0][1].double(), steps[0][2]
    x, parameters = mb["x"].double(), policy_parameters(old)
    logprob = subject.act(old, x, mb["action"].double())[1]
    uphill = gradient((logprob * mb["advantage"].double()).mean(), parameters)
    root, damping = fisher_root(old, x), getattr(trace.args, "cg_damping", 0.1)
    # Woodbury: a matrix with as many rows as there are means, in place of one with as many as there are parameters
    inner = damping * torch.eye(len(root), dtype=torch.float64) + root @ root.T
    right = (uphill - root.T @ torch.linalg.solve(inner, root @ uphill)) / damping
    step = torch.cat(
        [(b - a).detach().flatten() for a, b in zip(parameters, policy_parameters(new))]
    )
    cosine, plain = (float(torch.cosine_similarity(step, other, 0)) for other in (right, uphill))
    measured, expected = f"cosine {cosine:.3f}", "above 0.99"
    if cosine > 0.99:
        return passes(measured, expected)
    if cosine < 0:
        return broken(measured, expected, "the step goes the wrong way")
    text = (
        "the step is that of the plain gradient"
        if plain > 0.99
        else "the step is not along the natural gradient"
    )
    return differs(measured, expected, text)


@check("update", of="trust-region continuous", follows="natural-gradient clipping")
def trust_region(subject: Subject) -> Finding:
    """With --max-kl 0.01, 0.5 and 1000: each step keeps to it and betters the surrogate, for which the last is too far;
    with the others the longest use a part of it."""
    for limit in (0.01, 0.5, 1000.0):
        trace = Trace(subject, norm_adv=False, max_kl=limit)
        kls = [trace.kl(k) for k in range(len(trace.updates))]
        moves, better = [], []
        for old, new, mb, moved in policy_steps(trace):
            logprobs = [subject.act(agent, mb["x"], mb["action"])[1] for agent in (old, new)]
            ratio = (logprobs[1] - logprobs[0]).double().exp()
            moves.append(moved)
            better.append(float(((ratio - 1) * mb["advantage"]).mean()))
        measured = f"KL up to {max(kls):.1e}, {sum(moves)} of {len(moves)} updates step"
        expected = f"below {limit:.1e}, most"
        if max(kls) > 1.01 * limit:
            return broken(measured, expected, "a step leaves the trust region")
        if any(moved and gain < -1e-6 for moved, gain in zip(moves, better)):
            return broken(measured, expected, "a step that makes the surrogate worse is taken")
        if limit == 1000:
            break
        if not any(moves):
            return broken(measured, expected, "the policy never moves")
        if max(kls) < 0.1 * limit:
            return differs(measured, expected, "the steps are far shorter than --max-kl allows")
    return passes(measured, expected)


@check("update", of="trust-region continuous", follows="trust-region")
def refused_step(subject: Subject) -> Finding:
    """Where all advantages are 0, and where they are not numbers, no step is better: the policy stays, bit for bit."""
    if subject.trace.update_call is None or "advantage" not in subject.loss_parameters:
        raise Unable("the arguments of update cannot be copied, or the loss takes no advantage")
    for value in (0.0, math.nan):
        arguments = copy.deepcopy(subject.trace.update_call)
        agent = arguments["agent"]
        batch = subject.changed(
            arguments["batch"],
            "advantage",
            lambda advantage, v=value: torch.full_like(advantage, v),
        )
        before = copy.deepcopy(agent)
        subject.trace.names["update"](**arguments | {"batch": batch})
        pairs = zip(policy_parameters(before), policy_parameters(agent))
        if any(not torch.equal(*pair) for pair in pairs):
            return broken("another policy", "the same", "a step that is refused is not taken back")
    return passes("the same", "the same")


# ---- scores ----------------------------------------------------------------------------------------------------------


@check("update", of="score", follows="rows-are-independent density probabilities")
def policy_gradient(subject: Subject) -> Finding:
    """Slope of the loss by each row's log-probability: -(target - value), and 0 in reset rows where it gets them; with
    --norm-adv and each --baseline, where there are such flags."""
    if "advantage" in subject.loss_parameters:
        raise Unable(f"{subject.loss_name} takes an advantage, but nothing with logp in its name")
    finding = None
    flags = subject.module.Args.__dataclass_fields__
    baselines = ("value", "none") if "baseline" in flags else ("value",)
    for baseline, norm in itertools.product(baselines, (False, True)[: 1 + ("norm_adv" in flags)]):
        mb = Minibatch(subject, 64, ent_coef=0.0, norm_adv=norm, baseline=baseline)
        valid = mb.batch.get("valid", torch.ones(64)).double()
        if "valid" in mb.batch:
            valid[::5] = mb.batch["valid"][::5] = 0
        with torch.no_grad():
            value, target = (
                subject.value(mb.agent, mb.batch["x"]).double(),
                mb.batch["target"].double(),
            )
        advantage = target - (value if baseline == "value" else 0)
        if norm:
            advantage = (advantage - advantage.mean()) / advantage.std()
        right = -advantage * valid / valid.sum()
        mistakes = {
            "the sign of the policy loss: it lowers good actions": -right,
            "reset rows count": -advantage / len(advantage),
        }
        choices = {
            "the target stands in for the advantage: there is no baseline": -target
            * valid
            / valid.sum(),
            "a value is subtracted in spite of --baseline none": -(target - value)
            * valid
            / valid.sum(),
        }
        one = slopes(
            subject,
            mb,
            "logprob",
            right,
            mistakes,
            choices,
            "the policy loss is not -logprob x advantage",
        )
        if finding is None or finding.verdict == "passes" or one.verdict == "broken":
            finding = one
    return finding


@check("RMSprop", of="n-step")
def rmsprop(subject: Subject) -> Finding:
    """Ten steps of RMSprop on given gradients, against the formula in float64."""
    if not hasattr(subject.module, "RMSprop"):
        raise Skip
    parameter = torch.nn.Parameter(torch.randn(20))
    optimizer = subject.module.RMSprop([parameter], lr=0.1, alpha=0.8, eps=0.01)
    start, square = parameter.detach().double(), torch.ones(20).double()
    theirs, outside = start.clone(), start.clone()
    for grad in 0.1 * torch.randn(10, 20):
        parameter.grad = grad
        optimizer.step()
        square = 0.8 * square + 0.2 * grad.double() ** 2
        theirs = theirs - 0.1 * grad.double() / (square + 0.01).sqrt()
        outside = outside - 0.1 * grad.double() / (square.sqrt() + 0.01)
    choices = {"epsilon stands outside the root": outside}
    question = "RMSprop is not theta - lr x gradient / sqrt(g + eps), g being the running mean of its square, from 1"
    return compare(
        parameter.detach(),
        theirs,
        {"the sign of the step": 2 * start - theirs},
        choices,
        question,
        1e-5,
    )


def value_slopes(value, target, centre, eps: float) -> torch.Tensor:
    """Slope by `value` of half the larger of the squared errors of value and of value clipped around `centre`."""
    inside = centre + (value - centre).clamp(-eps, eps)
    plain = (value - target).abs() >= (inside - target).abs()
    return torch.where(plain, value - target, (inside - target) * ((value - centre).abs() < eps))


@check("update", of="policy", follows="rows-are-independent")
def value_loss(subject: Subject) -> Finding:
    """Slope of the loss by each row's value, without and with --clip-vloss. A2C's is the whole squared error."""
    finding = None
    share = "the whole" if hasattr(subject.module, "n_step_returns") else "half the"
    flags = subject.module.Args.__dataclass_fields__
    apart = subject.trace.value_call is not None  # the values have a loss of their own
    plain = 1.0 if apart or hasattr(subject.module, "compute_returns") else 0.5
    of = "value_minibatches" if apart else "minibatches"
    for clip in (False, True) if "clip_vloss" in flags else (False,):
        mb = Minibatch(
            subject, rows_of(subject, 256), of, norm_adv=False, clip_vloss=clip, ent_coef=0.0
        )
        with torch.no_grad():
            value = subject.value(mb.agent, mb.batch["x"]).double()
        target, old = mb.batch["target"].double(), mb.batch.get("old_value", value).double()
        weight, eps = (
            getattr(mb.args, "vf_coef", plain) / len(value) * (2 if share == "the whole" else 1),
            getattr(mb.args, "clip_coef", math.inf),
        )
        right = weight * value_slopes(value, target, old, eps if clip else math.inf)
        mistakes = {"the sign of the value loss": -right}
        if clip:
            around = weight * value_slopes(value, target, target, eps)
            mistakes["values are clipped around the target in place of the old value"] = around
        error = value - target
        choices = {
            "the value loss is Huber's": weight * error.clamp(-1, 1),
            "the value loss is the absolute error": weight * error.sign(),
        }
        if clip:
            choices["--clip-vloss has no effect"] = weight * error
        one = slopes(
            subject,
            mb,
            "value",
            right,
            mistakes,
            choices,
            f"the value loss is not {share} squared error",
        )
        if one.hint == "no gradient reaches it":
            critic = {
                name for name, _ in subject.trace.first.named_parameters()
            } - subject.trace.learned
            if not critic:  # another loss trains it
                one = differs(
                    "no gradient", "one", "this loss does not train the value, something else does"
                )
        if finding is None or finding.verdict == "passes" or one.verdict == "broken":
            finding = one
    return finding


@check("update", of="policy", follows="rows-are-independent density probabilities")
def entropy_bonus(subject: Subject) -> Finding:
    """With --ent-coef c the loss is lower by c times the entropy, and so is its gradient."""
    if "ent_coef" not in subject.module.Args.__dataclass_fields__:
        raise Skip
    mb = Minibatch(subject, 64, ent_coef=0.3)
    plain = copy.copy(mb.args)
    plain.ent_coef = 0.0
    torch.manual_seed(subject.seed)
    by_agent = subject.act(mb.agent, mb.batch["x"], mb.batch["action"])[2].mean()
    by_loss = mb.loss() - mb.loss(plain)
    entropy, change = float(by_agent.detach()), float(by_loss.detach())
    measured, expected = f"loss changes by {change:+.3f}", f"{-0.3 * entropy:+.3f}"
    if abs(change + 0.3 * entropy) < 1e-3 * max(1, abs(entropy)):
        parameters = [p for p in mb.agent.parameters() if p.requires_grad]
        ours, theirs = gradient(by_loss, parameters), -0.3 * gradient(by_agent, parameters)
        if largest(ours, theirs) < 1e-3 * max(1, float(theirs.abs().max())):
            return passes(measured, expected)
        if not ours.any():
            return broken("no gradient", "one", "the entropy is in the loss without a gradient")
        return differs("another gradient", "the entropy's", "the entropy's gradient is changed")
    if abs(change - 0.3 * entropy) < 1e-3:
        return broken(measured, expected, "the sign of the entropy bonus")
    return differs(measured, expected, "the entropy bonus is not --ent-coef times the entropy")


@check("update", of="ratio", follows="rows-are-independent")
def advantage_normalisation(subject: Subject) -> Finding:
    """With --norm-adv the loss does not change when all advantages are scaled and shifted; without it, it does."""
    changes = {}
    for norm in (True, False):
        mb = Minibatch(subject, 64, norm_adv=norm)
        with torch.no_grad():
            other = float(mb.loss(advantage=7 * mb.batch["advantage"] + 3))
            changes[norm] = abs(other - float(mb.loss()))
    measured = f"loss changes by {changes[True]:.1e} with --norm-adv, {changes[False]:.1e} without"
    expected = "below 1e-3 with, above without"
    if changes[True] < 1e-3 < changes[False]:
        return passes(measured, expected)
    text = (
        "--norm-adv does not standardise the advantages of a minibatch"
        if changes[True] >= 1e-3
        else ""
    )
    return differs(
        measured, expected, text or "advantages are standardised whatever --norm-adv says"
    )


# ---- what reaches the loss -------------------------------------------------------------------------------------------


@check("train", of="ratio")
def first_ratio(subject: Subject) -> Finding:
    """In the first minibatch of an update nothing has changed since the rollout: the ratio is 1; later it is not."""
    worst, later = 0.0, 0.0
    for record in subject.trace.updates:
        for k, mb in enumerate(record["minibatches"]):
            if mb["logprob"].shape != mb["old_logprob"].shape:
                shapes = f"{tuple(mb['logprob'].shape)} - {tuple(mb['old_logprob'].shape)}"
                return broken(
                    f"log-probabilities {shapes}",
                    "the same shape",
                    "a broadcast: the ratio becomes a matrix",
                )
            off = float(((mb["logprob"] - mb["old_logprob"]).exp() - 1).abs().max())
            worst = max(worst, off if k == 0 else 0.0)
            later = max(later, off)
    measured = f"ratio 1 +- {worst:.1e}, later 1 +- {later:.1e}"
    expected = "1 +- 1e-03, later further off"
    if later < 1e-6:
        return broken(
            measured,
            expected,
            "old log-probabilities are computed anew in the update: the ratio is always 1",
        )
    epochs = getattr(subject.trace.args, "update_epochs", 1)
    if worst < 1e-3 and (epoch := anew(subject, epochs)):
        return broken(
            f"{measured}; again 1 in epoch {epoch}",
            expected,
            "old log-probabilities are computed anew in each epoch",
        )
    if worst < 1e-3:
        return passes(measured, expected)
    mistake = "old log-probabilities are stale, of another action, or under other statistics than those of the update"
    return broken(measured, expected, mistake)


def anew(subject: Subject, epochs: int) -> int:
    """The epoch, after the first, that starts with ratios of 1 in every update."""
    parts = [record["minibatches"] for record in subject.trace.updates]
    if epochs < 2 or any(len(part) != len(parts[0]) or len(part) % epochs for part in parts):
        return 0
    start = len(parts[0]) // epochs
    if not start or start == len(parts[0]):
        return 0
    off = [
        float((part[start]["logprob"] - part[start]["old_logprob"]).abs().max()) for part in parts
    ]
    return 2 if max(off) < 1e-6 else 0


@check("train", of="policy")
def shapes(subject: Subject) -> Finding:
    """Log-probabilities, advantages, targets and old values of every minibatch have the shape (minibatch,)."""
    wrong, names = (
        set(),
        ("logprob", "value", "old_logprob", "advantage", "target", "old_value", "valid"),
    )
    for record in subject.trace.updates:
        for mb in record["minibatches"] + record["value_minibatches"]:
            size = len(mb["x"])
            for name in names:
                if name in mb and mb[name].shape != (size,):
                    wrong.add(f"{name} {tuple(mb[name].shape)} for {size} rows")
    if wrong:
        return broken(
            "; ".join(sorted(wrong)), "all (minibatch,)", "a tensor of another shape will broadcast"
        )
    return passes("all (minibatch,)")


@check("train", of="policy")
def reset_rows(subject: Subject) -> Finding:
    """The batch holds each valid step, and no reset row."""
    return rows_of_batch(
        subject.trace, "reset rows, the step after an episode's end, reach the loss"
    )


def rows_of_batch(trace: Trace, mistake: str) -> Finding:
    """Whether the batch holds all valid steps and no others, which would be the mistake."""
    resets = lost = ends = firsts = total = 0
    for places, expected, record, truth in zip(
        trace.places, trace.expected, trace.updates, trace.truth
    ):
        batch = sketch(trace.batch(record)["x"])
        known = nearest(expected["resets"], batch)
        own = nearest(expected["resets"], expected["x"])  # a state that was also acted in
        resets += int(((known >= 0) & (own < 0)).sum())
        missing = places < 0
        lost, total = lost + int(missing.sum()), total + len(places)
        done = (truth["terminated"] | truth["truncated"])[truth["valid"]]
        ends += int((missing & done).sum())
        after_life = np.roll(truth["life_lost"], 1, axis=0)[truth["valid"]]
        firsts += int((missing & after_life).sum())
    measured = f"{resets} rows too many, {lost} of {total} valid rows lost"
    if resets:
        return broken(measured, "0, 0", mistake)
    if lost and lost == ends:
        return broken(measured, "0, 0", "the last step of episodes is lost")
    if lost and lost == firsts:
        return broken(measured, "0, 0", "the step after a lost life is taken for a reset row")
    if lost:
        return differs(measured, "0, 0", "some steps are not trained on")
    return passes(measured, "0, 0")


def found_rows(trace: Trace, of: str = "minibatches"):
    """For each update: the batch's rows of the steps that were found, what is expected of them, and which they are."""
    places_of = trace.places if of == "minibatches" else trace.find(of)
    for places, expected, record, truth in zip(
        places_of, trace.expected, trace.updates, trace.truth
    ):
        here = places >= 0
        batch = {name: tensor[places[here]] for name, tensor in trace.batch(record, of).items()}
        yield batch, expected, here, record, truth


@check("train", of="policy", follows="reset-rows")
def stored_actions(subject: Subject) -> Finding:
    """What the environment got is the stored action through to_env; unclipped, it leaves the bounds now and then."""
    trace, worst, beyond, draws = subject.trace, 0.0, 0, 0
    space = trace.action_space
    for batch, expected, here, record, _ in found_rows(trace):
        action, played = batch["action"], expected["action"][here]
        if "discrete" in subject.kinds:
            worst = max(worst, largest(action, played))
            continue
        worst = max(
            worst, largest(np.asarray(record["agent"].to_env(action)).reshape(played.shape), played)
        )
        with torch.no_grad():
            drawn = subject.act(record["agent"], batch["x"])[0]
        low = torch.from_numpy(space.low.ravel()) - 1e-4
        high = torch.from_numpy(space.high.ravel()) + 1e-4
        beyond, draws = (
            n + int(((a < low) | (a > high)).any(1).sum())
            for n, a in ((beyond, action), (draws, drawn))
        )
    measured = f"error {worst:.1e}, {beyond} beyond the bounds"
    if worst > 1e-3:
        return broken(
            measured, "below 1e-03", "the stored action is not the one that was drawn in this state"
        )
    if beyond == 0 and draws > 5:
        return broken(
            measured,
            "some",
            "the clipped action is stored: its log-probability is not that of the draw",
        )
    return passes(measured, "below 1e-03")


@check("train", of="policy", follows="stored-actions sampling action-frequencies")
def rollout_draws(subject: Subject) -> Finding:
    """How likely each stored action is, ranked among 19 draws of the same policy in the same state: on average in the
    middle. With discrete actions the agent of this run prefers some from the start."""
    off = variance = 0.0
    trace = Trace(subject, scattered=True) if "discrete" in subject.kinds else subject.trace
    for batch, _, _, record, _ in found_rows(trace):
        agent, x = record["agent"], batch["x"]
        with torch.no_grad():
            actions = [batch["action"], *(subject.act(agent, x)[0] for _ in range(19))]
            likely = torch.stack([subject.act(agent, x, action)[1] for action in actions])
        ranks = (likely[:, None] - likely).sign().double().sum(1)  # (20, rows), their means are 0
        off += float(ranks[0].sum())
        variance += float((ranks**2).mean(0).sum())
    deviations = off / max(variance, 1e-9) ** 0.5
    measured = f"{deviations:+.1f} deviations off"
    if abs(deviations) < 5:
        return passes(measured, "below 5")
    less = "less" if deviations < 0 else "more"
    question = f"the rollout's actions are {less} likely than draws from its policy"
    return differs(measured, "below 5", question)


@check("train", of="ratio", follows="reset-rows gae-inputs")
def stored_values(subject: Subject) -> Finding:
    """Old values of the batch against the agent's own values of the states in the protocol."""
    worst = 0.0
    for batch, _, here, record, truth in found_rows(subject.trace):
        if "old_value" not in batch:
            raise Skip
        right = subject.trace.values(truth, record["agent"])[:-1][truth["valid"]][here]
        worst = max(worst, largest(batch["old_value"], right))
    if worst < 1e-3:
        return passes(f"error {worst:.1e}", "below 1e-03")
    return differs(
        f"error {worst:.1e}",
        "below 1e-03",
        "old values are not the agent's values of the rollout's states",
    )


@check("train", of="policy bootstrap")
def gae_inputs(subject: Subject) -> Finding:
    """Rewards, values, terminateds and dones of the whole rollout; reset rows do not count. Again without
    --bootstrap-truncation and --terminal-on-life-loss where the file has them."""
    finding = inputs_of(subject, subject.trace)
    for flag, more in (
        ("bootstrap_truncation", ()),
        ("terminal_on_life_loss", ("fire_on_life_loss",)),
    ):
        if finding.verdict != "passes" or flag not in subject.module.Args.__dataclass_fields__:
            continue
        off = subject.known(dict.fromkeys((flag, *more), False))
        without = inputs_of(subject, Trace(subject, **off))
        if without.verdict != "passes":
            question = f"--no-{flag.replace('_', '-')} does not do what it says"
            finding = differs(without.measured, without.expected, question)
    return finding


def inputs_of(subject: Subject, trace: Trace) -> Finding:
    """What reaches the returns in a run, against the environments' protocols."""
    wrong, rows = {}, {}
    for (call, _), truth, record in zip(trace.returns, trace.truth, trace.updates):
        valid, values = truth["valid"], trace.values(truth, record["agent"])
        rewards, terminals, dones = truth["learner"]
        edge = np.concatenate([valid, valid[-1:]]) | np.concatenate(
            [valid[:1], valid]
        )  # states that matter
        life, cut = truth["life_lost"] & valid, truth["truncated"] & valid
        pairs = {
            "rewards": (rewards, valid),
            "dones": (dones, valid),
            "terminateds": (terminals, valid),
            "values": (values, edge),
        }
        for name, (theirs, here) in pairs.items():
            if name not in call.arguments:
                raise Unable(f"{subject.returns_name} takes {', '.join(call.arguments)}")
            ours = call.arguments[name].double().numpy()
            if ours.shape != theirs.shape:
                return broken(
                    f"{name} {ours.shape}",
                    f"{theirs.shape}",
                    "a tensor of another shape will broadcast",
                )
            off = (np.abs(ours - theirs) > 1e-3 * np.maximum(1, np.abs(theirs))) & here
            rows.setdefault(name, []).append((off, here, ours, theirs))
            wrong[name] = wrong.get(name, False) or off.any()
        rows.setdefault("raw", []).append((truth["reward"], valid, life, cut))
    bad = [name for name in ("rewards", "terminateds", "dones", "values") if wrong[name]]
    if not bad:
        return passes("all agree")
    findings = [judge_input(name, rows[name], rows["raw"]) for name in bad]
    findings.sort(key=lambda finding: finding.verdict != "broken")
    return findings[0]


def judge_input(name: str, rows: list, raw: list) -> Finding:
    """What is wrong with rewards, terminateds, dones or values, of which every rollout has (wrong rows, rows that
    count, ours, the right ones)."""
    off, here, ours, right = (np.stack(parts) for parts in zip(*rows))
    reward, valid, life, cut = (np.stack(parts) for parts in zip(*raw))
    measured, expected = f"{name}: {off.sum()} of {here.sum()} wrong", "none"
    same = lambda other: largest(ours[here], other[here]) < 1e-3  # noqa: E731
    for axis, text in ((1, "of the step beside it"), (2, "of the environment beside it")):
        if any(same(np.roll(right, shift, axis)) for shift in (1, -1)):
            return broken(measured, expected, f"{name} are those {text}")
    if name == "rewards":
        if same(reward):
            return differs(measured, expected, "rewards are not clipped")
        moved = off[:, 1:].any() and np.abs(ours[:, 1:] - right[:, :-1])[here[:, 1:]].mean() < 1e-3
        return (
            broken(measured, expected, "rewards of other steps")
            if moved
            else differs(measured, expected, "rewards are not those that the environments paid")
        )
    if name == "terminateds":
        if not (off & ~life).any():
            return broken(measured, expected, "a lost life does not end the bootstrap")
        if not (off & ~cut).any():
            return broken(measured, expected, "a time limit is treated as a terminal state")
        return broken(measured, expected, "terminal states are lost, or stored in the wrong row")
    if name == "dones":
        late = largest(ours[:, 1:], right[:, :-1]) < 1e-3
        return broken(
            measured,
            expected,
            "`done` is stored a row late" if late else "`done` is lost, or stored in the wrong row",
        )
    share = off.sum() / here.sum()
    if off[:, -1].any() and not off[:, :-1].any():
        return broken(measured, expected, "the last value is that of another state")
    if share < 0.6:
        return broken(
            measured,
            expected,
            "values of other states: the true final observation of an episode is lost",
        )
    return differs(measured, expected, "values are not the agent's own")


@check("train", of="policy", follows="gae n-step-returns monte-carlo-returns gae-inputs reset-rows")
def advantages(subject: Subject) -> Finding:
    """Of every valid row: what the function of returns gave for it, called with --gamma and --gae-lambda."""
    trace, args = subject.trace, subject.trace.args
    for call, _ in trace.returns:
        given = [call.arguments.get(name) for name in ("gamma", "gae_lambda")]
        right = [getattr(args, "gamma", None), getattr(args, "gae_lambda", given[1])]
        if given != right and None not in given[:1]:
            measured, expected = f"gamma, lambda {given}", f"{right}"
            if given == right[::-1]:
                return broken(measured, expected, "gamma and lambda are swapped in the call")
            return differs(
                measured,
                expected,
                f"{subject.returns_name} is called with other constants than the flags'",
            )
    if "monte-carlo" in subject.kinds:
        given = [np.where(truth["valid"], truth["reward"], 0) for truth in trace.truth]
        for (call, _), right, truth in zip(trace.returns, given, trace.truth):
            ours = call.arguments["rewards"].double().numpy()
            if largest(ours * truth["valid"], right) > 1e-3:
                return differs(
                    "other rewards",
                    "those paid",
                    "rewards are not those that the environments paid",
                )
            if largest(ours, right) > 1e-3:
                return broken(
                    "rewards after the end",
                    "0",
                    "rewards of the next episode flow into the returns",
                )
    parts = {"advantage": [], "target": []}
    found = list(enumerate(found_rows(trace)))
    if trace.value_call is not None:
        found += enumerate(found_rows(trace, "value_minibatches"))
    for k, (batch, _, here, _, truth) in found:
        call, result = trace.returns[k]
        result = result.double().numpy()[truth["valid"]][here]
        values = (
            call.arguments["values"].double().numpy()[:-1][truth["valid"]][here]
            if "values" in call.arguments
            else 0 * result
        )
        gae = "gae" in subject.kinds
        cases = {"advantage": result, "target": result + values * gae, "value": values}
        for name in parts:
            if name in batch:
                parts[name].append((batch[name].double().numpy(), cases[name], result, values))
    if not any(parts.values()):
        raise Unable(f"{subject.loss_name} takes neither advantage nor target")
    made_of = [(target - values, result) for target, _, result, values in parts["target"]]
    if "gae" in subject.kinds and made_of and all(standardised(*pair) for pair in made_of):
        mistake = "the targets are made of standardised advantages: they are no returns"
        return broken("target - value of mean 0 and deviation 1", "the advantage", mistake)
    for name, rows in parts.items():
        if rows:
            ours, right, result, values = (np.concatenate(part) for part in zip(*rows))
            if ours.shape != right.shape:
                raise Unable(f"{name} has the shape {ours.shape} for {right.shape}")
            mistakes = {
                f"the {name}s are those of other rows": right[::-1],
                f"the sign of the {name}": -right,
            }
            if name == "target":
                mistakes["the target is the advantage"] = (
                    result if largest(result, right) > 1e-3 else right + 1
                )
                mistakes["the target is the old value"] = values
            finding = compare(
                ours,
                right,
                mistakes,
                {},
                f"the {name} of the loss is not made of {subject.returns_name}'s result",
            )
            if finding.verdict == "differs" and largest(np.sort(ours), np.sort(right)) < 1e-3:
                return broken(
                    finding.measured, finding.expected, f"the {name}s are those of other rows"
                )
            if finding.verdict != "passes":
                return finding
    return passes("all agree")


def standardised(ours: np.ndarray, advantage: np.ndarray) -> bool:
    """Whether these are a rollout's advantages, standardised over these rows or, with reset rows, over a few more."""
    if largest(ours, advantage) < 1e-3 or max(abs(ours.mean()), abs(ours.std() - 1)) > 0.5:
        return False
    return bool(np.corrcoef(ours, advantage)[0, 1] > 0.9999)


@check("train", of="scales")
def reward_normalisation(subject: Subject) -> Finding:
    """With --norm-reward: rewards over the deviation of all discounted returns so far, clipped to +-10; once more where
    one reward is a thousand times the others."""
    finding = scaled_rewards(Trace(subject, norm_reward=True))
    if finding.verdict != "passes":
        return finding
    return scaled_rewards(Trace(subject, norm_reward=True, env_id="ProbeRare-v0"), above=10)


def scaled_rewards(trace: Trace, above: float = 0) -> Finding:
    """The rewards that reach the returns, against those paid, of which some must be above this when they are scaled."""
    cases = {name: [] for name in ("ours", "right", "with resets", "paid", "own", "whole")}
    seen, all_seen, late_seen, rewards = [], [], [], []
    discounted = late = np.zeros(trace.args.num_envs)
    for (call, _), truth in zip(trace.returns, trace.truth):
        valid = truth["valid"]
        for t, here in enumerate(valid):
            discounted = (discounted * trace.args.gamma + truth["reward"][t]) * here
            late = late * trace.args.gamma * here + truth["reward"][t]
            seen.extend(discounted[here])
            late_seen.extend(late[here])
            all_seen.extend(discounted)
        rewards.extend(truth["reward"][valid])
        cases["ours"].append(call.arguments["rewards"].double().numpy()[valid])
        kinds = {"right": seen, "with resets": all_seen, "paid": late_seen, "own": rewards}
        for name, values in kinds.items():
            cases[name].append(
                np.clip(truth["reward"][valid] / np.sqrt(np.var(values) + 1e-8), -10, 10)
            )
        cases["whole"].append(truth["reward"][valid] / np.sqrt(np.var(seen) + 1e-8))
    ours, right, resets, late, own, whole = (np.concatenate(cases[name]) for name in cases)
    if whole.max() <= above:
        raise Unable(f"no scaled reward of this run is above {above}")
    question = "rewards are not divided by the deviation of the discounted return so far"
    return compare(
        ours,
        right,
        {
            "reset rows are taken in": resets,
            "a reset row's reward counts for the next episode": late,
        },
        {
            "rewards are divided by their own deviation, not the return's": own,
            "large rewards are not clipped to +-10": whole,
        },
        question,
    )


@check("train", of="normaliser")
def observation_statistics(subject: Subject) -> Finding:
    """Mean, variance and count of all valid observations up to the last rollout, each taken in after its update; again
    with rollouts of two steps, in which no episode need end."""
    if not hasattr(subject.trace.first, "obs_rms"):
        raise Skip
    finding = judge_statistics(subject.trace)
    if finding.verdict != "passes":
        return finding
    short = {"num_envs": 2, "num_steps": 2, "num_minibatches": 2, "update_epochs": 1}
    return judge_statistics(Trace(subject, **short, total_timesteps=40))


def judge_statistics(trace: Trace) -> Finding:
    trace.subject.seen(trace.first, trace.truth[0]["obs"])  # ends where their shape is changed
    found = {name: [] for name in ("ours", "right", "with resets", "ahead", "mean")}
    size = trace.truth[0]["obs"].shape[-1]
    seen, every = np.zeros((0, size)), np.zeros((0, size))

    def moments(rows) -> np.ndarray:
        if len(rows):
            return np.concatenate([rows.mean(0), rows.var(0)])
        return np.array([0.0] * size + [1.0] * size)

    counts = []
    for record, truth in zip(trace.updates, trace.truth):
        rms = record["agent"].obs_rms
        found["ours"].append(np.concatenate([np.asarray(rms.mean), np.asarray(rms.var)]))
        found["right"].append(moments(seen))
        found["with resets"].append(moments(every))
        counts.append((int(rms.count), len(seen), len(every)))
        seen = np.concatenate([seen, truth["obs"][truth["valid"]]])
        every = np.concatenate([every, truth["obs"].reshape(-1, size)])
        found["ahead"].append(moments(seen))
    ours, right, resets, ahead = (
        np.stack(found[name]) for name in ("ours", "right", "with resets", "ahead")
    )
    error, count = largest(ours, right), max(abs(a - b) for a, b, _ in counts)
    measured, expected = f"error {error:.1e}, count off by {count}", "below 1e-03, 0"
    if error < 1e-3 and count == 0:
        return passes(measured, expected)
    if largest(ours, resets) < 1e-3:
        return broken(measured, expected, "the normaliser takes in reset rows")
    if len({tuple(row) for row in ours[2:]}) == 1:
        return broken(measured, expected, "the normaliser is not updated any more")
    if largest(ours[:, :size], right[:, :size]) < 1e-3 and error >= 1e-3:
        return broken(
            measured, expected, "the variance of the normaliser is not that of each observation"
        )
    if largest(ours, ahead) < 1e-3:
        return differs(
            measured, expected, "the normaliser takes in a rollout before the update on it"
        )
    return differs(
        measured, expected, "the normaliser is not the mean and variance of all observations so far"
    )


@check("update", of="ratio")
def minibatches(subject: Subject) -> Finding:
    """Each epoch passes over every row, in a new order, in --num-minibatches parts, with a step of the optimiser for
    each; rows keep together. In a trust region these are epochs of the values."""
    trace, notes = subject.trace, []
    per_epoch, epochs = trace.args.num_minibatches, trace.args.update_epochs
    of = "minibatches" if trace.value_call is None else "value_minibatches"
    for record, truth in zip(trace.updates, trace.truth):
        parts = record[of]
        names = [
            name
            for name in trace.batch(record, of)
            if name not in ("x", "logprob", "entropy", "value")
        ]
        rows = {}
        for mb in parts:
            for i, x in enumerate(mb["x"].numpy()):
                rows.setdefault(x.tobytes(), []).append((mb, i))
        for name in names:
            values = [
                {float(mb[name][i].double().sum()) for mb, i in places} for places in rows.values()
            ]
            if any(len(value) > 1 for value in values):
                if set.intersection(*values[:2]) or name == "old_value":
                    return broken(f"{name} of other rows", "its own", "tensors are shuffled apart")
                notes.append(f"{name} changes between the epochs")
        for optimizer in dict.fromkeys(record["steps"]):
            if (count := sum(optimizer is known for known in record["steps"])) != len(parts):
                notes.append(f"{count} steps of the optimiser for {len(parts)} minibatches")
        if len(parts) != per_epoch * epochs:
            notes.append(f"{len(parts)} minibatches in place of {per_epoch} x {epochs}")
            continue
        orders = [
            [
                x.numpy().tobytes()
                for mb in parts[e * per_epoch : (e + 1) * per_epoch]
                for x in mb["x"]
            ]
            for e in range(epochs)
        ]
        if any(len(set(order)) < truth["valid"].sum() for order in orders):
            notes.append("an epoch leaves rows out")
        if epochs > 1 and orders[0] == orders[-1]:
            notes.append("the same order in every epoch")
        elif in_time(trace, record, of):
            notes.append("rows are not shuffled")
    notes = list(dict.fromkeys(notes))
    if notes:
        return differs("; ".join(notes), "every row, shuffled", notes[0])
    return passes("every row, shuffled")


def in_time(trace: Trace, record: dict, of: str) -> bool:
    """Whether the rows of an update stand in the order of time."""
    k = next(i for i, known in enumerate(trace.updates) if known is record)
    where = (trace.places if of == "minibatches" else trace.find(of))[k]
    return bool((where >= 0).all() and (np.diff(where[:20]) == 1).all())
