from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_ftgate import waits
from pytest_ftgate.errors import FtgateError
from pytest_ftgate.model import Waits
from pytest_ftgate.roles import Roles
from pytest_ftgate.waits import CALLS, Account, Calls, Proc, Sleepers, Watch, disagrees, patterns_hold, self_test

pytestmark = pytest.mark.skipif(bool(waits.unsupported()), reason="only Linux tells")
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


def watched(roles: Roles, seconds: float = WINDOW_S) -> Waits:
    watch = Watch(roles)
    watch.start()
    watch.run(seconds)
    seen = watch.finish()
    assert seen.unavailable == ""
    return seen


def fraction(seen: Waits, *parts: str) -> float:
    return sum(float(getattr(seen, f"{part}_s")) for part in parts) / seen.span_s


def gil_half(seen: Waits) -> float:
    """The GIL's part of a thread's time but for the time that other jobs of the machine took from it."""
    return seen.gil_s / (seen.gil_s + seen.running_s)


def until(judge: Callable[[], None], tries: int = 6) -> None:
    """Try a physical truth again while the machine is disturbed; the last try stands as it is."""
    for _ in range(tries - 1):
        with contextlib.suppress(AssertionError):
            return judge()
        time.sleep(0.5)
    return judge()


def parts_of(seen: Waits) -> float:
    return seen.running_s + seen.runnable_s + seen.gil_s + seen.parked_s + seen.process_s + seen.asleep_s


# -- physical truths -----------------------------------------------------------------------------------------------


@BUILDS
def test_two_busy_threads_wait_for_the_gil_half_of_the_time_or_never(program: Program, build: str) -> None:
    code = "for _ in range(2): threading.Thread(target=busy, daemon=True).start()\nready()\nsys.stdin.read()"
    running = program(build, BUSY + code)

    def judge() -> None:
        seen = watched(Roles(main=running.pid))
        if build == "3.14":
            assert 0.4 < gil_half(seen) < 0.6
            assert fraction(seen, "gil", "running", "runnable") > 0.95
        else:
            assert fraction(seen, "gil") == 0
            assert fraction(seen, "running", "runnable") > 0.95
        assert parts_of(seen) == pytest.approx(seen.span_s)
        assert seen.span_s == pytest.approx(2 * seen.watched_s, rel=0.05)
        assert seen.samples > 20

    until(judge)


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
        seen = watched(Roles(main=running.pid, own_gils=build == "3.14"))
        if build == "3.14":
            assert 0.4 < gil_half(seen) < 0.6
        else:
            assert fraction(seen, "gil") == 0
        assert fraction(seen, "gil", "running", "runnable") > 0.95

    until(judge)


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
        seen = watched(Roles(main=running.pid))
        assert fraction(seen, "parked") == pytest.approx(2 / 3, abs=0.06)
        assert fraction(seen, "asleep") == pytest.approx(1 / 3, abs=0.06)
        assert seen.voluntary_switches > 20

    until(judge)


@BUILDS
def test_sleepers_are_asleep_and_a_main_thread_that_works_is_watched(program: Program, build: str) -> None:
    code = """
    for _ in range(2): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    ready()
    sys.stdin.read()
    """
    running = program(build, code)
    aside = watched(Roles(main=running.pid), 0.2)
    assert fraction(aside, "asleep") > 0.99
    works = watched(Roles(main=running.pid, main_works=True), 0.2)
    assert works.span_s / works.watched_s == pytest.approx(3, rel=0.1)
    assert fraction(works, "process") == pytest.approx(1 / 3, abs=0.05)  # it reads our pipe


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
    seen = watched(Roles(main=running.pid, workers=tuple(running.told)), 0.2)
    assert fraction(seen, "process") > 0.99
    assert list(seen.cores) == ["main", "worker 0", "worker 1", "worker 2", "worker 3"]


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
        seen = watched(Roles(main=main.pid, servers={running.pid: "Manager"}, main_works=True))
        assert seen.cores["Manager"] * seen.watched_s == pytest.approx(running.ask("now") - began, rel=0.1)
        assert seen.cores["main"] < 0.01
        assert seen.span_s == pytest.approx(seen.watched_s, rel=0.05)  # a server's threads are not watched

    until(judge)


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
    seen = watched(Roles(main=program("3.14", code).pid), 0.8)
    # One waits all the time for one that sleeps; of a short one the part is missed that no account falls into.
    assert seen.parked_s == pytest.approx(seen.watched_s, rel=0.1)
    assert 0.2 * seen.watched_s < seen.asleep_s < 1.05 * seen.watched_s


