"""Memory launches: held at work while memory and threads are sampled, stopped at barriers, empty."""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
from collections.abc import Callable

import msgspec

from ..model.sample import Barrier, Launch, Role, SamplingCost, iteration_value
from ..model.spec import can_grow
from ..runner.protocol import WARMUP
from .cell_run import LONG_NS, CellRun, EmptyKey, RunningLaunch
from .group import Measurement
from .round_plan import LEAST_LAUNCHES, OutOfTime
from .watch.memory import ENOUGH_SAMPLES

HOLD_S, PAIRED_HOLD_S = 0.25, 0.1
"""How long workers are held at least; in a paired comparison long enough for what is judged."""
STEADY, LEAST_SAMPLES = 0.005, 2
"""Once so many samples of a hold differ by less than this part, later launches need one, if no thread waits."""
MOST_HOLDS = 4
"""A side of a pair that is slower is held so many times as long at most."""
BARRIERS = 3, 2, 1
"""Samples at barriers in a memory launch: as many of them as take a part of a round; the first is its warm-up."""
GROWTH_WARMUPS, GROWTH_AT_LEAST, GROWTH_AT_MOST = 4, 4, 8
GROWTHS, GROWTH_SHARE = 3, 0.2
"""Launches that decide growth, and the part of the time that they may take."""
GROWTH_S = 0.5
"""Samples at barriers in a growth launch: as many as fit this time, between these numbers."""
BARRIER_WINDOW_NS = 50_000_000
BARE_HOLDS, DEAR = 3, 1.05
"""Memory launches of a cell that are also held unsampled if the first of them shows that sampling costs more than this:
it takes three to refuse a figure for its cost."""


def measure_memory(measurement: Measurement) -> None:
    """One memory launch of each cell that needs one, and of its reference; some launches that only inform.

    None is started while a second round of time launches would not fit beside them. If the time is over before a
    cell and its reference were held, neither counts.
    """
    plan, needing = measurement.plan, measurement.needing("memory")
    cost_ns = sum(memory_cost_ns(measurement, side, side.longest_ns) for each in needing for side in each.sides)
    early = plan.rounds + 1 < min(LEAST_LAUNCHES, plan.rounds_wanted)
    if early and plan.left_s < plan.round_so_far_s + cost_ns / 1e9:
        timing_ns = plan.round_so_far_s * 1e9 - plan.iteration_ns * plan.taken
        plan.omitted_ns = cost_ns + timing_ns / 3  # they have to be started too
        return
    with contextlib.suppress(OutOfTime):
        for cell_run in measurement.shuffled(needing):
            measurement.tell_progress(cell_run, "measuring memory of")
            # 1. The cell and its reference: both are started, then both held, closed and recorded.
            sides = measurement.shuffled(cell_run.sides)
            grows = _growth_is_due(measurement, cell_run)
            with measurement.started((side, "own") for side in sides if cell_run.alive) as launches:
                steps: tuple[Callable[[RunningLaunch], object], ...] = (
                    lambda launch: _ready(measurement, launch),
                    functools.partial(_hold, measurement, cell_run, grows),
                    RunningLaunch.close,
                    _finish,
                )
                for act in steps:
                    for launch in launches:
                        if cell_run.alive and launch.cell_run.alive:
                            with launch.cell_run.attribute_errors():
                                act(launch)
            # 2. Growth, where the memory launches have not shown it, and the interpreter's own memory.
            for side in sides:
                if cell_run.alive and side.alive:
                    with side.attribute_errors():
                        _add_own(measurement, side, grows and not _frees_at_once(side), _informs(cell_run))


def _add_own(measurement: Measurement, side: CellRun, grows: bool, informs: bool) -> None:
    """The launches of one side that have only barriers: its growth, and what an empty workload shows."""
    if grows:
        side.all_launches.append(_growth_launch(measurement, side, "growth"))
    with side.attribute_errors("empty"):
        if informs and not side.of("empty") and measurement.spares(BARRIERS[0] * side.longest_ns, 0.15):
            side.all_launches.append(_shared(measurement, side, "empty"))
        if side.of("growth") and not side.of("growth_empty"):
            side.all_launches.append(_shared(measurement, side, "growth_empty"))


def _informs(cell_run: CellRun) -> bool:
    """Whether its memory launches also show what is not judged: the floor, and what sampling costs."""
    return "growth" in cell_run.needs and cell_run.probed and not cell_run.paired


def _frees_at_once(cell_run: CellRun) -> bool:
    """Whether the interpreter frees memory at once: then every launch shows growth."""
    return not cell_run.target.interpreter.free_threaded


def memory_cost_ns(measurement: Measurement, cell_run: CellRun, wall_ns: float) -> float:
    """What the memory launches of a cell will take once they are started, with iterations of `wall_ns`."""
    window_ns = measurement.plan.window_ns
    holds = 2 if _informs(cell_run) and _cost_is_due(cell_run) else 1
    held_ns = holds * max(_hold_ns(cell_run, window_ns), wall_ns)
    if not cell_run.probed:
        return held_ns
    count = _barrier_count(measurement, cell_run)
    if "growth" in cell_run.needs:
        grows = _affords_growth(measurement, cell_run)
        count += GROWTH_WARMUPS + (_growth_barriers(wall_ns, window_ns) if grows else 0)
    return count * (min(window_ns, BARRIER_WINDOW_NS) or wall_ns) + held_ns


