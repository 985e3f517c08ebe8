"""Workers as asyncio tasks of one event loop."""

from __future__ import annotations

import gc
from time import process_time_ns

from .. import loading
from ..clock import now_ns
from ..worker import Order, Worker, call_async, close_report, explain, make_worker, once
from .base import (
    GRACE_S,
    Observer,
    Outcome,
    end_well,
    leaders,
    park_here,
    raise_first_error,
    roles,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loading import Setup


class TaskWorkers:
    """Tasks of one event loop."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool) -> None:
        import asyncio

        self.setup = setup
        self.shared = shared
        self.fresh = fresh
        self.workers: list[Worker] = []
        self.stop = loading.stopper(setup)
        self.runner = asyncio.Runner()

    def iteration(self, order: Order, observer: Observer) -> Outcome:
        """One iteration: start the tasks, let them go together, gather them."""
        if self.fresh or not self.workers:
            self.workers = [make_worker(self.setup, index, self.shared) for index in range(self.setup["workers"])]
        gc.collect()
        outcome: Outcome = self.runner.run(self._iteration(order, observer))
        park_here(order, observer, self)
        raise_first_error(outcome.reports)
        return outcome

    def roles(self) -> dict[str, Any]:
        """The main thread works itself."""
        return roles((), main_works=True)

    async def _iteration(self, order: Order, observer: Observer) -> Outcome:
        import asyncio

        ready, go = asyncio.Semaphore(0), asyncio.Event()
        cpu_ns = -process_time_ns()
        began = now_ns()
        running = [asyncio.create_task(self._live(worker, order, ready, go)) for worker in self.workers]
        for _ in running:
            await ready.acquire()
        went = now_ns()
        go.set()
        observer.released(self)
        if self.setup["roles"]:
            await self._end_by_role(running)
        reports = list(await asyncio.gather(*running))
        joined = now_ns()
        cpu_ns += process_time_ns()
        led = reports[: leaders(self.setup)]
        ended = max(report["end_ns"] for report in led)
        return Outcome(went - began, ended - went, joined - ended, cpu_ns, reports, led)

    async def _end_by_role(self, running: list[Any]) -> None:
        """Wait for the leaders, stop the others and wait for these; at the first error end all that goes on."""
        stopped = False
        try:
            await end_well(running[: leaders(self.setup)], running)
            stopped = True
            await self._stop()
            await end_well(running, running)
        except BaseException:
            await self._let_end(running, stopped)
            raise

    async def _stop(self) -> None:
        stopping = self.stop(self.shared)
        if hasattr(stopping, "__await__"):
            await stopping

    async def _let_end(self, running: list[Any], stopped: bool) -> None:
        """After an error: as with other crews, but that what still waits then can be ended."""
        import asyncio

        if not stopped:
            try:
                await asyncio.wait_for(self._stop(), GRACE_S)
            except Exception:
                pass  # the error that came first is the one to show
        _, going = await asyncio.wait(running, timeout=GRACE_S)
        for task in going:
            task.cancel()
        if going:
            await asyncio.wait(going, timeout=GRACE_S)

    async def _live(self, worker: Worker, order: Order, ready: Any, go: Any) -> dict[str, Any]:
        worker.forget()
        report: dict[str, Any] = {"index": worker.index, "role": worker.role, "error": None, "ops": 0}
        body = loading.body(self.setup, worker.role)
        if loading.serves(self.setup, worker.role):
            order = once(order)
        ready.release()
        await go.wait()
        report["begin_ns"] = now_ns()
        result = None
        try:
            report["ops"], result = await call_async(body, worker, order)
        except BaseException as error:
            report["error"] = explain(error)
        report["end_ns"] = now_ns()
        return close_report(report, worker, order, result, False)

    def close(self) -> None:
        """Close the event loop."""
        self.runner.close()
