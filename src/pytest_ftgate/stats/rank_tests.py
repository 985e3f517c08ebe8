"""Estimators of a launch and of many, with their rank intervals: pure functions of numbers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from ..kit.values import Interval

# numpy is imported where it is used: the metric table reads this module, and declaring a test must stay light.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Values: TypeAlias = Sequence[float] | Floats

TAIL_QUANTILE = 0.9
FEWEST = 3
"""Launches, or pairs, that carry an interval by Student's t (benchmarks/verdicts/simulate.py --hard). Two show no
scatter where both meet the same of two modes: 8 to 15 % of their intervals missed."""
CARRIED = 0.9
"""An exact interval that cannot reach this level is none: it takes five launches."""


def location(values: Values, level: float) -> Interval:
    """The centre of values that scatter symmetrically, in their unit, with an exact interval.

    The one-sample estimate of Hodges & Lehmann (1963): the median of the means of all pairs, a value with itself
    included; its interval holds the shifts that Wilcoxon's signed-rank test does not reject. `Interval.level` is the
    level that it really has: five values reach 0.9375 at most. Too few for CARRIED have their range, at level 0. Raises
    ValueError for none, or for one that is not finite.
    """
    return _interval(_walsh_means(values), _signed_rank_tail(len(values)), level)


def median_interval(values: Values, level: float) -> Interval:
    """The median of values in their unit, with the exact interval of the sign test, between two of the values.

    `Interval.level` is the level that it really has, 0 as in `location`. Raises ValueError as `location` does.
    """
    known = _finite(values).tolist()
    return _interval(known, _sign_tail(len(known)), level)


def ratio_interval(launches: Sequence[tuple[Values, Values]], level: float) -> Interval:
    """How much longer one side takes than the interleaved other side, as a ratio over all launches.

    `launches` holds the positive iteration times of both sides, neighbours at the same index (see `neighbours`). A
    launch's value is its `iterations_ratio`; the interval is that of the `location` of their logs. Raises ValueError
    for no launch, no iterations, or one that is not positive.
    """
    import numpy as np

    logs = location(np.log(_positive([iterations_ratio(own, other) for own, other in launches])), level)
    low, value, high = (math.exp(bound) for bound in (logs.low, logs.value, logs.high))
    return Interval(value=value, low=low, high=high, level=logs.level)


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
    return median(_slopes(xs, ys))


def theil_sen_interval(xs: Values, ys: Values, level: float) -> Interval:
    """`theil_sen` with the exact interval of Sen (1968), "Estimates of the regression coefficient based on Kendall's
    tau": the slopes that Kendall's test does not reject.

    It assumes that the deviations of the points from the line are exchangeable, which within one launch is at best
    nearly true. `Interval.level` is the level that it really has. Raises ValueError as `theil_sen` does.
    """
    import numpy as np

    slopes = _slopes(xs, ys)
    groups = sorted(int(count) for count in np.unique(_finite(xs), return_counts=True)[1])
    return _interval(slopes, _rank_sum_tail(*groups), level)


def slope_interval(launches: Sequence[tuple[Values, Values]], level: float) -> Interval:
    """The slope over all launches, each given as its (xs, ys), in the unit of y over that of x.

    A launch's value is its `theil_sen`, the interval is that of their `location`; of a single launch it is
    `theil_sen_interval`. Raises ValueError for no launch, and as those do.
    """
    if len(launches) == 1:
        return theil_sen_interval(*launches[0], level)
    return location([theil_sen(xs, ys) for xs, ys in launches], level)


def amdahl(scaling: float, workers: int) -> float:
    """The serial fraction at which Amdahl's law gives that speed-up: (1/S - 1/N) / (1 - 1/N).

    The measure of Karp & Flatt (1990), "Measuring parallel processor performance": 0 for perfect scaling, 1 for none,
    above 1 where more workers are slower, and negative where they do better than N times. Raises ValueError for a
    scaling that is not positive and for fewer than two workers.
    """
    if not scaling > 0 or workers < 2:
        raise ValueError(f"a scaling of {scaling} over {workers} workers has no serial fraction")
    return (1 / scaling - 1 / workers) / (1 - 1 / workers)


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive values, in their unit. Raises ValueError for none, or one that is not positive."""
    return values[0] if len(values) == 1 and values[0] > 0 else math.exp(fmean(map(math.log, values)))


def log_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """The `geometric_mean` of positive per-launch values, in their unit, with a Student-t interval on their logs.

    Fewer than FEWEST have their range, at level 0. Raises ValueError for none, or for one that is not positive.
    """
    import numpy as np

    logs = np.log(_positive(values))
    mean, value = float(np.add.reduce(logs)) / len(logs), geometric_mean(values)
    if len(logs) < FEWEST:
        return Interval(value=value, low=float(min(values)), high=float(max(values)), level=0.0)
    from scipy.special import stdtrit  # this import takes half a second: only a run that measures needs it

    deviation = math.sqrt(float(np.add.reduce((logs - mean) ** 2)) / (len(logs) - 1))
    half = float(stdtrit(len(logs) - 1, (1 + level) / 2)) * deviation / math.sqrt(len(logs))
    return Interval(value=value, low=math.exp(mean - half), high=math.exp(mean + half), level=level)


