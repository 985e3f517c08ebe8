"""The rows of a run, and the tables that are made of them."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import msgspec

from ..kit.errors import FtgateError
from ..kit.files import write_whole
from ..kit.values import grouped
from ..measure.launchers import words
from ..model.report import PlacedRow, Row, Table
from ..model.sample import in_memory
from ..model.spec import Group, Interpreter, Plan
from .folder import RunFolder, decoded
from .privacy import encoded, packed, redacted


class RowStore:
    """The rows of a run: those of the tests that ended in this process, and in files those of all its processes."""

    def __init__(self, folder: RunFolder, warn: Callable[[str], object]) -> None:
        self.folder = folder
        self.warn = warn
        self.unwritten = False
        """Whether rows could not be written: only this process has them."""
        self._known: dict[str, dict[str, PlacedRow]] = {}
        """By the key of a test that has ended, by node id: its rows, measured here or read."""
        self._in_part: dict[str, PlacedRow] = {}
        self._begun: Path | None = None
        self._spool: IO[bytes] | None = None

    def has(self, group: Group) -> bool:
        """Whether a test has ended, in any process."""
        return group.key in self._known or self._file("rows", group.key).exists()

    def of(self, group: Group) -> dict[str, PlacedRow]:
        """By node id: the rows of a test that has ended. Raises FtgateError."""
        if group.key not in self._known:
            self._known[group.key] = self._read(self._file("rows", group.key))
        return self._known[group.key]

    def add(self, group: Group, rows: Iterable[PlacedRow]) -> None:
        """Keep the rows of a test that has ended, and write them for the other processes.

        An empty file says of rows that cannot be written that there are some: making one takes no room.
        """
        path, public = self._file("rows", group.key), redacted(rows, self.keep)
        self._known[group.key] = _by_nodeid(public)
        try:
            write_whole(path, [encoded(public)])
        except OSError as error:
            self.unwritten = True
            why = error.strerror or str(error)
            self.warn(f"{path}: the rows of {group.key} cannot be kept: {why}; they are held in memory")
            with contextlib.suppress(OSError):
                path.touch()

    def add_part(self, rows: Iterable[PlacedRow]) -> None:
        """Keep what was measured of a test that does not end: for the report of this process alone."""
        self._in_part |= _by_nodeid(redacted(rows, self.keep))

    def begin(self, group: Group, lost: Iterable[PlacedRow]) -> None:
        """From now on this test is measured here: these are its rows if this process is killed.

        No other process measures that test again: it may have killed this one.
        """
        self.end()
        self._begun = self._file("begun", group.key)
        with contextlib.suppress(OSError):  # the test may still be measured where nothing can be written
            write_whole(self._begun, [encoded(redacted(lost))])

    def end(self) -> None:
        """Nothing is measured any more."""
        if self._begun is not None:
            self._begun.unlink(missing_ok=True)
            self._begun = None

    def keep_lost(self) -> None:
        """What another process began to measure and did not end is an error: who began it held the lock."""
        for path in self._files("begun"):
            kept = path.with_name(path.name.replace("begun-", "rows-"))
            if kept.exists():
                path.unlink()
            else:
                path.replace(kept)

    def all(self, crashed: Collection[str] = ()) -> dict[str, PlacedRow]:
        """By node id: the rows of every process of this run, whether they were asked for or not.

        Of a test that was interrupted in this process, too: what was measured until then. And errors for the test in
        whose measurement a process ended, if these `crashed` cells are of it.
        """
        begun = map(self._read, self._files("begun") if crashed else ())
        lost = [rows for rows in begun if not rows.keys().isdisjoint(crashed)]
        known = {self._file("rows", key) for key in self._known}
        others = [self._read(path) for path in self._files("rows") if path not in known and path.stat().st_size]
        found: dict[str, PlacedRow] = {}
        for rows in (*lost, self._in_part, *others, *self._known.values()):
            found |= rows
        return found

    def keep_spent(self, worker: str, seconds: dict[str, float]) -> None:
        """Write where the time of this process went, by kind, for the one that makes the report."""
        with contextlib.suppress(OSError, FtgateError):
            write_whole(self._file("spent", worker), [msgspec.json.encode(seconds)])

    def spent(self) -> list[dict[str, float]]:
        """What each process has written of its seconds. Raises FtgateError."""
        return [decoded(path, dict[str, float]) for path in self._files("spent")]

    def keep(self, data: bytes) -> Callable[[], bytes]:
        """Keep what a sample holds: in a file without a name, in memory where there is no room."""
        try:
            if self._spool is None:
                self.folder.make()
                self._spool = TemporaryFile(dir=self.folder.run)  # noqa: SIM115 -- for as long as these rows
                weakref.finalize(self, self._spool.close)
            place = self._spool.seek(0, os.SEEK_END)
            self._spool.write(data)
            self._spool.flush()
        except (OSError, FtgateError):
            return in_memory(data)
        return partial(self._kept, place, len(data))

    def _kept(self, place: int, count: int) -> bytes:
        assert self._spool is not None
        self._spool.seek(place)
        return self._spool.read(count)

    def _read(self, path: Path) -> dict[str, PlacedRow]:
        """By node id: the rows that another process wrote. Raises FtgateError."""
        if not path.stat().st_size:
            raise FtgateError(f"{path}: its rows could not be written, so only the process that measured them has them")
        return _by_nodeid(packed(decoded(path, list[PlacedRow]), self.keep))

    def _file(self, kind: str, key: str) -> Path:
        return self.folder.shared(kind, key)

    def _files(self, kind: str) -> list[Path]:
        return sorted(self.folder.run.glob(f"{kind}-*.json"))


def _by_nodeid(rows: Iterable[PlacedRow]) -> dict[str, PlacedRow]:
    return {each.row.cell.nodeid: each for each in rows}


def positions_of(plan: Plan) -> dict[str, int]:
    """By node id: the place of each cell in the report."""
    return {cell.nodeid: place for place, cell in enumerate(cell for group in plan for cell in group.cells)}


def placed_row(position: int, group: Group, row: Row, note: str = "") -> PlacedRow:
    """A row with its place in the report, and a note on how its test was measured."""
    # What the ratios of a test refer to: its first executor, of servers on the first target.
    label = group.spec.executors[0].label
    first = next((cell for cell in group.cells if cell.executor.label == label), group.cells[0])
    return PlacedRow(
        table=group.key,
        reference=f"{first.target.spec}-{label}" if first.body == "server" else label,
        position=position,
        row=row,
        thresholds=group.spec.thresholds,
        gated=group.spec.gated,
        note=note,
    )


def tables_of(rows: Iterable[PlacedRow]) -> tuple[Table, ...]:
    """One table for each group, in the order of the plan."""
    ordered = sorted(rows, key=lambda placed: placed.position)
    tables = []
    for title, group in grouped((placed.table, placed) for placed in ordered).items():
        # Whether a server and its load generator share CPUs.
        shared = words.cpus_note() if group[0].row.cell.body == "server" else ""
        tables.append(
            Table(
                title=title,
                rows=tuple(placed.row for placed in group),
                reference=group[0].reference,
                note="; ".join(filter(None, (shared, *dict.fromkeys(placed.note for placed in group)))),
                thresholds=group[0].thresholds,
                gated=group[0].gated,
            )
        )
    return tuple(tables)


def interpreters_of(tables: Iterable[Table]) -> tuple[Interpreter, ...]:
    """Every interpreter that was measured, once."""
    by_key: dict[str, Interpreter] = {}
    for table in tables:
        for row in table.rows:
            for sample in (row.sample, row.sample and row.sample.reference):
                if sample is not None:
                    by_key.setdefault(sample.key, sample.interpreter)
    return tuple(by_key.values())
