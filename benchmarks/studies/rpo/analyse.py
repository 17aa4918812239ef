"""Questions 1 to 4 and 6 to 13 of benchmarks/studies/rpo/predictions.md, from their runs: Markdown tables and figures.

    python benchmarks/studies/rpo/analyse.py FILE.csv ...       # which files: docs/rpo-more.md's last section

Each cell of setting x algorithm x time limit x entropy bonus on Pendulum-v1 is one experiment. Runs of one seed are
paired, p is of the exact sign-flip test, corrected by Holm's method over the comparisons of a question in one setting.
Cells without runs are left out, and so are their comparisons: the correction is for those planned, never for fewer.

Question 4 is of six other tasks. A run of RPO less the run of PPO with its seed, over the difference that CleanRL
published, is the share of that difference that is there: 1 as published, 0 for none, below 0 the other way round. Its
one test is of the mean share of all pairs of a task and a seed, in training returns, as the published ones are; of more
than 14 pairs it is of random flips. Its interval resamples these pairs, tasks among them, and is wider than one of
these six tasks alone, stratified, would be.
The last table is of the walkers of docs/rpo-more.md.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import tyro
from plainrl_tools.common import check, check_output, writing
from plainrl_tools.compare import compare, interval, markdown, with_interval
from plainrl_tools.results import CURVE, ENTROPY, curves_of, finals_of, read_csv

ROOT = Path(__file__).resolve().parents[3]
TASK = "Pendulum-v1"
STANDARDISED = "defaults-norm-adv"  # the defaults with --norm-adv
DISCOUNT = "defaults-gamma"  # the defaults with the paper's gamma, 0.99
TOGETHER = "defaults-both"  # the defaults with both
SHORT = "paper-short"  # the paper's settings with rollouts of 32 steps of 64 environments
CLIPPED = "defaults-clip"  # the defaults with --clip-vloss
THREE = "defaults-three"  # the defaults with all three
OPEN, SHORT_OPEN = "paper-open", "paper-short-open"  # without --clip-vloss
WIDE = "paper-wide"  # the paper's settings with --init-std 1.414
SETTINGS = ("paper", "defaults", STANDARDISED, DISCOUNT, TOGETHER, CLIPPED, THREE)
SETTINGS += (SHORT, OPEN, SHORT_OPEN, WIDE)
ALGORITHMS = {  # title, file, what its grid adds to the name
    "ppo": ("PPO", "ppo_continuous", ""),
    "rpo": ("RPO", "rpo_continuous", ""),
    "fixed": ("fixed scale", "fixed_scale", ""),
    "ppo_laplace": ("PPO, Laplace", "rpo_continuous", "-distribution=laplace-rpo-alpha=0"),
    "rpo_laplace": ("RPO, Laplace", "rpo_continuous", "-distribution=laplace"),
    "ppo_gumbel": ("PPO, Gumbel", "rpo_continuous", "-distribution=gumbel-rpo-alpha=0"),
    "rpo_gumbel": ("RPO, Gumbel", "rpo_continuous", "-distribution=gumbel"),
}
BONUSES = ("0", "0.01", "0.05")
LIMITS = {"right": "", "mistaken": "-no-bootstrap-truncation"}
LIMIT_WORDS = {"right": "bootstrapped", "mistaken": "as termination"}  # how a figure says it
WALKERS = {  # trained by scripts/rpo.sh, disturbed by walk.py
    "RPO": "rpo_continuous-robust",
    "PPO": "ppo_continuous-robust",
    "PPO, bonus 0.003": "ppo_continuous-robust-ent-coef=0.003",
    "PPO, scale held at 1.5": "fixed_scale-robust",
    "PPO, trained under noise": "noisy_actions-robust",
}
WALKS = ("", "noise 0.6", "observation noise 0.4", "hull mass x2", "hull mass x0.5")
OTHERS = {  # CleanRL's PPO and RPO, alpha 0.5, 8M steps, training return: its documentation's table, v4 for MuJoCo
    "HopperStand-v1": (3.26, 404.39),
    "FingerTurnHard-v1": (83.76, 259.99),
    "WalkerRun-v1": (128.18, 391.56),
    "Ant-v5": (1774.42, -7.99),
    "Reacher-v5": (-4.67, -66.35),
    "Pusher-v5": (-30.62, -276.32),
}
BONUS = "bonus 0.01"
METRICS = {"evaluation": "eval_return_mean", "training": "train_return_last100"}
SHADES = ("#332288", "#0072B2", "#56B4E9")  # of the bonuses
COLOURS = {"ppo": "#0072B2", "rpo": "#D55E00"}  # as everywhere


@dataclass
class Args:
    inputs: tyro.conf.Positional[tuple[Path, ...]]  # long CSVs of plot.py --export; the last counts
    figure: Path | None = None  # where to draw the cells, a point for each seed
    over_time: Path | None = None  # where to draw return and entropy over steps


@dataclass
class Options:  # of compare.py
    statistic: str = "mean"
    bootstrap_reps: int = 2000


def name_of(setting: str, algorithm: str, limit: str, bonus: str) -> str:
    """The exp_name of a cell, as scripts/rpo.sh gives it."""
    _, file, extra = ALGORITHMS[algorithm]
    extra += "" if bonus == "0" else f"-ent-coef={bonus}"
    return f"{file}-{setting}{LIMITS[limit]}{extra}"


def planned(setting: str) -> dict[str, list[tuple]]:
    """question -> [(cell, cell it is compared with), ...], as the page declared them before the runs; a cell is the
    arguments of name_of."""

    def pairs(*of, other: str = setting) -> list[tuple]:
        return [((setting, *a), (other, *b)) for a, b in of]

    right, right_heavy = ("ppo", "right", "0"), ("ppo", "right", "0.05")
    bare, heavy = ("ppo", "mistaken", "0"), ("ppo", "mistaken", "0.05")
    robust, held = ("rpo", "mistaken", "0"), ("fixed", "mistaken", "0")
    if setting == STANDARDISED:
        within = pairs((right_heavy, right), (heavy, bare), (robust, bare))
        same = [(cell, cell) for cell in (right, bare, robust, right_heavy, heavy)]
        return {"7": within + pairs(*same, other="defaults")}
    if setting == DISCOUNT:
        same = pairs((bare, bare), (robust, robust), other="defaults")
        return {"8": pairs((robust, bare)) + same}
    if setting == TOGETHER:
        within = pairs((bare, right), (robust, bare), (heavy, bare), (robust, heavy))
        return {"10": within + pairs((bare, bare), (robust, robust), other=DISCOUNT)}
    if setting in (CLIPPED, THREE):
        same = pairs(
            (bare, bare), (robust, robust), other="defaults" if setting == CLIPPED else TOGETHER
        )
        return {"12": pairs((robust, bare)) + same}
    if setting == OPEN:
        return {"12": pairs((robust, robust), (heavy, heavy), other="paper")}
    if setting == SHORT_OPEN:
        return {"12": pairs((bare, bare), other=SHORT)}
    if setting == WIDE:
        laplace = ("paper", "ppo_laplace", "mistaken", "0"), (setting, *bare)
        return {"13": [*pairs((bare, bare), other="paper"), laplace]}
    if setting == SHORT:
        ninth = pairs((robust, robust), (heavy, heavy), other="paper")
        within = pairs((robust, bare), (heavy, bare))
        return {"9": ninth, "11": within + pairs((bare, bare), other="paper")}
    first = [(("ppo", "mistaken", bonus), ("ppo", "right", bonus)) for bonus in BONUSES]
    first += [(("ppo", "mistaken", bonus), bare) for bonus in BONUSES[1:]]
    same = product(("right", "mistaken"), BONUSES)
    second = [(("rpo", limit, bonus), ("ppo", limit, bonus)) for limit, bonus in same]
    second += [(robust, ("ppo", "mistaken", bonus)) for bonus in BONUSES[1:]]
    questions = {"1": pairs(*first), "2": pairs(*second)}
    if setting == "paper":
        sixth = [(held, bare), (held, robust), (held, heavy), (("fixed", "right", "0"), right)]
        questions["6"] = pairs(*sixth)
        third = []
        for shape in ("laplace", "gumbel"):
            ppo, rpo = ((f"{x}_{shape}", "mistaken", "0") for x in ("ppo", "rpo"))
            third += [(ppo, bare), (rpo, robust), (rpo, ppo)]
        questions["3"] = pairs(*third)
    return questions


def stepwise(ps: list[float], planned: int) -> list[float]:
    """Holm's correction of the p values that are there, for `planned` comparisons of which some may have no runs: the
    k-th least is multiplied by planned - k + 1, as if those that lack were the least clear."""
    corrected, bound = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        bound = max(bound, min(1.0, ps[i] * (planned - rank)))
        corrected[i] = bound
    return corrected


def words(cell: tuple, setting: str) -> str:
    """A cell in a table of `setting`, which names its own only where that is another."""
    own, algorithm, limit, bonus = cell
    return ", ".join([ALGORITHMS[algorithm][0], limit, bonus] + [own] * (own != setting))


def cells(rows, setting: str) -> list[dict]:
    """One line a cell: its return, its training return, and the entropy of its policy at the end, in nats."""
    lines = []
    finals = {
        name: finals_of(rows, name)
        for name in ("eval_return_mean", "train_return_last100", ENTROPY)
    }
    for cell in product(ALGORITHMS, LIMITS, BONUSES):
        key = (TASK, name_of(setting, *cell))
        if key not in finals["eval_return_mean"]:
            continue
        values = [np.array(list(final[key].values())) for final in finals.values()]
        score = dict(zip(("low", "high"), interval(values[0], Options())), mean=values[0].mean())
        line = dict(zip(("algorithm", "time limit", "bonus"), (ALGORITHMS[cell[0]][0], *cell[1:])))
        line |= {"seeds": len(values[0]), "evaluation: mean [95 %]": with_interval(score, "mean")}
        line |= {"training, last 100": float(values[1].mean()), "entropy": float(values[2].mean())}
        lines.append(line)
    return lines


def commits(rows, setting: str) -> str:
    """Which code trained which cells, in words."""
    made_by = {}
    for row in rows:
        made_by.setdefault((row.env_id, row.exp_name), set()).add(row.commit)
    found = {}
    for cell in product(ALGORITHMS, LIMITS, BONUSES):
        key = TASK, name_of(setting, *cell)
        for commit in sorted(made_by.get(key, ())):
            found.setdefault(commit, []).append(words((setting, *cell), setting))
    if len(found) == 1:
        return f"Commit: {min(found)}"
    return "Commits: " + ". ".join(
        f"{commit}: {'; '.join(cells)}" for commit, cells in found.items()
    )


def comparisons(rows, setting: str, question: str) -> list[dict]:
    """One line a planned comparison whose runs are there: differences of evaluations and of training returns, with
    p corrected by Holm's method over the comparisons that the question planned, for each of the two by itself."""
    pairs = planned(setting)[question]
    lines = [{"exp_name": words(a, setting), "against": words(b, setting)} for a, b in pairs]
    for title, metric in METRICS.items():
        scores = finals_of(rows, metric)
        found = []
        for line, pair in zip(lines, pairs):
            keys = [(TASK, name_of(*cell)) for cell in pair]
            if all(key in scores for key in keys):
                row = compare(*(scores[key] for key in keys), Options())
                same = scores[keys[0]].keys() == scores[keys[1]].keys()
                check(same, f"{line['exp_name']} and {line['against']} have different seeds")
                found.append((line, row))
        corrected = stepwise([row["p"] for _, row in found], len(pairs))
        for (line, row), p in zip(found, corrected):
            line |= {f"{title} [95 %]": with_interval(row, "difference"), f"p, {title}": p}
    return [line for line in lines if len(line) > 2]


