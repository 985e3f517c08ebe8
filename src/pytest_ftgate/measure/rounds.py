"""Measures the cells of one test interleaved: started together, iterations in random order, never two at once.

Each cell is paired with its reference, or with the control workload under the same executor; memory is sampled in
launches of its own. The number of iterations follows from the variance of the first ones, blind to any comparison; the
number of rounds is fixed, unless a stopping rule says what is still undecided. Both are planned within a budget, and
when it is over no iteration begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from ..kit.values import grouped
from ..runner.protocol import CHECKED_COLD, COLD
from .cell_run import CellRun, roles
from .group import Measurement
from .memory_round import measure_memory
from .round_plan import OutOfTime
from .time_round import measure_times

LEAST_REFERENCES = 3
"""Launches of a reference before it is said not to have the error of its cell."""
LAUNCH_S = 0.25
"""What a launch takes at least, with its iterations: before the first round nothing else is known."""
FEW = 4
"""So many cells are begun together, however little time there is."""


def measure_round(measurement: Measurement) -> bool:
    """One round, unless there are enough; returns whether there may be another. Others may run in between."""
    if not measurement.open:
        return False
    # 1. Before the first round programs are built, which must not count as the cost of a launch, and cells for which
    # the time is too short wait for their turn.
    cell_runs, plan = measurement.cell_runs, measurement.plan
    first = not plan.rounds
    if first:
        for side in (side for cell_run in cell_runs for side in cell_run.sides):
            if side.cell.executor.program is not None and side.cell.executor.program.build:
                measurement.tell_progress(side, "building")
                with side.attribute_errors(), measurement.ready(side, "own"):
                    pass
        if measurement.needed:
            _in_turn(measurement, LAUNCH_S, FEW)
    # 2. Time and lock launches of all cells, then memory launches, between two looks at the machine's speed.
    launches = max(1, _launches_of(cell_runs))
    plan.begin_round()
    if first:
        measurement.calibrate()
    measure_times(measurement)
    with plan.extra():
        with measurement.spent.on("memory"):
            measure_memory(measurement)
        measurement.capacity.learn(cell_runs)
        _run_references(measurement)
    measurement.calibrate()
    # 3. What is still undecided is measured in the next round, of the cells whose turn it is.
    if (rule := measurement.stopping_rule or measurement.figures_rule) is not None:
        needs = rule(measurement.samples_so_far())
        for cell_run in cell_runs:
            cell_run.require(needs.get(cell_run.cell.nodeid, frozenset()))
        measurement.share = _launches_of(cell_runs) / launches
        needing = [len(each.of("time")) for each in cell_runs if each.alive and each.needs]
        measurement.done = min(needing, default=plan.rounds + 1)
        if measurement.needed:
            _in_turn(measurement, plan.round_so_far_s / launches, 1)
    # 4. How many rounds there are to be, and how many iterations in each.
    plan.end_round()
    measurement.plan_rounds()
    return measurement.open


def _in_turn(measurement: Measurement, launch_s: float, least: int) -> None:
    """Leave cells out of the next round where the time is too short for as many rounds of all as they need.

    Those of one executor and target go together, in a random order that is the same in all rounds: each to its end,
    then the next. At least so many cells are kept; a launch takes `launch_s`.
    """
    families = grouped((each.family, each) for each in measurement.turns if each.alive and each.needs)
    left_s, kept = measurement.plan.limits.budget_s - measurement.plan.spent_s, 0
    for family in families.values():
        rounds = max(1, measurement.needed - min(len(each.of("time")) for each in family))
        left_s -= launch_s * rounds * _launches_of(family)
        if left_s < 0 and kept >= least:
            measurement.take_turns = True
            for each in family:
                each.require(frozenset())
        else:
            kept += len(family)


def _launches_of(cell_runs: Iterable[CellRun]) -> int:
    """The launches of a round, of these cells and their references, as far as they are needed now."""
    return sum(
        len(roles(cell_run, side)) + (cell_run.alive and "memory" in cell_run.needs)
        for cell_run in cell_runs
        for side in cell_run.sides
    )


def _run_references(measurement: Measurement) -> None:
    """Run the reference of a cell that has failed as often as the cell itself: it may have the same error."""
    for cell_run in measurement.cell_runs:
        reference, error = cell_run.reference, cell_run.error
        if reference is None or error is None:
            continue
        with contextlib.suppress(OutOfTime):
            while reference.alive and reference.begun < max(LEAST_REFERENCES, error.launch):
                measurement.tell_progress(reference, "trying, after an error, the reference of")
                with reference.attribute_errors(), measurement.ready(reference, "own") as launch:
                    launch.unmeasured(CHECKED_COLD if launch.has_results else COLD)
                    for _ in measurement.in_time(range(measurement.plan.taken)):
                        launch.measured()
                    launch.close()
                    launch.handle.finish()
