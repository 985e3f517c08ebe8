"""Figures of launches: times, rates and scaling; memory; where threads wait. Pure.

Readers give launch order -> value; a launch without a value is left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, zip_longest
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from ..kit.values import Interval, grouped
from ..model.report import HolderFigures, LockLimit, RoleFigures, SiteFigures, WaitFigures
from ..model.sample import (
    NATIVE_LOCK,
    NS_PER_S,
    Barrier,
    Columns,
    Footprint,
    Latency,
    Launch,
    LockHolder,
    LockSite,
    LockWaits,
    LongestHeld,
    MemoryPoint,
    Sample,
    Waits,
    WaitsFor,
    iteration_value,
)
from ..stats import estimators, intervals
from ..stats.histogram import percentile

if TYPE_CHECKING:
    from ..stats.estimators import Floats

QUANTILE = 0.25
INTERVAL_LEVEL = 0.95


def fast_times(of: Columns) -> Floats:
    """What the fast iterations of each launch take, in ns: a low quantile of them."""
    return estimators.row_quantiles(of.times, QUANTILE)


def by_order(launches: Iterable[Launch], value_of: Callable[[Launch], float | None]) -> dict[int, float]:
    """Launch order -> value, for the launches whose value is known and finite."""
    found = {launch.order: value_of(launch) for launch in launches}
    return {order: float(value) for order, value in found.items() if value is not None and math.isfinite(value)}


def median_of(values: Iterable[float | None]) -> float | None:
    """The median of the values that are known; None without any."""
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None


def per_loop(of: Columns, field: str) -> Floats:
    """The median of a count or a length per loop of each launch; a window has one loop."""
    import numpy as np

    return estimators.row_medians(of.of(field) / np.maximum(of.loops, 1.0))


def starts(of: Columns) -> Floats:
    """The start of the workers in ns: once in a launch that keeps them, else the median over its iterations."""
    return _once([launch.start_ns for launch in of.launches], per_loop(of, "start_ns"))


def joins(of: Columns) -> Floats:
    """The end of the workers in ns, likewise."""
    return _once([launch.join_ns for launch in of.launches], per_loop(of, "join_ns"))


def _once(kept: Sequence[int | None], each: Floats) -> Floats:
    import numpy as np

    once = np.array(kept, dtype=np.float64)  # None is NaN
    return np.where(np.isnan(once), each, once)


def works(of: Columns) -> Floats:
    """The median of the work of the iterations in ns."""
    return per_loop(of, "work_ns")


def colds(of: Columns) -> Floats:
    """The cold iteration, in the unit of the wall time."""
    import numpy as np

    # It runs before loops are calibrated, so it has one loop.
    known = ((launch.cold, launch.window_ns > 0) for launch in of.launches)
    return np.array([iteration_value(cold, 1, windows) if cold else math.nan for cold, windows in known])


def costs(of: Columns) -> Floats:
    """The CPU time of one operation in ns, over all iterations: some clocks count it in ticks, so many add up to 0."""
    import numpy as np

    spent = np.nansum(of.of("cpu_ns"), axis=1)
    return np.where(spent > 0, spent / np.maximum(1, np.nansum(of.of("ops"), axis=1)), math.nan)


def cores(of: Columns) -> Floats:
    """CPU time over wall time of all iterations together: the number of busy cores."""
    import numpy as np

    wall = np.nansum(of.of("wall_ns"), axis=1)
    return np.asarray(np.nansum(of.of("cpu_ns"), axis=1) / np.where(wall > 0, wall, math.nan))


def rates(of: Columns) -> Floats:
    """Operations per second of wall time: the calls of an iteration, in all workers, over that.

    With windows the wall time is that of one operation.
    """
    import numpy as np

    calls = np.where(of.windows[:, 0], 1.0, per_loop(of, "ops"))
    return np.where(calls > 0, calls * NS_PER_S / fast_times(of), math.nan)


def latencies(of: Columns, value_of: Callable[[Latency], float]) -> Floats:
    """A latency of a server's launch in ns, or its errors: the median over its windows."""
    import numpy as np

    if not of.serves:
        return np.full(len(of.launches), math.nan)
    windows = ((each.latency for each in launch.iterations) for launch in of.launches)
    return np.array([median_of(value_of(each) for each in every if each) for every in windows], dtype=np.float64)


