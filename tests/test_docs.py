"""The documentation: what it names exists, its code runs, and each figure stands where it comes from."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import reference

from pytest_ftgate import cli, hookspec
from pytest_ftgate.declare.options import table
from pytest_ftgate.judge import metrics
from pytest_ftgate.targets.environments import find_uv

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")])
ELSEWHERE = [*ROOT.glob("*/README.md"), *ROOT.glob(".github/*.md")]
"""Read in the repository: the site does not have them."""
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def anchors(page: Path) -> set[str]:
    """The targets of links in a page: its `<a id>` and its headings, as GitHub names them."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return named | set(re.findall(r'<a id="([^"]+)"', text))


def test_every_promise_is_a_sentence_with_tests_that_exist() -> None:
    text = (ROOT / "docs" / "appendix" / "promises.md").read_text("utf-8")
    rows = [item.partition(" `tests/") for item in re.findall(r"^- ((?:.+\n)+?)(?=- |\n|\Z)", text, re.MULTILINE)]
    assert len(rows) > 20
    for sentence, start, end in rows:
        promise, tests = " ".join(sentence.split()), start + end
        assert promise.endswith("."), promise
        path = None
        for file, name in re.findall(r"`(tests/[\w/]+\.py|(?=::))(?:::(\w+))?`", tests):
            path = ROOT / file if file else path
            assert path, tests
            assert f"def {name}" in path.read_text("utf-8"), tests
        assert path, promise


def test_the_flow_of_the_architecture_stands_in_the_code() -> None:
    """Each call of the block stands in the file that the comment above it names."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    (flow,) = re.findall(r"<!-- flow -->\n```text\n(.*?)```", page, re.DOTALL)
    steps = re.split(r"^# (\S+\.py)\b.*\n", flow, flags=re.MULTILINE)[1:]
    for file, lines in zip(steps[::2], steps[1::2], strict=True):
        code = (ROOT / "src" / "pytest_ftgate" / file).read_text("utf-8")
        called = re.findall(r"(\w+)\(", re.sub(r" #.*", "", lines))
        assert called, file
        assert [name for name in called if not re.search(rf"\b{name}\b", code)] == [], file


def test_each_file_of_the_worked_example_has_its_metric() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    story = page.partition("## A metric, end to end")[2].partition("\n## ")[0]
    (metric,), files = re.findall(r"The metric (\w+)", story), re.findall(r"^\d\. `([^`]+)`", story, re.MULTILINE)
    assert files
    assert [file for file in files if metric not in (ROOT / file).read_text("utf-8")] == []
    assert len(story.split()) <= 120


@pytest.mark.parametrize("name", reference.pages())
def test_the_reference_is_what_the_code_says(name: str) -> None:
    assert (ROOT / "docs" / name).read_text("utf-8") == reference.pages()[name], "run docs/reference.py"


def test_every_metric_says_what_it_is() -> None:
    assert [row.name for row in metrics.TABLE.values() if not row.meaning] == []


def test_options_and_keys_that_the_pages_name_exist() -> None:
    keys = {option.dest for option in table()}
    known = {option.cli for option in table() if not option.ini_only}
    assert set(re.findall(r"--ftgate[-a-z]*", TEXT)) - known == set()
    assert set(re.findall(r"\bftgate_[a-z_]+", TEXT)) - keys - vars(hookspec).keys() == set()
    assert {name.lower() for name in re.findall(r"\bFTGATE_[A-Z_]+", TEXT)} - keys == set()


def test_the_first_release_changes_no_name() -> None:
    *_, first = (ROOT / "CHANGELOG.md").read_text("utf-8").split("\n## ")
    assert re.findall(r"^### (\w+)$", first, re.MULTILINE) == ["Added"]


def test_scripts_that_the_pages_name_exist() -> None:
    named = set(re.findall(r"\bbenchmarks/[a-z_/]+\.py\b", TEXT))
    assert named
    assert {script for script in named if not (ROOT / script).is_file()} == set()


@pytest.mark.parametrize("page", [*PAGES, *ELSEWHERE], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


# -- blocks --------------------------------------------------------------------------------------------------------


class Block(NamedTuple):
    """A block of code of a page, with the comment above it: `<!-- KIND: WHAT -->`."""

    page: Path
    indent: str
    kind: str
    what: str
    language: str
    text: str


FENCED = re.compile(r"^( *)(?:<!-- (\w+): (.+?) -->\n\1)?```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
BLOCKS = [Block(page, *match.groups("")) for page in PAGES for match in FENCED.finditer(page.read_text("utf-8"))]
WRITTEN = {"adopted.md": "benchmarks/adopt/adopt.py"}
"""Pages that a script writes from what it has run."""
COMPARED = {"tutorial.md": "examples/tutorial/run.py"}
"""Pages whose output a script compares with what it runs."""
NEEDED = ("multidict==6.8.0", "limits==5.8.0", "loky")
"""What the blocks import."""
OTHERS = {"apt", "cd", "cp", "git", "pip", "sed", "tail", "uv", "uvx"}
"""Programs of others that the pages name."""
MANY = """
import pytest, sys
for line in sys.stdin.read().splitlines():
    status = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *line.split(chr(31))])
    sys.modules.pop("test_it", None)
    if status not in (0, 5):
        sys.exit(f"{line.split(chr(31))}: exit status {status!r}")
