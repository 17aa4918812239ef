"""Results of runs as rows, read from run folders or from long CSV files, and what is missing from them.

Times are training time: from the opening of a run's event file, so imports are not in it and compilation is; without
evaluations, without pauses between sessions, without gaps of more than ten minutes (a machine that was suspended). What
a resumed run did again counts once. CSV files exported by older versions have the evaluations in their times.
"""

import csv
import json
import math
import os
import struct
import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from common import check, declared, has_args, has_text, is_complete, read_json, text_of

CURVE = "charts/episodic_return"
EVALUATION = "eval/episodic_return"
CLOCK = "charts/wall_time_s"
ENTROPY = "losses/entropy"
MISSING = "missing"
UNFINISHED, OUTDATED, OWED = 1.0, 2.0, 3.0  # its values
WHY = {UNFINISHED: "is not finished", OUTDATED: "is of another text than sweep.json says"}
WHY[OWED] = "is not there as a sweep declared it (sweep.json)"
SUMMARY = ("eval_return_mean", "eval_return_std", "eval_return_median", "eval_return_min")
SUMMARY += ("eval_greedy_mean", "best_return_mean", "train_return_last100", "sps", "wall_time_s")
SCORES = ("eval_return_mean", "sps")  # the score of a set is the first of these that it has
PAUSE = 600  # seconds without a log
# flags in which the runs of one experiment may differ
APART = ("seed", "runs_dir", "resume", "track", "wandb_project_name", "wandb_entity")
APART += ("capture_video", "checkpoint_frequency")


class Row(NamedTuple):
    exp_name: str
    env_id: str
    seed: int | str  # "?" where a run that has not finished does not say
    step: int
    metric: str
    value: float
    commit: str


def records(file: Path):
    """The events of a TensorBoard file: length, checksum, bytes, checksum of each. A torn one ends it."""
    from tensorboard.compat.proto.event_pb2 import Event

    data = file.read_bytes()
    start = 0
    while start + 16 <= len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        if not 0 < length <= len(data) - start - 16:
            return
        yield Event.FromString(data[start + 12 : start + 12 + length])
        start += length + 16


def first_step(events: list) -> int:
    """The step at which a session of a run says that it starts."""
    starts = (event for event in events if event.session_log.status == event.session_log.START)
    return next((event.step for event in starts), 0)


def read_scalars(run: Path) -> dict[str, list[tuple[int, float, float]]]:
    """tag -> [(step, seconds of training, value), ...]. An evaluation is logged when it ends, right after what was
    logged before it began: that gap is no training. A resumed run has several files."""
    scalars = defaultdict(list)
    seconds = 0.0
    files = sorted(run.glob("events.out.tfevents.*"), key=lambda file: file.name.split(".")[3:])
    # in the order of the steps they start at: the clocks of two machines may disagree
    for events in sorted((list(records(file)) for file in files), key=first_step):
        last = math.inf
        for event in events:
            if event.session_log.status == event.session_log.START:  # resumed from before this step
                for tag, points in scalars.items():
                    scalars[tag] = [point for point in points if point[0] < event.step]
                kept = [point[1] for points in scalars.values() for point in points]
                seconds = max(kept, default=0.0)
            values = [value for value in event.summary.value if value.HasField("simple_value")]
            evaluated = any(value.tag.startswith("eval/") for value in values)
            gap = event.wall_time - last
            if 0 < gap < PAUSE and not evaluated:
                seconds += gap
            last = event.wall_time
            for value in values:
                scalars[value.tag].append((event.step, seconds, value.simple_value))
    return scalars


def read_curve(run: Path, total_timesteps: int, bins: int, metric: str = CURVE) -> list[tuple]:
    """(step, metric, value): the returns of training and of evaluations, and `metric`, averaged over bins of steps; the
    training time at the bins of training returns; the last entropy of the policy, where it is logged."""
    scalars = read_scalars(run)
    rows = []
    for tag in dict.fromkeys((CURVE, EVALUATION, metric)):
        groups = defaultdict(list)
        for point in scalars.get(tag, ()):
            place = point[0] * bins // total_timesteps
            groups[min(place, bins - 1)].append(point)
        for _, points in sorted(groups.items()):
            step, seconds, value = map(fmean, zip(*points))
            rows.append((round(step), tag, value))
            if tag == CURVE:
                rows.append((round(step), CLOCK, seconds))
    return rows + [(point[0], ENTROPY, point[2]) for point in scalars.get(ENTROPY, ())[-1:]]


