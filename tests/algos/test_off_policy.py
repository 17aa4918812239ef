"""SAC, TD3 and DDPG: each formula by hand, and one update against stable-baselines3."""

import math
from functools import partial
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
import toy_envs
from conftest import load, tiny
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


toy_envs.register("Told-v0", Told)


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


# By hand, and against PyTorch


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


def test_bfloat16_is_between_the_first_and_the_last_layer(off):
    """Would break: inputs and outputs that are rounded to bfloat16, or products that are not computed in it."""
    agent = off.Agent(OBS_DIM, toy_envs.box(ACTION_DIM, 1.0), off.Args(), "bfloat16")
    for network in (agent.actor, agent.critics):
        types = []
        for layer in network[::2]:
            layer.register_forward_hook(lambda layer, x, y, types=types: types.append(y.dtype))
        x = torch.zeros(agent.num_critics, 4, network[0].weight.shape[1])
        agent.compute(network, x if network is agent.critics else torch.zeros(4, OBS_DIM))
        assert types == [torch.float32, torch.bfloat16, torch.float32]


@pytest.mark.parametrize(("precision", "said"), [("bfloat16", True), ("float32", False)])
def test_large_observations_in_bfloat16(off, precision, said, tmp_path, capsys):
    """Would break: an environment whose observations change by less than bfloat16 can tell, without a word."""
    func = partial(np.add, 1000, dtype=np.float32)
    off.WRAPPERS = (partial(gym.wrappers.TransformObservation, func=func, observation_space=None),)
    off.train(tiny(off, tmp_path, env_id="Pendulum-v1", precision=precision))
    line = "observations near 1e+03 lose small differences in bfloat16; use --precision float32"
    assert (line in capsys.readouterr().err) == said


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
