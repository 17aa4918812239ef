"""Each file of algos/ can be read: it stands alone, it is short however it is formatted, it packs
nothing, and it differs from its siblings by its algorithm only."""

import ast
import difflib
import functools
import io
import json
import random
import re
import shutil
import subprocess
import sys
import tokenize
from collections import defaultdict

import numpy as np
import pytest
import torch
from conftest import ALGOS, ATARI, CLASSIC, EVERY, NAMES, PIXELS, ROOT, command_line, load, script

FILES = sorted({path.stem for path in ALGOS.glob("*.py")} | set(EVERY))
BUDGETS = {"ppo": 450, "dqn": 435, "dqn_atari": 503, "reinforce": 340}
BUDGETS |= {"ppo_atari": 483, "a2c_atari": 491}  # with FIRE, the greedy evaluation, threads
BUDGETS |= {"dqn_pixels": 457, "ppo_pixels": 457}  # honest lines; 460 where nothing is said
TOKENS = 10.5  # a code line, on average
VARIANTS = [  # parent, child, most changed lines, tag of each hunk, how many lines longer at most
    ("ppo_continuous", "rpo_continuous", 20, "# RPO:", 15),
    ("ppo_continuous", "ppo_squashed", 20, "# Squash:", 15),
    ("ppo_continuous", "ppo_penalty", 20, "# Penalty:", 15),
    ("ppo_continuous", "ppo_rad", 20, "# RAD:", 15),
    ("ppo_continuous", "ppo_drac", 20, "# DrAC:", 15),
    ("ppo_continuous", "ppo_continuous_ddp", 56, "# DDP:", 55),
    ("ppo_continuous", "ppo_rnd", 89, "# RND:", 71),
    ("ppo_rnd", "ppo_icm", 44, "# ICM:", 4),
    ("ppo_atari", "ppo_atari_ddp", 58, "# DDP:", 52),
    ("ppo_continuous", "ppo_continuous_ray", 64, "# Ray:", 63),
]
CHILDREN = [row[1] for row in VARIANTS[1:] if row[1] != "ppo_continuous_ray"]
OWN = {"Args", "train", "Replay"}  # what each file has its own of
BOX = [name for name in NAMES if name != "trpo_continuous"]  # PPO for actions in a Box
PPO_AND_A2C = ["ppo_atari", "ppo_atari_ddp", "a2c_atari"]
APART = [["ppo"], ["reinforce"], ["dqn"], ["dqn_atari"], ["ppo_pixels"], ["dqn_pixels"]]
GROUPS = {  # a class or function that has several versions, and the files that share one
    "make_envs": [NAMES + CLASSIC, PIXELS, PPO_AND_A2C, ["dqn_atari"]],
    "layer_init": [[*NAMES, "ppo", "reinforce"], PIXELS + ATARI],
    "Agent": [BOX, ["trpo_continuous"], PPO_AND_A2C, *APART],
    "evaluate": [NAMES, PPO_AND_A2C, *APART],
    "ppo_loss": [[*BOX, "ppo"], ["ppo_atari", "ppo_atari_ddp", "ppo_pixels"]],
    "update": [
        [*BOX, "ppo"],
        ["ppo_atari", "ppo_atari_ddp", "ppo_pixels"],
        ["dqn", "dqn_atari", "dqn_pixels"],
        ["a2c_atari"],
        ["reinforce"],
        ["trpo_continuous"],
    ],
}
SMALL = ["--num-envs", 2, "--total-timesteps", 64, "--eval-episodes", 2]
MORE = {
    **dict.fromkeys(NAMES, ["--env-id", "Pendulum-v1", "--num-steps", 8, "--num-minibatches", 2]),
    **dict.fromkeys(
        ["ppo", "ppo_pixels", "ppo_atari", "ppo_atari_ddp"],
        ["--num-steps", 8, "--num-minibatches", 2],
    ),
    **dict.fromkeys(
        ["dqn", "dqn_pixels", "dqn_atari"], ["--buffer-size", 64, "--learning-starts", 32]
    ),
}


