"""Workers as threads."""

from __future__ import annotations

from ..worker import serve
from .base import worker_thread
from .pipes import Hub, PipeWorkers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ThreadWorkers(PipeWorkers):
    """Plain `threading.Thread`s."""

    shares_memory = True

    def make(self, index: int, hub: Hub) -> Any:
        args = (self.setup, index, hub.port(index), self.shared, self.fresh, False)
        return worker_thread(self.setup, index, serve, *args)
