from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from gil_by_hand import Draw, Line, constant, exponential

from physical import Inconclusive, confirm
from pytest_ftgate.errors import FtgateError
from pytest_ftgate.judge.wait_figures import PAUSES_CROWDED
from pytest_ftgate.measure.watch import self_test as self_test_module
from pytest_ftgate.measure.watch.gil_waits import Slices
from pytest_ftgate.measure.watch.proc import CALLS, UNBORN, Account, Calls, Proc
from pytest_ftgate.measure.watch.process_map import ProcessMap
from pytest_ftgate.measure.watch.self_test import VERSION, disagrees, patterns_hold, self_test
from pytest_ftgate.measure.watch.threads import ThreadSampler, unsupported
from pytest_ftgate.measure.watch.wait_states import Sleepers, writable_statics
from pytest_ftgate.model import Waits
from pytest_ftgate.stats.histogram import percentile

pytestmark = pytest.mark.skipif(bool(unsupported()), reason="only Linux tells")
BUILDS = pytest.mark.parametrize("build", ["3.14", "3.14t"])
WINDOW_S = 0.6

BUSY = "def busy():\n    while True:\n        sum(range(1000))\n"


class Running:
    """A Python program that said `ready()` and goes on until the test ends; `told` is what it said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid
        self.told = self.ask("")

    def ask(self, word: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if word:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


Program = Callable[[str, str], Running]


@pytest.fixture
def program(executables: dict[str, str]) -> Iterator[Program]:
    """Starts a program under a build; it is ended with the test, its children with it."""
    head = "import json, os, sys, threading, time\ndef ready(told=None): print(json.dumps(told), flush=True)\n"
    started: list[subprocess.Popen[str]] = []

    def start(build: str, source: str) -> Running:
        command = [executables[build], "-P", "-s", "-c", head + textwrap.dedent(source)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        started.append(process)
        return Running(process)

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        with process:
            pass


def watched(roles: ProcessMap, seconds: float = WINDOW_S, refused: str = "") -> Waits:
    watch = ThreadSampler(roles, refused=refused)
    watch.start()
    watch.run(seconds)
    seen = watch.finish()
    assert seen.unavailable == refused
    return seen


def fraction(seen: Waits, *parts: str) -> float:
    return sum(float(getattr(seen, f"{part}_s")) for part in parts) / seen.span_s


def median_gil_wait_ns(seen: Waits) -> float:
    counts = {bucket: round(weight * 1e6) for bucket, weight in seen.gil_waits.items()}
    return percentile(counts, min(1.0, 0.5 * (1 + seen.gil_unended / sum(seen.gil_waits.values()))))


def assert_one_runs(seen: Waits) -> None:
    """Of two threads with one GIL one runs and one waits, but for the time that other jobs took the cores from them."""
    taken = fraction(seen, "runnable")
    assert 0.45 - taken < fraction(seen, "running") < 0.55
    assert max(0.1, 0.45 - taken) < fraction(seen, "gil") < 0.55
    assert fraction(seen, "gil", "running", "runnable") > 0.95


def parts_of(seen: Waits) -> float:
    return seen.running_s + seen.runnable_s + seen.gil_s + seen.futex_s + seen.process_s + seen.asleep_s


# -- physical truths -----------------------------------------------------------------------------------------------


@BUILDS
def test_two_busy_threads_wait_for_the_gil_half_of_the_time_or_never(program: Program, build: str) -> None:
    code = "for _ in range(2): threading.Thread(target=busy, daemon=True).start()\nready()\nsys.stdin.read()"
    running = program(build, BUSY + code)

    def judge() -> None:
        seen = watched(ProcessMap(main=running.pid))
        if build == "3.14":
            assert_one_runs(seen)
        else:
            assert fraction(seen, "gil") == 0
            assert fraction(seen, "running", "runnable") > 0.95
        assert parts_of(seen) == pytest.approx(seen.span_s)
        assert seen.span_s == pytest.approx(2 * seen.watched_s, rel=0.05)
        assert seen.samples > 20

    confirm(judge)


@BUILDS
def test_the_gil_of_a_sub_interpreter_is_one_too(program: Program, build: str) -> None:
    code = BUSY + "import threading\nthreading.Thread(target=busy).start()\nbusy()\n"
    running = program(
        build,
        f"""
        from concurrent.interpreters import create
        threading.Thread(target=create().exec, args=({code!r},), daemon=True).start()
        time.sleep(0.3)
        ready()
        sys.stdin.read()
        """,
    )

    def judge() -> None:
        seen = watched(ProcessMap(main=running.pid, own_gils=build == "3.14"))
        if build == "3.14":
            assert_one_runs(seen)
        else:
            assert fraction(seen, "gil") == 0
        assert fraction(seen, "gil", "running", "runnable") > 0.95

    confirm(judge)


@BUILDS
def test_of_three_threads_two_wait_for_the_lock(program: Program, build: str) -> None:
    running = program(
        build,
        """
        lock = threading.Lock()
        def turns():
            while True:
                with lock:
                    time.sleep(0.005)
        for _ in range(3): threading.Thread(target=turns, daemon=True).start()
        ready()
        sys.stdin.read()
        """,
    )

    def judge() -> None:
        seen = watched(ProcessMap(main=running.pid))
        assert fraction(seen, "futex") == pytest.approx(2 / 3, abs=0.06)
        assert fraction(seen, "asleep") == pytest.approx(1 / 3, abs=0.06)
        assert seen.voluntary_switches > 20

    confirm(judge)


@BUILDS
def test_sleepers_are_asleep_and_a_main_thread_that_works_is_watched(program: Program, build: str) -> None:
    code = """
    for _ in range(2): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    ready()
    sys.stdin.read()
    """
    running = program(build, code)

    def judge() -> None:
        aside = watched(ProcessMap(main=running.pid), 0.2)
        assert fraction(aside, "asleep") > 0.99
        works = watched(ProcessMap(main=running.pid, main_works=True), 0.2)
        assert works.span_s / works.watched_s == pytest.approx(3, rel=0.1)
        assert fraction(works, "process") == pytest.approx(1 / 3, abs=0.05)  # it reads our pipe

    confirm(judge)


@BUILDS
def test_children_wait_for_each_other(program: Program, build: str) -> None:
    running = program(
        build,
        """
        from multiprocessing import get_context
        fork = get_context("fork")
        lock, queue = fork.Lock(), fork.Queue()
        lock.acquire()
        def locked(): lock.acquire()
        def timed(): lock.acquire(timeout=60)
        def queued(): queue.get()
        def piped():
            end, other = fork.Pipe()
            end.poll(60)
        workers = [fork.Process(target=wait, daemon=True) for wait in (locked, timed, queued, piped)]
        for worker in workers: worker.start()
        time.sleep(0.2)
        ready([worker.pid for worker in workers])
        sys.stdin.read()
        """,
    )

    def judge() -> None:
        seen = watched(ProcessMap(main=running.pid, workers=tuple(running.told)), 0.2)
        assert list(seen.cores) == ["main", "worker 0", "worker 1", "worker 2", "worker 3"]
        assert fraction(seen, "process") > 0.99

    confirm(judge)


@BUILDS
def test_cores_are_what_the_process_says_itself(program: Program, build: str) -> None:
    running = program(
        build,
        BUSY
        + """
