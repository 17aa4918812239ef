"""What did I break? A ladder of checks for a file of algos/, or a changed copy of one, wherever it lies.

    python scripts/probe.py PATH/TO/FILE.py

First the exact checks: the file trains for a moment on an environment that keeps a protocol of everything, and each
number that reaches the loss, the log and the checkpoint is compared with one worked out from that protocol in float64.
Then the learned ones: environments so small that the right value or action is known beforehand. Each failure names the
section of the file to look at and the likely mistake. The exit status is 0 only if every check passes.
"""

import contextlib
import copy
import importlib.util
import inspect
import io
import itertools
import json
import math
import random
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from unittest.mock import patch

import gymnasium as gym
import numpy as np
import torch
import tyro


@dataclass
class Options:
    file: tyro.conf.Positional[Path]  # the algorithm's file
    seed: int = 1  # of everything the probe draws and of the training runs
    only: tuple[str, ...] = ()  # names of the checks to run; --list shows them
    json: bool = False  # print the results as JSON
    list: bool = False  # print the names of the checks that apply to the file, and what each looks at


@dataclass
class Result:
    check: str
    section: str  # of the file, where to look
    measured: str
    expected: str
    passed: bool
    hint: str  # the likely mistake


# ---- environments --------------------------------------------------------------------------------------------------


def box(size: int, low: float = -np.inf, high: float = np.inf) -> gym.spaces.Box:
    return gym.spaces.Box(low, high, (size,), np.float32)


class Protocol(gym.Env):
    """Keeps a protocol of every reset and step. The observation (id, episode, step) is different in every state; id
    comes from the seed. Episodes are 2 to 5 steps long, every other one is truncated. The reward depends on the state
    and on the action, which has two numbers in [-0.5, 0.8], so that it is often clipped."""

    observation_space, action_space = box(3), box(2, -0.5, 0.8)

    born = itertools.count()

    def __init__(self):
        self.protocol, self.seeds, self.episode, self.number = [], [], -1, next(Protocol.born)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.seeds.append(seed)
            self.number = seed
        self.id = self.number % 1009 / 1009
        self.steps, self.episode = 0, self.episode + 1
        before = getattr(self, "last", None)
        self.last = self.observe()
        self.protocol.append({"reset": True, "obs": before, "next_obs": self.last, "action": None,
                              "reward": 0.0, "terminated": False, "truncated": False})  # fmt: skip
        return self.last.copy(), {}

    def observe(self):
        return np.array([self.id, 0.3 * self.episode, self.steps], dtype=np.float32)

    def step(self, action):
        before, self.steps = self.last, self.steps + 1
        self.last = self.observe()
        reward = 1.0 + self.steps + 2 * self.id + 0.5 * float(np.sum(action))
        done, even = self.steps == 2 + (self.episode + self.number) % 4, (self.episode + self.number) % 2 == 0
        ends = {"terminated": done and even, "truncated": done and not even}
        row = {"reset": False, "obs": before, "next_obs": self.last, "action": np.array(action), "reward": reward}
        self.protocol.append(row | ends)
        return self.last.copy(), reward, ends["terminated"], ends["truncated"], {}


class Small(gym.Env):
    """Base of the learned checks: episodes of `length` steps; `outcome` gives (reward, next observation)."""

    observation_space, action_space = box(1), box(1, -3.0, 3.0)  # so wide that clipping moves no best action
    length, truncates, born = 1, False, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.obs = 0, self.first()
        return np.array([self.obs], dtype=np.float32), {}

    def first(self) -> float:
        return 0.0

    def step(self, action):
        self.steps += 1
        reward, self.obs = self.outcome(float(np.ravel(action)[0]))
        done = self.steps == self.length
        obs = np.array([self.obs], dtype=np.float32)
        return obs, reward, done and not self.truncates, done and self.truncates, {}


class Constant(Small):
    """One step, pays 1: the value is 1."""

    def outcome(self, action):
        return 1.0, self.obs


class Shown(Small):
    """One step, pays the observation, -1 or 1: the value is the observation."""

    def first(self):
        return float(self.np_random.choice([-1.0, 1.0]))

    def outcome(self, action):
        return self.obs, self.obs


class TwoSteps(Small):
    """Observation 0, then 1; the second step pays 1: the values are gamma and 1."""

    length = 2

    def outcome(self, action):
        return self.obs, 1.0


class Better(Small):
    """One step; the best action is 0.5 whatever is seen."""

    def outcome(self, action):
        return -((action - 0.5) ** 2), self.obs


class Aim(Shown):
    """One step; the best action is half the observation."""

    def outcome(self, action):
        return -((action - self.obs / 2) ** 2), self.obs


class Far(Aim):
    """Aim, seen through an offset of 1000 and a scale of 100."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        return obs * 100 + 1000, info

    def step(self, action):
        obs, *rest = super().step(action)
        return obs * 100 + 1000, *rest


class Endless(Shown):
    """Pays 1 for ever; a time limit that the observation, -1 or 1, does not show cuts it after 10 steps."""

    length, truncates = 10, True

    def outcome(self, action):
        return 1.0, self.obs


class Delayed(Small):
    """Two steps. The first action decides what the second step pays, -(action - 0.5)^2; the second action nothing.
    The next episode must get no credit for it."""

    length = 2

    def outcome(self, action):
        if self.steps == 1:
            self.paid = -((action - 0.5) ** 2)
            return 0.0, 1.0
        return self.paid, 0.0


class Drift(Aim):
    """Aim, while the mean of the observations drifts by 0.012 an episode."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        self.born += 1
        self.offset = 0.012 * self.born
        return obs + self.offset, info

    def step(self, action):
        obs, *rest = super().step(action)
        return obs + self.offset, *rest


for cls in (Protocol, Constant, Shown, TwoSteps, Better, Aim, Far, Endless, Delayed, Drift):
    gym.register(f"Probe{cls.__name__}-v0", entry_point=cls, disable_env_checker=True)


# ---- the file under test -------------------------------------------------------------------------------------------


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
    """The file as a module, and how to run it."""

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

    def args(self, module, **flags):
        """Args for a small run. Flags that the file does not have are left out; noise in the update is switched off, so
        that the exact checks know what to expect."""
        runs_dir = Path(self.folder.name) / str(next(self.count))
        small = {"env_id": "ProbeProtocol-v0", "env_backend": "gymnasium", "device": "cpu", "runs_dir": str(runs_dir)}
        small |= {"seed": self.seed, "torch_threads": 1, "num_envs": 4, "num_steps": 16, "num_minibatches": 4}
        small |= {"update_epochs": 3, "total_timesteps": 500, "eval_episodes": 3, "norm_reward": False}
        small |= {"gamma": 0.97, "gae_lambda": 0.9, "vf_coef": 0.3, "clip_coef": 0.15}  # so a hard-coded number shows
        small |= {"rpo_alpha": 0.0}
        known = {field.name for field in fields(module.Args)}
        return module.Args(**{name: value for name, value in (small | flags).items() if name in known})

    def train(self, module, args) -> dict:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return module.train(args)

    def agent(self, module, args, obs_size: int = 3, action_space=None):
        """An agent whose networks give every action another location and every state another value."""
        torch.manual_seed(self.seed)
        agent = module.Agent(obs_size, action_space or box(2, -0.5, 0.8), args)
        for parameter in agent.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
        return agent

    @cached_property
    def loss_name(self) -> str:
        return next(name for name in vars(self.load()) if name.endswith("_loss"))

    @cached_property
    def trace(self) -> "Trace":
        return Trace(self)


