"""Memory and leftovers of a process tree: on scripted processes, and on small real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeAlias

import psutil
import pytest

from pytest_ftgate import observe

MIB = 1 << 20
IDLE = "print(flush=True); input()"

Start: TypeAlias = "Callable[..., subprocess.Popen[str]]"
Script: TypeAlias = Callable[..., list[int]]


class FakeProcess:
    """What observe asks of a process."""

    def __init__(self, rss: int = 3 * MIB, uss: int = MIB, pss: int | None = 2 * MIB, looks: int = 10**9) -> None:
        self.rss, self.uss, self.pss, self.looks = rss, uss, pss, looks
        self.state: str = psutil.STATUS_RUNNING

    def memory_full_info(self) -> object:
        self.looks -= 1
        if self.looks < 0:
            raise psutil.NoSuchProcess(1)
        figures = {"rss": self.rss, "uss": self.uss} | ({} if self.pss is None else {"pss": self.pss})
        return SimpleNamespace(**figures)

    def status(self) -> str:
        return self.state


class FakeTime:
    """A clock that a sleep moves, and each look by `look_s`."""

    def __init__(self, look_s: float = 0.0) -> None:
        self.now = 0.0
        self.look_s = look_s
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def point_of(*processes: FakeProcess) -> Any:
    return observe.memory_point(list(processes))


@pytest.fixture
def trees(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Script what the tree is at each time that it is taken; the last stays."""

    def script(*found: list[FakeProcess]) -> list[int]:
        taken: list[int] = []

        def tree(pid: int) -> list[FakeProcess]:
            taken.append(pid)
            return found[min(len(taken), len(found)) - 1]

        monkeypatch.setattr(observe, "tree", tree)
        return taken

    return script


def watched(fake: FakeTime, seconds: float = 1.0, interval_s: float = 0.02) -> tuple[Any, ...]:
    return observe.watch_memory(7, seconds, interval_s, clock=fake.clock, sleep=fake.sleep)


# -- looks ---------------------------------------------------------------------------------------------------------


def test_a_look_is_the_sum_over_the_tree() -> None:
    point = point_of(FakeProcess(), FakeProcess(rss=5 * MIB, uss=4 * MIB, pss=3 * MIB))
    assert (point.rss_bytes, point.uss_bytes, point.pss_bytes, point.processes) == (8 * MIB, 5 * MIB, 5 * MIB, 2)


def test_pss_is_none_where_one_process_has_none() -> None:
    point = point_of(FakeProcess(), FakeProcess(pss=None))
    assert (point.uss_bytes, point.pss_bytes) == (2 * MIB, None)


@pytest.mark.parametrize("state", [psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD])
def test_a_look_at_a_process_that_ended_is_dropped_whole(state: str) -> None:
    dying = FakeProcess()
    assert point_of(FakeProcess(), dying) is not None
    dying.state = state
    assert point_of(FakeProcess(), dying) is None
    assert point_of(FakeProcess(), FakeProcess(looks=0)) is None


def test_nothing_to_look_at_is_no_look_of_zero_bytes() -> None:
    assert point_of() is None


def test_the_tree_is_taken_once_as_long_as_it_lives(trees: Script) -> None:
    taken = trees([FakeProcess(), FakeProcess()], [FakeProcess()])
    points = watched(FakeTime())
    assert taken == [7]
    assert {point.processes for point in points} == {2}
    assert len(points) == pytest.approx(50, abs=1)  # 1 s by looks 20 ms apart


def test_a_process_that_ends_costs_one_look(trees: Script) -> None:
    taken = trees([FakeProcess(), FakeProcess(looks=3)], [FakeProcess()])
    points = watched(FakeTime())
    assert taken == [7, 7]
    assert [point.processes for point in points[:5]] == [2, 2, 2, 1, 1]


def test_a_tree_that_is_gone_gives_no_look_and_the_watch_ends(trees: Script) -> None:
    trees([])
    fake = FakeTime()
    assert watched(fake) == ()
    assert fake.now == pytest.approx(1.0)


