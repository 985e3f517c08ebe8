"""The report as an HTML page: what it says, and how a browser shows it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import report_by_hand
import small_report
from report_by_hand import FREE_THREADED, cell, of_rows
from values import timed

from golden import check_golden
from pytest_ftgate.features.decide import sentences
from pytest_ftgate.features.html import page as page_module
from pytest_ftgate.features.html import plots
from pytest_ftgate.kit.values import Interval
from pytest_ftgate.model.report import Figures, Report, Row, Table, WaitFigures
from pytest_ftgate.model.sample import Launch, Sample, Waits
from pytest_ftgate.model.spec import Environment, Param
from pytest_ftgate.model.verdict import Decision, Reason, Verdict, Why
from pytest_ftgate.report import json as formats
from pytest_ftgate.report import terminal
from pytest_ftgate.runner.locks.sites import bucket_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = (
    "\x1b[31m</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe\x07 {{ 7*7 }} ]]> --> &amp;"
)


def built(**changes: Any) -> Report:
    return msgspec.structs.replace(report_by_hand.report(), **{"failing": None, **changes})


def measured(row: Row, ns: int, times: int = 5) -> Row:
    """The row with launches of that time, beside a reference that is a third faster."""

    def launches(scale: float) -> tuple[Launch, ...]:
        return tuple(timed(order, [round(ns * scale * (1 + order / 50))] * 3) for order in range(times))

    reference = Sample(cell=row.cell, interpreter=FREE_THREADED, key="k", all_launches=launches(0.75))
    sample = Sample(
        cell=row.cell,
        interpreter=FREE_THREADED,
        key="k",
        all_launches=launches(1.0),
        reference=reference,
    )
    wall = Interval(value=ns * 1.02, low=ns * 0.99, high=ns * 1.07, level=0.95)
    figures = Figures(wall_ns=wall, ratio=1.25) if row.figures == Figures() else row.figures
    return msgspec.structs.replace(row, sample=sample, figures=figures)


def grid(name: str = "tests/test_grid.py::test_grid") -> tuple[Table, ...]:
    """Two parameters that vary, in a table for each pair."""
    tables = []
    for size in (10, 1000):
        for depth in (1, 4):
            of = cell(name, "3.14t", "threads", 2, ("size", str(size)), ("depth", str(depth)))
            row = Row(cell=of, verdict=Verdict(decision=Decision.PASSED))
            tables.append(
                Table(title=f"{name} (size={size})", rows=(measured(row, size * depth * 1000),), reference="threads")
            )
    return tuple(tables)


def hostile() -> Table:
    of = cell(f"tests/test_x.py::test_{HOSTILE}", "3.14t", "threads", 8)
    verdict = Verdict(decision=Decision.REGRESSED, reason=HOSTILE, baseline=HOSTILE, why=HOSTILE)
    return Table(
        title=HOSTILE, rows=(measured(Row(cell=of, verdict=verdict), 3_000_000),), reference=HOSTILE, note=HOSTILE
    )


def full() -> Report:
    report = report_by_hand.report()
    first = report.tables[0]
    slower = measured(first.rows[1], 3_100_000)
    limited = [msgspec.structs.replace(each, allowed=1.02, effect=1.05) for each in slower.verdict.metrics]
    verdict = msgspec.structs.replace(slower.verdict, metrics=tuple(limited))
    rows = (measured(first.rows[0], 1_800_000), msgspec.structs.replace(slower, verdict=verdict), *first.rows[2:])
    tables = (msgspec.structs.replace(first, rows=rows), *report.tables[1:], *grid(), hostile())
    return msgspec.structs.replace(report, tables=tables, command=f"pytest --ftgate '{HOSTILE}'", failing=None)


def rendered(report: Report) -> str:
    return "".join(formats.rendered("html", report))


def block(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def words(text: str) -> str:
    """The text of the page's body, without marks."""
    body = text.partition("<main")[2].partition("</main>")[0]
    return " ".join(re.sub(r"<[^>]*>", " ", body.replace("<wbr>", "")).split())


# ---- the text


