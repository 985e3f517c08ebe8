"""The page's block of data: what its plots are drawn from, every number as it is in the report. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...judge import metrics
from ...judge.recorded import OF_CONTROL
from ...model import Decision, Figures, History, Interval, Launch, Metric, Row, Sample, to_builtins
from ...stats import rank_tests
from ...text import COMMIT_DIGITS
from .. import history as texts

PLOTTED = frozenset({Decision.REGRESSED, Decision.SUSPECT, Decision.IMPROVED, Decision.ACCEPTED})
"""Decisions on a metric whose launches are plotted beside those of the time."""
MEMORY_POINTS = 60
"""Samples of memory of a cell that are plotted; of more, as many at even distances."""
SHOWN = (
    "wall_ns",
    "ratio",
    "cores",
    "uss_bytes",
    "pss_bytes",
    "lock_wait_share",
    "ops_per_s",
    "scaling",
    "efficiency",
    "serial_fraction",
)
STATES = ("running", "runnable", "gil", "lock", "queue", "process", "unattributed", "asleep")


def family(row: Row) -> str:
    """What cells that differ in workers and parameters alone have in common: `3.14t-threads`."""
    cell = row.cell
    return "-".join([cell.target.spec, cell.executor.label, *cell.environment.words])


def cell_data(row: Row, fails: bool) -> dict[str, Any]:
    """One cell: its figures, and what its plots show. Times in ns, sizes in bytes, shares as fractions."""
    sample = row.paired or row.sample
    figures = row.figures
    return {
        "label": row.cell.label or row.cell.nodeid,
        "decision": row.verdict.decision.value,
        "fails": fails,
        "family": family(row),
        "workers": row.cell.workers,
        "params": {param.name: param.literal for param in row.cell.params},
        "figures": {name: _built(getattr(figures, name)) for name in SHOWN},
        "launches": {} if sample is None else _launches(row, sample),
        "waits": _waits(figures),
        "memory": [] if row.sample is None else _memory(row.sample.memory),
        "history": [_history(each) for each in row.history],
    }


def varied(rows: Iterable[Row]) -> tuple[str, ...]:
    """What varies between cells beside executor and target: `workers`, and parameters by name."""
    values: dict[str, set[str]] = {}
    for row in rows:
        values.setdefault("workers", set()).add(str(row.cell.workers))
        for param in row.cell.params:
            values.setdefault(param.name, set()).add(param.literal)
    return tuple(name for name, found in values.items() if len(found) > 1)


# ---- launches


def _launches(row: Row, sample: Sample) -> dict[str, Any]:
    """The value of each launch, of the time and of each metric that decided: the change's, and the reference's."""
    decided = [each.metric for each in row.verdict.metrics if each.decision in PLOTTED]
    names = [name for name in dict.fromkeys([Metric.WALL, *decided]) if name in metrics.TABLE or metrics.known(name)]
    found = {}
    for name in names:
        metric = metrics.row(name)
        now = _side(metric.read(sample))
        if row.paired is None and name == Metric.WALL and row.figures.wall_ns is not None:
            now["interval"] = to_builtins(row.figures.wall_ns)
        if now["values"]:
            there = {} if sample.reference is None else metric.read(sample.reference)
            found[str(name)] = {"label": metric.label, "unit": metric.unit, "now": now, "was": _side(there)}
    return found


def _built(value: Interval | float | None) -> Any:
    return to_builtins(value) if isinstance(value, Interval) else value


def _side(by_order: Mapping[int, float]) -> dict[str, Any]:
    values = [by_order[order] for order in sorted(by_order)]
    return {"values": values, "interval": _built(_interval(values))}


def _interval(values: Sequence[float]) -> Interval | None:
    """The interval of the values of launches, as the report's own of the time; None where one value is zero."""
    return rank_tests.log_interval(values) if values and min(values) > 0 else None


# ---- waits, memory, history


def _waits(figures: Figures) -> dict[str, float] | None:
    waits = figures.waits
    if waits is None or waits.unavailable:
        return None
    return {name: getattr(waits, name) for name in STATES}


def _memory(launches: Iterable[Launch]) -> list[dict[str, Any]]:
    """The samples of all memory launches in order of time: seconds since the first, and bytes by role."""
    points = sorted((point for launch in launches for point in launch.memory), key=lambda point: point.at_ns)
    step = math.ceil(len(points) / MEMORY_POINTS) or 1
    return [
        {
            "at_s": (point.at_ns - points[0].at_ns) / 1e9,
            "roles": {name: part.steadiest_bytes for name, part in point.roles.items()}
            or {"tree": point.steadiest_bytes},
        }
        for point in points[::step]
    ]


def _history(history: History) -> dict[str, Any]:
    return {
        "label": texts.label(history),
        "unit": "ratio" if history.unit == OF_CONTROL else history.unit,
        "changes": [each.index for each in history.changes],
        "texts": [texts.change(history, each) for each in history.changes],
        "points": [
            {"commit": point.commit[:COMMIT_DIGITS], "at": point.recorded_at, "value": to_builtins(point.value)}
            for point in history.points
        ],
    }


# ---- as text


def encoded(data: Any, clean: Callable[[str], str]) -> str:
    """The data as JSON in ASCII that no HTML parser reads as markup; a number that JSON cannot write is null."""
    text = json.dumps(_writable(data, clean), allow_nan=False, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _writable(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {clean(str(key)): _writable(item, clean) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_writable(item, clean) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return clean(value) if isinstance(value, str) else value
