"""The runner on real interpreters of both builds: every executor, and every way in which a workload goes wrong."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import time

import msgspec
import psutil
import pytest
from bench import BUILDS, FORK, FORKSERVER, INTERPRETERS, SERIAL, SPAWN, TASKS, THREADS, Bench
from values import sample_of

from pytest_ftgate.judge.figures import figures
from pytest_ftgate.judge.values import Values
from pytest_ftgate.kit import processes
from pytest_ftgate.measure.launch import CellUnsupported, LaunchFailed
from pytest_ftgate.measure.launchers.workload import WorkloadHandle
from pytest_ftgate.model.spec import BodyKind, Executor, Param, Settings
from pytest_ftgate.runner.protocol import CHECK, CHECKED_COLD, COLD, MEASURED, WARMUP

ALL = (SERIAL, THREADS, FORK, FORKSERVER, SPAWN, INTERPRETERS, TASKS)
POOLS = ALL[:-1]

WORKLOAD = """
    TABLE = {"base": 40}

    def square(x):
        return x * x + TABLE["base"] - 40

    @ftgate.compare(threads)
    def test_it(worker):
        worker.count("calls", 2)
        with worker.timed("inner"):
            total = sum(range(1000)) + TABLE["base"]
        return [worker.index, worker.workers, total]

    @test_it.variant(tasks)
    async def as_task(worker):
        import asyncio
        await asyncio.sleep(0)
        worker.count("calls", 2)
        with worker.timed("inner"):
            pass
        return [worker.index, worker.workers, 499540]

    @ftgate.compare(threads)
    def test_pool(executor):
        return list(executor.map(square, range(10)))