def read_run(run: Path, bins: int, metric: str) -> tuple[dict, list[Row]]:
    """The arguments and the rows of one complete run folder."""
    try:
        summary = json.loads((run / "summary.json").read_text())
        returns = summary["eval_returns"]
        if returns:  # none of a peer that does not evaluate
            summary |= {"eval_return_median": median(returns), "eval_return_min": min(returns)}
        key = (summary["args"]["exp_name"], summary["env_id"], summary["seed"])
        points = read_curve(run, summary["total_timesteps"], bins, metric)
        finals = [name for name in SUMMARY if summary.get(name) is not None]
        points += [(summary["global_step"], name, summary[name]) for name in finals]
        rows = [
            Row(*key, step, name, float(f"{value:.8g}"), summary["commit"])
            for step, name, value in points
        ]
        return summary["args"], rows
    except (ValueError, KeyError, TypeError) as error:
        words = f"({type(error).__name__}: {error})"
        check(False, f"{run / 'summary.json'} is not a run's summary {words}")


def find(folder: Path, *names: str) -> list[Path]:
    """Files of these names in the folder, but not below a name that begins with a dot."""
    found = []
    for name in names:
        for file in folder.rglob(name):
            parts = file.relative_to(folder).parts
            if not any(part.startswith(".") for part in parts):
                found.append(file)
    return found


def started(run: Path) -> float:
    """When a run began, from its folder's name; of another name, the time of its summary."""
    end = run.name.rpartition("__")[2]
    return float(end) if end.isdigit() else (run / "summary.json").stat().st_mtime


def owed(folders: list[Path], finished: dict[tuple, list]) -> list[tuple[tuple, dict]]:
    """(key, record) of the runs that sweeps declared in these folders and that no finished one is, by arguments and
    text; those are (exp_name, env_id, seed) -> [(arguments, run folder), ...]. Of run folders given one by one only
    what has their exp_name and env_id is owed."""
    inside = {file.parent for folder in folders for file in find(folder, "sweep.json")}
    beside = {run.parent for runs in finished.values() for _, run in runs}
    known = {key[:2] for key in finished}
    lacking = []
    for place in sorted(inside | beside):
        for key, record in declared(place).items():
            runs = finished.get(key, ())
            same = (has_args(record, args, APART) and has_text(record, run) for args, run in runs)
            if not any(same) and (place in inside or key[:2] in known):
                lacking.append((key, record))
    return lacking


def gather(runs: list[Path], bins: int, metric: str) -> tuple[dict, dict, dict]:
    """(exp_name, env_id, seed) -> [(arguments, folder), ...] of the finished runs, -> [(arguments, reason), ...] of
    those that do not count, and folder -> rows."""
    finished, stopped, rows = defaultdict(list), defaultdict(list), {}
    records = {place: declared(place) for place in {run.parent for run in runs}}
    for run in runs:
        if not is_complete(run):
            config = read_json(run / "config.json")
            args = config.get("args", {})
            name = args.get("exp_name", run.name)
            key = name, config.get("env_id", "?"), config.get("seed", "?")
            stopped[key].append((args, UNFINISHED))
            continue
        args, rows[run] = read_run(run, bins, metric)
        key = rows[run][0][:3]
        record = records[run.parent].get(key, {})
        if has_args(record, args, APART) and not has_text(record, run):
            stopped[key].append((args, OUTDATED))
        else:
            finished[key].append((args, run))
    return finished, stopped, rows


def entries(table: dict[tuple, list], *experiment: str) -> list[tuple]:
    """(seed, arguments, folder or reason) of one exp_name and env_id."""
    return [(key[2], *run) for key in table if key[:2] == experiment for run in table[key]]


def tell_texts(title: str, runs: list[Path]) -> None:
    """Name an experiment whose runs have copies of more than one text of their script."""
    seeds = defaultdict(list)
    for run in runs:
        summary = read_json(run / "summary.json")
        seeds[text_of(run / f"{summary.get('algo')}.py")].append(str(summary["seed"]))
    seeds.pop("", None)  # no copy
    if len(seeds) > 1:
        groups = "; ".join(map(" ".join, seeds.values()))
        words = f"{title} is of {len(seeds)} texts of its script: seeds {groups}"
        print(f"{Path(sys.argv[0]).name}: {words}", file=sys.stderr)


