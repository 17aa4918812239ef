"""Environments in which every number is known in advance, as Gymnasium environments and, for pixels, as Atari games.
Importing this module registers them as Probe{name}-v0. Probe{name}Discrete-v0 has four actions instead of a continuous
one, and Probe{name}Pixels-v0 also shows images. AtariVector runs them as Atari games."""

import contextlib
import inspect
import itertools
import zlib
from types import SimpleNamespace
from unittest.mock import patch

import gymnasium as gym
import numpy as np
from ale_py import Action
from gymnasium.vector import AsyncVectorEnv


def box(size: int, low: float = -np.inf, high: float = np.inf) -> gym.spaces.Box:
    return gym.spaces.Box(low, high, (size,), np.float32)


class Protocol(gym.Env):
    """Records every reset and step. The observation (id, episode, step) is different in every state; id comes from the
    seed. Episodes are 2 to 5 steps long, and every second one is truncated. The reward depends on the state and the
    action. The two components of the action lie in [-0.5, 0.8] and [-0.7, 0.6], so they are often clipped."""

    observation_space = box(3)
    action_space = gym.spaces.Box(np.float32([-0.5, -0.7]), np.float32([0.8, 0.6]))

    born = itertools.count()

    def __init__(self):
        self.protocol, self.seeds, self.episode, self.number = [], [], -1, next(Protocol.born)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # wrappers may use its random generator
        if seed is not None:
            self.seeds.append(seed)
            self.number = seed
        self.id = self.number % 1009 / 1009
        self.steps, self.episode = 0, self.episode + 1
        before = getattr(self, "last", None)
        self.last = self.observe()
        self.protocol.append({"reset": True, "obs": before, "next_obs": self.last, "action": None, "reward": 0.0,
                              "terminated": False, "truncated": False, "life_lost": False})  # fmt: skip
        return self.last.copy(), {}

    def observe(self):
        return np.array([self.id, 0.3 * self.episode, self.steps], dtype=np.float32)

    def length(self) -> int:
        return 2 + (self.episode + self.number) % 4

    def pay(self, action) -> float:
        return 1.0 + self.steps + 2 * self.id + 0.5 * float(np.sum(action))

    def step(self, action):
        before, self.steps = self.last, self.steps + 1
        self.last = self.observe()
        reward = self.pay(action)
        done, even = self.steps == self.length(), (self.episode + self.number) % 2 == 0
        ends = {"terminated": done and even, "truncated": done and not even, "life_lost": False}
        row = {
            "reset": False,
            "obs": before,
            "next_obs": self.last,
            "action": np.array(action),
            "reward": reward,
        }
        self.protocol.append(row | ends)
        return self.last.copy(), reward, ends["terminated"], ends["truncated"], {}


class Arcade(Protocol):
    """Protocol with four actions, integer rewards from -3 to 3 and episodes of 3 to 7 steps. In episodes that are long
    enough lives are lost while the game continues."""

    action_space, lives = gym.spaces.Discrete(4), 3

    def length(self):
        return 3 + (self.episode + self.number) % 5

    def pay(self, action):
        return float((7 * self.steps + 3 * int(action) + 5 * self.episode + self.number) % 7 - 3)

    def reset(self, *, seed=None, options=None):
        self.lives = 3
        return super().reset(seed=seed)

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        self.protocol[-1]["life_lost"] = lost = self.loses()
        self.lives = 0 if terminated else self.lives - lost
        return obs, reward, terminated, truncated, info

    def loses(self) -> bool:
        return self.steps in (2, 4) and self.steps <= self.length() - 2


class Fire(Arcade):
    """Arcade for a game with FIRE. Episodes are long enough for the forced first steps of a life and some of the
    agent's own."""

    fire = True

    def length(self):
        return 12 + (self.episode + self.number) % 5

    def loses(self):
        return self.steps in (5, 10) and self.steps <= self.length() - 4


def rare(world: type) -> type:
    """The same environment, but in one environment of four the tenth episode ends with a large reward. It is so large
    and so rare that it exceeds 10 after scaling: one large return among n is about n ** 0.5 standard deviations."""

    def pay(self, action):
        last = self.steps == self.length() and self.episode == 9 and self.number % 4 == 0
        return world.pay(self, action) + 1000.0 * last

    return type(f"Rare{world.__name__}", (world,), {"pay": pay})


