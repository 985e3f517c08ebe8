"""The values of stored launches that a judge compares."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

from ..stats import rank_tests
from .schema import Entry, Recording, StoredLaunch, StoredMemory


def iteration_values(launch: StoredLaunch) -> tuple[float, ...]:
    """Nanoseconds per iteration of each turn, or per operation for a body with a duration; NaN without one."""
    return _values(launch.wall_ns, launch.loops, launch.ops_per_s)


def control_values(launch: StoredLaunch) -> tuple[float, ...]:
    """The same of the candle beside it; empty without one."""
    return _values(launch.control_wall_ns, launch.control_loops, launch.control_ops_per_s)


def single_values(launch: StoredLaunch) -> tuple[float, ...]:
    """The same of the one-worker cell beside it; empty without one."""
    return _values(launch.single_wall_ns, launch.single_loops, launch.single_ops_per_s)


def _values(wall_ns: Sequence[int], loops: int, ops_per_s: Sequence[float]) -> tuple[float, ...]:
    """A window in which no operation ended has no value: NaN, so that a turn keeps its place."""
    if ops_per_s:
        return tuple(1e9 / rate if rate > 0 else math.nan for rate in ops_per_s)
    return tuple(wall / loops if wall > 0 else math.nan for wall in wall_ns)


def wall_ratios(stored: Entry | Recording, estimator: rank_tests.Estimator = rank_tests.PAIRED) -> tuple[float, ...]:
    """A value a launch, in recording and launch order: the ratio of the cell's turns to the candle's.

    Launches without a candle give none: there is nothing that their speed of the day could be read from.
    """
    return tuple(rank_tests.iterations_ratio(own, control, estimator) for own, control in paired_iterations(stored))


def paired_iterations(stored: Entry | Recording) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """The turns of each launch with those of the candle, for the launches that have both."""
    sides = (rank_tests.neighbours(iteration_values(launch), control_values(launch)) for launch in launches_of(stored))
    return [(own, control) for own, control in sides if own and control]


def wall_floors_ns(stored: Entry | Recording, quantile: float) -> tuple[float, ...]:
    """A value a launch: the floor of its turns, in nanoseconds per iteration or operation."""
    launches = (
        [value for value in iteration_values(launch) if not math.isnan(value)] for launch in launches_of(stored)
    )
    return tuple(rank_tests.floor(values, quantile) for values in launches if values)


def uss_bytes(stored: Entry | Recording) -> tuple[float, ...]:
    """A value a memory launch: the median USS over its looks; launches on platforms without USS give none.

    It is the part of USS that was written to, where all launches have that.
    """
    return uss_of_sides(stored)[0]


def uss_of_sides(*sides: Entry | Recording) -> tuple[tuple[float, ...], ...]:
    """`uss_bytes` of each side, fit to be compared: where any launch lacks the written part, it is all of USS."""
    if all(launch.written_bytes or not launch.uss_bytes for side in sides for launch in _memory(side)):
        return tuple(_medians(launch.written_bytes for launch in _memory(side)) for side in sides)
    return tuple(_medians(launch.uss_bytes for launch in _memory(side)) for side in sides)


def _medians(launches: Iterable[tuple[int | None, ...]]) -> tuple[float, ...]:
    known = ([value for value in values if value is not None] for values in launches)
    return tuple(float(statistics.median(values)) for values in known if values)


def lock_shares(stored: Entry | Recording) -> tuple[float, ...]:
    """A value a lock launch: time waited for locks over workers x time at work, queue wait apart."""
    return tuple(
        sum(site.total_ns for site in launch.sites if site.waits_for == "lock") / (launch.workers * launch.work_ns)
        for recording in recordings(stored)
        for launch in recording.locks
    )


def scalings(stored: Entry | Recording) -> tuple[float, ...]:
    """A value a launch: throughput over that of the one-worker cell; launches without one beside them give none."""
    sides = (
        (launch.work_ratio, *rank_tests.neighbours(single_values(launch), iteration_values(launch)))
        for launch in launches_of(stored)
    )
    ratio = rank_tests.iterations_ratio
    return tuple(work * ratio(single, own, rank_tests.PAIRED) for work, single, own in sides if single and own)


def recordings(stored: Entry | Recording) -> tuple[Recording, ...]:
    """The recordings of a stored cell, or the one that was given."""
    return stored.recordings if isinstance(stored, Entry) else (stored,)


def launches_of(stored: Entry | Recording) -> Iterator[StoredLaunch]:
    """All timing launches of the recordings."""
    return (launch for recording in recordings(stored) for launch in recording.launches)


def _memory(stored: Entry | Recording) -> Iterator[StoredMemory]:
    return (launch for recording in recordings(stored) for launch in recording.memory)
