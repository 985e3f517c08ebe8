"""Which numbers of which launches are compared, by the basis that a cell is judged on. Pure.

Both sides are samples: of this run, of the reference that was interleaved with it, or of a stored recording.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import NamedTuple, TypeAlias

from ..model import Metric, Sample
from ..stats import rank_tests
from ..store.recording import samples_of
from ..store.schema import StoredCell
from . import metrics, per_launch
from .memory_figures import memory_values
from .metrics import LEAST_TAIL_ITERATIONS

OF_CONTROL = "x control"
"""The unit of a time over that of the control workload."""
TAIL_ERROR = 1.7
"""The standard error of a 90 % quantile of normal values over that of their mean (Mosteller 1946)."""
UNITS: Mapping[str, str] = {"time": "ns", "size": "bytes", "share": "of the time", "ratio": "x", "number": ""}


class Numbers(NamedTuple):
    """One metric of both sides, one number per launch; the same index is the same round unless there are `recordings`.

    `errors` are the standard errors of the pairs' log-ratios that their iterations show; empty: none is known.
    """

    new: tuple[float, ...]
    reference: tuple[float, ...]
    unit: str
    errors: tuple[float, ...] = ()
    recordings: tuple[tuple[float, ...], ...] = ()


class Pair(NamedTuple):
    """The values of both sides of a round, and the standard error of their log-ratio."""

    new: float
    reference: float
    error: float = 0.0


Iterations: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
Sides: TypeAlias = Mapping[int, Iterations]
Values: TypeAlias = Mapping[int, float]


# ---- paired with the reference


def paired(sample: Sample, names: Iterable[str] = metrics.GATING) -> dict[str, Numbers]:
    """Metric -> the values of a cell and its reference in the same rounds.

    A metric that both lack is left out; one that only the cell lacks has no new values.
    """
    reference = sample.reference
    if reference is None:
        return {}
    found = {}
    for row in map(metrics.row, names):
        pairs = _pairs(row, sample, reference)
        if pairs:
            new, old, errors = zip(*pairs, strict=True)
            found[row.name] = Numbers(new, old, UNITS[row.unit], errors)
        elif row.absent and (values := _values(row)(reference)):
            found[row.name] = Numbers((), tuple(values.values()), "")
    return found


def _pairs(row: metrics.MetricRow, sample: Sample, reference: Sample) -> list[Pair]:
    of_iterations: Callable[[tuple[float, ...], tuple[float, ...]], Pair | None] | None
    of_iterations = {str(Metric.WALL): _wall, str(Metric.TAIL): _tail}.get(row.name)
    if of_iterations is not None:
        sides = per_launch.sides_by_order(sample.launches, reference.launches).values()
        return [pair for own, other in sides if (pair := of_iterations(own, other)) is not None]
    new, old = (_values(row, sample, reference)(side) for side in (sample, reference))
    return [Pair(new[order], old[order]) for order in sorted(new.keys() & old.keys())]


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


@lru_cache(maxsize=4096)  # asked for after each round
def _wall(own: tuple[float, ...], other: tuple[float, ...]) -> Pair:
    """The reference's median in ns, and that times the ratio of neighbouring iterations."""
    shift, error = rank_tests.paired_shift(own, other)
    middle = median(other)
    return Pair(middle * math.exp(shift), middle, error)


@lru_cache(maxsize=4096)
def _tail(own: tuple[float, ...], other: tuple[float, ...]) -> Pair | None:
    if min(len(own), len(other)) < LEAST_TAIL_ITERATIONS:
        return None
    return Pair(rank_tests.tail(own), rank_tests.tail(other), TAIL_ERROR * rank_tests.paired_shift(own, other)[1])


# ---- with what is stored


