"""Error rates of the sequential judge by simulation, with the noise of real A/A pairs and with harder noise.

    python benchmarks/verdicts/simulate.py .ftgate/verdicts/wall.jsonl [--tests 100000] [--at-most 80]

For each cell and metric (wall, tail) the A/A pairs' log-ratios, centred to zero, are resampled in blocks of neighbours
together with the standard errors that their own iterations show, so that disturbances keep their length. Which of two
equal launches is called changed was drawn for each pair, so the sign of each is drawn again. Made noise is added: heavy
tails (Student's t with 3 degrees of freedom), a machine with two speeds (15 % of the pairs scatter three times as
much), and neighbouring pairs that are correlated by 0.3 and by 0.6. The judge is a vectorised copy of the product's;
the script first checks that both give the same decisions at the same number of pairs on a random sample of series.

A false fail of a run is a regression, or a suspicion, reported for any of its K hypotheses although nothing changed;
`at the margin` are runs in which every hypothesis has changed by exactly the margin: the worst case. Each table has
rows by noise. The first has the share of whole runs that fail, and its exact bound (95 %). The second has, of single
tests by the size of the change, how many fail and how many pass; the third the pairs that they need (median, mean,
99 %) and how often the 95 % interval holds the true change. `--hard` prints one table of noise beyond what is stated.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import page
import rates
import series
from numpy.typing import NDArray
from scipy.special import stdtr
from series import Floats, Pair

from pytest_ftgate.judge import comparisons, decide, limits, metrics
from pytest_ftgate.judge.judge import PAIRED_ROUNDS
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.verdict import Comparison, Decision, Limits
from pytest_ftgate.stats import alpha_spending, intervals, moderated
from pytest_ftgate.stats.alpha_spending import Look

ALPHA = 0.01
EFFECTS = (0.0, 0.05, 0.10, 0.25, 1.0)
HYPOTHESES = (8, 20, 64)
FALSE_FAILS = ("noise", "unchanged: K = 8", "K = 20", "K = 64", "at the margin: K = 8", "K = 20", "K = 64")
POWER = ("noise", "+0 %", "+5 %", "+10 %", "+25 %", "+100 %")
HARD_EFFECTS = (0.0, 0.06, 0.10, 0.30)
HARD = ("noise", "+0 %", "+6 %", "+10 %", "+30 %")
BLOCK = 8
CHUNK = 10_000
LEAST_RUNS = 5000
"""Enough for a bound below 0.1 % if no run fails."""
METRICS = (Metric.WALL, Metric.TAIL)
OPEN, PASSED, REGRESSED, IMPROVED, SUSPECT = range(5)
CODES = {
    Decision.INCONCLUSIVE: OPEN,
    Decision.PASSED: PASSED,
    Decision.REGRESSED: REGRESSED,
    Decision.IMPROVED: IMPROVED,
    Decision.SUSPECT: SUSPECT,
}
Codes = NDArray[np.int8]
Counts = NDArray[np.int64]
Drawn = tuple[Floats, Floats]
"""Log-ratios of pairs, a series a row, and the standard error of each."""


@dataclass(frozen=True)
class Design:
    """The thresholds of one metric of paired launches, the levels of one hypothesis, and the stated noise."""

    metric: Metric
    limits: Limits
    alpha: float
    beta: float
    spread: float

    @classmethod
    def of(cls, metric: Metric, hypotheses: int) -> Design:
        """The design that the product uses."""
        alpha = decide.split_alpha(ALPHA, hypotheses)
        return cls(metric, limits.effective(metric, "paired"), alpha, alpha_spending.BETA, metrics.row(metric).spread)


@dataclass
class Tally:
    """Decisions, pairs, and whether the 95 % interval at the end held the true change."""

    decisions: Codes
    pairs: Counts
    covered: NDArray[np.bool_]

    def share(self, *codes: int) -> float:
        """The share of tests that ended with one of these decisions."""
        return float(np.isin(self.decisions, codes).mean())


# -- the judge, many series at once ------------------------------------------------------------------------------------


class Seen:
    """Series of as many pairs each, with the scales of the test."""

    def __init__(self, logs: Floats, errors: Floats, design: Design) -> None:
        self.logs = logs
        self.count = logs.shape[1]
        self.expected, self.bound = (self._scales(errors, design.spread * factor) for factor in (1.0, moderated.BOUND))

    def _scales(self, errors: Floats, spread: float) -> Floats:
        expected = np.sqrt(spread**2 + errors**2)
        centred = (self.logs - np.median(self.logs, axis=1, keepdims=True)) / expected
        centred = np.clip(centred, -moderated.FARTHEST, moderated.FARTHEST)
        freedom, prior = self.count - 1, moderated.PRIOR_FREEDOM
        factor = (prior + freedom * _gini(centred) ** 2) / (prior + freedom)
        scales: Floats = expected * np.sqrt(factor)[:, None]
        return scales

    def p_above(self, distances: Floats, scales: Floats) -> Floats:
        """The product's p-value of each row."""
        sums = np.clip(distances / scales, -moderated.CLIP, moderated.CLIP).sum(axis=1)
        p_values: Floats = stdtr(moderated.PRIOR_FREEDOM + self.count - 1, -sums / math.sqrt(self.count))
        return np.where(_lower_medians(distances) > 0, p_values, np.maximum(p_values, 0.5))

    def covers(self, change: float) -> NDArray[np.bool_]:
        """Whether the interval of each row holds the change (of logs); a range says nothing of it."""
        found = (moderated.interval(row, scales, 0.95) for row, scales in zip(self.logs, self.expected, strict=True))
        held: NDArray[np.bool_] = np.array([not each.level or each.low <= change <= each.high for each in found])
        return held


