"""What every form says of a whole run: how many cells were decided, and when that is too few."""

from __future__ import annotations

import msgspec
import pytest
import report_by_hand

from pytest_ftgate.model import Decision, Report, Row, Shard, Shortfall, Table, Verdict
from pytest_ftgate.report import findings


def report_of(*rows: Row, **fields: object) -> Report:
    table = Table(title="t.py::test", rows=rows, reference="")
    changed = {"tables": (table,), "failing": None, **fields}
    return msgspec.structs.replace(report_by_hand.report(), **changed)


def rows(decision: Decision, count: int, basis: str = "paired") -> list[Row]:
    of = report_by_hand.cell("t.py::test", "3.14t", "threads", 1)
    return [Row(cell=of, verdict=Verdict(decision=decision, basis=basis))] * count  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("decided", "left", "said"),
    [
        (0, 7, "nothing was decided: 0 of 7 compared cells"),
        (0, 1, "nothing was decided: 0 of 1 compared cell;"),
        (1, 19, "almost nothing was decided: 1 of 20 compared cells"),
        (1, 9, ""),
        (1, 0, ""),
        (0, 0, ""),
    ],
)
def test_fewer_than_one_in_ten_is_too_few(decided: int, left: int, said: str) -> None:
    new = rows(Decision.NO_BASELINE, 50, "") + rows(Decision.INCONCLUSIVE, 50, "")
    report = report_of(*rows(Decision.PASSED, decided), *rows(Decision.INCONCLUSIVE, left), *new)
    found = findings.undecided(report)
    assert found.startswith(said)
    assert bool(found) == bool(said)
    assert findings.all_decided(report) == (decided > left == 0)


def test_it_says_what_time_would_do() -> None:
    (row,) = rows(Decision.INCONCLUSIVE, 1)
    times = [
        Shortfall(rounds=2, needed=7, cells=8, option="--ftgate-test-time", given_s=30.0, wanted_s=wanted)
        for wanted in (60.0, 180.0)
    ]
    report = report_of(*(msgspec.structs.replace(row, shortfall=each) for each in times))
    assert "use --ftgate-test-time=3m or fewer cells" in findings.undecided(report)
    assert "--ftgate-test-time" in findings.undecided(report_of(row))
    (elsewhere,) = rows(Decision.INCONCLUSIVE, 1, "portable")
    said = findings.undecided(report_of(elsewhere, elsewhere))
    assert "compare with a commit (--ftgate-against)" in said
    assert "--ftgate-test-time" not in said, "it would not help"
    assert "--ftgate-test-time" in findings.undecided(report_of(elsewhere, row))


def test_who_did_not_ask_and_who_has_seen_a_part_is_told_nothing() -> None:
    left = rows(Decision.INCONCLUSIVE, 3)
    shard = Shard(part=1, parts=2, planned=(), places=(), alpha=0.01, hypotheses=1, own=1)
    for fields in ({"undecided_fails": False}, {"partial": "interrupted"}, {"shard": shard}):
        assert findings.undecided(report_of(*left, **fields)) == ""


@pytest.mark.parametrize("decision", Decision)
def test_nothing_regressed_is_never_said_alone(decision: Decision) -> None:
    said = findings.result(report_of(*rows(decision, 2)))
    assert not said.startswith("nothing regressed")
    assert ("regressed" in said) <= said.startswith("2 of 2 decided, ")
