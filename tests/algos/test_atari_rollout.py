"""What the Atari files record, log and learn from, on FakeAtari, whose every number is known beforehand.

Two environments, 8 rows a rollout; | ends a game, R is the reset row after it:
  i = 0, lengths 4 3 7 ..:  s s s s| R s s s|   / R s s s s s s s|     7 valid rows, then 7
  i = 1, lengths 5 4 8 ..:  s s s s s| R s s    / s s| R s s s s s     7 valid rows, then 7
so global_step is 14, then 28. Rewards are 3 0 -2 5 0 1 -4 (times 2 where i = 1), so the games return
  first rollout:  i = 0: 6 and 1;  i = 1: 12        means 19/3 and 4 (of the lengths 4 3 5)
  second rollout: i = 0: 3;        i = 1: 12        means 15/2 and 11/2 (of the lengths 7 4)
"""

import copy
from types import SimpleNamespace

import ale_py
import numpy as np
import pytest
import torch
from conftest import files, run_folder, scalars, spy, tiny
from toy_envs import FakeAtari

GAMMA, LAMBDA, T = 0.9, 0.8, 8


def value_of(obs: torch.Tensor) -> torch.Tensor:
    """V = step / 2 + game + 1 of the newest frame, (n, 4, 84, 84) -> (n,)."""
    return (obs[:, -1, 56, 0].float() - 1) / 2 + obs[:, -1, 28, 0].float()


@pytest.fixture
def small(small, monkeypatch):
    """A file whose critic is known, besides."""

    class Known(small.Agent):
        def get_value(self, obs):
            return value_of(obs)

        def get_action_and_value(self, obs, action=None):
            *rest, value = super().get_action_and_value(obs, action)
            return *rest, value_of(obs) + 0 * value

    monkeypatch.setattr(small, "Agent", Known)
    return small


@pytest.fixture
def record(small, monkeypatch, tmp_path):
    """Train on FakeAtari with flags; the summary, and each update's arguments, tensors copied."""

    def run(**flags):
        updates = []

        def copy(value):
            if isinstance(value, dict):
                return {key: copy(part) for key, part in value.items()}
            return value.detach().clone() if isinstance(value, torch.Tensor) else value

        def before_update(agent, *rest):
            updates.append([copy(part) for part in rest])

        spy(monkeypatch, small, "update", before_update)
        summary = small.train(tiny(small, tmp_path, gamma=GAMMA, **flags))
        return summary, updates

    return run


def outcome(i, game, step, life_loss=True, clip=True) -> tuple[int, bool, bool]:
    """Reward, terminal (worth nothing to the learner) and truncated of the row (i, game, step)."""
    reward, last = FakeAtari.reward(i, step + 1), step + 1 == FakeAtari.length(i, game)
    before, after = (FakeAtari.lives(i, game, s) for s in (step, step + 1))
    terminal = last and game % 2 == 0 or life_loss and 0 < after < before
    truncated = last and game % 2 == 1
    return int(np.sign(reward)) if clip else reward, terminal, truncated


def rows_of(rollout: int, valid: bool = True) -> list[tuple[int, int, int]]:
    """(i, game, step) of the rows of a rollout, in the order of the batch; of the reset rows, with valid off."""
    both = [FakeAtari.timeline(i, 2 * T)[T * rollout :][:T] for i in (0, 1)]
    return [
        (i, *row) if row else None
        for rows in zip(*both)
        for i, row in enumerate(rows)
        if bool(row) == valid
    ]


def shown(stack) -> list:
    return [FakeAtari.decode(frame) for frame in stack]


def stack_of(i, game, step) -> list:
    """What a stack of four shows at a step: black from before the reset."""
    return [(i, game, s) if s >= 0 else None for s in range(step - 3, step + 1)]


