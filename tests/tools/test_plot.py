"""scripts/plot.py: what it reads from run folders and CSV files,
what the pictures hold, and what is refused."""

import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import plot
import pytest
from conftest import ROOT
from PIL import Image
from plainrl_tools import (
    compare,
    results,
)
from plainrl_tools.results import CLOCK, CURVE, Row
from test_compare import SCORE, options, rows_of
from torch.utils.tensorboard import SummaryWriter

POINTS = ((10, 1.0), (20, 3.0))


def make_run(runs, name="ppo", env_id="E-v1", seed=1, score=10.0, points=POINTS, finished=True,
             start=0, **flags):  # fmt: skip
    """A run folder as an algorithm leaves it, with two evaluation episodes, one below and one above the score."""
    run = runs / f"{env_id}__{name}__{seed}__{start}"
    with SummaryWriter(run) as writer:
        writer.flush()
        (file,) = run.glob("events*")
        opened = next(results.records(file)).wall_time
        for i, (step, value) in enumerate(points, 1):
            writer.add_scalar(CURVE, value, step, walltime=opened + 60 * i)
    args = {"exp_name": name, "seed": seed, **flags}
    summary = {"algo": "ppo", "env_id": env_id, "seed": seed, "args": args, "total_timesteps": 20}
    (run / "config.json").write_text(json.dumps(summary))
    summary |= {"global_step": 20, "commit": "abc", "eval_returns": [score - 1, score + 1]}
    summary |= {"eval_return_mean": score, "eval_return_std": 1.0, "sps": 100.0, "wall_time_s": 3.0}
    summary |= {"train_return_last100": None}
    if finished:
        (run / "summary.json").write_text(json.dumps(summary))
    return run


@pytest.fixture
def call(monkeypatch, capsys):
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


# ---- reading -----------------------------------------------------------------------------------


def test_export(call, tmp_path):
    """Would break: a lost seed, metric or point, bins that sum, minutes counted from the epoch."""
    make_run(tmp_path / "runs", points=((2, 1.0), (4, 2.0), (20, 7.0)))
    status, out, err = call("runs", "--export", "results/set.csv", "--bins", 2, cwd=tmp_path)
    assert (status, err) == (0, "")
    with (tmp_path / "results/set.csv").open() as file:
        rows = [tuple(row) for row in csv.reader(file)]
    assert rows[0] == ("exp_name", "env_id", "seed", "step", "metric", "value", "commit")
    points = {(row[4], int(row[3])): float(row[5]) for row in rows[1:]}
    assert all(row[:3] == ("ppo", "E-v1", "1") and row[6] == "abc" for row in rows[1:])
    assert points[CURVE, 3] == 1.5 and points[CURVE, 20] == 7
    assert points[CLOCK, 3] == pytest.approx(90, abs=1e-3)
    assert points[CLOCK, 20] == pytest.approx(180, abs=1e-3)
    finals = {SCORE: 10, "eval_return_std": 1, "eval_return_median": 10, "eval_return_min": 9}
    assert {metric: points[metric, 20] for metric in finals} == finals
    assert "| E-v1 | ppo | 1 | 10.0 [n/a, n/a] | 10.0, 10.0 | 3.00 |" in out


def test_runs_of_other_flags_are_two_curves(call, tmp_path):
    """Would break: one row for seeds that trained with different settings; a name of flags that change nothing."""
    for seed in (1, 2):
        for gamma in (0.9, 0.99):
            flags = {"gamma": gamma, "runs_dir": str(gamma), "learning_rate": 1.0}
            make_run(
                tmp_path / "runs", seed=seed, start=int(gamma * 100), score=100 * gamma, **flags
            )
    status, out, err = call("runs", cwd=tmp_path)
    assert (status, err) == (0, "")
    assert "| E-v1 | ppo-gamma=0.9 | 2 | 90.0 [90.0, 90.0] |" in out
    assert "| E-v1 | ppo-gamma=0.99 | 2 | 99.0 [99.0, 99.0] |" in out
    assert "| E-v1 | ppo | " not in out