"""


def test_blocks_are_taken_from_files() -> None:
    """Every block of Python names the file that has it, or says whose it is; other blocks may."""
    for block in BLOCKS:
        if block.page.name in WRITTEN or block.kind == "quoted":
            continue
        assert block.kind == "file" or block.language != "python", f"{block.page.name}: no file is named\n{block.text}"
        if block.kind == "file":
            assert f"\n{block.text}" in "\n" + (ROOT / block.what).read_text("utf-8"), block.what


def test_output_is_of_a_file_or_of_what_runs_it() -> None:
    """A block with figures that were printed names a golden file, or the test or example that prints such lines."""
    for block in BLOCKS:
        printed = [line for line in block.text.splitlines() if not re.match(r" *[$#]", line)]
        known = block.kind or {**WRITTEN, **COMPARED}.get(block.page.name) or block.page.name == "verdicts.md"
        if block.language in ("text", "console") and re.search(rf"{NUMBER} (?:{UNIT})", "\n".join(printed)):
            assert known, f"{block.page.name}: what printed this?\n{block.text}"
        assert block.kind != "run" or (ROOT / block.what).is_file(), block.what


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_block_has_a_language(page: Path) -> None:
    fences = re.findall(r"^ *```(.*)$", page.read_text("utf-8"), re.MULTILINE)
    assert "" not in fences[::2]
    assert {*fences[1::2]} <= {""}


def test_the_files_of_the_blocks_run(tmp_path: Path) -> None:
    """Each as a plain test, beside what it imports."""
    shutil.copytree(ROOT / "examples" / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "examples" / "first", tmp_path / "docs" / "first")
    words = [find_uv(), "pip", "install", "--quiet", "--target", str(tmp_path / "needed"), "--python", sys.executable]
    subprocess.run([*words, *NEEDED], check=True)
    # A program of a block is built from sources that are not here.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "not rust", "--rootdir", "."],
        cwd=tmp_path / "docs",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "needed")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def commands() -> list[tuple[str, list[str]]]:
    """(page, words) of each command after a `$`, without variables before it, comments and loops."""
    found = []
    for block in (each for each in BLOCKS if each.language == "console" and each.page.name not in WRITTEN):
        for line in re.findall(r"^ *\$ (.*)", block.text, re.MULTILINE):
            words = shlex.split(re.sub(r"^for .* do (.*); done", r"\1", line), comments=True)
            while words:
                end = words.index("&&") if "&&" in words else len(words)
                each, words = words[:end], words[end + 1 :]
                while re.fullmatch(r"[A-Z_]+=.*", each[0]):
                    each.pop(0)
                found.append((block.page.name, each))
    return found


def test_commands_of_our_own_are_such_as_we_have() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    parser = cli.build_parser()
    for page, (program, *words) in commands():
        scripts = [word for word in words if word.startswith("benchmarks/") and word.endswith(".py")]
        if program == "ftgate":
            parser.parse_args(words)
        elif program == "make":
            assert set(words) <= targets, page
        elif program.startswith(".venv/bin/"):
            assert (ROOT / program).is_file(), page
        elif program == "python" or scripts:
            assert scripts, page
            assert all((ROOT / script).is_file() for script in scripts), page
        else:
            assert program in OTHERS | {"pytest"}, f"{page}: {program}"


@pytest.mark.skipif(
    not (ROOT / ".git").exists() or not (ROOT / ".venv").exists(), reason="this is no clone after setup"
)
def test_the_first_contribution_is_made_as_the_page_says(tmp_path: Path) -> None:
    """All but `make setup` and `make test`, which .ci/run makes in an empty home, in a clone with this environment."""
    (block,) = [block for block in BLOCKS if block.page.name == "CONTRIBUTING.md" and block.kind == "run"]
    first, *steps, last = re.findall(r"^\$ (.*)", block.text, re.MULTILINE)
    assert (first.rpartition(" && ")[2], last) == ("make setup", "make test")
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
    (tmp_path / "clone" / ".venv").symlink_to(ROOT / ".venv")
    if (ROOT / ".mypy_cache").exists():  # else it takes a minute
        shutil.copytree(ROOT / ".mypy_cache", tmp_path / "clone" / ".mypy_cache")
    for step in steps:
        done = subprocess.run(["bash", "-c", step], cwd=tmp_path / "clone", capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_pytest_takes_its_commands(tmp_path: Path) -> None:
    """All options are known and their values can be read: each command collects, in a repository with a branch."""
    (tmp_path / "test_it.py").write_text(
        "from pytest_ftgate import ftgate, threads\n\n\n@ftgate.compare(threads)\ndef test_it(worker): ...\n\n\n"
        "def test_plain(): ...\n"
    )
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
    for words in (
        ("init", "--quiet", "-b", "main"),
        ("add", "."),
        (*identity, "commit", "--quiet", "-m", "one"),
        ("tag", "v2.1"),
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    path = re.compile(r"(tests|examples)/[\w/]+(\.py(::.+)?)?")
    lines = [
        ["test_it.py" if path.fullmatch(word) else re.sub(r"(?<==)tests/\w+\.py", "test_it.py", word) for word in words]
        for _, (program, *words) in commands()
        if program == "pytest"
    ]
    assert len(lines) > 20
    given = "\n".join(sorted({"\x1f".join(words) for words in lines}))
    done = subprocess.run([sys.executable, "-c", MANY], cwd=tmp_path, input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


@pytest.mark.parametrize("text", [block.text for block in BLOCKS if block.language == "toml"])
def test_pytest_reads_its_configuration(tmp_path: Path, text: str) -> None:
    """Every key is known and its value can be read; the older pytest reads no table of the newer one."""
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    words = ["--strict-config", "--collect-only", "-q", "-W", "ignore::pytest.PytestConfigWarning"]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout + done.stderr


# -- figures -------------------------------------------------------------------------------------------------------


TIES: dict[str, dict[str, str]] = tomllib.loads((ROOT / "tests" / "figures.toml").read_text("utf-8"))
MADE = ("docs/metrics.md", "docs/options.md", "docs/commands.md")
"""Pages that a script writes from the code."""
WRITTEN_BY_HAND = sorted({str(page.relative_to(ROOT)) for page in PAGES if "appendix" not in page.parts} - {*MADE})
NO_PROSE = re.compile(
    r"^( *)```.*?^\1```$"  # see "blocks"
    r"|<!-- the tables of `make recordings` -->.*?<!-- end of the table -->"  # by a script
    r"|\]\([^)]*\)|<a [^>]*>|`[^`]+`",
    re.MULTILINE | re.DOTALL,
)
SCRIPTED = re.compile(
    r"(?:^(?!\|).+\n)*?^(?!\|).*\bbenchmarks/[a-z_/]+\.py\b.*\n(?:.+\n)*(?:\n(?:\|.*\n)+)?", re.MULTILINE
)
"""A paragraph that names a script, and the table below it."""
UNIT = r"%|x\b|times\b|[µumn]?s\b|min(?:utes?)?\b|seconds?\b|hours?\b|[KMG]i?B\b|points?\b"
NUMBER = r"\d[\d,.]*"
FIGURE = re.compile(
    rf"(?<![\w.,'\"-]){NUMBER}(?:(?:(?: to |, | and |; | / ){NUMBER})*[\s\xa0]?(?:{UNIT})| (?:of|in) {NUMBER})"
)
LEVEL = re.compile(r"(?:95|90) % (?:CI|interval|quantile)")
"""What is no measurement: which interval or quantile it is."""


def prose(text: str) -> str:
    """A page without its blocks, code, and addresses, in one line."""
    return LEVEL.sub("", " ".join(NO_PROSE.sub(" ` ", text).split()))


def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def untied(text: str, phrases: list[str]) -> list[str]:
    """The figures of a text that are in none of the phrases, with the words around them."""
    spans = [match.span() for phrase in phrases for match in re.finditer(re.escape(phrase), text)]
    return [
        text[max(0, figure.start() - 50) : figure.end() + 30]
        for figure in FIGURE.finditer(text)
        if not any(start <= figure.start() and figure.end() <= end for start, end in spans)
    ]


def test_a_figure_is_found_unless_a_phrase_has_it() -> None:
    text = "It takes 17 seconds, or 2x, in 13 of 16 runs; 0.40 to 0.88 % fail, 12.5 ms and 3 MiB more: 95 % CI, 3.14t"
    assert len(untied(LEVEL.sub("", text), [])) == 6
    assert len(untied(LEVEL.sub("", text), ["takes 17 seconds", "or 2x, in 13 of", "0.88 %"])) == 4


def test_a_paragraph_with_a_script_needs_no_tie() -> None:
    text = "It takes 1 s.\n\nOf 30 pairs\n(`benchmarks/a/b.py`)\n12 ms:\n\n| a | 3 ms |\n| b | 4 ms |\n\n| c | 2x |\n"
    assert " ".join(SCRIPTED.sub("", text).split()) == "It takes 1 s. | c | 2x |"


@pytest.mark.parametrize("page", WRITTEN_BY_HAND)
def test_each_figure_of_a_page_is_tied(page: str) -> None:
    assert untied(prose(SCRIPTED.sub("", read(page))), list(TIES.get(page, ()))) == []


@pytest.mark.parametrize(
    ("page", "phrase"), [pytest.param(page, phrase, id=f"{page}: {phrase}") for page in TIES for phrase in TIES[page]]
)
def test_a_tie_holds(page: str, phrase: str) -> None:
    """The phrase is on its page, and the text after the colon in the file, or in one below the folder."""
    assert phrase in prose(read(page))
    name, _, text = TIES[page][phrase].partition(": ")
    if name != "no measurement":
        path = ROOT / name
        files = [path] if path.is_file() else path.rglob("*.py")
        assert any(text in " ".join(file.read_text("utf-8").split()) for file in files)
    assert text or name.startswith(("benchmarks/", "tests/physical/")), "a script, or a text in a file"


def simulated() -> list[list[str]]:
    """The rows of the appendix's table of simulated noise."""
    (table,) = re.findall(
        r"^\| metric \| noise \|.*\n.*\n((?:\|.*\n)+)", read("docs/appendix/error-rates.md"), re.MULTILINE
    )
    return [row.strip("| ").split(" | ") for row in table.splitlines()]