"""


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("reuse", ["fresh", "pool"])
@pytest.mark.parametrize("executor", ALL, ids=lambda executor: executor.label)
def test_every_executor_runs_a_worker_body(bench: Bench, executor: Executor, reuse: str, build: str) -> None:
    bench.write(WORKLOAD)
    handle = bench.start(executor, build=build, reuse=reuse)
    assert 0 < handle.ready() < 1e6
    handle.iteration(COLD)
    handle.iteration(WARMUP)
    iterations = [handle.iteration(MEASURED, loops=3) for _ in range(4)]
    handle.iteration(CHECK)
    done = handle.finish()
    assert done.iterations == tuple(iterations)
    assert done.results == ("[0, 2, 499540]; [1, 2, 499540]",)
    assert done.counters == {"calls": 2 * 3 * 2 * 4}
    assert done.timers["inner"].count == 3 * 2 * 4
    assert done.gil_enabled is (build == "3.14")
    assert done.cold is not None
    for iteration in iterations:
        assert iteration.ops == 6
        assert iteration.wall_ns == iteration.start_ns + iteration.work_ns + iteration.join_ns > 0
        assert iteration.rate > 0


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("executor", POOLS, ids=lambda executor: executor.label)
def test_every_executor_gives_a_pool(bench: Bench, executor: Executor, build: str) -> None:
    bench.write(WORKLOAD)
    for reuse in ("fresh", "pool"):
        handle = bench.ready(executor, build=build, reuse=reuse, test="test_pool", body="executor")
        handle.iteration(CHECK)
        handle.iteration(MEASURED)
        assert handle.finish().results == (str([x * x for x in range(10)]),)


@pytest.mark.parametrize("executor", ALL, ids=lambda executor: executor.label)
def test_the_control_workload_runs_under_every_executor(bench: Bench, executor: Executor) -> None:
    bench.write(WORKLOAD)
    handle = bench.ready(executor, side="control")
    handle.iteration(CHECK)
    assert handle.iteration(MEASURED).ops == 2
    assert len(handle.finish().results) == 1


@pytest.mark.parametrize("executor", ALL, ids=lambda executor: executor.label)
def test_a_window_runs_the_body_until_it_ends(bench: Bench, executor: Executor) -> None:
    bench.write(WORKLOAD)
    handle = bench.ready(executor, reuse="pool", build="3.14t")
    handle.iteration(COLD, 1, 30_000_000)
    iteration = handle.iteration(MEASURED, 1, 60_000_000)
    assert iteration.ops > 2
    assert iteration.work_ns >= 60_000_000
    done = handle.finish()
    assert done.counters["calls"] == 2 * iteration.ops
    assert done.results == ()


WITH_WORKERS = (THREADS, FORK, FORKSERVER, SPAWN, INTERPRETERS)


@pytest.mark.parametrize("body", ["worker", "executor"])
@pytest.mark.parametrize("executor", ALL, ids=lambda executor: executor.label)
def test_the_start_of_kept_workers_is_measured_once_in_a_launch(
    bench: Bench, executor: Executor, body: BodyKind
) -> None:
    if body == "executor" and executor is TASKS:
        return
    bench.write(WORKLOAD)
    test = "test_pool" if body == "executor" else "test_it"
    began_ns = time.monotonic_ns()
    handle = bench.ready(executor, reuse="pool", test=test, body=body)
    cold = handle.iteration(COLD)
    kept_ns = time.monotonic_ns() - began_ns
    later = [handle.iteration(MEASURED) for _ in range(3)]
    done = handle.finish()
    fresh = bench.ready(executor, reuse="fresh", test=test, body=body)
    fresh.iteration(MEASURED)
    again = fresh.finish()
    assert (again.start_ns, again.join_ns) == (None, None)
    assert all(each.wall_ns == each.start_ns + each.work_ns + each.join_ns for each in later)
    if executor not in WITH_WORKERS:
        assert (done.start_ns, done.join_ns) == (None, None)  # tasks start in each iteration
        return
    assert done.start_ns == cold.start_ns
    assert done.start_ns is not None
    assert done.join_ns is not None
    assert 0 < done.start_ns < kept_ns
    assert done.join_ns > 0
    assert done.start_ns > min(each.start_ns for each in later)


@pytest.mark.parametrize("executor", WITH_WORKERS, ids=lambda executor: executor.label)
def test_all_workers_of_a_kept_pool_are_there_before_the_body(bench: Bench, executor: Executor) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(executor):
            return len(getattr(executor, "_threads", None) or executor._processes)
    """)
    assert bench.results(executor, reuse="pool", workers=3, body="executor") == ("3",)  # the body has given it no task


def test_a_pool_whose_workers_cannot_start_ends_the_launch(bench: Bench) -> None:
    bench.write("""
        import multiprocessing

        if multiprocessing.parent_process() is not None:
            raise ImportError("not here")

        @ftgate.compare(threads)
        def test_it(executor):
            return list(executor.map(abs, range(3)))
    """)
    handle = bench.ready(SPAWN, reuse="pool", body="executor")
    with pytest.raises(LaunchFailed, match="BrokenProcessPool"):
        handle.iteration(COLD)


def test_pool_workers_keep_their_state_and_fresh_ones_do_not(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            worker.local.seen = getattr(worker.local, "seen", 0) + 1
            worker.count("seen", worker.local.seen)
    """)
    seen = {}
    for reuse in ("fresh", "pool"):
        handle = bench.ready(FORK, reuse=reuse, workers=1)
        for _ in range(3):
            handle.iteration(MEASURED)
        seen[reuse] = handle.finish().counters["seen"]
    assert seen == {"fresh": 3, "pool": 1 + 2 + 3}


@pytest.mark.parametrize("executor", [THREADS, FORK, FORKSERVER, SPAWN], ids=lambda executor: executor.label)
def test_shared_state_is_the_executors_own(bench: Bench, executor: Executor) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            seen, lock = worker.shared
            with lock:
                seen[worker.index] = True
                seen["n"] = seen.get("n", 0) + 1
                worker.count("n", seen["n"])

        @test_it.shared
        def state(shared):
            return shared.dict(), shared.Lock()
    """)
    handle = bench.ready(executor, workers=3)
    handle.iteration(MEASURED)
    handle.iteration(MEASURED)
    assert handle.finish().counters["n"] == 1 + 2 + 3 + 4 + 5 + 6


