"""One test of a run on its way to its rows: measured, judged, and where that decides nothing, beside its reference."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from ..errors import FtgateError
from ..judge import disturbance, figures
from ..judge.judge import (
    PAIRED_ROUNDS,
    SCREEN_LAUNCHES,
    ComparedWith,
    Judge,
    Policy,
    doubted,
    missed,
    unchanged,
)
from ..measure.budget import Limits
from ..measure.cell_run import PreparedTarget, Reference
from ..measure.conditions import ConditionsMonitor
from ..measure.interleaved import InterleavedRun
from ..measure.launch import Launcher
from ..measure.run_context import Listener
from ..model import (
    EVERYTHING,
    Cell,
    Conditions,
    Figures,
    Group,
    Metric,
    Row,
    Sample,
    Spec,
    Struct,
    WorkloadError,
    failed_row,
    first_line,
)
from ..store import names
from . import git, worktrees

LEAST_SCREENED, LEAST_TOGETHER = 6, 13
"""Rounds for which turns are given up where the budget is small: of a screen, and of a tandem, which can fail then."""


class Services(Protocol):
    """What a run does for its tests."""

    @property
    def watcher(self) -> Listener:
        """Hears how far it is."""
        ...

    @property
    def launcher(self) -> Launcher:
        """Starts launches."""
        ...

    @property
    def seed(self) -> int:
        """Of everything that is random in the run."""
        ...

    def policy(self) -> Policy:
        """What the options say about verdicts."""
        ...

    def ready(self, cell: Cell, side: git.Checkout | None = None) -> PreparedTarget:
        """The target of a cell, with the project or that side of it installed. Raises FtgateError."""
        ...

    def without_measuring(self, cell: Cell) -> Row | None:
        """A row for a cell that need not be measured."""
        ...

    def compared_with(self, cell: Cell, cells: Sequence[Cell]) -> ComparedWith:
        """What is stored of a cell; `cells` are those of its test."""
        ...

    def limits(self, cells: Sequence[Cell], counts: int) -> Limits:
        """How much may be measured, recording or not."""
        ...

    def records(self, cells: Sequence[Cell]) -> bool:
        """Whether this run records one of these cells."""
        ...

    def stored_loops(self, cells: Sequence[Cell]) -> int | None:
        """Loops of the baseline."""
        ...

    def pair(self, compared_with: ComparedWith | None = None, test: str = "") -> worktrees.Pair:
        """Both sides of the comparison asked for, or of the commit of what is stored of a test.

        Raises trees.AgainstError.
        """
        ...

    def relocated(self, spec: Spec, side: git.Checkout) -> Spec:
        """A test as it stands on one side."""
        ...

    def hint(self, detail: str, side: git.Checkout) -> str:
        """What a workload's error on one side may come from; empty where nothing is known."""
        ...

    def shown(self, found: Figures) -> Figures:
        """Figures with the names of files as people know them."""
        ...


class Phase(Struct, frozen=True, kw_only=True):
    """Cells to be measured together: alone, or beside a reference and then for the reason `why`.

    Those not `judged` (node ids) are there for another cell's scaling.
    """

    cells: tuple[Cell, ...]
    judged: frozenset[str]
    pair: worktrees.Pair | None = None
    why: str = ""


class Running(NamedTuple):
    """A stage under way."""

    phase: Phase
    run: InterleavedRun
    judge: Judge


