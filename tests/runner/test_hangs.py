"""A launch that hangs or crashes shows where: the stacks of its threads, with the workers' names."""

from __future__ import annotations

import time

import pytest
from bench import FORK, FORKSERVER, INTERPRETERS, SERIAL, SPAWN, TASKS, THREADS, Bench, each_on_a_build

from pytest_ftgate.measure.launch import LaunchFailed
from pytest_ftgate.measure.launchers import workload
from pytest_ftgate.measure.launchers.workload import WorkloadHandle
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.protocol import COLD

HANGS = "open(__file__ + '.hangs', 'w').close()"
"""What a workload does before it hangs, see `error_of`."""

HANG = f"""
    import time

    @ftgate.compare(threads)
    def test_it(worker):
        if worker.index == 1:
            wait_for_ever()

    def wait_for_ever():
        {HANGS}; time.sleep(600)
"""


def error_of(bench: Bench, executor: Executor, **options: object) -> tuple[str, str]:
    """The reason and the detail of the first iteration's error; any timeout is over once the workload hangs."""
    flag = bench.folder / "test_workload.py.hangs"

    def clock() -> float:
        hung = flag.exists() and time.time() - flag.stat().st_mtime > 0.3
        return time.monotonic() + (1000.0 if hung else 0.0)

    bench.launcher.clock = clock
    handle = bench.start(executor, **options)  # type: ignore[arg-type]
    assert isinstance(handle, WorkloadHandle)
    handle.ready()
    with pytest.raises(LaunchFailed) as failed:
        handle.iteration(COLD)
    return failed.value.error.reason, failed.value.error.detail


@each_on_a_build([SERIAL, THREADS, FORK, FORKSERVER, SPAWN, INTERPRETERS], both=(THREADS, INTERPRETERS))
def test_a_hang_shows_the_stack_of_the_worker(bench: Bench, executor: Executor, build: str) -> None:
    path = bench.write(HANG)
    reason, detail = error_of(bench, executor, build=build)
    name = "main thread" if executor is SERIAL else "worker 1 of 2"
    assert "did not end a cold iteration within 30 s" in reason
    assert f"{name} was at {path}:11" in reason
    assert f"{name} (innermost call first):\n  {path}:11 in wait_for_ever\n  {path}:8 in test_it" in detail
    assert "pytest_ftgate" not in detail
    assert "worker 0" not in detail


@pytest.mark.parametrize("build", ["3.14", "3.14t"])
def test_a_held_gil_and_a_wait_in_c_have_stacks_too(bench: Bench, build: str) -> None:
    path = bench.write(f"""
        import ctypes

        @ftgate.compare(threads)
        def test_it(worker):
            libc = ctypes.PyDLL(None)  # keeps the GIL
            {HANGS}; libc.sleep(600)
    """)
    reason, detail = error_of(bench, THREADS, build=build)
    assert f"was at {path}:8" in reason
    assert f"  {path}:8 in test_it" in detail


@pytest.mark.parametrize("executor", [THREADS, FORK], ids=lambda executor: executor.label)
def test_a_deadlock_under_the_lock_probe_has_its_stack(bench: Bench, executor: Executor) -> None:
    path = bench.write(f"""
        @ftgate.compare(threads)
        def test_it(worker):
            {HANGS}; worker.shared.acquire()

        @test_it.shared
        def state(shared):
            return shared.Lock()
    """)
    _, detail = error_of(bench, executor, side="locks")
    assert f"  {path}:5 in test_it" in detail
    assert "pytest_ftgate" not in detail


def test_a_pool_s_task_that_hangs_is_found_in_its_process(bench: Bench) -> None:
    path = bench.write(f"""
        import time

        @ftgate.compare(threads)
        def test_it(executor):
            executor.submit(task).result()

        def task():
            {HANGS}; time.sleep(600)
    """)
    _, detail = error_of(bench, SPAWN, body="executor")
    assert f":\n  {path}:10 in task" in detail.partition("process ")[2]
    assert f"{path}:7 in test_it" in detail.partition("main thread")[2]


def test_tasks_that_hang_show_what_they_await(bench: Bench) -> None:
    path = bench.write(f"""
        import asyncio

        @ftgate.compare(tasks)
        async def test_it(worker):
            if worker.index:
                await inner()

        async def inner():
            {HANGS}; await asyncio.Event().wait()
    """)
    reason, detail = error_of(bench, TASKS)
    assert f"worker 1 of 2 was at {path}:11" in reason
    stack = detail.partition("worker 1 of 2 (innermost call first):\n")[2]
    assert "asyncio/locks.py" in stack
    assert f"  {path}:11 in inner\n  {path}:8 in test_it" in stack
    assert "worker 0" not in detail


