"""The worker's side: what the body gets, and the loop that waits, runs and reports. Every spawned worker imports it."""

from __future__ import annotations

import gc
import marshal
import os
import struct
import sys
from time import process_time_ns

from . import state
from .clock import ended_cpu_ns, now_ns
from .gil import gil_watch
from .orders import (
    AT_BARRIER,
    CHECKING,
    COLLECTING,
    END,
    HOLDING,
    OBSERVED,
    ORDER,
    SETUP,
    STAYING,
    STOP,
    TEARDOWN,
    VALUES,
    Order,
    once,
)
from .protocol import LONGEST_NAME, Failure, explain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .loading import Body, Setup

LENGTH = struct.Struct("<I")
"""Precedes a report in a pipe."""
REPORT_BYTES = 64 << 20
BATCH_AT_LEAST_NS = 50_000
BATCH_AT_MOST_NS = 1_000_000

LARGEST = sys.float_info.max
NOT_PICKLED = (
    "A worker in another process or interpreter hands its result over pickled: return what can be pickled (numbers, "
    "text, lists, dicts, arrays), or assert in the body itself."
)


class Counter:
    """A counter of a worker: its total in this iteration, and the exact type, int or float, that it is added up in."""

    __slots__ = ("kind", "total")

    def __init__(self, n: float) -> None:
        self.total = n
        self.kind = type(n)


class Stopwatch:
    """`with worker.timed(name):` adds the time inside to the worker's timer. Not re-entrant."""

    __slots__ = ("count", "max_ns", "name", "since", "total_ns")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.reset()

    def reset(self) -> None:
        self.count = self.total_ns = self.max_ns = self.since = 0

    def add(self, spent_ns: float) -> None:
        """Add a time that the workload measured itself, in ns, rounded to whole ones.

        Raises TypeError if it is no number, ValueError if it is not finite.
        """
        if type(spent_ns) is not int:
            from .given import finite

            spent_ns = round(finite("add", self.name, spent_ns))
        self.count += 1
        self.total_ns += spent_ns
        if spent_ns > self.max_ns:
            self.max_ns = spent_ns

    def __enter__(self) -> None:
        self.since = now_ns()

    def __exit__(self, *_: object) -> None:
        spent_ns = now_ns() - self.since
        self.count += 1  # as `add`, without the cost of another call
        self.total_ns += spent_ns
        if spent_ns > self.max_ns:
            self.max_ns = spent_ns


def _unusual(n: Any) -> bool:
    """Whether a number is of another type than int and float, or not finite."""
    return (type(n) is not int and type(n) is not float) or not -LARGEST <= n <= LARGEST


class Local:
    """A worker's own state, which lives as long as the worker."""

    if TYPE_CHECKING:  # whatever a workload keeps there

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...


class Worker:
    """The argument of a `worker` body: its index among `workers`, the shared state, and its own metrics.

    Where workers have roles, `role` is its own, `index` and `workers` are within it, and `counts` maps every role to
    its number of workers; else `role` and `counts` are empty.
    """

    __slots__ = (
        "_batch",
        "_cpu_ns",
        "counters",
        "counts",
        "index",
        "local",
        "peaks",
        "role",
        "shared",
        "timers",
        "workers",
    )

    def __init__(self, index: int, workers: int, shared: Any, role: str = "") -> None:
        self.index = index
        self.workers = workers
        self.shared = shared
        self.role = role
        self.counts: dict[str, int] = {}
        self.local = Local()
        self.counters: dict[str, Counter] = {}
        self.timers: dict[str, Stopwatch] = {}
        self.peaks: dict[str, float] = {}
        self._batch = 1
        self._cpu_ns = 0

    def count(self, name: str, n: float = 1) -> None:
        """Add `n` to the counter `name`; reported per second of the measured window.

        Raises TypeError if it is no number, ValueError if it is not finite.
        """
        try:
            counter = self.counters[name]
            if type(n) is counter.kind:
                counter.total += n
                return
        except (KeyError, TypeError):
            pass
        self._count(name, n)

    def _count(self, name: str, n: float) -> None:
        """As `count`, for the first number of a counter and for one of another type than the last."""
        if type(name) is not str or len(name) > LONGEST_NAME or _unusual(n):
            from .given import exact, finite

            name, n = exact("count", name), finite("count", name, n)
        counter = self.counters.get(name)
        if counter is None:
            self.counters[name] = Counter(n)
        else:
            counter.total += n
            counter.kind = type(n)

    def timed(self, name: str) -> Stopwatch:
        """The timer `name`, as a context manager; keep it in a variable in a hot loop."""
        watch = self.timers.get(name)
        if watch is None:
            if type(name) is not str or len(name) > LONGEST_NAME:
                from .given import exact

                name = exact("timed", name)
            watch = self.timers[name] = Stopwatch(name)
        return watch

    def peak(self, name: str, value: float) -> None:
        """Keep the largest `value` of `name`, such as a queue's depth, over all workers and iterations of a launch.

        Raises TypeError if it is no number, ValueError if it is not finite.
        """
        highest = self.peaks.get(name)
        try:
            if highest is not None and value <= highest:
                return
        except Exception:
            pass
        if type(name) is not str or len(name) > LONGEST_NAME or _unusual(value):
            from .given import exact, finite

            name, value = exact("peak", name), finite("peak", name, value)
        if highest is None or value > highest:
            self.peaks[name] = float(value)

    def forget(self) -> None:
        """Start an iteration with empty counters, peaks and timers; the timer objects stay, as a body may hold them."""
        self.peaks.clear()
        for counter in self.counters.values():
            counter.total = 0
        for timer in self.timers.values():
            timer.reset()


