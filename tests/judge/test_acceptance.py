"""What a commit's trailer says, and what it makes of a cell's verdict."""

from __future__ import annotations

import pytest
from report_by_hand import told

from pytest_ftgate.features import accept, xfail
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.kit.values import Interval
from pytest_ftgate.model.spec import Cell, Executor, Target, Xfail
from pytest_ftgate.model.verdict import Acceptance, Decision, MetricVerdict, Verdict
from pytest_ftgate.plugin.gate import unless_accepted
from pytest_ftgate.report import reasons

COMMIT = "1eb3b87e5d0123456789"
NODE = "tests/test_x.py::test_x[3.14t-threads-w2]"
WALL = Acceptance(cells="tests/test_x.py::test_x[3.14t-*]", metric="wall", reason="the index", commit=COMMIT)
REGRESSED, ACCEPTED, PASSED = Decision.REGRESSED, Decision.ACCEPTED, Decision.PASSED


def verdict(decision: Decision = REGRESSED, beyond: str = "", **decisions: Decision) -> Verdict:
    metrics = tuple(
        MetricVerdict(
            metric=name,
            decision=each,
            reasons=told("it is so"),
            contract="gil == off" if name == "contract" else "",
            beyond=name == beyond,
        )
        for name, each in decisions.items()
    )
    return Verdict(decision=decision, metrics=metrics, baseline="b.json", commit="abc", basis="paired", why="asked for")


# ---- trailers


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("subject\n\nFtgate-Accept: a::b wall: why\n", ["a::b wall: why"]),
        ("subject\n\nftgate-accept:a::b wall: why\nSigned-off-by: me\n", ["a::b wall: why"]),
        ("subject\n\nFtgate-Accept: a::b wall: why,\n  and more\n", ["a::b wall: why, and more"]),
        # As GitHub joins the commits of a squashed branch, and as it wraps their lines.
        (
            "subject\n\n* one\n\nFtgate-Accept: a::b wall: why\n* two\n\nFtgate-Accept: c::d\nuss: that is\nmeant\n\nm",
            ["a::b wall: why", "c::d uss: that is meant"],
        ),
        ("say Ftgate-Accept: a::b wall: why\n", []),
        ("subject\n\nFtgate-Accept: a::b wall: \x1b[31mred\u202e\x00\n", ["a::b wall: [31mred"]),
    ],
)
def test_the_trailers_of_a_message(message: str, found: list[str]) -> None:
    assert accept.trailers(message) == found


@pytest.mark.parametrize(
    ("trailer", "cells", "names"),
    [
        ("t.py::test_x[3.14t-*] wall: why: so", "t.py::test_x[3.14t-*]", {"wall": None}),
        ("t.py::test_x[3.14t-*] wall+14%: why: so", "t.py::test_x[3.14t-*]", {"wall": 0.14}),
        ("t.py::test_x[a b: c-3.14t] lock_wait: why: so", "t.py::test_x[a b: c-3.14t]", {"lock_wait": None}),
        ("t.py::test_x wall,tail+7.5%: why: so", "t.py::test_x", {"wall": None, "tail": 0.075}),
        ("t.py::test_x timer.ack_wait+120%: why: so", "t.py::test_x", {"timer.ack_wait": 1.2}),
        ("t.py::test_x timer.a+b: why: so", "t.py::test_x", {"timer.a+b": None}),
        ("t.py::test_x counter.a+5: why: so", "t.py::test_x", {"counter.a+5": None}),
        ("t.py::test_x growth+48KiB: why: so", "t.py::test_x", {"growth": 49152.0}),
        ("t.py::test_x gil_wait_p95+1.5ms: why: so", "t.py::test_x", {"gil_wait_p95": 1.5e6}),
        ("t.py::test_x errors+3: why: so", "t.py::test_x", {"errors": 3.0}),
    ],
)
def test_cells_metric_and_reason(trailer: str, cells: str, names: dict[str, float | None]) -> None:
    found = accept.parsed(trailer, COMMIT)
    assert found == tuple(
        Acceptance(cells=cells, metric=name, reason="why: so", commit=COMMIT, most=most) for name, most in names.items()
    )
    assert accept.written(cells, names, " why:\n so ") == f"Ftgate-Accept: {trailer}"


