"""The lock probe for threads: times waits for the locks and queues of `threading` and `queue`, by creation site.

Every wrapper first tries without blocking, and reads the clock only if that fails. It keeps a wait while it holds the
lock it has waited for, so that the lock itself protects its tally. The probe takes no lock of its own.
"""

from __future__ import annotations

import _thread
import threading
import time
from _thread import allocate_lock
from sys import _getframe

from .sites import COUNT, RECORD, STATE, Site, Tally, book

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, NoReturn, SupportsIndex

_clock = time.perf_counter_ns
_RawLock: type = type(allocate_lock())
_RawRLock = _thread.RLock
_rlock_factory = threading.RLock


def keep(lock: Any, waited_ns: int, opened: int) -> None:
    """Append a wait to the tally of any object that has `_ftgate_site` and `_ftgate_tally`.

    `opened` is the window byte when the wait began; if it has changed since, the wait is dropped.
    """
    if book.window[0] == opened:
        (lock._ftgate_tally or _tally(lock)).waits.append(waited_ns)


def _tally(lock: Any) -> Tally:
    """The lock's tally, made when the lock waits or is counted for the first time."""
    tally: Tally = lock._ftgate_site.tally()
    lock._ftgate_tally = tally
    return tally


class _Posing(type):
    """Metaclass: raw locks, which code of the standard library gets, are instances too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls, instance) or type(instance) is cls.__dict__.get("_ftgate_raw")


class _Timed(metaclass=_Posing):
    """A wrapped raw lock. Slots hold its bound C methods: a call that needs no timing costs no Python frame."""

    __slots__ = ("__exit__", "__weakref__", "_acquire", "_ftgate_site", "_ftgate_tally", "release")
    _ftgate_raw: type
    _acquire: Callable[..., bool]
    _ftgate_site: Site
    _ftgate_tally: Tally | None
    release: Callable[[], None]

    @classmethod
    def _at(cls, raw: Any, site: Site) -> Any:
        """Wrap the lock `raw`, with its waits kept at `site`."""
        lock: Any = object.__new__(cls)
        lock._acquire = raw.acquire
        lock.__exit__ = raw.__exit__
        lock.release = raw.release
        lock._ftgate_site = site
        lock._ftgate_tally = None
        return lock

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # isinstance() asks the type first and this next: for code that checks whether it has a raw lock.
        kind = type(self)
        return kind._ftgate_raw if "_ftgate_raw" in kind.__dict__ else kind

    def __enter__(self) -> bool:
        if self._acquire(False):
            return True
        return self._wait()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As for a raw lock, with the same errors; a wait is timed."""
        if timeout == -1:
            return self._acquire(False) or (self._wait() if blocking else False)
        allocate_lock().acquire(blocking, timeout)  # Raises what a raw lock would raise.
        return self._acquire(False) or (self._wait(timeout) if timeout else False)

    def _wait(self, timeout: float = -1) -> bool:
        """Block; keep the wait, also one that times out, if the window is open and still the same at its end."""
        window = book.window
        opened = window[0]
        if opened & STATE != RECORD:
            return self._acquire(True, timeout)
        start = _clock()
        got = self._acquire(True, timeout)
        waited_ns = _clock() - start
        if window[0] == opened:
            (self._ftgate_tally or _tally(self)).waits.append(waited_ns)
        return got

    def _acquire_now(self, blocking: bool = True, timeout: float = -1) -> bool:
        """For a Condition, which keeps a bound method: this one changes when acquisitions are counted."""
        return self.acquire(blocking, timeout)

    @property
    def _raw(self) -> Any:
        return self._acquire.__self__  # type: ignore[attr-defined]

    def locked(self) -> bool:
        """As for a raw lock."""
        return bool(self._raw.locked())

    def _at_fork_reinit(self) -> None:
        self._raw._at_fork_reinit()

    def __repr__(self) -> str:
        raw = self._raw
        own = repr(raw).replace(f" at {id(raw):#x}", f" at {id(self):#x}")
        kind = type(self)
        return own if "_ftgate_raw" in kind.__dict__ else own.replace("_thread.RLock", kind.__name__)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raw = type(self)._ftgate_raw
        name = raw.__name__ if int(protocol) < 2 else f"{raw.__module__}.{raw.__name__}"
        raise TypeError(f"cannot pickle {name!r} object")


