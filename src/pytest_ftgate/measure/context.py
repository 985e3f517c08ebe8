"""What the time launches and the memory launches share: cells and launches under way, and how many fit at once."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
import psutil

from ..kit.values import Struct, grouped
from ..model.sample import (
    EVERYTHING,
    IN_PAIRS,
    Barrier,
    Iteration,
    Launch,
    Need,
    Role,
    Sample,
    WorkloadError,
    iteration_value,
)
from ..model.spec import WINDOW_S, Cell, Environment, Interpreter, Spec
from ..runner.protocol import CHECK, MEASURED
from .launch import CellUnsupported, Handle, LaunchRole, Request, error_of
from .machine import ROOT, cgroup_folders, memory_limit_bytes, read_text
from .plan import OutOfTime, RoundPlan

T = TypeVar("T")
FloorKey: TypeAlias = tuple[str, str, str, int, str, tuple[tuple[str, str], ...]]
"""The interpreter, the target, the executor, the number of workers, their reuse, and the environment variables."""

Floors: TypeAlias = dict[tuple[FloorKey, Role], Launch]
"""Launches of empty workloads, with and without growth."""
Family: TypeAlias = tuple[str, str, Environment]
"""The target, the executor and the environment."""
LONG_NS = 500_000_000
"""Iterations as long as this are so steady that few are needed, and none that only warms a launch up."""
ROLES: dict[LaunchRole, str] = {
    "own": "",
    "control": "its control workload ",
    "locks": "with the lock probe: ",
    "empty": "an empty workload in its place ",
    "profile": "while its stacks were sampled: ",
}
"""The roles in the order in which they start, and what a reason begins with where such a launch failed."""


# ---- a cell under measurement, and whether the cells agree on their results


class PreparedTarget(Struct, frozen=True, kw_only=True):
    """A target that can run: its description, the python of its environment, and its baseline key.

    `copies` are the modules of the project that are installed there as copies of its sources.
    """

    interpreter: Interpreter
    python: str
    key: str
    environment: dict[str, str]
    waits_unavailable: str = ""
    copies: tuple[str, ...] = ()


class CellRun:
    """One cell while it is measured: what it runs, which launches it still needs, those it had, and its troubles."""

    def __init__(self, cell: Cell, target: PreparedTarget, spec: Spec, reference: CellRun | None = None) -> None:
        """`reference` is what it is paired with: the test as that has it, on the target where that is installed."""
        self.cell = cell
        self.target = target
        self.spec = spec
        self.reference = reference
        self.is_reference = False
        if reference is not None:
            reference.is_reference = True
        self.sides = [self] if reference is None else [self, reference]
        self.started_first: CellRun | None = None
        self.all_launches: list[Launch] = []
        self.begun = 0
        self.error: WorkloadError | None = None
        self.locks_error: WorkloadError | None = None
        self.unsupported: str | None = None
        self.require(EVERYTHING if reference is None else IN_PAIRS)

    @property
    def family(self) -> Family:
        """What the cells of one executor, target and environment share, whatever their worker count."""
        return self.cell.target.spec, self.cell.executor.label, self.cell.environment

    @property
    def probed(self) -> bool:
        """Whether the runner is in its processes, to stop workers at barriers and to probe locks; not in a program."""
        return self.cell.executor.program is None

    @property
    def paired(self) -> bool:
        """Whether it is one of a cell and its reference: of these only what is judged is measured."""
        return self.is_reference or self.reference is not None

    @property
    def alive(self) -> bool:
        """Whether this cell can still be measured."""
        return self.error is None and self.unsupported is None

    def of(self, role: Role) -> list[Launch]:
        return [launch for launch in self.all_launches if launch.role == role]

    @property
    def latest(self) -> tuple[Iteration, ...]:
        """The iterations of the latest timing launch; none before the first."""
        launches = self.of("time")
        return launches[-1].iterations if launches else ()

    @property
    def longest_ns(self) -> float:
        """The longest iteration of the latest launch; 0 before the first launch."""
        return max((float(iteration.wall_ns) for iteration in self.latest), default=0.0)

    def require(self, needs: frozenset[Need]) -> None:
        """Set the kinds of launches that are still needed.

        A program has no lock launches, nor has a cell of which one failed, its own or its reference's.
        """
        locks = self.probed and not any(side.locks_error for side in self.sides)
        self.needs = needs if locks else needs - {"locks"}

    @contextlib.contextmanager
    def attribute_errors(self, role: LaunchRole = "own") -> Iterator[None]:
        """Record whatever goes wrong with a launch as this cell's error; the other cells go on.

        A failure of a lock launch voids the cell's figures of locks alone. Of several errors the first is kept.
        """
        try:
            yield
        except CellUnsupported as reason:
            if role == "locks":
                self._void_locks(WorkloadError(reason=f"{ROLES[role]}unsupported: {reason}"))
            else:
                self.unsupported = str(reason)
        except OutOfTime:
            raise
        except Exception as failure:  # noqa: BLE001 -- also a mistake of ours costs this cell alone
            launch, told = self.begun if role == "own" else 0, error_of(failure)
            error = WorkloadError(reason=ROLES[role] + told.reason, detail=told.detail, launch=launch)
            if role == "locks":
                self._void_locks(error)
            else:
                self.error = self.error or error

    def _void_locks(self, error: WorkloadError) -> None:
        self.locks_error = self.locks_error or error
        self.all_launches = [launch for launch in self.all_launches if launch.role != "locks"]

    def sample(self) -> Sample:
        """All of it, frozen."""
        return Sample(
            reuse=self.spec.reuse,
            duration_s=self.spec.duration_s,
            measures=measures(self.cell, self.spec),
            cell=self.cell,
            interpreter=self.target.interpreter,
            key=self.target.key,
            all_launches=tuple(self.all_launches),
            error=self.error,
            locks_error=self.locks_error,
            unsupported=self.unsupported,
            begun=self.begun,
            reference=None if self.reference is None else self.reference.sample(),
        )


def disagreements(cell_runs: Sequence[CellRun]) -> list[tuple[CellRun, WorkloadError]]:
    """Cells whose results differ from the other cells', or from one iteration to the next.

    The result of most cells counts as right; in a tie, the result of the first cell. Cells with another number of
    workers or another environment may give another result.
    """
    fix = "If it may differ, assert what must hold with @test.check, or return nothing."
    errors = []
    distinct = [
        (each, sorted({result for launch in each.of("time") for result in launch.results})) for each in cell_runs
    ]
    alike = grouped(((each.cell.workers, each.cell.roles, each.cell.environment), (each, of)) for each, of in distinct)
    for group in alike.values():
        counted = Counter(results[0] for _, results in group if len(results) == 1)
        right = counted.most_common(1)[0][0] if counted else None
        for cell_run, results in group:
            if len(results) > 1:
                shown = "\n".join(f"  {result}" for result in results[:4])
                reason = f"gave {len(results)} different results from one iteration to the next"
                errors.append((cell_run, WorkloadError(reason=reason, detail=f"{shown}\n{fix}")))
            elif results and results[0] != right:
                reason = "gave another result than the other cells"
                detail = f"  here:      {results[0]}\n  elsewhere: {right}\n{fix}"
                errors.append((cell_run, WorkloadError(reason=reason, detail=detail)))
    return errors


def measures(cell: Cell, spec: Spec) -> str:
    """A short digest of what a cell's program is asked to do and with what; empty for a body without requirements.

    Another command line, load, requirement, environment or pinning is another measurement, so its figures cannot be
    compared.
    """
    program, environment = cell.executor.program, cell.environment.variables
    if program is None and not (spec.packages or environment or spec.pin):
        return ""
    requested: list[object] = [program and (program.argv, program.environment)]
    requested += [spec.service, spec.packages, spec.window_s]
    if environment or spec.pin:  # left out where there is neither: digests that are stored stay valid
        requested += [environment, "each" if spec.pin else None]
    return hashlib.sha256(repr(requested).encode()).hexdigest()[:16]


# ---- a launch under way


class RunningLaunch:
    """A launch under way: which cell's, what was requested, and the values of its measured iterations."""

    def __init__(self, cell_run: CellRun, request: Request, handle: Handle, plan: RoundPlan) -> None:
        self.cell_run = cell_run
        self.request = request
        self.handle = handle
        self.plan = plan
        self.order = plan.rounds
        self.role: LaunchRole = request.role
        """What it runs for its cell."""
        self.started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self.values: list[float] = []
        self.counted: int | None = None
        """So many of its measured iterations are kept; None: all."""
        self.latest_wall_ns: int | None = None
        self.latest_work_ns: int | None = None
        self.first_share = 0.0
        """What start and join took of its cold iteration."""
        self.checked = False
        """Whether its results were compared."""
        self.sampled: dict[str, Any] = {}
        """What was sampled, by Launch's names."""
        self.grown: tuple[Barrier, ...] = ()
        """Barriers after these samples, which show growth."""

    def usable(self) -> bool:
        """Whether it can still be measured: a lock launch voids its cell's figures of locks alone."""
        return self.cell_run.alive and not (self.role == "locks" and self.cell_run.locks_error)

    @property
    def is_long(self) -> bool:
        """Whether its cell's iterations are long, as far as this launch or an earlier one has shown."""
        return max(self.latest_wall_ns or 0, self.cell_run.longest_ns) >= LONG_NS

    @property
    def has_results(self) -> bool:
        """Whether its results are compared: a window may have another number of calls each time."""
        return self.role == "own" and self.cell_run.probed and not self.plan.window_ns

    @property
    def loops(self) -> int:
        """The control workload is long enough for the clock by itself."""
        return 1 if self.role == "control" else self.plan.loops or 1

    @property
    def window_ns(self) -> int:
        """The control workload is as steady in a short window, where the test asks for a long one."""
        window_ns = self.plan.window_ns
        return min(window_ns, round(WINDOW_S * 1e9)) if self.role == "control" else window_ns

    @property
    def warmups(self) -> int:
        """The control workload needs one, whatever the test asks for; the lock probe counts operations in its own.

        If a body is known to be long, nothing warms it up after the first round unless the test asks for it.
        """
        if self.role == "control":
            return 1
        if self.order and self.is_long and self.cell_run.spec.warmup is None:
            return 0
        return max(self.role == "locks", self.plan.warmups)

    def unmeasured(self, kind: str, loops: int = 1) -> Iteration:
        # The join of one that compares results has their transfer in it, which loops must not count.
        checks = kind == CHECK
        iteration = self.handle.iteration(kind, loops, 0 if checks else self.window_ns)
        self.latest_wall_ns = iteration.wall_ns - (iteration.join_ns if checks else 0)
        self.latest_work_ns = iteration.work_ns
        return iteration

    def measured(self) -> None:
        iteration = self.handle.iteration(MEASURED, self.loops, self.window_ns)
        self.values.append(iteration_value(iteration, self.loops, per_op=bool(self.plan.window_ns)))

    def kill(self) -> None:
        """End it, however far it came; that it cannot be ended is its cell's error."""
        with self.cell_run.attribute_errors(self.role):
            self.handle.kill()

    def finish(self, role: Role, **samples: Any) -> Launch:
        """Let it end by itself; its record, with what it was for and what was sampled, by Launch's names."""
        record = self.handle.finish()
        return msgspec.structs.replace(
            record,
            role=role,
            iterations=record.iterations[: self.counted],
            order=self.order,
            hash_seed=self.request.hash_seed,
            started_at=self.started_at,
            **samples,
        )


