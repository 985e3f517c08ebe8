"""Comparison -> Verdict: which differences fail, which pass, and what would settle the rest. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from statistics import median, median_low
from typing import Final, NamedTuple

from msgspec.structs import replace

from ..kit.text import plural
from ..kit.values import WIDEST, Interval, Metric
from ..model.report import Conditions
from ..model.verdict import Basis, Comparison, Decision, MetricVerdict, Reason, Verdict, Why
from ..stats import alpha_spending, estimators, intervals, moderated
from ..stats.alpha_spending import PAIRS, Look, Schedule
from .limits import (
    allowed,
    as_costs,
    fail_limit,
    failing,
    offset,
    pass_limit,
    passing,
    ratio,
    scaled,
    shift_to,
    tested,
    worse_by,
)
from .metrics import by_difference, row

NO_BASIS: Final = Basis()
INTERVAL_LEVEL = 0.95
COST_LEVEL = 0.9
RULED_OUT = range(1, round(100 * (WIDEST - 1)) + 1)
"""The percents of which a report says that they are ruled out."""
LEAST_SUSPECT = 2
"""Pairs, rounds of a contract or launches beside stored figures: one that was disturbed makes nothing suspect."""
POWER = 0.8
"""The chance of an unchanged cell to pass, and of a change to be decided, with the number of pairs that is named."""
BEYOND_LEVEL = 0.08
"""An estimate beyond the effect counts as worse if the test rejects the fail limit at this level: else it is noise."""
BROAD = 0.25
"""The effect that the wall time rules out by itself where CPU time rules out a smaller one."""
FEWEST_TO_FAIL = 5
"""Launches in two modes differ in the same way in each of so many pairs by a chance of 0.1 %. Fewer show no change that
modes may be, and none of a difference."""
AGREES = 0.01
"""Launches of what is exact have one value as long as they differ by no larger part of it."""
EARLY = 0.5
"""So far beyond the fail limit lie neither modes nor scatter: fewer pairs tell such a change, however they scatter."""
MOST_PAIRS = 200
"""A larger number is not recommended to users."""
CONTRACT_SPREAD = 0.1
"""The standard deviation that the log of a contract's two sides is expected to have from round to round."""


# ---- the evidence: what the test of pairs says about each limit


class Evidence(NamedTuple):
    """The results of the test at one look. `shift` is on the metric's scale (see `limits.scaled`): more is worse.

    `p_far` is that of a change which no modes and no scatter explain, see EARLY. `deviation` is that of a pair on the
    scale of `tested`, as a pass is judged; `bound` is the larger one at which a failure is. `own` says that the pairs
    scatter more than is stated, and are judged by their own deviation.
    """

    shift: Interval
    p_fail: float
    p_far: float
    p_improve: float
    p_pass: float
    deviation: float
    bound: float
    own: bool


def without_values(comparison: Comparison) -> MetricVerdict | None:
    """The verdict where there is nothing to compare with, or values that cannot be compared."""
    if not comparison.reference:
        return _without(comparison.metric, Decision.NO_BASELINE, Reason(code=Why.NO_REFERENCE))
    zero = row(comparison.metric).may_be_zero
    for side, values in (("new", comparison.new), (reference_word(comparison), comparison.reference)):
        wrong = (value for value in values if not (math.isfinite(value) and (value > 0 or (zero and value == 0))))
        if not values:
            return _without(comparison.metric, Decision.ERROR, Reason(code=Why.NO_VALUE, name=side))
        if (value := next(wrong, None)) is not None:
            # As a text: JSON has no number for a value that is not finite.
            found = Reason(code=Why.IMPOSSIBLE, name=side, text=f"{value} {comparison.unit}")
            return _without(comparison.metric, Decision.ERROR, found)
    return None


def _without(metric: str, decision: Decision, reason: Reason) -> MetricVerdict:
    return MetricVerdict(metric=metric, decision=decision, reasons=(reason,))


