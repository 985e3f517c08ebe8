"""Feature: whether the workers of a cell share what there is: the slowest one beside the median one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..hookspec import hookimpl

if TYPE_CHECKING:
    from ..judge.metrics import MetricRow
    from ..model.sample import Columns
    from ..stats.estimators import Floats


@hookimpl
def ftgate_metrics() -> Sequence[MetricRow]:
    """The imbalance of the workers, from the timed iterations themselves."""
    from ..judge.metrics import MetricRow, is_workload
    from ..model.verdict import Limits

    return (
        MetricRow(
            "imbalance",
            "ratio",
            None,
            column=_worker_imbalances,
            paired=Limits(0.10, 0.25),
            apart=Limits(0.15, 0.40),
            spread=0.1,
            between=0.1,
            applies=lambda cell: is_workload(cell) and cell.body == "worker" and cell.workers > 1,
            why_none="it has no several workers of ours",
            meaning="time of a call of the body in the slowest worker, divided by that in the median worker",
        ),
    )


def _worker_imbalances(of: Columns) -> Floats:
    """The median over the iterations of each launch; NaN where none has several workers."""
    import numpy as np

    from ..stats import estimators

    found = of.of("slowest")
    return estimators.row_medians(np.where(found > 0, found, np.nan))
