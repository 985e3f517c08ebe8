"""What a row of the table shows, from the raw launches of its cell: pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from statistics import median

from ..model import NS_PER_S, Figures, Interval, Iteration, Latency, Launch, Sample, iteration_value, work_ratio
from ..stats import rank_tests
from .memory_figures import TREE, growth, memory, peak, roles, steady
from .per_launch import (
    INTERVAL_LEVEL,
    QUANTILE,
    Sides,
    interval,
    launch_values,
    median_of,
    paired_ratio,
    paired_values,
    sides_by_order,
)
from .wait_figures import lock_share_values, shares_of, site_figures, waits_of


def figures(sample: Sample, *, reference: Sample | None, quantile: float = QUANTILE) -> Figures:
    """The figures of one cell; each is None or empty where what it is made of was not measured.

    `reference` is the sample that `ratio` refers to, the cell's own included. `quantile` is that of the floor of a
    launch. The wall interval is that of the geometric mean over launches, all others are exact, see `stats.location`.
    `growth_bytes` is an iteration's: one body call in each worker.
    """
    values = launch_values(sample.launches, quantile=quantile)
    against = launch_values(reference.launches, quantile=quantile) if reference else {}
    control = launch_values(sample.control, quantile=quantile)
    scaling = _scaling(sample)
    workers = sample.cell.workers
    return Figures(
        wall_ns=interval(values.values()),
        start_ns=_phase(sample.launches, lambda iteration: iteration.start_ns),
        work_ns=_phase(sample.launches, lambda iteration: iteration.work_ns),
        join_ns=_phase(sample.launches, lambda iteration: iteration.join_ns),
        cold_ns=_cold(sample.launches),
        ratio=paired_ratio(values, against),
        control_ratio=paired_ratio(values, control),
        cores=median_of(_cores(launch) for launch in sample.launches),
        rss_bytes=memory(sample.memory, lambda point: point.rss_bytes),
        uss_bytes=memory(sample.memory, lambda point: point.steadiest_bytes),
        uss_peak_bytes=peak(sample.memory),
        pss_bytes=memory(sample.memory, lambda point: point.pss_bytes),
        ops_per_s=median_of(_rate(launch) for launch in sample.launches),
        counters_per_s=_counters(sample.launches),
        timers_mean_ns=_timers(sample.launches),
        peaks=_peaks(sample.launches),
        latency=_latency(sample.launches),
        gil_enabled=_gil(sample.launches) if sample.cell.executor.program is None else None,
        lock_wait_share=median_of(lock_share_values(sample)),
        queue_wait_share=median_of(shares_of(sample, waits_for="queue")),
        sites=site_figures(sample),
        lock_cost=_cost(paired_values(sample.locks, sample.launches)),
        memory_cost=_cost([_looked(launch) for launch in sample.memory]),
        waits=waits_of(sample),
        memory=roles(sample.memory),
        floor_uss_bytes=steady(sample.floor, TREE, lambda part: part.steadiest_bytes),
        floor_pss_bytes=steady(sample.floor, TREE, lambda part: part.pss_bytes),
        growth_bytes=growth(sample.growth, sample.growth_floor),
        scaling=scaling,
        efficiency=scaling.value / workers if scaling else None,
        serial_fraction=rank_tests.amdahl(scaling.value, workers) if scaling and workers > 1 else None,
    )


def _phase(launches: Sequence[Launch], ns_of: Callable[[Iteration], int]) -> float | None:
    """The median over launches of the median phase, per loop; of a window as it is, which has one loop."""
    return median_of(
        median_of(ns_of(iteration) / max(1, launch.loops) for iteration in launch.iterations) for launch in launches
    )


def _cold(launches: Sequence[Launch]) -> float | None:
    """The median cold turn, in the unit of the wall time; it comes before loops are calibrated, so it has one."""
    values = (iteration_value(launch.cold, 1, launch.window_ns > 0) for launch in launches if launch.cold)
    return median_of(value if math.isfinite(value) else None for value in values)


def _cores(launch: Launch) -> float | None:
    """CPU time over wall time, all turns of a launch together: the cores kept busy."""
    wall_ns = sum(iteration.wall_ns for iteration in launch.iterations)
    return sum(iteration.cpu_ns for iteration in launch.iterations) / wall_ns if wall_ns > 0 else None


def _rate(launch: Launch) -> float | None:
    return median_of(iteration.rate if iteration.rate > 0 else None for iteration in launch.iterations)


def _window_s(launch: Launch) -> float:
    """The measured window of a launch in seconds, without start and join, which would hide a part of every rate."""
    return sum(
        iteration.ops / iteration.rate if iteration.rate > 0 else iteration.work_ns / NS_PER_S
        for iteration in launch.iterations
    )


def _counters(launches: Sequence[Launch]) -> dict[str, float]:
    """Each counter per second of the measured window: the median over launches; one that never counted is 0."""
    windows = [(launch, _window_s(launch)) for launch in launches]
    names = sorted({name for launch in launches for name in launch.counters})
    rates = {
        name: median_of(launch.counters.get(name, 0.0) / window_s for launch, window_s in windows if window_s > 0)
        for name in names
    }
    return {name: rate for name, rate in rates.items() if rate is not None}


def counter_values(launches: Iterable[Launch], name: str) -> dict[int, float]:
    """Launch order -> a counter per second of the measured window; empty where no launch has counted so."""
    there = list(launches)
    windows = ((launch, _window_s(launch)) for launch in there if any(name in each.counters for each in there))
    return {launch.order: launch.counters.get(name, 0.0) / span_s for launch, span_s in windows if span_s > 0}


def _timers(launches: Sequence[Launch]) -> dict[str, float]:
    """Each timer's mean in ns: the median over launches of total / count."""
    means: dict[str, list[float]] = {}
    for launch in launches:
        for name, timer in launch.timers.items():
            if timer.count > 0:
                means.setdefault(name, []).append(timer.total_ns / timer.count)
    return {name: float(median(values)) for name, values in sorted(means.items())}