class Small(gym.Env):
    """Base class of the learned checks: episodes of `length` steps; `outcome` returns (reward, next observation)."""

    observation_space, action_space = (
        box(1),
        box(1, -3.0, 3.0),
    )  # so wide that the best actions are not clipped
    length, truncates, born, moves = 1, False, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.obs, self.moves = 0, self.first(), self.moves + 1
        return self.show(), {}

    def show(self) -> np.ndarray:
        return np.array([self.obs], dtype=np.float32)

    def first(self) -> float:
        return 0.0

    def step(self, action):
        self.steps, self.action = self.steps + 1, float(np.ravel(action)[0])
        self.moves += 1
        reward, self.obs = self.outcome(self.action)
        done = self.steps == self.length
        return self.show(), reward, done and not self.truncates, done and self.truncates, {}


class Constant(Small):
    """One step with reward 1: the value is 1."""

    def outcome(self, action):
        return 1.0, self.obs


class Shown(Small):
    """One step whose reward is the observation, -1 or 1: the value is the observation."""

    def first(self):
        return float(self.np_random.choice([-1.0, 1.0]))

    def outcome(self, action):
        return self.obs, self.obs


class TwoSteps(Small):
    """Observation 0, then 1, with reward 1 at the second step: the values are gamma and 1."""

    length = 2

    def outcome(self, action):
        return self.obs, 1.0


class Better(Small):
    """One step; the best action is 0.5 for every observation."""

    def outcome(self, action):
        return -((action - 0.5) ** 2), self.obs


class Aim(Shown):
    """One step; the best action is half the observation."""

    def outcome(self, action):
        return -((action - self.obs / 2) ** 2), self.obs


class Far(Aim):
    """Aim with observations that have an offset of 1000 and a scale of 100."""

    def show(self):
        return super().show() * 100 + 1000


class Endless(Shown):
    """Reward 1 at every step. Episodes are truncated after 10 steps, which the observation (-1 or 1) does not show."""

    length, truncates = 10, True

    def outcome(self, action):
        return 1.0, self.obs


class Brief(Endless):
    """Endless, truncated after 5 steps."""

    length = 5


class Unending(Endless):
    """Endless, truncated only by the time limit of all these environments."""

    length = np.inf


class Delayed(Small):
    """Two steps. The first action determines the reward of the second step, -(action - 0.5)^2; the second action has no
    effect. The next episode must get no credit for this reward."""

    length = 2

    def outcome(self, action):
        if self.steps == 1:
            self.paid = -((action - 0.5) ** 2)
            return 0.0, 1.0
        return self.paid, 0.0


class Told(Small):
    """Delayed for one-step targets: the second observation is the first action, and the reward is minus twice its
    distance to 0.5."""

    length = 2

    def outcome(self, action):
        return (0.0, action) if self.steps == 1 else (-2 * abs(self.obs - 0.5), 0.0)


class Drift(Aim):
    """Aim with observations whose mean drifts by 0.012 per episode."""

    def first(self):
        self.born += 1
        return super().first()

    def show(self):
        return super().show() + 0.012 * self.born


class LifeLost(Small):
    """Two steps with rewards 1 and 0.5. The first loses a life: if a lost life is a termination, the values are 1 and
    0.5."""

    length, lives = 2, 2

    def reset(self, *, seed=None, options=None):
        self.lives = 2
        return super().reset(seed=seed)

    def outcome(self, action):
        self.lives -= 1
        return (1.0, 1.0) if self.steps == 1 else (0.5, 1.0)


class Choices(gym.ActionWrapper):
    """Four actions that stand for -0.5, 0, 0.5 and 1."""

    values = -0.5, 0.0, 0.5, 1.0

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self.action_space = gym.spaces.Discrete(len(self.values))

    def action(self, action):
        return np.array([self.values[int(action)]])


class Hit(gym.RewardWrapper):
    """The reward is 1 for the best action and 0 for all others. Without this wrapper the best reward is 0, and a plain
    policy gradient needs long to distinguish 0 from -0.25."""

    def reward(self, reward):
        return float(abs(reward) < 1e-6)


WORLDS = {
    cls.__name__: cls
    for cls in (
        Constant,
        Shown,
        TwoSteps,
        Better,
        Aim,
        Far,
        Endless,
        Brief,
        Unending,
        Delayed,
        Told,
        Drift,
        LifeLost,
    )
}
DISCRETE = {name: lambda cls=cls: Choices(cls()) for name, cls in WORLDS.items()} | {
    "Protocol": Arcade,
    "Fire": Fire,
    "Rare": rare(Arcade),
}
DISCRETE |= {
    name: lambda cls=cls: Choices(Hit(cls())) for name, cls in (("Better", Better), ("Aim", Aim))
}
OPTIONS = {
    "disable_env_checker": True,
    "max_episode_steps": 1000,
}  # longer than every other episode
for name, make in (WORLDS | {"Protocol": Protocol, "Rare": rare(Protocol)}).items():
    gym.register(f"Probe{name}-v0", entry_point=make, **OPTIONS)
