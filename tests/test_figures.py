"""The figures of a row, from launches written by hand."""

from __future__ import annotations

import math

import pytest

from pytest_ftgate.figures import figures, launch_ratios, launch_value, paired_ratio, turn_value
from pytest_ftgate.model import Figures, Launch, MemoryPoint, Sample, Timer, Turn
from report_by_hand import FREE_THREADED, cell

MS = 1_000_000


def turn(wall_ms: float, *, ops: int = 8, rate: float = 0.0, cores: float = 2.0) -> Turn:
    wall_ns = int(wall_ms * MS)
    start_ns, join_ns = wall_ns // 5, wall_ns // 20
    return Turn(
        start_ns=start_ns,
        work_ns=wall_ns - start_ns - join_ns,
        join_ns=join_ns,
        wall_ns=wall_ns,
        cpu_ns=int(wall_ns * cores),
        ops=ops,
        rate=rate,
    )


def launch(order: int, *walls_ms: float, loops: int = 1, **fields: object) -> Launch:
    turns = tuple(turn(wall) for wall in walls_ms)
    return Launch(order=order, hash_seed=order, started_at="", loops=loops, turns=turns, **fields)  # type: ignore[arg-type]


def window(order: int, *windows: tuple[int, float], **fields: object) -> Launch:
    """A launch of half-second windows, each with its operations and rate."""
    turns = tuple(turn(500, ops=ops, rate=rate) for ops, rate in windows)
    return Launch(order=order, hash_seed=order, started_at="", window_ns=500 * MS, turns=turns, **fields)  # type: ignore[arg-type]


def sample(*launches: Launch, candle: tuple[Launch, ...] = (), memory: tuple[Launch, ...] = ()) -> Sample:
    of = cell("t.py::test", "3.14t", "threads", 2)
    return Sample(cell=of, interpreter=FREE_THREADED, key="k", launches=launches, candle=candle, memory=memory)


def points(order: int, *uss_mib: float | None, pss: bool = True) -> Launch:
    memory = tuple(
        MemoryPoint(
            at_ns=number,
            rss_bytes=100 << 20,
            uss_bytes=None if uss is None else int(uss * 2**20),
            pss_bytes=int((uss or 0) * 2**20) if pss else None,
            processes=1,
        )
        for number, uss in enumerate(uss_mib)
    )
    return Launch(order=order, hash_seed=0, started_at="", memory=memory)


def test_nothing_measured_gives_no_figures() -> None:
    assert figures(sample(), reference=None) == Figures()
    assert figures(sample(), reference=sample()) == Figures()
    assert figures(sample(launch(0)), reference=sample(launch(0, 1.0))) == Figures()


def test_wall_is_the_geometric_mean_of_floors_with_its_interval() -> None:
    shown = figures(sample(launch(0, 1, 1, 1, 9), launch(1, 4, 4, 4, 9)), reference=None, quantile=0.25)
    assert shown.wall_ns is not None
    assert shown.wall_ns.value == pytest.approx(2 * MS)
    assert shown.wall_ns.low < shown.wall_ns.value < shown.wall_ns.high
    assert shown.wall_ns.level == 0.95


def test_loops_divide_the_wall_and_the_phases() -> None:
    shown = figures(sample(launch(0, 10, loops=10)), reference=None)
    assert shown.wall_ns is not None
    assert shown.wall_ns.value == pytest.approx(1 * MS)
    assert shown.start_ns == pytest.approx(0.2 * MS)
    assert shown.join_ns == pytest.approx(0.05 * MS)
    assert shown.work_ns == pytest.approx(0.75 * MS)


def test_cold_turn_has_one_loop() -> None:
    one = Launch(order=0, hash_seed=0, started_at="", loops=10, cold=turn(3), turns=(turn(10),))
    assert figures(sample(one), reference=None).cold_ns == pytest.approx(3 * MS)


def test_quantile_zero_is_the_minimum() -> None:
    assert launch_value(launch(0, 3, 2, 5), quantile=0.0) == 2 * MS


def test_ratio_pairs_launches_by_order_and_is_geometric() -> None:
    changed = sample(launch(0, 2), launch(1, 8), launch(5, 100))
    against = sample(launch(1, 1), launch(0, 1), launch(7, 1))
    assert figures(changed, reference=against).ratio == pytest.approx(4.0)
    assert launch_ratios({0: 2.0, 1: 8.0, 5: 1.0}, {1: 1.0, 0: 1.0}) == (2.0, 8.0)


