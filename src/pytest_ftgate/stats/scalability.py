"""How throughput grows with the workers: the Universal Scalability Law, fitted to measured ratios. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..kit.values import Interval, Struct

if TYPE_CHECKING:
    from .rank_tests import Floats

DRAWS: Final = 2000
LEAST_POINTS: Final = 3
"""Counts beside the base: two terms and one more, so that the law can be refuted."""
MISFIT: Final = 0.01
"""The p-value below which the ratios refute the law."""
_LEAST_SPREAD: Final = 0.002
"""The deviation that a measured log-ratio has at least."""


class Terms(Struct, frozen=True, kw_only=True):
    """The terms of the law, each from 0 on, with an interval. Amdahl's law has the first one alone."""

    contention: Interval
    """The part of the work that one worker does at a time."""
    coherency: Interval | None = None
    """The cost of each pair of workers that keep their data consistent, as a part of the work."""

    def throughput(self, workers: int) -> float:
        """Over that of one worker."""
        pairs = 0.0 if self.coherency is None else self.coherency.value * workers * (workers - 1)
        return workers / (1 + self.contention.value * (workers - 1) + pairs)


def terms(points: Sequence[tuple[int, Interval]]) -> Terms | None:
    """The terms that explain throughput ratios to one worker; None for too few counts, or if these refute the law.

    X(n) = n / (1 + a (n - 1) + b n (n - 1)), Gunther (2007), "Guerrilla Capacity Planning": n / X(n) - 1 is linear in
    both terms. They are fitted by least squares with weights, none below 0. Intervals at 95 % are percentiles over
    draws of the ratios as their own intervals say, half of the least variance being that of the one worker, which all
    ratios share. Raises ValueError for a count below two and for a ratio that is not positive.
    """
    import numpy as np

    if any(count < 2 or not each.low > 0 for count, each in points):
        raise ValueError(f"no positive ratios of several workers: {points}")
    if len({count for count, _ in points}) < LEAST_POINTS or any(each.level <= 0 for _, each in points):
        return None
    from scipy.special import chdtrc, ndtri

    # 1. What the law is linear in, with the deviations of the ratios' logs.
    counts = np.array([float(count) for count, _ in points])
    logs = np.log([each.value for _, each in points])
    spreads = [math.log(each.high / each.low) / (2 * float(ndtri((1 + each.level) / 2))) for _, each in points]
    deviations = np.maximum(spreads, _LEAST_SPREAD)
    columns = np.array([counts - 1, counts * (counts - 1)])
    weights = np.exp(logs) / counts / deviations
    # 2. The fit, which the ratios may refute.
    fitted = _least_squares(columns * weights, (counts * np.exp(-logs) - 1) * weights)
    left = (counts * np.exp(-logs) - 1 - fitted @ columns) * weights
    if float(chdtrc(len(points) - 2, float(left @ left))) < MISFIT:
        return None
    # 3. The same of ratios as they could have been.
    rng = np.random.default_rng(1)
    shared = deviations.min() / math.sqrt(2)
    noise = rng.normal(size=(DRAWS, len(points))) * np.sqrt(deviations**2 - shared**2)
    drawn = counts * np.exp(-logs - noise - shared * rng.normal(size=(DRAWS, 1))) - 1
    ends = np.quantile(_least_squares(columns * weights, drawn * weights), (0.025, 0.975), axis=0)
    contention, coherency = (
        Interval(value=value, low=min(low, value), high=max(high, value), level=0.95)
        for value, low, high in zip(fitted.tolist(), *ends.tolist(), strict=True)
    )
    return Terms(contention=contention, coherency=coherency)


def _least_squares(columns: Floats, values: Floats) -> Floats:
    """Both coefficients, none below 0, of each row of values: shape (..., 2)."""
    import numpy as np

    (first, second), each = columns, np.asarray(values)
    squares, between = (first @ first, second @ second), first @ second
    along = each @ first, each @ second
    determinant = squares[0] * squares[1] - between**2
    free = np.stack(
        [(along[0] * squares[1] - along[1] * between), (along[1] * squares[0] - along[0] * between)], axis=-1
    )
    free /= determinant
    # Where one would be below 0 it is 0, and the other one explains the values alone.
    alone = np.maximum(0.0, np.stack([along[0] / squares[0], along[1] / squares[1]], axis=-1))
    only = np.where(free[..., [1]] < 0, alone * [1.0, 0.0], alone * [0.0, 1.0])
    found: Floats = np.where((free < 0).any(axis=-1, keepdims=True), only, free)
    return found
