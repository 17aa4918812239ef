"""scripts/plainrl_tools/compare.py and results.py: their statistics against figures computed by hand, the curves and
clocks of runs, and incomplete sets."""

import math

import numpy as np
import plot
import pytest
from plainrl_tools import (
    compare,
    results,
)
from plainrl_tools.common import writing
from plainrl_tools.results import CLOCK, CURVE, EVALUATION, Row
from torch.utils.tensorboard import SummaryWriter

SCORE = "eval_return_mean"


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
        (3, "underpowered (least p 0.25)"),
        (5, "underpowered (least p 0.0625)"),
        (6, "significant"),  # 2 / 64
    ):
        assert verdicts(rows_of({"a": [1.0] * seeds, "b": [2.0] * seeds})) == [verdict]
    apart = rows_of({"a": {1: 0.0, 2: 1, 3: 2}, "b": {4: 10.0, 5: 11, 6: 12}})
    assert verdicts(apart) == ["underpowered (least p 0.1)"]
    assert verdicts(rows_of({"a": [1.0, -1, 1, -1, 1, -1], "b": [0.0] * 6})) == ["not significant"]


def test_correction_counts_what_can_be_tested():
    """6 pairs: p is 1/32. Of two such comparisons the lesser p is doubled, so neither can be below 0.05. Five pairs in
    another environment are not tested and cost nothing. Would break: each of these counted otherwise."""
    six = rows_of({"a": [1.0] * 6, "b": [2.0] * 6})
    five = rows_of({"a": [1.0] * 5, "b": [2.0] * 5}, env_id="F-v1")
    words = "underpowered (least p 0.0625)"
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
    assert [row["verdict"] for row in table] == ["underpowered (least p 0.05)"] * 3


def test_fewest_seeds_leave_the_correction_first():
    """Three comparisons of 6 pairs and three of 10: the first cannot be below 0.05 after a correction for six, so the
    others are corrected for three. Would break: a correction for what cannot be tested."""
    rows = []
    for number in range(6):
        seeds = 6 if number < 3 else 10
        rows += rows_of({"a": [1.0] * seeds, "b": [2.0] * seeds}, env_id=f"E{number}-v1")
    table = compare.comparison_table(rows, SCORE, options())
    assert [row["verdict"] for row in table[:3]] == ["underpowered (least p 0.0938)"] * 3
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
    five runs beside five that are called underpowered; two experiments of one peer that are not paired."""
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
        "c on E-v1 lacks seeds 2, which another experiment has",
        f"b on E-v1 has no {SCORE} for seeds 2",
        f"c on E-v1 has no {SCORE} for seeds 1",
        f"a on E-v1 has no {CURVE} for seeds 2: {results.NO_EPISODE}",
    ]
    assert f"--metric {EVALUATION}" in results.NO_EPISODE
    # Of run folders, each experiment may have seeds of its own
    lines = [line for _, line in results.problems(rows, SCORE, equal_seeds=False)]
    assert lines == [
        f"b on E-v1 has no {SCORE} for seeds 2",
        f"c on E-v1 has no {SCORE} for seeds 1",
        f"a on E-v1 has no {CURVE} for seeds 2: {results.NO_EPISODE}",
    ]
    rows += rows_of({"a": [1, 2], "b": [1, 2], "c": [1, 2]}, metric=EVALUATION)
    lines = [line for _, line in results.problems(rows, SCORE, EVALUATION)]
    assert lines == [
        f"b on E-v1 has no {SCORE} for seeds 2",
        f"c on E-v1 has no {SCORE} for seeds 1 2",
    ]
    assert verdicts(rows_of({"a": [1.0] * 6, "b": [math.nan] * 6})) == ["not tested"]
