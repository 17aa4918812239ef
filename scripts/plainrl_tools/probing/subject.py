"""The file under test: its kinds, a traced run of it, repeated calls of its functions, and the list of the checks."""

import contextlib
import copy
import functools
import inspect
import io
import itertools
import math
import random
import re
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import torch.nn as nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from plainrl_tools.common import load
from plainrl_tools.probing.actors import actors_here
from plainrl_tools.probing.environments import DISCRETE, AtariVector, in_this_process

HERE = Path(__file__).parent
NUM_ACTIONS = 4  # of all the probe's discrete environments
ATARI_ID = "BreakoutNoFrameskip-v4"  # the --env-id that a file for Atari receives
RETURNS = (
    "compute_gae",
    "n_step_returns",
    "compute_returns",
    "td_target",
)  # a file has one of them


def has(name: str) -> Callable:
    return lambda subject: hasattr(subject.module, name)


def flag(name: str) -> Callable:
    return lambda subject: hasattr(subject.module.Args, name)


# The probe's names for the tensors of a policy's loss, and patterns that recognise them under other names.
TENSORS = {
    "action": "act",
    "old_logprob": "logp|log_p",
    "advantage": "adv",
    "target": "return|target",
    "old_value": "val(?!id)",
}
OLDER = {"seen": "next_x"}  # former names of the loss's tensors, in copies of older files
# The kinds of files: the word with which checks are registered, what such a file has, and a test for it.
KINDS = {
    "gae": ("compute_gae", has("compute_gae")),
    "n-step": ("n_step_returns", has("n_step_returns")),
    "monte-carlo": ("compute_returns", has("compute_returns")),
    "q-learning": ("td_target and a Replay", has("td_target")),
    "policy": ("no td_target", lambda subject: not hasattr(subject.module, "td_target")),
    "bootstrap": ("no compute_returns", lambda s: not hasattr(s.module, "compute_returns")),
    "ratio": (
        "a loss that takes old_logprob, or a name with logp in it",
        lambda s: "old_logprob" in s.loss_parameters,
    ),
    "score": (
        "a policy's loss without old_logprob",
        lambda s: not {"old_logprob", "next_obs"} & set(s.loss_parameters),
    ),
    "continuous": (
        "Box actions: it trains in such an environment",
        lambda subject: not subject.world,
    ),
    "discrete": (
        "Discrete actions: it trains in such an environment",
        lambda subject: subject.world,
    ),
    "vector": (
        "vector observations: it trains in such an environment",
        lambda subject: subject.world != "Pixels",
    ),
    "pixels": (
        "stacks of images: it trains in such an environment",
        lambda subject: subject.world == "Pixels",
    ),
    "atari": ("an AtariVectorEnv, which the probe replaces", has("AtariVectorEnv")),
    "normaliser": ("an Agent.normalize", lambda s: hasattr(s.module.Agent, "normalize")),
    "scales": ("the flag --norm-reward", flag("norm_reward")),
    "clips": ("the flag --max-grad-norm", flag("max_grad_norm")),
    "rpo": ("the flag --rpo-alpha", flag("rpo_alpha")),
    "ranks": ("a WORLD_SIZE: torchrun starts several processes", has("WORLD_SIZE")),
    "runners": ("a Runner: Ray actors step the environments", has("Runner")),
    "penalty": ("the flag --kl-target", flag("kl_target")),
    "curiosity": ("the flag --int-coef", flag("int_coef")),
    "rnd": (
        "an Agent.get_intrinsic_reward",
        lambda s: any(hasattr(s.module.Agent, n) for n in ("get_intrinsic_reward", "get_bonus")),
    ),
    "icm": ("an Agent.get_errors", lambda s: hasattr(s.module.Agent, "get_errors")),
    "trust-region": ("conjugate_gradient", has("conjugate_gradient")),
    "amplitude": ("the flag --amplitude-low", flag("amplitude_low")),
    "rad": (
        "the flag --amplitude-low, but not --aug-coef",
        lambda s: flag("amplitude_low")(s) and not flag("aug_coef")(s),
    ),
    "drac": ("the flag --aug-coef", flag("aug_coef")),
    "draws": (
        "Atari or Q-learning: its evaluation samples actions",
        lambda subject: {"atari", "q-learning"} & subject.kinds,
    ),
}
WORLDS = ("", "Discrete", "Pixels")  # suffixes of the environments' names


@dataclass
class Finding:
    verdict: str  # passes, broken, differs
    measured: str
    expected: str
    hint: str = ""  # broken: the mistake, if it was recognised; differs: the question


class Unable(Exception):
    """The assumptions of a check do not hold, so it cannot judge this file."""


class Skip(Exception):
    """The file has nothing that this check applies to."""


@dataclass
class Check:
    function: Callable
    section: str  # the part of the file to look at
    kinds: frozenset[str]  # the check applies to files that have all of them
    follows: tuple[str, ...]  # checks whose failure explains a failure of this one


CHECKS: dict[str, Check] = {}


def check(section: str, of: str = "", follows: str = ""):
    """Register a check for files that have all the kinds in `of` (words of KINDS). The check returns a Finding."""

    def register(function):
        name = function.__name__.replace("_", "-")
        CHECKS[name] = Check(function, section, frozenset(of.split()), tuple(follows.split()))
        return function

    return register


def passes(measured: str, expected: str = "") -> Finding:
    return Finding("passes", measured, expected or measured)


def broken(measured: str, expected: str, mistake: str = "") -> Finding:
    return Finding("broken", measured, expected, mistake)


def differs(measured: str, expected: str, question: str) -> Finding:
    return Finding("differs", measured, expected, question + "; is this intended?")


