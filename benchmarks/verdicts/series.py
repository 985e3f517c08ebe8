"""Series of real pairs of launches in a JSON-lines file: the format, writing and reading."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytest_ftgate.kit.values import Struct

Floats: TypeAlias = NDArray[np.float64]
FOLDER = Path(".ftgate") / "verdicts"


class Side(Struct, frozen=True, kw_only=True):
    """One launch of a pair: its iterations in ns."""

    hash_seed: int
    padding: int
    cold_ns: int = 0
    wall_ns: tuple[int, ...] = ()


class Pair(Struct, frozen=True, kw_only=True, tag="pair"):
    """Reference and changed of one cell, interleaved.

    `effect` is the injected effect (0.05: the whole iteration takes 5 % longer), `doses` the parameters of the workload
    of reference and changed, `started` which was started first (`r` or `c`), `order` which came first in each step,
    `seconds` the time of the pair, `load` the machine's load average before it.
    """

    at_s: float
    cell: str
    effect: float
    doses: tuple[int, int]
    reference: Side
    changed: Side
    started: str
    order: str
    seconds: float
    load: float


class Calibration(Struct, frozen=True, kw_only=True, tag="calibration"):
    """How a cell's wall time depends on the dose: base + slope x dose, in ns."""

    at_s: float
    cell: str
    dose: int
    base: float
    slope: float

    def changed(self, effect: float) -> int:
        """The dose at which the whole grows by `effect`."""
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


def pairs(path: Path) -> list[Pair]:
    """The pairs in the order in which they were measured."""
    return [line for line in lines(path) if isinstance(line, Pair)]
