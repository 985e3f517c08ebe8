"""Roles of workers on real interpreters: who leads, who serves, how a turn ends, and how when one of them fails."""

from __future__ import annotations

import select
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from bench import BUILDS, FORK, INTERPRETERS, SPAWN, TASKS, THREADS, Bench
from example import Example

from pytest_ftgate.measure.cell_run import CellRun, disagreements
from pytest_ftgate.measure.launch import LaunchFailed, StoppableHandle, setup_of
from pytest_ftgate.model.sample import Launch
from pytest_ftgate.model.spec import Cell, Executor, Param, RoleCounts, Source, Spec, Target
from pytest_ftgate.run import plain
from pytest_ftgate.runner import loading
from pytest_ftgate.runner.protocol import CHECK, COLD, MEASURED, WARMUP, Failure

ROLE_COUNT: RoleCounts = (("producer", 3), ("writer", 2))
LONG_S = 30.0
"""The limit of an iteration in these tests; what ends by an error of its own does so long before."""

WORKLOAD = """
    import asyncio

    def who(worker):
        return [worker.role, worker.index, worker.workers, worker.counts]

    @ftgate.compare(threads)
    def test_it(worker):
        inboxes, replies = worker.shared
        worker.local.sent = n = getattr(worker.local, "sent", 0) + 1
        inboxes[n % len(inboxes)].put((worker.index, n))
        assert replies[worker.index].get() == n
        worker.count("sent")
        worker.peak("n", n)
        return who(worker)

    @test_it.role("writer")
    def writer(worker):
        inboxes, replies = worker.shared
        worker.count("served")
        while (message := inboxes[worker.index].get()) is not None:
            index, n = message
            worker.count("seen")
            with worker.timed("reply"):
                replies[index].put(n)
        return who(worker)

    @test_it.variant(tasks)
    async def as_task(worker):
        inboxes, replies = worker.shared
        worker.local.sent = n = getattr(worker.local, "sent", 0) + 1
        await inboxes[n % len(inboxes)].put((worker.index, n))
        assert await replies[worker.index].get() == n
        worker.count("sent")
        worker.peak("n", n)
        return who(worker)

    @test_it.role("writer", tasks)
    async def writer_task(worker):
        inboxes, replies = worker.shared
        worker.count("served")
        while (message := await inboxes[worker.index].get()) is not None:
            index, n = message
            worker.count("seen")
            with worker.timed("reply"):
                await replies[index].put(n)
        return who(worker)

    @test_it.stop
    def stop(shared):
        return hand(shared[0]) if isinstance(shared[0][0], asyncio.Queue) else [i.put(None) for i in shared[0]]

    async def hand(inboxes):
        for inbox in inboxes:
            await inbox.put(None)

    @test_it.shared
    def state(shared):
        assert shared.workers == sum(shared.counts.values())
        return [[shared.Queue() for _ in range(shared.counts[role])] for role in ("writer", "producer")]
"""


def start(bench: Bench, executor: Executor, role_count: RoleCounts = ROLE_COUNT, **options: Any) -> StoppableHandle:
    return bench.ready(executor, roles=role_count, timeout_s=LONG_S, **options)


# -- a turn --------------------------------------------------------------------------------------------------------


EACH_WAY = [
    (executor, reuse, BUILDS[(number + (reuse == "pool")) % 2])
    for number, executor in enumerate((THREADS, FORK, TASKS, INTERPRETERS))
    for reuse in ("fresh", "pool")
    if executor is not INTERPRETERS or reuse == "pool"  # to make some for each turn takes seconds
]


@pytest.mark.parametrize(
    ("executor", "reuse", "build"), EACH_WAY, ids=[f"{each[0].label}-{each[1]}-{each[2]}" for each in EACH_WAY]
)
def test_leaders_are_served_until_they_have_ended(bench: Bench, executor: Executor, reuse: str, build: str) -> None:
    bench.write(WORKLOAD)
    handle = start(bench, executor, build=build, reuse=reuse)
    handle.iteration(COLD)
    handle.iteration(WARMUP)
    iterations = [handle.iteration(MEASURED, loops=4), handle.iteration(MEASURED, loops=1, window_ns=30_000_000)]
    held = handle.measure_held(30_000_000, sampled=False)
    barrier = handle.barrier(2, 0)
    handle.iteration(CHECK)
    done = handle.finish()
    measured = [*iterations, held.iteration]
    assert iterations[0].ops == 3 * 4
    assert iterations[1].ops >= 3
    assert barrier.ops == 2
    for iteration in measured:
        assert iteration.rate > 0
        assert iteration.wall_ns == iteration.start_ns + iteration.work_ns + iteration.join_ns
    sent = sum(iteration.ops for iteration in measured)
    assert done.counters == {"sent": sent, "seen": sent, "served": 2 * len(measured)}
    assert done.timers["reply"].count == sent
    assert done.peaks["n"] >= (4 if reuse == "fresh" else 4 + 2)
    counts = {"producer": 3, "writer": 2}
    expected = [[role, index, count, counts] for role, count in counts.items() for index in range(count)]
    assert done.results == ("; ".join(map(repr, expected)),)


