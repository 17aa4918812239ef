"""Helpers shared by the tests: load an algorithm's file, run one as a user would, read what is left."""

import ast
import functools
import gc
import importlib.machinery
import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import pytest
import torch
import toy_envs
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # tests are of the CPU, benchmarks/gpu_pass.py of a GPU
# No __pycache__ beside the scripts that tests write, whose folders they list: here and in what they start.
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[1]
ALGOS = ROOT / "algos"
os.environ["PYTHONPATH"] = str(ROOT / "scripts")  # of this checkout, whatever is installed


@functools.lru_cache(maxsize=100)
def compiled(data: bytes, path: str):
    """The code of a module; two that are equal and at the same path are compiled once."""
    return compile(data, path, "exec", dont_inherit=True)


# Without __pycache__ each fresh module of a file in algos/ would be compiled again, about 1,500 times
importlib.machinery.SourceFileLoader.source_to_code = lambda _, data, path: compiled(data, path)


def pytest_collection_finish():
    """What is imported by now stays for good, so garbage collections need not visit it: that takes 0.2 s each time."""
    importlib.import_module("torch._dynamo")  # the first optimizer would import it
    gc.freeze()


class Row(NamedTuple):
    """What the tests know of a file in algos/."""

    kind: str  # box, off-policy (box, with a replay buffer), discrete, pixels, box-pixels or atari
    parent: str = ""  # of a variant, from which it differs only in hunks with its tag
    tag: str = ""
    most: int = 0  # changed lines of a variant
    # functions, classes and phases of train() that are its own version (test_files.py)
    own: frozenset = frozenset()


OF_SEVERAL = frozenset({  # what a file for several seeds has its own version of
    "Agent", "check_finite", "ppo_loss", "update", "open_envs", "the command line",
    "train, while", "train, Log", "train, Evaluate", "train, Save", "train, end",
})  # fmt: skip
FILES = {
    "ppo_continuous": Row("box"),
    "rpo_continuous": Row("box", "ppo_continuous", "# RPO:", 21),
    "ppo_squashed": Row("box", "ppo_continuous", "# Squash:", 49),
    "ppo_penalty": Row("box", "ppo_continuous", "# Penalty:", 22),
    "ppo_rnd": Row("box", "ppo_continuous", "# RND:", 164),
    "ppo_icm": Row("box", "ppo_rnd", "# ICM:", 61),
    "ppo_rad": Row("box", "ppo_continuous", "# RAD:", 20),
    "ppo_drac": Row("box", "ppo_continuous", "# DrAC:", 20),
    "ppo_continuous_ddp": Row("box", "ppo_continuous", "# DDP:", 105),
    "ppo_continuous_ray": Row("box", "ppo_continuous", "# Ray:", 146),
    "ppo_continuous_seeds": Row("box", own=OF_SEVERAL),
    "rpo_continuous_seeds": Row("box", "ppo_continuous_seeds", "# RPO:", 30, OF_SEVERAL),
    "ppo_continuous_lstm": Row("box", "ppo_continuous", "# LSTM:", 135),
    "trpo_continuous": Row("box"),
    "sac_continuous": Row("off-policy"),
    "td3_continuous": Row("off-policy", "sac_continuous", "# TD3:", 81),
    "ddpg_continuous": Row("off-policy", "td3_continuous", "# DDPG:", 21),
    "crossq_continuous": Row("off-policy", "sac_continuous", "# CrossQ:", 77),
    "ppo": Row("discrete"),
    "ppo_lstm": Row("discrete", "ppo", "# LSTM:", 133),
    "ppo_multidiscrete": Row("discrete", "ppo", "# Multi:", 143),
    "dqn": Row("discrete"),
    "c51": Row("discrete", "dqn", "# C51:", 96),
    "reinforce": Row("discrete"),
    "pqn": Row("discrete", own={"Agent", "update"}),
    "ppo_pixels": Row("pixels"),
    "ppo_pixels_rad": Row("pixels", "ppo_pixels", "# RAD:", 25),
    "ppo_pixels_drac": Row("pixels", "ppo_pixels", "# DrAC:", 34),
    "ppo_pixels_continuous": Row("box-pixels", "ppo_pixels", "# Box:", 71),
    "dqn_pixels": Row("pixels"),
    "ppo_atari": Row("atari"),
    "a2c_atari": Row("atari"),
    "dqn_atari": Row("atari"),
    "c51_atari": Row("atari", "dqn_atari", "# C51:", 80),
    "pqn_atari": Row("atari", own={"Agent", "evaluate", "update", "train, Evaluate"}),
    "ppo_atari_ddp": Row("atari", "ppo_atari", "# DDP:", 96),
    "ppo_atari_lstm": Row("atari", "ppo_atari", "# LSTM:", 169),
}