def test_same_seed_twice(call, tmp_path):
    """Would break: a silent choice, figures of other environments that are lost, the wrong one of the two."""
    for start, score in ((100, 1.0), (99, 5.0)):
        make_run(tmp_path / "runs", start=start, score=score)
    make_run(tmp_path / "runs", "rpo")
    make_run(tmp_path / "runs", env_id="F-v1", score=7.0)
    status, out, err = call("runs", cwd=tmp_path)
    assert (
        status == 1
        and "ppo on E-v1 is left out: it has 2 runs of seed 1" in err
        and "--duplicates" in err
    )
    assert "| F-v1 | ppo | 1 | 7.00 " in out and "| E-v1 | rpo |" in out
    assert "| E-v1 | ppo |" not in out
    assert "2 runs of seed 1" in (tmp_path / "curves/runs.md").read_text()
    (tmp_path / "one").mkdir()
    for run in (tmp_path / "runs").glob("E-v1*"):
        shutil.copytree(run, tmp_path / "one" / run.name)
    for flags in (("--exp-names", "ppo"), ("--baseline", "ppo")):  # the reason why it is not there
        status, out, err = call("one", *flags, cwd=tmp_path)
        assert (status, out) == (2, "") and "2 runs of seed 1; choose one with --duplicates" in err
    for choice, score in (("newest", "1.00"), ("oldest", "5.00")):
        status, out, err = call("runs", "--duplicates", choice, cwd=tmp_path)
        assert (status, err) == (0, "") and f"| E-v1 | ppo | 1 | {score} " in out


def test_crashed_variant_is_not_forgotten(call, tmp_path):
    """Would break: three finished runs at one rate that hide three that crashed at another."""
    for seed in (1, 2, 3):
        make_run(tmp_path / "runs", seed=seed, start=1, learning_rate=1e-3)
        run = make_run(tmp_path / "runs", seed=seed, start=2, learning_rate=1e-2)
        if seed < 3:
            (run / "summary.json").unlink()
    status, _, err = call("runs", cwd=tmp_path)
    slow = "ppo-learning-rate=0.01"
    assert status == 1 and f"{slow} on E-v1 with seed 1 is not finished" in err
    status, _, err = call("runs", "--exp-names", slow, cwd=tmp_path)
    assert status == 1 and "seed 2 is not finished" in err
    assert call("runs", "--exp-names", "ppo-learning-rate=0.001", cwd=tmp_path)[0] == 0
    (run / "summary.json").unlink()
    make_run(tmp_path / "runs", seed=3, start=3, learning_rate=1e-2)
    make_run(tmp_path / "runs", seed=2, start=3, learning_rate=1e-2)
    status, _, err = call("runs", cwd=tmp_path)
    assert status == 1 and "seed 1 is not" in err and "seed 2 is not" not in err


def test_run_that_goes_on_is_not_finished(call, tmp_path):
    """Would break: the score of the first 20 steps for a run that was resumed to make more of them."""
    make_run(tmp_path / "runs", seed=1)
    run = make_run(tmp_path / "runs", seed=2)
    config = json.loads((run / "config.json").read_text())
    config["args"] |= {"total_timesteps": 2000}
    (run / "config.json").write_text(json.dumps(config))
    status, _, err = call("runs", cwd=tmp_path)
    assert status == 1 and "ppo on E-v1 with seed 2 is not finished" in err


# ---- figures -----------------------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch):
    """Figures as they are saved: [(figure, files, caption), ...], and nothing written."""
    found = []

    def save(figure, files, caption, lacks, look):
        figure.draw_without_rendering()
        found.append((figure, files, caption))

    monkeypatch.setattr(plot, "save", save)
    return found


def curve_rows(names, env_id="E-v1", seeds=(1, 2, 3), value=lambda seed, step: seed + step):
    rows = []
    for name in names:
        for seed in seeds:
            for step in (0, 100_000, 200_000):
                rows.append(Row(name, env_id, seed, step, CURVE, value(seed, step), "abc"))
    return rows


