"""Bad input ends in one sentence that names the flag and a way out, before anything is created."""

import importlib.util
import re
import signal
import sys

import gymnasium as gym
import numpy as np
import pytest
import toy_envs
from conftest import (
    ATARI,
    CLASSIC,
    CONTINUOUS,
    NAMES,
    PARENTS,
    PIXELS,
    ROOT,
    command_line,
    every_of,
    flag,
    has,
    load,
    run_folder,
    script,
    tiny,
)

NAN, INF = float("nan"), float("inf")
COUNTS = "num_envs num_steps num_minibatches update_epochs total_timesteps eval_episodes batch_size"
COUNTS += " checkpoint_frequency eval_max_steps train_frequency target_network_frequency"
COUNTS += " buffer_size learning_starts cg_steps policy_frequency"
SHARES = "gamma gae_lambda start_e end_e eval_e tau exploration_fraction rms_alpha"
RATES = "learning_rate max_grad_norm clip_coef vf_coef rms_eps max_kl cg_damping"
RATES += " policy_lr q_lr updates_per_step alpha"
ALONE = [  # what is wrong whatever the other flags are
    *[(name, value) for name in COUNTS.split() for value in (0, -1)],
    *[(name, value) for name in SHARES.split() for value in (-0.1, 1.1, NAN)],
    *[(name, value) for name in RATES.split() for value in (-1e-3, NAN, INF)],
    *[(name, -1) for name in ("eval_frequency", "keep_checkpoints", "torch_threads", "seed")],
    ("seed", 2**40),
]
TOGETHER = [  # and what does not fit the flags of tiny(), 2 environments with 8 steps a rollout
    ("num_steps", 1, "at least"),
    ("num_minibatches", 3, "16"),
    ("num_minibatches", 16, "16"),  # one row each, whose standardised advantage is not a number
    ("total_timesteps", 15, "--num-steps"),
    ("buffer_size", 5, ""),
    ("learning_starts", 2, ""),
    ("learning_starts", 65, ""),
    ("learning_starts", 64, ""),
]


def test_refused_values(every, tmp_path):
    """Would break: a run that fails after an hour, or trains on a rate that is no number."""
    for name, value, *words in ALONE + TOGETHER:
        if not has(every, name):
            continue
        if name == "total_timesteps" and value > 0 and not has(every, "num_steps"):
            continue
        with pytest.raises(ValueError) as refused:
            tiny(every, tmp_path, **{name: value})
            pytest.fail(f"{flag(name)} {value} is accepted")
        message = str(refused.value)
        named = [flag(name), "--learning-starts"]  # which hangs together with the replay's size
        assert any(word in message for word in named) and "\n" not in message, message
        assert all(word in message for word in words), message
    assert list(tmp_path.iterdir()) == []


def test_refused_values_are_of_flags():
    """Would break: a value of a flag that none of these files has, which is tried nowhere."""
    known = set()
    for name in PARENTS:
        known |= load(name).Args.__dataclass_fields__.keys()
    assert {name for name, *_ in ALONE + TOGETHER} <= known


@every_of("ppo_rnd", "ppo_icm")
def test_discount_of_the_bonus(every, tmp_path):
    """Would break: an undiscounted bonus, whose returns never end and whose scale then grows with the run."""
    for value in (-0.1, 1.0, NAN):
        with pytest.raises(ValueError, match="--int-gamma .* must be"):
            tiny(every, tmp_path, int_gamma=value)
    tiny(every, tmp_path, int_gamma=0.999)


@every_of("td3_continuous", "ddpg_continuous")
def test_noise(every, tmp_path):
    """Would break: actions that are no numbers; a study without noise that is refused."""
    names = ["exploration_noise", "policy_noise", "noise_clip"]
    for name in names if every.__name__ == "td3_continuous" else names[:1]:
        for value in (-0.1, NAN, INF):
            with pytest.raises(ValueError, match=f"{flag(name)} .* must be"):
                tiny(every, tmp_path, **{name: value})
        tiny(every, tmp_path, **{name: 0.0})


