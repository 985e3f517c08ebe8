"""The control workload: fixed, and interleaved with the cells of every group.

It must never change: stored baselines are ratios to it. A change needs a new STATISTIC in store/schema.py.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BURN, EMPTY = "burn", "empty"
"""What replaces a workload: the control workload, or an empty one, which shows the interpreter's memory floor."""
ROUNDS = 20_000


def burn(_: object = None) -> int:
    """20 000 rounds of a linear congruential generator with a shift: interpreter work that keeps no memory."""
    x = 0x12345678
    for _round in range(ROUNDS):
        x = (x * 1103515245 + 12345) & 0xFFFFFFFF
        x ^= x >> 16
    return x


def worker_body(worker: Any) -> int:
    """The control workload as the body of every worker."""
    return burn()


async def task_body(worker: Any) -> int:
    """The control workload as a task."""
    return burn()


def executor_body(executor: Any, workers: int) -> list[int]:
    """The control workload as a body that drives a pool: one task per worker."""
    return list(executor.map(burn, range(workers)))


def idle_body(worker: Any) -> None:
    """The empty workload, in every worker."""


async def idle_task(worker: Any) -> None:
    """The empty workload as a task."""


def idle(_: object = None) -> None:
    """The empty workload, in a worker of a pool."""


def idle_executor(executor: Any, workers: int) -> None:
    """The empty workload as a body that drives a pool: one task per worker."""
    list(executor.map(idle, range(workers)))
