"""What is known beforehand of neighbours and of garbage, measured through real observed launches on both builds."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import BUILDS, FORK, SERIAL, TASKS, THREADS, Bench

from physical import confirm, confirmed
from pytest_ftgate.judge import metrics
from pytest_ftgate.model.sample import Launch
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP

BODY = """
    import asyncio
    import gc
    import time

    BIG = 7 ** 110_000

    @ftgate.compare(threads, serial, processes)
    def test_it(worker):
        BIG ** 3  # one call in C, which keeps the GIL

    @ftgate.compare(threads, processes)
    def test_sleep(worker):
        for _ in range(50):
            time.sleep(0.002)

    @ftgate.compare(tasks)
    async def test_blocks(worker):
        time.sleep(0.05)

    @ftgate.compare(tasks)
    async def test_awaits(worker):
        await asyncio.sleep(0.05)

    def counted(what):
        return sum(each[what] for each in gc.get_stats())

    @ftgate.compare(threads)
    def test_cycles(worker):
        before = counted("collections"), counted("collected")
        for _ in range(50_000):
            one = []
            two = [one]
            one.append(two)
        with open({file!r}, "a") as file:
            print(counted("collections") - before[0], counted("collected") - before[1], file=file)
"""

ITERATIONS = 4


def observed(
    bench: Bench, executor: Executor, build: str, name: str, workers: int = 1, loops: int = 1, of: str = ""
) -> Launch:
    """A launch that the features of these metrics observe, those whose names have `of` in them."""
    observers = tuple({row.observer for row in metrics.TABLE.values() if row.observer and of in row.name})
    handle = bench.ready(executor, build=build, side="observed", test=name, workers=workers, observers=observers)
    for kind in (COLD, WARMUP, *[MEASURED] * ITERATIONS):
        handle.iteration(kind, loops)
    return handle.finish()


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("executor", [THREADS, SERIAL, FORK], ids=lambda each: each.label)
@confirmed
def test_a_call_that_keeps_the_gil_is_a_gap_and_without_the_gil_it_is_none(
    bench: Bench, executor: Executor, build: str
) -> None:
    bench.write(BODY.format(file=""))
    found = observed(bench, executor, build, "test_it")
    # What it waits for a core is no part of a gap: on a busy machine it is less than the call took.
    part = found.peaks["gap"] / min(each.cpu_ns for each in found.iterations)
    late = found.ratio("neighbour late", "neighbour time") or 0.0
    if build == "3.14":
        assert part > 0.5
        assert late > 0.8
    else:
        assert part < 0.25
        assert late < 0.2


@pytest.mark.parametrize("build", BUILDS)
@confirmed
def test_a_call_that_gives_the_gil_up_is_no_gap(bench: Bench, build: str) -> None:
    bench.write(BODY.format(file=""))
    found = observed(bench, THREADS, build, "test_sleep", workers=4)
    assert found.peaks["gap"] < 0.25 * min(each.work_ns for each in found.iterations)


@pytest.mark.parametrize("build", BUILDS)
def test_a_coroutine_that_blocks_makes_the_loop_late_and_one_that_awaits_does_not(bench: Bench, build: str) -> None:
    bench.write(BODY.format(file=""))

    def sample() -> None:
        assert observed(bench, TASKS, build, "test_blocks").peaks["lag"] > 40e6
        assert observed(bench, TASKS, build, "test_blocks", loops=4).peaks["lag"] < 80e6  # of one call
        assert observed(bench, TASKS, build, "test_awaits", workers=4).peaks["lag"] < 20e6

    confirm(sample)


@pytest.mark.parametrize("build", BUILDS)
def test_collections_are_those_that_the_interpreter_counts(bench: Bench, tmp_path: Path, build: str) -> None:
    said = tmp_path / "collections.txt"
    bench.write(BODY.format(file=str(said)))
    found = observed(bench, THREADS, build, "test_cycles")
    lines = [list(map(int, line.split())) for line in said.read_text().splitlines()[-ITERATIONS:]]
    runs, freed = map(sum, zip(*lines, strict=True))
    assert runs >= ITERATIONS
    # Beside the body there may be one more, of the little that the runner makes.
    assert 0 <= found.counters["gc collections"] - runs <= ITERATIONS
    assert freed <= found.counters["gc objects"] <= 1.1 * ITERATIONS * 100_000
    share = found.ratio("gc pauses", "gc span")
    assert share is not None
    assert 0 < share < 1
    assert found.counters["gc pauses"] >= found.peaks["gc pause"] > 0


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("executor", [THREADS, FORK], ids=lambda each: each.label)
def test_each_sleep_is_a_switch(bench: Bench, executor: Executor, build: str) -> None:
    bench.write(BODY.format(file=""))
    found = observed(bench, executor, build, "test_sleep", workers=2, of="switches").per_call("switches")
    # Each of 50 sleeps is one; the rest are waits of the two workers for each other, and for the GIL after a sleep.
    assert found is not None
    assert 49.5 <= found <= 75