def budget(name: str) -> int:
    for parent, child, _, _, longer in VARIANTS:
        if child == name:
            return budget(parent) + longer
    return BUDGETS.get(name, 460)


def honest_lines(text: str) -> int:
    """Lines as the formatter would have them, so that nothing is gained by packing."""
    ruff = shutil.which("ruff") or shutil.which("ruff", path=ROOT.joinpath(sys.prefix, "bin"))
    command = [ruff, "format", "--isolated", "--line-length", "100", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout.count("\n")


def tokens_a_line(text: str) -> float:
    layout = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = [line.strip() for line in text.splitlines()]
    code = [line for line in lines if line and line[0] != "#"]
    return sum(token.type not in layout | {tokenize.COMMENT} for token in tokens) / len(code)


def packed(text: str) -> list[int]:
    """Lines that do several things in one statement, or hide what they do it for."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(ast.Tuple() | ast.BoolOp() | ast.IfExp() | ast.ListComp()):
                found.add(node.lineno)  # open(a), open(b); ok or stop(); a() if ok else b()
            case ast.Assign([ast.Name("_")], ast.BoolOp() | ast.IfExp()):
                found.add(node.lineno)  # _ = ok or stop()
            case ast.Assign([ast.Tuple()], ast.Tuple([_, _, _, *_])):
                found.add(node.lineno)  # a, b, c = 1, 2, 3
            case ast.Import([_, _, *_]):
                found.add(node.lineno)
            case ast.Call():
                values = [*node.args, *(keyword.value for keyword in node.keywords)]
                found |= {value.lineno for value in values if isinstance(value, ast.NamedExpr)}
    return sorted(found)


@pytest.fixture(params=FILES)
def name(request):
    return request.param


def test_length(name):
    """Would break: a file that grows beyond what is read in ten minutes, or is packed to fit."""
    text = script(name).read_text()
    assert honest_lines(text) <= budget(name)
    assert tokens_a_line(text) <= TOKENS
    assert packed(text) == []


def test_budgets_of_contributing():
    """Would break: a limit in CONTRIBUTING.md that is not the one that is held."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `(\w+).py` \| `(\w+).py` \| `(.+)` \| (\d+) \| (\d+) \|$", page, re.M)
    rows = [(parent, child, int(most), tag, int(more)) for parent, child, tag, most, more in rows]
    assert rows == VARIANTS
    limits = page[page.index("| file | lines") : page.index("A new file has 460.")]
    said = {}
    for files, lines in re.findall(r"\| ((?:`\w+\.py`(?:, )?)+) \| (\d+)", limits):
        said |= dict.fromkeys(re.findall(r"(\w+)\.py", files), int(lines))
    parents = set(FILES) - {row[1] for row in VARIANTS}
    assert said == {name: budget(name) for name in parents}


def test_mistakes_of_the_page():
    """Would break: a check that docs/not-learning.md names for a mistake and by which no mutant is found."""
    page = (
        (ROOT / "docs/not-learning.md").read_text().partition("## Mistakes that raise no error")[2]
    )
    named = re.findall(r"^\| .* \| `([\w-]+)` \|$", page, re.M)
    mutants = (ROOT / "tests/mutations/mutants.txt").read_text()
    found = dict(re.findall(r"^# ([\w-]+, \w+): ([\w-]+) \(", mutants, re.M))
    rows = "ratio-matrix gae-no-mask done-late timeout-terminal next-episode-obs reset-rows-trained"
    rows = f"{rows} vclip-target critic-lr reset-every-rollout no-shuffle rms-in-eval dqn-one-draw"
    rows = f"{rows} dqn-target-at-episode-ends ppo-atari-no-frame-skip pickled".split()
    asks = ("critic-lr", "no-shuffle")
    kinds = [f"{row}, {'differs' if row in asks else 'broken'}" for row in rows]
    assert named == [found[kind] for kind in kinds]


