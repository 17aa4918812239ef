"""Turn the flags of scripts/sweep.py into runs. Every flag is checked with its script before a run starts."""

import contextlib
import difflib
import importlib.util
import inspect
import io
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import warnings
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path

import tyro

from plainrl_tools.common import check, check_script, load, module_advice, one_line

OURS = ("exp_name", "env_id", "seed", "runs_dir")  # flags that the sweep itself sets for every run
MOST_SEEDS = 10_000  # of an item of --seeds; more are a typing error
TIMED_OUT = "stopped by --timeout"  # first words of the outcome of a run that exceeded --timeout


@dataclass
class Plan:
    """Runs for all combinations of scripts, environments, seeds and the grid."""

    scripts: tuple[Path, ...] = ()  # files with Args, such as algos/ppo_continuous.py
    env_ids: tuple[str, ...] = ()  # environment ids
    seeds: tuple[str, ...] = ("1",)  # seeds and ranges of seeds, such as 1-10 42
    # NAME=v1,v2 makes a run for every value; give --grid again for all combinations of two flags
    grid: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    tag: str = ""  # a word that becomes part of every exp_name
    launcher: str = ""  # replaces python, such as "torchrun --standalone --nproc-per-node 2"


@dataclass
class Job:
    """One run: its command line, its arguments and its state."""

    script: Path
    text: bytes  # content of the script when the sweep began
    flags: list[str]
    args: dict  # all arguments, as config.json records them
    defaults: dict  # defaults of the script, for runs that were made before a flag existed
    name: str  # of the log, and of the run folder without its time
    rank: int  # index of its seed among the seeds of its plan
    launcher: list[str]  # the words before the script in its command line
    state: str = "waiting"  # or running, done, failed
    taken: bool = False  # whether a worker of this sweep has taken the run
    num_seeds: int = 1  # runs that its process trains, of this and the following seeds
    seconds: float = 0.0
    outcome: str = ""


def module_of(script: Path):
    """Import the script as a module, to read its Args."""
    check_script(script)
    try:
        module = load(script, f"sweep_{script.stem}")
        names = {field.name for field in fields(module.Args)}
    except (Exception, SystemExit) as error:
        check(False, f"{script} cannot be imported, or has no Args ({one_line(error)})")
    missing = [name for name in OURS if name not in names]
    check(not missing, f"{script} has no {', '.join(missing)} in its Args")
    return module


def advice_about(cls, word: str) -> str:
    """What to do about a word that is no flag of the dataclass."""
    if hasattr(cls, "grid") and "=" in word and not word.startswith("-"):
        return f"write --grid {word}, as every flag of a grid has a --grid of its own"
    return "flags of the runs belong after --"