def test_the_readme_says_how_often_unchanged_code_fails() -> None:
    """Of the noise that is made: real pairs have rows of their own."""
    rates = [float(row[2].partition("%")[0]) for row in simulated() if "real pairs" not in row[1]]
    within = sum(rate <= 0.25 for rate in rates)
    said = f"in at most 0.25 % of hypotheses with {within} of {len(rates)} kinds of noise"
    assert said in prose(read("README.md"))


def test_the_rates_of_the_page_on_judging_are_those_of_the_appendix() -> None:
    """Row by row: how many unchanged ones fail, what passes unsaid, and what fails."""
    shown = re.findall(
        r"^\| .* \| ([\d.]+) % \| ([\d.]+) % \(([\d.]+) %\) \| (\d+) %, (\d+) \|$",
        read("docs/judging.md"),
        re.MULTILINE,
    )
    known = set()
    for row in simulated():
        slower, worse = (re.findall(r"[\d.]+", row[at]) for at in (7, 8))
        fails = float(row[2].partition("%")[0])
        known.add((fails, float(slower[1]), float(slower[2]), round(float(worse[0])), int(worse[3])))
    assert len(shown) == 9
    for fails, passes, unsaid, found, pairs in shown:
        near = (float(passes), float(unsaid), int(found), int(pairs))
        assert any(abs(each[0] - float(fails)) < 0.06 and each[1:] == near for each in known), near


