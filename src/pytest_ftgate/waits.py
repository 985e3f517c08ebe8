"""Where the threads of a measured process tree wait, seen from outside and without attaching. Linux alone."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import select
import signal
import struct
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

import filelock
import msgspec
import psutil

from .errors import FtgateError
from .gilwaits import Asking, Episodes, Slices, lengths
from .model import Struct, Waits
from .observe import TRACKER
from .pythons.describe import scrubbed_environment
from .roles import Roles

Where = Literal["running", "gil", "parked", "process", "asleep"]

SELF_TEST: Final = Path(__file__).parent / "runner" / "selftest.py"
VERSION: Final = 1  # of what is looked at and of what the self-test asks: another one tests again
_LOOK_S: Final = 0.002  # between looks, at best; each begins with a list of the threads: many do not live long
_ACCOUNT_S: Final = 0.1  # between readings of the scheduler's account of every thread, at best
_LOOK_SHARE: Final = 0.015  # of the time, lists included; together with the account's at most 2 % of it
_ACCOUNT_SHARE: Final = 0.004
_CLOSE_SHARE: Final = 0.005  # of the looks' share, for bursts: once there are waits for the GIL
_CLOSE_AFTER: Final = 20  # looks that saw one
_CLOSE_S: Final = 0.0001  # between the looks of a burst
_CLOSE_LOOKS: Final = 24
_CLOSE_THREADS: Final = 8
_WAKE_S: Final = 30e-6  # CPU time of a sleep and a wake-up between steps, as measured
_LOOKS_A_STEP: Final = 64  # threads; more of them are looked at in turns
_ACCOUNTS_A_LOOK: Final = 8  # of threads that came: one costs what thirty looks do
_OPEN_FILES: Final = 256

_PRIVATE: Final = 0x80  # FUTEX_PRIVATE_FLAG
_STACK_BYTES: Final = 16 << 10  # how far above the stack pointer the frames stand in which a thread parks
_GIL_BYTES: Final = 256  # a GIL's two conditions stand so near to each other


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


class Reader(Protocol):
    """What the kernel tells of other processes; None, or nothing, of one that is gone. Raises PermissionError."""

    def threads(self, pid: int) -> list[int]:
        """The ids of its threads."""
        ...

    def call(self, pid: int, thread: int) -> bytes | None:
        """The system call it is in: number, six arguments, stack pointer, program counter; or `running`."""
        ...

    def account(self, pid: int, thread: int) -> Account | None:
        """The scheduler's account."""
        ...

    def slices(self, pid: int, thread: int) -> Slices | None:
        """Its time on a core, and how often it was given one: read at each look that sees it wait for the GIL."""
        ...

    def children(self, pid: int) -> list[int]:
        """The processes that it started and that are there."""
        ...

    def title(self, pid: int) -> str:
        """What a process calls itself: the first word of its command line if it rewrote that, else its name."""
        ...

    def is_tracker(self, pid: int) -> bool:
        """Whether it is multiprocessing's resource tracker, which is no part of any workload."""
        ...

    def cpu_s(self, pid: int) -> float | None:
        """CPU time of a process with all threads it ever had, in s; on any system, and never PermissionError."""
        ...

    def maps(self, pid: int) -> str:
        """Its address space, in the kernel's words."""
        ...

    def link(self, pid: int, name: str) -> str:
        """Where `exe` or `fd/3` leads; empty when nowhere."""
        ...

    def memory(self, pid: int, address: int, size: int) -> bytes:
        """`size` bytes of its memory, or fewer."""
        ...

    def local_sockets(self, pid: int) -> frozenset[str]:
        """The inodes of the Unix sockets that it could have."""
        ...

    def drop(self, thread: int) -> None:
        """Let go of what is kept open of a thread that ended."""
        ...

    def close(self) -> None:
        """Let go of all that is kept open."""
        ...


