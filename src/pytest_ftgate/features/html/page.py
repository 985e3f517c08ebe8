"""What the page says, in its order: what fails, what else to know, each test, the environment. Pure."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ...judge import decide
from ...kit import units
from ...kit.text import plain
from ...model.report import Report, Row, SiteFigures
from ...model.verdict import Decision
from ...report import said
from ...report.details import Style, detail_lines, site_place
from ...report.measured import COLUMNS, interval_head, judged_wall, wall_interval
from ..decide import text as advice
from . import plots

PLOTS_BYTES = 1_000_000
"""What the data of the plots takes at most: tests beyond it, those without a failure first, have figures alone."""
SCRIPTS = ("d3.min.js", "plot.umd.min.js", "page.js")
PLAIN = Style(width=110, color=False, unicode=True, verbosity=1)
SITES = 12
"""Lock sites of a test that are listed."""


Text = tuple[str, float | None]
"""A text of a table, and what it is sorted by; None: it is empty."""


class CellRow(NamedTuple):
    """One cell in a table: the texts of its columns with what they are sorted by, and all other figures as lines."""

    row: Row
    anchor: str
    texts: tuple[Text, ...]
    details: str


class SiteRow(NamedTuple):
    """One lock site of one cell."""

    cell: str
    site: SiteFigures


class Test(NamedTuple):
    """One test: its cells in a table, remarks, lock sites, and the data of its plots (None: it has none)."""

    title: str
    anchor: str
    result: str
    reference: str
    notes: tuple[str, ...]
    heads: tuple[str, ...]
    cells: tuple[CellRow, ...]
    sites: tuple[SiteRow, ...]
    data: dict[str, Any] | None
    advice: tuple[advice.Sentence, ...]


def render(report: Report) -> str:
    """The page as HTML text: one file without any reference to another."""
    environment = _environment()
    tests = _with_plots(report, _tests(report))
    data = {"started_at": report.started_at, "commit": report.commit, "seed": report.seed}
    block = plots.encoded({**data, "tests": [{"anchor": t.anchor, **t.data} for t in tests if t.data]}, plain)
    sources = {name: source(name) for name in (*SCRIPTS, "page.css", "LICENSES.txt")}
    result, headline, counts = said.result(report), said.first_line(report), said.counts(report)
    undecided, worst = said.undecided(report), said.worst(report)
    title = _begun(headline)
    if worst:  # an error stands once in the page, below
        failed = worst[0].verdict.decision is Decision.ERROR
        title = f"{said.together(worst)}: {'error' if failed else said.shortened(said.in_one_line(worst[0]))}"
    rows = said.worst_first(report)
    failing = [row for row in rows if said.fails(report, row)]
    accepted = [row for row in rows if row.verdict.decision is Decision.ACCEPTED and not said.fails(report, row)]
    anchors = {id(cell.row): cell.anchor for test in tests for cell in test.cells}
    page = environment.get_template("page.html").render(
        report=report,
        tests=tests,
        groups={"failing": _groups(failing, anchors), "accepted": _groups(accepted, anchors)},
        others=_others(report, anchors),
        data=block,
        scripts=[sources[name] for name in SCRIPTS],
        style=sources["page.css"],
        licences=sources["LICENSES.txt"],
        policy=_policy([sources[name] for name in SCRIPTS], sources["page.css"]),
        headline=headline,
        said=title,
        where=said.where(worst[0]) if worst else "",
        result=result if worst else "",
        about=said.about(report),
        passed=said.all_decided(report) and not report.partial,
        undecided=_begun(undecided.partition("; ")[2]),  # after what the headline says
        counted=[(each, counts[each]) for each in Decision if counts[each]],
        limits=said.limits_text(report),
    )
    return page.rstrip("\n") + "\n"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if type(value) is str else value,
    )
    environment.filters["wrapped"] = wrapped
    environment.globals = {
        "units": units,
        "said_of": said,
        "accepted_texts": said.accepted_texts,
        "css": css,
        "word": lambda decision: decision.value,
        "site_place": lambda site: site_place(site, site.file),
    }
    return environment


def wrapped(text: str) -> Markup:
    """A name that is broken between its words where it is longer than a line; it is copied as it is."""
    return Markup("<wbr>").join(re.split(r"(?<=[/:_,=\[-])(?=\w)", plain(text)))


def source(name: str) -> str:
    """The text of an asset, as it is."""
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _policy(scripts: Iterable[str], style: str) -> str:
    """A content security policy that lets in these scripts and this style alone, and no request."""

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    allowed = " ".join(map(hashed, scripts))
    return f"default-src 'none'; script-src {allowed}; style-src {hashed(style)}; base-uri 'none'; form-action 'none'"


# ---- the verdict, and what needs attention


def css(decision: Decision) -> str:
    """The class that gives a decision its colour and shape."""
    if decision is Decision.IMPROVED:
        return "better"
    return "fails" if decision.fails else "good" if decision.good else "open"


def _begun(text: str) -> str:
    """With a capital, as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


