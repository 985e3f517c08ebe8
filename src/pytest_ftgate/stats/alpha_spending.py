"""When a comparison may be decided, and with what error: looks and the levels they spend. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ..model import Look, Test
from . import rank_tests

BETA = 0.04
"""The chance to pass one hypothesis that is as bad as the effect; unlike alpha it is not split over a run's."""
LOOKS = (6, 8, 10, 13, 16, 20, 26, 32, 40, 52, 64, 80)
ALPHA_WEIGHTS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.10, 0.10, 0.10, 0.10, 0.12, 0.13, 0.15)
BETA_WEIGHTS = (0.40, 0.15, 0.10, 0.05, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.025)
"""What each look may spend of alpha and of beta, simulated with heavy tails at 2 to 4 % between pairs.

Beta goes early: six pairs that all lie below the effect pass an unchanged cell, and what is unchanged is most of what
is measured. Alpha goes late: with 60 hypotheses no look before 16 can reach it, a change of +10 % is found there, and
one of +5 % needs 30 to 60 pairs, which only what has changed by about that much is ever asked for.
"""


def spend(alpha: float, beta: float, test: Test, *, at_most: int, reference: int = 0) -> tuple[Look, ...]:
    """The looks at up to `at_most` new launches (pairs, rounds), with the levels that each may spend.

    `alpha` and `beta` are those of one hypothesis; the levels of all looks sum up to them at most, which by
    Bonferroni's inequality keeps both however the looks depend on each other. `reference` is the number of stored
    launches, which `ranks` needs. A level is one that the exact test can reach at that look, or 0; what that leaves
    of a look's part goes to the next. The last look, at `at_most` (of `blocks` the last whole one), may spend all that
    remains. Raises ValueError for an `at_most` below one.
    """
    if at_most < 1:
        raise ValueError(f"no look at {at_most} launches")
    counts = _counts(test, at_most)
    levels = (
        _levels(total, _shares(weights, counts, test), counts, test, reference)
        for total, weights in ((alpha, ALPHA_WEIGHTS), (beta, BETA_WEIGHTS))
    )
    looks = (Look(launches=count, alpha=a, beta=b) for count, a, b in zip(counts, *levels, strict=True))
    return tuple(look for look in looks if look.alpha or look.beta or look.launches == counts[-1])


def _counts(test: Test, at_most: int) -> list[int]:
    """Ascending numbers of launches to look at; of blocks only whole ones."""
    whole = {_whole(count, test) for count in (*LOOKS, at_most) if count <= at_most}
    return sorted(whole - {0}) or [at_most]


def _whole(count: int, test: Test) -> int:
    return count - count % rank_tests.BLOCK if test == "blocks" else count


def _shares(weights: Sequence[float], counts: Sequence[int], test: Test) -> list[float]:
    """The part of a level that may be spent up to each count and before; the last has all of it."""
    spent = dict(zip((_whole(count, test) for count in LOOKS), accumulate(weights), strict=True))
    return [*(spent[count] for count in counts[:-1]), 1.0]


def _levels(total: float, shares: Sequence[float], counts: Sequence[int], test: Test, reference: int) -> list[float]:
    """What each look spends of `total`: the largest p-value that its test can give within what may be spent by then."""
    levels: list[float] = []
    for share, count in zip(shares, counts, strict=True):
        levels.append(rank_tests.attainable(test, max(0.0, share * total - sum(levels)), count, reference))
    return levels