def test_shared_state_reaches_the_tasks_of_a_pool(bench: Bench) -> None:
    bench.write("""
        def add(n):
            with ftgate.shared():
                return n + 1

        @ftgate.compare(threads)
        def test_it(executor):
            return list(executor.map(add, range(3)))

        @test_it.shared
        def state(shared):
            return shared.Lock()
    """)
    for executor in (THREADS, FORK, SPAWN):
        assert bench.results(executor, body="executor") == ("[1, 2, 3]",)


def test_what_sub_interpreters_cannot_share_is_unsupported(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(interpreters)
        def test_it(worker):
            pass

        @test_it.shared
        def state(shared):
            return shared.dict()
    """)
    with pytest.raises(CellUnsupported, match="interpreters has no dict to share: give the cell another body"):
        bench.start(INTERPRETERS).ready()


def test_sub_interpreters_share_queues(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(interpreters)
        def test_it(worker):
            worker.shared.put(worker.index)
            return worker.shared.get() in (0, 1)

        @test_it.shared
        def state(shared):
            return shared.Queue()
    """)
    assert bench.results(INTERPRETERS) == ("True; True",)


def test_check_replaces_the_comparison_and_may_fail(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            return worker.index

        @test_it.check
        def check(results):
            assert results == [0, 2], results
    """)
    handle = bench.ready(SPAWN)
    with pytest.raises(LaunchFailed) as failed:
        handle.iteration(CHECK)
    assert failed.value.error.reason.startswith("raised AssertionError: [0, 1]")
    assert "in check" in failed.value.error.detail


@pytest.mark.parametrize("executor", [THREADS, SPAWN, INTERPRETERS], ids=lambda executor: executor.label)
def test_a_method_of_a_class_with_parameters(bench: Bench, executor: Executor) -> None:
    bench.write("""
        class TestIt:
            @ftgate.compare(threads)
            def test_it(self, worker, n, words):
                return [n * 2, words, type(self).__name__]
    """)
    params = (Param(name="n", literal="21"), Param(name="words", literal="('a', {'b': 1})"))
    assert bench.results(executor, test="TestIt.test_it", params=params, workers=1) == (
        "[42, ('a', {'b': 1}), 'TestIt']",
    )


@pytest.mark.parametrize("executor", [THREADS, FORKSERVER, SPAWN, INTERPRETERS], ids=lambda executor: executor.label)
def test_importlib_mode_and_relative_imports(bench: Bench, executor: Executor) -> None:
    bench.write("VALUE = 5\n", "pkg/helper.py")
    (bench.folder / "pkg" / "__init__.py").write_text("")
    bench.write(
        """
        from .helper import VALUE

        @ftgate.compare(threads)
        def test_it(worker):
            return VALUE
        """,
        "pkg/test_inner.py",
    )
    assert bench.results(executor, module="pkg.test_inner", import_mode="importlib", sys_path=()) == ("5; 5",)


def test_a_checked_cold_iteration_has_results_and_no_join(bench: Bench) -> None:
    """The join has the transfer of the results in it."""
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            return 5
    """)
    handle = bench.ready(FORK, workers=1)
    iteration = handle.iteration(CHECKED_COLD)
    assert (iteration.join_ns, iteration.wall_ns) == (0, iteration.start_ns + iteration.work_ns)
    launch = handle.finish()
    assert (launch.cold, launch.results, launch.iterations) == (iteration, ("5",), ())


def test_the_target_sees_a_stub_of_pytest(bench: Bench) -> None:
    bench.write("""
        import sys
        import pytest

        @pytest.mark.parametrize("n", [1, pytest.param(2, id="two")])
        @ftgate.compare(threads)
        def test_it(worker):
            heavy = {"_pytest", "psutil", "scipy", "numpy", "msgspec", "dataclasses", "inspect"} & set(sys.modules)
            return sorted(heavy), hasattr(pytest, "__path__")
    """)
    for executor in (THREADS, FORK, SPAWN):
        assert bench.results(executor, workers=1) == ("([], False)",)


