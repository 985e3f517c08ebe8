"""What a row of the table shows, from the values and the raw launches of its cell: pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ..kit.values import Interval, Metric
from ..model.report import Figures
from ..model.sample import Latency
from ..stats import estimators, intervals, speedup
from . import metrics
from .readers import INTERVAL_LEVEL, growth, lock_limit, peak, roles, site_figures, steady, waits_of
from .values import WALL_OF_CONTROL, Values, figure_of, scaling_sides, work_ratio

UNLIKE: Final = 0.02
"""Two ratios differ visibly from here on, as a logarithm."""
MEDIANS: Final[Mapping[str, str]] = {
    "start_ns": "start",
    "work_ns": "work",
    "join_ns": "join",
    "cold_ns": "cold",
    "cpu_ns": "cpu",
    "cores": "cores",
    "rss_bytes": "rss",
    "pss_bytes": "pss",
    "peak_bytes": "peak",
    "unshared_bytes": "unshared",
    "lock_wait": "lock_wait",
    "queue_wait": "queue_wait",
}
"""Field of Figures -> the metric whose median over launches it holds."""


def figures(of: Values, *, reference: Values | None) -> Figures:
    """The figures of one cell; each is None or empty where what it is made of was not measured.

    `reference` are the values that `ratio` refers to, the cell's own included. The wall interval is that of the
    geometric mean over launches, those of probes are as in `stats.moderated`, all others are exact, see
    `stats.estimators`. `growth_bytes` is an iteration's: one body call in each worker.
    """
    sample, workers = of.sample, of.cell.workers
    walls, others = of.by_order(Metric.WALL), reference.by_order(Metric.WALL) if reference else {}
    ratios = [walls[order] / others[order] for order in sorted(walls.keys() & others.keys())]
    over, rounds = estimators.geometric_mean(ratios) if ratios else None, None
    if over:
        now, was = (estimators.geometric_mean([*side.values()]) for side in (walls, others))
        rounds = len(ratios) if abs(math.log(over * was / now)) > UNLIKE else None

    def own(kind: str, field: str) -> dict[str, float]:
        """The workload's own figures of one kind: the median over launches of each."""
        names = sorted({name for launch in sample.launches for name in getattr(launch, field)})
        found = {name: of.middle(f"{kind}.{name}") for name in names}
        return {name: value for name, value in found.items() if value is not None}

    # An import may turn the GIL on in one launch and not in another.
    gil = [launch.gil_enabled for launch in sample.launches if launch.iterations]
    is_python = of.cell.executor.program is None

    scaling = None
    if (times := figure_of(Metric.SCALING, [of])) is not None:
        ratio = intervals.ratio_interval(list(scaling_sides(of).values()), INTERVAL_LEVEL)
        work = work_ratio(of)
        scaling = Interval(value=times, low=work * ratio.low, high=work * ratio.high, level=ratio.level)

    # The medians over launches of the median window; the longest answer of all, and all the errors.
    windows = [each.latency for launch in sample.launches for each in launch.iterations if each.latency is not None]
    latency = None
    if windows:
        medians = {f"{name}_ns": of.middle(f"latency_{name}") or math.nan for name in ("mean", "p50", "p95", "p99")}
        longest, errors = max(each.max_ns for each in windows), sum(each.errors for each in windows)
        latency = Latency(**medians, max_ns=longest, errors=errors, asked_per_s=windows[0].asked_per_s)

    return Figures(
        **{field: of.middle(metric) for field, metric in MEDIANS.items()},
        wall_ns=intervals.log_interval(tuple(walls.values())) if walls else None,
        ops_per_s=figure_of("ops_per_s", [of]),
        ratio=over,
        ratio_rounds=rounds,
        control_ratio=figure_of(WALL_OF_CONTROL, [of]),
        uss_bytes=figure_of(Metric.USS, [of]),
        uss_peak_bytes=peak(sample.of("memory")),
        counters_per_s=own("counter", "counters"),
        timers_mean_ns=own("timer", "timers"),
        peaks=own("peak", "peaks"),
        latency=latency,
        gil_enabled=any(gil) if gil and is_python else None,
        sites=site_figures(sample),
        no_locks="" if sample.locks_error is None else sample.locks_error.reason,
        lock_cost=of.lock_cost,
        memory_cost=of.memory_cost,
        waits=waits_of(sample),
        memory=roles(sample.of("memory")),
        memory_samples=sum(len(launch.memory) for launch in sample.of("memory")),
        memory_dropped=sum(launch.dropped for launch in sample.of("memory")),
        floor_uss_bytes=steady(sample.of("empty"), lambda part: part.steadiest_bytes),
        floor_pss_bytes=steady(sample.of("empty"), lambda part: part.pss_bytes),
        observed={name: value for name in metrics.OF_FEATURES if (value := of.middle(name)) is not None},
        growth_bytes=growth(sample.of("growth"), sample.of("growth_empty")),
        scaling=scaling,
        lock_ceiling=figure_of(Metric.LOCK_CEILING, [of]),
        lock_limit=None if of.one_worker is None else lock_limit(of.one_worker.sample, sample),
        efficiency=scaling.value / workers if scaling else None,
        serial_fraction=speedup.amdahl(scaling.value, workers) if scaling and workers > 1 else None,
    )
