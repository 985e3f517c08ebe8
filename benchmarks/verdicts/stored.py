"""How far recordings of unchanged code differ, and how often comparisons with them alone are wrong.

    python benchmarks/verdicts/stored.py [QUIET] [--busy FOLDER OTHERS] ... [--tries N] [--seed 7]

Without folders, drawn recordings of what computes (20000 tries, a fifth of them for changes): days lie 10 % or 1.7 %
apart, normal or with heavy tails (Student's t with 3 degrees of freedom), launches 4 %; all recordings may be of one
day, 1.3 % apart. Each cell of the table has the percentage of wall times that fail / pass.

QUIET and each FOLDER hold baselines that `pytest --ftgate-update='*'` recorded again and again, of code that did not
change: QUIET while the machine of two cores was quiet, a FOLDER while other processes kept OTHERS of them busy. Each of
1000 tries takes one of their runs as the new one and some of QUIET as its recordings, all cells together. A run has 8
launches of each cell: around its own median, scattered as the launches of all runs of the folder are. The new times are
multiplied by the change. A cell of the second table has the percentage of cells whose time is then regressed or
suspect, and of those that pass; its last column the share of whole runs without a change in which any metric fails.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import page

from pytest_ftgate.judge import comparisons, decide, limits, metrics, prediction
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.report import Conditions
from pytest_ftgate.model.verdict import Comparison, Decision, MetricVerdict
from pytest_ftgate.stats import alpha_spending
from pytest_ftgate.store import folder as store_folder

GATING = tuple(name for name in metrics.GATING if name != Metric.START)
"""Without starts: whether one gates depends on the cell, and its table of error rates is of what gates in all."""
RECORDINGS = (1, 3, 5)
LAUNCHES = 8
CORES = 2
FEWER = 5
HYPOTHESES = 60
TRIES, DRAWN_TRIES = 1000, 20_000
"""Every cell of a try counts for the shares of cells, so they need fewer tries than those of whole runs."""
LEAST = 1e-4
"""Added before a logarithm is taken, so that the log of no wait is finite."""
CHANGES = (0.0, 0.15, 0.20, 0.30, 0.50, 1.0, 2.0)
DEVIATIONS = ("recorded", "metric", "between runs", "of the median cell", "standard error", "largest")
DRAWN = ("days", "recordings", "+0 %", "+10 %", "+20 %", "+30 %", "+50 %", "+100 %")
RATES = ("new run", "recordings", "+0 %", "+15 %", "+20 %", "+30 %", "+50 %", "+100 %", "+200 %", "runs that fail")
FAILS = (Decision.REGRESSED, Decision.SUSPECT)
Launches: TypeAlias = tuple[float, ...]
Cells: TypeAlias = Mapping[tuple[str, str], Sequence[Launches]]
"""By cell and metric: the values of each run's launches."""


class Rates(NamedTuple):
    """Of tries with the same truth: shares of cells by their time, and of whole runs."""

    fails: float
    passes: float
    runs: float


def read(folder: Path) -> Cells:
    """All recordings of a folder; runs without a value of a metric have none."""
    store, found = store_folder.Store(folder.resolve(), lock_path=folder.resolve() / "lock"), {}
    for stored in store.baselines():
        for label, entries in stored.cells.items():
            for entry in entries.values():
                for name in GATING:
                    _, values = comparisons.of_recordings(entry.recordings, name)
                    found[f"{stored.test}[{label}]", name] = values
    return found


def verdict(
    name: str, new: Launches, stored: Sequence[Launches], alpha: float, moved: float, *, final: bool = True
) -> MetricVerdict:
    """The verdict on one metric."""
    allowed = limits.effective(name, "stored")
    if metrics.row(name).unit == "time":
        allowed = allowed._replace(floor=0.0)
    comparison = Comparison(
        metric=name,
        new=new,
        reference=tuple(value for each in stored for value in each),
        unit="",
        limits=allowed,
        alpha=alpha,
        beta=alpha_spending.BETA,
        recordings=tuple(stored),
        final=final,
    )
    return prediction.predict(comparison, moved)


class Runs:
    """Draws runs of unchanged code: all cells as they were in one real run, with launches of it and of its like."""

    def __init__(self, cells: Cells) -> None:
        # A single launch shows no run's median.
        known = {key: [run if len(run) > 1 else () for run in runs] for key, runs in cells.items()}
        self.logs = {key: [np.log(np.array(run) + LEAST) for run in runs] for key, runs in known.items() if any(runs)}
        self.number = max(map(len, cells.values()))
        self.around = {
            key: np.concatenate([run - np.median(run) for run in runs if len(run)]) for key, runs in self.logs.items()
        }

    def values(self, key: tuple[str, str], run: int, rng: np.random.Generator) -> Launches:
        """LAUNCHES values around the median of this run; none where it has no value."""
        known = self.logs.get(key, [])
        if run >= len(known) or not len(known[run]):
            return ()
        drawn = np.median(known[run]) + rng.choice(self.around[key], LAUNCHES)
        return tuple(np.maximum(np.exp(drawn) - LEAST, 0.0).tolist())


