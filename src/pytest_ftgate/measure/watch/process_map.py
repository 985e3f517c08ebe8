"""Which process of a launch does what, as the launch itself reports it."""

from __future__ import annotations

import msgspec


class ProcessMap(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of a launch at the time of a held window.

    `workers` are the pids of worker processes in the order of their index, empty where the workers are threads or
    interpreters of `main`; `servers` maps a pid to its name (`forkserver`, `Manager`). `main_works` says that the main
    thread of `main` runs the workload itself (serial, tasks, an executor body whose pool runs it inline): elsewhere it
    only waits for reports or for a pool. So its main thread is left out where the workers are its threads or
    interpreters, and all its threads where they are processes: those feed and manage the pool.
    `own_gils` says that sub-interpreters with a GIL of their own are at work: only then is a wait with a timeout on
    the heap one for a GIL, elsewhere it is an extension module's or that of a lock of 3.13.
    `all_work` says that `main` is the first process of a tree that is no launch of ours, such as a server's: every
    thread of every process of it counts, whenever it comes; `workers`, `servers` and `main_works` then say nothing.
    """

    main: int
    workers: tuple[int, ...] = ()
    servers: dict[int, str] = {}
    main_works: bool = False
    own_gils: bool = False
    all_work: bool = False
