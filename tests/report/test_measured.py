"""The JUnit form of a report, and the properties that pytest's own file has: read back by junitparser."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import report_by_hand
from junitparser import Error, Failure, JUnitXml, Properties, Skipped, TestCase
from report_by_hand import TOKENISE, figures
from values import held, sample_of, timed

from golden import check_golden
from pytest_ftgate.features import junit
from pytest_ftgate.kit.values import Interval
from pytest_ftgate.model.report import Report, Row, Table
from pytest_ftgate.model.sample import WorkloadError
from pytest_ftgate.model.spec import Cell, Executor, Target
from pytest_ftgate.model.verdict import Decision, Verdict
from pytest_ftgate.report import measured

HOSTILE = "<b>&\x1b[31m\x00\x07\x9b\ud800\ufffe]]>\u202e"


def cases(report: Report) -> dict[str, TestCase]:
    parsed = JUnitXml.fromstring(junit.render(report).encode())
    return {case.name: case for suite in parsed for case in suite}


def properties(case: TestCase) -> dict[str, str]:
    return {each.name: each.value for each in case.child(Properties)}


def hostile() -> Report:
    cell = Cell(
        nodeid=f"tests/a\x07<&\ud800.py::test_it[{HOSTILE}]",
        target=Target(spec="3.14t", request="3.14t"),
        executor=Executor(kind="threads"),
        workers=2,
    )
    error = WorkloadError(reason=f"the workload raised ValueError: {HOSTILE}", detail=f"printed {HOSTILE}")
    shown = msgspec.structs.replace(figures(1.0, 1.0, 10.0, 10.0), counters_per_s={HOSTILE: 3.0})
    row = Row(cell=cell, verdict=Verdict(decision=Decision.ERROR, reason=HOSTILE), figures=shown, error=error)
    report = report_by_hand.report()
    table = Table(title=HOSTILE, rows=(row,), reference="threads")
    return msgspec.structs.replace(report, tables=(table,), partial=HOSTILE, command=HOSTILE, commit=HOSTILE)


def test_the_whole_file() -> None:
    tree = ElementTree.fromstring(junit.render(report_by_hand.report()).encode())
    ElementTree.indent(tree)
    check_golden("junit.xml", ElementTree.tostring(tree, encoding="unicode") + "\n")


def test_what_fails_is_the_runs_to_say() -> None:
    report = msgspec.structs.replace(
        report_by_hand.report(), failing=frozenset({f"{TOKENISE}[3.14-spawn-w8]", f"{TOKENISE}[3.13-interpreters-w8]"})
    )
    results = {name: [type(each) for each in case.result] for name, case in cases(report).items()}
    assert results["test_tokenise[3.14-fork-w8]"] == [Skipped], "regressed, but that is left out"
    assert results["test_tokenise[3.14-spawn-w8]"] == results["test_tokenise[3.13-interpreters-w8]"] == [Failure]
    assert results["test_tokenise[3.14-tasks-w8]"] == [Error]


def test_totals_time_and_place() -> None:
    report = report_by_hand.report()
    rows = report.tables[0].rows
    table = msgspec.structs.replace(report.tables[0], rows=(msgspec.structs.replace(rows[0], line=17), *rows[1:]))
    parsed = JUnitXml.fromstring(junit.render(msgspec.structs.replace(report, tables=(table,))).encode())
    assert (parsed.tests, parsed.failures, parsed.errors, parsed.skipped) == (len(rows), 3, 1, 3)
    suite = next(iter(parsed))
    assert (suite.name, suite.hostname) == ("tests/test_words.py::test_tokenise, 8 workers", "x86_64-epyc7763-2-9f3c")
    case = next(iter(suite))
    assert (case._elem.get("file"), case._elem.get("line")) == ("tests/test_words.py", "17")
    # Two launches of a cold and two other iterations, and one of the memory probe, of 1.83 ms each.
    assert case.time == 0.016
    assert sum(each.time for each in suite) == parsed.time == 0.016


@pytest.mark.parametrize(("fields", "suites"), [({}, 3), ({"tables": ()}, 1)])
def test_every_suite_of_a_partial_report_says_so_and_without_cells_there_is_one(
    fields: dict[str, Any], suites: int
) -> None:
    report = msgspec.structs.replace(report_by_hand.report(), partial="Ctrl-C: 3 of 20 cells were not run", **fields)
    parsed = list(JUnitXml.fromstring(junit.render(report).encode()))
    assert [{each.name: each.value for each in suite.properties()}["ftgate.partial"] for suite in parsed] == [
        "Ctrl-C: 3 of 20 cells were not run"
    ] * suites


def test_text_of_others_never_breaks_the_xml() -> None:
    ((name, case),) = cases(hostile()).items()
    for text in (name, case.result[0].message, case.result[0].text, properties(case)["ftgate.reason"]):
        assert "<b>&" in text
        assert "\\ud800#xFFFE]]>" in text
        assert not {"\x00", "\x07", "\x1b", "\x9b"} & set(text)
    assert properties(case)["ftgate.wall"] == "1.00 ms [0.98, 1.02] (95 %)"


def test_a_figure_without_an_interval_has_that_of_its_median_over_launches() -> None:
    sample = sample_of(
        [timed(0, [100])], memory=[held(order, uss) for order, uss in enumerate((10, 30, 20, 50, 40, 60))]
    )
    row = Row(cell=sample.cell, verdict=Verdict(decision=Decision.PASSED), sample=sample)
    found = {each.column: each for each in measured.measured(row)}
    # The sign test's interval of six values is from the least to the greatest, at 1 - 2 / 2**6.
    assert found["uss_bytes"].estimate == Interval(value=35.0, low=10.0, high=60.0, level=0.96875)
    assert found["wall_ns"].has_interval is False
    assert dict(measured.properties(row))["ftgate.uss"] == "35 B [10.0, 60.0] (96.8 %)"
