"""The values of launches: each is read once, by its name in the metric table. Pure.

What follows (comparisons, contracts, figures, recordings) takes `Values`. A recording answers to the same names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Final, TypeAlias

from ..kit.text import split_nodeid
from ..kit.values import Interval, Metric, grouped
from ..model.report import Report, Row
from ..model.sample import ByRound, Columns, Iteration, Role, Sample, one_worker_cell
from ..model.spec import Cell
from ..model.verdict import Reason, Why
from ..stats import estimators, intervals, moderated
from ..store.recording import entry_of, seconds_after
from ..store.schema import Recording, StoredCell
from . import metrics, readers
from .metrics import ColumnReader

if TYPE_CHECKING:
    from ..stats.estimators import Floats

CONTROL: Final = "control"
WALL_OF_CONTROL: Final = "wall/control"
TAIL_OF_CONTROL: Final = "tail/control"
CPU_OF_CONTROL: Final = "cpu/control"
USS_WRITTEN: Final = "uss/written"
"""What is read beside the metrics: the control's fast time in ns, the wall time, the tail and the CPU time over the
control's, and the part of USS that was written to (`uss` is then the whole of it)."""
LEAST_LOCK_CEILING: Final = "lock_ceiling/least"
"""What locks allow at least, where their holds are too short to tell."""
OF_THE_TEST: Final = frozenset((Metric.SCALING, "efficiency", Metric.CEILING, Metric.LOCK_CEILING, LEAST_LOCK_CEILING))
"""What is read of another cell too."""
UNDISTURBED: Final = 0.95
"""The quantile of the iterations by the cores that they kept busy: beside other work most of them wait for a core."""
MORE_RUN: Final = 1.05
"""Clocks that are read one after the other give up to 1.02."""
Iterations: TypeAlias = Mapping[int, Sequence[float]]
"""Launch order -> its value in each iteration, NaN for none."""
Sides: TypeAlias = dict[int, tuple[tuple[float, ...], tuple[float, ...]]]


def of_rounds(own: Iterations, other: Iterations) -> Sides:
    """The iterations of two interleaved series, by round in their order; a round that lacks one side is left out.

    They are paired from the first on: a launch with fewer iterations took part in the first ones.
    """
    pairs = {order: estimators.neighbours(own[order], other[order]) for order in sorted(own.keys() & other.keys())}
    return {order: (first, second) for order, (first, second) in pairs.items() if first and second}


class Together:
    """Samples whose iterations are read at once: an array of ten cells costs hardly more than one of a cell."""

    def __init__(self, samples: Iterable[Sample | None]) -> None:
        self.given = list(samples)
        self._columns: dict[Role, Columns] = {}
        self._values: dict[tuple[Role, ColumnReader], list[float]] = {}
        self._beside: dict[tuple[Role, Role, ColumnReader], list[list[tuple[int, float, float]]]] = {}

    @cached_property
    def samples(self) -> list[Sample | None]:
        """Each with its launches at hand."""
        return [each and each.unpacked() for each in self.given]

    @cached_property
    def references(self) -> Together:
        """Those of the other revision."""
        return Together(each and each.reference for each in self.given)

    def columns(self, role: Role) -> Columns:
        """The iterations of the launches of a role."""
        if role not in self._columns:
            self._columns[role] = Columns(each.of(role) if each else () for each in self.samples)
        return self._columns[role]

    def by_order(self, at: int, role: Role, read: ColumnReader) -> ByRound:
        """Round -> value of a launch of one of the samples."""
        columns = self.columns(role)
        if (role, read) not in self._values:
            self._values[role, read] = read(columns).tolist()
        span = columns.spans[at]
        found = {
            launch.order: value
            for launch, value in zip(columns.launches[span], self._values[role, read][span], strict=True)
        }
        return {order: value for order, value in found.items() if math.isfinite(value)}

    def beside(self, at: int, role: Role, other: Role, read: ColumnReader) -> list[tuple[int, float, float]]:
        """The rounds of one of the samples in which launches of both roles have values in the same iterations.

        Of each the log of their ratio, and its standard error.
        """
        key = (role, other, read)
        if key not in self._beside:
            sides, rounds = (self.columns(role), self.columns(other)), list[list[int]]()
            rows: tuple[list[int], list[int]] = ([], [])
            for spans in zip(*(each.spans for each in sides), strict=True):
                first, second = (
                    {side.launches[row].order: row for row in range(span.start, span.stop)}
                    for side, span in zip(sides, spans, strict=True)
                )
                rounds.append(sorted(first.keys() & second.keys()))
                for side, of_side in zip(rows, (first, second), strict=True):
                    side += [of_side[order] for order in rounds[-1]]
            own, beside = (read(side)[index] for side, index in zip(sides, rows, strict=True))
            shifts = zip(*(each.tolist() for each in estimators.row_shifts(own, beside)), strict=True)
            self._beside[key] = [
                [(order, shift, error) for order, (shift, error) in zip(orders, shifts) if math.isfinite(shift)]  # noqa: B905
                for orders in rounds
            ]
        return self._beside[key][at]