def counter_values(launches: Iterable[Launch], name: str) -> dict[int, float]:
    """Launch order -> a counter per second of the measured time; empty if no launch has that counter."""
    there = list(launches)
    found = {}
    for launch in there if any(name in each.counters for each in there) else ():
        # Without start and join, which would lower every rate.
        span_s = sum(
            iteration.ops / iteration.rate if iteration.rate > 0 else iteration.work_ns / NS_PER_S
            for iteration in launch.iterations
        )
        if span_s > 0:
            found[launch.order] = launch.counters.get(name, 0.0) / span_s
    return found


def timer_values(launches: Iterable[Launch], name: str) -> dict[int, float]:
    """Launch order -> a timer's mean in ns."""
    return by_order(launches, lambda launch: launch.mean(name))


# ---- memory: steady, peak and growth, by process group

MEDIAN_ERROR = math.sqrt(math.pi / 2)
"""The standard error of the median of normal values over that of their mean (Kendall and Stuart 1958)."""
TREE = "tree"
"""The key of the whole process tree; the other keys are its roles."""


def memory_values(launches: Iterable[Launch], bytes_of: Callable[[MemoryPoint], int | None]) -> dict[int, float]:
    """Launch order -> the median over a launch's samples of the process tree, in bytes."""
    return by_order(sorted(launches, key=lambda each: each.order), lambda each: median_of(map(bytes_of, each.memory)))


def sampling_errors(
    launches: Sequence[Launch], others: Sequence[Launch], bytes_of: Callable[[MemoryPoint], int | None]
) -> dict[int, float]:
    """Launch order -> the standard error of the log-ratio of both sides' medians, as far as their samples show it.

    A body that allocates and frees looks larger or smaller by when it is sampled. The scatter is pooled over all
    launches, because one of them may have few samples. Empty where none has two.
    """
    own, other = (
        {launch.order: [math.log(known) for point in launch.memory if (known := bytes_of(point))] for launch in side}
        for side in (launches, others)
    )
    every = [logs for logs in (*own.values(), *other.values()) if logs]
    freedom = sum(len(logs) - 1 for logs in every)
    if not freedom:
        return {}
    squares = sum((each - mean) ** 2 for logs in every for mean in [fmean(logs)] for each in logs)
    scatter = math.sqrt(squares / freedom)
    both = {order: (own[order], other[order]) for order in own.keys() & other.keys()}
    return {
        order: MEDIAN_ERROR * scatter * math.sqrt(sum(1 / len(logs) for logs in sides))
        for order, sides in both.items()
        if all(sides)
    }


def peak(launches: Sequence[Launch]) -> float | None:
    """The largest sampled USS in bytes: a lower bound, because the platform records no peak of it."""
    points = (point.steadiest_bytes for launch in launches for point in launch.memory)
    seen = [unique for unique in points if unique is not None]
    return float(max(seen)) if seen else None


_FIGURES: Final[Mapping[str, Callable[[Footprint], int | None]]] = {
    "rss": lambda part: part.rss_bytes,
    "uss": lambda part: part.steadiest_bytes,
    "pss": lambda part: part.pss_bytes,
}


def roles(launches: Sequence[Launch]) -> dict[str, RoleFigures]:
    """The figures of the tree and of each role in any sample, as medians over launches.

    At barriers that of a launch is its median, of all samples the largest.
    """
    # Of each launch all samples, those at barriers included, and those at barriers.
    sampled = [[*launch.memory, *(barrier.point for barrier in launch.barriers)] for launch in launches]
    barriers = [_later(launch) for launch in launches]
    names, found = sorted({name for points in sampled for point in points for name in point.roles}), {}
    for name in ([TREE] if any(sampled) else []) + names:
        every, held = ([_parts(points, name) for points in launches] for launches in (sampled, barriers))
        processes = [_middle(parts, lambda part: part.processes) for parts in (held, every)]
        peaks = {
            f"peak_{kind}": median_of(
                max((known for part in parts if (known := bytes_of(part)) is not None), default=None) for parts in every
            )
            for kind, bytes_of in _FIGURES.items()
        }
        at_barriers = {f"steady_{kind}": _middle(held, bytes_of) for kind, bytes_of in _FIGURES.items()}
        found[name] = RoleFigures(processes=round(processes[0] or processes[1] or 0), **at_barriers, **peaks)
    return found


