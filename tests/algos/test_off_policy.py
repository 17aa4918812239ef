"""SAC, TD3 and DDPG: each formula by hand, one update against stable-baselines3 and against CleanRL's formulas, the
replay against what the environments really did, and values that are known beforehand."""

import math
from fractions import Fraction
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
import toy_envs
from conftest import load, run_folder, tiny
from stable_baselines3 import DDPG, SAC, TD3
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch.distributions import Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

SAC_FILE, TD3_FILE, DDPG_FILE = FILES = ["sac_continuous", "td3_continuous", "ddpg_continuous"]
OBS_DIM, ACTION_DIM, SIZE = 3, 2, 64
LOW, HIGH = np.array([-3, -1], np.float32), np.array([5, 2], np.float32)


@pytest.fixture(params=FILES)
def off(request):
    return load(request.param)


def of(*names):
    """Run a test that takes `off` with these files only."""
    return pytest.mark.parametrize("off", names, indirect=True)


class Told(toy_envs.Counter):
    """Counter with five ids, hence episodes of 2 to 8 steps, two actions with bounds of their own, and a memory."""

    action_space = gym.spaces.Box(LOW, HIGH)
    made: list = []  # every instance since the list was cleared

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.id, self.episode, self.story = seed % 5, -1, []
            Told.made.append(self)
        else:
            self.story.append(None)  # the step after an episode's end
        self.steps, self.episode = 0, self.episode + 1
        return self.observe(), {}

    def step(self, action):
        before = self.observe()
        after, reward, terminated, truncated, info = super().step(action)
        self.story.append((before, np.array(action), reward, after, terminated, truncated))
        return after, reward, terminated, truncated, info


class Idle(gym.Env):
    """Only its spaces matter."""

    observation_space = toy_envs.box(OBS_DIM)
    action_space = toy_envs.box(ACTION_DIM, 1.0)


class Endless(gym.Env):
    """Reward 1 at every step, truncated after 10, which the observation, -1 or 1 all through an episode, hides."""

    observation_space, action_space = toy_envs.box(1), toy_envs.box(1, 1.0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.obs = 0, np.array([self.np_random.choice([-1, 1])], np.float32)
        return self.obs, {}

    def step(self, action):
        self.steps += 1
        return self.obs, 1.0, False, self.steps == 10, {}


toy_envs.register("Told-v0", Told)
toy_envs.register("EndlessBox-v0", Endless)


def play(off, monkeypatch, tmp_path, look, **flags):
    """Train on Told. look(call, now) is asked before each update for the function to call after it, or None; `call`
    has the arguments of update by name. Returns the replay and the training environments of this run."""
    update, build, replays, started = off.update, off.Replay.__init__, [], len(Told.made)

    def watched(agent, target_agent, optimizers, args, count, minibatch, *loss_fns):
        names = "agent", "target", "optimizers", "args", "count", "minibatch"
        values = agent, target_agent, optimizers, args, count, minibatch
        after = look(SimpleNamespace(**dict(zip(names, values))), Told.made[started + 2 :])
        metrics = update(*values, *loss_fns)
        if after:
            after()
        return metrics

    def keep(self, *args):
        build(self, *args)
        replays.append(self)

    with monkeypatch.context() as patch:
        patch.setattr(off, "update", watched)
        patch.setattr(off.Replay, "__init__", keep)
        args = tiny(off, tmp_path, **({"env_id": "Told-v0"} | flags))
        off.train(args)
    (replay,) = replays
    # The first two were made to see whether they work; those of the evaluation come last
    return replay, Told.made[started + 2 : started + 2 + args.num_envs]


class Stop(Exception):
    pass


def first_update(off, monkeypatch, tmp_path, **flags):
    """The arguments of train's first update by name, and the environments."""
    found = []

    def stop(call, envs):
        found.extend([call, envs])
        raise Stop

    with pytest.raises(Stop):
        play(off, monkeypatch, tmp_path, stop, **flags)
    return found


def make(off, **flags):
    """An agent and a target agent with weights of their own, and SGD in place of Adam."""
    args = off.Args(**({"precision": "float32"} | flags))
    space = gym.spaces.Box(-1, 1, (ACTION_DIM,), np.float32)
    agent, target = (off.Agent(OBS_DIM, space, args, "float32") for _ in range(2))
    policy = [
        parameter for name, parameter in agent.named_parameters() if not name.startswith("critics")
    ]
    optimizers = {
        "policy": torch.optim.SGD(policy, lr=args.policy_lr),
        "critics": torch.optim.SGD(agent.critics.parameters(), lr=args.q_lr),
    }
    return agent, target, args, optimizers


def make_minibatch(size: int = SIZE) -> dict:
    return {
        "obs": torch.randn(size, OBS_DIM),
        "next_obs": torch.randn(size, OBS_DIM),
        "action": torch.empty(size, ACTION_DIM).uniform_(-1, 1),
        "reward": torch.randn(size),
        "terminal": (torch.arange(size) % 3 == 0).float(),
    }


def answer(network, *numbers):
    """Let a network return these numbers, whatever it is given."""
    network[-1].weight.data.zero_()
    network[-1].bias.data.copy_(torch.tensor(numbers).reshape(network[-1].bias.shape))


def copies(module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def same(one: list, other: list) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other))


def near(actual, reference, what: str = ""):
    """Equal to 1e-5 of the largest number."""
    scale = reference.detach().abs().max()
    assert actual.shape == reference.shape and scale > 0
    difference = (actual - reference).abs().max()
    assert difference <= 1e-5 * scale, f"{what}: {difference} of {scale}"


def scripted(monkeypatch, *draws):
    """Normal distributions draw these standard normal numbers, one tensor a call."""
    left = list(draws)

    def draw(shape, dtype, device):
        assert left[0].shape == shape
        return left.pop(0)

    monkeypatch.setattr(torch.distributions.normal, "_standard_normal", draw)


# By hand


