"""The figures of README, of the PPO and SAC pages and of the debugging pages, from the CSV files in benchmarks/:

    python benchmarks/make_figures.py

One colour means one implementation in all of these figures.
"""

import csv
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import plot
import time_to_return
from matplotlib.lines import Line2D
from plainrl_tools import compare, results

ROOT = Path(__file__).resolve().parents[1]
COLORS = {
    "plainrl": "#0072B2",
    "SB3": "#D55E00",
    "SBX": "#009E73",
    "CleanRL": "#7F7F7F",
}
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
}
ROWS = [  # file, exp_name, implementation, label; None leaves a gap
    ("time_to_return.csv", "ppo_continuous", "plainrl", "plainrl"),
    ("time_to_return.csv", "sb3_ppo-sb3-ours", "SB3", "SB3, same hyperparameters"),
    ("time_to_return.csv", "sb3_ppo-sb3-zoo", "SB3", "SB3, tuned by RL-Zoo"),
    None,
    ("time_to_return_peers.csv", "ppo_continuous", "plainrl", "plainrl"),
    ("time_to_return_peers.csv", "sb3_ppo-sbx-ours", "SBX", "SBX, same hyperparameters"),
    ("time_to_return_peers.csv", "sb3_ppo-sbx-zoo", "SBX", "SBX, tuned by RL-Zoo"),
    ("time_to_return_peers.csv", "cleanrl_ppo", "CleanRL", "CleanRL, its defaults"),
]
TASKS = {
    "BipedalWalker-v3": "BipedalWalker-v3, return 250",
    "HalfCheetah-v5": "HalfCheetah-v5, return 3,000",
    "LunarLanderContinuous-v3": "LunarLanderContinuous-v3, return 200",
    "Pendulum-v1": "Pendulum-v1, return -200",
}


def save(figure, name: str) -> None:
    figure.savefig(ROOT / f"docs/{name}.png", dpi=170, metadata={"Software": None})
    plt.close(figure)
    print(f"docs/{name}.png")