def test_terminal_rows_by_hand():
    """The rules above, where they matter: a life lost at the second step; at a truncation; none from 0 to 2."""
    terminals = [(0, 0, 1), (0, 0, 3), (0, 1, 1), (0, 1, 2), (0, 2, 1), (0, 2, 6)]
    terminals += [(1, 0, 1), (1, 0, 4), (1, 1, 1), (1, 2, 1)]
    rows = sorted(row for rollout in (0, 1) for row in rows_of(rollout))
    assert len(rows) == 28
    assert [row for row in rows if outcome(*row)[1]] == terminals
    assert [row for row in rows if outcome(*row, life_loss=False)[1]] == [
        (0, 0, 3),
        (0, 2, 6),
        (1, 0, 4),
    ]
    assert [row for row in rows if outcome(*row)[2]] == [(0, 1, 2), (1, 1, 3)]
    assert [outcome(0, 0, step)[0] for step in range(4)] == [1, 0, -1, 1]
    assert [outcome(1, 0, step, clip=False)[0] for step in range(4)] == [6, 0, -4, 10]


def test_logged_returns_lengths_and_steps(small, record, tmp_path):
    """Would break: clipped returns, games that end with a life, a reset row that is counted."""
    summary, _ = record()
    logged, often = (
        scalars(run_folder(tmp_path)),
        small.__name__ == "ppo_atari",
    )  # the others log every 2000 steps
    assert (
        logged["charts/episodic_return"] == [(14, pytest.approx(19 / 3)), (28, 7.5)]
        if often
        else [(28, 34 / 5)]
    )
    assert logged["charts/episodic_length"] == [(14, 4.0), (28, 5.5)] if often else [(28, 23 / 5)]
    assert logged["eval/episodic_return"] == [(28, 9.0)]
    assert summary["global_step"] == 28
    assert summary["eval_returns"] == [6.0, 12.0]  # the first games
    assert (summary["eval_return_mean"], summary["eval_return_std"]) == (9.0, 3.0)
    assert summary["train_return_last100"] == pytest.approx((6 + 1 + 12 + 3 + 12) / 5)
    assert len(FakeAtari.rows) == 28


@files("ppo_atari", "a2c_atari")
def test_batch_holds_what_happened(small, record):
    """Would break: a reset row that is trained on, a row dropped or shifted, an action other than the one
    played. A2C's batch has the reset rows, with a weight of none."""
    _, updates = record()
    assert len(updates) == 2
    for number, (_, _, batch, *_) in enumerate(updates):
        obs, actions = batch["obs"], batch["action"]
        if small.__name__ == "a2c_atari":
            obs, actions = obs[batch["valid"]], actions[batch["valid"]]
        assert obs.shape == (14, 4, 84, 84) and obs.dtype == torch.uint8
        played = {row[:3]: row[3] for row in FakeAtari.rows}
        assert [tuple(shown(stack)) for stack in obs] == [
            tuple(stack_of(*row)) for row in rows_of(number)
        ]
        assert actions.tolist() == [played[row] for row in rows_of(number)]
    assert len(set(played.values())) > 1


def reference(rollout: int, lam=LAMBDA, life_loss=True, clip=True) -> dict:
    """{row: advantage} of the rows of a rollout, in float64, forward in time from each row."""

    def value(game, step):
        return step / 2 + game + 1

    rows, result = rows_of(rollout), {}
    for i, game, start in rows:
        advantage, weight, step = 0.0, 1.0, start
        while (i, game, step) in rows:
            reward, terminal, truncated = outcome(i, game, step, life_loss, clip)
            following = 0.0 if terminal else value(game, step + 1)
            advantage += weight * (reward + GAMMA * following - value(game, step))
            if terminal:
                break
            weight, step = weight * GAMMA * lam, step + 1
        result[i, game, start] = advantage
    return result


FLAGS = [
    {},
    {"terminal_on_life_loss": False, "fire_on_life_loss": False},
    {"clip_reward": False},
]
NAMES = {"terminal_on_life_loss": "life_loss", "clip_reward": "clip"}


