"""Contracts: a small grammar over the figures of cells, and one number a round that says by how much one is broken.

    contract   = sum ("<" | "<=" | ">" | ">=") sum | cell "gil" "==" ("on" | "off")
    sum        = product {("+" | "-") product}
    product    = part {("*" | "/") part}
    part       = number [unit] | [cell] metric | "(" sum ")"
    metric     = word | ("timer" | "counter" | "peak") "." name of the workload's
    cell       = executor ["[" qualifier {"," qualifier} "]"] "."
    qualifier  = start method | "w" worker count | role with its worker count | program's name | target

Nothing is ever evaluated as Python. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from ...model import Decision, Iteration, Latency, MemoryPoint, Metric, MetricVerdict, Sample, WaitsFor, iteration_value
from ...stats import rank_tests
from ...text import percent
from .. import figures, memory_figures, per_launch, wait_figures
from ..thresholds import SIZES_BYTES, TIMES_S
from .check import fits
from .grammar import (
    SHARES,
    SIZE,
    TAIL_QUANTILE,
    TIME,
    Contract,
    Name,
    Node,
    Number,
    Operation,
    Term,
    Where,
    all_names,
    dimension_in,
    number_of,
    powers_of,
    product_of,
)

NS_PER_S = 1e9


def values(contract: Contract, sample: Sample, samples: Iterable[Sample]) -> tuple[float, ...]:
    """One number a round, in their order, positive where the contract is broken in that round.

    It is log(left / right), or left - right in base units where a side may be zero or less: of shares, counters, peaks
    and waits for the GIL, and of anything that is subtracted; with > and >= its negative. Rounds in which any part has
    no value are left out. Where the time of two cells is compared, their ratio is the median of the ratios turn by
    turn, else each is its floor. `sample` is that of the cell at hand, among `samples` of its test. A contract about
    the GIL has no values, see `gil_verdict`.
    """
    if contract.is_gil:
        return ()
    sign = -1.0 if contract.operator in (">", ">=") else 1.0
    paired = _paired(contract, sample, list(samples))
    if paired is not None:
        return tuple(sign * value for value in paired)
    rounds = _rounds(contract, sample, samples)
    if _may_vanish(contract):
        return tuple(sign * (left - right) for left, right in rounds)
    known = ((left, right) for left, right in rounds if left > 0 and right > 0)
    return tuple(sign * (math.log(left) - math.log(right)) for left, right in known)


def _may_vanish(contract: Contract) -> bool:
    """Whether a side may be zero or less: by what it is made of, so that no later round changes what was looked at."""
    shares = any(
        name.metric in (*SHARES, "gil_wait_p95") or name.metric.startswith(("counter.", "peak."))
        for name in all_names(contract)
    )
    return shares or any(map(_subtracts, (contract.left, contract.right)))


def _subtracts(node: Node) -> bool:
    if not isinstance(node, Operation):
        return False
    return node.operator == "-" or _subtracts(node.left) or _subtracts(node.right)


def sides(contract: Contract, sample: Sample, samples: Iterable[Sample]) -> tuple[float | None, float | None]:
    """The medians of left and right over the rounds, in base units (s, bytes); None without a round that has both."""
    rounds = [] if contract.is_gil else _rounds(contract, sample, samples)
    if not rounds:
        return None, None
    return median(left for left, _ in rounds), median(right for _, right in rounds)


def _paired(contract: Contract, sample: Sample, samples: Sequence[Sample]) -> list[float] | None:
    """The logs for a contract of the form A.wall < c B.wall; None for any other."""
    product = product_of(contract)
    if product is None or product[0] <= 0 or sorted(product[1].values()) != [-1, 1]:
        return None
    (own, own_where), (other, other_where) = sorted(product[1], key=product[1].__getitem__, reverse=True)
    if (own, other) != ("wall", "wall"):
        return None
    upper, lower = (_sample_of(where, sample, samples) for where in (own_where, other_where))
    if upper is None or lower is None:
        return []
    beside = per_launch.paired_values(upper.launches, lower.launches)
    ratios = [rank_tests.iterations_ratio(own, other, rank_tests.PAIRED) for own, other in beside]
    return [math.log(product[0]) + math.log(ratio) for ratio in ratios]


def _rounds(contract: Contract, sample: Sample, samples: Iterable[Sample]) -> list[tuple[float, float]]:
    """Left and right in each round in which both are finite, in order."""
    there = list(samples)
    known: dict[Term, dict[int, float]] = {}
    for name in all_names(contract):
        of = _sample_of(name.where, sample, there)
        known[name.metric, name.where] = {} if of is None else _by_order(name.metric, of)
    orders = set.intersection(*(set(by_order) for by_order in known.values()))
    found = []
    for order in sorted(orders):
        both = _both(contract, {term: by_order[order] for term, by_order in known.items()})
        if all(map(math.isfinite, both)):
            found.append(both)
    return found


def _both(contract: Contract, at: Mapping[Term, float]) -> tuple[float, float]:
    """Left and right, where the terms come to that."""

    def of(name: Name) -> float:
        return at[name.metric, name.where]

    return number_of(contract.left, of), number_of(contract.right, of)


def _sample_of(where: Where | None, sample: Sample, samples: Iterable[Sample]) -> Sample | None:
    return sample if where is None else next((each for each in samples if fits(each.cell, where, sample.cell)), None)


# ---- what a launch says


def _known(found: Iterable[tuple[int, float | None]]) -> dict[int, float]:
    return {order: float(value) for order, value in found if value is not None and math.isfinite(value)}


def _median(found: Iterable[float | None]) -> float | None:
    known = [value for value in found if value is not None]
    return float(median(known)) if known else None


def _floors(quantile: float) -> Callable[[Sample], dict[int, float]]:
    def read(sample: Sample) -> dict[int, float]:
        found = per_launch.launch_values(sample.launches, quantile=quantile)
        return {order: ns / NS_PER_S for order, ns in found.items()}

    return read


def _cold(sample: Sample) -> dict[int, float]:
    return _known(
        (launch.order, iteration_value(launch.cold, 1, launch.window_ns > 0) / NS_PER_S)
        for launch in sample.launches
        if launch.cold is not None
    )


def _phase(ns_of: Callable[[Iteration], int]) -> Callable[[Sample], dict[int, float]]:
    def read(sample: Sample) -> dict[int, float]:
        return _known(
            (
                launch.order,
                _median(ns_of(iteration) / max(1, launch.loops) / NS_PER_S for iteration in launch.iterations),
            )
            for launch in sample.launches
        )

    return read


def _looks(bytes_of: Callable[[MemoryPoint], int | None]) -> Callable[[Sample], dict[int, float]]:
    def read(sample: Sample) -> dict[int, float]:
        return _known((launch.order, _median(map(bytes_of, launch.memory))) for launch in sample.memory)

    return read


def _waited(waits_for: WaitsFor) -> Callable[[Sample], dict[int, float]]:
    def read(sample: Sample) -> dict[int, float]:
        return wait_figures.shares_by_order(sample, waits_for)

    return read


def _efficiency(sample: Sample) -> dict[int, float]:
    return {order: scaling / sample.cell.workers for order, scaling in figures.scaling_values(sample).items()}


def _cores(sample: Sample) -> dict[int, float]:
    spans = [(launch, sum(iteration.wall_ns for iteration in launch.iterations)) for launch in sample.launches]
    return {
        launch.order: sum(iteration.cpu_ns for iteration in launch.iterations) / span
        for launch, span in spans
        if span > 0
    }


def _rate(sample: Sample) -> dict[int, float]:
    return _known(
        (launch.order, _median(iteration.rate for iteration in launch.iterations if iteration.rate > 0))
        for launch in sample.launches
    )


def _latency(ns_of: Callable[[Latency], float]) -> Callable[[Sample], dict[int, float]]:
    def read(sample: Sample) -> dict[int, float]:
        return _known(
            (
                launch.order,
                _median(ns_of(iteration.latency) / NS_PER_S for iteration in launch.iterations if iteration.latency),
            )
            for launch in sample.launches
        )

    return read


def _gil_waits(sample: Sample) -> dict[int, float]:
    return {order: ns / NS_PER_S for order, ns in wait_figures.gil_wait_values(sample.memory).items()}


def _own(kind: str, name: str, sample: Sample) -> dict[int, float]:
    """A metric of the workload's own; a launch that never counted what another did counted 0."""
    if kind == "counter":
        return figures.counter_values(sample.launches, name)
    if kind == "peak":
        return _known((launch.order, launch.peaks.get(name)) for launch in sample.launches)
    timers = [(launch.order, launch.timers[name]) for launch in sample.launches if name in launch.timers]
    return {order: timer.total_ns / timer.count / NS_PER_S for order, timer in timers if timer.count}


