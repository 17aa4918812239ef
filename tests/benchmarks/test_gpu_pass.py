"""benchmarks/gpu_pass.py on a CPU, with few steps; of the files, with copies that do something wrong."""

import csv
import json
import time
from collections import defaultdict
from statistics import mean, median

import gpu_jobs
import gpu_pass
import pytest
import time_to_return
import torch
from conftest import EVERY, ROOT, script
from plainrl_tools import results
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


def numbers(name: str) -> list[dict]:
    with open(ROOT / "benchmarks" / name, newline="") as file:
        return list(csv.DictReader(file))


def test_page():
    """Would break: a figure of docs/gpu.md that its CSV files do not have."""
    new, old = numbers("gpu_h200.csv"), numbers("gpu_h100.csv")
    text = (ROOT / "docs/gpu.md").read_text()
    page = " ".join(text.split())
    windows = defaultdict(list)
    for row in new:
        if row["value"]:
            key = row["part"], row["name"], row["device"], row["metric"]
            windows[key].append(float(row["value"]))
    assert {row["state"] for row in new} == {"passed"}
    speeds = [row for row in new if row["part"].startswith("speed")]
    assert {row["cores"] for row in speeds} == {"8"}
    twice = windows["speed peer", "ppo_atari, one process", "cpu", "steps/s"]
    said = "Stable-baselines3's PPO on the CPU was measured twice, {:.0f} and {:.0f}; the table has"
    assert said.format(*twice) in page
    values = {key: mean(found) for key, found in windows.items()}

    def peer(name: str, device: str) -> float:
        ways = ("a process each", "one process")
        found = {way: values["speed peer", f"{name}, {way}", device, "steps/s"] for way in ways}
        single = device == "cpu" and name != "a2c_atari"
        assert max(found, key=found.get) == ways[single]
        return found[ways[single]]

    faster, compiled, beside = [], [], {}
    for name in ("ppo_atari", "a2c_atari", "dqn_atari"):
        ways = [("speed", "cpu"), ("speed", "cuda"), ("speed compiled", "cuda")]
        ours = [values[part, name, device, "steps/s"] for part, device in ways]
        cells = [*ours, peer(name, "cpu"), peer(name, "cuda")]
        assert f"| `{name}.py` | " + " | ".join(f"{cell:,.0f}" for cell in cells) + " |\n" in text
        faster.append(ours[1] / ours[0])
        compiled.append(ours[2] / ours[0])
        beside[name] = [f"{one / peer(name, 'cuda'):.1f}" for one in ours[1:]]
    said = f"{min(faster):.1f} to {max(faster):.1f} times as fast on an H200 as on eight cores of "
    gains = f"{min(compiled):.1f} to {max(compiled):.1f}"
    assert said + f"its machine, with `--compile` {gains} times" in page
    (ppo, both), (a2c, same), dqn = beside.values()
    assert both == same
    assert f"PPO makes {ppo} times the steps and A2C {a2c}, compiled both {both}." in page
    assert f"DQN makes {dqn[0]} times the steps, compiled {dqn[1]}." in page
    alone = [
        values["speed peer", f"{name}, one process", "cuda", "steps/s"]
        for name in ("ppo_atari", "a2c_atari", "dqn_atari")
    ]
    assert "PPO makes {:.0f} on CUDA, A2C {:.0f} and DQN {:.0f}.".format(*alone) in page

    earlier = {}  # of the H100, on eight cores
    for row in old:
        if row["value"] and not (row["part"] == "speed" and row["cores"] == "16"):
            key = row["part"], row["name"], row["device"], row["metric"]
            earlier[key] = float(row["value"])
    ways = [("speed", "cpu"), ("speed", "cuda"), ("speed compiled", "cuda")]
    share = earlier["played", "ppo_continuous", "cpu", "played"]
    paces = [share * earlier[part, "ppo_continuous", device, "rows/s"] for part, device in ways]
    said = "{:,.0f} on the CPU, {:,.0f} on CUDA, {:,.0f} with `--compile`."
    assert said.format(*paces) in page and paces[0] == max(paces)
    theirs = [
        max(values["speed peer", f"ppo_continuous, {way}", device, "steps/s"] for way in ways)
        for device in ("cpu", "cuda")
        for ways in [("one process", "a process each")]
    ]
    assert "on the H200's machine: {:,.0f} and {:,.0f}, for".format(*theirs) in page
    share = earlier["played", "ppo_atari", "cpu", "played"]
    few, many = [
        share * float(row["value"])
        for count in (8, 128)
        for row in old
        if row["name"] == f"ppo_atari, {count} environments" and row["metric"] == "rows/s"
    ]
    assert f"made {many:,.0f} where it made {few:,.0f} with the default 8" in page

    phases = ("environment", "update", "transfer")
    for name, part, words, known in [
        ("ppo_atari", "speed", "", values),
        ("ppo_atari", "speed compiled", ", `--compile`", values),
        ("dqn_atari", "speed", "", values),
        ("dqn_atari", "speed compiled", ", `--compile`", values),
        ("ppo_continuous", "speed", ", H100", earlier),
    ]:
        shares = [known[part, name, "cuda", phase] for phase in phases]
        cells = " | ".join(f"{100 * share:.0f} %" for share in [*shares, 1 - sum(shares)])
        assert f"| `{name}.py`{words} | {cells} |\n" in text
    gains = {}  # seconds a step that --compile saves
    for name in ("ppo_atari", "dqn_atari"):
        spent = []
        for part in ("speed", "speed compiled"):
            shares = [values[part, name, "cuda", phase] for phase in phases]
            pace = values[part, name, "cuda", "steps/s watched"]
            spent.append([share / pace for share in [*shares, 1 - sum(shares)]])
        gains[name] = [before - after for before, after in zip(*spent)]
    assert gains["ppo_atari"].index(max(gains["ppo_atari"])) == 3
    assert gains["dqn_atari"].index(max(gains["dqn_atari"])) == 1
    assert "gains most in PPO's rollout and in DQN's update" in page


