"""The judge of a test: the basis of each cell's verdict, the launches that a decision still needs, and the verdict.

Stored launches only screen: a cell that clearly meets them passes at once, a miss is not a verdict yet. An interleaved
reference decides. Where there is none, a prediction from the stored recordings decides, with less power.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..kit.values import Interval, Metric, Struct, Threshold
from ..model.report import Conditions, Figures
from ..model.sample import EVERYTHING, IN_PAIRS, NS_PER_S, Need, Sample, TestSamples, single_cell
from ..model.spec import Cell, Spec
from ..model.verdict import Basis, Comparison, Decision, MetricVerdict, Verdict
from ..stats import alpha_spending
from ..store import recording, schema
from . import compare, contract_grammar, contracts, decide, metrics, prediction, readers, recorded
from . import decide as disturbance
from . import decide as power
from . import limits as thresholds
from .compare import Numbers
from .contracts import ContractJudge

PAIRED_ROUNDS = alpha_spending.LOOKS[-1]
SCREEN_LAUNCHES = prediction.MOST_LAUNCHES
LEAST_ROUNDS = 5
"""Rounds of a cell without a comparison: enough for intervals of its figures."""
HOPELESS_ROUNDS = 3
"""After this many rounds without a value of a metric, no value is expected."""


class Policy(Struct, frozen=True, kw_only=True):
    """The options that concern verdicts; `alpha` and `beta` are the error rates of each hypothesis."""

    metrics: tuple[str, ...]
    cli: tuple[Threshold, ...]
    ini: tuple[Threshold, ...]
    alpha: float
    beta: float
    probe_cost: float


class ComparedWith(Struct, frozen=True, kw_only=True):
    """What a cell is compared with: nothing (with the reason in `why`), its stored recordings, or its reference.

    `entry` is the stored cell of this machine (basis `stored`) or of another (`portable`: there `executor` is the
    stored cell of the reference executor and `executor_nodeid` its node id). `baseline` and `commit` name it in
    reports, `file` is where it is stored, and `recorded_at` when it was; what was recorded `elsewhere`, by another
    machine or build, fails nothing by itself. A cell that is the `same` as its reference is compared with nothing. One
    that is not `judged` is measured for another cell's scaling alone.
    """

    basis: Basis = ""
    why: str = ""
    entry: schema.StoredCell | None = None
    executor: schema.StoredCell | None = None
    executor_nodeid: str = ""
    baseline: str = ""
    commit: str = ""
    file: str = ""
    recorded_at: str = ""
    elsewhere: bool = False
    same: bool = False
    judged: bool = True


class Judge:
    """The judge of one test's cells while they are measured and after."""

    def __init__(
        self,
        spec: Spec,
        policy: Policy,
        all_compared: Mapping[str, ComparedWith],
        at_most: int,
        fixed: int | None = None,
    ) -> None:
        """`at_most` limits the rounds of comparisons; contracts may use PAIRED_ROUNDS. `fixed` overrides both."""
        self.spec = spec
        self.policy = policy
        self.all_compared = all_compared
        self.at_most = fixed or at_most
        self.rounds = fixed or (PAIRED_ROUNDS if spec.requirements else at_most)
        self.conditions: tuple[Conditions | None, ...] = ()
        """Those of this run, and of the recordings if they are known."""
        self.contracts = ContractJudge(spec, policy.alpha, policy.beta, self.rounds)

    # -- while measuring ---------------------------------------------------------------------------------------

    def first(self, cells: Sequence[Cell]) -> dict[str, frozenset[Need]]:
        """Node id -> the kinds of launches of the first round: those that may gate, and the time in any case.

        All kinds for a cell that is compared with nothing, in a test without contracts.
        """
        found: dict[str, set[Need]] = {cell.nodeid: {"time", *self._alone_or_gating(cell.nodeid)} for cell in cells}
        for cell in cells:
            for contract in self.contracts.contracts:
                for other in contracts.involved(contract, cell, cells):
                    found[other.nodeid] |= contracts.metrics_needed(contract)
        return {nodeid: frozenset(kinds) for nodeid, kinds in found.items()}

    def _alone_or_gating(self, nodeid: str) -> frozenset[Need]:
        compared_with = self.all_compared[nodeid]
        if compared_with.basis:
            gating = self.policy.metrics if compared_with.judged else ()
            return frozenset[Need]().union(*(self._kinds(metric, compared_with) for metric in gating))
        return frozenset() if self.contracts.contracts else EVERYTHING

    def _kinds(self, metric: str, compared_with: ComparedWith) -> frozenset[Need]:
        """The kinds of launches that a metric is compared by; beside stored memory its growth is shown."""
        row = metrics.row(metric)
        if compared_with.basis == "paired":
            return row.needs
        if row.need == "memory":
            return row.needs | {"growth"}
        of_control = compared_with.basis == "stored" and row.unit == "time"
        return row.needs | {"control"} if of_control else row.needs

    def least_rounds(self) -> int:
        """The fewest rounds that can decide at the noise that is expected of each metric; 0 if nothing is judged."""
        bases = {each.basis for each in self.all_compared.values() if each.judged and each.basis}
        screened = prediction.LEAST_LAUNCHES if bases - {"paired"} else 0
        paired = max(map(self._least_pairs, self.policy.metrics), default=0) if "paired" in bases else 0
        return max(screened, paired, self.contracts.least_rounds())

    def _least_pairs(self, metric: str) -> int:
        effect = self._limits(metric, "paired").effect
        levels = self.policy.alpha, self.policy.beta, self.at_most
        return power.least_pairs(metrics.row(metric).spread, effect, *levels)

    def needs(self, samples: Iterable[Sample]) -> dict[str, frozenset[Need]]:
        """Node id -> the kinds of launches that a cell still needs, also for the verdicts of other cells."""
        samples = TestSamples(samples)
        needs: dict[str, set[Need]] = {sample.cell.nodeid: set() for sample in samples}
        for sample in samples:
            if not sample.failed:
                for nodeid, kinds in self._needs_of(sample, samples).items():
                    needs.setdefault(nodeid, set()).update(kinds)
        return {nodeid: frozenset(kinds) for nodeid, kinds in needs.items()}

    def _needs_of(self, sample: Sample, samples: TestSamples) -> dict[str, frozenset[Need]]:
        own = sample.cell.nodeid
        found: dict[str, set[Need]] = {own: set()}
        compared_with = self.compared_with(sample)
        if not compared_with.judged:
            return {}
        if len(sample.launches) < LEAST_ROUNDS and not (self._compared(sample) or self.contracts.contracts):
            found[own] |= EVERYTHING if sample.reference is None else IN_PAIRS
        if sample.reference is not None and self._compared(sample) and len(sample.launches) < HOPELESS_ROUNDS:
            unseen = set(self.policy.metrics) - self._numbers(sample, samples, compared_with).keys()
            found[own].update(*(self._kinds(each, compared_with) for each in unseen - {Metric.SCALING, Metric.TAIL}))
        judged = self._of_metrics(sample, samples, final=False)
        # A cell that has regressed fails, whatever its other metrics are.
        failed = any(verdict.decision is Decision.REGRESSED for verdict in decide.explained(judged))
        for verdict in () if failed else judged:
            if verdict.decision is Decision.INCONCLUSIVE and self._hopeful(verdict, sample, self.at_most):
                found[own] |= self._kinds(verdict.metric, compared_with)
                partners: dict[str, list[str]] = {
                    Metric.SCALING: [one.nodeid] if (one := single_cell(sample.cell, samples.cells)) else [],
                    Metric.RATIO: [compared_with.executor_nodeid],
                }
                found.update({other: {"time"} for other in partners.get(verdict.metric, []) if other != own})
        for contract, verdict in self.contracts.verdicts(sample, samples, final=False):
            if verdict.decision is Decision.INCONCLUSIVE and self._hopeful(verdict, sample, self.rounds):
                for other in contracts.involved(contract, sample.cell, samples.cells):
                    found.setdefault(other.nodeid, set()).update(contracts.metrics_needed(contract))
        return {nodeid: frozenset(kinds) for nodeid, kinds in found.items()}

    def _hopeful(self, verdict: MetricVerdict, sample: Sample, at_most: int) -> bool:
        rounds = max(len(sample.launches), len(sample.of("memory")))
        return rounds < at_most and verdict.more != 0 and (bool(verdict.launches) or rounds < HOPELESS_ROUNDS)

    def _compared(self, sample: Sample) -> bool:
        if sample.reference is not None:
            return not sample.reference.failed
        return self.compared_with(sample).entry is not None

    # -- verdicts ----------------------------------------------------------------------------------------------

    def compared_with(self, sample: Sample) -> ComparedWith:
        """What a cell is compared with; nothing if its stored cell measured something else."""
        found = self.all_compared[sample.cell.nodeid]
        mismatch = recording.mismatch(found.entry, sample) if found.entry is not None else ""
        return ComparedWith(why=mismatch) if mismatch else found

    def metrics(self, sample: Sample, samples: TestSamples, *, final: bool) -> list[MetricVerdict]:
        """The verdicts on the gating metrics and on the contracts; `samples` are those of the whole test."""
        judged = self._of_metrics(sample, samples, final=final)
        return judged + [verdict for _, verdict in self.contracts.verdicts(sample, samples, final=final)]

    def verdict(self, sample: Sample, samples: TestSamples, shown: Figures) -> Verdict:
        """The verdict on a cell on its current basis; `shown` are its figures, with the overhead of the probes."""
        if sample.unsupported is not None:
            return Verdict(decision=Decision.UNSUPPORTED, reason=sample.unsupported)
        if sample.error is not None:
            found = self.all_compared[sample.cell.nodeid]
            return Verdict(
                decision=Decision.ERROR,
                reason=sample.error.reason,
                baseline=found.baseline,
                commit=found.commit,
                basis=found.basis,
            )
        compared_with = self.compared_with(sample)
        if not sample.launches:
            return self._without_rounds(sample, compared_with)
        judged = self._of_metrics(sample, samples, final=True, shown=shown)
        held = [verdict for _, verdict in self.contracts.verdicts(sample, samples, final=True)]
        if compared_with.same and not held:
            baseline, commit = compared_with.baseline, compared_with.commit
            return Verdict(decision=Decision.UNCHANGED, reason=compared_with.why, baseline=baseline, commit=commit)
        if not (judged or held):
            return Verdict(decision=Decision.NO_BASELINE, reason=_why_none(sample, compared_with))
        return decide.judge(
            [*judged, *held],
            baseline=compared_with.baseline,
            commit=compared_with.commit,
            basis=compared_with.basis if judged else "",
            why=_joined(compared_with.why, self._unseen(sample)) if judged else _why_none(sample, compared_with),
        )

    def _without_rounds(self, sample: Sample, compared_with: ComparedWith) -> Verdict:
        """An error where something was to be judged and its first round was begun: code that takes all the time by
        itself would pass otherwise."""
        gated = bool(compared_with.basis) or bool(self.contracts.contracts)
        before = "the end of its first round" if sample.begun else "its turn came"
        return Verdict(
            decision=Decision.ERROR if gated and sample.begun else Decision.NOT_MEASURED,
            reason=f"the time ended before {before}: increase --ftgate-test-time or --ftgate-time",
            baseline=compared_with.baseline,
            commit=compared_with.commit,
            basis=compared_with.basis,
            why=compared_with.why,
        )

    def _unseen(self, sample: Sample) -> str:
        """A note if a tail is stored and was not judged; else empty."""
        entry = self.compared_with(sample).entry
        if entry is None or Metric.TAIL not in self.policy.metrics or not sample.launches:
            return ""
        tails = recorded.with_stored(sample, entry, [Metric.TAIL]).get(Metric.TAIL)
        if tails is None or tails.new:
            return ""
        least = metrics.LEAST_TAIL_ITERATIONS
        return f"the tail was not judged: the budget allows fewer than {least} iterations per launch"

    def settled(
        self, sample: Sample, samples: TestSamples, screened: Verdict, together: Verdict | None, why: str
    ) -> Verdict:
        """The verdict after a miss: by the paired launches (`together`) if they could fail a metric, else predicted.

        `why` says why none were measured. Contracts, and metrics that passed and were not measured again, keep their
        verdict of the screening.
        """
        compared_with = self.compared_with(sample)
        numbers = self._numbers(sample, samples, compared_with)
        paired = {each.metric: each for each in together.metrics} if together else {}
        judged = [self._settled(each, paired, numbers, sample) for each in screened.metrics]
        known = {_paired_metric(each.metric) for each in screened.metrics}
        judged += [each for metric, each in paired.items() if metric not in known]
        if together is not None and any(each in judged for each in paired.values()):
            return decide.again(together, judged)
        basis: Basis = "predicted" if compared_with.basis == "stored" else compared_with.basis
        return decide.judge(judged, baseline=screened.baseline, commit=screened.commit, basis=basis, why=why)

    def _settled(
        self,
        screened: MetricVerdict,
        paired: Mapping[str, MetricVerdict],
        numbers: Mapping[str, Numbers],
        sample: Sample,
    ) -> MetricVerdict:
        own = None if screened.contract else paired.get(_paired_metric(screened.metric))
        if own is not None and _could_fail(own):
            return own
        if not missed(screened):
            return screened
        if screened.metric not in numbers:
            return own or screened
        predicted = self._predicted(screened, numbers[screened.metric], sample)
        return own if own is not None and predicted.decision is Decision.INCONCLUSIVE else predicted

    def _predicted(self, screened: MetricVerdict, numbers: Numbers, sample: Sample) -> MetricVerdict:
        if not numbers.new:
            return screened
        predicted = self._judged(screened.metric, numbers, "predicted", sample, True)
        if self.compared_with(sample).elsewhere and (predicted.decision.fails or predicted.beyond):
            reason = f"{predicted.reason}; what another machine recorded fails nothing without a pair of launches here"
            return msgspec.structs.replace(predicted, decision=Decision.INCONCLUSIVE, beyond=False, reason=reason)
        return predicted

    def _moved(self, cell: Cell) -> float:
        return math.hypot(*(disturbance.deviation(each, cell.workers) for each in self.conditions))

    # -- metrics -----------------------------------------------------------------------------------------------

    def _of_metrics(
        self, sample: Sample, samples: TestSamples, *, final: bool, shown: Figures | None = None
    ) -> list[MetricVerdict]:
        compared_with = self.compared_with(sample)
        numbers = self._numbers(sample, samples, compared_with)
        costs: dict[Need, Interval | None] = {}
        if shown is not None:
            costs = {"memory": shown.memory_cost, "locks": shown.lock_cost}
        found = []
        # Against another machine's baseline, the ratio to the reference executor is judged in place of the time.
        ratio = (Metric.RATIO,) if Metric.WALL in self.policy.metrics else ()
        for metric in (*self.policy.metrics, *ratio):
            need = metrics.row(metric).need
            if need == "locks" and sample.no_locks and sample.launches and self._compared(sample):
                found.append(decide.without_figures(metric, sample.no_locks))
            elif metric in numbers and (numbers[metric].new or metrics.row(metric).absent):
                refused = decide.refused(metric, costs.get(need), self.policy.probe_cost)
                judged = refused and self._with_figures(refused, sample)
                found.append(judged or self._judged(metric, numbers[metric], compared_with.basis, sample, final))
        if final and self._untimed(sample, compared_with, numbers):
            found.append(decide.without_stored(Metric.WALL, len(sample.launches), sample.cell.nodeid))
        if sample.reference is not None and sample.reference.failed:  # keeps what was decided before it failed
            return [each for each in found if each.launches and each.decision is not Decision.INCONCLUSIVE]
        return found

    def _untimed(self, sample: Sample, compared_with: ComparedWith, numbers: Mapping[str, Numbers]) -> bool:
        """Whether the time gates, and the baseline holds none: the cell cannot pass by its other metrics."""
        here = sample.reference is None and compared_with.basis == "stored"
        return here and Metric.WALL in self.policy.metrics and Metric.WALL not in numbers

    def _numbers(self, sample: Sample, samples: TestSamples, compared_with: ComparedWith) -> dict[str, Numbers]:
        names = self.policy.metrics
        if sample.reference is not None:
            return compare.paired(sample, names)
        if compared_with.entry is None or not sample.launches:
            return {}
        entry = compared_with.entry
        if compared_with.basis == "stored":
            return recorded.with_stored(sample, entry, names)
        executor = next((each for each in samples if each.cell.nodeid == compared_with.executor_nodeid), None)
        return recorded.portable(sample, entry, executor=executor, stored_executor=compared_with.executor, names=names)

    def _judged(self, metric: str, numbers: Numbers, basis: Basis, sample: Sample, final: bool) -> MetricVerdict:
        if not numbers.new:
            reason = f"the reference has figures and this run has none: {metrics.row(metric).absent}"
            return MetricVerdict(metric=metric, decision=Decision.INCONCLUSIVE, reason=reason)
        comparison = self._comparison(metric, numbers, basis, sample, final)
        if numbers.recordings:
            decided = prediction.predict(comparison, numbers.recordings, self._moved(sample.cell))
        else:
            decided = decide.compare(comparison)
        return self._with_figures(decided, sample) if final else decided

    def _with_figures(self, judged: MetricVerdict, sample: Sample) -> MetricVerdict:
        """The verdict with the figure of each side."""
        entry = self.compared_with(sample).entry
        others = [sample.reference] if sample.reference is not None else entry.recordings if entry else ()
        now = recorded.figure_of(judged.metric, [sample], others)
        return msgspec.structs.replace(judged, now=now, was=recorded.figure_of(judged.metric, others, [sample]))

    def _comparison(self, metric: str, numbers: Numbers, basis: Basis, sample: Sample, final: bool) -> Comparison:
        limits = self._limits(metric, basis)
        return Comparison(
            metric=metric,
            new=numbers.new,
            reference=numbers.reference,
            unit=numbers.unit,
            margin=limits.margin,
            effect=limits.effect,
            floor=limits.floor * _unit_in(numbers.unit, sample),
            errors=numbers.errors,
            stored=bool(numbers.recordings),
            alpha=self.policy.alpha,
            beta=self.policy.beta,
            at_most=self.at_most,
            final=final,
            pair_s=_round_s(sample),
            wall_growth=numbers.wall_growth,
        )

    def _limits(self, metric: str, basis: Basis) -> thresholds.Effective:
        return thresholds.effective(
            metric, basis, cli=self.policy.cli, declared=self.spec.thresholds, ini=self.policy.ini
        )


