"""The decision from stored recordings alone, by prediction limits for the next one. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean, median
from typing import NamedTuple

from ..kit.values import Interval
from ..model.verdict import Comparison, Decision, MetricVerdict, Reason, Why
from ..stats import intervals
from ..store.schema import RECORDINGS_KEPT
from .decide import INTERVAL_LEVEL, LEAST_SUSPECT, ruled_out, suspect_level, without_values
from .limits import allowed, as_costs, bounded, failing, offset, passing, ratio, tested
from .metrics import by_difference, row

PRIOR_FREEDOM = 12
"""Weight of the prior deviation of a metric (`MetricRow.between`): that of PRIOR_FREEDOM + 1 recordings. Otherwise two
recordings that agree by chance would make the next one a regression."""
DAY_FREEDOM = 1
"""The same of the deviation from day to day (`MetricRow.day`): two days of their own have as much weight."""
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


def predict(comparison: Comparison, moved: float = 0.0) -> MetricVerdict:
    """The decision from stored recordings.

    The unit of replication is the day, with all that was recorded on it. The median of the new launches is compared
    with prediction limits (Hahn & Meeker 1991, "Statistical Intervals"): that of the next day of unchanged code stays
    below the upper one with probability 1 - alpha, by Student's t around the mean of the days' medians, moved by margin
    and floor. The variance between days is the observed one, pooled with the prior of the metric, plus the variance of
    a median of so few launches. A new run of a day that is stored counts as another one: nothing says that it had the
    same machine. Regressed above that limit, improved below the mirrored one. Passed if a change as large as the effect
    would have shown a larger median with probability 1 - beta. Else suspect if it lies beyond the effect and either the
    limit of `decide.suspect_level` or OBVIOUS, else inconclusive. `moved` is what the conditions of this run add: see
    `decide.deviation`.

    Where no run has two launches, nothing shows how far launches of unchanged code lie apart, and nothing is decided. A
    failure needs two new launches beyond its limit.

    There is one look, so no level is split: at `final`, or once more launches would hardly narrow the limits. When that
    is depends on the variance alone, not on the change. Before it, `more` says how many launches are missing; after it
    an open decision has `more` = 0. Errors and no baseline as in `decide.by_pairs`.
    """
    if refusal := without_values(comparison):
        return refusal
    costs = as_costs(comparison)
    runs = _Runs.of(costs)
    spread = _Spread.of(costs, runs, moved)
    more = 0 if costs.final else spread.missing(len(costs.new))

    # The limits above which the next median has regressed, and above which it fails as suspect.
    passes, fails, unlikely = spread.passing(costs.limits.effect), spread.limit(costs.alpha), spread.suspects()
    worse = spread.worse

    # The decision, and the reason for it.
    ready = runs.seen and not more
    limit, tested_at, advice = unlikely, None, tuple[Reason, ...]()
    if ready and worse > fails:
        decision, code, limit, tested_at = Decision.REGRESSED, Why.PREDICTED_WORSE, fails, costs.alpha
    elif ready and spread.improves():
        decision, code, tested_at = Decision.IMPROVED, Why.PREDICTED_BETTER, costs.alpha
    elif ready and spread.rejects(costs.limits.effect):
        decision, code = Decision.PASSED, None
    elif not more and worse > unlikely:
        decision, code = Decision.SUSPECT, Why.PREDICTED_LIKELY
    elif len(runs.new) >= LEAST_SUSPECT:
        decision, code = Decision.INCONCLUSIVE, Why.PREDICTED_OPEN
        advice = () if more else (_settles(spread, moved),)
    else:
        decision, code = Decision.INCONCLUSIVE, Why.ONE_LAUNCH
    most = allowed(costs.metric, spread.shown(limit))
    told = (Reason(code=code, limit=most, counts=(len(costs.recordings),), level=tested_at),) if code else ()

    half, level = spread.reach((1 - INTERVAL_LEVEL) / 2), INTERVAL_LEVEL
    ends = [runs.own - half, runs.own, runs.own + half]
    if len(runs.new) < intervals.FEWEST:
        ends, level = [runs.new[0], runs.own, runs.new[-1]], 0.0
    low, value, high = map(spread.shown, ends)
    shift = Interval(low=low, value=value, high=high, level=level)
    return MetricVerdict(
        metric=costs.metric,
        decision=decision,
        ratio=ratio(costs.metric, shift),
        points=shift if by_difference(costs.metric) else None,
        reasons=(*advice, *told),
        launches=len(costs.new),
        more=more if decision is Decision.INCONCLUSIVE else None,
        allowed=allowed(costs.metric, spread.shown(min(fails, unlikely) if runs.seen else unlikely)),
        effect=allowed(costs.metric, spread.shown(passes)),
        wall_growth=costs.growth,
        ruled_out=None if more or not runs.seen else ruled_out(costs, [spread.value(spread.middle)], spread.rejects),
        beyond=decision is Decision.INCONCLUSIVE and runs.own > passes,
    )


def _settles(now: _Spread, moved: float) -> Reason:
    """What decides an open metric: more days that differ as these do, or a quieter machine."""
    recorded = len(now.runs.recordings)
    counts = range(recorded, max(recorded, RECORDINGS_KEPT) + 1)
    for code, others, quiet in (
        (Why.MORE_DAYS, moved, False),
        (Why.OTHER_WORK, 0.0, False),
        (Why.SCATTER, 0.0, True),
    ):

        def decides(days: int, others: float = others, quiet: bool = quiet) -> bool:
            return _Spread.of(now.costs, now.runs, others, days=days, quiet=quiet).decides()

        if decides(counts[-1]):
            return Reason(code=code, counts=(bisect_left(counts, True, key=decides),))
    return Reason(code=Why.TOO_SMALL)


class _Runs(NamedTuple):
    """The new launches and those of each stored day, as ascending logs of costs.

    `own` and `centres` are their medians, `launch` is the standard deviation of the median that one new launch would
    give, with its degrees of freedom. `apart` says that three quarters of the new launches lie above three quarters of
    the stored ones, `seen` that a run has several launches, which show `launch`. `least` is the `limits.offset`.
    """

    new: list[float]
    recordings: list[list[float]]
    own: float
    centres: list[float]
    launch: float
    freedom: int
    apart: bool
    seen: bool
    least: float

    @classmethod
    def of(cls, costs: Comparison) -> _Runs:
        new, *recordings = (sorted(tested(costs, run)) for run in (costs.new, *costs.recordings))
        own, *centres = tested(costs, [median(costs.new), *map(median, costs.recordings)])
        seen = any(len(run) > 1 for run in (new, *recordings))
        launch, freedom = _launch_deviation([new, *recordings]) if seen else (row(costs.metric).spread, PRIOR_FREEDOM)
        # Of few launches all have to lie apart, and of fewer than FEWEST it is not known.
        every = sorted(value for run in recordings for value in run)
        fewest = min(len(new), len(every))
        outliers = 0.25 if fewest >= LEAST_LAUNCHES else 0.0
        apart = fewest >= FEWEST and new[int(outliers * len(new))] > every[-1 - int(outliers * len(every))]
        return cls(new, recordings, own, centres, launch, freedom, apart, seen, offset(costs))


class _Spread(NamedTuple):
    """The deviation of the difference between the new median and the mean of the stored ones, `middle`.

    `launch` is that of `_Runs`, `others` that of everything but the new launches: of the days, and of the medians of
    the stored ones. `highest` is what the new median lies below but for beta.
    """

    costs: Comparison
    runs: _Runs
    middle: float
    deviation: float
    freedom: float
    launch: float
    others: float
    highest: float

    @classmethod
    def of(cls, costs: Comparison, runs: _Runs, moved: float = 0.0, *, days: int = 0, quiet: bool = False) -> _Spread:
        """With `days` as if there were so many that differ as these do; `quiet`: and as if launches did not scatter."""
        of = row(costs.metric)
        launch = 0.0 if quiet else runs.launch
        recorded = len(runs.recordings)
        days = days or recorded
        shares = sum(1 / len(run) for run in runs.recordings) / recorded / days
        # The deviation of the next day around the mean of those before. A wait is neither moved nor of a day.
        middle = fmean(runs.centres)
        day = of.day * costs.computing
        prior = of.between**2 + day**2
        weight = prior**2 / (of.between**4 / PRIOR_FREEDOM + day**4 / DAY_FREEDOM)
        squares = weight * prior + sum((centre - middle) ** 2 for centre in runs.centres)
        variance, freedom = squares / (weight + recorded - 1), weight + days - 1
        added = moved * of.between * costs.computing if of.unit != "size" else 0.0
        between = math.hypot(math.sqrt(variance * (1 + 1 / days)), added)
        others = math.hypot(between, launch * math.sqrt(shares))
        deviation = math.hypot(others, launch / math.sqrt(len(runs.new)))
        of_launches = deviation**2 - between**2
        # That of a sum of variances (Satterthwaite 1946).
        freedom = deviation**4 / (between**4 / freedom + of_launches**2 / max(1, runs.freedom))
        highest = runs.own + _critical(freedom, 1 - costs.beta) * deviation
        return cls(costs, runs, middle, deviation, freedom, launch, others, highest)

    @property
    def worse(self) -> float:
        """What has to lie beyond a limit: of several launches the median, but of two the lower one."""
        new = self.runs.new
        return min(self.runs.own, new[-LEAST_SUSPECT]) if len(new) >= LEAST_SUSPECT else -math.inf

    def decides(self) -> bool:
        """Whether the new median fails, improves or passes."""
        return self.worse > self.suspects() or self.improves() or self.rejects(self.costs.limits.effect)

    def suspects(self) -> float:
        """The limit above which the next median fails as suspect."""
        likely = self.limit(suspect_level(self.costs.alpha))
        if self.runs.apart and not by_difference(self.costs.metric):
            likely = min(likely, self.failing(self.middle) + OBVIOUS)
        return max(likely, self.passing(self.costs.limits.effect))

    def improves(self) -> bool:
        """Whether the new median lies below the mirrored limit; a longer body improves no tail."""
        measured = self.middle - math.log(self.costs.growth)
        return self.failing(self.runs.own) + self.reach(self.costs.alpha) < measured

    def reach(self, error: float) -> float:
        """How far from the mean the next median lies at most, but for this error."""
        return _critical(self.freedom, 1 - error) * self.deviation

    def limit(self, level: float) -> float:
        """The limit above which the next median has become worse, at this level."""
        return self.failing(self.middle) + self.reach(level)

    def rejects(self, effect: float) -> bool:
        """Whether a change as large as `effect` would have shown a larger median."""
        return self.highest < self.passing(effect)

    def failing(self, centre: float) -> float:
        """A centre moved by margin and floor."""
        return math.log(failing(self.costs, [self.value(centre)])[0] + self.runs.least)

    def passing(self, effect: float) -> float:
        """The stored centre moved to the pass limit of an effect."""
        return math.log(passing(self.costs, [self.value(self.middle)], effect)[0] + self.runs.least)

    def value(self, centre: float) -> float:
        """A centre as the value that it is of."""
        return math.exp(centre) - self.runs.least

    def shown(self, centre: float) -> float:
        """How far a centre lies from the stored one, on the metric's scale."""
        differs = by_difference(self.costs.metric)
        return math.exp(bounded(centre)) - math.exp(self.middle) if differs else centre - self.middle

    def missing(self, launches: int) -> int:
        """How many more launches it takes until their part of the deviation is small."""
        wanted = (self.launch / (SMALL_PART * self.others)) ** 2
        return max(0, max(LEAST_LAUNCHES, min(math.ceil(wanted), MOST_LAUNCHES)) - launches)


@lru_cache(maxsize=64)  # each effect that may be ruled out asks for the same one
def _critical(freedom: float, probability: float) -> float:
    from scipy.special import stdtrit  # half a second: only a run that measured pays it

    return float(stdtrit(freedom, probability))


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
