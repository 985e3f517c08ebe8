"""Which numbers of which launches are compared: with the interleaved reference, or with what is stored. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from ..kit.values import Metric
from ..model.sample import ByRound
from ..model.verdict import Comparison
from ..stats import rank_tests
from ..store.schema import Recording, StoredCell
from . import metrics, readers
from .metrics import LEAST_TAIL_ITERATIONS, MetricRow
from .values import CONTROL, CPU_OF_CONTROL, TAIL_OF_CONTROL, WALL_OF_CONTROL, Side, Values, alike, of_rounds

TAIL_ERROR = 1.7
"""The standard error of a 90 % quantile of normal values over that of their mean (Mosteller 1946)."""
LONE_WINDOW_ERROR = 0.8
"""The standard error of a latency's log-ratio between two single windows, whose scatter is not known: 0.2 to 1.1 was
measured of servers of the standard library."""
_BESIDE_CONTROL: Mapping[str, str] = {
    Metric.WALL: WALL_OF_CONTROL,
    Metric.TAIL: TAIL_OF_CONTROL,
    Metric.CPU: CPU_OF_CONTROL,
}
"""Times that are compared with the control iteration by iteration: the name of their ratio."""
OF_CONTROL = "x control"
"""The unit of a time over that of the control workload."""
UNITS: Mapping[str, str] = {"time": "ns", "size": "bytes", "share": "of the time", "ratio": "x", "number": ""}


class PairedValue(NamedTuple):
    """The values of both sides of a round, and the standard error of their log-ratio; of a tail its `wall_growth`."""

    new: float
    reference: float
    error: float = 0.0
    wall_growth: float = 1.0


# ---- paired with the reference


def paired(new: Values, names: Collection[str] = metrics.GATING) -> dict[str, Comparison]:
    """Metric -> the values of a cell and its reference in the same rounds, without limits and error rates.

    A metric that both lack is left out; one that only the cell lacks has no new values.
    """
    reference = new.reference
    if reference is None:
        return {}
    found = {}
    for row in map(metrics.row, names):
        beyond_walls = row.name == Metric.TAIL and Metric.WALL in names
        pairs = _tails_beyond_walls(new, reference) if beyond_walls else _pairs(row, new, reference)
        if pairs:
            own, other, errors, growth = zip(*pairs, strict=True)
            found[row.name] = Comparison(
                metric=row.name,
                new=own,
                reference=other,
                unit=UNITS[row.unit],
                errors=errors,
                wall_growth=growth if max(growth) > 1 else (),
            )
        elif row.absent and (values := reference.of(row.name)):
            found[row.name] = Comparison(metric=row.name, new=(), reference=tuple(values.values()), unit="")
    return found


def _pairs(row: MetricRow, new: Values, reference: Values) -> list[PairedValue]:
    if row.name in (Metric.WALL, Metric.TAIL):
        sides = of_rounds(new.iterations(), reference.iterations()).values()
        return [pair for own, other in sides if (pair := time_pair(row.name, own, other)) is not None]
    if row.in_window is not None:
        sides = of_rounds(new.windows(row.in_window), reference.windows(row.in_window)).values()
        pairs = [(neighbour_pair(own, other), len(own)) for own, other in sides]
        lone = 0.0 if row.name == Metric.CPU else LONE_WINDOW_ERROR
        return [pair if windows > 1 else pair._replace(error=lone) for pair, windows in pairs]
    name, errors = alike(row.name, (new, reference)), dict[int, float]()
    own, other = (side.by_order(name) for side in (new, reference))
    if row.sampled is not None:
        errors = readers.sampling_errors(new.sample.of("memory"), reference.sample.of("memory"), row.sampled)
    return [
        PairedValue(own[order], other[order], errors.get(order, 0.0)) for order in sorted(own.keys() & other.keys())
    ]


def _tails_beyond_walls(new: Values, reference: Values) -> list[PairedValue]:
    """The tails, of which the reference's are as much longer as the wall times are: what is judged is what a tail adds.

    The wall times are those of the rounds so far, so that later rounds change no earlier value: each look of the test
    sees what the looks before it saw.
    """
    found, ratios = [], list[float]()
    for own, other in of_rounds(new.iterations(), reference.iterations()).values():
        wall, tail = neighbour_pair(own, other), time_pair(Metric.TAIL, own, other)
        ratios.append(wall.new / wall.reference)
        if tail is not None:
            growth = max(1.0, median(ratios))
            found.append(tail._replace(reference=growth * tail.reference, wall_growth=growth))
    return found


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


# ---- with what is stored


def with_stored(new: Values, entry: StoredCell, names: Iterable[str] = metrics.GATING) -> dict[str, Comparison]:
    """A cell's launches against its recordings on this machine; a metric that is not stored is left out.

    Times are divided by those of the control workload of the same launches. `new` may lack a metric that is stored.
    """
    sides: tuple[Side, ...] = (new, *entry.recordings)
    found = {}
    for row in map(metrics.row, names):
        read, unit = (_of_control(row), OF_CONTROL) if _is_paced(row) else (_alike(row, sides), UNITS[row.unit])
        found[row.name] = _beside(row.name, map(read, sides), unit)
    found = {name: each for name, each in found.items() if each.reference}
    tails, walls = found.get(Metric.TAIL), found.get(Metric.WALL)
    if tails and walls and walls.new:
        # The stored tails are as much longer as the wall times are: what is judged is what the new ones add.
        growth = median(walls.new) / rank_tests.geometric_mean([median(each) for each in walls.recordings])
        if growth > 1:
            stored = tuple(tuple(growth * value for value in each) for each in tails.recordings)
            reference = tuple(value for each in stored for value in each)
            found[Metric.TAIL] = replace(tails, reference=reference, recordings=stored, wall_growth=(growth,))
    return found


def of_recordings(recordings: Sequence[Recording], name: str) -> tuple[str, list[tuple[float, ...]]]:
    """The unit of a metric, and each recording's values of its launches: times over those of the control workload."""
    row = metrics.row(name)
    if _is_paced(row) and any(each.by_order(CONTROL) for each in recordings):
        read, unit = _of_control(row), OF_CONTROL
    else:  # a server or a program has no control workload beside it
        read, unit = _alike(row, recordings), str(row.unit)
    return unit, [tuple(read(each).values()) for each in recordings]