threading.Thread(target=busy, daemon=True).start()
ready()
for _ in sys.stdin: ready(time.process_time())
""",
    )

    main = program(build, "ready()\nsys.stdin.read()")

    def judge() -> None:
        began = running.ask("now")
        seen = watched(ProcessMap(main=main.pid, servers={running.pid: "Manager"}, main_works=True))
        assert seen.cores["Manager"] * seen.watched_s == pytest.approx(running.ask("now") - began, rel=0.1)
        assert seen.cores["main"] < 0.01
        assert seen.span_s == pytest.approx(seen.watched_s, rel=0.05)  # a server's threads are not watched

    confirm(judge)


def test_threads_come_and_go(program: Program) -> None:
    code = """
    def short():
        while True:
            thread = threading.Thread(target=time.sleep, args=(0.25,))
            thread.start()
            thread.join()
    threading.Thread(target=short, daemon=True).start()
    ready()
    sys.stdin.read()
    """
    running = program("3.14", code)

    def judge() -> None:  # one waits all the time for one that sleeps
        seen = watched(ProcessMap(main=running.pid), 0.8)
        assert seen.futex_s == pytest.approx(seen.watched_s, rel=0.1)
        assert seen.asleep_s == pytest.approx(seen.watched_s, rel=0.1)

    confirm(judge)


@BUILDS
def test_threads_that_live_shorter_than_an_accounts_turn_are_seen(program: Program, build: str) -> None:
    code = """
    def short():
        while True:
            threads = [threading.Thread(target=time.sleep, args=(0.02,)) for _ in range(4)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
    threading.Thread(target=short, daemon=True).start()
    ready()
    sys.stdin.read()
    """
    running = program(build, code)

    def judge() -> None:
        seen = watched(ProcessMap(main=running.pid))
        asleep, futex = (fraction(seen, name) for name in ("asleep", "futex"))
        assert asleep / (asleep + futex) == pytest.approx(0.8, abs=0.08)
        assert asleep + futex > 0.5  # the rest is for a core, on a machine that has others to serve
        assert seen.span_s == pytest.approx(5 * seen.watched_s, rel=0.15)
        assert seen.voluntary_switches > 20

    confirm(judge)


@BUILDS
def test_without_patterns_the_scheduler_tells_what_it_knows(program: Program, build: str) -> None:
    code = (
        BUSY
        + """
def naps():
    while True: time.sleep(0.002)
threading.Thread(target=busy, daemon=True).start()
threading.Thread(target=naps, daemon=True).start()
ready()
for _ in sys.stdin: ready(time.process_time())
"""
    )
    running = program(build, code)

    def judge() -> None:
        began = running.ask("now")
        seen = watched(ProcessMap(main=running.pid), refused="the patterns are others")
        spent_s = running.ask("now") - began
        assert seen.span_s == pytest.approx(2 * seen.watched_s, rel=0.05)
        assert seen.running_s == pytest.approx(spent_s, rel=0.1)
        assert 0 < seen.runnable_s < seen.span_s - seen.running_s
        assert (seen.gil_s, seen.futex_s, seen.process_s, seen.asleep_s, seen.samples) == (0, 0, 0, 0, 0)
        assert seen.voluntary_switches > 20
        assert seen.cores["main"] * seen.watched_s == pytest.approx(spent_s, rel=0.1)

    confirm(judge)


def test_off_linux_there_are_cores(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    head = BUSY + "threading.Thread(target=busy, daemon=True).start()\n"
    ask = "ready()\nfor _ in sys.stdin: ready(time.process_time())"
    running, idle = program("3.14", head + ask), program("3.14", ask)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(Proc, "threads", lambda reader, pid: [])  # nor is there a /proc

    def judge() -> None:
        began = running.ask("now")
        seen = watched(ProcessMap(main=idle.pid, workers=(running.pid, 2**22 + 1)), refused="not Linux")
        spent_s = running.ask("now") - began
        assert seen == Waits(unavailable="not Linux", watched_s=seen.watched_s, cores=seen.cores)
        assert seen.cores["worker 0"] * seen.watched_s == pytest.approx(spent_s, rel=0.1)  # ticks of 10 ms
        assert seen.cores["main"] < 0.05
        assert seen.cores["worker 1"] == 0

    confirm(judge)


def test_many_threads_take_turns_and_do_not_use_up_descriptors(program: Program) -> None:
    code = "for _ in range(300): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    running = program("3.14t", code + "\nready()\nsys.stdin.read()")

    def judge() -> None:
        before = len(os.listdir("/proc/self/fd"))
        watch = ThreadSampler(ProcessMap(main=running.pid))
        watch.start()
        watch.run(1.0)
        assert len(os.listdir("/proc/self/fd")) - before <= 256
        seen = watch.finish()
        assert len(os.listdir("/proc/self/fd")) == before
        assert fraction(seen, "asleep") > 0.98
        assert 250 < seen.span_s / seen.watched_s <= 301
        assert seen.samples > 300

    confirm(judge)


def test_a_process_that_ended_leaves_what_was_seen_of_it(program: Program) -> None:

    def judge() -> None:
        code = BUSY + "threading.Thread(target=busy, daemon=True).start()\nready()\nsys.stdin.read()"
        running = program("3.14", code)
        watch = ThreadSampler(ProcessMap(main=running.pid))
        watch.start()
        watch.run(0.4)
        running.process.kill()
        watch.run(0.2)
        running.process.wait()
        watch.run(0.1)
        seen = watch.finish()
        assert 0.05 < seen.span_s < 0.55
        assert seen.cores["main"] > 0

    confirm(judge)


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_a_process_that_ended_unseen_is_no_error(
    program: Program, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    running = program("3.14", "threading.Thread(target=time.sleep, args=(60,)).start()\nready()\nsys.stdin.read()")
    monkeypatch.setattr(sys, "platform", system)
    watch = ThreadSampler(ProcessMap(main=running.pid), refused="the patterns are others")
    watch.start()
    watch.run(0.05)
    running.process.kill()
    running.process.wait()
    watch.run(0.25)
    seen = watch.finish()
    assert seen.cores["main"] >= 0
    assert seen.span_s < seen.watched_s


# -- what a call means ---------------------------------------------------------------------------------------------

MAPS = """\
55d000000000-55d000100000 r-xp 00000000 08:01 11 /opt/bin/python3.14
55d000200000-55d000201000 rw-p 00200000 08:01 11 /opt/bin/python3.14
55d000201000-55d000210000 rw-p 00000000 00:00 0
55d000300000-55d000400000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000001000 rw-s 00000000 00:15 22 /dev/shm/sem.aB3 (deleted)
7f0000100000-7f0000200000 rw-p 00000000 08:01 33 /opt/lib/libpython3.14.so.1.0
7f0000300000-7f0000400000 rw-p 00000000 00:00 0
"""
STATIC, BSS, HEAP, SHARED, LIBRARY = 0x55D000200D10, 0x55D000205000, 0x55D000301000, 0x7F0000000000, 0x7F0000100010
STACK = 0x7F0000350000


class Told(Proc):
    """A reader of threads that are in the calls that the test says."""

    def __init__(self, calls: Mapping[int, bytes] = {}, links: Mapping[str, str] = {}) -> None:
        self.calls = dict(calls)
        self.links = {"exe": "/opt/bin/python3.14", **links}
        self.polled = b""
        self.asked: list[int] = []
        self.map_reads = 0
        self.costs_s: Callable[[float], None] = lambda seconds: None
        self.pause_s = 0.0
        self.accounts: Callable[[int], Account | None] = lambda thread: UNBORN
        self.cpu: Callable[[int], float | None] = lambda pid: 0.0
        self.dropped: list[int] = []
        self.sliced: Callable[[int], Slices | None] = lambda thread: Slices(0, 0)
        self.below: dict[int, tuple[int, ...]] = {}
        self.titles: dict[int, str] = {}

    def threads(self, pid: int) -> list[int]:
        return [thread for thread in self.calls if thread // 1000 == pid // 1000]

    def call(self, pid: int, thread: int) -> bytes | None:
        self.asked.append(thread)
        self.costs_s(self.pause_s)
        return self.calls.get(thread)

    def account(self, pid: int, thread: int) -> Account | None:
        return self.accounts(thread)

    def slices(self, pid: int, thread: int) -> Slices | None:
        return self.sliced(thread)

    def children(self, pid: int) -> list[int]:
        return list(self.below.get(pid, ()))

    def title(self, pid: int) -> str:
        return self.titles.get(pid, "")

    def is_tracker(self, pid: int) -> bool:
        return self.titles.get(pid) == "tracker"

    def cpu_s(self, pid: int) -> float | None:
        return self.cpu(pid)

    def maps(self, pid: int) -> str:
        self.map_reads += 1
        return MAPS

    def link(self, pid: int, name: str) -> str:
        return self.links.get(name, "")

    def memory(self, pid: int, address: int, size: int) -> bytes:
        return self.polled[:size]

    def local_sockets(self, pid: int) -> frozenset[str]:
        return frozenset({"77"})

    def drop(self, thread: int) -> None:
        self.dropped.append(thread)

    def close(self) -> None:
        pass


def line(number: int, first: int = 0, second: int = 0, *, timeout: bool = False, stack: int = STACK) -> bytes:
    words = [first, second, 0, 0x7F0000350100 if timeout else 0, 0, 0xFFFFFFFF, stack, 0x7F0000000123]
    return (f"{number} " + " ".join(map(hex, words))).encode()


def where(call: bytes, reader: Told | None = None, *, arch: str = "x86_64", own_gils: bool = False) -> str:
    return Sleepers(1, reader or Told(), CALLS[arch], own_gils=own_gils).where(call)


FUTEX = {arch: calls.futex for arch, calls in CALLS.items()}


@pytest.mark.parametrize("arch", CALLS)
@pytest.mark.parametrize(
    ("address", "operation", "timeout", "meant"),
    [
        (STATIC, 0x89, True, "gil"),
        (BSS, 0x89, True, "gil"),
        (LIBRARY, 0x189, False, "gil"),
        (HEAP, 0x189, False, "futex"),
        (HEAP, 0x89, True, "futex"),
        (STACK + 0x40, 0x189, False, "futex"),
        (STACK + 0x40, 0x89, True, "futex"),
        (SHARED, 0x109, False, "process"),
        (SHARED, 0x109, True, "process"),
        (HEAP, 0x109, False, "futex"),
    ],
)
def test_what_a_futex_is(arch: str, address: int, operation: int, timeout: bool, meant: str) -> None:
    assert where(line(FUTEX[arch], address, operation, timeout=timeout), arch=arch) == meant


def test_a_server_with_the_interpreter_as_a_library_has_the_gil_there() -> None:
    """Its own static memory holds locks of its own."""
    maps = MAPS.replace("/opt/bin/python3.14", "/usr/sbin/apache2")
    assert writable_statics(maps, "/usr/sbin/apache2") == [(0x7F0000100000, 0x7F0000200000)]
    alone = maps.replace("libpython3.14", "libexpat")
    assert writable_statics(alone, "/usr/sbin/apache2")[0] == (0x55D000200000, 0x55D000201000)
    assert len(writable_statics(MAPS, "/opt/bin/python3.14")) == 3


def test_the_heap_holds_a_gil_where_an_interpreter_has_its_own() -> None:
    sleepers = Sleepers(1, Told(), CALLS["x86_64"], own_gils=True)
    assert sleepers.where(line(202, HEAP + 64, 0x189)) == "futex"
    assert sleepers.where(line(202, HEAP, 0x89, timeout=True)) == "gil"
    assert sleepers.where(line(202, STACK + 64, 0x89, timeout=True)) == "futex"
    sleepers.forget()
    assert sleepers.where(line(202, HEAP + 64, 0x189)) == "gil"  # its second condition: the old holder waits there
    assert sleepers.where(line(202, HEAP + 4096, 0x189)) == "futex"


def test_what_a_descriptor_is() -> None:
    links = {"fd/3": "pipe:[5]", "fd/4": "socket:[77]", "fd/5": "socket:[78]", "fd/6": "/etc/hosts"}
    reader = Told(links=links)
    calls = [
        line(0, 3),
        line(45, 4),
        line(45, 5),
        line(0, 6),
        line(0, 9),
        line(61),
        line(73, 6),
        line(230),
        line(232, 3),
    ]
    meant = [where(call, reader) for call in calls]
    assert meant == ["process", "process", "asleep", "asleep", "asleep", "process", "process", "asleep", "asleep"]


def test_what_is_polled_is_read_from_where_it_stands() -> None:
    reader = Told(links={"fd/6": "/etc/hosts", "fd/9": "pipe:[5]"})
    reader.polled = b"\6\0\0\0\1\0\0\0\11\0\0\0\1\0\0\0"
    assert where(line(7, HEAP, 2), reader) == "process"
    assert where(line(7, HEAP, 1), reader) == "asleep"
    reader.polled = b"\x40\x02"  # select of 6 and 9
    assert where(line(270, 10, HEAP), reader) == "process"
    assert where(line(270, 8, HEAP), reader) == "asleep"
    assert where(line(270), reader) == "asleep"
    reader.polled = b"\6\0"  # it ended meanwhile
    assert where(line(7, HEAP, 1), reader) == "asleep"


def test_a_page_fault_is_no_call() -> None:
    assert where(b"-1 0x7f0000350000 0x7f0000000123\n") == "asleep"
    assert where(b"running\n") == "running"


def test_maps_are_read_once_and_again_for_an_unknown_address() -> None:
    reader = Told()
    sleepers = Sleepers(1, reader, CALLS["x86_64"], own_gils=False)
    for address in (STATIC, BSS, HEAP):
        sleepers.where(line(202, address, 0x89, timeout=True))
    sleepers.where(line(202, SHARED, 0x109))
    assert reader.map_reads == 1
    sleepers.where(line(202, HEAP, 0x109))
    assert reader.map_reads == 1  # not again before what is known is dropped
    sleepers.forget()
    sleepers.where(line(202, HEAP, 0x109))
    assert reader.map_reads == 2


# -- the pace ------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.cpu_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += max(seconds, 1e-6)

    def work(self, seconds: float) -> None:
        self.now_s += seconds
        self.cpu_s += seconds


def paced(reader: Told, look_s: float = 0.0, seconds: float = 1.0) -> tuple[Clock, Waits]:
    clock = Clock()
    reader.costs_s, reader.pause_s = clock.work, look_s
    watch = ThreadSampler(ProcessMap(main=1000), reader=reader, clock=clock, cost_clock=lambda: clock.cpu_s)
    watch.start()
    watch.run(seconds, clock.sleep)
    return clock, watch.finish()


@pytest.mark.parametrize(("threads", "look_s"), [(1, 0.0), (2, 3e-6), (2, 1e-4), (50, 3e-6), (500, 1e-5)])
def test_looking_takes_at_most_two_hundredths_and_all_have_their_turn(threads: int, look_s: float) -> None:
    reader = Told({1000 + number: line(230) for number in range(1, threads + 1)})
    clock, seen = paced(reader, look_s, 4.0)
    assert clock.cpu_s <= 0.02 * seen.watched_s
    assert set(reader.asked) == set(reader.calls)
    counts = [reader.asked.count(thread) for thread in reader.calls]
    assert max(counts) - min(counts) <= 1
    rounds = seen.samples / min(threads, 64) / seen.watched_s
    assert rounds == pytest.approx(1 / max(0.002, (min(threads, 64) * look_s + 30e-6) / 0.015), rel=0.05)


def test_nothing_is_done_before_it_is_due() -> None:
    reader = Told({1001: line(230)})
    clock = Clock()
    watch = ThreadSampler(ProcessMap(main=1000), reader=reader, clock=clock, cost_clock=lambda: clock.cpu_s)
    watch.start()
    watch.step()
    due_s = watch.due_s
    assert len(reader.asked) == 1
    assert 0 < due_s <= 0.01
    clock.sleep(due_s / 2)
    watch.step()
    assert len(reader.asked) == 1
    clock.sleep(due_s)
    watch.step()
    assert len(reader.asked) == 2


def test_the_account_goes_before_the_looks() -> None:
    """Two threads of 1 s: 0.4 s and 0.1 s on a core, 0.2 s in a queue; the rest is split as it was seen."""
    reader = Told({1000: line(61), 1001: line(202, STACK, 0x189), 1002: line(202, STATIC, 0x89, timeout=True)})
    clock = Clock()
    shares = {1001: (4e8, 2e8), 1002: (1e8, 0.0)}

    def account(thread: int) -> Account:
        passed = clock.now_s - 100.0
        running, runnable = shares[thread]
        return Account(int(running * passed), int(runnable * passed), int(50 * passed), 0)

    reader.accounts = account
    watch = ThreadSampler(ProcessMap(main=1000), reader=reader, clock=clock, cost_clock=lambda: clock.cpu_s)
    watch.start()
    watch.run(0.5, clock.sleep)
    reader.calls[1001] = line(230)
    reader.calls[1002] = b"running"
    watch.run(0.5, clock.sleep)
    seen = watch.finish()
    assert seen.span_s == pytest.approx(2.0, rel=0.01)
    assert seen.running_s == pytest.approx(0.5, rel=0.01)
    assert seen.runnable_s == pytest.approx(0.2, rel=0.01)
    assert seen.gil_s == pytest.approx(0.9, rel=0.01)
    assert seen.futex_s == pytest.approx(0.2, rel=0.05)
    assert seen.asleep_s == pytest.approx(0.2, rel=0.05)
    assert parts_of(seen) == pytest.approx(seen.span_s)
    assert seen.voluntary_switches == pytest.approx(100, abs=2)


class Births(Told):
    """Always `count` threads, each of which lives `life_s` at mean, first sleeps and then runs for the rest."""

    def __init__(self, count: int, life_s: float, sleeps: float) -> None:
        super().__init__()
        self.clock = Clock()
        self.count, self.life_s, self.sleeps = count, life_s, sleeps
        self.random = random.Random(7)
        self.lives: dict[int, tuple[float, float]] = {}
        self.born = 1000
        self.places = [0] * count  # who lives there
        self.lives[0] = 0.0, 100.0
        self.accounts = self.told
        self.account_s = self.list_s = 0.0

    def threads(self, pid: int) -> list[int]:
        self.costs_s(self.list_s)
        for place, number in enumerate(self.places):
            ends = self.lives[number][1]
            while ends <= self.clock.now_s:
                self.born += 1
                began, ends = ends, ends + self.random.uniform(0.5, 1.5) * self.life_s
                self.lives[self.born] = began, ends
                self.places[place] = self.born
        return list(self.places)

    def call(self, pid: int, thread: int) -> bytes | None:
        super().call(pid, thread)
        began, ended = self.lives[thread]
        now = self.clock.now_s
        if now >= ended:
            return None
        return line(230) if now - began < self.sleeps * (ended - began) else b"running"

    def told(self, thread: int) -> Account | None:
        self.costs_s(self.account_s)
        began, ended = self.lives[thread]
        now = self.clock.now_s
        awake_s = max(0.0, now - began - self.sleeps * (ended - began))
        return None if now >= ended else Account(int(awake_s * 1e9), 0, 1, 0)

    def watched(self, look_s: float = 0.0, account_s: float = 0.0, list_s: float = 0.0, seconds: float = 2.0) -> Waits:
        self.costs_s, self.pause_s, self.account_s, self.list_s = self.clock.work, look_s, account_s, list_s
        watch = ThreadSampler(ProcessMap(main=1000), reader=self, clock=self.clock, cost_clock=lambda: self.clock.cpu_s)
        watch.start()
        watch.run(seconds, self.clock.sleep)
        return watch.finish()


@pytest.mark.parametrize("count", [4, 100])
@pytest.mark.parametrize("life_s", [0.003, 0.02, 0.3])
@pytest.mark.parametrize("sleeps", [1.0, 0.7, 0.0])
def test_lives_of_any_length_are_seen_in_full(count: int, life_s: float, sleeps: float) -> None:
    births = Births(count, life_s, sleeps)
    seen = births.watched()
    assert seen.span_s == pytest.approx(count * seen.watched_s, rel=0.1)
    assert fraction(seen, "asleep") == pytest.approx(sleeps, abs=0.07)
    assert fraction(seen, "running") == pytest.approx(1 - sleeps, abs=0.07)
    assert parts_of(seen) == pytest.approx(seen.span_s)
    assert set(births.asked) - set(births.threads(1000)) <= set(births.dropped)  # nothing is kept of those that went


@pytest.mark.parametrize(("count", "life_s"), [(4, 0.02), (4, 0.002), (100, 0.02), (300, 0.3)])
def test_births_do_not_cost_more_either(count: int, life_s: float) -> None:
    births = Births(count, life_s, 1.0)
    seen = births.watched(seconds=4.0, look_s=2e-6, account_s=45e-6, list_s=6e-6 + count * 0.5e-6)
    first_and_last_s = 2 * count * 45e-6  # accounts: of these there are so many in any window
    assert births.clock.cpu_s <= 0.02 * seen.watched_s + first_and_last_s
    assert seen.span_s == pytest.approx(count * seen.watched_s, rel=0.2)
    assert fraction(seen, "asleep") > 0.95


# -- how long single waits for the GIL are --------------------------------------------------------------------------


class Contended(Told):
    """Threads 1001 and on, which wait for the GIL as the test drew it."""

    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__()
        self.clock = Clock()
        self.random = random.Random(8)
        self.lines = {1001 + number: life for number, life in enumerate(lines)}
        self.calls = dict.fromkeys(self.lines, b"running")
        self.sliced = lambda thread: self.at(thread)[1]
        self.costs_s, self.pause_s = self.clock.work, 3e-6
        self.accounts = lambda thread: Account(self.at(thread)[1].running_ns, 0, self.at(thread)[1].times, 0)

    def at(self, thread: int) -> tuple[str, Slices]:
        return self.lines[thread].at(self.clock.now_s - 100.0)

    def call(self, pid: int, thread: int) -> bytes | None:
        super().call(pid, thread)
        state = self.at(thread)[0]
        if state == "gil":
            return line(202, STATIC, 0x89, timeout=True)
        return b"running" if state == "running" else line(230)

    def sleep(self, seconds: float) -> None:
        """Nobody wakes on time."""
        self.clock.work(30e-6)
        self.clock.now_s += max(0.0, seconds - 30e-6) + self.random.uniform(50e-6, 120e-6)

    def watched(self, seconds: float) -> Waits:
        watch = ThreadSampler(ProcessMap(main=1000), reader=self, clock=self.clock, cost_clock=lambda: self.clock.cpu_s)
        watch.start()
        watch.run(seconds, self.sleep)
        return watch.finish()


@pytest.mark.parametrize(
    ("wait", "run_s", "interval_s"),
    [(constant(0.020), 0.005, 0.005), (constant(0.0012), 0.0003, 0.0003), (exponential(0.012), 0.004, 0.005)],
)
def test_the_lengths_of_waits_for_the_gil_at_no_higher_cost(wait: Draw, run_s: float, interval_s: float) -> None:
    rnd = random.Random(41)
    lines = [Line(rnd, wait, constant(run_s), 12.0, interval_s) for _ in range(5)]
    reader = Contended(lines)
    seen = reader.watched(10.0)
    assert reader.clock.cpu_s <= 0.025 * seen.watched_s  # with 1 % of arms and sleeps that are none of the looks'
    true = sorted(length for life in lines for length in life.waits)
    for share in (0.5, 0.95):
        whole = 1 + seen.gil_unended / sum(seen.gil_waits.values())
        counts = {bucket: round(weight * 1e6) for bucket, weight in seen.gil_waits.items()}
        assert percentile(counts, share * whole) / 1e9 == pytest.approx(true[int(share * len(true))], rel=0.3)
    assert true[len(true) // 2] * 1e9 > seen.gil_sampling_ns > 0
    assert 0.6 * true[-1] * 1e9 < seen.gil_max_ns < true[-1] * 1e9
    assert fraction(seen, "gil") == pytest.approx(sum(true) / (sum(true) + len(true) * run_s), abs=0.06)


def test_no_wait_for_the_gil_has_no_length_and_no_burst() -> None:
    reader = Told({1001: line(230), 1002: line(202, STACK, 0x189)})
    _, seen = paced(reader, 3e-6, 2.0)
    assert (seen.gil_waits, seen.gil_unended, seen.gil_sampling_ns, seen.gil_max_ns) == ({}, 0.0, 0, 0)
    assert len(reader.asked) == seen.samples


TOLD = """
import ctypes, resource
sys.setswitchinterval({interval_s})
pread, found, going = ctypes.PyDLL(None).pread, [], True  # one that keeps the GIL
def busy():
    own, text = os.open("/proc/thread-self/schedstat", os.O_RDONLY), ctypes.create_string_buffer(80)
    mine, last, slept, queued = [], time.perf_counter(), 0, 0
    while going:
        sum(range(200))
        now = time.perf_counter()
        if now - last > 6e-5:
            switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
            pread(own, text, 80, 0)
            delay = int(text.value.split()[1])
            if switches > slept: mine.append((last, now - last, now - last - (delay - queued) / 1e9))
            slept, queued, now = switches, delay, time.perf_counter()
        last = now
    found.extend(mine)
threads = [threading.Thread(target=busy, daemon=True) for _ in range(5)]
for thread in threads: thread.start()
ready()
began = float(sys.stdin.readline())
ended = float(sys.stdin.readline())
going = False
for thread in threads: thread.join()
ready([sorted(row[column] for row in found if began < row[0] < ended) for column in (1, 2)])
"""


@pytest.mark.parametrize("interval_s", [0.02, 0.002])  # four of these: longer than the pause between looks, shorter
def test_real_waits_are_as_long_as_those_who_wait_say(program: Program, interval_s: float) -> None:
    """Between theirs without the time in run queues and theirs with it, of which ours have that amid a wait alone."""

    def judge() -> None:
        running = program("3.14", TOLD.format(interval_s=interval_s))
        assert running.process.stdin is not None
        began = time.perf_counter()
        seen = watched(ProcessMap(main=running.pid), 2.0)
        running.process.stdin.write(f"{began}\n")
        whole, waiting = running.ask(str(time.perf_counter()))
        running.process.kill()
        assert seen.gil_max_ns < 1.2e9 * whole[-1]
        if not seen.gil_waits:
            raise Inconclusive(f"too few of {len(whole)} waits were seen to end; {seen.samples} looks in 2 s")
        median_ns = median_gil_wait_ns(seen)
        crowded = seen.runnable_s > seen.gil_s
        if median_ns < (PAUSES_CROWDED if crowded else 1) * seen.gil_sampling_ns:  # then it is not told
            raise Inconclusive(f"looks {seen.gil_sampling_ns / 1e6:.1f} ms apart cannot tell {median_ns / 1e6:.1f} ms")
        assert 0.6e9 * waiting[len(waiting) // 2] < median_ns < 1.5e9 * whole[len(whole) // 2] + seen.gil_sampling_ns

    confirm(judge, longest_s=30.0)


def test_a_shorter_switch_interval_shows_shorter_waits(program: Program) -> None:
    """The second's waits are too short for the samples of a busy machine, which still must not make them long."""
    code = "for _ in range(5): threading.Thread(target=busy, daemon=True).start()\nready()\nsys.stdin.read()"

    def median_ns(interval_s: float) -> float:
        running = program("3.14", f"{BUSY}sys.setswitchinterval({interval_s})\n{code}")
        seen = watched(ProcessMap(main=running.pid), 1.0)
        running.process.kill()
        if not seen.gil_waits:
            raise Inconclusive(f"no wait of {interval_s} s was seen to end; {seen.samples} samples in 1 s")
        return median_gil_wait_ns(seen)

    def judge() -> None:
        longer, shorter = median_ns(0.005), median_ns(0.0005)
        assert shorter < longer, f"{shorter / 1e6:.2f} and {longer / 1e6:.2f} ms"

    confirm(judge, longest_s=60.0)


def test_without_a_gil_there_is_none_to_wait_for(program: Program) -> None:
    code = "for _ in range(3): threading.Thread(target=busy, daemon=True).start()\nready()\nsys.stdin.read()"
    seen = watched(ProcessMap(main=program("3.14t", BUSY + code).pid))
    assert (seen.gil_waits, seen.gil_max_ns) == ({}, 0)


# -- whose threads -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "main_works", "looked_at"),
    [
        ((), False, {1001, 1002}),
        ((), True, {1000, 1001, 1002}),
        ((2000, 3000), False, {2000, 2001, 3000}),
        ((2000, 3000), True, {1000, 1001, 1002, 2000, 2001, 3000}),
    ],
)
def test_the_workers_threads_are_watched(workers: tuple[int, ...], main_works: bool, looked_at: set[int]) -> None:
    """With worker processes, main's threads feed them: they are none of the workers'. Their cores are shown."""
    reader, clock = Told(dict.fromkeys((1000, 1001, 1002, 2000, 2001, 3000), line(230))), Clock()
    reader.cpu = lambda pid: clock.now_s * pid / 1000
    roles = ProcessMap(main=1000, workers=workers, main_works=main_works)
    watch = ThreadSampler(roles, reader=reader, clock=clock, cost_clock=lambda: clock.cpu_s)
    watch.start()
    watch.run(1.0, clock.sleep)
    seen = watch.finish()
    assert set(reader.asked) == looked_at
    assert seen.span_s == pytest.approx(len(looked_at) * seen.watched_s)
    expected = {"main": 1.0} | {f"worker {index}": 2.0 + index for index in range(len(workers))}
    assert seen.cores == pytest.approx(expected)


