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
    load,
    read_checkpoint,
    run_folder,
    spy,
    tiny,
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


def test_running_mean_std_with_a_large_offset(algo):
    """Would break: mean of squares minus square of mean, which loses every digit here."""
    rows = torch.randn(1000, 2) * torch.tensor([1.0, 0.1]) + torch.tensor([1000.0, -5.0])
    rms = algo.RunningMeanStd(2)
    for part in rows.split([1, 7, 92, 900]):
        rms.update(part)
    np.testing.assert_allclose(rms.mean, rows.double().mean(0), rtol=1e-5)
    np.testing.assert_allclose(rms.var, rows.double().var(0, correction=0), rtol=1e-2)
