"""Metrics, the thresholds that are declared for them, and intervals."""

from __future__ import annotations

from enum import StrEnum

from .base import Struct

WIDEST = 10.0
"""A quantity whose interval ends that many times apart is not even known to its magnitude."""
VAGUE = 4.0
"""An interval whose ends are that many times apart, as that of two launches often is, tells no reader anything."""


class Metric(StrEnum):
    """The metrics that code refers to by name; all have a row in the metric table (judge/metrics.py)."""

    WALL = "wall"
    TAIL = "tail"
    USS = "uss"
    LOCK_WAIT = "lock_wait_share"
    SCALING = "scaling"
    CEILING = "ceiling"
    RATIO = "ratio"
    CONTRACT = "contract"


class Threshold(Struct, frozen=True, kw_only=True):
    """What counts as a change of one metric, as declared; None leaves a field to the next layer of options.

    `margin` and `effect` are fractions of the reference, `floor` is in the metric's unit (s, bytes, a fraction of the
    time, x): the fail limit is (1 + margin) reference + floor.
    """

    metric: str
    margin: float | None = None
    effect: float | None = None
    floor: float | None = None


class Interval(Struct, frozen=True, kw_only=True):
    """An estimate with its two-sided confidence interval, and the interval's exact level."""

    value: float
    low: float
    high: float
    level: float

    @property
    def vague(self) -> bool:
        """Whether its ends are so far apart that a table leaves it out."""
        return self.low > 0 and self.high > VAGUE * self.low

    @property
    def unknown(self) -> bool:
        """Whether it says nearly nothing about a quantity that is positive, because its ends are WIDEST times apart."""
        return self.low > 0 and self.high > WIDEST * self.low
