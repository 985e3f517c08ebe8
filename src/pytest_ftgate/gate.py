"""Comparison -> Verdict: which differences fail, which pass, and what would settle the rest. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist, fmean, median

import msgspec

from pytest_ftgate import stats
from pytest_ftgate.model import (
    Comparison,
    Decision,
    Interval,
    Look,
    Metric,
    MetricVerdict,
    Road,
    Struct,
    Test,
    Verdict,
)

INTERVAL_LEVEL = 0.95
COST_LEVEL = 0.9
WIDEST_EFFECT = 0.25
PASS_POWER = 0.8
"""An unchanged cell's chance to pass at a widened effect, and that of the number of launches asked for to settle."""
MOST_LAUNCHES = 200
"""Asking for more is no advice."""

PRIOR_FREEDOM = 8
PRIOR_DEVIATIONS = {
    Metric.WALL: 0.04,
    Metric.TAIL: 0.04,
    Metric.RATIO: 0.04,
    Metric.SCALING: 0.04,
    Metric.USS: 0.02,
    Metric.LOCK_WAIT: 0.15,
}
"""How far recordings of one machine lie apart, as the standard deviation of their logs, before any were seen; it
counts as much as PRIOR_FREEDOM + 1 recordings do, so that two that agree by chance do not make a third a regression."""
LEAST_SHARE = 0.01
"""A share of the time below which two are alike, where a comparison names none: it keeps the log of no wait finite."""

_UNITS: dict[Test, tuple[str, str]] = {
    "ranks": ("launch", "launches"),
    "pairs": ("pair", "pairs"),
    "blocks": ("round", "rounds"),
}
_HOPELESS = "more {} will hardly settle it: a longer workload or a quieter machine might"

_PROBES = {
    Metric.LOCK_WAIT: ("the lock probe", "its waits", "do more between two acquisitions"),
    Metric.USS: ("being watched", "its memory", "a workload that lasts longer is looked at less often"),
}
"""Of a metric: what looked, what is not to be believed, and the mend."""
_OTHER_PROBE = ("its probe", "what it shows", "a workload that lasts longer might be slowed less")

_SEVERITY = (
    Decision.ERROR,
    Decision.REGRESSED,
    Decision.BROKEN,
    Decision.INCONCLUSIVE,
    Decision.IMPROVED,
    Decision.PASSED,
    Decision.NO_BASELINE,
    Decision.UNSUPPORTED,
)


class _Evidence(Struct, frozen=True, kw_only=True):
    """What the exact tests say of one look, as shifts on the metric's scale (see `_scaled`): more is worse.

    Limits and effect are those at the median of the side that they move; `asked` is the effect before widening.
    `p_gain` is that of being better than the effect; `larger` and `smaller` say that the test rejects at alpha and the
    Hodges-Lehmann estimate agrees.
    """

    shift: Interval
    p_fail: float
    p_improve: float
    p_gain: float
    p_pass: float
    fail_limit: float
    improve_limit: float
    gain_limit: float
    effect: float
    asked: float
    larger: bool
    smaller: bool


class _Prospect(Struct, frozen=True, kw_only=True):
    """What would settle what is undecided: in words, and how many more launches (pairs, rounds) where that is known."""

    text: str
    more: int | None = None


def compare(comparison: Comparison) -> MetricVerdict:
    """The decision on one metric from per-launch values of both sides.

    At each look that there are launches for, on the first so many of them and at its levels, with the exact test that
    `test` names. Regressed: it rejects new <= (1 + margin) reference + floor at alpha, and the Hodges-Lehmann change
    lies beyond that limit too. Improved: the same with the sides exchanged, or the pass test with the sides exchanged
    at beta. Passed: it rejects new >= (1 + effect) reference, or the fail limit where that is more, at beta. The first
    look that decides does so for good: what comes after it changes nothing, neither decision nor figures.

    With `final`, or without looks, there is a last look at everything, at all of alpha and beta that is left; there
    alone the effect is widened where `reachable_effect` says so, which the reason then tells. Otherwise inconclusive,
    with what would settle it. Nothing stored: no baseline.

    Of SCALING more is better: its inverse is judged, while `ratio` is new / reference of the scaling itself. LOCK_WAIT
    is a share, 0 included: it is judged as it is, to pass below (1 + effect) reference + 2 floor, no effect is widened,
    and `points` is new - reference (0.01 is a point). A value that is not finite, not positive (of a share: negative),
    or no new value at all, is an error verdict; nothing is raised.
    """
    if refusal := _without_values(comparison):
        return refusal
    costs = _as_costs(comparison)
    for part in _parts(costs):
        evidence = _weigh(part)
        decision = _decide(part, evidence)
        if decision is not Decision.INCONCLUSIVE:
            return _verdict(part, evidence, decision, _explain(part, evidence, decision))
    if not costs.final and costs.looks:
        part = _everything(costs)
        evidence = _weigh(part)
    prospect = _what_settles(costs, part, evidence)
    reason = _explain(part, evidence, Decision.INCONCLUSIVE, prospect.text)
    return _verdict(part, evidence, Decision.INCONCLUSIVE, reason, prospect.more)


