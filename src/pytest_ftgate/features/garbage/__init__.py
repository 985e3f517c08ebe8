"""Feature: the cyclic garbage collector: how often it runs, for how long, and what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...hookspec import hookimpl

if TYPE_CHECKING:
    from ...judge.metrics import MetricRow


@hookimpl
def ftgate_metrics() -> Sequence[MetricRow]:
    """Numbers a call of the body, and the time that collections take."""
    from ...judge.metrics import MetricRow, is_workload, of_observed
    from ...model.verdict import Limits

    row = MetricRow(
        "collections",
        "number",
        of_observed(lambda launch: launch.per_call("gc collections")),
        "observed",
        scale="difference",
        paired=Limits(0.10, 0.25, 0.01),
        apart=Limits(0.15, 0.40, 0.01),
        spread=0.1,
        between=0.1,
        applies=is_workload,
        beside="time",
        observer=str(Path(__file__).with_name("counts.py")),
        meaning="runs of the cyclic garbage collector per call of the body",
    )
    # What times collections disturbs their number, see docs/guides/libraries.md.
    pauses, share = str(Path(__file__).with_name("pauses.py")), Limits(0.25, 0.5, 0.01)
    return (
        row,
        row._replace(
            name="garbage",
            read=of_observed(lambda launch: launch.per_call("gc objects")),
            paired=Limits(0.10, 0.25, 1.0),
            apart=Limits(0.15, 0.40, 1.0),
            meaning="objects that these collections found in reference cycles, per call of the body",
        ),
        row._replace(
            name="gc_time",
            observer=pauses,
            unit="share",
            read=of_observed(lambda launch: launch.ratio("gc pauses", "gc span")),
            paired=share,
            apart=share,
            spread=0.15,
            between=0.15,
            meaning="the part of the workers' time in which a collection runs",
        ),
        row._replace(
            name="gc_pause",
            observer=pauses,
            unit="time",
            read=of_observed(lambda launch: launch.peaks.get("gc pause")),
            paired=Limits(0.25, 0.5, 0.0001),
            apart=Limits(0.25, 0.5, 0.0001),
            spread=0.3,
            between=0.1,
            meaning="the longest collection in a launch, 0 if there was none",
        ),
    )
