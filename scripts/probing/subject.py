"""The file under test: what kind it is, how its parts are called, a traced run of it, and the list of the checks."""

import contextlib
import copy
import functools
import importlib.util
import inspect
import io
import itertools
import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import torch.nn as nn

from probing.environments import DISCRETE, AtariVector, blocks, box

RETURNS = {
    "compute_gae": "gae",
    "n_step_returns": "n-step",
    "compute_returns": "monte-carlo",
    "td_target": "q-learning",
}
# above: the functions that targets come from, of which a file has one, and the kind of file that this makes it
NUM_ACTIONS = 4  # of all discrete environments here
ATARI_ID = "BreakoutNoFrameskip-v4"  # what a file for Atari is told that it plays


@dataclass
class Check:
    function: Callable
    section: str  # of the file, where to look
    hint: str  # the likely mistake
    kinds: frozenset[str]  # all of these a file must be for the check to apply


CHECKS: dict[str, Check] = {}


def check(section: str, hint: str, of: str = ""):
    """Registers a check of the files that are all of `of`, words from Subject.kinds. It returns (measured, expected,
    passed) and, where it knows better, another hint."""

    def register(function):
        CHECKS[function.__name__.replace("_", "-")] = Check(
            function, section, hint, frozenset(of.split())
        )
        return function

    return register


