"""The page's block of data: what its plots are drawn from, every number as it is in the report. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from ...judge import comparisons, metrics, readers
from ...judge.values import Values, values_of
from ...kit.text import plain
from ...kit.values import Interval, Metric, grouped
from ...model.report import Row
from ...model.spec import Cell
from ...model.verdict import Decision
from ...report.json import writable
from ...report.measured import judged_wall, wall_interval
from ...report.said import STATES, locks_allow
from ...runner.locks.sites import bounds_of

UNPLOTTED = (Decision.PASSED, Decision.UNCHANGED)
"""Decisions on a metric other than the time whose change is not plotted."""


def cells_data(rows: Sequence[Row], fails: Callable[[Row], bool]) -> list[dict[str, Any]]:
    """Each cell of a test; its pairs are read from its launches."""
    pairs = any(row.verdict.basis == "paired" for row in rows)
    compared = values_of(rows) if pairs else [None] * len(rows)
    return [_cell_data(row, values, fails(row)) for row, values in zip(rows, compared, strict=True)]


def _cell_data(row: Row, values: Values | None, fails: bool) -> dict[str, Any]:
    """One cell: what its plots show. Times in ns, shares as fractions."""
    figures, cell, judged = row.figures, row.cell, judged_wall(row)
    waits = figures.waits if figures.waits and not figures.waits.unavailable else None
    return {
        "label": cell.label or cell.nodeid,
        "decision": row.verdict.decision.value,
        "fails": fails,
        # What cells that differ in workers, parameters and variables alone have in common: `3.14t-threads`.
        "family": f"{cell.target.spec}-{cell.executor.label}",
        "settings": _settings(cell),
        "wall": figures.wall_ns
        and {
            "value": figures.wall_ns.value,
            "interval": _built(wall_interval(row)),
            "was": judged and judged.was,
        },
        "timers": figures.timers_mean_ns,
        "changes": _changes(row, values),
        "waits": {name: getattr(waits, name) for name in STATES} if waits else None,
        "gil": _gil_waits(row),
        "scaling": figures.scaling and figures.scaling.value,
        "locks": {"allow": figures.lock_ceiling, "said": text} if (text := locks_allow(row)) else None,
    }


def varied(rows: Iterable[Row]) -> tuple[str, ...]:
    """The settings that differ between cells."""
    values = grouped(each for row in rows for each in _settings(row.cell).items())
    return tuple(name for name, found in values.items() if len({*found}) > 1)


def _settings(cell: Cell) -> dict[str, str]:
    """Its number of workers, parameters and environment variables, by name."""
    words = (word.partition(":") for word in cell.environment.words)
    params = {param.name: param.literal for param in cell.params}
    return {"workers": str(cell.workers), **params, **{name: value for name, _, value in words}}


# ---- changes


def _changes(row: Row, values: Values | None) -> dict[str, Any]:
    """The time and each metric that decided: its interval, its limits, and the change of each pair.

    Changes are new / reference, of a share new - reference. Other differences have only their text. Against recordings
    there are no pairs.
    """
    judged = [
        each
        for each in row.verdict.metrics
        if (each.ratio or (each.points and metrics.row(each.metric).unit == "share"))
        and (each.metric == Metric.WALL or each.decision not in UNPLOTTED)
    ]
    known = [each.metric for each in row.verdict.metrics if metrics.known(each.metric)]
    sides = comparisons.paired(values, known) if values is not None and row.verdict.basis == "paired" else {}
    found = {}
    for each in judged:
        pairs: list[tuple[float, float]] = []
        if each.metric in sides:  # pairs after the look that decided changed nothing
            both = zip(sides[each.metric].new, sides[each.metric].reference, strict=False)
            pairs = list(both)[: each.launches or None]
        found[each.metric] = {
            "unit": "points" if each.points else "ratio",
            "change": _built(each.points or each.ratio),
            "allowed": each.allowed,
            "effect": each.effect,
            "pairs": [new - old if each.points else new / old for new, old in pairs if each.points or old > 0],
        }
    return found


def _gil_waits(row: Row) -> dict[str, Any] | None:
    """Single waits for the GIL: [from, below, share of all], and their quantiles; None where they are not known."""
    shares = readers.gil_wait_histogram(row.sample) if row.sample else {}
    bins = [[*bounds_of(bucket), share] for bucket, share in shares.items()]
    waits = row.figures.waits
    return {"bins": bins, "p50": waits.gil_p50_ns, "p95": waits.gil_p95_ns} if bins and waits else None


def _built(value: Interval | float | None) -> Any:
    return msgspec.to_builtins(value) if isinstance(value, Interval) else value


# ---- as text


def encoded(data: Any) -> str:
    """The data as JSON in ASCII that no HTML parser reads as markup; a number that JSON cannot write is null."""
    finite = writable(data, lambda _: None, plain)
    text = json.dumps(finite, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
