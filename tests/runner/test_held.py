"""Held iterations: all workers stop after the same number of calls, and samples begin once the first calls are over."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from bench import BUILDS, FORK, FORKSERVER, INTERPRETERS, SERIAL, SPAWN, TASKS, THREADS, Bench, each_on_a_build
from waits_seen import fraction

from physical import confirm
from pytest_ftgate.measure.launch import LaunchFailed
from pytest_ftgate.measure.watch import memory
from pytest_ftgate.measure.watch.memory import SAMPLED
from pytest_ftgate.model.spec import BodyKind, Executor
from pytest_ftgate.runner.clock import now_ns
from pytest_ftgate.runner.held import ENDLESS, CallTally, FileWords, Stop, TaskTally, first_words, task_words
from pytest_ftgate.runner.protocol import COLD

HOLD_NS = 150_000_000
CALL_NS = 100_000


# -- stopping together ---------------------------------------------------------------------------------------------


def worked(tally: CallTally, batch: int, done: list[int], sleep_s: float) -> None:
    calls = 0
    while more := tally.allowed(calls, batch):
        calls += more
        time.sleep(sleep_s)
    done.append(calls)


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_workers_of_any_pace_stop_after_the_same_number_of_calls(tmp_path: Path, in_file: bool, seed: int) -> None:
    rng = random.Random(seed)
    words = FileWords(str(tmp_path / "words"), 3) if in_file else first_words(3)
    done: list[int] = []
    threads = [
        threading.Thread(
            target=worked, args=(CallTally(words, index), rng.choice((1, 2, 10)), done, rng.choice((1e-4, 1e-3)))
        )
        for index in range(3)
    ]
    for thread in threads:
        thread.start()
    stop = Stop(words, 3, threading.Event().wait)
    stop.wait_for_first()
    assert min(stop.begun()) >= 2
    stop.after(0.02)
    for thread in threads:
        thread.join(60)
    assert len(done) == 3
    assert len(set(done)) == 1


def test_a_worker_that_did_not_see_the_end_in_time_sets_a_later_one() -> None:
    words = first_words(2)
    slow, fast = CallTally(words, 0), CallTally(words, 1)
    pauses: list[float] = []

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 2:
            words[2] = 9  # announced, and about to read the number of before
        return False

    assert (slow.allowed(0, 1), fast.allowed(0, 4)) == (1, 4)
    Stop(words, 2, pause).after(0.1)
    last, final = divmod(words[0], 2)
    assert (last, final) == (9 + 2 * (9 - 4), 1)
    assert fast.allowed(9, 100) == last - 9
    assert fast.allowed(last, 1) == 0
    assert [slow.allowed(calls, 1) for calls in (1, last - 1, last)] == [1, 1, 0]


def test_after_a_worker_has_ended_by_itself_nobody_is_waited_for() -> None:
    words = first_words(2)
    assert CallTally(words, 0).allowed(0, 1) == 1
    stop = Stop(words, 2, lambda _: True)
    stop.wait_for_first()
    stop.after(100.0)
    assert words[0] == 1 << 1 | 1


def test_tasks_stop_together_too() -> None:
    words = task_words(2)
    one, other = TaskTally(words, 0), TaskTally(words, 1)
    assert [one.allowed(0, 1), one.allowed(1, 1), other.allowed(0, 1)] == [1, 1, 1]
    assert words == [0, ENDLESS, 2, 1]
    words[0] = now_ns()
    assert [one.allowed(2, 1), other.allowed(1, 1), other.allowed(2, 1)] == [0, 1, 0]


# -- real launches -------------------------------------------------------------------------------------------------

MEETING = {
    THREADS: "threading.Barrier(2)",
    FORK: "multiprocessing.get_context('fork').Barrier(2)",
}


@pytest.mark.parametrize(
    ("executor", "reuse"), [(THREADS, "fresh"), (THREADS, "pool"), (FORK, "fresh"), (FORK, "pool")]
)
def test_calls_that_wait_for_each_other_end(bench: Bench, executor: Executor, reuse: str) -> None:
    bench.write(f"""
        import multiprocessing, threading

        meeting = {MEETING[executor]}

        @ftgate.compare(threads)
        def test_it(worker):
            meeting.wait(20)
    """)
    handle = bench.ready(executor, reuse=reuse)
    for _ in range(5):
        held = handle.measure_held(HOLD_NS // 5, True, CALL_NS)
        assert held.iteration.ops % 2 == 0
        assert held.iteration.ops > 10
    handle.iteration("measured")
    assert handle.finish().iterations[-1].ops == 2


LAZY = """
    import asyncio, time

    def first(worker):
        if not hasattr(worker.local, "loaded"):
            worker.local.loaded = bytearray(8 << 20)
            time.sleep(0.3)

    @ftgate.compare(threads)
    def test_it(worker):
        first(worker)
        time.sleep(0.002)

    @ftgate.compare(tasks)
    async def test_task(worker):
        first(worker)
        await asyncio.sleep(0.002)
