"""What one launch measured, and the sample of a cell."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ..kit.values import Count, Figure, Natural, Rate, Struct, grouped
from .spec import Cell, Executor, Interpreter, Reuse

if TYPE_CHECKING:  # numpy is imported where it is used: the metric table reads this module
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

Need = Literal["time", "control", "locks", "observed", "memory", "growth"]
"""A kind of launch: a decision names the kinds that it still needs. `control` is a control workload beside the timing
launch, `growth` what is read beside memory: how it grows, and where nothing is paired what sampling costs."""
IN_PAIRS: frozenset[Need] = frozenset(("time", "locks", "observed", "memory", "growth"))
EVERYTHING: frozenset[Need] = IN_PAIRS | {"control"}
NS_PER_S = 1e9
Role = Literal["time", "control", "locks", "observed", "memory", "empty", "growth", "growth_empty", "profile", "loaded"]
"""What a launch of a cell was for, see `Launch`."""
MEASURED: tuple[Role, ...] = ("time", "locks", "memory", "growth")
"""Those in which the cell itself was measured."""
WaitsFor = Literal["lock", "queue"]


class Latency(Struct, frozen=True, kw_only=True):
    """Response times of the requests of a window in ns, as the load generator measured them.

    `errors` are requests that failed or were answered with an error. `asked_per_s` is the constant rate of the load:
    times then count from when a request was due. 0: there was none.
    """

    mean_ns: Figure
    p50_ns: Figure
    p95_ns: Figure
    p99_ns: Figure
    max_ns: Figure
    errors: Natural = 0
    asked_per_s: Figure = 0.0


class Iteration(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One iteration (or one window of a duration) of one launch.

    wall_ns = start_ns + work_ns + join_ns; the last is, of workers that are kept, until all have reported. `ops` counts
    body calls over all workers (of the leading role, where there are roles), or a server's answers; `rate` is
    operations per second over the measured window. `slowest` is what a call takes in the slowest worker over the median
    one; 0: of one worker. `latency` is a server's alone.
    """

    wall_ns: Natural
    work_ns: Natural
    start_ns: Natural = 0
    join_ns: Natural = 0
    cpu_ns: Natural = 0
    ops: Natural = 0
    rate: Rate = 0.0
    slowest: Rate = 0.0
    latency: Latency | None = None


class Timer(Struct, frozen=True, kw_only=True):
    """A workload's own timer, summed over workers and iterations."""

    count: Natural
    total_ns: Natural
    max_ns: Natural


