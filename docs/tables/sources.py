"""What the tables of all pages share: the CSV files, the statistics, and how a number or a table is written."""

import csv
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def find(path: str) -> Path:
    """A CSV file of benchmarks/ or of the one study that has it, such as results/classic.csv."""
    files = [*(ROOT / "benchmarks").glob(path), *(ROOT / "benchmarks/studies").glob(f"*/{path}")]
    (found,) = files
    return found


def read(path: str) -> list[dict]:
    with open(find(path), newline="") as file:
        return list(csv.DictReader(file))


@cache
def statistics_of(name: str, baseline: str = "") -> tuple[list[dict], list[dict], str]:
    """The scores and the comparisons of results/NAME.csv as scripts/plot.py has them, and its tables."""
    import plot
    from plainrl_tools import compare, results

    options = plot.Options((), baseline=baseline)
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


def comparisons_of(name: str, baseline: str = "") -> list[dict]:
    return statistics_of(name, baseline)[1]


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


def seeds_of(scores: str, env_id: str, exp_name: str) -> str:
    for row in scores_of(scores):
        if (row["env_id"], row["exp_name"]) == (env_id, exp_name):
            return str(row["seeds"])
    raise ValueError(f"results/{scores}.csv lacks {exp_name} on {env_id}")


def difference(scores: str, env_id: str, exp_name: str, against: str, baseline: str = "") -> str:
    """The difference of two means over runs with the same seeds, and its interval."""
    for row in comparisons_of(scores, baseline):
        if (row["env_id"], row["exp_name"], row["against"]) == (env_id, exp_name, against):
            values = [float(row[key]) for key in ("difference", "low", "high")]
            widest = max(values, key=abs)
            mean, low, high = (number(value, widest) for value in values)
            return f"{mean} [{low}, {high}]"
    raise ValueError(f"results/{scores}.csv lacks {exp_name} against {against} on {env_id}")
