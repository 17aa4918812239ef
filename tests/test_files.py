"""Each algorithm is one file that stands alone, short, and a variant differs from its parent by its change only."""

import ast
import difflib
import json
import shutil

import pytest
from conftest import ALGOS, CLASSIC, NAMES, ROOT, command_line

FILES = sorted(set(ALGOS.glob("*.py")) | {ALGOS / f"{name}.py" for name in NAMES})
SMALL = ("--num-envs", 2, "--total-timesteps", 64, "--eval-episodes", 2)
TINY = {
    name: ("--env-id", "Pendulum-v1", "--num-steps", 8, "--num-minibatches", 2) for name in NAMES
} | {
    "ppo": ("--num-steps", 8, "--num-minibatches", 2),
    "dqn": ("--buffer-size", 64, "--learning-starts", 32),
    "reinforce": (),
    "ppo_atari": ("--num-steps", 8, "--num-minibatches", 2),
    "a2c_atari": (),
    "dqn_atari": ("--buffer-size", 64, "--learning-starts", 32),
    "ppo_pixels": ("--num-steps", 8, "--num-minibatches", 2),
    "dqn_pixels": ("--buffer-size", 64, "--learning-starts", 32),
}
SHARED = [  # files, and what is the same in them to the byte
    (
        ("ppo_atari", "a2c_atari", "dqn_atari"),
        ("make_envs", "write", "load_checkpoint", "PixelConv2d", "check"),
    ),
    (("ppo_atari", "a2c_atari", "dqn_atari"), ("layer_init",)),
    (("ppo_atari", "a2c_atari"), ("evaluate", "Agent")),
    (("ppo_continuous", "ppo_atari"), ("compute_gae", "write", "load_checkpoint", "check")),
    (("ppo_continuous", "ppo"), ("compute_gae", "ppo_loss", "update", "RunningMeanStd")),
    (("ppo_continuous", *CLASSIC), ("make_envs", "flatten", "check", "write", "load_checkpoint")),
    (("dqn_atari", "dqn", "dqn_pixels"), ("td_target", "dqn_loss", "update")),
    (("ppo_pixels", "dqn_pixels"), ("make_envs",)),
    (
        ("ppo_atari", "ppo_pixels", "dqn_pixels"),
        ("PixelConv2d", "Flatten", "layer_init", "write", "load_checkpoint"),
    ),
    (("ppo_atari", "ppo_pixels"), ("compute_gae", "ppo_loss", "update", "check")),
    (("ppo", "ppo_pixels"), ("RunningMeanStd",)),
]
OVER = {"dqn": 372, "dqn_atari": 398, "dqn_pixels": 392, "ppo": 386, "ppo_continuous": 394, "ppo_pixels": 380,
        "rpo_continuous": 404}  # longer than 350 lines, and not to grow  # fmt: skip
VARIANTS = [
    ("ppo_continuous", "rpo_continuous", 20, "# RPO:")
]  # parent, child, most changed lines, tag of each hunk

IMPORT = """
import importlib.util, random, sys
import numpy, torch
before = torch.get_rng_state(), torch.get_num_threads(), str(numpy.random.get_state()), random.getstate()
dtype = torch.get_default_dtype()
spec = importlib.util.spec_from_file_location("algo", sys.argv[1])
module = sys.modules["algo"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
after = torch.get_rng_state(), torch.get_num_threads(), str(numpy.random.get_state()), random.getstate()
assert torch.equal(before[0], after[0]), "the import draws from torch's generator"
assert before[1] == after[1], "the import changes the number of threads"
assert before[2:] == after[2:], "the import draws from or seeds a generator"
assert dtype == torch.get_default_dtype()
"""


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def file(request):
    return request.param


def test_import_has_no_side_effect(file, tmp_path):
    """Would break: code at module level that prints, seeds, sets threads or writes."""
    script = tmp_path / "check.py"
    script.write_text(IMPORT)
    process = command_line(file, script=script, cwd=tmp_path)
    output = process.communicate(timeout=120)
    assert (process.returncode, *output) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["check.py"]


def test_budget(file):
    """Would break: a file that grows beyond what is read in ten minutes."""
    lines = file.read_text().splitlines()
    assert len(lines) <= OVER.get(
        file.stem, 350
    )  # all of them: blank lines, comments and docstrings as well
    assert [number for number, line in enumerate(lines, 1) if len(line) > 120] == []


def test_imports_nothing_of_the_repository(file):
    """Would break: a helper module shared between algorithms."""
    ours = {path.stem for path in ROOT.iterdir()} | {path.stem for path in FILES}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module.split(".")[0] not in ours
        elif isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & ours


def test_runs_when_copied_alone(file, tmp_path):
    """Would break: any use of a file beside it, or of the folder it is started from."""
    shutil.copy(file, tmp_path)
    process = command_line(*SMALL, *TINY[file.stem], script=file.name, cwd=tmp_path)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    (summary,) = tmp_path.glob("runs/*/summary.json")
    assert json.loads(summary.read_text())["algo"] == file.stem
    assert {path.name for path in tmp_path.iterdir()} <= {file.name, "runs", "__pycache__"}


def without_docstring(name: str) -> list[str]:
    text = (ALGOS / f"{name}.py").read_text()
    return text.splitlines()[ast.parse(text).body[0].end_lineno :]


@pytest.mark.parametrize(("parent", "child", "most", "tag"), VARIANTS)
def test_variant_differs_by_its_change_only(parent, child, most, tag):
    """Would break: a fix made in one file and not in its sibling, or a change that no tag explains."""
    old, new = without_docstring(parent), without_docstring(child)
    opcodes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    hunks = [hunk for hunk in opcodes if hunk[0] != "equal"]
    assert hunks
    changed = sum(
        old_end - old_start + new_end - new_start
        for _, old_start, old_end, new_start, new_end in hunks
    )
    assert changed <= most
    for _, _, _, start, end in hunks:
        assert any(tag in line for line in new[start:end]), (
            f"{child}.py, no {tag} in: {new[start:end]}"
        )


@pytest.mark.parametrize(("files", "names"), SHARED, ids=str)
def test_shared_parts_are_the_same(files, names):
    """Would break: a fix made in one file and not in its sibling."""
    for name in names:
        versions = set()
        for file in files:
            text = (ALGOS / f"{file}.py").read_text()
            (node,) = [node for node in ast.parse(text).body if getattr(node, "name", "") == name]
            versions.add(ast.get_source_segment(text, node))
        assert len(versions) == 1, f"{name} differs between {files}"