def read_folders(
    folders: list[Path], bins: int = 50, metric: str = CURVE, duplicates: str = "ask"
) -> tuple[list[Row], list[str]]:
    """Rows of every run in `folders`, and what was left out until the reader chooses. A run that is not finished gives
    one row of the metric `missing`: it has no summary, or new arguments since (it was resumed to go on), or a sweep
    declared it, perhaps with another text of its script. Runs of one exp_name that differ in flags become experiments
    named by these flags."""
    marks = ("summary.json", "config.json", "checkpoint.pt")
    runs = sorted({file.parent for folder in folders for file in find(folder, *marks)}, key=str)
    check(runs, f"no run folder in {', '.join(map(str, folders))}")
    finished, stopped, rows = gather(runs, bins, metric)
    lacking = defaultdict(list)
    for key, record in owed(folders, finished):
        if "args" in record or key not in stopped:
            lacking[key].append((record.get("args") or {}, OWED))
    missing, kept, left_out = {}, [], []
    for exp_name, env_id in dict.fromkeys(key[:2] for key in (*finished, *stopped, *lacking)):
        tables = finished, stopped, lacking
        group, halves, others = (entries(table, exp_name, env_id) for table in tables)
        everyone = [args for _, args, _ in group + halves + others]
        same = defaultdict(list)
        for seed, args, run in sorted(group, key=lambda one: started(one[2])):
            same[exp_name + flags_apart(args, everyone), seed].append(run)
        for seed, args, why in others + halves:
            name = exp_name + flags_apart(args, everyone)
            if (name, seed) not in same:
                missing[name, env_id, seed] = why
        twice = [key for key in same if len(same[key]) > 1 and duplicates == "ask"]
        for name, seed in twice:
            words = f"{len(same[name, seed])} runs of seed {seed}; choose by --duplicates"
            left_out.append(f"{name} on {env_id} is left out: {words} newest or oldest")
        chosen = defaultdict(list)
        for (name, _), choice in same.items():
            if name not in dict(twice):
                chosen[name].append(choice[0 if duplicates == "oldest" else -1])
        for name, picked in chosen.items():
            tell_texts(f"{name} on {env_id}", picked)
            kept += [row._replace(exp_name=name) for run in picked for row in rows[run]]
    reasons = sorted(missing.items(), key=str)
    return kept + [Row(*key, 0, MISSING, why, "unknown") for key, why in reasons], left_out


def flags_apart(args: dict, others: list[dict]) -> str:
    """-FLAG=VALUE of every flag in which the runs differ; empty where they differ in none."""
    name = ""
    for flag in args:
        values = {str(other[flag]) for other in others if flag in other}
        if flag not in APART and len(values) > 1:
            name += f"-{flag.replace('_', '-')}={args[flag]}"
    return name


def read_csv(file: Path) -> list[Row]:
    try:
        with file.open(newline="") as stream:
            header, *lines = csv.reader(stream, strict=True)
    except (csv.Error, OSError, ValueError):
        header, lines = [], []
    is_ours = lines and tuple(header) == Row._fields
    check(is_ours, f"{file} is no CSV with the columns {','.join(Row._fields)}")
    rows = []
    for number, line in enumerate(lines, 2):
        try:
            row = Row(*line)
            seed = row.seed if row.metric == MISSING else int(row.seed)
            rows.append(row._replace(seed=seed, step=int(row.step), value=float(row.value)))
        except (TypeError, ValueError):
            check(False, f"{file}, line {number}: seed, step and value must be numbers")
    return rows


def read_scales(file: Path) -> dict[str, tuple[float, float]]:
    """env_id -> the scores that count as 0 and as 1."""
    try:
        header, *lines = [line.split(",") for line in file.read_text().split()]
        scales = {line[0]: (float(line[1]), float(line[2])) for line in lines}
    except (OSError, ValueError, IndexError):
        header, scales = [], {}
    is_ours = header == ["env_id", "random", "reference"]
    check(is_ours, f"--normalise {file} is no CSV with the columns env_id,random,reference")
    for env_id, (low, high) in scales.items():
        apart = math.isfinite(high - low) and low != high
        check(apart, f"--normalise {file}: random and reference of {env_id} must be two numbers")
    return scales


