"""Where waits are kept: a tally a lock, a site a line that creates locks, one file a process and interpreter.

What a contended acquisition costs is paid while its lock is held, so it is one append to the lock's own list, which
the lock itself protects. Lists become histograms between turns, and at the end a file.
"""

from __future__ import annotations

import os
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import Any

    _Key = tuple[int, int, str, str]

FOLDER = "FTGATE_LOCKS"
"""The environment variable that holds a launch's folder for lock waits; the start hook is at work where it is set."""
WINDOW = "window"
"""The file in it whose one byte every process of the launch sees: what is to be kept now, and which opening it is.

The byte is state | (opening % OPENINGS) << 2. A wait is kept if it began in RECORD and the byte is the same at its end.
One that straddles two turns would be charged with the pause between them.
"""
OFF, RECORD, COUNT = 0, 1, 2
STATE = 3
"""The bits of the byte that hold one of OFF, RECORD and COUNT."""
OPENINGS = 64
"""How many openings of the window the byte tells apart."""
BROKEN = ".broken"
"""The end of a file's name that a full disk has cut."""

LINEAR = 16
"""Buckets to an octave, so that a bucket is at most 6.25 % wide."""

# Locks that these make are their own inner ones: what they wait for is timed as a whole, or is not the workload's.
# A lock that other parts of the standard library make (logging's, say) is one that the workload contends for.
INNER = ("threading", "asyncio", "concurrent.futures", "multiprocessing", "_weakrefset", "importlib", "pytest_ftgate")
SERVED = ("multiprocessing.managers", "Server.create")
"""Module and function that make the locks which a workload asks a Manager for; their kinds begin with "Manager."."""
THROUGH = ("queue", "pytest_ftgate.runner.locks.threads")
"""Modules whose locks belong to whoever called them."""


def bucket_of(wait_ns: int) -> int:
    """The bucket of a wait: exact below 32 ns, then sixteen to an octave. Merging two histograms is adding counts."""
    if wait_ns < 2 * LINEAR:
        return max(0, wait_ns)
    shift = wait_ns.bit_length() - 5
    return (shift << 4) + (wait_ns >> shift)


def bounds_of(bucket: int) -> tuple[int, int]:
    """The waits of a bucket in ns: lowest, and the first above it. The inverse of `bucket_of`."""
    if bucket < 2 * LINEAR:
        return bucket, bucket + 1
    shift = (bucket >> 4) - 1
    low = (bucket - (shift << 4)) << shift
    return low, low + (1 << shift)


class Tally:
    """One lock's waits in ns, and its acquisitions while they are counted. Whoever holds the lock writes it.

    `acquired` is all since the start, of which `folded` is in the site's number. Where several may hold at once they
    append to `counts` instead, whatever it be.
    """

    __slots__ = ("acquired", "counts", "folded", "waits")

    def __init__(self) -> None:
        self.waits: list[int] = []
        self.counts: list[None] = []
        self.acquired = self.folded = 0


