"""Workers behind pipes: threads, processes and sub-interpreters."""

from __future__ import annotations

import os

from ..gil import gil_enabled
from ..worker import explain, place, serve
from .base import children_cpu_ns, roles
from .pipes import Hub, PipeWorkers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loading import Setup


class ThreadWorkers(PipeWorkers):
    """Plain `threading.Thread`s."""

    def make(self, index: int, hub: Hub) -> Any:
        """A thread that serves."""
        from threading import Thread

        args = (self.setup, index, hub.port(index), self.shared, self.fresh, False)
        return Thread(target=serve, args=args, daemon=bool(self.setup["roles"]))


class ProcessWorkers(PipeWorkers):
    """Processes of one start method."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool, context: Any) -> None:
        super().__init__(setup, shared, fresh)
        self.context = context

    def build(self) -> Hub:
        """As elsewhere; the pipes are wrapped as connections, which every start method can hand over."""
        from multiprocessing.connection import Connection

        hub = self.hub = Hub(self.setup)
        # Connections own their descriptors: what goes to a worker is a duplicate that the hub does not close.
        self.go = tuple(Connection(os.dup(pipe[0]), writable=False) for pipe in hub.go)
        self.writers = [Connection(os.dup(pipe[1]), readable=False) for pipe in hub.reports]
        self.workers = [self.make(index, hub) for index in range(self.setup["workers"])]
        return hub

    def make(self, index: int, hub: Hub) -> Any:
        """A process that serves."""
        from ..worker import serve_process

        args = (self.setup, index, self.go, self.writers[index], self.shared, self.fresh)
        return self.context.Process(target=serve_process, args=args)

    def started(self, hub: Hub) -> None:
        """From here on a dead worker is seen."""
        hub.sentinels = [worker.sentinel for worker in self.workers]
        hub.dead = self._death

    def servers_cpu_ns(self) -> int:
        """CPU time of the Manager and other processes that the workload started with multiprocessing."""
        return children_cpu_ns(worker.pid for worker in self.workers)

    def roles(self) -> dict[str, Any]:
        """The workers are processes of their own."""
        return roles(worker.pid for worker in self.workers)

    def abandon(self) -> None:
        """After an error among roles: end the processes, whatever they wait for."""
        for worker in self.workers:
            worker.kill()
            worker.join()
        self._drop()

    def _death(self, index: int) -> str:
        worker = self.workers[index]
        worker.join(1)
        code = worker.exitcode
        if code is not None and code < 0:
            import signal

            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code} before it had reported"

    def _drop(self) -> None:
        for connection in (*getattr(self, "go", ()), *getattr(self, "writers", ())):
            connection.close()
        self.go, self.writers = (), []
        super()._drop()


class InterpreterWorkers(PipeWorkers):
    """Sub-interpreters, each in a thread of its own."""

    def make(self, index: int, hub: Hub) -> Any:
        """A thread that makes its interpreter, serves in it and closes it: the executor's own cost of starting."""
        from threading import Thread

        return Thread(target=self._live, args=(index, hub), daemon=bool(self.setup["roles"]))

    def roles(self) -> dict[str, Any]:
        """The workers are threads of this process, and have GILs of their own where there are any."""
        return roles((), own_gils=gil_enabled())

    def _live(self, index: int, hub: Hub) -> None:
        from concurrent.interpreters import create  # type: ignore[import-not-found, unused-ignore]

        from ..worker import serve_interpreter

        port = hub.port(index)
        try:
            interpreter = create()
            try:
                interpreter.call(serve_interpreter, self.setup, index, port.go, port.report, self.shared, self.fresh)
            finally:
                interpreter.close()
        except BaseException as error:
            role, within, _ = place(self.setup, index)
            port.send({"index": within, "role": role, "error": explain(error)})
