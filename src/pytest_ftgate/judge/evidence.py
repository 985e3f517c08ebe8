"""What a comparison rests on: rounds, paired values, shares and costs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ..model import Comparison, Decision, Interval, Look, MetricVerdict, Struct, Test
from .metrics import is_gain, is_share

LEAST_SHARE = 0.01
"""A share of the time below which two are alike, where a comparison names none: it keeps the log of no wait finite."""
INTERVAL_LEVEL = 0.95


class Evidence(Struct, frozen=True, kw_only=True):
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


def without_values(comparison: Comparison) -> MetricVerdict | None:
    """The verdict where there is nothing to compare with, or values that cannot be compared."""
    if not comparison.reference:
        reason = "nothing is stored to compare with" if comparison.test == "ranks" else "the reference gave no value"
        return MetricVerdict(metric=comparison.metric, decision=Decision.NO_BASELINE, reason=reason)
    if fault := _fault(comparison):
        return MetricVerdict(metric=comparison.metric, decision=Decision.ERROR, reason=fault)
    return None


def as_costs(comparison: Comparison) -> Comparison:
    """The same with values of which less is better."""
    if not is_gain(comparison.metric):
        return comparison
    new, reference = (tuple(1 / value for value in side) for side in (comparison.new, comparison.reference))
    return msgspec.structs.replace(comparison, new=new, reference=reference)


def rounds(test: Test, new: Sequence[float], reference: Sequence[float]) -> int:
    """How many launches, pairs or rounds there are."""
    return len(new) if test == "ranks" else min(len(new), len(reference))


def seen(costs: Comparison, look: Look, *, final: bool) -> Comparison:
    """The comparison as it stands at one look."""
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


def paired(new: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Differences by pair, to twelve digits of the larger side: what is left of equal values is rounding, not rank."""
    digits = 1e-12 * max(1.0, *map(abs, new), *map(abs, reference))
    return [round((own - beside) / digits) * digits for own, beside in zip(new, reference, strict=False)]


def least_share(costs: Comparison) -> float:
    """What is added to a value before its logarithm is taken: something to a share, which may be 0."""
    return (costs.floor or LEAST_SHARE) if is_share(costs.metric) else 0.0


def _fault(comparison: Comparison) -> str:
    """Why the values cannot be compared, or nothing."""
    share = is_share(comparison.metric)
    wanted = "a share of 0 or more" if share else "a positive number"
    for side, values in (("new", comparison.new), (other_side(comparison), comparison.reference)):
        if not values:
            return f"no {side} launch gave a value of {comparison.metric}"
        for value in values:
            if not (math.isfinite(value) and (value > 0 or (share and value == 0))):
                return f"a {side} launch gave {comparison.metric} = {value} {comparison.unit}: not {wanted}"
    return ""


def other_side(comparison: Comparison) -> str:
    """What the side that is not new is called."""
    return "stored" if comparison.test == "ranks" else "reference"
