"""What did I break, and what did I change? Checks for a file of algos/ or a changed copy of one.

    python scripts/probe.py PATH/TO/FILE.py
    python scripts/probe.py PATH/TO/FILE.py -- --my-flag     # with a flag of the file that is off by default

The exact checks run first. The file trains briefly in an environment that records every step. Each number that reaches
the loss, the log and the checkpoint is compared with one that the probe computes from this record in float64. The
learned checks follow: environments so small that the right value or action is known in advance. The verdicts are

    broken            no correct file does this: exit status 1
    differs           differs from the published algorithm, and the probe asks whether it is intended: exit status 0,
                      with --strict 1
    could not check   the check stopped with the printed error, and says nothing about the file: exit status 0
    passes            the check found no difference: exit status 0

The exit status is 2 if nothing was checked: a flag is wrong, the file cannot be imported or lacks a function that the
probe calls, or the probe itself stopped with an error in the first run. It is 1 if the output cannot be written, as in
a pipe to head, and 130 after Ctrl-C.
"""

import json
import os
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from inspect import signature
from pathlib import Path

import tyro
from plainrl_tools.common import check, check_script, one_line
from plainrl_tools.probing import CHECKS
from plainrl_tools.probing.environments import in_this_process
from plainrl_tools.probing.learned import AFTERWARDS
from plainrl_tools.probing.subject import RETURNS, Skip, Subject, Unable, seed_everything
from plainrl_tools.sweeping.plan import parse

VERDICTS = ("broken", "differs", "could not check", "passes")


@dataclass
class Options:
    file: tyro.conf.Positional[Path]  # a file of algos/ or a changed copy
    flags: tyro.conf.Positional[
        tuple[str, ...]
    ] = ()  # flags of the file, after --, for all its runs; flags that the probe sets keep the probe's value
    seed: int = 1  # seed of the probe's random numbers and of the training runs
    only: tuple[str, ...] = ()  # run only the checks with these names; --list shows the names
    exact: bool = False  # skip the learned checks, which take most of the time
    strict: bool = False  # exit with status 1 also if something differs
    verbose: bool = False  # list every check before the findings, also those that pass
    json: bool = False  # print the findings as JSON
    list: bool = False  # print the checks that apply to the file, and what each verifies


@dataclass
class Result:
    check: str
    section: str  # the part of the file to look at
    verdict: str  # one of VERDICTS
    measured: str
    expected: str
    hint: str  # the recognised mistake, or the question
    explained_by: str = ""  # an earlier check whose finding explains this one


def run_check(subject: Subject, name: str) -> Result | None:
    """Run one check. Return None if the file has nothing that it applies to."""
    entry = CHECKS[name]
    section = subject.returns_name if entry.section in RETURNS else entry.section
    seed_everything(subject.seed)
    try:
        with in_this_process():
            finding = asdict(entry.function(subject))
    except Skip:
        return None
    except (Exception, SystemExit) as error:
        words = one_line(error).removeprefix("Unable: ")
        verdict, hint = "could not check", ""
        if name == "trains" and subject.raised(error):
            verdict = "broken"
            hint = "the file raises this error: a plain run raises it too, or the probe does not support the change"
        elif not isinstance(error, Unable) and not subject.raised(error):
            hint = "this is an error of the probe, which does not support the file as it is"
        finding = {"verdict": verdict, "measured": words, "expected": "", "hint": hint}
    return Result(name, section, **finding)


def open_subject(file: Path, seed: int, flags: tuple[str, ...] = ()) -> Subject:
    """The file with these flags, if it can be imported and has the functions that the checks call."""
    check_script(file)
    subject = Subject(file.resolve(), seed)
    try:
        names = vars(subject.module)
    except (Exception, SystemExit) as error:
        check(False, f"{file} cannot be imported ({one_line(error)})")
    agent = names.get("Agent")
    unknown = {
        "actor-critic files with a replay buffer": {"td_target", "policy_loss"} <= names.keys(),
        "Q-learning without a replay buffer": "compute_q_lambda" in names,
        "distributional Q-learning": "td_target" in names and hasattr(agent, "log_probs"),
        "files with a recurrent policy": hasattr(agent, "run_lstm"),
        "actions of several components": "get_masks" in names,
        "several seeds in one process": "Agents" in names,
        "images that are shifted": "shift" in names,
        "Box actions from images": hasattr(agent, "convolved") and "Normal" in names,
    }
    for kind, found in unknown.items():
        check(not found, f"could not check {file}: the probe does not know {kind} yet")
    needed = ("Args", "make_envs", "Agent", "update", "evaluate", "train")
    missing = [name for name in needed if name not in names]
    missing += [" or ".join(RETURNS)] * (not any(name in names for name in RETURNS))
    missing += ["a function named ..._loss"] * (not any(name.endswith("_loss") for name in names))
    missing = ", ".join(missing)
    check(
        not missing,
        f"{file} has no {missing}. The probe calls these functions by name: keep the names of the file in algos/",
    )
    loss = subject.loss_name
    samples = {*signature(names[loss]).parameters} - {"agent", "target_agent", "args"}
    check(samples, f"{file}: {loss} takes no samples; keep the arguments of the file in algos/")
    if flags:
        plain, given = (vars(parse(subject.module.Args, file, [*words])) for words in ((), flags))
        subject.defaults = {name: value for name, value in given.items() if value != plain[name]}
        kept = sorted(subject.defaults.keys() & subject.settings(subject.module).keys())
        if kept:
            named = " ".join(f"--{name.replace('_', '-')}" for name in kept)
            kept = f"the exact checks use the probe's own {named}"
            print(f"{file}: {kept}", file=sys.stderr)
        del subject.module  # it is loaded again with these flags
    return subject


