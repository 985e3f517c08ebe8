"""What known failures make of a verdict."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_ftgate.features.xfail import with_known
from pytest_ftgate.model.spec import Cell, Executor, Target, Xfail
from pytest_ftgate.model.verdict import Decision, MetricVerdict, Verdict

THREADS, FORK = Executor(kind="threads"), Executor(kind="processes", method="fork")
CELL = Cell(
    nodeid="test_a.py::test_it[5-3.14t-threads-w8]",
    target=Target(spec="3.14t", request="3.14t"),
    executor=THREADS,
    workers=8,
)
BROKEN, REGRESSED, PASSED = Decision.BROKEN, Decision.REGRESSED, Decision.PASSED


def expect(decision: Decision, **fields: Any) -> Xfail:
    return Xfail(decision=decision, reason="issue 7", line=4, **fields)


def verdict(decision: Decision, *, wall: Decision | None = None, contract: Decision | None = None) -> Verdict:
    judged = [MetricVerdict(metric="wall", decision=wall)] if wall else []
    held = [MetricVerdict(metric="contract", decision=contract, contract="scaling >= 2")] if contract else []
    return Verdict(decision=decision, metrics=(*judged, *held), reason="so it is")


def outcome(found: Verdict, *expectations: Xfail) -> Decision:
    return with_known(found, CELL, expectations).decision


def test_what_ends_as_expected_is_xfailed_with_the_reason() -> None:
    found = with_known(verdict(BROKEN, contract=BROKEN), CELL, [expect(BROKEN)])
    assert found.decision is Decision.XFAILED
    assert found.expected is not None
    assert (found.expected.decision, found.expected.reason, found.expected.line) == (BROKEN, "issue 7", 4)
    assert found.metrics[0].decision is BROKEN
    assert outcome(verdict(REGRESSED, wall=REGRESSED), expect(REGRESSED)) is Decision.XFAILED
    assert outcome(verdict(BROKEN, wall=Decision.IMPROVED, contract=BROKEN), expect(BROKEN)) is Decision.XFAILED
    assert outcome(verdict(BROKEN, wall=Decision.INCONCLUSIVE, contract=BROKEN), expect(BROKEN)) is Decision.XFAILED


def test_suspect_counts_as_regressed_and_a_suspect_contract_as_broken() -> None:
    suspect = Decision.SUSPECT
    assert outcome(verdict(suspect, wall=suspect), expect(REGRESSED)) is Decision.XFAILED
    assert outcome(verdict(suspect, contract=suspect), expect(BROKEN)) is Decision.XFAILED
    assert outcome(verdict(suspect, wall=suspect), expect(BROKEN)) is suspect


@pytest.mark.parametrize("ended", [PASSED, Decision.IMPROVED])
def test_what_passes_although_it_was_expected_to_fail_is_xpassed(ended: Decision) -> None:
    assert outcome(verdict(ended, wall=ended), expect(REGRESSED)) is Decision.XPASSED
    assert outcome(verdict(ended, wall=ended, contract=PASSED), expect(BROKEN)) is Decision.XPASSED
    found = with_known(verdict(ended, wall=ended), CELL, [expect(REGRESSED, strict=False)])
    assert found.expected is not None
    assert not found.expected.strict


@pytest.mark.parametrize(
    "ended",
    [Decision.UNCHANGED, Decision.NO_BASELINE, Decision.UNSUPPORTED, Decision.ERROR, Decision.INCONCLUSIVE],
)
def test_what_was_not_measured_or_not_decided_is_neither(ended: Decision) -> None:
    assert outcome(verdict(ended), expect(REGRESSED), expect(BROKEN)) is ended


def test_only_what_was_judged_can_pass() -> None:
    undecided = Decision.INCONCLUSIVE
    assert outcome(verdict(PASSED, contract=PASSED), expect(REGRESSED)) is PASSED  # no baseline: no time was judged
    assert outcome(verdict(PASSED, wall=PASSED), expect(BROKEN)) is PASSED
    assert outcome(verdict(undecided, wall=PASSED, contract=undecided), expect(BROKEN)) is undecided


def test_another_failure_than_the_expected_one_stays_one() -> None:
    both = verdict(REGRESSED, wall=REGRESSED, contract=BROKEN)
    assert outcome(both, expect(BROKEN)) is REGRESSED
    found = with_known(both, CELL, [expect(REGRESSED)])
    assert found.decision is BROKEN
    assert found.expected is None
    assert outcome(both, expect(REGRESSED), expect(BROKEN)) is Decision.XFAILED
    assert outcome(verdict(BROKEN, contract=BROKEN), expect(REGRESSED)) is BROKEN


def test_one_of_two_expected_failures_that_passes_is_xpassed() -> None:
    mended = verdict(BROKEN, wall=PASSED, contract=BROKEN)
    found = with_known(mended, CELL, [expect(BROKEN), expect(REGRESSED)])
    assert found.decision is Decision.XPASSED
    assert found.expected is not None
    assert found.expected.decision is REGRESSED


@pytest.mark.parametrize(
    ("fields", "holds"),
    [
        ({}, True),
        ({"executors": (FORK, THREADS)}, True),
        ({"executors": (FORK,)}, False),
        ({"pythons": ("3.14t",)}, True),
        ({"pythons": ("3.14",)}, False),
        ({"workers": (1, 8)}, True),
        ({"workers": (1,)}, False),
        ({"cells": ("*t-threads-w?",)}, True),
        ({"cells": ("5-*",), "workers": (8,)}, True),
        ({"cells": ("6-*",)}, False),
        ({"executors": (THREADS,), "workers": (1,)}, False),
    ],
)
def test_a_mark_is_for_the_cells_that_all_its_selectors_name(fields: dict[str, Any], holds: bool) -> None:
    expected = Decision.XFAILED if holds else BROKEN
    assert outcome(verdict(BROKEN, contract=BROKEN), expect(BROKEN, **fields)) is expected


def test_the_first_mark_of_a_cell_counts() -> None:
    second = Xfail(decision=Decision.BROKEN, reason="another", line=9)
    found = with_known(verdict(BROKEN, contract=BROKEN), CELL, [expect(BROKEN), second])
    assert found.expected is not None
    assert found.expected.reason == "issue 7"


def test_an_error_beside_a_known_failure_is_not_expected() -> None:
    judged = verdict(REGRESSED, wall=REGRESSED)
    unreadable = MetricVerdict(metric="uss", decision=Decision.ERROR)
    both = Verdict(decision=REGRESSED, metrics=(*judged.metrics, unreadable), reason="slower")
    assert outcome(both, expect(REGRESSED)) is REGRESSED