def seen(comparison: Comparison, count: int) -> Comparison:
    """The comparison as it stands after `count` pairs."""
    of_pairs = ("new", "reference", "errors", "wall_growth")
    return replace(comparison, **{name: getattr(comparison, name)[:count] for name in of_pairs})


def pair_differences(new: Sequence[float], reference: Sequence[float]) -> list[float]:
    """The differences of pairs, rounded to twelve digits of the larger side."""
    # Without rounding, the last bits of equal values would count as a difference and get a rank.
    digits = 1e-12 * max(1.0, *map(abs, new), *map(abs, reference))
    return [round((own - other) / digits) * digits for own, other in zip(new, reference, strict=True)]


def reference_word(comparison: Comparison) -> str:
    """The word for the side that is not new."""
    return "stored" if comparison.stored else "reference"


# ---- the test


def weigh(costs: Comparison) -> Evidence:
    """What the pairs say."""
    expected, bound = deviations(costs), deviations(costs, moderated.BOUND)
    # A tail that is shorter beside a longer body alone has not improved.
    measured = [value / by for value, by in zip_longest(costs.reference, costs.wall_growth, fillvalue=1.0)]
    deviation, largest = (math.sqrt(float((each**2).mean())) for each in (expected, bound))
    # New - reference on the metric's scale; a difference is converted.
    shifts = pair_differences(tested(costs, costs.new), tested(costs, costs.reference))
    own = moderated.scatter(shifts, expected)
    failed = failing(costs, costs.reference)
    far = [(1 + EARLY) * each for each in failed]
    p_far = 1.0 if by_difference(costs.metric) else _p_beyond(costs, costs.new, far, bound, own=False)
    shift = moderated.interval(shifts, expected, INTERVAL_LEVEL)
    if by_difference(costs.metric):
        unit = median(costs.reference) + offset(costs)
        low, value, high = (unit * math.expm1(end) for end in (shift.low, shift.value, shift.high))
        shift = replace(shift, low=low, value=value, high=high)
    return Evidence(
        shift=shift,
        # Of fewer pairs it makes a change suspect at most: their own deviation would hide what is obvious.
        p_fail=min(p_far, _p_beyond(costs, costs.new, failed, bound, own=len(costs.new) >= FEWEST_TO_FAIL)),
        p_far=p_far,
        p_improve=_p_beyond(costs, measured, failing(costs, costs.new), bound),
        p_pass=p_pass(costs, costs.limits.effect, expected),
        deviation=max(1.0, own) * deviation,
        bound=max(largest, own * deviation),
        own=own > 1,
    )


def p_pass(costs: Comparison, effect: float, expected: moderated.Floats) -> float:
    """The p-value of a change that is not as large as `effect`; `expected` are the `deviations` of the pairs."""
    return _p_beyond(costs, passing(costs, costs.reference, effect), costs.new, expected)


def ruled_out(costs: Comparison, reference: Sequence[float], rejects: Callable[[float], bool]) -> float | None:
    """The smallest effect that a pass test rejects, in whole percent, as `MetricVerdict.ruled_out` has it.

    What rejects an effect rejects larger ones; the effect asked for counts beside the whole percents.
    """
    percent = bisect_left(RULED_OUT, True, key=lambda each: rejects(each / 100)) + RULED_OUT[0]
    found = [percent / 100] if percent in RULED_OUT else []
    found += [costs.limits.effect] if rejects(costs.limits.effect) else []
    return worse_by(costs, reference, min(found)) if found else None


def deviations(costs: Comparison, times: float = 1.0) -> moderated.Floats:
    """The standard deviation of each pair, where its stated part is `times` that of the metric."""
    shifts = pair_differences(tested(costs, costs.new), tested(costs, costs.reference))
    return moderated.deviations(shifts, costs.errors, times * row(costs.metric).spread)


def _p_beyond(
    costs: Comparison, above: Sequence[float], below: Sequence[float], scales: moderated.Floats, *, own: bool = True
) -> float:
    return moderated.p_above(pair_differences(tested(costs, above), tested(costs, below)), scales, own=own)


# ---- which looks are due, and how many pairs can decide


