"""The metric table: a row for each metric, with how it is read, compared, limited and shown. Pure.

Everything else reads this table: figures, comparisons, thresholds, contracts, options, reports and stored baselines.
The row of a workload's own metric (`timer.NAME`, `counter.NAME`, `peak.NAME`) is made on request.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from ..kit.plugins import features
from ..kit.text import did_you_mean, listed
from ..kit.values import Metric
from ..model.report import CauseOf
from ..model.sample import Columns, Iteration, Latency, Launch, MemoryPoint, Need, Sample, cpu_value
from ..model.spec import Cell
from ..model.verdict import Limits
from ..stats import estimators
from . import readers

if TYPE_CHECKING:
    from ..stats.estimators import Floats

Unit: TypeAlias = Literal["time", "size", "share", "ratio", "number"]
"""Times are in ns, sizes in bytes, shares are fractions of the workers' time, ratios and numbers have no unit."""
Scale: TypeAlias = Literal["cost", "gain", "difference"]
"""How a change is compared: as a log-ratio of which less (`cost`) or more (`gain`) is better; as a difference of what
may be 0 and of which less is better: such a metric has a floor, and the points of a share are one."""
Reader: TypeAlias = Callable[[Sample], Mapping[int, float]]
"""A sample's value of a metric by launch order; launches without a value are left out. `Values` alone calls it."""
ColumnReader: TypeAlias = Callable[[Columns], "Floats"]
"""The same from iterations, of several samples at once: each launch's value, NaN where it has none."""
PAGE_BYTES = 4096
TAIL_QUANTILE = 0.9
TAIL_SPREAD = 0.12
"""The spread of figures that few iterations decide; of a server's latencies, what their windows do not show."""
LEAST_TAIL_ITERATIONS = 10
"""The 90 % quantile of fewer iterations would be their maximum."""
DAY = 0.03
"""How far computing lies apart from day to day beyond what a control workload shows: the standard deviation of logs.

It has hardly any weight (`prediction.DAY_FREEDOM`), because machines and workloads differ by far more: half of them may
vary by up to 4.4 %, one in ten by more than 24 %. Published were 0.6 % of bare metal, 2.7 and at most 3.7 % of clouds,
and 0.03 to over 100 % of single benchmarks in clouds: docs/appendix/error-rates.md. Waits and sizes do not follow a
machine's speed, and it cancels in ratios of two times.
"""
NOT_INSPECTED = "a program cannot be inspected for it"


class MetricRow(NamedTuple):
    """One metric.

    `paired` and `apart` are its default limits where both sides were interleaved, and where they were not. `spread` is
    the standard deviation of the log (of a difference: with its floor added) that launches of unchanged code are
    expected to have beyond what their own iterations show, `between` the same of recordings of a day beyond what their
    launches show, `day` of days beyond that: see DAY.
    `explains` says that it is derived from times: it fails a cell only if the cell's own time is worse too. `absent`
    says why a cell may lack values that its reference has; empty: it is not judged then. `applies` says whether a cell
    can have such a value, `gates_in` whether it gates there where it gates in the run: see `judge.gating`. `in_window`
    is its value in one iteration or window: pairs are then of neighbouring ones. `sampled` is its value in one sample
    of memory: the scatter of a launch's samples counts in its comparisons. `beside` is a kind of launch that it needs
    beside those of `need`. `observer` is the file of what observes its launches, see runner/observing.py; it observes
    cells that are compared with nothing as well if the metric is a `figure`. A metric is `exact` if all launches of the
    same code have one value of it: then a pair decides. `cause` explains it, if its unit and its launches do not say
    what does. `why_none` says why a cell cannot have it, `meaning` is for docs/metrics.md. What is made of the launches
    of two cells is not `read` here but in values.py.
    """

    name: str
    unit: Unit
    read: Reader | None
    need: Need = "time"
    scale: Scale = "cost"
    paired: Limits = Limits(0.02, 0.05)
    apart: Limits = Limits(0.05, 0.15)
    spread: float = 0.045
    gates: bool = False
    absent: str = ""
    applies: Callable[[Cell], bool] = lambda _: True
    gates_in: Callable[[Cell], bool] = lambda _: True
    explains: bool = False
    between: float = 0.04
    day: float = DAY
    column: ColumnReader | None = None
    in_window: Callable[[Iteration], float | None] | None = None
    sampled: Callable[[MemoryPoint], int | None] | None = None
    beside: Need | None = None
    observer: str = ""
    figure: bool = False
    exact: bool = False
    cause: CauseOf | None = None
    why_none: str = NOT_INSPECTED
    meaning: str = ""

    @property
    def needs(self) -> frozenset[Need]:
        """The kinds of launches that it is read from."""
        return frozenset((self.need,) if self.beside is None else (self.need, self.beside))

    @property
    def may_be_zero(self) -> bool:
        """Whether 0 is a value of it: of a difference, and of what a workload counts."""
        return self.scale == "difference" or self.name.startswith(("counter.", "peak."))


