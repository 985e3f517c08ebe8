"""The figures of a row, from launches written by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from report_by_hand import FREE_THREADED, cell
from values import held, iteration, launch, read, sample_of

from pytest_ftgate.judge import decide, metrics
from pytest_ftgate.judge import figures as figures_of
from pytest_ftgate.judge.readers import (
    TREE,
    busiest_process,
    gil_shares,
    gil_wait_histogram,
    gil_wait_values,
    shares_by_order,
)
from pytest_ftgate.kit.values import Interval, Metric
from pytest_ftgate.model.report import Figures, RoleFigures, WaitFigures
from pytest_ftgate.model.sample import (
    Barrier,
    Footprint,
    Latency,
    Launch,
    LockHolder,
    LockSite,
    LockWaits,
    MemoryPoint,
    Sample,
    SamplingCost,
    Timer,
    Waits,
    iteration_value,
)
from pytest_ftgate.runner.locks.sites import bucket_of
from pytest_ftgate.stats import moderated, speedup

MS = 1_000_000


def window(order: int, *windows: tuple[int, float], **fields: object) -> Launch:
    """A launch of half-second windows, each with its operations and rate."""
    iterations = tuple(iteration(500, ops=ops, rate=rate) for ops, rate in windows)
    return Launch(order=order, hash_seed=order, started_at="", window_ns=500 * MS, iterations=iterations, **fields)  # type: ignore[arg-type]


def sample(
    *launches: Launch, executor: str = "threads", workers: int = 2, body: str = "worker", **fields: Any
) -> Sample:
    of = msgspec.structs.replace(cell("t.py::test", "3.14t", executor, workers), body=body)
    return sample_of(launches, of, interpreter=FREE_THREADED, **fields)


def figures(of: Sample, *, reference: Sample | None = None, one_worker: Sequence[Launch] = ()) -> Figures:
    return figures_of.figures(read(of, one_worker=one_worker), reference=None if reference is None else read(reference))


def test_nothing_measured_gives_no_figures() -> None:
    assert figures(sample()) == Figures()
    assert figures(sample(), reference=sample()) == Figures()
    assert figures(sample(launch(0)), reference=sample(launch(0, 1.0))) == Figures()


def test_wall_is_the_geometric_mean_of_floors_with_its_interval() -> None:
    shown = figures(sample(launch(0, 1, 1, 1, 9), launch(1, 4, 4, 4, 9), launch(2, 2, 2, 2, 9)))
    assert shown.wall_ns is not None
    assert shown.wall_ns.value == pytest.approx(2 * MS)
    assert shown.wall_ns.low < shown.wall_ns.value < shown.wall_ns.high
    assert shown.wall_ns.level == 0.95


def test_loops_divide_the_wall_and_the_phases() -> None:
    shown = figures(sample(launch(0, 10, loops=10)))
    assert shown.wall_ns is not None
    assert shown.wall_ns.value == pytest.approx(1 * MS)
    assert shown.start_ns == pytest.approx(0.2 * MS)
    assert shown.join_ns == pytest.approx(0.05 * MS)
    assert shown.work_ns == pytest.approx(0.75 * MS)


def test_the_start_of_workers_that_are_kept_is_one_value_of_a_launch() -> None:
    kept = [launch(order, 10, 10, loops=10, start_ns=start * MS, join_ns=MS) for order, start in enumerate((5, 9, 7))]
    assert read(sample(*kept)).of("start") == {0: 5 * MS, 1: 9 * MS, 2: 7 * MS}
    shown = figures(sample(*kept))
    assert (shown.start_ns, shown.join_ns) == (7 * MS, MS)
    assert shown.wall_ns is not None
    assert shown.wall_ns.value == pytest.approx(1 * MS)


def test_cold_turn_has_one_loop() -> None:
    one = Launch(order=0, hash_seed=0, started_at="", loops=10, cold=iteration(3), iterations=(iteration(10),))
    assert figures(sample(one)).cold_ns == pytest.approx(3 * MS)


def test_ratio_pairs_launches_by_order_and_is_geometric() -> None:
    changed = sample(launch(0, 2), launch(1, 8), launch(5, 100))
    against = sample(launch(1, 1), launch(0, 1), launch(7, 1))
    assert figures(changed, reference=against).ratio == pytest.approx(4.0)


def test_a_ratio_that_is_not_that_of_the_times_says_of_how_many_rounds_it_is() -> None:
    """A cell that was decided early has no part in rounds in which the machine was slower."""
    early = sample(launch(0, 2), launch(1, 2))
    late = sample(launch(0, 3), launch(1, 3), launch(2, 6), launch(3, 6))
    shown = figures(late, reference=early)
    assert shown.wall_ns is not None
    assert shown.wall_ns.value == pytest.approx(math.sqrt(18) * MS)
    assert shown.ratio == pytest.approx(1.5)
    assert shown.ratio_rounds == 2
    same = figures(sample(launch(0, 3), launch(1, 3), launch(2, 3)), reference=early)
    assert same.ratio == pytest.approx(1.5)
    assert same.ratio_rounds is None


def test_ratio_to_itself_is_one_and_to_strangers_none() -> None:
    one = sample(launch(0, 2, 3), launch(1, 4, 5))
    assert figures(one, reference=one).ratio == pytest.approx(1.0)
    assert figures(one, reference=sample(launch(7, 2))).ratio is None
    assert figures(one).ratio is None


def test_control_ratio_is_per_loop_on_both_sides() -> None:
    burnt = sample(launch(0, 6, loops=2), launch(1, 6, loops=2), control=(launch(0, 1), launch(1, 4, loops=4)))
    assert figures(burnt).control_ratio == pytest.approx(3.0)


def test_a_duration_gives_the_time_of_an_operation() -> None:
    fast = sample(window(0, (500, 1000.0), (520, 1040.0)), window(1, (500, 1000.0), (510, 1020.0)))
    slow = sample(window(0, (50, 100.0), (52, 104.0)), window(1, (50, 100.0), (51, 102.0)))
    shown = figures(slow, reference=fast)
    assert shown.wall_ns is not None
    assert 1e9 / 104 < shown.wall_ns.value < 1e9 / 100
    assert shown.ratio == pytest.approx(10.0)
    assert shown.ops_per_s == pytest.approx(1e9 / shown.wall_ns.value)
    assert shown.start_ns == 100 * MS


def test_iterations_with_a_rate_stay_iterations() -> None:
    steady = Launch(
        order=0, hash_seed=0, started_at="", iterations=(iteration(4, rate=2000.0), iteration(5, rate=1600.0))
    )
    shown = figures(sample(steady))
    assert shown.wall_ns is not None
    assert 4 * MS <= shown.wall_ns.value <= 5 * MS
    assert shown.ops_per_s == pytest.approx(8e9 / shown.wall_ns.value)


@pytest.mark.parametrize("loops", [1, 3])
def test_operations_per_second_are_the_calls_of_all_workers_over_the_wall_time(loops: int) -> None:
    """Start and join are in both, whatever the workers' own spans say: two calls in 16.2 ms are 123 a second."""
    walls = tuple(iteration(16.2 * loops, ops=2 * loops, rate=496.0) for _ in range(4))
    launches = (Launch(order=0, iterations=walls, loops=loops), Launch(order=1, iterations=walls, loops=loops))
    shown = figures(sample(*launches))
    assert shown.wall_ns is not None
    assert shown.wall_ns.value == pytest.approx(16.2 * MS)
    assert shown.ops_per_s == pytest.approx(2 / 16.2e-3)


