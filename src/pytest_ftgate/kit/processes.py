"""Processes of a launch: its tree, and which of them it leaves."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Collection

import psutil

from .marks import carries, may_carry
from .proc import FORKSERVER, TRACKER, children, command, runs

# ---- the tree of a launch

_LOOK_S = 0.003
GRACE_S = 5.0
"""How long processes may outlive the launch that started them, such as a resource tracker."""


def tree(pid: int) -> list[psutil.Process]:
    """The live processes of a launch without the resource tracker, which is no part of the workload."""
    try:
        members = [psutil.Process(pid)]
    except psutil.NoSuchProcess:
        return []
    for process in members:  # it grows meanwhile
        for child in children(process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                members.append(psutil.Process(child))
    return [process for process in members if alive(process) and not runs(process.pid, TRACKER)]


def cpu_s(pid: int) -> float:
    """CPU time in s of a process, of every descendant that has been waited for, and of those that live.

    A child's time moves from the last part to the second when it is waited for, so differences stay true. The time of a
    process that nobody waits for, such as one that is killed together with its parent, is lost.
    """
    used_s, pids = 0.0, [pid]
    for member in pids:  # it grows meanwhile
        pids += children(member)
        with contextlib.suppress(psutil.Error):  # it may end at any moment
            # User and system time, its own and that of children that have ended.
            used_s += sum(psutil.Process(member).cpu_times()[:4])
    return used_s


def alive(process: psutil.Process) -> bool:
    """Whether a process runs: it has not ended, and it is no zombie."""
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def wait_for(processes: Collection[psutil.Process], wait_s: float) -> None:
    """Wait until all of them have ended, at most so long; a zombie has, though its parent may never ask for its code.

    None is waited for as a parent does: the exit code of a child is its owner's.
    """
    ends = time.monotonic() + wait_s
    while any(map(alive, processes)) and time.monotonic() < ends:
        time.sleep(_LOOK_S)


# ---- what a launch leaves


def marked(mark: str) -> list[psutil.Process]:
    """Every live process, wherever it went in the tree, that carries this launch's mark, or one of this run's."""
    carrying = []
    for pid in may_carry(mark):
        with contextlib.suppress(psutil.Error, OSError):
            if carries(pid, mark):
                carrying.append(psutil.Process(pid))
    return [process for process in carrying if alive(process)]


def leftovers(mark: str, wait_s: float = GRACE_S) -> list[str]:
    """The processes that a launch left behind, as `pid: command`, if they still run `wait_s` later.

    Resource trackers and forkservers end by themselves once no process of the launch holds their pipe any more: they
    are waited for like all others, but what remains for the sake of another process is not named.
    """
    ends = time.monotonic() + wait_s
    while (left := marked(mark)) and time.monotonic() < ends:
        wait_for(left, ends - time.monotonic())  # to ask those takes less than to look for all again
    left = [process for process in left if not runs(process.pid, TRACKER)]
    # The children of a forkserver have its command line too; the server is the oldest.
    server = min((process for process in left if runs(process.pid, FORKSERVER)), key=_began_s, default=None)
    return [described(process) for process in left if process != server or len(left) == 1]


def _began_s(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        return float(process.create_time())
    return math.inf


def described(process: psutil.Process) -> str:
    """`pid: command`, or the pid alone where the command is not to be had."""
    words = " ".join(command(process.pid))[:200]
    return f"{process.pid}: {words}" if words else str(process.pid)
