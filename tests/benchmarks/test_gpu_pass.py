"""benchmarks/gpu_pass.py on a CPU, with few steps; of the files, with copies that do something wrong."""

import csv
import json
import time

import gpu_jobs
import gpu_pass
import pytest
import torch
from conftest import EVERY, script
from torch.utils.tensorboard import SummaryWriter


def options(tmp_path, *parts: str, steps: int = 4096, **more) -> gpu_pass.Options:
    small = {"device": "cpu", "steps": steps, "workers": 1, "output": tmp_path / "out"}
    return gpu_pass.Options(**small, parts=parts, **more)


def reports(tmp_path) -> tuple[str, dict]:
    """The report, and its cases by part and name."""
    cases = json.loads((tmp_path / "out" / "report.json").read_text())["cases"]
    text = (tmp_path / "out" / "report.md").read_text()
    return text, {(case["part"], case["name"]): case for case in cases}


def off_by(tmp_path, error: float):
    """A folder with a ppo.py whose values are off in the second variant that is compared."""
    folder = tmp_path / "algos"
    folder.mkdir()
    old = "return self.critic(x).squeeze(-1)"
    new = f"{old} * (1 + {error} * ('eager' in self.args.runs_dir))"
    text = script("ppo").read_text()
    assert text.count(old) == 1
    (folder / "ppo.py").write_text(text.replace(old, new))
    return folder


@pytest.mark.slow
def test_small_pass(tmp_path):
    """Would break: command lines that no longer fit the files, a number missing from the tables, a tolerance that
    rounding exceeds."""
    assert gpu_pass.main(options(tmp_path, "train", "agree", folder=off_by(tmp_path, 1e-6))) == 0
    text, cases = reports(tmp_path)
    assert "**2 passed, 0 failed, 0 skipped, 0 not reached**" in text
    trained, agreed = (cases[part, "ppo"]["row"] for part in ("train", "agree"))
    assert trained["steps"] >= 4096 and trained["metrics"] == 11
    assert f"| ppo | {trained['steps']:,} | 11 | {trained['return']:.4g} |" in text
    assert f"| ppo | eager | cpu | {agreed['furthest apart']} |" in text
    assert agreed["furthest apart"].startswith("losses/") and 0 < agreed["tolerances"] < 0.1
    assert cases["train", "ppo"]["seconds"] > 0


def test_a_planted_difference(tmp_path):
    """Would break: a tolerance that mistakes stay within, variants that do not learn from the same rows."""
    assert gpu_pass.main(options(tmp_path, "agree", folder=off_by(tmp_path, 0.01))) == 1
    text, cases = reports(tmp_path)
    assert cases["agree", "ppo"]["row"]["tolerances"] > 2
    assert "- agree: ppo: eager and cpu are 2." in text
    assert "| ppo | eager | cpu | losses/value_loss |" in text


@pytest.mark.slow
def test_speed_and_resume(tmp_path):
    """Would break: shares that do not add up, a run that ends before its signal or that does not go on."""
    few = {"only": ("ppo_continuous",), "steps": 2048, "num_envs": (4,), "window": 0.2}
    assert gpu_pass.main(options(tmp_path, "speed", "resume", **few)) == 0
    text, cases = reports(tmp_path)
    row = cases["speed", "ppo_continuous, 4 environments"]["row"]
    assert row["steps/s"] > 0 and row["steps/s watched"] > 0
    assert 0 < row["environment"] < row["update"] < 1 and row["environment"] + row["update"] < 1
    assert row["transfer"] == 0 and row["peak MiB"] is None
    row = cases["resume", "ppo_continuous"]["row"]
    assert row["stopped at"] > 0 and row["steps"] >= row["stopped at"] + 2048
    assert f"| ppo_continuous | {row['stopped at']:,} | {row['steps']:,} |" in text


def test_what_is_compared():
    """Would break: a tolerance that is not the other's value's, a NaN that agrees, a metric that one has alone."""
    furthest = gpu_pass.furthest
    small, large = {"a": 1.0, "b": 100.0}, {"a": 1.002, "b": 100.1}
    assert furthest(large, small) == ("a", pytest.approx(2, rel=0.02))
    assert furthest({"a": 1e-6}, {"a": 0.0}) == ("a", pytest.approx(0.1))
    assert furthest({"a": float("nan"), "b": 0.0}, {"a": 1.0, "b": 9.0}) == ("a", float("inf"))
    for this, that in (({"a": 1.0}, small), ({}, {})):
        with pytest.raises(gpu_pass.Failed, match="they log"):
            furthest(this, that)


def test_a_failure_is_reported(tmp_path):
    """Would break: a failure that stops the others, that leaves no log, or after which the status is 0."""
    folder = tmp_path / "algos"
    folder.mkdir()
    (folder / "broken.py").write_text("print('before the end')\nraise ValueError('planted')\n")
    (folder / "other.py").write_text("import sys\nsys.exit(0)\n")  # leaves no run
    assert gpu_pass.main(options(tmp_path, "train", folder=folder)) == 1
    text, cases = reports(tmp_path)
    assert [case["state"] for case in cases.values()] == ["failed", "failed"]
    assert "**0 passed, 2 failed" in text and "- train: broken: exit status 1, not 0" in text
    assert "before the end" in text and "ValueError: planted" in text


