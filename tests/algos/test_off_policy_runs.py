"""Runs of SAC, TD3 and DDPG: the replay against what the environments really did, the times of updates, the actions,
and values that are known beforehand."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from conftest import load, run_folder, tiny
from plainrl_tools.probing import environments  # noqa: F401  (registers ProbeEndless-v0)
from test_off_policy import (
    ACTION_DIM,
    FILES,
    HIGH,
    LOW,
    OBS_DIM,
    SAC_FILE,
    Told,
    answer,
    copies,
    first_update,
    key,
    play,
    same,
    sampled,
)


@pytest.fixture(params=FILES)
def off(request):
    return load(request.param)


def zero_loss(agent):
    return 0 * sum(parameter.sum() for parameter in agent.actor.parameters())


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


@pytest.mark.slow
def test_values_of_truncated_episodes(off, tmp_path, monkeypatch):
    """Reward 1 at every step and gamma 0.9: the value is 10, whatever a time limit cuts off. Would break: a truncation
    as termination, a next observation of the next episode, a mistake in targets, discount or target networks."""
    agents, evaluate = [], off.evaluate

    def keep(agent, *args):
        agents.append(agent)
        return evaluate(agent, *args)

    monkeypatch.setattr(off, "evaluate", keep)
    flags = {"env_id": "ProbeEndless-v0", "gamma": 0.9, "tau": 0.1, "batch_size": 32}
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
