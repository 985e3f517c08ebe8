"""The noise of pairs of launches: how the log-ratio of both sides scatters over pairs, by cell.

    python benchmarks/verdicts/spread.py .ftgate/verdicts/wall.jsonl ...

A row for each series and cell, of the A/A pairs' log-ratios, each as the product reads a pair: the robust
deviation (1.4826 x the median absolute deviation), the lag-1 autocorrelation with the p-value of a sign-flip
test (which of two equal launches is called changed was drawn, so each sign may be drawn again), how far the pairs
scatter over what the product expects of them (`factor`, and the pair that lies furthest), and what it costs to be
started second.
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
from series import Floats, Pair

from pytest_ftgate.judge import metrics
from pytest_ftgate.stats import estimators

COLUMNS = ("noise", "pairs", "an iteration", "a pair", "robust", "lag-1 (p)", "factor (largest)", "started second, %")
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


def described(cells: Cells) -> Iterator[list[str]]:
    """The row of each cell."""
    for name, found in cells:
        same = [pair for pair in found if not pair.effect]
        shifts = np.array([estimators.paired_shift(pair.changed.wall_ns, pair.reference.wall_ns) for pair in same])
        logs = shifts[:, 0]
        scores = (logs - np.median(logs)) / np.sqrt(metrics.row("wall").spread ** 2 + shifts[:, 1] ** 2)
        middle = statistics.median(statistics.median(pair.reference.wall_ns) for pair in found) / 1e6
        second = 100 * logs * [1 if pair.started == "r" else -1 for pair in same]
        yield [
            name,
            str(len(same)),
            f"{middle:.1f} ms",
            f"{statistics.fmean(pair.seconds for pair in found):.1f} s",
            f"{median_abs_deviation(logs, scale='normal'):.1%}",
            f"{lag(logs):+.2f} ({flipped(logs):.2f})",
            f"{estimators.gini_deviation(scores):.2f} ({abs(scores).max():.1f})",
            f"{second.mean():+.1f} ± {second.std() / math.sqrt(len(same)):.1f}",
        ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", type=Path, nargs="+")
    found = {path.stem: series.pairs(path) for path in parser.parse_args().series}
    cells = [
        (f"{name}: {cell}", [pair for pair in pairs if pair.cell == cell])
        for name, pairs in found.items()
        for cell in sorted({pair.cell for pair in pairs})
    ]
    page.show(__file__, COLUMNS, described(cells))


if __name__ == "__main__":
    main()
