"""Scenario 3 and the trading pipeline: their shape in short real launches that are interleaved."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import pytest
from bench import BUILDS, INTERPRETERS, TASKS, THREADS, Bench

from physical import confirm
from pytest_ftgate.measure.launch import Handle
from pytest_ftgate.model.sample import Launch
from pytest_ftgate.model.spec import Executor, RoleCounts
from pytest_ftgate.runner.protocol import MEASURED, WARMUP

ROOT = Path(__file__).parents[2]
SHARDED = ROOT / "examples/scenario3_sharded_writers/test_sharded_writers.py"
IDS = ROOT / "examples/scenario2_shared_set/ids.py"
PIPELINE = ROOT / "examples/trading_pipeline/test_pipeline.py"
PHASES: RoleCounts = (("receiver", 1), ("processor", 1), ("evaluator", 1))


Side: TypeAlias = Callable[[], Handle]
"""Starts a launch of an example."""


@pytest.fixture
def example(request: pytest.FixtureRequest, bench: Bench) -> Callable[..., Side]:
    """Sides of the example whose file is the parameter."""
    path: Path = request.param
    bench.folder = path.parent

    def side(executor: Executor, **options: Any) -> Side:
        folders = str(path.parent), str(IDS.parent)
        given = {"module": path.stem, "sys_path": folders, "reuse": "pool", "timeout_s": 60.0, **options}
        return functools.partial(bench.ready, executor, **given)

    return side


def measure(sides: Sequence[Side], iterations: int, window_ns: int = 0) -> list[Launch]:
    """Each side's launch; they are interleaved, one window each."""
    handles = [start() for start in sides]
    for handle in handles:
        handle.iteration(WARMUP, 1, window_ns)
    for _ in range(iterations):
        for handle in handles:
            handle.iteration(MEASURED, 1, window_ns)
    return [handle.finish() for handle in handles]


def times_as_fast(done: Launch, other: Launch) -> float:
    """Operations per second over another's, the median over neighbouring iterations."""
    return median(
        iteration.rate / beside.rate for iteration, beside in zip(done.iterations, other.iterations, strict=True)
    )


def mean_ns(done: Launch, timer: str) -> float:
    return done.timers[timer].total_ns / done.timers[timer].count


# -- scenario 3 ----------------------------------------------------------------------------------------------------


WRITERS: RoleCounts = (("producer", 8), ("writer", 2))


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("example", [SHARDED], indirect=True, ids=["sharded"])
def test_interpreters_wait_as_long_as_their_queues_sleep(example: Callable[..., Side], build: str) -> None:
    pair = (THREADS, INTERPRETERS)
    sides = [example(each, build=build, test="test_sharded_writers", roles=WRITERS) for each in pair]

    def sample() -> None:
        threads, interpreters = measure(sides, iterations=3, window_ns=150_000_000)
        # A get() that finds nothing sleeps for 10 ms before it looks again.
        assert mean_ns(interpreters, "ack_wait") > 5e6
        assert mean_ns(interpreters, "ack_wait") > 3 * mean_ns(threads, "ack_wait")
        assert times_as_fast(threads, interpreters) > 3

    confirm(sample, cores=1.5)


# -- the trading pipeline ------------------------------------------------------------------------------------------


def milliseconds(proc_ms: float, eval_ms: int) -> tuple[tuple[str, str], ...]:
    return ("PROC_MS", str(proc_ms)), ("EVAL_MS", str(eval_ms))


@pytest.mark.parametrize("example", [PIPELINE], indirect=True, ids=["pipeline"])
def test_all_keep_up_where_there_is_room(example: Callable[..., Side], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_SECONDS", "0.4")
    options = {"test": "test_pipeline", "roles": PHASES, "variables": milliseconds(0.2, 1)}
    sides = [example(each, build=build, **options) for build in BUILDS for each in (TASKS, THREADS)]

    def sample() -> None:
        for done in measure(sides, iterations=1):
            due = 80 * len(done.iterations)
            assert 0.9 * due < done.counters["ticks"] <= due
            assert done.timers["receive_to_processed"].count == due
            assert done.timers["processed_to_evaluated"].count == done.counters["evaluations"] <= due
            assert mean_ns(done, "processed_to_evaluated") >= 2e6
            assert all(iteration.ops == 1 and iteration.work_ns >= 0.39e9 for iteration in done.iterations)

    confirm(sample, cores=1.5)


@pytest.mark.parametrize("example", [PIPELINE], indirect=True, ids=["pipeline"])
def test_one_thread_computes_the_tick_or_the_order(
    example: Callable[..., Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINE_SECONDS", "0.4")
    options = {"test": "test_pipeline", "roles": PHASES, "variables": milliseconds(2, 50)}
    sides = [example(each, build="3.14t", **options) for each in (TASKS, THREADS)]

    def sample() -> None:
        tasks, threads = measure(sides, iterations=1)
        for done in (tasks, threads):
            assert done.timers["receive_to_processed"].count == 80
        assert mean_ns(threads, "receive_to_processed") < 0.5 * mean_ns(tasks, "receive_to_processed")
        assert threads.peaks["queue_depth"] < 0.5 * tasks.peaks["queue_depth"]
        assert threads.peaks["late_ms"] < 0.5 * tasks.peaks["late_ms"]

    confirm(sample, cores=1.5)
