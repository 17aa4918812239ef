"""Returns of the algorithms, beside what others have published."""

from collections import defaultdict
from statistics import fmean

from tables.sources import (
    comparisons_of,
    difference,
    number,
    ours,
    read,
    scores_of,
    seeds_of,
    table,
)


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
        scored(pong, "plainrl, replay of 100,000", "pong_values", "dqn_atari"),
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
    for game, c51, dqn in (
        ("BreakoutNoFrameskip-v4", "breakout_c51", "breakout_dqn"),
        ("PongNoFrameskip-v4", "pong_values", "pong_values"),
    ):
        rows.append(scored(game, "`c51_atari.py`, replay of 100,000", c51, "c51_atari"))
        rows.append(scored(game, "`dqn_atari.py`, replay of 100,000", dqn, "dqn_atari"))
        rows += reported(game, "C51", "C51, ")
    return table(RESULTS, rows, 3)


def pqn_results(_) -> str:
    env_id = "CartPole-v1"
    rows = [
        scored(env_id, "plainrl", "pqn", "pqn"),
        *reported(env_id, "PQN"),
    ]
    game, trial = "BreakoutNoFrameskip-v4", "pqn_atari-q-lambda=0.95"
    rows.append(scored(game, "plainrl", "breakout_pqn", "pqn_atari"))
    rows.append(scored(game, "plainrl, `--q-lambda 0.95`", "breakout_pqn_lambda", trial))
    rows += reported(game, "PQN")
    pong = "PongNoFrameskip-v4"
    rows.append(scored(pong, "plainrl", "pong_values", "pqn_atari"))
    rows += reported(pong, "PQN")
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
    small = "$\\epsilon$ = 1e-8"
    rows = [
        scored(game, "plainrl", "breakout_a2c_million", "a2c_atari-1M"),
        scored(game, "plainrl, SB3's defaults", "breakout_a2c_million", "a2c_atari-sb3-defaults"),
        scored(game, "SB3, its own defaults", "breakout_a2c_million", "sb3_atari-a2c-own"),
        scored(
            game, "plainrl, published $\\epsilon$", "breakout_a2c_million", "published_rmsprop-1M"
        ),
        scored(game, f"plainrl, {small}", "breakout_a2c", "a2c_atari-small-eps"),
        scored(game, "SB3, same settings", "breakout_a2c", "sb3_atari-a2c-small-eps"),
        scored(game, "SB3, as many updates", "breakout_a2c", "sb3_atari-a2c-small-eps-543k"),
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
        scored(game, "plainrl, fast preset, float32", "breakout_fast_2m", "ppo_atari-fast-2m"),
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


def swimmer_returns(_) -> str:
    """Discount factor by what else differs."""
    settings = {
        "": ("32", "0.95"),
        "-norm-adv": ("32, standardised advantages", "0.95"),
        "-lambda98": ("32", "0.98"),
        "-long-lambda95": ("1,024", "0.95"),
        "-long": ("1,024", "0.98"),
    }
    discounts = {"0.995": "", "0.999": "-gamma=0.999", "0.9999": "-gamma=0.9999"}
    scores = {row["exp_name"] for row in scores_of("swimmer")}
    rows = []
    for tag, words in settings.items():
        names = [f"ppo_continuous_seeds{tag}{discount}" for discount in discounts.values()]
        cells = [ours("swimmer", "Swimmer-v5", x) if x in scores else "not run" for x in names]
        rows.append([*words, *cells])
    head = ["steps of a rollout", "lambda", *(f"gamma {discount}" for discount in discounts)]
    return table(head, rows, 2)


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


def rpo_schedule(_) -> str:
    """Constant and falling alpha on the walker."""
    rpo, ppo = "rpo_continuous_seeds", "ppo_continuous_seeds"
    names = {
        "PPO": ppo,
        "RPO, alpha 0.5": rpo,
        "RPO, alpha from 0.7 to 0.05": f"{rpo}-schedule",
        "the same, with the noise in the rollout as well": f"{rpo}-schedule-rollout",
    }
    rows = []
    for words, name in names.items():
        one = "rpo_schedule", "BipedalWalker-v3"
        rows.append([words, ours(*one, name), "" if name == ppo else difference(*one, name, ppo)])
    return table(["", "evaluation", "minus PPO"], rows, 1)


def rpo_small(_) -> str:
    """PPO, and RPO with two alphas, where the larger one is behind: training and evaluation."""
    names = {
        "PPO": "ppo_continuous-published",
        "RPO, alpha 0.5": "rpo_continuous-published",
        "RPO, alpha 0.01": "rpo_continuous_seeds-published-rpo-alpha=0.01",
    }
    rows = []
    for env_id in ("Ant-v5", "Reacher-v5", "Pusher-v5"):
        scores = {row["exp_name"]: row for row in scores_of("rpo_tasks") if row["env_id"] == env_id}
        for words, name in names.items():
            training = number(float(scores[name]["train_return_last100"]))
            ppo = names["PPO"]
            gap = "" if name == ppo else difference("rpo_tasks", env_id, name, ppo)
            rows.append([env_id, words, training, ours("rpo_tasks", env_id, name), gap])
    head = ["task", "algorithm", "training", "evaluation", "evaluation, minus PPO"]
    return table(head, rows, 2)


def reset_returns(_) -> str:
    """PPO with and without resets in each rollout, on two tasks."""
    cases = {
        ("Pendulum-v1", "64 x 32"): "",
        ("BipedalWalker-v3", "64 x 32"): "",
        ("BipedalWalker-v3", "4 x 2,048"): "-four",
    }
    files = ("ppo_continuous_seeds", "reset_rollouts_seeds", "reset_midway_seeds")
    rows = []
    for (env_id, rollout), tag in cases.items():
        cells = [ours("resets", env_id, f"{file}{tag}") for file in files]
        rows.append([env_id, rollout, seeds_of("resets", env_id, files[0]), *cells])
    head = ["task", "rollout", "seeds", "no resets", "before each rollout", "in its middle"]
    return table(head, rows, 2)


def late_and_paused(_) -> str:
    """PPO on Pendulum with late rewards, with pauses, and with the next episode's value."""
    ppo = "ppo_continuous_seeds"
    names = {
        "none": ppo,
        "rewards arrive four steps late": "late_reward",
        "a pause of 4 steps": "pause",
        "a pause of 32 steps": "pause-pause-steps=32",
        "a truncated episode continues with the next one's value": "next_episode_value",
    }
    scores = {row["exp_name"]: row for row in scores_of("questions")}
    rows = []
    for words, name in names.items():
        one = "questions", "Pendulum-v1", name
        training = number(float(scores[name]["train_return_last100"]))
        rows.append(
            [words, training, ours(*one), "" if name == ppo else difference(*one, ppo, ppo)]
        )
    return table(["change", "training", "evaluation", "evaluation, minus PPO"], rows, 1)


def pusher_returns(_) -> str:
    """PPO on Pusher with the published settings, one thing changed at a time."""
    names = {
        "published settings": ("mujoco_published", "ppo_continuous-published"),
        "without value clipping": ("pusher", "ppo_continuous_seeds-published-no-clip"),
        "trained in Gymnasium's simulator": ("pusher", "ppo_continuous_seeds-published-gymnasium"),
    }
    rows = []
    for words, (scores, name) in names.items():
        rows.append([words, seeds_of(scores, "Pusher-v5", name), ours(scores, "Pusher-v5", name)])
    return table(["plainrl", "seeds", "evaluation"], rows, 1)


def augmentation_results(_) -> str:
    rows = []
    for env_id in ("WalkerWalk-v1", "PendulumSwingup-v1"):
        one = "augmentation", env_id
        cells = [difference(*one, file, "ppo_continuous") for file in ("ppo_rad", "ppo_drac")]
        rows.append([env_id, seeds_of(*one, "ppo_rad"), ours(*one, "ppo_continuous"), *cells])
    return table(["task", "seeds", "PPO", "RAD minus PPO", "DrAC minus PPO"], rows, 1)


def over_the_run(scores: str, exp_name: str) -> dict[int, float]:
    """For each seed the mean of a learning curve: how much is scored while it learns."""
    curves = defaultdict(list)
    for row in read(f"results/{scores}.csv"):
        if (row["exp_name"], row["metric"]) == (exp_name, "charts/episodic_return"):
            curves[int(row["seed"])].append(float(row["value"]))
    return {seed: fmean(values) for seed, values in curves.items()}


def image_augmentation_results(scores: str) -> str:
    """PPO, RAD and DrAC on the only task of results/SCORES.csv."""
    import plot
    from plainrl_tools import compare

    (env_id,), rows = {row["env_id"] for row in read(f"results/{scores}.csv")}, []
    plain = over_the_run(scores, "ppo_pixels")
    for words, name in (("PPO", ""), ("RAD", "_rad"), ("DrAC", "_drac")):
        name = f"ppo_pixels{name}"
        curve = over_the_run(scores, name)
        gap = "" if curve == plain else compare.compare(curve, plain, plot.Options(()))
        if gap:
            middle, low, high = (
                number(gap[key], fmean(plain.values())) for key in ("difference", "low", "high")
            )
            gap = f"{middle} [{low}, {high}]"
        training = number(fmean(curve.values()))
        evaluation = ours(scores, env_id, name)
        rows.append([words, str(len(curve)), evaluation, training, gap])
    head = ["algorithm", "seeds", "evaluation", "training, mean over the run", "minus PPO's"]
    return table(head, rows, 1)


def line_results(_) -> str:
    """CartPole from images with and without a vertical line: the evaluation of each run."""
    runs = defaultdict(list)
    for row in read("results/line.csv"):
        if row["metric"] == "eval_return_mean":
            runs[row["exp_name"], row["env_id"]].append(float(row["value"]))
    variants = "envs.cartpole_variants"
    two = ("2", "envs:CartPolePixels-v0", f"{variants}:Line-v0")
    four = ("4", f"{variants}:Skip4-v0", f"{variants}:Skip4Line-v0")
    rows = []
    for name, (steps, *env_ids) in (
        ("ppo_pixels", two),
        ("ppo_pixels", four),
        ("dqn_pixels", two),
        ("dqn_pixels", four),
    ):
        cells = [
            ", ".join(number(value, 100) for value in runs[name, env_id]) for env_id in env_ids
        ]
        rows.append([f"`{name}.py`", steps, *cells])
    head = ["file", "physics steps for each action", "without a line", "with a line"]
    return table(head, rows, 1)


def runs_table(head: str, scores: str, env_id: str, experiments: dict[str, str]) -> str:
    """The evaluation and the last training returns of each run; experiments {words: exp_name}."""
    rows = []
    for words, exp_name in experiments.items():
        cells = [words]
        for metric in ("eval_return_mean", "train_return_last100"):
            values = [
                float(row["value"])
                for row in read(f"results/{scores}.csv")
                if (row["env_id"], row["exp_name"], row["metric"]) == (env_id, exp_name, metric)
            ]
            cells.append(", ".join(number(value, 10) for value in values))
        rows.append(cells)
    return table([head, "evaluation", "training, last 100 games"], rows, 1)


def a2c_rmsprop(_) -> str:
    """A2C on Breakout, a million steps, with each form of RMSprop."""
    experiments = {
        "1e-5 under the root, as published": "published_rmsprop-1M",
        "1e-10 under the root": "published_rmsprop-1M-small-eps",
        "1e-5 added to the root: PyTorch's, and the default": "a2c_atari-1M",
        "the same with SB3's other defaults": "a2c_atari-sb3-defaults",
        "SB3's A2C with its own defaults": "sb3_atari-a2c-own",
    }
    game = "BreakoutNoFrameskip-v4"
    return runs_table("epsilon of RMSprop", "breakout_a2c_million", game, experiments)


def pong_notes(_) -> str:
    """PPO and A2C on Pong as the practitioner's notes ran them, one run each."""
    experiments = {
        "SB3's PPO with its own defaults": "sb3_atari-ppo-own",
        "`ppo_atari.py` with SB3's defaults": "ppo_atari-sb3-defaults",
        "`ppo_atari.py` with its own defaults": "ppo_atari-500k",
        "the same, values clipped around the return": "clip_around_return-500k",
        "`a2c_atari.py` with SB3's defaults": "a2c_atari-sb3-defaults",
        "the same with one-step targets": "one_step_targets-sb3-defaults",
    }
    return runs_table("agent", "atari_notes", "PongNoFrameskip-v4", experiments)


def racing_results(_) -> str:
    rows = []
    for words, name in (("one frame", "ppo_pixels_continuous"), ("four frames", "racing_skip")):
        runs = defaultdict(list)
        for row in read("results/racing.csv"):
            if row["exp_name"] == name:
                runs[row["metric"], row["seed"]].append((int(row["step"]), float(row["value"])))
        evaluations = [
            points[-1][1] for (metric, _), points in runs.items() if metric == "eval_return_mean"
        ]
        ends = []
        for (metric, _), points in runs.items():
            if metric == "charts/episodic_return":
                ends.append(fmean(value for step, value in points if step > 90_000))
        cells = [", ".join(number(value, 100) for value in each) for each in (evaluations, ends)]
        rows.append([words, *cells])
    head = ["an action lasts", "evaluation of each run", "training, last tenth of the run"]
    return table(head, rows, 1)


def endless_results(_) -> str:
    """PPO trained with and without a time limit, evaluated for equally many steps."""
    rows = []
    for env_id, endless, name, of_endless, steps in (
        ("CartPole-v1", "envs:CartPoleEndless-v0", "ppo", "ppo", "500"),
        ("Pendulum-v1", "Pendulum-v1", "ppo_continuous", "no_limit", "200"),
    ):
        cells = [
            ours("endless", task, f"{file}-limits")
            for task, file in ((env_id, name), (endless, of_endless))
        ]
        rows.append([env_id, steps, seeds_of("endless", env_id, f"{name}-limits"), *cells])
    head = ["task", "steps of an evaluation", "seeds", "trained with its limit", "without a limit"]
    return table(head, rows, 1)


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
        settings = "like RL-Zoo" if tag == "zoo" else "defaults"
        task = row["env_id"].removeprefix("envs:")
        cells = [str(row["seeds"]), f"{mean} [{low}, {high}]", worst]
        rows.append([task, settings, f"`{name}.py`", *cells])
    return table(["task", "settings", "file", "runs", "return", "worst run"], rows, 3)


def lstm_rollouts(_) -> str:
    """PendulumNoVel-v0 with longer rollouts and without scales, settings like RL-Zoo's."""
    env_id, scores, name = "envs:PendulumNoVel-v0", "lstm_rollouts", "ppo_continuous_lstm-zoo"
    rows = []
    for scales, rollout, batches, tag, control in (
        ("yes", "32 x 128", "32", "", ""),
        ("yes", "32 x 128", "16", "-half", ""),
        ("yes", "16 x 256", "16", "-long", "-half"),
        ("no", "32 x 128", "32", "-raw", ""),
        ("no", "16 x 256", "16", "-raw-long", "-long"),
    ):
        score = ours(scores if tag else "lstm", env_id, name + tag)
        gap = difference(scores, env_id, name + tag, name + control) if control else ""
        against = {"-half": "32 x 128, 16", "-long": "with scales"}.get(control, "")
        rows.append([scales, rollout, batches, score, against, gap])
    head = ["scales", "rollout", "minibatches", "return", "control", "minus its control"]
    return table(head, rows, 3)


def lstm_breakout(_) -> str:
    game = "BreakoutNoFrameskip-v4"
    rows = [
        scored(game, "`ppo_atari_lstm.py`, single images", "lstm_breakout", "ppo_atari_lstm"),
        scored(game, "`ppo_atari.py`, stacks of four", "breakout_published", "ppo_atari"),
    ]
    return table(RESULTS, rows, 3)


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


def sac_variants(_) -> str:
    """SAC and three variants of it on HalfCheetah-v5."""
    names = {
        "sac": "SAC (`sac_continuous.py`)",
        "crossq": "CrossQ (`crossq_continuous.py`)",
        "simba": "SimBa (patch)",
        "tqc": "TQC (patch)",
    }
    rows = []
    for name, label in names.items():
        (row,) = (row for row in scores_of("variants") if row["exp_name"].startswith(name))
        mean, worst, best = (number(float(row[key])) for key in ("mean", "worst_run", "best_run"))
        rows.append([label, str(row["seeds"]), mean, worst, best])
    return table(["algorithm", "runs", "return", "worst run", "best run"], rows, 1)


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