@pytest.mark.parametrize(
    ("executor", "own"),
    [
        (SERIAL, ["main_thread", "making"]),
        (THREADS, ["making", "pipes", "threads"]),
        (FORK, ["making", "pipes", "processes"]),
        (TASKS, ["main_thread", "making", "tasks"]),
    ],
    ids=lambda value: value.label if isinstance(value, Executor) else "",
)
def test_a_cell_loads_its_own_executor_only(bench: Bench, executor: Executor, own: list[str]) -> None:
    bench.write("""
        import sys

        def loaded():
            package = "pytest_ftgate.runner.executors."
            return sorted(name.removeprefix(package) for name in sys.modules if name.startswith(package))

        @ftgate.compare(threads)
        def test_it(worker):
            return loaded()

        @test_it.variant(tasks)
        async def as_tasks(worker):
            return loaded()
    """)
    assert bench.results(executor, workers=1) == (repr(["base", *own]),)


@pytest.mark.parametrize("build", BUILDS)
def test_a_launch_of_threads_loads_few_modules(bench: Bench, build: str) -> None:
    """Each module counts as memory of the workload: json alone brings a megabyte."""
    bench.write("""
        import sys

        @ftgate.compare(threads)
        def test_it(worker):
            heavy = {"json", "re", "enum", "signal", "functools", "collections", "traceback", "inspect", "typing"}
            return sorted(heavy & set(sys.modules))
    """)
    assert bench.results(THREADS, build=build, workers=1) == ("[]",)


@pytest.mark.parametrize("executor", [THREADS, SPAWN, INTERPRETERS], ids=lambda executor: executor.label)
def test_the_switch_interval_reaches_every_worker(bench: Bench, executor: Executor) -> None:
    bench.write("""
        import sys

        @ftgate.compare(threads)
        def test_it(worker):
            return round(sys.getswitchinterval(), 6)
    """)
    assert bench.results(executor, settings=Settings(switchinterval_ns=100_000), workers=1) == ("0.0001",)


@pytest.mark.parametrize("executor", [THREADS, FORKSERVER, SPAWN], ids=lambda executor: executor.label)
def test_the_free_threaded_build_with_the_gil(bench: Bench, executor: Executor) -> None:
    bench.write("""
        import sys

        @ftgate.compare(threads)
        def test_it(worker):
            return sys._is_gil_enabled()
    """)
    handle = bench.ready(executor, build="3.14t", settings=Settings(gil="on"), workers=1, expect_gil=True)
    handle.iteration(CHECK)
    done = handle.finish()
    assert done.results == ("True",)
    assert done.gil_enabled


def test_a_gil_that_comes_back_names_the_module(bench: Bench) -> None:
    bench.write("""
        import sys, warnings

        def load():
            # What the interpreter does and says when an extension without the slot is imported.
            warnings.warn(
                "The global interpreter lock (GIL) has been enabled to load module 'oldext', which has not declared "
                "that it can run safely without the GIL.", RuntimeWarning)
            sys._is_gil_enabled = lambda: True

        @ftgate.compare(threads)
        def test_it(worker):
            load()
    """)
    handle = bench.ready(THREADS, build="3.14t")
    with pytest.raises(LaunchFailed) as failed:
        handle.iteration(COLD)
    assert failed.value.error.reason == "the GIL came back on: module 'oldext' turned it on"
    assert "3.14t[gil=on]" in failed.value.error.detail


OLD_EXTENSION = """
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "oldext", 0, -1, 0};
PyMODINIT_FUNC PyInit_oldext(void) { return PyModule_Create(&definition); }
"""