@every_of("dqn_atari", "dqn", "dqn_pixels", "sac_continuous")
def test_steps_that_train_nothing(every, tmp_path):
    """Would break: 3,000 steps with --learning-starts 80,000: no update, and no word."""
    for total in (7, 8):
        with pytest.raises(ValueError, match="--learning-starts"):
            tiny(every, tmp_path, total_timesteps=total, learning_starts=8)
    tiny(every, tmp_path, total_timesteps=9, learning_starts=8)


def test_first_draw_of_a_game_with_fire(tmp_path):
    """The first two rows are the script's, the third is the newest: none can be drawn. Would break: a search that
    never ends for a row to draw."""
    dqn = load("dqn_atari")
    with pytest.raises(ValueError, match="--learning-starts"):
        tiny(dqn, tmp_path, learning_starts=6)
    tiny(dqn, tmp_path, learning_starts=8)


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


def refused(algo, folder, *words: str, **flags) -> None:
    """One line from train(), with nothing created."""
    with pytest.raises(SystemExit) as stopped:
        algo.train(tiny(algo, folder, **flags))
    message = str(stopped.value)
    assert len(message.splitlines()) == 1, message
    assert [word for word in words if word not in message] == [], message
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", PARENTS)
def test_what_the_machine_lacks(name, monkeypatch, tmp_path):
    """Would break: a traceback of a package or a device, after the folder was made or hours later."""
    hide(monkeypatch, "wandb")
    algo = load(name)
    for device in ("cuda", "mps"):
        monkeypatch.setattr(f"torch.{device}.is_available", lambda: False)
        refused(algo, tmp_path, "--device", device, "auto", device=device)
    if has(algo, "track"):
        refused(algo, tmp_path, "--track", "pip install wandb", track=True)
    refused(algo, tmp_path, "--resume no/such/run: no such folder", resume="no/such/run")


@every_of(*NAMES[:1], "sac_continuous", *CLASSIC)
def test_envpool_not_installed(every, monkeypatch, tmp_path):
    """Would break: a traceback on the platforms for which EnvPool has no wheel, or no training there."""
    hide(monkeypatch, "envpool")
    algo = load(every.__name__)
    (tmp_path / "refused").mkdir()
    refused(algo, tmp_path / "refused", "envpool", "pip install", env_backend="envpool")
    algo.train(tiny(algo, tmp_path, env_backend="auto"))
    assert (run_folder(tmp_path) / "summary.json").exists()


