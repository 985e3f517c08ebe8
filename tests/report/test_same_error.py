"""The same error of many cells: one block in every form, whatever tests have it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import report_by_hand
from report_by_hand import cell

from pytest_ftgate.features import github, markdown
from pytest_ftgate.features.html import page
from pytest_ftgate.model.report import Report, Row, Table, failed_row
from pytest_ftgate.model.sample import WorkloadError
from pytest_ftgate.model.verdict import Decision, Verdict
from pytest_ftgate.report import said, terminal

WHY = "cannot install -e .: src/fast.c:1:10: fatal error: nothere.h: No such file"


def failed(test: str, workers: int, folder: str = "a") -> Row:
    """A cell whose environment could not be made; the rest of the text is its interpreter's own."""
    return failed_row(cell(test, "3.14t", "threads", workers), WHY, f"{WHY}\nfor 3.14t in /tmp/{folder}:\ngcc said so")


def report_of(*rows: Row) -> Report:
    tests: dict[str, list[Row]] = {}
    for row in rows:
        tests.setdefault(row.cell.nodeid.partition("[")[0], []).append(row)
    tables = tuple(Table(title=test, rows=tuple(of), reference="") for test, of in tests.items())
    return msgspec.structs.replace(report_by_hand.report(), tables=tables, failing=None)


TWO_TESTS = report_of(
    *(failed("t.py::test_put", workers) for workers in (1, 2, 4, 8)),
    *(failed("t.py::test_get", workers, "b") for workers in (1, 2)),
    failed_row(cell("t.py::test_get", "3.14t", "fork", 8), "hung", ""),
)
NAMES = "6 cells: {0}test_put[3.14t-threads-w1]{0}, {0}test_put[3.14t-threads-w2]{0}, {0}test_put[3.14t-threads-w4]{0}"


def test_cells_of_one_error_are_named_together() -> None:
    found = [[row.cell.workers for row in block] for block in said.blocks(TWO_TESTS.rows)]
    assert found == [[1, 2, 4, 8, 1, 2], [8]]
    assert said.cells("abcd") == "a, b, c, d"
    assert said.cells("abcdefgh") == "8 cells: a, b, c, and 5 more"


def test_other_errors_stay_alone_and_one_failure_of_a_test_is_one() -> None:
    one = failed("t.py::test", 1)
    slow = [Row(cell=one.cell, verdict=Verdict(decision=Decision.REGRESSED))] * 2
    own = failed_row(one.cell, "its baseline cannot be read", "a.json: no such cell")
    other = msgspec.structs.replace(own, error=WorkloadError(reason=own.verdict.reason, detail="b.json: no such cell"))
    assert [len(block) for block in said.blocks([one, *slow, own, other, one])] == [2, 2, 1, 1]


def test_the_terminal_has_it_below_the_first_test_and_at_the_end() -> None:
    text = terminal.render(TWO_TESTS, width=160, color=False, unicode=True)
    assert text.count(f"error: {NAMES.format('')}, and 3 more\n") == 1
    assert text.count(f"      {WHY} (see FAILURES)\n") == 1
    summary = text.rpartition("t.py::test_get: 0 of 3 decided, 3 errors\n")[2]
    assert summary.count("error: 6 cells: t.py::test_put[3.14t-threads-w1], ") == summary.count(f"\n    {WHY}\n") == 1


def test_the_comment_and_the_page_have_it_once() -> None:
    text = markdown.render(TWO_TESTS)
    assert text.count(f"- {NAMES.format('`')}, and 3 more: **{WHY}**\n") == 1
    assert text.count("gcc said so") == 1
    assert "\n**2 tests**\n" in text
    assert "\n**`t.py::test_get`**\n\n- `3.14t-fork-w8`: **hung**\n" in text
    shown = page.render(TWO_TESTS).partition("What fails</h2>")[2].partition('<nav aria-labelledby="contents">')[0]
    assert shown.count(f"<strong>{WHY}</strong>") == shown.count("gcc said so") == shown.count(", and 3 more<") == 1
    assert shown.count("<h4>") == 2
    assert '<a href="#t1c0">' in shown


def test_a_command_repeats_every_test_of_it() -> None:
    assert "pytest --ftgate t.py::test_put t.py::test_get" in markdown.render(TWO_TESTS)


def test_an_annotation_has_a_line_for_it() -> None:
    lines = [line.partition("::error ")[2] for line in github.commands(TWO_TESTS, Path("/r"), Path("/r"))]
    assert [line.count("fatal error") for line in lines] == [1]
