"""`ftgate baseline`: list stored baselines, compare the last run with them, store it, remove unused ones."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from ..hookspec import Subparsers, hookimpl
from ..judge.values import entries_of
from ..kit.text import plain, plural, split_nodeid
from ..kit.values import grouped
from ..report.baselines import FIGURES, NOTHING, summary, update_lines
from ..report.details import GAP, Style, entry, padded, plain_units, tie, wrapped
from ..report.said import accepted_texts, machine_parts
from ..store.names import named
from ..store.schema import StoredCell, TestBaseline
from ..store.update import Difference, apply_updates, differences, prunable, prune, update_plan
from .last_run import FINE, REGRESSED, last_run, no_run, nothing, project, terminal_width, unicode
from .last_run import store as store_of

ACCEPT = "ftgate baseline update "
LONGEST = 30
"""Columns of a cell's label; a longer one moves what is said of its cell."""
NAMES = "node ids, their ends, files, or unique parts; * and ? match anything"


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("baseline", help="list, show, diff, update and prune stored baselines")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _action(actions, "list", list_baselines, "list the stored cells with machine, build, launches, date and commit")
    show = _action(actions, "show", show_test, "show the stored figures of one test")
    show.add_argument("test", metavar="TEST", help=f"a test's name: {NAMES}")
    diff = _action(actions, "diff", diff_run, "compare the last run with its baselines", exits=(1, 3))
    diff.add_argument("cells", metavar="CELL", nargs="*", help=f"cells or tests: {NAMES} (default: all)")
    update = _action(
        actions, "update", update_run, "store the last run's new cells as baselines, and the named cells", exits=(1, 3)
    )
    update.add_argument(
        "cells", metavar="CELL", nargs="*", help=f"cells or tests to store even if they changed or regressed: {NAMES}"
    )
    update.add_argument("--all", action="store_true", help="store changed cells too; a regressed one must be named")
    drop = _action(actions, "prune", prune_unused, "list baselines of cells that no longer exist")
    drop.add_argument("--yes", action="store_true", help="remove them")


