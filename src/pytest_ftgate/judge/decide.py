"""Comparison -> Verdict: which differences fail, which pass, and what would settle the rest. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ..model import (
    Basis,
    Comparison,
    Decision,
    Interval,
    Look,
    Metric,
    MetricVerdict,
    Struct,
    Test,
    Verdict,
)
from ..stats import rank_tests
from .evidence import INTERVAL_LEVEL, Evidence, as_costs, other_side, paired, rounds, without_values
from .looks import due_now, everything, looks_left, parts
from .metrics import is_gain, is_share, row
from .power import MOST_LAUNCHES, deviation_of, distance, reachable_effect, widened_effect
from .scale import UNITS, change_text, fail_limit_of, moved, pass_limit, passing, points, ratio, scaled

COST_LEVEL = 0.9
_HOPELESS = "more {} are unlikely to settle it; try a longer workload or a quieter machine"
_PROBES = {
    "locks": ("the lock probe", "the waits are", "do more between two acquisitions"),
    "memory": ("memory sampling", "the memory is", "a longer workload is sampled less often"),
    "time": ("its probe", "the figure is", "a longer workload may be slowed less"),
}
"""By kind of launch: the probe, the figure that is in doubt, and a fix."""
_SEVERITY = (
    Decision.ERROR,
    Decision.REGRESSED,
    Decision.BROKEN,
    Decision.SUSPECT,
    Decision.INCONCLUSIVE,
    Decision.IMPROVED,
    Decision.PASSED,
    Decision.UNCHANGED,
    Decision.NO_BASELINE,
    Decision.UNSUPPORTED,
)


class _Prospect(Struct, frozen=True, kw_only=True):
    """What would settle an open decision: in words, and as a number of further launches (pairs, rounds) if known."""

    text: str
    more: int | None = None


def compare(comparison: Comparison) -> MetricVerdict:
    """The decision on one metric from per-launch values of both sides.

    Each look with enough launches uses the first of them, its own levels, and the exact test that `test` names.
    Regressed: the test rejects new <= (1 + margin) reference + floor at alpha, and the Hodges-Lehmann change is beyond
    that limit too. Improved: the same with the sides exchanged, or the pass test with the sides exchanged at beta.
    Passed: the test rejects new >= (1 + effect) reference (or the fail limit, if that is larger) at beta. The first
    look that decides is final: later launches change neither decision nor figures.

    With `final`, or without looks, there is a last look at all launches, at the alpha and beta that are left. Only
    there the effect is widened if `reachable_effect` says so; the reason then names it. Otherwise the verdict is
    inconclusive, with what would settle it. Without a reference value: no baseline.

    A larger SCALING is better: its inverse is judged, while `ratio` is new / reference of the scaling itself. LOCK_WAIT
    is a share and may be 0: it is judged as a difference and passes below (1 + effect) reference + 2 floor, its effect
    is not widened, and `points` is new - reference (0.01 is a point). A value that is not finite or not positive (of a
    share: negative), or no new value at all, gives an error verdict; nothing is raised.
    """
    if refusal := without_values(comparison):
        return refusal
    costs = as_costs(comparison)
    for part in parts(costs):
        evidence = _weigh(part)
        decision = _decide(part, evidence)
        if decision is not Decision.INCONCLUSIVE:
            return _verdict(part, evidence, decision, _explain(part, evidence, decision))
    if not costs.final and costs.looks:
        part = everything(costs)
        evidence = _weigh(part)
    prospect = _what_settles(costs, part, evidence)
    reason = _explain(part, evidence, Decision.INCONCLUSIVE, prospect.text)
    return _verdict(part, evidence, Decision.INCONCLUSIVE, reason, prospect.more)


def require(
    values: Sequence[float], *, text: str, looks: Sequence[Look] = (), alpha: float, beta: float, final: bool = True
) -> MetricVerdict:
    """The decision on the contract `text` from one number a launch, positive where that launch violates it.

    The exact signed-rank test on `values` (log-ratios or differences, all finite): broken if they are above 0 at alpha,
    passed if below 0 at beta, else inconclusive. Looks, their levels and `final` are as in `compare`.
    """
    if not values:
        reason = "no launch gave a value"
        return MetricVerdict(metric=Metric.CONTRACT, decision=Decision.INCONCLUSIVE, reason=reason, contract=text)
    for look in due_now(looks, len(values), alpha, beta, final):
        verdict = _required(values[: look.launches], look, text)
        if settled(verdict):
            return verdict
    undecided = _required(values, Look(launches=len(values), alpha=0.0, beta=0.0), text)
    prospect = _until_required(values, () if final else looks, looks_left(looks, len(values), alpha, beta))
    holds = f"it held in {sum(value < 0 for value in values)} of {_counted('ranks', len(values))}"
    return msgspec.structs.replace(undecided, reason=f"{holds}; {prospect.text}", more=prospect.more)


def settled(verdict: MetricVerdict) -> bool:
    """Whether more launches cannot change the verdict."""
    return verdict.decision is not Decision.INCONCLUSIVE


def refused(metric: str, cost: Interval | None, limit: float) -> MetricVerdict | None:
    """An inconclusive verdict on a metric whose probe slowed the workload too much; None if it did not.

    `cost` is the time with the probe over the time without it, `limit` the slowdown allowed as a fraction (0.25:
    25 %). The interval's low end counts, at a level of 90 % at least, so that noise refuses nothing; without a cost
    nothing is refused.
    """
    if cost is None or cost.level < COST_LEVEL or cost.low <= 1 + limit:
        return None
    probe, figure, fix = _PROBES[row(metric).need]
    slower = f"{probe} slowed it {cost.value:.2f}x (limit {1 + limit:.2f}x, --ftgate-probe-cost)"
    reason = f"{slower}: {figure} not the workload's alone; {fix}"
    return MetricVerdict(metric=metric, decision=Decision.INCONCLUSIVE, reason=reason)


def judge(
    metrics: Sequence[MetricVerdict], *, baseline: str = "", commit: str = "", basis: Basis = "", why: str = ""
) -> Verdict:
    """The worst of a cell's verdicts: error, regressed, broken, inconclusive, improved, passed, in that order.

    No baseline when none could be compared. The reason joins those of the metrics that decided. `baseline` and
    `commit` name the reference, `basis` and `why` say on what basis it was judged.
    """
    decision = min((metric.decision for metric in metrics), key=_SEVERITY.index, default=Decision.NO_BASELINE)
    deciding = [metric for metric in metrics if metric.decision is decision and metric.reason]
    reason = "; ".join(f"{metric.contract or metric.metric}: {metric.reason}" for metric in deciding)
    return Verdict(
        decision=decision,
        metrics=tuple(metrics),
        reason=reason,
        baseline=baseline,
        commit=commit,
        basis=basis,
        why=why,
    )


def split_alpha(alpha: float, beta: float, hypotheses: int) -> tuple[float, float]:
    """(alpha, beta) for each of a run's gating hypotheses.

    Alpha is split (Bonferroni): one false alarm fails the run, whichever raised it. Beta is not: it is the chance to
    miss one regression, which no number of unchanged neighbours makes likelier; split over 60 it would double what an
    unchanged cell is measured for.
    """
    return rank_tests.bonferroni(alpha, hypotheses), beta


def _p_value(test: Test, new: Sequence[float], limits: Sequence[float], alternative: rank_tests.Alternative) -> float:
    """The p-value of `new` beyond the limits of its reference."""
    if test == "pairs":
        return rank_tests.signed_rank(paired(new, limits), alternative=alternative)
    if test == "blocks":
        return rank_tests.block_rank_sum(new, limits, alternative=alternative)
    return rank_tests.mann_whitney(new, limits, alternative=alternative)


def _shift(test: Test, new: Sequence[float], reference: Sequence[float]) -> Interval:
    """The test's Hodges-Lehmann estimate of new - reference, with its interval."""
    if test == "pairs":
        return rank_tests.location(paired(new, reference), INTERVAL_LEVEL)
    if test == "blocks":
        return rank_tests.block_interval(new, reference, INTERVAL_LEVEL)
    return rank_tests.hodges_lehmann_interval(new, reference, INTERVAL_LEVEL)


