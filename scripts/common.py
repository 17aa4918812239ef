"""What the command lines of scripts/ and benchmarks/ share: `from common import check, load, read_json`."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def check(ok, message: str, status: int = 2) -> None:
    """End the program with one line, and this exit status, unless ok."""
    if not ok:
        print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
        raise SystemExit(status)


def one_line(error: BaseException | str) -> str:
    """An error in at most 300 characters without a line break."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:300]


def load(script: Path, name: str = ""):
    """The file as a module, under its own name or another; importing a file of algos/ has no side effect.
    Whatever stops the import is raised."""
    spec = importlib.util.spec_from_file_location(name or script.stem, script)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


def read_json(file: Path) -> dict:
    """A JSON object; one that is not there or not whole is empty."""
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def commit_of(script: Path) -> str:
    """The commit of a file's repository, marked where it has changes; "unknown" without one."""
    git = ["git", "-C", str(script.resolve().parent), "describe", "--always", "--dirty"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip() or "unknown"
