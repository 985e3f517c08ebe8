# pyright: strict
"""Every form of the decorators as a user with a strict type checker writes it: tests/test_typing.py runs it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ftgate import (
    Context,
    Server,
    Worker,
    command,
    executor,
    ftgate,
    interpreters,
    load,
    processes,
    serial,
    tasks,
    threads,
)

WORKERS = [1, 2]
LIMITS: dict[str, Any] = {"iterations": 2, "warmup": 0, "timeout": 60}
ROLES = {"producer": 1, "writer": 1}


# -- bodies ----------------------------------------------------------------------------------------------------------


@ftgate.contract("threads.wall < 10 * serial.wall", uss="< 1 GiB")
@ftgate.limit("wall", margin="3%", effect=0.1, floor="1ms")
@ftgate.xfail("broken", threads, processes=["fork"], reason="one lock", strict=False, pythons=["3.14"], workers=2)
@ftgate.compare(serial, threads, interpreters, processes=["fork"], workers=WORKERS, reuse="pool", pythons=["3.14"])
def test_worker(worker: Worker) -> int:
    worker.count("calls")
    worker.peak("depth", worker.index / worker.workers)
    with worker.timed("all"):
        worker.timed("part").add(5)
    return 3


@ftgate.compare(threads, processes, workers="cores", env={"A": "1"}, pin=True, **LIMITS)
@ftgate.limit("uss")
def test_shared(worker: Worker) -> None:
    names, lock = worker.shared
    with lock:
        names[f"{worker.role} {worker.index}"] = worker.counts
    worker.local.calls = 1


@test_shared.shared
def shared(objects: Context) -> tuple[Any, Any]:
    return objects.dict(), ftgate.named(objects.Lock(), f"{objects.name} {objects.workers}")


@test_shared.check
def check(results: list[None]) -> None:
    assert not any(results)


@test_shared.setup
def before(worker: Worker) -> None:
    worker.local.items = [worker.index]


@test_shared.setup("worker")
def worker_starts(worker: Worker) -> None: ...


@test_shared.teardown("launch")
def launch_ends(state: tuple[Any, Any]) -> None: ...


@pytest.mark.parametrize("size", [1, 2])
@ftgate.compare(threads, tasks, env=[{}, {"OMP_NUM_THREADS": "{workers}"}], workers=[1, "cores"], min_cores=1)
def test_variant(worker: Worker, size: int) -> int:
    return size


@test_variant.variant(tasks)
async def as_task(worker: Worker, size: int) -> int:
    await asyncio.sleep(0)
    return size


@ftgate.compare(tasks("own", asyncio.new_event_loop), tasks, duration=0.1, window=0.05)
@pytest.mark.parametrize(("size", "name"), [(1, "a")])
async def test_async(worker: Worker, size: int, name: str) -> None:
    await asyncio.sleep(0)


@ftgate.compare(threads, processes=["fork", "spawn"], workers=[ROLES, {"producer": 2, "writer": 1}])
def test_roles(worker: Worker) -> None:
    worker.shared.set()


@test_roles.role("writer")
def write(worker: Worker) -> None:
    worker.shared.wait(10)


@test_roles.role("writer", threads, processes=["fork"])
def write_in_threads(worker: Worker) -> None:
    worker.shared.wait(10)


@test_roles.stop
def stop(state: Event) -> None:
    state.set()


@test_roles.shared
def event(objects: Context) -> Any:
    return objects.Event()


class TestClass:
    @ftgate.compare(threads)
    def test_method(self, worker: Worker) -> None: ...

    @test_method.setup
    def before(self, worker: Worker) -> None: ...


# -- executors -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def pool(workers: int) -> Generator[Executor]:
    with ThreadPoolExecutor(workers) as made:
        yield made


@ftgate.compare(
    threads,
    executor("plain", ThreadPoolExecutor),
    executor("own", pool, processes=False),
    processes="fork",
    packages=["packaging"],
)
def test_executor(executor: Executor) -> list[int]:
    return list(executor.map(abs, [1, -2]))


@test_executor.teardown
def after(executor: Executor) -> None:
    assert ftgate.shared() is None


ECHO = command("echo", ["echo", '{"ops": {workers}}'], env={"A": "1"})


@ftgate.compare(threads, ECHO, programs={"echo": "apt install coreutils"})
def test_program(worker: Worker) -> None: ...


# -- servers ---------------------------------------------------------------------------------------------------------

SERVER = ["{python}", "-m", "http.server", "--bind", "127.0.0.1", "{port}"]
READY = "http://127.0.0.1:{port}/"


@ftgate.limit("latency_p99")
@ftgate.serve(
    command("a", SERVER, pythons=["3.14"]),
    command("b", SERVER, pythons="3.14"),
    ready=READY,
    load=load({"/": 3, "/?a": 1}, connections=4, method="GET", headers={"Accept": "*/*"}),
    duration=1,
    timeout=30,
)
def test_server(server: Server) -> None:
    assert server.url
    assert server.get("/", timeout_s=20)


@ftgate.serve(SERVER, ready=READY, load=load("{path}", rate=5.0, generator="oha"), workers=1, env={"N": "{workers}"})
@pytest.mark.parametrize("path", ["/"])
def test_paths(server: Server, path: str) -> None:
    assert server.request("GET", path)


# -- what is refused: mypy reports an ignore that nothing needs ------------------------------------------------------

if TYPE_CHECKING:
    keeps_its_type: Callable[[Worker], int] = test_worker
    another_type: Callable[[Worker], str] = test_worker  # type: ignore[assignment]
    ftgate.compare(test_worker)  # type: ignore[arg-type]
    ftgate.compare("threads")  # type: ignore[arg-type]
    ftgate.compare(threads, worker=1)  # type: ignore[call-arg]
    ftgate.compare(processes("fork"))  # type: ignore[operator]
    ftgate.compare(processes=["frok"])  # type: ignore[list-item]
    ftgate.compare(processes=True)  # type: ignore[arg-type]
    ftgate.serve(SERVER, ready=READY, load=load("/"), processes=["fork"])  # type: ignore[call-arg]
    ftgate.xfail("broken", processes="frok", reason="x")  # type: ignore[arg-type]
    test_variant.variant(processes=["spwan"])  # type: ignore[list-item]
    ftgate.compare(threads, workers="all")  # type: ignore[arg-type]
    ftgate.compare(threads, reuse="never")  # type: ignore[arg-type]
    ftgate.compare(threads, packages="flask")  # type: ignore[arg-type]
    ftgate.serve(SERVER, ready=READY)  # type: ignore[call-arg]
    ftgate.xfail("slower", threads, reason="x")  # type: ignore[arg-type]
    executor("x", print)  # type: ignore[arg-type]
    tasks("x")  # type: ignore[call-arg]
    load("/", rate="5")  # type: ignore[arg-type]
    test_worker.sharde(print)  # type: ignore[attr-defined]

    def wrong(worker: Worker) -> None:
        worker.counted("x")  # type: ignore[attr-defined]
