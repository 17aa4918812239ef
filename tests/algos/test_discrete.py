"""What the files for Discrete actions, vectors or pictures, learn from, on CounterDiscrete."""

import gymnasium as gym
import pytest
import torch
from conftest import files, load, run_folder, scalars, spy, tiny
from toy_envs import Counter


def batches(algo, monkeypatch, folder, **flags) -> list:
    """What reaches update(), pictures as the numbers they show, and at last the summary."""
    seen = []

    def keep(*args):
        (batch,) = (arg for arg in args if isinstance(arg, dict))
        shown = [
            tensor[:, 0, ::12, 0].float() - 1 if tensor.dtype == torch.uint8 else tensor
            for tensor in batch.values()
        ]
        seen.append([tensor.clone() for tensor in shown])

    spy(monkeypatch, algo, "update", keep)
    Counter.rows.clear()
    seen.append(algo.train(tiny(algo, folder, **flags)))
    return seen


@files("reinforce")
def test_reinforce_learns_from_one_whole_episode_of_each_environment(
    classic, monkeypatch, tmp_path
):
    """With gamma 1/2. The first reset is the seeded one, so that the first update has episode 1: id 0 is paid 1 2 and
    id 1 is paid 2 3 4; then, id 0 having gone on while it waited, episode 3 with 1 2 3, and episode 2 with 2 3 4 5 6.
    Would break: steps after the end, an episode cut short, a return that runs on into the next episode."""
    by_hand = [
        {(0, 0): 2, (0, 1): 2, (1, 0): 4.5, (1, 1): 5, (1, 2): 4},
        {
            (0, 0): 2.75,
            (0, 1): 3.5,
            (0, 2): 3,
            (1, 0): 5.5,
            (1, 1): 7,
            (1, 2): 8,
            (1, 3): 8,
            (1, 4): 6,
        },
    ]
    *rollouts, summary = batches(classic, monkeypatch, tmp_path, total_timesteps=13, gamma=0.5)
    for expected, (obs, action, target) in zip(by_hand, rollouts, strict=True):
        assert {(int(row[0]), int(row[1])): float(g) for row, g in zip(obs, target)} == expected
        assert len(obs) == len(expected) == len(action)
    logged = scalars(run_folder(tmp_path))
    assert logged["charts/episodic_return"] == [(5, 6.0), (13, 13.0)]
    assert logged["charts/episodic_length"] == [(5, 2.5), (13, 4.0)]
    assert summary["global_step"] == 13


@files("reinforce")
@pytest.mark.parametrize("baseline", ["value", "none"])
@pytest.mark.parametrize("norm_adv", [True, False])
def test_reinforce_gradient_by_hand(classic, baseline, norm_adv):
    """Row by row: (G - b) times the gradient of log pi, and the value's own error; none from one to the other."""
    args = classic.Args(baseline=baseline, norm_adv=norm_adv)
    agent, n = classic.Agent(3, gym.spaces.Discrete(4), args).double(), 12
    obs, action, target = (
        torch.randn(n, 3).double(),
        torch.randint(4, (n,)),
        3 * torch.randn(n).double(),
    )
    loss, _ = classic.reinforce_loss(agent, args, obs, action, target)
    loss.backward()
    with torch.no_grad():
        advantage = target - (agent.critic(obs)[:, 0] if baseline == "value" else 0)
    if norm_adv:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    actor, critic = agent.actor[0].weight, agent.critic[0].weight
    by_hand = [torch.zeros_like(actor), torch.zeros_like(critic)]
    for i in range(n):
        logprob = agent.actor(obs[i]).softmax(-1)[action[i]].log()
        by_hand[0] -= advantage[i] / n * torch.autograd.grad(logprob, actor)[0]
        error = 0.5 / n * (agent.critic(obs[i])[0] - target[i]) ** 2
        by_hand[1] += torch.autograd.grad(error, critic)[0]
    torch.testing.assert_close(actor.grad, by_hand[0])
    torch.testing.assert_close(
        critic.grad, by_hand[1]
    )  # the value is learned also where nothing is subtracted
    one = classic.Args(num_envs=1)
    assert classic.reinforce_loss(agent, one, obs[:1], action[:1], target[:1])[
        0
    ].isfinite()  # nothing to standardise


# ---- DQN ----


@pytest.mark.parametrize("double", [False, True])
def test_many_batches_are_many_updates(double):
    """Would break: updates of a row that share a step, a gradient, a batch or the next values of one of them."""
    algo, results = load("dqn"), []
    args = algo.Args(batch_size=8, double_dqn=double, learning_rate=0.01)
    batch = {
        "obs": torch.randn(32, 4),
        "next_obs": torch.randn(32, 4),
        "action": torch.randint(2, (32,)),
        "reward": torch.randn(32),
        "terminal": (torch.rand(32) < 0.3).float(),
    }
    for parts in (1, 4):
        torch.manual_seed(1)
        space = gym.spaces.Discrete(2)
        agent, target_agent = algo.Agent(4, space, args), algo.Agent(4, space, args)
        optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate)
        size = 32 // parts
        pieces = [
            {name: tensor[start : start + size] for name, tensor in batch.items()}
            for start in range(0, 32, size)
        ]
        metrics = [algo.update(agent, target_agent, optimizer, args, piece) for piece in pieces]
        assert list(metrics[0]) == ["losses/td_loss", "losses/q_values"]
        means = torch.stack([torch.stack(list(one.values())) for one in metrics]).mean(0)
        results.append((means, *(p.detach() for p in agent.parameters())))
    for whole, single in zip(*results):
        torch.testing.assert_close(whole, single)
    assert optimizer.state[next(agent.parameters())]["step"] == 4


@files("ppo")
def test_one_epoch_of_one_minibatch_is_a2c(classic):
    """The gradient of the clipped objective is that of -log pi times the advantage as long as the ratio is 1.
    Would break: the flags that docs/algorithms/a2c.md gives for A2C on vectors."""
    args = classic.Args(update_epochs=1, num_minibatches=1, norm_adv=False, vf_coef=0)
    agent = classic.Agent(3, gym.spaces.Discrete(4), args).double()
    x, action, advantage = torch.randn(12, 3).double(), torch.randint(4, (12,)), torch.randn(12)
    _, logprob, _ = agent.get_action(x, action)
    batch = {"old_logprob": logprob.detach(), "target": advantage, "old_value": advantage}
    loss, _ = classic.ppo_loss(agent, args, x, action, advantage=advantage, **batch)
    parameters = list(agent.actor.parameters())
    ours = torch.autograd.grad(loss, parameters)
    by_hand = torch.autograd.grad(-(logprob * advantage).mean(), parameters)
    assert all(torch.allclose(a, b) for a, b in zip(ours, by_hand, strict=True))