def test_the_page_but_its_scripts_and_style(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "of_report", lambda _: ())  # its texts have tests of their own
    report = small_report.report()
    text = rendered(msgspec.structs.replace(report, partial="Ctrl-C", command="pytest --ftgate tests"))
    assert 500_000 < len(text.encode()) < 600_000  # 0.5 MB and some KB a cell, as the manual says
    check_golden("page.html", text.partition("<body>")[2].partition('<script type="application/json"')[0])


def test_what_the_page_of_every_verdict_says_beside() -> None:
    text = plain(rendered(built(partial="")))
    said = words(text)
    for each in (
        # an item that was judged by something else than the others of its test says so
        "against baselines/tests/test_words.py/test_tokenise.json at 1a2b3c4d5e judged by stored figures",
        "against the baseline&#39;s commit (1a2b3c4d5e) judged by paired launches (encode() in",
        "broken 3.14t-fork-w8",
        "Accepted tests/test_words.py::test_tokenise accepted 3.14-threads-w8 wall +8.3 %",
        "accepted by commit 9f8e7d6c5b: the index costs 8 %, see the design",
        "Also worth knowing inconclusive 3.14-spawn-w8 tests/test_words.py::test_tokenise wall +3.1 %",
        "unsupported 3.13-interpreters-w8 , 3.13t-interpreters-w8 tests/test_words.py::test_tokenise sub-inter",
        "Tests tests/test_words.py::test_tokenise 10 cells tests/test_cache.py::test_lookup 5 cells",
        "nothing was compared a duration of 5 s: the time is that of one operation over all workers ratio: to",
        "src/words/feed.py:9 Queue queue 3.14t-threads-w8 12.1 %",
        "unused baselines/tests/test_words.py/test_gone.json",
    ):
        assert each in said
    shares = [float(each) for each in re.findall(r'<rect width="([\d.]+)" height="8"/>', text)]
    assert shares == sorted(shares, reverse=True), "the sites of all cells of a test, by their share"
    assert re.findall(r'<tr id="(t1c\d)" class="(better)">', text) == [("t1c6", "better")]
    assert "decided so far" not in said


def test_it_is_one_file_whose_policy_lets_in_its_own_scripts_and_style_alone() -> None:
    text = rendered(full())
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in (*scripts, style)]
    assert policy.replace("&#39;", "'") == (
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'".format(
            " ".join(f"'sha256-{each}'" for each in hashes[:-1]), f"'sha256-{hashes[-1]}'"
        )
    )
    assert len(scripts) == 3
    assert all(each in text for each in ("Mike Bostock", "Observable, Inc.", "THE SOFTWARE IS PROVIDED"))
    shown = text.partition("<body>")[2].partition("<footer>")[0]
    assert re.findall(r"<[^>]* (?:src|href)=\"(?!#)[^>]*>", shown) == []


def test_figures_of_the_data_are_those_of_the_report() -> None:
    report = full()
    cells = {each["label"]: each for each in block(rendered(report))["tests"][0]["cells"]}
    for row in report.tables[0].rows:
        of = cells[row.cell.label]
        wall = row.figures.wall_ns
        assert (of["wall"] and of["wall"]["value"]) == (wall and wall.value)
        assert (of["wall"] and of["wall"]["interval"]) == (wall and msgspec.to_builtins(wall))
        assert of["decision"] == row.verdict.decision
    assert cells["3.14-fork-w8"]["wall"]["was"] == report.tables[0].rows[1].verdict.metrics[0].was
    change = cells["3.14-fork-w8"]["changes"]["wall"]
    assert change["change"]["value"] == 1.312
    assert (change["unit"], change["allowed"], change["effect"]) == ("ratio", 1.02, 1.05)
    assert change["pairs"] == pytest.approx([4 / 3] * 5, rel=1e-5), "each launch over its pair"
    assert cells["3.14-spawn-w8"]["changes"]["wall"]["pairs"] == [], "recordings are no pairs"
    waits = block(rendered(report))["tests"][1]["cells"][1]["changes"]["lock_wait"]
    assert (waits["unit"], waits["change"]["value"]) == ("points", 0.0412)


