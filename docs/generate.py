"""Bring the generated parts of the pages up to date.

    python docs/generate.py             # rewrite them
    python docs/generate.py --check     # change nothing; exit status 1 if one is out of date

Two things are generated. Text between `<!-- generated: NAME -->` and `<!-- end -->` comes from the function NAME below,
which reads the CSV files of benchmarks/ or the files of algos/. Words after the name are its arguments: `flags_of dqn`
has the flags of dqn.py, `tables_of SET` the tables that scripts/plot.py prints of results/SET.csv. And a link whose
text is code and whose target is a line of a Python file, such as [`compute_gae`](../../algos/ppo.py#L190), leads to the
first line with that code, or to the definition of that name.

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
from functools import cache
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))  # plot.py and plainrl_tools
BLOCK = re.compile(r"(<!-- generated: (\w+)([ \w]*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
CODE_LINK = re.compile(r"\[`([^`\n]+)`\]\(([\w./-]+\.py)#L\d+\)")
METRICS = ROOT / "benchmarks/studies/continuous/results/ppo_metrics.csv"
BINS = 50  # of a run's steps, for the ranges of its metrics


def find(path: str) -> Path:
    """A CSV file of benchmarks/ or of the one study that has it, such as results/classic.csv."""
    files = [*(ROOT / "benchmarks").glob(path), *(ROOT / "benchmarks/studies").glob(f"*/{path}")]
    (found,) = files
    return found


def read(path: str) -> list[dict]:
    with open(find(path), newline="") as file:
        return list(csv.DictReader(file))


@cache
def statistics_of(name: str) -> tuple[list[dict], list[dict], str]:
    """The scores and the comparisons of results/NAME.csv as scripts/plot.py has them, and its tables."""
    import plot
    from plainrl_tools import compare, results

    options = plot.Options(())
    rows = results.read_csv(find(f"results/{name}.csv"))
    rows, metric = results.select(name, rows, options)
    missing = results.problems(rows, metric)
    if missing:
        raise ValueError(f"{name} is incomplete: {missing}")
    scores = compare.score_table(rows, metric, options)
    pairs = [] if metric == "sps" else compare.comparison_table(rows, metric, options)
    text = compare.tables_text(scores, pairs, metric, [], options)
    return scores, pairs, text.replace(f"{compare.COVERAGE}\n\n", "")  # once a page


def tables_of(name: str) -> str:
    return statistics_of(name)[2]


def scores_of(name: str) -> list[dict]:
    return statistics_of(name)[0]


def comparisons_of(name: str) -> list[dict]:
    return statistics_of(name)[1]


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
        row for row in scores_of(scores) if (row["env_id"], row["exp_name"]) == (env_id, exp_name)
    )
    mean = float(row["mean"])
    if row["seeds"] == 1:  # no interval
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
    tasks = [row for row in scores_of("continuous")]
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


def c51_results(_) -> str:
    env_id = "CartPole-v1"
    rows = [
        scored(env_id, "`c51.py`, final weights", "c51", "c51"),
        scored(env_id, "`c51.py`, `best.pt`", "c51", "c51", best=True),
        scored(env_id, "`dqn.py`, final weights", "classic", "dqn"),
        scored(env_id, "`dqn.py --learning-rate 2.5e-4`", "c51", "dqn-learning-rate=2.5e-4"),
        *reported(env_id, "C51", "C51, "),
    ]
    for game in ("BreakoutNoFrameskip-v4", "PongNoFrameskip-v4"):
        rows += reported(game, "C51", "C51, ")
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


def log_table(_) -> str:
    """What the log of PPO shows when one flag is far off, from the best evaluation to the worst."""
    changes = {
        "as-it-is": "none",
        "raw-observations": "`--no-norm-obs`",
        "large-learning-rate": "`--learning-rate 0.01`",
        "no-clip": "`--clip-coef 10`",
        "raw-rewards": "`--no-norm-reward`",
        "narrow-start": "`--init-std 0.02`",
        "short-sight": "`--gamma 0.5`",
        "few-updates": "`--num-minibatches 1 --update-epochs 1`",
        "small-learning-rate": "`--learning-rate 2.5e-5`",
        "limit-as-end": "`--no-bootstrap-truncation`",
        "large-bonus": "`--ent-coef 0.05`",
    }
    metrics = ["entropy", "approx_kl", "explained_variance", "value_loss"]
    values = {}
    for row in read("results/symptoms.csv"):
        key = row["exp_name"].removeprefix("ppo_continuous-"), row["metric"]
        values.setdefault(key, []).append(float(row["value"]))
    rows = []
    for case, words in changes.items():
        scores = values[case, "eval_return_mean"]
        cells = [words, number(sum(scores) / len(scores))]
        for metric in metrics:
            low, high = (
                f"{value:.2g}" for value in sorted(values[case, metric])[:: len(scores) - 1]
            )
            cells.append(low if low == high else f"{low} to {high}")
        rows.append((sum(scores), cells))
    rows = [cells for _, cells in sorted(rows, key=lambda row: -row[0])]
    return table(["flag", "return", *(f"`{metric}`" for metric in metrics)], rows, 1)


CART, ENDS = "pitfalls.csv", "#done-is-stored-late-or-cleared-first"
PITFALLS = [  # title, link, CSV file, experiments without and with the mistake, check of the probe
    (
        "truncation treated as termination",
        "#truncation-is-treated-as-termination",
        "rpo_study_defaults.csv",
        ("ppo_continuous-defaults", "ppo_continuous-defaults-no-bootstrap-truncation"),
        "`gae-inputs`",
    ),
    (
        "autoreset steps trained on",
        "#autoreset-steps-are-trained-on",
        CART,
        ("ppo", "autoreset_trained"),
        "`reset-rows`",
    ),
    (
        "GAE without its mask",
        "#gae-runs-on-into-the-next-episode",
        CART,
        ("ppo", "gae_unmasked"),
        "`gae`",
    ),
    ("`done` one step late", ENDS, CART, ("ppo", "done_late"), "`gae-inputs`"),
    ("`done` cleared first", ENDS, CART, ("ppo", "done_reset"), "`gae-inputs`"),
    (
        "(n,) minus (n, 1)",
        "#n-minus-n-1-is-n-n",
        CART,
        ("ppo-mb16", "ratio_matrix"),
        "`rows-are-independent`",
    ),
    (
        "log-probability of another sample",
        "#the-ratio-does-not-start-at-1",
        CART,
        ("ppo", "other_sample"),
        "`first-ratio`",
    ),
    (
        "value clipped around the return",
        "#the-value-is-clipped-around-the-return",
        CART,
        ("ppo-clip-vloss", "clipped_return"),
        "`value-loss`",
    ),
    (
        "entropy without the squash correction",
        "#the-entropy-of-a-squashed-action",
        "ablations.csv",
        ("ppo_squashed-short-ent-coef=0.05", "uncorrected_squash-short-ent-coef=0.05"),
        "",
    ),
    (
        "5 gradient steps, not 160",
        "#too-few-updates",
        "ablations.csv",
        ("ppo_continuous-short", "ppo_continuous-one-batch"),
        "",
    ),
    (
        "critic with a learning rate of 1e-5",
        "#a-critic-that-learns-too-slowly",
        CART,
        ("ppo", "slow_critic"),
        "(`annealing`)",
    ),
    (
        "wrapper in the evaluation only",
        "#a-wrapper-in-training-or-evaluation-only",
        CART,
        ("ppo", "reordered_evaluation"),
        "`wrappers-reach-training`",
    ),
    (
        "evaluation with fresh statistics",
        "#an-evaluation-with-fresh-statistics",
        CART,
        ("ppo", "fresh_statistics"),
        "(`evaluation-returns`)",
    ),
    (
        "one seed for all environments",
        "#all-environments-have-one-seed",
        CART,
        ("ppo", "one_seed"),
        "`seeds`",
    ),
    (
        "reset before each rollout",
        "#all-environments-are-reset-before-each-rollout",
        "ablations.csv",
        ("ppo_continuous-short", "reset_rollouts-short"),
        "`no-resets-between-rollouts`",
    ),
    (
        "one draw of epsilon",
        "#one-draw-of-epsilon-for-all-environments",
        CART,
        ("dqn", "one_epsilon"),
        "`exploration`",
    ),
    (
        "target network never updated",
        "#a-target-network-that-is-never-updated",
        CART,
        ("dqn", "target_at_ends"),
        "`target-network`",
    ),
]
OF_THE_EVALUATION = ("reordered_evaluation", "fresh_statistics")  # training is right


def pitfalls_costs(_) -> str:
    """What each mistake costs. On CartPole-v1 that is the training return over the whole run."""
    rows = []
    for words, link, file, names, check in PITFALLS:
        in_training = file == CART and names[1] not in OF_THE_EVALUATION
        metric = "charts/episodic_return" if in_training else "eval_return_mean"
        cells = [f"[{words}]({link})"]
        found = [row for row in read(f"results/{file}") if row["metric"] == metric]
        for name in names:
            runs = {}
            for row in found:
                if row["exp_name"] == name:
                    runs.setdefault(row["seed"], []).append(float(row["value"]))
            scores = [sum(values) / len(values) for values in runs.values()]
            low, high = number(min(scores)), number(max(scores))
            spread = "" if low == high else f" ({low} to {high})"
            cells.append(number(sum(scores) / len(scores)) + spread)
        task = "CartPole-v1" if file == CART else "Pendulum-v1"
        rows.append([*cells, f"{task}, {'training' if in_training else 'evaluation'}", check])
    head = ["mistake", "right", "with the mistake", "return in", "check"]
    text = table(head, rows, 1)
    return text.replace("| --: | --: | --: | --: |", "| --: | --: | --- | --- |")  # two numbers


def difference(scores: str, env_id: str, exp_name: str, against: str) -> str:
    """The difference of two means over runs with the same seeds, and its interval."""
    for row in comparisons_of(scores):
        if (row["env_id"], row["exp_name"], row["against"]) == (env_id, exp_name, against):
            values = [float(row[key]) for key in ("difference", "low", "high")]
            widest = max(values, key=abs)
            mean, low, high = (number(value, widest) for value in values)
            return f"{mean} [{low}, {high}]"
    raise ValueError(f"results/{scores}.csv lacks {exp_name} against {against} on {env_id}")


def seeds_of(scores: str, env_id: str, exp_name: str) -> str:
    for row in scores_of(scores):
        if (row["env_id"], row["exp_name"]) == (env_id, exp_name):
            return str(row["seeds"])
    raise ValueError(f"results/{scores}.csv lacks {exp_name} on {env_id}")


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
            try:
                default = shown(ast.literal_eval(field.value))
            except ValueError:
                default = file  # exp_name is the file's name
            name = "--" + field.target.id.replace("_", "-")
            found[name] = default, line.partition("  # ")[2]
    return found


def meaning(flag: str, texts: list[str]) -> str:
    """What a flag means in several files: their common text, or the most frequent one."""
    differing = {
        "--env-id": "the environment; the file's first lines name the spaces that it takes",
        "--learning-rate": "of Adam; in `a2c_atari` of RMSprop, in PQN of RAdam",
    }
    if len(set(texts)) > 1 and flag in differing:
        return differing[flag]
    return max(dict.fromkeys(texts), key=texts.count)


def flags_of(*files: str) -> str:
    """The flags of all these files, with the default in each."""
    columns = {file: fields(file) for file in files}
    words = {}
    for found in columns.values():
        for name, (_, text) in found.items():
            words.setdefault(name, []).append(re.sub(r"^(TD3|DDPG): ", "", text))
    rows = []
    for name, texts in words.items():
        text = meaning(name, texts)
        defaults = [column.get(name, ("",))[0] for column in columns.values()]
        cells = [f"`{default}`" if default else "" for default in defaults]
        rows.append([f"`{name}`", text.replace("|", "\\|"), *cells])
    return table(["flag", "meaning", *[f"`{file}.py`" for file in files]], rows, 2)


def flags_beyond(parent: str, *files: str) -> str:
    """The flags of these files that their parent lacks, or has with another default, or that they lack."""
    columns = {file: fields(file) for file in (parent, *files)}
    texts = {}
    for found in columns.values():
        texts |= {
            name: re.sub(r"^(Penalty|RPO|RND|ICM|RAD|DrAC|LSTM|C51): ", "", text)
            for name, (_, text) in found.items()
        }
    rows = []
    for name, text in texts.items():
        defaults = [column.get(name, ("",))[0] for column in columns.values()]
        if name != "--exp-name" and len(set(defaults)) > 1:
            cells = [f"`{default}`" if default else "" for default in defaults]
            rows.append([f"`{name}`", text.replace("|", "\\|"), *cells])
    return table(["flag", "meaning", *[f"`{file}.py`" for file in columns]], rows, 2)


def seeds_speed(_) -> str:
    """Steps per second of single seeds and of several in a process: medians over rounds."""
    speeds = {}
    for row in read("results/seeds.csv"):
        speeds.setdefault((row["env_id"], row["exp_name"]), []).append(float(row["value"]))
    rows = []
    for env_id in dict.fromkeys(env_id for env_id, _ in speeds):
        single = median(speeds[env_id, "ppo_continuous"])
        five = median(speeds[env_id, "ppo_continuous_seeds-5"])
        rows.append([env_id, number(single), number(five), f"{five / single:.1f}"])
    head = ["task", "one seed a process", "five seeds a process", "ratio"]
    return table(head, rows, 1)


def masks_results(_) -> str:
    rows = []
    for task, masks in (("Switchboard-v0", "yes"), ("SwitchboardNoMask-v0", "no")):
        one = "masks", f"envs:{task}", "ppo_multidiscrete"
        rows.append([task, masks, seeds_of(*one), ours(*one)])
    return table(["task", "masks", "runs", "return"], rows, 2)


def lstm_results(_) -> str:
    """Each file with an LSTM beside its parent, which has no memory."""
    rows = []
    for row in sorted(scores_of("lstm"), key=lambda row: row["env_id"]):
        mean, low, high, worst = (
            number(float(row[key]), float(row["mean"]))
            for key in ("mean", "low", "high", "worst_run")
        )
        name, _, tag = row["exp_name"].partition("-")
        settings = "RL-Zoo's" if tag == "zoo" else "defaults"
        task = row["env_id"].removeprefix("envs:")
        cells = [str(row["seeds"]), f"{mean} [{low}, {high}]", worst]
        rows.append([task, settings, f"`{name}.py`", *cells])
    return table(["task", "settings", "file", "runs", "return", "worst run"], rows, 3)


def off_policy_results(_) -> str:
    """SAC, TD3 and DDPG on Pendulum-v1, beside PPO after its own number of steps."""
    rows = []
    scores = [row for row in scores_of("off_policy") if row["env_id"] == "Pendulum-v1"]
    scores += [
        row
        for row in scores_of("continuous")
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
        rows.append([f"`{name}.py`", steps.get(name, "20k"), str(row["seeds"]), *cells])
    return table(["file", "steps", "runs", "return", "worst run"], rows, 1)


def off_policy_peers(_) -> str:
    """SAC and TD3 on MuJoCo tasks beside stable-baselines3's with the same settings."""
    peers = {"sac_continuous": "sb3_sac", "td3_continuous": "sb3_sac-td3"}
    rows = []
    for pair in comparisons_of("off_policy"):
        name, against = pair["exp_name"], pair["against"]
        difference, low, high = pair["difference"], pair["low"], pair["high"]
        if name in peers.values():  # the other way round
            name, against = against, name
            difference, low, high = -difference, -high, -low
        if peers.get(name) != against:
            continue
        scores = [
            row
            for exp_name in (name, against)
            for row in scores_of("off_policy")
            if (row["env_id"], row["exp_name"]) == (pair["env_id"], exp_name)
        ]
        (reference,) = (float(row["mean"]) for row in scores if row["exp_name"] == against)
        verdict = "not worse" if low >= -0.1 * reference else "underpowered"
        verdict = "worse" if high < 0 else verdict
        cells = [ours("off_policy", pair["env_id"], one) for one in (name, against)]
        difference, low, high = (number(x, difference) for x in (difference, low, high))
        cells += [f"{difference} [{low}, {high}]", verdict]
        rows.append([pair["env_id"], f"`{name}.py`", *cells])
    head = ["task", "file", "plainrl", "stable-baselines3", "difference", "verdict"]
    return table(head, sorted(rows), 2)


