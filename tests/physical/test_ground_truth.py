"""What is known beforehand, measured through real launches on both builds: lock wait, GIL wait."""

from __future__ import annotations

import pytest
from bench import (
    FORK,
    FORKSERVER,
    INTERPRETERS,
    SERIAL,
    SPAWN,
    TASKS,
    THREADS,
    Bench,
    each_on_a_build,
)

from physical import confirm, confirm_near
from pytest_ftgate.measure.launch import HeldIteration
from pytest_ftgate.model.sample import LockSite, LockWaits, Waits
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP

PROCESSES = (FORK, FORKSERVER, SPAWN)
ALL = (SERIAL, THREADS, *PROCESSES, INTERPRETERS, TASKS)

# -- lock wait -----------------------------------------------------------------------------------------------------

SHARED = """
    import time

    @ftgate.compare(threads)
    def test_it(worker):
        with worker.shared, worker.timed("held"):
            time.sleep(0.03)

    @test_it.variant(tasks)
    async def as_task(worker):
        import asyncio
        async with worker.shared:
            with worker.timed("held"):
                await asyncio.sleep(0.03)

    @test_it.shared
    def state(kind):
        return kind.Lock()  # shared
"""


def lock_launch(
    bench: Bench, executor: Executor, build: str, workers: int, iterations: int = 2
) -> tuple[LockWaits, float]:
    """The waits of a launch with the probe, and the mean time that the workload itself saw a lock held, in ns."""
    handle = bench.ready(executor, build=build, side="locks", workers=workers)
    for kind in (COLD, WARMUP, *[MEASURED] * iterations):
        handle.iteration(kind)
    done = handle.finish()
    assert done.locks is not None
    held = done.timers["held"]
    return done.locks, held.total_ns / held.count


def site_of(waits: LockWaits, waits_for: str = "lock") -> LockSite:
    found = [site for site in waits.sites if site.waits_for == waits_for and site.contended]
    assert len(found) == 1, waits.sites
    return found[0]


@each_on_a_build([THREADS, *PROCESSES, TASKS])
def test_workers_that_share_a_lock_wait_as_theory_says(bench: Bench, executor: Executor, build: str) -> None:
    path = bench.write(SHARED)
    line = path.read_text().splitlines().index("    return kind.Lock()  # shared") + 1
    kind = {"threads": "Lock", "processes": "multiprocessing.Lock", "tasks": "asyncio.Lock"}[executor.kind]

    def over_theory() -> float:
        handle = bench.ready(executor, build=build, side="locks", workers=3, reuse="pool")
        for event in (COLD, WARMUP, MEASURED, MEASURED):
            handle.iteration(event)
        done = handle.finish()
        assert done.locks is not None
        site = site_of(done.locks)
        assert (site.file, site.line, site.kind) == (str(path), line, kind)
        assert site.contended == 2 * 2
        held = done.timers["held"]
        return site.total_ns / (2 * 3 * held.total_ns / held.count)

    confirm_near(over_theory, pytest.approx(1.0, rel=0.1))


POOL_INSIDE = """
    import threading
    import time

    @ftgate.compare(threads)
    def test_it(worker):
        lock = threading.Lock()  # of threads
        started = [threading.Thread(target=hold, args=(worker, lock)) for _ in range(8)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()

    def hold(worker, lock):
        with lock, worker.timed("held"):
            time.sleep(0.02)

    @test_it.variant(tasks)
    async def as_tasks(worker):
        import asyncio
        lock = asyncio.Lock()  # of tasks

        async def hold():
            async with lock:
                with worker.timed("held"):
                    await asyncio.sleep(0.02)

        await asyncio.gather(*[hold() for _ in range(8)])
"""