def test_targets(off, monkeypatch, tmp_path):
    """Every row that train() would learn from, one by one; critics answer 3 (and 5), online ones -2 (and 7).
    Would break: truncation as termination, a terminal state that is worth something, the online critics in place of
    the targets, a maximum or mean over critics, the entropy's sign or absence, a critic that is not trained."""
    flags = {"gamma": 0.8, "num_envs": 3, "learning_starts": 60, "batch_size": 200}
    if off.__name__ == SAC_FILE:
        flags |= {"autotune": False, "alpha": 0.5}
    call, envs = first_update(off, monkeypatch, tmp_path, **flags)
    agent, target, count = call.agent, call.target, call.agent.num_critics
    assert count == (1 if off.__name__ == DDPG_FILE else 2)
    online, later, entropy = [-2.0, 7.0][:count], [5.0, 3.0][-count:], 0.0
    answer(agent.critics, *online)
    answer(target.critics, *later)
    if off.__name__ == SAC_FILE:
        entropy = 1.7

        def act(obs):
            return torch.zeros(len(obs), ACTION_DIM), torch.full((len(obs),), -entropy)

        agent.get_action, target.get_action = act, None
    truth = {key(*step): step for env in envs for step in env.story if step}
    kinds = set()
    for i in range(200):
        row = {name: tensor[i : i + 1] for name, tensor in call.minibatch.items()}
        *_, terminated, truncated = truth[sampled(call.minibatch, i)]
        value = 0.0 if terminated else 3.0 + 0.5 * entropy
        expected = row["reward"].item() + 0.8 * value
        loss, _ = off.critic_loss(agent, target, call.args, **row)
        assert loss.item() == pytest.approx(sum(0.5 * (q - expected) ** 2 for q in online))
        kinds.add((terminated, truncated))
    assert kinds == {(True, False), (False, True), (False, False)}


def squashed(off, mean: float, logstd: float, dims: int = 1):
    """An agent of SAC with this Gaussian for every observation."""
    args = off.Args()
    agent = off.Agent(1, gym.spaces.Box(-1, 1, (dims,), np.float32), args, "float32")
    answer(agent.actor, *[mean] * dims, *[logstd] * dims)
    return agent


@of(SAC_FILE)
@pytest.mark.parametrize(("mean", "logstd"), [(0.0, 0.0), (0.7, -1.0), (-1.2, 0.4), (0.3, -3.0)])
def test_density(off, monkeypatch, mean, logstd):
    """The density over (-1, 1), summed up numerically, is 1 and gives the entropy; the share of samples in a bin is
    the density's integral over it. Would break: no correction for tanh or one of the wrong sign, a log standard
    deviation that is taken for another number."""
    agent = squashed(off, mean, logstd)
    count = 200_000
    with torch.no_grad():
        sample, logprob = agent.get_action(torch.zeros(count, 1))
        # Where the Gaussian is drawn at these quantiles, tanh of it covers (-1, 1)
        quantiles = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
        scripted(monkeypatch, (2**0.5 * torch.erfinv(2 * quantiles - 1)).float()[:, None])
        action, at = agent.get_action(torch.zeros(20_000, 1))
    action, at = action.squeeze().double(), at.double()
    assert (action.diff() >= 0).all() and -1 <= action[0] and action[-1] <= 1
    density = at.exp()
    assert torch.trapezoid(density, action).item() == pytest.approx(1, abs=2e-3)
    entropy = -torch.trapezoid(density * at, action).item()
    assert -logprob.mean().item() == pytest.approx(entropy, abs=0.01)
    middle = action[density > density.max() / 20]
    for edges in torch.linspace(middle[0], middle[-1], 7, dtype=torch.float64).unfold(0, 2, 1):
        inside = (action >= edges[0]) & (action < edges[1])
        share = ((sample >= edges[0]) & (sample < edges[1])).double().mean().item()
        integral = torch.trapezoid(density[inside], action[inside]).item()
        assert share == pytest.approx(integral, abs=5e-3)


@of(SAC_FILE)
def test_logprob_equals_pytorch(off):
    """Against TransformedDistribution with TanhTransform, with its gradients. Would break: log-probabilities that are
    not summed over the actions, a sample that the gradient does not pass, means and deviations mixed up."""
    agent, *_ = make(off)
    agent.actor[-1].weight.data *= 4
    obs = torch.randn(500, OBS_DIM)
    hidden = agent.actor[:-1](obs)
    weight, bias = agent.actor[-1].weight, agent.actor[-1].bias
    mean = hidden @ weight[:ACTION_DIM].T + bias[:ACTION_DIM]
    std = (hidden @ weight[ACTION_DIM:].T + bias[ACTION_DIM:]).exp()
    reference = TransformedDistribution(Normal(mean, std), TanhTransform(cache_size=1))
    torch.manual_seed(3)
    reference_action = reference.rsample()
    reference_logprob = reference.log_prob(reference_action).sum(-1)
    torch.manual_seed(3)
    action, logprob = agent.get_action(obs)
    torch.testing.assert_close(action, reference_action)
    torch.testing.assert_close(logprob, reference_logprob, rtol=1e-4, atol=1e-4)
    parameters = list(agent.actor.parameters())
    direction = torch.randn_like(action)
    for actual, expected in (
        (logprob, reference_logprob),
        (action * direction, reference_action * direction),
    ):
        grads = [
            torch.autograd.grad(x.sum(), parameters, retain_graph=True) for x in (actual, expected)
        ]
        for one, other in zip(*grads):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * other.abs().max().item())
    torch.testing.assert_close(agent.get_mean_action(obs), mean.tanh())


