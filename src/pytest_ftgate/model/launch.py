"""What one launch measured, and the sample of a cell."""

from __future__ import annotations

import math
from typing import Literal

from .base import Count, Natural, Rate, Struct
from .spec import Cell, Interpreter, Reuse

Need = Literal["time", "locks", "memory"]
"""A kind of launch that a decision on a cell still waits for."""
EVERYTHING: frozenset[Need] = frozenset(("time", "locks", "memory"))
NS_PER_S = 1e9


ProcessGroup = Literal["main", "workers", "servers", "others"]
"""The processes of a launch by what they do."""
WaitsFor = Literal["lock", "queue"]


class Latency(Struct, frozen=True, kw_only=True):
    """How long a server took to answer the requests of a window, as the generator saw it; `errors` are requests that
    failed or were answered with an error."""

    mean_ns: float
    p50_ns: float
    p95_ns: float
    p99_ns: float
    max_ns: float
    errors: int = 0


class Iteration(Struct, frozen=True, kw_only=True):
    """One iteration (or one window of a duration) of one launch.

    wall_ns = start_ns + work_ns + join_ns. `ops` counts body calls over all workers (of the leading role, where there
    are roles), or a server's answers; `rate` is operations per second over the measured window. `latency` is a
    server's alone.
    """

    wall_ns: Natural
    work_ns: Natural
    start_ns: Natural = 0
    join_ns: Natural = 0
    cpu_ns: Natural = 0
    ops: Natural = 0
    rate: Rate = 0.0
    latency: Latency | None = None


class Timer(Struct, frozen=True, kw_only=True):
    """A workload's own timer, summed over workers and turns."""

    count: int
    total_ns: int
    max_ns: int


class Footprint(Struct, frozen=True, kw_only=True):
    """What a part of the process tree occupied at one look; None where the platform has no such figure.

    `written_bytes` is the part of USS that was written to: the rest are clean pages of files, such as the interpreter's
    own code, and whether these are unique depends on who else runs the same interpreter just then.
    """

    rss_bytes: Natural
    uss_bytes: Natural | None
    pss_bytes: Natural | None
    processes: Natural
    written_bytes: Natural | None = None

    @property
    def steadiest_bytes(self) -> int | None:
        """The written part of USS where the platform tells it apart, else USS."""
        return self.uss_bytes if self.written_bytes is None else self.written_bytes


class MemoryPoint(Footprint, frozen=True, kw_only=True):
    """One look at the process tree from outside: the sum over the tree, and over the processes of each role.

    `roles` maps a ProcessGroup to its part: `main` (the measured process, with the workers that are threads in it),
    `workers` (worker processes), `servers` (multiprocessing's forkserver, a Manager) and `others`.
    """

    at_ns: int = 0
    roles: dict[str, Footprint] = {}


class Barrier(Struct, frozen=True, kw_only=True):
    """A look at a fixed point: an iteration of `ops` body calls has ended, garbage is collected, all are parked."""

    ops: Natural
    point: MemoryPoint


class Looking(Struct, frozen=True, kw_only=True):
    """What being watched from outside cost: ns an operation in windows of one launch, one bare and one watched a pair.

    Both have the same length; `watched_ns[i]` and `bare_ns[i]` were neighbours in time.
    """

    bare_ns: tuple[float, ...] = ()
    watched_ns: tuple[float, ...] = ()


class Waits(Struct, frozen=True, kw_only=True):
    """Where the workers' threads were while they were watched from outside, in thread-seconds.

    `span_s` is the time watched times the threads; running and runnable are the scheduler's own account, the rest is
    what samples of the sleeping threads say: `gil_s` waiting for the GIL, `parked_s` in a futex private to the process
    (a lock, or what a lock is inside the interpreter), `process_s` for another process (a semaphore that is shared, a
    pipe, a local socket), `asleep_s` anything else (sleep, network, disk). `unavailable` says why there are no samples:
    then these four are 0, and the others what the system tells without them, off Linux `cores` alone.
    `cores` maps a process (`main`, `worker 0`, `forkserver`, `Manager`; of a server's tree `main`, then by pid what
    each calls itself or `child 0`) to its CPU time over the time watched.
    `gil_waits` are single waits for the GIL by length: a bucket of ns (see runner/locks/sites.py) to an estimated
    weight, `gil_unended` the weight of those longer than could be followed; together the number of waits that were seen
    to end. `gil_look_ns` is the pause between the looks that tell the shortest: of much shorter ones none was seen.
    `gil_max_ns` is the longest that was followed, a lower bound.
    """

    span_s: float = 0.0
    running_s: float = 0.0
    runnable_s: float = 0.0
    gil_s: float = 0.0
    parked_s: float = 0.0
    process_s: float = 0.0
    asleep_s: float = 0.0
    samples: int = 0
    watched_s: float = 0.0
    voluntary_switches: int = 0
    involuntary_switches: int = 0
    cores: dict[str, float] = {}
    gil_waits: dict[int, float] = {}
    gil_unended: float = 0.0
    gil_look_ns: int = 0
    gil_max_ns: int = 0
    unavailable: str = ""


