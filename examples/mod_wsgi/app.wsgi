"""One request of the mod_wsgi example: 3 ms of Python on the CPU, a wait of 1 ms, a body of 1 KB.

/fixed does a fixed amount of work. /timed loops until a deadline of the wall clock, and so counts the time that it
waits for the GIL, or for a core, as work. /slow does ten times the work, which takes longer than a switch
interval. /wait only waits, for 10 ms. /crash ends the process as a broken extension does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import sysconfig
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import work

BODY = b"x" * 1024


def fixed():
    work.fixed()
    return BODY


def timed():
    work.timed()
    return BODY


def slow():
    work.burn(10 * work.ROUNDS)
    return BODY


def wait():
    time.sleep(0.01)
    return BODY


def crash():
    os.kill(os.getpid(), signal.SIGKILL)


def gil():
    """Whether this build can run without the GIL, whether the GIL is on, and its switch interval in s."""
    state = {
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "switch_s": sys.getswitchinterval(),
    }
    return json.dumps(state).encode()


PAGES = {"/fixed": fixed, "/timed": timed, "/slow": slow, "/wait": wait, "/crash": crash, "/gil": gil}


def application(environ, start_response):
    page = PAGES.get(environ["PATH_INFO"])
    body = page() if page else b"no such page\n"
    start_response("200 OK" if page else "404 Not Found", [("Content-Length", str(len(body)))])
    return [body]
