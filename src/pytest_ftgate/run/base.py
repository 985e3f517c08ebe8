"""What the commit that is compared with says of a run: under `--ftgate-trust=base` a change does not judge itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec

from ..declare.options import TRUSTED, Options
from ..kit.errors import FtgateError
from ..kit.git import OPTION, Checkout, shown
from ..kit.values import Struct, Threshold
from ..model.report import RowMessage, failed_row
from ..model.spec import Cell, Group, Plan, Spec
from ..store.names import split_nodeid
from .assembly import message_of, positions_of

OF_A_TEST: Final = ("thresholds", "gated", "requirements", "expectations")


class Base(Struct, frozen=True, kw_only=True):
    """What was collected at the reference with the command line of this run, and what its options say there.

    `plan` has the cells that are selected and not skipped. `config_file` is the file of pytest's settings that was
    read, "" for none.
    """

    said: dict[str, Any]
    plan: Plan
    config_file: str = ""
    commit: str = ""

    def options(self, ours: Options) -> Options:
        """The options of this run with what judges it as it is at the reference."""
        types = get_type_hints(Options, localns={"Threshold": Threshold})
        theirs = {name: msgspec.convert(self.said[name], types[name]) for name in TRUSTED}
        return dataclasses.replace(ours, **theirs)

    def limited(self, plan: Plan) -> Plan:
        """The plan of this run, each test with the limits that it has at the reference; a new one with its own."""
        known = {_test(group.cells[0]): group.spec for group in self.plan.groups}
        return msgspec.structs.replace(plan, groups=tuple(_limited(group, known) for group in plan.groups))

    def absent(self, here: Collection[str]) -> dict[str, RowMessage]:
        """By node id, a row with an error for each cell of the reference that is not among those `here`."""
        missing = [(group, cell) for group in self.plan.groups for cell in group.cells if cell.nodeid not in here]
        return {cell.nodeid: self._absent(group, cell) for group, cell in missing}

    def _absent(self, group: Group, cell: Cell) -> RowMessage:
        reason = (
            f"it is measured at {shown(self.commit)} and was not here: under --ftgate-trust=base a change cannot "
            "remove, rename, skip or deselect what is gated"
        )
        position = LAST + positions_of(self.plan)[cell.nodeid]
        return message_of(position, group, failed_row(cell, reason, ""))


LAST: Final = 1_000_000
"""Tests that are only at the reference come after those of the run."""


def read(checkout: Checkout, file: Path, collect: Callable[[Checkout, Path], None]) -> Base:
    """What `collect` writes to `file` of a checkout; written once in a run. Raises FtgateError."""
    if not checkout.commit:
        raise FtgateError(f"--ftgate-trust=base takes limits from a commit, and {checkout.label} is none: {OPTION} REV")
    if not file.exists():
        collect(checkout, file)
    base = msgspec.json.decode(file.read_bytes(), type=Base)
    return msgspec.structs.replace(base, commit=checkout.commit)


def _test(cell: Cell) -> str:
    return split_nodeid(cell.nodeid)[0]


def _limited(group: Group, known: dict[str, Spec]) -> Group:
    theirs = known.get(_test(group.cells[0]))
    if theirs is None:
        return group
    limits = {name: getattr(theirs, name) for name in OF_A_TEST}
    return msgspec.structs.replace(group, spec=msgspec.structs.replace(group.spec, **limits))
