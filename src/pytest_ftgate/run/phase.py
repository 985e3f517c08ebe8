"""A phase of a measurement: cells that are measured together, by themselves or paired with a reference."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..declare.plan import one_per_target
from ..judge.judge import PAIRED_ROUNDS, SCREEN_LAUNCHES, ComparedWith, Judge, Policy
from ..kit import git
from ..kit.errors import FtgateError
from ..kit.values import Metric, Struct
from ..measure.conditions import ConditionsMonitor
from ..measure.context import PreparedTarget, Reference
from ..measure.group import InterleavedRun
from ..measure.plan import LEAST_LAUNCHES, PILOT_ITERATIONS
from ..model.report import Shortfall
from ..model.spec import Cell, Group
from ..store import names
from .context import Resources, RunTime
from .sides import worktrees
from .sides.references import described
from .targets import target_of, unavailable

LEAST_ROUNDS = 5
"""Rounds of a comparison for which iterations are given up if the budget is small; more if a decision needs more.
Contracts need fewer."""
RESERVED_S, RESERVED_SHARE = (2.0, 5.0), 0.1
"""What a paired phase leaves to explain the cells that fail at its end: of its time, in these bounds. A phase that is
too short for it leaves nothing: its verdicts need all of it.

It does not depend on what was measured, so that it favours no verdict.
"""


class Phase(Struct, frozen=True, kw_only=True, eq=False):
    """Cells that are measured together, paired with a reference for the reason `why` if there is a `pair`.

    Cells that are not `judged` (node ids) are measured for another cell's scaling. `metrics` limits what is judged.
    Cells that are the `same` on both sides, for a reason by node id, are measured for contracts alone. A `spare` phase
    is for what the others leave of the time.
    """

    cells: tuple[Cell, ...]
    judged: frozenset[str]
    pair: worktrees.Pair | None = None
    why: str = ""
    metrics: frozenset[str] | None = None
    same: Mapping[str, str] = {}
    spare: bool = False


class ActivePhase(NamedTuple):
    """A phase under way, which may measure for `budget_s`, and explain the cells that fail in `reserved_s` as well.

    Both are this `share` of what was left of the test's time. A decision needs at least so many rounds; 0 if nothing is
    judged.
    """

    phase: Phase
    run: InterleavedRun
    judge: Judge
    budget_s: float
    share: float
    needed: int
    reserved_s: float

    @property
    def left_s(self) -> float:
        """What is left of its time, with what is reserved."""
        return max(0.0, self.budget_s + self.reserved_s - self.run.budget.spent_s)

    def step(self, share_s: float | None, left_s: float | None) -> bool:
        """One round; returns whether there may be another. `share_s` and `left_s` are as for `Measurement.step`."""
        if share_s is not None and left_s is not None:
            own_s = self.budget_s - self.run.budget.spent_s
            self.run.grant(min(share_s * self.share, own_s), min(left_s, own_s))
        return self.run.step()


class PhaseStarter:
    """Prepares what a phase needs and starts it."""

    def __init__(self, group: Group, resources: Resources, phase: Phase) -> None:
        self.group = group
        self.resources = resources
        self.phase = phase
        self.screened = phase.metrics is not None

    def start(self, monitor: ConditionsMonitor, left_s: float, waiting: int) -> ActivePhase:
        """Install the targets, find what each cell is compared with, and set up the run. Raises FtgateError.

        `left_s` is the rest of the test's time, for this phase and those `waiting`. A screen leaves half of it to what
        may follow a miss.
        """
        resources, cells, pair = self.resources, self.phase.cells, self.phase.pair
        checkout = pair.changed if pair else None
        targets = self._targets(checkout)
        references = self._references(pair, targets) if pair else {}
        spec = resources.references.relocated(self.group.spec, checkout) if checkout else self.group.spec
        if self.screened:  # contracts were judged in the first phase
            spec = msgspec.structs.replace(spec, requirements=())
        compared = {cell.nodeid: self._compared_with(cell) for cell in cells}
        followed = pair is None and resources.config.escalate and any(each.entry for each in compared.values())
        share = 0.5 if followed else 1 / (1 + waiting)
        own_s = left_s * share
        reserved_s = _reserved_s(own_s) if pair and resources.config.explain else 0.0
        limits = resources.limits(self.group, cells, own_s - reserved_s)
        at_most = PAIRED_ROUNDS if pair else SCREEN_LAUNCHES
        judge = Judge(spec, self._policy(), compared, at_most, limits.launches)
        records = pair is None and resources.stored.records(self.group, cells)
        judged = not records and (bool(spec.requirements) or any(each.basis for each in compared.values()))
        needed = 0
        if judged:
            needed = min(judge.least_rounds(), limits.launches or judge.rounds)
            least_rounds = LEAST_ROUNDS if any(each.basis for each in compared.values()) else LEAST_LAUNCHES
            limits = msgspec.structs.replace(limits, floor=max(least_rounds, needed), at_most=judge.rounds)
        elif pair is not None:  # figures are all there is to show
            least = {"launches": limits.launches or LEAST_LAUNCHES, "most_iterations": PILOT_ITERATIONS}
            limits = msgspec.structs.replace(limits, **least, least_iterations=0)
        run = InterleavedRun(
            Group(key=self.group.key, spec=spec, cells=cells),
            targets,
            resources.launcher,
            limits,
            random.Random(f"{resources.config.seed}:{self.group.key}{':beside' if self.screened else ''}"),
            resources.listener,
            loops=None if pair else resources.stored.loops(self.group, cells),
            stopping_rule=judge.needs if judged else None,
            references=references,
            monitor=monitor,
            first_needs=judge.first(cells) if judged else None,
            needed=0 if spec.requirements else needed,  # contracts compare cells: these are measured together
            floors=resources.floors,
            capacity=resources.capacity,
        )
        return ActivePhase(self.phase, run, judge, limits.budget_s, share, needed, reserved_s)

    def _targets(self, checkout: git.Checkout | None) -> dict[str, PreparedTarget]:
        prepared = self.resources.targets.prepared
        requires = self.group.spec.requires
        return {cell.target.spec: prepared(cell, requires, checkout) for cell in one_per_target(self.phase.cells)}

    def _references(self, pair: worktrees.Pair, changed: Mapping[str, PreparedTarget]) -> dict[str, Reference]:
        cells = [cell for cell in self.phase.cells if self._compared_with(cell).basis]
        if not cells:  # a reference without the test is not built
            return {}
        spec = self.resources.references.relocated(self.group.spec, pair.reference)
        targets = self._targets(pair.reference)
        _check_versions(pair, targets, changed)
        replace, there = msgspec.structs.replace, pair.reference
        return {
            cell.nodeid: Reference(
                cell=replace(cell, target=target_of(cell, there)), spec=spec, target=targets[cell.target.spec]
            )
            for cell in cells
        }

    def _compared_with(self, cell: Cell) -> ComparedWith:
        pair = self.phase.pair
        if why := self.phase.same.get(cell.nodeid):
            reference = pair.reference if pair else None
            baseline, commit = (reference.label, reference.commit) if reference else ("", "")
            return ComparedWith(why=why, baseline=baseline, commit=commit, same=True)
        if pair is None:
            return self.resources.stored.compared_with(self.group, cell)
        reference = pair.reference
        if worktrees.lacks(reference, names.split_nodeid(cell.nodeid)[0]):
            return ComparedWith(why=f"{reference.label} has no such test: it will be compared from the next change on")
        there = self.resources.targets.prepared(cell, self.group.spec.requires, reference)
        if why := unavailable(cell, there.interpreter):
            return ComparedWith(why=f"{reference.label} cannot run it: {why}")
        return ComparedWith(
            basis="paired",
            why=self.phase.why,
            baseline=described(reference, self.group.spec.requires),
            commit=reference.commit,
            judged=cell.nodeid in self.phase.judged,
        )

    def _policy(self) -> Policy:
        """After a screen only the metrics that missed are judged: no other kind of launch is needed."""
        policy, wanted = self.resources.policy, self.phase.metrics
        names = (*policy.metrics, *self.group.spec.gated)
        if wanted is None:
            return msgspec.structs.replace(policy, metrics=names)
        # On another machine the time was screened by its ratio.
        if Metric.RATIO in wanted:
            wanted |= {Metric.WALL}
        return msgspec.structs.replace(policy, metrics=tuple(each for each in names if each in wanted))


def _reserved_s(own_s: float) -> float:
    least, most = RESERVED_S
    reserved_s = min(most, RESERVED_SHARE * own_s)
    return reserved_s if reserved_s >= least else 0.0


def _check_versions(
    pair: worktrees.Pair, reference: Mapping[str, PreparedTarget], changed: Mapping[str, PreparedTarget]
) -> None:
    """For two versions of a distribution: raise FtgateError if both sides have the same."""
    # Two wheels may be two builds of one version.
    requested = [word for word in pair.reference.install if not (pair.reference.commit or word.endswith(".whl"))]
    for target in reference if requested else ():
        old, new = (
            worktrees.installed_version(Path(side[target].python), requested[0]) for side in (reference, changed)
        )
        if old == new:
            raise FtgateError(f"both sides have {requested[0]} on {target}: there is nothing to compare")


# Whether the time of a phase is too short for a decision, and what would be enough.

MARGIN = 1.4
"""What is recommended over the cost seen: with more time, rounds hold more iterations and samples."""
UNSEEN = 2.0
"""The same where no round was completed: its cost is not known, only that it is larger than the time was."""
STEPS_S = (10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 360, 480, 600, 720, 900, 1200, 1500, 1800, 2700, 3600)
"""Times to recommend; beyond them whole hours."""


def predicted(
    active: ActivePhase, test_s: float, ended_s: float, time: RunTime, tests: float | None
) -> Shortfall | None:
    """What the time lacks; None if a decision is possible, or none is left to be made.

    `test_s` is that of the test, of which its ended phases took `ended_s`; `tests` share what is left of the run's, if
    that has a limit.
    """
    if not (active.needed and active.run.undecided):
        return None
    rounds, needed_s = active.run.forecast(active.needed)
    if rounds >= active.needed:
        return None
    budget = active.run.budget
    wanted_s = (MARGIN if rounds else UNSEEN * MARGIN) * needed_s / active.share
    option, given_s = "--ftgate-test-time", test_s
    if tests is not None and time.budget_s is not None and budget.limits.budget_s < active.budget_s:
        option, given_s = "--ftgate-time", time.budget_s
        wanted_s = time.spent_s + tests * max(0.0, wanted_s - budget.spent_s)
    elif ended_s:  # the phases before take as large a part of a longer time
        wanted_s += max(ended_s, wanted_s)
    return Shortfall(
        rounds=rounds,
        needed=active.needed,
        cells=len(active.run.cell_runs),
        option=option,
        given_s=given_s,
        wanted_s=_ample(max(wanted_s, given_s)),
    )


def _ample(seconds: float) -> float:
    return next((float(step) for step in STEPS_S if step > seconds), 3600.0 * math.ceil(seconds / 3600))