def steps_or_minutes(_) -> str:
    """Steps and minutes until a training return on HalfCheetah-v5 was first logged: medians over seeds."""
    from plainrl_tools import results

    files = [("off_policy.csv", "sac_continuous"), ("time_to_return.csv", "ppo_continuous")]
    rows = []
    for file, exp_name in files:
        found = results.read_csv(find(f"results/{file}"))
        key = ("HalfCheetah-v5", exp_name)
        returns = results.curves_of(found, results.CURVE)[key]
        seconds = results.curves_of(found, results.CLOCK)[key]
        cells = [f"`{exp_name}.py`", str(len(returns))]
        for goal in (1000, 2000):
            reached = []
            for seed, curve in returns.items():
                step = min(step for step, value in curve if value >= goal)
                reached.append((step, dict(seconds[seed])[step] / 60))
            steps, minutes = (median(column) for column in zip(*reached))
            cells += [f"{steps:,.0f}", f"{minutes:.1f}"]
        rows.append(cells)
    head = ["file", "runs", "steps to 1,000", "minutes", "steps to 2,000", "minutes"]
    return table(head, rows, 1)


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
        for row in scores_of(scores):
            if (row["env_id"], row["exp_name"]) == (env_id, file):
                seconds = number(float(row["wall_time_s"]), 100)
                cells = [steps, str(row["seeds"]), f"{seconds} s", ours(scores, env_id, file)]
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
        for row in scores_of("tutorial_study"):
            if row["exp_name"] == name:
                cells = [ours("tutorial_study", "Pendulum-v1", name)]
                cells += [number(float(row[key])) for key in ("worst_run", "best_run")]
                rows.append([f"`{name}`", words, str(row["seeds"]), *cells])
    head = ["experiment", "learning rate", "seeds", "evaluation return", "worst run", "best run"]
    return table(head, rows, 2)


