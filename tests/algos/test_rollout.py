"""What a rollout records, logs and normalises, on an environment whose every number is known beforehand.

Two copies of Counter, 8 rows a rollout, two rollouts; | ends an episode, R is the reset row after it:
  id 0, lengths 3 2 4 3:  s s s| R s s| R s   / s s s| R s s s| R      6 valid rows, then 6
  id 1, lengths 4 3 5 4:  s s s s| R s s s|   / R s s s s s| R s       7 valid rows, then 6
so global_step is 13, then 25. An episode of length L returns L(L + 1)/2 + L x id.
  first rollout:  id 0 ends 3 and 2 long: 6, 3;    id 1 ends 4 and 3 long: 14, 9;   means 8 and 3
  second rollout: id 0 ends 4 and 3 long: 10, 6;   id 1 ends 5 long: 20;            means 12 and 4
"""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
import toy_envs
from conftest import (
    NAMES,
    files,
    has,
    load,
    read_checkpoint,
    run_folder,
    scalars,
    spy,
    tiny,
    toy,
)
from toy_envs import Counter

GAMMA, LAMBDA = 0.9, 0.8


@pytest.fixture(params=["ppo_continuous", "ppo"])
def algo(request):
    """The variants have ppo_continuous.py's train()."""
    return load(request.param)


@pytest.fixture
def record(algo, monkeypatch, tmp_path):
    """Train on Counter with flags; a dictionary a rollout: agent, batch, rows stepped so far."""

    def run(known_critic: bool = True, **flags):
        class Known(algo.Agent):
            """The critic is V = steps / 2 + episode + 1 of the raw observation; actions reach out of bounds."""

            def __init__(self, *args):
                super().__init__(*args)
                if algo.__name__ in NAMES:
                    self.actor_logstd.data.fill_(1.0)

            def get_value(self, x):
                raw = x
                if self.args.norm_obs:
                    raw = x * (self.obs_rms.var + 1e-8).sqrt() + self.obs_rms.mean
                return raw[..., 1] / 2 + raw[..., 2] + 1

        rollouts = []

        def before_update(agent, optimizer, args, batch, *_):
            rollouts.append(
                {
                    "agent": agent,
                    "frozen": copy.deepcopy(agent),
                    "rows": list(Counter.rows),
                    "learning_rate": optimizer.param_groups[0]["lr"],
                    "batch": {name: tensor.clone() for name, tensor in batch.items()},
                }
            )

        if known_critic:
            monkeypatch.setattr(algo, "Agent", Known)
        spy(monkeypatch, algo, "update", before_update)
        Counter.rows.clear()
        plain = {"norm_obs": False, "norm_reward": False, "gamma": GAMMA, "gae_lambda": LAMBDA}
        args = tiny(algo, tmp_path, total_timesteps=25, **(plain | flags))
        return algo.train(args), rollouts

    return run


def length(id: int, episode: int) -> int:
    return Counter.LENGTHS[episode % 3] + id


def expected_rows(rollout: int) -> list[tuple[int, int, int]]:
    """(id, steps, episode) of the valid rows of rollout 0 or 1, by playing the schedule above."""
    rows = []
    for id in (0, 1):
        timeline = []
        for episode in range(6):
            timeline += [(id, step, episode) for step in range(length(id, episode))] + [None]
        rows += [row for row in timeline[8 * rollout : 8 * rollout + 8] if row]
    return rows


def table(rows) -> list[tuple[int, ...]]:
    return sorted(tuple(int(value) for value in row) for row in rows)


def test_logged_returns_lengths_and_steps(algo, record, tmp_path):
    """Would break: returns of scaled rewards, a reset row counted as a step, an episode that keeps its old sum."""
    summary, _ = record(norm_reward=True)
    logged = scalars(run_folder(tmp_path))
    assert logged["charts/episodic_return"] == [(13, 8.0), (25, 12.0)]
    assert logged["charts/episodic_length"] == [(13, 3.0), (25, 4.0)]
    assert [step for step, _ in logged["losses/policy_loss"]] == [13, 25]
    assert logged["eval/episodic_return"] == [(25, 10.0)]
    assert summary["global_step"] == 25
    assert sorted(summary["eval_returns"]) == [6.0, 14.0]  # the first episode of each id
    assert summary["eval_return_mean"] == 10.0
    assert summary["eval_return_std"] == 4.0
    assert summary["train_return_last100"] == pytest.approx((6 + 3 + 14 + 9 + 10 + 6 + 20) / 7)


def test_batch_holds_the_valid_rows_and_no_other(record):
    """Would break: a reset row that is trained on, or a valid row that is dropped."""
    _, rollouts = record()
    for number, rollout in enumerate(rollouts):
        x = rollout["batch"]["x"]
        assert table(x) == sorted(expected_rows(number))
        assert [len(tensor) for tensor in rollout["batch"].values()] == [[13, 12][number]] * 6
        assert all(row[1] < length(int(row[0]), int(row[2])) for row in x)
    assert [len(rollout["batch"]["x"]) for rollout in rollouts] == [13, 12]