def _round_s(sample: Sample) -> float:
    """What a round took so far, in seconds; 0 if that is not known."""
    began_s = recording.seconds_after([launch.started_at for launch in sample.launches])
    return began_s[-1] / (len(began_s) - 1) if len(began_s) > 1 else 0.0


def _why_none(sample: Sample, compared_with: ComparedWith) -> str:
    reference = sample.reference
    if reference is None:
        return compared_with.why
    if reference.unsupported is not None:
        return f"the reference cannot run it: {reference.unsupported}"
    if reference.error is not None:
        return f"the reference fails: {reference.error.reason}"
    return compared_with.why or "the reference has no figures to compare"


def _could_fail(own: MetricVerdict) -> bool:
    """Whether alpha may have been spent on it: a second test would double the false alarms."""
    open_ones = (Decision.INCONCLUSIVE, Decision.SUSPECT)
    return own.decision not in open_ones or own.launches >= alpha_spending.LOOKS[0]


def doubted(verdict: Verdict, paired: str, alone: str, crowded: str) -> Verdict:
    """The verdict in which what the machine may have caused is in doubt.

    A paired regression becomes suspect for the reason `paired`: both sides met the same machine, so it may explain
    noise, hardly a change. A broken contract becomes inconclusive: one about a cell's own time for the reason `alone`,
    one between cells for the reason `crowded`, that others took cores, of which those cells may need different numbers.
    Memory does not depend on what else runs, and a prediction knows the machine by the deviation that it adds.
    """
    compared = paired if verdict.basis == "paired" else ""
    judged = []
    for each in verdict.metrics:
        if each.contract:
            contract = contract_grammar.parse(each.contract)
            names = () if contract.is_gil else contract_grammar.all_names(contract)
            timed = any(metrics.row(name.metric).unit != "size" for name in names)
            reason = alone if contracts.absolute(contract) else crowded if timed else ""
        else:
            reason = compared if metrics.row(each.metric).unit != "size" else ""
        judged.append(_doubted(each, reason))
    if judged == list(verdict.metrics):
        return verdict
    return decide.again(verdict, judged)


