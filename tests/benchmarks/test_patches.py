"""The patches of the studies still fit the files that they change, and scripts/patched.sh says so where not."""

import os
import re
import shutil
import subprocess

import pytest
from conftest import ROOT
from plainrl_tools.common import load

PATCHES = sorted((ROOT / "benchmarks/studies").glob("*/patches/*.patch"))


def patched(name: str, folder, root=ROOT, **variables: str) -> subprocess.CompletedProcess:
    line = ["bash", root / "scripts" / "patched.sh", name, folder]
    return subprocess.run(
        line, cwd=root, env=os.environ | variables, text=True, capture_output=True
    )


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_patch_applies(patch, tmp_path):
    """Would break: a file that has moved on from a study's change of it, a study that nothing runs."""
    done = patched(patch.stem, tmp_path)
    assert done.returncode == 0, done.stderr
    (copy,) = tmp_path.iterdir()
    (file,) = re.findall(r"^--- a/(.+)$", patch.read_text(), re.M)
    added = re.findall(r"^\+(?!\+\+ )(.*)$", patch.read_text(), re.M)
    lines, before = (path.read_text().splitlines() for path in (copy, ROOT / file))
    assert added and [line for line in lines if line not in before] == added
    algo = load(copy)
    assert algo.__name__ == patch.stem
    algo.Args()
    scripts = [path.read_text() for path in (ROOT / "scripts").glob("*.sh")]
    assert any(re.search(rf"\b{patch.stem}\b", text) for text in scripts)


@pytest.fixture
def elsewhere(tmp_path):
    """Another repository with what patched.sh needs, and its ignored runs folder."""
    for path in ("scripts/patched.sh", "algos/ppo_atari.py", "benchmarks/studies/atari/patches"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / path).is_dir() else shutil.copy
        copy(ROOT / path, tmp_path / path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("runs/\n")
    (tmp_path / "runs").mkdir()
    return tmp_path


def test_copies_within_a_repository(elsewhere):
    """Would break: in a repository, `git apply` takes what `git diff` wrote as relative to its top, finds that nothing
    of it is for the folder where it was started, and succeeds."""
    patch = elsewhere / "benchmarks/studies/atari/patches/no_frame_skip.patch"
    file = "algos/ppo_atari.py"
    patch.write_text(f"diff --git a/{file} b/{file}\n" + patch.read_text().partition("\n")[2])
    done = patched("no_frame_skip", "runs/new", elsewhere, TMPDIR=str(elsewhere / "runs"))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (elsewhere / "runs").iterdir()] == ["new"]
    assert 'game["frameskip"] = 1\n' in (elsewhere / "runs/new/no_frame_skip.py").read_text()


def test_file_that_has_changed(elsewhere):
    """Would break: the right file run under the name of a mistake."""
    file = elsewhere / "algos" / "ppo_atari.py"
    file.write_text(file.read_text().replace('game["frameskip"] = 4', "game.update(frameskip=4)"))
    done = patched("no_frame_skip", "runs", elsewhere)
    words = "benchmarks/studies/atari/patches/no_frame_skip.patch does not apply to the current algos/ppo_atari.py"
    assert done.returncode == 1 and words in done.stderr
    assert not list((elsewhere / "runs").iterdir())
