"""The figures of a stored cell, or of one to be stored, as text; what an update did. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import NamedTuple

from ..judge import metrics
from ..judge.values import WALL_OF_CONTROL, figure_of
from ..kit import units
from ..kit.text import plain
from ..kit.values import Metric
from ..store.schema import Recording, StoredCell
from ..store.update import Update

NOTHING = "-"
SHORT_COMMIT = 12
UPDATE_OPTION = "--ftgate-update="
KEPT = "has a baseline"
FIGURES = {
    "wall": Metric.WALL,
    "to control": WALL_OF_CONTROL,
    "uss": Metric.USS,
    "lock_wait": Metric.LOCK_WAIT,
    "scaling": Metric.SCALING,
}
"""Headings of figures, and the names that they are stored by."""


class CellSummary(NamedTuple):
    """A cell, stored or to be stored: its recordings, with the newest one's time and commit."""

    recordings: tuple[Recording, ...] = ()
    recorded_at: str = NOTHING
    """The day."""
    commit: str = NOTHING

    @property
    def launches(self) -> int:
        return sum(len(each.by_order(Metric.WALL)) for each in self.recordings)

    def value(self, name: str) -> float | None:
        """A figure over all launches."""
        return figure_of(FIGURES[name], self.recordings)

    def text(self, name: str) -> str:
        value = self.value(name)
        return NOTHING if value is None else units.of(_unit(name), value, unicode=True)

    def change(self, name: str, since: CellSummary) -> str:
        """The change of a figure, where both sides have it."""
        was, now = since.value(name), self.value(name)
        if was is None or now is None:
            return NOTHING
        if _unit(name) == "share":
            return units.points(now - was)
        return units.change(now / was) if was else NOTHING


def _unit(name: str) -> str:
    return "ratio" if FIGURES[name] == WALL_OF_CONTROL else metrics.row(FIGURES[name]).unit


def summary(entry: StoredCell | None) -> CellSummary:
    if entry is None:
        return CellSummary()
    newest = entry.recordings[-1]
    return CellSummary(entry.recordings, newest.recorded_at[:10] or NOTHING, newest.commit[:SHORT_COMMIT] or NOTHING)


def update_lines(updates: Iterable[Update], *, naming: str = UPDATE_OPTION) -> tuple[str, ...]:
    """A line for each cell that an update records, refuses or cannot take, and one for all that it keeps.

    `naming` is what a user writes before a cell's quoted name to have it taken.
    """
    plan = list(updates)
    kept = sum(update.action == "skip" and update.reason == KEPT for update in plan)
    lines = []
    for update in (each for each in plan if each.reason != KEPT):
        # `wall 1.83 ms (was 1.75 ms, +4.6 %), to control 0.92x (was 0.91x, +1.1 %), USS 24.3 MiB (was ...)`
        was, now = summary(update.old), summary(update.new)
        figures = []
        for name in FIGURES:
            if now.value(name) is not None:
                change = now.change(name, was)
                aside = f" (was {was.text(name)}, {change})" if change != NOTHING else ""
                figures.append(f"{name} {now.text(name)}{aside}")
        text = ", ".join(figures)
        if update.action == "record":
            lines.append(f"recorded {update.nodeid}: {text}" + (" (new)" if update.old is None else ""))
        elif update.action == "refuse":
            fix = f"name it to accept: {naming}{shlex.quote(update.nodeid)}"
            lines.append(f"refused {update.nodeid}: {update.reason}, {text}; {fix}")
        else:
            lines.append(f"skipped {update.nodeid}: {update.reason}")
    if kept:
        cells = f"{kept} cell{'s that have' if kept > 1 else ' that has'} a baseline"
        lines.append(f"kept {cells}; name one to store it again: {naming}CELL")
    return tuple(map(plain, lines))
