"""A Launcher whose launches are scripted: durations, memory, results and troubles, on a clock that only they move."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import report_by_hand

from pytest_ftgate.declare.options import Options
from pytest_ftgate.measure.cell_run import CellRun, PreparedTarget
from pytest_ftgate.measure.group import Measurement
from pytest_ftgate.measure.launch import CellUnsupported, HeldIteration, Launcher, LaunchFailed, LaunchRole, Request
from pytest_ftgate.measure.round_plan import Allowance, Listener, RoundPlan
from pytest_ftgate.measure.rounds import measure_round
from pytest_ftgate.measure.spent import Spent
from pytest_ftgate.model.sample import (
    Barrier,
    Iteration,
    Launch,
    Loads,
    LockSite,
    LockWaits,
    MemoryPoint,
    Profile,
    Sample,
    Timer,
    Waits,
    WorkloadError,
)
from pytest_ftgate.model.spec import BodyKind, Cell, Executor, Group, Settings, Source, Spec, Target
from pytest_ftgate.runner.locks.sites import bucket_of
from pytest_ftgate.runner.protocol import BARRIER, CHECKED_COLD, COLD, HOLD, MEASURED, WARMUP

MS = 1_000_000
MIB = 1 << 20
TEST = "test_work.py::test_work"


class Clock:
    """Seconds that pass only when a launch is at work."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> float:
        return self.ns / 1e9


class At(NamedTuple):
    """A moment of a launch: `order` counts the timing launches of this side, `number` its iterations of one kind."""

    label: str
    side: LaunchRole
    event: str
    start: int
    order: int
    number: int = 0
    loops: int = 1
    window_ns: int = 0
    reference: bool = False

    @property
    def control(self) -> bool:
        """Whether it is the control workload's."""
        return self.side == "control"


class Event(NamedTuple):
    """Something that a launch was requested to do, with the handles that were alive by then."""

    at: At
    handle: int
    began_ns: int
    ended_ns: int
    alive: frozenset[int]


def steady(wall_ns: float) -> Callable[[At], float]:
    """The same duration at every iteration."""
    return lambda _: wall_ns


def noisy(wall_ns: float, between: float, within: float = 0.0, seed: int = 0) -> Callable[[At], float]:
    """Log-normal durations: deviations between launches and within one; a cell and its pair vary apart."""

    def wall(at: At) -> float:
        side = f"{seed}/{at.label}/{at.side}/{at.order}{'/reference' if at.reference else ''}"
        launch = random.Random(side).lognormvariate(0, between)
        return wall_ns * launch * random.Random(f"{side}/{at.event}/{at.number}").lognormvariate(0, within)

    return wall


def memory_of(uss_bytes: int | None, samples: int = 3) -> tuple[MemoryPoint, ...]:
    """A launch's samples of its memory, all alike."""
    return tuple(
        MemoryPoint(at_ns=at, rss_bytes=3 * (uss_bytes or 1), uss_bytes=uss_bytes, pss_bytes=uss_bytes, processes=1)
        for at in range(samples)
    )


