"""A time that is too short for a decision, as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ..model import Decision, Row, Shortfall
from . import units

OPEN = (Decision.INCONCLUSIVE, Decision.NOT_MEASURED, Decision.SUSPECT)


def sentence(shortfall: Shortfall) -> str:
    """`30 s allow 2 rounds of these 8 cells, about 7 are needed to decide: use --ftgate-test-time=3m or fewer cells`"""
    rounds, cells = shortfall.rounds, shortfall.cells
    allowed = f"allow {rounds} round{'s' if rounds > 1 else ''}" if rounds else "do not allow a round"
    of = f"these {cells} cells" if cells > 1 else "this cell"
    minutes, rest = divmod(round(shortfall.wanted_s), 60)
    wanted = f"{shortfall.wanted_s:.0f}s" if rest else f"{minutes}m"
    fewer = " or fewer cells" if cells > 1 else ""
    given = units.span(shortfall.given_s)
    advice = f"use {shortfall.option}={wanted}{fewer}"
    needed = f"{shortfall.needed} {'is' if shortfall.needed == 1 else 'are'}"
    return f"{given} {allowed} of {of}, about {needed} needed to decide: {advice}"


def remarks(rows: Iterable[Row]) -> list[str]:
    """What the cells that were left open say about their time, each sentence once."""
    short = (row.shortfall for row in rows if row.verdict.decision in OPEN and row.shortfall)
    return list(dict.fromkeys(map(sentence, short)))
