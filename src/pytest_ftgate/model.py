"""The frozen words that travel down the house: Spec -> Plan -> Launch -> Sample -> Comparison -> Verdict -> Report."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec

ExecutorKind = Literal["serial", "threads", "processes", "interpreters", "tasks", "command", "server"]
StartMethod = Literal["fork", "forkserver", "spawn"]
Reuse = Literal["fresh", "pool"]
BodyKind = Literal["worker", "executor", "server"]
Generator = Literal["wrk", "oha"]
Role = Literal["main", "workers", "servers", "others"]
WaitsFor = Literal["lock", "queue"]


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every value here: immutable, keyword-only, strict when decoded."""


class Program(Struct, frozen=True, kw_only=True):
    """A program to start in place of a Python body, under its name in the test.

    The words of `argv` and `build` may hold the placeholders of `PLACEHOLDERS` and of the test's parameters. `build`
    is run once before the first launch. `pythons` are the targets that it is for, as users spell them; None: all.
    """

    name: str
    argv: tuple[str, ...]
    build: tuple[str, ...] = ()
    pythons: tuple[str, ...] | None = None
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def counted(self) -> bool:
        """Whether it is told a number of workers."""
        return any("{workers}" in word for word in (*self.argv, *(value for _, value in self.environment)))


class Executor(Struct, frozen=True, kw_only=True):
    """What runs the workers; `method` is the start method and is set for processes alone, `program` for programs."""

    kind: ExecutorKind
    method: StartMethod | None = None
    program: Program | None = None

    @property
    def label(self) -> str:
        """The word that stands in a cell's id: a program's name, the start method for processes, else the kind."""
        return self.program.name if self.program else self.method or self.kind


class Settings(Struct, frozen=True, kw_only=True):
    """What a target asks of its interpreter beyond the build; None leaves the interpreter's default."""

    gil: Literal["on", "off"] | None = None
    jit: Literal["on", "off"] | None = None
    switchinterval_ns: int | None = None


class Target(Struct, frozen=True, kw_only=True):
    """One interpreter and its settings, as the user spelled it: `3.14t[gil=on]`, or a path."""

    spec: str
    request: str
    settings: Settings = Settings()


class Interpreter(Struct, frozen=True, kw_only=True):
    """A target interpreter as it described itself."""

    executable: str
    version: str
    implementation: str
    free_threaded: bool
    gil_enabled: bool
    jit_available: bool
    jit_enabled: bool
    pgo: bool
    lto: bool
    shared: bool
    debug: bool
    compiler: str
    config_args: str
    found: str
    build: str
    start_methods: tuple[StartMethod, ...] = ()

    @property
    def name(self) -> str:
        """`3.14.7t`: the version with the free-threaded build's letter."""
        return self.version + ("t" if self.free_threaded else "")


class Param(Struct, frozen=True, kw_only=True):
    """One parametrized argument: its name and its value as a Python literal."""

    name: str
    literal: str


class Metric(StrEnum):
    """What may gate."""

    WALL = "wall"
    TAIL = "tail"
    USS = "uss"
    LOCK_WAIT = "lock_wait_share"
    SCALING = "scaling"
    RATIO = "ratio"
    CONTRACT = "contract"


class Threshold(Struct, frozen=True, kw_only=True):
    """What counts as a change of one metric, as declared; None leaves it to the next that says so.

    `margin` and `effect` are fractions of the reference, `floor` is in the metric's unit (s, bytes, a fraction of the
    time, x): the fail limit is (1 + margin) reference + floor.
    """

    metric: Metric
    margin: float | None = None
    effect: float | None = None
    floor: float | None = None


class Requirement(Struct, frozen=True, kw_only=True):
    """A contract as written beside a test: `threads.wall < 0.8 * processes[spawn].wall`, and the line it stands on."""

    text: str
    line: int = 0


class Source(Struct, frozen=True, kw_only=True):
    """Where the workload stands and how pytest imported it."""

    path: str
    line: int
    module: str
    qualname: str
    import_mode: str = "prepend"
    sys_path: tuple[str, ...] = ()


class Load(Struct, frozen=True, kw_only=True):
    """What a generator asks of a server: `path` over so many connections at once; None takes a generator that is there.

    `path` may hold the test's parameters as placeholders.
    """

    path: str
    connections: int
    generator: Generator | None = None


class Service(Struct, frozen=True, kw_only=True):
    """How a server is known to be ready (an answer at the URL `ready` that is no error), and the load on it."""

    ready: str
    load: Load


Crew = tuple[tuple[str, int], ...]
"""Names of roles with their numbers of workers; the first one leads: its calls are the operations."""


