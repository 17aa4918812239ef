"""benchmarks/studies/rpo/analyse.py: its cells are those that scripts/rpo.sh trains, its corrections those planned."""

import itertools
from pathlib import Path

import pytest
import sweep
from conftest import ROOT, stub_of
from plainrl_tools import results
from plainrl_tools.common import load
from plainrl_tools.sweeping import plan

rpo_study = load(ROOT / "benchmarks/studies/rpo/analyse.py")
rpo_long = load(ROOT / "benchmarks/studies/rpo/long.py")

NAMES = ("rpo_tasks", "rpo_paper", "rpo_robust", "rpo_study")
STUDY = ROOT / "benchmarks/studies/rpo"
RUNS = [STUDY / f"results/{name}.csv" for name in NAMES]


def rows_of(scores: dict[str, list[float]]) -> list:
    """exp_name -> a return a seed, as rows of finished runs."""
    rows = []
    for name, values in scores.items():
        for seed, value in enumerate(values, 1):
            key = name, rpo_study.TASK, seed, 1000
            rows += [results.Row(*key, "eval_return_mean", value, "abc")]
            rows += [results.Row(*key, "train_return_last100", value - 1, "abc")]
            rows += [results.Row(*key, results.ENTROPY, seed / 10, "abc")]
    return rows


