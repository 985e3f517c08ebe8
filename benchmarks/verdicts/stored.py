"""Error rates of a comparison with stored recordings alone, by simulation with the product's own functions.

    python benchmarks/verdicts/stored.py [--tries 2000] [--seed 7]

The time of one cell over its control is compared with R recordings of 12 launches each. Recordings, and the new run,
differ by 2, 4 or 8 % (standard deviation of the log), the launches of one by 5 %. New launches follow until the screen
decides; what is not `passed` is a miss, which a run measures beside the recorded commit. `failed` is what a prediction
fails alone, where that commit cannot be measured. `busy` is one more process on two cores during the new run: it moves
the ratio to the control by -13 %, and the conditions that the run sees put its verdict in doubt; `believed` is what
would pass without that doubt.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import NamedTuple

import numpy as np

from pytest_ftgate.judge import decide, disturbance, judge, prediction, thresholds
from pytest_ftgate.model import Comparison, Conditions, Decision, Metric, MetricVerdict
from pytest_ftgate.stats import alpha_spending

RECORDINGS = (1, 2, 5, 10)
BETWEEN = (0.02, 0.04, 0.08)
USUAL = 0.04
CHANGES = (0.0, 0.05, 0.10, 0.15, 0.25, 0.50)
WITHIN = 0.05
STORED_LAUNCHES = 12
BUSY_SHIFT = -0.13
QUIET, BUSY = Conditions(cores=2, others=0.0), Conditions(cores=2, others=1.0)
PASSES = (Decision.PASSED, Decision.IMPROVED)
HYPOTHESES = 8
ALPHA, BETA = decide.split_alpha(0.01, alpha_spending.BETA, HYPOTHESES)


class Rates(NamedTuple):
    """Of tries with the same truth: the shares of decisions, and the mean number of new launches."""

    passed: float
    failed: float
    believed: float
    launches: float


def simulated(recordings: int, between: float, change: float, busy: bool, tries: int, seed: int) -> Rates:
    """The rates at one truth."""
    rng = np.random.default_rng([seed, recordings, round(1000 * between), round(1000 * change), busy])
    found: Counter[str] = Counter()
    for _ in range(tries):
        stored = [_launches(rng, between, 0.0) for _ in range(recordings)]
        new = _launches(rng, between, np.log1p(change) + (np.log1p(BUSY_SHIFT) if busy else 0.0))
        verdict = _screened(new, stored)
        doubted = _doubted(verdict, BUSY if busy else QUIET)
        assert judge.missed(doubted) is (doubted.decision not in PASSES)
        found["launches"] += verdict.launches
        found["passed"] += doubted.decision in PASSES
        found["failed"] += doubted.decision is Decision.REGRESSED
        found["believed"] += verdict.decision in PASSES
    return Rates(*(found[name] / tries for name in Rates._fields))


def _launches(rng: np.random.Generator, between: float, shift: float) -> tuple[float, ...]:
    """The values of the launches of one run."""
    logs = rng.normal(shift + rng.normal(0.0, between), WITHIN, STORED_LAUNCHES)
    return tuple(np.exp(logs).tolist())


def _screened(new: tuple[float, ...], stored: list[tuple[float, ...]]) -> MetricVerdict:
    """The verdict at the first number of launches that is enough."""
    limits = thresholds.effective(Metric.WALL, "stored")
    for there in range(1, len(new) + 1):
        comparison = Comparison(
            metric=Metric.WALL,
            new=new[:there],
            reference=(),
            unit="x control",
            margin=limits.margin,
            effect=limits.effect,
            alpha=ALPHA,
            beta=BETA,
            stored=True,
            final=there == len(new),
        )
        verdict = prediction.predict(comparison, stored)
        if not verdict.more:
            return verdict
    raise AssertionError("the last launch is final")


def _doubted(verdict: MetricVerdict, conditions: Conditions) -> MetricVerdict:
    """The verdict under these conditions."""
    cell = decide.judge([verdict], basis="stored")
    return judge.doubted(cell, disturbance.unfit(conditions, "stored"), "").metrics[0]


def main() -> None:
    """Print a table of rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    truths = [(count, between, False) for count in RECORDINGS for between in BETWEEN]
    truths += [(count, USUAL, True) for count in RECORDINGS]
    found = {
        truth: [simulated(truth[0], truth[1], change, truth[2], options.tries, options.seed) for change in CHANGES]
        for truth in truths
    }
    print(f"{options.tries} tries each, alpha {ALPHA:.3g} ({HYPOTHESES} hypotheses), beta {BETA:.3g}, effect 15 %")
    for name in ("passed", "failed", "believed", "launches"):
        print(f"\n  {name:10}  recordings  differ by   " + "".join(f"{change:+8.0%}" for change in CHANGES))
        for (count, between, busy), rates in found.items():
            if busy or name != "believed":
                texts = (_text(name, getattr(each, name)) for each in rates)
                print(f"  {'busy' if busy else '':10}  {count:10}  {between:9.0%}   {''.join(texts)}")


def _text(name: str, value: float) -> str:
    return f"{value:8.1f}" if name == "launches" else f"{value:8.1%}"


if __name__ == "__main__":
    main()
