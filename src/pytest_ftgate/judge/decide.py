"""Comparison -> Verdict: which differences fail, which pass, and what would settle the rest. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median, median_low
from typing import NamedTuple

import msgspec

from ..model import WORST_FIRST, Basis, Comparison, Decision, Interval, Look, Metric, MetricVerdict, Verdict
from ..stats import alpha_spending, moderated, rank_tests
from ..text import apart, p_value
from . import looks
from .evidence import (
    Evidence,
    as_costs,
    deviations,
    other_side,
    p_pass,
    paired,
    pairs,
    ruled_out,
    seen,
    weigh,
    without_values,
)
from .metrics import is_gain, is_share, row
from .power import POWER
from .scale import (
    allowed,
    beside_limit,
    change_text,
    fail_limit,
    fail_limit_of,
    least_share,
    moved,
    pass_limit,
    points,
    ratio,
    scaled,
    tested,
    worse_text,
)

COST_LEVEL = 0.9
BEYOND_LEVEL = 0.08
"""An estimate beyond the effect counts as worse if the test rejects the fail limit at this level: else it is noise."""
ALONE, ALONE_AT_MOST = 8.0, math.log(4)
"""What one pair alone must lie beyond a limit to be suspect: so many times the deviation that a pair has at most, of
which its own iterations show a part, and never more than four times the limit."""
MOST_PAIRS = 200
"""A larger number is not recommended to users."""
CONTRACT_SPREAD = 0.1
"""The standard deviation that the log of a contract's two sides is expected to have from round to round."""
_PROBES = {
    "locks": ("the lock probe", "the waits are", "do more between two acquisitions"),
    "memory": ("memory sampling", "the memory is", "a longer workload is sampled less often"),
    "time": ("its probe", "the figure is", "a longer workload may be slowed less"),
}
"""By kind of launch: the probe, the figure that is in doubt, and a fix."""


class _Prospect(NamedTuple):
    """What would settle an open decision, in words and as a number of pairs if known; `open` has what is ruled out."""

    settles: str
    open: str
    more: int | None


def compare(comparison: Comparison) -> MetricVerdict:
    """The decision on one metric from the values of both sides of each pair.

    Each look with enough pairs uses the first of them, its own levels, and the test of `moderated`. Regressed: the test
    rejects new <= (1 + margin) reference + floor at alpha. Improved: the same with the sides exchanged. Passed: the
    test rejects new >= (1 + effect) reference (or the fail limit, if that is larger) at beta. The first look that
    decides is final: later pairs change neither decision nor figures.

    With `final` there is a last look at all pairs, at the levels that are left. What is still open is suspect if most
    pairs lie beyond the effect and the test rejects at `suspect_level` (of a single pair: if it lies beyond the limit
    as ALONE says), else inconclusive, `beyond` where the estimate is worse than the effect and the test rejects at
    BEYOND_LEVEL; all say what was ruled out and what would settle it.

    A larger gain is better: its inverse is judged, while `ratio` is new / reference of the gain itself. A share may be
    0: it passes below (1 + effect) reference + 2 floor, and `points` is new - reference (0.01 is a point). A value that
    is not finite or not positive (of a share: negative), or no new value at all, gives an error verdict; nothing is
    raised.
    """
    if refusal := without_values(comparison):
        return refusal
    costs = as_costs(comparison)
    there = pairs(costs)
    levels = (costs.alpha, costs.beta, costs.at_most)
    for look in looks.due(there, *levels, final=costs.final):
        part = seen(costs, look.launches)
        evidence = weigh(part)
        decision = _decide(evidence, look)
        if decision is not Decision.INCONCLUSIVE:
            return _verdict(part, look.beta, evidence, decision, _explain(part, look, evidence, decision))
    evidence = weigh(costs)
    # One pair rules out nothing, and before the end the levels of the looks to come are not spent.
    looked = costs.final and there >= alpha_spending.LOOKS[0]
    level = alpha_spending.last(*levels[:2], there).beta if looked else 0.0
    opened = _verdict(costs, level, evidence, Decision.INCONCLUSIVE)
    prospect = _what_settles(costs, evidence, opened.ruled_out)
    if costs.final and _suspect(costs, evidence):
        why = f"{_beyond(costs, evidence, suspect_level(costs.alpha))}; {prospect.settles}"
        return msgspec.structs.replace(opened, decision=Decision.SUSPECT, reason=why, more=prospect.more)
    shift, limit = evidence.shift.value, pass_limit(costs, costs.effect)
    beyond = costs.final and shift > limit and evidence.p_fail <= BEYOND_LEVEL
    notes = [prospect.open, _hardly_waited(costs)]
    if beyond:
        change, effect = beside_limit(costs.metric, shift, limit)
        notes.insert(0, f"the estimate {change} is worse than the effect {effect}")
    reason = "; ".join(filter(None, notes))
    return msgspec.structs.replace(opened, reason=reason, more=prospect.more, beyond=beyond)