class Trace:
    """One short training run, and everything that went through the file's functions in it."""

    def __init__(self, subject: Subject, **flags):
        module = subject.load()
        self.args = args = subject.args(module, **flags)
        self.gae_calls, self.updates, self.evaluations, self.envs, self.writers = [], [], [], [], []
        self.learned = {}
        signature = inspect.signature
        loss, gae, update = getattr(module, subject.loss_name), module.compute_gae, module.update
        evaluate, make_envs = module.evaluate, module.make_envs

        def spy_envs(*a, **k):
            made = make_envs(*a, **k)
            self.envs.append(([env.unwrapped for env in made[0].envs], made[1]))
            return made

        def spy_gae(*a, **k):
            bound = signature(gae).bind(*a, **k).arguments
            result = gae(*a, **k)
            as_numpy = {name: np.asarray(v, dtype=np.float64) for name, v in bound.items() if torch.is_tensor(v)}
            self.gae_calls.append(as_numpy | {"advantages": result.double().numpy()})
            return result

        def spy_loss(agent, args, *minibatch):
            names = list(signature(loss).parameters)[2:]
            row = {name: tensor.detach().clone() for name, tensor in zip(names, minibatch)}
            with torch.no_grad(), torch.random.fork_rng():
                _, row["logprob"], row["entropy"] = agent.get_action(row["x"], row["action"])
                row["value"] = agent.get_value(row["x"])
            self.updates[-1]["minibatches"].append(row)
            return loss(agent, args, *minibatch)

        def spy_update(agent, optimizer, args, batch, *rest):
            names = list(signature(loss).parameters)[2:]
            record = {"agent": copy.deepcopy(agent), "minibatches": [], "norms": [], "kinds": set()}
            record["batch"] = {name: tensor.detach().clone() for name, tensor in zip(names, batch)}
            record["lrs"] = [group["lr"] for group in optimizer.param_groups]
            record["decay"] = [group.get("weight_decay", 0) for group in optimizer.param_groups]
            record["steps"] = {int(state["step"]) for state in optimizer.state.values() if "step" in state}
            self.updates.append(record)

            def hook(optimizer, *_):
                grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
                record["norms"].append(float(torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))))
                for name, parameter in agent.named_parameters():
                    if parameter.grad is not None and parameter.grad.abs().sum() > 0:
                        self.learned[name] = True

            handle = optimizer.register_step_pre_hook(hook)
            try:
                return update(agent, optimizer, args, batch, *rest)
            finally:
                handle.remove()
                record["after"] = copy.deepcopy(agent)

        def spy_evaluate(agent, *a, **k):
            before = copy.deepcopy(agent.state_dict())
            result = evaluate(agent, *a, **k)
            self.evaluations.append((before, copy.deepcopy(agent), result))
            return result

        def recorder(*a, **k):
            self.generator = torch.get_rng_state()  # after a resume has restored it
            self.writers.append(Recorder())
            return self.writers[-1]

        spies = {"make_envs": spy_envs, "compute_gae": spy_gae, subject.loss_name: spy_loss, "update": spy_update}
        spies |= {"evaluate": spy_evaluate, "SummaryWriter": recorder}
        with contextlib.ExitStack() as stack:
            for name, spy in spies.items():
                stack.enter_context(patch.object(module, name, spy))
            self.summary = subject.train(module, args)
        self.module = module
        self.scalars = self.writers[0].scalars
        self.train_envs = next(envs for envs, _ in self.envs if len(envs) == args.num_envs)
        self.eval_envs = next((envs for envs, _ in self.envs if len(envs) == args.eval_episodes), [])
        (run,) = Path(args.runs_dir).iterdir()
        self.run_dir = run

    @cached_property
    def truth(self) -> list[dict]:
        """What happened in each rollout, from the environments' own protocols: arrays (num_steps, num_envs, ...)."""
        rollouts, T = [], self.args.num_steps
        for k in range(len(self.updates)):
            rows = [[env.protocol[1 + k * T + t] for env in self.train_envs] for t in range(T)]
            truth = {key: np.array([[row[key] for row in line] for line in rows], dtype=np.float64)
                     for key in ("obs", "next_obs", "reward", "terminated", "truncated")}  # fmt: skip
            truth["valid"] = np.array([[not row["reset"] for row in line] for line in rows])
            nothing = np.zeros(2)
            actions = [[nothing if row["action"] is None else row["action"] for row in line] for line in rows]
            truth["action"] = np.array(actions, dtype=np.float64)
            rollouts.append(truth)
        return rollouts

    def expected(self, k: int) -> dict:
        """The batch of rollout k as it should be, valid rows only, in order of time and environment."""
        truth, agent, args = self.truth[k], self.updates[k]["agent"], self.args
        both = torch.tensor(np.concatenate([truth["obs"], truth["next_obs"][-1:]]), dtype=torch.float32)
        with torch.no_grad():
            x = agent.normalize(both)
            values = agent.get_value(x).double().numpy()
        dones = np.maximum(truth["terminated"], truth["truncated"])
        advantages = reference_gae(truth["reward"], values, truth["terminated"], dones, args.gamma, args.gae_lambda)
        valid = truth["valid"]
        return {"x": x[:-1].double().numpy()[valid], "action": truth["action"][valid], "value": values[:-1][valid],
                "advantage": advantages[valid], "target": (advantages + values[:-1])[valid]}  # fmt: skip

    def rows(self, k: int) -> np.ndarray:
        """For each expected row the row of the file's batch with the same x, -1 where there is none."""
        ours, batch = self.expected(k)["x"], self.updates[k]["batch"]["x"].double().numpy()
        distance = np.abs(ours[:, None] - batch[None]).max(-1)
        return np.where(distance.min(1) < 1e-4, distance.argmin(1), -1)


def reference_gae(rewards, values, terminateds, dones, gamma: float, gae_lambda: float) -> np.ndarray:
    """Advantages (T, N) in float64 by the sum of arXiv:1506.02438 equation 16, not by its recursion."""
    deltas = rewards + gamma * values[1:] * (1 - terminateds) - values[:-1]
    advantages = np.zeros_like(deltas)
    for t, n in np.ndindex(*deltas.shape):
        weight = 1.0
        for later in range(t, len(deltas)):
            advantages[t, n] += weight * deltas[later, n]
            weight *= gamma * gae_lambda * (1 - dones[later, n])
    return advantages


# ---- exact checks --------------------------------------------------------------------------------------------------

CHECKS = {}  # name -> (function, section of the file, the likely mistake)


def check(section: str, hint: str):
    """Registers a check. It returns (measured, expected, passed) and, where it knows better, another hint."""

    def register(function):
        CHECKS[function.__name__.replace("_", "-")] = function, section, hint
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


@check("train", "the file does not run: a plain run on a small environment shows the same error")
def trains(subject: Subject):
    """The file trains on a small environment and returns a summary."""
    trace = subject.trace
    return f"{len(trace.updates)} updates", "some", len(trace.updates) > 2


@check("compute_gae", "the advantages are not those of equation 16")
def gae(subject: Subject):
    """compute_gae on random rewards, values and ends, against the sum of equation 16 in float64."""
    module, generator = subject.load(), torch.Generator().manual_seed(subject.seed)
    T, N, gamma, lam = 16, 8, 0.9, 0.6
    rewards, values = torch.randn(T, N, generator=generator), torch.randn(T + 1, N, generator=generator)
    kind = torch.randint(0, 6, (T, N), generator=generator)
    terminateds, dones = (kind == 0).float(), (kind < 2).float()
    ours = module.compute_gae(rewards, values, terminateds, dones, gamma, lam).double().numpy()
    r, v, te, do = (tensor.double().numpy() for tensor in (rewards, values, terminateds, dones))
    error = largest(ours, reference_gae(r, v, te, do, gamma, lam))
    none, previous = np.zeros_like(do), np.concatenate([np.zeros((1, N)), do[:-1]])
    mistakes = {
        "the recursion runs on over the ends of episodes: no mask of `done`": (r, v, te, none, gamma, lam),
        "no episode end reaches the advantages": (r, v, none, none, gamma, lam),
        "a time limit is treated as a terminal state": (r, v, do, do, gamma, lam),
        "a terminal state is bootstrapped": (r, v, none, do, gamma, lam),
        "the trace runs on over time limits": (r, v, te, te, gamma, lam),
        "gamma and lambda are swapped": (r, v, te, do, lam, gamma),
        "lambda is not used": (r, v, te, do, gamma, 1.0),
        "gamma is missing from the trace": (r, v, te, do, gamma, lam / gamma),
        "`done` acts one step late": (r, v, te, previous, gamma, lam),
        "`terminated` acts one step late": (r, v, np.concatenate([np.zeros((1, N)), te[:-1]]), do, gamma, lam),
    }
    hints = [text for text, case in mistakes.items() if largest(ours, reference_gae(*case)) < 1e-3]
    wrong_sign = largest(-ours, reference_gae(r, v, te, do, gamma, lam)) < 1e-3
    return *close(error), (["the sign of the advantage"] * wrong_sign + hints + [None])[0]


