"""What scripts/tune.py searches and how it scores: --space and --scales, checked against the script's own Args."""

import math
import re

from common import check
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from results import read_scales
from sweeping.plan import OURS, dashed, parse

FORM = "NAME=log(1e-4,3e-3), NAME=uniform(0.9,0.99), NAME=int(3,10) or NAME=choice(4,8,32)"


def flag_of(name: str, value, default, spread) -> list[str]:
    """The words of one flag. Of a float four digits, more where these leave the range or a thousandth of it."""
    if isinstance(default, bool):
        return [f"--{name}" if value == "True" else f"--no-{name}"]
    text = str(value)
    if isinstance(value, float):
        off = (spread.high - spread.low) / 1000
        texts = [f"{value:.{digits}g}" for digits in range(4, 18)]
        near = (t for t in texts if abs(float(t) - value) <= off)
        text = next((t for t in near if spread.low <= float(t) <= spread.high), text)
    return [f"--{name}", text]


def read_item(item: str):
    """(name of the flag, Optuna's distribution) of an item of --space."""
    parts = re.fullmatch(r"-*([\w-]+)=(log|uniform|int|choice)\(([^()]+)\)", item)
    check(parts, f"--space {item}: give {FORM}")
    name, kind = parts[1].replace("_", "-"), parts[2]
    values = [value.strip() for value in parts[3].split(",")]
    if kind == "choice":
        several = len(set(values)) == len(values) > 1 and all(values)
        check(several, f"--space {item}: a choice needs several values, each once")
        return name, CategoricalDistribution(values)
    try:
        low, high = map(int if kind == "int" else float, values)
    except ValueError:
        check(False, f"--space {item}: give {FORM}")
    ordered = low < high and math.isfinite(high - low)
    check(ordered, f"--space {item}: the first number must be below the second")
    check(kind != "log" or low > 0, f"--space {item}: log needs numbers above 0")
    if kind == "int":
        return name, IntDistribution(low, high)
    return name, FloatDistribution(low, high, log=kind == "log")


def read_space(options, module, common: list[str]) -> tuple[dict, dict, dict]:
    """Three dictionaries by flag: what to search; the script's defaults; those of them that lie in the space, as Optuna
    has them. Values are tried on the types of Args one by one; its rules for several flags are for whole trials."""
    types = type("Args", (module.Args,), {"__post_init__": lambda self: None})
    words = ["--env-id", options.env_ids[0], *common]
    base = parse(types, options.script, words)
    given = dashed(word.partition("=")[0] for word in common if word.startswith("--"))
    given = {name.removeprefix("no-") for name in given}
    space, defaults, inside = {}, {}, {}
    for item in options.space:
        name, spread = read_item(item)
        key = name.replace("-", "_")
        check(hasattr(base, key), f"--space {item}: {options.script} has no --{name}")
        check(name not in space, f"--space has --{name} twice")
        check(name not in given, f"--{name} is in --space and behind -- as well")
        ours = name in dashed((*OURS, "resume"))
        check(not ours, f"--space {item}: --{name} is for the tuner to set")
        default = getattr(base, key)
        if isinstance(spread, CategoricalDistribution):
            for value in spread.choices:
                truth = not isinstance(default, bool) or value in ("True", "False")
                check(truth, f"--space {item}: {options.script} takes True or False")
                args = parse(types, options.script, words + flag_of(name, value, default, spread))
                if getattr(args, key) == default:
                    inside[name] = value
        else:
            # a fraction is refused where the flag takes whole numbers
            value = str(spread.low) if isinstance(spread, IntDistribution) else "0.123"
            parse(types, options.script, [*words, f"--{name}", value])
            if type(default) in (int, float) and spread.low <= default <= spread.high:
                inside[name] = default
        space[name], defaults[name] = spread, default
    check(space, f"nothing to search: give --space {FORM}")
    return space, defaults, inside


def scales_of(options) -> dict[str, tuple[float, float]]:
    """env_id -> the returns that count as 0 and as 1."""
    known = read_scales(options.normalise)
    for item in options.scales:
        env_id, _, numbers = item.rpartition("=")
        try:
            low, high = map(float, numbers.split(","))
        except ValueError:
            low = high = 0.0
        apart = math.isfinite(high - low) and low < high
        check(
            apart and env_id in options.env_ids,
            f"--scales {item}: give ENV_ID=LOW,HIGH, LOW below HIGH",
        )
        known[env_id] = low, high
    if len(options.env_ids) == 1:  # nothing to be comparable with
        known.setdefault(options.env_ids[0], (0.0, 1.0))
    unknown = [env_id for env_id in options.env_ids if env_id not in known]
    check(not unknown, f"{' '.join(unknown)} has no scale: give --scales ENV_ID=LOW,HIGH")
    return {env_id: known[env_id] for env_id in options.env_ids}
