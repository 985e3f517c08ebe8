"""The protocol between controller and runner: a job file in, a result file out, JSON lines for each iteration.

The control channel is a pair of inherited pipes, never the standard streams, which belong to the workload.
"""

from __future__ import annotations

PROTOCOL = 1

# Kinds of iteration. `cold`, `warmup`, `check` and `barrier` are not measured iterations; only `cold` and
# `check` compare results, so that this is never timed. At the end of a `barrier` iteration all workers wait, after a
# garbage collection, until the controller has sampled them.
COLD = "cold"
WARMUP = "warmup"
MEASURED = "measured"
CHECK = "check"
HOLD = "hold"
BARRIER = "barrier"


class ProtocolError(Exception):
    """The two sides do not speak the same version, or one broke off."""


class Failure(Exception):
    """The workload failed: a one-line reason and what it said itself."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type[Failure], tuple[str, str]]:
        return (Failure, (self.reason, self.detail))


class Unsupported(Exception):
    """This executor cannot do what the workload asks; the cell is unsupported, not failed."""
