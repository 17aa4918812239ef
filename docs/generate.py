"""Bring the generated parts of the pages up to date.

    python docs/generate.py             # rewrite them
    python docs/generate.py --check     # change nothing; exit status 1 if one is out of date

Two things are generated. Text between `<!-- generated: NAME -->` and `<!-- end -->` comes from the function NAME below,
which reads the CSV files of benchmarks/ or the files of algos/. And a link whose text is code and whose target is a
line of a Python file, such as [`compute_gae`](../../algos/ppo.py#L190), leads to the first line with that code, or to
the definition of that name.

    python docs/generate.py --log runs/RUN_1 runs/RUN_2

writes benchmarks/studies/continuous/results/ppo_metrics.csv, the ranges of the metrics on the PPO page,
from the TensorBoard logs of two runs.
"""

import argparse
import ast
import csv
import json
import posixpath
import re
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
CODE_LINK = re.compile(r"\[`([^`\n]+)`\]\(([\w./-]+\.py)#L\d+\)")
METRICS = ROOT / "benchmarks/studies/continuous/results/ppo_metrics.csv"
BINS = 50  # of a run's steps, for the ranges of its metrics


def read(path: str) -> list[dict]:
    """The rows of a CSV file of benchmarks/ or of the one study that has it, such as results/classic.csv."""
    files = [*(ROOT / "benchmarks").glob(path), *(ROOT / "benchmarks/studies").glob(f"*/{path}")]
    (found,) = files
    with open(found, newline="") as file:
        return list(csv.DictReader(file))


def number(value: float, like: float | None = None) -> str:
    """About three digits, or as many decimals as the number `like` gets; thousands separated."""
    size = abs(value if like is None else like)
    if size < 1:
        return f"{value:.2g}"
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{value + 1e-9 * (value > 0):,.{decimals}f}"


def table(head: list[str], rows: list[list[str]], numeric: int) -> str:
    """A Markdown table whose columns from `numeric` on are numbers."""
    rule = ["---" if i < numeric else "--:" for i in range(len(head))]
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, rule, *rows]).replace("  |", " |")


