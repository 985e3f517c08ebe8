"""The noise of pairs of launches: how the log-ratio of both sides scatters over pairs, by estimator and cell.

    python benchmarks/verdicts/spread.py .ftgate/verdicts/wall.jsonl

For each cell and each estimator within a pair (a quantile of either side's turns; `paired`: the median of the ratios
turn by turn): mean, standard deviation, robust standard deviation (1.4826 x the median absolute deviation), lag-1
autocorrelation and excess kurtosis of the A/A pairs' log-ratios. Then the standard deviation of `paired` had each pair
ended after fewer turns, how the side that was started first (that acted first in a turn) fared, with the standard error
of a mean, and what the injected effects came to.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path

import numpy as np
import series
from scipy.stats import kurtosis, median_abs_deviation
from series import ESTIMATORS, Pair

from pytest_ftgate.stats.rank_tests import PAIRED, Estimator, Floats, location


def lag(values: Floats) -> float:
    """The lag-1 autocorrelation; 0 where nothing varies."""
    centred = values - values.mean()
    square = float(centred @ centred)
    return float(centred[:-1] @ centred[1:]) / square if square else 0.0


def row(name: str, values: Floats) -> str:
    """One line of the table, in per cent of the time where it says %."""
    robust = float(median_abs_deviation(values, scale="normal"))
    figures = f"{100 * values.mean():+7.2f} {100 * values.std(ddof=1):7.2f} {100 * robust:7.2f}"
    return f"  {name:8s} {figures} {lag(values):+7.2f} {float(kurtosis(values)):+8.1f}"


def told(cell: str, found: list[Pair]) -> None:
    """The table of one cell."""
    same = [pair for pair in found if not pair.effect]
    seconds = statistics.fmean(pair.seconds for pair in found)
    iterations = len(found[0].reference.wall_ns)
    middle = statistics.median(statistics.median(pair.reference.wall_ns) for pair in found) / 1e6
    print(f"{cell}: {len(same)} A/A pairs of {iterations} turns, {middle:.2f} ms an iteration, {seconds:.2f} s a pair")
    print("  within     mean %    sd %  robust  lag-1  kurtosis")
    for name, estimator in ESTIMATORS.items():
        print(row(name, series.log_ratios(same, estimator)))
    print(_by_iterations(same, iterations))
    print(_by_place(same))
    for effect in sorted({pair.effect for pair in found} - {0}):
        print(_reached(effect, [pair for pair in found if pair.effect == effect]))


def _by_iterations(same: list[Pair], iterations: int) -> str:
    """The noise had each pair had fewer turns: what is left of it as they grow lies between pairs."""
    ratios = np.array([np.log(pair.changed.wall_ns) - np.log(pair.reference.wall_ns) for pair in same])
    counts = [count for count in (5, 10, 20, 30, 50, 100) if count < iterations] + [iterations]
    shown = (f"{count}: {100 * np.median(ratios[:, :count], axis=1).std(ddof=1):.2f} %" for count in counts)
    return "  paired, sd by turns  " + "   ".join(shown)


def _by_place(same: list[Pair]) -> str:
    """What being second costs: started second, and second in a turn."""
    logs = series.log_ratios(same, PAIRED)
    started = np.array([1 if pair.started == "r" else -1 for pair in same]) * logs
    iteration = np.concatenate([_second(pair) for pair in same])
    shown = (
        f"{name} {100 * x.mean():+.2f} % +- {100 * x.std() / math.sqrt(len(x)):.2f}"
        for name, x in (("started", started), ("in a turn", iteration))
    )
    return "  being second:  " + "   ".join(shown)


def _second(pair: Pair) -> Floats:
    signs = np.array([1 if first == "r" else -1 for first in pair.order])
    logs: Floats = signs * (np.log(pair.changed.wall_ns) - np.log(pair.reference.wall_ns))
    return logs


def _reached(effect: float, found: list[Pair]) -> str:
    dose = found[0].doses[1] / found[0].doses[0] - 1
    line = f"  asked {effect:+.0%}, {dose:+.1%} in the loop; {len(found)} pairs, 95 %:"
    return line + "".join(f"  {name} {_located(found, ESTIMATORS[name])}" for name in ("q10", "paired", "q90"))


def _located(found: list[Pair], estimator: Estimator) -> str:
    at = location(series.log_ratios(found, estimator), 0.95)
    low, value, high = (100 * np.expm1(bound) for bound in (at.low, at.value, at.high))
    return f"{value:+.1f} % [{low:+.1f}, {high:+.1f}]"


def main() -> None:
    """A table a cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path)
    found = series.pairs(parser.parse_args().series)
    for cell in sorted({pair.cell for pair in found}):
        told(cell, [pair for pair in found if pair.cell == cell])


if __name__ == "__main__":
    main()
