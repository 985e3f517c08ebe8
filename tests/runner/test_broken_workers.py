"""Whatever a worker's body or result does, the launch ends at once with an error that names the cause."""

from __future__ import annotations

import pytest
from bench import FORK, INTERPRETERS, SERIAL, SPAWN, TASKS, THREADS, Bench

from pytest_ftgate.measure.launch import LaunchFailed
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.protocol import CHECK, COLD, MEASURED

WORKLOAD = """
    import asyncio, sys, threading

    class Mute(Exception):
        def __str__(self):
            raise ValueError("no text")
        __repr__ = __str__

    class Odd(str):
        def __repr__(self):
            raise OSError("no repr")

    def odd_str(worker):
        raise Mute

    def odd_repr(worker):
        return Odd("x")

    def circle(worker):
        result = []
        result.append(result)
        return result

    def odd_count(worker):
        worker.count("n", sys)

    def odd_name(worker):
        worker.count("n")
        worker.counters[sys] = worker.counters["n"]

    def interrupted(worker):
        raise KeyboardInterrupt

    def cancelled(worker):
        raise asyncio.CancelledError

    def left(worker):
        sys.exit("gone")

    @ftgate.compare(threads)
    def test_it(worker):
        return BODY(worker)

    @test_it.variant(tasks)
    async def as_task(worker):
        return BODY(worker)
"""
SAID = {
    "odd_str": "raised Mute",
    "odd_repr": "the result cannot be compared: raised OSError: no repr",
    "circle": "the result cannot be compared: raised RecursionError",
    "odd_count": "raised TypeError",
    "odd_name": "its counters cannot be sent: unmarshallable object",
    "interrupted": "raised KeyboardInterrupt",
    "cancelled": "raised CancelledError",
    "left": "raised SystemExit: gone",
}


@pytest.mark.parametrize("body", SAID)
@pytest.mark.parametrize("executor", [THREADS, FORK, TASKS], ids=lambda executor: executor.label)
def test_what_a_body_does_is_the_error(bench: Bench, executor: Executor, body: str) -> None:
    if body == "odd_name" and executor is TASKS:
        pytest.skip("the reports of tasks are not sent")
    bench.write(WORKLOAD.replace("BODY", body))
    handle = bench.ready(executor)
    with pytest.raises(LaunchFailed) as failed:
        handle.iteration(CHECK)
    assert SAID[body] in failed.value.error.reason
    assert "0" in failed.value.error.reason


@pytest.mark.parametrize("executor", [SERIAL, SPAWN, INTERPRETERS], ids=lambda executor: executor.label)
def test_an_exception_without_a_text_is_named_by_every_executor(bench: Bench, executor: Executor) -> None:
    bench.write(WORKLOAD.replace("BODY", "odd_str"))
    handle = bench.ready(executor)
    with pytest.raises(LaunchFailed, match="worker 0: raised Mute"):
        handle.iteration(COLD)


@pytest.mark.parametrize("executor", [THREADS, FORK, TASKS], ids=lambda executor: executor.label)
def test_a_worker_that_fails_is_named_though_another_waits_for_it(bench: Bench, executor: Executor) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            if worker.index == 1:
                raise LookupError("not found")
            worker.shared.get()

        @test_it.variant(tasks)
        async def as_task(worker):
            if worker.index == 1:
                raise LookupError("not found")
            await worker.shared.get()

        @test_it.shared
        def state(shared):
            return shared.Queue()
    """)
    handle = bench.ready(executor)
    with pytest.raises(LaunchFailed, match="worker 1: raised LookupError: not found"):
        handle.iteration(COLD)


def test_a_result_that_is_too_large_is_refused(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            return "x" * (65 << 20)

        @test_it.check
        def right(results): ...
    """)
    handle = bench.ready(FORK)
    with pytest.raises(LaunchFailed, match="worker 0: its report has 65 MiB, of which at most 64 MiB can be sent"):
        handle.iteration(CHECK)


def test_figures_that_cannot_be_written_are_the_error(bench: Bench) -> None:
    bench.write("""
        import sys

        @ftgate.compare(tasks)
        async def test_it(worker):
            worker.count("n")
            worker.counters[sys] = worker.counters["n"]
    """)
    handle = bench.ready(TASKS)
    handle.iteration(MEASURED)
    with pytest.raises(LaunchFailed, match="its figures cannot be written: unmarshallable object"):
        handle.finish()


@pytest.mark.parametrize("executor", [THREADS, INTERPRETERS])
def test_workers_that_would_be_greenlets_are_refused(bench: Bench, executor: Executor) -> None:
    """They waited in their pipes for each other until the timeout, and without `--ftgate` for ever."""
    bench.write("""
        import sys
        from types import SimpleNamespace
        sys.modules["gevent.monkey"] = SimpleNamespace(is_module_patched=lambda name: name == "threading")

        @ftgate.compare(threads, interpreters)
        def test_it(worker): ...
    """)
    handle = bench.ready(executor)
    with pytest.raises(LaunchFailed, match=r"has made greenlets of this process.s threads.*use serial or processes"):
        handle.iteration(COLD)
