"""A cell in one line, and whose error it is."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec
import pytest
import report_by_hand
from report_by_hand import cell, told
from values import iteration

from golden import check_golden
from pytest_ftgate.kit.values import Interval, Metric
from pytest_ftgate.model.report import Row
from pytest_ftgate.model.sample import Launch, Sample, WorkloadError
from pytest_ftgate.model.verdict import Decision, MetricVerdict, Reason, Verdict, Why
from pytest_ftgate.report.errors import error_text, exception, origin, rate_text, whose
from pytest_ftgate.report.said import block_of, by_test, headline, meant, severity, shortened
from pytest_ftgate.report.terminal import cell_text
from pytest_ftgate.store import names as store_names

CELL = cell("t.py::test", "3.14t", "threads", 8)
TRACE = """Traceback (most recent call last):
  File "/project/t.py", line 8, in test
    return STORE["missing"]
KeyError: 'missing'
"""
MISSING = WorkloadError(reason="worker 3: raised KeyError: 'missing'", detail=TRACE, launch=4)


def judged(metric: str, decision: Decision, value: float, **fields: object) -> MetricVerdict:
    interval = Interval(value=value, low=value - 0.1, high=value + 0.1, level=0.99)
    return MetricVerdict(metric=metric, decision=decision, ratio=interval, **fields)  # type: ignore[arg-type]


def of(decision: Decision, *metrics: MetricVerdict, **fields: Any) -> Row:
    return Row(cell=CELL, verdict=Verdict(decision=decision, metrics=metrics, **fields))


def wall(now: float | None, was: float | None, metric: Metric = Metric.WALL) -> MetricVerdict:
    return judged(metric, Decision.REGRESSED, 1.052, now=now, was=was)


def waits(value: float, **fields: Any) -> MetricVerdict:
    points = Interval(value=value, low=value - 0.03, high=value + 0.07, level=0.99)
    return MetricVerdict(metric=Metric.LOCK_WAIT, decision=Decision.REGRESSED, points=points, **fields)


def contract(text: str, *reasons: Reason, **fields: Any) -> Row:
    broken = MetricVerdict(metric=Metric.CONTRACT, decision=Decision.BROKEN, contract=text, reasons=reasons, **fields)
    return of(Decision.BROKEN, broken)


SLOWER = judged(
    Metric.WALL,
    Decision.REGRESSED,
    2.82,
    allowed=1.02,
    reasons=(Reason(code=Why.BEYOND, level=0.01),),
    now=12.3e6,
    was=4.36e6,
)
TAIL = judged(Metric.TAIL, Decision.REGRESSED, 1.6, now=28.6e6, was=10e6, wall_growth=1.79)
RULES_OUT, HELD = Reason(code=Why.RULES_OUT), Reason(code=Why.NOT_HELD, counts=(9, 9), level=0.01)
SETTLES = (RULES_OUT, Reason(code=Why.NEEDS_TO_PASS, seconds=40.0))
OPEN = (
    MetricVerdict(metric=Metric.LOCK_WAIT, decision=Decision.INCONCLUSIVE, reasons=told("the lock probe slowed it")),
    judged(
        Metric.WALL,
        Decision.INCONCLUSIVE,
        1.03,
        reasons=SETTLES,
        more=14,
        ruled_out=0.21,
        effect=1.05,
        now=12.3e6,
        was=12e6,
    ),
    judged(Metric.USS, Decision.INCONCLUSIVE, 1.01, reasons=(RULES_OUT,), ruled_out=0.09, more=2),
)
ROWS = {
    "the figure first": of(
        Decision.REGRESSED,
        SLOWER,
        waits(0.23, allowed=0.0125, now=0.31, was=0.08),
        judged(Metric.USS, Decision.PASSED, 1.0),
    ),
    "open, with what settles it": of(Decision.INCONCLUSIVE, *OPEN),
    # What it was is the figure of the other side, and never derived from the change.
    "pair by pair": of(Decision.REGRESSED, wall(12.3e6, 9e6), basis="paired"),
    "at one speed": of(Decision.REGRESSED, wall(12.3e6, 9e6), basis="stored"),
    "by recordings": of(Decision.REGRESSED, wall(9216.0, 8192.0, Metric.USS), basis="stored"),
    "as its figures differ": of(Decision.REGRESSED, wall(12.3e6, 11.6e6), basis="paired"),
    "what it was is not known": of(Decision.REGRESSED, wall(12.3e6, None), basis="paired"),
    "nothing is known": of(Decision.REGRESSED, wall(None, None), basis="paired"),
    "beyond the body": of(Decision.REGRESSED, TAIL, basis="paired"),
    "a share, pair by pair": of(Decision.REGRESSED, waits(0.052, now=0.1, was=0.0), basis="paired"),
    "a contract": contract("threads.scaling >= 1.6", HELD, now=1.12, was=1.6),
    "a contract of two cells": contract("wall < 1.5 * serial.wall", HELD, now=0.004, was=0.003),
    "a contract of a state": contract("gil == off", Reason(code=Why.GIL, counts=(2, 2), name="on")),
    "a reason": of(Decision.NO_BASELINE, reason="none yet"),
}


def test_a_cell_in_one_line_and_where_there_is_no_room() -> None:
    lines = [f"{name}\n  {headline(row)}\n  {shortened(headline(row))}\n" for name, row in ROWS.items()]
    check_golden("headlines.txt", "".join(lines))


def test_a_change_is_as_severe_as_it_is_large_in_the_direction_of_what_is_worse() -> None:
    slower, less = (
        judged(name, Decision.REGRESSED, value) for name, value in ((Metric.USS, 1.5), (Metric.SCALING, 0.5))
    )
    assert severity(of(Decision.REGRESSED, judged(Metric.WALL, Decision.PASSED, 3.0), slower)) == 0.5
    assert severity(of(Decision.REGRESSED, less)) == 1.0
    assert severity(of(Decision.REGRESSED, waits(0.23))) == 0.23
    assert severity(contract("wall < 1 s", *told("so"))) == severity(of(Decision.REGRESSED)) == 0


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("raised KeyError: 'missing'", "KeyError: 'missing'"),
        ("worker 3 (writer): raised StopIteration", "StopIteration"),
        ("raised AssertionError: assert total == 46 (total = 45)", "assert total == 46 (total = 45)"),
        ("raised AssertionError: too few", "AssertionError: too few"),
        ("hung\nfor 60 s", "hung for 60 s"),
        ("the server raised its limit", "the server raised its limit"),
    ],
)
def test_an_error_is_the_exception_itself(reason: str, shown: str) -> None:
    assert exception(WorkloadError(reason=reason)) == shown


def test_an_error_is_the_same_where_the_same_calls_raised_it() -> None:
    elsewhere = msgspec.structs.replace(MISSING, reason="raised KeyError: 'other'", launch=1)
    other_line = msgspec.structs.replace(MISSING, detail=TRACE.replace("line 8", "line 9"))
    kinds = [block_of(failed(error, None)) for error in (MISSING, elsewhere, other_line)]
    assert kinds[0] == kinds[1] != kinds[2]
    assert origin(MISSING) == ("/project/t.py", 8)
    assert origin(WorkloadError(reason="hung")) is None


def test_a_line_of_a_checkout_is_that_of_the_project() -> None:
    there = TRACE.replace("/project/", "/project/.ftgate/worktrees/a7c28424a36a/tests/")
    error = msgspec.structs.replace(MISSING, detail=there)
    assert origin(error) == ("tests/t.py", 8)
    assert '  File "tests/t.py", line 8, in test\n' in cell_text(failed(error, None))


CHECKED_OUT = "/my project/.ftgate/worktrees/a7c28424a36a/"


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("raised OSError: [Errno 2] No such file: '{}conf/a b.txt'", "OSError: [Errno 2] No such file: 'conf/a b.txt'"),
        ("raised ValueError: in /p/.ftgate/worktrees/a7c2/a.txt: bad", "ValueError: in a.txt: bad"),
        ("raised ValueError: it's not in (/p/.ftgate/worktrees/a7c2/a.txt)", "ValueError: it's not in (a.txt)"),
        ("cannot import {}a.py", "cannot import {}a.py"),  # unquoted, a path ends at a blank
        (
            "`/p/.ftgate/worktrees/a7c2` is no project, nor is /p/.ftgate/worktrees/a7c2:",
            "`.` is no project, nor is .:",
        ),
        (
            "raised OSError: no '~/p/.ftgate/worktrees/a7c2/a.txt' at ~/.ftgate/worktrees/a7c2",
            "OSError: no 'a.txt' at .",
        ),
        ("its program /p/.ftgate/worktrees/a7c2/bin/run is gone", "its program bin/run is gone"),
    ],
)
def test_a_path_in_an_error_is_that_of_the_project(reason: str, shown: str) -> None:
    error = WorkloadError(reason=reason.format(CHECKED_OUT), detail=reason.format(CHECKED_OUT))
    assert exception(error) == shown.format(CHECKED_OUT)
    assert error_text(error).removeprefix("raised ") == shown.format(CHECKED_OUT)


def failed(error: WorkloadError | None, reference: Sample | None, **fields: object) -> Row:
    of = Sample(cell=CELL, interpreter=report_by_hand.GIL, key="k", error=error, reference=reference, begun=4)
    verdict = Verdict(decision=Decision.ERROR, reason=error.reason if error else "")
    return Row(**{"cell": CELL, "verdict": verdict, "sample": of, "error": error, **fields})  # type: ignore[arg-type]


def there(**fields: object) -> Sample:
    return Sample(cell=CELL, interpreter=report_by_hand.GIL, key="k", **fields)  # type: ignore[arg-type]


MOVED = WorkloadError(reason="raised KeyError: 3", detail=TRACE.replace('/project/t.py", line 8', '/old/t.py", line 6'))


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        (there(error=MOVED), "the reference has this error, too: this change did not cause it"),
        (there(error=WorkloadError(reason="raised OSError")), "the reference has another error: OSError"),
        (there(begun=12), "1 of 4 launches here, 0 of 12 launches of the reference had this error"),
        (there(begun=1), "1 of 4 launches here, 0 of 1 launch of the reference had this error"),
        (there(), "it is unknown whether the reference has this error: it was not run"),
        (there(unsupported="no uvloop"), "it is unknown whether the reference has this error: no uvloop"),
        (None, ""),
    ],
)
def test_whose_error_it_is(reference: Sample | None, text: str) -> None:
    row = failed(MISSING, reference)
    assert whose(row) == text
    assert headline(row) == ("also in the reference: " if "did not cause" in text else "") + "KeyError: 'missing'"
    assert cell_text(row) == "\n".join(filter(None, ["worker 3:", TRACE.rstrip(), text]))


def test_other_results_are_of_no_single_launch() -> None:
    other = WorkloadError(reason="gave another result than the other cells", detail="here: 1")
    assert whose(failed(other, there(begun=3))) == "0 of 3 launches of the reference had this error"
    assert "did not cause it" in whose(failed(other, there(error=other)))


@pytest.mark.parametrize(
    ("failures", "iterations", "text"),
    [
        (0, 40_900, "0 in 40,900 iterations (below 1 in 11,000 at 95 %)"),
        (3, 41_200, "3 in 41,200 iterations (1 in 67,000 to 1 in 4,600 at 95 %)"),
        (1, 1, "in its first iteration"),
        (0, 1, "0 in 1 iteration (below 1 in 1 at 95 %)"),
    ],
)
def test_a_rate_with_its_bounds(failures: int, iterations: int, text: str) -> None:
    assert rate_text(failures, iterations) == text


def test_the_rates_of_both_sides_are_told_where_they_are_known() -> None:
    def launch(**results: int) -> Launch:
        return Launch(
            iterations=(iteration(20),) * 99,
            cold=iteration(20),
            results=tuple(results),
            result_counts=tuple(filter(None, results.values())),
        )

    # What was raised may come in any iteration: those of the reference are known.
    reference = there(begun=2, all_launches=(launch(a=3), launch(a=3)))
    raised = WorkloadError(reason="raised KeyError: 3", launch=4)
    assert whose(failed(raised, reference)) == (
        "1 of 4 launches here, 0 of 2 launches of the reference had this error: "
        "0 in 200 iterations (below 1 in 54 at 95 %)"
    )
    # Results are known of those that were compared.
    differs = WorkloadError(reason="gave 2 different results from one iteration to the next")
    row = failed(differs, reference)
    assert row.sample is not None
    here = msgspec.structs.replace(row.sample, all_launches=(launch(a=7, b=1),))
    assert whose(msgspec.structs.replace(row, sample=here)) == (
        "1 in 8 iterations (1 in 320 to 1 in 1 at 95 %) here, 0 of 2 launches of the reference had this error: "
        "0 in 6 iterations (below 1 in 2 at 95 %)"
    )
    # Of a set of results there is no rate.
    here = msgspec.structs.replace(row.sample, all_launches=(launch(a=0, b=0),))
    unknown = there(begun=2, all_launches=(launch(a=0),))
    bare = msgspec.structs.replace(row, sample=msgspec.structs.replace(here, reference=unknown))
    assert whose(bare) == "0 of 2 launches of the reference had this error"


def test_a_hang_is_the_same_whatever_line_it_was_at() -> None:
    hung = [
        WorkloadError(reason=f"did not end an iteration within 60 s (ended); worker {at} of 8 was at /{at}/t.py:3")
        for at in (3, 4)
    ]
    assert "did not cause it" in whose(failed(hung[0], there(error=hung[1])))


def test_a_stored_baseline_alone_does_not_tell() -> None:
    verdict = Verdict(decision=Decision.ERROR, commit="1a2b3c4d5e6f", baseline="baselines/t.json", basis="stored")
    assert whose(failed(MISSING, None, verdict=verdict)) == (
        "it is unknown whether the baseline's commit has this error: --ftgate-against=1a2b3c4d5e runs both"
    )
    beside_it = Verdict(decision=Decision.ERROR, commit="1a2b3c4d5e6f", basis="paired")
    assert whose(failed(MISSING, None, verdict=beside_it)) == ""
    assert whose(failed(None, None, verdict=verdict)) == ""  # the time ended before its first round


def test_a_reason_that_begins_its_own_text_is_said_once() -> None:
    error = WorkloadError(reason="cannot install it", detail="cannot install it:\n  no such package")
    assert cell_text(failed(error, None)) == error.detail


def test_a_failed_assert_says_how_to_see_it_explained() -> None:
    text = cell_text(failed(WorkloadError(reason="raised AssertionError: assert total == 46"), None), decorated=True)
    assert text.endswith("as a plain test, with pytest's own explanation: pytest 't.py::test[3.14t-threads-w8]'")


@pytest.mark.parametrize("output", ["x" * 100_000, "\n" * 100_000, "/.ftgate/worktrees/" * 5_000])
def test_long_output_is_searched_once(output: str) -> None:
    error = WorkloadError(reason="it failed", detail=output)
    assert origin(error) is None
    assert error_text(error).endswith(output.rstrip())


# ---- how what regressed is accepted


def accept_line(*rows: Row) -> list[str]:
    return shlex.split(meant(rows, by_test(rows)))


def test_all_that_regressed_is_accepted_at_once() -> None:
    """After a commit accepted the waits alone, the next run failed by the time, which had been slower all along."""
    beyond = judged(Metric.TAIL, Decision.INCONCLUSIVE, 1.4, beyond=True)
    likely = judged(Metric.USS, Decision.SUSPECT, 1.2)
    open_one = judged(Metric.SCALING, Decision.INCONCLUSIVE, 0.99)
    row = of(Decision.REGRESSED, wall(4.0, 3.0), beyond, likely, open_one, waits(0.3))
    assert accept_line(row) == ["ftgate", "accept", "test[3.14t-threads-w8]", "wall,tail,uss,lock_wait", "why"]
    assert f"      meant?     {meant([row], by_test([row]))}" in f"      {cell_text(row)}".splitlines()
    last = of(Decision.REGRESSED, waits(0.3), likely, wall(4.0, 3.0))
    assert accept_line(last)[3] == "wall,lock_wait,uss", "the time first, as everywhere"
    assert meant([of(Decision.BROKEN, open_one)], {}) == ""


def test_what_is_accepted_has_its_file_only_where_its_name_is_not_clear() -> None:
    def named(nodeid: str) -> Row:
        return msgspec.structs.replace(of(Decision.REGRESSED, wall(4.0, 3.0)), cell=cell(nodeid, "3.14t", "fork", 2))

    row = named("tests/a.py::TestA::test")
    others = {
        "tests/b.py::test_b": "TestA::test",
        "tests/b.py::TestB::test": "TestA::test",
        "tests/b.py::TestA::test": "tests/a.py::TestA::test",
    }
    for other, name in others.items():
        _, _, accepted, *_ = shlex.split(meant([row], by_test([row, named(other)])))
        assert accepted == f"{name}[3.14t-fork-w2]"
        assert list(store_names.named(accepted, [row.cell.nodeid, named(other).cell.nodeid])) == [row.cell.nodeid]


def test_cells_with_one_finding_are_accepted_by_one_line() -> None:
    rows = [
        msgspec.structs.replace(of(Decision.REGRESSED, wall(4.0, 3.0)), cell=cell(f"t.py::{test}", "3.14t", "fork", n))
        for test in ("test_a", "test_b")
        for n in (2, 4)
    ]
    named = [f"test_a[3.14t-fork-w{n}]" for n in (2, 4)]
    other = msgspec.structs.replace(rows[0], cell=cell("t.py::test_a", "3.14t", "fork", 8))
    assert shlex.split(meant(rows[:2], by_test([*rows, other]))) == ["ftgate", "accept", *named, "wall", "why"]
    assert shlex.split(meant(rows[:2], by_test(rows))) == ["ftgate", "accept", "test_a", "wall", "why"], (
        "all cells of the test"
    )
    assert accept_line(*rows) == ["ftgate", "accept", "test_a", "test_b", "wall", "why"]


def test_where_no_commit_can_say_it_the_cell_is_recorded() -> None:
    name = "t.py::test[3.14t-threads-w8]"
    row = of(Decision.REGRESSED, wall(4.0, 3.0), basis="stored")
    assert accept_line(row) == ["pytest", f"--ftgate-update={name}", name]
    assert accept_line(of(Decision.REGRESSED, wall(4.0, 3.0), basis="stored", commit="1a2b3c"))[:2] == [
        "ftgate",
        "accept",
    ]
