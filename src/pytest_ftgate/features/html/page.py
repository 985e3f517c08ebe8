"""The text of the page, in its order: failures, other findings, each test, the environment. Pure."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ...judge import decide
from ...kit import units
from ...kit.text import plain
from ...kit.values import Metric
from ...model.report import Report, Row, Table
from ...model.verdict import Decision
from ...report import errors, said
from ...report.details import Style, detail_lines, held_by, site_place
from ...report.measured import COLUMNS, interval_head, judged_wall, wall_change, wall_interval
from ..decide import sentences
from . import plots

PLOTS_BYTES = 400_000
"""The most that the data of the plots takes: tests beyond it, those without a failure first, have no plots."""
SCRIPTS = ("d3.min.js", "plot.umd.min.js", "page.js")
PLAIN = Style(width=110, verbosity=1)
OTHERS = 8
"""Cells of a finding, beside its worst, whose changes are listed."""
SITES = 12
"""Lock sites of a test that are listed."""

Text: TypeAlias = tuple[str, float | None]
"""A text of a table, and what it is sorted by; None: it is empty."""
Said: TypeAlias = dict[str, Any]
"""The values of one thing, by the names that the template has for them."""


def render(report: Report) -> str:
    """The page as HTML text: one file without any reference to another."""
    environment = _environment()
    tests = list(_tests(report))
    anchors = {id(cell["row"]): cell["anchor"] for test in tests for cell in test["cells"]}

    # The plots get as much room as there is, those of the tests that fail first.
    left, fails = PLOTS_BYTES, partial(said.fails, report)

    def place(test: Said) -> tuple[bool, int, bool, float]:
        return min((said.place(report, cell["row"]) for cell in test["cells"]), default=(True, 0, False, 0.0))

    for test in sorted(tests, key=place):
        rows = [cell["row"] for cell in test["cells"]]
        drawn_of = {"cells": plots.cells_data(rows, fails), "varied": plots.varied(rows)}
        left -= len(plots.encoded(drawn_of))
        if left < 0:  # a browser takes its time for each plot
            break
        test["data"] = drawn_of
        for cell in test["cells"]:
            cell["details"] = "\n".join(line[6:] for line in detail_lines(cell["row"], PLAIN))
    drawn = [{"anchor": test["anchor"], **test["data"]} for test in tests if test["data"]]
    data = {"started_at": report.started_at, "commit": report.commit, "seed": report.seed, "tests": drawn}

    headline, undecided, worst = said.first_line(report), said.undecided(report), said.worst(report)
    title = _begun(headline)
    if worst:  # an error stands once in the page, below
        failed = worst[0].verdict.decision is Decision.ERROR
        title = f"{said.together(worst)}: {'error' if failed else said.shortened(said.in_one_line(worst[0]))}"
    rows, counts = said.worst_first(report), said.counts(report)
    failing = [row for row in rows if said.fails(report, row)]
    accepted = [row for row in rows if row.verdict.decision is Decision.ACCEPTED and not said.fails(report, row)]
    # A content security policy that lets in these scripts and this style alone, and no request.
    scripts, style = [source(name) for name in SCRIPTS], source("page.css")
    digests = (hashlib.sha256(text.encode()).digest() for text in (*scripts, style))
    *of_scripts, of_style = (f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    policy = f"default-src 'none'; script-src {' '.join(of_scripts)}; style-src {of_style}"
    page = environment.get_template("page.html").render(
        report=report,
        tests=tests,
        groups={"failing": _groups(report, failing, anchors), "accepted": _groups(report, accepted, anchors)},
        others=_others(report, anchors),
        data=plots.encoded(data),
        scripts=scripts,
        style=style,
        licences=source("LICENSES.txt"),
        policy=f"{policy}; base-uri 'none'; form-action 'none'",
        headline=headline,
        said=title,
        where=said.where(worst[0]) if worst else "",
        result=said.result(report) if worst else "",
        about=said.about(report),
        passed=said.all_decided(report) and not report.partial,
        undecided=_begun("; ".join(undecided[1:])),  # after what the headline says
        counted=[(each, counts[each]) for each in Decision if counts[each]],
        seconds=said.seconds_text(report),
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
        "errors": errors,
        "css": _css,
        "site_place": lambda site: site_place(site, site.file),
        "held_by": lambda holder: held_by(holder, holder.file),
    }
    return environment


def wrapped(text: str) -> Markup:
    """A name that is broken between its words where it is longer than a line; it is copied as it is."""
    return Markup("<wbr>").join(re.split(r"(?<=[/:_,=\[-])(?=\w)", plain(text)))


def source(name: str) -> str:
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _css(decision: Decision) -> str:
    """The class that gives a decision its colour and shape."""
    if decision is Decision.IMPROVED:
        return "better"
    return "fails" if decision.fails else "good" if decision.good else "open"


def _begun(text: str) -> str:
    """With a capital, as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


# ---- findings