def others(rows) -> tuple[list[dict], str]:
    """Of the six other tasks: a line each, with means over seeds; and the test of all pairs, in words."""
    trained, shown = (finals_of(rows, METRICS[title]) for title in ("training", "evaluation"))
    lines, pairs = [], [{}, {}]
    for task, published in OTHERS.items():
        keys = [(task, f"{file}-published") for file in ("ppo_continuous", "rpo_continuous")]
        if not all(key in trained for key in keys):
            continue
        seeds = trained[keys[0]].keys()
        check(seeds == trained[keys[1]].keys(), f"{task}: not the same seeds")
        line = {"task": task, "seeds": len(seeds)}
        line |= {f"{name}, CleanRL": value for name, value in zip(("PPO", "RPO"), published)}
        for title, scores in (("training", trained), ("evaluation", shown)):
            for name, key in zip(("PPO", "RPO"), keys):
                line[f"{name}, {title}"] = float(np.mean(list(scores[key].values())))
        gap = published[1] - published[0]
        for name, key in enumerate(keys):
            pairs[name] |= {(task, seed): score / gap for seed, score in trained[key].items()}
        line["share"] = (line["RPO, training"] - line["PPO, training"]) / gap
        lines.append(line)
    if not lines:
        return [], ""
    row = compare(pairs[1], pairs[0], Options())
    tested = f"{row['test'].replace('seeds', 'of a task and a seed')}, p = {row['p']:.2g}"
    share = f"Share of the published difference: {with_interval(row, 'difference')}"
    return lines, f"{share}; {tested}."


