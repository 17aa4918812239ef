"""The flags and the metrics of the files of algos/."""

import ast
import re

from tables.sources import ROOT, number, read, table


def files_of_algos() -> list[str]:
    return sorted(path.stem for path in (ROOT / "algos").glob("*.py") if path.stem != "__init__")


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


def shown(default) -> str:
    """A default as a reader would write it."""
    words = {True: "on", False: "off", None: "none", "": "empty"}
    if isinstance(default, bool | str | None):
        return words.get(default, default)
    return f"{default:,}" if isinstance(default, int) else f"{default:g}"


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


def meaning(flag: str, texts: list[str]) -> str:
    """What a flag means in several files: their common text, or the most frequent one."""
    differing = {
        "--env-id": "the environment; the file's first lines name the spaces that it takes",
        "--learning-rate": "of Adam; in `a2c_atari` of RMSprop, in PQN of RAdam",
        "--norm-adv": "standardise the advantages of each minibatch; in `reinforce` of each batch, in "
        "`trpo_continuous` of each rollout",
        "--start-e": "epsilon, the probability of a random action, up to `--learning-starts`; in PQN at the start",
        "--target-network-frequency": "steps between updates of the target network; in SAC, TD3 and DDPG "
        "updates of the critics",
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
            name: re.sub(r"^(Penalty|RPO|RND|ICM|RAD|DrAC|LSTM|C51|CrossQ): ", "", text)
            for name, (_, text) in found.items()
        }
    rows = []
    for name, text in texts.items():
        defaults = [column.get(name, ("",))[0] for column in columns.values()]
        if name != "--exp-name" and len(set(defaults)) > 1:
            cells = [f"`{default}`" if default else "" for default in defaults]
            rows.append([f"`{name}`", text.replace("|", "\\|"), *cells])
    return table(["flag", "meaning", *[f"`{file}.py`" for file in columns]], rows, 2)


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


def ppo_metrics(text: str) -> str:
    """The table as it is, with new ranges in its last two columns."""
    values = {}
    for row in read("results/ppo_metrics.csv"):
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