# ---- launches whose workers are held


def _share_of_hold(pair: CellRun, side: CellRun) -> float:
    """How much longer a side is held than usual, so that both sides of a pair do as much, whichever is faster.

    What a process has written to depends on how often it ran the body: of unchanged memory the faster side had 23 MiB
    and the slower 14. Where one is 16 times as fast, and more, it does more.
    """
    other = next((each for each in pair.sides if each is not side), side)
    if not (side.latest and other.latest):
        return 1.0
    own_ns, other_ns = map(_call_ns, (side, other))
    return min(MOST_HOLDS, max(1 / MOST_HOLDS, math.sqrt(own_ns / other_ns)))


def _call_ns(cell_run: CellRun) -> float:
    """What a call of the body, or an operation of a window, takes in the latest timing launch."""
    timed = cell_run.of("time")[-1]
    values = (iteration_value(each, timed.loops, timed.window_ns > 0) for each in timed.iterations)
    return max(1.0, statistics.median(values))


def _ready(measurement: Measurement, launch: RunningLaunch) -> None:
    measurement.plan.check(launch.next_ns)
    launch.handle.ready()


def _hold(measurement: Measurement, pair: CellRun, grows: bool, launch: RunningLaunch) -> None:
    """Barriers first, which also warm it up; then it is held at work, sampled and not, in random order."""
    cell_run, handle, plan = launch.cell_run, launch.handle, measurement.plan
    wall_ns, hold_ns = cell_run.longest_ns, _hold_ns(cell_run, plan.window_ns)
    # 1. A server is warmed up as for its iterations; a command needs nothing, as each iteration is a new process.
    barriers: tuple[Barrier, ...] = ()
    if cell_run.probed:
        barriers = _barriers(measurement, launch, _barrier_count(measurement, cell_run))
    elif cell_run.cell.executor.kind == "server":
        for _ in measurement.in_time(range(plan.warmups)):
            handle.iteration(WARMUP, 1, plan.window_ns)
    # 2. Held at work: in some launches also unsampled, which shows what sampling costs.
    both = _informs(cell_run) and _cost_is_due(cell_run) and measurement.spares(hold_ns + wall_ns, 0.1)
    ways = measurement.shuffled([True, False]) if both else [True]
    # What one call of the body takes in every worker; 1 ms before the first launch.
    share = 1 / ENOUGH_SAMPLES if not plan.window_ns and _is_settled(pair) else _share_of_hold(pair, cell_run)
    timed = cell_run.of("time")
    calls_ns = [each.work_ns / timed[-1].loops for each in cell_run.latest] or [1e6]
    call_ns = 0.0 if plan.window_ns else max(1.0, statistics.median(calls_ns))
    in_time = measurement.in_time(ways, max(share * hold_ns, call_ns))
    held = {sampled: handle.measure_held(hold_ns, sampled, call_ns, share) for sampled in in_time}
    sampling_cost = None
    if both:
        bare, watched = (iteration_value(held[sampled].iteration, 1, per_op=True) for sampled in (False, True))
        if math.isfinite(bare) and math.isfinite(watched):
            sampling_cost = SamplingCost(bare_ns=(bare,), watched_ns=(watched,))
    launch.sampled = {
        "memory": held[True].memory,
        "dropped": held[True].dropped,
        "waits": held[True].waits,
        "barriers": barriers,
        "sampling_cost": sampling_cost,
    }
    # 3. Where memory is freed at once, more barriers show growth; the first settles it.
    if grows and _frees_at_once(cell_run):
        count = 1 + _growth_barriers(_usual_ns(cell_run), plan.window_ns)
        launch.grown = _barriers(measurement, launch, count, collects=True)[1:]
    measurement.sample_conditions()


def _cost_is_due(cell_run: CellRun) -> bool:
    """Whether a launch shows what sampling costs: the first one does."""
    costs = [launch.sampling_cost for launch in cell_run.of("memory")]
    if not costs or len(costs) >= BARE_HOLDS:
        return not costs
    return all(cost and cost.watched_ns[0] > DEAR * cost.bare_ns[0] for cost in costs)


def _finish(launch: RunningLaunch) -> None:
    record = launch.finish("memory", **launch.sampled)
    launches = launch.cell_run.all_launches
    launches.append(record)
    if launch.grown:
        nothing = {"memory": (), "dropped": 0, "waits": None, "sampling_cost": None}
        launches.append(msgspec.structs.replace(record, role="growth", barriers=launch.grown, **nothing))


def _barrier_count(measurement: Measurement, cell_run: CellRun) -> int:
    """One in a paired comparison, where it only shows the memory of each process group; none where that is long."""
    if cell_run.paired:
        return int(cell_run.longest_ns < LONG_NS)
    return measurement.most(BARRIERS, cell_run.longest_ns, 0.15)


