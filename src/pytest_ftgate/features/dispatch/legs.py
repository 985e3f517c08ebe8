"""Times the tasks of a pool: from submit to start, the work, and from its end to the result."""

from __future__ import annotations

import heapq
import os
import tempfile
from time import sleep

from pytest_ftgate.runner.clock import now_ns
from pytest_ftgate.runner.pooled import MOST, STAMP, WAIT_NS, Task, mapped, pool_of, watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

EMPTY = 8
SENT_KIB = 256
"""So many empty tasks, and as many that are sent so much, show what a KiB costs."""

Stamped = tuple[int, int, int, int, int]
"""Submit, begin, end and result of a task in ns, and its thread."""
Legs = tuple[int, int, int]
"""To the worker, back, and the work between, in ns."""


class _Stamps:
    """What is known of this launch: the file of its stamps, how many there are, and what a MiB costs.

    Of its latest pool, `met` are the threads that have had a task.
    """

    def __init__(self) -> None:
        self.file = ""
        self.count = 0
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
    sent: list[list[int]] = []
    """Place, submit and result of each task; the last is 0 until it has one."""

    def timed(submit: Callable[..., Any]) -> Callable[..., Any]:
        def submit_timed(function: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
            if _stamps.count == MOST:
                return submit(function, *args, **options)
            place, _stamps.count = _stamps.count, _stamps.count + 1
            task = [place, now_ns(), 0]
            future = submit(Task(function, _stamps.file, place), *args, **options)
            sent.append(task)

            def done(_: Any) -> None:
                task[2] = now_ns()

            future.add_done_callback(done)
            return future

        return submit_timed

    restore = watch(pool, timed)

    def end() -> dict[str, dict[str, Any]]:
        restore()
        limit_ns = now_ns() + WAIT_NS
        while not all(done_ns for *_, done_ns in sent) and now_ns() < limit_ns:
            sleep(0.001)
        written = mapped(_stamps.file)
        tasks = [
            (submit_ns, begin_ns, end_ns, done_ns, thread)
            for place, submit_ns, done_ns in sent
            for begin_ns, end_ns, thread in [STAMP.unpack_from(written, STAMP.size * place)]
            if done_ns and end_ns  # else it was cancelled, or is still under way
        ]
        standing = executor.stands and executor.setup["kind"] != "executor"  # then all workers have started before
        found = legs(tasks, executor.setup["workers"], None if standing else _stamps.met)
        if _stamps.mib_ns is None:
            _stamps.mib_ns = cost_of_a_mib(pool)
        times = {"task work": middle([work for *_, work in found]), "dispatch MiB": _stamps.mib_ns}
        if tasks:
            first_ns, last_ns = min(each[0] for each in tasks), max(each[3] for each in tasks)
            times["task pace"] = (last_ns - first_ns) // len(tasks)
        if found:
            times["dispatch"] = middle([to + back for to, back, _ in found])
            times["dispatch p95"] = quantile([to + back for to, back, _ in found], 0.95)
            times["dispatch to"] = middle([to for to, *_ in found])
            times["dispatch back"] = middle([back for _, back, _ in found])
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
        found.append((begin_ns - ready_ns, max(0, done_ns - end_ns), end_ns - begin_ns))
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
