"""Series of real pairs of launches in a JSON-lines file: the format, writing and reading."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytest_ftgate.kit.values import Struct
from pytest_ftgate.stats import rank_tests

Floats: TypeAlias = NDArray[np.float64]
Kind = Literal["wall", "uss", "lock_wait"]
Estimator: TypeAlias = float | None
"""How a launch is reduced to one value: a quantile of the iterations of both sides, or PAIRED."""
PAIRED: Final = None
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
KINDS: tuple[Kind, ...] = ("wall", "uss", "lock_wait")


class Side(Struct, frozen=True, kw_only=True):
    """One launch of a pair: its measured iterations in ns, and its memory samples or its lock-wait share."""

    hash_seed: int
    padding: int
    cold_ns: int = 0
    wall_ns: tuple[int, ...] = ()
    uss_bytes: tuple[int, ...] = ()
    share: float | None = None


class Pair(Struct, frozen=True, kw_only=True, tag="pair"):
    """Reference and changed of one cell, interleaved.

    `effect` is the injected effect (0.05: the whole iteration takes 5 % longer), `doses` the parameters of the workload
    of reference and changed, `started` which was started first (`r` or `c`), `order` which came first in each step,
    `seconds` the time of the pair, `load` the machine's load average before it.
    """

    at_s: float
    cell: str
    kind: Kind
    effect: float
    doses: tuple[int, int]
    reference: Side
    changed: Side
    started: str
    order: str
    seconds: float
    load: float


class Calibration(Struct, frozen=True, kw_only=True, tag="calibration"):
    """How a cell's wall time (USS, critical section) depends on the dose: base + slope x dose, in ns (bytes)."""

    at_s: float
    cell: str
    kind: Kind
    dose: int
    base: float
    slope: float

    def changed(self, effect: float) -> int:
        """The dose at which the whole grows by `effect`."""
        if self.kind == "lock_wait":
            return round(self.dose * (1 + effect))
        return round(self.dose + effect * (self.base + self.slope * self.dose) / self.slope)

    def injected(self, effect: float) -> float:
        """The growth of the dose itself."""
        return self.changed(effect) / self.dose - 1


Line = Pair | Calibration
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def append(path: Path, line: Line) -> None:
    """Append one line, in one write."""
    content = msgspec.json.encode(line) + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def lines(path: Path) -> Iterator[Line]:
    """All lines in order; an incomplete last line is left out. Raises OSError, msgspec.DecodeError."""
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield _DECODER.decode(line)


def pairs(path: Path, kind: Kind = "wall") -> list[Pair]:
    """The pairs of one kind in the order in which they were measured."""
    return [line for line in lines(path) if isinstance(line, Pair) and line.kind == kind]


def iterations_ratio(own: Sequence[float], other: Sequence[float], estimator: Estimator) -> float:
    """How much longer one side of a launch takes than the interleaved other side, by one estimator."""
    if estimator is PAIRED:
        return rank_tests.iterations_ratio(own, other)
    return rank_tests.quantile(own, estimator) / rank_tests.quantile(other, estimator)


def log_ratios(found: Sequence[Pair], estimator: Estimator) -> Floats:
    """log(changed / reference) of each pair."""
    ratios = [iterations_ratio(pair.changed.wall_ns, pair.reference.wall_ns, estimator) for pair in found]
    return np.log(np.asarray(ratios, dtype=np.float64))
