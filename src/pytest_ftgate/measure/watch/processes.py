"""Processes of a launch: the tree, marks in the environment, leftovers."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Iterator

import psutil

from ...model import ProcessGroup
from .proc import FORKSERVER, TRACKER, children, environment_bytes
from .process_map import ProcessMap

MARK = "FTGATE_LAUNCH"
_LOOK_S = 0.003
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
    """Every process, wherever it went in the tree, that carries this launch's mark in its environment."""
    carrying = []
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            if _carries(pid, mark):
                carrying.append(psutil.Process(pid))
    return carrying


def _carries(pid: int, mark: str) -> bool:
    environment = environment_bytes(pid)
    if environment is None:
        return bool(psutil.Process(pid).environ().get(MARK) == mark)
    # Its bytes are searched as they are: every process of the machine is asked at each launch's end.
    return f"\0{MARK}={mark}\0".encode() in b"\0" + environment + b"\0"


def leftovers(mark: str, wait_s: float = GRACE_S) -> list[str]:
    """What a launch that has exited left behind: `pid: command` of each that is there `wait_s` later.

    Resource trackers and forkservers end by themselves once no process of the launch holds their pipe any more: they
    are waited for like all others, but what remains for the sake of another process is not named.
    """
    ends = time.monotonic() + wait_s
    while (left := [process for process in marked(mark) if alive(process)]) and time.monotonic() < ends:
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
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    kill_marked(mark)


def kill_marked(mark: str) -> None:
    """End every process that carries a launch's mark, where no process group is known to be its own."""
    for _ in range(5):
        left = [process for process in marked(mark) if _running(process)]
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=0.5)


def _running(process: psutil.Process) -> bool:
    return process.pid != os.getpid() and alive(process)


def marks() -> Iterator[str]:
    """Names for launches, unique on this machine."""
    count = 0
    while True:
        count += 1
        yield f"{os.getpid()}-{time.monotonic_ns()}-{count}"
