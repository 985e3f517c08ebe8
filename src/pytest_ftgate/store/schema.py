"""What stands in a baseline file."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from ..errors import FtgateError
from ..model import Machine, Reuse, WaitsFor

INSTALLED = re.compile(r".*(?:^|/)(lib(?:64)?/python\d+\.\d+t?/.*)", re.DOTALL)
SCHEMA = 1
STATISTIC = 1
LONGEST_NAME = 180
"""Bytes of one file name; most file systems end at 255, and a suffix and a temporary name must fit."""
Natural = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Rate = Annotated[float, msgspec.Meta(ge=0)]


class BaselineError(FtgateError):
    """A stored baseline that cannot be read, kept or written; the text names the file, the place and the mend."""


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Base of what stands in a file: as strict as the model's, but what is at its default is left out."""


class StoredInterpreter(Stored, omit_defaults=False, frozen=True, kw_only=True):
    """An interpreter without what names a place on one machine."""

    version: str
    implementation: str
    free_threaded: bool
    gil_enabled: bool
    jit_enabled: bool
    pgo: bool
    lto: bool
    shared: bool
    debug: bool
    compiler: str
    build: str


class StoredLaunch(Stored, frozen=True, kw_only=True):
    """The turns of one timing launch, of the candle and of the one-worker cell that took turns with it.

    All arrays have an item a turn. `wall_ns` spans `loops` iterations (of the candle: `candle_loops`, of the
    one-worker cell: `single_loops`). `ops` and all `ops_per_s` are filled for bodies with a duration alone: there a
    turn's value is nanoseconds per operation, and the wall time is merely the window's. `work_ratio` is how much more
    a turn's value does than one of the one-worker cell: the workers, where each runs a body of its own.
    """

    order: int
    hash_seed: int
    started_at: str
    wall_ns: tuple[Natural, ...]
    loops: Count = 1
    start_ns: tuple[Natural, ...] = ()
    join_ns: tuple[Natural, ...] = ()
    cpu_ns: tuple[Natural, ...] = ()
    ops: tuple[Natural, ...] = ()
    ops_per_s: tuple[Rate, ...] = ()
    cold_ns: Natural | None = None
    control_wall_ns: tuple[Natural, ...] = ()
    control_loops: Count = 1
    control_ops_per_s: tuple[Rate, ...] = ()
    single_wall_ns: tuple[Natural, ...] = ()
    single_loops: Count = 1
    single_ops_per_s: tuple[Rate, ...] = ()
    work_ratio: Count = 1


class StoredMemory(Stored, frozen=True, kw_only=True):
    """One memory launch: an item a look; None where there was no such figure, empty where there never was.

    The `barrier_` arrays have an item a barrier: its body calls, and the tree's figures after them.
    """

    order: int
    hash_seed: int
    started_at: str
    rss_bytes: tuple[Natural, ...]
    uss_bytes: tuple[Natural | None, ...] = ()
    pss_bytes: tuple[Natural | None, ...] = ()
    written_bytes: tuple[Natural | None, ...] = ()
    barrier_ops: tuple[Natural, ...] = ()
    barrier_rss_bytes: tuple[Natural, ...] = ()
    barrier_uss_bytes: tuple[Natural | None, ...] = ()
    barrier_pss_bytes: tuple[Natural | None, ...] = ()
    barrier_written_bytes: tuple[Natural | None, ...] = ()


class StoredSite(Stored, frozen=True, kw_only=True):
    """The waits at one creation site of one lock launch, as LockSite has them; `file` names no place on a machine.

    `histogram` holds (bucket, waits) with buckets ascending.
    """

    file: str
    line: Natural
    kind: str
    waits_for: WaitsFor
    name: str = ""
    contended: Natural = 0
    total_ns: Natural = 0
    max_ns: Natural = 0
    histogram: tuple[tuple[Natural, Count], ...] = ()


class StoredLocks(Stored, frozen=True, kw_only=True):
    """What one lock launch saw in its measured turns together; sites that nothing waited at are left out."""

    order: int
    hash_seed: int
    started_at: str
    workers: Count
    work_ns: Count
    ops: Natural = 0
    sites: tuple[StoredSite, ...] = ()


class Recording(Stored, frozen=True, kw_only=True):
    """What one run left: when, of which commit, with which seed, and every launch in its order."""

    recorded_at: str
    commit: str
    seed: int
    launches: tuple[StoredLaunch, ...]
    memory: tuple[StoredMemory, ...] = ()
    locks: tuple[StoredLocks, ...] = ()


class Entry(Stored, frozen=True, kw_only=True):
    """One cell on one machine and one build; the newest recording stands last."""

    interpreter: StoredInterpreter
    executor: str
    workers: Count
    recordings: Annotated[tuple[Recording, ...], msgspec.Meta(min_length=1)]
    reuse: Reuse = "fresh"
    measures: str = ""


class TestBaseline(Stored, omit_defaults=False, frozen=True, kw_only=True):
    """One file: `cells` maps cell label -> `<fingerprint>/<build key>` -> entry."""

    __test__ = False

    schema: int
    statistic: int
    test: str
    machines: dict[str, Machine] = {}
    cells: dict[str, dict[str, Entry]] = {}