# ---- readers: launch order -> value


def tails(of: Columns) -> Floats:
    """The slow iterations of each launch: a high quantile."""
    return estimators.row_quantiles(of.times, TAIL_QUANTILE)


def _memory(bytes_of: Callable[[MemoryPoint], int | None]) -> Reader:
    return lambda sample: readers.memory_values(sample.of("memory"), bytes_of)


def _latency(value_of: Callable[[Latency], float]) -> ColumnReader:
    return lambda of: readers.latencies(of, value_of)


# ---- which cells can have a value


def is_server(cell: Cell) -> bool:
    """Whether a cell is a server under load."""
    return cell.executor.kind == "server"


def is_workload(cell: Cell) -> bool:
    """Whether the runner is in its processes."""
    return cell.executor.program is None


def _is_one_process(cell: Cell) -> bool:
    return is_workload(cell) and not cell.executor.has_processes


def is_tasks(cell: Cell) -> bool:
    """Whether its workers are tasks of an event loop that the runner has made."""
    return cell.executor.kind == "tasks" and cell.body == "worker"


def _forks(cell: Cell) -> bool:
    """Whether it may fork: its workers, from itself or a forkserver, or a program what it likes."""
    return cell.executor.program is not None or (cell.executor.has_processes and cell.executor.method != "spawn")


def _starts_interpreters(cell: Cell) -> bool:
    """Whether each worker starts an interpreter, which imports anew; a user's pool starts its workers when it likes."""
    return cell.executor.method in ("spawn", "forkserver") or cell.executor.kind == "interpreters"


def _is_counted(cell: Cell) -> bool:
    return cell.counted


def _is_no_command(cell: Cell) -> bool:
    return cell.executor.kind != "command"


# ---- the table

_OF_A_SERVER: Final = "it is of the answers of a server, see @ftgate.serve"
_NOT_COUNTED: Final = "it does not take a number of workers"
_SIZE_FLOOR = float(64 * PAGE_BYTES)
_SIZE: Final = (Limits(0.02, 0.05, _SIZE_FLOOR), Limits(0.02, 0.10, _SIZE_FLOOR))
_GROWTH: Final = Limits(0.25, 0.5, 3.0 * PAGE_BYTES)
_SHARE: Final = Limits(0.25, 0.5, 0.01)
_START: Final = Limits(0.25, 0.5, 0.02)
_WAIT: Final = Limits(0.25, 0.5, 0.0001)
_TAIL: Final = (Limits(0.10, 0.25), Limits(0.15, 0.40))


def _size(name: str, bytes_of: Callable[[MemoryPoint], int | None], meaning: str, *, gates: bool = False) -> MetricRow:
    absent = "no sample was taken while all of its workers were held"
    row = MetricRow(name, "size", _memory(bytes_of), "memory", "cost", *_SIZE, 0.02, gates, absent)
    return row._replace(between=0.02, day=0.0, sampled=bytes_of, meaning=meaning)


def _share(name: str, read: Reader, meaning: str, need: Need = "locks", *, gates: bool = False) -> MetricRow:
    absent = "no launch of this run gave one"
    limits, spread = (_SHARE, _SHARE), 0.15
    row = MetricRow(name, "share", read, need, "difference", *limits, spread, gates, absent, is_workload)
    return row._replace(between=spread, day=0.0, meaning=meaning)