@of(SAC_FILE)
@pytest.mark.parametrize("mean", [-300.0, -30.0, 30.0, 300.0])
def test_far_out_is_finite(off, mean):
    """log(1 - tanh^2) = 2 log 2 - 2 |x| where |x| is large. Would break: a logarithm of 0 where tanh rounds to 1, and
    deviations without limits."""
    agent = squashed(off, mean, 99.0 if abs(mean) < 100 else -99.0)
    action, logprob = agent.get_action(torch.zeros(1000, 1))
    (action.sum() + logprob.sum()).backward()
    for tensor in (action, logprob, *(parameter.grad for parameter in agent.actor.parameters())):
        assert tensor.isfinite().all()
    if abs(mean) > 100:  # the deviation is exp(-20)
        expected = 20 - 0.5 * math.log(2 * math.pi) - 2 * math.log(2) + 2 * abs(mean)
        torch.testing.assert_close(logprob.max(), torch.tensor(expected), rtol=1e-4, atol=0)
    else:  # the deviation is exp(2): 30 is 4 deviations from 0
        assert (action.abs() < 0.5).sum() < 5 and logprob.std() > 5


@of(SAC_FILE)
@pytest.mark.parametrize("entropy", [-5.0, -2.0, 1.0])
def test_temperature(off, entropy):
    """The paper's gradient: alpha (entropy - target entropy), and the target is minus the number of actions. Would
    break: the target's sign, the temperature's direction, a temperature that --no-autotune learns anyhow, one whose
    loss reaches the policy."""
    agent, _, args, optimizers = make(off, policy_lr=0.1)
    agent.log_alpha.data.fill_(math.log(0.3))
    obs, real = torch.randn(SIZE, OBS_DIM), agent.get_action

    def act(obs):
        action, logprob = real(obs)
        return action, logprob - logprob.mean().detach() - entropy

    agent.get_action = act
    torch.manual_seed(5)
    loss, metrics = off.policy_loss(agent, args, obs)
    loss.backward()
    assert agent.log_alpha.grad.item() == pytest.approx(0.3 * (entropy + ACTION_DIM), abs=1e-5)
    assert metrics["losses/alpha"].item() == pytest.approx(0.3)
    assert metrics["losses/entropy"].item() == pytest.approx(entropy, abs=1e-5)
    with_temperature = [parameter.grad.clone() for parameter in agent.actor.parameters()]
    agent.zero_grad()
    args.autotune = False
    torch.manual_seed(5)
    loss, _ = off.policy_loss(agent, args, obs)
    loss.backward()
    assert not agent.log_alpha.grad
    for actual, parameter in zip(with_temperature, agent.actor.parameters()):
        torch.testing.assert_close(actual, parameter.grad, rtol=0, atol=0)
    args.autotune = True
    off.update(agent, agent, optimizers, args, 1, make_minibatch())
    moved = agent.log_alpha.item() - math.log(0.3)
    assert moved == pytest.approx(-0.1 * 0.3 * (entropy + ACTION_DIM), abs=1e-5)


@of(SAC_FILE)
@pytest.mark.parametrize("flags", [{}, {"autotune": False, "alpha": 0.07}])
def test_temperature_at_the_start(off, monkeypatch, tmp_path, flags):
    """Would break: another first temperature than 1, or than --alpha under --no-autotune, which must not change."""
    seen = []

    def look(call, envs):
        seen.append(call.agent.log_alpha.exp().item())

    play(off, monkeypatch, tmp_path, look, **flags)
    assert seen[0] == pytest.approx(flags.get("alpha", 1.0))
    assert (len(set(seen)) == 1) == bool(flags)


def next_actions(off, action: float, **flags) -> torch.Tensor:
    """The actions whose value the critics' target takes, where the target policy's action is this one."""
    agent, target, args, _ = make(off, **flags)
    answer(target.actor, *[math.atanh(action)] * ACTION_DIM)
    answer(agent.actor, *[-1.0] * ACTION_DIM)
    seen, get_values = [], target.get_values

    def look(obs, action):
        seen.append(action)
        return get_values(obs, action)

    target.get_values = look
    off.critic_loss(agent, target, args, **make_minibatch(20_000))
    (found,) = seen
    return found


@of(TD3_FILE)
def test_target_noise(off):
    """Would break: noise that is not clipped, another deviation, one draw for all rows or all actions, actions beyond
    [-1, 1], the online policy in place of the target's, the policy's own noise."""
    plain = next_actions(off, 0.25, policy_noise=0.0, exploration_noise=0.3)
    torch.testing.assert_close(plain, torch.full_like(plain, 0.25))
    noise = next_actions(off, 0.25, policy_noise=0.2, noise_clip=0.7) - 0.25
    torch.testing.assert_close(noise.mean(0), torch.zeros(ACTION_DIM), rtol=0, atol=6e-3)
    torch.testing.assert_close(noise.std(0), torch.full((ACTION_DIM,), 0.2), rtol=0.03, atol=0)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.04
    clipped = next_actions(off, 0.25, policy_noise=0.3, noise_clip=0.3) - 0.25
    assert clipped.abs().max().item() == pytest.approx(0.3)
    share = (clipped.abs() > 0.2999).float().mean().item()
    assert share == pytest.approx(0.3173, abs=0.02)  # of a Gaussian beyond one deviation
    bounded = next_actions(off, 0.9)
    assert bounded.max() == 1 and bounded.min() == pytest.approx(0.4)


@of(DDPG_FILE)
def test_no_target_noise(off):
    """Would break: noise on the target policy's action, the online policy in its place."""
    plain = next_actions(off, 0.25, exploration_noise=0.3)
    torch.testing.assert_close(plain, torch.full_like(plain, 0.25))


@of(TD3_FILE, DDPG_FILE)
def test_exploration_noise(off):
    """Would break: another deviation, one draw for all, actions beyond [-1, 1], evaluations with noise."""
    agent, *_ = make(off, exploration_noise=0.3)
    answer(agent.actor, math.atanh(0.9), math.atanh(-0.1))
    obs = torch.randn(20_000, OBS_DIM)
    action = agent.get_action(obs)
    assert action[:, 0].max() == 1 and action[:, 1].min() >= -1
    assert (action[:, 0] == 1).float().mean().item() == pytest.approx(0.369, abs=0.02)
    assert action[:, 1].std().item() == pytest.approx(0.3, rel=0.03)
    assert action[:, 1].mean().item() == pytest.approx(-0.1, abs=0.01)
    mean = agent.get_mean_action(obs)
    torch.testing.assert_close(mean, torch.tensor([0.9, -0.1]).expand(20_000, -1))


