"""Ranks executors and interpreters by the figures of a test, from a run or from stored baselines. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, groupby
from statistics import fmean
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

from msgspec.structs import replace

from ...judge import metrics
from ...judge.figures import UNLIKE
from ...judge.readers import INTERVAL_LEVEL, NO_LIMIT, median_of
from ...judge.values import Values, figure_of, values_of
from ...kit.text import COMMIT_DIGITS, split_nodeid
from ...kit.values import Interval, Metric, Struct, grouped
from ...model.report import Figures, Report, Row, Weights
from ...model.sample import ByRound
from ...model.verdict import Decision
from ...stats import moderated
from ...stats.intervals import FEWEST
from ...store.schema import StoredCell, TestBaseline

SPREAD_BOUND = moderated.BOUND
"""Cells of unlike executors differ more from launch to launch than launches of one cell."""
MEMORY = ("pss", Metric.USS.value)
"""PSS counts a page that forked workers share once; USS leaves it out."""
_ROUNDS = 10**6
"""More than a recording has."""
HazardKind = Literal["gil", "fork", "results", "crash", "isolated", "requests", "failure"]
HAZARDS: Final[Mapping[HazardKind, tuple[str, str]]] = {
    "gil": (r"the GIL came back on", "an import turned the GIL back on"),
    "results": (r"another result|different results", "results differ"),
    "fork": (
        r"multi-threaded, use of fork|use of fork\(\) may lead to deadlocks",
        "fork ran beside threads, which is unsafe",
    ),
    "crash": (r"\Awas killed by SIG", "a crash took all workers"),
    "isolated": (r"\Aworker \d+ was killed by SIG", "a crash took one worker, and not the others"),
    "requests": (r"\A\d+ of \d+ requests failed", "requests fail under load"),
    "failure": ("", "not measured"),
}
"""A pattern of an error, and its name; the first pattern that matches counts."""


# ---- the advice, as `ftgate decide --json` has it


class Ranked(Struct, frozen=True, kw_only=True):
    """A candidate in the order of one figure."""

    name: str
    value: Interval
    """A level of 0 says that its interval is not known, or borrowed by fewer than three launches; so in `times`."""
    times: Interval | None = None
    """Its value over the best's, or the best's over its own if more is better; None for the best or without one."""
    of_both: bool = False
    """`times` is of the rounds that both have, and visibly another one than that of the two values."""


class Ranking(Struct, frozen=True, kw_only=True):
    """The candidates with a value of one metric, best first."""

    metric: str
    ranked: tuple[Ranked, ...]
    tied: tuple[str, ...]
    """The best, and those that are not told apart from it."""


class Placed(Struct, frozen=True, kw_only=True):
    """A fact about the cells of a test with the same workers and parameters."""

    workers: str = ""
    """The word of the cell's id: `w8`; empty for a server's program, and for what is of several counts."""
    setting: str
    """The words of its parameters."""


class Choice(Placed, frozen=True, kw_only=True):
    """These cells compared."""

    windows: bool
    """An iteration is a window of a fixed length, so that the time of an operation is compared."""
    time: Ranking
    memory: Ranking | None
    own: tuple[Ranking, ...] = ()
    """Rankings by the metrics that the workload or its load measured."""
    pareto: tuple[str, ...] = ()
    """The candidates that no other one beats in every criterion."""
    advised: tuple[str, ...] = ()
    """The one that wins, or those that are not told apart; empty where nothing wins."""
    limits: tuple[Ranked, ...] = ()
    """Programs, which are no candidates."""
    cores: dict[str, float] = {}
    """The cores that each candidate kept busy."""


class Fact(Placed, frozen=True, kw_only=True):
    """A fact about one candidate."""

    name: str


class MemoryUse(Fact, frozen=True, kw_only=True):
    """Memory in bytes with so many workers."""

    figure: str
    """`PSS` or `USS`."""
    total: Interval
    further: Interval | None = None
    """The memory of each further worker, if two worker counts or the memory of its processes show it."""
    further_of: Literal["", "counts", "processes"] = ""


class Contention(Fact, frozen=True, kw_only=True):
    """Shares of the workers' time, None where not measured, and the speed-up that their end would bring at most."""

    lock: float | None = None
    gil: float | None = None
    unattributed: float | None = None
    by_waits: float
    by_cores: float | None = None
    """The speed-up that the machine's cores leave; None where it is not known."""
    site: str = ""
    """The lock that is waited for longest."""
    imbalance: float | None = None
    """The time of the slowest worker over that of the median one."""


