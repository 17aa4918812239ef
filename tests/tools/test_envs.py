"""The vector environments of both backends: mode, seeds, flattening, agreement."""

import inspect
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import (
    cheap,
    fake_atari,
    has,
    load,
    on_first_step,
    read_checkpoint,
    run_folder,
    spy,
    tiny,
)


@pytest.fixture
def algo():
    """make_envs and flatten are one for all files of vectors (test_files.py)."""
    return load("ppo_continuous")


BACKENDS = pytest.mark.parametrize("backend", ["gymnasium", "envpool"])


@BACKENDS
def test_next_step_autoreset(algo, backend):
    """Would break: another autoreset mode, under which no row is a reset row and every mask is wrong."""
    envs, first = algo.make_envs(algo.Args(env_id="Pendulum-v1"), backend, 3, 5)
    assert envs.metadata["autoreset_mode"] == gym.vector.AutoresetMode.NEXT_STEP
    assert algo.flatten(first).shape == (3, 3) and algo.flatten(first).dtype == np.float32
    push = np.full((3, 1), 2.0, dtype=np.float32)
    for step in range(1, 201):
        obs, reward, terminated, truncated, _ = envs.step(push)
        assert not terminated.any()
        assert truncated.all() == truncated.any() == (step == 200)
        assert (reward < 0).all()
    after_reset, reward, terminated, truncated, _ = envs.step(push)
    assert not (terminated | truncated).any()
    assert (reward == 0).all()  # a reset row
    assert (np.abs(after_reset[:, 2]) <= 1).all()  # Pendulum starts with a speed within +-1
    assert not np.allclose(after_reset, obs, atol=0.05)
    _, reward, *_ = envs.step(push)
    assert (reward < 0).all()
    envs.close()


@BACKENDS
@pytest.mark.parametrize("env_id", ["Pendulum-v1", "BipedalWalker-v3"])
def test_seed_decides_the_episodes(algo, backend, env_id):
    """Would break: EnvPool's default seed 42 in every run; a seed that is not passed on."""

    def rows(seed):
        envs, obs = algo.make_envs(algo.Args(env_id=env_id), backend, 4, seed)
        action = np.full((4, *envs.single_action_space.shape), 0.5, dtype=np.float32)
        for _ in range(10):
            obs = envs.step(action)[0]
        envs.close()
        return obs

    assert np.array_equal(rows(1), rows(1))
    assert len(np.unique(np.concatenate([rows(1), rows(1000)]), axis=0)) == 8