def _shift_bounds(
    test: Test, new: Sequence[float], reference: Sequence[float], low_error: float, high_error: float
) -> tuple[float, float]:
    errors = min(low_error, 0.5), min(high_error, 0.5)
    if test == "pairs":
        return rank_tests.location_bounds(paired(new, reference), *errors)[:2]
    if test == "blocks":
        return rank_tests.block_bounds(new, reference, *errors)[:2]
    return rank_tests.shift_bounds(new, reference, *errors)[:2]


def _weigh(costs: Comparison) -> Evidence:
    metric, test = costs.metric, costs.test
    new, reference = scaled(metric, costs.new), scaled(metric, costs.reference)
    new_limit, reference_limit = (
        scaled(metric, moved(side, costs.margin, costs.floor)) for side in (costs.new, costs.reference)
    )
    gain = scaled(metric, passing(costs, costs.new, costs.effect))
    effect, p_pass = _pass(costs)
    p_fail = _p_value(test, new, reference_limit, "greater")
    p_improve = _p_value(test, new_limit, reference, "less")
    return Evidence(
        shift=_shift(test, new, reference),
        p_fail=p_fail,
        p_improve=p_improve,
        p_gain=_p_value(test, gain, reference, "less"),
        p_pass=p_pass,
        fail_limit=fail_limit_of(metric, costs.reference, reference_limit),
        improve_limit=-fail_limit_of(metric, costs.new, new_limit),
        gain_limit=-fail_limit_of(metric, costs.new, gain),
        effect=pass_limit(costs, effect),
        asked=pass_limit(costs, costs.effect),
        larger=p_fail <= costs.alpha and _shift(test, new, reference_limit).value > 0,
        smaller=p_improve <= costs.alpha and _shift(test, new_limit, reference).value < 0,
    )


