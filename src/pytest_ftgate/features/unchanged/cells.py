"""Cells that cannot have changed: no code that they run is different, and what they read is the same on both sides.

A check launch notes what a cell runs and reads. Where a source differs, but not in what ran of it, the reference is
launched as well: it may run what the changed side does not.
"""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from ...declare.plan import one_per_target
from ...hookspec import hookimpl
from ...kit.errors import FtgateError
from ...kit.git import Repository
from ...kit.text import plural, split_nodeid
from ...measure.cell_run import PreparedTarget
from ...measure.launch import CellUnsupported, LaunchFailed, error_of, request_here
from ...measure.round_plan import Allowance, RoundPlan
from ...model.spec import Cell, Group, Plan, Spec
from ...run.run import Run
from ...run.sides import worktrees
from ...run.trial import Settled
from ...runner import reads
from ...runner.protocol import CHECK, WARMUP
from . import UNCHANGED
from .notes import OPENED, Compared, Read, compared, differ, installed_files, read_notes
from .opened_files import OpenedFiles
from .order import distances
from .sides import SideFiles

SHORT_NS: Final = 1e9
"""An iteration shorter than this is followed by a second one: what a body reads only then counts as well."""
PreparedSide: TypeAlias = tuple[SideFiles, PreparedTarget]
"""A target on one side: its files, and what launches there."""