@pytest.mark.parametrize(
    "name", ["ppo_continuous", "dqn", "reinforce", "ppo_pixels", "dqn_atari", "sac_continuous"]
)
def test_training_and_evaluation_seeds_never_meet(name, tmp_path, monkeypatch):
    """Would break: an evaluation on episodes that were trained on; two --seeds that share episodes."""
    algo, training, evaluation = load(name), [], []
    original, signature = algo.make_envs, inspect.signature(algo.make_envs)
    if name == "dqn_atari":
        fake_atari(algo, monkeypatch)
        cheap(algo, monkeypatch)

    def record(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        made, played = original(*args, **kwargs), training if given["num_envs"] == 3 else evaluation
        seeds = range(given["seed"], given["seed"] + given["num_envs"])
        on_first_step(made[0], lambda: played.extend(seeds))
        return made

    monkeypatch.setattr(algo, "make_envs", record)
    for seed in (0, 1, 107_295):
        for resume in ("", "again"):
            folder, total = tmp_path / str(seed), 32
            if resume:
                resume, total = str(run_folder(folder)), 96
            flags = {"seed": seed, "num_envs": 3, "eval_episodes": 4, "total_timesteps": total}
            flags |= {"learning_starts": 12} if has(algo, "learning_starts") else {}
            algo.train(tiny(algo, folder, resume=resume, **flags))
    assert len(training) == len(set(training)) == 3 * 2 * 3  # a resumed run has new episodes, too
    assert evaluation and not set(training) & set(evaluation)
    assert max(training + evaluation) < 2**31


def test_seed_reaches_the_environments(algo, monkeypatch, tmp_path):
    """Would break: --seed that seeds the networks only."""
    first = {}

    def before_update(agent, optimizer, args, batch, *_):
        first.setdefault(args.seed, batch["x"][:2].clone())

    spy(monkeypatch, algo, "update", before_update)
    for seed in (1, 2):
        algo.train(tiny(algo, tmp_path, seed=seed))
    assert not torch.allclose(first[1], first[2])


def test_dictionary_observations(algo, monkeypatch, tmp_path):
    """Would break: parts joined in another order, or a scalar per environment, such as the height, in a wrong shape."""
    args = tiny(algo, tmp_path, env_id="WalkerWalk-v1", env_backend="auto", total_timesteps=16)
    envs, first = algo.make_envs(args, "envpool", 3, 0)
    obs, *_ = envs.step(np.zeros((3, *envs.single_action_space.shape)))
    keys = sorted(obs)
    assert keys == ["height", "orientations", "velocity"]
    by_hand = np.concatenate([np.reshape(obs[key], (3, -1)) for key in keys], axis=1).astype(
        np.float32
    )
    assert by_hand.shape == (3, 24)
    for order in (keys, keys[::-1]):
        assert np.array_equal(algo.flatten({key: obs[key] for key in order}), by_hand)
    assert algo.flatten(obs).dtype == np.float32 and first.shape == (3, 24)
    envs.close()
    # one rollout; the evaluation of 1000 steps is left out
    monkeypatch.setattr(algo, "evaluate", lambda agent, envs, obs, *_: np.zeros(envs.num_envs))
    algo.train(args)
    saved = read_checkpoint(run_folder(tmp_path))["agent"]
    assert saved["obs_rms.mean"].shape == (24,) and saved["obs_rms.mean"].any()


def test_observations_of_any_shape(algo):
    """Would break: (n,) or (n, a, b) observations that reach a linear layer as they are."""
    assert algo.flatten(np.zeros((4, 2, 3))).shape == (4, 6)
    assert algo.flatten(np.zeros(4)).shape == (4, 1)


def test_backends_agree_on_pendulum(algo):
    """Would break: actions scaled, clipped or ordered differently by one of the backends."""
    args = algo.Args(env_id="Pendulum-v1")
    envs, obs = algo.make_envs(args, "envpool", 8, 3)
    env, rng = gym.make("Pendulum-v1"), np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(30):
        action = rng.uniform(-2, 2, (8, 1)).astype(np.float32)
        next_obs, reward, *_ = envs.step(action)
        for i in range(8):
            env.reset()
            env.unwrapped.state = np.array([np.arctan2(obs[i, 1], obs[i, 0]), obs[i, 2]])
            expected, expected_reward, *_ = env.step(action[i])
            np.testing.assert_allclose(next_obs[i], expected, atol=1e-3)
            assert reward[i] == pytest.approx(expected_reward, abs=1e-3)
        obs = next_obs
    envs.close()


def test_backend_flag_is_obeyed_and_gymnasium_judges(algo, monkeypatch, tmp_path):
    """Would break: an evaluation on EnvPool where Gymnasium has the environment."""
    made, played = [], []
    envpool = SimpleNamespace(
        __name__="envpool",
        __version__="1",
        list_all_envs=algo.envpool.list_all_envs,
        make_gymnasium=lambda *a, **k: played.append(k) or algo_envpool(*a, **k),
    )
    algo_envpool = algo.envpool.make_gymnasium
    monkeypatch.setattr(algo, "envpool", envpool)

    def record(args, backend, num_envs, seed, video_dir=None):
        made.append((backend, num_envs))

    spy(monkeypatch, algo, "make_envs", record)
    for choice in ("auto", "envpool", "gymnasium"):
        algo.train(
            tiny(
                algo,
                tmp_path / choice,
                env_backend=choice,
                env_id="Pendulum-v1",
                num_envs=3,
                eval_episodes=4,
                total_timesteps=24,
            )
        )
        used = "gymnasium" if choice == "gymnasium" else "envpool"
        assert [backend for backend, count in made if count == 3] == [used]
        assert [backend for backend, count in made if count == 4] == ["gymnasium"]
        assert [given["num_envs"] for given in played] == [3] * (choice != "gymnasium")
        made.clear()
        played.clear()
