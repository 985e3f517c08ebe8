"""What every form says of a whole run: how many cells were decided, and when that is too few."""

from __future__ import annotations

import msgspec
import pytest
import report_by_hand
from report_by_hand import of_rows

from pytest_ftgate.kit.values import Interval
from pytest_ftgate.model.report import Row, Shard, Shortfall
from pytest_ftgate.model.verdict import Decision, MetricVerdict, Reason, Verdict, Why
from pytest_ftgate.report import said, terminal


def rows(decision: Decision, count: int, basis: str = "paired") -> list[Row]:
    of = report_by_hand.cell("t.py::test", "3.14t", "threads", 1)
    return [Row(cell=of, verdict=Verdict(decision=decision, basis=basis))] * count  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("decided", "left", "text"),
    [
        (0, 7, "nothing was decided: 0 of 7 compared cells"),
        (0, 1, "nothing was decided: 0 of 1 compared cell;"),
        (1, 19, "less than half was decided: 1 of 20 compared cells"),
        (3, 4, "less than half was decided: 3 of 7 compared cells"),
        (1, 1, ""),
        (4, 3, ""),
        (1, 0, ""),
        (0, 0, ""),
    ],
)
def test_less_than_half_is_too_few(decided: int, left: int, text: str) -> None:
    new = rows(Decision.NO_BASELINE, 50, "") + rows(Decision.INCONCLUSIVE, 50, "")
    report = of_rows(*rows(Decision.PASSED, decided), *rows(Decision.INCONCLUSIVE, left), *new)
    found = "; ".join(said.undecided(report))
    assert found.startswith(text)
    assert bool(found) == bool(text)
    assert said.all_decided(report) == (decided > left == 0)


@pytest.mark.parametrize(("launches", "beyond", "fails"), [(1, True, True), (2, True, False), (1, False, False)])
def test_a_change_that_one_launch_shows_is_not_green(launches: int, beyond: bool, fails: bool) -> None:
    (row,) = rows(Decision.INCONCLUSIVE, 1)
    judged = MetricVerdict(metric="wall", decision=Decision.INCONCLUSIVE, launches=launches, beyond=beyond)
    row = msgspec.structs.replace(row, verdict=msgspec.structs.replace(row.verdict, metrics=(judged,)))
    found = "; ".join(said.undecided(of_rows(*rows(Decision.PASSED, 9), row)))
    text = f"one launch is worse than the effect, and decides nothing: {row.cell.nodeid}; give the tests more time"
    assert found.startswith(text) if fails else found == ""


def test_it_says_what_time_would_do() -> None:
    (row,) = rows(Decision.INCONCLUSIVE, 1)
    times = [
        Shortfall(rounds=2, needed=7, cells=8, option="--ftgate-test-time", given_s=30.0, wanted_s=wanted)
        for wanted in (60.0, 180.0)
    ]
    report = of_rows(*(msgspec.structs.replace(row, shortfall=each) for each in times))
    assert "use --ftgate-test-time=3m or fewer cells" in said.undecided(report)[1]
    assert "more rounds would hardly settle it: give the body more work" in said.undecided(of_rows(row))[1]
    wall = MetricVerdict(metric="wall", decision=Decision.INCONCLUSIVE, more=14)
    open_one = msgspec.structs.replace(row, verdict=msgspec.structs.replace(row.verdict, metrics=(wall,)))
    assert said.undecided(of_rows(open_one))[1] == "give the tests more time (--ftgate-test-time)"


def test_of_cells_that_stored_figures_left_open_it_says_what_decides_them() -> None:
    (row,) = rows(Decision.INCONCLUSIVE, 1)
    wall = MetricVerdict(
        metric="wall",
        decision=Decision.INCONCLUSIVE,
        ratio=Interval(value=1.0, low=0.8, high=1.25, level=0.95),
        more=0,
        reasons=(Reason(code=Why.MORE_DAYS, counts=(2,)), Reason(code=Why.PREDICTED_OPEN, counts=(1,), limit=1.28)),
    )
    verdict = msgspec.structs.replace(row.verdict, basis="stored", metrics=(wall,))
    found = "; ".join(said.undecided(of_rows(msgspec.structs.replace(row, verdict=verdict))))
    assert "0 of 1 compared cell; record on 2 more days (pytest --ftgate-update=all); failed by" in found


