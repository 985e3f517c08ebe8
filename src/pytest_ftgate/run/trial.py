"""One test of a run on its way to its rows: measured, judged, and after a miss measured with its reference."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ..judge import decide, figures
from ..judge.judge import ComparedWith, doubted, excess, missed, not_there, unchanged
from ..judge.values import TestValues
from ..kit import git
from ..kit.errors import FtgateError
from ..kit.text import split_nodeid
from ..measure import machine
from ..measure.conditions import ConditionsMonitor
from ..measure.launch import error_of
from ..model.report import Conditions, Row, Shortfall, failed_row, first_line
from ..model.sample import executor_cell, one_worker_cell
from ..model.spec import Cell, Group
from ..model.verdict import Decision, Verdict
from ..report import said
from ..targets import environments
from . import explaining
from .explaining import Explainer
from .phase import LEAST_ROUNDS, Phase, predicted
from .sides import worktrees
from .targets import same, unavailable

if TYPE_CHECKING:
    from .run import Run


class Settled(NamedTuple):
    """What a feature tells of a test before it is measured: see `hookspec.ftgate_settle`."""

    same: Mapping[str, str] = MappingProxyType({})
    why: str = ""
    changed: AbstractSet[tuple[str, str]] = frozenset()


class Trial:
    """One test: `begin`, then `step` measures a round at a time while it is `open`; `rows` are its verdicts.

    The first phase compares with stored baselines or with `--ftgate-against`. Cells that miss their baseline are
    measured again, paired with the baseline's commit; where that cannot be done, the verdict is predicted.
    """

    def __init__(self, run: Run, group: Group) -> None:
        self.run = run
        self.group = group
        self.monitor = ConditionsMonitor()
        self.conditions = Conditions()
        self.by_nodeid: dict[str, Row] = {}
        """Rows as they were judged first: `_amended` says what becomes of their verdicts."""
        self.phases: list[Phase] = []
        """Those to come."""
        self.active: Phase | None = None
        self.first: Phase | None = None
        """The one that has ended first: the rows have its values."""
        self.shortfalls: dict[str, Shortfall | None] = {}
        """By node id: what the time lacks in which a cell was measured last."""
        self.note = ""
        """Whether its launches were split, and why."""
        self._after_miss: dict[str, tuple[Verdict | None, str]] = {}
        """By node id: the verdict on paired launches, and why there is none."""
        self._same_code: dict[str, str] = {}
        self._changed: AbstractSet[tuple[str, str]] = frozenset()
        """By node id of a cell that missed its baseline: why its code is that of the baseline."""
        self._by_features = run.hooks.ftgate_amend(run=run, group=group)
        self.explainer = Explainer(self._by_people, run.folder.root)
        self._ended_s = 0.0
        self._ended_rounds = 0
        self._interrupted = False

    # -- measuring ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Prepare the targets and begin the first phase; a cell that cannot be measured has its row at once."""
        self.monitor.start()
        against, group = self.run.config.against, self.group
        pair = self.run.references.requested() if against else None
        # 1. Rows of the cells that cannot be measured.
        rows = {cell.nodeid: self._row_unmeasured(cell, pair) for cell in group.cells}
        self.by_nodeid = {nodeid: row for nodeid, row in rows.items() if row is not None}
        cells = tuple(cell for cell in group.cells if cell.nodeid not in self.by_nodeid)
        if not cells:
            return
        # 2. What the others are compared with: a pair, or what is stored of them.
        phase = Phase(cells=cells, judged=frozenset(cell.nodeid for cell in cells))
        if against:
            phase.pair, phase.why = pair, f"--ftgate-against {against}"
        else:
            self._beside_another_machines(phase)
        if phase.pair is not None:
            phase.same, differs, phase.changed = self._settled(cells, phase.pair)
            self._changed = phase.changed
            phase.why = "; ".join(filter(None, (phase.why, differs)))
        # 3. Rows of the cells that are the same on both sides, in a test without contracts.
        if phase.same and not group.spec.contracts:
            for cell in cells:
                if why := phase.same.get(cell.nodeid):
                    basis = replace(phase.basis_of(cell, self.run, group), why="")
                    verdict = basis.verdict(Decision.UNCHANGED, f"not measured: {why}")
                    self.by_nodeid[cell.nodeid] = Row(cell=cell, verdict=verdict)
            phase.cells = tuple(cell for cell in cells if cell.nodeid not in phase.same)
            phase.judged = frozenset(cell.nodeid for cell in phase.cells)
        if phase.cells:
            self.phases.append(phase)
            self._begin_next()

    @property
    def open(self) -> bool:
        """Whether there is more to measure."""
        return self.active is not None

    @property
    def rounds(self) -> int:
        """Rounds of all its phases so far."""
        return self._ended_rounds + (self.active.measurement.plan.rounds if self.active else 0)

    @property
    def suspect(self) -> bool:
        """Whether it is known to run a function that differs."""
        return bool(self._changed)

    def step(self, share_s: float | None = None, left_s: float | None = None) -> None:
        """One round of the phase under way.

        Where tests share the time of the run, `share_s` is this test's part, and `left_s` all that is left; the test's
        own time ends it as well.
        """
        phase = self.active
        if phase is None:
            return
        more = phase.step(share_s, left_s)
        # 1. Explain what is decided, in the time of the phase.
        if self.run.config.explain:
            self.explainer.follow(phase, self._left_s(phase))
        # 2. Say once in a phase that its time is too short for a decision, as soon as that is known.
        tests = left_s / share_s if share_s and left_s else None
        lacking = predicted(phase, self.run.config.test_time, self._ended_s, self.run.time, tests)
        if lacking and not any(map(self.shortfalls.get, phase.judged)):
            self.run.listener.warn(f"{self.group.key}: {said.shortfall_text(lacking)}")
        self.shortfalls |= dict.fromkeys(phase.judged, lacking)
        # 3. The next phase, while there is time.
        if more:
            return
        self._end()
        if self._own_left_s > 0 and not self.run.time.over:
            self._begin_next()
        else:
            self.close()

    def close(self) -> None:
        """The time budget is used up: judge what there is, and begin nothing more."""
        self._end()
        for phase in self.phases:
            self._not_begun(phase, FtgateError("the time budget was used up"), late=True)
        self.phases = []

    def fail(self, error: Exception) -> None:
        """End it with this error in the row of every cell that has no verdict yet, or was to be measured again."""
        unfinished = [*self.phases, *([self.active] if self.active else [])]
        self.phases, self.active = [], None
        for cell in self.group.cells:
            if cell.nodeid not in self.by_nodeid or any(cell.nodeid in phase.judged for phase in unfinished):
                self._fail_cell(cell, error)

    # -- rows --------------------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """All cells' rows in their order: their verdicts as they stand at the end, with conditions and explanations."""
        return [self._finished(cell) for cell in self.group.cells]

    def rows_in_part(self) -> list[Row]:
        """The rows of the cells that have one, where the run ends in the middle: nothing more is measured."""
        whole = not (self.open or self.phases)  # interrupted while it was explained
        self.phases, self._interrupted = [], True
        self._end()
        rows = [self.by_nodeid[cell.nodeid] for cell in self.group.cells if cell.nodeid in self.by_nodeid]
        measured = [row for row in rows if row.sample is None or row.sample.launches or row.error is not None]
        finished = [self._finished(row.cell) for row in measured]
        return [row if row.sample is None else replace(row, in_part=not whole) for row in finished]

    def _finished(self, cell: Cell) -> Row:
        """The row of a cell with its verdict as it stands, and its explanation."""
        try:
            row = self._amended(self.by_nodeid[cell.nodeid])
            if row.verdict.decision in explaining.EXPLAINED and self.run.config.explain:
                explanation = self.explainer.of(cell.nodeid)
                # Where its reference was not measured, what moved since its baseline.
                values = self.first.values.of(cell) if self.first else None
                if explanation is None and self.first and values is not None and values.reference is None:
                    explanation = explaining.of_stored(row, self.first.judge.compared_with(values))
                row = replace(row, explanation=explanation)
        except Exception as error:  # noqa: BLE001
            self._fail_cell(cell, error)
            return self.by_nodeid[cell.nodeid]
        return row

    def _amended(self, row: Row) -> Row:
        """The row with its verdict as it stands now, and with what the time lacks where that is open."""
        nodeid, verdict, first = row.cell.nodeid, row.verdict, self.first
        # 1. After a miss: by the launches that were paired with the baseline's commit, else predicted.
        if nodeid in self._after_miss and first is not None and (values := first.values.of(row.cell)) is not None:
            verdict = first.judge.settled(values, verdict, *self._after_miss[nodeid])
        # 2. Where the code is that of the baseline: what misses it is no change of the code.
        if why := self._same_code.get(nodeid):
            verdict = unchanged(verdict, why)
        # 3. In doubt where the machine may have done it: contracts were judged in the first phase.
        alone = first.conditions if first else Conditions()
        verdict = doubted(
            verdict,
            paired=decide.unfit(self.conditions, decide.PAIRED),
            alone=decide.unfit(alone, decide.UNPAIRED),
            crowded=decide.unfit(alone, decide.CROWDED),
        )
        if row.sample is not None:
            lacking = self.shortfalls.get(nodeid) if verdict.decision.wants_time else None
            row = replace(row, conditions=self.conditions, shortfall=lacking)
        # 4. By features: what commits accept, and what the test is known to fail.
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
        self._after_miss.pop(cell.nodeid, None)
        self._same_code.pop(cell.nodeid, None)

    # -- what the first phase is compared with -----------------------------------------------------------------

    def _row_unmeasured(self, cell: Cell, pair: worktrees.Pair | None) -> Row | None:
        """The row of a cell without its cores, its interpreter or a readable baseline; None for all others."""

        def unsupported(reason: str) -> Row:
            return Row(cell=cell, verdict=Verdict(decision=Decision.UNSUPPORTED, reason=reason))

        if reason := machine.cores_lacking(cell, self.group.spec):
            return unsupported(reason)
        lookup = self.run.targets.lookup(cell, self.group.spec, pair.changed if pair else None)
        if lookup.failed:
            return failed_row(cell, first_line(lookup.reason), lookup.reason)
        reason = lookup.reason if lookup.target is None else unavailable(cell, lookup.target.interpreter)
        if reason or lookup.target is None:
            return unsupported(reason)
        if pair and pair.reference.python:
            other = self.run.targets.lookup(cell, self.group.spec, pair.reference).target
            if other is not None and same(cell, lookup.target, pair.reference, other):
                itself = f"{cell.target.spec} is {pair.reference.label} itself"
                return unsupported(f"{itself}, with which the targets are compared")
        stored = None if pair else self.run.stored.entry(self.group, cell)
        return failed_row(cell, "its baseline cannot be read", str(stored)) if isinstance(stored, FtgateError) else None

    def _beside_another_machines(self, phase: Phase) -> None:
        """Pair it with the commit of the baselines, if all that is stored of its cells is another machine's or build's.

        Their figures decide nothing here. It stays as it is where that commit cannot be measured.
        """
        stored = self.run.stored
        found = [stored.compared_with(self.group, cell) for cell in phase.cells]
        recorded = [each for each in found if each.entry is not None]
        alone = recorded and all(each.elsewhere for each in recorded) and not stored.records(self.group, phase.cells)
        if not alone or not self.run.config.escalate:
            return
        newest = max(recorded, key=lambda each: each.entry.recordings[-1].recorded_at if each.entry else "")
        test, _ = split_nodeid(phase.cells[0].nodeid)
        try:
            pair = self.run.references.recorded(newest, test)
        except worktrees.NothingToCompare:
            why = f"the code is that of {git.shown(newest.commit)}, which another machine or build recorded"
            phase.same = dict.fromkeys(phase.judged, why)
            return
        except git.AgainstError as error:
            phase.why = not_there(newest.commit, str(error))
            return
        self.run.targets.make_all(self.group, (pair.changed, pair.reference))
        phase.pair, phase.why = pair, "another machine or build recorded it, so its commit is measured here"

    def _settled(self, cells: Sequence[Cell], pair: worktrees.Pair) -> Settled:
        """What a feature finds of the sides before they are measured."""
        found: Settled | None = self.run.hooks.ftgate_settle(run=self.run, group=self.group, cells=cells, pair=pair)
        return found or Settled()

    # -- phases ------------------------------------------------------------------------------------------------

    @property
    def _own_left_s(self) -> float:
        """What its ended phases left of the test's own time."""
        return self.run.config.test_time - self._ended_s

    def _left_s(self, active: Phase) -> float:
        """What is left to explain a phase's cells: of its time, and of the run's."""
        run_left_s = self.run.time.left_s
        return active.left_s if run_left_s is None else min(active.left_s, run_left_s)

    def _begin_next(self) -> None:
        """Begin the next phase that can begin; one whose environments cannot be installed is judged without."""
        while self.phases and self.active is None:
            phase = self.phases.pop(0)
            waiting = sum(each.spare is phase.spare for each in self.phases)
            try:
                phase.begin(self.run, self.group, self.monitor, self._own_left_s, waiting)
                self.active = phase
                if self.first:
                    why = "measured again beside the baseline's commit: it missed its baseline"
                    self.run.listener.expect_more(why)
            except FtgateError as error:
                if phase.pair and not self.run.config.against:  # what is compared with instead decides less
                    why = f"{phase.pair.reference.label} cannot be measured: {first_line(str(error))}"
                    self.run.listener.warn(f"{self.group.key}: {why}")
                if phase.pair and not (self.first or self.run.config.against):
                    # What another machine could build: without it, what it stored is compared.
                    why = not_there(phase.pair.reference.commit, first_line(str(error)))
                    self.phases.insert(0, dataclasses.replace(phase, pair=None, why=why, same={}))
                else:
                    self._not_begun(phase, error)

    def _not_begun(self, phase: Phase, error: FtgateError, *, late: bool = False) -> None:
        for cell in phase.cells:
            if cell.nodeid not in phase.judged:
                continue
            if self.first and self.first.values.of(cell):
                if self._missed(cell):
                    why = f"{first_line(str(error))}: its reference cannot be measured"
                    if phase.pair and not late:
                        why = not_there(phase.pair.reference.commit, first_line(str(error)))
                    self._after_miss[cell.nodeid] = None, why
            elif late:
                verdict = Verdict(decision=Decision.NOT_MEASURED, reason=f"{error}: increase --ftgate-time")
                self.by_nodeid[cell.nodeid] = Row(cell=cell, verdict=verdict)
            else:
                self.by_nodeid[cell.nodeid] = failed_row(cell, first_line(str(error)), str(error))

    def _end(self) -> None:
        """End the phase under way: judge its cells, plan what follows their misses, explain what has regressed."""
        if self.active is None:
            return
        ended, self.active = self.active, None
        measurement = ended.measurement
        self._ended_rounds += measurement.plan.rounds
        self.note = measurement.split or self.note
        ended.conditions = self.conditions = self.monitor.observe()
        if ended.instead is not None:
            self.by_nodeid |= {row.cell.nodeid: row for row in ended.instead.rows()}
            self._ended_s += measurement.plan.spent_s
            return
        ended.values = TestValues(measurement.samples())
        # 1. The verdict of each cell; of one that missed its baseline, now that it was paired with its commit.
        if self.first is None:
            self.first = ended
            ended.judge.conditions = (self.conditions,)
            for values in ended.values:
                with self._failing(values.cell):
                    sample, verdict = values.sample, ended.judge.verdict(values)
                    # A file or an editable install may not be what the workload needs: its error says so.
                    if sample.error is not None:
                        detail = sample.error.detail
                        hint = self.run.references.hint(detail, ended.pair.changed if ended.pair else None)
                        hint = hint or environments.missing_hint(detail, sample.cell.target.spec)
                        if hint:
                            error = replace(sample.error, detail=f"{detail.rstrip()}\n{hint}")
                            sample = replace(sample, error=error)
                    first = executor_cell(values.cell, ended.values.cells, self.group.spec.executors[0])
                    shown = figures.figures(values, reference=ended.values.of(first))
                    values.read_all()
                    self.by_nodeid[values.cell.nodeid] = Row(
                        cell=values.cell,
                        verdict=verdict,
                        figures=self.run.references.shown(shown),
                        sample=sample,
                        error=sample.error,
                    )
            # 2. What is to be paired.
            if not ended.pair:
                self.phases += self._follow_ups(ended)
        else:
            for values in ended.values:
                if values.cell.nodeid not in ended.judged:
                    continue
                with self._failing(values.cell):
                    sample, row = values.sample, self.by_nodeid[values.cell.nodeid]
                    if sample.error is not None:  # a race may show in any launch
                        failed = failed_row(sample.cell, sample.error.reason, sample.error.detail)
                        row = replace(row, verdict=failed.verdict, error=sample.error)
                    else:
                        together = ended.judge.verdict(values)
                        why = together.reason or together.why or "the reference has no figures to compare"
                        self._after_miss[values.cell.nodeid] = together, why
                    self.by_nodeid[values.cell.nodeid] = replace(row, paired=sample)
        # 3. What has regressed is explained, at the cost of the phase's time.
        if self.run.config.explain and not self._interrupted:
            rows = [self._amended(self.by_nodeid[cell.nodeid]) for cell in self.group.cells]
            self.explainer.end(rows, ended, lambda: self._left_s(ended))
        self._ended_s += measurement.plan.spent_s

    @contextlib.contextmanager
    def _failing(self, cell: Cell) -> Iterator[None]:
        """What goes wrong while a cell is judged is its error; the others have their verdicts."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self._fail_cell(cell, error)

    # -- after a miss ------------------------------------------------------------------------------------------

    def _follow_ups(self, screen: Phase) -> list[Phase]:
        """A phase for each commit that cells which missed are to be paired with; where there is none, predictions.

        Where the time is too short for all cells, it goes to the worst: the others are paired in what is left of it.
        """
        # 1. What each is paired with, the worst first; predictions.
        alone: dict[str, tuple[worktrees.Pair, list[Cell]]] = {}
        for values in sorted(screen.values, key=lambda each: -excess(self.by_nodeid[each.cell.nodeid].verdict)):
            with self._failing(values.cell):
                compared_with = screen.judge.compared_with(values)
                pair = self._pair_after_miss(values.cell, compared_with)
                if pair is not None:
                    alone.setdefault(compared_with.commit, (pair, []))[1].append(values.cell)
        # 2. Without cells that read the same at that commit, unless no launch begins any more.
        plan = screen.measurement.plan
        left_s = self._own_left_s - plan.spent_s
        for pair, cells in alone.values() if left_s > 0 and not self.run.time.over else ():
            same, _, changed = self._settled(tuple(cells), pair)
            self._changed |= changed
            self._same_code |= {cell.nodeid: same[cell.nodeid] for cell in cells if same.get(cell.nodeid)}
            cells[:] = [cell for cell in cells if cell.nodeid not in same]
        paired = [each for each in alone.values() if each[1]]
        # 3. As many as there is time for: a launch of a pair takes the place of one of the control workload.
        pairs_s = LEAST_ROUNDS * len(paired) * plan.spent_s / max(1, plan.rounds * len(screen.values))
        room = max(1, int(left_s / pairs_s)) if pairs_s else len(screen.values)
        worst = [self._paired_phase(screen, pair, cells[:room]) for pair, cells in paired]
        rest = [(pair, cells[room:]) for pair, cells in paired if cells[room:]]
        return worst + [self._paired_phase(screen, pair, cells, spare=True) for pair, cells in rest]

    def _pair_after_miss(self, cell: Cell, compared_with: ComparedWith) -> worktrees.Pair | None:
        """The commit that a cell which missed its baseline is paired with; None where it is predicted."""
        if compared_with.entry is None or not self._missed(cell):
            return None
        why = "the run was interrupted before the baseline's commit was measured" if self._interrupted else ""
        if not (why or self.run.config.escalate):
            why = "ftgate_escalate = no: the baseline's commit is not measured"
        try:
            if not why:
                return self.run.references.recorded(compared_with, split_nodeid(cell.nodeid)[0])
        except worktrees.NothingToCompare as error:
            why = str(error)
            self._same_code[cell.nodeid] = "the code is that of the baseline"
        except git.AgainstError as error:
            why = not_there(compared_with.commit, str(error))
        self._after_miss[cell.nodeid] = None, why
        return None

    def _paired_phase(
        self, screen: Phase, pair: worktrees.Pair, cells: Sequence[Cell], *, spare: bool = False
    ) -> Phase:
        """These cells, each with its single-worker cell for the scaling, paired with a commit."""
        one_workers = {cell: one_worker_cell(cell, screen.values.cells) for cell in cells}
        measured = ((cell, alone) if alone else (cell,) for cell, alone in one_workers.items())
        return Phase(
            cells=tuple(dict.fromkeys(cell for both in measured for cell in both)),
            judged=frozenset(cell.nodeid for cell in cells),
            pair=pair,
            why="it missed its baseline, so the baseline's commit was measured with it",
            changed=self._changed,
            metrics=frozenset[str]().union(*map(self._missed, cells)),
            spare=spare,
        )

    def _missed(self, cell: Cell) -> frozenset[str]:
        return frozenset(each.metric for each in self.by_nodeid[cell.nodeid].verdict.metrics if missed(each))
