"""Feature: whether a neighbour can run: a thread beside the workers, and the event loop of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...hookspec import hookimpl

if TYPE_CHECKING:
    from ...judge.metrics import MetricRow


@hookimpl
def ftgate_metrics() -> Sequence[MetricRow]:
    """The longest gap and the lost share of a thread that wakes up each millisecond, and the lag of the loop."""
    from ...judge.metrics import MetricRow, is_tasks, is_workload, of_observed
    from ...model.verdict import Limits

    limits = Limits(0.25, 0.5, 0.001)
    row = MetricRow(
        "gap",
        "time",
        of_observed(lambda launch: launch.peaks.get("gap")),
        "observed",
        paired=limits,
        apart=limits,
        spread=0.2,
        between=0.1,
        applies=is_workload,
        beside="time",
        observer=str(Path(__file__).with_name("observer.py")),
        meaning="the longest time between two steps of a thread beside the workers that wakes up each millisecond; "
        "time without a core is subtracted",
    )
    share = Limits(0.25, 0.5, 0.02)
    return (
        row,
        row._replace(
            name="lag",
            read=of_observed(lambda launch: launch.peaks.get("lag")),
            scale="difference",
            applies=is_tasks,
            why_none="only tasks have an event loop of ours",
            meaning="the longest delay of a timer in the event loop of tasks; time without a core is subtracted",
        ),
        row._replace(
            name="neighbour_wait",
            unit="share",
            read=of_observed(lambda launch: launch.ratio("neighbour late", "neighbour time")),
            scale="difference",
            paired=share,
            apart=share,
            spread=0.15,
            between=0.15,
            meaning="the share of the time in which this thread is kept from running, other than by the lack of a core",
        ),
    )
