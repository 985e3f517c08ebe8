"""Error rates with the bounds that a count of trials allows."""

from __future__ import annotations

from scipy.stats import beta


def clopper_pearson(events: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The exact two-sided interval of a rate after `events` in `trials` (Clopper & Pearson 1934); (0, 1) for none."""
    if not trials:
        return 0.0, 1.0
    error = (1 - level) / 2
    low = float(beta.ppf(error, events, trials - events + 1)) if events else 0.0
    high = float(beta.ppf(1 - error, events + 1, trials - events)) if events < trials else 1.0
    return low, high


def at_most(events: int, trials: int, level: float = 0.95) -> float:
    """The exact one-sided upper bound of a rate: a larger rate would give more events with probability `level`."""
    return float(beta.ppf(level, events + 1, trials - events)) if events < trials else 1.0


def shown(events: int, trials: int) -> str:
    """`12.5 % [3.5, 29.0] of 24`: the rate with its two-sided 95 % interval."""
    if not trials:
        return "-"
    low, high = (100 * bound for bound in clopper_pearson(events, trials))
    return f"{100 * events / trials:5.1f} % [{low:.1f}, {high:.1f}] of {trials}"
