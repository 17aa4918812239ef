"""Each silent mistake in mutants.txt is seen by scripts/probe.py, by the check that names its section."""

import gc
import re
import sys
import warnings
from pathlib import Path

import edits
import probe
import pytest
from conftest import EVERY, OFF_POLICY, PQN, script


def faster(text: str) -> str:
    """A file for pictures with an eighth of the channels: what is wrong with it stays wrong."""
    if "nn.Conv2d" not in text:
        return text
    before, start, rest = text.partition("class Agent")
    agent, end, after = rest.partition("\n\n\n")
    agent = re.sub(r"\b(32|64|512)\b", lambda match: str(int(match[0]) // 8), agent)
    return before + start + agent + end + after


PROBED = [name for name in EVERY if name not in OFF_POLICY + PQN]  # which it does not know yet
MUTANTS = edits.read(edits.MUTANTS)
pytestmark = pytest.mark.mutations


def findings(file: Path, names: list[str]) -> dict:
    """What these checks of the probe say about a file, once it is known to run."""
    with warnings.catch_warnings(action="ignore"):
        subject = probe.open_subject(file, seed=1)
        subject.suspect = True  # a learned check need not try whether it is only slow
        results = {name: probe.run_check(subject, name) for name in ["trains", *names]}
    assert results["trains"].verdict == "passes", results["trains"]
    return results


@pytest.fixture(autouse=True)
def forget():
    """Nothing of a file that was probed stays: hundreds of networks would fill the memory."""
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if name.startswith(("changed_", "my_experiment_")):
            del sys.modules[name]
    gc.collect()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant["name"])
def test_mutant_is_caught(mutant, tmp_path):
    """The edited file trains without an error.
    Would break: a check that no longer sees its mistake, or cannot say what it is."""
    changed = tmp_path / "changed.py"
    changed.write_text(faster(edits.apply(script(mutant["file"]).read_text(), mutant["edits"])))
    result = findings(changed, [mutant["check"]])[mutant["check"]]
    assert result and result.verdict == mutant["verdict"], result
    assert result.hint


@pytest.mark.parametrize("name", PROBED)
def test_right_file_passes(name, tmp_path):
    """The checks that catch a mutant of a file pass the file, under another name and elsewhere.
    Would break: a false alarm, a check tied to the name or place of a file."""
    file = tmp_path / "my_experiment.py"
    file.write_text(faster(script(name).read_text()))
    checks = [mutant["check"] for mutant in MUTANTS if mutant["file"] == name]
    results = findings(file, list(dict.fromkeys(checks)))
    assert all(results.values())
    assert {result.verdict for result in results.values()} == {"passes"}, results
    assert {path.name for path in tmp_path.iterdir()} <= {"my_experiment.py", "__pycache__"}


def test_edits_apply():
    """Would break: a mutant or a correct modification that the files have left behind."""
    assert edits.failures() == []


FILE = """import os

class Agent:
    def act(self):
        for x in range(3):
            y = x
            if x > 1:
                print(x)  # last
        return os.getcwd(x, y)

def act(x):
    print(x)
"""


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (("act", ["(x)"], ["()"]), None, "found 2 times"),
        (("act", ["print(x)"], ["x += 1", "print(x)"]), "    print(x)\n", "    x += 1\n    print(x)\n"),
        (("Agent.act", ["x > 1"], None), "            if x > 1:\n                print(x)  # last\n", ""),
        (("Agent.act", ["if x > 1:", "    print("], ["print("]), "if x > 1:\n                print(", "print("),
        (("module", ["import os"], ["import os as os"]), "import os\n", "import os as os\n"),
        (("Agent.act", ["print(y)"], ["pass"]), None, "found 0 times: print"),
        (("Agent", ["import os"], ["pass"]), None, "found 0 times: import os"),
        (("Agent.act", ["class Agent"], ["class Other"]), None, r"found 0 times \(but in Agent\)"),
        (("Agent.step", ["x"], ["y"]), None, "step is defined 0 times"),
        (("Agent.act", ["print(x)"], None), None, "expected an indented block"),
    ],
)  # fmt: skip
def test_an_edit(edit, old, new):
    """Would break: an edit that lands elsewhere, indentation lost, a fragment that occurs twice taken."""
    if old is None:
        with pytest.raises((ValueError, SyntaxError), match=new):
            edits.apply(FILE, [edit])
    else:
        before, _, after = FILE.rpartition(old)
        assert edits.apply(FILE, [edit]) == before + new + after


def test_mutants_are_all_there():
    """Would break: two mutants of one name, a file without any, a mistake of the notes forgotten."""
    assert len({mutant["name"] for mutant in MUTANTS}) == len(MUTANTS)
    assert {mutant["file"] for mutant in MUTANTS} == set(PROBED)
    sources = " ".join(mutant["source"] for mutant in MUTANTS)
    notes = {int(number) for number in re.findall(r"notes (\d+)", sources)}
    impossible = {12, 14, 16}  # too short a run, a replay of floats, skipped frames of ale-py
    assert notes == set(range(1, 18)) - impossible
