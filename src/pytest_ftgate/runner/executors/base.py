"""What all executors share: the result of one iteration, CPU time, children."""

from __future__ import annotations

import gc
import os
import sys

from ..protocol import Failure, Unsupported
from ..worker import PARK, Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..loading import Setup

GRACE_S = 1.0
"""After an error other roles are told to stop; so long is waited for `@test.stop`, and for those who return."""


class Observer:
    """Told when all workers are at work, and in a turn with PARK when all are at the barrier; this one does nothing."""

    def released(self, executor: Any) -> None:
        """All workers have been let go."""

    def at_barrier(self, executor: Any) -> None:
        """Every worker has done its part and collected its garbage, and waits until this returns."""


class Outcome:
    """One turn: the phases in ns, CPU time of this process and its workers in ns, and what each worker reported.

    `led` are the reports of the workers whose calls are the operations: of all, or of the leading role.
    """

    __slots__ = ("cpu_ns", "join_ns", "led", "reports", "start_ns", "work_ns")

    def __init__(
        self,
        start_ns: int,
        work_ns: int,
        join_ns: int,
        cpu_ns: int,
        reports: list[dict[str, Any]],
        led: list[dict[str, Any]] | None = None,
    ) -> None:
        self.start_ns = start_ns
        self.work_ns = work_ns
        self.join_ns = join_ns
        self.cpu_ns = cpu_ns
        self.reports = reports
        self.led = reports if led is None else led


def raise_first_error(reports: list[dict[str, Any]]) -> None:
    """Raise what a worker reported, if any did."""
    for report in reports:
        if report["error"]:
            reason, detail = report["error"]
            if reason == "unsupported":
                raise Unsupported(detail)
            role = report.get("role", "")
            named = role or len(reports) > 1
            raise Failure(f"{role or 'worker'} {report['index']}: {reason}" if named else reason, detail)


def leaders(setup: Setup) -> int:
    """How many workers lead: those of the first role, or all. They have the lowest numbers."""
    return int(setup["roles"][0][1] if setup["roles"] else setup["workers"])


async def end_well(awaited: list[Any], running: list[Any]) -> None:
    """Wait for some tasks; raises what any of `running` has reported as soon as it has."""
    import asyncio

    going = set(running)
    while not all(task.done() for task in awaited):
        ended, going = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
        raise_first_error([task.result() for task in ended])


def park_here(order: Order, observer: Observer, executor: Any) -> None:
    """Where the main thread works itself, or for a pool: nothing is at work once the body has returned."""
    if order.flags & PARK:
        gc.collect()
        observer.at_barrier(executor)


def _children(without: Iterable[int | None]) -> list[Any]:
    """Multiprocessing's living children but for these pids."""
    if "multiprocessing" not in sys.modules:
        return []
    from multiprocessing import active_children

    left_out = set(without)
    return [child for child in active_children() if child.pid not in left_out]


def roles(workers: Iterable[int | None], main_works: bool = False, own_gils: bool = False) -> dict[str, Any]:
    """What the controller cannot tell from outside, in the words of its ProcessMap: workers' pids, the Managers' with
    their names, whether the main thread works itself or merely waits, and whether workers have GILs of their own."""
    pids = list(workers)
    servers = {str(child.pid): child.name for child in _children(pids) if "Manager" in child.name}
    return {"workers": pids, "servers": servers, "main_works": main_works, "own_gils": own_gils}


def children_cpu_ns(without: Iterable[int | None] = ()) -> int:
    """CPU time of multiprocessing's living children in ns, from the scheduler's own figures; 0 where it has none."""
    return sum(_cpu_ns(child.pid) for child in _children(without))


def _cpu_ns(pid: int | None) -> int:
    spent = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            spent += int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[0])
    except (OSError, ValueError, IndexError):
        pass
    return spent


def _read(path: str) -> bytes:
    """A short file without the buffers of a file object: they would be seen as the workload's memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 256)
    finally:
        os.close(descriptor)
