"""What is known beforehand, measured through real launches on both builds: lock wait, GIL wait."""

from __future__ import annotations

import pytest
from bench import (
    BUILDS,
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
from pytest_ftgate.measure.launch import Held, LaunchFailed
from pytest_ftgate.measure.launchers import workload
from pytest_ftgate.model import Executor, LockSite, LockWaits, Waits
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP

PROCESSES = (FORK, FORKSERVER, SPAWN)
ALL = (SERIAL, THREADS, *PROCESSES, INTERPRETERS, TASKS)

# -- lock wait -----------------------------------------------------------------------------------------------------

# Every thread asks for the lock at once and holds it for h: they wait 0, h, 2 h ...
INSIDE = """
    import threading
    import time

    @ftgate.compare(threads)
    def test_it(worker):
        lock = threading.Lock()  # inside
        ready = threading.Barrier(3)
        held = worker.timed("held")

        def hold():
            ready.wait()
            with lock:
                since = time.perf_counter_ns()
                time.sleep(0.03)
                held.add(time.perf_counter_ns() - since)

        started = [threading.Thread(target=hold) for _ in range(3)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()

    @test_it.variant(tasks)
    async def as_task(worker):
        import asyncio
        await asyncio.to_thread(test_it, worker)
"""
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
    handle = bench.start(executor, build=build, side="locks", workers=workers)
    handle.ready()
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


@each_on_a_build(ALL)
def test_threads_that_hold_a_lock_wait_as_theory_says(bench: Bench, executor: Executor, build: str) -> None:
    path = bench.write(INSIDE)
    line = path.read_text().splitlines().index("    lock = threading.Lock()  # inside") + 1

    def over_theory() -> float:
        waits, held_ns = lock_launch(bench, executor, build, workers=2)
        site = site_of(waits)
        assert (site.file, site.line, site.kind) == (str(path), line, "Lock")
        assert site.contended == 2 * 2 * 2  # two workers, two iterations, two of three threads wait
        assert site.acquisitions == 2 * 3  # of the warm-up
        assert site.max_ns < 1.3 * site.total_ns / 6
        return site.total_ns / (2 * 2 * 3 * held_ns)  # 0 + h + 2 h

    confirm_near(over_theory, pytest.approx(1.0, rel=0.1))


@each_on_a_build([THREADS, *PROCESSES, TASKS])
@pytest.mark.parametrize("reuse", ["fresh", "pool"])
def test_workers_that_share_a_lock_wait_as_theory_says(
    bench: Bench, executor: Executor, build: str, reuse: str
) -> None:
    path = bench.write(SHARED)
    line = path.read_text().splitlines().index("    return kind.Lock()  # shared") + 1
    kind = {"threads": "Lock", "processes": "multiprocessing.Lock", "tasks": "asyncio.Lock"}[executor.kind]

    def over_theory() -> float:
        handle = bench.start(executor, build=build, side="locks", workers=3, reuse=reuse)
        handle.ready()
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
        lock = threading.Lock()
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
        lock = asyncio.Lock()

        async def hold():
            async with lock:
                with worker.timed("held"):
                    await asyncio.sleep(0.02)

        await asyncio.gather(*[hold() for _ in range(8)])
"""


@each_on_a_build(ALL)
def test_waits_are_a_share_of_the_time_of_all_threads(bench: Bench, executor: Executor, build: str) -> None:
    """Eight threads of one worker hold a lock in turn: they wait 0 + 1 + ... + 7 times as long, in 1 + 2 + ... + 8.

    As a share of the worker's time that is 350 %. A task that did not wait is not followed.
    """
    bench.write(POOL_INSIDE)
    lived = 36 - (executor is TASKS)

    def over_theory() -> float:
        waits, _ = lock_launch(bench, executor, build, workers=1)
        share = site_of(waits).total_ns / waits.thread_ns
        assert site_of(waits).total_ns > 3 * waits.work_ns
        return share / (28 / (lived + 8))

    confirm_near(over_theory, pytest.approx(1.0, rel=0.1))


@pytest.mark.parametrize("build", BUILDS)
def test_a_lock_that_the_user_named_carries_its_name(bench: Bench, build: str) -> None:
    bench.write(SHARED.replace("return kind.Lock()", 'return ftgate.named(kind.Lock(), "cache")'))
    for executor in (THREADS, SPAWN, TASKS):
        waits, _ = lock_launch(bench, executor, build, workers=2, iterations=1)
        # The warm-up counts acquisitions, so the site is there whether or not a worker came late and found it free.
        assert {site.name for site in waits.sites if site.waits_for == "lock"} == {"cache"}


@pytest.mark.parametrize("build", BUILDS)
def test_waiting_for_an_item_is_no_lock_wait(bench: Bench, build: str) -> None:
    bench.write("""
        import queue
        import time

        @ftgate.compare(threads)
        def test_it(worker):
            with worker.timed("held"):
                if worker.index:
                    return worker.shared.get()
                time.sleep(0.05)
                worker.shared.put(1)

        @test_it.shared
        def state(kind):
            return queue.Queue()
    """)

    def sample() -> None:
        waits, _ = lock_launch(bench, THREADS, build, workers=2)
        site = site_of(waits, "queue")
        assert (site.kind, site.contended) == ("Queue", 2)
        assert sum(site.total_ns for site in waits.sites if site.waits_for == "lock") < site.total_ns / 20

    confirm(sample)


def test_a_launch_without_the_start_hook_is_an_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write(SHARED)
    monkeypatch.setattr(workload, "STARTHOOK", "elsewhere")
    handle = bench.start(THREADS, side="locks")
    with pytest.raises(LaunchFailed, match="the lock probe is not active"):
        handle.ready()


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
@pytest.mark.parametrize("reuse", ["fresh", "pool"])
def test_workers_of_a_pool_are_seen_too(bench: Bench, executor: Executor, reuse: str, build: str) -> None:
    path = bench.write(POOLED)

    def sample() -> None:
        handle = bench.start(executor, build=build, side="locks", workers=2, reuse=reuse, body="executor")
        handle.ready()
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
    handle = bench.start(executor, build=build, workers=workers)
    handle.ready()
    held: Held = handle.measure_held(500_000_000, True)
    handle.finish()
    assert held.waits is not None
    assert held.waits.unavailable == ""
    return held.waits


@each_on_a_build(ALL, both=[THREADS, FORK, INTERPRETERS])
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
        return waits.gil_s / (waits.gil_s + waits.running_s + waits.runnable_s)

    confirm_near(gil_share, pytest.approx(0.5, rel=0.1) if share_it else pytest.approx(0, abs=0.02))


@pytest.mark.parametrize("executor", [THREADS, FORK], ids=lambda executor: executor.label)
def test_workers_that_meet_in_their_body_are_held_to_the_end(bench: Bench, executor: Executor) -> None:
    bench.write("""
        import time

        @ftgate.compare(threads)
        def test_it(worker):
            time.sleep(0.001 * (1 + worker.index))
            worker.shared.wait()

        @test_it.shared
        def state(kind):
            return kind.Barrier(2)
    """)
    handle = bench.start(executor, build="3.14t")
    handle.ready()
    held = handle.measure_held(200_000_000, True, 2_000_000)
    assert held.iteration.ops % 2 == 0
    assert held.iteration.ops > 20
    assert held.memory
    handle.finish()