def test_every_thread_of_a_tree_that_is_no_launch_of_ours_is_watched() -> None:
    """A server's: its first process, those that it started and theirs, with their main threads, but no tracker."""
    reader, clock = Told(dict.fromkeys((1000, 1001, 2000, 3000, 3001, 4000, 5000), line(230))), Clock()
    reader.below = {1000: (2000, 4000, 5000), 2000: (3000,)}
    reader.titles = {1000: "apache2", 2000: "apache2", 3000: "wsgi", 4000: "tracker", 5000: "wsgi"}
    reader.cpu = lambda pid: clock.now_s * pid / 10000
    watch = ThreadSampler(
        ProcessMap(main=1000, all_work=True), reader=reader, clock=clock, cost_clock=lambda: clock.cpu_s
    )
    watch.start()
    watch.run(1.0, clock.sleep)
    seen = watch.finish()
    assert set(reader.asked) == {1000, 1001, 2000, 3000, 3001, 5000}
    assert seen.span_s == pytest.approx(6 * seen.watched_s)
    assert list(seen.cores) == ["main", "child 0", "wsgi 0", "wsgi 1"]
    assert seen.cores == pytest.approx({"main": 0.1, "child 0": 0.2, "wsgi 0": 0.3, "wsgi 1": 0.5})


