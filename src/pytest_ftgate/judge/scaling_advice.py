"""How throughput grows with the workers, and the count beyond which more do not pay. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from ..kit.values import Interval, Metric
from ..model.advice import ScalingAdvice, ScalingPoint
from ..stats import rank_tests
from .candidates import Candidate, Estimate, value, wall_log

PAYS = 0.05
"""One further worker pays where it adds at least this share of throughput."""
MOST = 1024
"""No further worker is looked at beyond this count."""


def of_candidates(known: Iterable[Candidate], cores: int) -> tuple[ScalingAdvice, ...]:
    """The scaling of each executor on each target in each setting that has several worker counts, the fastest first."""
    counted = (side for side in known if side.counted and side.target)
    ordered = sorted(counted, key=lambda side: (side.setting, side.name, side.workers))
    groups = [list(sides) for _, sides in groupby(ordered, key=lambda side: (side.setting, side.name))]
    groups.sort(key=lambda sides: (sides[-1].setting, wall_log(sides[-1])))
    found = (_scaling(sides, cores) for sides in groups)
    return tuple(each for each in found if each is not None)


def _scaling(sides: Sequence[Candidate], cores: int) -> ScalingAdvice | None:
    beside_one = [side for side in sides if side.figures.scaling is not None]
    if beside_one:
        base = 1
        points = [(side.workers, side.figures.scaling) for side in beside_one if side.figures.scaling]
    else:
        rates = [(side.workers, rate) for side in sides if (rate := _rate(side)) is not None]
        if len({workers for workers, _ in rates}) < 2:
            return None
        base, first = rates[0]
        points = [(workers, rate.minus(first).interval()) for workers, rate in rates[1:]]
    # Workers of different roles do not share one piece of work.
    alike = re.fullmatch(r"w\d+|wcores", sides[-1].counted)
    serial = _serial(base, *points[-1]) if alike else None
    enough, measured = _enough(base, points, serial)
    return ScalingAdvice(
        name=sides[0].name,
        setting=sides[0].setting,
        base=base,
        points=tuple(ScalingPoint(workers=workers, times=times) for workers, times in points),
        serial=serial,
        enough=enough,
        measured=measured,
        cores=cores,
    )


def _rate(side: Candidate) -> Estimate | None:
    """The throughput: the work of an iteration over its time."""
    wall = value(side, Metric.WALL)
    return Estimate(math.log(side.work) - wall.log, wall.half) if wall else None


def _serial(base: int, workers: int, times: Interval) -> Interval | None:
    """The serial fraction that explains the throughput from `base` to `workers` workers by Amdahl's law.

    With one as its base it is the measure of Karp and Flatt. A larger base is not scaled by itself: T(n) is
    proportional to f + (1 - f) / n, so that f follows from both times.
    """
    if workers <= base:
        return None

    def fraction(speed_up: float) -> float:
        if base == 1:
            return rank_tests.amdahl(speed_up, workers)
        # speed_up (f + (1 - f) / workers) = f + (1 - f) / base
        slope = speed_up * (1 - 1 / workers) - (1 - 1 / base)
        return (1 / base - speed_up / workers) / slope if slope > 0 else math.inf

    low, value, high = (min(1.0, max(0.0, fraction(end))) for end in (times.high, times.value, times.low))
    return Interval(value=value, low=low, high=high, level=times.level)


def _enough(base: int, points: Sequence[tuple[int, Interval]], serial: Interval | None) -> tuple[int | None, bool]:
    """The count beyond which more do not pay, and whether that was seen; else it is Amdahl's law that says it."""
    best, reached = base, 1.0
    for workers, times in points:
        if times.low > 1 and times.low > reached:
            best, reached = workers, times.value
    if best < points[-1][0]:
        return best, True
    if serial is None:
        return None, False
    speeds = ((count, 1 / (serial.value + (1 - serial.value) / count)) for count in range(1, MOST + 1))
    previous = next(speeds)
    for count, speed in speeds:
        if speed < previous[1] * (1 + PAYS):
            return previous[0], False
        previous = count, speed
    return None, False
