"""Observed launches on real interpreters: under every executor, with figures of what observes them alone."""

from __future__ import annotations

import gc
import pickle
import threading
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench import FORK, INTERPRETERS, SERIAL, SPAWN, TASKS, THREADS, Bench, each_on_a_build

from pytest_ftgate.features.dispatch import legs, payload
from pytest_ftgate.features.garbage import counts, pauses
from pytest_ftgate.features.neighbour import observer as neighbour
from pytest_ftgate.judge import metrics
from pytest_ftgate.model.sample import Launch
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP

FILES = tuple(dict.fromkeys(row.observer for row in metrics.TABLE.values() if row.observer))
OWN = """
    import sys

    @ftgate.compare(threads)
    {kind} test_it(worker):
        worker.count("own")
        worker.peak("gap", 1e12)
        observers = [name for name in sys.modules if name.startswith("ftgate_observer_")]
        worker.peak("observers", len(observers))
"""


def launch(
    bench: Bench,
    executor: Executor,
    build: str = "3.14",
    observers: tuple[str, ...] = FILES,
    loops: int = 1,
    iterations: int = 3,
    **options: object,
) -> Launch:
    side = {"side": "observed", "observers": observers} if observers else {}
    handle = bench.ready(executor, build=build, **side, **options)
    for kind in (COLD, WARMUP, *[MEASURED] * iterations):
        handle.iteration(kind, loops)
    return handle.finish()


@each_on_a_build([SERIAL, THREADS, FORK, SPAWN, INTERPRETERS, TASKS])
def test_figures_are_those_of_the_observers_of_each_process(bench: Bench, executor: Executor, build: str) -> None:
    bench.write(OWN.format(kind="async def" if executor is TASKS else "def"))
    found = launch(bench, executor, build)
    assert set(found.counters) == {
        *("neighbour late", "neighbour time"),
        *("gc collections", "gc objects", "gc pauses", "gc span"),
        "switches",
    }
    assert set(found.peaks) == {"gap", "gc pause", *(["lag"] if executor is TASKS else [])}
    assert 0 < found.peaks["gap"] < 1e12
    assert not found.timers
    assert len(found.iterations) == 3


@pytest.mark.parametrize("executor", [THREADS, SPAWN], ids=lambda each: each.label)
def test_nothing_is_loaded_in_a_launch_that_is_not_observed(bench: Bench, executor: Executor) -> None:
    bench.write(OWN.format(kind="def"))
    assert launch(bench, executor, observers=()).peaks["observers"] == 0


