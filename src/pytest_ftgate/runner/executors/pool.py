"""Pools of `concurrent.futures`, driven by the body itself."""

from __future__ import annotations

import threading
from concurrent import futures
from time import process_time_ns

from .. import loading
from ..clock import ended_cpu_ns, now_ns
from ..gil import gil_enabled
from ..orders import HOLDING, SETUP, TEARDOWN, Order
from ..protocol import Failure, raise_first_error
from ..worker import Worker, collect_garbage, run, start_pool_worker
from .base import (
    Observer,
    StandingTimes,
    carry_out,
    observe_barrier,
    others_cpu_ns,
    own_workers,
    process_map,
    threads_are_greenlets,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..loading import Setup
    from ..setups import WorkerSetups
    from .base import Outcome

POOLS = {
    "threads": "ThreadPoolExecutor",
    "processes": "ProcessPoolExecutor",
    "interpreters": "InterpreterPoolExecutor",
}
"""The classes of `concurrent.futures` whose workers are of a kind; they start their workers as tasks come."""


class PoolWorkers(StandingTimes):
    """A body that drives a pool itself: it runs once per iteration, in the main thread."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool, context: Any) -> None:
        self.setup = setup
        self.shared = shared
        self.fresh = fresh
        self.stands = not fresh and setup["kind"] != "serial"
        """Whether it has workers that are kept."""
        self.context = context
        self.opened: Any = None
        self.others: list[Any] = []
        """The threads that were there before the pool was: none of its workers."""
        self.pool: Any = None
        """The value of `with opened`: for executors of concurrent.futures, `opened` itself."""
        self.caller = Worker(0, setup["workers"], shared)
        self.setups: list[WorkerSetups] = []

    def iteration(self, order: Order, observer: Observer) -> Outcome:
        """One iteration; reading the CPU time of other processes is not timed."""
        kind = self.setup["kind"]  # the class is imported before the start, which is timed
        executor = getattr(futures, POOLS[kind]) if kind in POOLS else InlineExecutor
        new = self.pool is None
        before = others_cpu_ns()  # of a kept pool, and of a Manager, which outlives the iteration
        collect_garbage(order)
        before += ended_cpu_ns() + process_time_ns()
        begin_ns = now_ns()
        if new:
            self._open(executor)
        body = loading.body(self.setup)
        made_ns = now_ns()
        if new and self.stands:
            self.start_ns = made_ns - begin_ns
        before += self._set_up(order, observer)
        if order.flags & HOLDING:
            body.call(self.pool)  # starts the pool's workers, so that they can be sampled
            if not order.window_ns:  # the next call has a setup of its own
                raise_first_error(carry_out(self.setups, observer, TEARDOWN))
                before += self._set_up(order, observer)
        observer.releasing(self)
        released_ns = now_ns()
        observer.released(self)
        bound = loading.Body(lambda _: body.call(self.pool), "executor", False)
        report = run(bound, self.caller, order, False)
        cpu_ns = max(0, process_time_ns() + ended_cpu_ns() + others_cpu_ns() - before)
        observer.done(self)
        ended = carry_out(self.setups, observer, TEARDOWN)
        observe_barrier(order, observer, self)
        closing_ns = now_ns()
        if self.fresh:
            self._shut_down()
        raise_first_error([report])
        raise_first_error(ended)
        phases = {"start_ns": made_ns - begin_ns, "work_ns": report["end_ns"] - released_ns}
        return {**phases, "join_ns": now_ns() - closing_ns, "cpu_ns": cpu_ns}, [report], [report]

    def process_map(self) -> dict[str, Any]:
        """The main thread drives the pool and mostly waits, except for a serial cell, where it works itself."""
        kind = self.setup["kind"]
        processes = own_workers() if self.setup["processes"] else getattr(self.pool, "_processes", None) or ()
        own_gils = kind == "interpreters" and gil_enabled()
        threads = [thread for thread in threading.enumerate() if thread not in self.others]
        return process_map(processes, threads, main_works=kind == "serial", own_gils=own_gils)

    def _set_up(self, order: Order, observer: Observer) -> int:
        """Run the test's setups; the CPU time that they took, in ns."""
        if not self.setups and (setups := loading.body(self.setup).surroundings(self.pool)):
            self.setups = [setups]
        if not self.setups:
            return 0
        spent_ns = -others_cpu_ns() - ended_cpu_ns() - process_time_ns()
        raise_first_error(carry_out(self.setups, observer, SETUP))
        collect_garbage(order)
        return spent_ns + others_cpu_ns() + ended_cpu_ns() + process_time_ns()

    def close(self) -> None:
        """Let what has been set up be torn down; shut the pool down and wait for its workers."""
        try:
            raise_first_error(carry_out(self.setups, Observer(), TEARDOWN))
        finally:
            ending_ns = now_ns()
            self._shut_down()
            if self.stands:
                self.join_ns = now_ns() - ending_ns

    def _open(self, executor: Any) -> None:
        """Make the pool, of that class; one that is kept starts all of its workers, unless its factory is the test's.

        Raises Failure where that returned something else.
        """
        from .. import state

        kind, workers = self.setup["kind"], self.setup["workers"]
        self.others = threading.enumerate()
        state.shared = self.shared
        gate = None
        options: dict[str, Any] = {}
        if self.stands and kind in POOLS and not threads_are_greenlets():
            from .standing import StartGate, pass_gate

            gate = StartGate(self.setup)
            options = {"initializer": pass_gate, "initargs": (gate.theirs, self.setup, self.shared)}
        elif kind in ("processes", "interpreters"):
            options = {"initializer": start_pool_worker, "initargs": (self.setup, self.shared)}
        if kind == "executor":
            self.opened = loading.factory(self.setup)(workers)
            if not hasattr(self.opened, "__enter__"):
                raise Failure(
                    f"the factory of executor({self.setup['name']!r}) returned {self.opened!r}: return a "
                    "concurrent.futures.Executor, or a context manager that gives one"
                )
        elif kind in POOLS:
            own = {"processes": {"mp_context": self.context}, "threads": {"thread_name_prefix": "pool"}}
            self.opened = executor(workers, **own.get(kind, {}), **options)
        else:
            self.opened = executor()
        self.pool = self.opened.__enter__()
        if gate is not None:
            gate.start(self.pool)

    def _shut_down(self) -> None:
        if self.pool is not None:
            opened, self.opened, self.pool, self.setups = self.opened, None, None, []
            opened.__exit__(None, None, None)

    def abandon(self) -> None:
        """Leave the pool without waiting for its workers; those that are processes are killed."""
        if self.pool is not None:
            for process in list((getattr(self.pool, "_processes", None) or {}).values()):
                process.kill()
            pool, self.opened, self.pool = self.pool, None, None
            if hasattr(pool, "shutdown"):
                pool.shutdown(wait=False)


class InlineExecutor(futures.Executor):
    """The executor of serial cells: runs each task at once in the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """Run `fn` now; the future is done when this returns. Source: concurrent.futures.Executor.submit."""
        future: futures.Future[Any] = futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future
