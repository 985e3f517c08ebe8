"""What counts as a change: the texts of thresholds, and which threshold holds for a metric on a basis. Pure."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from msgspec.structs import replace

from ..kit.errors import FtgateError
from ..kit.text import did_you_mean, listed, percent
from ..kit.values import Interval, Threshold
from ..model.verdict import BasisKind, Comparison, Limits, MetricVerdict
from . import metrics
from .metrics import by_difference, is_gain

TIMES_S: Final[Mapping[str, float]] = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0}
"""Seconds in a unit of time, with both signs of micro."""
SIZES_BYTES: Final[Mapping[str, float]] = {
    "B": 1.0,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
}
MOST = 10.0
"""A share at or above this is a typing error."""
FORM = "METRIC: margin=3%, effect=8%, floor=1ms"
_TEXT = re.compile(r"\s*([^\s:]+)\s*:(.*)", re.DOTALL)
_FIELD = re.compile(r"[\s,]*([^\s,=]+)\s*=\s*([^\s,=]+(?:\s+(?:[A-Za-z\u00b5\u03bc]+|%)(?=[\s,]|$))?)")
_QUANTITY = re.compile(r"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([^\W\d]+|%)?")
FIELDS: Final = ("margin", "effect", "floor")


class ThresholdError(FtgateError):
    """Contradictory thresholds; the text names both and their sources."""


# ---- texts


def parse(text: str) -> Threshold:
    """`wall: margin=3%, effect=8%` -> Threshold; commas or spaces between the fields.

    Raises ValueError with what is taken.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{FORM}; {metrics.WHICH}")
    given: dict[str, str] = {}
    position = 0
    while match[2][position:].strip(" \t\r\n,"):
        field = _FIELD.match(match[2], position)
        if field is None or field[1] in given:
            raise ValueError(f"{FORM}; {match[2][position:].strip()!r} is not a field, or is given twice")
        given[field[1]] = field[2]
        position = field.end()
    try:
        if not given and metrics.known(match[1]):
            raise ValueError(f"{match[1]} is given neither margin, effect nor floor")
        return threshold(match[1], given)
    except ValueError as error:
        raise ValueError(f"{FORM}; {error}") from None


def threshold(metric: Any, given: Mapping[str, Any]) -> Threshold:
    """A Threshold from a metric's name and its fields as written: texts with units, or numbers in the metric's unit.

    Fields that are None count as not given. Raises ValueError for a metric that cannot gate, an unknown field, a
    value that is none, and for an effect that is not above its margin.
    """
    if not isinstance(metric, str) or not metrics.known(metric):
        raise ValueError(metrics.no_metric(metric))
    of = str(metric)
    values = {name: _value(of, name, value) for name, value in given.items() if value is not None}
    found = Threshold(metric=of, **values)
    if found.margin is not None and found.effect is not None and found.effect <= found.margin:
        raise ValueError(f"effect {percent(found.effect)} is not above margin {percent(found.margin)}")
    return found


def _value(metric: str, name: str, value: Any) -> float:
    if name not in FIELDS:
        raise ValueError(f"{name!r} is not a field{did_you_mean(name, FIELDS)}; use {listed(FIELDS)}")
    unit = metrics.row(metric).unit
    if name != "floor" or unit == "share":
        try:
            return share(value)
        except ValueError as error:
            raise ValueError(f"{name} of {metric} takes {error}") from None
    if unit not in _FLOORS:
        raise ValueError(f"{metric} has no floor, because it has no unit: give it a margin and an effect")
    units, taken = _FLOORS[unit]
    found = _quantity(value, units if isinstance(value, str) else {"": 1.0})
    if found is None:
        raise ValueError(f"floor of {metric} takes {taken}, not {value!r}")
    return found


def share(value: Any) -> float:
    """`5%` or `0.05` as a fraction. Raises ValueError with what is taken: from 1 on a share needs its sign."""
    number = _quantity(value, {"%": 0.01, "": 1.0})
    if number is None or number >= 100:
        raise ValueError(f"a share such as 5% or 0.05, not {value!r}")
    if number >= (MOST if "%" in str(value) else 1):
        raise ValueError(f"a share such as {number:g}% or {number / 100:g}, not {value!r}, which is {percent(number)}")
    return number