@pytest.mark.parametrize(
    ("trailer", "words"),
    [
        ("t.py::test_x wall:", "it has no reason"),
        ("t.py::test_x wall", "it names no metric"),
        ("wall: why", "it names no metric"),
        ("t.py::test_x wal: why", "did you mean 'wall'?"),
        ("t.py::test_x contract: why", "@ftgate.xfail('broken')"),
        ("t.py::test_x wall,tal: why", "did you mean 'tail'?"),
        ("t.py::test_x growth+14%: why", "'growth+14%' is not a metric"),
        ("t.py::test_x wall+2ms: why", "'wall+2ms' is not a metric"),
        ("", "it names no metric"),
    ],
)
def test_a_malformed_trailer_is_an_error_that_names_its_commit(trailer: str, words: str) -> None:
    with pytest.raises(FtgateError) as error:
        accept.parsed(trailer, COMMIT)
    assert words in str(error.value)
    assert str(error.value).startswith("commit 1eb3b87e5d: `Ftgate-Accept: ")
    assert "write `Ftgate-Accept: CELLS METRIC+N%: REASON`" in str(error.value)


def test_a_metric_that_is_named_twice_counts_once() -> None:
    assert [each.metric for each in accept.parsed("t.py::test_x wall,wall: why", COMMIT)] == ["wall"]


def test_cells_that_read_as_a_metric_are_not_written() -> None:
    with pytest.raises(FtgateError, match="use \\? for the space"):
        accept.written("t.py::test_x[a wall: b]", {"uss": None}, "why")


# ---- verdicts


def test_an_accepted_metric_makes_the_cell_accepted_with_the_reason() -> None:
    found = accept.with_accepted(verdict(wall=REGRESSED, uss=PASSED), NODE, [WALL])
    assert found.decision is ACCEPTED
    assert [each.decision for each in found.metrics] == [ACCEPTED, PASSED]
    assert reasons.of_metric(found.metrics[0]) == "accepted by commit 1eb3b87e5d: the index"
    assert found.accepted == (WALL,)
    assert (found.baseline, found.commit, found.basis, found.why) == ("b.json", "abc", "paired", "asked for")


@pytest.mark.parametrize("name", ["uss", "contract"])
def test_more_than_the_accepted_metric_still_fails(name: str) -> None:
    worse = Decision.BROKEN if name == "contract" else REGRESSED
    found = accept.with_accepted(verdict(wall=REGRESSED, **{name: worse}), NODE, [WALL])
    assert found.decision is worse
    assert found.accepted == (WALL,)
    assert [each.decision for each in found.metrics] == [ACCEPTED, worse]


@pytest.mark.parametrize(
    ("judged", "accepted"),
    [
        (verdict(wall=Decision.SUSPECT), True),
        (verdict(wall=Decision.INCONCLUSIVE, beyond="wall"), True),
        (verdict(wall=Decision.INCONCLUSIVE), False),
        (verdict(Decision.IMPROVED, wall=Decision.IMPROVED), False),
        (verdict(tail=REGRESSED), False),
        (verdict(Decision.BROKEN, contract=Decision.BROKEN), False),
        (verdict(Decision.ERROR), False),
    ],
)
def test_what_can_be_accepted(judged: Verdict, accepted: bool) -> None:
    found = accept.with_accepted(judged, NODE, [WALL])
    assert (found.decision is ACCEPTED) == accepted
    assert accepted or found == judged
    assert not (accepted and any(each.beyond for each in found.metrics))


@pytest.mark.parametrize(
    ("cells", "accepted"),
    [
        (NODE, True),
        ("tests/test_x.py::test_x", True),
        ("*::test_x[3.14t-threads-w?]", True),
        ("tests/test_x.py::test_x[3.14-*]", False),
        ("test_x", False),
        ("tests/test_x.py::test_x[3.14t-threads-w[12]]", False),  # brackets are plain text
    ],
)
def test_cells_are_a_name_or_a_pattern(cells: str, accepted: bool) -> None:
    given = Acceptance(cells=cells, metric="wall", reason="why", commit=COMMIT)
    assert (accept.with_accepted(verdict(wall=REGRESSED), NODE, [given]).decision is ACCEPTED) == accepted


@pytest.mark.parametrize(
    ("name", "field", "value", "words", "said"),
    [
        ("wall", "ratio", 1.14, "wall+15%", ""),
        ("wall", "ratio", 1.16, "wall+15%", "+15 % by commit 1eb3b87e5d, now +16 %"),
        ("wall", "ratio", 9.0, "wall", ""),
        ("ops_per_s", "ratio", 0.5, "ops_per_s+25%", "-20 % by commit 1eb3b87e5d, now -50 %"),
        ("lock_wait", "points", 0.05, "lock_wait+6%", ""),
        ("lock_wait", "points", 0.07, "lock_wait+6%", "+6 points by commit 1eb3b87e5d, now +7 points"),
        ("growth", "points", 49152, "growth+48KiB", ""),
        ("growth", "points", 50000, "growth+48KiB", "+48.0 KiB by commit 1eb3b87e5d, now +48.8 KiB"),
        ("gil_wait_p95", "points", 1.6e6, "gil_wait_p95+1.5ms", "+1.50 ms by commit 1eb3b87e5d, now +1.60 ms"),
        ("errors", "points", 4.0, "errors+3", "+3 by commit 1eb3b87e5d, now +4"),
        ("growth", "points", 2.0**40, "growth", ""),
    ],
)
def test_what_became_worse_than_was_accepted_still_fails(
    name: str, field: str, value: float, words: str, said: str
) -> None:
    seen = {field: Interval(value=value, low=value, high=value, level=0.95)}
    judged = MetricVerdict(metric=name, decision=REGRESSED, reasons=told("it is so"), **seen)  # type: ignore[arg-type]
    (given,) = accept.parsed(f"* {words}: why", COMMIT)
    less = accept.parsed("* wall+1%: why", "newer")
    found = accept.with_accepted(Verdict(decision=REGRESSED, metrics=(judged,)), NODE, [*less, given])
    assert (found.decision is ACCEPTED) == (not said)
    if said:
        assert reasons.of_metric(found.metrics[0]) == f"it is so; accepted up to {said}"
        wider = Acceptance(cells="*", metric=name, reason="why", commit="0lder", most=1e12)
        assert accept.with_accepted(found, NODE, [given, wider]).decision is ACCEPTED, "another commit accepts more"


