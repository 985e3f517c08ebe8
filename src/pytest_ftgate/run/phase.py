"""The rounds of a test: its cells are measured together, each by itself or paired with its reference."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from ..declare.plan import one_per_target
from ..judge.judge import Judge
from ..judge.metrics import LEAST_TAIL_ITERATIONS
from ..judge.values import TestValues
from ..kit.errors import FtgateError
from ..measure.cell_run import CellRun, PreparedTarget
from ..measure.conditions import ConditionsMonitor
from ..measure.group import Measurement
from ..measure.round_plan import LEAST_LAUNCHES, PILOT_ITERATIONS, Allowance, RoundPlan
from ..measure.rounds import measure_round
from ..model.report import Row, Shortfall
from ..model.sample import Need, Sample
from ..model.spec import Cell, Group
from ..model.verdict import Verdict
from .compared import Reference
from .shared import RunTime, Shared
from .sides import worktrees
from .sides.checkout import Checkout
from .targets import target_of

LAUNCHES = 5
"""The launches of a cell if no decision needs more. More do not make a recording better, because recordings differ by
more than their launches do (`benchmarks/verdicts/stored.py`)."""
FIGURES_ITERATIONS = 20
"""The most iterations of a launch if nothing is compared: as of LAUNCHES, more do not make a recording better."""
LEAST_ROUNDS = 5
"""Rounds of a comparison for which iterations are given up if the budget is small; more if a decision needs more.
Contracts need fewer."""


class Instead(Protocol):
    """What a feature does with the cells of a phase in place of its rounds: see `ftgate_instead`."""

    def step(self) -> bool:
        """One round, counted by the plan of the measurement; returns whether there may be another."""
        ...

    def rows(self) -> Iterable[Row]:
        """The cells' rows, as far as it came."""
        ...


