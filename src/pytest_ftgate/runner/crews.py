"""The executors: each crew starts its workers, releases them together, and joins them, one turn at a time."""

from __future__ import annotations

import gc
import marshal
import os
import select
import sys
import time
from time import process_time_ns

from . import loading
from .clock import now_ns
from .gilwatch import gil_enabled
from .protocol import Failure, Unsupported
from .worker import (
    HOLDING,
    LENGTH,
    ORDER,
    PARK,
    STOP,
    Order,
    Port,
    Worker,
    call_async,
    close_report,
    explain,
    make_worker,
    once,
    place,
    run,
    serve,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .loading import Setup


GRACE_S = 1.0
"""After an error other roles are told to stop; so long is waited for `@test.stop`, and for those who return."""


class Onlooker:
    """Told when all workers are at work, and in a turn with PARK when all are parked; this one does nothing."""

    def released(self, crew: Any) -> None:
        """All workers have been let go."""

    def parked(self, crew: Any) -> None:
        """Every worker has done its part and collected its garbage, and waits until this returns."""


class Outcome:
    """One turn: the phases in ns, CPU time of this process and its workers in ns, and what each worker reported.

    `led` are the reports of the workers whose calls are the operations: of all, or of the leading role.
    """

    __slots__ = ("cpu_ns", "join_ns", "led", "reports", "start_ns", "work_ns")

    def __init__(
        self,
        start_ns: int,
        work_ns: int,
        join_ns: int,
        cpu_ns: int,
        reports: list[dict[str, Any]],
        led: list[dict[str, Any]] | None = None,
    ) -> None:
        self.start_ns = start_ns
        self.work_ns = work_ns
        self.join_ns = join_ns
        self.cpu_ns = cpu_ns
        self.reports = reports
        self.led = reports if led is None else led


def raise_first_error(reports: list[dict[str, Any]]) -> None:
    """Raise what a worker reported, if any did."""
    for report in reports:
        if report["error"]:
            reason, detail = report["error"]
            if reason == "unsupported":
                raise Unsupported(detail)
            role = report.get("role", "")
            named = role or len(reports) > 1
            raise Failure(f"{role or 'worker'} {report['index']}: {reason}" if named else reason, detail)


def leaders(setup: Setup) -> int:
    """How many workers lead: those of the first role, or all. They have the lowest numbers."""
    return int(setup["roles"][0][1] if setup["roles"] else setup["workers"])


class Hub:
    """The parent's ends: two `go` pipes for all workers, a report pipe each."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.go = (os.pipe(), os.pipe())
        self.reports = [os.pipe() for _ in range(setup["workers"])]
        self.gathered: dict[int, dict[str, Any]] = {}
        self.turn = 0
        self.dead: Callable[[int], str] = lambda index: ""
        self.sentinels: list[int] = []

    def port(self, index: int) -> Port:
        """Worker `index`'s ends, for workers that share this process's descriptors."""
        return Port((self.go[0][0], self.go[1][0]), self.reports[index][1])

    def release(self, order: Order) -> None:
        """Let all workers go with one write, so that none is released before the others wait for the same GIL."""
        message = ORDER.pack(order.loops, order.flags, order.window_ns) * len(self.reports)
        pipe = self.go[self.turn % 2][1]
        self.turn += 1
        while message:
            message = message[os.write(pipe, message) :]

    def collect(self) -> list[dict[str, Any]]:
        """One report of each worker, by index. Raises Failure where a worker died without one."""
        return [self._receive(index) for index in range(len(self.reports))]

    def gather(self, first: int) -> None:
        """Wait for the reports of the first so many workers; keep any that comes meanwhile in `gathered`.

        Raises Failure or Unsupported as soon as any worker has reported an error or died: others may wait for it.
        """
        while any(index not in self.gathered for index in range(first)):
            for index in self._readable(None):
                self.gathered[index] = report = self._receive(index)
                raise_first_error([report])

    def gather_rest(self, seconds: float) -> None:
        """Take what is reported within so many seconds, after an error: whatever it is."""
        deadline = time.monotonic() + (seconds if hasattr(select, "poll") else 0.0)
        while len(self.gathered) < len(self.reports) and (left := deadline - time.monotonic()) > 0:
            for index in self._readable(left):
                self.gathered[index] = {}
                try:
                    self.gathered[index] = self._receive(index)
                except Failure:
                    pass

    def _readable(self, seconds: float | None) -> list[int]:
        """Which workers have something to say, or have died; waits for one."""
        if not hasattr(select, "poll"):  # on Windows one is read after the other
            return [next(index for index in range(len(self.reports)) if index not in self.gathered)]
        poll, owners = select.poll(), {}
        for index, (descriptor, _) in enumerate(self.reports):
            if index not in self.gathered:
                for number in (descriptor, *self.sentinels[index : index + 1]):
                    owners[number] = index
                    poll.register(number, select.POLLIN)
        return sorted({owners[number] for number, _ in poll.poll(None if seconds is None else 1000 * seconds)})

    def _receive(self, index: int) -> dict[str, Any]:
        length = LENGTH.unpack(self._read(index, LENGTH.size))[0]
        report: dict[str, Any] = marshal.loads(self._read(index, length))
        return report

    def _read(self, index: int, size: int) -> bytes:
        descriptor = self.reports[index][0]
        read = b""
        while len(read) < size:
            self._await(index, descriptor)
            chunk = os.read(descriptor, size - len(read))
            if not chunk:
                raise Failure(f"{self._name(index)} ended without a report{self.dead(index)}")
            read += chunk
        return read

    def _await(self, index: int, descriptor: int) -> None:
        if not self.sentinels:
            return
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self.sentinels[index], select.POLLIN)
        ready = {number for number, _ in poll.poll()}
        if descriptor not in ready:
            poll.unregister(self.sentinels[index])
            if not poll.poll(200):
                raise Failure(f"{self._name(index)} {self.dead(index)}")

    def _name(self, index: int) -> str:
        role, within, _ = place(self.setup, index)
        return f"{role or 'worker'} {within}"

    def close(self) -> None:
        """Close every pipe that is still open."""
        for pipe in (*self.go, *self.reports):
            for descriptor in pipe:
                try:
                    os.close(descriptor)
                except OSError:
                    pass


class PipeCrew:
    """Workers that wait on pipes: threads, processes, sub-interpreters; fresh each turn or kept.

    Where they have roles, `stop` is called once the leading ones have ended, and the others are then waited for.
    """

    def __init__(self, setup: Setup, shared: Any, fresh: bool) -> None:
        self.setup = setup
        self.shared = shared
        self.fresh = fresh
        self.hub: Hub | None = None
        self.workers: list[Any] = []
        self.stop = loading.stopper(setup)
        self.broken = False

    def make(self, index: int, hub: Hub) -> Any:
        """Construct worker `index`; it has `start` and `join`."""
        raise NotImplementedError

    def started(self, hub: Hub) -> None:
        """Called once all workers of a crew have been started."""

    def servers_cpu_ns(self) -> int:
        """CPU time so far of what works for the workers in processes of its own, such as a Manager, in ns."""
        return 0

    def build(self) -> Hub:
        """Construct the workers, untimed."""
        hub = self.hub = Hub(self.setup)
        self.workers = [self.make(index, hub) for index in range(self.setup["workers"])]
        return hub

    def turn(self, order: Order, onlooker: Onlooker) -> Outcome:
        """One iteration; the clock covers starting what is not started, the work, and joining what is not kept."""
        new = self.hub is None
        hub = self.hub or self.build()
        gc.collect()
        if order.flags & PARK:
            gc.freeze()  # forked workers collect too: without this they would write to all that they share
        cpu_ns = -self.servers_cpu_ns() - process_time_ns()
        began = now_ns()
        if new:
            self._start(hub)
        went = now_ns()
        hub.release(order)
        onlooker.released(self)
        reports = self._collect_by_role(hub) if self.setup["roles"] else hub.collect()
        if order.flags & PARK:
            self._park(hub, onlooker)
        if self.fresh:
            for worker in self.workers:
                worker.join()
        joined = now_ns()
        cpu_ns += process_time_ns() + sum(report.get("cpu_ns", 0) for report in reports)
        cpu_ns = max(0, cpu_ns + self.servers_cpu_ns())
        led = reports[: leaders(self.setup)]
        ended = max(report.get("end_ns", went) for report in led)
        if self.fresh:
            self._drop()
        if order.flags & PARK:
            gc.unfreeze()
        raise_first_error(reports)
        return Outcome(went - began, ended - went, joined - ended, cpu_ns, reports, led)

    def _collect_by_role(self, hub: Hub) -> list[dict[str, Any]]:
        hub.gathered.clear()
        stopped = False
        try:
            hub.gather(leaders(self.setup))
            stopped = True
            self.stop(self.shared)
            hub.gather(len(hub.reports))
        except BaseException:
            self.broken = True
            self._let_end(hub, stopped)
            raise
        return [report for _, report in sorted(hub.gathered.items())]

    def _let_end(self, hub: Hub, stopped: bool) -> None:
        """After an error: those that are not waiting for one that has ended may return yet."""
        from threading import Thread

        if not stopped:  # in a thread: it may wait for a worker that is no more
            thread = Thread(target=self._stop_quietly, daemon=True)
            thread.start()
            thread.join(GRACE_S)
        hub.gather_rest(GRACE_S)

    def _stop_quietly(self) -> None:
        try:
            self.stop(self.shared)
        except Exception:
            pass  # the error that came first is the one to show

    def _park(self, hub: Hub, onlooker: Onlooker) -> None:
        gc.collect()
        onlooker.parked(self)
        if self.fresh:  # they wait for another order, as those that are kept do
            hub.release(Order(0, 0, STOP))

    def roles(self) -> dict[str, Any]:
        """Which processes are what, for those who look from outside; see Roles."""
        return roles(())

    def _start(self, hub: Hub) -> None:
        for worker in self.workers:
            worker.start()
        self.started(hub)
        raise_first_error(hub.collect())

    def _drop(self) -> None:
        if self.hub is not None:
            self.hub.close()
        self.hub, self.workers = None, []

    def close(self) -> None:
        """End workers that are kept."""
        if self.broken:
            self.abandon()
        elif self.hub is not None:
            self.hub.release(Order(0, 0, STOP))
            for worker in self.workers:
                if worker.ident is not None:  # one that could not be started cannot be joined
                    worker.join()
            self._drop()

    def abandon(self) -> None:
        """After an error among roles: workers that wait for one that has ended cannot be joined."""
        for worker in self.workers:
            worker.join(0.01)
        if not any(worker.is_alive() for worker in self.workers):
            self._drop()  # else the pipes stay: a thread that goes on later writes to them


class ThreadCrew(PipeCrew):
    """Plain `threading.Thread`s."""

    def make(self, index: int, hub: Hub) -> Any:
        """A thread that serves."""
        from threading import Thread

        args = (self.setup, index, hub.port(index), self.shared, self.fresh, False)
        return Thread(target=serve, args=args, daemon=bool(self.setup["roles"]))


class ProcessCrew(PipeCrew):
    """Processes of one start method."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool, context: Any) -> None:
        super().__init__(setup, shared, fresh)
        self.context = context

    def build(self) -> Hub:
        """As elsewhere; the pipes are wrapped as connections, which every start method can hand over."""
        from multiprocessing.connection import Connection

        hub = self.hub = Hub(self.setup)
        # Connections own their descriptors: what goes to a worker is a duplicate that the hub does not close.
        self.go = tuple(Connection(os.dup(pipe[0]), writable=False) for pipe in hub.go)
        self.writers = [Connection(os.dup(pipe[1]), readable=False) for pipe in hub.reports]
        self.workers = [self.make(index, hub) for index in range(self.setup["workers"])]
        return hub

    def make(self, index: int, hub: Hub) -> Any:
        """A process that serves."""
        from .worker import serve_process

        args = (self.setup, index, self.go, self.writers[index], self.shared, self.fresh)
        return self.context.Process(target=serve_process, args=args)

    def started(self, hub: Hub) -> None:
        """From here on a dead worker is seen."""
        hub.sentinels = [worker.sentinel for worker in self.workers]
        hub.dead = self._death

    def servers_cpu_ns(self) -> int:
        """CPU time of the Manager and other processes that the workload started with multiprocessing."""
        return _children_cpu_ns(worker.pid for worker in self.workers)

    def roles(self) -> dict[str, Any]:
        """The workers are processes of their own."""
        return roles(worker.pid for worker in self.workers)

    def abandon(self) -> None:
        """After an error among roles: end the processes, whatever they wait for."""
        for worker in self.workers:
            worker.kill()
            worker.join()
        self._drop()

    def _death(self, index: int) -> str:
        worker = self.workers[index]
        worker.join(1)
        code = worker.exitcode
        if code is not None and code < 0:
            import signal

            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code} before it had reported"

    def _drop(self) -> None:
        for connection in (*getattr(self, "go", ()), *getattr(self, "writers", ())):
            connection.close()
        self.go, self.writers = (), []
        super()._drop()


