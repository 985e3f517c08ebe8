"""The judge of a test: the basis of each cell's verdict, the launches that a decision still needs, and the verdict.

A cell has one reference. The pairs with it decide; where none can be measured, the stored recordings, with less power.
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
from ..model.spec import Cell, Spec, can_grow
from ..model.verdict import (
    CANNOT_RUN,
    NOT_AT_HAND,
    Basis,
    BasisKind,
    Comparison,
    Decision,
    Limits,
    MetricVerdict,
    Reason,
    Verdict,
    Why,
)
from ..stats import alpha_spending
from ..store import recording, schema
from . import comparisons, contract_grammar, contract_judge, contracts, decide, limits, metrics, prediction, readers
from .values import Side, TestValues, Values, figure_of, locks_allow

PAIRED_ROUNDS = alpha_spending.LOOKS[-1]
LEAST_ROUNDS = 5
"""Rounds of a cell without a comparison: enough for intervals of its figures."""
FIGURES = 3
"""Launches that show growth, and memory where it is steady, if nothing is compared."""
ALONG_ROUNDS = 8
"""Beside a metric that has regressed others are measured for up to so many rounds, or twice as many as that took."""
FAR, NEAR_ROUNDS = 0.4, 2
"""A wall time that is worse by more, and is expected to be decided after so few more rounds, counts as regressed."""
TWICE = 2.0
"""What locks allow is beyond doubt, whatever else runs, where a contract asks for more than so many times as much."""
HOPELESS_ROUNDS = 3
"""After this many rounds without a value of a metric, no further value is expected."""


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
    """The stored cell of this machine and build."""
    recorded: bool = False
    """Its reference is the commit of a recording."""
    same: bool = False
    """The cell is the same as its reference, and compared with nothing."""


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
        fixed: int | None = None,
    ) -> None:
        """`fixed` is the number of rounds, in place of those that a decision may take."""
        self.spec = spec
        self.policy = policy
        self.all_compared = dict(all_compared)
        self.fixed = fixed
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
                gates = gating(self.policy.metrics, self.spec, cell)
                found[cell.nodeid].update(*(self._kinds(metric, basis) for metric in gates))
            elif not self.contracts:
                found[cell.nodeid] |= EVERYTHING
            for contract in self.contracts:
                for other in contracts.involved(contract, cell, cells):
                    found[other.nodeid] |= contracts.metrics_needed(contract)
        return {nodeid: frozenset(kinds) for nodeid, kinds in found.items()}

    @property
    def rounds(self) -> int:
        """The rounds that a decision of any cell may take."""
        contracts = [self.fixed or PAIRED_ROUNDS] if self.contracts else []
        return max([*contracts, *map(self._at_most, self.all_compared.values())])

    def _at_most(self, basis: Basis) -> int:
        return self.fixed or (PAIRED_ROUNDS if basis.basis == "paired" else prediction.MOST_LAUNCHES)

    def observers(self, cell: Cell) -> tuple[tuple[str, ...], bool]:
        """What observes a cell for the metrics that are asked for; compared with nothing, for its figures, too.

        And whether all of these are exact, so that an iteration of any length shows them.
        """
        named = {name.metric for contract in self.contracts for name in contract_grammar.all_names(contract)}
        rows = [metrics.row(name) for name in (*gating(self.policy.metrics, self.spec, cell), *(named - {"gil"}))]
        if not (self.contracts or self.all_compared[cell.nodeid].basis):
            rows += [row for row in metrics.TABLE.values() if row.figure]
        observed = [row for row in rows if row.observer and row.applies(cell)]
        return tuple(sorted({row.observer for row in observed})), all(row.exact for row in observed)

    def _kinds(self, metric: str, basis: Basis) -> frozenset[Need]:
        """The kinds of launches that a metric is compared by."""
        row = metrics.row(metric)
        if basis.basis == "paired":
            return row.needs
        return row.needs | {"control"} if row.unit == "time" else row.needs

    def least_rounds(self) -> int:
        """The fewest rounds that can decide at the noise that is expected of each metric; 0 if nothing is judged."""
        bases = {each.basis for each in self.all_compared.values()}
        levels = (self.policy.alpha, self.policy.beta)
        least = [contract_judge.least_rounds(self.contracts, *levels, self.rounds)]
        if "stored" in bases:
            least.append(prediction.LEAST_LAUNCHES)
        for metric in self.policy.metrics if "paired" in bases else ():
            effect = self._limits(metric, "paired").effect
            least.append(decide.least_pairs(metrics.row(metric).spread, effect, *levels, self.fixed or PAIRED_ROUNDS))
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
            judged = self._rows(reading, final=False)
            self._so_far[values.cell.nodeid] = reading, judged
            own, sample, rounds = needs[values.cell.nodeid], values.sample, values.rounds
            # 1. Figures, where nothing is compared; values that have not come yet.
            if rounds < LEAST_ROUNDS and not (reading.compared or self.contracts):
                own |= (EVERYTHING if sample.reference is None else IN_PAIRS) - self._shown(sample)
            if reading.compared and rounds < (HOPELESS_ROUNDS if sample.reference is not None else 1):
                gates = {*gating(self.policy.metrics, self.spec, values.cell)}
                gates -= {Metric.SCALING, Metric.LOCK_CEILING, Metric.TAIL}
                for metric in gates - reading.comparisons.keys():
                    own |= self._kinds(metric, reading.basis)
            # 2. What is open and may be decided by more launches: contracts, and metrics. Once one has regressed, which
            # fails the cell whatever the others are, those that probably have too: they are to be accepted together.
            regressed = (each.launches for each in decide.explained(judged) if _has_regressed(each))
            failed = min(regressed, default=0)
            rounds = max(rounds, len(sample.of("memory")))
            for each in judged:
                at_most = self.rounds if each.contract else self._at_most(reading.basis)
                hopeful = each.decision is Decision.INCONCLUSIVE and each.more != 0 and rounds < at_most
                if not hopeful or each.launches + HOPELESS_ROUNDS <= rounds:
                    continue
                if each.contract:
                    contract = contract_grammar.parse(each.contract)
                    for other in contracts.involved(contract, values.cell, test.cells):
                        needs[other.nodeid] |= contracts.metrics_needed(contract)
                elif not failed or _soon_worse(each, max(ALONG_ROUNDS, 2 * failed)):
                    own |= self._kinds(each.metric, reading.basis)
                    scales = each.metric in contract_grammar.SCALINGS
                    if scales and (one := one_worker_cell(values.cell, test.cells)):
                        needs[one.nodeid] |= metrics.row(each.metric).needs
        return {nodeid: frozenset(kinds) for nodeid, kinds in needs.items()}

    @property
    def tails_decided(self) -> bool:
        """Whether no tail is open after a round: it takes more iterations of a launch than anything else."""
        judged = (each for _, each in self._so_far.values())
        found = ([each.decision for each in rows if each.metric == Metric.TAIL] for rows in judged)
        return all(tail and Decision.INCONCLUSIVE not in tail for tail in found)

    def needs_of_figures(self, samples: Iterable[Sample]) -> dict[str, frozenset[Need]]:
        """As `needs`, where no cell is compared: the kinds of launches that may still change a figure."""
        every = ((each, EVERYTHING if each.reference is None else IN_PAIRS) for each in samples)
        return {each.cell.nodeid: kinds - self._shown(each) for each, kinds in every}

    def _shown(self, sample: Sample) -> frozenset[Need]:
        """The kinds of launches of a cell without a comparison that would add nothing to its figures."""
        found: set[Need] = set()
        if readers.waits_for_nothing(sample):
            found.add("locks")
        if len(sample.of("growth")) >= FIGURES:
            found.add("growth")
        if len(sample.of("observed")) >= FIGURES:
            found.add("observed")
        launches, sampled = sample.of("memory"), (metrics.row(name) for name in self.policy.metrics)
        waits = any(row.need == "memory" and row.unit != "size" for row in sampled)
        # Launches of unchanged code are expected to differ by more.
        if len(launches) >= FIGURES and not waits and readers.varies(launches) <= metrics.row(Metric.USS).spread:
            found.add("memory")
        return frozenset(found)

    # -- verdicts ----------------------------------------------------------------------------------------------

    def compared_with(self, values: Values) -> ComparedWith:
        """What a cell is compared with; not with stored figures of something else that was measured."""
        found = self.all_compared[values.cell.nodeid]
        mismatch = recording.mismatch(found.entry, values.sample) if found.entry is not None else ""
        if not mismatch:
            return found
        return replace(found, entry=None) if found.basis == "paired" else ComparedWith(why=mismatch)

    def judged(self, values: Values, *, final: bool) -> list[MetricVerdict]:
        """The verdicts on metrics and contracts; with `final` no more launches will come."""
        return self._rows(self._reading(values), final=final)

    def so_far(self, cell: Cell) -> Row:
        """A cell that needs no more launches, as it was judged after the last round."""
        reading, judged = self._so_far[cell.nodeid]
        known = [self._refused(each.metric, reading) or each for each in judged]
        return Row(cell=cell, verdict=decide.worst_of(known, reading.basis), sample=reading.values.sample)

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
            return decide.worst_of(found, replace(basis, basis="", why=_why_none(values, basis)))
        tail = reading.comparisons.get(Metric.TAIL)
        if basis.basis == "stored" and tail is not None and not tail.new:
            few = f"the budget allows fewer than {metrics.LEAST_TAIL_ITERATIONS} iterations per launch"
            basis = replace(basis, why="; ".join(filter(None, (basis.why, f"the tail was not judged: {few}"))))
        return decide.worst_of(found, basis)

    # -- metrics -----------------------------------------------------------------------------------------------

    def _reading(self, values: Values) -> Reading:
        basis, names = self.compared_with(values), gating(self.policy.metrics, self.spec, values.cell)
        entry, found = basis.entry, dict[str, Comparison]()
        if values.sample.reference is not None:
            found = comparisons.paired(values, {*names, Metric.CPU} if Metric.WALL in names else names)
        elif entry is not None and values.rounds:
            found = comparisons.with_stored(values, entry, names)
        return Reading(values, basis, found)

    def _rows(self, reading: Reading, *, final: bool) -> list[MetricVerdict]:
        (values, basis, comparisons), sample = reading, reading.values.sample
        found = []
        # 1. Metrics.
        for metric in self.policy.metrics:
            row = metrics.row(metric)
            if row.need == "locks" and sample.no_locks and sample.launches and reading.compared:
                found.append(decide.without_figures(metric, Reason(code=Why.PROBE_FAILED, text=sample.no_locks)))
            elif metric in comparisons and (comparisons[metric].new or row.absent):
                judged = self._refused(metric, reading) if final else None
                judged = judged or self._judged(metric, reading, basis.basis, final=final)
                found.append(_with_figures(judged, reading) if final else judged)
        # 2. The time gates, and the baseline holds none: the cell cannot pass by its other metrics.
        by_stored = final and sample.reference is None and basis.basis == "stored"
        if by_stored and Metric.WALL in self.policy.metrics and Metric.WALL not in comparisons:
            none = decide.without_figures(Metric.WALL, Reason(code=Why.NOT_STORED, name=values.cell.nodeid))
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
            gone = (Reason(code=Why.FIGURES_GONE),)
            return MetricVerdict(metric=metric, decision=Decision.INCONCLUSIVE, reasons=gone)
        comparison = self._limited(metric, reading, allowed, final=final)
        if comparison.stored:
            moved = math.hypot(*(decide.deviation(each, values.cell.workers) for each in self.conditions))
            return prediction.predict(comparison, moved)
        judged = decide.by_pairs(comparison)
        if metric != Metric.WALL or Metric.CPU not in reading.comparisons:
            return judged
        spent = self._limited(Metric.CPU, reading, allowed._replace(floor=0.0), final=final)
        sides = (side for side in (values, values.reference) if side is not None)
        return decide.by_cpu(judged, comparison, spent, min(side.computing for side in sides))

    def _limited(self, metric: str, reading: Reading, allowed: Limits, *, final: bool) -> Comparison:
        """The values of both sides with the limits and the error rates that hold for them."""
        values, found = reading.values, reading.comparisons[metric]
        scale = NS_PER_S if found.unit == "ns" else 1.0  # floors of times are in seconds
        return replace(
            found,
            limits=allowed._replace(floor=allowed.floor * scale),
            alpha=self.policy.alpha,
            beta=self.policy.beta,
            at_most=self._at_most(reading.basis),
            final=final,
            pair_s=values.round_s,
        )

    def _limits(self, metric: str, kind: BasisKind) -> Limits:
        return limits.effective(metric, kind, cli=self.policy.cli, declared=self.spec.thresholds, ini=self.policy.ini)


def _with_figures(judged: MetricVerdict, reading: Reading) -> MetricVerdict:
    """The verdict with the figure of each side, where this one has any; and with what is stored, beside a reference."""
    values, entry = reading.values, reading.basis.entry
    if not reading.comparisons[judged.metric].new:
        return judged
    if judged.metric == Metric.LOCK_CEILING:
        judged = replace(judged, reasons=(*judged.reasons, locks_allow(values)))
    recordings: Sequence[Side] = entry.recordings if entry else ()
    others: Sequence[Side] = recordings if values.reference is None else [values.reference]
    return replace(
        judged,
        now=figure_of(judged.metric, [values], others),
        was=figure_of(judged.metric, others, [values]),
        stored=None if values.reference is None else figure_of(judged.metric, recordings),
    )


def _has_regressed(judged: MetricVerdict) -> bool:
    """Whether a metric has regressed, or the wall time will have in a moment: others wait to see, as they are dearer.

    Where it has not after all, they are measured on.
    """
    near = judged.decision is Decision.INCONCLUSIVE and judged.more is not None and judged.more <= NEAR_ROUNDS
    far = judged.metric == Metric.WALL and limits.worse(judged) > FAR
    return judged.decision is Decision.REGRESSED or (far and near)


def _soon_worse(judged: MetricVerdict, rounds: int) -> bool:
    """Whether the estimate of an open metric lies beyond the effect, and so many rounds in all will decide it."""
    beyond = limits.worse(judged) > limits.worse(judged, pass_limit=True)
    return beyond and judged.more is not None and judged.launches + judged.more <= rounds


def why_not_measured(commit: str, why: str, *, stale: bool = True) -> str:
    """Why the commit of a recording cannot be measured here: a report says it in its last lines.

    `stale` where only another recording helps; else `why` says what does.
    """
    said = CANNOT_RUN if stale else NOT_AT_HAND
    return f"recorded at {commit.removesuffix('+')[:COMMIT_DIGITS]}, {said}: {why}" if commit else why


def _why_none(values: Values, basis: Basis) -> str:
    reference = values.sample.reference
    if reference is None:
        return basis.why
    why = reference.unsupported or (reference.error.reason if reference.error else "")
    if why and isinstance(basis, ComparedWith) and basis.recorded:
        return why_not_measured(basis.commit, why)
    if why:
        return f"the reference {'fails' if reference.error else 'cannot run it'}: {why}"
    return basis.why or "the reference has no figures to compare"


def doubted(verdict: Verdict, paired: str, alone: str, crowded: str) -> Verdict:
    """The verdict in which what the machine may have caused is in doubt.

    A paired regression becomes suspect for the reason `paired`: both sides met the same machine, so it may explain
    noise, hardly a change. A broken contract becomes inconclusive: one about a cell's own time for the reason `alone`,
    one between cells for the reason `crowded`, that others took cores, of which those cells may need different numbers.
    Memory does not depend on what else runs, and stored figures know the machine by the deviation that it adds.
    """
    judged = []
    for each in verdict.metrics:
        if each.contract:
            contract = contract_grammar.parse(each.contract)
            names = () if contract.is_gil else contract_grammar.all_names(contract)
            timed = any(metrics.row(name.metric).unit != "size" for name in names)
            # Others can make one worker's holds, or the rest of its time, about twice as long.
            if {name.metric for name in names} == {Metric.LOCK_CEILING} and each.now and each.was:
                timed = each.was < TWICE * each.now
            reason = alone if contracts.absolute(contract) else crowded if timed else ""
            doubt = Decision.INCONCLUSIVE
        else:
            timed = metrics.row(each.metric).unit != "size"
            reason = paired if timed and verdict.basis == "paired" else ""
            doubt = Decision.SUSPECT
        failed = each.decision in (Decision.REGRESSED, Decision.SUSPECT, Decision.BROKEN)
        why = (*each.reasons, Reason(code=Why.DOUBT, text=reason))
        judged.append(replace(each, decision=doubt, reasons=why, ruled_out=None) if failed and reason else each)
    return verdict if judged == list(verdict.metrics) else decide.again(verdict, judged)


def gating(names: Iterable[str], spec: Spec, cell: Cell) -> tuple[str, ...]:
    """Those of a run's metrics that gate a cell which can have them; one that its test limits does in any case."""
    limited = {each.metric for each in spec.thresholds}
    rows = (metrics.row(name) for name in names)
    return tuple(row.name for row in rows if row.applies(cell) and (row.name in limited or row.gates_in(cell)))


def hypotheses(spec: Spec, names: Sequence[str], cell: Cell, cells: Sequence[Cell], compared: bool) -> int:
    """The number of hypothesis tests that may raise a false alarm on one cell; `cells` are those of its test."""
    scales = cell.workers > 1 and 1 in spec.workers and cell.counted
    absent: dict[str, bool] = {
        Metric.SCALING: not scales,
        Metric.LOCK_CEILING: not scales,
        Metric.GROWTH: not can_grow(cell, spec),
        Metric.TAIL: spec.window_s is not None
        and (spec.duration_s or 0.0) / spec.window_s < metrics.LEAST_TAIL_ITERATIONS,
    }
    gates = [name for name in gating(names, spec, cell) if not absent.get(name)]
    judged = (contract_grammar.parse(each.text) for each in spec.contracts)
    bearing = [each for each in judged if not each.is_gil and contracts.concerns(each, cell, cells)]
    return (len(gates) if compared else 0) + len(bearing)