def log_slope(agent, u: torch.Tensor) -> torch.Tensor:
    """log |d to_env(u) / du|, summed over dimensions, by differentiating to_env in float64."""
    agent = copy.deepcopy(agent).double()
    with torch.enable_grad():
        u = u.double().requires_grad_()
        return torch.autograd.grad(agent.to_env(u).sum(), u)[0].clamp(min=1e-300).log().sum(-1)


@check("Agent", "log-probability or entropy is not that of the distribution the actions are drawn from")
def density(subject: Subject):
    """The density of two-dimensional actions must integrate to 1, and to the entropy."""
    module, worst, where = subject.load(), 0.0, ""
    cases = [{"distribution": name} for name in getattr(module, "NOISES", {"": 0})]
    cases += [case | {"squash": True} for case in cases]
    for case in cases:
        agent = subject.agent(module, subject.args(module, **case))
        agent.actor_logstd.data = torch.tensor([0.2, -0.4])
        reach = 7 if case["distribution"] == "normal" else 18
        axis = torch.linspace(-reach, reach, 700)
        grid = torch.cartesian_prod(axis, axis)
        with torch.no_grad():
            x = torch.tensor([[0.3, -0.2, 0.5]])
            grid = grid + agent.actor_mean(x)
            logprob, entropy = agent.get_action(x.expand(len(grid), -1), grid)[1:]
            if logprob.shape != (len(grid),):
                return (
                    f"log-probabilities {tuple(logprob.shape)}",
                    f"({len(grid)},)",
                    False,
                    "sum over action dimensions",
                )
            slope = log_slope(agent, grid) if case.get("squash") else torch.zeros(())
            weight = (logprob + slope).double().exp() * float((axis[1] - axis[0]) ** 2)
            mass, ours = float(weight.sum()), float(entropy.mean())
            theirs = float(-(weight * logprob.clamp(min=-1e4)).sum())
        error = max(abs(mass - 1), abs(ours - theirs))
        if error > worst:
            worst, where = error, f" ({case['distribution']}{', squash' * ('squash' in case)}: mass {mass:.3f})"
    measured, expected, passed = close(worst, 3e-2)
    return measured + where, expected, passed


@check("Agent", "actions are not drawn from the distribution whose log-probability is reported")
def sampling(subject: Subject):
    """Minus the mean log-probability of many draws is the entropy."""
    module, worst = subject.load(), 0.0
    for name in getattr(module, "NOISES", {"": 0}):
        agent = subject.agent(module, subject.args(module, distribution=name))
        agent.actor_logstd.data = torch.tensor([0.2, -0.4])
        with torch.no_grad():
            x = torch.tensor([[0.3, -0.2, 0.5]]).expand(200_000, -1)
            action, logprob, entropy = agent.get_action(x)
            logprob = agent.get_action(x, action)[1] if logprob is None else logprob
        worst = max(worst, abs(float(logprob.mean() + entropy.mean())))
        drawn = action.std(0) / {"normal": 1, "laplace": 2**0.5, "gumbel": math.pi / 6**0.5}.get(name, 1)
        worst = max(worst, float((drawn.log() - agent.actor_logstd).abs().max()))
    return close(worst, 3e-2)


@check("Agent", "what the environment gets leaves the action space, or is not the clipped or squashed action")
def bounds(subject: Subject):
    """Actions from -3 to 3 through to_env, clipped and squashed to [-0.5, 0.8]."""
    module, worst = subject.load(), 0.0
    space = box(2, -0.5, 0.8)
    action = torch.linspace(-3, 3, 601)[:, None].expand(-1, 2)
    for squash in (False, True):
        agent = subject.agent(module, subject.args(module, squash=squash), action_space=space)
        squashed = -0.5 + 1.3 * (action.tanh() + 1) / 2
        worst = max(worst, largest(agent.to_env(action), squashed if squash else action.clamp(-0.5, 0.8)))
    return close(worst)


@check("Agent", "normalize is not (obs - mean) / deviation clipped to +-10, or it writes into its input")
def normaliser(subject: Subject):
    """Of observations far and near, by statistics of the probe's own; the input stays as it is."""
    module = subject.load()
    agent = subject.agent(module, subject.args(module))
    agent.obs_rms.mean += torch.tensor([3.0, -2.0, 0.5])
    agent.obs_rms.var += torch.tensor([8.0, -0.75, 99.0])
    obs = 30 * torch.randn(200, 3)
    kept, mean, var = obs.clone(), agent.obs_rms.mean.double(), agent.obs_rms.var.double()
    theirs = ((obs.double() - mean) / (var + 1e-8).sqrt()).clamp(-10, 10)
    error = largest(agent.normalize(obs), theirs)
    untouched = torch.equal(obs, kept)
    hint = None if untouched else "normalize writes into its input: stored observations change"
    return f"error {error:.1e}", "below 1e-03", error < 1e-3 and untouched, hint


@check("Agent", "the scale of the action is clamped or transformed: its parameter loses its effect")
def scale(subject: Subject):
    """The entropy rises by 1 for each dimension and each 1 that the log of the scale rises by."""
    module, found = subject.load(), []
    agent, x = subject.agent(module, subject.args(module)), torch.randn(8, 3)
    for value in (-2.0, 0.0, 1.0):
        agent.actor_logstd.data.fill_(value)
        found.append(float(agent.get_action(x)[2].mean()) - value * agent.actor_logstd.numel())
    return close(max(found) - min(found))


@check("Agent", "RPO's noise: z ~ U(-alpha, alpha) on the location, new for each row and dimension, in the update only")
def rpo_noise(subject: Subject):
    """At the location itself the squares of z can be read off the log-probability: 2 alpha^2 / 3 on the mean."""
    module, alpha = subject.load(), 0.4
    if not hasattr(module.Args, "rpo_alpha"):
        return "no --rpo-alpha", "nothing to check", True
    noisy, plain = (
        subject.agent(module, subject.args(module, rpo_alpha=a, rpo_perturb_rollout=False)) for a in (alpha, 0.0)
    )
    x = torch.tensor([[0.3, -0.2, 0.5]]).expand(100_000, -1)
    with torch.no_grad():
        same = []
        for agent in (noisy, plain):
            agent.actor_logstd.zero_()
            torch.manual_seed(subject.seed)
            same.append(agent.get_action(x[:100])[0])
        location = plain.actor_mean(x)
        squares, beside = (
            2 * (plain.get_action(x, action)[1] - noisy.get_action(x, action)[1]) for action in (location, location + 1)
        )  # sums over the two dimensions of z^2, and of z^2 - 2 z
    ratio, top = float(squares.mean() / (2 * alpha**2 / 3)), float(squares.max())
    spread, middle = float(squares.std() / (alpha**2 * (8 / 45) ** 0.5)), float((squares - beside).mean() / 4)
    acting = "equal" if torch.equal(*same) else "noisy"
    passed = max(abs(ratio - 1), abs(spread - 1), abs(middle)) < 0.03 and top <= 2 * alpha**2 + 1e-4
    measured = f"z^2 {ratio:.2f}, spread {spread:.2f}, z {middle:.2f}, acting {acting}"
    return measured, "1.00, 1.00, 0.00, equal", passed and acting == "equal"


