"""Readers of /proc: system calls, scheduler accounts, mappings, memory, children, environments."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Collection
from typing import Final, NamedTuple

from ..runner import proc
from ..runner.proc import children_of_thread, cpu_ns, read, stat_fields

# psutil is imported where the kernel says nothing itself: a plain run does without it.

# As multiprocessing, and loky as it does, start servers; a word of a workload's may hold the module's name.
TRACKER: Final = ".resource_tracker import main"
FORKSERVER: Final = "from multiprocessing.forkserver import main"
_ENVIRONMENTS: Final = os.path.exists("/proc/self/environ")
_EXEC_LOOKS: Final = 20
_EXEC_S: Final = 0.001
_FORKED: Final = 0x40  # PF_FORKNOEXEC
_OPEN_FILES: Final = 256
_PRIVATE: Final = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) ...p .*?^Shared_Dirty: +(\d+).*?^Private_Dirty: +(\d+).*?^Anonymous: +(\d+)",
    re.MULTILINE | re.DOTALL,
)


class Slices(NamedTuple):
    """The scheduler's account of a sleeping thread: CPU time in ns, and how often it was given a core."""

    running_ns: int
    times: int


class Calls(NamedTuple):
    """Numbers of the system calls in which threads wait, on one architecture."""

    futex: int
    descriptor: frozenset[int]  # read, write, send, receive, accept: the first argument is a descriptor
    poll: frozenset[int]
    select: frozenset[int]
    process: frozenset[int]  # wait for a child, lock a file


NO_CALLS: Final = Calls(futex=-1, descriptor=frozenset(), poll=frozenset(), select=frozenset(), process=frozenset())
CALLS: Final = {
    "x86_64": Calls(
        futex=202,
        descriptor=frozenset({0, 1, 19, 20, 42, 43, 44, 45, 46, 47, 288}),
        poll=frozenset({7, 271}),
        select=frozenset({23, 270}),
        process=frozenset({61, 72, 73, 247}),
    ),
    "aarch64": Calls(
        futex=98,
        descriptor=frozenset({63, 64, 65, 66, 202, 203, 206, 207, 211, 212, 242}),
        poll=frozenset({73}),
        select=frozenset({72}),
        process=frozenset({25, 32, 95, 260}),
    ),
}


class Account(NamedTuple):
    """The scheduler's account of one thread: ns on a core and ns in a run queue, and switches, since it began."""

    running_ns: int
    runnable_ns: int
    voluntary: int
    involuntary: int


UNBORN: Final = Account(0, 0, 0, 0)


