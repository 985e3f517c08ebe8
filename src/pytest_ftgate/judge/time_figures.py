"""Figures of timing launches: phases, rates, latencies, scaling, and the workload's own figures. Pure.

Readers give launch order -> value; a launch without a value is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..model import NS_PER_S, Iteration, Latency, Launch, Sample, iteration_value, work_ratio
from ..stats import rank_tests
from .per_launch import by_order, launch_value, median_of, sides_by_order


def per_loop(launch: Launch, of: Callable[[Iteration], int]) -> float | None:
    """The median of a count or a length per loop; a window has one loop."""
    return median_of(of(iteration) / max(1, launch.loops) for iteration in launch.iterations)


def start_of(launch: Launch) -> float | None:
    """The start of its workers in ns: once in a launch that keeps them, else the median over its iterations."""
    return per_loop(launch, lambda iteration: iteration.start_ns) if launch.start_ns is None else launch.start_ns


def join_of(launch: Launch) -> float | None:
    """The end of its workers in ns, likewise."""
    return per_loop(launch, lambda iteration: iteration.join_ns) if launch.join_ns is None else launch.join_ns


def work_of(launch: Launch) -> float | None:
    """The median of the work of its iterations in ns."""
    return per_loop(launch, lambda iteration: iteration.work_ns)


def cold_values(sample: Sample) -> dict[int, float]:
    """Launch order -> the cold iteration, in the unit of the wall time."""
    # It runs before loops are calibrated, so it has one loop.
    return by_order(
        sample.launches,
        lambda launch: iteration_value(launch.cold, 1, launch.window_ns > 0) if launch.cold else None,
    )


def core_values(sample: Sample) -> dict[int, float]:
    """Launch order -> CPU time over wall time of all iterations together: the number of busy cores."""

    def cores(launch: Launch) -> float | None:
        wall_ns = sum(iteration.wall_ns for iteration in launch.iterations)
        return sum(iteration.cpu_ns for iteration in launch.iterations) / wall_ns if wall_ns > 0 else None

    return by_order(sample.launches, cores)


def rate_values(sample: Sample) -> dict[int, float]:
    """Launch order -> operations per second of its wall time: the calls of an iteration, in all workers, over that.

    With windows the wall time is that of one operation.
    """

    def rate(launch: Launch) -> float | None:
        wall_ns = launch_value(launch)
        calls = 1.0 if launch.window_ns else per_loop(launch, lambda iteration: iteration.ops)
        return calls * NS_PER_S / wall_ns if wall_ns and calls else None

    return by_order(sample.launches, rate)


def latency_of(launch: Launch, of: Callable[[Latency], float]) -> float | None:
    """A latency of a server's launch in ns: the median over its windows."""
    return median_of(of(iteration.latency) for iteration in launch.iterations if iteration.latency)


def error_values(sample: Sample) -> dict[int, float]:
    """Launch order -> requests that failed or were answered with an error: the median over windows."""
    return by_order(sample.launches, lambda launch: latency_of(launch, lambda latency: latency.errors))


def _window_s(launch: Launch) -> float:
    """The measured time of a launch in seconds, without start and join, which would lower every rate."""
    return sum(
        iteration.ops / iteration.rate if iteration.rate > 0 else iteration.work_ns / NS_PER_S
        for iteration in launch.iterations
    )


def counter_values(launches: Iterable[Launch], name: str) -> dict[int, float]:
    """Launch order -> a counter per second of the measured time; empty if no launch has that counter."""
    there = list(launches)
    windows = ((launch, _window_s(launch)) for launch in there if any(name in each.counters for each in there))
    return {launch.order: launch.counters.get(name, 0.0) / span_s for launch, span_s in windows if span_s > 0}


def timer_values(launches: Iterable[Launch], name: str) -> dict[int, float]:
    """Launch order -> a timer's mean in ns."""

    def mean(launch: Launch) -> float | None:
        timer = launch.timers.get(name)
        return timer.total_ns / timer.count if timer and timer.count > 0 else None

    return by_order(launches, mean)


def ceiling_values(sample: Sample) -> dict[int, float]:
    """Launch order -> the scaling of the control workload in the same launches: what this machine gives at most.

    It is the control's throughput over that of the control beside the one-worker cell, under the same executor.
    """
    # In a body that drives a pool, the control has a task for each worker, in windows too.
    windows = any(launch.window_ns > 0 for launch in sample.control)
    times = 1 if windows and sample.cell.body == "worker" else sample.cell.workers
    sides = sides_by_order(sample.single_control, sample.control)
    return {order: times * rank_tests.iterations_ratio(*pair) for order, pair in sides.items()}


def scaling_values(sample: Sample) -> dict[int, float]:
    """Launch order -> throughput over that of the interleaved one-worker cell.

    It is the median over iterations of the time with one worker over the cell's own, times `work_ratio`. Empty without
    a one-worker cell.
    """
    sides = sides_by_order(sample.single, sample.launches)
    return {order: work_ratio(sample) * rank_tests.iterations_ratio(*pair) for order, pair in sides.items()}