def bonuses(rows) -> tuple[list[dict], list[dict]]:
    """Of the six other tasks PPO with an entropy bonus of 0.01, beside PPO and RPO with its seeds: a line each, and
    what it has over PPO and RPO over it, as shares of the published difference, over all pairs of a task and a seed."""
    shown, trained = (finals_of(rows, name) for name in METRICS.values())
    nats = finals_of(rows, ENTROPY)
    lines, shares = [], {name: {} for name in ("PPO", BONUS, "RPO")}
    for task, published in OTHERS.items():
        seeds = trained.get((task, "ppo_continuous-published-ent-coef=0.01"), {}).keys()
        if not seeds:
            continue
        line = {"task": task, "seeds": len(seeds)}
        files = ("ppo_continuous-published", "ppo_continuous-published-ent-coef=0.01")
        keys = [(task, name) for name in (*files, "rpo_continuous-published")]
        for title, table in (("training", trained), ("evaluation", shown), ("nats", nats)):
            for name, key in zip(shares, keys):
                lacking = seeds - table.get(key, {}).keys()
                check(not lacking, f"{task}: {name} lacks seeds {sorted(lacking)}")
                line[f"{name}, {title}"] = float(np.mean([table[key][seed] for seed in seeds]))
        for name, key in zip(shares, keys):
            gap = published[1] - published[0]
            shares[name] |= {(task, seed): trained[key][seed] / gap for seed in seeds}
        lines.append(line)
    found = []
    for name, other in ((BONUS, "PPO"), ("RPO", BONUS)) if lines else ():
        row = compare(shares[name], shares[other], Options())
        test = row["test"].replace("seeds", "of a task and a seed")
        share = with_interval(row, "difference")
        found.append(
            row | {"exp_name": name, "against": other, "test": test, "share [95 %]": share}
        )
    for row, p in zip(found, stepwise([row["p"] for row in found], len(found))):
        row["p"] = p
    columns = ("exp_name", "against", "test", "share [95 %]", "p")
    return lines, [{name: row[name] for name in columns} for row in found]


