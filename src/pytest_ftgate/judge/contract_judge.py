"""Contracts, where cells are measured: their values in each round, their sides as texts, and their verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from ..kit.values import Metric
from ..model.sample import NS_PER_S, ByRound
from ..model.verdict import Decision, MetricVerdict, Reason, Why
from ..stats import alpha_spending, estimators
from . import decide, metrics
from .contract_grammar import (
    Contract,
    Name,
    Node,
    Number,
    Operation,
    Term,
    Where,
    all_names,
    number_of,
    product_of,
)
from .contracts import absolute, fits, involved, metrics_needed
from .values import LEAST_LOCK_CEILING, Values, figure_of, locks_allow, of_rounds


def values(contract: Contract, hand: Values, *, least: bool = False) -> tuple[float, ...]:
    """One number a round, in their order, positive where the contract is broken in that round.

    It is log(left / right), or their difference over the mean of both magnitudes if a side may be zero or negative: for
    shares, counters, peaks, waits for the GIL and differences. Near the limit both are the same number. With > and >=
    the sign is reversed. Rounds in which any part has no value are left out. If the times of two cells are compared,
    their ratio is that of neighbouring iterations, else each time is a fast one of its launch. `hand` is the cell at
    hand. A contract about the GIL has no values, see `gil_verdict`. What locks allow is not known of short holds: with
    `least` it is what they allow at least.
    """
    if contract.is_gil:
        return ()
    sign = -1.0 if contract.operator in (">", ">=") else 1.0
    paired = _paired(contract, hand)
    if paired is not None:
        return tuple(sign * value for value in paired)
    # 1. The rounds in which every name has a value, and both sides are finite.
    known: dict[Term, ByRound] = {}
    for name in all_names(contract):
        of = _meant(name.where, hand)
        metric = LEAST_LOCK_CEILING if least and name.metric == Metric.LOCK_CEILING else name.metric
        known[name.metric, name.where] = {} if of is None else of.of(metric)
    orders = sorted(set.intersection(*(set(by_order) for by_order in known.values())))
    rounds = [_both(contract, {term: by_order[order] for term, by_order in known.items()}) for order in orders]
    # 2. Whether a side may be zero or negative, by the metrics in it and not by the measured values: a later round
    # would change values that an earlier interim look used.
    rows = [metrics.row(name.metric) for name in all_names(contract)]
    may_vanish = any(row.may_be_zero for row in rows)
    may_vanish = may_vanish or any(map(_subtracts, (contract.left, contract.right)))
    found = []
    for left, right in rounds:
        if not (math.isfinite(left) and math.isfinite(right)):
            continue
        if may_vanish:
            found.append(sign * (2 * (left - right) / (abs(left) + abs(right)) if left != right else 0.0))
        elif left > 0 and right > 0:
            found.append(sign * (math.log(left) - math.log(right)))
    return tuple(found)


def _subtracts(node: Node) -> bool:
    if not isinstance(node, Operation):
        return False
    return node.operator == "-" or _subtracts(node.left) or _subtracts(node.right)


def sides(contract: Contract, hand: Values) -> tuple[float | None, float | None]:
    """Left and right at the figures of the report's tables, in base units (s, bytes); None where one is missing."""
    at: dict[Term, float] = {}
    for name in all_names(contract):
        of = _meant(name.where, hand)
        figure = None if of is None or contract.is_gil else figure_of(name.metric, [of])
        if figure is None:
            return None, None
        at[name.metric, name.where] = figure
    left, right = _both(contract, at)
    return (left, right) if math.isfinite(left) and math.isfinite(right) else (None, None)


def _paired(contract: Contract, hand: Values) -> list[float] | None:
    """The logs for a contract of the form A.wall < c B.wall; None for any other."""
    product = product_of(contract)
    # The powers -1 and 1: one metric over another.
    if product is None or sorted(product[1].values()) != [-1, 1]:
        return None
    (own, own_where), (other, other_where) = sorted(product[1], key=product[1].__getitem__, reverse=True)
    if (own, other) != ("wall", "wall"):
        return None
    upper, lower = (_meant(where, hand) for where in (own_where, other_where))
    if upper is None or lower is None:
        return []
    ratios = [estimators.iterations_ratio(*pair) for pair in of_rounds(upper.iterations(), lower.iterations()).values()]
    return [math.log(product[0]) + math.log(ratio) for ratio in ratios]


def _both(contract: Contract, at: Mapping[Term, float]) -> tuple[float, float]:
    """Both sides in base units (s, bytes); times are in ns `at` their terms."""

    def of(name: Name) -> float:
        value = at[name.metric, name.where]
        return value / NS_PER_S if metrics.row(name.metric).unit == "time" else value

    return number_of(contract.left, of), number_of(contract.right, of)


def _meant(where: Where | None, hand: Values) -> Values | None:
    return hand if where is None else next((each for each in hand.test if fits(each.cell, where, hand.cell)), None)


