"""Named edits of the files in algos/: mutants, right changes and the changed files of the studies.

Each edit is anchored by a function and a short fragment of its code, so that it survives other changes of the file.
tests/probe/mutants.txt explains the format.

    python scripts/plainrl_tools/edits.py                # list the edits that do not apply
    python scripts/plainrl_tools/edits.py NAME FOLDER    # write the changed file of a study to FOLDER/NAME.py
"""

import ast
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALGOS = ROOT / "algos"
MUTANTS = ROOT / "tests/probe/mutants.txt"
CHANGES = ROOT / "tests/probe/changes.txt"
PATCHES = tuple(sorted((ROOT / "benchmarks/studies").glob("*/patches.txt")))
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
FILES = {  # the beginnings of the mutants' names, and the files that they change
    "ddp-atari-": "ppo_atari_ddp",
    "ddp-": "ppo_continuous_ddp",
    "ray-": "ppo_continuous_ray",
    "rpo-": "rpo_continuous",
    "squashed-": "ppo_squashed",
    "penalty-": "ppo_penalty",
    "rnd-": "ppo_rnd",
    "icm-": "ppo_icm",
    "rad-": "ppo_rad",
    "drac-": "ppo_drac",
    "trpo-": "trpo_continuous",
    "discrete-": "ppo",
    "reinforce-": "reinforce",
    "vector-dqn-": "dqn",
    "ppo-atari-": "ppo_atari",
    "a2c-": "a2c_atari",
    "dqn-pixels-": "dqn_pixels",
    "dqn-": "dqn_atari",
    "pixels-": "ppo_pixels",
    "": "ppo_continuous",
}
HEADS = (
    re.compile(
        r"# (?P<name>[\w-]+), (?P<verdict>broken|differs): (?P<check>[\w-]+) \((?P<source>.+?)\): .+"
    ),
    re.compile(r"# (?P<name>[\w-]+), of: (?P<file>\w+): .+"),
)


def read(path: Path) -> list[dict]:
    """The entries of a list: the parts of the head, the file, and the edits (place, old lines, new lines).

    Without new lines (None) the whole statement around the fragment is deleted."""
    entries = []
    for block in re.split(r"\n(?=# )", path.read_text())[1:]:
        head, *lines = block.rstrip().split("\n")
        found = [match for pattern in HEADS if (match := pattern.fullmatch(head))]
        if not found:
            raise ValueError(f"{path}: this head has another form than those before it: {head}")
        entry = found[0].groupdict()
        starts = (file for start, file in FILES.items() if entry["name"].startswith(start))
        entries.append({"file": next(starts), **entry, "edits": read_edits(lines)})
    return entries


def read_edits(lines: list[str]) -> list[tuple]:
    edits, place, last = [], None, ""
    for line in lines:
        sign, text = line[:1], line[1:]
        if sign == "@":
            place = text.strip()
        elif sign == "-" and last != "-":
            edits.append((place, [text], None))
        elif sign == "-":
            edits[-1][1].append(text)
        elif sign == "+":
            place, old, new = edits.pop()
            edits.append((place, old, [*(new or []), text]))
        else:
            raise ValueError(f"a line starts with neither @, - nor +: {line}")
        last = sign
    return edits


def apply(text: str, edits: list[tuple]) -> str:
    """The text of a file with all edits made. Every fragment is looked up in the original text.

    A fragment must occur exactly once in its place. It may begin and end within a line; its second line and those
    after it are indented relative to the line in which it begins."""
    tree = parse(text)
    lines = text.splitlines(keepends=True)
    starts = [0]  # of each line
    for line in lines:
        starts.append(starts[-1] + len(line))
    spans = []
    for place, old, new in edits:
        found = []
        for first, last in find_place(tree, place, len(lines)):
            found += find_fragment(text, starts[first], starts[last], old)
        if len(found) != 1:
            others = places_of(text, tree, starts, old)
            seen = f" (but in {', '.join(others)})" if others and not found else ""
            raise ValueError(f"@ {place}: found {len(found)} times{seen}: " + "\n".join(old))
        start, end, indent = found[0]
        if new is None:
            number = text.count("\n", 0, start) + 1, text.count("\n", 0, end) + 1
            first, last = find_statement(tree, *number)
            spans.append((starts[first - 1], starts[last], ""))
        else:
            spans.append((start, end, indented(new, indent)))
    spans.sort()
    edited, position = "", 0
    for start, end, new in spans:
        if start < position:
            raise ValueError("two edits overlap")
        edited += text[position:start] + new
        position = end
    edited += text[position:]
    ast.parse(edited)
    return edited