def _middle(by_launch: Iterable[Iterable[Footprint]], figure_of: Callable[[Footprint], int | None]) -> float | None:
    return median_of(median_of(map(figure_of, parts)) for parts in by_launch)


def _parts(points: Sequence[MemoryPoint], name: str) -> Sequence[Footprint]:
    """The tree, or a role in the samples that have it."""
    return points if name == TREE else [part for point in points if (part := point.roles.get(name)) is not None]


def _later(launch: Launch) -> list[MemoryPoint]:
    """The samples at barriers but the first, if there are more."""
    return [barrier.point for barrier in launch.barriers[1:] or launch.barriers]


def steady(launches: Sequence[Launch], figure_of: Callable[[Footprint], int | None]) -> float | None:
    """The median over launches of the median over barriers but the first, if there are more."""
    return _middle(map(_later, launches), figure_of)


def varies(launches: Sequence[Launch]) -> float:
    """How far all looks at the memory of launches lie apart, at work or at barriers, as a part of the least of them.

    What forked workers share at a barrier they do not share at work. Infinite if a launch lacks either.
    """
    apart = 0.0
    for place in ([each.memory for each in launches], [_later(each) for each in launches]):
        known = [[size for point in points if (size := point.steadiest_bytes)] for points in place]
        if not all(known):
            return math.inf
        apart = max(apart, max(map(max, known)) / min(map(min, known)) - 1)
    return apart


def growth(launches: Sequence[Launch], floor: Sequence[Launch]) -> Interval | None:
    """Bytes that an iteration leaves behind: the slope over barriers of the written USS above an empty workload's.

    An empty workload grows too at first: a forked child and its parent stop sharing the pages that they write to.
    """
    by_barrier = zip_longest(*(launch.barriers for launch in floor))
    empty = [median_of(each.point.steadiest_bytes for each in barriers if each) for barriers in by_barrier]
    lines = [line for launch in launches if (line := _line(launch.barriers, empty)) is not None]
    return intervals.slope_interval(lines, INTERVAL_LEVEL) if lines else None


def growth_values(sample: Sample) -> dict[int, float]:
    """Launch order -> bytes that an iteration leaves behind; 0 for a launch that shrank."""
    found = {launch.order: growth([launch], sample.of("growth_empty")) for launch in sample.of("growth")}
    return {order: max(0.0, slope.value) for order, slope in found.items() if slope is not None}


def _line(barriers: Sequence[Barrier], empty: Sequence[float | None]) -> tuple[list[float], list[float]] | None:
    """Iterations so far and bytes at each barrier with a figure, except the first; None without two such barriers.

    What is loaded once is present at the first barrier and is not growth. After the last barrier of the empty workload
    its last figure is used.
    """
    known = [unique or 0.0 for unique in empty] or [0.0]
    below = known + known[-1:] * max(0, len(barriers) - len(known))
    iterations = list(accumulate(barrier.ops for barrier in barriers))
    points = [
        (float(so_far), float(unique) - empty_bytes)
        for so_far, barrier, empty_bytes in list(zip(iterations, barriers, below, strict=False))[1:]
        if (unique := barrier.point.steadiest_bytes) is not None
    ]
    xs, ys = [point[0] for point in points], [point[1] for point in points]
    return (xs, ys) if xs and xs[0] < xs[-1] else None


# ---- where threads wait: lock sites, shares of time, waits for the GIL

LEAST_LOOKS = 20
"""Samples of each thread over all launches: with fewer, the share of a state errs by more than 11 points."""
NATIVE_SHARE = 0.01
"""The share of the threads' time below which a native wait has no name."""
HOLDERS = 3
"""Holders of a lock that a report names."""
GIL_WAITS = 20
"""Percentiles of the lengths of GIL waits need this many waits whose end was observed."""
PAUSES_CROWDED = 4
"""The median GIL wait must last this many sampling intervals if threads wait longer for a core than for the GIL; else
one. On a crowded machine samples come late too, and miss more short waits than the estimate can correct for."""
NO_PRIVATE_FUTEX = ("multiprocessing.", "asyncio.")
"""Kinds of lock whose waits are not in a futex private to the process: they wait for another process or in the event
loop."""


