"""Feature: how often threads wait, whatever they wait for: a lock in native code or in the interpreter, too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...hookspec import hookimpl

if TYPE_CHECKING:
    from ...judge.metrics import MetricRow


@hookimpl
def ftgate_metrics() -> Sequence[MetricRow]:
    from ...judge.metrics import is_workload, observed
    from ...model.verdict import Limits

    limits, observer = Limits(0.25, 0.5, 2.0), str(Path(__file__).with_name("counts.py"))
    row = observed("switches", "number", lambda launch: launch.per_call("switches"), observer, (limits, limits))
    return (
        row._replace(
            applies=lambda cell: is_workload(cell) and cell.executor.kind != "interpreters",
            why_none="the system counts them by process",
            meaning="voluntary context switches per call of the body: how often a thread gave its core up to wait",
        ),
    )
