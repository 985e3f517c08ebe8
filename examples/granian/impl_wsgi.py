"""The WSGI application of the Granian example: Flask with a JSON endpoint and one that waits 10 ms."""

from __future__ import annotations

import sys
import sysconfig
import time

from flask import Flask

app = Flask(__name__)
WAIT_S = 0.01


@app.get("/json")
def json():
    return {"message": "Hello, world!"}


@app.get("/wait")
def wait():
    time.sleep(WAIT_S)
    return {"waited": WAIT_S}


@app.get("/gil")
def gil():
    """Whether this build can run without the GIL, and whether the GIL is on now that all imports are done."""
    return {
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
    }
