"""A trading pipeline: receiver, processor and evaluator as three tasks of one event loop, or as three threads."""

import asyncio
import os
from statistics import median
from time import perf_counter_ns, sleep

import pytest

from pytest_ftgate import ftgate, tasks, threads

RATE = 200
"""Ticks per second."""
SECONDS = float(os.environ.get("PIPELINE_SECONDS", "0.5"))
"""The length of the schedule, in one call of the receiver; the run of the write-up took 60."""
STEP_NS = 1_000_000_000 // RATE
ROLES = {"receiver": 1, "processor": 1, "evaluator": 1}


class Pipeline:
    """The inbound queue, and the one slot between processor and evaluator with the condition that guards it."""

    def __init__(self, context):
        self.per_ms = calibrated()
        self.inbound = context.Queue()
        self.changed = context.Condition()
        self.slot = None


class Tick:
    """The times when it is due and when its schedule ends, in ns."""

    __slots__ = ("due", "until")

    def __init__(self, due, until):
        self.due = due
        self.until = until


END = Tick(0, 0)


def burn(iterations):
    """A fixed amount of work: time spent waiting does not reduce it."""
    x = 0x12345678
    for _ in range(iterations):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
        x ^= x >> 16
    return x


def calibrated():
    """Iterations of `burn` in a millisecond, on this machine and interpreter: once in a launch.

    The median after pauses, as between ticks: a core that was idle runs slower at first.
    """
    return round(1e6 * 3_000 / median(_burn_ns(3_000) for _ in range(50)))


def _burn_ns(iterations):
    sleep(0.002)
    began = perf_counter_ns()
    burn(iterations)
    return perf_counter_ns() - began


def schedule():
    """The ticks of one run, by the clock only: the k-th is due at t0 + k / RATE, whatever happened before."""
    began = perf_counter_ns()
    until = began + round(SECONDS * 1e9)
    for number in range(round(SECONDS * RATE)):
        yield Tick(began + number * STEP_NS, until)


def arrived(worker, tick):
    """Record the delay of the receiver behind its schedule, and the number of ticks in the queue."""
    worker.peak("late_ms", (perf_counter_ns() - tick.due) / 1e6)
    worker.peak("queue_depth", worker.shared.inbound.qsize())


def processed(worker, tick):
    """Record a tick's first latency; ticks processed after the schedule's end do not count as throughput."""
    now = perf_counter_ns()
    worker.timed("receive_to_processed").add(now - tick.due)
    if now <= tick.until:
        worker.count("ticks")
    return now


def evaluated(worker, since):
    worker.timed("processed_to_evaluated").add(perf_counter_ns() - since)
    worker.count("evaluations")


# -- threads -------------------------------------------------------------------------------------------------------


def receive(worker):
    """Waits until the next tick is due; if that time has passed, sends the tick at once."""
    for tick in schedule():
        wait_ns = tick.due - perf_counter_ns()
        if wait_ns > 0:
            sleep(wait_ns / 1e9)
        arrived(worker, tick)
        worker.shared.inbound.put(tick)
    sleep(max(0, tick.until - perf_counter_ns()) / 1e9)


def process(worker, proc_ms, eval_ms):
    """Strictly sequential: it owns the order book."""
    pipeline, iterations = worker.shared, round(proc_ms * worker.shared.per_ms)
    while (tick := pipeline.inbound.get()) is not None:
        burn(iterations)
        publish(pipeline, processed(worker, tick))
    publish(pipeline, END)


def publish(pipeline, news):
    with pipeline.changed:
        pipeline.slot = news
        pipeline.changed.notify_all()


def evaluate(worker, proc_ms, eval_ms):
    """Takes what is in the slot, and misses what was replaced while it worked."""
    pipeline = worker.shared
    while True:
        with pipeline.changed:
            pipeline.changed.wait_for(lambda: pipeline.slot is not None)
            since, pipeline.slot = pipeline.slot, None
        if since is END:
            return
        sleep(eval_ms / 1e3)
        evaluated(worker, since)


# -- tasks ---------------------------------------------------------------------------------------------------------