@files("ppo_continuous", "ppo_squashed", "ppo")
def test_batch_holds_the_action_before_clipping(algo, record):
    """Would break: a buffer of clipped or squashed actions, whose log-probability is not the draw's; an
    action that the environment did not get."""
    _, rollouts = record()
    beyond = 0
    for rollout in rollouts:
        played = {tuple(obs): action for obs, action, _ in rollout["rows"]}
        x, actions, logprobs, *_ = rollout["batch"].values()
        for row, action in zip(x, actions):
            inside = action.clamp(-1, 1)
            if algo.__name__ == "ppo_squashed":
                inside = action.tanh()
            if algo.__name__ == "ppo":
                inside = torch.tensor([2.0 * action - 1])
            torch.testing.assert_close(torch.from_numpy(played[tuple(row.tolist())]), inside)
        beyond += int((actions.abs() > 1).sum())
        torch.testing.assert_close(rollout["frozen"].get_action(x, actions)[1], logprobs)
    assert beyond > 5 or algo.__name__ == "ppo"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_actions_stay_in_their_space(name, kind):
    """Would break: bounds that are rounded on the way, an action that is rounded past them: an environment
    that asks `action_space.contains(action)` raises."""
    algo, rng = load(name), np.random.default_rng(1)
    low, high = kind(rng.integers(-9, 0, 500) / 10), kind(rng.integers(1, 10, 500) / 10)
    space = gym.spaces.Box(low, high, dtype=kind)
    agent = algo.Agent(3, space, algo.Args())
    for far in (-100.0, 100.0):
        assert space.contains(agent.to_env(torch.full([1, 500], far))[0])


def reference_advantages(rows, bootstrap_truncation: bool, scale: float = 1.0) -> dict:
    """{(id, steps, episode): advantage} for the rows of one rollout, episode by episode, forward in time."""

    def value(steps, episode):
        return steps / 2 + episode + 1

    present, result = set(rows), {}
    for id, start, episode in rows:
        advantage, weight, step = 0.0, 1.0, start
        while (id, step, episode) in present:
            last = step + 1 == length(id, episode)
            terminal = last and (episode % 2 == 0 or not bootstrap_truncation)
            following = 0.0 if terminal else value(step + 1, episode)
            advantage += weight * (
                (step + 1 + id) / scale + GAMMA * following - value(step, episode)
            )
            weight, step = weight * GAMMA * LAMBDA, step + 1
        result[id, start, episode] = advantage
    return result


@pytest.mark.parametrize("bootstrap_truncation", [True, False])
def test_advantages_of_terminated_and_truncated_episodes(algo, record, bootstrap_truncation):
    """Would break: a truncated episode bootstrapped from the next episode's first observation, or from
    nothing."""
    if not bootstrap_truncation and not has(algo, "bootstrap_truncation"):
        pytest.skip("always bootstraps")
    flags = {} if bootstrap_truncation else {"bootstrap_truncation": False}
    _, rollouts = record(**flags)
    for number, rollout in enumerate(rollouts):
        x, _, _, advantages, targets, values = rollout["batch"].values()
        expected = reference_advantages(expected_rows(number), bootstrap_truncation)
        for row, advantage, target, value in zip(x.int().tolist(), advantages, targets, values):
            assert advantage.item() == pytest.approx(expected[tuple(row)], abs=1e-4)
            assert value.item() == pytest.approx(row[1] / 2 + row[2] + 1)
            assert target.item() == pytest.approx((advantage + value).item(), abs=1e-4)


def discounted_returns(rows) -> list[float]:
    """The running discounted return at each row, from 0 at the start of an episode."""
    running, result = {}, []
    for obs, _, reward in rows:
        id, steps, _ = obs
        running[id] = reward + (GAMMA * running[id] if steps else 0.0)
        result.append(running[id])
    return result


def test_reward_statistics(record, tmp_path):
    """Would break: a trace that runs through an episode's end, reset rows in the statistics, a sample variance."""
    _, rollouts = record(norm_reward=True)
    for number, rollout in enumerate(rollouts):
        traces, stored = discounted_returns(rollout["rows"]), rollout["frozen"].return_rms
        assert stored.count == len(traces) == [13, 25][number]
        assert stored.mean.item() == pytest.approx(np.mean(traces), rel=1e-5)
        assert stored.var.item() == pytest.approx(np.var(traces), rel=1e-5)
        scale = (np.var(traces) + 1e-8) ** 0.5
        expected = reference_advantages(expected_rows(number), True, scale)
        batch = rollout["batch"]
        for row, advantage in zip(batch["x"].int().tolist(), batch["advantage"]):
            assert advantage.item() == pytest.approx(expected[tuple(row)], abs=1e-4)
    final = read_checkpoint(run_folder(tmp_path))["agent"]
    assert final["return_rms.var"].item() == pytest.approx(np.var(traces), rel=1e-5)