def walkers(rows) -> tuple[list[dict], list[dict]]:
    """Of the disturbed walkers: one line each, with its means over seeds, and RPO's differences from the others in the
    three disturbances that were planned."""
    scores = finals_of(rows, "eval_return_mean")
    env_ids = {walk: ", ".join(["BipedalWalker-v3", *filter(None, [walk])]) for walk in WALKS}
    lines, found = [], []
    for title, name in WALKERS.items():
        if (env_ids["noise 0.6"], name) not in scores:
            continue
        line = {"walker": title, "seeds": len(scores[env_ids["noise 0.6"], name])}
        for walk, env_id in env_ids.items():
            line[walk or "undisturbed"] = float(np.mean(list(scores[env_id, name].values())))
        for metric in ("entropy", "mode_outside_bounds_percent"):
            values = finals_of(rows, metric)[env_ids[""], name].values()
            line[metric] = float(np.mean(list(values)))
        lines.append(line)
    pairs = list(product(WALKS[1:4], list(WALKERS)[1:]))
    for walk, title in pairs:
        ours, others = ((env_ids[walk], WALKERS[name]) for name in ("RPO", title))
        if ours in scores and others in scores:
            row = compare(scores[ours], scores[others], Options())
            found.append({"disturbance": walk, "RPO against": title} | row)
    for row, p in zip(found, stepwise([row["p"] for row in found], len(pairs))):
        row |= {"p": p, "difference [95 %]": with_interval(row, "difference")}
    columns = ("disturbance", "RPO against", "test", "difference [95 %]", "p")
    return lines, [{name: row[name] for name in columns} for row in found]


