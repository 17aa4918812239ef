"""How tightly the code of a Python file is packed.

    python tests/readability.py algos/*.py

A line's tokens are those of its code; comments and docstrings are free, and what stands in the braces of an f-string
counts. Printed for each file, with the limits of algos/ in LIMITS:
tokens: of the whole file (no limit). density: tokens per line of code, the mean. crowded: lines of more than 22 tokens.
longest: lines of the longest function. branches: of the busiest function (if, for, while, try, and, or, conditional
expressions, comprehensions). tricks: statements that do several things at once.
"""

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

LIMITS = {"density": 10.0, "crowded": 20, "longest": 180, "branches": 36, "tricks": 0}
CROWDED = 22  # tokens of a line
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
LAYOUT |= {getattr(tokenize, name, -1) for name in ("FSTRING_MIDDLE", "FSTRING_END")}  # of 3.12
BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.IfExp, ast.BoolOp, ast.comprehension)


def docstring_lines(tree: ast.Module) -> set[int]:
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            lines |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return lines


def tokens_in(token: tokenize.TokenInfo) -> int:
    """1, and for an f-string in Python 3.11 those in its braces as well: later versions split it into tokens."""
    is_format = token.type == tokenize.STRING and re.match(r"[rR]?[fF]", token.string)
    if not is_format:
        return 1
    fields = re.findall(r"{([^{}]*)}", token.string.replace("{{", "").replace("}}", ""))
    return 1 + sum(2 + len(re.findall(r"\w+|[^\w\s]", field)) for field in fields)


def tokens_by_line(text: str) -> dict[int, int]:
    found, skipped = {}, docstring_lines(ast.parse(text))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type not in LAYOUT | {tokenize.COMMENT} and line not in skipped:
            found[line] = found.get(line, 0) + tokens_in(token)
    return found


def tricks(text: str) -> list[int]:
    """Lines of statements that do several things, or that hide what they do it for."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(ast.Tuple() | ast.BoolOp() | ast.IfExp() | ast.ListComp()):
                found.add(node.lineno)  # open(a), open(b); ok or stop(); a() if ok else b()
            case ast.Assign([ast.Name("_")], ast.BoolOp() | ast.IfExp()):
                found.add(node.lineno)  # _ = ok or stop()
            case ast.Assign([ast.Tuple()], ast.Tuple([_, _, _, *_])):
                found.add(node.lineno)  # a, b, c = 1, 2, 3
            case ast.Import([_, _, *_]):
                found.add(node.lineno)
            case ast.AugAssign(op=ast.BitOr(), value=ast.Dict()):
                found.add(node.lineno)  # record |= {"a": 1}
            case ast.BinOp(ast.BinOp(op=ast.BitOr()), ast.BitOr(), ast.Dict()):
                found.add(node.lineno)  # a | b | {"c": 1}
            case ast.Call():
                values = [*node.args, *(keyword.value for keyword in node.keywords)]
                found |= {value.lineno for value in values if isinstance(value, ast.NamedExpr)}
    return sorted(found)


def measure(text: str) -> dict[str, float]:
    lines = tokens_by_line(text)
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    lengths = [function.end_lineno - function.lineno + 1 for function in functions]
    branches = [sum(isinstance(n, BRANCHES) for n in ast.walk(function)) for function in functions]
    return {
        "tokens": sum(lines.values()),
        "density": sum(lines.values()) / max(len(lines), 1),
        "crowded": sum(tokens > CROWDED for tokens in lines.values()),
        "longest": max(lengths, default=0),
        "branches": max(branches, default=0),
        "tricks": len(tricks(text)),
    }


def main(files: list[str]) -> int:
    """The table; exit status 1 if a file exceeds a limit, which is then marked."""
    exceeded = False
    print("".join(f"{name:>10}" for name in ("tokens", *LIMITS)), " file")
    for file in files:
        measured = measure(Path(file).read_text(encoding="utf-8"))
        row = ""
        for name, value in measured.items():
            over = value > LIMITS.get(name, value)
            exceeded |= over
            row += f"{value:.4g}{'!' if over else ''}".rjust(10)
        print(row, file, sep="  ")
    return int(exceeded)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("Name the files to measure: python tests/readability.py algos/*.py")
    sys.exit(main(sys.argv[1:]))
