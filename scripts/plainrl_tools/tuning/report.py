"""The results of a study of scripts/tune.py: report.md, report.png and trials.csv.

retest.md compares the best trial with the defaults on new seeds.
"""

import csv
import math
import os
import shlex
from itertools import accumulate
from pathlib import Path
from statistics import fmean, quantiles
from types import SimpleNamespace

import optuna
import plot
from optuna.trial import TrialState

from plainrl_tools.common import check
from plainrl_tools.compare import HOLM, comparison_table, markdown, short, with_interval
from plainrl_tools.results import Row, finals_of, read_folders
from plainrl_tools.tuning.progress import SCORE

SHOWN = 10  # trials in the table
ENOUGH = 10  # complete trials that importances need
BIASED = """The best of {} scores is partly luck: **it is too high by construction**, and so is its difference to the
defaults. Only seeds that the search has not used give an unbiased comparison:"""


def failed_of(trials) -> list:
    """Trials with a run that failed. In the study their state is PRUNED."""
    pruned = [trial for trial in trials if trial.state == TrialState.PRUNED]
    return [trial for trial in pruned if "failed" in trial.user_attrs]


def counts(trials) -> dict[str, int]:
    """Map states to the number of trials in each."""
    failed = len(failed_of(trials))
    pruned = sum(trial.state == TrialState.PRUNED for trial in trials) - failed
    complete = sum(trial.state == TrialState.COMPLETE for trial in trials)
    unfinished = len(trials) - complete - pruned - failed
    return {"complete": complete, "pruned": pruned, "failed": failed, "not finished": unfinished}


