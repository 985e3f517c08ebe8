"""The standard candle: a fixed workload of our own that takes turns in every tandem.

It must never change: stored baselines are ratios to it. A change needs a new statistic version.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BURN, EMPTY = "burn", "empty"
"""What stands in for a workload: the candle, or nothing at all, which shows the interpreter's own floor."""
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


def idle_body(worker: Any) -> None:
    """Nothing, in every worker."""


async def idle_task(worker: Any) -> None:
    """Nothing, in every task."""


def idle(_: object = None) -> None:
    """Nothing, in a worker of a pool."""


def idle_executor(executor: Any, workers: int) -> None:
    """Nothing, once in each worker of a pool as far as it deals them out evenly."""
    list(executor.map(idle, range(workers)))