def test_turn_value_without_a_value_is_nan_and_left_out() -> None:
    assert math.isnan(iteration_value(iteration(1, rate=0.0), 1, per_op=True))
    assert math.isnan(iteration_value(iteration(0), 1, per_op=False))
    assert iteration_value(iteration(6), 3, per_op=False) == 2 * MS
    assert figures(sample(launch(0, 0, 2))).wall_ns == Interval(value=2 * MS, low=2 * MS, high=2 * MS, level=0.0)


def test_cores_is_cpu_over_wall() -> None:
    busy = Launch(order=0, hash_seed=0, started_at="", iterations=(iteration(1, cores=1.0), iteration(3, cores=2.0)))
    assert figures(sample(busy)).cores == pytest.approx(7 / 4)


def test_memory_is_the_median_of_medians_and_the_peak_the_largest() -> None:
    shown = figures(sample(memory=(held(0, 10, 20, 90), held(1, 30, 30), held(2, 40))))
    assert (shown.uss_bytes, shown.uss_peak_bytes) == (30, 90)
    assert (shown.pss_bytes, shown.rss_bytes) == (30, 90)
    assert shown.wall_ns is None


def test_memory_that_the_platform_has_not_is_none() -> None:
    shown = figures(sample(memory=(held(0, None, None, pss=None), held(1))))
    assert (shown.uss_bytes, shown.uss_peak_bytes, shown.pss_bytes) == (None, None, None)
    assert shown.rss_bytes == 3


def test_counters_are_per_second_of_the_measured_window() -> None:
    counted = window(0, (100, 400.0), (120, 480.0), counters={"inserts": 50.0})
    silent = window(1, (100, 400.0), (120, 480.0), counters={})
    assert figures(sample(counted)).counters_per_s == {"inserts": pytest.approx(100.0)}
    assert figures(sample(counted, silent)).counters_per_s == {"inserts": pytest.approx(50.0)}


def test_counters_without_a_rate_use_the_work_time() -> None:
    counted = launch(0, 100, counters={"words": 75.0})
    assert figures(sample(counted)).counters_per_s == {"words": pytest.approx(1000.0)}
    assert figures(sample(launch(0, counters={"words": 75.0}))).counters_per_s == {}


def test_timers_show_their_mean() -> None:
    first = launch(0, 1, timers={"lock": Timer(count=4, total_ns=400, max_ns=300)})
    second = launch(
        1, 1, timers={"lock": Timer(count=1, total_ns=300, max_ns=300), "idle": Timer(count=0, total_ns=0, max_ns=0)}
    )
    assert figures(sample(first, second)).timers_mean_ns == {"lock": 200.0}


def answered(order: int, *p50_ms: float, errors: int = 0) -> Launch:
    """A launch of a server: a window for each median, with other percentiles that follow from it."""
    windows = window(order, *((100, 200.0) for _ in p50_ms))
    iterations = tuple(
        msgspec.structs.replace(
            each,
            latency=Latency(
                mean_ns=1.1 * p50 * MS,
                p50_ns=p50 * MS,
                p95_ns=2 * p50 * MS,
                p99_ns=3 * p50 * MS,
                max_ns=9 * p50 * MS,
                errors=errors,
            ),
        )
        for each, p50 in zip(windows.iterations, p50_ms, strict=True)
    )
    return msgspec.structs.replace(windows, iterations=iterations)