def test_of_cells_that_lack_time_the_one_that_lacks_most_is_said() -> None:
    (row,) = rows(Decision.INCONCLUSIVE, 1)
    short = [
        Shortfall(rounds=done, needed=done + 14, cells=2, option="--ftgate-test-time", given_s=30.0, wanted_s=wanted)
        for done, wanted in ((10, 60.0), (12, 120.0))
    ]
    cells = [msgspec.structs.replace(row, shortfall=each) for each in short]
    text = (
        "use --ftgate-test-time=2m or fewer cells: 30 s allow 12 rounds of these 2 cells, about 26 are needed to decide"
    )
    decided = of_rows(*rows(Decision.PASSED, 2), *cells)
    assert said.shortfalls(cells) == [text]
    nothing = of_rows(*cells)
    assert text in "; ".join(said.undecided(nothing))
    printed = [terminal.render(each, width=200, color=False, unicode=True) for each in (decided, nothing)]
    assert [(each.count(text), f"budget     {text}" in each) for each in printed] == [(1, True), (1, False)], (
        "said once, as the reason why the run fails"
    )


def test_who_did_not_ask_and_who_has_seen_a_part_is_told_nothing() -> None:
    left = rows(Decision.INCONCLUSIVE, 3)
    shard = Shard(part=1, parts=2, planned=(), places=(), alpha=0.01, hypotheses=1, own=1)
    for fields in ({"undecided_fails": False}, {"partial": "interrupted"}, {"shard": shard}):
        assert said.undecided(of_rows(*left, **fields)) == ()


@pytest.mark.parametrize("decision", Decision)
def test_nothing_regressed_is_never_said_alone(decision: Decision) -> None:
    found = said.result(of_rows(*rows(decision, 2)))
    assert not found.startswith("nothing regressed")
    assert ("regressed" in found) <= found.startswith("2 of 2 decided, ")


def test_the_headline_is_the_worst_cell_with_its_function() -> None:
    report = report_by_hand.report()
    assert said.first_line(report) == "test_tokenise[3.14-fork-w8]: wall +31.2 %, in iterencode, json/encoder.py:204"
    by_test = [said.first_line(report, table.rows) for table in report.tables]
    assert by_test[1:] == [
        "test_lookup[3.14t-threads-w8]: lock_wait +4.1 points, at src/words/cache.py:12 Lock",
        "nothing was compared",
    ]
    slower = [row for row in report.rows if row.explanation and row.explanation.cause("time")]
    assert said.first_line(report, slower) == (
        "test_tokenise[3.14-fork-w8]: wall +31.2 %, in iterencode, json/encoder.py:204"
    )
    assert said.first_line(of_rows(*rows(Decision.PASSED, 2))) == "2 of 2 decided, nothing regressed"


def test_the_headline_has_an_error_whole() -> None:
    why = "main (1eb3b87e5d): cannot install -e .: gcc: not found"
    verdict = Verdict(decision=Decision.ERROR, reason=why)
    (failed,) = (msgspec.structs.replace(row, verdict=verdict) for row in rows(Decision.ERROR, 1))
    assert said.first_line(of_rows(failed)).endswith(f": {why}")
    left = of_rows(*rows(Decision.INCONCLUSIVE, 2))
    assert said.first_line(left) == "nothing was decided: 0 of 2 compared cells"


def test_what_was_measured_and_against_what_is_said_once() -> None:
    report = report_by_hand.report()
    assert said.about(report) == "words, branch faster-split at 1a2b3c4d5e, against commit 1a2b3c4d5e"
    (row,) = rows(Decision.PASSED, 1)
    verdict = msgspec.structs.replace(row.verdict, baseline="main (2b3c4d5e6f)", commit="2b3c4d5e6f70")
    pair = of_rows(msgspec.structs.replace(row, verdict=verdict), row, project="", branch="")
    assert said.about(pair) == "commit 1a2b3c4d5e, against main (2b3c4d5e6f)"
    elsewhere = msgspec.structs.replace(verdict, baseline="baselines/t", commit="3c4d", basis="stored")
    mixed = of_rows(*(msgspec.structs.replace(row, verdict=each) for each in (verdict, elsewhere)), commit="")
    assert said.about(mixed) == "words, branch faster-split"