def parse(cls, where, flags: list[str]):
    """Make an instance of the dataclass from these flags. An error message of tyro is reduced to one line."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            return tyro.cli(cls, args=flags, prog=str(where))
    except SystemExit:
        parts = re.split("[─-]{9,}", re.sub("[│╭╮╰╯]", "", output.getvalue()))
        message = one_line("".join(parts[1:2]))  # the part between the title and the hints
        if message.startswith("Unrecognized"):
            if cls is Plan:
                message += f"; {advice_about(cls, message.split()[-1])}"
            else:
                message += f"; flags of {Path(sys.argv[0]).name} belong before --"
        check(False, f"{where} does not accept the flags: {message}")


def dry_start(script: Path, module, args) -> None:
    """Call train() with a stop signal, so that errors at the start, such as an unknown id, are found early.

    With the signal, train() sets up everything and ends after one iteration. Its run folder is deleted.
    """
    train = getattr(module, "train", None)
    # only a train() with a list of signals, as in algos/, can be stopped before its first step
    if train is None or not {"signals", "stop"} & {*inspect.signature(train).parameters}:
        return
    wandb = not getattr(args, "track", False) or importlib.util.find_spec("wandb")
    check(wandb, "--track requires a package: pip install wandb")
    changes = {"resume": "", "track": False, "device": "cpu"}
    changes = {name: value for name, value in changes.items() if hasattr(args, name)}
    # If the script fails, its event writer may still write while the folder is being deleted.
    scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with scratch as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        silence = io.StringIO()
        try:
            with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
                module.train(replace(args, runs_dir=folder, **changes), [signal.SIGTERM])
        except SystemExit as end:
            # What is found after the run folder was made, such as a NaN, is a failure of this run
            is_refused = isinstance(end.code, str) and not any(Path(folder).iterdir())
            check(not is_refused, f"{script}: {end.code}{module_advice(args.env_id)}")
        except Exception:  # an error in the script; the logs of the runs will show its traceback
            pass


def plain(content: dict) -> dict:
    """The content as it is after it was written to a JSON file and read again."""
    return json.loads(json.dumps(content, default=str))


def seed_list(items: tuple[str, ...]) -> list[int]:
    """("1-3", "7") -> [1, 2, 3, 7]"""
    seeds = []
    check(items, "--seeds: give numbers and ranges such as 1-10")
    for item in items:
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", item)
        check(ends, f"--seeds {' '.join(items)}: give numbers and ranges such as 1-10")
        numbers = range(int(ends[1]), int(ends[2] or ends[1]) + 1)
        check(numbers, f"--seeds {' '.join(items)}: {item} is an empty range")
        many = f"--seeds {' '.join(items)}: {item} has more than {MOST_SEEDS:,} seeds"
        check(len(numbers) <= MOST_SEEDS, f"{many}; divide it into several sweeps")
        seeds += numbers
    return list(dict.fromkeys(seeds))


def dashed(names) -> set[str]:
    return {name.strip("-").replace("_", "-") for name in names}


def split_grid(plan: Plan, common: list[str]) -> list[tuple[str, list[str]]]:
    """Return the grid as [(name, values), ...], checked against the flags that all runs have."""
    grid = [item.partition("=")[::2] for item in plan.grid]
    grid = [(name.strip("-").replace("_", "-"), values.split(",")) for name, values in grid]
    complete = all(name and all(values) for name, values in grid)
    check(complete, f"--grid {' '.join(plan.grid)}: give NAME=v1,v2")
    given = dashed(flag.partition("=")[0] for flag in common if flag.startswith("--"))
    given = {name.removeprefix("no-") for name in given}
    varied = {name.removeprefix("no-") for name, _ in grid}
    twice = f"--grid {' '.join(plan.grid)} has a name twice; give all its values as NAME=v1,v2"
    check(len(varied) == len(grid), twice)
    both = f"--{' --'.join(sorted(given & varied))}"
    check(not given & varied, f"{both} is in --grid and after --; remove one of them")
    clash = (given | varied) & dashed((*OURS, "resume", "num_seeds"))
    reserved = f"--{' --'.join(sorted(clash))} is set by the sweep; use its own flags before --"
    check(not clash, reserved)
    return grid


def launcher_of(plan: Plan) -> list[str]:
    """The words that start a script. The program is searched for in the interpreter's folder and in PATH."""
    if not plan.launcher:
        return [sys.executable]
    try:
        program, *words = shlex.split(plan.launcher)
    except ValueError as error:
        check(False, f"--launcher {plan.launcher}: {error}")
    search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(program, path=search_path)
    check(found, f"--launcher {plan.launcher}: the program {program} does not exist in PATH")
    return [found, *words]


