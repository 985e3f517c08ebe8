"""The executors: each crew starts its workers, releases them together, and joins them, one turn at a time."""

from __future__ import annotations

from .pool import PoolWorkers
from .serial import SerialWorkers
from .tasks import TaskWorkers
from .workers import InterpreterWorkers, ProcessWorkers, ThreadWorkers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loading import Setup


def make_workers(setup: Setup, shared: Any, fresh: bool, context: Any) -> Any:
    """The crew of a cell."""
    if setup["shape"] == "executor":
        return PoolWorkers(setup, shared, fresh, context)
    kind = setup["kind"]
    if kind == "processes":
        return ProcessWorkers(setup, shared, fresh, context)
    role_counts = {
        "serial": SerialWorkers,
        "threads": ThreadWorkers,
        "interpreters": InterpreterWorkers,
        "tasks": TaskWorkers,
    }
    return role_counts[kind](setup, shared, fresh)
