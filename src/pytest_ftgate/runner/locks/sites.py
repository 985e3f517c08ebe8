"""Where waits are kept: a tally per lock, a site per line that creates locks, a file per process and interpreter.

A contended acquisition is recorded while its lock is held. So that this is cheap, it is one append to the lock's own
list, which the lock itself protects. The lists become histograms between iterations, and a file at the end.
"""

from __future__ import annotations

import os
from importlib import import_module
from marshal import dumps
from time import perf_counter_ns

from ..protocol import MARSHAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import Any

    _Key = tuple[int, int, str, str]
    Taker = tuple[str, int, str]

FOLDER = "FTGATE_LOCKS"
"""The environment variable with a launch's folder for lock waits; the start hook installs the probe if it is set."""
WINDOW = "window"
"""The file in that folder with one byte, which every process of the launch maps: what to keep now, and the window.

The byte is state | (window number % OPENINGS) << 2. A wait is kept if it began in RECORD and the byte is the same at
its end: a wait over two iterations would include the pause between them.
"""
OFF, RECORD, COUNT = 0, 1, 2
STATE = 3
"""The bits of the byte that hold one of OFF, RECORD and COUNT."""
OPENINGS = 64
"""The number of windows that the byte can distinguish."""
WAITS = ".waits"
"""The suffix of the files of processes and interpreters, which are marshalled."""
BROKEN = ".broken"
"""The suffix of a file that is incomplete because the disk was full."""

LINEAR = 16
"""Buckets per octave, so that a bucket is at most 6.25 % wide."""

# Locks that these modules make are inner locks: they are timed as part of a primitive, or are not the workload's.
# Workers do contend for locks of other parts of the standard library, such as logging.
INNER = ("threading", "asyncio", "concurrent.futures", "multiprocessing", "_weakrefset", "importlib", "pytest_ftgate")
SERVED = ("multiprocessing.managers", "Server.create")
"""Module and function that make the locks of a Manager; their kinds begin with "Manager."."""
THROUGH = ("queue", "pytest_ftgate.runner.locks.threads")
"""Modules whose locks are attributed to their caller."""
TAKES = (*THROUGH, "contextlib")
"""Modules that take a lock on behalf of their caller."""


def bucket_of(wait_ns: int) -> int:
    """The bucket of a wait: exact below 32 ns, then 16 per octave. Two histograms are merged by adding counts."""
    if wait_ns < 2 * LINEAR:
        return max(0, wait_ns)
    shift = wait_ns.bit_length() - 5
    return (shift << 4) + (wait_ns >> shift)


def bounds_of(bucket: int) -> tuple[int, int]:
    """The waits of a bucket in ns: the lowest, and the first one above. The inverse of `bucket_of`."""
    if bucket < 2 * LINEAR:
        return bucket, bucket + 1
    shift = (bucket >> 4) - 1
    low = (bucket - (shift << 4)) << shift
    return low, low + (1 << shift)


