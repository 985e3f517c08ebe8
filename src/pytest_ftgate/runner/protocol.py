"""The protocol between controller and runner: a job file, then messages, then a result file.

The messages go through a pair of inherited pipes, never through the standard streams, which belong to the workload.
All three are marshalled, because json would load a megabyte of modules into the measured process.
"""

from __future__ import annotations

from marshal import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROTOCOL = 5
LENGTH_BYTES = 4
MARSHAL = 2
"""The version of marshal that every interpreter reads."""
LONGEST_NAME = 200
"""Characters of the name of a counter, timer or peak: each launch and each report repeats it."""

# Kinds of iteration. Only `cold`, `checked cold`, `measured` and `hold` are kept as figures. Only `check` compares
# results, so that neither a comparison nor the transfer of results is timed, and of long bodies `checked cold`, whose
# join is left out for that reason. At the end of a `barrier` iteration all workers wait until the
# controller has sampled memory; at that of a `left` one after a garbage collection, which shows what the body leaves
# behind. Garbage is collected before all but `hold` and `barrier`: it would change the memory that they show.
COLD = "cold"
CHECKED_COLD = "checked cold"
WARMUP = "warmup"
MEASURED = "measured"
CHECK = "check"
HOLD = "hold"
BARRIER = "barrier"
LEFT = "left"


def framed(message: dict[str, Any]) -> bytes:
    """A message of plain values as it goes through a pipe, as multiprocessing.Connection has it: its length, itself."""
    content = dumps(message, MARSHAL)
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


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


SKIPS = ("Skipped", "SkipTest")
"""Errors of pytest, when a cell runs as a functional test, and of unittest."""


def explain(error: BaseException) -> tuple[str, str]:
    """A one-line reason and the workload's own traceback, the runner's frames left out; both of a bounded length."""
    from .explain import DETAIL, REASON, capped, detail, headline

    try:
        if isinstance(error, Failure):
            reason, text = error.reason, error.detail
        elif isinstance(error, Unsupported) or type(error).__name__ in SKIPS:
            reason, text = "unsupported", str(error)
        else:
            reason, text = headline(error), detail(error)
        return capped(reason, REASON), capped(text, DETAIL)
    except BaseException:  # of the exception's own methods
        from traceback import format_tb

        return f"raised {type(error).__name__}", "".join(format_tb(error.__traceback__))


def raise_first_error(reports: list[dict[str, Any]], of: int = 0) -> None:
    """Raise the first error among the reports, of `of` workers, as Failure or Unsupported, if there is one."""
    for report in reports:
        if report.get("error"):
            reason, detail = report["error"]
            if reason == "unsupported":
                raise Unsupported(detail)
            role = report.get("role", "")
            named = role or max(of, len(reports)) > 1
            raise Failure(f"{role or 'worker'} {report['index']}: {reason}" if named else reason, detail)
