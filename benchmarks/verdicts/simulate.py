"""Error rates of the sequential judge by simulation, with the noise of real A/A pairs, half and twice of it.

    python benchmarks/verdicts/simulate.py .ftgate/verdicts/wall.jsonl [--tests 100000] [--at-most 40]

For each cell and metric (wall, tail) the A/A pairs' log-ratios, centred to zero, are resampled in blocks of neighbours,
so that disturbances keep their length. Which of two equal launches is called changed was drawn for each pair, so the
sign of each is drawn again; `--signs measured` keeps the signs, and with them the chance deviation of some hundred
pairs. The noise is scaled and the effect added. The judge is a vectorised copy of the product's; the script first
checks that both give the same decisions at the same number of pairs on a random sample of series.

A false fail of a run is a regression reported for any of its K hypotheses although nothing changed, each judged at
1 % / K; they are distributed evenly over cells and metrics. `at margin` are runs in which every hypothesis has changed
by exactly the margin: the worst case.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import rates
import series
from numpy.typing import NDArray
from series import Floats, Pair

from pytest_ftgate.judge import decide, thresholds
from pytest_ftgate.judge.judge import PAIRED_ROUNDS
from pytest_ftgate.judge.power import reachable_effect
from pytest_ftgate.model import Comparison, Decision, Look, Metric
from pytest_ftgate.stats import alpha_spending, rank_tests

ALPHA = 0.01
SCALES = (0.5, 1.0, 2.0)
EFFECTS = (0.0, 0.03, 0.05, 0.10, 0.20)
HYPOTHESES = (8, 20, 60)
BLOCK = 8
CHUNK = 20_000
LEAST_RUNS = 5000
"""Enough for a bound below 0.1 % if no run fails."""
METRICS = (Metric.WALL, Metric.TAIL)
OPEN, PASSED, REGRESSED, IMPROVED = range(4)
CODES = {
    Decision.INCONCLUSIVE: OPEN,
    Decision.PASSED: PASSED,
    Decision.REGRESSED: REGRESSED,
    Decision.IMPROVED: IMPROVED,
}
Codes = NDArray[np.int8]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Design:
    """The thresholds of one metric of paired launches, the levels of one hypothesis, and the interim analyses."""

    metric: Metric
    limits: thresholds.Effective
    alpha: float
    beta: float
    looks: tuple[Look, ...]

    @classmethod
    def of(cls, metric: Metric, hypotheses: int, at_most: int) -> Design:
        """The design that the product uses."""
        alpha, beta = decide.split_alpha(ALPHA, alpha_spending.BETA, hypotheses)
        looks = alpha_spending.spend(alpha, beta, "pairs", at_most=at_most)
        limits = thresholds.effective(metric, "paired", cli=(), declared=(), ini=())
        return cls(metric, limits, alpha, beta, looks)


# -- the judge, many series at once ------------------------------------------------------------------------------------


def p_greater(differences: Floats) -> Floats:
    """The exact signed-rank p-value of each row lying above zero; values are continuous, so nothing ties."""
    ranks = np.abs(differences).argsort(axis=1).argsort(axis=1) + 1
    statistic = np.where(differences > 0, ranks, 0).sum(axis=1)
    p_values: Floats = np.asarray(rank_tests.null_tail("pairs", differences.shape[1]))[statistic]
    return p_values


def judge(logs: Floats, design: Design) -> tuple[Codes, Counts]:
    """Decision and number of pairs of each row of log-ratios; the last analysis uses whole rows.

    The product also requires that the Hodges-Lehmann change lies beyond the fail limit. That follows from the p-value:
    the statistic is the number of Walsh means above the limit, and these are more than half if p is below one half.
    """
    decisions = np.full(len(logs), OPEN, dtype=np.int8)
    pairs = np.full(len(logs), logs.shape[1])
    undecided = np.arange(len(logs))
    for look in (look for look in design.looks if look.launches <= logs.shape[1]):
        seen = logs[undecided, : look.launches]
        effects = np.full(len(seen), design.limits.effect)
        _settle(decisions, pairs, undecided, _decided(seen, design, look.alpha, look.beta, effects), look.launches)
        undecided = undecided[decisions[undecided] == OPEN]
    seen = logs[undecided]
    alpha, beta = _left(design, logs.shape[1])
    last = _decided(seen, design, alpha, beta, _widened(seen, design, beta))
    _settle(decisions, pairs, undecided, last, logs.shape[1])
    return decisions, pairs


def _left(design: Design, there: int) -> tuple[float, float]:
    """The levels that the analyses before the last have not spent."""
    before = [look for look in design.looks if look.launches < there]
    spent = sum(look.alpha for look in before), sum(look.beta for look in before)
    return max(0.0, design.alpha - spent[0]), max(0.0, design.beta - spent[1])


def _decided(seen: Floats, design: Design, alpha: float, beta: float, effects: Floats) -> Codes:
    """Decisions in the product's order: regressed, improved, passed."""
    margin, effect = math.log1p(design.limits.margin), math.log1p(design.limits.effect)
    passes = p_greater(np.log1p(effects)[:, None] - seen) <= beta
    gains = p_greater(-(seen + effect)) <= beta
    better = (p_greater(-(seen + margin)) <= alpha) | gains
    worse = p_greater(seen - margin) <= alpha
    codes = np.select([worse, better, passes], [REGRESSED, IMPROVED, PASSED], OPEN)
    return codes.astype(np.int8)