def trained_by(parts: str, folder, monkeypatch) -> set[str]:
    """The exp_names of these parts of scripts/rpo.sh; nothing is started."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(plan, "dry_start", lambda *_: None)  # test_studies.py starts them
    _, lines = stub_of(f"rpo {parts}", folder, SEEDS="1")
    jobs = sweep.expand(sweep.Options(jobs=Path("list")), [], lines)
    return {job.args["exp_name"] for job in jobs}


def test_cells_are_trained(tmp_path, monkeypatch):
    """Would break: a cell of the page that no run of the study has, and so never a number."""
    parts = "pendulum fixed standardised discount together short three clipped wide distributions"
    trained = trained_by(parts, tmp_path, monkeypatch)
    wanted = {
        rpo_study.name_of(*cell)
        for setting in rpo_study.SETTINGS
        for pairs in rpo_study.planned(setting).values()
        for pair in pairs
        for cell in pair
    }
    assert wanted == trained
    assert len(trained) == 24 + 2 + 5 + 2 + 4 + 3 + 4 + 7 + 1
    first = trained_by("", tmp_path, monkeypatch)
    assert first < trained and len(first) == 12 + 3 + 4 + 2 + 2  # docs/rpo.md's first table
    assert trained_by("robust", tmp_path, monkeypatch) == set(rpo_study.WALKERS.values())


def test_correction():
    """By hand: of 4 planned, p 0.01 and 0.02 times 4 and 3; 0.03 times 2, but not below the one before it. Would
    break: a correction for the comparisons that happen to be there."""
    assert rpo_study.stepwise([0.02, 0.01], 4) == pytest.approx([0.06, 0.04])
    assert rpo_study.stepwise([0.01, 0.02, 0.021], 4) == pytest.approx([0.04, 0.06, 0.06])
    assert rpo_study.stepwise([0.5], 4) == [1]


def test_tables(tmp_path):
    """Would break: cells mixed up, a difference with the wrong sign, seeds that are not paired, a lost point."""
    mistaken = "-no-bootstrap-truncation"
    scores = {"ppo_continuous-paper": [-160.0 - i for i in range(10)]}
    scores[f"ppo_continuous-paper{mistaken}"] = [-960.0 - i for i in range(10)]
    scores[f"rpo_continuous-paper{mistaken}"] = [-234.0 - i for i in range(10)]
    rows = rows_of(scores)
    lines = rpo_study.cells(rows, "paper")
    assert [line["evaluation: mean [95 %]"].split()[0] for line in lines] == [
        "-164.5",
        "-964.5",
        "-238.5",
    ]
    assert lines[0]["training, last 100"] == -165.5 and lines[0]["entropy"] == pytest.approx(0.55)
    (line,) = rpo_study.comparisons(rows, "paper", "1")
    assert line["evaluation [95 %]"] == line["training [95 %]"] == "-800.0 [-800.0, -800.0]"
    assert line["p, evaluation"] == line["p, training"] == 5 * 2 / 2**10
    (line,) = rpo_study.comparisons(rows, "paper", "2")
    assert line["evaluation [95 %]"] == "726.0 [726.0, 726.0]"
    assert line["p, evaluation"] == 8 * 2 / 2**10
    assert rpo_study.comparisons(rows, "defaults", "1") == []
    rpo_study.draw(rows, tmp_path / "cells.png")
    assert (tmp_path / "cells.png").stat().st_size > 10_000
    scores["ppo_continuous-paper"].pop()
    with pytest.raises(SystemExit):
        rpo_study.comparisons(rows_of(scores), "paper", "1")


def test_over_time(tmp_path):
    """Would break: a cell that is left out, one drawn of which only the last entropy is known, a lost seed."""
    plt = pytest.importorskip("matplotlib.pyplot")
    rows = rows_of({"ppo_continuous-paper": [-160.0] * 3})  # no curve
    for seed, step in itertools.product((1, 2), (0, 500, 1000)):
        key = "rpo_continuous-paper-no-bootstrap-truncation", rpo_study.TASK, seed, step
        rows += [results.Row(*key, results.CURVE, -float(step), "abc")]
        rows += [results.Row(*key, results.ENTROPY, seed + step / 1000, "abc")]
    rpo_study.draw_over_time(rows, tmp_path / "figure.png")
    returns, entropies = plt.gcf().axes
    assert [len(axis.lines) for axis in (returns, entropies)] == [3, 3]  # two seeds and their mean
    assert returns.lines[-1].get_label() == "RPO; 0; as termination"
    assert list(returns.lines[-1].get_ydata()[[0, -1]]) == [0, -1000]
    assert list(entropies.lines[-1].get_ydata()[[0, -1]]) == [1.5, 2.5]
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_later_file_counts(tmp_path):
    """Would break: an experiment that was run again mixed with its first runs, seed by seed."""
    name, other = "ppo_continuous-paper", "rpo_continuous-paper"
    first, again = tmp_path / "first.csv", tmp_path / "again.csv"
    results.export(first, rows_of({name: [-100.0, -110.0, -120.0], other: [-150.0]}))
    results.export(again, rows_of({name: [-200.0, -210.0]}))
    finals = results.finals_of(rpo_study.rows_of((first, again)), "eval_return_mean")
    assert finals[rpo_study.TASK, name] == {1: -200, 2: -210}
    assert finals[rpo_study.TASK, other] == {1: -150}


def test_a_seed_that_is_there_twice(tmp_path, capsys):
    """Would break: two runs of one seed of which the last counts, without a word."""
    rows = rows_of({"ppo_continuous-paper": [-100.0, -110.0]})
    results.export(tmp_path / "twice.csv", rows + rows[:3])
    with pytest.raises(SystemExit):
        rpo_study.rows_of((tmp_path / "twice.csv",))
    assert "ppo_continuous-paper has a seed twice" in capsys.readouterr().err


def test_published_tables(capsys, monkeypatch):
    """Would break: a table of docs/rpo.md that its CSV files do not give."""
    monkeypatch.setattr("sys.argv", ["rpo_study.py", *map(str, RUNS)])
    rpo_study.main()
    assert capsys.readouterr().out == (ROOT / "benchmarks/studies/rpo/tables.md").read_text()


def test_other_tasks(capsys):
    """By hand: on HopperStand half of the published difference with one seed and all with the other, on Reacher as much
    the other way round. Would break: pairs of different seeds, a share with the wrong sign."""
    rows = []
    for task, (ppo, rpo) in list(rpo_study.OTHERS.items())[::4]:
        for seed, share in ((1, 0.5), (2, 1.0)):
            share *= 1 if task == "HopperStand-v1" else -1
            for file, score in (("ppo", 10.0), ("rpo", 10.0 + share * (rpo - ppo))):
                key = f"{file}_continuous-published", task, seed, 1000
                rows += [
                    results.Row(*key, name, score, "abc") for name in rpo_study.METRICS.values()
                ]
    lines, test = rpo_study.others(rows)
    assert [line["task"] for line in lines] == ["HopperStand-v1", "Reacher-v5"]
    assert [line["share"] for line in lines] == pytest.approx([0.75, -0.75])
    assert lines[1]["RPO, evaluation"] == pytest.approx(10 + 0.75 * (66.35 - 4.67))
    assert "p = 1." in test and "paired, 4 of a task and a seed" in test
    with pytest.raises(SystemExit):
        rpo_study.others(rows[:-2])
    assert "Reacher-v5: not the same seeds" in capsys.readouterr().err


def test_bonus_on_other_tasks(capsys):
    """By hand: a quarter of the published difference with the bonus, three quarters with RPO. Would break: runs of PPO
    or RPO whose seed the bonus has not, a comparison the other way round, p without its correction."""
    rows, shares = [], {"ppo": 0.0, "ppo-ent-coef=0.01": 0.25, "rpo": 0.75}
    for task, (ppo, rpo) in list(rpo_study.OTHERS.items())[::4]:
        for (name, share), seed in itertools.product(shares.items(), (1, 2, 3)):
            if seed == 3 and "ent" in name:
                continue
            file, *bonus = name.split("-", 1)
            name = "-".join([f"{file}_continuous-published", *bonus])
            score = 10.0 + share * (rpo - ppo) if seed < 3 else 1e6
            metrics = (*rpo_study.METRICS.values(), results.ENTROPY)
            rows += [results.Row(name, task, seed, 1000, x, score, "abc") for x in metrics]
    lines, differences = rpo_study.bonuses(rows)
    assert [line["seeds"] for line in lines] == [2, 2]
    assert lines[1]["RPO, nats"] == pytest.approx(10 - 0.75 * (66.35 - 4.67))
    assert lines[1]["bonus 0.01, training"] == pytest.approx(10 - 0.25 * (66.35 - 4.67))
    found = [
        (row["exp_name"], row["against"], row["share [95 %]"][:4], row["p"]) for row in differences
    ]
    assert found == [("bonus 0.01", "PPO", "0.25", 0.25), ("RPO", "bonus 0.01", "0.50", 0.25)]
    assert rpo_study.bonuses(rows[:3]) == ([], [])
    with pytest.raises(SystemExit):
        rpo_study.bonuses([row for row in rows if not (row.exp_name.startswith("rpo"))])
    assert "HopperStand-v1: RPO lacks seeds [1, 2]" in capsys.readouterr().err


def test_walkers():
    """By hand: 1 for each of ten seeds, the sign-flip test's least p of 2 / 1024, times 12. Would break: a comparison
    with another walker, of another disturbance, or corrected for those that are there."""
    rows = []
    for name, base in (("rpo_continuous-robust", 1), ("ppo_continuous-robust", 0)):
        for place, walk in enumerate(rpo_study.WALKS):
            env_id = "BipedalWalker-v3" + (f", {walk}" if walk else "")
            for seed in range(1, 11):
                key = name, env_id, seed, 1000
                score = base + 10 * seed + 1000 * place
                for metric in ("entropy", "mode_outside_bounds_percent"):
                    rows.append(results.Row(*key, metric, base, "abc"))
                rows.append(results.Row(*key, "eval_return_mean", score, "abc"))
    lines, differences = rpo_study.walkers(rows)
    assert [list(line.values()) for line in lines] == [
        ["RPO", 10, 56, 1056, 2056, 3056, 4056, 1, 1],
        ["PPO", 10, 55, 1055, 2055, 3055, 4055, 0, 0],
    ]
    assert [line["disturbance"] for line in differences] == list(rpo_study.WALKS[1:4])
    for line in differences:
        assert line["RPO against"] == "PPO" and line["difference [95 %]"] == "1.00 [1.00, 1.00]"
        assert line["p"] == pytest.approx(12 * 2 / 1024)


def test_long_runs(tmp_path):
    """By hand: PPO has 100, 200 and 300 in three parts of its run and 150 or 160 at its end, so it falls by 150 or 140;
    RPO has 300 from its first part on and does not fall. Would break: the highest point taken for the highest part, a
    fall with the wrong sign, seeds that are not paired, a line or a published point that is not drawn."""
    plt = pytest.importorskip("matplotlib.pyplot")
    rows = []
    for name, curve, ends in (
        (rpo_long.PPO, (100.0, 200.0, 300.0), (150.0, 160.0)),
        (rpo_long.RPO, (300.0, 300.0, 300.0), (300.0, 308.0)),
    ):
        for seed, end in enumerate(ends, 1):
            key = name, "BipedalWalker-v3", seed
            for part, value in zip((0, 4, 9), curve):
                for step, noise in ((100_000, 20.0), (700_000, -20.0)):
                    point = *key, 800_000 * part + step
                    rows.append(results.Row(*point, results.CURVE, value + noise, "abc"))
                    rows.append(results.Row(*point, results.ENTROPY, -part, "abc"))
            rows.append(results.Row(*key, 8_000_000, "train_return_last100", end, "abc"))
            rows.append(results.Row(*key, 8_000_000, "eval_return_mean", end + 10, "abc"))
    ppo, rpo = rpo_long.runs_of(rows, "BipedalWalker-v3")
    assert ppo["falls of the seeds"] == "150, 140" and rpo["falls of the seeds"] == "0, -8"
    assert ppo["training [95 %]"].startswith("155.0 ") and ppo["evaluation [95 %]"] > "165.0 "
    assert ppo["entropy"] == -9
    (line,) = rpo_long.differences_of(rows, "BipedalWalker-v3")
    assert line["difference in training [95 %]"] == "149.0 [148.0, 150.0]"
    assert line["higher in"] == "2 of 2 pairs" and line["p"] == 1  # 0.5 times 4, at most 1
    assert rpo_long.runs_of(rows, "Pendulum-v1") == []
    rpo_long.draw(rows, tmp_path / "long.png")
    returns, entropies = plt.gcf().axes
    assert len(entropies.lines) == 2 * 3  # two seeds and their mean
    published = [box.lines[0].get_ydata()[0] for box in returns.containers]
    assert published == [172.12, 227.11]
    assert (tmp_path / "long.png").stat().st_size > 10_000
