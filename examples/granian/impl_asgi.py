"""The ASGI application of the Granian example: FastAPI with a JSON endpoint and one that waits 10 ms."""

from __future__ import annotations

import asyncio

import interpreter
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
    return interpreter.gil()
