"""Bring the generated parts of the pages up to date.

    python docs/generate.py             # rewrite them
    python docs/generate.py --check     # change nothing; exit status 1 if one is out of date

Two things are generated. Text between `<!-- generated: NAME -->` and `<!-- end -->` comes from the function NAME in
docs/tables/, which reads the CSV files of benchmarks/ or the files of algos/. Words after the name are its arguments:
`flags_of dqn` has the flags of dqn.py, `tables_of SET` the tables that scripts/plot.py prints of SET.csv. And a link
whose text is code and whose target is a line of a Python file, such as [`compute_gae`](../../algos/ppo.py#L190), leads
to the first line with that code, or to the definition of that name.
"""

import argparse
import posixpath
import re
import sys
from pathlib import Path

from tables import files, returns, sources, speed, studies
from tables.sources import ROOT

sys.path.insert(0, str(ROOT / "scripts"))  # the tables take scores from plot.py and plainrl_tools
MODULES = (files, returns, sources, speed, studies)
BLOCK = re.compile(r"(<!-- generated: (\w+)([ \w]*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
CODE_LINK = re.compile(r"\[`([^`\n]+)`\]\(([\w./-]+\.py)#L\d+\)")


def line_of(code: str, path: str) -> int | None:
    """The first line of a file with this code, or the one that defines this name."""
    lines = (ROOT / path).read_text().splitlines()
    if re.fullmatch(r"\w+(\.\w+)?", code):
        name = code.split(".")[-1]
        for pattern in (rf"(def|class) {name}\b", rf"\s+def {name}\b", rf"\s*{name}(: [^=]+)? = "):
            for number, line in enumerate(lines, 1):
                if re.match(pattern, line):
                    return number
    return next((number for number, line in enumerate(lines, 1) if code in line), None)


def table_function(name: str):
    """The function of this name in docs/tables/, or None."""
    for module in MODULES:
        if callable(found := getattr(module, name, None)):
            return found
    return None


def renew(page: Path) -> tuple[str, list[str]]:
    """The page's text with its generated parts renewed, and what could not be."""
    where = page.relative_to(ROOT).as_posix()
    problems = []

    def link(match) -> str:
        code, target = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(where), target))
        line = line_of(code, path) if (ROOT / path).exists() else None
        if line is None:
            problems.append(f"{where}: {path} has no line with {code}")
            return match.group()
        return f"[`{code}`]({target}#L{line})"

    def block(match) -> str:
        start, name, words, text, end = match.groups()
        function = table_function(name)
        if function is None:
            problems.append(f"{where}: docs/tables/ has no function {name}")
            return match.group()
        return start + (function(*words.split()) if words else function(text)) + end

    return CODE_LINK.sub(link, BLOCK.sub(block, page.read_text())), problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, tell what is old")
    args = parser.parse_args()
    status = 0
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in [*pages, *sorted((ROOT / "benchmarks").rglob("curves/tables.md"))]:
        text, problems = renew(page)
        for problem in problems:
            print(problem, file=sys.stderr)
            status = 1
        if text != page.read_text():
            print(f"{page.relative_to(ROOT)}: {'out of date' if args.check else 'renewed'}")
            if args.check:
                status = 1
            else:
                page.write_text(text)
    return status


if __name__ == "__main__":
    sys.exit(main())
