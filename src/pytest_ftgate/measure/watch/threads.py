"""Samples of where the threads of a process tree wait, from outside and without attaching. Linux only."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import select
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ...kit.errors import FtgateError
from ...kit.files import read_json, write_whole
from ...kit.killing import kill_tree
from ...kit.proc import CALLS, NO_CALLS, UNBORN, Account, Proc, on_linux
from ...kit.waiting import locked
from ...model.sample import Waits
from ...targets.describe import scrubbed_environment
from ..process_map import ProcessMap
from .gil_waits import Asking, Episodes, estimated_lengths
from .native import NativeWaits
from .system_calls import Sleepers, Where

SAMPLE_S: Final = 0.002  # between samples, at best; each begins with a list of the threads: many do not live long
_ACCOUNT_S: Final = 0.1  # between readings of the scheduler's account of every thread, at best
_SAMPLE_SHARE: Final = 0.015  # of the time, lists included; together with the account's at most 2 % of it
_ACCOUNT_SHARE: Final = 0.004
_BURST_SHARE: Final = 0.02  # of the time, for bursts: once there are waits for the GIL
_BURST_AFTER: Final = 8  # samples that saw one
_BURST_S: Final = 0.0001  # between the samples of a burst
_BURST_MIDDLE_S: Final = 0.001  # between those of the slower bursts, at most
_BURST_SAMPLES: Final = 24
_BURST_THREADS: Final = 4
_WAKE_S: Final = 30e-6  # CPU time of a sleep and a wake-up between steps, as measured
_THREADS_A_STEP: Final = 64  # of more threads, each step samples the next ones
_ACCOUNTS_A_STEP: Final = 8  # of threads that came: one costs what thirty samples do
_WORKS: Final = 0.01  # of the window on a core, for a thread that is no worker: a library's heartbeat has less


# -- one thread ------------------------------------------------------------------------------------------------


class _Thread:
    """One thread while it was sampled, from `came_s` to `seen_s`; two accounts enclose `began_s` to `account_s` of it.

    `helps` says that it was there before the window and is no worker: it counts only if it works.
    `before` is the account from which switches count: that of a thread that came meanwhile starts at nothing.
    `since` are the samples since the latest account.
    """

    def __init__(
        self, sleepers: Sleepers, number: int, came_s: float, before: Account = UNBORN, *, helps: bool = False
    ) -> None:
        self.sleepers = sleepers
        self.helps = helps
        self.number = number
        self.before = self.began = self.account = before
        self.came_s = self.began_s = self.account_s = self.seen_s = came_s
        self.samples: Counter[Where] = Counter()
        self.since: Counter[Where] = Counter()

    def add_account(self, account: Account, now_s: float) -> None:
        self.account, self.account_s, self.seen_s = account, now_s, now_s
        self.since.clear()

    @property
    def ran_ns(self) -> int:
        """Its time on a core between the first account and the last."""
        return self.account.running_ns - self.before.running_ns

    def split(self) -> tuple[float, dict[Where, float], float]:
        """Its span, and what it did of it: running, runnable apart, and where it slept; in s."""
        span, enclosed = self.seen_s - self.came_s, self.account_s - self.began_s
        running = min(enclosed, (self.account.running_ns - self.began.running_ns) / 1e9)
        runnable = min(enclosed - running, (self.account.runnable_ns - self.began.runnable_ns) / 1e9)
        # Of what no two accounts enclose the samples say how much it was awake; without samples, its past does. They do
        # not distinguish a run queue from a core, as its past does.
        ran = (self.account.running_ns - self.before.running_ns) / 1e9
        queued = (self.account.runnable_ns - self.before.runnable_ns) / 1e9
        samples = self.since or self.samples
        if samples:
            awake = samples["running"] / samples.total()
        else:
            awake = min(1.0, (ran + queued) / max(1e-9, self.account_s - self.came_s))
        in_queue = awake * queued / (ran + queued) if ran + queued > 0 else 0.0
        running += (span - enclosed) * (awake - in_queue)
        runnable += (span - enclosed) * in_queue
        rest = span - running - runnable
        asleep = {where: count for where, count in self.samples.items() if where != "running"}
        slept: dict[Where, float] = {where: rest * count / sum(asleep.values()) for where, count in asleep.items()}
        if not slept and self.samples:  # never seen asleep: the rest is time that the account does not include yet
            running += rest
        elif not slept:
            slept["asleep"] = rest
        return span, {"running": running, **slept}, runnable


# -- bursts of samples, for waits for the GIL --------------------------------------------------------------------------


class _GilWaits:
    """Single waits for the GIL, followed at two or three paces of samples: `far`, and those of bursts.

    A burst is samples in quick succession of a few threads in turn: it knows when the next is due (`at_s`), and of
    whom. Where the other samples come rarely there are two paces of bursts, the slower in the middle between these and
    the faster.
    """

    def __init__(self, reader: Proc, clock: Callable[[], float]) -> None:
        self.far = Episodes()
        self.threads: list[_Thread] = []
        self.left = 0  # samples of the burst under way
        self.at_s = math.inf
        self.pace = Episodes()
        self._near: list[tuple[float, Episodes]] = []  # the pause between samples in s of each pace
        self._spent_s = 0.0
        self._bursts = self._place = 0
        self._reader = reader
        self._clock = clock
        self._count = 0

    def begin(self, threads: list[_Thread], sample_s: float) -> None:
        """The next burst, of the next of those `threads` that were seen waiting for the GIL."""
        if not self._near:
            middle_s = min(_BURST_MIDDLE_S, math.sqrt(2 * _BURST_S * sample_s))
            pauses = [_BURST_S, middle_s] if sample_s > 40 * _BURST_S else [_BURST_S]
            self._near = [(pause_s, Episodes()) for pause_s in pauses]
        waiting = [thread for thread in threads if thread.samples["gil"]] or threads
        places = range(self._place, self._place + min(len(waiting), _BURST_THREADS))
        self.threads = [waiting[place % len(waiting)] for place in places]
        self._place += len(self.threads)
        _, self.pace = self._near[self._bursts % len(self._near)]
        self._bursts += 1
        self.left = _BURST_SAMPLES

    def end_sample(self, spent_s: float) -> None:
        """One sample of the burst is over and took so much CPU time."""
        self._spent_s += spent_s
        self.left -= 1
        if self.left:
            self.at_s = self._clock() + self._near[(self._bursts - 1) % len(self._near)][0]
        else:
            self.pace.stop()
            self.at_s = self._clock() + self._spent_s / _BURST_SHARE
            self._spent_s = 0.0

    def follow(self, pace: Episodes, thread: _Thread, line: bytes, where: Where) -> None:
        """Tell a pace what one of its samples saw, once there are waits for the GIL at all."""
        asking = None
        if where == "gil":
            slices = self._reader.slices(thread.sleepers.pid, thread.number)
            if slices is None:
                return
            asking = Asking(slices, Sleepers.stack(line))
            self._count += 1
            if self._count == _BURST_AFTER:
                self.at_s = self._clock()
        if self._count:
            pace.see(thread.number, self._clock(), asking, awake=where == "running")

    def leave(self, number: int) -> None:
        for pace in self._paces():
            pace.leave(number)

    def added_to(self, waits: Waits) -> Waits:
        """The samples are over: `waits` with the lengths of the waits for the GIL."""
        for pace in self._paces():
            pace.stop()
        clear = [pace for pace in self._paces() if pace.clear]
        estimated = estimated_lengths(pace.waits for pace in clear)
        return msgspec.structs.replace(
            waits,
            gil_waits=estimated.histogram,
            gil_unended=estimated.unended,
            gil_sampling_ns=round(estimated.pause_s * 1e9),
            gil_max_ns=round(max((pace.longest_s for pace in clear), default=0.0) * 1e9),
        )

    def _paces(self) -> list[Episodes]:
        return [self.far, *(pace for _, pace in self._near)]


# -- the processes ---------------------------------------------------------------------------------------------------


class _SampledProcesses:
    """The processes of a launch: those whose threads are sampled, and the CPU time of all."""

    def __init__(self, known: ProcessMap, reader: Proc) -> None:
        self.known = known
        self.sleepers: list[Sleepers] = []
        self._reader = reader
        self._calls = CALLS.get(platform.machine(), NO_CALLS)
        self._cpu: dict[int, tuple[float, float]] = {}  # CPU time in s at the first reading and at the last
        self._titles: dict[int, str] = {}  # where all work: what each process of the tree calls itself

    def find(self) -> None:
        """The processes as they are now; of those that went, the CPU time stays."""
        if self.known.all_work:
            pids, below = [], [self.known.main]
            while below:
                pid = below.pop()
                if pid in self._titles or not self._reader.is_tracker(pid):
                    pids.append(pid)
                    below += self._reader.children(pid)
            for pid in pids:  # a child has its parent's title before it runs a program of its own
                self._titles[pid] = self._reader.title(pid) or self._titles.get(pid, "")
        else:
            main = () if self.known.workers and not self.known.main_works else (self.known.main,)
            pids = list(dict.fromkeys((*main, *self.known.workers)))
        before = {sleepers.pid: sleepers for sleepers in self.sleepers}
        self.sleepers = [
            before.get(pid) or Sleepers(pid, self._reader, self._calls, own_gils=self.known.own_gils) for pid in pids
        ]

    def threads(self) -> dict[int, Sleepers]:
        found = {number: sleepers for sleepers in self.sleepers for number in self._reader.threads(sleepers.pid)}
        if not (self.known.main_works or self.known.all_work):
            found.pop(self.known.main, None)
        return found

    def read_cpu(self) -> None:
        known = self.known
        for pid in self._titles if known.all_work else (known.main, *known.workers, *known.servers):
            cpu_s = self._reader.cpu_s(pid)
            if cpu_s is not None:
                self._cpu[pid] = (self._cpu.get(pid, (cpu_s, 0.0))[0], cpu_s)

    def cores(self, span_s: float) -> dict[str, float]:
        """CPU time over the time `span_s` by the name of a process; 0 for one that was never there."""
        cores: dict[str, float] = {}
        for pid, name in self._names().items():
            began, ended = self._cpu.get(pid, (0.0, 0.0))
            cores[name] = cores.get(name, 0.0) + ((ended - began) / span_s if span_s > 0 else 0.0)
        return cores

    def _names(self) -> dict[int, str]:
        known = self.known
        if not known.all_work:
            names = {pid: f"worker {index}" for index, pid in enumerate(known.workers)}
            return {known.main: "main"} | names | {known.main: "main", **known.servers}
        own = self._titles.get(known.main, "")
        others = sorted(pid for pid in self._titles if pid != known.main)
        titles = {pid: self._titles[pid] if self._titles[pid] not in ("", own) else "child" for pid in others}
        counts: Counter[str] = Counter()
        names = {known.main: "main"}
        for pid, title in titles.items():
            alone = title not in ("child", "main") and list(titles.values()).count(title) == 1
            names[pid] = title if alone else f"{title} {counts[title]}"
            counts[title] += 1
        return names


# -- the sampler -----------------------------------------------------------------------------------------------------


class ThreadSampler:
    """Samples a launch's threads through a held window, in the caller's thread; it never waits.

    Call `start()`, then `step()` whenever `due_s` has passed, then `finish()`. All steps together take 2 % of the time:
    with more threads, samples come less often. Once threads wait for the GIL, bursts of samples of a few threads take
    another 2 %. They give the lengths of waits that are shorter than the time between the other samples.

    `known` says whose threads are sampled. With `known.all_work` processes may come later, so the tree is taken as
    often as accounts are read. CPU time is read of all processes. A thread that came or went between two samples did so
    half-way: one that lives shorter than that is seen sometimes, and then stands for those that are not.

    `refused` says why no sample of a sleeper can be trusted. Accounts and CPU time are still read, as far as the system
    has them, and `finish()` gives the reason. The same holds where samples turn out to be forbidden.
    """

    def __init__(
        self,
        known: ProcessMap,
        *,
        refused: str = "",
        reader: Proc | None = None,
        clock: Callable[[], float] = time.monotonic,
        cost_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.known = known
        self.unavailable = refused or unsupported()
        self._reader = reader or Proc()
        self._clock = clock
        self._cost_clock = cost_clock
        self._processes = _SampledProcesses(known, self._reader)
        self._gil_waits = _GilWaits(self._reader, clock)
        self._native = NativeWaits(self._reader)
        self._threads: list[_Thread] = []
        self._past: list[_Thread] = []
        self._place = 0
        self._began_s = self._sample_at = self._account_at = self._listed_s = clock()
        self._cost_s = 0.0

    def start(self) -> None:
        """The window begins: read every account."""
        began = self._cost_clock()
        self._allowed(self._processes.find)
        self._began_s = self._sample_at = self._listed_s = self._clock()
        self._allowed(self._begin)
        self._processes.read_cpu()
        self._account_again(began)

    @property
    def due_s(self) -> float:
        """Seconds until the next step has something to do."""
        return max(0.0, min(self._sample_at, self._account_at, self._gil_waits.at_s) - self._clock())

    def step(self) -> None:
        now = self._clock()
        if now >= self._account_at:
            self._account()
        if now >= self._sample_at:
            self._sample()
        if now >= self._gil_waits.at_s:
            self._sample_burst()

    def run(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Step for so long, for one who has nothing else to do meanwhile."""
        ends = self._clock() + seconds
        while (left := ends - self._clock()) > 0:
            sleep(min(left, self.due_s))
            self.step()

    def finish(self) -> Waits:
        """The window ends: what was seen in it."""
        self._account()
        span_s = self._clock() - self._began_s
        # Waits of what only waits are none of the workload's: threads of BLAS, a listener, a heartbeat.
        least_ns = 0.0 if self.known.all_work else _WORKS * span_s * 1e9
        idle = [each for each in (*self._past, *self._threads) if each.helps and each.ran_ns <= least_ns]
        threads = [each for each in (*self._past, *self._threads) if each not in idle]
        native = self._native.names(without={each.number for each in idle})
        self._reader.close()
        for thread in threads if self.unavailable else ():  # what came before it was forbidden is too little to go by
            thread.samples.clear()
            thread.since.clear()
        waits = _summed(threads, span_s, self._processes.cores(span_s))
        if self.unavailable:
            return msgspec.structs.replace(waits, asleep_s=0.0, unavailable=self.unavailable)
        return self._gil_waits.added_to(msgspec.structs.replace(waits, native=native))

    def _allowed(self, part: Callable[[], None]) -> None:
        """Where not even the accounts may be read, CPU time is all there is."""
        try:
            part()
        except PermissionError as error:
            self.unavailable = self.unavailable or forbidden(error)
            self._processes.sleepers, self._threads, self._past = [], [], []

    # -- samples -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        for number, sleepers in self._processes.threads().items():
            account = self._reader.account(sleepers.pid, number)
            if account is not None:
                helps = number not in (sleepers.pid, *self.known.threads)
                self._threads.append(_Thread(sleepers, number, self._clock(), account, helps=helps))

    def _sample(self) -> None:
        began = self._cost_clock()
        came: list[_Thread] = []
        self._allowed(lambda: came.extend(self._list()))
        threads = self._threads
        for _ in range(min(len(threads), _THREADS_A_STEP)):
            self._place = (self._place + 1) % len(threads)
            self._sample_thread(threads[self._place], self._gil_waits.far)
        for thread in came:
            self._sample_thread(thread, self._gil_waits.far)
        threads += came
        spent = self._cost_clock() - began + _WAKE_S
        self._cost_s = spent if not self._cost_s else 0.8 * self._cost_s + 0.2 * spent
        self._sample_at = self._clock() + max(SAMPLE_S, self._cost_s / _SAMPLE_SHARE)

    def _sample_burst(self) -> None:
        began, bursts = self._cost_clock(), self._gil_waits
        if not bursts.left:
            bursts.begin(self._threads, max(SAMPLE_S, self._sample_at - self._clock()))
        for thread in bursts.threads:
            self._sample_thread(thread, bursts.pace, counts=False)
        bursts.end_sample(self._cost_clock() - began + _WAKE_S)

    def _sample_thread(self, thread: _Thread, pace: Episodes, counts: bool = True) -> None:
        """One sample of one thread. Those of bursts do not count for its states: they are taken while it waits."""
        if self.unavailable:
            return
        try:
            line = self._reader.call(thread.sleepers.pid, thread.number)
            if line:
                where = thread.sleepers.where(line)
                if counts:
                    thread.samples[where] += 1
                    thread.since[where] += 1
                    if where == "futex":
                        self._native.see(thread.sleepers.pid, thread.number, line)
                self._gil_waits.follow(pace, thread, line, where)
        except PermissionError as error:
            self.unavailable = forbidden(error)

    # -- threads that come and go ------------------------------------------------------------------------------

    def _list(self) -> list[_Thread]:
        """End the threads that went, and return those that came since the last sample."""
        now = self._clock()
        listed = self._processes.threads()
        live = []
        for thread in self._threads:
            if listed.pop(thread.number, None) is None:
                self._end(thread, now)
            else:
                thread.seen_s = now
                live.append(thread)
        came_s = (self._listed_s + now) / 2
        self._threads, self._listed_s = live, now
        came = [_Thread(sleepers, number, came_s) for number, sleepers in listed.items()]
        there = []
        for place, thread in enumerate(came):
            thread.seen_s = now
            if place < _ACCOUNTS_A_STEP:  # the first account of the others is read later
                account = self._reader.account(thread.sleepers.pid, thread.number)
                if account is None:
                    continue
                at_s = self._clock()
                thread.add_account(account, at_s)
                thread.began, thread.began_s = account, at_s
            there.append(thread)
        return there

    def _end(self, thread: _Thread, now: float) -> None:
        thread.seen_s = (thread.seen_s + now) / 2
        self._past.append(thread)
        self._gil_waits.leave(thread.number)
        self._reader.drop(thread.number)

    # -- accounts ----------------------------------------------------------------------------------------------

    def _account(self) -> None:
        began = self._cost_clock()
        self._allowed(self._read_accounts)
        self._processes.read_cpu()
        self._account_again(began)

    def _account_again(self, began: float) -> None:
        spent = self._cost_clock() - began
        self._account_at = self._clock() + max(_ACCOUNT_S, spent / _ACCOUNT_SHARE)

    def _read_accounts(self) -> None:
        if self.known.all_work:
            self._processes.find()
        for sleepers in self._processes.sleepers:
            sleepers.forget()
        live = []
        for thread in self._threads:
            account = self._reader.account(thread.sleepers.pid, thread.number)
            if account is None:
                self._end(thread, self._clock())
            else:
                thread.add_account(account, self._clock())
                live.append(thread)
        self._threads = live


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
        futex_s=spent["futex"],
        process_s=spent["process"],
        asleep_s=spent["asleep"],
        samples=sum(thread.samples.total() for thread in threads),
        watched_s=watched_s,
        voluntary_switches=sum(thread.account.voluntary - thread.before.voluntary for thread in threads),
        involuntary_switches=sum(thread.account.involuntary - thread.before.involuntary for thread in threads),
        cores=cores,
    )