def _once(name: str, column: ColumnReader, meaning: str) -> MetricRow:
    """A time that a launch has once, so that no quantile takes its scatter out."""
    row = MetricRow(name, "time", None, column=column, paired=_TAIL[0], apart=_TAIL[1], spread=TAIL_SPREAD)
    return row._replace(meaning=meaning)


def observed(
    name: str, unit: Unit, value_of: Callable[[Launch], float | None], observer: str, limits: tuple[Limits, Limits]
) -> MetricRow:
    """A metric of a feature that observes launches; `limits` are those of pairs, and those of stored values."""
    row = MetricRow(name, unit, lambda sample: readers.by_order(sample.of("observed"), value_of), "observed")
    row = row._replace(scale="difference", applies=is_workload, beside="time", observer=observer)
    return row._replace(paired=limits[0], apart=limits[1], spread=0.1, between=0.1)


def _answer(name: str, of: Callable[[Latency], float]) -> MetricRow:
    def in_window(iteration: Iteration) -> float | None:
        return of(iteration.latency) if iteration.latency else None

    row = MetricRow(
        name, "time", None, column=_latency(of), applies=is_server, in_window=in_window, why_none=_OF_A_SERVER
    )
    meaning = "the response time of a server, in the median window of a launch"
    return row._replace(paired=_TAIL[0], apart=_TAIL[1], spread=TAIL_SPREAD, meaning=meaning)


