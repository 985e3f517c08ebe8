"""Workers run one after another in the main thread."""

from __future__ import annotations

import os
from time import process_time_ns

from .. import loading
from ..clock import ended_cpu_ns, now_ns
from ..worker import Order, run
from .base import IterationResult, Observer, others_cpu_ns, raise_first_error
from .main_thread import MainThreadWorkers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loading import Setup


class SerialWorkers(MainThreadWorkers):
    """The workers run one after another in the main thread."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool) -> None:
        super().__init__(setup, shared, fresh)
        if setup["cpus"]:
            os.sched_setaffinity(0, setup["cpus"])  # of this thread alone, which is the worker

    def work(self, order: Order, observer: Observer) -> IterationResult:
        """A window is split between the workers."""
        body = loading.body(self.setup)
        part = Order(order.loops, order.window_ns // len(self.workers), order.flags)
        cpu_ns = -others_cpu_ns() - ended_cpu_ns() - process_time_ns()
        begin_ns = now_ns()
        if not order.loops:  # held: the first calls are over before anybody looks
            self._run(body, Order(1, 0, order.flags))
        observer.released(self)
        reports = self._run(body, part)
        cpu_ns = max(0, cpu_ns + process_time_ns() + ended_cpu_ns() + others_cpu_ns())
        for report in reports:  # rates of workers that run one after another add up only over all of it
            report["begin_ns"], report["end_ns"] = reports[0]["begin_ns"], reports[-1]["end_ns"]
        return IterationResult(0, reports[-1]["end_ns"] - begin_ns, 0, cpu_ns, reports)

    def _run(self, body: loading.Body, order: Order) -> list[dict[str, Any]]:
        """The workers' reports. Raises the first error: the workers after it do not begin."""
        reports = []
        loops = [each.loop for each in self.setups] or [None] * len(self.workers)
        for worker, loop in zip(self.workers, loops, strict=True):
            reports.append(run(body, worker, order, False, loop))
            raise_first_error(reports[-1:], len(self.workers))
        return reports

    abandon = MainThreadWorkers.close