def unreported(contract: Contract, hand: Values) -> str:
    """Names in the contract for which the workloads reported no value; empty if there are none."""
    found = []
    for name in all_names(contract):
        of = _meant(name.where, hand)
        if "." in name.metric and of is not None and of.rounds and not of.of(name.metric):
            found.append(name.metric.replace(".", " "))
    return " or ".join(dict.fromkeys(found))


# ---- the GIL


def gil_verdict(contract: Contract, hand: Values) -> MetricVerdict:
    """The verdict on `gil == off` or `gil == on`: a single launch in the other state breaks it.

    Inconclusive if no launch has run.
    """
    (name,) = all_names(contract)
    of = _meant(name.where, hand)
    launches = [] if of is None else [launch for launch in of.sample.launches if launch.iterations]
    wanted = isinstance(contract.right, Number) and contract.right.value == 1
    others = sum(launch.gil_enabled is not wanted for launch in launches)
    decision, reasons = Decision.PASSED, tuple[Reason, ...]()
    if not launches:
        decision, reasons = Decision.INCONCLUSIVE, (Reason(code=Why.GIL_UNKNOWN),)
    elif others:
        decision, counts = Decision.BROKEN, (others, len(launches))
        reasons = (Reason(code=Why.GIL, counts=counts, name="off" if wanted else "on"),)
    return MetricVerdict(
        metric=Metric.CONTRACT, decision=decision, reasons=reasons, launches=len(launches), contract=contract.text
    )


# ---- the verdict

DRIFT = 0.6
"""The correlation of neighbouring rounds in a cell's absolute figures, as measured where the machine changes its speed;
those of interleaved cells change alike."""
ABSOLUTE_SPREAD = 0.2
"""The deviation of a cell's absolute times from round to round, as measured there."""


def least_rounds(contracts: Sequence[Contract], alpha: float, beta: float, at_most: int) -> int:
    """The fewest rounds that can decide on each contract; 0 without one."""
    drifts = {DRIFT if absolute(contract) else 0.0 for contract in contracts if not contract.is_gil}
    least = (
        decide.least_pairs(0.0, 0.0, alpha, beta, at_most, drift, alpha_spending.of_rounds(drift)) for drift in drifts
    )
    return max(least, default=1) if contracts else 0


def judged(contract: Contract, hand: Values, alpha: float, beta: float, at_most: int, *, final: bool) -> MetricVerdict:
    """The verdict on a contract at the cell at hand, as one hypothesis; with `final` no more launches will come."""
    if contract.is_gil:
        return gil_verdict(contract, hand)
    cells = involved(contract, hand.cell, hand.test.cells)
    samples = [each.sample for each in map(hand.test.of, cells) if each is not None]
    lacking = None
    if failed := dict.fromkeys(each.cell.label for each in samples if each.failed):
        lacking = Reason(code=Why.NOT_MEASURED, name=", ".join(failed))
    elif "locks" in metrics_needed(contract):
        failures = (Reason(code=Why.PROBE_FAILED, name=each.cell.label, text=each.no_locks) for each in samples)
        lacking = next((each for each in failures if each.text), None)
    if lacking:
        return replace(decide.without_figures(Metric.CONTRACT, lacking), contract=contract.text)
    numbers = values(contract, hand)
    # The deviation that a round is expected to have: memory varies less than time, absolute figures most.
    rows = [metrics.row(name.metric) for name in all_names(contract)]
    own_time = absolute(contract)
    spread = ABSOLUTE_SPREAD if own_time else decide.CONTRACT_SPREAD
    if all(row.unit == "size" for row in rows):
        spread = rows[0].spread
    require = partial(
        decide.require,
        text=contract.text,
        alpha=alpha,
        beta=beta,
        at_most=at_most,
        correlation=DRIFT if own_time else 0.0,
        spread=spread,
        final=final,
    )
    judged = require(numbers)
    least = isinstance(contract.left, Name) and contract.operator in (">", ">=") and not numbers
    if least and (at_least := values(contract, hand, least=True)) and max(at_least) < 0:
        judged = require(at_least)
    if not numbers and (missing := unreported(contract, hand)):
        return replace(judged, reasons=(Reason(code=Why.NOT_REPORTED, name=missing),))
    held = [
        of for name in all_names(contract) if name.metric == Metric.LOCK_CEILING and (of := _meant(name.where, hand))
    ]
    if held and final:
        told = judged.reasons if judged.launches else ()
        judged = replace(judged, reasons=(*told, *dict.fromkeys(map(locks_allow, held))))
    if not numbers and not held:
        absent = next((row.absent for row in rows if row.absent), "")
        return replace(judged, reasons=(Reason(code=Why.NO_ROUND, text=absent),))
    left, right = sides(contract, hand)
    return judged if left is None or right is None or not final else replace(judged, now=left, was=right)
