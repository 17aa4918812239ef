"""Environments with mistakes, and with spaces that a file does not take: each is refused in one sentence at the start,
or repaired by the wrapper that the sentence names."""

import functools
import random

import gymnasium as gym
import numpy as np
import pytest
import torch
import toy_envs
from conftest import (
    BOXES,
    CLASSIC,
    CONTINUOUS,
    OFF_POLICY,
    PIXELS,
    SEEDS,
    VECTORS,
    every_of,
    load,
    that_open,
    tiny,
    toy,
)
from test_bad_input import refused
from test_failures import as_taken
from test_videos import InGrey


def open_envs(algo, args):
    """What the file's own function returns, at the start of a run with seed 1."""
    return algo.open_envs(args, [1]) if algo.__name__ in SEEDS else algo.open_envs(args, 1, 0)


class Integers(toy_envs.Counter):
    action_space = gym.spaces.Box(0, 3, (1,), np.int64)


@pytest.mark.parametrize("name", that_open(BOXES))
def test_integer_actions(name, tmp_path, registered):
    """Would break: an environment of integer actions that silently gets fractions."""
    registered("Integers-v0", Integers)
    words = "numbers" if name in ("ppo_rnd", "ppo_icm") else "WRAPPERS"
    refused(load(name), tmp_path, "--env-id", "real number", words, env_id="Integers-v0")


class Pictures(toy_envs.Counter):
    observation_space = gym.spaces.Box(0, 255, (84, 84), np.uint8)

    def observe(self):
        return np.zeros((84, 84), np.uint8)


@pytest.mark.parametrize("name", that_open(VECTORS))
def test_images_into_a_network_for_vectors(name, tmp_path, registered):
    """Would break: hours of training on flattened frames, without a word."""
    env_id = registered("Pictures-v0", Pictures)
    if name in CLASSIC:
        env_id = registered("PicturesDiscrete-v0", lambda: toy_envs.WithChoices(Pictures()))
    words = ["image", "ppo_atari.py", "ppo_pixels.py", "(Box actions) ppo_pixels_continuous.py"]
    refused(load(name), tmp_path, *words, env_id=env_id)


@pytest.mark.parametrize("name", that_open(VECTORS))
def test_ids_that_cannot_be_made(name, tmp_path):
    """Would break: "have you installed ALE?" where it is, and a module that is not found without a way out."""
    algo = load(name)
    for env_id in ("ALE/Pong-v5", "PongNoFrameskip-v4"):
        refused(algo, tmp_path, "ppo_atari.py", env_id=env_id)
    refused(algo, tmp_path, "PYTHONPATH", "nowhere", env_id="nowhere:Task-v0")


@every_of("ppo_atari", "a2c_atari", "dqn_atari")
def test_atari_id_with_its_module(every, tmp_path):
    """Would break: `ale_py:ALE/Pong-v5`, as Gymnasium's page of Atari writes it, that is not found."""
    args = tiny(every, tmp_path, env_id="ale_py:ALE/Pong-v5")
    envs, _ = every.make_envs(args, 1, 1)
    envs.close()


@pytest.mark.parametrize("name", [*VECTORS, *PIXELS])
def test_wrappers_with_statistics(name, tmp_path):
    """In every file, as each has its own order of the steps before the first rollout. Would break: evaluations with
    statistics of their own, returns that are not raw, a run folder that is made before the refusal."""
    algo = load(name)
    words = ("statistics that evaluations do not share", "--norm-obs", "--norm-reward")
    algo.WRAPPERS = (gym.wrappers.NormalizeObservation,)
    refused(algo, tmp_path, "NormalizeObservation", *words)
    algo.WRAPPERS = (InGrey, functools.partial(gym.wrappers.NormalizeReward, gamma=0.9))
    refused(algo, tmp_path, "NormalizeReward", *words)
    algo.WRAPPERS = (lambda env: InGrey(gym.wrappers.NormalizeReward(env)),)
    refused(algo, tmp_path, "NormalizeReward", *words)
    algo.WRAPPERS = InGrey  # the comma is missing
    refused(algo, tmp_path, "WRAPPERS must be a tuple; a single wrapper needs a comma")