class Tally:
    """One lock's waits in ns, and its acquisitions while these are counted. Only the holder of the lock writes it.

    `acquired` counts all since the start; `folded` of them are in the site's number. If several threads may hold the
    object at once, they append to `counts` instead. `charges` are waits that began while acquisitions were counted:
    (holder, waiter, ns waited, ns held, -1 where another held it in between), the first two as `taker` makes them.

    Holds are kept of a lock that one thread holds at a time, while acquisitions are counted: the `holder` of now or
    last, with the window and since when; `since` is 0 where nobody holds it; `held` is the time of the `holds` by
    taker, `takers` are (window, thread or task). `key` identifies it in other processes.
    """

    __slots__ = (
        "acquired",
        "charges",
        "counts",
        "folded",
        "held",
        "holder",
        "holds",
        "key",
        "since",
        "takers",
        "waits",
    )

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.waits: list[int] = []
        self.counts: list[None] = []
        self.charges: list[tuple[Taker, Taker, int, int]] = []
        self.forget()

    def forget(self) -> None:
        self.waits.clear()
        self.counts.clear()
        self.charges.clear()
        self.acquired = self.folded = self.since = self.holds = 0
        self.holder: tuple[Taker, int, int] | None = None
        self.held: dict[Taker, int] = {}
        self.takers: set[tuple[int, int]] = set()

    def took(self, by: Taker, who: int) -> None:
        """From now on it is held by a thread or task in the line `by`. For the holder, before it does anything else."""
        window = book.window[0]
        self.takers.add((window, who))
        self.since = now = perf_counter_ns()
        self.holder = (by, window, now)

    def ended(self) -> None:
        """The hold ends, if it is known since when; one that began in another window is not kept. For the holder."""
        since, holder, self.since = self.since, self.holder, 0
        if since and holder is not None and holder[1] == book.window[0]:
            self.held[holder[0]] = self.held.get(holder[0], 0) + perf_counter_ns() - since
            self.holds += 1

    def as_dict(self) -> dict[str, Any]:
        """As the controller reads it. Another thread may write at the same time."""
        places, takers = list(self.held.items()), dict[int, int]()
        for window, _ in self.takers.copy():
            takers[window] = takers.get(window, 0) + 1
        return {
            "key": self.key,
            "acquired": self.acquired,
            "takers": takers,
            "holds": self.holds,
            "held": [(*place, held_ns) for place, held_ns in places],
        }


class Site:
    """One line that creates locks of a kind, or one lock that the user named.

    `key` is set if processes share the lock: one of them knows the line, all know the key.
    """

    __slots__ = (
        "acquired",
        "contended",
        "file",
        "histogram",
        "holders",
        "key",
        "kind",
        "line",
        "max_ns",
        "name",
        "tallies",
        "total_ns",
        "waits_for",
    )

    def __init__(self, file: str, line: int, kind: str, waits_for: str, name: str = "", key: str = "") -> None:
        self.file = file
        self.line = line
        self.kind = kind
        self.waits_for = waits_for
        self.name = name
        self.key = key
        self.tallies: list[Tally] = []
        self.forget()

    def __reduce__(self) -> Any:
        """None in the copy of an object whose line this is."""
        return type(None), ()

    def forget(self) -> None:
        """Drop all waits: in a forked child, because the parent writes those. Locks keep their tallies."""
        for tally in self.tallies:
            tally.forget()
        self.histogram: dict[int, int] = {}
        self.holders: dict[Any, Any] = {}
        self.contended = self.total_ns = self.max_ns = self.acquired = 0

    def tally(self, key: str = "") -> Tally:
        """A new tally, for a lock that waits for the first time."""
        tally = Tally(key)
        self.tallies.append(tally)
        return tally

    def fold(self) -> None:
        """Move the lists of waits into the histogram. This takes a while: call it between iterations or at the end.

        Other threads may write the tallies at the same time, but not fold.
        """
        for tally in tuple(self.tallies):
            # Copy and cut in place: a wait that another thread appends in between is left for the next fold.
            waits = tally.waits[:]
            del tally.waits[: len(waits)]
            counted = len(tally.counts)
            del tally.counts[:counted]
            acquired = tally.acquired  # Only the holder of the lock writes it, so it is not reset here.
            self.acquired += counted + acquired - tally.folded
            tally.folded = acquired
            charges = tally.charges[:]
            del tally.charges[: len(charges)]
            for holder, waiter, waited_ns, held_ns in charges:
                held = self.holders.setdefault((*holder, *waiter[:2]), [0, {}])
                held[0] += waited_ns
                if held_ns >= 0:
                    held[1][bucket_of(held_ns)] = held[1].get(bucket_of(held_ns), 0) + 1
            for wait_ns in waits:
                bucket = bucket_of(wait_ns)
                self.histogram[bucket] = self.histogram.get(bucket, 0) + 1
            self.contended += len(waits)
            self.total_ns += sum(waits)
            self.max_ns = max(self.max_ns, max(waits, default=0))

    def as_dict(self) -> dict[str, Any]:
        """As the controller reads it."""
        site = {name: getattr(self, name) for name in self.__slots__ if name != "tallies"}
        holders = [(*place, *waits) for place, waits in self.holders.items()]
        site["name"] = "".join(self.name)  # marshal takes no subclass of str, such as a member of a StrEnum
        # Of the locks that other processes do not have two matter: the one held longest, and that with most takers.
        known = [tally for tally in self.tallies if tally.takers]
        local = [tally for tally in known if not tally.key]
        most = (lambda tally: sum(tally.held.copy().values())), (lambda tally: len(tally.takers))
        kept = {id(tally): tally for tally in known if tally.key}
        kept |= {id(tally): tally for each in most if local for tally in [max(local, key=each)]}
        return site | {
            "holders": [dict(zip(_HOLDER, holder, strict=True)) for holder in holders],
            "locks": [tally.as_dict() for tally in kept.values()],
        }


