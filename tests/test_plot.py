"""scripts/plot.py: what it reads, its statistics against figures computed by hand, and what it refuses to average."""

import csv
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from torch.utils.tensorboard import SummaryWriter

PLOT = ROOT / "scripts" / "plot.py"
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.csv"))


@pytest.fixture
def plot():
    spec = importlib.util.spec_from_file_location("plot", PLOT)
    module = sys.modules["plot"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_run(
    runs,
    name="ppo",
    env_id="E-v1",
    seed=1,
    score=10.0,
    points=((10, 1.0), (20, 3.0)),
    finished=True,
):
    """A run folder as an algorithm leaves it, with two evaluation episodes, one below and one above the score."""
    run = runs / f"{env_id}__{name}__{seed}__0"
    with SummaryWriter(run) as writer:
        for i, (step, value) in enumerate(points):
            writer.add_scalar(
                "charts/episodic_return", value, step, walltime=writer_start(run) + 60 * (i + 1)
            )
    summary = {
        "algo": "ppo",
        "env_id": env_id,
        "seed": seed,
        "args": {"exp_name": name},
        "total_timesteps": 20,
    }
    (run / "config.json").write_text(json.dumps(summary))
    summary |= {
        "global_step": 20,
        "commit": "abc",
        "eval_returns": [score - 1, score + 1],
        "eval_return_mean": score,
    }
    summary |= {
        "eval_return_std": 1.0,
        "sps": 100.0,
        "wall_time_s": 3.0,
        "train_return_last100": None,
    }
    if finished:
        (run / "summary.json").write_text(json.dumps(summary))
    return run


def writer_start(run) -> float:
    """When the event file was opened: the wall time of its first event, as its name has it to the second."""
    (file,) = run.glob("events*")
    return int(file.name.split(".")[3])


@pytest.fixture
def call(plot, monkeypatch, capsys):
    """Exit status, output and errors of plot.py, in this process and with few resamples."""

    def run(*flags, cwd) -> tuple[int, str, str]:
        monkeypatch.chdir(cwd)
        capsys.readouterr()
        given = [str(flag) for flag in flags] + ["--bootstrap-reps", "20"]
        status = 0
        try:
            plot.main(plot.tyro.cli(plot.Options, args=given))
        except SystemExit as stopped:
            status = stopped.code or 0
        return status, *capsys.readouterr()

    return run


def rows_of(plot, scores: dict) -> list[dict]:
    """Rows of final scores, {exp_name: [score of seed 1, of seed 2, ...]}, in one environment."""
    return [
        dict(
            zip(
                plot.COLUMNS, (name, "E-v1", str(seed), "20", "eval_return_mean", str(value), "abc")
            )
        )
        for name, values in scores.items()
        for seed, value in enumerate(values, 1)
    ]


# ---- statistics, by hand -------------------------------------------------------------------------------------------


def test_aggregates(plot):
    """Would break: a median or a trimmed mean with another share in place of the interquartile mean."""
    runs = np.array([[1.0], [2.0], [3.0], [6.0], [7.0], [8.0], [100.0], [1000.0]])
    assert plot.aggregate(runs, "iqm") == [(3 + 6 + 7 + 8) / 4]
    assert plot.aggregate(runs, "mean") == [1127 / 8]


def test_intervals(plot):
    """The mean of three draws from {0, 0, 3} is 0 in 8 of 27 cases and 3 in one (3.7 %): its 95 % interval is [0, 3].
    Of four draws from {0, 0, 0, 4} it is 4 in one of 256 cases and at least 3 in 13 (5.1 %): the 97.5 % point is 3.
    Would break: another level, a one-sided interval, a normal approximation, columns that are mixed."""
    assert np.array(
        plot.interval(np.array([[0.0], [0.0], [3.0]]), "mean", 4000)
    ).ravel().tolist() == [0, 3]
    low, high = plot.interval(np.array([[0.0, 100], [0, 100], [0, 100], [4, 104]]), "mean", 4000)
    assert (low.tolist(), high.tolist()) == ([0, 100], [3, 103])
    assert np.isnan(
        plot.interval(np.array([[5.0]]), "mean", 100)
    ).all()  # one run says nothing about its spread


def test_difference(plot):
    """5 runs above 5 others is one of 252 regroupings, and so is the reverse. The IQM of five is the mean of the middle
    three. Would break: a one-sided test, an IQM of differences, seeds that are resampled in pairs."""
    a, b = np.array([1.0, 2, 3, 4, 5]), np.array([11.0, 12, 13, 14, 15])
    assert plot.difference(a, b, "mean", 200)["p"] == pytest.approx(2 / 252)
    assert plot.difference(a[:3], b[:3], "mean", 200)["p"] == pytest.approx(2 / 20)
    assert plot.difference(a, a, "mean", 200)["p"] == 1
    a, b = (
        np.array([20.0, 50, 10, 10, 10]),
        np.array([10.0, 50, 0, 0, 50]),
    )  # middle three: 10 10 20 and 0 10 50
    row = plot.difference(a, b, "iqm", 2000)
    assert (
        row["difference"] == pytest.approx(40 / 3 - 60 / 3)
        and row["low"] < row["difference"] < row["high"]
    )
    one, other = (
        np.array([0.0, 0, 3]),
        np.array([0.0, 0, 3]),
    )  # each mean is 3 in 1 of 27 draws and 0 in 8 of 27
    row = plot.difference(one, other, "mean", 4000)
    assert (row["low"], row["difference"], row["high"]) == (
        -2,
        0,
        2,
    )  # +-3 in 8 of 729 each, +-2 and more in 74


def test_probability_of_improvement(plot):
    """Nine pairs: 1 > 0; 2 = 2 twice and 2 > 0; 3 > 2 twice and 3 > 0: (1 + 2 + 3) / 9. Would break: lost ties, a > b
    taken for b > a."""
    point, low, high = plot.improvement(np.array([1.0, 2, 3]), np.array([2.0, 2, 0]), 500)
    assert point == pytest.approx(6 / 9)
    assert 0 <= low < point < high <= 1


def test_comparison_needs_enough_seeds(plot):
    """Would break: the sign of a difference, or one called significant on three seeds."""
    options = plot.Options(inputs=())
    rows = rows_of(plot, {"a": [1, 2, 3], "b": [11, 12, 13]})
    rows.reverse()
    (row,) = plot.comparison_table(rows, "eval_return_mean", options)
    assert (row["exp_name"], row["against"], row["difference"]) == ("b", "a", 10) and row["low"] > 0
    assert row["significant"] == "no"  # p cannot be below 0.1
    rows = rows_of(plot, {"a": [1, 2, 3, 4, 5], "b": [11, 12, 13, 14, 15]})
    (row,) = plot.comparison_table(rows, "eval_return_mean", options)
    assert (row["difference"], row["significant"], row["probability"]) == (10, "yes", 1)


def test_baseline(plot):
    """Would break: pairs of many experiments that nobody asked for; a baseline that is compared with itself."""
    rows = rows_of(plot, {name: [1, 2] for name in "abcde"})
    pairs = [
        (r["exp_name"], r["against"])
        for r in plot.comparison_table(rows, "eval_return_mean", plot.Options(()))
    ]
    assert pairs == [(name, "a") for name in "bcde"]
    options = plot.Options((), baseline="c")
    pairs = [
        (r["exp_name"], r["against"])
        for r in plot.comparison_table(rows, "eval_return_mean", options)
    ]
    assert pairs == [(name, "c") for name in "abde"]


# ---- reading -------------------------------------------------------------------------------------------------------


def test_export(plot, call, tmp_path):
    """Would break: a lost seed, metric or point, bins that sum, minutes counted from the epoch."""
    make_run(tmp_path / "runs", points=((2, 1.0), (4, 2.0), (20, 7.0)))
    status, out, err = call("runs", "--export", "results/set.csv", "--bins", 2, cwd=tmp_path)
    assert (status, err) == (0, "")
    with (tmp_path / "results/set.csv").open() as file:
        rows = [tuple(row) for row in csv.reader(file)]
    assert rows[0] == ("exp_name", "env_id", "seed", "step", "metric", "value", "commit")
    points = {(row[4], int(row[3])): float(row[5]) for row in rows[1:]}
    assert all(row[:3] == ("ppo", "E-v1", "1") and row[6] == "abc" for row in rows[1:])
    assert points["charts/episodic_return", 3] == 1.5 and points["charts/episodic_return", 20] == 7
    assert points["charts/wall_time_s", 3] == pytest.approx(90, abs=1)
    assert points["charts/wall_time_s", 20] == pytest.approx(180, abs=1)
    finals = {
        "eval_return_mean": 10,
        "eval_return_std": 1,
        "eval_return_median": 10,
        "eval_return_min": 9,
    }
    assert {metric: points[metric, 20] for metric in finals} == finals
    assert "charts/" not in out and "| E-v1 | ppo | 1 | 10.0 [n/a, n/a] |" in out


def test_curve_of_a_resumed_run(plot, tmp_path):
    """1 ms a step; a checkpoint at step 100, killed at 195, 100,000 s later resumed. Episodes end at 64, 128, 192; and,
    as a resumed run starts new ones, at 164. Would break: what was done again counted twice, the pause counted."""
    run, start = tmp_path / "run", 1_700_000_000.0
    for opened, first, last, ends in (
        (start, 0, 195, (64, 128, 192)),
        (start + 1e5, 100, 200, (164,)),
    ):
        with SummaryWriter(run, purge_step=first + 1, filename_suffix=str(opened)) as writer:
            for step in range(first + 5, last + 1, 5):
                writer.add_scalar(
                    "charts/SPS", 1000.0, step, walltime=opened + (step - first) / 1000
                )
            for step in ends:
                writer.add_scalar(
                    "charts/episodic_return", step, step, walltime=opened + (step - first) / 1000
                )
    files = sorted(run.glob("events*"), key=lambda file: file.name.split(".")[-2:])
    for file, opened in zip(files, (start, start + 1e5)):
        set_opening(file, opened)
    rows = plot.read_curve(run, total_timesteps=200, bins=200)
    assert [(step, value) for step, metric, value in rows if metric == plot.CURVE] == [
        (64, 64),
        (164, 164),
    ]
    assert [value for _, metric, value in rows if metric == plot.CLOCK] == pytest.approx(
        [0.064, 0.164], abs=1e-3
    )


def set_opening(file, opened: float) -> None:
    """Give the first events of a file, which are stamped with now, the time of its opening."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from tensorboard.summary.writer.record_writer import RecordWriter

    events = list(LegacyEventFileLoader(str(file)).Load())
    for event in events:
        event.wall_time = (
            min(event.wall_time, opened) if not event.HasField("summary") else event.wall_time
        )
    with file.open("wb") as stream:
        for event in events:
            RecordWriter(stream).write(event.SerializeToString())
    file.rename(file.with_name(f"events.out.tfevents.{int(opened)}.host.1.0"))


def test_runs_of_other_flags_are_not_averaged(call, tmp_path):
    """Would break: one row for seeds that trained with different settings."""
    for seed, gamma in ((1, 0.9), (2, 0.99)):
        run = make_run(tmp_path / "runs", seed=seed)
        summary = json.loads((run / "summary.json").read_text())
        summary["args"] |= {"gamma": gamma, "seed": seed}
        (run / "summary.json").write_text(json.dumps(summary))
        (run / "config.json").write_text(json.dumps(summary))
    status, out, err = call("runs", "--allow-incomplete", cwd=tmp_path)
    assert (status, out) == (1, "") and "runs of ppo on E-v1 have different --gamma" in err


def test_run_that_goes_on_is_not_finished(call, tmp_path):
    """Would break: the score of the first 20 steps for a run that was resumed to make more of them."""
    make_run(tmp_path / "runs", seed=1)
    run = make_run(tmp_path / "runs", seed=2)
    config = json.loads((run / "config.json").read_text())
    config["args"] |= {"total_timesteps": 2000}
    (run / "config.json").write_text(json.dumps(config))
    status, _, err = call("runs", cwd=tmp_path)
    assert status == 1 and "ppo on E-v1 with seed 2 is not finished" in err


def test_what_else_is_missing(plot):
    """Would break: a seed without a curve, a score that is no number, an experiment without a score."""
    rows = rows_of(plot, {"a": [1, 2], "b": [1, math.nan]})
    curve = dict(rows[0]) | {"metric": plot.CURVE}
    lines = plot.problems([*rows, curve, curve | {"exp_name": "c"}], "eval_return_mean")
    assert lines == ["c on E-v1 has no eval_return_mean", "a on E-v1 has no learning curve of seeds 2",
                     "b on E-v1 with seed 2 scores nan"]  # fmt: skip
    (row,) = plot.comparison_table(rows, "eval_return_mean", plot.Options(()))
    assert math.isnan(row["p"]) and row["significant"] == "no"


def test_all_inputs_are_checked_first(call, tmp_path):
    """Would break: figures of the first file before the second one is refused; files that lose a part of their name."""
    for name, seeds in (("study-1.0", (1, 2)), ("study-1.5", (1,))):
        for seed in seeds:
            make_run(tmp_path / name, seed=seed)
        make_run(tmp_path / name, "rpo", seed=1)
        assert (
            call(name, "--export", f"results/{name}.csv", "--allow-incomplete", cwd=tmp_path)[0]
            == 0
        )
    shutil.rmtree(tmp_path / "curves")
    status, out, err = call("results/study-1.5.csv", "results/study-1.0.csv", cwd=tmp_path)
    assert (status, out, (tmp_path / "curves").exists()) == (
        1,
        "",
        False,
    ) and "study-1.0 is incomplete" in err
    assert call("results/study-1.5.csv", "--output", "a.b", cwd=tmp_path)[0] == 0
    assert (tmp_path / "a.b/study-1.5.svg").is_file() and (
        tmp_path / "a.b/study-1.5_scores.csv"
    ).is_file()


def test_same_bytes_again(call, tmp_path):
    """Would break: a draw without a seed, a date in a file, an order that depends on hashes."""
    for seed in (1, 2, 3):
        for name in ("ppo", "rpo"):
            make_run(tmp_path / "runs", name, seed=seed, score=seed * len(name) + (name == "rpo"))
    assert call("runs", "--export", "a/results/set.csv", cwd=tmp_path)[0] == 0
    assert call("a/results/set.csv", "--output", "b", cwd=tmp_path)[0] == 0
    names = sorted(file.name for file in (tmp_path / "b").iterdir())
    assert names == [
        "set.html",
        "set.md",
        "set.png",
        "set.svg",
        "set_comparisons.csv",
        "set_scores.csv",
    ]
    for name in names:
        assert (tmp_path / "a/curves" / name).read_bytes() == (
            tmp_path / "b" / name
        ).read_bytes(), name


# ---- incomplete sets -----------------------------------------------------------------------------------------------


def test_run_folders_one_by_one(call, tmp_path):
    """Would break: a declared seed that the shell's pattern did not find; hidden folders taken for runs."""
    runs = tmp_path / ".hidden" / "runs"
    for seed in (1, 2):
        make_run(runs, "ppo", seed=seed), make_run(runs, "rpo", seed=seed)
    make_run(runs / ".incoming", "ppo", seed=3, finished=False)
    declared = [
        {"exp_name": name, "env_id": "E-v1", "seed": seed}
        for name in ("ppo", "rpo")
        for seed in (1, 2, 3)
    ]
    (runs / "sweep.json").write_text(json.dumps({"runs": declared[:2] + declared[3:]}))
    pattern = sorted(map(str, runs.glob("*__ppo__*")))
    assert (
        call(*pattern, "--output", "a", cwd=tmp_path)[0] == 0
    )  # ppo's two declared seeds; rpo was not asked for
    status, _, err = call(*sorted(map(str, runs.glob("E*"))), "--output", "b", cwd=tmp_path)
    assert (
        status == 1
        and "rpo on E-v1 with seed 3 is not finished" in err
        and err.count("not finished") == 1
    )


@pytest.mark.parametrize("case", ["unfinished", "declared", "seeds"])
def test_incomplete(case, call, tmp_path):
    """Would break: an average over the runs that happen to be there."""
    runs = tmp_path / "runs"
    make_run(runs, "ppo", seed=1), make_run(runs, "ppo", seed=2), make_run(runs, "rpo", seed=1)
    if case == "unfinished":
        make_run(runs, "rpo", seed=2, finished=False)
    elif case == "declared":
        shutil.rmtree(runs / "E-v1__ppo__2__0")
        declared = [
            {"exp_name": name, "env_id": "E-v1", "seed": 1} for name in ("ppo", "rpo", "broken")
        ]
        (runs / "sweep.json").write_text(json.dumps({"runs": declared}))
    status, out, err = call("runs", "--export", "results/set.csv", cwd=tmp_path)
    assert (status, out, sorted(path.name for path in tmp_path.iterdir())) == (1, "", ["runs"])
    lines = {
        "unfinished": "rpo on E-v1 with seed 2 is not finished",
        "seeds": "rpo on E-v1 lacks seeds 2",
    }
    assert (
        lines.get(case, "broken on E-v1 with seed 1 is not finished") in err
        and "--allow-incomplete" in err
    )
    assert "Traceback" not in err
    status, out, err = call(
        "runs", "--export", "results/set.csv", "--allow-incomplete", cwd=tmp_path
    )
    assert (status, err) == (0, "") and "**Incomplete set**" in out
    assert "INCOMPLETE SET" in (tmp_path / "curves/set.svg").read_text()
    assert "INCOMPLETE SET" in (tmp_path / "curves/set.html").read_text()
    assert "incomplete" in (tmp_path / "curves/set_scores.csv").read_text()
    # the exported file knows it too
    status, out, err = call("results/set.csv", "--output", "again", cwd=tmp_path)
    assert status == 1 and "is incomplete" in err and not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["empty"], "no run folder in empty"),
        (
            ["text.csv"],
            "text.csv is no CSV with the columns exp_name,env_id,seed,step,metric,value,commit",
        ),
        (["runs", "--bins", "1"], "--bins must be at least 2"),
        (["runs", "--exp-names", "ppo", "sac"], "runs has no sac (--exp-names)"),
        (["runs", "--statistic", "iqm"], "--statistic iqm cuts nothing off 1 seeds"),
        (["number.csv"], "number.csv, line 2: seed, step and value must be numbers"),
        (["runs", "--export", "empty"], "--export empty is a folder"),
        (["runs", "--output", "text.csv"], "--output text.csv is a file"),
        (["text.csv", "--export", "a.csv"], "--export takes run folders"),
        (["broken"], "summary.json is not a run's summary"),
        (["binary.csv"], "binary.csv is no CSV"),
    ],
)
def test_bad_input(flags, words, call, tmp_path):
    """Would break: a traceback, files that are left behind."""
    make_run(tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.csv").write_text("a,b\n1,2\n")
    (tmp_path / "number.csv").write_text(
        "exp_name,env_id,seed,step,metric,value,commit\na,E,1,1,sps,fast,c\n"
    )
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    (make_run(tmp_path / "broken") / "summary.json").write_text('{"eval_returns": 3}')
    before = sorted(tmp_path.rglob("*"))
    status, out, err = call(*flags, cwd=tmp_path)
    assert (status, out, len(err.splitlines())) == (2, "", 1) and words in err
    assert sorted(tmp_path.rglob("*")) == before


# ---- what is published ---------------------------------------------------------------------------------------------


LONG_TABLES = {
    *("classic", "rpo_alpha", "rpo_defaults", "rpo_distribution", "rpo_distribution_walker"),
    *("rpo_paper", "speed", "speed_atari", "speed_discrete"),
}


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_published_tables(plot, file, request, tmp_path):
    """Would break: a published table that its CSV does not give."""
    if file.stem in LONG_TABLES and not request.config.getoption("more"):
        pytest.skip("2,000 resamples of many pairs: pytest --more")
    rows, options = plot.read_csv(file), plot.Options(inputs=())
    score = next(score for score in plot.SCORES if any(row["metric"] == score for row in rows))
    assert plot.problems(rows, score) == []
    plot.write_tables(tmp_path / file.stem, rows, score, [], options)
    for written in tmp_path.iterdir():
        assert (
            written.read_bytes() == (ROOT / "benchmarks" / "curves" / written.name).read_bytes()
        ), written.name
    assert (ROOT / "benchmarks" / "curves" / f"{file.stem}.png").is_file()


def test_tables_in_the_documentation():
    """Would break: a row typed by hand into a page, or left behind when the runs were done again."""
    rows = {
        line
        for file in (ROOT / "benchmarks" / "curves").glob("*.md")
        for line in file.read_text().splitlines()
    }
    quoted = 0
    for page in (
        ROOT / "README.md",
        *(ROOT / "docs" / f"{name}.md" for name in ("rpo", "classic", "pixels", "atari")),
    ):
        for line in page.read_text().splitlines():
            if line.startswith("|") and re.search(r"\[-?[\d.]+, -?[\d.]+\]", line):
                assert line in rows, f"{page.name}: {line}"
                quoted += 1
    assert quoted > 10


def test_table_of_results():
    """Would break: a figure of docs/results.md's first table that the runs do not give."""

    def table(path):
        """The rows of the first table of a page, by task, as dictionaries."""
        lines = f"\n\n{(ROOT / path).read_text()}".split("\n\n|")[1]
        lines = lines.partition("\n\n")[0].splitlines()
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
        return [dict(zip(head, row, strict=True)) for row in rows]

    published = table("docs/results.md")
    found = {
        row["env_id"]: row
        for row in table("benchmarks/curves/continuous.md")
        if row["exp_name"] == "ppo_continuous"
    }
    assert {row["task"] for row in published} == set(found)
    for row in published:
        run = found[row["task"]]
        assert row["ours: mean [95 %]"] == run["eval_return_mean: mean [95 %]"]
        assert row["least and most"] == f"{run['worst_run']}, {run['best_run']}"
        assert float(row["minutes a run"]) == round(float(run["wall_time_s"]) / 60, 1)


def test_page_in_a_browser(call, tmp_path):
    """Would break: a page that needs the network, or whose script fails."""
    browser = next(
        filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))),
        None,
    )
    if not browser and not os.environ.get("CI"):
        pytest.skip("needs Chromium: apt-get install chromium-headless-shell")
    assert browser, "CI must have Chromium"
    for seed in (1, 2):
        (
            make_run(tmp_path / "runs", "ppo", seed=seed, score=seed),
            make_run(tmp_path / "runs", "rpo", seed=seed),
        )
    assert call("runs", cwd=tmp_path)[0] == 0
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--dump-dom",
    ]
    page = (tmp_path / "curves/runs.html").as_uri()
    done = subprocess.run(
        [browser, *flags, "--virtual-time-budget=20000", page], capture_output=True, timeout=120
    )
    dom = done.stdout.decode()
    # drawn by the script: per panel and exp_name two runs, two edges of the band, one middle line
    assert len(re.findall(r'class="trace scatter', dom)) == 2 * 2 * 5
    assert re.findall(r'class="legendtext"[^>]*>([^<]+)<', dom) == ["ppo", "rpo"]
    assert "E-v1, minutes" in dom