def largest(a, b) -> float:
    """Largest difference, relative where the figures are large."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape:
        return math.inf
    return float(np.max(np.abs(a - b) / np.maximum(1, np.abs(b)), initial=0.0))


def close(error: float, limit: float = 1e-3) -> tuple[str, str, bool]:
    return f"error {error:.1e}", f"below {limit:.0e}", error < limit


class Recorder:
    """Stands in for SummaryWriter and keeps what is logged: {tag: [(step, value), ...]}."""

    def __init__(self, *args, **kwargs):
        self.scalars = {}

    def add_scalar(self, tag, value, step):
        self.scalars.setdefault(tag, []).append((int(step), float(value)))

    def flush(self):
        pass

    close = flush


class Subject:
    """The file as a module, how to run it, and how to call its agent whatever its kind."""

    def __init__(self, file: Path, seed: int):
        self.file, self.seed, self.count = file, seed, itertools.count()
        self.folder = tempfile.TemporaryDirectory(prefix="plainrl-probe-")

    def load(self):
        """A fresh module each time: what one check patches never reaches another."""
        name = f"{self.file.stem}_{next(self.count)}"
        spec = importlib.util.spec_from_file_location(name, self.file)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    @cached_property
    def kinds(self) -> frozenset[str]:
        """What the file is: policy (its targets come from gae, n-step or monte-carlo returns) or q-learning; bootstrap,
        where they hold a value of the last state; ratio, with the ratio of probabilities in its loss, or score, with
        the log-probability; continuous or discrete actions; pixels, and atari where they are that, or vector
        observations; normaliser, of these; scales, if it does so with rewards; clips, if there is --max-grad-norm;
        draws, if its evaluation draws actions; best, if it keeps the best model."""
        module = self.load()
        kinds = {next(kind for name, kind in RETURNS.items() if hasattr(module, name))}
        kinds |= set() if kinds == {"monte-carlo"} else {"bootstrap"}
        if "q-learning" not in kinds:
            kinds |= {"policy", "ratio" if "old_logprob" in self.loss_names else "score"}
        kinds |= {"clips"} if hasattr(module.Args, "max_grad_norm") else set()
        kinds |= {"draws"} if hasattr(module, "AtariVectorEnv") or "q-learning" in kinds else set()
        kinds |= {"best"} if "best.pt" in self.file.read_text() else set()
        kinds |= {"continuous"} if hasattr(module.Agent, "to_env") else {"discrete"}
        kinds |= {"atari"} if hasattr(module, "AtariVectorEnv") else set()
        kinds |= {"pixels"} if "atari" in kinds or hasattr(module, "PixelConv2d") else {"vector"}
        kinds |= {"scales"} if hasattr(module.Args, "norm_reward") else set()
        return frozenset(kinds | ({"normaliser"} if hasattr(module.Agent, "normalize") else set()))

    def applies(self, name: str) -> bool:
        return CHECKS[name].kinds <= self.kinds

    @cached_property
    def loss_name(self) -> str:
        return next(name for name in vars(self.load()) if name.endswith("_loss"))

    @cached_property
    def loss_names(self) -> list[str]:
        """The tensors of a batch in the order in which the loss takes them. The first, what the network sees, is called
        x here in every file."""
        parameters = list(inspect.signature(getattr(self.load(), self.loss_name)).parameters)
        return ["x", *parameters[parameters.index("args") + 2 :]]

    def args(self, module, **flags):
        """Args for a small run. Flags that the file does not have are left out; noise in the update is switched off, so
        that the exact checks know what to expect."""
        runs_dir = Path(self.folder.name) / str(next(self.count))
        small = {
            "env_id": "ProbeProtocol-v0",
            "env_backend": "gymnasium",
            "device": "cpu",
            "runs_dir": str(runs_dir),
        }
        small |= {
            "seed": self.seed,
            "torch_threads": 1,
            "num_envs": 4,
            "num_steps": 16,
            "num_minibatches": 4,
        }
        small |= {
            "update_epochs": 3,
            "total_timesteps": 500,
            "eval_episodes": 3,
            "norm_reward": False,
        }
        # none of these is a default, so that a hard-coded number shows
        small |= {
            "gamma": 0.97,
            "gae_lambda": 0.9,
            "vf_coef": 0.3,
            "clip_coef": 0.15,
            "rpo_alpha": 0.0,
        }
        small |= {"precision": "float32"}
        small |= {"total_timesteps": 300} if {"pixels", "q-learning"} <= self.kinds else {}
        if {"pixels", "ratio"} <= self.kinds:  # its updates are many and slow
            small |= {"total_timesteps": 260, "update_epochs": 2}
        small |= {
            "buffer_size": 96,
            "learning_starts": 60,
            "batch_size": 8,
            "train_frequency": 3,
            "tau": 0.7,
        }
        small |= {
            "target_network_frequency": 30,
            "start_e": 0.9,
            "end_e": 0.2,
            "exploration_fraction": 0.6,
        }
        settings = small | flags
        if "discrete" in self.kinds:
            world = settings["env_id"].removeprefix("Probe").removesuffix("-v0")
            settings["env_id"] = (
                f"Probe{world}{'Pixels' if 'pixels' in self.kinds else 'Discrete'}-v0"
            )
            if "atari" in self.kinds and world in DISCRETE:
                module.AtariVectorEnv = functools.partial(AtariVector, DISCRETE[world])
                settings["env_id"] = ATARI_ID
        known = {field.name for field in fields(module.Args)}
        return module.Args(**{name: value for name, value in settings.items() if name in known})

    def train(self, module, args) -> dict:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return module.train(args)

    def new_agent(self, module, args, obs_size: int = 3, action_space=None):
        given = {
            "obs_dim": obs_size,
            "action_space": action_space or box(2, -0.5, 0.8),
            "args": args,
        }
        given |= {"num_actions": NUM_ACTIONS, "bfloat16": False, "obs_shape": (4, 84, 84)}
        wanted = inspect.signature(module.Agent).parameters
        return module.Agent(**{name: given[name] for name in wanted if name in given})

    def agent(self, module, args, obs_size: int = 3, action_space=None, seed: int = 0):
        """An agent whose networks give every action another location or probability and every state another value."""
        torch.manual_seed(self.seed + seed)
        agent = self.new_agent(module, args, obs_size, action_space)
        for parameter in agent.parameters():
            width = parameter[0].numel() if "pixels" in self.kinds and parameter.dim() > 1 else 1
            parameter.data += (0.3 if width == 1 else 1.5 / width**0.5) * torch.randn_like(
                parameter
            )
        return agent

    def observations(self, rows: int) -> torch.Tensor:
        """Random ones, as the agent's functions take them."""
        if "pixels" in self.kinds:
            return torch.from_numpy(
                blocks(np.random.default_rng(int(torch.randint(2**31, ()))), rows, 4)
            )
        return torch.randn(rows, 3)

    def actions(self, rows: int) -> torch.Tensor:
        return (
            torch.randn(rows, 2)
            if "continuous" in self.kinds
            else torch.randint(NUM_ACTIONS, (rows,))
        )

    def seen(self, agent, obs) -> torch.Tensor:
        """What the network gets of observations (..., *shape) from the environment."""
        obs = torch.from_numpy(np.asarray(obs))
        return agent.normalize(obs.float()) if "normaliser" in self.kinds else obs

    def act(self, agent, x, action=None):
        """(action, logprob, entropy) of a policy."""
        if hasattr(agent, "get_action_and_value"):
            return agent.get_action_and_value(x, action)[:3]
        return agent.get_action(x, action)

    def value(self, agent, x) -> torch.Tensor:
        """Values (...) of what the network sees, (..., *shape); those of the best actions in Q-learning."""
        flat = x.flatten(0, x.dim() - (4 if "pixels" in self.kinds else 2))
        value = agent(flat).amax(-1) if "q-learning" in self.kinds else agent.get_value(flat)
        return value.reshape(x.shape[: x.dim() - (3 if "pixels" in self.kinds else 1)])

    def outputs(self, agent, x) -> list[torch.Tensor]:
        """All that the network says about each row, without any draw."""
        if "q-learning" in self.kinds:
            return [agent(x)]
        if "continuous" in self.kinds:
            return [agent.actor_mean(x), agent.get_value(x)]
        action = [torch.full((len(x),), a) for a in range(NUM_ACTIONS)]
        return [torch.stack([self.act(agent, x, a)[1] for a in action], -1), agent.get_value(x)]

    def best(self, agent, x) -> torch.Tensor:
        """The policy's mode, as the environment gets it, or the action of the highest value."""
        if "continuous" in self.kinds:
            return agent.to_env(agent.actor_mean(x))
        return self.outputs(agent, x)[0].argmax(-1)

    def loss(self, module, agent, args, batch: dict):
        """The loss of a batch of tensors by name."""
        function = getattr(module, self.loss_name)
        first = list(inspect.signature(function).parameters)[2]
        return function(
            agent,
            args,
            **{first if name == "x" else name: tensor for name, tensor in batch.items()},
        )[0]

    @cached_property
    def trace(self) -> "Trace":
        return Trace(self)


