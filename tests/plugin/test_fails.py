"""Which verdicts fail a test."""

from __future__ import annotations

import pytest

from pytest_ftgate.model.verdict import Decision, Expected, MetricVerdict, Verdict
from pytest_ftgate.plugin.gate import _is_strict, fails, unless_accepted

DEFAULT = {Decision.REGRESSED, Decision.SUSPECT, Decision.BROKEN}


@pytest.mark.parametrize(
    ("decision", "beyond", "by_default", "with_beyond"),
    [
        (Decision.INCONCLUSIVE, False, False, False),
        (Decision.INCONCLUSIVE, True, False, True),
        (Decision.SUSPECT, False, True, True),
        (Decision.XFAILED, True, False, False),
    ],
)
def test_an_open_verdict_fails_where_it_is_asked(
    decision: Decision, beyond: bool, by_default: bool, with_beyond: bool
) -> None:
    metric = MetricVerdict(metric="wall", decision=Decision.INCONCLUSIVE, beyond=beyond)
    verdict = Verdict(decision=decision, metrics=(metric,))
    assert [fails(verdict, each) for each in (DEFAULT, {*DEFAULT, "beyond-effect"})] == [by_default, with_beyond]


@pytest.mark.parametrize(
    ("decision", "strict", "fails"),
    [
        (Decision.XPASSED, True, True),
        (Decision.XPASSED, False, False),
        (Decision.XPASSED, None, False),
        (Decision.XFAILED, True, False),
    ],
)
def test_what_passes_although_it_is_known_to_fail_fails_by_a_strict_mark(
    decision: Decision, strict: bool | None, fails: bool
) -> None:
    expected = None if strict is None else Expected(decision=Decision.REGRESSED, reason="slower", strict=strict)
    assert _is_strict(Verdict(decision=decision, expected=expected)) is fails


def test_what_was_not_accepted_fails_where_it_is_asked() -> None:
    accepted = MetricVerdict(metric="wall", decision=Decision.ACCEPTED)
    open_one = MetricVerdict(metric="uss", decision=Decision.INCONCLUSIVE)
    verdict = Verdict(decision=Decision.ACCEPTED, metrics=(accepted, open_one))
    assert not fails(verdict, DEFAULT)
    assert fails(verdict, {*DEFAULT, Decision.ACCEPTED})
    assert fails(unless_accepted(verdict), {*DEFAULT, Decision.INCONCLUSIVE})
