"""The rules of the advice, on candidates by hand: ties, Pareto, weights, break-even, memory, waits, scaling."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from report_by_hand import MIB, cell, figures, of_rows

from golden import check_golden
from pytest_ftgate.features.decide import rank
from pytest_ftgate.features.decide.rank import Advice, Candidate, Estimate, break_even, estimate, of_row
from pytest_ftgate.features.decide.sentences import render, said
from pytest_ftgate.judge.readers import NO_LIMIT
from pytest_ftgate.kit.values import Interval
from pytest_ftgate.model.report import Figures, LockLimit, RoleFigures, Row, SiteFigures, WaitFigures, Weights
from pytest_ftgate.model.sample import Function, Latency, WorkloadError
from pytest_ftgate.model.verdict import Decision, Verdict

TEST = "test_a.py::test_it"
ROUNDS = 8


def candidate(executor: str, target: str = "3.14", workers: int = 8, **values: Any) -> Candidate:
    """A cell whose launches all have these values, apart by 1 %; `figures` are those without launches."""
    shown: Figures = values.pop("figures", Figures())
    fields = {name: values.pop(name) for name in ("setting", "windows") if name in values}

    def source(name: str) -> Mapping[int, float]:
        value = values.get(name)
        if value is None:
            return {}
        return {order: value * (1 + 0.01 * (order % 2)) for order in range(ROUNDS)}

    return Candidate(
        executor=executor,
        target=target,
        workers=workers,
        counted=f"w{workers}",
        setting=fields.get("setting", ""),
        windows=fields.get("windows", True),
        work=1,
        figures=shown,
        source=source,
        own_metrics=tuple(name for name in values if "." in name),
    )


def advised(*sides: Candidate, weights: Weights = ()) -> Advice:
    return rank.of_candidates(TEST, "by hand", sides, 4, weights)


# ---- the choice


def test_a_ratio_of_other_rounds_than_the_times_says_so() -> None:
    """The second cell was measured on, while the machine was twice as slow."""
    quick, late = candidate("threads", wall=100.0), candidate("fork", wall=130.0)
    known = {order: 130.0 * (1 if order < ROUNDS else 2) for order in range(2 * ROUNDS)}
    late = dataclasses.replace(late, source=lambda name: known if name == "wall" else {}, ratios={})
    (choice,) = advised(quick, late).choices
    first, other = choice.time.ranked
    assert not first.of_both
    assert other.of_both
    assert other.times is not None
    assert other.times.value == pytest.approx(1.3, rel=0.01)
    text = said(advised(quick, late)).sentences
    assert "in the rounds of both (184 ns an operation in all)" in " ".join(each.text for each in text)
    (choice,) = advised(quick, candidate("fork", wall=130.0)).choices
    assert not choice.time.ranked[1].of_both


def test_what_is_not_told_apart_does_not_matter() -> None:
    (choice,) = advised(candidate("threads", wall=100.0, pss=1e6), candidate("fork", wall=102.0, pss=1.01e6)).choices
    assert set(choice.advised) == set(choice.time.tied) == {"threads on 3.14", "fork on 3.14"}


def test_the_one_that_none_beats_is_advised() -> None:
    (choice,) = advised(candidate("threads", wall=100.0, pss=1e6), candidate("fork", wall=150.0, pss=2e6)).choices
    assert choice.advised == choice.pareto == ("threads on 3.14",)
    (fork,) = (each for each in choice.time.ranked if each.name == "fork on 3.14")
    assert fork.times is not None
    assert fork.times.low < 1.5 < fork.times.high


def test_nothing_wins_where_each_is_better_in_something() -> None:
    sides = (
        candidate("threads", wall=100.0, pss=4e6),
        candidate("fork", wall=200.0, pss=1e6),
        candidate("spawn", wall=300.0, pss=5e6),
    )
    (choice,) = advised(*sides).choices
    assert choice.advised == ()
    assert choice.pareto == ("threads on 3.14", "fork on 3.14")


@pytest.mark.parametrize(
    ("weights", "winner"),
    [
        ((("time", 1.0),), ("threads on 3.14",)),
        ((("time", 1.0), ("memory", 0.25)), ("threads on 3.14",)),
        ((("time", 1.0), ("memory", 1.0)), ("fork on 3.14",)),
        ((("memory", 1.0),), ("fork on 3.14",)),
        # 2x the time against 4x the memory at half its weight: the same product.
        ((("time", 1.0), ("memory", 0.5)), ("threads on 3.14", "fork on 3.14")),
    ],
)
def test_weights_trade_time_for_memory(weights: Weights, winner: tuple[str, ...]) -> None:
    sides = candidate("threads", wall=100.0, pss=4e6), candidate("fork", wall=200.0, pss=1e6)
    assert set(advised(*sides, weights=weights).choices[0].advised) == set(winner)


def test_memory_that_was_not_measured_beats_nothing() -> None:
    (choice,) = advised(candidate("threads", wall=100.0, pss=4e6), candidate("fork", wall=200.0)).choices
    assert choice.memory is not None
    assert [each.name for each in choice.memory.ranked] == ["threads on 3.14"]
    assert choice.pareto == ("threads on 3.14",)


def test_uss_stands_in_where_the_platform_has_no_pss() -> None:
    (choice,) = advised(candidate("threads", wall=1.0, uss=4e6), candidate("fork", wall=1.0, uss=1e6)).choices
    assert choice.memory is not None
    assert choice.memory.metric == "uss"
    assert choice.advised == ("fork on 3.14",)


def test_a_program_is_a_limit_and_no_candidate() -> None:
    (choice,) = advised(candidate("threads", wall=100.0), candidate("rust", target="", wall=10.0)).choices
    assert choice.time.tied == ("threads on 3.14",)
    assert [each.name for each in choice.limits] == ["rust"]


@pytest.mark.parametrize(("launches", "shown"), [(1, False), (2, False), (3, True)])
def test_fewer_than_three_launches_show_no_interval_and_are_told_apart(launches: int, shown: bool) -> None:
    def few(side: Candidate) -> Candidate:
        return dataclasses.replace(side, source=lambda name: dict([*side.source(name).items()][:launches]), ratios={})

    advice = advised(few(candidate("threads", wall=100.0)), few(candidate("fork", wall=200.0)))
    (time,) = (each.text for each in said(advice).sentences if each.topic == "time")
    assert "2.00x" in time
    assert ("[" in time) is shown
    assert advice.choices[0].time.tied == ("threads on 3.14",)


def test_one_launch_has_an_interval_that_borrows_the_usual_spread() -> None:
    one, eight = estimate([100.0], "wall"), estimate([100.0] * 8, "wall")
    assert one is not None
    assert eight is not None
    assert one.half is not None
    assert eight.half is not None
    assert 0.1 < one.half < 0.2
    assert eight.half < one.half / 2
    assert estimate([], "wall") is None
    assert estimate([0.0, 1.0], "wall") is None


def test_more_of_a_counter_is_better_and_zero_of_a_peak_is_least() -> None:
    more_ticks: dict[str, Any] = {"counter.ticks": 200.0, "peak.depth": 0.0}
    fewer_ticks: dict[str, Any] = {"counter.ticks": 100.0, "peak.depth": 3.0}
    sides = (
        candidate("threads", wall=1.0, **more_ticks),
        candidate("fork", wall=1.0, **fewer_ticks),
    )
    (choice,) = advised(*sides).choices
    ticks, depth = choice.own
    assert ticks.tied == depth.tied == ("threads on 3.14",)
    assert ticks.ranked[1].times is not None
    assert math.isclose(ticks.ranked[1].times.value, 2, rel_tol=0.01)
    assert [each.times for each in depth.ranked] == [None, None]


# ---- starting


def about(value: float) -> Estimate:
    return Estimate(math.log(value), 0.01)


def test_break_even_is_where_both_take_as_long() -> None:
    # 1 ms + s = 11 ms + s / 2
    even = break_even(about(11e6), about(5e7), about(1e6), about(1e8))
    assert even is not None
    assert math.isclose(even.value, 20e6, rel_tol=0.02)
    assert even.low < 20e6 < even.high
    assert break_even(about(1e8), about(1e8), about(1e6), about(1e8)) is None  # its work is no faster
    assert break_even(about(1e6), about(5e7), about(1e6), about(1e8)) is None  # its start is no slower


# ---- memory


def test_a_further_worker_is_the_slope_between_counts() -> None:
    (use,) = advised(
        candidate("fork", workers=2, wall=1.0, pss=10e6), candidate("fork", workers=8, wall=1.0, pss=40e6)
    ).memory
    assert use.workers == "w8"
    assert use.further is not None
    assert math.isclose(use.further.value, 5e6, rel_tol=0.02)
    assert use.further.low < 5e6 < use.further.high
    assert use.further_of == "counts"


def test_of_one_count_a_further_process_is_one_of_its_role() -> None:
    workers = {"workers": RoleFigures(processes=8, steady_pss=8 * MIB)}
    (use,) = advised(candidate("fork", wall=1.0, pss=40e6, figures=Figures(memory=workers))).memory
    assert use.further is not None
    assert use.further.value == MIB
    assert use.further_of == "processes"
    (unknown,) = advised(candidate("threads", wall=1.0, pss=40e6)).memory
    assert unknown.further is None


# ---- contention


def test_what_is_won_without_waits_is_bounded_by_waits_and_by_cores() -> None:
    waits = WaitFigures(gil=0.25, unattributed=0.05)
    lock = SiteFigures(
        file="a.py",
        line=7,
        kind="Lock",
        waits_for="lock",
        name="",
        share=0.2,
        contended_per_s=1,
        contended_ratio=None,
        p50_ns=1,
        p95_ns=1,
        p99_ns=1,
        max_ns=1,
        total_ns=1,
        contended=1,
    )
    shown = Figures(lock_wait=0.2, waits=waits, cores=2.0, sites=(lock,))
    (found,) = advised(candidate("threads", wall=1.0, figures=shown)).contention
    assert (found.lock, found.gil, found.unattributed) == (0.2, 0.25, 0.05)
    assert found.by_waits == pytest.approx(2)
    assert found.by_cores == pytest.approx(2)  # 4 cores, of which 2 are busy
    assert found.site == "a.py:7 Lock"


def test_waits_that_were_not_sampled_are_not_known() -> None:
    shown = Figures(lock_wait=0.2, waits=WaitFigures(unavailable="no /proc here"))
    (found,) = advised(candidate("threads", wall=1.0, figures=shown)).contention
    assert (found.lock, found.gil, found.unattributed) == (0.2, None, None)
    assert advised(candidate("threads", wall=1.0)).contention == ()


# ---- scaling


def test_workers_of_which_one_is_slower_are_named() -> None:
    both = [
        candidate(name, wall=wall, lock_wait=0.0, figures=Figures(lock_wait=0.0, observed={"imbalance": imbalance}))
        for name, wall, imbalance in (("threads", 1.0, 1.24), ("fork", 2.0, 1.8))
    ]
    text = " ".join(str(said(advised(*both))).replace("\\n", " ").split())
    assert "time of the slowest worker, divided by that of the median one: fork on 3.14 1.80x" in text
    assert "1.24x" not in text


def test_more_workers_that_were_measured_and_are_no_faster_do_not_pay() -> None:
    sides = [
        candidate("threads", workers=count, wall=wall) for count, wall in ((1, 1e6), (2, 5.5e5), (4, 5.4e5), (8, 6e5))
    ]
    (found,) = advised(*sides).scaling
    assert (found.base, found.enough) == (1, 2)
    assert [workers for workers, _ in found.points] == [2, 4, 8]
    (more,) = advised(*sides[:2]).scaling
    assert more.enough is None  # the most that were measured did pay


@pytest.mark.parametrize(
    ("ceiling", "told"),
    [
        (3.3, "more than 4 will not pay: its locks allow 3.3 workers: get, a.py:40"),
        (1.66, "more than 2 will not pay: its locks allow 1.7 workers: get, a.py:40"),
        (NO_LIMIT, "more workers may pay"),
        (None, "more workers may pay"),
    ],
)
def test_more_workers_than_its_locks_allow_will_not_pay(ceiling: float | None, told: str) -> None:
    by = LockLimit(by=Function(file="a.py", line=40, name="get"), share=0.3, hold_ns=1e6)
    known = Figures(lock_ceiling=ceiling, lock_limit=by)
    sides = [candidate("threads", workers=1, wall=1e6), candidate("threads", workers=2, wall=5.5e5, figures=known)]
    found = advised(*sides)
    text = " ".join(str(said(found)).replace("\\n", " ").split())
    assert told in text
    assert (found.scaling[0].lock_ceiling, found.scaling[0].enough) == (ceiling if ceiling != NO_LIMIT else None, None)


def test_what_measured_counts_say_is_kept_where_it_is_less_than_locks_allow() -> None:
    sides = [
        candidate("threads", workers=count, wall=wall, figures=Figures(lock_ceiling=6.0))
        for count, wall in ((1, 1e6), (2, 5.5e5), (4, 5.4e5))
    ]
    assert "more than 2 do not pay" in str(said(advised(*sides)))


def test_scaling_beside_one_worker_is_that_of_the_report() -> None:
    known = Figures(scaling=Interval(value=4.0, low=3.8, high=4.2, level=0.95))
    (found,) = advised(candidate("threads", wall=1.0, figures=known)).scaling
    assert found.base == 1
    assert found.points == ((8, known.scaling),)
    assert advised(candidate("threads", wall=1.0)).scaling == ()


# ---- from a report


def row(executor: str, decision: Decision = Decision.PASSED, reason: str = "", detail: str = "") -> Row:
    error = WorkloadError(reason=reason, detail=detail) if decision is Decision.ERROR else None
    return Row(
        cell=cell(TEST, "3.14t", executor, 8),
        verdict=Verdict(decision=decision, reason=reason),
        figures=Figures() if reason else figures(2.0, 1.0, 10, 12),
        error=error,
    )


@pytest.mark.parametrize(
    ("kind", "reason", "detail"),
    [
        ("gil", "the GIL came back on: module 'greenlet' turned it on", ""),
        ("results", "gave another result than the other cells", "it gave 3"),
        ("results", "gave 2 different results from one iteration to the next", ""),
        ("fork", "no answer for 60 s", "DeprecationWarning: This process is multi-threaded, use of fork() may lead"),
        ("crash", "was killed by SIGSEGV during a cold iteration", ""),
        ("isolated", "worker 3 was killed by SIGSEGV, at work.py:6", ""),
        ("requests", "300 of 3000 requests failed under load (300 by status)", ""),
        ("failure", "the workload raised ValueError", ""),
    ],
)
def test_hazards_are_what_the_run_recorded(kind: str, reason: str, detail: str) -> None:
    (found,) = rank.of_report(of_rows(row("threads"), row("fork", Decision.ERROR, reason, detail)))
    (hazard,) = found.hazards
    assert (hazard.kind, hazard.text, hazard.cells, hazard.of) == (kind, reason, ("3.14t-fork-w8",), 2)
    assert [each.name for each in found.choices[0].time.ranked] == ["threads on 3.14t"]


def test_requests_that_fail_are_a_hazard_of_a_server_that_was_measured() -> None:
    latency = Latency(mean_ns=1e6, p50_ns=1e6, p95_ns=2e6, p99_ns=3e6, max_ns=9e6, errors=25)
    sound, failing = (msgspec.structs.replace(figures(2.0, 1.0, 10, 12), latency=each) for each in (None, latency))
    rows = (
        msgspec.structs.replace(row("threads"), figures=sound),
        msgspec.structs.replace(row("fork"), figures=failing),
    )
    (found,) = rank.of_report(of_rows(*rows))
    (hazard,) = found.hazards
    assert (hazard.kind, hazard.text, hazard.cells) == ("requests", "25 in a window", ("3.14t-fork-w8",))
    assert len(found.choices[0].time.ranked) == 2, "it is a candidate all the same"


def test_a_cell_that_cannot_run_here_is_named_with_its_reason() -> None:
    (found,) = rank.of_report(of_rows(row("threads"), row("interpreters", Decision.UNSUPPORTED, "too old")))
    assert found.unsupported == {"too old": ("3.14t-interpreters-w8",)}


def test_a_run_that_measured_nothing_knows_nothing() -> None:
    (found,) = rank.of_report(of_rows(Row(cell=cell(TEST, "3.14", "fork", 8), verdict=row("fork").verdict)))
    assert found.choices == ()
    assert found.unknown == ("time", "memory", "contention", "scaling")


@pytest.mark.parametrize(
    ("nodeid", "executor", "workers", "place"),
    [
        (f"{TEST}[3.14t-threads-w8-10_000-a-b]", "threads", 8, ("w8", "10_000-a-b")),
        (f"{TEST}[3.14t-threads-w8]", "threads", 8, ("w8", "")),
        (f"{TEST}[3.14t-threads-wcores-x]", "threads", 2, ("wcores", "x")),
        (f"{TEST}[3.14t-fork-producer8-writer4-0.5-1]", "fork", 12, ("producer8-writer4", "0.5-1")),
        (f"{TEST}[3.14t-spawn-a1]", "spawn", 1, ("", "a1")),
    ],
)
def test_the_place_of_a_cell_is_read_from_its_label(
    nodeid: str, executor: str, workers: int, place: tuple[str, str]
) -> None:
    known = msgspec.structs.replace(cell(TEST, "3.14t", executor, workers), nodeid=nodeid)
    assert of_row(Row(cell=known, verdict=row("fork").verdict), None).place == place


# ---- tasks of a pool


def pool(
    executor: str, target: str = "3.14", *, work_us: float = 42.0, pace_us: float = 30.0, **us: float
) -> Candidate:
    """Two workers that cost a task so much, in us; all but threads pickle."""
    times = {"task_work": work_us, "task_pace": pace_us, **us}
    values = {name: 1000 * each for name, each in times.items()}
    gil = Figures(gil_enabled=target == "3.14")
    return candidate(
        executor, target, 2, figures=gil, payload=100.0 * (executor != "threads"), wall=90.0, pss=2e7, **values
    )


def test_a_pool_pays_where_its_workers_together_take_less_than_the_caller() -> None:
    fork = pool("fork", dispatch=210.0, dispatch_kib=0.9)
    first, second = advised(fork, pool("threads", dispatch=9.0)).dispatch
    assert (first.name, second.name) == ("threads on 3.14", "fork on 3.14")
    assert first.pays is None  # with the GIL tasks that compute run one after the other
    # Two workers halve the time of a task, which 210 us / 2 are won back by.
    assert second.pays is not None
    assert second.pays.low < 210_000 < second.pays.high
    assert second.pays.value == pytest.approx(211_000, rel=0.02)
    (free,) = advised(pool("threads", "3.14t", dispatch=9.0, pace_us=3.0)).dispatch
    assert free.pays is not None
    assert free.pays.value == pytest.approx(9_045, rel=0.02)
    # Results that come more slowly than that are what limits it.
    (slow,) = advised(pool("fork", dispatch=210.0, pace_us=500.0)).dispatch
    assert slow.pays is not None
    assert slow.pays.value == pytest.approx(502_500, rel=0.02)
    # Those of long tasks come as fast as two workers can: of a shorter task that says nothing.
    (long,) = advised(pool("fork", dispatch=210.0, work_us=10_000.0, pace_us=5_200.0)).dispatch
    assert long.pays is not None
    assert long.pays.value == pytest.approx(211_000, rel=0.02)
    # A worker in which a task takes as long as two calls does not pay.
    crowded = {each.name: each for each in advised(pool("spawn", dispatch=210.0, work_us=90.0), fork).dispatch}
    assert crowded["spawn on 3.14"].pays is None


def test_what_pools_cost_a_task_stands_below_the_times() -> None:
    sides = [
        pool("threads", dispatch=9.0, work_us=84.0),
        pool("fork", dispatch=210.0, dispatch_kib=0.9),
        pool("threads", "3.14t", dispatch=12.0),
        pool("interpreters", "3.14t", dispatch=300.0, dispatch_kib=0.02),
        pool("spawn", "3.14t", dispatch=340.0, dispatch_kib=0.95, pace_us=500.0),
    ]
    check_golden("advice_dispatch.txt", render([said(advised(*sides))]))


def test_a_pool_of_one_never_pays_and_without_tasks_nothing_is_said() -> None:
    alone = dataclasses.replace(pool("fork", dispatch=9.0), workers=1)
    assert advised(alone).dispatch[0].pays is None
    assert advised(candidate("fork", wall=1.0)).dispatch == ()
