"""Bad input ends in one sentence that names the flag and a way out, before anything is created."""

import errno
import importlib.util
import json
import shutil
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
import toy_envs
from conftest import (
    APART,
    CLASSIC,
    CONTINUOUS,
    EVERY,
    LOOPS,
    LSTM,
    PARENTS,
    every_of,
    flag,
    has,
    load,
    longer,
    one_of_each,
    read_checkpoint,
    run_folder,
    script,
    tiny,
)

NAN, INF = float("nan"), float("inf")
COUNTS = "num_envs num_steps num_minibatches update_epochs total_timesteps eval_episodes batch_size"
COUNTS += " checkpoint_frequency eval_max_steps train_frequency target_network_frequency"
COUNTS += " buffer_size learning_starts cg_steps policy_frequency"
SHARES = "gamma gae_lambda q_lambda start_e end_e eval_e tau exploration_fraction rms_alpha"
RATES = "learning_rate max_grad_norm clip_coef vf_coef rms_eps max_kl cg_damping"
RATES += " policy_lr q_lr updates_per_step alpha"
ALONE = [  # what is wrong whatever the other flags are
    *[(name, value) for name in COUNTS.split() for value in (0, -1)],
    *[(name, value) for name in SHARES.split() for value in (-0.1, 1.1, NAN)],
    *[(name, value) for name in RATES.split() for value in (-1e-3, NAN, INF)],
    *[(name, -1) for name in ("eval_frequency", "keep_checkpoints", "torch_threads", "seed")],
    ("seed", 2**40),
    *[("exp_name", name) for name in ("", " ", "two\nlines", "x" * 151, "\u5b66" * 51)],
    ("num_envs", 10_001),
    ("eval_episodes", 10_001),
    ("torch_threads", 1025),
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


@every_of(*PARENTS)
def test_refused_values(every, tmp_path):
    """Would break: a run that fails after an hour, or trains on a rate that is no number."""
    for name, value, *words in ALONE + TOGETHER:
        if not has(every, name):
            continue
        if name == "total_timesteps" and value > 0 and not has(every, "num_steps"):
            continue
        if (name, value) == ("num_minibatches", 16) and not has(every, "norm_adv"):
            continue
        with pytest.raises(ValueError) as refused:
            tiny(every, tmp_path, **{name: value})
            pytest.fail(f"{flag(name)} {value} is accepted")
        message = str(refused.value)
        named = [flag(name), "--learning-starts"]  # which hangs together with the replay's size
        assert any(word in message for word in named) and "\n" not in message, message
        assert all(word in message for word in words), message
    assert list(tmp_path.iterdir()) == []


@every_of(*PARENTS)
def test_own_flag_with_a_default_of_zero(every, tmp_path, monkeypatch):
    """Would break: a coefficient that a user adds to Args, off by default, with which the copy does not start."""
    text = Path(every.__file__).read_text()
    old = "    def __post_init__(self):"
    copy = tmp_path / "mine.py"
    copy.write_text(
        text.replace(old, f"    my_coef: float = 0.0\n    my_rate: float = 1.0\n\n{old}", 1)
    )
    spec = importlib.util.spec_from_file_location("mine", copy)
    mine = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mine", mine)
    spec.loader.exec_module(mine)
    assert mine.Args().my_coef == 0
    for wrong in ({"my_coef": -1.0}, {"my_rate": 0.0}):
        with pytest.raises(ValueError, match="--my-.* must be"):
            mine.Args(**wrong)


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


@pytest.mark.parametrize("name", LOOPS)
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


@every_of("ppo_continuous")
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


@every_of("ppo_continuous", "dqn")
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
    ("Pendulum-v1,Hopper-v5", "Malformed"),
    ("FetchReach-v3", "MODULE:NAME"),  # of a package that is not installed
    ("toy_envs:Nothing-v0", "Environment `Nothing` doesn't exist"),
    ("./toy_envs:Counter-v0", "write its name alone"),
    ("WalkerWalk-v1", "--env-backend auto"),  # EnvPool's; tiny() asks for Gymnasium
    ("FrozenLake-v1", "Box"),  # Discrete observations
    ("Blackjack-v1", "Tuple"),
]
MORE = {
    "ppo_continuous": [("CartPole-v1", "ppo.py"), ("Several-v0", "ppo_multidiscrete.py")],
    "sac_continuous": [("CartPole-v1", "dqn.py"), ("NoBounds-v0", "TransformAction"),
                       ("Several-v0", "ppo_multidiscrete.py")],
    **dict.fromkeys(["ppo", "dqn"], [("Pendulum-v1", "ppo_continuous.py"), ("ShiftedDiscrete-v0", "5")]),
    **dict.fromkeys(["ppo_pixels"], [("ShiftedPixels-v0", "5"), ("CartPole-v11", "CartPole"),
                             ("Pendulum-v1", "Discrete"), ("no_such_module:Any-v0", "no_such"),
                             ("Counter-v0", ""), ("TinyPixels-v0", "32")]),
    **dict.fromkeys(["ppo_atari", "dqn_atari"], [("BreakoutNoFramskip-v4", "BreakoutNoFrameskip"),
                            ("Pong", "PongNoFrameskip-v4"), ("ALE/NoSuch-v5", "ALE/Pong-v5"),
                            ("CartPole-v1", "Atari"), ("", ""), ("no_such_module:Pong-v4", "")]),
}  # fmt: skip