def test_latency_of_a_server_is_the_median_of_medians_the_longest_and_the_errors_are_of_all() -> None:
    found = figures(sample(answered(0, 1, 2, 30), answered(1, 3, 4, 5, errors=2))).latency
    middle = Latency(mean_ns=3.3 * MS, p50_ns=3 * MS, p95_ns=6 * MS, p99_ns=9 * MS, max_ns=270 * MS, errors=6)
    assert found is not None
    assert msgspec.structs.asdict(found) == pytest.approx(msgspec.structs.asdict(middle))
    assert figures(sample(launch(0, 5))).latency is None


def test_the_gil_is_on_if_any_launch_had_it() -> None:
    free, held = launch(0, 1), launch(1, 1, gil_enabled=True)
    assert figures(sample(free)).gil_enabled is False
    assert figures(sample(free, held)).gil_enabled is True


# ---- scaling


def scaling(of: Sample, *single: Launch) -> tuple[float, ...]:
    return tuple(read(of, one_worker=single).by_order("scaling").values())


def test_scaling_of_a_body_that_each_worker_runs() -> None:
    cells, single = sample(launch(0, 2, 4), launch(1, 2), workers=4), (launch(1, 1), launch(0, 1, 1), launch(7, 1))
    assert scaling(cells, *single) == pytest.approx((4 / math.sqrt(8), 2.0))  # a launch's iterations: 1/2, 1/4
    shown = figures(cells, one_worker=single)
    assert shown.scaling is not None
    assert shown.scaling.value == pytest.approx(math.sqrt(2 * 4 / math.sqrt(8)))
    assert shown.scaling.low < shown.scaling.value < shown.scaling.high
    assert shown.efficiency == pytest.approx(shown.scaling.value / 4)
    assert shown.serial_fraction == pytest.approx(speedup.amdahl(shown.scaling.value, 4))


def test_scaling_of_an_executors_body_and_of_a_window_is_the_ratio_itself() -> None:
    pool = sample(launch(0, 2, loops=2), workers=4, body="executor")
    assert scaling(pool, launch(0, 3)) == pytest.approx((3.0,))
    windows = sample(window(0, (90, 180.0)), workers=2)
    assert scaling(windows, window(0, (50, 100.0))) == pytest.approx((1.8,))


def test_scaling_pairs_turns_so_that_the_weather_cancels() -> None:
    rng = np.random.default_rng(50)
    weather = [np.exp(rng.normal(0, 0.5, 6)).tolist() for _ in range(5)]
    own = tuple(launch(order, *iterations) for order, iterations in enumerate(weather))
    single = tuple(launch(order, *(0.9 * wall for wall in iterations)) for order, iterations in enumerate(weather))
    shown = figures(sample(*own), one_worker=single).scaling
    assert shown is not None
    assert (shown.low, shown.value, shown.high) == pytest.approx((1.8, 1.8, 1.8), rel=1e-4)
    assert shown.level == pytest.approx(0.9375)


def test_no_one_worker_cell_no_scaling() -> None:
    for alone, single in (
        (sample(launch(0, 2)), ()),
        (sample(launch(0, 2)), (launch(1, 2),)),
        (sample(), (launch(0, 2),)),
    ):
        shown = figures(alone, one_worker=single)
        assert (shown.scaling, shown.efficiency, shown.serial_fraction) == (None, None, None)
        assert scaling(alone, *single) == ()


def test_a_turn_without_a_value_takes_its_neighbour_along() -> None:
    own, single = window(0, (0, 0.0), (90, 180.0)), window(0, (1, 5000.0), (50, 100.0))
    assert scaling(sample(own), single) == pytest.approx((1.8,))


# ---- locks


def site(*waits_ns: int, line: int = 3, waits_for: str = "lock", **fields: Any) -> LockSite:
    histogram: dict[int, int] = {}
    for wait_ns in waits_ns:
        histogram[bucket_of(wait_ns)] = histogram.get(bucket_of(wait_ns), 0) + 1
    return LockSite(
        **{
            "file": "words.py",
            "line": line,
            "kind": "Lock",
            "waits_for": waits_for,
            "contended": len(waits_ns),
            "total_ns": sum(waits_ns),
            "max_ns": max(waits_ns, default=0),
            "histogram": histogram,
            **fields,
        }
    )


def locked(
    order: int,
    *sites: LockSite,
    wall_ms: float = 10,
    ops: int = 100,
    counted: int = 0,
    thread_ms: float = 0,
    **fields: Any,
) -> Launch:
    seen = LockWaits(
        work_ns=int(wall_ms * MS), thread_ns=int(thread_ms * MS), ops=ops, counted_ops=counted, sites=sites
    )
    return Launch(order=order, hash_seed=0, started_at="", locks=seen, **fields)


def test_the_lock_wait_share_is_of_the_workers_time_and_apart_from_queues() -> None:
    launches = (
        locked(2, site(4 * MS), site(2 * MS, line=9), site(10 * MS, line=5, waits_for="queue")),
        locked(0, site(1 * MS), wall_ms=5),
        locked(1),
        locked(3, site(1 * MS), wall_ms=0),
        Launch(order=4, hash_seed=0, started_at=""),
    )
    of = sample(locks=launches)
    assert tuple(shares_by_order(of, "lock").values()) == pytest.approx((0.1, 0.0, 0.3))
    shown = figures(of)
    assert shown.lock_wait == pytest.approx(0.1)
    assert shown.queue_wait == 0.0
    nothing = figures(sample())
    assert (nothing.lock_wait, nothing.queue_wait, nothing.sites) == (None, None, ())


