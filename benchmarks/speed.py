"""Training speed of our files against stable-baselines3 and, where `sbx` is installed, SBX.

    python benchmarks/speed.py                    # ppo_continuous.py
    python benchmarks/speed.py --suite discrete   # ppo.py and dqn.py
    python benchmarks/speed.py --suite atari      # ppo_atari.py, a2c_atari.py and dqn_atari.py, memory included

Every figure is environment steps per second (sps), all environments together, rollouts and updates included, the first
iteration (warm-up) and the evaluation excluded. benchmarks/README.md says what is measured, how, and why so.
Prints a Markdown table on stdout and writes every single measurement to --output; progress goes to stderr.
"""

import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import math
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import tyro
from plainrl_tools.common import ROOT, check, check_output, num_cores
from plainrl_tools.peers import (
    FAST,
    LATE,
    ZOO,
    identical,
    identical_case,
    is_atari,
    with_activation,
)
from plainrl_tools.results import write_csv

RSS_UNITS = 2**20 if sys.platform == "darwin" else 2**10  # of ru_maxrss, in a MiB
PACKAGES = ("torch", "numpy", "gymnasium", "envpool", "stable-baselines3", "sbx-rl", "jax")
# our file, stable-baselines3's class, and our flags, beside the defaults
CASES = {
    "discrete": {
        "PPO": ("ppo.py", "PPO", {}),
        "PPO, 2 threads": ("ppo.py", "PPO", {"torch_threads": 2}),
        "DQN": ("dqn.py", "DQN", {"start_e": 0.05, "eval_frequency": 0}),
        "DQN, 2 threads": (
            "dqn.py",
            "DQN",
            {"start_e": 0.05, "eval_frequency": 0, "torch_threads": 2},
        ),
    },
    "atari": {
        "PPO": ("ppo_atari.py", "PPO", {}),
        "PPO fast": ("ppo_atari.py", "PPO", FAST),
        "A2C": ("a2c_atari.py", "A2C", {}),
        "DQN": ("dqn_atari.py", "DQN", LATE),
        "DQN fast": ("dqn_atari.py", "DQN", {**LATE, "batch_size": 64, "train_frequency": 8}),
    },
}
ZOO_CASES = {
    ("CartPole-v1", "PPO"): {
        "n_envs": 8, "n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8,
        "ent_coef": 0.0, "learning_rate": 1e-3, "clip_range": 0.2,
    },
    ("CartPole-v1", "DQN"): {
        "n_envs": 1, "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000,
        "gamma": 0.99, "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128,
        "exploration_initial_eps": 0.04, "exploration_final_eps": 0.04, "policy_kwargs": {"net_arch": [256, 256]},
    },
}  # fmt: skip
ENV_IDS = {
    "continuous": ("BipedalWalker-v3", "Pendulum-v1"),
    "discrete": ("CartPole-v1",),
    "atari": ("BreakoutNoFrameskip-v4",),
}


@dataclass
class Args:
    suite: Literal["continuous", "discrete", "atari"] = "continuous"  # what is measured
    env_ids: tuple[str, ...] = ()  # default: those of the suite, as in benchmarks/README.md
    cases: tuple[str, ...] = ()  # of the suites discrete and Atari, such as DQN; default: all
    repeats: int = 3  # rounds per environment; round r runs every side once, with seed r
    seconds: float = 25.0  # length of a measurement, warm-up not counted
    max_rollout: int = 8192  # most steps per rollout at the Zoo's settings, whose n_steps is cut to it; 0 cuts nothing
    calibration_steps: int = 0  # of the run that finds how many --seconds take; 0: 50,000 or 8,192
    device: str = "cpu"  # of every side
    output: Path | None = None  # the long CSV; default: here, results/speed.csv or speed_SUITE.csv


# ---------------------------------------------------------------------------- one side each, run in a fresh process