def minibatch(subject: Subject, module, args, rows: int = 64) -> tuple:
    """An agent, and a minibatch by name: actions near the policy, ratios on both sides of the clip range."""
    agent = subject.agent(module, args)
    with torch.no_grad():
        x = torch.randn(rows, 3)
        action, logprob, _ = agent.get_action(x)
        value = agent.get_value(x)
        noise = 0.5 * torch.randn(5, rows)
        advantage, target, old_value = noise[0], value + 2 * noise[1] + 1, value + noise[2]
    return agent, {"x": x, "action": action, "old_logprob": logprob + 0.4 * noise[3], "advantage": advantage,
                   "target": target, "old_value": old_value}  # fmt: skip


def loss_of(subject: Subject, module, agent, args, batch: dict):
    return getattr(module, subject.loss_name)(agent, args, **batch)[0]


def slopes(subject: Subject, module, agent, args, batch: dict, wanted: str) -> torch.Tensor:
    """d loss / d logprob or d loss / d value of every row, by moving that row's output of the agent."""
    shift = torch.zeros(len(batch["x"]), requires_grad=True)
    get_action, get_value = agent.get_action, agent.get_value

    def moved_action(x, action=None):
        action, logprob, entropy = get_action(x, action)
        return action, logprob + (shift if wanted == "logprob" else 0), entropy

    def moved_value(x):
        return get_value(x) + (shift if wanted == "value" else 0)

    with patch.object(agent, "get_action", moved_action), patch.object(agent, "get_value", moved_value):
        loss = loss_of(subject, module, agent, args, batch)
    slope = torch.autograd.grad(loss, shift, allow_unused=True)[0]
    return torch.zeros(len(shift)).double() if slope is None else slope.double()


@check("update", "a broadcast such as (n,) - (n, 1): every row meets every other")
def rows_are_independent(subject: Subject):
    """The loss of a minibatch is the mean of the losses of its rows, when advantages are not standardised."""
    module = subject.load()
    args = subject.args(module, norm_adv=False)
    agent, batch = minibatch(subject, module, args)
    with torch.no_grad():
        whole = float(loss_of(subject, module, agent, args, batch))
        rows = [{name: tensor[i : i + 1] for name, tensor in batch.items()} for i in range(len(batch["x"]))]
        single = float(np.mean([float(loss_of(subject, module, agent, args, row)) for row in rows]))
    return close(abs(whole - single), 1e-4)


@check("update", "the clipped surrogate: its sign, min taken for max, or the clip on the wrong side")
def clipping(subject: Subject):
    """Slope of the loss by each row's log-probability: -ratio x advantage, and 0 where clipping must hold it."""
    module = subject.load()
    args = subject.args(module, norm_adv=False, ent_coef=0.0)
    agent, batch = minibatch(subject, module, args, 256)
    with torch.no_grad():
        ratio = (agent.get_action(batch["x"], batch["action"])[1] - batch["old_logprob"]).exp().double()
    advantage, eps = batch["advantage"].double(), args.clip_coef
    held = ((advantage > 0) & (ratio > 1 + eps)) | ((advantage < 0) & (ratio < 1 - eps))
    theirs = torch.where(held, 0, -ratio * advantage) / len(ratio)
    ours = slopes(subject, module, agent, args, batch, "logprob")
    scale = float(theirs.abs().max())
    hints = {
        "the sign of the policy loss: it lowers good actions": -theirs,
        "the ratio is not clipped": -ratio * advantage / len(ratio),
        "max in place of min: the clip holds the wrong side": torch.where(
            ((advantage < 0) & (ratio > 1 + eps)) | ((advantage > 0) & (ratio < 1 - eps)), 0, -ratio * advantage
        )
        / len(ratio),
        "no gradient reaches the policy": 0 * theirs,
    }
    hint = next((text for text, other in hints.items() if largest(ours / scale, other / scale) < 1e-3), None)
    return *close(largest(ours / scale, theirs / scale)), hint


def value_slopes(value, target, centre, eps: float) -> torch.Tensor:
    """Slope by `value` of half the larger of the squared errors of value and of value clipped around `centre`."""
    inside = centre + (value - centre).clamp(-eps, eps)
    plain = (value - target).abs() >= (inside - target).abs()
    return torch.where(plain, value - target, (inside - target) * ((value - centre).abs() < eps))


@check("update", "the value loss, or its clipping, which must be around the old value")
def value_loss(subject: Subject):
    """Slope of the loss by each row's value, without and with --clip-vloss."""
    module, worst, hint = subject.load(), 0.0, None
    for clip in (False, True):
        args = subject.args(module, norm_adv=False, clip_vloss=clip)
        agent, batch = minibatch(subject, module, args, 256)
        with torch.no_grad():
            value = agent.get_value(batch["x"]).double()
        target, old, eps = batch["target"].double(), batch["old_value"].double(), args.clip_coef
        theirs = value_slopes(value, target, old, eps if clip else math.inf)
        around_target = value_slopes(value, target, target, eps)
        theirs, around_target = (args.vf_coef * slope / len(value) for slope in (theirs, around_target))
        ours, scale = slopes(subject, module, agent, args, batch, "value"), float(theirs.abs().max())
        worst = max(worst, largest(ours / scale, theirs / scale))
        if ours.abs().max() < 1e-12:
            hint = "no gradient reaches the value network"
        elif largest(-ours / scale, theirs / scale) < 1e-3:
            hint = "the sign of the value loss"
        elif clip and largest(ours / scale, around_target / scale) < 1e-3:
            hint = "values are clipped around the target in place of the old value"
    return *close(worst), hint


@check("update", "the sign or the weight of the entropy bonus")
def entropy_bonus(subject: Subject):
    """With --ent-coef c the loss is lower by c times the entropy."""
    module = subject.load()
    args, plain = subject.args(module, ent_coef=0.3), subject.args(module, ent_coef=0.0)
    agent, batch = minibatch(subject, module, args)
    with torch.no_grad():
        entropy = float(agent.get_action(batch["x"], batch["action"])[2].mean())
        change = float(loss_of(subject, module, agent, args, batch) - loss_of(subject, module, agent, plain, batch))
    return f"loss changes by {change:+.3f}", f"{-0.3 * entropy:+.3f}", abs(change + 0.3 * entropy) < 1e-3


@check("update", "advantages are standardised over the wrong axis, or not at all")
def advantage_normalisation(subject: Subject):
    """With --norm-adv the loss does not change when all advantages are scaled and shifted; without it, it does."""
    module, changes = subject.load(), {}
    for norm in (True, False):
        args = subject.args(module, norm_adv=norm)
        agent, batch = minibatch(subject, module, args)
        other = batch | {"advantage": 7 * batch["advantage"] + 3}
        with torch.no_grad():
            losses = [float(loss_of(subject, module, agent, args, b)) for b in (batch, other)]
        changes[norm] = abs(losses[1] - losses[0])
    measured = f"loss changes by {changes[True]:.1e} with --norm-adv, {changes[False]:.1e} without"
    return measured, "below 1e-3 with, above without", changes[True] < 1e-3 < changes[False]


@check("train", "log-probabilities are stale, of another action, or under other statistics than those of the rollout")
def first_ratio(subject: Subject):
    """In the first minibatch of each update nothing has changed since the rollout: the ratio is 1."""
    worst = 0.0
    for record in subject.trace.updates:
        first = record["minibatches"][0]
        if first["logprob"].shape != first["old_logprob"].shape:
            shapes = f"{tuple(first['logprob'].shape)} - {tuple(first['old_logprob'].shape)}"
            return f"log-probabilities {shapes}", "the same shape", False, "a broadcast: the ratio becomes a matrix"
        worst = max(worst, float(((first["logprob"] - first["old_logprob"]).exp() - 1).abs().max()))
    return f"ratio 1 +- {worst:.1e}", "1 +- 1e-03", worst < 1e-3


@check("train", "a tensor of the batch has another shape: it will broadcast")
def shapes(subject: Subject):
    """Log-probabilities, advantages, targets and old values of every minibatch have the shape (minibatch,)."""
    wrong = set()
    for record in subject.trace.updates:
        for mb in record["minibatches"]:
            size = len(mb["x"])
            for name in ("logprob", "old_logprob", "advantage", "target", "old_value"):
                if mb[name].shape != (size,):
                    wrong.add(f"{name} {tuple(mb[name].shape)} for {size} rows")
    return "; ".join(sorted(wrong)) or "all (minibatch,)", "all (minibatch,)", not wrong