def due(
    there: int, alpha: float, beta: float, at_most: int, *, final: bool, schedule: Schedule = PAIRS
) -> Iterator[Look]:
    """The looks that `there` pairs are enough for; at the end a last one with all levels not spent before.

    One pair of a comparison decides nothing: its noise cannot be told from a change.
    """
    planned = alpha_spending.planned_looks(alpha, beta, at_most=max(at_most, there), schedule=schedule)
    yield from (look for look in planned if look.launches <= there and not (final and look.launches == there))
    if final and there >= schedule.looks[0]:
        yield alpha_spending.last_look(alpha, beta, there, schedule)


def least_pairs(
    spread: float,
    effect: float,
    alpha: float,
    beta: float,
    at_most: int,
    correlation: float = 0.0,
    schedule: Schedule = PAIRS,
) -> int:
    """The fewest pairs that can decide if no more follow, `at_most` at most.

    Both levels can be reached, and an unchanged cell, whose pairs vary by `spread`, passes at `effect` with the chance
    POWER.
    """
    looks = schedule.looks
    for count in sorted(set(range(looks[0], looks[7])).union(looks)):
        look = alpha_spending.last_look(alpha, beta, count, schedule)
        fails, passes = (moderated.reach(count, level, POWER, correlation) for level in (look.alpha, look.beta))
        if count >= at_most:
            break
        if fails < math.inf and passes * spread <= math.log1p(effect):
            return count
    return at_most


# ---- decisions


def by_pairs(comparison: Comparison) -> MetricVerdict:
    """The decision on one metric from the values of both sides of each pair.

    Each look with enough pairs uses the first of them, its own levels, and the test of `moderated`. Regressed: the test
    rejects new <= (1 + margin) reference + floor at alpha; with fewer than FEWEST_TO_FAIL pairs (1 + EARLY) times that.
    Improved: the first with the sides exchanged. Passed: the test rejects new >= (1 + effect) reference (or the fail
    limit, if that is larger) at beta. The first look that decides is final: later pairs change neither decision nor
    figures.

    With `final` there is a last look at all pairs, at the levels that are left. What is still open is suspect if most
    of several pairs lie beyond the effect and the test rejects at `suspect_level`, else inconclusive, `beyond` where
    the estimate is worse than the effect and the test rejects at BEYOND_LEVEL; all say what was ruled out and what
    would settle it.

    A larger gain is better: its inverse is judged, while `ratio` is new / reference of the gain itself. A share may be
    0: it passes below (1 + effect) reference + 2 floor, and `points` is new - reference (0.01 is a point). A value that
    is not finite or not positive (of a share: negative), or no new value at all, gives an error verdict; nothing is
    raised. A metric that is exact, and has one value on each side, is judged without a test.
    """
    if refusal := without_values(comparison):
        return refusal
    if row(comparison.metric).exact and all(map(_is_one_value, (comparison.new, comparison.reference))):
        return _exactly(as_costs(comparison))
    there = len(comparison.new)
    levels = (comparison.alpha, comparison.beta, comparison.at_most)
    reasons: tuple[Reason, ...]
    for look in due(there, *levels, final=comparison.final):
        part = as_costs(seen(comparison, look.launches))
        evidence = weigh(part)
        if (evidence.p_fail if look.launches >= FEWEST_TO_FAIL else evidence.p_far) <= look.alpha:
            decision, reasons = Decision.REGRESSED, (Reason(code=Why.BEYOND, level=look.alpha),)
        elif evidence.p_improve <= look.alpha:
            least = allowed(part.metric, -shift_to(part, failing(part, part.new), part.new))
            better = Reason(code=Why.BETTER, limit=least, p=evidence.p_improve, level=look.alpha)
            decision, reasons = Decision.IMPROVED, (better,)
        elif evidence.p_pass <= look.beta:
            decision, reasons = Decision.PASSED, _hardly_waited(part)
        else:
            continue
        return _verdict(part, look.beta, evidence, decision, (*reasons, *_scatter(part, comparison)))
    costs = as_costs(comparison)
    # 1. What is ruled out. One pair rules out nothing, and before the end the levels of the looks to come are not
    # spent.
    evidence = weigh(costs)
    looked = costs.final and there >= alpha_spending.LOOKS[0]
    level = alpha_spending.last_look(*levels[:2], there).beta if looked else 0.0
    opened = _verdict(costs, level, evidence, Decision.INCONCLUSIVE)
    # 2. How many more pairs would decide: `rules out +25 %; +5 % needs about 9 more pairs, 40 s`.
    shift, fail, effect = evidence.shift.value, fail_limit(costs), pass_limit(costs)
    fails = shift - fail > effect - shift
    value, limit = shift, fail if fails else effect
    if by_difference(costs.metric):  # it is tested on another scale than it is shown on
        unit = median(costs.reference) + offset(costs)
        value, limit = math.log1p(value / unit), math.log1p(limit / unit)
    gap = abs(value - limit) / (evidence.bound if fails else evidence.deviation)
    early = gap
    if fails:
        early = -math.inf if by_difference(costs.metric) else gap - math.log1p(EARLY) / evidence.bound
    prior = 0 if evidence.own else moderated.PRIOR_FREEDOM
    more = _until_decided(there, costs.alpha, costs.beta, gap, early, fails=fails, prior=prior)
    settles = needs = Reason(code=Why.SETTLES)
    if more is not None:
        code = Why.NEEDS_TO_FAIL if fails else Why.NEEDS_TO_PASS
        needs = Reason(code=code, seconds=more * costs.pair_s if costs.pair_s else None)
    scatters = _scatter(costs, comparison)
    reasons = (*scatters, Reason(code=Why.RULES_OUT), needs, *_hardly_waited(costs))
    # 3. Whether a regression is likely. The lower median: of two or three pairs, one that was disturbed makes none
    # suspect.
    shifts = pair_differences(*(scaled(costs, side) for side in (costs.new, costs.reference)))
    likely = costs.final and there >= LEAST_SUSPECT and evidence.p_fail <= suspect_level(costs.alpha)
    if likely and median_low(shifts) > effect:
        why = (Reason(code=Why.BEYOND, level=suspect_level(costs.alpha)), *scatters, settles)
        return replace(opened, decision=Decision.SUSPECT, reasons=why, more=more)
    beyond = costs.final and shift > effect and evidence.p_fail <= BEYOND_LEVEL
    if beyond:
        reasons = (Reason(code=Why.WORSE_THAN_EFFECT), *reasons)
    return replace(opened, reasons=reasons, more=more, beyond=beyond)


