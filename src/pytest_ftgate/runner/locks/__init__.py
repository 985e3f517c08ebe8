"""The lock probe: wraps the locks of code that knows nothing of it, in every process and interpreter of a launch."""

from __future__ import annotations

from .sites import COUNT, FOLDER, OFF, OPENINGS, RECORD, STATE, WINDOW, Site, book

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    L = TypeVar("L")

__all__ = [
    "COUNT",
    "FOLDER",
    "OFF",
    "RECORD",
    "WINDOW",
    "active",
    "book",
    "fold",
    "install",
    "named",
    "set_window",
    "sites",
    "sync",
]

_counting = False


def active() -> bool:
    """Whether this process and interpreter have the probe."""
    return bool(book.folder)


def install(folder: str) -> None:
    """Patch what is imported and what will be; called by the start hook before anything of the workload.

    Once for an interpreter, however often it is called. `folder` must hold the file WINDOW of one byte: OSError if not.

    Acquisitions are not counted before `sync` is called, whatever the window says: who is never told of a turn would
    count in some workers alone, and the share of contended acquisitions would be wrong.
    """
    if active():
        return
    import atexit
    import os

    from .imports import hook
    from .threads import patch

    book.open(folder)
    patch()
    hook()
    # First registered is last called: what the workload does at exit is seen.
    atexit.register(book.write)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=book.forget)


def set_window(state: int) -> None:
    """Main alone: what all processes of the launch keep from now on (OFF, RECORD or COUNT).

    Each call but OFF's opens a window of its own: a wait that began in an earlier one is dropped when it ends.
    """
    opened = (book.window[0] >> 2) + (state != OFF)
    book.window[0] = state | opened % OPENINGS << 2
    sync()


def fold() -> None:
    """Waits that were kept so far become histograms: between turns, so that their lists do not grow with a launch.

    Others may keep waits meanwhile, or create locks; no two threads may fold at once.
    """
    book.fold()


def sync() -> None:
    """Count acquisitions here if the window says so: at a worker's start of a turn, and where the window changes.

    The classes' methods are swapped, so that counting costs nothing while waits are recorded; those that count look at
    the window themselves, for processes that are not told when it changes. A type can be changed about a thousand times
    before its look-ups stop being cached: enough for hundreds of counted turns.
    """
    global _counting
    counting = book.window[0] & STATE == COUNT
    if counting != _counting:
        _counting = counting
        for counter in book.counters:
            counter(counting)


def named(lock: L, name: str) -> L:
    """Give a lock (or semaphore, condition, event, barrier, queue) of the probe a site of its own; returns that lock.

    Anything else is returned as it is: a launch without the probe, and inner locks of the standard library. An object
    may define `_ftgate_rename(name)`, else its `_ftgate_site` is replaced and its `_ftgate_tally` dropped.
    """
    rename = getattr(lock, "_ftgate_rename", None)
    site = getattr(lock, "_ftgate_site", None)
    if callable(rename):
        rename(name)
    elif isinstance(site, Site):
        lock._ftgate_site = book.renamed(site, name)  # type: ignore[attr-defined]
        if getattr(lock, "_ftgate_tally", None) is not None:
            lock._ftgate_tally = None  # type: ignore[attr-defined]
    return lock