def test_names_and_colours():
    """Would break: a colour that depends on what else is drawn; two experiments that look alike; a lost number."""
    names = ["ppo_continuous", "rpo_continuous", "sb3_ppo", "fire_after_life"]
    alone = plot.line_styles(["rpo_continuous"], options())["rpo_continuous"]
    together = plot.line_styles([*names, "rpo_continuous-rpo-alpha=0.1"], options())
    assert together["rpo_continuous"] == alone
    assert (
        together["ppo_continuous"]["color"] == plot.line_styles(["ppo"], options())["ppo"]["color"]
    )
    styles = [(look["color"], look["linestyle"]) for look in together.values()]
    assert len(set(styles)) == 5
    given = options(labels=("ppo=Ours", "ppo-x=1=One"))
    shown = [plot.display(name, given) for name in ("ppo", "ppo-x=1", "ppo-lr5e-4", "ppo-x=-1e-4")]
    assert shown == ["Ours", "One", "PPO lr5e-4", "PPO x=-1e-4"]


def test_curves_end_with_the_shortest_run():
    """Would break: a mean over the runs that happen to be that long."""
    rows = curve_rows(["ppo"], value=lambda seed, step: float(step))
    rows = rows[:-1]  # the last seed lacks its last step
    steps = plot.summarise(rows, options(bins=2))["E-v1", "ppo"]
    assert steps[1].tolist() == steps[2].tolist() == [0, 100_000]


def test_curves_over_a_setting():
    """Would break: noise that is taken for another environment, or for steps."""
    rows = rows_of({"ppo": [3.0, 5.0]}) + rows_of({"ppo": [1.0, 2.0]}, env_id="E-v1, noise 0.5")
    points, over = plot.over_settings(rows, SCORE)
    (key, (runs, *_)), *rest = plot.summarise(points, options(metric=SCORE)).items()
    assert (over, key, rest) == ("noise", ("E-v1", "ppo"), [])
    assert [(x.tolist(), y.tolist()) for x, y in runs] == [([0, 0.5], [3, 1]), ([0, 0.5], [5, 2])]
    assert plot.over_settings(rows_of({"ppo": [3.0]}), SCORE) == ([], "")
    rows += rows_of({"ppo": [9.0, 8.0]}, env_id="E-v1, hull mass x0.5")
    points, over = plot.over_settings(rows, SCORE)
    panels = plot.summarise(points, options(metric=SCORE))
    runs = {
        env_id: [(x.tolist(), y.tolist()) for x, y in runs]
        for (env_id, _), (runs, *_) in panels.items()
    }
    assert over == "strength" and runs == {
        "hull mass": [([0.5, 1], [9, 3]), ([0.5, 1], [8, 5])],
        "noise": [([0, 0.5], [3, 1]), ([0, 0.5], [5, 2])],
    }


def test_speed_bars(drawn, monkeypatch):
    """Rounds at 10, 20, 60 against 5, 10, 6, and 1, 1, 9 of the slower setting; the ratios are 2, 2, 10.
    Would break: a ratio of medians across rounds that is no median of ratios, the slower setting, the bare bar."""
    kept = {}
    monkeypatch.setattr(plot, "draw_rows", lambda files, panels, *rest: kept.update(panels))
    rows = rows_of(
        {
            "PPO ours": [10.0, 20, 60],
            "PPO zoo-1-thread": [5.0, 10, 6],
            "PPO zoo-default-threads": [1.0, 1, 9],
            "PPO bare": [1e6, 1e6, 1e6],
        },
        metric="sps",
    )
    plot.draw_speed(ROOT / "x", rows, [], options())
    ((title, (ours, peer)),) = kept.items()
    assert title == "PPO\nE-v1" and ours[0] == "plainrl" and ours[2:5] == (10, 20, 60)
    assert peer[0] == "SB3 recommended" and peer[6] == "  6; plainrl 2.0x"


