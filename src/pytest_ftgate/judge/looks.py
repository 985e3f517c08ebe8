"""The interim looks of a group-sequential test: after how many launches a decision may be made. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model import Comparison, Look
from .evidence import rounds, seen


def due_now(looks: Sequence[Look], there: int, alpha: float, beta: float, final: bool) -> Iterator[Look]:
    """The looks that `there` launches are enough for; at the end a last one with all levels not spent before."""
    yield from (look for look in looks if look.launches <= there)
    if final or not looks:
        # A look at this very number is merged into the last one: that no launch follows does not depend on the values.
        yield looks_left([look for look in looks if look.launches < there], there, alpha, beta)


def looks_left(looks: Sequence[Look], there: int, alpha: float, beta: float) -> Look:
    """A look at all launches, with the levels that earlier looks have not spent."""
    spent = [look for look in looks if look.launches <= there]
    return Look(
        launches=there,
        alpha=max(0.0, alpha - sum(look.alpha for look in spent)),
        beta=max(0.0, beta - sum(look.beta for look in spent)),
    )


def parts(costs: Comparison) -> Iterator[Comparison]:
    """The part of the comparison at each look that is due, with its levels; only the last look's is `final`."""
    there = rounds(costs.test, costs.new, costs.reference)
    due = list(due_now(costs.looks, there, costs.alpha, costs.beta, costs.final))
    ends = costs.final or not costs.looks
    for position, look in enumerate(due):
        yield seen(costs, look, final=ends and position == len(due) - 1)


def everything(costs: Comparison) -> Comparison:
    """All launches, between two looks: with the levels not spent yet, of which none may be spent here."""
    there = rounds(costs.test, costs.new, costs.reference)
    return seen(costs, looks_left(costs.looks, there, costs.alpha, costs.beta), final=False)