def test_many_threads_take_turns_and_do_not_use_up_descriptors(program: Program) -> None:
    code = "for _ in range(300): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    running = program("3.14t", code + "\nready()\nsys.stdin.read()")
    before = len(os.listdir("/proc/self/fd"))
    watch = Watch(Roles(main=running.pid))
    watch.start()
    watch.run(1.0)
    assert len(os.listdir("/proc/self/fd")) - before <= 256
    seen = watch.finish()
    assert len(os.listdir("/proc/self/fd")) == before
    assert fraction(seen, "asleep") > 0.98
    assert 250 < seen.span_s / seen.watched_s <= 301
    assert seen.samples > 300


def test_a_process_that_ended_leaves_what_was_seen_of_it(program: Program) -> None:
    running = program("3.14", BUSY + "threading.Thread(target=busy, daemon=True).start()\nready()\nsys.stdin.read()")
    watch = Watch(Roles(main=running.pid))
    watch.start()
    watch.run(0.4)
    running.process.kill()
    watch.run(0.2)
    running.process.wait()
    watch.run(0.1)
    seen = watch.finish()
    assert 0.05 < seen.span_s < 0.55
    assert seen.cores["main"] > 0


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


class Told:
    """A reader of threads that are in the calls that the test says."""

    def __init__(self, calls: Mapping[int, bytes] = {}, links: Mapping[str, str] = {}) -> None:
        self.calls = dict(calls)
        self.links = {"exe": "/opt/bin/python3.14", **links}
        self.polled = b""
        self.asked: list[int] = []
        self.map_reads = 0
        self.costs_s: Callable[[float], None] = lambda seconds: None
        self.look_s = 0.0
        self.accounts: Callable[[int], Account] = lambda thread: Account(0, 0, 0, 0)

    def threads(self, pid: int) -> list[int]:
        return [thread for thread in self.calls if thread // 1000 == pid // 1000]

    def call(self, pid: int, thread: int) -> bytes | None:
        self.asked.append(thread)
        self.costs_s(self.look_s)
        return self.calls.get(thread)

    def account(self, pid: int, thread: int) -> Account | None:
        return self.accounts(thread)

    def cpu_s(self, pid: int) -> float | None:
        return 0.0

    def maps(self, pid: int) -> str:
        self.map_reads += 1
        return MAPS

    def link(self, pid: int, name: str) -> str:
        return self.links.get(name, "")

    def memory(self, pid: int, address: int, size: int) -> bytes:
        return self.polled[:size]

    def local_sockets(self, pid: int) -> frozenset[str]:
        return frozenset({"77"})

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
        (HEAP, 0x189, False, "parked"),
        (HEAP, 0x89, True, "parked"),
        (STACK + 0x40, 0x189, False, "parked"),
        (STACK + 0x40, 0x89, True, "parked"),
        (SHARED, 0x109, False, "process"),
        (SHARED, 0x109, True, "process"),
        (HEAP, 0x109, False, "parked"),
    ],
)
def test_what_a_futex_is(arch: str, address: int, operation: int, timeout: bool, meant: str) -> None:
    assert where(line(FUTEX[arch], address, operation, timeout=timeout), arch=arch) == meant


def test_the_heap_holds_a_gil_where_an_interpreter_has_its_own() -> None:
    sleepers = Sleepers(1, Told(), CALLS["x86_64"], own_gils=True)
    assert sleepers.where(line(202, HEAP + 64, 0x189)) == "parked"
    assert sleepers.where(line(202, HEAP, 0x89, timeout=True)) == "gil"
    assert sleepers.where(line(202, STACK + 64, 0x89, timeout=True)) == "parked"
    sleepers.forget()
    assert sleepers.where(line(202, HEAP + 64, 0x189)) == "gil"  # its second condition: the old holder waits there
    assert sleepers.where(line(202, HEAP + 4096, 0x189)) == "parked"


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
    reader.costs_s, reader.look_s = clock.work, look_s
    watch = Watch(Roles(main=1000), reader=reader, clock=clock, cost_clock=lambda: clock.cpu_s)
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
    watch = Watch(Roles(main=1000), reader=reader, clock=clock, cost_clock=lambda: clock.cpu_s)
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
    watch = Watch(Roles(main=1000), reader=reader, clock=clock, cost_clock=lambda: clock.cpu_s)
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
    assert seen.parked_s == pytest.approx(0.2, rel=0.05)
    assert seen.asleep_s == pytest.approx(0.2, rel=0.05)
    assert parts_of(seen) == pytest.approx(seen.span_s)
    assert seen.voluntary_switches == pytest.approx(100, abs=2)


