"""Read the results of runs from run folders or from long CSV files, as rows, and find out which results are missing.

Times are training times. The clock starts when a run opens its event file: imports are not included, compilation is.
Evaluations, pauses between sessions and gaps of more than ten minutes (a suspended machine) are left out. Steps that a
resumed run repeated count once. CSV files that older versions exported include the evaluations in their times.
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

from plainrl_tools.common import (
    check,
    declared,
    has_args,
    has_text,
    is_complete,
    read_json,
    text_of,
)

CURVE = "charts/episodic_return"
EVALUATION = "eval/episodic_return"
CLOCK = "charts/wall_time_s"
ENTROPY = "losses/entropy"
MISSING = "missing"
UNFINISHED, OUTDATED, ABSENT = 1.0, 2.0, 3.0  # values of this metric
WHY = {UNFINISHED: "is not finished"}
WHY[OUTDATED] = "used a different version of its script than sweep.json records"
WHY[ABSENT] = "is declared in sweep.json, but there is no such run"
NO_EPISODE = "no episode ended in training; train for more steps, or draw the evaluations by "
NO_EPISODE += f"--metric {EVALUATION}"
SUMMARY = ("eval_return_mean", "eval_return_std", "eval_return_median", "eval_return_min")
SUMMARY += ("eval_greedy_mean", "best_return_mean", "train_return_last100", "sps", "wall_time_s")
SCORES = ("eval_return_mean", "sps")  # the score of a set is the first of these that it has
PAUSE = 600  # seconds without a log entry that count as a pause
# flags in which the runs of one experiment may differ
MAY_DIFFER = ("seed", "runs_dir", "resume", "track", "wandb_project_name", "wandb_entity")
MAY_DIFFER += ("capture_video", "checkpoint_frequency", "keep_checkpoints")


class Row(NamedTuple):
    exp_name: str
    env_id: str
    seed: int | str  # "?" if a run that has not finished has not recorded its seed
    step: int
    metric: str
    value: float
    commit: str


def records(file: Path):
    """Yield the events of a TensorBoard file up to the first incomplete one.

    Each event is stored as its length, a checksum, its bytes and another checksum.
    """
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
    """The step that a session of a run records as its start."""
    starts = (event for event in events if event.session_log.status == event.session_log.START)
    return next((event.step for event in starts), 0)


def read_scalars(run: Path) -> dict[str, list[tuple[int, float, float]]]:
    """Map tags to [(step, seconds of training, value), ...]. A resumed run has several event files.

    An evaluation is logged when it ends, so the gap before its log entry is not training time.
    """
    scalars = defaultdict(list)
    seconds = 0.0
    files = sorted(run.glob("events.out.tfevents.*"), key=lambda file: file.name.split(".")[3:])
    # Sort by the step at which each file starts, since the clocks of two machines may disagree.
    for events in sorted((list(records(file)) for file in files), key=first_step):
        last = math.inf
        for event in events:
            if event.session_log.status == event.session_log.START:
                # The run was resumed here. Drop the later steps, which it repeats.
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
    """Return rows (step, metric, value) of a run.

    They are the returns of training and evaluations and `metric`, averaged over bins of steps; the training time of
    each bin of training returns; and the last logged entropy of the policy, if there is one.
    """
    scalars = read_scalars(run)
    rows = []
    for tag in dict.fromkeys((CURVE, EVALUATION, metric)):
        groups = defaultdict(list)
        for point in scalars.get(tag, ()):
            index = point[0] * bins // total_timesteps
            groups[min(index, bins - 1)].append(point)
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
        if returns:  # some other programs do not evaluate
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
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        reason = f"({type(error).__name__}: {error})"
        check(False, f"{run / 'summary.json'} is not the summary of a run {reason}")


def find(folder: Path, *names: str) -> list[Path]:
    """Files of these names in the folder and below, also behind links, but not in hidden folders."""
    found = []
    seen = set()  # a link may lead to a folder above it
    for path, subfolders, files in os.walk(folder, followlinks=True):
        if os.path.realpath(path) in seen:
            subfolders.clear()
            continue
        seen.add(os.path.realpath(path))
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        found += [Path(path, name) for name in names if name in files]
    return found


def started(run: Path) -> float:
    """When a run began, from the name of its folder, or else from the time of its summary."""
    end = run.name.rpartition("__")[2]
    return float(end) if end.isdigit() else (run / "summary.json").stat().st_mtime


def absent_runs(folders: list[Path], finished: dict[tuple, list]) -> list[tuple[tuple, dict]]:
    """Return (key, record) of the runs that sweeps declared in these folders and that have not finished.

    `finished` maps (exp_name, env_id, seed) to [(arguments, run folder), ...]. A run has finished if one of them has
    its arguments and its version of the script. If `folders` are single run folders, only declared runs with the same
    exp_name and env_id as one of them count.
    """
    inside = {file.parent for folder in folders for file in find(folder, "sweep.json")}
    parents = {run.parent for runs in finished.values() for _, run in runs}
    known = {key[:2] for key in finished}
    absent = []
    for folder in sorted(inside | parents):
        for key, record in declared(folder).items():
            runs = finished.get(key, ())
            same = (
                has_args(record, args, MAY_DIFFER) and has_text(record, run) for args, run in runs
            )
            if not any(same) and (folder in inside or key[:2] in known):
                absent.append((key, record))
    return absent


def gather(runs: list[Path], bins: int, metric: str) -> tuple[dict, dict, dict]:
    """Return three dictionaries about the runs in these folders.

    The first maps (exp_name, env_id, seed) to [(arguments, folder), ...] of the finished runs, the second maps it to
    [(arguments, reason), ...] of the runs that do not count, and the third maps folders to rows.
    """
    finished, stopped, rows = defaultdict(list), defaultdict(list), {}
    records = {folder: declared(folder) for folder in {run.parent for run in runs}}
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
        if has_args(record, args, MAY_DIFFER) and not has_text(record, run):
            stopped[key].append((args, OUTDATED))
        else:
            finished[key].append((args, run))
    return finished, stopped, rows


def entries(table: dict[tuple, list], *experiment: str) -> list[tuple]:
    """Return [(seed, arguments, folder or reason), ...] for one exp_name and env_id."""
    return [(key[2], *run) for key in table if key[:2] == experiment for run in table[key]]


def warn_of_versions(title: str, runs: list[Path]) -> None:
    """Warn of an experiment whose runs were made with different versions of their script."""
    seeds = defaultdict(list)
    for run in runs:
        summary = read_json(run / "summary.json")
        seeds[text_of(run / f"{summary.get('algo')}.py")].append(str(summary["seed"]))
    seeds.pop("", None)  # no copy
    if len(seeds) > 1:
        groups = "; ".join(map(" ".join, seeds.values()))
        warning = f"{title} mixes {len(seeds)} versions of its script: seeds {groups}"
        print(f"{Path(sys.argv[0]).name}: {warning}", file=sys.stderr)


def read_folders(
    folders: list[Path], bins: int = 50, metric: str = CURVE, duplicates: str = "ask"
) -> tuple[list[Row], list[str]]:
    """Return the rows of every run in `folders`, and messages about runs that were left out until the user chooses.

    A run that has not finished gives one row of the metric `missing`. Such a run has no summary, or it was resumed with
    new arguments since, or a sweep declared it, perhaps with a different version of its script. Runs of one exp_name
    that differ in flags become separate experiments, named by these flags.
    """
    marks = ("summary.json", "config.json", "checkpoint.pt")
    runs = sorted({file.parent for folder in folders for file in find(folder, *marks)}, key=str)
    check(runs, f"there is no run folder in {', '.join(map(str, folders))}")
    finished, stopped, rows = gather(runs, bins, metric)
    absent = defaultdict(list)
    for key, record in absent_runs(folders, finished):
        if "args" in record or key not in stopped:
            absent[key].append((record.get("args") or {}, ABSENT))
    missing, kept, left_out = {}, [], []
    for exp_name, env_id in dict.fromkeys(key[:2] for key in (*finished, *stopped, *absent)):
        tables = finished, stopped, absent
        group, unfinished, others = (entries(table, exp_name, env_id) for table in tables)
        all_args = [args for _, args, _ in group + unfinished + others]
        same = defaultdict(list)
        for seed, args, run in sorted(group, key=lambda entry: started(entry[2])):
            same[exp_name + differing_flags(args, all_args), seed].append(run)
        for seed, args, why in others + unfinished:
            name = exp_name + differing_flags(args, all_args)
            if (name, seed) not in same:
                missing[name, env_id, seed] = why
        twice = [key for key in same if len(same[key]) > 1 and duplicates == "ask"]
        for name, seed in twice:
            reason = f"it has {len(same[name, seed])} runs of seed {seed}; choose one with"
            reason = f"{reason} --duplicates newest or oldest"
            line = f"{name} on {env_id} is left out: {reason}"
            left_out.append((name, env_id, line))
        chosen = defaultdict(list)
        for (name, _), choice in same.items():
            if name not in dict(twice):
                chosen[name].append(choice[0 if duplicates == "oldest" else -1])
        for name, picked in chosen.items():
            warn_of_versions(f"{name} on {env_id}", picked)
            kept += [row._replace(exp_name=name) for run in picked for row in rows[run]]
    reasons = sorted(missing.items(), key=str)
    return kept + [Row(*key, 0, MISSING, why, "unknown") for key, why in reasons], left_out


def differing_flags(args: dict, others: list[dict]) -> str:
    """-FLAG=VALUE for every flag in which the runs differ, or ""."""
    name = ""
    for flag in args:
        values = {str(other[flag]) for other in others if flag in other}
        if flag not in MAY_DIFFER and len(values) > 1:
            name += f"-{flag.replace('_', '-')}={args[flag]}"
    return name


def read_csv(file: Path) -> list[Row]:
    try:
        # utf-8-sig skips the byte order mark with which Excel begins a file
        with file.open(newline="", encoding="utf-8-sig") as stream:
            header, *lines = csv.reader(stream, strict=True)
    except (csv.Error, OSError, ValueError):
        header, lines = [], []
    has_columns = tuple(header) == Row._fields
    check(has_columns, f"{file} is not a CSV file with the columns {','.join(Row._fields)}")
    check(any(lines), f"{file} has no rows below its header")
    rows = []
    for number, line in enumerate(lines, 2):
        if not line:
            continue
        columns = f"{len(line)} columns, not {len(Row._fields)}"
        check(len(line) == len(Row._fields), f"{file}, line {number}: {columns}")
        try:
            row = Row(*line)
            named = row.metric != MISSING or row.seed.isdigit()
            seed = int(row.seed) if named else row.seed
            rows.append(row._replace(seed=seed, step=int(row.step), value=float(row.value)))
        except (TypeError, ValueError):
            check(False, f"{file}, line {number}: seed, step and value must be numbers")
    return rows


def read_source(source: Path, metrics: tuple[str, ...]) -> list[Row]:
    """These metrics of the run folders below a folder, or all rows of a CSV file."""
    check(source.exists(), f"{source} does not exist")
    if not source.is_dir():
        return read_csv(source)
    rows, left_out = read_folders([source])
    check(not left_out, "; ".join(line for *_, line in left_out))
    return [row for row in rows if row.metric in metrics]


def read_scales(file: Path) -> dict[str, tuple[float, float]]:
    """Map env_ids to the two scores that are normalised to 0 and to 1."""
    try:
        header, *lines = [line.split(",") for line in file.read_text("utf-8-sig").split()]
        scales = {line[0]: (float(line[1]), float(line[2])) for line in lines}
    except (OSError, ValueError, IndexError):
        header, scales = [], {}
    has_columns = header == ["env_id", "random", "reference"]
    wrong = f"--normalise {file} is not a CSV file with the columns env_id,random,reference"
    check(has_columns, wrong)
    for env_id, (low, high) in scales.items():
        differ = math.isfinite(high - low) and low != high
        wrong = f"--normalise {file}: random and reference of {env_id} must be different numbers"
        check(differ, wrong)
    return scales


def write_csv(file: Path, columns, rows) -> None:
    """Write a CSV file atomically: if the disk is full, the old file stays as it was."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.tmp")
    if file.exists() and not file.is_file():  # such as /dev/stdout
        temporary = file
    try:
        with temporary.open("w", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows([columns, *rows])
    except OSError as error:
        if temporary != file:
            temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(file)) from None
    if temporary != file:
        os.replace(temporary, file)