def test_rewards_of_reset_rows(algo, record, monkeypatch, tmp_path):
    """Would break: a reset row's reward in the next episode's trace, and so in the scale of the rewards."""
    record(norm_reward=True)
    quiet = read_checkpoint(run_folder(tmp_path))["agent"]
    original = algo.make_envs

    def loud(*args, **kwargs):
        envs, obs = original(*args, **kwargs)
        return toy_envs.LastReward(envs), obs

    monkeypatch.setattr(algo, "make_envs", loud)
    record(norm_reward=True, runs_dir=str(tmp_path / "loud" / "runs"))
    after = read_checkpoint(run_folder(tmp_path / "loud"))["agent"]
    assert all(torch.equal(quiet[name], after[name]) for name in quiet)


def test_observation_statistics(record, tmp_path):
    """Would break: statistics over reset rows, of normalised observations, or changed within an iteration."""
    _, rollouts = record(norm_obs=True)
    seen = 0
    for number, rollout in enumerate(rollouts):
        stored = rollout["frozen"].obs_rms
        assert stored.count == seen == [0, 13][number]
        earlier = (
            np.array([obs for obs, _, _ in rollout["rows"][:seen]])
            if seen
            else np.array([[-1.0] * 3, [1] * 3])
        )
        np.testing.assert_allclose(stored.mean, earlier.mean(0), rtol=1e-5)
        np.testing.assert_allclose(stored.var, earlier.var(0), rtol=1e-5)
        raw = np.array(expected_rows(number))
        x, actions, logprobs, _, _, values = rollout["batch"].values()
        expected = ((raw - earlier.mean(0)) / np.sqrt(earlier.var(0) + 1e-8)).clip(-10, 10)
        np.testing.assert_allclose(np.sort(x, axis=0), np.sort(expected, axis=0), atol=1e-5)
        torch.testing.assert_close(rollout["frozen"].get_action(x, actions)[1], logprobs)
        torch.testing.assert_close(rollout["frozen"].get_value(x), values)
        seen = len(rollout["rows"])
    final = read_checkpoint(run_folder(tmp_path))["agent"]
    rows = np.array([obs for obs, _, _ in rollout["rows"]])
    assert final["obs_rms.count"] == len(rows) == 25
    np.testing.assert_allclose(final["obs_rms.mean"], rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(final["obs_rms.var"], rows.var(0), rtol=1e-5)


def test_evaluation_changes_nothing(algo, record):
    """Would break: statistics or weights that move while the agent is judged."""
    summary, rollouts = record(known_critic=False, norm_obs=True, norm_reward=True)
    agent, args = rollouts[-1]["agent"], rollouts[-1]["agent"].args
    before, generator = copy.deepcopy(agent.state_dict()), torch.get_rng_state()
    returns = algo.evaluate(agent, *algo.make_envs(args, "gymnasium", 5, 77))
    assert sorted(returns) == [6.0, 6.0, 14.0, 14.0, 14.0] and isinstance(returns, np.ndarray)
    assert all(torch.equal(before[key], value) for key, value in agent.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())


def test_evaluation_takes_the_first_episode_of_each_environment(algo, record):
    """Would break: the first n episodes to end, which favours short ones; the noise of the policy."""
    _, rollouts = record(known_critic=False)
    agent = rollouts[-1]["agent"]
    Counter.rows.clear()
    agent.args.env_id = toy(algo, "Uneven")
    returns = algo.evaluate(agent, *algo.make_envs(agent.args, "gymnasium", 4, 0))
    assert returns.tolist() == [3, 90, 3, 90]
    for obs, action, _ in Counter.rows:
        x = agent.normalize(torch.from_numpy(obs))[None]
        if algo.__name__ in NAMES:
            mode = agent.to_env(agent.actor_mean(x).detach())[0]
        else:
            mode = 2.0 * agent.to_env(agent.actor(x).argmax(-1)) - 1
        np.testing.assert_allclose(action, mode, rtol=1e-5)


def test_running_mean_std_with_a_large_offset(algo):
    """Would break: mean of squares minus square of mean, which loses every digit here."""
    rows = torch.randn(1000, 2) * torch.tensor([1.0, 0.1]) + torch.tensor([1000.0, -5.0])
    rms = algo.RunningMeanStd(2)
    for part in rows.split([1, 7, 92, 900]):
        rms.update(part)
    np.testing.assert_allclose(rms.mean, rows.double().mean(0), rtol=1e-5)
    np.testing.assert_allclose(rms.var, rows.double().var(0, correction=0), rtol=1e-2)


def test_learning_rate_falls_linearly(algo, record, tmp_path):
    """Would break: a schedule that counts something else than steps, or none; one that reaches the log alone."""
    _, rollouts = record(learning_rate=0.01)
    logged = scalars(run_folder(tmp_path))["charts/learning_rate"]
    assert [step for step, _ in logged] == [13, 25]
    expected = pytest.approx([0.01, 0.01 * (1 - 13 / 25)])
    assert [rate for _, rate in logged] == expected
    assert [rollout["learning_rate"] for rollout in rollouts] == expected