def shares_by_order(sample: Sample, waits_for: WaitsFor, but: tuple[str, ...] = ()) -> dict[int, float]:
    """Launch order -> time waited for locks, or in queues, over the time of the threads at work.

    Kinds of lock that start with one of `but` are left out.
    """
    shares = {}
    for order, locks in _lock_waits_by_order(sample).items():
        waited = sum(
            site.total_ns for site in locks.sites if site.waits_for == waits_for and not site.kind.startswith(but)
        )
        shares[order] = _share(waited, locks, sample.cell.workers)
    return shares


def _share(waited_ns: int, locks: LockWaits, workers: int) -> float:
    """Never above 1: threads that the probe cannot follow, such as tasks of a foreign event loop, may wait too."""
    return waited_ns / max(waited_ns, locks.thread_ns or workers * locks.work_ns)


def _lock_waits_by_order(sample: Sample) -> dict[int, LockWaits]:
    launches = sorted(sample.of("locks"), key=lambda launch: launch.order)
    return {launch.order: launch.locks for launch in launches if launch.locks is not None and launch.locks.work_ns > 0}


def acquires(sample: Sample) -> bool:
    """Whether any lock launch saw an acquisition: without one nothing waits, and nothing slows that is of the probe."""
    sites = (site for locks in _lock_waits_by_order(sample).values() for site in locks.sites)
    return any(site.contended or site.acquisitions != 0 for site in sites)  # None: they were not counted


def waits_for_nothing(sample: Sample) -> bool:
    """Whether the lock launches, of which there is one, saw no wait."""
    launches = _lock_waits_by_order(sample).values()
    return bool(launches) and not any(site.contended for locks in launches for site in locks.sites)


def site_figures(sample: Sample) -> tuple[SiteFigures, ...]:
    """Each creation site over all lock launches; the one with the longest total wait comes first."""
    launches = list(_lock_waits_by_order(sample).values())
    groups: dict[tuple[str, int, str, str, WaitsFor], list[tuple[LockWaits, LockSite]]] = {}
    for locks in launches:
        for site in locks.sites:
            key = (site.file, site.line, site.kind, site.name, site.waits_for)
            groups.setdefault(key, []).append((locks, site))
    found = [_site(groups[key], launches, sample.cell.workers) for key in sorted(groups)]
    waited = (site for site in found if site.contended)  # the others have counted acquisitions and no waits
    return tuple(sorted(waited, key=lambda site: -site.total_ns))


def _site(seen: Sequence[tuple[LockWaits, LockSite]], launches: Sequence[LockWaits], workers: int) -> SiteFigures:
    """One site; `seen` are those of `launches` that have it. Its share is a median over all launches."""
    first, sites = seen[0][1], [site for _, site in seen]
    histogram: Counter[int] = Counter()
    for site in sites:
        histogram.update(site.histogram)
    waited = {id(locks): site.total_ns for locks, site in seen}
    contended = sum(site.contended for site in sites)
    max_ns = max(site.max_ns for site in sites)
    # A percentile is the upper end of its bucket, which may lie above the longest wait.
    p50, p95, p99 = (min(percentile(histogram, q), float(max_ns)) for q in (0.5, 0.95, 0.99))
    return SiteFigures(
        file=first.file,
        line=first.line,
        kind=first.kind,
        waits_for=first.waits_for,
        name=first.name,
        share=float(median(_share(waited.get(id(locks), 0), locks, workers) for locks in launches)),
        contended_per_s=contended / (sum(locks.work_ns for locks in launches) / NS_PER_S),
        contended_ratio=_contended_ratio(seen),
        p50_ns=p50,
        p95_ns=p95,
        p99_ns=p99,
        max_ns=float(max_ns),
        total_ns=float(sum(waited.values())),
        contended=contended,
        holders=_holders([holder for site in sites for holder in site.holders]),
    )


def lock_holds(sample: Sample) -> dict[int, float]:
    """Launch order -> the 95th percentile in ns of how long locks were held while others waited; 0 if nobody did.

    A launch that counted no acquisitions has none.
    """
    found = {}
    for order, locks in _lock_waits_by_order(sample).items():
        if locks.counted_ops:
            held = Counter[int]()
            for holder in (each for site in locks.sites for each in site.holders):
                held.update(holder.held)
            found[order] = percentile(held, 0.95)
    return found


# ---- the lock that limits how many workers pay

NO_LIMIT = 100.0
"""Of more workers it is not said that a lock limits them."""
SHORTEST_NS = 50_000
"""Of a lock whose mean hold is shorter it counts more how long it takes to hand it over than how long it is held."""
OTHER_HOLD = 1.25
"""A call of the body holds a lock visibly longer than with one worker from here on."""
_Place = tuple[str, int, str, str]


