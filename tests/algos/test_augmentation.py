"""Observations times a random number: ppo_rad.py acts and learns on them, ppo_drac.py must not mind them. Images that
are shifted: ppo_pixels_rad.py and ppo_pixels_drac.py."""

import copy
import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import equal, load, read_checkpoint, run_folder, scalars, spy, tiny

SPACE = gym.spaces.Box(-1, 1, (2,), np.float32)
BOTH = pytest.mark.parametrize("name", ["ppo_rad", "ppo_drac"])
ONE = {"amplitude_low": 1.0, "amplitude_high": 1.0}


class Ones(gym.Env):
    """Observes (1, 1, 1): what a network sees of it is the factor. Episodes are cut after 5 steps."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.ones(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.ones(3, np.float32), 1.0, False, self.steps == 5, {}


@pytest.fixture
def ones(registered):
    return {"env_id": registered("Ones-v0", Ones), "norm_obs": False}


@pytest.mark.parametrize(
    ("name", "flags"),
    [("ppo_rad", ONE), ("ppo_drac", ONE | {"aug_coef": 5.0}), ("ppo_drac", {"aug_coef": 0.0})],
    ids=["rad", "drac", "drac-without-weight"],
)
def test_without_a_scale_it_is_ppo_bit_for_bit(tmp_path, name, flags):
    """Would break: a number of PyTorch's generator that is drawn, after which every action differs; a loss that is
    not 0 where f(x) is x."""
    agents, curves, returns = [], [], []
    for file, own in (("ppo_continuous", {}), (name, flags)):
        algo = load(file)
        args = tiny(algo, tmp_path / file, total_timesteps=450, num_steps=32, **own)
        returns.append(algo.train(args)["eval_returns"])
        run = run_folder(tmp_path / file)
        agents.append(read_checkpoint(run)["agent"])
        curves.append(scalars(run))
        del curves[-1]["charts/SPS"]
    assert agents[0].keys() == agents[1].keys()
    assert all(torch.equal(agents[0][key], agents[1][key]) for key in agents[0])
    assert curves[0] == curves[1] and returns[0] == returns[1]


@BOTH
def test_flags(name, tmp_path):
    """Would break: an interval whose ends are swapped, a factor of 0, which shows nothing."""
    algo = load(name)
    for flag in ("amplitude_low", "amplitude_high"):
        for value in (0, -0.1, math.nan, math.inf):
            with pytest.raises(ValueError, match="--" + flag.replace("_", "-")):
                tiny(algo, tmp_path, **{flag: value})
    with pytest.raises(ValueError, match="--amplitude-low"):
        tiny(algo, tmp_path, amplitude_low=1.1, amplitude_high=1.0)


# ---- RAD


def played(monkeypatch, folder, **flags) -> list:
    """What the policy of ppo_rad.py sees at each step of a run."""
    algo, seen = load("ppo_rad"), []
    original = algo.Agent.get_action

    def get_action(agent, x, action=None):
        if action is None:
            seen.append(x.clone())
        return original(agent, x, action)

    monkeypatch.setattr(algo.Agent, "get_action", get_action)
    algo.train(tiny(algo, folder, **flags))
    return seen


def test_resumed_run_draws_other_factors(ones, monkeypatch, tmp_path):
    """Would break: the factors of the first rollout once more, an interval that is forgotten."""
    flags = ones | {"amplitude_low": 0.9, "amplitude_high": 1.5}
    first = played(monkeypatch, tmp_path, **flags)
    run = run_folder(tmp_path)
    saved = load("ppo_rad").load_checkpoint(run)["args"]
    assert (saved["amplitude_low"], saved["amplitude_high"]) == (0.9, 1.5)
    after = played(monkeypatch, tmp_path, resume=str(run), total_timesteps=100, **flags)
    weights = read_checkpoint(run)["agent"]
    assert not torch.equal(torch.stack(first[:8]), torch.stack(after[:8]))  # of the first rollout
    assert weights["obs_rms.count"] > 100 - 16


# ---- DrAC


@pytest.fixture
def drac():
    return load("ppo_drac")


def linear_agent(drac, **flags):
    """The policy is N((x0, x1 / 2), (1, 2)), the value x0 - x1 / 2."""
    small = {"num_envs": 4, "num_steps": 8, "num_minibatches": 1, "update_epochs": 1}
    args = drac.Args(**small | flags)
    agent = drac.Agent(3, SPACE, args)
    agent.actor_mean, agent.critic = torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)
    for network, weight in (
        (agent.actor_mean, [[1.0, 0, 0], [0, 0.5, 0]]),
        (agent.critic, [[1.0, -0.5, 0]]),
    ):
        network.weight.data.copy_(torch.tensor(weight))
        network.bias.data.zero_()
    agent.actor_logstd.data.copy_(torch.tensor([1.0, 2.0]).log())
    return agent, args


# The factor is 1/2. Row (2, 0, 0): mean (2, 0), seen (1, 0); value 2, seen 1. Row (0, 4, 0): mean (0, 2), seen (0, 1);
# value -2, seen -1. KL = 1 / 2 and (1 / 2)^2 / 2, squares 1 and 1.
HALF = {"amplitude_low": 0.5, "amplitude_high": 0.5}
X = torch.tensor([[2.0, 0.0, 0.0], [0.0, 4.0, 0.0]])


def test_loss_by_hand(drac):
    """Would break: a mean over the dimensions of the action, a factor 1/2 of the square, a missing part."""
    agent, _ = linear_agent(drac, **HALF)
    loss = agent.get_aug_loss(X)
    assert loss.shape == () and loss.item() == pytest.approx((0.5 + 1 + 0.125 + 1) / 2)


def test_gradient_by_hand(drac):
    """Half of, since there are two rows: by the seen means -1 and -1/4, times the seen x of 1 and 2; by the log of a
    scale minus the square over the variance, -1 and -1/4; by the seen values -2 and 2, times the seen x. Would break: a
    gradient into the plain side (0.5 in place of the first -0.5), the KL the other way round (0 by the scales)."""
    agent, _ = linear_agent(drac, **HALF)
    agent.get_aug_loss(X).backward()
    assert agent.actor_mean.weight.grad.tolist() == [[-0.5, 0, 0], [0, -0.25, 0]]
    assert agent.actor_mean.bias.grad.tolist() == [-0.5, -0.125]
    assert agent.actor_logstd.grad.tolist() == pytest.approx([-0.5, -0.125])
    assert agent.critic.weight.grad.tolist() == [[-1, 2, 0]]
    assert agent.critic.bias.grad.tolist() == [0]


def test_resumed_run_goes_on(drac, ones, monkeypatch, tmp_path):
    """Would break: a weight or an interval that is forgotten, another agent than the saved one."""
    drac.train(tiny(drac, tmp_path, aug_coef=0.7, **HALF, **ones))
    run, starts = run_folder(tmp_path), []
    saved = drac.load_checkpoint(run)["args"]
    assert (saved["aug_coef"], saved["amplitude_low"], saved["amplitude_high"]) == (0.7, 0.5, 0.5)
    before = read_checkpoint(run)["agent"]
    spy(
        monkeypatch,
        drac,
        "update",
        lambda agent, *_: starts.append(copy.deepcopy(agent.state_dict())),
    )
    drac.train(drac.Args(**saved | {"resume": str(run), "total_timesteps": 100}))
    for name in ("actor_logstd", "actor_mean.0.weight", "critic.4.weight", "obs_rms.count"):
        assert torch.equal(starts[0][name], before[name])


# ---- images

SHIFTS = pytest.mark.parametrize("name", ["ppo_pixels_rad", "ppo_pixels_drac"])


@SHIFTS
def test_shift_by_hand(name):
    """Would break: rows for columns, a shift for all frames or images, edges that wrap around."""
    image = torch.arange(12, dtype=torch.uint8).view(3, 4)
    obs = torch.stack([image, image + 100]).expand(2, 2, 3, 4)  # two observations of two frames
    moved = load(name).shift(obs, torch.tensor([[1, -2], [-1, 1]]))
    first = torch.tensor([[2, 3, 3, 3], [2, 3, 3, 3], [6, 7, 7, 7]], dtype=torch.uint8)
    second = torch.tensor([[4, 4, 5, 6], [8, 8, 9, 10], [8, 8, 9, 10]], dtype=torch.uint8)
    assert torch.equal(moved[0], torch.stack([first, first + 100]))
    assert torch.equal(moved[1], torch.stack([second, second + 100]))


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("ppo_pixels_rad", {"max_shift": 0}),
        ("ppo_pixels_drac", {"aug_coef": 0.0}),
    ],
)
def test_without_a_shift_it_is_ppo_bit_for_bit(tmp_path, name, flags):
    """Would break: a number of PyTorch's generator that is drawn, a loss without its weight."""
    agents = []
    for file, own in (("ppo_pixels", {}), (name, flags)):
        algo = load(file)
        algo.train(tiny(algo, tmp_path / file, **own))
        agents.append(read_checkpoint(run_folder(tmp_path / file))["agent"])
    assert equal(*agents)


