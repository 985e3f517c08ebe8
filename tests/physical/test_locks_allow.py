"""How many workers locks allow, on few cores for many: bodies whose work sleeps, so that they need none."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bench import BUILDS, FORK, INTERPRETERS, SPAWN, TASKS, THREADS, Bench, each_on_a_build
from msgspec.structs import replace

from physical import confirm
from pytest_ftgate.judge.readers import NO_LIMIT, lock_ceilings, lock_limit
from pytest_ftgate.model.sample import Sample
from pytest_ftgate.model.spec import Cell, Executor, Target
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP

ROUNDS = 2
SOURCE = """
    import asyncio, contextlib, queue, threading, time

    def rest(ms):
        time.sleep(ms / 1000)

    class Held:
        def __init__(self, lock):
            self.lock = lock

        def work(self, held, rest_of_it):
            for _ in range(3):  # looks first, as a cache does
                with self.lock:
                    pass
            with self.lock:
                rest(held)
            rest(rest_of_it)

    @ftgate.compare(threads, processes=["fork", "spawn"], workers=[1, 2])
    def test_lock(worker):  # 30 %
        Held(worker.shared).work(6, 14)

    @test_lock.shared
    def shared(context):
        return context.Lock()

    @ftgate.compare(threads, workers=[1, 2])
    def test_rlock(worker):  # taken twice, in other ways
        lock = worker.shared
        with contextlib.ExitStack() as stack:
            stack.enter_context(lock)
            lock.acquire()
            rest(3)
            lock.release()
            rest(3)
        rest(14)

    @test_rlock.shared
    def shared(context):
        return threading.RLock()

    @ftgate.compare(threads, workers=[1, 2])
    def test_condition(worker):  # 30 %, but for the wait, in which it is not held
        with worker.shared:
            rest(3)
            worker.shared.wait(0.014)
            rest(3)

    @test_condition.shared
    def shared(context):
        return threading.Condition()

    @ftgate.compare(threads, workers=[1, 2])
    def test_two(worker):  # 20 and 30 %
        first, second = worker.shared
        first.acquire()
        rest(4)
        first.release()
        with second:
            rest(6)
        rest(10)

    @test_two.shared
    def shared(context):
        return context.Lock(), context.Lock()

    @ftgate.compare(threads, workers=[1, 2])
    def test_own(worker):  # a lock for each worker
        with worker.shared[worker.index]:
            rest(12)
        rest(8)

    @test_own.shared
    def shared(context):
        return [context.Lock() for _ in range(8)]

    @ftgate.compare(threads, workers=[1, 2])
    def test_consumer(worker):  # one consumer is slow, and holds no lock meanwhile
        worker.shared.put(1)
        rest(3)

    @test_consumer.shared
    def shared(context):
        def eat():
            while True:
                items.get()
                rest(1.5)

        items = queue.Queue(maxsize=2)
        threading.Thread(target=eat, daemon=True).start()
        return items

    @ftgate.compare(interpreters, workers=[1, 2])
    def test_interpreters(worker):  # each has its own
        Held(LOCK).work(6, 14)

    LOCK = threading.Lock()

    @ftgate.compare(tasks, workers=[1, 2])
    async def test_task(worker):
        async with worker.shared:
            await asyncio.sleep(0.006)
        await asyncio.sleep(0.014)

    @test_task.shared
    def shared(context):
        return asyncio.Lock()

    @ftgate.compare(threads, workers=[1, 2])
    def test_grows(worker):  # longer with two workers
        lock, _ = worker.shared
        with lock:
            rest(6 * worker.workers)
        rest(14)

    @test_grows.shared
    def shared(context):
        return context.Lock(), 0