"""


@pytest.mark.parametrize(
    "executor", [SERIAL, THREADS, FORK, SPAWN, INTERPRETERS, TASKS], ids=lambda executor: executor.label
)
def test_a_slow_first_call_is_over_before_anything_is_sampled(
    bench: Bench, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_SMALL_COST", 1.0)  # samples are dear where the machine is busy
    bench.write(LAZY)
    handle = bench.ready(executor, test="test_task" if executor == TASKS else "test_it")
    handle.barrier(1, 0)
    held = handle.measure_held(2 * HOLD_NS, True, 2_000_000)
    # The samples have all of their part of the window, and in it the workers make many calls and own what they loaded.
    assert held.waits is not None
    assert held.waits.watched_s > 0.9 * SAMPLED * 2 * HOLD_NS / 1e9
    assert held.iteration.ops >= 20
    assert len(held.memory) >= 2
    assert min(point.uss_bytes or 0 for point in held.memory) > 2 * (8 << 20)
    handle.finish()


def test_a_worker_that_fails_while_it_is_held_is_the_error(bench: Bench) -> None:
    bench.write("""
        import time

        calls = []

        @ftgate.compare(threads)
        def test_it(worker):
            time.sleep(0.001)
            calls.append(1)
            if len(calls) == 20:
                raise ValueError("twenty")
    """)
    handle = bench.ready(THREADS)
    with pytest.raises(LaunchFailed, match="raised ValueError: twenty"):
        handle.measure_held(20_000_000_000, True, CALL_NS)


def test_of_a_body_longer_than_the_window_there_is_one_call(bench: Bench) -> None:
    bench.write("""
        import time

        @ftgate.compare(threads)
        def test_it(worker):
            time.sleep(0.3)
    """)
    handle = bench.ready(THREADS)
    held = handle.measure_held(HOLD_NS, True, 300_000_000)
    assert held.iteration.ops == 2
    assert held.memory
    handle.finish()


@pytest.mark.parametrize(
    ("executor", "parameter", "running"),
    [(SERIAL, "worker", 1.0), (THREADS, "worker", 1.0), (FORK, "worker", 1.0), (THREADS, "executor", 0.5)],
    ids=["serial", "threads", "fork", "pool"],
)
def test_a_thread_that_idles_beside_the_workers_is_none_of_them(
    bench: Bench, executor: Executor, parameter: BodyKind, running: float
) -> None:
    """A listener, a heartbeat, and one that `threading` does not know. A pool's worker counts, also if it waits."""
    work = "driven(executor)" if parameter == "executor" else "loop(0)"
    bench.write(f"""
        import _thread, threading, time

        def beat():
            while True:
                time.sleep(0.02)

        def idle():
            for target in (beat, threading.Event().wait):
                threading.Thread(target=target, daemon=True).start()
            _thread.start_new_thread(time.sleep, (60,))

        idle()

        def loop(_):
            sum(range(50_000))

        def driven(executor):
            if not executor._threads:  # one worker sleeps for longer than is sampled
                executor.submit(time.sleep, 1)
            list(executor.map(loop, [0]))

        @ftgate.compare(threads)
        def test_it({parameter}):
            if threading.active_count() == 1:  # forked
                idle()
            {work}
    """)

    def judge() -> None:
        handle = bench.ready(executor, build="3.14t", body=parameter, workers=2 if parameter == "executor" else 1)
        handle.iteration(COLD)
        waits = handle.measure_held(HOLD_NS, True, CALL_NS).waits
        handle.finish()
        assert waits is not None
        assert fraction(waits, "running", "runnable") == pytest.approx(running, abs=0.1)

    confirm(judge)


# -- all workers, in every sample ------------------------------------------------------------------------------------

BRIEF = """
    import mmap, time

    def grown(worker):
        if not hasattr(worker.local, "kept"):
            worker.local.kept = mmap.mmap(-1, 4 << 20)
            for page in range(0, 4 << 20, 4096):
                worker.local.kept[page] = 1

    @ftgate.compare(threads)
    def test_it(worker):
        grown(worker)

    @ftgate.compare(threads)
    def test_uneven(worker):
        grown(worker)
        if not worker.index:
            time.sleep(1.5)
"""


@pytest.mark.parametrize(("test", "one_ns"), [("test_it", CALL_NS), ("test_it", 3e9), ("test_uneven", 2e9)])
@each_on_a_build([FORK, FORKSERVER, THREADS], both=())
def test_every_sample_has_all_workers_however_short_they_live(
    bench: Bench, executor: Executor, build: str, test: str, one_ns: float
) -> None:
    # Of one call that was said to be longer all have ended when the first sample is due, of an uneven one most.
    bench.write(BRIEF)
    handle = bench.ready(executor, build=build, test=test, workers=8)
    held = handle.measure_held(HOLD_NS, True, one_ns)
    processes = {"processes": 9}.get(executor.kind, 1) + (executor == FORKSERVER)
    assert held.memory
    assert {point.processes for point in held.memory} == {processes}
    assert (held.memory[-1].uss_bytes or 0) > 8 * (4 << 20)
    handle.finish()


@pytest.mark.parametrize("build", BUILDS)
def test_a_forked_worker_that_is_held_imports_nothing_of_the_runner(bench: Bench, build: str) -> None:
    # In each of eight processes an import writes to a quarter of the pages that they share.
    bench.write("""
        import os, sys

        LOADED = set()
        os.register_at_fork(after_in_child=lambda: LOADED.update(sys.modules))

        @ftgate.compare(threads)
        def test_it(worker):
            new = set(sys.modules) - LOADED
            assert not any(name.startswith("pytest_ftgate") for name in new), new
    """)
    handle = bench.ready(FORK, build=build)
    assert handle.measure_held(HOLD_NS, True, CALL_NS).memory
    handle.finish()
