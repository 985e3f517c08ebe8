"""Makes the workers of a cell."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loading import Setup


def make_workers(setup: Setup, shared: Any, fresh: bool, context: Any) -> Any:
    """The workers of a cell: an object with `iteration`, `process_map` and `close`.

    Each executor is imported only where a cell needs it: a module that is loaded counts as memory of the workload.
    """
    kind = setup["kind"]
    if setup["shape"] == "executor":
        from .pool import PoolWorkers

        return PoolWorkers(setup, shared, fresh, context)
    if kind == "processes":
        from .processes import ProcessWorkers

        return ProcessWorkers(setup, shared, fresh, context)
    if kind == "threads":
        from .threads import ThreadWorkers

        return ThreadWorkers(setup, shared, fresh)
    if kind == "interpreters":
        from .interpreters import InterpreterWorkers

        return InterpreterWorkers(setup, shared, fresh)
    if kind == "tasks":
        from .tasks import TaskWorkers

        return TaskWorkers(setup, shared, fresh)
    from .main_thread import SerialWorkers

    return SerialWorkers(setup, shared, fresh)
