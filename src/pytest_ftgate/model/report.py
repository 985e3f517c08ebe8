"""The contents of a report: figures, rows, tables, the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from ..kit.values import CommitId, Count, Interval, Natural, Rate, Struct, Threshold
from .sample import Function, Latency, Sample, WaitsFor, WorkloadError
from .spec import Cell, Interpreter
from .verdict import Decision, Verdict

SCHEMA: Final = 6
"""Rises when a field of a report is removed, renamed or gets another meaning."""

# What changed beneath a regression: its causes, waits, cores, phases.


class Moved(Struct, frozen=True, kw_only=True):
    """A quantity on both sides: `before` of the reference, `after` of the change."""

    name: str
    before: float
    after: float


class MovedSite(Moved, frozen=True, kw_only=True):
    """A lock site, by `file:line kind`: the shares of the workers' time that are waited there.

    `holder` is the line that held the lock for most of these waits; empty where that is not known.
    """

    holder: str = ""


CauseOf: TypeAlias = Literal["time", "memory", "growth", "start", "payload", "dispatch"]
"""What has a cause: a time in ns, held bytes, bytes that each call leaves behind, the start of the workers in ns, the
bytes that a pool pickles of a task, the time in ns that it adds to one."""


class Part(Struct, frozen=True, kw_only=True):
    """What takes a part of what was added: of time a function, of bytes a line, of a start a module that is imported.

    Of a payload it is an argument or the result with its types on both sides, of dispatch the way to the worker or
    back.

    `line` is its place after the change, 0 where there is none; a line's `name` is its text. `before` and `after` are
    the figures of both sides: of a function the shares of the samples in which it was on a worker's stack, else in the
    unit of `added`, which it takes more. It is `changed` if its own code is known to differ. Pages that forked workers
    share with their parents no longer have no file, and the metric `unshared` as their name: see explain.unshared.
    """

    file: str
    line: int
    name: str
    before: float
    after: float
    added: float
    changed: bool = False


class Cause(Struct, frozen=True, kw_only=True):
    """What takes what was added to a metric that failed: the `parts`, most first, of `added` in all.

    `modules` are those that only the change has loaded. `unknown` says in a sentence what is not known. `like` is the
    label of the cell of the same test that the rest is of, where this one's own is not known.
    """

    of: CauseOf
    added: float = 0.0
    parts: tuple[Part, ...] = ()
    modules: tuple[str, ...] = ()
    unknown: str = ""
    like: str = ""


class Explanation(Struct, frozen=True, kw_only=True):
    """What changed between the reference and a cell that fails, as far as it is of the metrics that failed.

    `causes` are those of them: first what changed by itself. `sites` are lock sites, `shares` the states of the
    workers' threads and the functions of native code that they wait in: fractions of the workers' time. `cores` are
    cores kept busy. `phases` are start and join in ns. `part` says that only the first iterations were sampled: their
    stacks filled the space for them. Each tuple has the largest movement first, and only what moved beyond the noise
    (see judge/explain.py).
    """

    causes: tuple[Cause, ...] = ()
    sites: tuple[MovedSite, ...] = ()
    shares: tuple[Moved, ...] = ()
    cores: Moved | None = None
    phases: tuple[Moved, ...] = ()
    part: bool = False

    def cause(self, of: CauseOf) -> Cause | None:
        """The cause of one kind."""
        return next((each for each in self.causes if each.of == of), None)


class HolderFigures(Struct, frozen=True, kw_only=True):
    """Who held a lock while others waited: the line that took it, over all lock launches of a cell.

    `share` is its part of the waits for the lock; percentiles, in ns, are of how long it was held while others waited.
    `waiter_file` and `waiter_line` are those of the line that waited most for it.
    """

    file: str
    line: Natural
    function: str
    share: Rate
    p50_ns: Rate
    p99_ns: Rate
    waiter_file: str
    waiter_line: Natural


class SiteFigures(Struct, frozen=True, kw_only=True):
    """One creation site over all lock launches of a cell.

    `share` is wait time over workers x the time of their work; `contended_ratio` is contended over all acquisitions,
    None where these were not counted; percentiles and maximum in ns, over contended acquisitions alone. `holders` are
    the lines that others waited for most, seen in other iterations than the waits; none where processes or tasks share
    the lock.
    """

    file: str
    line: Natural
    kind: str
    waits_for: WaitsFor
    name: str
    share: Rate
    contended_per_s: Rate
    contended_ratio: Rate | None
    p50_ns: Rate
    p95_ns: Rate
    p99_ns: Rate
    max_ns: Rate
    total_ns: Rate
    contended: Natural
    holders: tuple[HolderFigures, ...] = ()


class LockLimit(Struct, frozen=True, kw_only=True):
    """The lock that limits how many workers pay: the one that one worker holds for the largest `share` of its time.

    `by` is the line that takes it, `hold_ns` its mean hold. `longer` is the time that a call of the body holds it in
    this cell over that with one worker; None where they do not differ beyond the noise.
    """

    by: Function
    share: Rate
    hold_ns: Rate
    longer: Rate | None = None

    @property
    def place(self) -> str:
        """`LRU.get, cache.py:40`."""
        return f"{self.by.name}, {self.by.file}:{self.by.line}"


class WaitFigures(Struct, frozen=True, kw_only=True):
    """Fractions of the workers' time, and the scheduler's figures. Their sum is 1 unless some are `unavailable`.

    `lock` and `queue` are the parts of the futex time that the lock launches explain, `unattributed` is the rest of it,
    and `native` maps the functions that wait in it to their parts, as far as their stacks say.
    Switches are per second over all workers' threads; `cores` maps a process to the cores it kept busy. The lengths of
    single waits for the GIL are in ns: percentiles are None if the end of too few waits was observed, or if half of
    them are too short for the sampling interval; the maximum is a lower bound.
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
    native: dict[str, float] = {}
    cores: dict[str, float] = {}
    gil_p50_ns: float | None = None
    gil_p95_ns: float | None = None
    gil_max_ns: float | None = None
    unavailable: str = ""