_OF_FEATURES: Final = tuple(itertools.chain.from_iterable(features("metric").hook.ftgate_metrics()))
TABLE: Final[Mapping[str, MetricRow]] = {
    row.name: row
    for row in (
        MetricRow(
            Metric.WALL,
            "time",
            None,
            column=readers.fast_times,
            gates=True,
            absent="no operation ended in any iteration",
            between=0.025,
            meaning="time of one call of the body in every worker: the lower quartile of a launch's iterations. With "
            'reuse="fresh" it includes start and join of the workers; with duration= it is one operation of any worker',
        ),
        MetricRow(
            Metric.TAIL,
            "time",
            None,
            column=tails,
            paired=_TAIL[0],
            apart=_TAIL[1],
            spread=TAIL_SPREAD,
            gates=True,
            meaning="the 90 % quantile of the same iterations",
        ),
        MetricRow(
            Metric.CPU,
            "time",
            None,
            column=readers.costs,
            in_window=cpu_value,
            meaning="CPU time of all processes per call of the body in one worker; with duration= per operation",
        ),
        _once("cold", readers.colds, "the first iteration of a launch"),
        MetricRow(
            Metric.START,
            "time",
            None,
            column=readers.starts,
            paired=_START,
            apart=_START,
            spread=0.15,
            gates=True,
            gates_in=_starts_interpreters,
            between=0.1,
            meaning="starting the workers, including their imports; it gates by default only if each worker starts an "
            "interpreter (spawn, forkserver, interpreters)",
        ),
        MetricRow("work", "time", None, column=readers.works, meaning="an iteration without its start and join"),
        _once("join", readers.joins, "ending the workers"),
        _size(
            Metric.USS,
            lambda point: point.steadiest_bytes,
            "unique set size: memory that no other process shares, summed over the cell's processes, while all workers "
            "are at work",
            gates=True,
        )._replace(read=_memory(lambda point: point.uss_bytes)),
        _size(
            "pss",
            lambda point: point.pss_bytes,
            "proportional set size: the same, with a part of the shared, less while others run the same interpreter; "
            "on Linux",
        ),
        _size("rss", lambda point: point.rss_bytes, "resident set size: the same, with all shared memory"),
        _size(
            Metric.UNSHARED,
            lambda point: point.unshared_bytes,
            "pages of their parents that forked processes have made their own by writing to them, summed over the "
            "processes, while all workers are at work; on Linux",
        )._replace(applies=_forks, why_none="none of its workers is forked"),
        MetricRow(
            "peak",
            "size",
            lambda sample: readers.by_order(sample.launches, lambda launch: launch.peak_bytes),
            "time",
            "cost",
            *_SIZE,
            spread=0.02,
            absent="the kernel did not tell it of any launch",
            applies=_is_one_process,
            between=0.02,
            day=0.0,
            why_none="the kernel keeps the peak of one process of a workload, not that of several together",
            meaning="the largest USS of the measured process in its iterations, as the kernel keeps it: no sample can "
            "miss it; not of worker processes; on Linux",
        ),
        MetricRow(
            Metric.GROWTH,
            "size",
            readers.growth_values,
            "memory",
            "difference",
            paired=_GROWTH,
            apart=_GROWTH,
            spread=0.15,
            gates=True,
            applies=is_workload,
            between=0.1,
            day=0.0,
            beside="growth",
            meaning="memory that each iteration leaves behind",
        ),
        _share(
            Metric.LOCK_WAIT,
            lambda sample: readers.shares_by_order(sample, "lock"),
            "the share of the threads' time spent waiting for a lock that another thread holds",
            gates=True,
        ),
        _share(
            "queue_wait",
            lambda sample: readers.shares_by_order(sample, "queue"),
            "the share of the threads' time spent waiting for an item of a queue, an event or a permit",
        ),
        _share(
            "gil_wait",
            readers.gil_shares,
            "the share of the workers' time spent waiting for the GIL, the global interpreter lock",
            "memory",
        )._replace(applies=_is_no_command),
        MetricRow(
            Metric.SCALING,
            "ratio",
            None,
            "time",
            "gain",
            applies=_is_counted,
            explains=True,
            day=0.0,
            why_none=_NOT_COUNTED,
            meaning="throughput, divided by the throughput of the same cell with one worker",
        ),
        MetricRow(
            "efficiency",
            "ratio",
            None,
            "time",
            "gain",
            applies=_is_counted,
            explains=True,
            day=0.0,
            why_none=_NOT_COUNTED,
            meaning="scaling, divided by the number of workers",
        ),
        MetricRow(
            Metric.LOCK_CEILING,
            "ratio",
            None,
            "locks",
            "gain",
            paired=_TAIL[0],
            apart=_TAIL[1],
            spread=TAIL_SPREAD,
            absent="its holds are shorter than 50 µs, or their ends were not seen",
            applies=is_workload,
            day=0.0,
            meaning="how many workers its locks allow at most: 1 / the largest share of one worker's time that it "
            "holds a lock which others take too, up to 100; of holds below 50 µs it is not known; see [the "
            "guide](guides/lock_ceiling.md)",
        ),
        MetricRow(
            "cores",
            "number",
            None,
            column=readers.cores,
            explains=True,
            day=0.0,
            meaning="CPU time of all processes of a launch, divided by wall time",
        ),
        MetricRow(
            "process_cores",
            "number",
            readers.busiest_process,
            "memory",
            explains=True,
            day=0.0,
            applies=_is_no_command,
            meaning="CPU time of the busiest process of a launch, divided by wall time: about 1 at most under the GIL",
        ),
        MetricRow(
            "ops_per_s",
            "number",
            None,
            "time",
            "gain",
            column=readers.rates,
            meaning="calls of the body in all workers per second of wall time; with roles, calls of the leading role; "
            "for a server, its answers",
        ),
        _answer("latency_mean", lambda latency: latency.mean_ns),
        _answer("latency_p50", lambda latency: latency.p50_ns),
        _answer("latency_p95", lambda latency: latency.p95_ns),
        _answer("latency_p99", lambda latency: latency.p99_ns),
        _answer("latency_max", lambda latency: latency.max_ns)._replace(spread=0.3),
        MetricRow(
            "errors",
            "number",
            None,
            column=_latency(lambda latency: latency.errors),
            scale="difference",
            paired=Limits(0.02, 0.05, 0.5),
            apart=Limits(0.05, 0.15, 0.5),
            spread=0.1,
            between=0.1,
            day=0.0,
            applies=is_server,
            why_none=_OF_A_SERVER,
            meaning="requests that failed or were answered with an error, in the median window of a launch",
        ),
        MetricRow(
            "gil_wait_p95",
            "time",
            readers.gil_wait_values,
            "memory",
            "difference",
            paired=_WAIT,
            apart=_WAIT,
            spread=0.3,
            day=0.0,
            applies=_is_no_command,
            meaning="95th percentile of the single waits for the GIL in a launch, 0 if none was seen",
        ),
        MetricRow(
            "lock_hold_p95",
            "time",
            readers.lock_holds,
            "locks",
            "difference",
            paired=_WAIT,
            apart=_WAIT,
            spread=0.3,
            day=0.0,
            applies=lambda cell: cell.executor.kind == "threads",
            why_none="who holds a lock is known of threads",
            meaning="95th percentile of the time that a lock was held while others waited for it, 0 if none did",
        ),
        *_OF_FEATURES,
    )
}
_DERIVED: Final[Mapping[str, MetricRow]] = {
    "ratio": MetricRow("ratio", "ratio", None),
    Metric.CEILING: MetricRow(
        Metric.CEILING,
        "ratio",
        None,
        "time",
        "gain",
        applies=is_workload,
        explains=True,
        day=0.0,
        beside="control",
        why_none="it is that of a workload in Python, under the same executor",
    ),
    Metric.CONTRACT: MetricRow(Metric.CONTRACT, "number", None),
}
"""A figure that is only shown: the time over that of the reference executor. Metrics of contracts: what scaling can be
at most on this machine, and the amount by which one is broken."""
GATING: Final = tuple(row.name for row in TABLE.values() if row.gates)
"""What gates by default; `declare.options.DEFAULT_METRICS` repeats it so that plain runs need not import this."""
OF_FEATURES: Final = tuple(row.name for row in _OF_FEATURES)
NAMES: Final = tuple(TABLE)
"""Metrics that take thresholds; a workload's own metrics take them too."""
WHICH: Final = f"{listed(GATING, 'and')} gate by default, docs/metrics.md lists the others"


