"""The lock probe for multiprocessing: semaphores, the primitives built on them, queues, and each child's file.

Processes share a semaphore, but not its site: only the process that made it knows the line. Every other process knows
the semaphore's name, which is the key that joins their files. Under fork there is no name, and none is needed: the
child inherits the site.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from functools import partial, wraps
from itertools import count
from weakref import WeakValueDictionary

from .lifetimes import seen
from .recorder import ATTRIBUTE, Recorder, clock, joined, kind_of, release_anew
from .sites import COUNT, RECORD, STATE, book

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType
    from typing import Any

PACKAGE = "multiprocessing"
PASSED = frozenset(("context", "synchronize", "queues", "sharedctypes"))
"""Its modules that make a lock on behalf of their caller."""
COMPOSITES = frozenset(
    f"{name}.__init__" for name in ("Condition", "Event", "Barrier", "Queue", "JoinableQueue", "SimpleQueue")
)
"""The primitives that make semaphores for their own use."""
LOCKS = ("multiprocessing.Lock", "multiprocessing.RLock")
LAST = -10_000
"""The priority of a finalizer that runs after all others."""

_numbers = count()
_locks: WeakValueDictionary[int, Any] = WeakValueDictionary()
_conditions: WeakValueDictionary[int, Any] = WeakValueDictionary()
reacquiring: set[int] = set()
"""Threads in Condition.wait: acquiring the lock again is part of that wait."""


def patch_synchronize(module: ModuleType) -> None:
    """Time the semaphores, Condition, Event and Barrier of multiprocessing.synchronize, just executed."""
    patched: Any = module
    _patch_semaphores(patched.SemLock)
    _patch_condition(patched.Condition)
    _patch_composite(patched.Event, lambda event: event._flag)
    _patch_wait(patched.Event, "wait", _event_waits)
    _patch_composite(patched.Barrier, lambda barrier: barrier._cond._wait_semaphore)
    _patch_wait(patched.Barrier, "wait", _barrier_waits)


def patch_queues(module: ModuleType) -> None:
    """Time Queue, JoinableQueue and SimpleQueue of multiprocessing.queues, just executed."""
    patched: Any = module
    _patch_composite(patched.Queue, lambda queue: queue._sem)
    _patch_composite(patched.JoinableQueue, lambda queue: queue._sem)
    _patch_composite(patched.SimpleQueue, lambda queue: queue._rlock)
    _patch_wait(patched.Queue, "get", _get_waits)
    _patch_wait(patched.Queue, "put", _put_waits)
    _patch_wait(patched.JoinableQueue, "put", _put_waits)
    _patch_wait(patched.JoinableQueue, "join", _join_waits)
    _patch_wait(patched.SimpleQueue, "get", _get_waits)


def patch_pool(module: ModuleType) -> None:
    """Workers of a Pool also write their file between tasks, because the end of `with Pool()` terminates them."""
    patched: Any = module
    original = patched.worker

    @wraps(original)
    def worker(inqueue: Any, outqueue: Any, *args: Any, **kwargs: Any) -> Any:
        own_process = hasattr(outqueue, "_reader")  # a ThreadPool's queue has none
        return original(inqueue, _Leaving(outqueue) if own_process else outqueue, *args, **kwargs)

    patched.worker = worker


class _Leaving:
    """A Pool's queue of results, which first writes the waits, in at most a twentieth of the time."""

    def __init__(self, queue: Any) -> None:
        self._reader = queue._reader
        self._put = queue.put
        self._due = 0

    def put(self, result: Any) -> None:
        """As `put` of the wrapped queue."""
        began = clock()
        if began >= self._due:
            book.write()
            ended = clock()
            self._due = ended + 20 * (ended - began)
        self._put(result)