def test_rad_learns_on_the_images_that_it_acted_on(tmp_path, monkeypatch):
    """Would break: an update on other images than the rollout's, shifts that change within a rollout or never."""
    algo = load("ppo_pixels_rad")
    updates = []

    def before_update(agent, optimizer, args, batch, *_):
        with torch.no_grad():
            _, logprob, _, value = agent.get_action_and_value(batch["obs"], batch["action"])
        torch.testing.assert_close(logprob, batch["old_logprob"])
        torch.testing.assert_close(value, batch["old_value"])
        updates.append(batch["obs"])

    spy(monkeypatch, algo, "update", before_update)
    grey = 100  # an image shows its shift to the right
    monkeypatch.setattr(
        algo, "shift", lambda obs, shifts: obs * 0 + grey + shifts[:, 1, None, None, None]
    )
    last = []
    spy(monkeypatch, algo.Agent, "get_value", lambda agent, obs: last.append(obs.clone()))
    algo.train(tiny(algo, tmp_path, max_shift=4))
    values = [set(obs.unique().tolist()) for obs in updates]
    assert len(values) > 3 and all(len(value) <= 2 for value in values)  # two environments
    assert any(len(value) == 2 for value in values) and len(set().union(*values)) > 3
    assert all(96 <= number <= 104 for value in values for number in value)
    for value, obs in zip(values, last):
        assert set(obs.unique().tolist()) == value  # also the last observation, to bootstrap from


