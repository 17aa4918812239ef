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
