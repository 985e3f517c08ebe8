"""What a launch starts and leaves: exit handlers may end it, trackers end by themselves, anything else is an error."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest
from bench import BUILDS, FORK, FORKSERVER, SERIAL, SPAWN, THREADS, Bench, each_on_a_build

from pytest_ftgate.kit import proc, processes
from pytest_ftgate.measure.launch import LaunchFailed
from pytest_ftgate.measure.launchers import process
from pytest_ftgate.measure.launchers.process import left_error
from pytest_ftgate.measure.launchers.workload import WorkloadHandle
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.protocol import COLD


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is an error after half a second."""
    monkeypatch.setattr(process, "leftovers", functools.partial(processes.leftovers, wait_s=0.5))


both_builds = pytest.mark.parametrize("build", BUILDS)


def finish(bench: Bench, build: str, executor: Executor = SERIAL) -> None:
    """One iteration, and the end; raises LaunchFailed where the launch left something."""
    handle = bench.start(executor, build=build, workers=1)
    assert isinstance(handle, WorkloadHandle)
    handle.ready()
    handle.iteration(COLD)
    handle.finish()
    assert processes.marked(handle.mark) == []


def test_processes_of_one_command_are_one_line() -> None:
    error = left_error(["7: sleep 77", "8: sleep 77", "9: sleep 60"], "End them.")
    assert (error.reason, error.detail) == ("left 3 processes behind", "7 and 1 more: sleep 77\n9: sleep 60\nEnd them.")


@pytest.mark.usefixtures("soon")
def test_children_left_behind_are_an_error_and_are_ended(bench: Bench) -> None:
    bench.write("""
        import os, subprocess, sys

        @ftgate.compare(threads)
        def test_it(worker):
            if worker.index == 0:
                # A daemon as they are written: a session of its own, its parent gone.
                subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    """)
    handle = bench.start(THREADS)
    assert isinstance(handle, WorkloadHandle)
    handle.ready()
    handle.iteration(COLD)
    with pytest.raises(LaunchFailed, match="left 1 process behind") as failed:
        handle.finish()
    assert "time.sleep(600)" in failed.value.error.detail
    assert '@<test>.teardown("launch")' in failed.value.error.detail
    handle.kill()
    assert processes.marked(handle.mark) == []


def test_the_environment_of_a_process_in_the_middle_of_its_exec_is_waited_for() -> None:
    # It is empty for a moment after `Popen` returns: that of some percent of those that are asked at once.
    for _ in range(60):
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
            try:
                assert proc.environment_bytes(child.pid)
            finally:
                child.kill()


@pytest.mark.parametrize("executor", [FORK, FORKSERVER, SPAWN], ids=lambda executor: executor.label)
def test_multiprocessings_own_servers_are_no_leftovers(bench: Bench, executor: Executor) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            with worker.shared[1]:
                worker.shared[0]["x"] = 1

        @test_it.shared
        def state(shared):
            return shared.dict(), shared.Lock()
    """)
    handle = bench.ready(executor, reuse="pool")
    handle.iteration(COLD)
    handle.finish()


@both_builds
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_pool_of_the_module_ends_with_its_interpreter(bench: Bench, build: str, method: str) -> None:
    bench.write(f"""
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        pool = ProcessPoolExecutor(2, get_context("{method}")) if "test_workload" in __name__ else None

        @ftgate.compare(serial)
        def test_it(worker):
            return list(pool.map(abs, [-1, -2]))
    """)
    finish(bench, build)


@each_on_a_build([SERIAL, THREADS], both=[SERIAL])
def test_a_manager_of_the_module_ends_with_its_interpreter(bench: Bench, build: str, executor: Executor) -> None:
    bench.write("""
        from multiprocessing import Manager

        @ftgate.compare(serial)
        def test_it(worker):
            worker.shared.append(1)

        @test_it.shared
        def items(shared):
            global manager
            manager = Manager()
            return manager.list()
    """)
    finish(bench, build, executor)


AT_EXIT = {
    "atexit": "atexit.register(end)",
    "as concurrent.futures and loky do": "threading._register_atexit(end)",
    "a thread that is not a daemon": "threading.Thread(target=lambda: (threading.main_thread().join(), end())).start()",
}


@both_builds
@pytest.mark.parametrize("register", AT_EXIT.values(), ids=AT_EXIT)
@pytest.mark.parametrize("waits", [True, False], ids=["waits for it", "only tells it to"])
def test_an_exit_handler_ends_what_the_workload_started(bench: Bench, build: str, register: str, waits: bool) -> None:
    slow = "import signal, sys, time; signal.signal(15, lambda *_: (time.sleep(0.5), sys.exit())); signal.pause()"
    bench.write(f"""
        import atexit, subprocess, sys, threading, time
        server = subprocess.Popen([sys.executable, "-c", "{slow}"], start_new_session=True)

        def end():
            server.terminate()
            {"server.wait()" if waits else ""}

        {register}

        @ftgate.compare(serial)
        def test_it(worker):
            pass
    """)
    finish(bench, build)


@both_builds
def test_the_resource_tracker_of_loky_ends_by_itself_and_may_clean_up(bench: Bench, build: str) -> None:
    tracker = bench.folder / "loky" / "backend" / "resource_tracker.py"
    tracker.parent.mkdir(parents=True)
    tracker.write_text(
        "import os, pathlib, time\n"
        "def main(pipe):\n"
        "    while os.read(pipe, 1): pass\n"
        "    time.sleep(0.3)\n"
        "    pathlib.Path('cleaned').touch()\n"
    )
    bench.write("""
        import os, pathlib, subprocess, sys
        reader, writer = os.pipe()
        words = [sys.executable, "-c", f"from loky.backend.resource_tracker import main; main({reader})"]
        tracker = subprocess.Popen(words, pass_fds=[reader], cwd=pathlib.Path(__file__).parent)

        @ftgate.compare(serial)
        def test_it(worker):
            pass
    """)
    finish(bench, build)
    assert (bench.folder / "cleaned").exists()


@pytest.mark.usefixtures("soon")
def test_a_child_that_keeps_a_tracker_is_named_and_the_tracker_is_not(bench: Bench) -> None:
    bench.write("""
        import os
        from multiprocessing.resource_tracker import ensure_running

        @ftgate.compare(serial)
        def test_it(worker):
            ensure_running()
            if not os.fork():
                import time
                time.sleep(600)
    """)
    with pytest.raises(LaunchFailed, match="left 1 process behind") as failed:
        finish(bench, "3.14")
    assert "pytest_ftgate.runner" in failed.value.error.detail
    assert "resource_tracker" not in failed.value.error.detail


@pytest.mark.usefixtures("soon")
def test_a_child_of_a_forkserver_is_named_and_the_forkserver_is_not(bench: Bench) -> None:
    bench.write("""
        import os, time
        from multiprocessing import get_context

        def work():
            if os.fork():
                os._exit(0)
            time.sleep(600)

        @ftgate.compare(serial)
        def test_it(worker):
            process = get_context("forkserver").Process(target=work)
            process.start()
            process.join()
    """)
    with pytest.raises(LaunchFailed, match="left 1 process behind"):
        finish(bench, "3.14")