@pytest.mark.parametrize(
    "line",
    ["f(x), g(y)", "f(x) if x else g(y)", "x or f(x)", "_ = x or f(x)", "_ = f(x) if x else 0",
     "a, b, c = 1, 2, 3", "f(a := 1)", "f(x=(a := 1))", "import json, os", "[f(x) for x in y]"],
)  # fmt: skip
def test_packed_lines_are_seen(line):
    """Would break: the measure itself; the line after is what it should have been."""
    assert packed(f"pass\n{line}\na, b = 1, 2\n_, a = f(x) or 1\nf(x)\n") == [2]


def test_measures_of_length():
    """Would break: a measure that packing can satisfy. 3 statements are 3 lines; 4 + 4 tokens."""
    assert honest_lines("a = 1; b = 2; c = 3\n") == 3
    assert honest_lines(f"f({', '.join(['number'] * 20)})\n") > 20
    assert tokens_a_line("# nothing\na = f\n\n\nb = x + 1  # more\n") == 4


def test_imports_nothing_of_the_repository(name):
    """Would break: a helper module shared between algorithms."""
    ours = {path.stem for path in ROOT.iterdir()} | set(FILES)
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


def test_runs_when_copied_alone(name, tmp_path, request):
    """Would break: any use of a file beside it, or of the folder it is started from."""
    if name in CHILDREN and not request.config.getoption("more"):
        pytest.skip("all but some lines are another file's: pytest --more")
    shutil.copy(script(name), tmp_path)
    flags = SMALL + MORE.get(name, [])
    process = command_line(*flags, script=f"{name}.py", cwd=tmp_path)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    (summary,) = tmp_path.glob("runs/*/summary.json")
    assert json.loads(summary.read_text())["algo"] == name
    assert summary.with_name(f"{name}.py").read_text() == script(name).read_text()
    assert {path.name for path in tmp_path.iterdir()} <= {f"{name}.py", "runs", "__pycache__"}


def without_docstring(name: str) -> list[str]:
    text = script(name).read_text()
    return text.splitlines()[ast.parse(text).body[0].end_lineno :]


@pytest.mark.parametrize(("parent", "child", "most", "tag"), [row[:4] for row in VARIANTS])
def test_variant_differs_by_its_change_only(parent, child, most, tag):
    """Would break: a fix made in one file and not in its sibling, a change that no tag explains."""
    old, new = without_docstring(parent), without_docstring(child)
    opcodes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    hunks = [hunk for hunk in opcodes if hunk[0] != "equal"]
    changed = sum(hunk[2] - hunk[1] + hunk[4] - hunk[3] for hunk in hunks)
    assert 0 < changed <= most
    for _, _, _, start, end in hunks:
        assert any(tag in line for line in new[start:end]), new[start:end]


@functools.cache
def parts() -> dict[str, dict[str, str]]:
    """{class or function: {file: its text}}; of a class without its docstring, which may hold a figure
    measured with that file."""
    found = defaultdict(dict)
    for name in FILES:
        text = script(name).read_text()
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                source = ast.get_source_segment(text, node)
                if isinstance(node, ast.ClassDef):
                    source = source.replace(ast.get_source_segment(text, node.body[0]), "")
                found[node.name][name] = source
    return found


@pytest.mark.parametrize("part", sorted(set(parts()) - OWN))
def test_what_siblings_share_is_the_same(part):
    """Every class and function that two files have, but for the tagged ones of a variant.
    Would break: a fix made in one file and not in its sibling."""
    tags = {}
    for parent, child, _, tag, _ in VARIANTS:
        tags[child] = (tag, *tags.get(parent, ()))
    for group in GROUPS.get(part, [FILES]):
        texts = {name: text for name, text in parts()[part].items() if name in group}
        same = {
            text: name
            for name, text in texts.items()
            if not any(tag in text for tag in tags.get(name, ()))
        }
        assert len(same) <= 1, f"{part} differs: {sorted(same.values())}"


def test_siblings_are_declared():
    """Would break: a version that no group holds, which nothing is compared with."""
    for part, groups in GROUPS.items():
        declared = [name for group in groups for name in group]
        assert len(declared) == len(set(declared))
        assert set(parts()[part]) <= set(declared), part