def rates(quiet: Runs, new_of: Runs, count: int, change: float, tries: int, seed: int, seen: Conditions) -> Rates:
    """The rates at one truth."""
    rng = np.random.default_rng([seed, count, round(1000 * change)])
    alpha = decide.split_alpha(0.01, len(quiet.logs))
    found: Counter[str] = Counter()
    for _ in range(tries if change == 0 else tries // FEWER):
        own = int(rng.integers(new_of.number))
        others = rng.permutation([each for each in range(quiet.number) if new_of is not quiet or each != own])
        decisions = {}
        for key in quiet.logs:
            new = new_of.values(key, own, rng)
            known = (run for each in others if (run := quiet.values(key, int(each), rng)))
            stored = list(itertools.islice(known, count))
            if new and len(stored) == count and (change == 0 or key[1] == Metric.WALL):
                factor = 1 + change if metrics.row(key[1]).unit == "time" else 1.0
                new = tuple(factor * value for value in new)
                moved = decide.deviation(seen, int(key[0].rpartition("-w")[2].rstrip("]")))
                decisions[key] = verdict(key[1], new, stored, alpha, moved).decision
        times = [decision for key, decision in decisions.items() if key[1] == Metric.WALL]
        found["cells"] += len(times)
        found["fails"] += sum(each in FAILS for each in times)
        found["passes"] += sum(each in (Decision.PASSED, Decision.IMPROVED) for each in times)
        found["runs"] += any(each in FAILS for each in decisions.values())
    cells = max(1, found["cells"])
    return Rates(found["fails"] / cells, found["passes"] / cells, found["runs"] / tries)


def deviations(title: str, cells: Cells) -> Iterator[list[str]]:
    """How far the medians of unchanged code differ from run to run, and what their launches explain of it."""
    for name in GATING:
        least = metrics.row(name).apart.floor if metrics.by_difference(name) else 0.0
        squares, errors, largest = [], [], (0.0, "")
        for (cell, metric), runs in cells.items():
            logs = [np.log(np.array(run) + least) for run in runs if metric == name and len(run) > 1]
            if len(logs) > 1:
                squares.append(np.var([np.median(run) for run in logs], ddof=1))
                errors.append(np.mean([run.var(ddof=1) * np.pi / 2 / len(run) for run in logs]))
                largest = max(largest, (float(np.sqrt(squares[-1])), cell.rpartition("::")[2]))
        if squares:
            roots = (float(np.sqrt(each)) for each in (np.mean(squares), np.median(squares), np.mean(errors)))
            yield [title, name, *(f"{each:.1%}" for each in roots), f"{largest[0]:.1%} ({largest[1]})"]


def drawn(apart: float, heavy: bool, one_day: bool, count: int, change: float, tries: int, seed: int) -> str:
    """The share of comparisons that fail and that pass."""
    kind = round(1000 * apart), heavy, one_day, count, round(1000 * change)
    rng, found = np.random.default_rng([seed, *kind]), Counter[Decision]()
    for _ in range(tries):
        days = apart * (rng.standard_t(3, count + 1) / np.sqrt(3) if heavy else rng.normal(0, 1, count + 1))
        if one_day:
            days = np.r_[np.full(count, days[0]), days[-1]] + rng.normal(0, 0.013, count + 1)
        *stored, new = (
            tuple(np.exp(day + rng.normal(0, 0.04, 12 if last else 5)).tolist())
            for last, day in ((number == count, day) for number, day in enumerate(days))
        )
        recordings = [tuple(itertools.chain(*stored))] if one_day else stored
        new = tuple((1 + change) * value for value in new)
        for launches in range(prediction.LEAST_LAUNCHES, prediction.MOST_LAUNCHES + 1):
            found_so = verdict(
                Metric.WALL,
                new[:launches],
                recordings,
                decide.split_alpha(0.01, HYPOTHESES),
                0.0,
                final=launches == prediction.MOST_LAUNCHES,
            )
            if not found_so.more:
                break
        found[found_so.decision] += 1
    fails = sum(found[each] for each in FAILS)
    passes = found[Decision.PASSED] + found[Decision.IMPROVED]
    return f"{100 * fails / tries:.2f} / {100 * passes / tries:.0f}"


def drawn_rows(tries: int, seed: int) -> Iterator[list[str]]:
    for title, apart, heavy, one_day in (
        ("10 % apart", 0.10, False, False),
        ("10 % apart, heavy tails", 0.10, True, False),
        ("10 % apart, recorded on one", 0.10, False, True),
        ("1.7 % apart", 0.017, False, False),
    ):
        for count in (1, 2, 3, 5, 20):
            rates = (
                drawn(apart, heavy, one_day, count, change, tries if change == 0 else tries // FEWER, seed)
                for change in (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
            )
            yield [title, str(count), *rates]


def main() -> None:
    """Print the deviations and a table of rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quiet", type=Path, metavar="QUIET", nargs="?")
    parser.add_argument("--busy", nargs=2, action="append", default=[], metavar=("FOLDER", "OTHERS"))
    parser.add_argument("--tries", type=int)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    if options.quiet is None:
        page.show(__file__, DRAWN, drawn_rows(options.tries or DRAWN_TRIES, options.seed))
        return
    options.tries = options.tries or TRIES
    read_ones = {folder.name: read(folder) for folder in (options.quiet, *(Path(name) for name, _ in options.busy))}
    each = (deviations(title, cells) for title, cells in read_ones.items())
    page.show(__file__, DEVIATIONS, itertools.chain.from_iterable(each))
    page.show(__file__, RATES, wrong(read_ones, options))


def wrong(read_ones: Mapping[str, Cells], options: argparse.Namespace) -> Iterator[list[str]]:
    """How many cells fail and pass, by the change, and how many unchanged runs fail."""
    others = {Path(name).name: float(cores) for name, cores in options.busy}
    sets = {title: Runs(cells) for title, cells in read_ones.items()}
    quiet = sets[options.quiet.name]
    for title, drawn in sets.items():
        conditions = Conditions(cores=CORES, others=others.get(title, 0.0))
        for count in RECORDINGS:
            found = [rates(quiet, drawn, count, change, options.tries, options.seed, conditions) for change in CHANGES]
            shown = (f"{100 * each.fails:.1f} / {100 * each.passes:.1f}" for each in found)
            yield [title, str(count), *shown, f"{found[0].runs:.1%}"]


if __name__ == "__main__":
    main()
