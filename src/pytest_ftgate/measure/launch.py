"""What measures drives launches through: a Launcher starts them, a Handle tells each what to do next."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from ..kit.errors import FtgateError
from ..kit.values import Struct
from ..model.report import first_line
from ..model.sample import Barrier, Iteration, Launch, MemoryPoint, Role, Waits, WorkloadError
from ..model.spec import Cell, Spec
from ..runner.control import BURN, EMPTY
from ..runner.protocol import CHECKED_COLD, COLD, HOLD, MEASURED, WARMUP

LaunchRole = Literal["own", "control", "locks", "observed", "empty", "profile", "loaded"]


class LaunchKind(NamedTuple):
    """What a kind of launch runs, and what becomes of it.

    A reason begins with `failed` where such a launch failed. It is `recorded` as that, unless its workers are held, and
    its seconds count as `seconds`. `stand_in` is the runner's workload that it runs in place of the cell's own. One
    that is `probed` disturbs the workload, and no time of it is read. Progress says what it `sees`.
    """

    failed: str
    recorded: Role
    seconds: str
    stand_in: str = ""
    probed: bool = False
    sees: str = ""


LAUNCHES: Final[Mapping[LaunchRole, LaunchKind]] = {
    "own": LaunchKind("", "time", "time"),
    "control": LaunchKind("its control workload ", "control", "controls", stand_in=BURN),
    "locks": LaunchKind("with the lock probe: ", "locks", "locks", probed=True, sees="probing the locks of"),
    "observed": LaunchKind("while it was observed: ", "observed", "observed", probed=True),
    "empty": LaunchKind("an empty workload in its place ", "empty", "memory", stand_in=EMPTY),
    "profile": LaunchKind("while its stacks were sampled: ", "profile", "explaining", sees="sampling the stacks of"),
    # Its memory is traced, or its imports are timed.
    "loaded": LaunchKind(
        "while its memory and imports were traced: ", "loaded", "explaining", sees="tracing the memory of"
    ),
}
"""In the order in which they start."""
PROBED: Final = tuple(role for role, kind in LAUNCHES.items() if kind.probed)
THREADS_FIX = 'End it in `@<test>.teardown("launch")`, or make it a daemon thread.'
SHOWN_FRAMES: Final = 6
LEFT_FIX = 'End what the workload starts in `@<test>.teardown("launch")`, or in an exit handler (atexit).'


class Request(Struct, frozen=True, kw_only=True):
    """One launch to start: a cell's workload, or the control or empty workload under the cell's executor."""

    cell: Cell
    spec: Spec
    python: str
    role: LaunchRole
    expect_gil: bool
    environment: dict[str, str]
    hash_seed: int
    padding: int
    timeout_s: float
    waits_unavailable: str = ""
    """Why threads' waits cannot be classified on this interpreter; empty where they can."""
    settled: bool = False
    """The allocator gives back at once what is freed, so that growth is the workload's and not that of caches."""
    reference: bool = False
    """A change is compared with it. It is started and measured like any other."""
    copies: tuple[str, ...] = ()
    """Modules of the project that are imported from site-packages even if its source folder is on sys.path."""
    reads: str = ""
    """A file in which the launch's processes note what they read (see runner/reads.py); nothing is timed then."""
    observers: tuple[str, ...] = ()
    """The files of what observes an observed launch (see runner/observing.py)."""
    sampling_ns: int = 0
    """The mean time between two samples of a profile launch."""
    loads: Literal["lines", "imports"] = "lines"
    """What is known of a loaded launch (see runner/loads.py)."""

    @property
    def stand_in(self) -> str:
        """The runner's name of the control or empty workload; empty for the workload itself."""
        return LAUNCHES[self.role].stand_in

    @property
    def callers(self) -> int:
        """How many workers' calls are operations: all, those of the leading role, or one where a body drives a pool."""
        if self.cell.body != "worker":
            return 1
        return self.cell.roles[0][1] if self.cell.roles and not self.stand_in else self.cell.workers


def request_here(cell: Cell, spec: Spec, python: str, timeout_s: float) -> Request:
    """A launch in which nothing is measured, such as a functional test: neither hash seed nor padding vary."""
    return Request(
        cell=cell,
        spec=spec,
        python=python,
        role="own",
        expect_gil=True,
        environment={},
        hash_seed=0,
        padding=0,
        timeout_s=timeout_s,
    )