@dataclasses.dataclass(eq=False)
class Phase:
    """Cells that are measured together, each with its reference, by node id.

    All are measured in the same files: in a `checkout`, else in place. `changed` are the functions that they run and
    that differ.
    """

    cells: tuple[Cell, ...]
    references: dict[str, Reference]
    checkout: Checkout | None = None
    changed: AbstractSet[tuple[str, str]] = frozenset()

    # As `begin` sets them:
    measurement: Measurement = dataclasses.field(init=False)
    judge: Judge = dataclasses.field(init=False)
    budget_s: float = dataclasses.field(init=False)
    """How long it may measure."""
    needed: int = dataclasses.field(init=False)
    """Rounds that a decision needs at least; 0 if nothing is judged."""
    instead: Instead | None = dataclasses.field(init=False, default=None)

    # At its end:
    values: TestValues = dataclasses.field(init=False)

    def begin(self, run: Shared, group: Group, monitor: ConditionsMonitor) -> None:
        """Prepare the targets of all sides, and plan the rounds. Raises FtgateError."""
        self._run, self._group = run, group
        cells, checkout = self.cells, self.checkout
        compared = {cell.nodeid: self.references[cell.nodeid].basis for cell in cells}
        based = any(each.basis for each in compared.values())
        # 1. Both sides of each cell.
        spec = run.references.relocated(group.spec, checkout) if checkout else group.spec
        targets = {cell.target.spec: run.targets.prepared(cell, group.spec, checkout) for cell in one_per_target(cells)}
        paired = (cell for cell in cells if compared[cell.nodeid].basis == "paired")
        references = {cell.nodeid: self._reference(cell, targets) for cell in paired}
        # 2. How much may be measured: a recording ends with what it needs.
        makes: Callable[[Phase], Instead] | None = run.hooks.ftgate_instead(run=run)
        records = run.stored.records(group, cells)
        limits = Allowance(
            budget_s=run.config.test_time,
            at_least=LAUNCHES,
            launches=run.config.launches or (LAUNCHES if records else None),
            iterations=run.config.iterations,
            least_iterations=LEAST_TAIL_ITERATIONS,
            timeout_s=run.config.timeout,
        )
        self.budget_s = limits.budget_s
        # 3. Who judges, and how many rounds that needs.
        policy = replace(run.policy, metrics=(*run.policy.metrics, *group.spec.gated))
        judge = self.judge = Judge(spec, policy, compared, limits.launches)
        judged = makes is None and not records and (bool(spec.contracts) or based)
        self.needed = 0
        if judged:
            self.needed = min(judge.least_rounds(), limits.launches or judge.rounds)
            least_rounds = LEAST_ROUNDS if based else LEAST_LAUNCHES
            limits = replace(limits, at_least=max(least_rounds, self.needed), at_most=judge.rounds)
        elif checkout is not None:  # figures are all there is to show
            launches = limits.launches or LEAST_LAUNCHES
            limits = replace(limits, launches=launches, most_iterations=PILOT_ITERATIONS, least_iterations=0)
        elif not based:
            limits = replace(limits, most_iterations=FIGURES_ITERATIONS)
        # 4. Its rounds.
        cell_runs = [
            CellRun(cell, targets[cell.target.spec], spec, references.get(cell.nodeid), *judge.observers(cell))
            for cell in cells
        ]
        if judged:
            first = judge.first(cells)
            for cell_run in cell_runs:
                cell_run.require(first[cell_run.cell.nodeid])
        self.measurement = Measurement(
            cell_runs=cell_runs,
            plan=RoundPlan(spec, limits, run.clock, loops=None if checkout else run.stored.loops(group, cells)),
            launcher=run.launcher,
            rng=random.Random(f"{run.config.seed}:{group.key}"),
            listener=run.listener,
            monitor=monitor,
            stopping_rule=self._needs if judged else None,
            figures_rule=None if judged or based else judge.needs_of_figures,  # stored figures judge a recording too
            needed=0 if spec.contracts else self.needed,  # contracts compare cells: these are measured together
            empty=run.empty,
            capacity=run.capacity,
            spent=run.spent,
        )
        if makes is not None:
            self.instead = makes(self)

    def _reference(self, cell: Cell, targets: Mapping[str, PreparedTarget]) -> CellRun:
        """A cell as its reference has it. Raises FtgateError if both sides have the same version of a distribution."""
        pair, name = self.references[cell.nodeid].pair, cell.target.spec
        assert pair is not None
        reference = pair.reference
        there = self._run.targets.prepared(cell, self._group.spec, reference)
        # Two wheels may be two builds of one version.
        asked = [word for word in reference.install if not (reference.commit or word.endswith(".whl"))]
        if asked:
            old, new = (worktrees.installed_version(Path(each.python), asked[0]) for each in (there, targets[name]))
            if old == new:
                raise FtgateError(f"both sides have {asked[0]} on {name}: there is nothing to compare")
        spec = self._run.references.relocated(self._group.spec, reference)
        return CellRun(replace(cell, target=target_of(cell, reference)), there, spec)

    def _needs(self, samples: Sequence[Sample]) -> Mapping[str, frozenset[Need]]:
        """The stopping rule: what the judge needs, after cells that cannot be paired have begun anew."""
        anew = [self._begun_anew(each) for each in self.measurement.cell_runs]
        needs = self.judge.needs(self.measurement.samples_so_far() if any(anew) else samples)
        if self.judge.tails_decided:
            plan = self.measurement.plan
            plan.limits = replace(plan.limits, least_iterations=0)
        return needs

    def _begun_anew(self, cell_run: CellRun) -> bool:
        """Leave out the commit of a recording that fails before its first pair, as one with another API does; and the
        checkout, where the workload needs a file that git does not have. What is stored then judges.
        """
        run, spec, nodeid = self._run, cell_run.spec, cell_run.cell.nodeid
        known, there, target = self.references[nodeid], cell_run.reference, cell_run.target
        if there is None or known.pair is None or not known.basis.recorded or there.of("time"):
            return False
        why, stale = there.unsupported or (there.error.reason if there.error else ""), cell_run.error is None
        if cell_run.error is not None:
            why = worktrees.ignored_hint(cell_run.error.detail, known.pair.changed, run.folder.root)
            spec = self._group.spec
            with contextlib.suppress(FtgateError):
                target = run.targets.prepared(cell_run.cell, spec)
        if why:
            cell_run.without_reference(target, spec)
            self.references[nodeid] = known.by_figures(why, stale=stale)
            self.judge.all_compared[nodeid] = self.references[nodeid].basis
        return bool(why)

    def step(self, share_s: float | None, left_s: float | None) -> bool:
        """One round; returns whether there may be another. `share_s` and `left_s` are as for `Trial.step`."""
        if share_s is not None and left_s is not None:
            own_s = self.budget_s - self.measurement.plan.spent_s
            self.measurement.grant(min(share_s, own_s), min(left_s, own_s))
        return self.instead.step() if self.instead else measure_round(self.measurement)


