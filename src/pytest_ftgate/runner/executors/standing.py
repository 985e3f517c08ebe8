"""Starts all workers of a pool of `concurrent.futures`, which by itself starts none while another is idle."""

from __future__ import annotations

import os
import select

from .. import worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..loading import Setup

LOOK_MS = 50


class StartGate:
    """Holds each worker of a pool in its initializer until all of them are there."""

    def __init__(self, setup: Setup) -> None:
        self.workers = setup["workers"]
        self.arrived, self.go = os.pipe(), os.pipe()
        self.theirs: tuple[Any, Any] = self.arrived[1], self.go[0]
        if setup["kind"] == "processes":  # of every start method: they cannot use this process's numbers
            from multiprocessing.connection import Connection

            arrived, go = map(os.dup, self.theirs)
            self.theirs = Connection(arrived, readable=False), Connection(go, writable=False)

    def start(self, pool: Any) -> None:
        """Start the workers of a pool whose initializer is `pass_gate`; where one fails, the body meets the error."""
        tasks = [pool.submit(int) for _ in range(self.workers)]
        arrived = self._all_arrive(tasks)
        os.write(self.go[1], bytes(self.workers))
        if arrived and self._all_arrive(tasks):  # else some may still read
            for descriptor in (*self.arrived, *self.go):
                os.close(descriptor)
            for end in self.theirs:
                if not isinstance(end, int):
                    end.close()

    def _all_arrive(self, tasks: Sequence[Any]) -> bool:
        """Wait for a byte of each worker; whether all came."""
        poll = select.poll()
        poll.register(self.arrived[0], select.POLLIN)
        missing = self.workers
        while missing:
            if poll.poll(LOOK_MS):
                missing -= len(os.read(self.arrived[0], missing))
            elif any(task.done() and task.exception() for task in tasks):
                return False
        return True


def pass_gate(gate: tuple[Any, Any], setup: Setup, shared: Any) -> None:
    """Initializer of a pool whose workers are all started before the body gets it."""
    arrived, go = (end if isinstance(end, int) else end.fileno() for end in gate)
    if setup["kind"] != "threads":
        worker.start_pool_worker(setup, shared)
    os.write(arrived, b".")
    os.read(go, 1)
    os.write(arrived, b".")