def test_processes_of_a_tree_come_and_go() -> None:
    reader, clock = Told(dict.fromkeys((1000, 2000), line(230))), Clock()
    reader.below, reader.titles = {1000: (2000,)}, {1000: "granian", 2000: "granian", 3000: "helper"}
    reader.cpu = lambda pid: clock.now_s if pid in reader.calls else None
    watch = ThreadSampler(
        ProcessMap(main=1000, all_work=True), reader=reader, clock=clock, cost_clock=lambda: clock.cpu_s
    )
    watch.start()
    watch.run(1.0, clock.sleep)
    reader.calls[3000] = line(230)
    reader.below[1000] = (2000, 3000)
    watch.run(1.0, clock.sleep)
    del reader.calls[2000]
    reader.below[1000] = (3000,)
    watch.run(2.0, clock.sleep)
    seen = watch.finish()
    assert seen.span_s == pytest.approx(4.0 + 2.0 + 3.0, rel=0.05)
    assert seen.cores == pytest.approx({"main": 1.0, "child 0": 0.5, "helper": 0.75}, rel=0.05)


@BUILDS
def test_a_real_tree_is_found_and_followed(program: Program, build: str) -> None:
    running = program(
        build,
        """
        import subprocess
        child = "import sys, threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
        both = child + "; print(flush=True); sys.stdin.read()"
        pipe = subprocess.PIPE
        def start(): return subprocess.Popen([sys.executable, "-c", both], stdin=pipe, stdout=pipe)
        first, second = start(), start()
        for each in (first, second): each.stdout.readline()
        ready([first.pid, second.pid])
        for _ in sys.stdin:
            first.kill(); first.wait()
            first = start(); first.stdout.readline()
            ready(first.pid)
        """,
    )

    def judge() -> None:
        watch = ThreadSampler(ProcessMap(main=running.pid, all_work=True))
        watch.start()
        watch.run(0.4)
        third = running.ask("another")
        watch.run(0.6)
        seen = watch.finish()
        assert list(seen.cores) == ["main", *(f"child {number}" for number in range(3))]
        assert third not in running.told
        assert seen.span_s == pytest.approx(5 * seen.watched_s, rel=0.25)  # two lives of two threads, and the main one
        assert fraction(seen, "process") + fraction(seen, "asleep") > 0.5

    confirm(judge)


