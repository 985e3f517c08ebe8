"""The decision from stored recordings alone, by prediction limits for the next one. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from ..kit.values import Interval
from ..model.verdict import Comparison, Decision, MetricVerdict
from .decide import INTERVAL_LEVEL, as_costs, ruled_out, suspect_level, without_values
from .limits import allowed, beside_limit, bounded, failing, least_share, passing, ratio, tested
from .metrics import is_gain, is_share, row

PRIOR_FREEDOM = 12
"""Weight of the prior deviation of a metric (`MetricRow.between`): that of PRIOR_FREEDOM + 1 recordings. Otherwise two
recordings that agree by chance would make the next one a regression."""
OBVIOUS = math.log(1.7)
"""Beyond the margin by this, a change is suspect however little is known of the deviation, if the launches of both runs
hardly overlap: twice the time fails."""
FEWEST = 3
"""Launches of either side that show whether both overlap."""
LEAST_LAUNCHES, MOST_LAUNCHES = 5, 12
"""New launches before a decision: two outliers do not move the median of five far, and five give the overhead of a
probe an exact interval of 90 % (see `decide.refused`)."""
SMALL_PART = 0.5
"""More launches narrow the limits by a tenth at most once their part of the deviation is this share of the others."""


def predict(comparison: Comparison, recordings: Sequence[Sequence[float]], moved: float = 0.0) -> MetricVerdict:
    """The decision from stored `recordings`: on what is stored alone, as a screen or for good.

    `recordings` holds the per-launch values of each, in the unit of `comparison.new`; `comparison.reference` is not
    read. The unit of replication is the recording. The median of the new launches is compared with prediction limits
    (Hahn & Meeker 1991, "Statistical Intervals"): the next recording of unchanged code stays below the upper one with
    probability 1 - alpha, by Student's t around the mean of the stored medians, moved by margin and floor. The variance
    between recordings is the observed one, pooled with the prior of the metric, plus the variance of a median of so few
    launches. Regressed above that limit, improved below the mirrored one. Passed if a change as large as the effect
    would have shown a larger median with probability 1 - beta. Else suspect if it lies beyond the effect and either the
    limit of `decide.suspect_level` or OBVIOUS, else inconclusive. `moved` is what the conditions of this run add: see
    `decide.deviation`.

    Where no run has two launches, nothing shows how far launches of unchanged code lie apart. The metric's prior stands
    for it, and nothing is decided: what is OBVIOUS is suspect.

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
    spread = _Spread.of(costs, stored, moved)
    more = 0 if costs.final else spread.missing(len(costs.new))
    decision = _decided(spread) if not more else Decision.INCONCLUSIVE
    before = [spread.value(spread.middle)]
    half = spread.reach((1 - INTERVAL_LEVEL) / 2)
    low, value, high = (spread.shown(spread.own + step) for step in (-half, 0.0, half))
    shift = Interval(low=low, value=value, high=high, level=INTERVAL_LEVEL)
    limit = min(spread.limit(costs.alpha), _suspect_limit(spread)) if spread.seen else _suspect_limit(spread)
    passes = spread.passing(costs.limits.effect)
    return MetricVerdict(
        metric=costs.metric,
        decision=decision,
        ratio=ratio(costs.metric, shift),
        points=shift if is_share(costs.metric) else None,
        reason=_foretold(decision, spread, len(stored)),
        launches=len(costs.new),
        more=more if decision is Decision.INCONCLUSIVE else None,
        allowed=allowed(costs.metric, spread.shown(limit)),
        effect=allowed(costs.metric, spread.shown(passes)),
        wall_growth=max(costs.wall_growth, default=1.0),
        ruled_out=None if more or not spread.seen else ruled_out(costs, before, spread.rejects),
        beyond=decision is Decision.INCONCLUSIVE and spread.own > passes,
    )


