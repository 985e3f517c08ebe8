"""The judge of a test: the basis of each cell's verdict, the launches that a decision still needs, and the verdict.

Stored launches only screen: a cell that clearly meets them passes at once, a miss is not a verdict yet. An interleaved
reference decides. Where there is none, a prediction from the stored recordings decides, with less power.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ..kit.text import COMMIT_DIGITS
from ..kit.values import Metric, Struct, Threshold
from ..model.report import Conditions, Row
from ..model.sample import EVERYTHING, IN_PAIRS, NS_PER_S, Need, Sample, one_worker_cell
from ..model.spec import Cell, Spec
from ..model.verdict import CANNOT_RUN, Basis, BasisKind, Comparison, Decision, Limits, MetricVerdict, Verdict
from ..stats import alpha_spending
from ..store import recording, schema
from . import compare, contract_grammar, contract_judge, contracts, decide, limits, metrics, prediction
from .values import CONTROL, TestValues, Values, figure_of

PAIRED_ROUNDS = alpha_spending.LOOKS[-1]
SCREEN_LAUNCHES = prediction.MOST_LAUNCHES
LEAST_ROUNDS = 5
"""Rounds of a cell without a comparison: enough for intervals of its figures."""
HOPELESS_ROUNDS = 3
"""After this many rounds without a value of a metric, no value is expected."""
_MISSES = (Decision.REGRESSED, Decision.SUSPECT, Decision.INCONCLUSIVE)


class Policy(Struct, frozen=True, kw_only=True):
    """The options that concern verdicts; `alpha` and `beta` are the error rates of each hypothesis."""

    metrics: tuple[str, ...]
    cli: tuple[Threshold, ...]
    ini: tuple[Threshold, ...]
    alpha: float
    beta: float
    probe_cost: float


class ComparedWith(Basis, frozen=True, kw_only=True):
    """The basis of a cell's verdict before it is judged: nothing, its stored recordings, or its reference."""

    entry: schema.StoredCell | None = None
    """The stored cell of this machine (basis `stored`) or of another (`portable`)."""
    executor: schema.StoredCell | None = None
    """Of a portable basis: what is stored of the reference executor's cell."""
    executor_nodeid: str = ""
    file: str = ""
    """Where the entry is stored."""
    elsewhere: bool = False
    """Another machine or build recorded it: it fails nothing by itself."""
    recorded: bool = False
    """Its reference is the commit of a recording."""
    same: bool = False
    """The cell is the same as its reference, and compared with nothing."""
    judged: bool = True
    """Without it, the cell is measured for another cell's scaling alone."""


