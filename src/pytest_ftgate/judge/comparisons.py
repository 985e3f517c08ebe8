"""Which numbers of which launches stand against each other, by the road that a cell is judged on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import NamedTuple, TypeAlias

from ..model import Metric, Need, Sample, Test
from ..stats import alpha_spending, rank_tests
from ..store import schema
from ..store.values import (
    iteration_values,
    lock_shares,
    paired_iterations,
    scalings,
    uss_of_sides,
    wall_ratios,
)
from . import figures, memory_figures, per_launch, wait_figures

LEAST_TAIL_ITERATIONS = 10
"""A 90 % quantile of fewer turns is their maximum."""
NEEDS: Mapping[Metric, Need] = {
    Metric.WALL: "time",
    Metric.TAIL: "time",
    Metric.SCALING: "time",
    Metric.RATIO: "time",
    Metric.USS: "memory",
    Metric.LOCK_WAIT: "locks",
}
"""The kind of launch that a metric is seen in."""
TESTS: Mapping[Metric, Test] = {
    Metric.WALL: "pairs",
    Metric.TAIL: "pairs",
    Metric.SCALING: "pairs",
    Metric.USS: "blocks",
    Metric.LOCK_WAIT: "blocks",
}
"""What compares a metric of both sides of a tandem: neighbours in time are pairs, launches of the same round blocks."""


class Numbers(NamedTuple):
    """One metric of both sides, a number a launch; pairs and blocks have the same rounds at the same place."""

    new: tuple[float, ...]
    reference: tuple[float, ...]
    unit: str
    test: Test
    recordings: tuple[tuple[float, ...], ...] = ()


Iterations: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
Sides: TypeAlias = Mapping[int, Iterations]
Values: TypeAlias = Mapping[int, float]


# ---- in tandem with the reference


def paired(sample: Sample) -> dict[Metric, Numbers]:
    """What a cell and its reference gave in the same rounds.

    A metric that both lack is left out; one that the cell alone lacks has no new values.

    The estimator of a launch's time is chosen from split halves of both sides, blind to what lies between them: the
    choice is the same when the sides of a pair change places, as the signed rank test asks for. It is made from the
    pairs of the first look and stays, so that a value that was looked at never changes.
    """
    reference = sample.reference
    if reference is None:
        return {}
    there = {
        Metric.WALL: per_launch.launch_values(reference.launches),
        Metric.USS: _uss(sample, reference)[1],
        Metric.LOCK_WAIT: _lock_shares(reference),
    }
    sides = per_launch.sides_by_order(sample.launches, reference.launches)
    found = {
        metric: _numbers(pairs, unit, TESTS[metric])
        for metric, pairs, unit in (
            (Metric.WALL, _walls(sides), "ns"),
            (Metric.TAIL, _tails(sides), "ns"),
            (Metric.USS, _matched(*_uss(sample, reference)), "bytes"),
            (Metric.LOCK_WAIT, _matched(_lock_shares(sample), _lock_shares(reference)), "of the time"),
            (Metric.SCALING, _matched(figures.scaling_values(sample), figures.scaling_values(reference)), "x"),
        )
    }
    lacking = {metric: Numbers((), tuple(values.values()), "", "ranks") for metric, values in there.items() if values}
    return lacking | {metric: numbers for metric, numbers in found.items() if numbers.new}


def _walls(sides: Sides) -> list[tuple[float, float]]:
    """The floor of both sides in ns; where neighbours are compared turn by turn, the median and what it becomes."""
    estimator = rank_tests.blind_estimator(list(sides.values())[: alpha_spending.LOOKS[0]])
    if estimator is not rank_tests.PAIRED:
        floor = rank_tests.floor
        return [(floor(own, estimator), floor(other, estimator)) for own, other in sides.values()]
    middles = [(own, beside, median(beside)) for own, beside in sides.values()]
    ratio = rank_tests.iterations_ratio
    return [(middle * ratio(own, beside, rank_tests.PAIRED), middle) for own, beside, middle in middles]


def _tails(sides: Sides) -> list[tuple[float, float]]:
    full = (iterations for iterations in sides.values() if min(map(len, iterations)) >= LEAST_TAIL_ITERATIONS)
    return [(rank_tests.tail(own), rank_tests.tail(beside)) for own, beside in full]


def _lock_shares(sample: Sample) -> dict[int, float]:
    return wait_figures.shares_by_order(sample, "lock")


def _uss(sample: Sample, reference: Sample) -> tuple[Values, Values]:
    """The written part of both sides; where any look lacks it, all of USS on both."""
    points = [point for side in (sample, reference) for launch in side.memory for point in launch.memory]
    written = all(point.written_bytes is not None or point.uss_bytes is None for point in points)
    own, beside = (memory_figures.uss_values(side.memory, written) for side in (sample, reference))
    return own, beside


def _matched(new: Values, old: Values) -> list[tuple[float, float]]:
    """Both of each round that has both."""
    return [(new[order], old[order]) for order in sorted(new.keys() & old.keys())]


def _numbers(pairs: Iterable[tuple[float, float]], unit: str, test: Test) -> Numbers:
    both = list(pairs)
    return Numbers(tuple(new for new, _ in both), tuple(old for _, old in both), unit, test)


# ---- with what is stored


def with_stored(new: schema.Recording, entry: schema.Entry) -> dict[Metric, Numbers]:
    """A cell's launches against those of its recordings on this machine; a metric that is not stored is left out.

    Time is that over the candle's beside it. `new` may lack a metric that is stored.
    """
    estimator = rank_tests.blind_estimator(paired_iterations(entry))
    found = {
        Metric.WALL: _stored(lambda side: wall_ratios(side, estimator), new, entry, "x candle"),
        Metric.TAIL: _stored(_tail_ratios, new, entry, "x candle"),
        **_travelling(new, entry),
    }
    return {metric: numbers for metric, numbers in found.items() if numbers.reference}


def portable(
    new: schema.Recording,
    entry: schema.Entry,
    *,
    executor: schema.Recording | None = None,
    stored_executor: schema.Entry | None = None,
) -> dict[Metric, Numbers]:
    """What travels from a recording of another machine: memory, shares, scaling, and the time over that of the
    reference executor, whose launches of the same runs are `executor` and `stored_executor`.
    """
    found = _travelling(new, entry)
    if executor is not None and stored_executor is not None:
        beside = {recording.recorded_at: recording for recording in stored_executor.recordings}
        stored = tuple(_ratios(each, beside.get(each.recorded_at)) for each in entry.recordings)
        found[Metric.RATIO] = _against(_ratios(new, executor), stored, "x")
    return {metric: numbers for metric, numbers in found.items() if numbers.reference}


def _travelling(new: schema.Recording, entry: schema.Entry) -> dict[Metric, Numbers]:
    uss_new, *uss_stored = uss_of_sides(new, *entry.recordings)
    return {
        Metric.USS: _against(uss_new, tuple(uss_stored), "bytes"),
        Metric.LOCK_WAIT: _stored(lock_shares, new, entry, "of the time"),
        Metric.SCALING: _stored(scalings, new, entry, "x"),
    }


def _stored(
    values: Callable[[schema.Recording], tuple[float, ...]],
    new: schema.Recording,
    entry: schema.Entry,
    unit: str,
) -> Numbers:
    return _against(values(new), tuple(map(values, entry.recordings)), unit)


def _against(new: tuple[float, ...], stored: tuple[tuple[float, ...], ...], unit: str) -> Numbers:
    known = tuple(values for values in stored if values)
    return Numbers(new, tuple(value for values in known for value in values), unit, "ranks", known)


def _tail_ratios(recording: schema.Recording) -> tuple[float, ...]:
    """A launch's slow turns over the candle's middle: a candle's own slow turns would add their noise."""
    sides = (iterations for iterations in paired_iterations(recording) if len(iterations[0]) >= LEAST_TAIL_ITERATIONS)
    return tuple(rank_tests.tail(own) / median(control) for own, control in sides)


def _ratios(own: schema.Recording, beside: schema.Recording | None) -> tuple[float, ...]:
    """The time over that of another cell's launches of the same order, turn by turn."""
    others = {launch.order: iteration_values(launch) for launch in beside.launches} if beside else {}
    sides = (
        rank_tests.neighbours(iteration_values(launch), others[launch.order])
        for launch in own.launches
        if launch.order in others
    )
    ratio = rank_tests.iterations_ratio
    return tuple(ratio(first, second, rank_tests.PAIRED) for first, second in sides if first and second)