def ours(scores: str, env_id: str, exp_name: str) -> str:
    (row,) = (
        row
        for row in read(f"curves/{scores}_scores.csv")
        if (row["env_id"], row["exp_name"]) == (env_id, exp_name)
    )
    mean = float(row["mean"])
    if row["seeds"] == "1":  # no interval
        return number(mean)
    mean, low, high = (number(float(row[key]), mean) for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def published(env_id: str, source: str) -> str:
    """What a source has published of PPO."""
    for row in read("published.csv"):
        if (row["env_id"], row["algorithm"], row["source"]) == (env_id, "PPO", source):
            steps = float(row["steps"]) / 1e6
            steps = "" if steps == 1 else f" ({steps:g}M)"
            mean = float(row["mean"])
            return f"{number(mean)} ± {number(float(row['spread']), mean)}{steps}"
    return ""


def best_published(env_id: str) -> str:
    """The highest published mean of PPO on a task, with its source."""
    rows = read("published.csv")
    rows = [row for row in rows if (row["env_id"], row["algorithm"]) == (env_id, "PPO")]
    source = max(rows, key=lambda row: float(row["mean"]))["source"]
    return f"{source}: {published(env_id, source)}"


def readme_results(_) -> str:
    tasks = [
        ("BipedalWalker-v3", "continuous", "ppo_continuous"),
        ("HalfCheetah-v5", "continuous", "ppo_continuous"),
        ("Walker2d-v5", "continuous", "ppo_continuous"),
        ("Hopper-v5", "continuous", "ppo_continuous"),
        ("LunarLanderContinuous-v3", "continuous", "ppo_continuous"),
        ("Swimmer-v5", "continuous", "ppo_continuous"),
        ("CartPole-v1", "classic", "ppo"),
    ]
    rows = [
        [env_id, ours(scores, env_id, file), best_published(env_id)]
        for env_id, scores, file in tasks
    ]
    return table(["task", "plainrl", "highest published"], rows, 1)


def ppo_results(_) -> str:
    tasks = [row for row in read("curves/continuous_scores.csv")]
    tasks = [row["env_id"] for row in tasks if row["exp_name"] == "ppo_continuous"]
    first = ["BipedalWalker-v3", "HalfCheetah-v5", "Walker2d-v5", "Hopper-v5", "Ant-v4"]
    sources = ["RL-Zoo", "Tianshou", "CleanRL"]
    rows = []
    for env_id in first + [task for task in tasks if task not in first]:
        cells = [published(env_id, source) for source in sources]
        if any(cells):
            rows.append([env_id, ours("continuous", env_id, "ppo_continuous"), *cells])
    for env_id in ("CartPole-v1", "LunarLander-v3", "Acrobot-v1", "MountainCar-v0"):
        cells = [published(env_id, source) for source in sources]
        rows.append([f"{env_id} (`ppo.py`)", ours("classic", env_id, "ppo"), *cells])
    return table(["task", "plainrl", *sources], rows, 1)


def millions(steps) -> str:
    return f"{round(float(steps) / 1e6, 2):g}M"


def task_name(env_id: str) -> str:
    return env_id.removesuffix("NoFrameskip-v4").replace("benchmarks.cartpole_pixels:", "")


def scored(env_id: str, words: str, scores: str, exp_name: str, best: bool = False) -> list[str]:
    """A row of a results table: what the runs of an experiment reached."""
    runs = [
        row
        for row in read(f"results/{scores}.csv")
        if (row["env_id"], row["exp_name"], row["metric"])
        == (env_id, exp_name, "best_return_mean" if best else "eval_return_mean")
    ]
    value = ours(scores, env_id, exp_name)
    if best:
        value = number(sum(float(run["value"]) for run in runs) / len(runs))
    steps = millions(max(int(run["step"]) for run in runs))
    return [task_name(env_id), words, "evaluation", steps, str(len(runs)), value]


def reported(env_id: str, algorithm: str, prefix: str = "") -> list[list[str]]:
    """Rows of a results table: what others have published."""
    rows = []
    for row in read("published.csv"):
        if (row["env_id"], row["algorithm"]) == (env_id, algorithm):
            mean = float(row["mean"])
            value = number(mean)
            if row["spread"]:
                value += f" ± {number(float(row['spread']), mean)}"
            words = prefix + row["source"]
            kind, steps = row["what"], millions(row["steps"])
            rows.append([task_name(env_id), words, kind, steps, "", value])
    return rows


RESULTS = ["task", "implementation", "kind", "steps", "runs", "return"]


def dqn_results(_) -> str:
    rows = []
    for env_id in ("CartPole-v1", "Acrobot-v1"):
        rows.append(scored(env_id, "plainrl, final weights", "classic", "dqn"))
        rows.append(scored(env_id, "plainrl, `best.pt`", "classic", "dqn", best=True))
        rows += reported(env_id, "DQN")
    return table(RESULTS, rows, 3)


def dqn_atari_results(_) -> str:
    game, pong = "BreakoutNoFrameskip-v4", "PongNoFrameskip-v4"
    rows = [
        scored(game, "plainrl, replay of 100,000", "breakout_dqn", "dqn_atari"),
        scored(game, "SB3, same settings", "breakout_dqn", "sb3_atari-dqn"),
        scored(game, "plainrl", "atari", "dqn_atari"),
        *reported(game, "DQN"),
        scored(pong, "plainrl, replay of 200,000", "atari", "dqn_atari"),
        *reported(pong, "DQN"),
    ]
    return table(RESULTS, rows, 3)


def pqn_results(_) -> str:
    env_id = "CartPole-v1"
    rows = [
        scored(env_id, "plainrl", "pqn", "pqn"),
        *reported(env_id, "PQN"),
    ]
    for game in ("BreakoutNoFrameskip-v4", "PongNoFrameskip-v4"):
        rows += reported(game, "PQN")
    return table(RESULTS, rows, 3)


def pqn_flags(_) -> str:
    return flags_of("pqn", "pqn_atari")


def reinforce_results(_) -> str:
    env_id, physics = "CartPole-v1", "envs:PhysicsCartPole-v0"
    rows = [
        scored(env_id, "`reinforce.py`", "classic", "reinforce"),
        scored(env_id, "`--baseline none`", "classic", "reinforce-baseline=none"),
        scored(env_id, "`ppo.py`", "classic", "ppo"),
        *reported(env_id, "PPO", "PPO, "),
        scored(physics, "`reinforce.py`", "classic", "reinforce"),
    ]
    return table(RESULTS, rows, 3)


def a2c_results(_) -> str:
    game, pong = "BreakoutNoFrameskip-v4", "PongNoFrameskip-v4"
    small = "`--rms-eps 1e-8`"
    rows = [
        scored(game, "plainrl, default flags", "breakout_a2c_rate", "a2c_atari-published"),
        scored(game, f"plainrl, {small}", "breakout_a2c", "a2c_atari-small-eps"),
        scored(game, "SB3, same settings", "breakout_a2c", "sb3_atari-a2c-small-eps"),
        scored(game, "SB3, as many updates", "breakout_a2c", "sb3_atari-a2c-small-eps-543k"),
        scored(game, f"plainrl, older, {small}", "atari", "a2c_eps1e-8"),
        scored(game, "plainrl, older", "atari", "a2c_atari"),
        *reported(game, "A2C"),
        scored(pong, f"plainrl, {small}", "pong_a2c", "a2c_atari-small-eps"),
        scored(pong, "SB3, same settings", "pong_a2c", "sb3_atari-a2c-small-eps"),
        *reported(pong, "A2C"),
    ]
    return table(RESULTS, rows, 3)


def ppo_atari_results(_) -> str:
    game, pong = "BreakoutNoFrameskip-v4", "PongNoFrameskip-v4"
    rows = [
        scored(game, "plainrl, `--no-clip-vloss`", "breakout_published", "ppo_atari"),
        scored(game, "SB3, same settings", "breakout_published", "sb3_atari-ppo"),
        scored(game, "plainrl, fast preset", "breakout_fast", "ppo_atari-fast"),
        scored(game, "plainrl, default flags", "atari", "ppo_atari"),
        scored(game, "plainrl, fast preset", "breakout_fast_2m", "ppo_atari-fast-2m"),
        *reported(game, "PPO"),
        scored(pong, "plainrl, `--no-clip-vloss`", "pong_published", "ppo_atari"),
        scored(pong, "SB3, same settings", "pong_published", "sb3_atari-ppo"),
        scored(pong, "plainrl, default flags", "pong", "ppo_atari"),
        scored(pong, "plainrl, Pong preset", "pong_fast", "ppo_atari-fast-pong-4m"),
        *reported(pong, "PPO"),
    ]
    return table(RESULTS, rows, 3)


def ppo_pixels_results(_) -> str:
    tasks = (
        "envs:CartPolePixels-v0",
        "CartPole-v1",
        "benchmarks.cartpole_pixels:Skip4-v0",
    )  # its old name
    rows = [scored(task, "`ppo_pixels.py`", "pixels", "ppo_pixels") for task in tasks]
    return table(RESULTS, rows, 3)


def ppo_mistakes(_) -> str:
    changes = [
        ("entropy coefficient too large", "--ent-coef 0.05", "large-bonus"),
        ("truncation treated as termination", "--no-bootstrap-truncation", "limit-as-end"),
        (
            "one gradient step for each rollout",
            "--num-minibatches 1 --update-epochs 1",
            "few-updates",
        ),
        ("rewards not scaled", "--no-norm-reward", "raw-rewards"),
        ("no clip", "--clip-coef 10", "no-clip"),
        ("none: the defaults", "", "as-it-is"),
        ("observations not standardised", "--no-norm-obs", "raw-observations"),
    ]
    returns = {}
    for row in read("results/symptoms.csv"):
        if row["metric"] == "eval_return_mean":
            returns.setdefault(row["exp_name"], []).append(float(row["value"]))
    rows = []
    for words, flags, name in changes:
        values = returns[f"ppo_continuous-{name}"]
        spread = f"{number(min(values))} to {number(max(values))}"
        flags = f"`{flags}`" if flags else ""
        rows.append([words, flags, number(sum(values) / len(values)), spread])
    return table(["change", "flags", "mean", "worst and best run"], rows, 2)


def difference(scores: str, env_id: str, exp_name: str, against: str) -> str:
    """The difference of two means over runs with the same seeds, and its interval."""
    for row in read(f"curves/{scores}_comparisons.csv"):
        if (row["env_id"], row["exp_name"], row["against"]) == (env_id, exp_name, against):
            values = [float(row[key]) for key in ("difference", "low", "high")]
            widest = max(values, key=abs)
            mean, low, high = (number(value, widest) for value in values)
            return f"{mean} [{low}, {high}]"
    raise ValueError(f"{scores}_comparisons.csv lacks {exp_name} against {against} on {env_id}")


def seeds_of(scores: str, env_id: str, exp_name: str) -> str:
    for row in read(f"curves/{scores}_scores.csv"):
        if (row["env_id"], row["exp_name"]) == (env_id, exp_name):
            return row["seeds"]
    raise ValueError(f"{scores}_scores.csv lacks {exp_name} on {env_id}")


def trpo_results(_) -> str:
    rows = []
    for env_id in ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Pendulum-v1"):
        one = "trust_region", env_id
        cells = [
            difference(*one, file, "ppo_continuous") for file in ("trpo_continuous", "ppo_penalty")
        ]
        rows.append(
            [env_id, seeds_of(*one, "trpo_continuous"), ours(*one, "ppo_continuous"), *cells]
        )
    return table(["task", "seeds", "PPO", "TRPO minus PPO", "penalty minus PPO"], rows, 1)


def rpo_results(_) -> str:
    tasks = [("Pendulum-v1", "rpo_paper", "-paper"), ("BipedalWalker-v3", "rpo_paper", "-paper")]
    others = (
        "HopperStand-v1",
        "FingerTurnHard-v1",
        "WalkerRun-v1",
        "Ant-v5",
        "Reacher-v5",
        "Pusher-v5",
    )
    tasks += [(env_id, "rpo_tasks", "-published") for env_id in others]
    tasks += [(env_id, "augmentation", "") for env_id in ("WalkerWalk-v1", "PendulumSwingup-v1")]
    rows = []
    for env_id, scores, tag in tasks:
        rpo, ppo = f"rpo_continuous{tag}", f"ppo_continuous{tag}"
        cells = [ours(scores, env_id, name) for name in (ppo, rpo)]
        settings = "the paper's" if tag else "defaults"
        gap = difference(scores, env_id, rpo, ppo)
        rows.append([env_id, settings, seeds_of(scores, env_id, rpo), *cells, gap])
    return table(["task", "settings", "seeds", "PPO", "RPO", "RPO minus PPO"], rows, 2)


def augmentation_results(_) -> str:
    rows = []
    for env_id in ("WalkerWalk-v1", "PendulumSwingup-v1"):
        one = "augmentation", env_id
        cells = [difference(*one, file, "ppo_continuous") for file in ("ppo_rad", "ppo_drac")]
        rows.append([env_id, seeds_of(*one, "ppo_rad"), ours(*one, "ppo_continuous"), *cells])
    return table(["task", "seeds", "PPO", "RAD minus PPO", "DrAC minus PPO"], rows, 1)


def curiosity_results(_) -> str:
    """Runs whose evaluation reaches a threshold, and the mean. RND and ICM are those of curiosity_ends."""
    ends = ("curiosity_ends",)
    car, arm = ("curiosity", "curiosity_second"), ("arm",)
    tasks = [
        ("MountainCarContinuous-v0", 90, car, "ppo_continuous"),
        ("MountainCar-v0", -110, car, "ppo"),
        ("envs:ArmReach-v0", 0.8, arm, "ppo_continuous"),
    ]
    rows = []
    for env_id, threshold, files, ppo in tasks:
        columns = [(ppo, files), ("ppo_rnd-no-bonus", files), ("ppo_rnd", ends), ("ppo_icm", ends)]
        row = [env_id, f"{threshold:g}"]
        for name, sources in columns:
            runs = [run for source in sources for run in read(f"results/{source}.csv")]
            wanted = env_id, name, "eval_return_mean"
            found = [
                run for run in runs if (run["env_id"], run["exp_name"], run["metric"]) == wanted
            ]
            values = [float(run["value"]) for run in found]
            solved = sum(value >= threshold for value in values)
            mean = sum(values) / len(values)
            row.append(f"{solved} of {len(values)} ({number(mean)})")
        rows.append(row)
    head = ["task", "solved at", "PPO", "RND, `--int-coef 0`", "RND", "ICM"]
    return table(head, rows, 1)


def shown(default) -> str:
    """A default as a reader would write it."""
    words = {True: "on", False: "off", None: "none", "": "empty"}
    if isinstance(default, bool | str | None):
        return words.get(default, default)
    return f"{default:,}" if isinstance(default, int) else f"{default:g}"


def fields(file: str) -> dict[str, tuple[str, str]]:
    """{flag: (default, help)} of a file's Args."""
    text = (ROOT / f"algos/{file}.py").read_text()
    (args,) = (x for x in ast.parse(text).body if isinstance(x, ast.ClassDef) and x.name == "Args")
    found = {}
    for field in args.body:
        if isinstance(field, ast.AnnAssign):
            line = text.splitlines()[field.value.lineno - 1]
            constant = isinstance(field.value, ast.Constant)
            default = shown(field.value.value) if constant else file  # exp_name is the file's name
            name = "--" + field.target.id.replace("_", "-")
            found[name] = default, line.partition("  # ")[2]
    return found


def flags_of(*files: str) -> str:
    """The flags of all these files, with the default in each."""
    columns = {file: fields(file) for file in files}
    words = {}
    for found in columns.values():
        for name, (_, text) in found.items():
            words.setdefault(name, re.sub(r"^(TD3|DDPG): ", "", text))
    rows = []
    for name, text in words.items():
        defaults = [column.get(name, ("",))[0] for column in columns.values()]
        cells = [f"`{default}`" if default else "" for default in defaults]
        rows.append([f"`{name}`", text.replace("|", "\\|"), *cells])
    return table(["flag", "meaning", *[f"`{file}.py`" for file in files]], rows, 2)


def flags_beyond_ppo(*files: str) -> str:
    """The flags of these files that ppo_continuous.py lacks, or has with another default, or that they lack."""
    columns = {file: fields(file) for file in ("ppo_continuous", *files)}
    texts = {}
    for found in columns.values():
        texts |= {
            name: re.sub(r"^(Penalty|RPO|RND|ICM|RAD|DrAC): ", "", text)
            for name, (_, text) in found.items()
        }
    rows = []
    for name, text in texts.items():
        defaults = [column.get(name, ("",))[0] for column in columns.values()]
        if name != "--exp-name" and len(set(defaults)) > 1:
            cells = [f"`{default}`" if default else "" for default in defaults]
            rows.append([f"`{name}`", text.replace("|", "\\|"), *cells])
    return table(["flag", "meaning", *[f"`{file}.py`" for file in columns]], rows, 2)


def trpo_flags(_) -> str:
    return flags_beyond_ppo("trpo_continuous", "ppo_penalty")


def rpo_flags(_) -> str:
    return flags_beyond_ppo("rpo_continuous")


def curiosity_flags(_) -> str:
    return flags_beyond_ppo("ppo_rnd", "ppo_icm")


def augmentation_flags(_) -> str:
    return flags_beyond_ppo("ppo_rad", "ppo_drac")


def ppo_flags(_) -> str:
    return flags_of("ppo_continuous", "ppo")


def off_policy_results(_) -> str:
    """SAC, TD3 and DDPG on Pendulum-v1, beside PPO after its own number of steps."""
    rows = []
    scores = [*read("curves/off_policy_scores.csv")]
    scores += [
        row
        for row in read("curves/continuous_scores.csv")
        if (row["env_id"], row["exp_name"]) == ("Pendulum-v1", "ppo_continuous")
    ]
    steps = {"ppo_continuous": "1M"}
    for row in scores:
        mean, low, high, worst = (
            number(float(row[key]), float(row["mean"]))
            for key in ("mean", "low", "high", "worst_run")
        )
        name = row["exp_name"]
        cells = [f"{mean} [{low}, {high}]", worst]
        rows.append([f"`{name}.py`", steps.get(name, "20k"), row["seeds"], *cells])
    return table(["file", "steps", "runs", "return", "worst run"], rows, 1)


def off_policy_speed(_) -> str:
    """Steps per second of the rounds, and the median ratio to stable-baselines3 in the same round."""
    speeds = {}
    for row in read("results/off_policy_speed.csv"):
        speeds.setdefault(row["implementation"], []).append(float(row["steps_per_second"]))
    peer = speeds["stable-baselines3, float32"]
    rows = []
    for name, values in speeds.items():
        ratio = median(value / baseline for value, baseline in zip(values, peer))
        rows.append([name, ", ".join(f"{value:.0f}" for value in values), f"{ratio:.2f}"])
    return table(["implementation", "steps per second in three rounds", "ratio"], rows, 1)


def sac_flags(_) -> str:
    return flags_of("sac_continuous")


def td3_flags(_) -> str:
    return flags_of("td3_continuous", "ddpg_continuous")


def dqn_flags(_) -> str:
    return flags_of("dqn", "dqn_pixels", "dqn_atari")


def reinforce_flags(_) -> str:
    return flags_of("reinforce")


def a2c_flags(_) -> str:
    return flags_of("a2c_atari")


def ppo_atari_flags(_) -> str:
    return flags_of("ppo_atari", "ppo_pixels")


def choose_minutes(_) -> str:
    """Steps, seconds and return of PPO and of a file with a replay buffer on three tasks."""
    files = [
        ("CartPole-v1", "ppo", "classic", "200k"),
        ("CartPole-v1", "dqn", "classic", "200k"),
        ("Acrobot-v1", "ppo", "classic", "200k"),
        ("Acrobot-v1", "dqn", "classic", "200k"),
        ("Pendulum-v1", "ppo_continuous", "continuous", "1M"),
        ("Pendulum-v1", "sac_continuous", "off_policy", "20k"),
    ]
    rows = []
    for env_id, file, scores, steps in files:
        for row in read(f"curves/{scores}_scores.csv"):
            if (row["env_id"], row["exp_name"]) == (env_id, file):
                seconds = number(float(row["wall_time_s"]), 100)
                cells = [steps, row["seeds"], f"{seconds} s", ours(scores, env_id, file)]
                rows.append([env_id, f"`{file}.py`", *cells])
    return table(["task", "file", "steps", "runs", "time of a run", "return"], rows, 2)


def cleanrl_settings(_) -> str:
    """ppo_continuous.py with its defaults and with the settings that CleanRL published for MuJoCo."""
    rows = []
    for env_id in ("HalfCheetah-v5", "Walker2d-v5", "Hopper-v5", "Ant-v5", "Reacher-v5"):
        published = ours("mujoco_published", env_id, "ppo_continuous-published")
        rows.append([env_id, ours("continuous", env_id, "ppo_continuous"), published])
    return table(["task", "plainrl's defaults", "CleanRL's settings"], rows, 1)


def study_scores(_) -> str:
    """The returns of the study in the tutorial."""
    rows = []
    names = {"annealed": "ppo_continuous", "constant": "ppo_continuous-no-anneal-lr"}
    for words, name in names.items():
        for row in read("curves/tutorial_study_scores.csv"):
            if row["exp_name"] == name:
                cells = [ours("tutorial_study", "Pendulum-v1", name)]
                cells += [number(float(row[key])) for key in ("worst_run", "best_run")]
                rows.append([f"`{name}`", words, row["seeds"], *cells])
    head = ["experiment", "learning rate", "seeds", "evaluation return", "worst run", "best run"]
    return table(head, rows, 2)


def study_comparison(_) -> str:
    """The comparison of the study in the tutorial."""
    rows = []
    for row in read("curves/tutorial_study_comparisons.csv"):
        gap = difference("tutorial_study", row["env_id"], row["exp_name"], row["against"])
        rows.append([f"`{row['exp_name']}`", f"`{row['against']}`", gap, f"{float(row['p']):.2g}"])
    return table(["experiment", "against", "mean difference", "p"], rows, 2)


def ppo_metrics(text: str) -> str:
    """The table as it is, with new ranges in its last two columns."""
    values = {}
    for row in read("results/ppo_metrics.csv") if METRICS.exists() else []:
        values.setdefault((row["env_id"], row["metric"]), []).append(float(row["value"]))
    lines = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        metric = cells[0].strip("` ")
        for column, env_id in ((2, "BipedalWalker-v3"), (3, "HalfCheetah-v5")):
            if found := values.get((env_id, metric)):
                cells[column] = f"{number(min(found))} to {number(max(found))}"
        lines.append(f"| {' | '.join(cells)} |\n" if metric in METRIC_NAMES else line + "\n")
    return "".join(lines)


METRIC_NAMES = (
    "charts/episodic_return",
    "charts/episodic_length",
    "charts/SPS",
    "charts/learning_rate",
    "losses/policy_loss",
    "losses/value_loss",
    "losses/entropy",
    "losses/approx_kl",
    "losses/clipfrac",
    "losses/explained_variance",
)
PARTS = (readme_results, ppo_results, ppo_mistakes, ppo_flags, ppo_metrics, sac_flags, td3_flags)
PARTS += (off_policy_results, off_policy_speed)
PARTS += (dqn_results, dqn_atari_results, dqn_flags, reinforce_results, reinforce_flags)
PARTS += (pqn_results, pqn_flags)
PARTS += (a2c_results, a2c_flags, ppo_atari_results, ppo_pixels_results, ppo_atari_flags)
PARTS += (trpo_results, trpo_flags, rpo_results, rpo_flags, curiosity_results, curiosity_flags)
PARTS += (augmentation_results, augmentation_flags)
PARTS += (choose_minutes, cleanrl_settings, study_scores, study_comparison)
GENERATED = {part.__name__: part for part in PARTS}


def line_of(code: str, path: str) -> int | None:
    """The first line of a file with this code, or the one that defines this name."""
    lines = (ROOT / path).read_text().splitlines()
    if re.fullmatch(r"\w+(\.\w+)?", code):
        name = code.split(".")[-1]
        for pattern in (rf"(def|class) {name}\b", rf"\s+def {name}\b", rf"\s*{name}(: [^=]+)? = "):
            for number, line in enumerate(lines, 1):
                if re.match(pattern, line):
                    return number
    return next((number for number, line in enumerate(lines, 1) if code in line), None)


def renew(page: Path) -> tuple[str, list[str]]:
    """The page's text with its generated parts renewed, and what could not be."""
    where = page.relative_to(ROOT).as_posix()
    problems = []

    def link(match) -> str:
        code, target = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(where), target))
        line = line_of(code, path) if (ROOT / path).exists() else None
        if line is None:
            problems.append(f"{where}: {path} has no line with {code}")
            return match.group()
        return f"[`{code}`]({target}#L{line})"

    def block(match) -> str:
        start, name, text, end = match.groups()
        if name not in GENERATED:
            problems.append(f"{where}: docs/generate.py has no function {name}")
            return match.group()
        return start + GENERATED[name](text) + end

    return CODE_LINK.sub(link, BLOCK.sub(block, page.read_text())), problems


