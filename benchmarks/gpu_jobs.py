"""What gpu_pass.py measures inside a file of algos/, in a process of its own: the file is loaded, and its functions are
wrapped. The argument is the job as JSON; the result goes to result.json in the job's folder."""

import copy
import functools
import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from plainrl_tools.common import load
from plainrl_tools.results import read_scalars

# Runs whose updates are compared: no noise in the loss, and steps enough to replay a CUDA graph
SAME = {"precision": "float32", "rpo_alpha": 0.0, "num_envs": 16, "num_steps": 32}
SAME |= {"num_minibatches": 4, "update_epochs": 1, "total_timesteps": 1024}
SAME |= {"learning_starts": 500, "buffer_size": 2000, "eval_frequency": 0, "eval_episodes": 2}
UPDATES = 3  # on the same rows, one after the other; the metrics are those of the last


def args_of(algo, **flags):
    """Args; flags that the file does not have are left out."""
    return algo.Args(**{key: flags[key] for key in flags if key in algo.Args.__dataclass_fields__})


# ------------------------------------------------------------------------------------------------ equal updates


class Several(int):
    """A number of processes that takes a file through torch.distributed, although it is 1."""

    def __gt__(self, other):
        return True


def agree(job: dict) -> dict:
    """{variant: metrics}. Each learns from the first rows of the first, with the same weights and draws."""
    torch.backends.cudnn.allow_tf32 = False  # what remains is the rounding of float32
    normal = torch.distributions.Normal
    normal.rsample = lambda policy: policy.loc  # ppo_squashed.py draws in its loss
    first, results = {}, {}
    for variant in job["variants"]:
        algo = load(Path(job["file"]))
        if hasattr(algo, "Runner"):  # actors of Ray cannot import what was loaded from a path
            import ray

            ray.cloudpickle.register_pickle_by_value(algo)
        algo.update = functools.partial(learn_from_first, algo.update, first, [])
        algo.evaluate = lambda *_, **__: np.zeros(1)
        if variant == "ranks":
            algo.WORLD_SIZE = Several(1)
        device = "cpu" if variant == "cpu" else job["device"]
        runs_dir = Path(job["folder"], variant)
        place = {"device": device, "runs_dir": str(runs_dir), "compile": variant == "compiled"}
        algo.train(args_of(algo, **SAME, **place))
        if variant == "ranks" and not torch.distributed.is_initialized():
            raise RuntimeError("the file has not called torch.distributed")
        (run_dir,) = runs_dir.iterdir()
        logged = read_scalars(run_dir)
        logged.pop("losses/explained_variance", None)  # of the rollout, not of the update
        losses = [tag for tag in logged if tag.startswith("losses/")]
        results[variant] = {tag: logged[tag][0][2] for tag in losses}
    return results


def learn_from_first(update, first: dict, metrics: list, *arguments):
    """In place of a file's update: the first call learns, from the first rows of all; all return its metrics."""
    if not metrics:
        (place,) = (i for i, value in enumerate(arguments) if isinstance(value, dict))
        modules = [value for value in arguments if isinstance(value, torch.nn.Module)]
        batch = arguments[place]
        if not first:
            first["states"] = [copy.deepcopy(module.state_dict()) for module in modules]
            first["batch"] = {name: tensor.clone() for name, tensor in batch.items()}
        for module, state in zip(modules, first["states"], strict=True):
            module.load_state_dict(state)
        same = {name: tensor.to(batch[name].device) for name, tensor in first["batch"].items()}
        torch.manual_seed(1)
        for _ in range(UPDATES):
            last = update(*arguments[:place], same, *arguments[place + 1 :])
        metrics.append(last)
    return dict(metrics[0])


# ------------------------------------------------------------------------------------------------ where the time goes


