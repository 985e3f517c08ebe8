"""Baselines as text: lists, one test, differences to a run, what an update did. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from ..judge import metrics
from ..judge.recorded import WALL_OF_CONTROL, figure_of, source_of
from ..kit import units
from ..kit.text import plain
from ..kit.values import Metric
from ..model.sample import Sample
from ..store.names import split_nodeid
from ..store.schema import Recording, StoredCell, TestBaseline
from ..store.update import Difference, Update, grouped
from .details import GAP, padded
from .said import accepted_texts

NOTHING = "-"
SHORT_COMMIT = 12
UPDATE_OPTION = "--ftgate-update="
KEPT = "has a baseline"
FIGURES = {
    "wall": Metric.WALL,
    "to control": WALL_OF_CONTROL,
    "USS": Metric.USS,
    "lock wait": Metric.LOCK_WAIT,
    "scaling": Metric.SCALING,
}
"""Headings of figures, and the names that they are stored by."""
ALWAYS = ("wall", "to control", "USS")
"""Those that stand in every table."""


class CellSummary(NamedTuple):
    """A cell, stored or new: its recordings or its sample, with the newest recording's time and commit."""

    sides: tuple[Sample | Recording, ...] = ()
    recorded_at: str = NOTHING
    commit: str = NOTHING

    @property
    def launches(self) -> int:
        return sum(len(source_of(side)(Metric.WALL)) for side in self.sides)

    def value(self, name: str) -> float | None:
        """A figure over all launches."""
        return figure_of(FIGURES[name], self.sides)

    def text(self, name: str, unicode: bool) -> str:
        value = self.value(name)
        return NOTHING if value is None else units.of(_unit(name), value, unicode=unicode)

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


def _summary(side: StoredCell | Sample | None) -> CellSummary:
    if side is None or isinstance(side, Sample):
        return CellSummary(() if side is None else (side,))
    newest = side.recordings[-1]
    return CellSummary(side.recordings, newest.recorded_at or NOTHING, newest.commit[:SHORT_COMMIT] or NOTHING)


def _shown(sides: Iterable[CellSummary]) -> list[str]:
    """The figures that every test has, and those that any of these has."""
    known = list(sides)
    return [name for name in FIGURES if name in ALWAYS or any(side.value(name) is not None for side in known)]


def render_list(baselines: Iterable[TestBaseline]) -> str:
    """One block per test, in it one per machine and build; a line per stored cell: cell, launches, time and commit."""
    header = ("cell", "launches", "recorded", "commit")
    blocks = []
    for baseline in baselines:
        lines = [baseline.test]
        places = grouped((key, (label, _summary(entry))) for label, key, entry in _entries(baseline))
        for key, entries in places.items():
            rows = [(label, str(side.launches), side.recorded_at, side.commit) for label, side in entries]
            lines += [f"  {key.replace('/', ', ', 1)}", *(f"  {line}" for line in _table(header, rows))]
        blocks.append(lines)
    return _blocks(blocks)


def render_test(baseline: TestBaseline, *, unicode: bool = True) -> str:
    """The stored figures of one test: medians over launches, and the machines and interpreters they are of."""
    entries = [(label, key.partition("/"), entry, _summary(entry)) for label, key, entry in _entries(baseline)]
    shown = _shown(side for *_, side in entries)
    header = ("cell", "machine", "build", *shown, "launches", "recordings", "recorded", "commit")
    rows, about = [], []
    for label, (fingerprint, _, build), entry, side in entries:
        figures = [side.text(name, unicode) for name in shown]
        counts = (str(side.launches), str(len(entry.recordings)))
        rows.append((label, fingerprint, build, *figures, *counts, side.recorded_at, side.commit))
        python = entry.interpreter
        parts = [f"{python.implementation} {python.version}{'t' if python.free_threaded else ''}"]
        parts += [f"GIL {'on' if python.gil_enabled else 'off'}", python.build, python.compiler]
        parts += [word for word in ("pgo", "lto", "shared", "debug") if getattr(python, word)]
        about.append(f"build {build}: {', '.join(filter(None, parts))}")
    machines = []
    for name, machine in sorted(baseline.machines.items()):
        parts = [machine.system, machine.arch, machine.cpu, f"{machine.cores} cores", f"kernel {machine.kernel}"]
        parts += [f"governor {machine.governor}"] if machine.governor else []
        parts += [f"CPU quota {machine.cpu_quota:g}"] if machine.cpu_quota is not None else []
        parts += [f"memory limit {units.size(machine.memory_limit_bytes)}"] if machine.memory_limit_bytes else []
        machines.append(f"machine {name}: {', '.join(parts)}")
    return _blocks([[baseline.test, *_table(header, rows)], [*machines, *sorted({*about})]])


