"""The argument of `@test.shared`: the executor's own dicts, locks and queues that workers can share."""

from __future__ import annotations

from .protocol import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .loading import Setup

PRIMITIVES = ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier")


class Context:
    """The executor as `@test.shared` sees it: `name`, `method`, and factories of objects that workers can share.

    `workers` is the number of all workers; `counts` maps each role to its number of workers (empty without roles).
    An attribute that the executor does not have raises Unsupported: its cell is then unsupported.
    """

    def __init__(self, name: str, method: str | None = None) -> None:
        self.name = name
        self.method = method
        self.workers = 1
        self.counts: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        raise Unsupported(
            f"{self.method or self.name} has no {name} to share: give the cell another body with @test.variant, "
            "or leave the executor out"
        )

    def close(self) -> None:
        """End the server process that holds shared objects, if there is one."""


class ThreadObjects(Context):
    """Threads and serial workers share plain objects and the primitives of `threading`."""

    def __getattr__(self, name: str) -> Any:
        if name in PRIMITIVES:
            import threading

            return getattr(threading, name)
        if name in ("dict", "list", "set"):
            return {"dict": dict, "list": list, "set": set}[name]
        if name == "Queue":
            import queue

            return queue.Queue
        return super().__getattr__(name)


class TaskObjects(Context):
    """Tasks share plain objects and the primitives of `asyncio`."""

    def __getattr__(self, name: str) -> Any:
        if name in ("dict", "list", "set"):
            return {"dict": dict, "list": list, "set": set}[name]
        if name == "Queue" or (name in PRIMITIVES and name != "RLock"):
            import asyncio

            return getattr(asyncio, name)
        return super().__getattr__(name)


class ProcessObjects(Context):
    """Processes share a Manager's dict and list, and the start method's own locks and queues."""

    def __init__(self, name: str, method: str | None, context: Any) -> None:
        super().__init__(name, method)
        self._context = context
        self._server: Any = None

    def __getattr__(self, name: str) -> Any:
        if name in ("dict", "list", "Namespace"):
            return getattr(self._manager(), name)
        if name in PRIMITIVES or name in ("Queue", "SimpleQueue", "JoinableQueue", "Value", "Array"):
            return getattr(self._context, name)
        return super().__getattr__(name)

    def _manager(self) -> Any:
        if self._server is None:
            self._server = self._context.Manager()
        return self._server

    def close(self) -> None:
        """Shut the Manager's server process down."""
        if self._server is not None:
            self._server.shutdown()
            self._server = None


class InterpreterObjects(Context):
    """Sub-interpreters share queues only."""

    def __getattr__(self, name: str) -> Any:
        if name == "Queue":
            from concurrent.interpreters import create_queue  # type: ignore[import-not-found, unused-ignore]

            return create_queue
        return super().__getattr__(name)


def context_of(kind: str, method: str | None) -> Any:
    """The multiprocessing context of a processes cell, None for others. Raises Unsupported."""
    if kind != "processes":
        return None
    import multiprocessing

    if method not in multiprocessing.get_all_start_methods():
        raise Unsupported(f"this platform has no start method {method!r}")
    return multiprocessing.get_context(method)


def make_shared_objects(setup: Setup, context: Any = None) -> Context:
    """What `@test.shared` gets in a cell; `context` is the multiprocessing context of a processes cell."""
    shared = Context(setup["name"]) if setup["processes"] else _of_executor(setup["kind"], setup["method"], context)
    shared.workers, shared.counts = setup["workers"], dict(setup["roles"])
    return shared


def _of_executor(kind: str, method: str | None, context: Any) -> Context:
    if kind == "processes":
        return ProcessObjects(kind, method, context)
    if kind == "interpreters":
        return InterpreterObjects(kind)
    return TaskObjects(kind) if kind == "tasks" else ThreadObjects(kind)
