"""pqn.py and pqn_atari.py: targets, loss, network and exploration. Their runs are in test_runs.py."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import ATARI, PQN, cheap, fake_atari, load, spy, tiny
from toy_envs import Counter, FakeAtari


@pytest.fixture(params=PQN)
def algo(request):
    return load(request.param)


def make_agent(algo, **flags):
    """An agent, and a function that draws observations."""
    args, space = algo.Args(**flags), gym.spaces.Discrete(3)
    if algo.__name__ in ATARI:
        agent = algo.Agent(space, args, "float32")
        return agent, lambda rows: torch.randint(256, (rows, 4, 84, 84), dtype=torch.uint8)
    return algo.Agent(5, space, args), lambda rows: torch.randn(rows, 5)


# ---- targets


def forward_view(rewards, values, terminateds, dones, gamma, q_lambda) -> torch.Tensor:
    """The targets by their definition, one step and environment after another: the n-step returns that end with the
    greedy value of the state they reach, weighted by (1 - lambda) * lambda ** (n - 1); the longest gets the rest."""
    targets = torch.zeros_like(rewards)
    for env in range(rewards.shape[1]):
        for start in range(len(rewards)):
            target, total, weight = 0.0, 0.0, 1.0
            for n, t in enumerate(range(start, len(rewards)), 1):
                total += gamma ** (n - 1) * rewards[t, env].item()
                value = 0.0 if terminateds[t, env] else values[t + 1, env].item()
                n_step_return = total + gamma**n * value
                if dones[t, env] or t == len(rewards) - 1:  # the longest
                    target += weight * n_step_return
                    break
                target += weight * (1 - q_lambda) * n_step_return
                weight *= q_lambda
            targets[start, env] = target
    return targets


@pytest.mark.parametrize("q_lambda", [0.0, 0.65, 1.0])
def test_targets_equal_the_forward_view(algo, q_lambda):
    """Would break: weights of the n-step returns that are not those of Q(lambda)."""
    steps, envs = 40, 6
    values, rewards = torch.randn(steps + 1, envs), torch.randn(steps, envs)
    terminateds = (torch.rand(steps, envs) < 0.1).float()
    dones = (terminateds + (torch.rand(steps, envs) < 0.1)).clamp(max=1)
    rollout = rewards, values, terminateds, dones, 0.9
    expected = forward_view(*rollout, q_lambda)
    torch.testing.assert_close(algo.compute_q_lambda(*rollout, q_lambda), expected)
    if q_lambda == 0:  # the one-step target of DQN
        expected = rewards + 0.9 * values[1:] * (1 - terminateds)
        torch.testing.assert_close(algo.compute_q_lambda(*rollout, q_lambda), expected)


# ---- a run on environments whose every number is known (toy_envs.py)


def follow_counter(obs):
    """(reward, next observation, terminated, truncated) of the step after an observation of Counter."""
    one, steps, episode = (int(number) for number in obs)
    length = Counter.LENGTHS[episode % 3] + one
    assert steps < length, "an autoreset step among the samples"
    done, even = steps + 1 == length, episode % 2 == 0
    next_obs = torch.tensor([one, steps + 1, episode], dtype=torch.float32)
    return steps + 1.0 + one, next_obs, done and even, done and not even


def follow_atari(obs):
    """The same of FakeAtari, for the learner: the sign of the reward, and a lost life is terminal."""
    i, game, step = FakeAtari.decode(obs[-1])
    length = FakeAtari.length(i, game)
    assert step < length, "an autoreset step among the samples"
    done, even = step + 1 == length, game % 2 == 0
    before, after = FakeAtari.lives(i, game, step), FakeAtari.lives(i, game, step + 1)
    life_lost = 0 < after < (before if step else after + 1) and step > 0
    frame = torch.tensor([i + 1, game + 1, step + 2], dtype=torch.uint8).repeat_interleave(28)
    next_obs = torch.cat([obs[1:], frame[:, None].expand(84, 84)[None]])
    reward = float(np.sign(FakeAtari.reward(i, step + 1)))
    return reward, next_obs, done and even or life_lost, done and not even


@pytest.fixture
def toy(algo, monkeypatch):
    """The environment's class, and the function that knows its next step."""
    if algo.__name__ not in ATARI:
        Counter.rows.clear()
        return Counter, follow_counter
    fake_atari(algo, monkeypatch)
    cheap(algo, monkeypatch)
    return FakeAtari, follow_atari