def test_losses_move_only_their_own_weights(off):
    """Would break: a policy's loss that changes critics or leaves gradients in them, a critics' loss that changes the
    policy or the temperature, a gradient through the targets, critics that stay frozen."""
    agent, target, args, optimizers = make(off, policy_frequency=2, target_network_frequency=2)
    batch = make_minibatch()

    def state():
        actor = copies(agent.actor) + [p.detach().clone() for p in agent.parameters(recurse=False)]
        return actor, copies(agent.critics), copies(target)

    def nothing(agent, *_, **tensors):
        return 0 * sum(p.sum() for p in agent.critics.parameters()), {}

    actor, critics, targets = state()
    off.update(agent, target, optimizers, args, 1, batch)  # the critics' update alone
    now = state()
    assert same(now[0], actor) and same(now[2], targets)
    assert not any(torch.equal(a, b) for a, b in zip(now[1], critics))
    assert all(parameter.grad is None for parameter in agent.actor.parameters())
    assert all(parameter.grad is None for parameter in target.parameters())
    actor, critics, targets = now
    args.target_network_frequency = 3
    off.update(agent, target, optimizers, args, 2, batch, nothing)  # the policy's alone
    now = state()
    assert same(now[1], critics) and same(now[2], targets)
    assert not any(torch.equal(a, b) for a, b in zip(now[0], actor))
    assert not any(parameter.grad.any() for parameter in agent.critics.parameters())
    assert all(parameter.requires_grad for parameter in agent.parameters())


def test_first_weights(off):
    """Those of nn.Linear. Would break: critics that begin, and hence remain, equal; the wrong number of inputs."""
    agent = off.Agent(5, gym.spaces.Box(-1, 1, (4,), np.float32), off.Args(), "float32")
    for layer, inputs in zip(agent.critics[::2], (9, 256, 256)):
        for tensor in (layer.weight, layer.bias):
            assert tensor.abs().max() <= inputs**-0.5
            assert len(tensor) == 1 or not (tensor[0] == tensor[1]).any()
        assert layer.weight.std().item() == pytest.approx((3 * inputs) ** -0.5, rel=0.1)


def test_optimizers(off, monkeypatch, tmp_path):
    """Would break: weights that no optimiser or the wrong one has, or two have; learning rates mixed up; SGD."""
    call, _ = first_update(off, monkeypatch, tmp_path, policy_lr=1e-3, q_lr=2e-3)
    owners = {"policy": list(call.agent.actor.parameters()), "critics": []}
    owners["critics"] += list(call.agent.critics.parameters())
    if off.__name__ == SAC_FILE:
        owners["policy"].append(call.agent.log_alpha)
    assert call.optimizers.keys() == owners.keys()
    for name, rate in (("policy", 1e-3), ("critics", 2e-3)):
        (group,) = call.optimizers[name].param_groups
        assert isinstance(call.optimizers[name], torch.optim.Adam)
        assert {id(p) for p in group["params"]} == {id(p) for p in owners[name]}
        chosen = group["lr"], group["betas"], group["eps"], group["weight_decay"], group["amsgrad"]
        assert chosen == (rate, (0.9, 0.999), 1e-8, 0, False)
    both = [p for parameters in owners.values() for p in parameters]
    assert {id(p) for p in both} == {id(p) for p in call.agent.parameters()}
    targets = {id(p) for p in call.target.parameters()}
    assert not targets & {id(p) for p in both} and same(copies(call.target), copies(call.agent))


@pytest.mark.parametrize(("policy_frequency", "target_frequency"), [(1, 1), (3, 2), (2, 3)])
def test_frequencies(off, monkeypatch, tmp_path, policy_frequency, target_frequency):
    """Would break: a policy or a target network that is updated at other times, the wrong share, a target that
    follows the critics before their update, a target policy that is not updated (TD3, DDPG)."""
    seen = []

    def look(call, envs):
        agent, target = call.agent, call.target
        names = ("critics",) if off.__name__ == SAC_FILE else ("critics", "actor")
        actor, old = copies(agent.actor), [copies(getattr(target, name)) for name in names]

        def after():
            new = [copies(getattr(target, name)) for name in names]
            due = call.count % target_frequency == 0
            for name, was, now in zip(names, old, new):
                for a, b, online in zip(was, now, copies(getattr(agent, name))):
                    torch.testing.assert_close(b, a + 0.3 * (online - a) if due else a)
            moved = not same(copies(agent.actor), actor)
            seen.append((call.count, moved, not same(old[0], new[0])))

        return after

    flags = {"policy_lr": 0.01, "q_lr": 0.01, "tau": 0.3, "total_timesteps": 30}
    flags |= {"policy_frequency": policy_frequency, "target_network_frequency": target_frequency}
    play(off, monkeypatch, tmp_path, look, **flags)
    assert len(seen) > 20
    for expected, (count, policy_moved, target_moved) in enumerate(seen, 1):
        assert count == expected
        assert policy_moved == (count % policy_frequency == 0)
        assert target_moved == (count % target_frequency == 0)


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("per_step", [1.0, 0.25, 0.375, 2.5, 4.0])
def test_updates_per_step(off, monkeypatch, tmp_path, num_envs, per_step):
    """Would break: updates for rows of environments in place of steps, for autoreset steps, for the steps before
    --learning-starts, fractions that are rounded or forgotten."""
    at = []
    flags = {"num_envs": num_envs, "updates_per_step": per_step, "learning_starts": 20}

    def look(call, envs):
        at.append(len(envs[0].story))

    _, envs = play(off, monkeypatch, tmp_path, look, **flags)
    expected, due, taken = [], Fraction(0), 0
    for row, steps in enumerate(zip(*(env.story for env in envs)), 1):
        valid = sum(step is not None for step in steps)
        taken += valid
        if taken >= 20:
            due += valid * Fraction(per_step)
        expected += [row] * (int(due) - len(expected))
    assert len(expected) > 10 and at == expected