@pytest.mark.parametrize("name", that_open([*VECTORS, *PIXELS]))
def test_time_limit_in_wrappers(name, tmp_path, registered):
    """Would break: episodes that keep the shorter limit of the id, and not a word."""
    algo = load(name)
    env_id = registered("Limited-v0", lambda: as_taken(algo, toy_envs.Long()))
    algo.ENV_KWARGS = {"max_episode_steps": 20}
    algo.WRAPPERS = (functools.partial(gym.wrappers.TimeLimit, max_episode_steps=21),)
    words = ("TimeLimit in WRAPPERS", "20 steps", "ENV_KWARGS", "max_episode_steps")
    refused(algo, tmp_path, *words, env_id=env_id)
    algo.WRAPPERS = (functools.partial(gym.wrappers.TimeLimit, max_episode_steps=19),)
    algo.check_env(tiny(algo, tmp_path, env_id=env_id), 1)
    algo.ENV_KWARGS = {}  # an id without a limit
    algo.check_env(tiny(algo, tmp_path, env_id=env_id), 1)


def test_squash_of_a_constant_action(tmp_path, registered):
    """Would break: log(0), and a NaN some steps later."""

    class Constant(toy_envs.Counter):
        action_space = gym.spaces.Box(np.float32([0, -1]), np.float32([0, 1]))

    env_id = registered("Constant-v0", Constant)
    refused(load("ppo_squashed"), tmp_path, "constant", "WRAPPERS", env_id=env_id)


class Mistaken(toy_envs.Counter):
    """An environment that breaks one of Gymnasium's rules."""

    def __init__(self, mistake: str):
        self.mistake = mistake

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        if self.mistake == "no info":
            return obs
        if self.mistake == "shape":
            obs = np.zeros(4, np.float32)
        if self.mistake == "raises":
            raise ValueError("the robot is not connected")
        return obs, info

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.mistake == "four values":
            return obs, reward, terminated or truncated, info
        if self.mistake == "reward of None":
            reward = None
        if self.mistake == "reward of shape (1,)":
            reward = np.array([reward])
        ended = terminated or truncated
        if self.mistake == "no last observation" and ended:
            obs = None
        if self.mistake == "last shape" and ended:
            obs = np.zeros(4, np.float32)
        if self.mistake == "ends of two":
            terminated = np.array([terminated, terminated])
        return obs, reward, terminated, truncated, info


class NoSeed(toy_envs.Counter):
    def reset(self):
        return super().reset(seed=0)


class Fractions(toy_envs.Counter):
    """Declares integers and shows fractions."""

    observation_space = gym.spaces.Box(-9, 9, (3,), np.int64)


MISTAKES = {  # how the environment is made, words of the message
    "no info": [lambda: Mistaken("no info"), "(obs, info)"],
    "shape": [lambda: Mistaken("shape"), "shape (4,)", "Box(-inf, inf, (3,), float32)"],
    "raises": [lambda: Mistaken("raises"), "the robot is not connected (ValueError in "],
    "four values": [
        lambda: Mistaken("four values"),
        "(obs, reward, bool terminated, bool truncated",
    ],
    "ends of two": [
        lambda: Mistaken("ends of two"),
        "(obs, reward, bool terminated, bool truncated",
    ],
    "no last observation": [lambda: Mistaken("no last observation"), "step() number 4", "object"],
    "last shape": [lambda: Mistaken("last shape"), "step() number 4", "shape (4,)"],
    "reward of None": [lambda: Mistaken("reward of None"), "reward", "NoneType", "number"],
    "reward of shape (1,)": [lambda: Mistaken("reward of shape (1,)"), "reward", "shape (1,)"],
    "no seed": [NoSeed, "reset(seed, options)", "'seed'"],
    "dtype": [Fractions, "type float32", "int64"],
}


@pytest.mark.parametrize("name", that_open([*VECTORS, *PIXELS]))
def test_mistakes_of_an_environment(name, tmp_path, registered):
    """Would break: a traceback of NumPy's after the run folder has been made, a NaN in place of None."""
    algo = load(name)
    for mistake, (make, *words) in MISTAKES.items():
        observations = ("shape", "dtype", "no last observation", "last shape")
        if name in PIXELS and mistake in observations:  # the pictures are the toy's own
            continue
        env_id = f"Mistake{len(gym.registry)}-v0"
        registered(env_id, lambda make=make: as_taken(algo, make()))
        refused(algo, tmp_path, "--env-id", *words, env_id=env_id)


class Careless(toy_envs.Counter):
    """Breaks rules that make no difference: float64, out of the bounds, one buffer for all observations."""

    observation_space = toy_envs.box(3, bound=0.5)
    buffer = np.zeros(3)

    def observe(self):
        self.buffer[:] = super().observe()
        return self.buffer