def unchanged(verdict: Verdict, why: str) -> Verdict:
    """The verdict if the code is that of the baseline, for the reason `why`: what misses it is no change of the code.

    An update may record it: the spread between recordings of the same code is what a prediction is based on.
    """
    reason = f"{why}, so the machine or the installed packages have changed"
    missing = (Decision.REGRESSED, Decision.SUSPECT, Decision.INCONCLUSIVE)
    metrics = [
        msgspec.structs.replace(
            each, decision=Decision.UNCHANGED, reason="; ".join(filter(None, (each.reason, reason)))
        )
        if each.decision in missing and not each.contract
        else each
        for each in verdict.metrics
    ]
    return msgspec.structs.replace(decide.again(verdict, metrics), same_code=True)


def _doubted(judged: MetricVerdict, reason: str) -> MetricVerdict:
    if not reason or judged.decision not in (Decision.REGRESSED, Decision.SUSPECT, Decision.BROKEN):
        return judged
    decision = Decision.INCONCLUSIVE if judged.contract else Decision.SUSPECT
    doubt = _joined(judged.reason, f"in doubt: {reason}")
    return msgspec.structs.replace(judged, decision=decision, reason=doubt, ruled_out=None)


def _paired_metric(metric: str) -> str:
    """The metric that decides on paired launches: they compare times directly, without the reference executor."""
    return Metric.WALL if metric == Metric.RATIO else metric