class Measurement:
    """One test: `step` measures a round at a time until `open` is no more, then `rows` are its verdicts."""

    def __init__(self, services: Services, group: Group, escalates: bool, against: str = "") -> None:
        self.services = services
        self.group = group
        self.escalates = escalates
        self.against = against
        self.monitor = ConditionsMonitor().start()
        self.conditions = Conditions()
        self._left: float | None = None
        self.by_nodeid: dict[str, Row] = {}
        self.samples: dict[str, Sample] = {}
        self.phases: list[Phase] = []
        self.running: Running | None = None
        for cell in group.cells:
            early = services.without_measuring(cell)
            if early is not None:
                self.by_nodeid[cell.nodeid] = early
        cells = tuple(cell for cell in group.cells if cell.nodeid not in self.by_nodeid)
        if cells:
            self._first_phase(cells)
            self._next()

    # -- measuring ---------------------------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether there is more to measure."""
        return self.running is not None

    @property
    def rounds(self) -> int:
        """Rounds of the stage under way."""
        return self.running.run.budget.rounds if self.running else 0

    def left_s(self) -> float:
        """How many seconds it may take until all is decided; infinite where nobody knows."""
        if self.running is None:
            return 0.0
        if self._left is None:  # asked for each test after each round of any
            more = self.running.judge.more(self.running.run.samples_so_far())
            self._left = math.inf if more is None else more * self.running.run.budget.round_ns / 1e9
        return self._left

    def step(self, budget_s: float | None = None) -> None:
        """One round of the stage under way; `budget_s` takes the place of what is left of the test's own time."""
        if self.running is None:
            return
        self._left = None
        if budget_s is not None:
            self.running.run.grant(budget_s)
        if not self.running.run.step():
            self._end()
            self._next()

    def close(self) -> None:
        """The time given is over: judge by what there is, and begin nothing more."""
        self._end()
        for phase in self.phases:
            self._not_begun(phase, FtgateError("the time given was over"))
        self.phases = []

    def rows(self) -> list[Row]:
        """All cells' rows, in their order, with what else went on; a regression that this may have made is doubted."""
        rows = (self.by_nodeid[cell.nodeid] for cell in self.group.cells)
        return [row if row.sample is None else _with(row, self.conditions) for row in rows]

    def _end(self) -> None:
        if self.running is not None:
            running, self.running = self.running, None
            self._judge(running)
            self.conditions = self.monitor.observe()

    # -- stages ------------------------------------------------------------------------------------------------

    def _first_phase(self, cells: tuple[Cell, ...]) -> None:
        judged = frozenset(cell.nodeid for cell in cells)
        if not self.against:
            self.phases.append(Phase(cells=cells, judged=judged))
            return
        pair = self.services.pair()
        self.phases.append(Phase(cells=cells, judged=judged, pair=pair, why=f"--ftgate-against {self.against}"))

    def _next(self) -> None:
        """Begin the next stage that can be; one whose environments cannot be made is judged without."""
        while self.phases and self.running is None:
            phase = self.phases.pop(0)
            try:
                self.running = self._begun(phase)
            except FtgateError as error:
                self._not_begun(phase, error)

    def _begun(self, phase: Phase) -> Running:
        services, pair = self.services, phase.pair
        targets = self._targets(phase)
        references = self._references(phase) if pair else {}
        spec = services.relocated(self.group.spec, pair.changed) if pair else self.group.spec
        all_compared = {cell.nodeid: self._compared_with(cell, phase) for cell in phase.cells}
        if self.samples:  # contracts were judged in the stage before
            spec = msgspec.structs.replace(spec, requirements=())
        limits = services.limits(phase.cells, len({(cell.workers, cell.roles) for cell in phase.cells}))
        at_most = PAIRED_ROUNDS if pair else SCREEN_LAUNCHES
        judge = Judge(spec, self._policy(phase), all_compared, at_most, limits.launches)
        records = pair is None and services.records(phase.cells)
        judged = not records and (
            bool(spec.requirements) or any(compared_with.basis for compared_with in all_compared.values())
        )
        if judged:
            floor = LEAST_TOGETHER if pair else LEAST_SCREENED
            limits = msgspec.structs.replace(limits, floor=floor, at_most=judge.rounds)
        run = InterleavedRun(
            Group(key=self.group.key, spec=spec, cells=phase.cells),
            targets,
            services.launcher,
            limits,
            random.Random(f"{services.seed}:{self.group.key}{':beside' if self.samples else ''}"),
            services.watcher,
            loops=None if pair else services.stored_loops(phase.cells),
            stopping_rule=judge.needs if judged else None,
            references=references,
            monitor=self.monitor,
            first_needs=judge.first() if judged else EVERYTHING,
        )
        return Running(phase, run, judge)

    def _policy(self, phase: Phase) -> Policy:
        """Beside the commit of what is stored only what missed is judged: no other kind of launch is needed."""
        policy = self.services.policy()
        if not self.samples:
            return policy
        verdicts = [self.by_nodeid[nodeid].verdict for nodeid in phase.judged]
        open_ones = {each.metric for verdict in verdicts for each in verdict.metrics if missed(each)}
        # Of another machine the time was screened by its ratio.
        wanted = open_ones | ({Metric.WALL} if Metric.RATIO in open_ones else set())
        return msgspec.structs.replace(policy, metrics=tuple(each for each in policy.metrics if each in wanted))

    def _compared_with(self, cell: Cell, phase: Phase) -> ComparedWith:
        if phase.pair is None:
            return self.services.compared_with(cell, self.group.cells)
        reference = phase.pair.reference
        if worktrees.lacks(reference, names.split_nodeid(cell.nodeid)[0]):
            return ComparedWith(why=f"{reference.label} has no such test")
        return ComparedWith(
            basis="paired",
            why=phase.why,
            baseline=reference.label,
            commit=reference.commit,
            judged=cell.nodeid in phase.judged,
        )

    def _missed(self, cell: Cell) -> bool:
        return any(map(missed, self.by_nodeid[cell.nodeid].verdict.metrics))

    def _targets(self, phase: Phase) -> dict[str, PreparedTarget]:
        side = phase.pair.changed if phase.pair else None
        return {cell.target.spec: self.services.ready(cell, side) for cell in _one_a_target(phase.cells)}

    def _references(self, phase: Phase) -> dict[str, Reference]:
        assert phase.pair is not None
        side = phase.pair.reference
        spec = self.services.relocated(self.group.spec, side)
        ready = {cell.target.spec: self.services.ready(cell, side) for cell in _one_a_target(phase.cells)}
        self._check_versions(phase, ready)
        there = (cell for cell in phase.cells if self._compared_with(cell, phase).basis)
        return {cell.nodeid: Reference(spec=spec, target=ready[cell.target.spec]) for cell in there}

    def _check_versions(self, phase: Phase, ready: Mapping[str, PreparedTarget]) -> None:
        """Of two versions of a distribution: that both sides do not have the same."""
        assert phase.pair is not None
        asked = phase.pair.reference.install[-1:] if not phase.pair.reference.commit else ()
        for cell in _one_a_target(phase.cells) if asked else ():
            sides = (ready[cell.target.spec], self.services.ready(cell, phase.pair.changed))
            old, new = (worktrees.installed_version(Path(side.python), asked[0]) for side in sides)
            if old == new:
                raise FtgateError(f"both sides have {asked[0]} on {cell.target.spec}: there is nothing to compare")

    def _not_begun(self, phase: Phase, error: FtgateError) -> None:
        for cell in phase.cells:
            if cell.nodeid not in phase.judged:
                continue
            if cell.nodeid in self.samples:
                self._predict(cell, f"{first_line(str(error))}: its reference cannot be measured")
            else:
                self.by_nodeid[cell.nodeid] = failed_row(cell, first_line(str(error)), str(error))

    # -- judging -----------------------------------------------------------------------------------------------

    def _judge(self, running: Running) -> None:
        samples = running.run.samples()
        beside = bool(self.samples)
        for sample in samples:
            if beside:
                self._judge_paired(running, sample, samples)
            else:
                self._judge_first(running, sample, samples)
        if not beside:
            self.samples = {sample.cell.nodeid: sample for sample in samples}
            if not running.phase.pair:
                self._follow_up(running)

    def _judge_first(self, running: Running, sample: Sample, samples: Sequence[Sample]) -> None:
        by_nodeid = {each.cell.nodeid: each for each in samples}
        reference = reference_of(self.group, sample.cell, by_nodeid)
        sample = self._hinted(running.phase, sample)
        shown = self.services.shown(figures.figures(sample, reference=reference))
        verdict = running.judge.verdict(sample, samples, shown)
        self.by_nodeid[sample.cell.nodeid] = Row(
            cell=sample.cell, verdict=verdict, figures=shown, sample=sample, error=sample.error
        )

    def _hinted(self, phase: Phase, sample: Sample) -> Sample:
        """An error for want of a file that no side has says so."""
        if sample.error is None or phase.pair is None:
            return sample
        hint = self.services.hint(sample.error.detail, phase.pair.changed)
        if not hint:
            return sample
        error = WorkloadError(reason=sample.error.reason, detail=f"{sample.error.detail.rstrip()}\n{hint}")
        return msgspec.structs.replace(sample, error=error)

    def _judge_paired(self, running: Running, sample: Sample, samples: Sequence[Sample]) -> None:
        """The verdict of a cell that missed what is stored; others are there for its sake."""
        row = self.by_nodeid[sample.cell.nodeid]
        if sample.cell.nodeid not in running.phase.judged:
            return
        together = running.judge.verdict(sample, samples, figures.figures(sample, reference=None))
        why = together.reason or together.why or "its reference gave nothing to compare with"
        first = list(self.samples.values())
        verdict = self.screened.settled(self.samples[sample.cell.nodeid], first, row.verdict, together, why)
        self.by_nodeid[sample.cell.nodeid] = msgspec.structs.replace(row, verdict=verdict, beside=sample)

    def _follow_up(self, running: Running) -> None:
        """What missed is measured beside its baseline's commit, or predicted where that cannot be."""
        self.screened = running.judge
        follows: dict[str, Phase] = {}
        for sample in self.samples.values():
            nodeid = sample.cell.nodeid
            compared_with = running.judge.compared_with(sample)
            if compared_with.entry is None or not self._missed(sample.cell):
                continue
            try:
                phase = self._paired_phase(sample.cell, compared_with)
            except git.AgainstError as error:
                self._predict(sample.cell, str(error))
                if isinstance(error, worktrees.NothingToCompare):
                    row = self.by_nodeid[nodeid]
                    self.by_nodeid[nodeid] = msgspec.structs.replace(row, verdict=unchanged(row.verdict))
                continue
            before = follows.get(compared_with.commit)
            if before is not None:
                cells = tuple(dict.fromkeys((*before.cells, *phase.cells)))
                phase = msgspec.structs.replace(phase, cells=cells, judged=before.judged | phase.judged)
            follows[compared_with.commit] = phase
        self.phases += follows.values()

    def _paired_phase(self, cell: Cell, compared_with: ComparedWith) -> Phase:
        if not self.escalates:
            raise git.AgainstError("measuring beside the baseline's commit is turned off (--ftgate-escalate)")
        pair = self.services.pair(compared_with, names.split_nodeid(cell.nodeid)[0])
        singles = (
            other
            for other in self.group.cells
            if other.workers == 1 and (other.target, other.executor) == (cell.target, cell.executor)
        )
        known = (other for other in singles if other.nodeid in self.samples)
        why = "not clearly as stored, so its commit was measured beside it"
        cells = (cell, *(other for other in known if other != cell))
        return Phase(cells=cells, judged=frozenset({cell.nodeid}), pair=pair, why=why)

    def _predict(self, cell: Cell, why: str) -> None:
        row, sample = self.by_nodeid[cell.nodeid], self.samples[cell.nodeid]
        if self._missed(cell):
            verdict = self.screened.predicted(sample, list(self.samples.values()), row.verdict, why)
            self.by_nodeid[cell.nodeid] = msgspec.structs.replace(row, verdict=verdict)