def test_page_of_checks():
    """Would break: docs/gpu.md says of more files than were checked that they are right."""
    new, old = numbers("gpu_h200.csv"), numbers("gpu_h100.csv")
    page = " ".join((ROOT / "docs/gpu.md").read_text().split())

    def apart(part: str, rows: list[dict]) -> dict[str, float]:
        those = [row for row in rows if (row["part"], row["metric"]) == (part, "tolerances")]
        return {row["name"]: float(row["value"]) for row in those}

    def passed(part: str, rows: list[dict]) -> set[str]:
        states = {row["name"]: row["state"] for row in rows if row["part"] == part}
        return {name for name, state in states.items() if state == "passed"}

    eager = apart("agree", old)
    near = [name for name, tolerances in eager.items() if tolerances < 1 / 50]
    assert f"(H100, {len(eager)} files)" in page and f"In {len(near)} files each stays" in page
    assert {*eager} - {*near} == {"ppo_atari", "ppo_atari_ddp"}
    assert round(max(eager.values()), 1) == 0.5
    assert f"off by {gpu_pass.ABSOLUTE:.0e} and".replace("e-05", "e-5") in page
    assert "a thousandth of itself" in page and gpu_pass.RELATIVE == 1 / 1000
    here, compiled = apart("agree compiled", new), apart("agree compiled", old)
    assert f"same GPU: {len(compiled | here)} files, within a hundredth" in page
    assert max((compiled | here).values()) < 1 / 100
    words = {4: "four", 10: "ten"}
    assert f"({words[len(here)]} on the H200, the others on the H100)" in page
    assert len(passed("train", old)) == 19 and "19 files after 20,000 steps on the H100" in page
    assert f"{words[len(passed('train compiled', new))]} with `--compile` on the H200" in page
    assert passed("resume", old) == {"ppo_continuous", "ppo_atari", "dqn"}
    ranks = apart("agree ranks", new)
    assert {*ranks} == {"ppo_atari_ddp", "ppo_continuous_ddp"} and max(ranks.values()) < 1e-3


def test_page_of_runs():
    """Would break: a return or a minute of docs/gpu.md that its runs do not have."""
    page = " ".join((ROOT / "docs/gpu.md").read_text().split())

    def ends(file: str, exp_name: str, metric: str) -> list[float]:
        rows = results.read_csv(ROOT / "benchmarks/results" / file)
        found = {row.seed: row for row in rows if (row.exp_name, row.metric) == (exp_name, metric)}
        assert {row.step // 100_000 for row in found.values()} == {10 if "fast" in file else 5}
        return [found[seed].value for seed in sorted(found)]

    def cell(values: list[float]) -> str:
        return ", ".join(f"{value:.1f}" for value in values)

    fast = [("h200_fast.csv", "ppo_atari-fast-h200"), ("breakout_fast.csv", "ppo_atari-fast")]
    walker = [
        ("h200_single.csv", "ppo_continuous-h200"),
        ("walker_500k.csv", "ppo_continuous-500k"),
    ]
    a2c = (
        ("h200_single.csv", "a2c_atari-small-eps-h200"),
        ("breakout_a2c.csv", "a2c_atari-small-eps"),
    )
    mean_, greedy, training = "eval_return_mean", "eval_greedy_mean", "train_return_last100"
    for sides, metric, row in [
        (fast, mean_, "PPO's fast setting, `--compile`, Breakout, 1M steps: by draws"),
        (fast, greedy, "the same three seeds, greedily"),
        (walker, mean_, "`ppo_continuous.py --compile`, BipedalWalker-v3, 500,000 steps"),
        (a2c, mean_, "`a2c_atari.py --rms-eps 1e-8`, Breakout, 500,000 steps"),
    ]:
        there, cpu = [ends(*side, metric) for side in sides]
        assert f"| {row} | {cell(there)} | {cell(cpu)} |" in page
    there, cpu = [mean(ends(*side, mean_)) for side in fast]
    assert f"a lower mean here than on the CPU, {there:.1f} against {cpu:.1f} by draws" in page
    assert ends(*a2c[0], mean_)[0] < min(ends(*a2c[1], mean_))
    here, five = [ends(*side, training) for side in a2c]
    said = f"games of training ({here[0]:.1f}; theirs {min(five):.1f} to {max(five):.1f})"
    assert said in page and min(five) < here[0] < max(five)
    minutes = []
    for name in ("h200", "atari"):
        runs = time_to_return.read_csv(ROOT / f"benchmarks/time_to_return_{name}.csv")
        ours = [run for run in runs if run["exp_name"].startswith("ppo_atari")]
        assert len(ours) == 3 and all(run["reached"] for run in ours)
        took = [run["minutes"] for run in ours]
        minutes.append(f"{median(took):.1f}{{}} ({min(took):.1f} to {max(took):.1f})")
    assert f"take {minutes[0].format(' minutes')}, the time to compile in it" in page
    assert f"not compiled, {minutes[1].format('')}." in page