def test_the_picture_of_the_readme_shows_columns_that_the_page_has() -> None:
    """The picture says which it shows; `tests/physical/test_first_screen.py` takes it."""
    picture = (ROOT / "docs" / "page.png").read_bytes()
    start = picture.index(b"tEXtcolumns\0")
    size = int.from_bytes(picture[start - 4 : start], "big")
    shown = picture[start + 4 : start + 4 + size].partition(b"\0")[2].decode()
    heads = re.findall(r'<button type="button">([^<]*)<', read("tests/golden/page.html"))
    assert {"cell", "verdict", "wall"} <= set(shown.split(", ")) <= {*heads}


def test_the_table_of_other_tools_counts_what_the_appendix_has_in_percent() -> None:
    """The last rows there: `17.1 % [6.6, 33.6] of 35` is 6 of 35."""
    sums = re.findall(
        r"^\| all \| ([\w-]+)[^|]* \| ([\d.]+) % [^|]* of (\d+) \|", read("docs/appendix/error-rates.md"), re.MULTILINE
    )
    shown = re.findall(r"^\| \W*([\w-]+)[^|]*\|.* (\d+) of (\d+) \|$", read("README.md"), re.MULTILINE)
    assert len(sums) == 3
    assert sorted((tool, f"{float(rate) * int(of) / 100:.0f}", of) for tool, rate, of in sums) == sorted(shown)