class Reading(NamedTuple):
    """What is judged of a cell: its values, what they are compared with, and both sides by metric, without limits."""

    values: Values
    basis: ComparedWith
    comparisons: Mapping[str, Comparison]

    @property
    def compared(self) -> bool:
        """Whether there is a reference or a recording to compare with."""
        reference = self.values.sample.reference
        return self.basis.entry is not None if reference is None else not reference.failed


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
        self.rounds = fixed or (PAIRED_ROUNDS if spec.contracts else at_most)
        self.conditions: tuple[Conditions | None, ...] = ()
        """Those of this run, and of the recordings if they are known."""
        self.contracts = [contract_grammar.parse(each.text) for each in spec.contracts]
        self._so_far: dict[str, tuple[Reading, list[MetricVerdict]]] = {}
        """By node id: what was judged after the last round."""

    # -- while measuring ---------------------------------------------------------------------------------------

    def first(self, cells: Sequence[Cell]) -> dict[str, frozenset[Need]]:
        """Node id -> the kinds of launches of the first round: those that may gate, and the time in any case.

        All kinds for a cell that is compared with nothing, in a test without contracts.
        """
        found: dict[str, set[Need]] = {cell.nodeid: {"time"} for cell in cells}
        for cell in cells:
            basis = self.all_compared[cell.nodeid]
            if basis.basis:
                gating = self.policy.metrics if basis.judged else ()
                found[cell.nodeid].update(*(self._kinds(metric, basis) for metric in gating))
            elif not self.contracts:
                found[cell.nodeid] |= EVERYTHING
            for contract in self.contracts:
                for other in contracts.involved(contract, cell, cells):
                    found[other.nodeid] |= contracts.metrics_needed(contract)
        return {nodeid: frozenset(kinds) for nodeid, kinds in found.items()}

    def observers(self, cell: Cell) -> tuple[str, ...]:
        """What observes a cell for the metrics that are asked for."""
        named = {name.metric for contract in self.contracts for name in contract_grammar.all_names(contract)}
        rows = (metrics.row(name) for name in (*self.policy.metrics, *sorted(named - {"gil"})))
        return tuple(dict.fromkeys(row.observer for row in rows if row.observer and row.applies(cell)))

    def _kinds(self, metric: str, basis: Basis) -> frozenset[Need]:
        """The kinds of launches that a metric is compared by; beside stored memory its growth is shown."""
        row = metrics.row(metric)
        if basis.basis == "paired":
            return row.needs
        if row.need == "memory":
            return row.needs | {"growth"}
        return row.needs | {"control"} if basis.basis == "stored" and row.unit == "time" else row.needs

    def least_rounds(self) -> int:
        """The fewest rounds that can decide at the noise that is expected of each metric; 0 if nothing is judged."""
        bases = {each.basis for each in self.all_compared.values() if each.judged and each.basis}
        levels = (self.policy.alpha, self.policy.beta)
        least = [contract_judge.least_rounds(self.contracts, *levels, self.rounds)]
        if bases - {"paired"}:
            least.append(prediction.LEAST_LAUNCHES)
        for metric in self.policy.metrics if "paired" in bases else ():
            effect = self._limits(metric, "paired").effect
            least.append(decide.least_pairs(metrics.row(metric).spread, effect, *levels, self.at_most))
        return max(least)

    def needs(self, samples: Iterable[Sample]) -> dict[str, frozenset[Need]]:
        """Node id -> the kinds of launches that a cell still needs after a round, also for the verdicts of others."""
        test = TestValues(samples)
        needs = defaultdict[str, set[Need]](set, {cell.nodeid: set() for cell in test.cells})
        self._so_far = {}
        for values in test:
            if values.sample.failed:
                continue
            reading = self._reading(values)
            if not reading.basis.judged:
                continue
            judged = self._rows(reading, final=False)
            self._so_far[values.cell.nodeid] = reading, judged
            own, sample, rounds = needs[values.cell.nodeid], values.sample, values.rounds
            # 1. Figures, where nothing is compared; values that have not come yet.
            if rounds < LEAST_ROUNDS and not (reading.compared or self.contracts):
                own |= EVERYTHING if sample.reference is None else IN_PAIRS
            if sample.reference is not None and reading.compared and rounds < HOPELESS_ROUNDS:
                for metric in set(self.policy.metrics) - reading.comparisons.keys() - {Metric.SCALING, Metric.TAIL}:
                    own |= self._kinds(metric, reading.basis)
            # 2. What is open and may be decided by more launches: contracts, and metrics unless one has regressed,
            # which fails the cell whatever the others are.
            failed = any(each.decision is Decision.REGRESSED for each in decide.explained(judged))
            rounds = max(rounds, len(sample.of("memory")))
            for each in judged:
                at_most = self.rounds if each.contract else self.at_most
                hopeful = each.decision is Decision.INCONCLUSIVE and each.more != 0 and rounds < at_most
                if not hopeful or not (each.launches or rounds < HOPELESS_ROUNDS):
                    continue
                if each.contract:
                    contract = contract_grammar.parse(each.contract)
                    for other in contracts.involved(contract, values.cell, test.cells):
                        needs[other.nodeid] |= contracts.metrics_needed(contract)
                elif not failed:
                    own |= self._kinds(each.metric, reading.basis)
                    if each.metric == Metric.SCALING and (one := one_worker_cell(values.cell, test.cells)):
                        needs[one.nodeid].add("time")
                    if each.metric == Metric.RATIO:
                        needs[reading.basis.executor_nodeid].add("time")
        return {nodeid: frozenset(kinds) for nodeid, kinds in needs.items()}

    # -- verdicts ----------------------------------------------------------------------------------------------

    def compared_with(self, values: Values) -> ComparedWith:
        """What a cell is compared with; nothing if its stored cell measured something else."""
        found = self.all_compared[values.cell.nodeid]
        mismatch = recording.mismatch(found.entry, values.sample) if found.entry is not None else ""
        return ComparedWith(why=mismatch) if mismatch else found

    def judged(self, values: Values, *, final: bool) -> list[MetricVerdict]:
        """The verdicts on metrics and contracts; with `final` no more launches will come."""
        return self._rows(self._reading(values), final=final)

    def so_far(self, cell: Cell) -> Row:
        """A cell that needs no more launches, as it was judged after the last round."""
        reading, judged = self._so_far[cell.nodeid]
        known = [self._refused(each.metric, reading) or each for each in judged]
        return Row(cell=cell, verdict=decide.judge(known, reading.basis), sample=reading.values.sample)

    def verdict(self, values: Values) -> Verdict:
        """The verdict on a cell on its current basis, by the launches that there are."""
        sample = values.sample
        if sample.unsupported is not None:
            return Verdict(decision=Decision.UNSUPPORTED, reason=sample.unsupported)
        if sample.error is not None:
            known = self.all_compared[values.cell.nodeid]
            return replace(known, why="").verdict(Decision.ERROR, sample.error.reason)
        reading = self._reading(values)
        basis = reading.basis
        if not sample.launches:
            # Where it was to be judged, code that takes all the time by itself would pass otherwise.
            failed = sample.begun and (basis.basis or self.contracts)
            before = "the end of its first round" if sample.begun else "its turn came"
            reason = f"the time ended before {before}: increase --ftgate-test-time or --ftgate-time"
            return basis.verdict(Decision.ERROR if failed else Decision.NOT_MEASURED, reason)
        found = self._rows(reading, final=True)
        if basis.same and not found:
            return replace(basis, why="").verdict(Decision.UNCHANGED, basis.why)
        if not found:
            return Verdict(decision=Decision.NO_BASELINE, reason=_why_none(values, basis))
        if all(each.contract for each in found):
            return decide.judge(found, replace(basis, basis="", why=_why_none(values, basis)))
        # A tail that is stored and was not judged.
        if basis.entry is not None and Metric.TAIL in self.policy.metrics:
            tails = compare.with_stored(values, basis.entry, [Metric.TAIL]).get(Metric.TAIL)
            if tails is not None and not tails.new:
                few = f"the budget allows fewer than {metrics.LEAST_TAIL_ITERATIONS} iterations per launch"
                basis = replace(basis, why=_joined(basis.why, f"the tail was not judged: {few}"))
        return decide.judge(found, basis)

    def settled(self, values: Values, screened: Verdict, together: Verdict | None, why: str) -> Verdict:
        """The verdict after a miss: by the paired launches (`together`) if they could fail a metric, else predicted.

        `why` says why none were measured. Contracts, and metrics that passed and were not measured again, keep their
        verdict of the screening.
        """
        reading = self._reading(values)
        paired = {each.metric: each for each in together.metrics} if together else {}
        judged, open_ones = [], (Decision.INCONCLUSIVE, Decision.SUSPECT)
        for each in screened.metrics:
            own = None if each.contract else paired.get(_paired_metric(each.metric))
            # Where alpha may have been spent on it, a second test would double the false alarms.
            spent = own is not None and (own.decision not in open_ones or own.launches >= alpha_spending.LOOKS[0])
            judged.append(own if own is not None and spent else self._without_pairs(each, own, reading))
        known = {_paired_metric(each.metric) for each in screened.metrics}
        judged += [each for metric, each in paired.items() if metric not in known]
        if together is not None and any(each in judged for each in paired.values()):
            return decide.again(together, judged)
        kind: BasisKind = "predicted" if reading.basis.basis == "stored" else reading.basis.basis
        return decide.judge(judged, Basis(basis=kind, why=why, baseline=screened.baseline, commit=screened.commit))

    def _without_pairs(self, screened: MetricVerdict, own: MetricVerdict | None, reading: Reading) -> MetricVerdict:
        """What becomes of a metric whose paired launches, if there are any (`own`), could not fail it: a prediction."""
        if not missed(screened):
            return screened
        comparison = reading.comparisons.get(screened.metric)
        if comparison is None or not comparison.new:
            return own or screened
        predicted = _with_figures(self._judged(screened.metric, reading, "predicted", final=True), reading)
        if reading.basis.elsewhere and (predicted.decision.fails or predicted.beyond):
            reason = f"{predicted.reason}; what another machine recorded fails nothing without a pair of launches here"
            predicted = replace(predicted, decision=Decision.INCONCLUSIVE, beyond=False, reason=reason)
        return own if own is not None and predicted.decision is Decision.INCONCLUSIVE else predicted

    # -- metrics -----------------------------------------------------------------------------------------------

    def _reading(self, values: Values) -> Reading:
        basis, names = self.compared_with(values), self.policy.metrics
        entry, found = basis.entry, dict[str, Comparison]()
        if values.sample.reference is not None:
            found = compare.paired(values, {*names, Metric.CPU} if Metric.WALL in names else names)
        elif entry is not None and values.rounds and basis.basis == "stored":
            found = compare.with_stored(values, entry, names)
        elif entry is not None and values.rounds:
            executor = next((each for each in values.test if each.cell.nodeid == basis.executor_nodeid), None)
            found = compare.portable(values, entry, executor=executor, stored_executor=basis.executor, names=names)
        return Reading(values, basis, found)

    def _rows(self, reading: Reading, *, final: bool) -> list[MetricVerdict]:
        (values, basis, comparisons), sample = reading, reading.values.sample
        found = []
        # 1. Against another machine's baseline, the ratio to the reference executor is judged in place of the time.
        ratio = (Metric.RATIO,) if Metric.WALL in self.policy.metrics else ()
        for metric in (*self.policy.metrics, *ratio):
            row = metrics.row(metric)
            if row.need == "locks" and sample.no_locks and sample.launches and reading.compared:
                found.append(decide.without_figures(metric, sample.no_locks))
            elif metric in comparisons and (comparisons[metric].new or row.absent):
                judged = self._refused(metric, reading) if final else None
                judged = judged or self._judged(metric, reading, basis.basis, final=final)
                found.append(_with_figures(judged, reading) if final else judged)
        # 2. The time gates, and the baseline holds none: the cell cannot pass by its other metrics.
        by_stored = final and sample.reference is None and basis.basis == "stored"
        if by_stored and Metric.WALL in self.policy.metrics and Metric.WALL not in comparisons:
            why = "nothing is stored of it, so no change of it can be seen: record it again with "
            none = decide.without_figures(Metric.WALL, f"{why}--ftgate-update='{values.cell.nodeid}'")
            found.append(replace(none, launches=values.rounds))
        if sample.reference is not None and sample.reference.failed:  # keeps what was decided before it failed
            found = [each for each in found if each.launches and each.decision is not Decision.INCONCLUSIVE]
        # 3. Contracts.
        levels = self.policy.alpha, self.policy.beta, self.rounds
        held = (each for each in self.contracts if contracts.concerns(each, values.cell, values.test.cells))
        return found + [contract_judge.judged(each, values, *levels, final=final) for each in held]

    def _refused(self, metric: str, reading: Reading) -> MetricVerdict | None:
        """The verdict on a metric whose probe slowed the workload too much; None if it did not."""
        need, cost = metrics.row(metric).need, None
        if need in ("locks", "memory"):
            cost = reading.values.lock_cost if need == "locks" else reading.values.memory_cost
        return decide.refused(metric, cost, self.policy.probe_cost)

    def _judged(self, metric: str, reading: Reading, kind: BasisKind, *, final: bool) -> MetricVerdict:
        values, allowed = reading.values, self._limits(metric, kind)
        if not reading.comparisons[metric].new:
            reason = f"the reference has figures and this run has none: {metrics.row(metric).absent}"
            return MetricVerdict(metric=metric, decision=Decision.INCONCLUSIVE, reason=reason)
        comparison = self._limited(metric, reading, allowed, final=final)
        if comparison.stored:
            moved = math.hypot(*(decide.deviation(each, values.cell.workers) for each in self.conditions))
            return prediction.predict(comparison, moved)
        judged = decide.compare(comparison)
        if metric != Metric.WALL or Metric.CPU not in reading.comparisons:
            return judged
        spent = self._limited(Metric.CPU, reading, allowed._replace(floor=0.0), final=final)
        sides = (side for side in (values, values.reference) if side is not None)
        return decide.by_cpu(judged, comparison, spent, min(side.computing for side in sides))

    def _limited(self, metric: str, reading: Reading, allowed: Limits, *, final: bool) -> Comparison:
        """The values of both sides with the limits and the error rates that hold for them."""
        values, found, scale = reading.values, reading.comparisons[metric], 1.0
        if found.unit == "ns":  # floors of times are in seconds
            scale = NS_PER_S
        elif found.unit == compare.OF_CONTROL:
            control_ns = values.middle(CONTROL)
            scale = NS_PER_S / control_ns if control_ns else 0.0
        return replace(
            found,
            limits=allowed._replace(floor=allowed.floor * scale),
            alpha=self.policy.alpha,
            beta=self.policy.beta,
            at_most=self.at_most,
            final=final,
            pair_s=values.round_s,
        )

    def _limits(self, metric: str, kind: BasisKind) -> Limits:
        return limits.effective(metric, kind, cli=self.policy.cli, declared=self.spec.thresholds, ini=self.policy.ini)


