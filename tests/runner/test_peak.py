"""The kernel's peak of a launch: of its measured iterations, where its workers are in one process."""

from __future__ import annotations

import sys

import pytest
from bench import FORK, TASKS, THREADS, Bench, each_on_a_build

from pytest_ftgate.model.sample import Launch
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.protocol import CHECK, COLD, MEASURED, WARMUP

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's record is Linux's")
MIB = 1 << 20
SIZES = """
    SIZES = {sizes}


    @ftgate.compare(threads, processes=["fork"], workers=2)
    {kind}def test_it(worker):
        if worker.index == 0:
            held = bytearray(SIZES.pop(0) << 20)
            del held
"""


def launch_of(bench: Bench, executor: Executor, build: str, *sizes: int) -> Launch:
    """A launch of which each iteration writes to so many MiB, and frees them: two are before the measured ones."""
    kind = "async " if executor is TASKS else ""
    # In a module of its own: in the same second a file of the same length counts as compiled.
    module = f"test_of_{'_'.join(map(str, sizes))}"
    bench.write(SIZES.format(sizes=list(sizes), kind=kind), f"{module}.py")
    handle = bench.start(executor, build=build, module=module)
    handle.ready()
    for event in (COLD, WARMUP, *[MEASURED] * (len(sizes) - 3), CHECK):
        handle.iteration(event)
    handle.close()
    return handle.finish()


@each_on_a_build([TASKS, THREADS])
def test_it_is_that_of_the_measured_iterations(bench: Bench, executor: Executor, build: str) -> None:
    before = 200 if build == "3.14" else 1  # a free-threaded build's allocator keeps for a while what is freed
    small = launch_of(bench, executor, build, before, before, 1, 1, 200).peak_bytes
    large = launch_of(bench, executor, build, 1, 1, 100, 1, 1).peak_bytes
    assert small is not None
    assert large is not None
    assert 90 * MIB < large - small < 110 * MIB
    assert small < 60 * MIB, "neither the warm-up nor the comparison of results counts"


def test_worker_processes_have_none(bench: Bench) -> None:
    assert launch_of(bench, FORK, "3.14", 1, 1, 1, 1, 1).peak_bytes is None
