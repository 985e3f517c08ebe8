"""Granian under load: FastAPI over ASGI and Flask over WSGI, with an immediate response and one after 10 ms.

On the GIL build a worker of Granian is a process; on the free-threaded build it is a thread of one process. Connections
grow with the workers, so that the server, and not the number of clients, limits the rate of delayed responses.
"""

from __future__ import annotations

import json

import pytest

from pytest_ftgate import command, ftgate, load, threads

OPTIONS = {
    "ready": "http://127.0.0.1:{port}/json",
    "duration": 2,
    "window": 1,
    "warmup": 1,  # the port answers once one worker runs; other workers and blocking threads start during the warm-up
    "timeout": 60,
    "packages": ["granian==2.8.7", "fastapi==0.165.0", "flask==3.1.3", "rloop==0.5.0", "uvloop==0.23.0"],
}
ANSWERS = {"/json": {"message": "Hello, world!"}, "/wait": {"waited": 0.01}}
paths = pytest.mark.parametrize("path", ANSWERS)


def granian(interface, *options, app="app"):
    """Its command line."""
    words = ["granian", "--host", "127.0.0.1", "--port", "{port}", "--no-ws", "--interface", interface]
    return [*words, *options, f"impl_{interface}:{app}"]


def row(name, interface, *options, python="3.14t", app="app"):
    return command(name, granian(interface, *options, app=app), pythons=[python])


# Rates differ by up to a fifth from one start of a server to the next: less than half as much again is not looked for.
coarse = ftgate.limit("wall", margin="25%", effect="50%")


def check(server, path):
    """The server responds, and no import has turned the GIL back on."""
    assert json.loads(server.get(path)) == ANSWERS[path]
    state = json.loads(server.get("/gil"))
    assert state["gil"] is not state["free_threaded"]


ASGI = granian("asgi", "--loop", "asyncio", "--workers", "{workers}")
WSGI = granian("wsgi", "--blocking-threads", "64", "--workers", "{workers}")
WSGI_WAIT = granian("wsgi", "--blocking-threads", "16", "--workers", "{workers}")  # of 64, few cores are the limit


# -- both builds, with one worker and with two


@coarse
@ftgate.contract(
    "server[3.14t].uss < 1.3 * server[3.14].uss",
    "server[3.14t].ops_per_s > 0.5 * server[3.14].ops_per_s",
)
@ftgate.serve(ASGI, load=load("{path}", connections=128), workers=1, **OPTIONS)
@paths
def test_asgi(server, path):
    check(server, path)


@coarse
@ftgate.contract(
    "server[3.14t].uss < server[3.14].uss",
    "server[3.14t].ops_per_s > 0.5 * server[3.14].ops_per_s",
)
@ftgate.serve(ASGI, load=load("{path}", connections=256), workers=2, **OPTIONS)
@paths
def test_asgi_two_workers(server, path):
    check(server, path)


# How many cores they use depends on what the load, and other work, leaves of them; who waits for the GIL does not.
@coarse
@ftgate.contract(
    "server[3.14t].gil_wait < 0.2 * server[3.14].gil_wait",
    "server[3.14t].ops_per_s > 0.3 * server[3.14].ops_per_s",
    "server[3.14t].uss > 1.3 * server[3.14].uss",
)
@ftgate.serve(WSGI, load=load("/json", connections=128), workers=1, **OPTIONS)
def test_wsgi(server):
    check(server, "/json")


@coarse
@ftgate.contract(
    "server[3.14t].ops_per_s > 0.3 * server[3.14].ops_per_s",
    "server[3.14t].uss > 1.3 * server[3.14].uss",
)
@ftgate.serve(WSGI, load=load("/json", connections=256), workers=2, **OPTIONS)
def test_wsgi_two_workers(server):
    check(server, "/json")


# 16 threads that wait 10 ms per response give at most 1600 responses per second, with and without the GIL.
ALIKE = (
    "server[3.14t].ops_per_s > 0.67 * server[3.14].ops_per_s",
    "server[3.14t].ops_per_s < 1.5 * server[3.14].ops_per_s",
)


@coarse
@ftgate.contract(*ALIKE)
@ftgate.serve(WSGI_WAIT, load=load("/wait", connections=128), workers=1, **OPTIONS)
def test_wsgi_wait(server):
    check(server, "/wait")


@coarse
@ftgate.contract(*ALIKE)
@ftgate.serve(WSGI_WAIT, load=load("/wait", connections=256), workers=2, **OPTIONS)
def test_wsgi_wait_two_workers(server):
    check(server, "/wait")