class Book:
    """All sites of this process and interpreter, and the window byte.

    `counters` are functions, called with True or False when counting of acquisitions starts or ends. `lifetimes` are
    those of this process's threads, once the probe is installed.
    """

    def __init__(self) -> None:
        self.window: Any = bytearray((OFF,))
        self.folder = ""
        self.counting = False
        self.counters: list[Callable[[bool], None]] = []
        self.lifetimes: Any = None
        self._sites: dict[Any, Site] = {}
        self._known: dict[_Key, Site | None] = {}
        self._codes: list[CodeType] = []

    def open(self, folder: str) -> None:
        """Map the launch's window byte; the file exists before any process of the launch starts."""
        from mmap import mmap

        with open(os.path.join(folder, WINDOW), "r+b") as file:
            self.window = memoryview(mmap(file.fileno(), 1))
        self.folder = folder

    def add_counter(self, counter: Callable[[bool], None]) -> None:
        """One for a module that may be imported while acquisitions are counted."""
        self.counters.append(counter)
        if self.counting:
            counter(True)

    def site(self, frame: FrameType | None, kind: str, waits_for: str) -> Site | None:
        """The site of a lock that `frame` creates; None for an inner lock, which is not wrapped.

        Frames of modules in THROUGH, and of generated code without a file (a dataclass's `__init__`), are skipped:
        their caller is taken.
        """
        if frame is None:
            return None
        # The id of the code, because its hash would read all of its instructions.
        key = (id(frame.f_code), frame.f_lasti, kind, waits_for)
        site = self._known.get(key, _UNKNOWN)
        return self._first(frame, key) if site is _UNKNOWN else site

    def _first(self, frame: FrameType, key: _Key) -> Site | None:
        """The site of a line that is new, or of a line that is skipped, which may belong to many sites."""
        whose = _user_of(frame)
        if whose is None:
            return None
        if whose is not frame:
            return self.site(whose, *key[2:])
        site = self._sites.get(key)
        if site is None:
            self._codes.append(frame.f_code)  # An id is unique only while its object lives.
            site = self._made(frame, key)
        if site is None or not _generated(frame):  # Each caller of generated code has its own site.
            self._known[key] = site
        return site

    def _made(self, frame: FrameType, key: _Key) -> Site | None:
        module, code, (_, _, kind, waits_for) = _module(frame), frame.f_code, key
        if is_inner(module, code):
            return None
        if (module, code.co_qualname) == SERVED:
            kind = f"Manager.{kind}"
        return self.add(key, Site(code.co_filename, frame.f_lineno, kind, waits_for))

    def add(self, key: Any, site: Site) -> Site:
        """Keep a site under a hashable key, unless there is one already; the site that is kept.

        No lock is held, because a signal handler or finalizer may create locks in between. For keys of built-in types
        this one call is atomic.
        """
        return self._sites.setdefault(key, site)

    def renamed(self, site: Site, name: str) -> Site:
        """The site of locks of `site` that the user gave this name."""
        key = (site.file, site.line, site.kind, site.waits_for, name, site.key)
        return self.add(key, Site(site.file, site.line, site.kind, site.waits_for, name, site.key))

    def rename(self, lock: Any, name: str) -> None:
        """Keep the waits of an object under `name`, if it has a site in `_ftgate_site`."""
        site = getattr(lock, "_ftgate_site", None)
        if isinstance(site, Site):
            lock._ftgate_site = self.renamed(site, name)
            if getattr(lock, "_ftgate_tally", None) is not None:
                lock._ftgate_tally = None  # its tally belongs to the old site

    def fold(self) -> None:
        """Fold every site, between iterations, so that lists of waits stay short; see Site.fold."""
        for site in self._all():
            site.fold()

    def forget(self) -> None:
        """Drop all waits and lifetimes, in a forked child: the parent writes them."""
        for site in self._all():
            site.forget()
        self.lifetimes.forget()

    def _all(self) -> list[Site]:
        """All sites. Other threads may add some: `list` of dict values is atomic on both builds, `tuple` is not."""
        return list(self._sites.values())

    def write(self) -> None:
        """Write this process's file, or replace it. Never raises OSError: the workload must not fail by it.

        If the disk is full, a file with the suffix BROKEN is left, which the controller reports as an error. A site
        without waits is written too if it has a key: another process may need its line.
        """
        if not self.folder:
            return
        self.fold()
        sites = [site.as_dict() for site in self._all() if site.contended or site.acquired or site.key]
        lifetimes = self.lifetimes.until_now()
        if not (sites or lifetimes):
            return
        content = dumps({"sites": sites, "lifetimes": lifetimes}, MARSHAL)
        path = os.path.join(self.folder, f"{os.getpid()}-{interpreter()}{WAITS}")
        try:
            os.replace(path + ".part", path if _written(path + ".part", content) else path + BROKEN)
        except OSError:
            pass


