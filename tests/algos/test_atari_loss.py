"""Network, targets, and one step of each update against stable-baselines3's on the same tensors and weights."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import files, load
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.logger import configure
from test_loss import DONES, JUNK, REWARDS, TERMINATEDS, VALID, VALUES

ACTIONS, ROWS = 6, 24


class Idle(gym.Env):
    """Only its spaces matter."""

    observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gym.spaces.Discrete(ACTIONS)

    def reset(self, *, seed=None, options=None):
        return np.zeros((4, 84, 84), dtype=np.uint8), {}

    def step(self, action):
        return np.zeros((4, 84, 84), dtype=np.uint8), 0.0, False, False, {}


def make_agent(algo, seed: int = 1, **flags):
    """An agent in float32 and the memory format of training, whose outputs differ between states, and its arguments."""
    args = algo.Args(**flags)
    torch.manual_seed(seed)
    agent = algo.Agent(gym.spaces.Discrete(ACTIONS), args, "float32")
    for parameter in agent.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    return agent.to(memory_format=torch.channels_last), args


def observations(rows: int = ROWS) -> torch.Tensor:
    return torch.randint(256, (rows, 4, 84, 84), dtype=torch.uint8)


def head(agent, obs):
    """Logits of a policy, or values of actions."""
    return agent(obs) if hasattr(agent, "head") else agent.actor(agent.features(obs))


# ---- the network


def by_hand(agent, obs):
    """Logits of a policy, or values of actions: the layers of the agent one by one, in float32, with pictures from 0
    to 1."""
    x = obs.float() / 255
    shapes = []
    for layer in agent.network:
        if isinstance(layer, torch.nn.Conv2d):
            x = torch.nn.functional.conv2d(x, layer.weight, layer.bias, layer.stride)
            shapes.append((*layer.weight.shape, layer.stride[0]))
        elif isinstance(layer, torch.nn.Linear):
            x = x.flatten(1) @ layer.weight.T + layer.bias
            shapes.append(tuple(layer.weight.shape))
        elif isinstance(layer, torch.nn.ReLU):
            x = x.clamp(min=0)
    assert [shape[0] for shape in shapes] == [32, 64, 64, 512]
    assert [shape[2:] for shape in shapes] == [(8, 8, 4), (4, 4, 2), (3, 3, 1), ()]
    last = getattr(agent, "head", None) or agent.actor
    return x @ last.weight.T + last.bias


ONE_OF_EACH = files("ppo_atari", "dqn_atari")  # a2c_atari.py has the Agent of ppo_atari.py


@ONE_OF_EACH
def test_initial_weights(atari):
    """Would break: PyTorch's own initial weights, heads of another scale."""
    agent = atari.Agent(gym.spaces.Discrete(ACTIONS), atari.Args(), "float32")
    scales = {"actor": 0.01, "critic": 1.0, "head": 1.0}
    for name, layer in agent.named_modules():
        if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
            assert not layer.bias.any()
            flat = layer.weight.detach().flatten(1)
            flat = flat if len(flat) < flat.shape[1] else flat.T
            expected = scales.get(name, 2**0.5) ** 2 * torch.eye(len(flat))
            torch.testing.assert_close(flat @ flat.T, expected, rtol=0, atol=1e-4)


@ONE_OF_EACH
def test_bfloat16_is_near_float32(atari):
    """Would break: heads or inputs rounded to 8 bits, a switch that does nothing."""
    agent, _ = make_agent(atari)
    short, obs = copy.deepcopy(agent), observations(16)
    short.bfloat16 = True
    ours, exact = head(short, obs), head(agent, obs)
    assert ours.dtype == torch.float32
    assert not torch.equal(ours, exact)
    torch.testing.assert_close(ours, exact, rtol=0, atol=0.03 * exact.abs().max().item())
    ours.sum().backward()
    assert all(
        p.grad.dtype == torch.float32
        for name, p in short.named_parameters()
        if "critic" not in name
    )