@check("train", "reset rows, the step after an episode's end, reach the loss, or valid rows are lost")
def reset_rows(subject: Subject):
    """The batch holds each valid step once, and no reset row."""
    trace, extra, lost = subject.trace, 0, 0
    for k, record in enumerate(trace.updates):
        places = trace.rows(k)
        lost += int((places < 0).sum())
        extra += len(record["batch"]["x"]) - len(set(places.tolist()) - {-1})
    return f"{extra} rows too many, {lost} lost", "0, 0", extra == lost == 0


def batch_error(subject: Subject, name: str, key: str) -> float:
    trace, worst = subject.trace, 0.0
    for k, record in enumerate(trace.updates):
        places = trace.rows(k)
        if (places < 0).all():
            return math.inf
        ours = record["batch"][name].double().numpy()[places[places >= 0]]
        worst = max(worst, largest(ours, trace.expected(k)[key][places >= 0]))
    return worst


@check("train", "the stored action is not the one that was drawn in this state")
def stored_actions(subject: Subject):
    """Clipped, the stored action is what the environment got; unclipped, it leaves the bounds now and then."""
    trace, worst, beyond = subject.trace, 0.0, 0
    for k, record in enumerate(trace.updates):
        places = trace.rows(k)
        if (places < 0).any():
            return "rows are missing", "a row for each step", False, "see reset-rows"
        action = record["batch"]["action"].double().numpy()[places]
        worst = max(worst, largest(np.clip(action, -0.5, 0.8), trace.expected(k)["action"]))
        beyond += int(((action < -0.5001) | (action > 0.8001)).any(1).sum())
    hint = "the clipped action is stored: its log-probability is not that of the draw" if worst < 1e-3 else None
    return f"error {worst:.1e}, {beyond} beyond the bounds", "below 1e-03, some", worst < 1e-3 and beyond > 0, hint


@check("train", "old values are not those of the rollout's states")
def stored_values(subject: Subject):
    """Old values of the batch against the agent's own values of the states in the protocol."""
    return close(batch_error(subject, "old_value", "value"))


@check("train", "what reaches compute_gae is not what the environments gave")
def gae_inputs(subject: Subject):
    """Rewards, values, terminateds and dones of the whole rollout; reset rows do not count."""
    trace, errors = subject.trace, dict.fromkeys(("rewards", "values", "last value", "terminateds", "dones"), 0.0)
    late = 0.0
    for k, (call, truth) in enumerate(zip(trace.gae_calls, trace.truth)):
        valid, agent = truth["valid"], trace.updates[k]["agent"]
        dones = np.maximum(truth["terminated"], truth["truncated"])
        both = torch.tensor(np.concatenate([truth["obs"], truth["next_obs"][-1:]]), dtype=torch.float32)
        with torch.no_grad():
            values = agent.get_value(agent.normalize(both)).double().numpy()
        pairs = {"rewards": (call["rewards"], truth["reward"]), "dones": (call["dones"], dones)}
        pairs |= {"terminateds": (call["terminateds"], truth["terminated"]), "values": (call["values"], values)}
        for name, (ours, theirs) in pairs.items():
            here = valid  # what stands in a reset row matters to nothing, but its state is the end of the row before
            if name == "values":
                here = np.concatenate([valid, valid[-1:]]) | np.concatenate([valid[:1], valid])
            same = ours.shape == theirs.shape
            errors[name] = max(errors[name], largest(ours[here], theirs[here]) if same else math.inf)
        errors["last value"] = max(errors["last value"], largest(call["values"][-1], values[-1]))
        late = max(late, largest(call["dones"][1:], dones[:-1]))
    hints = {"terminateds": "a time limit is treated as a terminal state, or ends are stored in the wrong row",
             "dones": "`done` is cleared before it is stored, or stored a row " + ("late" if late < 1e-6 else "off"),
             "last value": "the last value is that of another state, such as the one after an automatic reset",
             "rewards": "rewards are changed, or stored in the wrong row",
             "values": "values are of other states: the true final observation is lost"}  # fmt: skip
    bad = [name for name, error in errors.items() if not error < 1e-3]
    hint = hints[bad[-1]] if bad else None
    return "wrong: " + ", ".join(bad) if bad else "all agree", "all agree", not bad, hint


@check("train", "advantages or targets are not those of the rollout")
def advantages(subject: Subject):
    """Of every valid row, against float64, with --bootstrap-truncation and without normalised rewards."""
    ours, theirs = (batch_error(subject, name, name) for name in ("advantage", "target"))
    hint = "the target is not advantage + old value" if ours < 1e-3 < theirs else None
    return *close(max(ours, theirs)), hint


@check("train", "rewards are not divided by the deviation of the discounted return of the rows so far")
def reward_normalisation(subject: Subject):
    """With --norm-reward: rewards over the deviation of all discounted returns so far, clipped to +-10."""
    trace = Trace(subject, norm_reward=True)
    discounted, seen, worst = np.zeros(trace.args.num_envs), [], 0.0
    for call, truth in zip(trace.gae_calls, trace.truth):
        for t, valid in enumerate(truth["valid"]):
            discounted = discounted * trace.args.gamma * valid + truth["reward"][t]
            seen.extend(discounted[valid])
        theirs = np.clip(truth["reward"] / np.sqrt(np.var(seen) + 1e-8), -10, 10)
        worst = max(worst, largest(call["rewards"][truth["valid"]], theirs[truth["valid"]]))
    return close(worst)


@check("train", "the normaliser takes in reset rows, forgets rows, or changes before the update has used it")
def observation_statistics(subject: Subject):
    """Mean, variance and count of all valid observations up to the last rollout, each taken in after its update."""
    trace, worst, count = subject.trace, 0.0, 0
    seen = np.zeros((0, 3))
    for record, truth in zip(trace.updates, trace.truth):
        rms = record["agent"].obs_rms
        mean, var = (seen.mean(0), seen.var(0)) if len(seen) else (np.zeros(3), np.ones(3))
        worst = max(worst, largest(rms.mean, mean), largest(rms.var, var))
        count = max(count, abs(int(rms.count) - len(seen)))
        seen = np.concatenate([seen, truth["obs"][truth["valid"]]])
    return f"error {worst:.1e}, count off by {count}", "below 1e-03, 0", worst < 1e-3 and count == 0


@check("update", "rows are left out, repeated or not shuffled; or the number of updates is wrong")
def minibatches(subject: Subject):
    """Each epoch passes over every row, in a new order, in --num-minibatches parts."""
    trace, wrong = subject.trace, ""
    for record in trace.updates:
        parts, per_epoch = record["minibatches"], trace.args.num_minibatches
        if len(parts) != per_epoch * trace.args.update_epochs:
            wrong = f"{len(parts)} minibatches in place of {per_epoch} x {trace.args.update_epochs}"
            break
        orders = []
        for epoch in range(trace.args.update_epochs):
            x = torch.cat([part["x"] for part in parts[epoch * per_epoch : (epoch + 1) * per_epoch]])
            orders.append((x[:, None] - record["batch"]["x"][None]).abs().amax(-1).argmin(1).tolist())
            if set(orders[-1]) != set(range(len(record["batch"]["x"]))):
                wrong = "an epoch leaves rows out"
            for name, tensor in record["batch"].items():
                part = torch.cat([mb[name] for mb in parts[epoch * per_epoch : (epoch + 1) * per_epoch]])
                if not torch.equal(part, tensor[orders[-1]]):
                    wrong = wrong or f"{name} of other rows"
        if orders[0] == orders[-1]:
            wrong = wrong or "the same order in every epoch"
        if orders[0][:20] == list(range(20)):
            wrong = wrong or "not shuffled"
    return wrong or "every row, shuffled", "every row, shuffled", not wrong


