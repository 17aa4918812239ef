"""docs/custom-environments.md: its code is written to a file, its commands are run, its promise is kept."""

import json
import re
import shutil
import subprocess
import sys
import warnings

import pytest
from conftest import ROOT

PAGE = (ROOT / "docs" / "custom-environments.md").read_text()
MODULE, CHECK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LINES = [
    line
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
TRAIN, (TIME,) = (
    [line for line in LINES if "algos/" in line],
    [line for line in LINES if "timeit" in line],
)


@pytest.fixture
def folder(tmp_path):
    """Looks like the repository's root, with the page's module in it."""
    (tmp_path / "point.py").write_text(MODULE)
    shutil.copytree(ROOT / "algos", tmp_path / "algos")
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    return tmp_path


def run(line: str, folder) -> str:
    line = line.replace(" python ", f" OMP_NUM_THREADS=1 {sys.executable} ")
    process = subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=240
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_checkers_say_nothing(folder, monkeypatch):
    """Would break: an example that gets a warning from what it recommends."""
    monkeypatch.syspath_prepend(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(CHECK, "page", "exec"), {})


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 3])
def test_commands_train(folder, number):
    """Would break: a command that does not run, an evaluation that is not near what the page promises."""
    assert len(TRAIN) == 5
    run(TRAIN[number], folder)
    (summary,) = folder.glob("runs/*/summary.json")
    found = json.loads(summary.read_text())
    assert found["env_id"].startswith("point:Point") and summary.parent.name.startswith(
        "point-Point"
    )
    assert 83 < found["eval_return_mean"] < 92


def test_time_of_a_step(folder):
    """Would break: the page's line to measure it; a tenth of a millisecond would be slow."""
    amount, unit = re.search(r"([\d.]+) (nsec|usec|msec) per loop", run(TIME, folder)).groups()
    assert float(amount) * {"nsec": 1e-3, "usec": 1, "msec": 1e3}[unit] < 100


def test_film(folder):
    """Would break: enjoy.py that does not find the module."""
    run(f"{TRAIN[0]} --eval-episodes 2".replace("100000", "8192"), folder)
    (path,) = folder.glob("runs/*")
    run(f"PYTHONPATH=. python scripts/enjoy.py {path} --episodes 1 --video point.mp4", folder)
    assert (folder / "point.mp4").stat().st_size > 1000