def draw_time_to_threshold() -> None:
    """A dot for each run that reached the threshold, an arrow for one that was stopped before."""
    runs = {}
    for file in {row[0] for row in ROWS if row}:
        for run in time_to_return.read_csv(ROOT / "benchmarks/results" / file):
            runs.setdefault((file, run["exp_name"], run["env_id"]), []).append(run)
    figure, axes = plt.subplots(2, 2, figsize=(8.6, 5.4), sharex=True, sharey=True)
    for axis, (env_id, title) in zip(axes.flat, TASKS.items()):
        for y, row in enumerate(ROWS):
            if row is None:
                axis.axhline(y, color="0.85", lw=0.8)
                continue
            file, exp_name, implementation, _ = row
            color = COLORS[implementation]
            group = runs[file, exp_name, env_id]
            for run in group:
                marker = "o" if run["reached"] else ">"
                face = color if run["reached"] else "white"
                look = {"ms": 5.5, "mfc": face, "mec": color, "alpha": 0.75, "mew": 1}
                axis.plot(run["minutes"], y, marker, zorder=3, clip_on=False, **look)
            middle = median(run["minutes"] for run in group)
            axis.plot([middle, middle], [y - 0.34, y + 0.34], color=color, lw=2.2, zorder=2)
        axis.set_title(title, loc="left")
        axis.set(xlim=(0, 4.3), ylim=(len(ROWS) - 0.4, -0.6))
        axis.set_yticks([y for y, row in enumerate(ROWS) if row], [row[3] for row in ROWS if row])
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="x", color="0.92", lw=0.8)
        axis.set_axisbelow(True)
    for axis in axes[1]:
        axis.set_xlabel("wall-clock minutes until the threshold")
    marks = [
        Line2D([], [], marker="o", ls="", color="0.3", ms=5.5),
        Line2D([], [], marker=">", ls="", color="0.3", mfc="white", ms=5.5),
        Line2D([], [], color="0.3", lw=2.2),
    ]
    words = ["a run", "a run stopped before the threshold", "median (a lower bound if on an arrow)"]
    figure.legend(marks, words, loc="upper center", ncols=3, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    save(figure, "time_to_threshold")


def draw_learning_curves() -> None:
    """Training returns of PPO's default flags, a line for each run, and what others publish."""
    tasks = ["BipedalWalker-v3", "HalfCheetah-v5", "Walker2d-v5"]
    tasks += ["Hopper-v5", "Ant-v4", "LunarLanderContinuous-v3"]
    with open(ROOT / "benchmarks/published.csv", newline="") as file:
        published = list(csv.DictReader(file))
    curves = {}
    for row in results.read_csv(ROOT / "benchmarks/studies/continuous/results/continuous.csv"):
        if row.exp_name == "ppo_continuous" and row.metric == "charts/episodic_return":
            curves.setdefault((row.env_id, row.seed), []).append((row.step, row.value))
    figure, axes = plt.subplots(2, 3, figsize=(8.6, 4.8))
    for axis, env_id in zip(axes.flat, tasks):
        rows = [row for row in published if row["env_id"] == env_id]
        best = max(rows, key=lambda row: float(row["mean"]))
        value, million = float(best["mean"]), float(best["steps"]) / 1e6
        source = best["source"] if million == 1 else f"{best['source']} ({million:g}M steps)"
        for (task, _), points in curves.items():
            if task == env_id:
                steps, returns = zip(*sorted(points))
                axis.plot(
                    [x / 1e6 for x in steps], returns, color=COLORS["plainrl"], lw=1, alpha=0.8
                )
        axis.axhline(value, color="0.35", lw=1, ls=(0, (4, 3)))
        axis.annotate(
            source,
            (0, value),
            xytext=(3, 3),
            textcoords="offset points",
            color="0.25",
            fontsize=8,
        )
        axis.set_title(env_id, loc="left")
        axis.set_xlim(0, 1)
    for axis in axes[:, 0]:
        axis.set_ylabel("training return")
    for axis in axes[1]:
        axis.set_xlabel("million steps")
    figure.tight_layout()
    save(figure, "ppo_curves")


ALGORITHMS = {  # on HalfCheetah-v5: CSV file, exp_name, name, colour
    "results/time_to_return.csv": ("ppo_continuous", "PPO", COLORS["plainrl"]),
    "studies/off_policy/results/off_policy.csv": ("sac_continuous", "SAC", "#AA3377"),
}


def draw_steps_or_minutes() -> None:
    """PPO and SAC over steps and over minutes: mean training return and its 95 % interval over seeds."""
    figure, axes = plt.subplots(1, 2, figsize=(6.6, 2.8), sharey=True)
    for path, (exp_name, name, color) in ALGORITHMS.items():
        rows = results.read_csv(ROOT / "benchmarks" / path)
        key = ("HalfCheetah-v5", exp_name)
        returns = results.curves_of(rows, "charts/episodic_return")[key]
        seconds = results.curves_of(rows, "charts/wall_time_s")[key]
        over_steps = [np.array(returns[seed]) for seed in returns]
        over_minutes = []
        for seed, points in zip(returns, over_steps):
            steps, clock = np.array(seconds[seed]).T
            minutes = np.interp(points[:, 0], steps, clock) / 60
            over_minutes.append(np.stack([minutes, points[:, 1]], 1))
        for axis, runs in zip(axes, (over_steps, over_minutes)):
            first = max(run[0, 0] for run in runs)
            last = min(run[-1, 0] for run in runs)
            x = np.linspace(first, last, 200)
            values = np.stack([np.interp(x, *run.T) for run in runs])
            low, high = compare.interval(values, plot.Options(()))
            axis.plot(x, values.mean(0), color=color, lw=1.6, label=f"{name}, {len(runs)} seeds")
            axis.fill_between(x, low, high, color=color, alpha=0.2, lw=0)
    axes[0].set_xscale("log")
    axes[0].set_xlabel("steps (logarithmic)")
    axes[0].set_ylabel("training return")
    axes[1].set_xlabel("wall-clock minutes")
    axes[1].set_xlim(left=0)
    axes[0].legend(frameon=False, loc="upper left")
    figure.tight_layout()
    save(figure, "steps_or_minutes")


WRONG = "#CC3311"
AGAIN = "#EE7733"  # a second mistake in the same panel
RIGHT = "0.6"
NAMES = {
    "charts/episodic_return": "training return",
    "losses/entropy": "entropy",
    "losses/approx_kl": "approx_kl",
    "losses/clipfrac": "clipfrac",
    "losses/explained_variance": "explained_variance",
    "losses/value_loss": "value_loss",
}
LOGS = {  # figure: CSV file, right run, runs with a mistake or a wrong flag, and three metrics
    "log_still": (
        "ablations/results/symptoms_log.csv",
        "ppo_continuous-as-it-is",
        {
            "ppo_continuous-few-updates": "1 gradient step per rollout",
            "ppo_continuous-small-learning-rate": "learning rate 2.5e-5",
        },
        ["charts/episodic_return", "losses/entropy", "losses/approx_kl"],
    ),
    "log_far": (
        "ablations/results/symptoms_log.csv",
        "ppo_continuous-as-it-is",
        {
            "ppo_continuous-no-clip": "no clip",
            "ppo_continuous-large-learning-rate": "learning rate 0.01",
        },
        ["charts/episodic_return", "losses/approx_kl", "losses/clipfrac"],
    ),
    "log_entropy": (
        "ablations/results/symptoms_log.csv",
        "ppo_continuous-as-it-is",
        {"ppo_continuous-large-bonus": "entropy coefficient 0.05"},
        ["charts/episodic_return", "losses/entropy", "losses/approx_kl"],
    ),
    "log_critic": (
        "pitfalls/results/pitfalls.csv",
        "ppo",
        {"done_reset": "done cleared", "slow_critic": "critic's learning rate 1e-5"},
        ["charts/episodic_return", "losses/explained_variance", "losses/value_loss"],
    ),
}
LOGARITHMIC = ("losses/approx_kl", "losses/value_loss")


def draw_log(axis, curves: dict, exp_name: str, metric: str, color: str) -> None:
    runs = curves[metric][exp_name]
    steps, values = zip(*runs[min(runs)])  # of the first seed
    axis.plot([step / 1000 for step in steps], values, color=color, lw=1.4)
    axis.set_title(NAMES[metric], loc="left")
    axis.set_xlim(left=0)
    if metric in LOGARITHMIC:
        axis.set_yscale("log")


def read_logs(file: str) -> dict:
    """metric -> exp_name -> seed -> [(step, value), ...]"""
    rows = results.read_csv(ROOT / "benchmarks/studies" / file)
    return {
        metric: {name: seeds for (_, name), seeds in results.curves_of(rows, metric).items()}
        for metric in NAMES
    }


def draw_logs() -> None:
    """A healthy log of PPO, and logs of runs that are not."""
    figure, axes = plt.subplots(2, 3, figsize=(6.6, 3.7))
    curves = read_logs("ablations/results/symptoms_log.csv")
    for axis, metric in zip(axes.flat, NAMES):
        draw_log(axis, curves, "ppo_continuous-as-it-is", metric, COLORS["plainrl"])
    for axis in axes[1]:
        axis.set_xlabel("thousand steps")
    figure.tight_layout()
    save(figure, "log_healthy")
    for name, (file, right, wrong, metrics) in LOGS.items():
        curves = read_logs(file)
        figure, axes = plt.subplots(1, 3, figsize=(6.6, 2.3))
        for axis, metric in zip(axes, metrics):
            draw_log(axis, curves, right, metric, RIGHT)
            for exp_name, color in zip(wrong, (WRONG, AGAIN)):
                draw_log(axis, curves, exp_name, metric, color)
            axis.set_xlabel("thousand steps")
        labels = ["healthy", *wrong.values()]
        colors = (RIGHT, WRONG, AGAIN)[: len(labels)]
        lines = [Line2D([], [], color=color, lw=2) for color in colors]
        figure.legend(lines, labels, loc="upper center", ncols=3, frameon=False)
        figure.tight_layout(rect=(0, 0, 1, 0.9))
        save(figure, name)


PITFALLS = {  # of scripts/pitfalls.sh: title, and the experiment without the mistake
    "ratio_matrix": ("(n,) minus (n, 1)", "ppo-mb16"),
    "other_sample": ("log-prob of another sample", "ppo"),
    "gae_unmasked": ("GAE without its mask", "ppo"),
    "done_late": ("done one step late", "ppo"),
    "done_reset": ("done cleared", "ppo"),
    "autoreset_trained": ("autoreset steps trained on", "ppo"),
    "slow_critic": ("critic's learning rate 1e-5", "ppo"),
    "clipped_return": ("value clipped around return", "ppo-clip-vloss"),
    "one_seed": ("one seed for all", "ppo"),
    "one_epsilon": ("one draw of epsilon", "dqn"),
    "target_at_ends": ("target never updated", "dqn"),
}


def draw_pitfalls() -> None:
    """Training returns on CartPole-v1, right and with a mistake, a line for each run."""
    rows = results.read_csv(ROOT / "benchmarks/studies/pitfalls/results/pitfalls.csv")
    curves = results.curves_of(rows, "charts/episodic_return")
    figure, axes = plt.subplots(4, 3, figsize=(6.6, 7), sharey=True)
    for axis, (name, (title, right)) in zip(axes.flat, PITFALLS.items()):
        for exp_name, color in ((right, RIGHT), (name, WRONG)):
            for points in curves["CartPole-v1", exp_name].values():
                steps, returns = zip(*points)
                axis.plot([step / 1000 for step in steps], returns, color=color, lw=1.1)
        axis.set_title(title, loc="left", fontsize=8.5)
        axis.set_xlim(0, 30 if right == "dqn" else 100)
        axis.set_ylim(0, 510)
    for axis in axes.flat[len(PITFALLS) :]:
        axis.axis("off")
    lines = [Line2D([], [], color=color, lw=2) for color in (RIGHT, WRONG)]
    axes.flat[-1].legend(lines, ["right", "with the mistake"], loc="center", frameon=False)
    for axis in axes[:, 0]:
        axis.set_ylabel("training return")
    for axis in axes.flat[len(PITFALLS) - 3 : len(PITFALLS)]:
        axis.set_xlabel("thousand steps")
    figure.tight_layout()
    save(figure, "pitfalls")


if __name__ == "__main__":
    plt.rcParams.update(STYLE)
    draw_time_to_threshold()
    draw_learning_curves()
    draw_steps_or_minutes()
    draw_logs()
    draw_pitfalls()
