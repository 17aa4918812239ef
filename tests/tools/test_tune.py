"""Tuning: no trial lost or counted twice, whatever ends the tuner; pruning that ends runs; a report that is true.

The script writes down what happens to it, in a journal shared by all its runs; its score is its learning rate."""

import csv
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import optuna
import pytest
import sweep
import tune
from conftest import ALGOS, ROOT
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial
from plainrl_tools import results
from plainrl_tools.sweeping import plan
from plainrl_tools.tuning import progress, report, space

FAKE = r"""
import json, os, random, shutil, signal, struct, sys, time
from dataclasses import asdict, dataclass
from pathlib import Path
import tyro

@dataclass
class Args:
    env_id: str
    exp_name: str = "fake"
    seed: int = 1
    runs_dir: str = "runs"
    device: str = "cpu"
    resume: str = ""
    journal: str = "journal"
    total_timesteps: int = 8
    delay: float = 0.0  # seconds a step takes
    lr: float = 0.5  # the score, for most part
    epochs: int = 4
    tail: bool = True
    limit: float | None = None
    crash: float = 9.0  # the lr from which on a run fails

    def __post_init__(self):
        if self.epochs == 7 and not self.tail:
            raise ValueError("--epochs 7 needs --tail")

def say(args, *words):
    with open(args.journal, "a") as file:
        print(args.exp_name, args.env_id, args.seed, *words, file=file)

def event(step, value):
    tag = b"charts/episodic_return"
    value = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", value)
    value = b"\x0a" + bytes([len(value)]) + value
    data = b"\x09" + struct.pack("<d", time.time()) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(value)]) + value
    return struct.pack("<Q", len(data)) + bytes(4) + data + bytes(4)

def main(args):
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(15))
    name = f"{args.env_id}__{args.exp_name}__{args.seed}__{time.time_ns()}"
    folder, step = Path(args.resume or Path(args.runs_dir) / name), 0
    if args.resume:
        step = int((folder / "checkpoint.pt").read_text())
    say(args, "resume" if args.resume else "start", step)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(__file__, folder)
    run = {"algo": Path(__file__).stem, "args": asdict(args), "commit": "x", "env_id": args.env_id}
    run |= {"seed": args.seed, "total_timesteps": args.total_timesteps}
    (folder / "config.json").write_text(json.dumps(run))
    log = (folder / f"events.out.tfevents.{time.time_ns()}.x").open("wb")
    score = args.lr + args.seed / 100 + 2 * (args.env_id == "Easy")
    while step < args.total_timesteps:
        time.sleep(args.delay)
        if stop:
            say(args, "stopped", step)
            sys.exit(143)
        step += 1
        log.write(event(step, score))
        log.flush()
        (folder / "aside").write_text(str(step))
        os.replace(folder / "aside", folder / "checkpoint.pt")
        if args.lr >= args.crash:
            sys.exit("NaN or infinity")
    run |= {"eval_return_mean": score, "eval_returns": [score], "global_step": step}
    (folder / "summary.json").write_text(json.dumps(run))
    say(args, "end", step)

if __name__ == "__main__":
    main(tyro.cli(Args))
"""
SPACE = ("lr=uniform(0,1)", "epochs=int(2,9)", "tail=choice(True,False)")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with the script in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tune, "POLL", 0.1)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    (tmp_path / "fake.py").write_text(FAKE)
    return tmp_path


def options(**more) -> tune.Options:
    usual = {"script": Path("fake.py"), "env_ids": ("Hard",), "space": SPACE, "seeds": ("1",)}
    return tune.Options(**usual | {"study": Path("st")} | more)


def journal() -> list[list[str]]:
    """[exp_name, env_id, seed, start or resume or stopped or end, step] in the order of time."""
    file = Path("journal")
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def trials() -> list:
    return optuna.load_study(study_name="study", storage="sqlite:///st/study.db").trials


