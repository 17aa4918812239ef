"""Hand-written densities, entropies and draws against torch.distributions, plain and squashed."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import no_noise
from torch.distributions import (
    AffineTransform,
    Gumbel,
    Laplace,
    Normal,
    TanhTransform,
    TransformedDistribution,
)

OBS_DIM = 3
LOW, HIGH = np.array([-2.0, -0.5], dtype=np.float32), np.array([1.0, 3.0], dtype=np.float32)
SPACE = gym.spaces.Box(LOW, HIGH)
BASES = {"normal": Normal, "laplace": Laplace, "gumbel": Gumbel}
CDFS = {
    "normal": lambda z: 0.5 * (1 + torch.erf(z / 2**0.5)),
    "laplace": lambda z: torch.where(z < 0, 0.5 * z.exp(), 1 - 0.5 * (-z).exp()),
    "gumbel": lambda z: (-(-z).exp()).exp(),
}
each_distribution = pytest.mark.parametrize("distribution", BASES)
squash_or_not = pytest.mark.parametrize("squash", [False, True], ids=["plain", "squash"])


def make_agent(algo, distribution: str, squash: bool = False):
    """An agent in float64 with locations spread over +-1 and two different scales."""
    torch.manual_seed(4)
    flags = no_noise(algo) | {"distribution": distribution, "squash": squash, "norm_obs": False}
    agent = algo.Agent(OBS_DIM, SPACE, algo.Args(**flags)).double()
    for parameter in agent.actor_mean.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    agent.actor_logstd.data = torch.tensor([-0.7, 0.2], dtype=torch.float64)
    return agent


def reference(agent, distribution: str, squash: bool, x):
    base = BASES[distribution](
        agent.actor_mean(x), agent.actor_logstd.exp().expand(len(x), -1), validate_args=False
    )
    if not squash:
        return base
    low, high = torch.tensor(LOW, dtype=torch.float64), torch.tensor(HIGH, dtype=torch.float64)
    squasher = [TanhTransform(), AffineTransform((high + low) / 2, (high - low) / 2)]
    return TransformedDistribution(base, squasher, validate_args=False)


def integral(distribution: str, mean: float, std: float, low: float, high: float) -> float:
    """Entropy of the squashed action, by numerical integration over the unsquashed one."""
    u = mean + std * torch.linspace(-12, 40, 400_001, dtype=torch.float64)
    log_density = BASES[distribution](mean, std, validate_args=False).log_prob(u)
    log_slope = np.log((high - low) / 2) - 2 * torch.log(torch.cosh(u))
    return torch.trapezoid(log_density.exp() * (log_slope - log_density), u).item()


def kolmogorov_smirnov(uniform: torch.Tensor) -> float:
    """sqrt(n) x the largest distance between the empirical distribution and the uniform one, per column."""
    n = len(uniform)
    ordered, grid = (
        uniform.sort(dim=0).values,
        torch.arange(n + 1, dtype=torch.float64)[:, None] / n,
    )
    return (
        n**0.5 * torch.maximum((ordered - grid[:-1]).abs(), (ordered - grid[1:]).abs()).max().item()
    )


@each_distribution
@squash_or_not
def test_logprob_and_its_gradient(algo, distribution, squash):
    """Would break: a density without its scale, a change of variables with a wrong sign, factor or axis."""
    agent = make_agent(algo, distribution, squash)
    x, u = (
        torch.randn(50, OBS_DIM, dtype=torch.float64),
        1.5 * torch.randn(50, 2, dtype=torch.float64),
    )
    _, logprob, _ = agent.get_action(x, u)
    value = agent.to_env(u) if squash else u
    expected = reference(agent, distribution, squash, x).log_prob(value).sum(-1)
    assert logprob.shape == (50,)
    torch.testing.assert_close(logprob, expected, rtol=1e-8, atol=1e-8)
    parameters = [*agent.actor_mean.parameters(), agent.actor_logstd]
    weights = torch.randn(50, dtype=torch.float64)
    ours = torch.autograd.grad((weights * logprob).sum(), parameters)
    theirs = torch.autograd.grad((weights * expected).sum(), parameters)
    for mine, other in zip(ours, theirs):
        assert other.abs().max() > 0
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-8)


@each_distribution
def test_entropy_is_the_closed_form(algo, distribution):
    """Would break: a constant of the entropy, or the sum over action dimensions."""
    agent = make_agent(algo, distribution)
    x = torch.randn(20, OBS_DIM, dtype=torch.float64)
    _, _, entropy = agent.get_action(x)
    expected = reference(agent, distribution, False, x).entropy().sum(-1)
    assert entropy.shape == (20,)
    torch.testing.assert_close(entropy, expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(e.sum(), agent.actor_logstd)[0] for e in (entropy, expected))
    )


@each_distribution
def test_squashed_entropy_estimate_is_unbiased(algo, distribution):
    """Would break: an entropy without the change of variables, or one whose gradient misses the draw."""
    n = 100_000
    agent = make_agent(algo, distribution, squash=True)
    x = torch.randn(1, OBS_DIM, dtype=torch.float64)
    mean, std = agent.actor_mean(x)[0].tolist(), agent.actor_logstd.exp().tolist()
    stored = torch.zeros(
        n, 2, dtype=torch.float64
    )  # the update's call: the entropy must not depend on this action
    _, _, entropy = agent.get_action(x.expand(n, -1), stored)
    expected = sum(
        map(lambda *one: integral(distribution, *one), mean, std, LOW.tolist(), HIGH.tolist())
    )
    assert entropy.mean().item() == pytest.approx(expected, abs=5 * entropy.std().item() / n**0.5)
    _, _, unsquashed = make_agent(algo, distribution).get_action(x)
    assert (
        abs(unsquashed.item() - expected) > 0.3
    )  # so that leaving the correction out would be seen

    gradient, step = torch.autograd.grad(entropy.mean(), agent.actor_logstd)[0], 1e-4
    for i in range(2):
        around = [
            integral(distribution, mean[i], std[i] * np.exp(d), LOW[i], HIGH[i])
            for d in (step, -step)
        ]
        assert gradient[i].item() == pytest.approx((around[0] - around[1]) / (2 * step), abs=0.03)


@each_distribution
@squash_or_not
def test_draws_follow_the_distribution(algo, distribution, squash):
    """Would break: draws of another scale, another location or another law. 2.2 is the limit for p = 0.0001."""
    n = 20_000
    agent = make_agent(algo, distribution, squash)
    x = torch.randn(1, OBS_DIM, dtype=torch.float64)
    with torch.no_grad():
        u, logprob, _ = agent.get_action(x.expand(n, -1))
        env_action = agent.to_env(u)
        z = (u - agent.actor_mean(x)) / agent.actor_logstd.exp()
    assert kolmogorov_smirnov(CDFS[distribution](z)) < 2.2
    assert np.corrcoef(z.numpy().T)[0, 1] == pytest.approx(0, abs=0.03)
    low, high = torch.tensor(LOW), torch.tensor(HIGH)
    assert ((env_action >= low) & (env_action <= high)).all()
    if squash:
        back = torch.atanh(((env_action - low) / (high - low) * 2 - 1).clamp(-1 + 1e-12, 1 - 1e-12))
        near = u.abs() < 5
        torch.testing.assert_close(back[near], u[near], rtol=1e-5, atol=1e-5)
    else:
        torch.testing.assert_close(env_action, u.clamp(low, high))
    torch.testing.assert_close(logprob, agent.get_action(x.expand(n, -1), u)[1])


@each_distribution
@squash_or_not
@pytest.mark.parametrize("u", [50.0, -50.0])
def test_far_out_is_finite(algo, distribution, squash, u):
    """Would break: log(1 - tanh(u)^2) written as it reads, which is log(0) from |u| = 9 on in float32."""
    agent = make_agent(algo, distribution, squash).float()
    agent.actor_logstd.data.zero_()
    x, action = torch.randn(4, OBS_DIM), torch.full((4, 2), u)
    _, logprob, entropy = agent.get_action(x, action)
    (logprob.mean() + entropy.mean()).backward()
    assert (
        logprob.isfinite().all()
        and entropy.isfinite().all()
        and agent.to_env(action).isfinite().all()
    )
    assert all(
        p.grad.isfinite().all() for p in [*agent.actor_mean.parameters(), agent.actor_logstd]
    )
    scale = torch.tensor((HIGH - LOW) / 2)
    exact = scale.log() + 2 * (np.log(2) - 50)  # log(1 - tanh(u)^2) = 2 log(2) - 2 |u| this far out
    torch.testing.assert_close(agent.log_slope(action), exact.expand(4, -1))


@each_distribution
def test_extreme_random_numbers_give_finite_actions(algo, distribution, monkeypatch):
    """Would break: log(0). torch.rand is 0 once in 2^24 draws, which is once in a run of a few million steps."""
    agent = make_agent(algo, distribution).float()
    x = torch.randn(4, OBS_DIM)
    for value in (0.0, 1 - 2**-24):
        with monkeypatch.context() as patch:
            patch.setattr(
                torch, "rand_like", lambda like, value=value: torch.full_like(like, value)
            )
            patch.setattr(torch, "rand", lambda *shape, value=value, **_: torch.full(shape, value))
            action, logprob, _ = agent.get_action(x)
        assert action.isfinite().all() and logprob.isfinite().all()