class Proc:
    """The real reader. What is read at each look is kept open, as long as there are not too many threads."""

    def __init__(self) -> None:
        # By a thread's id, which is one of its machine's as long as it lives.
        self._kept: dict[str, dict[int, int]] = {"syscall": {}, "schedstat": {}}

    def threads(self, pid: int) -> list[int]:
        """See Reader."""
        with _gone():
            return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
        return []

    def call(self, pid: int, thread: int) -> bytes | None:
        """See Reader."""
        return self._again("syscall", pid, thread)

    def slices(self, pid: int, thread: int) -> Slices | None:
        """See Reader."""
        line = self._again("schedstat", pid, thread)
        if not line:
            return None
        running, _, count = line.split()
        return Slices(int(running), int(count))

    def _again(self, name: str, pid: int, thread: int) -> bytes | None:
        """What a file of a thread says now; it is kept open."""
        kept = self._kept[name].get(thread)
        try:
            if kept is not None:
                return os.pread(kept, 256, 0)
            return self._first(name, pid, thread)
        except (FileNotFoundError, ProcessLookupError):
            self.drop(thread)
            return None

    def _first(self, name: str, pid: int, thread: int) -> bytes:
        path = f"/proc/{pid}/task/{thread}/{name}"
        if sum(map(len, self._kept.values())) >= _OPEN_FILES:
            return _read(path)
        descriptor = self._kept[name][thread] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(descriptor, 256, 0)

    def children(self, pid: int) -> list[int]:
        """See Reader. Where the kernel does not list them by thread (CONFIG_PROC_CHILDREN), psutil's."""
        if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            with contextlib.suppress(psutil.Error):
                return [child.pid for child in psutil.Process(pid).children()]
            return []
        found: list[int] = []
        for thread in self.threads(pid):
            with _gone():
                found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
        return found

    def title(self, pid: int) -> str:
        """See Reader."""
        words = _command(pid)
        if words and words[0].startswith("("):
            return words[0].strip("() ").partition(":")[0]
        with _gone():
            return os.fsdecode(_read(f"/proc/{pid}/comm")).strip()
        return ""

    def is_tracker(self, pid: int) -> bool:
        """See Reader."""
        return any(TRACKER in word for word in _command(pid))

    def account(self, pid: int, thread: int) -> Account | None:
        """See Reader."""
        folder = f"/proc/{pid}/task/{thread}"
        with _gone():
            running, runnable = _read(f"{folder}/schedstat").split()[:2]
            status = _read(f"{folder}/status")
            if b"\nState:\tZ" not in status:  # ended, but nobody has asked for its exit code yet
                switches = [int(line.split()[1]) for line in status.splitlines() if b"_switches" in line]
                return Account(int(running), int(runnable), *switches)
        return None

    def cpu_s(self, pid: int) -> float | None:
        """See Reader. A process's clock, as clock_getcpuclockid gives it: no clock ticks, ended threads included.

        Off Linux psutil's user and system time.
        """
        if _on_linux():
            with contextlib.suppress(OSError):
                return time.clock_gettime(((~pid) << 3) | 2)
            return None
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            return float(times.user + times.system)
        return None

    def maps(self, pid: int) -> str:
        """See Reader."""
        with _gone():
            return os.fsdecode(_read(f"/proc/{pid}/maps"))
        return ""

    def link(self, pid: int, name: str) -> str:
        """See Reader."""
        with _gone():
            return os.readlink(f"/proc/{pid}/{name}")
        return ""

    def memory(self, pid: int, address: int, size: int) -> bytes:
        """See Reader. Reading it attaches to nothing and stops nothing."""
        with contextlib.suppress(OSError, OverflowError), open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            file.seek(address)
            return file.read(size)
        return b""

    def local_sockets(self, pid: int) -> frozenset[str]:
        """See Reader."""
        with _gone():
            rows = [line.split() for line in os.fsdecode(_read(f"/proc/{pid}/net/unix")).splitlines()[1:]]
            return frozenset(row[6] for row in rows if len(row) > 6)
        return frozenset()

    def drop(self, thread: int) -> None:
        """See Reader. Its id may be another's soon."""
        for kept in self._kept.values():
            descriptor = kept.pop(thread, None)
            if descriptor is not None:
                os.close(descriptor)

    def close(self) -> None:
        """See Reader."""
        for kept in self._kept.values():
            for descriptor in kept.values():
                os.close(descriptor)
            kept.clear()


def _gone() -> contextlib.suppress:
    return contextlib.suppress(FileNotFoundError, ProcessLookupError)


def _command(pid: int) -> list[str]:
    """The words of a process's command line; none of one that is gone."""
    if _on_linux():
        with _gone():
            return os.fsdecode(_read(f"/proc/{pid}/cmdline")).split("\0")
        return []
    with contextlib.suppress(psutil.Error):
        return [str(word) for word in psutil.Process(pid).cmdline()]
    return []


def _on_linux() -> bool:
    return sys.platform.startswith("linux")


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


# -- one process ---------------------------------------------------------------------------------------------------