def _settle(decisions: Codes, pairs: Counts, rows: NDArray[np.intp], found: Codes, count: int) -> None:
    decisions[rows] = found
    pairs[rows[found != OPEN]] = count


def _widened(seen: Floats, design: Design, beta: float) -> Floats:
    """The effect at which the last analysis judges each row."""
    requested, widest = design.limits.effect, design.limits.widest
    narrow = p_greater(math.log1p(requested) - seen) <= beta
    zeros = [1.0] * seen.shape[1]
    effects = [
        requested
        if enough
        else reachable_effect(np.exp(row).tolist(), zeros, requested, beta, test="pairs", widest=widest)
        for row, enough in zip(seen, narrow, strict=True)
    ]
    return np.asarray(effects, dtype=np.float64)


def check_equal(sources: Sequence[Noise], at_most: int, sample: int, rng: np.random.Generator) -> int:
    """Assert that the product decides the same on `sample` series of all kinds; the number of series compared."""
    checked = 0
    for source in sources:
        design = Design.of(source.metric, 8, at_most)
        rows = sample // len(sources) + 1
        logs = np.concatenate(
            [
                source.drawn(rows // 10 + 1, at_most, rng, scale, effect)
                for scale in SCALES
                for effect in (-0.10, *EFFECTS[::2], 0.02)
            ]
        )[: rows * 2]
        logs = rng.permutation(logs)[:rows]
        decisions, pairs = judge(logs, design)
        for row, code, count in zip(logs, decisions, pairs, strict=True):
            verdict = decide.compare(_comparison(row, design))
            own = CODES[verdict.decision], verdict.launches
            assert own == (code, count), f"the product gives {own}, the simulation {(code, count)} for {row.tolist()}"
            checked += 1
    return checked


def _comparison(row: Floats, design: Design) -> Comparison:
    return Comparison(
        metric=design.metric,
        new=tuple(np.exp(row).tolist()),
        reference=(1.0,) * len(row),
        unit="ns",
        margin=design.limits.margin,
        effect=design.limits.effect,
        alpha=design.alpha,
        beta=design.beta,
        test="pairs",
        looks=design.looks,
        final=True,
        widest=design.limits.widest,
    )


# -- noise -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Noise:
    """The measured noise of one cell and metric: log-ratios of A/A pairs in order, centred."""

    cell: str
    metric: Metric
    estimator: str
    logs: Floats
    redrawn: bool = True

    def drawn(self, rows: int, pairs: int, rng: np.random.Generator, scale: float, effect: float) -> Floats:
        """Rows of `pairs` pairs, resampled in circular blocks of neighbours, scaled and shifted by the effect."""
        blocks = -(-pairs // BLOCK)
        starts = rng.integers(0, len(self.logs), (rows, blocks, 1))
        places = (starts + np.arange(BLOCK)) % len(self.logs)
        noise = self.logs[places.reshape(rows, -1)[:, :pairs]]
        if self.redrawn:
            noise = noise * (rng.integers(0, 2, noise.shape) * 2 - 1)
        moved: Floats = noise * scale + math.log1p(effect)
        return moved


def sources(found: Sequence[Pair], redrawn: bool) -> list[Noise]:
    """The noise of each cell and metric; the estimator of the wall time is chosen as in the product, once for all."""
    made = []
    for cell in sorted({pair.cell for pair in found}):
        same = [pair for pair in found if pair.cell == cell and not pair.effect]
        sides = [(pair.changed.wall_ns, pair.reference.wall_ns) for pair in same]
        estimators = {Metric.WALL: rank_tests.blind_estimator(sides), Metric.TAIL: rank_tests.TAIL_QUANTILE}
        for metric, estimator in estimators.items():
            logs = series.log_ratios(same, estimator)
            name = "paired" if estimator is rank_tests.PAIRED else f"{estimator:.0%}"
            made.append(Noise(cell, metric, name, logs - rank_tests.location(logs, 0.0).value, redrawn))
    return made


# -- tables ------------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """Decisions and pairs of many tests."""

    decisions: Codes
    pairs: Counts

    def share(self, code: int) -> float:
        """The share of tests that ended with this decision."""
        return float((self.decisions == code).mean())


def chunks(total: int) -> Iterator[int]:
    """Sizes that sum up to `total`."""
    for done in range(0, total, CHUNK):
        yield min(CHUNK, total - done)


def simulated(
    source: Noise, design: Design, tests: int, rng: np.random.Generator, scale: float, effect: float, at_most: int
) -> Tally:
    """The results of `tests` tests with one noise."""
    parts = [judge(source.drawn(size, at_most, rng, scale, effect), design) for size in chunks(tests)]
    return Tally(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))


def false_fails(found: Sequence[Noise], tests: int, at_most: int, rng: np.random.Generator) -> None:
    """Whole runs of K hypotheses in which nothing changed, and in which all changed by the margin."""
    print(
        f"\nWhole runs: false fails, their exact bound (95 %), {tests} tests per line or more, at most {at_most} pairs"
    )
    for count in HYPOTHESES:
        designs = {metric: Design.of(metric, count, at_most) for metric in METRICS}
        runs = max(LEAST_RUNS, tests // count)
        for scale in SCALES:
            for label, changed in (("nothing changed", False), ("at margin", True)):
                failed, total = _failed_runs(found, designs, runs, count, scale, changed, rng, at_most)
                events = int(failed.sum())
                print(
                    f"  K = {count:2d}, noise x{scale:<3g} {label:15s}: {events} of {runs} runs fail,"
                    f" at most {rates.at_most(events, runs):.3%}; {total} of {runs * count} tests",
                    flush=True,
                )


def _failed_runs(
    found: Sequence[Noise],
    designs: dict[Metric, Design],
    runs: int,
    count: int,
    scale: float,
    changed: bool,
    rng: np.random.Generator,
    at_most: int,
) -> tuple[NDArray[np.bool_], int]:
    """Whether each run has a false fail, and how many tests failed in all."""
    failed, total = np.zeros(runs, dtype=np.bool_), 0
    for place in range(count):
        source = found[place % len(found)]
        design = designs[source.metric]
        effect = design.limits.margin if changed else 0.0
        worse = simulated(source, design, runs, rng, scale, effect, at_most).decisions == REGRESSED
        failed |= worse
        total += int(worse.sum())
    return failed, total


def power(found: Sequence[Noise], tests: int, at_most: int, count: int, rng: np.random.Generator) -> None:
    """The decisions of the tests, and the number of pairs that they need."""
    print(f"\nEach test of a run of K = {count}, {tests} tests per line: share of decisions and number of pairs")
    print("  cell           metric noise    sd %  effect  regressed   passed improved  inconcl.   mean median  p90")
    for source in found:
        design = Design.of(source.metric, count, at_most)
        for scale in SCALES:
            for effect in EFFECTS:
                tally = simulated(source, design, tests, rng, scale, effect, at_most)
                shares = [100 * tally.share(code) for code in (REGRESSED, PASSED, IMPROVED, OPEN)]
                pairs = tally.pairs.mean(), np.median(tally.pairs), np.quantile(tally.pairs, 0.9)
                print(
                    f"  {source.cell:14s} {source.metric:6s}  x{scale:<3g} {100 * scale * source.logs.std():6.2f} "
                    f" {effect:+6.0%} {shares[0]:9.2f} % {shares[1]:6.1f} % {shares[2]:6.2f} % {shares[3]:7.1f} %"
                    f" {pairs[0]:6.1f} {pairs[1]:6.0f} {pairs[2]:4.0f}",
                    flush=True,
                )


def main() -> None:
    """Print the check, the whole runs, and the power."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path)
    parser.add_argument("--tests", type=int, default=100_000, help="A/A tests per line of the whole runs")
    parser.add_argument("--power-tests", type=int, default=10_000)
    parser.add_argument("--hypotheses", type=int, default=HYPOTHESES[0], help="of the run whose power is shown")
    parser.add_argument("--at-most", type=int, default=PAIRED_ROUNDS, help="pairs (default: the product's)")
    parser.add_argument("--compared", type=int, default=2000, help="series that the product judges too")
    parser.add_argument("--signs", choices=("drawn", "measured"), default="drawn")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    found = sources(series.pairs(options.series), options.signs == "drawn")
    for source in found:
        robust = rank_tests.gini_deviation(source.logs)
        print(
            f"{source.cell} {source.metric} ({source.estimator}): {len(source.logs)} A/A pairs, sd"
            f" {source.logs.std():.2%}, by Gini's mean difference {robust:.2%}"
        )
    checked = check_equal(found, options.at_most, options.compared, rng)
    print(f"the product's own judge decides the same on {checked} of {checked} series")
    false_fails(found, options.tests, options.at_most, rng)
    power(found, options.power_tests, options.at_most, options.hypotheses, rng)


if __name__ == "__main__":
    main()
