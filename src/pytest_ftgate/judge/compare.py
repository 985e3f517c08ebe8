"""Which numbers of which launches are compared with the interleaved reference; `recorded` has the stored ones. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from statistics import median
from typing import NamedTuple

from ..kit.values import Metric
from ..model.sample import Launch, Sample
from ..stats import rank_tests
from . import metrics, readers
from .metrics import LEAST_TAIL_ITERATIONS
from .readers import memory_values, sampling_errors

TAIL_ERROR = 1.7
"""The standard error of a 90 % quantile of normal values over that of their mean (Mosteller 1946)."""
LONE_WINDOW_ERROR = 0.8
"""The standard error of a latency's log-ratio between two single windows, whose scatter is not known: 0.2 to 1.1 was
measured of servers of the standard library."""
UNITS: Mapping[str, str] = {"time": "ns", "size": "bytes", "share": "of the time", "ratio": "x", "number": ""}


class Numbers(NamedTuple):
    """One metric of both sides, one number per launch; the same index is the same round unless there are `recordings`.

    `errors` are the standard errors of the pairs' log-ratios that their iterations show; empty: none is known. For
    `wall_growth` see `Comparison`.
    """

    new: tuple[float, ...]
    reference: tuple[float, ...]
    unit: str
    errors: tuple[float, ...] = ()
    wall_growth: tuple[float, ...] = ()
    recordings: tuple[tuple[float, ...], ...] = ()


class PairedValue(NamedTuple):
    """The values of both sides of a round, and the standard error of their log-ratio; of a tail its `wall_growth`."""

    new: float
    reference: float
    error: float = 0.0
    wall_growth: float = 1.0


# ---- paired with the reference


def paired(sample: Sample, names: Collection[str] = metrics.GATING) -> dict[str, Numbers]:
    """Metric -> the values of a cell and its reference in the same rounds.

    A metric that both lack is left out; one that only the cell lacks has no new values.
    """
    reference = sample.reference
    if reference is None:
        return {}
    found = {}
    for row in map(metrics.row, names):
        alone = row.name != Metric.TAIL or Metric.WALL not in names
        pairs = _pairs(row, sample, reference) if alone else _tails_beyond_walls(sample, reference)
        if pairs:
            new, old, errors, growth = zip(*pairs, strict=True)
            found[row.name] = Numbers(new, old, UNITS[row.unit], errors, growth if max(growth) > 1 else ())
        elif row.absent and (values := _values(row)(reference)):
            found[row.name] = Numbers((), tuple(values.values()), "")
    return found


def _pairs(row: metrics.MetricRow, sample: Sample, reference: Sample) -> list[PairedValue]:
    if row.name in (Metric.WALL, Metric.TAIL):
        sides = readers.sides_by_order(sample.launches, reference.launches).values()
        return [pair for own, other in sides if (pair := time_pair(row.name, own, other)) is not None]
    if row.in_window is not None:
        of_window = row.in_window

        def values_of(launch: Launch) -> list[float]:
            values = map(of_window, launch.iterations)
            return [value if value is not None and value > 0 else math.nan for value in values]

        sides = readers.sides_by_order(sample.launches, reference.launches, values_of).values()
        pairs = [(neighbour_pair(own, other), len(own)) for own, other in sides]
        return [pair if windows > 1 else pair._replace(error=LONE_WINDOW_ERROR) for pair, windows in pairs]
    new, old = (_values(row, sample, reference)(side) for side in (sample, reference))
    errors = {} if row.sampled is None else sampling_errors(sample.of("memory"), reference.of("memory"), row.sampled)
    return [PairedValue(new[order], old[order], errors.get(order, 0.0)) for order in sorted(new.keys() & old.keys())]


def _tails_beyond_walls(sample: Sample, reference: Sample) -> list[PairedValue]:
    """The tails, of which the reference's are as much longer as the wall times are: what is judged is what a tail adds.

    The wall times are those of the rounds so far, so that later rounds change no earlier value: each look of the test
    sees what the looks before it saw.
    """
    found, ratios = [], list[float]()
    for own, other in readers.sides_by_order(sample.launches, reference.launches).values():
        wall, tail = neighbour_pair(own, other), time_pair(Metric.TAIL, own, other)
        ratios.append(wall.new / wall.reference)
        if tail is not None:
            growth = max(1.0, median(ratios))
            found.append(tail._replace(reference=growth * tail.reference, wall_growth=growth))
    return found


def _values(row: metrics.MetricRow, *sides: Sample) -> metrics.Reader:
    """The reader of a metric for all sides: for USS the written part, unless any sample of any side lacks it.

    Values that have no logarithm are left out where logs are compared.
    """
    if row.name == Metric.USS and sides and not _all_written(sides):
        return lambda sample: memory_values(sample.of("memory"), lambda point: point.uss_bytes)
    if row.may_be_zero and row.scale != "share":
        return lambda sample: {order: value for order, value in row.read(sample).items() if value > 0}
    return row.read


def _all_written(sides: Iterable[Sample]) -> bool:
    points = (point for side in sides for launch in side.of("memory") for point in launch.memory)
    return all(point.written_bytes is not None or point.uss_bytes is None for point in points)


def time_pair(metric: str, own: tuple[float, ...], other: tuple[float, ...]) -> PairedValue | None:
    """The wall time or its tail in a round, from the iterations of both sides in ns; None with too few for a tail."""
    middle = neighbour_pair(own, other)
    if metric == Metric.WALL:
        return middle
    if min(len(own), len(other)) < LEAST_TAIL_ITERATIONS:
        return None
    return PairedValue(rank_tests.tail(own), rank_tests.tail(other), TAIL_ERROR * middle.error)


@lru_cache(maxsize=8192)  # asked for after each round
def neighbour_pair(own: tuple[float, ...], other: tuple[float, ...]) -> PairedValue:
    """The reference's median, and that times the ratio of neighbouring iterations."""
    shift, error = rank_tests.paired_shift(own, other)
    middle = median(other)
    return PairedValue(middle * math.exp(shift), middle, error)
