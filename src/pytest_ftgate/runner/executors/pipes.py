"""Workers that get orders and send reports through pipes."""

from __future__ import annotations

import marshal
import os
import select
import time
from time import process_time_ns

from .. import loading
from ..clock import ended_cpu_ns, now_ns

# Before workers are forked: an import of it in each of them would write to a quarter of its pages.
from ..held import FileWords, Stop, first_words
from ..orders import AT_BARRIER, END, HOLDING, ORDER, SETUP, STAYING, STOP, TEARDOWN, Order
from ..protocol import Failure, raise_first_error
from ..worker import LENGTH, NOT_PICKLED, Port, collect_garbage, place
from .base import GRACE_S, Observer, StandingTimes, leaders, others_cpu_ns, process_map

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..loading import Setup
    from .base import Outcome


class Hub:
    """The parent's ends: two `go` pipes, used in alternation by all workers, and a report pipe for each worker."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.go = (os.pipe(), os.pipe())
        self.reports = [os.pipe() for _ in range(setup["workers"])]
        self.gathered: dict[int, dict[str, Any]] = {}
        self.iteration = 0
        self.words: list[int] = []
        """For held iterations of workers in this process: they share this list, so each sees it change."""
        self.values: list[list[Any]] = [[] for _ in self.reports]
        """Results for `@test.check`, by worker, of workers in this process: the objects themselves."""
        self.dead: Callable[[int], str] = lambda index: ""
        self.sentinels: list[int] = []

    def port(self, index: int) -> Port:
        """The ends of worker `index`, for workers that share this process's descriptors."""
        return Port((self.go[0][0], self.go[1][0]), self.reports[index][1], self.words, self.values[index])

    def release(self, order: Order) -> None:
        """Let all workers go with one write, so that none is released before the others wait for the same GIL.

        Before a held iteration each reports that it begins: those reports are taken here.
        """
        message = ORDER.pack(order.loops, order.flags, order.window_ns) * len(self.reports)
        pipe = self.go[self.iteration % 2][1]
        self.iteration += 1
        while message:
            message = message[os.write(pipe, message) :]
        if order.flags & HOLDING:
            self.gathered.clear()
            self.gather(len(self.reports))

    def gather(self, first: int) -> list[dict[str, Any]]:
        """Wait for the reports of the workers below `first`; all that came, by index, are kept in `gathered` as well.

        Raises Failure or Unsupported as soon as any worker reports an error or dies: others may wait for that worker.
        """
        poll, owners = self._poll()
        missing = sum(index not in self.gathered for index in range(first))
        while missing:
            for index in self._readable(poll, owners, None):
                self.gathered[index] = report = self._receive(index)
                missing -= index < first
                for number in (self.reports[index][0], *self.sentinels[index : index + 1]) if poll else ():
                    poll.unregister(number)
                raise_first_error([report], len(self.reports))
        return [report for _, report in sorted(self.gathered.items())]

    def ended_within(self, seconds: float, first: int) -> bool:
        """Whether one of the workers below `first` has a report ready or has died; waits for it at most so long."""
        self.gathered = {index: {} for index in range(first, len(self.reports))}
        try:
            return bool(self._readable(*self._poll(), seconds))
        finally:
            self.gathered = {}

    def gather_rest(self, seconds: float) -> None:
        """After an error: take the reports that still come within `seconds`."""
        deadline = time.monotonic() + (seconds if hasattr(select, "poll") else 0.0)
        while len(self.gathered) < len(self.reports) and (left := deadline - time.monotonic()) > 0:
            for index in self._readable(*self._poll(), left):
                self.gathered[index] = {}
                try:
                    self.gathered[index] = self._receive(index)
                except Failure:
                    pass

    def late(self) -> None:
        """Raise what a worker has reported after its work, where it could not end."""
        self.gathered.clear()
        self.sentinels = []
        for index in self._readable(*self._poll(), 0):
            raise_first_error([self._receive(index)], len(self.reports))

    def _poll(self) -> tuple[Any, dict[int, int]]:
        """A poll of missing reports and of workers' deaths, and the worker by descriptor; no poll on Windows."""
        owners: dict[int, int] = {}
        if not hasattr(select, "poll"):  # Windows cannot poll a pipe: the workers are read in order
            return None, owners
        poll = select.poll()
        for index, (descriptor, _) in enumerate(self.reports):
            if index not in self.gathered:
                for number in (descriptor, *self.sentinels[index : index + 1]):
                    owners[number] = index
                    poll.register(number, select.POLLIN)
        return poll, owners

    def _readable(self, poll: Any, owners: dict[int, int], seconds: float | None) -> list[int]:
        """The workers that have a report ready or have died; waits for one, at most `seconds`."""
        if poll is None:
            return [next(index for index in range(len(self.reports)) if index not in self.gathered)]
        return sorted({owners[number] for number, _ in poll.poll(None if seconds is None else 1000 * seconds)})

    def _receive(self, index: int) -> dict[str, Any]:
        length = LENGTH.unpack(self._read(index, LENGTH.size))[0]
        report: dict[str, Any] = marshal.loads(self._read(index, length))
        if self.values[index]:
            report["value"] = self.values[index].pop()
        elif "pickled" in report:
            import pickle

            try:
                report["value"] = pickle.loads(report.pop("pickled"))
            except Exception as error:
                reason = f"@test.check cannot get the result: unpickling it raised {type(error).__name__}: {error}"
                raise Failure(reason, NOT_PICKLED) from None
        return report

    def _read(self, index: int, size: int) -> bytearray:
        role, within, _ = place(self.setup, index)
        name, descriptor = f"{role or 'worker'} {within}", self.reports[index][0]
        read = bytearray()  # a long report comes in many parts
        while len(read) < size:
            if self.sentinels:  # the worker may die before it writes, or within what it writes
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                poll.register(self.sentinels[index], select.POLLIN)
                if descriptor not in {number for number, _ in poll.poll()}:
                    poll.unregister(self.sentinels[index])
                    if not poll.poll(200):
                        raise Failure(f"{name} {self.dead(index)}")
            chunk = os.read(descriptor, size - len(read))
            if not chunk:
                raise Failure(f"{name} ended without a report{self.dead(index)}")
            read += chunk
        return read

    def close(self) -> None:
        for pipe in (*self.go, *self.reports):
            for descriptor in pipe:
                try:
                    os.close(descriptor)
                except OSError:
                    pass


