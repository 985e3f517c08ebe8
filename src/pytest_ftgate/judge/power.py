"""What a comparison can find at its noise. Pure."""

from __future__ import annotations

import math

from ..stats import alpha_spending, moderated

POWER = 0.8
"""The chance of an unchanged cell to pass at a widened effect, and of a change to be found where one is named."""


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


def reachable_effect(deviation: float, pairs: int, effect: float, level: float, widest: float) -> float:
    """The effect to judge a pass at: `effect`, or the smallest whole percent that can be reached, up to `widest`.

    An effect can be reached if an unchanged cell passes at `level` with the chance POWER. The choice is blind: it uses
    the deviation of a pair (of logs) alone. With too few pairs to pass anything, `effect` is returned.
    """
    needed = moderated.reach(pairs, level, POWER) * deviation
    if needed == math.inf or needed <= math.log1p(effect):
        return effect
    widened = math.ceil(round(100 * math.expm1(min(needed, 1.0)), 6)) / 100
    return max(effect, min(widened, widest))
