"""What a smaller bound of the noise, or a known spread, would gain: pairs to a failure, and false alarms.

    python benchmarks/verdicts/bounds.py [--runs 5000]

A failure is judged at 1.5 times the stated spread of a pair. By made noise this shows, for smaller bounds, and for a
spread that is the true one (the most that learning it from other cells or from history could give), the median of the
pairs after which +10 % fails, and of whole runs of 8 hypotheses how many fail although nothing changed, and although
all changed by the margin. The judge and the noise are those of simulate.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import page
import simulate
from simulate import REGRESSED, SUSPECT, Design, Noise

from pytest_ftgate.judge.judge import PAIRED_ROUNDS
from pytest_ftgate.kit.values import Metric

HYPOTHESES = 8
NOISES = (0.03, 0.045, 0.09)
"""Standard deviations of pairs: one busy process 0.03 to 0.05, short forks beside more 0.09."""
BOUNDS = (1.5, 1.25, 1.0)
COLUMNS = ("noise", "stated, 1.5", "stated, 1.25", "stated, 1", "true, 1.5", "true, 1.25", "true, 1")


def rows(runs: int) -> Iterator[list[str]]:
    """Each noise with the stated spread and with the true one, at each bound."""
    rng = np.random.default_rng(1)
    for deviation, noise in ((each, noise) for each in NOISES for noise in simulate.made(each)[:4]):
        product = Design.of(Metric.WALL, HYPOTHESES)
        designs = [replace(product, spread=each, bound=by) for each in (product.spread, deviation) for by in BOUNDS]
        yield [noise.name, *(_shown(noise, design, runs, rng) for design in designs)]


def _shown(noise: Noise, design: Design, runs: int, rng: np.random.Generator) -> str:
    """`13; 0.00 %, 0.04 %`: the pairs to a failure; the runs that fail unchanged, and at the margin."""
    power = simulate.simulated(noise, design, 2000, rng, 0.10, PAIRED_ROUNDS)
    shares = []
    for effect in (0.0, design.limits.margin):
        tally = simulate.simulated(noise, design, runs * HYPOTHESES, rng, effect, PAIRED_ROUNDS)
        failed = np.isin(tally.decisions, (REGRESSED, SUSPECT)).reshape(HYPOTHESES, runs).any(axis=0)
        shares.append(f"{100 * failed.mean():.2f} %")
    return f"{np.median(power.pairs[power.decisions == REGRESSED]):.0f}; {', '.join(shares)}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5000, help="whole runs of each row (default: 5000)")
    page.show(__file__, COLUMNS, rows(parser.parse_args().runs))


if __name__ == "__main__":
    main()