def _pass(costs: Comparison) -> tuple[float, float]:
    """The effect that a pass is judged at, and its p-value: wider than requested only if that cannot be reached."""

    def p_at(effect: float) -> float:
        limits = scaled(costs.metric, passing(costs, costs.reference, effect))
        return _p_value(costs.test, scaled(costs.metric, costs.new), limits, "less")

    p_asked = p_at(costs.effect)
    # The effect is widened at the last look alone: each look would choose another one.
    if p_asked <= costs.beta or is_share(costs.metric) or not costs.final:
        return costs.effect, p_asked
    sides = costs.new, costs.reference
    effect = reachable_effect(*sides, costs.effect, costs.beta, test=costs.test, widest=costs.widest)
    return effect, p_at(effect)


def _decide(costs: Comparison, evidence: Evidence) -> Decision:
    if evidence.larger:
        return Decision.REGRESSED
    if evidence.smaller or evidence.p_gain <= costs.beta:
        return Decision.IMPROVED
    return Decision.PASSED if evidence.p_pass <= costs.beta else Decision.INCONCLUSIVE


def _verdict(
    costs: Comparison, evidence: Evidence, decision: Decision, reason: str, more: int | None = None
) -> MetricVerdict:
    return MetricVerdict(
        metric=costs.metric,
        decision=decision,
        ratio=ratio(costs.metric, evidence.shift),
        points=points(costs.metric, evidence.shift),
        p_fail=evidence.p_fail,
        p_pass=evidence.p_pass,
        reason=reason,
        launches=rounds(costs.test, costs.new, costs.reference),
        more=more,
    )


def _explain(costs: Comparison, evidence: Evidence, decision: Decision, settles: str = "") -> str:
    """The reason in one line; empty for a pass at the requested effect with waits to compare."""
    metric, change = costs.metric, change_text(costs.metric, evidence.shift.value)
    if decision is Decision.REGRESSED:
        return f"{change} is beyond {change_text(metric, evidence.fail_limit)} (needs p <= {costs.alpha:.2g})"
    if decision is Decision.IMPROVED:
        side = "above" if is_gain(metric) else "below"
        limit, p, level = evidence.improve_limit, evidence.p_improve, costs.alpha
        if not evidence.smaller:
            limit, p, level = evidence.gain_limit, evidence.p_gain, costs.beta
        return f"{change} is {side} {change_text(metric, limit)}: p = {p:.1g}, limit {level:.2g}"
    notes = (widened_effect(metric, evidence), settles, _hardly_waited(costs))
    return "; ".join(note for note in notes if note)