def predict(comparison: Comparison, recordings: Sequence[Sequence[float]]) -> MetricVerdict:
    """The decision from stored `recordings` where their commit cannot be measured beside the change.

    `recordings` holds the per-launch values of each, in the unit of `comparison.new`; what stands in
    `comparison.reference` is not looked at. The unit is the recording: a new one's median is compared with the bound
    below which a next one would stay with 1 - alpha, in Student's t, around the mean of the stored ones moved by margin
    and floor (Hahn & Meeker 1991, "Statistical Intervals"). What recordings vary by is that seen among them, pooled
    with the PRIOR_DEVIATIONS, and what medians of so few launches vary by themselves. Regressed beyond that bound,
    improved beyond the mirrored one, else inconclusive: a prediction passes nothing. Errors and no baseline as in
    `compare`.
    """
    everything = tuple(value for recording in recordings for value in recording)
    if refusal := _without_values(msgspec.structs.replace(comparison, reference=everything)):
        return refusal
    costs = _as_costs(comparison)
    invert = costs.metric is Metric.SCALING
    stored = [median(1 / value if invert else value for value in recording) for recording in recordings if recording]
    least = _least(costs)
    own, *centres = (math.log(value + least) for value in (median(costs.new), *stored))
    middle, deviation, freedom = fmean(centres), *_predictive(costs.metric, centres)
    deviation = math.hypot(deviation, _of_medians([costs.new, *recordings], least))
    reach = _student(1 - costs.alpha, freedom) * deviation
    decision = Decision.INCONCLUSIVE
    if own > _moved_log(costs, middle) + reach:
        decision = Decision.REGRESSED
    elif _moved_log(costs, own) + reach < middle:
        decision = Decision.IMPROVED
    half = _student((1 + INTERVAL_LEVEL) / 2, freedom) * deviation
    around = [_shown_shift(costs, own + step, middle) for step in (-half, 0.0, half)]
    shift = Interval(low=around[0], value=around[1], high=around[2], level=INTERVAL_LEVEL)
    limit = _shown_shift(costs, _moved_log(costs, middle) + reach, middle)
    return MetricVerdict(
        metric=costs.metric,
        decision=decision,
        ratio=_ratio(costs.metric, shift),
        points=_points(costs.metric, shift),
        reason=_foretold(costs, decision, shift.value, limit, len(centres)),
        launches=len(costs.new),
    )


def _of_medians(runs: Sequence[Sequence[float]], least: float) -> float:
    """The standard deviation that the new median, the first, and the mean of the stored ones have from their launches.

    In logs. Of a median of n values pi / (2 n) times their variance (Laplace 1818), which is pooled over all runs.
    """
    new, *stored = [[math.log(value + least) for value in run] for run in runs if run]
    freedom = sum(len(run) - 1 for run in (new, *stored))
    if not freedom:
        return 0.0
    squares = sum((value - fmean(run)) ** 2 for run in (new, *stored) for value in run)
    shares = 1 / len(new) + sum(1 / len(run) for run in stored) / len(stored) ** 2
    return math.sqrt(squares / freedom * shares * math.pi / 2)


