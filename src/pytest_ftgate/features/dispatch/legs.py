"""Times the tasks of a pool: from submit to start, the work, and from its end to the result."""

from __future__ import annotations

import heapq
import os
import tempfile
from threading import Lock

from pytest_ftgate.runner.clock import now_ns
from pytest_ftgate.runner.pooled import MOST, STAMP, WAIT_NS, Task, Watch, mapped, pool_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

EMPTY = 8
SENT_KIB = 256
"""So many empty tasks, and as many that are sent so much, show what a KiB costs."""

Stamped = tuple[int, int, int, int, int]
"""Submit, begin, end and result of a task in ns, and its thread."""
Legs = tuple[int, int]
"""To the worker and back, in ns."""


class _Stamps:
    """What is known of this launch: the file of its stamps, how many there are, and what a MiB costs.

    Of its latest pool, `met` are the threads that have had a task.
    """

    def __init__(self) -> None:
        self.file = ""
        self.count, self.lock = 0, Lock()
        self.mib_ns: int | None = None
        self.pool: Any = None
        self.met: set[int] = set()


_stamps = _Stamps()


def observe(executor: Any) -> Callable[[], dict[str, dict[str, Any]]]:
    """Begin; see `runner/observing.py`."""
    pool = pool_of(executor)
    if pool is None:
        return dict
    if not _stamps.file:
        from multiprocessing.util import get_temp_dir

        descriptor, _stamps.file = tempfile.mkstemp(dir=get_temp_dir())
        os.truncate(descriptor, MOST * STAMP.size)
        os.close(descriptor)
    if _stamps.pool is not pool:
        _stamps.pool, _stamps.met = pool, set()

    def task_of(function: Any, _args: Any, _options: Any) -> Task:
        with _stamps.lock:
            place, _stamps.count = _stamps.count, _stamps.count + 1
        task = Task(function, _stamps.file if place < MOST else "", place)
        task.submit_ns = now_ns()
        return task

    watch = Watch(pool, task_of)

    def end() -> dict[str, dict[str, Any]]:
        written = mapped(_stamps.file)
        tasks = [
            (task.submit_ns, begin_ns, end_ns, task.done_ns, thread)
            for task in watch.end()
            if task.file
            for begin_ns, end_ns, thread in [STAMP.unpack_from(written, STAMP.size * task.place)]
            if end_ns  # else it was cancelled
        ]
        standing = executor.stands and executor.setup["kind"] != "executor"  # then all workers have started before
        found = legs(tasks, executor.setup["workers"], None if standing else _stamps.met)
        if _stamps.mib_ns is None:
            _stamps.mib_ns = cost_of_a_mib(pool)
        work = [end_ns - begin_ns for _, begin_ns, end_ns, *_ in tasks]
        times = {"task work": middle(work), "dispatch MiB": _stamps.mib_ns}
        if tasks:
            first_ns, last_ns = min(each[0] for each in tasks), max(each[3] for each in tasks)
            times["task pace"] = (last_ns - first_ns) // len(tasks)
        if found:
            both = [to + back for to, back in found]
            times["dispatch"], times["dispatch p95"] = middle(both), quantile(both, 0.95)
            times["dispatch to"], times["dispatch back"] = (middle(leg) for leg in zip(*found, strict=True))
        return {"timers": {name: (1, ns, ns) for name, ns in times.items() if ns is not None}}

    return end


def legs(tasks: Iterable[Stamped], workers: int, met: set[int] | None) -> list[Legs]:
    """The legs of each task, without its wait for a free worker.

    One of `workers` is free once all but `workers` - 1 of the tasks that began before have ended; until then a task
    waits. The first task of a thread that is not among `met` may have waited for that to start, so it is left out, and
    the thread is met; None: all have started before.
    """
    found, latest = [], list[int]()  # the latest ends so far, one for each worker
    for submit_ns, begin_ns, end_ns, done_ns, thread in sorted(tasks, key=lambda each: each[1]):
        free_ns = latest[0] if len(latest) == workers else 0
        if len(latest) < workers:
            heapq.heappush(latest, end_ns)
        else:
            heapq.heappushpop(latest, end_ns)
        if met is not None and thread not in met:
            met.add(thread)
            continue
        ready_ns = min(begin_ns, max(submit_ns, free_ns))
        found.append((begin_ns - ready_ns, max(0, done_ns - end_ns)))
    return found


def cost_of_a_mib(pool: Any) -> int | None:
    """What a task that is sent a MiB takes longer than an empty one, in ns, one at a time; None where none can be."""
    times: tuple[list[int], list[int]] = [], []
    try:
        for number in range(2 * EMPTY):
            sent = bytes(number % 2 * SENT_KIB << 10)
            begin_ns = now_ns()
            pool.submit(len, sent).result(WAIT_NS / 1e9)
            times[number % 2].append(now_ns() - begin_ns)
    except Exception:  # noqa: BLE001 -- whatever a pool of others raises
        return None
    empty_ns, sent_ns = (quantile(each, 0.5) for each in times)
    return max(0, sent_ns - empty_ns) * 1024 // SENT_KIB


def middle(values: Sequence[int]) -> int | None:
    """The median; None of none."""
    return quantile(values, 0.5) if values else None


def quantile(values: Sequence[int], share: float) -> int:
    """The value that such a share of the others lie below."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