def test_the_pool_of_a_body_is_observed_where_the_body_runs(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(executor):
            list(executor.map(abs, range(4)))
    """)
    found = launch(bench, THREADS, body="executor")
    assert found.peaks["gap"] > 0


def test_an_observer_of_another_kind_is_a_file_with_one_function(bench: Bench, tmp_path: Path) -> None:
    bench.write(OWN.format(kind="def"))
    file = tmp_path / "other" / "observer.py"
    file.parent.mkdir()
    file.write_text("def observe(executor):\n    return lambda: {'timers': {'span': (1, 7, 7)}}")
    found = launch(bench, SPAWN, observers=(str(file),), workers=2)
    assert found.timers["span"].count == 3 * 2


# -- what they read ------------------------------------------------------------------------------------------------


def test_waiting_for_a_core_is_no_gap() -> None:
    ms = 1_000_000
    # Beats at 0, 1, 2, 9, 10, 30 ms; before that at 9 ms it waited 4 ms for a core.
    beats = [each * ms for each in (0, 0, 1, 0, 2, 0, 9, 4, 10, 0, 30, 0)]
    assert neighbour.gaps(beats) == [ms, ms, 3 * ms, ms, 20 * ms]


def test_collections_are_counted_and_timed() -> None:
    callbacks = list(gc.callbacks)
    gc.collect()
    ends = [counts.observe(None), pauses.observe(None)]
    for _ in range(10):
        cycle: list[object] = []
        cycle.append(cycle)
    del cycle
    gc.collect()
    timed, counted = ends[1](), ends[0]()
    gc.collect()
    assert counted["counters"] == {"gc collections": 1, "gc objects": 10}
    assert 0 < timed["peaks"]["gc pause"] == timed["counters"]["gc pauses"] < timed["counters"]["gc span"]
    assert gc.callbacks == callbacks


def test_the_thread_ends_with_the_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "PERIOD_NS", 1000)
    figures = neighbour.observe(None)()
    assert figures["peaks"]["gap"] > 0
    assert "ftgate neighbour" not in [thread.name for thread in threading.enumerate()]


def workers_of(pool: object, workers: int = 2, kind: str = "executor") -> Any:
    """What observers get: workers of a pool whose body drives it."""
    return SimpleNamespace(pool=pool, stands=True, setup={"kind": kind, "workers": workers})


def test_a_task_waits_until_one_of_the_workers_is_free() -> None:
    # Submit, begin, end, result, thread: two workers; the third task begins 5 after the first has ended at 100.
    tasks = [(0, 10, 100, 103, 1), (0, 20, 200, 202, 2), (0, 105, 150, 151, 1), (160, 170, 180, 190, 1)]
    expected = [(10, 3), (20, 2), (5, 1), (10, 10)]
    assert legs.legs(tasks, 2, None) == expected
    assert legs.legs(reversed(tasks), 2, None) == expected
    assert legs.legs(tasks, 8, None)[2] == (105, 1)
    # A pool of one, where the second has begun before the first could say that it had ended.
    assert legs.legs([(0, 1, 9, 9, 1), (2, 8, 9, 12, 1)], 1, None) == [(1, 0), (0, 3)]


def test_the_first_task_of_a_thread_that_may_have_been_starting_is_left_out() -> None:
    tasks, met = [(0, 500, 510, 511, 1), (0, 512, 520, 521, 1), (0, 600, 610, 620, 2)], set[int]()
    assert legs.legs(tasks, 2, met) == [(512, 1)]  # by then the second worker had begun nothing
    assert met == {1, 2}
    assert len(legs.legs(tasks, 2, met)) == 3


@pytest.mark.parametrize("of", [legs, payload], ids=["legs", "payload"])
def test_a_pool_submits_by_itself_again_afterwards(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload._Counted, "figures", None)
    with ThreadPoolExecutor(1) as pool:
        end = of.observe(workers_of(pool, 1))
        assert pool.submit(abs, -1).result() == 1
        assert list(pool.map(abs, [-2])) == [2]
        assert "submit" in vars(pool)
        figures = end()
        assert "submit" not in vars(pool)
    assert figures.get("counters", {"payload": 0, "payload tasks": 2}) == {"payload": 0, "payload tasks": 2}
    assert of.observe(workers_of(SimpleNamespace(map=map)))() == {}  # no submit


@pytest.mark.parametrize("of", [legs, payload], ids=["legs", "payload"])
def test_a_submit_of_another_kind_is_left_alone(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload._Counted, "figures", None)
    pool = SimpleNamespace(submit=lambda task, *args: task(*args) if args else task)
    submit = pool.submit
    end = of.observe(workers_of(pool, 1))
    assert pool.submit("a command") == "a command"
    assert pool.submit(abs, -1) == 1  # its result is no future
    assert not end().get("counters", {}).get("payload tasks")
    assert pool.submit is submit
    assert of.observe(workers_of(iter(())))() == {}  # nothing can be put in its place


def test_of_what_is_pickled_an_argument_that_several_have_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload._Counted, "figures", None)
    same = bytes(1000)
    with ProcessPoolExecutor(1) as pool:
        end = payload.observe(workers_of(pool, 1))
        assert list(pool.map(max, [same, same], [b"", b"a"], chunksize=2)) == [same, b"a"]
        lost: Future[object] = pool.submit(threading.Lock)  # a result that cannot be pickled
        assert isinstance(lost.exception(), TypeError)
        counters = end()["counters"]
    assert counters["payload tasks"] == 2
    assert 1000 < counters["payload argument 1 of max: bytes"] < 1100
    assert counters["payload argument 2 of max: bytes"] < 100
    assert counters["payload"] < 3000
    assert counters["payload result of max: bytes"] > 1000


def test_a_callable_that_only_cloudpickle_knows_has_no_payload_without_it() -> None:
    unknown = payload.sent(lambda: None, (), {})
    assert unknown is None
    whole: Any = (abs, (1,), {})
    known = payload.sent(*whole)
    assert known is not None
    assert known["payload"] == len(pickle.dumps(whole))


def test_a_result_is_counted_before_the_body_can_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload._Counted, "figures", None)

    class Hasty(Future[Any]):
        """Its waiter empties the result before callbacks run, as that of `map` may."""

        def set_result(self, result: Any) -> None:
            super().set_result(result)

        def add_done_callback(self, fn: Any) -> None:
            super().add_done_callback(lambda future: (future.result().clear(), fn(future)))

    future = Hasty()
    pool = SimpleNamespace(submit=lambda task, *_: (pickle.dumps(task), future)[1])
    end = payload.observe(workers_of(pool, 1))
    pool.submit(list, "abc")
    future.set_result([bytes(1000)])
    assert end()["counters"]["payload result of list: list"] > 1000
    assert future.result() == []
