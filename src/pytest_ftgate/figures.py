"""What a row of the table shows, from the raw launches of its cell: pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from statistics import fmean, median

from pytest_ftgate import stats
from pytest_ftgate.lockwaits import percentile
from pytest_ftgate.model import (
    Barrier,
    Figures,
    Footprint,
    Interval,
    Latency,
    Launch,
    LockSite,
    LockWaits,
    MemoryPoint,
    RoleFigures,
    Sample,
    SiteFigures,
    Turn,
    WaitFigures,
    Waits,
    WaitsFor,
)

QUANTILE = 0.25
NS_PER_S = 1e9
INTERVAL_LEVEL = 0.95
TREE = "tree"
"""The key of the whole process tree beside those of its roles."""
GIL_WAITS = 20
"""So many single waits for the GIL must have been seen to end for percentiles of their lengths."""
PAUSES_CROWDED = 4
"""So many pauses between looks their median must last where threads wait longer for a core than for the GIL: there the
looks come late too, at all paces, and what falls beside them is more than can be made up for. Elsewhere one pause."""
ELSEWHERE = ("multiprocessing.", "asyncio.")
"""Kinds of lock that park no thread in the process: these wait for another process, or in the event loop."""

Sides = list[tuple[tuple[float, ...], tuple[float, ...]]]
"""A launch each: the turn values of a side, and those of its neighbours."""


def figures(sample: Sample, *, reference: Sample | None, quantile: float = QUANTILE) -> Figures:
    """The figures of one cell; each is None or empty where what it is made of was not measured.

    `reference` is the sample that `ratio` refers to, the cell's own included. `quantile` is that of the floor of a
    launch. The wall interval is that of the geometric mean over launches, all others are exact, see `stats.location`.
    `growth_bytes` is an iteration's: one body call in each worker.
    """
    values = launch_values(sample.launches, quantile=quantile)
    against = launch_values(reference.launches, quantile=quantile) if reference else {}
    candle = launch_values(sample.candle, quantile=quantile)
    scaling = _scaling(sample)
    workers = sample.cell.workers
    return Figures(
        wall_ns=_interval(values.values()),
        start_ns=_phase(sample.launches, lambda turn: turn.start_ns),
        work_ns=_phase(sample.launches, lambda turn: turn.work_ns),
        join_ns=_phase(sample.launches, lambda turn: turn.join_ns),
        cold_ns=_cold(sample.launches),
        ratio=paired_ratio(values, against),
        candle_ratio=paired_ratio(values, candle),
        cores=_median(_cores(launch) for launch in sample.launches),
        rss_bytes=_memory(sample.memory, lambda point: point.rss_bytes),
        uss_bytes=_memory(sample.memory, lambda point: point.steadiest_bytes),
        uss_peak_bytes=_peak(sample.memory),
        pss_bytes=_memory(sample.memory, lambda point: point.pss_bytes),
        ops_per_s=_median(_rate(launch) for launch in sample.launches),
        counters_per_s=_counters(sample.launches),
        timers_mean_ns=_timers(sample.launches),
        peaks=_peaks(sample.launches),
        latency=_latency(sample.launches),
        gil_enabled=_gil(sample.launches) if sample.cell.executor.program is None else None,
        lock_wait_share=_median(lock_share_values(sample)),
        queue_wait_share=_median(_shares(sample, waits_for="queue")),
        sites=_sites(sample),
        lock_cost=_cost(side_by_side(sample.locks, sample.launches)),
        memory_cost=_cost([_looked(launch) for launch in sample.memory]),
        waits=_waits(sample),
        memory=_roles(sample.memory),
        floor_uss_bytes=_steady(sample.floor, TREE, lambda part: part.steadiest_bytes),
        floor_pss_bytes=_steady(sample.floor, TREE, lambda part: part.pss_bytes),
        growth_bytes=_growth(sample.growth, sample.growth_floor),
        scaling=scaling,
        efficiency=scaling.value / workers if scaling else None,
        serial_fraction=stats.amdahl(scaling.value, workers) if scaling and workers > 1 else None,
    )


def turn_value(turn: Turn, loops: int, per_op: bool) -> float:
    """The time of one loop of a turn in ns, or of one operation over all workers; NaN if it has none.

    A window of a duration lasts as long as it was told to, so its own wall time compares nothing: 1 / rate does.
    """
    if per_op:
        return NS_PER_S / turn.rate if turn.rate > 0 else math.nan
    return turn.wall_ns / loops if loops > 0 and turn.wall_ns > 0 else math.nan


def launch_value(launch: Launch, *, quantile: float = QUANTILE) -> float | None:
    """The floor of a launch in ns: a low quantile of its turns' `turn_value`; None without a turn that has one."""
    turns = (turn_value(turn, launch.loops, launch.window_ns > 0) for turn in launch.turns)
    usable = [value for value in turns if math.isfinite(value)]
    return stats.floor(usable, quantile) if usable else None


