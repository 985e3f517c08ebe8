"""Cells that cannot have changed: a check launch notes what they read, and all of it is the same on both sides.

The changed side alone is launched. What a cell does is decided by what it reads: where the reference has the same at
every place that was read or looked for, it goes the same way.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from ..measure.budget import IterationPlan, Limits
from ..measure.cell_run import PreparedTarget
from ..measure.launch import CellUnsupported, Launcher, LaunchFailed, request_here
from ..measure.run_context import Listener
from ..measure.watch.opened_files import OpenedFiles
from ..model import Cell, Group, Spec
from ..runner import reads
from ..runner.protocol import CHECK, WARMUP
from ..store import names
from . import worktrees
from .cells import one_per_target
from .config import RunConfig
from .git import Checkout
from .references import References
from .sides import OPENED, Finding, Note, Side, compare, read_notes
from .targets import Targets

SHORT_NS: Final = 1e9
"""An iteration shorter than this is followed by a second one: what a body reads only then counts as well."""
LOAD_NS: Final = 1_000_000_000
"""How long a server gets load at most."""


class Checked(NamedTuple):
    """What is the same for each cell that need not be compared, by node id, and why another one must be.

    Neither where nothing was checked.
    """

    same: Mapping[str, str] = MappingProxyType({})
    why: str = ""


BEGUN: Final = Note(reads.STARTED, "")


class Sides(NamedTuple):
    """A target on both sides, and why both can be told apart before anything is launched; empty if they cannot."""

    target: PreparedTarget
    changed: Side
    reference: Side
    differs: str

    def compare(self, notes: Sequence[Note], watched: bool = True) -> Finding:
        """See `sides.compare`."""
        changed, reference = self.changed, self.reference
        return compare(notes, changed.place_of, changed.fingerprint, reference.fingerprint, watched=watched)


class UnchangedCells:
    """Finds the cells of a comparison that need no measurement."""

    def __init__(
        self, config: RunConfig, targets: Targets, references: References, launcher: Launcher, listener: Listener
    ) -> None:
        self.config = config
        self.targets = targets
        self.references = references
        self.launcher = launcher
        self.listener = listener
        self._sides: dict[tuple[str, str], Side] = {}

    def check(self, group: Group, cells: Sequence[Cell], pair: worktrees.Pair) -> Checked:
        """All `cells` of a group that run Python in our runner, or none: they are compared with each other.

        Each program by itself.
        """
        if not self._may_be_unchanged(cells, pair):
            return Checked()
        same, why = dict[str, str](), ""
        try:
            # What can be compared before a launch is: also, a build for one target may leave files that another lists.
            sides = {cell.target.spec: self._prepared(group, cell, pair) for cell in one_per_target(cells)}
            spec = self.references.relocated(group.spec, pair.changed)
            for each in sides.values():
                if reason := each.differs or each.compare([Note(reads.CODE, spec.source.path), BEGUN]).reason:
                    return Checked(why=reason)
            for cell in sorted(cells, key=lambda each: each.executor.program is not None):
                try:
                    finding = self._finding(cell, spec, sides[cell.target.spec])
                except CellUnsupported:
                    continue
                except LaunchFailed:
                    if cell.executor.program is None:
                        return Checked()  # the measurement finds the error again, and reports it
                    finding = Finding(0, "its check launch failed")
                if not finding.reason:
                    same[cell.nodeid] = _same(finding, pair.reference)
                elif cell.executor.program is None:
                    return Checked(why=finding.reason)
                else:
                    why = why or f"{cell.label}: {finding.reason}"
        except Exception:  # noqa: BLE001
            return Checked()
        return Checked(same, why)

    def _may_be_unchanged(self, cells: Sequence[Cell], pair: worktrees.Pair) -> bool:
        """Two versions of a distribution are a change."""
        return (
            self.config.unchanged == "skip"
            and bool(pair.reference.commit)
            and not any(worktrees.lacks(pair.reference, names.split_nodeid(cell.nodeid)[0]) for cell in cells)
        )

    def _prepared(self, group: Group, cell: Cell, pair: worktrees.Pair) -> Sides:
        """Both sides of a cell's target. Raises FtgateError where one cannot be prepared."""
        requires = group.spec.requires
        target = self.targets.prepared(cell, requires, pair.changed)
        other = self.targets.prepared(cell, requires, pair.reference)
        changed, reference = self._side(pair.changed, target), self._side(pair.reference, other)
        package = changed.differing_package(reference)
        differs = "the interpreter" if target.interpreter != other.interpreter else package
        return Sides(target, changed, reference, f"{differs} differs" if differs else "")

    def _side(self, checkout: Checkout, target: PreparedTarget) -> Side:
        key = (checkout.root, target.python)
        if key not in self._sides:
            self._sides[key] = Side(checkout.top(checkout.project), Path(target.python).parent.parent)
        return self._sides[key]

    def _finding(self, cell: Cell, spec: Spec, sides: Sides) -> Finding:
        """What the check launch of a cell finds. Raises LaunchFailed, CellUnsupported and OSError.

        Of a program the kernel alone tells what it opens. What it looks for in vain is not heard of, so the folders in
        which it opens files must hold the same names.
        """
        program = cell.executor.program is not None
        with OpenedFiles.watching(map(Path, sides.changed.bases.values())) as watch:
            if program and watch is None:
                return Finding(0, "what a program reads cannot be followed here")
            notes = self._notes(cell, spec, sides.target)
            heard = _heard(watch)
        if program:
            heard += [Note(reads.NAMES, os.path.dirname(note.text)) for note in heard if note.kind == OPENED]
        return sides.compare([*notes, *heard], watched=watch is not None)

    def _notes(self, cell: Cell, spec: Spec, target: PreparedTarget) -> list[Note]:
        """The check launch: it starts, imports the workload, runs an iteration or two, and ends."""
        self.listener.advance(cell.label, "checking what is read by", 0, 0, None)
        plan = IterationPlan(spec, Limits(timeout_s=self.config.timeout_s))
        program = cell.executor.program is not None
        with tempfile.TemporaryDirectory(prefix="ftgate-") as folder:
            file = Path(folder, "reads")
            file.touch()
            request = msgspec.structs.replace(
                request_here(cell, spec, target.python, spec.timeout_s or self.config.timeout_s),
                expect_gil=cell.target.settings.gil == "on" or not target.interpreter.free_threaded,
                environment=target.environment,
                copies=target.copies,
                reads="" if program else str(file),
            )
            handle = self.launcher.start(request)
            try:
                handle.ready()
                if program:
                    handle.iteration(WARMUP, 1, min(plan.window_ns, LOAD_NS))
                elif handle.iteration(CHECK, 1, plan.window_ns).wall_ns < SHORT_NS:
                    handle.iteration(WARMUP, 1, plan.window_ns)
                handle.finish()
            finally:
                handle.kill()
            return [BEGUN] if program else read_notes(file)


def _heard(watch: OpenedFiles | None) -> list[Note]:
    """What the kernel says of the same launch."""
    if watch is None:
        return []
    events = watch.events()
    if events is None:
        return [Note(reads.UNKNOWN, "a launch that opens so many files")]
    return [Note(reads.WRITTEN if event.changed else OPENED, event.path) for event in events]


def _same(finding: Finding, reference: Checkout) -> str:
    files, text = finding.files, finding.but_for_text
    what = "file that it reads is" if files == 1 else f"{files} files that it reads are"
    but = f", {f'{text} of them ' if files > text else ''}but for comments, docstrings or layout" if text else ""
    return f"the {what} the same at {reference.label}{but}"