def forbidden(error: PermissionError) -> str:
    """What to do where the system forbids reading another process's system calls."""
    path = error.filename or "/proc/PID/task/TID/syscall"
    fix = "(kernel.yama.ptrace_scope 0 or 1; in a container the capability SYS_PTRACE)"
    return f"{path} may not be read: allow this process to trace its own children {fix}"


def unsupported() -> str:
    """Why the waits cannot be seen on this machine, whatever the interpreter; empty when they can."""
    if not on_linux():
        return f"{platform.system()} does not show what the threads of another process wait for; only Linux does"
    if platform.machine() not in CALLS:
        return f"the system calls of {platform.machine()} are unknown; those of {' and '.join(CALLS)} are known"
    missing = [name for name in ("schedstat", "syscall") if not os.path.exists(f"/proc/self/task/{os.getpid()}/{name}")]
    return f"this kernel has no /proc/PID/task/TID/{missing[0]}" if missing else ""


# -- the self-test of an interpreter: the patterns hold, or there are no samples ---------------------------------------

SELF_TEST: Final = Path(__file__).parents[2] / "runner" / "selftest.py"
VERSION: Final = 1  # of the patterns and of the self-test: another one tests again
_ROUNDS = 60
_SETTLE_S = (0.15, 0.5, 1.5)  # before the samples of each try
_AGREED = 0.9
_DISAGREES = "its wait states cannot be distinguished"
_TIMEOUT_S = 20.0