def _peaks(launches: Sequence[Launch]) -> dict[str, float]:
    """Each peak: the median over the launches that know it of the largest of their measured turns."""
    names = sorted({name for launch in launches for name in launch.peaks})
    return {name: float(median(x.peaks[name] for x in launches if name in x.peaks)) for name in names}


def _latency(launches: Sequence[Launch]) -> Latency | None:
    """The medians over launches of the median window; the longest answer of all, and all the errors."""
    seen = [
        [iteration.latency for iteration in launch.iterations if iteration.latency is not None] for launch in launches
    ]
    each = [latencies for latencies in seen if latencies]
    if not each:
        return None

    def middle(ns_of: Callable[[Latency], float]) -> float:
        return float(median(median(map(ns_of, latencies)) for latencies in each))

    every = list(chain.from_iterable(each))
    return Latency(
        mean_ns=middle(lambda latency: latency.mean_ns),
        p50_ns=middle(lambda latency: latency.p50_ns),
        p95_ns=middle(lambda latency: latency.p95_ns),
        p99_ns=middle(lambda latency: latency.p99_ns),
        max_ns=max(latency.max_ns for latency in every),
        errors=sum(latency.errors for latency in every),
    )


def _gil(launches: Sequence[Launch]) -> bool | None:
    """Whether any launch ran with the GIL: an import may turn it on in one and not in another."""
    measured = [launch.gil_enabled for launch in launches if launch.iterations]
    return any(measured) if measured else None


def _looked(launch: Launch) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The windows in which a launch was watched, and the bare ones beside them; neither where one has no value."""
    if launch.looking is None:
        return (), ()
    watched, bare = (
        [value if value > 0 else math.nan for value in side]
        for side in (launch.looking.watched_ns, launch.looking.bare_ns)
    )
    return rank_tests.neighbours(watched, bare)


def _cost(sides: Sides) -> Interval | None:
    """What a probe costs: the time with it over the time without."""
    measured = [(own, beside) for own, beside in sides if own and beside]
    return rank_tests.ratio_interval(measured, INTERVAL_LEVEL) if measured else None


def scaling_values(sample: Sample) -> dict[int, float]:
    """Launch order -> throughput over that of the one-worker cell that took turns with it.

    The median over its turns of the one-worker turn over its own, times the work that it does meanwhile. Empty
    without a one-worker cell beside it.
    """
    sides = sides_by_order(sample.single, sample.launches)
    ratios = {
        order: rank_tests.iterations_ratio(single, own, rank_tests.PAIRED) for order, (single, own) in sides.items()
    }
    return {order: work_ratio(sample) * ratio for order, ratio in ratios.items()}


def _scaling(sample: Sample) -> Interval | None:
    sides = paired_values(sample.single, sample.launches)
    if not sides:
        return None
    times, ratio = work_ratio(sample), rank_tests.ratio_interval(sides, INTERVAL_LEVEL)
    return Interval(value=times * ratio.value, low=times * ratio.low, high=times * ratio.high, level=ratio.level)
