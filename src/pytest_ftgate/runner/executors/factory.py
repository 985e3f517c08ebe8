"""The executors: each crew starts its workers, releases them together, and joins them, one turn at a time."""

from __future__ import annotations

from .pool import PoolCrew
from .serial import SerialCrew
from .tasks import TaskCrew
from .workers import InterpreterCrew, ProcessCrew, ThreadCrew

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loading import Setup


def make_crew(setup: Setup, shared: Any, fresh: bool, context: Any) -> Any:
    """The crew of a cell."""
    if setup["shape"] == "executor":
        return PoolCrew(setup, shared, fresh, context)
    kind = setup["kind"]
    if kind == "processes":
        return ProcessCrew(setup, shared, fresh, context)
    crews = {"serial": SerialCrew, "threads": ThreadCrew, "interpreters": InterpreterCrew, "tasks": TaskCrew}
    return crews[kind](setup, shared, fresh)