class Unbounded(toy_envs.Counter):
    action_space = toy_envs.box(1)


class Several(toy_envs.Counter):
    action_space = gym.spaces.MultiDiscrete([2, 3])


@every_of(*MORE)
def test_environments(every, tmp_path, registered):
    """Would break: a traceback, an empty run folder."""
    registered("NoBounds-v0", Unbounded)
    registered("Several-v0", Several)
    ids = VECTOR if has(every, "env_backend") else []
    for env_id, word in ids + MORE[every.__name__]:
        refused(every, tmp_path, "--env-id", word, env_id=env_id)
    if has(every, "env_backend"):
        box = every.__name__ in CONTINUOUS
        wrong, toy = ("CartPole-v1", "Counter-v0") if box else ("Pendulum-v1", "CounterDiscrete-v0")
        refused(every, tmp_path, "--env-id", env_id=wrong, env_backend="envpool")
        refused(every, tmp_path, "--env-id", env_id=toy, env_backend="envpool")


@every_of("ppo_continuous")
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


# ---- environments that go wrong at the start


class Raises(toy_envs.Counter):
    """Raises an error of a user's environment."""

    def __init__(self, method: str, error: Exception):
        self.failing, self.error = method, error
        if method == "__init__":
            raise error

    def reset(self, **kwargs):
        if self.failing == "reset":
            raise self.error
        return super().reset(**kwargs)


class Grows(toy_envs.Counter):
    """Each instance has one more observation, or one more action, than the one before."""

    made = 0

    def __init__(self, what: str):
        Grows.made += 1
        setattr(self, f"{what}_space", toy_envs.box(2 + Grows.made, 1.0))

    def observe(self):
        return np.zeros(self.observation_space.shape, np.float32)


class Idle(toy_envs.Counter):
    """There is nothing to decide."""

    action_space = toy_envs.box(0, 1.0)


class Blind(toy_envs.Counter):
    """Observations without a number, as of a bandit."""

    observation_space = toy_envs.box(0)

    def observe(self):
        return np.zeros(0, np.float32)


class NoSpaces(gym.Env):
    pass


def with_level(level: int):
    return toy_envs.Counter()


class Alike:
    """An environment that does not inherit from gym.Env."""


WRONG = {  # how an environment is made, and words of the message
    "raises when it is made": (
        lambda: Raises("__init__", FileNotFoundError("levels.json")),
        ["levels.json (FileNotFoundError in ", "test_bad_input.py, line "],
    ),
    "raises in reset": (lambda: Raises("reset", KeyError("level")), ["'level' (KeyError in "]),
    "raises several lines": (
        lambda: Raises("reset", ValueError("one\n two")),
        ["one two (ValueError in "],
    ),
    "needs an argument": (with_level, ["'level'", "ENV_KWARGS"]),
    "is no environment": (Alike, ["must inherit from the gymnasium.Env class"]),
    "has no spaces": (NoSpaces, ["action_space"]),
    "has another observation": (lambda: Grows("observation"), ["the same spaces"]),
}


