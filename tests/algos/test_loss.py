"""The loss and one step of the update against stable-baselines3's PPO on the same tensors, and GAE against numbers."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import load, no_noise
from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure

OBS_DIM, ACTION_DIM, STEPS, ENVS = 3, 2, 32, 4
SPACE = gym.spaces.Box(-1, 1, (ACTION_DIM,), np.float32)


@pytest.fixture
def algo(request):
    """ppo_loss and update are one for all files of PPO (test_files.py); some tests name other files."""
    return load(getattr(request, "param", "ppo_continuous"))


class Idle(gym.Env):
    """Only its spaces matter."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (OBS_DIM,), np.float32)
    action_space = SPACE

    def reset(self, *, seed=None, options=None):
        return np.zeros(OBS_DIM, dtype=np.float32), {}

    def step(self, action):
        return np.zeros(OBS_DIM, dtype=np.float32), 0.0, False, False, {}


def make_agent(algo, **flags):
    """An agent whose weights are far from their initial values, and its arguments; one minibatch holds everything."""
    args = algo.Args(
        num_envs=ENVS,
        num_steps=STEPS,
        num_minibatches=1,
        update_epochs=1,
        **(no_noise(algo) | flags),
    )
    torch.manual_seed(1)
    agent = algo.Agent(OBS_DIM, SPACE, args)
    for parameter in agent.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return agent, args


def make_batch(agent, clipped_values: bool = False) -> dict:
    """The tensors of ppo_loss by name. The old policy is near the agent's; some ratios are clipped."""
    x = torch.randn(STEPS * ENVS, OBS_DIM)
    with torch.no_grad():
        action, logprob, _ = agent.get_action(x)
        value = agent.get_value(x)
    old_logprob = logprob + 0.3 * torch.randn_like(logprob)
    advantage, old_value, target = (2 * torch.randn_like(logprob) + 0.5 for _ in range(3))
    if clipped_values:  # see test_step_equals_stable_baselines3
        old_value = value + 0.3 * torch.randn_like(value)
        target = old_value + 3 * (value - old_value)
    return {
        "x": x,
        "action": action,
        "old_logprob": old_logprob,
        "advantage": advantage,
        "target": target,
        "old_value": old_value,
    }


def same_in_stable_baselines3(agent, args, batch) -> PPO:
    """Its PPO with the weights of our agent and a rollout buffer that holds our tensors."""
    model = PPO(
        "MlpPolicy",
        Idle(),
        learning_rate=args.learning_rate,
        n_steps=STEPS * ENVS,
        batch_size=STEPS * ENVS,
        n_epochs=1,
        clip_range=args.clip_coef,
        ent_coef=args.ent_coef,
        clip_range_vf=args.clip_coef if args.clip_vloss else None,
        normalize_advantage=args.norm_adv,
        vf_coef=args.vf_coef
        / 2,  # its value loss is the mean squared error, ours has the factor 1/2
        max_grad_norm=args.max_grad_norm,
        device="cpu",
        policy_kwargs={
            "net_arch": {"pi": [64, 64], "vf": [64, 64]},
            "activation_fn": getattr(torch.nn, args.activation),
        },
    )
    model.set_logger(configure(None, []))
    for theirs, ours in pairs(model, agent):
        theirs.data.copy_(ours.data)
    buffer = model.rollout_buffer
    names = {
        "observations": "x",
        "actions": "action",
        "log_probs": "old_logprob",
        "advantages": "advantage",
        "returns": "target",
        "values": "old_value",
    }
    for theirs, ours in names.items():
        shape = getattr(buffer, theirs).shape
        setattr(buffer, theirs, batch[ours].numpy().reshape(shape).copy())
    buffer.full = True
    return model