def quantile(values: Values, at: float) -> float:
    """A quantile (0: the minimum) of one launch's iterations, in their unit, interpolated between neighbours.

    A low one shows the cost of the code rather than disturbances. Raises ValueError for no iterations.
    """
    # NumPy's own `quantile` takes 100 us for a few values, and a report asks for some hundred of a cell.
    ascending = sorted(map(float, values))
    if not ascending or not all(map(math.isfinite, ascending)):
        raise ValueError("finite values are needed" if ascending else "at least one value is needed")
    below, part = divmod(at * (len(ascending) - 1), 1)
    low, high = ascending[int(below)], ascending[math.ceil(below + part)]
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part


def row_quantiles(rows: Floats, at: float) -> Floats:
    """The `quantile` of the finite values of each row, and NaN for a row without any."""
    import numpy as np

    finite = np.isfinite(rows)
    counts = finite.sum(axis=1)
    filled = counts > 0
    if not filled.any():
        return np.full(len(rows), math.nan)
    ascending, every = np.sort(np.where(finite, rows, math.nan), axis=1), np.arange(len(rows))
    place = at * np.maximum(counts - 1, 0)
    below = np.floor(place)
    part = place - below
    low, high = ascending[every, below.astype(np.intp)], ascending[every, np.ceil(place).astype(np.intp)]
    return np.asarray(np.where(part >= 0.5, high - (high - low) * (1 - part), low + (high - low) * part))


def row_medians(rows: Floats) -> Floats:
    """The median of the values that are not NaN in each row, and NaN for a row without any."""
    import numpy as np

    counts = (~np.isnan(rows)).sum(axis=1)
    if not counts.any():
        return np.full(len(rows), math.nan)
    ascending, every = np.sort(rows, axis=1), np.arange(len(rows))
    upper = counts // 2
    high = ascending[every, np.minimum(upper, rows.shape[1] - 1)]
    return np.asarray(np.where(counts % 2, high, (ascending[every, np.maximum(upper - 1, 0)] + high) / 2))


def tail(values: Values, at: float = TAIL_QUANTILE) -> float:
    """A high quantile of one launch's iterations, in their unit, interpolated: unlike a low one, it shows lock convoys.

    Raises ValueError for no iterations.
    """
    return quantile(values, at)


def iterations_ratio(own: Values, other: Values) -> float:
    """How much longer one side of a launch takes than the interleaved other side: the ratio of `paired_shift`."""
    return math.exp(median(_walsh_means(_log_ratios(own, other))))


