"""Exact checks of policy-gradient files: PPO, A2C, REINFORCE and TRPO."""

import copy
import itertools
import math
from functools import partial

import numpy as np
import torch

from plainrl_tools.probing.subject import (
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
    peak,
    reference_gae,
    sketch,
)


@check("train")
def trains(subject: Subject) -> Finding:
    """train() runs on a small environment, calls update() and returns a summary."""
    updates = len(subject.trace.updates)
    if updates > 2:
        return passes(f"{updates} updates", "at least 3")
    return broken(f"{updates} updates", "at least 3", "train() does not call update() often enough")


@check("Agent")
def steady_network(subject: Subject) -> Finding:
    """The network gives the same output twice for the same observations. Layers that draw random numbers in training
    mode, such as dropout, are switched off in all other exact checks."""
    agent, x = copy.deepcopy(subject.trace.after), subject.observations(64)
    torch.nn.Module.train(agent)
    with torch.no_grad():
        said = [subject.value(agent, x) for _ in range(2)]
        if "policy" in subject.kinds:
            action = subject.act(agent, x)[0]
            said = [value + subject.act(agent, x, action)[1] for value in said]
    measured = f"outputs differ by {largest(*said):.1e}"
    if torch.equal(*said):
        return passes("equal")
    question = "the network's output is random, as with dropout: rollout, update and evaluation get different outputs"
    return differs(measured, "equal", question)


ROLLOUT = ("rewards", "values", "terminateds", "dones")

# ---- returns ---------------------------------------------------------------------------------------------------------


def returns_again(subject: Subject, *needed: str, **constants: float) -> tuple:
    """Call the file's return function as in the traced run, but with random rewards, values and episode ends. Return
    its result and its inputs, in float64."""
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
        raise Unable(
            f"{subject.returns_name} takes {', '.join(call.arguments)}: keep the original names"
        )
    ours = call.again(**known, **constants)
    return ours.double().numpy(), *(given[name].double().numpy() for name in given)


def wrong_ends(r, te, do) -> dict[str, tuple]:
    """Typical mistakes, each as (rewards, terminations, steps at which the recursion stops)."""
    none = np.zeros_like(do)
    late = [np.concatenate([np.zeros_like(ends[:1]), ends[:-1]]) for ends in (te, do)]
    return {
        "the recursion continues across episode boundaries: the mask `(1 - dones)` is missing": (
            r,
            te,
            none,
        ),
        "neither terminations nor episode boundaries are used": (r, none, none),
        "truncation is treated as termination": (r, do, do),
        "the value after a termination is bootstrapped": (r, none, do),
        "the recursion continues across truncations": (r, te, te),
        "`dones` acts one step late": (r, te, late[1]),
        "`terminateds` acts one step late": (r, late[0], do),
    }


def violated(subject: Subject, gamma: float) -> str:
    """Name the property of every estimator of advantages or returns that the file violates, if any. The properties are
    read from the derivatives of the result by rewards and values, so they hold for any weights."""
    call, result = subject.trace.returns[0]
    T, N = result.shape
    rewards = torch.zeros(T, N, requires_grad=True)
    values = torch.zeros(T + 1, N, requires_grad=True)
    terminateds, dones = torch.zeros(T, N), torch.zeros(T, N)
    end, cut, column = T // 2, T // 4, 0  # a termination, and a truncation before it
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
        # of results before the truncation: a return over n steps reaches it only from nearby
        before_cut = [slope(t, rewards)[cut + 1 :, column] for t in range(cut + 1)]
    if by_reward[cut, column] < 0 or before_end[end, column] < 0:
        return "the sign is wrong: a higher reward lowers the result"
    if max(map(peak, before_cut)) > 1e-6:
        return "rewards of the next episode flow into the result: the mask `(1 - dones)` is missing"
    if peak(before_end_value[end + 1, column]) > 1e-6:
        return "the value after a termination is bootstrapped"
    if by_value[cut + 1, column] < 1e-6:
        return "truncation is treated as termination"
    if peak(by_value[cut + 1, column] - gamma) > 1e-4:
        return "the value of the next state is not discounted by gamma"
    if peak(by_reward[:, column + 1 :]) > 1e-6:
        return "the result depends on other environments"
    return ""


@check("compute_gae", of="gae")
def gae(subject: Subject) -> Finding:
    """compute_gae with random rewards, values and episode ends equals equation 16 of the GAE paper (arXiv:1506.02438)
    in float64."""
    gamma, lam = 0.9, 0.6
    ours, r, te, do, v = returns_again(subject, *ROLLOUT, gamma=gamma, gae_lambda=lam)
    right = reference_gae((r, te, do), v, gamma, lam)
    mistakes = {
        text: reference_gae(case, v, gamma, lam) for text, case in wrong_ends(r, te, do).items()
    }
    mistakes |= {
        "the sign of the advantage is wrong": -right,
        "gamma and lambda are swapped": reference_gae((r, te, do), v, lam, gamma),
        "the recursion decays by lambda instead of gamma x lambda": reference_gae(
            (r, te, do), v, gamma, lam / gamma
        ),
    }
    choices = {
        "lambda has no effect: the result is that of lambda = 1 (return minus value)": reference_gae(
            (r, te, do), v, gamma, 1.0
        ),
        "lambda has no effect: the result is that of lambda = 0 (one-step TD error)": reference_gae(
            (r, te, do), v, gamma, 0.0
        ),
    }
    question = "the advantages are not those of the GAE paper (equation 16), but they respect episode boundaries"
    return invariant(subject, gamma, compare(ours, right, mistakes, choices, question))


def invariant(subject: Subject, gamma: float, finding: Finding) -> Finding:
    """A formula that differs from the published one must still satisfy what every estimator satisfies."""
    if finding.verdict == "differs" and (mistake := violated(subject, gamma)):
        return broken(finding.measured, finding.expected, mistake)
    return finding


@check("n_step_returns", of="n-step")
def n_step_returns(subject: Subject) -> Finding:
    """n_step_returns with random rewards, values and episode ends equals the discounted sum of rewards and the
    bootstrapped value in float64."""
    gamma = 0.9
    ours, r, te, do, v = returns_again(subject, *ROLLOUT, gamma=gamma)
    right = reference_gae((r, te, do), v, gamma, 1.0) + v[:-1]
    cases = wrong_ends(r, te, do)
    cases["the value after the last step of the rollout is not bootstrapped"] = (
        r,
        np.concatenate([te[:-1], np.ones_like(te[:1])]),
        do,
    )
    mistakes = {text: reference_gae(case, v, gamma, 1.0) + v[:-1] for text, case in cases.items()}
    mistakes |= {
        "gamma is missing": reference_gae((r, te, do), v, 1.0, 1.0) + v[:-1],
        "the result is the advantage instead of the return": right - v[:-1],
    }
    one_step = reference_gae((r, te, do), v, gamma, 0.0) + v[:-1]
    choices = {"the targets are one-step TD targets": one_step}
    question = "the targets are not those of the A3C paper (algorithm S3), but they respect episode boundaries"
    return invariant(subject, gamma, compare(ours, right, mistakes, choices, question))


