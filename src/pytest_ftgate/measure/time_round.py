"""Time and lock launches of one round, interleaved: started together, iterations in random order, one at a time."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from ..model.sample import Role, iteration_value
from ..model.spec import WINDOW_S
from ..runner.protocol import CHECK, CHECKED_COLD, COLD, MEASURED, WARMUP
from . import plan as budget
from .context import LONG_NS, ROLES, CellRun, Family, Needed, RunContext, RunningLaunch, total
from .launch import LaunchRole
from .memory_round import MemoryRound

LOCK_ITERATIONS = 5, 2, 1
"""Iterations of the launch with the lock probe, the first of a round: as many of them as take a part of it."""
START_SHARE = 0.9
"""Of an iteration, what start and join of fresh workers may take before the test is told that they hide its body."""
RECORDED: dict[LaunchRole, Role] = {"own": "time", "control": "control", "locks": "locks"}
"""What is recorded of a role that is interleaved."""
BARE_LOCKS = 6
"""Launches with the lock probe that have a bare one beside them even where the time is decided."""


def measure_round(context: RunContext) -> None:
    """One round of all cells: together, or in batches where so many launches cannot be alive at once.

    A cell is always measured together with its reference and its control workload.
    """
    plan = context.iterations
    calibrates, earlier_ns, done = plan.loops is None, 0.0, 0
    batches = _batches(context)
    count = sum(map(len, batches))
    for batch in batches:
        done += len(batch)
        loops = plan.loops
        if calibrates:
            plan.loops = None  # the shortest cell decides, and it may be in this batch
        part = TimeRound(context, batch, earlier_ns, done / count, is_first=batch is batches[0])
        part.measure()
        earlier_ns += part.iteration_ns
        if calibrates and loops is not None:
            plan.loops = max(loops, plan.loops or 1)


def _batches(context: RunContext) -> list[list[CellRun]]:
    """In random order where they are split, the worker counts of one executor together if they can be."""
    capacity, cell_runs = context.capacity, context.cell_runs

    def needs(cell_run: CellRun) -> Needed:
        return total(capacity.needed(side, roles(cell_run, side)) for side in cell_run.with_reference)

    lacking = capacity.lacking(total(map(needs, cell_runs)))
    if not lacking:
        return [list(cell_runs)]
    batches = capacity.batches(_by_family(context, cell_runs), needs)
    context.say_split(len(batches), lacking)
    return batches


class TimeRound:
    """One round of some cells: each with its reference, its control workload and the lock probe, as it needs them."""

    def __init__(
        self, context: RunContext, cell_runs: Sequence[CellRun], earlier_ns: float, share: float, *, is_first: bool
    ) -> None:
        """`share` is that of the round's cells with these and those of earlier batches, whose iterations take
        `earlier_ns` in all; `is_first` if there was none."""
        self.context = context
        self.cell_runs = cell_runs
        self.earlier_ns = earlier_ns
        self.share = share
        self.is_first = is_first
        self.iterations = context.iterations
        self.number = context.budget.rounds
        self.resolution_ns = 0.0
        self.iteration_ns = 0.0
        """What an iteration of each launch takes."""

    def measure(self) -> None:
        """Start all launches, warm them up, interleave their iterations, let them end.

        If the time is over before that, only cells count whose launches have all had the least iterations.
        """
        with contextlib.suppress(budget.TimeIsUp), self._started() as launches:
            counted = launches
            try:
                self._iterate(launches)
            except budget.TimeIsUp:
                counted = self._cut(launches)
            self.context.sample_conditions()
            self._each(counted, "ending", lambda launch: launch.handle.close(), late=True)
            self._each(counted, "ending", self._finish, late=True)

    def _iterate(self, launches: Sequence[RunningLaunch]) -> None:
        self._each(launches, "starting", self._ready)
        self._first(launches)
        self._warm_up(launches)
        self._interleave(launches)
        self._each(self._checked_last(launches), "checking results of", self._check)

    def _cut(self, launches: Sequence[RunningLaunch]) -> list[RunningLaunch]:
        """The launches that count although the time was over: of a cell all or none, with as many iterations each."""
        counted: list[RunningLaunch] = []
        for cell_run in self.cell_runs:
            own = [
                each
                for each in launches
                if each.cell_run in cell_run.with_reference and each.cell_run.usable(each.role)
            ]
            shared = min((len(launch.values) for launch in _bare(own)), default=0)
            if shared >= self.iterations.least and all(each.values for each in own):
                counted += own
                for launch in _bare(own):
                    launch.counted = shared
        return counted

    @contextlib.contextmanager
    def _started(self) -> Iterator[list[RunningLaunch]]:
        """All launches of the round; none is left when the round ends, however it ends."""
        for cell_run in self.cell_runs:
            cell_run.without_locks()
        wanted = [
            (side, role)
            for cell_run in self.cell_runs
            for side in cell_run.with_reference
            for role in roles(cell_run, side)
        ]
        order = [*ROLES]
        launches: list[RunningLaunch] = []
        with contextlib.ExitStack() as stack:
            # The workload first: if it fails by itself, its control workload or the lock probe must not be named.
            for cell_run, role in sorted(self._balanced(wanted), key=lambda each: order.index(each[1])):
                if cell_run.alive:
                    with cell_run.attribute_errors(role):
                        launch = self.context.start(cell_run, role)
                        stack.callback(launch.kill)
                        launches.append(launch)
            yield launches

    def _balanced(self, wanted: Sequence[tuple[CellRun, LaunchRole]]) -> list[tuple[CellRun, LaunchRole]]:
        """Random order, in which each side of a pair starts first in one of two rounds.

        Being started second costs short forks some percent, which two rounds then cancel.
        """
        order = self.context.shuffled(wanted)
        for cell_run in self.cell_runs:
            sides = [
                place for place, (side, role) in enumerate(order) if side in cell_run.with_reference and role == "own"
            ]
            if len(sides) == 2:
                first, second = sides
                if self.number % 2 and order[first][0] is cell_run.started_first:
                    order[first], order[second] = order[second], order[first]
                cell_run.started_first = order[first][0]
        return order

    def _each(
        self,
        launches: Sequence[RunningLaunch],
        phase: str,
        act: Callable[[RunningLaunch], object],
        *,
        late: bool = False,
    ) -> None:
        """One launch after the other; one that fails ends its own cell, or its figures of locks, alone.

        Raises TimeIsUp unless `late`.
        """
        for launch in launches if late else self.context.in_time(launches):
            if launch.cell_run.usable(launch.role):
                self.context.report(launch.cell_run, phase)
                timing = contextlib.nullcontext() if launch.role != "locks" else self.context.budget.extra()
                with timing, launch.cell_run.attribute_errors(launch.role):
                    act(launch)
                if not launch.cell_run.usable(launch.role):
                    launch.kill()  # else its threads may run beside the cell's other launches

    def _ready(self, launch: RunningLaunch) -> None:
        self.resolution_ns = max(self.resolution_ns, launch.handle.ready())

    def _unmeasured(self, launch: RunningLaunch, kind: str, loops: int) -> None:
        iteration = launch.handle.iteration(kind, loops, self._window_ns(launch))
        launch.latest_wall_ns, launch.latest_work_ns = iteration.wall_ns, iteration.work_ns
        if kind == COLD and iteration.wall_ns:
            launch.first_share = 1 - iteration.work_ns / iteration.wall_ns

    def _first(self, launches: Sequence[RunningLaunch]) -> None:
        """The cold iterations. Nobody reads that of the lock probe: where it is long, there is none."""
        self._each(_bare(launches), "warming up", self._cold)
        own = [launch for launch in launches if launch.role == "own" and launch.cell_run.alive]
        self.iterations.long = bool(own) and all(map(_is_long, own)) and (self.is_first or self.iterations.long)
        long = {launch.cell_run for launch in launches if _is_long(launch)}
        probed = [launch for launch in launches if launch.role == "locks" and launch.cell_run not in long]
        self._each(probed, "warming up", self._cold)

    def _cold(self, launch: RunningLaunch) -> None:
        """If it is known to be long, it compares results too: nothing warms it up."""
        checked = _is_long(launch) and self._warmups(launch) == 0 and self._has_results(launch)
        self._unmeasured(launch, CHECKED_COLD if checked else COLD, 1)
        launch.checked = checked

    # -- results -----------------------------------------------------------------------------------------------

    def _check(self, launch: RunningLaunch) -> None:
        """An iteration that compares results. Its join has their transfer in it, which loops must not count."""
        iteration = launch.handle.iteration(CHECK, 1, 0)
        launch.latest_wall_ns, launch.latest_work_ns = iteration.wall_ns - iteration.join_ns, iteration.work_ns
        launch.checked = True

    def _warms_by_check(self, launch: RunningLaunch) -> bool:
        """Whether its first warm-up compares results too: one call is too short where an iteration has more."""
        return self._has_results(launch) and self.iterations.warmups > 0 and self.iterations.loops in (None, 1)

    def _checked_last(self, launches: Sequence[RunningLaunch]) -> list[RunningLaunch]:
        """Those whose results no warm-up has compared; in the first round all, unless that takes long.

        So what changes within a launch is found in the first round, and what changes between launches in all.
        """
        first = self.number == 0
        return [
            launch
            for launch in launches
            if self._has_results(launch)
            and (not launch.checked or (first and self.context.spares(launch.latest_wall_ns or 0, 0.1)))
        ]

    def _has_results(self, launch: RunningLaunch) -> bool:
        """Whether its results are compared: a window may have another number of calls each time."""
        return launch.role == "own" and launch.cell_run.probed and not self.iterations.window_ns

    # -- warm-up -----------------------------------------------------------------------------------------------

    def _warm_up(self, launches: Sequence[RunningLaunch]) -> None:
        for number in range(max(1, self.iterations.warmups)):
            warming = [launch for launch in launches if number < self._warmups(launch)]
            self._each(warming, "warming up", self._check_or_warm if not number else self._warm)
        if self.iterations.loops is None and not self.iterations.window_ns:
            self.iterations.loops = self._calibrated(launches)
        if self.is_first and not self.number:
            self._warn_of_short(launches)

    def _check_or_warm(self, launch: RunningLaunch) -> None:
        (self._check if self._warms_by_check(launch) else self._warm)(launch)

    def _warm(self, launch: RunningLaunch) -> None:
        self._unmeasured(launch, WARMUP, self._loops(launch))

    def _warmups(self, launch: RunningLaunch) -> int:
        """The control workload needs one, whatever the test asks for; the lock probe counts operations in its own.

        If a body is known to be long, nothing warms it up after the first round unless the test asks for it.
        """
        if launch.role == "control":
            return 1
        if self.number and _is_long(launch) and launch.cell_run.spec.warmup is None:
            return 0
        return max(launch.role == "locks", self.iterations.warmups)

    def _calibrated(self, launches: Sequence[RunningLaunch]) -> int | None:
        """Loops from each cell's last iteration so far: a warm-up, or the cold one where no warm-up was asked for.

        Workers that are kept are not started: there the body itself is to be long enough, without dispatch and join.
        """
        own = [launch for launch in launches if launch.cell_run.alive and launch.role == "own"]
        pooled = self.iterations.spec.reuse == "pool"
        latest = (launch.latest_work_ns if pooled else launch.latest_wall_ns for launch in own)
        known = [each for each in latest if each is not None]
        return budget.calibrated_loops(known, self.resolution_ns) if known else None

    def _warn_of_short(self, launches: Sequence[RunningLaunch]) -> None:
        """Say which cell shows little but the start of its workers: by the cold iteration, which transfers nothing."""
        fresh = self.iterations.spec.reuse == "fresh" and not self.iterations.window_ns
        own = [each for each in launches if fresh and each.role == "own" and not each.cell_run.is_reference]
        short = [each for each in own if each.cell_run.alive and each.first_share >= START_SHARE]
        if short:
            worst = max(short, key=lambda each: each.first_share)
            took = f"start and join took {100 * worst.first_share:.0f} % of its first iteration"
            fix = 'its time says little of its body: leave out reuse="fresh"'
            self.context.listener.warn(f"{worst.cell_run.cell.nodeid}: {took}, so {fix}")

    def _loops(self, launch: RunningLaunch) -> int:
        """The control workload is long enough for the clock by itself."""
        return 1 if launch.role == "control" else self.iterations.loops or 1

    def _window_ns(self, launch: RunningLaunch) -> int:
        """The control workload is as steady in a short window, where the test asks for a long one."""
        window_ns = self.iterations.window_ns
        return min(window_ns, round(WINDOW_S * 1e9)) if launch.role == "control" else window_ns

    # -- measured iterations -----------------------------------------------------------------------------------

    def _interleave(self, launches: Sequence[RunningLaunch]) -> None:
        run_budget, plan = self.context.budget, self.iterations
        began_s, extra_ns = run_budget.clock(), run_budget.extra_ns
        probed_iterations = self._probed_iterations(launches)
        timed = bool(_bare(launches))
        # The pilot iterations of the first batch may be more than were planned by them.
        least = 0 if self.number or self.is_first else plan.taken
        plan.taken = 0
        while plan.taken < (max(plan.planned, least) if timed else probed_iterations):
            self._each(self._order(launches, probed=plan.taken < probed_iterations), "measuring", self._measured)
            plan.taken += 1
            if not timed:
                continue
            spent_ns = (run_budget.clock() - began_s) * 1e9 - (run_budget.extra_ns - extra_ns)
            self.iteration_ns = spent_ns / plan.taken
            run_budget.iteration_ns = self.earlier_ns + self.iteration_ns
            if plan.count is None and plan.taken >= plan.pilot(run_budget.iteration_ns / self.share):
                self._plan_iterations(launches)

    def _probed_iterations(self, launches: Sequence[RunningLaunch]) -> int:
        """Fewer with the lock probe if iterations are long: they have more waits in them, too."""
        longest = max((launch.latest_wall_ns or 0 for launch in launches if launch.role == "locks"), default=0)
        return self.context.most(LOCK_ITERATIONS, longest, 0.25)

    def _order(self, launches: Sequence[RunningLaunch], probed: bool) -> list[RunningLaunch]:
        """Random order of cells, each next to what it is paired with, which of the two comes first being random too.

        Neighbours in time see the same machine: its speed changes within milliseconds. So the worker counts of one
        executor are neighbours, and the launch with the lock probe comes right before or after its bare one.
        """
        cell_runs = _by_family(self.context, self.cell_runs)
        return [launch for cell_run in cell_runs for launch in self._order_within(cell_run, launches, probed)]

    def _order_within(self, cell_run: CellRun, launches: Sequence[RunningLaunch], probed: bool) -> list[RunningLaunch]:
        own = [launch for launch in launches if launch.cell_run in cell_run.with_reference]
        pair = self.context.shuffled(_bare(own))
        probe = self.context.shuffled([launch for launch in own if launch.role == "locks"]) if probed else []
        return probe + pair if self.context.rng.random() < 0.5 else pair + probe

    def _measured(self, launch: RunningLaunch) -> None:
        loops = self._loops(launch)
        iteration = launch.handle.iteration(MEASURED, loops, self._window_ns(launch))
        launch.values.append(iteration_value(iteration, loops, per_op=bool(self.iterations.window_ns)))

    def _plan_iterations(self, launches: Sequence[RunningLaunch]) -> None:
        """The first plan, after the pilot iterations; each round has its own."""
        run_budget = self.context.budget
        iteration_ns = run_budget.iteration_ns
        launch_ns = run_budget.round_so_far_s * 1e9 - run_budget.extra_ns - iteration_ns * self.iterations.taken
        # Still to come are the memory launches, which have to be started too.
        held = {side for each in self.context.needing("memory") for side in each.with_reference}
        own = (launch for launch in launches if launch.role == "own" and launch.values and launch.cell_run in held)
        extra_ns = run_budget.extra_ns + sum(map(self._memory_ns, own)) + (launch_ns / 3 if held else 0.0)
        # Of all batches, as if the others were like those so far.
        parts = (part_ns / self.share for part_ns in (launch_ns, iteration_ns, extra_ns))
        costs = budget.Costs(**dict(zip(("launch_ns", "iteration_ns", "extra_ns"), parts, strict=True)))
        ratios = [[_pilot_ratios(launches, cell_run)] for cell_run in self.context.needing("time")]
        run_budget.plan_iterations(self.iterations, ratios, costs)

    def _memory_ns(self, launch: RunningLaunch) -> float:
        wall_ns = self.iterations.window_ns or statistics.median(launch.values) * self._loops(launch)
        return MemoryRound(self.context).cost_ns(launch.cell_run, wall_ns)

    def _finish(self, launch: RunningLaunch) -> None:
        record = launch.finish(
            RECORDED[launch.role], self.number, loops=self._loops(launch), window_ns=self.iterations.window_ns
        )
        launch.cell_run.all_launches.append(record)


def _by_family(context: RunContext, cell_runs: Sequence[CellRun]) -> list[CellRun]:
    """In random order, the worker counts of one executor together."""
    families: dict[Family, list[CellRun]] = {}
    for cell_run in cell_runs:
        families.setdefault(cell_run.family, []).append(cell_run)
    return [each for family in context.shuffled(list(families.values())) for each in context.shuffled(family)]


def ratios_of(own: Sequence[float], other: Sequence[float]) -> list[float]:
    """The ratios of paired iterations; a pair in which either has no value (NaN: no operation ended) is left out."""
    ratios = (value / paired for value, paired in zip(own, other, strict=False))
    return [ratio for ratio in ratios if math.isfinite(ratio)]


def _is_long(launch: RunningLaunch) -> bool:
    """Whether its cell's iterations are long, as far as this launch or an earlier one has shown."""
    return max(launch.latest_wall_ns or 0, launch.cell_run.longest_ns) >= LONG_NS


def _bare(launches: Sequence[RunningLaunch]) -> list[RunningLaunch]:
    return [launch for launch in launches if launch.role != "locks"]


def roles(cell_run: CellRun, side: CellRun) -> list[LaunchRole]:
    """The launches of a cell or its reference (`side`); its control workload stands beside the cell alone.

    The first launches with the lock probe are paired with a bare one, which shows the overhead of the probe.
    """
    if not (cell_run.alive and side.alive):
        return []
    bare = "time" in cell_run.needs or ("locks" in cell_run.needs and len(cell_run.of("locks")) < BARE_LOCKS)
    timed: list[LaunchRole] = ["own"] if bare else []
    if timed and "control" in cell_run.needs and side is cell_run:
        timed.append("control")
    return timed + (["locks"] if "locks" in cell_run.needs else [])


def _pilot_ratios(launches: Sequence[RunningLaunch], cell_run: CellRun) -> list[float]:
    """A cell's iterations of this round over those of its reference or its control workload."""
    own = {launch.role: launch.values for launch in launches if launch.cell_run is cell_run}
    paired = [launch.values for launch in launches if launch.cell_run is cell_run.reference and launch.role == "own"]
    return ratios_of(own.get("own", []), next(iter(paired), own.get("control", [])))