def study_comparison(_) -> str:
    """The comparison of the study in the tutorial."""
    rows = []
    for row in comparisons_of("tutorial_study"):
        gap = difference("tutorial_study", row["env_id"], row["exp_name"], row["against"])
        rows.append([f"`{row['exp_name']}`", f"`{row['against']}`", gap, f"{float(row['p']):.2g}"])
    return table(["experiment", "against", "mean difference", "p"], rows, 2)


def ppo_updates(_) -> str:
    """PPO on Pendulum-v1 with rollouts of 2,048 samples, by environments and gradient steps."""
    variants = [
        ("64 x 32", 160, "ppo_continuous-short"),
        ("8 x 256", 160, "ppo_continuous-long"),
        ("64 x 32", 40, "ppo_continuous-one-batch-40"),
        ("64 x 32", 5, "ppo_continuous-one-batch"),
    ]
    rows = []
    for shape, steps, name in variants:
        values = [
            float(row["value"])
            for row in read("results/ablations.csv")
            if (row["exp_name"], row["metric"]) == (name, "eval_return_mean")
        ]
        mean, worst, best = (
            number(x) for x in (sum(values) / len(values), min(values), max(values))
        )
        rows.append([shape, str(steps), str(len(values)), mean, f"{worst} to {best}"])
    head = ["environments x steps", "gradient steps for each rollout", "runs", "return"]
    return table([*head, "worst and best run"], rows, 1)


