"""The reference of each cell of a test: one, found before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ..judge.judge import ComparedWith, why_not_measured
from ..kit.errors import FtgateError
from ..kit.text import split_nodeid
from ..model.report import first_line
from ..model.spec import Cell, Group
from .shared import Shared
from .sides import worktrees
from .sides.references import described
from .targets import unavailable


class Reference(NamedTuple):
    """What a cell is compared with, both sides where they are measured together, and what is stored of it."""

    basis: ComparedWith
    pair: worktrees.Pair | None = None
    stored: ComparedWith = ComparedWith()
    recorded_at: str = ""

    def by_figures(self, why: str, *, stale: bool = True) -> Reference:
        """What is stored of the cell judges it, since its commit cannot; what another machine stored judges nothing.

        `stale` is as for `why_not_measured`.
        """
        text = why_not_measured(self.recorded_at, first_line(why), stale=stale)
        return Reference(replace(self.stored, why="; ".join(filter(None, (self.stored.why, text)))))


def references_of(run: Shared, group: Group, cells: Sequence[Cell]) -> dict[str, Reference]:
    """By node id: what `--ftgate-against` says; else the commit of the cell's newest recording, whichever machine made
    it; else what is stored of it on this machine; else nothing. The environments of all sides are made at once.

    Raises AgainstError for what was requested.
    """
    requested = run.references.requested() if run.config.reference else None
    found = {cell.nodeid: _found(run, group, cell, requested) for cell in cells}
    test = split_nodeid(cells[0].nodeid)[0] if cells else ""
    pairs = (each.pair for each in found.values() if each.pair)
    if sides := dict.fromkeys(side for pair in pairs for side in pair.sides_with(test)):
        with run.spent.on("environments"):
            run.targets.make_all(group, sides)
    return _runnable(run, group, cells, found)


def _found(run: Shared, group: Group, cell: Cell, requested: worktrees.Pair | None) -> Reference:
    test = split_nodeid(cell.nodeid)[0]
    if requested is not None:
        reference, why = requested.reference, f"--ftgate-against {run.config.against}"
        if worktrees.lacks(reference, test):
            why = f"{reference.label} has no such test: it will be compared from the next change on"
            return Reference(ComparedWith(why=why), requested)
        baseline = described(reference, group.spec.packages)
        return Reference(ComparedWith(basis="paired", why=why, baseline=baseline, commit=reference.commit), requested)
    (stored, newest), why = run.stored.compared_with(group, cell), run.stored.decide
    if newest is None or why or run.hooks.ftgate_instead(run=run):
        return Reference(replace(stored, why="; ".join(filter(None, (stored.why, newest and why)))))
    try:
        pair = run.references.recorded(newest, test)
    except worktrees.NothingToCompare as same:
        return Reference(replace(stored, basis="", why=str(same), entry=None, same=True))
    except FtgateError as error:
        alone = Reference(stored, None, stored, newest.commit)
        return alone.by_figures(str(error), stale=not isinstance(error, worktrees.NotFetched))
    there = pair.reference
    basis = replace(stored, basis="paired", why="", baseline=there.label, commit=there.commit, recorded=True)
    return Reference(basis, pair, stored, newest.commit)


def _runnable(run: Shared, group: Group, cells: Sequence[Cell], found: Mapping[str, Reference]) -> dict[str, Reference]:
    """The references, but for what cannot run a cell, and for the commit of a recording that cannot be installed."""
    lookup, spec, kept, told = run.targets.lookup, group.spec, dict(found), dict[str, None]()
    # All cells are measured in the same files: in those of a checkout, unless that cannot be installed.
    pairs = ((cell, found[cell.nodeid].pair) for cell in cells)
    sides = (lookup(cell, spec, pair.changed) for cell, pair in pairs if pair)
    here = next((made for made in sides if made.failed), None)
    for cell in cells:
        each = found[cell.nodeid]
        if each.pair is None or not each.basis.basis:
            continue
        there, label = lookup(cell, spec, each.pair.reference), each.pair.reference.label
        if there.target and (lacking := unavailable(cell, there.target.interpreter)):
            kept[cell.nodeid] = each._replace(basis=ComparedWith(why=f"{label} cannot run it: {lacking}"))
        elif each.basis.recorded and (made := here or there).failed:
            kept[cell.nodeid] = each.by_figures(made.reason, stale=not made.too_long)
            told[f"{group.key}: {label} cannot be measured: {first_line(made.reason)}"] = None
    for text in told:
        run.listener.warn(text)
    return kept
