"""The effect that a comparison can find at its noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from ..model import Test
from ..stats import rank_tests
from .evidence import Evidence, paired, rounds
from .scale import change_text, logs

WIDEST_EFFECT = 0.25
PASS_POWER = 0.8
"""An unchanged cell's chance to pass at a widened effect, and that of the number of launches asked for to settle."""
MOST_LAUNCHES = 200
"""A larger number is not recommended to users."""


def reachable_effect(
    new: Sequence[float],
    reference: Sequence[float],
    effect: float,
    beta: float,
    *,
    test: Test = "ranks",
    widest: float = WIDEST_EFFECT,
) -> float:
    """The effect to judge a pass at: `effect`, or the smallest whole percent that can be reached, up to `widest`.

    An effect can be reached if an unchanged cell passes at `beta` with a chance of about 80 %. The choice is blind: it
    uses the spread of log values around the centre of each side (of `pairs` that of their differences, of `blocks`
    that within blocks), never the difference between the sides. With too few launches for the exact test to pass
    anything, widening does not help and `effect` is returned. Values must be positive.
    """
    own, other = logs(new), logs(reference)
    reach = distance(test, rounds(test, own, other), len(other), beta)
    needed = deviation_of(test, own, other) * reach if reach < math.inf else 0.0
    if needed <= math.log1p(effect):
        return effect
    widened = math.ceil(round(100 * math.expm1(min(needed, 1.0)), 6)) / 100
    return max(effect, min(widened, widest))


def distance(test: Test, n: int, m: int, level: float) -> float:
    """How far from a limit, in standard deviations of a value, the test rejects with a chance of PASS_POWER.

    The test rejects once the order statistic at the fraction that `level` needs is beyond the limit; infinite if there
    is no such fraction. For normal values that statistic lies about z(fraction) standard deviations of a counted
    difference (for `pairs`: of the mean of two) from the shift, and varies like the Hodges-Lehmann estimate, whose
    efficiency is 3 / pi. In simulations, `ranks` agree within 4 % for 5 to 40 launches and beta from 0.0005 to 0.05;
    for 6 to 40 `pairs` and `blocks` the chance is 80 to 90 %.
    """
    fraction = rank_tests.critical_fraction(n, m, level, test)
    if fraction is None:
        return math.inf
    if test == "pairs":
        counted, spread, variance = n * (n + 1) // 2, math.sqrt(0.5), 1 / n
    elif test == "blocks":
        whole = n - n % rank_tests.BLOCK
        counted, spread, variance = whole * rank_tests.BLOCK, math.sqrt(2), 2 / whole
    else:
        counted, spread, variance = n * m, math.sqrt(2), 1 / n + 1 / m
    normal = NormalDist()
    clears = spread * normal.inv_cdf(fraction - 0.5 / counted)
    return max(0.0, clears + normal.inv_cdf(PASS_POWER) * math.sqrt(math.pi / 3 * variance))


def deviation_of(test: Test, new: Sequence[float], reference: Sequence[float]) -> float:
    """The standard deviation of what `test` compares, around its own centre: blind to the shift between the sides.

    Of `pairs` that of the differences; else that within sides, and within their blocks, pooled by degrees of freedom.
    """
    if test == "pairs":
        return rank_tests.gini_deviation(paired(new, reference))
    size = rank_tests.BLOCK if test == "blocks" else max(len(new), len(reference))
    groups = [side[start : start + size] for side in (new, reference) for start in range(0, len(side), size)]
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum((len(group) - 1) * rank_tests.gini_deviation(group) ** 2 for group in groups)
    return math.sqrt(squares / freedom) if freedom else 0.0


def widened_effect(metric: str, evidence: Evidence) -> str:
    """The explanation of a widened effect; empty if it was not widened."""
    if evidence.effect <= evidence.asked:
        return ""
    return f"judged at {change_text(metric, evidence.effect)}: the noise hides {change_text(metric, evidence.asked)}"
