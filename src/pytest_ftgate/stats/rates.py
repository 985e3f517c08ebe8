"""How often something rare comes: the bounds of a probability that has shown itself a few times, or never."""

from __future__ import annotations

from ..kit.values import Interval


def clopper_pearson(failures: int, trials: int, level: float = 0.95) -> Interval:
    """The probability of a failure in one of independent trials, with its exact interval.

    Source: Clopper & Pearson (1934). Each side misses half of what `level` leaves, also without a failure or without a
    success: an interval that chose its sides by what was seen would miss more. Raises ValueError unless
    0 <= failures <= trials, of at least one.
    """
    from scipy.special import betaincinv  # half a second: only a run that measured pays it

    if not 0 <= failures <= trials or not trials:
        raise ValueError(f"{failures} failures in {trials} trials")
    missed = (1 - level) / 2
    low = float(betaincinv(failures, trials - failures + 1, missed)) if failures else 0.0
    high = float(betaincinv(failures + 1, trials - failures, 1 - missed)) if failures < trials else 1.0
    return Interval(value=failures / trials, low=low, high=high, level=level)