def _decided(spread: _Spread) -> Decision:
    costs = spread.costs
    if not spread.seen:
        return Decision.SUSPECT if spread.own > _suspect_limit(spread) else Decision.INCONCLUSIVE
    if spread.own > spread.limit(costs.alpha):
        return Decision.REGRESSED
    measured = spread.middle - math.log(max(costs.wall_growth, default=1.0))  # a longer body improves no tail
    if spread.failing(spread.own) + spread.reach(costs.alpha) < measured:
        return Decision.IMPROVED
    if spread.rejects(costs.limits.effect):
        return Decision.PASSED
    return Decision.SUSPECT if spread.own > _suspect_limit(spread) else Decision.INCONCLUSIVE


def _suspect_limit(spread: _Spread) -> float:
    """The limit above which the next median fails as suspect."""
    likely, obvious = spread.limit(suspect_level(spread.costs.alpha)), spread.failing(spread.middle) + OBVIOUS
    if not spread.seen:
        likely = max(likely, obvious)
    elif spread.apart and not is_share(spread.costs.metric):
        likely = min(likely, obvious)
    return max(likely, spread.passing(spread.costs.limits.effect))


class _Spread(NamedTuple):
    """The new median and the mean of the stored ones, as logs of costs, and the deviation of their difference.

    `launch` is the standard deviation of the median that one new launch would give, `others` that of everything but the
    new launches: of the recordings, and of the medians of the stored ones. `apart` says that three quarters of the new
    launches lie above three quarters of the stored ones, `seen` that a run has several launches, which show `launch`.
    """

    costs: Comparison
    own: float
    middle: float
    deviation: float
    freedom: float
    launch: float
    others: float
    apart: bool
    seen: bool

    @classmethod
    def of(cls, costs: Comparison, stored: Sequence[Sequence[float]], moved: float) -> _Spread:
        """The spread of new launches and of each recording's, all as costs."""
        new, *recordings = (tested(costs, run) for run in (costs.new, *stored))
        own, *centres = tested(costs, [median(costs.new), *map(median, stored)])
        runs = [new, *recordings]
        seen = any(len(run) > 1 for run in runs)
        launch, launches = _launch_deviation(runs) if seen else (row(costs.metric).spread, PRIOR_FREEDOM)
        shares = sum(1 / len(run) for run in recordings) / len(recordings) ** 2
        between, freedom = _between(costs.metric, centres, moved)
        others = math.hypot(between, launch * math.sqrt(shares))
        deviation = math.hypot(others, launch / math.sqrt(len(new)))
        of_launches = deviation**2 - between**2
        return cls(
            costs=costs,
            own=own,
            middle=fmean(centres),
            deviation=deviation,
            # That of a sum of variances (Satterthwaite 1946).
            freedom=deviation**4 / (between**4 / freedom + of_launches**2 / max(1, launches)),
            launch=launch,
            others=others,
            apart=_apart(new, [value for run in recordings for value in run]),
            seen=seen,
        )

    def reach(self, error: float) -> float:
        """How far from the mean the next median lies at most, but for this error."""
        return _critical(self.freedom, 1 - error) * self.deviation

    def limit(self, level: float) -> float:
        """The limit above which the next median has become worse, at this level."""
        return self.failing(self.middle) + self.reach(level)

    def rejects(self, effect: float) -> bool:
        """Whether a change as large as `effect` would have shown a larger median."""
        return self.own + self.reach(self.costs.beta) < self.passing(effect)

    def failing(self, centre: float) -> float:
        """A centre moved by margin and floor."""
        return tested(self.costs, failing(self.costs, [self.value(centre)]))[0]

    def passing(self, effect: float) -> float:
        """The stored centre moved to the pass limit of an effect."""
        return tested(self.costs, passing(self.costs, [self.value(self.middle)], effect))[0]

    def value(self, centre: float) -> float:
        """A centre as the value that it is of."""
        return math.exp(centre) - least_share(self.costs)

    def shown(self, centre: float) -> float:
        """How far a centre lies from the stored one, on the metric's scale."""
        return (
            math.exp(bounded(centre)) - math.exp(self.middle) if is_share(self.costs.metric) else centre - self.middle
        )

    def missing(self, launches: int) -> int:
        """How many more launches it takes until their part of the deviation is small."""
        wanted = (self.launch / (SMALL_PART * self.others)) ** 2
        return max(0, max(LEAST_LAUNCHES, min(math.ceil(wanted), MOST_LAUNCHES)) - launches)


