"""How often change points are found in the history of a metric, by simulation with the product's own functions.

    python benchmarks/verdicts/changes.py [--tries 1000] [--seed 7]

A history has 10 to 50 recordings of 12 launches each, of which the centre counts. Recordings differ by 2 or 4 %
(standard deviation of the log), the launches of one by 5 %, as in stored.py. `none` are unchanged histories, in which
any change is a false alarm. The others have one step in their middle: found is a change at most two recordings away
from it. `drifting` are unchanged ones whose neighbours are correlated by 0.5, which no permutation allows for.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np
import page

from pytest_ftgate.stats.change_points import change_points

LENGTHS = (10, 20, 50)
BETWEEN = (0.02, 0.04)
STEPS = (0.05, 0.10, 0.20)
WITHIN, LAUNCHES = 0.05, 12
NEAR = 2
CORRELATION = 0.5
COLUMNS = ("recordings differ by", "step", "10 recordings", "20", "50")


def history(rng: np.random.Generator, length: int, between: float, step: float, correlation: float) -> list[float]:
    """The logs of the centres of recordings, with a step in the middle."""
    shocks = rng.normal(size=length)
    for index in range(1, length):
        shocks[index] = correlation * shocks[index - 1] + math.sqrt(1 - correlation**2) * shocks[index]
    centres = between * shocks + rng.normal(size=length) * WITHIN / math.sqrt(LAUNCHES)
    centres[length // 2 :] += math.log1p(step)
    return [float(each) for each in centres]


def rate(length: int, between: float, step: float, correlation: float, tries: int, seed: int) -> float:
    """The share of histories in which a change is found: any without a step, one near it with a step."""
    rng = np.random.default_rng([seed, length, round(1000 * between), round(1000 * step), round(10 * correlation)])
    found = 0
    for number in range(tries):
        changes = change_points(history(rng, length, between, step, correlation), seed=number)
        found += any(not step or abs(index - length // 2) <= NEAR for index in changes)
    return found / tries


def rows(tries: int, seed: int) -> Iterator[list[str]]:
    """A row for each truth, with a column for each length."""
    for between in BETWEEN:
        truths = [("none", 0.0, 0.0), *((f"+{step:.0%}", step, 0.0) for step in STEPS), ("drifting", 0.0, CORRELATION)]
        for name, step, correlation in truths:
            rates = (rate(length, between, step, correlation, tries, seed) for length in LENGTHS)
            yield [f"{between:.0%}", name, *(f"{each:.1%}" for each in rates)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    page.show(__file__, COLUMNS, rows(args.tries, args.seed))


if __name__ == "__main__":
    main()
