"""Where the level of a series changes: E-divisive, Matteson & James 2014. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SIGNIFICANCE = 0.01
PERMUTATIONS = 199
LEAST_SEGMENT = 3
"""Values on each side of a change: fewer are outliers, which only later ones can tell from a level."""
LONGEST = 200
"""Values that are searched, the newest: the time grows with the square of their number."""


def change_points(values: Sequence[float], *, seed: int = 0) -> tuple[int, ...]:
    """The indices at which a new level begins, ascending; none for a series too short to tell.

    The hierarchical E-divisive procedure of Matteson & James (2014), "A Nonparametric Approach for Multiple Change
    Point Analysis of Multivariate Data": of all segments the split with the largest scaled energy distance between its
    parts (alpha = 1) is kept while fewer than SIGNIFICANCE of PERMUTATIONS within the segments have one as large.
    It assumes that the values of a level are exchangeable: a slow drift is found as steps. The same `seed` finds the
    same changes. Of a series longer than LONGEST its end is searched.
    """
    import numpy as np

    first = max(0, len(values) - LONGEST)
    series = np.asarray(values[first:], dtype=float)
    bounds = [0, len(series)]
    rng = np.random.default_rng(seed)
    while True:
        segments = [series[low:high] for low, high in itertools.pairwise(bounds)]
        splits = [_best(segment) for segment in segments]
        widest = max(range(len(splits)), key=lambda number: splits[number][0])
        apart, at = splits[widest]
        if apart <= 0 or not _significant(segments, apart, rng):
            break
        bounds = sorted([*bounds, bounds[widest] + at])
    return tuple(first + place for place in bounds[1:-1])


def _significant(segments: Sequence[Floats], apart: float, rng: np.random.Generator) -> bool:
    """Whether few enough permutations within the segments have a split that is as far apart."""
    exceeded, allowed = 0, SIGNIFICANCE * (PERMUTATIONS + 1) - 1
    for _ in range(PERMUTATIONS):
        exceeded += max(_best(rng.permutation(segment))[0] for segment in segments) >= apart
        if exceeded > allowed:
            return False
    return True


def _best(segment: Floats) -> tuple[float, int]:
    """How far apart the parts of a segment are at most, and where it is divided so: the second part has any end."""
    import numpy as np

    count, least = len(segment), LEAST_SEGMENT
    if count < 2 * least:
        return 0.0, 0
    sums = np.zeros((count + 1, count + 1))
    sums[1:, 1:] = np.abs(segment[:, None] - segment[None, :]).cumsum(0).cumsum(1)
    at = np.arange(least, count - least + 1)[:, None]
    end = np.arange(2 * least, count + 1)[None, :]
    left, right = at, end - at
    usable = right >= least
    right = np.where(usable, right, least)
    inner = sums[at, at]
    between = sums[at, end] - inner
    outer = sums[end, end] - 2 * sums[at, end] + inner
    # Sums over ordered pairs, so each pair within a part is in them twice.
    energy = 2 * between / (left * right) - inner / (left * (left - 1)) - outer / (right * (right - 1))
    apart = np.where(usable, energy * left * right / (left + right), -np.inf)
    place = int(apart.argmax())
    return float(apart.flat[place]), int(at[place // end.shape[1], 0])