def export(file: Path, rows: list[Row]) -> None:
    def order(row: Row) -> tuple:
        return row.exp_name, row.env_id, str(row.seed).zfill(9), row.metric, row.step

    rounded = [row._replace(value=f"{row.value:.8g}") for row in sorted(rows, key=order)]
    write_csv(file, Row._fields, rounded)


def curves_of(rows: list[Row], metric: str) -> dict[tuple[str, str], dict[int, list[tuple]]]:
    """Map (env_id, exp_name) to {seed: [(step, value), ...]} of one metric, all sorted."""
    selected = [row for row in rows if row.metric == metric]
    curves = {}
    for row in sorted(selected, key=lambda row: (row.env_id, row.exp_name, row.seed, row.step)):
        seeds = curves.setdefault((row.env_id, row.exp_name), {})
        seeds.setdefault(row.seed, []).append((row.step, row.value))
    return curves


def finals_of(rows: list[Row], metric: str) -> dict[tuple[str, str], dict[int, float]]:
    """Map (env_id, exp_name) to {seed: the last value of one metric}."""
    finals = {}
    for key, seeds in curves_of(rows, metric).items():
        finals[key] = {seed: points[-1][1] for seed, points in seeds.items()}
    return finals


def problems(
    rows: list[Row], score: str, curve: str = CURVE, equal_seeds: bool = True
) -> list[tuple[str, str]]:
    """Return (env_id, message) for everything that is missing from a set.

    Reported are a run that has not finished, a run without a finite score, and a run without a learning curve of the
    metric `curve`. With equal_seeds so is a seed that only another experiment in the same environment has.
    """
    seeds, own, found = defaultdict(set), defaultdict(set), []
    unfinished = defaultdict(set)
    for row in rows:
        if row.metric == MISSING:
            unfinished[row.env_id, row.exp_name].add(row.seed)
            why = WHY.get(row.value, WHY[UNFINISHED])
            found.append((row.env_id, f"{row.exp_name} on {row.env_id} with seed {row.seed} {why}"))
        else:
            seeds[row.env_id, "" if equal_seeds else row.exp_name].add(row.seed)
            own[row.env_id, row.exp_name].add(row.seed)
    for (env_id, name), run in sorted(own.items()):
        absent = seeds[env_id, "" if equal_seeds else name] - run - unfinished[env_id, name]
        if absent:
            listing = " ".join(map(str, sorted(absent)))
            line = f"{name} on {env_id} lacks seeds {listing}, which another experiment has"
            found.append((env_id, line))
    for metric in (score, curve):
        finals = finals_of(rows, metric)
        for env_id, name in sorted({(row.env_id, row.exp_name) for row in rows}):
            values = finals.get((env_id, name), {})
            finite = {seed for seed, value in values.items() if math.isfinite(value)}
            absent = sorted(own[env_id, name] - finite - unfinished[env_id, name])
            drawn = metric == score or any(env == env_id for env, _ in finals)
            if absent and drawn:
                listing = " ".join(map(str, absent))
                line = f"{name} on {env_id} has no {metric} for seeds {listing}"
                if metric == CURVE:
                    line += f": {NO_EPISODE}"
                found.append((env_id, line))
    return found


