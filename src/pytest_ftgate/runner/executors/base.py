"""What all executors share: the result of one iteration, CPU time, children."""

from __future__ import annotations

import gc
import os
import sys

from ..protocol import Failure, Unsupported
from ..worker import AT_BARRIER, Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..loading import Setup

GRACE_S = 1.0
"""After an error in one role: how long to wait for `@test.stop`, and then for the workers that still return."""


class Observer:
    """Called when all workers are at work, and at a barrier; this one does nothing."""

    def released(self, executor: Any) -> None:
        """All workers have been released."""

    def at_barrier(self, executor: Any) -> None:
        """Every worker has done its part and collected its garbage, and waits until this returns."""


class IterationResult:
    """One iteration: its phases in ns, CPU time of this process and its workers in ns, and the workers' reports.

    `led` are the reports of the workers whose calls are counted as operations: of all, or of the leading role.
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


def leaders(setup: Setup) -> int:
    """The number of leading workers: those of the first role, or all. They have the lowest numbers."""
    return int(setup["roles"][0][1] if setup["roles"] else setup["workers"])


async def end_well(awaited: list[Any], running: list[Any]) -> None:
    """Wait for the tasks `awaited`; raise the error of any task in `running` as soon as it reports one."""
    import asyncio

    going = set(running)
    while not all(task.done() for task in awaited):
        ended, going = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
        raise_first_error([task.result() for task in ended])


def observe_barrier(order: Order, observer: Observer, executor: Any) -> None:
    """The barrier of a body that runs in the main thread, or of a pool: no worker runs once the body has returned."""
    if order.flags & AT_BARRIER:
        gc.collect()
        observer.at_barrier(executor)


def _children(without: Iterable[int | None]) -> list[Any]:
    """The living children of multiprocessing, except these pids."""
    if "multiprocessing" not in sys.modules:
        return []
    from multiprocessing import active_children

    left_out = set(without)
    return [child for child in active_children() if child.pid not in left_out]


def process_map(workers: Iterable[int | None], main_works: bool = False, own_gils: bool = False) -> dict[str, Any]:
    """What the controller cannot see from outside, as the fields of its ProcessMap.

    The workers' pids, the Managers' pids with their names, whether the main thread works itself or only waits, and
    whether workers have GILs of their own.
    """
    pids = list(workers)
    servers = {str(child.pid): child.name for child in _children(pids) if "Manager" in child.name}
    return {"workers": pids, "servers": servers, "main_works": main_works, "own_gils": own_gils}


def children_cpu_ns(without: Iterable[int | None] = ()) -> int:
    """CPU time of multiprocessing's living children in ns, from /proc; 0 where the system has no such file."""
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
    """A short file, read without a file object: its buffer would count as memory of the workload."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 256)
    finally:
        os.close(descriptor)
