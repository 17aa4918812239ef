"""What the agents of rpo_continuous.py and ppo_squashed.py draw, and its densities and entropies."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import load
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
EACH = pytest.mark.parametrize("distribution", [*BASES, "squashed"])


def make_agent(distribution: str):
    """An agent in float64 with locations spread over +-1 and two different scales."""
    torch.manual_seed(4)
    squashed = distribution == "squashed"
    algo = load("ppo_squashed" if squashed else "rpo_continuous")
    flags = {} if squashed else {"distribution": distribution, "rpo_alpha": 0.0}
    agent = algo.Agent(OBS_DIM, SPACE, algo.Args(norm_obs=False, **flags)).double()
    for parameter in agent.actor_mean.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    agent.actor_logstd.data = torch.tensor([-0.7, 0.2], dtype=torch.float64)
    return agent


def reference(agent, distribution: str, x):
    """Of what the log-probability is: the draw, or, squashed, what the environment gets."""
    scale = agent.actor_logstd.exp().expand(len(x), -1)
    base = BASES.get(distribution, Normal)(agent.actor_mean(x), scale, validate_args=False)
    if distribution != "squashed":
        return base
    low, high = torch.tensor(LOW, dtype=torch.float64), torch.tensor(HIGH, dtype=torch.float64)
    squasher = [TanhTransform(), AffineTransform((high + low) / 2, (high - low) / 2)]
    return TransformedDistribution(base, squasher, validate_args=False)


def integral(mean: float, std: float, low: float, high: float) -> float:
    """Entropy of the squashed action, by numerical integration over the unsquashed one."""
    u = mean + std * torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    log_density = Normal(mean, std, validate_args=False).log_prob(u)
    log_slope = np.log((high - low) / 2) - 2 * torch.log(torch.cosh(u))
    return torch.trapezoid(log_density.exp() * (log_slope - log_density), u).item()


@EACH
def test_logprob_and_its_gradient(distribution):
    """Would break: a density without its scale, a change of variables with a wrong sign or axis."""
    agent, squashed = make_agent(distribution), distribution == "squashed"
    x = torch.randn(50, OBS_DIM, dtype=torch.float64)
    u = 1.5 * torch.randn(50, 2, dtype=torch.float64)
    _, logprob, _ = agent.get_action(x, u)
    value = torch.from_numpy(agent.to_env(u)) if squashed else u
    expected = reference(agent, distribution, x).log_prob(value).sum(-1)
    assert logprob.shape == (50,)
    torch.testing.assert_close(logprob, expected, rtol=1e-8, atol=1e-8)
    parameters = [*agent.actor_mean.parameters(), agent.actor_logstd]
    weights = torch.randn(50, dtype=torch.float64)
    ours = torch.autograd.grad((weights * logprob).sum(), parameters)
    theirs = torch.autograd.grad((weights * expected).sum(), parameters)
    for mine, other in zip(ours, theirs):
        assert other.abs().max() > 0
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-8)


def test_squashed_entropy_estimate_is_unbiased():
    """Would break: an entropy without the change of variables, or one whose gradient misses the draw."""
    n, agent = 100_000, make_agent("squashed")
    x = torch.randn(1, OBS_DIM, dtype=torch.float64)
    mean, std = agent.actor_mean(x)[0].tolist(), agent.actor_logstd.exp().tolist()
    stored = torch.zeros(n, 2, dtype=torch.float64)  # the entropy must not depend on this action
    _, _, entropy = agent.get_action(x.expand(n, -1), stored)
    expected = sum(map(integral, mean, std, LOW.tolist(), HIGH.tolist()))
    assert entropy.mean().item() == pytest.approx(expected, abs=5 * entropy.std().item() / n**0.5)
    plain = Normal(torch.tensor(mean), torch.tensor(std)).entropy().sum().item()
    assert abs(plain - expected) > 0.3  # so that leaving the correction out would be seen

    gradient, step = torch.autograd.grad(entropy.mean(), agent.actor_logstd)[0], 1e-4
    for i in range(2):
        around = [integral(mean[i], std[i] * np.exp(d), LOW[i], HIGH[i]) for d in (step, -step)]
        assert gradient[i].item() == pytest.approx((around[0] - around[1]) / (2 * step), abs=0.03)


@EACH
@pytest.mark.parametrize("u", [50.0, -50.0])
def test_far_out_is_finite(distribution, u):
    """Would break: log(1 - tanh(u)^2) written as it reads: log(0) from |u| = 9 on in float32."""
    agent = make_agent(distribution).float()
    agent.actor_logstd.data.zero_()
    for layer in agent.actor_mean[::2]:  # Gumbel's density is infinite 50 scales below its location
        layer.bias.data += u if distribution == "gumbel" and layer is agent.actor_mean[-1] else 0.0
    x, action = torch.randn(4, OBS_DIM), torch.full((4, 2), u)
    _, logprob, entropy = agent.get_action(x, action)
    (logprob.mean() + entropy.mean()).backward()
    assert logprob.isfinite().all() and entropy.isfinite().all()
    assert np.isfinite(agent.to_env(action)).all()
    parameters = [*agent.actor_mean.parameters(), agent.actor_logstd]
    assert all(parameter.grad.isfinite().all() for parameter in parameters)
    if distribution == "squashed":
        # log(1 - tanh(u)^2) = 2 log(2) - 2 |u| this far out
        exact = torch.tensor((HIGH - LOW) / 2).log() + 2 * (np.log(2) - 50)
        torch.testing.assert_close(agent.log_slope(action), exact.expand(4, -1))