def best_of(trials):
    """The complete trial with the highest score (the first of equal ones), or None."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    return max(complete, key=lambda trial: trial.value, default=None)


def floor_of(scores) -> float | None:
    """The lower limit of the figure, or None if no score is below it.

    It is three interquartile ranges below the first quartile (Tukey's far outliers).
    """
    if len(scores) < 4:
        return None
    low, _, high = quantiles(scores, n=4)
    floor = min(low - 3 * (high - low), scores[0])  # scores[0] is the score of the defaults
    return floor if min(scores) < floor else None


def draw(file: Path, trials, importances: dict[str, float]) -> None:
    """Draw the scores in the order of the trials, and the importance of the flags."""
    figure, axes, _ = plot.canvas(2 if importances else 1)
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    ended = [trial for trial in trials if trial.state == TrialState.PRUNED]
    ended = [trial for trial in ended if "failed" not in trial.user_attrs]
    numbers, scores = zip(*((trial.number, trial.value) for trial in complete))
    axes[0].plot(numbers, scores, "o", color="#3b6ea8", markersize=4, label="complete")
    so_far = [trial.value for trial in ended]
    marks = {"color": "#999999", "label": "pruned, score so far"}
    axes[0].plot([trial.number for trial in ended], so_far, "x", **marks)
    best = list(accumulate(scores, max))
    axes[0].step(numbers, best, where="post", color="#c44e52", label="best so far")
    if not numbers[0]:
        axes[0].axhline(scores[0], color="black", ls="--", lw=1, label="defaults")
    if floor := floor_of(scores):  # far outliers would compress the other scores
        below = [trial.number for trial in complete + ended if trial.value < floor]
        axes[0].plot(below, [floor] * len(below), "v", color="#999999", label="below the axis")
        margin = 0.05 * (best[-1] - floor)
        axes[0].set_ylim(floor - margin, best[-1] + margin)
    axes[0].set(xlabel="trial", ylabel="score")
    axes[0].legend(fontsize=7)
    if importances:
        names = list(importances)[::-1]
        axes[1].barh(names, [importances[name] for name in names], color="#3b6ea8")
        axes[1].set(xlabel="importance (PED-ANOVA)")
    temporary = file.with_suffix(".tmp")
    figure.savefig(temporary, dpi=150, format="png")
    os.replace(temporary, file)


def importances_of(study, trials) -> dict[str, float]:
    """Map flags to their PED-ANOVA importance: the share in what sets the best tenth of the complete trials apart.

    The result is empty if there are too few complete trials.
    """
    if counts(trials)["complete"] < ENOUGH:
        return {}
    return optuna.importance.get_param_importances(study)


def line_of(options, common: list[str], flags: list[str]) -> str:
    """The command line of a run of the script with these flags."""
    words = ["python", str(options.script), "--env-id", options.env_ids[0], *common, *flags]
    return shlex.join(words)


def lead(best, first) -> str:
    """A sentence that compares the best trial with the defaults."""
    if best is None or first.state != TrialState.COMPLETE:
        return "The defaults (trial 0) have no score yet."
    if best.number == 0:
        return f"No trial is better than the defaults (trial 0), which score {best.value:.3f}."
    scores = f"{best.value:.3f} and the defaults (trial 0) score {first.value:.3f}"
    return f"Trial {best.number} scores {scores}, on the seeds of the search."


def write_trials(file: Path, trials) -> None:
    """Write a row for each finished trial: its state, score, mean evaluation in each environment, and flags.

    A pruned trial has its score so far. For trial 0 (the defaults) only flags whose default lies in the space appear.
    """
    rows = []
    for trial in trials:
        if trial.state.is_finished():
            what = "failed" if "failed" in trial.user_attrs else trial.state.name.lower()
            row = {"trial": trial.number, "state": what, "score": trial.value}
            rows.append(row | trial.user_attrs.get("returns", {}) | trial.params)
    names = list(dict.fromkeys(name for row in rows for name in row))
    temporary = file.with_suffix(".tmp")
    with temporary.open("w", newline="") as output:
        writer = csv.DictWriter(output, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(temporary, file)


def write_report(study, options, common: list[str], flags_of_trial) -> None:
    """Write report.md, report.png and trials.csv, once there is a complete trial."""
    trials = study.get_trials(deepcopy=False)
    best = best_of(trials)
    if best is None:
        return
    importances = importances_of(study, trials)
    draw(options.study / "report.png", trials, importances)
    count = counts(trials)
    numbers = ", ".join(f"{number} {what}" for what, number in count.items())
    texts = [f"# Tuning {options.script}", f"**Summary**: {lead(best, trials[0])}"]
    texts += [f"```\n{line_of(options, common, flags_of_trial(best))}\n```"]
    runs = f"{' '.join(options.env_ids)}, seeds {' '.join(options.seeds)}"
    score = f"A score is the {options.statistic} over the runs of a trial ({runs})"
    score += " of (evaluation - low) / (high - low)"
    scales = ", ".join(item.replace("=", ": ").replace(",", " to ") for item in options.scales)
    texts += [f"{len(trials)} trials: {numbers}. {score}; scales {scales}."]
    if best.number:
        test = (
            f"python scripts/tune.py --study {shlex.quote(str(options.study))} --retest 1001-1010"
        )
        texts += [BIASED.format(count["complete"]), f"```bash\n{test}\n```"]
    texts += ["![Scores and importances](report.png)"]
    lines = []
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    for trial in sorted(complete, key=lambda trial: -trial.value)[:SHOWN]:
        returns = ", ".join(
            f"{env} {short(value)}" for env, value in trial.user_attrs["returns"].items()
        )
        flags = shlex.join(flags_of_trial(trial)) or "the defaults"
        lines.append({"trial": trial.number, "score": f"{trial.value:.3f}"})
        lines[-1] |= {"evaluations": returns, "flags": f"`{flags}`"}
    texts += [markdown(lines)]
    if importances:
        words = ", ".join(f"{name} {short(value)}" for name, value in importances.items())
        texts += [f"Importance (PED-ANOVA, arXiv:2304.10255): {words}."]
    else:
        texts += [f"The importance of the flags is shown after {ENOUGH} complete trials."]
    for trial in failed_of(trials):
        texts.append(f"Trial {trial.number} failed: {trial.user_attrs['failed']}")
    write_trials(options.study / "trials.csv", trials)
    temporary = options.study / "report.tmp"
    temporary.write_text("\n\n".join(texts) + "\n")
    os.replace(temporary, options.study / "report.md")


def write_retest(options, best, scales: dict, seeds: list[int]) -> str:
    """Compare the runs in retest/, paired by seed: in each environment, and by the mean score over all of them."""
    rows, _ = read_folders([options.study / "retest"])
    names = [f"{options.script.stem}-{tag}" for tag in ("defaults", f"trial-{best.number}")]
    missing = {*names} - {row.exp_name for row in rows}
    reason = "does not contain runs of both with the same flags. Was another --device used before?"
    check(not missing, f"{options.study / 'retest'} {reason} Remove the runs that must not count")
    rows = [row for row in rows if row.exp_name in names and row.seed in seeds]
    rows = [row for row in rows if row.metric == SCORE]
    everywhere = f"score over {len(scales)} environments"
    for name in names if len(scales) > 1 else []:
        for seed in seeds:
            own = [row for row in rows if (row.exp_name, row.seed) == (name, seed)]
            parts = [(row.value, *scales[row.env_id]) for row in own]
            score = fmean((value - low) / (high - low) for value, low, high in parts)
            rows.append(Row(name, everywhere, seed, 0, SCORE, score, own[0].commit))
    how = SimpleNamespace(statistic="mean", bootstrap_reps=10_000, baseline=names[0])
    finals = finals_of(rows, SCORE)
    table = comparison_table(rows, SCORE, how)
    lines = []
    for row in table:
        means = [short(fmean(finals[row["env_id"], name].values())) for name in names]
        line = {"env_id": row["env_id"], "test": row["test"], "defaults": means[0]}
        line |= {f"trial {best.number}": means[1]}
        line["difference [95 %]"] = with_interval(row, "difference")
        lines.append(line | {"p (Holm)": row["p_holm"], "verdict": row["verdict"]})
    tested = sum(math.isfinite(row["p_holm"]) for row in table)
    title = f"# Trial {best.number} against the defaults on new seeds"
    text = "\n\n".join([title, markdown(lines), HOLM.format(tested)]) + "\n"
    (options.study / "retest.md").write_text(text)
    return text