# ---- targets


def test_n_step_returns_by_hand():
    """Would break: a bootstrap from a terminal state, none from a truncated one, a return through a `done`.

    The rows of test_loss, gamma 1/2. Environment 0: row 4: 4 + 8/2 = 8; row 3: 3 + 8/2 = 7; row 1 is terminal: 2;
    row 0: 1 + 2/2 = 2. Environment 1: row 4: 5 + 4/2 = 7; row 2 is truncated: 2 + 10/2 = 7; row 1: 1 + 7/2 = 4.5;
    row 0: 1 + 4.5/2 = 3.25; with the time limit as a terminal state 2, then 1 + 2/2 = 2, then 1 + 2/2 = 2."""
    algo, x = load("a2c_atari"), JUNK
    for ends, second in ((TERMINATEDS, [3.25, 4.5, 7, x, 7]), (DONES, [2, 2, 2, x, 7])):
        targets = algo.n_step_returns(REWARDS, VALUES, ends, DONES, 0.5)
        assert targets.shape == REWARDS.shape
        expected = torch.tensor([[2, 2, x, 7, 8], second]).T
        assert torch.equal(targets[VALID], expected[VALID])


# ---- one step of each update


def pairs(policy, agent):
    """(their parameter, our parameter) for every parameter."""
    q_net = getattr(policy, "q_net", None)
    extractor = (q_net or policy).features_extractor
    heads = [q_net.q_net[0]] if q_net else [policy.action_net, policy.value_net]
    ours = [agent.head] if q_net else [agent.actor, agent.critic]
    theirs = [*extractor.cnn.parameters(), *extractor.linear.parameters()]
    theirs, ours = ([*body, *(p for one in top for p in one.parameters())] for body, top in
                    ((theirs, heads), (agent.network.parameters(), ours)))  # fmt: skip
    assert len(theirs) == len(ours) == len(list(agent.parameters()))
    return list(zip(theirs, ours))


def in_stable_baselines3(cls, agent, args, **settings):
    """Its algorithm with the weights of our agent."""
    model = cls("CnnPolicy", Idle(), learning_rate=args.learning_rate, gamma=args.gamma,
                max_grad_norm=args.max_grad_norm, device="cpu", **settings)  # fmt: skip
    model.set_logger(configure(None, []))
    model._current_progress_remaining = 1.0
    for theirs, ours in pairs(model.policy, agent):
        theirs.data.copy_(ours.data)
    return model


def assert_same_step(model, agent, before, rate: float):
    """Gradients and new weights. An adaptive first step is nearly the gradient's sign: where the gradient is almost
    zero it magnifies rounding, so the weights are compared where it is not."""
    for (theirs, ours), old in zip(pairs(model.policy, agent), before):
        scale = theirs.grad.abs().max().item()
        assert scale > 0
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=2e-4 * scale)
        clear = theirs.grad.abs() > 1e-2 * scale
        moved, expected = (ours - old)[clear], (theirs - old)[clear]
        assert expected.abs().max() > 0
        torch.testing.assert_close(moved, expected, rtol=2e-2, atol=1e-2 * rate)


def weights(agent) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in agent.parameters()]