def _is_one_value(values: Sequence[float]) -> bool:
    """Whether launches agree; a pickle is some bytes longer if it meets an object twice, which may be chance."""
    return max(values) - min(values) <= AGREES * max(values)


def _exactly(costs: Comparison) -> MetricVerdict:
    """The verdict where all launches of a side have one value: one pair passes or improves, LEAST_SUSPECT fail."""
    new, reference = (median(scaled(costs, side)) for side in (costs.new, costs.reference))
    worse, better = (
        new - reference > fail_limit(costs),
        reference - new > shift_to(costs, failing(costs, costs.new), costs.new),
    )
    decision = Decision.REGRESSED if worse else Decision.IMPROVED if better else Decision.PASSED
    if worse and len(costs.new) < LEAST_SUSPECT:
        decision = Decision.SUSPECT if costs.final else Decision.INCONCLUSIVE
    shift = Interval(value=new - reference, low=new - reference, high=new - reference, level=0.0)
    return MetricVerdict(
        metric=costs.metric,
        decision=decision,
        ratio=ratio(costs.metric, shift),
        points=shift if by_difference(costs.metric) else None,
        launches=len(costs.new),
        more=1 if decision is Decision.INCONCLUSIVE else None,
        allowed=allowed(costs.metric, fail_limit(costs)),
        effect=allowed(costs.metric, pass_limit(costs)),
    )