def test_the_waits_of_a_pool_in_a_worker_are_a_share_of_the_time_of_its_threads() -> None:
    """One worker whose eight threads wait 50 ms of 10 ms each: 500 % of the worker's time."""
    waits = (site(40 * MS), site(10 * MS, line=9))
    pool = sample(locks=(locked(0, *waits, thread_ms=100), locked(1, *waits, thread_ms=100)))
    shown = figures(pool)
    assert shown.lock_wait == pytest.approx(0.5)
    assert [site.share for site in shown.sites] == pytest.approx([0.4, 0.1])
    unknown = sample(locks=(locked(0, *waits),))  # threads that nobody could follow
    assert tuple(shares_by_order(unknown, "lock").values()) == (1.0,)


def test_sites_merge_over_launches_and_the_longest_wait_comes_first() -> None:
    rng = np.random.default_rng(51)
    first, second = (sorted(rng.integers(1000, 20_000, 400).tolist()) for _ in range(2))
    launches = (
        locked(0, site(*first), site(5 * MS, 10 * MS, line=9, name="cache"), site(line=7)),
        locked(1, site(*second), wall_ms=30),
    )
    cache, lock = figures(sample(locks=launches)).sites
    assert (cache.file, cache.line, cache.kind, cache.name, cache.waits_for) == ("words.py", 9, "Lock", "cache", "lock")
    assert cache.share == pytest.approx(15 / (2 * 10) / 2)  # the median of a launch with it and one without
    assert cache.max_ns == 10 * MS >= cache.p99_ns
    assert lock.contended == 800
    assert lock.contended_per_s == pytest.approx(800 / 0.04)
    assert lock.total_ns == sum(first + second)
    for shown, q in ((lock.p50_ns, 0.5), (lock.p95_ns, 0.95), (lock.p99_ns, 0.99)):
        assert shown == pytest.approx(float(np.quantile(first + second, q)), rel=0.0625)
    assert lock.p50_ns < lock.p95_ns < lock.p99_ns <= lock.max_ns