def patch_util(module: ModuleType) -> None:
    """Every child of multiprocessing writes its file when it ends by itself; `atexit` does not run in all of them.

    A child that is terminated leaves the file that it wrote before (see `patch_pool`). A handler for SIGTERM would save
    the rest, but could hang the child: Python runs the handler later than the signal comes, and a child that blocks on
    a semaphore in between never runs it.
    """
    patched: Any = module

    def register(_: Any) -> None:
        patched.Finalize(None, book.write, exitpriority=LAST)

    # A child clears its finalizers before it runs these; the registry only has a weak reference to the book.
    patched.register_after_fork(book, register)


# -- which call made a semaphore -----------------------------------------------------------------------------------


def caller_of(frame: FrameType | None) -> tuple[FrameType | None, int]:
    """The frame outside multiprocessing that called it for an object, and in how many composites the object is.

    `frame` is the frame of the call. A Lock has depth 0, that of a Queue 1, that of the Condition of an Event 2.
    """
    depth = 0
    while frame is not None:
        package, _, module = (frame.f_globals.get("__name__") or "").partition(".")
        if package == PACKAGE and module in PASSED:
            depth += frame.f_code.co_qualname in COMPOSITES
        elif frame.f_globals is not globals():
            break
        frame = frame.f_back
    return frame, depth


def _marked(make_name: Callable[[], str], depth: int) -> str:
    """A semaphore's name with its depth, by which other processes know it as a part; 0 for an inner one."""
    return f"{make_name()}-{depth}"


def depth_of(name: str | None) -> int | None:
    """The depth in a semaphore's name; None if it is not part of a composite, or has no name."""
    tail = (name or "").rpartition("-")[2]
    return int(tail) if tail.isdigit() and len(tail) < 3 else None


def recorder_of(thing: Any) -> Recorder | None:
    """The `Recorder` of `thing`; None for an inner object."""
    recorder = thing.__dict__.get(ATTRIBUTE)
    if type(recorder) is str:  # unpickled from another process
        recorder = joined(recorder, kind_of(thing, PACKAGE), "queue") if recorder else None
        thing.__dict__[ATTRIBUTE] = recorder
    return recorder if recorder.__class__ is Recorder else None


def _rename(thing: Any, name: str) -> None:
    """`_ftgate_rename`: keep the waits of `thing`, and of the lock that it made for its users, under `name`."""
    lock = thing.__dict__.get("_lock")
    for recorder in (recorder_of(thing), recorder_of(lock) if getattr(lock, "_ftgate_composite", False) else None):
        if recorder is not None:
            recorder.rename(name)