def test_pairs_after_the_look_that_decided_are_not_shown() -> None:
    row = full().tables[0].rows[1]
    judged = [msgspec.structs.replace(each, launches=3) for each in row.verdict.metrics]
    row = msgspec.structs.replace(row, verdict=msgspec.structs.replace(row.verdict, metrics=tuple(judged)))
    assert len(plots.cells_data([row], lambda _: True)[0]["changes"]["wall"]["pairs"]) == 3


def test_variables_vary_as_parameters_do_and_each_timer_has_a_heat_map() -> None:
    rows = []
    for limit, size in (("1", 10), ("2", 20)):
        set_to = Environment(variables=(("LIMIT", limit),), words=(f"LIMIT:{limit}",))
        one = msgspec.structs.replace(
            cell("t.py::test", "3.14t", "threads", 8),
            environment=set_to,
            params=(Param(name="size", literal=str(size)),),
        )
        figures = Figures(timers_mean_ns={"wait": 1e6 * size})
        rows.append(Row(cell=one, verdict=Verdict(decision=Decision.PASSED), figures=figures))
    assert plots.varied(rows) == ("size", "LIMIT")
    first, second = plots.cells_data(rows, lambda _: False)
    assert first["family"] == second["family"] == "3.14t-threads"
    assert first["settings"] == {"workers": "8", "size": "10", "LIMIT": "1"}
    assert second["timers"] == {"wait": 2e7}


def test_that_nothing_regressed_is_said_as_clearly_as_a_failure() -> None:
    passed = tuple(msgspec.structs.replace(table, rows=table.rows[:1]) for table in report_by_hand.report().tables[:2])
    text = rendered(built(tables=passed))
    assert '<h1 id="verdict" class="good">2 of 2 decided, nothing regressed</h1>' in text
    new = Row(cell=cell("t.py::test", "3.14t", "threads", 8), verdict=Verdict(decision=Decision.NO_BASELINE))
    text = rendered(of_rows(new))
    assert '<h1 id="verdict" class="open">Nothing was compared</h1>' in text
    assert not re.search("What fails|This report is partial", text)
    assert "No cell was judged: all were skipped</h1>" in rendered(built(tables=()))


def test_what_fails_is_what_the_run_was_told_to_fail_on() -> None:
    table = report_by_hand.report().tables[0]
    slower, noisy = table.rows[1], table.rows[4]
    tables = (msgspec.structs.replace(table, rows=(slower, noisy)),)
    text = rendered(built(tables=tables, failing=frozenset({noisy.cell.nodeid})))
    assert "1 of 2 decided, 1 inconclusive</p>" in text
    assert "(-2.0 to +8.2) 32.9 ms, was 31.9 ms rules out +21 %; +5 % needs about 14 more pairs, 40 s" in words(text)
    assert re.findall(
        r"What fails|Also worth knowing|3.14-spawn-w8</a></span></h4>|3.14-fork-w8</a> <small>", plain(text)
    ) == [
        "What fails",
        "3.14-spawn-w8</a></span></h4>",
        "Also worth knowing",
        "3.14-fork-w8</a> <small>",
    ]
    assert [each["fails"] for each in block(text)["tests"][0]["cells"]] == [False, True]
    assert "1 of 2 decided, nothing fails, 1 regressed</h1>" in rendered(built(tables=tables, failing=frozenset()))


def plain(text: str) -> str:
    return text.replace("<wbr>", "")


def test_what_failing_cells_of_a_test_share_is_said_once() -> None:
    table = report_by_hand.report().tables[0]
    rows = [
        msgspec.structs.replace(table.rows[1], cell=cell("t.py::test", "3.14", "fork", workers))
        for workers in range(1, 6)
    ]
    text = words(rendered(built(tables=(msgspec.structs.replace(table, rows=tuple(rows)),))))
    group = text.partition("What fails")[2].partition("cell verdict")[0]
    assert group.count("are spent in") == 1, "cells with one cause are one"
    assert group.count("judged by paired launches") == group.count("against the baseline") == 1
    assert "rerun pytest --ftgate t.py::test ftgate baseline diff" in group
    assert "all 5 cells, most in 3.14-fork-w1 wall +31.2 %" in group
    assert "also in 3.14-fork-w2 wall +31.2 %, 3.14-fork-w3 wall +31.2 %," in group, "each with its own change"
    assert "meant? ftgate accept test wall &#39;why&#39;" in group


