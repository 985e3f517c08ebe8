"""`ftgate baseline`: list stored baselines, compare the last run with them, store it, remove unused ones."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from ..hookspec import Subparsers, hookimpl
from ..judge.recorded import stored_values
from ..model.report import Row
from ..report.baselines import render_diff, render_list, render_prune, render_test, update_lines
from ..store.names import named
from ..store.update import Update, apply_updates, differences, prunable, prune, update_plan
from .last_run import FINE, REGRESSED, add_rootdir, last_run, no_run, nothing, rootdir, unicode
from .last_run import store as store_of

ACCEPT = "ftgate baseline accept "
NAMES = "node ids, their ends, files, or unique parts; * and ? match anything"


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("baseline", help="list, show, compare, accept and prune stored baselines")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _action(actions, "list", list_baselines, "every stored cell: machine, build, launches, when, commit")
    show = _action(actions, "show", show_test, "the stored figures of one test")
    show.add_argument("test", metavar="TEST", help=f"a test's name: {NAMES}")
    diff = _action(actions, "diff", diff_run, "the last run next to its baselines; exits with 1 if a cell regressed")
    diff.add_argument("cells", metavar="CELL", nargs="*", help=f"cells or tests: {NAMES} (default: all)")
    accept = _action(actions, "accept", accept_run, "store the last run's new cells as baselines, and the named cells")
    accept.add_argument(
        "cells", metavar="CELL", nargs="*", help=f"cells or tests to store even if they changed or regressed: {NAMES}"
    )
    accept.add_argument("--all", action="store_true", help="store changed cells too; a regressed one must be named")
    drop = _action(actions, "prune", prune_unused, "list baselines of cells that no longer exist")
    drop.add_argument("--yes", action="store_true", help="remove them")


def _action(
    actions: Subparsers, name: str, run: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    add_rootdir(parser)
    parser.add_argument("--baselines", type=Path, metavar="DIR", help="default: as in a run")
    parser.set_defaults(run=run)
    return parser


def list_baselines(args: argparse.Namespace) -> int:
    """Print all entries; 3 when there is none. Raises BaselineError."""
    store = store_of(args)
    text = render_list(store.baselines())
    if not text:
        return nothing(f"no baselines in {store.root}: record some with pytest --ftgate --ftgate-update")
    return _print(text)


def show_test(args: argparse.Namespace) -> int:
    """Print the figures of the tests named; 3 when there is none. Raises BaselineError."""
    store = store_of(args)
    stored = {baseline.test: baseline for baseline in store.baselines()}
    found = [stored[test] for test in named(args.test, stored)]
    if not found:
        return nothing(f"no baseline of {args.test} in {store.root}: see ftgate baseline list")
    return _print("\n".join(render_test(baseline, unicode=unicode()) for baseline in found))


def diff_run(args: argparse.Namespace) -> int:
    """Print the last run next to its baselines; 1 if a cell regressed, 3 without a run or a cell."""
    report = last_run(args)
    if report is None:
        return no_run(args)
    rows = _chosen(report.rows, args.cells)
    if not rows:
        return nothing("the last run has no such cell")
    store = store_of(args)
    found = [
        each
        for machine, measured in report.by_fingerprint()
        for each in differences(_chosen(measured, args.cells), store, fingerprint=machine.fingerprint)
    ]
    _print(render_diff(found, unicode=unicode()))
    return REGRESSED if any(cell.decision.worse for cell in found) else FINE


def accept_run(args: argparse.Namespace) -> int:
    """Store the last run's samples; 1 when a regressed cell was refused, 3 without a run or a cell of that name."""
    report = last_run(args)
    if report is None:
        return no_run(args)
    store, rows = store_of(args), report.rows
    chosen = {name: named(name, [row.cell.nodeid for row in rows]) for name in args.cells}
    unknown = [name for name, nodeids in chosen.items() if not nodeids]
    if unknown:
        return nothing(f"the last run has no cell {', '.join(unknown)}; nothing was stored")
    modes = ["all" if args.all else "new", *(nodeid for nodeids in chosen.values() for nodeid in nodeids)]
    plan: list[Update] = []
    for machine, measured in report.by_fingerprint():
        updates = update_plan(modes, measured, store, fingerprint=machine.fingerprint)
        apply_updates(
            updates,
            store,
            stored_values,
            machine=machine,
            recorded_at=report.started_at,
            commit=report.commit,
            seed=report.seed,
        )
        plan += updates
    for line in update_lines(plan, naming=ACCEPT, unicode=unicode()):
        print(line)
    return REGRESSED if any(update.action == "refuse" for update in plan) else FINE


def prune_unused(args: argparse.Namespace) -> int:
    """Show, or with --yes remove, the baselines of cells that are gone; 3 without a run and without such a cell."""
    report, store = last_run(args), store_of(args)
    rows = report.rows if report else []
    cells = prunable(store, rows, report.unused_baselines if report else (), rootdir(args))
    if not cells:
        return _print("no unused baselines\n") if report else no_run(args)
    if args.yes:
        prune(store, cells)
        return _print(render_prune(cells, done=True))
    return _print(render_prune(cells, done=False) + "remove them with: ftgate baseline prune --yes\n")


def _chosen(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    known = [row.cell.nodeid for row in rows]
    chosen = {nodeid for name in names for nodeid in named(name, known)}
    return [row for row in rows if not names or row.cell.nodeid in chosen]


def _print(text: str) -> int:
    print(text, end="")
    return FINE