def test_actions_of_training(off, monkeypatch, tmp_path):
    """Would break: actions that are not scaled to the bounds, a replay that stores scaled ones, random actions that do
    not cover the bounds or go on after --learning-starts, a policy that acts before."""
    act = torch.tensor([0.25, -0.5])
    expected = np.array([2.0, -0.25], np.float32)

    def get_action(self, obs):
        action = act.expand(len(obs), -1)
        return (action, torch.zeros(len(obs))) if off.__name__ == SAC_FILE else action

    monkeypatch.setattr(off.Agent, "get_action", get_action)
    seen = []
    flags = {"num_envs": 3, "learning_starts": 300, "total_timesteps": 330, "buffer_size": 900}
    call, envs = first_update(off, monkeypatch, tmp_path, **flags | {"batch_size": 2000})
    random = np.array([step[1] for env in envs for step in env.story if step])
    assert (random.min(0) < LOW + 0.1).all() and (random.max(0) > HIGH - 0.1).all()
    assert (random >= LOW).all() and (random <= HIGH).all()
    deviation = (HIGH - LOW) / 12**0.5
    assert np.allclose(random.std(0), deviation, rtol=0.15)
    assert np.allclose(random.mean(0), (LOW + HIGH) / 2, atol=0.2 * deviation.max())
    stored = call.minibatch["action"].numpy()
    assert np.abs(stored).max() <= 1 and stored.std() > 0.5

    # The constant actions have no gradient
    monkeypatch.setattr(off, "policy_loss", lambda agent, *_: (zero_loss(agent), {}))
    _, envs = play(off, monkeypatch, tmp_path / "second", lambda *_: None, **flags)
    rows = list(zip(*(env.story for env in envs)))
    steps = 0
    for row in rows:
        for step in row:
            if step:
                seen.append(np.allclose(step[1], expected))
                assert seen[-1] == (steps >= 300)
        steps += sum(step is not None for step in row)
    assert 20 < sum(seen) < 60


def test_actions_of_evaluations(off, tmp_path):
    """Would break: noise or samples in evaluations, actions that are not scaled, rewards after the first episode."""
    args, before = tiny(off, tmp_path, env_id="Told-v0"), len(Told.made)
    envs, obs = off.make_envs(args, "gymnasium", 2, 7)
    agent = off.Agent(OBS_DIM, envs.single_action_space, args, "float32")
    deviations = [0.0] * ACTION_DIM if off.__name__ == SAC_FILE else []
    answer(agent.actor, math.atanh(0.25), math.atanh(-0.5), *deviations)
    returns = off.evaluate(agent, envs, obs)
    assert len(Told.made) == before + 2 and len(returns) == 2
    for env, total in zip(Told.made[before:], returns):
        steps = env.story[: env.story.index(None)] if None in env.story else env.story
        assert total == sum(step[2] for step in steps)
        for step in steps:
            assert np.allclose(step[1], [2.0, -0.25])


def zero_loss(agent):
    return 0 * sum(parameter.sum() for parameter in agent.actor.parameters())


def test_actions_are_within_their_bounds(off):
    """Of -1 and 1, to which TD3 and DDPG clamp; float32 rounds a fifth of uneven bounds to beyond them. Would break: an
    environment that refuses the action. And a shape of actions other than (n,), and bounds mixed up."""
    low, high = torch.rand(2, 50, 20).numpy() * 10 - np.array([10, 0])[:, None, None]
    space = gym.spaces.Box(low.astype(np.float32), high.astype(np.float32))
    agent = off.Agent(OBS_DIM, space, off.Args(), "float32")
    for value, bound in ((-1.0, space.low), (1.0, space.high)):
        (action,) = agent.to_env(torch.full((1, 1000), value))
        assert action in space
        assert np.allclose(action, bound, rtol=1e-5, atol=1e-5)
    (middle,) = agent.to_env(torch.zeros(1, 1000))
    assert np.allclose(middle, (space.low + space.high) / 2, rtol=1e-5, atol=1e-5)


def test_metrics_outlive_the_next_call(off):
    """Losses whose results the next call of either overwrites, as CUDA graphs do under --compile. Would break: metrics
    of the critics that are read after the policy's loss has run."""
    agent, target, args, optimizers = make(off, policy_frequency=1)
    shared, truth = [], {}

    def graph(loss_fn):
        def call(*inputs, **tensors):
            for tensor in shared:
                tensor.detach().fill_(float("nan"))
            loss, metrics = loss_fn(*inputs, **tensors)
            truth.update({name: value.item() for name, value in metrics.items()})
            results = {name: value.detach().clone() for name, value in metrics.items()}
            shared.extend(results.values())
            return loss, results

        return call

    losses = graph(off.critic_loss), graph(off.policy_loss)
    found = off.update(agent, target, optimizers, args, 1, make_minibatch(), *losses)
    expected = dict(truth)
    losses[0](agent, target, args, **make_minibatch())  # the next update
    assert {name: value.item() for name, value in found.items()} == expected
    assert all(map(math.isfinite, expected.values())) and len(expected) >= 3


# stable-baselines3, on the same batch with the same weights


def linears(network) -> list:
    return [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]


def critic_pairs(reference, actual):
    """(their tensor, actual) for each weight; reference is (out, in), actual (in, out) of critic i."""
    for i, network in enumerate(reference.q_networks):
        for layer, mine in zip(linears(network), actual[::2]):
            yield layer.weight, lambda x, i=i: x[i].T, mine.weight
            yield layer.bias, lambda x, i=i: x[i, 0], mine.bias


