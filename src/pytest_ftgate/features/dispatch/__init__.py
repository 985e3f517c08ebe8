"""Feature: what a pool costs a task: dispatch, and the bytes that it pickles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...hookspec import hookimpl

if TYPE_CHECKING:
    from ...judge.metrics import MetricRow
    from ...model.sample import Launch
    from ...model.spec import Cell

POOLS = ("threads", "processes", "interpreters", "executor")


@hookimpl
def ftgate_metrics() -> Sequence[MetricRow]:
    """The time that the pool of a body adds to a task, and what it pickles of it."""
    from ...judge.metrics import observed
    from ...model.verdict import Limits

    legs, sizes = (str(Path(__file__).with_name(name)) for name in ("legs.py", "payload.py"))

    def applies(cell: Cell) -> bool:
        return cell.body == "executor" and cell.executor.kind in POOLS

    def time(
        name: str, value_of: Callable[[Launch], float | None], spread: float, meaning: str, floor_s: float = 0.00002
    ) -> MetricRow:
        row = observed(name, "time", value_of, legs, (Limits(0.25, 0.5, floor_s),) * 2)
        return row._replace(scale="cost", spread=spread, figure=True, cause="dispatch", meaning=meaning)

    rows = (
        time(
            "dispatch",
            lambda launch: launch.mean("dispatch"),
            0.2,
            "time that the pool of a body adds to a task, from submit to start and from its end to the result, without "
            "the wait for a free worker: the median over the tasks of an iteration",
        ),
        time("dispatch_p95", lambda launch: launch.mean("dispatch p95"), 0.3, "its 95th percentile"),
        time(
            "dispatch_kib",
            lambda launch: None if (mib := launch.mean("dispatch MiB")) is None else mib / 1024,
            0.3,
            "time that the pool adds to a task for each KiB of its arguments",
            floor_s=1e-7,
        )._replace(scale="difference"),
        time(
            "task_work", lambda launch: launch.mean("task work"), 0.1, "time that a task takes in its worker"
        )._replace(cause="time"),
        time(
            "task_pace",
            lambda launch: launch.mean("task pace"),
            0.1,
            "time from the first submit of an iteration to its last result, divided by its tasks",
        ),
        observed(
            "payload",
            "size",
            lambda launch: launch.ratio("payload", "payload tasks"),
            sizes,
            (Limits(0.05, 0.10, 256.0),) * 2,
        )._replace(
            spread=0.02,
            between=0.01,
            day=0.0,
            gates=True,
            gates_in=lambda cell: cell.executor.kind != "threads",
            figure=True,
            exact=True,
            cause="payload",
            meaning="bytes that the pool of a body pickles of a task: function, arguments and result; 0 for threads",
        ),
    )
    absent = "the pool has no `submit`, or its body submits nothing"
    why = "it is of the tasks of a pool, whose body takes `executor`"
    return tuple(row._replace(applies=applies, why_none=why, absent=absent) for row in rows)
