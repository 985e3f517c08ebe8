"""What real launches on both builds show, whatever else the machine does: memory, leaks, roles, whose time counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

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

from physical import confirm_near, confirmed
from pytest_ftgate.measure.launch import LaunchFailed, StoppableHandle
from pytest_ftgate.measure.launchers import workload
from pytest_ftgate.model.sample import Barrier
from pytest_ftgate.model.spec import BodyKind, Executor, Param
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP

PROCESSES = (FORK, FORKSERVER, SPAWN)
ALL = (SERIAL, THREADS, *PROCESSES, INTERPRETERS, TASKS)
MIB = 1 << 20


def params(**values: object) -> tuple[Param, ...]:
    return tuple(Param(name=name, literal=repr(value)) for name, value in values.items())


@pytest.mark.parametrize("body", ["worker", "executor"])
@each_on_a_build(ALL, both=())
def test_workers_without_threads_of_their_own_have_all_of_the_time(
    bench: Bench, executor: Executor, build: str, body: BodyKind
) -> None:
    if body == "executor" and executor is TASKS:
        pytest.skip("a body of tasks drives no executor")
    sleeping = "list(it.map(time.sleep, [0.05] * 2))" if body == "executor" else "time.sleep(0.05)"
    parameter = "executor" if body == "executor" else "worker"
    bench.write(f"""
        import time

        @ftgate.compare(threads)
        def test_it({parameter}):
            {sleeping.replace("it.", f"{parameter}.")}

        if {body == "worker"}:
            @test_it.variant(tasks)
            async def as_task(worker):
                time.sleep(0.05)
    """)
    handle = bench.ready(executor, build=build, side="locks", workers=2, body=body)
    for kind in (COLD, WARMUP, MEASURED, MEASURED):
        handle.iteration(kind)
    waits = handle.finish().locks
    assert waits is not None
    drives = body == "executor" and executor is not SERIAL
    assert waits.thread_ns == (2 + drives) * waits.work_ns


TOUCHES = """
    import mmap

    @ftgate.compare(threads)
    def test_it(worker, mib):
        if not hasattr(worker.local, "held"):
            worker.local.held = mmap.mmap(-1, max(1, mib << 20))
            for page in range(0, mib << 20, 4096):
                worker.local.held[page] = 1

    @test_it.variant(tasks)
    async def as_task(worker, mib):
        test_it(worker, mib)
