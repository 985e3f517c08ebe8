"""Which executor on which interpreter: what the figures of a test say, from a run or from stored baselines. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from statistics import fmean
from typing import Final, Literal, NamedTuple
from zlib import crc32

from msgspec.structs import replace

from ...judge import metrics, recorded
from ...judge.readers import INTERVAL_LEVEL, median_of
from ...judge.recorded import ByRound, Source
from ...kit.text import COMMIT_DIGITS
from ...kit.values import Interval, Metric, Struct
from ...model.report import Figures, Report, Row
from ...model.spec import Reuse
from ...model.verdict import Decision
from ...stats import moderated, rank_tests
from ...store.names import split_nodeid
from ...store.schema import StoredCell, TestBaseline

# The cells that a decision compares, from a run or from stored baselines, and ratios of their figures. Pure.

SPREAD_BOUND = moderated.BOUND
"""Cells of unlike executors differ more from launch to launch than launches of one cell."""
MEMORY = ("pss", Metric.USS.value)
"""PSS counts a page that forked workers share once; USS leaves it out."""
_ROUNDS = 10**6
"""More than a recording has."""


class Candidate(NamedTuple):
    """One cell: its place in the test, its figures, and each launch's values.

    `counted` is the word of its worker count. `work` is how much more an iteration does than with one worker.
    """

    label: str
    executor: str
    target: str
    workers: int
    counted: str
    setting: str
    windows: bool
    work: int
    reuse: Reuse
    figures: Figures
    source: Source
    own: tuple[str, ...]

    @property
    def name(self) -> str:
        """`threads on 3.14t`; a program that runs on no interpreter by its own name."""
        return f"{self.executor} on {self.target}" if self.target else self.executor

    @property
    def keeps(self) -> bool:
        """Whether its workers start once in a launch; tasks start in each iteration."""
        return self.reuse == "pool" and not self.executor.startswith("tasks")

    @property
    def place(self) -> tuple[str, str]:
        """What it shares with the cells that were interleaved with it."""
        return self.counted, self.setting


def of_row(row: Row) -> Candidate:
    """The candidate of a row of a report."""
    cell, sample = row.cell, row.sample
    target = "" if cell.executor.kind == "command" else cell.target.spec
    windows = row.figures.ops_per_s is not None if sample is None else sample.duration_s is not None
    own = [
        f"{kind}.{name}"
        for kind, names in (
            ("timer", row.figures.timers_mean_ns),
            ("counter", row.figures.counters_per_s),
            ("peak", row.figures.peaks),
        )
        for name in sorted(names)
    ]
    latency = ["latency_p50", "latency_p95"] if row.figures.latency is not None else []
    counted, setting = _counted(cell.label, cell.executor.label, target, cell.workers)
    return Candidate(
        label=cell.label,
        executor=cell.executor.label,
        target=target,
        workers=cell.workers,
        counted=counted,
        setting=setting,
        windows=windows,
        work=cell.workers if cell.body == "worker" and not windows else 1,
        reuse="fresh" if sample is None else sample.reuse,
        figures=row.figures,
        source=(lambda _: {}) if sample is None else cache(recorded.source_of(sample)),
        own=(*latency, *own),
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

    def middle(name: str) -> float | None:
        return recorded.figure_of(name, stored.recordings)

    return Candidate(
        label=label,
        executor=newest.executor,
        target=target,
        workers=newest.workers,
        counted=counted,
        setting=setting,
        windows=newest.windows,
        work=newest.workers if newest.body == "worker" and not newest.windows else 1,
        reuse=newest.reuse,
        figures=Figures(cores=middle("cores"), lock_wait_share=middle(Metric.LOCK_WAIT)),
        source=source,
        own=tuple(name for name in newest.values if name.partition(".")[0] in metrics.OWN),
    )


def _counted(label: str, executor: str, target: str, workers: int) -> tuple[str, str]:
    """The word of the worker count and that of the parameters: `w8`, `0.5-10`; either may be empty."""
    rest = label.removeprefix(f"{target}-" if target else "").removeprefix(executor).removeprefix("-")
    words = rest.split("-") if rest else []
    taken = _count_words(words, workers)
    return "-".join(words[:taken]), "-".join(words[taken:])


def _count_words(words: Sequence[str], workers: int) -> int:
    """How many words say the number of workers: `w8` one, `producer8-writer1` one for each role."""
    if words[:1] in ([f"w{workers}"], ["wcores"]):
        return 1
    total = 0
    for index, word in enumerate(words):
        role = re.fullmatch(r"[^\W\d]\w*?(\d+)", word)
        total += int(role[1]) if role else 0
        if role is None or total >= workers:
            return index + 1 if role and total == workers and index else 0
    return 0


# ---- estimates: the centre of logs, and half of its interval


class Estimate(NamedTuple):
    """A logarithm and half of its interval; None: no interval is known."""

    log: float
    half: float | None

    def interval(self, times: float = 1.0) -> Interval:
        """The value on its own scale, multiplied."""
        half = self.half or 0.0
        low, value, high = (times * math.exp(end) for end in (self.log - half, self.log, self.log + half))
        return Interval(value=value, low=low, high=high, level=0.0 if self.half is None else INTERVAL_LEVEL)

    def minus(self, other: Estimate) -> Estimate:
        """The ratio of two that are independent."""
        known = self.half is not None and other.half is not None
        return Estimate(self.log - other.log, math.hypot(self.half or 0, other.half or 0) if known else None)


def estimate(values: Sequence[float], metric: str) -> Estimate | None:
    """The mean of logs with an interval that borrows the metric's usual spread; None for none, or one below 0."""
    if not values or min(values) <= 0:
        return None
    logs = [math.log(value) for value in values]
    deviations = moderated.deviations(logs, (), SPREAD_BOUND * metrics.row(metric).spread)
    half = moderated.half_width(len(logs), INTERVAL_LEVEL) * math.sqrt(fmean(float(each) ** 2 for each in deviations))
    return Estimate(fmean(logs), half)