@every_of("ppo_continuous", "dqn")
@pytest.mark.parametrize("kind", WRONG)
def test_environments_that_go_wrong(every, kind, tmp_path, registered):
    """Would break: thirty lines of a traceback through Gymnasium, of which one is about the environment; a run that
    trains on nothing; an evaluation after hours that does not fit the policy."""
    make, words = WRONG[kind]
    entry_point = make
    if every.__name__ in CLASSIC and kind not in (
        "needs an argument",
        "is no environment",
        "has no spaces",
    ):
        entry_point = lambda: toy_envs.WithChoices(make())  # noqa: E731
    env_id = registered("Wrong-v0", entry_point)
    refused(every, tmp_path, "--env-id", *words, env_id=env_id, num_envs=1)


WITH_ROLLOUTS = [
    name for name in EVERY if name not in APART and "num_steps: int" in script(name).read_text()
]


@pytest.mark.parametrize("name", one_of_each(WITH_ROLLOUTS, "open_envs"))
def test_a_rollout_that_memory_cannot_hold(name, tmp_path):
    """Would break: a traceback of PyTorch's allocator, and a run folder without a checkpoint."""
    algo = load(name)
    steps = 2**31 - 8  # of each of two environments, whose observations have at least one byte
    flags = {"num_envs": 2, "num_steps": steps, "total_timesteps": 2 * steps}
    if has(algo, "num_minibatches"):
        flags["num_minibatches"] = 2
    with pytest.raises(
        (SystemExit, ValueError), match="GiB of .*; at most 8 are allowed.*--num-steps"
    ):
        algo.train(tiny(algo, tmp_path, **flags))
    assert list(tmp_path.iterdir()) == []


class MoreChoices(toy_envs.WithChoices):
    """Each instance has one more action than the one before."""

    made = 0

    def __init__(self):
        super().__init__(toy_envs.Counter())
        MoreChoices.made += 1
        self.action_space = gym.spaces.Discrete(2 + MoreChoices.made)


@pytest.mark.parametrize("name", CLASSIC)
def test_another_number_of_actions(name, tmp_path, registered):
    """Would break: an evaluation after hours with fewer actions than the policy has."""
    env_id = registered("MoreChoices-v0", MoreChoices)
    flags = {"num_minibatches": 1} if name in LSTM else {}  # whole environments
    refused(load(name), tmp_path, "the same spaces", env_id=env_id, num_envs=1, **flags)


def test_another_or_an_empty_action(tmp_path, registered):
    """Would break: an evaluation after hours with other actions than the policy has; a policy without actions."""
    algo = load("ppo_continuous")
    env_id = registered("Grows-v0", lambda: Grows("action"))
    refused(algo, tmp_path, "the same spaces", env_id=env_id, num_envs=1)
    env_id = registered("Idle-v0", Idle)
    for name in ("ppo_continuous", "ppo_rnd", "sac_continuous"):
        refused(load(name), tmp_path, "--env-id", "(0,)", "a Box of", env_id=env_id)


@pytest.mark.parametrize("name", ["sac_continuous", "dqn", "ppo_continuous"])
def test_observations_without_a_number(name, tmp_path, registered):
    """Would break: the largest of no numbers, which NumPy refuses."""
    algo = load(name)
    make = Blind if name != "dqn" else lambda: toy_envs.WithChoices(Blind())
    args = tiny(algo, tmp_path, env_id=registered("Blind-v0", make))
    assert np.isfinite(algo.train(args)["eval_return_mean"])