def select(name: str, rows: list[Row], options, left_out=()) -> tuple[list[Row], str]:
    """Return the rows of the wanted exp_names and env_ids, and the metric that is their score.

    If one of them has no rows, the error message also lists what was left out.
    """
    reasons = "".join(f"\n{line}" for *_, line in left_out)
    for flag, column in (("exp_names", "exp_name"), ("env_ids", "env_id")):
        wanted = getattr(options, flag)
        known = {getattr(row, column) for row in rows}
        unknown = [word for word in wanted if word not in known]
        wrong = f"--{flag.replace('_', '-')}: {name} has no {' '.join(unknown)}"
        check(not unknown, wrong + reasons)
        if wanted:
            rows = [row for row in rows if getattr(row, column) in wanted]
    metrics = {row.metric for row in rows}
    score = next((score for score in SCORES if score in metrics), SCORES[0])
    keys = Counter(row[:3] for row in rows if row.metric == score)
    twice = [" ".join(map(str, key)) for key, count in keys.items() if count > 1]
    check(not twice, f"{name} has more than one {score} for {'; '.join(twice)}")
    return rows, score


def incomplete_runs(rows: list[Row], score: str, curve: str) -> set[tuple]:
    """The runs (exp_name, env_id, seed) that have not finished, or have no finite score or no learning curve."""
    found = {row[:3] for row in rows if row.metric == MISSING}
    runs = {row[:3] for row in rows}
    for metric in (score, curve):
        finals = finals_of(rows, metric)
        drawn = {env_id for env_id, _ in finals}
        for exp_name, env_id, seed in runs:
            value = finals.get((env_id, exp_name), {}).get(seed, math.nan)
            if not math.isfinite(value) and (metric == score or env_id in drawn):
                found.add((exp_name, env_id, seed))
    return found


