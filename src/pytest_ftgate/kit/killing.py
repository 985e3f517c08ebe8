"""The end of processes: those of a launch, of a run, and those whose owner is gone."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection

import psutil

from .marks import TOOL, Owner, owner_of
from .proc import TRACKER, runs
from .processes import alive, marked, wait_for
from .scratch import cleaned_after

_KILLED_S = 0.5
TRACKER_S = 1.0
"""How long a resource tracker gets to remove what killed processes have left, before it is killed."""


def kill_all(group: int | None, mark: str) -> None:
    """End a launch with everything it started, also what left its process group; None: it has none any more."""
    kill_marked(mark)
    if group is not None:
        _kill_group(group)


def kill_marked(mark: str) -> None:
    """End every process that carries a launch's mark, or one of a run's."""
    for _ in range(5):
        if not (left := _left(mark)):
            return
        kill(left)


def end_run(mark: str, wait_s: float = 0.0) -> None:
    """End every process of a run, and with `wait_s` let them end by themselves first: they are told to."""
    left = [process for process in _left(mark) if wait_s and not runs(process.pid, TRACKER)]
    with cleaned_after(left):
        terminate(left, wait_s)
        kill_marked(mark)


def terminate(processes: Collection[psutil.Process], wait_s: float) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    wait_for(processes, wait_s)


def kill(left: Collection[psutil.Process]) -> None:
    """Kill processes, resource trackers last: they remove the semaphores and shared memory of the others."""
    trackers = [process for process in left if runs(process.pid, TRACKER)]
    others = [process for process in left if process not in trackers]
    with cleaned_after(others):
        for killed in (others, trackers):
            for process in killed:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            wait_for(killed, _KILLED_S)
            if killed is others:
                wait_for(trackers, TRACKER_S)


def orphans() -> list[psutil.Process]:
    """The processes of launches whose owner has ended without ending them."""
    orphaned, owners = [], dict[Owner, bool]()
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            owner = owner_of(pid)
            if owner is None or owner.number == TOOL:
                continue
            whose = owner._replace(number=TOOL)
            if whose not in owners:
                owners[whose] = owner.gone
            if owners[whose]:
                orphaned.append(psutil.Process(pid))
    return [process for process in orphaned if alive(process)]


def kill_tree(pid: int) -> None:
    """Kill a process that leads its group and that nobody has waited for yet, all below it, and its group."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in (*process.children(recursive=True), process):
            with contextlib.suppress(psutil.Error):
                member.kill()
    _kill_group(pid)


def group_lives(group: int) -> bool:
    """Whether a process is in this group; while one is, no other group gets its number."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, 0)
            return True
    return False


def _kill_group(group: int) -> None:
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def _left(mark: str) -> list[psutil.Process]:
    return [process for process in marked(mark) if process.pid != os.getpid()]