"""


def barriers(
    bench: Bench, executor: Executor, build: str, count: int = 1, reuse: str = "fresh", **values: object
) -> list[Barrier]:
    handle: StoppableHandle = bench.ready(executor, build=build, reuse=reuse, params=params(**values))
    found = [handle.barrier(1, 0) for _ in range(count)]
    handle.finish()
    return found


def uss(points: Sequence[Barrier]) -> float:
    return median(barrier.point.uss_bytes or 0 for barrier in points)


@each_on_a_build(ALL)
def test_a_worker_that_touches_64_mib_adds_64_mib(bench: Bench, executor: Executor, build: str) -> None:
    bench.write(TOUCHES)
    barriers(bench, executor, build, mib=0)  # the first launch compiles what it imports

    def added() -> float:
        return (
            uss(barriers(bench, executor, build, 2, mib=64)) - uss(barriers(bench, executor, build, 2, mib=0))
        ) / MIB

    confirm_near(added, pytest.approx(2 * 64, rel=0.03))


@pytest.mark.parametrize("reuse", ["pool", "fresh"])
@each_on_a_build(ALL, both=())
def test_the_collector_of_what_memory_is_measured_of_is_its_own(
    bench: Bench, executor: Executor, build: str, reuse: str
) -> None:
    # The threshold is 0, so the collector runs only when somebody calls it.
    bench.write("""
        import gc

        gc.set_threshold(0)
        RUNS = []
        gc.callbacks.append(lambda phase, info: RUNS.append(phase))

        def look():
            assert not RUNS
            assert gc.get_freeze_count() == 0

        @ftgate.compare(threads)
        def test_it(worker):
            look()

        @test_it.variant(tasks)
        async def as_task(worker):
            look()
    """)
    handle = bench.ready(executor, build=build, reuse=reuse)
    for _ in range(3):
        handle.barrier(1, 0)
    handle.measure_held(10_000_000, True)
    handle.barrier(1, 0)
    handle.finish()


@pytest.mark.parametrize("build", BUILDS)
def test_pages_that_forks_write_to_by_collecting_count_unless_the_workload_has_frozen_them(
    bench: Bench, build: str
) -> None:
    bench.write("""
        import gc
        import os

        HELD = []

        @ftgate.compare(processes=["fork"])
        def test_it(worker):
            gc.collect()

        @test_it.shared
        def shared(context):
            HELD[:] = [{"n": number} for number in range(100_000)]
            if os.environ["FREEZES"] == "yes":
                gc.freeze()
    """)

    def held(freezes: str) -> float:
        handle = bench.ready(FORK, build=build, reuse="pool", variables=(("FREEZES", freezes),))
        handle.barrier(1, 0)
        points = handle.measure_held(10_000_000, True).memory
        handle.finish()
        return median(point.uss_bytes or 0 for point in points) / MIB

    assert held("no") > held("yes") + 10


@pytest.mark.parametrize("build", BUILDS)
def test_garbage_is_left_behind_only_where_the_workload_never_collects(bench: Bench, build: str) -> None:
    bench.write("""
        import gc
        import mmap

        class Knot:
            def __init__(self):
                self.own, self.ballast = self, mmap.mmap(-1, 1 << 20)
                for page in range(0, 1 << 20, 4096):
                    self.ballast[page] = 1

        @ftgate.compare(serial)
        def test_it(worker, enabled):
            if not enabled:
                gc.disable()
            Knot()
    """)

    def left(enabled: int, *, collects: bool) -> float:
        handle = bench.ready(SERIAL, build=build, workers=1, params=params(enabled=enabled))
        found = [handle.barrier(1, 0, collects=collects) for _ in range(9)]
        handle.finish()
        held = [each.point.uss_bytes or 0 for each in found]
        return median(after - before for before, after in pairwise(held)) / MIB

    assert left(1, collects=True) == pytest.approx(0, abs=0.2)
    assert left(1, collects=False) == pytest.approx(1, abs=0.2)
    assert left(0, collects=True) == pytest.approx(1, abs=0.2)


@each_on_a_build([THREADS, FORK], both=())
def test_memory_that_workers_hold_is_seen(bench: Bench, executor: Executor, build: str) -> None:
    # An anonymous mapping in place of an object: allocators keep or give back what imports left, as it suits them.
    # The first launch is not sampled: it compiles what it imports, which leaves most.
    bench.write("""
        import mmap
        import time

        @ftgate.compare(threads)
        def test_it(worker, mib):
            if not hasattr(worker.local, "held"):
                worker.local.held = mmap.mmap(-1, mib << 20)
                for page in range(0, mib << 20, 4096):
                    worker.local.held[page] = 1
            time.sleep(0.01)
    """)

    def launch(mib: int) -> StoppableHandle:
        return bench.ready(executor, build=build, params=params(mib=mib))

    def held(handle: StoppableHandle) -> int:
        points = handle.measure_held(800_000_000, True).memory
        assert {point.processes for point in points} == {points[0].processes}
        assert len(points) > 1  # the only sample may have been taken when a worker had ended
        return max(point.uss_bytes or 0 for point in points)

    first = launch(1)
    first.iteration(COLD)
    first.finish()
    little, much = launch(1), launch(33)
    confirm_near(lambda: (held(much) - held(little)) / MIB, pytest.approx(2 * 32, abs=6))


@pytest.mark.parametrize("build", BUILDS)
@confirmed
def test_what_a_forked_worker_writes_moves_from_shared_to_unique(bench: Bench, build: str) -> None:
    bench.write("""
        import mmap

        INHERITED = mmap.mmap(-1, 48 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for page in range(0, 48 << 20, 4096):
            INHERITED[page] = 1

        @ftgate.compare(threads)
        def test_it(worker, mib):
            for page in range(0, mib << 20, 4096):
                INHERITED[page] = 2
    """)

    def role(points: Sequence[Barrier], name: str) -> float:
        return median(point.point.roles[name].uss_bytes or 0 for point in points) / MIB

    barriers(bench, FORK, build, mib=0)
    none, some = (barriers(bench, FORK, build, 2, mib=mib) for mib in (0, 16))
    assert role(some, "workers") - role(none, "workers") == pytest.approx(2 * 16, rel=0.01)
    # Main shares what is not written with nobody the less: of its 48 MiB only what both children wrote is its own.
    assert role(some, "main") - role(none, "main") == pytest.approx(16, rel=0.03)
    pss = [median(point.point.pss_bytes or 0 for point in points) / MIB for points in (none, some)]
    assert pss[1] - pss[0] == pytest.approx(2 * 16, rel=0.03)


@each_on_a_build([THREADS, SPAWN, TASKS])
def test_a_leak_is_seen_as_what_it_is(bench: Bench, executor: Executor, build: str) -> None:
    # A mapping is exactly as long as it says; of a bytearray of 100 KiB mimalloc makes 112.
    bench.write("""
        import mmap

        KEPT = []

        @ftgate.compare(threads)
        def test_it(worker, kib):
            if worker.index == 0:
                leak = mmap.mmap(-1, max(1, kib << 10))
                for page in range(0, kib << 10, 4096):
                    leak[page] = 1
                KEPT.append(leak)

        @test_it.variant(tasks)
        async def as_task(worker, kib):
            test_it(worker, kib)
    """)
    from pytest_ftgate.stats.estimators import theil_sen

    def slope_kib() -> float:
        # What an empty workload takes as it warms up is no leak.
        none, some = (barriers(bench, executor, build, 9, "pool", kib=kib)[1:] for kib in (0, 100))
        taken = [(b.point.uss_bytes or 0) - (a.point.uss_bytes or 0) for a, b in zip(none, some, strict=True)]
        return theil_sen(list(range(len(taken))), [float(each) for each in taken]) / 1024

    confirm_near(slope_kib, pytest.approx(100, rel=0.05))


@pytest.mark.parametrize("executor", ALL, ids=lambda executor: executor.label)
def test_processes_are_told_apart_by_their_roles(bench: Bench, executor: Executor) -> None:
    bench.write(TOUCHES)
    (found,) = barriers(bench, executor, "3.14t", mib=0)
    counts = {name: role.processes for name, role in found.point.roles.items()}
    workers = {"workers": 2} if executor in PROCESSES else {}
    servers = {"servers": 1} if executor == FORKSERVER else {}
    assert {name: count for name, count in counts.items() if count} == {"main": 1, **workers, **servers}
    assert sum(role.rss_bytes for role in found.point.roles.values()) == found.point.rss_bytes


def test_what_ends_before_the_window_does_is_watched_no_longer(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            sum(range(20_000))
    """)
    handle = bench.ready(THREADS, build="3.14t")
    held = handle.measure_held(30_000_000_000, True, 30_000_000_000)  # it takes far less than it was said to take
    assert held.iteration.ops == 2
    assert held.iteration.wall_ns < 20_000_000_000
    handle.finish()


def test_a_launch_without_the_start_hook_is_an_error(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write(TOUCHES)
    monkeypatch.setattr(workload, "STARTHOOK", "elsewhere")
    handle = bench.start(THREADS, side="locks", params=params(mib=0))
    with pytest.raises(LaunchFailed, match="the lock probe is not active"):
        handle.ready()