class RoleFigures(Struct, frozen=True, kw_only=True):
    """Bytes, medians over memory launches: steady at barriers after a collection, peak as sampled (a lower bound).

    USS is the part that was written to, as in all figures (see Footprint).
    """

    processes: Natural
    steady_rss: Rate | None = None
    steady_uss: Rate | None = None
    steady_pss: Rate | None = None
    peak_rss: Rate | None = None
    peak_uss: Rate | None = None
    peak_pss: Rate | None = None


class Figures(Struct, frozen=True, kw_only=True):
    """The figures of a row of the table; None where not measured.

    USS is the part of it that was written to, where the platform reports that: psutil's USS is in the sample's points.
    `uss_peak_bytes` is the largest sample, a lower bound; `peak_bytes` and `unshared_bytes` are metrics.
    `memory_samples` and `memory_dropped` count the looks at held workers that gave a sample, and those that fell on a
    process that ended or was being replaced, or missed a worker.
    `ratio` is of the rounds that both cells have; `ratio_rounds` is their number where it is visibly another one than
    that of both times, which are of all rounds.
    `no_locks` says why there are no figures of locks: a lock launch failed. `latency` has medians over launches of the
    median window; its maximum and errors are over all launches. `observed` has the metrics of features, each in the
    unit of its row of the metric table.
    """

    wall_ns: Interval | None = None
    start_ns: Rate | None = None
    work_ns: Rate | None = None
    join_ns: Rate | None = None
    cold_ns: Rate | None = None
    cpu_ns: Rate | None = None
    ratio: Rate | None = None
    ratio_rounds: Natural | None = None
    control_ratio: Rate | None = None
    cores: Rate | None = None
    rss_bytes: Rate | None = None
    uss_bytes: Rate | None = None
    uss_peak_bytes: Rate | None = None
    peak_bytes: Rate | None = None
    pss_bytes: Rate | None = None
    unshared_bytes: Rate | None = None
    ops_per_s: Rate | None = None
    counters_per_s: dict[str, float] = {}
    timers_mean_ns: dict[str, float] = {}
    peaks: dict[str, float] = {}
    latency: Latency | None = None
    gil_enabled: bool | None = None
    lock_wait: Rate | None = None
    queue_wait: Rate | None = None
    sites: tuple[SiteFigures, ...] = ()
    no_locks: str = ""
    lock_cost: Interval | None = None
    memory_cost: Interval | None = None
    waits: WaitFigures | None = None
    memory: dict[str, RoleFigures] = {}
    memory_samples: int = 0
    memory_dropped: int = 0
    floor_uss_bytes: Rate | None = None
    floor_pss_bytes: Rate | None = None
    growth_bytes: Interval | None = None
    observed: dict[str, float] = {}
    scaling: Interval | None = None
    lock_ceiling: Rate | None = None
    lock_limit: LockLimit | None = None
    efficiency: Rate | None = None
    serial_fraction: float | None = None

    def of(self, metric: str) -> Interval | float | None:
        """The figure of a metric of the metric table, or of one of the workload's own; None where there is none."""
        kind, dot, name = metric.partition(".")
        if dot:
            return {"timer": self.timers_mean_ns, "counter": self.counters_per_s, "peak": self.peaks}[kind].get(name)
        if metric in self.observed:
            return self.observed[metric]
        field = _FIELDS.get(metric)
        return None if field is None else getattr(self, field)


