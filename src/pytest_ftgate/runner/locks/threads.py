"""The lock probe for threads: times waits for the locks and queues of `threading` and `queue`, by creation site.

Every wrapper first tries without blocking, and reads the clock only if that fails. It keeps a wait while it holds the
lock it has waited for, so that the lock itself protects its tally. The probe takes no lock of its own.
"""

from __future__ import annotations

import _thread
import threading
import time
from _thread import allocate_lock, get_ident
from abc import ABCMeta
from sys import _getframe
from types import FunctionType

from .lifetimes import seen
from .sites import COUNT, RECORD, STATE, Site, Tally, book, taker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, SupportsIndex

_clock = time.perf_counter_ns
_RawLock: type = type(allocate_lock())
_RawRLock: Any = _thread.RLock
_raw_acquire = _RawRLock.acquire
_rlock_factory = threading.RLock


def keep(lock: Any, waited_ns: int, opened: int) -> None:
    """Append a wait to the tally of any object that has `_ftgate_site` and `_ftgate_tally`.

    `opened` is the window byte when the wait began; if it has changed since, the wait is dropped.
    """
    if book.window[0] == opened:
        seen(_clock() - waited_ns)
        (lock._ftgate_tally or _tally(lock)).waits.append(waited_ns)


def _tally(lock: Any) -> Tally:
    """The lock's tally, made when the lock waits or is counted for the first time."""
    tally: Tally = lock._ftgate_site.tally()
    lock._ftgate_tally = tally
    return tally


class _Posing(ABCMeta):
    """Metaclass of what replaces a C type `_ftgate_raw`: equal to it where types are compared or looked up.

    Code of the standard library gets raw locks, so these are instances too. Pickle, copy, dill and singledispatch find
    by type what was registered for the raw type. It is an ABCMeta so that users may mix a lock type with an ABC.
    """

    def __instancecheck__(cls, instance: Any) -> bool:
        return type(instance) is cls.__dict__.get("_ftgate_raw") or super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls.__dict__.get("_ftgate_raw") or super().__subclasscheck__(subclass)

    def __eq__(cls, other: object) -> bool:
        return cls is other or cls.__dict__.get("_ftgate_raw", cls) is other

    def __hash__(cls) -> int:
        return type.__hash__(cls.__dict__.get("_ftgate_raw", cls))


def _ftgate_release(self: Any) -> None:
    self.release()


def _exit(self: Any, *exc_info: object) -> None:
    self.release()


class _PosingSlots(_Posing):
    """Metaclass of a class that holds `release` and `__exit__` in slots: `type(lock).release(lock)` is a call too.

    An ExitStack and other code that takes methods from the type find these; an instance still has its slots.
    """

    release = property(lambda cls: _ftgate_release)
    __exit__ = property(lambda cls: _exit)


def _wait(lock: Any, acquire: Callable[..., bool], timeout: float = -1) -> bool:
    """Block; keep the wait, also one that times out, if the window is open and still the same at its end.

    `acquire` is the raw lock's bound method.
    """
    window = book.window
    opened = window[0]
    if opened & STATE != RECORD:
        return acquire(True, timeout)
    start = _clock()
    seen(start)
    got = acquire(True, timeout)
    waited_ns = _clock() - start
    if window[0] == opened:
        (lock._ftgate_tally or _tally(lock)).waits.append(waited_ns)
    return got


def _ftgate_acquire_now(self: Any, blocking: bool = True, timeout: float = -1) -> bool:
    """For a Condition, which keeps a bound method: this one changes when acquisitions are counted."""
    return bool(self.acquire(blocking, timeout))


def _reduced(thing: Any, protocol: SupportsIndex) -> Any:
    """As an object of the raw type: TypeError, except where a subclass says how it is pickled."""
    kind: Any = type(thing)
    raw = kind._ftgate_raw
    if kind.__reduce__ is not object.__reduce__ or kind.__getstate__ is not object.__getstate__:
        return object.__reduce_ex__(thing, protocol)
    whole = f"{raw.__module__}.{raw.__name__}" if "_ftgate_raw" in kind.__dict__ else kind.__name__
    raise TypeError(f"cannot pickle {raw.__name__ if int(protocol) < 2 else whole!r} object")