@pytest.mark.parametrize(
    "flags", [{}, {"max_grad_norm": 0.01}, {"tau": 0.3, "gamma": 0.7}], ids=str
)
def test_dqn_step_equals_stable_baselines3(flags):
    """Would break: another loss, a target from the online network, gradients clipped otherwise."""
    algo = load("dqn_atari")
    agent, args = make_agent(algo, batch_size=ROWS, **flags)
    target_agent, _ = make_agent(algo, seed=2)
    model = in_stable_baselines3(DQN, agent, args, buffer_size=ROWS, batch_size=ROWS)
    for theirs, ours in zip(model.policy.q_net_target.parameters(), target_agent.parameters()):
        assert theirs.shape == ours.shape
        theirs.data.copy_(ours.data)
    obs, next_obs = observations(), observations()
    action = torch.randint(ACTIONS, (ROWS,))
    reward = 3 * torch.randn(ROWS)  # errors on both sides of Huber's 1
    terminal = (torch.rand(ROWS) < 0.3).float()
    for k in range(ROWS):
        model.replay_buffer.add(
            *(x[k : k + 1].numpy() for x in (obs, next_obs, action, reward, terminal)), [{}]
        )
    model.replay_buffer.sample = lambda *_, **__: model.replay_buffer._get_samples(np.arange(ROWS))
    optimizer, before = (
        torch.optim.Adam(agent.parameters(), lr=args.learning_rate, fused=True),
        weights(agent),
    )
    batch = {
        "obs": obs,
        "next_obs": next_obs,
        "action": action,
        "reward": reward,
        "terminal": terminal,
    }
    metrics = algo.update(agent, target_agent, optimizer, args, batch)
    model.train(gradient_steps=1, batch_size=ROWS)
    theirs = model.logger.name_to_value["train/loss"]
    assert metrics["losses/td_loss"].item() == pytest.approx(theirs, rel=1e-5)
    values = plain_values(before, agent, obs).gather(-1, action[:, None])
    assert metrics["losses/q_values"].item() == pytest.approx(values.mean().item(), rel=1e-4)
    assert_same_step(model, agent, before, args.learning_rate)


def plain_values(before, agent, obs):
    old = copy.deepcopy(agent)
    for parameter, value in zip(old.parameters(), before):
        parameter.data.copy_(value)
    return old(obs)


@pytest.mark.parametrize("double", [False, True])
def test_dqn_loss_by_hand(double):
    """Would break: double Q-learning that lets the target network choose, the mean squared error with a factor 1/2."""
    algo = load("dqn_atari")
    agent, args = make_agent(algo, double_dqn=double, loss="mse")
    target_agent, _ = make_agent(algo, seed=3)
    obs, next_obs, action = observations(4), observations(4), torch.tensor([0, 1, 2, 3])
    reward, terminal = torch.tensor([1.0, -1, 0, 1]), torch.tensor([0.0, 0, 1, 0])
    with torch.no_grad():
        online, later, target = agent(obs), agent(next_obs), target_agent(next_obs)
    loss, _ = algo.dqn_loss(agent, target_agent, args, obs, next_obs, action, reward, terminal)
    assert not torch.equal(later.argmax(-1), target.argmax(-1))
    errors = []
    for k in range(4):
        best = (later if double else target)[k].argmax()
        goal = reward[k] + (0 if terminal[k] else args.gamma * target[k, best])
        errors.append((online[k, action[k]] - goal) ** 2)
    assert loss.item() == pytest.approx(torch.stack(errors).mean().item(), rel=1e-5)


def rollout_buffer(model, **tensors):
    buffer = model.rollout_buffer
    for name, tensor in tensors.items():
        was = getattr(buffer, name)
        setattr(buffer, name, tensor.numpy().reshape(was.shape).astype(was.dtype))
    buffer.full = True