def with_stored(new: Sample, entry: StoredCell, names: Iterable[str] = metrics.GATING) -> dict[str, Numbers]:
    """A cell's launches against its recordings on this machine; a metric that is not stored is left out.

    Times are divided by those of the control workload of the same launches. `new` may lack a metric that is stored.
    """
    stored = samples_of(entry, new.cell.nodeid)
    estimator = rank_tests.blind_estimator([sides for each in stored for sides in _of_control(each)])
    of_control: dict[str, Callable[[Sample], tuple[float, ...]]] = {
        Metric.WALL: lambda side: control_ratios(side, estimator),
        Metric.TAIL: _tail_ratios,
    }
    found = {}
    for row in map(metrics.row, names):
        if row.name in of_control:
            found[row.name] = _against(of_control[row.name], new, stored, OF_CONTROL)
        elif row.unit == "time":
            found[row.name] = _against(_over_control(row), new, stored, OF_CONTROL)
        else:
            found[row.name] = _alike(row, new, stored)
    return {name: numbers for name, numbers in found.items() if numbers.reference}


def portable(
    new: Sample,
    entry: StoredCell,
    *,
    executor: Sample | None = None,
    stored_executor: StoredCell | None = None,
    names: Iterable[str] = metrics.GATING,
) -> dict[str, Numbers]:
    """Machine-independent metrics against a recording of another machine, and the time over that of the reference
    executor, whose launches of the same runs are `executor` and `stored_executor`.
    """
    stored = samples_of(entry, new.cell.nodeid)
    found = {row.name: _alike(row, new, stored) for row in map(metrics.row, names) if row.portable}
    if executor is not None and stored_executor is not None:
        others = _by_time(stored_executor, executor)
        known = tuple(_ratios(each, others.get(recorded_at)) for recorded_at, each in _by_time(entry, new).items())
        found[Metric.RATIO] = _numbers(_ratios(new, executor), known, "x")
    return {name: numbers for name, numbers in found.items() if numbers.reference}


def _by_time(entry: StoredCell, like: Sample) -> dict[str, Sample]:
    """The samples of a stored cell by the time of their recording."""
    times = (each.recorded_at for each in entry.recordings)
    return dict(zip(times, samples_of(entry, like.cell.nodeid), strict=True))


def _alike(row: metrics.MetricRow, new: Sample, stored: Sequence[Sample]) -> Numbers:
    read = _values(row, new, *stored)
    return _against(lambda side: tuple(read(side).values()), new, stored, UNITS[row.unit])


def _against(
    values: Callable[[Sample], tuple[float, ...]], new: Sample, stored: Sequence[Sample], unit: str
) -> Numbers:
    return _numbers(values(new), tuple(map(values, stored)), unit)


def _numbers(new: tuple[float, ...], stored: tuple[tuple[float, ...], ...], unit: str) -> Numbers:
    known = tuple(values for values in stored if values)
    return Numbers(new, tuple(value for values in known for value in values), unit, recordings=known)


def control_ratios(sample: Sample, estimator: rank_tests.Estimator = rank_tests.PAIRED) -> tuple[float, ...]:
    """One value per launch, in their order: the ratio of the cell's iterations to those of the control workload.

    Launches without a control give none: the machine's speed at that time is unknown.
    """
    return tuple(rank_tests.iterations_ratio(own, control, estimator) for own, control in _of_control(sample))


def _of_control(sample: Sample) -> list[Iterations]:
    return per_launch.paired_values(sample.launches, sample.control)


def _tail_ratios(sample: Sample) -> tuple[float, ...]:
    """A launch's slow iterations over the control's median."""
    # Not over the control's own tail, which would add its noise.
    sides = (iterations for iterations in _of_control(sample) if len(iterations[0]) >= LEAST_TAIL_ITERATIONS)
    return tuple(rank_tests.tail(own) / median(control) for own, control in sides)


def _over_control(row: metrics.MetricRow) -> Callable[[Sample], tuple[float, ...]]:
    def ratios(sample: Sample) -> tuple[float, ...]:
        return per_launch.launch_ratios(dict(_values(row)(sample)), per_launch.launch_values(sample.control))

    return ratios


def _ratios(own: Sample, other: Sample | None) -> tuple[float, ...]:
    """The time over that of another cell's launches of the same order, iteration by iteration."""
    sides = per_launch.paired_values(own.launches, other.launches) if other else []
    return tuple(rank_tests.iterations_ratio(first, second, rank_tests.PAIRED) for first, second in sides)
