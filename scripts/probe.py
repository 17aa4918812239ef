"""What did I break? A ladder of checks for a file of algos/, or a changed copy of one, wherever it lies.

    python scripts/probe.py PATH/TO/FILE.py

First the exact checks: the file trains for a moment on an environment that keeps a protocol of everything, and each
number that reaches the loss, the log and the checkpoint is compared with one worked out from that protocol in float64.
Then the learned ones: environments so small that the right value or action is known beforehand. Each failure names the
section of the file to look at and the likely mistake. The exit status is 0 only if every check passes.
"""

import json
import random
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import tyro

sys.path.insert(0, str(Path(__file__).resolve().parent))
from probing import CHECKS  # noqa: E402
from probing.environments import Aim, Constant, Endless, Shown, TwoSteps  # noqa: E402,F401 (for the tests)
from probing.subject import RETURNS, Subject  # noqa: E402


@dataclass
class Options:
    file: tyro.conf.Positional[Path]  # the algorithm's file
    seed: int = 1  # of everything the probe draws and of the training runs
    only: tuple[str, ...] = ()  # names of the checks to run; --list shows them
    json: bool = False  # print the results as JSON
    list: bool = (
        False  # print the names of the checks that apply to the file, and what each looks at
    )


@dataclass
class Result:
    check: str
    section: str  # of the file, where to look
    measured: str
    expected: str
    passed: bool
    hint: str  # the likely mistake


def run_check(subject: Subject, name: str) -> Result:
    """An error inside a check is a failure of it: the file lacks something, or returns what nobody expects."""
    entry = CHECKS[name]
    section, hint = entry.section, entry.hint
    if (
        section in RETURNS
    ):  # they have one name in the table of checks, and another in each kind of file
        section = next((name for name in RETURNS if hasattr(subject.load(), name)), section)
    torch.manual_seed(subject.seed), np.random.seed(subject.seed), random.seed(subject.seed)
    torch.set_num_threads(1)
    try:
        measured, expected, passed, *better = entry.function(subject)
        hint = next((text for text in better if text), hint)
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split())
        measured, expected, passed = f"{type(error).__name__}: {message}", "no error", False
    return Result(name, section, measured, expected, bool(passed), "" if passed else hint)


def fail(message: str) -> None:
    print(f"probe.py: {message}", file=sys.stderr)
    raise SystemExit(2)


def open_subject(file: Path, seed: int) -> Subject:
    """The file, if it can be imported and has the functions that the checks call."""
    if not file.is_file():
        fail(f"{file} does not exist")
    subject = Subject(file.resolve(), seed)
    try:
        module = subject.load()
    except (Exception, SystemExit) as error:
        fail(f"{file} cannot be imported ({type(error).__name__}: {error})")
    needed = ("Args", "make_envs", "Agent", "update", "evaluate", "train")
    missing = [name for name in needed if not hasattr(module, name)]
    missing += [" or ".join(RETURNS)] * (not any(hasattr(module, name) for name in RETURNS))
    missing += ["a function named ..._loss"] * (
        not any(name.endswith("_loss") for name in vars(module))
    )
    if missing:
        fail(f"{file} has no {', '.join(missing)}: keep the sections of algos/ to be probed")
    return subject


def main(options: Options) -> int:
    unknown = [name for name in options.only if name not in CHECKS]
    if unknown:
        fail(f"--only {' '.join(unknown)}: no such check; --list shows them")
    subject, results, started = open_subject(options.file, options.seed), [], time.time()
    names = [name for name in CHECKS if subject.applies(name)]
    foreign = [name for name in options.only if name not in names]
    if foreign:
        fail(
            f"--only {' '.join(foreign)}: not for a file such as {options.file}; --list shows those that are"
        )
    names = [name for name in names if name in (options.only or names)]
    if options.list:
        for name in names:
            entry = CHECKS[name]
            print(
                f"{name:32}{entry.section:13}{' '.join((entry.function.__doc__ or '').split('.')[0].split())}"
            )
        return 0
    line = "{:6}{:32}{:46.45}{:28}{}".format
    if not options.json:
        print(line("", "check", "measured", "expected", "section"))
    for name in names:
        result = run_check(subject, name)
        results.append(result)
        if not options.json:
            print(
                line(
                    "pass" if result.passed else "FAIL",
                    name,
                    result.measured,
                    result.expected,
                    result.section,
                )
            )
            if not result.passed:
                print(f"      look at {result.section}: {result.hint}", flush=True)
        if name == "trains" and not result.passed:
            break  # whatever else is measured would only show this again
    failed = sum(not result.passed for result in results)
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    else:
        print(
            f"{len(results)} checks, {failed} failed, {time.time() - started:.0f} s, seed {options.seed}"
        )
    return int(failed > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(tyro.cli(Options, description=__doc__)))
