"""The replay of dqn_atari.py, which stores frames, against a store of whole transitions, over random episodes; what
--save-replay saves."""

import numpy as np
import pytest
import torch
from conftest import ATARI, cheap, fake_atari, load, run_folder, tiny

ROWS, ENVS = 12, 3


class World:
    """Plays random episodes into a Replay and keeps each transition whole; its number is its reward."""

    def __init__(self, rows: int = ROWS, seed: int = 0):
        self.algo, self.rng = load("dqn_atari"), np.random.default_rng(seed)
        self.replay, self.count, self.happened = self.algo.Replay(rows, ENVS), 0, {}
        self.start()

    def start(self):
        """All environments begin an episode, as after a resume."""
        self.done, self.steps, self.obs = (
            np.zeros(ENVS, bool),
            np.zeros(ENVS, int),
            np.zeros((ENVS, 4, 84, 84), "B"),
        )
        self.obs[:, -1] = self.rng.integers(1, 256, (ENVS, 84, 84))

    def play(self, rows: int):
        for _ in range(rows):
            ends = self.rng.choice(
                4, ENVS, p=[0.6, 0.15, 0.1, 0.15]
            )  # goes on, terminates, truncated, a life is lost
            action, valid, obs = self.rng.integers(0, 18, ENVS), ~self.done, self.obs
            number = (np.arange(ENVS) + ENVS * self.count).astype(np.float32)
            terminal = np.isin(ends, (1, 3)) & valid
            self.replay.add(
                obs, np.minimum(self.steps, 3).astype("B"), action, number, terminal, valid
            )
            new = self.rng.integers(1, 256, (ENVS, 1, 84, 84)).astype("B")
            old = np.where(valid[:, None, None, None], obs[:, 1:], 0).astype("B")
            self.obs = np.concatenate([old, new], axis=1)
            for i in range(ENVS):
                if valid[i]:
                    transition = obs[i], self.obs[i], action[i], terminal[i]
                    self.happened[int(number[i])] = (self.count, min(self.steps[i], 3), transition)
            self.steps = np.where(valid, self.steps + 1, 0)
            self.done = np.isin(ends, (1, 2)) & valid
            self.count += 1

    def drawable(self, rows: int = ROWS) -> set[int]:
        """Transitions whose frames are all among the last rows."""
        oldest, newest = max(self.count - rows, 0), self.count - 1
        return {n for n, (t, back, _) in self.happened.items() if t - back >= oldest and t < newest}

    def drawn(self, size: int) -> list[int]:
        """Draws, and checks that each of them happened."""
        obs, next_obs, action, reward, terminal = self.replay.sample(size).values()
        assert (
            obs.shape == next_obs.shape == (size, 4, 84, 84)
            and obs.dtype == next_obs.dtype == torch.uint8
        )
        assert (
            action.shape == reward.shape == terminal.shape == (size,)
            and reward.dtype == terminal.dtype
        )
        numbers = reward.int().tolist()
        for k, number in enumerate(numbers):
            _, _, (was, following, did, ended) = self.happened[number]
            assert np.array_equal(obs[k], was) and np.array_equal(next_obs[k], following)
            assert (int(action[k]), bool(terminal[k])) == (did, ended)
        return numbers


@pytest.fixture
def world():
    np.random.seed(0)
    return World()


def arrays(replay) -> dict[str, np.ndarray]:
    """What the replay holds, by name."""
    kinds = np.ndarray, torch.Tensor
    found = {k: np.asarray(value) for k, value in vars(replay).items() if isinstance(value, kinds)}
    seen = {"frame", "age"} if "frame" in found else {"obs"}
    assert found.keys() == seen | {"action", "reward", "terminal", "valid"}
    return found


REPLAYS = pytest.mark.parametrize("name", ["dqn_atari", "sac_continuous"])


def load_small(name: str, monkeypatch):
    algo = load(name)
    if name in ATARI:
        fake_atari(algo, monkeypatch)
        cheap(algo, monkeypatch)
    return algo


@REPLAYS
def test_saved_and_loaded(name, tmp_path, monkeypatch):
    """--save-replay, over two runs. Would break: a part that is not saved; the last row before the end
    followed by the first one after it."""
    algo, made = load_small(name, monkeypatch), []
    build = algo.Replay.__init__

    def keep(self, *args):
        build(self, *args)
        made.append(self)

    monkeypatch.setattr(algo.Replay, "__init__", keep)
    flags = {"save_replay": True, "buffer_size": 400}
    algo.train(tiny(algo, tmp_path, total_timesteps=28, **flags))
    run = run_folder(tmp_path)
    assert (run / "replay.pt").exists()
    algo.train(tiny(algo, tmp_path, resume=str(run), total_timesteps=56, **flags))
    before, after = made
    rows = before.count
    assert after.count > rows > 10
    for name, array in arrays(before).items():
        known = rows - (name == "valid")  # the last row has no next frame after the resume
        assert array[:rows].any() and np.array_equal(arrays(after)[name][:known], array[:known])
    assert before.valid[rows - 1].any() and not after.valid[rows - 1].any()
    with pytest.raises(SystemExit, match="--num-envs"):
        more = {"total_timesteps": 99, "num_envs": 1}
        algo.train(tiny(algo, tmp_path, resume=str(run), **flags | more))
    algo.train(
        tiny(algo, tmp_path, resume=str(run), total_timesteps=99)
    )  # without it: an empty one
    assert made[-1].action[0].any() and made[-1].count < 40
    with pytest.raises(SystemExit, match="older than the checkpoint; add --no-save-replay"):
        algo.train(tiny(algo, tmp_path, resume=str(run), total_timesteps=150, **flags))
    (run / "replay.pt").unlink()  # as if it had never been saved: the new one must fill up first
    with pytest.raises(SystemExit, match="starts empty.*; raise --total-timesteps"):
        algo.train(tiny(algo, tmp_path, resume=str(run), total_timesteps=105, **flags))


@REPLAYS
def test_full_ring_is_saved_and_loaded(name, tmp_path, monkeypatch):
    """Would break: a resumed run whose next row takes the place of another than the oldest, or whose newest row, which
    no next one follows, can be drawn."""
    algo, started, made = load_small(name, monkeypatch), [], []
    add = algo.Replay.add

    def look(self, *step):
        if self not in made:
            made.append(self)
            copies = {name: array.copy() for name, array in arrays(self).items()}
            started.append((self.count, copies))
        add(self, *step)

    monkeypatch.setattr(algo.Replay, "add", look)
    flags = {"save_replay": True, "buffer_size": 20}
    algo.train(tiny(algo, tmp_path, total_timesteps=60, **flags))
    (before,) = made
    rows = len(before.valid)
    newest = (before.count - 1) % rows
    assert rows == 10 < before.count - 10 and newest != rows - 1
    assert before.valid[newest].all()
    before.valid[newest] = False  # no next frame
    run = str(run_folder(tmp_path))
    algo.train(tiny(algo, tmp_path, resume=run, total_timesteps=120, **flags))
    count, copies = started[1]
    assert count == before.count
    for name, array in arrays(before).items():
        assert np.array_equal(copies[name], array)


def test_frames_are_stored_once(world):
    """Would break: whole stacks in the replay, or float frames: 7 GiB for a million steps would become 26 or more."""
    size = sum(array.nbytes for array in arrays(world.replay).values())
    assert size <= ROWS * ENVS * (84 * 84 + 20)
