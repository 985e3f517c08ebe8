"""Where threads wait: lock sites, shares of time, waits for the GIL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median

from ..model import NS_PER_S, Launch, LockSite, LockWaits, Sample, SiteFigures, WaitFigures, Waits, WaitsFor
from ..stats.histogram import percentile
from .per_launch import by_order, median_of

GIL_WAITS = 20
"""Percentiles of the lengths of GIL waits need this many waits whose end was observed."""
PAUSES_CROWDED = 4
"""The median GIL wait must last this many sampling intervals if threads wait longer for a core than for the GIL; else
one. On a crowded machine samples come late too, and miss more short waits than the estimate can correct for."""
NO_PRIVATE_FUTEX = ("multiprocessing.", "asyncio.")
"""Kinds of lock whose waits are not in a futex private to the process: they wait for another process or in the event
loop."""


# ---- locks


def shares_by_order(sample: Sample, waits_for: WaitsFor, but: tuple[str, ...] = ()) -> dict[int, float]:
    """Launch order -> time waited for locks, or in queues, over the time of the threads at work.

    Kinds of lock that start with one of `but` are left out.
    """
    shares = {}
    for order, locks in _lock_waits(sample).items():
        waited = sum(
            site.total_ns for site in locks.sites if site.waits_for == waits_for and not site.kind.startswith(but)
        )
        shares[order] = _share(waited, locks, sample.cell.workers)
    return shares


def _share(waited_ns: int, locks: LockWaits, workers: int) -> float:
    """Never above 1: threads that the probe cannot follow, such as tasks of a foreign event loop, may wait too."""
    return waited_ns / max(waited_ns, locks.thread_ns or workers * locks.work_ns)


def _lock_waits(sample: Sample) -> dict[int, LockWaits]:
    launches = sorted(sample.locks, key=lambda launch: launch.order)
    return {launch.order: launch.locks for launch in launches if launch.locks is not None and launch.locks.work_ns > 0}


def acquires(sample: Sample) -> bool:
    """Whether any lock launch saw an acquisition: without one nothing waits, and nothing slows that is of the probe."""
    sites = (site for locks in _lock_waits(sample).values() for site in locks.sites)
    return any(site.contended or site.acquisitions != 0 for site in sites)  # None: they were not counted


def site_figures(sample: Sample) -> tuple[SiteFigures, ...]:
    """Each creation site over all lock launches; the one with the longest total wait comes first."""
    launches = list(_lock_waits(sample).values())
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
    )


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


# ---- where threads wait


def waits_of(sample: Sample) -> WaitFigures | None:
    """The medians over memory launches; None without any.

    Where every launch says why it has no samples, the figures are the scheduler's alone (running, runnable, switches,
    cores), with the first reason.
    """
    seen = [launch.waits for launch in sample.memory if launch.waits is not None]
    usable = [waits for waits in seen if not waits.unavailable and waits.span_s > 0]
    reasons = [waits.unavailable for waits in seen if waits.unavailable]
    if not usable:
        return _scheduled(seen, reasons[0]) if reasons else None
    running, runnable, gil, futex, process, asleep = _fractions(usable)
    gil_p50, gil_p95, gil_max = _gil_waits(usable)
    # The shares come from lock launches: with the probe they may exceed the futex time that memory launches sampled.
    lock = min(futex, median_of(shares_by_order(sample, "lock", NO_PRIVATE_FUTEX).values()) or 0.0)
    queue = min(futex - lock, median_of(shares_by_order(sample, "queue", NO_PRIVATE_FUTEX).values()) or 0.0)
    return WaitFigures(
        running=running,
        runnable=runnable,
        gil=gil,
        lock=lock,
        queue=queue,
        process=process,
        unattributed=futex - lock - queue,
        asleep=asleep,
        voluntary_per_s=_per_second(usable, lambda waits: waits.voluntary_switches),
        involuntary_per_s=_per_second(usable, lambda waits: waits.involuntary_switches),
        cores=_cores_by_process(seen),
        gil_p50_ns=gil_p50,
        gil_p95_ns=gil_p95,
        gil_max_ns=gil_max,
    )


def _scheduled(seen: Sequence[Waits], reason: str) -> WaitFigures:
    """The figures without samples; fractions are zero where the scheduler's times could not be read either."""
    accounted = [waits for waits in seen if waits.span_s > 0]
    return WaitFigures(
        unavailable=reason,
        running=median_of(waits.running_s / waits.span_s for waits in accounted) or 0.0,
        runnable=median_of(waits.runnable_s / waits.span_s for waits in accounted) or 0.0,
        voluntary_per_s=_per_second(accounted, lambda waits: waits.voluntary_switches),
        involuntary_per_s=_per_second(accounted, lambda waits: waits.involuntary_switches),
        cores=_cores_by_process(seen),
    )


def _fractions(waits: Sequence[Waits]) -> list[float]:
    """Running, runnable, GIL, futex, process, asleep: medians over launches, scaled so that their sum is 1."""
    parts = [
        [part / each.span_s for part in (each.running_s, each.runnable_s, each.gil_s, each.futex_s, each.process_s)]
        + [each.asleep_s / each.span_s]
        for each in waits
    ]
    middles = [median(part) for part in zip(*parts, strict=True)]
    whole = sum(middles)
    return [middle / whole for middle in middles] if whole > 0 else middles


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

    return by_order(sample.memory, share)


def gil_wait_values(sample: Sample) -> dict[int, float]:
    """Launch order -> the 95th percentile of its single waits for the GIL in ns, 0 for a launch without any."""
    found = {}
    for launch in sample.memory:
        if launch.waits is not None and not launch.waits.unavailable and launch.waits.samples:
            none = not (launch.waits.gil_s or launch.waits.gil_waits)
            p95 = 0.0 if none else _gil_waits([launch.waits])[1]
            if p95 is not None:
                found[launch.order] = p95
    return found


def _per_second(waits: Sequence[Waits], count_of: Callable[[Waits], int]) -> float:
    return median_of(count_of(each) / each.watched_s for each in waits if each.watched_s > 0) or 0.0


def _cores_by_process(waits: Sequence[Waits]) -> dict[str, float]:
    names = sorted({name for each in waits for name in each.cores})
    return {name: float(median(each.cores[name] for each in waits if name in each.cores)) for name in names}