def test_a_run_that_fails_because_it_decided_nothing_is_not_shown_as_open() -> None:
    row = report_by_hand.report().tables[0].rows[4]
    metrics = tuple(msgspec.structs.replace(each, more=14) for each in row.verdict.metrics)
    row = msgspec.structs.replace(row, verdict=msgspec.structs.replace(row.verdict, metrics=metrics))
    text = rendered(of_rows(row, failing=frozenset()))
    assert '<h1 id="verdict" class="fails">Nothing was decided: 0 of 1 compared cell</h1>' in text
    left = "wall +3.1 % (-2.0 to +8.2); rules out +21 %; +5 % needs about 14 more pairs, 40 s"
    assert left in words(text), "its interval, and what would settle it"
    assert "compared cell Give the tests more time (--ftgate-test-time)" in words(text)


def test_an_error_says_whether_the_reference_has_it() -> None:
    row = report_by_hand.report().tables[0].rows[7]
    assert row.error is not None
    verdict = Verdict(decision=Decision.ERROR, reason=row.error.reason, commit=report_by_hand.COMMIT)
    text = words(rendered(of_rows(msgspec.structs.replace(row, verdict=verdict))))
    assert "reference it is unknown whether the baseline&#39;s commit has this error" in text


def test_why_is_said_at_once_and_only_p_values_are_folded() -> None:
    table = report_by_hand.report().tables[0]
    row = table.rows[1]
    tested = "+31.2 % is beyond +2 %: p = 0.00016, limit 0.0012"
    less = Reason(code=Why.ACCEPTED_LESS, name="9f8e7d6c5b", limit=1.21)
    judged = msgspec.structs.replace(
        row.verdict.metrics[0], reasons=(Reason(code=Why.BEYOND, level=0.0012), less), allowed=1.02
    )
    row = msgspec.structs.replace(row, verdict=msgspec.structs.replace(row.verdict, metrics=(judged,)))
    text = rendered(built(tables=(msgspec.structs.replace(table, rows=(row,)),)))
    failing = text.partition("What fails")[2].partition("</article>")[0]
    parts = failing.partition("<details>")
    assert '<p class="reason">accepted up to +21 % by commit 9f8e7d6c5b, now +31.2 %</p>' in parts[0]
    assert parts[0].index("<dt>why</dt>") < parts[0].index("are spent in")
    assert tested in parts[2]
    assert "p = " not in parts[0]


def test_a_long_name_breaks_between_its_words() -> None:
    assert page_module.wrapped("a/b_c.py::t[x-<y>]") == "a/<wbr>b_<wbr>c.py::<wbr>t[<wbr>x-&lt;y&gt;]"


def test_an_interval_that_tells_nothing_is_not_plotted() -> None:
    vague = Interval(value=1e6, low=0.34e6, high=2.98e6, level=0.95)
    row = Row(
        cell=cell("t.py::test", "3.14t", "threads", 8),
        verdict=Verdict(decision=Decision.NO_BASELINE),
        figures=Figures(wall_ns=vague),
    )
    assert plots.cells_data([row], lambda _: False)[0]["wall"] == {"value": 1e6, "interval": None, "was": None}


def test_waits_for_the_gil_are_plotted_where_their_lengths_are_known() -> None:
    bare = measured(
        Row(cell=cell("t.py::test", "3.14", "threads", 4), verdict=Verdict(decision=Decision.PASSED)), 1_000
    )
    waits = Waits(gil_s=1.0, samples=100, gil_waits={bucket_of(5_000_000): 30.0, bucket_of(10_000_000): 10.0})
    assert bare.sample is not None
    row = msgspec.structs.replace(
        bare,
        sample=bare.sample.with_launches("memory", [Launch(waits=waits)]),
        figures=Figures(waits=WaitFigures(gil=0.5, gil_p50_ns=5e6, gil_p95_ns=1e7)),
    )
    without, having = (each["gil"] for each in plots.cells_data([bare, row], lambda _: False))
    assert without is None
    assert [share for *_, share in having["bins"]] == [0.75, 0.25]
    assert (having["p50"], having["p95"]) == (5e6, 1e7)


