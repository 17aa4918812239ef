"""What the command lines of scripts/ and benchmarks/ share: `from common import check, load, read_json`."""

import contextlib
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEYS = ("exp_name", "env_id", "seed")  # what tells the runs of a folder apart in sweep.json


def quiet(kind, error, traceback) -> None:
    """Python's excepthook, but Ctrl-C leaves no traceback. The status is then that of the signal, 130 in a shell."""
    if kind is not KeyboardInterrupt:
        sys.__excepthook__(kind, error, traceback)


sys.excepthook = quiet


@contextlib.contextmanager
def writing(what: str = ""):
    """Ends the program with one line where a file or folder cannot be written, under its own name or that of a flag."""
    try:
        yield
    except OSError as error:
        check(False, f"{what or error.filename} cannot be written: {error.strerror}")


def check(ok, message: str, status: int = 2) -> None:
    """End the program with one line, and this exit status, unless ok."""
    if not ok:
        print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
        raise SystemExit(status)


def check_least(least: float, options, *names: str) -> None:
    """End the program if one of these numbers among the options is below the least that makes sense."""
    for name in names:
        value = getattr(options, name)
        words = f"--{name.replace('_', '-')} must be at least {least}, not {value}"
        check(value is None or value >= least, words)


def check_output(flag: str, file: Path | None, *endings: str) -> None:
    """End the program if this file cannot be written, before there is work to lose. One with `endings`, a picture or
    a video, needs a folder that is there; for others the folders are made."""
    if file is None:
        return
    check(not file.is_dir(), f"{flag} {file} is a folder; name a file")
    known = not endings or file.suffix in endings
    check(known, f"{flag} {file}: name a file that ends in {' or '.join(endings)}")
    if file.exists():  # such as /dev/stdout
        return
    place, *above = file.resolve().parents
    check(place.is_dir() or not endings, f"{flag} {file}: there is no folder {place}")
    there = next(folder for folder in (place, *above) if folder.exists())
    with writing(f"{flag} {file}: {there}"):
        tempfile.TemporaryFile(dir=there).close()


def check_env(env_id: str):
    """The action space of an environment; ends the program with one line if Gymnasium cannot make it."""
    import gymnasium as gym

    try:
        with gym.make(env_id) as env:
            return env.action_space
    except Exception as error:
        check(False, f"--env-id {env_id}: {one_line(str(error))}")


def check_script(file: Path) -> None:
    """End the program if this is no Python file."""
    check(file.exists(), f"{file} does not exist")
    check(not file.is_dir(), f"{file} is a folder; name a Python file in it")
    check(file.suffix == ".py", f"{file} is no Python file; name one that ends in .py")


def num_cores() -> int:
    """Cores this process may use; on Linux `taskset` may leave it some of the machine's."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def one_line(error: BaseException | str) -> str:
    """An error in at most 300 characters without a line break."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:300]


def load(script: Path, name: str = ""):
    """The file as a module, under its own name or another; importing a file of algos/ has no side effect.
    Whatever stops the import is raised. A module that it imports from its own folder is known to it alone: beside
    another script, or beside this file, one of the same name is another."""
    folder = script.resolve().parent
    beside = {file.stem for file in folder.glob("*.py")}
    beside |= {file.parent.name for file in folder.glob("*/__init__.py")}

    def take_out() -> dict:
        return {n: sys.modules.pop(n) for n in [*sys.modules] if n.partition(".")[0] in beside}

    spec = importlib.util.spec_from_file_location(name or script.stem, script)
    module = importlib.util.module_from_spec(spec)
    others = take_out()
    sys.modules[spec.name] = module  # dataclasses look their own module up
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
        take_out()
        sys.modules.update(others | {spec.name: module})
    return module


def read_json(file: Path) -> dict:
    """A JSON object; one that is not there or not whole is empty."""
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def is_complete(run: Path) -> bool:
    """Whether a run folder has a summary of the arguments in its config.json. A run that was resumed to make more steps
    has new ones there, while its old summary still stands."""
    summary = read_json(run / "summary.json")
    args = read_json(run / "config.json").get("args")
    return bool(summary) and args in (None, summary.get("args", args))


def text_of(script: Path) -> str:
    """The SHA-256 of a script; empty where it is gone."""
    return hashlib.sha256(script.read_bytes()).hexdigest() if script.is_file() else ""


def declared(runs_dir: Path) -> dict[tuple, dict]:
    """(exp_name, env_id, seed) -> record of every run that a sweep has declared in this folder."""
    runs = read_json(runs_dir / "sweep.json").get("runs", [])
    runs = runs if isinstance(runs, list) else []
    keyed = [(tuple(run.get(key) for key in KEYS), run) for run in runs if isinstance(run, dict)]
    return {key: run for key, run in keyed if None not in key}


def has_args(record: dict, args: dict, but: tuple[str, ...] = ()) -> bool:
    """Whether a run with these arguments is the one of the record, by those that both name, without the flags in `but`:
    an older version of sweep.py wrote none down, and an older script need not have had all."""
    wanted = (record.get("args") or {}).items()
    return all(args.get(flag, value) == value for flag, value in wanted if flag not in but)


def has_text(record: dict, run: Path) -> bool:
    """Whether the copy of the script in a run's folder is the text that the record names, where it names one."""
    text = record.get("sha256")
    return not text or text_of(run / Path(record.get("script", "?")).name) == text


def commit_of(script: Path) -> str:
    """The commit of a file's repository, marked where it has changes; "unknown" without one, or without Git."""
    git = ["git", "-C", str(script.resolve().parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True).stdout.strip() or "unknown"
    except FileNotFoundError:
        return "unknown"
