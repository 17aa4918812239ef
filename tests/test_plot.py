"""scripts/plot.py with results.py and compare.py: what they read, their statistics against figures computed by hand,
what the pictures hold, and what is refused."""

import csv
import hashlib
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest
from conftest import ROOT
from PIL import Image
from torch.utils.tensorboard import SummaryWriter

sys.path += str(ROOT / "scripts"), str(ROOT / "benchmarks")
import compare  # noqa: E402
import plot  # noqa: E402
import results  # noqa: E402
import time_to_return  # noqa: E402
from common import load, writing  # noqa: E402
from results import CLOCK, CURVE, EVALUATION, Row  # noqa: E402

RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.csv"))
SCORE = "eval_return_mean"
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


def options(**given):
    return plot.Options(inputs=(), **given)


def rows_of(scores: dict, env_id="E-v1", metric=SCORE) -> list[Row]:
    """Rows of final scores, {exp_name: {seed: score}} or {exp_name: [score of seed 1, ...]}, in one environment."""
    rows = []
    for name, values in scores.items():
        by_seed = values if isinstance(values, dict) else dict(enumerate(values, 1))
        rows += [
            Row(name, env_id, seed, 20, metric, value, "abc") for seed, value in by_seed.items()
        ]
    return rows


def verdicts(*tables: list[Row], **given) -> list[str]:
    table = compare.comparison_table(sum(tables, []), SCORE, options(**given))
    return [row["verdict"] for row in table]


# ---- statistics, by hand -----------------------------------------------------------------------


def test_aggregates():
    """Would break: a median or a trimmed mean with another share in place of the interquartile mean."""
    runs = np.array([[1.0], [2.0], [3.0], [6.0], [7.0], [8.0], [100.0], [1000.0]])
    assert compare.aggregate(runs, "iqm") == [(3 + 6 + 7 + 8) / 4]
    assert compare.aggregate(runs, "mean") == [1127 / 8]
    assert compare.aggregate(runs.T, "iqm", axis=1) == [(3 + 6 + 7 + 8) / 4]
    runs[0] = math.nan  # a failed run is not the best one
    assert all(math.isnan(compare.aggregate(runs, name)[0]) for name in ("iqm", "mean"))


def test_intervals():
    """The mean of three draws from {0, 0, 3} is 0 in 8 of 27 cases and 3 in one (3.7 %): its 95 % interval is [0, 3].
    Of four draws from {0, 0, 0, 4} it is 4 in one of 256 cases and at least 3 in 13 (5.1 %): the 97.5 % point is 3.
    Would break: another level, a one-sided interval, a normal approximation, columns that are mixed."""
    many = options(bootstrap_reps=4000)
    assert compare.interval(np.array([0.0, 0.0, 3.0]), many).tolist() == [0, 3]
    values = np.array([[0.0, 100], [0, 100], [0, 100], [4, 104]])
    assert compare.interval(values, many).tolist() == [[0, 100], [3, 103]]
    assert np.isnan(compare.interval(np.array([[5.0]]), many)).all()  # one run has no spread


@pytest.mark.parametrize("statistic", ["mean", "iqm"])
def test_intervals_are_rliables(statistic):
    """Would break: another bootstrap than the published one."""
    from rliable.library import get_interval_estimates
    from scipy.stats import trim_mean

    scores = np.random.default_rng(3).normal(100, 30, (9, 1))
    function = {"mean": lambda x: x.mean(0), "iqm": lambda x: trim_mean(x, 0.25, axis=0)}[statistic]
    np.random.seed(0)
    _, ends = get_interval_estimates({"": scores}, function, reps=500)
    ours = compare.interval(scores[:, 0], options(statistic=statistic, bootstrap_reps=500))
    assert ours == pytest.approx(ends[""].ravel(), rel=1e-9)


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1, 2, 3], 2 / 8),  # all of one sign: this arrangement and its reverse
        ([3, 1, -1], 6 / 8),  # sums of flips: 5, 3, 3, 1 and their negatives; 3 is reached by three
        ([1, 2, 3, 4, 5, 6], 2 / 64),
        ([1, 2, 3, 4, 5, -6], 28 / 64),  # 14 subsets of 1 to 6 have a sum of at most 6
        ([0, 0, 0], 1),
    ],
)
def test_sign_flips(differences, p):
    """Would break: a one-sided test, regroupings that ignore the pairs, strict inequality, round-off between sums."""
    base = [1000.1 * 3**i for i in range(len(differences))]  # far apart: unpaired, nothing differs
    a = {seed: x + d for seed, (x, d) in enumerate(zip(base, differences))}
    b = dict(enumerate(base))
    row = compare.compare(a, b, options())
    assert row["test"] == f"paired, {len(a)} seeds"
    assert (row["p"], row["difference"]) == pytest.approx((p, np.mean(differences)))
    assert row["least_p"] == 2 / 2 ** len(a)


def test_pairs_are_resampled_together():
    """Scores spread over 1000 with a constant difference of 1: the interval of the difference has no width. Would
    break: two resamples apart, seeds that are paired by place and not by number."""
    b = {seed: 100.0 * seed for seed in range(10)}
    a = {seed: b[seed] + 1 for seed in reversed(b)}
    row = compare.compare(a, b, options(bootstrap_reps=200))
    assert (row["low"], row["difference"], row["high"]) == pytest.approx((1, 1, 1))
    apart = compare.compare({seed + 10: x for seed, x in a.items()}, b, options(bootstrap_reps=200))
    assert apart["low"] < -100 and apart["high"] > 100 and apart["test"].startswith("unpaired")


def test_many_pairs():
    """2^16 flips are not all tried; 20,000 random ones hold none as extreme, or one or two. Would break: p of 0."""
    a = {seed: 1.0 + seed for seed in range(16)}
    row = compare.compare(a, dict.fromkeys(a, 0.0), options(bootstrap_reps=20))
    assert 2 / 20_001 <= row["p"] < 0.001


@pytest.mark.parametrize(
    ("a", "b", "p", "least"),
    [
        ([11, 12, 13, 14, 15], [1, 2, 3, 4, 5], 2 / 252, 2 / 252),
        ([11, 12, 13], [1, 2, 3], 2 / 20, 2 / 20),
        ([5, 6], [1], 2 / 3, 2 / 3),  # the one of three regroupings that is highest
        ([1, 2, 3], [1, 2, 3], 1, 2 / 20),
    ],
)
def test_other_seeds(a, b, p, least):
    """Would break: a sign flip between runs that have no seed in common."""
    a, b = ({start + i: float(x) for i, x in enumerate(side)} for start, side in ((0, a), (50, b)))
    row = compare.compare(a, b, options(bootstrap_reps=20))
    assert (row["p"], row["least_p"]) == pytest.approx((p, least))
    assert row["test"] == f"unpaired, {len(a)} and {len(b)} seeds"


def test_difference_of_interquartile_means():
    """The middle three of 10 10 10 20 50 and 0 0 10 50 50 are 10 10 20 and 0 10 50. Would break: the IQM of pairs."""
    a = dict(enumerate([20.0, 50, 10, 10, 10]))
    b = dict(enumerate([10.0, 50, 0, 0, 50]))
    assert compare.compare(a, b, options(statistic="iqm"))["difference"] == pytest.approx(
        40 / 3 - 20
    )


def test_holm():
    """0.01 x 3; 0.03 x 2; 0.04 x 1, but not below the one before. Would break: Bonferroni, a lost order."""
    assert compare.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert compare.holm([0.9, 0.8]) == [1, 1]
    assert compare.holm([]) == []


def test_too_few_to_test():
    """Would break: "not significant", or "significant", of seeds that cannot show either."""
    for seeds, verdict in (
        (3, "too few to test (least p 0.25)"),
        (5, "too few to test (least p 0.0625)"),
        (6, "significant"),  # 2 / 64
    ):
        assert verdicts(rows_of({"a": [1.0] * seeds, "b": [2.0] * seeds})) == [verdict]
    apart = rows_of({"a": {1: 0.0, 2: 1, 3: 2}, "b": {4: 10.0, 5: 11, 6: 12}})
    assert verdicts(apart) == ["too few to test (least p 0.1)"]
    assert verdicts(rows_of({"a": [1.0, -1, 1, -1, 1, -1], "b": [0.0] * 6})) == ["not significant"]


def test_correction_counts_what_can_be_tested():
    """6 pairs: p is 1/32. Of two such comparisons the lesser p is doubled, so neither can be below 0.05. Five pairs in
    another environment are not tested and cost nothing. Would break: each of these counted otherwise."""
    six = rows_of({"a": [1.0] * 6, "b": [2.0] * 6})
    five = rows_of({"a": [1.0] * 5, "b": [2.0] * 5}, env_id="F-v1")
    words = "too few to test (least p 0.0625)"
    assert verdicts(six, five) == ["significant", words]
    assert verdicts(six, rows_of({"a": [1.0] * 6, "b": [2.0] * 6}, env_id="G-v1")) == [words] * 2
    ten = rows_of({"a": [1.0] * 10, "b": [2.0] * 10}, env_id="G-v1")
    table = compare.comparison_table(six + ten, SCORE, options())
    assert [row["p_holm"] for row in table] == pytest.approx([2 / 64, 2 * 2 / 1024])
    assert [row["verdict"] for row in table] == ["significant"] * 2


def test_a_least_p_at_the_limit_is_too_few():
    """Three comparisons of 3 and 7 unpaired seeds: 3 x 2 / 120 is 0.05, and significant is below. Would break: "not
    significant" of what could not have been."""
    rows = []
    for number in range(3):
        env_id = f"E{number}-v1"
        rows += rows_of({"a": [1.0] * 3}, env_id=env_id) + rows_of(
            {"sb3_b": [2.0] * 7}, env_id=env_id
        )
    table = compare.comparison_table(rows, SCORE, options())
    assert [row["verdict"] for row in table] == ["too few to test (least p 0.05)"] * 3


def test_fewest_seeds_leave_the_correction_first():
    """Three comparisons of 6 pairs and three of 10: the first cannot be below 0.05 after a correction for six, so the
    others are corrected for three. Would break: a correction for what cannot be tested."""
    rows = []
    for number in range(6):
        seeds = 6 if number < 3 else 10
        rows += rows_of({"a": [1.0] * seeds, "b": [2.0] * seeds}, env_id=f"E{number}-v1")
    table = compare.comparison_table(rows, SCORE, options())
    assert [row["verdict"] for row in table[:3]] == ["too few to test (least p 0.0938)"] * 3
    assert [row["p_holm"] for row in table[3:]] == pytest.approx([3 * 2 / 1024] * 3)


def test_common_seeds_are_paired():
    """Scores spread over 900, a difference of 1, one seed lost: nine pairs are left. Would break: means over other
    seeds, and a regrouping of runs that belong together."""
    b = {seed: 100.0 * seed for seed in range(10)}
    a = {seed: b[seed] + 1 for seed in b}
    del b[9]
    row = compare.compare(a, b, options(bootstrap_reps=200))
    assert row["test"] == "paired, 9 seeds" and row["difference"] == pytest.approx(1)
    assert row["p"] == row["least_p"] == 2 / 2**9
    some, others = dict.fromkeys(range(10), 1.0), dict.fromkeys(range(8, 18), 2.0)
    row = compare.compare(some, others, options(bootstrap_reps=20))
    assert row["test"] == "unpaired, 10 and 10 seeds"  # two pairs would test nothing
    few = {seed: 2.0 + seed for seed in range(5)}  # five pairs neither, but five beside ten do
    row = compare.compare(dict.fromkeys(range(10), 1.0), few, options(bootstrap_reps=20))
    assert row["test"] == "unpaired, 10 and 5 seeds" and row["p"] == pytest.approx(2 / 3003)


