"""Each file of algos/ can be read: it stands alone, it packs nothing, and it differs from its siblings by its
algorithm only."""

import ast
import difflib
import functools
import json
import random
import re
import shutil
from collections import defaultdict

import numpy as np
import pytest
import readability
import torch
from conftest import (
    ALGOS,
    CONTINUOUS,
    EVERY,
    FILES,
    LOOPS,
    PARENTS,
    ROOT,
    RUNNERS,
    VARIANTS,
    command_line,
    has,
    load,
    script,
    without_docstring,
)

OWN = {"Args", "train", "Replay"}  # what each file has its own of
PHASES = "Set up|Storage|Rollout|Advantages|Update|Log|Evaluate|Save"  # comments in train()
# How many versions a class, function or phase of train() has in all files, but for the tagged ones of variants and
# for what a file's row calls its own. All others have one.
VERSIONS = {
    "Agent": 10,
    "check_finite": 3,
    "check_resume": 4,
    "check_video": 2,
    "choose_device": 2,
    "epsilon_at": 2,
    "evaluate": 9,
    "layer_init": 2,
    "make_envs": 4,
    "open_envs": 8,
    "open_run": 3,
    "ppo_loss": 2,
    "summarize": 2,
    "td_target": 2,
    "update": 8,
    "update_target": 2,
    "the command line": 2,
    "train, while": 7,
    "train, Log": 7,
    "train, Evaluate": 8,
    "train, Save": 6,
    "train, end": 3,
}
SMALL = ["--num-envs", 2, "--total-timesteps", 64, "--eval-episodes", 2]
SMALL += ["--num-steps", 8, "--num-minibatches", 2, "--buffer-size", 64, "--learning-starts", 32]


@pytest.fixture(params=EVERY)
def name(request):
    return request.param


def test_readability(name):
    """Would break: a file that is packed, or a function that does not fit into a reader's head."""
    measured = readability.measure(script(name).read_text())
    limits = readability.LIMITS
    assert {key: measured[key] for key in limits if measured[key] > limits[key]} == {}