def test_ratio_to_itself_is_one_and_to_strangers_none() -> None:
    one = sample(launch(0, 2, 3), launch(1, 4, 5))
    assert figures(one, reference=one).ratio == pytest.approx(1.0)
    assert paired_ratio({0: 1.0}, {1: 1.0}) is None
    assert figures(one, reference=None).ratio is None


def test_candle_ratio_is_per_loop_on_both_sides() -> None:
    burnt = sample(launch(0, 6, loops=2), launch(1, 6, loops=2), candle=(launch(0, 1), launch(1, 4, loops=4)))
    assert figures(burnt, reference=None).candle_ratio == pytest.approx(3.0)


def test_a_duration_gives_the_time_of_an_operation() -> None:
    fast = sample(window(0, (500, 1000.0), (520, 1040.0)), window(1, (500, 1000.0), (510, 1020.0)))
    slow = sample(window(0, (50, 100.0), (52, 104.0)), window(1, (50, 100.0), (51, 102.0)))
    shown = figures(slow, reference=fast)
    assert shown.wall_ns is not None
    assert 1e9 / 104 < shown.wall_ns.value < 1e9 / 100
    assert shown.ratio == pytest.approx(10.0)
    assert shown.ops_per_s == pytest.approx(101.5)
    assert shown.start_ns == 100 * MS


def test_iterations_with_a_rate_stay_iterations() -> None:
    steady = Launch(order=0, hash_seed=0, started_at="", turns=(turn(4, rate=2000.0), turn(5, rate=1600.0)))
    shown = figures(sample(steady), reference=None)
    assert shown.wall_ns is not None
    assert 4 * MS <= shown.wall_ns.value <= 5 * MS
    assert shown.ops_per_s == pytest.approx(1800.0)


def test_turn_value_without_a_value_is_nan_and_left_out() -> None:
    assert math.isnan(turn_value(turn(1, rate=0.0), 1, per_op=True))
    assert math.isnan(turn_value(turn(0), 1, per_op=False))
    assert turn_value(turn(6), 3, per_op=False) == 2 * MS
    assert launch_value(launch(0, 0, 2)) == 2 * MS


def test_cores_is_cpu_over_wall() -> None:
    busy = Launch(order=0, hash_seed=0, started_at="", turns=(turn(1, cores=1.0), turn(3, cores=2.0)))
    assert figures(sample(busy), reference=None).cores == pytest.approx(7 / 4)


def test_memory_is_the_median_of_medians_and_the_peak_the_largest() -> None:
    shown = figures(sample(memory=(points(0, 10, 20, 90), points(1, 30, 30), points(2, 40))), reference=None)
    assert shown.uss_bytes == 30 * 2**20
    assert shown.uss_peak_bytes == 90 * 2**20
    assert shown.pss_bytes == 30 * 2**20
    assert shown.rss_bytes == 100 * 2**20
    assert shown.wall_ns is None


def test_memory_that_the_platform_has_not_is_none() -> None:
    shown = figures(sample(memory=(points(0, None, None, pss=False), points(1))), reference=None)
    assert (shown.uss_bytes, shown.uss_peak_bytes, shown.pss_bytes) == (None, None, None)
    assert shown.rss_bytes == 100 * 2**20


def test_counters_are_per_second_of_the_measured_window() -> None:
    counted = window(0, (100, 400.0), (120, 480.0), counters={"inserts": 50.0})
    silent = window(1, (100, 400.0), (120, 480.0), counters={})
    assert figures(sample(counted), reference=None).counters_per_s == {"inserts": pytest.approx(100.0)}
    assert figures(sample(counted, silent), reference=None).counters_per_s == {"inserts": pytest.approx(50.0)}


def test_counters_without_a_rate_use_the_work_time() -> None:
    counted = launch(0, 100, counters={"words": 75.0})
    assert figures(sample(counted), reference=None).counters_per_s == {"words": pytest.approx(1000.0)}
    assert figures(sample(launch(0, counters={"words": 75.0})), reference=None).counters_per_s == {}


def test_timers_show_their_mean() -> None:
    first = launch(0, 1, timers={"lock": Timer(count=4, total_ns=400, max_ns=300)})
    second = launch(
        1, 1, timers={"lock": Timer(count=1, total_ns=300, max_ns=300), "idle": Timer(count=0, total_ns=0, max_ns=0)}
    )
    assert figures(sample(first, second), reference=None).timers_mean_ns == {"lock": 200.0}
