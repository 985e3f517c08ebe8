"""Exact and Student-t intervals of estimates over launches: pure functions of numbers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from ..kit.values import Interval
from .estimators import (
    finite_array,
    geometric_mean,
    iterations_ratio,
    positive_array,
    slopes_of,
    theil_sen,
    walsh_means,
)

# numpy is imported where it is used: the metric table reads this module, and declaring a test must stay light.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Values: TypeAlias = Sequence[float] | Floats


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
    return _interval(walsh_means(values).tolist(), _signed_rank_tail(len(values)), level)


def median_interval(values: Sequence[float], level: float) -> Interval:
    """The median of values in their unit, with the exact interval of the sign test, between two of the values.

    `Interval.level` is the level that it really has, 0 as in `location`. Raises ValueError as `location` does.
    """
    if not values or not all(map(math.isfinite, values)):
        raise ValueError("finite values are needed" if values else "at least one value is needed")
    return _interval(values, _sign_tail(len(values)), level)


def ratio_interval(launches: Sequence[tuple[Values, Values]], level: float) -> Interval:
    """How much longer one side takes than the interleaved other side, as a ratio over all launches.

    `launches` holds the positive iteration times of both sides, neighbours at the same index (see `neighbours`). A
    launch's value is its `iterations_ratio`; the interval is that of the `location` of their logs. Raises ValueError
    for no launch, no iterations, or one that is not positive.
    """
    import numpy as np

    logs = location(np.log(positive_array([iterations_ratio(own, other) for own, other in launches])), level)
    low, value, high = (math.exp(bound) for bound in (logs.low, logs.value, logs.high))
    return Interval(value=value, low=low, high=high, level=logs.level)


def theil_sen_interval(xs: Values, ys: Values, level: float) -> Interval:
    """`theil_sen` with the exact interval of Sen (1968), "Estimates of the regression coefficient based on Kendall's
    tau": the slopes that Kendall's test does not reject.

    It assumes that the deviations of the points from the line are exchangeable, which within one launch is at best
    nearly true. `Interval.level` is the level that it really has. Raises ValueError as `theil_sen` does.
    """
    import numpy as np

    slopes = slopes_of(xs, ys).tolist()
    groups = sorted(int(count) for count in np.unique(finite_array(xs), return_counts=True)[1])
    return _interval(slopes, _rank_sum_tail(*groups), level)


def slope_interval(launches: Sequence[tuple[Values, Values]], level: float) -> Interval:
    """The slope over all launches, each given as its (xs, ys), in the unit of y over that of x.

    A launch's value is its `theil_sen`, the interval is that of their `location`; of a single launch it is
    `theil_sen_interval`. Raises ValueError for no launch, and as those do.
    """
    if len(launches) == 1:
        return theil_sen_interval(*launches[0], level)
    return location([theil_sen(xs, ys) for xs, ys in launches], level)


def log_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """The `geometric_mean` of positive per-launch values, in their unit, with a Student-t interval on their logs.

    Fewer than FEWEST have their range, at level 0. Raises ValueError for none, or for one that is not positive.
    """
    import numpy as np

    logs = np.log(positive_array(values))
    mean, value = float(np.add.reduce(logs)) / len(logs), geometric_mean(values)
    if len(logs) < FEWEST:
        return Interval(value=value, low=float(min(values)), high=float(max(values)), level=0.0)
    from scipy.special import stdtrit  # this import takes half a second: only a run that measures needs it

    deviation = math.sqrt(float(np.add.reduce((logs - mean) ** 2)) / (len(logs) - 1))
    half = float(stdtrit(len(logs) - 1, (1 + level) / 2)) * deviation / math.sqrt(len(logs))
    return Interval(value=value, low=math.exp(mean - half), high=math.exp(mean + half), level=level)


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


def _interval(shifts: Sequence[float], tail: Sequence[float], level: float) -> Interval:
    """The median of the shifts, between those at which a test that counts how many lie beyond begins to reject.

    `tail` is the null distribution of that count. With too few values for the level the interval is the widest one, and
    with too few for CARRIED a range, at level 0.
    """
    ordered, pairs = sorted(shifts), len(shifts)
    # The smallest statistic whose tail probability, which descends, is at most half of what the interval may miss.
    wins = min(bisect_left(tail, -(1 - level) / 2, key=lambda probability: -probability), pairs)
    low, high = float(ordered[pairs - wins]), float(ordered[wins - 1])
    reached = 1 - 2 * tail[wins]
    level = reached if reached >= min(level, CARRIED) else 0.0
    return Interval(value=float(median(ordered)), low=low, high=high, level=level)
