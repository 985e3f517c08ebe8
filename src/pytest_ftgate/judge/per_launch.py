"""One value for each launch, and paired ratios of launches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from statistics import median

from ..model import Interval, Launch, iteration_value
from ..stats import rank_tests

QUANTILE = 0.25
INTERVAL_LEVEL = 0.95
Sides = list[tuple[tuple[float, ...], tuple[float, ...]]]
"""For each launch: the iteration values of one side, and the paired ones of the other."""


def launch_value(launch: Launch, *, quantile: float = QUANTILE) -> float | None:
    """The floor of a launch in ns: a low quantile of the `iteration_value` of its iterations; None without any."""
    iterations = (iteration_value(iteration, launch.loops, launch.window_ns > 0) for iteration in launch.iterations)
    usable = [value for value in iterations if math.isfinite(value)]
    return rank_tests.floor(usable, quantile) if usable else None


def launch_values(launches: Iterable[Launch], *, quantile: float = QUANTILE) -> dict[int, float]:
    """Launch order -> floor in ns, for the launches that have one."""
    return by_order(launches, lambda launch: launch_value(launch, quantile=quantile))


def paired_ratio(values: dict[int, float], reference: dict[int, float]) -> float | None:
    """The geometric mean of the ratios of interleaved launches, those with the same order; None without any."""
    ratios = [values[order] / reference[order] for order in sorted(values.keys() & reference.keys())]
    return rank_tests.geometric_mean(ratios) if ratios else None


def by_order(launches: Iterable[Launch], value_of: Callable[[Launch], float | None]) -> dict[int, float]:
    """Launch order -> value, for the launches whose value is known and finite."""
    found = {launch.order: value_of(launch) for launch in launches}
    return {order: float(value) for order, value in found.items() if value is not None and math.isfinite(value)}


def interval(values: Iterable[float]) -> Interval | None:
    """The interval of positive values, one for each launch; None without values."""
    known = tuple(values)
    return rank_tests.log_interval(known) if known else None


def median_of(values: Iterable[float | None]) -> float | None:
    """The median of the values that are known; None without any."""
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None


# ---- paired iterations


def _iteration_values(launch: Launch) -> list[float]:
    return [iteration_value(iteration, launch.loops, launch.window_ns > 0) for iteration in launch.iterations]


def paired_values(launches: Iterable[Launch], other: Iterable[Launch]) -> Sides:
    """The iteration values of interleaved launches, in the order of launches.

    Iterations are paired from the first on: a launch with fewer iterations took part in the first ones.
    """
    return list(sides_by_order(launches, other).values())


def sides_by_order(
    launches: Iterable[Launch],
    other: Iterable[Launch],
    values_of: Callable[[Launch], list[float]] = _iteration_values,
) -> dict[int, tuple[tuple[float, ...], tuple[float, ...]]]:
    """The same as `paired_values`, as launch order -> both sides; orders ascend.

    `values_of` gives a launch's value in each iteration, NaN for none.
    """
    others = {launch.order: values_of(launch) for launch in other}
    own = {launch.order: values_of(launch) for launch in launches}
    pairs = {order: rank_tests.neighbours(own[order], others[order]) for order in sorted(own.keys() & others.keys())}
    return {order: (first, second) for order, (first, second) in pairs.items() if first and second}