def render_diff(differences: Sequence[Difference], *, unicode: bool = True) -> str:
    """The cells of a run with their baselines, one block per test; `was -> is` and the change of each figure."""
    blocks = []
    for test, group in groupby(differences, key=lambda difference: split_nodeid(difference.nodeid)[0]):
        cells = list(group)
        sides = [(_summary(each.old), _summary(each.new)) for each in cells]
        shown = _shown(side for both in sides for side in both)
        header = ("cell", *(head for name in shown for head in (name, "change")), "verdict", "baseline")
        rows = []
        for each, (was, now) in zip(cells, sides, strict=True):
            figures = []
            for name in shown:
                before, after = was.text(name, unicode), now.text(name, unicode)
                arrow = after if before == NOTHING else f"{before} -> {after}"
                figures += [arrow, now.change(name, was)]
            baseline = f"{was.recorded_at} {was.commit}" if each.old else NOTHING
            rows.append((split_nodeid(each.nodeid)[1], *figures, str(each.decision), baseline))
        reasons = [(each, each.reason) for each in cells if each.reason]
        accepted = [(each, text) for each in cells for text in accepted_texts(each.accepted)]
        notes = [f"  {split_nodeid(each.nodeid)[1]}: {text}" for each, text in (*reasons, *accepted)]
        blocks.append([test, *_table(header, rows), *notes])
    return _blocks(blocks)


def update_lines(updates: Iterable[Update], *, naming: str = UPDATE_OPTION, unicode: bool = True) -> tuple[str, ...]:
    """A line for each cell that an update records, refuses or cannot take, and one for all that it keeps.

    `naming` is what a user writes before a cell's quoted name to have it taken.
    """
    plan = list(updates)
    kept = sum(update.action == "skip" and update.reason == KEPT for update in plan)
    lines = []
    for update in (each for each in plan if each.reason != KEPT):
        # `wall 1.83 ms (was 1.75 ms, +4.6 %), to control 0.92x (was 0.91x, +1.1 %), USS 24.3 MiB (was ...)`
        was, now = _summary(update.old), _summary(update.new)
        figures = []
        for name in FIGURES:
            if now.value(name) is not None:
                change = now.change(name, was)
                aside = f" (was {was.text(name, unicode)}, {change})" if change != NOTHING else ""
                figures.append(f"{name} {now.text(name, unicode)}{aside}")
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


def render_prune(cells: Iterable[tuple[str, str]], *, done: bool) -> str:
    """One line for each cell that is, or would be, removed."""
    word = "removed" if done else "unused"
    return plain("".join(f"{word} {test}[{label}]\n" for test, label in cells))


def _entries(baseline: TestBaseline) -> list[tuple[str, str, StoredCell]]:
    return [(label, key, builds[key]) for label, builds in sorted(baseline.cells.items()) for key in sorted(builds)]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    columns = [padded(texts, str.ljust) for texts in zip(header, *rows, strict=True)]
    return [GAP + GAP.join(texts).rstrip() for texts in zip(*columns, strict=True)]


def _blocks(blocks: Iterable[Sequence[str]]) -> str:
    return plain("\n".join("\n".join(block) + "\n" for block in blocks))