def launch_values(launches: Iterable[Launch], *, quantile: float = QUANTILE) -> dict[int, float]:
    """Launch order -> floor in ns, for the launches that have one."""
    floors = {launch.order: launch_value(launch, quantile=quantile) for launch in launches}
    return {order: value for order, value in floors.items() if value is not None}


def launch_ratios(values: dict[int, float], reference: dict[int, float]) -> tuple[float, ...]:
    """The ratios of the launches that took turns, that is of the same order, in that order."""
    return tuple(values[order] / reference[order] for order in sorted(values.keys() & reference.keys()))


def paired_ratio(values: dict[int, float], reference: dict[int, float]) -> float | None:
    """The geometric mean of `launch_ratios`; None when no launch of one took turns with one of the other."""
    ratios = launch_ratios(values, reference)
    return math.exp(fmean(map(math.log, ratios))) if ratios else None


def _interval(values: Iterable[float]) -> Interval | None:
    known = tuple(values)
    return stats.log_interval(known) if known else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None


def _phase(launches: Sequence[Launch], ns_of: Callable[[Turn], int]) -> float | None:
    """The median over launches of the median phase, per loop; of a window as it is, which has one loop."""
    return _median(_median(ns_of(turn) / max(1, launch.loops) for turn in launch.turns) for launch in launches)


def _cold(launches: Sequence[Launch]) -> float | None:
    """The median cold turn, in the unit of the wall time; it comes before loops are calibrated, so it has one."""
    values = (turn_value(launch.cold, 1, launch.window_ns > 0) for launch in launches if launch.cold)
    return _median(value if math.isfinite(value) else None for value in values)


def _cores(launch: Launch) -> float | None:
    """CPU time over wall time, all turns of a launch together: the cores kept busy."""
    wall_ns = sum(turn.wall_ns for turn in launch.turns)
    return sum(turn.cpu_ns for turn in launch.turns) / wall_ns if wall_ns > 0 else None


def _rate(launch: Launch) -> float | None:
    return _median(turn.rate if turn.rate > 0 else None for turn in launch.turns)


def _memory(launches: Sequence[Launch], bytes_of: Callable[[MemoryPoint], int | None]) -> float | None:
    """The median over launches of the median over a launch's points."""
    return _median(_median(map(bytes_of, launch.memory)) for launch in launches)


def _peak(launches: Sequence[Launch]) -> float | None:
    """The largest USS seen at any point: a lower bound, as the platform keeps no peak of it."""
    points = (point.steadiest_bytes for launch in launches for point in launch.memory)
    seen = [unique for unique in points if unique is not None]
    return float(max(seen)) if seen else None


def _window_s(launch: Launch) -> float:
    """The measured window of a launch in seconds, without start and join, which would hide a part of every rate."""
    return sum(turn.ops / turn.rate if turn.rate > 0 else turn.work_ns / NS_PER_S for turn in launch.turns)


def _counters(launches: Sequence[Launch]) -> dict[str, float]:
    """Each counter per second of the measured window: the median over launches; one that never counted is 0."""
    windows = [(launch, _window_s(launch)) for launch in launches]
    names = sorted({name for launch in launches for name in launch.counters})
    rates = {
        name: _median(launch.counters.get(name, 0.0) / window_s for launch, window_s in windows if window_s > 0)
        for name in names
    }
    return {name: rate for name, rate in rates.items() if rate is not None}


def counter_values(launches: Iterable[Launch], name: str) -> dict[int, float]:
    """Launch order -> a counter per second of the measured window; empty where no launch has counted so."""
    there = list(launches)
    windows = ((launch, _window_s(launch)) for launch in there if any(name in each.counters for each in there))
    return {launch.order: launch.counters.get(name, 0.0) / span_s for launch, span_s in windows if span_s > 0}


def _timers(launches: Sequence[Launch]) -> dict[str, float]:
    """Each timer's mean in ns: the median over launches of total / count."""
    means: dict[str, list[float]] = {}
    for launch in launches:
        for name, timer in launch.timers.items():
            if timer.count > 0:
                means.setdefault(name, []).append(timer.total_ns / timer.count)
    return {name: float(median(values)) for name, values in sorted(means.items())}


