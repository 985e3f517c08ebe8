"""What each cell of a test is judged by, what a decision still needs, and the verdict: by the road that the cell takes.

Stored launches screen: what clearly meets them passes at once, a miss is no verdict yet. A reference that took turns
with the cell judges. Where no reference can be had, a prediction from the stored recordings does, and finds less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from . import baselines, comparisons, contracts, figures, gate, sequential, thresholds
from .comparisons import NEEDS, Numbers
from .entries import EVERYTHING, Need
from .model import (
    Cell,
    Comparison,
    Decision,
    Figures,
    Interval,
    Metric,
    MetricVerdict,
    Road,
    Sample,
    Spec,
    Struct,
    Threshold,
    Verdict,
)

TANDEM_ROUNDS = sequential.LOOKS[-1]
SCREEN_LAUNCHES = 12
LEAST_ROUNDS = 5
"""Rounds of a cell that nothing is compared with: enough for its figures to have intervals."""
HOPELESS_ROUNDS = 3
"""So many rounds without a value of a metric say that there will be none."""
NO_NEW = {
    Metric.USS: "its processes ended before the look",
    Metric.LOCK_WAIT: "no launch of this run gave one",
}
"""Why a metric that the other side has may lack here. Scaling is not judged then: its one-worker cell is missing."""


class Policy(Struct, frozen=True, kw_only=True):
    """What the options say about verdicts; `alpha` and `beta` are those of each hypothesis."""

    metrics: tuple[Metric, ...]
    cli: tuple[Threshold, ...]
    ini: tuple[Threshold, ...]
    alpha: float
    beta: float
    probe_cost: float


class Standing(Struct, frozen=True, kw_only=True):
    """What a cell is compared with: nothing (with the reason in `why`), what is stored of it, or its reference.

    `entry` is what is stored, on this machine (road `stored`) or another (`elsewhere`, where `executor` is the entry of
    the reference executor and `executor_nodeid` its cell's node id). `baseline` and `commit` say what it is for people.
    """

    road: Road = ""
    why: str = ""
    entry: baselines.Entry | None = None
    executor: baselines.Entry | None = None
    executor_nodeid: str = ""
    baseline: str = ""
    commit: str = ""


class Judging:
    """The judge of one test's cells while they are measured and after."""

    def __init__(
        self, spec: Spec, policy: Policy, standings: Mapping[str, Standing], at_most: int, fixed: int | None = None
    ) -> None:
        """`at_most` rounds compare, contracts take as many as a tandem; `fixed` is the number that was asked for."""
        self.spec = spec
        self.policy = policy
        self.standings = standings
        self.at_most = fixed or at_most
        self.rounds = fixed or (TANDEM_ROUNDS if spec.requirements else at_most)
        self.contracts = [contracts.parse(each.text) for each in spec.requirements]

    # -- while measuring ---------------------------------------------------------------------------------------

    def first(self) -> frozenset[Need]:
        """The kinds of launches of the first round: what may gate, or everything where nothing is compared."""
        if not all(standing.road for standing in self.standings.values()):
            return EVERYTHING
        gating = {NEEDS[metric] for metric in self.policy.metrics}
        return frozenset(gating.union({"time"}, *(contracts.metrics_needed(each) for each in self.contracts)))

    def needs(self, samples: Sequence[Sample]) -> dict[str, frozenset[Need]]:
        """The kinds of launches that each cell still needs, those for the sake of other cells included."""
        needs: dict[str, set[Need]] = {sample.cell.nodeid: set() for sample in samples}
        for sample in samples:
            if sample.error is None and sample.unsupported is None:
                for nodeid, kinds in self._needs_of(sample, samples).items():
                    needs[nodeid] |= kinds
        return {nodeid: frozenset(kinds) for nodeid, kinds in needs.items()}

    def _needs_of(self, sample: Sample, samples: Sequence[Sample]) -> dict[str, frozenset[Need]]:
        own = sample.cell.nodeid
        found: dict[str, set[Need]] = {own: set()}
        if len(sample.launches) < LEAST_ROUNDS and not self._compared(sample):
            found[own] |= EVERYTHING
        for verdict in self._of_metrics(sample, samples, final=False):
            if verdict.decision is Decision.INCONCLUSIVE and self._hopeful(verdict, sample):
                found[own].add(NEEDS[verdict.metric])
                if verdict.metric is Metric.SCALING:
                    found.update({other: {"time"} for other in _one_worker(sample, samples)})
        for contract, verdict in self._of_contracts(sample, samples, final=False):
            if verdict.decision is Decision.INCONCLUSIVE and len(sample.launches) < self.rounds:
                for other in contracts.involved(contract, sample.cell, [each.cell for each in samples]):
                    found.setdefault(other.nodeid, set()).update(contracts.metrics_needed(contract))
        return {nodeid: frozenset(kinds) for nodeid, kinds in found.items()}

    def _hopeful(self, verdict: MetricVerdict, sample: Sample) -> bool:
        rounds = max(len(sample.launches), len(sample.memory))
        return rounds < self.at_most and (bool(verdict.launches) or rounds < HOPELESS_ROUNDS)

    def _compared(self, sample: Sample) -> bool:
        if sample.reference is not None:
            return sample.reference.error is None and sample.reference.unsupported is None
        return self.standing(sample).entry is not None

    def more(self, samples: Sequence[Sample]) -> int | None:
        """How many more rounds would settle all that is open; 0 for nothing, None where no number is known to."""
        found = [verdict for sample in samples for verdict in self.metrics(sample, samples, final=False)]
        open_ones = [verdict.more for verdict in found if verdict.decision is Decision.INCONCLUSIVE]
        known = [more for more in open_ones if more is not None]
        return max(known, default=0) if len(known) == len(open_ones) else None

    # -- verdicts ----------------------------------------------------------------------------------------------

    def standing(self, sample: Sample) -> Standing:
        """What a cell is compared with; nothing where its entry turns out to be of something else."""
        found = self.standings[sample.cell.nodeid]
        mismatch = baselines.mismatch(found.entry, sample) if found.entry is not None else ""
        return Standing(why=mismatch) if mismatch else found

    def metrics(self, sample: Sample, samples: Sequence[Sample], *, final: bool) -> list[MetricVerdict]:
        """The decisions on the metrics that gate and on the contracts; `samples` are those of the whole test."""
        judged = self._of_metrics(sample, samples, final=final)
        return judged + [verdict for _, verdict in self._of_contracts(sample, samples, final=final)]

    def verdict(self, sample: Sample, samples: Sequence[Sample], shown: Figures) -> Verdict:
        """The verdict on a cell as far as this road goes; `shown` are its figures, the cost of looking among them."""
        if sample.unsupported is not None:
            return Verdict(decision=Decision.UNSUPPORTED, reason=sample.unsupported)
        if sample.error is not None:
            return Verdict(decision=Decision.ERROR, reason=sample.error.reason)
        standing = self.standing(sample)
        if not sample.launches:
            reason = "the time given was over before its first round: give more with --ftgate-time"
            return Verdict(decision=Decision.INCONCLUSIVE, reason=reason, road=standing.road, why=standing.why)
        judged = self._of_metrics(sample, samples, final=True, shown=shown)
        held = [verdict for _, verdict in self._of_contracts(sample, samples, final=True)]
        if not (judged or held):
            return Verdict(decision=Decision.NO_BASELINE, reason=self._why_none(sample, standing))
        return gate.judge(
            [*judged, *held],
            baseline=standing.baseline,
            commit=standing.commit,
            road=standing.road if judged else "",
            why=standing.why if judged else self._why_none(sample, standing),
        )

    def predicted(self, sample: Sample, samples: Sequence[Sample], screened: Verdict, why: str) -> Verdict:
        """The verdict where no reference can be measured, for the reason `why`: what missed the screen is predicted."""
        standing = self.standing(sample)
        numbers = self._numbers(sample, samples, standing)
        judged = [
            self._predicted(each, numbers[each.metric], sample) if missed(each) and each.metric in numbers else each
            for each in screened.metrics
        ]
        road: Road = "prediction" if standing.road == "stored" else standing.road
        return gate.judge(judged, baseline=screened.baseline, commit=screened.commit, road=road, why=why)

    def with_held(self, verdict: Verdict, held: Sequence[MetricVerdict]) -> Verdict:
        """The verdict with contracts that were judged before."""
        metrics = [*verdict.metrics, *held]
        return gate.judge(metrics, baseline=verdict.baseline, commit=verdict.commit, road=verdict.road, why=verdict.why)

    def _predicted(self, screened: MetricVerdict, numbers: Numbers, sample: Sample) -> MetricVerdict:
        if not numbers.new:
            return screened
        return gate.predict(self._comparison(screened.metric, numbers, "prediction", sample, True), numbers.recordings)

    def _why_none(self, sample: Sample, standing: Standing) -> str:
        reference = sample.reference
        if reference is None:
            return standing.why
        if reference.unsupported is not None:
            return f"the reference cannot run it: {reference.unsupported}"
        if reference.error is not None:
            return f"the reference fails: {reference.error.reason}"
        return standing.why or "the reference gave nothing to compare with"

    # -- metrics -----------------------------------------------------------------------------------------------

    def _of_metrics(
        self, sample: Sample, samples: Sequence[Sample], *, final: bool, shown: Figures | None = None
    ) -> list[MetricVerdict]:
        standing = self.standing(sample)
        numbers = self._numbers(sample, samples, standing)
        costs: dict[Metric, Interval | None] = {}
        if shown is not None:
            costs = {Metric.USS: shown.memory_cost, Metric.LOCK_WAIT: shown.lock_cost}
        found = []
        # Of another machine the time is judged by its ratio to the reference executor's.
        beside = (Metric.RATIO,) if Metric.WALL in self.policy.metrics else ()
        for metric in (*self.policy.metrics, *beside):
            if metric in numbers and (numbers[metric].new or metric in NO_NEW):
                refused = gate.refused(metric, costs.get(metric), self.policy.probe_cost)
                found.append(refused or self._judged(metric, numbers[metric], standing.road, sample, final))
        return found

    def _numbers(self, sample: Sample, samples: Sequence[Sample], standing: Standing) -> dict[Metric, Numbers]:
        if sample.reference is not None:
            return comparisons.in_tandem(sample)
        if standing.entry is None or not sample.launches:
            return {}
        new = baselines.recording_from_sample(sample)
        if standing.road == "stored":
            return comparisons.with_stored(new, standing.entry)
        beside = next((each for each in samples if each.cell.nodeid == standing.executor_nodeid), None)
        executor = baselines.recording_from_sample(beside) if beside is not None else None
        return comparisons.elsewhere(new, standing.entry, executor=executor, stored_executor=standing.executor)

    def _judged(self, metric: Metric, numbers: Numbers, road: Road, sample: Sample, final: bool) -> MetricVerdict:
        if not numbers.new:
            reason = f"the other side has figures and this run none: {NO_NEW[metric]}"
            return MetricVerdict(metric=metric, decision=Decision.INCONCLUSIVE, reason=reason)
        return gate.compare(self._comparison(metric, numbers, road, sample, final))

    def _comparison(self, metric: Metric, numbers: Numbers, road: Road, sample: Sample, final: bool) -> Comparison:
        limits = thresholds.effective(
            metric, road, cli=self.policy.cli, declared=self.spec.thresholds, ini=self.policy.ini
        )
        stored = len(numbers.reference) if numbers.test == "ranks" else 0
        alpha, beta = self.policy.alpha, self.policy.beta
        return Comparison(
            metric=metric,
            new=numbers.new,
            reference=numbers.reference,
            unit=numbers.unit,
            margin=limits.margin,
            effect=limits.effect,
            floor=limits.floor * _unit_in(numbers.unit, sample),
            alpha=alpha,
            beta=beta,
            test=numbers.test,
            looks=sequential.spend(alpha, beta, numbers.test, at_most=self.at_most, reference=stored),
            final=final,
            widest=limits.widest,
        )

    # -- contracts ---------------------------------------------------------------------------------------------

    def _of_contracts(
        self, sample: Sample, samples: Sequence[Sample], *, final: bool
    ) -> list[tuple[contracts.Contract, MetricVerdict]]:
        cells = [each.cell for each in samples]
        mine = (contract for contract in self.contracts if contracts.concerns(contract, sample.cell, cells))
        return [(contract, self._held(contract, sample, samples, final)) for contract in mine]

    def _held(
        self, contract: contracts.Contract, sample: Sample, samples: Sequence[Sample], final: bool
    ) -> MetricVerdict:
        if contract.is_gil:
            return contracts.gil_verdict(contract, sample, samples)
        alpha, beta = self.policy.alpha, self.policy.beta
        return gate.require(
            contracts.values(contract, sample, samples),
            text=contract.text,
            looks=sequential.spend(alpha, beta, "pairs", at_most=self.rounds),
            alpha=alpha,
            beta=beta,
            final=final,
        )


def doubted(verdict: Verdict, compared: str, alone: str) -> Verdict:
    """The verdict without the regressions that the machine may have made.

    `compared` says why a comparison of times is not believed, `alone` why a contract about a cell's own time is not;
    each is empty where it is. What others do moves no memory.
    """
    metrics = [_doubted(each, alone if each.contract else compared) for each in verdict.metrics]
    if metrics == list(verdict.metrics):
        return verdict
    return gate.judge(metrics, baseline=verdict.baseline, commit=verdict.commit, road=verdict.road, why=verdict.why)


def unchanged(verdict: Verdict) -> Verdict:
    """The verdict where the code is that of the baseline: what differs is no regression of it."""
    reason = "the code is that of its baseline, so the machine or what is installed has changed"
    metrics = [
        msgspec.structs.replace(each, decision=Decision.INCONCLUSIVE, reason=f"{each.reason}; {reason}")
        if each.decision is Decision.REGRESSED
        else each
        for each in verdict.metrics
    ]
    return gate.judge(metrics, baseline=verdict.baseline, commit=verdict.commit, road=verdict.road, why=verdict.why)


def _doubted(judged: MetricVerdict, reason: str) -> MetricVerdict:
    failed = judged.decision in (Decision.REGRESSED, Decision.BROKEN)
    moved = contracts.absolute(contracts.parse(judged.contract)) if judged.contract else judged.metric is not Metric.USS
    if not (reason and failed and moved):
        return judged
    doubt = f"{judged.reason}; not believed: {reason}"
    return msgspec.structs.replace(judged, decision=Decision.INCONCLUSIVE, reason=doubt)


def missed(verdict: MetricVerdict) -> bool:
    """Whether a metric is not clearly fine, so that its reference should be measured; a contract has none."""
    if verdict.metric is Metric.CONTRACT or not verdict.launches:
        return False
    return verdict.decision in (Decision.REGRESSED, Decision.INCONCLUSIVE)


def hypotheses(spec: Spec, metrics: Sequence[Metric], cell: Cell, cells: Sequence[Cell], compared: bool) -> int:
    """How many tests may raise a false alarm on one cell; `cells` are those of its test."""
    scales = cell.workers > 1 and 1 in spec.workers
    gating = [metric for metric in metrics if metric is not Metric.SCALING or scales]
    judged = (contracts.parse(each.text) for each in spec.requirements)
    held = [each for each in judged if not each.is_gil and contracts.concerns(each, cell, cells)]
    return (len(gating) if compared else 0) + len(held)


def _unit_in(unit: str, sample: Sample) -> float:
    """What a floor is multiplied with to be in the unit of the values: floors of times are in seconds."""
    if unit == "ns":
        return figures.NS_PER_S
    if unit == "x candle":
        candles = figures.launch_values(sample.candle)
        return figures.NS_PER_S / median(candles.values()) if candles else 0.0
    return 1.0


def _one_worker(sample: Sample, samples: Sequence[Sample]) -> list[str]:
    """The node ids of the one-worker cell that a cell's scaling refers to."""
    cell = sample.cell
    return [
        each.cell.nodeid
        for each in samples
        if each.cell.workers == 1 and each.cell.target == cell.target and each.cell.executor == cell.executor
    ]
