"""Helpers shared by the tests: load an algorithm's file, run one as a user would, read what a run left."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import toy_envs
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # for envs:NAME and benchmarks.MODULE:NAME
ALGOS = ROOT / "algos"
NAMES = ["ppo_continuous", "rpo_continuous"]
CLASSIC = ["ppo", "dqn", "reinforce"]
PIXELS = ["ppo_pixels", "dqn_pixels"]
ATARI = ["ppo_atari", "a2c_atari", "dqn_atari"]


def load(name: str):
    """A fresh module of algos/name.py, so that what one test patches never reaches another."""
    spec = importlib.util.spec_from_file_location(name, ALGOS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def no_noise(algo) -> dict:
    """Flags that switch the perturbation of RPO off."""
    return {"rpo_alpha": 0.0} if hasattr(algo.Args, "rpo_alpha") else {}


def tiny(algo, folder, **flags):
    """Args of a run that takes a fraction of a second."""
    small = {
        "env_id": "Pendulum-v1",
        "env_backend": "gymnasium",
        "runs_dir": str(folder / "runs"),
        "num_envs": 2,
    }
    small |= {
        "num_steps": 8,
        "num_minibatches": 2,
        "update_epochs": 2,
        "total_timesteps": 64,
        "eval_episodes": 2,
    }
    return algo.Args(**(small | flags))


def tiny_classic(algo, folder, **flags):
    """The same for the files for discrete actions; the small flags that a file does not have are left out. Files for
    pixels get the toy environments in pictures."""
    small = {
        "env_id": "CartPole-v1",
        "env_backend": "gymnasium",
        "runs_dir": str(folder / "runs"),
        "num_envs": 2,
    }
    small |= {
        "num_steps": 8,
        "num_minibatches": 2,
        "update_epochs": 2,
        "total_timesteps": 64,
        "eval_episodes": 2,
    }
    small |= {
        "buffer_size": 64,
        "learning_starts": 8,
        "batch_size": 4,
        "train_frequency": 4,
        "eval_frequency": 0,
    }
    small = {key: value for key, value in small.items() if hasattr(algo.Args, key)} | flags
    if algo.__name__ in PIXELS:
        small["env_id"] = small["env_id"].replace("Discrete-v0", "Pixels-v0")
    return algo.Args(**small)


def tiny_atari(algo, folder, **flags):
    """The same for the Atari files; flags that a file does not have are left out."""
    small = {
        "runs_dir": str(folder / "runs"),
        "precision": "float32",
        "torch_threads": 1,
        "num_envs": 2,
    }
    small |= {
        "num_steps": 8,
        "num_minibatches": 2,
        "update_epochs": 2,
        "total_timesteps": 28,
        "eval_episodes": 2,
    }
    small |= {"buffer_size": 64, "learning_starts": 8, "batch_size": 4, "exploration_fraction": 1.0}
    return algo.Args(
        **({key: value for key, value in small.items() if hasattr(algo.Args, key)} | flags)
    )


def command_line(*flags, script: str | Path, cwd: Path, **variables: str) -> subprocess.Popen:
    """Start `python script --flags` in the folder cwd, one thread, nothing of this repository on the path."""
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


def read_checkpoint(run: Path) -> dict:
    return torch.load(run / "checkpoint.pt", map_location="cpu", weights_only=True)


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """{tag: [(step, value), ...]} as TensorBoard shows it."""
    events = EventAccumulator(str(run), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def seeds_1_1_2(algo, tiny, folder: Path, **flags) -> tuple[list, list]:
    """Evaluations and logged scalars, but for the speed, of two runs with seed 1 and one with seed 2."""
    returns, logged = [], []
    for i, seed in enumerate((1, 1, 2)):
        returns.append(algo.train(tiny(algo, folder / str(i), seed=seed, **flags))["eval_returns"])
        logged.append(scalars(run_folder(folder / str(i))))
        del logged[-1]["charts/SPS"]
    return returns, logged


def is_disturbed_by_evaluations(algo, tiny, folder: Path, frequency: int, **flags) -> bool:
    """Whether a run that evaluates on the way ends with other weights than one that does not."""
    agents = []
    for name, every in (("without", 0), ("with", frequency)):
        algo.train(tiny(algo, folder / name, eval_frequency=every, **flags))
        agents.append(read_checkpoint(run_folder(folder / name))["agent"])
    assert len(scalars(run_folder(folder / "with"))["eval/episodic_return"]) > 2
    return not all(torch.equal(agents[0][key], agents[1][key]) for key in agents[0])


def spy(monkeypatch, algo, name: str, before) -> None:
    """Call before(*args) each time the file calls its own function `name`."""
    original = getattr(algo, name)

    def wrapper(*args, **kwargs):
        before(*args, **kwargs)
        return original(*args, **kwargs)

    monkeypatch.setattr(algo, name, wrapper)


@pytest.fixture(params=NAMES)
def algo(request):
    return load(request.param)


@pytest.fixture(params=CLASSIC + PIXELS)
def classic(request):
    return load(request.param)


@pytest.fixture(params=ATARI)
def atari(request):
    return load(request.param)


def only(*names):
    """Run a test with these of the Atari files, or of those for discrete actions."""
    return pytest.mark.parametrize(
        "atari" if names[0] in ATARI else "classic", names, indirect=True
    )


@pytest.fixture
def fake(atari, monkeypatch):
    """The file with FakeAtari in place of the emulator."""
    monkeypatch.setattr(atari, "AtariVectorEnv", toy_envs.FakeAtari)
    toy_envs.FakeAtari.rows.clear()
    return atari


def cheap(algo, monkeypatch) -> None:
    """Make the file's network one that costs little."""

    class Shrink(torch.nn.AvgPool2d):
        def forward(self, obs):
            return super().forward(obs / 255)

    class Cheap(algo.Agent):
        def __init__(self, *args):
            super().__init__(*args)
            self.network = torch.nn.Sequential(
                Shrink(12), torch.nn.Flatten(), torch.nn.Linear(196, 512)
            )

    monkeypatch.setattr(algo, "Agent", Cheap)


@pytest.fixture
def small(fake, monkeypatch):
    """The file with FakeAtari and a network that costs little."""
    cheap(fake, monkeypatch)
    return fake


def pytest_collection_modifyitems(config, items):
    """Leave the mutations out, unless they are asked for by path or by -m."""
    if not config.option.markexpr and not any(
        "mutations" in arg for arg in config.invocation_params.args
    ):
        out = [item for item in items if item.get_closest_marker("mutations")]
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


@pytest.fixture(autouse=True)
def same_process_state():
    """One thread, a fixed generator, and the signal handlers back in place after a run that stopped half-way."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
