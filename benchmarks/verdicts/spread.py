"""The noise of pairs of launches: how the log-ratio of both sides scatters over pairs, by estimator and cell.

    python benchmarks/verdicts/spread.py .ftgate/verdicts/wall.jsonl ...

Three tables, with a row for each series and cell. The first has the standard deviation of the A/A pairs' log-ratios, by
the estimator within a pair: a quantile of the iterations of both sides, or `paired`, the median of the ratios of single
iterations; then that of `paired` if each pair had had fewer iterations. The second describes `paired`: its robust
deviation (1.4826 x the median absolute deviation), the lag-1 autocorrelation with the p-value of a sign-flip test
(which of two equal launches is called changed was drawn, so each sign may be drawn again), the standard error that the
iterations show, how far the pairs scatter over what the product expects of them (`factor`, and the pair that lies
furthest), and what it costs to be started second, or to run second in an iteration. The third compares the measured
effect with the injected one.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import page
import series
from scipy.stats import median_abs_deviation
from series import ESTIMATORS, PAIRED, Estimator, Floats, Pair

from pytest_ftgate.judge import metrics
from pytest_ftgate.stats import rank_tests
from pytest_ftgate.stats.rank_tests import location

FEWER = (5, 10, 20)
DEVIATIONS = ("noise", "min", "q10", "q25", "median", "q75", "q90", "paired", "of 5", "of 10", "of 20")
PAIRED_COLUMNS = (
    "noise",
    "pairs",
    "an iteration",
    "a pair",
    "robust",
    "lag-1 (p)",
    "within",
    "factor (largest)",
    "started second, %",
    "second in an iteration, %",
)
INJECTED = ("noise", "injected", "in the loop", "pairs", "q10", "paired", "q90")
Cells = list[tuple[str, list[Pair]]]
"""The pairs of a cell of a series, by both names."""


def lag(values: Floats) -> float:
    """The lag-1 autocorrelation; 0 for constant values."""
    centred = values - values.mean()
    square = float(centred @ centred)
    return float(centred[:-1] @ centred[1:]) / square if square else 0.0


def flipped(values: Floats, draws: int = 10_000) -> float:
    """The one-sided p-value of the lag-1 correlation, with the signs drawn again."""
    signs = np.random.default_rng(1).integers(0, 2, (draws, len(values))) * 2 - 1
    products = np.abs(values[:-1] * values[1:]) * signs[:, :-1] * signs[:, 1:]
    return float((products.sum(axis=1) >= values[:-1] @ values[1:]).mean())


def deviations(cells: Cells) -> Iterator[list[str]]:
    """The noise by estimator, and by the number of iterations: what many leave is noise between pairs."""
    for name, found in cells:
        same = [pair for pair in found if not pair.effect]
        ratios = np.array([np.log(pair.changed.wall_ns) - np.log(pair.reference.wall_ns) for pair in same])
        by_estimator = [series.log_ratios(same, estimator) for estimator in ESTIMATORS.values()]
        by_count = [np.median(ratios[:, :count], axis=1) for count in FEWER]
        yield [name, *(f"{each.std(ddof=1):.1%}" for each in (*by_estimator, *by_count))]


def described(cells: Cells) -> Iterator[list[str]]:
    """What is known of `paired`."""
    for name, found in cells:
        same = [pair for pair in found if not pair.effect]
        logs = series.log_ratios(same, PAIRED)
        middle = statistics.median(statistics.median(pair.reference.wall_ns) for pair in found) / 1e6
        yield [
            name,
            str(len(same)),
            f"{middle:.1f} ms",
            f"{statistics.fmean(pair.seconds for pair in found):.1f} s",
            f"{median_abs_deviation(logs, scale='normal'):.1%}",
            f"{lag(logs):+.2f} ({flipped(logs):.2f})",
            *_factor(same),
            _mean(np.array([1 if pair.started == "r" else -1 for pair in same]) * logs),
            _mean(np.concatenate([_second(pair) for pair in same])),
        ]


def _factor(same: list[Pair]) -> tuple[str, str]:
    """What the iterations of pairs show, and how far the pairs scatter, over what the product expects of them."""
    shifts = np.array([rank_tests.paired_shift(pair.changed.wall_ns, pair.reference.wall_ns) for pair in same])
    spread = metrics.row("wall").spread
    scores = (shifts[:, 0] - np.median(shifts[:, 0])) / np.sqrt(spread**2 + shifts[:, 1] ** 2)
    within = math.sqrt(float((shifts[:, 1] ** 2).mean()))
    return f"{within:.1%}", f"{rank_tests.gini_deviation(scores):.2f} ({abs(scores).max():.1f})"


def _second(pair: Pair) -> Floats:
    signs = np.array([1 if first == "r" else -1 for first in pair.order])
    logs: Floats = signs * (np.log(pair.changed.wall_ns) - np.log(pair.reference.wall_ns))
    return logs


def _mean(values: Floats) -> str:
    """The mean in percent with its standard error."""
    return f"{100 * values.mean():+.1f} ± {100 * values.std() / math.sqrt(len(values)):.1f}"


def injected(cells: Cells) -> Iterator[list[str]]:
    """What was measured of each injected effect, with 95 % intervals."""
    for name, pairs in cells:
        for effect in sorted({pair.effect for pair in pairs} - {0}):
            found = [pair for pair in pairs if pair.effect == effect]
            dose = found[0].doses[1] / found[0].doses[0] - 1
            reached = [_located(found, ESTIMATORS[column]) for column in INJECTED[-3:]]
            yield [name, f"{effect:+.0%}", f"{dose:+.1%}", str(len(found)), *reached]


def _located(found: list[Pair], estimator: Estimator) -> str:
    at = location(series.log_ratios(found, estimator), 0.95)
    low, value, high = (100 * np.expm1(bound) for bound in (at.low, at.value, at.high))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path, nargs="+")
    found = {path.stem: series.pairs(path) for path in parser.parse_args().series}
    cells = [
        (f"{name}: {cell}", [pair for pair in pairs if pair.cell == cell])
        for name, pairs in found.items()
        for cell in sorted({pair.cell for pair in pairs})
    ]
    page.show(__file__, DEVIATIONS, deviations(cells))
    page.show(__file__, PAIRED_COLUMNS, described(cells))
    page.show(__file__, INJECTED, injected(cells))


if __name__ == "__main__":
    main()
