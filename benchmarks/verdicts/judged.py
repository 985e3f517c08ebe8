"""Real launches judged by the product: false alarms in whole runs of A/A pairs, and detection of injected effects.

    python benchmarks/verdicts/judged.py .ftgate/verdicts/wall.jsonl [.ftgate/verdicts/uss.jsonl ...]

The A/A pairs of each series are divided into whole runs: each cell takes its next pairs, from where the run before
stopped, until the product's own judge has decided all its metrics or the allowed pairs are used up. No pair is used
twice. The error of a run, 1 %, is split over its hypotheses (cells x metrics) as in the product. The pairs with an
injected effect are judged in the same way, one cell after the other. Rates have exact 95 % bounds; seconds are those
that the pairs took when they were measured.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import page
import rates
import series
from series import Kind, Pair, Side

from pytest_ftgate.judge import decide
from pytest_ftgate.judge.judge import PAIRED_ROUNDS, ComparedWith, Judge, Policy
from pytest_ftgate.judge.values import Values
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.sample import Iteration, Launch, LockSite, LockWaits, MemoryPoint, Sample
from pytest_ftgate.model.spec import Cell, Executor, Interpreter, Source, Spec, Target
from pytest_ftgate.model.verdict import Decision, MetricVerdict
from pytest_ftgate.stats import alpha_spending

ALPHA, PROBE_COST, WORKERS = 0.01, 0.25, 2
METRICS: dict[Kind, tuple[Metric, ...]] = {
    "wall": (Metric.WALL, Metric.TAIL),
    "uss": (Metric.USS,),
    "lock_wait": (Metric.LOCK_WAIT,),
}
WORK_NS = 10**9
COLUMNS = ("series", "cell", "change", "failed", "passed", "pairs: mean (median)", "seconds: mean (median)")
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


# -- pairs as launches of the product ----------------------------------------------------------------------------------


def launch_of(side: Side, order: int) -> Launch:
    """One side of a pair as a launch of a sample."""
    iterations = tuple(
        Iteration(start_ns=0, work_ns=wall, join_ns=0, wall_ns=wall, cpu_ns=0, ops=WORKERS, rate=0.0)
        for wall in side.wall_ns
    )
    memory = tuple(
        MemoryPoint(at_ns=at, rss_bytes=uss, uss_bytes=uss, pss_bytes=None, processes=1, written_bytes=uss)
        for at, uss in enumerate(side.uss_bytes)
    )
    locks = None if side.share is None else _waits(side.share)
    return Launch(
        order=order,
        hash_seed=side.hash_seed,
        started_at="",
        cold=None,
        iterations=iterations,
        memory=memory,
        locks=locks,
    )


def _waits(share: float) -> LockWaits:
    waited = round(share * WORKERS * WORK_NS)
    site = LockSite(file="workload.py", line=1, kind="Lock", waits_for="lock", contended=1, total_ns=waited)
    return LockWaits(work_ns=WORK_NS, ops=1, sites=(site,))


def sample_of(found: Sequence[Pair], cell: Cell = CELL) -> Sample:
    """A cell and its reference after these pairs, as the product has them."""

    def side(launches: Sequence[Launch], reference: Sample | None) -> Sample:
        timed = Sample(cell=cell, interpreter=INTERPRETER, key="", all_launches=tuple(launches), reference=reference)
        held = timed.with_launches("memory", (launch for launch in launches if launch.memory))
        return held.with_launches("locks", (launch for launch in launches if launch.locks is not None))

    reference = side([launch_of(pair.reference, order) for order, pair in enumerate(found)], None)
    return side([launch_of(pair.changed, order) for order, pair in enumerate(found)], reference)


@dataclass(frozen=True)
class Judged:
    """The result of one cell in one run: a verdict per metric, the number of pairs and their seconds."""

    verdicts: tuple[MetricVerdict, ...]
    pairs: int
    seconds: float

    @property
    def decision(self) -> Decision:
        """The worst of its metrics, as in the product."""
        return decide.judge(self.verdicts).decision

    @property
    def regressed(self) -> bool:
        """Whether any metric failed."""
        return any(verdict.decision in (Decision.REGRESSED, Decision.SUSPECT) for verdict in self.verdicts)


class PairJudge:
    """The product's judge of one cell, given pair by pair."""

    def __init__(self, kind: Kind, hypotheses: int, at_most: int = PAIRED_ROUNDS, run_alpha: float = ALPHA) -> None:
        alpha = run_alpha / hypotheses
        self.kind = kind
        self.at_most = at_most
        beta = alpha_spending.BETA
        policy = Policy(metrics=METRICS[kind], cli=(), ini=(), alpha=alpha, beta=beta, probe_cost=PROBE_COST)
        self.judge = Judge(SPEC, policy, {CELL.nodeid: ComparedWith(basis="paired")}, at_most)
        self.counts = [look.launches for look in alpha_spending.plan(alpha, beta, at_most=at_most)]

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


# -- the table ---------------------------------------------------------------------------------------------------------


def whole_runs(found: Sequence[Pair], kind: Kind, at_most: int) -> list[tuple[Judged, ...]]:
    """The A/A pairs as runs over all cells; the last run, for which a cell has too few pairs, is left out."""
    cells = sorted({pair.cell for pair in found})
    judge = PairJudge(kind, len(cells) * len(METRICS[kind]), at_most)
    same = (results(judge, [pair for pair in found if pair.cell == cell and not pair.effect]) for cell in cells)
    return list(zip(*same, strict=False))


def rows(path: Path, kind: Kind, at_most: int) -> Iterator[list[str]]:
    """Of one series: its whole runs, each cell of them, and each cell with an injected effect."""
    found = series.pairs(path, kind)
    cells = sorted({pair.cell for pair in found})
    runs = whole_runs(found, kind, at_most) if found else []
    if runs:
        alarms = sum(any(result.regressed for result in run) for run in runs)
        seconds = [sum(result.seconds for result in run) for run in runs]
        yield [path.stem, "a whole run", "A/A", rates.shown(alarms, len(runs)).strip(), "", "", _took(seconds)]
        for place, cell in enumerate(cells):
            yield [path.stem, cell, "A/A", *_shown([run[place] for run in runs])]
    judge = PairJudge(kind, max(1, len(cells)) * len(METRICS[kind]), at_most)
    for effect in sorted({pair.effect for pair in found} - {0}):
        for cell in cells:
            judged = list(results(judge, [pair for pair in found if pair.cell == cell and pair.effect == effect]))
            if judged:
                yield [path.stem, cell, f"{effect:+.0%}", *_shown(judged)]


def _shown(found: Sequence[Judged]) -> list[str]:
    """Failed, passed, pairs and seconds."""
    passed = sum(result.decision in (Decision.PASSED, Decision.IMPROVED) for result in found)
    return [
        rates.shown(sum(result.regressed for result in found), len(found)).strip(),
        f"{passed / len(found):.0%}",
        _took([result.pairs for result in found]),
        _took([result.seconds for result in found]),
    ]


def _took(values: Sequence[float]) -> str:
    """The mean, and the median."""
    return f"{statistics.fmean(values):.1f} ({statistics.median(values):.0f})"


def main() -> None:
    """Judge each series."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path, nargs="+")
    parser.add_argument("--at-most", type=int, default=PAIRED_ROUNDS, help="pairs per cell (default: the product's)")
    options = parser.parse_args()
    each = (rows(path, kind, options.at_most) for path in options.series for kind in series.KINDS)
    page.show(__file__, COLUMNS, chain.from_iterable(each))


if __name__ == "__main__":
    main()