def test_the_lines_that_others_wait_for_most_come_first_each_with_its_worst_waiter() -> None:
    def holder(line: int, waited_ns: int, *held_ns: int, waiter: int = 9) -> LockHolder:
        held = Counter(map(bucket_of, held_ns))
        return LockHolder(
            file="words.py",
            line=line,
            function=f"f{line}",
            waiter_file="words.py",
            waiter_line=waiter,
            waited_ns=waited_ns,
            held=dict(held),
        )

    one = (holder(1, 100), holder(2, 30 * MS, 10 * MS, 20 * MS), holder(3, MS, MS), holder(4, 2 * MS, 2 * MS))
    other = (holder(2, 66 * MS, *[10 * MS] * 9, waiter=8), holder(5, MS // 2, MS))
    launches = (locked(0, site(MS, holders=one)), locked(1, site(MS, holders=other)))
    (shown,) = figures(sample(locks=launches)).sites
    assert [(each.line, each.function, each.waiter_line) for each in shown.holders] == [
        (2, "f2", 8),
        (4, "f4", 9),
        (3, "f3", 9),
    ]
    assert shown.holders[0].share == pytest.approx(96 / 99.5, rel=1e-3)
    assert (shown.holders[0].p50_ns, shown.holders[0].p99_ns) == pytest.approx((10 * MS, 20 * MS), rel=0.0625)


def test_sites_are_told_apart_by_all_that_names_them() -> None:
    base: dict[str, Any] = {"file": "a.py", "line": 1, "kind": "Lock", "name": "", "waits_for": "lock"}
    for change in ({"file": "b.py"}, {"line": 2}, {"kind": "RLock"}, {"name": "cache"}, {"waits_for": "queue"}):
        launches = (locked(0, site(1000, **base)), locked(1, site(1000, **{**base, **change})))
        assert len(figures(sample(locks=launches)).sites) == 2
    assert len(figures(sample(locks=(locked(0, site(1000)), locked(1, site(1000))))).sites) == 1


@pytest.mark.parametrize(
    ("launches", "ratio"),
    [
        ([(100, 10, 20, 40)], 20 / 100 / (40 / 10)),
        ([(100, 10, 20, 40), (100, 10, 60, 40)], 80 / 200 / (80 / 20)),
        ([(100, 10, 20, 40), (100, 0, 60, None)], 20 / 100 / (40 / 10)),
        ([(100, 10, 90, 5)], 1.0),
        ([(100, 10, 20, None)], None),
        ([(100, 10, 20, 0)], None),
        ([(100, 0, 20, 40)], None),
        ([(0, 10, 20, 40)], None),
    ],
)
def test_the_contended_ratio_compares_what_an_operation_does(
    launches: Sequence[tuple[int, int, int, int | None]], ratio: float | None
) -> None:
    """Each launch: operations, those of the counting turn, contended acquisitions, all of the counting turn."""
    seen = tuple(
        locked(order, site(*[1000] * contended, acquisitions=acquired), ops=ops, counted=counted)
        for order, (ops, counted, contended, acquired) in enumerate(launches)
    )
    (shown,) = figures(sample(locks=seen)).sites
    assert shown.contended_ratio == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("sites", "probe"),
    [
        ((), False),
        ((site(acquisitions=0),), False),
        ((site(acquisitions=1),), True),
        ((site(),), True),  # nobody counted
        ((site(1000, acquisitions=0),), True),
    ],
)
def test_what_acquires_no_lock_is_not_slowed_by_their_probe(sites: tuple[LockSite, ...], probe: bool) -> None:
    """Its launches with the probe were slow beside other work, and its lock wait is zero whatever they took."""
    seen = LockWaits(work_ns=MS, ops=8, counted_ops=8, sites=sites)
    bare = tuple(launch(order, 10, 10) for order in range(4))
    slowed = tuple(launch(order, 17.9, 17.9, locks=seen) for order in range(4))
    shown = figures(sample(*bare, locks=slowed))
    assert (shown.lock_cost is not None) == probe
    assert (decide.refused(Metric.LOCK_WAIT, shown.lock_cost, 0.25) is not None) == probe
    if not probe:
        assert shown.lock_wait == 0.0


def test_the_cost_of_the_lock_probe_is_read_off_the_first_turns() -> None:
    bare = tuple(launch(order, 10, 20, 900, 900, loops=2) for order in (0, 1, 2, 3))
    taken = LockWaits(work_ns=MS, ops=8, counted_ops=8, sites=(site(acquisitions=80),))
    probed = (*(launch(order, 7, 14, locks=taken) for order in (0, 1, 2)), launch(9, 900, locks=taken))
    shown = figures(sample(*bare, locks=probed))
    assert shown.lock_cost is not None
    assert shown.lock_cost.value == pytest.approx(1.4)
    half = moderated.half_width(3, 0.95) * float(moderated.deviations([0, 0, 0], [], metrics.row("wall").spread)[0])
    assert math.log(shown.lock_cost.high / 1.4) == pytest.approx(half)
    assert math.log(1.4 / shown.lock_cost.low) == pytest.approx(half)
    assert shown.lock_cost.level == 0.95
    assert figures(sample(*bare, locks=(locked(0),))).lock_cost is None


# ---- memory


def cost_launch(order: int, bare: tuple[float, ...], watched: tuple[float, ...]) -> Launch:
    return Launch(order=order, hash_seed=0, started_at="", sampling_cost=SamplingCost(bare_ns=bare, watched_ns=watched))


def test_the_cost_of_being_watched_pairs_windows() -> None:
    launches = (
        cost_launch(0, (10.0, 100.0), (11.0, 110.0)),
        cost_launch(1, (10.0,), (12.1,)),
        cost_launch(2, (0.0,), (7.0,)),
        cost_launch(3, (10.0,), (11.0 * math.sqrt(1.1),)),
    )
    middle = math.sqrt(1.1 * 1.21)
    shown = figures(sample(memory=launches)).memory_cost
    assert shown is not None
    assert shown.value == pytest.approx(middle)
    assert shown.low < 1.1 < 1.21 < shown.high
    assert shown.level == 0.95
    assert figures(sample(memory=(cost_launch(0, (), ()), held(1, 3)))).memory_cost is None
    for few, expected in ((1, (1.1, 1.1, 1.1, 0.0)), (3, (1.1, middle, 1.21, 0.0))):  # the third has no cost
        found = figures(sample(memory=launches[:few])).memory_cost
        assert found is not None
        assert (found.low, found.value, found.high, found.level) == pytest.approx(expected)


def test_three_launches_show_a_dear_probe() -> None:
    """A metric that is decided after three launches is refused all the same where they were slowed."""
    launches = tuple(cost_launch(order, (10.0,) * 4, (15.0 + order / 10,) * 4) for order in range(3))
    shown = figures(sample(memory=launches)).memory_cost
    assert decide.refused(Metric.USS, shown, 0.25) is not None
    cheap = tuple(cost_launch(order, (10.0,) * 4, (10.0 + order,) * 4) for order in range(3))
    assert decide.refused(Metric.USS, figures(sample(memory=cheap)).memory_cost, 0.25) is None


def footprint(mib: float, processes: int = 1, *, uss: bool = True) -> dict[str, Any]:
    size = int(mib * 2**20)
    return {
        "rss_bytes": 2 * size,
        "uss_bytes": size if uss else None,
        "pss_bytes": size + 4096 if uss else None,
        "processes": processes,
    }


def look(mib: float, *, uss: bool = True, **roles: float) -> MemoryPoint:
    parts = {name: Footprint(**footprint(part, 2 if name == "workers" else 1)) for name, part in roles.items()}
    return MemoryPoint(at_ns=0, roles=parts, **footprint(mib, 1 + len(roles), uss=uss))


def remembered(order: int, barriers: Sequence[MemoryPoint], looks: Sequence[MemoryPoint] = (), ops: int = 1) -> Launch:
    fixed = tuple(Barrier(ops=ops, point=point) for point in barriers)
    return Launch(order=order, hash_seed=0, started_at="", memory=tuple(looks), barriers=fixed)


def test_steady_is_at_barriers_but_the_first_and_peak_at_any_look() -> None:
    launches = (
        remembered(0, [look(90), look(10), look(12), look(30)], [look(40), look(20)]),
        remembered(1, [look(20)], [look(50)]),
        remembered(2, [], [look(200)]),
    )
    (tree,) = figures(sample(memory=launches)).memory.values()
    assert tree == RoleFigures(
        processes=1,
        steady_rss=32 * 2.0**20,
        steady_uss=16 * 2.0**20,
        steady_pss=16 * 2.0**20 + 4096,
        peak_rss=180 * 2.0**20,
        peak_uss=90 * 2.0**20,
        peak_pss=90 * 2.0**20 + 4096,
    )


def test_roles_have_figures_of_their_own() -> None:
    launches = tuple(
        remembered(order, [look(10, main=10), look(30, main=10, workers=20)], [look(35, main=12, workers=23, others=1)])
        for order in range(3)
    )
    memory = figures(sample(memory=launches)).memory
    assert list(memory) == [TREE, "main", "others", "workers"]
    assert memory["workers"].processes == 2
    assert memory["workers"].steady_uss == 20 * 2**20
    assert memory["workers"].peak_uss == 23 * 2**20
    assert memory["main"].steady_rss == 20 * 2**20
    assert (memory["others"].steady_uss, memory["others"].peak_uss) == (None, 2**20)
    assert memory["others"].processes == 1
    assert memory[TREE].processes == 3


def test_the_floor_is_steady_too_and_a_platform_without_uss_has_none() -> None:
    floor = (remembered(0, [look(99), look(6), look(8)]),)
    shown = figures(sample(empty=floor))
    assert (shown.floor_uss_bytes, shown.floor_pss_bytes) == (7 * 2**20, 7 * 2**20 + 4096)
    blind = remembered(0, [look(6, uss=False)] * 4)
    shown = figures(sample(empty=(blind,), memory=(blind,), growth=(blind,)))
    assert (shown.floor_uss_bytes, shown.growth_bytes) == (None, None)
    assert shown.memory[TREE].steady_rss == 12 * 2**20
    assert shown.memory[TREE].peak_uss is None


def test_growth_is_an_iterations_and_what_is_loaded_once_is_none() -> None:
    def leaking(order: int, per_call: float, ops: int) -> Launch:
        sizes = [1.0] + [50 + per_call * ops * number for number in range(6)]
        return remembered(order, [look(size) for size in sizes], ops=ops)

    leaks = figures(sample(growth=tuple(leaking(order, 0.125, 8) for order in range(6)))).growth_bytes
    assert leaks is not None
    assert (leaks.low, leaks.value, leaks.high) == pytest.approx((2.0**17,) * 3, rel=0.01)
    still = figures(sample(growth=(leaking(0, 0.0, 4),))).growth_bytes
    assert still is not None
    assert (still.low, still.value, still.high) == (0.0, 0.0, 0.0)


def test_the_fewest_barriers_see_a_leak_and_not_what_is_loaded_once() -> None:
    loaded = tuple(remembered(order, [look(1), look(50), look(50)], ops=2) for order in range(5))
    leaking = tuple(remembered(order, [look(1), look(50), look(51)], ops=2) for order in range(5))
    for memory, grown in ((loaded, 0.0), (leaking, 2.0**19)):
        shown = figures(sample(growth=memory)).growth_bytes
        assert shown is not None
        assert (shown.low, shown.value, shown.high, shown.level) == (grown, grown, grown, 0.9375)


def test_what_an_empty_workload_grows_by_is_no_leak() -> None:
    def growing(order: int, leak: float, barriers: int) -> Launch:
        unshared = [0.0, 30, 45, 52, 55, 56, 56, 56]  # a parent and its forked child cease to share
        return remembered(order, [look(50 + unshared[number] + leak * number) for number in range(barriers)])

    floor = tuple(growing(order, 0.0, 6) for order in range(2))
    for leak in (0.0, 0.5):
        for barriers in (6, 8):
            memory = tuple(growing(order, leak, barriers) for order in range(5))
            shown = figures(sample(growth=memory, growth_empty=floor)).growth_bytes
            assert shown is not None
            assert shown.value == pytest.approx(leak * 2**20)


def test_too_few_barriers_have_no_slope() -> None:
    for barriers, ops in ((0, 1), (1, 1), (2, 1), (5, 0)):
        few = remembered(0, [look(number) for number in range(barriers)], ops=ops)
        assert figures(sample(growth=(few,))).growth_bytes is None


# ---- where threads wait


def waited(order: int, **seconds: Any) -> Launch:
    known = {"span_s": 10.0, "watched_s": 5.0, "samples": 100}
    return Launch(order=order, hash_seed=0, started_at="", waits=Waits(**known | seconds))


def test_where_threads_wait_is_not_told_by_few_samples() -> None:
    """Running and runnable are the scheduler's account: what waits on a core or runs needs no sample."""
    few = (waited(0, running_s=4.0, asleep_s=6.0, samples=20), waited(1, running_s=6.0, asleep_s=4.0, samples=18))
    shown = figures(sample(memory=few)).waits
    assert shown is not None
    assert shown.unavailable == "19 samples of a thread, and 20 are needed"
    assert (shown.running, shown.asleep) == (0.5, 0.0)
    more = figures(sample(memory=(*few, waited(2, running_s=5.0, asleep_s=5.0, samples=2)))).waits
    assert more is not None
    assert (more.unavailable, more.asleep) == ("", 0.5)
    busy = figures(sample(memory=(waited(0, running_s=4.0, runnable_s=6.0, samples=2),))).waits
    assert busy is not None
    assert (busy.unavailable, busy.runnable) == ("", 0.6)


def test_fractions_are_medians_that_sum_to_one() -> None:
    rng = np.random.default_rng(52)
    parts = rng.dirichlet([2.0] * 6, 7) * 10
    names = ("running_s", "runnable_s", "gil_s", "futex_s", "process_s", "asleep_s")
    memory = tuple(waited(order, **dict(zip(names, row.tolist(), strict=True))) for order, row in enumerate(parts))
    shown = figures(sample(memory=memory)).waits
    assert shown is not None
    middles = np.median(parts, axis=0)
    expected = (middles / middles.sum()).tolist()
    found = (shown.running, shown.runnable, shown.gil, shown.unattributed, shown.process, shown.asleep)
    assert found == pytest.approx(expected)
    assert sum(found) == pytest.approx(1.0)
    assert (shown.lock, shown.queue) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("lock_ms", "queue_ms", "expected"),
    [(4, 2, (0.2, 0.1, 0.2)), (8, 4, (0.4, 0.1, 0.0)), (14, 4, (0.5, 0.0, 0.0)), (0, 0, (0.0, 0.0, 0.5))],
)
def test_parked_time_is_what_the_lock_launches_explain_of_it(
    lock_ms: int, queue_ms: int, expected: tuple[float, float, float]
) -> None:
    """The workers' time is 20 ms, half of the sampled time is in a futex."""
    sites = (
        site(lock_ms * MS),
        site(queue_ms * MS, line=5, waits_for="queue"),
        site(5 * MS, line=6, kind="multiprocessing.Lock"),
        site(5 * MS, line=7, kind="asyncio.Queue", waits_for="queue"),
    )
    of = sample(memory=(waited(0, running_s=5.0, futex_s=5.0),), locks=(locked(0, *sites),))
    shown = figures(of)
    assert shown.waits is not None
    assert (shown.waits.lock, shown.waits.queue, shown.waits.unattributed) == pytest.approx(expected)
    assert shown.lock_wait == pytest.approx((lock_ms + 5) / 20)