def by_cpu(judged: MetricVerdict, wall: Comparison, cpu: Comparison, computing: float) -> MetricVerdict:
    """The verdict on the wall time of a body that computes: where it is open, CPU time decides small effects.

    It passes if CPU time rules out the effect, and the wall time BROAD, each by the test and the looks of `by_pairs`.
    If the pairs of wall times read worse than the effect, it stays open. Nothing fails by it. `computing` is the
    smaller `Values.computing` of both sides: what more it may wait, unseen by CPU time, is no more than the effect.
    """
    if judged.decision is not Decision.INCONCLUSIVE or judged.ratio is None:
        return judged
    if computing * (1 + wall.limits.effect) < 1:
        return judged
    shifts = pair_differences(*(scaled(wall, side) for side in (wall.new, wall.reference)))
    if max(median(shifts), math.log(judged.ratio.value)) > pass_limit(wall):
        return judged
    broad, spent = by_pairs(replace(wall, limits=wall.limits._replace(effect=BROAD))), by_pairs(cpu)
    if broad.ruled_out is None or spent.ratio is None or not (broad.decision.good and spent.decision.good):
        return judged
    reasons = (Reason(code=Why.BY_CPU, change=spent.ratio.value, limit=1 + broad.ruled_out),)
    return replace(judged, decision=Decision.PASSED, reasons=reasons, more=None, ruled_out=spent.ruled_out)


def suspect_level(alpha: float) -> float:
    """The p-value at which a change that could not be decided is suspect: five times alpha, 0.02 at most."""
    return max(alpha, min(0.02, 5 * alpha))


def require(
    values: Sequence[float],
    *,
    text: str,
    alpha: float,
    beta: float,
    at_most: int = alpha_spending.LOOKS[-1],
    correlation: float = 0.0,
    spread: float = CONTRACT_SPREAD,
    final: bool = True,
) -> MetricVerdict:
    """The decision on the contract `text` from one number a round, positive where that round violates it.

    The test of `moderated` on `values` (log-ratios, or differences over the mean of both sides; all finite): broken if
    they lie above 0 at alpha, passed if below 0 at beta, else suspect or inconclusive. Looks, levels and `final` are as
    in `by_pairs`. `correlation` is that of neighbouring rounds: the absolute figures of a machine drift. `spread` is
    the deviation that a round is expected to have.
    """
    if not values:
        none = _without(Metric.CONTRACT, Decision.INCONCLUSIVE, Reason(code=Why.NO_ROUND))
        return replace(none, contract=text)
    schedule = alpha_spending.of_rounds(correlation)
    for look in due(len(values), alpha, beta, at_most, final=final, schedule=schedule):
        verdict = _required(values[: look.launches], look, text, correlation, spread)
        if verdict.decision is not Decision.INCONCLUSIVE:
            return verdict
    open_one = _required(values, Look(launches=len(values), alpha=0.0, beta=0.0), text, correlation, spread)
    p_fail = 1.0 if open_one.p_fail is None else open_one.p_fail
    several = len(values) >= LEAST_SUSPECT
    suspect = final and several and p_fail <= suspect_level(alpha)
    beyond = final and not several and p_fail <= BEYOND_LEVEL
    # About how many rounds would decide.
    exact = pair_differences(values, [0.0] * len(values))
    centre, deviation = intervals.location(exact, 0.0).value, float(moderated.deviations(exact, (), spread)[0])
    gap, fails = abs(centre) / deviation, centre > 0
    more = _until_decided(len(values), alpha, beta, gap, gap, fails=fails, correlation=correlation, schedule=schedule)
    held = Reason(code=Why.HELD, counts=(sum(value < 0 for value in values), len(values)))
    decision = Decision.SUSPECT if suspect else Decision.INCONCLUSIVE
    return replace(open_one, decision=decision, reasons=(held, Reason(code=Why.SETTLES)), more=more, beyond=beyond)


def without_figures(metric: str, reason: Reason) -> MetricVerdict:
    """An inconclusive verdict on a metric that has no figures for this reason, which more launches cannot change."""
    return replace(_without(metric, Decision.INCONCLUSIVE, reason), more=0)


