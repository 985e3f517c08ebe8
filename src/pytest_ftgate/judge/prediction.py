"""Prediction intervals from stored recordings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

import msgspec

from ..model import Comparison, Decision, Interval, MetricVerdict
from .evidence import INTERVAL_LEVEL, as_costs, without_values
from .metrics import is_gain, row
from .scale import change_text, least_share, moved_log, points, ratio, shown_shift

PRIOR_FREEDOM = 8
"""Weight of the prior deviation of a metric (`MetricRow.spread`): that of PRIOR_FREEDOM + 1 recordings. Otherwise two
recordings that agree by chance would make the next one a regression."""


def predict(comparison: Comparison, recordings: Sequence[Sequence[float]]) -> MetricVerdict:
    """The decision from stored `recordings` where their commit cannot be measured with the change.

    `recordings` holds the per-launch values of each, in the unit of `comparison.new`; `comparison.reference` is not
    read. The unit of replication is the recording. The median of the new launches is compared with a prediction limit
    (Hahn & Meeker 1991, "Statistical Intervals"): the next recording stays below it with probability 1 - alpha, by
    Student's t around the mean of the stored medians, moved by margin and floor. The variance between recordings is
    the observed one, pooled with the prior of the metric, plus the variance of a median of so few launches. Regressed
    above that limit, improved below the mirrored one, else inconclusive: a prediction passes nothing. Errors and no
    baseline as in `compare`.
    """
    everything = tuple(value for recording in recordings for value in recording)
    if refusal := without_values(msgspec.structs.replace(comparison, reference=everything)):
        return refusal
    costs = as_costs(comparison)
    invert = is_gain(costs.metric)
    stored = [median(1 / value if invert else value for value in recording) for recording in recordings if recording]
    least = least_share(costs)
    own, *centres = (math.log(value + least) for value in (median(costs.new), *stored))
    middle, deviation, freedom = fmean(centres), *_predictive(costs.metric, centres)
    deviation = math.hypot(deviation, _of_medians([costs.new, *recordings], least))
    reach = _student(1 - costs.alpha, freedom) * deviation
    decision = Decision.INCONCLUSIVE
    if own > moved_log(costs, middle) + reach:
        decision = Decision.REGRESSED
    elif moved_log(costs, own) + reach < middle:
        decision = Decision.IMPROVED
    half = _student((1 + INTERVAL_LEVEL) / 2, freedom) * deviation
    around = [shown_shift(costs, own + step, middle) for step in (-half, 0.0, half)]
    shift = Interval(low=around[0], value=around[1], high=around[2], level=INTERVAL_LEVEL)
    limit = shown_shift(costs, moved_log(costs, middle) + reach, middle)
    return MetricVerdict(
        metric=costs.metric,
        decision=decision,
        ratio=ratio(costs.metric, shift),
        points=points(costs.metric, shift),
        reason=_foretold(costs, decision, shift.value, limit, len(centres)),
        launches=len(costs.new),
    )


def _of_medians(runs: Sequence[Sequence[float]], least: float) -> float:
    """The standard deviation of (new median - mean of the stored medians) that single launches cause, in logs.

    The first of `runs` is the new one. A median of n values has pi / (2 n) times their variance (Laplace 1818), which
    is pooled over all runs.
    """
    new, *stored = [[math.log(value + least) for value in run] for run in runs if run]
    freedom = sum(len(run) - 1 for run in (new, *stored))
    if not freedom:
        return 0.0
    squares = sum((value - fmean(run)) ** 2 for run in (new, *stored) for value in run)
    shares = 1 / len(new) + sum(1 / len(run) for run in stored) / len(stored) ** 2
    return math.sqrt(squares / freedom * shares * math.pi / 2)


def _predictive(metric: str, centres: Sequence[float]) -> tuple[float, int]:
    """The standard deviation of the next recording around the mean of `centres` (logs), and its degrees of freedom."""
    count, middle = len(centres), fmean(centres)
    freedom = PRIOR_FREEDOM + count - 1
    prior = row(metric).spread
    squares = PRIOR_FREEDOM * prior**2 + sum((centre - middle) ** 2 for centre in centres)
    return math.sqrt(squares / freedom * (1 + 1 / count)), freedom


def _student(probability: float, freedom: int) -> float:
    from scipy.special import stdtrit  # half a second: only a run that measured pays it

    return float(stdtrit(freedom, probability))


def _foretold(costs: Comparison, decision: Decision, shift: float, limit: float, recordings: int) -> str:
    """The reason of a prediction, in one line."""
    change = change_text(costs.metric, shift)
    stored = f"{recordings} stored recording" + ("" if recordings == 1 else "s")
    beyond = change_text(costs.metric, limit)
    if decision is Decision.REGRESSED:
        return f"{change} is beyond {beyond}, the limit predicted from {stored} (needs p <= {costs.alpha:.2g})"
    if decision is Decision.IMPROVED:
        return f"{change} is beyond the range predicted from {stored} (needs p <= {costs.alpha:.2g})"
    return (
        f"{change} against {stored}, which can only detect a change beyond {beyond}; "
        "--ftgate-against or more recordings would settle it"
    )
