"""What a baseline holds: a file for each run that recorded a test, with a line for each cell."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from ..errors import FtgateError
from ..model import BodyKind, CommitId, Machine, Metric, Name, Reuse, Struct

SCHEMA = 3
STATISTIC = 3
"""The way in which a launch's values are computed: values of another way cannot be compared."""
LONGEST_NAME = 180
"""Bytes of one file name; most file systems end at 255, and a suffix and a temporary name must fit."""
LEAST, MOST = 1e-30, 1e30
"""The bounds of a value that is not 0: neither a ratio of two nor a sum of their squares leaves a float's range."""
POSITIVE: Final = frozenset(
    (Metric.WALL, Metric.TAIL, Metric.USS, Metric.SCALING, "control", "wall/control", "tail/control", "rss", "pss")
)
"""Metrics that are never 0: one that is was not measured."""

Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
Value: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=MOST)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
"""Seconds from one time to another: a clock may be set back between them."""


class BaselineError(FtgateError):
    """A stored baseline that cannot be read, kept or written; the text names the place and suggests a fix."""


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


class Recording(Stored, frozen=True, kw_only=True):
    """What one run measured of one cell: what was measured, and each launch's value of each metric.

    Launches of the same round share an index: `orders` numbers the rounds, `after_s` are the seconds from `started_at`
    to their start (none if unknown), `values` maps a metric's name to a value for each round, None where it has none.
    `took_s` are the seconds that the measurement of the whole test took, 0 where they were not recorded.
    A recording that stands `anew` takes the place of those made before it. The fields up to `seed` stand once in a file
    for all of its cells; times are ISO 8601 in UTC.
    """

    recorded_at: str = ""
    commit: CommitId = ""
    seed: Whole = 0
    build: Name
    executor: Name
    workers: Number
    body: BodyKind = "worker"
    reuse: Reuse = "fresh"
    measures: str = ""
    windows: bool = False
    loops: Number = 1
    anew: bool = False
    started_at: str = ""
    after_s: tuple[Seconds, ...] = ()
    took_s: Seconds = 0.0
    hash_seeds: tuple[Whole, ...] = ()
    orders: Annotated[tuple[Whole, ...], msgspec.Meta(min_length=1)]
    values: Annotated[dict[str, tuple[Value | None, ...]], msgspec.Meta(min_length=1)]

    @property
    def cost_s(self) -> float:
        """Seconds that the test's measurement took, from its rounds where that was not recorded; 0 if unknown."""
        rounds = len(self.after_s)
        return self.took_s or (self.after_s[-1] * rounds / (rounds - 1) if rounds > 1 else 0.0)

    @property
    def measured(self) -> tuple[object, ...]:
        """What was measured; only recordings of the same are compared."""
        return self.executor, self.workers, self.body, self.reuse, self.measures, self.windows

    def by_order(self, metric: str) -> dict[int, float]:
        """Round -> the value of a metric; empty if it is not stored."""
        known = zip(self.orders, self.values.get(metric, ()), strict=False)
        return {order: value for order, value in known if value is not None}


class RecordedRun(Stored, omit_defaults=False, frozen=True, kw_only=True):
    """One file: what one run recorded of one test, by cell label; `interpreters` are by build key."""

    schema: int
    statistic: int
    test: Name
    recorded_at: str
    commit: CommitId
    seed: Whole
    machine: Machine
    interpreters: dict[str, StoredInterpreter]
    cells: dict[str, Recording]


class StoredCell(Struct, frozen=True, kw_only=True):
    """The recordings of one cell on one machine and one build, all of the same; the newest stands last."""

    interpreter: StoredInterpreter
    recordings: tuple[Recording, ...]


class TestBaseline(Struct, frozen=True, kw_only=True):
    """What is stored of one test: `cells` maps cell label -> `<fingerprint>/<build key>` -> stored cell."""

    __test__ = False

    test: str
    machines: dict[str, Machine]
    cells: dict[str, dict[str, StoredCell]]
