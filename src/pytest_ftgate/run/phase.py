"""A phase of a trial: cells that are measured together, by themselves or paired with a reference."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from ..declare.plan import one_per_target
from ..judge.judge import PAIRED_ROUNDS, SCREEN_LAUNCHES, ComparedWith, Judge
from ..judge.metrics import LEAST_TAIL_ITERATIONS
from ..judge.values import TestValues
from ..kit import git
from ..kit.errors import FtgateError
from ..kit.text import split_nodeid
from ..kit.values import Metric
from ..measure.cell_run import CellRun, PreparedTarget
from ..measure.conditions import ConditionsMonitor
from ..measure.group import Measurement
from ..measure.plan import LEAST_LAUNCHES, PILOT_ITERATIONS, Allowance, RoundPlan
from ..model.report import Conditions, Row, Shortfall
from ..model.spec import Cell, Group
from .sides import worktrees
from .sides.references import described
from .targets import target_of, unavailable

if TYPE_CHECKING:
    from .run import Run, RunTime

LAUNCHES = 5
"""Of each cell, where nothing says how many decide. A recording needs no more: one differs from the next by what
launches of either do not show (`benchmarks/verdicts/stored.py`)."""
LEAST_ROUNDS = 5
"""Rounds of a comparison for which iterations are given up if the budget is small; more if a decision needs more.
Contracts need fewer."""
RESERVED_S, RESERVED_SHARE = (2.0, 5.0), 0.1
"""What a paired phase leaves to explain the cells that fail at its end: of its time, in these bounds. A phase that is
too short for it leaves nothing: its verdicts need all of it.

It does not depend on what was measured, so that it favours no verdict.
"""


class Instead(Protocol):
    """What a feature does with the cells of a phase in place of its rounds: see `ftgate_instead`."""

    def step(self) -> bool:
        """One round, counted by the plan of the measurement; returns whether there may be another."""
        ...

    def rows(self) -> Iterable[Row]:
        """The cells' rows, as far as it came."""
        ...


