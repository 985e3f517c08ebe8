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
    from ...judge.metrics import observed
    from ...model.verdict import Limits

    # What times collections disturbs their number, see docs/guides/libraries.md.
    counts, pauses = (str(Path(__file__).with_name(name)) for name in ("counts.py", "pauses.py"))
    return (
        observed(
            "collections",
            "number",
            lambda launch: launch.per_call("gc collections"),
            counts,
            (Limits(0.10, 0.25, 0.01), Limits(0.15, 0.40, 0.01)),
        )._replace(meaning="runs of the cyclic garbage collector per call of the body"),
        observed(
            "garbage",
            "number",
            lambda launch: launch.per_call("gc objects"),
            counts,
            (Limits(0.10, 0.25, 1.0), Limits(0.15, 0.40, 1.0)),
        )._replace(meaning="objects that these collections found in reference cycles, per call of the body"),
        observed(
            "gc_time",
            "share",
            lambda launch: launch.ratio("gc pauses", "gc span"),
            pauses,
            (Limits(0.25, 0.5, 0.01),) * 2,
        )._replace(spread=0.15, between=0.15, meaning="the part of the workers' time in which a collection runs"),
        observed(
            "gc_pause",
            "time",
            lambda launch: launch.peaks.get("gc pause"),
            pauses,
            (Limits(0.25, 0.5, 0.0001),) * 2,
        )._replace(spread=0.3, meaning="the longest collection in a launch, 0 if there was none"),
    )
