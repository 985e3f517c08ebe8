"""The documentation: what it names exists, and every option is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_ftgate.declare.options import OPTIONS
from pytest_ftgate.judge import metrics
from pytest_ftgate.model import WORST_FIRST, Decision

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*/README.md")])
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py")))


def anchors(page: Path) -> set[str]:
    """The targets of links in a page: its `<a id>` and its headings, as GitHub names them."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return named | set(re.findall(r'<a id="([^"]+)"', text))


def test_every_option_is_documented() -> None:
    named = set(re.findall(r"--ftgate[-a-z]*", TEXT))
    assert {option.cli for option in OPTIONS} - named == set()


def test_the_order_of_decisions_is_that_of_the_code() -> None:
    """One list for verdicts and reports, and the pages that name it say the same."""
    assert set(WORST_FIRST) == set(Decision)
    for page, count in (("judging.md", len(WORST_FIRST)), ("ci.md", 4)):
        text = " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())
        assert f"worst first: {', '.join(WORST_FIRST[:count])}." in text.replace("list the worst first", "worst first")


def test_every_promise_is_a_sentence_with_tests_that_exist() -> None:
    rows = re.findall(
        r"^\| (?!promise )(.*) \| (.*) \|$", (ROOT / "docs" / "promises.md").read_text("utf-8"), re.MULTILINE
    )
    for promise, tests in rows:
        assert promise.endswith("."), promise
        path = None
        for file, name in re.findall(r"`(tests/[\w/]+\.py|(?=::))(?:::(\w+))?`", tests):
            path = ROOT / file if file else path
            assert path, tests
            assert f"def {name}" in path.read_text("utf-8"), tests
        assert path, promise


def test_every_metric_is_documented() -> None:
    table = (ROOT / "docs" / "judging.md").read_text(encoding="utf-8").partition("\n## Metrics\n")[2]
    named = set(re.findall(r"`([a-z0-9_.]+|[a-z]+\.NAME)`", table.partition("\n## ")[0]))
    assert {*metrics.NAMES, *(f"{kind}.NAME" for kind in metrics.OWN)} - named == {"ratio"}


def test_options_and_keys_that_the_pages_name_exist() -> None:
    keys = {option.dest for option in OPTIONS}
    assert set(re.findall(r"--ftgate[-a-z]*", TEXT)) - {option.cli for option in OPTIONS} == set()
    assert set(re.findall(r"\bftgate_[a-z_]+", TEXT)) - keys == set()
    assert {name.lower() for name in re.findall(r"\bFTGATE_[A-Z_]+", TEXT)} - keys == set()


def test_figures_that_the_pages_name_exist() -> None:
    figures = set(re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+)*_(?:ns|bytes|share|ratio))`", TEXT))
    assert figures
    assert {name for name in figures if not re.search(rf"\b{name}\b", SOURCE)} == set()


def test_scripts_that_the_pages_name_exist() -> None:
    named = set(re.findall(r"\bbenchmarks/[a-z_/]+\.py\b", TEXT))
    assert named
    assert {script for script in named if not (ROOT / script).is_file()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"
