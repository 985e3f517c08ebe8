"""Observed launches on real interpreters: under every executor, with figures of what observes them alone."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest
from bench import FORK, INTERPRETERS, SERIAL, SPAWN, TASKS, THREADS, Bench, each_on_a_build

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