class Lock(_Timed):
    """Replaces `threading.Lock`."""

    __slots__ = ()
    _ftgate_raw = _RawLock

    def __new__(cls) -> Any:
        """A wrapped lock with the caller's line as its site; a raw lock for code of the standard library."""
        site = book.site(_getframe(1), "Lock", "lock")
        return allocate_lock() if site is None else cls._at(allocate_lock(), site)

    def __init_subclass__(cls) -> None:
        raise TypeError("type '_thread.lock' is not an acceptable base type")

    # The methods that a Condition uses: acquiring the lock again in Condition.wait() is part of that wait, not another.

    def _release_save(self) -> None:
        self.release()

    def _acquire_restore(self, state: object) -> None:
        self._acquire()

    def _is_owned(self) -> bool:
        if self._acquire(False):
            self.release()
            return False
        return True

    # Obsolete names that a raw lock still has.

    def acquire_lock(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As `acquire`."""
        return self.acquire(blocking, timeout)

    def release_lock(self) -> None:
        """As `release`."""
        self.release()

    locked_lock = _Timed.locked


class RLock(_Timed):
    """Replaces `threading.RLock`; to acquire it again never waits, and is not counted."""

    __slots__ = ()
    _ftgate_raw = _RawRLock

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """As for Lock."""
        if args or kwargs:
            _rlock_factory(*args, **kwargs)  # Warns or raises as this Python version does.
        site = book.site(_getframe(1), "RLock", "lock")
        if site is None and cls is RLock:
            return _RawRLock()
        return cls._at(_RawRLock(), site or Site("", 0, "RLock", "lock"))


def _of_raw(name: str) -> property:
    """The raw lock's own bound method: a Condition takes it when it is created, and calls it without a Python frame."""
    return property(lambda self: getattr(self._raw, name))


for _name in ("_release_save", "_acquire_restore", "_is_owned", "_recursion_count"):
    setattr(RLock, _name, _of_raw(_name))


# Each checks the window byte: a process that is not notified when it changes keeps these methods.


def _counting_enter(self: Lock) -> bool:
    if book.window[0] & STATE != COUNT:
        return _Timed.__enter__(self)
    self._acquire()
    (self._ftgate_tally or _tally(self)).acquired += 1
    return True


def _counting_acquire(self: Lock, blocking: bool = True, timeout: float = -1) -> bool:
    if book.window[0] & STATE != COUNT:
        return _Timed.acquire(self, blocking, timeout)
    got = self._acquire(blocking, timeout)
    if got:
        (self._ftgate_tally or _tally(self)).acquired += 1
    return got


def _counting_rlock_acquire(self: RLock, blocking: bool = True, timeout: float = -1) -> bool:
    if book.window[0] & STATE != COUNT:
        return _Timed.acquire(self, blocking, timeout)
    got = self._acquire(blocking, timeout)
    if got and self._raw._recursion_count() == 1:
        (self._ftgate_tally or _tally(self)).acquired += 1
    return got


def _counting_rlock_enter(self: RLock) -> bool:
    return _counting_rlock_acquire(self)


_VARIANTS: tuple[tuple[type, Any, Any], ...] = (
    (Lock, _counting_enter, _counting_acquire),
    (RLock, _counting_rlock_enter, _counting_rlock_acquire),
)


def _count(counting: bool) -> None:
    """Install the methods that count acquisitions, or restore the others."""
    for cls, enter, acquire in _VARIANTS:
        cls.__enter__ = enter if counting else _Timed.__enter__  # type: ignore[attr-defined]
        cls.acquire = acquire if counting else _Timed.acquire  # type: ignore[attr-defined]


# The classes below are patched in place: other code may have subclassed them, or pickle them by name.

_condition_init = threading.Condition.__init__
_condition_wait = threading.Condition.wait
_semaphore_init = threading.Semaphore.__init__
_semaphore_acquire = threading.Semaphore.acquire
_bounded_code = threading.BoundedSemaphore.__init__.__code__
_event_init = threading.Event.__init__
_event_wait = threading.Event.wait
_event_is_set = threading.Event.is_set
_barrier_init = threading.Barrier.__init__
_barrier_wait = threading.Barrier.wait


def _condition_init_at(self: Any, lock: Any = None) -> None:
    frame = _getframe(1)
    site = book.site(frame, "Condition", "queue")
    if site is not None and lock is None:
        lock = RLock._at(_RawRLock(), book.site(frame, "Condition", "lock") or site)
    _condition_init(self, lock)
    if site is not None:
        self._ftgate_site = site
    if type(lock) is Lock or type(lock) is RLock:
        self.acquire = lock._acquire_now


def _condition_wait_timed(self: Any, timeout: float | None = None) -> bool:
    opened = book.window[0]
    if self._ftgate_site is None or opened & STATE != RECORD or (timeout is not None and timeout <= 0):
        return _condition_wait(self, timeout)
    start = _clock()
    got = _condition_wait(self, timeout)
    keep(self, _clock() - start, opened)
    return got


def _condition_rename(self: Any, name: str) -> None:
    """Rename the condition, and its lock if it made that itself."""
    book.rename(self, name)
    site = getattr(self._lock, "_ftgate_site", None)
    if site is not None and site.kind.endswith("Condition"):
        book.rename(self._lock, name)


def _semaphore_init_at(self: Any, value: int = 1) -> None:
    frame: Any = _getframe(1)
    bounded = isinstance(self, threading.BoundedSemaphore)
    if frame.f_code is _bounded_code:
        frame = frame.f_back
    _semaphore_init(self, value)
    self._ftgate_site = book.site(frame, "BoundedSemaphore" if bounded else "Semaphore", "queue")


def _semaphore_acquire_timed(self: Any, blocking: bool = True, timeout: float | None = None) -> bool:
    if self._ftgate_site is None or not blocking:
        return _semaphore_acquire(self, blocking, timeout)
    if _semaphore_acquire(self, False):
        return True
    opened = book.window[0]
    if opened & STATE != RECORD or (timeout is not None and timeout <= 0):
        return _semaphore_acquire(self, blocking, timeout)
    start = _clock()
    got = _semaphore_acquire(self, blocking, timeout)
    keep(self, _clock() - start, opened)
    return got


def _event_init_at(self: Any) -> None:
    _event_init(self)
    self._ftgate_site = book.site(_getframe(1), "Event", "queue")


def _event_wait_timed(self: Any, timeout: float | None = None) -> bool:
    if self._ftgate_site is None or _event_is_set(self):
        return _event_wait(self, timeout)
    opened = book.window[0]
    if opened & STATE != RECORD or (timeout is not None and timeout <= 0):
        return _event_wait(self, timeout)
    start = _clock()
    got = _event_wait(self, timeout)
    keep(self, _clock() - start, opened)
    return got


def _barrier_init_at(
    self: Any, parties: int, action: Callable[[], None] | None = None, timeout: float | None = None
) -> None:
    _barrier_init(self, parties, action, timeout)
    self._ftgate_site = book.site(_getframe(1), "Barrier", "queue")


def _barrier_wait_timed(self: Any, timeout: float | None = None) -> int:
    opened = book.window[0]
    if self._ftgate_site is None or opened & STATE != RECORD or self.broken:
        return _barrier_wait(self, timeout)
    start = _clock()
    try:
        index = _barrier_wait(self, timeout)
    except threading.BrokenBarrierError:
        keep(self, _clock() - start, opened)
        raise
    if index != self.parties - 1:  # The last thread to arrive does not wait.
        keep(self, _clock() - start, opened)
    return index


def patch() -> None:
    """Patch `threading`, which this module imports. Call it once."""
    book.counters.append(_count)
    _pose(Lock, _RawLock, "Lock")
    _pose(RLock, _RawRLock, "RLock")
    threading.Lock = Lock
    threading.RLock = RLock
    _replace(threading.Condition, __init__=_condition_init_at, wait=_condition_wait_timed)
    threading.Condition._ftgate_rename = _condition_rename  # type: ignore[attr-defined]
    _replace(
        threading.Semaphore,
        __init__=_semaphore_init_at,
        acquire=_semaphore_acquire_timed,
        __enter__=_semaphore_acquire_timed,
    )
    _replace(threading.Event, __init__=_event_init_at, wait=_event_wait_timed)
    _replace(threading.Barrier, __init__=_barrier_init_at, wait=_barrier_wait_timed)


def _pose(cls: type, raw: type, name: str, module: str = "threading") -> None:
    """Give a class the name, module and docstring of what it replaces, so that it is found and pickled as that."""
    cls.__module__ = module
    cls.__name__ = cls.__qualname__ = name
    cls.__doc__ = raw.__doc__


def _replace(cls: Any, **methods: Any) -> None:
    """Replace methods of a class; objects without a site, the inner ones, have the None of the class."""
    cls._ftgate_site = cls._ftgate_tally = None
    for name, method in methods.items():
        old = getattr(cls, name)
        method.__name__, method.__qualname__, method.__doc__ = old.__name__, old.__qualname__, old.__doc__
        method.__annotations__ = {}
        setattr(cls, name, method)


def patch_queue(module: ModuleType) -> None:
    """Patch module `queue`: the locks of a queue get the site of its creator, and SimpleQueue is timed."""
    queue: Any = module
    make = queue.Queue.__init__

    def init_at(self: Any, maxsize: int = 0) -> None:
        make(self, maxsize)
        frame = _getframe(1)
        lock = book.site(frame, type(self).__name__, "lock")
        if lock is not None and type(self.mutex) is Lock:
            self.mutex._ftgate_site = lock
            waits = book.site(frame, type(self).__name__, "queue")
            for condition in (self.not_empty, self.not_full, self.all_tasks_done):
                condition._ftgate_site = waits

    def rename(self: Any, name: str) -> None:
        for part in (self.mutex, self.not_empty, self.not_full, self.all_tasks_done):
            book.rename(part, name)

    _replace(queue.Queue, __init__=init_at)
    queue.Queue._ftgate_rename = rename
    if isinstance(queue.SimpleQueue, type) and queue.SimpleQueue.__module__ == "_queue":
        queue.SimpleQueue = _simple_queue(queue.SimpleQueue, queue.Empty)


def _simple_queue(raw: Any, empty: type[Exception]) -> Any:
    """A subclass of the C queue whose `get` is timed if it blocks."""
    get_raw = raw.get

    class SimpleQueue(raw, metaclass=_Posing):  # type: ignore[misc]
        __slots__ = ("_ftgate_site", "_ftgate_tally")
        _ftgate_raw = raw

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            site = book.site(_getframe(1), "SimpleQueue", "queue")
            if site is None and cls is SimpleQueue:
                return raw(*args, **kwargs)
            queue = raw.__new__(cls, *args, **kwargs)
            queue._ftgate_site = site or Site("", 0, "SimpleQueue", "queue")
            queue._ftgate_tally = None
            return queue

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            if not block:
                return get_raw(self, block, timeout)
            if timeout is None:
                try:
                    return get_raw(self, False)
                except empty:
                    pass
            return self._wait(timeout)

        def _wait(self, timeout: float | None) -> Any:
            free = timeout is not None and (not self.empty() or timeout <= 0)
            opened = book.window[0]
            if free or opened & STATE != RECORD:
                return get_raw(self, True, timeout)
            start = _clock()
            try:
                return get_raw(self, True, timeout)
            finally:
                keep(self, _clock() - start, opened)

    _pose(SimpleQueue, raw, "SimpleQueue", "queue")
    SimpleQueue.get.__doc__ = raw.get.__doc__
    return SimpleQueue
