"""What was measured of each cell of a run, and whether the cells agree on their results."""

from __future__ import annotations

import contextlib
import hashlib
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ..model import EVERYTHING, Cell, Environment, Interpreter, Launch, Need, Sample, Spec, Struct, WorkloadError
from .budget import TimeIsUp
from .launch import CellUnsupported, LaunchRole, error_of

FloorKey: TypeAlias = tuple[str, str, str, int, str, tuple[tuple[str, str], ...]]
"""The interpreter, the target, the executor, the number of workers, their reuse, and the environment variables."""

Family: TypeAlias = tuple[str, str, Environment]

ROLES: dict[LaunchRole, str] = {
    "own": "",
    "control": "its control workload ",
    "locks": "with the lock probe: ",
    "empty": "an empty workload in its place ",
    "profile": "while its stacks were sampled: ",
}
"""The roles in the order in which they start, and what a reason begins with where such a launch failed."""


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


class Reference(Struct, frozen=True, kw_only=True):
    """What a cell is paired with: the test as the reference has it, and the target with the reference installed.

    `cell` is the cell itself, but for the target of a reference that has another interpreter.
    """

    cell: Cell
    spec: Spec
    target: PreparedTarget


class CellRun:
    """One cell while it is measured: what it runs, which launches it still needs, and the launches so far."""

    def __init__(self, cell: Cell, target: PreparedTarget, spec: Spec, reference: Reference | None = None) -> None:
        self.cell = cell
        self.target = target
        self.spec = spec
        self.is_reference = False
        self.started_first: CellRun | None = None
        self.reference: CellRun | None = None
        if reference is not None:
            self.reference = CellRun(reference.cell, reference.target, reference.spec)
            self.reference.is_reference = True
        self.needs: frozenset[Need] = EVERYTHING
        self.launches: list[Launch] = []
        self.control: list[Launch] = []
        self.locks: list[Launch] = []
        self.memory: list[Launch] = []
        self.floor: list[Launch] = []
        self.growth: list[Launch] = []
        self.growth_floor: list[Launch] = []
        self.begun = 0
        self.error: WorkloadError | None = None
        self.locks_error: WorkloadError | None = None
        self.unsupported: str | None = None

    @property
    def paired(self) -> bool:
        """Whether it is one of a cell and its reference: of these only what is judged is measured."""
        return self.is_reference or self.reference is not None

    @property
    def informs(self) -> bool:
        """Whether its memory launches also show what is not judged: growth, floor, and what sampling costs."""
        return "growth" in self.needs and not self.paired

    @property
    def alive(self) -> bool:
        """Whether this cell can still be measured."""
        return self.error is None and self.unsupported is None

    @property
    def probed(self) -> bool:
        """Whether the runner is in its processes, to stop workers at barriers and to probe locks; not in a program."""
        return self.cell.executor.program is None

    @property
    def can_grow(self) -> bool:
        """Whether memory can stay from one iteration to the next: a worker process that ends returns all of it."""
        executor = self.cell.executor
        ends = (executor.kind == "processes" or executor.in_processes) and self.spec.reuse == "fresh"
        return self.probed and not ends

    @property
    def frees_at_once(self) -> bool:
        """Whether the interpreter frees memory at once: then every launch shows growth."""
        return not self.target.interpreter.free_threaded

    @property
    def floor_key(self) -> FloorKey:
        """Cells that have this in common have the same memory without a workload."""
        cell = self.cell
        return (
            self.target.python,
            cell.target.spec,
            cell.executor.label,
            cell.workers,
            self.spec.reuse,
            cell.environment.variables,
        )

    @property
    def with_reference(self) -> list[CellRun]:
        """The cell, and its reference if it has one."""
        return [self] if self.reference is None else [self, self.reference]

    @property
    def family(self) -> Family:
        """What the cells of one executor, target and environment share, whatever their worker count."""
        return self.cell.target.spec, self.cell.executor.label, self.cell.environment

    @property
    def longest_ns(self) -> float:
        """The longest iteration of the latest launch; 0 before the first launch."""
        walls = (float(iteration.wall_ns) for launch in self.launches[-1:] for iteration in launch.iterations)
        return max(walls, default=0.0)

    @property
    def call_ns(self) -> float:
        """What one call of the body takes in every worker; 1 ms before the first launch."""
        calls = [iteration.work_ns / launch.loops for launch in self.launches[-1:] for iteration in launch.iterations]
        return max(1.0, statistics.median(calls or [1e6]))

    def require(self, needs: frozenset[Need]) -> None:
        """Set the kinds of launches that are still needed.

        A program has no lock launches, nor has a cell of which one failed, its own or its reference's.
        """
        self.needs = needs if self.probed else needs - {"locks"}
        self.without_locks()

    def without_locks(self) -> None:
        """Need no more lock launches if one has failed."""
        if any(side.locks_error for side in self.with_reference):
            self.needs -= {"locks"}

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
        except TimeIsUp:
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
        self.locks.clear()

    def usable(self, role: LaunchRole) -> bool:
        """Whether a launch of this role can still be measured."""
        return self.alive and not (role == "locks" and self.locks_error)

    def launches_of(self, role: LaunchRole) -> list[Launch]:
        """The launches of a role that is interleaved."""
        return {"own": self.launches, "control": self.control, "locks": self.locks}[role]

    def sample(self, single: CellRun | None = None) -> Sample:
        """All of it, frozen; `single` is the one-worker cell of the same executor and target."""
        reference = None
        if self.reference is not None:
            reference = self.reference.sample(single.reference if single else None)
        return Sample(
            reuse=self.spec.reuse,
            duration_s=self.spec.duration_s,
            measures=measures(self.cell, self.spec),
            cell=self.cell,
            interpreter=self.target.interpreter,
            key=self.target.key,
            launches=tuple(self.launches),
            control=tuple(self.control),
            locks=tuple(self.locks),
            memory=tuple(self.memory),
            floor=tuple(self.floor),
            growth=tuple(self.growth),
            growth_floor=tuple(self.growth_floor),
            single=tuple(single.launches) if single else (),
            single_control=tuple(single.control) if single else (),
            error=self.error,
            locks_error=self.locks_error,
            unsupported=self.unsupported,
            begun=self.begun,
            reference=reference,
        )