def test_drac_on_images_by_hand(monkeypatch):
    """Would break: a KL the other way round, a missing part, a gradient into the side that is the target."""
    algo = load("ppo_pixels_drac")
    agent = algo.Agent((1, 36, 36), gym.spaces.Discrete(3), algo.Args(), "float32")
    torch.nn.init.normal_(agent.actor.weight)
    obs = torch.randint(256, (5, 1, 36, 36), dtype=torch.uint8)
    monkeypatch.setattr(algo, "shift", lambda obs, shifts: 255 - obs)
    loss = agent.get_aug_loss(obs)
    plain, moved = agent.features(obs).detach(), agent.features(255 - obs)
    target = agent.actor(plain).detach().log_softmax(-1)
    kl = (target.exp() * (target - agent.actor(moved).log_softmax(-1))).sum(-1)
    squares = (agent.critic(plain).detach() - agent.critic(moved))[:, 0] ** 2
    expected = (kl + squares).mean()
    torch.testing.assert_close(loss, expected)
    weights = list(agent.parameters())
    for one, other in zip(
        *(torch.autograd.grad(x, weights, allow_unused=True) for x in (loss, expected))
    ):
        torch.testing.assert_close(one, other)


def test_drac_shifts_each_sample_and_its_loss_counts(tmp_path, monkeypatch):
    """Would break: an invariance loss that is not added, one shift for a minibatch, another largest shift."""
    weights, seen = [], []
    for coefficient in (0.0, 1.0):
        algo = load("ppo_pixels_drac")
        spy(monkeypatch, algo, "shift", lambda obs, shifts: seen.append((len(obs), shifts)))
        algo.train(tiny(algo, tmp_path / str(coefficient), aug_coef=coefficient, max_shift=3))
        weights.append(read_checkpoint(run_folder(tmp_path / str(coefficient)))["agent"])
    assert not equal(*weights)
    assert all(shifts.shape == (n, 2) for n, shifts in seen)
    shifts = torch.cat([shifts for _, shifts in seen])
    assert set(shifts.unique().tolist()) == set(range(-3, 4))
    assert any(len(shifts.unique(dim=0)) > 1 for _, shifts in seen)