def row_shifts(own: Floats, other: Floats, *, errors: bool = False) -> tuple[Floats, Floats]:
    """For each row of both sides the `paired_shift`, and its standard error if asked for; NaN without any pair.

    Iterations in which either side is NaN are left out.
    """
    import numpy as np

    width = min(own.shape[1], other.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(own[:, :width]) - np.log(other[:, :width])
    known = np.isfinite(logs)
    counts = known.sum(axis=1)
    found, within = np.full(len(own), math.nan), np.full(len(own), math.nan)
    for count in {*counts.tolist()} - {0}:
        rows = counts == count
        same = logs[rows][known[rows]].reshape(-1, count)
        found[rows] = row_medians(_walsh_means(same))
        if errors:
            within[rows] = _gini_deviations(same) / math.sqrt(count)
    return found, within


def paired_shift(own: Values, other: Values) -> tuple[float, float]:
    """How much longer one side takes than its neighbours in time, as a log-ratio, and the standard error of it.

    The Hodges-Lehmann location of the log-ratios of single iterations, and their deviation (Gini's mean difference)
    over the root of their number. Iterations without a partner are left out. Raises ValueError for no iterations, or
    one that is not positive.
    """
    logs = _log_ratios(own, other)
    return median(_walsh_means(logs)), gini_deviation(logs) / math.sqrt(len(logs))


def _log_ratios(own: Values, other: Values) -> Floats:
    import numpy as np

    pairs = min(len(own), len(other))
    if not pairs:
        raise ValueError("no iterations to compare")
    return np.asarray(np.log(_positive(own[:pairs])) - np.log(_positive(other[:pairs])), dtype=np.float64)


def gini_deviation(values: Values) -> float:
    """The standard deviation estimated by Gini's mean difference: nearly as efficient, and less sensitive to outliers.

    The mean of |a - b| over all pairs, times sqrt(pi) / 2; 0.0 for fewer than two values.
    """
    return 0.0 if len(values) < 2 else float(_gini_deviations(_finite(values)[None])[0])


def _gini_deviations(rows: Floats) -> Floats:
    """The `gini_deviation` of each row."""
    import numpy as np

    n = rows.shape[1]
    if n < 2:
        return np.zeros(len(rows))
    weights = _weights(n)
    sums = [max(0.0, float(weights @ ascending) * math.sqrt(math.pi) / (n * (n - 1))) for ascending in np.sort(rows)]
    return np.array(sums)


@lru_cache(maxsize=64)
def _weights(n: int) -> Floats:
    import numpy as np

    return np.asarray(2.0 * np.arange(n) - (n - 1), dtype=np.float64)


@lru_cache(maxsize=128)
def _rank_sum_tail(*sizes: int) -> tuple[float, ...]:
    """P(at least u of the pairs support the alternative) for each u, under the null, for groups of these sizes.

    A pair has its members in two groups: two groups give the rank sum, n groups of one value Kendall's statistic.
    The numbers of orders by u are the coefficients of the Gaussian multinomial. They are multiplied up in integers, a
    group of n after the m values before it: prod (1 - q^(m + i)) / (1 - q^i), i = 1 .. n. They are symmetric, so half
    of them are computed. `sizes` ascend.
    """
    pairs = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    half = pairs // 2
    orders, cases, m = [1] + [0] * half, 1, 0
    for n in reversed(sizes):
        for i in range(1, n + 1) if m else ():
            for k in range(half, m + i - 1, -1):
                orders[k] -= orders[k - m - i]
            for k in range(i, half + 1):
                orders[k] += orders[k - i]
        m += n
        cases *= math.comb(m, n)
    orders += reversed(orders[: pairs - half])
    return _tail(orders, cases)


@lru_cache(maxsize=256)
def _signed_rank_tail(n: int) -> tuple[float, ...]:
    """P(the ranks that support the alternative sum to at least w) for w = 0 .. n (n + 1) / 2, under the null."""
    subsets = [1]
    for rank in range(1, n + 1):
        padding = [0] * rank
        subsets = [without + taken for without, taken in zip(subsets + padding, padding + subsets, strict=True)]
    return _tail(subsets, 2**n)


@lru_cache(maxsize=256)
def _sign_tail(n: int) -> tuple[float, ...]:
    """P(at least w of n values lie above) for w = 0 .. n, under the null."""
    return _tail([math.comb(n, above) for above in range(n + 1)], 2**n)


def _tail(counts: Sequence[int], total: int) -> tuple[float, ...]:
    """Upper tail probabilities of a statistic from the number of equally likely cases for each of its values.

    `counts` is symmetric, so the upper tail is the reversed running sum. The sums are integers, so that only the last
    division rounds.
    """
    return tuple(cases / total for cases in accumulate(counts))[::-1]


def _interval(shifts: Values, tail: Sequence[float], level: float) -> Interval:
    """The median of the shifts, between those at which a test that counts how many lie beyond begins to reject.

    `tail` is the null distribution of that count. With too few values for the level the interval is the widest one, and
    with too few for CARRIED a range, at level 0.
    """
    ordered, pairs = sorted(shifts), len(shifts)
    # The smallest statistic whose tail probability, which descends, is at most half of what the interval may miss.
    wins = min(bisect_left(tail, -(1 - level) / 2, key=lambda probability: -probability), pairs)
    low, high = float(ordered[pairs - wins]), float(ordered[wins - 1])
    reached = 1 - 2 * tail[wins]
    return Interval(value=median(shifts), low=low, high=high, level=reached if reached >= min(level, CARRIED) else 0.0)


def _slopes(xs: Values, ys: Values) -> Floats:
    """The slopes between all pairs of points that differ in x."""
    import numpy as np

    across, up = _finite(xs), _finite(ys)
    if len(across) != len(up):
        raise ValueError(f"{len(across)} xs and {len(up)} ys make no points")
    first, second = np.triu_indices(len(across), k=1)
    run, rise = across[second] - across[first], up[second] - up[first]
    if not run.any():
        raise ValueError("a slope needs two points that differ in x")
    return np.asarray(rise[run != 0] / run[run != 0], dtype=np.float64)


def median(values: Values) -> float:
    """The median of at least one value, in a fifth of the time that NumPy's own takes for a few."""
    import numpy as np

    ascending = np.sort(values)
    middle = len(ascending) // 2
    return float(ascending[middle] if len(ascending) % 2 else (ascending[middle - 1] + ascending[middle]) / 2)


def _walsh_means(values: Values) -> Floats:
    """The means of all pairs of values, a value with itself included; of several rows those of each."""
    halves = _finite(values) / 2
    first, second = _pairs(halves.shape[-1])
    # Halved before they are added: the mean of two equal values is then exactly that value, and never overflows.
    return halves[..., first] + halves[..., second]


@lru_cache(maxsize=8)
def _pairs(n: int) -> tuple[NDArray[np.intp], ...]:
    """The indices of all pairs of n values: those of a few iterations are asked for at every launch."""
    import numpy as np

    return np.triu_indices(n)


def _finite(values: Values) -> Floats:
    import numpy as np

    array = np.asarray(values, dtype=np.float64)
    if not array.size or not np.isfinite(array).all():
        raise ValueError("finite values are needed" if array.size else "at least one value is needed")
    return array


def _positive(values: Values) -> Floats:
    array = _finite(values)
    if not (array > 0).all():
        raise ValueError("positive values are needed for a logarithm")
    return array
