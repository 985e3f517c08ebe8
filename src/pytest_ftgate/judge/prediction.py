"""The decision from stored recordings alone, by prediction limits for the next one. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from ..model import Comparison, Decision, Interval, MetricVerdict
from .evidence import INTERVAL_LEVEL, as_costs, ruled_out, without_values
from .metrics import is_gain, row
from .scale import allowed, beside_limit, least_share, moved_log, passing, points, ratio, shown_shift

PRIOR_FREEDOM = 8
"""Weight of the prior deviation of a metric (`MetricRow.between`): that of PRIOR_FREEDOM + 1 recordings. Otherwise two
recordings that agree by chance would make the next one a regression."""
LEAST_LAUNCHES, MOST_LAUNCHES = 5, 12
"""New launches before a decision: two outliers do not move the median of five far, and five give the overhead of a
probe an exact interval of 90 % (see `decide.refused`)."""
SMALL_PART = 0.5
"""More launches narrow the limits by a tenth at most once their part of the deviation is this share of the others."""


def predict(comparison: Comparison, recordings: Sequence[Sequence[float]]) -> MetricVerdict:
    """The decision from stored `recordings`: on what is stored alone, as a screen or for good.

    `recordings` holds the per-launch values of each, in the unit of `comparison.new`; `comparison.reference` is not
    read. The unit of replication is the recording. The median of the new launches is compared with prediction limits
    (Hahn & Meeker 1991, "Statistical Intervals"): the next recording of unchanged code stays below the upper one with
    probability 1 - alpha, by Student's t around the mean of the stored medians, moved by margin and floor. The variance
    between recordings is the observed one, pooled with the prior of the metric, plus the variance of a median of so few
    launches. Regressed above that limit, improved below the mirrored one. Passed if a change as large as the effect
    would have shown a larger median with probability 1 - beta. Else inconclusive.

    There is one look, so no level is split: at `final`, or once more launches would hardly narrow the limits. When that
    is depends on the variance alone, not on the change. Before it, `more` says how many launches are missing; after it
    an open decision has `more` = 0. Errors and no baseline as in `compare`.
    """
    everything = tuple(value for recording in recordings for value in recording)
    if refusal := without_values(msgspec.structs.replace(comparison, reference=everything)):
        return refusal
    costs = as_costs(comparison)
    invert = is_gain(costs.metric)
    stored = [[1 / value if invert else value for value in recording] for recording in recordings if recording]
    spread = _Spread.of(costs, stored)
    own, middle = spread.own, spread.middle
    more = 0 if costs.final else spread.missing(len(costs.new))
    decision = _decided(costs, spread) if not more else Decision.INCONCLUSIVE
    rejects = partial(_rejects, costs, spread)
    half = spread.reach((1 - INTERVAL_LEVEL) / 2)
    around = [shown_shift(costs, own + step, middle) for step in (-half, 0.0, half)]
    shift = Interval(low=around[0], value=around[1], high=around[2], level=INTERVAL_LEVEL)
    return MetricVerdict(
        metric=costs.metric,
        decision=decision,
        ratio=ratio(costs.metric, shift),
        points=points(costs.metric, shift),
        reason=_foretold(costs, decision, spread, len(stored)),
        launches=len(costs.new),
        more=more if decision is Decision.INCONCLUSIVE else None,
        allowed=allowed(costs.metric, shown_shift(costs, spread.limit(costs), middle)),
        wall_growth=max(costs.wall_growth, default=1.0),
        ruled_out=None if more else ruled_out(costs, [math.exp(spread.middle) - least_share(costs)], rejects),
        beyond=decision is Decision.INCONCLUSIVE and spread.own > _passing_log(costs, spread.middle, costs.effect),
    )


def _decided(costs: Comparison, spread: _Spread) -> Decision:
    if spread.own > spread.limit(costs):
        return Decision.REGRESSED
    measured = spread.middle - math.log(max(costs.wall_growth, default=1.0))  # a longer body improves no tail
    if moved_log(costs, spread.own) + spread.reach(costs.alpha) < measured:
        return Decision.IMPROVED
    return Decision.PASSED if _rejects(costs, spread, costs.effect) else Decision.INCONCLUSIVE


def _rejects(costs: Comparison, spread: _Spread, effect: float) -> bool:
    """Whether a change as large as `effect` would have shown a larger median."""
    return spread.own + spread.reach(costs.beta) < _passing_log(costs, spread.middle, effect)


def _passing_log(costs: Comparison, centre: float, effect: float) -> float:
    """A centre moved to the pass limit of an effect."""
    least = least_share(costs)
    return math.log(passing(costs, [math.exp(centre) - least], effect)[0] + least)


class _Spread(NamedTuple):
    """The new median and the mean of the stored ones, as logs of costs, and the deviation of their difference.

    `launch` is the standard deviation of the median that one new launch would give, `others` that of everything but the
    new launches: of the recordings, and of the medians of the stored ones.
    """

    own: float
    middle: float
    deviation: float
    freedom: int
    launch: float
    others: float

    @classmethod
    def of(cls, costs: Comparison, stored: Sequence[Sequence[float]]) -> _Spread:
        """The spread of new launches and of each recording's, all as costs."""
        least = least_share(costs)
        new, *recordings = [[math.log(value + least) for value in run] for run in (costs.new, *stored)]
        centres = [math.log(median(run) + least) for run in stored]
        between, freedom = _predictive(costs.metric, centres)
        launch = _launch_deviation([new, *recordings])
        shares = sum(1 / len(run) for run in recordings) / len(recordings) ** 2
        others = math.hypot(between, launch * math.sqrt(shares))
        return cls(
            own=math.log(median(costs.new) + least),
            middle=fmean(centres),
            deviation=math.hypot(others, launch / math.sqrt(len(new))),
            freedom=freedom,
            launch=launch,
            others=others,
        )

    def reach(self, error: float) -> float:
        """How far from the mean the next median lies at most, but for this error."""
        return _student(1 - error, self.freedom) * self.deviation

    def limit(self, costs: Comparison) -> float:
        """The limit above which the next median is a regression."""
        return moved_log(costs, self.middle) + self.reach(costs.alpha)

    def missing(self, launches: int) -> int:
        """How many more launches it takes until their part of the deviation is small."""
        wanted = (self.launch / (SMALL_PART * self.others)) ** 2
        return max(0, max(LEAST_LAUNCHES, min(math.ceil(wanted), MOST_LAUNCHES)) - launches)


