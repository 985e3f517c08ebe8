"""Shared by all executors: the outcome of an iteration, CPU time, children."""

from __future__ import annotations

import os
import sys

from ..orders import AT_BARRIER, Order
from ..proc import children, cpu_ns, read, stat_fields
from ..protocol import Failure
from ..worker import collect_garbage, worker_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from threading import Thread
    from typing import Any

    from ..loading import Setup
    from ..setups import WorkerSetups

    # Of an iteration: its phases start_ns, work_ns and join_ns, and cpu_ns, that of this process and its workers; the
    # reports of the workers; those of them whose calls are counted as operations: all, or those of the leading role.
    Outcome = tuple[dict[str, int], list[dict[str, Any]], list[dict[str, Any]]]

GRACE_S = 1.0
"""After an error in one role: how long to wait for `@test.stop`, and then for the workers that still return."""


def threads_are_greenlets() -> bool:
    """Whether gevent has patched the threads of this process: one that reads a pipe then keeps all others waiting."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def worker_thread(setup: Setup, index: int, target: Callable[..., None], *args: Any) -> Thread:
    """The thread of a worker. Raises Failure where workers would be greenlets of one thread, and hang."""
    from threading import Thread

    if threads_are_greenlets():
        raise Failure(
            "gevent.monkey has made greenlets of this process's threads, so workers cannot be threads: "
            "use serial or processes, or call patch_all(thread=False)"
        )
    return Thread(target=target, args=args, name=worker_name(setup, index), daemon=True if setup["roles"] else None)


class Observer:
    """Called when all workers are at work, and at a barrier; this one does nothing."""

    figures: Sequence[dict[str, Any]] = ()
    """The figures of observers in this process, in the form of a worker's report."""

    def resting(self, rests: bool) -> None:
        """Setups or teardowns begin to run, or have ended: nothing of them is recorded."""

    def releasing(self, executor: Any) -> None:
        """All workers wait to be released."""

    def released(self, executor: Any) -> None:
        """All workers have been released."""

    def done(self, executor: Any) -> None:
        """Every worker has done its part; teardowns wait until this returns."""

    def at_barrier(self, executor: Any) -> None:
        """Every worker has done its part, and waits until this returns."""


class StandingTimes:
    """How long workers that are kept took to start until all of them were ready, and to end, in ns.

    None where each iteration starts its own: then these are phases of it.
    """

    start_ns: int | None = None
    join_ns: int | None = None


def carry_out(setups: list[WorkerSetups], observer: Observer, flags: int) -> list[dict[str, Any]]:
    """Let workers of this thread run setups or teardowns, one worker after the other; their reports."""
    if not setups:
        return []
    observer.resting(True)
    errors = [around.carry_out(flags) for around in setups]
    observer.resting(False)
    places = [(getattr(around.given, "index", 0), getattr(around.given, "role", "")) for around in setups]
    return [{"index": index, "role": role, "error": e} for (index, role), e in zip(places, errors, strict=True)]


def leaders(setup: Setup) -> int:
    """The number of leading workers: those of the first role, or all. They have the lowest numbers."""
    return int(setup["roles"][0][1] if setup["roles"] else setup["workers"])


def observe_barrier(order: Order, observer: Observer, executor: Any) -> None:
    """The barrier of a body that runs in the main thread, or of a pool: no worker runs once the body has returned."""
    if order.flags & AT_BARRIER:
        collect_garbage(order)
        observer.at_barrier(executor)


def living_children(without: Iterable[int | None] = ()) -> list[Any]:
    """The living children of multiprocessing, except these pids."""
    if "multiprocessing" not in sys.modules:
        return []
    from multiprocessing import active_children

    left_out = set(without)
    return [child for child in active_children() if child.pid not in left_out]


def process_map(
    workers: Iterable[int | None],
    threads: Iterable[Any] = (),
    main_works: bool = False,
    own_gils: bool = False,
) -> dict[str, Any]:
    """What the controller cannot see from outside, as the fields of its ProcessMap.

    The workers' pids or threads, the Managers' pids with their names, whether the main thread works itself or only
    waits, and whether workers have GILs of their own.
    """
    pids = list(workers)
    servers = {str(child.pid): child.name for child in living_children(pids) if "Manager" in child.name}
    return {
        "workers": pids,
        "threads": [thread.native_id for thread in threads if thread.native_id],
        "servers": servers,
        "main_works": main_works,
        "own_gils": own_gils,
    }


def own_workers() -> list[int]:
    """The processes that an executor of the user's own has started, in the order of their pids; no resource tracker."""
    workers = []
    for pid in sorted(_below(os.getpid())):
        try:
            command = read(f"/proc/{pid}/cmdline")
        except OSError:
            continue
        if command and b"resource_tracker" not in command:
            workers.append(pid)
    return workers


def others_cpu_ns(without: Iterable[int | None] = (), *, with_ended: bool = True) -> int:
    """CPU time so far of all processes below this one, in ns, except that of the processes `without`.

    Those below may have waited for children too, such as a forkserver for the workers of a pool: `with_ended` counts
    these, to 10 ms. Source: each process's clock, which keeps what its ended threads have spent; Linux alone.
    """
    if sys.platform != "linux":
        return 0
    spent_ns = 0
    for pid in _below(os.getpid()) - set(without):
        try:
            spent_ns += cpu_ns(pid)
            if with_ended:
                spent_ns += sum(map(int, stat_fields(pid)[13:15])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        except OSError:
            pass  # it has ended
    return spent_ns


def _below(pid: int) -> set[int]:
    """All processes below one; where the kernel does not list them, the living children of multiprocessing."""
    below: set[int] = set()
    parents = [pid]
    try:
        while parents:
            new = set(children(parents.pop())) - below
            below |= new
            parents += new
    except FileNotFoundError:
        return {child.pid for child in living_children()}
    return below
