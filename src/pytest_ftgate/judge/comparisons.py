"""Which numbers of which launches are compared with the interleaved reference; `recorded` has the stored ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple, TypeAlias

from ..model import Metric, Sample, Test
from ..stats import alpha_spending, rank_tests
from . import metrics, per_launch
from .memory_figures import memory_values
from .metrics import LEAST_TAIL_ITERATIONS

UNITS: Mapping[str, str] = {"time": "ns", "size": "bytes", "share": "of the time", "ratio": "x", "number": ""}


class Numbers(NamedTuple):
    """One metric of both sides, one number per launch; for pairs and blocks the same index is the same round."""

    new: tuple[float, ...]
    reference: tuple[float, ...]
    unit: str
    test: Test
    recordings: tuple[tuple[float, ...], ...] = ()


Iterations: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
Sides: TypeAlias = Mapping[int, Iterations]
Values: TypeAlias = Mapping[int, float]


# ---- paired with the reference


def paired(sample: Sample, names: Iterable[str] = metrics.GATING) -> dict[str, Numbers]:
    """Metric -> the values of a cell and its reference in the same rounds.

    A metric that both lack is left out; one that only the cell lacks has no new values.

    The estimator of a launch's time is chosen from split halves of both sides, blind to their difference: the choice is
    the same if the sides of a pair are exchanged, which the signed rank test requires. It is made from the pairs of the
    first look and then kept, so that values that an earlier look used never change.
    """
    reference = sample.reference
    if reference is None:
        return {}
    found = {}
    for row in map(metrics.row, names):
        pairs = _pairs(row, sample, reference)
        if pairs:
            new, old = zip(*pairs, strict=True)
            found[row.name] = Numbers(new, old, UNITS[row.unit], row.test)
        elif row.absent and (values := _values(row)(reference)):
            found[row.name] = Numbers((), tuple(values.values()), "", "ranks")
    return found


def _pairs(row: metrics.MetricRow, sample: Sample, reference: Sample) -> list[tuple[float, float]]:
    sides = per_launch.sides_by_order
    if row.name == Metric.WALL:
        return _walls(sides(sample.launches, reference.launches))
    if row.name == Metric.TAIL:
        return _tails(sides(sample.launches, reference.launches))
    new, old = (_values(row, sample, reference)(side) for side in (sample, reference))
    return [(new[order], old[order]) for order in sorted(new.keys() & old.keys())]


def _values(row: metrics.MetricRow, *sides: Sample) -> metrics.Reader:
    """The reader of a metric for all sides: for USS the written part, unless any sample of any side lacks it.

    Values that have no logarithm are left out where logs are compared.
    """
    if row.name == Metric.USS and sides and not _all_written(sides):
        return lambda sample: memory_values(sample.memory, lambda point: point.uss_bytes)
    if row.may_be_zero and row.scale != "share":
        return lambda sample: {order: value for order, value in row.read(sample).items() if value > 0}
    return row.read


def _all_written(sides: Iterable[Sample]) -> bool:
    points = (point for side in sides for launch in side.memory for point in launch.memory)
    return all(point.written_bytes is not None or point.uss_bytes is None for point in points)


def _walls(sides: Sides) -> list[tuple[float, float]]:
    """The floor of both sides in ns; for the paired estimator the reference's median, and that times the ratio."""
    estimator = rank_tests.blind_estimator(list(sides.values())[: alpha_spending.LOOKS[0]])
    if estimator is not rank_tests.PAIRED:
        floor = rank_tests.floor
        return [(floor(own, estimator), floor(other, estimator)) for own, other in sides.values()]
    middles = [(own, other, median(other)) for own, other in sides.values()]
    ratio = rank_tests.iterations_ratio
    return [(middle * ratio(own, other, rank_tests.PAIRED), middle) for own, other, middle in middles]


def _tails(sides: Sides) -> list[tuple[float, float]]:
    full = (iterations for iterations in sides.values() if min(map(len, iterations)) >= LEAST_TAIL_ITERATIONS)
    return [(rank_tests.tail(own), rank_tests.tail(other)) for own, other in full]
