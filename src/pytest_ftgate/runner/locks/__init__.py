"""The lock probe: wraps the locks of unchanged code, in every process and interpreter of a launch."""

from __future__ import annotations

from .sites import COUNT, OFF, OPENINGS, STATE, book
from .sites import RECORD as RECORD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    L = TypeVar("L")

fold = book.fold


def active() -> bool:
    """Whether this process and interpreter have the probe."""
    return bool(book.folder)


def install(folder: str) -> None:
    """Patch the modules that are imported, and others once they are; the start hook calls this before the workload.

    A second call does nothing. `folder` must hold the file WINDOW of one byte. Raises OSError.

    Acquisitions are not counted before `sync` is called, whatever the window byte is: a process that never learns of an
    iteration would count in some workers only, and the share of contended acquisitions would be wrong.
    """
    if active():
        return
    import atexit
    import os
    import threading

    from . import lifetimes
    from .imports import hook
    from .threads import patch

    book.open(folder)
    book.lifetimes = lifetimes.Lifetimes()
    patch()
    lifetimes.patch(threading)
    hook()
    # Registered first, so called last: waits in the workload's own exit functions are kept.
    atexit.register(book.write)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=book.forget)


def set_window(state: int) -> None:
    """Set what all processes of the launch keep from now on: OFF, RECORD or COUNT. For the main process only.

    Each call except with OFF opens a new window: a wait that began in an earlier one is dropped when it ends.
    """
    opened = (book.window[0] >> 2) + (state != OFF)
    book.window[0] = state | opened % OPENINGS << 2
    sync()


def sync() -> None:
    """Count acquisitions in this process if the window byte is COUNT: when an iteration starts, or the byte changes.

    The classes' methods are swapped, so that counting costs nothing while waits are recorded. Methods that count read
    the byte themselves, for processes that are not notified when it changes. A type can be changed about a thousand
    times before its look-ups are no longer cached: enough for hundreds of counted iterations.
    """
    counting = book.window[0] & STATE == COUNT
    if counting != book.counting:
        book.counting = counting
        for counter in book.counters:
            counter(counting)


def named(lock: L, name: str) -> L:
    """Give a wrapped lock (semaphore, condition, event, barrier, queue) a site with this name, and return the lock.

    Any other object, such as an inner lock of the standard library, is returned unchanged. An object may define
    `_ftgate_rename(name)`; otherwise its `_ftgate_site` is replaced and its `_ftgate_tally` dropped.
    """
    rename = getattr(lock, "_ftgate_rename", None)
    if callable(rename):
        rename(name)
    else:
        book.rename(lock, name)
    return lock