class Values:
    """The values of a cell on one side, with those of its reference and of its test's other cells."""

    def __init__(
        self,
        sample: Sample,
        test: TestValues | None = None,
        one_worker: Values | None = None,
        together: Together | None = None,
        at: int = 0,
    ) -> None:
        """It is the sample `at` that index of those that are read `together`; without them it is read alone."""
        self._given = sample
        self.cell = sample.cell
        self.test = TestValues() if test is None else test
        self.one_worker = one_worker
        """The one-worker cell that its scaling refers to, on the same side; a cell with one worker has none."""
        self.together = together or Together([sample])
        self.at = at
        self._read, self._read_in_test = sample.known, dict[str, ByRound]()
        self._iterations: dict[Role, Iterations] = {}

    @property
    def sample(self) -> Sample:
        """With its launches at hand."""
        return self.together.samples[self.at] or self._given

    @cached_property
    def reference(self) -> Values | None:
        """The same cell of the other revision, interleaved with this one."""
        if self._given.reference is None:
            return None
        one_worker = None if self.one_worker is None else self.one_worker.reference
        return Values(self._given.reference, one_worker=one_worker, together=self.together.references, at=self.at)

    @property
    def rounds(self) -> int:
        """Its timing launches."""
        return len(self.sample.launches)

    def iterations(self, role: Role = "time") -> Iterations:
        """The iterations of the launches of a role, in ns."""
        if role not in self._iterations:
            columns = self.together.columns(role)
            span = columns.spans[self.at]
            rows = zip(columns.launches[span], columns.counts[span], columns.times[span].tolist(), strict=True)
            self._iterations[role] = {launch.order: row[:count] for launch, count, row in rows}
        return self._iterations[role]

    def windows(self, value_of: Callable[[Iteration], float | None], role: Role = "time") -> Iterations:
        """A positive value of each iteration or window."""
        return {
            launch.order: [known if (known := value_of(each)) and known > 0 else math.nan for each in launch.iterations]
            for launch in self.sample.of(role)
        }

    def by_order(self, name: str) -> ByRound:
        """Values per round, by stored metric name."""
        read = self._read_in_test if name in OF_THE_TEST else self._read
        if name not in read:
            if derive := _DERIVED.get(name):
                read[name] = derive(self)
            else:
                row = metrics.row(name)
                if row.column is not None:
                    read[name] = self.together.by_order(self.at, "time", row.column)
                else:
                    read[name] = {} if row.read is None else row.read(self.sample)
        return read[name]

    def read_all(self) -> None:
        """Read every metric, so that nobody has to decode the launches for one."""
        for name in (*metrics.TABLE, USS_WRITTEN, *_own_metrics(self)):
            self.by_order(name)

    def of(self, metric: str) -> ByRound:
        """Round -> value of a metric, as it is judged and shown by itself."""
        return self.by_order(alike(metric, [self]))

    def middle(self, metric: str) -> float | None:
        """The median of a metric over its launches; None without a value."""
        return readers.median_of(self.by_order(metric).values())

    @cached_property
    def computing(self) -> float:
        """CPU time over the wall time of the workers that can run at once, in the least disturbed iterations.

        Near 1, all that the workers do is compute. 0 where it is not known how many can run: of a program, of a pool,
        and where more do than it seems, as in native code without the GIL.
        """
        executor = self.cell.executor
        if executor.program is not None or self.cell.body != "worker":
            return 0.0
        one_thread = executor.kind in ("serial", "tasks")
        one_gil = executor.kind == "threads" and any(launch.gil_enabled for launch in self.sample.launches)
        iterations = (each for launch in self.sample.launches for each in launch.iterations if each.wall_ns)
        shares = [each.cpu_ns / each.wall_ns for each in iterations]
        able = 1 if one_thread or one_gil else self.cell.workers
        share = estimators.quantile(shares, UNDISTURBED) / able if shares else 0.0
        return share if share < MORE_RUN else 0.0

    @cached_property
    def lock_cost(self) -> Interval | None:
        """The time with the lock probe over the time without it; None where no lock launch saw an acquisition."""
        if not readers.acquires(self.sample):
            return None
        beside = self.together.beside(self.at, "locks", "time", times)
        return _cost([(shift, error) for _, shift, error in beside])

    @cached_property
    def memory_cost(self) -> Interval | None:
        """The same of sampling memory: of the windows that were sampled, and of the bare ones next to them."""
        costs = (launch.sampling_cost for launch in self.sample.of("memory"))
        taken = ((cost.watched_ns, cost.bare_ns) for cost in costs if cost is not None)
        known = ([[value if value > 0 else math.nan for value in each] for each in both] for both in taken)
        sides = (estimators.neighbours(watched, bare) for watched, bare in known)
        return _cost([estimators.paired_shift(*each) for each in sides if all(each)])

    @cached_property
    def round_s(self) -> float:
        """What a round took so far; 0 where that is not known."""
        began_s = seconds_after([launch.started_at for launch in self.sample.launches])
        return began_s[-1] / (len(began_s) - 1) if len(began_s) > 1 else 0.0


