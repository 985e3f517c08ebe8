"""Measures the cells of one test interleaved: started together, iterations in random order, never two at once.

Each cell is paired with its reference, or with the control workload under the same executor; memory is sampled in
launches of its own. The number of iterations follows from the variance of the first ones, blind to any comparison; so
does the number of rounds, unless a stopping rule says what is still undecided. Both are planned within a budget, and
when it is over no iteration begins.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..kit.text import percent
from ..kit.values import grouped
from ..model.sample import EVERYTHING, IN_PAIRS, Need, Sample
from ..model.spec import Group
from ..runner.protocol import CHECKED_COLD, COLD
from ..stats import rank_tests
from .conditions import ConditionsMonitor
from .context import (
    Capacity,
    CellRun,
    Floors,
    Listener,
    PreparedTarget,
    Reference,
    RunContext,
    disagreements,
)
from .launch import Launcher
from .memory_round import measure_memory
from .plan import Allowance, IterationPlan, OutOfTime, RunBudget
from .time_round import measure_round, ratios_of, roles

LEAST_REFERENCES = 3
"""Launches of a reference before it is said not to have the error of its cell."""
LAUNCH_S = 0.25
"""What a launch takes at least, with its iterations: before the first round nothing else is known."""
FEW = 4
"""So many cells are begun together, however little time there is."""


class StoppingRule(Protocol):
    """Decides after each round which kinds of launches each cell still needs; a cell that is not named needs none."""

    def __call__(self, samples: Sequence[Sample], /) -> Mapping[str, frozenset[Need]]:
        """By node id; `samples` are all cells' so far."""
        ...


