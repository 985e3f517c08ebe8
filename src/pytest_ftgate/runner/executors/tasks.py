"""Workers as asyncio tasks of one event loop."""

from __future__ import annotations

from time import process_time_ns

from .. import loading, state
from ..clock import ended_cpu_ns, now_ns
from ..orders import Order, once
from ..protocol import explain, raise_first_error
from ..worker import Worker, call_async, close_report, worker_name
from .base import GRACE_S, Observer, leaders, others_cpu_ns
from .main_thread import MainThreadWorkers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loading import Setup
    from .base import Outcome


FIRST_CALLS_S = 0.001


class TaskWorkers(MainThreadWorkers):
    """Tasks of one event loop."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool) -> None:
        import asyncio

        super().__init__(setup, shared, fresh)
        self.running: list[Any] = []
        self.given_up = self.closed = False
        self.stop = loading.stopper(setup)
        self.runner = self.loop = asyncio.Runner(loop_factory=loading.factory(setup) if setup["name"] else None)
        if setup["stacks"]:
            self._answer()

    def work(self, order: Order, observer: Observer) -> Outcome:
        """Start the tasks, release them together, gather them."""
        result: Outcome = self.runner.run(self._iteration(order, observer))
        return result

    async def _iteration(self, order: Order, observer: Observer) -> Outcome:
        import asyncio

        ready, go = asyncio.Semaphore(0), asyncio.Event()
        cpu_ns = -others_cpu_ns() - ended_cpu_ns() - process_time_ns()
        begin_ns = now_ns()
        words: list[int] = []
        orders = [order] * len(self.workers)
        if not order.loops:  # held
            from ..held import TaskTally, task_words

            words = task_words(leaders(self.setup))
            orders = [
                Order(0, order.window_ns, order.flags, TaskTally(words, index)) for index in range(len(self.workers))
            ]
        self.running = running = [
            asyncio.create_task(self._run(worker, own, ready, go))
            for worker, own in zip(self.workers, orders, strict=True)
        ]
        for _ in running:
            await ready.acquire()
        observer.releasing(self)
        released_ns = now_ns()
        go.set()
        led = running[: leaders(self.setup)]
        if not order.loops:  # the window begins once every leading task has ended its first call, or one its work
            while min(words[2:]) < 2 and not any(task.done() for task in led):
                await asyncio.sleep(FIRST_CALLS_S)
            words[0] = now_ns() + order.window_ns
        observer.released(self)
        if self.setup["roles"]:
            await self._end_by_role(led, running)
        reports = list(await asyncio.gather(*running))
        joined_ns = now_ns()
        cpu_ns = max(0, cpu_ns + process_time_ns() + ended_cpu_ns() + others_cpu_ns())
        of_leaders = reports[: len(led)]
        end_ns = max(report["end_ns"] for report in of_leaders)
        phases = {"start_ns": released_ns - begin_ns, "work_ns": end_ns - released_ns, "join_ns": joined_ns - end_ns}
        return {**phases, "cpu_ns": cpu_ns}, reports, of_leaders

    async def _end_by_role(self, led: list[Any], running: list[Any]) -> None:
        """Wait for the leaders, stop the others and wait for them; at the first error end all that still run."""
        import asyncio

        stopped = False
        try:
            for awaited in (led, running):
                going = set(running)
                while not all(task.done() for task in awaited):
                    ended, going = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
                    raise_first_error([task.result() for task in ended])
                if not stopped:
                    stopped = True
                    await self._stop()
        except BaseException:  # as for other executors, except that tasks that still wait can be cancelled
            if not stopped:
                try:
                    await asyncio.wait_for(self._stop(), GRACE_S)
                except Exception:
                    pass  # the first error is the one to report
            _, late = await asyncio.wait(running, timeout=GRACE_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=GRACE_S)
            raise

    async def _stop(self) -> None:
        stopping = self.stop(self.shared)
        if hasattr(stopping, "__await__"):
            await stopping

    async def _run(self, worker: Worker, order: Order, ready: Any, go: Any) -> dict[str, Any]:
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
            if isinstance(error, (GeneratorExit, *state.passed)):  # the first: nobody runs this task any more
                raise
            if not self.given_up:
                import asyncio

                report["error"] = explain(error)
                if not self.setup["roles"]:  # those that do not wait for this one get the time to return
                    asyncio.get_running_loop().call_later(GRACE_S, self._give_up)
        report["end_ns"] = now_ns()
        return close_report(report, worker, order, result, False)

    def _give_up(self) -> None:
        self.given_up = True
        for task in self.running:
            task.cancel()

    def _answer(self) -> None:
        """From now on write what each task awaits where the controller asks for it."""
        import asyncio
        import os
        import signal

        from ..stacks import TASKS, stack_file, task_stacks

        file = stack_file(self.setup, "tasks")

        def answer(*_: object) -> None:
            if self.closed:
                return
            names = {task: worker_name(self.setup, index) for index, task in enumerate(self.running)}
            others = {task: task.get_name() for task in asyncio.all_tasks(self.runner.get_loop())}
            os.write(file, task_stacks(names | {task: name for task, name in others.items() if task not in names}))

        signal.signal(self.setup["stacks"][1] + TASKS, answer)

    def close(self) -> None:
        """Let what has been set up be torn down; close the event loop, unless `LaunchSetups` will do that."""
        self.closed = True
        try:
            super().close()
        finally:
            if loading.body(self.setup).setups is None:
                self.runner.close()

    def abandon(self) -> None:
        """Cancel all tasks, and close the event loop though some go on."""
        import asyncio

        self.closed = self.given_up = True
        loop = self.runner.get_loop()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=GRACE_S))
        if loading.body(self.setup).setups is None:
            loop.close()
