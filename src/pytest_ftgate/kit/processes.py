"""Processes of a launch: the tree, what carries its mark, what it leaves, and its end."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import math
import os
import platform
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import filelock
import msgspec
import psutil

from ..runner.proc import stat_fields
from .errors import FtgateError
from .files import found_in
from .proc import FORKSERVER, TRACKER, ProcessMap, children, command, environment_bytes, runs
from .text import plain

# ---- whose a process is: a mark in its environment and, on Linux, in a limit that also an emptied environment leaves
#
# A mark is `PID.BEGAN.PLACE-COUNT`: the owner's process id, when the owner began, the machine (as it was started) and
# pid namespace of the owner, and the number of the launch. All marks of an owner begin with its run mark.

if sys.platform == "linux":
    import resource

MARK: Final = "FTGATE_LAUNCH"
TOOL: Final = 0
"""The count of what is no launch: uv, git, the steps of a build."""
_PATTERN: Final = re.compile(r"(\d+)\.(\d+)\.([0-9a-f]{6})-(\d+)")
_BITS: Final = 20
_LOW: Final = (1 << _BITS) - 1
# RLIMIT_RTTIME is in microseconds and concerns real-time threads alone: from here on it is no limit, but a mark.
_TAGGED: Final = 1 << 62
_counts = itertools.count(TOOL + 1)


class Owner(NamedTuple):
    """The process that started a marked one; `place` is unknown ("") where only the limit tells."""

    pid: int
    began: int
    place: str
    number: int

    @classmethod
    def of(cls, text: str) -> Owner | None:
        """The owner that the first mark in a text names."""
        found = _PATTERN.search(text)
        return found and cls(int(found[1]), int(found[2]), found[3], int(found[4]))

    @property
    def tag(self) -> int:
        """The mark as a limit; of the time when the owner began it has the last digits."""
        return _TAGGED | self.pid << 2 * _BITS | (self.began & _LOW) << _BITS | self.number & _LOW

    @property
    def gone(self) -> bool:
        """Whether it has certainly ended: another process with its pid began at another time."""
        if self.place and self.place != _place():
            return False
        try:
            process = psutil.Process(self.pid)
            if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return True
            return bool((_began(self.pid) ^ self.began) & _LOW)
        except psutil.NoSuchProcess:
            return True
        except (psutil.Error, OSError):
            return False


def run_mark() -> str:
    """What the marks of all launches of this process begin with."""
    return f"{_own(os.getpid())}-"


def tool_mark() -> str:
    """The mark of what this process starts that is no launch."""
    return f"{run_mark()}{TOOL}"


def marks() -> Iterator[str]:
    """Names for launches, unique on this machine, and of one length: it is part of a launch's memory layout."""
    while True:
        yield f"{run_mark()}{next(_counts):04}"


def carries(pid: int, mark: str) -> bool:
    """Whether a process has this launch's mark, or one that begins with a run mark. Raises psutil.Error, OSError."""
    whole = not mark.endswith("-")
    owner, tag = Owner.of(mark if whole else f"{mark}{TOOL}"), _tag(pid)
    left_out = 0 if whole else _BITS
    if owner is not None and tag is not None and tag >> left_out == owner.tag >> left_out:
        return True
    environment = environment_bytes(pid)
    if environment is None:
        found = str(psutil.Process(pid).environ().get(MARK, ""))
        return found == mark or (not whole and found.startswith(mark))
    # Its bytes are searched as they are: every process of the machine is asked at each launch's end.
    end = "\0" if whole else ""
    return f"\0{MARK}={mark}{end}".encode() in b"\0" + environment + b"\0"


def owner_of(pid: int) -> Owner | None:
    """Who started a process of this pid namespace; None without a mark. Raises psutil.Error, OSError."""
    if _namespace(pid) != _namespace(os.getpid()):
        return None
    if (tag := _tag(pid)) is not None:
        return Owner(tag >> 2 * _BITS & (1 << 22) - 1, tag >> _BITS & _LOW, "", tag & _LOW)
    environment = environment_bytes(pid)
    if environment is None:
        return Owner.of(str(psutil.Process(pid).environ().get(MARK, "")))
    found = re.search(rb"\0%b=([^\0]*)" % MARK.encode(), b"\0" + environment)
    return Owner.of(found[1].decode(errors="replace")) if found else None


@contextlib.contextmanager
def tagged(mark: str = "") -> Iterator[None]:
    """Processes that are started in here get this mark as a limit, or none without a mark; only on Linux."""
    owner = Owner.of(mark)
    if sys.platform != "linux":
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    wanted = owner.tag if owner is not None else hard
    try:
        with contextlib.suppress(OSError, ValueError):  # a lower limit holds, or a sandbox allows no change
            resource.setrlimit(resource.RLIMIT_RTTIME, (wanted, hard))
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_RTTIME, (soft, hard))


@contextlib.contextmanager
def marked_tools() -> Iterator[None]:
    """All that is started in here has the mark of a tool, unless it gets another."""
    before = os.environ.get(MARK)
    os.environ[MARK] = tool_mark()
    try:
        yield
    finally:
        del os.environ[MARK]
        if before is not None:
            os.environ[MARK] = before


def _tag(pid: int) -> int | None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # another user's
            soft, _ = resource.prlimit(pid, resource.RLIMIT_RTTIME)
            return soft if soft >> 62 == 1 else None
    return None


