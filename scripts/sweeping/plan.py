"""From the flags of scripts/sweep.py to its runs, each flag tried on its script before anything is started."""

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
from common import check, check_script, load, one_line

OURS = ("exp_name", "env_id", "seed", "runs_dir")  # flags the sweep itself gives to every run


@dataclass
class Plan:
    """A product of runs."""

    scripts: tuple[Path, ...] = ()  # files with an Args, such as algos/ppo_continuous.py
    env_ids: tuple[str, ...] = ()  # environments
    seeds: tuple[str, ...] = ("1",)  # seeds and ranges of them, such as 1-10 42
    # NAME=v1,v2: a run for every value; repeat it for a product
    grid: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    tag: str = ""  # a word that becomes part of every exp_name
    launcher: str = ""  # in place of python, such as "torchrun --standalone --nproc-per-node 2"


@dataclass
class Job:
    """One run: its command line, what its script makes of it, and how far it is."""

    script: Path
    text: bytes  # the script, as it was when the sweep began
    flags: list[str]
    args: dict  # all arguments, as config.json records them
    defaults: dict  # the script's own, for records from before a flag existed
    name: str  # of the log, and of the run folder without its time
    rank: int  # of its seed among the seeds of its plan
    launcher: list[str]  # the words before the script in its command line
    state: str = "waiting"  # or running, done, failed
    taken: bool = False  # by a worker of this sweep
    seconds: float = 0.0
    outcome: str = ""


def module_of(script: Path):
    """The script as a module, to read its Args."""
    check_script(script)
    try:
        module = load(script, f"sweep_{script.stem}")
        names = {field.name for field in fields(module.Args)}
    except (Exception, SystemExit) as error:
        check(False, f"{script} cannot be imported, or has no Args ({one_line(error)})")
    missing = [name for name in OURS if name not in names]
    check(not missing, f"{script} has no {', '.join(missing)} in its Args")
    return module


def parse(cls, where, flags: list[str]):
    """An instance of the dataclass for these flags; what tyro says in a box becomes one line."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            return tyro.cli(cls, args=flags, prog=str(where))
    except SystemExit:
        parts = re.split("[─-]{9,}", re.sub("[│╭╮╰╯]", "", output.getvalue()))
        said = one_line("".join(parts[1:2]))  # between the title and the hints
        if said.startswith("Unrecognized"):
            behind = "for the runs goes behind" if cls is Plan else "not for the runs goes before"
            said += f"; what is {behind} --"
        check(False, f"{where} does not take the flags: {said}")


def dry_start(script: Path, module, args) -> None:
    """What train() says of the machine and the environment before its first step, such as an id that is not there: with
    a stop signal beforehand it makes everything, takes no step and ends. Its run folder is thrown away."""
    if not hasattr(module, "train") or "stop" not in inspect.signature(module.train).parameters:
        return
    wandb = not getattr(args, "track", False) or importlib.util.find_spec("wandb")
    check(wandb, "--track needs a package: pip install wandb")
    away = {"resume": "", "track": False, "device": "cpu"}
    away = {name: value for name, value in away.items() if hasattr(args, name)}
    # where the script fails, its writer of events may still be at work when the folder goes
    scratch = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with scratch as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        silence = io.StringIO()
        try:
            with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
                module.train(replace(args, runs_dir=folder, **away), [signal.SIGTERM])
        except SystemExit as end:
            check(not isinstance(end.code, str), f"{script}: {end.code}")
        except Exception:  # a fault in the script: the runs will show it, with its traceback
            pass


def plain(content: dict) -> dict:
    """As it reads after a round trip through a JSON file."""
    return json.loads(json.dumps(content, default=str))


def seed_list(items: tuple[str, ...]) -> list[int]:
    """("1-3", "7") -> [1, 2, 3, 7]"""
    seeds = []
    for item in items:
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", item)
        check(ends, f"--seeds {' '.join(items)}: give numbers and ranges such as 1-10")
        numbers = range(int(ends[1]), int(ends[2] or ends[1]) + 1)
        check(numbers, f"--seeds {' '.join(items)} holds an empty range")
        seeds += numbers
    return list(dict.fromkeys(seeds))


def dashed(names) -> set[str]:
    return {name.strip("-").replace("_", "-") for name in names}


def split_grid(plan: Plan, common: list[str]) -> list[tuple[str, list[str]]]:
    """The grid as (name, values), checked against the flags that all runs have."""
    grid = [item.partition("=")[::2] for item in plan.grid]
    grid = [(name.strip("-").replace("_", "-"), values.split(",")) for name, values in grid]
    whole = all(name and all(values) for name, values in grid)
    check(whole, f"--grid {' '.join(plan.grid)}: give NAME=v1,v2")
    given = dashed(flag.partition("=")[0] for flag in common if flag.startswith("--"))
    given = {name.removeprefix("no-") for name in given}
    varied = {name.removeprefix("no-") for name, _ in grid}
    check(len(varied) == len(grid), f"--grid {' '.join(plan.grid)}: a name twice; give NAME=v1,v2")
    both = f"--{' --'.join(sorted(given & varied))}"
    check(not given & varied, f"{both} is in --grid and behind -- as well")
    clash = (given | varied) & dashed((*OURS, "resume"))
    words = f"--{' --'.join(sorted(clash))} is for the sweep to set, by its own flags before --"
    check(not clash, words)
    return grid


def launcher_of(plan: Plan) -> list[str]:
    """The words that start a script; a program is also looked for beside the interpreter."""
    if not plan.launcher:
        return [sys.executable]
    try:
        program, *words = shlex.split(plan.launcher)
    except ValueError as error:
        check(False, f"--launcher {plan.launcher}: {error}")
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(program, path=places)
    check(found, f"--launcher {plan.launcher}: there is no program {program}")
    return [found, *words]


def jobs_of(plan: Plan, common: list[str], runs_dir: Path):
    """The plan's runs. Every flag is tried on its script, and for the first seed the environment as well."""
    check(re.fullmatch(r"[\w.+-]*", plan.tag), f"--tag {plan.tag} is not one word")
    seeds, grid, launcher = seed_list(plan.seeds), split_grid(plan, common), launcher_of(plan)
    modules = {script: module_of(script) for script in plan.scripts}
    for seed, script, env_id in itertools.product(seeds, plan.scripts, plan.env_ids):
        module, exp_name = modules[script], "-".join(filter(None, (script.stem, plan.tag)))
        given = ["--env-id", env_id, "--seed", str(seed), "--runs-dir", str(runs_dir), *common]
        base = parse(module.Args, script, [*given, "--exp-name", exp_name])
        for values in itertools.product(*(values for _, values in grid)):
            pairs = []  # (field, its flag)
            for (name, _), value in zip(grid, values):
                flag, key = [f"--{name}", value], name.replace("-", "_")
                if isinstance(getattr(base, key, None), bool):
                    wrong = f"--grid {name}: {script} takes True or False, not {value}"
                    check(value in ("True", "False"), wrong)
                    flag = [f"--{name}"] if value == "True" else [f"--no-{name}"]
                pairs.append((key, flag))
            words = [word for _, flag in pairs for word in flag]
            args = parse(module.Args, script, [*given, "--exp-name", exp_name, *words])
            # the value that a run has anyway is no part of its name
            chosen = [flag for key, flag in pairs if getattr(args, key) != getattr(base, key)]
            label = exp_name + "".join("=".join(flag)[1:].replace("/", "-") for flag in chosen)
            flags = ["--exp-name", label, *given, *(word for flag in chosen for word in flag)]
            args = parse(module.Args, script, flags)
            if seed == seeds[0]:
                dry_start(script, module, args)
            defaults = {f.name: f.default for f in fields(args) if f.default is not MISSING}
            name = f"{env_id.replace('/', '-').replace(':', '-')}__{label}__{seed}"
            arguments = plain(asdict(args)), plain(defaults)
            rank = seeds.index(seed)
            yield Job(script, script.read_bytes(), flags, *arguments, name, rank, launcher)


