"""The words between controller and runner: a job file in, a result file out, one JSON line a turn between.

The control channel is a pair of inherited pipes, never the standard streams, which belong to the workload.
"""

from __future__ import annotations

PROTOCOL = 1

# Kinds of turn. `cold`, `warmup`, `check` and `barrier` are kept out of the measured turns; only `cold` and `check`
# look at results, so that no comparison of results sits in a timing. At the end of a `barrier` turn everything is
# parked, after a collection, until the controller has looked.
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