def _by_order(metric: str, sample: Sample) -> dict[int, float]:
    """A metric of a sample: launch order -> value in base units."""
    kind, dot, name = metric.partition(".")
    return _own(kind, name, sample) if dot else _READ[metric](sample)


def unsaid(contract: Contract, sample: Sample, samples: Iterable[Sample]) -> str:
    """The names in the contract that the workloads have for none of their own figures; empty where there are none."""
    there = list(samples)
    found = []
    for name in all_names(contract):
        of = _sample_of(name.where, sample, there)
        if "." in name.metric and of is not None and of.launches and not _by_order(name.metric, of):
            found.append(name.metric.replace(".", " "))
    return " or ".join(dict.fromkeys(found))


_READ: Final[Mapping[str, Callable[[Sample], dict[int, float]]]] = {
    "wall": _floors(per_launch.QUANTILE),
    "tail": _floors(TAIL_QUANTILE),
    "cold": _cold,
    "start": _phase(lambda iteration: iteration.start_ns),
    "work": _phase(lambda iteration: iteration.work_ns),
    "join": _phase(lambda iteration: iteration.join_ns),
    "uss": lambda sample: memory_figures.uss_values(sample.memory),
    "pss": _looks(lambda point: point.pss_bytes),
    "rss": _looks(lambda point: point.rss_bytes),
    "lock_wait_share": _waited("lock"),
    "queue_wait_share": _waited("queue"),
    "scaling": figures.scaling_values,
    "efficiency": _efficiency,
    "cores": _cores,
    "ops_per_s": _rate,
    "latency_mean": _latency(lambda latency: latency.mean_ns),
    "latency_p50": _latency(lambda latency: latency.p50_ns),
    "latency_p95": _latency(lambda latency: latency.p95_ns),
    "latency_p99": _latency(lambda latency: latency.p99_ns),
    "gil_wait_p95": _gil_waits,
}