@check("update", "the gradient is not clipped to --max-grad-norm")
def gradient_clipping(subject: Subject):
    """With --max-grad-norm 0.001 no step sees a longer gradient."""
    norms = [norm for record in Trace(subject, max_grad_norm=1e-3).updates for norm in record["norms"]]
    return f"largest norm {max(norms, default=math.nan):.1e}", "1.0e-03", bool(norms) and max(norms) < 1.01e-3


@check("update", "gradients pile up from one minibatch to the next: zero_grad is missing or in the wrong place")
def fresh_gradients(subject: Subject):
    """With a learning rate of 0 and one minibatch of everything, every step sees the same gradient."""
    module, norms = subject.load(), []
    args = subject.args(module, num_envs=4, num_steps=16, num_minibatches=1, update_epochs=4, max_grad_norm=1e9)
    agent, batch = minibatch(subject, module, args, 64)
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.0)
    parameters = list(agent.parameters())
    optimizer.register_step_pre_hook(lambda *_: norms.append(float(sum(p.grad.norm() ** 2 for p in parameters) ** 0.5)))
    module.update(agent, optimizer, args, tuple(batch.values()))
    measured = ", ".join(f"{norm:.3g}" for norm in norms)
    return f"norms {measured}", "all the same", max(norms) / min(norms) < 1.01


@check("Agent", "a part of the log-probability, the entropy or the value is detached from the gradient")
def derivatives(subject: Subject):
    """Of the mean log-probability and of the value by every parameter: autograd against differences, in float64."""
    module, worst = subject.load(), 0.0
    agent = subject.agent(module, subject.args(module)).double()
    x, action = torch.randn(32, 3).double(), torch.randn(32, 2).double()

    def outputs() -> torch.Tensor:
        return torch.stack([agent.get_action(x, action)[1].mean(), agent.get_value(x).mean()])

    for parameter in agent.parameters():
        direction = torch.randn_like(parameter)
        direction /= direction.norm()
        ours = [torch.autograd.grad(output, parameter, retain_graph=True, allow_unused=True)[0] for output in outputs()]
        ours = [0.0 if gradient is None else float((gradient * direction).sum()) for gradient in ours]
        with torch.no_grad():
            parameter += 1e-5 * direction
            above = outputs()
            parameter -= 2e-5 * direction
            theirs = (above - outputs()) / 2e-5
            parameter += 1e-5 * direction
        worst = max(worst, largest(ours, theirs))
    return close(worst, 1e-4)


@check("Agent", "a parameter is outside the loss or outside the optimiser")
def gradients_reach_everything(subject: Subject):
    """Every parameter has a gradient, and has changed by the end of the run."""
    trace = subject.trace
    names = [name for name, _ in trace.updates[0]["agent"].named_parameters()]
    missing = [name for name in names if name not in trace.learned]
    first, last = trace.updates[0]["agent"], trace.updates[-1]["after"]
    still = [name for name, p in last.named_parameters() if torch.equal(p, dict(first.named_parameters())[name])]
    missing = sorted({*missing, *still})
    return "not trained: " + ", ".join(missing) if missing else "all trained", "all trained", not missing


@check("train", "the learning rate does not fall linearly to 0, or not every parameter has it")
def annealing(subject: Subject):
    """The learning rate of every parameter in each update: linear to 0, or constant with --no-anneal-lr."""
    trace, args, worst, step = subject.trace, subject.trace.args, 0.0, 0
    for record, truth in zip(trace.updates, trace.truth):
        right = args.learning_rate * (1 - step / args.total_timesteps)
        worst = max(worst, *(abs(lr / right - 1) for lr in record["lrs"]))
        step += int(truth["valid"].sum())
    constant = {lr for record in Trace(subject, anneal_lr=False).updates for lr in record["lrs"]}
    passed = worst < 1e-3 and constant == {args.learning_rate}
    hint = None
    if any(len(set(record["lrs"])) > 1 for record in trace.updates):
        hint = "parameters have different learning rates; one that is far too small never learns"
    return f"error {worst:.1e}; without --anneal-lr {sorted(constant)}", f"0; [{args.learning_rate}]", passed, hint


@check("train", "the optimiser is made anew in between, decays the weights, or is not the one in the checkpoint")
def optimiser(subject: Subject):
    """Its count of steps goes on from update to update and stands in the checkpoint; it has no weight decay."""
    trace, steps, wrong = subject.trace, 0, []
    for record in trace.updates:
        wrong += ["made anew"] * (record["steps"] != ({steps} if steps else set()))
        wrong += ["weight decay"] * any(record["decay"])
        steps += len(record["norms"])
    saved = torch.load(trace.run_dir / "checkpoint.pt", weights_only=True).get("optimizer", {}).get("state", {})
    wrong += ["another in the checkpoint"] * ({int(state["step"]) for state in saved.values()} != {steps})
    return ", ".join(dict.fromkeys(wrong)) or "one, kept", "one, kept", not wrong


@check("train", "a logged loss is not the mean over the minibatches of what its name says")
def logged_losses(subject: Subject):
    """losses/* and charts/learning_rate of every update, worked out again from its minibatches."""
    trace, step, errors = Trace(subject, norm_adv=False, learning_rate=0.02, max_grad_norm=100.0), 0, {}
    for record, truth in zip(trace.updates, trace.truth):
        step += int(truth["valid"].sum())
        for name, value in losses_of(record, trace.args.clip_coef).items():
            if name in trace.scalars:  # what a file does not log cannot be wrong
                ours = dict(trace.scalars[name]).get(step, math.inf)
                errors[name] = max(errors.get(name, 0.0), abs(ours - value) / max(0.01, abs(value)))
    bad = sorted(name for name, error in errors.items() if not error < 0.01)
    return "wrong: " + ", ".join(bad) if bad else "all agree", "all agree", not bad


def losses_of(record: dict, clip_coef: float) -> dict[str, float]:
    """What an update should log, from its minibatches, with advantages that are not standardised."""
    lists = {name: [] for name in ("policy_loss", "value_loss", "entropy", "approx_kl", "clipfrac")}
    for mb in record["minibatches"]:
        mb = {name: tensor.double() for name, tensor in mb.items()}
        logratio, advantage = mb["logprob"] - mb["old_logprob"], mb["advantage"]
        ratio = logratio.exp()
        clipped = ratio.clamp(1 - clip_coef, 1 + clip_coef)
        lists["policy_loss"].append(-torch.min(ratio * advantage, clipped * advantage).mean())
        lists["value_loss"].append(0.5 * ((mb["value"] - mb["target"]) ** 2).mean())
        lists["entropy"].append(mb["entropy"].mean())
        lists["approx_kl"].append((ratio - 1 - logratio).mean())
        lists["clipfrac"].append(((ratio - 1).abs() > clip_coef).double().mean())
    target, old_value = record["batch"]["target"], record["batch"]["old_value"]
    means = {f"losses/{name}": float(torch.stack(values).mean()) for name, values in lists.items()}
    means["losses/explained_variance"] = 1 - float((target - old_value).var() / target.var())
    return means | {"charts/learning_rate": record["lrs"][0]}


@check("update", "--target-kl must end the epochs after the first whose last minibatch has a larger approximate KL")
def target_kl(subject: Subject):
    """With --target-kl 0.0001 and 5 epochs: the number of minibatches of every update."""
    trace, wrong, cut = Trace(subject, target_kl=1e-4, update_epochs=5), 0, 0
    per_epoch = trace.args.num_minibatches
    for record in trace.updates:
        parts = record["minibatches"]
        for epoch in range(1, 6):
            last = parts[min(epoch * per_epoch, len(parts)) - 1]
            logratio = last["logprob"].double() - last["old_logprob"].double()
            if (logratio.exp() - 1 - logratio).mean() > 1e-4:
                break
        wrong, cut = wrong + (len(parts) != epoch * per_epoch), cut + (epoch < 5)
    return f"{wrong} of {len(trace.updates)} updates wrong, {cut} cut short", "0 wrong, some cut", wrong == 0 < cut