def suspect_level(alpha: float) -> float:
    """The p-value at which a change that could not be decided is suspect: five times alpha, 0.02 at most."""
    return max(alpha, min(0.02, 5 * alpha))


def _likely(p_fail: float, distances: Sequence[float], alpha: float, bound: float = math.inf) -> bool:
    """Whether a failure is likely; `distances` of the pairs from the limit are logs.

    `bound` is the deviation that a pair has at most, infinite where it is not known.
    """
    if len(distances) >= alpha_spending.LOOKS[0]:
        return p_fail <= suspect_level(alpha)
    return min(distances) >= min(ALONE_AT_MOST, ALONE * bound)


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
    in `compare`. `correlation` is that of neighbouring rounds: the absolute figures of a machine drift. `spread` is the
    deviation that a round is expected to have.
    """
    if not values:
        reason = "no launch gave a value"
        return MetricVerdict(metric=Metric.CONTRACT, decision=Decision.INCONCLUSIVE, reason=reason, contract=text)
    schedule = alpha_spending.of_rounds(correlation)
    for look in looks.due(len(values), alpha, beta, at_most, final=final, schedule=schedule):
        verdict = _required(values[: look.launches], look, text, correlation, spread)
        if settled(verdict):
            return verdict
    open_one = _required(values, Look(launches=len(values), alpha=0.0, beta=0.0), text, correlation, spread)
    suspect = final and open_one.p_fail is not None and _likely(open_one.p_fail, values, alpha)
    more = _until_required(values, alpha, beta, correlation, spread)
    holds = f"it held in {sum(value < 0 for value in values)} of {_counted(len(values), 'round')}"
    decision = Decision.SUSPECT if suspect else Decision.INCONCLUSIVE
    return msgspec.structs.replace(open_one, decision=decision, reason=f"{holds}; {_settles(more, 'round')}", more=more)


def settled(verdict: MetricVerdict) -> bool:
    """Whether more launches cannot change the verdict."""
    return verdict.decision is not Decision.INCONCLUSIVE


def without_figures(metric: str, reason: str) -> MetricVerdict:
    """An inconclusive verdict on a metric that has no figures for this reason, which more launches cannot change."""
    return MetricVerdict(metric=metric, decision=Decision.INCONCLUSIVE, reason=reason, more=0)


def without_stored(metric: str, launches: int, nodeid: str) -> MetricVerdict:
    """An inconclusive verdict on a metric that has figures in this run, and none in what is stored."""
    reason = f"nothing is stored of it, so no change of it can be seen: record it again with --ftgate-update='{nodeid}'"
    return MetricVerdict(metric=metric, decision=Decision.INCONCLUSIVE, reason=reason, launches=launches, more=0)


def refused(metric: str, cost: Interval | None, limit: float) -> MetricVerdict | None:
    """An inconclusive verdict on a metric whose probe slowed the workload too much; None if it did not.

    `cost` is the time with the probe over the time without it, `limit` the slowdown allowed as a fraction (0.25:
    25 %). The interval's low end counts, at a level of 90 % at least, so that noise refuses nothing; without a cost
    nothing is refused.
    """
    if cost is None or cost.level < COST_LEVEL or cost.low <= 1 + limit:
        return None
    probe, figure, fix = _PROBES.get(row(metric).need, _PROBES["time"])
    slowed, most = apart(cost.value, 1 + limit, lambda each, more: f"{each:.{2 + more}f}x")
    slower = f"{probe} slowed it {slowed} (limit {most}, --ftgate-probe-cost)"
    reason = f"{slower}: {figure} not the workload's alone; {fix}"
    return MetricVerdict(metric=metric, decision=Decision.INCONCLUSIVE, reason=reason)


def judge(
    metrics: Sequence[MetricVerdict], *, baseline: str = "", commit: str = "", basis: Basis = "", why: str = ""
) -> Verdict:
    """The worst of a cell's verdicts, by `WORST_FIRST`.

    No baseline when none could be compared. The reason joins those of the metrics that decided. `baseline` and
    `commit` name the reference, `basis` and `why` say on what basis it was judged.
    """
    metrics = explained(metrics)
    decision = min((metric.decision for metric in metrics), key=WORST_FIRST.index, default=Decision.NO_BASELINE)
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


def again(verdict: Verdict, metrics: Sequence[MetricVerdict]) -> Verdict:
    """The verdict by these metrics; what it was compared with stays."""
    found = judge(metrics)
    return msgspec.structs.replace(verdict, decision=found.decision, metrics=found.metrics, reason=found.reason)


def explained(metrics: Sequence[MetricVerdict]) -> list[MetricVerdict]:
    """The verdicts, in which a figure that is derived from times fails only together with the cell's own time.

    The time is worse if the interval of its ratio lies above 1. Where it is not, scaling may have fallen because one
    worker became faster, which is no regression.
    """
    times = [each for each in metrics if each.metric == Metric.WALL]
    if any(each.ratio is not None and each.ratio.low > 1 for each in times):
        return list(metrics)
    known = bool(times) and all(each.decision in (Decision.PASSED, Decision.IMPROVED) for each in times)
    return [_without_blame(each, known=known) for each in metrics]


def _without_blame(judged: MetricVerdict, *, known: bool) -> MetricVerdict:
    failed = judged.decision in (Decision.REGRESSED, Decision.SUSPECT)
    if not (failed or judged.beyond) or not row(judged.metric).explains:
        return judged
    if not failed:
        return msgspec.structs.replace(judged, beyond=False)
    why = "the cell's own time is not worse" if known else "no time is known to be worse"
    decision = Decision.PASSED if known else Decision.INCONCLUSIVE
    return msgspec.structs.replace(judged, decision=decision, reason=f"{judged.reason}; {why}", ruled_out=None)


def split_alpha(alpha: float, beta: float, hypotheses: int) -> tuple[float, float]:
    """(alpha, beta) for each of a run's gating hypotheses.

    Alpha is split (Bonferroni): one false alarm fails the run, whichever raised it. Beta is not: it is the chance to
    miss one regression, which no number of unchanged neighbours makes likelier; split over 60 it would double what an
    unchanged cell is measured for.
    """
    return alpha / max(1, hypotheses), beta


# ---- one look


def _decide(evidence: Evidence, look: Look) -> Decision:
    if evidence.p_fail <= look.alpha:
        return Decision.REGRESSED
    if evidence.p_improve <= look.alpha:
        return Decision.IMPROVED
    return Decision.PASSED if evidence.p_pass <= look.beta else Decision.INCONCLUSIVE


def _suspect(costs: Comparison, evidence: Evidence) -> bool:
    """Whether a regression is likely: see `compare`."""
    likely = _likely(evidence.p_fail, _distances(costs), costs.alpha, evidence.bound)
    # The lower median: of two or three pairs, one that was disturbed makes none suspect.
    shifts = paired(*(scaled(costs.metric, side) for side in (costs.new, costs.reference)))
    return likely and median_low(shifts) > pass_limit(costs, costs.effect)


def _distances(costs: Comparison) -> list[float]:
    """How far each pair lies beyond the fail limit, on the scale of the test."""
    return paired(tested(costs, costs.new), tested(costs, moved(costs.reference, costs.margin, costs.floor)))


def _verdict(
    costs: Comparison, level: float, evidence: Evidence, decision: Decision, reason: str = ""
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
        points=points(costs.metric, evidence.shift),
        p_fail=evidence.p_fail,
        p_pass=evidence.p_pass,
        reason=reason,
        launches=pairs(costs),
        ruled_out=known,
        allowed=allowed(costs.metric, fail_limit(costs)),
        effect=allowed(costs.metric, pass_limit(costs, costs.effect)),
        wall_growth=costs.wall_growth[-1] if costs.wall_growth else 1.0,
    )


def _explain(costs: Comparison, look: Look, evidence: Evidence, decision: Decision) -> str:
    """The reason in one line; empty for a pass with waits to compare."""
    if decision is Decision.REGRESSED:
        return _beyond(costs, evidence, look.alpha)
    if decision is Decision.IMPROVED:
        least = -fail_limit_of(costs.metric, costs.new, moved(costs.new, costs.margin, costs.floor))
        change, limit = beside_limit(costs.metric, evidence.shift.value, least)
        side = "above" if is_gain(costs.metric) else "below"
        return f"{change} is {side} {limit}: {p_value(evidence.p_improve, look.alpha)}"
    return _hardly_waited(costs)


def _beyond(costs: Comparison, evidence: Evidence, level: float) -> str:
    """`+30 % is beyond +2 %: p = 0.0001, limit 0.0012`, or of one pair alone by how much it lies beyond."""
    change, limit = beside_limit(costs.metric, evidence.shift.value, fail_limit(costs))
    if evidence.p_fail <= level:
        return f"{change} is beyond {limit}: {p_value(evidence.p_fail, level)}"
    times = min(_distances(costs)) / evidence.deviation
    return f"{change} is beyond {limit}: 1 pair that lies beyond it by {times:.0f} times the expected deviation"


def _hardly_waited(costs: Comparison) -> str:
    """For a share: a note that most launches of a side, but not all, had no waits, and a fix."""
    if not is_share(costs.metric):
        return ""
    sides = (("", costs.new), (f" {other_side(costs)}", costs.reference))
    counts = ((name, sum(value == 0 for value in side), len(side)) for name, side in sides)
    rare = [f"{none} of {total}{name} launches" for name, none, total in counts if total > none > total / 2]
    return f"{' and '.join(rare)} had no waits: use a longer workload" if rare else ""


# ---- what would settle it


def _what_settles(costs: Comparison, evidence: Evidence, known: float | None) -> _Prospect:
    """What it rules out (`known`) and what would decide: `rules out +25 %; +5 % needs about 9 more pairs, 40 s`."""
    fail, effect, value = fail_limit(costs), pass_limit(costs, costs.effect), evidence.shift.value
    fails = value - fail > effect - value
    limit = fail if fails else effect
    if is_share(costs.metric):  # it is tested on another scale than it is shown on
        unit = median(costs.reference) + least_share(costs)
        value, limit = math.log1p(value / unit), math.log1p(limit / unit)
    gap = abs(value - limit) / (evidence.bound if fails else evidence.deviation)
    more = _enough(pairs(costs), _planned(costs.alpha, costs.beta, fails=fails), gap, 0.0)
    ruled = "nothing" if known is None else worse_text(costs.metric, known)
    rules = f"{'1 pair ' if pairs(costs) == 1 else ''}rules out {ruled}"
    if more is None:
        needs = _settles(None, "pair")
    elif fails:
        needs = f"whether it is beyond {change_text(costs.metric, fail)} needs {_about(more, 'pair', costs.pair_s)}"
    else:
        needs = f"{change_text(costs.metric, effect)} needs {_about(more, 'pair', costs.pair_s)}"
    return _Prospect(_settles(more, "pair"), f"{rules}; {needs}", more)


def _enough(there: int, levels: Iterable[tuple[int, float]], gap: float, correlation: float) -> int | None:
    """How many more pairs it takes to a planned number whose reach is within the gap between estimate and limit.

    The gap is in deviations of a pair. None if no planned number is enough.
    """
    later = ((count, level) for count, level in levels if count > there)
    return next(
        (count - there for count, level in later if moderated.reach(count, level, POWER, correlation) <= gap), None
    )


def _settles(more: int | None, what: str) -> str:
    if more is None:
        return f"more {what}s are unlikely to settle it; try a longer workload or a quieter machine"
    return f"{_about(more, what)} would settle it"


def _about(more: int, what: str, each_s: float = 0.0) -> str:
    """`about 9 more pairs, 40 s`: with the time that they take if that of one is known."""
    seconds = more * each_s
    time = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    return f"about {_counted(more, f'more {what}')}" + (f", {time}" if each_s else "")


def _planned(
    alpha: float, beta: float, *, fails: bool, schedule: alpha_spending.Schedule = alpha_spending.PAIRS
) -> list[tuple[int, float]]:
    """The planned numbers of pairs, each with its level to fail, or to pass."""
    looks_ahead = alpha_spending.plan(alpha, beta, at_most=MOST_PAIRS, schedule=schedule)
    return [(look.launches, look.alpha if fails else look.beta) for look in looks_ahead]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


# ---- contracts


def _required(values: Sequence[float], look: Look, text: str, correlation: float, spread: float) -> MetricVerdict:
    """The verdict on a contract at one look."""
    exact = paired(values, [0.0] * len(values))
    scales = moderated.deviations(exact, (), spread)
    p_fail = moderated.p_above(exact, scales, correlation)
    p_pass = moderated.p_above([-value for value in exact], scales, correlation)
    decision, reason = Decision.INCONCLUSIVE, ""
    if p_fail <= look.alpha:
        against = f"{sum(value > 0 for value in values)} of {_counted(len(values), 'round')}"
        decision = Decision.BROKEN
        reason = f"it did not hold in {against}: {p_value(p_fail, look.alpha)}"
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


def _until_required(
    values: Sequence[float], alpha: float, beta: float, correlation: float, spread: float
) -> int | None:
    """About how many rounds would decide on a contract."""
    exact = paired(values, [0.0] * len(values))
    centre = rank_tests.location(exact, 0.0).value
    deviation = float(moderated.deviations(exact, (), spread)[0])
    levels = _planned(alpha, beta, fails=centre > 0, schedule=alpha_spending.of_rounds(correlation))
    return _enough(len(values), levels, abs(centre) / deviation, correlation)