@each_on_a_build(ALL)
def test_threads_of_a_worker_wait_as_theory_says_and_as_a_share_of_their_time(
    bench: Bench, executor: Executor, build: str
) -> None:
    """Eight threads of one worker hold a lock in turn: they wait 0 + 1 + ... + 7 times as long, in 1 + 2 + ... + 8.

    As a share of the worker's time that is 350 %. A task that did not wait is not followed.
    """
    path = bench.write(POOL_INSIDE)
    kind = "asyncio.Lock" if executor is TASKS else "Lock"
    line = 1 + next(number for number, text in enumerate(path.read_text().splitlines()) if f"{kind}()  # of" in text)
    lived = 36 - (executor is TASKS)

    def over_theory() -> float:
        waits, held_ns = lock_launch(bench, executor, build, workers=1)
        site = site_of(waits)
        assert (site.file, site.line, site.kind) == (str(path), line, kind)
        assert (site.contended, site.acquisitions) == (2 * 7, 8)  # of two iterations; of the warm-up
        assert site.total_ns > 3 * waits.work_ns
        assert site.total_ns / (2 * 28 * held_ns) == pytest.approx(1.0, rel=0.1)
        assert site.max_ns == pytest.approx(7 * held_ns, rel=0.2)
        return site.total_ns / waits.thread_ns / (28 / (lived + 8))

    confirm_near(over_theory, pytest.approx(1.0, rel=0.1))


POOLED = """
    import threading
    import time

    LOCK = threading.Lock()  # of each worker's module

    def task(number):
        ready = threading.Barrier(2)
        started = [threading.Thread(target=hold, args=(ready,)) for _ in range(2)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        return number

    def hold(ready):
        ready.wait()
        with LOCK:
            time.sleep(0.02)

    @ftgate.compare(threads)
    def test_it(executor):
        list(executor.map(task, range(2)))
"""


@each_on_a_build([SERIAL, THREADS, *PROCESSES, INTERPRETERS])
def test_workers_of_a_pool_are_seen_too(bench: Bench, executor: Executor, build: str) -> None:
    path = bench.write(POOLED)

    def sample() -> None:
        handle = bench.ready(executor, build=build, side="locks", workers=2, body="executor")
        for kind in (COLD, WARMUP, MEASURED, MEASURED):
            handle.iteration(kind)
        waits = handle.finish().locks
        assert waits is not None
        site = site_of(waits)
        assert (site.file, site.kind) == (str(path), "Lock")
        # Two tasks a iteration, each with two threads of which one waits; those of one process meet at the same lock.
        least = 4 if executor in (SERIAL, THREADS) else 2
        assert least <= site.contended <= 6
        assert site.total_ns > site.contended * 15_000_000

    confirm(sample)


# -- waits from outside --------------------------------------------------------------------------------------------

BUSY = """
    @ftgate.compare(threads)
    def test_it(worker):
        x = 0
        for i in range(20_000):
            x += i

    @test_it.variant(tasks)
    async def as_task(worker):
        return test_it(worker)
"""


def watched(bench: Bench, executor: Executor, build: str, workers: int = 2) -> Waits:
    handle = bench.ready(executor, build=build, workers=workers)
    held: HeldIteration = handle.measure_held(500_000_000, True)
    handle.finish()
    assert held.waits is not None
    assert held.waits.unavailable == ""
    return held.waits


@each_on_a_build(ALL)
def test_two_busy_workers_wait_for_the_gil_where_they_share_one(bench: Bench, executor: Executor, build: str) -> None:
    bench.write(BUSY)
    share_it = build == "3.14" and executor == THREADS

    def gil_share() -> float:
        waits = watched(bench, executor, build)
        parts = (waits.running_s, waits.runnable_s, waits.gil_s, waits.futex_s, waits.process_s, waits.asleep_s)
        assert sum(parts) == pytest.approx(waits.span_s, rel=0.02)
        if not share_it:
            assert waits.gil_s < 0.02 * waits.span_s
        # Of two that share a GIL one waits for it, and one runs or waits for a core.
        busy_s = waits.gil_s + waits.running_s + waits.runnable_s
        assert busy_s > 0
        return waits.gil_s / busy_s

    confirm_near(gil_share, pytest.approx(0.5, rel=0.1) if share_it else pytest.approx(0, abs=0.02))
