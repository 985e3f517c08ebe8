"""The control workload: fixed, and interleaved with the cells of every group.

It must never change: stored baselines are ratios to it. A change needs a new STATISTIC in store/schema.py.
"""

from __future__ import annotations

BURN, EMPTY = "burn", "empty"
"""Replacements of a workload: the control workload, or an empty one, which shows the interpreter's memory floor."""
ROUNDS = 20_000


def burn(_: object = None) -> int:
    """20 000 rounds of a linear congruential generator with a shift: interpreter work that keeps no memory."""
    x = 0x12345678
    for _round in range(ROUNDS):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
        x ^= x >> 16
    return x


def idle(_: object = None) -> None:
    """The empty workload."""
