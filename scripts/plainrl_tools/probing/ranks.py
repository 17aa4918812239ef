"""Exact checks of a file that torchrun starts as several processes: two ranks against one process with the samples of
both."""

import contextlib
import copy
import io
import multiprocessing
import os
import socket
from dataclasses import fields, replace
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np
import torch

from plainrl_tools.probing.environments import in_this_process
from plainrl_tools.probing.subject import (
    Call,
    Finding,
    Subject,
    Unable,
    broken,
    check,
    differs,
    largest,
    of_tensors,
    passes,
    tensors_of,
)

PRELOAD = ["torch.distributed", "torch.utils.tensorboard", "torch._dynamo", "tyro", "tqdm"]
PRELOAD += ["gymnasium", "envpool", "ale_py"]  # those that are installed
ROWS = 5, 3  # samples of rank 0 and rank 1; unequal, as after autoreset steps
EXACT = {"num_minibatches": 1, "update_epochs": 1, "max_grad_norm": 1e9, "norm_adv": False}
EXACT |= {"target_kl": None, "clip_vloss": False}


def in_ranks(work, *arguments, size: int = 2, limit: float = 60) -> list:
    """Run work(*arguments) in each rank. Return for each its result, {"exit": ...} with the argument of SystemExit, or
    {} if the process was killed; its output is under "said". `work` must be a function of a module that returns a
    dictionary."""
    context = multiprocessing.get_context("forkserver")  # starts a process within milliseconds
    context.set_forkserver_preload(PRELOAD)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pipes, processes, results = {}, [], {}
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        given = rank, size, port, theirs, work, arguments
        processes.append(context.Process(target=as_rank, args=given, daemon=True))
        processes[-1].start()
        theirs.close()
        pipes[ours] = rank
    try:
        while (
            len(results) < size
        ):  # in any order, since one rank may wait until the other has finished
            ready = wait([pipe for pipe, rank in pipes.items() if rank not in results], limit)
            if not ready:
                raise TimeoutError("the ranks wait for each other")
            for pipe in ready:
                results[pipes[pipe]] = {}
                with contextlib.suppress(EOFError):
                    results[pipes[pipe]] = pipe.recv()
    finally:
        for process in processes:
            process.kill()
            process.join()
    return [results[rank] for rank in range(size)]


def as_rank(rank: int, size: int, port: int, pipe, work, arguments: tuple) -> None:
    """A process of in_ranks, with the environment variables that torchrun sets."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            with in_this_process():
                result = work(*arguments)
        except SystemExit as ended:
            result = {"exit": ended.code}
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
    pipe.send(result | {"said": said.getvalue()})


def step(update, arguments: dict, batch, **flags) -> tuple[np.ndarray, int]:
    """By how much one update moves all parameters of a copy of the agent, in SGD steps with learning rate 1, and the
    number of steps."""
    given = dict(arguments)
    agent = given["agent"] = copy.deepcopy(given["agent"])
    flags = EXACT | {"num_envs": 1, "num_steps": max(len(tensors_of(batch)[0]), 5)} | flags
    known = {field.name for field in fields(given["args"])}  # a copy may lack some of them
    given["args"] = replace(given["args"], **{k: v for k, v in flags.items() if k in known})
    count = []
    given["optimizer"] = torch.optim.SGD(agent.parameters(), lr=1.0)
    given["optimizer"].register_step_post_hook(lambda *_: count.append(1))
    before = torch.nn.utils.parameters_to_vector(p.reshape(-1) for p in agent.parameters())
    update(**given | {"batch": batch})
    after = torch.nn.utils.parameters_to_vector(p.reshape(-1) for p in agent.parameters())
    return (before - after).detach().double().numpy(), len(count)


def each(batch, change):
    """The batch with all its tensors changed."""
    return of_tensors([change(tensor) for tensor in tensors_of(batch)], batch)


def repeated(batch, rows: int):
    """Copies of the first sample, so that every choice among them gives the same minibatch."""
    return each(batch, lambda tensor: tensor[:1].repeat_interleave(rows, 0))


def one_rank(file: Path, seed: int, world: str, defaults: dict) -> dict:
    """A run of one rollout in this rank, and its updates on the probe's own batches."""
    subject = Subject(file, seed)
    subject.world, subject.defaults = world, defaults
    module = subject.load()
    update, make_envs, kept = module.update, module.make_envs, {"seeds": []}

    def spied_envs(*a, **k):
        made = make_envs(*a, **k)
        new, envs_step = [[env.unwrapped.seeds[0] for env in made[0].unwrapped.envs]], made[0].step

        def spied_step(action):  # ignore environments that are made but never used
            if (
                new and new[0] not in kept["seeds"][1:]
            ):  # the evaluations with samples and with greedy actions may share a set
                kept["seeds"].append(new[0])
            new.clear()
            return envs_step(action)

        made[0].step = spied_step
        return made

    def spied_update(*a, **k):
        call = Call(update, a, k)
        arguments = call.arguments
        batch = kept["batch"] = each(arguments["batch"], torch.clone)
        kept["first"] = {n: v.clone() for n, v in arguments["agent"].state_dict().items()}
        few = repeated(batch, ROWS[module.RANK])
        many = each(batch, lambda tensor: tensor[:20])
        kept["mean"] = step(update, arguments, few)[0]
        kept["clipped"] = step(update, arguments, few, max_grad_norm=1e-3)[0]
        kept["standardised"] = step(update, arguments, many, norm_adv=True)[0]
        kept["agent"] = arguments["agent"]
        result = update(*a, **k)
        kept["call"] = arguments | {"batch": few}
        return result

    module.update, module.make_envs = spied_update, spied_envs
    args = subject.args(module, total_timesteps=64, norm_reward=True)
    kept["summary"] = module.train(args)
    kept["last"] = kept.pop("agent").state_dict()
    kept["generator"] = torch.initial_seed()
    kept["folders"] = [path.name for path in Path(args.runs_dir).glob("*")]
    as_numbers = {name: kept[name] for name in ("first", "last")}
    for name, state in as_numbers.items():
        kept[name] = {key: value.numpy() for key, value in state.items()}
    kept["batch"] = each(kept["batch"], torch.Tensor.numpy)
    # last: the shifted old_logprob gives rank 1 a large KL, and rank 0 exits if only rank 1 stops
    arguments = kept.pop("call")
    few = subject.changed(arguments["batch"], "old_logprob", lambda tensor: tensor + module.RANK)
    kept["steps"] = "waits for the other"
    with contextlib.suppress(SystemExit):
        kept["steps"] = step(update, arguments, few, target_kl=0.1, update_epochs=3)[1]
    return kept