def results_of(cell_run: CellRun) -> frozenset[str]:
    """Every distinct result that the launches of a cell gave."""
    return frozenset(result for launch in cell_run.launches for result in launch.results)


def disagreements(cell_runs: Sequence[CellRun]) -> list[tuple[CellRun, WorkloadError]]:
    """Cells whose results differ from the other cells', or from one iteration to the next.

    The result of most cells counts as right; in a tie, the result of the first cell. Cells with another number of
    workers or another environment may give another result.
    """
    groups: dict[object, list[CellRun]] = {}
    for each in cell_runs:
        groups.setdefault((each.cell.workers, each.cell.roles, each.cell.environment), []).append(each)
    return [disagreement for group in groups.values() for disagreement in _disagreements(group)]


def _disagreements(cell_runs: Sequence[CellRun]) -> list[tuple[CellRun, WorkloadError]]:
    fix = "If it may differ, assert what must hold with @test.check, or return nothing."
    errors = []
    steady = [each for each in cell_runs if len(results_of(each)) == 1]
    counted = Counter(next(iter(results_of(each))) for each in steady)
    right = counted.most_common(1)[0][0] if counted else None
    for cell_run in cell_runs:
        results = sorted(results_of(cell_run))
        if len(results) > 1:
            shown = "\n".join(f"  {result}" for result in results[:4])
            reason = f"gave {len(results)} different results from one iteration to the next"
            errors.append((cell_run, WorkloadError(reason=reason, detail=f"{shown}\n{fix}")))
        elif results and results[0] != right:
            detail = f"  here:      {results[0]}\n  elsewhere: {right}\n{fix}"
            errors.append((cell_run, WorkloadError(reason="gave another result than the other cells", detail=detail)))
    return errors


def measures(cell: Cell, spec: Spec) -> str:
    """A short digest of what a cell's program is asked to do and with what; empty for a body without requirements.

    Another command line, load, requirement, environment or pinning is another measurement, so its figures cannot be
    compared.
    """
    program, environment = cell.executor.program, cell.environment.variables
    if program is None and not (spec.requires or environment or spec.cpus):
        return ""
    requested: list[object] = [program and (program.argv, program.environment)]
    requested += [spec.service, spec.requires, spec.window_s]
    if environment or spec.cpus:  # left out where there is neither: digests that are stored stay valid
        requested += [environment, spec.cpus]
    return hashlib.sha256(repr(requested).encode()).hexdigest()[:16]
