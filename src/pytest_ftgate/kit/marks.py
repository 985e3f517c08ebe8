"""Whose a process is: a mark in its environment and, on Linux, in a limit, which `env -i` leaves.

A mark is `PID.BEGAN.PLACE-COUNT`: the owner's process id, when the owner began, the machine (as it was started) and
pid namespace of the owner, and the number of the launch. All marks of an owner begin with its run mark.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from ..runner.proc import stat_fields
from .proc import environment_bytes

if sys.platform == "linux":
    import resource

MARK: Final = "FTGATE_LAUNCH"
TOOL: Final = 0
"""Number 0: helper processes (uv, git, builds)."""
_PATTERN: Final = re.compile(r"(\d+)\.(\d+)\.([0-9a-f]{6})-(\d+)")
_BITS: Final = 20
_LOW: Final = (1 << _BITS) - 1
# RLIMIT_RTTIME is in microseconds and concerns real-time threads alone: from here on it is no limit, but a mark.
_TAGGED: Final = 1 << 62
_counts = itertools.count(TOOL + 1)
_begun: dict[tuple[int, int], int] = {}
"""When each process of the last look began, by its pid and the inode of its folder, which no later one has."""


class Owner(NamedTuple):
    """The process that started a marked one; `place` is unknown ("") where only the limit tells."""

    pid: int
    began: int
    place: str
    number: int

    @classmethod
    @functools.lru_cache(maxsize=8)  # `carries` asks it for each process
    def of(cls, text: str) -> Owner | None:
        """The owner that the first mark in a text names."""
        match = _PATTERN.search(text)
        return match and cls(int(match[1]), int(match[2]), match[3], int(match[4]))

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
    """The prefix of the marks of all launches of this process."""
    return f"{_own(os.getpid())}-"


def tool_mark() -> str:
    """The mark of what this process starts that is no launch."""
    return f"{run_mark()}{TOOL}"


def marks() -> Iterator[str]:
    """Names for launches, unique on this machine, and of one length: it is part of a launch's memory layout."""
    while True:
        yield f"{run_mark()}{next(_counts):04}"


def may_carry(mark: str) -> list[int]:
    """The processes that could have a launch's mark, or one that begins with a run mark: none is older than its owner.

    To read the environment of every process at each launch's end took a fifth of our CPU time, on a small machine.
    """
    owner = _owner_in(mark)
    if owner is None or sys.platform != "linux":
        return [*psutil.pids()]
    with os.scandir("/proc") as entries:
        present = {(int(entry.name), entry.inode()) for entry in entries if entry.name.isdecimal()}
    for process in _begun.keys() - present:
        del _begun[process]
    for process in present - _begun.keys():
        with contextlib.suppress(psutil.Error, OSError):  # it is gone by now
            _begun[process] = _began(process[0])
    return sorted(pid for (pid, _), began in _begun.items() if began >= owner.began)


def carries(pid: int, mark: str) -> bool:
    """Whether a process has this launch's mark, or one that begins with a run mark. Raises psutil.Error, OSError."""
    whole = not mark.endswith("-")
    owner, tag = _owner_in(mark), _tag(pid)
    left_out = 0 if whole else _BITS
    if owner is not None and tag is not None and tag >> left_out == owner.tag >> left_out:
        return True
    environment = environment_bytes(pid)
    if environment is None:
        value = str(psutil.Process(pid).environ().get(MARK, ""))
        return value == mark or (not whole and value.startswith(mark))
    # Its bytes are searched as they are: many processes are asked at each launch's end.
    end = "\0" if whole else ""
    return f"\0{MARK}={mark}{end}".encode() in b"\0" + environment + b"\0"


def _owner_in(mark: str) -> Owner | None:
    return Owner.of(f"{mark}{TOOL}" if mark.endswith("-") else mark)


def owner_of(pid: int) -> Owner | None:
    """Who started a process of this pid namespace; None without a mark. Raises psutil.Error, OSError."""
    if _namespace(pid) != _namespace(os.getpid()):
        return None
    if (tag := _tag(pid)) is not None:
        return Owner(tag >> 2 * _BITS & (1 << 22) - 1, tag >> _BITS & _LOW, "", tag & _LOW)
    environment = environment_bytes(pid)
    if environment is None:
        return Owner.of(str(psutil.Process(pid).environ().get(MARK, "")))
    match = re.search(rb"\0%b=([^\0]*)" % MARK.encode(), b"\0" + environment)
    return Owner.of(match[1].decode(errors="replace")) if match else None


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