def test_limits_of_contributing():
    """Would break: a limit in CONTRIBUTING.md that is not the one that is held."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (\w+)\b.*\| (\d+) \|$", page, re.M)
    assert {name: int(most) for name, most in rows} == readability.LIMITS


@pytest.mark.parametrize(
    "line",
    ["f(x), g(y)", "f(x) if x else g(y)", "x or f(x)", "_ = x or f(x)", "_ = f(x) if x else 0",
     "a, b, c = 1, 2, 3", "a |= {1: 2}", "a = b | c | {1: 2}", "f(a := 1)", "f(x=(a := 1))",
     "import json, os", "[f(x) for x in y]"],
)  # fmt: skip
def test_tricks_are_seen(line):
    """Would break: the measure itself; the lines after are what it should have been."""
    assert readability.tricks(f"pass\n{line}\na, b = 1, 2\n_, a = f(x) or 1\nf(x)\n") == [2]


def test_measures():
    """Would break: a measure that counts something else. By hand: 5 + 5 + 7 + 27 tokens in four lines."""
    text = '"""No code."""\n# nothing\ndef f():\n    for x in y:\n        a = b if x else c  # more\n    g(1'
    text += "".join(f", {number}" for number in range(2, 11)) + ", f'{h}')\n"
    measured = readability.measure(text)
    assert measured["tokens"] == 5 + 5 + 7 + 27
    assert measured["density"] == 11 and measured["crowded"] == 1
    assert measured["longest"] == 4 and measured["branches"] == 2 and measured["tricks"] == 0


def test_imports_nothing_of_the_repository(name):
    """Would break: a helper module shared between algorithms."""
    # folders without Python files, such as wandb/ of Weights & Biases, are no modules of ours
    ours = {path.parent.name for path in ROOT.glob("*/*.py")}
    ours |= {path.stem for path in [*ROOT.glob("*.py"), *ALGOS.glob("*.py")]}
    for node in ast.walk(ast.parse(script(name).read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module.split(".")[0] not in ours
        elif isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & ours


def test_import_has_no_side_effect(name, tmp_path, monkeypatch, capfd):
    """Would break: code at module level that prints, seeds, sets threads or writes."""

    def state():
        generators = str(np.random.get_state()), random.getstate(), torch.get_rng_state().tolist()
        return *generators, torch.get_num_threads(), torch.get_default_dtype()

    monkeypatch.chdir(tmp_path)
    before = state()
    load(name)
    assert state() == before
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [*LOOPS, "ppo_pixels", *RUNNERS])
def test_runs_when_copied_alone(name, tmp_path):
    """The others have the same command line. Would break: any use of a file beside it, or of the folder it is started
    from."""
    shutil.copy(script(name), tmp_path)
    args, pairs = load(name), zip(SMALL[::2], SMALL[1::2])
    flags = [word for pair in pairs if has(args, pair[0][2:].replace("-", "_")) for word in pair]
    flags += ["--env-id", "Pendulum-v1"] if name in CONTINUOUS else []
    process = command_line(*flags, script=f"{name}.py", cwd=tmp_path)
    _, errors = process.communicate(timeout=600)  # Ray takes minutes on a busy machine
    assert process.returncode == 0, errors
    (summary,) = tmp_path.glob("runs/*/summary.json")
    assert json.loads(summary.read_text())["algo"] == name
    assert summary.with_name(f"{name}.py").read_text() == script(name).read_text()
    assert {path.name for path in tmp_path.iterdir()} <= {f"{name}.py", "runs", "__pycache__"}


@pytest.mark.parametrize("name", VARIANTS)
def test_variant_differs_by_its_change_only(name):
    """Would break: a fix made in one file and not in its sibling, a change that no tag explains."""
    row = FILES[name]
    old, new = without_docstring(row.parent), without_docstring(name)
    opcodes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    hunks = [hunk for hunk in opcodes if hunk[0] != "equal"]
    changed = sum(hunk[2] - hunk[1] + hunk[4] - hunk[3] for hunk in hunks)
    assert 0 < changed <= row.most
    for _, old_start, old_end, start, end in hunks:
        unused_import = [line for line in old[old_start:old_end] if line.startswith("import ")]
        if start == end and unused_import == old[old_start:old_end]:
            continue  # there is no line that could have a tag
        assert any(row.tag in line for line in new[start:end]), new[start:end]


def phases(train: list[str]) -> dict[str, str]:
    """The phases of train() by the comments over them, and its loop's head and end."""
    found, phase = defaultdict(str), "begin"
    for line in train:
        if comment := re.match(rf" +# ({PHASES})\b", line):
            phase = comment[1]
        elif re.match("    (for|while) ", line):
            phase = "while"
        elif line.startswith("    close_run("):
            phase = "end"
        found[f"train, {phase}"] += f"{line}\n"
    return found


@functools.cache
def parts() -> dict[str, dict[str, str]]:
    """{class, function, or phase of train(): {file: its text}}; of a class without its docstring, which may hold a
    figure measured with that file."""
    found = defaultdict(dict)
    for name in EVERY:
        text = script(name).read_text()
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                source = lines[node.lineno - 1 : node.end_lineno]
                if isinstance(node, ast.ClassDef):
                    first = node.body[0]
                    del source[first.lineno - node.lineno : first.end_lineno - node.lineno + 1]
                found[node.name][name] = "\n".join(source)
                if node.name == "train" and name in PARENTS:
                    for phase, part in phases(source).items():
                        found[phase][name] = part
        found["the command line"][name] = text.rpartition("\nif __name__")[2]
    return found


SHARED = {part for part in parts() if part not in OWN and not part.startswith("train, ")}
SHARED |= {part for part in VERSIONS if part.startswith("train, ")}


def tags_of(name: str) -> list[str]:
    """The tag of a variant, and those of its parents."""
    return [FILES[name].tag, *tags_of(FILES[name].parent)] if FILES[name].parent else []


@pytest.mark.parametrize("part", sorted(SHARED))
def test_what_siblings_share_is_the_same(part):
    """Every class and function that two files have, and what follows the rollout in train().
    Would break: a fix made in one file and not in its sibling, which makes one more version of it."""
    versions = defaultdict(list)
    for name, text in parts()[part].items():
        tagged = any(tag in text for tag in tags_of(name))
        if not tagged and part not in FILES[name].own:
            versions[text].append(name)
    listing = sorted(versions.values())
    expected = VERSIONS.get(part, min(len(versions), 1))  # 0 of what variants alone have
    assert len(versions) == expected, f"{part} has {len(versions)} versions: {listing}"


def test_every_file_has_a_row():
    """Would break: a new file that no test runs."""
    assert {path.stem for path in ALGOS.glob("*.py")} == {*FILES}