def of_kind(*kinds: str) -> list[str]:
    return [name for name, row in FILES.items() if row.kind in kinds]


NAMES = of_kind("box")  # actions in a Box, without a replay buffer
OFF_POLICY = of_kind("off-policy")
CONTINUOUS = NAMES + OFF_POLICY  # actions in a Box
CLASSIC = of_kind("discrete")
PIXELS = [name for name in of_kind("pixels") if not FILES[name].parent]
ATARI = of_kind("atari")
EVERY = list(FILES)
RANKS = [name for name in EVERY if name.endswith("_ddp")]  # with one rank their parents
RUNNERS = [name for name in EVERY if name.endswith("_ray")]  # with any number of runners its parent
LSTM = [name for name in EVERY if name.endswith("_lstm")]  # test_lstm.py
PQN = ["pqn", "pqn_atari"]  # Q-learning without a replay buffer
C51 = ["c51", "c51_atari"]  # distributional Q-learning
MULTI = ["ppo_multidiscrete"]  # several actions at once
SEEDS = [name for name in EVERY if name.endswith("_seeds")]  # several runs at once (test_seeds.py)
OTHER_PIXELS = [name for name in EVERY if name.startswith("ppo_pixels_")]  # variants
APART = RANKS + RUNNERS  # they start processes; what they share with their parents is compared
BOXES = [*[name for name in NAMES if name not in APART], *OFF_POLICY]
VECTORS = [*BOXES, *CLASSIC]
VARIANTS = [name for name, row in FILES.items() if row.parent]
PARENTS = [name for name in EVERY if name not in VARIANTS]
# One file for each kind of training loop. What the others' train() shares with it is compared as text (test_files.py).
LOOPS = ["ppo_continuous", "reinforce", "sac_continuous", "dqn", "a2c_atari"]
# One for each version of evaluate()
EVALUATES = [*LOOPS, "ppo", "ppo_pixels", "dqn_pixels", "dqn_atari", "pqn_atari"]


@pytest.fixture
def cluster():
    """Address of two nodes of one CPU each."""
    from ray.cluster_utils import Cluster  # slow to import, and few tests want it

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        made.add_node(num_cpus=1)
        yield made.address
    finally:
        made.shutdown()


def script(name: str) -> Path:
    return ALGOS / f"{name}.py"


def load(name: str):
    """A fresh module of algos/name.py, so that what one test patches never reaches another."""
    spec = importlib.util.spec_from_file_location(name, script(name))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def without_docstring(name: str) -> list[str]:
    """The lines of a file in algos/ after its docstring."""
    text = script(name).read_text()
    return text.splitlines()[ast.parse(text).body[0].end_lineno :]


