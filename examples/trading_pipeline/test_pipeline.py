"""A trading pipeline: receiver, processor and evaluator as three tasks of one event loop, or as three threads."""

import asyncio
import ctypes
import os
from time import perf_counter_ns, sleep

from pytest_ftgate import ftgate, tasks, threads

RATE = 200
"""Ticks per second."""
STEP_NS = 1_000_000_000 // RATE
SECONDS = float(os.environ.get("PIPELINE_SECONDS", "0.4"))
"""The length of the schedule, in one call of the receiver; the run of the write-up took 60."""
ANSWER_S = 0.001
"""The exchange's answer to an order, which the evaluator waits for."""

hold = ctypes.PyDLL(None).usleep
"""Sleeps, and keeps the GIL where there is one."""


class Pipeline:
    """The inbound queue, and the one slot between processor and evaluator with the condition that guards it."""

    def __init__(self, context):
        self.inbound = context.Queue()
        self.changed = context.Condition()
        self.slot = None
        self.proc_ms, self.eval_ms = float(os.environ["PROC_MS"]), float(os.environ["EVAL_MS"])
        self.ends = 0


def compute(ms):
    """Keeps its thread busy for so long, as for the others a computation would; but it needs no core.

    On 3.14 it keeps the GIL for a switch interval at a time.
    """
    for left in range(round(1000 * ms), 0, -5000):
        hold(min(left, 5000))


def due_times(pipeline):
    """When each tick is due, in ns: the k-th at t0 + k / RATE, whatever happened before."""
    began, ticks = perf_counter_ns(), round(SECONDS * RATE)
    pipeline.ends = began + ticks * STEP_NS
    return range(began, pipeline.ends, STEP_NS)


def wait_s(due):
    """How long until then; not positive where the receiver is late, which then goes on without a wait."""
    return (due - perf_counter_ns()) / 1e9


def arrived(worker, due):
    worker.peak("late_ms", (perf_counter_ns() - due) / 1e6)
    worker.peak("queue_depth", worker.shared.inbound.qsize())


def processed(worker, due):
    """Counts a tick only while the schedule lasts: to work off a backlog afterwards is no throughput."""
    now = perf_counter_ns()
    worker.timed("receive_to_processed").add(now - due)
    worker.count("ticks", int(now <= worker.shared.ends))
    return now


def evaluated(worker, since):
    worker.timed("processed_to_evaluated").add(perf_counter_ns() - since)
    worker.count("evaluations")


# -- threads -------------------------------------------------------------------------------------------------------


def receive(worker):
    """The only thread with network I/O."""
    for due in due_times(worker.shared):
        if (wait := wait_s(due)) > 0:
            sleep(wait)
        arrived(worker, due)
        worker.shared.inbound.put(due)


def process(worker):
    """Strictly sequential: it owns the order book, which needs no lock."""
    pipeline = worker.shared
    while (due := pipeline.inbound.get()) is not None:
        compute(pipeline.proc_ms)
        publish(pipeline, processed(worker, due))
    publish(pipeline, 0)


def publish(pipeline, news):
    with pipeline.changed:
        pipeline.slot = news
        pipeline.changed.notify_all()


def evaluate(worker):
    """Decides on what is in the slot, sends its order, and misses what was replaced meanwhile."""
    pipeline = worker.shared
    while True:
        with pipeline.changed:
            pipeline.changed.wait_for(lambda: pipeline.slot is not None)
            since, pipeline.slot = pipeline.slot, None
        if not since:
            return
        compute(pipeline.eval_ms)
        sleep(ANSWER_S)
        evaluated(worker, since)


# -- tasks ---------------------------------------------------------------------------------------------------------


async def receive_task(worker):
    for due in due_times(worker.shared):
        if (wait := wait_s(due)) > 0:
            await asyncio.sleep(wait)
        arrived(worker, due)
        await worker.shared.inbound.put(due)


async def process_task(worker):
    pipeline = worker.shared
    while (due := await pipeline.inbound.get()) is not None:
        compute(pipeline.proc_ms)
        await publish_task(pipeline, processed(worker, due))
    await publish_task(pipeline, 0)


async def publish_task(pipeline, news):
    async with pipeline.changed:
        pipeline.slot = news
        pipeline.changed.notify_all()


async def evaluate_task(worker):
    pipeline = worker.shared
    while True:
        async with pipeline.changed:
            await pipeline.changed.wait_for(lambda: pipeline.slot is not None)
            since, pipeline.slot = pipeline.slot, None
        if not since:
            return
        compute(pipeline.eval_ms)
        await asyncio.sleep(ANSWER_S)
        evaluated(worker, since)


# -- the matrix ----------------------------------------------------------------------------------------------------


def with_roles(test):
    """The receiver leads: one call of it is one run of the schedule."""
    test.variant(tasks)(receive_task)
    test.role("processor")(process)
    test.role("processor", tasks)(process_task)
    test.role("evaluator")(evaluate)
    test.role("evaluator", tasks)(evaluate_task)
    test.shared(Pipeline)
    test.stop(stop)
    return test


def stop(pipeline):
    """No more ticks will come: the processor ends after the waiting ones, the evaluator after the processor."""
    pipeline.inbound.put_nowait(None)


def over_tasks(metric, factor, cell):
    """The contract that threads have less than so many times the tasks' figure."""
    return f"threads[{cell}].{metric} < {factor} * tasks[{cell}].{metric}"


OPTIONS = {
    "workers": {"receiver": 1, "processor": 1, "evaluator": 1},
    "reuse": "fresh",
    "iterations": 1,
    "warmup": 0,
    "timeout": 60 + 10 * SECONDS,
}
PROC_MS, EVAL_MS = ("0.5", "1", "2", "5"), ("1", "10", "50")


@with_roles
@ftgate.contract(
    "threads.counter.ticks > 0.75 * tasks.counter.ticks",
    over_tasks("counter.ticks", 1.35, "PROC_MS=0.5, EVAL_MS=1"),
    over_tasks("timer.receive_to_processed", 0.5, "EVAL_MS=50"),
    over_tasks("timer.processed_to_evaluated", 0.5, "PROC_MS=5, EVAL_MS=50"),
    over_tasks("peak.queue_depth", 0.5, "PROC_MS=5, EVAL_MS=50"),
)
@ftgate.compare(
    tasks,
    threads,
    pythons=["3.14t"],
    env=[{"PROC_MS": proc_ms, "EVAL_MS": eval_ms} for proc_ms in PROC_MS for eval_ms in EVAL_MS],
    **OPTIONS,
)
def test_pipeline(worker):
    receive(worker)


@with_roles
@ftgate.contract("threads[3.14t].timer.receive_to_processed < 0.5 * threads[3.14].timer.receive_to_processed")
@ftgate.compare(tasks, threads, env={"PROC_MS": "5", "EVAL_MS": "50"}, **OPTIONS)
def test_with_the_gil(worker):
    """The heaviest of these cells on both builds."""
    receive(worker)