# -- refused rather than guessed -----------------------------------------------------------------------------------


@BUILDS
def test_the_patterns_hold_on_both_builds(executables: dict[str, str], build: str) -> None:
    assert self_test(executables[build]) == ""


def test_they_hold_with_the_gil_switched_on(executables: dict[str, str]) -> None:
    assert self_test(executables["3.14t"], {"PYTHON_GIL": "1"}) == ""


def test_another_pattern_is_refused(executables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As if an interpreter's locks waited in another call: its threads seem asleep."""
    arch = platform.machine()
    monkeypatch.setitem(CALLS, arch, CALLS[arch]._replace(futex=-5))
    reason = self_test(executables["3.14"])
    assert "cannot be told apart" in reason
    assert "asleep" in reason


def test_an_interpreter_that_cannot_be_tested_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    script.chmod(0o755)
    assert "ended without an answer" in self_test(str(script))
    assert "does not run" in self_test(str(tmp_path / "none"))


def test_what_disagrees() -> None:
    assert disagrees("parked a lock", {"parked": 60}, gil=True) == ""
    assert disagrees("parked a lock", {"parked": 57, "running": 3}, gil=True) == ""
    assert "a lock (parked) was seen 60 times as gil" in disagrees("parked a lock", {"gil": 60}, gil=True)
    assert disagrees("busy two threads", {"gil": 20, "running": 40}, gil=True) == ""
    assert disagrees("busy two threads", {"running": 60}, gil=False) == ""
    assert "two threads" in disagrees("busy two threads", {"running": 60}, gil=True)
    assert "two threads" in disagrees("busy two threads", {"parked": 20, "gil": 10, "running": 30}, gil=True)
    assert "two threads" in disagrees("busy two threads", {"gil": 30, "running": 30}, gil=False)
    assert disagrees("asleep a sleep", {}, gil=False)


def test_a_watch_that_is_refused_does_nothing() -> None:
    reader = Told({1001: line(230)})
    watch = Watch(Roles(main=1000), refused="the patterns are others", reader=reader)
    watch.start()
    watch.step()
    assert watch.due_s == float("inf")
    assert watch.finish() == Waits(unavailable="the patterns are others")
    assert reader.asked == []


def test_what_may_not_be_read_is_refused_with_the_mend() -> None:
    reader = Told({1001: line(230)})

    def forbidden(seconds: float) -> None:
        raise PermissionError(1, "Operation not permitted", "/proc/1000/task/1001/syscall")

    reader.costs_s = forbidden
    watch = Watch(Roles(main=1000), reader=reader)
    watch.start()
    watch.run(0.01)
    seen = watch.finish()
    assert seen.span_s == 0
    assert "/proc/1000/task/1001/syscall may not be read" in seen.unavailable
    assert "ptrace_scope" in seen.unavailable


def test_another_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "riscv64" in waits.unsupported()
    assert "riscv64" in Watch(Roles(main=1)).finish().unavailable
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Linux does" in waits.unsupported()


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
    monkeypatch.setattr(waits, "VERSION", waits.VERSION + 1)
    assert patterns_hold("cpython-3.14.7-gil-1a", "python", folder, test=test) == ""
    assert test.count == 3
    monkeypatch.setattr(platform, "release", lambda: "99.1")
    assert patterns_hold("cpython-3.14.7-gil-1a", "python", folder, test=test) == ""
    assert test.count == 4


def test_a_refusal_is_kept_and_says_how_to_ask_again(tmp_path: Path) -> None:
    reason = disagrees("parked a lock", {"asleep": 60}, gil=True)
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