@pytest.mark.parametrize("name", that_open([*VECTORS, *PIXELS]))
def test_harmless_warnings(name, tmp_path, registered):
    """Would break: a healthy environment that is refused; other draws in training because of the check."""
    algo = load(name)
    env_id = registered("Careless-v0", lambda: as_taken(algo, Careless()))
    args = tiny(algo, tmp_path, env_id=env_id)
    before = random.getstate(), np.random.get_state()[2], torch.get_rng_state().tolist()
    Careless.rows.clear()
    algo.check_env(args, 2**30)
    assert before == (random.getstate(), np.random.get_state()[2], torch.get_rng_state().tolist())
    assert Careless.rows == []
    envs, *_ = open_envs(algo, args)
    envs.close()


class Stamp(toy_envs.Counter):
    """Observations whose first number is a time stamp."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def observe(self):
        return np.float64([1.7e9, 0, 0]) + super().observe()


class Shifted(gym.ObservationWrapper):
    def observation(self, obs):
        return obs - np.float64([1.7e9, 0, 0])


@pytest.mark.parametrize("name", that_open(VECTORS))
def test_time_stamps(name, tmp_path, registered, capsys):
    """Would break: a number that float32 makes constant, without a word; a wrapper that comes too late."""
    algo = load(name)
    env_id = registered("Stamp-v0", lambda: as_taken(algo, Stamp()))
    args = tiny(algo, tmp_path, env_id=env_id)
    for wrappers, told in (((), 1), ((Shifted,), 0)):
        algo.WRAPPERS = wrappers
        envs, *_ = open_envs(algo, args)
        envs.close()
        assert capsys.readouterr().err.count("to multiples of 128; if smaller changes") == told
    _, obs = algo.make_envs(args, "gymnasium", 2, 0)
    assert obs[0, 0] == 0 and obs[1, 0] == 1


@pytest.mark.parametrize("name", CONTINUOUS)
def test_bounds_in_float64(name):
    """MPS has no float64, which EnvPool's bounds are in. Would break: an agent that cannot be moved there, or
    an action that float32 rounds out of its space."""
    algo, rng = load(name), np.random.default_rng(1)
    low, high = rng.integers(-9, 0, 500) / 10, rng.integers(1, 10, 500) / 10
    more = ["float32"] if name in OFF_POLICY else []
    for kind in (np.float32, np.float64):
        space = gym.spaces.Box(kind(low), kind(high), dtype=kind)
        agent = algo.Agent(3, space, algo.Args(), *more)
        tensors = [*agent.parameters(), *agent.buffers()]
        assert all(tensor.dtype in (torch.float32, torch.int64) for tensor in tensors)
        for far in (-100.0, 100.0):
            action = agent.to_env(torch.full([1, 500], far))[0]
            assert space.contains(action)
            if name not in OFF_POLICY:  # their actions are in [-1, 1]
                np.testing.assert_allclose(action, low if far < 0 else high, rtol=1e-6)


@every_of(*that_open(CLASSIC))
@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Taxi-v4"])
def test_the_wrapper_for_discrete_observations(every, env_id, tmp_path):
    """Would break: advice that does not help."""
    flags = {"env_id": env_id, "env_backend": "auto"}
    refused(every, tmp_path, "Discrete(", "FlattenObservation", "WRAPPERS", **flags)
    every.WRAPPERS = (gym.wrappers.FlattenObservation,)
    assert every.train(tiny(every, tmp_path, **flags))["global_step"] >= 64


@pytest.mark.parametrize("name", that_open(VECTORS))
def test_task_that_only_envpool_has(name, tmp_path):
    """Would break: a wrapper as advised, then the word that this task takes none, and no way on."""
    algo = load(name)
    algo.WRAPPERS = (gym.wrappers.FlattenObservation,)
    flags = {"env_id": "Taxi-v3", "env_backend": "auto"}
    refused(algo, tmp_path, "EnvPool", "versions in Gymnasium: Taxi-v4", **flags)
    refused(algo, tmp_path, "versions in Gymnasium: none", **flags | {"env_id": "WalkerRun-v1"})


class Words(toy_envs.Counter):
    """A sequence of numbers, whose length varies."""

    observation_space = gym.spaces.Sequence(toy_envs.box(1))

    def observe(self):
        return tuple(np.ones((self.steps + 1, 1), np.float32))


def longest(words) -> np.ndarray:
    """The sum and the number of these numbers."""
    return np.array([np.sum(words), len(words)], np.float32)


@pytest.mark.parametrize("name", that_open(VECTORS))
def test_observations_of_varying_length(name, tmp_path, registered):
    """Would break: the advice to flatten, followed, and the same advice again."""
    env_id = registered("Words-v0", Words)
    if name in CLASSIC:
        env_id = registered("WordsDiscrete-v0", lambda: toy_envs.WithChoices(Words()))
    algo = load(name)
    words = ["Sequence", "gym.wrappers.TransformObservation", "WRAPPERS"]
    refused(algo, tmp_path, *words, env_id=env_id)
    algo.WRAPPERS = (gym.wrappers.FlattenObservation,)
    refused(algo, tmp_path, *words, env_id=env_id)
    transform = gym.wrappers.TransformObservation
    algo.WRAPPERS = (functools.partial(transform, func=longest, observation_space=toy_envs.box(2)),)
    envs, obs, _ = open_envs(algo, tiny(algo, tmp_path, env_id=env_id))
    envs.close()
    assert obs.tolist() == [[1, 1]] * 2


def box(low: float, high: float) -> type:
    return type("Bounded", (toy_envs.Counter,), {"action_space": gym.spaces.Box(low, high, (1,))})


def opened(algo, folder, **flags):
    """Open the environments, and close them."""
    envs, *_ = open_envs(algo, tiny(algo, folder, **flags))
    envs.close()


@pytest.mark.parametrize(("low", "high"), [(-2000, 2000), (2, 8), (-8, -2), (-0.01, 0.01)])
@pytest.mark.parametrize("name", that_open(BOXES))
def test_actions_far_from_the_first_policy(name, low, high, tmp_path, registered, capsys):
    """Would break: an agent that never leaves a thousandth of its actions, or one bound, and not a word."""
    algo = load(name)
    env_id = registered("Wide-v0", box(low, high))
    opened(algo, tmp_path, env_id=env_id)
    errors = capsys.readouterr().err
    scales_by_itself = name in OFF_POLICY or name == "ppo_squashed"
    assert scales_by_itself != (f"action 0 is from {low:g} to {high:g}, but begins" in errors)
    assert scales_by_itself or "gym.wrappers.RescaleAction to WRAPPERS" in errors
    rescale = functools.partial(gym.wrappers.RescaleAction, min_action=-1, max_action=1)
    algo.WRAPPERS = (rescale,)
    opened(algo, tmp_path, env_id=env_id)
    algo.WRAPPERS = ()
    opened(algo, tmp_path)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["ppo_rnd", "ppo_icm"])
def test_discrete_actions_have_no_scale(name, tmp_path, capsys):
    """Would break: a traceback of a Discrete space, which has no bounds."""
    opened(load(name), tmp_path, env_id="CounterDiscrete-v0")
    assert capsys.readouterr().err == ""


LARGEST = np.finfo(np.float32).max


class Unlimited(toy_envs.Counter):
    """Bounds that are numbers, but so large that their distance is infinite."""

    action_space = gym.spaces.Box(-LARGEST, LARGEST, (1,))


@pytest.mark.parametrize("name", [*OFF_POLICY, "ppo_squashed"])
def test_bounds_of_the_largest_number(name, tmp_path, registered):
    """Would break: SAC that plays its bounds alone, and NaN without the reason."""
    env_id = registered("Unlimited-v0", Unlimited)
    algo = load(name)
    if name == "ppo_squashed":
        return refused(algo, tmp_path, "bounds", "ppo_continuous.py", env_id=env_id)
    refused(algo, tmp_path, "too large", "TransformAction", "WRAPPERS", env_id=env_id)
    bounds = {"func": lambda action: action, "action_space": gym.spaces.Box(-1, 1, (1,))}
    algo.WRAPPERS = (functools.partial(gym.wrappers.TransformAction, **bounds),)
    opened(algo, tmp_path, env_id=env_id)


@pytest.mark.parametrize("name", that_open([*VECTORS, *PIXELS]))
def test_entry_point_that_returns_one_object(name, tmp_path, registered):
    """Would break: environments that step each other, in training and in evaluations."""
    algo = load(name)
    the_only_one = gym.make(toy(algo))
    env_id = registered("OneObject-v0", lambda **kwargs: the_only_one)
    refused(algo, tmp_path, "entry point", "new object", env_id=env_id)