@functools.cache
def text_of(name: str, function: str) -> str:
    """A function of a file in algos/, as text."""
    pattern = rf"^def {function}\(.*?(?=^(?:def|class|if) )"
    found = re.search(pattern, script(name).read_text(), re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


def one_of_each(names, *functions: str) -> list[str]:
    """The first of these files with each version of these functions."""
    first = {}
    for name in names:
        first.setdefault(tuple(text_of(name, function) for function in functions), name)
    return list(first.values())


def that_open(names) -> list[str]:
    """One file for each version of what checks and makes the environments of a run."""
    checks = ("check_env", "check_video", "hint_for", "choose_backend")
    return one_of_each(names, "open_envs", "make_envs", "flatten", *checks)


def no_noise(algo) -> dict:
    """Flags that switch the perturbation of RPO off."""
    return {"rpo_alpha": 0.0} if hasattr(algo.Args, "rpo_alpha") else {}


def toy(algo, name: str = "Counter") -> str:
    """The id of a toy environment as the file takes it; the Atari files play FakeAtari anyhow."""
    if algo.__name__ in ATARI:
        return "BreakoutNoFrameskip-v4"
    names = {"discrete": "Discrete", "pixels": "Pixels", "box-pixels": "BoxPixels"}
    kind = names.get(FILES[algo.__name__].kind, "")
    return f"{name}{kind}-v0"


def tiny(algo, folder: Path, **flags):
    """Args of a run of a fraction of a second; small flags that a file does not have are left out."""
    small = {"runs_dir": str(folder / "runs"), "torch_threads": 1, "precision": "float32"}
    small |= {"env_id": toy(algo), "env_backend": "gymnasium", "num_envs": 2, "eval_episodes": 2}
    small |= {"num_steps": 8, "num_minibatches": 2, "update_epochs": 2, "eval_frequency": 0}
    small |= {"buffer_size": 64, "learning_starts": 8, "batch_size": 4, "train_frequency": 4}
    small["eval_max_steps"] = 100
    small["total_timesteps"] = 28 if algo.__name__ in ATARI else 64
    return algo.Args(**{key: value for key, value in small.items() if has(algo, key)} | flags)


def longer(algo, **flags) -> tuple[int, dict]:
    """A factor, and flags in whose numbers of steps it is: with a replay buffer iterations are 1,000
    steps long."""
    factor = 1
    if algo.__name__.startswith("dqn"):
        factor, flags = 30, flags | {"train_frequency": 20}
    if algo.__name__ in OFF_POLICY:
        factor, flags = 30, flags | {"updates_per_step": 1 / 600}
    scaled = {"total_timesteps", "eval_frequency", "checkpoint_frequency", "train_frequency"}
    return factor, {key: value * factor if key in scaled else value for key, value in flags.items()}


def value_loss(algo) -> str:
    """The name under which the file logs the loss of its values."""
    if algo.__name__ in OFF_POLICY:
        return "losses/qf_loss"
    return "losses/td_loss" if "qn" in algo.__name__ else "losses/value_loss"


def has(algo, flag: str) -> bool:
    return flag in algo.Args.__dataclass_fields__


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def command_line(*flags, script: str | Path, cwd: Path, **variables: str) -> subprocess.Popen:
    """Start `python script --flags` in the folder cwd, one thread, nothing of ours on the path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1"} | variables
    command = [sys.executable, str(script), *map(str, flags)]
    return subprocess.Popen(
        command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def run_folder(folder: Path) -> Path:
    """The one run below folder/runs."""
    (run,) = (folder / "runs").iterdir()
    return run


def read_checkpoint(run: Path, name: str = "checkpoint.pt") -> dict:
    return torch.load(run / name, map_location="cpu", weights_only=True)


def events(run: Path) -> list:
    """What TensorBoard shows: the files in the order of writing; a restart purges what comes after its step.

    TensorBoard sorts the names as text, which is that order only if a second lies between two starts."""
    files = sorted(run.glob("events*"), key=lambda f: f.stat().st_mtime_ns)
    kept = []
    for file in files:
        for event in LegacyEventFileLoader(str(file)).Load():
            if event.HasField("session_log"):
                kept = [old for old in kept if old.step < event.step]
            kept.append(event)
    return kept


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """{tag: [(step, value), ...]}"""
    tags = {}
    for event in events(run):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                tags.setdefault(value.tag, []).append((event.step, value.simple_value))
    return tags


def equal(one: dict, other: dict) -> bool:
    """Whether two state_dicts hold the same numbers."""
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def spy(monkeypatch, algo, name: str, before) -> None:
    """Call before(*args) each time the file calls its own function `name`."""
    original = getattr(algo, name)

    def wrapper(*args, **kwargs):
        before(*args, **kwargs)
        return original(*args, **kwargs)

    monkeypatch.setattr(algo, name, wrapper)


def faster(text: str) -> str:
    """A file for images with an eighth of the channels: what is right or wrong with it stays so."""
    if "nn.Conv2d" not in text:
        return text
    before, start, rest = text.partition("class Agent")
    agent, end, after = rest.partition("\n\n\n")
    agent = re.sub(r"\b(32|64|512)\b", lambda match: str(int(match[0]) // 8), agent)
    return before + start + agent + end + after


def cheap(algo, monkeypatch) -> None:
    """Make the file's network for pictures one that costs little."""

    class Shrink(torch.nn.AvgPool2d):
        def forward(self, obs):
            return super().forward(obs.float() / 255)

    class Cheap(algo.Agent):
        def __init__(self, *args):
            super().__init__(*args)
            layers = Shrink(12), torch.nn.Flatten(), torch.nn.LazyLinear(512)
            images = self.network[0].in_channels
            self.network = torch.nn.Sequential(*layers)
            self.network(torch.zeros(1, images, 84, 84))

    monkeypatch.setattr(algo, "Agent", Cheap)


def without_ray(monkeypatch):
    """Runners in this process, in place of those in Ray's actors."""
    from plainrl_tools.probing.actors import Actors

    monkeypatch.setitem(sys.modules, "ray", Actors())
    return sys.modules["ray"]


def fake_atari(algo, monkeypatch) -> None:
    """FakeAtari in place of the emulator."""
    monkeypatch.setattr(algo, "AtariVectorEnv", toy_envs.FakeAtari)
    toy_envs.FakeAtari.rows.clear()


@pytest.fixture(params=LOOPS)
def every(request, monkeypatch):
    """A file for each kind of training loop; those for Atari with FakeAtari and a network that costs little, that
    with runners without Ray."""
    algo = load(request.param)
    if request.param in RUNNERS:
        without_ray(monkeypatch)
    if request.param in ATARI:
        fake_atari(algo, monkeypatch)
        cheap(algo, monkeypatch)
    return algo


def files(*names):
    """Run a test with these files only."""
    fixture = {**dict.fromkeys(NAMES, "algo"), **dict.fromkeys(CLASSIC + PIXELS, "classic")}
    return pytest.mark.parametrize(fixture.get(names[0], "atari"), names, indirect=True)


def every_of(*names):
    """Run a test that takes `every` with these files only."""
    return pytest.mark.parametrize("every", names, indirect=True)


@pytest.fixture(params=[name for name in NAMES if name not in RANKS + RUNNERS + LSTM + SEEDS])
def algo(request):
    return load(request.param)


@pytest.fixture(params=CLASSIC + PIXELS)
def classic(request):
    return load(request.param)


@pytest.fixture(params=[name for name in ATARI if name not in RANKS + LSTM])
def atari(request):
    return load(request.param)


@pytest.fixture
def small(atari, monkeypatch):
    """An Atari file with FakeAtari and a network that costs little."""
    fake_atari(atari, monkeypatch)
    cheap(atari, monkeypatch)
    return atari


@pytest.fixture
def registered():
    """Register an environment for the length of a test; the wrapped class is made anew each time."""
    ids = []

    def register(env_id: str, entry_point) -> str:
        gym.register(env_id, entry_point=entry_point, disable_env_checker=True)
        ids.append(env_id)
        return env_id

    yield register
    for env_id in ids:
        del gym.registry[env_id]


@pytest.fixture(autouse=True)
def same_process_state():
    """One thread, a fixed generator, and the signal handlers back in place afterwards."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def on_first_step(envs, call):
    """Has `call` made when the environments are first stepped: those made and never played do not count."""
    step, calls = envs.step, [call]

    def stepped(action):
        for first in calls[:]:
            calls.remove(first)
            first()
        return step(action)

    envs.step = stepped


STUB = """#!/bin/sh
[ "$2" = "import sbx" ] && exit 1
[ "$1" = scripts/plainrl_tools/edits.py ] && exec {python} "$@"
printf '%s\\n' "$@" > {folder}/words; cat > {folder}/lines
"""


def stub_of(study: str, tmp_path, **variables: str) -> tuple[list[str], str]:
    """The words of the command and the text of its input that a study's script gives to python. The script's python is
    one that writes them down."""
    name, _, parts = study.partition(" ")
    python = tmp_path / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    python.write_text(STUB.format(folder=tmp_path, python=sys.executable))
    python.chmod(0o755)
    variables |= {"WORKERS": "1", "RUNS": str(tmp_path / "the runs"), "PARTS": parts}
    variables["PATH"] = f"{python.parent}:{os.environ['PATH']}"
    line = ["bash", ROOT / f"scripts/{name}.sh", "--dry-run"]
    pipes = dict(stdin=subprocess.DEVNULL, text=True, capture_output=True)
    done = subprocess.run(line, env=os.environ | variables, cwd=tmp_path, **pipes)
    assert done.returncode == 0, done.stderr
    return (tmp_path / "words").read_text().splitlines(), (tmp_path / "lines").read_text()
