"""Comparison -> Verdict: which differences fail, which pass, and what would settle the rest. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, median

from pytest_ftgate import stats
from pytest_ftgate.model import Comparison, Decision, Interval, MetricVerdict, Struct, Verdict

INTERVAL_LEVEL = 0.95
WIDEST_EFFECT = 0.25
PASS_POWER = 0.8
"""An unchanged cell's chance to pass at a widened effect."""
MOST_LAUNCHES = 200
"""Asking for more is no advice."""

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
    """What the exact tests say of one comparison; limits and effect as fractions of the reference (0.02: 2 %)."""

    ratio: Interval
    p_fail: float
    p_improve: float
    p_pass: float
    fail_limit: float
    effect: float
    larger: bool
    smaller: bool


def compare(comparison: Comparison) -> MetricVerdict:
    """The decision on one metric from per-launch values of both sides.

    Regressed: the exact rank-sum test rejects new <= (1 + margin) reference + floor at `alpha`, and the Hodges-Lehmann
    ratio lies beyond that limit too. Improved: the same with the sides exchanged. Passed: it rejects
    new >= (1 + effect) reference at `beta`, the effect widened where `reachable_effect` says so, which the reason
    then tells. Otherwise inconclusive, with what would settle it. Nothing stored: no baseline. A value that is not
    positive and finite, or no new value at all, is an error verdict; nothing is raised.
    """
    if not comparison.reference:
        reason = "nothing is stored to compare with"
        return MetricVerdict(metric=comparison.metric, decision=Decision.NO_BASELINE, reason=reason)
    if fault := _fault(comparison):
        return MetricVerdict(metric=comparison.metric, decision=Decision.ERROR, reason=fault)
    evidence = _weigh(comparison)
    decision = _decide(comparison, evidence)
    return MetricVerdict(
        metric=comparison.metric,
        decision=decision,
        ratio=evidence.ratio,
        p_fail=evidence.p_fail,
        p_pass=evidence.p_pass,
        reason=_explain(comparison, evidence, decision),
    )


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
    for side, values in (("new", comparison.new), ("stored", comparison.reference)):
        if not values:
            return f"no {side} launch gave a value of {comparison.metric}"
        for value in values:
            if not (math.isfinite(value) and value > 0):
                return f"a {side} launch gave {comparison.metric} = {value} {comparison.unit}: not a positive number"
    return ""


def _weigh(comparison: Comparison) -> _Evidence:
    new, reference = _logs(comparison.new), _logs(comparison.reference)
    new_limit, reference_limit = (
        _logs([(1 + comparison.margin) * value + comparison.floor for value in side])
        for side in (comparison.new, comparison.reference)
    )
    effect, p_pass = _pass(comparison)
    shift = stats.hodges_lehmann_interval(new, reference, INTERVAL_LEVEL)
    ratio = Interval(value=math.exp(shift.value), low=math.exp(shift.low), high=math.exp(shift.high), level=shift.level)
    return _Evidence(
        ratio=ratio,
        p_fail=stats.mann_whitney(new, reference_limit),
        p_improve=stats.mann_whitney(new_limit, reference, alternative="less"),
        p_pass=p_pass,
        fail_limit=comparison.margin + comparison.floor / median(comparison.reference),
        effect=effect,
        larger=stats.hodges_lehmann(new, reference_limit) > 0,
        smaller=stats.hodges_lehmann(new_limit, reference) < 0,
    )


def _pass(comparison: Comparison) -> tuple[float, float]:
    """The effect that is judged at and the p-value there: the one asked for, unless only a wider one can be met."""
    new, reference = _logs(comparison.new), _logs(comparison.reference)
    p_asked = stats.mann_whitney(new, reference, shift=math.log1p(comparison.effect), alternative="less")
    if p_asked <= comparison.beta:
        return comparison.effect, p_asked
    effect = reachable_effect(comparison.new, comparison.reference, comparison.effect, comparison.beta)
    return effect, stats.mann_whitney(new, reference, shift=math.log1p(effect), alternative="less")


def _decide(comparison: Comparison, evidence: _Evidence) -> Decision:
    if evidence.p_fail <= comparison.alpha and evidence.larger:
        return Decision.REGRESSED
    if evidence.p_improve <= comparison.alpha and evidence.smaller:
        return Decision.IMPROVED
    return Decision.PASSED if evidence.p_pass <= comparison.beta else Decision.INCONCLUSIVE


def _explain(comparison: Comparison, evidence: _Evidence, decision: Decision) -> str:
    """The reason in one line; nothing for a cell that passed at the effect asked for."""
    change, limit = _percent(evidence.ratio.value - 1), _percent(evidence.fail_limit)
    if decision is Decision.REGRESSED:
        return f"{change} is beyond {limit}; p of at most {comparison.alpha:.2g} fails"
    if decision is Decision.IMPROVED:
        mirrored = _percent(1 / (1 + evidence.fail_limit) - 1)
        return f"{change} is below {mirrored}: p = {evidence.p_improve:.1g}, at most {comparison.alpha:.2g} counts"
    widened = evidence.effect > comparison.effect
    judged = f"judged at {_percent(evidence.effect)}: the noise hides {_percent(comparison.effect)}" if widened else ""
    if decision is Decision.PASSED:
        return judged
    return "; ".join(part for part in (judged, _what_settles(comparison, evidence)) if part)


def _what_settles(comparison: Comparison, evidence: _Evidence) -> str:
    """Why it is inconclusive and about how many launches would decide."""
    n, m = len(comparison.new), len(comparison.reference)
    strictest = min(comparison.alpha, comparison.beta)
    if stats.smallest_p(n, m) > strictest:
        return f"{_launches(n)} against {m} stored cannot reach p <= {strictest:.2g}; {_count_that_can(strictest, m)}"
    low, high, _ = stats.shift_bounds(
        _logs(comparison.new), _logs(comparison.reference), min(comparison.alpha, 0.5), min(comparison.beta, 0.5)
    )
    value, fail, effect = math.log(evidence.ratio.value), math.log1p(evidence.fail_limit), math.log1p(evidence.effect)
    straddles = (
        f"the interval {_percent(math.expm1(low))} .. {_percent(math.expm1(high))} neither stays below "
        f"{_percent(evidence.effect)} nor lies above {_percent(evidence.fail_limit)}"
    )
    if value - fail > effect - value:
        return f"{straddles}; {_estimate(n, m, value - low, value - fail)}"
    return f"{straddles}; {_estimate(n, m, high - value, effect - value)}"


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


def _percent(fraction: float) -> str:
    """`+7.0 %`: signed; whole percents lose their decimal."""
    text = f"{100 * fraction:+.1f}".removesuffix(".0")
    return ("0" if text in {"+0", "-0"} else text) + " %"