class TestValues(list[Values]):
    """The values of all cells of a test, in the order of its cells."""

    __test__ = False

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        together = Together(samples)
        super().__init__(Values(each, self, together=together, at=at) for at, each in enumerate(together.given) if each)
        self.cells = [each.cell for each in self]
        alone = [cell for cell in self.cells if cell.workers == 1]
        for each in self:
            if each.cell.workers > 1:
                each.one_worker = self.of(one_worker_cell(each.cell, alone))

    def of(self, cell: Cell | None) -> Values | None:
        """Those of a cell; None where it was not measured."""
        return next((each for each in self if cell is not None and each.cell.nodeid == cell.nodeid), None)


Side: TypeAlias = Values | Recording
"""Launches of this run, or of one before."""


# ---- what is read from two series of launches, or under another name than a metric's


def times(of: Columns) -> Floats:
    """The time of each iteration."""
    return of.times


def _cpu_times(of: Columns) -> Floats:
    """The CPU time of an operation in each iteration."""
    return of.costs


def _cost(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    """The overhead of a probe: the time with it over the time without it.

    `pairs` are a launch's log-ratio and its standard error.
    """
    if not pairs:
        return None
    shifts, errors = zip(*pairs, strict=True)
    deviations = moderated.deviations(shifts, errors, metrics.row(Metric.WALL).spread)
    found = moderated.interval(shifts, deviations, readers.INTERVAL_LEVEL)
    low, value, high = map(math.exp, (found.low, found.value, found.high))
    return Interval(value=value, low=low, high=high, level=found.level)


def _over_control(read: ColumnReader) -> Callable[[Values], ByRound]:
    """The ratio of each launch's iterations to those of the control beside it."""

    def ratios(values: Values) -> ByRound:
        beside = values.together.beside(values.at, "time", "control", read)
        return {order: math.exp(shift) for order, shift, _ in beside}

    return ratios


def _tails_of_control(values: Values) -> ByRound:
    """A launch's slow iterations over the control's median."""
    if not any(len(own) >= metrics.LEAST_TAIL_ITERATIONS for own in values.iterations().values()):
        return {}
    # Not over the control's own tail, which would add its noise.
    return {
        order: estimators.quantile(own, metrics.TAIL_QUANTILE) / median(control)
        for order, (own, control) in of_rounds(values.iterations(), values.iterations("control")).items()
        if len(own) >= metrics.LEAST_TAIL_ITERATIONS
    }


def work_ratio(values: Values, role: Role = "time") -> int:
    """The work behind an iteration of the cell over that of its one-worker cell.

    Each worker runs its own body, so it is the number of workers. It is 1 for an executor's body, whose work does not
    depend on the workers, and for windows, whose value is the time of one operation.
    """
    windows = any(launch.window_ns > 0 for launch in values.sample.of(role))
    if role == "control":  # in a body that drives a pool, the control has a task for each worker, in windows too
        return 1 if windows and values.cell.body == "worker" else values.cell.workers
    return values.cell.workers if values.cell.body == "worker" and not windows else 1


def scaling_sides(values: Values, role: Role = "time") -> Sides:
    """The iterations with one worker and the cell's own, of launches of a role; none without a one-worker cell."""
    return {} if values.one_worker is None else of_rounds(values.one_worker.iterations(role), values.iterations(role))


def _scaling(values: Values, role: Role = "time") -> ByRound:
    """The throughput over that of the interleaved one-worker cell; of the control: what this machine gives at most.

    It is the median over iterations of the time with one worker over the cell's own, times `work_ratio`.
    """
    if values.one_worker is None:
        return {}
    times = work_ratio(values, role)
    return {order: times * estimators.iterations_ratio(*pair) for order, pair in scaling_sides(values, role).items()}


def _lock_ceilings(values: Values, *, least: bool = False) -> ByRound:
    one = values.one_worker
    return {} if one is None else readers.lock_ceilings(one.sample, values.sample, least=least)


def _written(values: Values) -> ByRound:
    """The part of USS that was written to; nothing where any look at the memory lacks it."""
    launches = values.sample.of("memory")
    if any(point.written_bytes is None and point.uss_bytes is not None for each in launches for point in each.memory):
        return {}
    return readers.memory_values(launches, lambda point: point.written_bytes)


_DERIVED: Final[Mapping[str, Callable[[Values], ByRound]]] = {
    CONTROL: lambda values: values.together.by_order(values.at, "control", readers.fast_times),
    WALL_OF_CONTROL: _over_control(times),
    TAIL_OF_CONTROL: _tails_of_control,
    CPU_OF_CONTROL: _over_control(_cpu_times),
    USS_WRITTEN: _written,
    Metric.SCALING: _scaling,
    "efficiency": lambda values: {
        order: scaling / values.cell.workers for order, scaling in values.by_order(Metric.SCALING).items()
    },
    Metric.CEILING: lambda values: _scaling(values, "control"),
    Metric.LOCK_CEILING: _lock_ceilings,
    LEAST_LOCK_CEILING: lambda values: _lock_ceilings(values, least=True),
}


def alike(name: str, sides: Iterable[Side]) -> str:
    """The name under which all these sides have a metric: of USS its written part, unless one of them lacks that."""
    if name != Metric.USS:
        return name
    return USS_WRITTEN if all(side.by_order(USS_WRITTEN) or not side.by_order(name) for side in sides) else name


def locks_allow(values: Values) -> Reason:
    """What `lock_ceiling` is of a cell, and by which lock."""
    ceiling = figure_of(Metric.LOCK_CEILING, [values])
    limit = None if values.one_worker is None else readers.lock_limit(values.one_worker.sample, values.sample)
    if ceiling is None or limit is None:
        code = Why.HOLDS_UNKNOWN if ceiling is None else Why.LOCKS_ALLOW
        return Reason(code=code, figures=() if limit is None else (limit.hold_ns,), name=limit.place if limit else "")
    return Reason(code=Why.LOCKS_ALLOW, figures=(ceiling, limit.share), name=limit.place)


# ---- what is shown


def figure_of(name: str, sides: Iterable[Side], beside: Iterable[Side] = ()) -> float | None:
    """The figure of that name over all launches of these sides, as every table and list prints it; None without any.

    Times and rates are geometric means, scaling is the location of its logs, all else is a median. USS is its written
    part, unless one of the sides, or of those whose figure stands `beside` it, lacks that.
    """
    own = list(sides)
    name = alike(name, [*own, *beside])
    values = [value for side in own for value in side.by_order(name).values()]
    return float(_CENTRES.get(name, median)(values)) if values else None


def _location(ratios: Sequence[float]) -> float:
    return math.exp(intervals.location([math.log(ratio) for ratio in ratios], 0.0).value)


_CENTRES: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    Metric.WALL: estimators.geometric_mean,
    WALL_OF_CONTROL: estimators.geometric_mean,
    "ops_per_s": estimators.geometric_mean,  # so that it is the calls over the wall time of the same table
    Metric.SCALING: _location,
}


