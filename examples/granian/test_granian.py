"""Granian under load: FastAPI over ASGI and Flask over WSGI, with an immediate response and one after 10 ms.

On the GIL build a worker of Granian is a process; on the free-threaded build it is a thread of one process. Connections
grow with the workers, so that the server, and not the number of clients, limits the rate of delayed responses.
"""

from __future__ import annotations

import json

import pytest

from pytest_ftgate import command, ftgate, load

GRANIAN = ["granian", "--host", "127.0.0.1", "--port", "{port}", "--no-ws"]
ASGI = [*GRANIAN, "--interface", "asgi", "--loop", "asyncio", "--workers", "{workers}", "impl_asgi:app"]
WSGI = [*GRANIAN, "--interface", "wsgi", "--blocking-threads", "64", "--workers", "{workers}", "impl_wsgi:app"]
WSGI_WAIT = ["16" if word == "64" else word for word in WSGI]  # of 64 threads, few cores are the limit
OPTIONS = {
    "ready": "http://127.0.0.1:{port}/json",
    "duration": 2,
    "window": 1,
    "warmup": 1,  # the port answers once one worker runs; other workers and blocking threads start during the warm-up
    "timeout": 60,
    "packages": ["granian==2.8.7", "fastapi==0.165.0", "flask==3.1.3"],
}
paths = pytest.mark.parametrize("path", ["/json", "/wait"])
ANSWERS = {"/json": {"message": "Hello, world!"}, "/wait": {"waited": 0.01}}


def check(server, path):
    """The server responds, and no import has turned the GIL back on."""
    assert json.loads(server.get(path)) == ANSWERS[path]
    state = json.loads(server.get("/gil"))
    assert state["gil"] is not state["free_threaded"]


@ftgate.contract("server[3.14t].ops_per_s > 0.5 * server[3.14].ops_per_s")
@ftgate.serve(ASGI, load=load("{path}", connections=128), workers=1, **OPTIONS)
@paths
def test_asgi(server, path):
    check(server, path)


@ftgate.contract("server[3.14t].uss < server[3.14].uss")
@ftgate.contract("server[3.14t].ops_per_s > 0.5 * server[3.14].ops_per_s")
@ftgate.serve(ASGI, load=load("{path}", connections=256), workers=2, **OPTIONS)
@paths
def test_asgi_two_workers(server, path):
    check(server, path)


# How many cores they use depends on what the load, and other work, leaves of them; who waits for the GIL does not.
@ftgate.contract("server[3.14t].gil_wait < 0.2 * server[3.14].gil_wait")
@ftgate.contract("server[3.14t].ops_per_s > 0.3 * server[3.14].ops_per_s")
@ftgate.contract("server[3.14t].uss > 1.3 * server[3.14].uss")
@ftgate.serve(WSGI, load=load("/json", connections=128), workers=1, **OPTIONS)
def test_wsgi(server):
    check(server, "/json")


@ftgate.contract("server[3.14t].ops_per_s > 0.3 * server[3.14].ops_per_s")
@ftgate.contract("server[3.14t].uss > 1.3 * server[3.14].uss")
@ftgate.serve(WSGI, load=load("/json", connections=256), workers=2, **OPTIONS)
def test_wsgi_two_workers(server):
    check(server, "/json")


# 16 threads that wait 10 ms per response give at most 1600 responses per second, with and without the GIL.
ALIKE = (
    "server[3.14t].ops_per_s > 0.67 * server[3.14].ops_per_s",
    "server[3.14t].ops_per_s < 1.5 * server[3.14].ops_per_s",
)


@ftgate.contract(*ALIKE)
@ftgate.serve(WSGI_WAIT, load=load("/wait", connections=128), workers=1, **OPTIONS)
def test_wsgi_wait(server):
    check(server, "/wait")


@ftgate.contract(*ALIKE)
@ftgate.serve(WSGI_WAIT, load=load("/wait", connections=256), workers=2, **OPTIONS)
def test_wsgi_wait_two_workers(server):
    check(server, "/wait")


def with_threads(number):
    """A server with this number of blocking threads, and a name that shows it."""
    words = [*GRANIAN, "--interface", "wsgi", "--blocking-threads", str(number), "impl_wsgi:app"]
    return command(f"blocking{number}", words, pythons=["3.14"])


# One thread needs 1.3 s for 128 requests: a window must be longer.
LONGER = {"duration": 4, "window": 2}
THREADS = [with_threads(number) for number in (1, 8, 32, 128)]


# With the GIL, more threads are not faster if requests do not wait.
@ftgate.contract("server[blocking128].ops_per_s < 1.5 * server[blocking1].ops_per_s")
@ftgate.serve(*THREADS, load=load("/json", connections=128), **OPTIONS)
def test_blocking_threads(server):
    check(server, "/json")


@ftgate.contract(
    "server[blocking8].ops_per_s > 4 * server[blocking1].ops_per_s",
    "server[blocking8].ops_per_s < 12 * server[blocking1].ops_per_s",
    "server[blocking32].ops_per_s > 2 * server[blocking8].ops_per_s",
)
@ftgate.serve(*THREADS, load=load("/wait", connections=128), **(OPTIONS | LONGER))
def test_blocking_threads_wait(server):
    check(server, "/wait")
