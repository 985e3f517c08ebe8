"""The frozen words that travel down the house: Spec -> Plan -> Launch -> Sample -> Comparison -> Verdict -> Report."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec

ExecutorKind = Literal["serial", "threads", "processes", "interpreters", "tasks"]
StartMethod = Literal["fork", "forkserver", "spawn"]
Reuse = Literal["fresh", "pool"]
BodyKind = Literal["worker", "executor"]
Probe = Literal["time", "memory"]


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every value here: immutable, keyword-only, strict when decoded."""


class Executor(Struct, frozen=True, kw_only=True):
    """What runs the workers; `method` is the start method and is set for processes alone."""

    kind: ExecutorKind
    method: StartMethod | None = None

    @property
    def label(self) -> str:
        """The word that stands in a cell's id: the start method for processes, else the kind."""
        return self.method or self.kind


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


class Source(Struct, frozen=True, kw_only=True):
    """Where the workload stands and how pytest imported it."""

    path: str
    line: int
    module: str
    qualname: str
    import_mode: str = "prepend"
    sys_path: tuple[str, ...] = ()


class Spec(Struct, frozen=True, kw_only=True):
    """What a decorated test declares, checked; durations in seconds."""

    nodeid: str
    source: Source
    body: BodyKind
    executors: tuple[Executor, ...]
    workers: tuple[int, ...]
    reuse: Reuse
    pythons: tuple[str, ...] | None = None
    iterations: int | None = None
    duration_s: float | None = None
    warmup: float | None = None
    timeout_s: float | None = None


class Cell(Struct, frozen=True, kw_only=True):
    """One executor x one target x one set of parameters of one test."""

    nodeid: str
    target: Target
    executor: Executor
    workers: int
    params: tuple[Param, ...] = ()
    body: BodyKind = "worker"

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


class Turn(Struct, frozen=True, kw_only=True):
    """One iteration (or one window of a duration) of one launch.

    wall_ns = start_ns + work_ns + join_ns. `ops` counts body calls over all workers,
    `rate` is operations per second over the measured window.
    """

    start_ns: int
    work_ns: int
    join_ns: int
    wall_ns: int
    cpu_ns: int
    ops: int
    rate: float


class Timer(Struct, frozen=True, kw_only=True):
    """A workload's own timer, summed over workers and turns."""

    count: int
    total_ns: int
    max_ns: int


class MemoryPoint(Struct, frozen=True, kw_only=True):
    """One look at the process tree from outside; None where the platform has no such figure."""

    at_ns: int
    rss_bytes: int
    uss_bytes: int | None
    pss_bytes: int | None
    processes: int


class Launch(Struct, frozen=True, kw_only=True):
    """What one fresh interpreter gave: the unit of replication.

    `window_ns` is set where turns are windows of a duration: there the time of one operation is the value.
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
    memory: tuple[MemoryPoint, ...] = ()
    gil_enabled: bool = False
    results: tuple[str, ...] = ()


class WorkloadError(Struct, frozen=True, kw_only=True):
    """Why a cell could not be measured: a one-line reason and what the workload itself said."""

    reason: str
    detail: str = ""


class Sample(Struct, frozen=True, kw_only=True):
    """All launches of one cell in this run, with those of the candle that took turns with it.

    `reuse` and `duration_s` are the spec's: they say which stored launches these can be compared with.
    """

    cell: Cell
    interpreter: Interpreter
    key: str
    launches: tuple[Launch, ...] = ()
    candle: tuple[Launch, ...] = ()
    memory: tuple[Launch, ...] = ()
    error: WorkloadError | None = None
    unsupported: str | None = None
    reuse: Reuse = "fresh"
    duration_s: float | None = None


class Interval(Struct, frozen=True, kw_only=True):
    """An estimate with its two-sided confidence interval; the level that was really reached."""

    value: float
    low: float
    high: float
    level: float


class Metric(StrEnum):
    """What may gate."""

    WALL = "wall"
    USS = "uss"


class Decision(StrEnum):
    """The verdict on one metric of one cell, or on the cell."""

    PASSED = "passed"
    REGRESSED = "regressed"
    IMPROVED = "improved"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no baseline"
    ERROR = "error"
    UNSUPPORTED = "unsupported"


class Comparison(Struct, frozen=True, kw_only=True):
    """New launches against stored ones, one metric, as numbers per launch.

    `new` and `reference` are per-launch values: for wall the ratio to the candle of the same tandem
    (dimensionless), for USS bytes. `absolute` is the new median in `unit`.
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


class MetricVerdict(Struct, frozen=True, kw_only=True):
    """The decision on one metric: Hodges-Lehmann ratio new / reference with its interval, and the p-values."""

    metric: Metric
    decision: Decision
    ratio: Interval | None = None
    p_fail: float | None = None
    p_pass: float | None = None
    reason: str = ""


class Verdict(Struct, frozen=True, kw_only=True):
    """The decision on one cell: the worst of its metrics."""

    decision: Decision
    metrics: tuple[MetricVerdict, ...] = ()
    reason: str = ""
    baseline: str = ""
    commit: str = ""


class Figures(Struct, frozen=True, kw_only=True):
    """What a row of the table shows; None where it was not measured."""

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


class Row(Struct, frozen=True, kw_only=True):
    """One cell of a report: its figures, its verdict, and the raw sample behind both."""

    cell: Cell
    verdict: Verdict
    figures: Figures = Figures()
    sample: Sample | None = None
    error: WorkloadError | None = None


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


def to_builtins(value: Struct) -> Any:
    """Plain dicts, lists and scalars of a value, fit for JSON and for another process."""
    return msgspec.to_builtins(value)