class InterpreterCrew(PipeCrew):
    """Sub-interpreters, each in a thread of its own."""

    def make(self, index: int, hub: Hub) -> Any:
        """A thread that makes its interpreter, serves in it and closes it: the executor's own cost of starting."""
        from threading import Thread

        return Thread(target=self._live, args=(index, hub), daemon=bool(self.setup["roles"]))

    def roles(self) -> dict[str, Any]:
        """The workers are threads of this process, and have GILs of their own where there are any."""
        return roles((), own_gils=gil_enabled())

    def _live(self, index: int, hub: Hub) -> None:
        from concurrent.interpreters import create  # type: ignore[import-not-found, unused-ignore]

        from .worker import serve_interpreter

        port = hub.port(index)
        try:
            interpreter = create()
            try:
                interpreter.call(serve_interpreter, self.setup, index, port.go, port.report, self.shared, self.fresh)
            finally:
                interpreter.close()
        except BaseException as error:
            role, within, _ = place(self.setup, index)
            port.send({"index": within, "role": role, "error": explain(error)})


class SerialCrew:
    """The workers one after the other in the main thread."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool) -> None:
        self.setup = setup
        self.fresh = fresh
        self.shared = shared
        self.workers: list[Worker] = []

    def turn(self, order: Order, onlooker: Onlooker) -> Outcome:
        """One iteration; a window is split between the workers."""
        body = loading.body(self.setup)
        if self.fresh or not self.workers:
            self.workers = [make_worker(self.setup, index, self.shared) for index in range(self.setup["workers"])]
        part = Order(order.loops, order.window_ns // len(self.workers), order.flags)
        gc.collect()
        cpu_ns = -process_time_ns()
        began = now_ns()
        onlooker.released(self)
        reports = [run(body, worker, part, False) for worker in self.workers]
        cpu_ns += process_time_ns()
        _park_here(order, onlooker, self)
        raise_first_error(reports)
        for report in reports:  # they share the turn one after the other: only over the whole of it do rates add up
            report["begin_ns"], report["end_ns"] = reports[0]["begin_ns"], reports[-1]["end_ns"]
        return Outcome(0, reports[-1]["end_ns"] - began, 0, cpu_ns, reports)

    def roles(self) -> dict[str, Any]:
        """The main thread works itself."""
        return roles((), main_works=True)

    def close(self) -> None:
        """Nothing is kept."""


class TaskCrew:
    """Tasks of one event loop."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool) -> None:
        import asyncio

        self.setup = setup
        self.shared = shared
        self.fresh = fresh
        self.workers: list[Worker] = []
        self.stop = loading.stopper(setup)
        self.runner = asyncio.Runner()

    def turn(self, order: Order, onlooker: Onlooker) -> Outcome:
        """One iteration: start the tasks, let them go together, gather them."""
        if self.fresh or not self.workers:
            self.workers = [make_worker(self.setup, index, self.shared) for index in range(self.setup["workers"])]
        gc.collect()
        outcome: Outcome = self.runner.run(self._turn(order, onlooker))
        _park_here(order, onlooker, self)
        raise_first_error(outcome.reports)
        return outcome

    def roles(self) -> dict[str, Any]:
        """The main thread works itself."""
        return roles((), main_works=True)

    async def _turn(self, order: Order, onlooker: Onlooker) -> Outcome:
        import asyncio

        ready, go = asyncio.Semaphore(0), asyncio.Event()
        cpu_ns = -process_time_ns()
        began = now_ns()
        running = [asyncio.create_task(self._live(worker, order, ready, go)) for worker in self.workers]
        for _ in running:
            await ready.acquire()
        went = now_ns()
        go.set()
        onlooker.released(self)
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
            await _end_well(running[: leaders(self.setup)], running)
            stopped = True
            await self._stop()
            await _end_well(running, running)
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


