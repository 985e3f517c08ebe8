"""The protocol between controller and runner: a job file, then one JSON line per order, then a result file.

The lines go through a pair of inherited pipes, never through the standard streams, which belong to the workload.
"""

from __future__ import annotations

PROTOCOL = 1

# Kinds of iteration. Only `cold`, `measured` and `hold` are kept as figures. Only `check` compares results, so that
# neither a comparison nor the transfer of results is timed. At the end of a `barrier` iteration all workers wait, after
# a garbage collection, until the controller has sampled memory.
COLD = "cold"
WARMUP = "warmup"
MEASURED = "measured"
CHECK = "check"
HOLD = "hold"
BARRIER = "barrier"


class ProtocolError(Exception):
    """Controller and runner have different protocol versions, or one of them broke off."""


class Failure(Exception):
    """The workload failed: a one-line reason, and its own output or traceback as `detail`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type[Failure], tuple[str, str]]:
        return (Failure, (self.reason, self.detail))


class Unsupported(Exception):
    """This executor cannot do what the workload asks: the cell is unsupported; it has not failed."""