@functools.cache
def _own(pid: int) -> str:
    return f"{pid}.{_began(pid)}.{_place()}"


def _began(pid: int) -> int:
    """When a process began: on Linux in ticks since the machine's start, which no step of the clock changes."""
    try:
        return int(stat_fields(pid)[19])
    except FileNotFoundError:
        return int(100 * psutil.Process(pid).create_time())


@functools.cache
def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    words = (platform.node(), boot.read_text() if boot.exists() else "", _namespace(os.getpid()))
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:6]


def _namespace(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


# ---- how long this process waits for others: for a lock that another holds, and for git, uv and what they start

OWN_S: Final = 1800.0
"""How long a command may take where the run has no time of its own."""
LEAST_S: Final = 10.0
"""What a command may take at least, also when the time of the run is over: baselines are stored then."""
SAID_AFTER_S: Final = 2.0
"""How long a lock is waited for in silence."""


class TooLong(FtgateError):
    """A command that did not end in its time; the text names it and the time."""


class _Patience:
    """The run in this process: its id, when its time is over, and whom to tell that it waits."""

    run = ""
    ends_s = math.inf

    @staticmethod
    def warn(text: str) -> object:
        """Nobody listens."""


_patience = _Patience()


def begin(run: str, budget_s: float | None, warn: Callable[[str], object]) -> None:
    """A run begins in this process: nothing is waited for once its `budget_s` is over."""
    _patience.run, _patience.warn = run, warn  # type: ignore[method-assign, assignment]
    _patience.ends_s = math.inf if budget_s is None else time.monotonic() + budget_s


def left_s() -> float:
    """Seconds that the run has left for a command; OWN_S at most."""
    return min(OWN_S, max(LEAST_S, _patience.ends_s - time.monotonic()))


def run_within(
    words: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path | None = None,
    given: str | None = None,
    stderr: int = subprocess.PIPE,
    errors: str = "replace",
    named: str = "",
    own_s: float = OWN_S,
    on_wait: Callable[[], object] = lambda: None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its output is text. `given` is its input, `on_wait` is called every second.

    An error has the words, or what they are `named`.

    Raises TooLong once `own_s` or the time of the run is over; then it is killed with all that it started. Raises
    OSError if it cannot be started.
    """
    left_s = max(LEAST_S, _patience.ends_s - time.monotonic())
    limit_s = min(own_s, left_s)
    ends_s = time.monotonic() + limit_s
    with subprocess.Popen(
        words,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        encoding="utf-8",
        errors=errors,
        start_new_session=True,  # Ctrl-C is ours to pass on
    ) as process:
        try:
            while True:
                on_wait()
                try:
                    output, told = process.communicate(given, timeout=min(1.0, max(0.0, ends_s - time.monotonic())))
                    return subprocess.CompletedProcess(process.args, process.returncode, output, told)
                except subprocess.TimeoutExpired:
                    given = None  # it has been sent
                if time.monotonic() > ends_s:
                    why = "--ftgate-time was over" if left_s < own_s else "that is the limit of such a command"
                    raise TooLong(f"`{plain(named or shlex.join(words))}` did not end within {limit_s:.3g} s: {why}")
        except BaseException:
            kill_tree(process.pid)  # it would else go on; and what is below it keeps its output open
            raise


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


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; while another process holds it, say after a moment who that is.

    Another thread of the same run is waited for in silence, as it works for both. The lock of a process that has
    died is free: the kernel sees to it. Raises FtgateError once the time of the run is over, and OSError.
    """
    # The holder's own note: its process, its run, and the time since when.
    note, lock = path.with_suffix(".holder"), filelock.FileLock(path)
    began_s, said = time.monotonic(), False
    while not lock.is_locked:
        try:
            lock.acquire(timeout=min(1.0, SAID_AFTER_S))
        except filelock.Timeout:
            holder = "another process"
            if (known := found_in(note, tuple[int, str, str])) is not None:
                pid, run, since = known
                if run and run == _patience.run:
                    continue
                holder = plain(f"process {pid}{run and f' of run {run}'} (since {since})")
            if time.monotonic() - began_s < SAID_AFTER_S:
                continue
            if time.monotonic() > _patience.ends_s:
                text = f"--ftgate-time was over while {holder} held {path}; run again when it has ended"
                raise FtgateError(text) from None
            if not said:
                said = True
                _patience.warn(f"waiting for {holder} to release {path}")
    try:
        with contextlib.suppress(OSError):  # it is a courtesy
            now = datetime.now().astimezone().isoformat(timespec="seconds")
            note.write_bytes(msgspec.json.encode((os.getpid(), _patience.run, now)))
        yield
    finally:
        with contextlib.suppress(OSError):
            note.unlink()
        lock.release()


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

ProcessGroup: TypeAlias = Literal["main", "workers", "servers", "others"]
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


def group_of(process: psutil.Process, known: ProcessMap) -> ProcessGroup:
    """The group of a process of the tree; multiprocessing's forkserver is known by its command line."""
    if process.pid == known.main:
        return "main"
    if process.pid in known.workers:
        return "workers"
    with contextlib.suppress(psutil.Error):
        # Its children have a forkserver's command line too, but not its parent.
        if process.pid in known.servers or (process.ppid() == known.main and runs(process.pid, FORKSERVER)):
            return "servers"
    return "others"


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


def _left(mark: str) -> list[psutil.Process]:
    return [process for process in marked(mark) if process.pid != os.getpid()]
