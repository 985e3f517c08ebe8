"""Where the threads of a measured process tree wait, seen from outside and without attaching. Linux alone."""

from __future__ import annotations

import math
import os
import platform
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Final

import msgspec

from ...model import Waits
from .gil_waits import Asking, Episodes, lengths
from .proc import CALLS, NO_CALLS, UNBORN, Account, Proc, Reader, on_linux
from .process_roles import Roles
from .wait_states import Sleepers, Where

LOOK_S: Final = 0.002  # between looks, at best; each begins with a list of the threads: many do not live long
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
        self._iteration = 0
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
            self.unavailable = self.unavailable or forbidden(error)
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
            self._iteration = (self._iteration + 1) % len(threads)
            self._sight(threads[self._iteration])
        for thread in came:
            self._sight(thread)
        threads += came
        spent = self._cost_clock() - began + _WAKE_S
        self._cost_s = spent if not self._cost_s else 0.8 * self._cost_s + 0.2 * spent
        share = _LOOK_SHARE if self._close.at_s == math.inf else _LOOK_SHARE - _CLOSE_SHARE
        self._look_at = self._clock() + max(LOOK_S, self._cost_s / share)

    def _look_closely(self) -> None:
        """One look of a burst, and the time of the next."""
        began = self._cost_clock()
        if not self._close.left:
            self._close.begin(self._threads, max(LOOK_S, self._look_at - self._clock()))
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
            self.unavailable = forbidden(error)

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
            self.unavailable = forbidden(error)

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


def forbidden(error: PermissionError) -> str:
    """What to do where the system forbids reading another process's system calls."""
    path = error.filename or "/proc/PID/task/TID/syscall"
    mend = "(kernel.yama.ptrace_scope 0 or 1; in a container the capability SYS_PTRACE)"
    return f"{path} may not be read: allow this process to trace its own children {mend}"


def unsupported() -> str:
    """Why the waits cannot be seen on this machine, whatever the interpreter; empty when they can."""
    if not on_linux():
        return f"{platform.system()} does not tell what another process's threads wait for: Linux does"
    if platform.machine() not in CALLS:
        return f"the system calls of {platform.machine()} are not known here: those of {' and '.join(CALLS)} are"
    missing = [name for name in ("schedstat", "syscall") if not os.path.exists(f"/proc/self/task/{os.getpid()}/{name}")]
    return f"this kernel has no /proc/PID/task/TID/{missing[0]}" if missing else ""