@pytest.mark.parametrize(
    ("executor", "build"), [(SPAWN, "3.14t"), (INTERPRETERS, "3.14")], ids=["spawn", "interpreters"]
)
def test_workers_that_share_no_modules_have_roles(bench: Bench, executor: Executor, build: str) -> None:
    bench.write(WORKLOAD)
    handle = start(bench, executor, (("producer", 1), ("writer", 1)), build=build)
    assert handle.iteration(MEASURED, loops=5).ops == 5
    assert handle.finish().counters == {"sent": 5, "seen": 5, "served": 1}


def test_what_follows_the_last_leader_is_time_of_joining(bench: Bench) -> None:
    bench.write("""
        import threading, time

        @ftgate.compare(threads)
        def test_it(worker):
            time.sleep(0.002)

        @test_it.role("slow")
        def slow(worker):
            worker.shared.wait()
            time.sleep(0.05)

        @test_it.stop
        def stop(shared):
            shared.set()

        @test_it.shared
        def state(shared):
            return shared.Event()
    """)
    handle = start(bench, THREADS, (("lead", 2), ("slow", 1)), side="locks")
    iteration = handle.iteration(MEASURED)
    locks = handle.finish().locks
    assert iteration.join_ns >= 50_000_000 > iteration.work_ns
    assert iteration.ops == 2
    # What a role waits for after the leaders is within the time that its waits are a share of.
    assert locks is not None
    assert locks.work_ns == iteration.work_ns + iteration.join_ns


@pytest.mark.parametrize("executor", [THREADS, TASKS], ids=lambda executor: executor.label)
def test_what_stands_in_for_the_workload_has_no_roles(bench: Bench, executor: Executor) -> None:
    bench.write(WORKLOAD)
    handle = start(bench, executor, side="control")
    assert handle.iteration(MEASURED, loops=2).ops == 2 * 5
    assert handle.barrier(3, 0).ops == 3
    assert len(handle.finish().iterations) == 1


def test_roles_in_the_words_of_a_job(tmp_path: Path) -> None:
    cell, spec = cell_of(tmp_path / "test_a.py", THREADS)
    assert setup_of(cell, spec)["roles"] == [["producer", 3], ["writer", 2]]
    assert setup_of(cell, spec)["workers"] == 5
    assert setup_of(cell, spec, stand_in="burn")["roles"] == []


