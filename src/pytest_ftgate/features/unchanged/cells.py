"""Cells that cannot have changed: no code that they run is different, and what they read is the same on both sides.

A check launch notes what a cell runs and reads. Where a source differs, but not in what ran of it, the reference is
launched as well: it may run what the changed side does not.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from packaging.version import Version

from ...declare.plan import one_per_target
from ...hookspec import hookimpl
from ...kit.text import plural, split_nodeid
from ...measure.cell_run import PreparedTarget
from ...measure.launch import CellUnsupported, LaunchFailed, request_here
from ...measure.plan import Allowance, RoundPlan
from ...measure.watch.opened_files import OpenedFiles
from ...model.spec import Cell, Group, Spec
from ...run.run import Run
from ...run.sides import worktrees
from ...run.trial import Settled
from ...runner import reads
from ...runner.protocol import CHECK, WARMUP
from . import UNCHANGED
from .compare import OPENED, Compared, Read, compare, read_notes
from .sides import Side

SHORT_NS: Final = 1e9
"""An iteration shorter than this is followed by a second one: what a body reads only then counts as well."""
LOAD_NS: Final = 1_000_000_000
"""How long a server gets load at most."""
PreparedSide: TypeAlias = tuple[Side, PreparedTarget]
"""A target on one side: its files, and what launches there."""


class UnchangedCells:
    """Finds the cells of a comparison that need no measurement."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._sides: dict[tuple[str, str], Side] = {}

    @hookimpl(specname="ftgate_settle")
    def check(self, group: Group, cells: Sequence[Cell], pair: worktrees.Pair) -> Settled:
        """All `cells` of a group that run Python in our runner, or none: they are compared with each other.

        Each program by itself. Two versions of a distribution are a change.
        """
        lacking = (worktrees.lacks(pair.reference, split_nodeid(cell.nodeid)[0]) for cell in cells)
        if UNCHANGED.of(self.run.config) != "skip" or not pair.reference.commit or any(lacking):
            return Settled()
        same, why = dict[str, str](), ""
        try:
            # A build for one target may leave files that another lists: all come before a launch.
            sides = {cell.target.spec: self._prepared(group, cell, pair) for cell in one_per_target(cells)}
            for (mine, target), (other, reference) in sides.values():
                # Both may be told apart before anything is launched.
                package = mine.differing_package(other)
                if differs := "the interpreter" if target.interpreter != reference.interpreter else package:
                    return Settled(why=f"{differs} differs")
            for cell in sorted(cells, key=lambda each: each.executor.program is not None):
                try:
                    with self.run.spent.on("checks"):
                        finding = self._finding(cell, group.spec, pair, sides[cell.target.spec])
                except CellUnsupported:
                    continue
                except LaunchFailed:
                    if cell.executor.program is None:
                        return Settled()  # the measurement finds the error again, and reports it
                    finding = Compared("its check launch failed")
                if not finding.reason:
                    same[cell.nodeid] = f"nothing that it runs or reads differs at {pair.reference.label}"
                    if uncalled := len(finding.uncalled):
                        same[cell.nodeid] += (
                            f": {plural(uncalled, 'changed function is', 'changed functions are')} never called"
                        )
                elif cell.executor.program is None:
                    return Settled(why=finding.reason, changed=finding.changed)
                else:
                    why = why or f"{cell.label}: {finding.reason}"
        except Exception:  # noqa: BLE001
            return Settled()
        return Settled(same, why)

    def _prepared(self, group: Group, cell: Cell, pair: worktrees.Pair) -> tuple[PreparedSide, PreparedSide]:
        """Both sides of a cell's target. Raises FtgateError where one cannot be prepared."""
        found = []
        for checkout in (pair.changed, pair.reference):
            target = self.run.targets.prepared(cell, group.spec, checkout)
            key = (checkout.root, target.python)
            if key not in self._sides:
                top, environment = checkout.top(checkout.project), Path(target.python).parent.parent
                deferred = Version(target.interpreter.version) >= Version("3.14")
                self._sides[key] = Side(top, environment, deferred=deferred)
            found.append((self._sides[key], target))
        return found[0], found[1]

    def _finding(self, cell: Cell, spec: Spec, pair: worktrees.Pair, sides: Iterable[PreparedSide]) -> Compared:
        """What the check launches of a cell find. Raises LaunchFailed, CellUnsupported and OSError."""
        (changed, target), (reference, other_target) = sides
        found = self._launched(cell, self.run.references.relocated(spec, pair.changed), target, changed, reference)
        if found.reason or not found.sources:
            return found
        spec = self.run.references.relocated(spec, pair.reference)
        other = self._launched(cell, spec, other_target, reference, changed)
        if not other.reason and (alone := found.ran ^ other.ran):
            place, name = min(alone)
            functions = frozenset((str(at), each) for at, each in alone)
            return Compared(f"{name} in {place} runs on one side only", changed=functions)
        return other._replace(uncalled=found.uncalled & other.uncalled)

    def _launched(self, cell: Cell, spec: Spec, target: PreparedTarget, mine: Side, other: Side) -> Compared:
        """Whether the other side has what a launch of one side runs and reads.

        Of a program the kernel alone tells what it opens. What it looks for in vain is not heard of, so the folders in
        which it opens files must hold the same names.
        """
        program = cell.executor.program is not None
        with OpenedFiles.watching(map(Path, mine.bases.values())) as watch:
            if program and watch is None:
                return Compared("what a program reads cannot be followed here")
            notes = self._notes(cell, spec, target)
            events = watch.events() if watch else []
        if events is None:
            notes.append(Read(reads.UNKNOWN, "a launch that opens so many files"))
        notes += [Read(reads.WRITTEN if event.changed else OPENED, event.path) for event in events or ()]
        if program:
            notes += [Read(reads.NAMES, os.path.dirname(note.text)) for note in notes if note.kind == OPENED]
        return compare(notes, mine, other, watched=watch is not None)

    def _notes(self, cell: Cell, spec: Spec, target: PreparedTarget) -> list[Read]:
        """The check launch: it starts, imports the workload, runs an iteration or two, and ends."""
        self.run.listener.advance(cell.label, "checking what is run by", 0, 0, None)
        plan = RoundPlan(spec, Allowance(timeout_s=self.run.config.timeout), time.monotonic)
        program = cell.executor.program is not None
        with tempfile.TemporaryDirectory(prefix="ftgate-") as folder:
            file = Path(folder, "reads")
            file.touch()
            request = msgspec.structs.replace(
                request_here(cell, spec, target.python, spec.timeout_s or self.run.config.timeout),
                expect_gil=cell.target.settings.gil == "on" or not target.interpreter.free_threaded,
                environment=target.environment,
                copies=target.copies,
                reads="" if program else str(file),
            )
            handle = self.run.launcher.start(request)
            try:
                handle.ready()
                if program:
                    handle.iteration(WARMUP, 1, min(plan.window_ns, LOAD_NS))
                elif handle.iteration(CHECK, 1, plan.window_ns).wall_ns < SHORT_NS:
                    handle.iteration(WARMUP, 1, plan.window_ns)
                handle.finish()
            finally:
                handle.kill()
            return [Read(reads.STARTED, "")] if program else read_notes(file)