class Sleepers:
    """Says what the sleeping threads of one process wait for."""

    def __init__(self, pid: int, reader: Reader, calls: Calls, *, own_gils: bool) -> None:
        self.pid = pid
        self._reader = reader
        self._calls = calls
        self._own_gils = own_gils
        self._known: dict[bytes, Where] = {}
        self._gils: set[int] = set()
        self._interpreter: list[tuple[int, int]] = []
        self._shared: list[tuple[int, int]] = []
        self._has_maps = False
        self._sockets: frozenset[str] | None = None

    def where(self, line: bytes) -> Where:
        """The state that a line of `syscall` tells of; a thread that sleeps on is looked at once."""
        if line.startswith(b"running"):
            return "running"
        known = self._known.get(line)
        if known is None:
            known = self._known[line] = self._look(line.split())
        return known

    @staticmethod
    def stack(line: bytes) -> int:
        """The stack pointer of who waits in a futex with a timeout; 0 without one.

        A thread waits for the GIL with a timeout but for moments, in which it is somewhere else within the same wait.
        """
        words = line.split()
        return int(words[7], 16) if len(words) > 8 and words[4] != b"0x0" else 0

    def forget(self) -> None:
        """Drop what may have changed: descriptors are used again, and memory is mapped."""
        self._known.clear()
        self._has_maps = False
        self._sockets = None

    def _look(self, words: list[bytes]) -> Where:
        if len(words) < 9:  # -1: it sleeps outside of any call, in a page fault
            return "asleep"
        number, first, second = int(words[0]), int(words[1], 16), int(words[2], 16)
        if number == self._calls.futex:
            return self._futex(first, second, timed=words[4] != b"0x0", stack=int(words[7], 16))
        if number in self._calls.process:
            return "process"
        return "process" if any(map(self._is_local, self._descriptors(number, first, second))) else "asleep"

    def _futex(self, address: int, operation: int, *, timed: bool, stack: int) -> Where:
        """A private futex is the GIL's when it is in the interpreter's own static memory, where the runtime stands.

        One on the waiter's stack is a lock's (since 3.14), a queue's, an event's, or of the interpreter's inner
        mutexes. A GIL of a sub-interpreter is on the heap, always waited for with a timeout but for the short time in
        which a thread that was asked to drop it waits for the other to have it.
        """
        if not operation & _PRIVATE:
            return "process" if self._is_shared(address) else "parked"
        if 0 <= address - stack < _STACK_BYTES:
            return "parked"
        if self._is_interpreters(address):
            return "gil"
        if self._own_gils and timed:
            self._gils.add(address)
            return "gil"
        return "gil" if any(abs(address - gil) < _GIL_BYTES for gil in self._gils) else "parked"

    def _is_interpreters(self, address: int) -> bool:
        if not self._interpreter:
            self._read_maps()
        return _within(address, self._interpreter)

    def _is_shared(self, address: int) -> bool:
        if not _within(address, self._shared) and not self._has_maps:
            self._read_maps()
        return _within(address, self._shared)

    def _read_maps(self) -> None:
        self._has_maps = True
        text = self._reader.maps(self.pid)
        self._interpreter = writable_statics(text, self._reader.link(self.pid, "exe"))
        self._shared = [span for span, mode, _ in _mappings(text) if mode.endswith("s")]

    def _descriptors(self, number: int, first: int, second: int) -> Iterator[int]:
        if number in self._calls.descriptor:
            yield first
        elif number in self._calls.poll and first:
            table = self._reader.memory(self.pid, first, 8 * min(second, 64))
            yield from (row[0] for row in struct.iter_unpack("ihh", table[: len(table) // 8 * 8]))
        elif number in self._calls.select and second:
            table = self._reader.memory(self.pid, second, (min(first, 1024) + 7) // 8)
            yield from (bit for bit in range(8 * len(table)) if table[bit // 8] >> bit % 8 & 1)

    def _is_local(self, descriptor: int) -> bool:
        target = self._reader.link(self.pid, f"fd/{descriptor}")
        if target.startswith("socket:["):
            if self._sockets is None:
                self._sockets = self._reader.local_sockets(self.pid)
            return target[8:-1] in self._sockets
        return target.startswith("pipe:[")


def writable_statics(maps: str, executable: str) -> list[tuple[int, int]]:
    """The address ranges of the interpreter's own static memory: what its executable and its library map to write.

    What follows without a name and without a gap is the part of it that a file does not fill. Of a server that has the
    interpreter as a library, such as Apache, the executable's own memory is none of it.
    """
    embedded = "libpython" in maps and "python" not in os.path.basename(executable)
    found: list[tuple[int, int]] = []
    for span, mode, path in _mappings(maps):
        own = (path == executable and not embedded) or os.path.basename(path).startswith("libpython")
        rest = not path and bool(found) and span[0] == found[-1][1]
        if mode.startswith("rw") and (own or rest):
            found.append(span)
    return found


def _mappings(maps: str) -> Iterator[tuple[tuple[int, int], str, str]]:
    for line in maps.splitlines():
        span, mode, _, _, _, *path = line.split(maxsplit=5)
        low, _, high = span.partition("-")
        yield (int(low, 16), int(high, 16)), mode, path[0] if path else ""


def _within(address: int, spans: list[tuple[int, int]]) -> bool:
    return any(low <= address < high for low, high in spans)


# -- a process tree ------------------------------------------------------------------------------------------------


class _Thread:
    """One thread while it was watched, from `came_s` to `seen_s`; two accounts enclose `began_s` to `told_s` of it.

    `before` is the account from which switches count: that of a thread that came under watch starts at nothing.
    `since` are the looks since the latest account.
    """

    __slots__ = (
        "account",
        "before",
        "began",
        "began_s",
        "came_s",
        "looks",
        "number",
        "seen_s",
        "since",
        "sleepers",
        "told_s",
    )

    def __init__(self, sleepers: Sleepers, number: int, came_s: float, before: Account = UNBORN) -> None:
        self.sleepers = sleepers
        self.number = number
        self.before = self.began = self.account = before
        self.came_s = self.began_s = self.told_s = self.seen_s = came_s
        self.looks: Counter[Where] = Counter()
        self.since: Counter[Where] = Counter()

    def sight(self, where: Where) -> None:
        """What a look says."""
        self.looks[where] += 1
        self.since[where] += 1

    def forget(self) -> None:
        """Drop the looks."""
        self.looks.clear()
        self.since.clear()

    def tell(self, account: Account, now_s: float) -> None:
        """What the scheduler says now."""
        self.account, self.told_s, self.seen_s = account, now_s, now_s
        self.since.clear()

    def split(self) -> tuple[float, dict[Where, float], float]:
        """Its span, and what it did of it: running, runnable apart, and where it slept; in s."""
        span, told = self.seen_s - self.came_s, self.told_s - self.began_s
        running = min(told, (self.account.running_ns - self.began.running_ns) / 1e9)
        runnable = min(told - running, (self.account.runnable_ns - self.began.runnable_ns) / 1e9)
        awake, queued = self._awake()
        running += (span - told) * (awake - queued)
        runnable += (span - told) * queued
        rest = span - running - runnable
        asleep = {where: looks for where, looks in self.looks.items() if where != "running"}
        slept: dict[Where, float] = {where: rest * looks / sum(asleep.values()) for where, looks in asleep.items()}
        if not slept and self.looks:  # never seen asleep: what is left is what the account has not got to yet
            running += rest
        elif not slept:
            slept["asleep"] = rest
        return span, {"running": running, **slept}, runnable

    def _awake(self) -> tuple[float, float]:
        """The part that it was awake of the time that no two accounts enclose, and in a run queue of it.

        The looks tell it, which do not know a run queue from a core; without looks what it did since it began.
        """
        running = (self.account.running_ns - self.before.running_ns) / 1e9
        runnable = (self.account.runnable_ns - self.before.runnable_ns) / 1e9
        looks = self.since or self.looks
        if looks:
            awake = looks["running"] / looks.total()
        else:
            awake = min(1.0, (running + runnable) / max(1e-9, self.told_s - self.came_s))
        return awake, awake * runnable / (running + runnable) if running + runnable > 0 else 0.0


class _Bursts:
    """Looks in quick succession at a few threads in turn: when the next is due, at whom, and what they say.

    Where the other looks come rarely there are two paces, the slower in the middle between these and the faster.
    """

    def __init__(self) -> None:
        self.paces: dict[float, Episodes] = {}  # by the pause between looks in s
        self.threads: list[_Thread] = []
        self.left = 0
        self.at_s = math.inf
        self.pace = Episodes()
        self._pauses: list[float] = []
        self._spent_s = 0.0
        self._bursts = self._place = 0

    def begin(self, threads: list[_Thread], look_s: float) -> None:
        """The next burst, at the next of those `threads` that were seen waiting for the GIL."""
        if not self._pauses:
            self._pauses = [_CLOSE_S, math.sqrt(2 * _CLOSE_S * look_s)][: 2 if look_s > 40 * _CLOSE_S else 1]
            self.paces = {pause_s: Episodes() for pause_s in self._pauses}
        waiting = [thread for thread in threads if thread.looks["gil"]] or threads
        places = range(self._place, self._place + min(len(waiting), _CLOSE_THREADS))
        self.threads = [waiting[place % len(waiting)] for place in places]
        self._place += len(self.threads)
        self.pace = self.paces[self._pauses[self._bursts % len(self._pauses)]]
        self._bursts += 1
        self.left = _CLOSE_LOOKS

    def looked(self, spent_s: float, clock: Callable[[], float]) -> None:
        """One look of the burst is over and took so much CPU time."""
        self._spent_s += spent_s
        self.left -= 1
        if self.left:
            self.at_s = clock() + self._pauses[(self._bursts - 1) % len(self._pauses)]
        else:
            self.pace.stop()
            self.at_s = clock() + self._spent_s / _CLOSE_SHARE
            self._spent_s = 0.0


class Watch:
    """Watches a launch's threads through a held window; one thread, no waiting of its own.

    `start()`, then again and again `step()` when `due_s` has passed, then `finish()`. A step does what is due and
    takes so little that all of them together stay at 2 % of the time: with more threads, they come less often.
    Once threads wait for the GIL, a part of the looks comes in bursts at a few threads: these tell the lengths of waits
    that are shorter than the time between the others.
    With `roles.all_work` every thread of every process of the tree is watched, of those too that come later: they are
    looked for as often as accounts are read. Elsewhere
    the threads of the worker processes are watched, without those of `main` unless it works itself; where there are
    none all threads of `main`, without its main thread unless that works itself. CPU time is taken of all processes.
    A thread that came or went between two looks did so half-way: one that lives shorter than that is seen sometimes,
    and then stands for those that are not.
    `refused` says why no look at a sleeper can be trusted: the accounts and the CPU time are taken all the same, as
    far as the system has them, and `finish()` says the reason too. So it is where the looks turn out to be forbidden.
    """

    def __init__(
        self,
        roles: Roles,
        *,
        refused: str = "",
        reader: Reader | None = None,
        clock: Callable[[], float] = time.monotonic,
        cost_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.roles = roles
        self.unavailable = refused or unsupported()
        self._reader = reader or Proc()
        self._clock = clock
        self._cost_clock = cost_clock
        self._threads: list[_Thread] = []
        self._past: list[_Thread] = []
        self._sleepers: list[Sleepers] = []
        self._cpu: dict[int, tuple[float, float]] = {}
        self._turn = 0
        self._began_s = self._look_at = self._account_at = self._listed_s = clock()
        self._cost_s = 0.0
        self._tree: dict[int, str] = {}  # what each of its processes calls itself
        self._calls = CALLS.get(platform.machine(), NO_CALLS)
        self._far, self._close = Episodes(), _Bursts()
        self._gil_looks = 0

    def start(self) -> None:
        """The window begins: read every account."""
        began = self._cost_clock()
        if self.roles.all_work:
            self._allowed(self._find_processes)
        else:
            main = () if self.roles.workers and not self.roles.main_works else (self.roles.main,)
            self._sleepers = [self._sleepers_of(pid) for pid in dict.fromkeys((*main, *self.roles.workers))]
        self._began_s = self._look_at = self._listed_s = self._clock()
        self._allowed(self._begin)
        self._read_cores()
        self._account_again(began)

    @property
    def due_s(self) -> float:
        """Seconds until the next step has something to do."""
        return max(0.0, min(self._look_at, self._account_at, self._close.at_s) - self._clock())

    def step(self) -> None:
        """Do what is due."""
        now = self._clock()
        if now >= self._account_at:
            self._account()
        if now >= self._look_at:
            self._look()
        if now >= self._close.at_s:
            self._look_closely()

    def run(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Step for so long, for one who has nothing else to do meanwhile."""
        ends = self._clock() + seconds
        while (left := ends - self._clock()) > 0:
            sleep(min(left, self.due_s))
            self.step()

    def finish(self) -> Waits:
        """The window ends: what was seen in it."""
        self._account()
        self._reader.close()
        watched_s = self._clock() - self._began_s
        threads = [*self._past, *self._threads]
        if not self.unavailable:
            return self._with_lengths(_summed(threads, watched_s, self._cores(watched_s)))
        for thread in threads:  # looks that came before they were forbidden are too few to go by
            thread.forget()
        seen = _summed(threads, watched_s, self._cores(watched_s))
        return msgspec.structs.replace(seen, asleep_s=0.0, unavailable=self.unavailable)

    def _allowed(self, part: Callable[[], None]) -> None:
        """Where not even the accounts may be read, CPU time is all there is."""
        try:
            part()
        except PermissionError as error:
            self.unavailable = self.unavailable or _forbidden(error)
            self._sleepers, self._threads, self._past = [], [], []

    def _with_lengths(self, seen: Waits) -> Waits:
        paces = [self._far, *self._close.paces.values()]
        for pace in paces:
            pace.stop()
        clear = [pace for pace in paces if pace.clear]
        found = lengths(pace.waits for pace in clear)
        return msgspec.structs.replace(
            seen,
            gil_waits=found.histogram,
            gil_unended=found.unended,
            gil_look_ns=round(found.look_s * 1e9),
            gil_max_ns=round(max((pace.longest_s for pace in clear), default=0.0) * 1e9),
        )

    # -- the parts of a step ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        for sleepers in self._sleepers:
            for number in self._watched(sleepers.pid):
                account = self._reader.account(sleepers.pid, number)
                if account is not None:
                    self._threads.append(_Thread(sleepers, number, self._clock(), account))

    def _look(self) -> None:
        """Look at the threads, or at the next of many, and at all that came."""
        began = self._cost_clock()
        came: list[_Thread] = []
        self._allowed(lambda: came.extend(self._list()))
        threads = self._threads
        for _ in range(min(len(threads), _LOOKS_A_STEP)):
            self._turn = (self._turn + 1) % len(threads)
            self._sight(threads[self._turn])
        for thread in came:
            self._sight(thread)
        threads += came
        spent = self._cost_clock() - began + _WAKE_S
        self._cost_s = spent if not self._cost_s else 0.8 * self._cost_s + 0.2 * spent
        share = _LOOK_SHARE if self._close.at_s == math.inf else _LOOK_SHARE - _CLOSE_SHARE
        self._look_at = self._clock() + max(_LOOK_S, self._cost_s / share)

    def _look_closely(self) -> None:
        """One look of a burst, and the time of the next."""
        began = self._cost_clock()
        if not self._close.left:
            self._close.begin(self._threads, max(_LOOK_S, self._look_at - self._clock()))
        for thread in self._close.threads:
            self._glance(thread)
        self._close.looked(self._cost_clock() - began + _WAKE_S, self._clock)

    def _glance(self, thread: _Thread) -> None:
        pid, number = thread.sleepers.pid, thread.number
        try:
            line = self._reader.call(pid, number)
            if line:
                self._follow(self._close.pace, thread, line, thread.sleepers.where(line))
        except PermissionError as error:
            self.unavailable = _forbidden(error)

    def _follow(self, pace: Episodes, thread: _Thread, line: bytes, where: Where) -> None:
        """Tell a pace of looks what one of them saw, once there are waits for the GIL at all."""
        asking = None
        if where == "gil":
            slices = self._reader.slices(thread.sleepers.pid, thread.number)
            if slices is None:
                return
            asking = Asking(slices, Sleepers.stack(line))
            self._gil_looks += 1
            if self._gil_looks == _CLOSE_AFTER:
                self._close.at_s = self._clock()
        if self._gil_looks:
            pace.see(thread.number, self._clock(), asking, awake=where == "running")

    def _sight(self, thread: _Thread) -> None:
        if self.unavailable:
            return
        try:
            line = self._reader.call(thread.sleepers.pid, thread.number)
            if line:
                where = thread.sleepers.where(line)
                thread.sight(where)
                self._follow(self._far, thread, line, where)
        except PermissionError as error:
            self.unavailable = _forbidden(error)

    def _list(self) -> list[_Thread]:
        """The threads that came since the last look; those that went are ended."""
        now = self._clock()
        found = {number: sleepers for sleepers in self._sleepers for number in self._watched(sleepers.pid)}
        live = []
        for thread in self._threads:
            if found.pop(thread.number, None) is None:
                self._end(thread, now)
            else:
                thread.seen_s = now
                live.append(thread)
        came_s = (self._listed_s + now) / 2
        self._threads, self._listed_s = live, now
        came = [_Thread(sleepers, number, came_s) for number, sleepers in found.items()]
        for thread in came:
            thread.seen_s = now
        return [thread for place, thread in enumerate(came) if place >= _ACCOUNTS_A_LOOK or self._is_told(thread)]

    def _is_told(self, thread: _Thread) -> bool:
        """The first account of a thread that came; whether it is still there."""
        account = self._reader.account(thread.sleepers.pid, thread.number)
        if account is not None:
            now = self._clock()
            thread.tell(account, now)
            thread.began, thread.began_s = account, now
        return account is not None

    def _end(self, thread: _Thread, now: float) -> None:
        thread.seen_s = (thread.seen_s + now) / 2
        self._past.append(thread)
        for pace in (self._far, *self._close.paces.values()):
            pace.leave(thread.number)
        self._reader.drop(thread.number)

    def _account(self) -> None:
        """Read the account of every known thread, and the CPU time of every process."""
        began = self._cost_clock()
        self._allowed(self._read_accounts)
        self._read_cores()
        self._account_again(began)

    def _account_again(self, began: float) -> None:
        spent = self._cost_clock() - began
        self._account_at = self._clock() + max(_ACCOUNT_S, spent / _ACCOUNT_SHARE)

    def _read_accounts(self) -> None:
        if self.roles.all_work:
            self._find_processes()
        for sleepers in self._sleepers:
            sleepers.forget()
        live = []
        for thread in self._threads:
            account = self._reader.account(thread.sleepers.pid, thread.number)
            if account is None:
                self._end(thread, self._clock())
            else:
                thread.tell(account, self._clock())
                live.append(thread)
        self._threads = live

    def _watched(self, pid: int) -> list[int]:
        threads = self._reader.threads(pid)
        if pid == self.roles.main and not (self.roles.main_works or self.roles.all_work):
            return [thread for thread in threads if thread != pid]
        return threads

    def _sleepers_of(self, pid: int) -> Sleepers:
        return Sleepers(pid, self._reader, self._calls, own_gils=self.roles.own_gils)

    def _find_processes(self) -> None:
        """The processes of the tree as it is now; of those that went, what was seen stays."""
        live: list[int] = []
        below = [self.roles.main]
        while below:
            pid = below.pop()
            if pid in self._tree or not self._reader.is_tracker(pid):
                live.append(pid)
                below += self._reader.children(pid)
        for pid in live:  # a child has its parent's title before it runs a program of its own
            self._tree[pid] = self._reader.title(pid) or self._tree.get(pid, "")
        known = {sleepers.pid: sleepers for sleepers in self._sleepers}
        self._sleepers = [known.get(pid) or self._sleepers_of(pid) for pid in live]

    def _names(self) -> dict[int, str]:
        """The processes whose CPU time is taken, in order, and what they are called."""
        roles = self.roles
        if not roles.all_work:
            names = {pid: f"worker {index}" for index, pid in enumerate(roles.workers)}
            return {roles.main: "main"} | names | {roles.main: "main", **roles.servers}
        own = self._tree.get(roles.main, "")
        others = sorted(pid for pid in self._tree if pid != roles.main)
        titles = {pid: self._tree[pid] if self._tree[pid] not in ("", own) else "child" for pid in others}
        counts: Counter[str] = Counter()
        names = {roles.main: "main"}
        for pid, title in titles.items():
            alone = title not in ("child", "main") and list(titles.values()).count(title) == 1
            names[pid] = title if alone else f"{title} {counts[title]}"
            counts[title] += 1
        return names

    def _read_cores(self) -> None:
        roles = self.roles
        for pid in self._tree if roles.all_work else (roles.main, *roles.workers, *roles.servers):
            cpu_s = self._reader.cpu_s(pid)
            if cpu_s is not None:
                self._cpu[pid] = (self._cpu.get(pid, (cpu_s, 0.0))[0], cpu_s)

    def _cores(self, watched_s: float) -> dict[str, float]:
        cores: dict[str, float] = {}
        for pid, name in self._names().items():
            began, ended = self._cpu.get(pid, (0.0, 0.0))
            busy = (ended - began) / watched_s if watched_s > 0 else 0.0
            cores[name] = cores.get(name, 0.0) + busy
        return cores


def _summed(threads: list[_Thread], watched_s: float, cores: dict[str, float]) -> Waits:
    span_s = runnable_s = 0.0
    spent: defaultdict[Where, float] = defaultdict(float)
    for thread in threads:
        span, parts, runnable = thread.split()
        span_s += span
        runnable_s += runnable
        for where, seconds in parts.items():
            spent[where] += seconds
    return Waits(
        span_s=span_s,
        running_s=spent["running"],
        runnable_s=runnable_s,
        gil_s=spent["gil"],
        parked_s=spent["parked"],
        process_s=spent["process"],
        asleep_s=spent["asleep"],
        samples=sum(thread.looks.total() for thread in threads),
        watched_s=watched_s,
        voluntary_switches=sum(thread.account.voluntary - thread.before.voluntary for thread in threads),
        involuntary_switches=sum(thread.account.involuntary - thread.before.involuntary for thread in threads),
        cores=cores,
    )


def _forbidden(error: PermissionError) -> str:
    path = error.filename or "/proc/PID/task/TID/syscall"
    mend = "(kernel.yama.ptrace_scope 0 or 1; in a container the capability SYS_PTRACE)"
    return f"{path} may not be read: allow this process to trace its own children {mend}"


def unsupported() -> str:
    """Why the waits cannot be seen on this machine, whatever the interpreter; empty when they can."""
    if not _on_linux():
        return f"{platform.system()} does not tell what another process's threads wait for: Linux does"
    if platform.machine() not in CALLS:
        return f"the system calls of {platform.machine()} are not known here: those of {' and '.join(CALLS)} are"
    missing = [name for name in ("schedstat", "syscall") if not os.path.exists(f"/proc/self/task/{os.getpid()}/{name}")]
    return f"this kernel has no /proc/PID/task/TID/{missing[0]}" if missing else ""


# -- the patterns hold, or nothing is said -------------------------------------------------------------------------

_ROUNDS = 60
_SETTLE_S = (0.15, 0.5, 1.5)  # before the looks of each try
_AGREED = 0.9
_DISAGREES = "its waits cannot be told apart"
_TIMEOUT_S = 20.0


class Patterns(Struct, frozen=True, kw_only=True):
    """What a self-test said, as it is kept: `reason` is empty when the patterns hold."""

    version: int
    build: str
    kernel: str
    libc: str
    reason: str


def patterns_hold(
    key: str,
    python: str,
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    test: Callable[[str, Mapping[str, str] | None], str] | None = None,
) -> str:
    """Empty when the waits of the interpreter `python` can be told apart, else why not.

    `key` is its build key, GIL state included; `environment` is what sets that state. The self-test runs once: its
    answer is kept in `folder/KEY.json`, until the kernel, the C library or the version of the patterns is another.
    Raises FtgateError when `folder` cannot be written.
    """
    reason = unsupported()
    if reason:
        return reason
    path = folder / f"{key}.json"
    wanted = Patterns(version=VERSION, build=key, kernel=platform.release(), libc=_libc(), reason="")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / f"{key}.lock"):
            kept = _kept(path, wanted)
            if kept is None:
                reason = (test or self_test)(python, environment)
                if not reason or reason.startswith(_DISAGREES):  # anything else may be mended without a trace
                    _keep(path, msgspec.structs.replace(wanted, reason=reason))
                return reason
    except OSError as error:
        mend = "make room there, or make it writable"
        raise FtgateError(f"{folder}: the answer of a self-test cannot be kept: {error.strerror}; {mend}") from error
    return f"{kept} (remove {path} to test again)" if kept else ""


def _libc() -> str:
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    return ""


def _kept(path: Path, wanted: Patterns) -> str | None:
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Patterns)
    except (OSError, msgspec.MsgspecError):
        return None
    return kept.reason if msgspec.structs.replace(kept, reason="") == wanted else None


def _keep(path: Path, patterns: Patterns) -> None:
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(msgspec.json.encode(patterns) + b"\n")
    unfinished.replace(path)


def self_test(python: str, environment: Mapping[str, str] | None = None) -> str:
    """Look at threads in known states under the interpreter `python`: why they cannot be told apart, or nothing.

    `environment` is added to a scrubbed one. Takes about a second; a disagreement is tried again, since a loaded
    machine may not have brought every thread into its state.
    """
    reason = unsupported()
    for settle_s in () if reason else _SETTLE_S:
        try:
            with _known_states(python, environment or {}) as (gil, states):
                time.sleep(settle_s)
                reason = _disagreement(gil, states)
        except (OSError, ValueError, KeyError) as error:
            reason = f"its self-test does not run: {error}"
        if not reason:
            break
    return reason


class _State(NamedTuple):
    pid: int
    thread: int
    state: str

    @property
    def name(self) -> str:
        return self.state.partition(" ")[2]

    @property
    def where(self) -> str:
        return self.state.partition(" ")[0]


@contextlib.contextmanager
def _known_states(python: str, environment: Mapping[str, str]) -> Iterator[tuple[bool, list[_State]]]:
    process = subprocess.Popen(
        [python, "-P", "-s", str(SELF_TEST)],
        env={**scrubbed_environment(), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None
            told: dict[str, Any] = json.loads(_line(process.stdout.fileno()))
            yield told["gil"], [_State(*state) for state in told["states"]]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _line(descriptor: int) -> bytes:
    ends = time.monotonic() + _TIMEOUT_S
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, ends - time.monotonic()))
        chunk = os.read(descriptor, 65536) if ready else b""
        if not chunk:
            raise ValueError("it ended without an answer" if ready else f"no answer within {_TIMEOUT_S:g} s")
        line += chunk
    return line


def _disagreement(gil: bool, states: list[_State]) -> str:
    reader = Proc()
    own_gils = gil and any("sub-interpreter" in state.state for state in states)
    calls = CALLS[platform.machine()]
    sleepers = {state.pid: Sleepers(state.pid, reader, calls, own_gils=own_gils) for state in states}
    looks: dict[_State, Counter[Where]] = {state: Counter() for state in states}
    try:
        for _ in range(_ROUNDS):
            for state, seen in looks.items():
                seen[sleepers[state.pid].where(reader.call(state.pid, state.thread) or b"")] += 1
            time.sleep(_LOOK_S)
    except PermissionError as error:
        return _forbidden(error)
    finally:
        reader.close()
    return next((wrong for state, seen in looks.items() if (wrong := disagrees(state.state, seen, gil=gil))), "")


def disagrees(state: str, seen: Mapping[Where, int], *, gil: bool) -> str:
    """Why looks at a thread in a known state do not tell that state; empty when they do.

    `state` is a word and a name, such as `parked a lock`. Threads that are `busy` wait for the GIL where there is one
    and never where there is none. Some looks may differ: a thread may have been on its way.
    """
    where, _, name = state.partition(" ")
    expected = ("gil" if gil else "running") if where == "busy" else where
    looks = sum(seen.values())
    asked = looks - seen.get("running", 0) if expected == "gil" else looks
    right = seen.get(expected, 0)  # type: ignore[call-overload]
    if right and right >= _AGREED * asked:
        return ""
    told = ", ".join(f"{count} times as {word}" for word, count in sorted(seen.items()))
    return f"{_DISAGREES}: {name} ({expected}) was seen {told}"
