"""Executors and event loops that a function of the user's makes, in real launches and in plain runs."""

from __future__ import annotations

import pytest
from bench import BUILDS, Bench
from example import Example

from physical import confirmed
from pytest_ftgate.measure.launch import LaunchFailed
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.protocol import CHECK, MEASURED

POOLS = """
    import asyncio
    import contextlib
    import os
    import threading
    from concurrent import futures
    from multiprocessing import get_context
    from pytest_ftgate import executor

    events = []
    local = threading.local()

    def start():
        local.ready = 7

    def threaded(workers):
        return futures.ThreadPoolExecutor(workers, initializer=start)

    @contextlib.contextmanager
    def cluster(workers):
        events.append("opened")
        with futures.ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            yield pool
        events.append("closed")

    class Loop(asyncio.SelectorEventLoop):
        pass

    def burn(n):
        return sum(i * i for i in range(n))

    def value(_):
        return local.ready
"""
THREADED = Executor(kind="executor", name="threaded")
CLUSTER = Executor(kind="executor", name="cluster", in_processes=True)
LOOP = Executor(kind="tasks", name="loop")


@pytest.mark.parametrize("build", BUILDS)
def test_a_pool_with_an_initializer(bench: Bench, build: str) -> None:
    bench.write(
        POOLS
        + """
    @ftgate.compare(executor("threaded", threaded))
    def test_it(executor):
        return [type(executor).__name__, executor._max_workers, list(executor.map(value, range(3)))]
    """
    )
    assert bench.results(THREADED, build=build, body="executor", workers=3) == ("['ThreadPoolExecutor', 3, [7, 7, 7]]",)


def test_a_factory_that_returns_no_executor_is_named(bench: Bench) -> None:
    """It was `'int' object has no attribute '__enter__'`."""
    bench.write(
        POOLS
        + """
    @ftgate.compare(executor("threaded", int))
    def test_it(executor): ...
    """
    )
    handle = bench.ready(THREADED, body="executor")
    with pytest.raises(LaunchFailed) as failed:
        handle.iteration(CHECK)
    assert failed.value.error.reason == (
        "the factory of executor('threaded') returned 2: return a concurrent.futures.Executor, "
        "or a context manager that gives one"
    )


def test_processes_that_a_library_starts_import_the_test_file_with_the_stub(bench: Bench) -> None:
    """They import it anew, in environments without pytest."""
    bench.write(
        "    import pytest, subprocess, sys\n"
        + POOLS
        + """
    @ftgate.compare(executor("cluster", cluster, processes=True))
    @pytest.mark.skipif(False, reason="never")
    def test_it(executor):
        words = [sys.executable, "-c", "from test_workload import burn; print(burn(3))"]
        return list(executor.map(burn, range(4))), int(subprocess.check_output(words, cwd=os.path.dirname(__file__)))
    """
    )
    assert bench.results(CLUSTER, body="executor") == ("([0, 0, 1, 5], 5)",)


@pytest.mark.parametrize("reuse", ["fresh", "pool"])
def test_a_context_manager_gives_the_pool_and_is_left(bench: Bench, reuse: str) -> None:
    bench.write(
        POOLS
        + """
    @ftgate.compare(executor("cluster", cluster, processes=True))
    def test_it(executor):
        assert os.getpid() not in executor.map(pid, range(4))
        return list(events)

    def pid(_):
        return os.getpid()
    """
    )
    handle = bench.ready(CLUSTER, body="executor", reuse=reuse)
    handle.iteration(MEASURED)
    handle.iteration(CHECK)
    again = ["opened", "closed", "opened"] if reuse == "fresh" else ["opened"]
    assert handle.finish().results == (repr(again),)


@confirmed
def test_the_cpu_time_and_memory_of_its_processes_are_seen(bench: Bench) -> None:
    bench.write(
        POOLS
        + """
    @ftgate.compare(executor("cluster", cluster, processes=True))
    def test_it(executor):
        list(executor.map(burn, [2_000_000] * 2))
    """
    )
    handle = bench.ready(CLUSTER, body="executor", reuse="pool")
    handle.iteration(MEASURED)
    iteration = handle.iteration(MEASURED)
    assert iteration.cpu_ns > iteration.work_ns / 4  # of the main process alone it is a thousandth
    roles = handle.barrier(1, 0).point.roles
    assert roles["workers"].processes == 2
    handle.finish()


def test_tasks_run_in_the_named_loop(bench: Bench) -> None:
    bench.write(
        POOLS
        + """
    from pytest_ftgate import tasks

    @ftgate.compare(tasks("loop", Loop))
    async def test_it(worker):
        return type(asyncio.get_running_loop()).__name__
    """
    )
    assert bench.results(LOOP, workers=1) == ("'Loop'",)


def test_they_run_in_plain_runs(pytester: pytest.Pytester) -> None:
    tests = """
    @ftgate.compare(executor("threaded", threaded), executor("cluster", cluster, processes=True))
    def test_it(executor):
        assert sum(executor.map(burn, [10, 10])) == 570

    @ftgate.compare(tasks, tasks("loop", Loop))
    async def test_loop(worker):
        assert isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop)

    @ftgate.compare(executor("cluster", cluster, processes=True))
    def test_shared(executor):
        pass

    @test_shared.shared
    def state(shared):
        return shared.dict()
    """
    example = Example(pytester, {"test_own.py": POOLS + tests})
    result = example.run_fresh("-v", "-rs")
    result.assert_outcomes(passed=8, skipped=2)
    result.stdout.fnmatch_lines(["*cluster has no dict to share*"])