@dataclasses.dataclass(kw_only=True, eq=False)
class Phase:
    """Cells that are measured together, paired with a reference for the reason `why` if there is a `pair`.

    Cells that are not `judged` (node ids) are measured for another cell's scaling. `metrics` limits what is judged.
    Cells that are the `same` on both sides, for a reason by node id, are measured for contracts alone; `changed` are
    the functions that others run and that differ. A `spare` phase is for what the others leave of the time.
    """

    cells: tuple[Cell, ...]
    judged: frozenset[str]
    pair: worktrees.Pair | None = None
    why: str = ""
    metrics: frozenset[str] | None = None
    same: Mapping[str, str] = dataclasses.field(default_factory=dict)
    changed: AbstractSet[tuple[str, str]] = frozenset()
    spare: bool = False

    # As `begin` sets them:
    measurement: Measurement = dataclasses.field(init=False)
    judge: Judge = dataclasses.field(init=False)
    share: float = dataclasses.field(init=False)
    """The part that it gets of what was left of the test's time."""
    budget_s: float = dataclasses.field(init=False)
    """How long it may measure."""
    reserved_s: float = dataclasses.field(init=False)
    """How long it may explain the cells that fail, after that."""
    needed: int = dataclasses.field(init=False)
    """Rounds that a decision needs at least; 0 if nothing is judged."""
    instead: Instead | None = dataclasses.field(init=False, default=None)

    # At its end:
    values: TestValues = dataclasses.field(init=False)
    conditions: Conditions = dataclasses.field(init=False)

    def begin(self, run: Run, group: Group, monitor: ConditionsMonitor, left_s: float, waiting: int) -> None:
        """Install the targets, and find what each cell is compared with. Raises FtgateError.

        `left_s` is the rest of the test's time, for this phase and those `waiting`. A screen leaves half of it to what
        may follow a miss.
        """
        cells, pair, screened = self.cells, self.pair, self.metrics is not None
        checkout = pair.changed if pair else None

        def prepared(checkout: git.Checkout | None) -> dict[str, PreparedTarget]:
            return {
                cell.target.spec: run.targets.prepared(cell, group.spec, checkout) for cell in one_per_target(cells)
            }

        # 1. What is installed, and what each cell is compared with.
        targets = prepared(checkout)
        compared = {cell.nodeid: self.basis_of(cell, run, group) for cell in cells}
        based = any(each.basis for each in compared.values())
        references: dict[str, CellRun] = {}
        if pair and based:  # a reference without the test is not built
            old_spec, old_targets = run.references.relocated(group.spec, pair.reference), prepared(pair.reference)
            # Of two versions of a distribution; two wheels may be two builds of one version.
            asked = [word for word in pair.reference.install if not (pair.reference.commit or word.endswith(".whl"))]
            for name in old_targets if asked else ():
                pythons = (Path(side[name].python) for side in (old_targets, targets))
                old, new = (worktrees.installed_version(python, asked[0]) for python in pythons)
                if old == new:
                    raise FtgateError(f"both sides have {asked[0]} on {name}: there is nothing to compare")
            for cell in cells:
                if compared[cell.nodeid].basis:
                    there = replace(cell, target=target_of(cell, pair.reference))
                    references[cell.nodeid] = CellRun(there, old_targets[cell.target.spec], old_spec)
        spec = run.references.relocated(group.spec, checkout) if checkout else group.spec
        if screened:  # contracts were judged in the first phase
            spec = replace(spec, contracts=())
        # 2. How much time it has, and what it leaves to explain the cells that fail.
        makes: Callable[[Phase], Instead] | None = run.hooks.ftgate_instead(run=run)
        followed = (
            makes is None and pair is None and run.config.escalate and any(each.entry for each in compared.values())
        )
        self.share = 0.5 if followed else 1 / (1 + waiting)
        own_s = left_s * self.share
        self.reserved_s = 0.0
        if pair and run.config.explain and makes is None:
            least_s, most_s = RESERVED_S
            reserved_s = min(most_s, RESERVED_SHARE * own_s)
            self.reserved_s = reserved_s if reserved_s >= least_s else 0.0
        # 3. How much may be measured in it: a recording ends with what it needs.
        records = run.stored.records(group, cells)
        limits = Allowance(
            budget_s=own_s - self.reserved_s,
            at_least=LAUNCHES,
            launches=run.config.launches or (LAUNCHES if records else None),
            iterations=run.config.iterations,
            least_iterations=LEAST_TAIL_ITERATIONS,
            timeout_s=run.config.timeout,
        )
        self.budget_s = limits.budget_s
        # 4. Who judges, and how many rounds that needs. After a screen no other kind of launch is needed than those of
        # the metrics that missed.
        names = (*run.policy.metrics, *group.spec.gated)
        if self.metrics is not None:
            # On another machine the time was screened by its ratio.
            wanted = self.metrics | ({Metric.WALL} if Metric.RATIO in self.metrics else set())
            names = tuple(each for each in names if each in wanted)
        at_most = PAIRED_ROUNDS if pair else SCREEN_LAUNCHES
        judge = self.judge = Judge(spec, replace(run.policy, metrics=names), compared, at_most, limits.launches)
        judged = makes is None and not (pair is None and records) and (bool(spec.contracts) or based)
        self.needed = 0
        if judged:
            self.needed = min(judge.least_rounds(), limits.launches or judge.rounds)
            least_rounds = LEAST_ROUNDS if based else LEAST_LAUNCHES
            limits = replace(limits, at_least=max(least_rounds, self.needed), at_most=judge.rounds)
        elif pair is not None:  # figures are all there is to show
            launches = limits.launches or LEAST_LAUNCHES
            limits = replace(limits, launches=launches, most_iterations=PILOT_ITERATIONS, least_iterations=0)
        # 5. Its rounds.
        cell_runs = [
            CellRun(cell, targets[cell.target.spec], spec, references.get(cell.nodeid), judge.observers(cell))
            for cell in cells
        ]
        if judged:
            first = judge.first(cells)
            for cell_run in cell_runs:
                cell_run.require(first[cell_run.cell.nodeid])
        self.measurement = Measurement(
            cell_runs=cell_runs,
            plan=RoundPlan(spec, limits, run.clock, loops=None if pair else run.stored.loops(group, cells)),
            launcher=run.launcher,
            rng=random.Random(f"{run.config.seed}:{group.key}{':beside' if screened else ''}"),
            listener=run.listener,
            monitor=monitor,
            stopping_rule=judge.needs if judged else None,
            needed=0 if spec.contracts else self.needed,  # contracts compare cells: these are measured together
            empty=run.empty,
            capacity=run.capacity,
            spent=run.spent,
        )
        if makes is not None:
            self.instead = makes(self)

    @property
    def left_s(self) -> float:
        """What is left of its time, with what is reserved."""
        return max(0.0, self.budget_s + self.reserved_s - self.measurement.plan.spent_s)

    def step(self, share_s: float | None, left_s: float | None) -> bool:
        """One round; returns whether there may be another. `share_s` and `left_s` are as for `Trial.step`."""
        if share_s is not None and left_s is not None:
            own_s = self.budget_s - self.measurement.plan.spent_s
            self.measurement.grant(min(share_s * self.share, own_s), min(left_s, own_s))
        return (self.instead or self.measurement).step()

    def basis_of(self, cell: Cell, run: Run, group: Group) -> ComparedWith:
        """What a cell is compared with."""
        reference = self.pair.reference if self.pair else None
        if why := self.same.get(cell.nodeid):
            baseline, commit = (reference.label, reference.commit) if reference else ("", "")
            return ComparedWith(why=why, baseline=baseline, commit=commit, same=True)
        if reference is None:
            stored = run.stored.compared_with(group, cell)
            return replace(stored, why=f"{stored.why}; {self.why}") if self.why and stored.elsewhere else stored
        if worktrees.lacks(reference, split_nodeid(cell.nodeid)[0]):
            return ComparedWith(why=f"{reference.label} has no such test: it will be compared from the next change on")
        there = run.targets.prepared(cell, group.spec, reference)
        if why := unavailable(cell, there.interpreter):
            return ComparedWith(why=f"{reference.label} cannot run it: {why}")
        return ComparedWith(
            basis="paired",
            why=self.why,
            baseline=described(reference, group.spec.packages),
            commit=reference.commit,
            judged=cell.nodeid in self.judged,
            recorded=not run.config.against,
        )