def test_what_a_process_calls_itself() -> None:
    """As mod_wsgi rewrites the command line of a daemon process; most have the name of their program."""
    for words, title in ((["(wsgi:site:8000)", "60"], "wsgi"), (["sleep", "60"], "sleep")):
        with subprocess.Popen(words, executable="/bin/sleep") as process:
            try:
                ends = time.monotonic() + 20
                # It is its parent until the kernel has put its program in place.
                while Proc().title(process.pid) != title and time.monotonic() < ends:
                    time.sleep(0.01)
                assert Proc().title(process.pid) == title
                assert not Proc().is_tracker(process.pid)
            finally:
                process.kill()
    assert Proc().title(2**22 + 1) == ""


def test_children_where_the_kernel_does_not_list_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        try:
            assert process.pid in Proc().children(os.getpid())
            monkeypatch.setattr(os.path, "exists", lambda path: False)
            assert process.pid in Proc().children(os.getpid())
            assert Proc().children(2**22 + 1) == []
        finally:
            process.kill()


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can start another user's process")
def test_a_tree_of_another_user_is_read_by_root(program: Program) -> None:
    """As mod_wsgi's daemon processes are: started by root, then another's."""
    code = """
    if os.fork() == 0:
        os.setgid(65534); os.setuid(65534)
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        ready(os.getpid())
        time.sleep(60)
    time.sleep(60)
    """
    running = program("3.14", code)

    def judge() -> None:
        seen = watched(ProcessMap(main=running.pid, all_work=True), 0.3)
        assert list(seen.cores) == ["main", "child 0"]
        assert seen.span_s == pytest.approx(3 * seen.watched_s, rel=0.1)
        assert fraction(seen, "asleep") > 0.95

    confirm(judge)


