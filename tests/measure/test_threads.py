"""How threads are watched and what they wait for, on scripted threads and clocks."""

from __future__ import annotations

import os
import platform
import random
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from gil_by_hand import Draw, Line, constant, exponential
from project import executable
from waits_seen import fraction, parts_of

from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.kit.proc import CALLS, Account, Calls, Proc, Slices
from pytest_ftgate.measure.process_map import ProcessMap
from pytest_ftgate.measure.watch import threads as self_test_module
from pytest_ftgate.measure.watch.system_calls import Sleepers, statics_end, writable_statics
from pytest_ftgate.measure.watch.threads import VERSION, ThreadSampler, disagrees, patterns_hold, self_test, unsupported
from pytest_ftgate.model.sample import Waits
from pytest_ftgate.stats.histogram import percentile

pytestmark = pytest.mark.skipif(bool(unsupported()), reason="only Linux tells")
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
MAIN = ProcessMap(main=1000, threads=tuple(range(1001, 1600)))
TREE = ProcessMap(main=1000, all_work=True)


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
        self.account_reads = 0
        self.accounts: Callable[[int], Account | None] = self.counted
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

    def counted(self, thread: int) -> Account:
        """Each thread ran a little since it was asked about."""
        self.account_reads += 1
        return Account(self.account_reads, 0, self.account_reads, 0)

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

    def read_memory(self, pid: int, address: int, size: int) -> bytes:
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


def no_header(at: int) -> bytes:
    return b""


def test_a_server_with_the_interpreter_as_a_library_has_the_gil_there() -> None:
    """Its own static memory holds locks of its own."""
    maps = MAPS.replace("/opt/bin/python3.14", "/usr/sbin/apache2")
    assert writable_statics(maps, "/usr/sbin/apache2", no_header) == [(0x7F0000100000, 0x7F0000200000)]
    alone = maps.replace("libpython3.14", "libexpat")
    assert writable_statics(alone, "/usr/sbin/apache2", no_header)[0] == (0x55D000200000, 0x55D000201000)
    assert len(writable_statics(MAPS, "/opt/bin/python3.14", no_header)) == 3