def old_extension(bench: Bench) -> None:
    """Build `oldext` beside the workload."""
    python = bench.executables["3.14t"]
    ask = "import sysconfig; print(sysconfig.get_path('include'), sysconfig.get_config_var('EXT_SUFFIX'))"
    include, suffix = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    source = bench.folder / "oldext.c"
    source.write_text(OLD_EXTENSION, encoding="utf-8")
    build = ["cc", "-shared", "-fPIC", f"-I{include}", "-o", str(bench.folder / f"oldext{suffix}"), str(source)]
    subprocess.run(build, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build the extension with")
@pytest.mark.parametrize("executor", [THREADS, SPAWN], ids=lambda executor: executor.label)
def test_a_real_extension_that_turns_the_gil_on_is_named(bench: Bench, executor: Executor) -> None:
    old_extension(bench)
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            import oldext
    """)
    handle = bench.ready(executor, build="3.14t")
    with pytest.raises(LaunchFailed) as failed:
        handle.iteration(COLD)
    assert failed.value.error.reason == "the GIL came back on: module 'oldext' turned it on"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build the extension with")
@pytest.mark.parametrize("executor", [FORK, SPAWN], ids=lambda executor: executor.label)
def test_a_pools_worker_that_turns_the_gil_on_is_an_error(bench: Bench, executor: Executor) -> None:
    old_extension(bench)
    bench.write("""
        def task(n):
            import oldext
            return n

        @ftgate.compare(threads)
        def test_it(executor):
            return list(executor.map(task, range(4)))
    """)
    handle = bench.ready(executor, build="3.14t", body="executor")
    handle.iteration(COLD)
    with pytest.raises(LaunchFailed) as failed:
        handle.finish()
    assert failed.value.error.reason == "the GIL came back on: module 'oldext' turned it on"


def test_fork_in_a_process_that_has_threads(bench: Bench) -> None:
    bench.write("""
        import threading
        import time

        lock = threading.Lock()

        def tick():
            while True:
                with lock:
                    time.sleep(0.001)

        threading.Thread(target=tick, daemon=True).start()

        @ftgate.compare(threads)
        def test_it(worker):
            # The thread is not there after a fork; its lock may be taken for ever.
            return lock.acquire(timeout=0.5) in (True, False)
    """)
    handle = bench.ready(FORK, timeout_s=20.0)
    handle.iteration(CHECK)
    handle.iteration(MEASURED)
    assert handle.finish().results == ("True; True",)


@pytest.mark.parametrize("window_ns", [0, 150_000_000])
def test_the_rate_and_the_time_of_a_row_are_those_that_the_body_itself_counts(bench: Bench, window_ns: int) -> None:
    bench.write("""
        import time

        @ftgate.compare(threads)
        def test_it(worker):
            time.sleep(0.005)
            worker.count("calls")
    """)
    handle = bench.ready(THREADS, workers=2)
    for _ in range(3):
        handle.iteration(MEASURED, 1, window_ns)
    done = msgspec.structs.replace(handle.finish(), window_ns=window_ns)
    shown = figures(Values(sample_of([done])), reference=None)
    assert shown.wall_ns is not None
    assert shown.ops_per_s is not None
    calls = 1 if window_ns else 2
    assert shown.ops_per_s * shown.wall_ns.value == pytest.approx(calls * 1e9)
    assert done.counters["calls"] == sum(each.ops for each in done.iterations)
    # A window has start and join, too, but its rate is that of the workers' own time.
    rates = [each.ops * 1e9 / (each.work_ns if window_ns else each.wall_ns) for each in done.iterations]
    assert 0.95 * min(rates) <= shown.ops_per_s <= 1.1 * max(rates)
    assert shown.ops_per_s < 2 / 0.005


@pytest.mark.parametrize(
    ("executor", "window_ns"),
    [(THREADS, 0), (FORK, 0), (TASKS, 0), (THREADS, 300_000_000)],
    ids=["threads", "fork", "tasks", "window"],
)
def test_the_slowest_worker_is_that_which_does_more(bench: Bench, executor: Executor, window_ns: int) -> None:
    bench.write("""
        import asyncio, time

        @ftgate.compare(threads, processes)
        def test_it(worker):
            time.sleep(0.06 if worker.index == 1 else 0.02)

        @ftgate.compare(tasks)
        async def test_task(worker):
            await asyncio.sleep(0.06 if worker.index == 1 else 0.02)
    """)
    test = "test_task" if executor is TASKS else "test_it"
    handle = bench.ready(executor, test=test, workers=3)
    slowest = [handle.iteration(MEASURED, 1, window_ns).slowest for _ in range(3)]
    assert 1.5 < sorted(slowest)[1] < 6  # three, and what a busy machine lets either of them wait
    assert bench.ready(executor, test=test, workers=1).iteration(MEASURED, 1, window_ns).slowest == 0


@pytest.mark.parametrize(
    ("chosen", "expected"), [("", "default"), ('multiprocessing.set_start_method("spawn")', "spawn")]
)
@pytest.mark.parametrize("shape", ["worker", "executor"])
def test_plain_processes_have_the_start_method_of_their_interpreter(
    bench: Bench, shape: BodyKind, chosen: str, expected: str
) -> None:
    """The default, else what the workload has set for its process."""
    bench.write(f"""
        import multiprocessing

        if multiprocessing.parent_process() is None:
            {chosen or "pass"}

        DEFAULT = multiprocessing.get_all_start_methods()[0]

        @ftgate.compare(processes)
        def test_worker(worker):
            return name(None)

        @ftgate.compare(processes)
        def test_executor(executor):
            return executor.submit(name, None).result()

        def name(_):
            own = type(multiprocessing.current_process()).__name__.removesuffix("Process").lower()
            return "default" if own == DEFAULT and own != "spawn" else own
    """)
    plain = Executor(kind="processes")
    (result,) = bench.results(plain, test=f"test_{shape}", workers=1, body=shape)
    assert expected in result


def test_a_state_may_be_a_class(bench: Bench) -> None:
    """Decorators of a measured process take anything; of a known one it is what it decorates."""
    bench.write("""
        class State:
            def __init__(self, context):
                self.value = 40

        @ftgate.compare(threads)
        def test_it(worker):
            return worker.shared.value

        test_it.shared(State)
    """)
    assert bench.results(THREADS) == ("40; 40",)


def test_serial_workers_share_their_window(bench: Bench) -> None:
    bench.write("""
        import time

        @ftgate.compare(threads)
        def test_it(worker):
            time.sleep(0.002)
    """)
    handle = bench.ready(SERIAL, workers=4, reuse="pool")
    iteration = handle.iteration(MEASURED, 1, 80_000_000)
    assert iteration.rate == pytest.approx(iteration.ops * 1e9 / iteration.work_ns, rel=0.02)


@pytest.mark.parametrize("executor", ALL, ids=lambda executor: executor.label)
def test_a_workload_that_raises_shows_its_own_traceback(bench: Bench, executor: Executor) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            table = {}
            return table["nowhere"]

        @test_it.variant(tasks)
        async def as_task(worker):
            return {}["nowhere"]
    """)
    handle = bench.ready(executor)
    with pytest.raises(LaunchFailed) as failed:
        handle.iteration(COLD)
    assert failed.value.error.reason == "worker 0: raised KeyError: 'nowhere'"
    assert "nowhere" in failed.value.error.detail
    assert "test_workload.py" in failed.value.error.detail
    assert "pytest_ftgate" not in failed.value.error.detail  # frames of the runner are left out


