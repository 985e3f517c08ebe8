"""The test of pairs: moderated, clipped scores. Pure.

A pair's score is its distance from a limit over the standard deviation that a pair is expected to have. That has three
parts: `spread`, the standard deviation between pairs of launches of the same code, which is stated for each metric; the
standard error that the pair's own iterations show; and a common factor, by which the pairs
themselves correct both. So three pairs can decide what is obvious, where an exact rank test of n pairs never gives less
than 2^-n. Pairs that scatter more are judged by their own deviation too: what is stated decides nothing noisier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median_low
from typing import TYPE_CHECKING, TypeAlias

from ..kit.values import Interval
from .estimators import gini_deviation, gini_deviations, median, medians
from .intervals import FEWEST

# numpy is imported where it is used: the metric table reads this wing, and declaring a test must stay light.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

PRIOR_FREEDOM = 12
"""The weight of the stated standard deviations against that of the pairs: as of so many further pairs."""
BOUND = 1.5
"""A failure is judged at so many times the expected spread: some workloads differ more from launch to launch, above all
short ones that fork. A pass is judged at the expected one."""
CLIP = 4.0
"""No single pair counts for more standard deviations than this."""
SCATTERED = 0.01
"""The level at which pairs scatter more than is stated: of unchanged code that does as stated so many are said to."""
FARTHEST = 3 * CLIP
"""Nor does it lie farther from the others for their common factor: a stall in one pair hides nothing that they show."""


def deviations(shifts: Sequence[float] | Sequence[Sequence[float]], errors: Sequence[float], spread: float) -> Floats:
    """The standard deviation of each pair, in the unit of the shifts; blind to where the shifts lie.

    `shifts` are those of pairs (log-ratios or differences), or rows of such, each judged by itself; `errors` the
    standard error of each within its launches (empty: none is known). The variance of a pair, spread^2 + error^2, is
    multiplied by a factor that pools 1, with a weight of PRIOR_FREEDOM, with the factor that the pairs show around
    their median (by Gini's mean difference), as Smyth (2004), "Linear models and empirical Bayes methods", moderates
    variances. Raises ValueError for a spread that is not positive.
    """
    import numpy as np

    if not spread > 0:
        raise ValueError(f"a spread of {spread} is not positive")
    values = np.asarray(shifts, dtype=np.float64)
    expected = _stated(values, errors, spread)
    freedom = max(0, values.shape[-1] - 1)
    residuals = np.clip((values - medians(values)[..., None]) / expected, -FARTHEST, FARTHEST)
    observed = gini_deviations(residuals)[..., None] ** 2 if freedom else 0.0
    scaled: Floats = expected * np.sqrt((PRIOR_FREEDOM + freedom * observed) / (PRIOR_FREEDOM + freedom))
    return scaled


def scatter(values: Sequence[float] | Floats, scales: Floats) -> float:
    """The deviation of pairs around their median, clipped as scores are, in multiples of `scales`; 0 for one pair."""
    import numpy as np

    count, shifts = len(values), np.asarray(values, dtype=np.float64)
    return gini_deviation(np.clip((shifts - median(shifts)) / scales, -CLIP, CLIP)) if count > 1 else 0.0


def beyond_stated(shifts: Sequence[float], errors: Sequence[float], spread: float) -> bool:
    """Whether pairs scatter more than the stated parts of their `deviations`: by chi-squared, at SCATTERED."""
    import numpy as np
    from scipy.special import chdtrc

    freedom = len(shifts) - 1
    if freedom < FEWEST - 1:
        return False
    values = np.asarray(shifts, dtype=np.float64)
    return float(chdtrc(freedom, freedom * scatter(values, _stated(values, errors, spread)) ** 2)) <= SCATTERED


def _stated(values: Floats, errors: Sequence[float], spread: float) -> Floats:
    """The standard deviation of each pair before anything is made of how they scatter."""
    import numpy as np

    return np.hypot(spread, errors) if len(errors) else np.full(values.shape, spread)


def _tests(values: Sequence[float] | Floats, scales: Floats) -> list[tuple[float, int]]:
    """By how many times the scales, and with how many degrees of freedom, pairs are tested.

    What is stated has the weight of PRIOR_FREEDOM pairs, which would hide that they scatter more: these are tested by
    their own deviation too.
    """
    freedom = len(values) - 1
    own = scatter(values, scales) if len(values) >= FEWEST else 0.0
    return [(1.0, PRIOR_FREEDOM + freedom), *([(own, freedom)] if own > 1 else [])]


def p_above(distances: Sequence[float], scales: Floats, correlation: float = 0.0, *, own: bool = True) -> float:
    """One-sided p-value that pairs lie above their limits; `distances` are those from the limits (positive: above).

    The sum of the scores, each clipped at CLIP (Huber 1964, "Robust estimation of a location parameter"), over its
    standard deviation, against Student's t with the degrees of freedom of `deviations`; the larger of that and of
    Student's own test, with the deviation of the pairs, where FEWEST or more scatter beyond the scales (not without
    `own`). It is 0.5 or more unless most pairs lie above: one disturbed pair of two or three decides nothing.
    `correlation` is that of neighbouring values, which decays geometrically. 1.0 without distances.
    """
    import numpy as np
    from scipy.special import stdtr  # half a second: only a run that measured pays it

    count = len(distances)
    if not count:
        return 1.0
    scores, of_sum = np.asarray(distances, dtype=np.float64) / scales, math.sqrt(variance_of_sum(count, correlation))
    least = 0.0 if median_low(distances) > 0 else 0.5
    tests = _tests(distances, scales)[: None if own else 1]
    sums = ((float(np.clip(scores / times, -CLIP, CLIP).sum()), freedom) for times, freedom in tests)
    return max(least, *(float(stdtr(freedom, -total / of_sum)) for total, freedom in sums))


def variance_of_sum(count: int, correlation: float) -> float:
    """The variance of the sum of `count` standard values, neighbours of which have this correlation (decaying)."""
    return count + 2 * sum((count - lag) * correlation**lag for lag in range(1, count) if correlation)


def reach(
    count: int, level: float, power: float, correlation: float = 0.0, prior_freedom: int = PRIOR_FREEDOM
) -> float:
    """How far beyond a limit, in standard deviations of a pair, `count` pairs must lie to decide at `level`.

    With the chance `power`; infinite where the clipped scores of so few pairs cannot reach the level. Pairs that are
    tested by their own deviation have a `prior_freedom` of 0.
    """
    from scipy.special import ndtri, stdtrit

    if not 0 < level < 1 or not count:
        return math.inf
    if count + prior_freedom < 2:
        return math.inf
    of_sum = math.sqrt(variance_of_sum(count, correlation))
    critical = float(stdtrit(prior_freedom + count - 1, 1 - level))
    if critical * of_sum > CLIP * count:
        return math.inf
    return max(0.0, (critical + float(ndtri(power))) * of_sum / count)


def interval(shifts: Sequence[float], scales: Floats, level: float) -> Interval:
    """The location of the shifts of pairs with its interval; with fewer than FEWEST pairs their range, at level 0.

    The estimate balances the clipped scores that `p_above` adds up (Huber 1964); at the ends of the two-sided interval
    their sum is as large as Student's t allows. Pairs that scatter more than the scales say widen it to that of their
    own deviation and degrees of freedom.
    """
    import numpy as np
    from scipy.special import stdtrit

    values = np.asarray(shifts, dtype=np.float64)
    count, estimate = len(values), _balanced(values, scales, 0.0)
    if count < FEWEST:
        return Interval(value=estimate, low=float(values.min()), high=float(values.max()), level=0.0)
    tests = _tests(values, scales)
    limits = [(times, float(stdtrit(freedom, (1 + level) / 2)) * math.sqrt(count)) for times, freedom in tests]
    low = min(_balanced(values, times * scales, limit) for times, limit in limits)
    high = max(_balanced(values, times * scales, -limit) for times, limit in limits)
    return Interval(value=estimate, low=low, high=high, level=level)


def _balanced(values: Floats, scales: Floats, wanted: float) -> float:
    """Where the sum of the clipped scores is `wanted`: by Newton's method, halving where a step leaves the bracket."""
    reach = CLIP * scales.max()
    low, high = float(values.min() - reach), float(values.max() + reach)
    at = float((values / scales).sum() - wanted) / float((1 / scales).sum())
    for _ in range(60):
        scores = (values - at) / scales
        excess = float(scores.clip(-CLIP, CLIP).sum()) - wanted
        if abs(excess) < 1e-9:
            break
        low, high = (at, high) if excess > 0 else (low, at)
        slope = float((1 / scales)[abs(scores) < CLIP].sum())
        step = at + excess / slope if slope else low
        at = step if low < step < high else (low + high) / 2
    return at


@lru_cache(maxsize=64)
def half_width(count: int, level: float) -> float:
    """Half of the interval of the mean of `count` pairs, in standard deviations of a pair."""
    from scipy.special import stdtrit

    return float(stdtrit(PRIOR_FREEDOM + count - 1, (1 + level) / 2)) / math.sqrt(count)