def actor_pairs(reference, actual):
    if hasattr(reference, "log_std"):  # SAC: two last layers, where plainrl has one
        for layer, mine in zip(linears(reference.latent_pi), linears(actual)):
            yield layer.weight, lambda x: x, mine.weight
            yield layer.bias, lambda x: x, mine.bias
        parts = (
            (reference.mu, slice(None, ACTION_DIM)),
            (reference.log_std, slice(ACTION_DIM, None)),
        )
        for layer, part in parts:
            yield layer.weight, lambda x, part=part: x[part], actual[-1].weight
            yield layer.bias, lambda x, part=part: x[part], actual[-1].bias
        return
    for layer, mine in zip(linears(reference.mu), linears(actual)):
        yield layer.weight, lambda x: x, mine.weight
        yield layer.bias, lambda x: x, mine.bias


def stable_baselines3(off, agent, target, args, batch, **more):
    """Its model with our weights, whose replay returns our batch, and whose optimisers are SGD and keep the gradients
    that they are given."""
    kind = {SAC_FILE: SAC, TD3_FILE: TD3, DDPG_FILE: DDPG}[off.__name__]
    policy = {"net_arch": [256, 256], "optimizer_class": torch.optim.SGD}
    rate = {"learning_rate": args.policy_lr, "tau": args.tau, "gamma": args.gamma}
    idle = Idle()
    model = kind(
        "MlpPolicy", idle, policy_kwargs=policy, device="cpu", buffer_size=9, **rate, **more
    )
    model.set_logger(configure(None, []))
    tensors = [batch["obs"], batch["action"], batch["next_obs"]]
    tensors += [batch["terminal"][:, None], batch["reward"][:, None]]
    model.replay_buffer.sample = lambda size, env: ReplayBufferSamples(*tensors)
    pairs = [*critic_pairs(model.critic, agent.critics)]
    pairs += [*critic_pairs(model.critic_target, target.critics)]
    pairs += [*actor_pairs(model.actor, agent.actor)]
    if off.__name__ != SAC_FILE:
        pairs += [*actor_pairs(model.actor_target, target.actor)]
    for reference, part, actual in pairs:
        reference.data.copy_(part(actual.data))
    grads = {}
    for network in (model.critic, model.actor):
        step = network.optimizer.step

        def keep(*_, network=network, step=step):
            grads.update({p: p.grad.clone() for p in network.parameters()})
            step()

        network.optimizer.step = keep
    return model, grads


def compare(model, agent, target, grads, factor: float = 1.0):
    """Gradients and weights after the update; their critics' gradients are `factor` times actual."""
    parts = ("critics", critic_pairs(model.critic, agent.critics), factor)
    other = ("actor", actor_pairs(model.actor, agent.actor), 1.0)
    for name, pairs, times in (parts, other):
        for reference, part, actual in pairs:
            near(times * part(actual.grad), grads[reference], f"gradient of {name}")
            near(part(actual.data), reference.data, f"weights of {name}")
    pairs = [*critic_pairs(model.critic_target, target.critics)]
    if hasattr(model, "actor_target"):
        pairs += [*actor_pairs(model.actor_target, target.actor)]
    for reference, part, actual in pairs:
        near(part(actual.data), reference.data, "weights of the target")


@of(SAC_FILE)
@pytest.mark.parametrize("alpha", [1.0, 0.2])
def test_update_equals_stable_baselines3_sac(off, monkeypatch, alpha):
    """Patched: it adds 1e-6 in the logarithm of tanh's derivative (set to 0), draws the policy's noise in another
    order, differentiates log alpha, where the paper differentiates alpha (our gradient is alpha times as large).
    Would break: any part of SAC's update."""
    agent, target, args, optimizers = make(off, tau=0.1, policy_lr=1e-2, q_lr=1e-2)
    agent.actor[-1].bias.data[ACTION_DIM:] -= 1.0
    agent.log_alpha.data.fill_(math.log(alpha))
    batch = make_minibatch()
    model, grads = stable_baselines3(off, agent, target, args, batch, ent_coef=f"auto_{alpha}")
    model.actor.action_dist.epsilon = 0.0
    now, later = torch.randn(2, SIZE, ACTION_DIM)
    scripted(monkeypatch, now, later)
    model.train(1, SIZE)
    scripted(monkeypatch, later, now)
    metrics = off.update(agent, target, optimizers, args, 1, batch)
    logged = model.logger.name_to_value
    assert metrics["losses/qf_loss"].item() == pytest.approx(logged["train/critic_loss"], rel=1e-5)
    assert metrics["losses/actor_loss"].item() == pytest.approx(
        logged["train/actor_loss"], rel=1e-5
    )
    assert metrics["losses/alpha"].item() == pytest.approx(logged["train/ent_coef"], rel=1e-5)
    compare(model, agent, target, grads)
    assert agent.log_alpha.grad.item() == pytest.approx(
        alpha * model.log_ent_coef.grad.item(), rel=1e-5
    )


@of(TD3_FILE)
@pytest.mark.parametrize("count", [1, 2])
def test_update_equals_stable_baselines3_td3(off, count):
    """Patched: its critics' loss lacks the factor 0.5, so that with SGD plainrl's rate must be twice SB3's. At the
    first update neither changes the policy or the targets. Would break: any part of TD3's update."""
    agent, target, args, optimizers = make(off, tau=0.1, policy_lr=1e-2, q_lr=2e-2)
    batch = make_minibatch()
    noise = {"target_policy_noise": args.policy_noise, "target_noise_clip": args.noise_clip}
    model, grads = stable_baselines3(off, agent, target, args, batch, policy_delay=2, **noise)
    model._n_updates = count - 1
    before = copies(agent.actor), copies(target)
    torch.manual_seed(4)
    model.train(1, SIZE)
    torch.manual_seed(4)
    metrics = off.update(agent, target, optimizers, args, count, batch)
    logged = model.logger.name_to_value
    loss = metrics["losses/qf_loss"].item()
    assert 2 * loss == pytest.approx(logged["train/critic_loss"], rel=1e-5)
    if count == 1:
        for reference, part, actual in critic_pairs(model.critic, agent.critics):
            near(2 * part(actual.grad), grads[reference])
        assert same(before[0], copies(agent.actor)) and same(before[1], copies(target))
        assert "train/actor_loss" not in logged and "losses/actor_loss" not in metrics
        return
    loss = metrics["losses/actor_loss"].item()
    assert loss == pytest.approx(logged["train/actor_loss"], rel=1e-5)
    compare(model, agent, target, grads, factor=2.0)