def largest(a, b) -> float:
    """The largest difference, relative for numbers above 1."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape:
        return math.inf
    with np.errstate(invalid="ignore"):  # equal infinities
        error = np.where(a == b, 0.0, np.abs(a - b) / np.maximum(1, np.abs(b)))
    return float(np.max(np.where(np.isnan(error), math.inf, error), initial=0.0))


def peak(*deviations) -> float:
    """The largest absolute value in numbers, arrays or tensors. NaN counts as infinite, so that no comparison with a
    tolerance passes; max() and `>` would ignore it."""
    parts = [np.abs(np.asarray(part, dtype=np.float64)).ravel() for part in deviations]
    whole = np.concatenate(parts) if parts else np.zeros(0)
    return float(np.max(np.where(np.isnan(whole), math.inf, whole), initial=0.0))


def compare(ours, right, mistakes: dict, choices: dict, question: str, limit=1e-3) -> Finding:
    """Broken if `ours` is the result of a known mistake. Otherwise it differs, with a known explanation or without."""
    error = largest(ours, right)
    measured, expected = f"error {error:.1e}", f"below {limit:.0e}"
    if error < limit:
        return passes(measured, expected)
    for text, wrong in mistakes.items():
        if largest(ours, wrong) < limit:
            return broken(measured, expected, text)
    for text, other in choices.items():
        if largest(ours, other) < limit:
            return differs(measured, expected, text)
    if not np.isfinite(np.asarray(ours)).all():
        return broken(measured, expected, "the result is NaN or infinite")
    return differs(measured, expected, question)


class Recorder:
    """Replaces SummaryWriter and keeps what is logged: {tag: [(step, value), ...]}."""

    def __init__(self, *args, **kwargs):
        self.scalars = {}

    def add_scalar(self, tag, value, step, *args, **kwargs):
        self.scalars.setdefault(tag, []).append((int(step), float(value)))

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def on_behalf(function: Callable, *args, **kwargs):
    """Call a function with the arguments that the file gave it. What it raises is an error of the file: see raised."""
    return function(*args, **kwargs)


class Call:
    """A recorded call of a function, which can be repeated with some of its arguments changed."""

    def __init__(self, function, args: tuple, kwargs: dict):
        self.function = function
        self.bound = on_behalf(inspect.signature(function).bind, *args, **kwargs)
        self.bound.apply_defaults()
        self.arguments = self.bound.arguments

    def again(self, **changes):
        bound = copy.copy(self.bound)
        bound.arguments = dict(self.arguments)
        for name, value in changes.items():
            if name not in bound.arguments:
                raise Unable(f"{self.function.__name__} takes no argument {name}")
            bound.arguments[name] = value
        result = self.function(*bound.args, **bound.kwargs)
        return result[0] if isinstance(result, tuple) else result


class Subject:
    """The file as a module: how to run it, and how to call its agent, whatever its kind."""

    def __init__(self, file: Path, seed: int):
        self.file, self.seed, self.count, self.world = file, seed, itertools.count(), ""
        self.slow_learner = False  # its own learning rate is too small for the learned checks
        self.defaults = {}  # replace the file's own, from the flags after --
        self.suspect = False  # an exact check reported "broken"
        self.unusual = (
            False  # so did one, other than AFTERWARDS, with "differs" or "could not check"
        )
        self.folder = tempfile.TemporaryDirectory(prefix="plainrl-probe-")

    def load(self):
        """Load a fresh module each time, so that the patches of one check never reach another."""
        with in_this_process():
            module = load(self.file, f"{self.file.stem}_{next(self.count)}")
        for name, value in self.defaults.items():
            setattr(module.Args, name, value)
        return module

    @cached_property
    def module(self):
        return self.load()

    @property
    def kinds(self) -> frozenset[str]:
        known = frozenset()
        for word, (_, test) in KINDS.items():
            if word != "draws" and test(self):
                known |= {word}
        return known | ({"draws"} if {"atari", "q-learning"} & known else set())

    def raised(self, error: BaseException) -> bool:
        """Whether the file raised this error, and not the probe: the innermost frame of the two decides. The probe's
        environments and the calls that it passes on only do what the file asked for, so they count as the file's."""
        frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        passed_on = False
        for code in reversed(frames):
            place = Path(code.co_filename)
            if place == self.file:
                return True
            if place.parent == HERE and place.name not in ("environments.py", "actors.py"):
                passed_on |= code is on_behalf.__code__
                if not passed_on:
                    return False
        return False

    def applies(self, name: str) -> bool:
        return CHECKS[name].kinds <= self.kinds

    @cached_property
    def returns_name(self) -> str:
        return next(name for name in RETURNS if hasattr(self.module, name))

    @cached_property
    def loss_name(self) -> str:
        """The function ..._loss that takes agent and args."""
        functions = {
            n: f for n, f in vars(self.module).items() if n.endswith("_loss") and callable(f)
        }
        names = [
            n
            for n, f in functions.items()
            if {"agent", "args"} <= {*inspect.signature(f).parameters}
        ]
        return [*names, *functions][0]

    @cached_property
    def loss_names(self) -> dict[str, str]:
        """The loss's arguments other than agents and args, in order: the file's names, and the probe's names for them,
        such as x for the network's input."""
        parameters = inspect.signature(getattr(self.module, self.loss_name)).parameters
        own = [name for name in parameters if name not in ("agent", "target_agent", "args")]
        names = {name: name for name in own}
        names |= {old: new for old, new in OLDER.items() if old in own}
        names[next((name for name in ("x", "obs") if name in own), own[0])] = "x"
        for name, parts in TENSORS.items():
            alike = [other for other in own if re.search(parts, other)]
            if name not in own and len(alike) == 1:
                names[alike[0]] = name
        return names

    @property
    def loss_parameters(self) -> list[str]:
        return list(self.loss_names.values())

    @cached_property
    def trace(self) -> "Trace":
        """The first run, in the first environment that the file accepts: vector observations with Box or Discrete
        actions, or images."""
        errors = {}
        for world in WORLDS[2:] if hasattr(self.module, "AtariVectorEnv") else WORLDS:
            self.world = world
            try:
                return Trace(self)
            except (Exception, SystemExit) as error:
                errors[world] = error
        # a file rejects an unsuitable environment with sys.exit
        failed = [world for world, error in errors.items() if not isinstance(error, SystemExit)]
        self.world = [*failed, *errors][0]
        raise errors[self.world]

    @cached_property
    def long_flags(self) -> dict:
        """Flags of a run that logs more than once: files with frequent updates often log every 1000 or 2000 steps."""
        flags = {
            "norm_adv": False,
            "learning_rate": 0.02,
            "max_grad_norm": 100.0,
            "clip_vloss": False,
        }
        if "ratio" not in self.kinds:
            flags |= {"total_timesteps": 2300, "learning_rate": 1e-3}
        if "q-learning" in self.kinds:
            flags |= {
                "num_envs": 48,
                "buffer_size": 960,
                "learning_starts": 288,
                "train_frequency": 24,
            }
            flags["total_timesteps"] = 2300 if self.world == "Pixels" else 4500
        return flags

    @cached_property
    def long_trace(self) -> "Trace":
        return Trace(self, **self.long_flags)

    @cached_property
    def evaluating_trace(self) -> "Trace":
        """The same with intermediate evaluations, for files whose iteration has 1000 or 2000 steps."""
        return Trace(self, **self.long_flags, eval_frequency=1000)

    def changed(self, batch, name: str, change: Callable):
        """A batch as update receives it, with the tensor of this name (the probe's name for it) changed."""
        own = next(own for own, known in self.loss_names.items() if known == name)
        place = own if isinstance(batch, dict) else self.loss_parameters.index(name)
        batch = batch.copy() if isinstance(batch, dict) else list(batch)
        batch[place] = change(batch[place])
        return batch

    def settings(self, module) -> dict:
        """Flags of a small run. No value is a default, so that hard-coded numbers are found. Noise in the update is
        off, so that the exact checks know the right results."""
        small = {
            "env_id": "ProbeProtocol-v0",
            "env_backend": "gymnasium",
            "device": "cpu",
            "seed": self.seed,
            "torch_threads": 1,
            "precision": "float32",
            "num_envs": 4,
            "num_runners": 1,
            "num_steps": 16,
            "num_minibatches": 4,
            "update_epochs": 3,
            "total_timesteps": 500,
            "eval_episodes": 3,
            "norm_reward": False,
            "gamma": 0.97,
            "gae_lambda": 0.9,
            "vf_coef": 0.3,
            "ent_coef": 0.02,
            "clip_coef": 0.15,
            "rpo_alpha": 0.0,
            "int_coef": 0.0,
            "ext_coef": 1.0,
            "amplitude_low": 1.0,
            "amplitude_high": 1.0,
            "aug_coef": 0.2,
            "buffer_size": 96,
            "learning_starts": 60,
            "batch_size": 8,
            "train_frequency": 3,
            "tau": 0.7,
            "target_network_frequency": 30,
            "start_e": 0.9,
            "end_e": 0.2,
            "exploration_fraction": 0.6,
            "norm_obs": True,
            "compile": False,
            "capture_video": False,
            "track": False,
            "eval_frequency": 0,
            "distribution": "normal",
            "baseline": "value",
        }
        small["runs_dir"] = str(Path(self.folder.name) / str(next(self.count)))
        if self.world == "Pixels":  # updates on images are slow
            if hasattr(module, "td_target"):
                small |= {"total_timesteps": 240, "train_frequency": 5}
            if "old_logprob" in self.loss_parameters:
                small |= {"total_timesteps": 260, "update_epochs": 2}
        return small

    def args(self, module, **flags):
        """Args for a small run. Flags that the file does not have are left out."""
        settings = self.defaults | self.settings(module) | flags
        world = settings["env_id"].removeprefix("Probe").removesuffix("-v0")
        if self.world:
            settings["env_id"] = f"Probe{world}{self.world}-v0"
        if hasattr(module, "AtariVectorEnv") and world in DISCRETE:
            module.AtariVectorEnv = functools.partial(AtariVector, DISCRETE[world])
            settings["env_id"] = ATARI_ID
        known = {field.name for field in fields(module.Args)}
        return module.Args(**{name: value for name, value in settings.items() if name in known})

    def train(self, module, args) -> dict:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            with actors_here():
                return module.train(args)

    def new_agent(self, **flags):
        """A new agent, created as in the traced run but with these flags."""
        trace = self.trace
        args = replace(trace.args, **self.known(flags))
        arguments = {
            name: args if isinstance(value, trace.module.Args) else value
            for name, value in trace.construction.items()
        }
        return steady(trace.module.Agent(**arguments))

    def known(self, flags: dict) -> dict:
        names = {field.name for field in fields(self.trace.module.Args)}
        return {name: value for name, value in flags.items() if name in names}

    def agent(self, seed: int = 0, **flags):
        """An agent that has a different location or probability for every action and a different value for every
        state."""
        for share in (1, 0.5, 0.25, 0.1):  # through many layers, large weights give huge means
            torch.manual_seed(self.seed + seed)
            agent = self.new_agent(**flags)
            self.scatter(agent, share)
            if not hasattr(agent, "actor_mean"):
                break
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                if peak(agent.actor_mean(self.observations(64))) < 20:
                    break
        return agent

    def scatter(self, agent, share: float = 1) -> None:
        """Move the weights so far apart that all actions and all values differ."""
        for parameter in agent.parameters():
            width = parameter[0].numel() if self.world == "Pixels" and parameter.dim() > 1 else 1
            size = 0.3 if width == 1 else 1.5 / width**0.5
            parameter.data += share * size * torch.randn_like(parameter)

    def observations(self, rows: int) -> torch.Tensor:
        """Random network inputs from the traced run."""
        pool = torch.cat(
            [mb["x"] for record in self.trace.updates[:4] for mb in record["minibatches"]]
        )
        return pool[torch.randint(len(pool), (rows,))]

    def seen(self, agent, obs) -> torch.Tensor:
        """The network's input for observations (..., *shape) of the environment."""

        def normalize(agent, obs) -> torch.Tensor:
            obs = torch.from_numpy(np.asarray(obs))
            return agent.normalize(obs.float()) if hasattr(agent, "normalize") else obs

        shown = self.trace.train_envs[0].protocol[0]["next_obs"]
        for mb in self.trace.updates[0]["minibatches"][:1]:
            shape = mb["x"].shape[1:]
            with contextlib.suppress(RuntimeError):  # raised if the shapes do not match
                if normalize(self.trace.first, shown).shape == shape:
                    continue
            text = f"the network's input has the shape {tuple(shape)}, but make_envs returns {shown.shape}"
            raise Unable(
                f"{text}: change observations in a wrapper in make_envs, not in the training loop"
            )
        return normalize(agent, obs)

    def act(self, agent, x, action=None):
        """(action, logprob, entropy) of a policy."""
        if hasattr(agent, "get_action_and_value"):
            return agent.get_action_and_value(x, action)[:3]
        return agent.get_action(x, action)[:3]

    def value(self, agent, x) -> torch.Tensor:
        """Values (...) of network inputs (..., *shape); in Q-learning those of the best actions."""
        inner = 3 if self.world == "Pixels" else 1
        flat = x.flatten(0, x.dim() - inner - 1)
        value = agent(flat).amax(-1) if "q-learning" in self.kinds else agent.get_value(flat)
        return value.reshape(x.shape[: x.dim() - inner])

    def outputs(self, agent, x) -> list[torch.Tensor]:
        """All outputs of the network for each input, without randomness."""
        if "q-learning" in self.kinds:
            return [agent(x)]
        if "continuous" in self.kinds:
            torch.manual_seed(self.seed)
            action = self.act(agent, x)[0]
            return [action, self.act(agent, x, action)[1], agent.get_value(x)]
        action = [torch.full((len(x),), a) for a in range(NUM_ACTIONS)]
        return [torch.stack([self.act(agent, x, a)[1] for a in action], -1), agent.get_value(x)]

    def best(self, agent, obs: np.ndarray) -> torch.Tensor:
        """The policy's deterministic (mode) action in these states, as the environment receives it, or the action with
        the highest value."""
        x = self.seen(agent, obs)
        if "continuous" not in self.kinds:
            return self.outputs(agent, x)[0].argmax(-1)
        if hasattr(agent, "actor_mean"):
            return torch.from_numpy(np.asarray(agent.to_env(agent.actor_mean(x))))
        obs = np.asarray(obs, np.float32)
        shown = Shown(len(obs), obs)  # the action that the file's evaluation uses
        self.trace.names["evaluate"](agent, shown, obs)
        return torch.from_numpy(np.asarray(shown.action))