def _sharing(getstate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A `__getstate__` that first writes what the process that unpickles the object does not know."""

    @wraps(getstate)
    def __getstate__(self: Any) -> Any:
        state = getstate(self)
        recorder = recorder_of(self)
        if recorder is not None:
            recorder.share()
        return state

    return __getstate__


# -- semaphores ----------------------------------------------------------------------------------------------------


def _patch_semaphores(cls: Any) -> None:
    init, setstate, enter, leave = cls.__init__, cls.__setstate__, cls.__enter__, cls.__exit__

    def __exit__(self: Any, *exc_info: object) -> Any:
        _hold_ends(self._semlock, recorder_of(self))
        return leave(self, *exc_info)

    def count_holds(counting: bool) -> None:
        cls.__exit__ = __exit__ if counting else leave
        for lock in list(_locks.values()):
            released = partial(_release, lock._semlock, recorder_of(lock))
            lock.release = released if counting else lock._semlock.release
        release_anew(_conditions)

    book.add_counter(count_holds)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        frame, depth = caller_of(sys._getframe(1))
        site = book.site(frame, *_kind(self))
        if site is None or depth:
            self._make_name = partial(_marked, cls._make_name, 0 if site is None else depth)
        init(self, *args, **kwargs)
        self.__dict__.pop("_make_name", None)
        if site is not None and not depth:
            key = self._semlock.name or ""
            _time(self, Recorder(site, key, key or f"{os.getpid()}-{next(_numbers)}"))

    def __setstate__(self: Any, state: Any) -> None:
        setstate(self, state)
        key = self._semlock.name
        if key and depth_of(key) is None:
            _time(self, joined(key, *_kind(self)))

    def __enter__(self: Any) -> Any:
        timed = self._ftgate_enter
        return enter(self) if timed is None else timed()

    cls._ftgate_rename, cls._ftgate_enter = _rename, None
    cls.__getstate__ = _sharing(cls.__getstate__)
    cls.__init__, cls.__setstate__, cls.__enter__ = __init__, __setstate__, __enter__


def _kind(semaphore: Any) -> tuple[str, str]:
    kind = kind_of(semaphore, PACKAGE)
    return kind, "lock" if kind in LOCKS else "queue"


def _hold_ends(semlock: Any, recorder: Recorder | None) -> None:
    if recorder is not None and semlock._count() == 1:
        recorder.ended()


def _release(semlock: Any, recorder: Recorder | None) -> None:
    _hold_ends(semlock, recorder)
    semlock.release()


def _time(semaphore: Any, recorder: Recorder) -> None:
    """Give one semaphore a timed `acquire`; `release` stays the bound C method unless holds are timed."""
    setattr(semaphore, ATTRIBUTE, recorder)
    if recorder.site.waits_for == "lock":
        _locks[id(semaphore)] = semaphore
        if book.window[0] & STATE == COUNT:
            semaphore.release = partial(_release, semaphore._semlock, recorder)
    raw, window = semaphore._semlock.acquire, book.window
    semaphore.acquire = acquire = _timed_acquire(raw, recorder)

    def enter() -> bool:
        return acquire() if window[0] & STATE == COUNT else raw(False) or acquire()

    semaphore._ftgate_enter = enter


def _timed_acquire(raw: Callable[..., bool], recorder: Recorder) -> Callable[..., bool]:
    window = book.window

    def acquire(block: bool = True, timeout: float | None = None) -> bool:
        """As multiprocessing's; see `SemLock.acquire`."""
        got = raw(False, timeout)  # the timeout is passed so that a wrong one raises
        if not got and block and (timeout is None or timeout > 0):
            opened = window[0]
            if opened & STATE == RECORD and not (reacquiring and get_ident() in reacquiring):
                began = clock()
                got = raw(True, timeout)
                recorder.wait(clock() - began, opened)
                seen(began)
            else:
                got = raw(True, timeout)
        if window[0] & STATE == COUNT and got:
            again = get_ident() in reacquiring
            if recorder.site.waits_for == "lock" and raw.__self__._count() == 1:  # type: ignore[attr-defined]
                recorder.took(sys._getframe(1), get_ident(), again=again)
            elif recorder.site.waits_for == "queue" and not again:
                recorder.count()
        return got

    return acquire


# -- primitives built on semaphores --------------------------------------------------------------------------------


def _patch_condition(cls: Any) -> None:
    """`wait` counts as queue wait; a lock that the Condition itself makes as lock wait, under the Condition's kind."""
    init, setstate = cls.__init__, cls.__setstate__

    def __init__(self: Any, lock: Any = None, **kwargs: Any) -> None:
        frame, depth = caller_of(sys._getframe(1))
        init(self, lock, **kwargs)
        kind = kind_of(self, PACKAGE)
        waits = None if depth else book.site(frame, kind, "queue")
        if waits is not None:
            setattr(self, ATTRIBUTE, Recorder(waits, self._wait_semaphore._semlock.name or ""))
            _conditions[id(self)] = self
            locks = None if lock else book.site(frame, kind, "lock")
            if locks is not None:
                key = self._lock._semlock.name or ""
                _own(self, Recorder(locks, key, key or f"{os.getpid()}-{next(_numbers)}"))

    def __setstate__(self: Any, state: Any) -> None:
        setstate(self, state)
        key, lock_key = self._wait_semaphore._semlock.name, self._lock._semlock.name
        if depth_of(key) == 1:
            kind = kind_of(self, PACKAGE)
            setattr(self, ATTRIBUTE, joined(key, kind, "queue"))
            _conditions[id(self)] = self
            if depth_of(lock_key) == 1:
                _own(self, joined(lock_key, kind, "lock"))

    cls._ftgate_rename = _rename
    cls.__getstate__ = _sharing(cls.__getstate__)
    cls.__init__, cls.__setstate__ = __init__, __setstate__
    cls.wait = _timed_condition_wait(cls.wait)


def _own(condition: Any, recorder: Recorder) -> None:
    """Time the lock that a Condition has made for itself."""
    condition._lock._ftgate_composite = True
    _time(condition._lock, recorder)
    condition._make_methods()


def _timed_condition_wait(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def wait(self: Any, timeout: float | None = None) -> Any:
        recorder = recorder_of(self)
        if recorder is None or not self._lock._semlock._is_mine():
            return original(self, timeout)
        opened, began = book.window[0], clock()
        thread = get_ident()
        reacquiring.add(thread)
        try:
            return original(self, timeout)
        finally:
            reacquiring.discard(thread)
            if opened & STATE == RECORD:
                recorder.wait(clock() - began, opened)
                seen(began)

    return wait


def _patch_composite(cls: Any, semaphore_of: Callable[[Any], Any]) -> None:
    """Give each instance of `cls` its site; its key is the name of the semaphore that `semaphore_of` returns."""
    init = cls.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder = None
        if ATTRIBUTE not in self.__dict__:
            frame, depth = caller_of(sys._getframe(1))
            site = None if depth else book.site(frame, kind_of(self, PACKAGE), "queue")
            recorder = site and Recorder(site)
            setattr(self, ATTRIBUTE, recorder)
        init(self, *args, **kwargs)
        if recorder is not None:
            recorder.key = semaphore_of(self)._semlock.name or ""

    cls._ftgate_rename = _rename
    cls.__init__ = __init__
    if "__getstate__" in cls.__dict__:
        _patch_state(cls, semaphore_of)


def _patch_state(cls: Any, semaphore_of: Callable[[Any], Any]) -> None:
    setstate = cls.__setstate__

    def __setstate__(self: Any, state: Any) -> None:
        setstate(self, state)
        if ATTRIBUTE not in self.__dict__:  # Barrier.__init__ calls this too
            key = semaphore_of(self)._semlock.name
            setattr(self, ATTRIBUTE, joined(key, kind_of(self, PACKAGE), "queue") if depth_of(key) else None)

    cls.__getstate__ = _sharing(cls.__getstate__)
    cls.__setstate__ = __setstate__


def _patch_wait(cls: Any, name: str, waits: Callable[..., bool]) -> None:
    """Time calls of `cls.name` for which `waits`, called with the same arguments, returns that they must wait."""
    original = getattr(cls, name)

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        opened = book.window[0]
        if opened & STATE != RECORD:
            return original(self, *args, **kwargs)
        recorder = recorder_of(self)
        if recorder is None or not waits(self, *args, **kwargs):
            return original(self, *args, **kwargs)
        began = clock()
        try:
            return original(self, *args, **kwargs)
        finally:
            recorder.wait(clock() - began, opened)
            seen(began)

    setattr(cls, name, method)


# These read the state without holding a lock. If another thread or process changes it in between, a wait is missed, or
# a wait of no length is kept.


def _event_waits(event: Any, timeout: float | None = None) -> bool:
    return (timeout is None or timeout > 0) and bool(event._flag._semlock._is_zero())


def _barrier_waits(barrier: Any, timeout: float | None = None) -> bool:
    broken, filling = -2, 0
    state = barrier._state
    return bool(state != broken and (state != filling or barrier._count + 1 < barrier._parties))


def _get_waits(queue: Any, block: bool = True, timeout: float | None = None) -> bool:
    if not block or (timeout is not None and timeout <= 0) or queue._reader.closed:
        return False
    return bool(queue._rlock._semlock._is_zero() or not queue._poll())


def _put_waits(queue: Any, item: Any = None, block: bool = True, timeout: float | None = None, **_: Any) -> bool:
    return bool(block and (timeout is None or timeout > 0) and queue._sem._semlock._is_zero())


def _join_waits(queue: Any) -> bool:
    return not queue._unfinished_tasks._semlock._is_zero()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reacquiring.clear)