class Site:
    """One line that creates locks of a kind, or one lock that the user named.

    `key` is set where a lock is shared between processes: one of them knows the line, all know the key.
    """

    __slots__ = (
        "acquired",
        "contended",
        "file",
        "histogram",
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

    def forget(self) -> None:
        """As if nothing had waited: after a fork, where the parent writes what was before. Locks keep their tallies."""
        for tally in self.tallies:
            tally.waits.clear()
            tally.counts.clear()
            tally.acquired = tally.folded = 0
        self.histogram: dict[int, int] = {}
        self.contended = self.total_ns = self.max_ns = self.acquired = 0

    def tally(self) -> Tally:
        """A new tally; one a lock, and none before it waits."""
        tally = Tally()
        self.tallies.append(tally)
        return tally

    def fold(self) -> None:
        """The lists of waits become the histogram. While workers wait, or at the end: it takes a while.

        Other threads may write the tallies meanwhile, but not fold.
        """
        for tally in tuple(self.tallies):
            # In place, a copy and a cut: what another thread appends meanwhile is kept for the next fold.
            waits = tally.waits[:]
            del tally.waits[: len(waits)]
            counted = len(tally.counts)
            del tally.counts[:counted]
            acquired = tally.acquired  # Only its lock's holder writes it: not set back here.
            self.acquired += counted + acquired - tally.folded
            tally.folded = acquired
            for wait_ns in waits:
                bucket = bucket_of(wait_ns)
                self.histogram[bucket] = self.histogram.get(bucket, 0) + 1
            self.contended += len(waits)
            self.total_ns += sum(waits)
            self.max_ns = max(self.max_ns, max(waits, default=0))

    def as_json(self) -> str:
        """In the words of the file that the controller reads. Without `json`, whose import every child would pay."""
        texts = [f'"{name}":{_quoted(getattr(self, name))}' for name in ("file", "kind", "waits_for", "name", "key")]
        counts = [f'"{name}":{getattr(self, name)}' for name in _COUNTS]
        histogram = ",".join([f'"{bucket}":{count}' for bucket, count in self.histogram.items()])
        return '{%s,%s,"histogram":{%s}}' % (",".join(texts), ",".join(counts), histogram)  # noqa: UP031


class Book:
    """All sites of this process and interpreter, and the byte that says what is to be kept now.

    `counters` are called with whether acquisitions are to be counted from now on, at each change of that.
    """

    def __init__(self) -> None:
        self.window: Any = bytearray((OFF,))
        self.folder = ""
        self.counters: list[Callable[[bool], None]] = []
        self._sites: dict[Any, Site] = {}
        self._known: dict[_Key, Site | None] = {}
        self._codes: list[CodeType] = []

    def open(self, folder: str) -> None:
        """Share the launch's window byte; the file is there before any process of the launch starts."""
        from mmap import mmap

        with open(os.path.join(folder, WINDOW), "r+b") as file:
            self.window = memoryview(mmap(file.fileno(), 1))
        self.folder = folder

    def site(self, frame: FrameType | None, kind: str, waits_for: str) -> Site | None:
        """The site of a lock that `frame` creates; None for an inner lock, which is left alone.

        `frame` is that of the call. Frames of modules in THROUGH, and of generated code that has no file (a
        dataclass's `__init__`), are passed by, to whoever called them.
        """
        if frame is None:
            return None
        # The code's id: its hash walks over all of its instructions.
        key = (id(frame.f_code), frame.f_lasti, kind, waits_for)
        found = self._known.get(key, _UNKNOWN)
        return self._first(frame, key) if found is _UNKNOWN else found

    def _first(self, frame: FrameType, key: _Key) -> Site | None:
        """The site of a line that is seen for the first time, and of a line that is passed by, which has many."""
        whose = _user_of(frame)
        if whose is None:
            return None
        if whose is not frame:
            return self.site(whose, *key[2:])
        site = self._sites.get(key)
        if site is None:
            self._codes.append(frame.f_code)  # An id is only good while the object lives.
            site = self._made(frame, key)
        if site is None or not _generated(frame):  # Another caller of generated code may be another site.
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
        """Keep a site under a key of any hashable kind; the one that is there already wins.

        No lock is held: what a signal or a finalizer runs in between may create locks too. For keys of the built-in
        types this one call is atomic.
        """
        return self._sites.setdefault(key, site)

    def renamed(self, site: Site, name: str) -> Site:
        """The site of a lock of `site` that the user named: one for each name."""
        key = (site.file, site.line, site.kind, site.waits_for, name, site.key)
        return self.add(key, Site(site.file, site.line, site.kind, site.waits_for, name, site.key))

    def fold(self) -> None:
        """Fold every site; see Site.fold."""
        for site in self._all():
            site.fold()

    def forget(self) -> None:
        """In a forked child: what was before is the parent's to write."""
        for site in self._all():
            site.forget()

    def _all(self) -> list[Site]:
        """Other threads may add sites meanwhile: `list` of a dict's values is atomic on both builds, `tuple` is not."""
        return list(self._sites.values())

    def write(self) -> None:
        """Leave this process's file; called again it replaces it. Never raises: it is no workload.

        Where the disk is full a broken one is left, which the controller takes for an error.

        A site that nothing waited at is written too where another process may need its line (it has a key).
        """
        self.fold()
        sites = [site.as_json() for site in self._all() if site.contended or site.acquired or site.key]
        if not (sites and self.folder):
            return
        text = f"[{','.join(sites)}]".encode()
        path = os.path.join(self.folder, f"{os.getpid()}-{_interpreter()}.json")
        try:
            os.replace(path + ".part", path if _written(path + ".part", text) else path + BROKEN)
        except OSError:
            pass


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__") or ""


def _generated(frame: FrameType) -> bool:
    """Whether the code of a frame has no file: made by `exec`, as a dataclass's `__init__`, or frozen."""
    return frame.f_code.co_filename.startswith("<")


def _user_of(frame: FrameType | None) -> FrameType | None:
    """The frame whose line a lock is created at, of those from `frame` up; `frame` itself where it is that line.

    A line of generated code tells little: the line that called it is taken, unless that is the standard library's that
    started the thread, say, or there is none.
    """
    while frame is not None and _module(frame) in THROUGH:
        frame = frame.f_back
    if frame is None or not _generated(frame) or is_inner(_module(frame), frame.f_code):
        return frame
    caller = frame.f_back
    while caller is not None and (_generated(caller) or _module(caller) in THROUGH):
        caller = caller.f_back
    return frame if caller is None or is_inner(_module(caller), caller.f_code) else caller


def _written(path: str, text: bytes) -> bool:
    """Whether there was room for all of it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        return os.write(descriptor, text) == len(text)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def is_inner(module: str, code: CodeType) -> bool:
    """Whether locks that this code of a module makes are inner ones."""
    if module.partition(".")[0] not in _FIRST or not module.startswith(INNER):
        return False
    return (module, code.co_qualname) != SERVED


def _quoted(text: str) -> str:
    """A JSON string."""
    return '"' + "".join([letter if letter in _PLAIN else _escaped(letter) for letter in text]) + '"'


def _escaped(letter: str) -> str:
    code = ord(letter)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD7C0 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


_COUNTS = ("line", "contended", "total_ns", "max_ns", "acquired")
_PLAIN = frozenset(map(chr, range(32, 127))) - frozenset('"\\')
_UNKNOWN: Any = object()
_FIRST = frozenset(name.partition(".")[0] for name in INNER)


def _interpreter() -> int:
    """This interpreter's number among those of the process; 0 is the main one."""
    try:
        return int(import_module("_interpreters").get_current()[0])
    except ImportError:
        return 0


book = Book()
"""This process's and interpreter's own; a module is never shared between interpreters."""