def test_workers_without_roles_have_none(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            worker.peak("depth", 10 * worker.index)
            worker.peak("depth", -1)
            worker.peak("least", -5)
            return [worker.role, worker.counts, worker.workers]
    """)
    handle = bench.ready(THREADS)
    handle.iteration(CHECK)
    handle.iteration(MEASURED)
    done = handle.finish()
    assert done.results == ("['', {}, 2]; ['', {}, 2]",)
    assert done.peaks == {"depth": 10, "least": -5}


# -- how it goes wrong ---------------------------------------------------------------------------------------------

FAILING = """
    import os, signal, time

    def note(word):
        with open(__file__.replace("test_workload.py", "notes.txt"), "a") as file:
            file.write(word + "\\n")

    @ftgate.compare(threads)
    @pytest.mark.parametrize("how", ["raise"])
    def test_it(worker, how):
        if how.startswith("leader") and worker.index == 1:
            end(how)
        worker.shared[0].put(worker.index)
        if how.startswith("writer"):
            worker.shared[1].get()  # nobody answers

    @test_it.role("writer")
    def writer(worker, how):
        while (message := worker.shared[0].get()) is not None:
            if how.startswith("writer"):
                end(how)
        note("ended")
        if how == "late":
            raise KeyError(how)

    def end(how):
        if "raises" in how:
            raise ValueError(how)
        if "dies" in how:
            os._exit(7)
        os.kill(os.getpid(), signal.SIGKILL)

    @test_it.variant(tasks)
    async def as_task(worker, how):
        if how.startswith("leader") and worker.index == 1:
            end(how)
        await worker.shared[0].put(worker.index)
        if how.startswith("writer"):
            await worker.shared[1].get()

    @test_it.role("writer", tasks)
    async def writer_task(worker, how):
        while (message := await worker.shared[0].get()) is not None:
            if how.startswith("writer"):
                end(how)
        note("ended")
        if how == "late":
            raise KeyError(how)

    @test_it.stop
    def stop(shared):
        note("stopped")
        shared[0].put_nowait(None)

    @test_it.shared
    def state(shared):
        return [shared.Queue(), shared.Queue()]
"""

LED: RoleCounts = (("leader", 2), ("writer", 1))


def failing(bench: Bench) -> Path:
    bench.write("import pytest\n" + "\n".join(line.removeprefix("    ") for line in FAILING.splitlines()))
    return bench.folder / "notes.txt"


def fails(bench: Bench, executor: Executor, how: str, **options: Any) -> str:
    """Why a turn failed; it did so at once."""
    handle = start(bench, executor, LED, params=(Param(name="how", literal=repr(how)),), **options)
    began = time.monotonic()
    with pytest.raises(LaunchFailed) as caught:
        handle.iteration(MEASURED, loops=1, window_ns=options.get("window_ns", 0))
    assert time.monotonic() - began < LONG_S / 2
    return caught.value.error.reason


@pytest.mark.parametrize(
    ("executor", "reuse"),
    [(THREADS, "fresh"), (THREADS, "pool"), (FORK, "fresh"), (INTERPRETERS, "fresh"), (TASKS, "fresh")],
)
def test_a_serving_worker_that_raises_ends_the_launch(bench: Bench, executor: Executor, reuse: str) -> None:
    failing(bench)
    build = "3.14" if reuse == "fresh" else "3.14t"
    reason = fails(bench, executor, "writer raises", reuse=reuse, build=build)
    assert reason == "writer 0: raised ValueError: writer raises"


@pytest.mark.parametrize(
    ("executor", "reuse", "how", "reason"),
    [
        (FORK, "fresh", "writer dies", "writer 0 exited with code 7 before it had reported"),
        (FORK, "pool", "writer is killed", "writer 0 was killed by SIGKILL"),
        (SPAWN, "fresh", "writer dies", "writer 0 exited with code 7 before it had reported"),
        (FORK, "fresh", "leader dies", "leader 1 exited with code 7 before it had reported"),
        (FORK, "pool", "leader is killed", "leader 1 was killed by SIGKILL"),
    ],
)
def test_a_worker_that_dies_ends_the_launch(
    bench: Bench, executor: Executor, reuse: str, how: str, reason: str
) -> None:
    notes = failing(bench)
    assert fails(bench, executor, how, reuse=reuse) == reason
    assert notes.read_text(encoding="utf-8").splitlines()[0] == "stopped"


@pytest.mark.parametrize("executor", [THREADS, FORK, TASKS], ids=lambda executor: executor.label)
def test_a_leader_that_fails_leads_to_stop_and_to_an_end(bench: Bench, executor: Executor) -> None:
    notes = failing(bench)
    assert fails(bench, executor, "leader raises", build="3.14t") == "leader 1: raised ValueError: leader raises"
    assert notes.read_text(encoding="utf-8").split() == ["stopped", "ended"]


@pytest.mark.parametrize("executor", [THREADS, TASKS], ids=lambda executor: executor.label)
def test_a_serving_worker_that_raises_when_it_is_stopped(bench: Bench, executor: Executor) -> None:
    notes = failing(bench)
    assert fails(bench, executor, "late") == "writer 0: raised KeyError: 'late'"
    assert notes.read_text(encoding="utf-8").split() == ["stopped", "ended"]


def test_stop_itself_may_fail(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            pass

        @test_it.role("writer")
        def writer(worker):
            worker.shared.get()

        @test_it.stop
        def stop(shared):
            shared.inbox.put(None)

        @test_it.shared
        def state(shared):
            return shared.Queue()
    """)
    handle = start(bench, THREADS)
    with pytest.raises(LaunchFailed, match="raised AttributeError: 'Queue' object has no attribute 'inbox'"):
        handle.iteration(MEASURED)