def test_what_locks_allow_is_a_line_beside_the_measured_scaling() -> None:
    rows = report_by_hand.report().rows
    found = plots.cells_data(rows, lambda _: False)
    limited = [(row.figures, data) for row, data in zip(rows, found, strict=True) if row.figures.lock_limit]
    assert limited
    for figures, data in limited:
        assert data["locks"]["allow"] == figures.lock_ceiling
        assert data["locks"]["said"].startswith("its locks allow ")
        assert figures.scaling is not None
        assert data["scaling"] == figures.scaling.value
    assert next(data["locks"] for row, data in zip(rows, found, strict=True) if not row.figures.lock_limit) is None


def test_a_run_that_records_says_what_to_do_next() -> None:
    text = words(rendered(built(tables=grid(), updates=("4 recorded in baselines/: git add baselines",))))
    assert "Baselines 4 recorded in baselines/: git add baselines" in text


def test_a_partial_report_says_so_before_all_else() -> None:
    text = words(rendered(built(tables=grid(), partial="interrupted by Ctrl-C <now>")))
    assert "4 of 4 decided so far, nothing regressed This report is partial. interrupted by Ctrl-C" in text
    assert "&lt;now&gt;" in text


def test_a_test_has_the_advice_that_follows_from_its_figures() -> None:
    report = report_by_hand.report()
    first = sentences.of_report(report)[0]
    text = words(rendered(report))
    assert first.sentences[0].topic == "advice"
    assert f"Advice {html.escape(first.sentences[0].text)}" in text


def test_a_ratio_that_is_not_that_of_the_times_has_its_rounds_in_every_form() -> None:
    figures = Figures(wall_ns=Interval(value=1e6, low=9e5, high=1.1e6, level=0.95), ratio=1.33, ratio_rounds=3)
    row = Row(cell=cell("t.py::test", "3.14", "fork", 8), figures=figures, verdict=Verdict(decision=Decision.PASSED))
    text = "3.14-fork-w8: of the 3 rounds that both cells have; the times are of all rounds"
    assert f"ratio of {text}" in words(rendered(of_rows(row)))
    assert text in " ".join(terminal.render(of_rows(row), width=80, color=False, unicode=True, verbosity=1).split())


def test_the_advice_is_that_of_the_weights_of_the_run() -> None:
    weighted = msgspec.structs.replace(report_by_hand.report(), weights=(("time", 1.0), ("memory", 0.5)))
    assert "by time=1 memory=0.5" not in words(rendered(report_by_hand.report()))
    assert "by time=1 memory=0.5" in words(rendered(weighted))


def test_tests_without_room_keep_their_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rendered(full())
    monkeypatch.setattr(page_module, "PLOTS_BYTES", 6_000)
    text = rendered(full())
    _, *rest = text.split('<section class="test"')
    short = [each for each in rest if "The plots and details of this test are left out" in each]
    assert 0 < len(block(text)["tests"]) == len(rest) - len(short) < len(block(whole)["tests"]) == 5
    assert not any("All figures of each cell" in each or 'class="plots"' in each for each in short)
    assert re.findall(r"<tr id=.*?</tr>", text, re.DOTALL) == re.findall(r"<tr id=.*?</tr>", whole, re.DOTALL)


def test_sixty_cells_take_less_than_a_megabyte() -> None:
    every = [row for number in range(15) for table in grid(f"tests/test_{number}.py::test") for row in table.rows]
    tables = [Table(title="t", rows=(measured(row, 1_234_567, 60),), reference="threads") for row in every]
    text = rendered(built(tables=tuple(tables)))
    assert len(block(text)["tests"]) == 15
    assert len(text.encode()) < 1_000_000