def require(
    values: Sequence[float], *, text: str, looks: Sequence[Look] = (), alpha: float, beta: float, final: bool = True
) -> MetricVerdict:
    """The decision on the contract `text` from one number a launch, positive where that launch violates it.

    The exact signed-rank test on `values` (log-ratios or differences, all finite): broken where it says that they lie
    above 0 at alpha, passed below 0 at beta, else inconclusive. Looks, their levels and `final` as in `compare`.
    """
    if not values:
        reason = "no launch gave a value"
        return MetricVerdict(metric=Metric.CONTRACT, decision=Decision.INCONCLUSIVE, reason=reason, contract=text)
    for look in _due(looks, len(values), alpha, beta, final):
        verdict = _required(values[: look.launches], look, text)
        if settled(verdict):
            return verdict
    undecided = _required(values, Look(launches=len(values), alpha=0.0, beta=0.0), text)
    prospect = _until_required(values, () if final else looks, _left(looks, len(values), alpha, beta))
    holds = f"it held in {sum(value < 0 for value in values)} of {_counted('ranks', len(values))}"
    return msgspec.structs.replace(undecided, reason=f"{holds}; {prospect.text}", more=prospect.more)


def settled(verdict: MetricVerdict) -> bool:
    """Whether more launches would change nothing."""
    return verdict.decision is not Decision.INCONCLUSIVE


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