def refuse(name: str, rows: list[Row], score: str, left_out: list[tuple], options, published: bool):
    """Return the rows that may be drawn, what is missing from them, and whether some rows were refused.

    Everything that is refused is printed with its reason: the incomplete runs of run folders, or, if the set is
    published in a CSV file, the whole set, and then also if its experiments have different seeds.
    """
    found = problems(rows, score, options.metric, equal_seeds=published)
    missing = [line for _, line in found]
    twice = [
        line
        for exp_name, env_id, line in left_out
        if exp_name in (options.exp_names or [exp_name]) and env_id in (options.env_ids or [env_id])
    ]
    refused = twice + ([] if options.allow_incomplete else missing)
    if refused:
        advice = "--allow-incomplete averages incomplete sets and marks them"
        if not published:
            advice = "the figures and tables leave out these runs, and say so"
        print(f"plot.py: {name} is incomplete; {advice}", *refused, sep="\n  ", file=sys.stderr)
    if missing and not options.allow_incomplete:
        incomplete = incomplete_runs(rows, score, options.metric)
        rows = [row for row in rows if not published and row[:3] not in incomplete]
    finals = finals_of(rows, score)
    check(finals or refused, f"{name} has no finished run of these exp_names and env_ids")
    fewest = min(map(len, finals.values()), default=4)
    is_enough = options.statistic == "mean" or fewest > 3
    few = f"--statistic iqm needs at least 4 seeds, not {fewest}; use --statistic mean"
    check(is_enough, few)
    return (rows if finals else []), twice + missing, bool(refused)