def pairs(model: PPO, agent):
    """(their parameter, our parameter) for every parameter."""
    policy, extractor = model.policy, model.policy.mlp_extractor
    theirs = [
        *extractor.policy_net.parameters(),
        *policy.action_net.parameters(),
        *extractor.value_net.parameters(),
        *policy.value_net.parameters(),
        policy.log_std,
    ]
    ours = [*agent.actor_mean.parameters(), *agent.critic.parameters(), agent.actor_logstd]
    assert (
        len(theirs) == len(ours) == len(list(agent.parameters())) == len(list(policy.parameters()))
    )
    return list(zip(theirs, ours))


@pytest.mark.parametrize(
    "flags",
    [
        {"norm_adv": True},
        {"norm_adv": False, "clip_coef": 0.1},
        {"norm_adv": True, "ent_coef": 0.05, "vf_coef": 1.3},
        {"clip_vloss": True},
        {"clip_vloss": True, "ent_coef": 0.01, "max_grad_norm": 0.05},
        {"max_grad_norm": 1e9},
    ],
    ids=str,
)
def test_step_equals_stable_baselines3(algo, flags):
    """Would break: any slip in ratio, clipping, sign, weight, normalisation or gradient clipping.

    With clip_vloss its loss is that of the clipped value alone, ours (like CleanRL's) the larger of both losses.
    They agree where the value moved from the old one towards the target, so those are the targets used here."""
    agent, args = make_agent(algo, **flags)
    batch = make_batch(agent, clipped_values=args.clip_vloss)
    model = same_in_stable_baselines3(agent, args, batch)
    model._current_progress_remaining = 1.0
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    before = [parameter.detach().clone() for parameter in agent.parameters()]
    _, first = algo.ppo_loss(agent, args, **batch)
    metrics = algo.update(agent, optimizer, args, batch)
    model.train()

    # update() makes one step, on all samples in another order
    expected = {name: value.item() for name, value in first.items()}
    assert metrics == pytest.approx(expected, rel=1e-5, abs=1e-6)
    logged = model.logger.name_to_value
    policy_loss = logged["train/policy_gradient_loss"]
    assert metrics["losses/policy_loss"] == pytest.approx(policy_loss, abs=1e-5)
    assert 2 * metrics["losses/value_loss"] == pytest.approx(logged["train/value_loss"], rel=1e-5)
    assert metrics["losses/entropy"] == pytest.approx(-logged["train/entropy_loss"], rel=1e-5)
    assert metrics["losses/approx_kl"] == pytest.approx(logged["train/approx_kl"], rel=1e-3)
    assert 0.1 < metrics["losses/clipfrac"] < 0.9
    clip_fraction = logged["train/clip_fraction"]
    assert metrics["losses/clipfrac"] == pytest.approx(clip_fraction, abs=1e-6)
    assert any(not torch.equal(old, new) for old, new in zip(before, agent.parameters()))
    for theirs, ours in pairs(model, agent):
        scale = theirs.grad.abs().max().item()
        assert scale > 0
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-4 * scale)
        # Adam's first step is the gradient's sign: where the gradient is nearly zero it magnifies rounding
        clear = theirs.grad.abs() > 1e-3 * scale
        torch.testing.assert_close(
            ours[clear], theirs[clear], rtol=0, atol=1e-2 * args.learning_rate
        )


@pytest.mark.parametrize(("target", "expected"), [(3.0, 0.5 * 1.8**2), (0.0, 0.5 * 1.5**2)])
def test_value_clipping_is_around_the_old_value(algo, target, expected):
    """Would break: a clip around the return. Old value 1, value 1.5, so the clipped value is 1.2; target 3: the
    clipped error 1.8 is the larger; target 0: the error 1.5 of the value itself. Around the target both differ."""
    agent, args = make_agent(algo, clip_vloss=True)
    agent.get_value = lambda x: torch.full((len(x),), 1.5)
    batch = make_batch(agent)
    batch["old_value"] = torch.ones_like(batch["target"])
    batch["target"] = target * batch["old_value"]
    _, metrics = algo.ppo_loss(agent, args, **batch)
    assert metrics["losses/value_loss"].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["old_logprob", "advantage", "target"])
