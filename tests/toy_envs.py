"""Environments whose every number is known beforehand; importing this registers them.

They are for the tests alone. The probe's environments are in scripts/plainrl_tools/probing/environments.py.
"""

import functools
from types import SimpleNamespace

import ale_py
import gymnasium as gym
import numpy as np

gym.register_envs(ale_py)


def box(size: int, bound: float = np.inf) -> gym.spaces.Box:
    return gym.spaces.Box(-bound, bound, (size,), np.float32)


class Counter(gym.Env):
    """Observation (id, steps taken, episode), id being the seed's parity; step s of an episode pays s + id.
    Episode k is 3, 2, 4, 3, 2, 4, ... + id steps long; even ones terminate, odd ones are truncated."""

    observation_space, action_space = box(3), box(1, 1.0)
    LENGTHS = 3, 2, 4
    training = True  # until a reset with a seed of the evaluations
    rows: list = []  # (observation, action, reward) of every step of training since the list was cleared

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.id, self.episode, self.training = seed % 2, -1, seed < 2**30
        self.steps, self.episode = 0, self.episode + 1
        return self.observe(), {}

    def observe(self):
        return np.array([self.id, self.steps, self.episode], dtype=np.float32)

    def length(self):
        return self.LENGTHS[self.episode % 3] + self.id

    def step(self, action):
        before, self.steps = self.observe(), self.steps + 1
        reward = float(self.steps + self.id)
        if self.training:
            Counter.rows.append((before, np.array(action), reward))
        done = self.steps == self.length()
        return (
            self.observe(),
            reward,
            done and self.episode % 2 == 0,
            done and self.episode % 2 == 1,
            {},
        )


class Uneven(Counter):
    """Episodes of 2 steps, which return 3, where the id is 0, and of 12 steps, which return 90, where it is 1."""

    def length(self):
        return 2 + 10 * self.id


class Long(Counter):
    """Episodes that no test plays to their end."""

    def length(self):
        return 10**9


class Broken(gym.Env):
    """Pays 1; the step number `at` of each instance returns `value` as its reward or as its observation."""

    observation_space, action_space = box(1), box(1, 1.0)

    def __init__(self, what: str, value: float = np.nan, at: int = 20):
        self.what, self.value, self.at, self.steps = what, value, at, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        self.steps += 1
        broken = {self.what: self.value} if self.steps == self.at else {}
        observation = np.full(1, broken.get("observation", 0.5), dtype=np.float32)
        return observation, broken.get("reward", 1.0), False, self.steps % 7 == 0, {}


class WithChoices(gym.ActionWrapper):
    """Two actions in place of one in [-1, 1]."""

    def __init__(self, env: gym.Env, start: int = 0):
        super().__init__(env)
        self.action_space = gym.spaces.Discrete(2, start=start)

    def action(self, action):
        return np.array([2.0 * action - 1.0], dtype=np.float32)


class InPictures(gym.ObservationWrapper):
    """Observations as (1, 36, 36) uint8: the numbers plus 1, one below the other as grey bands of equal height."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(0, 255, (1, 36, 36), np.uint8)

    def observation(self, obs):
        return (obs + 1).astype(np.uint8).repeat(36 // len(obs))[None, :, None].repeat(36, 2)


class Still(gym.Env):
    """Shows pictures of one grey, and renders nothing."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, shape: tuple):
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)

    def reset(self, *, seed=None, options=None):
        return np.full(self.observation_space.shape, 9, np.uint8), {}

    def step(self, action):
        return self.reset()[0], 1.0, False, False, {}


