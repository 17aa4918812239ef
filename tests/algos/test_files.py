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
    ATARI,
    CLASSIC,
    EVERY,
    NAMES,
    OFF_POLICY,
    PIXELS,
    PQN,
    ROOT,
    command_line,
    load,
    script,
)

FILES = sorted({path.stem for path in ALGOS.glob("*.py")} | set(EVERY))
VARIANTS = [  # parent, child, most changed lines, tag of each hunk
    ("ppo_continuous", "rpo_continuous", 21, "# RPO:"),
    ("ppo_continuous", "ppo_squashed", 24, "# Squash:"),
    ("ppo_continuous", "ppo_penalty", 22, "# Penalty:"),
    ("ppo_continuous", "ppo_rad", 20, "# RAD:"),
    ("ppo_continuous", "ppo_drac", 20, "# DrAC:"),
    ("ppo_continuous", "ppo_continuous_ddp", 98, "# DDP:"),
    ("ppo_continuous", "ppo_rnd", 153, "# RND:"),
    ("ppo_rnd", "ppo_icm", 61, "# ICM:"),
    ("ppo_atari", "ppo_atari_ddp", 85, "# DDP:"),
    ("ppo_continuous", "ppo_continuous_ray", 146, "# Ray:"),
    ("sac_continuous", "td3_continuous", 79, "# TD3:"),
    ("td3_continuous", "ddpg_continuous", 21, "# DDPG:"),
]
CHILDREN = [row[1] for row in VARIANTS[1:] if row[1] != "ppo_continuous_ray"]  # one variant runs
Q_LEARNING = ["dqn", "dqn_atari", "dqn_pixels"]
OWN = {"Args", "train", "Replay"}  # what each file has its own of
BOX = [name for name in NAMES if name != "trpo_continuous"]  # PPO for actions in a Box
PPO_AND_A2C = ["ppo_atari", "ppo_atari_ddp", "a2c_atari"]
APART = [["ppo"], ["reinforce"], ["dqn_atari"], ["pqn_atari"], ["ppo_pixels"], ["dqn_pixels"]]
GROUPS = {  # a class or function that has several versions, and the files that share one
    "make_envs": [NAMES + OFF_POLICY + CLASSIC, PIXELS, PPO_AND_A2C, ["dqn_atari", "pqn_atari"]],
    "layer_init": [[*NAMES, "ppo", "reinforce", "pqn"], PIXELS + ATARI],
    "Agent": [BOX, ["trpo_continuous"], OFF_POLICY, PPO_AND_A2C, ["dqn"], ["pqn"], *APART],
    "evaluate": [NAMES, OFF_POLICY, PPO_AND_A2C, ["dqn", "pqn"], *APART],
    "ppo_loss": [[*BOX, "ppo"], ["ppo_atari", "ppo_atari_ddp", "ppo_pixels"]],
    "update": [
        [*BOX, "ppo"],
        ["ppo_atari", "ppo_atari_ddp"],
        ["ppo_pixels"],
        Q_LEARNING,
        OFF_POLICY,
        ["a2c_atari"],
        ["reinforce"],
        ["trpo_continuous"],
        ["pqn"],
        ["pqn_atari"],
    ],
    "epsilon_at": [Q_LEARNING, PQN],
    "td_target": [Q_LEARNING, OFF_POLICY],
    "update_target": [Q_LEARNING, OFF_POLICY],
    "check_finite": [NAMES + OFF_POLICY + CLASSIC, PIXELS, ATARI],
    "check_video": [NAMES + OFF_POLICY + CLASSIC, PIXELS],
    "check_resume": [
        [*BOX, "ppo"],
        ["trpo_continuous", "reinforce", "ppo_pixels", *PPO_AND_A2C, *PQN],
        ["dqn", "dqn_pixels"],
        ["dqn_atari", *OFF_POLICY],
    ],
    "open_envs": [
        NAMES,
        OFF_POLICY,
        ATARI,
        ["ppo", "pqn"],
        ["dqn"],
        ["reinforce"],
        ["ppo_pixels"],
        ["dqn_pixels"],
    ],
    "open_run": [
        [*BOX, "ppo", "dqn", "pqn"],
        ["trpo_continuous", "reinforce"],
        OFF_POLICY,
        PIXELS + ATARI,
    ],
    "choose_device": [
        [*BOX, *OFF_POLICY, "ppo", "dqn", "pqn", *PIXELS, *ATARI],
        ["trpo_continuous", "reinforce"],
    ],
    "summarize": [
        [*NAMES, *OFF_POLICY, *CLASSIC, *PIXELS, "dqn_atari", "pqn_atari"],
        PPO_AND_A2C,
    ],
}
SMALL = ["--num-envs", 2, "--total-timesteps", 64, "--eval-episodes", 2]
REPLAY = ["--buffer-size", 64, "--learning-starts", 32]
MORE = {
    **dict.fromkeys(NAMES, ["--env-id", "Pendulum-v1", "--num-steps", 8, "--num-minibatches", 2]),
    **dict.fromkeys(
        ["ppo", "ppo_pixels", "ppo_atari", "ppo_atari_ddp", *PQN],
        ["--num-steps", 8, "--num-minibatches", 2],
    ),
    **dict.fromkeys(Q_LEARNING, REPLAY),
    **dict.fromkeys(OFF_POLICY, [*REPLAY, "--env-id", "Pendulum-v1"]),
}


@pytest.fixture(params=FILES)
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
    rows = re.findall(r"^\| `(\w+).py` \| `(\w+).py` \| `(.+)` \| (\d+) \|$", page, re.M)
    assert [(parent, child, int(most), tag) for parent, child, tag, most in rows] == VARIANTS
    rows = re.findall(r"^\| (\w+)\b.*\| (\d+) \|$", page, re.M)
    assert {name: int(most) for name, most in rows} == readability.LIMITS


def test_mistakes_of_the_page():
    """Would break: a check that docs/not-learning.md names for a mistake and by which no mutant is found."""
    page = (
        (ROOT / "docs/not-learning.md").read_text().partition("## Mistakes that raise no error")[2]
    )
    named = re.findall(r"^\| .* \| `([\w-]+)` \|$", page, re.M)
    mutants = (ROOT / "tests/probe/mutants.txt").read_text()
    found = dict(re.findall(r"^# ([\w-]+, \w+): ([\w-]+) \(", mutants, re.M))
    rows = "ratio-matrix gae-no-mask done-late timeout-terminal next-episode-obs reset-rows-trained"
    rows = f"{rows} vclip-target critic-lr reset-every-rollout no-shuffle rms-in-eval vector-dqn-one-draw"
    rows = f"{rows} vector-dqn-target-at-episode-ends ppo-atari-no-frame-skip pickled".split()
    asks = ("critic-lr", "no-shuffle")
    kinds = [f"{row}, {'differs' if row in asks else 'broken'}" for row in rows]
    assert named == [found[kind] for kind in kinds]


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
    ours = {path.parent.name for path in ROOT.glob("*/*.py")} | {
        *FILES,
        *(path.stem for path in ROOT.glob("*.py")),
    }
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


@pytest.mark.parametrize("name", [name for name in FILES if name not in CHILDREN])
def test_runs_when_copied_alone(name, tmp_path):
    """Would break: any use of a file beside it, or of the folder it is started from."""
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


@pytest.mark.parametrize(("parent", "child", "most", "tag"), VARIANTS)
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
    for parent, child, _, tag in VARIANTS:
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
