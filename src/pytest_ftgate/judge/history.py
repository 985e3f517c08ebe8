"""The history of a metric: its value in each recording, and where its level changed. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..model.report import History, HistoryPoint, LevelChange
from ..stats import rank_tests
from ..stats.change_points import change_points
from ..store.schema import Recording
from . import compare, metrics

INTERVAL_LEVEL = 0.95


def history(recordings: Sequence[Recording], metric: str, *, fingerprint: str, build: str) -> History | None:
    """A metric over recordings of one machine and build, oldest first; None if no recording has it.

    A time is that over the control workload of the same launches, as in comparisons with stored launches: the machine's
    speed of the day cancels.
    """
    unit, values = compare.of_recordings(recordings, metric)
    known = [(recording, each) for recording, each in zip(recordings, values, strict=True) if each]
    if not known:
        return None
    positive = all(value > 0 for _, each in known for value in each)
    points = tuple(
        HistoryPoint(
            commit=recording.commit,
            recorded_at=recording.recorded_at,
            value=rank_tests.log_interval(each) if positive else rank_tests.location(each, INTERVAL_LEVEL),
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
            rank_tests.geometric_mean(level) if all(value > 0 for value in level) else sum(level) / len(level)
            for level in (centres[low:index], centres[index:high])
        )
        if before > 0 and not metrics.is_share(metric):
            changes.append(LevelChange(index=index, ratio=after / before))
        else:
            changes.append(LevelChange(index=index, difference=after - before))
    return History(metric=metric, unit=unit, build=build, points=points, changes=tuple(changes))