def named(flags: dict) -> dict:
    """Flags, in the words of outcome()."""
    return {NAMES[flag]: on for flag, on in flags.items() if flag in NAMES}


@files("ppo_atari", "a2c_atari")
@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_advantages_and_targets(small, record, flags):
    """Would break: a truncated game bootstrapped from the next game's first observation, or from nothing; a life loss
    that ends nothing, or the game. The n-step return is the advantage with lambda = 1 above the value."""
    ppo = small.__name__ == "ppo_atari"
    _, updates = record(**flags, **({"gae_lambda": LAMBDA} if ppo else {}))
    for number, (_, _, batch, *_) in enumerate(updates):
        expected = reference(number, lam=LAMBDA if ppo else 1.0, **named(flags))
        obs, values, targets = batch["obs"], value_of(batch["obs"]), batch["target"]
        where = {shown(stack)[-1]: row for row, stack in enumerate(obs)}
        for row, advantage in expected.items():
            at = where[row]
            assert targets[at].item() == pytest.approx(advantage + values[at].item(), abs=1e-5)
            if ppo:
                assert batch["advantage"][at].item() == pytest.approx(advantage, abs=1e-5)
                assert batch["old_value"][at] == values[at]


@files("ppo_atari")
def test_stored_log_probabilities_are_those_of_the_draws(small, record, monkeypatch):
    """Would break: a log-probability of another action or under other weights."""
    agents = []
    spy(monkeypatch, small, "update", lambda agent, *_: agents.append(copy.deepcopy(agent)))
    _, updates = record(learning_rate=0.01)
    assert len(agents) == len(updates) == 2
    under = [
        [agent.get_action_and_value(batch["obs"], batch["action"])[1] for agent in agents]
        for _, _, batch, *_ in updates
    ]
    for k, (_, _, batch, *_) in enumerate(updates):
        torch.testing.assert_close(under[k][k], batch["old_logprob"])
        assert not torch.allclose(
            under[k][1 - k], batch["old_logprob"]
        )  # weights can be told apart


@pytest.fixture
def replay(small, monkeypatch):
    """The replay of the next run."""
    made, build = [], small.Replay.__init__

    def keep(self, *args):
        build(self, *args)
        made.append(self)

    monkeypatch.setattr(small.Replay, "__init__", keep)
    return made


@files("dqn_atari")
@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_replay_holds_what_happened(small, record, replay, flags):
    """Would break: a life loss taken for the game's end, a reset row that is drawn, an action of another row."""
    record(**flags)
    (replay,) = replay
    flags, played = named(flags), {row[:3]: row for row in FakeAtari.rows}
    assert replay.count == 16 and len(replay.frame) == 32
    for i in (0, 1):
        for t, row in enumerate(FakeAtari.timeline(i, 16)):
            names = ("action", "reward", "terminal", "valid", "age")
            action, reward, terminal, valid, age = (getattr(replay, name)[t, i] for name in names)
            assert valid == (row is not None)
            if row:
                assert FakeAtari.decode(replay.frame[t, i]) == (i, *row)
                assert age == min(row[1], 3)
                assert action == played[i, *row][3]
                assert (reward, terminal) == outcome(i, *row, **flags)[:2]


@files("dqn_atari")
def test_batches_hold_what_happened(small, record):
    """Would break: another next observation than the true final one, a terminal state where there is none."""
    _, updates = record(batch_size=64, train_frequency=1)
    drawn, played = set(), {row[:3]: row for row in FakeAtari.rows}
    for _, _, _, batch, *_ in updates:
        obs, next_obs = batch["obs"], batch["next_obs"]
        action, reward, terminal = batch["action"], batch["reward"], batch["terminal"]
        for k in range(64):
            row = shown(obs[k])[-1]
            i, game, step = row
            assert shown(obs[k]) == stack_of(*row)
            following = [(i, game, s) if s >= 0 else None for s in range(step - 2, step + 2)]
            assert shown(next_obs[k]) == following
            assert (int(reward[k]), bool(terminal[k])) == outcome(*row)[:2]
            assert int(action[k]) == played[row][3]
            drawn.add(row)
    everything = {row for rollout in (0, 1) for row in rows_of(rollout)}
    assert drawn == everything - {(0, 2, 6), (1, 2, 4)}  # the newest of each


