"""docs/verdicts.md: each verdict has a section, whose example is what a terminal shows."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import report_by_hand
from report_by_hand import cell, figures, judged, of_rows

from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.report import Figures, Row
from pytest_ftgate.model.verdict import Decision, Expected, MetricVerdict, Reason, Verdict, Why
from pytest_ftgate.plugin.gate import LETTERS
from pytest_ftgate.report import terminal

PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"
BRANCH = "main (1a2b3c4d5e)"
THREADS = cell(report_by_hand.TOKENISE, "3.14t", "threads", 8)


def of(decision: Decision, *judgements: MetricVerdict, **fields: object) -> Row:
    """A row of threads, compared with a branch."""
    verdict = Verdict(
        decision=decision,
        metrics=judgements,
        baseline=BRANCH,
        basis="paired",
        why="--ftgate-against main",
        **fields,  # type: ignore[arg-type]
    )
    measured = decision not in (Decision.UNCHANGED, Decision.NOT_MEASURED)
    return Row(cell=THREADS, verdict=verdict, figures=figures(1.832, 1.0, 25.2, 25.2) if measured else Figures())


def contract(decision: Decision) -> MetricVerdict:
    text = "threads.scaling >= 1.6"
    return MetricVerdict(metric=Metric.CONTRACT, decision=decision, contract=text, now=1.12, was=1.6)


KNOWN = Expected(decision=Decision.BROKEN, reason="GH-12: one lock for all shards", line=7)
OWN = {
    Decision.SUSPECT: of(
        Decision.SUSPECT,
        judged(Metric.WALL, Decision.SUSPECT, 1.09, 0.06, 0.0, Reason(code=Why.SETTLES)),
    ),
    Decision.UNCHANGED: of(
        Decision.UNCHANGED, reason="not measured: nothing that it runs or reads differs at main (1a2b3c4d5e)"
    ),
    Decision.NOT_MEASURED: of(
        Decision.NOT_MEASURED,
        reason="the 3 min of the test ended before its turn came: 6 min would do, increase --ftgate-test-time",
    ),
    Decision.RECORDED: Row(
        cell=THREADS, verdict=Verdict(decision=Decision.RECORDED), figures=figures(1.832, 1.0, 25.2, 25.2)
    ),
    Decision.XFAILED: of(Decision.XFAILED, contract(Decision.BROKEN), expected=KNOWN),
    Decision.XPASSED: of(Decision.XPASSED, contract(Decision.PASSED), expected=KNOWN),
}
"""Rows of verdicts that the report by hand does not have."""


UPDATES = {
    Decision.RECORDED: (
        "1 recorded in baselines/: git add baselines",
        f"recorded {THREADS.nodeid}: wall 1.83 ms, uss 25.2 MiB (new)",
        "next: commit them; pytest --ftgate then compares each change with that commit",
    )
}


def example(decision: Decision) -> str:
    """What a terminal shows of a cell with this verdict: its test's table, and what is said before the last lines."""
    row = OWN.get(decision)
    tables = report_by_hand.report().tables
    row = row or next(row for table in tables for row in table.rows if row.verdict.decision is decision)
    report = of_rows(row, title=row.cell.nodeid.partition("[")[0], updates=UPDATES.get(decision, ()))
    text = terminal.render(report, width=88, color=False, unicode=True)
    return text[text.index(report.tables[0].title) : text.index("\n1 cell in ")].rstrip() + "\n"


@pytest.mark.parametrize("decision", Decision)
def test_its_section_has_what_a_terminal_shows(decision: Decision) -> None:
    page = PAGE.read_text("utf-8")
    (section,) = re.findall(rf"^## {decision.value}\n.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if os.environ.get("WRITE_GOLDEN"):
        written = re.sub(r"```text\n.*?```", lambda _: f"```text\n{example(decision)}```", section, flags=re.DOTALL)
        PAGE.write_text(page.replace(section, written), "utf-8")
        section = written
    assert f"```text\n{example(decision)}```" in section


def test_the_table_has_each_outcome_and_the_sections_the_order_of_reports() -> None:
    page = PAGE.read_text("utf-8")
    names = [each.value for each in Decision]
    assert re.findall("^## (.*)", page, re.MULTILINE) == names
    listed = re.findall(r"^\| \[([\w ]+)\]\(#([\w-]+)\) \| (\w+) `(.)` \|", page, re.MULTILINE)
    assert listed == [
        (each.value, each.value.replace(" ", "-"), each.outcome, LETTERS[each.outcome]) for each in Decision
    ]
