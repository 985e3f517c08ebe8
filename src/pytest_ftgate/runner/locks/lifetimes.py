"""Which threads a process had and when, and which tasks waited: the time that waits are a share of.

A lifetime is noted when it begins and when it ends; the controller counts what lies in the measured iterations. A
thread that was not started by `threading` is noted at its first wait. So is a task, with the time at which it was
created: to follow every task to its end would cost more than many tasks do.
"""

from __future__ import annotations

import sys
from _thread import _local
from time import perf_counter_ns

from .sites import RECORD, STATE, book, interpreter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

INNER = (
    "concurrent.futures.process",
    "multiprocessing.queues",
    "multiprocessing.pool",
    "multiprocessing.resource_sharer",
)
"""Modules whose own threads only serve an object of the standard library, except the workers of a ThreadPool."""
HELPERS = ("resource_tracker", "forkserver")
"""Modules whose `main` is all that the main thread of a process runs."""

_mine = _local()


class Lifetime:
    """A thread or task since it began; `opened` is the window byte of that moment."""

    __slots__ = ("began_ns", "opened")

    def __init__(self, began_ns: int) -> None:
        self.began_ns = began_ns
        self.opened = book.window[0]

    def in_window(self) -> bool:
        """Whether a part of it may lie in an iteration that records waits."""
        now: int = book.window[0]
        return now != self.opened or now & STATE == RECORD


class Lifetimes:
    """The lifetimes of this process and interpreter. No lock is taken: each call on a list or dict is atomic."""

    def __init__(self) -> None:
        self.forget()
        if interpreter() or _is_helper():  # a sub-interpreter has no thread of its own
            self.leave_out_main()

    def forget(self) -> None:
        """Drop all; the main thread lives from now on. At the start, and in a forked child."""
        self.ended: list[tuple[int, int]] = []
        self.alive: dict[int, Lifetime] = {}
        self.main = self.begin()

    def begin(self, began_ns: int = 0) -> Lifetime:
        """A lifetime that began at `began_ns`, or now."""
        lifetime = Lifetime(began_ns or perf_counter_ns())
        self.alive[id(lifetime)] = lifetime
        return lifetime

    def end(self, lifetime: Lifetime) -> None:
        """End it, now."""
        self.alive.pop(id(lifetime), None)
        if lifetime.in_window():
            self.ended.append((lifetime.began_ns, perf_counter_ns()))

    def leave_out_main(self) -> None:
        """Do not count the main thread: it waits for the workers, or is one that the cell counts."""
        self.alive.pop(id(self.main), None)

    def until_now(self) -> list[tuple[int, int]]:
        """Begin and end of every lifetime that may matter, as of now for those that have not ended."""
        if _serves_manager():
            self.leave_out_main()
        now = perf_counter_ns()
        return self.ended + [(lifetime.began_ns, now) for lifetime in list(self.alive.values()) if lifetime.in_window()]


def _is_helper() -> bool:
    """Whether this process is multiprocessing's own, such as the resource tracker."""
    words = sys.orig_argv
    return "-c" in words[:-1] and any(f".{name} import main" in words[words.index("-c") + 1] for name in HELPERS)


def _serves_manager() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and hasattr(process.current_process(), "_manager_server")


def seen(began_ns: int) -> None:
    """Note a thread that waits, unless `threading` started it; `began_ns` is when the wait began."""
    try:
        _mine.known  # noqa: B018
    except AttributeError:
        _mine.known = True
        book.lifetimes.begin(began_ns)


def patch(module: ModuleType) -> None:
    """Note the lifetime of each thread that `threading` starts; the thread that calls this one is known."""
    _mine.known = True
    thread: Any = module.Thread  # type: ignore[attr-defined, unused-ignore]
    bootstrap = thread._bootstrap_inner

    def _bootstrap_inner(self: Any) -> None:
        _mine.known = True
        if _is_inner(self):
            return bootstrap(self)  # type: ignore[no-any-return]
        lifetimes = book.lifetimes
        lifetime = lifetimes.begin()
        try:
            bootstrap(self)
        finally:
            lifetimes.end(lifetime)

    thread._bootstrap_inner = _bootstrap_inner


def _is_inner(thread: Any) -> bool:
    target = getattr(thread, "_target", None)
    if target is None or type(thread).__module__ != "threading":
        return type(thread).__module__ in INNER
    return getattr(target, "__module__", "") in INNER or getattr(target, "__qualname__", "") == "Server.accepter"