@pytest.mark.parametrize(
    "flags", [{}, {"ent_coef": 0.1, "vf_coef": 1.3, "max_grad_norm": 0.02}], ids=str
)
def test_a2c_step_equals_stable_baselines3(flags):
    """Would break: another loss or optimiser; an autoreset step that weighs something, or that counts in the mean."""
    algo = load("a2c_atari")
    agent, args = make_agent(algo, **flags)
    model = in_stable_baselines3(
        A2C,
        agent,
        args,
        n_steps=ROWS,
        ent_coef=args.ent_coef,
        vf_coef=args.vf_coef,
        rms_prop_eps=args.rms_eps,
    )
    obs, action, target = observations(), torch.randint(ACTIONS, (ROWS,)), 2 * torch.randn(ROWS)
    with torch.no_grad():
        advantage = target - agent.get_value(obs)
    rollout_buffer(model, observations=obs, actions=action, advantages=advantage, returns=target)
    batch = {
        "obs": torch.cat([obs, observations(4)]),
        "action": torch.cat([action, action[:4]]),
        "target": torch.cat([target, torch.full((4,), 1e3)]),
        "valid": torch.arange(ROWS + 4) < ROWS,
    }
    optimizer = torch.optim.RMSprop(
        agent.parameters(), args.learning_rate, args.rms_alpha, args.rms_eps
    )
    before = weights(agent)
    metrics = algo.update(agent, optimizer, args, batch)
    model.train()
    logged = model.logger.name_to_value
    assert metrics["losses/policy_loss"] == pytest.approx(logged["train/policy_loss"], rel=1e-4)
    assert metrics["losses/value_loss"] == pytest.approx(logged["train/value_loss"], rel=1e-5)
    assert metrics["losses/entropy"] == pytest.approx(-logged["train/entropy_loss"], rel=1e-5)
    assert_same_step(model, agent, before, args.learning_rate)


@pytest.mark.parametrize(
    "flags",
    [{"clip_vloss": False}, {}, {"norm_adv": False, "ent_coef": 0.1, "max_grad_norm": 0.05}],
    ids=str,
)
def test_ppo_step_equals_stable_baselines3(flags):
    """Would break: any slip in ratio, clipping, sign, weight, normalisation or gradient clipping; see test_loss.py for
    the targets under clip_vloss."""
    algo = load("ppo_atari")
    flags = (
        dict(clip_coef=0.2, num_envs=4, num_steps=ROWS // 4, num_minibatches=1, update_epochs=1)
        | flags
    )
    agent, args = make_agent(algo, **flags)
    model = in_stable_baselines3(
        PPO, agent, args, n_steps=ROWS, batch_size=ROWS, n_epochs=1, vf_coef=args.vf_coef / 2,
        clip_range=args.clip_coef, clip_range_vf=args.clip_coef if args.clip_vloss else None,
        normalize_advantage=args.norm_adv, ent_coef=args.ent_coef,
    )  # fmt: skip
    obs, action = observations(), torch.randint(ACTIONS, (ROWS,))
    with torch.no_grad():
        _, logprob, _, value = agent.get_action_and_value(obs, action)
    logprob += 0.3 * torch.randn(ROWS)
    advantage, old_value, target = (2 * torch.randn(ROWS) + 0.5 for _ in range(3))
    if args.clip_vloss:
        old_value = value + 0.3 * torch.randn(ROWS)
        target = old_value + 3 * (value - old_value)
    rollout_buffer(model, observations=obs, actions=action, log_probs=logprob, advantages=advantage, returns=target,
                   values=old_value)  # fmt: skip
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    before = weights(agent)
    batch = {
        "obs": obs,
        "action": action,
        "old_logprob": logprob,
        "advantage": advantage,
        "target": target,
        "old_value": old_value,
    }
    metrics = algo.update(agent, optimizer, args, batch)
    model.train()
    logged = model.logger.name_to_value
    theirs = logged["train/policy_gradient_loss"]
    assert metrics["losses/policy_loss"] == pytest.approx(theirs, abs=1e-5)
    assert 2 * metrics["losses/value_loss"] == pytest.approx(logged["train/value_loss"], rel=1e-5)
    assert metrics["losses/entropy"] == pytest.approx(-logged["train/entropy_loss"], rel=1e-5)
    assert metrics["losses/approx_kl"] == pytest.approx(logged["train/approx_kl"], rel=1e-3)
    assert 0.1 < metrics["losses/clipfrac"] < 0.9
    assert metrics["losses/clipfrac"] == pytest.approx(logged["train/clip_fraction"], abs=1e-6)
    assert_same_step(model, agent, before, args.learning_rate)