def draw(rows, file: Path) -> None:
    """A row of panels a setting, a column a time limit: return over entropy bonus, a point a seed, a bar the mean."""
    import matplotlib.pyplot as plt

    scores = finals_of(rows, "eval_return_mean")
    there = [
        s
        for s in SETTINGS[:2]
        if any((TASK, name_of(s, "ppo", "mistaken", b)) in scores for b in BONUSES)
    ]
    figure, axes = plt.subplots(
        len(there),
        2,
        figsize=(7, 2.6 * len(there)),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for (row, setting), (column, limit) in product(enumerate(there), enumerate(LIMITS)):
        axis = axes[row][column]
        for (place, bonus), (side, algorithm) in product(enumerate(BONUSES), enumerate(COLOURS)):
            values = scores.get((TASK, name_of(setting, algorithm, limit, bonus)), {}).values()
            x = place + 0.3 * side - 0.15
            if values:
                axis.plot(
                    [x] * len(values),
                    list(values),
                    "o",
                    ms=4,
                    alpha=0.5,
                    mew=0,
                    color=COLOURS[algorithm],
                )
                mean = np.mean(list(values))
                label = algorithm.upper() if bonus == BONUSES[0] else None
                axis.plot(
                    [x - 0.11, x + 0.11], [mean] * 2, lw=2.5, color=COLOURS[algorithm], label=label
                )
        where = {"paper": "the paper's settings", "defaults": "plainrl's defaults"}[setting]
        axis.set_title(f"truncation {LIMIT_WORDS[limit]}, {where}", fontsize=9)
        axis.set_xticks(range(len(BONUSES)), BONUSES)
        axis.set_xlim(-0.5, len(BONUSES) - 0.5)
        axis.grid(axis="y", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("entropy coefficient")
    for row in axes:
        row[0].set_ylabel("evaluation return")
    axes[0][0].legend(frameon=False, loc="lower left")
    figure.savefig(file, dpi=200)


def draw_over_time(rows, file: Path) -> None:
    """Return and entropy over steps in the paper's settings, of cells that have both curves: a line a seed, a bold one
    their mean."""
    import matplotlib.pyplot as plt

    returns, entropies = curves_of(rows, CURVE), curves_of(rows, ENTROPY)
    figure, axes = plt.subplots(1, 2, figsize=(7, 3.1), layout="constrained")
    shown = [("ppo", "right", "0.01"), *(("ppo", "mistaken", bonus) for bonus in BONUSES)]
    shown += [("fixed", "mistaken", "0"), ("rpo", "mistaken", "0")]
    for algorithm, limit, bonus in shown:
        key = (TASK, name_of("paper", algorithm, limit, bonus))
        if min((len(points) for points in entropies.get(key, {}).values()), default=0) < 2:
            continue  # no curve, only the last entropy
        colours = {"ppo": SHADES[BONUSES.index(bonus)], "fixed": "#009E73", "rpo": COLOURS["rpo"]}
        look = {"color": colours[algorithm], "ls": "-" if limit == "mistaken" else "--"}
        fixed = "PPO, standard deviation 1" if algorithm == "fixed" else ALGORITHMS[algorithm][0]
        label = f"{fixed}; {bonus}; {LIMIT_WORDS[limit]}"
        for axis, curves in zip(axes, (returns, entropies)):
            seeds = [np.array(points).T for points in curves[key].values()]
            steps = np.linspace(
                max(steps[0] for steps, _ in seeds), min(steps[-1] for steps, _ in seeds), 50
            )
            for one in seeds:
                axis.plot(*one, lw=0.5, alpha=0.25, **look)
            mean = np.mean([np.interp(steps, *one) for one in seeds], axis=0)
            axis.plot(steps, mean, lw=2, label=label, **look)
    for axis, title in zip(axes, ("training return", "entropy of the policy (nats)")):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("thousand steps")
        axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:.0f}")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    lines = axes[0].get_legend_handles_labels()
    figure.legend(
        *lines,
        title="algorithm; entropy coefficient; truncation",
        frameon=False,
        fontsize=8,
        title_fontsize=8,
        loc="outside lower center",
        ncols=2,
    )
    figure.savefig(file, dpi=200)


def rows_of(files: tuple[Path, ...]) -> list:
    """The rows of all files; of an experiment that two of them have, those of the later file."""
    experiments = {}
    for file in files:
        found = {}
        for row in read_csv(file):
            found.setdefault((row.env_id, row.exp_name), []).append(row)
        for key, rows in found.items():
            seeds = [row.seed for row in rows if row.metric == "eval_return_mean"]
            check(len(seeds) == len(set(seeds)), f"{file}: {', '.join(key)} has a seed twice")
        experiments |= found
    return [row for rows in experiments.values() for row in rows]


def main() -> None:
    args = tyro.cli(Args, description=__doc__)
    check(args.inputs, "give the CSV files that plot.py --export wrote")
    for flag, file in (("--figure", args.figure), ("--over-time", args.over_time)):
        check_output(flag, file, ".png", ".pdf", ".svg")
    rows = rows_of(args.inputs)
    for setting in SETTINGS:
        if lines := cells(rows, setting):
            print(f"## {setting}\n\n{markdown(lines)}\n\n{commits(rows, setting)}.\n")
            for question, pairs in planned(setting).items():
                if found := comparisons(rows, setting, question):
                    title = f"Question {question}: differences, p corrected for {len(pairs)}"
                    print(f"{title}\n\n{markdown(found)}\n")
    first = rows_of(args.inputs[::-1])
    for question, pairs in planned("paper").items():
        now = comparisons(rows, "paper", question)
        if found := [x for x in comparisons(first, "paper", question) if x not in now]:
            title = (
                f"Question {question} with the first runs of what was run twice, p corrected for"
            )
            print(f"{title} {len(pairs)}\n\n{markdown(found)}\n")
    lines, test = others(rows)
    if lines:
        print(f"## six other tasks\n\n{markdown(lines)}\n\n{test}\n")
    lines, differences = bonuses(rows)
    if lines:
        title = "Shares of the published difference, p corrected for 2"
        print(f"With a bonus of 0.01\n\n{markdown(lines)}\n\n{title}\n\n{markdown(differences)}\n")
    lines, differences = walkers(rows)
    if lines:
        title = f"Differences, p corrected for {3 * (len(WALKERS) - 1)}"
        print(f"## walkers\n\n{markdown(lines)}\n\n{title}\n\n{markdown(differences)}\n")
    with writing():
        if args.figure:
            draw(rows, args.figure)
        if args.over_time:
            draw_over_time(rows, args.over_time)


if __name__ == "__main__":
    main()