def refused(metric: str, cost: Interval | None, limit: float) -> MetricVerdict | None:
    """An inconclusive verdict on a metric whose probe slowed the workload too much; None if it did not.

    `cost` is the time with the probe over the time without it, `limit` the slowdown allowed as a fraction (0.25:
    25 %). The interval's low end counts, at a level of 90 % at least, so that noise refuses nothing; without a cost
    nothing is refused.
    """
    if cost is None or cost.level < COST_LEVEL or cost.low <= 1 + limit:
        return None
    slowed = Reason(code=Why.PROBE_COST, change=cost.value, limit=1 + limit)
    return _without(metric, Decision.INCONCLUSIVE, slowed)


def worst_of(metrics: Sequence[MetricVerdict], basis: Basis = NO_BASIS) -> Verdict:
    """The worst of a cell's verdicts, by their severity, on this basis; no baseline when none could be compared."""
    metrics = explained(metrics)
    decisions = (metric.decision for metric in metrics)
    return basis.verdict(min(decisions, key=lambda each: each.severity, default=Decision.NO_BASELINE), "", metrics)


def again(verdict: Verdict, metrics: Sequence[MetricVerdict]) -> Verdict:
    """The verdict by these metrics; what it was compared with stays."""
    found = worst_of(metrics)
    return replace(verdict, decision=found.decision, metrics=found.metrics)


def explained(metrics: Sequence[MetricVerdict]) -> list[MetricVerdict]:
    """The verdicts, in which a figure that is derived from times fails only together with the cell's own time.

    The time is worse if it failed, or the interval of its ratio lies above 1. Where it is not, scaling may have fallen
    because one worker became faster, which is no regression.
    """
    times = [each for each in metrics if each.metric == Metric.WALL]
    if any(each.decision.worse or (each.ratio and each.ratio.level > 0 and each.ratio.low > 1) for each in times):
        return list(metrics)
    known = any(each.decision in (Decision.PASSED, Decision.IMPROVED) for each in times)
    why = Reason(code=Why.TIME_NOT_WORSE if known else Why.NO_TIME_WORSE)
    decision = Decision.PASSED if known else Decision.INCONCLUSIVE
    judged = []
    for each in metrics:
        failed = each.decision in (Decision.REGRESSED, Decision.SUSPECT)
        if not (failed or each.beyond) or not row(each.metric).explains:
            judged.append(each)
        elif failed:
            judged.append(replace(each, decision=decision, reasons=(*each.reasons, why), ruled_out=None))
        else:
            judged.append(replace(each, beyond=False))
    return judged


def split_alpha(alpha: float, hypotheses: int) -> float:
    """Alpha for each of a run's gating hypotheses (Bonferroni): one false alarm fails the run, whichever raised it.

    Beta is not split: it is the chance to miss one regression, which no number of unchanged neighbours makes likelier;
    split over 60 it would double what an unchanged cell is measured for.
    """
    return alpha / max(1, hypotheses)


# ---- one look


def _verdict(
    costs: Comparison, level: float, evidence: Evidence, decision: Decision, reasons: tuple[Reason, ...] = ()
) -> MetricVerdict:
    """The verdict with its figures; `level` is that of the pass test, 0 if it decides nothing yet."""
    known = None
    if level:
        expected = deviations(costs)
        known = ruled_out(costs, costs.reference, lambda effect: p_pass(costs, effect, expected) <= level)
    return MetricVerdict(
        metric=costs.metric,
        decision=decision,
        ratio=ratio(costs.metric, evidence.shift),
        points=evidence.shift if by_difference(costs.metric) else None,
        p_fail=evidence.p_fail,
        p_pass=evidence.p_pass,
        reasons=reasons,
        launches=len(costs.new),
        ruled_out=known,
        allowed=allowed(costs.metric, fail_limit(costs)),
        effect=allowed(costs.metric, pass_limit(costs)),
        wall_growth=costs.growth,
    )


