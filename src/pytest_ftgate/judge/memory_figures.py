"""Memory figures: steady, peak and growth, by process group."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from statistics import fmean

from ..model import Barrier, Footprint, Interval, Launch, MemoryPoint, RoleFigures, Sample
from ..stats import rank_tests
from .per_launch import INTERVAL_LEVEL, by_order, median_of

MEDIAN_ERROR = math.sqrt(math.pi / 2)
"""The standard error of the median of normal values over that of their mean (Kendall and Stuart 1958)."""
TREE = "tree"
"""The key of the whole process tree; the other keys are its roles."""


def memory_values(launches: Iterable[Launch], bytes_of: Callable[[MemoryPoint], int | None]) -> dict[int, float]:
    """Launch order -> the median over a launch's samples of the process tree, in bytes."""
    return by_order(sorted(launches, key=lambda each: each.order), lambda each: median_of(map(bytes_of, each.memory)))


def sampling_errors(
    launches: Sequence[Launch], others: Sequence[Launch], bytes_of: Callable[[MemoryPoint], int | None]
) -> dict[int, float]:
    """Launch order -> the standard error of the log-ratio of both sides' medians, as far as their samples show it.

    A body that allocates and frees looks larger or smaller by when it is sampled. The scatter is pooled over all
    launches, because one of them may have few samples. Empty where none has two.
    """
    own, other = ({launch.order: _logs(launch, bytes_of) for launch in side} for side in (launches, others))
    every = [logs for logs in (*own.values(), *other.values()) if logs]
    freedom = sum(len(logs) - 1 for logs in every)
    if not freedom:
        return {}
    squares = sum((each - mean) ** 2 for logs in every for mean in [fmean(logs)] for each in logs)
    scatter = math.sqrt(squares / freedom)
    both = {order: (own[order], other[order]) for order in own.keys() & other.keys()}
    return {
        order: MEDIAN_ERROR * scatter * math.sqrt(sum(1 / len(logs) for logs in sides))
        for order, sides in both.items()
        if all(sides)
    }


def _logs(launch: Launch, bytes_of: Callable[[MemoryPoint], int | None]) -> list[float]:
    return [math.log(known) for point in launch.memory if (known := bytes_of(point))]


def peak(launches: Sequence[Launch]) -> float | None:
    """The largest sampled USS in bytes: a lower bound, because the platform records no peak of it."""
    points = (point.steadiest_bytes for launch in launches for point in launch.memory)
    seen = [unique for unique in points if unique is not None]
    return float(max(seen)) if seen else None


# ---- memory by role


def roles(launches: Sequence[Launch]) -> dict[str, RoleFigures]:
    """The figures of the tree and of each role in any sample."""
    points = [point for launch in launches for point in _points(launch)]
    names = sorted({name for point in points for name in point.roles})
    return {name: _role(launches, name) for name in ([TREE] if points else []) + names}


def _role(launches: Sequence[Launch], name: str) -> RoleFigures:
    processes = steady(launches, name, lambda part: part.processes)
    if processes is None:
        parts = (_parts(_points(launch), name, lambda part: part.processes) for launch in launches)
        processes = median_of(map(median_of, parts))
    return RoleFigures(
        processes=round(processes or 0),
        steady_rss=steady(launches, name, lambda part: part.rss_bytes),
        steady_uss=steady(launches, name, lambda part: part.steadiest_bytes),
        steady_pss=steady(launches, name, lambda part: part.pss_bytes),
        peak_rss=_highest(launches, name, lambda part: part.rss_bytes),
        peak_uss=_highest(launches, name, lambda part: part.steadiest_bytes),
        peak_pss=_highest(launches, name, lambda part: part.pss_bytes),
    )


def _points(launch: Launch) -> list[MemoryPoint]:
    """All samples of a launch, those at barriers included."""
    return list(chain(launch.memory, (barrier.point for barrier in launch.barriers)))


def _parts(points: Iterable[MemoryPoint], name: str, figure_of: Callable[[Footprint], int | None]) -> list[int | None]:
    """A figure of the tree, or of a role in the samples that have it."""
    parts = (point if name == TREE else point.roles.get(name) for point in points)
    return [figure_of(part) for part in parts if part is not None]


def steady(launches: Sequence[Launch], name: str, figure_of: Callable[[Footprint], int | None]) -> float | None:
    """The median over launches of the median over barriers but the first, if there are more."""
    later = ([barrier.point for barrier in launch.barriers[1:] or launch.barriers] for launch in launches)
    return median_of(median_of(_parts(points, name, figure_of)) for points in later)


def _highest(launches: Sequence[Launch], name: str, figure_of: Callable[[Footprint], int | None]) -> float | None:
    """The median over launches of the largest figure of any sample."""
    by_launch = (_parts(_points(launch), name, figure_of) for launch in launches)
    return median_of(max((figure for figure in sampled if figure is not None), default=None) for sampled in by_launch)


def growth(launches: Sequence[Launch], floor: Sequence[Launch]) -> Interval | None:
    """Bytes that an iteration leaves behind: the slope over barriers of the written USS above an empty workload's.

    An empty workload grows too at first: a forked child and its parent stop sharing the pages that they write to.
    """
    empty = [_unique_at(floor, index) for index in range(max((len(launch.barriers) for launch in floor), default=0))]
    lines = [line for launch in launches if (line := _line(launch.barriers, empty)) is not None]
    return rank_tests.slope_interval(lines, INTERVAL_LEVEL) if lines else None


def growth_values(sample: Sample) -> dict[int, float]:
    """Launch order -> bytes that an iteration leaves behind; 0 for a launch that shrank."""
    found = {launch.order: growth([launch], sample.growth_floor) for launch in sample.growth}
    return {order: max(0.0, slope.value) for order, slope in found.items() if slope is not None}


def _unique_at(launches: Sequence[Launch], index: int) -> float | None:
    points = (launch.barriers[index].point for launch in launches if index < len(launch.barriers))
    return median_of(point.steadiest_bytes for point in points)


def _line(barriers: Sequence[Barrier], empty: Sequence[float | None]) -> tuple[list[float], list[float]] | None:
    """Iterations so far and bytes at each barrier with a figure, except the first; None without two such barriers.

    What is loaded once is present at the first barrier and is not growth. After the last barrier of the empty workload
    its last figure is used.
    """
    known = [unique or 0.0 for unique in empty] or [0.0]
    floors = known + known[-1:] * max(0, len(barriers) - len(known))
    iterations = list(accumulate(barrier.ops for barrier in barriers))
    points = [
        (float(so_far), float(unique) - below)
        for so_far, barrier, below in list(zip(iterations, barriers, floors, strict=False))[1:]
        if (unique := barrier.point.steadiest_bytes) is not None
    ]
    xs, ys = [point[0] for point in points], [point[1] for point in points]
    return (xs, ys) if xs and xs[0] < xs[-1] else None
