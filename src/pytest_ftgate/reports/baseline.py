"""Baselines as text: lists, one test, differences to a run, what an update did. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from itertools import groupby

from pytest_ftgate.baselines import Difference, Entry, Summary, TestBaseline, Update, split_nodeid, summary
from pytest_ftgate.model import Machine
from pytest_ftgate.reports import units

NOTHING = "-"
SHORT_COMMIT = 12
UPDATE_OPTION = "--ftgate-update="
KEPT = "has a baseline"


def render_list(baselines: Iterable[TestBaseline]) -> str:
    """A line an entry under a line a test: cell, machine, build, launches, when and of which commit."""
    header = ("cell", "machine", "build", "launches", "recorded", "commit")
    blocks = []
    for baseline in baselines:
        rows = []
        for label, key, entry in _entries(baseline):
            short = summary(entry)
            rows.append((label, *_place(key), str(short.launches), *_when(short)))
        blocks.append([baseline.test, *_table(header, rows)])
    return _blocks(blocks)


def render_test(baseline: TestBaseline, *, unicode: bool = True) -> str:
    """The stored figures of one test: medians over launches, and the machines and interpreters they are of."""
    header = ("cell", "machine", "build", "wall", "to candle", "USS", "launches", "recordings", "recorded", "commit")
    rows = []
    interpreters = set()
    for label, key, entry in _entries(baseline):
        short = summary(entry)
        figures = (_time(short.wall_ns, unicode), _ratio(short.candle_ratio), _size(short.uss_bytes))
        counts = (str(short.launches), str(len(entry.recordings)))
        rows.append((label, *_place(key), *figures, *counts, *_when(short)))
        interpreters.add(f"build {_place(key)[1]}: {_built(entry)}")
    machines = [f"machine {name}: {_machine(machine)}" for name, machine in sorted(baseline.machines.items())]
    return _blocks([[baseline.test, *_table(header, rows)], [*machines, *sorted(interpreters)]])


def render_diff(differences: Sequence[Difference], *, unicode: bool = True) -> str:
    """The cells of a run beside their baselines, a block a test; `was -> is` and the change of each figure."""
    header = ("cell", "wall", "change", "to candle", "change", "USS", "change", "verdict", "baseline")
    blocks = []
    for test, group in groupby(differences, key=lambda difference: split_nodeid(difference.nodeid)[0]):
        cells = list(group)
        rows = [_diff_row(difference, unicode) for difference in cells]
        labelled = ((split_nodeid(difference.nodeid)[1], difference.reason) for difference in cells)
        notes = [f"  {label}: {reason}" for label, reason in labelled if reason]
        blocks.append([test, *_table(header, rows), *notes])
    return _blocks(blocks)


def update_lines(updates: Iterable[Update], *, naming: str = UPDATE_OPTION, unicode: bool = True) -> tuple[str, ...]:
    """A line for each cell that an update records, refuses or cannot take, and one for all that it keeps.

    `naming` is what a user writes before a cell's quoted name to have it taken.
    """
    plan = list(updates)
    kept = sum(update.action == "skip" and update.reason == KEPT for update in plan)
    lines = [_update_line(update, naming, unicode) for update in plan if update.reason != KEPT]
    if kept:
        lines.append(f"kept {kept} cell{'s that have' if kept > 1 else ' that has'} a baseline")
    return tuple(lines)


def render_prune(cells: Iterable[tuple[str, str]], *, done: bool) -> str:
    """A line a cell that is, or would be, removed."""
    word = "removed" if done else "unused"
    return "".join(f"{word} {test}[{label}]\n" for test, label in cells)


def _update_line(update: Update, naming: str, unicode: bool) -> str:
    figures = _figures(update.old, update.new, unicode)
    if update.action == "record":
        return f"recorded {update.nodeid}: {figures}" + (" (new)" if update.old is None else "")
    if update.action == "refuse":
        mend = f"name it to accept: {naming}{shlex.quote(update.nodeid)}"
        return f"refused {update.nodeid}: {update.reason}, {figures}; {mend}"
    return f"skipped {update.nodeid}: {update.reason}"


def _figures(old: Summary | None, new: Summary | None, unicode: bool) -> str:
    """`wall 1.83 ms (was 1.75 ms, +4.6 %), to candle 0.92x (was 0.91x, +1.1 %), USS 24.3 MiB (was ...)`."""
    empty = Summary(wall_ns=None, candle_ratio=None, uss_bytes=None, launches=0)
    was, now = old or empty, new or empty
    figures = (
        ("wall", _time(was.wall_ns, unicode), _time(now.wall_ns, unicode), _change(was.wall_ns, now.wall_ns)),
        ("to candle", _ratio(was.candle_ratio), _ratio(now.candle_ratio), _change(was.candle_ratio, now.candle_ratio)),
        ("USS", _size(was.uss_bytes), _size(now.uss_bytes), _change(was.uss_bytes, now.uss_bytes)),
    )
    shown = (
        f"{name} {after}" + (f" (was {before}, {change})" if change != NOTHING else "")
        for name, before, after, change in figures
        if after != NOTHING
    )
    return ", ".join(shown)


def _diff_row(difference: Difference, unicode: bool) -> tuple[str, ...]:
    empty = Summary(wall_ns=None, candle_ratio=None, uss_bytes=None, launches=0)
    was, now = difference.old or empty, difference.new or empty
    recorded, commit = _when(was)
    return (
        split_nodeid(difference.nodeid)[1],
        _arrow(_time(was.wall_ns, unicode), _time(now.wall_ns, unicode)),
        _change(was.wall_ns, now.wall_ns),
        _arrow(_ratio(was.candle_ratio), _ratio(now.candle_ratio)),
        _change(was.candle_ratio, now.candle_ratio),
        _arrow(_size(was.uss_bytes), _size(now.uss_bytes)),
        _change(was.uss_bytes, now.uss_bytes),
        str(difference.decision),
        f"{recorded} {commit}" if difference.old else NOTHING,
    )


def _arrow(before: str, after: str) -> str:
    if before == NOTHING:
        return after
    return f"{before} -> {after}"


def _change(before: float | None, after: float | None) -> str:
    return units.change(after / before) if before and after is not None else NOTHING


def _time(ns: float | None, unicode: bool) -> str:
    return NOTHING if ns is None else units.time(ns, unicode=unicode)


def _ratio(value: float | None) -> str:
    return NOTHING if value is None else units.ratio(value)


def _size(n_bytes: float | None) -> str:
    return NOTHING if n_bytes is None else units.size(n_bytes)


def _entries(baseline: TestBaseline) -> list[tuple[str, str, Entry]]:
    return [(label, key, builds[key]) for label, builds in sorted(baseline.cells.items()) for key in sorted(builds)]


def _place(key: str) -> tuple[str, str]:
    fingerprint, _, build = key.partition("/")
    return fingerprint, build


def _when(short: Summary) -> tuple[str, str]:
    return short.recorded_at or NOTHING, short.commit[:SHORT_COMMIT] or NOTHING


def _machine(machine: Machine) -> str:
    parts = [machine.system, machine.arch, machine.cpu, f"{machine.cores} cores", f"kernel {machine.kernel}"]
    parts += [f"governor {machine.governor}"] if machine.governor else []
    parts += [f"CPU quota {machine.cpu_quota:g}"] if machine.cpu_quota is not None else []
    parts += [f"memory limit {units.size(machine.memory_limit_bytes)}"] if machine.memory_limit_bytes else []
    return ", ".join(parts)


def _built(entry: Entry) -> str:
    stored = entry.interpreter
    name = f"{stored.implementation} {stored.version}{'t' if stored.free_threaded else ''}"
    parts = [name, f"GIL {'on' if stored.gil_enabled else 'off'}", stored.build, stored.compiler]
    parts += [word for word in ("pgo", "lto", "shared", "debug") if getattr(stored, word)]
    return ", ".join(part for part in parts if part)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest text, two spaces in from the left and between."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]


def _blocks(blocks: Iterable[Sequence[str]]) -> str:
    return "\n".join("\n".join(block) + "\n" for block in blocks)