def rpo_returns() -> dict[str, list[float]]:
    """{experiment: evaluation returns on Pendulum-v1} of the RPO study. Of an experiment that two files have, the
    later file counts, as in benchmarks/studies/rpo/analyse.py."""
    folder = ROOT / "benchmarks/studies/rpo/results"
    found = {}
    for file in [folder / "rpo_paper.csv", *sorted(folder.glob("rpo_study*.csv"))]:
        returns = {}
        for row in read(f"results/{file.name}"):
            if (row["env_id"], row["metric"]) == ("Pendulum-v1", "eval_return_mean"):
                returns.setdefault(row["exp_name"], []).append(float(row["value"]))
        found |= returns
    return found


def rpo_settings(_) -> str:
    """PPO, PPO with an entropy coefficient, and RPO, with and without the time-limit bug."""
    bug = "-no-bootstrap-truncation"
    settings = [
        ("bootstrapped", "the paper's", "paper", ""),
        ("bootstrapped", "plainrl's", "defaults", ""),
        ("termination", "the paper's", "paper", bug),
        ("termination", "the paper's, 64 x 32 steps", "paper-short", bug),
        ("termination", "plainrl's", "defaults", bug),
        ("termination", "plainrl's, `--gamma 0.99 --norm-adv`", "defaults-both", bug),
        ("termination", "the same with `--clip-vloss`", "defaults-three", bug),
    ]
    files = [("ppo_continuous", ""), ("ppo_continuous", "-ent-coef=0.05"), ("rpo_continuous", "")]
    returns = rpo_returns()
    rows = []
    for limit, words, setting, flag in settings:
        cells = []
        for file, extra in files:
            values = returns.get(f"{file}-{setting}{flag}{extra}", [])
            learned = sum(value > -400 for value in values)
            mean = number(sum(values) / len(values)) if values else ""
            cells.append(f"{mean} ({learned} of {len(values)})" if values else "not run")
        rows.append([limit, words, *cells])
    head = ["truncation", "settings", "PPO", "PPO, entropy coefficient 0.05", "RPO"]
    return table(head, rows, 2)


