"""What a comparison can find at its noise. Pure."""

from __future__ import annotations

import math

from ..stats import alpha_spending, moderated

POWER = 0.8
"""The chance of an unchanged cell to pass, and of a change to be decided, with the number of pairs that is named."""


def least_pairs(
    spread: float,
    effect: float,
    alpha: float,
    beta: float,
    at_most: int,
    correlation: float = 0.0,
    schedule: alpha_spending.Schedule = alpha_spending.PAIRS,
) -> int:
    """The fewest pairs that can decide if no more follow, `at_most` at most.

    Both levels can be reached, and an unchanged cell, whose pairs vary by `spread`, passes at `effect` with the chance
    POWER.
    """
    looks = schedule.looks
    for pairs in sorted(set(range(looks[0], looks[7])).union(looks)):
        look = alpha_spending.last(alpha, beta, pairs, schedule)
        failing, passing = (moderated.reach(pairs, level, POWER, correlation) for level in (look.alpha, look.beta))
        if pairs >= at_most:
            break
        if failing < math.inf and passing * spread <= math.log1p(effect):
            return pairs
    return at_most