def ranks(subject: Subject) -> list[dict]:
    """The results of both ranks, which run once for all checks."""
    if "two_ranks" not in vars(subject):
        world = subject.trace and subject.world
        found = in_ranks(one_rank, subject.file, subject.seed, world, subject.defaults)
        subject.two_ranks = found
    for result in subject.two_ranks:
        if "last" not in result:
            raise Unable(str(result.get("error") or result.get("exit") or "a rank was killed"))
    return subject.two_ranks


def alone(subject: Subject, results: list[dict]) -> tuple:
    """The file's update in one process, its arguments, and the batches of both ranks."""
    arguments = dict(subject.trace.update_call)
    agent = arguments["agent"] = subject.new_agent()
    agent.load_state_dict({k: torch.from_numpy(v) for k, v in results[0]["first"].items()})
    batches = [each(result["batch"], torch.from_numpy) for result in results]
    return subject.load().update, arguments, batches


@check("update", of="ranks ratio")
def gradient_over_ranks(subject: Subject) -> Finding:
    """With 5 samples on one rank and 3 on the other, both take the SGD step of the mean gradient over the 8 samples."""
    results = ranks(subject)
    update, arguments, batches = alone(subject, results)
    one, other = (step(update, arguments, repeated(batch, 3))[0] for batch in batches)
    ours = np.stack([result["mean"] for result in results])
    share = ROWS[0] / sum(ROWS)
    right = np.stack([share * one + (1 - share) * other] * 2)
    error = largest(ours, right)
    measured, expected = f"error {error:.1e}", "below 1e-04"
    if error < 1e-4:
        return passes(measured, expected)
    mistakes = {
        "each rank learns from its own samples only": np.stack([one, other]),
        "gradients are summed over samples instead of averaged": 2 * right,
        "gradients of the ranks are summed instead of averaged": np.stack([one + other] * 2),
    }
    for mistake, wrong in mistakes.items():
        if largest(ours, wrong) < 1e-4:
            return broken(measured, expected, mistake)
    if largest(ours, np.stack([(one + other) / 2] * 2)) < 1e-4:
        return differs(measured, expected, "a rank with fewer samples has the same weight")
    return broken(measured, expected, "the gradient is not the mean over the samples of all ranks")


@check("update", of="ranks ratio clips", follows="gradient-over-ranks")
def clipping_over_ranks(subject: Subject) -> Finding:
    """The same with --max-grad-norm 0.001: clipping acts on the mean over ranks, not before it."""
    results = ranks(subject)
    update, arguments, batches = alone(subject, results)
    one, other = (step(update, arguments, repeated(batch, 3))[0] for batch in batches)
    share = ROWS[0] / sum(ROWS)
    right = share * one + (1 - share) * other
    right *= 1e-3 / np.linalg.norm(right)
    error = max(largest(result["clipped"] * 1e3, right * 1e3) for result in results)
    measured, expected = f"error {error:.1e} of the norm", "below 1e-03"
    if error < 1e-3:
        return passes(measured, expected)
    return broken(
        measured,
        expected,
        "gradients are clipped before the mean over ranks is taken, or not at all",
    )


