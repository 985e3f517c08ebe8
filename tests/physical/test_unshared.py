"""Pages of the parent that forked workers have made their own, where their number is known: real launches, both builds.

The kernel's pagemap, which says of each page whether a process has it to itself, is another source of the same.
"""

from __future__ import annotations

import itertools
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench import BUILDS, FORK, FORKSERVER, SPAWN, THREADS, Bench, each_on_a_build

from pytest_ftgate.kit import proc, processes
from pytest_ftgate.measure.process_map import ProcessMap
from pytest_ftgate.measure.watch import memory
from pytest_ftgate.model.sample import MemoryPoint
from pytest_ftgate.model.spec import BodyKind, Executor
from pytest_ftgate.runner.protocol import COLD, WARMUP

pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the source is Linux's smaps")
MIB = 1 << 20
WORKERS = 2
HOLD_NS = 100_000_000

BUFFER = """
    import mmap

    SIZE = 32 << 20
    BUFFER = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    KEPT = []

    def touch(pages, start, stop):
        for at in range(start, stop, mmap.PAGESIZE):
            pages[at] = 1

    def body(index=0):
        {body}

    @ftgate.compare(processes=["fork"])
    def test_it(worker):
        body(worker.index)

    @test_it.shared
    def filled(context):
        touch(BUFFER, 0, SIZE)

    @ftgate.compare(processes=["fork"])
    def test_pool(executor):
        list(executor.map(body, range({workers})))

    @test_pool.shared
    def filled_too(context):
        touch(BUFFER, 0, SIZE)
"""
NOTHING = "pass"
WRITES = "touch(BUFFER, 5 << 20, 12 << 20)"
READS = "sum(BUFFER[::mmap.PAGESIZE])"
FRESH = "KEPT or KEPT.append(mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE)) or touch(KEPT[0], 0, SIZE)"

OBJECTS = """
    import gc

    DATA = []

    @ftgate.compare(processes=["fork"])
    def test_it(worker):
        {body}

    @test_it.shared
    def filled(context):
        DATA[:] = [{{"n": number}} for number in range(200_000)]
        gc.collect()
        {frozen}
"""
USES = "assert sum(each['n'] for each in DATA)"
CHANGES = "for each in DATA[::10]: each['n'] = -each['n']"
COLLECTS = "gc.collect()"
FREEZES = "gc.freeze()"
SMALLEST_DICT = 48
"""Bytes that a dict has at least: its head, without its keys and what the collector keeps before it."""
ALL = 200_000 * SMALLEST_DICT * WORKERS

_module = itertools.count()


@pytest.fixture
def unshared(bench: Bench) -> Callable[..., int | None]:
    """What a held launch of a workload shows in bytes; each time in a module of its own."""

    def of(
        source: str, build: str, executor: Executor = FORK, *, test: str = "test_it", reuse: str = "fresh"
    ) -> int | None:
        module, body = f"test_of_{next(_module)}", "executor" if test == "test_pool" else "worker"
        bench.write(source, f"{module}.py")
        kind: BodyKind = "executor" if body == "executor" else "worker"
        options = {"build": build, "module": module, "workers": WORKERS, "test": test, "body": kind, "reuse": reuse}
        handle = bench.ready(executor, **options)
        for event in (COLD, WARMUP):
            handle.iteration(event)
        points = handle.measure_held(HOLD_NS, True, 1e6).memory
        handle.finish()
        assert [point.unshared_bytes for point in points[:-1]] == [None] * (len(points) - 1), "one sample has it"
        return points[-1].unshared_bytes

    return of


def known(found: int | None) -> int:
    assert found is not None
    return found


# -- a buffer of which forks write a known part ------------------------------------------------------------------------


def buffer(body: str) -> str:
    return BUFFER.format(body=body, workers=4 * WORKERS)