def _launch_deviation(runs: Sequence[Sequence[float]]) -> float:
    """The standard deviation of the median of one launch's log around its run's centre, pooled over all runs.

    A median of n values has pi / (2 n) times their variance (Laplace 1818).
    """
    freedom = sum(len(run) - 1 for run in runs)
    squares = sum((value - fmean(run)) ** 2 for run in runs for value in run)
    return math.sqrt(squares / freedom * math.pi / 2) if freedom else 0.0


def _predictive(metric: str, centres: Sequence[float]) -> tuple[float, int]:
    """The standard deviation of the next recording around the mean of `centres` (logs), and its degrees of freedom."""
    count, middle = len(centres), fmean(centres)
    freedom = PRIOR_FREEDOM + count - 1
    prior = row(metric).between
    squares = PRIOR_FREEDOM * prior**2 + sum((centre - middle) ** 2 for centre in centres)
    return math.sqrt(squares / freedom * (1 + 1 / count)), freedom


def _student(probability: float, freedom: int) -> float:
    from scipy.special import stdtrit  # half a second: only a run that measured pays it

    return float(stdtrit(freedom, probability))


def _foretold(costs: Comparison, decision: Decision, spread: _Spread, recordings: int) -> str:
    """The reason of a prediction, in one line; empty for a pass."""
    shifts = (shown_shift(costs, centre, spread.middle) for centre in (spread.own, spread.limit(costs)))
    change, beyond = beside_limit(costs.metric, *shifts)
    stored = f"{recordings} stored recording" + ("" if recordings == 1 else "s")
    if decision is Decision.REGRESSED:
        return f"{change} is beyond {beyond}, the limit predicted from {stored} (needs p <= {costs.alpha:.2g})"
    if decision is Decision.IMPROVED:
        return f"{change} is beyond the range predicted from {stored} (needs p <= {costs.alpha:.2g})"
    if decision is Decision.PASSED:
        return ""
    return (
        f"{change} against {stored}, which can only detect a change beyond {beyond}; "
        "--ftgate-against or more recordings would settle it"
    )