class InterleavedRun(RunContext):
    """The cells of one test while they are measured; `step` measures one round, `measure` all."""

    def __init__(
        self,
        group: Group,
        targets: Mapping[str, PreparedTarget],
        launcher: Launcher,
        limits: Allowance,
        rng: random.Random,
        listener: Listener,
        clock: Callable[[], float] | None = None,
        loops: int | None = None,
        stopping_rule: StoppingRule | None = None,
        references: Mapping[str, Reference] | None = None,
        monitor: ConditionsMonitor | None = None,
        first_needs: Mapping[str, frozenset[Need]] | None = None,
        needed: int = 0,
        floors: Floors | None = None,
        capacity: Capacity | None = None,
    ) -> None:
        """`references` maps a node id to the cell's other side, `first_needs` to the launches of its first round.

        Without a stopping rule the variance alone decides how many rounds there are, all with every kind of launch.
        `needed` are the rounds that decide about a cell: where the time is too short for so many of all, cells take
        turns. 0: they do not.
        """
        cell_runs = [
            CellRun(cell, targets[cell.target.spec], group.spec, (references or {}).get(cell.nodeid))
            for cell in group.cells
        ]
        for cell_run in cell_runs:
            by_default = EVERYTHING if cell_run.reference is None else IN_PAIRS
            cell_run.require(by_default if first_needs is None else first_needs[cell_run.cell.nodeid])
        # Of their own, so that whether cells take turns changes nothing else.
        self._order = random.Random(repr(rng.getstate())).sample(cell_runs, len(cell_runs))
        plan, budget = IterationPlan(group.spec, limits, loops), RunBudget(limits, clock or time.monotonic)
        super().__init__(cell_runs, launcher, rng, plan, budget, listener, monitor, floors, capacity)
        self.stopping_rule = stopping_rule
        self._share = 1.0
        """Launches that are still needed, also of cells whose turn has not come, over those of the last round."""
        self._done = 0
        """The rounds of the cell that has the fewest and needs more."""
        self.needed = needed
        self._take_turns = False

    def measure(self) -> list[Sample]:
        """Rounds of interleaved launches, each followed by memory launches, until there are enough."""
        while self.step():
            pass
        return self.samples()

    def step(self) -> bool:
        """One round, unless there are enough; returns whether there may be another. Others may run in between."""
        if not self.open:
            return False
        # 1. Before the first round programs are built, which must not count as the cost of a launch, and cells for
        # which the time is too short wait for their turn.
        first = not self.budget.rounds
        if first:
            for side in (side for cell_run in self.cell_runs for side in cell_run.with_reference):
                if side.cell.executor.program is not None and side.cell.executor.program.build:
                    self.report(side, "building")
                    with side.attribute_errors(), self.ready(side, "own"):
                        pass
            if self.needed:
                self._in_turn(LAUNCH_S, FEW)
        # 2. Time and lock launches of all cells, then memory launches, between two looks at the machine's speed.
        launches = self._launches
        self.budget.begin_round()
        if first:
            self.calibrate()
        measure_round(self)
        with self.budget.extra():
            measure_memory(self)
            self.capacity.learn(self.cell_runs)
            self._run_references()
        self.calibrate()
        # 3. What is still undecided is measured in the next round, of the cells whose turn it is.
        if self.stopping_rule is not None:
            needs = self.stopping_rule(self.samples_so_far())
            for cell_run in self.cell_runs:
                cell_run.require(needs.get(cell_run.cell.nodeid, frozenset()))
            self._share = self._launches / max(1, launches)
            needing = [len(each.launches) for each in self.cell_runs if each.alive and each.needs]
            self._done = min(needing, default=self.budget.rounds + 1)
            if self.needed:
                self._in_turn(self.budget.round_so_far_s / max(1, launches), 1)
        # 4. How many rounds there are to be, and how many iterations in each.
        self.budget.end_round()
        self._plan_rounds()
        return self.open

    @property
    def open(self) -> bool:
        """Whether a cell still needs a round, and the budget has room for one."""
        rounds = self._take_turns or self.budget.rounds < self.budget.rounds_wanted  # of each cell so many
        return self.undecided and rounds and not self.budget.expired

    @property
    def undecided(self) -> bool:
        return any(cell_run.alive and cell_run.needs for cell_run in self.cell_runs)

    @property
    def _launches(self) -> int:
        """The launches of a round, as far as they are needed now."""
        return sum(map(_launches_of, self.cell_runs))

    def _in_turn(self, launch_s: float, least: int) -> None:
        """Leave cells out of the next round where the time is too short for as many rounds of all as they need.

        Those of one executor and target go together, in a random order that is the same in all rounds: each to its end,
        then the next. At least so many cells are kept; a launch takes `launch_s`.
        """
        families = grouped((each.family, each) for each in self._order if each.alive and each.needs)
        left_s, kept = self.budget.limits.budget_s - self.budget.spent_s, 0
        for family in families.values():
            rounds = max(1, self.needed - min(len(each.launches) for each in family))
            left_s -= launch_s * rounds * sum(map(_launches_of, family))
            if left_s < 0 and kept >= least:
                self._take_turns = True
                for each in family:
                    each.require(frozenset())
            else:
                kept += len(family)

    def grant(self, share_s: float, left_s: float) -> None:
        """Plan iterations with `share_s` more seconds, and end after `left_s` more, in place of what was left."""
        self.budget.grant(share_s, left_s)
        if self.budget.rounds:
            self._plan_rounds()

    def forecast(self, needed: int) -> tuple[int, float]:
        """How many rounds fit into the budget, and the seconds that `needed` ones would take: see `RunBudget`."""
        return self.budget.forecast(self.iterations, self._done, needed, self._share if self._done else 1.0)

    def samples(self) -> list[Sample]:
        """All cells, after a comparison of their results; of the references' if their cells differ."""
        references = [each.reference for each in self.cell_runs if each.reference is not None and each.reference.alive]
        theirs = {id(reference): error for reference, error in disagreements(references)}
        for cell_run, error in disagreements([each for each in self.cell_runs if each.alive]):
            cell_run.error = error
            if cell_run.reference is not None:
                cell_run.reference.error = cell_run.reference.error or theirs.get(id(cell_run.reference))
        return self.samples_so_far()

    def samples_so_far(self) -> list[Sample]:
        return [cell_run.sample() for cell_run in self.cell_runs]

    def _run_references(self) -> None:
        """Run the reference of a cell that has failed as often as the cell itself: it may have the same error."""
        for cell_run in self.cell_runs:
            reference, error = cell_run.reference, cell_run.error
            if reference is None or error is None:
                continue
            with contextlib.suppress(OutOfTime):
                while reference.alive and reference.begun < max(LEAST_REFERENCES, error.launch):
                    self.report(reference, "trying, after an error, the reference of")
                    with reference.attribute_errors(), self.ready(reference, "own") as launch:
                        launch.unmeasured(CHECKED_COLD if launch.has_results else COLD)
                        for _ in self.in_time(range(self.iterations.taken)):
                            launch.measured()
                        launch.handle.close()
                        launch.handle.finish()

    def _plan_rounds(self) -> None:
        budget, plan = self.budget, self.iterations
        # 1. Each alive cell's ratios to its reference or its control workload: by launch so far, by iteration.
        ratios: list[list[list[float]]] = []
        timed: list[list[list[float]]] = []
        for cell_run in self.cell_runs:
            if cell_run.alive:
                paired = cell_run.of("control") if cell_run.reference is None else cell_run.reference.launches
                beside = {launch.order: plan.values(launch) for launch in paired}
                there = [own for own in cell_run.launches if own.order in beside]
                ratios.append([ratios_of(plan.values(own), beside[own.order]) for own in there])
                if "time" in cell_run.needs:
                    timed.append(ratios[-1])
        # 2. The iterations of the rounds to come, by what the last one took.
        if timed and plan.taken:
            launch_ns = max(0.0, budget.round_ns - budget.extra_ns - budget.iteration_ns * plan.taken)
            more = any(cell_run.alive and cell_run.needs - {"time", "control"} for cell_run in self.cell_runs)
            extra_ns = budget.extra_ns if more else 0.0
            iteration_ns = budget.iteration_ns
            budget.plan_iterations(plan, timed, launch_ns=launch_ns, iteration_ns=iteration_ns, extra_ns=extra_ns)
        # 3. The rounds.
        known = [[each for each in launches if each] for launches in ratios]
        values = [[statistics.median(map(math.log, each)) for each in launches] for launches in known if launches]
        before = self.budget.rounds_wanted
        self.budget.plan_rounds(self.iterations, values, until_settled=self.stopping_rule is not None)
        if self.stopping_rule is None and self.budget.rounds_wanted > before:
            vary = math.expm1(max(map(rank_tests.gini_deviation, values)))
            self.listener.expect_more(f"more rounds: the cells vary by {percent(round(vary, 2))}")


def _launches_of(cell_run: CellRun) -> int:
    """The launches of a round, of the cell and its reference, as far as they are needed now."""
    memory = cell_run.alive and "memory" in cell_run.needs
    return sum(len(roles(cell_run, side)) + memory for side in cell_run.with_reference)