def test_native_waits_are_parts_of_the_parked_time_without_the_locks_that_were_probed() -> None:
    """Half of the sampled time is in a futex; 4 of the workers' 20 ms are in a lock of threading."""
    names = {"lock (python3.14t)": 0.5, "stop-the-world pause": 0.3, "push (fast.so)": 0.2, "rare (fast.so)": 0.001}
    others = {"lock (python3.14t)": 0.5, "stop-the-world pause": 0.5}
    memory = (waited(0, running_s=5.0, futex_s=5.0, native=names), waited(1, running_s=5.0, futex_s=5.0, native=others))
    shown = figures(sample(memory=memory, locks=(locked(0, site(4 * MS)),))).waits
    assert shown is not None
    assert shown.native == pytest.approx(
        {"stop-the-world pause": 0.2, "lock (python3.14t)": 0.05, "push (fast.so)": 0.05}
    )
    assert next(iter(shown.native)) == "stop-the-world pause"
    assert sum(shown.native.values()) == pytest.approx(shown.unattributed, abs=0.01)


def test_the_probed_locks_are_taken_from_every_native_one_and_only_once() -> None:
    names = {"lock (a.so)": 0.2, "lock (b.so)": 0.8}
    memory = (waited(0, running_s=5.0, futex_s=5.0, native=names),)
    sites = site(2 * MS), site(2 * MS, line=5, waits_for="queue")
    shown = figures(sample(memory=memory, locks=(locked(0, *sites),))).waits
    assert shown is not None
    assert shown.native == pytest.approx({"lock (b.so)": 0.3})