class FakeAtari(gym.vector.VectorEnv):
    """Stands in for ale_py.AtariVectorEnv: whatever is played, environment i plays games of 4, 3, 7, 4, ... + i steps.
    Even ones terminate, odd ones are truncated. Step s pays the next of 3 0 -2 5 0 1 -4, times i + 1. One of 3 lives
    goes at the second step; a termination takes all, a truncation one more where i is 0. In every third game all are
    gone from the fourth step on, though it goes on. A frame shows i + 1, game + 1 and step + 1, in a third each.
    FIRE is none of its four actions.
    """

    ale = SimpleNamespace(get_action_set=lambda: list(ale_py.Action.__members__.values())[2:6])

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}
    LENGTHS, REWARDS = (4, 3, 7), (3, 0, -2, 5, 0, 1, -4)
    rows: list = []  # (i, game, step, action, reward, ends) of each step, but reset rows, of training's environments
    made: list = []  # keywords of each

    def __init__(
        self, game: str, num_envs: int, *, frameskip=4, reward_clipping=True, stack_num=4, **view
    ):
        FakeAtari.made.append(dict(game=game, num_envs=num_envs, frameskip=frameskip) | view)
        assert not reward_clipping
        self.num_envs, self.stack_num = num_envs, stack_num
        self.single_observation_space = gym.spaces.Box(0, 255, (stack_num, 84, 84), np.uint8)
        self.single_action_space = gym.spaces.Discrete(4)

    @staticmethod
    def length(i: int, game: int) -> int:
        return FakeAtari.LENGTHS[game % 3] + i

    @staticmethod
    def lives(i: int, game: int, step: int) -> int:
        if step == FakeAtari.length(i, game):
            return game % 2 * (1 + i)
        return 0 if game % 3 == 2 and step >= 4 else 2 if step >= 2 else 3

    @staticmethod
    def reward(i: int, step: int) -> int:
        return FakeAtari.REWARDS[(step - 1) % 7] * (i + 1)

    @staticmethod
    def decode(obs) -> tuple[int, int, int] | None:
        """(i, game, step) of one 84 x 84 frame; None if it is black."""
        thirds = [int(obs[row, 0]) for row in (0, 28, 56)]
        return tuple(number - 1 for number in thirds) if any(thirds) else None

    def frame(self, i: int) -> np.ndarray:
        return np.repeat(np.array([i + 1, self.game[i] + 1, self.steps[i] + 1], np.uint8), 28)[
            :, None
        ].repeat(84, 1)

    def info(self) -> dict:
        lives = [self.lives(i, self.game[i], self.steps[i]) for i in range(self.num_envs)]
        return {"lives": np.array(lives, dtype=np.int32)}

    def reset(self, *, seed=None, options=None):
        self.training = seed % 2**31 < 2**30
        self.game, self.steps, self.done = np.zeros((3, self.num_envs), dtype=int)
        self.stack = np.zeros((self.num_envs, self.stack_num, 84, 84), np.uint8)
        for i in range(self.num_envs):
            self.stack[i, -1] = self.frame(i)
        return self.stack.copy(), self.info()

    def step(self, actions):
        assert actions.shape == (self.num_envs,) and actions.dtype in (np.int32, np.int64)
        reward, terminated, truncated = np.zeros((3, self.num_envs), dtype=np.int32)
        for i, action in enumerate(actions):
            if self.done[i]:
                self.game[i], self.steps[i], self.done[i], self.stack[i] = (
                    self.game[i] + 1,
                    0,
                    False,
                    0,
                )
            else:
                self.steps[i] += 1
                reward[i] = self.reward(i, self.steps[i])
                self.done[i] = self.steps[i] == self.length(i, self.game[i])
                terminated[i], truncated[i] = (
                    self.done[i] * (1 - self.game[i] % 2),
                    self.done[i] * (self.game[i] % 2),
                )
                if self.training:
                    FakeAtari.rows.append(
                        (i, self.game[i], self.steps[i] - 1, int(action), reward[i], self.done[i])
                    )
            self.stack[i] = np.concatenate([self.stack[i, 1:], self.frame(i)[None]])
        return (
            self.stack.copy(),
            reward,
            terminated.astype(bool),
            truncated.astype(bool),
            self.info(),
        )


def register(env_id: str, entry_point, **kwargs) -> None:
    if env_id not in gym.registry:
        gym.register(env_id, entry_point=entry_point, kwargs=kwargs, disable_env_checker=True)


BROKEN = {
    "NanReward": {"what": "reward"},
    "NanObservation": {"what": "observation"},
    "InfiniteReward": {"what": "reward", "value": np.inf},
}
TOYS = {"Counter": Counter, "Uneven": Uneven, "Long": Long}
TOYS |= {name: functools.partial(Broken, **kwargs) for name, kwargs in BROKEN.items()}


def with_choices(name: str) -> gym.Env:
    return WithChoices(TOYS[name]())


def in_pictures(name: str) -> gym.Env:
    return InPictures(WithChoices(TOYS[name]()))


def in_box_pictures(name: str) -> gym.Env:
    return InPictures(TOYS[name]())


def shifted(pictures: bool) -> gym.Env:
    env = WithChoices(Counter(), start=5)
    return InPictures(env) if pictures else env


for name, make in TOYS.items():
    register(f"{name}-v0", make)
    register(f"{name}Discrete-v0", with_choices, name=name)
    register(f"{name}Pixels-v0", in_pictures, name=name)
    register(f"{name}BoxPixels-v0", in_box_pictures, name=name)
register("ShiftedDiscrete-v0", shifted, pictures=False)
register("ShiftedPixels-v0", shifted, pictures=True)
register("TinyPixels-v0", Still, shape=(1, 32, 32))
BREAKOUT = gym.spec("BreakoutNoFrameskip-v4")
SHORT = {"max_num_frames_per_episode": 402}
for name, more in (("Short", SHORT), ("Full", {"full_action_space": True})):
    if f"{name}Breakout-v4" not in gym.registry:
        kwargs = BREAKOUT.kwargs | more
        gym.register(f"{name}Breakout-v4", entry_point=BREAKOUT.entry_point, kwargs=kwargs)


class LastReward(gym.vector.VectorWrapper):
    """A reset row repeats the reward before it, as in EnvPool's dm_control."""

    done, last = False, 0.0

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.last = reward = np.where(self.done, self.last, reward)
        self.done = terminated | truncated
        return obs, reward, terminated, truncated, info