def missed(verdict: MetricVerdict) -> bool:
    """Whether a metric missed its baseline, so that its reference should be measured; a contract has no reference."""
    if verdict.metric == Metric.CONTRACT or not verdict.launches:
        return False
    return verdict.decision in (Decision.REGRESSED, Decision.SUSPECT, Decision.INCONCLUSIVE)


def excess(verdict: Verdict) -> float:
    """How far the metric that missed by most lies beyond its limit: as the log of a ratio, of a share in points."""
    return max((_excess(each) for each in verdict.metrics if missed(each)), default=-math.inf)


def _excess(judged: MetricVerdict) -> float:
    if judged.points is not None:
        return judged.points.value - (judged.allowed or 0.0)
    if judged.ratio is None:
        return -math.inf
    beyond = math.log(judged.ratio.value / (judged.allowed or 1.0))
    return -beyond if metrics.is_gain(judged.metric) else beyond


def hypotheses(spec: Spec, names: Sequence[str], cell: Cell, cells: Sequence[Cell], compared: bool) -> int:
    """The number of hypothesis tests that may raise a false alarm on one cell; `cells` are those of its test."""
    scales = cell.workers > 1 and 1 in spec.workers and cell.counted
    absent: dict[str, bool] = {
        Metric.SCALING: not scales,
        Metric.TAIL: spec.window_s is not None
        and (spec.duration_s or 0.0) / spec.window_s < metrics.LEAST_TAIL_ITERATIONS,
    }
    gating = [name for name in names if not absent.get(name) and metrics.row(name).applies(cell)]
    judged = (contract_grammar.parse(each.text) for each in spec.requirements)
    held = [each for each in judged if not each.is_gil and contracts.concerns(each, cell, cells)]
    return (len(gating) if compared else 0) + len(held)


def _unit_in(unit: str, sample: Sample) -> float:
    """The factor from a floor to the unit of the values: floors of times are in seconds."""
    if unit == "ns":
        return NS_PER_S
    if unit == recorded.OF_CONTROL:
        control_ns = readers.median_of(recorded.value_of(sample, recorded.CONTROL).values())
        return NS_PER_S / control_ns if control_ns else 0.0
    return 1.0


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
