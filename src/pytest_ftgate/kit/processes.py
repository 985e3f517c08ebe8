"""Processes of a launch: the tree, what it leaves, and its end."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import psutil

from .marks import TOOL, Owner, carries, owner_of
from .proc import FORKSERVER, TRACKER, children, command, runs

# ---- what killed processes leave in the file system: named semaphores, shared memory, folders of multiprocessing

_SHARED: Final = re.compile(rb" (/dev/shm/(?:psm_|sem\.)\S+)$", re.MULTILINE)
SCRATCH: Final = "ftgate-"
"""What the names of scratch folders begin with."""
FOLDER: Final = "pymp-"
"""What the names of multiprocessing's temporary folders begin with."""


_SEMAPHORES: Final = Path("/dev/shm/sem.mp-")
"""Where Linux keeps named semaphores, and what the names of multiprocessing's begin with."""


def temporary_folder(mark: str) -> str:
    """The folder of a launch's multiprocessing, if the workload's module imports that."""
    return os.path.join(tempfile.gettempdir(), f"{FOLDER}{mark}")


def semaphore_prefix(mark: str) -> str:
    """What multiprocessing's names of a launch's semaphores begin with; empty where a name may not be so long."""
    return f"/mp-{mark}" if sys.platform == "linux" else ""


def left_in(folders: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """What launches and runs have left in these folders, and elsewhere under the names above; each with its mark."""
    for folder in folders:
        yield from ((path.name, path) for path in folder.glob("*"))
    for begin in (Path(tempfile.gettempdir(), SCRATCH), Path(tempfile.gettempdir(), FOLDER), _SEMAPHORES):
        yield from ((path.name.removeprefix(begin.name), path) for path in begin.parent.glob(f"{begin.name}*"))


@contextlib.contextmanager
def cleaned_after(processes: Iterable[psutil.Process]) -> Iterator[None]:
    """At the end, remove the files and folders that these processes use now; they are killed in here.

    Only what was made since the first of them began is removed, and nothing that another process uses.
    """
    shared, folders, began_s = set[Path](), set[Path](), math.inf
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            began_s = min(began_s, process.create_time())
            shared |= _mapped(process.pid)
            unix = process.net_connections("unix") if hasattr(socket, "AF_UNIX") else ()
            sockets = (Path(str(each.laddr)) for each in unix if each.laddr)
            folders |= {path.parent for path in sockets if path.parent.name.startswith(FOLDER)}
    yield

    def ours(path: Path) -> bool:
        with contextlib.suppress(OSError):
            found = path.lstat()
            return found.st_uid == os.getuid() and found.st_ctime >= began_s - 1
        return False

    left = set(filter(ours, shared))
    if left:
        left -= {path for pid in psutil.pids() for path in _mapped(pid)}
    for path in left:
        with contextlib.suppress(OSError):
            path.unlink()
    for folder in filter(ours, folders):
        shutil.rmtree(folder, ignore_errors=True)


def _mapped(pid: int) -> set[Path]:
    """The named semaphores and shared memory that a process has mapped; only on Linux."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        return {Path(os.fsdecode(name)) for name in _SHARED.findall(file.read())}
    return set()


# ---- the tree of a launch

_LOOK_S = 0.003
_KILLED_S = 0.5
TRACKER_S = 1.0
"""How long a resource tracker gets to remove what killed processes have left, before it is killed."""
GRACE_S = 5.0
"""How long what a launch started may take to end after it: a server that it has told to, a resource tracker."""


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
    return [process for process in found if alive(process) and not runs(process.pid, TRACKER)]


def cpu_s(pid: int) -> float:
    """CPU time in s of a process, of every descendant that has been waited for, and of those that live.

    A child's time moves from the last part to the second when it is waited for, so differences stay true. The time of a
    process that nobody waits for, such as one that is killed together with its parent, is lost.
    """
    used_s = 0.0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):  # it may end at any moment
                used_s += sum(each.cpu_times()[:4])  # user and system, its own and those of children that have ended
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


# ---- what a launch leaves, and its end


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
        wait_for(left, ends - time.monotonic())  # to ask those takes less than to look for all again
    left = [process for process in left if not runs(process.pid, TRACKER)]
    # What a forkserver forked has its command line, too: it is older than they.
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


def kill_tree(pid: int) -> None:
    """Kill a process that leads its group and that nobody has waited for yet, all below it, and its group."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (*process.children(recursive=True), process):
            with contextlib.suppress(psutil.Error):
                each.kill()
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
