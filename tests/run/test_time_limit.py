"""The time limit of a plain run: what hangs fails with its stacks, the next test runs, and Ctrl-C ends it all."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from example import Example

from pytest_ftgate.measure import stacks
from pytest_ftgate.run import plain
from pytest_ftgate.run.plain import check_fork
from pytest_ftgate.runner.protocol import Failure

HANGING = """
    import asyncio, threading

    LOCK = threading.Lock()
    LOCK.acquire()

    @ftgate.compare(EXECUTORS, pythons=["3.14"], timeout=2)
    def test_it(worker):
        if worker.index == 1:
            wait()

    @test_it.variant(tasks)
    async def as_task(worker):
        if worker.index == 1:
            await asyncio.Event().wait()

    def wait():
        LOCK.acquire()

    def test_after():
        assert threading.current_thread().daemon is False
"""


AS_TASK = HANGING[HANGING.index("    @test_it.variant") : HANGING.index("    def wait")]


def hanging(executors: str) -> str:
    source = HANGING if "tasks" in executors else HANGING.replace(AS_TASK, "")
    return source.replace("EXECUTORS", executors)


# -- timeouts ------------------------------------------------------------------------------------------------------


def test_what_hangs_fails_with_its_stacks_and_the_next_test_runs(pytester: pytest.Pytester) -> None:
    result = Example(pytester, {"test_a.py": hanging('serial, threads, tasks, processes=["fork"]')}).run_fresh()
    result.assert_outcomes(failed=4, passed=1)
    text = result.stdout.str().partition("short test summary info")[0]  # which is whole in CI, else cut off
    path = pytester.path / "test_a.py"
    assert text.count(f"did not end within 2 s; worker 1 of 2 was at {path}:1") == 3
    assert text.count("worker 1 of 2 (innermost call first):") == 3
    assert text.count(f"  {path}:18 in wait\n  {path}:10 in test_it\n") == 3
    assert text.count(f"  {path}:15 in as_task\n") == 1
    assert "main thread (innermost call first):" in text, "of the serial cell"
    assert "worker 0" not in text
    assert "pytest_ftgate" not in text.replace("pytest_ftgate import", "")


def test_a_pool_s_task_that_hangs(pytester: pytest.Pytester) -> None:
    source = """
        import threading

        @ftgate.compare(threads, processes=["fork"], pythons=["3.14"], timeout=2)
        def test_it(executor):
            executor.submit(wait).result()

        def wait():
            threading.Event().wait()

        def test_after(): ...
    """
    result = Example(pytester, {"test_a.py": source}).run_fresh()
    result.assert_outcomes(failed=2, passed=1)
    text = result.stdout.str().partition("short test summary info")[0]
    assert text.count("in wait\n") >= 2
    assert text.count("did not end within 2 s; main thread was at") == 2


def test_shared_state_and_checks_are_limited_too(pytester: pytest.Pytester) -> None:
    source = """
        import time

        @ftgate.compare(threads, pythons=["3.14"], timeout=1)
        def test_state(worker): ...

        @test_state.shared
        def state(shared):
            time.sleep(600)

        @ftgate.compare(threads, pythons=["3.14"], timeout=1)
        def test_check(worker): ...

        @test_check.check
        def right(results):
            time.sleep(600)
    """
    result = Example(pytester, {"test_a.py": source}).run_fresh()
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert f"main thread (innermost call first):\n  {pytester.path / 'test_a.py'}:9 in state\n" in text
    assert f"main thread (innermost call first):\n  {pytester.path / 'test_a.py'}:16 in right\n" in text


def test_a_crash_of_a_worker_process_shows_its_line(pytester: pytest.Pytester) -> None:
    source = """
        import ctypes

        @ftgate.compare(processes=["fork"], pythons=["3.14"])
        def test_it(worker):
            ctypes.string_at(0)
    """
    result = Example(pytester, {"test_a.py": source}).run_fresh()
    result.assert_outcomes(failed=1)
    path = pytester.path / "test_a.py"
    assert f"was killed by SIGSEGV, at {path}:6" in result.stdout.str()


def test_a_debugger_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not stacks.debugged()
    code = compile("def step(look):\n    return look()", "/usr/lib/python3/bdb.py", "exec")
    names: dict[str, object] = {}
    exec(code, names)
    assert names["step"](stacks.debugged)  # type: ignore[operator]


def test_only_the_main_thread_is_limited() -> None:
    seen: list[object] = []

    def run() -> None:
        setup: dict[str, object] = {"stacks": None}
        with plain.time_limit(0.0, setup):
            time.sleep(0.1)
        seen.append(setup["stacks"])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [None]


def test_nothing_stays_of_a_limit() -> None:
    before = signal.getsignal(plain._INTERRUPT), threading.active_count(), threading.current_thread().daemon
    with plain.time_limit(60.0, {"stacks": None, "kind": "threads", "workers": 1, "roles": []}):
        assert threading.active_count() == before[1] + 1
    after = signal.getsignal(plain._INTERRUPT), threading.active_count(), threading.current_thread().daemon
    assert after == before


def test_a_fork_beside_a_sub_interpreter_that_hangs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_left", ["test_other"])
    check_fork({"kind": "processes", "method": "spawn"})
    with pytest.raises(Failure, match="cannot fork since a sub-interpreter of test_other hangs"):
        check_fork({"kind": "processes", "method": "fork"})


# -- Ctrl-C --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["serial", "threads", "tasks", 'processes=["fork"]', 'processes=["spawn"]'])
def test_ctrl_c_ends_a_cell_that_hangs_and_the_run(pytester: pytest.Pytester, executor: str) -> None:
    source = hanging(executor).replace("timeout=2", "timeout=10_000").replace("wait()\n", "note(); wait()\n", 1)
    source = source.replace("await asyncio", "note(); await asyncio")
    source += f"\n    def note():\n        open({str(pytester.path / 'at')!r}, 'w').close()\n"
    run = Example(pytester, {"test_a.py": source}).start("test_a.py")
    try:
        while not Path(pytester.path / "at").exists():
            assert run.poll() is None
            time.sleep(0.02)
        os.killpg(run.pid, signal.SIGINT)
        text, _ = run.communicate(timeout=300)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == pytest.ExitCode.INTERRUPTED, text
    assert "KeyboardInterrupt" in text
    assert "passed" not in text


# -- beside pytest-timeout -----------------------------------------------------------------------------------------


def test_a_limit_of_pytest_timeout_holds_too(pytester: pytest.Pytester) -> None:
    """As its `signal` method does it: an exception of pytest's from a handler in the main thread."""
    conftest = """
        import signal
        import pytest

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_call(item):
            def handle(*_):
                pytest.fail("Timeout (>1.0s)", pytrace=False)
            signal.signal(signal.SIGALRM, handle)
            signal.setitimer(signal.ITIMER_REAL, 1)
            try:
                return (yield)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    """
    source = hanging('serial, threads, processes=["fork"]').replace("timeout=2", "timeout=10_000")
    source = source.replace("worker.index == 1", "True")
    result = Example(pytester, {"test_a.py": source, "conftest.py": conftest}).run_fresh()
    result.assert_outcomes(failed=3, passed=1)
    assert result.stdout.str().count("Timeout (>1.0s)") >= 3