def value(side: Candidate, metric: str) -> Estimate | None:
    """A candidate's value of a metric; from its figures where its launches are not known."""
    found = estimate(list(side.source(metric).values()), metric)
    if found is not None or side.source(metric):
        return found
    shown = side.figures.of(metric)
    if isinstance(shown, Interval):
        known = shown.level > 0 and shown.low > 0
        return Estimate(math.log(shown.value), math.log(shown.high / shown.low) / 2 if known else None)
    return Estimate(math.log(shown), None) if shown else None


def wall_log(side: Candidate) -> float:
    """The log of its time, by which candidates are put in order; infinite where it is not known."""
    known = value(side, Metric.WALL)
    return known.log if known else math.inf


def ratio(side: Candidate, other: Candidate, metric: str) -> Estimate | None:
    """A candidate's value over another's: by rounds where both were interleaved."""
    own, beside = side.source(metric), other.source(metric)
    common = sorted(own.keys() & beside.keys()) if side.place == other.place else []
    if common and all(own[order] > 0 and beside[order] > 0 for order in common):
        return estimate([own[order] / beside[order] for order in common], metric)
    values = value(side, metric), value(other, metric)
    return values[0].minus(values[1]) if values[0] and values[1] else None


# What follows from measured figures: which executor on which interpreter, and why.

Criterion = Literal["time", "memory"]
"""What a choice may weigh: the wall time, and the memory of the process tree."""
HazardKind = Literal["gil", "fork", "results", "failure"]


class Ranked(Struct, frozen=True, kw_only=True):
    """A candidate in the order of one figure: its value, and how many times that of the best it is.

    `times` is None for the best itself and where no ratio exists; of a figure of which more is better it is the best's
    value over the candidate's. A level of 0 says that an interval is not known.
    """

    name: str
    value: Interval
    times: Interval | None = None


class Ranking(Struct, frozen=True, kw_only=True):
    """The candidates by one metric, best first; `tied` are those that are not told apart from the best, which is one.

    `missing` are the candidates without a value.
    """

    metric: str
    ranked: tuple[Ranked, ...]
    tied: tuple[str, ...]
    missing: tuple[str, ...] = ()


