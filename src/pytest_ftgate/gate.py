"""Comparison -> Verdict: which differences fail, which pass, and what would settle the rest. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, median

import msgspec

from pytest_ftgate import stats
from pytest_ftgate.model import Comparison, Decision, Interval, Metric, MetricVerdict, Struct, Verdict

INTERVAL_LEVEL = 0.95
COST_LEVEL = 0.9
WIDEST_EFFECT = 0.25
PASS_POWER = 0.8
"""An unchanged cell's chance to pass at a widened effect."""
MOST_LAUNCHES = 200
"""Asking for more is no advice."""

_PROBES = {
    Metric.LOCK_WAIT: ("the lock probe", "its waits", "do more between two acquisitions"),
    Metric.USS: ("being watched", "its memory", "a workload that lasts longer is looked at less often"),
}
"""Of a metric: what looked, what is not to be believed, and the mend."""
_OTHER_PROBE = ("its probe", "what it shows", "a workload that lasts longer might be slowed less")

_SEVERITY = (
    Decision.ERROR,
    Decision.REGRESSED,
    Decision.INCONCLUSIVE,
    Decision.IMPROVED,
    Decision.PASSED,
    Decision.NO_BASELINE,
    Decision.UNSUPPORTED,
)


class _Evidence(Struct, frozen=True, kw_only=True):
    """What the exact tests say of one comparison, as shifts on the metric's scale (see `_scaled`): more is worse.

    Limits and effect are those at the median of the side that they move; `asked` is the effect before widening.
    """

    shift: Interval
    p_fail: float
    p_improve: float
    p_pass: float
    fail_limit: float
    improve_limit: float
    effect: float
    asked: float
    larger: bool
    smaller: bool


def compare(comparison: Comparison) -> MetricVerdict:
    """The decision on one metric from per-launch values of both sides.

    Regressed: the exact rank-sum test rejects new <= (1 + margin) reference + floor at `alpha`, and the Hodges-Lehmann
    change lies beyond that limit too. Improved: the same with the sides exchanged. Passed: it rejects
    new >= (1 + effect) reference at `beta`, the effect widened where `reachable_effect` says so, which the reason then
    tells. Otherwise inconclusive, with what would settle it. Nothing stored: no baseline.

    Of SCALING more is better: its inverse is judged, while `ratio` is new / reference of the scaling itself. LOCK_WAIT
    is a share, 0 included: it is judged as it is, to pass below (1 + effect) reference + 2 floor, no effect is widened,
    and `points` is new - reference (0.01 is a point). A value that is not finite, not positive (of a share: negative),
    or no new value at all, is an error verdict; nothing is raised.
    """
    if not comparison.reference:
        reason = "nothing is stored to compare with"
        return MetricVerdict(metric=comparison.metric, decision=Decision.NO_BASELINE, reason=reason)
    if fault := _fault(comparison):
        return MetricVerdict(metric=comparison.metric, decision=Decision.ERROR, reason=fault)
    costs = _as_costs(comparison)
    evidence = _weigh(costs)
    decision = _decide(costs, evidence)
    share = comparison.metric is Metric.LOCK_WAIT
    return MetricVerdict(
        metric=comparison.metric,
        decision=decision,
        ratio=None if share else _ratio(comparison.metric, evidence.shift),
        points=evidence.shift if share else None,
        p_fail=evidence.p_fail,
        p_pass=evidence.p_pass,
        reason=_explain(costs, evidence, decision),
    )


def refused(metric: Metric, cost: Interval | None, limit: float) -> MetricVerdict | None:
    """The verdict on a metric whose probe slowed the workload too much to be believed; None where it did not.

    `cost` is the time with the probe over the time without it, `limit` the slowdown allowed as a fraction (0.25:
    25 %). The interval's low end counts, at a level of 90 % at least, so that noise refuses nothing; without a cost
    nothing is refused.
    """
    if cost is None or cost.level < COST_LEVEL or cost.low <= 1 + limit:
        return None
    probe, figure, mend = _PROBES.get(metric, _OTHER_PROBE)
    slower = f"{probe} made it {cost.value:.2f}x slower (limit {1 + limit:.2f}x, --ftgate-probe-cost)"
    reason = f"{slower}: {figure} cannot stand for the workload alone; {mend}"
    return MetricVerdict(metric=metric, decision=Decision.INCONCLUSIVE, reason=reason)