def _hardly_waited(costs: Comparison) -> str:
    """For a share: a note that most launches of a side, but not all, had no waits, and a fix."""
    if not is_share(costs.metric):
        return ""
    sides = (("", costs.new), (f" {other_side(costs)}", costs.reference))
    counts = ((name, sum(value == 0 for value in side), len(side)) for name, side in sides)
    rare = [f"{none} of {total}{name} launches" for name, none, total in counts if total > none > total / 2]
    return f"{' and '.join(rare)} had no waits: use a longer workload" if rare else ""


def _what_settles(costs: Comparison, part: Comparison, evidence: Evidence) -> _Prospect:
    """Why it is inconclusive, and about how many launches would decide."""
    test, n, m = part.test, rounds(part.test, part.new, part.reference), len(part.reference)
    value, fail, effect = evidence.shift.value, evidence.fail_limit, evidence.effect
    fails = value - fail > effect - value
    to_come = [look for look in costs.looks if look.launches > n] if not costs.final else []
    alpha, beta = part.alpha or costs.alpha, part.beta or costs.beta
    strictest = (alpha if fails else beta) if costs.looks else min(filter(None, (alpha, beta)), default=0.0)
    reaches = rank_tests.least_p(test, n, m) <= strictest
    if not reaches and not to_come:
        return _lacking(test, strictest, n, m, _lacks(part, strictest))
    new, reference = scaled(part.metric, part.new), scaled(part.metric, part.reference)
    low, high = _shift_bounds(test, new, reference, alpha, beta)
    half_width, gap = (value - low, value - fail) if fails else (high - value, effect - value)
    if to_come:
        estimate = _next_look(part, to_come, n, deviation_of(test, new, reference), gap, fails=fails)
    elif test == "ranks":
        estimate = _estimate(n, m, half_width, gap)
    else:
        estimate = _estimate_rounds(test, n, half_width, gap)
    why = _straddles(part.metric, low, high, evidence) if reaches else _lacks(part, strictest)
    return _Prospect(text=f"{why}; {estimate.text}", more=estimate.more)


def _lacks(part: Comparison, level: float) -> str:
    n, m = rounds(part.test, part.new, part.reference), len(part.reference)
    against = f" against {m} stored" if part.test == "ranks" else ""
    return f"{_counted(part.test, n)}{against} cannot reach p <= {level:.2g}"


def _next_look(
    part: Comparison, looks: Sequence[Look], n: int, deviation: float, gap: float, *, fails: bool
) -> _Prospect:
    """The first look at which the gap between estimate and limit suffices to decide with a chance of PASS_POWER."""
    m = len(part.reference)
    for look in looks:
        reach = distance(part.test, look.launches, m, look.alpha if fails else look.beta)
        if _clears(gap, deviation, reach):
            return _Prospect(text=_would(part.test, look.launches - n, " more"), more=look.launches - n)
    return _Prospect(text=_HOPELESS.format(UNITS[part.test][1]))


def _estimate_rounds(test: Test, n: int, half_width: float, gap: float) -> _Prospect:
    """How many pairs or rounds shrink the interval's half-width to the gap between estimate and limit."""
    # Half as many again, as in `_estimate`.
    wanted = 1.5 * n * (half_width / gap) ** 2 if gap > 0 and half_width > 0 else math.inf
    if wanted > MOST_LAUNCHES:
        return _Prospect(text=_HOPELESS.format(UNITS[test][1]))
    count = max(n + 1, math.ceil(wanted))
    return _Prospect(text=_would(test, count), more=count - n)


def _would(test: Test, count: int, more: str = "") -> str:
    one, many = UNITS[test]
    return f"about {count}{more} {one if count == 1 else many} would settle it"


def _straddles(metric: str, low: float, high: float, evidence: Evidence) -> str:
    """The interval with the limits that it straddles."""
    # A gain is judged by its inverse, so its ends and both directions are exchanged.
    first, last = (high, low) if is_gain(metric) else (low, high)
    stays, lies = ("above", "below") if is_gain(metric) else ("below", "above")
    return (
        f"the interval {change_text(metric, first)} .. {change_text(metric, last)} is neither {stays} "
        f"{change_text(metric, evidence.effect)} nor {lies} {change_text(metric, evidence.fail_limit)}"
    )