def place(setup: Setup, index: int) -> tuple[str, int, int]:
    """The place of worker `index` of the cell: its role, its index within it, and the number of workers in the role."""
    left = index
    for role, count in setup["roles"]:
        if left < count:
            return role, left, count
        left -= count
    return "", index, setup["workers"]


def worker_name(setup: Setup, index: int) -> str:
    """`worker 3 of 8`, or with its role; the name of its thread or process, and of its file of stacks."""
    role, within, count = place(setup, index)
    return f"{role or 'worker'} {within} of {count}"


def make_worker(setup: Setup, index: int, shared: Any) -> Worker:
    """Worker `index` of the cell, with its role."""
    role, index, workers = place(setup, index)
    worker = Worker(index, workers, shared, role)
    worker.counts = dict(setup["roles"])
    return worker


def collect_garbage(order: Order) -> None:
    """Only where the order says so: how memory is shared and freed while it is sampled is the workload's business.

    Where the workload has switched the collector off, what it leaves behind stays.
    """
    if order.flags & COLLECTING and gc.isenabled():
        gc.collect()


def next_batch(batch: int, spent_ns: int) -> int:
    """Calls between two readings of the clock: enough that reading costs nothing, few enough to end in time."""
    if spent_ns < BATCH_AT_LEAST_NS:
        return batch * 2
    return max(1, batch // 2) if spent_ns > BATCH_AT_MOST_NS else batch


def call(body: Body, worker: Worker, order: Order) -> tuple[int, Any]:
    """Call the body `loops` times or until the window has passed; the number of calls and the last result."""
    function = body.call
    result = None
    if order.tally is None and not order.window_ns:
        for _ in range(order.loops):
            result = function(worker)
        return order.loops, result
    ops, batch = 0, worker._batch if order.tally is None else 1
    since = now_ns()
    deadline = since + order.window_ns
    # In batches, as many as the tally allows where all workers stop together.
    while allowed := order.tally.allowed(ops, batch) if order.tally is not None else batch * (since < deadline):
        for _ in range(allowed):
            result = function(worker)
        ops += allowed
        now = now_ns()
        batch, since = next_batch(batch, now - since), now
    if order.tally is None:
        worker._batch = batch
    return ops, result


async def call_async(body: Body, worker: Worker, order: Order) -> tuple[int, Any]:
    """As `call`, for a coroutine function; in a window, other tasks may run after each call."""
    from asyncio import sleep

    function = body.call
    result = None
    ops = 0
    if order.flags & OBSERVED:  # else what the loop is late would be that of all calls
        for _ in range(order.loops):
            result = await function(worker)
            await sleep(0)
            await sleep(0)  # a timer that was due in the first turn of the loop ran after this task
        return order.loops, result
    if order.tally is None and not order.window_ns:
        for _ in range(order.loops):
            result = await function(worker)
        return order.loops, result
    deadline = now_ns() + order.window_ns
    while order.tally.allowed(ops, 1) if order.tally is not None else now_ns() < deadline:
        result = await function(worker)
        ops += 1
        await sleep(0)
    return ops, result


def close_report(report: dict[str, Any], worker: Worker, order: Order, result: Any, own_cpu: bool) -> dict[str, Any]:
    """Add all but the times to a report, after the clock has stopped. Nothing that the workload raises escapes."""
    try:
        cpu_ns = process_time_ns() + ended_cpu_ns() if own_cpu else 0
        report["cpu_ns"] = cpu_ns - worker._cpu_ns
        worker._cpu_ns = cpu_ns
        report["gil"] = gil_watch.stays_on()
        report["gil_module"] = gil_watch.module
        report["counters"] = counters = {name: counter.total for name, counter in worker.counters.items()}
        report["peaks"] = dict(worker.peaks)
        report["timers"] = {name: (t.count, t.total_ns, t.max_ns) for name, t in worker.timers.items() if t.count}
        for name, n in counters.items():
            if report["error"] is None and _unusual(n):
                shown = "beyond 1e308" if type(n) is int else n  # which may have too many digits
                report["error"] = (f"the counter {name!r} is {shown}", "worker.count takes finite numbers.")
        checks = report["error"] is None and order.flags & CHECKING and not order.window_ns
        if checks and order.flags & VALUES:
            report["value"] = result
        elif checks:
            from .results import digest

            try:
                report["result"] = digest(result)
            except Failure:
                raise
            except BaseException as error:
                reason, detail = explain(error)
                report["error"] = (f"the result cannot be compared: {reason}", detail)
    except BaseException as error:
        report["error"] = report["error"] or explain(error)
    return report


def run(body: Body, worker: Worker, order: Order, own_cpu: bool, loop: Any = None) -> dict[str, Any]:
    """Carry out an order and report it. Nothing that the body raises escapes. `loop` is that of setups."""
    worker.forget()
    report: dict[str, Any] = {"index": worker.index, "role": worker.role, "error": None, "ops": 0}
    report["begin_ns"] = now_ns()
    result: Any = None
    try:
        if body.is_async:
            import asyncio

            run_in_loop = asyncio.run if loop is None else loop.run
            report["ops"], result = run_in_loop(call_async(body, worker, order))
        else:
            report["ops"], result = call(body, worker, order)
    except BaseException as error:
        if isinstance(error, state.passed):
            raise
        report["error"] = explain(error)
    report["end_ns"] = now_ns()
    return close_report(report, worker, order, result, own_cpu)


def packed(report: dict[str, Any]) -> bytes:
    """A report, marshalled; one that cannot be sent is replaced by an error that names the cause."""
    try:
        payload = marshal.dumps(report)
        if len(payload) <= REPORT_BYTES:
            return payload
        most = f"of which at most {REPORT_BYTES >> 20} MiB can be sent"
        reason = f"its report has {len(payload) >> 20} MiB, {most}: return less, or a digest of it"
    except Exception:
        reason = "its report cannot be sent"
        for name, part in report.items():
            try:
                marshal.dumps(part)
            except Exception as unsent:
                reason = f"its {name} cannot be sent: {unsent}"
    error = report["error"] or (reason, "")
    return marshal.dumps({"index": report["index"], "role": report["role"], "error": error})


class Port:
    """A worker's ends of the pipes. Two `go` pipes alternate, so that a fast worker cannot take another's order."""

    def __init__(
        self, go: tuple[int, int], report: int, words: list[int] | None = None, values: list[Any] | None = None
    ) -> None:
        """In this process: `words` are those of held iterations (see `held`), `values` takes results (see `Hub`)."""
        self.go = go
        self.report = report
        self.words = words
        self.values = values
        self.iteration = 0

    def wait(self) -> Order | None:
        """The next order; None when there are no more."""
        message = os.read(self.go[self.iteration % 2], ORDER.size)
        self.iteration += 1
        if len(message) < ORDER.size:
            return None
        loops, flags, window_ns = ORDER.unpack(message)
        return None if flags & STOP else Order(loops, window_ns, flags)

    def send(self, report: dict[str, Any]) -> None:
        """Write one report. The result that `@test.check` gets is handed over as it is, or pickled."""
        if "value" in report:
            value = report.pop("value")
            if self.values is not None:
                self.values.append(value)
            else:
                import pickle

                try:
                    report["pickled"] = pickle.dumps(value)
                except Exception as error:
                    from .given import type_of

                    what = f"@test.check cannot get the result, a {type_of(value)}"
                    report["error"] = (f"{what}: {type(error).__name__}: {error}", NOT_PICKLED)
        payload = packed(report)
        left = LENGTH.pack(len(payload)) + payload
        while left:
            left = left[os.write(self.report, left) :]


def tell_loads() -> None:
    """This process is at a barrier: what traces its memory, if something does, writes what is left."""
    loads = sys.modules.get("pytest_ftgate.runner.loads")
    if loads is not None:
        loads.at_barrier()


def call_probe(name: str) -> None:
    """Call the lock probe's function of that name, if this process and interpreter have the probe."""
    probe = sys.modules.get("pytest_ftgate.runner.locks")
    if probe is not None:
        getattr(probe, name)()


def serve(setup: Setup, index: int, port: Port, shared: Any, fresh: bool, own_cpu: bool) -> None:
    """The worker loop: load the body, report that it is loaded, carry out orders until there are no more.

    It never ends in silence: what fails here is reported as well.
    """
    worker = make_worker(setup, index, shared)
    about = {"index": worker.index, "role": worker.role}
    try:
        from . import loading

        loading.prepare(setup)
        gil_watch.install()
        body = loading.body(setup, worker.role)
        setups = body.surroundings(worker)
        state.shared = shared
        serving = loading.serves(setup, worker.role)
        port.send({**about, "error": None})
        while (order := port.wait()) is not None:
            call_probe("sync")
            if own_cpu and not fresh:
                worker._cpu_ns = process_time_ns() + ended_cpu_ns()
            # 1. Setups and teardowns, which have orders of their own.
            if setups is not None and order.flags & (SETUP | TEARDOWN | END):
                port.send({**about, "error": setups.carry_out(order.flags, own_cpu)})
                if order.flags & END:
                    return
                continue
            # 2. What looks at the work from outside and inside: nothing is sampled before all have begun.
            if order.flags & HOLDING:
                port.send({**about, "error": None})
            loop = setups and setups.loop
            ended = None
            if setup["observers"] and port.words is None:  # in the process of its own; else the main thread observes
                from .observing import observe

                ended = observe(setup["observers"], None)
            # 3. The work, as often as the order says, or until all workers stop, by words in this process or in a file.
            if order.loops or serving:
                report = run(body, worker, once(order) if serving else order, own_cpu, loop)
            else:
                from .held import CallTally, FileWords

                words: list[int] | FileWords = port.words or FileWords(setup["held"])
                order.tally = CallTally(words, index)
                try:
                    report = run(body, worker, order, own_cpu, loop)
                finally:
                    if isinstance(words, FileWords):
                        words.close()
            if ended is not None:
                report["observed"] = ended()
            if order.flags & AT_BARRIER:
                collect_garbage(order)
                if own_cpu:
                    tell_loads()
            port.send(report)
            if fresh and setups is None and not order.flags & STAYING:
                return
            if own_cpu:
                call_probe("fold")  # threads share the probe of the main thread, which folds it
    except BaseException as error:
        port.send({**about, "error": explain(error)})


def serve_process(
    setup: Setup, index: int, go: tuple[Any, Any], report: Any, stack_file: Any, shared: Any, fresh: bool
) -> None:
    """A worker process; its pipes and its file are connections, which every start method can hand over."""
    if stack_file is not None:
        from .stacks import install

        install(setup, stack_file.fileno())
    port = Port((go[0].fileno(), go[1].fileno()), report.fileno())
    serve(setup, index, port, shared, fresh, True)
    threading = sys.modules["threading"]
    left = [thread for thread in threading.enumerate() if not (thread.daemon or thread is threading.current_thread())]
    if left:
        from .stacks import exit_if_hung

        role, within, _ = place(setup, index)
        exit_if_hung(left, lambda error: port.send({"index": within, "role": role, "error": error}))


def serve_interpreter(setup: Setup, index: int, go: tuple[int, int], report: int, shared: Any, fresh: bool) -> None:
    """A worker in a sub-interpreter, which shares neither sys.path nor modules with its creator."""
    serve(setup, index, Port(go, report), shared, fresh, False)


def note_gil(path: str) -> None:
    """Leave a note if this worker has the GIL: tasks of a pool send no report, and checking in each would cost time."""
    if gil_watch.stays_on():
        with open(path, "w", encoding="utf-8") as file:
            file.write(gil_watch.module)


def start_pool_worker(setup: Setup, shared: Any) -> None:
    """Initializer of the pools that `executor` bodies get; a pool unpickles tasks only after it."""
    from . import loading

    if setup["kind"] == "processes" and setup["stacks"]:
        from .primitives import start_method
        from .stacks import install, stack_file

        if start_method(setup["method"]) != "fork":  # a fork has its parent's
            install(setup, stack_file(setup, f"process {os.getpid()}"))
    loading.prepare(setup)
    gil_watch.install()
    if not setup["control"]:
        loading.load_module(setup)
    if setup["gil_note"] and setup["kind"] == "processes":  # its children do not run atexit functions
        from multiprocessing.util import Finalize

        Finalize(None, note_gil, (setup["gil_note"],), exitpriority=0)
    elif setup["gil_note"] and setup["kind"] == "interpreters":
        import atexit

        atexit.register(note_gil, setup["gil_note"])
    state.shared = shared
