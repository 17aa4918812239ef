"""Milliseconds of one step of ppo_continuous.py's update, as it is and in cheaper forms.

    python benchmarks/update_cost.py                       # 64, 128, 256 and 2,048 rows

HalfCheetah's shapes: 17 numbers observed, 6 actions. One thread. The forms take turns, and the least time of --rounds
counts: what disturbs a measurement can only make it longer. The table goes to standard output, each figure to --output.
"""

import functools
import time
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import tyro
from plainrl_tools.common import ROOT, check, check_least, check_output, commit_of, load, writing
from torch.distributions import Normal

OBS_DIM, ACTION_DIM, ROLLOUT = 17, 6, 2048


@dataclass
class Options:
    rows: tuple[int, ...] = (64, 128, 256, 2048)  # of a minibatch
    rounds: int = 12
    output: Path | None = ROOT / "benchmarks" / "update_cost.csv"


algo = load(ROOT / "algos" / "ppo_continuous.py")


class Batched(algo.Agent):
    """Actor and critic as one product of matrices (2, ...) for each layer; the critic's last is padded."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        pairs = zip(self.actor_mean[::2], self.critic[::2], strict=True)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for actor, critic in pairs:
            missing = len(actor.bias) - len(critic.bias)
            weight = nn.functional.pad(critic.weight, (0, 0, 0, missing))
            bias = nn.functional.pad(critic.bias, (0, missing))
            self.weights.append(torch.stack([actor.weight.T, weight.T]).detach().contiguous())
            self.biases.append(torch.stack([actor.bias, bias]).detach().unsqueeze(1))
        self.value = None
        del self.actor_mean, self.critic

    def get_action(self, x, action=None):  # called first: get_value's half waits for it
        h = x.expand(2, *x.shape)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            h = torch.baddbmm(bias, h, weight).tanh()
        mean, value = torch.baddbmm(self.biases[-1], h, self.weights[-1])
        self.value = value[:, 0]
        policy = Normal(mean, self.actor_logstd.exp(), validate_args=False)
        return action, policy.log_prob(action).sum(-1), policy.entropy().sum(-1)

    def get_value(self, x):
        return self.value


class Formulas(algo.Agent):
    """The normal distribution written out, without torch.distributions."""

    def get_action(self, x, action=None):
        mean, std = self.actor_mean(x), self.actor_logstd.exp()
        constant = 0.5 * np.log(2 * np.pi)
        logprob = -0.5 * ((action - mean) / std) ** 2 - self.actor_logstd - constant
        entropy = (self.actor_logstd + 0.5 + constant).expand_as(mean)
        return action, logprob.sum(-1), entropy.sum(-1)


def update_after_shuffle(agent, optimizer, args, batch, loss_fn):
    """The whole batch is shuffled once an epoch, instead of indexed for each minibatch."""
    for _ in range(args.update_epochs):
        order = torch.randperm(len(batch["x"]))
        parts = [tensor[order].chunk(args.num_minibatches) for tensor in batch.values()]
        for minibatch in zip(*parts, strict=True):
            loss, _ = loss_fn(agent, args, **dict(zip(batch, minibatch, strict=True)))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
            optimizer.step()


def update_compiled(agent, optimizer, args, batch, loss_fn, step):
    """One compiled function for loss, gradient, clipping and Adam; it breaks into graphs by itself."""
    for _ in range(args.update_epochs):
        parts = [tensor.chunk(args.num_minibatches) for tensor in batch.values()]
        for minibatch in zip(*parts, strict=True):
            step(agent, optimizer, args, dict(zip(batch, minibatch, strict=True)))


def whole_step(agent, optimizer, args, minibatch):
    loss, _ = algo.ppo_loss(agent, args, **minibatch)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(list(agent.parameters()), args.max_grad_norm)
    optimizer.step()


def forms() -> dict:
    """Name: (agent's class, update, loss)."""
    compiled = functools.partial(torch.compile, algo.ppo_loss, mode="reduce-overhead")
    step = functools.partial(update_compiled, step=torch.compile(whole_step))
    return {
        "as it is": (algo.Agent, algo.update, algo.ppo_loss),
        "one shuffle an epoch": (algo.Agent, update_after_shuffle, algo.ppo_loss),
        "without torch.distributions": (Formulas, algo.update, algo.ppo_loss),
        "actor and critic batched": (Batched, algo.update, algo.ppo_loss),
        "--compile (the loss)": (algo.Agent, algo.update, compiled()),
        "whole step compiled": (algo.Agent, step, algo.ppo_loss),
        "batched, and the loss compiled": (Batched, algo.update, compiled()),
    }


def measure(rows: int, rounds: int) -> dict[str, float]:
    args = algo.Args(num_envs=64, num_steps=ROLLOUT // 64, num_minibatches=ROLLOUT // rows)
    args.activation, args.update_epochs = "Tanh", 2
    space = gym.spaces.Box(-1, 1, (ACTION_DIM,), np.float32)
    prepared, least = {}, {}
    for name, (agent_class, update, loss_fn) in forms().items():
        agent = agent_class(OBS_DIM, space, args)
        optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5, fused=True)
        prepared[name] = functools.partial(update, agent, optimizer, args, loss_fn=loss_fn)
    for _ in range(rounds):
        for name, update in prepared.items():
            batch = {
                "x": torch.randn(ROLLOUT, OBS_DIM),
                "action": torch.randn(ROLLOUT, ACTION_DIM),
                "old_logprob": -8 * torch.rand(ROLLOUT),
                "advantage": torch.randn(ROLLOUT),
                "target": torch.randn(ROLLOUT),
                "old_value": torch.randn(ROLLOUT),
            }
            started = time.perf_counter()
            update(batch=batch)
            seconds = (time.perf_counter() - started) / args.update_epochs / args.num_minibatches
            least[name] = min(least.get(name, float("inf")), 1000 * seconds)
    return least


def main(options: Options) -> None:
    check_output("--output", options.output)
    check_least(1, options, "rounds")
    for rows in options.rows:
        words = f"--rows {rows} does not divide {ROLLOUT}"
        check(rows > 0 and ROLLOUT % rows == 0, words)
    torch.set_num_threads(1)
    columns = {}
    for rows in options.rows:
        columns[rows] = measure(rows, options.rounds)
        torch.compiler.reset()
    print(f"| ms a step, and times faster | {' | '.join(f'{rows} rows' for rows in columns)} |")
    print(f"|---|{'--:|' * len(columns)}")
    for name in forms():
        times = [(column[name], column["as it is"] / column[name]) for column in columns.values()]
        print(f"| {name} | {' | '.join(f'{ms:.2f} ({ratio:.2f})' for ms, ratio in times)} |")
    if options.output:
        commit = commit_of(Path(__file__))
        lines = ["exp_name,env_id,seed,step,metric,value,commit"]
        for rows, column in columns.items():
            for name, ms in column.items():
                name = name.replace(",", "")
                lines.append(f"{name},{rows}-rows,1,0,ms_per_step,{ms:.4f},{commit}")
        with writing():
            options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Options))
