"""What a cell leaves running in a plain test run: it fails the cell, and never keeps pytest from ending.

A thread that is no daemon, or a process of multiprocessing, would be waited for at the end of pytest, without a word.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from ..measure import stacks
from ..measure.launch import LEFT_FIX, THREADS_FIX
from ..runner.executors.base import living_children
from ..runner.protocol import Failure
from ..runner.stacks import THREADS_S

_MADE_DAEMON: Final = 1
"""In place of True: a thread inherits it from one that was made a daemon here, and does not from a daemon's True."""
_ENDED_AT_EXIT: Final = ("Manager", "Loky")
"""In the names of processes of multiprocessing that end with the interpreter."""
_SERVERS: Final = ("resource_tracker", "multiprocessing.forkserver")
"""In the command lines of processes that end by themselves."""
_LOOK_S: Final = 0.01


@contextlib.contextmanager
def leaving_nothing() -> Iterator[None]:
    """Raise Failure where a thread or a child process that was started in here goes on `THREADS_S` later.

    An idle thread of a pool may stay. After another error nothing is waited for, and that error is the one to report.
    """
    before = {*_children(), *(child.pid for child in living_children())}
    exit_handlers = atexit._ncallbacks()
    with _threads_as_daemons() as started:
        try:
            yield
        except BaseException:
            _leave(_busy(started), _awaited(before))
            raise
    ends = time.monotonic() + THREADS_S
    while True:
        # An exit handler that the cell has registered may end the processes that it has started.
        others = _children() if atexit._ncallbacks() == exit_handlers else {}
        threads, processes = _busy(started), _awaited(before) | _without(others, before)
        if not threads and not processes:
            return
        if time.monotonic() > ends:
            break
        time.sleep(_LOOK_S)
    where = _where(threads)
    _leave(threads, processes)
    raise _failure(where, [started[thread] for thread in threads], list(processes.values()))


@contextlib.contextmanager
def _threads_as_daemons() -> Iterator[dict[threading.Thread, str]]:
    """Make daemons of all threads that are started in here; those that were none, each with where it was started."""
    started: dict[threading.Thread, str] = {}
    here, original = os.getpid(), threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.daemon is not True and thread.ident is None and os.getpid() == here:
            caller = sys._getframe(1)
            started[thread] = f"{caller.f_code.co_filename}:{caller.f_lineno} in {caller.f_code.co_qualname}"
            thread.daemon = _MADE_DAEMON  # type: ignore[assignment]
        original(thread)

    threading.Thread.start = start  # type: ignore[method-assign, assignment]
    try:
        yield started
    finally:
        threading.Thread.start = original  # type: ignore[method-assign]


def _busy(threads: dict[threading.Thread, str]) -> list[threading.Thread]:
    """Those that run, except a pool's that wait for work: they are told to end at the interpreter's end."""
    frames, idle = sys._current_frames(), _idle_pools()
    running = [each for each in threads if each.is_alive() and each.ident in frames and each not in idle]
    return [thread for thread in running if not _waits_for_work(frames[thread.ident or 0])]


def _idle_pools() -> dict[Any, set[int]]:
    """The thread of each ProcessPoolExecutor that has no work, with its processes."""
    pools: Any = sys.modules.get("concurrent.futures.process")
    threads = [] if pools is None else list(pools._threads_wakeups)
    return {thread: set(thread.processes or ()) for thread in threads if not thread.pending_work_items}


def _waits_for_work(frame: FrameType) -> bool:
    code = frame.f_code
    return bool(code.co_name == "_worker" and code.co_filename.endswith(os.path.join("futures", "thread.py")))


def _awaited(before: set[int]) -> dict[int, str]:
    """The processes of multiprocessing that the interpreter would wait for at its end, by their pids."""
    pooled = before.union(*_idle_pools().values())
    return {
        child.pid: f"{child.pid}: {child.name} of multiprocessing"
        for child in living_children(pooled)
        if not child.daemon and not any(name in child.name for name in _ENDED_AT_EXIT)
    }


def _without(children: Mapping[int, str], before: set[int]) -> dict[int, str]:
    known = {*before, *(child.pid for child in living_children())}
    return {pid: f"{pid}: {words}" for pid, words in children.items() if pid not in known}


def _children() -> dict[int, str]:
    """The command line of each child process, except the servers of multiprocessing; only on Linux."""
    found = {}
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in map(int, listed.read_text().split()):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
                if words != [""] and not any(server in word for word in words for server in _SERVERS):  # no zombie
                    found[pid] = " ".join(words)
    return found


def _leave(threads: list[threading.Thread], processes: Mapping[int, str]) -> None:
    """Let nothing wait for these threads at the interpreter's end, and end these processes."""
    for module, awaited in (("thread", "_threads_queues"), ("process", "_threads_wakeups")):
        pools = getattr(sys.modules.get(f"concurrent.futures.{module}"), awaited, {})
        for thread in threads:
            pools.pop(thread, None)
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _where(threads: list[threading.Thread]) -> list[stacks.Stack]:
    frames = sys._current_frames()
    return [stacks.of_frame(f"thread {each.name}", frames.get(each.ident or 0)) for each in threads]


def _failure(threads: list[stacks.Stack], places: list[str], processes: list[str]) -> Failure:
    reasons, details = [], []
    if threads:
        reasons.append(f"a thread of the workload still runs ({stacks.lines(threads)})")
        details += [stacks.shown(threads), f"started at {stacks.counted(places)}", THREADS_FIX]
    if processes:
        reasons.append(f"left {len(processes)} process{'es' if len(processes) > 1 else ''} behind")
        details += [*processes, LEFT_FIX]
    return Failure("; ".join(reasons), "\n".join(details))