def judge(metrics: Sequence[MetricVerdict], *, baseline: str = "", commit: str = "") -> Verdict:
    """The worst of a cell's gating metrics: error, regressed, inconclusive, improved, passed, in that order.

    No baseline when none could be compared. The reason joins those of the metrics that decided. `baseline` and
    `commit` say what was compared with.
    """
    decision = min((metric.decision for metric in metrics), key=_SEVERITY.index, default=Decision.NO_BASELINE)
    deciding = [metric for metric in metrics if metric.decision is decision and metric.reason]
    reason = "; ".join(f"{metric.metric}: {metric.reason}" for metric in deciding)
    return Verdict(decision=decision, metrics=tuple(metrics), reason=reason, baseline=baseline, commit=commit)


def split_alpha(alpha: float, beta: float, hypotheses: int) -> tuple[float, float]:
    """(alpha, beta) for each of a run's gating hypotheses, so that both hold for the run as a whole (Bonferroni)."""
    return stats.bonferroni(alpha, hypotheses), stats.bonferroni(beta, hypotheses)


def reachable_effect(new: Sequence[float], reference: Sequence[float], effect: float, beta: float) -> float:
    """The effect to judge a pass at: `effect`, or the next whole percent that the noise leaves in reach, at most 25 %.

    In reach: an unchanged cell passes at `beta` with a chance of about 80 %. It is chosen blind: from the spread of
    log values within `new` and within `reference`, never from what lies between them. Where there are too few
    launches for the exact test to pass anything, widening does not help and `effect` is returned. Values must be
    positive.
    """
    fraction = stats.critical_fraction(len(new), len(reference), beta)
    if fraction is None:
        return effect
    needed = _pooled_deviation(new, reference) * _distance(len(new), len(reference), fraction)
    if needed <= math.log1p(effect):
        return effect
    widened = math.ceil(round(100 * math.expm1(needed), 6)) / 100
    return max(effect, min(widened, WIDEST_EFFECT))


def _distance(n: int, m: int, fraction: float) -> float:
    """How far from a limit, in standard deviations of a launch, the test rejects with a chance of PASS_POWER.

    The test rejects once the order statistic of the n x m differences at `fraction` clears the limit. For normal
    launches that one lies about sqrt(2) z(fraction) from the shift, and varies as the Hodges-Lehmann shift does,
    whose efficiency is 3 / pi. Within 4 % of simulation for 5 to 40 launches and beta from 0.0005 to 0.05.
    """
    normal = NormalDist()
    clears = math.sqrt(2) * normal.inv_cdf(fraction - 0.5 / (n * m))
    varies = math.sqrt(math.pi / 3) * math.sqrt(1 / n + 1 / m)
    return clears + normal.inv_cdf(PASS_POWER) * varies


def _pooled_deviation(new: Sequence[float], reference: Sequence[float]) -> float:
    """The standard deviation of log values within the sides, pooled by their degrees of freedom."""
    freedom = len(new) + len(reference) - 2
    squares = sum((len(side) - 1) * stats.gini_deviation(_logs(side)) ** 2 for side in (new, reference))
    return math.sqrt(squares / freedom) if freedom else 0.0


def _fault(comparison: Comparison) -> str:
    """Why the values cannot be compared, or nothing."""
    share = comparison.metric is Metric.LOCK_WAIT
    wanted = "a share of 0 or more" if share else "a positive number"
    for side, values in (("new", comparison.new), ("stored", comparison.reference)):
        if not values:
            return f"no {side} launch gave a value of {comparison.metric}"
        for value in values:
            if not (math.isfinite(value) and (value > 0 or (share and value == 0))):
                return f"a {side} launch gave {comparison.metric} = {value} {comparison.unit}: not {wanted}"
    return ""


def _as_costs(comparison: Comparison) -> Comparison:
    """The same with values of which less is better."""
    if comparison.metric is not Metric.SCALING:
        return comparison
    new, reference = (tuple(1 / value for value in side) for side in (comparison.new, comparison.reference))
    return msgspec.structs.replace(comparison, new=new, reference=reference)


def _scaled(metric: Metric, values: Sequence[float]) -> list[float]:
    """Values on the scale on which a change is a shift: logs; of a share, which may be 0, the values themselves."""
    return list(values) if metric is Metric.LOCK_WAIT else _logs(values)


