"""Processes of a launch: the tree, what carries its mark, what it leaves, and its end."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Collection

import psutil

from ...model import ProcessGroup
from . import abandoned
from .marks import TOOL, Owner, carries, owner_of
from .proc import FORKSERVER, TRACKER, children
from .process_map import ProcessMap

_LOOK_S = 0.003
_KILLED_S = 0.5
TRACKER_S = 1.0
"""How long a resource tracker gets to remove what killed processes have left, before it is killed."""
GRACE_S = 5.0
"""How long what a launch started may take to end after it: a server that it has told to, a resource tracker."""


# -- the tree ----------------------------------------------------------------------------------------------------------


def tree(pid: int) -> list[psutil.Process]:
    """The live processes of a launch without the resource tracker, which is no part of the workload."""
    try:
        found = [psutil.Process(pid)]
    except psutil.NoSuchProcess:
        return []
    for process in found:  # it grows meanwhile
        for child in children(process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(child))
    return [process for process in found if alive(process) and not _is(process, TRACKER)]


def _is(process: psutil.Process, server: str) -> bool:
    try:
        return any(server in word for word in process.cmdline())
    except psutil.Error:
        return False


def _forkserver(process: psutil.Process, main: int) -> bool:
    """Its children have its command line too, but not its parent."""
    with contextlib.suppress(psutil.Error):
        return bool(process.ppid() == main) and _is(process, FORKSERVER)
    return False


def group_of(process: psutil.Process, known: ProcessMap) -> ProcessGroup:
    """The group of a process of the tree; multiprocessing's forkserver is known by its command line."""
    if process.pid == known.main:
        return "main"
    if process.pid in known.workers:
        return "workers"
    return "servers" if process.pid in known.servers or _forkserver(process, known.main) else "others"


def alive(process: psutil.Process) -> bool:
    """Whether a process runs: it has not ended, and it is no zombie."""
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


# -- what a launch leaves ----------------------------------------------------------------------------------------------


def marked(mark: str) -> list[psutil.Process]:
    """Every live process, wherever it went in the tree, that carries this launch's mark, or one of this run's."""
    carrying = []
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            if carries(pid, mark):
                carrying.append(psutil.Process(pid))
    return [process for process in carrying if alive(process)]


def leftovers(mark: str, wait_s: float = GRACE_S) -> list[str]:
    """What a launch that has exited left behind: `pid: command` of each that is there `wait_s` later.

    Resource trackers and forkservers end by themselves once no process of the launch holds their pipe any more: they
    are waited for like all others, but what remains for the sake of another process is not named.
    """
    ends = time.monotonic() + wait_s
    while (left := marked(mark)) and time.monotonic() < ends:
        while any(map(alive, left)) and time.monotonic() < ends:  # to ask those takes less than to look for all again
            time.sleep(_LOOK_S)
    left = [process for process in left if not _is(process, TRACKER)]
    # What a forkserver forked has its command line, too: it is older than they.
    server = min((process for process in left if _is(process, FORKSERVER)), key=_began_s, default=None)
    return [described(process) for process in left if process != server or len(left) == 1]


def _began_s(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        return float(process.create_time())
    return math.inf


def described(process: psutil.Process) -> str:
    """`pid: command`, or the pid alone where the command is not to be had."""
    try:
        return f"{process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)


def kill_all(group: int, mark: str) -> None:
    """End a launch with everything it started, also what left its process group."""
    kill_marked(mark)
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def kill_marked(mark: str) -> None:
    """End every process that carries a launch's mark, or one of a run's."""
    for _ in range(5):
        if not (left := _left(mark)):
            return
        kill(left)


def end_run(mark: str, wait_s: float = 0.0) -> None:
    """End every process of a run, and with `wait_s` let them end by themselves first: they are told to."""
    if wait_s and (left := [process for process in _left(mark) if not _is(process, TRACKER)]):
        held = abandoned.held(left)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        psutil.wait_procs(left, timeout=wait_s)
        kill_marked(mark)
        held.remove()
    else:
        kill_marked(mark)


def kill(left: Collection[psutil.Process]) -> None:
    """Kill processes, resource trackers last: they remove the semaphores and shared memory of the others."""
    trackers = [process for process in left if _is(process, TRACKER)]
    others = [process for process in left if process not in trackers]
    held = abandoned.held(others)
    for killed in (others, trackers):
        for process in killed:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(killed, timeout=_KILLED_S)
        if killed is others:
            psutil.wait_procs(trackers, timeout=TRACKER_S)
    held.remove()


def orphans() -> list[psutil.Process]:
    """The processes of launches whose owner has ended without ending them."""
    found, owners = [], dict[Owner, bool]()
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            owner = owner_of(pid)
            if owner is None or owner.number == TOOL:
                continue
            whose = owner._replace(number=TOOL)
            if whose not in owners:
                owners[whose] = owner.gone
            if owners[whose]:
                found.append(psutil.Process(pid))
    return [process for process in found if alive(process)]


def _left(mark: str) -> list[psutil.Process]:
    return [process for process in marked(mark) if process.pid != os.getpid()]