async def receive_task(worker):
    for tick in schedule():
        wait_ns = tick.due - perf_counter_ns()
        if wait_ns > 0:
            await asyncio.sleep(wait_ns / 1e9)
        arrived(worker, tick)
        await worker.shared.inbound.put(tick)
    await asyncio.sleep(max(0, tick.until - perf_counter_ns()) / 1e9)


async def process_task(worker, proc_ms, eval_ms):
    pipeline, iterations = worker.shared, round(proc_ms * worker.shared.per_ms)
    while (tick := await pipeline.inbound.get()) is not None:
        burn(iterations)
        await publish_task(pipeline, processed(worker, tick))
    await publish_task(pipeline, END)


async def publish_task(pipeline, news):
    async with pipeline.changed:
        pipeline.slot = news
        pipeline.changed.notify_all()


async def evaluate_task(worker, proc_ms, eval_ms):
    pipeline = worker.shared
    while True:
        async with pipeline.changed:
            await pipeline.changed.wait_for(lambda: pipeline.slot is not None)
            since, pipeline.slot = pipeline.slot, None
        if since is END:
            return
        await asyncio.sleep(eval_ms / 1e3)
        evaluated(worker, since)


# -- the matrix ----------------------------------------------------------------------------------------------------

MATRIX = {"workers": ROLES, "reuse": "fresh", "iterations": 2, "warmup": 0, "timeout": 60 + 10 * SECONDS}


@ftgate.contract("threads.counter.ticks > 0.75 * tasks.counter.ticks")
@ftgate.contract("threads.counter.ticks < 1.35 * tasks.counter.ticks")
@ftgate.compare(tasks, threads, **MATRIX)
@pytest.mark.parametrize("eval_ms", [1, 50])
@pytest.mark.parametrize("proc_ms", [0.5, 1])
def test_with_room(worker, proc_ms, eval_ms):
    """The processor is busy for at most 20 % of the time."""
    receive(worker)


@ftgate.contract("threads[3.14t].timer.processed_to_evaluated < 0.5 * tasks[3.14t].timer.processed_to_evaluated")
@ftgate.compare(tasks, threads, **MATRIX)
@pytest.mark.parametrize("eval_ms", [1])
@pytest.mark.parametrize("proc_ms", [5])
def test_without_room(worker, proc_ms, eval_ms):
    """5 ms x 200/s takes all of the processor's time. One thread has none left for the evaluator, which is fast."""
    receive(worker)


@ftgate.contract("threads[3.14t].timer.processed_to_evaluated < 1.5 * tasks[3.14t].timer.processed_to_evaluated")
@ftgate.compare(tasks, threads, **MATRIX)
@pytest.mark.parametrize("eval_ms", [10, 50])
@pytest.mark.parametrize("proc_ms", [5])
def test_without_room_or_hurry(worker, proc_ms, eval_ms):
    """The same, but most of the second latency is the evaluator's own delay, whatever runs it."""
    receive(worker)


@ftgate.contract(
    "threads[3.14t].timer.processed_to_evaluated < 0.5 * tasks[3.14t].timer.processed_to_evaluated",
    "threads[3.14t].counter.evaluations > 2 * tasks[3.14t].counter.evaluations",
    "threads[3.14t].peak.late_ms < 0.5 * tasks[3.14t].peak.late_ms",
)
@ftgate.compare(tasks, threads, **MATRIX)
@pytest.mark.parametrize("eval_ms", [1])
@pytest.mark.parametrize("proc_ms", [10])
def test_overloaded(worker, proc_ms, eval_ms):
    """Twice the work that there is time for: what a machine's noise is to the cells above is nothing here."""
    receive(worker)


async def lead(worker, proc_ms, eval_ms):
    """The leading role as a task, in every test here."""
    await receive_task(worker)


def stop(pipeline):
    """No more ticks will come: the processor ends after the waiting ones, the evaluator after the processor."""
    pipeline.inbound.put_nowait(None)


for test in (test_with_room, test_without_room, test_without_room_or_hurry, test_overloaded):
    test.variant(tasks)(lead)
    test.role("processor")(process)
    test.role("processor", tasks)(process_task)
    test.role("evaluator")(evaluate)
    test.role("evaluator", tasks)(evaluate_task)
    test.shared(Pipeline)
    test.stop(stop)

del test  # the last of them, under another name
