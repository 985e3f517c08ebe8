"""What changed beneath a regression, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..model import Explanation, FunctionTime, Moved
from ..text import listed, plain
from . import units

STATES = {
    "running": "running",
    "runnable": "waiting for a core",
    "gil": "waiting for the GIL",
    "lock": "waiting for locks",
    "queue": "waiting in queues",
    "process": "waiting for another process",
    "unattributed": "waiting inside the interpreter or for unknown locks",
    "asleep": "asleep (I/O, sleep)",
}
"""The states of the workers' threads, by their name in WaitFigures."""


def sentences(explanation: Explanation | None, *, unicode: bool = True) -> tuple[str, ...]:
    """What changed, the functions that take the added time first; empty without an explanation."""
    return () if explanation is None else tuple(plain(text) for text in _sentences(explanation, unicode))


def _sentences(explanation: Explanation, unicode: bool) -> Iterator[str]:
    for function in explanation.functions:
        yield _function(function, explanation.added_ns, unicode)
    if explanation.refused:
        yield f"functions that take the added time: not known ({explanation.refused})"
    for site in explanation.sites:
        yield f"waits at {site.name}: {_shares(site)} of the workers' time"
    if explanation.shares:
        states = [f"{STATES.get(each.name, each.name)} {_shares(each)}" for each in explanation.shares]
        yield f"of the workers' time {listed(states, 'and')}"
    if explanation.cores is not None:
        yield f"cores kept busy: {units.cores(explanation.cores.before)} -> {units.cores(explanation.cores.after)}"
    for phase in explanation.phases:
        before, after = (units.time(ns, unicode=unicode) for ns in (phase.before, phase.after))
        yield f"{phase.name}: {before} -> {after}"


def _function(function: FunctionTime, of_ns: float, unicode: bool) -> str:
    """`+38.0 ms of 41.2 in json/encoder.py:204 iterencode (12 % -> 51 % of samples)`."""
    added, of = (units.time(ns, unicode=unicode) for ns in (function.added_ns, of_ns))
    of = of.removesuffix(added[added.index(" ") :])  # the unit once
    place = f"{function.file}:{function.line}" if function.line else function.file
    shares = f"{units.whole_share(function.before)} -> {units.whole_share(function.after)} of samples"
    return f"+{added} of {of} in {place} {function.name} ({shares})"


def _shares(moved: Moved) -> str:
    return f"{units.whole_share(moved.before)} -> {units.whole_share(moved.after)}"