class Proc:
    """Reads the kernel's accounts of other processes; None or empty if the process has exited. Raises PermissionError.

    The files read in each sample are kept open, as long as there are not too many threads.
    """

    def __init__(self) -> None:
        # Descriptors by thread id, which is unique on the machine while the thread lives.
        self._kept: dict[str, dict[int, int]] = {"syscall": {}, "schedstat": {}}

    def threads(self, pid: int) -> list[int]:
        return threads(pid)

    def call(self, pid: int, thread: int) -> bytes | None:
        """The system call it is in: number, six arguments, stack pointer, program counter; or `running`."""
        return self._again("syscall", pid, thread)

    def slices(self, pid: int, thread: int) -> Slices | None:
        """Its time on a core, and how often it was given one: read in each sample that sees it wait for the GIL."""
        line = self._again("schedstat", pid, thread)
        if not line:
            return None
        running, _, count = line.split()
        return Slices(int(running), int(count))

    def _again(self, name: str, pid: int, thread: int) -> bytes | None:
        """The present content of a file of a thread, which is kept open."""
        kept = self._kept[name].get(thread)
        try:
            if kept is None:
                path = f"/proc/{pid}/task/{thread}/{name}"
                if sum(map(len, self._kept.values())) >= _OPEN_FILES:
                    return read(path)
                kept = self._kept[name][thread] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(kept, 256, 0)
        except (FileNotFoundError, ProcessLookupError):
            self.drop(thread)
            return None

    def children(self, pid: int) -> list[int]:
        return children(pid)

    def title(self, pid: int) -> str:
        """The title of a process: the first word of its command line if it rewrote that, else its name."""
        words = command(pid)
        if words and words[0].startswith("("):
            return words[0].strip("() ").partition(":")[0]
        with _gone():
            return os.fsdecode(read(f"/proc/{pid}/comm")).strip()
        return ""

    def is_tracker(self, pid: int) -> bool:
        """Whether it is a resource tracker, of multiprocessing or loky, which is no part of any workload."""
        return runs(pid, TRACKER)

    def account(self, pid: int, thread: int) -> Account | None:
        folder = f"/proc/{pid}/task/{thread}"
        with _gone():
            running, runnable = read(f"{folder}/schedstat").split()[:2]
            status = read(f"{folder}/status")
            if b"\nState:\tZ" not in status:  # ended, but nobody has asked for its exit code yet
                switches = [int(line.split()[1]) for line in status.splitlines() if b"_switches" in line]
                return Account(int(running), int(runnable), *switches)
        return None

    def cpu_s(self, pid: int) -> float | None:
        """CPU time of a process with all threads it ever had, in s; on any system, and never PermissionError.

        Off Linux psutil's user and system time.
        """
        if on_linux():
            with contextlib.suppress(OSError):
                return cpu_ns(pid) / 1e9
            return None
        import psutil

        with contextlib.suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            return float(times.user + times.system)
        return None

    def maps(self, pid: int) -> str:
        """Its address space, in the kernel's words."""
        with _gone():
            return os.fsdecode(read(f"/proc/{pid}/maps"))
        return ""

    def link(self, pid: int, name: str) -> str:
        """Where `exe` or `fd/3` leads; empty when nowhere."""
        with _gone():
            return os.readlink(f"/proc/{pid}/{name}")
        return ""

    def read_memory(self, pid: int, address: int, size: int) -> bytes:
        """`size` bytes of its memory, or fewer. Reading it attaches to nothing and stops nothing."""
        with contextlib.suppress(OSError, OverflowError), open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            file.seek(address)
            return file.read(size)
        return b""

    def local_sockets(self, pid: int) -> frozenset[str]:
        """The inodes of the Unix sockets that it could have."""
        with _gone():
            rows = [line.split() for line in os.fsdecode(read(f"/proc/{pid}/net/unix")).splitlines()[1:]]
            return frozenset(row[6] for row in rows if len(row) > 6)
        return frozenset()

    def drop(self, thread: int) -> None:
        """Let go of what is kept open of a thread that ended. Its id may be another's soon."""
        for kept in self._kept.values():
            descriptor = kept.pop(thread, None)
            if descriptor is not None:
                os.close(descriptor)

    def close(self) -> None:
        for kept in self._kept.values():
            for descriptor in kept.values():
                os.close(descriptor)
            kept.clear()


def children(pid: int) -> list[int]:
    """The children of a process; where the kernel does not list them, psutil's."""
    try:
        return proc.children(pid)
    except FileNotFoundError:
        import psutil

        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(pid).children()]
        return []


def children_of(pids: Collection[int]) -> set[int] | None:
    """The children of all these processes; None where the kernel has no list of them, or one of them is gone.

    Source: Linux's /proc/PID/task/TID/children, which takes far less than to go through all processes of the machine.
    """
    try:
        return {
            child
            for pid in pids
            for thread in os.listdir(f"/proc/{pid}/task")
            for child in children_of_thread(pid, thread)
        }
    except OSError:
        return None


def command(pid: int) -> list[str]:
    """The words of a process's command line; none of one that is gone, a zombie, or hidden from this user."""
    if on_linux():
        with contextlib.suppress(OSError):
            words = os.fsdecode(read(f"/proc/{pid}/cmdline")).removesuffix("\0")
            return words.split("\0") if words else []
        return []
    import psutil

    with contextlib.suppress(psutil.Error):
        return [str(word) for word in psutil.Process(pid).cmdline()]
    return []


