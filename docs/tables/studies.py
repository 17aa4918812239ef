"""The tables of the studies: mistakes, ablations, RPO, trust regions, curiosity, augmentation."""

from itertools import product

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
        "rpo_study.csv",
        ("ppo_continuous-defaults", "ppo_continuous-defaults-no-bootstrap-truncation"),
        "`gae-inputs`",
    ),
    (
        "next episode's value after a truncation",
        "#the-value-of-the-next-episodes-first-observation",
        "questions.csv",
        ("ppo_continuous_seeds", "next_episode_value"),
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
    found = {}
    for file in ("rpo_paper.csv", "rpo_study.csv"):
        returns = {}
        for row in read(f"results/{file}"):
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
        ("RND without the intrinsic reward, older initialisation", "ppo_rnd-no-bonus"),
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


def icm_mistakes(_) -> str:
    """Success on ArmReach-v0 of ICM, right and with one mistake at a time."""
    rows = []
    for words, name in (
        ("none", "ppo_icm"),
        ("the ratio is a matrix", "icm_ratio_matrix"),
        ("the critic's learning rate is 1e-5", "icm_slow_critic"),
        ("advantages continue into the episode before", "icm_no_mask"),
        ("the last value is that of the rollout's first observation", "icm_last_value"),
        ("a reset before each rollout of 32 steps", "icm_resets"),
        ("the agent does not see the cylinder", "icm_unseen_cylinder"),
        ("truncation is treated as termination", "ppo_icm-time-limit"),
        ("five full-batch steps for each rollout", "ppo_icm-full-batch"),
        ("one environment with rollouts of 2,048 steps", "ppo_icm-one-arm"),
        ("the reward's advantage weighs a hundredth of its default", "ppo_icm-heavy-bonus"),
    ):
        values = [
            float(row["value"])
            for row in read("results/icm_mistakes.csv")
            if (row["exp_name"], row["metric"]) == (name, "eval_return_mean")
        ]
        solved = sum(value >= 0.8 for value in values)
        ends = ", ".join(number(value, 1) for value in sorted(values))
        rows.append([words, f"{solved} of {len(values)}", ends])
    return table(["mistake", "solved", "success rate of each run"], rows, 1)


def augmentation_scores(_) -> str:
    """PPO, RPO, RAD and DrAC on two tasks of dm_control."""
    files = ("ppo_continuous", "rpo_continuous", "ppo_rad", "ppo_drac")
    rows = []
    for env_id in ("WalkerWalk-v1", "PendulumSwingup-v1"):
        cells = [ours("augmentation", env_id, file) for file in files]
        rows.append([env_id, seeds_of("augmentation", env_id, files[0]), *cells])
    return table(["task", "seeds", "PPO", "RPO", "RAD", "DrAC"], rows, 1)


SUSPECTS = {  # of the notes' Pendulum agent: what is right, and what is a mistake
    "critic-learning-rate=1e-5": ("1e-3", "1e-5"),
    "gae=unmasked": ("masked", "unmasked"),
    "squash=uncorrected": ("corrected", "uncorrected"),
}
RATIOS = ([], ["ratio=matrix"])


def suspects_values(metric: str) -> dict[str, list[float]]:
    values = {}
    for row in read("results/suspects.csv"):
        if row["metric"] == metric:
            values.setdefault(row["exp_name"], []).append(float(row["value"]))
    return values


def suspects(_) -> str:
    """A line for each combination of three suspects, a column for the fourth."""
    returns = suspects_values("eval_return_mean")
    rows = []
    for mistakes in product([False, True], repeat=len(SUSPECTS)):
        cells = [words[made] for words, made in zip(SUSPECTS.values(), mistakes)]
        made = [name for name, is_made in zip(SUSPECTS, mistakes) if is_made]
        for ratio in RATIOS:
            values = returns["-".join(["notes_agent", *ratio, *made])]
            spread = f"({number(min(values))} to {number(max(values))})"
            cells.append(f"{number(sum(values) / len(values))} {spread}")
        rows.append(cells)
    head = ["critic's learning rate", "GAE", "log-probability", "ratio (n,)", "ratio (n, n)"]
    return table(head, rows, 3)


def suspects_entropy(_) -> str:
    """The entropy at the end of the runs, by log-probability and ratio."""
    entropies = suspects_values("losses/entropy")
    rows = []
    for word in SUSPECTS["squash=uncorrected"]:
        cells = [word]
        for ratio in RATIOS:
            values = []
            for name, found in entropies.items():
                is_matrix = "ratio=matrix" in name
                is_uncorrected = "squash=uncorrected" in name
                if is_matrix == bool(ratio) and is_uncorrected == (word == "uncorrected"):
                    values += found
            spread = f"{min(values):.2f} to {max(values):.2f}"
            cells.append(f"{sum(values) / len(values):.2f} ({spread})")
        rows.append(cells)
    return table(["log-probability", "ratio (n,)", "ratio (n, n)"], rows, 1)