@each_on_a_build([FORK, FORKSERVER], both=[FORK])
@pytest.mark.parametrize("reuse", ["fresh", "pool"])
def test_the_pages_that_each_worker_wrote_to_count_and_no_others(
    unshared: Callable[..., int | None], executor: Executor, build: str, reuse: str
) -> None:
    floor, reads, fresh, writes = (
        known(unshared(buffer(body), build, executor, reuse=reuse)) for body in (NOTHING, READS, FRESH, WRITES)
    )
    # What a worker copies as it starts differs by half a MiB from launch to launch, most after a forkserver.
    start = MIB * WORKERS
    assert floor < 4 * start
    assert abs(reads - floor) < start
    assert abs(fresh - floor) < start
    # A forkserver has no buffer: its workers fill their own.
    expected = 7 * MIB * WORKERS if executor is FORK else 0
    assert abs(writes - floor - expected) < start


@pytest.mark.parametrize("build", BUILDS)
def test_the_processes_of_a_pool_are_forked_too(unshared: Callable[..., int | None], build: str) -> None:
    floor, writes = (known(unshared(buffer(body), build, FORK, test="test_pool")) for body in (NOTHING, WRITES))
    # One of them may have done all tasks.
    assert 6 * MIB < writes - floor < 7 * MIB * WORKERS + MIB


@each_on_a_build([THREADS, SPAWN], both=[])
def test_where_nothing_is_forked_there_is_none(
    unshared: Callable[..., int | None], executor: Executor, build: str
) -> None:
    assert unshared(buffer(WRITES), build, executor) is None


# -- objects -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", BUILDS)
def test_objects_are_written_to_by_use_change_and_collection_and_freezing_keeps_the_last_out(
    unshared: Callable[..., int | None], build: str
) -> None:
    def of(body: str, frozen: str = "pass") -> int:
        return known(unshared(OBJECTS.format(body=body, frozen=frozen), build))

    floor = of(NOTHING)
    assert floor < 4 * MIB * WORKERS
    used, changed, collected = (of(body) - floor for body in (USES, CHANGES, COLLECTS))
    assert min(used, changed, collected) > ALL
    assert changed > 1.5 * used, "the keys of a tenth are on nearly all other pages as well"
    assert of(COLLECTS, FREEZES) - floor < 0.25 * collected
    assert of(USES, FREEZES) - floor > 0.9 * used, "references are counted in frozen objects too"


# -- another source ----------------------------------------------------------------------------------------------------

PRESENT, FROM_A_FILE, EXCLUSIVE = 1 << 63, 1 << 61, 1 << 56
"""Bits of an entry of pagemap, by Documentation/admin-guide/mm/pagemap.rst of the kernel."""


def by_pagemap(pid: int, parent: int) -> int:
    """Bytes of the pages that both have at the same address and no file has, and the first to itself."""
    total = 0
    for start, stop, *_ in proc.private_mappings(parent):
        theirs, own = (entries(each, start, stop) for each in (parent, pid))
        total += sum(
            1
            for there, here in zip(theirs, own, strict=False)
            if here & EXCLUSIVE and all(each & PRESENT and not each & FROM_A_FILE for each in (there, here))
        )
    return total * os.sysconf("SC_PAGE_SIZE")


def entries(pid: int, start: int, stop: int) -> array[int]:
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
        file.seek(start // os.sysconf("SC_PAGE_SIZE") * 8)
        read = file.read((stop - start) // os.sysconf("SC_PAGE_SIZE") * 8)
    return array("Q", read[: len(read) // 8 * 8])


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """Both figures of each sample that has them: by mappings and by pages."""
    found: list[tuple[int, int]] = []
    by_mappings = memory.with_unshared

    def both(point: MemoryPoint, known: ProcessMap) -> MemoryPoint:
        seen = by_mappings(point, known)
        children = [each for each in processes.tree(known.main) if each.ppid() == known.main]
        found.append((seen.unshared_bytes or 0, sum(by_pagemap(each.pid, known.main) for each in children)))
        return seen

    monkeypatch.setattr(memory, "with_unshared", both)
    yield found
    assert found


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("body", [NOTHING, USES, CHANGES, COLLECTS])
def test_the_mappings_say_what_the_pages_say(
    unshared: Callable[..., int | None], compared: list[tuple[int, int]], build: str, body: str
) -> None:
    unshared(OBJECTS.format(body=body, frozen="pass"), build)
    by_mappings, by_pages = compared[-1]
    assert by_mappings == pytest.approx(by_pages, rel=0.05, abs=MIB // 2)