class Clock:
    """Seconds in each phase while it is on; the innermost counts, and the device is idle at every change."""

    def __init__(self, device: str):
        self.synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
        self.on, self.phases, self.spent, self.since = False, ["rest"], Counter(), 0.0

    def change(self) -> None:
        self.synchronize()
        now = time.perf_counter()
        self.spent[self.phases[-1]] += now - self.since
        self.since = now

    def wrap(self, function, phase: str, counts=lambda *_: True):
        """The function as a phase, where counts(*arguments) holds."""

        def timed(*arguments, **keywords):
            if not self.on or not counts(*arguments):
                return function(*arguments, **keywords)
            self.change()
            self.phases.append(phase)
            try:
                return function(*arguments, **keywords)
            finally:
                self.change()
                self.phases.pop()

        return timed

    def watch_transfers(self) -> None:
        """Make every tensor's way between host and device a phase."""
        for name in ("to", "cpu", "__setitem__"):
            counts = functools.partial(crosses, name)
            setattr(torch.Tensor, name, self.wrap(getattr(torch.Tensor, name), "transfer", counts))


def crosses(name: str, tensor, *arguments) -> bool:
    """Whether this method of a tensor moves data from one device to another."""
    places = {tensor.device.type}
    for argument in ("cpu",) if name == "cpu" else arguments:
        if isinstance(argument, torch.Tensor):
            places.add(argument.device.type)
        if isinstance(argument, (str, torch.device)):
            places.add(torch.device(argument).type)
    return len(places) > 1


def speed(job: dict) -> dict:
    """Steps per second, of the rows that the agent plays; then, while the phases are watched, their shares of the time.
    Played is the share of those rows: others are of a reset, or of the script that begins a life of a game."""
    from plainrl_tools.peers import LATE

    algo, clock, stop, speeds = load(Path(job["file"])), Clock(job["device"]), [], []
    flags = job["flags"] | {"device": job["device"], "runs_dir": job["folder"]}
    flags |= dict.fromkeys(("total_timesteps", "checkpoint_frequency"), 2**31)  # the clock ends it
    args = args_of(algo, **LATE, **flags, eval_frequency=0)
    rows = Counter()
    make_envs, update = algo.make_envs, clock.wrap(algo.update, "update")

    def timed_envs(*arguments):
        envs, obs = make_envs(*arguments)
        step = clock.wrap(envs.step, "environment")
        over = np.zeros(envs.num_envs, bool)

        def counted(action):
            transition = step(action)
            rows["stepped"] += envs.num_envs
            rows["played"] += int((~(over | transition[4].get("scripted", False))).sum())
            over[:] = transition[2] | transition[3]
            return transition

        envs.step = counted
        return envs, obs

    def timed_update(*arguments):
        metrics = update(*arguments)
        next(iteration)
        return metrics

    def iterations():
        for _ in range(2 if hasattr(args, "num_steps") else 100):
            yield  # to warm up
        for clock.on in (False, True):
            if clock.on:  # not before, so that torch.compile sees PyTorch as it is
                clock.watch_transfers()
            clock.change()
            clock.spent.clear()
            rows.clear()
            began = clock.since
            while time.perf_counter() < began + job["window"]:
                yield
            clock.change()
            speeds.append(rows["played"] / (clock.since - began))
        stop.append(signal.SIGTERM)
        while True:  # a DQN ends its iteration first
            yield

    iteration = iterations()
    algo.make_envs, algo.update = timed_envs, timed_update
    try:
        algo.train(args, stop)
    except SystemExit:
        if not stop:
            raise
    result = {"steps/s": speeds[0], "steps/s watched": speeds[1]}
    result["played"] = rows["played"] / rows["stepped"]
    for phase in ("environment", "transfer", "update"):
        result[phase] = clock.spent[phase] / clock.spent.total()
    peak = torch.cuda.max_memory_allocated() / 2**20 if job["device"] == "cuda" else None
    return result | {"peak MiB": peak}


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    result = {"agree": agree, "speed": speed}[job["kind"]](job)
    Path(job["folder"], "result.json").write_text(json.dumps(result))
