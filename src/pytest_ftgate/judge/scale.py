"""The scale on which a metric is compared: limits, logarithms, changes in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from ..model import Comparison, Interval
from ..text import apart
from .metrics import is_gain, is_share

LEAST_SHARE = 0.01
"""The default of a share that is added before a logarithm is taken, so that the log of no wait is finite."""


def least_share(costs: Comparison) -> float:
    """The number that is added before a logarithm is taken: positive for a share, which may be 0, else 0."""
    return (costs.floor or LEAST_SHARE) if is_share(costs.metric) else 0.0


def scaled(metric: str, values: Sequence[float]) -> list[float]:
    """Values on the scale on which a change is a shift: logs; for a share, which may be 0, the values themselves."""
    return list(values) if is_share(metric) else logs(values)


def tested(costs: Comparison, values: Sequence[float]) -> list[float]:
    """Values on the scale of the test: logs, of a share with a constant added, so that the log of no wait is finite."""
    least = least_share(costs)
    return logs([value + least for value in values])


def moved(values: Sequence[float], fraction: float, floor: float) -> list[float]:
    """Each value moved by a fraction of itself and a floor."""
    return [(1 + fraction) * value + floor for value in values]


def passing(costs: Comparison, values: Sequence[float], effect: float) -> list[float]:
    """The pass limit of each value: never below the fail limit, which a floor may move beyond the effect."""
    pass_floor = 2 * costs.floor if is_share(costs.metric) else 0.0
    limits = moved(values, effect, pass_floor), moved(values, costs.margin, costs.floor)
    return [max(pair) for pair in zip(*limits, strict=True)]


def fail_limit_of(metric: str, side: Sequence[float], limits: Sequence[float]) -> float:
    """How far the limits, which rise with the side's values, move its median, on the metric's scale."""
    return median(scaled(metric, limits)) - median(scaled(metric, side))


def fail_limit(costs: Comparison) -> float:
    """The fail limit of a comparison, on the metric's scale."""
    return fail_limit_of(costs.metric, costs.reference, moved(costs.reference, costs.margin, costs.floor))


def pass_limit(costs: Comparison, effect: float) -> float:
    """The pass limit of a comparison, on the metric's scale."""
    return fail_limit_of(costs.metric, costs.reference, passing(costs, costs.reference, effect))


def worse_by(costs: Comparison, reference: Sequence[float], effect: float) -> float:
    """How far the pass limit of an effect lies above the reference: as a fraction, of a share as a number of points."""
    limit, middle = median(passing(costs, reference, effect)), median(reference)
    return round(limit - middle if is_share(costs.metric) else limit / middle - 1, 12)


def moved_log(costs: Comparison, centre: float) -> float:
    """A centre as `predict` has it, moved by margin and floor."""
    least = least_share(costs)
    return math.log(moved([math.exp(centre) - least], costs.margin, costs.floor)[0] + least)


def shown_shift(costs: Comparison, own: float, middle: float) -> float:
    """The difference of two centres of `predict`, on the metric's scale."""
    return math.exp(_bounded(own)) - math.exp(middle) if is_share(costs.metric) else own - middle


def logs(values: Sequence[float]) -> list[float]:
    """Natural logarithms."""
    return [math.log(value) for value in values]


def ratio(metric: str, shift: Interval) -> Interval | None:
    """New / reference of the metric itself, from the log-ratio of its costs; None for a share."""
    if is_share(metric):
        return None
    low, value, high = (math.exp(_bounded(bound)) for bound in (shift.low, shift.value, shift.high))
    if is_gain(metric):
        return Interval(value=1 / value, low=1 / high, high=1 / low, level=shift.level)
    return Interval(value=value, low=low, high=high, level=shift.level)


def points(metric: str, shift: Interval) -> Interval | None:
    """New - reference of a share; None for any other metric."""
    return shift if is_share(metric) else None


def allowed(metric: str, limit: float) -> float:
    """A fail limit as the change of the metric itself: new / reference; of a share new - reference."""
    if is_share(metric):
        return limit
    return math.exp(_bounded(-limit if is_gain(metric) else limit))


def change_text(metric: str, shift: float, more: int = 0) -> str:
    """A shift of the costs as the change of the metric: `+7 %`; of a share `+1.2 points`; `more` are further digits."""
    if is_share(metric):
        return _percent(shift, more).removesuffix(" %") + " points"
    return _percent(math.expm1(_bounded(-shift if is_gain(metric) else shift)), more)


def worse_text(metric: str, worse: float) -> str:
    """A change as `worse_by` gives it, in words: of a gain `-20 %` for 0.25."""
    return change_text(metric, worse if is_share(metric) else math.log1p(worse))


def beside_limit(metric: str, shift: float, limit: float) -> tuple[str, str]:
    """As `change_text`, a shift and its limit, which differ in the text if they do."""
    return apart(shift, limit, lambda each, more: change_text(metric, each, more))


def _bounded(log: float) -> float:
    """A log whose exponential is a finite number above 0."""
    # math.exp overflows from 710 and underflows below -745.
    return max(-700.0, min(log, 700.0))


def _percent(fraction: float, more: int) -> str:
    """`+7.1 %`: signed; whole percents lose their decimals."""
    text = f"{100 * fraction:+.{1 + more}f}".rstrip("0").removesuffix(".")
    return ("0" if text in {"+0", "-0"} else text) + " %"
