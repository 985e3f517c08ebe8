"""How many launches may be alive at once: as many as open files, tasks and the free memory allow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import psutil

from ..kit.text import plural
from .cell_run import CellRun
from .launch import LaunchRole
from .machine import ROOT, cgroup_folders, memory_left_bytes, read_text

DESCRIPTORS = 3
"""What a launch keeps open here: two ends of pipes to it, and what it prints."""
SPARE_DESCRIPTORS = 40
"""What is left for all else: the start of a process opens some, and so do memory samples and files."""
TASKS, SPARE_TASKS = 2, 8
"""Processes and threads of a launch beside its workers: its main thread and ours that waits for it; what is left."""
MEMORY_SHARE = 0.5
"""Of the memory that is free as the run begins, what the launches of a test may take together."""
BARE_BYTES, WORKLOAD_BYTES = 16 << 20, 48 << 20
"""Memory of a process of the runner, and what a workload adds to it, until its memory is known."""
_IN_ONE = ("serial", "threads", "tasks")


class Needed(NamedTuple):
    """What launches that are alive together need."""

    launches: int = 0
    memory_bytes: int = 0
    tasks: int = 0


def total(parts: Iterable[Needed]) -> Needed:
    return Needed(*map(sum, zip(Needed(), *parts, strict=True)))


class Capacity:
    """What a run may have alive at once. It knows the memory of the cells that it was told of."""

    def __init__(
        self,
        descriptors: int | None = None,
        memory_bytes: int | None = None,
        tasks: int | None = None,
        *,
        opened: int = 0,
    ) -> None:
        """`descriptors` is the limit of this process, of which `opened` are in use; `tasks` are the processes and
        threads that can be started. None: no limit is known."""
        self.descriptors = descriptors
        self.memory_bytes = memory_bytes
        self.tasks = tasks
        self.launches = (
            None if descriptors is None else max(1, (descriptors - opened - SPARE_DESCRIPTORS) // DESCRIPTORS)
        )
        self._known: dict[str, int] = {}

    @classmethod
    def of_this_process(cls) -> Capacity:
        try:
            opened = len(os.listdir("/dev/fd"))
        except OSError:  # /proc may be hidden
            opened = SPARE_DESCRIPTORS
        # The memory that is free, or what this process's cgroup leaves of its limit if that is less.
        limits = [memory_left_bytes()]
        with contextlib.suppress(OSError, psutil.Error):
            limits.append(psutil.virtual_memory().available)
        free_bytes = min((each for each in limits if each is not None), default=None)
        memory_bytes = None if free_bytes is None else int(free_bytes * MEMORY_SHARE)
        # The processes and threads that this user, and this process's cgroup, may still start.
        free, most = [], _soft_limit("NPROC")
        if most is not None and os.geteuid() != 0:  # it does not hold for root
            tasks = 0
            with contextlib.suppress(OSError, psutil.Error):  # /proc may be hidden
                for process in psutil.process_iter():
                    with contextlib.suppress(psutil.Error):
                        tasks += process.num_threads() if process.uids().real == os.getuid() else 0
            free.append(most - tasks)
        for folder in cgroup_folders(ROOT, "pids"):
            limit, used = ((read_text(folder / f"pids.{name}") or "").strip() for name in ("max", "current"))
            if limit.isdigit() and used.isdigit():
                free.append(int(limit) - int(used))
        startable = max(1, min(free) - SPARE_TASKS) if free else None
        return cls(_soft_limit("NOFILE"), memory_bytes, startable, opened=opened)

    def learn(self, cell_runs: Sequence[CellRun]) -> None:
        """Take the memory of cells from their memory launches."""
        for side in (side for cell_run in cell_runs for side in cell_run.sides):
            latest = side.of("memory")[-1:]
            points = [point.pss_bytes or point.rss_bytes for launch in latest for point in launch.memory]
            nodeid = side.cell.nodeid
            self._known[nodeid] = max([self._known.get(nodeid, 0), *points])

    def needed(self, side: CellRun, roles: Sequence[LaunchRole]) -> Needed:
        """What these launches of a cell or of its reference need."""
        cell = side.cell
        bare = BARE_BYTES * (1 if cell.executor.kind in _IN_ONE else 1 + cell.workers)
        own = self._known.get(cell.nodeid) or bare + WORKLOAD_BYTES
        memory_bytes = sum(bare if role == "control" else own for role in roles)
        return Needed(len(roles), memory_bytes, len(roles) * (TASKS + cell.workers))

    def batches(self, cell_runs: Sequence[CellRun], needs: Callable[[CellRun], Needed]) -> list[list[CellRun]]:
        """The cells in their order, split so that each part fits; a cell that is too large for itself is alone."""
        found: list[list[CellRun]] = []
        alive = Needed()
        for cell_run in cell_runs:
            alive = total([alive, needs(cell_run)])
            if not found or self.lacking(alive):
                found.append([])
                alive = needs(cell_run)
            found[-1].append(cell_run)
        return found

    def lacking(self, needed: Needed) -> str:
        """Why so much cannot be alive together; empty if it can."""
        if self.launches is not None and needed.launches > self.launches:
            files = f"this process may open {self.descriptors} files (`ulimit -n`)"
            return f"{files}, which suffice for {plural(self.launches, 'launch', 'launches')}"
        if self.memory_bytes is not None and needed.memory_bytes > self.memory_bytes:
            return f"all launches together would need more than {self.memory_bytes >> 20} MiB, half of the free memory"
        if self.tasks is not None and needed.tasks > self.tasks:
            return f"{self.tasks} processes and threads can be started (`ulimit -u`, or the container's limit)"
        return ""


def _soft_limit(name: str) -> int | None:
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    soft, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
    return None if soft == resource.RLIM_INFINITY else soft