def patterns_hold(
    key: str,
    python: str,
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    test: Callable[[str, Mapping[str, str] | None], str] | None = None,
) -> str:
    """Empty when the wait states of the interpreter `python` can be distinguished, else why not.

    `key` is its build key, GIL state included; `environment` is what sets that state. The self-test runs once: its
    answer is kept in `folder/KEY.json`, until the kernel, the C library or the version of the patterns is another.
    Raises FtgateError when `folder` cannot be written.
    """
    reason = unsupported()
    if reason:
        return reason
    path, libc = folder / f"{key}.json", ""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    wanted = {"version": VERSION, "build": key, "kernel": platform.release(), "libc": libc}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f"{key}.lock"):
            kept = read_json(path, dict[str, int | str]) or {}
            if kept != {**wanted, "reason": kept.get("reason")}:
                reason = (test or self_test)(python, environment)
                if not reason or reason.startswith(_DISAGREES):  # anything else may be fixed without a trace
                    write_whole(path, [msgspec.json.encode({**wanted, "reason": reason}), b"\n"])
                return reason
    except OSError as error:
        fix = "make room there, or make it writable"
        raise FtgateError(f"{folder}: the answer of a self-test cannot be kept: {error.strerror}; {fix}") from error
    return f"{kept['reason']} (remove {path} to test again)" if kept["reason"] else ""


