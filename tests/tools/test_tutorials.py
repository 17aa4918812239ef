"""The tutorials and the how-to pages: their code runs, their commands exist, and what they promise is kept."""

import ast
import dataclasses
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
from conftest import ALGOS, ROOT, load, scalars

PAGE = (ROOT / "docs/tutorials/your-environment.md").read_text()
MODULE, CHECK, CONSTANTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PAGES = sorted([*ROOT.glob("docs/tutorials/*.md"), *ROOT.glob("docs/how-to/*.md")])


def commands(page: str) -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    return "".join(blocks).replace("\\\n", " ").splitlines()


TRAIN = [line for line in commands(PAGE) if "algos/" in line and "--env-id point:" in line]
(TIME,) = (line for line in commands(PAGE) if "timeit" in line)


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
def test_commands_train(folder):
    """Would break: a command that does not run, an evaluation that is not near what the page promises."""
    run(TRAIN[0], folder)
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


def test_wrappers_and_arguments(folder):
    """Would break: the page's constants, which must give a discrete task continuous actions and a time limit."""
    text = (folder / "algos/ppo_continuous.py").read_text()
    assert text.count("\nWRAPPERS = ()\nENV_KWARGS = {}\n") == 1
    text = text.replace("WRAPPERS = ()\nENV_KWARGS = {}\n", CONSTANTS)
    (folder / "my_ppo.py").write_text(text)
    (line,) = (line for line in commands(PAGE) if "python my_ppo.py" in line)
    run(f"{line} --eval-episodes 2".replace("60000", "4096"), folder)
    (summary,) = folder.glob("runs/*/summary.json")
    assert max(json.loads(summary.read_text())["eval_returns"]) < 200


def apply(blocks: list[str], text: str) -> str:
    """The text after edits, each a diff whose old lines must occur once."""
    for block in blocks:
        old = "".join(line[1:] + "\n" for line in block.splitlines() if line[0] in " -")
        new = "".join(line[1:] + "\n" for line in block.splitlines() if line[0] in " +")
        assert text.count(old) == 1, block
        text = text.replace(old, new)
    return text


def test_number_of_your_own(folder):
    """Would break: edits of the page that do not fit, or that log nothing."""
    first, *others = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
    (folder / "point.py").write_text(apply([first], MODULE))
    (folder / "my_ppo.py").write_text(apply(others, (folder / "algos/ppo.py").read_text()))
    line = "PYTHONPATH=. python my_ppo.py --env-id point:Point-v0 --eval-episodes 2"
    run(f"{line} --total-timesteps 16384", folder)
    (path,) = folder.glob("runs/*")
    logged = [value for _, value in scalars(path)["charts/at_rest"]]
    assert logged and all(0 <= value <= 1 for value in logged)


def test_n_step_returns(tmp_path):
    """Would break: sums that cross an episode's end or the newest row, and powers of gamma that do not fit them."""
    page = (ROOT / "docs/algorithms/dqn.md").read_text()
    text = apply(re.findall(r"```diff\n(.*?)```", page, re.DOTALL), (ALGOS / "dqn.py").read_text())
    (tmp_path / "n_step.py").write_text(text)
    module = load(str(tmp_path / "n_step"))
    rows, gamma = 20, 0.5
    replay = module.Replay(rows, num_envs=1, obs_dim=1)
    ends, terminals = {24, 30, 33}, {24, 33}  # episodes; the step after an end only resets
    for step in range(36):  # the ring holds the steps from 16 on
        numbers = [np.array([value]) for value in (0, step**2, step in terminals)]
        replay.add(np.array([[step]]), *numbers, np.array([step - 1 not in ends]))
    batch = replay.sample(1000, gamma)
    seen = set()
    for obs, next_obs, reward, terminal, discount in zip(
        *(batch[name] for name in ("obs", "next_obs", "reward", "terminal", "discount"))
    ):
        step = int(obs)
        seen.add(step)
        last = min([step + 2, 34, *(end for end in ends if end >= step)])
        assert int(next_obs) == last + 1
        assert reward == sum(gamma ** (k - step) * k**2 for k in range(step, last + 1))
        assert discount == gamma ** (last + 1 - step)
        assert terminal == (last in terminals)
    assert seen == set(range(16, 35)) - {end + 1 for end in ends}


def test_no_time_limit(folder):
    """Would break: an evaluation that does not end at --eval-max-steps."""
    (line,) = (line for line in TRAIN if "PointForever" in line)
    run(f"{line} --eval-episodes 2".replace("60000", "8192").replace("500", "50"), folder)


def flags_of(file: str) -> set[str]:
    """The flags of a script: the fields of its dataclass Args or Options."""
    spec = importlib.util.spec_from_file_location("script", ROOT / file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["script"] = module
    spec.loader.exec_module(module)
    options = module.Args if hasattr(module, "Args") else module.Options
    flags = {"--" + field.name.replace("_", "-") for field in dataclasses.fields(options)}
    return flags | {flag.replace("--", "--no-", 1) for flag in flags} | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_exist(page):
    """Would break: a command of a page whose file or flag does not exist."""
    copies = {"my_experiment.py": "algos/ppo_continuous.py", "my_ppo.py": "algos/ppo_continuous.py"}
    text = page.read_text()
    for line in commands(text) + re.findall(r"`((?:PYTHONPATH=. )?python [^`]+)`", text):
        words = [word for word in shlex.split(line, comments=True) if "=." not in word]
        if words[0] != "python" or words[1] in ("-m", "check.py"):
            continue
        file = copies.get(words[1], words[1])
        known = flags_of(file)
        for word in words[2:]:
            if word == "--":  # flags of the scripts that sweep.py runs
                known = flags_of("algos/ppo_continuous.py")
            elif word.startswith("--"):
                assert word.partition("=")[0] in known, f"{line}: {word}"


def test_edits_fit_the_file():
    """Would break: an edit of the tutorial for which the file has no line."""
    text = (ROOT / "algos/ppo_continuous.py").read_text()
    page = (ROOT / "docs/tutorials/change-an-algorithm.md").read_text()
    blocks = re.findall(r"```diff\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 4
    compile(apply(blocks, text), "my_experiment.py", "exec")


def test_defaults_beside_cleanrl():
    """Would break: a default of plainrl's that has changed since the page was written."""
    fields = {}
    for node in ast.walk(ast.parse((ROOT / "algos/ppo_continuous.py").read_text())):
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant):
            fields.setdefault("--" + node.target.id.replace("_", "-"), node.value.value)
    page = (ROOT / "docs/how-to/from-cleanrl.md").read_text()
    rows = re.findall(r"^\| `(--[\w-]+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", page, re.MULTILINE)
    assert len(rows) == 9
    for flag, _, ours in rows:
        value = fields[flag]
        assert ours == ({True: "on", False: "off"}[value] if type(value) is bool else str(value))