def test_numbers_that_are_not_finite(tmp_path):
    """Would break: a NaN in a log that nobody reads, a run that ended early, on another device."""
    writer = SummaryWriter(tmp_path / "runs" / "run")
    for step, value in enumerate([1.0, float("nan"), 2.0]):
        writer.add_scalar("losses/td_loss", value, step)
    writer.close()
    chosen = options(tmp_path)
    summary = {"global_step": 100, "device": "cpu", "eval_return_mean": 1.0}
    for change, words in [
        ({}, "losses/td_loss is nan at step 1"),
        ({"global_step": 99}, "no summary of 100 steps"),
        ({"device": "cuda"}, "no summary of 100 steps on cpu"),
    ]:
        (tmp_path / "runs/run/summary.json").write_text(json.dumps(summary | change))
        with pytest.raises(gpu_pass.Failed, match=words):
            gpu_pass.finished(tmp_path / "runs", chosen, 100)


def test_numbers(tmp_path):
    """Would break: a number of report.csv in another case's row, a case without an end among them."""
    case = gpu_pass.Case(
        "speed", "dqn, 8 environments", print, "passed", row={"steps/s": 2, "this": "eager"}
    )
    cases = [
        case,
        gpu_pass.Case("train", "ppo", print, "failed"),
        gpu_pass.Case("train", "dqn", print),
    ]
    (tmp_path / "report.csv").write_text(
        gpu_pass.numbers(cases, {"cores": 8, "commit": "a1"}, "cuda")
    )
    with open(tmp_path / "report.csv", newline="") as file:
        rows = [list(row.values()) for row in csv.DictReader(file)]
    assert rows == [
        ["speed", "dqn, 8 environments", "cuda", "8", "a1", "passed", "steps/s", "2"],
        ["train", "ppo", "cuda", "8", "a1", "failed", "", ""],
    ]


def test_no_time(tmp_path, monkeypatch):
    """Would break: a case that is left out without a word, or begun though it does not fit."""
    monkeypatch.setattr(gpu_pass, "run", lambda *_: pytest.fail("it was begun"))
    parts = tuple(gpu_pass.PARTS)
    assert gpu_pass.main(options(tmp_path, *parts, minutes=0.1, num_envs=(0, 128))) == 0
    text, cases = reports(tmp_path)
    assert {case["state"] for case in cases.values()} == {"skipped"}
    assert {part for part, _ in cases} == set(parts)
    assert {name for part, name in cases if part == "train"} == set(EVERY)
    assert {name for part, name in cases if part.endswith("ranks")} == {
        name for name in EVERY if name.endswith("_ddp")
    }
    assert "- train compiled: reinforce: the file has no --compile" in text
    assert "- train: ppo_atari: it takes about 40 s, 6 s were left" in text
    assert "- speed: ppo_atari: it takes" in text
    assert "- speed: ppo_atari, 128 environments: it takes" in text
    assert "- speed peer: dqn_atari, a process each: it takes" in text
    assert text.count("\n- ") == len(cases)


def waits(end: float) -> dict:
    gpu_pass.run(["sh", "-c", "echo here; exec sleep 60"], end, gpu_pass.Options(workers=1))
    return {}


@pytest.mark.parametrize(("state", "left", "timeout"), [("failed", 99, 0.5), ("skipped", 0.5, 99)])
def test_what_does_not_end(tmp_path, monkeypatch, state, left, timeout):
    """Would break: a process that holds all up, a cut by the budget that counts against the file."""
    monkeypatch.setitem(gpu_pass.PARTS, "train", 0.1)
    case = gpu_pass.Case("train", "x", waits)
    gpu_pass.carry_out(case, time.monotonic() + left, options(tmp_path, timeout=timeout))
    assert (case.state, case.log) == (state, "here")
    assert 0.5 <= case.seconds < 10


def test_phases(monkeypatch):
    """Would break: a phase within another counted twice, a change of type taken for a transfer, one that is missed."""
    clock = gpu_jobs.Clock("cpu")
    for name in ("to", "cpu", "__setitem__"):
        monkeypatch.setattr(torch.Tensor, name, getattr(torch.Tensor, name))  # put back at the end
    clock.watch_transfers()
    moves = []
    wrapped = clock.change
    clock.change = lambda: moves.append(clock.phases[-1]) or wrapped()
    here, away = torch.zeros(3), torch.zeros(3, device="meta")
    clock.on = True
    here.to("cpu"), here.to(torch.float64), here.cpu()
    here[0] = torch.ones(())
    assert moves == []
    here.to("meta"), here.to(torch.device("meta"))
    away[1] = here[1]
    with pytest.raises(NotImplementedError):  # there is nothing to fetch
        away.cpu()
    assert moves == ["rest", "transfer"] * 4
    clock.spent.clear()
    sleep = clock.wrap(time.sleep, "transfer")
    clock.since = time.perf_counter()
    clock.wrap(lambda: (time.sleep(0.05), sleep(0.1)), "update")()
    assert 0.05 <= clock.spent["update"] < 0.1 <= clock.spent["transfer"]