def _peaks(launches: Sequence[Launch]) -> dict[str, float]:
    """Each peak: the median over the launches that know it of the largest of their measured turns."""
    names = sorted({name for launch in launches for name in launch.peaks})
    return {name: float(median(x.peaks[name] for x in launches if name in x.peaks)) for name in names}


def _latency(launches: Sequence[Launch]) -> Latency | None:
    """The medians over launches of the median window; the longest answer of all, and all the errors."""
    seen = [[turn.latency for turn in launch.turns if turn.latency is not None] for launch in launches]
    each = [latencies for latencies in seen if latencies]
    if not each:
        return None

    def middle(ns_of: Callable[[Latency], float]) -> float:
        return float(median(median(map(ns_of, latencies)) for latencies in each))

    every = list(chain.from_iterable(each))
    return Latency(
        mean_ns=middle(lambda latency: latency.mean_ns),
        p50_ns=middle(lambda latency: latency.p50_ns),
        p95_ns=middle(lambda latency: latency.p95_ns),
        p99_ns=middle(lambda latency: latency.p99_ns),
        max_ns=max(latency.max_ns for latency in every),
        errors=sum(latency.errors for latency in every),
    )


def _gil(launches: Sequence[Launch]) -> bool | None:
    """Whether any launch ran with the GIL: an import may turn it on in one and not in another."""
    measured = [launch.gil_enabled for launch in launches if launch.turns]
    return any(measured) if measured else None


# ---- side by side


def side_by_side(launches: Iterable[Launch], beside: Iterable[Launch]) -> Sides:
    """The turn values of the launches that took turns with each other, in the order of launches.

    Turns are neighbours from the first on: a launch that took part in fewer of them did so in the first.
    """
    return list(sides_by_order(launches, beside).values())


def sides_by_order(
    launches: Iterable[Launch], beside: Iterable[Launch]
) -> dict[int, tuple[tuple[float, ...], tuple[float, ...]]]:
    """The same by the launches' order, which ascends."""
    others = {launch.order: _turn_values(launch) for launch in beside}
    own = {launch.order: _turn_values(launch) for launch in launches}
    pairs = {order: stats.neighbours(own[order], others[order]) for order in sorted(own.keys() & others.keys())}
    return {order: (first, second) for order, (first, second) in pairs.items() if first and second}


def _turn_values(launch: Launch) -> list[float]:
    return [turn_value(turn, launch.loops, launch.window_ns > 0) for turn in launch.turns]