def test_a_role_without_a_body(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            pass
    """)
    with pytest.raises(LaunchFailed, match=r"the role 'writer' has no body: write one with @test_it.role\('writer'\)"):
        start(bench, THREADS)


# -- functional runs -----------------------------------------------------------------------------------------------


def cell_of(path: Path, executor: Executor, role_count: RoleCounts = ROLE_COUNT) -> tuple[Cell, Spec]:
    """A cell with roles, and its test."""
    workers = sum(count for _, count in role_count)
    source = Source(path=str(path), line=1, module=path.stem, qualname="test_it", sys_path=(str(path.parent),))
    spec = Spec(
        nodeid="test_it",
        source=source,
        body="worker",
        executors=(executor,),
        workers=(workers,),
        reuse="fresh",
        role_counts=(role_count,),
    )
    target = Target(spec="3.14", request="3.14")
    return Cell(nodeid="test_it[x]", target=target, executor=executor, workers=workers, roles=role_count), spec


@pytest.mark.parametrize("executor", [THREADS, FORK, TASKS], ids=lambda executor: executor.label)
def test_functional_runs_have_roles(bench: Bench, monkeypatch: pytest.MonkeyPatch, executor: Executor) -> None:
    monkeypatch.syspath_prepend(bench.folder)
    path = bench.write(
        WORKLOAD
        + """
    @test_it.check
    def right(results):
        producers, writers = results[:3], results[3:]
        assert [result[:2] for result in producers] == [["producer", n] for n in range(3)]
        assert [result[:2] for result in writers] == [["writer", n] for n in range(2)]
        note(results)

    def note(results):
        with open(__file__ + ".ran", "w") as file:
            file.write(str(len(results)))
""",
        f"test_roles_here_{executor.label}.py",
    )
    plain.run_here(*cell_of(path, executor))
    assert Path(f"{path}.ran").read_text(encoding="utf-8") == "5"


def test_functional_runs_where_pipes_cannot_be_polled(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "poll")
    monkeypatch.syspath_prepend(bench.folder)
    plain.run_here(*cell_of(bench.write(WORKLOAD, "test_roles_without_poll.py"), THREADS))


@pytest.mark.parametrize("executor", [THREADS, FORK, TASKS], ids=lambda executor: executor.label)
def test_functional_runs_end_with_a_worker_that_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, executor: Executor
) -> None:
    monkeypatch.syspath_prepend(bench.folder)
    name = f"test_failing_here_{executor.label}.py"
    path = bench.write(
        "\n".join(line.removeprefix("    ") for line in FAILING.splitlines()).replace("@pytest", "#"), name
    )
    cell, spec = cell_of(path, executor, LED)
    cell = msgspec.structs.replace(cell, params=(Param(name="how", literal="'writer raises'"),))
    with pytest.raises(Failure, match="writer 0: raised ValueError: writer raises"):
        plain.run_here(cell, spec)


def test_pytest_ends_though_threads_wait_for_a_worker_that_failed(pytester: pytest.Pytester) -> None:
    source = """
        @ftgate.compare(threads, workers={"producer": 2, "writer": 1}, pythons=["3.14"])
        def test_it(worker):
            worker.shared.get()

        @test_it.role("writer")
        def writer(worker):
            raise ValueError("no more room")

        @test_it.shared
        def state(shared):
            return shared.Queue()
    """
    outcome = Example(pytester, {"test_a.py": source}).run_fresh()
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(["writer 0:", "ValueError: no more room"])


# -- results -------------------------------------------------------------------------------------------------------


def test_cells_of_other_roles_may_give_other_results() -> None:
    def entry(role_count: RoleCounts, result: str) -> CellRun:
        cell = cell_of(Path("test_a.py"), THREADS, role_count)[0]
        return cast(CellRun, SimpleNamespace(cell=cell, of=lambda _: [Launch(results=(result,))]))

    first, second = (("producer", 3), ("writer", 1)), (("producer", 2), ("writer", 2))
    assert disagreements([entry(first, "1"), entry(second, "2")]) == []
    wrong = entry(first, "2")
    assert [found for found, _ in disagreements([entry(first, "1"), entry(first, "1"), wrong])] == [wrong]


def test_bodies_by_role_are_loaded_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(bench.folder)
    path = bench.write(WORKLOAD, "test_bodies_by_role.py")
    setup = setup_of(*cell_of(path, THREADS))
    assert loading.body(setup) is loading.body(setup, "producer")
    assert loading.body(setup, "writer") is loading.body(setup, "writer")
    assert loading.body(setup, "writer").call.__name__ == "writer"
    assert [loading.serves(setup, role) for role in ("", "producer", "writer")] == [False, False, True]