def run_all(subject: Subject, names: list[str]) -> list[Result]:
    """Run the checks in order. If the file does not train, no other check runs."""
    results = []
    for number, name in enumerate(names):
        if sys.stderr.isatty():
            print(f"\r{number + 1}/{len(names)} {name:40}", end="", file=sys.stderr, flush=True)
        result = run_check(subject, name)
        if result is None:
            continue
        results.append(result)
        if name == "trains" and result.verdict != "passes":
            break
        if not name.startswith("learns-"):  # the learned checks judge a failure by these
            subject.suspect |= result.verdict == "broken"
            unusual = result.verdict in ("differs", "could not check")
            subject.unusual |= unusual and name not in AFTERWARDS
    if sys.stderr.isatty():
        print(f"\r{'':60}\r", end="", file=sys.stderr)
    return results


def explain(results: list[Result]) -> None:
    """Mark failures that follow from another one: exact checks explain learned ones, and earlier checks explain later
    ones."""
    failed = [result for result in results if result.verdict != "passes"]
    exact = [r.check for r in failed if r.verdict == "broken" and not r.check.startswith("learns-")]
    unable = {}  # one error can stop several checks
    order, by_name = names_of(results), {result.check: result for result in failed}
    for result in failed:
        if result.verdict == "could not check":
            result.explained_by = unable.setdefault(result.measured, result.check)
            result.explained_by = result.explained_by * (result.explained_by != result.check)
            if result.explained_by:
                continue
        causes = [r.check for r in failed if r.check in CHECKS[result.check].follows]
        if result.check.startswith("learns-"):
            causes = exact or [r.check for r in failed if r.check.startswith("learns-")]
        result.explained_by = next((name for name in causes if name != result.check), "")
        if result.explained_by and order.index(result.explained_by) > order.index(result.check):
            result.explained_by = ""
        cause = by_name.get(result.explained_by)
        while cause and cause.explained_by and by_name[cause.explained_by].verdict == cause.verdict:
            cause = by_name[cause.explained_by]
            result.explained_by = cause.check  # of a chain of causes, show the first


def names_of(results: list[Result]) -> list[str]:
    return [result.check for result in results]


def report(file: Path, results: list[Result], how: str = "", verbose: bool = False) -> str:
    """With `verbose` a line for each check. Then the overall verdict, `how` it was found, and each finding, with the
    most likely cause first."""
    groups = {verdict: [r for r in results if r.verdict == verdict] for verdict in VERDICTS}
    number = {verdict: len(group) for verdict, group in groups.items()}
    number["could not check"] = len({r.measured for r in groups["could not check"]})
    counts = ", ".join(f"{number[verdict]} {verdict}" for verdict in VERDICTS if number[verdict])
    worst = next(verdict for verdict in VERDICTS if groups[verdict])
    rows = [f"{r.verdict:16}{r.check:34}{r.measured}" for r in results]
    lines = [*rows, ""] if verbose else []
    lines += [f"{file.name}: {worst} ({counts})"] + [how] * bool(how)
    for verdict in VERDICTS[:3]:
        own = [
            r
            for r in groups[verdict]
            if not r.explained_by or by_verdict(results, r.explained_by) != verdict
        ]
        for number, result in enumerate(own):
            first = verdict == "broken" and number == 0
            lines += [
                "",
                f"{verdict}: {result.section}, {result.check}"
                + " (the most likely cause)" * (first and len(own) > 1),
            ]
            lines += [f"    {result.hint}"] * bool(result.hint)
            found = f"    measured {result.measured}; expected {result.expected}"
            lines.append(found if result.expected else f"    {result.measured}")
            same = [r.check for r in groups[verdict] if r.explained_by == result.check]
            lines += [f"    may also explain: {', '.join(same)}"] * bool(same)
    return "\n".join(lines)


def by_verdict(results: list[Result], name: str) -> str:
    return next(result.verdict for result in results if result.check == name)


def main(options: Options) -> int:
    unknown = " ".join(name for name in options.only if name not in CHECKS)
    check(not unknown, f"--only {unknown}: unknown check. --list shows the names")
    check(0 <= options.seed < 2**30, f"--seed {options.seed} must be between 0 and 2**30 - 1")
    subject, started = open_subject(options.file, options.seed, options.flags), time.time()
    trained = run_check(subject, "trains")  # the kinds of the file are known after a run
    names = [name for name in CHECKS if subject.applies(name)]
    foreign = " ".join(name for name in options.only if name not in names)
    wrong = f"--only {foreign}: does not apply to {options.file}. --list shows the checks that do"
    check(not foreign or trained.verdict != "passes", wrong)
    names = [name for name in names if name in (options.only or names)]
    if options.exact:
        names = [name for name in names if not name.startswith("learns-")]
    if options.list:
        for name in names:
            about = " ".join((CHECKS[name].function.__doc__ or "").split())
            print(f"{name:34}{CHECKS[name].section:16}{about}")
        return 0
    results = [trained] if trained.verdict != "passes" else run_all(subject, names)
    check(results, f"{options.file} has nothing that --only {' '.join(options.only)} applies to")
    explain(results)
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    else:
        how = f"{len(results)} checks, {time.time() - started:.0f} s, seed {options.seed}"
        how += "" if options.verbose else "; --verbose lists all checks"
        print(report(options.file, results, how, options.verbose))
    verdicts = {result.verdict for result in results}
    if trained.verdict == "could not check":
        return 2
    return int("broken" in verdicts or (options.strict and "differs" in verdicts))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    try:
        status = main(tyro.cli(Options, description=__doc__))
        sys.stdout.flush()
    except BrokenPipeError:  # e.g. in a pipe to head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)
