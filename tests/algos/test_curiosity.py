"""Intrinsic rewards: ppo_rnd.py and ppo_icm.py."""

import numpy as np
import pytest
import torch
from conftest import equal, load, run_folder, spy, tiny
from gymnasium.spaces import Box, Discrete

SPACES = {"box": Box(np.float32([-1, -2]), np.float32([1, 2])), "discrete": Discrete(3)}


@pytest.fixture(params=["ppo_rnd", "ppo_icm"])
def curious(request):
    return load(request.param)


def make_agent(algo, space: str = "box", **flags):
    return algo.Agent(3, SPACES[space], algo.Args(**flags))


def minibatch(agent, rows: int = 32) -> dict:
    """Tensors as ppo_loss takes them, of actions that the agent draws."""
    x = torch.randn(rows, 3)
    with torch.no_grad():
        action, logprob, _ = agent.get_action(x)
    names = ("advantage", "target", "old_value", "int_target")
    batch = {"x": x, "action": action, "old_logprob": logprob + 0.1 * torch.randn(rows)}
    return batch | {name: torch.randn(rows) for name in names} | {"next_x": torch.randn(rows, 3)}


@pytest.mark.parametrize("gae_lambda, value", [(1.0, 0.0), (0.5, 3.0)])
def test_targets_of_a_constant_reward(curious, monkeypatch, tmp_path, gae_lambda, value):
    """An intrinsic reward of 1 a step, 0 in autoreset steps, and one value everywhere. By hand, the discounted returns
    s = 0.5 s + reward continue across the ends of episodes and rollouts, the deviation of all of them so far scales the
    reward, and the targets are its lambda returns to the end of the rollout, in which the value of an autoreset step is
    half of the next one. Would break: an end that stops the returns, a scale of one rollout, a reward in autoreset
    steps, the value of an episode's last observation, which no update learns."""
    seen, valid = [], []
    one = lambda agent, *inputs: torch.ones(inputs[-1].shape[:-1])  # noqa: E731
    monkeypatch.setattr(curious.Agent, "get_intrinsic_reward", one, raising=False)
    both = lambda agent, *inputs: (one(agent, *inputs), one(agent, *inputs))  # noqa: E731
    monkeypatch.setattr(curious.Agent, "get_errors", both, raising=False)
    original = curious.Agent.__init__

    def one_value(agent, *inputs):
        original(agent, *inputs)
        agent.int_critic.requires_grad_(False)
        for parameter in agent.int_critic.parameters():
            parameter.zero_()
        agent.int_critic[-1].bias.fill_(value)

    monkeypatch.setattr(curious.Agent, "__init__", one_value)
    spy(
        monkeypatch,
        curious,
        "update",
        lambda agent, optimizer, args, batch, loss_fn: seen.append(batch),
    )
    original_gae = curious.compute_gae

    def gae(rewards, values, terminateds, dones, gamma, gae_lambda):
        valid.append(dones.clone())  # a view of the storage
        return original_gae(rewards, values, terminateds, dones, gamma, gae_lambda)

    monkeypatch.setattr(curious, "compute_gae", gae)
    flags = {"int_gamma": 0.5, "gae_lambda": gae_lambda, "num_steps": 16, "total_timesteps": 90}
    curious.train(tiny(curious, tmp_path, **flags))
    sums, last, done = [], np.zeros(2), np.zeros(2)
    ends = [dones.numpy() for dones in valid[::2]]  # the reward's advantages, then the intrinsic
    assert len(ends) >= 3 and sum(dones.sum() for dones in ends) > 0
    for dones, batch in zip(ends, seen, strict=True):
        paid = np.zeros((16, 2))
        for t in range(16):
            paid[t] = 1 - done
            last = 0.5 * last + paid[t]
            sums.extend(last)
            done = dones[t]
        scaled = paid / np.sqrt(np.var(sums) + 1e-8)
        targets, values = np.full((17, 2), value), np.full((17, 2), value)
        values[:16][paid == 0] *= 0.5
        for t in reversed(range(16)):
            follows = (1 - gae_lambda) * values[t + 1] + gae_lambda * targets[t + 1]
            targets[t] = scaled[t] + 0.5 * follows
        assert batch["int_target"].numpy() == pytest.approx(targets[:16][paid > 0], rel=1e-4)


@pytest.mark.parametrize("space", SPACES)
def test_without_intrinsic_reward_it_is_ppo(curious, space):
    """With the parent's weights: actions, and the derivatives of the loss by policy and value network.
    Would break: an intrinsic reward that reaches them past the advantage."""
    parent = load("ppo_continuous" if space == "box" else "ppo")
    agent, args = make_agent(curious, space), curious.Args()
    batch = minibatch(agent)
    plain = parent.Agent(3, SPACES[space], parent.Args())
    weights = {key.replace("actor_mean", "actor") if space == "discrete" else key: value
               for key, value in agent.state_dict().items()}  # fmt: skip
    plain.load_state_dict({key: weights[key] for key in plain.state_dict()})
    parts = ["x", "action", "old_logprob", "advantage", "target", "old_value"]
    common = {"norm_adv": False, "vf_coef": 0.25, "num_minibatches": 32}
    ours, metrics = curious.ppo_loss(agent, curious.Args(), **batch)
    shared = {part: batch[part] for part in parts}
    theirs, expected = parent.ppo_loss(plain, parent.Args(**common), **shared)
    ours.backward()
    theirs.backward()
    assert args.norm_adv is False and args.vf_coef == 0.25
    torch.testing.assert_close(metrics, expected)
    for mine, other in (
        ("actor_mean", getattr(plain, "actor_mean", None) or plain.actor),
        ("critic", plain.critic),
    ):
        for a, b in zip(getattr(agent, mine).parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("kind", ["", "Discrete"])
def test_both_kinds_of_actions_train_and_go_on(curious, monkeypatch, tmp_path, kind):
    """Would break: a kind of action that the storage cannot hold, statistics of the intrinsic returns that are not
    saved, or returns that start again at 0, which would widen them."""
    args = tiny(curious, tmp_path, env_id=f"Counter{kind}-v0")
    first = curious.train(args)
    saved = curious.load_checkpoint(run := run_folder(tmp_path))
    begun, agents, returns = [], [], []
    original = curious.Agent.load_state_dict

    def noted(agent, state):
        original(agent, state)
        agents.append(agent)
        begun.append({key: value.clone() for key, value in agent.state_dict().items()})

    def seen(statistics, rows):
        if agents and statistics is agents[0].bonus_rms:
            returns.append(rows.clone())
        counted(statistics, rows)

    counted = curious.RunningMeanStd.update
    monkeypatch.setattr(curious.RunningMeanStd, "update", seen)
    monkeypatch.setattr(curious.Agent, "load_state_dict", noted)
    changes = {"resume": str(run), "total_timesteps": 2 * args.total_timesteps}
    again = curious.train(curious.Args(**saved["args"] | changes))
    assert again["global_step"] > first["global_step"]
    assert begun[0]["bonus_rms.count"] > 0 and equal(begun[0], saved["agent"])
    mean = begun[0]["bonus_rms.mean"]  # the intrinsic returns do not start again at 0
    assert mean > 0 and (returns[0][: args.num_envs] >= 0.999 * args.int_gamma * mean).all()