@of(DDPG_FILE)
def test_update_equals_stable_baselines3_ddpg(off):
    """Patched as for TD3. Would break: any part of DDPG's update."""
    agent, target, args, optimizers = make(off, tau=0.1, policy_lr=1e-2, q_lr=2e-2)
    batch = make_minibatch()
    model, grads = stable_baselines3(off, agent, target, args, batch)
    model.train(1, SIZE)
    metrics = off.update(agent, target, optimizers, args, 1, batch)
    logged = model.logger.name_to_value
    assert 2 * metrics["losses/qf_loss"].item() == pytest.approx(
        logged["train/critic_loss"], rel=1e-5
    )
    assert metrics["losses/actor_loss"].item() == pytest.approx(
        logged["train/actor_loss"], rel=1e-5
    )
    compare(model, agent, target, grads, factor=2.0)


# CleanRL's formulas


def forward(weights, x):
    """A network of ReLU layers from (weight (in, out), bias) pairs."""
    for weight, bias in weights[:-1]:
        x = (x @ weight + bias).clamp(min=0)
    return x @ weights[-1][0] + weights[-1][1]


def value(agent, i: int, obs, action):
    weights = [(layer.weight[i], layer.bias[i]) for layer in agent.critics[::2]]
    return forward(weights, torch.cat([obs, action], 1)).squeeze(1)


def policy(agent, obs):
    return forward([(layer.weight.T, layer.bias) for layer in agent.actor[::2]], obs)


def near_grads(loss, agent, network, factor: float = 1.0):
    """Gradients of our loss, which are there already, and of CleanRL's."""
    parameters = list(network.parameters())
    for actual, reference in zip(parameters, torch.autograd.grad(loss, parameters)):
        near(factor * actual.grad, reference, "gradient")


@of(SAC_FILE)
def test_losses_equal_cleanrls_sac(off, monkeypatch):
    """Patched: plainrl's log standard deviation is the clamped output, CleanRL's is tanh of it between -5 and 2
    (plainrl gets that); 1e-6 in CleanRL's logarithm is left out; its squared errors lack the factor 0.5. With an action
    scale other than 1 its log-probability is that of the scaled action, which the target entropy would have to know.
    Would break: any part of SAC's losses."""
    agent, target, args, _ = make(off)
    agent.log_alpha.data.fill_(math.log(0.4))
    batch, (now, later) = make_minibatch(), torch.randn(2, SIZE, ACTION_DIM)

    def gaussian(obs):
        mean, raw = policy(agent, obs).chunk(2, -1)
        return mean, -5 + 0.5 * (2 - -5) * (raw.tanh() + 1)

    def sample(obs, noise, scale=1.0, epsilon=0.0):
        mean, logstd = gaussian(obs)
        x = mean + logstd.exp() * noise
        squashed = x.tanh()
        logprob = Normal(mean, logstd.exp()).log_prob(x)
        logprob = logprob - (scale * (1 - squashed**2) + epsilon).log()
        return squashed * scale, logprob.sum(1)

    compute = agent.compute

    def with_their_deviation(network, x):
        return torch.cat(gaussian(x), -1) if network is agent.actor else compute(network, x)

    agent.compute = with_their_deviation
    scripted(monkeypatch, later)
    loss, _ = off.critic_loss(agent, target, args, **batch)
    loss.backward()
    with torch.no_grad():
        action, logprob = sample(batch["next_obs"], later)
        least = torch.minimum(*(value(target, i, batch["next_obs"], action) for i in (0, 1)))
        goal = batch["reward"] + (1 - batch["terminal"]) * args.gamma * (least - 0.4 * logprob)
    values = [value(agent, i, batch["obs"], batch["action"]) for i in (0, 1)]
    reference = sum(((q - goal) ** 2).mean() for q in values)
    near(2 * loss, reference)
    near_grads(reference, agent, agent.critics, 2.0)

    scripted(monkeypatch, now)
    loss, metrics = off.policy_loss(agent, args, batch["obs"])
    loss.backward()
    action, logprob = sample(batch["obs"], now)
    least = torch.minimum(*(value(agent, i, batch["obs"], action) for i in (0, 1)))
    reference = (0.4 * logprob - least).mean()
    temperature_loss = (-agent.log_alpha.exp() * (logprob.detach() - ACTION_DIM)).mean()
    near(metrics["losses/actor_loss"], reference)
    near(loss, reference + temperature_loss)
    near_grads(reference, agent, agent.actor)
    (expected,) = torch.autograd.grad(temperature_loss, agent.log_alpha)
    near(agent.log_alpha.grad, expected)
    # What is not equal: 1e-6, which matters little here, and the bounds' scale
    scripted(monkeypatch, now)
    _, actual = agent.get_action(batch["obs"])
    almost = sample(batch["obs"], now, epsilon=1e-6)[1]
    assert 0 < (actual - almost).abs().median() < 1e-4
    scaled = sample(batch["obs"], now, scale=4.0)[1]
    torch.testing.assert_close(scaled, actual - ACTION_DIM * math.log(4), rtol=1e-4, atol=1e-4)