def test_seeds_of_another_program_are_no_pairs():
    """Equal seeds of a peer's program draw other games. Would break: an interval made narrow by chance pairs, and
    five runs beside five that are called too few; two experiments of one peer that are not paired."""
    scores = {
        name: [1.0, 2, 3, 4, 5] for name in ("ppo", "sb3_ppo", "sb3_a2c", "sb3atari", "rllib_ppo")
    }
    table = compare.comparison_table(rows_of(scores), SCORE, options(baseline="sb3_ppo"))
    tests = {row["exp_name"]: row["test"] for row in table}
    other = "unpaired, 5 and 5 seeds"
    assert tests == {
        "ppo": other,
        "sb3_a2c": "paired, 5 seeds",
        "sb3atari": other,
        "rllib_ppo": other,
    }
    peers = ("sb3_ppo-ours", "sb3_ppo-sbx-ours")  # both are started by sb3_ppo.py
    table_of_peers = compare.comparison_table(
        rows_of(dict.fromkeys(peers, [1.0, 2])), SCORE, options()
    )
    assert table_of_peers[0]["test"] == "unpaired, 2 and 2 seeds"
    assert [plot.display(name, options()) for name in peers] == [
        "Stable-Baselines3 PPO plainrl",
        "SBX PPO plainrl",
    ]
    assert compare.program("ppo_continuous-sb3-settings") == ""  # a tag is no program
    row = next(row for row in table if row["exp_name"] == "ppo")
    assert row["low"] < -1 and row["high"] > 1
    assert row["least_p"] == pytest.approx(3 * 2 / 252)  # after the correction for three


@pytest.mark.parametrize("statistic", ["mean", "iqm"])
def test_clear_differences_of_equal_scores(statistic):
    """Would break: ten pairs of 500 and 100 "not significant", as no flip moves an IQM before four have."""
    a, b = (dict.fromkeys(range(10), score) for score in (500.0, 100.0))
    assert compare.compare(a, b, options(statistic=statistic))["p"] == 2 / 2**10


def test_baseline():
    """Would break: pairs of many experiments that nobody asked for; a baseline that is compared with itself."""
    rows = rows_of({name: [1.0, 2.0] for name in "abcde"})

    def pairs(**given):
        table = compare.comparison_table(rows, SCORE, options(**given))
        return [(row["exp_name"], row["against"]) for row in table]

    assert pairs() == [(name, "a") for name in "bcde"]
    assert pairs(baseline="c") == [(name, "c") for name in "abde"]
    assert pairs(baseline="f") == []  # not all pairs of an environment that lacks it


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


