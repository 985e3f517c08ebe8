"""The history of a metric: its value in each recording, and where its level changed. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...judge import comparisons, metrics
from ...kit.values import Interval, Struct
from ...stats import estimators, intervals
from ...stats.change_points import change_points
from ...store.schema import Recording

INTERVAL_LEVEL = 0.95


class HistoryPoint(Struct, frozen=True, kw_only=True):
    """One recording of a metric in the history of its baseline: the centre of its launches with its interval."""

    commit: str
    recorded_at: str
    value: Interval
    launches: int = 0
    fingerprint: str = ""


class LevelChange(Struct, frozen=True, kw_only=True):
    """A change of level that begins with the recording at `index`.

    `ratio` is the level after over the one before; of a share, or from zero, `difference` is after - before instead.
    """

    index: int
    ratio: float | None = None
    difference: float | None = None


class History(Struct, frozen=True, kw_only=True):
    """The recordings of one metric of a cell on one machine and build, oldest first, and where its level changed.

    `unit` is that of the metric table (time in ns, size in bytes, share, ratio, number). A time is `at_one_speed` if a
    control workload ran beside it.
    """

    metric: str
    points: tuple[HistoryPoint, ...]
    changes: tuple[LevelChange, ...] = ()
    unit: str = ""
    at_one_speed: bool = False
    build: str = ""


def series(recordings: Sequence[Recording], metric: str, *, fingerprint: str, build: str) -> History | None:
    """A metric over recordings of one machine and build, oldest first; None if no recording has it.

    A time is that at the usual speed of all these recordings, as in comparisons with what is stored.
    """
    paced, values = comparisons.of_recordings(recordings, metric)
    known = [(recording, each) for recording, each in zip(recordings, values, strict=True) if each]
    if not known:
        return None
    positive = all(value > 0 for _, each in known for value in each)
    points = tuple(
        HistoryPoint(
            commit=recording.commit,
            recorded_at=recording.recorded_at,
            value=intervals.log_interval(each) if positive else intervals.location(each, INTERVAL_LEVEL),
            launches=len(each),
            fingerprint=fingerprint,
        )
        for recording, each in known
    )
    centres = [point.value.value for point in points]
    at = change_points([math.log(value) for value in centres] if positive else centres)

    # Each change of level, as the mean of the recordings after it, up to the next one, against those before it.
    ends, changes = (0, *at, len(centres)), []
    for low, index, high in zip(ends, ends[1:], ends[2:], strict=False):
        before, after = (
            estimators.geometric_mean(level) if all(value > 0 for value in level) else sum(level) / len(level)
            for level in (centres[low:index], centres[index:high])
        )
        if before > 0 and not metrics.by_difference(metric):
            changes.append(LevelChange(index=index, ratio=after / before))
        else:
            changes.append(LevelChange(index=index, difference=after - before))
    return History(
        metric=metric,
        unit=metrics.row(metric).unit,
        at_one_speed=paced,
        build=build,
        points=points,
        changes=tuple(changes),
    )