@check("compute_returns", of="monte-carlo")
def monte_carlo_returns(subject: Subject) -> Finding:
    """compute_returns with random rewards equals their discounted sum in float64."""
    gamma = 0.9
    ours, r, *_ = returns_again(subject, "rewards", gamma=gamma)
    none, zero = np.zeros_like(r), np.zeros((len(r) + 1, r.shape[1]))
    right = reference_gae((r, none, none), zero, gamma, 1.0)
    mistakes = {
        "gamma is missing": reference_gae((r, none, none), zero, 1.0, 1.0),
        "the reward of the step itself is missing": right - r,
        "each step gets the return of the whole episode, including rewards before its action": np.broadcast_to(
            right[:1], r.shape
        ),
        "rewards are summed from the start of the episode up to the step": reference_gae(
            (r[::-1], none, none), zero, gamma, 1.0
        )[::-1],
        "the sign of the returns is wrong": -right,
    }
    question = "the returns are not the discounted sums of the current and later rewards"
    return compare(ours, right, mistakes, {}, question)


# ---- the distribution of the action ----------------------------------------------------------------------------------


class Density:
    """The agent's density of two-dimensional actions in one state: samples, and the log-probability on a grid. The grid
    consists of quantiles of a Cauchy distribution as wide as the samples, so it covers the tails."""

    def __init__(self, subject: Subject, agent, side: int = 400, draws: int = 40_000):
        x = subject.observations(1)
        with torch.no_grad():
            self.drawn = subject.act(agent, x.expand(draws, -1))[0]
            if self.drawn.shape != (draws, 2):
                raise Unable(f"actions have the shape {tuple(self.drawn.shape)}")
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
            # a squashed policy may report the density of the action that the environment receives
            far, action = copy.deepcopy(agent).double(), self.grid.double()
            step = 1e-4 * self.spread.double()
            try:
                up, down = (torch.from_numpy(far.to_env(action + sign * step)) for sign in (1, -1))
                slope = ((up - down) / (2 * step)).abs().prod(-1)
                self.weights["environment"] = self.logprob.exp() * area * slope
            except Exception:  # to_env may be changed; the density of the action is enough
                pass
        self.masses = {name: float(weight.sum()) for name, weight in self.weights.items()}
        self.kind = min(self.masses, key=lambda name: abs(self.masses[name] - 1))
        self.weight, self.mass = self.weights[self.kind], self.masses[self.kind]


def densities(subject: Subject) -> dict[str, Density]:
    """A Density for each --distribution of the file."""
    names = getattr(subject.module.Args.__annotations__.get("distribution"), "__args__", ("",))
    flags = [{"distribution": name} if name else {} for name in names]
    return {name: Density(subject, subject.agent(**flag)) for name, flag in zip(names, flags)}


@check("Agent", of="continuous")
def density(subject: Subject) -> Finding:
    """The density of two-dimensional actions integrates to 1 and has the entropy that the agent reports."""
    finding = passes("mass 1.00, entropy as reported")
    for name, found in densities(subject).items():
        if found.shape != (len(found.grid),):
            return broken(
                f"log-probabilities {found.shape}",
                f"({len(found.grid)},)",
                "log-probabilities are not summed over action dimensions",
            )
        entropy = float(found.entropy.double().mean())
        theirs = float(-(found.weight * found.logprob.clamp(min=-1e4)).sum())
        measured = f"{name} mass {found.mass:.3f}, entropy {entropy:.2f}".strip()
        expected = f"1 +- 0.03, {theirs:.2f} +- 0.03"
        squares = (
            found.logprob.mul(2).exp()
            * (found.weights["action"] / found.logprob.exp()).nan_to_num()
        )
        if peak(found.mass - 1) > 0.03:
            averaged = abs(float(squares.sum()) - 1) < 0.03
            mistake = (
                "log-probabilities are averaged over action dimensions instead of summed"
                if averaged
                else ""
            )
            finding = broken(
                measured,
                expected,
                mistake or "the log-probability does not belong to a normalised density",
            )
        elif peak(entropy - theirs) > 0.03 and finding.verdict == "passes":
            question = "the reported entropy is not that of the density"
            finding = differs(measured, expected, question)
    return finding


@check("Agent", of="continuous", follows="density")
def sampling(subject: Subject) -> Finding:
    """The first two moments of many samples, and the product moment of both dimensions, match the density. Each call
    draws new samples."""
    worst, agent, x = 0.0, subject.agent(), subject.observations(8)
    with torch.no_grad():
        if torch.equal(*(subject.act(agent, x)[0] for _ in range(2))):
            return broken(
                "the same samples twice", "new samples", "every call returns the same actions"
            )
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
    mistake = "actions are not sampled from the distribution whose log-probability is reported"
    return broken(f"error {worst:.1e}", "below 3e-02", mistake)


@check("Agent", of="policy discrete")
def probabilities(subject: Subject) -> Finding:
    """The probabilities of all actions sum to 1 and give the reported entropy. The output for one observation does not
    depend on the others in the batch."""
    agent, x = subject.agent(), subject.observations(32)
    with torch.no_grad():
        logprobs, entropy = subject.outputs(agent, x)[0].double(), subject.act(agent, x)[2].double()
        alone = torch.cat([subject.outputs(agent, row[None])[0] for row in x]).double()
    mass, theirs = logprobs.exp().sum(-1), -(logprobs.exp() * logprobs).sum(-1)
    errors = largest(mass, torch.ones(32)), largest(logprobs, alone), largest(entropy, theirs)
    measured = "errors: sum {:.1e}, batch {:.1e}, entropy {:.1e}".format(*errors)
    if errors[0] > 1e-3:
        return broken(measured, "below 1e-03", "the probabilities of all actions do not sum to 1")
    if errors[1] > 1e-3:
        return broken(
            measured,
            "below 1e-03",
            "the output for one observation depends on the others in the batch",
        )
    if largest(-entropy, theirs) < 1e-3 and errors[2] > 1e-3:
        return broken(measured, "below 1e-03", "the sign of the entropy is wrong")
    if errors[2] > 1e-3:
        return differs(
            measured, "below 1e-03", "the reported entropy is not that of the probabilities"
        )
    return passes(measured, "below 1e-03")


@check("Agent", of="policy discrete")
def action_frequencies(subject: Subject) -> Finding:
    """Each action occurs in 3,200 samples in one state as often as its probability says, and the samples of one call
    are independent."""
    agent, x = subject.agent(), subject.observations(64)
    with torch.no_grad():
        # a state whose probabilities differ, but no action is so unlikely that it never occurs
        far = (subject.act(agent, x)[2] - 0.7 * math.log(NUM_ACTIONS)).abs()
        x = x[[far.argmin()]].expand_as(x)
        draws = torch.stack([subject.act(agent, x)[0] for _ in range(50)])  # (50 calls, 64 rows)
        expected = 64 * subject.outputs(agent, x[:1])[0][0].double().exp()
    counts = torch.nn.functional.one_hot(draws, NUM_ACTIONS).double().sum(1)  # (50 calls, actions)
    common = expected > 3  # the other actions occur too rarely for a test
    counts, expected = counts[:, common], expected[common]
    deviation = (expected * (1 - expected / 64)).sqrt()
    off = peak((counts.mean(0) - expected) / deviation * 50**0.5)
    spread = float((counts.var(0) / deviation**2).mean().sqrt())
    measured = f"off by {off:.1f} standard deviations, spread {spread:.2f}"
    if spread > 2:
        return broken(measured, "below 5.5, 1 +- 0.5", "one draw is used for several observations")
    if off > 5.5 or peak(spread - 1) > 0.5:
        mistake = "actions are not sampled with the reported probabilities"
        return broken(measured, "below 5.5, 1 +- 0.5", mistake)
    return passes(measured, "below 5.5, 1 +- 0.5")