_FLOORS: Final[Mapping[metrics.Unit, tuple[Mapping[str, float], str]]] = {
    "time": (TIMES_S, "a time with its unit such as 1ms (ns, us, ms or s)"),
    "size": (SIZES_BYTES, "a size with its unit such as 1MiB (B, KB, KiB, MB, MiB, GB or GiB)"),
}
"""The units of a floor, and how it is written; that of a share is a share, and what has no unit has no floor."""


def _quantity(value: Any, units: Mapping[str, float]) -> float | None:
    """A number from 0 in one of these units, in the base unit; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value.strip())
        if match is None or (match[2] or "") not in units:
            return None
        value = float(match[1]) * units[match[2] or ""]
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


# ---- precedence


def effective(
    metric: str,
    basis: BasisKind,
    *,
    cli: Sequence[Threshold] = (),
    declared: Sequence[Threshold] = (),
    ini: Sequence[Threshold] = (),
) -> Limits:
    """The thresholds of a metric, each field by itself: command line > decorator > ini > default.

    Of several in `cli` the last one wins (see `declare.options.read`). If only one of margin and effect is given, the
    other is adapted to it. Raises ThresholdError for an effect that is not above the margin, and KeyError for a metric
    that has no thresholds.
    """
    layers = {
        "command line": cli,
        "@ftgate.limit": declared,
        "ini": ini,
    }
    row = metrics.row(metric)
    usual = row.paired if basis == "paired" else row.apart
    margin, margin_from = _first(metric, "margin", layers, usual.margin)
    effect, effect_from = _first(metric, "effect", layers, usual.effect)
    floor, _ = _first(metric, "floor", layers, usual.floor)
    if effect <= margin and not effect_from:
        effect = margin + usual.effect - usual.margin  # keeps the default distance
    if effect <= margin and not margin_from:
        margin = effect * usual.margin / usual.effect  # keeps the default proportion, and stays above 0
    if effect <= margin:
        raise ThresholdError(
            f"{metric}: effect {percent(effect)} ({effect_from}) is not above "
            f"margin {percent(margin)} ({margin_from}); set the effect above the margin"
        )
    return Limits(margin, effect, floor)


@functools.cache
def check(
    *, cli: tuple[Threshold, ...] = (), declared: tuple[Threshold, ...] = (), ini: tuple[Threshold, ...] = ()
) -> None:
    """Raise ThresholdError if a metric on any basis would have contradictory thresholds; each test asks for it."""
    bases: tuple[BasisKind, ...] = ("paired", "stored")
    named = {each.metric for each in (*cli, *declared, *ini)}
    for metric in dict.fromkeys((*metrics.NAMES, *sorted(named))):
        for basis in bases:
            effective(metric, basis, cli=cli, declared=declared, ini=ini)


def _first(metric: str, field: str, layers: Mapping[str, Sequence[Threshold]], usual: float) -> tuple[float, str]:
    for place, given in layers.items():
        for each in reversed(given):
            value = getattr(each, field)
            if each.metric == metric and value is not None:
                return value, place
    return usual, ""


# ---- the scale on which a metric is compared

LEAST_SHARE = 0.01
"""The `offset` of a share without a floor."""
LEAST_PART = 0.01
"""That of others, as a part of the largest value."""


def offset(comparison: Comparison) -> float:
    """What is added before a logarithm is taken, so that that of 0 is finite: the floor of what may be 0.

    A workload's own metrics have no floor: where one of the values is 0 it is a part of the largest.
    """
    of = metrics.row(comparison.metric)
    if of.scale == "difference" and comparison.limits.floor:
        return comparison.limits.floor
    if of.unit == "share":
        return LEAST_SHARE
    if not of.may_be_zero:
        return 0.0
    values = (*comparison.new, *comparison.reference)
    if of.scale == "difference" or 0 in values:
        return LEAST_PART * max(values, default=0.0) or 1.0
    return 0.0


def as_costs(comparison: Comparison) -> Comparison:
    """The comparison in values of which less is better: a gain is inverted."""
    if not is_gain(comparison.metric):
        return comparison
    least = offset(comparison)

    def inverted(values: Sequence[float]) -> tuple[float, ...]:
        return tuple(1 / (value + least) for value in values)

    return replace(
        comparison,
        new=inverted(comparison.new),
        reference=inverted(comparison.reference),
        recordings=tuple(map(inverted, comparison.recordings)),
    )


def tested(costs: Comparison, values: Sequence[float]) -> list[float]:
    """Values on the scale of the test: logs of what is positive with the `offset`."""
    least = offset(costs)
    return [math.log(value + least) for value in values]


def scaled(costs: Comparison, values: Sequence[float]) -> list[float]:
    """Values on the scale on which a change is shown: themselves where differences are compared, else as `tested`."""
    return list(values) if by_difference(costs.metric) else tested(costs, values)


def failing(costs: Comparison, values: Sequence[float]) -> list[float]:
    """The fail limit of each value."""
    return [(1 + costs.limits.margin) * value + costs.limits.floor for value in values]


def passing(costs: Comparison, values: Sequence[float], effect: float) -> list[float]:
    """The pass limit of each value: never below the fail limit, which a floor may move beyond the effect."""
    floor = 2 * costs.limits.floor if by_difference(costs.metric) else 0.0
    return [
        max((1 + effect) * value + floor, least) for value, least in zip(values, failing(costs, values), strict=True)
    ]


def shift_to(costs: Comparison, limits: Sequence[float], side: Sequence[float]) -> float:
    """How far the limits, which rise with the side's values, move its median, on the metric's scale."""
    return median(scaled(costs, limits)) - median(scaled(costs, side))


def fail_limit(costs: Comparison) -> float:
    """The fail limit of a comparison, on the metric's scale."""
    return shift_to(costs, failing(costs, costs.reference), costs.reference)


