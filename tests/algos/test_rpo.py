"""RPO: noise on the location of the action, and nothing else that PPO does not do. And what the agents of
rpo_continuous.py and ppo_squashed.py draw, with its densities and entropies."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import load, read_checkpoint, run_folder, scalars, spy, tiny
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
    gradients = torch.autograd.grad((weights * logprob).sum(), parameters)
    references = torch.autograd.grad((weights * expected).sum(), parameters)
    for gradient, expected_gradient in zip(gradients, references):
        assert expected_gradient.abs().max() > 0
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-6, atol=1e-8)


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


@pytest.mark.parametrize("flags", [{}, {"rpo_perturb_rollout": True}], ids=str)
def test_alpha_zero_is_ppo_bit_for_bit(tmp_path, flags):
    """Would break: a number drawn and multiplied by zero, after which every later draw differs."""
    agents, curves, returns = [], [], []
    for name, own in (("ppo_continuous", {}), ("rpo_continuous", flags | {"rpo_alpha": 0.0})):
        algo = load(name)
        args = tiny(algo, tmp_path / name, total_timesteps=450, num_steps=32, **own)
        returns.append(algo.train(args)["eval_returns"])
        run = run_folder(tmp_path / name)
        agents.append(read_checkpoint(run)["agent"])
        curves.append(scalars(run))
        del curves[-1]["charts/SPS"]
    assert {value for _, value in curves[1].pop("charts/rpo_alpha")} == {0.0}
    ppo, rpo = agents
    assert ppo.keys() == rpo.keys()
    assert all(torch.equal(ppo[key], rpo[key]) for key in ppo)
    assert curves[0] == curves[1]
    assert returns[0] == returns[1]


def noise_of_update(agent, x) -> torch.Tensor:
    """z (n, 2) of one pass. For a normal distribution d logprob / d mean = (action - mean - z) / std^2."""
    means = []
    hook = agent.actor_mean.register_forward_hook(
        lambda module, inputs, output: means.append(output)
    )
    action = torch.randn(len(x), agent.actor_logstd.numel(), dtype=x.dtype)
    _, logprob, _ = agent.get_action(x, action)
    hook.remove()
    gradient = torch.autograd.grad(logprob.sum(), means[0])[0]
    return (action - means[0] - gradient * (2 * agent.actor_logstd).exp()).detach()


def test_alpha_is_logged(tmp_path):
    """Would break: a log of another alpha than the one that acts."""
    rpo = load("rpo_continuous")
    rpo.train(tiny(rpo, tmp_path, rpo_alpha=0.5, rpo_alpha_final=0.1))
    logged = scalars(run_folder(tmp_path))["charts/rpo_alpha"]
    starts = [0, *(step for step, _ in logged)]  # of the iterations
    assert len(logged) >= 4
    assert [alpha for _, alpha in logged] == [
        pytest.approx(0.5 - 0.4 * start / 64) for start in starts[: len(logged)]
    ]


def test_resume_goes_on_with_the_schedule(monkeypatch, tmp_path):
    """Would break: a resumed run that starts from the full noise again."""
    rpo, widest = load("rpo_continuous"), []
    flags = {"env_id": "Pendulum-v1", "rpo_alpha": 0.8, "rpo_alpha_final": 0.0}
    rpo.train(tiny(rpo, tmp_path, **flags))

    def measure(agent, *_):
        widest.append(noise_of_update(agent, torch.randn(4000, 3)).abs().max().item())

    spy(monkeypatch, rpo, "update", measure)
    resume = str(run_folder(tmp_path))
    rpo.train(tiny(rpo, tmp_path, resume=resume, total_timesteps=128, **flags))
    assert widest[0] == pytest.approx(0.4, rel=0.01)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *[(name, value, r"must be at least 0 and below 2\*\*32")
          for name in ("rpo_alpha", "rpo_alpha_final") for value in (-1e-3, np.nan, np.inf)],
        ("rpo_alpha_final", 0.51, "cannot exceed --rpo-alpha"),
    ],
)  # fmt: skip
def test_noise_that_is_refused(tmp_path, name, value, words):
    """Would break: noise of a width that is no number, one that grows."""
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} .*{words}"):
        tiny(load("rpo_continuous"), tmp_path, **{name: value})
    tiny(load("rpo_continuous"), tmp_path, rpo_alpha=0.5, rpo_alpha_final=0.5)


def test_other_distribution_under_trained_weights(tmp_path):
    """Would break: weights of a normal policy that go on as those of another."""
    rpo = load("rpo_continuous")
    rpo.train(tiny(rpo, tmp_path))
    flags = {"resume": str(run_folder(tmp_path)), "total_timesteps": 128}
    with pytest.raises(SystemExit, match="distribution must stay normal"):
        rpo.train(tiny(rpo, tmp_path, distribution="laplace", **flags))