async def _end_well(awaited: list[Any], running: list[Any]) -> None:
    """Wait for some tasks; raises what any of `running` has reported as soon as it has."""
    import asyncio

    going = set(running)
    while not all(task.done() for task in awaited):
        ended, going = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
        raise_first_error([task.result() for task in ended])


class PoolCrew:
    """A body that drives a pool itself: it runs once a turn, in the main thread."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool, context: Any) -> None:
        self.setup = setup
        self.shared = shared
        self.fresh = fresh
        self.context = context
        self.pool: Any = None
        self.caller = Worker(0, setup["workers"], shared)

    def turn(self, order: Order, onlooker: Onlooker) -> Outcome:
        """One iteration; reading the workers' CPU time is left out of the clock."""
        before = _children_cpu_ns()  # of a kept pool, and of a Manager that outlives the turns
        gc.collect()
        before += process_time_ns()
        began = now_ns()
        if self.pool is None:
            self.pool = make_pool(self.setup, self.shared, self.context)
        body = loading.body(self.setup)
        if order.flags & HOLDING:
            body.call(self.pool)  # so that the pool's workers are there to be looked at
        went = now_ns()
        onlooker.released(self)
        bound = loading.Body(lambda _: body.call(self.pool), "executor", False)
        report = run(bound, self.caller, order, False)
        cpu_ns = max(0, process_time_ns() + _children_cpu_ns() - before)
        _park_here(order, onlooker, self)
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

    from . import worker

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