def test_launches_count_alike_however_long_they_were_watched() -> None:
    memory = (waited(0, running_s=10.0), waited(1, span_s=20.0, running_s=5.0, asleep_s=15.0))
    shown = figures(sample(memory=memory)).waits
    assert shown is not None
    assert (shown.running, shown.asleep) == pytest.approx((0.625, 0.375))


def test_the_share_of_gil_waits_is_of_launches_that_were_seen() -> None:
    memory = (
        *(waited(0, gil_s=2.0, samples=9), waited(1, gil_s=1.0, unavailable="else"), waited(2, span_s=0.0, samples=0)),
        held(3, 1),
    )
    of = sample(memory=memory)
    assert gil_shares(of) == {0: 0.2}
    assert gil_wait_values(of) == {}, "whose lengths are not known"


def test_switches_are_per_second_and_cores_by_process() -> None:
    memory = (
        waited(0, running_s=10.0, voluntary_switches=50, involuntary_switches=5, cores={"main": 0.1, "worker 0": 1.0}),
        waited(1, running_s=10.0, voluntary_switches=70, involuntary_switches=5, cores={"main": 0.3}),
        waited(2, running_s=10.0, voluntary_switches=500, involuntary_switches=5, cores={"main": 0.2}),
    )
    shown = figures(sample(memory=memory)).waits
    assert shown is not None
    assert (shown.voluntary_per_s, shown.involuntary_per_s) == (14.0, 1.0)
    assert shown.cores == {"main": 0.2, "worker 0": 1.0}
    assert busiest_process(sample(memory=memory)) == {0: 1.0, 1: 0.3, 2: 0.2}


def gil_waited(order: int, look_ns: int = MS, unended: float = 0.0, runnable_s: float = 0.0, **counts: float) -> Launch:
    """`ms12=30`: thirty waits of 12 ms."""
    lengths = {int(name[2:]) * MS: count for name, count in counts.items()}
    return waited(
        order,
        gil_s=5.0,
        runnable_s=runnable_s,
        gil_waits={bucket_of(ns): count for ns, count in lengths.items()},
        gil_unended=unended,
        gil_sampling_ns=look_ns,
        gil_max_ns=max(lengths),
    )


