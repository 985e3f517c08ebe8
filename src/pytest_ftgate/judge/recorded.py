"""The values of launches that a recording keeps, and new launches compared with them. Pure.

A value of this run and a stored one are read by the same name, so that both are the same number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Final, TypeAlias

from ..kit.values import Metric
from ..model.sample import Sample
from ..stats import rank_tests
from ..store.schema import Recording, StoredCell
from . import metrics, readers
from .compare import UNITS, Numbers
from .metrics import LEAST_TAIL_ITERATIONS, MetricRow
from .readers import memory_values

OF_CONTROL = "x control"
"""The unit of a time over that of the control workload."""
CONTROL: Final = "control"
WALL_OF_CONTROL: Final = "wall/control"
TAIL_OF_CONTROL: Final = "tail/control"
USS_WRITTEN: Final = "uss/written"
"""What is stored beside the metrics: the control's floor in ns, the wall time and the tail over the control, and the
part of USS that was written to (`uss` is then the whole of it)."""
ByRound: TypeAlias = Mapping[int, float]
Source: TypeAlias = Callable[[str], ByRound]
"""Name -> round -> value, of this run or of a recording; empty for what it lacks."""


# ---- what is stored


def stored_values(sample: Sample) -> dict[str, ByRound]:
    """Name -> round -> value of everything that a recording keeps of a sample."""
    own = {
        f"{kind}.{name}"
        for launch in sample.launches
        for kind, names in (("timer", launch.timers), ("counter", launch.counters), ("peak", launch.peaks))
        for name in names
    }
    return {name: value_of(sample, name) for name in (*metrics.TABLE, *_BESIDE, *sorted(own))}


def value_of(sample: Sample, name: str) -> ByRound:
    """Round -> value by the name that it is stored under."""
    read = _BESIDE.get(name) or metrics.row(name).read
    return read(sample)


def _walls(sample: Sample) -> ByRound:
    """The ratio of a launch's iterations to those of the control, each to the one beside it."""
    sides = readers.sides_by_order(sample.launches, sample.of("control"))
    return {order: rank_tests.iterations_ratio(*pair) for order, pair in sides.items()}


def _tails(sample: Sample) -> ByRound:
    """A launch's slow iterations over the control's median."""
    # Not over the control's own tail, which would add its noise.
    return {
        order: rank_tests.tail(own) / median(control)
        for order, (own, control) in readers.sides_by_order(sample.launches, sample.of("control")).items()
        if len(own) >= LEAST_TAIL_ITERATIONS
    }


_BESIDE: Final[Mapping[str, metrics.Reader]] = {
    CONTROL: lambda sample: readers.launch_values(sample.of("control")),
    WALL_OF_CONTROL: _walls,
    TAIL_OF_CONTROL: _tails,
    Metric.USS: lambda sample: memory_values(sample.of("memory"), lambda point: point.uss_bytes),
    USS_WRITTEN: lambda sample: memory_values(sample.of("memory"), lambda point: point.written_bytes),
}
"""The readers of what is stored under another name, or in another way, than the metric table has it."""


# ---- what is shown of it


def figure_of(
    name: str, sides: Iterable[Sample | Recording], beside: Iterable[Sample | Recording] = ()
) -> float | None:
    """The figure of that name over all launches of these sides, as every table and list prints it; None without any.

    Times and rates are geometric means, scaling is the location of its logs, all else is a median. USS is its written
    part, unless one of the sides, or of those whose figure stands `beside` it, lacks that.
    """
    sources, others = ([source_of(side) for side in each] for each in (sides, beside))
    stored_as = USS_WRITTEN if name == Metric.USS and _all_written([*sources, *others]) else name
    values = [value for source in sources for value in source(stored_as).values()]
    return _CENTRES.get(name, median)(values) if values else None


def _location(ratios: Sequence[float]) -> float:
    return math.exp(rank_tests.location([math.log(ratio) for ratio in ratios], 0.0).value)


_CENTRES: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    Metric.WALL: rank_tests.geometric_mean,
    WALL_OF_CONTROL: rank_tests.geometric_mean,
    "ops_per_s": rank_tests.geometric_mean,  # so that it is the calls over the wall time of the same table
    Metric.SCALING: _location,
}


# ---- compared with what is stored