def key(obs) -> bytes:
    return obs.numpy().tobytes()


def played(toy) -> dict:
    """The actions that the environments got, by observation or, of Atari, by environment, game and step."""
    if toy is FakeAtari:
        return {(i, game, step): action for i, game, step, action, *_ in FakeAtari.rows}
    return {tuple(obs.tolist()): int(action.item() + 1) // 2 for obs, action, _ in Counter.rows}


def test_targets_of_a_run(algo, toy, monkeypatch, tmp_path):
    """Would break: autoreset steps that are trained on or counted, the value of an action that is not greedy, the value
    of the next episode's first observation, a lost life that is not terminal, reward and action of another step,
    another optimiser."""
    follow, checked, ends = toy[1], [], set()

    def before_update(agent, optimizer, args, batch, *_):
        assert type(optimizer) is torch.optim.RAdam
        obs, targets = batch["obs"], dict(zip(map(key, batch["obs"]), batch["target"].tolist()))
        checked.append(len(obs))
        actions = played(toy[0])
        for one, action in zip(obs, batch["action"].tolist()):
            row = FakeAtari.decode(one[-1]) if toy[0] is FakeAtari else one.tolist()
            assert actions[tuple(row)] == action
        assert len(targets) == len(obs)
        for one in obs:
            reward, next_obs, terminated, truncated = follow(one)
            value = agent(next_obs[None]).max().item() * (not terminated)
            later = targets.get(key(next_obs))
            ends.add("terminated" * terminated + "truncated" * truncated or later is None)
            if terminated or truncated or later is None:  # None: the rollout ends here
                later = value
            expected = reward + 0.5 * (0.75 * later + 0.25 * value)
            assert targets[key(one)] == pytest.approx(expected, abs=1e-4)

    spy(monkeypatch, algo, "update", before_update)
    summary = algo.train(tiny(algo, tmp_path, gamma=0.5, q_lambda=0.75, total_timesteps=60))
    assert ends >= {"terminated", "truncated", True, False}
    assert sum(checked) == summary["global_step"] == len(toy[0].rows)
    assert len({*played(toy[0]).values()}) > 1


def test_epsilon_follows_the_steps(algo, toy, monkeypatch, tmp_path):
    """Would break: an epsilon of the iteration or of the update, one that counts autoreset steps, another schedule;
    actions with another epsilon."""
    steps, taken = [], []
    spy(monkeypatch, algo, "epsilon_at", lambda step, _: steps.append((step, len(toy[0].rows))))
    name = "get_action_and_value" if algo.__name__ in ATARI else "get_action"
    spy(monkeypatch, algo.Agent, name, lambda agent, obs, epsilon: taken.append(epsilon))
    args = tiny(algo, tmp_path, total_timesteps=60)
    algo.train(args)
    assert len(steps) > 20 and all(step == count for step, count in steps)
    known = [algo.epsilon_at(step, args) for step, _ in [*steps]]  # these calls are spied as well
    assert taken[: len(known)] == known
    args.start_e, args.end_e, args.exploration_fraction, args.total_timesteps = 0.8, 0.2, 0.5, 1000
    epsilons = [algo.epsilon_at(step, args) for step in (0, 250, 500, 999)]
    assert epsilons == pytest.approx([0.8, 0.5, 0.2, 0.2])


# ---- agent and loss


def act(agent, obs, epsilon: float):
    if hasattr(agent, "get_action"):
        return agent.get_action(obs, epsilon)
    return agent.get_action_and_value(obs, epsilon)[0]


def test_exploration(algo):
    """Would break: one draw for all environments, random actions that are never the greedy one."""
    agent, draw = make_agent(algo)
    obs = draw(1).expand(600, *draw(1).shape[1:])
    greedy = agent(obs).argmax(-1)
    assert torch.equal(act(agent, obs, 0.0), greedy)
    different = (act(agent, obs, 0.6) != greedy).float().mean()
    assert 0.3 < different < 0.5  # 0.6 x 2 / 3, as one of three actions is the greedy one


def test_layer_normalisation(algo):
    """Would break: a hidden layer that is not normalised, or after its activation; statistics of the batch; running
    statistics."""
    agent, draw = make_agent(algo)
    kinds = [type(layer).__name__ for layer in agent.network if type(layer).__name__ != "Flatten"]
    hidden = kinds if algo.__name__ in ATARI else kinds[:-1]
    assert len(hidden) == (12 if algo.__name__ in ATARI else 6)
    assert {*hidden[0::3]} <= {"Linear", "Conv2d"}
    assert {*hidden[1::3]} <= {"LayerNorm", "GroupNorm"} and {*hidden[2::3]} == {"ReLU"}
    assert not list(agent.buffers())
    assert all(getattr(layer, "num_groups", 1) == 1 for layer in agent.network)
    x = draw(8).float()
    for layer in agent.network:
        x = layer(x)
        if isinstance(layer, torch.nn.LayerNorm | torch.nn.GroupNorm):
            torch.testing.assert_close(x.flatten(1).mean(1), torch.zeros(8), atol=1e-4, rtol=0)
            torch.testing.assert_close(x.flatten(1).var(1), torch.ones(8), atol=0.02, rtol=0)
    obs = draw(8)
    alone = torch.cat([agent(row) for row in obs.split(1)])
    torch.testing.assert_close(agent(obs), alone, atol=1e-4, rtol=1e-4)


def test_loss_and_gradient_by_hand(algo):
    """Would break: values of other actions, a matrix of differences, the factor 1/2, a sum over the samples."""
    agent, draw = make_agent(algo)
    obs, action, target = draw(4), torch.tensor([0, 2, 1, 2]), torch.tensor([0.5, -1.0, 3.0, 0.0])
    loss, metrics = algo.pqn_loss(agent, obs, action, target)
    loss.backward()
    taken = [agent(obs)[row, action[row]].item() for row in range(4)]
    errors = [value - one for value, one in zip(taken, target.tolist())]
    assert loss.item() == pytest.approx(sum(error**2 for error in errors) / 4, rel=1e-4)
    assert metrics["losses/td_loss"].item() == loss.item()
    assert metrics["losses/q_values"].item() == pytest.approx(sum(taken) / 4, rel=1e-4)
    bias = list(agent.parameters())[-1].grad  # d loss / d bias: 2 x the errors of an action / 4
    expected = [2 * sum(e for e, a in zip(errors, action) if a == each) / 4 for each in range(3)]
    torch.testing.assert_close(bias, torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_update_clips_and_takes_every_sample(algo):
    """Would break: a gradient that is not clipped, a sample that an epoch leaves out."""
    agent, draw = make_agent(algo, num_envs=2, num_steps=6, num_minibatches=3, update_epochs=2)
    batch = {"obs": draw(12), "action": torch.randint(3, (12,)), "target": 1e4 * torch.randn(12)}
    seen, norms, optimizer = [], [], torch.optim.RAdam(agent.parameters(), lr=1e-5)

    def loss_fn(agent, obs, action, target):
        seen.extend(target.tolist())
        return algo.pqn_loss(agent, obs, action, target)

    step = optimizer.step
    optimizer.step = lambda: (
        norms.append(torch.nn.utils.get_total_norm([p.grad for p in agent.parameters()])),
        step(),
    )
    algo.update(agent, optimizer, agent.args, batch, loss_fn)
    assert sorted(seen) == sorted(2 * batch["target"].tolist()) and seen[:12] != seen[12:]
    assert norms == pytest.approx([agent.args.max_grad_norm] * 6, rel=1e-3)