def _hardly_waited(costs: Comparison) -> tuple[Reason, ...]:
    """For a share: that most launches of a side, but not all, had no waits."""
    if row(costs.metric).unit != "share":
        return ()
    sides = ((sum(value == 0 for value in side), len(side)) for side in (costs.new, costs.reference))
    rare = [(none, total) if total > none > total / 2 else (0, 0) for none, total in sides]
    counts = tuple(count for side in rare for count in side)
    return (Reason(code=Why.RARE_WAITS, counts=counts, name=reference_word(costs)),) if any(counts) else ()


def _scatter(costs: Comparison, measured: Comparison) -> tuple[Reason, ...]:
    """That the pairs scatter more than is stated of the metric, and in which two modes; `measured` is not inverted."""
    logs = pair_differences(tested(costs, costs.new), tested(costs, costs.reference))
    if not moderated.beyond_stated(logs, costs.errors, row(costs.metric).spread):
        return ()
    shifts = pair_differences(*(scaled(costs, side) for side in (costs.new, costs.reference)))
    by, count = estimators.gini_deviation(shifts), len(shifts)
    sides = (estimators.two_modes(side[:count]) for side in (measured.new, measured.reference))
    modes = next(filter(None, sides), ())
    change = by if by_difference(costs.metric) else 1 + by
    return (Reason(code=Why.SCATTERS, change=change, figures=modes),)


# ---- what would settle it


def _until_decided(
    there: int,
    alpha: float,
    beta: float,
    gap: float,
    early: float,
    *,
    fails: bool,
    correlation: float = 0.0,
    schedule: Schedule = PAIRS,
    prior: int = moderated.PRIOR_FREEDOM,
) -> int | None:
    """How many more pairs it takes to a planned number whose reach is within the gap between estimate and limit.

    The gap is in deviations of a pair; `early` is that of fewer than FEWEST_TO_FAIL pairs. None if no planned number is
    enough.
    """
    for look in alpha_spending.planned_looks(alpha, beta, at_most=MOST_PAIRS, schedule=schedule):
        count, level = look.launches, look.alpha if fails else look.beta
        within = gap if count >= FEWEST_TO_FAIL else early
        freedom = prior if count >= FEWEST_TO_FAIL or not fails else moderated.PRIOR_FREEDOM
        if count > there and moderated.reach(count, level, POWER, correlation, freedom) <= within:
            return count - there
    return None


# ---- contracts


def _required(values: Sequence[float], look: Look, text: str, correlation: float, spread: float) -> MetricVerdict:
    """The verdict on a contract at one look."""
    exact = pair_differences(values, [0.0] * len(values))
    scales = moderated.deviations(exact, (), spread)
    p_fail = moderated.p_above(exact, scales, correlation)
    p_pass = moderated.p_above([-value for value in exact], scales, correlation)
    decision, reasons = Decision.INCONCLUSIVE, tuple[Reason, ...]()
    if p_fail <= look.alpha:
        decision, counts = Decision.BROKEN, (sum(value > 0 for value in values), len(values))
        reasons = (Reason(code=Why.NOT_HELD, counts=counts, level=look.alpha),)
    elif p_pass <= look.beta:
        decision = Decision.PASSED
    return MetricVerdict(
        metric=Metric.CONTRACT,
        decision=decision,
        p_fail=p_fail,
        p_pass=p_pass,
        reasons=reasons,
        launches=len(values),
        contract=text,
    )


# ---- whether the conditions on the machine put a verdict in doubt


class Tolerated(NamedTuple):
    """The largest values that leave a verdict standing: shares, except `throttles` (a count) and `moved` (a ratio).

    `others` is the share of the usable cores that other processes kept busy; the rest is as in Conditions.
    """

    others: float
    steal: float
    quota: float
    throttles: float
    moved: float


