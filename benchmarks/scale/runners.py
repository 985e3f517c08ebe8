"""What a project's pull requests cost in runner minutes, by simulation: measured as a whole, or what runs changed code.

    python benchmarks/scale/runners.py [--cells 2000] [--pulls 200] [--measured 1 0.2 0.05] [--cell-s 8.25] ...

A pull request comes at a random time of the working hours. Each of its tests runs changed code with the probability
`--measured` (1: with `--ftgate-unchanged=measure`, no check is made); its cells are measured, those of the others are
checked. Shards are fresh runners, one job for each. Where a figure comes from is printed below the table.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Iterator
from typing import NamedTuple

COLUMNS = ("runners", "tests that run changed code", "runner minutes a day", "minutes to a verdict: median / 95 %")
CELLS_PER_TEST = 4
HOURS = 10


class Given(NamedTuple):
    """The figures of a project and its runners: seconds, and counts."""

    cells: int
    pulls: int
    cell_s: float
    check_s: float
    start_s: float
    job_s: float


def tests_s(given: Given, measured: float, rng: random.Random) -> list[float]:
    """Seconds that each test of a pull request takes."""
    checked_s = 0.0 if measured == 1 else given.check_s
    count = given.cells // CELLS_PER_TEST
    return [CELLS_PER_TEST * (checked_s + given.cell_s * (rng.random() < measured)) for _ in range(count)]


def spread(tests: list[float], machines: int) -> float:
    """Seconds until the last of some machines has ended, each test given to the one that is free first."""
    busy = [0.0] * machines
    for test in sorted(tests, reverse=True):
        busy[busy.index(min(busy))] += test
    return max(busy)


def on_shards(given: Given, pulls: list[list[float]], shards: int) -> tuple[float, list[float]]:
    """Runner seconds, and the seconds to each verdict."""
    own_s = given.job_s + given.start_s
    spent_s = sum(shards * own_s + sum(tests) for tests in pulls)
    return spent_s, [own_s + spread(tests, shards) for tests in pulls]


def lines(given: Given, shares: list[float], machines: list[int], seed: int) -> Iterator[str]:
    """The rows of the table."""
    for share in shares:
        rng = random.Random(f"{seed}:{share}")
        pulls = [tests_s(given, share, rng) for _ in range(given.pulls)]
        for count in machines:
            name = f"{count} shard" + "s" * (count > 1)
            spent_s, verdicts_s = on_shards(given, pulls, count)
            middle, late = (statistics.quantiles(verdicts_s, n=20)[at] / 60 for at in (9, 18))
            shown = "all, not checked" if share == 1 else f"{share:.0%}"
            yield f"| {name} | {shown} | {spent_s / 60:,.0f} | {middle:,.0f} / {late:,.0f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=2000, help=f"of the project, {CELLS_PER_TEST} of each test")
    parser.add_argument("--pulls", type=int, default=200, help=f"pull requests in the {HOURS} working hours of a day")
    parser.add_argument("--measured", type=float, nargs="+", default=[1.0, 0.2, 0.05, 0.01])
    parser.add_argument("--machines", type=int, nargs="+", default=[1, 8, 32], help="shards")
    parser.add_argument("--cell-s", type=float, default=CELL_S, help="of a cell that is measured")
    parser.add_argument("--check-s", type=float, default=CHECK_S, help="of a cell that is checked, on both sides")
    parser.add_argument("--start-s", type=float, default=START_S, help="of a run: both checkouts and environments")
    parser.add_argument("--job-s", type=float, default=JOB_S, help="of a fresh runner until pytest starts")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    given = Given(*(getattr(options, name) for name in Given._fields))
    print("| " + " | ".join(COLUMNS) + " |\n|" + " --- |" * len(COLUMNS))
    print("\n".join(lines(given, options.measured, options.machines, options.seed)))
    print(f"\n{given.cell_s:g} s of a measured cell: `four unchanged cells` of benchmarks/verdicts/time_to_verdict.py")
    print(f"{given.check_s:g} s of a checked cell, {given.start_s:g} s of a run: a commit that changes a comment, with")
    print("  2 and with 16 cells (pytest --ftgate --ftgate-against=HEAD~1), by its wall time")
    print(f"{given.job_s:g} s of a fresh runner: assumed")


CELL_S, CHECK_S, START_S, JOB_S = 33 / 4, 0.34, 7.5, 45.0

if __name__ == "__main__":
    main()
