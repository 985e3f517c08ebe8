"""One worker after the other in the main thread."""

from __future__ import annotations

import gc
from time import process_time_ns

from .. import loading
from ..clock import now_ns
from ..worker import Order, Worker, make_worker, run
from .base import Observer, Outcome, park_here, raise_first_error, roles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loading import Setup


class SerialWorkers:
    """The workers one after the other in the main thread."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool) -> None:
        self.setup = setup
        self.fresh = fresh
        self.shared = shared
        self.workers: list[Worker] = []

    def iteration(self, order: Order, observer: Observer) -> Outcome:
        """One iteration; a window is split between the workers."""
        body = loading.body(self.setup)
        if self.fresh or not self.workers:
            self.workers = [make_worker(self.setup, index, self.shared) for index in range(self.setup["workers"])]
        part = Order(order.loops, order.window_ns // len(self.workers), order.flags)
        gc.collect()
        cpu_ns = -process_time_ns()
        began = now_ns()
        observer.released(self)
        reports = [run(body, worker, part, False) for worker in self.workers]
        cpu_ns += process_time_ns()
        park_here(order, observer, self)
        raise_first_error(reports)
        for report in reports:  # they share the turn one after the other: only over the whole of it do rates add up
            report["begin_ns"], report["end_ns"] = reports[0]["begin_ns"], reports[-1]["end_ns"]
        return Outcome(0, reports[-1]["end_ns"] - began, 0, cpu_ns, reports)

    def roles(self) -> dict[str, Any]:
        """The main thread works itself."""
        return roles((), main_works=True)

    def close(self) -> None:
        """Nothing is kept."""
