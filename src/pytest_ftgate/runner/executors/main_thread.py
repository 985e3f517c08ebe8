"""Workers in the main thread: one after another, and what tasks share with them."""

from __future__ import annotations

import os
from time import process_time_ns

from .. import loading
from ..clock import ended_cpu_ns, now_ns
from ..orders import END, SETUP, TEARDOWN, Order
from ..protocol import raise_first_error
from ..worker import Worker, collect_garbage, make_worker, run
from .base import Observer, StandingTimes, carry_out, observe_barrier, others_cpu_ns, process_map

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loading import Setup
    from ..setups import WorkerSetups
    from .base import Outcome


class MainThreadWorkers(StandingTimes):
    """Workers in the main thread; `work` is their part of an iteration, which starts tasks anew in any case."""

    loop: Any = None
    """Runs the coroutines of setups if the workers are tasks."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool) -> None:
        self.setup = setup
        self.shared = shared
        self.fresh = fresh
        self.workers: list[Worker] = []
        self.setups: list[WorkerSetups] = []

    def work(self, order: Order, observer: Observer) -> Outcome:
        """Release the workers and wait for them."""
        raise NotImplementedError

    def iteration(self, order: Order, observer: Observer) -> Outcome:
        if self.fresh or not self.workers:
            self.workers = [make_worker(self.setup, index, self.shared) for index in range(self.setup["workers"])]
            found = (loading.body(self.setup).surroundings(worker, self.loop) for worker in self.workers)
            self.setups = [each for each in found if each]
        raise_first_error(carry_out(self.setups, observer, SETUP))
        collect_garbage(order)
        times, reports, led = self.work(order, observer)
        observer.done(self)
        ended = carry_out(self.setups, observer, TEARDOWN)
        observe_barrier(order, observer, self)
        if self.fresh:
            ended += carry_out(self.setups, observer, END)
        raise_first_error(reports)
        raise_first_error(ended)
        return times, reports, led

    def process_map(self) -> dict[str, Any]:
        return process_map((), main_works=True)

    def close(self) -> None:
        """Let what has been set up be torn down."""
        raise_first_error(carry_out(self.setups, Observer(), TEARDOWN | END))


class SerialWorkers(MainThreadWorkers):
    """The workers run one after another in the main thread."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool) -> None:
        super().__init__(setup, shared, fresh)
        if setup["cpus"]:
            os.sched_setaffinity(0, setup["cpus"])  # of this thread alone, which is the worker

    def work(self, order: Order, observer: Observer) -> Outcome:
        """A window is split between the workers."""
        body = loading.body(self.setup)
        part = Order(order.loops, order.window_ns // len(self.workers), order.flags)
        observer.releasing(self)
        cpu_ns = -others_cpu_ns() - ended_cpu_ns() - process_time_ns()
        begin_ns = now_ns()
        if not order.loops:  # held: the first calls are over before anybody looks
            self._run(body, Order(1, 0, order.flags))
        observer.released(self)
        reports = self._run(body, part)
        cpu_ns = max(0, cpu_ns + process_time_ns() + ended_cpu_ns() + others_cpu_ns())
        for report in reports:  # rates of workers that run one after another add up only over all of it
            report["begin_ns"], report["end_ns"] = reports[0]["begin_ns"], reports[-1]["end_ns"]
        times = {"start_ns": 0, "work_ns": reports[-1]["end_ns"] - begin_ns, "join_ns": 0, "cpu_ns": cpu_ns}
        return times, reports, reports

    def _run(self, body: loading.Body, order: Order) -> list[dict[str, Any]]:
        """The workers' reports. Raises the first error: the workers after it do not begin."""
        reports = []
        loops = [each.loop for each in self.setups] or [None] * len(self.workers)
        for worker, loop in zip(self.workers, loops, strict=True):
            reports.append(run(body, worker, order, False, loop))
            raise_first_error(reports[-1:], len(self.workers))
        return reports

    abandon = MainThreadWorkers.close
