"""What --save-replay saves, and what the replay of dqn_atari.py holds."""

import numpy as np
import pytest
import torch
from conftest import ATARI, cheap, fake_atari, load, run_folder, tiny

ROWS, ENVS = 12, 3


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
    file = run / "replay.pt"
    content = torch.load(file, weights_only=True)
    parts = [x for x in content.values() if isinstance(x, torch.Tensor)]
    assert all(len(part) < 400 // 2 for part in parts)
    assert all(
        part.untyped_storage().nbytes() == part.nbytes for part in parts
    )  # not the whole ring
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
    content = (run / "replay.pt").read_bytes()
    (run / "replay.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(SystemExit, match="replay.pt cannot be read: .*; add --no-save-replay"):
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
    flags = {"save_replay": True, "buffer_size": 32}
    algo.train(tiny(algo, tmp_path, total_timesteps=76, **flags))
    (before,) = made
    rows = len(before.valid)
    newest = (before.count - 1) % rows
    assert rows == 16 < before.count - 16 and newest != rows - 1
    assert before.valid[newest].all()
    before.valid[newest] = False  # no next frame
    run = str(run_folder(tmp_path))
    algo.train(tiny(algo, tmp_path, resume=run, total_timesteps=160, **flags))
    count, copies = started[1]
    assert count == before.count
    for name, array in arrays(before).items():
        assert np.array_equal(copies[name], array)


def test_frames_are_stored_once():
    """Would break: whole stacks in the replay, or float frames: 7 GiB for a million steps would become 26 or more."""
    replay = load("dqn_atari").Replay(ROWS, ENVS)
    size = sum(array.nbytes for array in arrays(replay).values())
    assert size <= ROWS * ENVS * (84 * 84 + 20)