MOVED: Final = 10.0
"""How many times the usual deviation between recordings (`MetricRow.between`) a run is moved where no worker has a core
to itself. It grows with the square of the share of workers that have none.

By benchmarks/verdicts/stored.py, of two cores: beside one busy process most times over the control moved by 1 to 3 %,
of two workers that make objects under the GIL by +20 %, and beside two processes by +60 %. A contended lock became 43 %
faster, and its share of waits beside two processes rose from 6 to 39 %.
"""
# Of a change of the controller's own speed the control left 2 to 25 % in interpreter-bound work, about half in
# memory-bound work: 1.2x leaves up to 9 %, half of it on average over a run. Single samples differ by 2x and more at an
# unchanged speed, so their range is not used.
UNPAIRED: Final = Tolerated(others=0.25, steal=0.05, quota=0.05, throttles=0, moved=1.2)
"""Where a time is compared with none that was taken together with it."""
# Both sides of paired launches meet the same machine, which favours neither; their noise grows, and the test takes that
# into account. Beyond these limits, workers mostly wait to be scheduled.
PAIRED: Final = Tolerated(others=math.inf, steal=0.25, quota=0.5, throttles=math.inf, moved=math.inf)
"""For interleaved sides: the remaining risk is that the workers of an iteration did not run at the same time."""
CROWDED: Final = PAIRED._replace(others=UNPAIRED.others, steal=UNPAIRED.steal)
"""For interleaved cells that may need different numbers of cores: others leave too few for one of them."""
REPORTED: Final = Tolerated(others=0.1, steal=0.01, quota=0.0, throttles=0, moved=1.1)
"""What is worth a line in the report."""


def unfit(conditions: Conditions | None, limits: Tolerated) -> str:
    """Why what was found is in doubt; empty if it is not."""
    return "" if conditions is None else "; ".join(_exceeded(conditions, limits))


def deviation(conditions: Conditions | None, workers: int) -> float:
    """What the conditions add to the deviation between recordings, in multiples of what it usually is."""
    if conditions is None or not conditions.cores:
        return 0.0
    taken = (conditions.others or 0.0) + (conditions.steal or 0.0) * conditions.cores
    crowded = (min(workers, conditions.cores) + taken - conditions.cores) / workers
    others = _exceeded(conditions, UNPAIRED._replace(others=math.inf, steal=math.inf))
    return MOVED * min(1.0, max(crowded, 0.5 if others else 0.0)) ** 2


def remarks(conditions: Conditions | None, workers: int) -> tuple[str, ...]:
    """Lines for the report on the conditions of a group with this many workers; none if all was quiet."""
    if conditions is None:
        return ()
    found = _exceeded(conditions, REPORTED)
    if 0 < conditions.cores < workers:
        found.append(f"oversubscribed: {workers} workers on {plural(conditions.cores, 'core')}")
    return tuple(found)


def drift(calibration_ns: Sequence[int]) -> float:
    """How many times longer the fixed work took in the last third of the samples than in the first; 1 for fewer than 3.

    The lower quartile of each third is compared, because single samples vary by far more at an unchanged speed.
    """
    third = len(calibration_ns) // 3
    if not third or min(calibration_ns) <= 0:
        return 1.0
    first, last = sorted(calibration_ns[:third]), sorted(calibration_ns[-third:])
    return last[third // 4] / first[third // 4]


def _exceeded(conditions: Conditions, limits: Tolerated) -> list[str]:
    """A phrase for each condition beyond its limit."""
    found = []
    others, steal, quota, throttles = (conditions.others, conditions.steal, conditions.quota, conditions.throttles)
    # `cores` is 0 if unknown.
    if others is not None and others > limits.others * max(1, conditions.cores):
        found.append(f"other processes kept {others:.1f} of {plural(conditions.cores, 'core')} busy")
    if steal is not None and steal > limits.steal:
        found.append(f"the hypervisor gave {steal:.1%} of the cores' time to others")
    if quota is not None and quota > limits.quota:
        found.append(f"the CPU quota stopped the run in {max(quota, 0.01):.0%} of its periods")
    if throttles is not None and throttles > limits.throttles:
        found.append(f"the CPU throttled {plural(throttles, 'time')} because of heat")
    change = drift(conditions.calibration_ns)
    factor, word = max(change, 1 / change), "slower" if change > 1 else "faster"
    if factor > limits.moved:
        found.append(f"the machine became {factor:.2f}x {word} during the measurement")
    return found