class Item(NamedTuple):
    """A block of cells that needs attention: the first with what is said of it, and the names of all with their places.

    `allowed` is of each metric: `+2 %`. `open` are the reasons that say what is to be done, `why` those that say by
    which test it was decided.
    """

    row: Row
    found: said.Finding
    cells: tuple[tuple[str, str], ...]
    allowed: dict[str, str]
    open: tuple[str, ...]
    why: tuple[str, ...]


class TestBlocks(NamedTuple):
    """The blocks of a test that need attention: what all were compared with and judged by, and how to repeat them.

    `test` is its node id; of errors that several tests share `3 tests`.
    """

    test: str
    anchor: str
    items: tuple[Item, ...]
    against: str
    basis: str
    commands: tuple[str, ...]


class Others(NamedTuple):
    """Cells of a test with the same decision of which the same is to be said."""

    decision: Decision
    text: str
    test: str
    cells: list[tuple[str, str]]


def _groups(rows: Sequence[Row], anchors: dict[int, str]) -> list[TestBlocks]:
    """These cells, worst first, by their tests."""
    by_test: dict[str, list[list[Row]]] = {}
    for block in said.blocks(rows):
        tests = {said.test_of(row) for row in block}
        by_test.setdefault(tests.pop() if len(tests) == 1 else f"{len(tests)} tests", []).append(block)
    groups = []
    for test, blocks in by_test.items():
        items = tuple(_item(block, anchors) for block in blocks)
        judged = [item.found for item in items if item.row.verdict.decision is not Decision.ERROR]
        groups.append(
            TestBlocks(
                test=test,
                anchor=items[0].cells[0][0].partition("c")[0],
                items=items,
                against=_common(found.against for found in judged),
                basis=_common(found.basis for found in judged),
                commands=said.commands(*(row for block in blocks for row in block)),
            )
        )
    return groups


def _common(texts: Iterable[str]) -> str:
    """The text, if it is the same one for all."""
    first, *rest = {*texts} or {""}
    return "" if rest else first


def _item(block: Sequence[Row], anchors: dict[int, str]) -> Item:
    row, found = block[0], said.finding(block[0])
    accepted = " ".join(said.accepted_texts(row.verdict.accepted))
    error = said.exception(said.error_of(row)) if row.verdict.decision is Decision.ERROR else ""
    reasons = [*(each.reason or each.evidence for each in found.changes), found.reason]
    shown = tuple(each for each in reasons if each and each not in accepted and each != error)
    # A test of significance decided these: its p-values are folded.
    tested = row.verdict.decision.missed or row.verdict.decision is Decision.ACCEPTED
    return Item(
        row=row,
        found=found,
        cells=tuple(zip((anchors[id(each)] for each in block), said.names(block), strict=True)),
        allowed={each.metric: said.allowed(each) for each in row.verdict.metrics},
        open=() if tested else shown,
        why=shown if tested else (),
    )