def set_opening(file, opened: float) -> None:
    """Give the first events of a file, which are stamped with now, the time of its opening."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    events = list(results.records(file))
    with file.open("wb") as stream:
        for event in events:
            if not event.HasField("summary"):
                event.wall_time = min(event.wall_time, opened)
            RecordWriter(stream).write(event.SerializeToString())
    file.rename(file.with_name(f"events.out.tfevents.{int(opened)}.host.1.0"))


@pytest.mark.parametrize("later", [1e5, -1e5])
def test_curve_of_a_resumed_run(later, tmp_path):
    """1 ms a step; a checkpoint at step 100, killed at 195, 100,000 s later resumed, or as much earlier by the clock of
    another machine. Episodes end at 64, 128, 192; and, as a resumed run starts new ones, at 164. Would break: what was
    done again counted twice, the pause counted, a session lost."""
    run, start = tmp_path / "run", 1_700_000_000.0
    sessions = ((start, 0, 195, (64, 128, 192)), (start + later, 100, 200, (164,)))
    for opened, first, last, ends in sessions:
        with SummaryWriter(run, purge_step=first + 1, filename_suffix=str(opened)) as writer:
            for step in range(first + 1, last + 1):
                time = opened + (step - first) / 1000
                writer.add_scalar("charts/SPS", 1000.0, step, walltime=time)
                if step in ends:
                    writer.add_scalar(CURVE, step, step, walltime=time)
    for opened, *_ in sessions:
        (file,) = run.glob(f"events*{opened}")
        set_opening(file, opened)
    rows = results.read_curve(run, total_timesteps=200, bins=200)
    assert [(s, value) for s, metric, value in rows if metric == CURVE] == [(64, 64), (164, 164)]
    clock = [value for _, metric, value in rows if metric == CLOCK]
    assert clock == pytest.approx([0.064, 0.164], abs=1e-3)


def test_clock_leaves_out_what_is_no_training(tmp_path):
    """10 s to the first log (compilation counts), an evaluation of 50 s, 10 s, a machine asleep for 2 h, 10 s. A last
    record that was cut off is dropped. Would break: each of these."""
    run, start = tmp_path / "run", 1_700_000_000.0
    events = (
        (10, 10, CURVE),
        (10, 60, EVALUATION),
        (20, 70, CURVE),
        (30, 7270, CURVE),
        (40, 7280, CURVE),
    )
    with SummaryWriter(run) as writer:
        for step, seconds, tag in (*events, (50, 7290, CURVE)):
            writer.add_scalar(tag, step, step, walltime=start + seconds)
    (file,) = run.glob("events*")
    set_opening(file, start)
    (file,) = run.glob("events*")
    file.write_bytes(file.read_bytes()[:-5])
    scalars = results.read_scalars(run)
    assert [round(seconds, 3) for _, seconds, _ in scalars[CURVE]] == [10, 20, 20, 30]
    assert [(step, value) for step, _, value in scalars[EVALUATION]] == [(10, 10)]
    rows = results.read_curve(run, 50, 10)
    assert (10, EVALUATION, 10.0) in rows


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


def test_scores_without_curves_have_a_figure(tmp_path, monkeypatch):
    """Would break: no picture at all of a set that has final scores alone."""
    names = []
    monkeypatch.setattr(plot, "save", lambda figure, files, *_: names.extend(f.name for f in files))
    rows = rows_of({"a": [1.0, 2.0, 3.0], "b": [2.0, 3.0, 5.0]})
    plot.write_set(tmp_path / "set", rows, SCORE, [], options(bootstrap_reps=20))
    assert "set_scores.png" in names and "set_curves.png" not in names


def test_export_beside_a_figure_and_a_baseline_that_is_not_shown(call, tmp_path):
    """Would break: --export dropped without a word; a comparison that nobody sees is missing."""
    for name in ("a", "b"):
        for seed in (1, 2):
            make_run(tmp_path / "runs", name, seed=seed)
    both = ["runs", "--export", "all.csv", "--figure", "one.png"]
    assert call(*both, cwd=tmp_path)[0] == 0
    assert (tmp_path / "all.csv").exists() and (tmp_path / "one.png").exists()
    status, _, err = call("runs", "--exp-names", "a", "--baseline", "b", cwd=tmp_path)
    assert status == 2 and "--baseline b is not among the exp_names that are drawn: a" in err


def test_a_full_disk_leaves_the_old_table(tmp_path, capsys, monkeypatch):
    """Would break: a published CSV cut off in its middle; "None cannot be written"."""
    file = tmp_path / "table.csv"
    file.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")
        yield

    with pytest.raises(SystemExit), writing():
        results.write_csv(file, ("a", "b"), full())
    assert f"{file} cannot be written: No space left on device" in capsys.readouterr().err
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]
    results.write_csv(file, ("a", "b"), [(1, 2)])
    assert file.read_text() == "a,b\n1,2\n" and list(tmp_path.iterdir()) == [file]
    with pytest.raises(SystemExit):
        results.read_csv(tmp_path / "no.csv")
    assert "no.csv is not a CSV file with the columns" in capsys.readouterr().err


def test_what_else_is_missing():
    """Would break: a seed without a curve, a score that is no number, an experiment without a score."""
    rows = rows_of({"a": [1, 2], "b": [1, math.nan]})
    rows += rows_of({"a": [1], "b": [1, 1], "c": [1]}, metric=CURVE)
    lines = [line for _, line in results.problems(rows, SCORE)]
    assert lines == [
        f"b on E-v1 has no {SCORE} for seeds 2",
        f"c on E-v1 has no {SCORE} for seeds 1 2",
        f"a on E-v1 has no {CURVE} for seeds 2",
        f"c on E-v1 has no {CURVE} for seeds 2",
    ]
    assert verdicts(rows_of({"a": [1.0] * 6, "b": [math.nan] * 6})) == ["not tested"]


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
                rows.append(Row(name, env_id, seed, step, CLOCK, step / 1000 * seed, "abc"))
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
    labels = {name: look["label"] for name, look in together.items()}
    assert list(labels.values()) == [
        "fire after life",
        "PPO",
        "RPO",
        "RPO alpha=0.1",
        "Stable-Baselines3 PPO",
    ]
    given = options(labels=("ppo=Ours", "ppo-x=1=One"))
    shown = [plot.display(name, given) for name in ("ppo", "ppo-x=1", "ppo-lr5e-4", "ppo-x=-1e-4")]
    assert shown == ["Ours", "One", "PPO lr5e-4", "PPO x=-1e-4"]
    two = ("ppo_rnd", "ppo_rnd-no-bonus", "ppo_penalty", "ppo_continuous-no-bonus")
    shown = [plot.display(name, options()) for name in two]
    assert shown == ["RND", "RND no bonus", "PPO penalty", "PPO no bonus"]
    both = plot.line_styles(two, options())
    assert both["ppo_rnd"]["color"] == plot.line_styles(["ppo_rnd"], options())["ppo_rnd"]["color"]
    assert both["ppo_rnd"]["color"] != both["ppo_continuous-no-bonus"]["color"]
    many = plot.line_styles([f"ppo-x={i}" for i in range(12)], options()).values()
    assert len({(look["color"], look["linestyle"]) for look in many}) == 12


def test_titles():
    """Would break: two environments of one name under one title, in one panel."""
    assert plot.titles_of(["mine:A-v1", "A-v1", "mine:B-v1"]) == {
        "mine:A-v1": "mine:A-v1",
        "A-v1": "A-v1",
        "mine:B-v1": "B-v1",
    }


def test_ticks_have_no_offset(drawn):
    """Returns of 500.00 to 500.02 over 200,000 steps. Would break: +5e2 over an axis, 1e5 below it."""
    rows = curve_rows(["ppo"], value=lambda seed, step: 500 + seed / 100)
    plot.draw_curves([], plot.summarise(rows, options()), "environment steps", [], options())
    (axis,) = drawn[0][0].axes
    assert axis.xaxis.get_offset_text().get_text() == axis.yaxis.get_offset_text().get_text() == ""
    ticks = {label.get_text() for label in axis.get_xticklabels()}
    assert {"50k", "100k"} <= ticks
    assert [plot.short_steps(x) for x in (0, 500, 2500, 1e6, 2.5e6)] == [
        "0",
        "500",
        "2.5k",
        "1M",
        "2.5M",
    ]


def test_caption_and_titles(drawn):
    """Would break: a band that is not defined, a number of seeds that is not there, a panel without its names."""
    rows = curve_rows(["ppo"]) + curve_rows(["ppo", "rpo"], env_id="envs:F-v0", seeds=range(10))
    plot.draw_curves([], plot.summarise(rows, options()), "environment steps", [], options())
    figure, _, caption = drawn.pop()
    assert [axis.get_title() for axis in figure.axes] == ["E-v1\n3 seeds", "F-v0\n10 seeds"]
    assert caption == "mean of the seeds, 95 % bootstrap interval (band); faint lines: single runs"
    curves = plot.summarise(rows[:18], options())
    plot.draw_curves([], curves, "environment steps", [], options(statistic="iqm"))
    figure, _, caption = drawn.pop()
    assert figure.axes[0].get_title() == "E-v1" and figure.axes[0].get_ylabel() == "training return"
    assert caption.startswith("interquartile mean of 3 seeds, ")
    one = plot.summarise(curve_rows(["ppo"], seeds=(1,)), options())
    plot.draw_curves([], one, "environment steps", [], options())
    assert drawn.pop()[2] == "one seed each, so no interval"


def test_many_experiments_have_several_panels(drawn):
    """Would break: nine conditions in one panel."""
    rows = curve_rows([f"ppo-x={i}" for i in range(9)])
    plot.draw_curves([], plot.summarise(rows, options()), "environment steps", [], options())
    lines = [sum(line.get_linewidth() > 1 for line in axis.lines) for axis in drawn[0][0].axes]
    assert lines == [5, 4]


def test_minutes():
    """Runs of 200, 400 and 600 s; all learn the same per step. A run that ended keeps its last return. Would break: an
    axis that ends with the fastest run, seconds for minutes."""
    rows = curve_rows(["ppo"], value=lambda seed, step: float(step))
    _, x, middle, *_ = plot.summarise(rows, options(bins=7), minutes=True)["E-v1", "ppo"]
    assert x == pytest.approx([0, 10 / 6, 20 / 6, 5, 40 / 6, 50 / 6, 10])
    assert middle[2] == pytest.approx((200_000 + 100_000 + 200_000 / 3) / 3)
    assert middle[-1] == 200_000
    steps = plot.summarise(rows, options(bins=3))["E-v1", "ppo"]
    assert steps[1].tolist() == steps[2].tolist() == [0, 100_000, 200_000]


def test_other_metric(call, tmp_path):
    """Would break: training returns drawn for evaluations."""
    for seed in (1, 2):
        run = make_run(tmp_path / "runs", seed=seed)
        with SummaryWriter(run) as writer:
            for step in (10, 20):
                writer.add_scalar(EVALUATION, 100 * step, step)
    rows, _ = results.read_folders([tmp_path / "runs"])
    curves = plot.summarise(rows, options(metric=EVALUATION))
    assert [points[1].tolist() for points in curves["E-v1", "ppo"][0]] == [[1000, 2000]] * 2
    assert call("runs", "--metric", EVALUATION, "--figure", "eval.png", cwd=tmp_path)[0] == 0
    assert Image.open(tmp_path / "eval.png").size[0] == 1600  # 8 inches at 200 dpi


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
    flags = ("--minutes", "--page", "--output", "c", "--exp-names", "ppo")
    assert call("a/results/set.csv", *flags, cwd=tmp_path)[0] == 0
    names = {file.name for file in (tmp_path / "c").iterdir()}
    assert {"set_minutes.png", "set_minutes.pdf", "set.html"} <= names
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
print(sorted({"plotly", "rliable", "scipy", "pandas", "torch", "seaborn"} & set(sys.modules)))"""
    command = [sys.executable, "-c", code, ROOT / "scripts"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_page_in_a_browser(call, tmp_path):
    """Would break: a page that needs the network, or whose script fails."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if not browser and not os.environ.get("CI"):
        pytest.skip("needs Chromium: apt-get install chromium-headless-shell")
    assert browser, "CI must have Chromium"
    for seed in (1, 2):
        make_run(tmp_path / "runs", "ppo", seed=seed, score=seed)
        make_run(tmp_path / "runs", "rpo", seed=seed)
    assert call("runs", "--page", cwd=tmp_path)[0] == 0
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    flags += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000"]
    page = (tmp_path / "curves/runs.html").as_uri()
    done = subprocess.run([browser, *flags, page], capture_output=True, timeout=120)
    dom = done.stdout.decode()
    # drawn by the script, of each exp_name: two runs, two edges of the band, one middle line
    assert len(re.findall(r'class="trace scatter', dom)) == 2 * 5
    assert re.findall(r'class="legendtext"[^>]*>([^<]+)<', dom) == ["PPO", "RPO"]


# ---- incomplete sets ---------------------------------------------------------------------------


def declare(runs, *keys) -> None:
    columns = ("exp_name", "env_id", "seed")
    listing = [dict(zip(columns, key)) | {"attempts": 3} for key in keys]
    (runs / "sweep.json").write_text(json.dumps({"runs": listing}))


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
    for flags in ((), ("--export", "results/set.csv")):
        status, out, err = call("runs", *flags, cwd=tmp_path)
        assert (status, out, [path.name for path in tmp_path.iterdir()]) == (1, "", ["runs"])
    line = {
        "unfinished": "rpo on E-v1 with seed 2 is not finished",
        "seeds": f"rpo on E-v1 has no {SCORE} for seeds 2",
        "declared": "broken on E-v1 with seed 1 is declared in sweep.json, but there is no such run",
    }[case]
    assert line in err and "--allow-incomplete" in err
    flags = ("--export", "results/set.csv", "--allow-incomplete", "--page")
    status, out, err = call("runs", *flags, cwd=tmp_path)
    assert (status, err) == (0, "") and f"**Incomplete set**: {line}" in out
    curves = tmp_path / "curves"
    assert "INCOMPLETE SET" in Image.open(curves / "set_curves.png").info["Description"]
    assert "INCOMPLETE SET" in (curves / "set.html").read_text()
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
    assert (status, out) == (1, "") and line in err
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


def test_each_folder_lacks_its_own(call, tmp_path):
    """Would break: of two missing runs with one seed in two folders only one is named."""
    for name, gamma in (("a", 0.1), ("b", 0.2)):
        make_run(tmp_path / name, seed=2, gamma=gamma)
        declare_args(tmp_path / name, {"exp_name": "ppo", "seed": 1, "gamma": gamma})
    status, _, err = call("a", "b", cwd=tmp_path)
    assert status == 1
    assert all(
        f"ppo-gamma={gamma} on E-v1 with seed 1 is declared in sweep.json, but there is no such run"
        in err
        for gamma in (0.1, 0.2)
    )


def test_other_environments_are_drawn(call, tmp_path):
    """Would break: one missing run that takes all figures away; one that nobody is told of; a part taken for the whole
    in a CSV file."""
    runs = tmp_path / "runs"
    make_run(runs, "ppo", env_id="F-v1")
    make_run(runs, "ppo")
    make_run(runs, "ppo", seed=2)
    declare(runs, ("ppo", "F-v1", 1), ("ppo", "F-v1", 2))
    status, out, err = call("runs", cwd=tmp_path)
    assert (
        status == 1
        and "ppo on F-v1 with seed 2 is declared in sweep.json, but there is no such run" in err
    )
    assert "| E-v1 | ppo | 2 |" in out and "F-v1" not in out and "Incomplete" not in out
    shutil.rmtree(tmp_path / "curves")
    flags = ("--export", "results/set.csv", "--allow-incomplete", "--output", "x")
    assert call("runs", *flags, cwd=tmp_path)[0] == 0
    status, out, err = call("results/set.csv", cwd=tmp_path)
    assert (status, out, (tmp_path / "curves").exists()) == (1, "", False)
    (runs / "E-v1__nameless__1__0").mkdir()
    (runs / "E-v1__nameless__1__0" / "checkpoint.pt").touch()  # of an environment that nobody knows
    status, out, err = call("runs", cwd=tmp_path)
    assert (status, out) == (1, "") and "nameless" in err


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


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["empty"], "no run folder in empty"),
        (
            ["text.csv"],
            "text.csv is not a CSV file with the columns exp_name,env_id,seed,step,metric,value,",
        ),
        (["runs", "--bins", "1"], "--bins must be at least 2"),
        (["runs", "--exp-names", "ppo", "sac"], "--exp-names: runs has no sac"),
        (
            ["runs", "--statistic", "iqm"],
            "--statistic iqm needs at least 4 seeds, not 1; use --statistic mean",
        ),
        (["number.csv"], "number.csv, line 2: seed, step and value must be numbers"),
        (["nothing.csv"], "nothing.csv is not a CSV file with the columns exp_name,"),
        (["header.csv"], "header.csv has no rows below its header"),
        (["short.csv"], "short.csv, line 2: 6 columns, not 7"),
        (["long.csv"], "long.csv, line 2: 8 columns, not 7"),
        (["quote.csv"], "quote.csv is not a CSV file"),
        (["semicolons.csv"], "semicolons.csv is not a CSV file with the columns"),
        (["seed.csv"], "seed.csv, line 2: seed, step and value must be numbers"),
        (["step.csv"], "step.csv, line 2: seed, step and value must be numbers"),
        (["twice.csv"], "twice has more than one sps for a E 1"),
        (["sps.csv", "other/sps.csv"], "two inputs are named sps: their figures would overwrite"),
        (["sps.csv", "--metric", "losses/none"], "--metric losses/none is not in sps"),
        (["sps.csv", "--minutes"], "--minutes needs charts/wall_time_s, which is not in sps"),
        (["sps.csv", "--env-ids", "F"], "--env-ids: sps has no F"),
        (["no_steps"], "summary.json is not the summary of a run (ZeroDivisionError"),
        (["runs", "--bins", "4000000000"], "--bins 4000000000 must be at most 100000"),
        (["runs", "--figure", "a.png", "--page"], "alone; leave out --page"),
        (["runs", "--figure", "a.png", "--output", "b"], "alone; leave out --output"),
        (["runs", "--export", "empty"], "--export empty is a folder"),
        (["runs", "--output", "text.csv"], "--output text.csv is a file"),
        (["runs", "--output", "/proc/curves"], "/proc/curves cannot be written"),
        (["text.csv", "--export", "a.csv"], "--export needs run folders"),
        (["broken"], "summary.json is not the summary of a run"),
        (["binary.csv"], "binary.csv is not a CSV file"),
        (["runs", "--labels", "ppo"], "--labels ppo has no =; give exp_name=Name"),
        (
            ["runs", "--labels", "pp=x"],
            "--labels pp=x: pp is unknown: the runs have the exp_names ppo",
        ),
        (["runs", "--figure", "a.txt"], "--figure a.txt: give a file name that ends in .png"),
        (["runs", "--figure", "no/a.png"], "no does not exist; create it first"),
        (["runs", "--figure", "dir.png"], "--figure dir.png is a folder"),
        (["runs", "--export", "text.csv/a.csv"], "text.csv cannot be written: Not a directory"),
        (["set/results/a.csv"], "labels.csv needs an exp_name and a label"),
        (
            ["runs", "--normalise", "text.csv"],
            "text.csv is not a CSV file with the columns env_id,random,",
        ),
        (["runs", "--normalise", "scales.csv"], "--normalise scales.csv has no row for E-v1"),
        (["runs", "--normalise", "same.csv"], "reference of E-v1 must be different numbers"),
        (
            ["runs", "--baseline", "ppoo"],
            "--baseline ppoo is unknown: the runs have the exp_names ppo",
        ),
        (["runs", "--figure", "a.png", "--metric", "none"], "--metric none is not in runs"),
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
        "nothing": "",
        "header": f"{header}\n",
        "short": f"{header}\na,E,1,1,sps,1\n",
        "long": f"{header}\na,E,1,1,sps,1,c,d\n",
        "quote": f'{header}\n"a,E,1,1,sps,1,c\n',
        "semicolons": f"{header}\na,E,1,1,sps,1,c\n".replace(",", ";"),
        "seed": f"{header}\na,E,one,1,sps,1,c\n",
        "step": f"{header}\na,E,1,1e6,sps,1,c\n",
        "twice": f"{header}\n" + "a,E,1,1,sps,1,c\n" * 2,
        "sps": f"{header}\na,E,1,1,sps,1,c\n",
        "other/sps": f"{header}\na,E,1,1,sps,1,c\n",
    }
    (tmp_path / "other").mkdir()
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    no_steps = make_run(tmp_path / "no_steps") / "summary.json"
    no_steps.write_text(json.dumps(json.loads(no_steps.read_text()) | {"total_timesteps": 0}))
    (tmp_path / "scales.csv").write_text("env_id,random,reference\nF-v1,0,1\n")
    (tmp_path / "same.csv").write_text("env_id,random,reference\nE-v1,5,5\n")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    (tmp_path / "dir.png").mkdir()
    (tmp_path / "set/results").mkdir(parents=True)
    (tmp_path / "set/results/a.csv").write_text(f"{header}\na,E,1,1,sps,1,c\n")
    (tmp_path / "set/labels.csv").write_text("set,exp_name\na,a\n")
    (make_run(tmp_path / "broken") / "summary.json").write_text('{"eval_returns": 3}')
    before = sorted(tmp_path.rglob("*"))
    status, out, err = call(*flags, cwd=tmp_path)
    assert (status, out, len(err.splitlines())) == (2, "", 1) and words in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("package", "flags"),
    [("matplotlib", []), ("plotly", ["--page"]), ("rliable", ["--normalise", "scales.csv"])],
)
def test_missing_package(package, flags, call, tmp_path, monkeypatch):
    """Would break: a traceback, after half of the figures have been written."""
    make_run(tmp_path / "runs")
    (tmp_path / "scales.csv").write_text("env_id,random,reference\nE-v1,0,1\n")
    monkeypatch.setattr(plot, "find_spec", lambda name: None if name == package else True)
    status, out, err = call("runs", *flags, cwd=tmp_path)
    assert (status, out) == (2, "") and f"{package} must be installed: pip install" in err
    assert not (tmp_path / "curves").exists()


def test_tables_of_a_spreadsheet(call, tmp_path):
    """Would break: a table of Excel, with a byte order mark and an empty last line, that is refused."""
    make_run(tmp_path / "runs")
    assert call("runs", "--export", "a.csv", "--figure", "a.png", cwd=tmp_path)[0] == 0
    table = (tmp_path / "a.csv").read_text()
    (tmp_path / "b.csv").write_text(f"\ufeff{table}\n", "utf-8")
    assert call("b.csv", "--figure", "b.png", cwd=tmp_path)[0] == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


# ---- what is published -------------------------------------------------------------------------


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_published_tables(file, tmp_path):
    """Would break: a published table that its CSV does not give; a table without its figure."""
    rows, score = results.select(file.stem, results.read_csv(file), options())
    assert results.problems(rows, score) == []
    table = compare.score_table(rows, score, options())
    pairs = [] if score == "sps" else compare.comparison_table(rows, score, options())
    compare.write_tables(tmp_path / file.stem, table, pairs, score, [], options())
    published = ROOT / "benchmarks" / "curves"
    for written in tmp_path.iterdir():
        assert written.read_bytes() == (published / written.name).read_bytes(), written.name
    kind = "bars" if score == "sps" else "curves"
    assert (published / f"{file.stem}_{kind}.png").is_file()


def test_labels_beside_the_results(tmp_path):
    """Would break: a figure with an exp_name where labels.csv has words for it; words of another set."""
    (tmp_path / "labels.csv").write_text(
        "set,exp_name,label\none,a-x=1,the first\ntwo,a-x=1,the second\none,gone,nobody\n"
    )
    options = plot.Options((), labels=("b=by hand",))
    found = plot.labelled(tmp_path, "one", {"a-x=1", "b"}, options)
    assert plot.display("a-x=1", found) == "the first" and plot.display("b", found) == "by hand"
    assert found.labels == ("b=by hand", "a-x=1=the first")
    assert plot.labelled(tmp_path / "none", "one", {"a-x=1"}, options) is options
    (tmp_path / "labels.csv").write_text("picture,class\n1.png,cat\n")  # somebody else's
    assert plot.labelled(tmp_path, "one", {"a-x=1"}, options).labels == options.labels


def test_one_algorithm_alone_has_several_colours():
    """Would break: variants that only their dashes tell apart."""
    names = ["ppo_penalty", "ppo_penalty-a", "ppo_penalty-b"]
    colours = {
        tuple(np.ravel(look["color"]))
        for look in plot.line_styles(names, plot.Options(())).values()
    }
    assert len(colours) == 3 and any(isinstance(c[0], str) for c in colours)
    both = plot.line_styles([*names, "ppo_continuous"], plot.Options(()))
    assert not any(isinstance(look["color"], str) for look in both.values())  # shades of two


def test_tables_in_the_documentation():
    """Would break: a row typed by hand into a page, or left behind when the runs were done again."""
    tables = [*(ROOT / "benchmarks" / "curves").glob("*.md"), ROOT / "benchmarks/rpo_study.md"]
    rows = {line for file in tables for line in file.read_text().splitlines()}
    quoted = 0
    names = ("rpo", "rpo-more", "classic", "pixels", "atari", "atari-leads", "scale", "tuning")
    pages = (ROOT / "docs" / f"{name}.md" for name in names)
    for page in pages:
        for line in page.read_text().splitlines():
            if line.startswith("|") and re.search(r"\[-?[\d.]+, -?[\d.]+\]", line):
                assert line in rows, f"{page.name}: {line}"
                quoted += 1
    assert quoted > 10


def test_tables_of_augmentation():
    """Would break: a figure of docs/augmentation.md that the runs do not give."""
    page = (ROOT / "docs/augmentation.md").read_text()
    tables = [block.partition("\n\n")[0] for block in page.split("\n\n|")[1:]]
    tables = [[line.strip("|").split("|") for line in rows.splitlines()[2:]] for rows in tables]
    cells = [[[cell.strip() for cell in row] for row in rows] for rows in tables]
    found = {}
    for name in ("augmentation", "augmentation_weight"):
        for line in (ROOT / f"benchmarks/curves/{name}.md").read_text().splitlines():
            row = [cell.strip() for cell in line.strip("|").split("|")]
            if len(row) == 7 and row[2].isdigit():
                found[name, row[0], row[1]] = row[2:5]
    for env_id, file, seeds, mean, ends, _ in cells[0]:
        assert found.pop(("augmentation", env_id, file.strip("`"))) == [seeds, mean, ends]
    entropies = defaultdict(list)
    for row in results.read_csv(ROOT / "benchmarks/results/augmentation_weight.csv"):
        if row.metric == "losses/entropy":
            entropies[row.exp_name].append(row.value)
    for what, mean, ends, entropy in cells[2]:
        name = re.search("[(]`(.*)`[)]", what)[1]
        score = found.pop(("augmentation_weight", "WalkerWalk-v1", name))
        assert score == ["3", mean, ends] and len(entropies[name]) == 3
        assert f"{min(entropies[name]):.1f} to {max(entropies[name]):.1f}" == entropy
    assert not found
    runs = results.read_csv(ROOT / "benchmarks/results/augmentation.csv")
    means = results.finals_of(runs, "train_return_last100")
    for task in ("WalkerWalk-v1", "PendulumSwingup-v1"):
        sides = ((task, name) for name in ("ppo_continuous", "rpo_continuous"))
        both = (np.mean([*means[side].values()]) for side in sides)
        words = "{:.0f} and {:.0f} in training after 1M".format(*both)
        assert words in (ROOT / "docs/rpo.md").read_text()
    lines = (ROOT / "benchmarks/curves/augmentation.md").read_text().splitlines()
    for name, words in {
        "ppo_rad": "86 [-42, 199]",
        "ppo_drac": "178 [78, 287]",
        "rpo_continuous": "188 [32, 343]",
    }.items():
        (line,) = (x for x in lines if x.startswith(f"| WalkerWalk-v1 | {name} | ppo_continuous |"))
        mean, low, high = (-float(x) for x in re.search(r"(\S+) \[(\S+), (\S+)\]", line).groups())
        assert f"{mean:.0f} [{high:.0f}, {low:.0f}]" == words
        assert re.sub(r"\s+", " ", page).count(words) == 1


def test_tables_of_results():
    """Would break: a figure of docs/results.md's tables of returns, or of docs/curiosity.md's, that the
    runs do not give."""

    def table(path, place=1):
        """The rows of one table of a page, as dictionaries."""
        lines = f"\n\n{(ROOT / path).read_text()}".split("\n\n|")[place]
        lines = lines.partition("\n\n")[0].splitlines()
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
        return [dict(zip(head, row, strict=True)) for row in rows]

    published = table("docs/results.md", 3)
    found = table("benchmarks/curves/continuous.md")
    found = {row["env_id"]: row for row in found if row["exp_name"] == "ppo_continuous"}
    assert {row["task"] for row in published} == set(found)
    for row in published:
        run = found[row["task"]]
        assert row["ours: mean [95 %]"] == run["eval_return_mean: mean [95 %]"]
        assert row["least and most"] == run["worst and best run"]
    found = {row["env_id"]: row for row in table("benchmarks/curves/mujoco_published.md")}
    peers = table("benchmarks/curves/mujoco_published_sb3.md")
    peers = {row["env_id"]: row for row in peers}
    (flags,) = table("docs/results.md", 4)
    rows = {
        row["exp_name"]: row
        for row in table("benchmarks/curves/continuous.md")
        if row["env_id"] == flags["task"]
    }
    assert flags["mean [95 %]"] == rows["ppo_continuous-horizon"]["eval_return_mean: mean [95 %]"]
    assert flags["with the defaults"] == rows["ppo_continuous"]["eval_return_mean: mean [95 %]"]
    published = table("docs/results.md", 5)
    assert {row["task"] for row in published} == set(found)
    for row in published:
        run = found[row["task"]]
        assert row["ours: mean [95 %]"] == run["eval_return_mean: mean [95 %]"]
        assert row["least and most"] == run["worst and best run"]
        assert row["ours, training"] == run["train_return_last100"]
        assert peers[row["task"]]["seeds"] == "2"
        assert peers[row["task"]]["worst and best run"] == row["Stable-Baselines3, both runs"]
    mean, ends = "eval_return_mean: mean [95 %]", "worst and best run"
    runs = table("benchmarks/curves/trust_region.md") + table("benchmarks/curves/fixed_scale.md")
    found = {(row["env_id"], row["exp_name"]): row for row in runs}
    files = {"clip": "ppo_continuous", "penalty": "ppo_penalty", "trust region": "trpo_continuous"}
    for row in table("docs/trust-region.md"):
        for column, name in files.items():
            run = found[row["task"], name]
            assert (row[column], row["seeds"]) == (run[mean], run["seeds"])
    rows = [
        row
        for name in ("trust_region", "fixed_scale")
        for row in results.read_csv(ROOT / f"benchmarks/results/{name}.csv")
        if row.env_id == "Pendulum-v1" and row.metric == "eval_return_mean"
    ]
    pendulum = {name: run for (task, name), run in found.items() if task == "Pendulum-v1"}
    for row in table("docs/trust-region.md", 3):
        name = re.search("`(.*)`", row["Pendulum-v1"])[1]
        run = pendulum.pop(name)
        assert (row["evaluation: mean [95 %]"], row[ends]) == (run[mean], run[ends])
        good = [x.value >= -200 for x in rows if x.exp_name == name]
        assert row["-200 or better"] == f"{sum(good)} of {len(good)}"
    assert not pendulum
    found = {row["exp_name"]: row for row in table("benchmarks/curves/penalty_pendulum.md")}
    with (ROOT / "benchmarks/penalty_kl.csv").open() as stream:
        updates = list(csv.DictReader(stream))
    for row in table("docs/trust-region.md", 4):
        name = re.search("[(]`(.*)`", row["the penalty, seeds 1 to 5"])[1]
        mine = [x for x in updates if x["exp_name"] == name and int(x["seed"]) <= 5]
        mine = [x for x in mine if x["env_id"] == "Pendulum-v1"]
        run = found.pop(name)
        assert len(mine) == 5 and row["evaluation: mean [95 %]"] == run[mean]
        assert row["runs that fall"] == f"{sum(x['first_fall'] != '' for x in mine)} of 5"
        above = sum(int(x["above"]) for x in mine)
        assert row["updates above 0.1"] == f"{above} of {sum(int(x['updates']) for x in mine)}"
        largest = sorted(float(x["largest_kl"]) for x in mine)
        assert row["largest update, nats"] == f"{largest[0]:.2f} to {largest[-1]:.2f}"
    page = (ROOT / "docs/trust-region.md").read_text()
    medians = defaultdict(list)
    for x in updates:
        if int(x["seed"]) <= 5:
            medians[x["exp_name"], x["env_id"]].append(float(x["median_kl"]))
    medians = {key: f"{np.median(values):.4f}" for key, values in medians.items()}
    page = " ".join(page.split())
    names = ("ppo_penalty", "ppo_penalty-paper", "ppo_penalty-paper-small-target")
    small, halved, tenth = (medians[name, "Pendulum-v1"] for name in names)
    words = (
        f"the median update has {small} nats, with beta halved {halved}. The control, beta halved"
    )
    assert f"{words} with `--kl-target 0.001`, has {tenth}." in page
    small, halved = (medians[name, "HalfCheetah-v5"] for name in names[:2])
    assert f"a median of {small} against {halved}" in page
    assert not found
    with (ROOT / "benchmarks/curves/trust_region_comparisons.csv").open() as stream:
        pairs = list(csv.DictReader(stream))
    with (ROOT / "benchmarks/curves/trpo_pendulum_comparisons.csv").open() as stream:
        pairs += csv.DictReader(stream)
    said = {
        ("Pendulum-v1", "ppo_penalty", "ppo_continuous"): "the clip by {} {}",
        ("Pendulum-v1", "trpo_continuous", "ppo_penalty"): "TRPO by {} {}",
        ("Pendulum-v1", "ppo_penalty-paper", "ppo_penalty"): "with beta halved by {} {}",
        ("Walker2d-v5", "trpo_continuous", "sb3_trpo"): "Ours is {} {} behind",
        ("HalfCheetah-v5", "ppo_penalty-paper", "ppo_penalty"): "has 5282, {} {} less",
        (
            "Pendulum-v1",
            "trpo_continuous-whole-episodes",
            "trpo_continuous",
        ): "{} behind on average, {}",
    }
    for key, words in said.items():
        (pair,) = (x for x in pairs if (x["env_id"], x["exp_name"], x["against"]) == key)
        value, low, high = (float(pair[name]) for name in ("difference", "low", "high"))
        if value < 0:
            value, low, high = -value, -high, -low
        assert words.format(f"{value:.0f}", f"[{low:.0f}, {high:.0f}]") in page
    scores = defaultdict(dict)
    for x in rows:
        scores[x.exp_name][x.seed] = x.value
    means = []
    for name in ("ppo_continuous", "trpo_continuous", "ppo_penalty-paper"):
        ahead = [scores["ppo_penalty"][seed] - scores[name][seed] for seed in range(6, 11)]
        assert min(ahead) > 0
        means.append(f"{np.mean(ahead):.0f}")
    assert "by {}, {} and {} on average".format(*means) in page
    found = table("benchmarks/curves/curiosity.md")
    found = {
        (row["env_id"], row["exp_name"]): row["eval_return_mean: mean [95 %]"] for row in found
    }
    rows = table("docs/curiosity.md", 3)
    for row in rows:
        task = row["task"].partition(",")[0]
        ours = {"RND": "ppo_rnd", "ICM": "ppo_icm", "RND without its bonus": "ppo_rnd-no-bonus"}
        ours["PPO"] = "ppo" if task == "MountainCar-v0" else "ppo_continuous"
        for column, name in ours.items():
            assert row[column] == found.pop((task, name), "not run")
    assert len(rows) == 3
    assert not found
    means = {
        row["exp_name"]: row["eval_return_mean: mean [95 %]"]
        for row in table("benchmarks/curves/arm.md")
    }
    finals = results.finals_of(
        results.read_csv(ROOT / "benchmarks/results/arm.csv"), "eval_return_mean"
    )
    named = {"PPO": "ppo_continuous", "RND without its bonus": "ppo_rnd-no-bonus"}
    named |= {
        "RND": "ppo_rnd",
        "RND with larger first weights, as for two numbers": "rnd_any_dimension",
        "ICM": "ppo_icm",
    }
    arms = table("docs/curiosity.md", 2)
    assert {row["file"] for row in arms} == set(named) and len(arms) == len(named)
    for row in arms:
        scores = finals["envs:ArmReach-v0", named[row["file"]]].values()
        assert row["seeds with 80 or more of 100"] == f"{sum(v >= 0.8 for v in scores)} of 10"
        assert row["seeds with none"] == f"{sum(v == 0 for v in scores)} of 10"
        assert row["mean [95 %]"] == means[named[row["file"]]]


def test_cars_at_rest():
    """Would break: a run that ends at rest and is not counted in docs/curiosity.md, or its curve told otherwise."""
    page = " ".join((ROOT / "docs/curiosity.md").read_text().split())
    rows = [
        row
        for name in ("curiosity", "curiosity_second")
        for row in results.read_csv(ROOT / f"benchmarks/results/{name}.csv")
        if row.env_id == "MountainCarContinuous-v0"
    ]
    table = (ROOT / "benchmarks/curves/curiosity_second.md").read_text()
    finals = defaultdict(dict)
    for row in rows:
        if row.metric == "eval_return_mean":
            finals[row.exp_name][row.seed] = row.value
    told = re.findall(r"\(`(ppo\S+)`\) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", page)
    assert {name for name, *_ in told} == set(finals) and len(told) == 5
    fallen, falls, runs = [], defaultdict(int), defaultdict(int)
    for name, first, second, mean in told:
        assert f"| {name} | 10 | {mean} |" in table
        early = [value for seed, value in finals[name].items() if seed <= 5]
        late = [value for seed, value in finals[name].items() if seed > 5]
        assert second == f"{sum(value >= 90 for value in late)} of 10" and len(late) == 10
        assert first == (f"{sum(value >= 90 for value in early)} of 5" if early else "not run")
        low = [(name, seed) for seed, value in finals[name].items() if value < 90]
        assert all(-1 < finals[name][seed] < 0 for _, seed in low)
        fallen += low
        bonus = name in ("ppo_rnd", "ppo_icm")
        runs[bonus] += len(early + late)
        falls[bonus] += len(low)
    assert (falls[True], runs[True], falls[False], runs[False]) == (5, 30, 2, 40)
    ways = [math.comb(30, k) * math.comb(40, 7 - k) / math.comb(70, 7) for k in range(8)]
    p = sum(way for way in ways if way <= ways[5] * (1 + 1e-9))  # Fisher's exact test, two-sided
    assert f"over both samples and chosen afterwards, says p = {p:.2f}." in page
    assert "without one 38 of 40 runs reach 90" in page
    assert "5 of 30 runs end at rest, without one 2 of 40" in page
    lows = []
    for run in fallen:
        curve = [x for x in rows if (x.exp_name, x.seed) == run]
        curve = [x for x in curve if x.metric == "charts/episodic_return" and x.step <= 107_000]
        assert curve[-1].value < 0
        lows.append(min(x.value for x in curve if x.step <= 66_000))
    assert len(lows) == 7 and sum(-19.5 <= low <= -14.5 for low in lows) == 5


def test_what_a_mistake_changed():
    """Would break: a row of docs/curiosity.md's table of before and today that the runs do not give; "before" runs that
    are not those of the page's other tables; a significant difference that is not told."""
    page = (ROOT / "docs/curiosity.md").read_text()
    file = ROOT / "benchmarks/results/curiosity_ends.csv"
    finals = results.finals_of(results.read_csv(file), "eval_return_mean")
    others = defaultdict(dict)
    for name in ("curiosity", "curiosity_second", "arm"):
        rows = results.read_csv(ROOT / f"benchmarks/results/{name}.csv")
        for key, scores in results.finals_of(rows, "eval_return_mean").items():
            others[key] |= scores
    marks = {"MountainCarContinuous-v0": 90, "MountainCar-v0": -110, "envs:ArmReach-v0": 0.8}
    assert len(finals) == 4 * len(marks)
    failed = {}
    for task, mark in marks.items():
        for name in ("ppo_rnd", "ppo_icm"):
            sides = finals[task, f"{name}-before"], finals[task, name]
            assert sides[0] == others[task, name] and sides[0].keys() == sides[1].keys()
            cells = [f"{sum(x >= mark for x in side.values())} of {len(side)}" for side in sides]
            cells += [compare.short(np.mean(list(side.values()))) for side in sides]
            assert f"| {task} | {name[4:].upper()} | {' | '.join(cells)} |" in page
            lost = [{seed for seed, x in side.items() if x < mark} for side in sides]
            failed[task, name] = lost
            row = compare.compare(*sides[::-1], options())
            assert row["p"] > 0.05
    before, now = failed["MountainCarContinuous-v0", "ppo_icm"]
    assert now < before and len(before - now) == 1
    for key in (("MountainCarContinuous-v0", "ppo_rnd"), ("envs:ArmReach-v0", "ppo_icm")):
        assert failed[key][0] == failed[key][1]
    arms = finals["envs:ArmReach-v0", "ppo_rnd-before"], finals["envs:ArmReach-v0", "ppo_rnd"]
    assert failed["envs:ArmReach-v0", "ppo_rnd"] == [{7}, {10}]
    line = f"seed 10 at {arms[1][10]:.2f} in place of seed 7 at {arms[0][7]:.2f}"
    assert line in " ".join(page.split())


def test_breakout_beside_stable_baselines3():
    """Would break: a return in docs/atari.md's tables of PPO, A2C and DQN on Breakout, or in the leads' of an earlier
    start of the game, that the runs do not give."""
    scores = defaultdict(dict)
    for name in ("published", "ale_fire", "a2c", "a2c_ale_fire", "dqn"):
        for row in results.read_csv(ROOT / f"benchmarks/results/breakout_{name}.csv"):
            if row.metric in ("eval_return_mean", "train_return_last100"):
                scores[row.exp_name].setdefault(row.seed, {})[row.metric] = row.value
    page, leads = ((ROOT / f"docs/{name}.md").read_text() for name in ("atari", "atari-leads"))
    for name, runs in scores.items():
        where = leads if "ale-fire" in name else page
        (line,) = re.findall(rf"^[|].*[(]`{name}`[)].*$", where, re.MULTILINE)
        cells = [
            f"{run['eval_return_mean']:.1f} ({run['train_return_last100']:.1f})"
            for _, run in sorted(runs.items())
        ]
        found = [cell.strip() for cell in line.strip("|").split("|")]
        assert [cell for cell in found[1:] if cell] == cells
    assert len(scores) == 10
    rows = list(results.read_csv(ROOT / "benchmarks/results/breakout_a2c_rate.csv"))
    lines = {"7e-4, falling": "published", "7e-4, constant": "constant-lr"}
    for rate, tag in (lines | {"0.0182, falling": "big-lr"}).items():
        drawn, trained = (
            results.finals_of(rows, metric)["BreakoutNoFrameskip-v4", f"a2c_atari-{tag}"][1]
            for metric in ("eval_return_mean", "train_return_last100")
        )
        assert f"| 1e-5 | {rate} | {drawn:.1f} | {trained:.1f} |\n" in leads
        if tag == "published":
            assert f"steps** (seed 1: {drawn:.1f}, in training {trained:.1f});" in " ".join(
                page.split()
            )
    spreads = []
    for metric in ("eval_return_mean", "train_return_last100"):
        values = [run[metric] for run in scores["a2c_atari-small-eps"].values()]
        spreads.append(f"{min(values):.1f} to {max(values):.1f}")
    assert f"7e-4, falling | {' | '.join(spreads)} |\n" in leads
    assert f"heavy, A2C's five runs with 1e-8 have {spreads[0]}." in " ".join(leads.split())
    assert {
        len(runs) for name, runs in scores.items() if name in ("ppo_atari", "sb3_atari-ppo")
    } == {5}

    def means(*names: str) -> list[float]:
        """Of the evaluations of each, then of the training returns of each."""
        metrics = ("eval_return_mean", "train_return_last100")
        sides = [(metric, scores[name].values()) for metric in metrics for name in names]
        return [np.mean([run[metric] for run in runs]) for metric, runs in sides]

    from scipy.stats import ttest_ind

    page = " ".join(page.split())
    evaluations, trainings = np.split(np.array(means("ppo_atari", "sb3_atari-ppo")), 2)
    both = (
        "of Breakout PPO has {:.1f}, stable-baselines3's with the same settings {:.1f}. Five seeds"
    )
    assert both.format(*evaluations) in page
    curves = results.curves_of(
        results.read_csv(ROOT / "benchmarks/results/breakout_published.csv"), results.CURVE
    )
    early = [
        [
            np.mean([value for step, value in curve if end - 50_000 <= step < end])
            for curve in curves["BreakoutNoFrameskip-v4", side].values()
        ]
        for end in (200_000, 300_000)
        for side in ("ppo_atari", "sb3_atari-ppo")
    ]
    words = "before 200,000 ours is ahead, {:.1f} to {:.1f}; before 300,000 no longer ({:.1f} to {:.1f})"
    assert words.format(*map(np.mean, early)) in page
    fast = results.read_csv(ROOT / "benchmarks/results/breakout_fast.csv")
    fast = results.curves_of(fast, results.CURVE)["BreakoutNoFrameskip-v4", "ppo_atari-fast"]
    early = [*early[0], *early[1]]
    for curve in fast.values():
        early.append(np.mean([value for step, value in curve if 150_000 <= step < 200_000]))
    words = f"among them, have {min(early):.1f} to {max(early):.1f} after 200,000 steps"
    assert words in page
    sides = [
        [run["eval_return_mean"] for run in scores[name].values()]
        for name in ("ppo_atari", "sb3_atari-ppo")
    ]
    interval = ttest_ind(*sides, equal_var=False).confidence_interval()
    words = f"by Welch's t from {interval.low:.1f} to {interval.high:.1f}."
    assert words in page and 0.15 < interval.high / np.mean(sides[1]) < 0.22
    both = "ours has {:.1f} and stable-baselines3 {:.1f} ([table"
    assert both.format(*trainings) in page
    ours, theirs, ours_trained, theirs_trained = means("dqn_atari", "sb3_atari-dqn")
    words = (
        f"DQN's three runs a side have {ours_trained:.1f} against {theirs_trained:.1f} in training"
    )
    assert f"{words}, and {ours:.1f} against {theirs:.1f} in evaluations" in page
    wrappers = list(results.read_csv(ROOT / "benchmarks/atari_wrappers.csv"))
    again = []
    for side in load(ROOT / "benchmarks" / "atari_wrappers.py").SIDES:
        mean, error = (
            results.finals_of(wrappers, metric)["BreakoutNoFrameskip-v4", "dqn_atari"]
            for metric in (side, f"{side}, standard error")
        )
        again.append(np.mean([*mean.values()]))
        cells = [f"{mean[seed]:.1f} ± {error[seed]:.1f}" for seed in (1, 2, 3)]
        assert f"| in {side} | {' | '.join(cells)} | {again[-1]:.1f} |" in page
    words = f"on 120 other games ours has {again[0]:.1f}, in stable-baselines3's wrappers "
    assert f"{words}{again[1]:.1f} ([DQN]" in page
    rows = list(results.read_csv(ROOT / "benchmarks/results/breakout_dqn.csv"))
    spread = results.finals_of(rows, "eval_return_std")["BreakoutNoFrameskip-v4", "sb3_atari-dqn"]
    errors = [*error.values()], [value / 29**0.5 for value in spread.values()]
    words = "with errors of {:.1f} and {:.1f} by".format(*(np.hypot.reduce(e) / 3 for e in errors))
    assert f"wrappers** ours have {again[1]:.1f} and theirs {theirs:.1f}, {words}" in page
    dqn, ppo = (
        [run["eval_return_mean"] for _, run in sorted(scores[name].items())]
        for name in ("dqn_atari", "ppo_atari")
    )
    words = f"three runs of 500,000 end at {min(dqn):.1f} to {max(dqn):.1f}, five of PPO with the "
    assert f"{words}published settings at {min(ppo):.1f} to {max(ppo):.1f}" in page
    with (ROOT / "benchmarks/curves/breakout_published_comparisons.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["exp_name"], row["against"]) == ("sb3_atari-ppo", "ppo_atari")
    ahead, low, high = (-float(row[key]) for key in ("difference", "high", "low"))
    words = f"ahead by {ahead:.2f} with an interval from {low:.2f} to {high:.2f} (unpaired, p = "
    assert f"{words}{float(row['p']):.2f})" in page
    rows = results.read_csv(ROOT / "benchmarks/results/breakout_published.csv")
    curves = results.curves_of(rows, results.CURVE)
    whole = [
        {seed: np.mean([value for _, value in curve]) for seed, curve in runs.items()}
        for runs in (
            curves["BreakoutNoFrameskip-v4", side] for side in ("ppo_atari", "sb3_atari-ppo")
        )
    ]
    row = compare.compare(*whole, options(), same_program=False)
    both = "Over the whole curve ours has {:.1f} and stable-baselines3 {:.1f} (p = {:.2f})"
    assert both.format(*(np.mean([*side.values()]) for side in whole), row["p"]) in page
    sides = ("a2c_atari-small-eps", "sb3_atari-a2c-small-eps")
    both = "has {:.1f} and stable-baselines3's {:.1f}, in training {:.1f} and {:.1f} (commit"
    assert both.format(*means(*sides)) in page
    with (ROOT / "benchmarks/curves/breakout_a2c_comparisons.csv").open() as file:
        row = next(csv.DictReader(file))
    assert (row["exp_name"], row["against"]) == ("sb3_atari-a2c-small-eps", "a2c_atari-small-eps")
    ahead, low, high = (-float(row[key]) for key in ("difference", "high", "low"))
    words = f"{ahead:.2f} [{low:.2f}, {high:.2f}], p = {float(row['p']):.3f} ("
    words += f"{float(row['p_holm']):.3f} corrected), is in part the starts"
    assert f"evaluation's {words}" in page
    rows = list(results.read_csv(ROOT / "benchmarks/results/breakout_a2c.csv"))
    runs = results.finals_of(rows, "train_return_last100")
    both = (runs["BreakoutNoFrameskip-v4", side] for side in sides)
    row = compare.compare(*both, options(), same_program=False)
    words = "{difference:.2f} [{low:.2f}, {high:.2f}], p = {p:.2f}".format(**row)
    assert f"ours is ahead by {words}" in page
    ahead = []
    for metric in ("eval_return_mean", "train_return_last100"):
        runs = results.finals_of(rows, metric)
        both = (runs["BreakoutNoFrameskip-v4", side] for side in (sides[0], f"{sides[1]}-543k"))
        row = compare.compare(*both, options(), same_program=False)
        ahead.append("{difference:.2f} [{low:.2f}, {high:.2f}], p = {p:.2f}".format(**row))
    assert "Ours is ahead of it by {}, in training by {}.".format(*ahead) in page
    words = "(commit c9e20fe): {:.1f}, in training {:.1f}. Ours"
    assert words.format(*means(f"{sides[1]}-543k")) in page
    rows = list(results.read_csv(ROOT / "benchmarks/results/pong_a2c.csv"))
    pong = results.finals_of(rows, "eval_return_mean")
    both = [pong["PongNoFrameskip-v4", side] for side in sides]
    row = compare.compare(*both, options(), same_program=False)
    means = [np.mean([*side.values()]) for side in both]
    words = "in bfloat16, has {:.1f} and stable-baselines3's {:.1f} by five seeds each, a".format(
        *means
    )
    words += " difference of {difference:.2f} [{low:.2f}, {high:.2f}], p = {p:.2f}".format(**row)
    assert words in page and {*map(len, both)} == {5}


def test_pong_of_the_page():
    """Would break: a return of Pong's published settings in docs/atari.md that the runs do not give."""
    page = (ROOT / "docs/atari.md").read_text()
    everyone = []
    for name in ("pong", "pong_greedy"):
        rows = results.read_csv(ROOT / f"benchmarks/results/{name}.csv")
        runs = results.finals_of(rows, "eval_return_mean")["PongNoFrameskip-v4", "ppo_atari"]
        everyone += runs.values()
    assert f"| Pong | PPO | 2.5M | {len(everyone)} | {np.mean(everyone):.1f} | | the same |" in page
    ends = f"five runs end between {min(everyone):.1f} and {max(everyone):.1f} by draws"
    assert len(everyone) == 5 and ends in " ".join(page.split())


def test_first_table_of_atari():
    """Would break: a mean in docs/atari.md's first table that its runs do not give, or other counts of seeds; the pace
    of the long run in docs/atari-speed.md."""
    page = (ROOT / "docs/atari.md").read_text()
    table = page.split("\n\n| game | algo")[1].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    breakout, pong = ("BreakoutNoFrameskip-v4", "PongNoFrameskip-v4")
    sources = [  # ours, and stable-baselines3's beside it
        ("breakout_fast", breakout, "ppo_atari-fast"),
        ("breakout_fast_2m", breakout, "ppo_atari-fast-2m"),
        ("breakout_published", breakout, "ppo_atari", "sb3_atari-ppo"),
        ("atari", breakout, "ppo_atari"),
        ("breakout_dqn", breakout, "dqn_atari", "sb3_atari-dqn"),
        ("atari", breakout, "dqn_atari"),
        ("breakout_a2c", breakout, "a2c_atari-small-eps", "sb3_atari-a2c-small-eps"),
        ("pong_fast", pong, "ppo_atari-fast-pong-4m"),
        ("pong_fast", pong, "ppo_atari-fast-pong-1e-3"),
        None,  # test_pong_of_the_page
        ("pong_published", pong, "ppo_atari", "sb3_atari-ppo"),
        ("pong_a2c", pong, "a2c_atari-small-eps", "sb3_atari-a2c-small-eps"),
        ("atari", pong, "dqn_atari"),
    ]
    scores = {
        name: results.finals_of(
            results.read_csv(ROOT / f"benchmarks/results/{name}.csv"), "eval_return_mean"
        )
        for name in {source[0] for source in sources if source}
    }
    for row, source in zip(rows, sources, strict=True):
        if source:
            name, env_id, *sides = source
            runs = [scores[name][env_id, side] for side in sides]
            means = [f"{np.mean([*side.values()]):.1f}" for side in runs] + [""]
            count = str(len(runs[0]))
            assert [row[0], *row[3:6]] == [env_id.split("No")[0], count, *means[:2]]
    runs = [scores["pong_published"][pong, side] for side in ("ppo_atari", "sb3_atari-ppo")]
    words = f"the same settings have {listed(runs[0])} there, stable-baselines3 {listed(runs[1])},"
    rows = list(results.read_csv(ROOT / "benchmarks/results/pong_published.csv"))
    trained = results.finals_of(rows, "train_return_last100")
    means = [np.mean([*trained[pong, s].values()]) for s in ("ppo_atari", "sb3_atari-ppo")]
    words += " in training {:.1f} and {:.1f} (".format(*means)
    assert words in " ".join(page.split())
    row = compare.compare(*runs[::-1], options(), same_program=False)
    words = "Ours is behind by {difference:.2f} [{low:.2f}, {high:.2f}], p = {p:.2f}: no".format(
        **row
    )
    assert words in " ".join(page.split()) and row["p"] > 0.05
    clock = [
        (row.step, row.value)
        for row in results.read_csv(ROOT / "benchmarks/results/atari.csv")
        if row[:2] == ("dqn_atari", breakout) and row.metric == results.CLOCK
    ]
    steps, seconds = np.subtract(clock[-1], next(x for x in clock if x[0] > 1_500_000))
    words = f"made {steps / seconds:.0f} over its last 210,000;"
    speeds = (ROOT / "docs/atari-speed.md").read_text()
    assert words in " ".join(speeds.split()) and round(steps, -4) == 210_000
    rows = list(results.read_csv(ROOT / "benchmarks/results/basicmath.csv"))
    points = [
        results.finals_of(rows, metric)["ALE/BasicMath-v5", f"{algo}_atari"][1]
        for metric in ("train_return_last100", "eval_return_mean")
        for algo in ("ppo", "dqn")
    ]
    words = "have {:.2f} points by PPO and {:.2f} by DQN, the evaluation {:.1f} and {:.1f}"
    leads = (ROOT / "docs/atari-leads.md").read_text()
    assert words.format(*points) in " ".join(leads.split())


def test_what_to_expect_of_atari():
    """Would break: a range of docs/atari.md's table of what to expect that is not that of the runs."""
    page = (ROOT / "docs/atari.md").read_text()
    sources = {
        "Breakout, PPO fast, 3 runs": ["breakout_fast"],
        "Breakout, PPO, 5 runs": ["breakout_published"],
        "Breakout, DQN, 1 run of 1.75M": ["atari"],
        "Pong, PPO, 5 runs": ["pong", "pong_greedy"],
        "Pong, PPO fast, 3 runs": ["pong_fast"],
    }
    algos = {"breakout_fast": "ppo_atari-fast", "atari": "dqn_atari"}
    algos["pong_fast"] = "ppo_atari-fast-pong-4m"
    for label, names in sources.items():
        runs, seconds = [], []
        for name in names:
            rows = list(results.read_csv(ROOT / f"benchmarks/results/{name}.csv"))
            env_id = f"{label.partition(',')[0]}NoFrameskip-v4"
            key = env_id, algos.get(name, "ppo_atari")
            runs += results.curves_of(rows, results.CURVE)[key].values()
            seconds += results.finals_of(rows, "wall_time_s")[key].values()
        assert f", {len(runs)} run" in label
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {label} |"))
        *cells, minutes = [cell.strip() for cell in line.strip("|").split("|")][1:]
        took = dict.fromkeys(f"{second / 60:.0f}" for second in (min(seconds), max(seconds)))
        assert minutes == " to ".join(took)
        ends = (100_000, 200_000, 500_000, 1_000_000)
        for cell, end in zip(cells, ends, strict=True):
            means = [
                np.mean([value for step, value in curve if end - 50_000 <= step < end])
                for curve in runs
                if curve[-1][0] > end - 26_000
            ]
            spread = dict.fromkeys(f"{x:.1f}" for x in (min(means), max(means))) if means else ()
            assert cell == " to ".join(spread)


def lines_over_minutes(runs: list[dict], sides: dict[str, str]) -> list[str]:
    """The rows of docs/atari.md's tables of minutes, {label: exp_name}."""
    lines = []
    for label, side in sides.items():
        seeds = {run["seed"]: run for run in runs if run["exp_name"] == side}
        here = [run["minutes"] for run in seeds.values()]
        spread = f" {time_to_return.spread(seeds)}" if len(here) > 1 else ""
        cells = [f"{sum(run['reached'] for run in seeds.values()):.0f} of {len(here)}"]
        cells.append(time_to_return.middle(seeds, "minutes", ".1f") + spread)
        cells.append(time_to_return.middle(seeds, "steps", ",.0f"))
        pace = np.divide([run["steps"] for run in seeds.values()], here) / 60
        lines.append(f"| {label} | {' | '.join(cells)} | {np.median(pace):,.0f} |")
    return lines


PEERS = {
    "stable-baselines3, fast setting": "sb3_atari-ppo-fast",
    "stable-baselines3, published settings": "sb3_atari-ppo-minutes",
}


def listed(seeds: dict, form: str = ".1f") -> str:
    """Values by seed as a page has them: 1, 2 and 3."""
    texts = [f"{value:{form}}" for _, value in sorted(seeds.items())]
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def test_fast_setting_of_pong():
    """Would break: returns or minutes of Pong's fast setting that its runs do not give; a command of another one."""
    page = " ".join((ROOT / "docs/atari.md").read_text().split())
    rows = list(results.read_csv(ROOT / "benchmarks/results/pong_fast.csv"))
    names = ("eval_return_mean", "eval_greedy_mean", "train_return_last100")
    game, fast, short = "PongNoFrameskip-v4", "ppo_atari-fast-pong-4m", "ppo_atari-fast-pong"
    words = "have {} by draws, {} greedily and {} in training"
    for start, side in (("after 4M steps, the three ", fast), ("them, they ", short)):
        scores = [listed(results.finals_of(rows, name)[game, side]) for name in names]
        assert start + words.format(*scores) in page
    steep = f"{short}-1e-3"
    scores = [listed(results.finals_of(rows, name)[game, steep]) for name in names]
    assert words.format(*scores) in page
    assert f"2.5M steps give {scores[0]}, greedily {scores[1]}. stable" in page
    modes = list(results.read_csv(ROOT / "benchmarks/atari_modes.csv"))
    ways = load(ROOT / "benchmarks" / "atari_modes.py").WAYS
    there = [listed(results.finals_of(modes, ways[k])[game, steep]) for k in (0, 3, 5)]
    other = "On 30 other starts they have {} by draws, {} greedily, and {} by the likeliest action"
    leads = " ".join((ROOT / "docs/atari-leads.md").read_text().split())
    assert other.format(*there).replace("On 30", "on 30") in leads
    mean = np.mean([*results.finals_of(rows, names[0])[game, steep].values()])
    assert f"from a larger rate {mean:.1f} after 2.5M" in page
    curves = results.curves_of(rows, results.CURVE)[game, steep]
    needed = {}
    for seed, curve in curves.items():
        points = [(step, 0.0, value) for step, value in curve]
        needed[seed] = time_to_return.time_to(18, points, time_to_return.GAMES)[0] / 1e6
    assert f"of 18 it needs {listed(needed)} million steps, the setting above" in page
    draws = results.finals_of(rows, names[0])[game, fast]
    assert f"After 4M steps it has {listed(draws)} by draws; CleanRL publishes 20.4" in page
    half = [
        {row.seed: row.value for row in rows if row[:2] == (fast, game) and row.metric == name
         and 2_500_000 <= row.step < 2_600_000}
        for name in ("eval/greedy_return", "eval/episodic_return")
    ]  # fmt: skip
    assert f"greedy play has {listed(half[0])} where draws have {listed(half[1])};" in page
    runs = time_to_return.read_csv(ROOT / "benchmarks/time_to_return_pong.csv")
    sides = {"ours, fast setting": fast, "ours, the rate falling within 2.5M steps": short}
    for line in lines_over_minutes(runs, sides | PEERS):
        assert line in page
    by_side = defaultdict(dict)
    for run in runs:
        by_side[run["exp_name"]][run["seed"]] = run
    mine, peer, published = by_side[fast], *(by_side[name][1] for name in PEERS.values())
    there = {seed: run["minutes"] for seed, run in mine.items()}
    assert all(run["reached"] for run in mine.values())
    assert f"of 18 after {listed(there, '.0f')} minutes on one core (three seeds)." in page
    words = f"is at 18 after {peer['minutes']:.0f} minutes with the same setting, "
    assert f"{words}{published['minutes']:.0f} with the published ones (one seed each).**" in page
    times = peer["minutes"] / np.median([*there.values()])
    words = f"takes {times:.1f} times our median. It needs {peer['steps'] / 1e6:.1f} million steps,"
    assert words in page
    times = published["minutes"] / np.median([*there.values()])
    assert f"takes {times:.1f} times our median." in page
    steps = listed({seed: run["steps"] / 1e6 for seed, run in mine.items()})
    assert f"It needs {published['steps'] / 1e6:.1f} million steps, ours {steps}." in page
    other = [
        run
        for run in time_to_return.read_csv(ROOT / "benchmarks/time_to_return_atari.csv")
        if run["exp_name"] == published["exp_name"]
    ]
    paces = [f"{run['steps'] / run['minutes'] / 60:.0f}" for run in (published, *other)]
    published_rows = results.read_csv(ROOT / "benchmarks/results/breakout_published.csv")
    shorter = results.finals_of(published_rows, "sps")["BreakoutNoFrameskip-v4", "sb3_atari-ppo"]
    least, most = min(shorter.values()), max(shorter.values())
    words = f"made {paces[1]} steps/s in the run of {other[0]['minutes']:.0f} minutes, {least:.0f}"
    words += f" to {most:.0f} in five shorter ones [below](#beside-stable-baselines3), and "
    assert f"{words[:-4]}{paces[0]} on [Pong]" in page and len(shorter) == 5
    with (ROOT / "benchmarks/results/speed_atari.csv").open() as file:
        rounds = [
            float(row["value"])
            for row in csv.DictReader(file)
            if (row["exp_name"], row["metric"]) == ("PPO sb3-1-thread", "sps")
        ]
    assert f"nothing else running, {np.median(rounds):.0f} in the [table" in page
    rows = list(results.read_csv(ROOT / "benchmarks/results/atari.csv"))
    key = game, published["exp_name"]
    peer = [results.finals_of(rows, name)[key][1] for name in (names[2], names[0])]
    assert "with {:.1f} in training and {:.1f} in 30 games by draws.".format(*peer) in page
    (failed,) = results.finals_of(rows, "eval_return_mean")[game, "ppo_atari-fast"].values()
    assert f"had failed here: {failed:.1f} by draws after 2.5M steps" in page
    flags = load(ROOT / "benchmarks" / "speed.py").FAST_PONG
    spelt = (
        "--num-envs {num_envs} --update-epochs {update_epochs} --num-minibatches {num_minibatches}"
    )
    spelt = f"{spelt} --clip-coef {{clip_coef}} --learning-rate 5e-4 --no-clip-vloss".format(
        **flags
    )
    assert flags["learning_rate"] == 5e-4 and not flags["clip_vloss"]
    script = (ROOT / "scripts/atari_minutes.sh").read_text()
    assert (
        spelt in page and spelt in script and "tag=fast-pong-4m steps=${STEPS:-4000000}" in script
    )


def test_draws_of_pong():
    """Would break: a row of docs/atari-leads.md's tables of Pong that the runs do not give."""
    page = (ROOT / "docs/atari-leads.md").read_text()
    game, fast = "PongNoFrameskip-v4", "ppo_atari-fast-pong-4m"
    modes = list(results.read_csv(ROOT / "benchmarks/atari_modes.csv"))
    ways = load(ROOT / "benchmarks" / "atari_modes.py").WAYS
    for seed in (1, 2, 3):
        values = [results.finals_of(modes, way)[game, fast][seed] for way in ways]
        assert f"| seed {seed} | {' | '.join(f'{value:.1f}' for value in values)} |\n" in page
    sides = (results.finals_of(modes, ways[k])[game, fast] for k in (0, 1, 3, 5))
    first, second, likeliest, alone = sides
    cost = listed({seed: value - second[seed] for seed, value in first.items()})
    dearer = listed({seed: value - likeliest[seed] for seed, value in alone.items()})
    words = f"They cost draws {cost} points, the likeliest action {dearer}."
    assert words in " ".join(page.split())
    words = f"the likeliest action alone has {listed(alone)} ([leads]"
    assert words in " ".join((ROOT / "docs/atari.md").read_text().split())
    assert all(value > first[seed] for seed, value in alone.items())
    assert max(abs(value - second[seed]) for seed, value in likeliest.items()) < 0.35
    rows = list(results.read_csv(ROOT / "benchmarks/results/pong_fast.csv"))
    rows += results.read_csv(ROOT / "benchmarks/results/pong_bonus.csv")
    lines = {"at 4M steps": fast, "500,000 more, bonus 0.01": f"{fast}-ent-coef=0.01"}
    lines |= {"500,000 more, no bonus": f"{fast}-ent-coef=0.0"}
    for label, name in lines.items():
        draws, greedy = (
            results.finals_of(rows, metric)[game, name]
            for metric in ("eval_return_mean", "eval_greedy_mean")
        )
        cells = [f"{draws[seed]:.1f} ({greedy[seed]:.1f})" for seed in (1, 2, 3)]
        assert f"| {label} | {' | '.join(cells)} |\n" in page


def test_fast_setting_of_atari():
    """Would break: returns or minutes in docs/atari.md that the runs do not give; a command of another setting than
    the one that was measured."""
    page = " ".join((ROOT / "docs/atari.md").read_text().split())
    rows = list(results.read_csv(ROOT / "benchmarks/results/breakout_fast.csv"))
    names = ("eval_return_mean", "eval_greedy_mean", "train_return_last100")
    scores = [
        results.finals_of(rows, name)["BreakoutNoFrameskip-v4", "ppo_atari-fast"] for name in names
    ]
    draws, greedy, training = (
        ", ".join(f"{x:.1f}" for _, x in sorted(side.items())) for side in scores
    )
    assert f"the three have {draws} by draws and {greedy} greedily with 1 %" in page
    assert f"(30 games each; in training {training})" in page
    longer = list(results.read_csv(ROOT / "benchmarks/results/breakout_fast_2m.csv"))
    side = "BreakoutNoFrameskip-v4", "ppo_atari-fast-2m"
    ends = [results.finals_of(longer, name)[side][1] for name in names]
    words = "{:.1f} by draws, {:.1f} greedily and {:.1f} in training".format(*ends)
    curve = results.curves_of(longer, results.CURVE)[side][1]
    half = np.mean([value for step, value in curve if 950_000 <= step < 1_000_000])
    assert f"seed 1 has {words}, after 1M of them {half:.1f} in training" in page
    words = f"it has {np.mean([*scores[0].values()]):.1f} after 1M, and {ends[0]:.1f} after 2M (one"
    assert words in page
    minutes = defaultdict(list)
    runs = time_to_return.read_csv(ROOT / "benchmarks/time_to_return_atari.csv")
    for run in runs:
        minutes[run["exp_name"]].append(run["minutes"])
    sides = ("ppo_atari-fast", *PEERS.values())
    ours, fast, published = (np.median(minutes[side]) for side in sides)
    for line in lines_over_minutes(runs, {"ours, fast setting": sides[0]} | PEERS):
        assert line in page
    at_20 = defaultdict(list)
    for run in runs:
        there = time_to_return.time_to(20, run["curve"], time_to_return.GAMES)
        at_20[run["exp_name"]].append(there[1] / 60)
    mine, set_20, pub_20 = (np.median(at_20[side]) for side in sides)
    words = (
        f"after {pub_20:.1f} minutes with the published settings, {set_20:.1f} with the fast one"
    )
    words = f"{words} ({pub_20 / set_20:.1f} times sooner), and ours after {mine:.1f} "
    assert f"{words}({set_20 / mine:.1f} times sooner again)" in page
    mine = sorted(minutes[sides[0]])
    words = f"after {mine[0]:.0f} to {mine[-1]:.0f} minutes on one core (three seeds). "
    words += (
        f"stable-baselines3 is there after {published:.0f} with the published settings; with the "
    )
    (peer,) = (run for run in runs if run["exp_name"] == sides[1])
    last = peer["curve"][-1][0]
    end = np.mean([value for step, _, value in peer["curve"] if step > last - 99_000])
    assert f"{words}fast one it ends at {end:.0f} after {fast:.0f} (one seed each)." in page
    assert last > 970_000 and not peer["reached"]
    atari = defaultdict(dict)
    for row in results.read_csv(ROOT / "benchmarks/results/atari.csv"):
        if row[:2] == ("dqn_atari", "BreakoutNoFrameskip-v4"):
            atari[row.step][row.metric] = row.value
    points = [(step, point) for step, point in sorted(atari.items()) if results.CURVE in point]
    curve = [(step, point[results.CLOCK], point[results.CURVE]) for step, point in points]
    step, seconds = time_to_return.time_to(30, curve, time_to_return.GAMES)
    assert f"after about {round(step, -3):,} steps and {seconds / 60:.0f} minutes: half" in page
    (first,) = (run for run in runs if run["exp_name"] == sides[0] and run["seed"] == 1)
    curve = first["curve"]
    best = max(range(len(curve)), key=lambda i: curve[i][2])  # the steps with a game of 258
    assert f"with the 20,000 steps of {curve[best][2]:.1f} at the mean of their neighbours" in page
    curve[best] = (*curve[best][:2], (curve[best - 1][2] + curve[best + 1][2]) / 2)
    without = time_to_return.time_to(30, curve, time_to_return.GAMES)[1] / 60
    fewer = (
        time_to_return.time_to(30, curve, 99_000)[1] / 60
    )  # five points of 20,000 steps, not six
    words = f"would be there after {fewer:.0f} to {without:.0f} minutes in place of {ours:.0f}."
    assert words in page and mine[1] < fewer < without < mine[2]
    flags = load(ROOT / "benchmarks" / "speed.py").FAST
    spelt = "--update-epochs {update_epochs} --num-minibatches {num_minibatches} --learning-rate"
    spelt = f"{spelt} 5e-4 --no-clip-vloss".format(**flags)
    assert flags["learning_rate"] == 5e-4 and not flags["clip_vloss"]
    assert spelt in page and spelt in (ROOT / "scripts/atari_minutes.sh").read_text()


def test_speed_of_atari():
    """Would break: a row of docs/atari-speed.md's table of speeds that its rounds do not give."""
    speed = load(ROOT / "benchmarks" / "speed.py")
    with (ROOT / "benchmarks/results/speed_atari.csv").open() as file:
        rows = [row | {"value": float(row["value"])} for row in csv.DictReader(file)]
    page = (ROOT / "docs/atari-speed.md").read_text()
    ratios = []
    for line in speed.case_rows(rows, "Breakout", ("PPO", "A2C", "DQN")):
        _, case, ours, peer, ratio, share, memory = line.strip(" |").split(" | ")
        case = f"{case.split(',')[0]}, {'float32' if 'float32' in case else 'bfloat16'}"
        cells = [case, ours, peer.split(")")[0] + ")", ratio, share.split()[0], memory]
        assert f"| {' | '.join(cells)} |\n" in page
        ratios.append(ratio.split()[0])
    text = " ".join((ROOT / "docs/results.md").read_text().split())
    said = "PPO {} times, A2C {}, DQN {}; in float32 PPO {}, A2C {}, DQN {} ("
    assert said.format(*ratios[::2], *ratios[1::2]) in text
    words = "{} times as many steps a second as stable-baselines3 with PPO, {} times with A2C and {} with DQN"
    head = " ".join(page.split())
    assert words.format(*ratios[::2]) in head
    assert "With both in float32 it is {}, {} and {}.".format(*ratios[1::2]) in head
    threads = load(ROOT / "benchmarks" / "rollout_threads.py")
    with (ROOT / "benchmarks/rollout_threads.csv").open() as file:
        rows = [row | {"sps": float(row["sps"])} for row in csv.DictReader(file)]
    lines = threads.table(rows)[2:]
    assert len(lines) == len(threads.THREADS) and all(f"{line}\n" in page for line in lines)
    least, most = (
        [line.split("(")[1].split("-")[k].rstrip(") |")[-2:] for line in lines] for k in (0, 1)
    )
    words = f"{least[0]} to {most[0]} % more steps with PyTorch's own choice of two threads, {least[1].lstrip('0')} to"
    assert f"{words} {most[1]} % with `--torch-threads 1`" in head


def test_when_the_arm_is_learned():
    """Would break: a page that hides that RND is the slower one."""
    curves = defaultdict(list)
    for name in ("arm", "arm_second"):
        for row in results.read_csv(ROOT / f"benchmarks/results/{name}.csv"):
            if row.metric == "charts/episodic_return":
                curves[row.exp_name, row.seed].append((row.step, row.value))
    learned = {}  # the step from which the return stays at 0.5 or more
    for key, points in curves.items():
        stays = itertools.takewhile(lambda point: point[1] >= 0.5, sorted(points, reverse=True))
        learned[key] = min((step for step, _ in stays), default=None)
    rnd, ppo = (
        [learned[side, seed] for seed in range(1, 21)] for side in ("ppo_rnd", "ppo_continuous")
    )
    both = [(a, b) for a, b in zip(rnd, ppo) if a and b]
    medians = [round(np.median(side), -3) for side in zip(*both)]
    page = " ".join((ROOT / "docs/curiosity.md").read_text().split())
    assert f"the later one in {sum(a > b for a, b in both)} of {len(both)} seeds" in page
    assert "median {:,.0f} steps against PPO's {:,.0f}".format(*medians) in page
    others = ("ppo_continuous", "ppo_icm"), ("ppo_rnd-no-bonus",)
    latest = [max(at for (name, _), at in learned.items() if at and name in x) for x in others]
    latest = [math.ceil(at / 1000) * 1000 for at in latest]
    words = "PPO and ICM learn by {:,} steps or not; RND without its bonus by {:,}."
    assert words.format(*latest) in page


def test_failures_with_silu():
    """Would break: a count or a p of docs/classic.md that the runs do not give."""
    rows = results.read_csv(ROOT / "benchmarks/results/classic.csv")
    finals = results.finals_of(list(rows), "eval_return_mean")
    names = ("ppo-activation=SiLU", "ppo", "ppo-no-norm-obs", "ppo-activation=SiLU-no-norm-obs")
    failed = [[x < -400 for x in finals["Acrobot-v1", name].values()] for name in names]
    assert [sum(runs) for runs in failed] == [2, 0, 0, 0] and {len(runs) for runs in failed} == {5}
    p = math.comb(5, 2) / math.comb(20, 2)  # that both failures are of these five
    page = " ".join((ROOT / "docs/classic.md").read_text().split())
    assert f"two of five runs fail, of the 15 others none (Fisher's p = {p:.3f})" in page


def test_low_starts_of_cars_at_rest():
    """Would break: another run of the continuous car that is low early on and reaches the goal in the end."""
    lows, ends = defaultdict(list), {}
    for name in ("curiosity", "curiosity_second"):
        for row in results.read_csv(ROOT / f"benchmarks/results/{name}.csv"):
            key = row.env_id, row.exp_name, row.seed
            if row.metric == "eval_return_mean":
                ends[key] = row.value
            elif row.metric == results.CURVE and row.step < 66_000:
                lows[key].append(row.value)
    car = {key: end for key, end in ends.items() if key[0] == "MountainCarContinuous-v0"}
    at_rest = {key for key, end in car.items() if end < 1}
    assert len(car) == 70 and len(at_rest) == 7
    assert at_rest == {key for key in car if min(lows[key]) < 47}
    page = (ROOT / "docs/curiosity.md").read_text()
    assert "These seven runs alone have a point below 47 before 66,000 steps." in page


def test_falls_and_late_finders():
    """Would break: a run that falls, or finds the arm's cylinder late, and is not counted; an episode at the top."""
    falls, last = defaultdict(dict), {}
    for row in results.read_csv(ROOT / "benchmarks/results/trust_region.csv"):
        seeds = falls[row.exp_name] if row.env_id == "Pendulum-v1" else {}
        if row.metric == results.CURVE and row.exp_name == "trpo_continuous":
            last[row.env_id, row.seed] = row.value
        if row.metric == results.CURVE and row.step > 250_000 and row.value < -400:
            seeds[row.seed] = min(row.value, seeds.get(row.seed, 0))
    page = " ".join((ROOT / "docs/trust-region.md").read_text().split())
    assert not falls["ppo_penalty"] and not falls["ppo_continuous"]
    assert len(falls["ppo_penalty-paper"]) == 8 and "eight of all ten.**" in page
    assert {6, 7, 10} < set(falls["ppo_penalty-paper"]) == set(range(1, 11)) - {8, 9}
    trpo = falls["trpo_continuous"]
    assert sorted(trpo) == [3, 4, 8, 10] and "four of its ten runs fall." in page
    words = f"to between {max(trpo.values()):.0f} and {min(trpo.values()):.0f}"
    words = f"{words}; all but seed 4 come back."
    assert [seed for seed in trpo if last["Pendulum-v1", seed] < -400] == [4]
    assert f"seeds 3, 4, 8 and 10 fall by the same rule, {words}" in page
    first = {}
    for name in ("arm", "arm_second"):
        for row in results.read_csv(ROOT / f"benchmarks/results/{name}.csv"):
            if row.metric == results.CURVE:
                key = row.exp_name, row.seed
                steps = first.setdefault(key, [])
                steps += [row.step] if row.value > 0 else []
    latest = {key: min(steps) for key, steps in first.items() if steps}
    late = sorted(step for (name, _), step in latest.items() if name == "ppo_rnd" and step > 89_000)
    others = [step for (name, _), step in latest.items() if name != "ppo_rnd"]
    page = " ".join((ROOT / "docs/curiosity.md").read_text().split())
    words = "eight of its 20 runs see their first reward after 89,000 steps or more, up to"
    assert len(late) == 8 and f"{words} {round(late[-1], -3):,}" in page
    assert sum(name != "ppo_rnd" for name, _ in first) == 50
    assert max(others) == latest["ppo_rnd-no-bonus", 5] < late[0]
    assert f"the latest after {round(max(others), -3):,}: a run of RND without its bonus" in page
    found = defaultdict(list)
    for row in results.read_csv(ROOT / "benchmarks/results/augmentation.csv"):
        if row.env_id == "PendulumSwingup-v1" and row.metric[12:] in ("min", "median", "mean"):
            found[row.metric[12:], row.exp_name == "ppo_drac"].append(row.value)
    words = (
        f"for {min(found['min', False]):.0f} steps or more, the median one for "
        f"{min(found['median', False]):.0f} to {max(found['median', False]):.0f} of 1000"
    )
    page = " ".join((ROOT / "docs/augmentation.md").read_text().split())
    assert words in page and found["min", True] == [0] * 3
    assert max(found["mean", True]) < min(found["mean", False])  # lowest with each seed


def test_main_tables_are_narrow():
    """Would break: a table of more than seven columns in curves/."""
    for file in (ROOT / "benchmarks" / "curves").glob("*.md"):
        for line in file.read_text().splitlines():
            assert not line.startswith("|") or line.count("|") <= 8, f"{file.name}: {line}"


def test_links_to_figures():
    """Would break: a page that shows, or links to, a figure or a table that is not there, and a figure left behind."""
    linked = set()
    for page in (*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *ROOT.glob("docs/*/*.md")):
        for target in re.findall(r"\]\(([^)#]+\.(?:png|csv|md|mp4))\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).is_file(), f"{page.name}: {target}"
                linked.add((page.parent / target).resolve())
    assert len(linked) > 30
    sets = {file.stem for file in RESULTS}
    for file in (ROOT / "benchmarks" / "curves").iterdir():
        assert file.stem in sets or file.stem.rpartition("_")[0] in sets, file.name
        assert file.stat().st_size > 100, file.name
