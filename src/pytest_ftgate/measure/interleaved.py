"""Measures the cells of one test in tandem: started together, taking turns in random order, never two at once.

Each cell takes turns with its reference, or with a standard candle under the same executor; memory is looked at in
launches of its own. The number of turns follows from the variance seen, blind to any comparison; the number of rounds
too, or from a judge who says what is still undecided. Both keep within a budget.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import msgspec

from ..model import (
    EVERYTHING,
    Barrier,
    Cell,
    Group,
    Iteration,
    Launch,
    Looking,
    Need,
    Sample,
    Spec,
    Struct,
    WorkloadError,
    iteration_value,
)
from ..runner.protocol import CHECK, COLD, MEASURED, WARMUP
from . import budget
from .cell_run import Entry, Limits, PreparedTarget, disagreements
from .launch import CellUnsupported, Handle, Held, Launcher, LaunchFailed, Request
from .launch import LaunchRole as SideName
from .launchers.workload import launch_of

T = TypeVar("T")
WINDOW_S = 0.2
PILOT_ITERATIONS = 5
MOST_SHORT_ITERATIONS = 200
LOCK_ITERATIONS = 5
"""Turns that the launch with the lock probe takes beside the bare one, the first of a round."""
HOLD_ITERATIONS = 1.25
BARRIERS = 3
"""Looks at barriers in a memory launch: the first is its warm-up."""
GROWTH_WARMUPS, GROWTH_AT_LEAST, GROWTH_AT_MOST = 4, 4, 8
GROWTH_S = 0.5
"""Looks at barriers in a launch that is after growth: as many as fit this time, between these numbers."""
BARRIER_WINDOW_NS = 50_000_000
BARE_HOLDS, FLOORS, GROWTHS = 5, 2, 5
"""Memory launches of a cell that also hold bare, launches of an empty workload, and launches that are after growth."""


class Listener(Protocol):
    """Hears how far a tandem is."""

    def advance(self, label: str, phase: str, done: int, wanted: int, left_s: float | None) -> None:
        """One step: the cell at work, what is done to it, launches done and wanted, seconds left."""
        ...


class Reference(Struct, frozen=True, kw_only=True):
    """The other side of a cell: the test as the reference has it, and the target with the reference installed."""

    spec: Spec
    ready: PreparedTarget


class Judge(Protocol):
    """Says after each round which kinds of launches each cell still needs; a cell that is not named needs none."""

    def __call__(self, samples: Sequence[Sample], /) -> Mapping[str, frozenset[Need]]:
        """By node id; `samples` are all cells' so far."""
        ...


class Around(Protocol):
    """Watches the machine meanwhile."""

    def calibrate(self) -> None:
        """Before the first round, between rounds, after the last."""
        ...

    def look(self) -> float:
        """Before launches end."""
        ...


class Side:
    """One launch of a round: a cell or its reference, bare, with the lock probe, or the candle in its place."""

    def __init__(self, entry: Entry, request: Request, handle: Handle) -> None:
        self.entry = entry
        self.request = request
        self.handle = handle
        self.walls: list[float] = []
        self.latest: Iteration | None = None
        self.started_at = _now()

    @property
    def name(self) -> SideName:
        """Which side of its cell it is."""
        return self.request.side


