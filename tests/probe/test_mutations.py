"""Each silent mistake in mutants.txt is seen by scripts/probe.py, by the check that names its section."""

import gc
import re
import sys
import warnings
from pathlib import Path

import probe
import pytest
from conftest import (
    C51,
    EVERY,
    FILES,
    LSTM,
    MULTI,
    OFF_POLICY,
    OTHER_PIXELS,
    PQN,
    ROOT,
    SEEDS,
    faster,
    script,
)
from plainrl_tools import edits
from plainrl_tools.common import load

UNKNOWN = (
    OFF_POLICY + LSTM + PQN + C51 + MULTI + SEEDS + OTHER_PIXELS
)  # the probe does not know these yet
PROBED = [name for name in EVERY if name not in UNKNOWN]
MUTANTS = edits.read(edits.MUTANTS)
pytestmark = pytest.mark.mutations


def findings(file: Path, names: list[str]) -> dict:
    """What these checks of the probe say about a file, once it is known to run."""
    with warnings.catch_warnings(action="ignore"):
        subject = probe.open_subject(file, seed=1)
        subject.suspect = True  # a learned check need not try whether it is only slow
        results = {"trains": probe.run_check(subject, "trains")}
        applies = [name for name in names if subject.applies(name)]
        results |= {name: probe.run_check(subject, name) for name in applies}
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
    own = {mutant["check"] for mutant in MUTANTS if mutant["file"] == name}
    siblings = [sibling for sibling in PROBED if FILES[sibling].kind == FILES[name].kind]
    of_siblings = {mutant["check"] for mutant in MUTANTS if mutant["file"] in siblings}
    # a file without mutants gets the checks of its siblings
    found = findings(file, sorted(own or of_siblings))
    verdicts = {result.verdict for result in found.values() if result}
    assert len(found) > 1 and verdicts <= {"passes", *([] if own else ["differs"])}, found
    assert {path.name for path in tmp_path.iterdir()} <= {"my_experiment.py", "__pycache__"}


def test_edits_apply():
    """Would break: a mutant or a correct modification that the files have left behind."""
    assert edits.failures() == []


PATCHES = [(path, entry) for path in edits.PATCHES for entry in edits.read(path)]


@pytest.mark.parametrize(("path", "patch"), PATCHES, ids=[entry["name"] for _, entry in PATCHES])
def test_changed_file_of_a_study(path, patch, tmp_path):
    """Would break: a changed file that is the unchanged one or cannot be imported, one that no study runs."""
    edits.write_patched(patch["name"], tmp_path)
    copy = tmp_path / f"{patch['name']}.py"
    assert copy.read_text() != script(patch["file"]).read_text()
    load(copy).Args()
    study = ROOT / "scripts" / f"{path.parent.name}.sh"
    assert re.search(rf"\b{patch['name']}\b", study.read_text())


def test_changed_file_that_no_longer_applies(tmp_path, monkeypatch):
    """Would break: the right file run under the name of a mistake."""
    text = (
        script("ppo_atari").read_text().replace('game["frameskip"] = 4', "game.update(frameskip=4)")
    )
    (tmp_path / "ppo_atari.py").write_text(text)
    monkeypatch.setattr(edits, "ALGOS", tmp_path)
    with pytest.raises(
        ValueError, match="no_frame_skip of benchmarks/studies/atari/patches.txt does not apply"
    ):
        edits.write_patched("no_frame_skip", tmp_path / "copies")
    assert not (tmp_path / "copies").exists()


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
    """Would break: two mutants of one name, a mistake of the notes forgotten."""
    assert len({mutant["name"] for mutant in MUTANTS}) == len(MUTANTS)
    assert {mutant["file"] for mutant in MUTANTS} <= set(PROBED)
    sources = " ".join(mutant["source"] for mutant in MUTANTS)
    notes = {int(number) for number in re.findall(r"notes (\d+)", sources)}
    impossible = {12, 14, 16}  # too short a run, a replay of floats, skipped frames of ale-py
    assert notes == set(range(1, 18)) - impossible