def _is_paced(row: MetricRow) -> bool:
    """Whether a metric is a time that follows the machine's speed of the day; a wait is compared as it is."""
    return row.unit == "time" and row.scale != "difference"


def _of_control(row: MetricRow) -> Callable[[Side], ByRound]:
    """Reads a time over that of the control."""
    if (name := _BESIDE_CONTROL.get(row.name)) is not None:
        return lambda side: side.by_order(name)
    return lambda side: _values(row, _over(side.by_order(row.name), side.by_order(CONTROL)))


def _alike(row: MetricRow, sides: Sequence[Side]) -> Callable[[Side], ByRound]:
    """Reads a metric in its own unit, as all sides have it."""
    name = alike(row.name, sides)
    return lambda side: _values(row, side.by_order(name))


def _values(row: MetricRow, values: ByRound) -> ByRound:
    """Without zeros, where that is none of its values."""
    return values if row.may_be_zero else {order: value for order, value in values.items() if value > 0}


def _over(values: ByRound, reference: ByRound) -> ByRound:
    return {order: values[order] / reference[order] for order in sorted(values.keys() & reference.keys())}


def _beside(metric: str, sides: Iterable[ByRound], unit: str) -> Comparison:
    """The values of the new launches, which stand first, beside those of the recordings that have any."""
    new, *stored = (tuple(values.values()) for values in sides)
    known = tuple(values for values in stored if values)
    reference = tuple(value for values in known for value in values)
    return Comparison(metric=metric, new=new, reference=reference, unit=unit, recordings=known)
