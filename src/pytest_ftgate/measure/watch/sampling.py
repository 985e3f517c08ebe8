"""Samples of a process tree over time: memory and wait states in one loop, each sampler at its own pace."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ...model import MemoryPoint, Waits
from .memory import MemorySampler, memory_point
from .process_map import ProcessMap
from .processes import tree
from .threads import ThreadSampler

SAMPLED = 0.8
"""The part of a held window that is sampled: its middle, when every worker is at work."""


class Sampler(Protocol):
    """Takes samples in one loop with others."""

    @property
    def due_s(self) -> float:
        """Seconds until its next sample; zero or less: now."""
        ...

    def step(self) -> None:
        """One sample."""
        ...


def run_samplers(
    seconds: float,
    samplers: Sequence[Sampler],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    over: Callable[[], bool] = lambda: False,
) -> None:
    """Let `samplers` step whenever they are due, for `seconds` or until what is sampled is `over`."""
    ends = clock() + seconds
    while clock() < ends and not over():
        for sampler in samplers:
            if sampler.due_s <= 0:
                sampler.step()
        rest = min((sampler.due_s for sampler in samplers), default=seconds)
        sleep(max(0.0, min(rest, ends - clock())))


def sample_tree(
    processes: ProcessMap, seconds: float, *, refused: str, over: Callable[[], bool]
) -> tuple[tuple[MemoryPoint, ...], int, Waits]:
    """Memory of a launch, how often a look at it gave no sample, and waits, for `seconds` or until it is `over`.

    `refused` is as for ThreadSampler.
    """
    memory, threads = MemorySampler(processes), ThreadSampler(processes, refused=refused)
    memory.start()
    threads.start()
    run_samplers(seconds, (memory, threads), over=over)
    return tuple(memory.points), memory.dropped, threads.finish()


def sample_cost_s(processes: ProcessMap, clock: Callable[[], float] = time.thread_time) -> float:
    """What one sample of a tree's memory costs in s of CPU time, whatever else the machine does."""
    live = tree(processes.main)
    began = clock()
    memory_point(live, processes)
    return clock() - began
