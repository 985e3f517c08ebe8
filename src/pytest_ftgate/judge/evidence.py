"""The inputs of a decision: rounds, paired values, shares and costs. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ..model import Comparison, Decision, Interval, Look, MetricVerdict, Struct, Test
from .metrics import is_gain, is_share

LEAST_SHARE = 0.01
"""The default of a share that is added before a logarithm is taken, so that the log of no wait is finite."""
INTERVAL_LEVEL = 0.95


class Evidence(Struct, frozen=True, kw_only=True):
    """The results of the exact tests at one look, as shifts on the metric's scale (see `scaled`): more is worse.

    Limits and effect are taken at the median of the side that they move; `asked` is the effect before widening.
    `p_gain` is the p-value of being better than the effect; `larger` and `smaller` say that the test rejects at alpha
    and that the Hodges-Lehmann estimate agrees.
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
    """The comparison in values of which less is better: a gain is inverted."""
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
    """The differences of pairs, rounded to twelve digits of the larger side."""
    # Without rounding, the last bits of equal values would count as a difference and get a rank.
    digits = 1e-12 * max(1.0, *map(abs, new), *map(abs, reference))
    return [round((own - other) / digits) * digits for own, other in zip(new, reference, strict=False)]


def least_share(costs: Comparison) -> float:
    """The number that is added before a logarithm is taken: positive for a share, which may be 0, else 0."""
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
    """The word for the side that is not new."""
    return "stored" if comparison.test == "ranks" else "reference"