class ScalingAdvice(Fact, frozen=True, kw_only=True):
    """How throughput grows from `base` workers on."""

    base: int
    points: tuple[tuple[int, Interval], ...]
    """The throughput with so many workers over that with `base`."""
    enough: int | None = None
    """More workers did not pay; None where the most that were measured did."""
    lock_ceiling: float | None = None
    """More workers than its locks allow will not pay; None where none limits them, or that is not known."""
    lock: str = ""
    """The line that takes the lock, where that is known."""


class Dispatch(Fact, frozen=True, kw_only=True):
    """What a pool costs a task, in ns: what it adds to one, and that for each KiB of its arguments.

    With tasks longer than `pays` the pool takes less time than calls in the caller, see docs/guides/dispatch.md; None
    where it takes no less, or that is not clear. `work` is the task itself, in the pool that hinders it least.
    """

    work: Interval
    cost: Interval
    kib: Interval | None = None
    pays: Interval | None = None


class Hazard(Struct, frozen=True, kw_only=True):
    """An error of these cells, of `of` in the test, as the run recorded it."""

    kind: HazardKind
    text: str
    cells: tuple[str, ...]
    of: int


class Advice(Struct, frozen=True, kw_only=True):
    """The advice on one test, with its figures."""

    test: str
    source: str
    """The run or the recordings that they are of."""
    choices: tuple[Choice, ...] = ()
    memory: tuple[MemoryUse, ...] = ()
    contention: tuple[Contention, ...] = ()
    scaling: tuple[ScalingAdvice, ...] = ()
    dispatch: tuple[Dispatch, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    weights: Weights = ()
    """The weights that were asked for; without any, neither time nor memory is traded for the other."""
    unknown: tuple[str, ...] = ()
    """Topics on which nothing was measured."""
    unsupported: dict[str, tuple[str, ...]] = {}
    """Reason -> the cells that could not run for it."""
    unmeasured: tuple[str, ...] = ()
    """Cells that were declared and not selected, or for which the time was too short."""


# ---- the cells that are compared


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidate:
    """One cell: its place in the test, its figures, and each launch's values."""

    executor: str
    target: str
    workers: int
    counted: str
    """The word of its worker count, such as `w8`; empty for a server's program."""
    setting: str
    """The words of its parameters."""
    windows: bool
    """Whether its iterations are windows of a fixed length."""
    work: int
    """The work of an iteration over that with one worker."""
    figures: Figures
    source: Callable[[str], ByRound]
    own_metrics: tuple[str, ...]
    """Metrics that the workload or its load measured."""
    ratios: dict[tuple[str, int], Estimate | None] = field(default_factory=dict)
    """Its value by (metric, 0), and its ratio to another candidate by (metric, id of that candidate)."""

    @property
    def name(self) -> str:
        """`threads on 3.14t`; a program that runs on no interpreter by its own name."""
        return f"{self.executor} on {self.target}" if self.target else self.executor

    @property
    def place(self) -> tuple[str, str]:
        """The workers and parameters that it shares with the cells that were interleaved with it."""
        return self.counted, self.setting

    @property
    def placed(self) -> dict[str, Any]:
        """The first fields of each fact about it."""
        return {"name": self.name, "workers": self.counted, "setting": self.setting}

    def value(self, metric: str) -> Estimate | None:
        """Its value; from its figures where its launches are not known."""
        if (metric, 0) not in self.ratios:
            launches = self.source(metric)
            found = estimate(list(launches.values()), metric)
            shown = None if launches else self.figures.of(metric)
            if isinstance(shown, Interval):
                certain = shown.level > 0 and shown.low > 0
                found = Estimate(math.log(shown.value), math.log(shown.high / shown.low) / 2 if certain else None)
            elif shown:
                found = Estimate(math.log(shown), None)
            self.ratios[metric, 0] = found
        return self.ratios[metric, 0]

    def over(self, other: Candidate, metric: str) -> Estimate | None:
        """Its value over another's: by rounds where both were interleaved."""
        if (metric, id(other)) not in self.ratios:
            here, there = self.source(metric), other.source(metric)
            common = sorted(here.keys() & there.keys()) if self.place == other.place else []
            if common and all(here[order] > 0 and there[order] > 0 for order in common):
                found = estimate([here[order] / there[order] for order in common], metric)
            else:
                found = product((self.value(metric), 1), (other.value(metric), -1))
            self.ratios[metric, id(other)] = found
        return self.ratios[metric, id(other)]


def of_row(row: Row, values: Values | None) -> Candidate:
    cell, sample, figures = row.cell, row.sample, row.figures
    target = "" if cell.executor.kind == "command" else cell.target.spec
    windows = figures.ops_per_s is not None if sample is None else sample.duration_s is not None
    named = (("timer", figures.timers_mean_ns), ("counter", figures.counters_per_s), ("peak", figures.peaks))
    latency = ("latency_p50", "latency_p95") if figures.latency is not None else ()
    counted, setting = _counted(cell.label, cell.executor.label, target, cell.workers)
    return Candidate(
        executor=cell.executor.label,
        target=target,
        workers=cell.workers,
        counted=counted,
        setting=setting,
        windows=windows,
        work=cell.workers if cell.body == "worker" and not windows else 1,
        figures=figures,
        source=(lambda _: {}) if values is None else values.by_order,
        own_metrics=(*latency, *(f"{kind}.{name}" for kind, values in named for name in sorted(values))),
    )


def from_stored(label: str, stored: StoredCell) -> Candidate:
    """The candidate of a stored cell: the launches of all of its recordings."""
    newest = stored.recordings[-1]
    target = label.partition(newest.executor)[0].rstrip("-")
    counted, setting = _counted(label, newest.executor, target, newest.workers)

    @cache
    def source(name: str) -> ByRound:
        # The cells of one run have the same numbers of rounds, those of different runs do not.
        return {
            crc32(each.recorded_at.encode()) * _ROUNDS + order: found
            for each in stored.recordings
            for order, found in each.by_order(name).items()
        }

    return Candidate(
        executor=newest.executor,
        target=target,
        workers=newest.workers,
        counted=counted,
        setting=setting,
        windows=newest.windows,
        work=newest.workers if newest.body == "worker" and not newest.windows else 1,
        figures=Figures(
            cores=figure_of("cores", stored.recordings),
            lock_ceiling=figure_of(Metric.LOCK_CEILING, stored.recordings),
            lock_wait=figure_of(Metric.LOCK_WAIT, stored.recordings),
        ),
        source=source,
        own_metrics=tuple(name for name in newest.values if name.partition(".")[0] in metrics.OWN),
    )


def _counted(label: str, executor: str, target: str, workers: int) -> tuple[str, str]:
    """The word of the worker count and that of the parameters: `w8`, `0.5-10`; either may be empty.

    The count of roles is one word for each: `producer8-writer1`.
    """
    rest = label.removeprefix(f"{target}-" if target else "").removeprefix(executor).removeprefix("-")
    words = rest.split("-") if rest else []
    if words[:1] in ([f"w{workers}"], ["wcores"]):
        return words[0], "-".join(words[1:])
    for end in range(2, len(words) + 1):
        roles = [re.fullmatch(r"[^\W\d]\w*?(\d+)", word) for word in words[:end]]
        if sum(int(role[1]) for role in roles if role) == workers and all(roles):
            return "-".join(words[:end]), "-".join(words[end:])
    return "", "-".join(words)


# ---- estimates: the centre of logs, and half of its interval


class Estimate(NamedTuple):
    """A logarithm and half of its interval; None: no interval is known.

    One of fewer than FEWEST launches is `wide`: it borrows all of its spread, tells candidates apart, and is not shown.
    """

    log: float
    half: float | None
    wide: bool = False

    def interval(self, times: float = 1.0) -> Interval:
        """The value on its own scale, multiplied."""
        half = self.half or 0.0
        low, value, high = (times * math.exp(end) for end in (self.log - half, self.log, self.log + half))
        level = 0.0 if self.half is None or self.wide else INTERVAL_LEVEL
        return Interval(value=value, low=low, high=high, level=level)


def product(*parts: tuple[Estimate | None, float]) -> Estimate | None:
    """The product of independent estimates, each to a power; None where one is not known."""
    known = [(each, power) for each, power in parts if each]
    halves = [None if each.half is None else power * each.half for each, power in known]
    log = sum(power * each.log for each, power in known)
    half = None if None in halves else math.hypot(*(each or 0 for each in halves))
    wide = any(each.wide for each, _ in known)
    return Estimate(log, half, wide) if len(known) == len(parts) else None


def estimate(values: Sequence[float], metric: str) -> Estimate | None:
    """The mean of the values' logs; None without values, or if one is not above 0."""
    if not values or min(values) <= 0:
        return None
    return estimates([[math.log(value) for value in values]], metric)[0]


def estimates(logs: Sequence[Sequence[float]], metric: str) -> list[Estimate]:
    """The mean of each row, with an interval that borrows the metric's usual spread."""
    deviations = moderated.deviations(logs, (), SPREAD_BOUND * metrics.row(metric).spread)
    halves = moderated.half_width(len(logs[0]), INTERVAL_LEVEL) * deviations[:, 0]
    return [Estimate(fmean(row), half, wide=len(row) < FEWEST) for row, half in zip(logs, halves.tolist(), strict=True)]


def compare_interleaved(sides: Sequence[Candidate], metric: str) -> None:
    """Fill in `over` for all sides that have values of the same rounds: together they take a fraction of the time."""
    by_rounds = grouped(
        (tuple(launches), (side, [*launches.values()])) for side in sides if (launches := side.source(metric))
    )
    for same in by_rounds.values():
        positive = [(side, [math.log(value) for value in values]) for side, values in same if min(values) > 0]
        pairs = list(combinations(positive, 2))
        ratios = [[a - b for a, b in zip(one, other, strict=True)] for (_, one), (_, other) in pairs]
        for ((side, _), (other, _)), found in zip(pairs, estimates(ratios, metric) if pairs else (), strict=True):
            side.ratios[metric, id(other)] = found
            other.ratios[metric, id(side)] = found._replace(log=-found.log)


def wall_log(side: Candidate) -> float:
    """The log of its time, by which candidates are put in order; infinite where it is not known."""
    known = side.value(Metric.WALL)
    return known.log if known else math.inf


def _sign(estimate: Estimate | None) -> int:
    """1 where a ratio is above 1 with its whole interval, -1 where it is below, else 0."""
    if estimate is None or estimate.half is None or abs(estimate.log) <= estimate.half:
        return 0
    return 1 if estimate.log > 0 else -1


# ---- a test


def of_report(report: Report, weights: Weights = ()) -> tuple[Advice, ...]:
    """An Advice for each test of a report."""
    source = f"the run of {report.started_at}"
    source += f" at commit {report.commit[:COMMIT_DIGITS]}" if report.commit else ""
    found = []
    tests: dict[str, list[Row]] = {}
    declared: dict[str, list[str]] = {}
    cores: dict[str, int] = {}
    for table in report.tables:
        for row in table.rows:
            test = split_nodeid(row.cell.nodeid)[0]
            tests.setdefault(test, []).append(row)
            declared.setdefault(test, []).extend(table.declared)
            cores[test] = report.machine_of(table).cores
    for test, rows in tests.items():
        errors: dict[tuple[HazardKind, str], list[str]] = {}
        for row in rows:
            if error := row.error or (row.sample.error if row.sample else None):
                told = f"{error.reason}\n{error.detail}"
                kind = next(kind for kind, (pattern, _) in HAZARDS.items() if re.search(pattern, told))
                errors.setdefault((kind, error.reason.partition("\n")[0]), []).append(row.cell.label)
            elif (latency := row.figures.latency) and latency.errors:
                errors.setdefault(("requests", f"{latency.errors} in a window"), []).append(row.cell.label)
        hazards = [Hazard(kind=kind, text=text, cells=tuple(of), of=len(rows)) for (kind, text), of in errors.items()]
        lacking = (row for row in rows if row.verdict.decision is Decision.UNSUPPORTED)
        unsupported = grouped((row.verdict.reason, row.cell.label) for row in lacking)
        measured = [row for row in rows if row.verdict.decision is not Decision.ERROR]
        sides = [of_row(row, values) for row, values in zip(measured, values_of(measured), strict=True)]
        advice = of_candidates(test, source, sides, cores[test], weights)
        why = {reason: tuple(cells) for reason, cells in unsupported.items()}
        # The labels of cells end in their parameters, those of the declaration do not.
        labels = [f"{row.cell.label}-" for row in rows]
        left_out = [each for each in declared[test] if not any(label.startswith(f"{each}-") for label in labels)]
        late = [row.cell.label for row in rows if row.verdict.decision is Decision.NOT_MEASURED]
        unmeasured = tuple(dict.fromkeys([*left_out, *late]))
        found.append(replace(advice, hazards=tuple(hazards), unsupported=why, unmeasured=unmeasured))
    return tuple(found)


def of_stored(baseline: TestBaseline, fingerprint: str, weights: Weights = ()) -> Advice | None:
    """The Advice of a stored test on one machine, of the newest build of each target; None without cells there."""
    newest: dict[str, StoredCell] = {}
    for label, builds in baseline.cells.items():
        here = [cell for key, cell in builds.items() if key.partition("/")[0] == fingerprint]
        if here:
            newest[label] = max(here, key=lambda cell: cell.recordings[-1].recorded_at)
    if not newest:
        return None
    sides = [from_stored(label, cell) for label, cell in newest.items()]
    last = max(cell.recordings[-1].recorded_at for cell in newest.values())
    cores = baseline.machines[fingerprint].cores
    return of_candidates(baseline.test, f"baselines recorded {last} on {fingerprint}", sides, cores, weights)


def of_candidates(test: str, source: str, sides: Iterable[Candidate], cores: int, weights: Weights = ()) -> Advice:
    """The advice on these cells, on a machine with so many cores."""
    known = [side for side in sides if side.value(Metric.WALL) is not None]

    def place(side: Candidate) -> tuple[str, int, str]:
        return side.setting, side.workers, side.counted

    groups = [list(group) for _, group in groupby(sorted(known, key=place), key=place)]
    # Of each executor, target and setting the cell with the most workers, the fastest first.
    most: dict[tuple[str, str], Candidate] = {}
    for side in known:
        key = side.name, side.setting
        if side.target and (key not in most or most[key].workers < side.workers):
            most[key] = side
    largest = sorted(most.values(), key=lambda side: (side.setting, wall_log(side)))
    found = Advice(
        test=test,
        source=source,
        choices=tuple(_choice(group, weights) for group in groups),
        memory=tuple(use for side in largest if (use := _memory_use(side, known))),
        contention=tuple(waits for side in largest if (waits := _contention(side, cores))),
        scaling=tuple(_scaling(known)),
        dispatch=tuple(fact for group in groups for fact in _dispatch(group)),
        weights=weights,
    )
    topics = {"time": found.choices, "memory": found.memory}
    topics |= {"contention": found.contention, "scaling": found.scaling}
    return replace(found, unknown=tuple(topic for topic, facts in topics.items() if not facts))


# ---- the choice


def _choice(group: Sequence[Candidate], weights: Weights) -> Choice:
    """The comparison of cells that were interleaved; a program is a limit, no candidate."""
    rivals = [side for side in group if side.target] or list(group)
    # Memory is compared by PSS where any has it, else by USS.
    figure = next((name for name in MEMORY if any(side.value(name) for side in rivals)), "")
    time = _ranking(rivals, Metric.WALL)
    fastest = next(side for side in rivals if side.name == time.ranked[0].name)
    criteria = [Metric.WALL, figure] if figure else [Metric.WALL]
    for name in criteria:
        compare_interleaved(rivals, name)

    # Those that none beats: clearly better in time or memory, and clearly worse in neither.
    beaten = set[int]()
    for side, other in combinations(rivals, 2):
        signs = {_sign(side.over(other, name)) for name in criteria} - {0}
        if len(signs) == 1:
            beaten.add(id(side if 1 in signs else other))
    pareto = sorted([side for side in rivals if id(side) not in beaten] or rivals, key=wall_log)

    # The one with the least product of powers of its figures; without weights those that none beats, if they are alike.
    advised: tuple[str, ...] = ()
    by = {"time": str(Metric.WALL), "memory": figure}
    costs = [(by[criterion], weight) for criterion, weight in weights if weight > 0 and by[criterion]]
    complete = [side for side in rivals if costs and all(side.value(name) is not None for name, _ in costs)]
    if complete:

        def cost(side: Candidate, other: Candidate) -> Estimate | None:
            return product(*((side.over(other, name), weight) for name, weight in costs))

        best = complete[0]
        for side in complete[1:]:
            over = cost(side, best)
            best = side if over is not None and over.log < 0 else best
        like = [side.name for side in complete if side is not best and _sign(cost(side, best)) == 0]
        advised = (best.name, *like)
    elif not weights and all(_sign(side.over(pareto[0], name)) == 0 for side in pareto for name in criteria):
        advised = tuple(side.name for side in pareto)
    own_metrics = dict.fromkeys(name for side in rivals for name in side.own_metrics)
    return Choice(
        workers=group[0].counted,
        setting=group[0].setting,
        windows=group[0].windows,
        time=time,
        memory=_ranking(rivals, figure) if figure else None,
        own=tuple(_ranking([side for side in rivals if name in side.own_metrics], name) for name in own_metrics),
        pareto=tuple(side.name for side in pareto),
        advised=advised,
        limits=tuple(_ranked(side, fastest, Metric.WALL) for side in group if side not in rivals),
        cores={side.name: side.figures.cores for side in rivals if side.figures.cores is not None},
    )


def _ranking(sides: Sequence[Candidate], metric: str) -> Ranking:
    gain = metrics.is_gain(metric)
    known = [(found.log, side) for side in sides if (found := side.value(metric)) is not None]
    ordered = [side for _, side in sorted(known, key=lambda pair: -pair[0] if gain else pair[0])]
    ranked = [_ranked(side, ordered[0], metric) for side in ordered]
    # Zeros, which have no logarithm.
    zeros = [side for side in sides if side.value(metric) is None and side.source(metric)]
    none = [Ranked(name=side.name, value=Interval(value=0, low=0, high=0, level=0)) for side in zeros]
    ranked = [*ranked, *none] if gain else [*none, *ranked]
    tied = (each.name for each in ranked[1:] if each.times is not None and each.times.low <= 1)
    return Ranking(metric=metric, ranked=tuple(ranked), tied=(*(each.name for each in ranked[:1]), *tied))


def _ranked(side: Candidate, best: Candidate, metric: str) -> Ranked:
    known, over = side.value(metric), None
    if side is not best:
        over = best.over(side, metric) if metrics.is_gain(metric) else side.over(best, metric)
    assert known is not None  # only those with a value are ranked
    of_values = product((known, 1), (best.value(metric), -1))
    sign = -1 if metrics.is_gain(metric) else 1
    of_both = over is not None and of_values is not None and abs(over.log - sign * of_values.log) > UNLIKE
    return Ranked(name=side.name, value=known.interval(), times=over.interval() if over else None, of_both=of_both)


# ---- tasks of a pool

NOTHING = Estimate(math.log(1e-3), 0.0)
"""What a call in the caller costs beside its work: a picosecond, as nothing has no logarithm."""


def _dispatch(group: Sequence[Candidate]) -> Iterator[Dispatch]:
    """What the pools of one place cost a task, the least first.

    A call in the caller takes what a task does in the pool of the same target that hinders it least. Under the GIL the
    tasks of a pool that pickles nothing run one after the other if they compute: nothing is said of when it pays.
    """
    known = [
        (cost, work, side) for side in group if (cost := side.value("dispatch")) and (work := side.value("task_work"))
    ]
    for cost, work, side in sorted(known, key=lambda each: each[0].log):
        own = min((each for _, each, other in known if other.target == side.target), key=lambda each: each.log)
        kib, pace, pays = side.value("dispatch_kib"), side.value("task_pace"), None
        if pace and (any(side.source("payload").values()) or side.figures.gil_enabled is False):
            pays = _pays(cost, work, own, pace, side.workers)
        interval = kib.interval() if kib else None
        yield Dispatch(**side.placed, work=own.interval(), cost=cost.interval(), kib=interval, pays=pays)


def _pays(cost: Estimate, work: Estimate, own: Estimate, pace: Estimate, workers: int) -> Interval | None:
    """The least task for which the workers together take no longer than the caller.

    Nor is it less than the pace of the results, where that is clearly slower than the workers: the caller's own limit.
    """
    one = Estimate(math.log(workers), 0.0)
    shared, elapsed = product((cost, 1), (one, -1)), product((work, 1), (one, -1))
    even = break_even(shared, elapsed, NOTHING, own) if shared and elapsed else None
    if even is None:
        return None
    if pace.interval().low <= (cost.interval().high + work.interval().high) / workers:
        return even
    low, value, high = (max(ends) for ends in zip(_ends(even), _ends(pace.interval()), strict=True))
    return Interval(value=value, low=low, high=high, level=even.level)


def _ends(interval: Interval) -> tuple[float, float, float]:
    return interval.low, interval.value, interval.high


def break_even(tax: Estimate, work: Estimate, other_tax: Estimate, other_work: Estimate) -> Interval | None:
    """The other's work at which both take as long; None unless its work is clearly longer and its start shorter.

    The ends take the worst of both intervals together, so that the interval is conservative.
    """
    if _sign(product((work, 1), (other_work, -1))) != -1 or _sign(product((tax, 1), (other_tax, -1))) != 1:
        return None
    more, faster = tax.interval(), other_tax.interval()
    slow, quick = other_work.interval(), work.interval()

    def size(tax: float, less: float, work: float, saved: float) -> float:
        return (tax - less) / (1 - saved / work) if saved < work else math.inf

    low = size(max(more.low, faster.high), faster.high, slow.high, quick.low)
    high = size(more.high, faster.low, slow.low, quick.high)
    middle = size(more.value, faster.value, slow.value, quick.value)
    return Interval(value=middle, low=low, high=high, level=more.level)


# ---- memory and contention


def _memory_use(side: Candidate, known: Sequence[Candidate]) -> MemoryUse | None:
    """Its memory, and what a further worker adds: by the fewest workers of its kind, else by its processes."""
    found = next(((name, total) for name in MEMORY if (total := side.value(name))), None)
    if found is None:
        return None
    figure, total = found
    same = [each for each in known if (each.name, each.setting) == (side.name, side.setting)]
    least = min(same, key=lambda each: each.workers)
    below, workers = least.value(figure), side.figures.memory.get("workers")
    further: Interval | None = None
    of: Literal["", "counts", "processes"] = ""
    if least.workers < side.workers and below is not None:
        more, few, count = total.interval(), below.interval(), side.workers - least.workers
        middle = (more.value - few.value) / count
        half = math.hypot((more.high - more.low) / 2, (few.high - few.low) / 2) / count
        further, of = Interval(value=middle, low=middle - half, high=middle + half, level=more.level), "counts"
    elif workers and workers.processes:
        steady = workers.steady_pss if figure == "pss" else workers.steady_uss
        if steady is not None:
            each = steady / workers.processes
            further, of = Interval(value=each, low=each, high=each, level=0.0), "processes"
    return MemoryUse(
        **side.placed,
        figure=figure.upper(),
        total=total.interval(),
        further=further,
        further_of=of,
    )


def _contention(side: Candidate, cores: int) -> Contention | None:
    figures = side.figures
    waits = figures.waits if figures.waits and not figures.waits.unavailable else None
    lock = figures.lock_wait
    gil = waits.gil if waits else median_of(side.source("gil_wait").values())
    unattributed = waits.unattributed if waits else None
    shares = [share for share in (lock, gil, unattributed) if share is not None]
    if not shares:
        return None
    site = max(figures.sites, key=lambda each: each.share, default=None)
    return Contention(
        **side.placed,
        lock=lock,
        gil=gil,
        unattributed=unattributed,
        by_waits=1 / (1 - min(sum(shares), 0.999)),
        by_cores=max(1.0, cores / figures.cores) if cores and figures.cores else None,
        site="" if site is None or not site.share else f"{site.file}:{site.line} {site.kind}",
        imbalance=figures.observed.get("imbalance"),
    )


# ---- scaling


def _scaling(known: Iterable[Candidate]) -> Iterator[ScalingAdvice]:
    """The scaling of each executor on each target in each setting that has several worker counts, the fastest first."""
    counted = (side for side in known if side.counted and side.target)
    ordered = sorted(counted, key=lambda side: (side.setting, side.name, side.workers))
    groups = [list(sides) for _, sides in groupby(ordered, key=lambda side: (side.setting, side.name))]
    for sides in sorted(groups, key=lambda sides: (sides[-1].setting, wall_log(sides[-1]))):
        base = 1
        points = [(side.workers, side.figures.scaling) for side in sides if side.figures.scaling]
        if not points:  # the throughput: the work of an iteration over its time
            walls = [(side, wall) for side in sides if (wall := side.value(Metric.WALL))]
            few, least = walls[0]
            base = few.workers
            for side, wall in walls[1:]:
                gain = product((least, 1), (wall, -1))
                assert gain is not None
                points.append((side.workers, gain.interval(side.work / few.work)))
        if not points or points[-1][0] == base:
            continue
        # The last count that is clearly better than one worker and than the best of those before it.
        best, reached = base, 1.0
        for workers, times in points:
            if times.low > 1 and times.low > reached:
                best, reached = workers, times.value
        found = [figures for side in sides if ((figures := side.figures).lock_ceiling or NO_LIMIT) < NO_LIMIT]
        limit = found[-1].lock_limit if found else None
        yield ScalingAdvice(
            lock_ceiling=found[-1].lock_ceiling if found else None,
            lock=limit.place if limit else "",
            name=sides[0].name,
            setting=sides[0].setting,
            base=base,
            points=tuple(points),
            enough=best if best < points[-1][0] else None,
        )