def _looked(launch: Launch) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The windows in which a launch was watched, and the bare ones beside them; neither where one has no value."""
    if launch.looking is None:
        return (), ()
    watched, bare = (
        [value if value > 0 else math.nan for value in side]
        for side in (launch.looking.watched_ns, launch.looking.bare_ns)
    )
    return stats.neighbours(watched, bare)


def _cost(sides: Sides) -> Interval | None:
    """What a probe costs: the time with it over the time without."""
    measured = [(own, beside) for own, beside in sides if own and beside]
    return stats.ratio_interval(measured, INTERVAL_LEVEL) if measured else None


def scaling_values(sample: Sample) -> dict[int, float]:
    """Launch order -> throughput over that of the one-worker cell that took turns with it.

    The median over its turns of the one-worker turn over its own, times the work that it does meanwhile. Empty
    without a one-worker cell beside it.
    """
    sides = sides_by_order(sample.single, sample.launches)
    ratios = {order: stats.turns_ratio(single, own, stats.PAIRED) for order, (single, own) in sides.items()}
    return {order: work_ratio(sample) * ratio for order, ratio in ratios.items()}


def uss_values(launches: Iterable[Launch], written: bool | None = None) -> dict[int, float]:
    """Launch order -> median over its looks of the tree's USS in bytes, or of the part of it that was `written`.

    None takes the written part where the platform has it.
    """

    def seen(point: MemoryPoint) -> int | None:
        if written is None:
            return point.steadiest_bytes
        return point.written_bytes if written else point.uss_bytes

    medians = {launch.order: _median(map(seen, launch.memory)) for launch in launches}
    return {order: value for order, value in sorted(medians.items()) if value is not None}


def work_ratio(sample: Sample) -> int:
    """How much more a turn value of the cell does than one of its one-worker cell.

    Each worker runs a body of its own; an executor's body does the same work whatever its workers, and the value of a
    window is that of one operation.
    """
    windows = any(launch.window_ns > 0 for launch in sample.launches)
    return sample.cell.workers if sample.cell.body == "worker" and not windows else 1


def _scaling(sample: Sample) -> Interval | None:
    sides = side_by_side(sample.single, sample.launches)
    if not sides:
        return None
    times, ratio = work_ratio(sample), stats.ratio_interval(sides, INTERVAL_LEVEL)
    return Interval(value=times * ratio.value, low=times * ratio.low, high=times * ratio.high, level=ratio.level)


# ---- locks


def lock_share_values(sample: Sample) -> tuple[float, ...]:
    """A value a lock launch, in their order: time waited for locks over workers x time at work, queue wait apart."""
    return _shares(sample, waits_for="lock")


def shares_by_order(sample: Sample, waits_for: WaitsFor, but: tuple[str, ...] = ()) -> dict[int, float]:
    """Launch order -> the same of lock or of queue wait; `but` are beginnings of kinds that are left out."""
    shares = {}
    for order, locks in _lock_waits(sample).items():
        waited = sum(
            site.total_ns for site in locks.sites if site.waits_for == waits_for and not site.kind.startswith(but)
        )
        shares[order] = waited / (sample.cell.workers * locks.work_ns)
    return shares


def _shares(sample: Sample, *, waits_for: WaitsFor, but: tuple[str, ...] = ()) -> tuple[float, ...]:
    return tuple(shares_by_order(sample, waits_for, but).values())


def _lock_waits(sample: Sample) -> dict[int, LockWaits]:
    launches = sorted(sample.locks, key=lambda launch: launch.order)
    return {launch.order: launch.locks for launch in launches if launch.locks is not None and launch.locks.work_ns > 0}


def _sites(sample: Sample) -> tuple[SiteFigures, ...]:
    """Each creation site over all lock launches; the one that was waited for longest comes first."""
    launches = list(_lock_waits(sample).values())
    groups: dict[tuple[str, int, str, str, WaitsFor], list[tuple[LockWaits, LockSite]]] = {}
    for locks in launches:
        for site in locks.sites:
            key = (site.file, site.line, site.kind, site.name, site.waits_for)
            groups.setdefault(key, []).append((locks, site))
    found = [_site(groups[key], launches, sample.cell.workers) for key in sorted(groups)]
    waited = (site for site in found if site.contended)  # others were counted, and nobody ever waited there
    return tuple(sorted(waited, key=lambda site: -site.total_ns))


def _site(seen: Sequence[tuple[LockWaits, LockSite]], launches: Sequence[LockWaits], workers: int) -> SiteFigures:
    """One site; `seen` are those of `launches` that know it. Its share is a median over launches, as that of all."""
    first, sites = seen[0][1], [site for _, site in seen]
    histogram: Counter[int] = Counter()
    for site in sites:
        histogram.update(site.histogram)
    waited = {id(locks): site.total_ns for locks, site in seen}
    contended = sum(site.contended for site in sites)
    max_ns = max(site.max_ns for site in sites)
    # A bucket may end above the longest wait in it.
    p50, p95, p99 = (min(percentile(histogram, q), float(max_ns)) for q in (0.5, 0.95, 0.99))
    return SiteFigures(
        file=first.file,
        line=first.line,
        kind=first.kind,
        waits_for=first.waits_for,
        name=first.name,
        share=float(median(waited.get(id(locks), 0) / (workers * locks.work_ns) for locks in launches)),
        contended_per_s=contended / (sum(locks.work_ns for locks in launches) / NS_PER_S),
        contended_ratio=_contended_ratio(seen),
        p50_ns=p50,
        p95_ns=p95,
        p99_ns=p99,
        max_ns=float(max_ns),
        total_ns=float(sum(waited.values())),
        contended=contended,
    )


def _contended_ratio(seen: Sequence[tuple[LockWaits, LockSite]]) -> float | None:
    """Contended acquisitions an operation over all acquisitions an operation, which were counted in a turn apart."""
    counted = [(locks, site) for locks, site in seen if site.acquisitions is not None and locks.counted_ops > 0]
    ops = sum(locks.ops for locks, _ in counted)
    acquired = sum(site.acquisitions or 0 for _, site in counted)
    if not ops or not acquired:
        return None
    acquired_per_op = acquired / sum(locks.counted_ops for locks, _ in counted)
    return min(1.0, sum(site.contended for _, site in counted) / ops / acquired_per_op)


# ---- where threads wait


def _waits(sample: Sample) -> WaitFigures | None:
    """The medians over memory launches; of launches that all say why there are none, the first reason.

    Those have the scheduler's figures alone: running and runnable, switches, cores.
    """
    seen = [launch.waits for launch in sample.memory if launch.waits is not None]
    usable = [waits for waits in seen if not waits.unavailable and waits.span_s > 0]
    reasons = [waits.unavailable for waits in seen if waits.unavailable]
    if not usable:
        return _scheduled(seen, reasons[0]) if reasons else None
    running, runnable, gil, parked, process, asleep = _fractions(usable)
    gil_p50, gil_p95, gil_max = _gil_waits(usable)
    lock, queue = (_median(_shares(sample, waits_for=what, but=ELSEWHERE)) or 0.0 for what in ("lock", "queue"))
    lock = min(parked, lock)
    queue = min(parked - lock, queue)
    return WaitFigures(
        running=running,
        runnable=runnable,
        gil=gil,
        lock=lock,
        queue=queue,
        process=process,
        unattributed=parked - lock - queue,
        asleep=asleep,
        voluntary_per_s=_per_second(usable, lambda waits: waits.voluntary_switches),
        involuntary_per_s=_per_second(usable, lambda waits: waits.involuntary_switches),
        cores=_cores_by_process(seen),
        gil_p50_ns=gil_p50,
        gil_p95_ns=gil_p95,
        gil_max_ns=gil_max,
    )


def _scheduled(seen: Sequence[Waits], reason: str) -> WaitFigures:
    """What there is without samples; the fractions are zero where not even the scheduler's account could be read."""
    accounted = [waits for waits in seen if waits.span_s > 0]
    return WaitFigures(
        unavailable=reason,
        running=_median(waits.running_s / waits.span_s for waits in accounted) or 0.0,
        runnable=_median(waits.runnable_s / waits.span_s for waits in accounted) or 0.0,
        voluntary_per_s=_per_second(accounted, lambda waits: waits.voluntary_switches),
        involuntary_per_s=_per_second(accounted, lambda waits: waits.involuntary_switches),
        cores=_cores_by_process(seen),
    )