def _lower_medians(rows: Floats) -> Floats:
    place = (rows.shape[1] - 1) // 2
    medians: Floats = np.partition(rows, place, axis=1)[:, place]
    return medians


def _gini(rows: Floats) -> Floats:
    ascending = np.sort(rows, axis=1)
    count = rows.shape[1]
    weights = 2 * np.arange(count) - (count - 1)
    deviations: Floats = (ascending @ weights) * math.sqrt(math.pi) / (count * (count - 1))
    return deviations


def judge(drawn: Drawn, design: Design, true: float | None = None) -> Tally:
    """Decision and number of pairs of each series; the last analysis uses whole rows.

    With the `true` change (of logs) it also tells whether the intervals hold it.
    """
    logs, errors = drawn
    tally = Tally(np.full(len(logs), OPEN, np.int8), np.full(len(logs), logs.shape[1]), np.zeros(len(logs), np.bool_))
    undecided = np.arange(len(logs))
    there = logs.shape[1]
    for look in alpha_spending.planned_looks(design.alpha, design.beta, at_most=there):
        seen = Seen(logs[undecided, : look.launches], errors[undecided, : look.launches], design)
        codes = _decided(seen, design, look, last=look.launches == there)
        tally.decisions[undecided] = codes
        ends = (codes != OPEN) | (look.launches == there)
        tally.pairs[undecided[ends]] = look.launches
        if true is not None:
            tally.covered[undecided[ends]] = seen.covers(true)[ends]
        undecided = undecided[~ends]
        if not len(undecided):
            break
    return tally


def _decided(seen: Seen, design: Design, look: Look, *, last: bool) -> Codes:
    """Decisions in the product's order: regressed, improved, passed; at the end suspect."""
    margin, asked = math.log1p(design.limits.margin), math.log1p(design.limits.effect)
    p_fail = seen.p_above(seen.logs - margin, seen.bound)
    better = seen.p_above(-seen.logs - margin, seen.bound) <= look.alpha
    passes = seen.p_above(asked - seen.logs, seen.expected) <= look.beta
    codes = np.select([p_fail <= look.alpha, better, passes], [REGRESSED, IMPROVED, PASSED], OPEN).astype(np.int8)
    if last:
        likely = (codes == OPEN) & (p_fail <= decide.suspect_level(design.alpha))
        codes[likely & (_lower_medians(seen.logs) > asked)] = SUSPECT
    return codes