@check("update", of="ranks ratio", follows="gradient-over-ranks")
def advantages_over_ranks(subject: Subject) -> Finding:
    """With --norm-adv two ranks with 20 samples each take the step that one process takes with these 40 samples."""
    results = ranks(subject)
    update, arguments, batches = alone(subject, results)
    pairs = zip(*map(tensors_of, batches))
    both = of_tensors([torch.cat([one[:20], other[:20]]) for one, other in pairs], batches[0])
    right = step(update, arguments, both, norm_adv=True)[0]
    error = max(largest(result["standardised"], right) for result in results)
    measured, expected = f"error {error:.1e}", "below 1e-04"
    if error < 1e-4:
        return passes(measured, expected)
    question = "advantages are standardised with the samples of one rank"
    return differs(measured, expected, question)


@check("update", of="ranks ratio")
def target_kl_over_ranks(subject: Subject) -> Finding:
    """With a KL of 0 on rank 0 and one far above --target-kl on rank 1, both stop after the first epoch."""
    steps = [result["steps"] for result in ranks(subject)]
    measured, expected = " and ".join(map(str, steps)), "1 and 1"
    if steps == [1, 1]:
        return passes(measured, expected)
    if len({*steps}) == 1:
        return differs(measured, expected, "the KL of rank 1 does not stop an update")
    return broken(measured, expected, "each rank decides on its own when an update stops")


@check("RunningMeanStd", of="ranks normaliser")
def statistics_over_ranks(subject: Subject) -> Finding:
    """After a rollout, mean, variance and count of the observations and the count of the returns cover the samples of
    both ranks."""
    results = ranks(subject)
    rows = np.concatenate(
        [tensors_of(result["batch"])[0] for result in results]
    )  # not yet normalised in the first rollout
    right = np.concatenate([rows.mean(0), rows.var(0), [len(rows)] * 2])
    ours = []
    for result in results:
        last = result["last"]
        parts = [last["obs_rms.mean"], last["obs_rms.var"], [last["obs_rms.count"]]]
        ours.append(np.concatenate([*parts, [last["return_rms.count"]]]))
    error = max(largest(numbers, right) for numbers in ours)
    measured, expected = f"error {error:.1e}", "below 1e-03"
    if error < 1e-3:
        return passes(measured, expected)
    return broken(measured, expected, "the statistics cover one rank or some of the samples only")


@check("train", of="ranks", follows="gradient-over-ranks statistics-over-ranks")
def ranks_are_equal(subject: Subject) -> Finding:
    """Weights and statistics of both ranks are equal before the first update and after it, bit for bit."""
    one, other = ranks(subject)
    for when, words in {"first": "before the first update", "last": "at the end"}.items():
        unequal = [key for key in one[when] if not np.array_equal(one[when][key], other[when][key])]
        if unequal:
            return broken(", ".join(unequal)[:60], "equal", f"the ranks' agents differ {words}")
    return passes("equal")


@check("train", of="ranks")
def seeds_of_ranks(subject: Subject) -> Finding:
    """No two environments, of one rank, of both or of the evaluation, share a seed. The ranks use different random
    numbers."""
    one, other = ranks(subject)
    seeds = sum(one["seeds"] + other["seeds"][:1], [])
    if len(set(seeds)) < len(seeds):
        return broken("equal seeds", "all different", "ranks have environments with the same seed")
    if one["generator"] == other["generator"]:
        return broken(
            "equal draws", "all different", "ranks sample actions with the same random numbers"
        )
    return passes("all different")


@check("train", of="ranks")
def rank_0_speaks(subject: Subject) -> Finding:
    """Only rank 0 has a run folder, evaluates and prints. It counts the steps of both ranks."""
    one, other = ranks(subject)
    if other["folders"] or other["said"] or len(other["seeds"]) > 1 or len(one["folders"]) != 1:
        mistake = "a rank other than 0 logs, saves, evaluates or prints"
        return broken("both", "rank 0 alone", mistake)
    rows = sum(len(tensors_of(result["batch"])[0]) for result in (one, other))
    steps = one["summary"]["global_step"]
    if steps != rows:
        return broken(
            f"{steps} steps", f"{rows}", "global_step counts one rank only, or also autoreset steps"
        )
    return passes("rank 0 alone")
