"""RPO: uniform noise on the location of the action, and nothing else that PPO does not do."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import load, read_checkpoint, run_folder, scalars, spy, tiny

SPACE = gym.spaces.Box(-1, 1, (2,), np.float32)


def make_agent(rpo, **flags):
    torch.manual_seed(0)
    agent = rpo.Agent(3, SPACE, rpo.Args(norm_obs=False, **flags)).double()
    for parameter in agent.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return agent


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


def noise_of_rollout(agent, x) -> torch.Tensor:
    """z (n, 2) while acting, seen through a scale of the action that is next to nothing."""
    logstd, agent.actor_logstd.data = (
        agent.actor_logstd.data,
        torch.full((2,), -30.0, dtype=x.dtype),
    )
    action = agent.get_action(x)[0] - agent.actor_mean(x)
    agent.actor_logstd.data = logstd
    return action.detach()


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


def test_alpha_changes_training(tmp_path):
    """Would break: --rpo-alpha that is read nowhere (and the test above, which could not fail)."""
    rpo, agents = load("rpo_continuous"), []
    for alpha in (0.0, 0.5):
        rpo.train(tiny(rpo, tmp_path / str(alpha), rpo_alpha=alpha))
        agents.append(read_checkpoint(run_folder(tmp_path / str(alpha)))["agent"])
    assert not torch.equal(agents[0]["actor_mean.0.weight"], agents[1]["actor_mean.0.weight"])


@pytest.mark.parametrize("alpha", [0.05, 0.5, 3.0])
def test_noise_is_uniform_and_drawn_anew(alpha):
    """Would break: one draw for all rows, dimensions or passes; noise in [0, alpha]; a normal distribution."""
    n, agent = 5000, make_agent(load("rpo_continuous"), rpo_alpha=alpha)
    x = torch.randn(1, 3, dtype=torch.float64).expand(n, -1)
    first, second = noise_of_update(agent, x) / alpha, noise_of_update(agent, x) / alpha
    for z in (first, second):
        assert z.shape == (n, 2)
        assert z.abs().max() <= 1 + 1e-9
        assert len(z.unique()) > 0.99 * 2 * n
        ordered, grid = ((z + 1) / 2).sort(dim=0).values, torch.arange(n)[:, None] / n
        assert n**0.5 * (ordered - grid).abs().max() < 2.2  # Kolmogorov-Smirnov, p = 0.0001
        assert abs(np.corrcoef(z.T)[0, 1]) < 0.06
    assert abs(np.corrcoef(first[:, 0], second[:, 0])[0, 1]) < 0.06


def test_noise_acts_in_the_update_only():
    """Would break: a behaviour policy with the noise in it, which the paper's Algorithm 1 does not have."""
    rpo, x = load("rpo_continuous"), torch.randn(500, 3, dtype=torch.float64)
    plain, both = make_agent(rpo), make_agent(rpo, rpo_perturb_rollout=True)
    assert noise_of_rollout(plain, x).abs().max() < 1e-9
    assert noise_of_update(plain, x).abs().max() > 0.49
    z = noise_of_rollout(both, x)
    assert 0.49 < z.abs().max() <= 0.5 + 1e-9 and len(z.unique()) == 1000 and z.mean().abs() < 0.05
    assert noise_of_update(both, x).abs().max() > 0.49


@pytest.mark.parametrize("perturb", [False, True])
def test_evaluation_is_without_noise(perturb):
    """Would break: an evaluation that is not the mode of the policy."""
    rpo = load("rpo_continuous")
    args = rpo.Args(rpo_alpha=5.0, rpo_perturb_rollout=perturb, env_id="Pendulum-v1")
    agent = rpo.Agent(3, gym.spaces.Box(-2, 2, (1,), np.float32), args)
    agent.actor_mean[-1].weight.data *= 100
    one, again = (rpo.evaluate(agent, *rpo.make_envs(args, "gymnasium", 3, 0)) for _ in range(2))
    assert np.array_equal(one, again)


@pytest.mark.parametrize(("start", "final"), [(0.7, 0.05), (0.5, 0.0), (0.5, None)])
def test_alpha_decays_linearly(monkeypatch, tmp_path, start, final):
    """Would break: a schedule by rollouts of another length, one that never reaches its end, or starts elsewhere; a log
    of another alpha than the one that acts."""
    rpo, widest = load("rpo_continuous"), []

    def measure(agent, *_):
        state = torch.get_rng_state()
        widest.append(noise_of_update(agent, torch.randn(4000, 3)).abs().max().item())
        torch.set_rng_state(state)

    spy(monkeypatch, rpo, "update", measure)
    total = 160
    flags = {"env_id": "Pendulum-v1", "rpo_alpha": start, "rpo_alpha_final": final}
    rpo.train(tiny(rpo, tmp_path, total_timesteps=total, **flags))
    assert len(widest) == 10  # rollouts of 16 steps
    end = start if final is None else final
    expected = [start + (end - start) * step / total for step in range(0, total, 16)]
    for measured, alpha in zip(widest, expected):
        assert measured == pytest.approx(alpha, rel=0.01, abs=1e-3)
    logged = scalars(run_folder(tmp_path))["charts/rpo_alpha"]
    assert logged == [
        (step + 16, pytest.approx(expected[step // 16])) for step in range(0, total, 16)
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


def test_a_perturbed_rollout_stores_its_own_logprob():
    """Would break: a ratio against the density without the noise that the action was drawn with."""
    rpo = load("rpo_continuous")
    agent, x = (
        make_agent(rpo, rpo_perturb_rollout=True, rpo_alpha=3.0),
        torch.randn(2000, 3, dtype=torch.float64),
    )
    agent.actor_logstd.data.fill_(-1.0)
    _, logprob, entropy = agent.get_action(x)
    assert (-logprob.mean()).item() == pytest.approx(entropy.mean().item(), abs=0.1)


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
