"""A pool of `concurrent.futures` that the test drives itself."""

from __future__ import annotations

import gc
from time import process_time_ns

from .. import loading
from ..clock import now_ns
from ..gil import gil_enabled
from ..worker import HOLDING, Order, Worker, run
from .base import Observer, Outcome, children_cpu_ns, park_here, raise_first_error, roles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loading import Setup


class PoolWorkers:
    """A body that drives a pool itself: it runs once a turn, in the main thread."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool, context: Any) -> None:
        self.setup = setup
        self.shared = shared
        self.fresh = fresh
        self.context = context
        self.pool: Any = None
        self.caller = Worker(0, setup["workers"], shared)

    def iteration(self, order: Order, observer: Observer) -> Outcome:
        """One iteration; reading the workers' CPU time is left out of the clock."""
        before = children_cpu_ns()  # of a kept pool, and of a Manager that outlives the turns
        gc.collect()
        before += process_time_ns()
        began = now_ns()
        if self.pool is None:
            self.pool = make_pool(self.setup, self.shared, self.context)
        body = loading.body(self.setup)
        if order.flags & HOLDING:
            body.call(self.pool)  # so that the pool's workers are there to be looked at
        went = now_ns()
        observer.released(self)
        bound = loading.Body(lambda _: body.call(self.pool), "executor", False)
        report = run(bound, self.caller, order, False)
        cpu_ns = max(0, process_time_ns() + children_cpu_ns() - before)
        park_here(order, observer, self)
        closing = now_ns()
        if self.fresh:
            self.close()
        raise_first_error([report])
        return Outcome(went - began, report["end_ns"] - went, now_ns() - closing, cpu_ns, [report])

    def roles(self) -> dict[str, Any]:
        """The main thread drives the pool and mostly waits for it, unless it works itself."""
        kind = self.setup["kind"]
        processes = getattr(self.pool, "_processes", None) or ()
        return roles(processes, main_works=kind == "serial", own_gils=kind == "interpreters" and gil_enabled())

    def close(self) -> None:
        """Shut the pool down and wait for its workers."""
        if self.pool is not None:
            self.pool.shutdown()
            self.pool = None


def make_pool(setup: Setup, shared: Any, context: Any) -> Any:
    """The cell's `concurrent.futures.Executor`. Raises Unsupported where the interpreter has none."""
    from concurrent import futures

    from .. import worker

    kind, workers = setup["kind"], setup["workers"]
    worker.shared_state = shared
    start: dict[str, Any] = {"initializer": worker.start_pool_worker, "initargs": (setup, shared)}
    if kind == "processes":
        return futures.ProcessPoolExecutor(workers, mp_context=context, **start)
    if kind == "interpreters":
        return futures.InterpreterPoolExecutor(workers, **start)  # type: ignore[attr-defined, unused-ignore]
    if kind == "threads":
        return futures.ThreadPoolExecutor(workers)
    from .inline import InlineExecutor

    return InlineExecutor()