@check("Agent", of="continuous")
def bounds(subject: Subject) -> Finding:
    """Sampled actions after to_env lie within the action space, either clipped or squashed."""
    agent, space = subject.agent(), subject.trace.action_space
    low, high = torch.from_numpy(space.low.ravel()), torch.from_numpy(space.high.ravel())
    with torch.no_grad():
        action = subject.act(agent, subject.observations(600))[0]
        ours = np.asarray(agent.to_env(action)).reshape(len(action), -1)
    measured = f"{ours.min():.2f} to {ours.max():.2f}"
    expected = f"between {low.min():.2f} and {high.max():.2f}"
    if not ((ours >= low.numpy() - 1e-4) & (ours <= high.numpy() + 1e-4)).all():
        return broken(
            measured, expected, "the environment receives actions outside its action space"
        )
    clipped, squashed = action.clamp(low, high), low + (high - low) * (action.tanh() + 1) / 2
    if min(largest(ours, clipped), largest(ours, squashed)) > 1e-3:
        return differs(
            measured,
            "clipped or squashed",
            "the environment receives neither the clipped nor the squashed action",
        )
    return passes(measured, expected)


@check("Agent", of="normaliser")
def normaliser(subject: Subject) -> Finding:
    """normalize() standardises observations with statistics that the probe sets, and clips them to +-10. It does not
    modify its input. With --no-norm-obs it returns observations unchanged."""
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
            "the input is modified",
            "unchanged",
            "normalize writes into its input, so stored observations change",
        )
    centred = kept.double() - mean
    right = (centred / (var + 1e-8).sqrt()).clamp(-10, 10)
    mistakes = {
        "observations are divided by the variance instead of the standard deviation": (
            centred / (var + 1e-8)
        ).clamp(-10, 10),
        "observations are not standardised": kept,
        "the mean is not subtracted": (kept / (var + 1e-8).sqrt()).clamp(-10, 10),
    }
    question = "normalize is not (obs - mean) / standard deviation, clipped to +-10"
    finding = compare(ours, right, mistakes, {}, question)
    if finding.verdict == "passes" and "norm_obs" in subject.module.Args.__dataclass_fields__:
        plain = subject.agent(norm_obs=False).normalize(kept)
        if largest(plain, kept) > 1e-6:
            return differs("observations are modified", "unchanged", "--no-norm-obs has no effect")
    return finding


@check("Agent", of="continuous", follows="density")
def scale(subject: Subject) -> Finding:
    """The entropy grows by 1 per action dimension when the log standard deviation grows by 1. The standard deviation
    starts at --init-std."""
    agent, x, found = subject.agent(), subject.observations(8), []
    if not isinstance(getattr(agent, "actor_logstd", None), torch.nn.Parameter):
        raise Skip
    if "init_std" in subject.module.Args.__dataclass_fields__:
        begun = subject.new_agent(init_std=0.3).actor_logstd.detach().exp()
        if largest(begun, torch.full_like(begun, 0.3)) > 1e-3:
            question = "the standard deviation does not start at --init-std"
            return differs(f"{float(begun.mean()):.2f} with --init-std 0.3", "0.30", question)
    if subject.outputs(agent, x)[0].shape != (8, 2) or agent.actor_logstd.numel() != 2:
        raise Unable(
            f"actor_logstd has {agent.actor_logstd.numel()} elements for 2 action dimensions"
        )
    entropies = []
    for value in (-2.0, 0.0, 1.0):
        agent.actor_logstd.data.fill_(value)
        torch.manual_seed(subject.seed)
        entropies.append(float(subject.act(agent, x)[2].mean()))
        action = subject.act(agent, x.expand(8, -1))[0]
        found.append(float(subject.act(agent, x, action)[1].mean()))
    squashed = largest(agent.to_env(torch.tensor([[0.3, 0.1]])), [[0.3, 0.1]]) > 1e-3
    steps = np.diff(entropies) / np.array([4.0, 2.0])
    measured = f"entropy grows by {steps[0]:.2f} and {steps[1]:.2f} per 1"
    if squashed:  # squashing bounds the entropy
        return (
            passes(measured, "any")
            if steps[0] > 0.5
            else differs(measured, "1 for small standard deviations", QUESTION)
        )
    return (
        passes(measured, "1.00")
        if np.abs(steps - 1).max() < 1e-3
        else differs(measured, "1.00", QUESTION)
    )


QUESTION = "the standard deviation or the entropy is clamped or transformed"


@check("Agent", of="policy")
def first_policy(subject: Subject) -> Finding:
    """Before the first update the policy is nearly the same in all states, since its last layer is initialised with
    small weights."""
    agent, x = subject.trace.first, subject.observations(32)
    with torch.no_grad():
        logprobs = [
            subject.act(agent, x, a.expand(32, *a.shape))[1] for a in subject.act(agent, x)[0]
        ]
    spread = float(torch.stack(logprobs).std(1).mean())
    measured, expected = f"log-probabilities vary by {spread:.1e}", "below 3e-02"
    if spread < 0.03:
        return passes(measured, expected)
    question = "the initial policy depends strongly on the state: the initial weights of its last layer are large"
    return differs(measured, expected, question)