def setup_of(cell: Cell, spec: Spec, *, stand_in: str = "", copies: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a worker needs to find its body, in plain JSON.

    A control or empty workload has no roles: all workers of the cell do the same.
    """
    switch_ns = cell.target.settings.switchinterval_ns
    # Folders with the sources of an installed module come after what is installed.
    behind = [
        entry
        for entry in spec.source.sys_path
        if any(Path(entry, name).is_dir() or Path(entry, f"{name}.py").is_file() for name in copies)
    ]
    return {
        "module": spec.source.module,
        "path": spec.source.path,
        "qualname": spec.source.qualname,
        "import_mode": spec.source.import_mode,
        "sys_path": [entry for entry in spec.source.sys_path if entry not in behind],
        "behind": behind,
        "adapter": spec.source.adapter,
        "kind": cell.executor.kind,
        "method": cell.executor.method,
        "name": cell.executor.name,
        "processes": cell.executor.in_processes,
        "workers": cell.workers,
        "roles": [] if stand_in else [list(role) for role in cell.roles],
        "shape": cell.body,
        "params": {param.name: param.literal for param in cell.params},
        "switch_s": switch_ns / 1e9 if switch_ns else None,
        "control": stand_in,
        "cpus": [],
        "gil_note": None,
        "stacks": None,
        "observers": [],
    }


class HeldIteration(Struct, frozen=True, kw_only=True):
    """An iteration in which the workers were held at work, and the samples of it; none where it was not sampled."""

    iteration: Iteration
    memory: tuple[MemoryPoint, ...] = ()
    dropped: int = 0
    """How often a look at its memory gave no sample."""
    waits: Waits | None = None


class LaunchFailed(Exception):
    """The workload failed in this launch; `error` says how."""

    def __init__(self, error: WorkloadError) -> None:
        super().__init__(error.reason)
        self.error = error


class Answered:
    """The iterations of a launch that are kept, as they were answered."""

    def __init__(self) -> None:
        self.cold: Iteration | None = None
        self.iterations: list[Iteration] = []
        self.warmed_ops = self.warmed_ns = 0

    def add(self, kind: str, iteration: Iteration) -> Iteration:
        """Checks and barriers leave no figures."""
        if kind in (COLD, CHECKED_COLD):
            self.cold = iteration
        if kind == WARMUP:
            self.warmed_ops += iteration.ops
            # Of one worker this is its own time, without that of waking it.
            self.warmed_ns += round(iteration.ops * 1e9 / iteration.rate) if iteration.rate else iteration.work_ns
        if kind in (MEASURED, HOLD):
            self.iterations.append(iteration)
        return iteration


def recorded(answered: Answered, record: dict[str, Any]) -> Launch:
    """The launch that a record says. Raises LaunchFailed for figures that are no finite numbers, or beyond reason."""
    try:
        iterations = {
            "cold": answered.cold and msgspec.to_builtins(answered.cold),
            "iterations": [msgspec.to_builtins(each) for each in answered.iterations],
        }
        return msgspec.convert(iterations | record, Launch)
    except msgspec.ValidationError as error:
        raise LaunchFailed(WorkloadError(reason=f"its figures cannot be used: {error}")) from error


def error_of(error: Exception) -> WorkloadError:
    """What is said of any exception: a failed launch says it itself, a mistake of ours has its last frames."""
    if isinstance(error, LaunchFailed):
        return error.error
    from ..runner.explain import DETAIL, capped  # runs without errors do without

    text = str(error)
    if isinstance(error, FtgateError):
        return WorkloadError(reason=first_line(text), detail=capped(text, DETAIL))
    lines = capped("".join(traceback.format_exception(error, limit=-SHOWN_FRAMES)).rstrip(), DETAIL)
    whose = "" if isinstance(error, OSError) else "a mistake of pytest-ftgate: "
    return WorkloadError(reason=whose + first_line(f"{type(error).__name__}: {text}"), detail=lines)


class CellUnsupported(Exception):
    """The executor cannot do what the workload asks."""


class Handle(Protocol):
    """A launch that is under way; it does nothing unless asked. A program has no other methods."""

    def ready(self) -> float:
        """Wait until the workload is imported; the clock's resolution there, in ns."""
        ...

    def iteration(self, kind: str, loops: int = 1, window_ns: int = 0) -> Iteration:
        """One iteration. Raises LaunchFailed or CellUnsupported."""
        ...

    def measure_held(self, window_ns: int, sampled: bool, one_ns: float = 0.0, share: float = 1.0) -> HeldIteration:
        """One iteration of at least `window_ns`, its memory and its threads' waits sampled from outside if `sampled`.

        With `one_ns`, the time of a call of the body, all workers stop after the same number of calls once the window
        has passed, since they may wait for each other in it; the window begins when their first calls are over. Of a
        body that is longer than the window there is one call. Without, each calls it until the window has passed.
        `share` is how much of the usual time that is, where a sample of memory takes long, too.
        """
        ...

    def finish(self) -> Launch:
        """Let the launch end by itself; its record, as far as the launch itself knows it.

        What only the caller knows is left to it: its order, hash seed, start and loops, and what was sampled.
        """
        ...

    def kill(self) -> None:
        """End it and everything it started. Safe at any time, also twice."""
        ...


@runtime_checkable
class StoppableHandle(Handle, Protocol):
    """One that lives on between iterations."""

    def close(self) -> None:
        """Begin `finish`, so that several launches end at the same time."""
        ...

    def barrier(self, loops: int, window_ns: int, *, collects: bool = False) -> Barrier:
        """One iteration that is not timed, and a sample of memory at its end, while all workers wait.

        With `collects` garbage is collected before the sample: what is left is what the body leaves behind.
        """
        ...


class Launcher(Protocol):
    """Starts launches."""

    def start(self, request: Request) -> Handle:
        """Start one; does not wait for it."""
        ...