@cache
def parse(text: str) -> ast.Module:
    return ast.parse(text)


def find_place(tree: ast.Module, place: str, num_lines: int) -> list[tuple[int, int]]:
    """Ranges of lines, counted from 0: a function, class or method, or all code outside of them."""
    if place == "module":
        ranges, position = [], 0
        for node in tree.body:
            if isinstance(node, DEFINITIONS):
                first, last = lines_of(node)
                ranges.append((position, first - 1))
                position = last
        return [*ranges, (position, num_lines)]
    node = tree
    for name in place.split("."):
        inside = [child for child in ast.iter_child_nodes(node) if isinstance(child, DEFINITIONS)]
        inside = [child for child in inside if child.name == name]
        if len(inside) != 1:
            raise ValueError(f"@ {place}: {name} is defined {len(inside)} times")
        (node,) = inside
    first, last = lines_of(node)
    return [(first - 1, last)]


def places_of(text: str, tree: ast.Module, starts: list[int], fragment: list[str]) -> list[str]:
    """Functions and classes in which a fragment is found, for the message about one that is not."""
    names = []
    for node in tree.body:
        if isinstance(node, DEFINITIONS):
            first, last = lines_of(node)
            if find_fragment(text, starts[first - 1], starts[last], fragment):
                names.append(node.name)
    return names


def lines_of(node) -> tuple[int, int]:
    """The first and last line, counted from 1, with decorators."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)]), node.end_lineno


def find_fragment(text: str, start: int, end: int, fragment: list[str]) -> list[tuple]:
    """Start, end and indentation of each occurrence of a fragment within text[start:end]."""
    found = []
    position = text.find(fragment[0], start, end)
    while position >= 0:
        line = text[text.rfind("\n", 0, position) + 1 :]
        indent = line[: len(line) - len(line.lstrip())]
        whole = indented(fragment, indent)
        if text.startswith(whole, position) and position + len(whole) <= end:
            found.append((position, position + len(whole), indent))
        position = text.find(fragment[0], position + 1, end)
    return found


def indented(lines: list[str], indent: str) -> str:
    return "\n".join([lines[0], *(indent + line if line else "" for line in lines[1:])])


def find_statement(tree: ast.Module, first: int, last: int) -> tuple[int, int]:
    """The lines of the smallest statement that contains these lines."""
    spans = [lines_of(node) for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    around = [span for span in spans if span[0] <= first and last <= span[1]]
    if not around:
        raise ValueError(f"no statement contains lines {first} to {last}")
    return min(around, key=lambda span: span[1] - span[0])


def failures(algos: Path = ALGOS) -> list[str]:
    """A message for each entry whose edits do not apply."""
    lines = []
    for path in (MUTANTS, CHANGES, *PATCHES):
        for entry in read(path):
            file = algos / f"{entry['file']}.py"
            try:
                apply(file.read_text(), entry["edits"])
            except (OSError, ValueError, SyntaxError) as error:
                place = path.relative_to(ROOT)
                lines.append(f"{place}, {entry['name']}, {file.name} {error}")
    return lines


def write_patched(name: str, folder: Path) -> None:
    """Write the changed file of a study to folder/name.py. Raises ValueError if the edit no longer applies."""
    found = [(path, entry) for path in PATCHES for entry in read(path) if entry["name"] == name]
    if not found:
        names = ", ".join(entry["name"] for path in PATCHES for entry in read(path))
        raise ValueError(f"{name} is not one of {names}")
    ((path, entry),) = found
    file = ALGOS / f"{entry['file']}.py"
    try:
        text = apply(file.read_text(), entry["edits"])
    except ValueError as error:
        message = f"{name} of {path.relative_to(ROOT)} does not apply to the current {file.name}"
        raise ValueError(f"{message}; update it: {error}") from None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(text)


def main(*arguments: str) -> None:
    if len(arguments) == 2:
        try:
            write_patched(arguments[0], Path(arguments[1]))
        except ValueError as error:
            sys.exit(f"edits.py: {error}")
    elif arguments:
        sys.exit("edits.py: give NAME and FOLDER, or nothing to list the edits that do not apply")
    else:
        found = failures()
        print(*found, f"{len(found)} edits do not apply", sep="\n")
        sys.exit(bool(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
