"""A thread beside the workload in each of a launch's processes, also in those that are forked."""

from __future__ import annotations

import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Beside:
    """Runs `run` in a thread of this process and of each that is forked of it, with the lock that it holds at work.

    While it is held no process forks: what the thread holds then would stay held in the child.
    """

    def __init__(self, name: str, run: Callable[[Any], None]) -> None:
        self.name = name
        self.run = run
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._pause, after_in_parent=self._go_on, after_in_child=self.begin)

    def begin(self) -> None:
        """Start the thread; a forked process has not got its parent's."""
        self.busy = threading.Lock()
        threading.Thread(target=self.run, args=(self.busy,), name=self.name, daemon=True).start()

    def _pause(self) -> None:
        self.busy.acquire()

    def _go_on(self) -> None:
        self.busy.release()
