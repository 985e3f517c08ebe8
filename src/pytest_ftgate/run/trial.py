"""One test of a run on its way to its rows: its references, its measurement, its verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from ..judge import decide, explain, figures
from ..judge.judge import doubted
from ..judge.values import TestValues, Values
from ..kit.errors import FtgateError
from ..kit.values import grouped
from ..measure import machine
from ..measure.conditions import ConditionsMonitor
from ..measure.launch import error_of
from ..model.report import Conditions, Row, Shortfall, failed_row, first_line
from ..model.sample import executor_cell
from ..model.spec import Cell, Group
from ..model.verdict import Decision, Verdict
from ..targets import environments
from . import explaining
from .compared import Reference, references_of
from .explaining import Explainer
from .phase import Phase, left_open, shortfall
from .shared import FAILURES, Shared
from .sides.checkout import Checkout
from .targets import same, unavailable


class Settled(NamedTuple):
    """What a feature tells of a test before it is measured: see `hookspec.ftgate_settle`."""

    same: Mapping[str, str] = MappingProxyType({})
    why: str = ""
    changed: AbstractSet[tuple[str, str]] = frozenset()


class Trial:
    """One test: `begin`, then `step` measures a round at a time while it is `open`; `rows` are its verdicts.

    Each cell has one reference, which is found before anything is measured: see `compared.references_of`.
    """

    def __init__(self, run: Shared, group: Group) -> None:
        self.run = run
        self.group = group
        self.monitor = ConditionsMonitor()
        self.conditions = Conditions()
        self.by_nodeid: dict[str, Row] = {}
        """Rows as they were judged: `_amended` says what becomes of their verdicts."""
        self.phase: Phase | None = None
        """What is measured; None where nothing is."""
        self.open = False
        """Whether there is more to measure."""
        self.shortfall: Shortfall | None = None
        """What the time lacks."""
        self._by_features = run.hooks.ftgate_amend(run=run, group=group)
        self.explainer = Explainer(self._by_people, run.folder.root, lambda: run.time.left_s)
        self._interrupted = False

    # -- measuring ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Find the reference of each cell, and begin to measure; a cell that is not measured has its row at once."""
        self.monitor.start()
        run, group = self.run, self.group
        # 1. The references of the cells that can run here, and rows of the others.
        able = [each for each in group.cells if not machine.cores_lacking(each, group.spec)]
        able = [each for each in able if run.targets.build(each, group.spec)]
        references = references_of(run, group, able)
        changed = next((each.pair.changed for each in references.values() if each.pair), None)
        rows = {each.nodeid: self._row_unmeasured(each, references.get(each.nodeid), changed) for each in group.cells}
        self.by_nodeid = {nodeid: row for nodeid, row in rows.items() if row is not None}
        cells = tuple(cell for cell in group.cells if cell.nodeid not in self.by_nodeid)
        # 2. Those that run and read what their reference does.
        functions = self._settle(cells, references)
        unchanged = {each.nodeid: self._row_unchanged(each, references[each.nodeid]) for each in cells}
        self.by_nodeid |= {nodeid: row for nodeid, row in unchanged.items() if row is not None}
        cells = tuple(cell for cell in cells if cell.nodeid not in self.by_nodeid)
        # 3. The others are measured together.
        if cells:
            phase = Phase(cells, {cell.nodeid: references[cell.nodeid] for cell in cells}, changed, functions)
            phase.begin(run, group, self.monitor)
            self.phase, self.open = phase, True

    def _settle(self, cells: Sequence[Cell], references: dict[str, Reference]) -> frozenset[tuple[str, str]]:
        """Note what a feature finds of both sides before they are measured; the functions that cells run and differ."""
        functions = frozenset[tuple[str, str]]()
        paired = ((each.pair, cell) for cell in cells if (each := references[cell.nodeid]).basis.basis == "paired")
        for pair, of_pair in grouped(paired).items():
            hook = self.run.hooks.ftgate_settle
            found: Settled = hook(run=self.run, group=self.group, cells=of_pair, pair=pair) or Settled()
            functions |= found.changed
            for cell in of_pair:
                known, why = references[cell.nodeid], found.same.get(cell.nodeid, "")
                basis = replace(known.basis, why="; ".join(filter(None, (known.basis.why, found.why))))
                if why:
                    basis = replace(known.basis, basis="", why=why, entry=None, same=True)
                references[cell.nodeid] = known._replace(basis=basis)
        return functions

    @property
    def rounds(self) -> int:
        """Its rounds so far."""
        return self.phase.measurement.plan.rounds if self.phase else 0

    @property
    def spent_s(self) -> float:
        """The seconds of its rounds."""
        return self.phase.measurement.plan.spent_s if self.phase else 0.0

    @property
    def suspect(self) -> bool:
        """Whether it is known to run a function that differs."""
        return bool(self.phase and self.phase.changed)

    @property
    def note(self) -> str:
        """Whether its launches were split, and why."""
        return self.phase.measurement.split if self.phase else ""

    def step(self, share_s: float | None = None, left_s: float | None = None) -> None:
        """One round.

        Where tests share the time of the run, `share_s` is this test's part, and `left_s` all that is left; the test's
        own time ends it as well.
        """
        phase = self.phase
        if phase is None or not self.open:
            return
        more = phase.step(share_s, left_s)
        # 1. Say the first failure of the run, and explain what is decided.
        self._tell_failure(phase)
        if self.run.config.explain:
            self.explainer.follow(phase)
        # 2. What the time lacks, which is said of what is undecided at the end: an early forecast may prove wrong.
        tests = left_s / share_s if share_s and left_s else None
        self.shortfall = shortfall(phase, self.run.time, tests)
        if not more:
            self.close()

    def _tell_failure(self, phase: Phase) -> None:
        """Say the first cell of the run that fails: other cells of its test may be measured for long."""
        for each in () if self.run.failure_told or phase.instead else phase.measurement.cell_runs:
            if each.error is not None:
                verdict = Verdict(decision=Decision.ERROR, reason=each.error.reason)
                row = Row(cell=each.cell, verdict=verdict, sample=each.sample())
            elif each.needs or not each.alive:
                continue
            else:
                row = phase.judge.so_far(each.cell)
            if row.verdict.decision in FAILURES:
                # Only now, because it looks at the machine, and asks which commits accept the change.
                self.conditions = self.monitor.observe()
                self.run.tell_failure([self._amended(row)])
                if self.run.failure_told:
                    return

    def close(self) -> None:
        """Nothing more is measured: judge what there is, and explain what has regressed."""
        if not self.open or self.phase is None:
            return
        self.open, phase = False, self.phase
        measurement = phase.measurement
        self.conditions = self.monitor.observe()
        if phase.instead is not None:
            self.by_nodeid |= {row.cell.nodeid: row for row in phase.instead.rows()}
            return
        phase.values = TestValues(measurement.samples())
        phase.judge.conditions = (self.conditions,)
        for values in phase.values:
            try:
                self.by_nodeid[values.cell.nodeid] = self._judged(phase, values)
            except Exception as error:  # noqa: BLE001 -- it is this cell's error; the others have their verdicts
                self._fail_cell(values.cell, error)
        if self.run.config.explain and not self._interrupted:
            rows = [self._amended(self.by_nodeid[cell.nodeid]) for cell in self.group.cells]
            self.explainer.end(rows, phase)

    def fail(self, error: Exception) -> None:
        """End it with this error in the row of every cell that has no verdict yet."""
        self.open = False
        for cell in self.group.cells:
            if cell.nodeid not in self.by_nodeid:
                self._fail_cell(cell, error)

    # -- rows --------------------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """All cells' rows in their order: their verdicts as they stand at the end, with conditions and explanations."""
        return [self._finished(cell) for cell in self.group.cells]

    def rows_in_part(self) -> list[Row]:
        """The rows of the cells that have one, where the run ends in the middle: nothing more is measured."""
        whole = not self.open  # interrupted while it was explained
        self._interrupted = True
        self.close()
        rows = [self.by_nodeid[cell.nodeid] for cell in self.group.cells if cell.nodeid in self.by_nodeid]
        measured = [row for row in rows if row.sample is None or row.sample.launches or row.error is not None]
        finished = [self._finished(row.cell) for row in measured]
        return [row if row.sample is None else replace(row, in_part=not whole) for row in finished]

    def _judged(self, phase: Phase, values: Values) -> Row:
        """The row of a cell by its launches."""
        sample, verdict = values.sample, phase.judge.verdict(values)
        if verdict.decision is Decision.NO_BASELINE and self.run.stored.records(self.group, (values.cell,)):
            verdict = Verdict(decision=Decision.RECORDED)
        # A file or an editable install may not be what the workload needs: its error says so.
        if sample.error is not None:
            detail, pair = sample.error.detail, phase.references[values.cell.nodeid].pair
            hint = self.run.references.hint(detail, pair.changed if pair else None)
            hint = hint or environments.missing_hint(detail, sample.cell.target.spec)
            if hint:
                error = replace(sample.error, detail=f"{detail.rstrip()}\n{hint}")
                sample = replace(sample, error=error)
        first = executor_cell(values.cell, phase.values.cells, self.group.spec.executors[0])
        shown = figures.figures(values, reference=phase.values.of(first))
        values.read_all()
        return Row(
            cell=values.cell,
            verdict=verdict,
            figures=self.run.references.shown(shown),
            sample=sample,
            error=sample.error,
        )

    def _finished(self, cell: Cell) -> Row:
        """The row of a cell with its verdict as it stands, and its explanation."""
        try:
            row = self._amended(self.by_nodeid[cell.nodeid])
            if row.verdict.decision in explain.WORSE and self.run.config.explain:
                explanation, phase = self.explainer.of(cell.nodeid), self.phase
                # Where its reference was not measured, what moved since its baseline.
                values = phase.values.of(cell) if phase else None
                broken = row.verdict.decision is Decision.BROKEN
                if explanation is None and phase and values is not None and values.reference is None and not broken:
                    explanation = explaining.of_stored(row, phase.judge.compared_with(values))
                row = replace(row, explanation=explanation)
        except Exception as error:  # noqa: BLE001
            self._fail_cell(cell, error)
            return self.by_nodeid[cell.nodeid]
        return row

    def _amended(self, row: Row) -> Row:
        """The row with its verdict as it stands now, and with what the time lacks where that is open."""
        # 1. In doubt where the machine may have done it.
        verdict = doubted(
            row.verdict,
            paired=decide.unfit(self.conditions, decide.PAIRED),
            alone=decide.unfit(self.conditions, decide.UNPAIRED),
            crowded=decide.unfit(self.conditions, decide.CROWDED),
        )
        if row.sample is not None:
            lacking = self.shortfall if verdict.decision.wants_time else None
            if lacking is None and verdict.decision.wants_time and self.phase and not self.open:
                lacking = left_open(self.phase, verdict, self.run.time)
            row = replace(row, conditions=self.conditions, shortfall=lacking)
        # 2. By features: what commits accept, and what the test is known to fail.
        line, options = self.group.spec.source.line, self.run.config.rerun
        return self._by_people(replace(row, verdict=verdict, line=line, options=options))

    def _by_people(self, row: Row) -> Row:
        """The row with its verdict as commits accept it and the test expects it: what features make of it."""
        for amended in self._by_features:
            row = replace(row, verdict=amended(row))
        return row

    def _fail_cell(self, cell: Cell, error: Exception) -> None:
        told = error_of(error)
        self.by_nodeid[cell.nodeid] = failed_row(cell, told.reason, told.detail)

    def _row_unchanged(self, cell: Cell, reference: Reference | None) -> Row | None:
        """The row of a cell that is the same as its reference, in a test without contracts; None for all others."""
        if reference is None or not reference.basis.same or self.group.spec.contracts:
            return None
        verdict = replace(reference.basis, why="").verdict(Decision.UNCHANGED, f"not measured: {reference.basis.why}")
        return Row(cell=cell, verdict=verdict)

    def _row_unmeasured(self, cell: Cell, reference: Reference | None, changed: Checkout | None) -> Row | None:
        """The row of a cell without its cores, its interpreter or a readable baseline, or of one that is unchanged, for
        which nothing is installed; None for all others.
        """
        run, spec = self.run, self.group.spec

        def unsupported(reason: str) -> Row:
            return Row(cell=cell, verdict=Verdict(decision=Decision.UNSUPPORTED, reason=reason))

        if reason := machine.cores_lacking(cell, spec):
            return unsupported(reason)
        if row := self._row_unchanged(cell, reference):
            return row
        pair = reference.pair if reference else None
        lookup = run.targets.lookup(cell, spec, changed)
        if lookup.failed:
            return failed_row(cell, first_line(lookup.reason), lookup.reason)
        reason = lookup.reason if lookup.target is None else unavailable(cell, lookup.target.interpreter)
        if reason or lookup.target is None:
            return unsupported(reason)
        if pair and reference and reference.basis.basis:
            other = run.targets.lookup(cell, spec, pair.reference)
            if other.failed:
                return failed_row(cell, first_line(other.reason), other.reason)
            if pair.reference.python and other.target and same(cell, lookup.target, pair.reference, other.target):
                itself = f"{cell.target.spec} is {pair.reference.label} itself"
                return unsupported(f"{itself}, with which the targets are compared")
        stored = None if run.config.reference else run.stored.entry(self.group, cell)
        return failed_row(cell, "its baseline cannot be read", str(stored)) if isinstance(stored, FtgateError) else None
