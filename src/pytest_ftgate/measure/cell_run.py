"""A cell while it is measured: its launches under way and those that it had, and whether cells agree on results."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from ..kit.hiding import slow_digest, without_secrets
from ..kit.text import plural
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
    outcomes,
)
from ..model.spec import WINDOW_S, Cell, Environment, Interpreter, Spec
from ..runner.protocol import CHECK, CHECKED_COLD, COLD, MEASURED
from .launch import (
    LAUNCHES,
    PROBED,
    CellUnsupported,
    Handle,
    LaunchRole,
    Request,
    StoppableHandle,
    error_of,
)
from .round_plan import OutOfTime, RoundPlan

EmptyKey: TypeAlias = tuple[str, str, str, int, str, tuple[tuple[str, str], ...]]
"""The interpreter, the target, the executor, the number of workers, their reuse, and the environment variables."""

EmptyLaunches: TypeAlias = dict[tuple[EmptyKey, Role], Launch]
"""Launches of empty workloads, with and without growth."""
Family: TypeAlias = tuple[str, str, Environment]
"""The target, the executor and the environment."""
OBSERVED_NS = 50_000_000
"""How long an observed iteration lasts at least: a shorter one holds no beat, and no collection of garbage."""
LONG_NS = 500_000_000
"""Iterations as long as this are so steady that few are needed, and none that only warms a launch up."""


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

    def __init__(
        self,
        cell: Cell,
        target: PreparedTarget,
        spec: Spec,
        reference: CellRun | None = None,
        observers: tuple[str, ...] = (),
        at_a_glance: bool = False,
    ) -> None:
        """`reference` is what it is paired with: the test as that has it, on the target where that is installed.

        `observers` are those of the metrics that are asked for, which a short iteration shows if it is `at_a_glance`.
        """
        self.cell = cell
        self.target = target
        self.spec = spec
        self.reference = reference
        self.observers = observers
        self.at_a_glance = at_a_glance
        self.is_reference = False
        if reference is not None:
            reference.is_reference, reference.observers, reference.at_a_glance = True, observers, at_a_glance
        self.sides = [self] if reference is None else [self, reference]
        self.started_first: CellRun | None = None
        self.all_launches: list[Launch] = []
        self.begun = 0
        self.error: WorkloadError | None = None
        self.locks_error: WorkloadError | None = None
        self.unsupported: str | None = None
        self.affords_growth: bool | None = None
        """Whether the time is enough for its growth: decided once, as few values of it decide nothing."""
        self.needs: frozenset[Need] = frozenset()
        self.require(EVERYTHING if reference is None else IN_PAIRS)

    def without_reference(self, target: PreparedTarget, spec: Spec) -> None:
        """Begin anew by itself: the test as it is there, on that target."""
        self.target, self.spec, self.reference, self.sides = target, spec, None, [self]
        self.all_launches, self.begun, self.error, self.locks_error = [], 0, None, None

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
        """Set the kinds of launches that are still needed of it and its reference.

        A program has no lock launches, nor has a cell of which one failed, its own or its reference's. Nothing is
        observed without observers.
        """
        locks = self.probed and not any(side.locks_error for side in self.sides)
        needs = (needs if locks else needs - {"locks"}) - (frozenset() if self.observers else {"observed"})
        for side in self.sides:
            side.needs = needs

    @contextlib.contextmanager
    def attribute_errors(self, role: LaunchRole = "own") -> Iterator[None]:
        """Record whatever goes wrong with a launch as this cell's error; the other cells go on.

        A failure of a lock launch voids the cell's figures of locks alone. Of several errors the first is kept.
        """
        try:
            yield
        except CellUnsupported as reason:
            if role == "locks":
                self._void_locks(WorkloadError(reason=f"{LAUNCHES[role].failed}unsupported: {reason}"))
            else:
                self.unsupported = str(reason)
        except OutOfTime:
            raise
        except Exception as failure:  # noqa: BLE001 -- also a mistake of ours costs this cell alone
            launch, told = self.begun if role == "own" else 0, error_of(failure)
            error = WorkloadError(reason=LAUNCHES[role].failed + told.reason, detail=told.detail, launch=launch)
            if role == "locks":
                self._void_locks(error)
            else:
                self.error = self.error or error

    def _void_locks(self, error: WorkloadError) -> None:
        self.locks_error = self.locks_error or error
        self.all_launches = [launch for launch in self.all_launches if launch.role != "locks"]

    def sample(self) -> Sample:
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
    alike = grouped(
        ((run.cell.workers, run.cell.roles, run.cell.environment), (run, outcomes(run.of("time")))) for run in cell_runs
    )
    for group in alike.values():
        counted = Counter(results[0][0] for _, results in group if len(results) == 1)
        right = counted.most_common(1)[0][0] if counted else None
        for cell_run, results in group:
            if len(results) > 1:
                often = sorted(results, key=lambda result_and_times: -result_and_times[1])[:4]
                shown = "\n".join(
                    f"  {result}" + f" ({plural(times, 'time')})" * (times > 0) for result, times in often
                )
                reason = f"gave {len(results)} different results from one iteration to the next"
                errors.append((cell_run, WorkloadError(reason=reason, detail=f"{shown}\n{fix}")))
            elif results and results[0][0] != right:
                reason = "gave another result than the other cells"
                detail = f"  here:      {results[0][0]}\n  elsewhere: {right}\n{fix}"
                errors.append((cell_run, WorkloadError(reason=reason, detail=detail)))
    return errors


def measures(cell: Cell, spec: Spec) -> str:
    """A digest of what a cell's program is asked to do and with what; empty for a body without requirements.

    Another command line, load, requirement, environment or pinning is another measurement, so its figures cannot be
    compared. Baselines hold it, and a value of it may be a secret: it is salted by the test's name, so that it is the
    same on every machine. Credentials of addresses are no part of it, as they change with each job of CI.
    """
    program, environment = cell.executor.program, cell.environment.variables
    if program is None and not (spec.packages or environment or spec.pin):
        return ""
    requested: list[object] = [program and (program.argv, program.environment)]
    requested += [spec.service, spec.packages, spec.window_s]
    requested += [environment, spec.pin]
    return slow_digest(without_secrets(repr(requested)), spec.nodeid)


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
        self.latest_wall_ns: int | None = None
        self.latest_work_ns: int | None = None
        self.warm_wall_ns: int | None = None
        """What its latest iteration took, measured or not, but for the cold one."""
        self.call_ns = 0.0
        """What one loop took, in the latest iteration that was not measured."""
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
    def next_ns(self) -> float:
        """What its next iteration takes, by its latest one or by its cell's latest launch; 0 if not known.

        The cold one tells nothing of it: it may be far longer.
        """
        of_cell = [] if self.request.stand_in else [iteration.wall_ns for iteration in self.cell_run.latest]
        return float(self.warm_wall_ns or min(of_cell, default=0))

    @property
    def has_results(self) -> bool:
        """Whether its results are compared: a window may have another number of calls each time."""
        return self.role == "own" and self.cell_run.probed and not self.plan.window_ns

    @property
    def loops(self) -> int:
        """The control workload is long enough for the clock by itself; what is observed takes longer than a time."""
        loops = 1 if self.role == "control" else self.plan.loops or 1
        brief = self.cell_run.at_a_glance or self.cell_run.spec.one_call
        if self.role != "observed" or not self.call_ns or self.plan.window_ns or brief:
            return loops
        return max(loops, math.ceil(OBSERVED_NS / self.call_ns))

    @property
    def window_ns(self) -> int:
        """The control workload is as steady in a short window, where the test asks for a long one."""
        window_ns = self.plan.window_ns
        return min(window_ns, round(WINDOW_S * 1e9)) if self.role == "control" else window_ns

    @property
    def warmups(self) -> int:
        """The control workload needs one, whatever the test asks for; the lock probe counts operations in its own, and
        that of an observed launch shows how many loops it needs.

        If a body is known to be long, nothing warms it up after the first round unless the test asks for it, or for how
        many workers its locks allow.
        """
        if self.role == "control":
            return 1
        if self.order and self.is_long and self.cell_run.spec.warmup is None:
            return int(self.role == "locks" and self.cell_run.spec.times_holds)
        return max(self.role in PROBED, self.plan.warmups)

    def unmeasured(self, kind: str, loops: int = 1) -> Iteration:
        # The join of one that compares results has their transfer in it, which loops must not count.
        checks = kind == CHECK
        iteration = self.handle.iteration(kind, loops, 0 if checks else self.window_ns)
        self.latest_wall_ns = iteration.wall_ns - (iteration.join_ns if checks else 0)
        self.latest_work_ns = iteration.work_ns
        self.warm_wall_ns = None if kind in (COLD, CHECKED_COLD) else self.latest_wall_ns
        self.call_ns = iteration.wall_ns / loops
        return iteration

    def measured(self) -> None:
        iteration = self.handle.iteration(MEASURED, self.loops, self.window_ns)
        self.warm_wall_ns = iteration.wall_ns
        self.values.append(iteration_value(iteration, self.loops, per_op=bool(self.plan.window_ns)))

    def barrier(self, loops: int, window_ns: int, *, collects: bool = False) -> Barrier:
        assert isinstance(self.handle, StoppableHandle)  # nobody asks for it of a command, see `CellRun.probed`
        return self.handle.barrier(loops, window_ns, collects=collects)

    def close(self) -> None:
        """Begin its end; nothing of a command is left to be ended."""
        if isinstance(self.handle, StoppableHandle):
            self.handle.close()

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
            order=self.order,
            hash_seed=self.request.hash_seed,
            started_at=self.started_at,
            **samples,
        )


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
    return timed + [role for role in PROBED if role in cell_run.needs]