# ---- how many launches may be alive at once: as many as open files, tasks and the free memory allow

DESCRIPTORS = 5
"""What a launch keeps open here at most: two ends of pipes to it, what it prints, what waits for these."""
SPARE_DESCRIPTORS = 40
"""What is left for all else: the start of a process opens some, and so do memory samples and files."""
TASKS, SPARE_TASKS = 2, 8
"""Processes and threads of a launch beside its workers: its main thread and ours that waits for it; what is left."""
MEMORY_SHARE = 0.5
"""Of the memory that is free as the run begins, what the launches of a test may take together."""
BARE_BYTES, WORKLOAD_BYTES = 16 << 20, 48 << 20
"""Memory of a process of the runner, and what a workload adds to it, until its memory is known."""
_IN_ONE = ("serial", "threads", "tasks")


class Needed(NamedTuple):
    """What launches that are alive together need."""

    launches: int = 0
    memory_bytes: int = 0
    tasks: int = 0


def total(parts: Iterable[Needed]) -> Needed:
    """The sum of these."""
    return Needed(*map(sum, zip(Needed(), *parts, strict=True)))


class Capacity:
    """What a run may have alive at once. It knows the memory of the cells that it was told of."""

    def __init__(
        self,
        descriptors: int | None = None,
        memory_bytes: int | None = None,
        tasks: int | None = None,
        *,
        opened: int = 0,
    ) -> None:
        """`descriptors` is the limit of this process, of which `opened` are in use; `tasks` are the processes and
        threads that can be started. None: no limit is known."""
        self.descriptors = descriptors
        self.memory_bytes = memory_bytes
        self.tasks = tasks
        self.launches = (
            None if descriptors is None else max(1, (descriptors - opened - SPARE_DESCRIPTORS) // DESCRIPTORS)
        )
        self._known: dict[str, int] = {}

    @classmethod
    def of_this_process(cls) -> Capacity:
        try:
            opened = len(os.listdir("/dev/fd"))
        except OSError:  # /proc may be hidden
            opened = SPARE_DESCRIPTORS
        # The memory that is free, or the limit of this process's cgroup if that is less.
        limits = [memory_limit_bytes()]
        with contextlib.suppress(OSError, psutil.Error):
            limits.append(psutil.virtual_memory().available)
        free_bytes = min((each for each in limits if each is not None), default=None)
        memory_bytes = None if free_bytes is None else int(free_bytes * MEMORY_SHARE)
        return cls(_soft_limit("NOFILE"), memory_bytes, _free_tasks(), opened=opened)

    def learn(self, cell_runs: Sequence[CellRun]) -> None:
        """Take the memory of cells from their memory launches."""
        for side in (side for cell_run in cell_runs for side in cell_run.sides):
            latest = side.of("memory")[-1:]
            points = [point.pss_bytes or point.rss_bytes for launch in latest for point in launch.memory]
            nodeid = side.cell.nodeid
            self._known[nodeid] = max([self._known.get(nodeid, 0), *points])

    def needed(self, side: CellRun, roles: Sequence[LaunchRole]) -> Needed:
        """What these launches of a cell or of its reference need."""
        cell = side.cell
        bare = BARE_BYTES * (1 if cell.executor.kind in _IN_ONE else 1 + cell.workers)
        own = self._known.get(cell.nodeid) or bare + WORKLOAD_BYTES
        memory_bytes = sum(bare if role == "control" else own for role in roles)
        return Needed(len(roles), memory_bytes, len(roles) * (TASKS + cell.workers))

    def batches(self, cell_runs: Sequence[CellRun], needs: Callable[[CellRun], Needed]) -> list[list[CellRun]]:
        """The cells in their order, split so that each part fits; a cell that is too large for itself is alone."""
        found: list[list[CellRun]] = []
        alive = Needed()
        for cell_run in cell_runs:
            alive = total([alive, needs(cell_run)])
            if not found or self.lacking(alive):
                found.append([])
                alive = needs(cell_run)
            found[-1].append(cell_run)
        return found

    def lacking(self, needed: Needed) -> str:
        """Why so much cannot be alive together; empty if it can."""
        if self.launches is not None and needed.launches > self.launches:
            files = f"this process may open {self.descriptors} files (`ulimit -n`)"
            return f"{files}, which suffice for {self.launches} launch{'es' if self.launches != 1 else ''}"
        if self.memory_bytes is not None and needed.memory_bytes > self.memory_bytes:
            return f"all launches together would need more than {self.memory_bytes >> 20} MiB, half of the free memory"
        if self.tasks is not None and needed.tasks > self.tasks:
            return f"{self.tasks} processes and threads can be started (`ulimit -u`, or the container's limit)"
        return ""


def _soft_limit(name: str) -> int | None:
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    soft, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
    return None if soft == resource.RLIM_INFINITY else soft


def _free_tasks() -> int | None:
    """The processes and threads that this user, and this process's cgroup, may still start; None without a limit."""
    free = []
    most = _soft_limit("NPROC")
    if most is not None and os.geteuid() != 0:  # it does not hold for root
        tasks = 0
        with contextlib.suppress(OSError, psutil.Error):  # /proc may be hidden
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error):
                    tasks += process.num_threads() if process.uids().real == os.getuid() else 0
        free.append(most - tasks)
    for folder in cgroup_folders(ROOT, "pids"):
        limit, used = ((read_text(folder / f"pids.{name}") or "").strip() for name in ("max", "current"))
        if limit.isdigit() and used.isdigit():
            free.append(int(limit) - int(used))
    return max(1, min(free) - SPARE_TASKS) if free else None


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


# ---- which launches of a cell are interleaved


BARE_LOCKS = 6
"""Launches with the lock probe that have a bare one beside them even where the time is decided."""


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
