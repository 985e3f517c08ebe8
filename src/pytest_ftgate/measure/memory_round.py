"""Memory launches: held at work while memory and threads are sampled, stopped at barriers, empty, and for growth."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping

import msgspec

from ..model import Barrier, Launch, SamplingCost, iteration_value
from ..runner.protocol import WARMUP
from .budget import LEAST_LAUNCHES, TimeIsUp
from .cell_run import CellRun
from .launch import Handle, Held, LaunchRole
from .run_context import LONG_NS, RunContext, RunningLaunch

HOLD_S, PAIRED_HOLD_S = 0.25, 0.1
"""How long workers are held at least; in a paired comparison long enough for what is judged."""
BARRIERS = 3, 2, 1
"""Samples at barriers in a memory launch: as many of them as take a part of a round; the first is its warm-up."""
GROWTH_WARMUPS, GROWTH_AT_LEAST, GROWTH_AT_MOST = 4, 4, 8
GROWTH_S = 0.5
"""Samples at barriers in a growth launch: as many as fit this time, between these numbers."""
BARRIER_WINDOW_NS = 50_000_000
BARE_HOLDS, GROWTHS = 5, 5
"""Memory launches of a cell that are also held unsampled, and launches that show growth."""


class MemoryRound:
    """The memory launches of one round, one cell at a time."""

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.iterations = context.iterations
        self.number = context.budget.rounds

    def measure(self) -> None:
        """One memory launch of each cell that needs one, and of its reference; some launches that only inform.

        None is started while a second round of time launches would not fit beside them. If the time is over before a
        cell and its reference were held, neither counts.
        """
        budget, needing = self.context.budget, self.context.needing("memory")
        cost_ns = sum(self.cost_ns(side, side.longest_ns) for each in needing for side in each.with_reference)
        early = budget.rounds + 1 < min(LEAST_LAUNCHES, budget.rounds_wanted)
        if early and budget.left_s < budget.round_so_far_s + cost_ns / 1e9:
            timing_ns = budget.round_so_far_s * 1e9 - budget.iteration_ns * self.iterations.taken
            budget.omitted_ns = cost_ns + timing_ns / 3  # they have to be started too
            return
        with contextlib.suppress(TimeIsUp):
            for cell_run in self.context.shuffled(needing):
                self._measure_sides(cell_run)

    def _measure_sides(self, cell_run: CellRun) -> None:
        self.context.report(cell_run, "measuring memory of")
        with self._started(cell_run) as launches:
            for act in (self._ready, self._hold, self._close, self._finish):
                for launch in launches:
                    if cell_run.alive and launch.cell_run.alive:
                        with launch.cell_run.attribute_errors():
                            act(launch)
        if cell_run.alive and cell_run.informs and cell_run.probed:
            with cell_run.attribute_errors():
                self._inform(cell_run)

    @contextlib.contextmanager
    def _started(self, cell_run: CellRun) -> Iterator[list[RunningLaunch]]:
        """The memory launches of a cell and its reference; none is left at the end."""
        launches = []
        with contextlib.ExitStack() as stack:
            for side in self.context.shuffled(cell_run.with_reference):
                if cell_run.alive and side.alive:
                    with side.attribute_errors():
                        launch = self.context.start(side, "own")
                        stack.callback(launch.kill)
                        launches.append(launch)
            yield launches

    def cost_ns(self, cell_run: CellRun, wall_ns: float) -> float:
        """What the memory launches of a cell will take once they are started, with iterations of `wall_ns`."""
        held_ns = (2 if cell_run.informs else 1) * max(self._hold_ns(cell_run), wall_ns)
        if not cell_run.probed:
            return held_ns
        barrier_ns = min(self.iterations.window_ns, BARRIER_WINDOW_NS) or wall_ns
        count = self._barrier_count(cell_run)
        if cell_run.informs:
            count += GROWTH_WARMUPS + (self._growth_barriers(wall_ns) if self._affords_growth(cell_run) else 0)
        return count * barrier_ns + held_ns

    # -- what only informs -------------------------------------------------------------------------------------

    def _inform(self, cell_run: CellRun) -> None:
        """Growth, where the memory launch has not shown it, and the interpreter's own memory."""
        if not cell_run.frees_at_once and self._growth_is_due(cell_run):
            cell_run.growth.append(self._growth_launch(cell_run, "own"))
        with cell_run.attribute_errors("empty"):
            if not cell_run.floor and self.context.spares(BARRIERS[0] * cell_run.longest_ns, 0.15):
                cell_run.floor.append(self._shared(cell_run, settled=False))
            if cell_run.growth and not cell_run.growth_floor:
                cell_run.growth_floor.append(self._shared(cell_run, settled=True))

    def _growth_is_due(self, cell_run: CellRun) -> bool:
        return cell_run.informs and self.number < GROWTHS and self._affords_growth(cell_run)

    def _shared(self, cell_run: CellRun, *, settled: bool) -> Launch:
        """A launch of an empty workload, for growth (`settled`) or not: one for all cells that differ in nothing else.

        Where memory is freed at once, one launch shows both.
        """
        floors, key = self.context.floors, cell_run.floor_key
        if (key, settled) not in floors:
            if cell_run.frees_at_once:
                launch = self._barrier_launch(cell_run, "empty", BARRIERS[0] + GROWTH_WARMUPS + GROWTH_AT_MOST)
                steady, grown = launch.barriers[: BARRIERS[0]], launch.barriers[BARRIERS[0] + GROWTH_WARMUPS :]
                floors[key, False] = msgspec.structs.replace(launch, barriers=steady)
                floors[key, True] = msgspec.structs.replace(launch, barriers=grown)
            elif settled:
                floors[key, True] = self._growth_launch(cell_run, "empty")
            else:
                floors[key, False] = self._barrier_launch(cell_run, "empty", BARRIERS[0])
        return floors[key, settled]

    # -- held launches -----------------------------------------------------------------------------------------

    def _ready(self, launch: RunningLaunch) -> None:
        launch.handle.ready()

    def _hold(self, launch: RunningLaunch) -> None:
        """Barriers first, which also warm it up; then it is held at work, sampled and not, in random order."""
        cell_run, handle = launch.cell_run, launch.handle
        wall_ns, hold_ns = cell_run.longest_ns, self._hold_ns(cell_run)
        barriers = self._warm_up(cell_run, handle)
        both = cell_run.informs and self.number < BARE_HOLDS and self.context.spares(hold_ns + wall_ns, 0.1)
        ways = self.context.shuffled([True, False]) if both else [True]
        call_ns = 0.0 if self.iterations.window_ns else cell_run.call_ns
        held = {sampled: handle.measure_held(hold_ns, sampled, call_ns) for sampled in self.context.in_time(ways)}
        launch.sampled = {
            "memory": held[True].memory,
            "dropped": held[True].dropped,
            "waits": held[True].waits,
            "barriers": barriers,
            "sampling_cost": _sampling_cost(held),
        }
        if cell_run.frees_at_once and self._growth_is_due(cell_run):
            launch.grown = self._barriers(handle, 1 + self._growth_barriers(wall_ns))[1:]  # the first settles it
        self.context.sample_conditions()

    def _close(self, launch: RunningLaunch) -> None:
        launch.handle.close()

    def _finish(self, launch: RunningLaunch) -> None:
        record = launch.finish(self.number, **launch.sampled)
        launch.cell_run.memory.append(record)
        if launch.grown:
            nothing = {"memory": (), "dropped": 0, "waits": None, "sampling_cost": None}
            launch.cell_run.growth.append(msgspec.structs.replace(record, barriers=launch.grown, **nothing))

    def _warm_up(self, cell_run: CellRun, handle: Handle) -> tuple[Barrier, ...]:
        """A server is warmed up as for its iterations; a command needs nothing, as each iteration is a new process."""
        if cell_run.probed:
            return self._barriers(handle, self._barrier_count(cell_run))
        if cell_run.cell.executor.kind == "server":
            for _ in self.context.in_time(range(self.iterations.warmups)):
                handle.iteration(WARMUP, 1, self.iterations.window_ns)
        return ()

    def _barrier_count(self, cell_run: CellRun) -> int:
        """One in a paired comparison, where it only shows the memory of each process group; none where that is long."""
        if cell_run.paired:
            return int(cell_run.longest_ns < LONG_NS)
        return self.context.most(BARRIERS, cell_run.longest_ns, 0.15)

    def _growth_launch(self, cell_run: CellRun, role: LaunchRole) -> Launch:
        """More barriers after some warm-ups; the allocator keeps nothing of what is freed."""
        count = GROWTH_WARMUPS + self._growth_barriers(cell_run.longest_ns)
        launch = self._barrier_launch(cell_run, role, count, settled=True)
        return msgspec.structs.replace(launch, barriers=launch.barriers[GROWTH_WARMUPS:])

    def _barrier_launch(self, cell_run: CellRun, role: LaunchRole, count: int, *, settled: bool = False) -> Launch:
        with self.context.ready(cell_run, role, settled=settled) as launch:
            barriers = self._barriers(launch.handle, count)
            self.context.sample_conditions()
            return launch.finish(self.number, barriers=barriers)

    def _barriers(self, handle: Handle, count: int) -> tuple[Barrier, ...]:
        window_ns = min(self.iterations.window_ns, BARRIER_WINDOW_NS)
        loops = 1 if window_ns else self.iterations.loops or 1
        return tuple(handle.barrier(loops, window_ns) for _ in self.context.in_time(range(count)))

    def _affords_growth(self, cell_run: CellRun) -> bool:
        wall_ns = cell_run.longest_ns
        cost_ns = (GROWTH_WARMUPS + self._growth_barriers(wall_ns)) * wall_ns
        return cell_run.can_grow and self.context.spares(cost_ns, 0.2)

    def _growth_barriers(self, wall_ns: float) -> int:
        one_ns = max(BARRIER_WINDOW_NS if self.iterations.window_ns else wall_ns, 1.0)
        return max(GROWTH_AT_LEAST, min(GROWTH_AT_MOST, int(GROWTH_S * 1e9 / one_ns)))

    def _hold_ns(self, cell_run: CellRun) -> int:
        """How long its workers are held at least: all that happens in a window can be sampled."""
        hold_s = PAIRED_HOLD_S if cell_run.paired else HOLD_S
        return max(round(hold_s * 1e9), self.iterations.window_ns)


def _sampling_cost(held: Mapping[bool, Held]) -> SamplingCost | None:
    """The time of an operation unsampled and sampled; None unless it was held both ways and did something."""
    values = {sampled: iteration_value(each.iteration, 1, per_op=True) for sampled, each in held.items()}
    if len(values) < 2 or not all(map(math.isfinite, values.values())):
        return None
    return SamplingCost(bare_ns=(values[False],), watched_ns=(values[True],))