def runs(pid: int, server: str) -> bool:
    """Whether a process is a server of multiprocessing: TRACKER or FORKSERVER."""
    return any(server in word for word in command(pid))


def threads(pid: int) -> list[int]:
    """The ids of a process's threads; none of one that is gone, and elsewhere than on Linux."""
    with _gone():
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return []


def handles_signal(pid: int, number: int) -> bool | None:
    """Whether a process has a handler for a signal, be it one in C; None of one that is gone, and off Linux."""
    with contextlib.suppress(OSError):
        caught = re.search(rb"^SigCgt:\s*(\w+)", read(f"/proc/{pid}/status"), re.MULTILINE)
        return caught and bool(int(caught[1], 16) >> (number - 1) & 1)
    return None


def environment_bytes(pid: int) -> bytes | None:
    """The environment that a process was started with, entries ended by a zero byte; None where there is no /proc.

    Raises OSError of a process that is gone, or may not be read.
    """
    if not _ENVIRONMENTS:
        return None
    entries = read(f"/proc/{pid}/environ")
    for _ in range(_EXEC_LOOKS):
        # In the middle of an exec it is empty; a kernel thread and a zombie, whose is always empty, have no program.
        if entries or not _has_program(pid):
            break
        time.sleep(_EXEC_S)
        entries = read(f"/proc/{pid}/environ")
    return entries


def _has_program(pid: int) -> bool:
    try:
        return bool(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False


class Family(NamedTuple):
    """How old a process is in s, to 10 ms, and whether it still runs its parent's program: forked, and no exec yet.

    `waited` are the page faults of the children that it has waited for: more after each.
    """

    age_s: float
    forked: bool
    waited: int = 0


def family(pid: int) -> Family | None:
    """The `Family` of a process; None if it is gone, and off Linux."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return None
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return Family(age_s, bool(int(fields[6]) & _FORKED), int(fields[8]))


def memory_kib(pid: int) -> dict[str, int]:
    """The figures of Linux's smaps_rollup in KiB, all of one moment. Raises OSError where there are none."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8", errors="replace") as file:
        next(file, "")  # the range of addresses
        kib = {name: int(figure.split()[0]) for name, _, figure in (line.partition(":") for line in file)}
    if "Rss" not in kib:
        raise ProcessLookupError(f"process {pid} has no memory any more")
    return kib


def private_mappings(pid: int) -> list[tuple[int, int, int, int, int]]:
    """Where each private mapping of a process begins and ends, and its KiB: shared and dirty, private and dirty, and
    anonymous, which are no longer a file's. The source is Linux's smaps. Raises OSError where there is none.
    """
    with open(f"/proc/{pid}/smaps", "rb") as file:
        sizes = _PRIVATE.findall(file.read())
    return [(int(start, 16), int(stop, 16), int(one), int(two), int(three)) for start, stop, one, two, three in sizes]


def forget_peak(pid: int) -> None:
    """Let the kernel forget how large a process was: see `peak_bytes`. Raises OSError where it cannot."""
    with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def peak_bytes(pid: int) -> int:
    """The most that a process has written to and had to itself since `forget_peak`. Raises OSError.

    The kernel keeps the largest RSS alone. What was released since then counts as if it had been written to.
    """
    status = dict(line.split(b":", 1) for line in read(f"/proc/{pid}/status").splitlines())
    largest, now = (int(status[name].split()[0]) for name in (b"VmHWM", b"VmRSS"))
    return (memory_kib(pid)["Private_Dirty"] + largest - now) << 10


def _gone() -> contextlib.suppress:
    return contextlib.suppress(FileNotFoundError, ProcessLookupError)


def on_linux() -> bool:
    return sys.platform.startswith("linux")