@lru_cache(maxsize=64)  # each effect that may be ruled out asks for the same one
def _critical(freedom: float, probability: float) -> float:
    from scipy.special import stdtrit  # half a second: only a run that measured pays it

    return float(stdtrit(freedom, probability))


def _apart(new: Sequence[float], stored: Sequence[float]) -> bool:
    """Whether three quarters of the new launches lie above three quarters of the stored ones; where there are few, all.

    Never of fewer than FEWEST.
    """
    fewest = min(len(new), len(stored))
    outliers = 0.25 if fewest >= LEAST_LAUNCHES else 0.0
    low, high = sorted(new)[int(outliers * len(new))], sorted(stored, reverse=True)[int(outliers * len(stored))]
    return fewest >= FEWEST and low > high


def _launch_deviation(runs: Sequence[Sequence[float]]) -> tuple[float, int]:
    """The standard deviation of the median of one launch's log around its run's centre, and its degrees of freedom.

    It is pooled over all runs, of which one has several launches, from absolute deviations: a median does not follow
    single launches, and they are not to widen its limits. Of a normal value it is pi / 2 times the mean absolute
    deviation (Laplace 1818).
    """
    several = [run for run in runs if len(run) > 1]
    freedom = sum(len(run) - 1 for run in several)
    # The deviations from n values' own median are too small by about the root of (n - 1) / n.
    found: list[float] = []
    for run in several:
        wider, middle = math.sqrt(len(run) / (len(run) - 1)), median(run)
        found += [wider * abs(value - middle) for value in run]
    return math.pi / 2 * fmean(found), freedom


def _between(metric: str, centres: Sequence[float], moved: float) -> tuple[float, int]:
    """The standard deviation of the next recording around the mean of `centres` (logs), and its degrees of freedom."""
    count, middle = len(centres), fmean(centres)
    freedom = PRIOR_FREEDOM + count - 1
    prior = row(metric).between
    squares = PRIOR_FREEDOM * prior**2 + sum((centre - middle) ** 2 for centre in centres)
    added = moved * prior if row(metric).unit != "size" else 0.0
    return math.hypot(math.sqrt(squares / freedom * (1 + 1 / count)), added), freedom


def _foretold(decision: Decision, spread: _Spread, recordings: int) -> str:
    """The reason of a prediction, in one line; empty for a pass."""
    costs = spread.costs
    limit = spread.limit(costs.alpha) if decision is Decision.REGRESSED else _suspect_limit(spread)
    change, beyond = beside_limit(costs.metric, spread.shown(spread.own), spread.shown(limit))
    stored = f"{recordings} stored recording" + ("" if recordings == 1 else "s")
    if decision is Decision.REGRESSED:
        return f"{change} is beyond {beyond}, the limit predicted from {stored} (needs p <= {costs.alpha:.2g})"
    if decision is Decision.SUSPECT:
        return f"{change} is beyond {beyond}, the limit of a likely regression by {stored}"
    if decision is Decision.IMPROVED:
        return f"{change} is beyond the range predicted from {stored} (needs p <= {costs.alpha:.2g})"
    if decision is Decision.PASSED:
        return ""
    if not spread.seen:
        return (
            f"{change} from one launch on either side, which shows no scatter: more time (--ftgate-test-time) or "
            "launches (ftgate_launches) would settle it"
        )
    return (
        f"{change} against {stored}, which can only detect a change beyond {beyond}; "
        "--ftgate-against or more recordings would settle it"
    )
