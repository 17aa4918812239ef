"""Stable-baselines3's PPO, A2C or DQN on an Atari game with the settings of our file, as a run folder.

    python benchmarks/peers/sb3_atari.py --algo PPO --env-id BreakoutNoFrameskip-v4 --total-timesteps 500000
    python benchmarks/peers/sb3_atari.py --fast --total-timesteps 1000000 --until-goal 60     # minutes
    python benchmarks/peers/sb3_atari.py --algo A2C --own-defaults 4    # its own hyperparameters, 4 environments

For learning curves beside ours at equal steps: the same network, hyperparameters, schedule and optimiser. What differs:
stable-baselines3's wrappers (docs/atari-games.md), float32, and no value clipping, since stable-baselines3's form of it
takes the clipped error alone, which gives values that moved far no gradient; ours takes the larger of both errors. Our
PPO and A2C make 4 to 8 % more updates, in the place of rows of resets and of FIRE. Its DQN starts from PyTorch's own
weights, plays at random in all environments at once, and takes a time limit for an end; in ours rows of resets and of
FIRE, some 8 % of all, count for --learning-starts and --buffer-size.
"""

import importlib
from dataclasses import asdict, dataclass
from typing import Literal

import tyro
from plainrl_tools.common import ROOT, check, check_env, check_least, load


@dataclass
class Args:
    algo: Literal["PPO", "A2C", "DQN"] = "PPO"  # whose settings are those of ppo_atari.py, ...
    exp_name: str = ""  # part of the run folder's name; default: sb3_ppo, sb3_a2c or sb3_dqn
    env_id: str = "BreakoutNoFrameskip-v4"  # a game of ale-py, by its NoFrameskip id
    seed: int = 1  # seeds Python, NumPy, PyTorch and every environment
    total_timesteps: int = 500_000  # environment steps
    schedule_timesteps: int = 0  # the learning rate falls to zero over these; 0: total_timesteps
    buffer_size: int = 0  # steps that DQN's replay holds, 28,224 bytes each; 0: ours
    fast: bool = False  # the fast setting of docs/atari.md: Pong's, or Breakout's for all others
    rms_eps: float = 0.0  # of A2C's RMSprop; 0: ours
    own_defaults: int = 0  # above 0: the library's own defaults, and as many environments
    torch_threads: int = 1  # CPU threads of PyTorch; 0 leaves its own choice
    eval_episodes: int = 30  # games of the evaluation, one in each of as many environments
    until_goal: float | None = None  # minutes: end at time_to_return.py's goal or after this time
    runs_dir: str = "runs"  # the run folder is created in here


def ours(
    algo: str, env_id: str, total_timesteps: int, schedule_timesteps: int, fast: bool = False
) -> dict:
    """Defaults of our file as stable-baselines3's keywords. Its value loss is the squared error;
    that of our PPO is half of it, so vf_coef is halved."""
    from plainrl_tools.peers import FAST, FAST_PONG, identical_case

    flags = asdict(load(ROOT / "algos" / f"{algo.lower()}_atari.py").Args())
    if fast:
        flags |= FAST_PONG if env_id.startswith("Pong") else FAST
    settings = identical_case(env_id, algo, flags)
    if algo == "DQN":
        # ours falls from --learning-starts on, its own from 0: the same line, drawn back to 0, where it acts at random
        share, waits = flags["exploration_fraction"], flags["learning_starts"] / total_timesteps
        settings["exploration_fraction"] = waits + share
        settings["exploration_initial_eps"] += (flags["start_e"] - flags["end_e"]) * waits / share
        return settings
    assert flags["anneal_lr"], "the schedule below is ours with --anneal-lr"
    start, rollout = settings["learning_rate"], settings["n_envs"] * settings["n_steps"]

    def learning_rate(left: float) -> float:
        """It asks after a rollout, with the share of total_timesteps that is left then; ours counts from its start."""
        begun = (1 - left) * total_timesteps - rollout
        return start * (1 - max(begun, 0) / schedule_timesteps)

    settings["learning_rate"] = learning_rate
    if algo == "PPO":
        settings["clip_range_vf"] = None
    else:
        assert flags["rms_alpha"] == 0.99, "stable-baselines3's own"
    return settings


def evaluate(model, envs, episodes: int) -> list[float]:
    """Raw returns of each environment's first whole game, by draws from the policy or DQN's epsilon-greedy actions."""
    obs, returns = envs.reset(), {}
    while len(returns) < episodes:
        obs, _, _, infos = envs.step(model.predict(obs, deterministic=False)[0])
        for i, info in enumerate(infos):
            if "episode" in info:
                returns.setdefault(i, float(info["episode"]["r"]))
    return [returns[i] for i in range(episodes)]


def train(args: Args) -> dict:
    from plainrl_tools.peers import GOALS
    from sb3_ppo import first_seed, run
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    twice = f"--env-id {args.env_id} skips frames itself, and so do the wrappers"
    check("NoFrameskip" in args.env_id, twice)
    goal = args.until_goal is None or args.env_id in GOALS
    check(goal, f"--until-goal: {args.env_id} has no goal; these have: {', '.join(GOALS)}")
    importlib.import_module("ale_py")  # registers its games
    check_env(args.env_id)
    check_least(0, args, "buffer_size", "rms_eps", "own_defaults")
    args.exp_name = args.exp_name or f"sb3_{args.algo.lower()}"
    schedule = args.schedule_timesteps or args.total_timesteps
    flags = {
        "fast": "PPO",
        "rms_eps": "A2C",
        "buffer_size": "DQN",
        "schedule_timesteps": "PPO, A2C",
    }
    for name, algos in flags.items():
        known = not getattr(args, name) or args.algo in algos
        check(known, f"--{name.replace('_', '-')} is of {algos}, not of {args.algo}")
        alone = not (getattr(args, name) and args.own_defaults)
        check(alone, f"--{name.replace('_', '-')} changes what --own-defaults keeps; leave one out")
    words = "--schedule-timesteps: at least --total-timesteps, or the rate falls below zero"
    check(schedule >= args.total_timesteps, words)
    if args.own_defaults:
        settings = {"n_envs": args.own_defaults}
    else:
        settings = ours(args.algo, args.env_id, args.total_timesteps, schedule, args.fast)
    waits = settings.get("learning_starts", 0)
    words = f"--total-timesteps must be more than {waits}, where learning starts"
    check(args.total_timesteps > waits, words)

    def make_envs(number: int, seed: int):
        return VecFrameStack(make_atari_env(args.env_id, n_envs=number, seed=seed), 4)

    first = first_seed(args.seed)
    envs = make_envs(settings.pop("n_envs"), first)
    if args.algo == "DQN" and args.buffer_size:
        settings["buffer_size"] = args.buffer_size
    if args.algo == "A2C" and args.rms_eps:
        settings["rms_prop_eps"] = args.rms_eps

    def evaluation(model) -> list[float]:
        model.exploration_rate = load(ROOT / "algos" / "dqn_atari.py").Args().eval_e  # DQN's
        return evaluate(model, make_envs(args.eval_episodes, first + 2**30), args.eval_episodes)

    return run(args, args.algo, "CnnPolicy", settings, envs, evaluation)


if __name__ == "__main__":
    train(tyro.cli(Args))