MODULES = {  # text of a module of the user, and words of the message
    "syntax error": ("def wrong(:", "wrong_module.py, line 1"),
    "raises": ("raise RuntimeError('no licence')", "no licence (RuntimeError in "),
    "lacks a package": ("import no_such_package", "Install wrong_module"),
    "registers nothing": ("", "`Gone` doesn't exist"),
    "registers what is not there": (
        "import gymnasium\ngymnasium.register('Gone-v0', entry_point='wrong_module:Gone')",
        "no attribute 'Gone'",
    ),
}


@pytest.mark.parametrize("kind", MODULES)
def test_modules_that_go_wrong(kind, tmp_path, monkeypatch):
    """Would break: a traceback of importlib in place of the line in the user's module."""
    text, words = MODULES[kind]
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "wrong_module.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "wrong_module", raising=False)
    (tmp_path / "empty").mkdir()
    try:
        refused(load("ppo"), tmp_path / "empty", "--env-id", words, env_id="wrong_module:Gone-v0")
    finally:
        gym.registry.pop("Gone-v0", None)


# ---- run folders


@pytest.mark.parametrize("name", ["ppo_continuous", "sac_continuous", "ppo_pixels"])
def test_script_that_is_read_only(name, tmp_path, monkeypatch):
    """Would break: a copy in the run folder that a resumed run cannot replace."""
    algo = load(name)
    more = ["float32"] if has(algo, "precision") else []
    script = tmp_path / "script.py"
    script.write_text("")
    script.chmod(0o444)
    monkeypatch.setattr(algo, "__file__", str(script))
    run_dir, *_ = algo.open_run(tiny(algo, tmp_path), "cpu", *more, 0)
    assert (run_dir / script.name).stat().st_mode & 0o200


@pytest.mark.parametrize("name", ["ppo_continuous", "sac_continuous", "ppo_pixels"])
def test_run_folder_that_cannot_be_written(name, tmp_path, monkeypatch):
    """One for each version of open_run(). Would break: a traceback of shutil on a full disk, and the folder of a run
    that never began."""
    algo = load(name)
    more = ["float32"] if has(algo, "precision") else []
    (tmp_path / "file").write_text("")
    for runs_dir in ("/proc/runs", tmp_path / "file", tmp_path / "file" / "runs"):
        with pytest.raises(SystemExit, match="--runs-dir .*Choose a folder that can be written"):
            algo.open_run(tiny(algo, tmp_path, runs_dir=str(runs_dir)), "cpu", *more, 0)

    def full(source, target):
        target.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(algo.shutil, "copyfile", full)
    with pytest.raises(SystemExit, match="cannot be written: .*No space left.* Is the disk full"):
        algo.open_run(tiny(algo, tmp_path), "cpu", *more, 0)
    assert [path.name for path in tmp_path.rglob("*")] == ["file", "runs"]
    kept = tmp_path / "run"
    kept.mkdir()
    (kept / "checkpoint.pt").write_text("of hours")
    with pytest.raises(SystemExit, match="cannot be written"):
        algo.open_run(tiny(algo, tmp_path, resume=str(kept)), "cpu", *more, 0)
    assert (kept / "checkpoint.pt").read_text() == "of hours"