def judge(
    metrics: Sequence[MetricVerdict], *, baseline: str = "", commit: str = "", road: Road = "", why: str = ""
) -> Verdict:
    """The worst of a cell's verdicts: error, regressed, broken, inconclusive, improved, passed, in that order.

    No baseline when none could be compared. The reason joins those of the metrics that decided. `baseline` and
    `commit` say what was compared with, `road` and `why` by which way.
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
        road=road,
        why=why,
    )


def split_alpha(alpha: float, beta: float, hypotheses: int) -> tuple[float, float]:
    """(alpha, beta) for each of a run's gating hypotheses.

    Alpha is split (Bonferroni): one false alarm fails the run, whichever raised it. Beta is not: it is the chance to
    miss one regression, which no number of unchanged neighbours makes likelier; split over 60 it would double what an
    unchanged cell is measured for.
    """
    return stats.bonferroni(alpha, hypotheses), beta


def reachable_effect(
    new: Sequence[float],
    reference: Sequence[float],
    effect: float,
    beta: float,
    *,
    test: Test = "ranks",
    widest: float = WIDEST_EFFECT,
) -> float:
    """The effect to judge a pass at: `effect`, or the next whole percent that the noise leaves in reach, up to
    `widest`.

    In reach: an unchanged cell passes at `beta` with a chance of about 80 %. It is chosen blind: from the spread of
    log values around the centre of each side (of `pairs` that of their differences, of `blocks` that within blocks),
    never from what lies between the sides. Where there are too few launches for the exact test to pass anything,
    widening does not help and `effect` is returned. Values must be positive.
    """
    own, beside = _logs(new), _logs(reference)
    reach = _distance(test, _rounds(test, own, beside), len(beside), beta)
    needed = _deviation(test, own, beside) * reach if reach < math.inf else 0.0
    if needed <= math.log1p(effect):
        return effect
    widened = math.ceil(round(100 * math.expm1(min(needed, 1.0)), 6)) / 100
    return max(effect, min(widened, widest))


def _distance(test: Test, n: int, m: int, level: float) -> float:
    """How far from a limit, in standard deviations of a value, the test rejects with a chance of PASS_POWER.

    The test rejects once the order statistic of what it counts clears the limit, at the fraction that `level` asks
    for; infinite where there is none. For normal values that one lies about z(fraction) standard deviations of a
    counted difference (of the mean of two, of `pairs`) from the shift, and varies as the Hodges-Lehmann estimate does,
    whose efficiency is 3 / pi. Of `ranks` within 4 % of simulation for 5 to 40 launches and beta from 0.0005 to 0.05;
    of `pairs` and `blocks` of 6 to 40 the chance is 80 to 90 %.
    """
    fraction = stats.critical_fraction(n, m, level, test)
    if fraction is None:
        return math.inf
    if test == "pairs":
        counted, spread, variance = n * (n + 1) // 2, math.sqrt(0.5), 1 / n
    elif test == "blocks":
        whole = n - n % stats.BLOCK
        counted, spread, variance = whole * stats.BLOCK, math.sqrt(2), 2 / whole
    else:
        counted, spread, variance = n * m, math.sqrt(2), 1 / n + 1 / m
    normal = NormalDist()
    clears = spread * normal.inv_cdf(fraction - 0.5 / counted)
    return max(0.0, clears + normal.inv_cdf(PASS_POWER) * math.sqrt(math.pi / 3 * variance))


def _deviation(test: Test, new: Sequence[float], reference: Sequence[float]) -> float:
    """The standard deviation of what `test` compares, around its own centre: blind to the shift between the sides.

    Of `pairs` that of the differences; else that within sides, and within their blocks, pooled by degrees of freedom.
    """
    if test == "pairs":
        return stats.gini_deviation(_paired(new, reference))
    size = stats.BLOCK if test == "blocks" else max(len(new), len(reference))
    groups = [side[start : start + size] for side in (new, reference) for start in range(0, len(side), size)]
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum((len(group) - 1) * stats.gini_deviation(group) ** 2 for group in groups)
    return math.sqrt(squares / freedom) if freedom else 0.0


def _without_values(comparison: Comparison) -> MetricVerdict | None:
    """The verdict where there is nothing to compare with, or values that cannot be compared."""
    if not comparison.reference:
        reason = "nothing is stored to compare with" if comparison.test == "ranks" else "the reference gave no value"
        return MetricVerdict(metric=comparison.metric, decision=Decision.NO_BASELINE, reason=reason)
    if fault := _fault(comparison):
        return MetricVerdict(metric=comparison.metric, decision=Decision.ERROR, reason=fault)
    return None


def _fault(comparison: Comparison) -> str:
    """Why the values cannot be compared, or nothing."""
    share = comparison.metric is Metric.LOCK_WAIT
    wanted = "a share of 0 or more" if share else "a positive number"
    for side, values in (("new", comparison.new), (_other_side(comparison), comparison.reference)):
        if not values:
            return f"no {side} launch gave a value of {comparison.metric}"
        for value in values:
            if not (math.isfinite(value) and (value > 0 or (share and value == 0))):
                return f"a {side} launch gave {comparison.metric} = {value} {comparison.unit}: not {wanted}"
    return ""


def _other_side(comparison: Comparison) -> str:
    return "stored" if comparison.test == "ranks" else "reference"


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


def _passing(costs: Comparison, values: Sequence[float], effect: float) -> list[float]:
    """The pass limit of each value: never below the fail limit, which a floor may put beyond the effect."""
    pass_floor = 2 * costs.floor if costs.metric is Metric.LOCK_WAIT else 0.0
    limits = _moved(values, effect, pass_floor), _moved(values, costs.margin, costs.floor)
    return [max(pair) for pair in zip(*limits, strict=True)]


def _rounds(test: Test, new: Sequence[float], reference: Sequence[float]) -> int:
    """How many launches, pairs or rounds there are."""
    return len(new) if test == "ranks" else min(len(new), len(reference))


def _due(looks: Sequence[Look], there: int, alpha: float, beta: float, final: bool) -> Iterator[Look]:
    """The looks that `there` launches are enough for; at the end a last one, at all that was not spent before."""
    yield from (look for look in looks if look.launches <= there)
    if final or not looks:
        # A look at this very number is part of the last one: that no more will come does not depend on the values.
        yield _left([look for look in looks if look.launches < there], there, alpha, beta)


def _left(looks: Sequence[Look], there: int, alpha: float, beta: float) -> Look:
    """A look at all there is with the levels that those before have left."""
    spent = [look for look in looks if look.launches <= there]
    return Look(
        launches=there,
        alpha=max(0.0, alpha - sum(look.alpha for look in spent)),
        beta=max(0.0, beta - sum(look.beta for look in spent)),
    )


def _parts(costs: Comparison) -> Iterator[Comparison]:
    """What each look that is due sees, in order, with the levels of the look; the last look's alone is `final`."""
    there = _rounds(costs.test, costs.new, costs.reference)
    due = list(_due(costs.looks, there, costs.alpha, costs.beta, costs.final))
    ends = costs.final or not costs.looks
    for position, look in enumerate(due):
        yield _seen(costs, look, final=ends and position == len(due) - 1)


def _everything(costs: Comparison) -> Comparison:
    """All there is between two looks: with the levels not spent yet, though none may be spent here."""
    there = _rounds(costs.test, costs.new, costs.reference)
    return _seen(costs, _left(costs.looks, there, costs.alpha, costs.beta), final=False)


def _seen(costs: Comparison, look: Look, *, final: bool) -> Comparison:
    reference = costs.reference if costs.test == "ranks" else costs.reference[: look.launches]
    return msgspec.structs.replace(
        costs,
        new=costs.new[: look.launches],
        reference=reference,
        alpha=look.alpha,
        beta=look.beta,
        final=final,
        looks=(),
    )


