"""The page's block of data: what its plots are drawn from, every number as it is in the report. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ...judge import compare, metrics
from ...judge.compare import OF_CONTROL
from ...judge.values import Values, values_of
from ...kit.text import COMMIT_DIGITS, plain
from ...kit.values import Interval, Metric, grouped
from ...model.report import History, Row
from ...model.sample import Launch
from ...model.verdict import Decision
from ...report import history_text as texts
from ...report.json import writable
from ...report.said import STATES

UNPLOTTED = (Decision.PASSED, Decision.UNCHANGED)
"""Decisions on a metric other than the time whose change is not plotted."""
MEMORY_POINTS = 60
"""Samples of memory of a cell that are plotted; of more, as many at even distances."""


def cells_data(rows: Sequence[Row], fails: Callable[[Row], bool]) -> list[dict[str, Any]]:
    """Each cell of a test; what was compared is read from the launches that were measured last."""
    pairs = any(row.verdict.basis == "paired" for row in rows)
    compared = values_of([replace(row, sample=(row.paired or row.sample) if pairs else None) for row in rows])
    return [_cell_data(row, values, fails(row)) for row, values in zip(rows, compared, strict=True)]


def _cell_data(row: Row, values: Values | None, fails: bool) -> dict[str, Any]:
    """One cell: what its plots show. Times in ns, sizes in bytes, shares as fractions."""
    figures, cell = row.figures, row.cell
    waits = figures.waits if figures.waits and not figures.waits.unavailable else None
    return {
        "label": cell.label or cell.nodeid,
        "decision": row.verdict.decision.value,
        "fails": fails,
        # What cells that differ in workers and parameters alone have in common: `3.14t-threads`.
        "family": "-".join([cell.target.spec, cell.executor.label, *cell.environment.words]),
        "workers": cell.workers,
        "params": {param.name: param.literal for param in cell.params},
        "figures": {name: _built(getattr(figures, name)) for name in ("wall_ns", "scaling", "serial_fraction")},
        "changes": _changes(row, values),
        "waits": {name: getattr(waits, name) for name in STATES} if waits else None,
        "memory": [] if row.sample is None else _memory(row.sample.of("memory")),
        "history": [_history(each) for each in row.history],
    }


def varied(rows: Iterable[Row]) -> tuple[str, ...]:
    """What varies between cells beside executor and target: `workers`, and parameters by name."""
    values = grouped(
        each
        for cell in (row.cell for row in rows)
        for each in [("workers", str(cell.workers)), *((param.name, param.literal) for param in cell.params)]
    )
    return tuple(name for name, found in values.items() if len({*found}) > 1)


# ---- changes


def _changes(row: Row, values: Values | None) -> dict[str, Any]:
    """What was compared, the time and each metric that decided: the interval, the limits, and the change of each pair.

    Changes are new / reference, of a share new - reference. Against recordings there are no pairs.
    """
    judged = [
        each
        for each in row.verdict.metrics
        if (each.ratio or each.points) and (each.metric == Metric.WALL or each.decision not in UNPLOTTED)
    ]
    known = [each.metric for each in row.verdict.metrics if metrics.known(each.metric)]
    sides = compare.paired(values, known) if values is not None and row.verdict.basis == "paired" else {}
    found = {}
    for each in judged:
        pairs: list[tuple[float, float]] = []
        if each.metric in sides:  # pairs after the look that decided changed nothing
            both = zip(sides[each.metric].new, sides[each.metric].reference, strict=False)
            pairs = list(both)[: each.launches or None]
        found[each.metric] = {
            "label": each.metric,
            "unit": "points" if each.points else "ratio",
            "change": _built(each.points or each.ratio),
            "allowed": each.allowed,
            "effect": each.effect,
            "pairs": [new - old if each.points else new / old for new, old in pairs if each.points or old > 0],
        }
    return found


def _built(value: Interval | float | None) -> Any:
    return msgspec.to_builtins(value) if isinstance(value, Interval) else value


# ---- memory, history


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
            {"commit": point.commit[:COMMIT_DIGITS], "at": point.recorded_at, "value": msgspec.to_builtins(point.value)}
            for point in history.points
        ],
    }


# ---- as text


def encoded(data: Any) -> str:
    """The data as JSON in ASCII that no HTML parser reads as markup; a number that JSON cannot write is null."""
    finite = writable(data, lambda _: None, plain)
    text = json.dumps(finite, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
