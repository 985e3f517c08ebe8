"""Which process of a launch does what, as the launch itself reports it."""

from __future__ import annotations

import contextlib
from typing import Literal, TypeAlias

import msgspec
import psutil

from ..kit.proc import FORKSERVER, runs

ProcessGroup: TypeAlias = Literal["main", "workers", "servers", "others"]


class ProcessMap(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of a launch at the time of a held window."""

    main: int
    workers: tuple[int, ...] = ()
    """The worker processes in the order of their index; none where workers are threads or interpreters of `main`."""
    threads: tuple[int, ...] = ()
    """The ids of the workers that are threads of `main`."""
    servers: dict[int, str] = {}
    """The name of each server by its pid: `forkserver`, `Manager`."""
    main_works: bool = False
    """The main thread of `main` runs the workload itself: serial, tasks, an executor body whose pool runs it inline.

    Elsewhere it only waits for reports or for a pool. So it is left out where workers are threads or interpreters of
    `main`. Where they are processes, all threads of `main` are: they feed and manage the pool."""
    own_gils: bool = False
    """Sub-interpreters with a GIL of their own are at work: only then is a wait on the heap with a timeout for a GIL.

    Elsewhere it is an extension module's or that of a lock of 3.13."""
    all_work: bool = False
    """`main` is the first process of a tree that is no launch of ours, such as a server's. Every thread of every
    process of it counts, whenever it comes; `workers`, `servers` and `main_works` then say nothing."""

    def group_of(self, process: psutil.Process) -> ProcessGroup:
        """The group of a process of the tree; multiprocessing's forkserver is known by its command line."""
        if process.pid == self.main:
            return "main"
        if process.pid in self.workers:
            return "workers"
        with contextlib.suppress(psutil.Error):
            # Its children have a forkserver's command line too, but not its parent.
            if process.pid in self.servers or (process.ppid() == self.main and runs(process.pid, FORKSERVER)):
                return "servers"
        return "others"