def test_memory_that_is_mapped_right_behind_the_library_is_none_of_it() -> None:
    """The kernel makes one range of both: Apache's threads that wait there for work do not wait for the GIL."""
    base, path = 0x7F0000000000, "/opt/lib/libpython3.14t.so.1.0"
    maps = (
        f"{base:x}-{base + 0x8000:x} r--p 00000000 00:00 1 {path}\n"
        f"{base + 0x8000:x}-{base + 0x9000:x} rw-p 00008000 00:00 1 {path}\n"
        f"{base + 0x9000:x}-{base + 0x90000:x} rw-p 00000000 00:00 0\n"
    )
    code = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 0x8000, 0x8000, 4096)
    statics = struct.pack("<IIQQQQQQ", 1, 6, 0x8000, 0x8000, 0x8000, 0x1000, 0x1F00, 4096)
    header = b"\x7fELF\x02".ljust(16, b"\0") + struct.pack("<HHIQQQIHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2)
    header = header.ljust(64, b"\0") + code + statics
    asked: list[int] = []

    def read(at: int) -> bytes:
        asked.append(at)
        return header

    assert writable_statics(maps, "/usr/sbin/apache2", read) == [
        (base + 0x8000, base + 0x9000),
        (base + 0x9000, base + 0x9F00),
    ]
    assert asked == [base]
    assert statics_end(header.replace(b"\x03\x00\x3e", b"\x02\x00\x3e"), base) == 0x9F00, "linked to its addresses"
    for broken in (b"", header[:20], b"#!/bin/sh" + header, header[:100]):
        assert statics_end(broken, base) == 0


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


def watch_of(reader: Told, clock: Clock, known: ProcessMap = MAIN, refused: str = "") -> ThreadSampler:
    watch = ThreadSampler(known, refused=refused, reader=reader, clock=clock, cost_clock=lambda: clock.cpu_s)
    watch.start()
    return watch


def watched(reader: Told, clock: Clock, known: ProcessMap = MAIN, seconds: float = 1.0, refused: str = "") -> Waits:
    watch = watch_of(reader, clock, known, refused)
    watch.run(seconds, clock.sleep)
    return watch.finish()


def paced(reader: Told, look_s: float = 0.0, seconds: float = 1.0) -> tuple[Clock, Waits]:
    clock = Clock()
    reader.costs_s, reader.pause_s = clock.work, look_s
    return clock, watched(reader, clock, seconds=seconds)


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
    watch = watch_of(reader, clock)
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
    watch = watch_of(reader, clock)
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
        ran_s = awake_s + 1e-3 * (now - began)  # none only sleeps
        return None if now >= ended else Account(int(ran_s * 1e9), 0, 1, 0)

    def watched(self, look_s: float = 0.0, account_s: float = 0.0, list_s: float = 0.0, seconds: float = 2.0) -> Waits:
        self.costs_s, self.pause_s, self.account_s, self.list_s = self.clock.work, look_s, account_s, list_s
        return watched(self, self.clock, seconds=seconds)


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


# -- how long single waits for the GIL are -------------------------------------------------------------------------


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
        watch = watch_of(self, self.clock)
        watch.run(seconds, self.sleep)
        return watch.finish()


@pytest.mark.parametrize(
    ("wait", "run_s", "interval_s"),
    [(constant(0.020), 0.005, 0.005), (constant(0.0012), 0.0003, 0.0003), (exponential(0.012), 0.004, 0.005)],
)
def test_the_lengths_of_waits_for_the_gil_at_twice_the_cost(wait: Draw, run_s: float, interval_s: float) -> None:
    rnd = random.Random(41)
    lines = [Line(rnd, wait, constant(run_s), 12.0, interval_s) for _ in range(5)]
    reader = Contended(lines)
    seen = reader.watched(10.0)
    assert reader.clock.cpu_s <= 0.045 * seen.watched_s  # with 1 % of arms and sleeps that are none of the looks'
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
    roles = ProcessMap(main=1000, workers=workers, threads=(1001, 1002, 2001), main_works=main_works)
    seen = watched(reader, clock, roles)
    assert set(reader.asked) == looked_at
    assert seen.span_s == pytest.approx(len(looked_at) * seen.watched_s)
    expected = {"main": 1.0} | {f"worker {index}": 2.0 + index for index in range(len(workers))}
    assert seen.cores == pytest.approx(expected)


@pytest.mark.parametrize(
    ("workers", "counted"),
    [
        (ProcessMap(main=1000, main_works=True, threads=()), {1000, 1002}),
        (ProcessMap(main=1000, threads=(1001, 1003)), {1001, 1002, 1003}),
        (ProcessMap(main=2000, workers=(1000,), threads=()), {1000, 1002}),
        (TREE, {1000, 1002, 1003}),
    ],
)
def test_a_thread_that_only_waits_counts_if_it_is_a_worker(workers: ProcessMap, counted: set[int]) -> None:
    """1001 never runs, as a library's idle one; 1002 works; 1003 is a heartbeat: of a foreign tree it counts.

    One that comes with the work counts in any case: the workload has started it.
    """
    reader, clock = Told({1000 + number: line(202, STACK, 0x189) for number in range(4)}), Clock()
    running = {1000: 0.0, 1001: 0.0, 1002: 0.5, 1003: 0.001, 1004: 0.0}
    reader.accounts = lambda thread: Account(round(running[thread] * (clock.now_s - 90.0) * 1e9), 0, 0, 0)
    watch = watch_of(reader, clock, workers)
    watch.run(0.5, clock.sleep)
    reader.calls[1004] = line(230)
    watch.run(0.5, clock.sleep)
    seen = watch.finish()
    assert seen.span_s == pytest.approx(len(counted) * seen.watched_s + 0.5, abs=0.02)
    assert seen.asleep_s == pytest.approx(0.5, abs=0.02)
    assert seen.running_s == pytest.approx(sum(running[thread] for thread in counted), abs=0.01)


def test_every_thread_of_a_tree_that_is_no_launch_of_ours_is_watched() -> None:
    """A server's: its first process, those that it started and theirs, with their main threads, but no tracker."""
    reader, clock = Told(dict.fromkeys((1000, 1001, 2000, 3000, 3001, 4000, 5000), line(230))), Clock()
    reader.below = {1000: (2000, 4000, 5000), 2000: (3000,)}
    reader.titles = {1000: "apache2", 2000: "apache2", 3000: "wsgi", 4000: "tracker", 5000: "wsgi"}
    reader.cpu = lambda pid: clock.now_s * pid / 10000
    seen = watched(reader, clock, TREE)
    assert set(reader.asked) == {1000, 1001, 2000, 3000, 3001, 5000}
    assert seen.span_s == pytest.approx(6 * seen.watched_s)
    assert list(seen.cores) == ["main", "child 0", "wsgi 0", "wsgi 1"]
    assert seen.cores == pytest.approx({"main": 0.1, "child 0": 0.2, "wsgi 0": 0.3, "wsgi 1": 0.5})


def test_processes_of_a_tree_come_and_go() -> None:
    reader, clock = Told(dict.fromkeys((1000, 2000), line(230))), Clock()
    reader.below, reader.titles = {1000: (2000,)}, {1000: "granian", 2000: "granian", 3000: "helper"}
    reader.cpu = lambda pid: clock.now_s if pid in reader.calls else None
    watch = watch_of(reader, clock, TREE)
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


# -- refused rather than guessed -----------------------------------------------------------------------------------


def test_an_interpreter_that_cannot_be_tested_is_refused(tmp_path: Path) -> None:
    assert "ended without an answer" in self_test(str(executable(tmp_path / "python", "exit 3")))
    assert "failed to run" in self_test(str(tmp_path / "none"))


def test_what_disagrees() -> None:
    assert disagrees("futex a lock", {"futex": 60}, gil=True) == ""
    assert disagrees("futex a lock", {"futex": 57, "running": 3}, gil=True) == ""
    assert "a lock (futex) was seen 60 times as gil" in disagrees("futex a lock", {"gil": 60}, gil=True)
    busy = "busy two threads"
    assert disagrees(busy, {"gil": 20, "running": 40}, gil=True) == disagrees(busy, {"running": 60}, gil=False) == ""
    assert "two threads" in disagrees(busy, {"running": 60}, gil=True)
    assert "two threads" in disagrees(busy, {"futex": 20, "gil": 10, "running": 30}, gil=True)
    assert "two threads" in disagrees(busy, {"gil": 30, "running": 30}, gil=False)
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
    seen = watched(reader, clock, refused="the patterns are others")
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
    seen = watched(births, births.clock, seconds=2.0, refused="x")
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
    seen = watched(reader, clock)
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
    seen = watched(reader, clock)
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
    assert reader.read_memory(os.getpid(), 0, 8) == b""
    assert len(os.listdir("/proc/self/fd")) == before + 1
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert isinstance(CALLS["x86_64"], Calls)
