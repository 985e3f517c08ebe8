"""The noise of pairs of launches: how the log-ratio of both sides scatters over pairs, by estimator and cell.

    python benchmarks/verdicts/spread.py .ftgate/verdicts/wall.jsonl

For each cell and each estimator within a pair (a quantile of the iterations of both sides; `paired`: the median of the
ratios of single iterations): mean, standard deviation, robust standard deviation (1.4826 x the median absolute
deviation), lag-1 autocorrelation and excess kurtosis of the A/A pairs' log-ratios. The p-value of the autocorrelation
is that of a sign-flip test: which of two equal launches is called changed was drawn, so each sign may be drawn again;
the share of draws with as large a correlation. `factor` is the standard deviation over that which the product expects
(its spread, and the standard errors that the iterations show). Then: the standard deviation of
`paired` if each pair had had fewer iterations; the effect of being started second, or second in an iteration, with the
standard error of the mean; and the measured size of the injected effects.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path

import numpy as np
import series
from scipy.stats import kurtosis, median_abs_deviation
from series import ESTIMATORS, PAIRED, Estimator, Floats, Pair

from pytest_ftgate.judge import metrics
from pytest_ftgate.stats import rank_tests
from pytest_ftgate.stats.rank_tests import location


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


def row(name: str, values: Floats) -> str:
    """One line of the table."""
    robust = float(median_abs_deviation(values, scale="normal"))
    figures = f"{100 * values.mean():+7.2f} {100 * values.std(ddof=1):7.2f} {100 * robust:7.2f}"
    return f"  {name:8s} {figures} {lag(values):+7.2f} {flipped(values):6.3f} {float(kurtosis(values)):+8.1f}"


def show(cell: str, found: list[Pair]) -> None:
    """Print the table of one cell."""
    same = [pair for pair in found if not pair.effect]
    seconds = statistics.fmean(pair.seconds for pair in found)
    iterations = len(found[0].reference.wall_ns)
    middle = statistics.median(statistics.median(pair.reference.wall_ns) for pair in found) / 1e6
    print(f"{cell}: {len(same)} A/A pairs of {iterations} iterations, {middle:.2f} ms each, {seconds:.2f} s a pair")
    print("  within     mean %    sd %  robust  lag-1      p  kurtosis")
    for name, estimator in ESTIMATORS.items():
        print(row(name, series.log_ratios(same, estimator)))
    print(_factor(same))
    print(_by_iterations(same, iterations))
    print(_by_place(same))
    for effect in sorted({pair.effect for pair in found} - {0}):
        print(_reached(effect, [pair for pair in found if pair.effect == effect]))


def _factor(same: list[Pair]) -> str:
    """How far the pairs scatter, over what the product expects of them."""
    shifts = np.array([rank_tests.paired_shift(pair.changed.wall_ns, pair.reference.wall_ns) for pair in same])
    spread = metrics.row("wall").spread
    scores = (shifts[:, 0] - np.median(shifts[:, 0])) / np.sqrt(spread**2 + shifts[:, 1] ** 2)
    within = math.sqrt(float((shifts[:, 1] ** 2).mean()))
    return (
        f"  within pairs {within:.2%}, factor {rank_tests.gini_deviation(scores):.2f}, largest {abs(scores).max():.1f}"
    )


def _by_iterations(same: list[Pair], iterations: int) -> str:
    """The noise for fewer iterations per pair: what remains with many iterations is noise between pairs."""
    ratios = np.array([np.log(pair.changed.wall_ns) - np.log(pair.reference.wall_ns) for pair in same])
    counts = [count for count in (5, 10, 20, 30, 50, 100) if count < iterations] + [iterations]
    shown = (f"{count}: {100 * np.median(ratios[:, :count], axis=1).std(ddof=1):.2f} %" for count in counts)
    return "  paired, sd by iterations  " + "   ".join(shown)


def _by_place(same: list[Pair]) -> str:
    """The cost of being started second, and of being second in an iteration."""
    logs = series.log_ratios(same, PAIRED)
    started = np.array([1 if pair.started == "r" else -1 for pair in same]) * logs
    iteration = np.concatenate([_second(pair) for pair in same])
    shown = (
        f"{name} {100 * x.mean():+.2f} % +- {100 * x.std() / math.sqrt(len(x)):.2f}"
        for name, x in (("started", started), ("in an iteration", iteration))
    )
    return "  being second:  " + "   ".join(shown)


def _second(pair: Pair) -> Floats:
    signs = np.array([1 if first == "r" else -1 for first in pair.order])
    logs: Floats = signs * (np.log(pair.changed.wall_ns) - np.log(pair.reference.wall_ns))
    return logs


def _reached(effect: float, found: list[Pair]) -> str:
    dose = found[0].doses[1] / found[0].doses[0] - 1
    line = f"  injected {effect:+.0%}, {dose:+.1%} in the loop; {len(found)} pairs, 95 %:"
    return line + "".join(f"  {name} {_located(found, ESTIMATORS[name])}" for name in ("q10", "paired", "q90"))


def _located(found: list[Pair], estimator: Estimator) -> str:
    at = location(series.log_ratios(found, estimator), 0.95)
    low, value, high = (100 * np.expm1(bound) for bound in (at.low, at.value, at.high))
    return f"{value:+.1f} % [{low:+.1f}, {high:+.1f}]"


def main() -> None:
    """Print a table per cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path)
    found = series.pairs(parser.parse_args().series)
    for cell in sorted({pair.cell for pair in found}):
        show(cell, [pair for pair in found if pair.cell == cell])


if __name__ == "__main__":
    main()
