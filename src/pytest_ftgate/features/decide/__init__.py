"""`ftgate decide`: which executor on which interpreter. `rank.py` compares them, `sentences.py` says it."""

from __future__ import annotations

import math

from ...declare.options import Option, option
from ...hookspec import Subparsers, hookimpl
from ...kit.text import did_you_mean

CRITERIA = ("time", "memory")


def weight(text: str) -> tuple[str, float]:
    """`time=1`: what a decision weighs, and by how much."""
    name, _, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if name not in CRITERIA or not 0 <= value < math.inf:
        raise ValueError(f"weights such as time=1 memory=0.5: {text!r} is none{did_you_mean(name, CRITERIA)}")
    return name, value


WEIGHTS = option(
    "weights",
    (),
    weight,
    "what `ftgate decide` trades for what: time=1 memory=0.5 (default: nothing is traded for the other)",
    many=True,
    of_a_cell=False,
    shard_own=True,
    ini_only=True,
)


@hookimpl
def ftgate_options() -> list[Option]:
    return [WEIGHTS]


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    from . import command

    command.add(subparsers)