class Choice(Struct, frozen=True, kw_only=True):
    """The cells of a test with the same worker count and parameters, compared.

    `workers` is the word of the cell's id (`w8`, empty for a server's program), `setting` that of its parameters.
    `pareto` are the candidates that no other one beats in every criterion. `advised` is the one that wins, or those
    that are not told apart; empty where nothing wins. `limits` are programs, which are no candidates. `cores` are the
    cores that each candidate kept busy.
    """

    workers: str
    setting: str
    windows: bool
    time: Ranking
    memory: Ranking | None
    own: tuple[Ranking, ...] = ()
    pareto: tuple[str, ...] = ()
    advised: tuple[str, ...] = ()
    limits: tuple[Ranked, ...] = ()
    cores: dict[str, float] = {}


class BuildRatio(Struct, frozen=True, kw_only=True):
    """The time of one candidate over another's; `mixed`: they differ in the interpreter and in the executor."""

    name: str
    other: str
    ratio: Interval
    mixed: bool = False


class StartTax(Struct, frozen=True, kw_only=True):
    """What starting and joining the workers costs, in ns; `task_ns` is the task of which it is 5 %.

    A task is what one start of the workers does: the time between start and join. `overtakes_ns` is the task at which
    the candidate, whose start costs more, takes as long as `overtaken`, whose work takes longer. `paid_once`: the
    workers are kept, so that a launch pays it once.
    """

    name: str
    workers: str
    setting: str
    tax_ns: Interval
    task_ns: Interval
    paid_once: bool = False
    overtaken: str = ""
    overtakes_ns: Interval | None = None


class MemoryUse(Struct, frozen=True, kw_only=True):
    """Memory in bytes with so many workers, and of each further one; None: not known, for the reason `why`.

    `figure` is `PSS` or `USS`; `further_of` says where the figure of a further worker comes from.
    """

    name: str
    workers: str
    setting: str
    figure: str
    total: Interval
    further: Interval | None = None
    further_of: Literal["", "counts", "processes"] = ""
    why: str = ""


class Contention(Struct, frozen=True, kw_only=True):
    """Shares of the workers' time, None where not measured, and the speed-up that their end would bring at most.

    `by_waits` is that of the waits, `by_cores` what the machine's cores leave; None where it is not known. `site` is
    the lock that is waited for longest.
    """

    name: str
    workers: str
    setting: str
    lock: float | None = None
    gil: float | None = None
    unattributed: float | None = None
    by_waits: float | None = None
    by_cores: float | None = None
    site: str = ""


class ScalingPoint(Struct, frozen=True, kw_only=True):
    """The throughput with so many workers over that of the smallest count."""

    workers: int
    times: Interval


class ScalingAdvice(Struct, frozen=True, kw_only=True):
    """How throughput grows from `base` workers on; `serial` is the serial fraction of Amdahl's law.

    More than `enough` workers do not pay; None: not known. `measured` says that this was seen, and not extrapolated.
    """

    name: str
    setting: str
    base: int
    points: tuple[ScalingPoint, ...]
    serial: Interval | None = None
    enough: int | None = None
    measured: bool = False
    cores: int = 0


class Hazard(Struct, frozen=True, kw_only=True):
    """What went wrong in these cells, of `of` in the test, as the run recorded it."""

    kind: HazardKind
    text: str
    cells: tuple[str, ...]
    of: int