class Spec(Struct, frozen=True, kw_only=True):
    """What a decorated test declares, checked; durations in seconds.

    Where workers have roles, `crews` has the roles of each worker count in `workers`; else it is empty. `requires` are
    requirements installed beside the project, `needs` programs with the command that installs each.
    """

    nodeid: str
    source: Source
    body: BodyKind
    executors: tuple[Executor, ...]
    workers: tuple[int, ...]
    reuse: Reuse
    crews: tuple[Crew, ...] = ()
    pythons: tuple[str, ...] | None = None
    iterations: int | None = None
    duration_s: float | None = None
    window_s: float | None = None
    warmup: float | None = None
    timeout_s: float | None = None
    thresholds: tuple[Threshold, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    service: Service | None = None
    requires: tuple[str, ...] = ()
    needs: tuple[tuple[str, str], ...] = ()


class Cell(Struct, frozen=True, kw_only=True):
    """One executor x one target x one set of parameters of one test."""

    nodeid: str
    target: Target
    executor: Executor
    workers: int
    params: tuple[Param, ...] = ()
    body: BodyKind = "worker"
    roles: Crew = ()

    @property
    def label(self) -> str:
        """What stands between the brackets of the node id."""
        return self.nodeid.partition("[")[2].removesuffix("]")


class Unsupported(Struct, frozen=True, kw_only=True):
    """A cell that cannot be run here, with the reason and the mend."""

    cell: Cell
    reason: str


class Tandem(Struct, frozen=True, kw_only=True):
    """The cells that take turns: one test at one worker count with one set of parameters."""

    key: str
    spec: Spec
    cells: tuple[Cell, ...]


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that a run measures, in order, and what it cannot."""

    tandems: tuple[Tandem, ...]
    unsupported: tuple[Unsupported, ...] = ()


class Latency(Struct, frozen=True, kw_only=True):
    """How long a server took to answer the requests of a window, as the generator saw it; `errors` are requests that
    failed or were answered with an error."""

    mean_ns: float
    p50_ns: float
    p95_ns: float
    p99_ns: float
    max_ns: float
    errors: int = 0


class Turn(Struct, frozen=True, kw_only=True):
    """One iteration (or one window of a duration) of one launch.

    wall_ns = start_ns + work_ns + join_ns. `ops` counts body calls over all workers (of the leading role, where there
    are roles), or a server's answers; `rate` is operations per second over the measured window. `latency` is a
    server's alone.
    """

    start_ns: int
    work_ns: int
    join_ns: int
    wall_ns: int
    cpu_ns: int
    ops: int
    rate: float
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

    rss_bytes: int
    uss_bytes: int | None
    pss_bytes: int | None
    processes: int
    written_bytes: int | None = None

    @property
    def steadiest_bytes(self) -> int | None:
        """The written part of USS where the platform tells it apart, else USS."""
        return self.uss_bytes if self.written_bytes is None else self.written_bytes


class MemoryPoint(Footprint, frozen=True, kw_only=True):
    """One look at the process tree from outside: the sum over the tree, and over the processes of each role.

    `roles` maps a Role to its part: `main` (the measured process, with the workers that are threads in it),
    `workers` (worker processes), `servers` (multiprocessing's forkserver, a Manager) and `others`.
    """

    at_ns: int
    roles: dict[str, Footprint] = {}


class Barrier(Struct, frozen=True, kw_only=True):
    """A look at a fixed point: an iteration of `ops` body calls has ended, garbage is collected, all are parked."""

    ops: int
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
    line: int
    kind: str
    waits_for: WaitsFor
    name: str = ""
    contended: int = 0
    total_ns: int = 0
    max_ns: int = 0
    histogram: dict[int, int] = {}
    acquisitions: int | None = None


class LockWaits(Struct, frozen=True, kw_only=True):
    """What the lock probe of one launch saw in its measured turns.

    `work_ns` (from the workers' common release until the last has finished) and `ops` are those of the measured turns
    together, `counted_ops` the body calls of the turns in which acquisitions were counted (0: none was).
    """

    work_ns: int
    ops: int
    counted_ops: int = 0
    sites: tuple[LockSite, ...] = ()


class Launch(Struct, frozen=True, kw_only=True):
    """What one fresh interpreter gave: the unit of replication.

    `window_ns` is set where turns are windows of a duration: there the time of one operation is the value.
    A timing launch has turns alone. A lock launch has turns and `locks`. A memory launch has `memory` (looks while all
    workers are held at work), `barriers`, `looking` and `waits`.
    """

    order: int
    hash_seed: int
    started_at: str
    loops: int = 1
    window_ns: int = 0
    cold: Turn | None = None
    turns: tuple[Turn, ...] = ()
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
    candle: tuple[Launch, ...] = ()
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


class Interval(Struct, frozen=True, kw_only=True):
    """An estimate with its two-sided confidence interval; the level that was really reached."""

    value: float
    low: float
    high: float
    level: float


class Decision(StrEnum):
    """The verdict on one metric of one cell, or on the cell. BROKEN is a contract that does not hold."""

    PASSED = "passed"
    REGRESSED = "regressed"
    BROKEN = "broken"
    IMPROVED = "improved"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no baseline"
    ERROR = "error"
    UNSUPPORTED = "unsupported"


Test = Literal["ranks", "pairs", "blocks"]
"""What compares two sides: `ranks` launches that are neighbours of nobody (exact rank sum), `pairs` those that took
turns (exact signed rank of log-ratios), `blocks` those of the same rounds (exact rank sums within blocks of four)."""


class Look(Struct, frozen=True, kw_only=True):
    """A number of new launches (pairs) at which a decision may be made, with the levels that it may spend."""

    launches: int
    alpha: float
    beta: float


class Comparison(Struct, frozen=True, kw_only=True):
    """New launches against a reference's, one metric, as numbers per launch.

    `new` and `reference` are per-launch values: for wall and tail a time in ns or its ratio to the candle of the same
    tandem (dimensionless), for USS bytes, for the lock-wait share a fraction, for scaling a ratio of which more is
    better, for `ratio` the time over that of the reference executor. Unless `test` is `ranks`, `new[i]` and
    `reference[i]` are of the same round. The fail limit is (1 + margin) reference + floor, the latter in `unit`; the
    pass limit (1 + effect) reference, of the lock-wait share with twice the floor.

    `looks` ascend, their levels sum up to `alpha` and `beta` at most, those of this hypothesis; none: one look at all
    there is. With `final` no launch will come: the levels left are spent at what there is, and the effect is widened up
    to `widest` where the noise leaves no other way to pass.
    """

    metric: Metric
    new: tuple[float, ...]
    reference: tuple[float, ...]
    unit: str
    margin: float
    effect: float
    floor: float = 0.0
    alpha: float = 0.01
    beta: float = 0.05
    test: Test = "ranks"
    looks: tuple[Look, ...] = ()
    final: bool = True
    widest: float = 0.25


class MetricVerdict(Struct, frozen=True, kw_only=True):
    """The decision on one metric: the Hodges-Lehmann change with its interval, and the p-values.

    `ratio` is new / reference; of a share, which may be zero, it is None and `points` is new - reference. `launches` is
    the number of new launches (pairs) that the decision rests on, `more` how many more would settle one that is
    inconclusive, None where no number is known to. `contract` is the text of a contract, of Metric.CONTRACT alone.
    """

    metric: Metric
    decision: Decision
    ratio: Interval | None = None
    points: Interval | None = None
    p_fail: float | None = None
    p_pass: float | None = None
    reason: str = ""
    launches: int = 0
    more: int | None = None
    contract: str = ""


Road = Literal["", "stored", "prediction", "elsewhere", "tandem"]
"""What a cell was judged by: the stored launches of this machine, a prediction from stored recordings, what travels of
another machine's recordings, or its reference measured beside it."""


class Verdict(Struct, frozen=True, kw_only=True):
    """The decision on one cell: the worst of its metrics; by which road it came about, and why by that one.

    `same_code` says that nothing was changed since its baseline's commit.
    """

    decision: Decision
    metrics: tuple[MetricVerdict, ...] = ()
    reason: str = ""
    baseline: str = ""
    commit: str = ""
    road: Road = ""
    why: str = ""
    same_code: bool = False


class SiteFigures(Struct, frozen=True, kw_only=True):
    """One creation site over all lock launches of a cell.

    `share` is wait time over workers x the time of their work; `contended_ratio` is contended over all acquisitions,
    None where these were not counted; percentiles and maximum in ns, over contended acquisitions alone.
    """

    file: str
    line: int
    kind: str
    waits_for: WaitsFor
    name: str
    share: float
    contended_per_s: float
    contended_ratio: float | None
    p50_ns: float
    p95_ns: float
    p99_ns: float
    max_ns: float
    total_ns: float
    contended: int


class WaitFigures(Struct, frozen=True, kw_only=True):
    """Fractions of the workers' time, and the scheduler's figures. Their sum is 1 unless some are `unavailable`.

    `lock` and `queue` are the part of the parked time that the lock launches explain, `unattributed` the rest of it.
    Switches are per second over all workers' threads; `cores` maps a process to the cores it kept busy. The lengths of
    single waits for the GIL are in ns: percentiles are None where too few waits were seen to end, or where half of them
    are shorter than the looks can tell; the longest is a lower bound.
    """

    running: float = 0.0
    runnable: float = 0.0
    gil: float = 0.0
    lock: float = 0.0
    queue: float = 0.0
    process: float = 0.0
    unattributed: float = 0.0
    asleep: float = 0.0
    voluntary_per_s: float = 0.0
    involuntary_per_s: float = 0.0
    cores: dict[str, float] = {}
    gil_p50_ns: float | None = None
    gil_p95_ns: float | None = None
    gil_max_ns: float | None = None
    unavailable: str = ""


class RoleFigures(Struct, frozen=True, kw_only=True):
    """Bytes, medians over memory launches: steady at barriers after a collection, peak as sampled (a lower bound).

    USS is the part that was written to, as everywhere among the figures (see Footprint).
    """

    processes: int
    steady_rss: float | None = None
    steady_uss: float | None = None
    steady_pss: float | None = None
    peak_rss: float | None = None
    peak_uss: float | None = None
    peak_pss: float | None = None


class Figures(Struct, frozen=True, kw_only=True):
    """What a row of the table shows; None where it was not measured.

    USS is the part of it that was written to, where the platform tells it apart: what psutil calls USS stands in the
    sample's points. `latency` has medians over launches of the median window; its maximum and errors are of all.
    """

    wall_ns: Interval | None = None
    start_ns: float | None = None
    work_ns: float | None = None
    join_ns: float | None = None
    cold_ns: float | None = None
    ratio: float | None = None
    candle_ratio: float | None = None
    cores: float | None = None
    rss_bytes: float | None = None
    uss_bytes: float | None = None
    uss_peak_bytes: float | None = None
    pss_bytes: float | None = None
    ops_per_s: float | None = None
    counters_per_s: dict[str, float] = {}
    timers_mean_ns: dict[str, float] = {}
    peaks: dict[str, float] = {}
    latency: Latency | None = None
    gil_enabled: bool | None = None
    lock_wait_share: float | None = None
    queue_wait_share: float | None = None
    sites: tuple[SiteFigures, ...] = ()
    lock_cost: Interval | None = None
    memory_cost: Interval | None = None
    waits: WaitFigures | None = None
    memory: dict[str, RoleFigures] = {}
    floor_uss_bytes: float | None = None
    floor_pss_bytes: float | None = None
    growth_bytes: Interval | None = None
    scaling: Interval | None = None
    efficiency: float | None = None
    serial_fraction: float | None = None


class Conditions(Struct, frozen=True, kw_only=True):
    """What else went on while a tandem was measured; None where the platform does not tell.

    `calibration_ns` are times of a fixed piece of work in the controller: before the first round, between rounds, and
    after the last. `steal` is the share of the cores' time that the hypervisor gave to others, `others` the cores that
    processes beside this run kept busy, `quota` the share of its periods in which a CPU quota stopped this cgroup,
    `throttles` how often the CPU slowed itself because of heat. `cores` are those usable, `span_s` the time looked at.
    """

    span_s: float = 0.0
    cores: int = 0
    calibration_ns: tuple[int, ...] = ()
    steal: float | None = None
    others: float | None = None
    quota: float | None = None
    throttles: int | None = None


class Row(Struct, frozen=True, kw_only=True):
    """One cell of a report: its figures, its verdict, and the raw sample behind both.

    `beside` is the sample that took turns with its reference after `sample` had missed what is stored.
    """

    cell: Cell
    verdict: Verdict
    figures: Figures = Figures()
    sample: Sample | None = None
    error: WorkloadError | None = None
    conditions: Conditions | None = None
    beside: Sample | None = None


class Arrival(Struct, frozen=True, kw_only=True):
    """A row on its way from where it was measured to where the report is made.

    `position` is the cell's place in the plan: reports of several workers arrive in any order.
    """

    table: str
    reference: str
    position: int
    row: Row


class Table(Struct, frozen=True, kw_only=True):
    """One test (one tandem): its rows in declared order; `reference` is the executor that ratios refer to."""

    title: str
    rows: tuple[Row, ...]
    reference: str
    note: str = ""


class Machine(Struct, frozen=True, kw_only=True):
    """The machine as far as it changes figures; `fingerprint` keys baselines."""

    fingerprint: str
    system: str
    arch: str
    cpu: str
    cores: int
    kernel: str
    governor: str | None
    cpu_quota: float | None
    memory_limit_bytes: int | None


class Report(Struct, frozen=True, kw_only=True):
    """Everything measured and judged in a run; every printed form is a pure function of it."""

    version: str
    seed: int
    started_at: str
    wall_s: float
    machine: Machine
    interpreters: tuple[Interpreter, ...]
    tables: tuple[Table, ...]
    unused_baselines: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    commit: str = ""
    schema: int = 1


PLACEHOLDERS = ("python", "folder", "workers", "seconds", "port", "scratch")
"""What the words of a program may hold: the target's python, the test file's folder, the number of workers; the length
of a turn in seconds (commands), a free port and an empty folder of the launch's own (servers)."""


def to_builtins(value: Struct) -> Any:
    """Plain dicts, lists and scalars of a value, fit for JSON and for another process."""
    return msgspec.to_builtins(value)
