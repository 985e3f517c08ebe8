"""The ASGI application of the Granian example: FastAPI with a JSON endpoint and one that waits 10 ms."""

from __future__ import annotations

import asyncio
import sys
import sysconfig

from fastapi import FastAPI

app = FastAPI(openapi_url=None)
WAIT_S = 0.01


@app.get("/json")
async def json():
    return {"message": "Hello, world!"}


@app.get("/wait")
async def wait():
    await asyncio.sleep(WAIT_S)
    return {"waited": WAIT_S}


@app.get("/gil")
async def gil():
    """Whether this build can run without the GIL, and whether the GIL is on now that all imports are done."""
    return {
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
    }