def _longest_held(locks: LockWaits) -> dict[_Place, LongestHeld | None]:
    """Each line that makes locks with the one of them that was held longest; None where that is not known."""
    there = (site for site in locks.sites if site.waits_for == "lock")
    return {(site.file, site.line, site.kind, site.name): site.longest for site in there}


def _counted(sample: Sample) -> dict[int, LockWaits]:
    return {order: locks for order, locks in _lock_waits_by_order(sample).items() if locks.counted_ops}


def _most_takers(sample: Sample) -> Counter[_Place]:
    found = Counter[_Place]()
    for locks in _counted(sample).values():
        found |= Counter({place: lock.takers for place, lock in _longest_held(locks).items() if lock})
    return found


def _limiting(alone: Sample, together: Sample) -> dict[int, tuple[float, _Place | None, bool]]:
    """Launch order -> the largest share of one worker's time that it holds a lock which others take too, its place, and
    whether its holds are long enough to tell; else as many of SHORTEST_NS would take that share.

    The bottleneck law (Denning and Buzen 1978): throughput is at most 1 / the largest demand at one place. Others take
    a lock if it has more takers than with one worker, whose own threads may take it too. Empty if no launch of a cell
    saw how long a lock was held.
    """
    ones, several, takers = _counted(alone), _lock_waits_by_order(together), _most_takers(alone)
    for launches in (ones, several):
        there = [each for launch in launches.values() for each in _longest_held(launch).items()]
        if {place for place, lock in there if lock is None} - {place for place, lock in there if lock}:
            return {}
    shared = {place for place, most in _most_takers(together).items() if most > max(1, takers[place])}
    found = dict[int, tuple[float, _Place | None, bool]]()
    for order in sorted(ones.keys() & several.keys()):
        shares: list[tuple[float, _Place | None, bool]] = [(1 / NO_LIMIT, None, True)]
        for place, lock in _longest_held(ones[order]).items():
            if place in shared and lock is not None:
                known = lock.held_ns >= lock.holds * SHORTEST_NS
                held_ns = lock.held_ns if known else lock.holds * SHORTEST_NS
                shares.append((min(1.0, held_ns / ones[order].counted_ns), place, known))
        found[order] = max(shares, key=lambda each: each[0])
    return found


def lock_ceilings(alone: Sample, together: Sample, *, least: bool = False) -> dict[int, float]:
    """Launch order -> how many workers the locks of a cell allow; `alone` is that with one worker.

    Where holds are too short to tell, there is none, or the `least` that they may allow.
    """
    return {order: 1 / share for order, (share, _, known) in _limiting(alone, together).items() if known or least}


def lock_limit(alone: Sample, together: Sample) -> LockLimit | None:
    """The lock that limits the workers in most launches, also where its holds are too short to say how many."""
    places = Counter(place for _, place, _ in _limiting(alone, together).values() if place is not None)
    if not places:
        return None
    place = places.most_common(1)[0][0]

    def locks(sample: Sample) -> list[tuple[LongestHeld, LockWaits]]:
        return [(lock, each) for each in _counted(sample).values() if (lock := _longest_held(each).get(place))]

    one, several = locks(alone), locks(together)
    a_call, more = ([max(1, lock.held_ns) / each.counted_ops for lock, each in side] for side in (one, several))
    longer = median(more) / median(a_call)
    apart = min(len(a_call), len(more)) > 2 and (min(more) > max(a_call) or max(more) < min(a_call))
    return LockLimit(
        by=one[-1][0].by,
        share=float(median(lock.held_ns / each.counted_ns for lock, each in one)),
        hold_ns=float(median(lock.held_ns / lock.holds for lock, _ in one)),
        longer=longer if apart and max(longer, 1 / longer) > OTHER_HOLD else None,
    )


