"""The standard candle: a fixed workload of our own that takes turns in every tandem.

It must never change: stored baselines are ratios to it. A change needs a new statistic version.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ROUNDS = 20_000


def burn(_: object = None) -> int:
    """A linear congruential generator with a shift, 20 000 rounds: pure interpreter work, no allocation that stays."""
    x = 0x12345678
    for _round in range(ROUNDS):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
        x ^= x >> 16
    return x


def worker_body(worker: Any) -> int:
    """The candle as a body run by every worker."""
    return burn()


async def task_body(worker: Any) -> int:
    """The candle as a task."""
    return burn()


def executor_body(executor: Any, workers: int) -> list[int]:
    """The candle as a body that drives a pool: one task a worker."""
    return list(executor.map(burn, range(workers)))
