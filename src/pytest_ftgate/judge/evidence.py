"""The evidence of a decision: what the test of pairs says about each limit. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import zip_longest
from statistics import median

import msgspec

from ..model import WIDEST, Comparison, Decision, Interval, MetricVerdict, Struct
from ..stats import moderated
from . import scale
from .metrics import is_gain, is_share, row

INTERVAL_LEVEL = 0.95
RULED_OUT = range(1, round(100 * (WIDEST - 1)) + 1)
"""The percents of which a report says that they are ruled out."""


class Evidence(Struct, frozen=True, kw_only=True):
    """The results of the test at one look. `shift` is on the metric's scale (see `scale.scaled`): more is worse.

    `deviation` is that of a pair on the scale of `tested`, as a pass is judged; `bound` is the larger one at which a
    failure is.
    """

    shift: Interval
    p_fail: float
    p_improve: float
    p_pass: float
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
    of_pairs = ("new", "reference", "errors", "wall_growth")
    return msgspec.structs.replace(costs, **{name: getattr(costs, name)[:count] for name in of_pairs})


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


def weigh(costs: Comparison) -> Evidence:
    """What the pairs say."""
    expected, bound = deviations(costs), deviations(costs, moderated.BOUND)
    # A tail that is shorter beside a longer body alone has not improved.
    measured = [value / by for value, by in zip_longest(costs.reference, costs.wall_growth, fillvalue=1.0)]
    deviation, largest = (math.sqrt(float((each**2).mean())) for each in (expected, bound))
    return Evidence(
        shift=_shift(costs, expected),
        p_fail=_p_beyond(costs, costs.new, scale.moved(costs.reference, costs.margin, costs.floor), bound),
        p_improve=_p_beyond(costs, measured, scale.moved(costs.new, costs.margin, costs.floor), bound),
        p_pass=p_pass(costs, costs.effect, expected),
        deviation=deviation,
        bound=largest,
    )


def p_pass(costs: Comparison, effect: float, expected: moderated.Floats) -> float:
    """The p-value of a change that is not as large as `effect`; `expected` are the `deviations` of the pairs."""
    return _p_beyond(costs, scale.passing(costs, costs.reference, effect), costs.new, expected)


def ruled_out(costs: Comparison, reference: Sequence[float], rejects: Callable[[float], bool]) -> float | None:
    """The smallest effect that a pass test rejects, in whole percent, as `MetricVerdict.ruled_out` has it.

    What rejects an effect rejects larger ones; the effect asked for counts beside the whole percents.
    """
    percent = bisect_left(RULED_OUT, True, key=lambda each: rejects(each / 100)) + RULED_OUT[0]
    found = [percent / 100] if percent in RULED_OUT else []
    found += [costs.effect] if rejects(costs.effect) else []
    return scale.worse_by(costs, reference, min(found)) if found else None


def deviations(costs: Comparison, times: float = 1.0) -> moderated.Floats:
    """The standard deviation of each pair, where its stated part is `times` that of the metric."""
    shifts = paired(scale.tested(costs, costs.new), scale.tested(costs, costs.reference))
    return moderated.deviations(shifts, costs.errors, times * row(costs.metric).spread)


def _p_beyond(costs: Comparison, above: Sequence[float], below: Sequence[float], scales: moderated.Floats) -> float:
    return moderated.p_above(paired(scale.tested(costs, above), scale.tested(costs, below)), scales)


def _shift(costs: Comparison, expected: moderated.Floats) -> Interval:
    """New - reference on the metric's scale, with an interval of INTERVAL_LEVEL; that of a share is converted."""
    new, reference = (scale.tested(costs, side) for side in (costs.new, costs.reference))
    low, value, high = moderated.interval(paired(new, reference), expected, INTERVAL_LEVEL)
    if is_share(costs.metric):
        unit = median(costs.reference) + scale.least_share(costs)
        low, value, high = (unit * math.expm1(end) for end in (low, value, high))
    return Interval(low=low, value=value, high=high, level=INTERVAL_LEVEL)
