"""The judge of a test's contracts."""

from __future__ import annotations

import msgspec

from ..model import Metric, MetricVerdict, Sample, Spec, TestSamples
from ..stats.alpha_spending import of_rounds
from ..text import apart
from . import decide, metrics, power
from .contracts import check, grammar, values
from .contracts.grammar import Contract

DRIFT = 0.6
"""The correlation of neighbouring rounds in a cell's absolute figures, as measured where the machine changes its speed;
those of interleaved cells change alike."""
ABSOLUTE_SPREAD = 0.2
"""The deviation of a cell's absolute times from round to round, as measured there."""


class ContractJudge:
    """Judges the contracts of one test; each is one hypothesis of the run, at alpha and beta."""

    def __init__(self, spec: Spec, alpha: float, beta: float, rounds: int) -> None:
        """`rounds` is the largest number of rounds that may be measured for a contract."""
        self.contracts = [grammar.parse(each.text) for each in spec.requirements]
        self.alpha = alpha
        self.beta = beta
        self.rounds = rounds

    def least_rounds(self) -> int:
        """The fewest rounds that can decide on each contract; 0 without one."""
        levels = self.alpha, self.beta, self.rounds
        drifts = {DRIFT if check.absolute(contract) else 0.0 for contract in self.contracts if not contract.is_gil}
        counted = max((power.least_pairs(0.0, 0.0, *levels, drift, of_rounds(drift)) for drift in drifts), default=1)
        return counted if self.contracts else 0

    def verdicts(self, sample: Sample, samples: TestSamples, *, final: bool) -> list[tuple[Contract, MetricVerdict]]:
        """The verdict on each contract that concerns the sample's cell; with `final` no more launches will come."""
        mine = (contract for contract in self.contracts if check.concerns(contract, sample.cell, samples.cells))
        return [(contract, self._verdict(contract, sample, samples, final)) for contract in mine]

    def _verdict(self, contract: Contract, sample: Sample, samples: TestSamples, final: bool) -> MetricVerdict:
        if contract.is_gil:
            return values.gil_verdict(contract, sample, samples)
        missing = _failed(contract, sample, samples)
        if reason := f"{missing} could not be measured" if missing else _no_locks(contract, sample, samples):
            return msgspec.structs.replace(decide.without_figures(Metric.CONTRACT, reason), contract=contract.text)
        numbers = values.values(contract, sample, samples)
        held = decide.require(
            numbers,
            text=contract.text,
            alpha=self.alpha,
            beta=self.beta,
            at_most=self.rounds,
            correlation=DRIFT if check.absolute(contract) else 0.0,
            spread=_spread(contract),
            final=final,
        )
        if not numbers and (missing := values.unreported(contract, sample, samples)):
            return msgspec.structs.replace(held, reason=f"no launch has a {missing}")
        left, right = values.sides(contract, sample, samples)
        if left is None or right is None or not final:
            return held
        shown = " against ".join(apart(left, right, lambda value, more: values.value_text(contract, value, more)))
        return msgspec.structs.replace(held, reason=f"{shown}; {held.reason}" if held.reason else shown)


def _spread(contract: Contract) -> float:
    """The deviation that a round is expected to have: memory varies less than time, absolute figures most."""
    rows = [metrics.row(name.metric) for name in grammar.all_names(contract)]
    if all(row.unit == "size" for row in rows):
        return max(row.spread for row in rows)
    return ABSOLUTE_SPREAD if check.absolute(contract) else decide.CONTRACT_SPREAD


def _no_locks(contract: Contract, sample: Sample, samples: TestSamples) -> str:
    """Why a compared cell has no figures of locks, if the contract needs them."""
    if "locks" not in check.metrics_needed(contract):
        return ""
    compared = (samples.cell(cell) for cell in check.involved(contract, sample.cell, samples.cells))
    return next((f"{each.cell.label}: {each.no_locks}" for each in compared if each is not None and each.no_locks), "")


def _failed(contract: Contract, sample: Sample, samples: TestSamples) -> str:
    """The labels of the compared cells that failed."""
    compared = (samples.cell(cell) for cell in check.involved(contract, sample.cell, samples.cells))
    return ", ".join(dict.fromkeys(each.cell.label for each in compared if each is not None and each.failed))