def test_scores(drawn, tmp_path):
    """One line an experiment, from top to bottom: dots of its runs above a bar, a tick on it. Would break: scores of
    another experiment beside a name, a tick at another figure than the table's, an interval that is not its own."""
    scores = {"ppo": [1.0, 2.0, 6.0], "rpo": [10.0, 11.0, 12.0], "dqn": [4.0, 5.0, 9.0]}
    rows = rows_of(scores) + rows_of({"ppo": [1.0, 2.0]}, env_id="F-v1")  # nothing to compare
    table = compare.score_table(rows, SCORE, options())
    plot.draw_scores(tmp_path / "x", rows, table, SCORE, [], options())
    ((figure, files, caption),) = drawn
    (axis,) = figure.axes
    assert [file.name for file in files] == ["x_scores.png", "x_scores.pdf"]
    assert (axis.get_title(), axis.get_xlabel()) == ("E-v1", "evaluation return")
    assert axis.yaxis.get_inverted()  # line 0 is at the top
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == ["DQN", "PPO", "RPO"] and axis.get_yticks().tolist() == [0, 1, 2]
    assert len(axis.lines) == 9
    for height, name in enumerate(("dqn", "ppo", "rpo")):
        lines, mean = axis.lines[3 * height : 3 * height + 3], np.mean(scores[name])
        (dots, _), (ends, at), tick = ([*map(list, line.get_data())] for line in lines)
        (row,) = (row for row in table if (row["exp_name"], row["env_id"]) == (name, "E-v1"))
        assert dots == scores[name] and tick == [[mean], [height]]
        assert ends == [row["low"], row["high"]] and at == [height] * 2 and ends[0] < mean < ends[1]
        assert {line.get_color() for line in lines} == {plot.shaded(plot.FAMILIES[name][1], 0)}
    assert caption.startswith("mean of 3 seeds, ") and caption.endswith("dots: single runs")


def test_aggregate(drawn, monkeypatch, tmp_path, capsys):
    """Scores of 5 seeds in two environments that count 0 to 1 from 0 to 10 and from -100 to 0: shares 0.1 to 0.5 and
    0.6 to 1.0. The middle six of ten are 0.3 to 0.8. Would break: another scale, a mean, environments weighted apart,
    the profile of few runs."""
    kept, files = {}, []
    monkeypatch.setattr(plot, "draw_rows", lambda files, panels, *rest: kept.update(panels))
    monkeypatch.setattr(plot, "draw_curves", lambda paths, *rest: files.append(paths[0].name))
    (tmp_path / "scales.csv").write_text("env_id,random,reference\nE-v1,0,10\nF-v1,-100,0\n")
    rows = rows_of({"ppo": [1.0, 2, 3, 4, 5]})
    rows += rows_of({"ppo": [-40.0, -30, -20, -10, 0]}, env_id="F-v1")
    given = options(normalise=tmp_path / "scales.csv", bootstrap_reps=50)
    plot.draw_aggregate(tmp_path / "x", rows, SCORE, [], given)
    ((label, _, low, middle, high, dots, text),) = kept[""]
    assert label == "PPO" and middle == pytest.approx(0.55) and low < middle < high
    assert dots == pytest.approx([0.3, 0.8]) and text.startswith("  0.55 [")
    assert files == ["x_profile.png"]
    plot.draw_aggregate(tmp_path / "y", [row for row in rows if row.seed < 5], SCORE, [], given)
    assert files == ["x_profile.png"]
    plot.draw_aggregate(tmp_path / "z", rows + rows_of({"rpo": [1.0, 2]}), SCORE, [], given)
    assert (
        "rpo is not in z_aggregate: its numbers of seeds differ (E-v1 2, F-v1 0)"
        in capsys.readouterr().err
    )


def test_files(call, tmp_path):
    """Would break: a draw without a seed, a date in a file, an order that depends on hashes, files nobody asked for."""
    for seed in (1, 2, 3):
        for name in ("ppo", "rpo"):
            make_run(tmp_path / "runs", name, seed=seed, score=seed * len(name) + (name == "rpo"))
    assert call("runs", "--export", "a/results/set.csv", cwd=tmp_path)[0] == 0
    line = [sys.executable, ROOT / "scripts/plot.py", "a/results/set.csv", "--output", "b"]
    line += ["--bootstrap-reps", "20"]
    subprocess.run(line, cwd=tmp_path, env=os.environ | {"PYTHONHASHSEED": "1"}, check=True)
    names = sorted(file.name for file in (tmp_path / "b").iterdir())
    figures = [f"set_{kind}.{end}" for kind in ("curves", "scores") for end in ("pdf", "png")]
    assert names == sorted([*figures, "set.md", "set_comparisons.csv", "set_scores.csv"])
    for name in names:
        one, other = (tmp_path / folder / name for folder in ("a/curves", "b"))
        assert one.read_bytes() == other.read_bytes(), name
    picture = Image.open(tmp_path / "b/set_curves.png")
    assert picture.size[0] == 1600 and "mean of 3 seeds" in picture.info["Description"]
    flags = ("--output", "c", "--exp-names", "ppo")
    assert call("a/results/set.csv", *flags, cwd=tmp_path)[0] == 0
    names = {file.name for file in (tmp_path / "c").iterdir()}
    assert {"set_curves.png", "set_curves.pdf"} <= names
    assert not {"set_scores.png", "set_comparisons.csv"} & names  # nothing to compare
    flags = ("--output", "b", "--exp-names", "ppo")  # where both were
    assert call("a/results/set.csv", *flags, cwd=tmp_path)[0] == 0
    assert not (tmp_path / "b/set_comparisons.csv").exists()