def _with(row: Row, conditions: Conditions) -> Row:
    """The row with what else went on; a regression that this may have made is doubted."""
    unfit = disturbance.unfit
    verdict = doubted(row.verdict, unfit(conditions, row.verdict.basis), unfit(conditions, "stored"))
    return msgspec.structs.replace(row, verdict=verdict, conditions=conditions)


def reference_of(group: Group, cell: Cell, samples: Mapping[str, Sample]) -> Sample | None:
    """The sample of the first executor on the same target: what the ratio of a row refers to."""
    found = executor_cell(group.spec, cell, group.cells)
    return samples.get(found.nodeid) if found else None


def executor_cell(spec: Spec, cell: Cell, cells: Sequence[Cell]) -> Cell | None:
    """The cell of the first executor beside one, on the same target with as many workers.

    A command is beside all targets, so is a server, whose first row says on which target; and a program that is not
    told the number of workers is beside all numbers.
    """
    of_first = (other for other in cells if other.executor == spec.executors[0])
    return next((other for other in of_first if _is_beside(other, cell)), None)


def _is_beside(first: Cell, cell: Cell) -> bool:
    program = first.executor.program
    told = program is None or program.counted
    beside = program is not None or first.target == cell.target
    return beside and (not told or (first.workers, first.roles) == (cell.workers, cell.roles))


def _one_a_target(cells: Sequence[Cell]) -> list[Cell]:
    return list({cell.target.spec: cell for cell in reversed(cells)}.values())
