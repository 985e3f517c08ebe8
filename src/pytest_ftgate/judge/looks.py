"""At how many launches the judge looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model import Comparison, Look
from .evidence import rounds, seen


def due_now(looks: Sequence[Look], there: int, alpha: float, beta: float, final: bool) -> Iterator[Look]:
    """The looks that `there` launches are enough for; at the end a last one, at all that was not spent before."""
    yield from (look for look in looks if look.launches <= there)
    if final or not looks:
        # A look at this very number is part of the last one: that no more will come does not depend on the values.
        yield looks_left([look for look in looks if look.launches < there], there, alpha, beta)


def looks_left(looks: Sequence[Look], there: int, alpha: float, beta: float) -> Look:
    """A look at all there is with the levels that those before have left."""
    spent = [look for look in looks if look.launches <= there]
    return Look(
        launches=there,
        alpha=max(0.0, alpha - sum(look.alpha for look in spent)),
        beta=max(0.0, beta - sum(look.beta for look in spent)),
    )


def parts(costs: Comparison) -> Iterator[Comparison]:
    """What each look that is due sees, in order, with the levels of the look; the last look's alone is `final`."""
    there = rounds(costs.test, costs.new, costs.reference)
    due = list(due_now(costs.looks, there, costs.alpha, costs.beta, costs.final))
    ends = costs.final or not costs.looks
    for position, look in enumerate(due):
        yield seen(costs, look, final=ends and position == len(due) - 1)


def everything(costs: Comparison) -> Comparison:
    """All there is between two looks: with the levels not spent yet, though none may be spent here."""
    there = rounds(costs.test, costs.new, costs.reference)
    return seen(costs, looks_left(costs.looks, there, costs.alpha, costs.beta), final=False)