def _hold_ns(cell_run: CellRun, window_ns: int) -> int:
    """How long its workers are held at least: all that happens in a window can be sampled."""
    return max(round((PAIRED_HOLD_S if cell_run.paired else HOLD_S) * 1e9), window_ns)


def _is_settled(cell_run: CellRun) -> bool:
    """Whether memory did not vary while it was held, and no thread waited: shares of waits need looks. Pairs do not."""
    launches = [] if cell_run.paired else cell_run.of("memory")
    known = [[point.steadiest_bytes for point in each.memory if point.steadiest_bytes] for each in launches]
    sizes = next((each for each in reversed(known) if len(each) >= LEAST_SAMPLES), [])
    waits = (each.waits for each in launches if each.waits)
    waited = any(each.gil_s or each.futex_s or each.process_s for each in waits)
    return bool(sizes) and max(sizes) <= (1 + STEADY) * min(sizes) and not waited


# ---- launches that have barriers alone


def _shared(measurement: Measurement, cell_run: CellRun, role: Role) -> Launch:
    """A launch of an empty workload: one for all cells that differ in nothing else.

    Where memory is freed at once, one launch has both roles.
    """
    empty, cell = measurement.empty, cell_run.cell
    key: EmptyKey = (
        *(cell_run.target.python, cell.target.spec, cell.executor.label, cell.workers, cell_run.spec.reuse),
        cell.environment.variables,
    )
    if (key, role) not in empty:
        if _frees_at_once(cell_run):
            launch = _barrier_launch(measurement, cell_run, "empty", BARRIERS[0], GROWTH_WARMUPS + GROWTH_AT_MOST)
            steady, grown = launch.barriers[: BARRIERS[0]], launch.barriers[BARRIERS[0] + GROWTH_WARMUPS :]
            empty[key, "empty"] = msgspec.structs.replace(launch, barriers=steady)
            empty[key, "growth_empty"] = msgspec.structs.replace(launch, role="growth_empty", barriers=grown)
        elif role == "growth_empty":
            empty[key, role] = _growth_launch(measurement, cell_run, role)
        else:
            empty[key, role] = _barrier_launch(measurement, cell_run, role, BARRIERS[0])
    return empty[key, role]


def _growth_launch(measurement: Measurement, cell_run: CellRun, role: Role) -> Launch:
    """More barriers after some warm-ups; the allocator keeps nothing of what is freed."""
    count = GROWTH_WARMUPS + _growth_barriers(_usual_ns(cell_run), measurement.plan.window_ns)
    launch = _barrier_launch(measurement, cell_run, role, 0, count, settled=True)
    return msgspec.structs.replace(launch, barriers=launch.barriers[GROWTH_WARMUPS:])


def _barrier_launch(
    measurement: Measurement, cell_run: CellRun, role: Role, steady: int, growing: int = 0, *, settled: bool = False
) -> Launch:
    with measurement.ready(cell_run, "own" if role == "growth" else "empty", settled=settled) as launch:
        barriers = _barriers(measurement, launch, steady)
        barriers += _barriers(measurement, launch, growing, collects=True)
        measurement.sample_conditions()
        return launch.finish(role, barriers=barriers)


def _barriers(
    measurement: Measurement, launch: RunningLaunch, count: int, *, collects: bool = False
) -> tuple[Barrier, ...]:
    window_ns = min(measurement.plan.window_ns, BARRIER_WINDOW_NS)
    loops = 1 if window_ns else measurement.plan.loops or 1
    in_time = measurement.in_time(range(count), window_ns or launch.next_ns)
    return tuple(launch.barrier(loops, window_ns, collects=collects) for _ in in_time)


def _growth_is_due(measurement: Measurement, cell_run: CellRun) -> bool:
    if "growth" in cell_run.needs and cell_run.affords_growth is None:
        cell_run.affords_growth = _affords_growth(measurement, cell_run)
    return "growth" in cell_run.needs and bool(cell_run.affords_growth)


def _affords_growth(measurement: Measurement, cell_run: CellRun) -> bool:
    cost_ns = 0.0
    for side in cell_run.sides:
        count = GROWTH_WARMUPS + _growth_barriers(_usual_ns(side), measurement.plan.window_ns)
        cost_ns += count * _usual_ns(side)
    plan = measurement.plan
    cost_ns *= min(GROWTHS, plan.rounds_wanted) * sum(each.alive for each in measurement.cell_runs)
    most_ns = GROWTH_SHARE * plan.limits.budget_s * 1e9
    return can_grow(cell_run.cell, cell_run.spec) and cost_ns <= most_ns


def _usual_ns(cell_run: CellRun) -> float:
    """The median iteration of its latest launch: one that was disturbed does not leave out its growth."""
    return statistics.median([each.wall_ns for each in cell_run.latest] or [0])


def _growth_barriers(wall_ns: float, window_ns: int) -> int:
    one_ns = max(BARRIER_WINDOW_NS if window_ns else wall_ns, 1.0)
    return max(GROWTH_AT_LEAST, min(GROWTH_AT_MOST, int(GROWTH_S * 1e9 / one_ns)))
