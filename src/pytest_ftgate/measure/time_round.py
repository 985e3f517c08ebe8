"""Time and lock launches of one round, interleaved: started together, iterations in random order, one at a time."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..kit.values import grouped
from ..runner.protocol import CHECK, CHECKED_COLD, COLD, WARMUP
from .capacity import Needed, total
from .cell_run import CellRun, RunningLaunch, roles
from .group import Measurement, ratios_of
from .launch import LAUNCHES, PROBED
from .memory_round import memory_cost_ns
from .round_plan import OutOfTime, calibrated_loops

PROBED_ITERATIONS = 5, 2, 1
"""Iterations of a launch with a probe, the first of a round: as many of them as take a part of it."""
START_SHARE = 0.9
"""Of an iteration, what start and join of fresh workers may take before the test is told that they hide its body."""


def measure_times(measurement: Measurement) -> None:
    """One round of all cells: together, or in batches where so many launches cannot be alive at once.

    A cell is always measured together with its reference and its control workload.
    """
    plan, capacity = measurement.plan, measurement.capacity

    def needs(cell_run: CellRun) -> Needed:
        return total(capacity.needed(side, roles(cell_run, side)) for side in cell_run.sides)

    # 1. Batches in random order, the worker counts of one executor together if they can be.
    batches = [list(measurement.cell_runs)]
    if lacking := capacity.lacking(total(map(needs, measurement.cell_runs))):
        batches = capacity.batches(_by_family(measurement, measurement.cell_runs), needs)
        if len(batches) > measurement.most_batches:
            most = measurement.most_batches = len(batches)
            measurement.split = f"not all cells were measured together, but in up to {most} batches a round: {lacking}"
    # 2. Each of them by itself; of the loops that they call for, the most count.
    calibrates, iteration_ns, done = plan.loops is None, 0.0, 0
    for number, cell_runs in enumerate(batches):
        done += len(cell_runs)
        loops = plan.loops
        if calibrates:
            plan.loops = None  # the shortest cell decides, and it may be in this batch
        batch = Batch(cell_runs, number == 0, done / len(measurement.cell_runs), iteration_ns)
        iteration_ns += _measure_batch(measurement, batch)
        if calibrates and loops is not None:
            plan.loops = max(loops, plan.loops or 1)


class Batch(NamedTuple):
    """Cells whose launches are alive together.

    `share` is that of the round's cells in this batch and earlier ones, of which an iteration takes `earlier_ns`.
    """

    cell_runs: Sequence[CellRun]
    is_first: bool
    share: float
    earlier_ns: float


def _measure_batch(measurement: Measurement, batch: Batch) -> float:
    """Start all launches of some cells, warm them up, interleave their iterations, let them end.

    Returns what an iteration of each launch takes in ns. If the time is over before the end, only cells count whose
    launches have all had the least iterations.
    """
    # 1. The workload starts before its control and the lock probe, which must not be named if it fails by itself; else
    # in random order. Each side of a pair starts first in one of two rounds: being started second costs short forks
    # some percent, which two rounds then cancel.
    for cell_run in batch.cell_runs:
        cell_run.require(cell_run.needs)
    sides = [(cell_run, side) for cell_run in batch.cell_runs for side in cell_run.sides]
    order = measurement.shuffled([(side, role) for cell_run, side in sides for role in roles(cell_run, side)])
    for cell_run in batch.cell_runs:
        own = [place for place, (side, role) in enumerate(order) if side in cell_run.sides and role == "own"]
        if len(own) == 2:
            first, second = own
            if measurement.plan.rounds % 2 and order[first][0] is cell_run.started_first:
                order[first], order[second] = order[second], order[first]
            cell_run.started_first = order[first][0]
    wanted = sorted(order, key=lambda each: [*LAUNCHES].index(each[1]))
    # 2. The iterations.
    iteration_ns = 0.0
    with contextlib.suppress(OutOfTime), measurement.started(wanted) as launches:
        counted = launches
        try:
            _warm_up(measurement, batch, launches)
            iteration_ns = _interleave(measurement, batch, launches)
            # Results that no warm-up has compared; in the first round all, unless that takes long. So what changes
            # within a launch is found in the first round, and what changes between launches in all.
            all_again = not measurement.plan.rounds
            last = [
                launch
                for launch in launches
                if launch.has_results
                and (not launch.checked or (all_again and measurement.spares(launch.latest_wall_ns or 0, 0.1)))
            ]
            _each(measurement, last, "checking results of", _check)
        except OutOfTime:
            # Of a cell all launches count or none. Some have had an iteration more than others, which has no partner.
            counted = []
            for cell_run in batch.cell_runs:
                beside = [each for each in launches if each.cell_run in cell_run.sides and each.usable()]
                shared = min((len(launch.values) for launch in _bare(beside)), default=0)
                if shared >= measurement.plan.least and all(each.values for each in beside):
                    counted += beside
        # 3. Their end.
        measurement.sample_conditions()
        _each(measurement, counted, "ending", RunningLaunch.close, late=True)
        _each(measurement, counted, "ending", _finish, late=True)
    return iteration_ns


def _each(
    measurement: Measurement,
    launches: Sequence[RunningLaunch],
    phase: str,
    act: Callable[[RunningLaunch], object],
    *,
    late: bool = False,
) -> None:
    """One launch after the other; one that fails ends its own cell, or its figures of locks, alone.

    Raises OutOfTime unless `late`.
    """
    for launch in launches:
        if not late:
            measurement.plan.check(launch.next_ns)
        if launch.usable():
            measurement.tell_progress(launch.cell_run, phase)
            timing = measurement.plan.extra() if launch.role in PROBED else contextlib.nullcontext()
            spent = measurement.spent.on(LAUNCHES[launch.role].seconds)
            with timing, spent, launch.cell_run.attribute_errors(launch.role):
                act(launch)
            if not launch.usable():
                launch.kill()  # else its threads may run beside the cell's other launches


# ---- warm-up


def _warm_up(measurement: Measurement, batch: Batch, launches: Sequence[RunningLaunch]) -> None:
    """The iterations before the first measured one; from them follow the loops of an iteration."""
    plan, resolutions_ns = measurement.plan, [0.0]

    def own() -> list[RunningLaunch]:
        return [launch for launch in launches if launch.role == "own" and launch.cell_run.alive]

    _each(measurement, launches, "starting", lambda launch: resolutions_ns.append(launch.handle.ready()))

    # 1. The cold iterations. Nobody reads that of the lock probe: where it is long, there is none.
    _each(measurement, _bare(launches), "warming up", _cold)
    plan.long = bool(own()) and all(each.is_long for each in own()) and (batch.is_first or plan.long)
    long = {launch.cell_run for launch in launches if launch.is_long}
    probed = [launch for launch in launches if launch.role in PROBED and launch.cell_run not in long]
    _each(measurement, probed, "warming up", _cold)

    # 2. Warm-ups, the first of which compares results too: one call is too short where an iteration has more.
    for number in range(max(1, plan.warmups)):
        checks = number == 0 and plan.loops in (None, 1)

        def warm(launch: RunningLaunch, checks: bool = checks) -> None:
            if checks and launch.has_results:
                _check(launch)
            else:
                launch.unmeasured(WARMUP, launch.loops)

        _each(measurement, [launch for launch in launches if number < launch.warmups], "warming up", warm)

    # 3. Loops from each cell's last iteration so far: a warm-up, or the cold one where no warm-up was asked for.
    if plan.loops is None and not plan.window_ns:
        # Workers that are kept are not started: the body itself is to be long enough, without dispatch and join.
        pooled = plan.spec.reuse == "pool"
        latest = (launch.latest_work_ns if pooled else launch.latest_wall_ns for launch in own())
        known = [each for each in latest if each is not None]
        plan.loops = calibrated_loops(known, max(resolutions_ns)) if known else None

    # 4. A cell that shows little but the start of its workers: by the cold iteration, which transfers nothing. The join
    # of roles is not lost: those that end after the leader do so in it.
    fresh = plan.spec.reuse == "fresh" and not plan.spec.role_counts
    if batch.is_first and not measurement.plan.rounds and fresh and not plan.window_ns:
        short = [each for each in own() if not each.cell_run.is_reference and each.first_share >= START_SHARE]
        if short:
            worst = max(short, key=lambda each: each.first_share)
            took = f"start and join took {100 * worst.first_share:.0f} % of its first iteration"
            fix = 'its time says little of its body: leave out reuse="fresh"'
            measurement.listener.warn(f"{worst.cell_run.cell.nodeid}: {took}, so {fix}")


def _cold(launch: RunningLaunch) -> None:
    """If it is known to be long, it compares results too: nothing warms it up."""
    launch.checked = launch.is_long and launch.warmups == 0 and launch.has_results
    iteration = launch.unmeasured(CHECKED_COLD if launch.checked else COLD)
    if iteration.wall_ns:
        launch.first_share = 1 - iteration.work_ns / iteration.wall_ns


def _check(launch: RunningLaunch) -> None:
    launch.unmeasured(CHECK)
    launch.checked = True


# ---- measured iterations


def _interleave(measurement: Measurement, batch: Batch, launches: Sequence[RunningLaunch]) -> float:
    """One iteration of each launch after the other, in another random order each time; what one of each takes in ns."""
    plan = measurement.plan
    began_s, extra_ns, iteration_ns = plan.clock(), plan.extra_ns, 0.0
    # Fewer with the lock probe if iterations are long: they have more waits in them, too.
    longest_ns = max((launch.latest_wall_ns or 0 for launch in launches if launch.role in PROBED), default=0)
    with_probe = measurement.most(PROBED_ITERATIONS, longest_ns, 0.25)
    timed = bool(_bare(launches))
    # The pilot iterations of the first batch may be more than were planned by them.
    least = 0 if plan.rounds else plan.taken
    plan.taken = 0
    while plan.taken < (max(plan.planned, least) if timed else with_probe):
        # Each launch stands next to what it is paired with, which of the two comes first being random too. Neighbours
        # in time see the same machine: its speed changes within milliseconds. So the worker counts of one executor are
        # neighbours, and the launch with the lock probe comes right before or after its bare one.
        order: list[RunningLaunch] = []
        for cell_run in _by_family(measurement, batch.cell_runs):
            own = [launch for launch in launches if launch.cell_run in cell_run.sides]
            if plan.taken >= max(plan.counts.get(cell_run.cell.nodeid, plan.taken + 1), with_probe):
                continue
            pair, probe = measurement.shuffled(_bare(own)), list[RunningLaunch]()
            if plan.taken < with_probe:
                probe = measurement.shuffled([launch for launch in own if launch.role in PROBED])
            order += probe + pair if measurement.rng.random() < 0.5 else pair + probe
        _each(measurement, order, "measuring", RunningLaunch.measured)
        plan.taken += 1
        if timed:
            spent_ns = (plan.clock() - began_s) * 1e9 - (plan.extra_ns - extra_ns)
            iteration_ns = spent_ns / plan.taken
            plan.iteration_ns = batch.earlier_ns + iteration_ns
            if plan.count is None and plan.taken >= plan.pilot(plan.iteration_ns / batch.share):
                _plan_by_pilot(measurement, batch, launches)
    return iteration_ns


def _plan_by_pilot(measurement: Measurement, batch: Batch, launches: Sequence[RunningLaunch]) -> None:
    """The first plan, after the pilot iterations; each round has its own."""
    plan = measurement.plan
    iteration_ns = plan.iteration_ns
    launch_ns = plan.round_so_far_s * 1e9 - plan.extra_ns - iteration_ns * plan.taken
    # Still to come are the memory launches, which have to be started too.
    held = {side for each in measurement.needing("memory") for side in each.sides}
    own = [each for each in launches if each.role == "own" and each.values and each.cell_run in held]
    walls_ns = [plan.window_ns or statistics.median(each.values) * each.loops for each in own]
    memory_ns = sum(memory_cost_ns(measurement, each.cell_run, ns) for each, ns in zip(own, walls_ns, strict=True))
    extra_ns = plan.extra_ns + memory_ns + (launch_ns / 3 if held else 0.0)
    # Each cell's iterations of this round over those of its reference or its control workload.
    ratios = {}
    for cell_run in measurement.needing("time"):
        mine = {launch.role: launch.values for launch in launches if launch.cell_run is cell_run}
        sides = (each for each in launches if each.cell_run is cell_run.reference and each.role == "own")
        paired = next((launch.values for launch in sides), mine.get("control", []))
        ratios[cell_run.cell.nodeid] = [ratios_of(mine.get("own", []), paired)]
    # Of all batches, as if the others were like those so far.
    costs = {"launch_ns": launch_ns, "iteration_ns": iteration_ns, "extra_ns": extra_ns}
    plan.plan_iterations(ratios, **{name: cost / batch.share for name, cost in costs.items()})


# ---- the end of a round


def _finish(launch: RunningLaunch) -> None:
    recorded = LAUNCHES[launch.role].recorded
    record = launch.finish(recorded, loops=launch.loops, window_ns=launch.plan.window_ns)
    launch.cell_run.all_launches.append(record)


# ---- which cells, and which launches of them


def _by_family(measurement: Measurement, cell_runs: Sequence[CellRun]) -> list[CellRun]:
    """In random order, the worker counts of one executor together."""
    families = grouped((each.family, each) for each in cell_runs)
    return [each for family in measurement.shuffled(list(families.values())) for each in measurement.shuffled(family)]


def _bare(launches: Sequence[RunningLaunch]) -> list[RunningLaunch]:
    return [launch for launch in launches if launch.role not in PROBED]
