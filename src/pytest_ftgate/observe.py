"""Memory and leftovers of a process tree, seen from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator

import psutil

from .model import MemoryPoint

MARK = "FTGATE_LAUNCH"
# As multiprocessing starts its own servers; a word of a workload's may hold the module's name.
TRACKER = "from multiprocessing.resource_tracker import main"
FORKSERVER = "from multiprocessing.forkserver import main"
_SMALL_COST = 0.02  # the share of the time that looking at memory may take
_LEAST_LOOKS = 6  # but so many looks there are, whatever they cost: nothing is timed meanwhile


def tree(pid: int) -> list[psutil.Process]:
    """The live processes of a launch without the resource tracker, which is no part of the workload."""
    try:
        main = psutil.Process(pid)
        found = [main, *main.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
    return [process for process in found if not _is(process, TRACKER)]


def _is(process: psutil.Process, server: str) -> bool:
    try:
        return any(server in word for word in process.cmdline())
    except psutil.Error:
        return False


def memory_point(processes: list[psutil.Process]) -> MemoryPoint | None:
    """RSS, USS and PSS in bytes summed over `processes`; None when there is none or one of them ended meanwhile.

    A sum without a process that was there a moment ago would be a minimum that means nothing, so such a look
    is dropped whole.
    """
    if not processes:
        return None
    rss = uss = pss = 0
    has_pss = True
    try:
        for process in processes:
            full = process.memory_full_info()
            rss += full.rss
            uss += full.uss
            has_pss = has_pss and hasattr(full, "pss")
            pss += getattr(full, "pss", 0)
    except psutil.Error:
        return None
    if not all(map(_alive, processes)):
        return None
    return MemoryPoint(
        at_ns=time.monotonic_ns(),
        rss_bytes=rss,
        uss_bytes=uss,
        pss_bytes=pss if has_pss else None,
        processes=len(processes),
    )


def _alive(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def watch_memory(
    pid: int,
    seconds: float,
    interval_s: float = 0.02,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[MemoryPoint, ...]:
    """Look at the tree of `pid` for `seconds`, while its workers are held at work.

    The interval widens until looking takes at most 2 % of the time, or some six looks are left. The tree is taken at
    the start, when the workers are all there, and again after a look at which one of its processes had ended.
    """
    ends = clock() + seconds
    processes = tree(pid)
    points: list[MemoryPoint] = []
    while clock() < ends:
        began = clock()
        point = memory_point(processes)
        if point is None:
            processes = tree(pid)
        else:
            points.append(point)
        spent = clock() - began
        rest = min(spent / _SMALL_COST, seconds / _LEAST_LOOKS)
        sleep(max(0.0, min(max(interval_s, rest), ends - clock())))
    return tuple(points)


def marked(mark: str) -> list[psutil.Process]:
    """Every process, wherever it went in the tree, that carries this launch's mark in its environment."""
    return [process for process in psutil.process_iter() if _carries(process, mark)]


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return bool(process.environ().get(MARK) == mark)
    except (psutil.Error, OSError):
        return False


def leftovers(pid: int, mark: str) -> list[str]:
    """What a finished launch left behind: `pid: command` of each, multiprocessing's own servers left out."""
    return [_describe(process) for process in marked(mark) if process.pid != pid and not _belongs(process, pid)]


def _belongs(process: psutil.Process, main: int) -> bool:
    with contextlib.suppress(psutil.Error):
        if process.status() == psutil.STATUS_ZOMBIE or _is(process, TRACKER):
            return True
        return process.ppid() == main and _is(process, FORKSERVER)
    return True


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)


def kill_all(group: int, mark: str) -> None:
    """End a launch with everything it started, also what left its process group."""
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for _ in range(5):
        left = [process for process in marked(mark) if _running(process)]
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=0.5)


def _running(process: psutil.Process) -> bool:
    return process.pid != os.getpid() and _alive(process)


def marks() -> Iterator[str]:
    """Names for launches, unique on this machine."""
    count = 0
    while True:
        count += 1
        yield f"{os.getpid()}-{time.monotonic_ns()}-{count}"
