"""The clock of a launch and its real resolution, and the CPU time of ended children."""

from __future__ import annotations

import os
import sys
from time import perf_counter_ns as now_ns

from .protocol import Failure

__all__ = ["check_clocks", "ended_cpu_ns", "now_ns", "resolution_ns"]

_CLOCK = now_ns
_OURS = __name__.rpartition(".")[0]


def check_clocks() -> None:
    """Raise Failure if something, such as a library that freezes time, has replaced the clock of a module of ours."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_OURS) and vars(module).get("now_ns", _CLOCK) is not _CLOCK:
            raise Failure(
                "its clock disagrees with the controller's",
                f"The workload, or a library that it uses, has replaced {name}.now_ns, by which it is measured.",
            )


def resolution_ns() -> int:
    """The smallest difference between two unequal readings, in ns."""
    best = 1_000_000_000
    for _ in range(50):
        first = now_ns()
        second = now_ns()
        while second == first:
            second = now_ns()
        best = min(best, second - first)
    return best


def ended_cpu_ns() -> int:
    """CPU time so far of the children that this process has waited for, and of those that they have, in ns."""
    # Each condition spares an ordinary launch the import: asyncio imports subprocess, used or not.
    started = "resource" in sys.modules or ("subprocess" in sys.modules and "asyncio" not in sys.modules)
    if sys.platform == "win32" or not (started or any(os.times()[2:4])):
        return 0
    from resource import RUSAGE_CHILDREN, getrusage

    used = getrusage(RUSAGE_CHILDREN)
    return round((used.ru_utime + used.ru_stime) * 1e9)