def trust_region_scores(_) -> str:
    """Clip, penalty and trust region on four tasks."""
    files = ("ppo_continuous", "ppo_penalty", "trpo_continuous")
    rows = []
    for env_id in ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Pendulum-v1"):
        cells = [ours("trust_region", env_id, file) for file in files]
        rows.append([env_id, seeds_of("trust_region", env_id, files[0]), *cells])
    return table(["task", "seeds", "clip (PPO)", "penalty", "trust region (TRPO)"], rows, 1)


def penalty_updates(_) -> str:
    """Collapses and large updates of the KL penalty on Pendulum-v1, seeds 1 to 5."""
    variants = {
        "halved, as in the paper": "ppo_penalty-paper",
        "halved, rollouts of whole episodes": "ppo_penalty-paper-whole-episodes",
        "halved, `--kl-target 0.001`": "ppo_penalty-paper-small-target",
        "multiplied by 0.84, the default": "ppo_penalty",
    }
    chosen = [
        row
        for row in read("results/penalty_kl.csv")
        if row["env_id"] == "Pendulum-v1" and int(row["seed"]) <= 5
    ]
    returns = {}
    for row in read("results/penalty_pendulum.csv"):
        if row["metric"] == "eval_return_mean":
            returns.setdefault(row["exp_name"], []).append(float(row["value"]))
    rows = []
    for words, name in variants.items():
        runs = [row for row in chosen if row["exp_name"] == name]
        fallen = sum(bool(run["first_fall"]) for run in runs)
        large, updates = (sum(int(run[key]) for run in runs) for key in ("above", "updates"))
        cells = [f"{fallen} of {len(runs)}", f"{large} of {updates:,}"]
        mean = number(sum(returns[name]) / len(returns[name]))
        rows.append([words, *cells, mean])
    head = ["beta after a small KL", "runs that collapse", "updates above 0.1 nats", "return"]
    return table(head, rows, 1)