@check("train", "evaluations on the way (--eval-frequency) disturb the training, or play other episodes each time")
def evaluation_on_the_way(subject: Subject):
    """Same weights in the end as without them, same seeds each time, figures as logged and saved."""
    trace, plain, wrong = Trace(subject, eval_frequency=150), subject.trace, []
    seeds = {tuple(env.seeds[0] for env in envs if env.seeds) for envs, _ in trace.envs[-len(trace.evaluations) :]}
    if len(trace.evaluations) < 3 or len(seeds) != 1:
        wrong.append("seeds, or number of evaluations")
    ours, theirs = (run.updates[-1]["after"].state_dict() for run in (trace, plain))
    if not all(torch.equal(ours[name], theirs[name]) for name in ours):
        wrong.append("training is disturbed")
    last, summary = trace.evaluations[-1][2], trace.summary
    if len(last) != trace.args.eval_episodes:
        wrong.append(f"{len(last)} episodes for {trace.args.eval_episodes}")
    logged = [value for _, value in trace.scalars.get("eval/episodic_return", [])]
    saved = summary["eval_return_mean"], summary["eval_return_std"]
    errors = largest(logged, [np.mean(e[2]) for e in trace.evaluations]), largest(saved, (np.mean(last), np.std(last)))
    wrong += ["logged or saved figures"] * (max(errors) > 1e-3)
    return "; ".join(wrong) or "as it should be", "as it should be", not wrong


@check("train", "--resume forgets something, or starts again in the environments of the beginning")
def resuming(subject: Subject):
    """A finished run goes on to 800 steps: weights, statistics, optimiser, generator, and new environments."""
    first, wrong = Trace(subject), []
    saved = torch.load(first.run_dir / "checkpoint.pt", weights_only=True)
    after = Trace(subject, resume=str(first.run_dir), runs_dir=first.args.runs_dir, total_timesteps=800)
    record, ended = after.updates[0], first.evaluations[-1][1]
    pairs = zip(record["agent"].parameters(), ended.parameters())
    wrong += ["weights"] * (not all(torch.equal(a, b) for a, b in pairs))
    start, end = (dict(agent.named_buffers()) for agent in (record["agent"], ended))
    same = all(torch.equal(start[name], end[name]) for name in start if name.startswith("obs_rms"))
    wrong += ["statistics"] * (not same or bool(start["return_rms.count"] <= end["return_rms.count"]))
    steps = {int(state["step"]) for state in saved["optimizer"]["state"].values()}
    wrong += ["optimiser"] * (record["steps"] != steps)
    states = [state for state in saved["random_states"] if torch.is_tensor(state)]
    wrong += ["generator"] * (not any(torch.equal(after.generator, state) for state in states))
    seeds = [{env.seeds[0] for env in trace.train_envs if env.seeds} for trace in (first, after)]
    wrong += ["the same environments again"] * bool(seeds[0] & seeds[1])
    return "lost: " + ", ".join(wrong) if wrong else "all kept", "all kept", not wrong


@check("train", "global_step, the logged returns or lengths are not what the environments paid and counted")
def logging(subject: Subject):
    """Against the environments' protocols: reset rows count nowhere, an episode's end is included."""
    trace, episodes, steps, wrong = subject.trace, [], 0, []
    totals = np.zeros((2, trace.args.num_envs))
    logged = {name: trace.scalars.get(f"charts/episodic_{name}", []) for name in ("return", "length")}
    at = {name: dict(points) for name, points in logged.items()}
    for truth in trace.truth:
        ended = []
        for t, valid in enumerate(truth["valid"]):
            totals += np.stack([truth["reward"][t] * valid, valid])
            for n in np.flatnonzero(np.maximum(truth["terminated"][t], truth["truncated"][t])):
                ended.append(tuple(totals[:, n]))
                totals[:, n] = 0
        steps += int(truth["valid"].sum())
        episodes += ended
        for i, name in enumerate(("return", "length")):
            if ended and not abs(at[name].get(steps, math.nan) - np.mean(ended, axis=0)[i]) < 1e-3:
                wrong.append(f"{name} at step {steps}")
    if trace.summary["global_step"] != steps:
        wrong.append(f"global_step {trace.summary['global_step']} for {steps}")
    last100 = np.mean(episodes[-100:], axis=0)[0]
    if not abs(trace.summary["train_return_last100"] - last100) < 1e-3:
        wrong.append("train_return_last100")
    return "wrong: " + ", ".join(wrong[:3]) if wrong else "all agree", "all agree", not wrong


@check("train", "environments are reset before every rollout, so that episodes are cut without a trace")
def no_resets_between_rollouts(subject: Subject):
    """An environment is reset once at the start, and after that only where an episode has ended."""
    trace, cut = subject.trace, 0
    for env in trace.train_envs:
        for before, row in itertools.pairwise(env.protocol):
            cut += row["reset"] and not (before["terminated"] or before["truncated"])
    return f"{cut} episodes cut", "0", cut == 0


@check("make_envs", "environments share a seed, or evaluation plays with the seeds of training")
def seeds(subject: Subject):
    """Seeds of the environments in training and evaluation, and with another --seed, have none in common."""
    trace = subject.trace
    train, test = (
        [env.seeds[0] if env.seeds else None for env in envs] for envs in (trace.train_envs, trace.eval_envs)
    )
    other = Subject(subject.file, subject.seed + 1).trace.train_envs
    again = {env.seeds[0] if env.seeds else None for env in other}
    wrong = []
    if None in {*train, *test} or len({*train}) < len(train) or len({*test}) < len(test):
        wrong.append("environments with the same seed, or none")
    if {*train} & {*test}:
        wrong.append("evaluation on training seeds")
    if {*train} & again:
        wrong.append("two values of --seed share environments")
    return "; ".join(wrong) or "all different", "all different", not wrong


@check("train", "something draws from a generator that --seed does not set")
def same_seed_twice(subject: Subject):
    """Two runs with one seed end with the same evaluation and the same weights, bit for bit."""
    states = []
    for _ in range(2):
        random.seed(), np.random.seed(), torch.seed()
        module = subject.load()
        args = subject.args(module, rpo_alpha=0.5)
        summary = subject.train(module, args)
        (run,) = Path(args.runs_dir).iterdir()
        weights = torch.load(run / "checkpoint.pt", weights_only=True)["agent"]
        states.append((summary["eval_returns"], summary["train_return_last100"], weights))
    same = states[0][:2] == states[1][:2] and all(torch.equal(states[0][2][k], states[1][2][k]) for k in states[0][2])
    return "equal" if same else "different", "equal", same


@check("evaluate", "evaluation changes the agent: statistics or weights must be frozen")
def evaluation_is_frozen(subject: Subject):
    """Weights and statistics before and after the evaluation are equal."""
    changed = set()
    for before, after, _ in subject.trace.evaluations:
        changed |= {name for name, tensor in after.state_dict().items() if not torch.equal(tensor, before[name])}
    return "changed: " + ", ".join(sorted(changed)) if changed else "unchanged", "unchanged", not changed


@check("evaluate", "not the raw returns of each environment's first episode, played by the policy's mode")
def evaluation_returns(subject: Subject):
    """Returns and actions of the evaluation against the protocol: first episodes, by the policy's mode."""
    trace = subject.trace
    _, agent, ours = trace.evaluations[-1]
    theirs, worst = [], 0.0
    for env in trace.eval_envs:
        total = 0.0
        for row in env.protocol[1:]:
            with torch.no_grad():
                mode = agent.to_env(agent.actor_mean(agent.normalize(torch.from_numpy(row["obs"])[None])))[0]
            worst = max(worst, largest(row["action"], mode))
            total += row["reward"]
            if row["terminated"] or row["truncated"]:
                break
        theirs.append(total)
    error = largest(sorted(ours), sorted(theirs))
    hint = "the actions of the evaluation are not the policy's mode" if worst > 1e-3 > error else None
    return f"returns {error:.1e}, actions {worst:.1e} off", "below 1e-03", max(worst, error) < 1e-3, hint


