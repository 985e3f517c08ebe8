"""The WSGI application of the Granian example: Flask with a JSON endpoint and one that waits 10 ms."""

from __future__ import annotations

import gc
import itertools
import time

import interpreter
from flask import Flask

app = Flask(__name__)
WAIT_S = 0.01
REQUESTS = itertools.count(1)


@app.get("/json")
def json():
    return {"message": "Hello, world!"}


@app.get("/wait")
def wait():
    time.sleep(WAIT_S)
    return {"waited": WAIT_S}


@app.get("/gil")
def gil():
    return interpreter.gil()


def collecting(environ, start_response):
    """The same application, which runs the garbage collector after every 500th request."""
    if next(REQUESTS) % 500 == 0:
        gc.collect()
    return app(environ, start_response)