def _moved(values: Sequence[float], fraction: float, floor: float) -> list[float]:
    return [(1 + fraction) * value + floor for value in values]


def _weigh(costs: Comparison) -> _Evidence:
    metric = costs.metric
    new, reference = _scaled(metric, costs.new), _scaled(metric, costs.reference)
    new_limit, reference_limit = (
        _scaled(metric, _moved(side, costs.margin, costs.floor)) for side in (costs.new, costs.reference)
    )
    effect, p_pass = _pass(costs)
    passes = _pass_floor(costs)
    return _Evidence(
        shift=stats.hodges_lehmann_interval(new, reference, INTERVAL_LEVEL),
        p_fail=stats.mann_whitney(new, reference_limit),
        p_improve=stats.mann_whitney(new_limit, reference, alternative="less"),
        p_pass=p_pass,
        fail_limit=_limit(metric, costs.reference, costs.margin, costs.floor),
        improve_limit=-_limit(metric, costs.new, costs.margin, costs.floor),
        effect=_limit(metric, costs.reference, effect, passes),
        asked=_limit(metric, costs.reference, costs.effect, passes),
        larger=stats.hodges_lehmann(new, reference_limit) > 0,
        smaller=stats.hodges_lehmann(new_limit, reference) < 0,
    )


def _pass_floor(costs: Comparison) -> float:
    """What the pass limit adds to (1 + effect) reference: without it, no launch that waits passes where none did."""
    return 2 * costs.floor if costs.metric is Metric.LOCK_WAIT else 0.0


def _limit(metric: Metric, side: Sequence[float], fraction: float, floor: float) -> float:
    """How far a side's median moves, on the metric's scale, by (1 + fraction) value + floor."""
    middle = median(side)
    before, after = _scaled(metric, [middle, *_moved([middle], fraction, floor)])
    return after - before


def _pass(costs: Comparison) -> tuple[float, float]:
    """The effect that is judged at and the p-value there: the one asked for, unless only a wider one can be met."""

    def p_at(effect: float) -> float:
        limits = _moved(costs.reference, effect, _pass_floor(costs))
        return stats.mann_whitney(_scaled(costs.metric, costs.new), _scaled(costs.metric, limits), alternative="less")

    p_asked = p_at(costs.effect)
    if p_asked <= costs.beta or costs.metric is Metric.LOCK_WAIT:
        return costs.effect, p_asked
    effect = reachable_effect(costs.new, costs.reference, costs.effect, costs.beta)
    return effect, p_at(effect)


def _decide(costs: Comparison, evidence: _Evidence) -> Decision:
    if evidence.p_fail <= costs.alpha and evidence.larger:
        return Decision.REGRESSED
    if evidence.p_improve <= costs.alpha and evidence.smaller:
        return Decision.IMPROVED
    return Decision.PASSED if evidence.p_pass <= costs.beta else Decision.INCONCLUSIVE


def _explain(costs: Comparison, evidence: _Evidence, decision: Decision) -> str:
    """The reason in one line; nothing for a cell that passed at the effect asked for with waits to compare."""
    metric, change = costs.metric, _change(costs.metric, evidence.shift.value)
    if decision is Decision.REGRESSED:
        limit = _change(metric, evidence.fail_limit)
        return f"{change} is beyond {limit}; p of at most {costs.alpha:.2g} fails"
    if decision is Decision.IMPROVED:
        limit, side = _change(metric, evidence.improve_limit), "above" if metric is Metric.SCALING else "below"
        return f"{change} is {side} {limit}: p = {evidence.p_improve:.1g}, at most {costs.alpha:.2g} counts"
    notes = [_widened(metric, evidence), _hardly_waited(costs)]
    if decision is not Decision.PASSED:
        notes.insert(1, _what_settles(costs, evidence))
    return "; ".join(note for note in notes if note)


def _widened(metric: Metric, evidence: _Evidence) -> str:
    if evidence.effect <= evidence.asked:
        return ""
    return f"judged at {_change(metric, evidence.effect)}: the noise hides {_change(metric, evidence.asked)}"