def cut(words: list[str]) -> tuple[list[str], list[str]]:
    """What stands before and behind --."""
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


def read_flags(cls, about: str) -> tuple:
    """(an instance of the dataclass for the flags before --, the words behind it)."""
    ours, common = cut(sys.argv[1:])
    options, unknown = tyro.cli(cls, description=about, args=ours, return_unknown_args=True)
    if unknown:
        names = ["--" + field.name.replace("_", "-") for field in fields(cls)]
        near = difflib.get_close_matches(unknown[0], names, 1, 0.8)
        way = f"is it {near[0]}?" if near else "what is for the runs goes behind --"
        check(False, f"no flag {unknown[0]} here: {way} (--help shows all)")
    return options, common


def expand(options, common: list[str], lines: str = "") -> list[Job]:
    """The runs of sweep.Options, seed by seed, so that an early stop leaves whole seeds: within a seed in the order
    plan, script, environment, grid. `lines` are those of --jobs. Bad input ends it all before anything is started."""
    common = common + (["--device", options.device] if options.device else [])
    plans = [(options, common)]
    for number, line in enumerate(lines.replace("\\\n", " ").splitlines(), 1):
        try:
            words = [] if line.lstrip().startswith("#") else shlex.split(line)
        except ValueError as error:
            check(False, f"--jobs {options.jobs}, line {number}: {error}")
        ours, flags = cut(words)
        if ours:
            plan = parse(Plan, f"--jobs {options.jobs}, line {number},", ours)
            check(plan.scripts and plan.env_ids, f"line {number}: give --scripts and --env-ids")
            plans.append((plan, common + flags))
    if len(plans) > 1 and not options.scripts:
        own = {field.name: field.default for field in fields(Plan)}
        lost = [name for name, value in own.items() if getattr(options, name) != value]
        check(not lost, f"--{' --'.join(lost).replace('_', '-')}: write it on the lines of --jobs")
    jobs = {}
    for plan, flags in plans:
        for job in jobs_of(plan, flags, options.runs_dir):
            twin = jobs.setdefault(job.name, job)
            same_run = (twin.script, twin.args, twin.launcher) == (
                job.script,
                job.args,
                job.launcher,
            )
            check(same_run, f"two different runs would be {job.name}: give one of them a --tag")
    check(jobs, "nothing to run: give --scripts and --env-ids, or --jobs")
    return sorted(jobs.values(), key=lambda job: job.rank)
