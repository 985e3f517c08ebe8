"""The cells that a decision compares, from a run or from stored baselines, and ratios of their figures. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from statistics import fmean
from typing import NamedTuple
from zlib import crc32

from ..kit.values import Interval, Metric
from ..model.report import Figures, Row
from ..model.spec import Reuse
from ..stats import moderated
from ..store.schema import StoredCell
from . import metrics, recorded
from .readers import INTERVAL_LEVEL
from .recorded import ByRound, Source

SPREAD_BOUND = moderated.BOUND
"""Cells of unlike executors differ more from launch to launch than launches of one cell."""
MEMORY = ("pss", Metric.USS.value)
"""PSS counts a page that forked workers share once; USS leaves it out."""
_ROUNDS = 10**6
"""More than a recording has."""


class Candidate(NamedTuple):
    """One cell: its place in the test, its figures, and each launch's values.

    `counted` is the word of its worker count. `work` is how much more an iteration does than with one worker.
    """

    label: str
    executor: str
    target: str
    workers: int
    counted: str
    setting: str
    windows: bool
    work: int
    reuse: Reuse
    figures: Figures
    source: Source
    own: tuple[str, ...]

    @property
    def name(self) -> str:
        """`threads on 3.14t`; a program that runs on no interpreter by its own name."""
        return f"{self.executor} on {self.target}" if self.target else self.executor

    @property
    def keeps(self) -> bool:
        """Whether its workers start once in a launch; tasks start in each iteration."""
        return self.reuse == "pool" and not self.executor.startswith("tasks")

    @property
    def place(self) -> tuple[str, str]:
        """What it shares with the cells that were interleaved with it."""
        return self.counted, self.setting


def of_row(row: Row) -> Candidate:
    """The candidate of a row of a report."""
    cell, sample = row.cell, row.sample
    target = "" if cell.executor.kind == "command" else cell.target.spec
    windows = row.figures.ops_per_s is not None if sample is None else sample.duration_s is not None
    own = [
        f"{kind}.{name}"
        for kind, names in (
            ("timer", row.figures.timers_mean_ns),
            ("counter", row.figures.counters_per_s),
            ("peak", row.figures.peaks),
        )
        for name in sorted(names)
    ]
    latency = ["latency_p50", "latency_p95"] if row.figures.latency is not None else []
    counted, setting = _place(cell.label, cell.executor.label, target, cell.workers)
    return Candidate(
        label=cell.label,
        executor=cell.executor.label,
        target=target,
        workers=cell.workers,
        counted=counted,
        setting=setting,
        windows=windows,
        work=cell.workers if cell.body == "worker" and not windows else 1,
        reuse="fresh" if sample is None else sample.reuse,
        figures=row.figures,
        source=(lambda _: {}) if sample is None else cache(recorded.source_of(sample)),
        own=(*latency, *own),
    )


def of_stored(label: str, stored: StoredCell) -> Candidate:
    """The candidate of a stored cell: the launches of all of its recordings."""
    newest = stored.recordings[-1]
    target = label.partition(newest.executor)[0].rstrip("-")
    counted, setting = _place(label, newest.executor, target, newest.workers)

    @cache
    def source(name: str) -> ByRound:
        # The cells of one run have the same numbers of rounds, those of different runs do not.
        return {
            crc32(each.recorded_at.encode()) * _ROUNDS + order: found
            for each in stored.recordings
            for order, found in each.by_order(name).items()
        }

    def middle(name: str) -> float | None:
        return recorded.figure_of(name, stored.recordings)

    return Candidate(
        label=label,
        executor=newest.executor,
        target=target,
        workers=newest.workers,
        counted=counted,
        setting=setting,
        windows=newest.windows,
        work=newest.workers if newest.body == "worker" and not newest.windows else 1,
        reuse=newest.reuse,
        figures=Figures(cores=middle("cores"), lock_wait_share=middle(Metric.LOCK_WAIT)),
        source=source,
        own=tuple(name for name in newest.values if name.partition(".")[0] in metrics.OWN),
    )


def _place(label: str, executor: str, target: str, workers: int) -> tuple[str, str]:
    """The word of the worker count and that of the parameters: `w8`, `0.5-10`; either may be empty."""
    rest = label.removeprefix(f"{target}-" if target else "").removeprefix(executor).removeprefix("-")
    words = rest.split("-") if rest else []
    taken = _count_words(words, workers)
    return "-".join(words[:taken]), "-".join(words[taken:])


def _count_words(words: Sequence[str], workers: int) -> int:
    """How many words say the number of workers: `w8` one, `producer8-writer1` one for each role."""
    if words[:1] in ([f"w{workers}"], ["wcores"]):
        return 1
    total = 0
    for index, word in enumerate(words):
        role = re.fullmatch(r"[^\W\d]\w*?(\d+)", word)
        total += int(role[1]) if role else 0
        if role is None or total >= workers:
            return index + 1 if role and total == workers and index else 0
    return 0


# ---- estimates: the centre of logs, and half of its interval


class Estimate(NamedTuple):
    """A logarithm and half of its interval; None: no interval is known."""

    log: float
    half: float | None

    def interval(self, times: float = 1.0) -> Interval:
        """The value on its own scale, multiplied."""
        half = self.half or 0.0
        low, value, high = (times * math.exp(end) for end in (self.log - half, self.log, self.log + half))
        return Interval(value=value, low=low, high=high, level=0.0 if self.half is None else INTERVAL_LEVEL)

    def minus(self, other: Estimate) -> Estimate:
        """The ratio of two that are independent."""
        known = self.half is not None and other.half is not None
        return Estimate(self.log - other.log, math.hypot(self.half or 0, other.half or 0) if known else None)


def estimate(values: Sequence[float], metric: str) -> Estimate | None:
    """The mean of logs with an interval that borrows the metric's usual spread; None for none, or one below 0."""
    if not values or min(values) <= 0:
        return None
    logs = [math.log(value) for value in values]
    deviations = moderated.deviations(logs, (), SPREAD_BOUND * metrics.row(metric).spread)
    half = moderated.half_width(len(logs), INTERVAL_LEVEL) * math.sqrt(fmean(float(each) ** 2 for each in deviations))
    return Estimate(fmean(logs), half)


def value(side: Candidate, metric: str) -> Estimate | None:
    """A candidate's value of a metric; from its figures where its launches are not known."""
    found = estimate(list(side.source(metric).values()), metric)
    if found is not None or side.source(metric):
        return found
    shown = side.figures.of(metric)
    if isinstance(shown, Interval):
        known = shown.level > 0 and shown.low > 0
        return Estimate(math.log(shown.value), math.log(shown.high / shown.low) / 2 if known else None)
    return Estimate(math.log(shown), None) if shown else None


def wall_log(side: Candidate) -> float:
    """The log of its time, by which candidates are put in order; infinite where it is not known."""
    known = value(side, Metric.WALL)
    return known.log if known else math.inf


def ratio(side: Candidate, other: Candidate, metric: str) -> Estimate | None:
    """A candidate's value over another's: by rounds where both were interleaved."""
    own, beside = side.source(metric), other.source(metric)
    common = sorted(own.keys() & beside.keys()) if side.place == other.place else []
    if common and all(own[order] > 0 and beside[order] > 0 for order in common):
        return estimate([own[order] / beside[order] for order in common], metric)
    values = value(side, metric), value(other, metric)
    return values[0].minus(values[1]) if values[0] and values[1] else None