def test_a_recording_takes_a_kilobyte() -> None:
    stored = [json.loads(file.read_bytes()) for file in (ROOT / "baselines").rglob("*.json")]
    cells = sum(len(content["cells"]) for content in stored)
    size = sum(file.stat().st_size for file in (ROOT / "baselines").rglob("*.json"))
    assert 500 < size / cells < 2000


# -- the site ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: every warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    (command,) = re.findall(r"\$\(PY\) (-m sphinx .*)", (ROOT / "Makefile").read_text("utf-8"))
    words = command.replace(".ftgate/doctrees", f"{folder}/doctrees").replace(".ftgate/docs", f"{folder}/html").split()
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in PAGES:
        path = (site / page.relative_to(ROOT)).with_suffix(".html")
        loaded = re.findall(r'<(?:script|link|img|iframe)[^>]*?(?:src|href)="([^"]+)"', path.read_text("utf-8"))
        assert loaded
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == [], page


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Logs nothing."""

    def log_message(self, *_: object) -> None: ...


def test_the_site_opens_in_a_browser(site: Path) -> None:
    """The first page leads to the manual, a link to its page, and a search finds a term."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no browser here")
    from playwright.sync_api import sync_playwright

    said, asked = list[str](), list[str]()
    handler = functools.partial(QuietHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as tools:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        browser = tools.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=300_000)
        page = browser.new_page()
        page.set_default_timeout(300_000)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address)
        page.wait_for_url("**/docs/index.html")
        page.get_by_role("link", name="Terms").first.click()
        page.wait_for_url("**/docs/terms.html")
        page.goto(f"{address}/search.html?q=interleaved")
        page.locator("#search-results li").first.wait_for()
        browser.close()
        server.shutdown()
    assert said == []
    assert [each for each in asked if not each.startswith(address)] == []