class Shown:
    """Replaces a vector environment: it keeps the first action, and terminates at once."""

    def __init__(self, num_envs: int, obs: np.ndarray):
        self.num_envs, self.action, self.obs = num_envs, None, obs

    def step(self, action):
        self.action = action if self.action is None else self.action
        ends = np.ones(self.num_envs, bool)
        return self.obs, np.zeros(self.num_envs), ends, ~ends, {}

    def close(self):
        pass


class Witness:
    """The record of one environment as the file's agent sees it, through all wrappers. What the environment itself
    received and returned is under raw, life_lost and own."""

    def __init__(self, env, obs):
        self.env, self.seeds, self.protocol, self.read = env, env.seeds, [], 0
        self.script = []  # forced actions before the agent's next one
        self.note(None, obs)

    def note(self, action, obs, reward=0.0, terminated=False, truncated=False):
        """Add a step, or without an action a reset."""
        own, self.read = self.env.protocol[self.read :], len(self.env.protocol)
        row = {"reset": action is None, "action": action, "reward": float(reward)}
        row |= {"obs": self.protocol[-1]["next_obs"] if self.protocol else None, "next_obs": obs}
        row |= {"terminated": bool(terminated), "truncated": bool(truncated)}
        row["raw"] = sum(one["reward"] for one in own)
        row["life_lost"] = any(one["life_lost"] for one in own)
        row["own"] = own or self.env.protocol[-1:]
        row["script"] = self.script.pop(0) if self.script and action is not None else None
        if hasattr(self.env, "fire"):  # the first actions of a life, as in OpenAI Baselines
            self.script = [1, 2] if row["reset"] else [0, 1, 2] if row["life_lost"] else self.script
        self.protocol.append(row)