class PipeWorkers(StandingTimes):
    """Workers that wait on pipes: threads, processes, sub-interpreters; fresh in each iteration, or kept.

    With roles, `stop` is called once the leading workers have ended; then the others are awaited.
    """

    def __init__(self, setup: Setup, shared: Any, fresh: bool) -> None:
        self.setup = setup
        self.shared = shared
        self.fresh = fresh
        self.hub: Hub | None = None
        self.workers: list[Any] = []
        self.stop = loading.stopper(setup)
        self.setups = loading.body(setup).setups
        self.rested_cpu_ns = 0
        """CPU time of setups and teardowns in this process and in those that serve the workers."""
        self.begun = self.interrupted = self.broken = False

    shares_memory = False
    """Whether the workers share this process's objects."""

    def make(self, index: int, hub: Hub) -> Any:
        """Construct worker `index`; it has `start` and `join`."""
        raise NotImplementedError

    def started(self, hub: Hub) -> None:
        """Called once all workers have been started."""

    def ended(self, hub: Hub) -> None:
        """Called once all workers have been joined, or are kept."""

    def others_cpu_ns(self) -> int:
        """CPU time so far of the processes below this one, such as a Manager, in ns."""
        return others_cpu_ns()

    def build(self) -> Hub:
        """Construct the workers. This is not timed."""
        hub = self.hub = Hub(self.setup)
        self.workers = [self.make(index, hub) for index in range(self.setup["workers"])]
        return hub

    def iteration(self, order: Order, observer: Observer) -> Outcome:
        """One iteration, timed in three phases: start (of new workers), work, and join (of workers not kept)."""
        new = self.hub is None
        hub = self.hub or self.build()
        collect_garbage(order)
        self.rested_cpu_ns = 0
        cpu_ns = -self.others_cpu_ns() - ended_cpu_ns() - process_time_ns()
        begin_ns = now_ns()
        if new:
            self._start(hub)
        started_ns = now_ns()
        if new and not self.fresh:
            self.start_ns = started_ns - begin_ns
        if new and self.setup["cpus"]:
            self._pin()
        self._rest(hub, observer, SETUP, order)
        observer.releasing(self)
        released_ns = now_ns()
        if order.loops:
            hub.release(order)
            observer.released(self)
        else:
            self._hold(hub, order, observer)
        reports = self._collect(hub)
        observer.done(self)
        torn_down_ns = self._rest(hub, observer, TEARDOWN)
        if order.flags & AT_BARRIER:
            collect_garbage(order)
            observer.at_barrier(self)
        if order.flags & STAYING and self.fresh and self.setups is None:
            hub.release(Order(0, 0, STOP))
        cpu_ns += ended_cpu_ns()  # before new workers are waited for, too: each reports its own
        if self.fresh:
            torn_down_ns += self._rest(hub, observer, END)
            for worker in self.workers:
                worker.join()
        joined_ns = now_ns()
        cpu_ns += process_time_ns() + sum(report.get("cpu_ns", 0) for report in reports)
        cpu_ns = max(0, cpu_ns + self.others_cpu_ns() - self.rested_cpu_ns)
        led = reports[: leaders(self.setup)]
        end_ns = max(report.get("end_ns", released_ns) for report in led)
        # Nothing below is timed.
        self.ended(hub)
        if self.fresh:
            self._drop()
        self.interrupted = False
        raise_first_error(reports)
        phases = {"start_ns": started_ns - begin_ns, "work_ns": end_ns - released_ns}
        return {**phases, "join_ns": joined_ns - end_ns - torn_down_ns, "cpu_ns": cpu_ns}, reports, led

    # -- setups and teardowns ----------------------------------------------------------------------------------

    def _rest(self, hub: Hub, observer: Observer, flags: int, order: Order | None = None) -> int:
        """Let all workers run setups (for this order) or teardowns; the time that this took, in ns.

        Raises the first error.
        """
        if self.setups is None:
            return 0
        self.begun = self.interrupted = True
        began_ns, cpu_ns = now_ns(), process_time_ns() + ended_cpu_ns() + self.others_cpu_ns()
        observer.resting(True)
        hub.release(Order(0, 0, flags))
        hub.gathered.clear()
        try:
            hub.gather(len(hub.reports))
        except Exception:
            hub.gather_rest(GRACE_S)
            raise
        if order is not None and self.shares_memory:
            collect_garbage(order)  # else the body's time pays for what the setups have left
        observer.resting(False)
        self.rested_cpu_ns += process_time_ns() + ended_cpu_ns() + self.others_cpu_ns() - cpu_ns
        return now_ns() - began_ns

    def _end_early(self, hub: Hub) -> None:
        """After an error: the workers tear down; those that have not reported are given some time to do so."""
        hub.release(Order(0, 0, TEARDOWN | END))
        deadline = time.monotonic() + GRACE_S
        for index, worker in enumerate(self.workers):
            worker.join(None if index in hub.gathered else max(0.0, deadline - time.monotonic()))
        self.abandon()

    # -- work --------------------------------------------------------------------------------------------------

    def _hold(self, hub: Hub, order: Order, observer: Observer) -> None:
        """Keep the leading workers at work from the end of their first calls on, until the window has passed."""
        count = leaders(self.setup)
        words: list[int] | FileWords = hub.words
        if self.shares_memory:
            hub.words[:] = first_words(count)
        else:
            words = FileWords(self.setup["held"], count)
        stop = Stop(words, count, lambda seconds: hub.ended_within(seconds, count))
        hub.release(order)
        stop.wait_for_first()
        observer.released(self)
        stop.after(order.window_ns / 1e9)
        if isinstance(words, FileWords):
            words.close()

    def _collect(self, hub: Hub) -> list[dict[str, Any]]:
        hub.gathered.clear()
        stopped = not self.setup["roles"]
        try:
            if not stopped:
                hub.gather(leaders(self.setup))
                stopped = True
                self.stop(self.shared)
            return hub.gather(len(hub.reports))
        except Exception:
            # The workers that do not wait for the failed one get the time to return.
            self.broken = True
            if not stopped:  # in a thread: `@test.stop` may block on a worker that has died
                from threading import Thread

                def stop() -> None:
                    try:
                        self.stop(self.shared)
                    except Exception:
                        pass  # the first error is the one to report

                thread = Thread(target=stop, daemon=True)
                thread.start()
                thread.join(GRACE_S)
            hub.gather_rest(GRACE_S)
            if not self.setup["roles"]:
                raise_first_error([report for _, report in sorted(hub.gathered.items())], len(hub.reports))
            raise
        except BaseException:
            self.broken = True
            raise

    def process_map(self) -> dict[str, Any]:
        """Which process does what, for the controller; see `base.process_map`."""
        return process_map((), self.workers)

    def _start(self, hub: Hub) -> None:
        for worker in self.workers:
            worker.start()
        self.started(hub)
        hub.gathered.clear()
        hub.gather(len(hub.reports))

    def _pin(self) -> None:
        """Tie each worker to its CPU while it waits for its first order, so that no time of it is measured."""
        for worker, cpu in zip(self.workers, self.setup["cpus"], strict=True):
            for thread in self.threads_of(worker):
                try:
                    os.sched_setaffinity(thread, (cpu,))
                except ProcessLookupError:
                    pass  # it has ended; if the worker has, what waits for its report says so

    def threads_of(self, worker: Any) -> list[int]:
        """The system's ids of a worker's threads."""
        return [worker.native_id]

    def _drop(self) -> None:
        if self.hub is not None:
            self.hub.close()
        self.hub, self.workers, self.begun = None, [], False

    def close(self) -> None:
        """End the workers that are kept. Raises the first error of their teardowns."""
        if self.hub is not None and self.begun and self.interrupted:
            self._end_early(self.hub)
        elif self.broken:
            self.abandon()
        elif self.hub is not None:
            if self.begun:
                try:
                    self._rest(self.hub, Observer(), END)
                except BaseException:
                    self._end_early(self.hub)
                    raise
            ending_ns = now_ns()
            if not self.begun:
                self.hub.release(Order(0, 0, STOP))
            for worker in self.workers:
                if worker.ident is not None:  # a thread that could not be started cannot be joined
                    worker.join()
            self.join_ns = now_ns() - ending_ns
            self.ended(self.hub)
            self._drop()

    def abandon(self) -> None:
        """After an error: do not join workers that wait for one that has ended."""
        for worker in self.workers:
            if worker.ident is not None:
                worker.join(0.01)
        if not any(worker.is_alive() for worker in self.workers):
            self._drop()  # else the pipes stay open: a thread that still runs may write to them