class UnchangedCells:
    """Finds the cells of a comparison that need no measurement."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._sides: dict[tuple[str, str], SideFiles] = {}
        self._failed = False
        """Whether a check failed by a fault of ours or of the system. The report says it once."""

    @hookimpl(specname="ftgate_settle")
    def check(self, group: Group, cells: Sequence[Cell], pair: worktrees.Pair) -> Settled:
        """All `cells` of a group that run Python in our runner, or none: they are compared with each other.

        Programs and servers are measured: nobody hears what they import from bytecode, or only ask about. Two versions
        of a distribution are a change.
        """
        cells = [cell for cell in cells if cell.executor.program is None]
        lacking = (worktrees.lacks(pair.reference, split_nodeid(cell.nodeid)[0]) for cell in cells)
        if UNCHANGED.of(self.run.config) != "skip" or not cells or not pair.reference.commit or any(lacking):
            return Settled()
        same = dict[str, str]()
        try:
            # A build for one target may leave files that another lists: all come before a launch.
            sides = {cell.target.spec: self._prepared(group, cell, pair) for cell in one_per_target(cells)}
            for cell in one_per_target(cells):
                # Whether they may be the same is known before anything is launched.
                (mine, target), (other, reference) = sides[cell.target.spec]
                if target.interpreter != reference.interpreter:
                    return Settled(why="the interpreter differs")
                if packages := mine.differing_packages(other):
                    return self._of_packages(packages, cell, group.spec, pair, sides[cell.target.spec])
            for cell in cells:
                try:
                    with self.run.spent.on("checks"):
                        finding = self._finding(cell, group.spec, pair, sides[cell.target.spec])
                except CellUnsupported:
                    continue
                if finding.reason:
                    return Settled(why=finding.reason, changed=finding.changed)
                same[cell.nodeid] = f"nothing that it runs or reads differs at {pair.reference.label}"
                if uncalled := len(finding.uncalled):
                    is_never = plural(uncalled, "changed function is", "changed functions are")
                    same[cell.nodeid] += f": {is_never} never called"
        except (LaunchFailed, FtgateError):  # the measurement finds it again, and reports it
            return Settled()
        except Exception as error:  # noqa: BLE001 -- it costs a measurement, not the run
            said, self._failed = self._failed, True
            if said:
                return Settled()
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            return Settled(why=f"whether it changed could not be checked: {error_of(error).reason}, in {where}")
        return Settled(same)

    @hookimpl(specname="ftgate_first")
    def first(self, plan: Plan) -> dict[str, int]:
        """The tests that seem to run what differs from what they are compared with."""
        run, found = self.run, dict[str, int]()
        try:
            pair = run.references.requested() if run.config.reference else None
            top = Repository(run.folder.root).top
            # By reference: what differs, in the files that are measured.
            changed = dict[str, Mapping[tuple[str, str], int]]()
            for group in plan:
                newest = None if pair or run.stored.decide else run.stored.compared_with(group, group.cells[0])[1]
                commit = pair.reference.commit if pair else (newest.commit if newest else "")
                if commit and commit not in changed:
                    changed[commit] = distances(pair.changed.top(pair.changed.project) if pair else top, commit)
                source = group.spec.source
                place = os.path.relpath(source.path, top), source.qualname.rpartition(".")[2]
                if commit and place in changed[commit]:
                    found[group.spec.nodeid] = changed[commit][place]
        except (FtgateError, OSError):  # whoever compares says it
            return {}
        return found

    def _prepared(self, group: Group, cell: Cell, pair: worktrees.Pair) -> tuple[PreparedSide, PreparedSide]:
        """Both sides of a cell's target. Raises FtgateError where one cannot be prepared."""
        found = []
        for checkout in (pair.changed, pair.reference):
            target = self.run.targets.prepared(cell, group.spec, checkout)
            key = (checkout.root, target.python)
            if key not in self._sides:
                top, environment = checkout.top(checkout.project), Path(target.python).parent.parent
                self._sides[key] = SideFiles(top, environment)
            found.append((self._sides[key], target))
        return found[0], found[1]

    def _of_packages(
        self,
        packages: Mapping[str, frozenset[str]],
        cell: Cell,
        spec: Spec,
        pair: worktrees.Pair,
        sides: tuple[PreparedSide, PreparedSide],
    ) -> Settled:
        """Find the differing distributions that a cell reaches, and their functions; files of the start always run."""
        (mine, target), (other, _) = sides
        with self.run.spent.on("checks"):
            notes = self._notes(cell, self.run.references.relocated(spec, pair.changed), target)
        files = installed_files(notes, mine)
        reached = [name for name, names in packages.items() if not names or names & files]
        why = differ(reached) if reached else f"{differ([*packages])}, and nothing of it is imported"
        return Settled(why=why, changed=compared(notes, mine, other).changed)

    def _finding(self, cell: Cell, spec: Spec, pair: worktrees.Pair, sides: Iterable[PreparedSide]) -> Compared:
        """Compare both sides of a cell by check launches."""
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

    def _launched(self, cell: Cell, spec: Spec, target: PreparedTarget, mine: SideFiles, other: SideFiles) -> Compared:
        """Launch one side, and compare all that it runs and reads with the other side: C code opens files, too."""
        with OpenedFiles.watching(map(Path, mine.bases.values())) as watch:
            if watch is None:
                return Compared("the system does not tell which files are opened")
            notes, events = self._notes(cell, spec, target), watch.events()
        if events is None:
            notes.append(Read(reads.UNKNOWN, "a launch that opens so many files"))
        notes += [Read(reads.WRITTEN if event.changed else OPENED, event.path) for event in events or ()]
        return compared(notes, mine, other)

    def _notes(self, cell: Cell, spec: Spec, target: PreparedTarget) -> list[Read]:
        """The check launch: it starts, imports the workload, runs an iteration or two, and ends."""
        self.run.listener.advance(cell.label, "checking what is run by", 0, 0, None)
        plan = RoundPlan(spec, Allowance(timeout_s=self.run.config.timeout), time.monotonic)
        with tempfile.TemporaryDirectory(prefix="ftgate-") as folder:
            file = Path(folder, "reads")
            file.touch()
            request = msgspec.structs.replace(
                request_here(cell, spec, target.python, spec.timeout_s or self.run.config.timeout),
                expect_gil=cell.target.settings.gil == "on" or not target.interpreter.free_threaded,
                environment=target.environment,
                copies=target.copies,
                reads=str(file),
            )
            handle = self.run.launcher.start(request)
            try:
                handle.ready()
                if handle.iteration(CHECK, 1, plan.window_ns).wall_ns < SHORT_NS:
                    handle.iteration(WARMUP, 1, plan.window_ns)
                handle.finish()
            finally:
                handle.kill()
            return read_notes(file)