def _action(
    actions: Subparsers, name: str, run: Callable[[argparse.Namespace], int], text: str, exits: Sequence[int] = (3,)
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", exits=exits)
    parser.set_defaults(run=run)
    return parser


def list_baselines(args: argparse.Namespace) -> int:
    """Print all entries; 3 when there is none. Raises BaselineError."""
    store = store_of()
    text = render_list(store.baselines())
    if not text:
        return nothing(f"no baselines in {store.root}: record some with pytest --ftgate-update")
    return _print(text)


def show_test(args: argparse.Namespace) -> int:
    """Print the figures of the tests named; 3 when there is none. Raises BaselineError."""
    store = store_of()
    stored = {baseline.test: baseline for baseline in store.baselines()}
    found = [stored[test] for test in named(args.test, stored)]
    if not found:
        return nothing(f"no baseline of {args.test} in {store.root}: see ftgate baseline list")
    return _print("\n".join(render_test(baseline, terminal_width()) for baseline in found))


def diff_run(args: argparse.Namespace) -> int:
    """Print the last run next to its baselines; 1 if a cell regressed, 3 without a run or a cell."""
    report = last_run()
    if report is None:
        return no_run()
    known = [row.cell.nodeid for row in report.rows]
    chosen = {nodeid for name in args.cells for nodeid in named(name, known)} if args.cells else {*known}
    if not chosen:
        return nothing("the last run has no such cell")
    rows = [row for row in report.rows if row.cell.nodeid in chosen]
    entries = entries_of(report, report.rows)
    found = differences(rows, entries, store_of(), fingerprint=report.machine.fingerprint)
    _print(render_diff(found, terminal_width()))
    return REGRESSED if any(row.verdict.decision.worse for row, *_ in found) else FINE


def update_run(args: argparse.Namespace) -> int:
    """Store the last run's samples; 1 when a regressed cell was refused, 3 without a run or a cell of that name."""
    report = last_run()
    if report is None:
        return no_run()
    store, rows = store_of(), report.rows
    chosen = {name: named(name, [row.cell.nodeid for row in rows]) for name in args.cells}
    unknown = [name for name, nodeids in chosen.items() if not nodeids]
    if unknown:
        return nothing(f"the last run has no cell {', '.join(unknown)}; nothing was stored")
    modes = ["all" if args.all else "new", *(nodeid for nodeids in chosen.values() for nodeid in nodeids)]
    plan = update_plan(modes, rows, entries_of(report, rows), store, fingerprint=report.machine.fingerprint)
    apply_updates(plan, store, report.machine)
    folder = os.path.relpath(store.root, project().rootpath)
    lines = update_lines(plan, folder, git=bool(report.commit), naming=ACCEPT)
    _print("".join(f"{line}\n" for line in lines))
    return REGRESSED if any(update.action == "refuse" for update in plan) else FINE


def prune_unused(args: argparse.Namespace) -> int:
    """Show, or with --yes remove, the baselines of cells that are gone; 3 without a run and without such a cell."""
    report, store = last_run(), store_of()
    rows = report.rows if report else []
    cells = prunable(store, rows, report.unused_baselines if report else (), project().rootpath)
    if not cells:
        return _print("no unused baselines\n") if report else no_run()
    if args.yes:
        prune(store, cells)
    word, then = ("removed", "") if args.yes else ("unused", "remove them with: ftgate baseline prune --yes\n")
    return _print(plain("".join(f"{word} {test}[{label}]\n" for test, label in cells)) + then)


def _print(text: str) -> int:
    print(text if unicode() else plain_units(text), end="")
    return FINE


# ---- as text


def render_list(baselines: Iterable[TestBaseline]) -> str:
    """One block per test, in it one per machine and build; a line per stored cell: cell, launches, time and commit."""
    header = ("cell", "launches", "recorded", "commit")
    blocks = []
    for baseline in baselines:
        lines = [baseline.test]
        places = grouped((key, (label, summary(entry))) for label, key, entry in _entries(baseline))
        for key, entries in places.items():
            rows = [(label, str(side.launches), side.recorded_at, side.commit) for label, side in entries]
            lines += [f"  {key.replace('/', ', ', 1)}", *(f"  {line}" for line in _table(header, rows))]
        blocks.append(lines)
    return _blocks(blocks)


def render_test(baseline: TestBaseline, width: int = 80) -> str:
    """The stored figures of one test: medians over launches, and the machines and interpreters they are of."""
    style = Style(max(width, 40))
    lines, builds = [baseline.test], dict[str, None]()
    places = grouped((key, (label, entry)) for label, key, entry in _entries(baseline))
    for key, cells in places.items():
        said = []
        for label, stored in cells:
            side = summary(stored)
            counts = f"{plural(side.launches, 'launch', 'launches')} in {plural(len(stored.recordings), 'recording')}"
            figures = [f"{name} {side.text(name)}" for name in FIGURES if side.text(name) != NOTHING]
            said.append((label, [*figures, counts, f"{side.recorded_at} {side.commit}"]))
            python = stored.interpreter
            parts = [f"{python.implementation} {python.version}{'t' if python.free_threaded else ''}"]
            parts += [f"GIL {'on' if python.gil_enabled else 'off'}", python.build, python.compiler]
            parts += [word for word in ("pgo", "lto", "shared", "debug") if getattr(python, word)]
            builds[f"build {key.partition('/')[2]}: {', '.join(filter(None, parts))}"] = None
        lines += [f"  {key.replace('/', ', ', 1)}", *_cells(said, style, indent=4)]
    machines = [f"machine {name}: {', '.join(machine_parts(of))}" for name, of in sorted(baseline.machines.items())]
    about = [line for text in (*machines, *sorted(builds)) for line in wrapped(text, style, indent=0, hanging=2)]
    return _blocks([lines, about])


def render_diff(differences: Sequence[Difference], width: int = 80) -> str:
    """The cells of a run with their baselines, one block per test; `was -> is` and the change of each figure."""
    style, blocks = Style(max(width, 40)), []
    for test, group in groupby(differences, key=lambda difference: split_nodeid(difference[0].cell.nodeid)[0]):
        said, notes = [], []
        for row, old, new, why in group:
            label, was, now = split_nodeid(row.cell.nodeid)[1], summary(old), summary(new)
            parts = [str(row.verdict.decision)]
            for name in FIGURES:
                before, after, change = was.text(name), now.text(name), now.change(name, was)
                if (before, after) != (NOTHING, NOTHING):
                    arrow = after if before == NOTHING else f"{before} -> {after}"
                    parts.append(f"{name} {arrow}" + (f" ({change})" if change != NOTHING else ""))
            said.append((label, [*parts, *([f"baseline {was.recorded_at} {was.commit}"] if old else [])]))
            accepted = accepted_texts(row.verdict.accepted) if new else []
            notes += [f"{label}: {text}" for text in (why, *accepted) if text]
        lines = [line for note in notes for line in wrapped(note, style, indent=2, hanging=4)]
        blocks.append([test, *_cells(said, style, indent=2), *lines])
    return _blocks(blocks)


def _cells(said: Sequence[tuple[str, Sequence[str]]], style: Style, indent: int) -> list[str]:
    """The parts of what is said of each cell beside its label; lines are broken between parts."""
    column = max((len(label) for label, _ in said if len(label) <= LONGEST), default=0) + len(GAP)
    room = style.width - indent - column - 1  # and the comma
    return [
        line
        for label, parts in said
        for line in entry(label, ", ".join(tie(part, room) for part in parts), style, indent, column)
    ]


def _entries(baseline: TestBaseline) -> list[tuple[str, str, StoredCell]]:
    return [(label, key, builds[key]) for label, builds in sorted(baseline.cells.items()) for key in sorted(builds)]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    columns = [padded(texts, str.ljust) for texts in zip(header, *rows, strict=True)]
    return [GAP + GAP.join(texts).rstrip() for texts in zip(*columns, strict=True)]


def _blocks(blocks: Iterable[Sequence[str]]) -> str:
    return plain("\n".join("\n".join(block) + "\n" for block in blocks))