@of(TD3_FILE, DDPG_FILE)
def test_losses_equal_cleanrls_td3_and_ddpg(off):
    """Patched: their squared errors lack the factor 0.5. Would break: any part of the losses; an actor that follows
    the smaller of two critics."""
    agent, target, args, _ = make(off)
    batch, critics = make_minibatch(), range(agent.num_critics)
    torch.manual_seed(6)
    loss, _ = off.critic_loss(agent, target, args, **batch)
    loss.backward()
    torch.manual_seed(6)
    noise = torch.zeros(SIZE, ACTION_DIM)
    if off.__name__ == TD3_FILE:
        noise = (torch.randn(SIZE, ACTION_DIM) * 0.2).clamp(-0.5, 0.5)
    with torch.no_grad():
        action = (policy(target, batch["next_obs"]).tanh() + noise).clamp(-1, 1)
        later = torch.stack([value(target, i, batch["next_obs"], action) for i in critics])
        goal = batch["reward"] + (1 - batch["terminal"]) * args.gamma * later.min(0).values
    values = [value(agent, i, batch["obs"], batch["action"]) for i in critics]
    reference = sum(((q - goal) ** 2).mean() for q in values)
    near(2 * loss, reference)
    near_grads(reference, agent, agent.critics, 2.0)
    loss, _ = off.policy_loss(agent, args, batch["obs"])
    loss.backward()
    reference = -value(agent, 0, batch["obs"], policy(agent, batch["obs"]).tanh()).mean()
    near(loss, reference)
    near_grads(reference, agent, agent.actor)


# The replay, in the whole run


def key(obs, action, reward, next_obs, terminated, truncated) -> tuple:
    """What a transition must be in a minibatch; whether it was truncated is not there."""
    scaled = (action - (LOW + HIGH) / 2) / ((HIGH - LOW) / 2)
    numbers = *obs, *scaled.round(4), reward, *next_obs, terminated
    return tuple(float(number) + 0.0 for number in numbers)


def sampled(minibatch: dict, i: int) -> tuple:
    row = {name: tensor[i].numpy() for name, tensor in minibatch.items()}
    return key(
        row["obs"], unscaled(row["action"]), row["reward"], row["next_obs"], row["terminal"], 0
    )


def unscaled(action):
    return (LOW + HIGH) / 2 + action * ((HIGH - LOW) / 2)


def rows_of(envs, rows: int) -> set:
    """Transitions in the last `rows` rows, but the newest, which nothing follows yet."""
    return {key(*step) for env in envs for step in env.story[-rows:-1] if step}


@pytest.mark.parametrize(("num_envs", "rows"), [(1, 7), (3, 9), (3, 200)])
def test_replay_holds_what_happened(off, monkeypatch, tmp_path, num_envs, rows):
    """Every sample of every update; the smaller rings are overwritten more than ten times. Would break: a next
    observation of the next episode, an autoreset step, a row that is overwritten or not there yet, a truncation as
    termination, environments mixed up, a transition that is never sampled."""
    count, kinds = 0, set()

    def look(call, envs):
        nonlocal count
        there = rows_of(envs[:num_envs], rows)
        for i in range(call.args.batch_size):
            transition = sampled(call.minibatch, i)
            assert transition in there
            count += 1

    flags = {"num_envs": num_envs, "buffer_size": rows * num_envs, "learning_starts": 4 * num_envs}
    flags |= {"total_timesteps": 110 * num_envs, "updates_per_step": 0.5}
    replay, envs = play(off, monkeypatch, tmp_path, look, **flags)
    assert count > 150 * num_envs
    drawn = replay.sample(6000)
    found = {sampled(drawn, i) for i in range(6000)}
    assert found == rows_of(envs, rows)
    for env in envs:
        kinds |= {step[4:] for step in env.story if step}
    assert kinds == {(True, False), (False, True), (False, False)}
    if rows == 200:
        assert {transition[-1] for transition in found} == {0.0, 1.0}


def test_replay_saved_and_loaded(off, monkeypatch, tmp_path):
    """A run with --save-replay that is resumed, its ring overwritten before. Would break: a part that is not saved,
    the last row before the end followed by the first one after it, a ring that continues in another row."""
    flags = {"num_envs": 3, "buffer_size": 36, "save_replay": True, "learning_starts": 12}
    first, before = play(off, monkeypatch, tmp_path, lambda *_: None, **flags, total_timesteps=120)
    run, old = run_folder(tmp_path), set()
    counts = []

    def look(call, envs):
        now = [env.story for env in envs[:3]]
        left = 12 - len(now[0])  # rows of the first run that are still there
        # the last row of the first run has no next observation
        there = {key(*step) for story in now for step in story[-12:-1] if step}
        kept = set()
        if left > 1:
            kept = {key(*step) for env in before for step in env.story[-left:-1] if step}
        for i in range(call.args.batch_size):
            transition = sampled(call.minibatch, i)
            assert transition in there | kept
            old.add(transition in kept)
        counts.append(call.count)

    flags |= {"resume": str(run), "total_timesteps": 200, "batch_size": 16}
    second, _ = play(off, monkeypatch, tmp_path, look, **flags)
    assert old == {True, False}
    assert second.count > first.count > 3 * 12
    assert counts[0] > 50 and counts == list(range(counts[0], counts[0] + len(counts)))


# Values that are known


@pytest.mark.slow
def test_values_of_truncated_episodes(off, tmp_path, monkeypatch):
    """Reward 1 at every step and gamma 0.9: the value is 10, whatever a time limit cuts off. Would break: a truncation
    as termination, a next observation of the next episode, a mistake in targets, discount or target networks."""
    agents, evaluate = [], off.evaluate

    def keep(agent, *args):
        agents.append(agent)
        return evaluate(agent, *args)

    monkeypatch.setattr(off, "evaluate", keep)
    flags = {"env_id": "EndlessBox-v0", "gamma": 0.9, "tau": 0.1, "batch_size": 32}
    flags |= {"policy_lr": 1e-3, "q_lr": 1e-3, "learning_starts": 100, "total_timesteps": 1300}
    flags |= {"num_envs": 4, "buffer_size": 4000}
    if off.__name__ == SAC_FILE:
        flags |= {"autotune": False, "alpha": 1e-6}
    off.train(tiny(off, tmp_path, **flags))
    (agent,) = agents
    obs = torch.tensor([[-1.0], [1.0]])
    with torch.no_grad():
        values = agent.get_values(obs, agent.get_mean_action(obs))
    assert (values - 10).abs().max() < 0.2