def _hardly_waited(costs: Comparison) -> str:
    """Of a share: that most launches of a side, but not all, saw no wait, and what to do about it."""
    if costs.metric is not Metric.LOCK_WAIT:
        return ""
    sides = (("", costs.new), (" stored", costs.reference))
    counts = ((name, sum(value == 0 for value in side), len(side)) for name, side in sides)
    rare = [f"{none} of {total}{name} launches" for name, none, total in counts if total > none > total / 2]
    return f"{' and '.join(rare)} saw no wait: a longer workload would see more of it" if rare else ""


def _what_settles(costs: Comparison, evidence: _Evidence) -> str:
    """Why it is inconclusive and about how many launches would decide."""
    n, m = len(costs.new), len(costs.reference)
    strictest = min(costs.alpha, costs.beta)
    if stats.smallest_p(n, m) > strictest:
        return f"{_launches(n)} against {m} stored cannot reach p <= {strictest:.2g}; {_count_that_can(strictest, m)}"
    new, reference = _scaled(costs.metric, costs.new), _scaled(costs.metric, costs.reference)
    low, high, _ = stats.shift_bounds(new, reference, min(costs.alpha, 0.5), min(costs.beta, 0.5))
    straddles = _straddles(costs.metric, low, high, evidence)
    value, fail, effect = evidence.shift.value, evidence.fail_limit, evidence.effect
    if value - fail > effect - value:
        return f"{straddles}; {_estimate(n, m, value - low, value - fail)}"
    return f"{straddles}; {_estimate(n, m, high - value, effect - value)}"


def _straddles(metric: Metric, low: float, high: float, evidence: _Evidence) -> str:
    """The interval beside the limits; of the scaling, which is better where it is more, all the other way round."""
    first, last = (high, low) if metric is Metric.SCALING else (low, high)
    stays, lies = ("above", "below") if metric is Metric.SCALING else ("below", "above")
    return (
        f"the interval {_change(metric, first)} .. {_change(metric, last)} neither stays {stays} "
        f"{_change(metric, evidence.effect)} nor lies {lies} {_change(metric, evidence.fail_limit)}"
    )


def _estimate(n: int, m: int, half_width: float, gap: float) -> str:
    """How many launches shrink the interval's half-width to the gap between estimate and limit (both logs)."""
    hopeless = "more launches will hardly settle it: a longer workload or a quieter machine might"
    if gap <= 0 or half_width <= 0:
        return hopeless
    # Half as many again: at the bare number the interval clears the limit only every other time.
    wanted = 1.5 * n * m / (n + m) * (half_width / gap) ** 2
    new = 1 / (1 / wanted - 1 / m) if wanted < m else math.inf
    if max(n + 1, new) <= 2 * max(n, m):
        return f"about {max(n + 1, math.ceil(new))} launches would settle it"
    both = max(n + 1, m + 1, math.ceil(2 * wanted))
    return f"about {both} launches on both sides would settle it" if both <= MOST_LAUNCHES else hopeless


def _count_that_can(alpha: float, stored: int) -> str:
    """What number of launches lets the exact test reach `alpha`."""
    wanted = stats.launches_for(alpha, stored)
    if wanted <= MOST_LAUNCHES:
        return f"{wanted} would"
    both = next(count for count in range(1, MOST_LAUNCHES * 10) if stats.smallest_p(count, count) <= alpha)
    return f"{both} on both sides would"


def _launches(count: int) -> str:
    return f"{count} launch" + ("" if count == 1 else "es")


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def _ratio(metric: Metric, shift: Interval) -> Interval:
    """New / reference of the metric itself, from the log-ratio of its costs."""
    low, value, high = (math.exp(bound) for bound in (shift.low, shift.value, shift.high))
    if metric is Metric.SCALING:
        return Interval(value=1 / value, low=1 / high, high=1 / low, level=shift.level)
    return Interval(value=value, low=low, high=high, level=shift.level)


def _change(metric: Metric, shift: float) -> str:
    """A shift of the costs as the change of the metric: `+7 %`; of a share `+1.2 points`."""
    if metric is Metric.LOCK_WAIT:
        return _percent(shift).removesuffix(" %") + " points"
    return _percent(math.expm1(-shift if metric is Metric.SCALING else shift))


def _percent(fraction: float) -> str:
    """`+7.0 %`: signed; whole percents lose their decimal."""
    text = f"{100 * fraction:+.1f}".removesuffix(".0")
    return ("0" if text in {"+0", "-0"} else text) + " %"