class Parts(gym.Env):
    """Observations of several parts."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, box: bool, **parts):
        self.observation_space = gym.spaces.Dict(parts | {"place": toy_envs.box(1)})
        if box:
            self.action_space = toy_envs.box(1, 1.0)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}


KINDS = {
    "Discrete": gym.spaces.Discrete(3),
    "nested": gym.spaces.Dict(inner=toy_envs.box(2)),
}


@every_of(*NAMES[:1], "sac_continuous", *CLASSIC)
@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_observations(every, kind, tmp_path, registered):
    """Would break: advice to take a file that cannot take them either, and no word of which part it is."""
    env_id = f"Parts{kind}-v0"
    registered(env_id, lambda: Parts(every.__name__ in CONTINUOUS, whatnot=KINDS[kind]))
    refused(every, tmp_path, "--env-id", "whatnot", "Box", env_id=env_id)


VECTOR = [  # env_id, words
    ("Pendulum-v11", "Pendulum"),
    ("pendulum", "pendulum"),
    ("BipedalWaker-v3", "BipedalWalker"),
    ("no_such_module:Pendulum-v1", "no_such_module"),
    ("Pendulum-v1@!", ""),
    ("", ""),
    ("WalkerWalk-v1", ""),  # EnvPool's; tiny() asks for Gymnasium
    ("FrozenLake-v1", "Box"),  # Discrete observations
    ("Blackjack-v1", "Tuple"),
]
MORE = {
    **dict.fromkeys(NAMES, [("CartPole-v1", "ppo.py")]),
    "sac_continuous": [("CartPole-v1", "dqn.py"), ("NoBounds-v0", "that sets them"),
                       ("Integers-v0", "real numbers")],
    **dict.fromkeys(CLASSIC, [("Pendulum-v1", "ppo_continuous.py"), ("ShiftedDiscrete-v0", "5")]),
    **dict.fromkeys(PIXELS, [("ShiftedPixels-v0", "5"), ("CartPole-v11", "CartPole"),
                             ("Pendulum-v1", "Discrete"), ("no_such_module:Any-v0", "no_such"),
                             ("Counter-v0", ""), ("TinyPixels-v0", "32")]),
    **dict.fromkeys(ATARI, [("BreakoutNoFramskip-v4", "BreakoutNoFrameskip"), ("Pong", ""),
                            ("CartPole-v1", "Atari"), ("", ""), ("no_such_module:Pong-v4", "")]),
}  # fmt: skip


class Unbounded(toy_envs.Counter):
    action_space = toy_envs.box(1)


class Integers(toy_envs.Counter):
    action_space = gym.spaces.Box(0, 3, (1,), np.int64)


@every_of("ppo_continuous", "sac_continuous", *CLASSIC, *PIXELS, *ATARI)
def test_environments(every, tmp_path, registered):
    """Would break: a traceback, an empty run folder."""
    registered("NoBounds-v0", Unbounded)
    registered("Integers-v0", Integers)
    ids = VECTOR if has(every, "env_backend") else []
    for env_id, word in ids + MORE[every.__name__]:
        refused(every, tmp_path, "--env-id", word, env_id=env_id)
    if has(every, "env_backend"):
        box = every.__name__ in CONTINUOUS
        wrong, toy = ("CartPole-v1", "Counter-v0") if box else ("Pendulum-v1", "CounterDiscrete-v0")
        refused(every, tmp_path, "--env-id", env_id=wrong, env_backend="envpool")
        refused(every, tmp_path, "--env-id", env_id=toy, env_backend="envpool")


@every_of(*NAMES[:1], "sac_continuous", *CLASSIC)
def test_no_evaluation(every, tmp_path):
    """Would break: training on EnvPool's environment to the end, and a traceback at the evaluation: Gymnasium
    has the name, but cannot make it, or gives a Tuple where EnvPool gives three numbers."""
    refused(every, tmp_path, "--env-id", "robotics", env_id="HalfCheetah-v3", env_backend="auto")
    refused(every, tmp_path, "--env-id", "Tuple", env_id="Blackjack-v1", env_backend="auto")


def test_squash_needs_bounds(tmp_path, registered):
    """Would break: an action that is infinite times tanh."""
    registered("NoBounds-v0", Unbounded)
    algo = load("ppo_squashed")
    refused(algo, tmp_path, "--env-id", "bound", env_id="NoBounds-v0")
    plain = load("ppo_continuous")
    assert np.isfinite(plain.train(tiny(plain, tmp_path, env_id="NoBounds-v0"))["eval_return_mean"])


@pytest.mark.parametrize(
    ("name", "module"),
    [("probe", "torch"), ("enjoy", "gymnasium"), ("tune", "optuna"), ("sweep", "tqdm")],
)
def test_interrupted_at_the_start(name, module, tmp_path):
    """Would break: the traceback of a Ctrl-C in the seconds in which a script of scripts/ imports its libraries."""
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt")
    file = ROOT / "scripts" / f"{name}.py"
    process = command_line(script=file, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert process.communicate(timeout=60) == ("", "") and process.wait() == -signal.SIGINT


def test_on_the_command_line(tmp_path):
    """tyro's box for a value, one line for the rest. Would break: a library's warnings around it, exit
    status 0, a traceback; all at once for speed."""
    processes = {}
    for number, (name, flags, word, status) in enumerate(
        [
            ("ppo_continuous", ["--env-id", "Pendulum-v11"], "--env-id", 1),
            ("dqn_atari", ["--total-timesteps", "100"], "--learning-starts", 2),
            ("ppo_pixels", ["--resume", "nowhere"], "--resume", 1),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        process = command_line(*flags, script=script(name), cwd=folder)
        processes[folder] = word, status, process
    for folder, (word, status, process) in processes.items():
        output, errors = process.communicate(timeout=240)
        lines = [line for line in errors.splitlines() if not re.match("[╭╰│]", line)]
        assert process.returncode == status, errors
        assert word in errors and "Traceback" not in errors, errors
        assert len(lines) == (status == 1) and output == "", errors
        assert list(folder.iterdir()) == []