class Footprint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The memory of a part of the process tree in one sample; None where the platform has no such figure.

    `written_bytes` is the part of USS that was written to. The rest are clean pages of files, such as the interpreter's
    own code, which count as unique only while no other process runs the same interpreter.
    """

    rss_bytes: Natural
    uss_bytes: Natural | None
    pss_bytes: Natural | None
    processes: Natural
    written_bytes: Natural | None = None

    @property
    def steadiest_bytes(self) -> int | None:
        """The written part of USS where the platform reports it, else USS."""
        return self.uss_bytes if self.written_bytes is None else self.written_bytes


class MemoryPoint(Footprint, frozen=True, kw_only=True):
    """One sample of the process tree from outside: the sum over the tree, and over the processes of each role.

    `roles` maps the group of a process to its part: `main` (the measured process, with the workers that are threads in
    it), `workers` (worker processes), `servers` (multiprocessing's forkserver, a Manager) and `others`.
    `unshared_bytes` are the pages of their parents that forked processes have made their own, read at the end of a
    hold; None elsewhere, and without a forked process.
    """

    at_ns: int = 0
    roles: dict[str, Footprint] = {}
    unshared_bytes: Natural | None = None


class Barrier(Struct, frozen=True, kw_only=True):
    """A sample at a barrier: an iteration of `ops` body calls has ended, garbage is collected, all workers wait."""

    ops: Natural
    point: MemoryPoint


class SamplingCost(Struct, frozen=True, kw_only=True):
    """Sampling overhead: ns per operation in windows of one launch, in pairs of a bare and a sampled one.

    Both tuples have the same length; `watched_ns[i]` (sampled) and `bare_ns[i]` are of adjacent windows.
    """

    bare_ns: tuple[float, ...] = ()
    watched_ns: tuple[float, ...] = ()


NATIVE_LOCK = "lock ("


class Waits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the workers' threads did while they were sampled from outside, in thread-seconds.

    `span_s` is the sampled time times the number of threads. Running and runnable come from the scheduler, the rest
    from samples of the sleeping threads: `gil_s` waiting for the GIL, `futex_s` in a futex private to the process (a
    lock, also one inside the interpreter), `process_s` waiting for another process (a shared semaphore, a pipe, a local
    socket), `asleep_s` anything else (sleep, network, disk). `unavailable` says why there are no samples: then these
    four are 0, and the others hold what the system reports without samples; on systems other than Linux only `cores`.
    `native` are the parts of `futex_s` by the function that waits, as its stack says (see measure/watch/native.py).
    What begins with NATIVE_LOCK may be a lock of `threading`.
    `cores` maps a process (`main`, `worker 0`, `forkserver`, `Manager`; in a server's tree `main`, then by pid the
    name of each or `child 0`) to its CPU time over the sampled time.
    `gil_waits` are single waits for the GIL by length: a bucket of ns (see runner/locks/sites.py) to an estimated
    weight. `gil_unended` is the weight of waits too long to be followed; together they are the number of waits whose
    end was observed. `gil_sampling_ns` is the shortest sampling interval: much shorter waits are not observed.
    `gil_max_ns` is the longest wait that was followed, a lower bound.
    """

    span_s: float = 0.0
    running_s: float = 0.0
    runnable_s: float = 0.0
    gil_s: float = 0.0
    futex_s: float = 0.0
    process_s: float = 0.0
    asleep_s: float = 0.0
    samples: int = 0
    watched_s: float = 0.0
    voluntary_switches: int = 0
    involuntary_switches: int = 0
    native: dict[str, float] = {}
    cores: dict[str, float] = {}
    gil_waits: dict[int, float] = {}
    gil_unended: float = 0.0
    gil_sampling_ns: int = 0
    gil_max_ns: int = 0
    unavailable: str = ""

    @property
    def looks(self) -> float:
        """How often each thread was sampled."""
        return self.samples * self.watched_s / self.span_s if self.span_s > 0 else 0.0


class Function(Struct, frozen=True, kw_only=True):
    """A function of Python code: its file, its first line (0: unknown), and its qualified name."""

    file: str
    line: int
    name: str


class LockHolder(Struct, frozen=True, kw_only=True):
    """Waits in one line for a lock that another line holds: the lines of the `with` or `acquire`.

    `waited_ns` is the sum of these waits; `held` maps a bucket of ns (see LockSite) to how often it was held so long
    while others waited.
    """

    file: str
    line: Natural
    function: str
    waiter_file: str
    waiter_line: Natural
    waited_ns: Natural
    held: dict[Natural, Count] = {}


class LongestHeld(Struct, frozen=True, kw_only=True):
    """The lock of a site that was held longest in the iterations that count acquisitions.

    `held_ns` is the sum of its `holds`, `by` the line that held it most. `takers` are the threads or tasks that took
    one of the site's locks in an iteration: those of the lock with most.
    """

    held_ns: Natural
    holds: Count
    by: Function
    takers: Count


class LockSite(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The waits at one creation site of one launch, merged over its threads, processes and interpreters.

    `histogram` maps a bucket (see runner/locks/sites.py: sixteen to an octave of ns) to waits in it; `acquisitions`
    counts all acquisitions of the iterations that count them, None if none does; `holders` are those of the waits in
    these iterations. `waits_for` is `queue` for an item, an event or a permit, `lock` for a lock that another holds.
    `longest` is None too where the ends of its holds were not seen.
    """

    file: str
    line: Natural
    kind: str
    waits_for: WaitsFor
    name: str = ""
    contended: Natural = 0
    total_ns: Natural = 0
    max_ns: Natural = 0
    histogram: dict[Natural, Count] = {}
    acquisitions: int | None = None
    holders: tuple[LockHolder, ...] = ()
    longest: LongestHeld | None = None


class LockWaits(Struct, frozen=True, kw_only=True):
    """What the lock probe of one launch recorded in its measured iterations.

    `work_ns` (from the workers' common release until the last has finished) and `ops` are sums over the measured
    iterations, `counted_ops` are the body calls of the iterations that count acquisitions (0: none does), which took
    `counted_ns`. `thread_ns` is the part of that time that each thread lived, summed over threads; 0 where only the
    workers' is known.
    """

    work_ns: Natural
    thread_ns: Natural = 0
    ops: Natural
    counted_ops: Natural = 0
    counted_ns: Natural = 0
    sites: tuple[LockSite, ...] = ()


class StackSamples(Struct, frozen=True, kw_only=True):
    """So many samples with the same functions on a worker's stack, the outermost first, each once.

    `functions` are indices. Samples of one `block` (an iteration, or a part of a long one) depend on each other.
    """

    block: int
    functions: tuple[int, ...]
    count: int


class Profile(Struct, frozen=True, kw_only=True):
    """The stacks of a launch's workers, sampled at random moments while they were at work."""

    functions: tuple[Function, ...] = ()
    samples: tuple[StackSamples, ...] = ()
    cut: bool = False
    """Whether the stacks of a process filled the space for them: its later iterations were not sampled."""


class Held(Struct, frozen=True, kw_only=True):
    """What a line has allocated, in all processes of a launch: the bytes held while their workers are at work.

    `text` is the line itself, empty where it cannot be read: then `file` says what allocates. `error` is the standard
    error of `bytes`, `left` what each call of the body leaves behind of it: None where that is not known.
    """

    file: str
    line: int
    text: str
    bytes: float
    error: float = 0.0
    left: float | None = None


class Import(Struct, frozen=True, kw_only=True):
    """A module that a worker imports: what takes it itself, with all that it imports, and the module that imports it.

    `importer` is empty for what no module imports.
    """

    name: str
    own_ns: Natural
    all_ns: Natural
    importer: str = ""


class Loads(Struct, frozen=True, kw_only=True):
    """What the processes of a launch hold by line, which modules they have, and what its workers import.

    Either lines or imports are there: tracing takes time.
    """

    lines: tuple[Held, ...] = ()
    modules: tuple[str, ...] = ()
    imports: tuple[Import, ...] = ()


class Launch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The results of one fresh interpreter: the unit of replication. Launches of the same `order` were interleaved.

    `role` is what it was for: `time` (bare), `control` (the control workload beside it), `locks` (with the lock probe),
    `observed` (with the observers of features, whose counters, timers and peaks stand in place of the workload's own),
    `memory` (its workers held at work), `empty` (an empty workload in the same cell), `growth` (many barriers, where
    the allocator returns freed memory at once), `growth_empty` (the same of an empty workload; there is no growth if
    workers end with each iteration), `profile` (the stacks of its workers sampled) or `loaded` (what its processes hold
    and import).
    `window_ns` is set if iterations are windows of a duration: their value is then the time of one operation.
    A timing launch has `iterations`, and `peak_bytes`: what its process had written to at most meanwhile, where the
    kernel tells and the workers are no processes. A lock launch has `iterations` and `locks`, a profile launch
    `iterations` and `profile`, one of what is loaded `loads`. `start_ns` and `join_ns` are what starting workers that
    are kept took, until all were ready, and ending them; None where each iteration starts its own. A memory launch has
    `memory` (samples while all workers are held at work), `dropped` (how often a look at its memory fell on a process
    that ended or was being replaced, or missed a worker, and gave no sample), `barriers`, `sampling_cost` and `waits`.
    `results` are the different ones of the iterations that were compared, `result_counts` how many gave each; none
    where that is not known.
    """

    role: Role = "time"
    order: int = 0
    hash_seed: int = 0
    started_at: str = ""
    loops: Count = 1
    window_ns: Natural = 0
    cold: Iteration | None = None
    start_ns: Natural | None = None
    join_ns: Natural | None = None
    iterations: tuple[Iteration, ...] = ()
    counters: dict[str, Figure] = {}
    timers: dict[str, Timer] = {}
    peaks: dict[str, Figure] = {}
    peak_bytes: Natural | None = None
    memory: tuple[MemoryPoint, ...] = ()
    dropped: Natural = 0
    barriers: tuple[Barrier, ...] = ()
    sampling_cost: SamplingCost | None = None
    waits: Waits | None = None
    locks: LockWaits | None = None
    profile: Profile | None = None
    loads: Loads | None = None
    gil_enabled: bool = False
    results: tuple[str, ...] = ()
    result_counts: tuple[Count, ...] = ()

    def per_call(self, counter: str) -> float | None:
        """A counter per call of the body; None without it."""
        calls = sum(iteration.ops for iteration in self.iterations)
        return self.counters[counter] / calls if counter in self.counters and calls else None

    def ratio(self, counter: str, other: str) -> float | None:
        """A counter over another; None without one."""
        whole = self.counters.get(other)
        return self.counters.get(counter, 0.0) / whole if whole else None

    def mean(self, timer: str) -> float | None:
        """The mean of a timer in ns; None without it."""
        known = self.timers.get(timer)
        return known.total_ns / known.count if known and known.count > 0 else None


def outcomes(launches: Iterable[Launch]) -> list[tuple[str, int]]:
    """The different results in their order, each with the number of iterations that gave it, 0 where that is unknown.

    It is known where it is of all launches.
    """
    known, counts = True, Counter[str]()
    for launch in launches:
        known = known and len(launch.result_counts) == len(launch.results)
        counts.update(dict(zip(launch.results, launch.result_counts or (0,) * len(launch.results), strict=True)))
    return [(result, counts[result] if known else 0) for result in sorted(counts)]


class WorkloadError(Struct, frozen=True, kw_only=True):
    """Why a cell could not be measured: a one-line reason, and the workload's own output.

    `launch` is the number of launches that had begun when one failed so; 0 where it is not the failure of a launch.
    """

    reason: str
    detail: str = ""
    launch: int = 0


Keep: TypeAlias = Callable[[bytes], Callable[[], bytes]]
"""Keeps bytes somewhere; what it returns gives them back."""
ByRound: TypeAlias = Mapping[int, float]
"""Launch order, which is that of its round -> value; launches without a value are left out."""


def in_memory(data: bytes) -> Callable[[], bytes]:
    """Keeps bytes in memory."""
    return lambda: data


class Packed:
    """Launches that stay encoded until they are asked for, with the values that were read of them."""

    def __init__(self, launches: bytes, known: Mapping[str, ByRound], measured_ns: int, keep: Keep) -> None:
        self._launches = keep(launches)
        self._known = keep(msgspec.msgpack.encode(known)) if known else None
        self.measured_ns = measured_ns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed) and self._launches() == other._launches()

    __hash__ = None  # type: ignore[assignment]

    def raw(self) -> msgspec.Raw:
        """The launches as JSON."""
        return msgspec.Raw(self._launches())

    def launches(self) -> tuple[Launch, ...]:
        return msgspec.json.decode(self._launches(), type=tuple[Launch, ...])

    def known(self) -> dict[str, ByRound]:
        """Metric -> the values that were read."""
        return {} if self._known is None else msgspec.msgpack.decode(self._known(), type=dict[str, dict[int, float]])


class Sample(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True, gc=True):
    """All launches of one cell in this run.

    `launches` are of every role, those of one role in the order in which they ended. `reuse` and `duration_s` are the
    spec's: they decide which stored launches these can be compared with. `measures` identifies the request to programs
    and servers. `locks_error` says why there are no lock launches although the cell was measured: one of them failed.
    `begun` counts the launches of the workload itself that have begun, also those that failed. `reference` is the same
    cell of the other revision, interleaved with this one.
    """

    cell: Cell
    interpreter: Interpreter
    key: str
    all_launches: tuple[Launch, ...] = msgspec.field(default=(), name="launches")
    error: WorkloadError | None = None
    locks_error: WorkloadError | None = None
    unsupported: str | None = None
    reuse: Reuse = "fresh"
    duration_s: float | None = None
    measures: str = ""
    begun: int = 0
    reference: Sample | None = None

    @property
    def _packed(self) -> Packed | None:
        """What stands in place of the launches of a sample that is `packed`."""
        kept: object = self.all_launches
        return kept if isinstance(kept, Packed) else None

    def packed(self, keep: Keep = in_memory, public: Callable[[bytes], bytes] = bytes) -> Sample:
        """The same with launches that stay encoded, as `public` makes them; only `raw` can be encoded."""
        reference = self.reference and self.reference.packed(keep, public)
        launches: Any = self.all_launches
        if launches and not self._packed:
            launches = Packed(public(msgspec.json.encode(launches)), self.known, self.measured_ns, keep)
        return msgspec.structs.replace(self, all_launches=launches, reference=reference)

    def raw(self) -> Sample:
        """The same, fit to be encoded."""
        reference, launches = self.reference and self.reference.raw(), self._packed
        if launches is None and reference is self.reference:
            return self
        encoded: Any = launches.raw() if launches else self.all_launches
        return msgspec.structs.replace(self, all_launches=encoded, reference=reference)

    def unpacked(self) -> Sample:
        """The same with its own launches at hand."""
        return self if self._packed is None else msgspec.structs.replace(self, all_launches=self._packed.launches())

    @property
    def known(self) -> dict[str, ByRound]:
        """Metric -> the values that were read of its launches: `Values` adds what it reads."""
        found: dict[str, ByRound] = self._packed.known() if self._packed else self.__dict__.setdefault("known", {})
        return found

    @property
    def measured_ns(self) -> int:
        """The time of all iterations of the cell itself."""
        if self._packed:
            return self._packed.measured_ns
        own = (launch for role in MEASURED for launch in self.of(role))
        return sum(each.wall_ns for launch in own for each in (launch.cold, *launch.iterations) if each is not None)

    @cached_property
    def _by_role(self) -> dict[str, list[Launch]]:
        return grouped((launch.role, launch) for launch in self.all_launches)

    def of(self, role: Role) -> tuple[Launch, ...]:
        return tuple(self.unpacked()._by_role.get(role, ()))

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self.of("time")

    def with_launches(self, role: Role, launches: Iterable[Launch]) -> Sample:
        """The same with these launches of a role, in place of those it has."""
        kept = (launch for launch in self.unpacked().all_launches if launch.role != role)
        new = (msgspec.structs.replace(launch, role=role) for launch in launches)
        return msgspec.structs.replace(self, all_launches=(*kept, *new))

    @property
    def failed(self) -> bool:
        """Whether the cell could not be measured, or not be run at all."""
        return self.error is not None or self.unsupported is not None

    @property
    def no_locks(self) -> str:
        """Why it or its reference has no figures of locks, because a lock launch failed; empty if none did."""
        if self.locks_error is not None:
            return self.locks_error.reason
        return f"the reference: {self.reference.no_locks}" if self.reference and self.reference.no_locks else ""


def iteration_value(iteration: Iteration, loops: int, per_op: bool) -> float:
    """The time of one loop of an iteration in ns, or (`per_op`) of one operation over all workers; NaN without any."""
    # A window has a fixed length, so its wall time says nothing: 1 / rate is the time of an operation.
    if per_op:
        return NS_PER_S / iteration.rate if iteration.rate > 0 else math.nan
    return iteration.wall_ns / loops if loops > 0 and iteration.wall_ns > 0 else math.nan


def cpu_value(iteration: Iteration) -> float:
    """The CPU time of one operation in ns, of all processes: of a call of the body in one worker, or in a window."""
    return iteration.cpu_ns / max(1, iteration.ops)


class Columns:
    """The iterations of the launches of one role, of several samples at once, as arrays of a row for each launch.

    A row is NaN beyond the iterations of its launch. `spans` are the rows of each sample.
    """

    def __init__(self, samples: Iterable[Sequence[Launch]]) -> None:
        self.launches: list[Launch] = []
        self.spans: list[slice] = []
        for launches in samples:
            self.spans.append(slice(len(self.launches), len(self.launches) + len(launches)))
            self.launches += launches
        self.counts = [len(launch.iterations) for launch in self.launches]

    @cached_property
    def _fields(self) -> Sequence[Sequence[object]]:
        every = (each for launch in self.launches for each in launch.iterations)
        return [*zip(*map(msgspec.structs.astuple, every), strict=True)] or [()] * len(Iteration.__struct_fields__)

    @cached_property
    def _shown(self) -> NDArray[np.bool_]:
        """Where each launch has an iteration."""
        import numpy as np

        return np.arange(max(self.counts, default=0)) < np.array(self.counts, dtype=np.intp).reshape(-1, 1)

    def of(self, field: str) -> Floats:
        """A number of each iteration."""
        import numpy as np

        found = np.full(self._shown.shape, math.nan)
        found[self._shown] = np.array(self._fields[Iteration.__struct_fields__.index(field)], dtype=np.float64)
        return found

    @cached_property
    def loops(self) -> Floats:
        """The loops of each launch, as a column."""
        import numpy as np

        return np.array([float(launch.loops) for launch in self.launches]).reshape(-1, 1)

    @cached_property
    def windows(self) -> NDArray[np.bool_]:
        """Whether the iterations of each launch are windows, as a column."""
        import numpy as np

        return np.array([launch.window_ns > 0 for launch in self.launches], dtype=np.bool_).reshape(-1, 1)

    @cached_property
    def times(self) -> Floats:
        """The `iteration_value` of each iteration in ns."""
        import numpy as np

        wall = self.of("wall_ns")
        with np.errstate(divide="ignore", over="ignore"):
            found = np.where(wall > 0, wall / self.loops, math.nan)
            if self.windows.any():
                rate = self.of("rate")
                found = np.where(self.windows, np.where(rate > 0, NS_PER_S / rate, math.nan), found)
        return found

    @cached_property
    def costs(self) -> Floats:
        """The `cpu_value` of each iteration in ns; NaN where none was counted."""
        import numpy as np

        found = self.of("cpu_ns") / np.maximum(self.of("ops"), 1.0)
        return np.where(found > 0, found, math.nan)

    @cached_property
    def serves(self) -> bool:
        """Whether any iteration is a window of a server's answers."""
        return any(self._fields[Iteration.__struct_fields__.index("latency")])


# ---- related cells of a test


def one_worker_cell(cell: Cell, cells: Iterable[Cell]) -> Cell | None:
    """The cell with one worker that a cell's scaling refers to: of the same executor, target, parameters and
    environment."""
    alone = (each for each in cells if each.workers == 1)
    names = ("executor", "target", "params", "environment")
    return next((each for each in alone if all(getattr(each, name) == getattr(cell, name) for name in names)), None)


def executor_cell(cell: Cell, cells: Iterable[Cell], executor: Executor) -> Cell | None:
    """The cell of the reference executor that a cell's ratio refers to: on the same target, with as many workers.

    A command is measured once for all targets, and so is a server, whose first row names its target. A program that
    does not take the number of workers is measured once for all numbers.
    """
    for first in cells:
        same_target = executor.program is not None or first.target == cell.target
        same_count = not first.counted or (first.workers, first.roles) == (cell.workers, cell.roles)
        if first.executor == executor and same_target and same_count and first.environment == cell.environment:
            return first
    return None