def test_many_threads_with_one_stack_are_one(bench: Bench) -> None:
    bench.write(HANG.replace("worker.index == 1", "True"))
    _, detail = error_of(bench, THREADS, workers=20)
    assert detail.count("in wait_for_ever") == 1
    assert "worker 0 of 20, worker 1 of 20," in detail
    assert "and 12 more (innermost call first)" in detail


# -- crashes -------------------------------------------------------------------------------------------------------

CRASH = """
    import ctypes

    @ftgate.compare(threads)
    def test_it(worker):
        worker.index or crash()  # only one of them: see docs/writing.md

    def crash():
        ctypes.string_at(0)
"""


@each_on_a_build([SERIAL, THREADS, FORK, SPAWN], both=(THREADS,))
def test_a_segfault_shows_the_python_line(bench: Bench, executor: Executor, build: str) -> None:
    path = bench.write(CRASH)
    reason, detail = error_of(bench, executor, build=build)
    assert "was killed by SIGSEGV" in reason
    assert f", at {path}:10" in reason
    assert "Segmentation fault\n" in detail
    assert f"  {path}:10 in crash\n  {path}:7 in test_it" in detail
    assert "Binary file" not in detail
    assert "pytest_ftgate" not in detail


def test_a_handler_of_the_workload_stays(bench: Bench) -> None:
    bench.write("""
        import faulthandler, os, signal

        file = open(os.devnull, "w")
        faulthandler.enable(file)

        @ftgate.compare(threads)
        def test_it(worker):
            os.kill(os.getpid(), signal.SIGSEGV)
    """)
    reason, _ = error_of(bench, SERIAL)
    assert reason == "was killed by SIGSEGV during a cold iteration"


# -- the end of a launch -------------------------------------------------------------------------------------------

STAYS = """
    import threading, time

    def for_ever():
        while True:
            time.sleep(0.01)

    @ftgate.compare(threads)
    def test_it(worker):
        if worker.index == 0:
            threading.Thread(target=for_ever, name="ticker").start()
"""


@pytest.mark.parametrize("build", ["3.14", "3.14t"])
def test_a_thread_that_never_ends_is_named_soon(bench: Bench, monkeypatch: pytest.MonkeyPatch, build: str) -> None:
    monkeypatch.setattr(workload, "THREADS_S", 0.5)
    path = bench.write(STAYS)
    handle = bench.ready(THREADS, build=build, timeout_s=10_000.0)
    handle.iteration(COLD)
    with pytest.raises(LaunchFailed) as failed:
        handle.finish()
    error = failed.value.error
    assert "did not end within 0.5 s: a thread of the workload still runs (thread ticker at " in error.reason
    assert f"thread ticker (innermost call first):\n  {path}:7 in for_ever" in error.detail


def test_a_thread_of_a_worker_process_that_never_ends_is_named_soon(bench: Bench) -> None:
    path = bench.write(STAYS)
    kept, fresh = (bench.start(FORK, reuse=reuse, timeout_s=10_000.0) for reuse in ("pool", "fresh"))
    kept.ready()
    fresh.ready()
    kept.iteration(COLD)
    assert isinstance(kept, WorkloadHandle)
    kept.channel.send({"do": "finish"})  # its workers end with the launch: both take 5 s together
    for handle in (fresh, kept):
        with pytest.raises(LaunchFailed) as failed:
            _ = handle.iteration(COLD) if handle is fresh else handle.finish()
        error = failed.value.error
        assert error.reason.startswith("worker 0: its process did not end within 5 s: a thread of the workload still ")
        assert error.reason.endswith(" (ticker)")
        assert f'File "{path}", line 7, in for_ever' in error.detail


def test_threads_that_end_by_themselves_and_slow_exit_handlers_are_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "THREADS_S", 0.1)
    bench.write("""
        import atexit, threading, time
        from concurrent.futures import ThreadPoolExecutor

        POOL = ThreadPoolExecutor(2)
        atexit.register(time.sleep, 1)

        @ftgate.compare(threads)
        def test_it(worker):
            POOL.submit(int).result()
    """)
    handle = bench.ready(THREADS)
    handle.iteration(COLD)
    handle.finish()


def test_an_exit_handler_that_hangs_is_shown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "THREADS_S", 0.1)
    path = bench.write("""
        import atexit, time

        @atexit.register
        def hold():
            time.sleep(600)

        @ftgate.compare(threads)
        def test_it(worker): ...
    """)
    handle = bench.start(THREADS)
    assert isinstance(handle, WorkloadHandle)
    handle.ready()
    handle.iteration(COLD)
    handle.timeout_s = 3.0
    with pytest.raises(
        LaunchFailed, match=r"did not exit within 3 s: an exit handler .* main thread was at "
    ) as failed:
        handle.finish()
    assert f"  {path}:7 in hold" in failed.value.error.detail
