"""benchmarks/scaling.py on iterations whose seconds are known, and its waiting environment."""

import time

import gymnasium as gym
import numpy as np
import pytest
import scaling
from gymnasium.utils.env_checker import check_env


def known(wait_ms: int, environments: int, runners: int) -> dict:
    """By hand: two cores, f0 1 ms, f1 0.01 ms, a 2 ms, b 3 ms, u0 10 ms, u1 0.1 ms."""
    largest = -(-environments // runners)
    collect = 32 * (largest * wait_ms / 1000 + (0.001 + 1e-5 * environments) * max(1, runners / 2))
    waiting = collect + 0.002 + 0.003 * runners
    row = {"wait_ms": wait_ms, "environments": environments, "runners": runners, "ranks": 0}
    row |= {"bytes_in": 1000, "bytes_out": 2000, "collect": collect, "waiting": waiting}
    return row | {"seconds": waiting + 0.01 + 1e-4 * 32 * environments}


def rows():
    pairs = scaling.CONFIGURATIONS.items()
    return [known(*kind, runners) for kind, counts in pairs for runners in counts]


def test_model():
    """Would break: a part of an iteration given to another, a crowd of runners on two cores forgotten."""
    fitted = [row for row in rows() if (row["wait_ms"], row["environments"]) in scaling.FITTED]
    assert 0 < len(fitted) < len(rows())
    coefficients = scaling.fit(fitted)
    assert np.concatenate(coefficients) == pytest.approx([0.001, 1e-5, 0.002, 0.003, 0.01, 1e-4])
    other = known(50, 64, 7)
    assert scaling.predict(other, coefficients) == pytest.approx(other["seconds"])
    wrong = other | {"runners": 3}
    assert scaling.predict(wrong, coefficients) != pytest.approx(other["seconds"])


def test_linear():
    """Four runners in half the seconds of one: half of linear."""
    one, four = known(5, 16, 1) | {"seconds": 2.0}, known(5, 16, 4) | {"seconds": 1.0}
    assert scaling.linear(four, [one, four], "runners") == 0.5
    assert scaling.linear(one, [one, four], "runners") == 1


def test_report(tmp_path, capsys):
    """Would break: a held-out configuration that counts as fitted, an error that is not counted."""
    measured = rows()
    spoilt = next(row for row in measured if row["wait_ms"] == 50)
    spoilt["seconds"] *= 2
    ranks = [known(0, 16, 1) | {"ranks": n, "runners": 0, "seconds": 1 / n} for n in (1, 2)]
    scaling.report([*measured, *ranks], tmp_path / "scaling.png")
    out = capsys.readouterr().out
    held_out = [line for line in out.splitlines() if "held out" in line]
    assert len(held_out) == 12
    assert "Held out: 12 configurations, 11 of them within 20 %" in out
    assert "\n| 0 | 16 | 2 | 1024 | 1.00 |\n" in out
    # 16 cores, 64 environments, 20 ms: 2.56 s + 32 (1 ms + 0.64 ms) + 2 ms + 48 ms + 10 ms + 204.8 ms
    assert "| 20 | 16 | 712 | 0.89 | 89% | 2% | 2% | 7% |" in out
    assert (tmp_path / "scaling.png").stat().st_size > 10_000


def test_waiting_environment():
    """Would break: an environment that costs no time, or processor time."""
    check_env(scaling.Waiting(0), skip_render_check=True)
    env = gym.make("Waiting20-v0")
    env.reset(seed=1)
    start, busy = time.perf_counter(), time.process_time()
    for _ in range(10):
        env.step(env.action_space.sample())
    assert time.perf_counter() - start > 0.2
    assert time.process_time() - busy < 0.1
    fast = scaling.Waiting()
    fast.reset(seed=1)
    ends = [fast.step(np.zeros(2))[3] for _ in range(scaling.EPISODE)]
    assert ends == [False] * (scaling.EPISODE - 1) + [True]


def test_old_table_stays(tmp_path, monkeypatch, capsys):
    """Would break: a published table that is emptied by a command which cannot measure."""
    table = tmp_path / "scaling.csv"
    table.write_text("old")
    monkeypatch.setattr(scaling, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        scaling.main(scaling.Options(output=table))
    assert "Ray is missing" in capsys.readouterr().err and table.read_text() == "old"
    monkeypatch.setattr(scaling, "find_spec", lambda name: name)
    monkeypatch.setattr(scaling, "measure", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        scaling.main(scaling.Options(output=table))
    assert table.read_text() == "old"