class InterleavedRun:
    """One tandem being measured; `measure` is the program."""

    def __init__(
        self,
        group: Group,
        targets: Mapping[str, PreparedTarget],
        launcher: Launcher,
        limits: Limits,
        rng: random.Random,
        listener: Listener,
        clock: Callable[[], float] | None = None,
        loops: int | None = None,
        judge: Judge | None = None,
        references: Mapping[str, Reference] | None = None,
        around: Around | None = None,
        first: frozenset[Need] = EVERYTHING,
    ) -> None:
        """`references` maps a node id to the cell's other side; `first` are the kinds of launches of the first round.

        Without a judge the variance alone says how many rounds there are, all of every kind.
        """
        self.spec: Spec = group.spec
        sides = references or {}
        self.entries = [
            Entry(cell, targets[cell.target.spec], group.spec, _reference(cell, sides)) for cell in group.cells
        ]
        for entry in self.entries:
            entry.ask(first)
        self.launcher = launcher
        self.limits = limits
        self.rng = rng
        self.listener = listener
        self.clock = clock or time.monotonic
        self.judge = judge
        self.around = around
        self.loops = None if group.spec.duration_s is not None else loops
        self.resolution_ns = 0.0
        self.began, self.working = self.clock(), False
        self.iterations = limits.iterations
        self.wanted = limits.launches or limits.floor
        self.done = 0
        self.iteration_ns = 0.0
        self.round_ns = 0.0
        self.probed_s = 0.0
        self.spent_s = 0.0

    def measure(self) -> list[Sample]:
        """Rounds of tandem launches, each followed by memory launches, until there are enough."""
        while self.step():
            pass
        return self.samples()

    def step(self) -> bool:
        """One round, unless there are enough; whether there may be another. Others may be measured in between."""
        if not self.open:
            return False
        if not self.done:
            self._build()
        self.began, self.working = self.clock(), True
        if self.around is not None and not self.done:
            self.around.calibrate()
        self._time_round()
        self._memory_round()
        if self.around is not None:
            self.around.calibrate()
        self.done += 1
        self.round_ns = (self.clock() - self.began) * 1e9
        self.spent_s += self.round_ns / 1e9
        self.working = False
        if self.judge is not None:
            self._settle(self.judge(self.each()))
        self._plan_rest()
        return self.open

    @property
    def open(self) -> bool:
        """Whether a cell still needs a round, and there is room for one."""
        return self.done < self.wanted and any(entry.alive and entry.needs for entry in self.entries)

    def grant(self, budget_s: float) -> None:
        """So much more time, in place of what is left."""
        self.limits = msgspec.structs.replace(self.limits, budget_s=self._spent_s() + budget_s)
        if self.done:
            self._plan_rest()

    def samples(self) -> list[Sample]:
        """All cells, their results compared."""
        self._compare_results()
        return self.each()

    def each(self) -> list[Sample]:
        """All cells as far as they are."""
        return [entry.sample(self._alone(entry)) for entry in self.entries]

    def _look_around(self) -> None:
        """While processes that nobody will wait for are still there: a forkserver's time is on no account later."""
        if self.around is not None:
            self.around.look()

    def _build(self) -> None:
        """Programs are built before anything is timed, so that it is not taken for what a launch costs."""
        for side in (side for entry in self.entries for side in entry.both):
            program = side.cell.executor.program
            if program is not None and program.build:
                self._tell(side, "building")
                with self._blame(side):
                    handle = self.launcher.start(self._request(side, "own"))
                    try:
                        handle.ready()
                    finally:
                        handle.kill()

    def _settle(self, needs: Mapping[str, frozenset[Need]]) -> None:
        for entry in self.entries:
            entry.ask(needs.get(entry.cell.nodeid, frozenset()))

    def _alone(self, entry: Entry) -> Entry | None:
        """The same cell with one worker; None for that cell itself."""
        alone = (other for other in self.entries if other.family == entry.family and other.cell.workers == 1)
        return next((other for other in alone if other is not entry), None)

    def _at_work(self, need: Need) -> list[Entry]:
        return [entry for entry in self.entries if entry.alive and need in entry.needs]

    # -- rounds ------------------------------------------------------------------------------------------------

    def _time_round(self) -> None:
        with self._sides() as sides:
            self._each(sides, "starting", self._ready)
            self._each(sides, "first iteration", self._cold_iteration)
            self._warm_up(sides)
            self._interleave(sides)
            if not self._window_ns:
                self._each(_bare(sides), "checking results", lambda side: side.handle.iteration(CHECK, 1, 0))
            self._look_around()
            self._each(sides, "ending", self._finish)

    def _interleave(self, sides: list[Side]) -> None:
        began = self.clock()
        self.probed_s = 0.0
        probed_iterations = self._probed_iterations(sides)
        taken = 0
        while taken < (self.iterations or self._pilot_iterations):
            self._each(
                self._iteration_order(sides, probed=taken < probed_iterations), "iterations", self._measured_iteration
            )
            taken += 1
            bare_s = self.clock() - began - self.probed_s
            if taken == self._pilot_iterations and self.iterations is None:
                self.iterations = self._iterations_wanted(sides, bare_s * 1e9 / taken)
        self.iteration_ns = (self.clock() - began - self.probed_s) * 1e9 / max(1, taken)

    def _iteration_order(self, sides: Sequence[Side], probed: bool) -> list[Side]:
        """Random order of cells, each beside its candle, which of the two comes first being random too.

        Neighbours in time see the same machine: its speed changes within milliseconds. So the worker counts of one
        executor stand beside each other, and the launch with the lock probe before or after its bare one.
        """
        families: dict[tuple[str, str], list[Entry]] = {}
        for entry in self.entries:
            families.setdefault(entry.family, []).append(entry)
        entries = [entry for family in self._shuffled(list(families.values())) for entry in self._shuffled(family)]
        return [side for entry in entries for side in self._iterations_of(entry, sides, probed)]

    def _iterations_of(self, entry: Entry, sides: Sequence[Side], probed: bool) -> list[Side]:
        own = [side for side in sides if side.entry in entry.both]
        pair = self._shuffled([side for side in own if side.name != "locks"])
        probe = self._shuffled([side for side in own if side.name == "locks"]) if probed else []
        return probe + pair if self.rng.random() < 0.5 else pair + probe

    def _ready(self, side: Side) -> None:
        self.resolution_ns = max(self.resolution_ns, side.handle.ready())

    def _cold_iteration(self, side: Side) -> None:
        side.latest = side.handle.iteration(COLD, 1, self._window_of(side))

    def _measured_iteration(self, side: Side) -> None:
        loops = self._loops_of(side)
        began = self.clock()
        iteration = side.handle.iteration(MEASURED, loops, self._window_of(side))
        if side.name == "locks":
            self.probed_s += self.clock() - began
        side.walls.append(iteration_value(iteration, loops, per_op=bool(self._window_ns)))

    def _loops_of(self, side: Side) -> int:
        """The candle is long enough for the clock by itself."""
        return 1 if side.name == "control" else self.loops or 1

    def _window_of(self, side: Side) -> int:
        """A candle burns as evenly in a short window, where the test asks for a long one."""
        return min(self._window_ns, round(WINDOW_S * 1e9)) if side.name == "control" else self._window_ns

    def _warm_up(self, sides: list[Side]) -> None:
        for number in range(max(1, self._warmups)):
            warming = [side for side in sides if number < self._warmups_of(side)]
            self._each(warming, "warm-up", self._warm)
        if self.loops is None and not self._window_ns:
            self.loops = self._calibrated(sides)

    def _warmups_of(self, side: Side) -> int:
        """The candle is ours and needs one, whatever the workload asks for; the lock probe counts in its own."""
        return {"control": 1, "locks": max(1, self._warmups)}.get(side.name, self._warmups)

    def _warm(self, side: Side) -> None:
        side.latest = side.handle.iteration(WARMUP, self._loops_of(side), self._window_of(side))

    def _calibrated(self, sides: Sequence[Side]) -> int | None:
        """Loops from each cell's last turn so far: a warm-up, or the cold one where no warm-up was asked for."""
        cells = [side for side in sides if side.entry.alive and side.name == "own"]
        walls = [side.latest.wall_ns for side in cells if side.latest is not None]
        return budget.calibrated_loops(walls, self.resolution_ns) if walls else None

    def _memory_round(self) -> None:
        for entry in self._shuffled(self._at_work("memory")):
            for side in self._shuffled(entry.both):
                self._tell(entry, "memory")
                with self._blame(side):
                    if entry.alive and side.alive:
                        self._look_at_memory(side, informs=side is entry and entry.reference is None)

    def _look_at_memory(self, entry: Entry, informs: bool) -> None:
        """What gates first; `informs` asks for growth and for the interpreter's own floor as well."""
        launch = self._memory_launch(entry, informs)
        if launch.memory:  # a launch at which no look succeeded says nothing of memory
            entry.memory.append(launch)
        if not (informs and entry.parks):
            return
        if self.done < GROWTHS and self._can_grow(entry):
            entry.growth.append(self._growth_launch(entry, "own"))
        with self._blame(entry, "an empty workload in its place "):
            if self.done < FLOORS and self._spares(BARRIERS * self._longest_ns(entry), 0.15):
                entry.floor.append(self._floor_launch(entry))
            if entry.growth and self.done < FLOORS:
                entry.growth_floor.append(self._growth_launch(entry, "empty"))

    def _can_grow(self, entry: Entry) -> bool:
        """Whether what is left behind could stay, and can be looked at in a fair part of the budget.

        A worker process that ends with its iteration takes it along.
        """
        if not entry.parks:
            return False
        if entry.cell.executor.kind == "processes" and self.spec.reuse == "fresh":
            return False
        wall_ns = self._longest_ns(entry)
        return self._spares((GROWTH_WARMUPS + self._growth_barriers(wall_ns)) * wall_ns, 0.2)

    def _spares(self, cost_ns: float, share: float) -> bool:
        """Whether something that informs but does not decide takes at most this share of a round, for all cells."""
        alive = sum(entry.alive for entry in self.entries)
        return cost_ns * alive <= share * self.limits.budget_s * 1e9 / max(1, self.wanted)

    def _probed_iterations(self, sides: Sequence[Side]) -> int:
        """Fewer turns with the lock probe where iterations are long: they have more waits in them, too."""
        walls = [side.latest.wall_ns for side in sides if side.name == "locks" and side.latest is not None]
        return LOCK_ITERATIONS if self._spares(LOCK_ITERATIONS * max(walls, default=0), 0.25) else 2

    def _memory_launch(self, entry: Entry, informs: bool) -> Launch:
        """Looks at barriers first, which also warm it up; then it is held at work, watched and bare in random order.

        A program cannot be parked: a server is warmed up as for its turns, of a command each run is a new process.
        """
        wall_ns = self._longest_ns(entry)
        request = self._request(entry, "own")
        started_at = _now()
        handle = self.launcher.start(request)
        try:
            handle.ready()
            barriers = self._looks_at_rest(entry, handle)
            both = informs and self.done < BARE_HOLDS and self._spares(max(self._hold_ns(entry), wall_ns), 0.1)
            ways = self._shuffled([True, False]) if both else [True]
            held = {watched: handle.hold(self._hold_ns(entry), watched, self._call_ns(entry)) for watched in ways}
            self._look_around()
            finished = handle.finish()
        finally:
            handle.kill()
        seen = held[True]
        return launch_of(
            finished,
            request,
            self.done,
            started_at,
            memory=seen.memory,
            waits=seen.waits,
            barriers=barriers,
            looking=_looking(held),
        )

    def _looks_at_rest(self, entry: Entry, handle: Handle) -> tuple[Barrier, ...]:
        if entry.parks:
            return self._barriers(handle, BARRIERS if self._spares(BARRIERS * self._longest_ns(entry), 0.15) else 2)
        if entry.cell.executor.kind == "server":
            for _ in range(self._warmups):
                handle.iteration(WARMUP, 1, self._window_ns)
        return ()

    def _floor_launch(self, entry: Entry) -> Launch:
        """What the interpreter and the executor take by themselves."""
        return self._barrier_launch(self._request(entry, "empty"), BARRIERS)

    def _growth_launch(self, entry: Entry, side: SideName) -> Launch:
        """More barriers after some warm-ups, while the allocator keeps nothing of what is freed."""
        count = GROWTH_WARMUPS + self._growth_barriers(self._longest_ns(entry))
        launch = self._barrier_launch(self._request(entry, side, settled=True), count)
        return msgspec.structs.replace(launch, barriers=launch.barriers[GROWTH_WARMUPS:])

    def _barrier_launch(self, request: Request, count: int) -> Launch:
        started_at = _now()
        handle = self.launcher.start(request)
        try:
            handle.ready()
            barriers = self._barriers(handle, count)
            self._look_around()
            return launch_of(handle.finish(), request, self.done, started_at, barriers=barriers)
        finally:
            handle.kill()

    def _barriers(self, handle: Handle, count: int) -> tuple[Barrier, ...]:
        window_ns = min(self._window_ns, BARRIER_WINDOW_NS)
        return tuple(handle.barrier(1 if window_ns else self.loops or 1, window_ns) for _ in range(count))

    def _growth_barriers(self, wall_ns: float) -> int:
        one_ns = max(BARRIER_WINDOW_NS if self._window_ns else wall_ns, 1.0)
        return max(GROWTH_AT_LEAST, min(GROWTH_AT_MOST, int(GROWTH_S * 1e9 / one_ns)))

    def _hold_ns(self, entry: Entry) -> int:
        """Long enough that every part of an iteration is there to be seen, or all that comes together in a window."""
        iteration_ns = HOLD_ITERATIONS * self._longest_ns(entry) / max(1, self.loops or 1)
        return int(max(self.limits.hold_s * 1e9, self._window_ns or iteration_ns))

    def _call_ns(self, entry: Entry) -> float:
        """What a call of the body takes in every worker, in ns; 0 where turns are windows."""
        calls = [iteration.work_ns / launch.loops for launch in entry.launches[-1:] for iteration in launch.iterations]
        return 0.0 if self._window_ns else max(1.0, statistics.median(calls or [1e6]))

    @staticmethod
    def _longest_ns(entry: Entry) -> float:
        return max(
            (float(iteration.wall_ns) for launch in entry.launches[-1:] for iteration in launch.iterations), default=0.0
        )

    # -- sides -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _sides(self) -> Iterator[list[Side]]:
        """All sides of a round, started together; none is left when the round ends, however it ends."""
        names: tuple[SideName, ...] = ("own", "control", "locks")
        wanted = [(side, name) for entry in self.entries for side in entry.both for name in self._names(entry, side)]
        sides: list[Side] = []
        with contextlib.ExitStack() as running:
            # The bare ones act first: a workload that fails by itself must not be blamed on what is beside it.
            for entry, name in sorted(self._shuffled(wanted), key=lambda side: names.index(side[1])):
                if entry.alive:
                    with self._blame(entry, BLAMED[name]):
                        request = self._request(entry, name)
                        handle = self.launcher.start(request)
                        running.callback(handle.kill)
                        sides.append(Side(entry, request, handle))
            yield sides

    def _names(self, entry: Entry, side: Entry) -> list[SideName]:
        """The launches that a cell or its reference takes part with: a cell without a reference has a candle beside it.

        What is watched has a bare launch beside it, so that the cost of watching is seen.
        """
        if not (entry.alive and side.alive):
            return []
        timed: list[SideName] = ["own"] if entry.needs & {"time", "locks"} else []
        if timed and entry.reference is None:
            timed.append("control")
        return timed + (["locks"] if "locks" in entry.needs else [])

    def _request(self, entry: Entry, side: SideName, settled: bool = False) -> Request:
        gil_on = entry.cell.target.settings.gil == "on"
        free = entry.ready.interpreter.free_threaded and not gil_on
        return Request(
            cell=entry.cell,
            spec=entry.spec,
            python=entry.ready.python,
            side=side,
            expect_gil=not free,
            environment=entry.ready.environment,
            hash_seed=self.rng.randrange(1, 2**32),
            padding=self.rng.randrange(4096),
            timeout_s=self.spec.timeout_s or self.limits.timeout_s,
            waits_unavailable=entry.ready.waits_unavailable,
            settled=settled,
            reference=entry not in self.entries,
        )

    def _each(self, sides: Sequence[Side], phase: str, act: Callable[[Side], object]) -> None:
        """Let each side act in turn; a failing one costs its cell alone."""
        for side in sides:
            if side.entry.alive:
                self._tell(side.entry, phase)
                with self._blame(side.entry, BLAMED[side.name]):
                    act(side)

    @contextlib.contextmanager
    def _blame(self, entry: Entry, prefix: str = "") -> Iterator[None]:
        try:
            yield
        except CellUnsupported as reason:
            entry.unsupported = str(reason)
        except LaunchFailed as failure:
            entry.error = WorkloadError(reason=prefix + failure.error.reason, detail=failure.error.detail)

    def _finish(self, side: Side) -> None:
        launch = launch_of(
            side.handle.finish(),
            side.request,
            self.done,
            side.started_at,
            loops=self._loops_of(side),
            window_ns=self._window_ns,
        )
        side.entry.of(side.name).append(launch)

    def _tell(self, entry: Entry, phase: str) -> None:
        self.listener.advance(entry.cell.label, phase, self.done, self.wanted, self._left_s())

    def _left_s(self) -> float | None:
        if not self.done:
            return None
        return self._spent_s() / self.done * (self.wanted - self.done)

    def _spent_s(self) -> float:
        return self.spent_s + (self.clock() - self.began if self.working else 0.0)

    def _shuffled(self, things: Sequence[T]) -> list[T]:
        return self.rng.sample(list(things), len(things))

    # -- how much ----------------------------------------------------------------------------------------------

    @property
    def _window_ns(self) -> int:
        if self.spec.duration_s is None:
            return 0
        return max(1, round(min(self.spec.window_s or WINDOW_S, self.spec.duration_s) * 1e9))

    @property
    def _warmups(self) -> int:
        warmup = self.spec.warmup
        if not self._window_ns:
            return 1 if warmup is None else int(warmup)
        return max(1, math.ceil((warmup or 0.0) * 1e9 / self._window_ns))

    @property
    def _most_iterations(self) -> int:
        if self.spec.duration_s is not None:
            return max(1, round(self.spec.duration_s * 1e9) // self._window_ns)
        return self.spec.iterations or self.limits.most_iterations

    def _most_iterations_of(self, launch_ns: float, iteration_ns: float) -> int:
        """Of short turns more beside a reference: starting again costs more than turns that take twice as long as that.

        What may be stored has fewer, since a baseline holds every turn.
        """
        fixed = self.spec.duration_s is not None or self.spec.iterations is not None
        if fixed or not any(entry.reference for entry in self.entries):
            return self._most_iterations
        return max(self._most_iterations, min(MOST_SHORT_ITERATIONS, round(2 * launch_ns / max(1.0, iteration_ns))))

    @property
    def _pilot_iterations(self) -> int:
        return min(PILOT_ITERATIONS, self._most_iterations)

    def _budget_ns(self) -> float:
        return max(0.0, self.limits.budget_s - self._spent_s()) * 1e9

    def _iterations_wanted(self, sides: Sequence[Side], iteration_ns: float) -> int:
        began_ns = (self.clock() - self.began) * 1e9 - iteration_ns * self._pilot_iterations
        # To come: a turn that checks results, and the memory launches, two for three that were begun. What the lock
        # probe's turns took is in `began_ns`.
        launch_ns = began_ns * 5 / 3 + iteration_ns + sum(map(self._memory_ns, _bare(sides)))
        return budget.iterations_wanted(
            [_ratios_by_iteration(sides, entry) for entry in self._at_work("time")],
            budget.Costs(launch_ns=launch_ns, iteration_ns=iteration_ns),
            self.limits.budget_s * 1e9,
            self.wanted,
            at_least=self._pilot_iterations,
            at_most=self._most_iterations_of(launch_ns, iteration_ns),
            tail=min(self.limits.least_iterations, self._most_iterations),
        )

    def _memory_ns(self, side: Side) -> float:
        """What the memory launches of a side's cell will take once they are started; nothing for a candle."""
        if side.name != "own" or not side.walls:
            return 0.0
        wall_ns = self._window_ns or statistics.median(side.walls) * self._loops_of(side)
        held_ns = 2 * max(self.limits.hold_s * 1e9, wall_ns)
        if not side.entry.parks:
            return held_ns
        barrier_ns = min(self._window_ns, BARRIER_WINDOW_NS) or wall_ns
        growth = GROWTH_WARMUPS + self._growth_barriers(wall_ns) if self._can_grow(side.entry) else 0
        return (BARRIERS + 2 * growth) * barrier_ns + held_ns

    def _plan_rest(self) -> None:
        values = [self._ratios(entry) for entry in self.entries if entry.alive]
        if self.limits.launches is not None or not values:
            return
        iterations = self.iterations or self._pilot_iterations
        launch_ns = max(0.0, self.round_ns - self.iteration_ns * iterations)
        if self.limits.iterations is None:
            iterations = self.iterations = self._iterations_to_reach_floor(launch_ns, iterations)
        costs = budget.Costs(launch_ns=launch_ns, iteration_ns=self.iteration_ns)
        self.wanted = budget.launches_wanted(
            values,
            floor=self.limits.floor if self.judge is None else self.limits.at_most,
            at_most=self.limits.at_most,
            effect=self.limits.effect,
            costs=costs,
            iterations=iterations,
            budget_ns=self._budget_ns(),
            taken=self.done,
        )

    def _iterations_to_reach_floor(self, launch_ns: float, iterations: int) -> int:
        """Fewer turns where the launches that the exact test needs would not fit the budget otherwise."""
        missing = self.limits.floor - self.done
        if missing <= 0:
            return iterations
        affordable = (self._budget_ns() / missing - launch_ns) / max(1.0, self.iteration_ns)
        return max(self._pilot_iterations, min(iterations, math.floor(affordable)))

    def _ratios(self, entry: Entry) -> list[float]:
        beside = entry.control if entry.reference is None else entry.reference.launches
        found = []
        for launch, other in zip(entry.launches, beside, strict=False):
            ratios = _by_iteration(self._values(launch), self._values(other))
            if ratios:
                found.append(statistics.median(map(math.log, ratios)))
        return found

    def _values(self, launch: Launch) -> list[float]:
        return [
            iteration_value(iteration, launch.loops, per_op=bool(self._window_ns)) for iteration in launch.iterations
        ]

    # -- results -----------------------------------------------------------------------------------------------

    def _compare_results(self) -> None:
        for entry, error in disagreements([entry for entry in self.entries if entry.alive]):
            entry.error = error


BLAMED: dict[SideName, str] = {
    "own": "",
    "control": "the standard candle beside it ",
    "locks": "with the lock probe it ",
}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _bare(sides: Sequence[Side]) -> list[Side]:
    return [side for side in sides if side.name != "locks"]


def _looking(held: Mapping[bool, Held]) -> Looking | None:
    """The time of an operation bare and watched; None where it was not held both ways, or nothing was done."""
    values = {watched: iteration_value(seen.iteration, 1, per_op=True) for watched, seen in held.items()}
    if len(values) < 2 or not all(map(math.isfinite, values.values())):
        return None
    return Looking(bare_ns=(values[False],), watched_ns=(values[True],))


def _reference(cell: Cell, references: Mapping[str, Reference]) -> Entry | None:
    side = references.get(cell.nodeid)
    return None if side is None else Entry(cell, side.ready, side.spec)


def _ratios_by_iteration(sides: Sequence[Side], entry: Entry) -> list[float]:
    """A cell's turns of this round over those of its reference, or of its candle, beside them."""
    own = {side.name: side.walls for side in sides if side.entry is entry}
    beside = [side.walls for side in sides if side.entry is entry.reference and side.name == "own"]
    return _by_iteration(own.get("own", []), next(iter(beside), own.get("control", [])))


def _by_iteration(own: Sequence[float], control: Sequence[float]) -> list[float]:
    """The ratios of neighbours; a turn in which either has no value (NaN: no operation ended) is left out whole."""
    ratios = (wall / beside for wall, beside in zip(own, control, strict=False))
    return [ratio for ratio in ratios if math.isfinite(ratio)]
