"""Interim analyses: after how many launches a comparison may be decided, and with what error. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ..model import Look, Test
from . import rank_tests

BETA = 0.04
"""The probability of passing a metric that is worse by the effect; unlike alpha it is not split over a run."""
LOOKS = (6, 8, 10, 13, 16, 20, 26, 32, 40, 52, 64, 80)
ALPHA_WEIGHTS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.10, 0.10, 0.10, 0.10, 0.12, 0.13, 0.15)
BETA_WEIGHTS = (0.40, 0.15, 0.10, 0.05, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.025)
"""What each interim analysis may spend of alpha and of beta, chosen by simulation with heavy-tailed noise of 2 to 4 %.

Beta is spent early: six pairs that all lie below the effect pass an unchanged cell, and most cells are unchanged. Alpha
is spent late: with 60 hypotheses no analysis before 16 pairs can reach it. A change of +10 % is found there; one of
+5 % needs 30 to 60 pairs, and only cells that have changed by about that much are measured so often.
"""


def spend(alpha: float, beta: float, test: Test, *, at_most: int, reference: int = 0) -> tuple[Look, ...]:
    """The interim analyses of up to `at_most` new launches (pairs, rounds), with the levels that each may spend.

    `alpha` and `beta` are those of one hypothesis. The levels of all analyses sum up to at most these, which by
    Bonferroni's inequality keeps both errors, however the analyses depend on each other. `reference` is the number of
    stored launches, which `ranks` needs. A level is a p-value that the exact test can give at that analysis, or 0; the
    rest of an analysis's part goes to the next one. The last one, at `at_most` (for `blocks` at the last whole block),
    may spend all that remains. Raises ValueError for an `at_most` below one.
    """
    if at_most < 1:
        raise ValueError(f"no analysis of {at_most} launches")
    counts = _counts(test, at_most)
    levels = (
        _levels(total, _shares(weights, counts, test), counts, test, reference)
        for total, weights in ((alpha, ALPHA_WEIGHTS), (beta, BETA_WEIGHTS))
    )
    looks = (Look(launches=count, alpha=a, beta=b) for count, a, b in zip(counts, *levels, strict=True))
    return tuple(look for look in looks if look.alpha or look.beta or look.launches == counts[-1])


def _counts(test: Test, at_most: int) -> list[int]:
    """The numbers of launches at which to analyse, ascending; for blocks only whole ones."""
    whole = {_whole(count, test) for count in (*LOOKS, at_most) if count <= at_most}
    return sorted(whole - {0}) or [at_most]


def _whole(count: int, test: Test) -> int:
    return count - count % rank_tests.BLOCK if test == "blocks" else count


def _shares(weights: Sequence[float], counts: Sequence[int], test: Test) -> list[float]:
    """The share of a level that may be spent up to and including each count; 1 at the last."""
    spent = dict(zip((_whole(count, test) for count in LOOKS), accumulate(weights), strict=True))
    return [*(spent[count] for count in counts[:-1]), 1.0]


def _levels(total: float, shares: Sequence[float], counts: Sequence[int], test: Test, reference: int) -> list[float]:
    """What each analysis spends of `total`: the largest p-value that its test can give within what may be spent."""
    levels: list[float] = []
    for share, count in zip(shares, counts, strict=True):
        levels.append(rank_tests.attainable(test, max(0.0, share * total - sum(levels)), count, reference))
    return levels
