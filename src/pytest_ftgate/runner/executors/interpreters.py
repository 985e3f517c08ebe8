"""Workers as sub-interpreters, each in a thread of its own."""

from __future__ import annotations

from ..gil import gil_enabled
from ..protocol import explain
from ..worker import place, serve_interpreter
from .base import process_map, worker_thread
from .pipes import Hub, PipeWorkers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class InterpreterWorkers(PipeWorkers):
    """Sub-interpreters, each in a thread of its own."""

    def make(self, index: int, hub: Hub) -> Any:
        """A thread that creates its interpreter, runs the worker loop in it and closes it.

        Creating and closing are part of the executor's start-up and join times.
        """
        return worker_thread(self.setup, index, self._run, index, hub)

    def process_map(self) -> dict[str, Any]:
        """The workers are threads of this process; with the GIL, each interpreter has its own."""
        return process_map((), self.workers, own_gils=gil_enabled())

    def _run(self, index: int, hub: Hub) -> None:
        from concurrent.interpreters import create  # type: ignore[import-not-found, unused-ignore]

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
