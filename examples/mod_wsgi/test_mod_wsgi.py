"""mod_wsgi: daemon processes and threads, with the GIL, with a shorter switch interval, and without the GIL.

Rows are named processes x threads. N is the number of cores: the smallest server that can use all of them.
"""

from __future__ import annotations

import json
import os

from pytest_ftgate import command, ftgate, load

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
GIL, FREE = "3.14", "3.14t"


def express(name, python, processes, threads, *options):
    """A server's command line; apache/express.py starts mod_wsgi-express, for root as another user."""
    words = ["python", "apache/express.py", "app.wsgi", "--server-root", "{scratch}", "--port", "{port}"]
    counts = ["--processes", str(processes), "--threads", str(threads)]
    return command(name, [*words, *counts, *options], pythons=[python])


FAST = ("--switch-interval", "0.0001")
OFF = ("--free-threading",)  # without this mod_wsgi turns the GIL on, in the free-threaded build too
SLOW_SWITCH = express("1x10", GIL, 1, 10)
FAST_SWITCH = express("1x10-fast", GIL, 1, 10, *FAST)
HALF_MS_SWITCH = express("1x10-500us", GIL, 1, 10, "--switch-interval", "0.0005")
ROWS = [
    express("Nx1", GIL, CORES, 1),
    express("10x1", GIL, 10, 1),
    express("2x5", GIL, 2, 5),
    express("2x5-fast", GIL, 2, 5, *FAST),
    SLOW_SWITCH,
    FAST_SWITCH,
    express("free-2x5", FREE, 2, 5, *OFF),
    express("free-1x10", FREE, 1, 10, *OFF),
    express("free-1xN", FREE, 1, CORES, *OFF),
]
OPTIONS = {
    "ready": "http://127.0.0.1:{port}/gil",
    "duration": 2,
    "window": 1,
    "warmup": 1,
    "timeout": 60,
    "packages": ["mod_wsgi==6.1.1"],
    "programs": {"apxs": "apt install apache2-bin apache2-dev", "mod_wsgi-express": "pip install mod_wsgi"},
}
LONGER = {"duration": 4, "window": 4}


# Rates differ by up to a fifth from one start of a server to the next: less than half as much again is not looked for.
coarse = ftgate.limit("wall", margin="25%", effect="50%")


def check(server, path):
    """A response has its body, and the GIL is on in the GIL build only."""
    assert len(server.get(path)) == 1024
    state = json.loads(server.get("/gil"))
    assert state["gil"] is not state["free_threaded"]


@coarse
@ftgate.contract(
    "server[1x10].process_cores < 1.5",  # one interpreter, whatever the number of its threads
    "server[2x5].process_cores < 1.5",
    "server[free-2x5].process_cores < 1.5 * server[free-1x10].process_cores",  # two share what one takes
    "server[10x1].process_cores < 0.9 * server[1x10].process_cores",
    "server[free-1x10].process_cores > 1.1 * server[1x10].process_cores",
    "server[free-1x10].ops_per_s > 1.1 * server[1x10].ops_per_s",
    "server[free-1xN].ops_per_s > 0.75 * server[Nx1].ops_per_s",
    "server[free-2x5].ops_per_s > 0.75 * server[10x1].ops_per_s",
    "server[free-1x10].ops_per_s > 0.7 * server[10x1].ops_per_s",
    "server[2x5].ops_per_s < 2 * server[10x1].ops_per_s",
    "server[10x1].uss > 2 * server[free-1x10].uss",
    "server[free-1x10].gil_wait < 0.2 * server[1x10].gil_wait",
    "server[2x5-fast].ops_per_s < 1.5 * server[2x5].ops_per_s",  # no interval reduces the same work
    "server[1x10-fast].ops_per_s < 1.5 * server[1x10].ops_per_s",
)
@ftgate.serve(*ROWS, load=load("/fixed", connections=10), **OPTIONS)
def test_fixed_work(server):
    check(server, "/fixed")


# Who waits asks for the GIL once in an interval, and 0.1 ms is too short to tell one wait from the next from outside.
# A request is longer than the interval, so that waits end at its multiples: the HTML page of the run shows it.
@coarse
@ftgate.contract("server[1x10-500us].gil_wait_p95 < 0.8 * server[1x10].gil_wait_p95")
@ftgate.serve(SLOW_SWITCH, HALF_MS_SWITCH, load=load("/slow", connections=4), **(OPTIONS | LONGER))
def test_gil_wait(server):
    check(server, "/slow")


# The trap: the apparent gain of a shorter interval is waiting time, counted as work.
@coarse
@ftgate.contract("server[1x10-fast].ops_per_s > 1.2 * server[1x10].ops_per_s")
@ftgate.serve(SLOW_SWITCH, FAST_SWITCH, load=load("/timed", connections=10), **OPTIONS)
def test_wall_timed(server):
    check(server, "/timed")


# What isolation costs and saves: one request of a thousand kills its process. Requests that it is answering fail too,
# and nobody answers until it is there again.
@coarse
@ftgate.contract(
    "server[8x1].errors < 0.5 * server[free-1x8].errors",
    "server[8x1].latency_max < 0.5 * server[free-1x8].latency_max",
    "server[8x1].uss > 1.5 * server[free-1x8].uss",
)
@ftgate.serve(
    express("8x1", GIL, 8, 1),
    express("free-1x8", FREE, 1, 8, *OFF),
    load=load({"/wait": 999, "/crash": 1}, connections=8),
    **(OPTIONS | LONGER),
)
def test_crash(server):
    check(server, "/wait")