def taker(frame: Any) -> Taker:
    """Who takes a lock in a frame: the file, line and function of the code that is not the lock's own."""
    while frame.f_back is not None and (_module(frame) in TAKES or is_inner(_module(frame), frame.f_code)):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__") or ""


def _generated(frame: FrameType) -> bool:
    """Whether the code of a frame has no file: made by `exec`, like a dataclass's `__init__`, or frozen."""
    return frame.f_code.co_filename.startswith("<")


def _user_of(frame: FrameType | None) -> FrameType | None:
    """The frame that a lock is attributed to: `frame`, or one of its callers.

    For generated code it is the caller, unless that is inner code, such as the code that starts a thread, or missing.
    """
    while frame is not None and _module(frame) in THROUGH:
        frame = frame.f_back
    if frame is None or not _generated(frame) or is_inner(_module(frame), frame.f_code):
        return frame
    caller = frame.f_back
    while caller is not None and (_generated(caller) or _module(caller) in THROUGH):
        caller = caller.f_back
    return frame if caller is None or is_inner(_module(caller), caller.f_code) else caller


def _written(path: str, content: bytes) -> bool:
    """Write the file; False if there was no room for all of it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        return os.write(descriptor, content) == len(content)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def is_inner(module: str, code: CodeType) -> bool:
    """Whether the locks that this code makes are inner locks."""
    if module.partition(".")[0] not in _FIRST or not module.startswith(INNER):
        return False
    return (module, code.co_qualname) != SERVED


_HOLDER = ("file", "line", "function", "waiter_file", "waiter_line", "waited_ns", "held")
_UNKNOWN: Any = object()
_FIRST = frozenset(name.partition(".")[0] for name in INNER)


def interpreter() -> int:
    """The number of this interpreter in its process; 0 is the main one."""
    try:
        return int(import_module("_interpreters").get_current()[0])
    except ImportError:
        return 0


book = Book()
"""The book of this process and interpreter; interpreters never share a module."""