def gil_lengths(*launches: Launch) -> tuple[float | None, float | None, float | None]:
    """In ms."""
    shown = figures(sample(memory=launches)).waits
    assert shown is not None
    p50, p95, longest = (shown.gil_p50_ns, shown.gil_p95_ns, shown.gil_max_ns)
    return p50 and p50 / MS, p95 and p95 / MS, longest and longest / MS


def test_lengths_of_gil_waits_are_those_of_all_launches_together() -> None:
    found = gil_lengths(gil_waited(0, ms5=20.0, ms12=5.5), gil_waited(1, ms5=20.0, ms40=4.5), waited(2, gil_s=1.0))
    assert list(found) == pytest.approx([5, 40, 40], rel=0.07)


def test_the_histogram_of_gil_waits_has_their_shares() -> None:
    launches = (gil_waited(0, ms5=20.0, ms10=10.0), gil_waited(1, ms5=40.0, unended=2.0))
    bins = gil_wait_histogram(sample(memory=(*launches, waited(2, unavailable="else"), held(3, 1))))
    assert list(bins.values()) == pytest.approx([60 / 72, 10 / 72])
    assert list(bins) == [bucket_of(5 * MS), bucket_of(10 * MS)]
    assert gil_wait_histogram(sample(memory=(gil_waited(0, ms5=19.0),))) == {}, "too few to tell their lengths"


def test_gil_waits_that_the_looks_cannot_tell_are_left_out() -> None:
    assert gil_lengths(gil_waited(0, ms5=19.0)) == (None, None, None)
    assert gil_lengths(waited(0, gil_s=5.0)) == (None, None, None)
    assert gil_lengths(gil_waited(0, look_ns=6 * MS, ms5=30.0, ms12=20.0)) == (None, None, 12)
    p50, p95, _ = gil_lengths(gil_waited(0, look_ns=6 * MS, ms5=30.0, ms40=20.0))
    assert p50 is None  # but the longest twentieth is seen all the same
    assert p95 == pytest.approx(40, rel=0.07)
    assert gil_lengths(gil_waited(0, unended=40.0, ms5=30.0)) == (None, None, 5)
    assert gil_lengths(gil_waited(0, look_ns=2 * MS, runnable_s=5.1, ms5=30.0)) == (None, None, 5)
    assert gil_lengths(gil_waited(0, look_ns=MS, runnable_s=5.1, ms5=30.0))[0] == pytest.approx(5, rel=0.07)
    assert gil_lengths(gil_waited(0, look_ns=2 * MS, runnable_s=4.9, ms5=30.0))[0] == pytest.approx(5, rel=0.07)
    assert gil_lengths(gil_waited(0, look_ns=2 * MS, runnable_s=5.0, ms5=30.0))[0] == pytest.approx(5, rel=0.07)
    assert gil_lengths(gil_waited(0, ms5=20.0))[0] == pytest.approx(5, rel=0.07)
    assert gil_lengths(gil_waited(0, look_ns=6 * MS, ms5=30.0), gil_waited(1, ms5=30.0))[0] is None
    assert gil_lengths(gil_waited(0, ms5=200.0), gil_waited(1, ms5=200.0, ms40=1.0))[2] == 40
    assert gil_lengths(gil_waited(0, unended=20.0, ms5=30.0, ms40=20.0))[0] == pytest.approx(40, rel=0.07)
    assert gil_lengths(gil_waited(0, unended=30.0, ms5=30.0))[0] == pytest.approx(5, rel=0.07)
    p50, p95, longest = gil_lengths(gil_waited(0, unended=10.0, ms5=30.0))
    assert p95 is None
    assert [p50, longest] == pytest.approx([5, 5], rel=0.07)


def test_no_time_watched_is_no_rate() -> None:
    shown = figures(sample(memory=(waited(0, running_s=10.0, voluntary_switches=5, watched_s=0.0),)))
    assert shown.waits is not None
    assert shown.waits.voluntary_per_s == 0.0


def test_what_cannot_be_seen_says_why() -> None:
    blind = waited(0, unavailable="not Linux", cores={"main": 0.5})
    assert figures(sample(memory=(blind, waited(1, unavailable="else")))).waits == WaitFigures(
        unavailable="not Linux", cores={"main": 0.5}
    )
    told = {"running_s": 5.0, "runnable_s": 2.0, "voluntary_switches": 50, "involuntary_switches": 5}
    scheduled = waited(0, unavailable="no patterns", cores={"main": 0.5}, **told)
    # Of a launch that could not even be accounted nothing but the cores is there.
    unaccounted = waited(1, unavailable="not Linux", cores={"main": 0.7}, span_s=0.0)
    assert figures(sample(memory=(scheduled, unaccounted))).waits == WaitFigures(
        unavailable="no patterns",
        running=0.5,
        runnable=0.2,
        voluntary_per_s=10.0,
        involuntary_per_s=1.0,
        cores={"main": 0.6},
    )
    seen = figures(sample(memory=(blind, waited(1, running_s=10.0)))).waits
    assert seen is not None
    assert (seen.unavailable, seen.running) == ("", 1.0)
    for memory in ((), (held(0, 1),), (waited(0, span_s=0.0),)):
        assert figures(sample(memory=memory)).waits is None