class Advice(Struct, frozen=True, kw_only=True):
    """What the figures of one test say; `source` names the run or the recordings that they are of.

    `weights` are those that were asked for; none: time and memory weigh alone, and nothing is traded for the other.
    `unknown` are topics on which nothing was measured; `unsupported` maps a reason to the cells that it kept from it.
    """

    test: str
    source: str
    choices: tuple[Choice, ...] = ()
    builds: tuple[BuildRatio, ...] = ()
    starts: tuple[StartTax, ...] = ()
    memory: tuple[MemoryUse, ...] = ()
    contention: tuple[Contention, ...] = ()
    scaling: tuple[ScalingAdvice, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    weights: tuple[tuple[Criterion, float], ...] = ()
    unknown: tuple[str, ...] = ()
    unsupported: dict[str, tuple[str, ...]] = {}


# How throughput grows with the workers, and the count beyond which more do not pay. Pure.

PAYS = 0.05
"""One further worker pays where it adds at least this share of throughput."""
MOST = 1024
"""No further worker is looked at beyond this count."""


def of_candidates(known: Iterable[Candidate], cores: int) -> tuple[ScalingAdvice, ...]:
    """The scaling of each executor on each target in each setting that has several worker counts, the fastest first."""
    counted = (side for side in known if side.counted and side.target)
    ordered = sorted(counted, key=lambda side: (side.setting, side.name, side.workers))
    groups = [list(sides) for _, sides in groupby(ordered, key=lambda side: (side.setting, side.name))]
    groups.sort(key=lambda sides: (sides[-1].setting, wall_log(sides[-1])))
    found = (_scaling(sides, cores) for sides in groups)
    return tuple(each for each in found if each is not None)


def _scaling(sides: Sequence[Candidate], cores: int) -> ScalingAdvice | None:
    beside_one = [side for side in sides if side.figures.scaling is not None]
    if beside_one:
        base = 1
        points = [(side.workers, side.figures.scaling) for side in beside_one if side.figures.scaling]
    else:
        rates = [(side.workers, rate) for side in sides if (rate := _rate(side)) is not None]
        if len({workers for workers, _ in rates}) < 2:
            return None
        base, first = rates[0]
        points = [(workers, rate.minus(first).interval()) for workers, rate in rates[1:]]
    # Workers of different roles do not share one piece of work.
    alike = re.fullmatch(r"w\d+|wcores", sides[-1].counted)
    serial = _serial(base, *points[-1]) if alike else None
    enough, measured = _enough(base, points, serial)
    return ScalingAdvice(
        name=sides[0].name,
        setting=sides[0].setting,
        base=base,
        points=tuple(ScalingPoint(workers=workers, times=times) for workers, times in points),
        serial=serial,
        enough=enough,
        measured=measured,
        cores=cores,
    )


def _rate(side: Candidate) -> Estimate | None:
    """The throughput: the work of an iteration over its time."""
    wall = value(side, Metric.WALL)
    return Estimate(math.log(side.work) - wall.log, wall.half) if wall else None


def _serial(base: int, workers: int, times: Interval) -> Interval | None:
    """The serial fraction that explains the throughput from `base` to `workers` workers by Amdahl's law.

    With one as its base it is the measure of Karp and Flatt. A larger base is not scaled by itself: T(n) is
    proportional to f + (1 - f) / n, so that f follows from both times.
    """
    if workers <= base:
        return None

    def fraction(speed_up: float) -> float:
        if base == 1:
            return rank_tests.amdahl(speed_up, workers)
        # speed_up (f + (1 - f) / workers) = f + (1 - f) / base
        slope = speed_up * (1 - 1 / workers) - (1 - 1 / base)
        return (1 / base - speed_up / workers) / slope if slope > 0 else math.inf

    low, value, high = (min(1.0, max(0.0, fraction(end))) for end in (times.high, times.value, times.low))
    return Interval(value=value, low=low, high=high, level=times.level)


def _enough(base: int, points: Sequence[tuple[int, Interval]], serial: Interval | None) -> tuple[int | None, bool]:
    """The count beyond which more do not pay, and whether that was seen; else it is Amdahl's law that says it."""
    best, reached = base, 1.0
    for workers, times in points:
        if times.low > 1 and times.low > reached:
            best, reached = workers, times.value
    if best < points[-1][0]:
        return best, True
    if serial is None:
        return None, False
    speeds = ((count, 1 / (serial.value + (1 - serial.value) / count)) for count in range(1, MOST + 1))
    previous = next(speeds)
    for count, speed in speeds:
        if speed < previous[1] * (1 + PAYS):
            return previous[0], False
        previous = count, speed
    return None, False


Weights = tuple[tuple[Criterion, float], ...]
TAX = 0.05
"""A start matters where it adds more than this share to a task."""
HAZARDS: Final[Mapping[HazardKind, re.Pattern[str]]] = {
    "gil": re.compile(r"the GIL came back on"),
    "results": re.compile(r"another result|different results"),
    "fork": re.compile(r"multi-threaded, use of fork|use of fork\(\) may lead to deadlocks"),
}


def of_report(report: Report, weights: Weights = ()) -> tuple[Advice, ...]:
    """An Advice for each test of a report, in its order; of unlike machines one for each, named as their tables."""
    machines = report.by_fingerprint()
    tests: dict[str, tuple[list[Row], int]] = {}
    for machine, rows in machines:
        on = f" on {machine.fingerprint}" if len(machines) > 1 else ""
        for row in rows:
            tests.setdefault(f"{split_nodeid(row.cell.nodeid)[0]}{on}", ([], machine.cores))[0].append(row)
    source = f"the run of {report.started_at}" + (
        f" at commit {report.commit[:COMMIT_DIGITS]}" if report.commit else ""
    )
    return tuple(_of_rows(test, rows, source, cores, weights) for test, (rows, cores) in tests.items())


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
    recorded = sorted({cell.recordings[-1].recorded_at for cell in newest.values()})
    machine = baseline.machines[fingerprint]
    source = f"baselines recorded {recorded[-1]} on {fingerprint}"
    return _advice(baseline.test, source, sides, (), machine.cores, weights)


def _of_rows(test: str, rows: Sequence[Row], source: str, cores: int, weights: Weights) -> Advice:
    sides = [of_row(row) for row in rows if row.verdict.decision is not Decision.ERROR]
    found = _advice(test, source, sides, _hazards(rows), cores, weights)
    return replace(found, unsupported=_unsupported(rows))


def _unsupported(rows: Iterable[Row]) -> dict[str, tuple[str, ...]]:
    """Reason -> the cells that could not be run for it."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict.decision is Decision.UNSUPPORTED:
            found.setdefault(row.verdict.reason, []).append(row.cell.label)
    return {reason: tuple(labels) for reason, labels in found.items()}


def _advice(
    test: str, source: str, sides: Sequence[Candidate], hazards: tuple[Hazard, ...], cores: int, weights: Weights
) -> Advice:
    known = [side for side in sides if value(side, Metric.WALL) is not None]
    groups = [list(group) for _, group in groupby(sorted(known, key=_place), key=_place)]
    largest = _largest(side for side in known if side.target)
    memory = tuple(filter(None, (_memory_use(side, known) for side in largest)))
    contention = tuple(filter(None, (_contention(side, cores) for side in largest)))
    found = Advice(
        test=test,
        source=source,
        choices=tuple(_choice(group, weights) for group in groups),
        builds=_builds(largest),
        starts=tuple(each for group in groups for each in _starts(group)),
        memory=memory,
        contention=contention,
        scaling=of_candidates(known, cores),
        hazards=hazards,
        weights=weights,
    )
    topics = {"time": found.choices, "start-up": found.starts, "memory": memory, "contention": contention}
    topics["scaling"] = found.scaling
    return replace(found, unknown=tuple(topic for topic, facts in topics.items() if not facts))


def _place(side: Candidate) -> tuple[str, int, str]:
    return side.setting, side.workers, side.counted


def _largest(sides: Iterable[Candidate]) -> list[Candidate]:
    """Of each executor, target and setting the cell with the most workers, the fastest first."""
    found: dict[tuple[str, str], Candidate] = {}
    for side in sides:
        key = side.name, side.setting
        if key not in found or found[key].workers < side.workers:
            found[key] = side
    return sorted(found.values(), key=lambda side: (side.setting, wall_log(side)))


# ---- the choice


def _choice(group: Sequence[Candidate], weights: Weights) -> Choice:
    """The comparison of cells that were interleaved; a program is a limit, no candidate."""
    rivals = [side for side in group if side.target] or list(group)
    time = _ranking(rivals, Metric.WALL)
    figure = memory_figure(rivals)
    own = dict.fromkeys(name for side in rivals for name in side.own)
    first = next(side for side in rivals if side.name == time.ranked[0].name)
    return Choice(
        workers=group[0].counted,
        setting=group[0].setting,
        windows=group[0].windows,
        time=time,
        memory=_ranking(rivals, figure) if figure else None,
        own=tuple(_ranking([side for side in rivals if name in side.own], name) for name in own),
        pareto=tuple(side.name for side in _pareto(rivals, figure)),
        advised=_advised(rivals, figure, weights),
        limits=tuple(_ranked(side, first, Metric.WALL) for side in group if side not in rivals),
        cores={side.name: side.figures.cores for side in rivals if side.figures.cores is not None},
    )


def memory_figure(sides: Sequence[Candidate]) -> str:
    """The figure by which the memory of these is compared: PSS where any has it, else USS; empty without both."""
    return next((name for name in MEMORY if any(value(side, name) for side in sides)), "")


def _ranking(sides: Sequence[Candidate], metric: str) -> Ranking:
    known = [(found.log, side) for side in sides if (found := value(side, metric)) is not None]
    zeros = [side for side in sides if value(side, metric) is None and side.source(metric)]  # they have no logarithm
    gain = metrics.is_gain(metric)
    ordered = [side for _, side in sorted(known, key=lambda pair: -pair[0] if gain else pair[0])]
    ranked = [_ranked(side, ordered[0], metric) for side in ordered]
    none = [Ranked(name=side.name, value=Interval(value=0, low=0, high=0, level=0)) for side in zeros]
    ranked = [*ranked, *none] if gain else [*none, *ranked]
    tied = [each.name for each in ranked if each.times is not None and each.times.low <= 1]
    named = {each.name for each in ranked}
    return Ranking(
        metric=metric,
        ranked=tuple(ranked),
        tied=tuple([ranked[0].name, *tied] if ranked else ()),
        missing=tuple(side.name for side in sides if side.name not in named),
    )


def _ranked(side: Candidate, best: Candidate, metric: str) -> Ranked:
    known, over = value(side, metric), None
    if side is not best:
        over = ratio(best, side, metric) if metrics.is_gain(metric) else ratio(side, best, metric)
    assert known is not None  # only those with a value are ranked
    return Ranked(name=side.name, value=known.interval(), times=over.interval() if over else None)


def _clear(estimate: Estimate | None) -> int:
    """1 where a ratio is above 1 with its whole interval, -1 where it is below, else 0."""
    if estimate is None or estimate.half is None or abs(estimate.log) <= estimate.half:
        return 0
    return 1 if estimate.log > 0 else -1


def _pareto(rivals: Sequence[Candidate], figure: str) -> list[Candidate]:
    """Those that none beats: clearly better in time or memory, and clearly worse in neither."""

    def beaten(side: Candidate) -> bool:
        for other in rivals:
            signs = [_clear(ratio(side, other, name)) for name in filter(None, (Metric.WALL, figure))]
            if other is not side and 1 in signs and -1 not in signs:
                return True
        return False

    left = [side for side in rivals if not beaten(side)]
    return sorted(left or rivals, key=wall_log)


def _advised(rivals: Sequence[Candidate], figure: str, weights: Weights) -> tuple[str, ...]:
    """The one with the least product of powers of its figures, and those that are not told apart from it.

    Without weights it is the one that is in the Pareto set alone, or all that no figure tells apart.
    """
    if not weights:
        left = _pareto(rivals, figure)
        alike = all(_clear(ratio(side, left[0], name)) == 0 for side in left for name in (Metric.WALL, figure) if name)
        return tuple(side.name for side in left) if alike else ()
    names = {"time": str(Metric.WALL), "memory": figure}
    costs = [(names[criterion], weight) for criterion, weight in weights if weight > 0 and names[criterion]]

    def over(side: Candidate, other: Candidate) -> Estimate | None:
        parts = [(weight, ratio(side, other, name)) for name, weight in costs]
        known = [(weight, part) for weight, part in parts if part is not None]
        if len(known) < len(parts):
            return None
        halves = [None if part.half is None else weight * part.half for weight, part in known]
        half = None if None in halves else math.hypot(*(each or 0 for each in halves))
        return Estimate(sum(weight * part.log for weight, part in known), half)

    complete = [side for side in rivals if all(value(side, name) is not None for name, _ in costs)]
    if not complete or not costs:
        return ()
    best = complete[0]
    for side in complete[1:]:
        apart = over(side, best)
        best = side if apart is not None and apart.log < 0 else best
    return (best.name, *(side.name for side in complete if side is not best and _clear(over(side, best)) == 0))


# ---- builds


def _builds(largest: Sequence[Candidate]) -> tuple[BuildRatio, ...]:
    """The fastest against the fastest of another executor on another target, and what each part of that comes to.

    These are of the most workers, in the setting in which the pair is farthest apart.
    """
    found: list[tuple[float, tuple[BuildRatio, ...]]] = []
    for _, group in groupby(largest, key=lambda side: side.setting):
        rivals = sorted(group, key=wall_log)
        best = rivals[0]
        other = next((s for s in rivals if s.target != best.target and s.executor != best.executor), None)
        if other is None:
            continue
        pairs = [(best, other)]
        on = {(side.executor, side.target): side for side in rivals}
        for first, second in (
            ((best.executor, best.target), (best.executor, other.target)),
            ((other.executor, best.target), (other.executor, other.target)),
            ((best.executor, best.target), (other.executor, best.target)),
            ((best.executor, other.target), (other.executor, other.target)),
        ):
            if first in on and second in on:
                pairs.append((on[first], on[second]))
        ratios = [(side, beside, over) for side, beside in pairs if (over := ratio(side, beside, Metric.WALL))]
        if len(ratios) > 1:
            found.append((abs(ratios[0][2].log), tuple(_build_ratio(*each) for each in ratios)))
    return max(found, key=lambda each: each[0])[1] if found else ()


def _build_ratio(side: Candidate, other: Candidate, over: Estimate) -> BuildRatio:
    mixed = side.target != other.target and side.executor != other.executor
    return BuildRatio(name=side.name, other=other.name, ratio=over.interval(), mixed=mixed)


# ---- starting


class _Phases(NamedTuple):
    """The tax and the work of a candidate."""

    side: Candidate
    tax: Estimate
    work: Estimate


def _starts(group: Sequence[Candidate]) -> list[StartTax]:
    """The start of each candidate of a group, the cheapest first; none for windows, which do not contain it."""
    phases = [each for side in group if side.target and not side.windows if (each := _phases(side)) is not None]
    ordered = sorted(phases, key=lambda each: each.tax.log)
    return [_start_tax(each, ordered[:index]) for index, each in enumerate(ordered)]


def _phases(side: Candidate) -> _Phases | None:
    taxes = _sums(side.source, ("start", "join"))
    works = list(side.source("work").values())
    # New in each iteration, a start is as steady as the work: it is a median of a launch.
    tax = estimate(taxes, "start" if side.keeps else "work")
    work = estimate(works, "work")
    figures = side.figures
    if tax is None and not taxes and figures.start_ns is not None:
        both = figures.start_ns + (figures.join_ns or 0)
        tax = Estimate(math.log(both), None) if both > 0 else None
        work = Estimate(math.log(figures.work_ns), None) if figures.work_ns else None
    return _Phases(side, tax, work) if tax and work else None


def _sums(source: Callable[[str], Mapping[int, float]], names: Sequence[str]) -> list[float]:
    """The sum of these by round, in the rounds that have all."""
    parts = [source(name) for name in names]
    return [sum(part[order] for part in parts) for order in sorted(set(parts[0]).intersection(*parts[1:]))]


def _start_tax(each: _Phases, cheaper: Sequence[_Phases]) -> StartTax:
    side, pool = each.side, each.side.keeps
    # The cheapest start on the same interpreter: what other executors cost is between the two.
    first = next((other for other in cheaper if other.side.target == side.target and not pool), None)
    overtakes = _break_even(each, first) if first else None
    tax = each.tax.interval()
    return StartTax(
        name=side.name,
        workers=side.counted,
        setting=side.setting,
        tax_ns=tax,
        task_ns=each.tax.interval(1 / TAX),
        paid_once=pool,
        overtaken=first.side.name if first and overtakes else "",
        overtakes_ns=overtakes,
    )


def _break_even(each: _Phases, other: _Phases) -> Interval | None:
    """The work of `other` at which both take as long; None unless its work is clearly longer and its start shorter.

    The ends take the worst of both intervals together, so that the interval is conservative.
    """
    if _clear(each.work.minus(other.work)) != -1 or _clear(each.tax.minus(other.tax)) != 1:
        return None
    more, faster = each.tax.interval(), other.tax.interval()
    slow, quick = other.work.interval(), each.work.interval()

    def size(tax: float, less: float, work: float, saved: float) -> float:
        return (tax - less) / (1 - saved / work) if saved < work else math.inf

    low = size(max(more.low, faster.high), faster.high, slow.high, quick.low)
    high = size(more.high, faster.low, slow.low, quick.high)
    middle = size(more.value, faster.value, slow.value, quick.value)
    return Interval(value=middle, low=low, high=high, level=more.level)


# ---- memory


def _memory_use(side: Candidate, known: Sequence[Candidate]) -> MemoryUse | None:
    figure = memory_figure([side])
    total = value(side, figure) if figure else None
    if total is None:
        return None
    same = [each for each in known if (each.name, each.setting) == (side.name, side.setting)]
    least = min(same, key=lambda each: each.workers)
    below = value(least, figure)
    further: Interval | None = None
    of = ""
    if least.workers < side.workers and below is not None:
        more, few, count = total.interval(), below.interval(), side.workers - least.workers
        middle = (more.value - few.value) / count
        half = math.hypot((more.high - more.low) / 2, (few.high - few.low) / 2) / count
        further, of = Interval(value=middle, low=middle - half, high=middle + half, level=more.level), "counts"
    elif (workers := side.figures.memory.get("workers")) is not None and workers.processes:
        steady = workers.steady_pss if figure == "pss" else workers.steady_uss
        if steady is not None:
            each = steady / workers.processes
            further, of = Interval(value=each, low=each, high=each, level=0.0), "processes"
    return MemoryUse(
        name=side.name,
        workers=side.counted,
        setting=side.setting,
        figure=figure.upper(),
        total=total.interval(),
        further=further,
        further_of=of,  # type: ignore[arg-type]
        why="" if further else "one worker count alone was measured",
    )


# ---- contention


def _contention(side: Candidate, cores: int) -> Contention | None:
    waits, figures = side.figures.waits, side.figures
    sampled = waits is not None and not waits.unavailable
    lock = figures.lock_wait_share
    gil = waits.gil if waits and sampled else median_of(side.source("gil_wait_share").values())
    unattributed = waits.unattributed if waits and sampled else None
    shares = [share for share in (lock, gil, unattributed) if share is not None]
    if not shares:
        return None
    waiting = min(sum(shares), 0.999)
    busy = figures.cores
    site = max(figures.sites, key=lambda each: each.share, default=None)
    return Contention(
        name=side.name,
        workers=side.counted,
        setting=side.setting,
        lock=lock,
        gil=gil,
        unattributed=unattributed,
        by_waits=1 / (1 - waiting),
        by_cores=max(1.0, cores / busy) if cores and busy else None,
        site="" if site is None or not site.share else f"{site.file}:{site.line} {site.kind}",
    )


# ---- hazards


def _hazards(rows: Sequence[Row]) -> tuple[Hazard, ...]:
    """What was recorded as errors, by kind and text."""
    found: dict[tuple[HazardKind, str], list[str]] = {}
    for row in rows:
        error = row.error or (row.sample.error if row.sample else None)
        if error is None:
            continue
        kinds = [kind for kind, pattern in HAZARDS.items() if pattern.search(f"{error.reason}\n{error.detail}")]
        key = (kinds[0] if kinds else "failure", error.reason.partition("\n")[0])
        found.setdefault(key, []).append(row.cell.label)
    return tuple(
        Hazard(kind=kind, text=text, cells=tuple(cells), of=len(rows)) for (kind, text), cells in found.items()
    )
