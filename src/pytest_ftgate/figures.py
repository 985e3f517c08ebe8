"""What a row of the table shows, from the raw launches of its cell: pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

from pytest_ftgate import stats
from pytest_ftgate.model import Figures, Interval, Launch, MemoryPoint, Sample, Turn

QUANTILE = 0.25
NS_PER_S = 1e9


def figures(sample: Sample, *, reference: Sample | None, quantile: float = QUANTILE) -> Figures:
    """The figures of one cell; each is None where its launches, turns or memory points are missing.

    `reference` is the sample that `ratio` refers to, the cell's own included. `quantile` is that of the floor of a
    launch. The wall interval is that of the geometric mean over launches.
    """
    values = launch_values(sample.launches, quantile=quantile)
    against = launch_values(reference.launches, quantile=quantile) if reference else {}
    candle = launch_values(sample.candle, quantile=quantile)
    return Figures(
        wall_ns=_interval(values.values()),
        start_ns=_phase(sample.launches, lambda turn: turn.start_ns),
        work_ns=_phase(sample.launches, lambda turn: turn.work_ns),
        join_ns=_phase(sample.launches, lambda turn: turn.join_ns),
        cold_ns=_cold(sample.launches),
        ratio=paired_ratio(values, against),
        candle_ratio=paired_ratio(values, candle),
        cores=_median(_cores(launch) for launch in sample.launches),
        rss_bytes=_memory(sample.memory, lambda point: point.rss_bytes),
        uss_bytes=_memory(sample.memory, lambda point: point.uss_bytes),
        uss_peak_bytes=_peak(sample.memory),
        pss_bytes=_memory(sample.memory, lambda point: point.pss_bytes),
        ops_per_s=_median(_rate(launch) for launch in sample.launches),
        counters_per_s=_counters(sample.launches),
        timers_mean_ns=_timers(sample.launches),
    )


def turn_value(turn: Turn, loops: int, per_op: bool) -> float:
    """The time of one loop of a turn in ns, or of one operation over all workers; NaN if it has none.

    A window of a duration lasts as long as it was told to, so its own wall time compares nothing: 1 / rate does.
    """
    if per_op:
        return NS_PER_S / turn.rate if turn.rate > 0 else math.nan
    return turn.wall_ns / loops if loops > 0 and turn.wall_ns > 0 else math.nan


def launch_value(launch: Launch, *, quantile: float = QUANTILE) -> float | None:
    """The floor of a launch in ns: a low quantile of its turns' `turn_value`; None without a turn that has one."""
    turns = (turn_value(turn, launch.loops, launch.window_ns > 0) for turn in launch.turns)
    usable = [value for value in turns if math.isfinite(value)]
    return stats.floor(usable, quantile) if usable else None


def launch_values(launches: Iterable[Launch], *, quantile: float = QUANTILE) -> dict[int, float]:
    """Launch order -> floor in ns, for the launches that have one."""
    floors = {launch.order: launch_value(launch, quantile=quantile) for launch in launches}
    return {order: value for order, value in floors.items() if value is not None}


def launch_ratios(values: dict[int, float], reference: dict[int, float]) -> tuple[float, ...]:
    """The ratios of the launches that took turns, that is of the same order, in that order."""
    return tuple(values[order] / reference[order] for order in sorted(values.keys() & reference.keys()))


def paired_ratio(values: dict[int, float], reference: dict[int, float]) -> float | None:
    """The geometric mean of `launch_ratios`; None when no launch of one took turns with one of the other."""
    ratios = launch_ratios(values, reference)
    return math.exp(fmean(map(math.log, ratios))) if ratios else None


def _interval(values: Iterable[float]) -> Interval | None:
    known = tuple(values)
    return stats.log_interval(known) if known else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None


def _phase(launches: Sequence[Launch], ns_of: Callable[[Turn], int]) -> float | None:
    """The median over launches of the median phase, per loop; of a window as it is, which has one loop."""
    return _median(_median(ns_of(turn) / max(1, launch.loops) for turn in launch.turns) for launch in launches)


def _cold(launches: Sequence[Launch]) -> float | None:
    """The median cold turn, in the unit of the wall time; it comes before loops are calibrated, so it has one."""
    values = (turn_value(launch.cold, 1, launch.window_ns > 0) for launch in launches if launch.cold)
    return _median(value if math.isfinite(value) else None for value in values)


def _cores(launch: Launch) -> float | None:
    """CPU time over wall time, all turns of a launch together: the cores kept busy."""
    wall_ns = sum(turn.wall_ns for turn in launch.turns)
    return sum(turn.cpu_ns for turn in launch.turns) / wall_ns if wall_ns > 0 else None


def _rate(launch: Launch) -> float | None:
    return _median(turn.rate if turn.rate > 0 else None for turn in launch.turns)


def _memory(launches: Sequence[Launch], bytes_of: Callable[[MemoryPoint], int | None]) -> float | None:
    """The median over launches of the median over a launch's points."""
    return _median(_median(map(bytes_of, launch.memory)) for launch in launches)


def _peak(launches: Sequence[Launch]) -> float | None:
    """The largest USS seen at any point: a lower bound, as the platform keeps no peak of it."""
    seen = [point.uss_bytes for launch in launches for point in launch.memory if point.uss_bytes is not None]
    return float(max(seen)) if seen else None


def _window_s(launch: Launch) -> float:
    """The measured window of a launch in seconds, without start and join, which would hide a part of every rate."""
    return sum(turn.ops / turn.rate if turn.rate > 0 else turn.work_ns / NS_PER_S for turn in launch.turns)


def _counters(launches: Sequence[Launch]) -> dict[str, float]:
    """Each counter per second of the measured window: the median over launches; one that never counted is 0."""
    windows = [(launch, _window_s(launch)) for launch in launches]
    names = sorted({name for launch in launches for name in launch.counters})
    rates = {
        name: _median(launch.counters.get(name, 0.0) / window_s for launch, window_s in windows if window_s > 0)
        for name in names
    }
    return {name: rate for name, rate in rates.items() if rate is not None}


def _timers(launches: Sequence[Launch]) -> dict[str, float]:
    """Each timer's mean in ns: the median over launches of total / count."""
    means: dict[str, list[float]] = {}
    for launch in launches:
        for name, timer in launch.timers.items():
            if timer.count > 0:
                means.setdefault(name, []).append(timer.total_ns / timer.count)
    return {name: float(median(values)) for name, values in sorted(means.items())}