def _with_figures(judged: MetricVerdict, reading: Reading) -> MetricVerdict:
    """The verdict with the figure of each side, where this one has any."""
    values, entry = reading.values, reading.basis.entry
    if not reading.comparisons[judged.metric].new:
        return judged
    others = [values.reference] if values.reference is not None else entry.recordings if entry else ()
    now = figure_of(judged.metric, [values], others)
    return replace(judged, now=now, was=figure_of(judged.metric, others, [values]))


def not_there(commit: str, why: str) -> str:
    """Why the commit of a recording cannot be measured here: a report says it in its last lines."""
    return f"recorded at {commit.removesuffix('+')[:COMMIT_DIGITS]}, {CANNOT_RUN}: {why}" if commit else why


def _why_none(values: Values, basis: Basis) -> str:
    reference = values.sample.reference
    if reference is None:
        return basis.why
    why = reference.unsupported or (reference.error.reason if reference.error else "")
    if why and isinstance(basis, ComparedWith) and basis.recorded:
        return not_there(basis.commit, why)
    if why:
        return f"the reference {'fails' if reference.error else 'cannot run it'}: {why}"
    return basis.why or "the reference has no figures to compare"


def doubted(verdict: Verdict, paired: str, alone: str, crowded: str) -> Verdict:
    """The verdict in which what the machine may have caused is in doubt.

    A paired regression becomes suspect for the reason `paired`: both sides met the same machine, so it may explain
    noise, hardly a change. A broken contract becomes inconclusive: one about a cell's own time for the reason `alone`,
    one between cells for the reason `crowded`, that others took cores, of which those cells may need different numbers.
    Memory does not depend on what else runs, and a prediction knows the machine by the deviation that it adds.
    """
    judged = []
    for each in verdict.metrics:
        if each.contract:
            contract = contract_grammar.parse(each.contract)
            names = () if contract.is_gil else contract_grammar.all_names(contract)
            timed = any(metrics.row(name.metric).unit != "size" for name in names)
            reason = alone if contracts.absolute(contract) else crowded if timed else ""
            doubt = Decision.INCONCLUSIVE
        else:
            timed = metrics.row(each.metric).unit != "size"
            reason = paired if timed and verdict.basis == "paired" else ""
            doubt = Decision.SUSPECT
        failed = each.decision in (Decision.REGRESSED, Decision.SUSPECT, Decision.BROKEN)
        why = _joined(each.reason, f"in doubt: {reason}")
        judged.append(replace(each, decision=doubt, reason=why, ruled_out=None) if failed and reason else each)
    return verdict if judged == list(verdict.metrics) else decide.again(verdict, judged)