class LockSite(Struct, frozen=True, kw_only=True):
    """The waits at one creation site of one launch, merged over its threads, processes and interpreters.

    `histogram` maps a bucket (see runner/locks/sites.py: sixteen to an octave of ns) to waits in it; `acquisitions`
    counts all acquisitions of the turn in which they were counted, None where they were not. `waits_for` is `queue`
    for an item, an event or a permit, `lock` for a lock that another holds.
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


class LockWaits(Struct, frozen=True, kw_only=True):
    """What the lock probe of one launch saw in its measured turns.

    `work_ns` (from the workers' common release until the last has finished) and `ops` are those of the measured turns
    together, `counted_ops` the body calls of the turns in which acquisitions were counted (0: none was).
    """

    work_ns: Natural
    ops: Natural
    counted_ops: Natural = 0
    sites: tuple[LockSite, ...] = ()


class Launch(Struct, frozen=True, kw_only=True):
    """What one fresh interpreter gave: the unit of replication.

    `window_ns` is set where turns are windows of a duration: there the time of one operation is the value.
    A timing launch has turns alone. A lock launch has turns and `locks`. A memory launch has `memory` (looks while all
    workers are held at work), `barriers`, `looking` and `waits`.
    """

    order: int = 0
    hash_seed: int = 0
    started_at: str = ""
    loops: Count = 1
    window_ns: Natural = 0
    cold: Iteration | None = None
    iterations: tuple[Iteration, ...] = ()
    counters: dict[str, float] = {}
    timers: dict[str, Timer] = {}
    peaks: dict[str, float] = {}
    memory: tuple[MemoryPoint, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    looking: Looking | None = None
    waits: Waits | None = None
    locks: LockWaits | None = None
    gil_enabled: bool = False
    results: tuple[str, ...] = ()


class WorkloadError(Struct, frozen=True, kw_only=True):
    """Why a cell could not be measured: a one-line reason and what the workload itself said."""

    reason: str
    detail: str = ""


class Sample(Struct, frozen=True, kw_only=True):
    """All launches of one cell in this run, with those of the candle that took turns with it.

    Launches of the same `order` took turns with each other: `launches` (bare), `candle`, `locks` (with the lock probe)
    and `single` (bare, the same cell with one worker; empty for the one-worker cell itself). `floor` are memory
    launches of an empty workload in the same cell. `growth` are launches of many barriers in which the allocator gives
    back at once what is freed, `growth_floor` the same of an empty workload; there are none where workers end with
    each iteration. `reuse` and `duration_s` are the spec's: they say which stored launches these can be compared with.
    `measures` tells apart what programs and servers were asked to do, see `plan.measures`. `reference` is the same cell
    of the revision that took turns with this one.
    """

    cell: Cell
    interpreter: Interpreter
    key: str
    launches: tuple[Launch, ...] = ()
    control: tuple[Launch, ...] = ()
    memory: tuple[Launch, ...] = ()
    locks: tuple[Launch, ...] = ()
    floor: tuple[Launch, ...] = ()
    growth: tuple[Launch, ...] = ()
    growth_floor: tuple[Launch, ...] = ()
    single: tuple[Launch, ...] = ()
    error: WorkloadError | None = None
    unsupported: str | None = None
    reuse: Reuse = "fresh"
    duration_s: float | None = None
    measures: str = ""
    reference: Sample | None = None

    @property
    def failed(self) -> bool:
        """Whether the cell could not be measured, or not be run at all."""
        return self.error is not None or self.unsupported is not None


def iteration_value(iteration: Iteration, loops: int, per_op: bool) -> float:
    """The time of one loop of a turn in ns, or of one operation over all workers; NaN if it has none.

    A window of a duration lasts as long as it was told to, so its own wall time compares nothing: 1 / rate does.
    """
    if per_op:
        return NS_PER_S / iteration.rate if iteration.rate > 0 else math.nan
    return iteration.wall_ns / loops if loops > 0 and iteration.wall_ns > 0 else math.nan


def work_ratio(sample: Sample) -> int:
    """How much more a turn value of the cell does than one of its one-worker cell.

    Each worker runs a body of its own; an executor's body does the same work whatever its workers, and the value of a
    window is that of one operation.
    """
    windows = any(launch.window_ns > 0 for launch in sample.launches)
    return sample.cell.workers if sample.cell.body == "worker" and not windows else 1