_FIELDS = {field.removesuffix("_ns").removesuffix("_bytes"): field for field in Figures.__struct_fields__}
"""A field has the name of its metric, with the unit as a suffix if it has one."""


class Conditions(Struct, frozen=True, kw_only=True):
    """What else happened on the machine while a group was measured; None where the platform does not report it.

    `calibration_ns` are times of a fixed piece of work in the controller: before the first round, between rounds, and
    after the last. `steal` is the share of the cores' time that the hypervisor gave to others, `others` the cores that
    other processes kept busy, `quota` the share of its periods in which a CPU quota stopped this cgroup, `throttles`
    how often the CPU throttled because of heat. `cores` are the usable ones, `span_s` is the time observed.
    """

    span_s: float = 0.0
    cores: int = 0
    calibration_ns: tuple[int, ...] = ()
    steal: float | None = None
    others: float | None = None
    quota: float | None = None
    throttles: int | None = None


class Shortfall(Struct, frozen=True, kw_only=True):
    """A time that is too short for a decision: `rounds` of so many cells fit into `given_s`, of about `needed` ones.

    `option` sets that time, and with `wanted_s` those rounds would fit.
    """

    rounds: int
    needed: int
    cells: int
    option: str
    given_s: float
    wanted_s: float


class Row(Struct, frozen=True, kw_only=True):
    """One cell of a report: its figures, its verdict, and the raw sample behind both.

    `shortfall` is that of the time in which it was left open. `line` is that of the test in its file, 0 where it is
    unknown. A row `in_part` was judged by what was measured until the run was interrupted. `options` are the words of
    the command line that measure it in the same way.
    """

    cell: Cell
    verdict: Verdict
    figures: Figures = Figures()
    sample: Sample | None = None
    error: WorkloadError | None = None
    conditions: Conditions | None = None
    shortfall: Shortfall | None = None
    explanation: Explanation | None = None
    line: int = 0
    in_part: bool = False
    options: tuple[str, ...] = ()


class PlacedRow(Struct, frozen=True, kw_only=True):
    """A row that is sent from the process that measured it to the one that makes the report.

    `position` is the cell's index in the plan: rows of several workers arrive in any order. The rest is its table's.
    """

    table: str
    reference: str
    position: int
    row: Row
    thresholds: tuple[Threshold, ...] = ()
    gated: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    note: str = ""