class _Slots:
    """What releases a Lock: bound C methods, in whose place functions of this class stand while holds are timed."""

    __slots__ = ("__exit__", "release")


_EXIT: Any = vars(_Slots)["__exit__"]
_RELEASE: Any = vars(_Slots)["release"]


class Lock(_Slots, metaclass=_PosingSlots):
    """Replaces `threading.Lock`: a wrapped raw lock, whose type cannot be subclassed.

    Slots hold its bound C methods: a call that needs no timing costs no Python frame.
    """

    __slots__ = ("__weakref__", "_ftgate_acquire", "_ftgate_site", "_ftgate_tally")
    _ftgate_raw = _RawLock
    _ftgate_acquire: Callable[..., bool]
    _ftgate_site: Site
    _ftgate_tally: Tally | None
    if TYPE_CHECKING:
        release: Callable[[], None]

    def __new__(cls) -> Any:
        """A wrapped lock with the caller's line as its site; a raw lock for code of the standard library."""
        site = book.site(_getframe(1), "Lock", "lock")
        raw = allocate_lock()
        if site is None:
            return raw
        lock: Any = object.__new__(cls)
        lock._ftgate_acquire = raw.acquire
        try:
            lock.__exit__ = raw.__exit__
            lock.release = raw.release
        except AttributeError:  # holds are timed
            _EXIT.__set__(lock, raw.__exit__)
            _RELEASE.__set__(lock, raw.release)
        lock._ftgate_site = site
        lock._ftgate_tally = None
        return lock

    def __init_subclass__(cls) -> None:
        raise TypeError("type '_thread.lock' is not an acceptable base type")

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # isinstance() asks the type first and this next: for code that checks whether it has a raw lock.
        return _RawLock

    def __enter__(self) -> bool:
        return self._ftgate_acquire(False) or _wait(self, self._ftgate_acquire)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As for a raw lock, with the same errors; a wait is timed."""
        if timeout == -1:
            return self._ftgate_acquire(False) or (_wait(self, self._ftgate_acquire) if blocking else False)
        allocate_lock().acquire(blocking, timeout)  # Raises what a raw lock would raise.
        return self._ftgate_acquire(False) or (_wait(self, self._ftgate_acquire, timeout) if timeout else False)

    _ftgate_acquire_now = _ftgate_acquire_now

    def _ftgate_reacquire(self, state: object) -> None:
        """For a Condition: acquiring the lock again in Condition.wait() is part of that wait, not another."""
        self._ftgate_acquire()

    _ftgate_release = _ftgate_release  # for a Condition: a copy of it must not release another lock

    @property
    def _ftgate_lock(self) -> Any:
        return self._ftgate_acquire.__self__  # type: ignore[attr-defined]

    def locked(self) -> bool:
        """As for a raw lock."""
        return bool(self._ftgate_lock.locked())

    def _at_fork_reinit(self) -> None:
        self._ftgate_lock._at_fork_reinit()

    def __repr__(self) -> str:
        raw = self._ftgate_lock
        return repr(raw).replace(f" at {id(raw):#x}", f" at {id(self):#x}")

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _reduced(self, protocol)

    # Obsolete names that a raw lock still has.

    def acquire_lock(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As `acquire`."""
        return self.acquire(blocking, timeout)

    def release_lock(self) -> None:
        """As `release`."""
        self.release()

    locked_lock = locked