def self_test(python: str, environment: Mapping[str, str] | None = None) -> str:
    """Sample threads in known states under the interpreter `python`: why they cannot be distinguished, or nothing.

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
            reason = f"its self-test failed to run: {error}"
        if not reason:
            break
    return reason


@contextlib.contextmanager
def _known_states(python: str, environment: Mapping[str, str]) -> Iterator[tuple[bool, list[tuple[int, int, str]]]]:
    """Whether the GIL is on, and the process, thread and state of each thread of the self-test."""
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
            answer: dict[str, Any] = json.loads(_line(process.stdout.fileno()))
            yield answer["gil"], [(pid, thread, state) for pid, thread, state in answer["states"]]
        finally:
            kill_tree(process.pid)


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


def _disagreement(gil: bool, states: list[tuple[int, int, str]]) -> str:
    reader = Proc()
    own_gils = gil and any("sub-interpreter" in state for _, _, state in states)
    calls = CALLS[platform.machine()]
    sleepers = {pid: Sleepers(pid, reader, calls, own_gils=own_gils) for pid, _, _ in states}
    samples: list[Counter[Where]] = [Counter() for _ in states]
    try:
        for _ in range(_ROUNDS):
            for (pid, thread, _state), seen in zip(states, samples, strict=True):
                seen[sleepers[pid].where(reader.call(pid, thread) or b"")] += 1
            time.sleep(SAMPLE_S)
    except PermissionError as error:
        return forbidden(error)
    finally:
        reader.close()
    answers = (disagrees(state, seen, gil=gil) for (_, _, state), seen in zip(states, samples, strict=True))
    return next(filter(None, answers), "")


def disagrees(state: str, seen: Mapping[Where, int], *, gil: bool) -> str:
    """Why samples of a thread in a known state do not say that state; empty when they do.

    `state` is a word and a name, such as `futex a lock`. Threads that are `busy` wait for the GIL where there is one
    and never where there is none. Some samples may differ: a thread may have been on its way.
    """
    where, _, name = state.partition(" ")
    expected = ("gil" if gil else "running") if where == "busy" else where
    samples = sum(seen.values())
    asked = samples - seen.get("running", 0) if expected == "gil" else samples
    right = seen.get(expected, 0)  # type: ignore[call-overload]
    if right and right >= _AGREED * asked:
        return ""
    counts = ", ".join(f"{count} times as {word}" for word, count in sorted(seen.items()))
    return f"{_DISAGREES}: {name} ({expected}) was seen {counts}"