def test_values_that_nobody_learns(small):
    """Those of the script of FIRE, which the game's value would be made from where its life goes on."""
    with pytest.raises(
        ValueError, match="--no-terminal-on-life-loss requires --no-fire-on-life-loss"
    ):
        small.Args(terminal_on_life_loss=False)
    small.Args(terminal_on_life_loss=False, fire_on_life_loss=False)


def test_fire_after_a_lost_life(small, record, request, monkeypatch):
    """In every game the second step costs a life. Would break: a game that begins with another script than FIRE and
    action 2, another one than no-op, FIRE and action 2 after the lost life, steps of it that are learned from or
    counted."""
    monkeypatch.setattr(FakeAtari, "LENGTHS", (9, 8, 12))
    actions = list(ale_py.Action.__members__.values())[:4]
    monkeypatch.setattr(FakeAtari, "ale", SimpleNamespace(get_action_set=lambda: actions))
    replays = request.getfixturevalue("replay") if small.__name__ == "dqn_atari" else None
    script = {0: 1, 1: 2, 2: 0, 3: 1, 4: 2}  # {step of a game: action}
    expected = [[row for row in rows_of(k) if row[2] not in script] for k in (0, 1)]
    ppo = small.__name__.startswith("ppo_atari")
    summary, updates = record(total_timesteps=16, **({"gae_lambda": 1.0} if ppo else {}))
    played = [row for row in FakeAtari.rows if row[2] not in script]
    assert 16 <= summary["global_step"] == len(played) < len(FakeAtari.rows)
    for *_, step, action, _, _ in FakeAtari.rows:
        assert step not in script or action == script[step]
    if replays:
        for i in (0, 1):
            valid = [row is not None and row[1] not in script for row in FakeAtari.timeline(i, 16)]
            assert replays[0].valid[:16, i].tolist() == valid
        return
    for number, (_, _, batch, *_) in enumerate(updates[:2]):
        obs, targets = batch["obs"], batch["target"]
        valid = torch.ones(len(obs)) if ppo else batch["valid"]
        where = {shown(stack)[-1]: row for row, stack in enumerate(obs) if valid[row]}
        assert sorted(where) == sorted(expected[number])
        advantages = reference(number, lam=1.0)  # the script's steps are the game's
        for row in expected[number]:
            target = advantages[row] + value_of(obs[where[row]][None]).item()
            assert targets[where[row]].item() == pytest.approx(target, abs=1e-5)


@files("ppo_atari", "a2c_atari")
def test_greedy_actions(small, record, tmp_path):
    """Would break: a draw in place of the mode, other than 1 % random actions, a summary without the second figure."""
    agent = small.Agent(
        FakeAtari("", 1, reward_clipping=False).single_action_space, small.Args(), "float32"
    )
    obs = torch.zeros(1, 4, 84, 84, dtype=torch.uint8).expand(20_000, -1, -1, -1)
    agent.features = lambda obs: torch.zeros(len(obs), 512)
    agent.actor.bias.data = torch.tensor([0.0, 0.1, 0.3, 0.2])
    share = torch.bincount(agent.get_greedy_action(obs), minlength=4) / len(obs)
    assert share[2] == pytest.approx(1 - 0.01 * 3 / 4, abs=0.003)
    assert share[[0, 1, 3]].tolist() == pytest.approx([0.0025] * 3, abs=0.0015)
    summary, _ = record()
    assert summary["eval_greedy_returns"] == [6.0, 12.0] and summary["eval_greedy_mean"] == 9.0
    assert scalars(run_folder(tmp_path))["eval/greedy_return"] == [(28, 9.0)]