def arm_results(_) -> str:
    """Successful runs on ArmReach-v0 in two samples of seeds."""
    variants = [
        ("PPO", "ppo_continuous"),
        ("RND", "ppo_rnd"),
        ("RND without the intrinsic reward", "ppo_rnd-no-bonus"),
        ("ICM", "ppo_icm"),
    ]
    rows = []
    for words, name in variants:
        cells = []
        for file in ("arm", "arm_second"):
            values = [
                float(row["value"])
                for row in read(f"results/{file}.csv")
                if (row["exp_name"], row["metric"]) == (name, "eval_return_mean")
            ]
            solved = sum(value >= 0.8 for value in values)
            mean = number(sum(values) / len(values), 1) if values else ""
            cells.append(f"{solved} of {len(values)} ({mean})" if values else "not run")
        rows.append([words, *cells])
    return table(["algorithm", "seeds 1 to 10", "seeds 11 to 20"], rows, 1)


def augmentation_scores(_) -> str:
    """PPO, RPO, RAD and DrAC on two tasks of dm_control."""
    files = ("ppo_continuous", "rpo_continuous", "ppo_rad", "ppo_drac")
    rows = []
    for env_id in ("WalkerWalk-v1", "PendulumSwingup-v1"):
        cells = [ours("augmentation", env_id, file) for file in files]
        rows.append([env_id, seeds_of("augmentation", env_id, files[0]), *cells])
    return table(["task", "seeds", "PPO", "RPO", "RAD", "DrAC"], rows, 1)


