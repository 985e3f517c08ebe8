"""Workers as threads."""

from __future__ import annotations

from threading import Thread

from ..worker import serve, worker_name
from .base import require_threads
from .pipes import Hub, PipeWorkers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ThreadWorkers(PipeWorkers):
    """Plain `threading.Thread`s."""

    shares_memory = True

    def make(self, index: int, hub: Hub) -> Any:
        args = (self.setup, index, hub.port(index), self.shared, self.fresh, False)
        require_threads()
        name = worker_name(self.setup, index)
        return Thread(target=serve, args=args, name=name, daemon=True if self.setup["roles"] else None)