EXITS, DIES = "os._exit(7)", "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    ("executor", "how", "said"),
    [
        (THREADS, "sys.exit(3)", "raised SystemExit: 3"),
        (FORK, "sys.exit(3)", "raised SystemExit: 3"),
        (THREADS, DIES, "was killed by SIGKILL during a cold iteration"),
        (FORK, DIES, "worker 1 was killed by SIGKILL"),
        (SPAWN, DIES, "worker 1 was killed by SIGKILL"),
        (THREADS, EXITS, "exited with code 7 during a cold iteration"),
        (FORK, EXITS, "worker 1 exited with code 7 before it had reported"),
    ],
)
def test_an_exit_and_a_death_by_a_signal_are_errors(bench: Bench, executor: Executor, how: str, said: str) -> None:
    bench.write(f"""
        import os, signal, sys

        @ftgate.compare(threads)
        def test_it(worker):
            print("about to die", flush=True)
            if worker.index == 1:
                {how}
    """)
    handle = bench.ready(executor)
    with pytest.raises(LaunchFailed, match=said) as failed:
        handle.iteration(COLD)
    assert how == "sys.exit(3)" or "about to die" in failed.value.error.detail


@pytest.mark.parametrize("executor", [THREADS, SPAWN], ids=lambda executor: executor.label)
def test_a_hang_ends_with_its_whole_tree(bench: Bench, executor: Executor) -> None:
    bench.write("""
        import os, time

        @ftgate.compare(threads)
        def test_it(worker):
            os.write(1, b"waiting for ever\\n")  # whole, also where two threads do it at once
            time.sleep(600)
    """)
    handle = bench.start(executor)
    assert isinstance(handle, WorkloadHandle)
    handle.ready()
    process, hours = handle.process, itertools.count()
    # It hangs from then on: an hour goes by at each look, since what it prints may come before the first one.
    handle.clock = lambda: 3600.0 * next(hours) if "waiting for ever" in process.tail() else 0.0
    with pytest.raises(LaunchFailed, match=r"did not end a cold iteration within 30 s") as failed:
        handle.iteration(COLD)
    assert "waiting for ever" in failed.value.error.detail
    handle.kill()
    assert processes.marked(handle.mark) == []


