"""Readers of Linux's /proc that the measured process and the controller share."""

from __future__ import annotations

import os
import time


def read(path: str) -> bytes:
    """A whole file, read without a file object: its buffer would count as memory of the workload."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while part := os.read(descriptor, 4096):
            content += part
        return content
    finally:
        os.close(descriptor)


def children_of_thread(pid: int, thread: int | str) -> list[int]:
    """The children that a thread of a process has started. Raises OSError, also where the kernel has no list."""
    return [int(child) for child in read(f"/proc/{pid}/task/{thread}/children").split()]


def children(pid: int) -> list[int]:
    """The children of a process; none of one that is gone.

    Raises FileNotFoundError where the kernel has no list of them: off Linux, and without CONFIG_PROC_CHILDREN.
    """
    os.stat(f"/proc/self/task/{os.getpid()}/children")
    pids: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                pids += children_of_thread(pid, thread)
            except (FileNotFoundError, ProcessLookupError):
                pass  # it has handed its children on to another thread
    except (FileNotFoundError, ProcessLookupError):
        pass
    return pids


def stat_fields(pid: int | str) -> list[bytes]:
    """The fields of /proc/PID/stat from the third on: the name before them may hold anything. Raises OSError."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def cpu_ns(pid: int) -> int:
    """CPU time of a process with all threads it ever had, in ns, without clock ticks. Raises OSError."""
    return time.clock_gettime_ns((~pid << 3) | 2)  # as clock_getcpuclockid
