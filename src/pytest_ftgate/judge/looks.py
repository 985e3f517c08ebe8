"""The interim looks of a group-sequential test: which are due, and the part of the pairs that each sees. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Look
from ..stats import alpha_spending


def due(there: int, alpha: float, beta: float, at_most: int, *, final: bool) -> Iterator[Look]:
    """The looks that `there` pairs are enough for; at the end a last one with all levels not spent before.

    One pair decides nothing: its noise cannot be told from a change.
    """
    planned = alpha_spending.plan(alpha, beta, at_most=max(at_most, there))
    yield from (look for look in planned if look.launches <= there and not (final and look.launches == there))
    if final and there >= alpha_spending.LOOKS[0]:
        yield alpha_spending.last(alpha, beta, there)
