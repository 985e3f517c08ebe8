"""Workers as processes of one start method."""

from __future__ import annotations

import os
from signal import Signals

from ..stacks import stack_file
from ..worker import serve_process, worker_name
from .base import others_cpu_ns, process_map
from .pipes import Hub, PipeWorkers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loading import Setup


class ProcessWorkers(PipeWorkers):
    """Processes of one start method."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool, context: Any) -> None:
        super().__init__(setup, shared, fresh)
        self.context = context
        self.go: tuple[Any, ...] = ()
        self.writers: list[Any] = []
        self.stack_files: list[Any] = []

    def build(self) -> Hub:
        """As in the base class, with the pipes wrapped as connections, which every start method can hand over."""
        from multiprocessing.connection import Connection

        hub = self.hub = Hub(self.setup)
        # A connection closes its descriptor when it goes: workers get duplicates, the hub keeps its own.
        self.go = tuple(Connection(os.dup(pipe[0]), writable=False) for pipe in hub.go)
        self.writers = [Connection(os.dup(pipe[1]), readable=False) for pipe in hub.reports]
        if self.setup["stacks"]:  # opened here, where nothing is timed
            names = [worker_name(self.setup, index) for index in range(self.setup["workers"])]
            self.stack_files = [Connection(stack_file(self.setup, name), readable=False) for name in names]
        self.workers = [self.make(index, hub) for index in range(self.setup["workers"])]
        return hub

    def make(self, index: int, hub: Hub) -> Any:
        stack_file = self.stack_files[index] if self.stack_files else None
        args = (self.setup, index, self.go, self.writers[index], stack_file, self.shared, self.fresh)
        return self.context.Process(target=serve_process, args=args, name=worker_name(self.setup, index))

    def threads_of(self, worker: Any) -> list[int]:
        """All threads of its process: an import may have started some."""
        try:
            return [int(number) for number in os.listdir(f"/proc/{worker.pid}/task")]
        except OSError:  # no such folder on this system, or no such process any more
            return [worker.pid]

    def started(self, hub: Hub) -> None:
        """From here on the hub notices a worker that dies."""
        hub.sentinels = [worker.sentinel for worker in self.workers]
        hub.dead = self._death

    def ended(self, hub: Hub) -> None:
        """Raises Failure where a worker process was ended for a thread that goes on."""
        if any(worker.exitcode for worker in self.workers):
            hub.late()

    def others_cpu_ns(self) -> int:
        """As in the base class, without the workers: each reports its own, also where the forkserver waits for it."""
        return others_cpu_ns([worker.pid for worker in self.workers], with_ended=False)

    def process_map(self) -> dict[str, Any]:
        return process_map(worker.pid for worker in self.workers)

    def abandon(self) -> None:
        """After an error: kill the processes, whatever they wait for."""
        for worker in self.workers:
            if worker.pid is not None:  # else it has not been started
                worker.kill()
                worker.join()
        self._drop()

    def _death(self, index: int) -> str:
        worker = self.workers[index]
        worker.join(1)
        code = worker.exitcode
        if code is not None and code < 0:
            names = {int(signal): signal.name for signal in Signals}  # a real-time signal has none
            return f"was killed by {names.get(-code, f'signal {-code}')}"
        return f"exited with code {code} before it had reported"

    def _drop(self) -> None:
        for connection in (*self.go, *self.writers, *self.stack_files):
            connection.close()
        self.go, self.writers, self.stack_files = (), [], []
        super()._drop()
