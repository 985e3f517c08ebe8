"""What a row of the table shows, from the raw launches of its cell: pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from ..kit.values import Interval, Metric
from ..model.report import Figures
from ..model.sample import Latency, Sample, work_ratio
from ..stats import moderated, rank_tests
from . import metrics, recorded
from .readers import (
    INTERVAL_LEVEL,
    TREE,
    acquires,
    growth,
    interval,
    launch_values,
    paired_ratio,
    paired_values,
    peak,
    roles,
    site_figures,
    steady,
    waits_of,
)

MEDIANS: Final[Mapping[str, str]] = {
    "start_ns": "start",
    "work_ns": "work",
    "join_ns": "join",
    "cold_ns": "cold",
    "cores": "cores",
    "rss_bytes": "rss",
    "pss_bytes": "pss",
    "lock_wait": "lock_wait",
    "queue_wait": "queue_wait",
}
"""Field of Figures -> the metric whose median over launches it holds."""


def figures(sample: Sample, *, reference: Sample | None) -> Figures:
    """The figures of one cell; each is None or empty where what it is made of was not measured.

    `reference` is the sample that `ratio` refers to, the cell's own included. The wall interval is that of the
    geometric mean over launches, those of probes are as in `stats.moderated`, all others are exact, see
    `stats.rank_tests`. `growth_bytes` is an iteration's: one body call in each worker.
    """
    values = launch_values(sample.launches)
    against = launch_values(reference.launches) if reference else {}
    workers = sample.cell.workers

    def own(kind: str, field: str) -> dict[str, float]:
        """The workload's own figures of one kind: the median over launches of each."""
        names = sorted({name for launch in sample.launches for name in getattr(launch, field)})
        found = {name: metrics.middle(f"{kind}.{name}", sample) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    # An import may turn the GIL on in one launch and not in another.
    gil = [launch.gil_enabled for launch in sample.launches if launch.iterations]
    is_python = sample.cell.executor.program is None

    # The overhead of sampling memory: the windows that were sampled, and the bare ones next to them.
    sampled = []
    for launch in sample.of("memory"):
        if (cost := launch.sampling_cost) is not None:
            watched, bare = (
                [value if value > 0 else math.nan for value in side] for side in (cost.watched_ns, cost.bare_ns)
            )
            sampled.append(rank_tests.neighbours(watched, bare))

    scaling = None
    if (times := recorded.figure_of(Metric.SCALING, [sample])) is not None:
        ratio = rank_tests.ratio_interval(paired_values(sample.single, sample.launches), INTERVAL_LEVEL)
        work = work_ratio(sample)
        scaling = Interval(value=times, low=work * ratio.low, high=work * ratio.high, level=ratio.level)

    return Figures(
        **{field: metrics.middle(metric, sample) for field, metric in MEDIANS.items()},
        wall_ns=interval(values.values()),
        ops_per_s=recorded.figure_of("ops_per_s", [sample]),
        ratio=paired_ratio(values, against),
        control_ratio=recorded.figure_of(recorded.WALL_OF_CONTROL, [sample]),
        uss_bytes=recorded.figure_of(Metric.USS, [sample]),
        uss_peak_bytes=peak(sample.of("memory")),
        counters_per_s=own("counter", "counters"),
        timers_mean_ns=own("timer", "timers"),
        peaks=own("peak", "peaks"),
        latency=_latency(sample),
        gil_enabled=any(gil) if gil and is_python else None,
        sites=site_figures(sample),
        no_locks="" if sample.locks_error is None else sample.locks_error.reason,
        lock_cost=_cost(paired_values(sample.of("locks"), sample.launches)) if acquires(sample) else None,
        memory_cost=_cost(sampled),
        waits=waits_of(sample),
        memory=roles(sample.of("memory")),
        memory_samples=sum(len(launch.memory) for launch in sample.of("memory")),
        memory_dropped=sum(launch.dropped for launch in sample.of("memory")),
        floor_uss_bytes=steady(sample.of("empty"), TREE, lambda part: part.steadiest_bytes),
        floor_pss_bytes=steady(sample.of("empty"), TREE, lambda part: part.pss_bytes),
        growth_bytes=growth(sample.of("growth"), sample.of("growth_empty")),
        scaling=scaling,
        efficiency=scaling.value / workers if scaling else None,
        serial_fraction=rank_tests.amdahl(scaling.value, workers) if scaling and workers > 1 else None,
    )


def _latency(sample: Sample) -> Latency | None:
    """The medians over launches of the median window; the longest answer of all, and all the errors."""
    iterations = chain.from_iterable(launch.iterations for launch in sample.launches)
    every = [iteration.latency for iteration in iterations if iteration.latency is not None]
    if not every:
        return None
    medians = {
        f"{name}_ns": metrics.middle(f"latency_{name}", sample) or math.nan for name in ("mean", "p50", "p95", "p99")
    }
    return Latency(
        **medians,
        max_ns=max(latency.max_ns for latency in every),
        errors=sum(latency.errors for latency in every),
        asked_per_s=every[0].asked_per_s,
    )


def _cost(sides: Iterable[tuple[Sequence[float], Sequence[float]]]) -> Interval | None:
    """The overhead of a probe: the time with it over the time without it; one launch has no interval."""
    pairs = [rank_tests.paired_shift(probed, bare) for probed, bare in sides if probed and bare]
    if not pairs:
        return None
    shifts, errors = zip(*pairs, strict=True)
    deviations = moderated.deviations(shifts, errors, metrics.row(Metric.WALL).spread)
    low, value, high = map(math.exp, moderated.interval(shifts, deviations, INTERVAL_LEVEL))
    return Interval(value=value, low=low, high=high, level=INTERVAL_LEVEL if len(shifts) > 1 else 0.0)
