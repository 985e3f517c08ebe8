"""How many loops, turns and launches a tandem takes, from the variance seen. Pure.

Nothing here looks at a difference between what is compared: only at the spread within a side, so the length of a
measurement cannot lean towards a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..model import Struct
from ..stats import rank_tests

ITERATIONS_STANDARD_ERROR = 0.02
"""The standard error of a launch's log value that its turns are to bring; what differs between launches is more."""
LEAST_LAUNCHES = 2
RESOLUTIONS_PER_VALUE = 1000


class Costs(Struct, frozen=True, kw_only=True):
    """What one tandem launch costs: starting and warming up all its sides, and one turn over all sides."""

    launch_ns: float
    iteration_ns: float


def iterations_wanted(
    ratios: Sequence[Sequence[float]],
    costs: Costs,
    budget_ns: float,
    launches: int,
    *,
    at_least: int = 3,
    at_most: int = 60,
    tail: int = 0,
) -> int:
    """The turns a launch should take so that the median of its ratios has a standard error of about 2 %.

    `ratios` holds, for each cell, its first turns over the candle's beside them (positive): the noisiest cell
    decides. `budget_ns` is for all `launches` together; `at_least` holds even where it does not suffice, `tail` (what a
    tail needs) as far as it does.
    """
    noise = max((_median_noise(cell) for cell in ratios if len(cell) > 1), default=0.0)
    wanted = max(tail, math.ceil(min((noise / ITERATIONS_STANDARD_ERROR) ** 2, at_most)))
    affordable = (budget_ns / max(1, launches) - costs.launch_ns) / max(1.0, costs.iteration_ns)
    return max(at_least, math.floor(min(wanted, affordable)))


def launches_wanted(
    values: Sequence[Sequence[float]],
    *,
    floor: int,
    at_most: int,
    effect: float,
    costs: Costs,
    iterations: int,
    budget_ns: float,
    taken: int = 0,
) -> int:
    """The launches a tandem should take in all, the `taken` ones included.

    `values` holds, for each cell, the log-ratios to the candle of the launches so far: the noisiest cell decides. It
    takes as many as bring the 95 % interval of a shift between two such sides to about half of `effect` on each side,
    at least `floor` (what the exact test needs) and at most `at_most`. `budget_ns` is for those to come; where it
    forbids even `floor`, as many as it allows, and never fewer than 2.
    """
    deviation = max((rank_tests.gini_deviation(cell) for cell in values), default=0.0)
    half_width = math.log1p(effect) / 2
    wanted = min(2 * (2 * deviation / half_width) ** 2, at_most) if half_width > 0 else at_most
    affordable = taken + budget_ns / max(1.0, costs.launch_ns + iterations * costs.iteration_ns)
    return max(LEAST_LAUNCHES, math.floor(min(max(floor, math.ceil(wanted)), affordable)))


def calibrated_loops(wall_ns: Sequence[float], resolution_ns: float, *, at_least_ns: float = 100_000) -> int:
    """The loops within an iteration that make the shortest cell's value last long enough to be read well.

    `wall_ns` holds what one loop takes in each cell. Long enough is `at_least_ns` and 1000 times the clock's
    resolution; the number is rounded up to 1, 2 or 5 times a power of ten. A loop too short for the clock counts as
    its resolution.
    """
    if not len(wall_ns):
        return 1
    shortest = max(min(wall_ns), resolution_ns, 1.0)
    loops = max(at_least_ns, RESOLUTIONS_PER_VALUE * resolution_ns) / shortest
    if loops <= 1:
        return 1
    decade: int = 10 ** math.floor(math.log10(loops))
    return next(step * decade for step in (1, 2, 5, 10) if step * decade >= loops)


def share(budget_ns: float, remaining: int) -> float:
    """The next tandem's part, in ns, of the time left, when `remaining` tandems (this one included) are to come."""
    return max(0.0, budget_ns) / max(1, remaining)


def _median_noise(ratios: Sequence[float]) -> float:
    """The standard error, times sqrt(turns), of the median of log ratios, as if they were normal."""
    return math.sqrt(math.pi / 2) * rank_tests.gini_deviation(np.log(np.asarray(ratios, dtype=np.float64)))
