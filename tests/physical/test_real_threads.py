"""What threads of real processes of both builds wait for, seen from outside."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from waits_seen import fraction, parts_of

from physical import Inconclusive, confirm
from pytest_ftgate.judge.readers import PAUSES_CROWDED
from pytest_ftgate.kit.proc import CALLS, Proc
from pytest_ftgate.measure.process_map import ProcessMap
from pytest_ftgate.measure.watch.threads import ThreadSampler, self_test, unsupported
from pytest_ftgate.model.sample import Waits
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


def workers_of(pid: int, **known: bool) -> ProcessMap:
    """All threads of a process are workers."""
    return ProcessMap(main=pid, threads=tuple(Proc().threads(pid)), **known)  # type: ignore[arg-type]


def watched(roles: ProcessMap, seconds: float = WINDOW_S, refused: str = "") -> Waits:
    watch = ThreadSampler(roles, refused=refused)
    watch.start()
    watch.run(seconds)
    seen = watch.finish()
    assert seen.unavailable == refused
    return seen


def median_gil_wait_ns(seen: Waits) -> float:
    counts = {bucket: round(weight * 1e6) for bucket, weight in seen.gil_waits.items()}
    return percentile(counts, min(1.0, 0.5 * (1 + seen.gil_unended / sum(seen.gil_waits.values()))))


def assert_one_runs(seen: Waits) -> None:
    """Of two threads with one GIL one runs and one waits, but for the time that other jobs took the cores from them."""
    taken = fraction(seen, "runnable")
    assert 0.45 - taken < fraction(seen, "running") < 0.55
    assert max(0.1, 0.45 - taken) < fraction(seen, "gil") < 0.55
    assert fraction(seen, "gil", "running", "runnable") > 0.95


# -- physical truths -----------------------------------------------------------------------------------------------


@BUILDS
def test_two_busy_threads_wait_for_the_gil_half_of_the_time_or_never(program: Program, build: str) -> None:
    code = "for _ in range(2): threading.Thread(target=busy, daemon=True).start()\nready()\nsys.stdin.read()"
    running = program(build, BUSY + code)

    def judge() -> None:
        seen = watched(workers_of(running.pid))
        if build == "3.14":
            assert_one_runs(seen)
        else:
            assert (fraction(seen, "gil"), seen.gil_waits, seen.gil_max_ns) == (0, {}, 0)
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
        seen = watched(workers_of(running.pid, own_gils=build == "3.14"))
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
        seen = watched(workers_of(running.pid))
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
        aside = watched(workers_of(running.pid), 0.2)
        assert fraction(aside, "asleep") > 0.99
        works = watched(workers_of(running.pid, main_works=True), 0.2)
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


def test_cores_are_what_the_process_says_itself(program: Program) -> None:
    running = program(
        "3.14",
        BUSY
        + """
threading.Thread(target=busy, daemon=True).start()
ready()
for _ in sys.stdin: ready(time.process_time())
""",
    )

    main = program("3.14", "ready()\nsys.stdin.read()")

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
        seen = watched(workers_of(running.pid), 0.8)
        assert seen.futex_s == pytest.approx(seen.watched_s, rel=0.1)
        assert seen.asleep_s == pytest.approx(seen.watched_s, rel=0.1)

    confirm(judge)


def test_threads_that_live_shorter_than_an_accounts_turn_are_seen(program: Program) -> None:
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
    running = program("3.14t", code)

    def judge() -> None:
        seen = watched(workers_of(running.pid))
        asleep, futex = (fraction(seen, name) for name in ("asleep", "futex"))
        assert asleep / (asleep + futex) == pytest.approx(0.8, abs=0.08)
        assert asleep + futex > 0.5  # the rest is for a core, on a machine that has others to serve
        assert seen.span_s == pytest.approx(5 * seen.watched_s, rel=0.15)
        assert seen.voluntary_switches > 20

    confirm(judge)


def test_without_patterns_the_scheduler_tells_what_it_knows(program: Program) -> None:
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
    running = program("3.14", code)

    def judge() -> None:
        began = running.ask("now")
        seen = watched(workers_of(running.pid), refused="the patterns are others")
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
        watch = ThreadSampler(workers_of(running.pid))
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
        watch = ThreadSampler(workers_of(running.pid))
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
    watch = ThreadSampler(workers_of(running.pid), refused="the patterns are others")
    watch.start()
    watch.run(0.05)
    running.process.kill()
    running.process.wait()
    watch.run(0.25)
    seen = watch.finish()
    assert seen.cores["main"] >= 0
    assert seen.span_s < seen.watched_s


# -- how long single waits for the GIL are -------------------------------------------------------------------------

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
        seen = watched(workers_of(running.pid), 2.0)
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


# -- whose threads -------------------------------------------------------------------------------------------------


def test_a_real_tree_is_found_and_followed(program: Program) -> None:
    running = program(
        "3.14t",
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
        # Two lives of two threads, and the main one, without the two that only waited from the start.
        assert seen.span_s == pytest.approx(3.6 * seen.watched_s, rel=0.25)
        assert fraction(seen, "process") + fraction(seen, "asleep") > 0.5

    confirm(judge)


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
        assert seen.span_s == pytest.approx(2 * seen.watched_s, rel=0.1)  # the thread that only waits is none of it
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
