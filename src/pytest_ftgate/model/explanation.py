"""What changed beneath a regression: waits, cores, phases, and the functions that take the added time."""

from __future__ import annotations

from .base import Struct


class Moved(Struct, frozen=True, kw_only=True):
    """A quantity on both sides: `before` of the reference, `after` of the change."""

    name: str
    before: float
    after: float


class FunctionTime(Struct, frozen=True, kw_only=True):
    """A function on both sides of a pair of profile launches; `line` is its first one, after the change.

    `before` and `after` are the shares of the samples in which it was on a worker's stack; `added_ns` is the time that
    it takes more in one iteration.
    """

    file: str
    line: int
    name: str
    before: float
    after: float
    added_ns: float


class Explanation(Struct, frozen=True, kw_only=True):
    """What changed between the reference and a regressed cell.

    `sites` are lock sites by `file:line kind`, and `shares` the states of the workers' threads: fractions of the
    workers' time. `cores` are cores kept busy. `phases` are start, work and join in ns. `functions` are those that take
    the added time, most first, of `added_ns` of work in all; `refused` says why there are none, or that they are not
    known. `like` is the label of the cell of the same test that `functions` and `added_ns` are of, where this one's own
    are not known. Each tuple has the largest movement first, and only what moved beyond the noise (see
    judge/explain.py).
    """

    sites: tuple[Moved, ...] = ()
    shares: tuple[Moved, ...] = ()
    cores: Moved | None = None
    phases: tuple[Moved, ...] = ()
    functions: tuple[FunctionTime, ...] = ()
    added_ns: float = 0.0
    refused: str = ""
    like: str = ""
