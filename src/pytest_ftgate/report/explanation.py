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
UNKNOWN = "not known"
"""What is not known has no sentence; the JSON report says why."""


def sentences(explanation: Explanation | None, *, unicode: bool = True) -> tuple[str, ...]:
    """What changed, the functions that take the added time first; empty without an explanation."""
    return () if explanation is None else tuple(plain(text) for text in _sentences(explanation, unicode))


def _sentences(explanation: Explanation, unicode: bool) -> Iterator[str]:
    for function in explanation.functions:
        yield _function(function, explanation, unicode)
    if explanation.refused and not explanation.refused.startswith(UNKNOWN):
        yield f"functions that take the added time: {explanation.refused}"
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


def _function(function: FunctionTime, explanation: Explanation, unicode: bool) -> str:
    """`38.0 ms of the 41.2 ms added are spent in iterencode, json/encoder.py:204`.

    One that takes more than was added, because something else takes less, takes all of it.
    """
    added, of = (units.time(ns, unicode=unicode) for ns in (function.added_ns, explanation.added_ns))
    part = "all" if function.added_ns > explanation.added_ns else added
    place = f"{function.file}:{function.line}" if function.line else function.file
    there = f"as in {explanation.like}: " if explanation.like else ""
    return f"{there}{part} of the {of} added are spent in {function.name}, {place}"


def _shares(moved: Moved) -> str:
    return f"{units.whole_share(moved.before)} -> {units.whole_share(moved.after)}"