def _park_here(order: Order, onlooker: Onlooker, crew: Any) -> None:
    """Where the main thread works itself, or for a pool: nothing is at work once the body has returned."""
    if order.flags & PARK:
        gc.collect()
        onlooker.parked(crew)


def _children(without: Iterable[int | None]) -> list[Any]:
    """Multiprocessing's living children but for these pids."""
    if "multiprocessing" not in sys.modules:
        return []
    from multiprocessing import active_children

    left_out = set(without)
    return [child for child in active_children() if child.pid not in left_out]


def roles(workers: Iterable[int | None], main_works: bool = False, own_gils: bool = False) -> dict[str, Any]:
    """What the controller cannot tell from outside, in the words of its Roles: the workers' pids, the Managers' with
    their names, whether the main thread works itself or merely waits, and whether workers have GILs of their own."""
    pids = list(workers)
    servers = {str(child.pid): child.name for child in _children(pids) if "Manager" in child.name}
    return {"workers": pids, "servers": servers, "main_works": main_works, "own_gils": own_gils}


def _children_cpu_ns(without: Iterable[int | None] = ()) -> int:
    """CPU time of multiprocessing's living children in ns, from the scheduler's own figures; 0 where it has none."""
    return sum(_cpu_ns(child.pid) for child in _children(without))


def _cpu_ns(pid: int | None) -> int:
    spent = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            spent += int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[0])
    except (OSError, ValueError, IndexError):
        pass
    return spent


def _read(path: str) -> bytes:
    """A short file without the buffers of a file object: they would be seen as the workload's memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 256)
    finally:
        os.close(descriptor)


def make_crew(setup: Setup, shared: Any, fresh: bool, context: Any) -> Any:
    """The crew of a cell."""
    if setup["shape"] == "executor":
        return PoolCrew(setup, shared, fresh, context)
    kind = setup["kind"]
    if kind == "processes":
        return ProcessCrew(setup, shared, fresh, context)
    crews = {"serial": SerialCrew, "threads": ThreadCrew, "interpreters": InterpreterCrew, "tasks": TaskCrew}
    return crews[kind](setup, shared, fresh)