def _groups(report: Report, rows: Sequence[Row], anchors: dict[int, str]) -> list[Said]:
    """These cells, worst first, by their tests: the blocks of each, what all of it was compared with and judged by.

    An error that several tests share is of `3 tests`.
    """
    by_test: dict[str, list[list[Row]]] = {}
    run = said.by_test(report.rows)
    for block in said.blocks(rows):
        tests = {said.test_of(row) for row in block}
        by_test.setdefault(tests.pop() if len(tests) == 1 else f"{len(tests)} tests", []).append(block)
    groups = []
    for test, blocks in by_test.items():
        items: list[Said] = []
        for block in blocks:
            # The first cell has the finding, the others have their changes; all have links to their rows.
            row, found = block[0], said.finding(*block)
            cells = list(zip(said.names(block), (anchors[id(each)] for each in block), strict=True))
            error = row.verdict.decision is Decision.ERROR
            changes = ["" if error else said.shortened(said.headline(each)) for each in block]
            items.append(
                {
                    "row": row,
                    "found": found,
                    "anchor": cells[0][1],
                    "heading": Markup(said.in_block(block, run, partial(_linked, dict(cells)))),
                    "others": [(*cell, change) for cell, change in zip(cells, changes, strict=True) if change][1:],
                    "named": OTHERS,
                    "meant": said.meant(block, run) if row.verdict.decision.fails else "",
                }
            )
        judged = [item["found"] for item in items if item["row"].verdict.decision is not Decision.ERROR]
        groups.append(
            {
                "test": test,
                "anchor": items[0]["anchor"].partition("c")[0],
                "cells": sum(map(len, blocks)),
                "items": items,
                "against": _common(found.against for found in judged),
                "basis": _common(found.basis for found in judged),
                "judged": any(item["row"].verdict.basis for item in items),
                "commands": said.commands([row for block in blocks for row in block], run),
            }
        )
    return groups


def _linked(anchors: Mapping[str, str], name: str) -> str:
    """A cell's name, which leads to its row."""
    return Markup('<a href="#{}">{}</a>').format(anchors[name], wrapped(name))


def _common(texts: Iterable[str]) -> str:
    """The text, if it is the same one for all."""
    first, *rest = {*texts} or {""}
    return "" if rest else first


def _others(report: Report, anchors: dict[int, str]) -> list[Said]:
    """Lines about cells that neither fail nor are accepted; cells of a test with the same line share it."""
    found: dict[tuple[Decision, str, str], list[tuple[str, str]]] = {}
    quiet = (Decision.ACCEPTED, Decision.UNCHANGED, Decision.PASSED, Decision.RECORDED, Decision.NO_BASELINE)
    for row in said.worst_first(report):
        decision = row.verdict.decision
        if not said.fails(report, row) and decision not in quiet:
            cells = found.setdefault((decision, said.in_one_line(row), said.test_of(row)), [])
            cells.append((anchors[id(row)], row.cell.label or row.cell.nodeid))
    return [
        {"decision": decision, "text": text, "test": test, "cells": cells}
        for (decision, text, test), cells in found.items()
    ]


# ---- tests


def _tests(report: Report) -> Iterator[Said]:
    """Every test with the rows of all its tables."""
    advised = {each.test: each.sentences for each in sentences.of_report(report)}
    tables: dict[str, list[Table]] = {}
    for table in report.tables:
        tables.setdefault(said.test_of(table.rows[0]) if table.rows else table.title, []).append(table)
    undecided = bool(said.undecided(report))  # the headline says what the time allowed
    for number, (title, of_test) in enumerate(tables.items(), start=1):
        rows = [row for table in of_test for row in table.rows]
        notes = [table.note for table in of_test if table.note]
        notes += [f"ratio of {text}" for text in said.ratios_of_rounds(rows)]
        notes += [] if undecided else said.shortfalls(rows)
        notes += [f"{row.cell.label}: {text}" for row in rows if (text := said.uncompared(row.verdict))]
        notes += [f"{row.cell.label}: {text}" for row in rows if (text := said.locks_allow(row))]
        notes += [text for row in rows for text in decide.remarks(row.conditions, row.cell.workers)]
        columns = {head: texts for head, texts in _columns(rows).items() if any(text for text, _ in texts)}
        sites = [(row.cell.label, site) for row in rows for site in row.figures.sites if site.share > 0]
        yield {
            "title": title,
            "anchor": f"t{number}",
            "result": said.result(report, rows),
            "reference": of_test[0].reference if any(row.figures.ratio is not None for row in rows) else "",
            "notes": dict.fromkeys(notes),
            "heads": list(columns),
            "cells": [
                {
                    "row": row,
                    "anchor": f"t{number}c{at}",
                    "texts": [texts[at] for texts in columns.values()],
                    "details": "",
                }
                for at, row in enumerate(rows)
            ],
            "sites": [
                {"cell": label, "site": site} for label, site in sorted(sites, key=lambda each: -each[1].share)[:SITES]
            ],
            "data": None,
            "advice": advised.get(title, ()),
        }


def _columns(rows: Sequence[Row]) -> dict[str, list[Text]]:
    """The texts of each column of a table, by its heading, with the values that they are sorted by."""
    columns: dict[str, list[Text]] = {}
    for name, each in COLUMNS.items():
        columns[name] = list(zip(each.texts(rows), map(each.value, rows), strict=True))
        if name == Metric.WALL:  # what belongs to it stands beside it
            walls, judged = map(wall_interval, rows), map(judged_wall, rows)
            columns[interval_head(rows)] = [(units.ends("time", w), w.high - w.low) if w else ("", None) for w in walls]
            ratios = [wall.ratio.value if wall and wall.ratio else None for wall in judged]
            columns["change"] = list(zip(map(wall_change, rows), ratios, strict=True))
    return columns
