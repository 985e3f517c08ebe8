"""Cells that failed in pytest's own sections: a line for each in its summary, each error once in its FAILURES."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from ..model import Decision, Row
from ..report import headlines


def set_message(report: pytest.TestReport, headline: str, place: tuple[str, int]) -> None:
    """Give a failure its message, for pytest's summary and JUnit, and its line, for --tb=line."""
    crash: Any = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = headline
        crash.path, crash.lineno = place


class Failures:
    """The reports of cells that failed, where pytest counts and prints them."""

    def __init__(self) -> None:
        self._first: dict[tuple[object, ...], pytest.TestReport] = {}
        self._others: dict[str, list[str]] = {}

    def add(self, report: pytest.TestReport, row: Row) -> None:
        """Leave out of FAILURES what stands elsewhere: the verdicts below our tables, an error that is there already.

        Its line in the summary stays.
        """
        if row.verdict.decision is Decision.ERROR:
            key = headlines.block_of(row)
            if key not in self._first:
                self._first[key] = report
                return
            self._others.setdefault(self._first[key].nodeid, []).append(report.nodeid)
        if row.verdict.decision is not Decision.XPASSED:
            report.__dict__["_pdbshown"] = True  # pytest's mark of a report that has been shown

    def finish(self, width: int) -> None:
        """Say of each error that is shown in which other cells it is the same."""
        for report in self._first.values():
            others = self._others.get(report.nodeid, [])
            section: Any = getattr(report.longrepr, "addsection", None)
            if others and section is not None:
                test = report.nodeid.partition("[")[0]
                names = [each[len(test) + 1 : -1] if each.startswith(f"{test}[") else each for each in others]
                title = f"the same in {len(others)} other cell{'' if len(others) == 1 else 's'}"
                text = headlines.few(names)
                section(title, textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False))
