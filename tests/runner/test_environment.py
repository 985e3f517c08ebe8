"""The environment and the cores of a cell in real launches, in the measured process and in its workers."""

from __future__ import annotations

import json
import os
import time

import pytest
from bench import FORK, FORKSERVER, INTERPRETERS, SERIAL, SPAWN, TASKS, THREADS, Bench, each_on_a_build
from fake_launcher import group_of, spec_of

from pytest_ftgate.measure import machine
from pytest_ftgate.measure.launch import LaunchFailed, LaunchRole, setup_of
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.executors import threads
from pytest_ftgate.runner.executors.base import Observer
from pytest_ftgate.runner.orders import Order
from pytest_ftgate.runner.protocol import CHECK, MEASURED

ALL = (SERIAL, THREADS, FORK, FORKSERVER, SPAWN, INTERPRETERS, TASKS)


@each_on_a_build(ALL)
def test_variables_are_set_before_the_interpreter_starts(bench: Bench, executor: Executor, build: str) -> None:
    path = bench.write("""
        import os

        AT_IMPORT = os.environ.get("OMP_NUM_THREADS")

        @ftgate.compare(threads)
        def test_it(worker):
            return [AT_IMPORT, *(os.environ[name] for name in ("OMP_NUM_THREADS", "PLACE"))]

        @test_it.variant(tasks)
        async def as_task(worker):
            return test_it(worker)
    """)
    variables = (("OMP_NUM_THREADS", "{workers}"), ("PLACE", "{folder}:{unknown}"))
    assert bench.results(executor, build=build, variables=variables) == (
        "; ".join([repr(["2", "2", f"{path.parent}:{{unknown}}"])] * 2),
    )


# ---- cores

CAN_PIN = pytest.mark.skipif(len(machine.worker_cpus()) < 2, reason="it takes two cores that workers can be pinned to")
PINNED = """
    import os

    @ftgate.compare(threads)
    def test_it(worker):
        return [sorted(os.sched_getaffinity(who)) for who in (0, os.getpid(), os.getppid())]
"""


@CAN_PIN
@pytest.mark.parametrize("reuse", ["fresh", "pool"])
@each_on_a_build((THREADS, FORK, FORKSERVER, SPAWN, INTERPRETERS))
def test_each_worker_has_a_core_of_its_own_and_the_main_thread_is_left_alone(
    bench: Bench, executor: Executor, build: str, reuse: str
) -> None:
    bench.write(PINNED)
    everywhere = sorted(os.sched_getaffinity(0))
    handle = bench.ready(executor, build=build, reuse=reuse, pin=True)
    for _ in range(2):
        handle.iteration(CHECK)
        handle.iteration(MEASURED, 2)
    (result,) = handle.finish().results
    seen = [json.loads(worker) for worker in result.split("; ")]
    assert [own for own, _, _ in seen] == [[cpu] for cpu in machine.worker_cpus()[:2]]
    if executor.kind == "processes":  # the parent of a worker: the launch, or its forkserver
        assert [parent for _, _, parent in seen] == [everywhere] * 2
    else:
        assert [main for _, main, _ in seen] == [everywhere] * 2


@CAN_PIN
@pytest.mark.parametrize("side", ["own", "control", "locks"])
def test_held_workers_and_every_kind_of_launch_are_pinned_alike(bench: Bench, side: LaunchRole) -> None:
    bench.write(PINNED)
    handle = bench.ready(THREADS, build="3.14t", side=side, pin=True)
    held = handle.measure_held(20_000_000, sampled=False)
    assert held.iteration.ops
    assert handle.iteration(MEASURED).wall_ns
    handle.finish()


@CAN_PIN
@pytest.mark.parametrize("executor", [FORKSERVER, SPAWN], ids=lambda executor: executor.label)
def test_all_threads_of_a_worker_process_have_its_core(bench: Bench, executor: Executor) -> None:
    bench.write("""
        import os, threading

        STARTED = threading.Thread(target=threading.Event().wait, daemon=True)
        STARTED.start()

        @ftgate.compare(threads)
        def test_it(worker):
            return sorted(os.sched_getaffinity(STARTED.native_id))
    """)
    handle = bench.ready(executor, pin=True)
    handle.iteration(CHECK)
    (result,) = handle.finish().results
    assert [json.loads(worker) for worker in result.split("; ")] == [[cpu] for cpu in machine.worker_cpus()[:2]]


@CAN_PIN
def test_a_serial_worker_is_the_main_thread(bench: Bench) -> None:
    bench.write(PINNED)
    handle = bench.ready(SERIAL, pin=True)
    handle.iteration(CHECK)
    (result,) = handle.finish().results
    assert [json.loads(worker)[0] for worker in result.split("; ")] == [[machine.worker_cpus()[0]]] * 2


@CAN_PIN
def test_a_worker_that_dies_is_named_and_not_the_pinning(bench: Bench) -> None:
    bench.write("""
        import os, threading

        @ftgate.compare(threads)
        def test_it(worker):
            if worker.index:
                os._exit(3)
    """)
    handle = bench.ready(FORK, pin=True)
    with pytest.raises(LaunchFailed) as caught:
        handle.iteration(MEASURED)
    assert "worker 1 exited with code 3" in caught.value.error.reason


@pytest.mark.parametrize("reuse", ["fresh", "pool"])
def test_pinning_is_in_no_phase_of_an_iteration(reuse: str) -> None:
    class Slow(threads.ThreadWorkers):
        def _pin(self) -> None:
            pinned.append(len(self.workers))
            time.sleep(0.1)

    pinned: list[int] = []
    spec = spec_of("threads")
    setup = {**setup_of(group_of(spec=spec).cells[0], spec, stand_in="empty"), "cpus": [0, 1]}
    workers = Slow(setup, None, reuse == "fresh")
    began = time.monotonic_ns()
    done = [workers.iteration(Order(1), Observer()) for _ in range(2)]
    elapsed_ns = time.monotonic_ns() - began
    workers.close()
    assert pinned == ([2, 2] if reuse == "fresh" else [2])
    timed_ns = sum(times["start_ns"] + times["work_ns"] + times["join_ns"] for times, _, _ in done)
    assert timed_ns <= elapsed_ns - len(pinned) * 100_000_000
