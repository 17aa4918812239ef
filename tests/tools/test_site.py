"""The site: python docs/build.py builds it without a network, and every page works in a browser."""

import functools
import http.server
import importlib.util
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "site/html"

# Loads every page in a frame of 400 pixels, then widens it to 1400. The body is what was found.
DRIVER = """<!doctype html><body><script>
const found = [];
async function visit(page) {
  const frame = document.createElement("iframe");
  frame.style.cssText = "width:400px;height:800px;border:0";
  frame.src = page;
  document.body.append(frame);
  await new Promise(done => frame.onload = done);
  const view = frame.contentWindow, images = [...view.document.images];
  for (const image of images) image.loading = "eager";
  for (let i = 0; i < 100 && !images.every(image => image.complete); i++)
    await new Promise(done => setTimeout(done, 50));
  const broken = images.filter(image => !image.naturalWidth).map(image => image.src);
  const widths = [400, 1400].map(width => {
    frame.style.width = width + "px";
    return view.document.documentElement.scrollWidth - width;
  });
  const title = view.document.querySelector("h1")?.textContent || "";
  const formulas = view.document.querySelectorAll("math").length;
  found.push({page, title, broken, widths, formulas, images: images.length});
  frame.remove();
}
(async () => {
  for (const page of PAGES) await visit(page);
  const text = document.createElement("pre");
  text.textContent = JSON.stringify(found);
  document.body.replaceChildren(text);
})();
</script></body>"""


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build_site() -> float:
    """Builds the site, with no way to the network; the CPU seconds that it took."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = used()
    nowhere = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "all_proxy")}
    command = [sys.executable, "docs/build.py"]
    env = os.environ | nowhere
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return used() - before


def fetched_from_elsewhere() -> list[str]:
    tag = re.compile(r'<(?:script|img|link)\b[^>]*?(?:src|href)="?(https?:[^" >]+)')
    found = [link for page in HTML.rglob("*.html") for link in tag.findall(page.read_text())]
    return [link for link in found if "127.0.0.1" not in link]


@pytest.mark.slow
def test_site(tmp_path):
    """Would break: a build that takes a minute of CPU time, or the network; a page that writes to the console, is
    wider than a phone's screen, or has no title or a missing image."""
    assert build_site() < 60
    assert not fetched_from_elsewhere()
    check_in_a_browser(tmp_path)


def test_broken_links_fail(tmp_path, monkeypatch):
    """Would break: a page, file or image that does not exist and is linked; its line is not told."""
    build = load("build")
    (tmp_path / "docs").mkdir()
    (tmp_path / "algos").mkdir()
    (tmp_path / "algos/ppo.py").write_text("x = 1\n")
    page = "# A\n\n[good](../algos/ppo.py#L1) `[code](no)`\n![bad](no.png) [bad](../algos/no.py)\n"
    (tmp_path / "docs/index.md").write_text(page)
    (tmp_path / "zensical.toml").write_text("")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "SOURCE", tmp_path / "site/source")
    assert build.prepare() == [
        "docs/index.md:4: no.png does not exist",
        "docs/index.md:4: ../algos/no.py does not exist",
    ]
    assert "(repository/algos/ppo.py.md#L-1)" in (tmp_path / "site/source/index.md").read_text()
    assert 'name="L-1"' in (tmp_path / "site/source/repository/algos/ppo.py.md").read_text()


def check_in_a_browser(tmp_path) -> None:
    """Visits every page of docs/ and of the navigation."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if not browser and not os.environ.get("CI"):
        pytest.skip("needs Chromium: apt-get install chromium-headless-shell")
    assert browser, "CI must have Chromium"
    navigation = re.findall(r'"(repository/.*?)\.md"', (ROOT / "zensical.toml").read_text())
    known = [x.relative_to(HTML).parent.as_posix() for x in sorted(HTML.rglob("index.html"))]
    pages = [f"/{x}/" for x in known if not x.startswith("repository/")]
    pages += [f"/{x.removesuffix('/README')}/" for x in navigation]
    pages += ["/repository/algos/ppo_continuous.py/"]
    driver = DRIVER.replace("PAGES", json.dumps([page.replace("/./", "/") for page in pages]))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.path != "/driver":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(driver.encode())

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=HTML)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags += [f"--user-data-dir={tmp_path}", "--enable-logging=stderr", "--timeout=280000"]
    flags += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    flags += ["--virtual-time-budget=240000"]
    url = f"http://127.0.0.1:{server.server_port}/driver"
    done = subprocess.run([browser, *flags, url], capture_output=True, text=True, timeout=300)
    server.shutdown()
    found = json.loads(
        re.search(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)[1].replace("&amp;", "&")
    )
    assert len(found) == len(pages) > 25
    for page in found:
        assert page["title"], page
        assert not page["broken"], page
        assert max(page["widths"]) <= 0, f"{page['page']} is wider than the window"
    by_name = {page["page"]: page for page in found}
    assert by_name["/algorithms/ppo/"]["formulas"] > 8
    assert by_name["/algorithms/ppo/"]["images"] and by_name["/"]["images"]
    assert "CONSOLE" not in done.stderr, done.stderr


def test_generated_parts():
    """Would break: a table that the CSV files or flags do not give; a link to a line that has moved."""
    command = [sys.executable, "docs/generate.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_front_page():
    """Would break: a README that nobody reads to its end; an animation that GitHub does not play."""
    readme = (ROOT / "README.md").read_text()
    assert len(readme.split()) <= 900
    animation = ROOT / "docs/agents.gif"
    assert f"({animation.relative_to(ROOT)})" in readme
    assert animation.read_bytes()[:6] == b"GIF89a" and animation.stat().st_size < 3e6
    for link in re.findall(r"\]\(([^)#\s:]+)[)#]", readme):
        assert (ROOT / link).exists(), link


def test_commands_of_the_front_page():
    """Would break: a command of README whose file or flag does not exist."""
    readme = (ROOT / "README.md").read_text()
    lines = "".join(re.findall(r"```bash\n(.*?)```", readme, re.DOTALL)).splitlines()
    assert "python algos/rpo_continuous.py --env-id BipedalWalker-v3" in lines[:5]
    assert len(lines) >= 7
    for line in lines:
        words = shlex.split(line, comments=True)
        if words[0] == "python" and words[1] != "my_experiment.py":
            text = (ROOT / words[1]).read_text()
            for flag in (word for word in words[2:] if word.startswith("--")):
                assert re.search(rf"^    {flag[2:].replace('-', '_')}: ", text, re.MULTILINE), flag
        for file in ("requirements.txt", "requirements-dev.txt"):
            assert file not in words or (ROOT / file).exists()
    (version,) = re.findall(r"pip install (torch==\S+) --index-url", readme)
    assert version in (ROOT / "requirements.txt").read_text().splitlines()


def test_curves_are_shown():
    """Would break: a figure that no page shows, a table of more than seven columns."""
    linked = set()
    for page in ROOT.glob("**/*.md"):
        for target in re.findall(r"\]\(([^)#]+\.(?:png|md))", page.read_text()):
            linked.add((page.parent / target).resolve())
    for file in (ROOT / "benchmarks").glob("**/curves/*.png"):
        assert file in linked, file
    for file in (ROOT / "benchmarks").glob("**/curves/tables.md"):
        assert file in linked, file
        for line in file.read_text().splitlines():
            assert not line.startswith("|") or line.count("|") <= 8, f"{file}: {line}"