def unchanged(verdict: Verdict, why: str) -> Verdict:
    """The verdict if the code is that of the baseline, for the reason `why`: what misses it is no change of the code.

    An update may record it: the spread between recordings of the same code is what a prediction is based on.
    """
    reason = f"{why}, so the machine or the installed packages have changed"
    judged = [
        replace(each, decision=Decision.UNCHANGED, reason=_joined(each.reason, reason))
        if each.decision in _MISSES and not each.contract
        else each
        for each in verdict.metrics
    ]
    return replace(decide.again(verdict, judged), same_code=True)


def _paired_metric(metric: str) -> str:
    """The metric that decides on paired launches: they compare times directly, without the reference executor."""
    return Metric.WALL if metric == Metric.RATIO else metric


def missed(verdict: MetricVerdict) -> bool:
    """Whether a metric missed its baseline, so that its reference should be measured; a contract has no reference."""
    return verdict.decision in _MISSES and verdict.metric != Metric.CONTRACT and bool(verdict.launches)


def excess(verdict: Verdict) -> float:
    """How far the metric that missed by most lies beyond its limit: as the log of a ratio, of a share in points."""
    found = [-math.inf]
    for each in filter(missed, verdict.metrics):
        if each.points is not None:
            found.append(each.points.value - (each.allowed or 0.0))
        elif each.ratio is not None:
            beyond = math.log(each.ratio.value / (each.allowed or 1.0))
            found.append(-beyond if metrics.is_gain(each.metric) else beyond)
    return max(found)


def hypotheses(spec: Spec, names: Sequence[str], cell: Cell, cells: Sequence[Cell], compared: bool) -> int:
    """The number of hypothesis tests that may raise a false alarm on one cell; `cells` are those of its test."""
    scales = cell.workers > 1 and 1 in spec.workers and cell.counted
    absent: dict[str, bool] = {
        Metric.SCALING: not scales,
        Metric.TAIL: spec.window_s is not None
        and (spec.duration_s or 0.0) / spec.window_s < metrics.LEAST_TAIL_ITERATIONS,
    }
    gating = [name for name in names if not absent.get(name) and metrics.row(name).applies(cell)]
    judged = (contract_grammar.parse(each.text) for each in spec.contracts)
    bearing = [each for each in judged if not each.is_gil and contracts.concerns(each, cell, cells)]
    return (len(gating) if compared else 0) + len(bearing)


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