@check("train", "the checkpoint lacks something the agent needs, or cannot be read as data")
def checkpoint(subject: Subject):
    """Read with weights_only=True into a new agent, it acts and values like the trained one."""
    trace = subject.trace
    file = trace.run_dir / "checkpoint.pt"
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True)["agent"]
        copied = subject.agent(trace.module, trace.args)
        copied.load_state_dict(weights)
    except Exception as error:
        hint = "save tensors and plain data: a pickled module runs code when it is loaded"
        return f"{type(error).__name__}", "loads", False, hint
    final = trace.evaluations[-1][1]
    obs = 3 * torch.randn(100, 3)
    with torch.no_grad():
        pairs = [(a.actor_mean(a.normalize(obs)), a.get_value(a.normalize(obs))) for a in (copied, final)]
    return close(max(largest(*pair) for pair in zip(*pairs)))


# ---- learned checks ------------------------------------------------------------------------------------------------


def learn(subject: Subject, name: str, observations: list[float], **flags) -> tuple[np.ndarray, np.ndarray]:
    """Trains on Probe{name}-v0; the values and the modes, as the environment gets them, at `observations`."""
    module = subject.load()
    settings = {"env_id": f"Probe{name}-v0", "num_envs": 16, "num_steps": 16, "num_minibatches": 4, "update_epochs": 4}
    settings |= {
        "total_timesteps": 20_000,
        "gamma": 0.9,
        "learning_rate": 3e-3,
        "max_grad_norm": 0.5,
        "eval_episodes": 1,
    }
    settings |= {"rpo_alpha": getattr(module.Args, "rpo_alpha", None)}  # the noise is the algorithm: here it is on
    agents, evaluate = [], module.evaluate

    def spy(agent, *a, **k):
        agents.append(agent)
        return evaluate(agent, *a, **k)

    with patch.object(module, "evaluate", spy), patch.object(module, "SummaryWriter", Recorder):
        subject.train(module, subject.args(module, **(settings | flags)))
    with torch.no_grad():
        x = agents[-1].normalize(torch.tensor(observations)[:, None])
        return agents[-1].get_value(x).numpy(), agents[-1].to_env(agents[-1].actor_mean(x)).numpy()[:, 0]


def near(ours, theirs, limit: float) -> tuple[str, str, bool]:
    measured = ", ".join(f"{float(number):.2f}" for number in ours)
    expected = ", ".join(f"{number:.2f}" for number in theirs)
    return measured, f"{expected} +- {limit}", bool(np.max(np.abs(np.array(ours) - theirs)) < limit)


@check("update", "the value network does not learn: its loss, its learning rate, or its targets")
def learns_constant_value(subject: Subject):
    """One step that pays 1: the value is 1."""
    return near(learn(subject, "Constant", [0.0])[0], [1.0], 0.1)


@check("Agent", "the value network does not see the observation of its own row")
def learns_value_of_observation(subject: Subject):
    """One step that pays the observation: the value is the observation."""
    return near(learn(subject, "Shown", [-1.0, 1.0])[0], [-1.0, 1.0], 0.2)


@check("compute_gae", "rewards are not discounted back by gamma over one step")
def learns_discounting(subject: Subject):
    """Two steps, the second pays 1, gamma 0.9: the values are 0.9 and 1."""
    return near(learn(subject, "TwoSteps", [0.0, 1.0])[0], [0.9, 1.0], 0.07)


@check("update", "the policy does not move towards actions with a positive advantage")
def learns_better_action(subject: Subject):
    """One step; the best action is 0.5."""
    return near(learn(subject, "Better", [0.0])[1], [0.5], 0.2)


@check("Agent", "the policy does not see the observation, or actions and advantages of different rows are paired")
def learns_action_of_observation(subject: Subject):
    """One step; the best action is half the observation."""
    return near(learn(subject, "Aim", [-1.0, 1.0])[1], [-0.5, 0.5], 0.2)


@check("train", "a time limit is treated as a terminal state: the value stays far below 1 / (1 - gamma)")
def learns_endless_value(subject: Subject):
    """Pays 1 for ever, cut every 10 steps, gamma 0.9: the value is 10, not 4.1."""
    return near(learn(subject, "Endless", [-1.0, 1.0], total_timesteps=40_000)[0], [10.0, 10.0], 1.0)


@check("compute_gae", "credit is lost over a step, or leaks over a reset into the next episode")
def learns_delayed_reward(subject: Subject):
    """The first of two actions decides what the second step pays."""
    return near(learn(subject, "Delayed", [0.0])[1], [0.5], 0.2)


@check("Agent", "observations are not standardised: large offsets and scales keep the networks from learning")
def learns_behind_an_offset(subject: Subject):
    """The best action is half of what is seen through an offset of 1000 and a scale of 100."""
    return near(learn(subject, "Far", [900.0, 1100.0])[1], [-0.5, 0.5], 0.25)


@check("train", "the normaliser does not follow the observations")
def learns_while_observations_drift(subject: Subject):
    """20,000 one-step episodes in 16 environments drift by 0.012 x 1250 = 15, while the two observations are 2 apart:
    statistics of the beginning would clip both to the same number."""
    return near(learn(subject, "Drift", [15 - 1.0, 15 + 1.0])[1], [-0.5, 0.5], 0.3)


# ---- the command line ----------------------------------------------------------------------------------------------


def run_check(subject: Subject, name: str) -> Result:
    """An error inside a check is a failure of it: the file lacks something, or returns what nobody expects."""
    function, section, hint = CHECKS[name]
    torch.manual_seed(subject.seed), np.random.seed(subject.seed), random.seed(subject.seed)
    torch.set_num_threads(1)
    try:
        measured, expected, passed, *better = function(subject)
        hint = next((text for text in better if text), hint)
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split())
        measured, expected, passed = f"{type(error).__name__}: {message}", "no error", False
    return Result(name, section, measured, expected, bool(passed), "" if passed else hint)


def fail(message: str) -> None:
    print(f"probe.py: {message}", file=sys.stderr)
    raise SystemExit(2)


def open_subject(file: Path, seed: int) -> Subject:
    """The file, if it can be imported and has the functions that the checks call."""
    if not file.is_file():
        fail(f"{file} does not exist")
    subject = Subject(file.resolve(), seed)
    try:
        module = subject.load()
    except (Exception, SystemExit) as error:
        fail(f"{file} cannot be imported ({type(error).__name__}: {error})")
    needed = ("Args", "make_envs", "Agent", "compute_gae", "update", "evaluate", "train")
    missing = [name for name in needed if not hasattr(module, name)]
    if missing or not any(name.endswith("_loss") for name in vars(module)):
        fail(
            f"{file} has no {', '.join(missing) or 'function named ..._loss'}: keep the sections of algos/ to be probed"
        )
    return subject


def main(options: Options) -> int:
    unknown = [name for name in options.only if name not in CHECKS]
    if unknown:
        fail(f"--only {' '.join(unknown)}: no such check; --list shows them")
    names = [name for name in CHECKS if name in (options.only or CHECKS)]
    if options.list:
        for name in names:
            function, section, _ = CHECKS[name]
            print(f"{name:32}{section:13}{' '.join((function.__doc__ or '').split('.')[0].split())}")
        return 0
    subject, results, started = open_subject(options.file, options.seed), [], time.time()
    line = "{:6}{:32}{:46.45}{:28}{}".format
    if not options.json:
        print(line("", "check", "measured", "expected", "section"))
    for name in names:
        result = run_check(subject, name)
        results.append(result)
        if not options.json:
            print(line("pass" if result.passed else "FAIL", name, result.measured, result.expected, result.section))
            if not result.passed:
                print(f"      look at {result.section}: {result.hint}", flush=True)
        if name == "trains" and not result.passed:
            break  # whatever else is measured would only show this again
    failed = sum(not result.passed for result in results)
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    else:
        print(f"{len(results)} checks, {failed} failed, {time.time() - started:.0f} s, seed {options.seed}")
    return int(failed > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(tyro.cli(Options, description=__doc__)))
