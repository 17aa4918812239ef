"""The search space and the scores of scripts/tune.py: --space and --scales, checked against the script's Args."""

import math
import re

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from plainrl_tools.common import check
from plainrl_tools.results import read_scales
from plainrl_tools.sweeping.plan import OURS, dashed, parse

FORM = "NAME=log(1e-4,3e-3), NAME=uniform(0.9,0.99), NAME=int(3,10) or NAME=choice(4,8,32)"


def flag_of(name: str, value, default, spread) -> list[str]:
    """The words of one flag on a command line.

    A float has four digits, or more if the rounded value would leave the range or move by over a thousandth of it.
    """
    if isinstance(default, bool):
        return [f"--{name}" if value == "True" else f"--no-{name}"]
    text = str(value)
    if isinstance(value, float):
        tolerance = (spread.high - spread.low) / 1000
        texts = [f"{value:.{digits}g}" for digits in range(4, 18)]
        near = (t for t in texts if abs(float(t) - value) <= tolerance)
        text = next((t for t in near if spread.low <= float(t) <= spread.high), text)
    return [f"--{name}", text]


def read_item(item: str):
    """Return the name of the flag and Optuna's distribution for an item of --space."""
    parts = re.fullmatch(r"-*([\w-]+)=(log|uniform|int|choice)\(([^()]+)\)", item)
    check(parts, f"--space {item}: give {FORM}")
    name, kind = parts[1].replace("_", "-"), parts[2]
    values = [value.strip() for value in parts[3].split(",")]
    if kind == "choice":
        several = len(set(values)) == len(values) > 1 and all(values)
        check(several, f"--space {item}: a choice needs several different values")
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
    """Return three dictionaries by flag: distributions, the script's defaults, and the defaults that lie in the space.

    Here each value is checked alone, against the types of Args. Rules about several flags are checked for whole trials.
    """
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
        check(name not in given, f"--{name} is in --space and after --; remove one of them")
        reserved = name in dashed((*OURS, "resume"))
        check(not reserved, f"--space {item}: --{name} is set by the tuner; search another flag")
        default = getattr(base, key)
        if isinstance(spread, CategoricalDistribution):
            for value in spread.choices:
                fits = not isinstance(default, bool) or value in ("True", "False")
                check(fits, f"--space {item}: {options.script} accepts only True and False")
                args = parse(types, options.script, words + flag_of(name, value, default, spread))
                if getattr(args, key) == default:
                    inside[name] = value
        else:
            # A flag that accepts only whole numbers rejects this fraction.
            value = str(spread.low) if isinstance(spread, IntDistribution) else "0.123"
            whole = type(default) is int and isinstance(spread, FloatDistribution)
            check(not whole, f"--space {item}: --{name} takes whole numbers; use int or choice")
            parse(types, options.script, [*words, f"--{name}", value])
            if type(default) in (int, float) and spread.low <= default <= spread.high:
                inside[name] = default
        space[name], defaults[name] = spread, default
    check(space, f"nothing to search; give --space {FORM}")
    return space, defaults, inside


def scales_of(options) -> dict[str, tuple[float, float]]:
    """Map env_ids to the returns that are normalised to 0 and to 1."""
    known = read_scales(options.normalise)
    for item in options.scales:
        env_id, _, numbers = item.rpartition("=")
        try:
            low, high = map(float, numbers.split(","))
        except ValueError:
            low = high = 0.0
        ordered = math.isfinite(high - low) and low < high
        check(
            ordered and env_id in options.env_ids,
            f"--scales {item}: give ENV_ID=LOW,HIGH with LOW below HIGH and an id of --env-ids",
        )
        known[env_id] = low, high
    if len(options.env_ids) == 1:  # a single environment needs no common scale
        known.setdefault(options.env_ids[0], (0.0, 1.0))
    unknown = [env_id for env_id in options.env_ids if env_id not in known]
    check(not unknown, f"{' '.join(unknown)} has no scale; give --scales ENV_ID=LOW,HIGH")
    return {env_id: known[env_id] for env_id in options.env_ids}