def _holders(seen: Sequence[LockHolder]) -> tuple[HolderFigures, ...]:
    """The lines that others waited for most."""
    by_place = grouped(((each.file, each.line, each.function), each) for each in seen)
    found, total_ns = [], sum(each.waited_ns for each in seen)
    for (file, line, function), holds in by_place.items():
        held, waiters = Counter[int](), Counter[tuple[str, int]]()
        for each in holds:
            held.update(each.held)
            waiters[each.waiter_file, each.waiter_line] += each.waited_ns
        (waiter_file, waiter_line), _ = max(waiters.items(), key=lambda waiter: (waiter[1], waiter[0]))
        if held and total_ns:
            found.append(
                HolderFigures(
                    file=file,
                    line=line,
                    function=function,
                    share=waiters.total() / total_ns,
                    p50_ns=percentile(held, 0.5),
                    p99_ns=percentile(held, 0.99),
                    waiter_file=waiter_file,
                    waiter_line=waiter_line,
                )
            )
    return tuple(sorted(found, key=lambda each: (-each.share, each.file, each.line))[:HOLDERS])


def _contended_ratio(seen: Sequence[tuple[LockWaits, LockSite]]) -> float | None:
    """Contended acquisitions per operation over all acquisitions per operation; None where these were not counted."""
    # Counting slows the workload, so all acquisitions are counted in iterations of their own, whose `ops` differ.
    counted = [(locks, site) for locks, site in seen if site.acquisitions is not None and locks.counted_ops > 0]
    ops = sum(locks.ops for locks, _ in counted)
    acquired = sum(site.acquisitions or 0 for _, site in counted)
    if not ops or not acquired:
        return None
    acquired_per_op = acquired / sum(locks.counted_ops for locks, _ in counted)
    return min(1.0, sum(site.contended for _, site in counted) / ops / acquired_per_op)


def waits_of(sample: Sample, least_looks: int = LEAST_LOOKS) -> WaitFigures | None:
    """The medians over memory launches; None without any.

    Where every launch says why it has no samples, or threads sleep and are sampled too rarely to tell where, the
    figures are the scheduler's alone (running, runnable, switches, cores), with the first reason.
    """
    seen = [launch.waits for launch in sample.of("memory") if launch.waits is not None]
    usable = [waits for waits in seen if not waits.unavailable and waits.span_s > 0]
    reasons = [waits.unavailable for waits in seen if waits.unavailable]
    if not reasons and not usable:
        return None
    looks = sum(each.looks for each in usable)
    sleeps = any(each.span_s - each.running_s - each.runnable_s > NATIVE_SHARE * each.span_s for each in usable)
    if usable and sleeps and looks < least_looks:
        usable, reasons = [], [f"{round(looks)} samples of a thread, and {least_looks} are needed"]
    if not usable:
        accounted = [waits for waits in seen if waits.span_s > 0]
        return WaitFigures(
            unavailable=reasons[0],
            running=median_of(waits.running_s / waits.span_s for waits in accounted) or 0.0,
            runnable=median_of(waits.runnable_s / waits.span_s for waits in accounted) or 0.0,
            voluntary_per_s=_per_second(accounted, lambda waits: waits.voluntary_switches),
            involuntary_per_s=_per_second(accounted, lambda waits: waits.involuntary_switches),
            cores=_cores_by_process(seen),
        )
    # Medians over launches, scaled so that their sum is 1.
    parts = [
        (each.running_s, each.runnable_s, each.gil_s, each.futex_s, each.process_s, each.asleep_s) for each in usable
    ]
    spans = [[part / each.span_s for part in split] for each, split in zip(usable, parts, strict=True)]
    middles = [median(part) for part in zip(*spans, strict=True)]
    whole = sum(middles) or 1.0
    running, runnable, gil, futex, process, asleep = (middle / whole for middle in middles)
    gil_p50, gil_p95, gil_max = _gil_waits(usable)
    # The shares come from lock launches: with the probe they may exceed the futex time that memory launches sampled.
    lock = min(futex, median_of(shares_by_order(sample, "lock", NO_PRIVATE_FUTEX).values()) or 0.0)
    queue = min(futex - lock, median_of(shares_by_order(sample, "queue", NO_PRIVATE_FUTEX).values()) or 0.0)
    # The parts of the futex time by function, without the locks that were probed.
    native, known = dict[str, float](), lock + queue
    for each in usable:
        for name, part in each.native.items():
            native[name] = native.get(name, 0.0) + futex * part / len(usable)
    for name in [name for name in native if name.startswith(NATIVE_LOCK)]:
        native[name], known = max(0.0, native[name] - known), max(0.0, known - native[name])
    longest = sorted(native.items(), key=lambda item: (-item[1], item[0]))
    return WaitFigures(
        running=running,
        runnable=runnable,
        gil=gil,
        lock=lock,
        queue=queue,
        process=process,
        unattributed=futex - lock - queue,
        native={name: share for name, share in longest if share >= NATIVE_SHARE},
        asleep=asleep,
        voluntary_per_s=_per_second(usable, lambda waits: waits.voluntary_switches),
        involuntary_per_s=_per_second(usable, lambda waits: waits.involuntary_switches),
        cores=_cores_by_process(seen),
        gil_p50_ns=gil_p50,
        gil_p95_ns=gil_p95,
        gil_max_ns=gil_max,
    )