def _paired(new: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Differences by pair, to twelve digits of the larger side: what is left of equal values is rounding, not rank."""
    digits = 1e-12 * max(1.0, *map(abs, new), *map(abs, reference))
    return [round((own - beside) / digits) * digits for own, beside in zip(new, reference, strict=False)]


def _p_value(test: Test, new: Sequence[float], limits: Sequence[float], alternative: stats.Alternative) -> float:
    """The p-value that `new` lies beyond the limits that its reference gives."""
    if test == "pairs":
        return stats.signed_rank(_paired(new, limits), alternative=alternative)
    if test == "blocks":
        return stats.block_rank_sum(new, limits, alternative=alternative)
    return stats.mann_whitney(new, limits, alternative=alternative)


def _shift(test: Test, new: Sequence[float], reference: Sequence[float]) -> Interval:
    """The Hodges-Lehmann estimate of new - reference that belongs to the test, with its interval."""
    if test == "pairs":
        return stats.location(_paired(new, reference), INTERVAL_LEVEL)
    if test == "blocks":
        return stats.block_interval(new, reference, INTERVAL_LEVEL)
    return stats.hodges_lehmann_interval(new, reference, INTERVAL_LEVEL)


def _shift_bounds(
    test: Test, new: Sequence[float], reference: Sequence[float], low_error: float, high_error: float
) -> tuple[float, float]:
    errors = min(low_error, 0.5), min(high_error, 0.5)
    if test == "pairs":
        return stats.location_bounds(_paired(new, reference), *errors)[:2]
    if test == "blocks":
        return stats.block_bounds(new, reference, *errors)[:2]
    return stats.shift_bounds(new, reference, *errors)[:2]


def _weigh(costs: Comparison) -> _Evidence:
    metric, test = costs.metric, costs.test
    new, reference = _scaled(metric, costs.new), _scaled(metric, costs.reference)
    new_limit, reference_limit = (
        _scaled(metric, _moved(side, costs.margin, costs.floor)) for side in (costs.new, costs.reference)
    )
    gain = _scaled(metric, _passing(costs, costs.new, costs.effect))
    effect, p_pass = _pass(costs)
    p_fail = _p_value(test, new, reference_limit, "greater")
    p_improve = _p_value(test, new_limit, reference, "less")
    return _Evidence(
        shift=_shift(test, new, reference),
        p_fail=p_fail,
        p_improve=p_improve,
        p_gain=_p_value(test, gain, reference, "less"),
        p_pass=p_pass,
        fail_limit=_limit(metric, costs.reference, reference_limit),
        improve_limit=-_limit(metric, costs.new, new_limit),
        gain_limit=-_limit(metric, costs.new, gain),
        effect=_pass_limit(costs, effect),
        asked=_pass_limit(costs, costs.effect),
        larger=p_fail <= costs.alpha and _shift(test, new, reference_limit).value > 0,
        smaller=p_improve <= costs.alpha and _shift(test, new_limit, reference).value < 0,
    )


def _limit(metric: Metric, side: Sequence[float], limits: Sequence[float]) -> float:
    """How far the limits, which are on the metric's scale and rise with the side's values, move its median."""
    return median(limits) - median(_scaled(metric, side))


def _pass_limit(costs: Comparison, effect: float) -> float:
    return _limit(costs.metric, costs.reference, _scaled(costs.metric, _passing(costs, costs.reference, effect)))


def _pass(costs: Comparison) -> tuple[float, float]:
    """The effect that is judged at and the p-value there: the one asked for, unless only a wider one can be met."""

    def p_at(effect: float) -> float:
        limits = _scaled(costs.metric, _passing(costs, costs.reference, effect))
        return _p_value(costs.test, _scaled(costs.metric, costs.new), limits, "less")

    p_asked = p_at(costs.effect)
    if p_asked <= costs.beta or costs.metric is Metric.LOCK_WAIT or not costs.final:
        return costs.effect, p_asked
    sides = costs.new, costs.reference
    effect = reachable_effect(*sides, costs.effect, costs.beta, test=costs.test, widest=costs.widest)
    return effect, p_at(effect)


def _decide(costs: Comparison, evidence: _Evidence) -> Decision:
    if evidence.larger:
        return Decision.REGRESSED
    if evidence.smaller or evidence.p_gain <= costs.beta:
        return Decision.IMPROVED
    return Decision.PASSED if evidence.p_pass <= costs.beta else Decision.INCONCLUSIVE


def _verdict(
    costs: Comparison, evidence: _Evidence, decision: Decision, reason: str, more: int | None = None
) -> MetricVerdict:
    return MetricVerdict(
        metric=costs.metric,
        decision=decision,
        ratio=_ratio(costs.metric, evidence.shift),
        points=_points(costs.metric, evidence.shift),
        p_fail=evidence.p_fail,
        p_pass=evidence.p_pass,
        reason=reason,
        launches=_rounds(costs.test, costs.new, costs.reference),
        more=more,
    )


def _explain(costs: Comparison, evidence: _Evidence, decision: Decision, settles: str = "") -> str:
    """The reason in one line; nothing for a cell that passed at the effect asked for with waits to compare."""
    metric, change = costs.metric, _change(costs.metric, evidence.shift.value)
    if decision is Decision.REGRESSED:
        return f"{change} is beyond {_change(metric, evidence.fail_limit)} (needs p <= {costs.alpha:.2g})"
    if decision is Decision.IMPROVED:
        side = "above" if metric is Metric.SCALING else "below"
        limit, p, level = evidence.improve_limit, evidence.p_improve, costs.alpha
        if not evidence.smaller:
            limit, p, level = evidence.gain_limit, evidence.p_gain, costs.beta
        return f"{change} is {side} {_change(metric, limit)}: p = {p:.1g}, at most {level:.2g} counts"
    notes = (_widened(metric, evidence), settles, _hardly_waited(costs))
    return "; ".join(note for note in notes if note)


def _widened(metric: Metric, evidence: _Evidence) -> str:
    if evidence.effect <= evidence.asked:
        return ""
    return f"judged at {_change(metric, evidence.effect)}: the noise hides {_change(metric, evidence.asked)}"


def _hardly_waited(costs: Comparison) -> str:
    """Of a share: that most launches of a side, but not all, saw no wait, and what to do about it."""
    if costs.metric is not Metric.LOCK_WAIT:
        return ""
    sides = (("", costs.new), (f" {_other_side(costs)}", costs.reference))
    counts = ((name, sum(value == 0 for value in side), len(side)) for name, side in sides)
    rare = [f"{none} of {total}{name} launches" for name, none, total in counts if total > none > total / 2]
    return f"{' and '.join(rare)} saw no wait: a longer workload would see more of it" if rare else ""


def _what_settles(costs: Comparison, part: Comparison, evidence: _Evidence) -> _Prospect:
    """Why it is inconclusive and about how many launches would decide."""
    test, n, m = part.test, _rounds(part.test, part.new, part.reference), len(part.reference)
    value, fail, effect = evidence.shift.value, evidence.fail_limit, evidence.effect
    fails = value - fail > effect - value
    to_come = [look for look in costs.looks if look.launches > n] if not costs.final else []
    alpha, beta = part.alpha or costs.alpha, part.beta or costs.beta
    strictest = (alpha if fails else beta) if costs.looks else min(filter(None, (alpha, beta)), default=0.0)
    reaches = stats.least_p(test, n, m) <= strictest
    if not reaches and not to_come:
        return _lacking(test, strictest, n, m, _lacks(part, strictest))
    new, reference = _scaled(part.metric, part.new), _scaled(part.metric, part.reference)
    low, high = _shift_bounds(test, new, reference, alpha, beta)
    half_width, gap = (value - low, value - fail) if fails else (high - value, effect - value)
    if to_come:
        estimate = _next_look(part, to_come, n, _deviation(test, new, reference), gap, fails=fails)
    elif test == "ranks":
        estimate = _estimate(n, m, half_width, gap)
    else:
        estimate = _estimate_rounds(test, n, half_width, gap)
    why = _straddles(part.metric, low, high, evidence) if reaches else _lacks(part, strictest)
    return _Prospect(text=f"{why}; {estimate.text}", more=estimate.more)


def _lacks(part: Comparison, level: float) -> str:
    n, m = _rounds(part.test, part.new, part.reference), len(part.reference)
    against = f" against {m} stored" if part.test == "ranks" else ""
    return f"{_counted(part.test, n)}{against} cannot reach p <= {level:.2g}"


def _next_look(
    part: Comparison, looks: Sequence[Look], n: int, deviation: float, gap: float, *, fails: bool
) -> _Prospect:
    """The first look at which the gap between estimate and limit suffices to decide with a chance of PASS_POWER."""
    m = len(part.reference)
    for look in looks:
        reach = _distance(part.test, look.launches, m, look.alpha if fails else look.beta)
        if _clears(gap, deviation, reach):
            return _Prospect(text=_would(part.test, look.launches - n, " more"), more=look.launches - n)
    return _Prospect(text=_HOPELESS.format(_UNITS[part.test][1]))


def _estimate_rounds(test: Test, n: int, half_width: float, gap: float) -> _Prospect:
    """How many pairs or rounds shrink the interval's half-width to the gap between estimate and limit."""
    # Half as many again, as in `_estimate`.
    wanted = 1.5 * n * (half_width / gap) ** 2 if gap > 0 and half_width > 0 else math.inf
    if wanted > MOST_LAUNCHES:
        return _Prospect(text=_HOPELESS.format(_UNITS[test][1]))
    count = max(n + 1, math.ceil(wanted))
    return _Prospect(text=_would(test, count), more=count - n)


def _would(test: Test, count: int, more: str = "") -> str:
    one, many = _UNITS[test]
    return f"about {count}{more} {one if count == 1 else many} would settle it"


def _straddles(metric: Metric, low: float, high: float, evidence: _Evidence) -> str:
    """The interval beside the limits; of the scaling, which is better where it is more, all the other way round."""
    first, last = (high, low) if metric is Metric.SCALING else (low, high)
    stays, lies = ("above", "below") if metric is Metric.SCALING else ("below", "above")
    return (
        f"the interval {_change(metric, first)} .. {_change(metric, last)} neither stays {stays} "
        f"{_change(metric, evidence.effect)} nor lies {lies} {_change(metric, evidence.fail_limit)}"
    )


def _estimate(n: int, m: int, half_width: float, gap: float) -> _Prospect:
    """How many launches shrink the interval's half-width to the gap between estimate and limit (both logs)."""
    hopeless = _Prospect(text=_HOPELESS.format("launches"))
    if gap <= 0 or half_width <= 0:
        return hopeless
    # Half as many again: at the bare number the interval clears the limit only every other time.
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
    """What number of launches lets the exact test reach `level`, as n do not."""
    counts, both = range(n + 1, MOST_LAUNCHES * 10), ""
    enough = next((count for count in counts if stats.least_p(test, count, stored) <= level), None)
    if test == "ranks" and (enough is None or enough > MOST_LAUNCHES):
        both = " on both sides"
        enough = next((count for count in counts if stats.smallest_p(count, count) <= level), None)
    if enough is None:
        return _Prospect(text=f"{why}, nor could more")
    return _Prospect(text=f"{why}; {enough}{both} would", more=enough - n)


def _counted(test: Test, count: int) -> str:
    one, many = _UNITS[test]
    return f"{count} {one if count == 1 else many}"


def _required(values: Sequence[float], look: Look, text: str) -> MetricVerdict:
    """What one look says of a contract."""
    exact = _paired(values, [0.0] * len(values))
    p_fail, p_pass = stats.signed_rank(exact), stats.signed_rank(exact, alternative="less")
    decision, reason = Decision.INCONCLUSIVE, ""
    if p_fail <= look.alpha:
        against = f"{sum(value > 0 for value in values)} of {_counted('ranks', len(values))}"
        decision = Decision.BROKEN
        reason = f"it did not hold in {against}: p = {p_fail:.1g}, at most {look.alpha:.2g} counts"
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
    """About how many launches would decide on a contract: at the looks to come, else at one look with what is left."""
    exact = _paired(values, [0.0] * len(values))
    centre, n = stats.location(exact, 0.0).value, len(exact)
    fails, gap, deviation = centre > 0, abs(centre), stats.gini_deviation(exact)
    to_come = [look for look in looks if look.launches > n]
    for look in to_come:
        reach = _distance("pairs", look.launches, 0, look.alpha if fails else look.beta)
        if _clears(gap, deviation, reach):
            return _Prospect(text=_would("ranks", look.launches - n, " more"), more=look.launches - n)
    level = left.alpha if fails else left.beta
    if not to_come and stats.least_p("pairs", n) > level:
        return _lacking("pairs", level, n, 0, f"{_counted('ranks', n)} cannot reach p <= {level:.2g}")
    low, high, _ = stats.location_bounds(exact, *(min(error, 0.5) for error in (left.alpha, left.beta)))
    half_width = centre - low if fails else high - centre
    return _estimate_rounds("ranks", n, half_width, 0.0 if to_come else gap)


def _clears(gap: float, deviation: float, reach: float) -> bool:
    """Whether a gap to a limit is wide enough for a test that reaches so many deviations far, if it can reject."""
    return gap > 0 and reach < math.inf and deviation * reach <= gap


def _predictive(metric: Metric, centres: Sequence[float]) -> tuple[float, int]:
    """The standard deviation of a next recording around the mean of `centres` (logs), and its degrees of freedom."""
    count, middle = len(centres), fmean(centres)
    freedom = PRIOR_FREEDOM + count - 1
    prior = PRIOR_DEVIATIONS.get(metric, max(PRIOR_DEVIATIONS.values()))
    squares = PRIOR_FREEDOM * prior**2 + sum((centre - middle) ** 2 for centre in centres)
    return math.sqrt(squares / freedom * (1 + 1 / count)), freedom


def _student(probability: float, freedom: int) -> float:
    from scipy.special import stdtrit  # half a second: only a run that measured pays it

    return float(stdtrit(freedom, probability))


def _least(costs: Comparison) -> float:
    """What is added to a value before its logarithm is taken: something to a share, which may be 0."""
    return (costs.floor or LEAST_SHARE) if costs.metric is Metric.LOCK_WAIT else 0.0


def _moved_log(costs: Comparison, centre: float) -> float:
    """A centre as `predict` has it, moved by margin and floor."""
    least = _least(costs)
    return math.log(_moved([math.exp(centre) - least], costs.margin, costs.floor)[0] + least)


def _shown_shift(costs: Comparison, own: float, middle: float) -> float:
    """What lies between two centres of `predict`, on the metric's scale."""
    return math.exp(own) - math.exp(middle) if costs.metric is Metric.LOCK_WAIT else own - middle


def _foretold(costs: Comparison, decision: Decision, shift: float, limit: float, recordings: int) -> str:
    """The reason of a prediction, in one line."""
    change = _change(costs.metric, shift)
    stored = f"{recordings} stored recording" + ("" if recordings == 1 else "s")
    beyond = _change(costs.metric, limit)
    if decision is Decision.REGRESSED:
        return f"{change} is beyond {beyond}, as far as {stored} let expect (needs p <= {costs.alpha:.2g})"
    if decision is Decision.IMPROVED:
        return f"{change} is further than {stored} let expect (needs p <= {costs.alpha:.2g})"
    return (
        f"{change} against {stored}, from which only a change beyond {beyond} can be told: "
        "--ftgate-against or more recordings would settle it"
    )


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def _ratio(metric: Metric, shift: Interval) -> Interval | None:
    """New / reference of the metric itself, from the log-ratio of its costs; of a share there is none."""
    if metric is Metric.LOCK_WAIT:
        return None
    low, value, high = (math.exp(_bounded(bound)) for bound in (shift.low, shift.value, shift.high))
    if metric is Metric.SCALING:
        return Interval(value=1 / value, low=1 / high, high=1 / low, level=shift.level)
    return Interval(value=value, low=low, high=high, level=shift.level)


def _points(metric: Metric, shift: Interval) -> Interval | None:
    """New - reference of a share; of anything else there is none."""
    return shift if metric is Metric.LOCK_WAIT else None


def _change(metric: Metric, shift: float) -> str:
    """A shift of the costs as the change of the metric: `+7 %`; of a share `+1.2 points`."""
    if metric is Metric.LOCK_WAIT:
        return _percent(shift).removesuffix(" %") + " points"
    return _percent(math.expm1(_bounded(-shift if metric is Metric.SCALING else shift)))


def _bounded(log: float) -> float:
    """A log whose exponential is a finite number above 0."""
    return max(-700.0, min(log, 700.0))


def _percent(fraction: float) -> str:
    """`+7.0 %`: signed; whole percents lose their decimal."""
    text = f"{100 * fraction:+.1f}".removesuffix(".0")
    return ("0" if text in {"+0", "-0"} else text) + " %"