def test_nothing_heavy_is_imported(tmp_path):
    """Would break: ten seconds for six small runs."""
    for seed in (1, 2):
        make_run(tmp_path, "ppo", seed=seed)
        make_run(tmp_path, "rpo", seed=seed)
    code = """
import sys; sys.path.insert(0, sys.argv[1]); import plot
plot.main(plot.Options((plot.Path("."),)))
print(sorted({"rliable", "scipy", "pandas", "torch", "seaborn"} & set(sys.modules)))"""
    command = [sys.executable, "-c", code, ROOT / "scripts"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# ---- incomplete sets ---------------------------------------------------------------------------


def declare(runs, *keys) -> None:
    columns = ("exp_name", "env_id", "seed")
    listing = [dict(zip(columns, key)) | {"attempts": 3} for key in keys]
    (runs / "sweep.json").write_text(json.dumps({"runs": listing}))


def test_links_and_names(call, tmp_path):
    """Would break: a run behind a link that is left out in silence, or counted twice; a name with a $ that matplotlib
    takes for a formula, after half of the files are written."""
    make_run(tmp_path / "runs", "a$x_$ b$^{$")
    linked = make_run(tmp_path / "elsewhere", "a$x_$ b$^{$", seed=2)
    (tmp_path / "runs" / linked.name).symlink_to(linked)
    (tmp_path / "runs" / "again").symlink_to(tmp_path / "runs")
    status, out, err = call("runs", "--output", "figures", cwd=tmp_path)
    assert (status, err) == (0, "")
    assert "| a$x_$ b$^{$ | 2 |" in out
    assert (tmp_path / "figures" / "runs_curves.png").exists()


def test_run_folders_one_by_one(call, tmp_path):
    """Would break: a declared seed that the shell's pattern did not find; hidden folders taken for runs."""
    runs = tmp_path / ".hidden" / "runs"
    for seed in (1, 2):
        make_run(runs, "ppo", seed=seed)
        make_run(runs, "rpo", seed=seed)
    make_run(runs / ".old", "ppo", seed=3, finished=False)
    declare(
        runs,
        *(
            (name, "E-v1", seed)
            for name, last in (("ppo", 2), ("rpo", 3))
            for seed in range(1, last + 1)
        ),
    )
    pattern = sorted(map(str, runs.glob("*__ppo__*")))
    assert call(*pattern, "--output", "a", cwd=tmp_path)[0] == 0  # rpo was not asked for
    assert call(runs, "--exp-names", "ppo", "--output", "c", cwd=tmp_path)[0] == 0  # nor .old
    status, _, err = call(*sorted(map(str, runs.glob("E*"))), "--output", "b", cwd=tmp_path)
    assert (
        status == 1
        and "rpo on E-v1 with seed 3 is declared in sweep.json, but there is no such run" in err
    )
    assert err.count("declared") == 1


@pytest.mark.parametrize("case", ["unfinished", "declared", "seeds"])
def test_incomplete(case, call, tmp_path):
    """Would break: an average over the runs that happen to be there."""
    runs = tmp_path / "runs"
    make_run(runs, "ppo", seed=1)
    make_run(runs, "ppo", seed=2)
    make_run(runs, "rpo", seed=1)
    if case == "unfinished":
        make_run(runs, "rpo", seed=2, finished=False)
    elif case == "declared":
        shutil.rmtree(runs / "E-v1__ppo__2__0")
        declare(runs, ("ppo", "E-v1", 1), ("rpo", "E-v1", 1), ("broken", "E-v1", 1))
    status, out, err = call("runs", "--export", "results/set.csv", cwd=tmp_path)
    assert (status, out, [path.name for path in tmp_path.iterdir()]) == (1, "", ["runs"])
    line = {
        "unfinished": "rpo on E-v1 with seed 2 is not finished",
        "seeds": "rpo on E-v1 lacks seeds 2, which another experiment has",
        "declared": "broken on E-v1 with seed 1 is declared in sweep.json, but there is no such run",
    }[case]
    assert line in err and "--allow-incomplete" in err
    if case != "seeds":  # run folders may differ in seeds
        status, out, err = call("runs", "--output", "part", cwd=tmp_path)
        assert status == 1 and line in err and f"**Incomplete set**: {line}" in out
        description = Image.open(tmp_path / "part/runs_curves.png").info["Description"]
        assert description.startswith("INCOMPLETE SET")
        assert "| E-v1 | rpo | 1 |" in out
    flags = ("--export", "results/set.csv", "--allow-incomplete")
    status, out, err = call("runs", *flags, cwd=tmp_path)
    assert (status, err) == (0, "") and f"**Incomplete set**: {line}" in out
    curves = tmp_path / "curves"
    assert "INCOMPLETE SET" in Image.open(curves / "set_curves.png").info["Description"]
    assert "incomplete" in (curves / "set_scores.csv").read_text()
    # the exported file knows it too
    status, out, err = call("results/set.csv", "--output", "again", cwd=tmp_path)
    assert status == 1 and "is incomplete" in err and not (tmp_path / "again").exists()


def test_another_text_than_declared(call, tmp_path):
    """Would break: a run of another text averaged; its reason lost on the way through a CSV file."""
    runs = tmp_path / "runs"
    for seed in (1, 2):
        (make_run(runs, seed=seed) / "ppo.py").write_text(f"text {seed}")
    run = {"exp_name": "ppo", "env_id": "E-v1", "seed": 2, "script": "algos/ppo.py"}
    run["sha256"] = hashlib.sha256(b"text 1").hexdigest()
    (runs / "sweep.json").write_text(json.dumps({"runs": [run]}))
    line = "ppo on E-v1 with seed 2 used a different version of its script than sweep.json records"
    status, out, err = call("runs", cwd=tmp_path)
    assert status == 1 and line in err and "| E-v1 | ppo | 1 |" in out
    flags = ("--export", "results/set.csv", "--allow-incomplete")
    status, out, err = call("runs", *flags, cwd=tmp_path)
    assert (status, err) == (0, "") and "| E-v1 | ppo | 1 |" in out
    status, _, err = call("results/set.csv", cwd=tmp_path)
    assert status == 1 and line in err


def declare_args(runs, *args) -> None:
    """A sweep's declaration of runs of ppo on E-v1, as sweep.py writes it."""
    records = [{"exp_name": "ppo", "env_id": "E-v1", "seed": x["seed"], "args": x} for x in args]
    (runs / "sweep.json").write_text(json.dumps({"runs": records}))


def test_what_a_declared_run_may_differ_in(call, tmp_path):
    """Would break: a finished run called missing because it was filmed; one without arguments that stops the page."""
    runs = tmp_path / "runs"
    make_run(runs, capture_video=True, gamma=0.9)
    declare_args(runs, {"exp_name": "ppo", "seed": 1, "capture_video": False, "gamma": 0.9})
    assert call("runs", cwd=tmp_path)[0] == 0
    text = (runs / "sweep.json").read_text()
    (runs / "sweep.json").write_text(text.replace('"gamma": 0.9', '"gamma": 0.8'))
    status, _, err = call("runs", cwd=tmp_path)
    assert (
        status == 1
        and "ppo-gamma=0.8 on E-v1 with seed 1 is declared in sweep.json, but there is no such run"
        in err
    )
    (runs / "sweep.json").write_text(
        json.dumps({"runs": [json.loads(text)["runs"][0] | {"args": None}]})
    )
    assert call("runs", cwd=tmp_path)[0] == 0


def test_other_runs_are_drawn(call, tmp_path):
    """Would break: one missing run that takes the figures of the others away; one that nobody is told of; a part taken
    for the whole in a CSV file."""
    runs = tmp_path / "runs"
    make_run(runs, "ppo", env_id="F-v1")
    make_run(runs, "ppo")
    make_run(runs, "ppo", seed=2)
    make_run(runs, "ppo", seed=3, finished=False)
    declare(runs, ("ppo", "F-v1", 1), ("ppo", "F-v1", 2))
    (runs / "E-v1__nameless__1__0").mkdir()
    (runs / "E-v1__nameless__1__0" / "checkpoint.pt").touch()  # of an environment that nobody knows
    status, out, err = call("runs", cwd=tmp_path)
    first, *lines = err.splitlines()
    assert status == 1 and first.endswith("leave out these runs, and say so")
    assert lines == [
        "  E-v1__nameless__1__0 on ? with seed ? is not finished",
        "  ppo on E-v1 with seed 3 is not finished",
        "  ppo on F-v1 with seed 2 is declared in sweep.json, but there is no such run",
    ]
    assert all(f"**Incomplete set**: {line.strip()}." in out for line in lines)
    assert "| E-v1 | ppo | 2 |" in out and "| F-v1 | ppo | 1 |" in out
    assert (tmp_path / "curves/runs_curves.png").exists()
    shutil.rmtree(tmp_path / "curves")
    flags = ("--export", "results/set.csv", "--allow-incomplete", "--output", "x")
    assert call("runs", *flags, cwd=tmp_path)[0] == 0
    status, out, err = call("results/set.csv", cwd=tmp_path)
    assert (status, out, (tmp_path / "curves").exists()) == (1, "", False)


def test_a_run_without_a_finite_score(call, tmp_path):
    """Would break: a run that ended in NaN, which takes the others of its environment away."""
    runs = tmp_path / "runs"
    for seed in (1, 2):
        make_run(runs, seed=seed)
    summary = json.loads((runs / "E-v1__ppo__2__0/summary.json").read_text())
    summary["eval_return_mean"] = float("nan")
    (runs / "E-v1__ppo__2__0/summary.json").write_text(json.dumps(summary))
    status, out, err = call("runs", cwd=tmp_path)
    assert status == 1 and f"ppo on E-v1 has no {SCORE} for seeds 2" in err
    assert "| E-v1 | ppo | 1 |" in out and "nan" not in out
    for seed in (1, 2):
        make_run(runs, "rpo", seed=seed)
    assert call("runs", "--allow-incomplete", cwd=tmp_path)[0] == 0


def test_all_inputs_are_checked_first(call, tmp_path):
    """Would break: figures of the first file before the second one is refused; files that lose a part of their name."""
    for name, seeds in (("study-1.0", (1, 2)), ("study-1.5", (1,))):
        for seed in seeds:
            make_run(tmp_path / name, seed=seed)
        make_run(tmp_path / name, "rpo", seed=1)
        flags = ("--export", f"results/{name}.csv", "--allow-incomplete")
        assert call(name, *flags, cwd=tmp_path)[0] == 0
    shutil.rmtree(tmp_path / "curves")
    status, out, err = call("results/study-1.5.csv", "results/study-1.0.csv", cwd=tmp_path)
    assert (status, out, (tmp_path / "curves").exists()) == (1, "", False)
    assert "study-1.0 is incomplete" in err
    assert call("results/study-1.5.csv", "--output", "a.b", cwd=tmp_path)[0] == 0
    assert (tmp_path / "a.b/study-1.5_curves.pdf").is_file()
    assert (tmp_path / "a.b/study-1.5_scores.csv").is_file()


def test_runs_without_a_curve(call, tmp_path):
    """No episode has ended in training. Would break: a figure that is missing, and not a word."""
    make_run(tmp_path / "still", points=())
    status, out, err = call("still", cwd=tmp_path)
    assert status == 0 and "| E-v1 | ppo | 1 | 10.0 " in out
    assert not (tmp_path / "curves/still_curves.png").exists()
    absent = "no curves: --metric charts/episodic_return is not in still"
    assert err == f"{absent}; try --metric eval/episodic_return\n"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["empty"], "no run folder in empty"),
        (["text.csv"], "text.csv is not a CSV file with the columns exp_name,env_id,seed,step,"),
        (["runs", "--bins", "1"], "--bins must be at least 2"),
        (["runs", "--exp-names", "ppo", "sac"], "--exp-names: runs has no sac"),
        (["runs", "--statistic", "iqm"], "--statistic iqm needs at least 4 seeds, not 1"),
        (["number.csv"], "number.csv, line 2: seed, step and value must be numbers"),
        (["short.csv"], "short.csv, line 2: 6 columns, not 7"),
        (["twice.csv"], "twice has more than one sps for a E 1"),
        (["sps.csv", "other/sps.csv"], "two inputs are named sps: their figures would overwrite"),
        (
            ["sps.csv", "--metric", "losses/none"],
            "is not in sps; try --metric charts/episodic_return",
        ),
        (["still", "--figure", "a.png"], "is not in still; try --metric eval/episodic_return"),
        (["runs", "--figure", "a.png", "--output", "x"], "alone; leave out --output"),
        (["runs", "--export", "empty"], "--export empty is a folder"),
        (["runs", "--output", "/proc/curves"], "/proc/curves cannot be written"),
        (["text.csv", "--export", "a.csv"], "--export needs run folders"),
        (["broken"], "summary.json is not the summary of a run"),
        (["runs", "--labels", "pp=x"], "--labels pp=x: pp is unknown: the runs have the exp_names"),
        (["set/results/a.csv"], "labels.csv needs an exp_name and a label"),
        (["runs", "--normalise", "scales.csv"], "--normalise scales.csv has no row for E-v1"),
        (["runs", "--baseline", "ppoo"], "--baseline ppoo is unknown: the runs have the exp_names"),
    ],
)
def test_bad_input(flags, words, call, tmp_path):
    """Would break: a traceback, files that are left behind."""
    make_run(tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.csv").write_text("a,b\n1,2\n")
    header = "exp_name,env_id,seed,step,metric,value,commit"
    (tmp_path / "number.csv").write_text(f"{header}\na,E,1,1,sps,fast,c\n")
    texts = {
        "short": f"{header}\na,E,1,1,sps,1\n",
        "twice": f"{header}\n" + "a,E,1,1,sps,1,c\n" * 2,
        "sps": f"{header}\na,E,1,1,sps,1,c\n",
        "other/sps": f"{header}\na,E,1,1,sps,1,c\n",
    }
    (tmp_path / "other").mkdir()
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    (tmp_path / "scales.csv").write_text("env_id,random,reference\nF-v1,0,1\n")
    (tmp_path / "set/results").mkdir(parents=True)
    (tmp_path / "set/results/a.csv").write_text(f"{header}\na,E,1,1,sps,1,c\n")
    (tmp_path / "set/labels.csv").write_text("set,exp_name\na,a\n")
    (make_run(tmp_path / "broken") / "summary.json").write_text('{"eval_returns": 3}')
    make_run(tmp_path / "still", points=())
    before = sorted(tmp_path.rglob("*"))
    status, out, err = call(*flags, cwd=tmp_path)
    assert (status, out, len(err.splitlines())) == (2, "", 1) and words in err
    assert sorted(tmp_path.rglob("*")) == before


def test_missing_package(call, tmp_path, monkeypatch):
    """Would break: a traceback, after half of the figures have been written."""
    make_run(tmp_path / "runs")
    monkeypatch.setattr(plot, "find_spec", lambda name: None if name == "matplotlib" else True)
    status, out, err = call("runs", cwd=tmp_path)
    assert (status, out) == (2, "") and "matplotlib must be installed: pip install" in err
    assert not (tmp_path / "curves").exists()


# ---- what is published -------------------------------------------------------------------------


def test_labels_beside_the_results(tmp_path):
    """Would break: a figure with an exp_name where labels.csv has words for it; words of another set."""
    (tmp_path / "labels.csv").write_text(
        "set,exp_name,label\none,a-x=1,the first\ntwo,a-x=1,the second\none,gone,nobody\n"
    )
    options = plot.Options((), labels=("b=by hand",))
    found = plot.labelled(tmp_path, "one", {"a-x=1", "b"}, options)
    assert plot.display("a-x=1", found) == "the first" and plot.display("b", found) == "by hand"
    assert found.labels == ("b=by hand", "a-x=1=the first")
    assert plot.labelled(tmp_path / "none/a/b", "one", {"a-x=1"}, options) is options
    (tmp_path / "labels.csv").write_text("picture,class\n1.png,cat\n")  # somebody else's
    assert plot.labelled(tmp_path, "one", {"a-x=1"}, options).labels == options.labels
