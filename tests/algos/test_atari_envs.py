"""The emulator's vector environment as the Atari files make it, alone and beside stable-baselines3's wrappers.

Played from the same start with the same actions, rewards, ends and lives are equal, and most observations too. What
differs from Gymnasium with AtariWrapper and VecFrameStack of stable-baselines3, measured with ale-py 0.12.1:
1. The emulator turns each of the last two frames grey before it takes the larger of them, WarpFrame the larger of each
   colour first: nothing in Breakout, Space Invaders and Enduro; at most 14 to 37 of 255 in a few pixels where objects
   overlap in Pong, BeamRider, Q*bert, Seaquest and Ms. Pac-Man, 0.04 on average over a frame.
2. The last frame of a game repeats the one before; MaxAndSkipEnv shows a newer one if the third or fourth frame of the
   skip ends the game.
3. A game begins with 0 to 29 frames of no action, against 1 to 30. FIRE and action 2 follow on both sides, where the
   game has FIRE, and after a lost life a step of no action before them.
4. The stack of frames goes on after a lost life, against a black one.
5. The time limit of 108,000 frames counts from the first observation, against the start of the game.
6. The row after a game's end, with its reward of 0, is a reset row; DummyVecEnv resets in the last step.
"""

import functools
from types import SimpleNamespace

import ale_py
import gymnasium as gym
import numpy as np
import pytest
from conftest import files, load, tiny
from stable_baselines3.common.atari_wrappers import (
    EpisodicLifeEnv,
    FireResetEnv,
    MaxAndSkipEnv,
    WarpFrame,
)
from toy_envs import FakeAtari

gym.register_envs(ale_py)
V5 = sorted(
    env_id for env_id in gym.registry if env_id.startswith("ALE/") and env_id.endswith("-v5")
)
BARE = dict(noop_max=1, use_fire_reset=False)  # so that a game begins where the emulator begins it


@pytest.fixture(scope="module")
def algo():
    """One file for all: test_files.py holds that make_envs is the same in each."""
    return load("ppo_atari")


def test_games_can_be_played(algo):
    """Every sixth. Would break: a game whose name, size or actions the file cannot handle."""
    assert len(V5) == 104
    for env_id in V5[::6]:
        args = algo.Args(env_id=env_id)
        envs, obs = algo.make_envs(args, 1, 0)
        assert obs.shape == (1, 4, 84, 84) and obs.dtype == np.uint8, env_id
        for _ in range(10):  # Elevator Action is black for 7 steps
            obs, reward, terminated, truncated, info = envs.step(
                np.array([envs.single_action_space.n - 1])
            )
            if obs[0, -1].any():
                break
        assert obs.shape == (1, 4, 84, 84) and obs.dtype == np.uint8 and obs[0, -1].any(), env_id
        assert reward.shape == terminated.shape == truncated.shape == info["lives"].shape == (1,), (
            env_id
        )


def observations(
    algo, seed: int, env_id: str = "BreakoutNoFrameskip-v4", num_envs: int = 8
) -> np.ndarray:
    """Those of 20 steps of random play, (21, num_envs, 4, 84, 84)."""
    envs, first = algo.make_envs(algo.Args(env_id=env_id), num_envs, seed)
    rng = np.random.default_rng(0)
    return np.array(
        [first] + [envs.step(np.repeat(rng.integers(4), num_envs))[0] for _ in range(20)]
    )


@pytest.mark.parametrize("env_id", ["BreakoutNoFrameskip-v4", "ALE/Breakout-v5"])
def test_sub_environments_and_seeds(algo, env_id):
    """Would break: eight copies of one game; a seed that is not passed on. Without sticky actions, games differ by
    their start only, by one of 30 lengths of waiting, and Breakout's ball knows four ways from there."""
    one, again, other = (observations(algo, seed, env_id) for seed in (5, 5, 1000))
    assert np.array_equal(one, again)
    least = 3 if "Breakout" in env_id and "NoFrameskip-v4" in env_id else 6
    assert len({game.tobytes() for game in one.swapaxes(0, 1)}) >= least
    assert not (one == other).all(axis=(0, 2, 3, 4)).all()
    shifted = observations(algo, 7, env_id)
    assert np.array_equal(one[:, 2:], shifted[:, :-2])  # environment i has the seed `seed` + i


SPECS = [
    ("BreakoutNoFrameskip-v4", "breakout", 4, 0.0, False, 108_000),
    ("BreakoutNoFrameskip-v0", "breakout", 4, 0.25, False, 108_000),
    ("ALE/Breakout-v5", "breakout", 4, 0.25, False, 108_000),
    ("ALE/MsPacman-v5", "ms_pacman", 4, 0.25, False, 108_000),
    ("FullBreakout-v4", "breakout", 4, 0.0, True, 108_000),
    ("ShortBreakout-v4", "breakout", 4, 0.0, False, 402),
]