def test_column_instead_of_vector_is_refused(algo, name):
    """Would break: (n,) - (n, 1) broadcasts to (n, n), trains nothing and raises nothing."""
    agent, args = make_agent(algo)
    batch = make_batch(agent)
    algo.ppo_loss(agent, args, **batch)
    batch[name] = batch[name][:, None]
    with pytest.raises(AssertionError):
        algo.ppo_loss(agent, args, **batch)


def test_samples_repeat_in_place_of_autoreset_steps(algo):
    """20 samples of 24 steps, 3 epochs of 4 minibatches: each epoch has every sample, and 4 of them once
    more. Would break: minibatches of different sizes; one sample again and again."""
    args = algo.Args(num_envs=4, num_steps=6, num_minibatches=4, update_epochs=3)
    agent, seen = torch.nn.Linear(1, 1), []

    def loss_fn(agent, args, x):
        seen.append(x.tolist())
        return agent.weight.square().sum(), {"losses/approx_kl": torch.zeros(())}

    optimizer = torch.optim.Adam(agent.parameters())
    algo.update(agent, optimizer, args, {"x": torch.arange(20)}, loss_fn)
    assert [len(rows) for rows in seen] == [6] * 12
    epochs = [sum(seen[4 * k : 4 * k + 4], []) for k in range(3)]
    for epoch in epochs:
        assert set(epoch) == {*range(20)}
        assert max(epoch.count(row) for row in epoch) == 2
    assert len({tuple(epoch) for epoch in epochs}) == 3


# Generalized advantage estimation
#
# gamma = lambda = 1/2, so gamma x lambda = 1/4. Two environments (columns), five steps (rows).
#
# Environment 0 terminates in row 1; row 2 is its autoreset step (obs is the terminal state, reward is junk).
#   row 4: delta = 4 + 8/2 - 2 = 6    A = 6                        the rollout ends here: bootstrap from V = 8
#   row 3: delta = 3 + 2/2 - 1 = 3    A = 3 + 6/4 = 4.5
#   row 2: autoreset step, never used
#   row 1: delta = 2 + 0 - 4 = -2     A = -2                       terminal: worth nothing, and the recursion stops
#   row 0: delta = 1 + 4/2 - 2 = 1    A = 1 - 2/4 = 0.5
# Environment 1 is truncated in row 2; row 3 is its autoreset step, whose observation is the true final one, V = 10.
#   row 4: delta = 5 + 4/2 - 3 = 4    A = 4
#   row 3: autoreset step, never used
#   row 2: delta = 2 + 10/2 - 6 = 1   A = 1                        bootstraps from V = 10, and the recursion stops
#   row 1: delta = 1 + 6/2 - 2 = 2    A = 2 + 1/4 = 2.25
#   row 0: delta = 1 + 2/2 - 4 = -2   A = -2 + 2.25/4 = -1.4375
JUNK = 77.0
REWARDS = torch.tensor([[1, 1], [2, 1], [JUNK, 2], [3, JUNK], [4, 5]])
VALUES = torch.tensor([[2, 4], [4, 2], [6, 6], [1, 10], [2, 3], [8, 4.0]])
TERMINATEDS = torch.tensor([[0, 0], [1, 0], [0, 0], [0, 0], [0, 0.0]])
TRUNCATEDS = torch.tensor([[0, 0], [0, 0], [0, 1], [0, 0], [0, 0.0]])
DONES = TERMINATEDS + TRUNCATEDS
VALID = torch.tensor([[1, 1], [1, 1], [0, 1], [1, 0], [1, 1]], dtype=torch.bool)
BY_HAND = torch.tensor([[0.5, -1.4375], [-2, 2.25], [0, 1], [4.5, 0], [6, 4]])


def test_gae_by_hand():
    """compute_gae is one for all files (test_files.py). Would break: a bootstrap from a terminal state, none from a
    truncated one, a recursion through a `done`."""
    advantages = load("ppo_continuous").compute_gae(REWARDS, VALUES, TERMINATEDS, DONES, 0.5, 0.5)
    assert advantages.shape == REWARDS.shape
    assert torch.equal(advantages[VALID], BY_HAND[VALID])