def check_equal(sources: Sequence[Noise], at_most: int, sample: int, rng: np.random.Generator) -> int:
    """Assert that the product decides the same on `sample` series of all kinds; the number of series compared."""
    checked = 0
    for source in sources:
        design = Design.of(source.metric, 8)
        for count in (3, 7, at_most):
            for effect in (-0.10, 0.0, 0.02, 0.05, 0.20):
                drawn = source.drawn(max(1, sample // len(sources) // 15), count, rng, effect)
                tally = judge(drawn, design)
                for row, errors, code, pairs in zip(*drawn, tally.decisions, tally.pairs, strict=True):
                    verdict = decide.by_pairs(_comparison(row, errors, design))
                    own = CODES[verdict.decision], verdict.launches
                    assert own == (code, pairs), f"the product gives {own}, the simulation {(code, pairs)} for {row}"
                    checked += 1
    return checked


def _comparison(row: Floats, errors: Floats, design: Design) -> Comparison:
    return Comparison(
        metric=design.metric,
        new=tuple(np.exp(row).tolist()),
        reference=(1.0,) * len(row),
        errors=tuple(errors.tolist()),
        unit="ns",
        limits=design.limits,
        alpha=design.alpha,
        beta=design.beta,
        at_most=len(row),
        final=True,
    )


# -- noise -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Noise:
    """Noise of one metric: `draw` gives rows of pairs around 0 with the standard error of each."""

    name: str
    metric: Metric
    draw: Callable[[int, int, np.random.Generator], Drawn]

    def drawn(self, rows: int, pairs: int, rng: np.random.Generator, effect: float) -> Drawn:
        """Rows of `pairs` pairs with an effect."""
        logs, errors = self.draw(rows, pairs, rng)
        return logs + math.log1p(effect), errors


def measured(title: str, found: Sequence[Pair]) -> list[Noise]:
    """The noise of each cell and metric of a series."""
    made = []
    for cell in sorted({pair.cell for pair in found}):
        same = [pair for pair in found if pair.cell == cell and not pair.effect]
        for metric in METRICS:
            values = [comparisons.time_pair(metric, pair.changed.wall_ns, pair.reference.wall_ns) for pair in same]
            logs = np.array([math.log(each.new / each.reference) for each in values if each])
            errors = np.array([each.error for each in values if each])
            logs -= intervals.location(logs, 0.0).value
            made.append(Noise(f"{title}: {cell} {metric}", metric, _resampled(logs, errors)))
    return made


def _resampled(logs: Floats, errors: Floats) -> Callable[[int, int, np.random.Generator], Drawn]:
    def draw(rows: int, pairs: int, rng: np.random.Generator) -> Drawn:
        starts = rng.integers(0, len(logs), (rows, -(-pairs // BLOCK), 1))
        places = ((starts + np.arange(BLOCK)) % len(logs)).reshape(rows, -1)[:, :pairs]
        signs = rng.integers(0, 2, places.shape) * 2 - 1
        return logs[places] * signs, errors[places]

    return draw


def made(deviation: float) -> list[Noise]:
    """Noise of the wall time with that standard deviation, of which the iterations show nothing."""

    def noise(name: str, values: Callable[[int, int, np.random.Generator], Floats]) -> Noise:
        def draw(rows: int, pairs: int, rng: np.random.Generator) -> Drawn:
            return deviation * values(rows, pairs, rng), np.zeros((rows, pairs))

        return Noise(f"{name} {deviation:.0%}", Metric.WALL, draw)

    return [
        noise("normal", lambda rows, pairs, rng: rng.standard_normal((rows, pairs))),
        noise("heavy tails", lambda rows, pairs, rng: rng.standard_t(3, (rows, pairs)) / math.sqrt(3)),
        noise("two speeds", _two_speeds),
        noise("lag-1 0.3", lambda rows, pairs, rng: _correlated(rows, pairs, rng, 0.3)),
        noise("lag-1 0.6", lambda rows, pairs, rng: _correlated(rows, pairs, rng, 0.6)),
    ]


def hard() -> list[Noise]:
    """Noise of the wall time that is larger than what is stated, of which the iterations show nothing.

    Launches of each side are alike where they share a mode: `two modes` are drawn anew for each launch, as a hash seed
    or a layout of memory gives them, and on a core that sticks the next launch has that of the one before in nine of
    ten cases.
    """
    # The draws of both sides of so many pairs.
    Shape = tuple[int, int]

    def noise(name: str, side: Callable[[np.random.Generator, Shape], Floats], between: float = 0.01) -> Noise:
        def draw(rows: int, pairs: int, rng: np.random.Generator) -> Drawn:
            shape = rows, pairs
            return side(rng, shape) - side(rng, shape) + rng.normal(0, between, shape), np.zeros(shape)

        return Noise(name, Metric.WALL, draw)

    def normal(deviation: float) -> Callable[[np.random.Generator, Shape], Floats]:
        return lambda rng, shape: rng.normal(0, deviation / math.sqrt(2), shape)

    def modes(step: float, share: float) -> Callable[[np.random.Generator, Shape], Floats]:
        return lambda rng, shape: step * (rng.random(shape) < share)

    def sticky(step: float, stays: float) -> Callable[[np.random.Generator, Shape], Floats]:
        def states(rng: np.random.Generator, shape: Shape) -> Floats:
            moves = rng.random(shape) >= stays
            moves[:, 0] = rng.random(shape[0]) < 0.5
            slow: Floats = step * (moves.cumsum(axis=1) % 2)
            return slow

        return states

    def rare(share: float, size: float) -> Callable[[np.random.Generator, Shape], Floats]:
        return lambda rng, shape: (rng.random(shape) < share) * rng.exponential(size, shape)

    return [
        *(noise(f"normal {each:.1%}", normal(each), 0.0) for each in (0.045, 0.10, 0.20, 0.30)),
        noise("heavy tails, t2.5", lambda rng, shape: 0.04 / math.sqrt(10) * rng.standard_t(2.5, shape)),
        *(noise(f"two modes {each:.0%} apart", modes(each, 0.5)) for each in (0.10, 0.20, 0.50)),
        noise("one in five 30 % slower", modes(0.30, 0.2)),
        noise("one in twenty 3x slower", rare(0.05, math.log(3)), 0.03),
        *(noise(f"hash seed {each:.1%} a launch", normal(each * math.sqrt(2))) for each in (0.089, 0.20, 0.40)),
        noise("cores 15 % apart", sticky(0.15, 0.5), 0.02),
        noise("cores 15 % apart that stick", sticky(0.15, 0.9), 0.02),
    ]


def _two_speeds(rows: int, pairs: int, rng: np.random.Generator) -> Floats:
    slow = rng.random((rows, pairs)) < 0.15
    values: Floats = rng.standard_normal((rows, pairs)) * np.where(slow, 3.0, 1.0) / math.sqrt(0.85 + 0.15 * 9)
    return values


def _correlated(rows: int, pairs: int, rng: np.random.Generator, by: float) -> Floats:
    values = rng.standard_normal((rows, pairs))
    for place in range(1, pairs):
        values[:, place] = by * values[:, place - 1] + math.sqrt(1 - by**2) * values[:, place]
    return values


# -- tables ------------------------------------------------------------------------------------------------------------


def simulated(
    source: Noise,
    design: Design,
    tests: int,
    rng: np.random.Generator,
    effect: float,
    at_most: int,
    covered: bool = False,
) -> Tally:
    """The results of `tests` tests with one noise."""
    sizes = [min(CHUNK, tests - done) for done in range(0, tests, CHUNK)]
    true = math.log1p(effect) if covered else None
    parts = [judge(source.drawn(size, at_most, rng, effect), design, true) for size in sizes]
    joined = (np.concatenate([getattr(part, name) for part in parts]) for name in ("decisions", "pairs", "covered"))
    return Tally(*joined)


def false_fails(found: Sequence[Noise], tests: int, at_most: int, rng: np.random.Generator) -> Iterator[list[str]]:
    """Whole runs of K hypotheses, all with one noise, in which nothing changed, or all changed by the margin."""
    for source in found:
        cells = []
        for share in (0.0, 1.0):
            for count in HYPOTHESES:
                runs = max(LEAST_RUNS, tests // count)
                design = Design.of(source.metric, count)
                tally = simulated(source, design, runs * count, rng, share * design.limits.margin, at_most)
                failed = np.isin(tally.decisions, (REGRESSED, SUSPECT)).reshape(count, runs).any(axis=0)
                events = int(failed.sum())
                cells.append(f"{events / runs:.2%} (≤ {rates.at_most(events, runs):.2%})")
        yield [source.name, *cells]


def power(
    found: Sequence[Noise], tests: int, at_most: int, count: int, rng: np.random.Generator
) -> tuple[list[list[str]], list[list[str]]]:
    """Two tables: the decisions of the tests; the pairs that they need, and how often their intervals are right."""
    decisions, needed = [], []
    for source in found:
        design = Design.of(source.metric, count)
        tallies = [simulated(source, design, tests, rng, effect, at_most, covered=True) for effect in EFFECTS]
        decisions.append([source.name, *(_decisions(each) for each in tallies)])
        needed.append([source.name, *(_needed(each) for each in tallies)])
    return decisions, needed


def beyond_what_is_stated(tests: int, at_most: int, hypotheses: int, rng: np.random.Generator) -> Iterator[list[str]]:
    """Single tests with hard noise: failed / passed, median of the pairs; coverage."""
    for source in hard():
        design = Design.of(source.metric, hypotheses)
        tallies = [simulated(source, design, tests, rng, effect, at_most, covered=True) for effect in HARD_EFFECTS]
        yield [
            source.name,
            *(f"{_decisions(each)}, {np.median(each.pairs):.0f}; {each.covered.mean():.0%}" for each in tallies),
        ]


def _decisions(tally: Tally) -> str:
    """Failed / passed."""
    return f"{tally.share(REGRESSED, SUSPECT):.1%} / {tally.share(PASSED, IMPROVED):.1%}"


def _needed(tally: Tally) -> str:
    """Median, mean and 99 % quantile of the pairs; coverage."""
    pairs = np.median(tally.pairs), tally.pairs.mean(), np.quantile(tally.pairs, 0.99)
    return f"{pairs[0]:.0f}, {pairs[1]:.1f}, {pairs[2]:.0f}; {tally.covered.mean():.0%}"


def main() -> None:
    """Print the check; then whole runs, decisions and pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path, nargs="*")
    parser.add_argument("--tests", type=int, default=100_000, help="A/A tests per line of the whole runs")
    parser.add_argument("--power-tests", type=int, default=4_000)
    parser.add_argument("--hypotheses", type=int, default=HYPOTHESES[0], help="of the run whose power is shown")
    parser.add_argument("--at-most", type=int, default=PAIRED_ROUNDS, help="pairs (default: the product's)")
    parser.add_argument("--compared", type=int, default=600, help="series that the product judges too")
    parser.add_argument("--deviation", type=float, default=0.045, help="of the made noise (default: 0.045)")
    parser.add_argument("--hard", action="store_true", help="print the table of hard noise alone")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    if options.hard:
        check_equal(hard(), options.at_most, options.compared, rng)
        rows = beyond_what_is_stated(options.power_tests, options.at_most, options.hypotheses, rng)
        page.show(__file__, HARD, rows)
        return
    found = [noise for path in options.series for noise in measured(path.stem, series.pairs(path))]
    found += made(options.deviation)
    checked = check_equal(found, options.at_most, options.compared, rng)
    print(f"the product's own judge decides the same on {checked} of {checked} series")
    page.show(__file__, FALSE_FAILS, false_fails(found, options.tests, options.at_most, rng))
    for rows in power(found, options.power_tests, options.at_most, options.hypotheses, rng):
        page.show(__file__, POWER, rows)


if __name__ == "__main__":
    main()