class Table(Struct, frozen=True, kw_only=True):
    """One test (one group): its rows in declared order; `reference` is the executor that ratios refer to.

    `thresholds` are declared beside the test, and `gated` are metrics that gate in it beyond those of the run.
    `declared` are the labels of all cells of the test, without parameters: a run may select some.
    `machine` is the one that measured it, in a report of several; None: the report's own.
    """

    title: str
    rows: tuple[Row, ...]
    reference: str
    note: str = ""
    thresholds: tuple[Threshold, ...] = ()
    gated: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    machine: Machine | None = None


class Machine(Struct, frozen=True, kw_only=True):
    """The machine as far as it changes figures; `fingerprint` keys baselines."""

    fingerprint: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.+-]{1,200}\Z")]
    system: str
    arch: str
    cpu: str
    cores: Count
    kernel: str
    governor: str | None
    cpu_quota: Annotated[float, msgspec.Meta(gt=0)] | None
    memory_limit_bytes: Natural | None


class Shard(Struct, frozen=True, kw_only=True):
    """One part of the tests of a run that several machines share, and what all of its parts must have in common.

    `planned` are the node ids of the whole run's cells, `places` those of this part's cells among them. Each verdict
    was found at `alpha` over all `hypotheses` of the run, of which `own` are this part's. `options` are those that were
    set: numbers as text, texts as a digest, since they may hold secrets.
    """

    part: Count
    parts: Count
    planned: tuple[str, ...]
    places: tuple[Natural, ...]
    alpha: float
    hypotheses: Count
    own: Natural
    options: dict[str, str] = {}

    @property
    def name(self) -> str:
        """`shard 2/5`."""
        return f"shard {self.part}/{self.parts}"


Criterion = Literal["time", "memory"]
"""What advice may weigh: the wall time, and the memory of the process tree."""
CRITERIA: Final[tuple[Criterion, ...]] = get_args(Criterion)
Weights = tuple[tuple[Criterion, Rate], ...]
OWN_CODE = "own code"
"""The seconds of a run that were not measured: its wall time without all others."""


class Format(NamedTuple):
    """A form of a report: what makes its text."""

    render: Callable[[Report], str]
    needs: tuple[str, ...] = ()
    """The libraries that it imports then: no report is made with those of the project under test."""


class Report(Struct, frozen=True, kw_only=True):
    """Everything measured and judged in a run; every printed form is a pure function of it.

    `partial` says why rows are missing, as after Ctrl-C, or what failed after them; `command` repeats the run.
    `failing` are the node ids of the cells that fail the run, as its `--ftgate-fail-on` says; None: by its default.
    `shard` is the part of the tests that was measured; None: all.
    `undecided_fails` says whether a run that decided less than half fails. `project` is the name of what was
    measured, `branch` the one that is checked out; empty where they are not known. `tree` is that of the files that
    were measured, as recordings have it. `weights` are those by which advice chooses. `seconds` is where `wall_s` went,
    by kind of work; empty where that is not known.
    """

    version: str
    seed: int
    started_at: str
    wall_s: float
    machine: Machine
    interpreters: tuple[Interpreter, ...]
    tables: tuple[Table, ...]
    unused_baselines: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    commit: CommitId = ""
    partial: str = ""
    command: str = ""
    failing: frozenset[str] | None = None
    shard: Shard | None = None
    undecided_fails: bool = True
    project: str = ""
    branch: str = ""
    tree: CommitId = ""
    weights: Weights = ()
    seconds: dict[str, float] = {}
    schema: int = SCHEMA

    @property
    def rows(self) -> list[Row]:
        return [row for table in self.tables for row in table.rows]

    def machine_of(self, table: Table) -> Machine:
        return table.machine or self.machine


def failed_row(cell: Cell, reason: str, detail: str) -> Row:
    """The row of a cell that could not be started, with the error's reason and detail."""
    error = WorkloadError(reason=reason, detail=detail)
    return Row(cell=cell, verdict=Verdict(decision=Decision.ERROR, reason=reason), error=error)


def first_line(text: str) -> str:
    """The first line of a message, without a colon at its end."""
    return text.partition("\n")[0].rstrip(": ")
