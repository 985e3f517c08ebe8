"""The evidence of a decision: what the test of pairs says about each limit. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import msgspec

from ..model import Comparison, Decision, Interval, Look, MetricVerdict, Struct
from ..stats import moderated, rank_tests
from . import power, scale
from .metrics import is_gain, is_share, row

INTERVAL_LEVEL = 0.95


class Evidence(Struct, frozen=True, kw_only=True):
    """The results of the test at one look. `shift` is on the metric's scale (see `scale.scaled`): more is worse.

    `p_gain` is the p-value of being better than the effect. `effect` is what a pass is judged at, wider than requested
    only if that cannot be reached. `deviation` is that of a pair on the scale of `tested`, as a pass is judged;
    `bound` is the larger one at which a failure is.
    """

    shift: Interval
    p_fail: float
    p_improve: float
    p_gain: float
    p_pass: float
    effect: float
    deviation: float
    bound: float


def without_values(comparison: Comparison) -> MetricVerdict | None:
    """The verdict where there is nothing to compare with, or values that cannot be compared."""
    if not comparison.reference:
        reason = "nothing is stored to compare with" if comparison.stored else "the reference gave no value"
        return MetricVerdict(metric=comparison.metric, decision=Decision.NO_BASELINE, reason=reason)
    if fault := _fault(comparison):
        return MetricVerdict(metric=comparison.metric, decision=Decision.ERROR, reason=fault)
    return None


def as_costs(comparison: Comparison) -> Comparison:
    """The comparison in values of which less is better: a gain is inverted."""
    if not is_gain(comparison.metric):
        return comparison
    new, reference = (tuple(1 / value for value in side) for side in (comparison.new, comparison.reference))
    return msgspec.structs.replace(comparison, new=new, reference=reference)


def pairs(comparison: Comparison) -> int:
    """How many pairs there are."""
    return min(len(comparison.new), len(comparison.reference))


def seen(costs: Comparison, count: int) -> Comparison:
    """The comparison as it stands after `count` pairs."""
    sides = costs.new[:count], costs.reference[:count]
    return msgspec.structs.replace(costs, new=sides[0], reference=sides[1], errors=costs.errors[:count])


def paired(new: Sequence[float], reference: Sequence[float]) -> list[float]:
    """The differences of pairs, rounded to twelve digits of the larger side."""
    # Without rounding, the last bits of equal values would count as a difference and get a rank.
    digits = 1e-12 * max(1.0, *map(abs, new), *map(abs, reference))
    return [round((own - other) / digits) * digits for own, other in zip(new, reference, strict=False)]


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
    """The word for the side that is not new."""
    return "stored" if comparison.stored else "reference"


# ---- the test


def weigh(costs: Comparison, look: Look, *, last: bool) -> Evidence:
    """What the pairs say at a look; at the `last` one the effect is widened if the noise allows no other pass."""
    new, reference = scale.tested(costs, costs.new), scale.tested(costs, costs.reference)
    shifts = paired(new, reference)
    spread = row(costs.metric).spread
    expected = moderated.deviations(shifts, costs.errors, spread)
    bound = moderated.deviations(shifts, costs.errors, moderated.BOUND * spread)
    deviation, largest = (math.sqrt(float((each**2).mean())) for each in (expected, bound))

    def p_beyond(above: Sequence[float], below: Sequence[float], deviations: moderated.Floats) -> float:
        distances = paired(scale.tested(costs, above), scale.tested(costs, below))
        return moderated.p_above(distances, deviations)

    def p_pass(effect: float) -> float:
        return p_beyond(scale.passing(costs, costs.reference, effect), costs.new, expected)

    effect = costs.effect
    if last and not is_share(costs.metric) and p_pass(effect) > look.beta:
        effect = power.reachable_effect(deviation, len(shifts), effect, look.beta, costs.widest)
    return Evidence(
        shift=_shift(costs, deviation),
        p_fail=p_beyond(costs.new, scale.moved(costs.reference, costs.margin, costs.floor), bound),
        p_improve=p_beyond(costs.reference, scale.moved(costs.new, costs.margin, costs.floor), bound),
        p_gain=p_beyond(costs.reference, scale.passing(costs, costs.new, costs.effect), expected),
        p_pass=p_pass(effect),
        effect=effect,
        deviation=deviation,
        bound=largest,
    )


def _shift(costs: Comparison, deviation: float) -> Interval:
    """The Hodges-Lehmann estimate of new - reference on the metric's scale, with an interval of INTERVAL_LEVEL.

    It uses the deviation that the test uses; that of a share is converted from the scale of its test.
    """
    new, reference = (scale.tested(costs, side) for side in (costs.new, costs.reference))
    centre = rank_tests.location(paired(new, reference), 0.0).value
    half = moderated.half_width(len(new), INTERVAL_LEVEL) * deviation
    low, value, high = centre - half, centre, centre + half
    if is_share(costs.metric):
        unit = median(costs.reference) + scale.least_share(costs)
        low, value, high = (unit * math.expm1(end) for end in (low, value, high))
    return Interval(low=low, value=value, high=high, level=INTERVAL_LEVEL)