def _estimate(n: int, m: int, half_width: float, gap: float) -> _Prospect:
    """How many launches shrink the interval's half-width to the gap between estimate and limit (both logs)."""
    hopeless = _Prospect(text=_HOPELESS.format("launches"))
    if gap <= 0 or half_width <= 0:
        return hopeless
    # Half as many again: with the bare number the interval clears the limit only half of the time.
    wanted = 1.5 * n * m / (n + m) * (half_width / gap) ** 2
    new = 1 / (1 / wanted - 1 / m) if wanted < m else math.inf
    if max(n + 1, new) <= 2 * max(n, m):
        count = max(n + 1, math.ceil(new))
        return _Prospect(text=f"about {count} launches would settle it", more=count - n)
    both = max(n + 1, m + 1, math.ceil(2 * wanted))
    if both > MOST_LAUNCHES:
        return hopeless
    return _Prospect(text=f"about {both} launches on both sides would settle it", more=both - n)


def _lacking(test: Test, level: float, n: int, stored: int, why: str) -> _Prospect:
    """The number of launches with which the exact test can reach `level`, which it cannot with n."""
    counts, both = range(n + 1, MOST_LAUNCHES * 10), ""
    enough = next((count for count in counts if rank_tests.least_p(test, count, stored) <= level), None)
    if test == "ranks" and (enough is None or enough > MOST_LAUNCHES):
        both = " on both sides"
        enough = next((count for count in counts if rank_tests.smallest_p(count, count) <= level), None)
    if enough is None:
        return _Prospect(text=f"{why}, nor could more")
    return _Prospect(text=f"{why}; {enough}{both} would", more=enough - n)


def _counted(test: Test, count: int) -> str:
    one, many = UNITS[test]
    return f"{count} {one if count == 1 else many}"


def _required(values: Sequence[float], look: Look, text: str) -> MetricVerdict:
    """The verdict on a contract at one look."""
    exact = paired(values, [0.0] * len(values))
    p_fail, p_pass = rank_tests.signed_rank(exact), rank_tests.signed_rank(exact, alternative="less")
    decision, reason = Decision.INCONCLUSIVE, ""
    if p_fail <= look.alpha:
        against = f"{sum(value > 0 for value in values)} of {_counted('ranks', len(values))}"
        decision = Decision.BROKEN
        reason = f"it did not hold in {against}: p = {p_fail:.1g}, limit {look.alpha:.2g}"
    elif p_pass <= look.beta:
        decision = Decision.PASSED
    return MetricVerdict(
        metric=Metric.CONTRACT,
        decision=decision,
        p_fail=p_fail,
        p_pass=p_pass,
        reason=reason,
        launches=len(values),
        contract=text,
    )


def _until_required(values: Sequence[float], looks: Sequence[Look], left: Look) -> _Prospect:
    """About how many launches would decide on a contract: at the next looks, else at one look with the levels left."""
    exact = paired(values, [0.0] * len(values))
    centre, n = rank_tests.location(exact, 0.0).value, len(exact)
    fails, gap, deviation = centre > 0, abs(centre), rank_tests.gini_deviation(exact)
    to_come = [look for look in looks if look.launches > n]
    for look in to_come:
        reach = distance("pairs", look.launches, 0, look.alpha if fails else look.beta)
        if _clears(gap, deviation, reach):
            return _Prospect(text=_would("ranks", look.launches - n, " more"), more=look.launches - n)
    level = left.alpha if fails else left.beta
    if not to_come and rank_tests.least_p("pairs", n) > level:
        return _lacking("pairs", level, n, 0, f"{_counted('ranks', n)} cannot reach p <= {level:.2g}")
    low, high, _ = rank_tests.location_bounds(exact, *(min(error, 0.5) for error in (left.alpha, left.beta)))
    half_width = centre - low if fails else high - centre
    return _estimate_rounds("ranks", n, half_width, 0.0 if to_come else gap)


def _clears(gap: float, deviation: float, reach: float) -> bool:
    """Whether a gap to a limit is wider than the test's reach, which is in standard deviations."""
    return gap > 0 and reach < math.inf and deviation * reach <= gap