# ---- whether the time of a phase is too short for a decision, and what would be enough

MARGIN = 1.4
"""What is recommended over the cost seen: with more time, rounds hold more iterations and samples."""
UNSEEN = 2.0
"""The same where no round was completed: its cost is not known, only that it is larger than the time was."""
STEPS_S = (10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 360, 480, 600, 720, 900, 1200, 1500, 1800, 2700, 3600)
"""Times to recommend; beyond them whole hours."""


def predicted(phase: Phase, test_s: float, ended_s: float, time: RunTime, tests: float | None) -> Shortfall | None:
    """What the time lacks; None if a decision is possible, or none is left to be made.

    `test_s` is that of the test, of which its ended phases took `ended_s`; `tests` share what is left of the run's, if
    that has a limit.
    """
    if not (phase.needed and phase.measurement.undecided):
        return None
    rounds, needed_s = phase.measurement.forecast(phase.needed)
    if rounds >= phase.needed:
        return None
    budget = phase.measurement.plan
    wanted_s = (MARGIN if rounds else UNSEEN * MARGIN) * needed_s / phase.share
    option, given_s = "--ftgate-test-time", test_s
    if tests is not None and time.budget_s is not None and budget.limits.budget_s < phase.budget_s:
        option, given_s = "--ftgate-time", time.budget_s
        wanted_s = time.spent_s + tests * max(0.0, wanted_s - budget.spent_s)
    elif ended_s:  # the phases before take as large a part of a longer time
        wanted_s += max(ended_s, wanted_s)
    wanted_s = max(wanted_s, given_s)
    return Shortfall(
        rounds=rounds,
        needed=phase.needed,
        cells=len(phase.measurement.cell_runs),
        option=option,
        given_s=given_s,
        wanted_s=next((float(step) for step in STEPS_S if step > wanted_s), 3600.0 * math.ceil(wanted_s / 3600)),
    )
