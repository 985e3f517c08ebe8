"""Pools of `concurrent.futures`, driven by the body itself."""

from __future__ import annotations

import gc
from time import process_time_ns

from .. import loading
from ..clock import now_ns
from ..gil import gil_enabled
from ..worker import HOLDING, Order, Worker, run
from .base import IterationResult, Observer, children_cpu_ns, observe_barrier, process_map, raise_first_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loading import Setup


class PoolWorkers:
    """A body that drives a pool itself: it runs once per iteration, in the main thread."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool, context: Any) -> None:
        self.setup = setup
        self.shared = shared
        self.fresh = fresh
        self.context = context
        self.pool: Any = None
        self.caller = Worker(0, setup["workers"], shared)

    def iteration(self, order: Order, observer: Observer) -> IterationResult:
        """One iteration; reading the workers' CPU time is not timed."""
        before = children_cpu_ns()  # of a kept pool, and of a Manager, which outlives the iteration
        gc.collect()
        before += process_time_ns()
        begin_ns = now_ns()
        if self.pool is None:
            self.pool = make_pool(self.setup, self.shared, self.context)
        body = loading.body(self.setup)
        if order.flags & HOLDING:
            body.call(self.pool)  # starts the pool's workers, so that they can be sampled
        released_ns = now_ns()
        observer.released(self)
        bound = loading.Body(lambda _: body.call(self.pool), "executor", False)
        report = run(bound, self.caller, order, False)
        cpu_ns = max(0, process_time_ns() + children_cpu_ns() - before)
        observe_barrier(order, observer, self)
        closing_ns = now_ns()
        if self.fresh:
            self.close()
        raise_first_error([report])
        return IterationResult(
            released_ns - begin_ns, report["end_ns"] - released_ns, now_ns() - closing_ns, cpu_ns, [report]
        )

    def process_map(self) -> dict[str, Any]:
        """The main thread drives the pool and mostly waits, except for a serial cell, where it works itself."""
        kind = self.setup["kind"]
        processes = getattr(self.pool, "_processes", None) or ()
        return process_map(processes, main_works=kind == "serial", own_gils=kind == "interpreters" and gil_enabled())

    def close(self) -> None:
        """Shut the pool down and wait for its workers."""
        if self.pool is not None:
            self.pool.shutdown()
            self.pool = None


def make_pool(setup: Setup, shared: Any, context: Any) -> Any:
    """The cell's `concurrent.futures.Executor`. Raises Unsupported where the interpreter has none."""
    from concurrent import futures

    from .. import state, worker

    kind, workers = setup["kind"], setup["workers"]
    state.shared = shared
    start: dict[str, Any] = {"initializer": worker.start_pool_worker, "initargs": (setup, shared)}
    if kind == "processes":
        return futures.ProcessPoolExecutor(workers, mp_context=context, **start)
    if kind == "interpreters":
        return futures.InterpreterPoolExecutor(workers, **start)  # type: ignore[attr-defined, unused-ignore]
    if kind == "threads":
        return futures.ThreadPoolExecutor(workers, "pool")
    from .inline import InlineExecutor

    return InlineExecutor()