def gpu_speed(_) -> str:
    """Steps per second of the Atari files on an H200 and on eight cores of its machine."""
    speeds = {}
    for row in read("results/gpu_h200.csv"):
        if row["metric"] == "steps/s":
            key = row["part"], row["name"], row["device"]
            speeds.setdefault(key, []).append(float(row["value"]))
    rows = []
    for file in ("ppo_atari", "a2c_atari", "dqn_atari"):
        sides = [("speed", "cpu"), ("speed", "cuda"), ("speed compiled", "cuda")]
        means = [sum(speeds[part, file, where]) for part, where in sides]  # measured once each
        peers = []
        for where in ("cpu", "cuda"):  # the faster of two ways to step the environments
            ways = [
                speeds.get(("speed peer", f"{file}, {way}", where), [0])
                for way in ("one process", "a process each")
            ]
            peers.append(max(sum(way) / len(way) for way in ways))
        rows.append([f"`{file}.py`", *(number(value) for value in [*means, *peers])])
    return table(["file", "CPU", "CUDA", "CUDA, `--compile`", "SB3, CPU", "SB3, CUDA"], rows, 1)


def scaling_speed(_) -> str:
    """Steps per second with Ray's runners and with ranks, by the wait of a step."""
    rollout = 16 * 32  # environments x steps of an iteration
    rows = []
    found = [row for row in read("results/scaling.csv") if row["environments"] == "16"]
    for words, key in (("runners", "runners"), ("ranks", "ranks")):
        for workers in ("1", "2", "4", "8", "16"):
            cells = []
            for wait in ("0", "5", "20"):
                speed = [
                    rollout / float(row["seconds"])
                    for row in found
                    if row[key] == workers and row["wait_ms"] == wait
                ]
                cells.append(number(speed[0], 100) if speed else "")
            if any(cells):
                rows.append([f"{workers} {words if workers != '1' else words[:-1]}", *cells])
    return table(["", "0 ms", "5 ms", "20 ms"], rows, 1)


def files_of_algos() -> list[str]:
    return sorted(path.stem for path in (ROOT / "algos").glob("*.py") if path.stem != "__init__")


def choices(file: str) -> dict[str, list[str]]:
    """{flag: values} of the flags of a file that take one of a few values."""
    tree = ast.parse((ROOT / f"algos/{file}.py").read_text())
    (args,) = (x for x in tree.body if isinstance(x, ast.ClassDef) and x.name == "Args")
    found = {}
    for field in args.body:
        kind = getattr(field, "annotation", None)
        if isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "Literal":
            values = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
            name = "--" + field.target.id.replace("_", "-")
            found[name] = [str(value.value) for value in values]
    return found


