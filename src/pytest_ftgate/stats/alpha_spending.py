"""Interim analyses: after how many pairs a comparison may be decided, and with what error. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from ..kit.values import Struct

# numpy is imported where it is used: the options read this module, and a plain run must stay light.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BETA = 0.04
"""The probability of passing a metric that is worse by the effect; unlike alpha it is not split over a run."""
LOOKS: Final = (2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 26, 32, 40, 52, 64, 80)
ALPHA_WEIGHTS = (0.02, 0.08, 0.10, 0.08, 0.06, 0.09, 0.07, 0.07, 0.06, 0.06, 0.06, 0.05, 0.05, 0.05, 0.05, 0.05)
BETA_WEIGHTS = (0.0, 0.06, 0.19, 0.25, 0.08, 0.10, 0.07, 0.06, 0.04, 0.03, 0.03, 0.02, 0.02, 0.02, 0.015, 0.015)
"""The shares of alpha and beta that each interim analysis may spend, by simulation with heavy-tailed noise of 4 to 7 %.

Half of beta is spent by the fifth pair, because most cells are unchanged. A quarter of alpha is spent by then, so that
+25 % fails after three or four pairs; the rest finds smaller changes.
"""


class Look(Struct, frozen=True, kw_only=True):
    """An interim look of a group-sequential test: a number of pairs, and the nominal levels at which it decides."""

    launches: int
    alpha: float
    beta: float


class Schedule(NamedTuple):
    """After how many pairs or rounds an analysis may decide, and what each may spend of alpha and of beta."""

    looks: tuple[int, ...]
    alpha: tuple[float, ...]
    beta: tuple[float, ...]


PAIRS: Final = Schedule(LOOKS, ALPHA_WEIGHTS, BETA_WEIGHTS)
ROUNDS: Final = Schedule(
    (1, *LOOKS),
    (0.0, 0.5, 0.1, 0.06, 0.05, 0.04, 0.04, 0.03, 0.03, 0.03, 0.02, 0.02, 0.02, 0.02, 0.02, 0.01, 0.01),
    (0.25, 0.25, 0.1, 0.06, 0.06, 0.04, 0.04, 0.03, 0.03, 0.03, 0.02, 0.02, 0.02, 0.02, 0.01, 0.01, 0.01),
)
"""For contracts. Most are met or missed by far, so one round may pass what is met by a factor of 1.5 and two may break
what is missed by one."""
_GRID, _FAR = 401, 9.0
"""Points of the numerical integration, and where it ends, in standard deviations of the sum."""


def of_rounds(correlation: float) -> Schedule:
    """The schedule of a contract: figures that drift with the machine need more rounds, as pairs do."""
    return PAIRS if correlation else ROUNDS


def planned_looks(alpha: float, beta: float, *, at_most: int, schedule: Schedule = PAIRS) -> tuple[Look, ...]:
    """The interim analyses of up to `at_most` pairs, each with the nominal levels at which its p-values decide.

    `alpha` and `beta` are those of one hypothesis. The levels are joint: over all analyses together, a sum of
    independent standard normal scores exceeds its limits with probability `alpha` (`beta`). They follow from the error
    spending of Lan & DeMets (1983), "Discrete sequential boundaries for clinical trials", by the recursive integration
    of Armitage, McPherson & Rowe (1969). The last analysis, at `at_most`, may spend all that remains. Raises ValueError
    for an `at_most` below one.
    """
    if at_most < 1:
        raise ValueError(f"no analysis of {at_most} pairs")
    return _looks(alpha, beta, (*(count for count in schedule.looks if count < at_most), at_most), schedule)


def last_look(alpha: float, beta: float, count: int, schedule: Schedule = PAIRS) -> Look:
    """The analysis of `count` pairs if no more follow; it may spend all that those before it have not spent."""
    return planned_looks(alpha, beta, at_most=count, schedule=schedule)[-1]


@lru_cache(maxsize=1024)  # asked for after each round, for each metric of each cell
def _looks(alpha: float, beta: float, counts: tuple[int, ...], schedule: Schedule) -> tuple[Look, ...]:
    totals = ((alpha, schedule.alpha), (beta, schedule.beta))
    both = (_levels(total, _spent(schedule.looks, weights, counts), counts) for total, weights in totals)
    return tuple(Look(launches=count, alpha=a, beta=b) for count, a, b in zip(counts, *both, strict=True))


def _spent(looks: Sequence[int], weights: Sequence[float], counts: Sequence[int]) -> tuple[float, ...]:
    """The share of a level that may be spent up to and including each count; 1 at the last."""
    so_far = dict(zip(looks, accumulate(weights), strict=True))
    return (*(so_far[count] for count in counts[:-1]), 1.0)


@lru_cache(maxsize=256)
def _levels(total: float, spent: tuple[float, ...], counts: tuple[int, ...]) -> tuple[float, ...]:
    """The nominal level of each analysis: the chance of a standard normal value to lie beyond its limit."""
    import numpy as np

    levels: list[float] = []
    sums, weights, before = np.zeros(1), np.ones(1), 0  # where the sum of the scores may be, and with what probability
    used = 0.0
    for share, count in zip(spent, counts, strict=True):
        step, deviation = math.sqrt(count - before), math.sqrt(count)
        due = share * total - used
        limit = _limit(sums, weights, step, due, _FAR * deviation)
        levels.append(float(_upper(np.asarray(limit / deviation))))
        sums, weights = _continued(sums, weights, step, -_FAR * deviation, min(limit, _FAR * deviation))
        before, used = count, share * total
    return tuple(levels)


def _limit(sums: NDArray[np.float64], weights: NDArray[np.float64], step: float, due: float, farthest: float) -> float:
    """The limit that the next sum exceeds with probability `due`, by bisection; beyond `farthest` it is infinite."""
    if due <= float(weights @ _upper((farthest - sums) / step)):
        return math.inf
    low, high = -farthest, farthest
    for _ in range(60):
        middle = (low + high) / 2
        beyond = float(weights @ _upper((middle - sums) / step))
        low, high = (middle, high) if beyond > due else (low, middle)
    return high


def _continued(
    sums: NDArray[np.float64], weights: NDArray[np.float64], step: float, low: float, high: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The sums that stay below the limit, on a new grid, with their probabilities (trapezoidal rule)."""
    import numpy as np

    grid = np.linspace(low, high, _GRID)
    distances = (grid[:, None] - sums[None, :]) / step
    density = np.exp(-(distances**2) / 2) @ weights / (step * math.sqrt(2 * math.pi))
    density *= grid[1] - grid[0]
    density[[0, -1]] /= 2
    return grid, density


def _upper(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probability of a standard normal value to exceed each of these."""
    from scipy.special import ndtr  # half a second: only a run that measured pays it

    upper: NDArray[np.float64] = ndtr(-values)
    return upper