class Quiet:
    """A listener that forgets what it is told, but for warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def advance(self, label: str, phase: str, number: int, of: int, left_s: float | None) -> None:
        """Forget it."""

    def warn(self, text: str) -> None:
        """Keep it."""
        self.warnings.append(text)


class FakeLauncher:
    """Starts scripted launches and keeps everything that happened in `events`; replace a callable to script it."""

    def __init__(self, clock: Clock | None = None, wall_ns: Callable[[At], float] | None = None) -> None:
        self.clock = clock or Clock()
        self.wall_ns = wall_ns or steady(20 * MS)
        self.cpu_ns: Callable[[At], float] | None = None
        """The CPU time of what takes `wall_ns`; None: as long."""
        self.startup_ns: Callable[[At], float] = steady(50 * MS)
        self.waited_ns: Callable[[At], float] = lambda _: 0
        self.joins: Callable[[At], float] = lambda _: 0.1
        self.watched: Callable[[At], float] = lambda _: 1.0
        self.memory: Callable[[At], tuple[MemoryPoint, ...]] = lambda _: memory_of(20 * MIB)
        self.results: Callable[[At], tuple[str, ...]] = lambda _: ("42",)
        self.result_counts: Callable[[At], tuple[int, ...]] = lambda _: ()
        self.profile: Callable[[At], Profile] = lambda _: Profile()
        self.loads: Callable[[At], Loads] = lambda _: Loads()
        self.trouble: Callable[[At], BaseException | None] = lambda _: None
        self.resolution_ns: Callable[[At], float] = lambda _: 50.0
        self.on_start: Callable[[Request], object] = lambda _: None
        self.requests: list[Request] = []
        self.handles: list[FakeHandle] = []
        self.events: list[Event] = []
        self.starts: Counter[tuple[str, LaunchRole, bool]] = Counter()
        self.orders: Counter[tuple[str, LaunchRole, bool]] = Counter()
        self.held_calls_ns: list[float] = []
        self.waits = Waits(unavailable="scripted")
        self.held_shares: dict[bool, set[float]] = {False: set(), True: set()}
        """What a call was said to take, of each that was held."""
        self.at_work = 0

    def start(self, request: Request) -> FakeHandle:
        """Start one, at no cost: it works when it is requested to."""
        side = (request.cell.label, request.role, request.reference)
        handle = FakeHandle(self, request, len(self.handles), self.starts[side])
        self.starts[side] += 1
        handle.happen("start")
        self.requests.append(request)
        self.on_start(request)
        self.handles.append(handle)
        handle.alive = True
        return handle

    @property
    def alive(self) -> frozenset[int]:
        """Handles that were neither finished nor killed."""
        return frozenset(handle.index for handle in self.handles if handle.alive)

    def of(self, *kinds: str, side: LaunchRole | None = None, label: str | None = None) -> list[Event]:
        """Events of these kinds, in order."""
        return [
            event
            for event in self.events
            if event.at.event in kinds and side in (None, event.at.side) and label in (None, event.at.label)
        ]


class BrokenTest(BaseException):
    """A launch was asked for what a real one could not do; no error of a cell."""


def must(holds: bool) -> None:
    """Raise BrokenTest where it does not hold."""
    if not holds:
        raise BrokenTest


class FakeHandle:
    """One scripted launch. It refuses what a real one could not do, as a broken test."""

    def __init__(self, launcher: FakeLauncher, request: Request, index: int, start: int) -> None:
        self.launcher = launcher
        self.request = request
        self.index = index
        self.alive = False
        self.is_ready = False
        self.killed = False
        self.start = start
        self.side = (request.cell.label, request.role, request.reference)
        self.order = launcher.orders[self.side]
        self.warmed_ops = 0
        self.taken: Counter[str] = Counter()
        self.cold: Iteration | None = None
        self.iterations: list[Iteration] = []

    def at(self, event: str, loops: int = 1, window_ns: int = 0) -> At:
        """This moment."""
        cell, number = self.request.cell, self.taken[event]
        side, reference = self.request.role, self.request.reference
        return At(cell.label, side, event, self.start, self.order, number, loops, window_ns, reference)

    def happen(self, event: str, spent_ns: float = 0.0, loops: int = 1, window_ns: int = 0) -> None:
        """Let the clock pass and write it down; raises what is scripted for this moment."""
        launcher, at = self.launcher, self.at(event, loops, window_ns)
        launcher.at_work += 1
        must(launcher.at_work == 1)  # never two at once
        began_ns = launcher.clock.ns
        launcher.clock.ns += round(spent_ns)
        launcher.events.append(Event(at, self.index, began_ns, launcher.clock.ns, launcher.alive))
        launcher.at_work -= 1
        self.taken[event] += 1
        trouble = launcher.trouble(at)
        if trouble is not None:
            raise trouble

    def ready(self) -> float:
        """The workload is imported."""
        must(self.alive)
        self.is_ready = True
        self.happen("ready", self.launcher.startup_ns(self.at("ready")))
        return self.launcher.resolution_ns(self.at("ready"))

    def iteration(self, kind: str, loops: int = 1, window_ns: int = 0) -> Iteration:
        """An iteration of the scripted duration; of a window, as many operations as fit."""
        must(self.alive)
        must(self.is_ready)
        must(kind not in (HOLD, BARRIER))
        at = self.at(kind, loops, window_ns)
        one_ns = self.launcher.wall_ns(at)
        spent = self.launcher.cpu_ns(at) / one_ns if self.launcher.cpu_ns and one_ns else 1.0
        wall_ns = window_ns or round(one_ns * loops)
        if kind in (COLD, CHECKED_COLD):
            self.launcher.orders[self.side] += 1
        self.happen(kind, wall_ns, loops, window_ns)
        join_ns = int(wall_ns * self.launcher.joins(self.at(kind)))  # as long as the start
        iteration = Iteration(
            start_ns=join_ns,
            work_ns=wall_ns - 2 * join_ns,
            join_ns=join_ns,
            wall_ns=wall_ns,
            cpu_ns=round(wall_ns * spent),
            ops=round(window_ns / one_ns) if window_ns and one_ns else loops,
            rate=1e9 / one_ns if one_ns else 0.0,
        )
        if kind in (COLD, CHECKED_COLD):
            self.cold = iteration
        if kind == MEASURED:
            self.iterations.append(iteration)
        if kind == WARMUP:
            self.warmed_ops += iteration.ops
        return iteration

    def measure_held(self, window_ns: int, sampled: bool, one_ns: float = 0.0, share: float = 1.0) -> HeldIteration:
        """A held iteration of as many operations as fit; one that is sampled takes `watched` times as long for each."""
        must(self.alive)
        must(self.is_ready)
        at = self.at(HOLD)
        self.launcher.held_calls_ns.append(one_ns)
        self.launcher.held_shares[at.reference].add(share)
        one_ns = self.launcher.wall_ns(at) * (self.launcher.watched(at) if sampled else 1.0)
        points = self.launcher.memory(at) if sampled else ()
        self.happen(HOLD, window_ns, 1, window_ns)
        iteration = Iteration(
            start_ns=0,
            work_ns=window_ns,
            join_ns=0,
            wall_ns=window_ns,
            cpu_ns=window_ns,
            ops=1,
            rate=1e9 / one_ns if one_ns else 0.0,
        )
        return HeldIteration(iteration=iteration, memory=points, waits=self.launcher.waits if sampled else None)

    def barrier(self, loops: int, window_ns: int, *, collects: bool = False) -> Barrier:
        """An iteration, and a sample of memory at its end."""
        must(self.alive)
        must(self.is_ready)
        at = self.at(BARRIER, loops, window_ns)
        points = self.launcher.memory(at) or memory_of(20 * MIB)
        self.happen(BARRIER, window_ns or self.launcher.wall_ns(at) * loops, loops, window_ns)
        return Barrier(ops=loops, point=points[0])

    def close(self) -> None:
        """It begins to end."""
        must(self.alive)
        trouble = self.launcher.trouble(self.at("close"))
        if trouble is not None:
            raise trouble

    def finish(self) -> Launch:
        """The record; the launch has ended."""
        must(self.alive)
        self.happen("finish", 5 * MS)
        self.alive = False
        return Launch(
            hash_seed=self.request.hash_seed,
            cold=self.cold,
            iterations=tuple(self.iterations),
            counters={"inserts": float(len(self.iterations))},
            timers={"ack": Timer(count=1, total_ns=10, max_ns=10)},
            results=self.launcher.results(self.at("finish")),
            result_counts=self.launcher.result_counts(self.at("finish")),
            gil_enabled=self.request.expect_gil,
            locks=self.locks() if self.request.role == "locks" else None,
            profile=self.launcher.profile(self.at("finish")) if self.request.role == "profile" else None,
            loads=self.launcher.loads(self.at("finish")) if self.request.role == "loaded" else None,
        )

    def locks(self) -> LockWaits:
        """What a lock probe would have seen: at one site, in each iteration one wait of `waited_ns` a worker."""
        one_ns = round(self.launcher.waited_ns(self.at("finish")))
        count = self.request.cell.workers * len(self.iterations) if one_ns else 0
        site = LockSite(
            file="work.py",
            line=7,
            kind="Lock",
            waits_for="lock",
            contended=count,
            total_ns=count * one_ns,
            max_ns=one_ns,
            histogram={bucket_of(one_ns): count},
        )
        work_ns = sum(iteration.work_ns for iteration in self.iterations)
        ops = sum(iteration.ops for iteration in self.iterations)
        return LockWaits(work_ns=work_ns, ops=ops, counted_ops=self.warmed_ops, sites=(site,) if count else ())

    def kill(self) -> None:
        """The end, whatever was before."""
        self.alive = False
        if not self.killed:
            self.killed = True
            self.happen("kill")


def failed(reason: str, detail: str = "") -> LaunchFailed:
    """What a launcher raises for a workload that failed."""
    return LaunchFailed(WorkloadError(reason=reason, detail=detail))


def unsupported(reason: str) -> CellUnsupported:
    """What a launcher raises for an executor that cannot do it."""
    return CellUnsupported(reason)


# -- groups to run them with --------------------------------------------------------------------------------------

GIL = msgspec.structs.replace(report_by_hand.GIL, config_args="", build="source package 3.14.7-1", start_methods=())
EXECUTORS = {
    "serial": Executor(kind="serial"),
    "threads": Executor(kind="threads"),
    "fork": Executor(kind="processes", method="fork"),
    "spawn": Executor(kind="processes", method="spawn"),
    "interpreters": Executor(kind="interpreters"),
}


def spec_of(
    *executors: str, nodeid: str = TEST, workers: int = 2, body: BodyKind = "worker", **declared: object
) -> Spec:
    """A test as declared, on these executors."""
    return Spec(
        nodeid=nodeid,
        source=Source(path="test_work.py", line=1, module="test_work", qualname="test_work"),
        body=body,
        executors=tuple(EXECUTORS[name] for name in executors),
        workers=(workers,),
        reuse=declared.pop("reuse", "fresh"),  # type: ignore[arg-type]
        **declared,  # type: ignore[arg-type]
    )


def group_of(
    *executors: str, targets: tuple[str, ...] = ("3.14",), settings: Settings = Settings(), spec: Spec | None = None
) -> Group:
    """The group of these executors on each target: cells are labelled `3.14-threads-w2`."""
    spec = spec or spec_of(*executors)
    cells = tuple(
        Cell(
            nodeid=f"{spec.nodeid}[{target}-{executor.label}-w{spec.workers[0]}]",
            target=Target(spec=target, request=target, settings=settings),
            executor=executor,
            workers=spec.workers[0],
        )
        for target in targets
        for executor in spec.executors
    )
    return Group(key=f"{spec.nodeid} ({spec.workers[0]} workers)", spec=spec, cells=cells)


READY = PreparedTarget(interpreter=GIL, python="/opt/env/bin/python", key="build", environment={"A": "1"})
FREE = PreparedTarget(
    interpreter=msgspec.structs.replace(GIL, free_threaded=True, gil_enabled=False),
    python="/opt/env-t/bin/python",
    key="build-t",
    environment={},
)
TARGETS = {"3.14": READY, "3.14t": FREE}


class WholeMeasurement(Measurement):
    """One that nothing else shares its time with."""

    def step(self) -> bool:
        """One of its rounds."""
        return measure_round(self)

    def measure(self) -> list[Sample]:
        """All its rounds."""
        while self.step():
            pass
        return self.samples()


def measurement_of(
    launcher: Launcher,
    group: Group,
    limits: Allowance,
    *,
    targets: Mapping[str, PreparedTarget] = TARGETS,
    paired: bool = False,
    old: Spec | None = None,
    observers: tuple[str, ...] = (),
    at_a_glance: bool = False,
    there: PreparedTarget | None = None,
    seed: int = 1,
    loops: int | None = None,
    listener: Listener | None = None,
    **more: Any,
) -> WholeMeasurement:
    """The cells of a group, `paired` with a reference that has the test as in `old`, installed `there`."""

    def beside(cell: Cell) -> CellRun | None:
        return CellRun(cell, there or targets[cell.target.spec], old or group.spec) if paired else None

    return WholeMeasurement(
        cell_runs=[
            CellRun(cell, targets[cell.target.spec], group.spec, beside(cell), observers, at_a_glance)
            for cell in group.cells
        ],
        plan=RoundPlan(group.spec, limits, getattr(launcher, "clock", time.monotonic), loops),
        launcher=launcher,
        rng=random.Random(seed),
        listener=listener or Quiet(),
        spent=Spent(getattr(launcher, "clock", time.monotonic)),
        **more,
    )


CONFIG = Options(baselines="baselines", seed=11, test_time=1e9, install=()).replaced(unchanged="measure")
"""The options of a scripted run: as many rounds as it wants, and nothing installed."""