def test_looking_takes_a_small_share_of_the_time(trees: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    trees([FakeProcess()])
    fake = FakeTime()
    look = observe.memory_point

    def slow(processes: list[psutil.Process]) -> Any:
        fake.now += 0.01
        return look(processes)

    monkeypatch.setattr(observe, "memory_point", slow)
    points = watched(fake, 10.0)
    assert len(points) == pytest.approx(20, abs=1)  # 10 ms a look: one in 0.5 s is 2 %
    assert all(pause > 0.49 for pause in fake.slept[:-1])
    assert fake.now == pytest.approx(10.0, abs=0.02)


# -- real processes ------------------------------------------------------------------------------------------------


def started(code: str, mark: str | None = None, **how: Any) -> subprocess.Popen[str]:
    """A Python that has run `code` and printed a line."""
    environment = {**os.environ, **({observe.MARK: mark} if mark else {})}
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        **how,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def eventually(holds: Callable[[], bool], patience_s: float = 10.0) -> bool:
    """Whether it comes to hold."""
    ends = time.monotonic() + patience_s
    while not holds() and time.monotonic() < ends:
        time.sleep(0.01)
    return holds()


@pytest.fixture
def start() -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def begin(code: str, mark: str | None = None, **how: Any) -> subprocess.Popen[str]:
        processes.append(started(code, mark, **how))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", {child!r}], start_new_session={detached})
print(child.pid, flush=True)
input()
"""
CHILD = "import sys; sys.stdin.read()"  # ends with its parent's standard input


def parent(detached: bool) -> str:
    return PARENT.format(child=CHILD, detached=detached)


def test_the_tree_holds_the_children_and_their_memory(start: Start) -> None:
    alone, family = start(IDLE), start(parent(False))
    assert eventually(lambda: len(observe.tree(family.pid)) == 2)
    single, both = observe.tree(alone.pid), observe.tree(family.pid)
    assert [len(single), len(both)] == [1, 2]
    small, large = observe.memory_point(single), observe.memory_point(both)
    assert small is not None
    assert large is not None
    assert large.rss_bytes > small.rss_bytes > 0
    assert large.uss_bytes is not None
    assert 0 < large.uss_bytes <= large.rss_bytes


def test_a_tree_that_is_gone_is_empty(start: Start) -> None:
    process = start(IDLE)
    process.kill()
    process.wait()
    assert observe.tree(process.pid) == []


def test_what_left_the_process_group_is_found_by_its_mark_and_ended(
    start: Start,
) -> None:
    mark = next(observe.marks())
    process = start(parent(True), mark, start_new_session=True)
    assert eventually(lambda: len(observe.marked(mark)) == 2)
    (child,) = (found for found in observe.marked(mark) if found.pid != process.pid)
    assert os.getpgid(child.pid) != os.getpgid(process.pid)
    (line,) = observe.leftovers(process.pid, mark)
    assert line.startswith(f"{child.pid}: ")
    assert "sys.stdin.read()" in line
    observe.kill_all(process.pid, mark)
    process.wait()
    assert observe.marked(mark) == []
    assert observe.leftovers(process.pid, mark) == []


def test_ending_a_launch_that_is_gone_is_no_error(start: Start) -> None:
    mark = next(observe.marks())
    process = start(IDLE, mark, start_new_session=True)
    observe.kill_all(process.pid, mark)
    process.wait()
    observe.kill_all(process.pid, mark)


def test_another_launch_is_left_alone(start: Start) -> None:
    first, second = next(observe.marks()), next(observe.marks())
    mine = start(IDLE, first, start_new_session=True)
    other = start(IDLE, second, start_new_session=True)
    observe.kill_all(mine.pid, first)
    mine.wait()
    assert observe.marked(first) == []
    assert other.poll() is None
    assert eventually(lambda: [found.pid for found in observe.marked(second)] == [other.pid])


def test_multiprocessing_s_own_servers_are_no_leftovers(start: Start) -> None:
    mark = next(observe.marks())
    code = (
        "import multiprocessing.forkserver as f, multiprocessing.resource_tracker as r\n"
        "f.ensure_running(); r.ensure_running(); print(flush=True); input()"
    )
    process = start(code, mark, start_new_session=True)
    # A child that has just been forked shows no environment for a moment.
    assert eventually(lambda: len(observe.marked(mark)) == 3)
    assert observe.leftovers(process.pid, mark) == []
    assert len(observe.tree(process.pid)) == 2  # the resource tracker is no part of the workload
    observe.kill_all(process.pid, mark)


def test_marks_are_unlike() -> None:
    marks = [next(each) for each in (observe.marks(), observe.marks()) for _ in range(3)]
    assert len(set(marks)) == 6
    assert all(str(os.getpid()) in mark for mark in marks)
