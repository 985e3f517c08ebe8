"""Where one object's waits go: what the probes of multiprocessing and asyncio share."""

from __future__ import annotations

from time import perf_counter_ns

from .sites import Site, book

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .sites import Tally

clock = perf_counter_ns
ATTRIBUTE = "_ftgate_noted"
"""Where an object keeps its `Noted`; None on an inner one."""


class Noted:
    """One object's way to its site; the same site for all that one line makes, unless the user named one of them.

    `key` is what other processes know the object by; "" where none can. It is an object of its own, so that what
    times the object does not keep it alive.
    """

    __slots__ = ("key", "site")

    def __init__(self, site: Site, key: str = "") -> None:
        self.site = site
        self.key = key

    def wait(self, wait_ns: int, window: int) -> None:
        """Keep one wait that began when the window's byte was `window`, if it is that still.

        Any thread may, also one that did not get the lock in time.
        """
        if book.window[0] == window:
            self._tally().waits.append(wait_ns)

    def count(self) -> None:
        """Count one acquisition; several may hold a semaphore at once, and an append is atomic."""
        self._tally().counts.append(None)

    def _tally(self) -> Tally:
        """Asked for each time: a fork makes the site forget those that it had."""
        tallies = self.site.tallies
        return tallies[0] if tallies else self.site.tally()

    def rename(self, name: str) -> None:
        """From now on this object's waits stand under `name`, in every process that gets the object after this."""
        self.site = book.renamed(self.site, name)

    def share(self) -> None:
        """Leave what the other processes do not know (line, kind, name) beside the key, for whoever joins the files."""
        site = self.site
        if self.key and site.key != self.key:
            book.add((self.key, site.name), Site(site.file, site.line, site.kind, site.waits_for, site.name, self.key))

    def __reduce__(self) -> Any:
        """Travels as its key, a plain string, with an object that is pickled by its attributes."""
        self.share()
        return str, (self.key,)


def joined(key: str, kind: str, waits_for: str) -> Noted:
    """The `Noted` of an object that another process made: its line is not known here, only its key."""
    return Noted(book.add((key, ""), Site("", 0, kind, waits_for, "", key)), key)


def kind_of(thing: Any, package: str) -> str:
    """`asyncio.Lock`: the nearest class of the standard library's `package` that `thing` is one of."""
    for cls in type(thing).__mro__:
        if cls.__module__.partition(".")[0] == package:
            return f"{package}.{cls.__name__}"
    return f"{package}.{type(thing).__name__}"


def rename(thing: Any, name: str) -> None:
    """`_ftgate_rename` of the patched classes."""
    noted = getattr(thing, ATTRIBUTE, None)
    if isinstance(noted, Noted):
        noted.rename(name)