def write_csv(file: Path, columns, rows) -> None:
    """Aside, then moved: on a full disk the old file stays."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f"{file.name}.tmp")
    if file.exists() and not file.is_file():  # such as /dev/stdout
        aside = file
    try:
        with aside.open("w", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows([columns, *rows])
    except OSError as error:
        if aside != file:
            aside.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(file)) from None
    if aside != file:
        os.replace(aside, file)


def export(file: Path, rows: list[Row]) -> None:
    def order(row: Row) -> tuple:
        return row.exp_name, row.env_id, str(row.seed).zfill(9), row.metric, row.step

    rounded = [row._replace(value=f"{row.value:.8g}") for row in sorted(rows, key=order)]
    write_csv(file, Row._fields, rounded)


def curves_of(rows: list[Row], metric: str) -> dict[tuple[str, str], dict[int, list[tuple]]]:
    """(env_id, exp_name) -> seed -> [(step, value), ...] of one metric, all sorted."""
    ours = [row for row in rows if row.metric == metric]
    curves = {}
    for row in sorted(ours, key=lambda row: (row.env_id, row.exp_name, row.seed, row.step)):
        seeds = curves.setdefault((row.env_id, row.exp_name), {})
        seeds.setdefault(row.seed, []).append((row.step, row.value))
    return curves


def finals_of(rows: list[Row], metric: str) -> dict[tuple[str, str], dict[int, float]]:
    """(env_id, exp_name) -> seed -> the last value of one metric."""
    finals = {}
    for key, seeds in curves_of(rows, metric).items():
        finals[key] = {seed: points[-1][1] for seed, points in seeds.items()}
    return finals


def problems(rows: list[Row], score: str) -> list[tuple[str, str]]:
    """(env_id, what is missing from its part of the set): runs that have not finished, and seeds of other experiments
    in this environment without a finite score, or a learning curve, of this one."""
    seeds, found = defaultdict(set), []
    unfinished = defaultdict(set)
    for row in rows:
        if row.metric == MISSING:
            unfinished[row.env_id, row.exp_name].add(row.seed)
            why = WHY.get(row.value, WHY[UNFINISHED])
            found.append((row.env_id, f"{row.exp_name} on {row.env_id} with seed {row.seed} {why}"))
        else:
            seeds[row.env_id].add(row.seed)
    for metric in (score, CURVE):
        finals = finals_of(rows, metric)
        for env_id, name in sorted({(row.env_id, row.exp_name) for row in rows}):
            here = finals.get((env_id, name), {})
            there = {seed for seed, value in here.items() if math.isfinite(value)}
            lacking = sorted(seeds[env_id] - there - unfinished[env_id, name])
            drawn = metric == score or any(env == env_id for env, _ in finals)
            if lacking and drawn:
                listing = " ".join(map(str, lacking))
                found.append((env_id, f"{name} on {env_id} has no {metric} of seeds {listing}"))
    return found


def select(name: str, rows: list[Row], options, left_out=()) -> tuple[list[Row], str]:
    """The rows of the wanted exp_names and env_ids, and the metric that is their score. What was left out is named
    where something wanted is not there."""
    and_out = "".join(f"\n{words}" for words in left_out)
    for flag, column in (("exp_names", "exp_name"), ("env_ids", "env_id")):
        wanted = getattr(options, flag)
        there = {getattr(row, column) for row in rows}
        unknown = [word for word in wanted if word not in there]
        words = f"{name} has no {' '.join(unknown)} (--{flag.replace('_', '-')})"
        check(not unknown, words + and_out)
        if wanted:
            rows = [row for row in rows if getattr(row, column) in wanted]
    metrics = {row.metric for row in rows}
    score = next((score for score in SCORES if score in metrics), SCORES[0])
    keys = Counter(row[:3] for row in rows if row.metric == score)
    twice = [" ".join(map(str, key)) for key, count in keys.items() if count > 1]
    check(not twice, f"{name} has more than one {score} of {'; '.join(twice)}")
    return rows, score


def refuse(name: str, rows: list[Row], score: str, left_out: list[str], options):
    """The rows that may be drawn, what is missing from them, and whether something was refused, which is named."""
    found = problems(rows, score)
    lacks = [line for _, line in found] if options.allow_incomplete else []
    refused = left_out + [line for _, line in found if not options.allow_incomplete]
    if refused:
        words = "--allow-incomplete averages sets that lack runs and marks them"
        print(f"plot.py: {name} is incomplete; {words}", *refused, sep="\n  ", file=sys.stderr)
    if not lacks:
        barred = {env_id for env_id, _ in found}
        rows = [row for row in rows if not barred & {row.env_id, "?"}]
    finals = finals_of(rows, score)
    check(finals or refused, f"{name} has no finished run of these exp_names and env_ids")
    few = min(map(len, finals.values()), default=4)
    is_enough = options.statistic == "mean" or few > 3
    check(is_enough, f"--statistic iqm cuts nothing off {few} seeds; it needs 4")
    return (rows if finals else []), lacks, bool(refused)
