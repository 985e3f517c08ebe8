"""How many workers locks allow, from holds that are made up."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from fake_launcher import spec_of
from values import TWO, read, sample_of

from pytest_ftgate.judge import comparisons, contract_grammar, contract_judge, contracts
from pytest_ftgate.judge.figures import figures
from pytest_ftgate.judge.judge import doubted
from pytest_ftgate.judge.readers import NO_LIMIT, lock_ceilings, lock_limit
from pytest_ftgate.judge.values import Values
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.report import Row
from pytest_ftgate.model.sample import Function, Launch, LockSite, LockWaits, LongestHeld, Sample
from pytest_ftgate.model.verdict import Decision, MetricVerdict, Verdict
from pytest_ftgate.report import reasons, said

MS = 1_000_000
ROUNDS = 12
ONE = msgspec.structs.replace(TWO, nodeid="one", workers=1)


def site(line: int, held_ms: float, takers: int, *, holds: int = 1, seen: bool = True, kind: str = "Lock") -> LockSite:
    by = Function(file="/p/cache.py", line=line + 30, name="LRU.get")
    held_ns = round(held_ms * MS)
    lock = LongestHeld(held_ns=held_ns, holds=holds, by=by, takers=takers)
    longest = lock if seen else None
    return LockSite(file="/p/cache.py", line=line, kind=kind, waits_for="lock", acquisitions=holds, longest=longest)


def launches(*sites: LockSite, rounds: int = ROUNDS, calls: int = 1, ms: float = 10) -> list[Launch]:
    """Lock launches whose counted iterations took 10 ms."""
    counted_ns = round(ms * MS)
    locks = LockWaits(work_ns=MS, ops=1, counted_ops=calls, counted_ns=counted_ns, sites=sites)
    return [Launch(role="locks", order=order, locks=locks) for order in range(rounds)]


def cells(one: Sequence[Launch], two: Sequence[Launch]) -> tuple[Sample, Sample]:
    return sample_of(one, ONE), sample_of(two)


def test_the_lock_with_the_largest_share_allows_one_over_it() -> None:
    alone, together = cells(
        launches(site(4, 2.0, 1), site(9, 3.0, 1)), launches(site(4, 4.0, 2), site(9, 6.0, 2), calls=2)
    )
    assert [*lock_ceilings(alone, together).values()] == ROUNDS * [pytest.approx(10 / 3)]
    limit = lock_limit(alone, together)
    assert limit is not None
    assert limit.share == pytest.approx(0.3)
    assert (limit.place, limit.hold_ns) == ("LRU.get, /p/cache.py:39", 3 * MS)
    assert limit.longer is None


@pytest.mark.parametrize(
    ("alone", "together", "limits"),
    [
        (1, 2, True),
        (1, 1, False),  # a lock for each worker
        (2, 2, False),  # taken by a worker's own thread too
        (2, 3, True),
    ],
)
def test_a_lock_counts_if_more_take_it_than_with_one_worker(alone: int, together: int, limits: bool) -> None:
    sides = cells(launches(site(4, 6.0, alone)), launches(site(4, 6.0, together)))
    expected = 10 / 6 if limits else NO_LIMIT
    assert [*lock_ceilings(*sides).values()] == ROUNDS * [pytest.approx(expected)]
    assert (lock_limit(*sides) is not None) is limits


def test_of_one_that_no_launch_with_one_worker_took_nothing_is_said() -> None:
    sides = cells(launches(), launches(site(4, 6.0, 2)))
    assert {*lock_ceilings(*sides).values()} == {NO_LIMIT}


def test_rounds_without_a_launch_of_both_cells_have_none() -> None:
    sides = cells(launches(site(4, 6.0, 1), rounds=3), launches(site(4, 6.0, 2), rounds=2))
    assert [*lock_ceilings(*sides)] == [0, 1]
    uncounted = [msgspec.structs.replace(each, locks=LockWaits(work_ns=1, ops=1)) for each in launches()]
    assert lock_ceilings(sample_of(uncounted, ONE), sides[1]) == {}


def test_holds_that_are_short_are_not_known_unless_a_longer_one_limits_more() -> None:
    short = site(4, 0.2, 1, holds=20), site(4, 0.4, 2, holds=40)  # 10 us each; as many of 50 us: a tenth of the time
    sides = cells(launches(short[0], site(9, 0.5, 1)), launches(short[1], site(9, 0.5, 2)))
    assert lock_ceilings(*sides) == {}
    assert {*lock_ceilings(*sides, least=True).values()} == {10.0}
    limit = lock_limit(*sides)
    assert limit is not None
    assert (limit.by.line, limit.hold_ns) == (34, 10_000)
    sides = cells(launches(short[0], site(9, 2.0, 1)), launches(short[1], site(9, 2.0, 2)))
    assert {*lock_ceilings(*sides).values()} == {5.0}


def test_ends_that_were_not_seen_leave_everything_open() -> None:
    for alone, together in ((True, False), (False, True)):
        sides = cells(
            launches(site(4, 6.0, 1), site(9, 1.0, 1, seen=alone)),
            launches(site(4, 6.0, 2), site(9, 1.0, 1, seen=together)),
        )
        assert lock_ceilings(*sides, least=True) == {}
        assert lock_limit(*sides) is None


def test_a_lock_that_one_counted_call_of_several_does_not_take_is_known_by_the_others() -> None:
    waited = LockSite(file="/p/cache.py", line=4, kind="Lock", waits_for="lock", contended=3, total_ns=MS)
    two = [*launches(waited, rounds=1), *launches(site(4, 6.0, 2))[1:]]
    assert [*lock_ceilings(*cells(launches(site(4, 5.0, 1)), two)).values()] == [2.0] * ROUNDS
    never = cells(launches(site(4, 5.0, 1)), launches(waited))  # as of a Manager's lock, which is never counted
    assert lock_ceilings(*never, least=True) == {}


@pytest.mark.parametrize(
    ("held_ms", "rounds", "longer"), [(6.0, 3, None), (7.4, 3, None), (9.0, 3, 1.5), (4.0, 3, 1 / 1.5), (9.0, 2, None)]
)
def test_a_call_that_holds_it_longer_than_with_one_worker_is_told(
    held_ms: float, rounds: int, longer: float | None
) -> None:
    """Held for 6 ms in two calls, with one worker; by so few launches it may be noise."""
    sides = cells(
        launches(site(4, 6.0, 1), calls=2, rounds=rounds), launches(site(4, 2 * held_ms, 2), calls=4, rounds=rounds)
    )
    limit = lock_limit(*sides)
    assert limit is not None
    assert limit.longer == (longer and pytest.approx(longer))


def test_short_holds_that_became_long_ones_are_compared_with_the_least_that_they_allowed() -> None:
    short, long = (launches(site(4, held_ms, 1, holds=4)) for held_ms in (0.04, 3.0))
    two = launches(site(4, 3.0, 2, holds=4))
    new = msgspec.structs.replace(sample_of(two), reference=sample_of(two))
    found = comparisons.paired(read(new, one_worker=long, before=short), ["lock_ceiling"])["lock_ceiling"]
    assert found.new == ROUNDS * (pytest.approx(10 / 3),)
    assert found.reference == ROUNDS * (pytest.approx(50),)
    found = comparisons.paired(read(new, one_worker=short, before=long), ["lock_ceiling"])["lock_ceiling"]
    assert found.new == ()  # what they allow now is not known


# ---- a contract


def judged(one: Sequence[Launch], two: Sequence[Launch], text: str = "lock_ceiling >= 8") -> MetricVerdict:
    """Of a cell whose one-worker cell has these launches."""
    values: Values = read(sample_of(two), one_worker=one)
    return contract_judge.judged(contract_grammar.parse(text), values, 0.01, 0.05, ROUNDS, final=True)


def test_it_is_broken_by_a_lock_that_is_held_too_long_and_names_it() -> None:
    found = judged(launches(site(4, 3.0, 1)), launches(site(4, 6.0, 2)))
    assert found.decision is Decision.BROKEN
    row = Row(cell=TWO, verdict=Verdict(decision=Decision.BROKEN, metrics=(found,)))
    shown = said.metric_text(found, row)
    assert (shown.change, shown.now) == ("lock_ceiling >= 8", "3.33")
    assert shown.reason == (
        "LRU.get, /p/cache.py:34, holds a lock for 30 % of one worker's time, which allows 3.3 workers if each "
        "operation holds this lock as long as it did alone; other limits may come first"
    )


def test_a_busy_machine_leaves_it_in_doubt_only_where_it_is_broken_by_little() -> None:
    one, two = launches(site(4, 3.0, 1)), launches(site(4, 6.0, 2))
    for text, decision in (("lock_ceiling >= 8", Decision.BROKEN), ("lock_ceiling >= 5", Decision.INCONCLUSIVE)):
        verdict = Verdict(decision=Decision.BROKEN, metrics=(judged(one, two, text),))
        assert verdict.metrics[0].decision is Decision.BROKEN
        assert doubted(verdict, "pairs", "alone", "crowded").decision is decision


def test_it_is_met_where_no_lock_limits_and_says_so() -> None:
    for one, two in ((launches(), launches()), (launches(site(4, 9.0, 1)), launches(site(4, 9.0, 1)))):
        found = judged(one, two)
        assert found.decision is Decision.PASSED
        assert "no lock limits it that more workers take than one" in reasons.of_metric(found)


def test_of_short_holds_it_is_open_unless_they_would_meet_it_if_they_were_longer() -> None:
    many, few = (
        judged(launches(site(4, 0.02 * holds, 1, holds=holds)), launches(site(4, 0.04 * holds, 2, holds=2 * holds)))
        for holds in (40, 4)
    )
    assert (many.decision, few.decision) == (Decision.INCONCLUSIVE, Decision.PASSED)
    for found in (many, few):
        assert "LRU.get, /p/cache.py:34, holds a lock for 20 µs at a time" in reasons.of_metric(found)


def test_ends_that_were_not_seen_leave_it_open() -> None:
    found = judged(launches(site(4, 3.0, 1, seen=False)), launches(site(4, 3.0, 2)))
    assert found.decision is Decision.INCONCLUSIVE
    assert reasons.of_metric(found) == "how long its locks are held is not known: their ends were not seen"


def test_it_needs_a_cell_with_one_worker() -> None:
    contract = contract_grammar.parse("lock_ceiling >= 8")
    assert contracts.metrics_needed(contract) == {"locks"}
    with pytest.raises(contract_grammar.ContractError, match="compares with the same cell with one worker"):
        contracts.check(contract, msgspec.structs.replace(spec_of("threads"), workers=(2,)))


# ---- what is shown


def test_its_figures_are_those_of_the_table_and_of_a_line() -> None:
    two = launches(site(4, 9.6, 2), calls=2)
    values = read(sample_of(two), one_worker=launches(site(4, 3.0, 1)))
    shown = figures(values, reference=None)
    assert shown.of(Metric.LOCK_CEILING) == pytest.approx(10 / 3)
    row = Row(cell=TWO, verdict=Verdict(decision=Decision.NO_BASELINE), figures=shown)
    assert said.locks_allow(row) == (
        "its locks allow 3.3 workers: LRU.get, /p/cache.py:34; with 2, each call holds it 1.60x as long"
    )
    none = figures(read(sample_of(launches()), one_worker=launches()), reference=None)
    assert (none.lock_ceiling, said.locks_allow(msgspec.structs.replace(row, figures=none))) == (NO_LIMIT, "")