# ---- whether the time is too short for a decision, and what would be enough

MARGIN = 1.4
"""What is recommended over the cost seen: with more time, rounds hold more iterations and samples."""
UNSEEN = 2.0
"""The same where no round was completed: its cost is not known, only that it is larger than the time was."""
STEPS_S = (10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 360, 480, 600, 720, 900, 1200, 1500, 1800, 2700, 3600)
"""Times to recommend; beyond them whole hours."""


def shortfall(phase: Phase, time: RunTime, tests: float | None) -> Shortfall | None:
    """What the time lacks; None if a decision is possible, or none is left to be made.

    So many `tests` share what is left of the time of the run, if that has a limit.
    """
    if not (phase.needed and phase.measurement.undecided):
        return None
    rounds, needed_s = phase.measurement.forecast(phase.needed)
    if rounds >= phase.needed:
        return None
    budget = phase.measurement.plan
    wanted_s = (MARGIN if rounds else UNSEEN * MARGIN) * needed_s
    option, given_s = "--ftgate-test-time", phase.budget_s
    if tests is not None and time.budget_s is not None and budget.limits.budget_s < phase.budget_s:
        option, given_s = "--ftgate-time", time.budget_s
        wanted_s = time.spent_s + tests * max(0.0, wanted_s - budget.spent_s)
    return Shortfall(
        rounds=rounds,
        needed=phase.needed,
        cells=len(phase.measurement.cell_runs),
        option=option,
        given_s=given_s,
        wanted_s=_step(max(wanted_s, given_s)),
    )


def left_open(phase: Phase, verdict: Verdict, time: RunTime) -> Shortfall | None:
    """What the time lacked to decide a cell that had rounds enough for others; None where more time is not known to
    decide it.
    """
    plan = phase.measurement.plan
    open_ones = (each for each in verdict.metrics if each.decision.wants_time and each.more)
    most = max(open_ones, key=lambda each: each.launches + (each.more or 0), default=None)
    if most is None or not most.launches or plan.limits.launches is not None:
        return None
    needed = most.launches + (most.more or 0)
    if needed > phase.judge.rounds:
        return None
    option, given_s = "--ftgate-test-time", phase.budget_s
    if time.budget_s is not None and time.over:
        option, given_s = "--ftgate-time", time.budget_s
    return Shortfall(
        rounds=most.launches,
        needed=needed,
        cells=len(phase.measurement.cell_runs),
        option=option,
        given_s=given_s,
        wanted_s=_step(given_s + MARGIN * (needed - most.launches) * plan.round_ns / 1e9),  # as the last one took
    )


def _step(seconds: float) -> float:
    """A time to recommend, longer than these seconds."""
    return next((float(step) for step in STEPS_S if step > seconds), 3600.0 * math.ceil(seconds / 3600))