# ---- the GIL, and words


def gil_verdict(contract: Contract, sample: Sample, samples: Iterable[Sample]) -> MetricVerdict:
    """The verdict on `gil == off` or `gil == on`: every launch counts, one that is otherwise breaks it.

    Inconclusive where no launch has run.
    """
    (name,) = all_names(contract)
    of = _sample_of(name.where, sample, samples)
    launches = [] if of is None else [launch for launch in of.launches if launch.iterations]
    wanted = isinstance(contract.right, Number) and contract.right.value == 1
    others = sum(launch.gil_enabled is not wanted for launch in launches)
    decision, reason = Decision.PASSED, ""
    if not launches:
        decision, reason = Decision.INCONCLUSIVE, "no launch has told whether the GIL was on"
    elif others:
        decision = Decision.BROKEN
        reason = f"the GIL was {'off' if wanted else 'on'} in {others} of {len(launches)} launches"
    return MetricVerdict(
        metric=Metric.CONTRACT, decision=decision, reason=reason, launches=len(launches), contract=contract.text
    )


def value_text(contract: Contract, value: float) -> str:
    """A value of one of the contract's sides with its unit: `1.83 ms`, `64 MiB`, `12.5 %`, `1.21`."""
    dimension = dimension_in(contract, contract.left)
    if dimension == TIME:
        return _in_units(value, {unit: TIMES_S[unit] for unit in ("s", "ms", "us", "ns")})
    if dimension == SIZE:
        return _in_units(value, {unit: SIZES_BYTES[unit] for unit in ("GiB", "MiB", "KiB", "B")})
    if _is_share(contract):
        return percent(float(f"{value:.3g}"))
    return _digits(value)


def _in_units(value: float, units: Mapping[str, float]) -> str:
    """In the largest of the units (which descend) in which the rounded value is at least one."""
    unit = next((unit for unit, size in units.items() if float(f"{abs(value) / size:.3g}") >= 1), list(units)[-1])
    return f"{_digits(value / units[unit])} {unit}"


def _digits(value: float) -> str:
    """Three significant digits, without an exponent where the number is large."""
    return f"{value:,.0f}" if math.isfinite(value) and abs(value) >= 999.5 else f"{value:.3g}"


def _is_share(contract: Contract) -> bool:
    """Whether a side is a share of the time, and not a ratio of two."""
    products = [powers_of(side) for side in (contract.left, contract.right)]
    return any(
        product is not None and [(term[0] in SHARES, power) for term, power in product[1].items()] == [(True, 1)]
        for product in products
    )
