"""The frozen words that travel down the house: Spec -> Plan -> Launch -> Sample -> Comparison -> Verdict -> Report."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from .base import Struct
from .metric import Interval


class Decision(StrEnum):
    """The verdict on one metric of one cell, or on the cell. BROKEN is a contract that does not hold."""

    PASSED = "passed"
    REGRESSED = "regressed"
    BROKEN = "broken"
    IMPROVED = "improved"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no baseline"
    ERROR = "error"
    UNSUPPORTED = "unsupported"


Test = Literal["ranks", "pairs", "blocks"]
"""What compares two sides: `ranks` launches that are neighbours of nobody (exact rank sum), `pairs` those that took
turns (exact signed rank of log-ratios), `blocks` those of the same rounds (exact rank sums within blocks of four)."""


class Look(Struct, frozen=True, kw_only=True):
    """A number of new launches (pairs) at which a decision may be made, with the levels that it may spend."""

    launches: int
    alpha: float
    beta: float


class Comparison(Struct, frozen=True, kw_only=True):
    """New launches against a reference's, one metric, as numbers per launch.

    `new` and `reference` are per-launch values: for wall and tail a time in ns or its ratio to the candle of the same
    tandem (dimensionless), for USS bytes, for the lock-wait share a fraction, for scaling a ratio of which more is
    better, for `ratio` the time over that of the reference executor. Unless `test` is `ranks`, `new[i]` and
    `reference[i]` are of the same round. The fail limit is (1 + margin) reference + floor, the latter in `unit`; the
    pass limit (1 + effect) reference, of the lock-wait share with twice the floor.

    `looks` ascend, their levels sum up to `alpha` and `beta` at most, those of this hypothesis; none: one look at all
    there is. With `final` no launch will come: the levels left are spent at what there is, and the effect is widened up
    to `widest` where the noise leaves no other way to pass.
    """

    metric: str
    new: tuple[float, ...]
    reference: tuple[float, ...]
    unit: str
    margin: float
    effect: float
    floor: float = 0.0
    alpha: float = 0.01
    beta: float = 0.05
    test: Test = "ranks"
    looks: tuple[Look, ...] = ()
    final: bool = True
    widest: float = 0.25


class MetricVerdict(Struct, frozen=True, kw_only=True):
    """The decision on one metric: the Hodges-Lehmann change with its interval, and the p-values.

    `ratio` is new / reference; of a share, which may be zero, it is None and `points` is new - reference. `launches` is
    the number of new launches (pairs) that the decision rests on, `more` how many more would settle one that is
    inconclusive, None where no number is known to. `contract` is the text of a contract, of Metric.CONTRACT alone.
    """

    metric: str
    decision: Decision
    ratio: Interval | None = None
    points: Interval | None = None
    p_fail: float | None = None
    p_pass: float | None = None
    reason: str = ""
    launches: int = 0
    more: int | None = None
    contract: str = ""


Basis = Literal["", "stored", "predicted", "portable", "paired"]
"""What a cell was judged by: the stored launches of this machine, a prediction from stored recordings, what travels of
another machine's recordings, or its reference measured beside it."""


class Verdict(Struct, frozen=True, kw_only=True):
    """The decision on one cell: the worst of its metrics; by which road it came about, and why by that one.

    `same_code` says that nothing was changed since its baseline's commit.
    """

    decision: Decision
    metrics: tuple[MetricVerdict, ...] = ()
    reason: str = ""
    baseline: str = ""
    commit: str = ""
    basis: Basis = ""
    why: str = ""
    same_code: bool = False
