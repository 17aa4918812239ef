"""benchmarks/gpu_pass.py on a CPU, with few steps; of the files, with copies that do something wrong."""

import csv
import json
import sys
import time
from collections import defaultdict
from statistics import mean, median

import pytest
import torch
from conftest import EVERY, ROOT, script
from torch.utils.tensorboard import SummaryWriter

sys.path.append(str(ROOT / "benchmarks"))
import gpu_jobs  # noqa: E402
import gpu_pass  # noqa: E402
import results  # noqa: E402
import time_to_return  # noqa: E402


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


@pytest.mark.slow
def test_agree_with_actors(tmp_path, request):
    """Would break: actors of Ray that cannot import a file that was loaded from a path."""
    if not request.config.getoption("more"):
        pytest.skip("actors start in test_ray_file.py, too: pytest --more")
    assert gpu_pass.main(options(tmp_path, "agree", only=("ppo_continuous_ray",))) == 0
    assert reports(tmp_path)[1]["agree", "ppo_continuous_ray"]["row"]["tolerances"] == 0


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
    twice = windows["speed peer", "ppo_atari, one process", "cpu", "steps/s"]
    assert (
        "where two were measured, {:.0f} and {:.0f} of the same, their mean".format(*twice) in page
    )
    values = {key: mean(found) for key, found in windows.items()}

    def peer(name: str, device: str) -> float:
        ways = ("one process", "a process each")
        return max(values["speed peer", f"{name}, {way}", device, "steps/s"] for way in ways)

    compared = {}
    for name in ("ppo_atari", "a2c_atari", "dqn_atari"):
        ways = [("speed", "cpu"), ("speed", "cuda"), ("speed compiled", "cuda")]
        ours = [values[part, name, device, "steps/s"] for part, device in ways]
        cells = [*ours, peer(name, "cpu"), peer(name, "cuda")]
        line = f"| `{name}.py` | " + " | ".join(f"{cell:,.0f}" for cell in cells) + " |\n"
        assert line in text
        compared[name] = [f"{one / peer(name, 'cuda'):.1f}" for one in ours[1:]]
        alone = values["speed peer", f"{name}, one process", "cuda", "steps/s"]
        assert (
            f"{name.split('_')[0].upper()} {'makes ' * name.startswith('ppo')}{alone:.0f}" in page
        )
    (eager, compiled), (slow, fast) = compared["ppo_atari"], compared["dqn_atari"]
    assert (
        f"It makes {eager} times stable-baselines3's steps there, with `--compile` {compiled}"
        in page
    )
    assert f"DQN needs `--compile`: {fast} times, and without it {slow}." in page

    earlier = {}  # of the H100, on eight cores
    for row in old:
        if row["value"] and not (row["part"] == "speed" and row["cores"] == "16"):
            key = row["part"], row["name"], row["device"], row["metric"]
            earlier[key] = float(row["value"])
    small = [("speed", "cpu"), ("speed", "cuda"), ("speed compiled", "cuda")]
    share = earlier["played", "ppo_continuous", "cpu", "played"]
    paces = [share * earlier[part, "ppo_continuous", device, "rows/s"] for part, device in small]
    assert "{:,.0f} on the CPU, {:,.0f} on CUDA, {:,.0f} with `--compile`".format(*paces) in page
    assert f"makes {paces[0] / paces[1]:.1f} times the steps there" in page
    many = {
        row["metric"]: row["value"] for row in old if row["name"] == "ppo_atari, 128 environments"
    }
    pace = float(many["rows/s"]) * earlier["played", "ppo_atari", "cpu", "played"]
    waits = 100 * float(many["environment"])
    assert f"16 cores made {pace:,.0f}, and waited for them {waits:.0f} % of the time" in page

    for name, part, words, known in [
        ("ppo_atari", "speed", "CUDA", values),
        ("ppo_atari", "speed compiled", "CUDA, `--compile`", values),
        ("dqn_atari", "speed", "CUDA", values),
        ("dqn_atari", "speed compiled", "CUDA, `--compile`", values),
        ("ppo_continuous", "speed", "CUDA, H100", earlier),
    ]:
        shares = [
            known[part, name, "cuda", phase] for phase in ("environment", "update", "transfer")
        ]
        cells = " | ".join(f"{100 * share:.0f} %" for share in [*shares, 1 - sum(shares)])
        assert f"| `{name}.py`, {words} | {cells} |\n" in text

    def apart(part: str, known: dict) -> dict[str, float]:
        return {key[1]: known[key] for key in known if key[0] == part and key[3] == "tolerances"}

    eager = sorted(apart("agree", earlier).values())
    assert len(eager) == 19 and eager[16] < 1 / 50 < eager[17] and eager[18] < 0.5
    compiled = apart("agree compiled", earlier) | apart("agree compiled", values)
    assert len(compiled) == 17 and max(compiled.values()) < 1 / 100
    ranks = apart("agree ranks", values)
    assert len(ranks) == 2 and max(ranks.values()) < 1e-3
    trained = {row["name"] for row in old if row["part"] == "train"}
    assert trained == {*EVERY} - {"ppo_continuous_ray"}
    assert len({row["name"] for row in new if row["part"] == "train compiled"}) == 10
    resumed = {row["name"] for row in old if row["part"] == "resume" and row["state"] == "passed"}
    assert resumed == {"ppo_continuous", "ppo_atari", "dqn"}


def test_page_of_runs():
    """Would break: a return or a minute of docs/gpu.md that its runs do not have."""
    page = " ".join((ROOT / "docs/gpu.md").read_text().split())

    def ends(file: str, exp_name: str, metric: str) -> list[float]:
        rows = results.read_csv(ROOT / "benchmarks/results" / file)
        found = {
            row.seed: row.value for row in rows if (row.exp_name, row.metric) == (exp_name, metric)
        }
        return [found[seed] for seed in sorted(found)]

    def listed(*run: str) -> list[str]:
        metrics = ("eval_return_mean", "eval_greedy_mean")
        return [", ".join(f"{value:.1f}" for value in ends(*run, metric)) for metric in metrics]

    there, cpu = (
        listed("h200_fast.csv", "ppo_atari-fast-h200"),
        listed("breakout_fast.csv", "ppo_atari-fast"),
    )
    assert f"{there[0]} by draws and {there[1]} greedily; on the CPU {cpu[0]} and {cpu[1]}." in page
    metrics = ("eval_return_mean", "train_return_last100")
    (draws,), (training,) = [
        ends("h200_single.csv", "a2c_atari-small-eps", metric) for metric in metrics
    ]
    cpu = [ends("breakout_a2c.csv", "a2c_atari-small-eps", metric) for metric in metrics]
    said = f"has {draws:.1f} after 500,000 steps, in training {training:.1f} (the CPU's five "
    assert said + ", and ".join(f"{min(five):.1f} to {max(five):.1f}" for five in cpu) + ")" in page
    (walker,) = ends("h200_single.csv", "ppo_continuous", "eval_return_mean")
    assert f"{walker:.1f} on BipedalWalker-v3 after 500,000" in page
    runs = time_to_return.read_csv(ROOT / "benchmarks/time_to_return_h200.csv")
    assert [run["reached"] for run in runs] == [1, 1, 1]
    minutes = median(run["minutes"] for run in runs)
    assert f"on Breakout after {minutes:.0f} minutes, in three of three seeds" in page
