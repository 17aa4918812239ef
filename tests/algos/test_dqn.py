"""When DQN explores, learns and copies its target network, counted on FakeAtari (see test_atari_rollout.py)."""

import itertools

import gymnasium as gym
import pytest
import torch
from conftest import files, run_folder, scalars, spy, tiny
from toy_envs import FakeAtari

pytestmark = files("dqn_atari")
TOTAL = 61


def steps(num_envs: int) -> list[int]:
    """global_step after each row, up to the end of a run."""
    valid = [[row is not None for row in FakeAtari.timeline(i, 2 * TOTAL)] for i in range(num_envs)]
    every = [0, *itertools.accumulate(sum(row) for row in zip(*valid))]
    return every[: next(k for k, step in enumerate(every) if step >= TOTAL) + 1]


@pytest.fixture
def record(small, monkeypatch, tmp_path):
    """Train with flags; for each update (global_step, weights, target's weights), for each choice (step, epsilon)."""

    def run(**flags):
        updates, choices, get_action = [], [], small.Agent.get_action

        def before_update(agent, target_agent, optimizer, args, batch, *_):
            both = [
                [p.detach().clone() for p in network.parameters()]
                for network in (agent, target_agent)
            ]
            updates.extend([(len(FakeAtari.rows), *both)] * (len(batch["obs"]) // args.batch_size))

        def choose(agent, obs, epsilon):
            choices.append((len(FakeAtari.rows), epsilon))
            return get_action(agent, obs, epsilon)

        monkeypatch.setattr(small.Agent, "get_action", choose)
        spy(monkeypatch, small, "update", before_update)
        small.train(tiny(small, tmp_path, total_timesteps=TOTAL, buffer_size=100, **flags))
        return updates, choices

    return run


@pytest.mark.parametrize("num_envs", [1, 2, 3])
@pytest.mark.parametrize("frequency", [1, 2, 4, 7])
def test_updates(record, num_envs, frequency):
    """Would break: an update for each row of environments and not for each --train-frequency steps, whatever their
    number; updates before --learning-starts, or all that were missed until then at once."""
    updates, _ = record(num_envs=num_envs, train_frequency=frequency, learning_starts=18)
    expected = []
    for row, (before, after) in enumerate(itertools.pairwise(steps(num_envs)), 1):
        crossed = [step for step in range(before + 1, after + 1) if step % frequency == 0]
        expected += [after] * len(crossed) * (row * num_envs >= 18)
    assert expected and [step for step, *_ in updates] == expected


@pytest.mark.parametrize(("frequency", "tau"), [(5, 1.0), (5, 0.3), (1, 0.1), (16, 1.0), (2, 0.5)])
def test_target_network(record, frequency, tau):
    """3 environments, so that a row of steps passes up to 3 multiples. Would break: one copy for each
    such row where 3 were asked for; one that is missed; the wrong share."""
    flags = dict(num_envs=3, train_frequency=1, learning_starts=12, tau=tau)
    updates, _ = record(learning_rate=0.01, target_network_frequency=frequency, **flags)
    firsts = [next(group) for _, group in itertools.groupby(updates, key=lambda update: update[0])]
    every, copies = steps(3), 0
    for (at, _, old), (_, agent, target) in itertools.pairwise(firsts):
        many = at // frequency - every[every.index(at) - 1] // frequency
        copies += many
        for was, online, now in zip(old, agent, target):
            torch.testing.assert_close(now, online + (1 - tau) ** many * (was - online))
    assert copies >= 3
    assert not torch.equal(firsts[-1][1][0], firsts[0][1][0])


@pytest.mark.parametrize("fraction", [0.5, 0.25, 0.0])
def test_epsilon(record, fraction):
    """Would break: a schedule over rows in place of steps, one that goes on below its end, another in evaluations;
    one that falls while nothing is learned, so that an untrained network fills the replay."""
    flags = dict(start_e=0.9, end_e=0.1, eval_e=0.03, exploration_fraction=fraction)
    _, choices = record(num_envs=2, learning_starts=20, **flags)
    every = steps(2)[:-1]
    assert [step for step, _ in choices[: len(every)]] == every
    for step, epsilon in choices[: len(every)]:
        share = (step - 20) / (fraction * TOTAL) if fraction else float(step >= 20)
        expected = 0.9 - 0.8 * min(max(share, 0), 1)
        assert epsilon == pytest.approx(expected)
    assert len(choices) > len(every) and {epsilon for _, epsilon in choices[len(every) :]} == {0.03}


def test_each_environment_explores_for_itself(atari):
    """Would break: one draw for all environments; a random action that is never the best one."""
    agent, rows = atari.Agent(gym.spaces.Discrete(4), atari.Args(), "float32"), 20_000
    obs, best = torch.zeros(rows, 1), torch.arange(rows) % 4
    agent.forward = lambda obs: torch.nn.functional.one_hot(best, 4).float()
    assert torch.equal(agent.get_action(obs, 0.0), best)
    action = agent.get_action(obs, 0.4)
    share = (action == best).float().mean().item()
    assert share == pytest.approx(0.6 + 0.4 / 4, abs=0.015)
    others = torch.bincount((action - best)[action != best] % 4, minlength=4)[1:] / rows
    assert others.tolist() == pytest.approx([0.1] * 3, abs=0.01)
    assert torch.bincount(agent.get_action(obs, 1.0)).div(rows).tolist() == pytest.approx(
        [0.25] * 4, abs=0.015
    )


def test_first_update_has_something_to_draw(record):
    """Would break: --learning-starts so small that the replay holds the newest row only."""
    updates, _ = record(num_envs=2, learning_starts=8, train_frequency=1)
    assert [step for step, *_ in updates][:2] == [8, 8]


def test_losses_are_those_of_the_updates(small, monkeypatch, tmp_path):
    """Would break: means over another interval, metrics of one update in place of all."""
    returned, update = [], small.update

    def keep(*args):
        returned.append((len(FakeAtari.rows), update(*args)))
        return returned[-1][1]

    monkeypatch.setattr(small, "update", keep)
    flags = {"total_timesteps": 60, "checkpoint_frequency": 20, "exploration_fraction": 1.0}
    small.train(tiny(small, tmp_path, num_envs=1, train_frequency=1, **flags))
    logged = scalars(run_folder(tmp_path))
    lines = [0, *(step for step, _ in logged["losses/td_loss"])]
    assert lines == [0, 20, 40, 60]
    for k, (before, line) in enumerate(itertools.pairwise(lines)):
        made = [metrics for step, metrics in returned if before < step <= line]
        for key in ("losses/td_loss", "losses/q_values"):
            mean = torch.stack([metrics[key] for metrics in made]).mean().item()
            assert logged[key][k] == (line, pytest.approx(mean, rel=1e-5))
        epsilon = 1 - 0.99 * (line - 1 - 8) / 60
        assert logged["charts/epsilon"][k] == (line, pytest.approx(epsilon))