"""


def sample_of(
    bench: Bench, executor: Executor, build: str, workers: int, test: str, rounds: int = ROUNDS, **options: Any
) -> Sample:
    """Lock launches of a cell with so many workers; `window_s` is the length of an iteration, where it has one."""
    window_ns = round(options.pop("window_s", 0) * 1e9)
    cell = Cell(nodeid="x", target=Target(spec=build, request=build), executor=executor, workers=workers)
    launches = []
    for order in range(rounds):
        handle = bench.ready(executor, build=build, side="locks", workers=workers, test=test, **options)
        for kind in (COLD, WARMUP, MEASURED):
            handle.iteration(kind, 1, window_ns)
        launches.append(replace(handle.finish(), role="locks", order=order))
    return Sample(cell=cell, interpreter=None, key="", all_launches=tuple(launches))  # type: ignore[arg-type]


def cells_of(bench: Bench, executor: Executor, build: str, test: str, rounds: int = ROUNDS) -> tuple[Sample, Sample]:
    """With one worker, and with two."""
    return tuple(sample_of(bench, executor, build, workers, test, rounds) for workers in (1, 2))  # type: ignore[return-value]


def allows(bench: Bench, executor: Executor, build: str, test: str, wanted: float, by: str) -> None:
    """Every launch says that the locks allow so many workers, and names the function that takes the one."""
    cells = cells_of(bench, executor, build, test)
    found = lock_ceilings(*cells)
    limit = lock_limit(*cells)
    assert limit is not None
    assert limit.by.name == by
    assert [*found.values()] == [pytest.approx(wanted, rel=0.1)] * ROUNDS


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(
    ("test", "by"),
    [("test_lock", "Held.work"), *((f"test_{name}", f"test_{name}") for name in ("rlock", "condition", "two"))],
)
def test_a_lock_that_is_held_for_three_tenths_of_the_time_allows_3_3_workers(
    bench: Bench, build: str, test: str, by: str
) -> None:
    bench.write(SOURCE)
    confirm(partial(allows, bench, THREADS, build, test, 1 / 0.3, by))


@each_on_a_build((FORK, SPAWN), both=(FORK,))
def test_so_does_one_that_processes_share(bench: Bench, executor: Executor, build: str) -> None:
    bench.write(SOURCE)
    confirm(partial(allows, bench, executor, build, "test_lock", 1 / 0.3, "Held.work"))


@pytest.mark.parametrize("build", BUILDS)
def test_so_does_one_that_tasks_share(bench: Bench, build: str) -> None:
    bench.write(SOURCE)
    confirm(partial(allows, bench, TASKS, build, "test_task", 1 / 0.3, "test_task"))


@pytest.mark.parametrize("build", BUILDS)
def test_a_lock_with_one_taker_limits_nothing(bench: Bench, build: str) -> None:
    bench.write(SOURCE)
    for executor, test in ((THREADS, "test_own"), (INTERPRETERS, "test_interpreters")):
        cells = cells_of(bench, executor, build, test)
        assert {*lock_ceilings(*cells).values()} == {NO_LIMIT}
        assert lock_limit(*cells) is None


@pytest.mark.parametrize("build", BUILDS)
def test_of_a_queue_whose_lock_is_held_for_microseconds_nothing_is_said(bench: Bench, build: str) -> None:
    """The consumer limits the workers, and no lock."""
    bench.write(SOURCE)

    def sample() -> None:
        cells = cells_of(bench, THREADS, build, "test_consumer")
        assert {*lock_ceilings(*cells).values()} <= {NO_LIMIT}

    confirm(sample)


@pytest.mark.parametrize("build", BUILDS)
def test_a_hold_that_grows_with_the_workers_is_said(bench: Bench, build: str) -> None:
    bench.write(SOURCE)

    def sample() -> None:
        limit = lock_limit(*cells_of(bench, THREADS, build, "test_grows", 3))
        assert limit is not None
        assert limit.longer == pytest.approx(2, rel=0.1)
        steady = lock_limit(*cells_of(bench, THREADS, build, "test_lock", 3))
        assert steady is not None
        assert steady.longer is None

    confirm(sample)


@each_on_a_build((FORK, SPAWN))
def test_it_bounds_what_the_shared_set_reaches(bench: Bench, executor: Executor, build: str) -> None:
    """Scenario 2: its processes hold the lock while they ask a Manager; threads hold it too briefly to tell."""
    example = Path(__file__).parents[2] / "examples" / "scenario2_shared_set"
    for path in example.glob("*.py"):
        shutil.copy(path, bench.folder)

    def cells(executor: Executor, *counts: int) -> list[Sample]:
        options: dict[str, Any] = {"test": "test_shared_set", "module": "test_shared_set", "window_s": 0.2, "rounds": 1}
        return [sample_of(bench, executor, build, workers, **options) for workers in counts]

    def rate(of: Sample) -> float:
        return sum(launch.iterations[0].rate for launch in of.of("locks"))

    def sample() -> None:
        one, *several = cells(executor, 1, 2, 8)
        for each in several:
            for allowed in lock_ceilings(one, each).values():
                assert rate(each) / rate(one) < 1.25 * allowed
                assert 1 <= allowed < 2
        assert lock_ceilings(*cells(THREADS, 1, 2)) == {}

    confirm(sample)