@pytest.mark.parametrize(("env_id", "game", "frames", "sticky", "full", "longest"), SPECS)
def test_an_id_means_what_it_says(algo, monkeypatch, env_id, game, frames, sticky, full, longest):
    """Would break: sticky actions where the id has none or the other way round, 16 frames a step, another
    limit."""
    args = algo.Args(env_id=env_id)
    with monkeypatch.context() as patch:
        patch.setattr(algo, "AtariVectorEnv", FakeAtari)
        algo.make_envs(args, 3, 0)
    given = FakeAtari.made[-1]
    expected = {
        "game": game,
        "num_envs": 3,
        "frameskip": frames,
        "repeat_action_probability": sticky,
        "full_action_space": full,
        "max_num_frames_per_episode": longest,
    }
    assert given | expected == given
    envs, _ = algo.make_envs(args, 1, 0)
    numbers = [envs.step(np.array([0]))[-1]["frame_number"][0] for _ in range(2)]
    assert numbers[1] - numbers[0] == frames
    assert envs.single_action_space.n == (18 if full else 9 if "Pacman" in env_id else 4)


def test_sticky_actions(algo):
    """Would break: a stickiness that is handed over and has no effect: one seed, one start, and what differs."""
    for env_id, same in (("BreakoutNoFrameskip-v4", True), ("BreakoutNoFrameskip-v0", False)):
        envs = [algo.make_envs(algo.Args(env_id=env_id), 1, seed, **BARE)[0] for seed in (1, 2)]
        rng = np.random.default_rng(0)
        obs = [[env.step(action)[0] for env in envs] for action in rng.integers(4, size=(60, 1))]
        assert all(np.array_equal(*both) for both in obs) == same


def wrapped(env_id: str, *wrappers) -> gym.Env:
    return functools.reduce(
        lambda env, wrap: wrap(env), [*wrappers, WarpFrame], MaxAndSkipEnv(gym.make(env_id), 4)
    )


@pytest.mark.parametrize(
    ("env_id", "steps", "games", "largest", "average"),
    [
        ("BreakoutNoFrameskip-v4", 450, 2, 0, 0.0),
        ("SpaceInvadersNoFrameskip-v4", 600, 1, 0, 0.0),
        ("PongNoFrameskip-v4", 250, 0, 16, 0.03),
        ("BeamRiderNoFrameskip-v4", 250, 0, 16, 0.01),
        ("ShortBreakout-v4", 250, 2, 0, 0.0),
    ],
)
def test_same_games_as_with_stable_baselines3(algo, env_id, steps, games, largest, average):
    """Would break: another order of skipping, resizing and stacking; a reward, an end or a life elsewhere."""
    ends, difference, rng, paid = 0, [], np.random.default_rng(0), 0.0
    env = wrapped(env_id)
    args = algo.Args(env_id=env_id, fire_on_life_loss=False)
    envs, obs = algo.make_envs(args, 1, 3, **BARE)
    frame, their_info = env.reset(seed=3)
    info = {"lives": [their_info["lives"]]}
    stack = np.zeros((4, 84, 84), np.uint8)
    for _ in range(steps):
        stack = np.concatenate([stack[1:], frame.transpose(2, 0, 1)])
        assert info["lives"][0] == their_info["lives"]
        difference.append(np.abs(obs[0].astype(int) - stack))
        action = rng.integers(env.action_space.n)
        obs, (reward,), (terminated,), (truncated,), info = envs.step(np.array([action]))
        frame, *theirs, their_info = env.step(action)
        assert (reward, terminated, truncated) == tuple(theirs)
        paid += abs(reward)
        if terminated or truncated:
            obs, (reward,), *done, info = envs.step(np.array([action]))  # the reset row
            assert reward == 0 and not any(done)
            frame, their_info = env.reset()
            stack, ends = np.zeros((4, 84, 84), np.uint8), ends + 1
    assert ends >= games and (paid or "Beam" in env_id)
    assert np.max(difference) <= largest and np.mean(difference) <= average