# -- refused rather than guessed -----------------------------------------------------------------------------------


@BUILDS
def test_the_patterns_hold_on_both_builds(executables: dict[str, str], build: str) -> None:
    def judge() -> None:
        assert self_test(executables[build]) == ""

    confirm(judge)


def test_they_hold_with_the_gil_switched_on(executables: dict[str, str]) -> None:
    def judge() -> None:
        assert self_test(executables["3.14t"], {"PYTHON_GIL": "1"}) == ""

    confirm(judge)


def test_another_pattern_is_refused(executables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As if an interpreter's locks waited in another call: its threads seem asleep."""
    arch = platform.machine()
    monkeypatch.setitem(CALLS, arch, CALLS[arch]._replace(futex=-5))

    def judge() -> None:
        reason = self_test(executables["3.14"])
        assert "wait states cannot be distinguished" in reason
        assert "asleep" in reason

    confirm(judge)


def test_an_interpreter_that_cannot_be_tested_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    script.chmod(0o755)
    assert "ended without an answer" in self_test(str(script))
    assert "failed to run" in self_test(str(tmp_path / "none"))


def test_what_disagrees() -> None:
    assert disagrees("futex a lock", {"futex": 60}, gil=True) == ""
    assert disagrees("futex a lock", {"futex": 57, "running": 3}, gil=True) == ""
    assert "a lock (futex) was seen 60 times as gil" in disagrees("futex a lock", {"gil": 60}, gil=True)
    assert disagrees("busy two threads", {"gil": 20, "running": 40}, gil=True) == ""
    assert disagrees("busy two threads", {"running": 60}, gil=False) == ""
    assert "two threads" in disagrees("busy two threads", {"running": 60}, gil=True)
    assert "two threads" in disagrees("busy two threads", {"futex": 20, "gil": 10, "running": 30}, gil=True)
    assert "two threads" in disagrees("busy two threads", {"gil": 30, "running": 30}, gil=False)
    assert disagrees("asleep a sleep", {}, gil=False)


def half_busy(clock: Clock) -> Told:
    """A thread that runs half of the time, waits a tenth for a core, and is switched a hundred times a second."""
    reader = Told({1001: line(230)})

    def account(thread: int) -> Account:
        passed = clock.now_s - 90.0
        return Account(int(5e8 * passed), int(1e8 * passed), int(100 * passed), int(10 * passed))

    reader.accounts = account
    reader.cpu = lambda pid: 0.5 * clock.now_s
    return reader


def test_a_watch_that_is_refused_looks_at_no_sleeper() -> None:
    clock = Clock()
    reader = half_busy(clock)
    watch = ThreadSampler(ProcessMap(main=1000), refused="the patterns are others", reader=reader, clock=clock)
    watch.start()
    watch.run(1.0, clock.sleep)
    seen = watch.finish()
    assert reader.asked == []
    assert seen.unavailable == "the patterns are others"
    assert seen.span_s == pytest.approx(seen.watched_s)
    assert seen.running_s == pytest.approx(0.5, rel=0.01)
    assert seen.runnable_s == pytest.approx(0.1, rel=0.01)
    assert (seen.gil_s, seen.futex_s, seen.process_s, seen.asleep_s, seen.samples) == (0, 0, 0, 0, 0)
    assert (seen.voluntary_switches, seen.involuntary_switches) == (100, 10)
    assert seen.cores == pytest.approx({"main": 0.5})


def test_what_lives_shortly_is_accounted_without_a_look() -> None:
    births = Births(4, 0.02, 0.0)
    watch = ThreadSampler(ProcessMap(main=1000), refused="x", reader=births, clock=births.clock, cost_clock=lambda: 0.0)
    watch.start()
    watch.run(2.0, births.clock.sleep)
    seen = watch.finish()
    assert births.asked == []
    assert seen.span_s == pytest.approx(4 * seen.watched_s, rel=0.1)
    assert seen.running_s > 0.6 * seen.span_s  # what came before the first account, and after the last, is unknown
    assert seen.voluntary_switches > 200


def test_looks_that_are_forbidden_are_refused_with_the_mend() -> None:
    clock = Clock()
    reader = half_busy(clock)

    def forbidden(seconds: float) -> None:
        if clock.now_s > 100.5:
            raise PermissionError(1, "Operation not permitted", "/proc/1000/task/1001/syscall")

    reader.costs_s = forbidden
    watch = ThreadSampler(ProcessMap(main=1000), reader=reader, clock=clock, cost_clock=lambda: clock.cpu_s)
    watch.start()
    watch.run(1.0, clock.sleep)
    seen = watch.finish()
    assert "/proc/1000/task/1001/syscall may not be read" in seen.unavailable
    assert "ptrace_scope" in seen.unavailable
    assert seen.running_s == pytest.approx(0.5, rel=0.01)
    assert (seen.asleep_s, seen.samples) == (0, 0)
    assert seen.cores == pytest.approx({"main": 0.5})


def test_where_not_even_the_account_may_be_read_there_are_cores() -> None:
    clock = Clock()
    reader = half_busy(clock)

    def forbidden(thread: int) -> Account:
        raise PermissionError(1, "Operation not permitted", "/proc/1000/task/1001/schedstat")

    reader.accounts = forbidden
    watch = ThreadSampler(ProcessMap(main=1000), reader=reader, clock=clock, cost_clock=lambda: clock.cpu_s)
    watch.start()
    watch.run(1.0, clock.sleep)
    seen = watch.finish()
    assert "/proc/1000/task/1001/schedstat may not be read" in seen.unavailable
    expected = Waits(unavailable=seen.unavailable, watched_s=seen.watched_s, cores=seen.cores)
    assert seen == expected
    assert seen.cores == pytest.approx({"main": 0.5})


def test_another_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "riscv64" in unsupported()
    assert "riscv64" in ThreadSampler(ProcessMap(main=1)).finish().unavailable
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Linux does" in unsupported()


class Answers:
    """Counts self-tests, and answers."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.count = 0

    def __call__(self, python: str, environment: Mapping[str, str] | None) -> str:
        self.count += 1
        return self.reason


def test_the_answer_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new" / "selftests"
    test = Answers()
    for _ in range(3):
        assert patterns_hold("cpython-3.14.7-gil-1a", "python", folder, test=test) == ""
    assert test.count == 1
    assert patterns_hold("cpython-3.14.7t-nogil-1a", "python", folder, test=test) == ""
    assert test.count == 2
    monkeypatch.setattr(self_test_module, "VERSION", VERSION + 1)
    assert patterns_hold("cpython-3.14.7-gil-1a", "python", folder, test=test) == ""
    assert test.count == 3
    monkeypatch.setattr(platform, "release", lambda: "99.1")
    assert patterns_hold("cpython-3.14.7-gil-1a", "python", folder, test=test) == ""
    assert test.count == 4


def test_a_refusal_is_kept_and_says_how_to_ask_again(tmp_path: Path) -> None:
    reason = disagrees("futex a lock", {"asleep": 60}, gil=True)
    test = Answers(reason)
    assert patterns_hold("key", "python", tmp_path, test=test) == reason
    again = patterns_hold("key", "python", tmp_path, test=test)
    assert again == f"{reason} (remove {tmp_path / 'key.json'} to test again)"
    assert test.count == 1
    (tmp_path / "key.json").unlink()
    patterns_hold("key", "python", tmp_path, test=test)
    assert test.count == 2


def test_what_the_user_may_mend_is_asked_each_time(tmp_path: Path) -> None:
    test = Answers("/proc/1/task/1/syscall may not be read")
    for _ in range(2):
        assert patterns_hold("key", "python", tmp_path, test=test) == test.reason
    assert test.count == 2
    test.reason = ""
    for _ in range(2):
        assert patterns_hold("key", "python", tmp_path, test=test) == ""
    assert test.count == 3


@pytest.mark.parametrize("broken", [b"", b"{", b"[1]", b'{"version": 1, "reason": ""}', b"\xff\xfe"])
def test_a_broken_answer_is_made_anew(tmp_path: Path, broken: bytes) -> None:
    test = Answers()
    patterns_hold("key", "python", tmp_path, test=test)
    good = (tmp_path / "key.json").read_bytes()
    (tmp_path / "key.json").write_bytes(broken)
    assert patterns_hold("key", "python", tmp_path, test=test) == ""
    assert test.count == 2
    assert (tmp_path / "key.json").read_bytes() == good
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key.json", "key.lock"]


def test_two_runs_do_not_both_test(tmp_path: Path) -> None:
    test = Answers()

    def slow(python: str, environment: Mapping[str, str] | None) -> str:
        time.sleep(0.2)
        return test(python, environment)

    runs = [
        threading.Thread(target=patterns_hold, args=("key", "p", tmp_path), kwargs={"test": slow}) for _ in range(2)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert test.count == 1


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(FtgateError, match=r"file.*make room there"):
        patterns_hold("key", "python", tmp_path / "file" / "selftests", test=Answers())


def test_the_reader_closes_what_it_opened() -> None:
    reader = Proc()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert reader.call(os.getpid(), os.getpid())
    assert reader.call(os.getpid(), 2**22 + 1) is None
    assert reader.memory(os.getpid(), 0, 8) == b""
    assert len(os.listdir("/proc/self/fd")) == before + 1
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert isinstance(CALLS["x86_64"], Calls)