def jobs_of(plan: Plan, common: list[str], runs_dir: Path):
    """Yield the plan's runs. Every flag is checked with its script; for the first seed the environment is, too."""
    check(re.fullmatch(r"[\w.+-]*", plan.tag), f"--tag {plan.tag} is not one word")
    seeds, grid, launcher = seed_list(plan.seeds), split_grid(plan, common), launcher_of(plan)
    modules = {script: module_of(script) for script in plan.scripts}
    for script, env_id in itertools.product(plan.scripts, plan.env_ids):
        module, exp_name = modules[script], "-".join(filter(None, (script.stem, plan.tag)))
        given = ["--env-id", env_id, "--runs-dir", str(runs_dir), *common]
        usual = [*given, "--exp-name", exp_name, "--seed", str(max(seeds))]
        base = parse(module.Args, script, usual)
        for values in itertools.product(*(values for _, values in grid)):
            pairs = []  # (field, its flag)
            for (name, _), value in zip(grid, values):
                flag, key = [f"--{name}", value], name.replace("-", "_")
                check(hasattr(base, key), f"--grid {name}={value}: {script} has no --{name}")
                if isinstance(getattr(base, key, None), bool):
                    wrong = f"--grid {name}={value}: {script} accepts True or False for this flag"
                    check(value in ("True", "False"), wrong)
                    flag = [f"--{name}"] if value == "True" else [f"--no-{name}"]
                pairs.append((key, flag))
            words = [word for _, flag in pairs for word in flag]
            args = parse(module.Args, script, [*usual, *words]) if words else base
            # A value that the run would have without the grid is not part of its name.
            chosen = [flag for key, flag in pairs if getattr(args, key) != getattr(base, key)]
            label = exp_name + "".join("=".join(flag)[1:].replace("/", "-") for flag in chosen)
            too_long = f"the experiment's name {label} is longer than 150 bytes"
            check(
                len(label.encode()) <= 150,
                f"{too_long}; use fewer flags in --grid or another --tag",
            )
            words = [word for flag in chosen for word in flag]
            defaults = {f.name: f.default for f in fields(args) if f.default is not MISSING}
            for rank, seed in enumerate(seeds):
                # replace() takes a thousandth of the time that tyro needs
                args = replace(args, exp_name=label, seed=seed)
                if rank == 0:
                    if sys.stderr.isatty():  # it takes seconds, in which nothing else is printed
                        print(f"checking {script} on {env_id}", file=sys.stderr)
                    dry_start(script, module, args)
                flags = ["--exp-name", label, "--env-id", env_id, "--seed", str(seed), *given[2:]]
                name = f"{env_id.replace('/', '-').replace(':', '-')}__{label}__{seed}"
                arguments = plain(asdict(args)), plain(defaults)
                flags += words
                yield Job(script, script.read_bytes(), flags, *arguments, name, rank, launcher)


def cut(words: list[str]) -> tuple[list[str], list[str]]:
    """The words before and after --."""
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


def read_flags(cls, about: str) -> tuple:
    """Return an instance of the dataclass for the flags before --, and the words after it."""
    words, common = cut(sys.argv[1:])
    options, unknown = tyro.cli(cls, description=about, args=words, return_unknown_args=True)
    if unknown:
        names = ["--" + field.name.replace("_", "-") for field in fields(cls)]
        near = difflib.get_close_matches(unknown[0], names, 1, 0.8)
        advice = f"did you mean {near[0]}?" if near else advice_about(cls, unknown[0])
        check(False, f"unknown flag {unknown[0]}: {advice} (--help lists all flags)")
    return options, common


def expand(options, common: list[str], lines: str = "") -> list[Job]:
    """Return the runs of sweep.Options. `lines` are those of --jobs. Bad input ends the program before a run starts.

    The runs are sorted by seed, so that a sweep that is stopped early has complete seeds. Within a seed they have the
    order plan, script, environment, grid.
    """
    common = common + (["--device", options.device] if options.device else [])
    plans = [(options, common)]
    for number, line in enumerate(lines.replace("\\\n", " ").splitlines(), 1):
        try:
            words = [] if line.lstrip().startswith("#") else shlex.split(line)
        except ValueError as error:
            check(False, f"--jobs {options.jobs}, line {number}: {error}")
        words, flags = cut(words)
        if words:
            where = f"--jobs {options.jobs}, line {number}"
            plan = parse(Plan, f"{where},", words)
            check(plan.scripts and plan.env_ids, f"{where}: give --scripts and --env-ids")
            plans.append((plan, common + flags))
    if len(plans) > 1 and not options.scripts:
        defaults = {field.name: field.default for field in fields(Plan)}
        unused = [name for name, value in defaults.items() if getattr(options, name) != value]
        wrong = f"--{' --'.join(unused).replace('_', '-')} has no effect with --jobs"
        check(not unused, f"{wrong}; write it on the lines of --jobs")
    jobs = {}
    for plan, flags in plans:
        for job in jobs_of(plan, flags, options.runs_dir):
            twin = jobs.setdefault(job.name, job)
            same_run = (twin.script, twin.args, twin.launcher) == (
                job.script,
                job.args,
                job.launcher,
            )
            check(
                same_run, f"two different runs have the name {job.name}; give one of them a --tag"
            )
    no_line = f"--jobs {options.jobs}: no line gives --scripts and --env-ids"
    check(jobs or not options.jobs, no_line)
    check(jobs, "nothing to run; give --scripts and --env-ids, or --jobs")
    return sorted(jobs.values(), key=lambda job: job.rank)