for name, make in DISCRETE.items():
    gym.register(f"Probe{name}Discrete-v0", entry_point=make, **OPTIONS)
    pixels = lambda make=make: Pictures(make())  # noqa: E731
    gym.register(f"Probe{name}Pixels-v0", entry_point=pixels, **OPTIONS)


# ---- pixels --------------------------------------------------------------------------------------------------------


def picture(obs: np.ndarray) -> np.ndarray:
    """(84, 84): for one number in [-1, 1] a bright band at the corresponding horizontal position; for several numbers a
    pattern of blocks that is unique to them."""
    if len(obs) > 1:
        return blocks(np.random.default_rng(zlib.crc32(obs.tobytes())))
    picture, left = np.zeros((84, 84), np.uint8), round(28 * (1 + float(np.clip(obs[0], -1, 1))))
    picture[:, left : left + 28] = 255
    return picture


def blocks(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """(*shape, 84, 84): blocks of random grey levels, which a convolution distinguishes better than noise."""
    return generator.integers(1, 256, (*shape, 12, 12), dtype=np.uint8).repeat(7, -2).repeat(7, -1)


def stack(*history: float) -> np.ndarray:
    """(4, 84, 84): the observation after these numbers since the reset, black before it."""
    pictures = [picture(np.array([number])) for number in history[-4:]]
    return np.stack([np.zeros((84, 84), np.uint8)] * (4 - len(pictures)) + pictures)


class Pictures(gym.Wrapper):
    """Show the last four observations as images, black before the reset, and add them to the record."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        self.obs = np.zeros((4, 84, 84), np.uint8)

    def show(self, obs: np.ndarray, first: bool) -> np.ndarray:
        before = self.obs
        self.obs = np.concatenate([before[1:] * (not first), picture(obs)[None]])
        if hasattr(self.unwrapped, "protocol"):
            self.unwrapped.protocol[-1] |= {"obs": before, "next_obs": self.obs}
        return self.obs.copy()

    def reset(self, **options):
        obs, info = self.env.reset(**options)
        return self.show(obs, True), info

    def step(self, action):
        obs, *rest = self.env.step(action)
        return self.show(obs, False), *rest


class AtariVector(gym.vector.VectorEnv):
    """Runs the games of `make` as ale-py's AtariVectorEnv runs Atari games: stacks of four images, black before the
    reset; NEXT_STEP mode; raw rewards; lives in the info; FIRE only in Fire. It keeps the settings that it was created
    with."""

    def __init__(self, make, game: str, num_envs: int, **settings):
        self.metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}
        self.num_envs, self.settings = num_envs, settings | {"game": game}
        self.games = [Pictures(make()) for _ in range(num_envs)]
        self.envs = [game.unwrapped for game in self.games]
        for env in self.envs:
            env.settings = self.settings
        second = Action.FIRE if hasattr(self.envs[0], "fire") else Action.UP
        self.ale = SimpleNamespace(get_action_set=lambda: (Action.NOOP, second))
        self.single_action_space = self.games[0].action_space
        self.single_observation_space = self.games[0].observation_space
        self.done = np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None):
        self.done[:] = False
        obs = [
            game.reset(seed=None if seed is None else seed + i)[0]
            for i, game in enumerate(self.games)
        ]
        return np.stack(obs), self.info()

    def info(self) -> dict:
        return {"lives": np.array([getattr(env, "lives", 0) for env in self.envs], np.int32)}

    def step(self, actions):
        assert np.shape(actions) == (self.num_envs,), "one action for each environment"
        obs, rewards, ends = [], np.zeros(self.num_envs), np.zeros((2, self.num_envs), bool)
        for i, game in enumerate(self.games):
            if self.done[i]:
                obs.append(game.reset()[0])
            else:
                seen, rewards[i], *ends[:, i], _ = game.step(int(actions[i]))
                obs.append(seen)
        self.done = ends[0] | ends[1]
        return np.stack(obs), rewards, ends[0].copy(), ends[1].copy(), self.info()


class Synchronous(gym.vector.SyncVectorEnv):
    """Replaces AsyncVectorEnv: in other processes the environments could not return their records."""

    def __init__(self, env_fns, *args, **options):
        given = inspect.signature(AsyncVectorEnv).bind(env_fns, *args, **options).arguments
        known = ("copy", "observation_mode", "autoreset_mode")
        super().__init__(env_fns, **{name: given[name] for name in known if name in given})


@contextlib.contextmanager
def in_this_process():
    """Within this context AsyncVectorEnv is Synchronous."""
    places = gym.vector, gym.vector.async_vector_env
    with patch.object(places[0], "AsyncVectorEnv", Synchronous):
        with patch.object(places[1], "AsyncVectorEnv", Synchronous):
            yield