class RLock(_RawRLock, metaclass=_Posing):  # type: ignore[misc]
    """Replaces `threading.RLock`; to acquire it again never waits, and is not counted.

    It is a raw lock, so what is not timed, and what a user's subclass overrides or inherits, is as without the probe.
    """

    __slots__ = ("_ftgate_site", "_ftgate_tally")
    _ftgate_raw = _RawRLock
    _ftgate_site: Site
    _ftgate_tally: Tally | None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """As for Lock. Where somebody has replaced the raw type (gevent does), what `threading` makes of it."""
        if cls is RLock and (args or kwargs or not _native()):
            made = _rlock_factory(*args, **kwargs)  # Warns or raises as this Python version does.
            if type(made) is not _RawRLock:
                return made
        site = book.site(_getframe(1), "RLock", "lock")
        if site is None and cls is RLock:
            return _RawRLock()
        return cls._ftgate_at(site or Site("", 0, "RLock", "lock"))

    @classmethod
    def _ftgate_at(cls, site: Site) -> Any:
        """A new lock with its waits kept at `site`."""
        lock: Any = _RawRLock.__new__(cls)
        lock._ftgate_site = site
        lock._ftgate_tally = None
        return lock

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        kind = type(self)
        return _RawRLock if kind is RLock else kind

    def __enter__(self) -> bool:
        return _raw_acquire(self, False) or _wait(self, super().acquire)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As for a raw lock, with the same errors; a wait is timed."""
        if timeout == -1:
            return _raw_acquire(self, False) or (_wait(self, super().acquire) if blocking else False)
        allocate_lock().acquire(blocking, timeout)  # Raises what a raw lock would raise.
        return _raw_acquire(self, False) or (_wait(self, super().acquire, timeout) if timeout else False)

    _ftgate_acquire_now = _ftgate_acquire_now
    _ftgate_release = _ftgate_release

    def __repr__(self) -> str:
        text: str = super().__repr__()
        return text.replace(" RLock object", " _thread.RLock object", 1) if type(self) is RLock else text

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _reduced(self, protocol)


def _native() -> bool:
    """Whether `threading` makes its locks of the raw type."""
    return threading._CRLock is _RawRLock  # type: ignore[attr-defined]


# Each checks the window byte: a process that is not notified when it changes keeps these methods. While acquisitions
# are counted, a lock knows since when who holds it, so that its holds are timed and a wait is charged to the holder.


def _took(lock: Any, by: Any) -> bool:
    """Count an acquisition; the lock is held from now on by what runs in the frame `by`."""
    tally = lock._ftgate_tally or _tally(lock)
    tally.acquired += 1
    tally.took(taker(by), get_ident())
    return True


def _ended(lock: Any) -> None:
    """The lock is about to be released by its holder."""
    if lock._ftgate_tally is not None:
        lock._ftgate_tally.ended()


def _holder(lock: Any) -> tuple[Any, int, int] | None:
    return None if lock._ftgate_tally is None else lock._ftgate_tally.holder


def _charge(lock: Any, by: Any, acquire: Callable[..., bool], timeout: float = -1) -> bool:
    """Block, and charge the wait: to the last holder as long as that had the lock, the rest to the first one."""
    first = _holder(lock)
    start = _clock()
    if not acquire(True, timeout):
        return False
    end, last, opened = _clock(), _holder(lock), book.window[0]
    if last is not None and last[1] == opened:
        charges, waiter, since = (lock._ftgate_tally or _tally(lock)).charges, taker(by), max(start, last[2])
        charges.append((last[0], waiter, end - since, end - last[2]))
        if first is not last and first is not None and first[1] == opened:
            charges.append((first[0], waiter, since - start, -1))
    return True


def _acquired(lock: Any, by: Any, acquire: Callable[..., bool], blocking: bool, timeout: float) -> bool:
    """Acquire the raw lock for the frame `by`, with its own errors."""
    if timeout != -1:
        allocate_lock().acquire(blocking, timeout)
    return acquire(False) or (bool(blocking) and _charge(lock, by, acquire, timeout))


def _counting_enter(self: Any) -> bool:
    if book.window[0] & STATE != COUNT:
        return _enter(self)
    by, acquire = _getframe(1), self._ftgate_acquire
    return (acquire(False) or _charge(self, by, acquire)) and _took(self, by)


def _counting_acquire(self: Any, blocking: bool = True, timeout: float = -1) -> bool:
    if book.window[0] & STATE != COUNT:
        return _acquire(self, blocking, timeout)
    by = _getframe(1)
    return _acquired(self, by, self._ftgate_acquire, blocking, timeout) and _took(self, by)


def _rlock_acquired(lock: Any, by: Any, blocking: bool = True, timeout: float = -1) -> bool:
    got = _acquired(lock, by, lambda *words: _raw_acquire(lock, *words), blocking, timeout)
    if got and _RawRLock._recursion_count(lock) == 1:
        _took(lock, by)
    return got


def _counting_rlock_acquire(self: Any, blocking: bool = True, timeout: float = -1) -> bool:
    if book.window[0] & STATE != COUNT:
        return _rlock_acquire(self, blocking, timeout)
    return _rlock_acquired(self, _getframe(1), blocking, timeout)


def _counting_rlock_enter(self: Any) -> bool:
    return _rlock_enter(self) if book.window[0] & STATE != COUNT else _rlock_acquired(self, _getframe(1))


def _counting_release(self: Any) -> None:
    _ended(self)
    self._ftgate_lock.release()


def _counting_rlock_release(self: Any) -> None:
    if _RawRLock._recursion_count(self) == 1:
        _ended(self)
    _RawRLock.release(self)


def _counting_exit(self: Any, *exc_info: object) -> None:
    _counting_release(self)


def _counting_rlock_exit(self: Any, *exc_info: object) -> None:
    _counting_rlock_release(self)


_enter, _acquire, _rlock_enter, _rlock_acquire = Lock.__enter__, Lock.acquire, RLock.__enter__, RLock.acquire
_VARIANTS: tuple[tuple[Any, str, Any, Any], ...] = (
    (Lock, "__enter__", _counting_enter, _enter),
    (Lock, "acquire", _counting_acquire, _acquire),
    (_Slots, "__exit__", _counting_exit, _EXIT),
    (_Slots, "release", _counting_release, _RELEASE),
    (RLock, "__enter__", _counting_rlock_enter, _rlock_enter),
    (RLock, "acquire", _counting_rlock_acquire, _rlock_acquire),
    (RLock, "__exit__", _counting_rlock_exit, _RawRLock.__exit__),
    (RLock, "release", _counting_rlock_release, _RawRLock.release),
)


def _count(counting: bool) -> None:
    """Install the methods that count acquisitions and time holds, or restore the others."""
    for cls, name, counts, counts_not in _VARIANTS:
        setattr(cls, name, counts if counting else counts_not)


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
    if site is not None and lock is None and _native():
        lock = RLock._ftgate_at(book.site(frame, "Condition", "lock") or site)
    _condition_init(self, lock)
    if site is not None:
        self._ftgate_site = site
    if hasattr(lock, "_ftgate_acquire_now"):
        self.acquire = lock._ftgate_acquire_now
        self.release = lock._ftgate_release
    if type(lock) is Lock:
        self._acquire_restore = lock._ftgate_reacquire


def _condition_wait_timed(self: Any, timeout: float | None = None) -> bool:
    opened = book.window[0]
    if opened & STATE == COUNT and getattr(self._lock, "_ftgate_tally", None) is not None:
        return _condition_wait_let_go(self, self._lock._ftgate_tally, timeout)
    if self._ftgate_site is None or opened & STATE != RECORD or (timeout is not None and timeout <= 0):
        return _condition_wait(self, timeout)
    start = _clock()
    got = _condition_wait(self, timeout)
    keep(self, _clock() - start, opened)
    return got


def _condition_wait_let_go(self: Any, tally: Tally, timeout: float | None) -> bool:
    """While it waits its lock is not held."""
    holder = tally.holder
    tally.ended()
    try:
        return _condition_wait(self, timeout)
    finally:
        if holder is not None:
            tally.took(holder[0], get_ident())


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
    book.add_counter(_count)
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
    counting = (method for row in _VARIANTS if row[0] in cls.__mro__ for method in row[2:])
    for method in (*vars(cls).values(), *counting):
        if isinstance(method, FunctionType):
            method.__annotations__ = {}


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

        def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
            return _reduced(self, protocol)

    _pose(SimpleQueue, raw, "SimpleQueue", "queue")
    SimpleQueue.get.__doc__ = raw.get.__doc__
    return SimpleQueue
