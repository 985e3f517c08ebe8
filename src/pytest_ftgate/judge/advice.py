"""Which executor on which interpreter: what the figures of a test say, from a run or from stored baselines. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from msgspec.structs import replace

from ..kit.text import COMMIT_DIGITS
from ..kit.values import Interval, Metric
from ..model.advice import (
    Advice,
    BuildRatio,
    Choice,
    Contention,
    Criterion,
    Hazard,
    HazardKind,
    MemoryUse,
    Ranked,
    Ranking,
    StartTax,
)
from ..model.report import Report, Row
from ..model.verdict import Decision
from ..store.names import split_nodeid
from ..store.schema import StoredCell, TestBaseline
from . import candidates, metrics, scaling_advice
from .candidates import MEMORY, Candidate, Estimate, ratio, value
from .readers import median_of

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
    sides = [candidates.from_stored(label, cell) for label, cell in newest.items()]
    recorded = sorted({cell.recordings[-1].recorded_at for cell in newest.values()})
    machine = baseline.machines[fingerprint]
    source = f"baselines recorded {recorded[-1]} on {fingerprint}"
    return _advice(baseline.test, source, sides, (), machine.cores, weights)


def _of_rows(test: str, rows: Sequence[Row], source: str, cores: int, weights: Weights) -> Advice:
    sides = [candidates.of_row(row) for row in rows if row.verdict.decision is not Decision.ERROR]
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
        scaling=scaling_advice.of_candidates(known, cores),
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
    return sorted(found.values(), key=lambda side: (side.setting, candidates.wall_log(side)))


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
    return sorted(left or rivals, key=candidates.wall_log)


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
        rivals = sorted(group, key=candidates.wall_log)
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
    tax = candidates.estimate(taxes, "start" if side.keeps else "work")
    work = candidates.estimate(works, "work")
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