def rows_of(obs, flat: bool) -> np.ndarray:
    """Observations (n, ...) from an array or a dictionary of arrays. With `flat` they become (n, obs_dim) float32,
    except for images."""
    if isinstance(obs, dict):
        return np.concatenate([rows_of(obs[key], flat) for key in sorted(obs)], axis=1)
    obs = np.array(obs)
    if not flat or obs.dtype == np.uint8:
        return obs
    return obs.reshape(len(obs), -1).astype(np.float32)


def witness(envs, obs, flat: bool) -> list[Witness]:
    """A Witness of each environment in a vector environment that has just returned its first observations."""
    step, reset = envs.step, envs.reset
    found = [
        Witness(env.unwrapped, row) for env, row in zip(envs.unwrapped.envs, rows_of(obs, flat))
    ]
    ended = np.zeros(envs.num_envs, bool)

    def spied_reset(*a, **k):
        obs, info = on_behalf(reset, *a, **k)
        ended[:] = False
        for one, row in zip(found, rows_of(obs, flat)):
            one.note(None, row)
        return obs, info

    def spied_step(actions):
        obs, *rest, info = on_behalf(step, actions)
        given = [None if end else np.array(action) for end, action in zip(ended, actions)]
        for one, action, *row in zip(found, given, rows_of(obs, flat), *rest):
            one.note(action, *row)
        ended[:] = rest[1] | rest[2]
        return obs, *rest, info

    envs.step, envs.reset = spied_step, spied_reset
    return found