def start(flags: str) -> subprocess.Popen:
    """A tuner as from the command line, leading a process group of its own."""
    line = [sys.executable, ROOT / "scripts/tune.py", *shlex.split(flags)]
    streams = dict(text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return subprocess.Popen(line, start_new_session=True, **streams)


def finish(process: subprocess.Popen, status: int = 0) -> str:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == status, output
    return output


def wait_for(condition, process) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


def test_space():
    """Would break: another distribution than the one that was written down."""
    read = dict(map(space.read_item, ("lr=log(1e-4,3e-3)", "--gae_lambda=uniform( 0.9, 0.99 )")))
    assert read["lr"] == FloatDistribution(1e-4, 3e-3, log=True)
    assert read["gae-lambda"] == FloatDistribution(0.9, 0.99)
    assert space.read_item("n=int(3,10)") == ("n", IntDistribution(3, 10))
    choice = CategoricalDistribution(["None", "0.01"])
    assert space.read_item("target-kl=choice(None,0.01)") == ("target-kl", choice)
    assert space.flag_of("lr", 0.000123456, 0.1, read["lr"]) == ["--lr", "0.0001235"]
    assert space.flag_of("tail", "False", True, choice) == ["--no-tail"]
    assert space.flag_of("tail", "True", True, choice) == ["--tail"]
    for low, drawn, word in (
        ("0.9", 0.99996, "0.99996"),  # with four digits 1, which is out of the range
        ("0.999", 0.99923456, "0.999235"),  # four would leave eleven values
        ("0", 0.99923456, "0.9992"),
    ):
        gamma = space.read_item(f"gamma=uniform({low},0.99999)")[1]
        assert space.flag_of("gamma", drawn, 0.99, gamma) == ["--gamma", word]


def test_defaults_in_the_space(folder):
    """Would break: a sampler that is told other defaults than those that ran, or none."""
    module = plan.module_of(Path("fake.py"))
    items = (
        "lr=uniform(0,0.4)",
        "epochs=choice(4,8)",
        "limit=choice(None,3)",
        "tail=choice(True,False)",
    )
    searched, defaults, inside = space.read_space(options(space=items), module, [])
    assert list(searched) == ["lr", "epochs", "limit", "tail"]
    assert defaults == {"lr": 0.5, "epochs": 4, "limit": None, "tail": True}
    assert inside == {"epochs": "4", "limit": "None", "tail": "True"}
    assert space.read_space(options(), module, [])[2]["lr"] == 0.5


FORM = "give NAME=log(1e-4,3e-3)"
BAD = [
    ({"space": ("lr",)}, [], f"--space lr: {FORM}"),
    ({"space": ("lr=normal(0,1)",)}, [], FORM),
    ({"space": ("lr=log(0,1)",)}, [], "log needs numbers above 0"),
    ({"space": ("lr=choice(1)",)}, [], "a choice needs several different values"),
    ({"space": ("rate=log(1,2)",)}, [], "fake.py has no --rate"),
    ({"space": ("lr=log(1,2)", "lr=int(1,2)")}, [], "--space has --lr twice"),
    ({"space": ("epochs=uniform(1,9)",)}, [], "--epochs takes whole numbers; use int or choice"),
    ({"space": ("tail=int(0,1)",)}, [], "fake.py does not accept the flags"),
    ({"space": ("seed=int(1,9)",)}, [], "--seed is set by the tuner"),
    ({}, ["--lr", "0.1"], "--lr is in --space and after --; remove one of them"),
    ({}, ["--no-such", "1"], "fake.py does not accept the flags: Unrecognized options: --no-such"),
    ({"space": ()}, [], "give --space"),
    ({"script": Path("gone.py")}, [], "gone.py does not exist"),
    ({"env_ids": ("Easy", "Hard")}, [], "Easy Hard has no scale; give --scales ENV_ID=LOW,HIGH"),
    ({"scales": ("Hard=1,1",)}, [], "--scales Hard=1,1: give ENV_ID=LOW,HIGH"),
    ({"trials": 0}, [], "--trials must be at least 1, not 0"),
    ({"timeout": math.nan}, [], "--timeout must be at least 0, not nan"),
    ({"normalise": Path("none.csv")}, [], "--normalise none.csv is not a CSV file"),
    ({"ray": "127.0.0.1:9"}, [], "--ray 127.0.0.1:9 cannot be used"),
    ({"retest": ("7",)}, [], "--retest: there is no study in st"),
    ({"study": Path("fake.py/st")}, [], "--study fake.py/st cannot be written to"),
    ({"script": ALGOS / "ppo.py", "space": ("gamma=uniform(0.9,1)",)}, [], "--env-id Hard"),
]  # fmt: skip


@pytest.mark.parametrize("more, common, words", BAD)
def test_bad_input(folder, capsys, more, common, words):
    """Would break: a typing error that comes to light after a night, as a traceback, or in a folder that is left."""
    with pytest.raises(SystemExit) as stopped:
        tune.main(options(**more), common)
    output, errors = capsys.readouterr()
    assert stopped.value.code == 2
    assert len((output + errors).splitlines()) == 1 and words in errors
    assert [path.name for path in folder.iterdir()] == ["fake.py"]


def test_retest_of_other_flags(folder, capsys, monkeypatch):
    """Would break: a traceback after all runs, where the folder holds runs of another --device."""
    rows = [results.Row("fake-defaults-device=cpu", "Easy", 11, 0, progress.SCORE, 1.0, "abc")]
    monkeypatch.setattr(report, "read_folders", lambda folders: (rows, []))
    with pytest.raises(SystemExit):
        report.write_retest(options(), SimpleNamespace(number=3), {"Easy": (0, 1)}, [11])
    assert "Was another --device used before?" in capsys.readouterr().err


def test_what_a_study_is(folder, capsys, monkeypatch):
    """Would break: trials of different programs, spaces or scores in one study; two tuners in one; a file that is no
    study; a traceback in place of what to install."""
    with pytest.raises(SystemExit):
        tune.main(options(trials=1, statistic="iqm", study=Path("few")), [])
    assert (
        "--statistic iqm is the mean for 1 runs" in capsys.readouterr().err
        and not Path("few").exists()
    )
    tune.main(options(trials=1), [])
    other = {"scales": ("Hard=0,2",), "seeds": ("1-2",), "space": SPACE[:2], "statistic": "iqm"}
    for name, value in other.items():
        with pytest.raises(SystemExit):
            tune.main(options(trials=1, **{name: value}), [])
        assert f"made with another {name}; use another folder" in capsys.readouterr().err
    held = sweep.hold(sweep.claim_file("study", Path("st")))
    with pytest.raises(SystemExit):
        tune.main(options(script=None, env_ids=(), space=()), [])
    assert "--study st is in use by another tune.py" in capsys.readouterr().err
    sweep.release(held)
    alone = {"script": None, "env_ids": (), "space": (), "scales": ()}
    for name, value in (other | {"seeds": ("3",), "env_ids": ("Easy",)}).items():
        with pytest.raises(SystemExit):
            tune.main(options(**alone | {name: value}), [])
        assert "give the whole command, or --study" in capsys.readouterr().err
    Path("fake.py").write_text(FAKE + "# another program")
    with pytest.raises(SystemExit):
        tune.main(options(trials=1), [])
    assert "made with another version of the script" in capsys.readouterr().err
    Path("st/study.db").write_text("no database")
    with pytest.raises(SystemExit):
        tune.main(options(trials=1), [])
    assert "--study st cannot be read" in capsys.readouterr().err
    monkeypatch.setattr(tune, "find_spec", lambda name: None if name == "optuna" else True)
    with pytest.raises(SystemExit):
        tune.main(options(), [])
    assert "pip install -e '.[tune]'" in capsys.readouterr().err


def test_points(folder):
    """Would break: a score so far that is of another part of the run, of other scales, or jumps over a run."""
    scales = {"Easy": (2.0, 4.0), "Hard": (0.0, 1.0)}
    sweep_of = tune.sweep_options(
        options(env_ids=("Easy", "Hard"), seeds=("1-2",)),
        scripts=(Path("fake.py"),),
        runs_dir=Path("st"),
    )
    jobs = sweep.expand(sweep_of, [])
    run = Path("st/Easy")
    run.mkdir(parents=True)
    shutil.copy("fake.py", run)
    record = {"algo": "fake", "args": jobs[0].args}
    (run / "config.json").write_text(json.dumps(record))
    (run / "checkpoint.pt").write_text("4")
    fake = plan.module_of(Path("fake.py"))
    returns = [2.0, 3.0, 4.0, 5.0, 6.0]  # of steps 1 to 5 of 8
    events = b"".join(fake.event(step, value) for step, value in enumerate(returns, 1))
    (run / "events.out.tfevents.1.x").write_bytes(events + events[:20])
    scores = []
    # step 1 | steps 2 and 3 | from step 4 on: not over
    expected = {1: 0.0, 2: (3.5 - 2) / 2}
    assert progress.advance(jobs, scores, Path("st"), scales, "mean") == expected and not scores
    (run / "summary.json").write_text(json.dumps(record | {"eval_return_mean": 8.0}))
    points = progress.advance(jobs, scores, Path("st"), scales, "mean")
    assert points == expected | {4: 3.0} and scores == [3.0]
    assert progress.advance(jobs, scores, Path("st"), scales, "mean") == {}
    hard = Path("st/Hard")
    shutil.copytree(run, hard)
    record = {"algo": "fake", "args": jobs[1].args}
    (hard / "config.json").write_text(json.dumps(record))
    (hard / "summary.json").unlink()
    points = progress.advance(jobs, scores, Path("st"), scales, "mean")
    assert points == {5: (3.0 + 2.0) / 2, 6: (3.0 + 3.5) / 2} and scores == [3.0]
    assert progress.score_of([0.0, 1.0, 2.0, 30.0], "iqm") == 1.5
    assert progress.mean_returns(jobs, [0.0, 0.5, 1.0, 0.7], scales) == {"Easy": 3.0, "Hard": 0.6}


def test_below_median(folder):
    """Would break: a good trial that is pruned, or one that is compared with another point or with pruned trials."""
    module = plan.module_of(Path("fake.py"))
    searched = space.read_space(options(), module, [])
    tuner = tune.Tuner(options(startup=3), [], b"", searched, {})
    tuner.study = optuna.create_study(direction="maximize")
    for value in (0.1, 0.2, 0.6):
        assert not tuner.below_median(4, -9.0)
        known = {2: 5.0, 4: value}
        tuner.study.add_trial(create_trial(value=value, intermediate_values=known))
        state = TrialState.PRUNED
        tuner.study.add_trial(create_trial(state=state, intermediate_values={4: 9.0}))
    assert tuner.below_median(4, 0.19) and not tuner.below_median(4, 0.2)
    assert (
        tuner.below_median(2, 0.2)
        and not tuner.below_median(1, -9.0)
        and not tuner.below_median(5, -9.0)
    )
    tuner.options.prune = False
    assert not tuner.below_median(4, 0.19)


def test_pruned(folder, capsys):
    """Would break: runs of a pruned trial that go on, or are killed before they have saved; further seeds of it; the
    defaults pruned; defaults outside of the space that are not trial 0."""
    flags = options(space=("lr=uniform(0,0.1)",), seeds=("1-2",), startup=1, trials=3)
    assert tune.main(flags, ["--total-timesteps", "16", "--delay", "0.1"]) == 0
    first, *others = trials()
    assert first.state == TrialState.COMPLETE and not first.params
    assert [line[3] for line in journal() if "trial-0" in line[0]] == ["start", "end"] * 2
    for trial in others:
        mine = [line for line in journal() if line[0] == f"fake-trial-{trial.number}"]
        assert [line[2:4] for line in mine] == [["1", "start"], ["1", "stopped"]]
        (saved,) = Path(f"st/trial-{trial.number}").glob("*/checkpoint.pt")
        assert 8 <= int(saved.read_text()) == int(mine[-1][4]) < 16
        assert trial.state == TrialState.PRUNED and "failed" not in trial.user_attrs
    output = capsys.readouterr().out
    assert "trial 2 pruned at point 2 of 8" in output
    assert "3 trials: 1 complete, 2 pruned, 0 failed, 0 not finished" in output
    assert "No trial is better than the defaults (trial 0), which score 0.515" in report_text()


def report_text() -> str:
    return Path("st/report.md").read_text()


def half_done() -> bool:
    """A run has saved a checkpoint and not ended."""
    saved = [file.parent for file in Path("st").glob("trial-*/*/checkpoint.pt")]
    return any(not (run / "summary.json").exists() for run in saved)


def test_killed_three_times(folder):
    """Would break: a trial that is lost, drawn or counted twice, or stays at work for ever; runs done again; the
    same random numbers after every start; a tuner that does not wait for runs that outlived the one before."""
    whole = f"--script fake.py --env-ids Hard --seeds 1-2 --space {' '.join(map(shlex.quote, SPACE[:2]))}"
    whole += " --trials 6 --workers 2 --no-prune --study st -- --delay 0.08"
    drawn = {}
    for kill in range(3):
        before = len(journal())
        process = start("--study st --trials 6 --workers 2 --no-prune" if kill == 2 else whole)
        wait_for(lambda before=before: len(journal()) > before + 2, process)
        # all at once, as in a power cut in the middle of a run, or the tuner alone
        if kill % 2:
            time.sleep(0.2)
            os.kill(process.pid, signal.SIGKILL)
        else:
            wait_for(half_done, process)
            os.killpg(process.pid, signal.SIGKILL)
        finish(process, -9)
        for trial in trials():
            assert drawn.get(trial.number, {}).items() <= trial.params.items()
            drawn[trial.number] = trial.params
    assert any(trial.state == TrialState.RUNNING for trial in trials())
    assert "6 trials: 6 complete, 0 pruned, 0 failed, 0 not finished" in finish(start(whole))
    done = trials()
    assert [trial.number for trial in done] == list(range(6))
    assert all(drawn.get(trial.number, {}).items() <= trial.params.items() for trial in done)
    assert done[0].params == {"lr": 0.5, "epochs": 4}
    assert len({trial.params["lr"] for trial in done}) == 6
    count = Counter((*line[:3], line[3]) for line in journal())
    for trial in done:
        for seed in "12":
            run = f"fake-trial-{trial.number}", "Hard", seed
            assert count[*run, "end"] == 1, run
        lr = float(f"{trial.params['lr']:.4g}")
        assert math.isclose(trial.value, lr + 0.015)
        assert len(list(Path(f"st/trial-{trial.number}").glob("*/summary.json"))) == 2
    assert any(line[3] == "resume" and line[4] > "0" for line in journal())
    before = journal()
    assert "6 complete" in finish(start("--study st --trials 6")) and journal() == before


def test_stopped(folder, number=signal.SIGTERM):
    """Would break: a run that is not saved; a trial that is told as anything before it is over."""
    flags = "--script fake.py --env-ids Hard --seeds 1 --space 'lr=uniform(0,1)' --trials 2"
    process = start(f"{flags} --study st -- --delay 0.1")
    wait_for(lambda: list(Path("st").glob("*/*/checkpoint.pt")), process)
    process.send_signal(number)
    output = finish(process, 128 + number)
    first, second, *_ = output.splitlines()  # a trial can last for hours, so its start is shown
    assert first == "study st: 0 of 2 trials so far"
    assert second == "trial 0 started: the defaults"
    assert "stopped; the same command continues the study" in output and "Traceback" not in output
    assert [line[3] for line in journal()] == ["start", "stopped"]
    assert [trial.state for trial in trials()] == [TrialState.WAITING]
    tune.main(options(script=None, env_ids=(), space=(), trials=1), [])
    assert [line[3] for line in journal()] == ["start", "stopped", "resume", "end"]
    assert [trial.state for trial in trials()] == [TrialState.COMPLETE]


def test_report_and_retest(folder, capsys, monkeypatch):
    """Would break: a command line that the script does not take or that is not the best trial's; failures that are
    hidden, end the study or are the best; a retest on the seeds of the search."""
    flags = options(env_ids=("Easy", "Hard"), scales=("Easy=2,3", "Hard=0,1"), prune=False)
    flags.trials, flags.workers, flags.startup = 10, 2, 99
    monkeypatch.setattr(report, "ENOUGH", 5)
    assert tune.main(flags, ["--crash", "0.9"]) == 0
    capsys.readouterr()
    done = trials()
    failed = [trial for trial in done if "failed" in trial.user_attrs]
    complete = [trial for trial in done if trial.state == TrialState.COMPLETE]
    best = max(complete, key=lambda trial: trial.value)
    text, count = report_text(), f"{len(complete)} complete, 0 pruned, {len(failed)} failed"
    assert f"10 trials: {count}, 0 not finished" in text
    reasons = " ".join(trial.user_attrs["failed"] for trial in failed)
    assert "--epochs 7 needs --tail" in reasons and "NaN or infinity" in reasons
    for trial in failed:
        broken = trial.params["epochs"] == 7 and trial.params["tail"] == "False"
        assert trial.params["lr"] >= 0.9 or broken
        assert f"Trial {trial.number} failed: {trial.user_attrs['failed']}" in text
    line = shlex.split(text.split("```")[1])
    assert line[:2] == ["python", "fake.py"]
    args = plan.parse(plan.module_of(Path("fake.py")).Args, "fake.py", line[2:])
    wanted = best.params["lr"], best.params["epochs"], best.params["tail"] == "True"
    assert (round(args.lr, 4), args.epochs, args.tail) == (round(wanted[0], 4), *wanted[1:])
    assert args.crash == 0.9 and args.env_id == "Easy"
    assert (
        f"Trial {best.number} scores {best.value:.3f} and the defaults (trial 0) score 0.510"
        in text
    )
    assert "| 0 | 0.510 | Easy 2.51, Hard 0.51 | `the defaults` |" in text
    assert "too high by construction" in text and "Importance (PED-ANOVA" in text
    shares = report.importances_of(
        optuna.load_study(study_name="study", storage="sqlite:///st/study.db"), done
    )
    assert set(shares) == {"lr", "epochs", "tail"} and max(shares, key=shares.get) == "lr"
    assert Path("st/report.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(Path("st/trials.csv").open()))
    assert [row["state"] for row in rows].count("failed") == len(failed) and len(rows) == 10
    assert float(rows[best.number]["score"]) == best.value
    assert float(rows[best.number]["lr"]) == best.params["lr"]
    assert (rows[0]["Easy"], rows[0]["Hard"], rows[0]["epochs"]) == ("2.51", "0.51", "4")

    for seeds, words in (
        (("1-3",), "the search has already used seed 1"),
        (("x",), "x"),
        (("11",), "at least two seeds"),
    ):
        with pytest.raises(SystemExit):
            tune.main(options(script=None, env_ids=(), space=(), retest=seeds), [])
        assert words in capsys.readouterr().err
    again = options(script=None, env_ids=(), space=(), retest=("11-12",), workers=2)
    assert tune.main(again, []) == 0
    output = capsys.readouterr().out
    assert output.endswith(Path("st/retest.md").read_text())
    gain = args.lr - 0.5
    rows = [line.split(" | ") for line in output.splitlines() if line.startswith("| ")][2:]
    assert [row[0] for row in rows] == ["| Easy", "| Hard", "| score over 2 environments"]
    for row in rows:
        assert row[1] == "paired, 2 seeds" and row[6].startswith("underpowered")
        assert math.isclose(float(row[4].split()[0]), gain, abs_tol=0.006)


def test_defaults_that_fail(folder, capsys):
    """Would break: a night of failures where nothing works at all; a trial 0 that is lost for it."""
    with pytest.raises(SystemExit) as stopped:
        tune.main(options(workers=2), ["--crash", "0"])
    assert stopped.value.code == 1
    assert (
        "trial 0 cannot continue: Hard__fake-trial-0__1: exit status 1" in capsys.readouterr().err
    )
    assert trials()[0].state == TrialState.WAITING


def test_edited_in_the_middle(folder, capsys):
    """Would break: trials of two programs in one study; a trial that fails for what is not its fault."""
    process = start(
        "--script fake.py --env-ids Hard --space 'lr=uniform(0,1)' --study st -- --delay 0.1"
    )
    wait_for(lambda: list(Path("st").glob("*/*/checkpoint.pt")), process)
    Path("fake.py").write_text(FAKE + "# another program")
    assert "cannot continue" in finish(process, 1)
    assert [trial.state for trial in trials()] == [TrialState.WAITING]
