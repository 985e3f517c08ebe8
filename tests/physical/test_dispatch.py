"""What a pool costs a task, with known truths: a task that sleeps, a payload of known bytes, a queue of tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench import BUILDS, FORK, FORKSERVER, INTERPRETERS, SPAWN, THREADS, Bench
from values import read, sample_of

from physical import confirmed
from pytest_ftgate.judge import explain, metrics
from pytest_ftgate.model.sample import Launch
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP

POOLS = (THREADS, FORK, FORKSERVER, SPAWN, INTERPRETERS)
NAP_S, IN, OUT, TASKS = 0.02, 100_000, 30_000, 12
BODY = f"""
    import pickle
    import time

    def nap(data=b"", out=0):
        time.sleep({NAP_S})
        return bytes(out)

    def fail(data):
        raise ValueError(data)

    @ftgate.compare(threads, processes, interpreters)
    def test_it(executor):
        futures = [executor.submit(nap, bytes({IN}), out={OUT}) for _ in range({TASKS})]
        assert all(len(future.result()) == {OUT} for future in futures)
        with open({{file!r}}, "w") as file:
            print(len(pickle.dumps((nap, (bytes({IN}),), {{{{"out": {OUT}}}}}))), file=file)
            print(len(pickle.dumps(bytes({OUT}))), file=file)

    @ftgate.compare(threads, processes, interpreters)
    def test_map(executor):
        assert len(list(executor.map(nap, [b"a", b"b", b"c", b"d"], chunksize=2))) == 4

    @ftgate.compare(threads, processes, interpreters)
    def test_fails(executor):
        futures = [executor.submit(fail, "why"), *[executor.submit(nap) for _ in range(4)]]
        assert futures[-1].cancel()
        assert isinstance(futures[0].exception(), ValueError)
        assert len([future.result() for future in futures[1:-1]]) == 3
"""


def observed(
    bench: Bench,
    executor: Executor,
    build: str,
    test: str = "test_it",
    workers: int = 2,
    reuse: str = "pool",
    module: str = "test_workload",
) -> Launch:
    observers = tuple(sorted({row.observer for row in metrics.TABLE.values() if "dispatch" in row.observer}))
    how: dict[str, Any] = {"side": "observed", "body": "executor", "observers": observers, "reuse": reuse}
    handle = bench.ready(executor, build=build, test=test, workers=workers, module=module, **how)
    for kind in (COLD, WARMUP, MEASURED, MEASURED):
        handle.iteration(kind)
    return handle.finish()


def value(launch: Launch, metric: str) -> float:
    of = sample_of([msgspec.structs.replace(launch, role="observed")])
    (found,) = read(of).by_order(metric).values()
    return found


each_pool = pytest.mark.parametrize("executor", POOLS, ids=lambda each: each.label)


@each_pool
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(("workers", "reuse"), [(2, "pool"), (1, "fresh")])
@confirmed
def test_the_wait_in_a_queue_is_neither_work_nor_dispatch(
    bench: Bench, executor: Executor, build: str, workers: int, reuse: str
) -> None:
    bench.write(BODY.format(file="/dev/null"))
    found = observed(bench, executor, build, workers=workers, reuse=reuse)
    nap_ns = NAP_S * 1e9
    assert nap_ns <= value(found, "task_work") < 1.5 * nap_ns
    # The median task waits for five naps, or two; a spawned worker starts as long.
    assert 0 < value(found, "dispatch") < nap_ns / 2
    assert value(found, "dispatch") <= value(found, "dispatch_p95")


@each_pool
@pytest.mark.parametrize("build", BUILDS)
def test_the_payload_is_what_pickle_writes(bench: Bench, tmp_path: Path, executor: Executor, build: str) -> None:
    file = tmp_path / "sizes.txt"
    bench.write(BODY.format(file=str(file)))
    found = observed(bench, executor, build)
    there, back = map(int, file.read_text().split())
    assert IN < there < IN + 200
    assert OUT < back < OUT + 100
    assert value(found, "payload") == (0 if executor is THREADS else there + back)
    parts = {name: size / found.counters["payload tasks"] for name, size in found.counters.items() if ":" in name}
    if executor is not THREADS:
        assert set(parts) == {
            *("payload function of nap: function", "payload argument 1 of nap: bytes"),
            *("payload argument out of nap: int", "payload result of nap: bytes"),
        }
        assert 0 <= parts["payload argument 1 of nap: bytes"] - IN < 50
        assert 0 <= parts["payload result of nap: bytes"] - OUT < 50


@pytest.mark.parametrize(("executor", "build"), [(FORK, "3.14"), (SPAWN, "3.14t")], ids=str)
def test_chunks_of_a_map_are_tasks_and_their_arguments_are_those_of_the_function(
    bench: Bench, executor: Executor, build: str
) -> None:
    bench.write(BODY.format(file="/dev/null"))
    found = observed(bench, executor, build, "test_map").counters
    assert found["payload tasks"] == 2 * 2
    assert {"payload argument 1 of nap: bytes", "payload result of nap: bytes"} < set(found)


@pytest.mark.parametrize(("executor", "build"), [(THREADS, "3.14t"), (FORK, "3.14"), (INTERPRETERS, "3.14")], ids=str)
def test_tasks_that_fail_count_and_those_that_are_cancelled_do_not(
    bench: Bench, executor: Executor, build: str
) -> None:
    bench.write(BODY.format(file="/dev/null"))
    found = observed(bench, executor, build, "test_fails", workers=1)
    assert value(found, "dispatch") > 0
    assert value(found, "task_work") >= NAP_S * 1e9
    assert ("payload argument 1 of fail: str" in found.counters) is (executor is not THREADS)


@pytest.mark.parametrize(("executor", "build"), [(FORK, "3.14"), (INTERPRETERS, "3.14t")], ids=str)
def test_the_argument_that_grew_is_named_with_both_types(bench: Bench, executor: Executor, build: str) -> None:
    sides = []
    for number, jobs in enumerate(("range(8)", "[(CORPUS, index) for index in range(8)]")):
        bench.write(
            f"""
            CORPUS = ["some words"] * 2000 + [str(number) for number in range(5000)]

            def count(job):
                return 1

            @ftgate.compare(processes, interpreters)
            def test_it(executor):
                futures = [executor.submit(count, job) for job in {jobs}]
                assert sum(future.result() for future in futures) == 8
            """,
            name=f"test_side{number}.py",
        )
        found = observed(bench, executor, build, module=f"test_side{number}")
        sides.append(sample_of([], observed=[msgspec.structs.replace(found, role="observed")]))
    cause = explain.carried(sides[1], sides[0])
    (part,) = cause.parts
    assert part.name == "argument 1 of count, int -> tuple"
    assert part.before < 20
    assert part.after > 30_000
    assert part.added == pytest.approx(cause.added, rel=0.01)
