"""The figures of a cell: the columns of every table, and its metrics as numbers for the forms of other tools. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from ..judge import metrics
from ..judge.readers import INTERVAL_LEVEL, NO_LIMIT
from ..judge.values import Values
from ..kit import units
from ..kit.text import plain
from ..kit.values import Interval, Metric
from ..model.report import Row
from ..model.verdict import Decision, MetricVerdict
from ..stats import intervals
from . import reasons, said

SUFFIX = {"time": "ns", "size": "bytes"}
"""Base units of the metric table that a name has to say; shares are fractions, ratios and numbers have no unit."""
_ILLEGAL = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd\U00010000-\U0010ffff]")


# ---- the columns of tables


class Column(NamedTuple):
    """A column of the tables of cells: the metric that it shows, which is its heading, and the text of a value."""

    metric: str
    text: Callable[[float], str]

    def value(self, row: Row) -> float | None:
        """The figure of a cell, without its interval: what was compared, where that was."""
        verdict = judged(row, self.metric)
        figure = row.figures.of(self.metric) if verdict is None or verdict.now is None else verdict.now
        return figure.value if isinstance(figure, Interval) else figure

    def texts(self, rows: Iterable[Row]) -> list[str]:
        """The figure of each cell, and its change where that counts; empty where there is none."""
        return list(map(self._text, rows))

    def _text(self, row: Row) -> str:
        value, verdict = self.value(row), judged(row, self.metric)
        text = "" if value is None else self.text(value)
        if verdict is None or self.metric == Metric.WALL or not moved(verdict):
            return text
        return f"{text} ({said.shortened(said.change_text(verdict)).removesuffix(' points')})".lstrip()


COLUMNS = {
    each.metric: each
    for each in (
        Column(Metric.WALL, units.time),
        Column("ratio", units.ratio),
        Column("cores", units.cores),
        Column(Metric.USS, units.size),
        Column("pss", units.size),
        Column(Metric.LOCK_WAIT, units.share),
        Column(Metric.SCALING, units.ratio),
        Column(Metric.LOCK_CEILING, lambda value: units.ratio(value) if value < NO_LIMIT else ""),
        Column("ops_per_s", units.rate),
    )
}
"""The columns that tables choose from."""


def wall_interval(row: Row) -> Interval | None:
    """The interval of the wall time; None where it is not known, or so wide that it tells no reader anything."""
    wall = row.figures.wall_ns
    return None if wall is None or wall.level <= 0 or wall.vague else wall


def interval_head(rows: Iterable[Row]) -> str:
    """The heading of these intervals: with their level, where it is the same for every row."""
    levels = {units.level(interval.level) for interval in map(wall_interval, rows) if interval}
    return f"{levels.pop()} CI" if len(levels) == 1 else "CI"


def judged(row: Row, metric: str) -> MetricVerdict | None:
    return next((each for each in row.verdict.metrics if each.metric == metric), None)


def judged_wall(row: Row) -> MetricVerdict | None:
    return judged(row, Metric.WALL)


def moved(verdict: MetricVerdict) -> bool:
    """Whether a metric has changed by more than its limit, or probably."""
    worse = verdict.decision.worse or verdict.beyond
    return worse or verdict.decision in (Decision.ACCEPTED, Decision.IMPROVED)


def wall_change(row: Row, *, with_ends: bool = True) -> str:
    """The change of the wall time; empty where it was compared with nothing."""
    wall = judged_wall(row)
    text = said.change_text(wall) if wall else ""
    return text if with_ends else said.shortened(text)


# ---- metrics as numbers


class Measured(NamedTuple):
    """One metric of a cell: its row of the metric table, its estimate in the base unit, and its verdict if it has one.

    The level of an estimate without an interval is 0.
    """

    metric: metrics.MetricRow
    estimate: Interval
    verdict: MetricVerdict | None
    gates: bool
    """Whether it gates by default, or gated in this run."""

    @property
    def column(self) -> str:
        """The name with its unit, as fields of the JSON report have it: `wall_ns`, `uss_bytes`, `scaling`."""
        return "_".join(filter(None, (self.metric.name, SUFFIX.get(self.metric.unit))))

    @property
    def has_interval(self) -> bool:
        return self.estimate.level > 0 and math.isfinite(self.estimate.low) and math.isfinite(self.estimate.high)


def measured(row: Row) -> list[Measured]:
    """Every metric of a cell that has a value, in the order of the metric table, the workload's own last.

    A value is the figure of the report's table, with the interval that it has there, else that of the median over
    launches. One of the workload's own needs the launches.
    """
    verdicts = {each.metric: each for each in row.verdict.metrics}
    named = (
        ("counter", row.figures.counters_per_s),
        ("timer", row.figures.timers_mean_ns),
        ("peak", row.figures.peaks),
    )
    found, of = [], None if row.sample is None else Values(row.sample)
    for name in (*metrics.NAMES, "ratio", *(f"{kind}.{name}" for kind, values in named for name in values)):
        metric, estimate = metrics.row(name), row.figures.of(name)
        if name == "efficiency" and isinstance(estimate, float) and row.figures.scaling:
            of_scaling, part = row.figures.scaling, estimate / row.figures.scaling.value
            estimate = Interval(
                value=estimate, low=part * of_scaling.low, high=part * of_scaling.high, level=of_scaling.level
            )
        if not isinstance(estimate, Interval):
            figure = estimate
            values = tuple(of.of(name).values()) if of else ()
            if values:
                of_centre = intervals.log_interval if name == "ops_per_s" else intervals.median_interval
                interval = of_centre(values, INTERVAL_LEVEL)
                estimate = interval if figure is None else msgspec.structs.replace(interval, value=figure)
            elif figure is None or "." in name:
                continue
            else:
                estimate = Interval(value=figure, low=figure, high=figure, level=0.0)
        if math.isfinite(estimate.value):
            verdict = verdicts.get(name)
            gates = verdict is not None or (metric.gates and metric.gates_in(row.cell))
            found.append(Measured(metric, estimate, verdict, gates))
    return found


def properties(row: Row) -> list[tuple[str, str]]:
    """A cell's verdict and metrics as the properties of a test case, in text that XML can hold.

    `ftgate.wall` is for people; `ftgate.wall.ns`, `ftgate.wall.ns.low` and `ftgate.wall.ns.high` are numbers.
    """
    verdict = row.verdict
    found = [("ftgate.verdict", verdict.decision.value), ("ftgate.basis", verdict.basis)]
    if verdict.decision not in (Decision.PASSED, Decision.UNCHANGED):
        found += [("ftgate.reason", said.headline(row))]
    for each in measured(row):
        estimate, named = each.estimate, _named(each.metric.name, SUFFIX.get(each.metric.unit, "value"))
        texts = [units.estimate(each.metric.unit, estimate), f"{estimate.value:.9g}"]
        texts += [f"{estimate.low:.9g}", f"{estimate.high:.9g}"] if each.has_interval else ["", ""]
        texts += [each.verdict.decision.value, said.change_text(each.verdict)] if each.verdict else []
        found += zip(named, texts, strict=False)
    contracts = (each for each in verdict.metrics if each.contract)
    found += [("ftgate.contract", f"{each.contract}: {each.decision}: {reasons.of_metric(each)}") for each in contracts]
    return [(name, writable(text)) for name, text in found if text]


@lru_cache(maxsize=1024)  # pytest keeps the names of each cell until the end
def _named(metric: str, unit: str) -> tuple[str, ...]:
    """The names of the properties of a metric."""
    number = f"{metric}.{unit}"
    names = (metric, number, f"{number}.low", f"{number}.high", f"{metric}.verdict", f"{metric}.change")
    return tuple(writable(f"ftgate.{name}") for name in names)


def writable(text: str) -> str:
    """A text without terminal escapes; what XML cannot hold, or UTF-8, is spelled as pytest does: `#x07`, `#xFFFE`."""
    if text.isascii() and text.isprintable():  # nearly all texts
        return text
    return _ILLEGAL.sub(lambda found: f"#x{ord(found[0]):02X}", plain(text))