# ---- what is stored


def stored_values(values: Values) -> dict[str, ByRound]:
    """Name -> round -> value of everything that a recording keeps."""
    beside = (CONTROL, WALL_OF_CONTROL, TAIL_OF_CONTROL, CPU_OF_CONTROL, USS_WRITTEN)
    return {name: values.by_order(name) for name in (*metrics.TABLE, *beside, *_own_metrics(values))}


def _own_metrics(values: Values) -> list[str]:
    """The names of the workload's own metrics."""
    own = {
        f"{kind}.{name}"
        for launch in values.sample.launches
        for kind, names in (("timer", launch.timers), ("counter", launch.counters), ("peak", launch.peaks))
        for name in names
    }
    return sorted(own)


def values_of(rows: Sequence[Row]) -> list[Values | None]:
    """The values of each row, None without a sample; rows of one test belong together."""
    known = [(place, row.sample) for place, row in enumerate(rows) if row.sample is not None]
    tests = grouped((split_nodeid(each.cell.nodeid)[0], (place, each)) for place, each in known)
    found: list[Values | None] = [None] * len(rows)
    for of_test in tests.values():
        for (place, _), values in zip(of_test, TestValues(each for _, each in of_test), strict=True):
            found[place] = values
    return found


def entries_of(report: Report, rows: Sequence[Row]) -> dict[str, StoredCell]:
    """Node id -> what a recording of these rows of a report holds, of each that can be recorded."""
    about = (report.started_at, report.commit, report.seed)
    found = {}
    for row, values in zip(rows, values_of(rows), strict=True):
        if values is not None and values.rounds and values.sample.error is None:
            took_s = row.conditions.span_s if row.conditions else 0.0
            stored = stored_values(values)
            found[row.cell.nodeid] = entry_of(values.sample, stored, *about, tree=report.tree, took_s=took_s)
    return found