def with_stored(new: Sample, entry: StoredCell, names: Iterable[str] = metrics.GATING) -> dict[str, Numbers]:
    """A cell's launches against its recordings on this machine; a metric that is not stored is left out.

    Times are divided by those of the control workload of the same launches. `new` may lack a metric that is stored.
    """
    sources = [source_of(new), *map(source_of, entry.recordings)]
    found = {}
    for row in map(metrics.row, names):
        read, unit = (_of_control(row), OF_CONTROL) if row.unit == "time" else (_alike(row, sources), UNITS[row.unit])
        found[row.name] = _numbers(map(read, sources), unit)
    found = {name: numbers for name, numbers in found.items() if numbers.reference}
    tails, walls = found.get(Metric.TAIL), found.get(Metric.WALL)
    if tails and walls and walls.new:
        found[Metric.TAIL] = _beyond_the_wall(tails, walls)
    return found


def _beyond_the_wall(tails: Numbers, walls: Numbers) -> Numbers:
    """The tails, of which the stored ones are as much longer as the wall times are: what is judged is what they add."""
    growth = median(walls.new) / rank_tests.geometric_mean([median(each) for each in walls.recordings])
    if growth <= 1:
        return tails
    stored = tuple(tuple(growth * value for value in each) for each in tails.recordings)
    reference = tuple(growth * value for value in tails.reference)
    return tails._replace(reference=reference, recordings=stored, wall_growth=(growth,))


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
    sources = [source_of(new), *map(source_of, entry.recordings)]
    rows = (row for row in map(metrics.row, names) if row.portable)
    found = {row.name: _numbers(map(_alike(row, sources), sources), UNITS[row.unit]) for row in rows}
    if executor is not None and stored_executor is not None:
        of_runs = {each.recorded_at: source_of(each) for each in stored_executor.recordings}
        others = [source_of(executor), *(of_runs.get(each.recorded_at, lambda _: {}) for each in entry.recordings)]
        ratios = (_over(own(Metric.WALL), other(Metric.WALL)) for own, other in zip(sources, others, strict=True))
        found[Metric.RATIO] = _numbers(ratios, "x")
    return {name: numbers for name, numbers in found.items() if numbers.reference}


def of_recordings(recordings: Sequence[Recording], name: str) -> tuple[str, list[tuple[float, ...]]]:
    """The unit of a metric, and each recording's values of its launches: times over those of the control workload."""
    row = metrics.row(name)
    sources = [source_of(each) for each in recordings]
    if row.unit == "time" and any(source(CONTROL) for source in sources):
        read, unit = _of_control(row), OF_CONTROL
    else:  # a server or a program has no control workload beside it
        read, unit = _alike(row, sources), str(row.unit)
    return unit, [tuple(read(source).values()) for source in sources]


def source_of(side: Sample | Recording) -> Source:
    """What reads the values of this run or of a recording."""
    return side.by_order if isinstance(side, Recording) else lambda name: value_of(side, name)


def _of_control(row: MetricRow) -> Callable[[Source], ByRound]:
    """Reads a time over that of the control."""
    name = {Metric.WALL.value: WALL_OF_CONTROL, Metric.TAIL.value: TAIL_OF_CONTROL}.get(row.name)
    if name is not None:
        return lambda source: source(name)
    return lambda source: _positive(row, _over(source(row.name), source(CONTROL)))


def _alike(row: MetricRow, sources: Sequence[Source]) -> Callable[[Source], ByRound]:
    """Reads a metric in its own unit: the written part of USS, unless any of the sources lacks it."""
    name = USS_WRITTEN if row.name == Metric.USS and _all_written(sources) else row.name
    return lambda source: _positive(row, source(name))


def _all_written(sources: Sequence[Source]) -> bool:
    return all(source(USS_WRITTEN) or not source(Metric.USS) for source in sources)


def _positive(row: MetricRow, values: ByRound) -> ByRound:
    """The values, without those that have no logarithm where logs are compared."""
    return values if row.scale == "share" else {order: value for order, value in values.items() if value > 0}


def _over(values: ByRound, reference: ByRound) -> ByRound:
    return {order: values[order] / reference[order] for order in sorted(values.keys() & reference.keys())}


def _numbers(sides: Iterable[ByRound], unit: str) -> Numbers:
    """The numbers of the new launches, which stand first, and of the recordings that have any."""
    new, *stored = (tuple(values.values()) for values in sides)
    known = tuple(values for values in stored if values)
    return Numbers(new, tuple(value for values in known for value in values), unit, recordings=known)
