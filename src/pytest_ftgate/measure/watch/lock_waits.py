"""The files that the lock probe leaves, one a process and interpreter, merged into one launch's sites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path

import msgspec

from ...kit.errors import FtgateError
from ...kit.values import Count, Natural, Struct, grouped
from ...model.sample import Function, LockSite, LongestHeld, WaitsFor
from ...model.spec import Cell
from ...runner.locks.sites import BROKEN, WAITS
from ..marshalled import BrokenMessage, unmarshalled

SEEN = 0.75
"""The part of a lock's holds whose end has to be seen: one may begin or end outside of the iteration."""


class LockRecord(Struct, frozen=True, kw_only=True):
    """What one process and interpreter saw of a lock in the iterations that count acquisitions.

    `key` is what others know it by, empty where it is its own. `takers` are numbers of threads or tasks by window,
    `held` the file, line, function and ns of those that held it, by all of its `holds`.
    """

    key: str
    acquired: Natural
    takers: dict[Natural, Count]
    holds: Natural
    held: tuple[tuple[str, int, str, Natural], ...]


class SiteRecord(LockSite, frozen=True, kw_only=True):
    """One site as one process and interpreter wrote it.

    `file` is empty where another process made the lock; `key` is then what both know it by. `acquired` is 0 where
    acquisitions were not counted.
    """

    key: str = ""
    acquired: int = 0
    locks: tuple[LockRecord, ...] = ()


_Place = tuple[str, int, str, WaitsFor, str]


class File(Struct, frozen=True, kw_only=True):
    """What one process and interpreter wrote; `lifetimes` are those of its threads and of tasks that waited."""

    sites: tuple[SiteRecord, ...] = ()
    lifetimes: tuple[tuple[int, int], ...] = ()


def lived_ns(lifetimes: Iterable[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> int:
    parts = (min(end, last) - max(begin, first) for begin, end in lifetimes for first, last in spans)
    return sum(part for part in parts if part > 0)


def thread_ns(cell: Cell, work_ns: int, lived_ns: int) -> int:
    """The time of all threads and tasks that can wait in `work_ns` of measured iterations.

    Each worker has all of it. Workers that are threads or processes are among the lifetimes, also the pool's that
    a body drives; the main thread is not: it is a worker itself, drives the pool, or only waits for workers.
    """
    workers_ns = cell.workers * work_ns
    if cell.executor.kind in ("serial", "tasks"):
        return workers_ns + lived_ns
    return max(workers_ns, lived_ns) + (work_ns if cell.body == "executor" else 0)


def read(folder: Path) -> tuple[tuple[LockSite, ...], list[tuple[int, int]]]:
    """The merged sites and the lifetimes in all files of a launch's folder.

    Raises FtgateError that names a file that cannot be understood.
    """
    for broken in folder.glob("*" + BROKEN):
        raise FtgateError(f"{broken}: the lock waits of one process are not whole; make room on the disk")
    files: list[File] = []
    for path in sorted(folder.glob("*" + WAITS)):
        try:
            files.append(file_of(path.read_bytes()))
        except (OSError, ValueError) as error:
            fix = "run again; a disk that is full leaves such a file"
            raise FtgateError(f"{path}: the lock waits of one process cannot be read: {error}; {fix}") from error
    return merged(file.sites for file in files), [each for file in files for each in file.lifetimes]


def file_of(content: bytes) -> File:
    """What one process and interpreter wrote. Raises ValueError for anything else."""
    try:
        file = msgspec.convert(unmarshalled(content), File)
    except (BrokenMessage, RecursionError) as error:
        raise ValueError(str(error)) from error
    msgspec.json.encode(file)  # a name that no report can hold is an error here
    return file


def merged(files: Iterable[Iterable[SiteRecord]]) -> tuple[LockSite, ...]:
    """Sum the sites of all processes by (file, line, kind, waits_for, name), in that order.

    A site that has a key gets its line, kind and name from the process that knew them; where none did, it stays under
    an empty file. A site with neither waits nor acquisitions is left out.
    """
    sites = [site for file in files for site in file]
    # The place of each key: from whoever knew the line, under the name that anybody gave.
    known: dict[str, _Place] = {}
    for site in sites:
        if site.key:
            before = known.get(site.key, _place(site))
            best = _place(site) if site.file and not before[0] else before
            known[site.key] = (*best[:4], best[4] or before[4] or site.name)
    happened = (site for site in sites if site.contended or site.acquired)
    groups = grouped((known.get(site.key) or _place(site), site) for site in happened)
    found = []
    for (file, line, kind, waits_for, name), alike in sorted(groups.items(), key=itemgetter(0)):
        histogram: Counter[int] = Counter()
        for site in alike:
            histogram.update(site.histogram)
        found.append(
            LockSite(
                file=file,
                line=line,
                kind=kind,
                waits_for=waits_for,
                name=name,
                contended=sum(site.contended for site in alike),
                total_ns=sum(site.total_ns for site in alike),
                max_ns=max(site.max_ns for site in alike),
                histogram=dict(sorted(histogram.items())),
                acquisitions=sum(site.acquired for site in alike) or None,
                holders=tuple(each for site in alike for each in site.holders),
                longest=_longest([lock for site in alike for lock in site.locks]),
            )
        )
    return tuple(found)


def _longest(records: Sequence[LockRecord]) -> LongestHeld | None:
    """The lock that was held longest; None where the ends of many holds were not seen."""
    known, most_takers = [(0, 0, Counter[tuple[str, int, str]]())], 0
    for locks in grouped((record.key or f" {number}", record) for number, record in enumerate(records)).values():
        takers, held = Counter[int](), Counter[tuple[str, int, str]]()
        for lock in locks:
            takers.update(lock.takers)
            held.update({(file, line, name): held_ns for file, line, name, held_ns in lock.held})
        holds = sum(lock.holds for lock in locks)
        if holds < SEEN * sum(lock.acquired for lock in locks):
            return None
        most_takers = max(most_takers, *takers.values())
        known.append((held.total(), holds, held))
    held_ns, holds, held = max(known, key=itemgetter(0))
    if not holds:
        return None
    (file, line, name), _ = held.most_common(1)[0]
    return LongestHeld(held_ns=held_ns, holds=holds, by=Function(file=file, line=line, name=name), takers=most_takers)


def _place(site: SiteRecord) -> _Place:
    return site.file, site.line, site.kind, site.waits_for, site.name
