"""Each silent mistake in mutants.txt is seen by scripts/probe.py, by the check that names its section."""

import gc
import re
import sys
import warnings
from collections import Counter
from pathlib import Path

import probe
import pytest
from conftest import EVERY, script

FILES = {  # the beginnings of the mutants' names, and the files that they change
    "ddp-atari-": "ppo_atari_ddp",
    "ddp-": "ppo_continuous_ddp",
    "ray-": "ppo_continuous_ray",
    "rpo-": "rpo_continuous",
    "squashed-": "ppo_squashed",
    "penalty-": "ppo_penalty",
    "rnd-": "ppo_rnd",
    "icm-": "ppo_icm",
    "rad-": "ppo_rad",
    "drac-": "ppo_drac",
    "trpo-": "trpo_continuous",
    "discrete-": "ppo",
    "reinforce-": "reinforce",
    "vector-dqn-": "dqn",
    "ppo-atari-": "ppo_atari",
    "a2c-": "a2c_atari",
    "dqn-pixels-": "dqn_pixels",
    "dqn-": "dqn_atari",
    "pixels-": "ppo_pixels",
    "": "ppo_continuous",
}
HEAD = re.compile(
    r"# (?P<name>[\w-]+), (?P<verdict>broken|differs): (?P<check>[\w-]+) \((?P<source>.+?)\): .+"
)


def read_mutants() -> list[dict]:
    """Name, file, verdict, check, source, old and new text of each, and whether --more alone runs it: the edit was
    there before in another file, or another of its file and check. Without new text the lines go."""
    mutants, known, number = [], set(), Counter()
    text = Path(__file__).with_name("mutants.txt").read_text()
    for block in re.split(r"\n(?=# )", text)[1:]:
        head, *lines = block.rstrip().split("\n")
        assert all(line[0] in "-+" for line in lines), block
        old, new = ("\n".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
        if not any(line.startswith("+") for line in lines):
            old += "\n"
        mutant = HEAD.fullmatch(head).groupdict() | {"old": old, "new": new}
        mutant["file"] = next(file for start, file in FILES.items() if head[2:].startswith(start))
        kind = mutant["check"], " ".join(old.split()), " ".join(new.split())
        mutant["again"] = kind in known or number[mutant["file"], mutant["check"]] == 1
        known.add(kind)
        number[mutant["file"], mutant["check"]] += not mutant["again"]
        mutants.append(mutant)
    return mutants


def faster(text: str) -> str:
    """A file for pictures with an eighth of the channels: what is wrong with it stays wrong."""
    if "nn.Conv2d" not in text:
        return text
    before, start, rest = text.partition("class Agent")
    agent, end, after = rest.partition("\n\n\n")
    agent = re.sub(r"\b(32|64|512)\b", lambda match: str(int(match[0]) // 8), agent)
    return before + start + agent + end + after


MUTANTS = read_mutants()
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
def test_mutant_is_caught(request, mutant, tmp_path):
    """The edit applies to the file of today, which then trains without an error.
    Would break: a check that no longer sees its mistake, or cannot say what it is."""
    source = script(mutant["file"]).read_text()
    assert source.count(mutant["old"]) == 1, "the edit does not apply: the file has changed"
    if mutant["again"] and not request.config.getoption("more"):
        pytest.skip("one more of its kind: pytest --more")
    changed = tmp_path / "changed.py"
    changed.write_text(faster(source.replace(mutant["old"], mutant["new"])))
    result = findings(changed, [mutant["check"]])[mutant["check"]]
    assert result and result.verdict == mutant["verdict"], result
    assert result.hint


@pytest.mark.parametrize("name", EVERY)
def test_right_file_passes(request, name, tmp_path):
    """The checks that catch a mutant of a file pass the file, under another name and elsewhere; with --more all exact
    ones do. Would break: a false alarm, a check tied to the name or place of a file."""
    file = tmp_path / "my_experiment.py"
    file.write_text(faster(script(name).read_text()))
    checks = [mutant["check"] for mutant in MUTANTS if mutant["file"] == name]
    if request.config.getoption("more"):
        checks += [check for check in probe.CHECKS if not check.startswith("learns-")]
        subject = probe.open_subject(file, seed=1)
        probe.run_check(subject, "trains")  # it shows what kind of file it is
        checks = [check for check in checks if subject.applies(check)]
    results = findings(file, list(dict.fromkeys(checks)))
    assert all(results[mutant["check"]] for mutant in MUTANTS if mutant["file"] == name)
    verdicts = {result.verdict for result in results.values() if result}
    assert verdicts == {"passes"}, results
    assert {path.name for path in tmp_path.iterdir()} <= {"my_experiment.py", "__pycache__"}


def test_mutants_are_all_there():
    """Would break: two mutants of one name, a file without any, a mistake of the notes forgotten."""
    assert len({mutant["name"] for mutant in MUTANTS}) == len(MUTANTS)
    assert {mutant["file"] for mutant in MUTANTS} == set(EVERY)
    sources = " ".join(mutant["source"] for mutant in MUTANTS)
    notes = {int(number) for number in re.findall(r"notes (\d+)", sources)}
    impossible = {12, 14, 16}  # too short a run, a replay of floats, skipped frames of ale-py
    assert notes == set(range(1, 18)) - impossible
