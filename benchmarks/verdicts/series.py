"""Series of real pairs of launches in a JSON-lines file: what is written a pair, and how it is read again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from pytest_ftgate.model import Struct
from pytest_ftgate.stats import rank_tests
from pytest_ftgate.stats.rank_tests import PAIRED, Estimator, Floats

SharedObjects = Literal["wall", "uss", "lock_wait_share"]
FOLDER = Path(".ftgate") / "verdicts"
ESTIMATORS: dict[str, Estimator] = {
    "min": 0.0,
    "q10": 0.1,
    "q25": 0.25,
    "median": 0.5,
    "q75": 0.75,
    "q90": 0.9,
    "paired": PAIRED,
}
KINDS: tuple[SharedObjects, ...] = ("wall", "uss", "lock_wait_share")


class Side(Struct, frozen=True, kw_only=True):
    """One launch of a pair: its measured turns in ns, and the looks at its memory or its lock-wait share."""

    hash_seed: int
    padding: int
    cold_ns: int = 0
    wall_ns: tuple[int, ...] = ()
    uss_bytes: tuple[int, ...] = ()
    share: float | None = None


class Pair(Struct, frozen=True, kw_only=True, tag="pair"):
    """Reference and changed of one cell, measured side by side.

    `effect` is the one asked for (0.05: the whole iteration takes 5 % longer), `doses` what the workload of reference
    and changed was told to do, `started` who was started first (`r` or `c`), `order` who came first in each turn,
    `seconds` what the pair took in all, `load` the machine's load average before it.
    """

    at_s: float
    cell: str
    kind: SharedObjects
    effect: float
    doses: tuple[int, int]
    reference: Side
    changed: Side
    started: str
    order: str
    seconds: float
    load: float


class Calibration(Struct, frozen=True, kw_only=True, tag="calibration"):
    """How a cell's wall time (USS, critical section) follows from the dose: base + slope x dose, in ns (bytes)."""

    at_s: float
    cell: str
    kind: SharedObjects
    dose: int
    base: float
    slope: float

    def changed(self, effect: float) -> int:
        """The dose at which the whole grows by `effect`."""
        if self.kind == "lock_wait_share":
            return round(self.dose * (1 + effect))
        return round(self.dose + effect * (self.base + self.slope * self.dose) / self.slope)

    def injected(self, effect: float) -> float:
        """By how much the dose itself grows."""
        return self.changed(effect) / self.dose - 1


Entry = Pair | Calibration
_DECODER: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def append(path: Path, entry: Entry) -> None:
    """One line more, whole or not at all as far as the file system can."""
    line = msgspec.json.encode(entry) + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def entries(path: Path) -> Iterator[Entry]:
    """All lines in order; a last line that was cut off is left out. Raises OSError, msgspec.DecodeError."""
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield _DECODER.decode(line)


def pairs(path: Path, kind: SharedObjects = "wall") -> list[Pair]:
    """The pairs of one kind in the order in which they were measured."""
    return [entry for entry in entries(path) if isinstance(entry, Pair) and entry.kind == kind]


def log_ratios(found: Sequence[Pair], estimator: Estimator) -> Floats:
    """log(changed / reference) a pair, of one estimator of `stats.turns_ratio`."""
    ratios = [rank_tests.iterations_ratio(pair.changed.wall_ns, pair.reference.wall_ns, estimator) for pair in found]
    return np.log(np.asarray(ratios, dtype=np.float64))