# -- workers x threads without the GIL: those of ASGI are Granian's own, those of WSGI run Python


def shapes(interface, option):
    counts = [(1, 2), (2, 1), (1, 4), (4, 1), (2, 2)]
    return [row(f"{w}x{t}", interface, "--workers", str(w), option, str(t)) for w, t in counts]


@coarse
@ftgate.contract(
    "server[1x4].ops_per_s < 2 * server[1x2].ops_per_s",  # one event loop, whatever runs beside it
    "server[4x1].uss < 2 * server[1x4].uss",  # a worker is a thread
)
@ftgate.serve(*shapes("asgi", "--runtime-threads"), load=load("/json", connections=128), **OPTIONS)
def test_asgi_workers_and_threads(server):
    check(server, "/json")


@coarse
@ftgate.contract(
    "server[4x1].ops_per_s > 0.5 * server[1x4].ops_per_s",
    "server[4x1].uss < 1.5 * server[1x4].uss",
    "server[4x1].uss > 0.67 * server[1x4].uss",  # what runs Python costs memory, in one worker or in four
)
@ftgate.serve(*shapes("wsgi", "--blocking-threads"), load=load("/json", connections=128), **OPTIONS)
def test_wsgi_workers_and_threads(server):
    check(server, "/json")


# -- event loops without the GIL


@coarse
@ftgate.contract(
    "server[uvloop].ops_per_s > 0.6 * server[asyncio].ops_per_s",
    "server[rloop].ops_per_s > 0.6 * server[asyncio].ops_per_s",
)
@ftgate.serve(
    *(row(loop, "asgi", "--loop", loop) for loop in ("asyncio", "uvloop", "rloop")),
    load=load("/json", connections=128),
    **OPTIONS,
)
def test_event_loops(server):
    check(server, "/json")


# -- the memory of WSGI without the GIL: is it that of the threads, or what the collector leaves?


@coarse
@ftgate.contract(
    "server[threads64].uss > 1.3 * server[threads1].uss",
    "server[collecting64].uss > 0.75 * server[threads64].uss",
)
@ftgate.serve(
    row("threads1", "wsgi", "--blocking-threads", "1"),
    row("threads64", "wsgi", "--blocking-threads", "64"),
    row("collecting64", "wsgi", "--blocking-threads", "64", app="collecting"),
    load=load("/json", connections=128),
    **OPTIONS,
)
def test_memory(server):
    check(server, "/json")


# A server's collector cannot be counted from outside: here the application runs in our own threads.
@ftgate.contract(
    "threads[3.14].garbage > 5",  # of each request, in both builds
    "threads[3.14t].collections < 0.5 * threads[3.14].collections",
)
@ftgate.compare(threads, workers=8, duration=1, packages=OPTIONS["packages"])
def test_collector(worker):
    body, _, _ = worker.local.run(worker.local.app, worker.local.environ("/json"))
    assert b"Hello" in b"".join(body)


@test_collector.setup("worker")
def application(worker):
    from impl_wsgi import app
    from werkzeug.test import create_environ, run_wsgi_app

    worker.local.app, worker.local.run, worker.local.environ = app, run_wsgi_app, create_environ


# -- blocking threads under the GIL

THREADS = [row(f"blocking{n}", "wsgi", "--blocking-threads", str(n), python="3.14") for n in (1, 8, 32, 128)]


# With the GIL, more threads are not faster if requests do not wait.
@coarse
@ftgate.contract("server[blocking128].ops_per_s < 3 * server[blocking1].ops_per_s")
@ftgate.serve(*THREADS, load=load("/json", connections=128), **OPTIONS)
def test_blocking_threads(server):
    check(server, "/json")


@coarse
@ftgate.contract(
    "server[blocking8].ops_per_s > 4 * server[blocking1].ops_per_s",
    "server[blocking8].ops_per_s < 12 * server[blocking1].ops_per_s",
    "server[blocking32].ops_per_s > 2 * server[blocking8].ops_per_s",
    "server[blocking1].latency_max > 2 * server[blocking32].latency_max",
)
@ftgate.serve(
    *THREADS,
    load=load("/wait", connections=128),
    **(OPTIONS | {"duration": 4, "window": 2}),  # one thread needs 1.3 s for 128 requests
)
def test_blocking_threads_wait(server):
    check(server, "/wait")
