"""A phase of a measurement: cells that are measured together, by themselves or paired with a reference."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

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
        """One round; returns whether there may be another. `share_s` and `left_s` are as for `Trial.step`."""
        if share_s is not None and left_s is not None:
            own_s = self.budget_s - self.run.budget.spent_s
            self.run.grant(min(share_s * self.share, own_s), min(left_s, own_s))
        return self.run.step()


def started(
    phase: Phase, group: Group, resources: Resources, monitor: ConditionsMonitor, left_s: float, waiting: int
) -> ActivePhase:
    """A phase with its targets installed, what each cell is compared with, and its run. Raises FtgateError.

    `left_s` is the rest of the test's time, for this phase and those `waiting`. A screen leaves half of it to what may
    follow a miss.
    """
    cells, pair, screened = phase.cells, phase.pair, phase.metrics is not None
    checkout = pair.changed if pair else None

    def prepared(checkout: git.Checkout | None) -> dict[str, PreparedTarget]:
        prepare, requires = resources.targets.prepared, group.spec.requires
        return {cell.target.spec: prepare(cell, requires, checkout) for cell in one_per_target(cells)}

    # 1. What is installed, and what each cell is compared with.
    targets = prepared(checkout)
    compared = {cell.nodeid: basis_of(cell, phase, group, resources) for cell in cells}
    references: dict[str, Reference] = {}
    if pair and any(each.basis for each in compared.values()):  # a reference without the test is not built
        old_spec, old_targets = resources.references.relocated(group.spec, pair.reference), prepared(pair.reference)
        _check_versions(pair, old_targets, targets)
        for cell in cells:
            if compared[cell.nodeid].basis:
                there = replace(cell, target=target_of(cell, pair.reference))
                references[cell.nodeid] = Reference(cell=there, spec=old_spec, target=old_targets[cell.target.spec])
    spec = resources.references.relocated(group.spec, checkout) if checkout else group.spec
    if screened:  # contracts were judged in the first phase
        spec = replace(spec, requirements=())
    # 2. How much time it has, and what it leaves to explain the cells that fail.
    followed = pair is None and resources.config.escalate and any(each.entry for each in compared.values())
    share = 0.5 if followed else 1 / (1 + waiting)
    own_s = left_s * share
    reserved_s = _reserved_s(own_s) if pair and resources.config.explain else 0.0
    limits = resources.limits(group, cells, own_s - reserved_s)
    # 3. Who judges, and how many rounds that needs.
    at_most = PAIRED_ROUNDS if pair else SCREEN_LAUNCHES
    judge = Judge(spec, _policy(phase, group, resources), compared, at_most, limits.launches)
    records = pair is None and resources.stored.records(group, cells)
    judged = not records and (bool(spec.requirements) or any(each.basis for each in compared.values()))
    needed = 0
    if judged:
        needed = min(judge.least_rounds(), limits.launches or judge.rounds)
        least_rounds = LEAST_ROUNDS if any(each.basis for each in compared.values()) else LEAST_LAUNCHES
        limits = replace(limits, floor=max(least_rounds, needed), at_most=judge.rounds)
    elif pair is not None:  # figures are all there is to show
        launches = limits.launches or LEAST_LAUNCHES
        limits = replace(limits, launches=launches, most_iterations=PILOT_ITERATIONS, least_iterations=0)
    run = InterleavedRun(
        Group(key=group.key, spec=spec, cells=cells),
        targets,
        resources.launcher,
        limits,
        random.Random(f"{resources.config.seed}:{group.key}{':beside' if screened else ''}"),
        resources.listener,
        loops=None if pair else resources.stored.loops(group, cells),
        stopping_rule=judge.needs if judged else None,
        references=references,
        monitor=monitor,
        first_needs=judge.first(cells) if judged else None,
        needed=0 if spec.requirements else needed,  # contracts compare cells: these are measured together
        floors=resources.floors,
        capacity=resources.capacity,
    )
    return ActivePhase(phase, run, judge, limits.budget_s, share, needed, reserved_s)


def basis_of(cell: Cell, phase: Phase, group: Group, resources: Resources) -> ComparedWith:
    """What a cell of a phase is compared with."""
    reference = phase.pair.reference if phase.pair else None
    if why := phase.same.get(cell.nodeid):
        baseline, commit = (reference.label, reference.commit) if reference else ("", "")
        return ComparedWith(why=why, baseline=baseline, commit=commit, same=True)
    if reference is None:
        return resources.stored.compared_with(group, cell)
    if worktrees.lacks(reference, names.split_nodeid(cell.nodeid)[0]):
        return ComparedWith(why=f"{reference.label} has no such test: it will be compared from the next change on")
    there = resources.targets.prepared(cell, group.spec.requires, reference)
    if why := unavailable(cell, there.interpreter):
        return ComparedWith(why=f"{reference.label} cannot run it: {why}")
    return ComparedWith(
        basis="paired",
        why=phase.why,
        baseline=described(reference, group.spec.requires),
        commit=reference.commit,
        judged=cell.nodeid in phase.judged,
    )


def _policy(phase: Phase, group: Group, resources: Resources) -> Policy:
    """After a screen only the metrics that missed are judged: no other kind of launch is needed."""
    names, wanted = (*resources.policy.metrics, *group.spec.gated), phase.metrics
    if wanted is not None:
        # On another machine the time was screened by its ratio.
        wanted |= {Metric.WALL} if Metric.RATIO in wanted else set()
        names = tuple(each for each in names if each in wanted)
    return replace(resources.policy, metrics=names)


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


# ---- whether the time of a phase is too short for a decision, and what would be enough

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
