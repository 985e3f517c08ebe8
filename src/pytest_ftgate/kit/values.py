"""The base of every frozen value."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from enum import StrEnum
from typing import Annotated, TypeAlias, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
LARGEST = 1e30
"""No figure is larger: sums of squares of such are still finite."""
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=LARGEST)]
Figure = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
CommitId: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A(?:(?:[0-9a-f]{40}|[0-9a-f]{64})\+?)?\Z")]
"""A whole object id of git (SHA-1 or SHA-256), with `+` for uncommitted changes; empty: unknown."""


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """Base of every value here: immutable, keyword-only, strict when decoded, never part of a reference cycle."""


def grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Items by key, in the order of first appearance."""
    groups: dict[K, list[T]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def fault_of(error: msgspec.ValidationError) -> tuple[str, str]:
    """Why a value cannot be decoded, and its place in the whole, which is `$`."""
    fault, _, place = str(error).partition(" - at `")
    if "matching regex" in fault:  # the one that git writes says little to people
        fault = "is not of the form that is written there"
    return fault, place.removesuffix("`") or "$"


# Metrics, the thresholds that are declared for them, and intervals.

WIDEST = 10.0
"""If the ends of an interval are this many times apart, not even the magnitude is known."""
VAGUE = 4.0
"""If the ends are this many times apart, as they often are for two launches, a table leaves the interval out."""


class Metric(StrEnum):
    """The metrics that code refers to by name; all have a row in the metric table (judge/metrics.py)."""

    WALL = "wall"
    TAIL = "tail"
    CPU = "cpu"
    START = "start"
    USS = "uss"
    UNSHARED = "unshared"
    GROWTH = "growth"
    LOCK_WAIT = "lock_wait"
    SCALING = "scaling"
    CEILING = "ceiling"
    LOCK_CEILING = "lock_ceiling"
    CONTRACT = "contract"


class Threshold(Struct, frozen=True, kw_only=True):
    """The declared size of a change of one metric; None leaves a field to the next layer of options.

    `margin` and `effect` are fractions of the reference, `floor` is in the metric's unit (s, bytes, a fraction of the
    time, x): the fail limit is (1 + margin) reference + floor.
    """

    metric: str
    margin: float | None = None
    effect: float | None = None
    floor: float | None = None


class Interval(Struct, frozen=True, kw_only=True):
    """An estimate with its two-sided confidence interval, and the interval's exact level.

    Level 0: the launches carry no interval, and `low` and `high` are the range of what they gave.
    """

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
