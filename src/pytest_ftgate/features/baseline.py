"""`ftgate baseline`: list stored baselines, compare the last run with them, store it, remove unused ones."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from ..hookspec import Subparsers, hookimpl
from ..judge.values import entries_of
from ..kit.text import plain, split_nodeid
from ..kit.values import grouped
from ..report.baselines import FIGURES, NOTHING, CellSummary, summary, update_lines
from ..report.details import GAP, padded, plain_units
from ..report.said import accepted_texts, machine_parts
from ..store.names import named
from ..store.schema import StoredCell, TestBaseline
from ..store.update import Difference, apply_updates, differences, prunable, prune, update_plan
from .last_run import FINE, REGRESSED, last_run, no_run, nothing, project, unicode
from .last_run import store as store_of

ACCEPT = "ftgate baseline update "
ALWAYS = ("wall", "to control", "uss")
"""Figures that stand in every table."""
NAMES = "node ids, their ends, files, or unique parts; * and ? match anything"


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("baseline", help="list, show, diff, update and prune stored baselines")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _action(actions, "list", list_baselines, "every stored cell: machine, build, launches, when, commit")
    show = _action(actions, "show", show_test, "the stored figures of one test")
    show.add_argument("test", metavar="TEST", help=f"a test's name: {NAMES}")
    diff = _action(actions, "diff", diff_run, "the last run next to its baselines", exits=(1, 3))
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
    return _print("\n".join(render_test(baseline) for baseline in found))


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
    _print(render_diff(found))
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
    _print("".join(f"{line}\n" for line in update_lines(plan, naming=ACCEPT)))
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
        places = grouped((key, (label, summary(entry))) for label, key, entry in _entries(baseline))
        for key, entries in places.items():
            rows = [(label, str(side.launches), side.recorded_at, side.commit) for label, side in entries]
            lines += [f"  {key.replace('/', ', ', 1)}", *(f"  {line}" for line in _table(header, rows))]
        blocks.append(lines)
    return _blocks(blocks)


def render_test(baseline: TestBaseline) -> str:
    """The stored figures of one test: medians over launches, and the machines and interpreters they are of."""
    entries = [(label, key.partition("/"), entry, summary(entry)) for label, key, entry in _entries(baseline)]
    shown = _shown(side for *_, side in entries)
    header = ("cell", "machine", "build", *shown, "launches", "recordings", "recorded", "commit")
    rows, about = [], []
    for label, (fingerprint, _, build), entry, side in entries:
        figures = [side.text(name) for name in shown]
        counts = (str(side.launches), str(len(entry.recordings)))
        rows.append((label, fingerprint, build, *figures, *counts, side.recorded_at, side.commit))
        python = entry.interpreter
        parts = [f"{python.implementation} {python.version}{'t' if python.free_threaded else ''}"]
        parts += [f"GIL {'on' if python.gil_enabled else 'off'}", python.build, python.compiler]
        parts += [word for word in ("pgo", "lto", "shared", "debug") if getattr(python, word)]
        about.append(f"build {build}: {', '.join(filter(None, parts))}")
    machines = [f"machine {name}: {', '.join(machine_parts(of))}" for name, of in sorted(baseline.machines.items())]
    return _blocks([[baseline.test, *_table(header, rows)], [*machines, *sorted({*about})]])


def render_diff(differences: Sequence[Difference]) -> str:
    """The cells of a run with their baselines, one block per test; `was -> is` and the change of each figure."""
    blocks = []
    for test, group in groupby(differences, key=lambda difference: split_nodeid(difference[0].cell.nodeid)[0]):
        cells = list(group)
        sides = [(summary(old), summary(new)) for _, old, new, _ in cells]
        shown = _shown(side for both in sides for side in both)
        header = ("cell", *(head for name in shown for head in (name, "change")), "verdict", "baseline")
        rows = []
        for (row, old, _, _), (was, now) in zip(cells, sides, strict=True):
            figures = []
            for name in shown:
                before, after = was.text(name), now.text(name)
                arrow = after if before == NOTHING else f"{before} -> {after}"
                figures += [arrow, now.change(name, was)]
            baseline = f"{was.recorded_at} {was.commit}" if old else NOTHING
            rows.append((split_nodeid(row.cell.nodeid)[1], *figures, str(row.verdict.decision), baseline))
        reasons = [(row, why) for row, _, _, why in cells if why]
        accepted = [(row, text) for row, _, new, _ in cells if new for text in accepted_texts(row.verdict.accepted)]
        notes = [f"  {split_nodeid(row.cell.nodeid)[1]}: {text}" for row, text in (*reasons, *accepted)]
        blocks.append([test, *_table(header, rows), *notes])
    return _blocks(blocks)


def _entries(baseline: TestBaseline) -> list[tuple[str, str, StoredCell]]:
    return [(label, key, builds[key]) for label, builds in sorted(baseline.cells.items()) for key in sorted(builds)]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    columns = [padded(texts, str.ljust) for texts in zip(header, *rows, strict=True)]
    return [GAP + GAP.join(texts).rstrip() for texts in zip(*columns, strict=True)]


def _blocks(blocks: Iterable[Sequence[str]]) -> str:
    return plain("\n".join("\n".join(block) + "\n" for block in blocks))
