"""Helpers for the command-line tools in scripts/ and benchmarks/: `from common import check, load, read_json`."""

import contextlib
import hashlib
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEYS = ("exp_name", "env_id", "seed")  # together they identify a run in sweep.json


def quiet(kind, error, traceback) -> None:
    """Python's excepthook without a traceback for Ctrl-C. The exit status is that of the signal, 130 in a shell."""
    if kind is not KeyboardInterrupt:
        sys.__excepthook__(kind, error, traceback)


sys.excepthook = quiet


@contextlib.contextmanager
def writing(what: str = ""):
    """End the program with a one-line message if a file or folder cannot be written.

    The message names `what`, such as a flag and its value, or else the path.
    """
    try:
        yield
    except OSError as error:
        check(False, f"{what or error.filename} cannot be written: {error.strerror}")


def check(ok, message: str, status: int = 2) -> None:
    """Unless ok, end the program with this one-line message and exit status."""
    if not ok:
        print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
        raise SystemExit(status)


def check_least(least: float, options, *names: str) -> None:
    """End the program if one of these numeric options is below its minimum or infinite. An option may be None."""
    for name in names:
        value = getattr(options, name)
        message = f"--{name.replace('_', '-')} must be at least {least}, not {value}"
        check(value is None or value >= least, message)
        message = f"--{name.replace('_', '-')} must be a finite number, not {value}"
        check(value is None or value < math.inf, message)


def check_output(flag: str, file: Path | None, *endings: str) -> None:
    """End the program at the start if the file of this flag cannot be written, so that no work is lost.

    A file with `endings` (a figure or a video) needs an existing folder. For other files the folders are created later.
    """
    if file is None:
        return
    check(not file.is_dir(), f"{flag} {file} is a folder; name a file")
    known = not endings or file.suffix in endings
    check(known, f"{flag} {file}: give a file name that ends in {' or '.join(endings)}")
    if file.exists():  # such as /dev/stdout
        return
    parent, *above = file.resolve().parents
    missing = f"{flag} {file}: the folder {parent} does not exist; create it first"
    check(parent.is_dir() or not endings, missing)
    existing = next(folder for folder in (parent, *above) if folder.exists())
    with writing(f"{flag} {file}: {existing}"):
        tempfile.TemporaryFile(dir=existing).close()


def module_advice(env_id: str) -> str:
    """What to do if Python cannot find the module of an id MODULE:NAME, otherwise ""."""
    module = env_id.rpartition(":")[0]
    try:
        found = not module or importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = False
    folder = f"the folder that contains {module.partition('.')[0]}"
    where = f"Set PYTHONPATH to {folder}, for example PYTHONPATH=. for the current folder"
    return "" if found else f" Python searches for {module} in the folders of PYTHONPATH. {where}."


def check_env(env_id: str):
    """Return the action space of an environment. End the program if Gymnasium cannot make the environment."""
    import gymnasium as gym

    try:
        with gym.make(env_id) as env:
            return env.action_space
    except Exception as error:
        check(False, f"--env-id {env_id}: {one_line(str(error))}{module_advice(env_id)}")


def check_script(file: Path) -> None:
    """End the program if this is not a Python file."""
    check(file.exists(), f"{file} does not exist")
    check(not file.is_dir(), f"{file} is a folder; name a Python file in it")
    check(file.suffix == ".py", f"{file} is not a Python file; give a file that ends in .py")


def num_cores() -> int:
    """Number of CPU cores that this process may use. On Linux `taskset` can restrict it to a part of the machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def one_line(error: BaseException | str) -> str:
    """The error as one line of at most 300 characters."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:300]


def load(script: Path, name: str = ""):
    """Import the file as a module, under its own name or the given one. An error of the import is raised.

    Importing a file of algos/ has no side effect. A module that the script imports from its own folder stays private to
    it: another script, or this program, may import a different module of the same name from another folder.
    """
    folder = script.resolve().parent
    neighbours = {file.stem for file in folder.glob("*.py")}
    neighbours |= {file.parent.name for file in folder.glob("*/__init__.py")}

    def unload_neighbours() -> dict:
        return {n: sys.modules.pop(n) for n in [*sys.modules] if n.partition(".")[0] in neighbours}

    spec = importlib.util.spec_from_file_location(name or script.stem, script)
    module = importlib.util.module_from_spec(spec)
    others = unload_neighbours()
    sys.modules[spec.name] = module  # the dataclass decorator reads its own module from here
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
        unload_neighbours()
        sys.modules.update(others | {spec.name: module})
    return module


def read_json(file: Path) -> dict:
    """Read a JSON object. The result is empty if the file does not exist or is not valid JSON."""
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def is_complete(run: Path) -> bool:
    """Whether the summary of a run folder belongs to the arguments in its config.json.

    A run that was resumed with a larger --total-timesteps has new arguments there, but still its old summary.
    """
    summary = read_json(run / "summary.json")
    args = read_json(run / "config.json").get("args")
    return bool(summary) and args in (None, summary.get("args", args))


def text_of(script: Path) -> str:
    """The SHA-256 of a script, or "" if the script no longer exists."""
    return hashlib.sha256(script.read_bytes()).hexdigest() if script.is_file() else ""


def declared(runs_dir: Path) -> dict[tuple, dict]:
    """Map (exp_name, env_id, seed) to the record of every run that a sweep has declared in this folder."""
    runs = read_json(runs_dir / "sweep.json").get("runs", [])
    runs = runs if isinstance(runs, list) else []
    keyed = [(tuple(run.get(key) for key in KEYS), run) for run in runs if isinstance(run, dict)]
    return {key: run for key, run in keyed if None not in key}


def has_args(record: dict, args: dict, but: tuple[str, ...] = ()) -> bool:
    """Whether a run with these arguments is the run of the record.

    Only arguments that both have are compared, and not the flags in `but`. Older versions of sweep.py recorded no
    arguments, and an older script may not have had all flags.
    """
    wanted = (record.get("args") or {}).items()
    return all(args.get(flag, value) == value for flag, value in wanted if flag not in but)


def has_text(record: dict, run: Path) -> bool:
    """Whether the copy of the script in a run's folder has the SHA-256 of the record, if the record has one."""
    text = record.get("sha256")
    return not text or text_of(run / Path(record.get("script", "?")).name) == text


def commit_of(script: Path) -> str:
    """The commit of the repository that contains a file, with "-dirty" after it if there are uncommitted changes.

    It is "unknown" outside of a repository or without Git.
    """
    git = ["git", "-C", str(script.resolve().parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True).stdout.strip() or "unknown"
    except FileNotFoundError:
        return "unknown"
