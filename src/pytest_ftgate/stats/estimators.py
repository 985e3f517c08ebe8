"""Estimates of a launch and of many, and of pairs of iterations: pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

# numpy is imported where it is used: the metric table reads this module, and declaring a test must stay light.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Values: TypeAlias = Sequence[float] | Floats


FEWEST_IN_MODES = 8
"""Fewer values lie in two groups by chance too often."""


def neighbours(own: Values, other: Values) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Both sides without the iterations in which either is NaN, so that only neighbours in time are paired."""
    if not math.isnan(sum(own) + sum(other)):  # nearly all launches
        return tuple(own), tuple(other)
    lost = {iteration for side in (own, other) for iteration, value in enumerate(side) if math.isnan(value)}
    first, second = (
        tuple(value for iteration, value in enumerate(side) if iteration not in lost) for side in (own, other)
    )
    return first, second


def theil_sen(xs: Values, ys: Values) -> float:
    """The slope of ys over xs: the median of the slopes between all pairs of points (Sen 1968).

    One step among many points, as an allocator takes it, does not move it. Points with the same x are not paired with
    each other. Raises ValueError for sides of unequal length, a value that is not finite, or fewer than two xs.
    """
    return median(slopes_of(xs, ys))


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive values, in their unit. Raises ValueError for none, or one that is not positive."""
    return values[0] if len(values) == 1 and values[0] > 0 else math.exp(fmean(map(math.log, values)))


def quantile(values: Values, at: float) -> float:
    """A quantile (0: the minimum) of one launch's iterations, in their unit, interpolated between neighbours.

    A low one shows the cost of the code rather than disturbances, a high one lock convoys. Raises ValueError for no
    iterations.
    """
    return float(row_quantiles(finite_array(values)[None], at)[0])


def row_quantiles(rows: Floats, at: float) -> Floats:
    """The `quantile` of the finite values of each row, and NaN for a row without any."""
    import numpy as np

    finite = np.isfinite(rows)
    counts = finite.sum(axis=1)
    if not counts.any():
        return np.full(len(rows), math.nan)
    ascending, every = np.sort(np.where(finite, rows, math.nan), axis=1), np.arange(len(rows))
    place = at * np.maximum(counts - 1, 0)
    below = np.floor(place)
    part = place - below
    low, high = ascending[every, below.astype(np.intp)], ascending[every, np.ceil(place).astype(np.intp)]
    return np.asarray(np.where(part >= 0.5, high - (high - low) * (1 - part), low + (high - low) * part))


def row_medians(rows: Floats) -> Floats:
    """The median of the values that are not NaN in each row, and NaN for a row without any."""
    return row_quantiles(rows, 0.5)


def iterations_ratio(own: Values, other: Values) -> float:
    """How much longer one side of a launch takes than the interleaved other side: the ratio of `paired_shift`."""
    return math.exp(paired_shift(own, other)[0])


def paired_shift(own: Values, other: Values) -> tuple[float, float]:
    """How much longer one side takes than its neighbours in time, as a log-ratio, and the standard error of it.

    The Hodges-Lehmann location of the log-ratios of single iterations, and their deviation (Gini's mean difference)
    over the root of their number. Iterations without a partner are left out. Raises ValueError for no iterations, or
    one that is not positive.
    """
    shifts, errors = row_shifts(positive_array(own)[None], positive_array(other)[None])
    return float(shifts[0]), float(errors[0])


def row_shifts(own: Floats, other: Floats) -> tuple[Floats, Floats]:
    """The `paired_shift` of each row; NaN without any pair. Iterations in which either side is NaN are left out."""
    import numpy as np

    width = min(own.shape[1], other.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(own[:, :width]) - np.log(other[:, :width])
    paired = np.isfinite(logs)
    counts = paired.sum(axis=1)
    shifts, errors = np.full(len(own), math.nan), np.full(len(own), math.nan)
    for count in {*counts.tolist()} - {0}:
        rows = counts == count
        same = logs[rows][paired[rows]].reshape(-1, count)
        shifts[rows] = medians(walsh_means(same))
        errors[rows] = gini_deviations(same) / math.sqrt(count)
    return shifts, errors


def gini_deviation(values: Values) -> float:
    """The standard deviation estimated by Gini's mean difference: nearly as efficient, and less sensitive to outliers.

    The mean of |a - b| over all pairs, times sqrt(pi) / 2; 0.0 for fewer than two values.
    """
    return 0.0 if len(values) < 2 else float(gini_deviations(finite_array(values)[None])[0])


def gini_deviations(rows: Floats) -> Floats:
    """The `gini_deviation` of each row."""
    import numpy as np

    n = rows.shape[-1]
    if n < 2:
        return np.zeros(rows.shape[:-1])
    sums = np.maximum(0.0, np.sort(rows) @ _weights(n))
    return np.asarray(sums * math.sqrt(math.pi) / (n * (n - 1)))


@lru_cache(maxsize=64)
def _weights(n: int) -> Floats:
    import numpy as np

    return np.asarray(2.0 * np.arange(n) - (n - 1), dtype=np.float64)


def slopes_of(xs: Values, ys: Values) -> Floats:
    """The slopes between all pairs of points that differ in x."""
    import numpy as np

    across, up = finite_array(xs), finite_array(ys)
    if len(across) != len(up):
        raise ValueError(f"{len(across)} xs and {len(up)} ys make no points")
    first, second = np.triu_indices(len(across), k=1)
    run, rise = across[second] - across[first], up[second] - up[first]
    if not run.any():
        raise ValueError("a slope needs two points that differ in x")
    return np.asarray(rise[run != 0] / run[run != 0], dtype=np.float64)


def median(values: Values) -> float:
    """The median of at least one value, in a fifth of the time that NumPy's own takes for a few."""
    return float(medians(values))


def two_modes(values: Sequence[float]) -> tuple[float, float] | None:
    """The medians of the lower and of the upper values, where they lie in two groups; None where they do not.

    Between groups is more than half of the range, and in each a fifth of the values or more. Of FEWEST_IN_MODES normal
    values 3 % look so, of ten 1 %.
    """
    ascending, fewest = sorted(values), max(2, math.ceil(len(values) / 5))
    if len(values) < FEWEST_IN_MODES:
        return None
    splits = range(fewest, len(values) - fewest + 1)
    widest = max(splits, key=lambda at: ascending[at] - ascending[at - 1])
    if not ascending[widest] - ascending[widest - 1] > (ascending[-1] - ascending[0]) / 2:
        return None
    return median(ascending[:widest]), median(ascending[widest:])


def medians(rows: Values) -> Floats:
    """The median of each row; all values are finite."""
    import numpy as np

    ascending = np.sort(rows)
    middle = ascending.shape[-1] // 2
    upper = ascending[..., middle]
    return np.asarray(upper if ascending.shape[-1] % 2 else (ascending[..., middle - 1] + upper) / 2)


def walsh_means(values: Values) -> Floats:
    """The means of all pairs of values, a value with itself included; of several rows those of each."""
    halves = finite_array(values) / 2
    first, second = _pairs(halves.shape[-1])
    # Halved before they are added: the mean of two equal values is then exactly that value, and never overflows.
    return halves[..., first] + halves[..., second]


@lru_cache(maxsize=8)
def _pairs(n: int) -> tuple[NDArray[np.intp], ...]:
    """The indices of all pairs of n values: those of a few iterations are asked for at every launch."""
    import numpy as np

    return np.triu_indices(n)


def finite_array(values: Values) -> Floats:
    import numpy as np

    array = np.asarray(values, dtype=np.float64)
    if not array.size or not np.isfinite(array).all():
        raise ValueError("finite values are needed" if array.size else "at least one value is needed")
    return array


def positive_array(values: Values) -> Floats:
    array = finite_array(values)
    if not (array > 0).all():
        raise ValueError("positive values are needed for a logarithm")
    return array
