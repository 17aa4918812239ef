"""crossq_continuous.py: batch normalisation of an ensemble, targets without target networks. What it shares with
sac_continuous.py is compared as text."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import load, spy, tiny
from plainrl_tools.probing import environments  # noqa: F401  (registers ProbeEndless-v0)

K, N, DIM, ACTION_DIM = 2, 16, 3, 2


@pytest.fixture
def crossq():
    return load("crossq_continuous")


def make(crossq, **flags):
    args = crossq.Args(**flags)
    space = gym.spaces.Box(-1, 1, (ACTION_DIM,), np.float32)
    return crossq.Agent(DIM, space, args, "float32"), args


def make_minibatch() -> dict:
    shapes = {"obs": (N, DIM), "next_obs": (N, DIM), "action": (N, ACTION_DIM)}
    batch = {name: torch.randn(shape) for name, shape in shapes.items()}
    return batch | {"reward": torch.randn(N), "terminal": (torch.rand(N) < 0.5).float()}


def by_hand(agent, k: int, obs, action):
    """Values of critic k, normalised by the batch, with PyTorch's functions for a single network."""
    x = torch.cat([obs, action], 1)
    for layer in agent.critics:
        parameters = [parameter.reshape(K, -1)[k] for parameter in layer.parameters()]
        if isinstance(layer, torch.nn.BatchNorm1d):
            weight, bias = parameters
            x = torch.nn.functional.batch_norm(x, None, None, weight, bias, training=True, eps=1e-3)
        elif isinstance(layer, torch.nn.ReLU):
            x = x.relu()
        else:
            x = x @ layer.weight[k] + layer.bias[k]
    return x[:, 0]


def test_batch_norm_of_an_ensemble(crossq):
    """Against nn.BatchNorm1d. Would break: statistics over critics, features in another order, another momentum."""
    layer = crossq.EnsembleBatchNorm(K, DIM)
    single_layers = [torch.nn.BatchNorm1d(DIM, eps=1e-3, momentum=0.01) for _ in range(K)]
    for training in (True, True, False):
        x = torch.randn(K, N, DIM) * torch.tensor([1.0, 5.0])[:, None, None] + 3
        layer.train(training)
        expected = torch.stack([single_layers[k].train(training)(x[k]) for k in range(K)])
        torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(
        layer.running_mean, torch.cat([one.running_mean for one in single_layers])
    )
    torch.testing.assert_close(
        layer.running_var, torch.cat([one.running_var for one in single_layers])
    )


def test_loss_by_hand(crossq):
    """Would break: batches that are normalised apart, a gradient into the target, a maximum for the minimum, a value
    after the end, a temperature that is missing."""
    agent, args = make(crossq, gamma=0.9)
    agent.log_alpha.data.fill_(-1.0)
    batch = make_minibatch()
    torch.manual_seed(3)
    agent.critics.train()
    loss, metrics = crossq.critic_loss(agent, args, **batch)
    torch.manual_seed(3)
    next_action, next_logprob = agent.get_action(batch["next_obs"])
    both = torch.cat([batch["obs"], batch["next_obs"]])
    actions = torch.cat([batch["action"], next_action]).detach()
    values = torch.stack([by_hand(agent, k, both, actions) for k in range(K)])
    soft = values[:, N:].min(0).values - torch.tensor(-1.0).exp() * next_logprob
    target = batch["reward"] + 0.9 * (1 - batch["terminal"]) * soft.detach()
    expected = sum(0.5 * ((values[k, :N] - target) ** 2).mean() for k in range(K))
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(metrics["losses/qf_values"], values[:, :N].mean())
    weights = list(agent.critics.parameters())
    for one, other in zip(*(torch.autograd.grad(x, weights) for x in (loss, expected))):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_running_statistics(crossq, monkeypatch, tmp_path):
    """Would break: a policy's loss that normalises by its own batch or changes the statistics; critics that stay in
    training mode; a policy that is updated at other times; Adam with its usual momentum."""
    modes, policy_updates = [], []
    spy(
        monkeypatch,
        crossq,
        "critic_loss",
        lambda agent, *args, **batch: modes.append(agent.critics.training),
    )

    def before_policy(agent, *args):
        policy_updates.append(agent.critics[0].num_batches_tracked.item())
        modes.append(not agent.critics.training)

    spy(monkeypatch, crossq, "policy_loss", before_policy)
    update = crossq.update
    optimizers = {}

    def with_spies(*args):
        optimizers.update(args[1])
        return update(*args[:5], crossq.critic_loss, crossq.policy_loss)

    monkeypatch.setattr(crossq, "update", with_spies)
    agents = []
    spy(monkeypatch, crossq, "evaluate", lambda agent, *_: agents.append(agent))
    crossq.train(tiny(crossq, tmp_path, policy_lr=2e-3, q_lr=3e-3))
    (agent,) = agents
    updates = agent.critics[0].num_batches_tracked.item()
    assert all(modes) and updates > 40 and not agent.critics.training
    assert policy_updates == list(range(3, updates + 1, 3))
    owners = {
        "policy": ([*agent.actor.parameters(), agent.log_alpha], 2e-3),
        "critics": ([*agent.critics.parameters()], 3e-3),
    }
    assert optimizers.keys() == owners.keys()
    for name, (parameters, rate) in owners.items():
        (group,) = optimizers[name].param_groups
        assert group["betas"] == (0.5, 0.999) and group["lr"] == rate
        assert {*map(id, group["params"])} == {*map(id, parameters)}


@pytest.mark.slow
def test_values_of_truncated_episodes(crossq, tmp_path, monkeypatch):
    """Reward 1 at every step and gamma 0.9: the value is 10, whatever a time limit cuts off."""
    agents = []
    spy(monkeypatch, crossq, "evaluate", lambda agent, *_: agents.append(agent))
    flags = {"env_id": "ProbeEndless-v0", "gamma": 0.9, "batch_size": 256, "learning_starts": 100}
    flags |= {"autotune": False, "alpha": 1e-6, "num_envs": 4, "buffer_size": 4000}
    crossq.train(tiny(crossq, tmp_path, total_timesteps=1300, **flags))
    (agent,) = agents
    obs = torch.tensor([[-1.0], [1.0]])
    with torch.no_grad():
        values = agent.get_values(obs, agent.get_mean_action(obs))
    assert (values - 10).abs().max() < 0.7  # the smaller of two noisy values counts