def pass_limit(costs: Comparison) -> float:
    """The pass limit of a comparison, on the metric's scale."""
    return shift_to(costs, passing(costs, costs.reference, costs.limits.effect), costs.reference)


def worse_by(costs: Comparison, reference: Sequence[float], effect: float) -> float:
    """How far the pass limit of an effect lies above the reference: as a fraction, or as a difference."""
    limit, middle = median(passing(costs, reference, effect)), median(reference)
    least = offset(costs)
    return round(limit - middle if by_difference(costs.metric) else (limit + least) / (middle + least) - 1, 12)


def ratio(metric: str, shift: Interval) -> Interval | None:
    """New / reference of the metric itself, from the log-ratio of its costs; None for a difference."""
    if by_difference(metric):
        return None
    low, value, high = (math.exp(bounded(bound)) for bound in (shift.low, shift.value, shift.high))
    if is_gain(metric):
        return Interval(value=1 / value, low=1 / high, high=1 / low, level=shift.level)
    return Interval(value=value, low=low, high=high, level=shift.level)


def allowed(metric: str, limit: float) -> float:
    """A fail limit as the change of the metric itself: new / reference, or new - reference."""
    if by_difference(metric):
        return limit
    return math.exp(bounded(-limit if is_gain(metric) else limit))


def worse(judged: MetricVerdict, *, pass_limit: bool = False) -> float:
    """How much worse a metric is, or its pass limit: a fraction of the reference, or a difference in its base unit.

    0 if that is unknown.
    """
    change = judged.points or judged.ratio
    value = judged.effect if pass_limit else change.value if change else None
    if judged.points is not None or not value:
        return value or 0.0
    return (1 / value if is_gain(judged.metric) else value) - 1


def at_least_worse(judged: MetricVerdict) -> float:
    """How much worse a metric is by the better end of its interval, as `worse` gives it."""
    change = judged.points or judged.ratio
    if change is None:
        return 0.0
    end = change.high if judged.points is None and is_gain(judged.metric) else change.low
    field = "ratio" if judged.points is None else "points"
    return worse(replace(judged, **{field: replace(change, value=end)}))


def bounded(log: float) -> float:
    """A log whose exponential is a finite number above 0."""
    # math.exp overflows from 710 and underflows below -745.
    return max(-700.0, min(log, 700.0))
