"""The rows of a run, and the tables that are made of them."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from tempfile import TemporaryFile
from typing import IO

from ..kit.errors import FtgateError
from ..kit.values import grouped
from ..measure.launchers import pinning
from ..model.report import PlacedRow, Row, Table
from ..model.sample import in_memory
from ..model.spec import Group, Interpreter, Plan
from .folder import RunFolder
from .privacy import redacted


class RowStore:
    """The rows of a run as they are recorded, by node id, whether they were asked for or not."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.by_nodeid: dict[str, PlacedRow] = {}
        self._spool: IO[bytes] | None = None

    def add(self, rows: Iterable[PlacedRow]) -> None:
        """Keep rows without what must not leave the machine, their samples packed."""
        self.by_nodeid |= {placed.row.cell.nodeid: placed for placed in redacted(rows, self.keep)}

    def keep(self, data: bytes) -> Callable[[], bytes]:
        """Keep what a sample holds: in a file without a name, in memory where there is no room."""
        try:
            if self._spool is None:
                self.folder.make()
                self._spool = TemporaryFile(dir=self.folder.path)  # noqa: SIM115 -- for as long as these rows
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


def positions_of(plan: Plan) -> dict[str, int]:
    """By node id: the place of each cell in the report."""
    return {cell.nodeid: place for place, cell in enumerate(cell for group in plan for cell in group.cells)}


def placed_row(position: int, group: Group, row: Row, note: str) -> PlacedRow:
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
        declared=group.spec.labels,
        note=note,
    )


def tables_of(rows: Iterable[PlacedRow]) -> tuple[Table, ...]:
    """One table for each group, in the order of the plan."""
    ordered = sorted(rows, key=lambda placed: placed.position)
    tables = []
    for title, group in grouped((placed.table, placed) for placed in ordered).items():
        # Whether a server and its load generator share CPUs.
        shared = pinning.cpus_note() if group[0].row.cell.body == "server" else ""
        tables.append(
            Table(
                title=title,
                rows=tuple(placed.row for placed in group),
                reference=group[0].reference,
                note="; ".join(filter(None, (shared, *dict.fromkeys(placed.note for placed in group)))),
                thresholds=group[0].thresholds,
                gated=group[0].gated,
                declared=group[0].declared,
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