@pytest.mark.parametrize(
    ("name", "field", "words", "value", "low", "high", "decision"),
    [
        ("wall", "ratio", "wall+15%", 1.2, 1.13, 1.3, Decision.INCONCLUSIVE),
        ("wall", "ratio", "wall+15%", 1.2, 1.16, 1.3, REGRESSED),
        ("ops_per_s", "ratio", "ops_per_s+25%", 0.7, 0.6, 0.85, Decision.INCONCLUSIVE),
        ("ops_per_s", "ratio", "ops_per_s+25%", 0.7, 0.6, 0.79, REGRESSED),
        ("lock_wait", "points", "lock_wait+16%", 0.188, 0.14, 0.3, Decision.INCONCLUSIVE),
        ("lock_wait", "points", "lock_wait+16%", 0.188, 0.17, 0.3, REGRESSED),
        ("growth", "points", "growth+48KiB", 50000, 48000, 52000, Decision.INCONCLUSIVE),
        ("growth", "points", "growth+48KiB", 50000, 49500, 52000, REGRESSED),
    ],
)
def test_the_same_change_measured_again_may_have_a_larger_estimate(
    name: str, field: str, words: str, value: float, low: float, high: float, decision: Decision
) -> None:
    """`wall+40%` was accepted where +34.5 % was seen; the next run, of the same code, saw +41.4 % (+28.5 to +55.5)."""
    seen = {field: Interval(value=value, low=low, high=high, level=0.95)}
    judged = MetricVerdict(metric=name, decision=REGRESSED, **seen)  # type: ignore[arg-type]
    (given,) = accept.parsed(f"* {words}: why", COMMIT)
    found = accept.with_accepted(Verdict(decision=REGRESSED, metrics=(judged,)), NODE, [given])
    assert found.decision is decision
    assert reasons.of_metric(found.metrics[0]).startswith("accepted up to ")


def test_the_newest_trailer_counts() -> None:
    older = Acceptance(cells="*", metric="wall", reason="older", commit="0ld")
    assert accept.with_accepted(verdict(wall=REGRESSED), NODE, [WALL, older]).accepted == (WALL,)


def test_what_was_not_accepted_may_still_fail_where_it_is_asked() -> None:
    found = accept.with_accepted(verdict(wall=REGRESSED, uss=Decision.INCONCLUSIVE), NODE, [WALL])
    assert found.decision is ACCEPTED
    assert unless_accepted(found).decision is Decision.INCONCLUSIVE
    assert "the index" not in reasons.of_cell(unless_accepted(found))
    assert unless_accepted(accept.with_accepted(verdict(wall=REGRESSED), NODE, [WALL])).decision is PASSED
    assert unless_accepted(verdict(wall=REGRESSED)) == verdict(wall=REGRESSED)


def test_a_known_failure_beside_what_is_accepted() -> None:
    cell = Cell(nodeid=NODE, target=Target(spec="3.14t", request="3.14t"), executor=Executor(kind="threads"), workers=2)
    broken = Xfail(decision=Decision.BROKEN, reason="one lock")
    found = accept.with_accepted(verdict(wall=REGRESSED, contract=Decision.BROKEN), NODE, [WALL])
    known = xfail.with_known(found, cell, [broken])
    assert (known.decision, known.accepted) == (Decision.XFAILED, (WALL,))
    mended = accept.with_accepted(verdict(wall=REGRESSED, contract=PASSED), NODE, [WALL])
    assert xfail.with_known(mended, cell, [broken]).decision is Decision.XPASSED
    regressed = Xfail(decision=REGRESSED, reason="slow")
    assert xfail.with_known(mended, cell, [regressed]).decision is ACCEPTED