class OwnKind(NamedTuple):
    """A kind of a workload's own metrics; `read` takes the name that the workload gave, `meaning` is for the docs."""

    unit: Unit
    scale: Scale
    read: Callable[[Sample, str], Mapping[int, float]]
    meaning: str


OWN: Final[Mapping[str, OwnKind]] = {
    "timer": OwnKind(
        "time",
        "cost",
        lambda sample, name: readers.timer_values(sample.launches, name),
        "the mean of `worker.timed(NAME)`, or of a program's own timer",
    ),
    "counter": OwnKind(
        "number",
        "gain",
        lambda sample, name: readers.counter_values(sample.launches, name),
        "`worker.count(NAME)` per second of the work",
    ),
    "peak": OwnKind(
        "number",
        "cost",
        lambda sample, name: readers.by_order(sample.launches, lambda launch: launch.peaks.get(name)),
        "the largest value of `worker.peak(NAME, n)` in a launch",
    ),
}


def row(name: str) -> MetricRow:
    """The row of a metric, a workload's own included. Raises KeyError for a name that is not a metric."""
    if name in TABLE:
        return TABLE[name]
    if name in _DERIVED:
        return _DERIVED[name]
    if not known(name):
        raise KeyError(name)
    kind, _, own = name.partition(".")
    unit, scale, read, _ = OWN[kind]
    return MetricRow(
        name,
        unit,
        lambda sample: read(sample, own),
        scale=scale,
        applies=lambda cell: not is_server(cell),
        why_none="a server has no names of its own for what it does",
    )


def known(name: str) -> bool:
    """Whether a metric has a row, or is one of a workload's own."""
    kind, dot, own = name.partition(".")
    return name in NAMES or (bool(dot and own) and kind in OWN)


def no_metric(name: object) -> str:
    """The message for a name that is not a metric."""
    return f"{name!r} is not a metric that gates{did_you_mean(name, NAMES)}; {WHICH}"


def by_difference(name: str) -> bool:
    """Whether a metric is compared as a difference: it may be 0."""
    return row(name).scale == "difference"


def is_gain(name: str) -> bool:
    """Whether a larger value of a metric is better."""
    return row(name).scale == "gain"
