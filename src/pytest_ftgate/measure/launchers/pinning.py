"""Which CPUs a server and its load generator get."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from .. import machine
from . import load
from .load import Tool


def cpus_note() -> str:
    """Who has which CPUs of this machine while a server is measured, for the table's note."""
    quota = machine.cpu_quota()
    return load.split_note(*load.split(split_cpus(), quota), quota)


def split_cpus() -> list[int]:
    """The CPUs that this process may use, core by core; none where the platform ties no process to CPUs."""

    def place(cpu: int) -> tuple[int, ...]:
        """Package and core that a CPU is a thread of; every CPU by itself where the kernel does not say."""
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        texts = (machine.read_text(topology / name) for name in ("physical_package_id", "core_id"))
        try:
            return *(int(text or "") for text in texts), cpu
        except ValueError:
            return 0, cpu, cpu

    return sorted(machine.usable_cpus(), key=place)


def threads_for(tool: Tool) -> int:
    """Threads that a load generator may have: one for each of its own CPUs, for every second one that it shares."""
    shared = tool.own_cpus == tool.server_cpus
    return max(1, len(tool.own_cpus) // 2) if shared else len(tool.own_cpus)


@contextlib.contextmanager
def starting_on(cpus: frozenset[int]) -> Iterator[None]:
    """What this thread starts meanwhile runs on `cpus` only, from its first instruction on.

    A child inherits the affinity of the thread that starts it, on Linux a thread's own: so neither a program between
    nor code between fork and exec is needed, and nothing else of this process moves.
    """
    if not cpus or not hasattr(os, "sched_setaffinity") or cpus == os.sched_getaffinity(0):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