def scores(agent: nn.Module) -> torch.Tensor:
    """Some weights of every layer in float64. They are equal only if the networks are, and linear in the weights."""
    parts = [p.detach().flatten()[:: max(1, p.numel() // 500)] for p in agent.parameters()]
    return torch.cat(parts).double()


def steady(agent: nn.Module) -> nn.Module:
    """Switch off random layers such as dropout; batch normalisation is not changed."""
    for part in agent.modules():
        part.training &= isinstance(part, nn.modules.batchnorm._BatchNorm)
    return agent


def parameters_of(optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def memory(optimizers: list) -> list[list[float]]:
    """The state that optimisers keep for each parameter, as one number for each tensor."""
    return [
        [
            float(kept[key].double().sum())
            for key in sorted(kept, key=str)
            if torch.is_tensor(kept[key])
        ]
        for optimizer in optimizers
        for kept in optimizer.state.values()
    ]


class Row(dict):
    """The inputs of a loss and the agent's outputs for them, or the error that it raised instead."""

    error = None

    def __missing__(self, key):
        raise self.error or Unable(f"the loss takes no argument {key}")


class Trace:
    """A short training run and all calls of the file's functions in it. With `scattered` the agent prefers some actions
    from the first step."""

    def __init__(self, subject: Subject, scattered: bool = False, **flags):
        self.subject, self.module, self.scattered = subject, subject.load(), scattered
        self.args = subject.args(self.module, **flags)
        self.given = replace(self.args)  # a copy from before the run
        self.returns, self.updates, self.evaluations, self.envs = [], [], [], []
        self.writers, self.replays, self.samples, self.epsilons = [], [], [], []
        self.optimizers, self.steppers, self.learned = [], [], set()
        self.value_call = self.greedy = None
        self.online = self.target = self.construction = self.update_call = self.resumed = None
        self.recording, self.evaluating, self.ticks = True, False, []
        self.evaluates_online = True  # and not another agent
        self.actors = []  # scores of the network that selected the actions of each step
        self.generators = (
            [],
            [],
        )  # states of PyTorch's and NumPy's generators before each training step
        self.names = {
            name: getattr(self.module, name)
            for name in ("make_envs", "update", "evaluate", subject.returns_name, subject.loss_name)
        }
        spies = {
            "make_envs": self.spy_envs,
            "update": self.spy_update,
            "evaluate": self.spy_evaluate,
            subject.returns_name: self.spy_returns,
            subject.loss_name: self.spy_loss,
        }
        if "trust-region" in subject.kinds and hasattr(self.module, "value_loss"):
            self.names["value_loss"] = self.module.value_loss  # the critic has its own loss
            spies["value_loss"] = self.spy_value_loss
        agent_class, q_learning = self.module.Agent, hasattr(self.module, "td_target")
        set_mode = agent_class.train
        agent_class.train = lambda agent, mode=True: steady(set_mode(agent, mode))
        with contextlib.ExitStack() as patches:
            for name, spy in spies.items():
                self.replace(patches, name, spy)
            patches.enter_context(patch.object(self.module, "SummaryWriter", self.recorder))
            patches.enter_context(
                patch.object(agent_class, "__init__", self.spied_init(agent_class))
            )
            if q_learning:
                patches.enter_context(patch.object(self.module, "Replay", self.spied_replay()))
                spied = self.spied_action(agent_class)
                patches.enter_context(patch.object(agent_class, "get_action", spied))
            handle = register_optimizer_step_pre_hook(self.before_step)
            patches.callback(handle.remove)
            self.summary = subject.train(self.module, self.args)
        self.recording = False
        self.judged = None
        if (
            "best_returns" in self.summary
        ):  # the best model is evaluated last, in its own environments
            self.judged = self.evaluations.pop(), self.envs.pop()[0]
        self.ticks.append(self.networks())
        self.scalars = self.writers[0].scalars
        N = self.args.num_envs
        self.train_envs = next(envs for envs, _ in self.envs if len(envs) == N)
        episodes = self.args.eval_episodes
        self.eval_envs = next((envs for envs, _ in self.envs if len(envs) == episodes), [])
        (self.run_dir,) = Path(self.args.runs_dir).iterdir()

    def replace(self, patches, name: str, spy) -> None:
        """Replace the module's function by a spy, also where it is the default argument of another function."""
        original = self.names[name]
        spy = functools.wraps(original)(lambda *a, method=spy, **k: method(*a, **k))
        for function in {
            *filter(inspect.isfunction, vars(self.module).values()),
            *self.names.values(),
        }:
            defaults = getattr(function, "__defaults__", None)
            if defaults and original in defaults:
                spied = tuple(spy if value is original else value for value in defaults)
                patches.enter_context(patch.object(function, "__defaults__", spied))
        patches.enter_context(patch.object(self.module, name, spy))

    def spied_init(self, agent_class):
        original = agent_class.__init__

        @functools.wraps(original)
        def init(agent, *a, **k):
            if self.construction is None:
                call = Call(original, (agent, *a), k)
                self.construction = dict(list(call.arguments.items())[1:])
            on_behalf(original, agent, *a, **k)
            steady(agent)
            if self.scattered:
                self.subject.scatter(agent)

        return init

    def spied_action(self, agent_class):
        original = agent_class.get_action

        @functools.wraps(original)
        def get_action(agent, *a, **k):
            if self.recording and not self.evaluating:
                call = Call(original, (agent, *a), k)
                self.epsilons.append(call.arguments.get("epsilon"))
                self.actors.append(scores(agent))
            return on_behalf(original, agent, *a, **k)

        return get_action

    def spied_replay(self):
        original = self.module.Replay

        def replay(*a, **k):
            made = on_behalf(original, *a, **k)
            sample = made.sample

            def spied_sample(*a, **k):
                self.samples.append((a, k))
                return on_behalf(sample, *a, **k)

            made.sample = spied_sample
            self.replays.append((made, sample))
            return made

        return replay

    def spy_envs(self, *a, **k):
        made = on_behalf(self.names["make_envs"], *a, **k)
        found = witness(*made[:2], hasattr(self.module, "flatten"))
        step, reset = made[0].step, made[0].reset
        ended, paid = np.zeros(made[0].num_envs, bool), 0.0

        def spied_reset(*a, **k):
            nonlocal ended
            ended = np.zeros_like(ended)
            return on_behalf(reset, *a, **k)

        def spied_step(actions):
            nonlocal ended, paid
            self.ticks.append(self.networks())
            _, key, position, *_ = np.random.get_state()
            self.generators[0].append(torch.get_rng_state().numpy().tobytes())
            self.generators[1].append((key.tobytes(), position))
            obs, reward, terminated, truncated, info = on_behalf(step, actions)
            # an autoreset step repeats the last reward, as in EnvPool's dm_control: the file must ignore it
            paid = np.where(ended, paid, reward)
            ended = terminated | truncated
            return obs, paid, terminated, truncated, info

        training = made[0].num_envs == self.args.num_envs
        if training and not any(len(envs) == self.args.num_envs for envs, _ in self.envs):
            made[0].step, made[0].reset = spied_step, spied_reset
            self.action_space = made[0].single_action_space
        self.envs.append((found, made[1]))
        return made

    def spy_returns(self, *a, **k):
        function = self.names[self.subject.returns_name]
        call = Call(function, a, k)
        result = function(*a, **k)
        again = len(self.returns) > len(
            self.updates
        )  # e.g. once for the policy, once for the critic
        if self.recording and len(self.returns) < 2000 and not again:
            arguments = {
                name: v.detach().clone() if torch.is_tensor(v) else v
                for name, v in call.arguments.items()
            }
            call.bound.arguments = call.arguments = arguments
            self.returns.append(
                (call, (result[0] if isinstance(result, tuple) else result).detach().clone())
            )
        return result

    def spy_loss(self, *a, **k):
        function = self.names[self.subject.loss_name]
        if not self.recording or not self.updates:
            return function(*a, **k)
        call = Call(function, a, k)
        agent = call.arguments["agent"]
        names = self.subject.loss_names
        row = Row(
            {
                names[name]: value.detach().clone()
                for name, value in call.arguments.items()
                if torch.is_tensor(value)
            }
        )
        try:
            with torch.no_grad(), torch.random.fork_rng():
                if self.target is not None or "next_obs" in row:
                    row |= {"values": agent(row["x"]), "next_online": agent(row["next_obs"])}
                    if self.target is not None:
                        row["next_target"] = self.target(row["next_obs"])
                else:
                    row["value"] = self.subject.value(agent, row["x"])
                    said = self.subject.act(agent, row["x"], row["action"])
                    row |= {"logprob": said[1], "entropy": said[2]}
        except Exception as error:
            row.error = error
        result = function(*a, **k)
        row["loss"] = float(result[0] if isinstance(result, tuple) else result)
        self.updates[-1]["minibatches"].append(row)
        self.loss_call = call
        return result

    def spy_value_loss(self, *a, **k):
        """Record the samples of the critic's own loss, if it is trained separately from the policy."""
        call = Call(self.names["value_loss"], a, k)
        result = call.function(*a, **k)
        if self.recording and self.updates:
            tensors = {
                n: v.detach().clone() for n, v in call.arguments.items() if torch.is_tensor(v)
            }
            row = Row(tensors)
            try:
                with torch.no_grad():
                    row["value"] = self.subject.value(call.arguments["agent"], row["x"])
            except Exception as error:
                row.error = error
            row["loss"] = float(result)
            self.updates[-1]["value_minibatches"].append(row)
            self.value_call = call
        return result

    def spy_update(self, *a, **k):
        function = self.names["update"]
        call = Call(function, a, k)
        modules = [value for value in call.arguments.values() if isinstance(value, nn.Module)]
        agent = call.arguments.get("agent", modules[0])
        if self.online is None:
            self.online, self.target = agent, call.arguments.get("target_agent")
            self.ticks = [
                self.networks() for _ in self.ticks
            ]  # no weight has changed since the first step
            self.first = copy.deepcopy(agent)
            with contextlib.suppress(Exception):
                self.update_call = copy.deepcopy(call.arguments)
        record = {
            "minibatches": [],
            "value_minibatches": [],
            "norms": [],
            "steps": [],
            "lrs": [],
            "tick": len(self.ticks),
        }
        record["agent"] = copy.deepcopy(agent) if self.target is None else None
        record["memory"] = [[], []]  # of each optimiser, before its first step and after the update
        self.updates.append(record)
        result = function(*a, **k)
        record["memory"][1] = memory(list(dict.fromkeys(record["steps"])))
        self.after = copy.deepcopy(agent)
        return result

    def before_step(self, optimizer, *_):
        parameters = parameters_of(optimizer)
        networks = [one for one in (self.online, self.target) if one is not None]
        agents = {id(p) for network in networks for p in network.parameters()}
        if not any(
            id(p) in agents for p in parameters
        ):  # e.g. the optimiser of a learned entropy coefficient
            return
        record = self.updates[-1]
        if not any(optimizer is known for known in self.optimizers):
            self.optimizers.append(optimizer)
        if not any(optimizer is known for known in record["steps"]):
            record["lrs"] += [float(group["lr"]) for group in optimizer.param_groups]
            record["memory"][0] += memory([optimizer])
        record["steps"].append(optimizer)
        grads = [p.grad for p in parameters if p.grad is not None]
        if grads:
            norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
            record["norms"].append(float(norm))
        for name, parameter in self.online.named_parameters():
            if name not in self.learned and parameter.grad is not None and parameter.grad.any():
                self.learned.add(name)

    def spy_evaluate(self, agent, *a, **k):
        before, self.evaluating = copy.deepcopy(agent.state_dict()), True
        result = on_behalf(self.names["evaluate"], agent, *a, **k)
        self.evaluating = False
        same = self.online is None or next(agent.parameters()) is next(self.online.parameters())
        self.evaluates_online = same
        if Call(self.names["evaluate"], (agent, *a), k).arguments.get(
            "greedy"
        ):  # a second evaluation, in its own environments
            self.greedy = result, self.envs.pop()[0]
        elif self.recording:
            self.evaluations.append((before, copy.deepcopy(agent), result))
        return result

    def recorder(self, *a, **k):
        self.writers.append(Recorder())
        return self.writers[-1]

    def networks(self) -> tuple | None:
        """Scores of the online and the target network, once the first update has shown them."""
        if self.online is None or self.target is None:
            return None
        return scores(self.online), scores(self.target)

    def stepped(self) -> list:
        """The updates, if they contain steps of a PyTorch optimiser."""
        if not any(record["norms"] for record in self.updates):
            raise Unable("update() makes no step of a torch.optim.Optimizer")
        return self.updates

    def batch(self, record: dict, of: str = "minibatches") -> dict[str, torch.Tensor]:
        """All samples that reached the loss in an update, some of them several times, without those masked by
        `valid`."""
        rows = record[of]
        if not rows:
            raise Unable(f"update() does not call {self.subject.loss_name}")
        names = [name for name, value in rows[0].items() if torch.is_tensor(value)]
        names = [name for name in names if value_rows(rows, name)]
        whole = {name: torch.cat([row[name] for row in rows]) for name in names}
        keep = whole["valid"] > 0 if "valid" in whole else slice(None)
        return {name: tensor[keep] for name, tensor in whole.items()}

    @cached_property
    def truth(self) -> list[dict]:
        """What happened in each rollout, from the records of the environments: arrays (num_steps, num_envs, ...). In
        Q-learning a rollout is one step of all environments."""
        rollouts, protocols = [], [env.protocol[1:] for env in self.train_envs]
        nothing = np.zeros(2 if "continuous" in self.subject.kinds else ())
        episodes, paid = "monte-carlo" in self.subject.kinds, 0.0
        while len(protocols[0]) >= (T := self.length(len(rollouts))):
            if episodes:  # each rollout starts with a reset
                protocols = [protocol[1:] for protocol in protocols]
            rows, protocols = list(zip(*(p[:T] for p in protocols))), [p[T:] for p in protocols]
            kinds = ("obs", "next_obs", "reward", "raw", "terminated", "truncated", "life_lost")
            truth = {key: np.array([[row[key] for row in line] for line in rows]) for key in kinds}
            truth["valid"] = np.array([[not row["reset"] for row in line] for line in rows])
            for t, valid in enumerate(truth["valid"]):  # the rewards that the step returned
                truth["reward"][t] = paid = np.where(valid, truth["reward"][t], paid)
            if getattr(self.args, "fire_on_life_loss", False):
                truth["valid"] &= [[row["script"] is None for row in line] for line in rows]
            if episodes:  # and only the first episode of each environment counts
                ended = np.cumsum(truth["terminated"] | truth["truncated"], axis=0) > 0
                truth["valid"] &= ~np.concatenate([ended[:1] & False, ended[:-1]])
            actions = [
                [nothing if row["action"] is None else row["action"] for row in line]
                for line in rows
            ]
            truth["action"] = np.array(actions, dtype=np.float64)
            # what the learner should use: rewards, terminations, steps at which the recursion stops
            reward = truth["reward"].astype(np.float64)
            terminal = truth["terminated"].astype(np.float64)
            if getattr(self.args, "terminal_on_life_loss", False):
                terminal = np.maximum(terminal, truth["life_lost"])
            if not getattr(self.args, "bootstrap_truncation", True):
                terminal = np.maximum(terminal, truth["truncated"])
            reward = np.sign(reward) if getattr(self.args, "clip_reward", False) else reward
            truth["learner"] = reward, terminal, np.maximum(terminal, truth["truncated"])
            rollouts.append(truth)
        return rollouts

    def length(self, k: int) -> float:
        """The number of steps in rollout k: until every episode has ended, or --num-steps, or 1."""
        if "monte-carlo" in self.subject.kinds:
            return len(self.returns[k][1]) if k < len(self.returns) else math.inf
        return getattr(self.args, "num_steps", 1)

    @cached_property
    def expected(self) -> list[dict]:
        """The valid samples of each rollout, in the order of time and environment: the network's input, and the
        action."""
        rows = []
        for truth, record in zip(self.truth, self.updates):
            valid = truth["valid"]
            with torch.no_grad():
                x = sketch(self.subject.seen(record["agent"], truth["obs"][valid]))
                resets = sketch(self.subject.seen(record["agent"], truth["obs"][~valid]))
            rows.append({"x": x, "resets": resets, "action": truth["action"][valid]})
        return rows

    def values(self, truth: dict, agent) -> np.ndarray:
        """Values (num_steps + 1, num_envs) in float64 of all states of a rollout and of the state after it."""
        both = np.concatenate([truth["obs"], truth["next_obs"][-1:]])
        with torch.no_grad():
            return self.subject.value(agent, self.subject.seen(agent, both)).double().numpy()

    @cached_property
    def places(self) -> list[np.ndarray]:
        return self.find("minibatches")

    def find(self, of: str) -> list[np.ndarray]:
        """For each expected sample of each update, the index of the sample with the same x in the file's batch, or
        -1."""
        for expected in self.expected:
            if len({row.tobytes() for row in expected["x"]}) < len(expected["x"]):
                raise Unable("the agent cannot distinguish some of the recorded states")
        found = [
            nearest(expected["x"], sketch(self.batch(record, of)["x"]))
            for expected, record in zip(self.expected, self.updates)
        ]
        if all((places < 0).all() for places in found):
            raise Unable("no sample of the batch is an observation as Agent.normalize returns it")
        return found

    def kl(self, k: int) -> float:
        """Mean KL[before || after] in float64 of the Gaussian policies before and after update k, over its samples."""
        agents = [*(record["agent"] for record in self.updates), self.after][k : k + 2]
        x = self.batch(self.updates[k])["x"][self.places[k]]
        with torch.no_grad():
            policies = [
                (agent.actor_mean(x).double(), agent.actor_logstd.exp().double())
                for agent in agents
            ]
        return float(gaussian_kl(*policies[0], *policies[1]).sum(-1).mean())

    @cached_property
    def steps(self) -> list[int]:
        """Steps of the agent after each rollout."""
        return np.cumsum([truth["valid"].sum() for truth in self.truth]).tolist()

    def epsilon(self, k: int) -> float:
        """The right epsilon at step k of all environments: see epsilon_after."""
        return epsilon_after(self.args, [0, *self.steps][k])


def epsilon_after(args, step: int) -> float:
    """--start-e until --learning-starts, then linear to --end-e over --exploration-fraction of the run."""
    share = (step - args.learning_starts) / (args.exploration_fraction * args.total_timesteps)
    return args.start_e + min(max(share, 0), 1) * (args.end_e - args.start_e)


def gaussian_kl(old_mean, old_std, mean, std) -> torch.Tensor:
    """KL[old || new] of Gaussians, for each dimension."""
    spread = (old_std**2 + (old_mean - mean) ** 2) / (2 * std**2)
    return std.log() - old_std.log() + spread - 0.5


def value_rows(rows: list[Row], name: str) -> bool:
    """Whether this is a tensor with an element for each sample in x, in every minibatch."""
    return all(
        torch.is_tensor(row.get(name)) and row[name].dim() and len(row[name]) == len(row["x"])
        for row in rows
    )


def nearest(rows: np.ndarray, among: np.ndarray) -> np.ndarray:
    """For each row the index of the equal row in `among`, or -1."""
    if not len(rows) or not len(among) or rows.shape[1] != among.shape[1]:
        return np.full(len(rows), -1)
    distance = np.abs(rows[:, None] - among[None]).max(-1)
    return np.where(distance.min(1) < 1e-4, distance.argmin(1), -1)


def sketch(x: torch.Tensor) -> np.ndarray:
    """Rows (n, d) in float64 that are equal if the rows of x are: x itself or, for images, 16 weighted sums."""
    if x.dtype != torch.uint8:
        return x.flatten(1).double().numpy()
    x = x.flatten(1)
    weights = torch.randn(x.shape[1], 16, generator=torch.Generator().manual_seed(0))
    return (x.float() / 255 @ weights).double().numpy()


def reference_gae(learner: tuple, values, gamma: float, gae_lambda: float) -> np.ndarray:
    """Advantages (T, N) in float64 by the sum of arXiv:1506.02438 equation 16 instead of its recursion. `learner` is
    (rewards, terminations, steps at which the recursion stops). With lambda 1 the result is the n-step return minus the
    value."""
    rewards, terminals, ends = learner
    deltas = rewards + gamma * values[1:] * (1 - terminals) - values[:-1]
    advantages = np.zeros_like(deltas)
    for t, n in np.ndindex(*deltas.shape):
        weight = 1.0
        for later in range(t, len(deltas)):
            advantages[t, n] += weight * deltas[later, n]
            weight *= gamma * gae_lambda * (1 - ends[later, n])
    return advantages


class Minibatch:
    """Calls the loss as in the traced run, with the probe's own agent, other flags, and tensors of `rows` samples. The
    tensors that the probe knows are drawn again; the others are those of the run."""

    def __init__(self, subject: Subject, rows: int = 64, of: str = "minibatches", **flags):
        trace = subject.trace
        if not any(record["minibatches"] for record in trace.updates):
            raise Unable(f"update() does not call {subject.loss_name}")
        self.subject, self.flags = subject, flags
        self.call = trace.loss_call if of == "minibatches" else trace.value_call
        self.agent = subject.agent(**flags)
        self.args = getattr(self.agent, "args", None) or replace(trace.args, **subject.known(flags))
        self.target = subject.agent(seed=1, **flags) if trace.target is not None else None
        pool = [row for record in trace.updates[:4] for row in record[of]]
        chosen = torch.randint(sum(len(row["x"]) for row in pool), (rows,))
        self.batch = {
            name: torch.cat([row[name] for row in pool])[chosen]
            for name in (subject.loss_names.get(name, name) for name in self.call.arguments)
            if value_rows(pool, name)
        }
        with torch.no_grad():
            drawn = {n: v for n, v in self.draw(rows).items() if n in self.batch}
        self.batch |= drawn
        self.drawn = set(drawn)

    def draw(self, rows: int) -> dict:
        """Actions near the policy, and ratios on both sides of the clip range."""
        agent, x, noise = self.agent, self.batch["x"], 0.5 * torch.randn(5, rows)
        if "q-learning" in self.subject.kinds:
            return {
                "action": torch.randint(NUM_ACTIONS, (rows,)),
                "reward": 2 * torch.randn(rows),
                "terminal": (torch.rand(rows) < 0.3).float(),
                "next_values": torch.randn(rows, NUM_ACTIONS),
            }
        action, logprob, _ = self.subject.act(agent, x)
        logprob = self.subject.act(agent, x, action)[1] if logprob is None else logprob
        value = self.subject.value(agent, x)
        return {
            "action": action,
            "old_logprob": logprob + 0.4 * noise[3],
            "advantage": noise[0],
            "target": value + 2 * noise[1] + 1,
            "old_value": value + noise[2],
            "valid": torch.ones(rows),
        }

    def loss(self, args=None, **tensors) -> torch.Tensor:
        """The loss, with some of the tensors changed."""
        given = self.batch | tensors
        own = {name: own for own, name in self.subject.loss_names.items()}
        given = {own.get(name, name): tensor for name, tensor in given.items()}
        if "target_agent" in self.call.arguments:
            given["target_agent"] = self.target
        if "args" in self.call.arguments:
            given["args"] = args or self.args
        torch.manual_seed(self.subject.seed)
        return self.call.again(agent=self.agent, **given)


def tensors_of(batch) -> list:
    """The tensors of a batch as update receives it: a dictionary by the loss's names, or a sequence in the loss's
    order."""
    return list(batch.values() if isinstance(batch, dict) else batch)


def of_tensors(tensors: list, batch):
    """A batch of the same form with other tensors."""
    return dict(zip(batch, tensors)) if isinstance(batch, dict) else list(tensors)


def gradient(output: torch.Tensor, parameters: list) -> torch.Tensor:
    """The gradient by all parameters, as one vector in float64."""
    if not output.requires_grad:
        return torch.zeros(sum(p.numel() for p in parameters)).double()
    grads = torch.autograd.grad(output, parameters, retain_graph=True, allow_unused=True)
    return torch.cat(
        [torch.zeros(p.numel()) if g is None else g.flatten() for g, p in zip(grads, parameters)]
    ).double()


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    torch.set_num_threads(1)