@check("Agent", of="continuous rpo", follows="density")
def rpo_noise(subject: Subject) -> Finding:
    """The noise z of RPO, read from the log-probability at the mean action: it is uniform in [-alpha, alpha], has a
    mean of 0, and is independent for each sample and dimension."""
    alpha = 0.4
    noisy, plain = (subject.agent(rpo_alpha=a, rpo_perturb_rollout=False) for a in (alpha, 0.0))
    if not (hasattr(noisy, "actor_mean") and hasattr(noisy, "actor_logstd")):
        raise Unable(
            "the agent has no actor_mean and actor_logstd, which the probe needs to read the noise"
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
    measured = f"z^2 {ratio:.2f}, spread {spread:.2f}, mean {middle:.2f}, actions {acting}"
    expected = "1.00, 1.00, 0.00, equal"
    if acting == "noisy":
        return broken(
            measured,
            expected,
            "z is also added to the rollout's actions, without --rpo-perturb-rollout",
        )
    if spread < 0.1 < ratio:
        return broken(measured, expected, "one draw of z is used for the whole minibatch")
    if peak(middle) > 0.03:
        return broken(measured, expected, "the mean of z is not 0")
    if peak(ratio - 1, spread - 1) > 0.03 or peak(top) > 2 * alpha**2 + 1e-4:
        return differs(
            measured,
            expected,
            "z is not uniform in [-alpha, alpha] and independent for each sample and dimension",
        )
    return passes(measured, expected)


@check("train", of="continuous rpo", follows="rpo-noise")
def rpo_schedule(subject: Subject) -> Finding:
    """With --rpo-alpha 0.4 --rpo-alpha-final 0.1 the agent's alpha decreases linearly with the steps."""
    if not hasattr(subject.module.Args, "rpo_alpha_final"):
        raise Skip
    trace = Trace(subject, rpo_alpha=0.4, rpo_alpha_final=0.1)
    if not hasattr(trace.first, "rpo_alpha"):
        raise Unable("the agent has no attribute rpo_alpha")
    ours = [float(record["agent"].rpo_alpha) for record in trace.updates]
    right = [0.4 - 0.3 * step / trace.args.total_timesteps for step in [0, *trace.steps]][
        : len(ours)
    ]
    measured, expected = (f"{alpha[0]:.2f} to {alpha[-1]:.2f}" for alpha in (ours, right))
    if largest(ours, right) < 1e-3:
        return passes(measured, expected)
    if ours[-1] > ours[0] or max(ours) > 0.401:
        return broken(
            measured, expected, "alpha increases instead of decreasing to --rpo-alpha-final"
        )
    if ours[-1] == ours[0]:
        return broken(measured, expected, "--rpo-alpha-final has no effect")
    return differs(measured, expected, "alpha does not decrease linearly")


# ---- the loss --------------------------------------------------------------------------------------------------------


@check("update")
def rows_are_independent(subject: Subject) -> Finding:
    """The tensors of a sample stay together: the loss changes when one tensor alone is shuffled. The value of one
    observation, in Q-learning that of each action, does not depend on the others in the batch."""
    mb = Minibatch(subject, 32, norm_adv=False, clip_vloss=True, ent_coef=0.0)
    order = torch.arange(32).roll(5)
    with torch.no_grad():
        whole, spoilt = float(mb.loss()), []
        if not math.isfinite(whole):
            return broken(
                f"loss {whole}", "a number", "the loss of finite tensors is NaN or infinite"
            )
        again = abs(float(mb.loss()) - whole)  # a loss may draw random numbers
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
                continue  # the loss does not depend on this tensor
            change = abs(float(mb.loss(**{name: tensor[order]})) - whole)
            spoilt += [name] if not change >= 1e-6 * max(1, abs(whole)) + again else []
    if spoilt:
        mistake = "a broadcast such as (n,) - (n, 1), or one element for all: every sample is combined with every other"
        return broken(f"shuffling has no effect: {', '.join(sorted(spoilt))}", "an effect", mistake)
    x, value = (
        mb.batch["x"],
        mb.agent if "q-learning" in subject.kinds else partial(subject.value, mb.agent),
    )
    with torch.no_grad():
        alone, together = torch.cat([value(row[None]) for row in x]), value(x)
    if largest(together, alone) > 1e-3:
        return broken(
            "other values in another batch",
            "the same",
            "the value of one observation depends on the others in the batch",
        )
    return passes("tensors stay together")


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
    """Compare the gradient of the loss by the parameters of the policy alone (or of the critic alone) with that of a
    sum over samples of slope x log-probability (or value). The slope is `right`, or what a mistake would give."""
    x = mb.batch["x"]
    outputs = {
        "logprob": subject.act(mb.agent, x, mb.batch.get("action"))[1],
        "value": subject.value(mb.agent, x),
    }
    output = outputs.pop(part)
    if output.shape != (len(x),):
        return broken(
            f"{part} has the shape {tuple(output.shape)}",
            f"({len(x)},)",
            "a tensor with the wrong shape is broadcast",
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
        return broken("no gradient", "a gradient", "the loss gives no gradient")
    finding = compare(ours / size, theirs / size, *cases, question)
    factor = float(ours @ theirs / (theirs @ theirs))
    cosine = float(torch.cosine_similarity(ours, theirs, 0))
    if finding.verdict == "differs" and cosine > 0.9999:
        words = f"the {part} has {factor:.3g} times its published weight in the loss"
        if f"{factor:.3g}" == "1":
            words = f"a small term is added to the loss of the {part}"
        return differs(f"{factor:.6g} times the published derivative", "1", words)
    # an additional term in a PPO loss, such as a KL penalty, may pull in any direction
    limit = -0.7 if "ratio" in subject.kinds else 0
    if finding.verdict == "differs" and factor < -0.2 and cosine < limit:
        return broken(finding.measured, finding.expected, "the gradient has the wrong direction")
    return finding


def rows_of(subject: Subject, many: int) -> int:
    return 64 if subject.world == "Pixels" else many


@check("update", of="ratio", follows="rows-are-independent density")
def clipping(subject: Subject) -> Finding:
    """Derivative of the loss by each sample's log-probability: -ratio x advantage, and 0 where PPO clips the ratio
    (nowhere in TRPO). With --norm-adv the advantages are standardised first."""
    finding = policy_slopes(subject, lambda advantage: advantage)
    if finding.verdict != "passes" or "norm_adv" not in subject.module.Args.__dataclass_fields__:
        return finding
    for n in (1, 0):  # the standard deviation may divide by n - 1 or by n
        whole = lambda a, n=n: (a - a.mean()) / (a.std(correction=n) + 1e-8)  # noqa: E731
        with_norm = policy_slopes(subject, whole, norm_adv=True)
        if with_norm.verdict == "passes":
            return finding
    if with_norm.verdict == "broken":
        return with_norm
    question = "with --norm-adv the advantage is not (advantage - mean) / standard deviation"
    return differs(with_norm.measured, with_norm.expected, question)


def policy_slopes(subject: Subject, standardise, norm_adv: bool = False) -> Finding:
    """Check the derivatives of the loss by each sample's log-probability, with advantages as the loss should use
    them."""
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
        "the sign of the policy loss is wrong: good actions become less likely": -right,
        "max instead of min: clipping acts on the wrong side": torch.where(other, 0, plain),
        "the sign of the policy loss is wrong, and the ratio is not clipped": -plain,
    }
    choices = {
        "the ratio is not clipped": plain,
        "the ratio is clipped on both sides, regardless of the advantage's sign": torch.where(
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
        "the gradient by the log-probabilities is not that of PPO's clipped surrogate alone",
    )


# ---- the penalty on the KL -------------------------------------------------------------------------------------------


@check("Agent", of="penalty continuous", follows="density")
def kl_penalty(subject: Subject) -> Finding:
    """get_kl of two agents with different means and standard deviations equals the KL of the old and new Gaussians in
    float64."""
    old, new = (subject.agent(seed=seed).double() for seed in (0, 1))
    if not hasattr(new, "get_kl"):
        raise Unable("the agent has no method get_kl")
    old.actor_logstd.data += torch.tensor([-0.5, 0.6])
    x = subject.observations(32).double()
    with torch.no_grad():
        pairs = [(agent.actor_mean(x), agent.actor_logstd.exp()) for agent in (old, new)]
        ours, terms = new.get_kl(old, x), gaussian_kl(*pairs[0], *pairs[1])
    error, std = pairs[0][0] - pairs[1][0], pairs[1][1]
    mistakes = {
        "the sign is wrong: moving away from the old policy is rewarded": -terms.sum(-1).mean(),
        "the KL is averaged over action dimensions instead of summed": terms.mean(),
        "the difference between the standard deviations is ignored": (error / std)
        .square()
        .sum(-1)
        .mean()
        / 2,
        "the old standard deviation is used for both policies": (error / pairs[0][1])
        .square()
        .sum(-1)
        .mean()
        / 2,
    }
    choices = {"the KL is KL[new || old]": gaussian_kl(*pairs[1], *pairs[0]).sum(-1).mean()}
    return compare(
        ours, terms.sum(-1).mean(), mistakes, choices, "the penalty is not KL[old || new]"
    )


@check("update", of="penalty continuous", follows="kl-penalty")
def penalty_holds(subject: Subject) -> Finding:
    """The first update moves the policy less with --init-beta 1000 than with --init-beta 1e-6."""
    free, held = (Trace(subject, init_beta=beta).kl(0) for beta in (1e-6, 1000.0))
    measured, expected = f"KL {held:.1e} against {free:.1e}", "less than half"
    if held < free / 2:
        return passes(measured, expected)
    if held > 1.1 * free:
        return broken(measured, expected, "the penalty pushes the policy away from the old one")
    return differs(measured, expected, "the penalty hardly limits how far the policy moves")


@check("train", of="penalty continuous", follows="kl-penalty penalty-holds")
def penalty_weight(subject: Subject) -> Finding:
    """beta changes after each update as its KL requires, with --kl-target above and below the KLs of the run."""
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
            wrong += peak(after / right - 1, 0 * share) > 1e-3
            against += (after > before and factor < 1) or (after < before and factor > 1)
    measured, expected = (
        f"{wrong} of {total} updates wrong, {against} in the wrong direction",
        "none",
    )
    if not wrong:
        return passes(measured, expected)
    if against > wrong / 2:
        return broken(
            measured,
            expected,
            "beta decreases after too large a KL, or increases after too small a KL",
        )
    return differs(
        measured,
        expected,
        "beta is not doubled above 1.5 x --kl-target and multiplied by --beta-decay below --kl-target / 1.5",
    )


# ---- the trust region ------------------------------------------------------------------------------------------------


def policy_parameters(agent) -> list:
    if not isinstance(getattr(agent, "actor_logstd", None), torch.nn.Parameter):
        raise Unable(
            "the agent has no actor_mean and actor_logstd, which the probe needs as the policy's parameters"
        )
    return [*agent.actor_mean.parameters(), agent.actor_logstd]


def fisher_root(agent, x) -> torch.Tensor:
    """A matrix R with R^T R equal to the Fisher matrix of a Gaussian policy's parameters, averaged over the
    observations x. It has a row for each mean (its derivatives divided by the standard deviation) and one for each log
    standard deviation, whose Fisher information is 2."""
    parameters, mean = policy_parameters(agent), agent.actor_mean(x)
    std = agent.actor_logstd.exp().detach()
    rows = [gradient(number, parameters) for number in (mean / std / len(x) ** 0.5).flatten()]
    rows += [2**0.5 * gradient(number, parameters) for number in agent.actor_logstd]
    return torch.stack(rows)


@check("fisher_product", of="trust-region continuous", follows="density")
def fisher_vector_product(subject: Subject) -> Finding:
    """fisher_product of random vectors, with damping 0.3, equals the product with the Fisher matrix, built from the
    derivatives of means and standard deviations."""
    if not hasattr(subject.module, "fisher_product"):
        raise Unable("the file has no function fisher_product")
    agent, x = subject.agent().double(), subject.observations(8).double()
    parameters, root = policy_parameters(agent), fisher_root(agent, x)
    policy = torch.distributions.Normal(agent.actor_mean(x), agent.actor_logstd.exp())
    product = subject.trace.module.fisher_product(policy, parameters, 0.3)
    vectors = torch.randn(4, root.shape[1], dtype=torch.float64)
    ours = torch.stack([product(v).detach() for v in vectors])
    plain = vectors @ root.T @ root
    right, scale = plain + 0.3 * vectors, plain.abs().max()
    mistakes = {"the sign of the damping is wrong": plain - 0.3 * vectors}
    mistakes |= {"the sign of the Fisher matrix is wrong": 0.3 * vectors - plain}
    mistakes |= {
        "the Fisher matrix is not used: the step is along the plain gradient": 0.3 * vectors
    }
    mistakes |= {
        f"the KL of {n} samples is summed or halved": f * plain + 0.3 * vectors
        for n, f in ((8, 8), (2, 0.5))
    }
    choices = {"the damping is missing": plain}
    cases = [{text: other / scale for text, other in part.items()} for part in (mistakes, choices)]
    question = "the product is not that of the Fisher matrix plus damping"
    return compare(ours / scale, right / scale, *cases, question, 1e-6)


@check("conjugate_gradient", of="trust-region")
def conjugate_gradient(subject: Subject) -> Finding:
    """The solution for a random positive definite matrix, after as many iterations as it has rows, equals the direct
    solution."""
    root, b = torch.randn(12, 12, dtype=torch.float64), torch.randn(12, dtype=torch.float64)
    matrix = root @ root.T / 12 + torch.eye(12)
    ours = subject.trace.module.conjugate_gradient(lambda v: matrix @ v, b, 12)
    error = largest(ours, torch.linalg.solve(matrix, b))
    if error < 1e-3:
        return passes(f"error {error:.1e}", "below 1e-03")
    return broken(
        f"error {error:.1e}", "below 1e-03", "the result does not solve the linear system"
    )


def policy_steps(trace: Trace):
    """For each update: the agents before and after, the tensors of the surrogate objective, and whether the policy has
    changed."""
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
    """The first step that is taken has the direction of (F + damping I)^-1 g, computed with the whole Fisher matrix in
    float64."""
    trace = Trace(subject, norm_adv=False, max_kl=1e-3, cg_steps=50)
    steps = [(old, new, mb) for old, new, mb, moved in policy_steps(trace) if moved]
    if not steps:
        return broken("no step was taken", "a step", "the policy never changes")
    old, new, mb = steps[0][0].double(), steps[0][1].double(), steps[0][2]
    x, parameters = mb["x"].double(), policy_parameters(old)
    logprob = subject.act(old, x, mb["action"].double())[1]
    uphill = gradient((logprob * mb["advantage"].double()).mean(), parameters)
    root, damping = fisher_root(old, x), getattr(trace.args, "cg_damping", 0.1)
    # Woodbury: invert a matrix with a row for each mean instead of one with a row for each parameter
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
        return broken(measured, expected, "the step has the wrong direction")
    text = (
        "the step follows the plain gradient"
        if plain > 0.99
        else "the step does not follow the natural gradient"
    )
    return differs(measured, expected, text)


@check("update", of="trust-region continuous", follows="natural-gradient clipping")
def trust_region(subject: Subject) -> Finding:
    """With --max-kl 0.01, 0.5 and 1000 each step respects the limit and improves the surrogate objective. With 0.01 and
    0.5 the longest steps use at least a tenth of the limit; with 1000 the full step is too long to be accepted."""
    for limit in (0.01, 0.5, 1000.0):
        trace = Trace(subject, norm_adv=False, max_kl=limit)
        kls = [trace.kl(k) for k in range(len(trace.updates))]
        moves, better = [], []
        for old, new, mb, moved in policy_steps(trace):
            logprobs = [subject.act(agent, mb["x"], mb["action"])[1] for agent in (old, new)]
            ratio = (logprobs[1] - logprobs[0]).double().exp()
            moves.append(moved)
            better.append(float(((ratio - 1) * mb["advantage"]).mean()))
        measured = (
            f"KL up to {max(kls):.1e}, {sum(moves)} of {len(moves)} updates change the policy"
        )
        expected = f"below {limit:.1e}, most"
        if peak(*kls) > 1.01 * limit:
            return broken(measured, expected, "a step leaves the trust region")
        if any(moved and not gain >= -1e-6 for moved, gain in zip(moves, better)):
            return broken(
                measured, expected, "a step that lowers the surrogate objective is accepted"
            )
        if limit == 1000:
            break
        if not any(moves):
            return broken(measured, expected, "the policy never changes")
        if max(kls) < 0.1 * limit:
            return differs(measured, expected, "the steps are far shorter than --max-kl allows")
    return passes(measured, expected)


@check("update", of="trust-region continuous", follows="trust-region")
def refused_step(subject: Subject) -> Finding:
    """If all advantages are 0 or NaN, no step improves the surrogate objective and the policy stays the same, bit for
    bit."""
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
            return broken("another policy", "the same", "a rejected step is not undone")
    return passes("the same", "the same")


# ---- scores ----------------------------------------------------------------------------------------------------------


@check("update", of="score", follows="rows-are-independent density probabilities")
def policy_gradient(subject: Subject) -> Finding:
    """Derivative of the loss by each sample's log-probability: -(target - value), and 0 for autoreset steps if the loss
    receives them. Also with --norm-adv and each --baseline, if the file has these flags."""
    if "advantage" in subject.loss_parameters:
        raise Unable(
            f"{subject.loss_name} takes an advantage, but no argument with logp in its name"
        )
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
            "the sign of the policy loss is wrong: good actions become less likely": -right,
            "autoreset steps enter the loss": -advantage / len(advantage),
        }
        choices = {
            "the loss uses the target instead of the advantage: the baseline is missing": -target
            * valid
            / valid.sum(),
            "a value is subtracted despite --baseline none": -(target - value)
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


def value_slopes(value, target, old, centre, eps: float) -> torch.Tensor:
    """Derivative by `value` of half the larger squared error: that of the value, or that of `old` plus the clipped
    difference of the value to `centre`."""
    inside = old + (value - centre).clamp(-eps, eps)
    plain = (value - target).abs() >= (inside - target).abs()
    return torch.where(plain, value - target, (inside - target) * ((value - centre).abs() < eps))


@check("update", of="policy", follows="rows-are-independent")
def value_loss(subject: Subject) -> Finding:
    """Derivative of the loss by each sample's value, with and without --clip-vloss. A2C uses the whole squared error,
    the other algorithms half of it."""
    finding = None
    share = "the whole" if hasattr(subject.module, "n_step_returns") else "half the"
    flags = subject.module.Args.__dataclass_fields__
    apart = subject.trace.value_call is not None  # the critic has its own loss
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
        right = weight * value_slopes(value, target, old, old, eps if clip else math.inf)
        mistakes = {"the sign of the value loss is wrong": -right}
        if clip:
            around = weight * value_slopes(value, target, target, target, eps)
            mistakes["values are clipped around the target instead of the old value"] = around
            wrong = weight * value_slopes(value, target, old, target, eps)
            mistakes["the clipped difference is that to the target instead of the old value"] = (
                wrong
            )
        error = value - target
        choices = {
            "the value loss is the Huber loss": weight * error.clamp(-1, 1),
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
        if one.hint == "the loss gives no gradient":
            critic = {
                name for name, _ in subject.trace.first.named_parameters()
            } - subject.trace.learned
            if not critic:  # another loss trains the critic
                one = differs(
                    "no gradient",
                    "a gradient",
                    "this loss does not train the critic; another loss does",
                )
        if finding is None or finding.verdict == "passes" or one.verdict == "broken":
            finding = one
    return finding


@check("update", of="policy", follows="rows-are-independent density probabilities")
def entropy_bonus(subject: Subject) -> Finding:
    """With --ent-coef c the entropy enters the loss and its gradient with the factor -c."""
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
            return broken(
                "no gradient", "a gradient", "the entropy enters the loss without a gradient"
            )
        return differs(
            "another gradient", "that of the entropy", "the gradient of the entropy is changed"
        )
    if abs(change - 0.3 * entropy) < 1e-3:
        return broken(measured, expected, "the sign of the entropy term is wrong")
    return differs(measured, expected, "the entropy term is not --ent-coef times the entropy")


@check("update", of="ratio", follows="rows-are-independent")
def advantage_normalisation(subject: Subject) -> Finding:
    """With --norm-adv the loss does not change when all advantages are scaled and shifted. Without --norm-adv it
    does."""
    changes = {}
    for norm in (True, False):
        mb = Minibatch(subject, 64, norm_adv=norm)
        with torch.no_grad():
            other = float(mb.loss(advantage=7 * mb.batch["advantage"] + 3))
            changes[norm] = peak(other - float(mb.loss()))
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
        measured, expected, text or "advantages are standardised regardless of --norm-adv"
    )


# ---- what reaches the loss -------------------------------------------------------------------------------------------


@check("train", of="ratio")
def first_ratio(subject: Subject) -> Finding:
    """In the first minibatch of an update the policy is still that of the rollout, so the ratio is 1. In later
    minibatches it is not."""
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
            off = peak((mb["logprob"] - mb["old_logprob"]).exp() - 1)
            worst = max(worst, off if k == 0 else 0.0)
            later = max(later, off)
    measured = f"ratio 1 +- {worst:.1e}, later 1 +- {later:.1e}"
    expected = "1 +- 1e-03, later more"
    if later < 1e-6:
        return broken(
            measured,
            expected,
            "old log-probabilities are recomputed in the update, so the ratio is always 1",
        )
    epochs = getattr(subject.trace.args, "update_epochs", 1)
    if worst < 1e-3 and (epoch := anew(subject, epochs)):
        return broken(
            f"{measured}; again 1 in epoch {epoch}",
            expected,
            "old log-probabilities are recomputed in each epoch",
        )
    if worst < 1e-3:
        return passes(measured, expected)
    mistake = "old log-probabilities are stale, of another action, or with other observation statistics than the update"
    return broken(measured, expected, mistake)


def anew(subject: Subject, epochs: int) -> int:
    """The epoch, after the first, that starts with ratios of 1 in every update."""
    parts = [record["minibatches"] for record in subject.trace.updates]
    if epochs < 2 or any(len(part) != len(parts[0]) or len(part) % epochs for part in parts):
        return 0
    start = len(parts[0]) // epochs
    if not start or start == len(parts[0]):
        return 0
    off = peak(*(part[start]["logprob"] - part[start]["old_logprob"] for part in parts))
    return 2 if off < 1e-6 else 0


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
                    wrong.add(f"{name} {tuple(mb[name].shape)} for {size} samples")
    if wrong:
        return broken(
            "; ".join(sorted(wrong)),
            "all (minibatch,)",
            "a tensor with the wrong shape is broadcast",
        )
    return passes("all (minibatch,)")


@check("train", of="policy")
def reset_rows(subject: Subject) -> Finding:
    """The batch contains every valid step and no autoreset step."""
    return rows_of_batch(
        subject.trace, "autoreset steps, which follow the end of an episode, reach the loss"
    )


def rows_of_batch(trace: Trace, mistake: str) -> Finding:
    """Whether the batch contains every valid step and no other; `mistake` says what other samples mean."""
    resets = lost = ends = firsts = total = 0
    for places, expected, record, truth in zip(
        trace.places, trace.expected, trace.updates, trace.truth
    ):
        batch = sketch(trace.batch(record)["x"])
        known = nearest(expected["resets"], batch)
        own = nearest(expected["resets"], expected["x"])  # a state in which the agent also acted
        resets += int(((known >= 0) & (own < 0)).sum())
        missing = places < 0
        lost, total = lost + int(missing.sum()), total + len(places)
        done = (truth["terminated"] | truth["truncated"])[truth["valid"]]
        ends += int((missing & done).sum())
        after_life = np.roll(truth["life_lost"], 1, axis=0)[truth["valid"]]
        firsts += int((missing & after_life).sum())
    measured = f"{resets} samples too many, {lost} of {total} valid samples missing"
    if resets:
        return broken(measured, "0, 0", mistake)
    if lost and lost == ends:
        return broken(measured, "0, 0", "the last step of each episode is missing")
    if lost and lost == firsts:
        return broken(
            measured, "0, 0", "the step after a lost life is discarded like an autoreset step"
        )
    if lost:
        return differs(measured, "0, 0", "some steps are not trained on")
    return passes(measured, "0, 0")


def found_rows(trace: Trace, of: str = "minibatches"):
    """For each update: the batch's samples whose steps were found in the record, what is expected of them, and which
    they are."""
    places_of = trace.places if of == "minibatches" else trace.find(of)
    for places, expected, record, truth in zip(
        places_of, trace.expected, trace.updates, trace.truth
    ):
        here = places >= 0
        batch = {name: tensor[places[here]] for name, tensor in trace.batch(record, of).items()}
        yield batch, expected, here, record, truth


@check("train", of="policy", follows="reset-rows")
def stored_actions(subject: Subject) -> Finding:
    """The environment receives the stored action after to_env. Stored actions are not clipped, so some lie outside the
    bounds."""
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
    measured = f"error {worst:.1e}, {beyond} outside the bounds"
    if worst > 1e-3:
        return broken(
            measured, "below 1e-03", "the stored action is not the one sampled in this state"
        )
    if beyond == 0 and draws > 5:
        return broken(
            measured,
            "some",
            "the clipped action is stored; is its log-probability that of the unclipped one?",
        )
    return passes(measured, "below 1e-03")


@check("train", of="policy", follows="stored-actions sampling action-frequencies")
def rollout_draws(subject: Subject) -> Finding:
    """Each stored action's log-probability is ranked among those of 19 new samples of the same policy in the same
    state; the mean rank is in the middle. With discrete actions the agent of this run prefers some actions from the
    start."""
    off = variance = 0.0
    trace = Trace(subject, scattered=True) if "discrete" in subject.kinds else subject.trace
    for batch, _, _, record, _ in found_rows(trace):
        agent, x = record["agent"], batch["x"]
        with torch.no_grad():
            actions = [batch["action"], *(subject.act(agent, x)[0] for _ in range(19))]
            likely = torch.stack([subject.act(agent, x, action)[1] for action in actions])
        ranks = (
            (likely[:, None] - likely).sign().double().sum(1)
        )  # (20, samples); the mean over the 20 is 0
        off += math.nan if likely.isnan().any() else float(ranks[0].sum())  # a rank hides NaN
        variance += float((ranks**2).mean(0).sum())
    deviations = off / max(variance, 1e-9) ** 0.5
    measured = f"off by {deviations:+.1f} standard deviations"
    if abs(deviations) < 5:
        return passes(measured, "below 5")
    if math.isnan(deviations):
        return broken(measured, "below 5", "log-probabilities are NaN")
    less = "less" if deviations < 0 else "more"
    question = f"the rollout's actions are {less} likely than samples from its policy"
    return differs(measured, "below 5", question)


@check("train", of="ratio", follows="reset-rows gae-inputs")
def stored_values(subject: Subject) -> Finding:
    """Old values in the batch equal the critic's values of the recorded states."""
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
        "old values are not the critic's values of the rollout's states",
    )


@check("train", of="policy bootstrap")
def gae_inputs(subject: Subject) -> Finding:
    """Rewards, values, terminateds and dones of the whole rollout match the record, except at autoreset steps. Also
    without --bootstrap-truncation and --terminal-on-life-loss, if the file has these flags."""
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
            question = f"--no-{flag.replace('_', '-')} does not have the documented effect"
            finding = differs(without.measured, without.expected, question)
    return finding


def inputs_of(subject: Subject, trace: Trace) -> Finding:
    """Compare the inputs of the return function in a run with the record of the environments."""
    wrong, rows = {}, {}
    for (call, _), truth, record in zip(trace.returns, trace.truth, trace.updates):
        valid, values = truth["valid"], trace.values(truth, record["agent"])
        rewards, terminals, dones = truth["learner"]
        edge = np.concatenate([valid, valid[-1:]]) | np.concatenate(
            [valid[:1], valid]
        )  # states whose values are used
        life, cut = truth["life_lost"] & valid, truth["truncated"] & valid
        pairs = {
            "rewards": (rewards, valid),
            "dones": (dones, valid),
            "terminateds": (terminals, valid),
            "values": (values, edge),
        }
        for name, (theirs, here) in pairs.items():
            if name not in call.arguments:
                raise Unable(
                    f"{subject.returns_name} takes {', '.join(call.arguments)}: keep the original names"
                )
            ours = call.arguments[name].double().numpy()
            if ours.shape != theirs.shape:
                return broken(
                    f"{name} {ours.shape}",
                    f"{theirs.shape}",
                    "a tensor with the wrong shape is broadcast",
                )
            off = ~(np.abs(ours - theirs) <= 1e-3 * np.maximum(1, np.abs(theirs))) & here
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
    """What is wrong with rewards, terminateds, dones or values. Each rollout has (wrong entries, entries that count,
    the file's values, the right ones)."""
    off, here, ours, right = (np.stack(parts) for parts in zip(*rows))
    reward, valid, life, cut = (np.stack(parts) for parts in zip(*raw))
    measured, expected = f"{name}: {off.sum()} of {here.sum()} wrong", "none"
    same = lambda other: largest(ours[here], other[here]) < 1e-3  # noqa: E731
    for axis, text in ((1, "of the adjacent step"), (2, "of the adjacent environment")):
        if any(same(np.roll(right, shift, axis)) for shift in (1, -1)):
            return broken(measured, expected, f"{name} are those {text}")
    if name == "rewards":
        if same(reward):
            return differs(measured, expected, "rewards are not clipped")
        moved = off[:, 1:].any() and np.abs(ours[:, 1:] - right[:, :-1])[here[:, 1:]].mean() < 1e-3
        return (
            broken(measured, expected, "rewards belong to other steps")
            if moved
            else differs(measured, expected, "rewards are not those of the environments")
        )
    if name == "terminateds":
        if not (off & ~life).any():
            return broken(measured, expected, "the value after a lost life is bootstrapped")
        if not (off & ~cut).any():
            return broken(measured, expected, "truncation is treated as termination")
        return broken(measured, expected, "terminations are lost or stored at the wrong step")
    if name == "dones":
        late = largest(ours[:, 1:], right[:, :-1]) < 1e-3
        return broken(
            measured,
            expected,
            "`done` is stored one step late"
            if late
            else "`done` is lost or stored at the wrong step",
        )
    share = off.sum() / here.sum()
    if off[:, -1].any() and not off[:, :-1].any():
        return broken(measured, expected, "the last value belongs to another state")
    if share < 0.6:
        return broken(
            measured,
            expected,
            "values belong to other states: the final observation of an episode is lost",
        )
    return differs(measured, expected, "values are not those of the agent's critic")


@check("train", of="policy", follows="gae n-step-returns monte-carlo-returns gae-inputs reset-rows")
def advantages(subject: Subject) -> Finding:
    """Advantages and targets of every valid sample come from the return function, which is called with --gamma and
    --gae-lambda."""
    trace, args = subject.trace, subject.trace.args
    for call, _ in trace.returns:
        given = [call.arguments.get(name) for name in ("gamma", "gae_lambda")]
        right = [getattr(args, "gamma", None), getattr(args, "gae_lambda", given[1])]
        if any(None not in pair and pair[0] != pair[1] for pair in zip(given, right)):
            measured, expected = f"gamma, lambda {given}", f"{right}"
            if given == right[::-1]:
                return broken(measured, expected, "gamma and lambda are swapped in the call")
            return differs(
                measured,
                expected,
                f"{subject.returns_name} is called with other constants than those of the flags",
            )
    if "monte-carlo" in subject.kinds:
        given = [np.where(truth["valid"], truth["reward"], 0) for truth in trace.truth]
        for (call, _), right, truth in zip(trace.returns, given, trace.truth):
            ours = call.arguments["rewards"].double().numpy()
            if largest(ours * truth["valid"], right) > 1e-3:
                return differs(
                    "other rewards",
                    "those of the environments",
                    "rewards are not those of the environments",
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
        mistake = "the targets are computed from standardised advantages, so they are not returns"
        return broken(
            "target - value has mean 0 and standard deviation 1", "the advantage", mistake
        )
    for name, rows in parts.items():
        if rows:
            ours, right, result, values = (np.concatenate(part) for part in zip(*rows))
            if ours.shape != right.shape:
                raise Unable(f"{name} has the shape {ours.shape} instead of {right.shape}")
            mistakes = {
                f"the {name}s belong to other samples": right[::-1],
                f"the sign of the {name} is wrong": -right,
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
                f"the {name} in the loss is not computed from the result of {subject.returns_name}",
            )
            if finding.verdict == "differs" and largest(np.sort(ours), np.sort(right)) < 1e-3:
                return broken(
                    finding.measured, finding.expected, f"the {name}s belong to other samples"
                )
            if finding.verdict != "passes":
                return finding
    return passes("all agree")


def standardised(ours: np.ndarray, advantage: np.ndarray) -> bool:
    """Whether these are the advantages of a rollout, standardised over these samples or, with autoreset steps, over a
    few more."""
    if largest(ours, advantage) < 1e-3 or max(abs(ours.mean()), abs(ours.std() - 1)) > 0.5:
        return False
    return bool(np.corrcoef(ours, advantage)[0, 1] > 0.9999)


@check("train", of="scales")
def reward_normalisation(subject: Subject) -> Finding:
    """With --norm-reward rewards are divided by the standard deviation of all discounted returns so far and clipped to
    +-10. Also in an environment with one reward a thousand times larger than the others."""
    finding = scaled_rewards(Trace(subject, norm_reward=True))
    if finding.verdict != "passes":
        return finding
    return scaled_rewards(Trace(subject, norm_reward=True, env_id="ProbeRare-v0"), above=10)


def scaled_rewards(trace: Trace, above: float = 0) -> Finding:
    """Compare the rewards that the return function receives with those of the environments. At least one reward must
    exceed `above` after the scaling."""
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
    question = "rewards are not divided by the standard deviation of the discounted returns so far"
    return compare(
        ours,
        right,
        {
            "autoreset steps enter the statistics": resets,
            "the reward of an autoreset step counts for the next episode": late,
        },
        {
            "rewards are divided by their own standard deviation instead of the return's": own,
            "large rewards are not clipped to +-10": whole,
        },
        question,
    )


@check("train", of="normaliser")
def observation_statistics(subject: Subject) -> Finding:
    """Mean, variance and count of the normaliser cover all valid observations of earlier rollouts; each rollout enters
    after the update on it. Also with rollouts of two steps, in which no episode may end."""
    if not hasattr(subject.trace.first, "obs_rms"):
        raise Skip
    finding = judge_statistics(subject.trace)
    if finding.verdict != "passes":
        return finding
    short = {"num_envs": 2, "num_steps": 2, "num_minibatches": 2, "update_epochs": 1}
    return judge_statistics(Trace(subject, **short, total_timesteps=40))


def judge_statistics(trace: Trace) -> Finding:
    trace.subject.seen(
        trace.first, trace.truth[0]["obs"]
    )  # raises Unable if the training loop changes their shape
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
        return broken(measured, expected, "autoreset steps enter the normaliser's statistics")
    if len({tuple(row) for row in ours[2:]}) == 1:
        return broken(measured, expected, "the normaliser is no longer updated")
    if largest(ours[:, :size], right[:, :size]) < 1e-3 and error >= 1e-3:
        return broken(
            measured,
            expected,
            "the normaliser's variance is not computed for each observation dimension",
        )
    if largest(ours, ahead) < 1e-3:
        return differs(
            measured,
            expected,
            "a rollout enters the normaliser's statistics before the update on it",
        )
    return differs(
        measured,
        expected,
        "the normaliser does not hold the mean and variance of all observations so far",
    )


@check("update", of="ratio")
def minibatches(subject: Subject) -> Finding:
    """Each epoch uses every sample, in a new order, in --num-minibatches minibatches with one optimiser step each. The
    tensors of a sample stay together. In TRPO these are the epochs of the critic."""
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
                    return broken(
                        f"{name} of other samples", "its own", "tensors are shuffled independently"
                    )
                notes.append(f"{name} changes between epochs")
        for optimizer in dict.fromkeys(record["steps"]):
            if (count := sum(optimizer is known for known in record["steps"])) != len(parts):
                notes.append(f"{count} optimiser steps for {len(parts)} minibatches")
        if len(parts) != per_epoch * epochs:
            notes.append(f"{len(parts)} minibatches instead of {per_epoch} x {epochs}")
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
            notes.append("an epoch omits samples")
        if epochs > 1 and orders[0] == orders[-1]:
            notes.append("every epoch has the same order")
        elif in_time(trace, record, of):
            notes.append("samples are not shuffled")
    notes = list(dict.fromkeys(notes))
    if notes:
        return differs("; ".join(notes), "every sample, shuffled", notes[0])
    return passes("every sample, shuffled")


def in_time(trace: Trace, record: dict, of: str) -> bool:
    """Whether the samples of an update are in the order of time."""
    k = next(i for i, known in enumerate(trace.updates) if known is record)
    where = (trace.places if of == "minibatches" else trace.find(of))[k]
    return bool((where >= 0).all() and (np.diff(where[:20]) == 1).all())