def variants() -> dict[str, set[str]]:
    """{file: its variants and their variants}, by FILES in tests/conftest.py."""
    row = re.compile(r'^    "(\w+)": Row\("[\w-]+", "(\w+)"', re.MULTILINE)
    children = {}
    for variant, parent in row.findall((ROOT / "tests/conftest.py").read_text()):
        children.setdefault(parent, set()).add(variant)

    def below(file: str) -> set[str]:
        direct = children.get(file, set())
        return direct.union(*map(below, direct))

    return {parent: below(parent) for parent in children}


def listed(files: list[str]) -> str:
    """Names of files; a star for a file with all its variants, "all" for all files."""
    lacking = [file for file in files_of_algos() if file not in files]
    if not lacking:
        return "all"
    families = {file: found for file, found in variants().items() if found <= set(files)}
    covered = set().union(*(families[file] for file in families if file in files), set())
    names = [f"`{x}`" + "\\*" * (x in families) for x in files if x not in covered]
    if len(lacking) < 5 and len(names) > len(lacking):
        return "all but " + ", ".join(f"`{file}`" for file in lacking)
    return ", ".join(names)


def reference_flags(_, everywhere: bool = False) -> str:
    """Every flag of every file: meaning, defaults, and the files that have it."""
    names = files_of_algos()
    flags, values = {}, {}
    for file in names:
        for flag, found in fields(file).items():
            flags.setdefault(flag, {})[file] = found
        for flag, found in choices(file).items():
            values[flag] = [*dict.fromkeys(values.get(flag, []) + found)]
    rows = []
    for flag, by_file in sorted(flags.items()):
        if (len(by_file) == len(names)) != everywhere:
            continue
        texts = [re.sub(r"^[A-Z]\w*: ", "", text) for _, text in by_file.values()]
        text = meaning(flag, texts).replace("|", "\\|")
        if flag in values:
            text += ": " + ", ".join(f"`{value}`" for value in values[flag])
        defaults = {}
        for file, (default, _) in by_file.items():
            defaults.setdefault(default, []).append(file)
        if flag == "--exp-name":
            defaults = {"the file's name": []}
        usual, *others = sorted(defaults, key=lambda x: -len(defaults[x]))
        default = f"`{usual}`" + "".join(
            f"; `{other}` in {listed(defaults[other])}" for other in others
        )
        cells = [f"`{flag}`", text, default]
        rows.append(cells if everywhere else [*cells, listed([*by_file])])
    head = ["flag", "meaning", "default"]
    return table(head if everywhere else [*head, "files"], rows, 4)


def reference_common_flags(_) -> str:
    return reference_flags(_, everywhere=True)


def reference_metrics(text: str) -> str:
    """Every key that a file of algos/ logs, with the files that log it. Meanings and usual values stay as they are."""
    names = files_of_algos()
    logged = {}
    for file in names:
        for node in ast.walk(ast.parse((ROOT / f"algos/{file}.py").read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if re.fullmatch(r"(charts|losses|eval)/\w+", node.value):
                    logged.setdefault(node.value, []).append(file)
    words = {}
    for line in text.splitlines()[2:]:
        metric, meaning, usual, _ = (cell.strip() for cell in line.strip("|").split(" | "))
        words[metric.strip("` ")] = meaning, usual
    rows = []
    for metric in sorted(logged):
        if metric not in words:
            raise SystemExit(
                f"docs/reference.md: {metric} has no row in the table of metrics; add it"
            )
        files = [*dict.fromkeys(logged[metric])]
        rows.append([f"`{metric}`", *words[metric], listed(files)])
    return table(["metric", "meaning", "usual values", "files"], rows, 4)


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
        start, name, words, text, end = match.groups()
        function = globals().get(name)
        if not callable(function):
            problems.append(f"{where}: docs/generate.py has no function {name}")
            return match.group()
        return start + (function(*words.split()) if words else function(text)) + end

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
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in [*pages, *sorted((ROOT / "benchmarks").rglob("curves/tables.md"))]:
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