def scores(agent: nn.Module) -> torch.Tensor:
    """Some of the weights of every layer, in float64: equal only if the networks are, and linear in them."""
    parts = [p.detach().flatten()[:: max(1, p.numel() // 500)] for p in agent.parameters()]
    return torch.cat(parts).double()


class Trace:
    """One short training run, and everything that went through the file's functions in it."""

    def __init__(self, subject: Subject, **flags):
        self.subject, module = subject, subject.load()
        self.args = args = subject.args(module, **flags)
        self.returns, self.updates, self.evaluations, self.envs, self.writers = [], [], [], [], []
        self.learned, self.replays, self.epsilons, self.online, self.evaluating = (
            {},
            [],
            [],
            None,
            False,
        )
        self.ticks = []  # of Q-learning: both networks' scores at each step of the environments, and at the end
        names, q_learning = subject.loss_names, "q-learning" in subject.kinds
        returns_name = next(name for name in RETURNS if hasattr(module, name))
        loss, returns, update = (
            getattr(module, name) for name in (subject.loss_name, returns_name, "update")
        )
        evaluate, make_envs, get_action = (
            module.evaluate,
            module.make_envs,
            getattr(module.Agent, "get_action", None),
        )

        def spy_envs(*a, **k):
            made = make_envs(*a, **k)
            step = made[0].step

            def spy_step(actions):
                self.ticks.append(self.networks())
                return step(actions)

            if q_learning and made[0].num_envs == args.num_envs not in [
                len(envs) for envs, _ in self.envs
            ]:
                made[0].step = spy_step  # the environments of training
            self.envs.append(([env.unwrapped for env in made[0].envs], made[1]))
            return made

        def spy_returns(*a, **k):
            bound = inspect.signature(returns).bind(*a, **k).arguments
            result = returns(*a, **k)
            as_numpy = {
                name: v.detach().double().numpy() for name, v in bound.items() if torch.is_tensor(v)
            }
            self.returns.append(as_numpy)
            return result

        def spy_loss(*call):
            agent, tensors = call[0], call[-len(names) :]
            row = {name: tensor.detach().clone() for name, tensor in zip(names, tensors)}
            with torch.no_grad(), torch.random.fork_rng():
                if q_learning:
                    row["values"], row["next_online"] = agent(row["x"]), agent(row["next_obs"])
                    row["next_target"] = self.target(row["next_obs"])
                else:
                    _, row["logprob"], row["entropy"] = subject.act(agent, row["x"], row["action"])
                    row["value"] = subject.value(agent, row["x"])
            result = loss(*call)
            row["loss"] = float(result[0])
            self.updates[-1]["minibatches"].append(row)
            return result

        def spy_update(*a, **k):
            bound = inspect.signature(update).bind(*a, **k)
            agent, optimizer = (bound.arguments[name] for name in ("agent", "optimizer"))
            batch = bound.arguments["batch"] = tuple(bound.arguments["batch"])
            valid = bound.arguments.get("valid_rows", slice(None))
            if "valid" in names:
                valid = batch[names.index("valid")] > 0
            if self.online is None:
                self.online, self.target = agent, bound.arguments.get("target_agent")
                self.ticks = [
                    self.networks() for _ in self.ticks
                ]  # nothing has changed since the first of them
            record = {"minibatches": [], "norms": [], "tick": len(self.ticks)}
            record |= {} if q_learning else {"agent": copy.deepcopy(agent)}
            record["batch"] = {
                name: tensor[valid].detach().clone() for name, tensor in zip(names, batch)
            }
            record["lrs"] = [group["lr"] for group in optimizer.param_groups]
            record["decay"] = [group.get("weight_decay", 0) for group in optimizer.param_groups]
            record["memory"] = [memory(optimizer.state), None]
            owned = {
                id(parameter) for group in optimizer.param_groups for parameter in group["params"]
            }
            record["stray"] = owned != {id(parameter) for parameter in agent.parameters()}
            self.updates.append(record)

            def hook(optimizer, *_):
                grads = [
                    p.grad
                    for group in optimizer.param_groups
                    for p in group["params"]
                    if p.grad is not None
                ]
                record["norms"].append(
                    float(torch.linalg.vector_norm(torch.stack([g.norm() for g in grads])))
                )
                for name, parameter in agent.named_parameters():
                    if parameter.grad is not None and parameter.grad.abs().sum() > 0:
                        self.learned[name] = True

            handle = optimizer.register_step_pre_hook(hook)
            self.first = copy.deepcopy(agent) if len(self.updates) == 1 else self.first
            try:
                return update(*bound.args, **bound.kwargs)
            finally:
                handle.remove()
                self.after, record["memory"][1] = copy.deepcopy(agent), memory(optimizer.state)

        def spy_evaluate(agent, *a, **k):
            before, self.evaluating = copy.deepcopy(agent.state_dict()), True
            result = evaluate(agent, *a, **k)
            self.evaluating = False
            self.evaluations.append((before, copy.deepcopy(agent), result))
            return result

        def spy_action(agent, obs, epsilon):
            if not self.evaluating:
                self.epsilons.append(float(epsilon))
            return get_action(agent, obs, epsilon)

        def recorder(*a, **k):
            self.generator = torch.get_rng_state()  # after a resume has restored it
            self.writers.append(Recorder())
            return self.writers[-1]

        def spy_replay(*a, **k):
            self.replays.append(replay(*a, **k))
            return self.replays[-1]

        spies = {
            "make_envs": spy_envs,
            returns_name: spy_returns,
            subject.loss_name: spy_loss,
            "update": spy_update,
        }
        spies |= {"evaluate": spy_evaluate, "SummaryWriter": recorder}
        if q_learning:
            replay, spies["Replay"] = module.Replay, spy_replay
        with contextlib.ExitStack() as patches:
            for name, spy in spies.items():
                patches.enter_context(patch.object(module, name, spy))
            if q_learning:
                patches.enter_context(patch.object(module.Agent, "get_action", spy_action))
            self.summary = subject.train(module, args)
        if "best" in subject.kinds:  # judged last, on episodes of its own
            self.best = self.evaluations.pop(), self.envs.pop()[0]
        self.ticks.append(self.networks())
        self.module = module
        self.scalars = self.writers[0].scalars
        self.train_envs = next(envs for envs, _ in self.envs if len(envs) == args.num_envs)
        self.eval_envs = next(
            (envs for envs, _ in self.envs if len(envs) == args.eval_episodes), []
        )
        (self.run_dir,) = Path(args.runs_dir).iterdir()

    def networks(self) -> tuple | None:
        """Scores of the online and the target network, once the first update has shown them."""
        if self.online is None or self.target is None:
            return None
        return scores(self.online), scores(self.target)

    @cached_property
    def truth(self) -> list[dict]:
        """What happened in each rollout, from the environments' own protocols: arrays (num_steps, num_envs, ...). In
        Q-learning a rollout is one step of all environments."""
        rollouts, protocols = [], [env.protocol[1:] for env in self.train_envs]
        nothing = np.zeros(2 if "continuous" in self.subject.kinds else ())
        while len(protocols[0]) >= (T := self.length(len(rollouts))):
            if "monte-carlo" in self.subject.kinds:  # which starts each rollout with a reset
                protocols = [protocol[1:] for protocol in protocols]
            rows, protocols = list(zip(*(p[:T] for p in protocols))), [p[T:] for p in protocols]
            kinds = ("obs", "next_obs", "reward", "terminated", "truncated", "life_lost")
            truth = {key: np.array([[row[key] for row in line] for line in rows]) for key in kinds}
            truth["valid"] = np.array([[not row["reset"] for row in line] for line in rows])
            if (
                "monte-carlo" in self.subject.kinds
            ):  # and counts the first episode of each environment
                ended = np.cumsum(truth["terminated"] | truth["truncated"], axis=0) > 0
                truth["valid"] &= ~np.concatenate([ended[:1] & False, ended[:-1]])
            actions = [
                [nothing if row["action"] is None else row["action"] for row in line]
                for line in rows
            ]
            truth["action"] = np.array(actions, dtype=np.float64)
            # what the learner should make of it: rewards, terminal states, ends of the trace
            reward, terminal = (
                truth["reward"].astype(np.float64),
                truth["terminated"].astype(np.float64),
            )
            if getattr(self.args, "terminal_on_life_loss", False):
                terminal = np.maximum(terminal, truth["life_lost"])
            if not getattr(self.args, "bootstrap_truncation", True):
                terminal = np.maximum(terminal, truth["truncated"])
            reward = np.sign(reward) if getattr(self.args, "clip_reward", False) else reward
            truth["learner"] = reward, terminal, np.maximum(terminal, truth["truncated"])
            rollouts.append(truth)
        return rollouts

    def length(self, k: int) -> float:
        """Steps of rollout k: as many as the file takes until every episode has ended, or --num-steps, or 1."""
        if "monte-carlo" in self.subject.kinds:
            return len(self.returns[k]["rewards"]) if k < len(self.returns) else math.inf
        return getattr(self.args, "num_steps", 1)

    @cached_property
    def expected(self) -> list[dict]:
        """The batch of each rollout as it should be, valid rows only, in order of time and environment."""
        return [
            self.expect(truth, record["agent"]) for truth, record in zip(self.truth, self.updates)
        ]

    def expect(self, truth: dict, agent) -> dict:
        values, valid, args = self.values(truth, agent), truth["valid"], self.args
        rewards, terminals, ends = truth["learner"]
        if (
            "monte-carlo" in self.subject.kinds
        ):  # a return, which knows no value, and takes every end for a terminal state
            values, terminals = 0 * values, ends
        with torch.no_grad():
            x = self.subject.seen(agent, truth["obs"][valid])
        advantages = reference_gae(
            (rewards, terminals, ends), values, args.gamma, getattr(args, "gae_lambda", 1.0)
        )
        return {"x": sketch(x), "action": truth["action"][valid], "value": values[:-1][valid],
                "advantage": advantages[valid], "target": (advantages + values[:-1])[valid]}  # fmt: skip

    def values(self, truth: dict, agent) -> np.ndarray:
        """Values (num_steps + 1, num_envs), in float64, of all states of a rollout and of the one after it."""
        both = np.concatenate([truth["obs"], truth["next_obs"][-1:]])
        with torch.no_grad():
            return self.subject.value(agent, self.subject.seen(agent, both)).double().numpy()

    @cached_property
    def places(self) -> list[np.ndarray]:
        """For each expected row of each update the row of the file's batch with the same x, -1 where there is none."""
        found = []
        for expected, record in zip(self.expected, self.updates):
            distance = np.abs(expected["x"][:, None] - sketch(record["batch"]["x"])[None]).max(-1)
            found.append(np.where(distance.min(1) < 1e-4, distance.argmin(1), -1))
        return found

    @cached_property
    def steps(self) -> list[int]:
        """Steps of the agent after each rollout."""
        return np.cumsum([truth["valid"].sum() for truth in self.truth]).tolist()

    def epsilon(self, k: int) -> float:
        """The right exploration rate at step k of all environments: linear over --exploration-fraction of the run."""
        args, step = self.args, [0, *self.steps][k]
        share = min(step / (args.exploration_fraction * args.total_timesteps), 1)
        return args.start_e + share * (args.end_e - args.start_e)


def memory(state: dict) -> list[list[float]]:
    """What an optimiser remembers of each parameter, as one number for each tensor."""
    return [[float(kept[key].double().sum()) for key in sorted(kept) if torch.is_tensor(kept[key])]
            for kept in state.values()]  # fmt: skip


def sketch(x: torch.Tensor) -> np.ndarray:
    """Rows (n, d) in float64 that are equal where the rows of x are: x itself or, of pixels, 16 sums with weights."""
    if x.dtype != torch.uint8:
        return x.flatten(1).double().numpy()
    x = x.flatten(1)
    weights = torch.randn(x.shape[1], 16, generator=torch.Generator().manual_seed(0))
    return (x.float() / 255 @ weights).double().numpy()


def reference_gae(learner: tuple, values, gamma: float, gae_lambda: float) -> np.ndarray:
    """Advantages (T, N) in float64 by the sum of arXiv:1506.02438 equation 16, not by its recursion, of (rewards,
    terminal states, ends of the trace); with lambda 1 the n-step return minus the value."""
    rewards, terminals, ends = learner
    deltas = rewards + gamma * values[1:] * (1 - terminals) - values[:-1]
    advantages = np.zeros_like(deltas)
    for t, n in np.ndindex(*deltas.shape):
        weight = 1.0
        for later in range(t, len(deltas)):
            advantages[t, n] += weight * deltas[later, n]
            weight *= gamma * gae_lambda * (1 - ends[later, n])
    return advantages


def minibatch(subject: Subject, module, args, rows: int = 64) -> tuple:
    """An agent, and a minibatch by name: actions near the policy, ratios on both sides of the clip range."""
    agent = subject.agent(module, args)
    with torch.no_grad():
        x = subject.observations(rows)
        if "q-learning" in subject.kinds:
            batch = {
                "x": x,
                "next_obs": subject.observations(rows),
                "action": subject.actions(rows),
            }
            batch |= {"reward": 2 * torch.randn(rows), "terminal": (torch.rand(rows) < 0.3).float()}
            batch["next_values"] = torch.randn(rows, NUM_ACTIONS)
            return agent, {name: batch[name] for name in subject.loss_names}
        action, logprob, _ = subject.act(agent, x)
        value = subject.value(agent, x)
        noise = 0.5 * torch.randn(5, rows)
        advantage, target, old_value = noise[0], value + 2 * noise[1] + 1, value + noise[2]
    batch = {"x": x, "action": action, "old_logprob": logprob + 0.4 * noise[3], "advantage": advantage,
             "target": target, "old_value": old_value, "valid": torch.ones(rows)}  # fmt: skip
    return agent, {name: batch[name] for name in subject.loss_names}
