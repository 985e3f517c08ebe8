"""The figures of a stored cell, or of one to be stored, as text; what an update did. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import NamedTuple

from ..judge import metrics
from ..judge.values import WALL_OF_CONTROL, figure_of
from ..kit import units
from ..kit.text import plain, split_nodeid
from ..kit.values import Metric, grouped
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


def update_lines(updates: Iterable[Update], folder: str, *, git: bool, naming: str = UPDATE_OPTION) -> tuple[str, ...]:
    """How many cells an update records and where, in a line what is new of each test, a line for each other cell that
    it records, refuses or cannot take, one for all that it keeps; and what to do next.

    `naming` is what a user writes before a cell's quoted name to have it taken. In `git` the folder is to be added.
    """
    plan = list(updates)
    kept = sum(update.action == "skip" and update.reason == KEPT for update in plan)
    recorded = sum(update.action == "record" for update in plan)
    new = grouped((split_nodeid(update.nodeid)[0], update) for update in plan if _is_new(update))
    several = {test: cells for test, cells in new.items() if len(cells) > 1}
    lines = []
    if recorded:
        lines.append(f"{recorded} recorded in {folder}/" + (f": git add {shlex.quote(folder)}" if git else ""))
    for test, of_test in several.items():
        walls = [wall for each in of_test if (wall := summary(each.new).value("wall")) is not None]
        ends = dict.fromkeys(units.time(end) for end in (min(walls), max(walls))) if walls else ()
        lines.append(
            f"recorded {test}: {len(of_test)} cells" + (f", wall {' to '.join(ends)}" if ends else "") + " (new)"
        )
    said = [update for of_test in several.values() for update in of_test]
    for update in (each for each in plan if each.reason != KEPT and each not in said):
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
    if recorded:
        commit = "commit them; pytest --ftgate then compares each change with that commit"
        lines.append(f"next: {commit if git else 'pytest --ftgate compares with them on this machine'}")
    return tuple(map(plain, lines))


def _is_new(update: Update) -> bool:
    return update.action == "record" and update.old is None