def _gil_waits(waits: Sequence[Waits]) -> tuple[float | None, float | None, float | None]:
    """Median, 95th percentile and maximum of single waits for the GIL in ns, over all launches.

    None where the end of too few was observed, where the samples are too rare for it, or where too many could not be
    followed to their end. What is missed of short waits makes the 95th percentile longer: an upper bound.
    """
    known = [each for each in waits if each.gil_waits]
    histogram: Counter[int] = Counter()
    for each in known:
        # A histogram counts whole waits, so weights are in thousandths.
        histogram.update({bucket: round(1000 * weight) for bucket, weight in each.gil_waits.items()})
    ended = histogram.total() / 1000
    longest = float(max((each.gil_max_ns for each in known), default=0))
    if ended < GIL_WAITS:
        return None, None, None
    whole = 1 + sum(each.gil_unended for each in known) / ended  # all waits over those that ended
    p50, p95 = (percentile(histogram, share * whole) if share * whole <= 1 else None for share in (0.5, 0.95))
    crowded = sum(each.runnable_s for each in known) > sum(each.gil_s for each in known)
    pause_ns = max(each.gil_sampling_ns for each in known)
    if p50 is not None and p50 < (PAUSES_CROWDED if crowded else 1) * pause_ns:
        p50, p95 = None, p95 if p95 is not None and p95 >= PAUSES_CROWDED * pause_ns else None
    return p50, p95, max(longest, p95 or p50 or 0.0)


def gil_shares(sample: Sample) -> dict[int, float]:
    """Launch order -> the share of the workers' time that they waited for the GIL, for launches with samples."""

    def share(launch: Launch) -> float | None:
        waits = launch.waits
        return waits.gil_s / waits.span_s if waits and not waits.unavailable and waits.span_s > 0 else None

    return by_order(sample.of("memory"), share)


def gil_wait_values(sample: Sample) -> dict[int, float]:
    """Launch order -> the 95th percentile of its single waits for the GIL in ns, 0 for a launch without any."""
    found = {}
    for launch in sample.of("memory"):
        if launch.waits is not None and not launch.waits.unavailable and launch.waits.samples:
            none = not (launch.waits.gil_s or launch.waits.gil_waits)
            p95 = 0.0 if none else _gil_waits([launch.waits])[1]
            if p95 is not None:
                found[launch.order] = p95
    return found


def busiest_process(sample: Sample) -> dict[int, float]:
    """Launch order -> the most cores that one process of a launch kept busy while it was sampled."""
    waits = ((launch.order, launch.waits) for launch in sample.of("memory"))
    return {order: max(each.cores.values()) for order, each in waits if each and each.cores}


def gil_wait_histogram(sample: Sample) -> dict[int, float]:
    """Single waits for the GIL: bucket -> their share of all, ascending; none where no length is known."""
    known = [launch.waits for launch in sample.of("memory") if launch.waits and not launch.waits.unavailable]
    if _gil_waits(known)[1] is None:
        return {}
    histogram: dict[int, float] = {}
    for bucket, weight in (item for each in known for item in each.gil_waits.items()):
        histogram[bucket] = histogram.get(bucket, 0.0) + weight
    whole = sum(histogram.values()) + sum(each.gil_unended for each in known)
    return {bucket: weight / whole for bucket, weight in sorted(histogram.items())}


def _per_second(waits: Sequence[Waits], count_of: Callable[[Waits], int]) -> float:
    return median_of(count_of(each) / each.watched_s for each in waits if each.watched_s > 0) or 0.0


def _cores_by_process(waits: Sequence[Waits]) -> dict[str, float]:
    names = sorted({name for each in waits for name in each.cores})
    return {name: float(median(each.cores[name] for each in waits if name in each.cores)) for name in names}
