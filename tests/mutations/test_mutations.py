"""Each of the silent mistakes in mutants.txt is caught by scripts/probe.py, by the check that names its section.

    pytest tests/mutations

They take a few minutes; plain `pytest` leaves them out (see conftest.py)."""

import importlib.util
import re
import sys
import warnings
from pathlib import Path

import pytest
from conftest import command_line

ROOT = Path(__file__).resolve().parents[2]
FILES = [("dqn-pixels-", "dqn_pixels"), ("pixels-", "ppo_pixels")]
FILES += [
    ("rpo-", "rpo_continuous"),
    ("ppo-atari-", "ppo_atari"),
    ("a2c-", "a2c_atari"),
    ("dqn-", "dqn_atari"),
]
FILES += [
    ("discrete-", "ppo"),
    ("vector-dqn-", "dqn"),
    ("reinforce-", "reinforce"),
    ("", "ppo_continuous"),
]  # beginnings of the mutants' names, and the files that they change
HEAD = re.compile(
    r"# (?P<name>[\w-]+), caught by: (?P<check>[\w-]+) \((?P<source>.+?)\): (?P<mistake>.+)"
)


def read_mutants() -> list[dict]:
    """Name, file, check, source, mistake, old and new text of each block; without new text the line goes."""
    mutants = []
    for block in re.split(r"\n(?=# )", (Path(__file__).parent / "mutants.txt").read_text())[1:]:
        head, *lines = block.rstrip().split("\n")
        old, new = ("\n".join(line[1:] for line in lines if line.startswith(sign)) for sign in "-+")
        assert all(line[0] in "-+" for line in lines), block
        alone = not any(line.startswith("+") for line in lines)
        mutant = HEAD.fullmatch(head).groupdict() | {"old": old + "\n" * alone, "new": new}
        mutants.append(
            mutant
            | {"file": next(file for start, file in FILES if mutant["name"].startswith(start))}
        )
    return mutants


MUTANTS = read_mutants()
pytestmark = pytest.mark.mutations


@pytest.fixture(scope="module")
def probe():
    spec = importlib.util.spec_from_file_location("probe", ROOT / "scripts" / "probe.py")
    module = sys.modules["probe"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant["name"])
def test_mutant_is_caught(probe, mutant, tmp_path):
    """Applies to the file of today, trains without an error, and fails the check it should, which the original passes
    (test_right_file_passes)."""
    source = (ROOT / "algos" / f"{mutant['file']}.py").read_text()
    assert source.count(mutant["old"]) == 1, "the edit does not apply: the file has changed"
    changed = tmp_path / "changed.py"
    changed.write_text(source.replace(mutant["old"], mutant["new"]))
    with warnings.catch_warnings(action="ignore"):
        subject = probe.open_subject(changed, seed=1)
        assert probe.run_check(subject, "trains").passed, "a plain run would show this as well"
        result = probe.run_check(subject, mutant["check"])
    assert not result.passed, f"not caught: {result.measured}"
    assert not re.match(r"\w+Error", result.measured) or mutant["name"] in (
        "pickled",
        "ckpt-without-stats",
    ), result
    assert result.hint


@pytest.mark.parametrize("file", sorted((ROOT / "algos").glob("*.py")), ids=lambda file: file.stem)
def test_right_file_passes(probe, file, tmp_path):
    """A renamed copy in another folder. Would break: a false alarm, a check tied to the name or place of a file.
    To save time, the files for pixels, RPO and ppo.py are spared the learned checks but for lost lives and those that
    catch a mutant of theirs; A2C and the files for any pictures have the latter only, of all checks."""
    (tmp_path / "my_experiment.py").write_text(file.read_text())
    subject, flags = probe.open_subject(tmp_path / "my_experiment.py", seed=7), ["--seed", 7]
    if "atari" in file.stem or "pixels" in file.stem or file.stem in ("rpo_continuous", "ppo"):
        own = {mutant["check"] for mutant in MUTANTS if mutant["file"] == file.stem} | {
            "learns-life-lost"
        }
        spared = [name for name in probe.CHECKS if name.startswith("learns-") and name not in own]
        names = [name for name in probe.CHECKS if subject.applies(name) and name not in spared]
        if file.stem in ("a2c_atari", "ppo_pixels", "dqn_pixels"):
            names = [name for name in names if name in own]
        flags += ["--only", *names]
    process = command_line(
        "my_experiment.py", *flags, script=ROOT / "scripts" / "probe.py", cwd=tmp_path
    )
    out, err = process.communicate(timeout=600)
    assert (process.returncode, err) == (0, ""), out
    assert "FAIL" not in out and re.search(r"(\d+) checks, 0 failed", out).group(1) == str(
        out.count("\npass")
    )
    assert {path.name for path in tmp_path.iterdir()} <= {"my_experiment.py", "__pycache__"}


def test_enough_mutants():
    """Would break: a table that shrinks, two mutants of one name."""
    assert len({mutant["name"] for mutant in MUTANTS}) == len(MUTANTS)
    number = {file: sum(mutant["file"] == file for mutant in MUTANTS) for _, file in FILES}
    assert (
        number["ppo_continuous"] >= 11 + 15 and number["ppo_atari"] + number["a2c_atari"] >= 12 + 15
    )
    assert number["ppo_pixels"] >= 8 and number["dqn_pixels"] >= 6
    assert (
        number["dqn_atari"] >= 15 + 15
        and number["dqn"] >= 15
        and number["ppo"] + number["reinforce"] >= 15
    )
    notes = {
        int(number) for mutant in MUTANTS for number in re.findall(r"notes (\d+)", mutant["source"])
    }
    assert notes == {*range(1, 18)} - {
        12,
        14,
        16,
    }  # too short a run, a replay of floats, skipped frames of ale-py


def test_table_in_the_documentation(probe):
    """Would break: docs/probe.md left behind by mutants.txt or by the checks."""
    page = (ROOT / "docs" / "probe.md").read_text().splitlines()
    for m in MUTANTS:
        section = probe.CHECKS[m["check"]].section
        assert (
            f"| {m['name']} | {m['mistake']} | {m['source']} | `{m['check']}` | {section} |" in page
        )
    described = [line for line in page if line.startswith("| `")]
    checks = [
        f"| `{name}` | {check.section} | {' '.join(sorted(check.kinds)) or 'all'} | "
        f"{' '.join(check.function.__doc__.split())} |"
        for name, check in probe.CHECKS.items()
    ]
    assert described == checks
