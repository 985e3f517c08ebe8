"""The lock probe for asyncio: a task that must wait is timed around asyncio's own method, which stays unchanged."""

from __future__ import annotations

import sys
from functools import wraps
from weakref import WeakValueDictionary

from .recorder import ATTRIBUTE, Recorder, clock, kind_of, release_anew, rename
from .sites import OFF, RECORD, STATE, book

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

PACKAGE = "asyncio"

_conditions: WeakValueDictionary[int, Any] = WeakValueDictionary()
reacquiring: set[Any] = set()
"""Tasks in Condition.wait: acquiring the lock again is part of that wait."""


def patch_locks(module: ModuleType) -> None:
    """Time Lock, Condition, Semaphore, BoundedSemaphore, Event and Barrier of asyncio.locks, just executed."""
    patched: Any = module
    _patch_init(patched.Lock, "lock")
    _patch_condition(patched.Condition)
    for cls in (patched.Semaphore, patched.BoundedSemaphore, patched.Event, patched.Barrier):
        _patch_init(cls, "queue")
    _patch_acquire(patched.Lock, _lock_waits)
    _patch_release(patched.Lock)
    _patch_acquire(patched.Semaphore, lambda semaphore: semaphore.locked())
    _patch_wait(patched.Event, "wait", lambda event: not event._value)
    _patch_wait(patched.Barrier, "wait", _barrier_waits)


def patch_loop(module: ModuleType) -> None:
    """Note when a task is created that runs beside another: not the first of a loop, which is its thread's work."""
    loop: Any = module.BaseEventLoop  # type: ignore[attr-defined, unused-ignore]
    original = loop.create_task

    @wraps(original)
    def create_task(self: Any, *args: Any, **kwargs: Any) -> Any:
        task = original(self, *args, **kwargs)
        if self.is_running():
            task._ftgate_began_ns = clock()
        return task

    loop.create_task = create_task


def patch_queues(module: ModuleType) -> None:
    """Time Queue of asyncio.queues, just executed; PriorityQueue and LifoQueue inherit from it."""
    queue: Any = module.Queue  # type: ignore[attr-defined, unused-ignore]
    _patch_init(queue, "queue")
    _patch_wait(queue, "get", lambda queue: queue.empty() and not getattr(queue, "_is_shutdown", False))
    _patch_wait(queue, "put", _put_waits)
    _patch_wait(queue, "join", lambda queue: queue._unfinished_tasks > 0)


def _patch_init(cls: Any, waits_for: str) -> None:
    """Give each instance of `cls` its site: the line that constructs it. What asyncio constructs is an inner object."""
    init = cls.__init__

    @wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if ATTRIBUTE not in self.__dict__:
            site = book.site(sys._getframe(1), kind_of(self, PACKAGE), waits_for)
            setattr(self, ATTRIBUTE, site and Recorder(site))
        init(self, *args, **kwargs)

    cls._ftgate_rename = rename
    cls.__init__ = __init__


def _patch_condition(cls: Any) -> None:
    """`wait` counts as queue wait; a lock that the Condition itself makes as lock wait, under the Condition's kind."""
    init, original = cls.__init__, cls.wait

    @wraps(init)
    def __init__(self: Any, lock: Any = None) -> None:
        frame, kind = sys._getframe(1), kind_of(self, PACKAGE)
        waits, locks = book.site(frame, kind, "queue"), book.site(frame, kind, "lock")
        setattr(self, ATTRIBUTE, waits and Recorder(waits))
        init(self, lock)
        _conditions[id(self)] = self
        if lock is None and locks is not None:
            setattr(self._lock, ATTRIBUTE, Recorder(locks))
            self._ftgate_own = self._lock

    def _rename(self: Any, name: str) -> None:
        rename(self, name)
        rename(self.__dict__.get("_ftgate_own"), name)

    @wraps(original)
    async def wait(self: Any) -> Any:
        recorder = getattr(self, ATTRIBUTE, None)
        if not recorder or not self.locked():
            return await original(self)
        opened, began = book.window[0], clock()
        task = _current_task()
        _seen(task)
        reacquiring.add(task)
        try:
            return await original(self)
        finally:
            reacquiring.discard(task)
            if opened & STATE == RECORD:
                recorder.wait(clock() - began, opened)

    cls.__init__, cls.wait, cls._ftgate_rename = __init__, wait, _rename


def _patch_acquire(cls: Any, waits: Callable[[Any], bool]) -> None:
    """Time `acquire` if it must wait, and count it while acquisitions are counted."""
    original = cls.acquire

    @wraps(original)
    async def acquire(self: Any) -> Any:
        opened = book.window[0]
        state = opened & STATE
        if state == OFF or (state == RECORD and not waits(self)):
            return await original(self)
        recorder = getattr(self, ATTRIBUTE, None)
        again = bool(reacquiring) and _current_task() in reacquiring
        if not recorder or (again and state == RECORD):
            return await original(self)
        if state == RECORD:
            return await _timed(recorder, original(self), opened)
        got = await original(self)
        if recorder.site.waits_for == "lock":
            recorder.took(sys._getframe(1), id(_current_task()), again=again)
        else:
            recorder.count()
        return got

    cls.acquire = acquire


def _patch_release(cls: Any) -> None:
    """End the hold of a lock, while holds are timed."""
    original = cls.release

    @wraps(original)
    def release(self: Any) -> None:
        recorder = getattr(self, ATTRIBUTE, None)
        if recorder:
            recorder.ended()
        original(self)

    def count_holds(counting: bool) -> None:
        cls.release = release if counting else original
        release_anew(_conditions)

    book.add_counter(count_holds)


def _patch_wait(cls: Any, name: str, waits: Callable[[Any], bool]) -> None:
    """Time calls of `cls.name` on objects for which `waits` returns that they must wait."""
    original = getattr(cls, name)

    @wraps(original)
    async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        opened = book.window[0]
        if opened & STATE == RECORD and waits(self) and (recorder := getattr(self, ATTRIBUTE, None)):
            return await _timed(recorder, original(self, *args, **kwargs), opened)
        return await original(self, *args, **kwargs)

    setattr(cls, name, method)


async def _timed(recorder: Recorder, waiting: Any, opened: int) -> Any:
    """Time a wait; one that is cancelled is kept too, and the exception passes through."""
    began = clock()
    _seen(_current_task())
    try:
        return await waiting
    finally:
        recorder.wait(clock() - began, opened)


def _seen(task: Any) -> None:
    """Note the lifetime of a task at its first wait; the cell counts the tasks that are its workers."""
    began_ns = getattr(task, "_ftgate_began_ns", 0)
    if not began_ns:
        return
    task._ftgate_began_ns = 0
    frame = getattr(task.get_coro(), "cr_frame", None)
    if frame is None or not frame.f_globals.get("__name__", "").startswith("pytest_ftgate."):
        lifetime = book.lifetimes.begin(began_ns)
        task.add_done_callback(lambda _: book.lifetimes.end(lifetime))


def _lock_waits(lock: Any) -> bool:
    return lock._locked or (bool(lock._waiters) and any(not waiter.cancelled() for waiter in lock._waiters))


def _barrier_waits(barrier: Any) -> bool:
    if barrier.broken:
        return False
    return bool(barrier._state.value != "filling" or barrier._count + 1 < barrier._parties)


def _put_waits(queue: Any) -> bool:
    return bool(queue.full()) and not getattr(queue, "_is_shutdown", False)


def _current_task() -> Any:
    from asyncio.tasks import current_task

    return current_task()