@files("dqn_atari")
@pytest.mark.parametrize("fire", [True, False])
def test_what_is_learned_from_is_what_stable_baselines3_would_see(
    atari, monkeypatch, tmp_path, fire
):
    """Would break: a life that ends a transition too early or too late, a frame or reward of another row, from the
    emulator to the replay; FIRE that is not pressed, or in a step that is learned from. The actions are those of the
    run, played once more."""
    replays, make_envs = [], functools.partial(atari.make_envs, **BARE)
    monkeypatch.setattr(atari, "make_envs", make_envs)
    monkeypatch.setattr(atari, "evaluate", lambda agent, envs, *_: np.zeros(envs.num_envs))

    class Kept(atari.Replay):
        def __init__(self, *args):
            super().__init__(*args)
            replays.append(self)

    monkeypatch.setattr(atari, "Replay", Kept)
    flags = dict(
        num_envs=1,
        total_timesteps=400,
        buffer_size=500,
        learning_starts=399,
        start_e=1.0,
        end_e=1.0,
        fire_on_life_loss=fire,
    )
    atari.train(tiny(atari, tmp_path, **flags))
    (replay,) = replays
    env = wrapped("BreakoutNoFrameskip-v4", EpisodicLifeEnv, FireResetEnv)
    lives = (
        env.env.env
    )  # its reset after a lost life plays a no-op, that of FireResetEnv two actions more
    t, lost, games = (2 if fire else 0), 0, 0
    frame = env.reset()[0] if fire else env.observation(lives.reset()[0])
    valid, age = replay.valid[:t, 0], replay.age[:t, 0]
    assert valid.tolist() == [False] * t and age.tolist() == [*range(t)]
    while games == 0:
        assert np.array_equal(replay.frame[t, 0], frame[..., 0])
        assert replay.valid[t, 0]
        frame, paid, terminated, *_ = env.step(int(replay.action[t, 0]))
        assert replay.reward[t, 0] == np.sign(paid)
        assert replay.terminal[t, 0] == terminated
        lost += terminated
        games += lives.was_real_done
        t += 1
        if fire and terminated and not games:
            frame, _ = env.reset()
            valid, age = replay.valid[t : t + 3, 0], replay.age[t : t + 3, 0]
            assert valid.tolist() == [False] * 3 and age.tolist() == [3, 3, 3]
            t += 3
    assert lost == 5
    ages = [0, 1, 2] if fire else [0]  # of the new game's first rows, after the reset row
    rows = slice(t, t + 1 + len(ages))
    assert replay.valid[rows, 0].tolist() == [False] * len(ages) + [True]
    assert replay.age[rows, 0][1:].tolist() == ages


def test_games_with_fire(algo):
    """FIRE is action 1, or has no part: in two board games. Would break: a script that plays something else."""
    board = ["ALE/Backgammon-v5", "ALE/VideoCheckers-v5"]
    for env_id, length in ((board[0], 0), (board[1], 0), ("BreakoutNoFrameskip-v4", 3)):
        envs, _ = algo.make_envs(algo.Args(env_id=env_id), 1, 0)
        assert envs.script_length == length
        envs.close()
    places = {}
    for env_id in [*V5[::6], *board]:
        envs = ale_py.AtariVectorEnv(gym.spec(env_id).kwargs["game"], 1)
        actions = envs.ale.get_action_set()
        if ale_py.Action.FIRE in actions:
            places[env_id] = actions.index(ale_py.Action.FIRE)
    assert len(places) > 10
    assert sorted(env_id for env_id, place in places.items() if place != 1) == board


def test_a_truncated_game_loses_no_life_at_its_reset(algo):
    """Four lives left at the time limit, three when the next game begins. Would break: a life lost in the reset row,
    and a script that begins anew after it, with a no-op too many."""

    class OneGame(gym.vector.VectorEnv):
        ale = SimpleNamespace(get_action_set=lambda: [ale_py.Action.NOOP, ale_py.Action.FIRE])
        num_envs, played = 1, []

        def reset(self, seed=None):
            return np.zeros((1, 1)), {}

        def step(self, action):
            self.played.append(int(action[0]))
            lives = np.array([4 if len(self.played) <= 4 else 3])
            truncated = np.array([len(self.played) == 4])
            return np.zeros((1, 1)), np.zeros(1), np.zeros(1, bool), truncated, {"lives": lives}

    envs = algo.FireOnLifeLoss(OneGame(), True)
    envs.reset(seed=1)
    lost, scripted = [], []
    for _ in range(8):
        info = envs.step(np.array([7]))[-1]
        lost += info["life_lost"].tolist()
        scripted += info["scripted"].tolist()
    assert OneGame.played == [1, 2, 7, 7, 0, 1, 2, 7]
    assert not any(lost) and scripted == [True, True, False, False, True, True, True, False]


def test_a_reset_in_the_middle_of_a_game(algo):
    """Would break: FIRE that is not pressed after it, or a life that the new game is said to have lost."""
    envs, _ = algo.make_envs(algo.Args(), 1, 0)
    envs.step(np.array([0]))
    envs.reset(seed=5)
    infos = [envs.step(np.array([0]))[-1] for _ in range(3)]
    envs.close()
    assert [bool(info["scripted"][0]) for info in infos] == [True, True, False]
    assert not any(info["life_lost"][0] for info in infos)
