"""Bad input ends in one line that names the flag, with exit status 2, before anything is created."""

import importlib.util
import sys

import pytest
from conftest import ALGOS, command_line, load, run_folder, tiny

# flags, and what the line has to contain beside the first flag
BAD = [
    ({"env_id": "Pendulum-v11"}, ["Pendulum-v1"]),
    ({"env_id": "pendulum"}, ["nearest"]),
    ({"env_id": "BipedalWaker-v3"}, ["BipedalWalker-v3"]),
    ({"env_id": ""}, []),
    ({"env_id": "no_such_module:Pendulum-v1"}, ["PYTHONPATH"]),
    ({"env_id": "Pendulum-v1@!"}, []),
    (
        {"env_id": "WalkerWalk-v1"},
        ["gymnasium"],
    ),  # tiny() asks for Gymnasium, which does not have it
    ({"env_id": "Counter-v0", "env_backend": "envpool"}, ["envpool"]),
    ({"env_id": "CartPole-v1"}, ["ppo.py"]),  # Discrete actions
    ({"env_id": "CartPole-v1", "env_backend": "envpool"}, ["ppo.py"]),
    ({"env_id": "FrozenLake-v1"}, []),  # Discrete observations
    ({"env_id": "Blackjack-v1"}, []),  # a tuple
    ({"squash": True, "env_id": "Unbounded-v0"}, ["bounds"]),
    ({"num_minibatches": 3}, ["16"]),
    ({"num_minibatches": 32}, []),
    ({"num_minibatches": 16}, []),  # one row each, whose standardised advantage is not a number
    ({"total_timesteps": 15}, ["16"]),
    *[
        ({name: value}, [])
        for value in (0, -1)
        for name in (
            "num_envs",
            "num_steps",
            "num_minibatches",
            "update_epochs",
            "total_timesteps",
            "eval_episodes",
            "checkpoint_frequency",
            "torch_threads",
        )
    ],
    ({"learning_rate": 0.0}, []),
    ({"learning_rate": -1e-3}, []),
    ({"learning_rate": float("nan")}, []),
    ({"max_grad_norm": -1.0}, []),
    ({"clip_coef": 0.0}, []),
    ({"gamma": 1.01}, ["[0, 1]"]),
    ({"gae_lambda": -0.1}, ["[0, 1]"]),
    ({"eval_frequency": -1}, []),
    ({"seed": -1}, []),
    ({"seed": 2**40}, []),
    ({"device": "cuda"}, ["auto"]),
    ({"device": "mps"}, ["auto"]),
    ({"track": True}, ["wandb"]),
    ({"capture_video": True}, ["moviepy"]),
    ({"resume": "no/such/run"}, ["no/such/run"]),
]


def refused(algo, args, capsys, folder, *words: str) -> str:
    """The one line on stderr; fails unless the run is refused as it should be."""
    with pytest.raises(SystemExit) as stopped:
        algo.train(args)
    output, errors = capsys.readouterr()
    assert stopped.value.code == 2
    assert len(errors.splitlines()) == 1, errors
    assert [word for word in words if word not in errors] == [], errors
    assert output == ""
    assert list(folder.iterdir()) == []
    return errors


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@pytest.mark.parametrize(
    ("flags", "words"), BAD, ids=lambda value: str(value) if isinstance(value, dict) else ""
)
def test_refused(algo, monkeypatch, tmp_path, capsys, flags, words):
    """Would break: a traceback, a run that fails after an hour, an empty run folder."""
    for package in ("wandb", "moviepy"):
        hide(monkeypatch, package)
    for device in ("cuda", "mps", "backends.mps"):
        monkeypatch.setattr(f"torch.{device}.is_available", lambda: False)
    refused(algo, tiny(algo, tmp_path, **flags), capsys, tmp_path, flag(next(iter(flags))), *words)


def hide(monkeypatch, package: str) -> None:
    """Make a package look as if it was not installed."""

    class Nowhere:
        def find_spec(self, name, *rest):
            if name == package:
                raise ModuleNotFoundError(f"No module named {name!r}")

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == package else find(name, *rest),
    )
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Nowhere(), *sys.meta_path])


def test_envpool_not_installed(algo, monkeypatch, tmp_path, capsys):
    """Would break: a traceback on the platforms for which EnvPool has no wheel, or no training at all there."""
    hide(monkeypatch, "envpool")
    folder = tmp_path / "refused"
    folder.mkdir()
    refused(algo, tiny(algo, folder, env_backend="envpool"), capsys, folder, "envpool")
    algo.train(tiny(algo, tmp_path, env_backend="auto"))
    assert (run_folder(tmp_path) / "summary.json").exists()


@pytest.mark.parametrize("alphas", [{"rpo_alpha": -0.1}, {"rpo_alpha_final": -0.1}], ids=str)
def test_negative_alpha(tmp_path, capsys, alphas):
    """Would break: noise of a negative width, which is silently noise of that width or none."""
    algo = load("rpo_continuous")
    refused(algo, tiny(algo, tmp_path, **alphas), capsys, tmp_path, "--rpo-alpha")


def test_resume_of_another_environment(algo, tmp_path, capsys):
    """Would break: weights of another shape loaded into the agent, with torch's own traceback."""
    algo.train(tiny(algo, tmp_path / "first"))
    capsys.readouterr()
    folder = tmp_path / "second"
    folder.mkdir()
    args = tiny(algo, folder, resume=str(run_folder(tmp_path / "first")), env_id="Counter-v0")
    refused(algo, args, capsys, folder, "--resume", "Pendulum-v1")


def test_on_the_command_line(tmp_path):
    """Would break: warnings of a library around the line, another exit status, a traceback; all at once for speed."""
    processes = {}
    for number, (name, flags, word) in enumerate(
        [
            ("ppo_continuous", ["--env-id", "Pendulum-v11"], "--env-id"),
            ("ppo_continuous", ["--env-id", "BipedalWalker-v2"], "--env-id"),
            ("ppo_continuous", ["--env-id", "Walker2d-v2"], "--env-id"),
            ("ppo_continuous", ["--env-id", "CartPole-v1"], "--env-id"),
            ("rpo_continuous", ["--env-id", "Pendulum-v1", "--num-envs", "0"], "--num-envs"),
            ("rpo_continuous", ["--resume", "nowhere"], "--resume"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        processes[folder, word] = command_line(*flags, script=ALGOS / f"{name}.py", cwd=folder)
    for (folder, word), process in processes.items():
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 2, errors
        assert len(errors.splitlines()) == 1 and word in errors, errors
        assert output == ""
        assert list(folder.iterdir()) == []