def test_a_flood_is_an_error_that_shows_its_end(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            n = 0
            while True:
                n += 1
                print("line", n, "x" * 1000)
    """)
    handle = bench.ready(THREADS, workers=1)
    with pytest.raises(LaunchFailed, match="printed more than 4 MiB") as failed:
        handle.iteration(COLD)
    assert "line " in failed.value.error.detail
    assert len(failed.value.error.detail) < 40_000


def test_output_of_a_sane_workload_is_no_error(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            print("x" * 100_000)
    """)
    handle = bench.ready(THREADS)
    handle.iteration(COLD)
    handle.finish()


def test_a_module_that_cannot_be_imported(bench: Bench) -> None:
    bench.write("import no_such_module\n")
    with pytest.raises(LaunchFailed, match="raised ModuleNotFoundError: No module named 'no_such_module'"):
        bench.start(THREADS).ready()


def test_a_result_that_cannot_be_compared(bench: Bench) -> None:
    bench.write("""
        class Thing:
            pass

        @ftgate.compare(threads)
        def test_it(worker):
            return [Thing()]
    """)
    handle = bench.ready(THREADS)
    for kind in (COLD, WARMUP, MEASURED):  # no result is compared where time is taken
        handle.iteration(kind)
    with pytest.raises(LaunchFailed, match=r"the result holds a test_workload\.Thing, which cannot be compared"):
        handle.iteration(CHECK)


def test_results_do_not_depend_on_the_hash_seed(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            return {"b", "a", "c"}, {"y": 1, "x": {2.5}}
    """)
    assert bench.results(SPAWN, workers=1) == ("({'a', 'b', 'c'}, {'x': {2.5}, 'y': 1})",)


def test_a_launch_ends_when_its_controller_is_gone(bench: Bench) -> None:
    bench.write(WORKLOAD)
    handle = bench.start(FORK, reuse="pool")
    assert isinstance(handle, WorkloadHandle)
    handle.ready()
    handle.iteration(COLD)
    there = processes.marked(handle.mark)
    handle.channel.writer.close()
    gone, alive = psutil.wait_procs(there, timeout=60)
    assert len(gone) == 3
    assert not alive