def log(runs: list[Path]) -> None:
    """Write the means of every metric over bins of the runs' steps."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = []
    for run in runs:
        config = json.loads((run / "config.json").read_text())
        events = EventAccumulator(str(run), size_guidance={"scalars": 0})
        events.Reload()
        width = config["total_timesteps"] / BINS
        for metric in METRIC_NAMES:
            bins = {}
            for event in events.Scalars(metric):
                bins.setdefault(min(int(event.step / width), BINS - 1), []).append(event)
            for points in bins.values():
                mean = sum(point.value for point in points) / len(points)
                key = config["args"]["exp_name"], config["env_id"], config["seed"]
                rows.append([*key, points[-1].step, metric, f"{mean:.6g}", config["commit"]])
    with METRICS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["exp_name", "env_id", "seed", "step", "metric", "value", "commit"])
        writer.writerows(rows)
    print(f"{METRICS.relative_to(ROOT)}: {len(rows)} rows")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, tell what is old")
    parser.add_argument("--log", nargs="+", type=Path, help="run folders, for ppo_metrics.csv")
    args = parser.parse_args()
    if args.log:
        log(args.log)
    status = 0
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text, problems = renew(page)
        for problem in problems:
            print(problem, file=sys.stderr)
            status = 1
        if text != page.read_text():
            print(f"{page.relative_to(ROOT)}: {'out of date' if args.check else 'renewed'}")
            if args.check:
                status = 1
            else:
                page.write_text(text)
    return status


if __name__ == "__main__":
    sys.exit(main())
