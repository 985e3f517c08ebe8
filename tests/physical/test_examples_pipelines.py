"""Scenario 3 and the trading pipeline: their shape in short real launches that are interleaved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest
from bench import BUILDS, INTERPRETERS, TASKS, THREADS, runner_home

from physical import confirm
from pytest_ftgate.measure.launch import Handle, Request
from pytest_ftgate.measure.launchers.workload import WorkloadLauncher
from pytest_ftgate.model.sample import Launch
from pytest_ftgate.model.spec import Cell, Executor, Param, RoleCounts, Source, Spec, Target
from pytest_ftgate.runner.protocol import MEASURED, WARMUP

ROOT = Path(__file__).parents[2]
SHARDED = ROOT / "examples/scenario3_sharded_writers/test_sharded_writers.py"
PIPELINE = ROOT / "examples/trading_pipeline/test_pipeline.py"
PHASES: RoleCounts = (("receiver", 1), ("processor", 1), ("evaluator", 1))


class Side(NamedTuple):
    """A cell to measure: its test, executor, build and workers."""

    test: str
    executor: Executor
    build: str
    roles: RoleCounts = ()
    workers: int = 1
    params: tuple[tuple[str, str], ...] = ()


class Phase:
    """Starts launches of an example, and interleaves them."""

    def __init__(self, path: Path, folder: Path, executables: dict[str, str]) -> None:
        self.path = path
        self.launcher = WorkloadLauncher(runner_home(), folder / "launches")
        self.executables = executables
        self.started: list[Handle] = []

    def start(self, side: Side) -> Handle:
        """A launch whose workload is imported."""
        source = Source(
            path=str(self.path), line=1, module=self.path.stem, qualname=side.test, sys_path=(str(self.path.parent),)
        )
        workers = sum(count for _, count in side.roles) or side.workers
        spec = Spec(
            nodeid=side.test,
            source=source,
            body="worker",
            executors=(side.executor,),
            workers=(workers,),
            reuse="pool",
            role_counts=(side.roles,) if side.roles else (),
        )
        cell = Cell(
            nodeid=f"{side.test}[x]",
            target=Target(spec=side.build, request=side.build),
            executor=side.executor,
            workers=workers,
            roles=side.roles,
            params=tuple(Param(name=name, literal=literal) for name, literal in side.params),
        )
        handle = self.launcher.start(
            Request(
                cell=cell,
                spec=spec,
                python=self.executables[side.build],
                role="own",
                expect_gil=side.build == "3.14",
                environment={},
                hash_seed=7,
                padding=100,
                timeout_s=60.0,
            )
        )
        self.started.append(handle)
        handle.ready()
        return handle

    def measure(self, sides: Sequence[Side], iterations: int, window_ns: int = 0) -> list[Launch]:
        """Each side's launch; they are interleaved, one window each."""
        handles = [self.start(side) for side in sides]
        for handle in handles:
            handle.iteration(WARMUP, 1, window_ns)
        for _ in range(iterations):
            for handle in handles:
                handle.iteration(MEASURED, 1, window_ns)
        return [handle.finish() for handle in handles]


@pytest.fixture
def phase(request: pytest.FixtureRequest, tmp_path: Path, executables: dict[str, str]) -> Iterator[Phase]:
    made = Phase(request.param, tmp_path, executables)
    yield made
    for handle in made.started:
        handle.kill()


def times_as_fast(done: Launch, other: Launch) -> float:
    """Operations per second over another's, the median over neighbouring iterations."""
    return median(
        iteration.rate / beside.rate for iteration, beside in zip(done.iterations, other.iterations, strict=True)
    )


def mean_ns(done: Launch, timer: str) -> float:
    return done.timers[timer].total_ns / done.timers[timer].count


# -- scenario 3 ----------------------------------------------------------------------------------------------------


def sharded(executor: Executor, build: str, writers: int = 1) -> Side:
    return Side("test_sharded_writers", executor, build, (("producer", 8), ("writer", writers)))


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("phase", [SHARDED], indirect=True, ids=["sharded"])
def test_interpreters_wait_as_long_as_their_queues_sleep(phase: Phase, build: str) -> None:
    def sample() -> None:
        threads, interpreters = phase.measure(
            [sharded(THREADS, build, 2), sharded(INTERPRETERS, build, 2)], iterations=3, window_ns=150_000_000
        )
        # A get() that finds nothing sleeps for 10 ms before it looks again.
        assert mean_ns(interpreters, "ack_wait") > 5e6
        assert mean_ns(interpreters, "ack_wait") > 3 * mean_ns(threads, "ack_wait")
        assert times_as_fast(threads, interpreters) > 3

    confirm(sample, cores=1.5)


# -- the trading pipeline ------------------------------------------------------------------------------------------


def pipeline(test: str, executor: Executor, build: str, proc_ms: float, eval_ms: float) -> Side:
    params = (("eval_ms", repr(eval_ms)), ("proc_ms", repr(proc_ms)))
    return Side(test, executor, build, PHASES, params=params)


@pytest.mark.parametrize("phase", [PIPELINE], indirect=True, ids=["pipeline"])
def test_all_keep_up_where_there_is_room(phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_SECONDS", "0.4")

    def sample() -> None:
        sides = [pipeline("test_with_room", each, build, 0.2, 1) for build in BUILDS for each in (TASKS, THREADS)]
        for done in phase.measure(sides, iterations=1):
            due = 80 * len(done.iterations)
            assert 0.9 * due < done.counters["ticks"] <= due
            assert done.timers["receive_to_processed"].count == due
            assert done.timers["processed_to_evaluated"].count == done.counters["evaluations"] <= due
            assert mean_ns(done, "processed_to_evaluated") >= 1e6
            assert all(iteration.ops == 1 and iteration.work_ns >= 0.4e9 for iteration in done.iterations)

    confirm(sample, cores=1.5)


@pytest.mark.parametrize("phase", [PIPELINE], indirect=True, ids=["pipeline"])
def test_one_thread_without_room_starves_the_evaluator(phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_SECONDS", "0.3")
    sides = [pipeline("test_overloaded", each, "3.14t", 10, 1) for each in (TASKS, THREADS)]

    def sample() -> None:
        tasks, threads = phase.measure(sides, iterations=1)
        for done in (tasks, threads):
            assert done.counters["ticks"] < 60  # the others were processed after the schedule's end
            assert done.timers["receive_to_processed"].count == 60
            assert done.peaks["queue_depth"] > 10
        assert mean_ns(threads, "processed_to_evaluated") < 0.5 * mean_ns(tasks, "processed_to_evaluated")
        assert threads.counters["evaluations"] > 2 * tasks.counters["evaluations"]
        assert threads.peaks["late_ms"] < 0.5 * tasks.peaks["late_ms"]

    confirm(sample, cores=1.5)
