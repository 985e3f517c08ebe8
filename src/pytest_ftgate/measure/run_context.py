"""What the time launches and the memory launches of a run share: how they are started, reported and paid for."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from ..model import Barrier, Launch, Need
from .budget import IterationPlan, RunBudget
from .capacity import Capacity
from .cell_run import CellRun, FloorKey
from .conditions import ConditionsMonitor
from .launch import Handle, Launcher, LaunchRole, Request

T = TypeVar("T")


LONG_NS = 500_000_000
"""Iterations as long as this are so steady that few are needed, and none that only warms a launch up."""
Floors: TypeAlias = dict[tuple[FloorKey, bool], Launch]
"""Launches of empty workloads, and whether they show growth."""


class Listener(Protocol):
    """Receives the progress of a run."""

    def advance(self, label: str, phase: str, done: int, wanted: int, left_s: float | None) -> None:
        """One step: a phrase that the label of a cell or target ends, rounds done and wanted (or 0), seconds left."""
        ...

    def expect_more(self, why: str) -> None:
        """More will be measured than was estimated, for this reason."""
        ...

    def warn(self, text: str) -> None:
        """Something that the user should know before the report."""
        ...


class RunningLaunch:
    """A launch under way: which cell's, what was requested, and the values of its measured iterations.

    `counted` of them are kept; None: all.
    """

    def __init__(self, cell_run: CellRun, request: Request, handle: Handle) -> None:
        self.cell_run = cell_run
        self.request = request
        self.handle = handle
        self.started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self.values: list[float] = []
        self.latest_wall_ns: int | None = None
        self.latest_work_ns: int | None = None
        self.first_share = 0.0
        """What start and join took of its cold iteration."""
        self.counted: int | None = None
        self.checked = False
        """Whether its results were compared."""
        self.sampled: dict[str, Any] = {}
        """What was sampled, by Launch's names."""
        self.grown: tuple[Barrier, ...] = ()
        """Barriers after these samples, which show growth."""

    @property
    def role(self) -> LaunchRole:
        """What it runs for its cell."""
        return self.request.role

    def kill(self) -> None:
        """End it, however far it came; that it cannot be ended is its cell's error."""
        with self.cell_run.attribute_errors(self.role):
            self.handle.kill()

    def finish(self, order: int, **samples: Any) -> Launch:
        """Let it end by itself; its record, with its round (`order`) and what was sampled, by Launch's names."""
        record = self.handle.finish()
        return msgspec.structs.replace(
            record,
            iterations=record.iterations[: self.counted],
            order=order,
            hash_seed=self.request.hash_seed,
            started_at=self.started_at,
            **samples,
        )


class RunContext:
    """The cells of a run, its launcher, its random order, its iterations, its budget and who listens."""

    def __init__(
        self,
        cell_runs: Sequence[CellRun],
        launcher: Launcher,
        rng: random.Random,
        iterations: IterationPlan,
        budget: RunBudget,
        listener: Listener,
        monitor: ConditionsMonitor | None = None,
        floors: Floors | None = None,
        capacity: Capacity | None = None,
    ) -> None:
        """`floors` are those that other tests of the run have measured, and share; so is `capacity`."""
        self.floors = {} if floors is None else floors
        self.capacity = Capacity() if capacity is None else capacity
        self.split = ""
        """Whether not all cells were measured together, and why."""
        self._most_batches = 1
        self.cell_runs = cell_runs
        self.launcher = launcher
        self.rng = rng
        # Of their own, so that a test's launches are the same whichever test of the run has measured the floors.
        self._floors_rng = random.Random(rng.getrandbits(64))
        self.iterations = iterations
        self.budget = budget
        self.listener = listener
        self.monitor = monitor

    def needing(self, need: Need) -> list[CellRun]:
        """The cells that still need this kind of launch."""
        return [each for each in self.cell_runs if each.alive and need in each.needs]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in random order."""
        return self.rng.sample(list(items), len(items))

    def in_time(self, items: Iterable[T]) -> Iterator[T]:
        """The items, one iteration for each. Raises TimeIsUp in place of the next one if the time is over."""
        for item in items:
            self.budget.check()
            yield item

    def spares(self, cost_ns: float, share: float) -> bool:
        """Whether what informs but does not decide takes at most this share of a round, done for all cells."""
        return self.budget.spares(cost_ns * sum(each.alive for each in self.cell_runs), share)

    def most(self, counts: Sequence[int], cost_ns: float, share: float) -> int:
        """The first of these falling counts that `spares` affords at `cost_ns` each, or else the last."""
        return next((count for count in counts if self.spares(count * cost_ns, share)), counts[-1])

    def start(
        self, cell_run: CellRun, role: LaunchRole, *, settled: bool = False, sampling_ns: int = 0
    ) -> RunningLaunch:
        """Start a launch with a hash seed and a memory layout of its own.

        Raises LaunchFailed and CellUnsupported, and TimeIsUp if the time is over.
        """
        self.budget.check()
        target = cell_run.target
        gil_on = cell_run.cell.target.settings.gil == "on"
        rng = self._floors_rng if role == "empty" else self.rng
        request = Request(
            cell=cell_run.cell,
            spec=cell_run.spec,
            python=target.python,
            role=role,
            expect_gil=gil_on or not target.interpreter.free_threaded,
            environment=target.environment,
            hash_seed=rng.randrange(1, 2**32),
            padding=rng.randrange(4096),
            timeout_s=cell_run.spec.timeout_s or self.budget.limits.timeout_s,
            waits_unavailable=target.waits_unavailable,
            settled=settled,
            sampling_ns=sampling_ns,
            reference=cell_run.is_reference,
            copies=target.copies,
        )
        cell_run.begun += role == "own"
        return RunningLaunch(cell_run, request, self.launcher.start(request))

    @contextlib.contextmanager
    def ready(
        self, cell_run: CellRun, role: LaunchRole, *, settled: bool = False, sampling_ns: int = 0
    ) -> Iterator[RunningLaunch]:
        """A launch that has imported its workload; killed at the end, whatever happens."""
        launch = self.start(cell_run, role, settled=settled, sampling_ns=sampling_ns)
        try:
            launch.handle.ready()
            yield launch
        finally:
            launch.kill()

    def say_split(self, batches: int, why: str) -> None:
        """Remember that a round was measured in so many batches."""
        if batches > self._most_batches:
            self._most_batches = batches
            self.split = f"not all cells were measured together, but in up to {batches} batches a round: {why}"

    def report(self, cell_run: CellRun, phase: str) -> None:
        """Tell the listener what is done now."""
        budget = self.budget
        self.listener.advance(cell_run.cell.label, phase, budget.rounds, budget.rounds_wanted, budget.remaining_s)

    def sample_conditions(self) -> None:
        """Read this run's CPU time before launches end: afterwards a forkserver's time is on no account."""
        if self.monitor is not None:
            self.monitor.sample()

    def calibrate(self) -> None:
        """Time a fixed piece of work while no launch is at work."""
        if self.monitor is not None:
            self.monitor.calibrate()
