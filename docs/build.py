"""Build the site from the pages in docs/.

    python docs/build.py              # site/html/, in some seconds and without a network; any broken link fails
    python docs/build.py --serve      # the same, then http://localhost:8000

Pages link to files of the repository by relative paths, and GitHub follows them. The site has the same files: a Python
file becomes a page with numbered lines, a Markdown page outside docs/ becomes a page, and images and tables are
copied. So no link leaves the site for the source code, and its lines are those of the same commit. Formulas become
MathML, which browsers draw without a script. The result of this step is site/source/; zensical.toml says how it looks.
"""

import argparse
import functools
import http.server
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from latex2mathml.converter import convert
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parents[1]
SOURCE, HTML = ROOT / "site/source", ROOT / "site/html"
PREFIX = "repository/"  # where the site has files from outside docs/
COPIED = {".png", ".svg", ".gif", ".jpg", ".mp4", ".csv", ".json", ".pt"}
LINK = re.compile(r"(?<=\]\()([^)\s#]*)(#[^)\s]*)?(?=\))")
CODE = re.compile(r"^( *)(```+).*?^\1\2 *$|``.*?``|`[^`\n]*`", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"^\$\$\n(?P<block>.*?)\n\$\$$|\$(?P<inline>[^$\s][^$\n]*)\$", re.M | re.S)


def resolve(link: str, page: str) -> str | None:
    """Path in the repository that a link of a page names; None for other links and for broken ones."""
    if not link or re.match(r"[a-z]+:|/", link):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    return None if path.startswith("..") or not (ROOT / path).exists() else path


def site_path(path: str) -> str:
    """Path below site/source/ of a file or folder of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        has_readme = (ROOT / path / "README.md").exists()
        return f"{PREFIX}{path}/{'README' if has_readme else 'index'}.md"
    if path.endswith(".md") or Path(path).suffix in COPIED:
        return PREFIX + path
    return f"{PREFIX}{path}.md"  # a page that shows the code


def outside_code(change, text: str) -> str:
    """The text, with `change` applied to everything but code."""
    pieces, end = [], 0
    for code in CODE.finditer(text):
        pieces += [change(text[end : code.start()]), code.group()]
        end = code.end()
    return "".join([*pieces, change(text[end:])])


def links_of(text: str) -> list[tuple[int, str]]:
    """(line, link) of every link of a page."""
    text = CODE.sub(lambda code: "\n" * code.group().count("\n"), text)
    return [(text.count("\n", 0, m.start()) + 1, m.group(1)) for m in LINK.finditer(text)]


def with_site_links(text: str, page: str) -> str:
    """The page's text with links that lead to the site's copy of the files they name."""
    folder = posixpath.dirname(site_path(page))

    def change(match) -> str:
        link, anchor = match.group(1), match.group(2) or ""
        path = resolve(link, page)
        if path is None:
            return match.group()
        target = site_path(path)
        if target == f"{PREFIX}{path}.md":  # a page of code
            anchor = anchor.replace("#L", "#L-")
        return posixpath.relpath(target, folder) + anchor

    return LINK.sub(change, text)  # code in the text of a link keeps the rest of the link outside


def with_mathml(text: str) -> str:
    def change(match) -> str:
        if match["block"] is not None:
            return f"<div>{convert(match['block'], display='block')}</div>"
        formula = convert(match["inline"]).replace("*", "&#42;").replace("_", "&#95;")
        return f"<span>{formula}</span>"  # a line that begins with <math> would be a block

    return outside_code(lambda part: FORMULA.sub(change, part), text)


def code_page(path: str) -> str:
    """A page that shows a text file; its line 7 has the anchor L-7."""
    try:
        lexer = get_lexer_for_filename(path)
    except ClassNotFound:
        lexer = get_lexer_for_filename("a.txt")
    look = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True, wrapcode=True)
    code = highlight((ROOT / path).read_text(), lexer, look)
    return f"---\nhide: [navigation, toc]\nsearch:\n  exclude: true\n---\n# {path}\n\n{code}\n"


def folder_page(path: str) -> str:
    """A page that lists a folder."""
    names = sorted(x.name for x in (ROOT / path).iterdir() if not x.name.startswith((".", "__")))
    return f"---\nsearch:\n  exclude: true\n---\n# {path}/\n\n" + "".join(
        f"- `{x}`\n" for x in names
    )


def prepare() -> list[str]:
    """Write site/source/: docs/, and every file of the repository that can be reached from it by links. The result
    names the links that lead nowhere."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    navigation = re.findall(rf'"{PREFIX}(.*?)"', (ROOT / "zensical.toml").read_text())
    ours = [
        x for x in (ROOT / "docs").rglob("*") if x.is_file() and x.suffix not in (".py", ".pyc")
    ]
    broken = []
    queue = [x.relative_to(ROOT).as_posix() for x in sorted(ours)] + navigation
    seen = set(queue)
    while queue:
        path = queue.pop()
        target = SOURCE / site_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".md"):
            text = (ROOT / path).read_text()
            target.write_text(with_mathml(with_site_links(text, path)))
            for line, link in links_of(text):
                found = resolve(link, path)
                if found is None and link and not re.match(r"[a-z]+:", link):
                    broken.append(f"{path}:{line}: {link} does not exist")
                elif found not in seen | {None}:
                    queue.append(found)
                    seen.add(found)
        elif (ROOT / path).is_dir():
            if (ROOT / path / "README.md").exists():
                queue.append(f"{path}/README.md")
            else:
                target.write_text(folder_page(path))
        elif (ROOT / path).suffix in COPIED | {".css"}:
            shutil.copy(ROOT / path, target)
        else:
            target.write_text(code_page(path))
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--serve", action="store_true", help="then serve the site on this machine")
    parser.add_argument("--port", type=int, default=8000, help="port of --serve")
    args = parser.parse_args()
    if broken := prepare():
        print(*broken, sep="\n", file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr.partition("Traceback")[0], file=sys.stderr)
        print(
            "The pages above are those of site/source/, line by line those of docs/.",
            file=sys.stderr,
        )
        return 1
    title = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["site_name"]
    print(f"{title}: {len(list(HTML.rglob('index.html')))} pages in {HTML.relative_to(ROOT)}/")
    if args.serve:
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=HTML)
        print(f"http://localhost:{args.port} (Ctrl-C ends it)")
        http.server.ThreadingHTTPServer(("127.0.0.1", args.port), handler).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