def measure_peer(
    side: str,
    env_id: str,
    settings: dict,
    seed: int,
    seconds: float,
    device: str,
    threads: int,
    algo: str = "PPO",
    processes: bool = False,
) -> dict:
    """{"sps": steps per second, "steps": steps measured, "memory": peak in MiB} of an algorithm of stable-baselines3
    (side "sb3") or SBX ("sbx") on a DummyVecEnv or, with `processes`, a SubprocVecEnv, whose memory is not measured:
    from the end of the first update to the end of the first later update that is at least `seconds` (s) away.
    `threads` is given to torch.set_num_threads, 0 leaves PyTorch's own choice."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import (
        DummyVecEnv,
        SubprocVecEnv,
        VecFrameStack,
        VecNormalize,
    )

    vec_env_cls = SubprocVecEnv if processes else DummyVecEnv
    ways = {"start_method": "fork"} if processes else {}  # other ways do not know ale_py's games
    if threads:
        torch.set_num_threads(threads)
    settings = with_activation(settings, side)
    norm_obs, norm_reward = settings.pop("norm_obs", False), settings.pop("norm_reward", False)
    learning_starts, num_envs, atari = (
        settings.get("learning_starts", 0),
        settings.pop("n_envs"),
        is_atari(env_id),
    )
    if atari:
        importlib.import_module("ale_py")  # registers its games
        envs = VecFrameStack(
            make_atari_env(env_id, num_envs, seed, vec_env_cls=vec_env_cls, vec_env_kwargs=ways),
            4,
        )
    else:
        bare = {"render_mode": None}  # rgb_array, its own choice, makes some environments slow
        envs = make_vec_env(
            env_id, num_envs, seed, env_kwargs=bare, vec_env_cls=vec_env_cls, vec_env_kwargs=ways
        )
    if norm_obs or norm_reward:
        envs = VecNormalize(
            envs, norm_obs=norm_obs, norm_reward=norm_reward, gamma=settings["gamma"]
        )

    class Clock(BaseCallback):
        def _on_training_start(self) -> None:
            self.first, self.rollouts = (
                None,
                0,
            )  # first and last: (time in s, steps so far) at the start of a rollout

        def _on_rollout_start(self) -> None:
            self.last = time.perf_counter(), self.num_timesteps
            self.rollouts += self.num_timesteps >= learning_starts
            if self.rollouts == 2:
                self.first = self.last

        def _on_step(
            self,
        ) -> bool:  # a rollout cannot be refused at its start; one step later it can
            return self.first is None or self.last[0] - self.first[0] < seconds

    clock, policy = Clock(), "CnnPolicy" if atari else "MlpPolicy"
    model = getattr(importlib.import_module("sbx" if side == "sbx" else "stable_baselines3"), algo)
    model(policy, envs, seed=seed, device=device, **settings).learn(10**9, callback=clock)
    (start, steps_before), (end, steps_after) = clock.first, clock.last
    steps = steps_after - steps_before
    result = {"sps": steps / (end - start), "steps": steps}
    if not processes:  # of this one alone
        result["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / RSS_UNITS
    return result


def measure_bare(env_id: str, num_envs: int, seed: int, seconds: float) -> dict:
    """{"sps", "steps"} as measure_peer, and the "backend", of the environment alone with random actions, as many
    environments as ours and as many threads as cores. Reset rows are not counted, since ours does not count them."""
    import gymnasium as gym
    import numpy as np

    backend = "gymnasium"
    if importlib.util.find_spec("envpool"):
        import envpool

        backend = "envpool" if env_id in envpool.list_all_envs() else backend
    if is_atari(env_id):
        from ale_py import AtariVectorEnv

        backend, spec = "AtariVectorEnv", gym.spec(env_id).kwargs
        envs = AtariVectorEnv(
            spec["game"], num_envs, repeat_action_probability=spec["repeat_action_probability"]
        )
        action_space = envs.single_action_space
        envs.reset(seed=seed)
    elif backend == "envpool":
        threads = min(num_cores(), num_envs)
        envs = envpool.make(
            env_id, env_type="gymnasium", num_envs=num_envs, seed=seed, num_threads=threads
        )
        action_space = envs.action_space  # EnvPool's is that of one environment
        envs.reset()
    else:
        next_step = gym.vector.AutoresetMode.NEXT_STEP
        envs = gym.vector.SyncVectorEnv(
            [lambda: gym.make(env_id)] * num_envs, autoreset_mode=next_step
        )
        action_space = envs.single_action_space
        envs.reset(seed=seed)
    action_space.seed(seed)
    # drawn beforehand: Gymnasium's sampling would cost more than a step of the faster environments
    actions = itertools.cycle(
        [np.stack([action_space.sample() for _ in range(num_envs)]) for _ in range(64)]
    )
    prev_done = np.zeros(num_envs, bool)
    for duration in (1.0, seconds):  # the first second is the warm-up
        steps, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < duration:
            _, _, terminated, truncated, _ = envs.step(next(actions))
            steps += num_envs - int(prev_done.sum())
            prev_done = terminated | truncated
    return {"sps": steps / elapsed, "steps": steps, "backend": backend}


# ------------------------------------------------------------------------------------------------ the parent process


def run(command: list) -> tuple[str, float]:
    """Stdout and peak memory (MiB) of a command run from the repository's root; its failure ends this script with the
    end of its output."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [str(part) for part in command], cwd=ROOT, stdout=out, stderr=err
        )
        _, status, usage = os.wait4(process.pid, 0)
        out.seek(0), err.seek(0)
        if status:
            tail, status = (
                "\n".join((out.read() + err.read()).splitlines()[-20:]),
                os.waitstatus_to_exitcode(status),
            )
            check(False, f"exit status {status} from {' '.join(map(str, command))}\n{tail}", 1)
        return out.read(), usage.ru_maxrss / RSS_UNITS


