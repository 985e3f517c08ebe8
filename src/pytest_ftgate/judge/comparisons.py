"""Which numbers of which launches are compared: with the interleaved reference, or with what is stored. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from ..kit.values import Metric, grouped
from ..model.sample import ByRound
from ..model.verdict import Comparison
from ..stats import estimators
from ..store.schema import Recording, StoredCell
from . import metrics, readers
from .metrics import LEAST_TAIL_ITERATIONS, MetricRow
from .values import (
    CONTROL,
    CPU_OF_CONTROL,
    LEAST_LOCK_CEILING,
    TAIL_OF_CONTROL,
    WALL_OF_CONTROL,
    Side,
    Values,
    alike,
    of_rounds,
)

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
_CPU_ALONE = (Metric.CPU, Metric.START, "join")
"""Times in which nothing waits for what the body waits for."""
LEAST_OWN = 0.05
"""The least part of the time that is taken not to be waits for other workers: shares of waits are of other launches."""
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
    if row.name == Metric.LOCK_CEILING:  # short holds that became long ones are to be seen
        other = reference.by_order(LEAST_LOCK_CEILING)
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
    new, reference = (estimators.quantile(side, metrics.TAIL_QUANTILE) for side in (own, other))
    return PairedValue(new, reference, TAIL_ERROR * middle.error)


@lru_cache(maxsize=8192)  # asked for after each round
def neighbour_pair(own: tuple[float, ...], other: tuple[float, ...]) -> PairedValue:
    """The reference's median, and that times the ratio of neighbouring iterations."""
    shift, error = estimators.paired_shift(own, other)
    middle = median(other)
    return PairedValue(middle * math.exp(shift), middle, error)


# ---- with what is stored


def with_stored(new: Values, entry: StoredCell, names: Iterable[str] = metrics.GATING) -> dict[str, Comparison]:
    """A cell's launches against its recordings on this machine; a metric that is not stored is left out.

    Times are those `at_one_speed`. The recordings of a day are one: what a day does to a machine they share. `new` may
    lack a metric that is stored.
    """
    sides: tuple[Side, ...] = (new, *entry.recordings)
    shares = computing(sides)
    found = {}
    for row in map(metrics.row, names):
        paced = _is_paced(row)
        values = at_one_speed(row, sides, shares, entry.recordings) if paced else _alike(row, sides)
        own, *stored = (tuple(each.values()) for each in values)
        days = grouped((recording.day, each) for recording, each in zip(entry.recordings, stored, strict=True) if each)
        if days:
            known = tuple(tuple(value for each in of_day for value in each) for of_day in days.values())
            found[row.name] = Comparison(
                metric=row.name,
                new=own,
                reference=tuple(value for each in known for value in each),
                unit=UNITS[row.unit],
                recordings=known,
                computing=1.0 if row.name in _CPU_ALONE else max(shares),
            )
    tails, walls = found.get(Metric.TAIL), found.get(Metric.WALL)
    if tails and walls and walls.new:
        # The stored tails are as much longer as the wall times are: what is judged is what the new ones add.
        growth = median(walls.new) / estimators.geometric_mean([median(each) for each in walls.recordings])
        if growth > 1:
            longer = tuple(tuple(growth * value for value in each) for each in tails.recordings)
            reference = tuple(value for each in longer for value in each)
            found[Metric.TAIL] = replace(tails, reference=reference, recordings=longer, wall_growth=(growth,))
    return found


def of_recordings(recordings: Sequence[Recording], name: str) -> tuple[bool, list[tuple[float, ...]]]:
    """Whether a metric is a time at one speed, as with a control workload beside it, and each recording's values."""
    row = metrics.row(name)
    paced = _is_paced(row) and any(each.by_order(CONTROL) for each in recordings)
    values = at_one_speed(row, recordings, computing(recordings), recordings) if paced else _alike(row, recordings)
    return paced, [tuple(each.values()) for each in values]


def at_one_speed(
    row: MetricRow, sides: Sequence[Side], shares: Sequence[float], usual: Sequence[Side]
) -> list[ByRound]:
    """A time of each side, as if the control workload had taken in each launch what it took in the median of `usual`.

    Only the part that the workers spend `computing` is scaled: a wait is as long on a machine that is slow today.
    """
    beside, found = _BESIDE_CONTROL.get(row.name), list[ByRound]()

    def both(side: Side) -> list[tuple[int, float, float]]:
        """Round, the time, and the time over the control's."""
        own, control = side.by_order(row.name), side.by_order(CONTROL)
        over = (
            side.by_order(beside) if beside else {order: own[order] / control[order] for order in own.keys() & control}
        )
        return [(order, own[order], over[order]) for order in sorted(own.keys() & over.keys()) if own[order] > 0]

    controls = [own / over for side in usual for _, own, over in both(side)]
    usual_ns = median(controls) if controls else 0.0
    for side, known in zip(sides, shares, strict=True):
        share = 1.0 if row.name in _CPU_ALONE else known
        found.append({order: share * over * usual_ns + (1 - share) * own for order, own, over in both(side)})
    return found


def computing(sides: Sequence[Side]) -> list[float]:
    """The part of each side's wall time in which its workers compute; the rest they wait for no other worker.

    The control does nothing else under the same executor: if a cell takes ten times its wall time and five times its
    CPU time, half of that is CPU time. A wait for another worker is as long as what that one does, so it counts neither
    way. 1 where a side lacks the CPU time, because nothing tells a wait then.
    """
    spent = [_spent(side) for side in sides]
    if None in spent:
        return [1.0] * len(sides)
    waits = [0.0] * len(sides)
    for name in (Metric.LOCK_WAIT, "queue_wait"):
        medians = [readers.median_of(side.by_order(name).values()) for side in sides]
        if None not in medians:
            waits = [before + (value or 0.0) for before, value in zip(waits, medians, strict=True)]
    return [min(1.0, (part or 0.0) / max(1 - wait, LEAST_OWN)) for part, wait in zip(spent, waits, strict=True)]


def _spent(side: Side) -> float | None:
    """CPU time over wall time, both over the control's; None where either is not known."""
    cpu, wall = side.by_order(CPU_OF_CONTROL), side.by_order(WALL_OF_CONTROL)
    return readers.median_of(cpu[order] / wall[order] for order in cpu.keys() & wall.keys())


def _is_paced(row: MetricRow) -> bool:
    """Whether a metric is a time that follows the machine's speed of the day."""
    return row.unit == "time" and row.scale != "difference"


def _alike(row: MetricRow, sides: Sequence[Side]) -> list[ByRound]:
    """A metric of each side in its own unit, as all sides have it; without zeros, where that is none of its values."""
    name = alike(row.name, sides)
    values = (side.by_order(name) for side in sides)
    return [{order: value for order, value in each.items() if row.may_be_zero or value > 0} for each in values]
