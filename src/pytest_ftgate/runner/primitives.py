"""The argument of `@test.shared`: the executor's own dicts, locks and queues that workers can share."""

from __future__ import annotations

from .protocol import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .loading import Setup

PRIMITIVES = ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier")
PLAIN = {"dict": dict, "list": list, "set": set}


class Context:
    """The executor as `@test.shared` sees it: `name`, `method`, and factories of objects that workers can share.

    `workers` is the number of all workers; `counts` maps each role to its number of workers (empty without roles).
    An attribute that the executor does not have raises Unsupported: its cell is then unsupported.
    """

    def __init__(self, setup: Setup, context: Any) -> None:
        """`context` is the multiprocessing context of a processes cell."""
        self.workers = setup["workers"]
        self.counts: dict[str, int] = dict(setup["roles"])
        # Workers of a library's own, in processes, share nothing.
        self.name: str = setup["name"] if setup["processes"] else setup["kind"]
        self.method: str | None = None if setup["processes"] else setup["method"]
        self._shares = "" if setup["processes"] else setup["kind"]
        self._context = context
        self._server: Any = None

    def __getattr__(self, name: str) -> Any:
        shares = self._shares
        if shares == "processes":  # a Manager's dict and list, and the start method's own locks and queues
            if name in ("dict", "list", "Namespace"):
                self._server = self._server or self._context.Manager()
                return getattr(self._server, name)
            if name in PRIMITIVES or name in ("Queue", "SimpleQueue", "JoinableQueue", "Value", "Array"):
                return getattr(self._context, name)
        elif shares == "interpreters":
            if name == "Queue":
                from concurrent.interpreters import create_queue  # type: ignore[import-not-found, unused-ignore]

                return create_queue
        elif shares and name in PLAIN:
            return PLAIN[name]
        elif shares and name in (*PRIMITIVES, "Queue"):
            from importlib import import_module

            home = import_module("asyncio" if shares == "tasks" else "queue" if name == "Queue" else "threading")
            if hasattr(home, name):  # asyncio has no RLock
                return getattr(home, name)
        raise Unsupported(
            f"{self.method or self.name} has no {name} to share: give the cell another body with @test.variant, "
            "or leave the executor out"
        )

    def close(self) -> None:
        """End the server process that holds shared objects, if there is one."""
        if self._server is not None:
            self._server.shutdown()
            self._server = None


def multiprocessing_context(kind: str, method: str | None) -> Any:
    """The multiprocessing context of a processes cell, None for others. Raises Unsupported."""
    if kind != "processes":
        return None
    import multiprocessing

    name = start_method(method)
    if name not in multiprocessing.get_all_start_methods():
        raise Unsupported(f"this platform has no start method {name!r}")
    return multiprocessing.get_context(name)


def start_method(method: str | None) -> str:
    """The start method of a cell: its own, else the one that the workload has set, else the interpreter's default."""
    import multiprocessing

    # Asked without `allow_none`, it would be set for good.
    return method or multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
