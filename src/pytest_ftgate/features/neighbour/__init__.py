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
    from ...judge.metrics import is_tasks, observed
    from ...model.verdict import Limits

    observer, times = str(Path(__file__).with_name("observer.py")), (Limits(0.25, 0.5, 0.001),) * 2
    gap = observed("gap", "time", lambda launch: launch.peaks.get("gap"), observer, times)
    lag = observed("lag", "time", lambda launch: launch.peaks.get("lag"), observer, times)
    late = observed(
        "neighbour_wait",
        "share",
        lambda launch: launch.ratio("neighbour late", "neighbour time"),
        observer,
        (Limits(0.25, 0.5, 0.02),) * 2,
    )
    return (
        gap._replace(
            scale="cost",
            spread=0.2,
            meaning="the longest time between two steps of a thread beside the workers that wakes up each millisecond; "
            "time without a core is subtracted",
        ),
        lag._replace(
            spread=0.2,
            applies=is_tasks,
            why_none="only tasks have an event loop of ours",
            meaning="the longest delay of a timer in the event loop of tasks; time without a core is subtracted",
        ),
        late._replace(
            spread=0.15,
            between=0.15,
            meaning="the share of the time in which this thread is kept from running, other than by the lack of a core",
        ),
    )