def _fractions(waits: Sequence[Waits]) -> list[float]:
    """Running, runnable, GIL, parked, process, asleep: medians over launches, then made to sum to 1."""
    parts = [
        [part / each.span_s for part in (each.running_s, each.runnable_s, each.gil_s, each.parked_s, each.process_s)]
        + [each.asleep_s / each.span_s]
        for each in waits
    ]
    middles = [median(part) for part in zip(*parts, strict=True)]
    whole = sum(middles)
    return [middle / whole for middle in middles] if whole > 0 else middles


def _gil_waits(waits: Sequence[Waits]) -> tuple[float | None, float | None, float | None]:
    """Median, 95th percentile and longest of single waits for the GIL in ns, those of all launches together.

    None where too few were seen to end, where the looks are too rare for the median, or where more than a part of them
    could not be followed to their ends.
    """
    told = [each for each in waits if each.gil_waits]
    histogram: Counter[int] = Counter()
    for each in told:
        histogram.update({bucket: round(1000 * weight) for bucket, weight in each.gil_waits.items()})
    ended = histogram.total() / 1000
    longest = float(max((each.gil_max_ns for each in told), default=0))
    if ended < GIL_WAITS:
        return None, None, None
    whole = 1 + sum(each.gil_unended for each in told) / ended  # all waits, in those that ended
    p50, p95 = (percentile(histogram, share * whole) if share * whole <= 1 else None for share in (0.5, 0.95))
    crowded = sum(each.runnable_s for each in told) > sum(each.gil_s for each in told)
    pauses = PAUSES_CROWDED if crowded else 1
    if p50 is None or p50 < pauses * max(each.gil_look_ns for each in told):
        return None, None, longest
    return p50, p95, max(longest, p95 or p50)


def gil_wait_values(launches: Iterable[Launch]) -> dict[int, float]:
    """Launch order -> the 95th percentile of its single waits for the GIL in ns, 0 of a launch that saw none."""
    found = {}
    for launch in launches:
        if launch.waits is not None and not launch.waits.unavailable and launch.waits.samples:
            none = not (launch.waits.gil_s or launch.waits.gil_waits)
            p95 = 0.0 if none else _gil_waits([launch.waits])[1]
            if p95 is not None:
                found[launch.order] = p95
    return found