# ---- in a browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 300_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser here to read the page: none of {', '.join(BROWSERS)} is on PATH")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as tools:
        started = tools.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(rendered(full()), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def opened(browser: Browser, address: str) -> Iterator[tuple[Page, list[str]]]:
    """The page as opened from its file, and what it says or asks for."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: said.append(request.url))
    page.goto(address)
    yield page, said
    context.close()


LOOK = """
async () => {
  const frame = () => new Promise(requestAnimationFrame);
  for (const each of document.querySelectorAll(".plots, .scroll")) {
    each.scrollIntoView();
    for (let frames = 0; frames < 2 || each.matches(".plots:empty"); frames++) await frame();
  }
  scrollTo(0, 0);
}
"""
"""Looks at every part of the page: what is far from the screen is neither laid out nor drawn."""


@pytest.fixture
def page(opened: tuple[Page, list[str]], address: str) -> Iterator[Page]:
    """The one page of all tests, with all of its plots, which must neither complain nor ask for anything."""
    page, said = opened
    page.evaluate(LOOK)
    yield page
    assert set(said) <= {address}
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(media="null", color_scheme="null")


def test_a_plot_is_drawn_when_it_comes_near_the_screen(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 300})
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    opened.goto(address)
    last = opened.locator(".plots").last
    assert last.locator("svg").count() == 0
    last.evaluate("each => each.scrollIntoView()")
    last.locator("svg").first.wait_for()
    context.close()


def test_every_plot_is_drawn(page: Page) -> None:
    titles = page.locator("figcaption").all_text_contents()
    for wanted in (
        "Time of each cell",
        "Change: wall",
        "Change: lock_wait",
        "Where threads wait",
        "Time by depth and size",
    ):
        assert any(title.startswith(wanted) for title in titles), wanted
    drawn = page.locator("svg.plot").evaluate_all(
        "all => all.map(each => [each.tabIndex, each.getAttribute('aria-label')])"
    )
    assert all(place == 0 and re.search(r": .*\d", label) for place, label in drawn), "they are read by keyboard, too"
    said = "3.14-fork-w8: +31.2 %, interval +28.1 % to +34.3 %, allowed +2 %, effect +5 %, 5 pairs"
    assert any(label.startswith(f"Change of wall. {said}") for _, label in drawn)
    first = page.locator(".plots").first.locator("svg.plot").nth(1)
    points = [text for text in first.locator("title").all_text_contents() if text.startswith("3.14-fork-w8, ")]
    assert points == [f"3.14-fork-w8, pair {number}: +33.3 %" for number in range(1, 6)]
    bands = first.locator("[aria-label=rect] rect").evaluate_all("all => all.map(each => each.getBoundingClientRect())")
    assert len(bands) == 2
    allowed, open_one = sorted(bands, key=lambda each: each["left"])
    assert allowed["right"] == pytest.approx(open_one["left"]), "the margin ends where the band up to the effect begins"
    dots = first.locator("[aria-label=dot] circle").evaluate_all("all => all.map(each => each.getBoundingClientRect())")
    assert min(each["left"] for each in dots) > open_one["right"], "every pair lies beyond the effect"


def test_the_time_of_each_cell_is_drawn_where_nothing_was_compared_too(page: Page) -> None:
    compared, alone = (page.locator(f".plots[data-test={test}] svg.plot").first for test in ("t1", "t3"))
    said = "3.14-fork-w8: 3.12 ms, was 2.38 ms, interval 3.07 ms to 3.17 ms"
    assert said in str(compared.get_attribute("aria-label"))
    assert str(alone.get_attribute("aria-label")).startswith(
        "Time of each cell. 3.14t-threads-w8-10_000_000: 911 ns, interval 865 ns to 956 ns. 3.14-threads-w8-"
    )
    assert alone.locator("title").all_text_contents() == [
        "3.14t-threads-w8-10_000_000: 865 ns to 956 ns",
        "3.14-threads-w8-10_000_000: 1.38 µs to 1.53 µs",
        "3.14-fork-w8-10_000_000: 18.6 µs to 20.6 µs",
    ]
    boxes = alone.locator("line:has(title)").evaluate_all("all => all.map(each => each.getBoundingClientRect())")
    assert [each["left"] for each in boxes] == sorted(each["left"] for each in boxes)
    assert all(each["width"] > 5 for each in boxes)


def test_a_figure_read_back_from_the_page_is_the_reports(page: Page) -> None:
    data = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    shown = page.locator("tr#t1c1 td[data-value]").first.get_attribute("data-value")
    wall = report_by_hand.report().tables[0].rows[1].figures.wall_ns
    assert wall is not None
    assert float(shown or "nan") == data["tests"][0]["cells"][1]["wall"]["value"] == wall.value


def test_the_table_sorts_by_click_and_by_keyboard(page: Page) -> None:
    table = page.locator("table.sortable").first
    header = table.locator("thead th").nth(2)

    def times() -> list[float]:
        values = table.locator("tbody tr").evaluate_all("rows => rows.map(row => row.cells[2].dataset.value ?? 'inf')")
        return [float(value) for value in values]

    unsorted = times()
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    assert times() == sorted(unsorted) != unsorted
    header.locator("button").focus()
    page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    known = [value for value in times() if value != float("inf")]
    assert times()[: len(known)] == known == sorted(known, reverse=True)  # what has no value stays last
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert table.locator("thead th").nth(3).get_attribute("aria-sort") == "ascending"
    assert header.get_attribute("aria-sort") == "none"


def test_the_first_tab_skips_to_the_verdict(page: Page) -> None:
    page.reload()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.group') !== null")


def test_hostile_names_are_text(page: Page) -> None:
    assert page.locator("img, script:not([id])").count() == 3
    text = page.text_content("body") or ""
    assert "</script><script>alert(1)</script><img src=x onerror=alert(2)>gnp.exe {{ 7*7 }} ]]> --> &amp;" in text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page.content())


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_page_is_never_wider_than_the_screen(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.wait_for_function("document.querySelector('svg.plot').getBoundingClientRect().right <= innerWidth")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


WIDE = (
    "[...document.querySelectorAll('.scroll')]"
    ".map(each => [each.scrollWidth > each.clientWidth, each.matches('.wide')])"
)


def test_a_table_that_is_wider_than_the_screen_says_that_it_scrolls(page: Page) -> None:
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        page.evaluate(LOOK)
        assert page.evaluate(f"{WIDE}.every(([wider, says]) => wider === says)")
        if width == 390:
            assert page.evaluate(f"{WIDE}.some(([wider]) => wider)")
            shown = page.evaluate("getComputedStyle(document.querySelector('.scroll.wide'), '::after').content")
            assert "scroll sideways" in shown


CONTRAST = """
() => {
  const parts = color => color.match(/[\\d.]+/g).map(Number);
  const linear = value => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = node => {
    for (let at = node; at; at = at.parentElement) {
      const found = parts(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  return [
    "body", "h1", ".badge.fails", ".badge.open", ".badge.good", ".badge.better", "small", "dt", "a", ".command",
    "pre", "thead button", "figcaption small", "svg.plot",
  ].map(selector => {
    const node = document.querySelector(selector);
    const [low, high] = [light(parts(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => a - b);
    return [selector, (high + 0.05) / (low + 0.05)];
  });
}
"""
"""The contrast of text and what is behind it, by the formula of WCAG 2."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_schemes(page: Page, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    found = dict(page.evaluate(CONTRAST))
    assert {name: ratio for name, ratio in found.items() if ratio < 4.5} == {}
    assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)") is (
        scheme == "light"
    )


def test_print_has_all_of_it(page: Page) -> None:
    from playwright.sync_api import expect

    page.emulate_media(media="print", color_scheme="dark")
    expect(page.locator("details:not([open])")).to_have_count(0)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("pre").last.is_visible()
    page.emulate_media(media="screen")
    expect(page.locator("details[open]")).to_have_count(0)


def test_without_scripts_the_page_still_has_its_figures(browser: Browser, address: str, tmp_path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    opened.goto(address)
    assert "test_tokenise[3.14-fork-w8]: wall +31.2 %" in opened.inner_text("h1")
    assert "14 of 17 decided, 4 regressed" in opened.inner_text("main")
    assert opened.locator("table.sortable tbody tr").count() == 23
    context.close()