def _others(report: Report, anchors: dict[int, str]) -> list[Others]:
    """What is to be said of cells that neither fail nor are accepted, once for those of a test that share it."""
    found: dict[tuple[str, ...], Others] = {}
    quiet = (Decision.ACCEPTED, Decision.UNCHANGED, Decision.PASSED, Decision.NO_BASELINE)
    for row in said.worst_first(report):
        decision = row.verdict.decision
        if said.fails(report, row) or decision in quiet:
            continue
        other = Others(decision, said.in_one_line(row), said.test_of(row), [])
        other = found.setdefault(other[:3], other)
        other.cells.append((anchors[id(row)], row.cell.label or row.cell.nodeid))
    return list(found.values())


# ---- tests


def _tests(report: Report) -> Iterator[Test]:
    """Every test with the rows of all its tables; of unlike machines one for each."""
    advised = {each.test: each.sentences for each in advice.sentences(report)}
    unlike = len(report.by_fingerprint()) > 1
    tables: dict[str, list[int]] = {}
    for number, table in enumerate(report.tables):
        on = f" on {report.machine_of(table.rows[0]).fingerprint}" if unlike and table.rows else ""
        tables.setdefault(f"{said.test_of(table.rows[0])}{on}" if table.rows else table.title, []).append(number)
    for number, (title, numbers) in enumerate(tables.items(), start=1):
        own = [report.tables[each] for each in numbers]
        rows = [row for table in own for row in table.rows]
        notes = [table.note for table in own if table.note]
        notes += said.shortfalls(rows)
        notes += [text for row in rows for text in decide.remarks(row.conditions, row.cell.workers)]
        heads, texts = _columns(rows)
        cells = [
            CellRow(row, f"t{number}c{at}", texts[at], "\n".join(line[6:] for line in detail_lines(row, PLAIN)))
            for at, row in enumerate(rows)
        ]
        ratios = any(row.figures.ratio is not None for row in rows)
        sites = [SiteRow(row.cell.label, site) for row in rows for site in row.figures.sites if site.share > 0]
        yield Test(
            title=title,
            anchor=f"t{number}",
            result=said.result(report, rows),
            reference=own[0].reference if ratios else "",
            notes=tuple(dict.fromkeys(notes)),
            heads=heads,
            cells=tuple(cells),
            sites=tuple(sorted(sites, key=lambda each: -each.site.share)[:SITES]),
            data={
                "cells": [plots.cell_data(row, said.fails(report, row)) for row in rows],
                "varied": plots.varied(rows),
            },
            advice=advised.get(title, ()),
        )


def _with_plots(report: Report, tests: Iterable[Test]) -> list[Test]:
    """The tests without the data of those that have no room, in the same order."""
    kept = {test.anchor: test for test in tests}
    left = PLOTS_BYTES

    def worst(test: Test) -> tuple[bool, int, float]:
        return min((said.place(report, cell.row) for cell in test.cells), default=(True, 0, 0.0))

    for test in sorted(kept.values(), key=worst):
        size = len(plots.encoded(test.data, plain))
        if size > left:
            kept[test.anchor] = test._replace(data=None, cells=tuple(cell._replace(details="") for cell in test.cells))
        left -= min(left, size)
    return list(kept.values())


# ---- the table of a test


def _columns(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[Text, ...]]]:
    """The heads of the columns in which any row has a value, and each row's texts with their values."""
    columns: dict[str, list[Text]] = {}
    for each in COLUMNS.values():
        columns[each.head] = [("" if value is None else each.text(value), value) for value in map(each.value, rows)]
        if each.head == "time":  # what belongs to it stands beside it
            walls, judged = map(wall_interval, rows), map(judged_wall, rows)
            columns[interval_head(rows)] = [(units.time_ends(w), w.high - w.low) if w else ("", None) for w in walls]
            ratios = [wall.ratio.value if wall and wall.ratio else None for wall in judged]
            columns["change"] = [("" if ratio is None else units.change(ratio), ratio) for ratio in ratios]
    shown = {head: texts for head, texts in columns.items() if any(text for text, _ in texts)}
    return tuple(shown), [tuple(texts[at] for texts in shown.values()) for at in range(len(rows))]
