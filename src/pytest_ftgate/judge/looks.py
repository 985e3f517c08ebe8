"""The interim looks of a group-sequential test: which are due, and the part of the pairs that each sees. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Look
from ..stats import alpha_spending
from ..stats.alpha_spending import PAIRS, Schedule


def due(
    there: int, alpha: float, beta: float, at_most: int, *, final: bool, schedule: Schedule = PAIRS
) -> Iterator[Look]:
    """The looks that `there` pairs are enough for; at the end a last one with all levels not spent before.

    One pair of a comparison decides nothing: its noise cannot be told from a change.
    """
    planned = alpha_spending.plan(alpha, beta, at_most=max(at_most, there), schedule=schedule)
    yield from (look for look in planned if look.launches <= there and not (final and look.launches == there))
    if final and there >= schedule.looks[0]:
        yield alpha_spending.last(alpha, beta, there, schedule)
