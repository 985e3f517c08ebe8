"""Where the waits of one object are kept: shared by the probes of multiprocessing and asyncio."""

from __future__ import annotations

from time import perf_counter_ns

from .sites import Site, book, taker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .sites import Tally

clock = perf_counter_ns
ATTRIBUTE = "_ftgate_recorder"
"""The attribute in which an object keeps its `Recorder`; None for an inner object."""


class Recorder:
    """Leads from one object to its site. Objects made by one line share a site, unless the user named one of them.

    `key` identifies the object in other processes; "" if no other process can have it. A wrapper holds the `Recorder`
    and not the object, so that it does not keep the object alive. `shared` is the key of a lock's holds, which forked
    processes inherit without a name.
    """

    __slots__ = ("key", "lock", "shared", "site")

    def __init__(self, site: Site, key: str = "", shared: str = "") -> None:
        self.site = site
        self.key = key
        self.shared = shared or key
        self.lock: Tally | None = None

    def wait(self, wait_ns: int, window: int) -> None:
        """Keep one wait if the window byte is still `window`, as it was when the wait began.

        Any thread may call this, also one whose wait timed out.
        """
        if book.window[0] == window:
            self._tally().waits.append(wait_ns)

    def count(self) -> None:
        """Count one acquisition. Several threads may hold a semaphore at once, and an append is atomic."""
        self._tally().counts.append(None)

    def took(self, frame: Any, who: int, *, again: bool = False) -> None:
        """The lock is held from now on, by a thread or task that runs in the frame; `again`, after Condition.wait."""
        if self.lock is None:
            self.lock = self.site.tally(self.shared)
        self.lock.acquired += not again
        self.lock.took(taker(frame), who)

    def ended(self) -> None:
        """The lock is about to be released by its holder."""
        if self.lock is not None:
            self.lock.ended()

    def _tally(self) -> Tally:
        """The site's one tally for all of its objects, made when the first of them needs it."""
        tallies = self.site.tallies
        return tallies[0] if tallies else self.site.tally()

    def rename(self, name: str) -> None:
        """From now on keep this object's waits under `name`, also in each process that receives the object later."""
        self.site, self.lock = book.renamed(self.site, name), None

    def share(self) -> None:
        """Write line, kind and name, which other processes do not know, under the key by which the files are joined."""
        site = self.site
        if self.key and site.key != self.key:
            book.add((self.key, site.name), Site(site.file, site.line, site.kind, site.waits_for, site.name, self.key))

    def __reduce__(self) -> Any:
        """Pickled as its key, a plain string, with an object that is pickled by its attributes."""
        self.share()
        return str, (self.key,)


def joined(key: str, kind: str, waits_for: str) -> Recorder:
    """The `Recorder` of an object that another process made: here only its key is known, not its line."""
    return Recorder(book.add((key, ""), Site("", 0, kind, waits_for, "", key)), key)


def kind_of(thing: Any, package: str) -> str:
    """The first class of the standard library's `package` among the classes of `thing`, such as `asyncio.Lock`."""
    for cls in type(thing).__mro__:
        if cls.__module__.partition(".")[0] == package:
            return f"{package}.{cls.__name__}"
    return f"{package}.{type(thing).__name__}"


def release_anew(conditions: Mapping[int, Any]) -> None:
    """Conditions keep the bound `release` of their lock, which is another one while holds are timed."""
    for condition in list(conditions.values()):
        condition.release = condition._lock.release


def rename(thing: Any, name: str) -> None:
    """`_ftgate_rename` of the patched classes."""
    recorder = getattr(thing, ATTRIBUTE, None)
    if isinstance(recorder, Recorder):
        recorder.rename(name)