def words_of(flags: dict) -> list[str]:
    """Flags as a command line has them: --name value, and --name or --no-name where the value is a bool."""
    words = []
    for name, value in flags.items():
        name = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", str(value)]
    return words


def ours(args: Args, script: str, flags: dict, env_id: str, seed: int, steps: int) -> dict:
    """summary.json of a run of the unmodified script for `steps` environment steps, its peak memory (MiB) added."""
    with tempfile.TemporaryDirectory() as runs_dir:
        flags = {
            "env-id": env_id,
            "total-timesteps": steps,
            "seed": seed,
            "device": args.device,
        } | flags
        flags |= {"eval-episodes": 1, "runs-dir": runs_dir}
        _, memory = run([sys.executable, ROOT / "algos" / script, *words_of(flags)])
        (path,) = Path(runs_dir).glob("*/summary.json")
        return json.loads(path.read_text()) | {"memory": memory}


def other(**job) -> dict:
    """What measure_peer or measure_bare returns, from a fresh process."""
    return json.loads(
        run([sys.executable, __file__, "--measure", json.dumps(job)])[0].splitlines()[-1]
    )


def recommended(env_id: str, max_rollout: int) -> dict:
    """The Zoo's settings. A rollout of 65,536 steps and its update take stable-baselines3 about a minute; the same
    number of environments and minibatch size on shorter rollouts cost the same per step and fit the measurement."""
    settings = dict(ZOO[env_id])
    if max_rollout:
        settings["n_steps"] = max(1, min(settings["n_steps"], max_rollout // settings["n_envs"]))
    return settings


def csv_row(exp_name: str, env_id: str, seed: int, result: dict, commit: str) -> dict:
    """A row of --output: `value` in steps per second, measured over `step` steps. Nothing but a number passes."""
    wrong = f"{exp_name} on {env_id}, seed {seed}, reports {result['sps']} steps per second"
    check(math.isfinite(result["sps"]) and result["sps"] > 0, wrong, 1)
    print(
        f"{env_id} seed {seed} {exp_name}: {result['sps']:,.0f} steps/s",
        file=sys.stderr,
        flush=True,
    )
    return {"exp_name": exp_name, "env_id": env_id, "seed": seed, "step": result["steps"], "metric": "sps",
            "value": round(result["sps"], 1), "commit": commit}  # fmt: skip


def measure_env(args: Args, env_id: str, has_sbx: bool) -> tuple[list[dict], str]:
    """CSV rows of all rounds of one environment, and the backend of the bare environment."""
    first = ours(args, "ppo_continuous.py", {}, env_id, seed=1, steps=args.calibration_steps)
    result = {"sps": first["sps"], "steps": first["global_step"]}
    csv_row(
        "calibration, not counted,", env_id, 1, result, first["commit"]
    )  # checked like the others, then dropped
    steps = max(args.calibration_steps, math.ceil(first["sps"] * args.seconds))
    settings = {
        "recommended": recommended(env_id, args.max_rollout),
        "identical": identical(first["args"]),
    }
    jobs = {}
    for name in settings:
        peer = {"settings": settings[name], "device": args.device}
        jobs[f"sb3-{name}-default-threads"] = {"side": "sb3", "threads": 0, **peer}
        jobs[f"sb3-{name}-1-thread"] = {"side": "sb3", "threads": 1, **peer}
        if has_sbx:
            jobs[f"sbx-{name}"] = {"side": "sbx", "threads": 0, **peer}
    jobs["bare"] = {"side": "bare", "num_envs": first["args"]["num_envs"]}
    rows = []
    for seed in range(1, args.repeats + 1):
        for name, flags in (("ours", {}), ("ours-gymnasium", {"env-backend": "gymnasium"})):
            summary = ours(args, "ppo_continuous.py", flags, env_id, seed, steps)
            result = {"sps": summary["sps"], "steps": summary["global_step"]}
            rows.append(csv_row(name, env_id, seed, result, first["commit"]))
        for name in jobs:
            result = other(env_id=env_id, seed=seed, seconds=args.seconds, **jobs[name])
            rows.append(csv_row(name, env_id, seed, result, first["commit"]))
    return rows, result["backend"]  # the last result is the bare environment's


def measure_cases(args: Args, env_id: str) -> list[dict]:
    """CSV rows of all rounds of an environment: steps per second and peak memory (metric memory_mib)."""
    jobs, steps, rows = {}, {}, []
    for case in args.cases:
        script, algo, flags = CASES[args.suite][case]
        first = ours(args, script, flags, env_id, seed=1, steps=args.calibration_steps)
        result = {"sps": first["sps"], "steps": first["global_step"]}
        csv_row(f"{case} calibration, not counted,", env_id, 1, result, first["commit"])
        steps[case] = max(args.calibration_steps, math.ceil(first["sps"] * args.seconds))
        peer = {"side": "sb3", "algo": algo, "device": args.device}
        peer["settings"] = identical_case(env_id, algo, first["args"])
        jobs[case] = {
            "sb3-default-threads": {"threads": 0, **peer},
            "sb3-1-thread": {"threads": 1, **peer},
        }
        if is_atari(env_id):  # whose steps are worth a process, and ours take theirs in threads
            jobs[case]["sb3-processes"] = {"threads": 0, "processes": True, **peer}
        if (env_id, algo) in ZOO_CASES:
            peer = peer | {"settings": ZOO_CASES[env_id, algo]}
            jobs[case] |= {
                "zoo-default-threads": {"threads": 0, **peer},
                "zoo-1-thread": {"threads": 1, **peer},
            }
        jobs[case]["bare"] = {"side": "bare", "num_envs": first["args"]["num_envs"]}
    for seed in range(1, args.repeats + 1):
        for case in args.cases:
            script, _, flags = CASES[args.suite][case]
            sides = {"ours": {}}
            if is_atari(env_id):  # what stable-baselines3 computes in
                sides["ours-float32"] = {"precision": "float32"}
            results = {}
            for name, own in sides.items():
                summary = ours(args, script, flags | own, env_id, seed, steps[case])
                results[name] = summary | {"steps": summary["global_step"]}
            for name in jobs[case]:
                results[name] = other(
                    env_id=env_id, seed=seed, seconds=args.seconds, **jobs[case][name]
                )
            for name in results:
                row = csv_row(f"{case} {name}", env_id, seed, results[name], first["commit"])
                rows.append(row)
                if "memory" in results[name]:
                    rows.append(
                        row | {"metric": "memory_mib", "value": round(results[name]["memory"])}
                    )
    return rows


def case_rows(rows: list[dict], env_id: str, cases: tuple[str, ...]) -> list[str]:
    """The Markdown rows of an environment: one for each case, at our settings and at recommended ones. A ratio is
    taken within a round; its median is over rounds. A fast setting's recommended peer has the published one. A file of
    Atari games has a row for each in float32, which its peer computes in."""
    lines = []
    sps, memory = ({name: [row["value"] for row in rows if (row["exp_name"], row["metric"]) == (name, metric)]
                    for name in {row["exp_name"] for row in rows}} for metric in ("sps", "memory_mib"))  # fmt: skip
    for case in cases:
        published = case.removesuffix(" fast")
        recommended = f"{case} zoo" if case == published else f"{published} sb3"
        bare = f"{case} bare"
        for settings, mine, peer in (
            ("identical", f"{case} ours", f"{case} sb3"),
            ("identical, float32", f"{case} ours-float32", f"{case} sb3"),
            ("recommended", f"{case} ours", recommended),
        ):
            if mine not in sps:
                continue
            both = [name for name in sps if name.startswith(f"{peer}-")]
            if not both:
                continue
            whole = [name for name in both if memory[name]]  # not spread over processes
            best, in_one = (max(few, key=lambda name: median(sps[name])) for few in (both, whole))
            threads = best.removeprefix(f"{peer}-").replace("-", " ")
            ratio, share = (
                [a / b for a, b in zip(sps[mine], sps[other], strict=True)]
                for other in (best, bare)
            )
            lines.append(" | ".join([
                f"| {env_id}", f"{case}, {settings}", spread(sps[mine], ",.0f"),
                f"{spread(sps[best], ',.0f')}, {threads}", spread(ratio, ".1f"), spread(share, ".0%"),
                f"{median(memory[mine]):,.0f}, {median(memory[in_one]):,.0f} |"]))  # fmt: skip
    return lines


def spread(values: list[float], form: str) -> str:
    """Median (least-greatest)."""
    return f"{median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


def table_rows(rows: list[dict], env_id: str, backend: str, has_sbx: bool) -> list[str]:
    """The three Markdown rows of an environment: the third sets ours on Gymnasium's environments, which the peers step,
    against identical settings. A ratio is taken within a round; its median is over rounds."""
    values = {
        name: [r["value"] for r in rows if r["exp_name"] == name]
        for name in {r["exp_name"] for r in rows}
    }
    lines = []
    for name, mine in (
        ("recommended", "ours"),
        ("identical", "ours"),
        ("identical", "ours-gymnasium"),
    ):
        both = f"sb3-{name}-default-threads", f"sb3-{name}-1-thread"
        worse, sb3 = sorted(both, key=lambda key: median(values[key]))
        threads, other_threads = (
            key.removeprefix(f"sb3-{name}-").replace("-", " ") for key in (sb3, worse)
        )
        ratio, share = (
            [a / b for a, b in zip(values[mine], values[key], strict=True)] for key in (sb3, "bare")
        )
        sbx = ["not installed"] * 2
        if has_sbx:
            sbx_ratio = [a / b for a, b in zip(values[mine], values[f"sbx-{name}"], strict=True)]
            sbx = [spread(values[f"sbx-{name}"], ",.0f"), spread(sbx_ratio, ".1f")]
        case = name + mine.removeprefix("ours").replace("-", ", ")  # identical, gymnasium
        lines.append(" | ".join([
            f"| {env_id}", case, spread(values[mine], ",.0f"), spread(values[sb3], ",.0f"),
            f"{threads} ({other_threads}: {median(values[worse]):,.0f})", spread(ratio, ".1f"), *sbx,
            f"{spread(values['bare'], ',.0f')} {backend}", spread(share, ".0%") + " |"]))  # fmt: skip
    return lines


def machine() -> str:
    """One line: processor, cores, load before the start, system, versions."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = [
            line
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ]
        model = lines[0].split(":")[1].strip() if lines else model
    names = {
        dist.name.lower().replace("_", "-"): dist.version
        for dist in importlib.metadata.distributions()
    }
    versions = [
        f"Python {platform.python_version()}",
        *(f"{name} {names[name]}" for name in PACKAGES if name in names),
    ]
    load = f"load {os.getloadavg()[0]:.1f} before the start"
    return f"{model}, {num_cores()} cores, {load}, {platform.system()}; {', '.join(versions)}"


def main(args: Args) -> None:
    positive = args.repeats >= 1 and args.seconds > 0
    check(positive, "--repeats and --seconds must be positive")
    check_output("--output", args.output)
    cases, has_sbx = CASES.get(args.suite, {}), importlib.util.find_spec("sbx") is not None
    args.env_ids, args.cases = args.env_ids or ENV_IDS[args.suite], args.cases or tuple(cases)
    args.calibration_steps = args.calibration_steps or (8192 if args.suite == "atari" else 50_000)
    args.output = args.output or ROOT / "benchmarks" / "results" / (
        f"speed_{args.suite}.csv" if cases else "speed.csv"
    )
    unknown = ", ".join(env_id for env_id in args.env_ids if not cases and env_id not in ZOO)
    check(not unknown, f"no recommended settings for {unknown} in ZOO; it has {', '.join(ZOO)}")
    slow = {case.removesuffix(" fast") for case in args.cases}
    known = set(args.cases) <= set(cases) and slow <= set(args.cases)
    names = ", ".join(cases)
    check(known, f"--cases are some of {names}, and a fast one is compared with the other as well")
    description, rows, lines = machine(), [], []
    if os.getloadavg()[0] > 0.5:
        print(
            "speed.py: other programs are running on this machine; the figures will suffer",
            file=sys.stderr,
        )
    for env_id in args.env_ids:
        if cases:
            env_rows = measure_cases(args, env_id)
            lines += case_rows(env_rows, env_id, args.cases)
        else:
            env_rows, backend = measure_env(args, env_id, has_sbx)
            lines += table_rows(env_rows, env_id, backend, has_sbx)
        rows += env_rows
        write_csv(args.output, rows[0].keys(), [row.values() for row in rows])
    columns = (
        "settings | ours | SB3 | SB3 ran with | ours / SB3 | SBX | ours / SBX | bare | ours / bare"
    )
    if cases:
        columns = "algorithm, settings | ours | SB3 | ours / SB3 | ours / bare | peak MiB, both"
    print(f"| environment | {columns} |")
    print("|---" * (columns.count("|") + 2) + "|", *lines, sep="\n")
    print(f"\nSteps per second, median (least-greatest) of {args.repeats} rounds of {args.seconds:g} s a side; "
          "SB3's figure is the best of PyTorch's default threads, one thread and, of Atari, a process a game.\n"
          f"Commit {rows[0]['commit']}. {description}.")  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:  # how `other` starts this file again
        job = json.loads(sys.argv[2])
        side = job.pop("side")
        print(json.dumps(measure_bare(**job) if side == "bare" else measure_peer(side, **job)))
    else:
        main(tyro.cli(Args))