def _per_second(waits: Sequence[Waits], count_of: Callable[[Waits], int]) -> float:
    return _median(count_of(each) / each.watched_s for each in waits if each.watched_s > 0) or 0.0


def _cores_by_process(waits: Sequence[Waits]) -> dict[str, float]:
    names = sorted({name for each in waits for name in each.cores})
    return {name: float(median(each.cores[name] for each in waits if name in each.cores)) for name in names}


# ---- memory by role


def _roles(launches: Sequence[Launch]) -> dict[str, RoleFigures]:
    """The figures of the tree and of each role that was ever seen."""
    points = [point for launch in launches for point in _points(launch)]
    names = sorted({name for point in points for name in point.roles})
    return {name: _role(launches, name) for name in ([TREE] if points else []) + names}


def _role(launches: Sequence[Launch], name: str) -> RoleFigures:
    processes = _steady(launches, name, lambda part: part.processes)
    if processes is None:
        processes = _median(_median(_parts(_points(launch), name, lambda part: part.processes)) for launch in launches)
    return RoleFigures(
        processes=round(processes or 0),
        steady_rss=_steady(launches, name, lambda part: part.rss_bytes),
        steady_uss=_steady(launches, name, lambda part: part.steadiest_bytes),
        steady_pss=_steady(launches, name, lambda part: part.pss_bytes),
        peak_rss=_highest(launches, name, lambda part: part.rss_bytes),
        peak_uss=_highest(launches, name, lambda part: part.steadiest_bytes),
        peak_pss=_highest(launches, name, lambda part: part.pss_bytes),
    )


def _points(launch: Launch) -> list[MemoryPoint]:
    """All looks at a launch, those at barriers included."""
    return list(chain(launch.memory, (barrier.point for barrier in launch.barriers)))


def _parts(points: Iterable[MemoryPoint], name: str, figure_of: Callable[[Footprint], int | None]) -> list[int | None]:
    """A figure of the tree, or of a role in the looks that saw it."""
    parts = (point if name == TREE else point.roles.get(name) for point in points)
    return [figure_of(part) for part in parts if part is not None]


def _steady(launches: Sequence[Launch], name: str, figure_of: Callable[[Footprint], int | None]) -> float | None:
    """The median over launches of the median over barriers but the first, if there are more."""
    later = ([barrier.point for barrier in launch.barriers[1:] or launch.barriers] for launch in launches)
    return _median(_median(_parts(points, name, figure_of)) for points in later)


def _highest(launches: Sequence[Launch], name: str, figure_of: Callable[[Footprint], int | None]) -> float | None:
    """The median over launches of the largest figure of any look."""
    seen = (_parts(_points(launch), name, figure_of) for launch in launches)
    return _median(max((figure for figure in looks if figure is not None), default=None) for looks in seen)


def _growth(launches: Sequence[Launch], floor: Sequence[Launch]) -> Interval | None:
    """Bytes that an iteration leaves behind, from what the tree wrote to by each barrier above an empty workload's.

    That one grows too for a while, where a forked child and its parent cease to share what they write to.
    """
    empty = [_unique_at(floor, index) for index in range(max((len(launch.barriers) for launch in floor), default=0))]
    lines = [line for launch in launches if (line := _line(launch.barriers, empty)) is not None]
    return stats.slope_interval(lines, INTERVAL_LEVEL) if lines else None


def _unique_at(launches: Sequence[Launch], index: int) -> float | None:
    points = (launch.barriers[index].point for launch in launches if index < len(launch.barriers))
    return _median(point.steadiest_bytes for point in points)


def _line(barriers: Sequence[Barrier], empty: Sequence[float | None]) -> tuple[list[float], list[float]] | None:
    """Iterations so far and bytes, at each barrier but the first that has a figure; None where these make no slope.

    What is loaded once is there after the first, and is no growth. Beyond the last barrier of the empty workload its
    figure stays what it was there.
    """
    known = [unique or 0.0 for unique in empty] or [0.0]
    beneath = known + known[-1:] * max(0, len(barriers) - len(known))
    iterations = list(accumulate(barrier.ops for barrier in barriers))
    looks = [
        (float(so_far), float(unique) - below)
        for so_far, barrier, below in list(zip(iterations, barriers, beneath, strict=False))[1:]
        if (unique := barrier.point.steadiest_bytes) is not None
    ]
    xs, ys = [look[0] for look in looks], [look[1] for look in looks]
    return (xs, ys) if xs and xs[0] < xs[-1] else None
