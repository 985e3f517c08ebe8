"""The product's own judge, given real pairs of launches one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from series import Pair, Side

from pytest_ftgate.judge.judge import PAIRED_ROUNDS, ComparedWith, Judge, Policy
from pytest_ftgate.judge.values import Values
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.sample import Iteration, Launch, Sample
from pytest_ftgate.model.spec import Cell, Executor, Interpreter, Source, Spec, Target
from pytest_ftgate.model.verdict import Decision, MetricVerdict
from pytest_ftgate.stats import alpha_spending

ALPHA, PROBE_COST, WORKERS = 0.01, 0.25, 2
METRICS = (Metric.WALL, Metric.TAIL)
THREADS = Executor(kind="threads")
SPEC = Spec(
    nodeid="series",
    source=Source(path="", line=0, module="", qualname=""),
    body="worker",
    executors=(THREADS,),
    workers=(WORKERS,),
    reuse="fresh",
)
CELL = Cell(nodeid="series[cell]", target=Target(spec="", request=""), executor=THREADS, workers=WORKERS)
INTERPRETER = Interpreter(
    executable="",
    version="",
    implementation="",
    free_threaded=False,
    gil_enabled=True,
    jit_available=False,
    jit_enabled=False,
    pgo=False,
    lto=False,
    shared=False,
    debug=False,
    compiler="",
    config_args="",
    found="",
    build="",
)


def launch_of(side: Side, order: int) -> Launch:
    """One side of a pair as a launch of a sample."""
    iterations = tuple(
        Iteration(start_ns=0, work_ns=wall, join_ns=0, wall_ns=wall, cpu_ns=0, ops=WORKERS, rate=0.0)
        for wall in side.wall_ns
    )
    return Launch(order=order, hash_seed=side.hash_seed, started_at="", cold=None, iterations=iterations)


def sample_of(found: Sequence[Pair], cell: Cell = CELL) -> Sample:
    """A cell and its reference after these pairs, as the product has them."""

    def side(launches: Sequence[Launch], reference: Sample | None) -> Sample:
        return Sample(cell=cell, interpreter=INTERPRETER, key="", all_launches=tuple(launches), reference=reference)

    reference = side([launch_of(pair.reference, order) for order, pair in enumerate(found)], None)
    return side([launch_of(pair.changed, order) for order, pair in enumerate(found)], reference)


@dataclass(frozen=True)
class Judged:
    """The result of one cell in one run: a verdict per metric, the number of pairs and their seconds."""

    verdicts: tuple[MetricVerdict, ...]
    pairs: int
    seconds: float

    @property
    def regressed(self) -> bool:
        """Whether any metric failed."""
        return any(verdict.decision in (Decision.REGRESSED, Decision.SUSPECT) for verdict in self.verdicts)


class PairJudge:
    """The product's judge of one cell, given pair by pair."""

    def __init__(self, hypotheses: int, at_most: int = PAIRED_ROUNDS) -> None:
        alpha = ALPHA / hypotheses
        self.at_most = at_most
        beta = alpha_spending.BETA
        policy = Policy(metrics=METRICS, cli=(), ini=(), alpha=alpha, beta=beta, probe_cost=PROBE_COST)
        self.judge = Judge(SPEC, policy, {CELL.nodeid: ComparedWith(basis="paired")}, at_most)
        self.counts = [look.launches for look in alpha_spending.planned_looks(alpha, beta, at_most=at_most)]

    def result(self, coming: Sequence[Pair]) -> Judged | None:
        """Judge at each interim analysis until all metrics are decided; None if there are too few pairs."""
        for count in self.counts:
            if count > len(coming):
                return None
            sample = sample_of(coming[:count])
            final = count == self.counts[-1]
            verdicts = tuple(self.judge.judged(Values(sample), final=final))
            if final or all(verdict.decision is not Decision.INCONCLUSIVE for verdict in verdicts):
                return Judged(verdicts, count, sum(pair.seconds for pair in coming[:count]))
        return None


def results(judge: PairJudge, found: Sequence[Pair]) -> Iterator[Judged]:
    """One result after the other, each from where the last one stopped."""
    start = 0
    while (result := judge.result(found[start : start + judge.at_most])) is not None:
        start += result.pairs
        yield result