# ---- checkpoints


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a finished run of ppo_continuous.py."""
    folder, algo = tmp_path_factory.mktemp("trained"), load("ppo_continuous")
    algo.train(tiny(algo, folder))
    return run_folder(folder)


def saved_as(run, **changes) -> None:
    """Change entries of the checkpoint, or remove those whose value is None; merge those of `agent`."""
    saved = read_checkpoint(run)
    saved["agent"] |= changes.pop("agent", {})
    saved = {key: value for key, value in (saved | changes).items() if value is not None}
    torch.save(saved, run / "checkpoint.pt")


def half(run) -> None:
    path = run / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def with_args(**changes):
    """Change arguments in config.json."""

    def change(run):
        config = json.loads((run / "config.json").read_text())
        config["args"] |= changes
        (run / "config.json").write_text(json.dumps(config))

    return change


OTHER_RUN, OWN_FILE = "give the folder of another run", "in that folder"
RESUMED = {  # what is done to the run folder, and words of the message
    "cut in half": (half, ["is damaged or not a checkpoint", OTHER_RUN]),
    "of another library": (
        lambda run: torch.save({"state_dict": {}}, run / "checkpoint.pt"),
        ["not a checkpoint", OTHER_RUN],
    ),
    "of another algorithm": (
        lambda run: saved_as(run, algo="dqn"),
        ["was written by dqn.py", "resume it with that file"],
    ),
    "of another format": (lambda run: saved_as(run, format=99), ["format 99", OWN_FILE]),
    "best.pt": (
        lambda run: saved_as(run, optimizer=None),
        ["holds weights alone", "own checkpoint"],
    ),
    "of another network": (
        lambda run: saved_as(run, agent={"critic.4.weight": torch.zeros(1, 32)}),
        ["weights do not fit", "critic.4.weight", OWN_FILE],
    ),
    "of more layers": (
        lambda run: saved_as(run, agent={"extra": torch.zeros(1)}),
        ["weights do not fit", "extra", OWN_FILE],
    ),
    "config.json cut": (
        lambda run: (run / "config.json").write_text("{half"),
        ["JSONDecodeError", OWN_FILE],
    ),
    "config.json is a list": (
        lambda run: (run / "config.json").write_text("[]"),
        ["saved arguments do not fit", OWN_FILE],
    ),
    "text for a number": (with_args(num_envs="many"), ["saved arguments do not fit", OWN_FILE]),
    "a flag that is gone": (with_args(old_flag=1), ["old_flag", OWN_FILE]),
    "no checkpoint": (
        lambda run: (run / "checkpoint.pt").unlink(),
        ["has no checkpoint yet", "without --resume"],
    ),
    "a folder as checkpoint": (
        lambda run: [(run / "checkpoint.pt").unlink(), (run / "checkpoint.pt").mkdir()],
        ["is damaged or not a checkpoint"],
    ),
}


@pytest.mark.parametrize("kind", RESUMED)
def test_checkpoints_that_cannot_be_resumed(kind, trained, tmp_path):
    """load_checkpoint and load_weights are one for all files (test_files.py). Would break: a traceback; the name of an
    error as the only hint; a run folder that is changed before the run is refused."""
    change, words = RESUMED[kind]
    run, algo = tmp_path / "run", load("ppo_continuous")
    shutil.copytree(trained, run)
    change(run)
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    with pytest.raises(SystemExit) as stopped:
        algo.train(tiny(algo, tmp_path, resume=str(run), total_timesteps=128))
    message = str(stopped.value)
    assert len(message.splitlines()) == 1 and message.startswith(f"--resume {run}")
    assert [word for word in words if word not in message] == [], message
    assert before == {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}


@pytest.mark.parametrize("name", ["dqn", "dqn_pixels", "ppo"])
def test_best_model_that_cannot_be_read(name, tmp_path):
    """Would break: the traceback of torch.load() where a power cut has left half a file."""
    algo = load(name)
    factor, flags = longer(algo, total_timesteps=64, eval_frequency=32)
    algo.train(tiny(algo, tmp_path, **flags))
    run = run_folder(tmp_path)
    (run / "best.pt").write_text("half")
    more = {"resume": str(run), "total_timesteps": 128 * factor}
    with pytest.raises(SystemExit, match="best.pt cannot be read: .* Remove it, then use --resume"):
        algo.train(tiny(algo, tmp_path, **flags | more))


def test_weights_are_loaded_with_care():
    """Would break: the pages of load_state_dict() after the network in a file was edited."""
    algo = load("ppo_continuous")
    agent = torch.nn.Linear(2, 2)
    for weights in ({"weight": torch.zeros(3, 3), "bias": torch.zeros(2)}, {}):
        with pytest.raises(SystemExit, match="--resume RUN: .* fit Agent .* in that folder") as end:
            algo.load_weights(agent, weights, "RUN")
        assert len(str(end.value).splitlines()) == 1
    for name in EVERY:
        text = script(name).read_text()
        assert text.count('load_weights(agent, saved["agent"], args.resume)') == 1, name
