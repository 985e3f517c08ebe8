"""The work of a request, in a module of its own: see the README on the constants of a script without the GIL."""

from __future__ import annotations

import time

ROUNDS = 20_000  # about 3 ms on the machine of the README; constant, so that a request is the same work everywhere
CHUNK = 500  # rounds between two readings of the clock
TIMED_S = 0.003
WAIT_S = 0.001


def burn(rounds):
    x = 0x12345678
    for _ in range(rounds):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
        x ^= x >> 16
    return x


def fixed():
    burn(ROUNDS)
    time.sleep(WAIT_S)


def timed():
    deadline = time.perf_counter() + TIMED_S
    while time.perf_counter() < deadline:
        burn(CHUNK)
    time.sleep(WAIT_S)
