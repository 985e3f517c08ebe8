"""Memory and leftovers of a process tree: on scripted processes, and on real ones of both builds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import psutil
import pytest
from bench import BUILDS

from physical import confirmed
from pytest_ftgate.kit import proc
from pytest_ftgate.kit import processes as processes_module
from pytest_ftgate.kit.killing import kill_all
from pytest_ftgate.kit.marks import MARK, marks, may_carry
from pytest_ftgate.kit.proc import FORKSERVER, children_of
from pytest_ftgate.kit.processes import leftovers, marked
from pytest_ftgate.measure import process_map
from pytest_ftgate.measure.process_map import ProcessMap
from pytest_ftgate.measure.watch import memory
from pytest_ftgate.measure.watch.memory import run_samplers
from pytest_ftgate.model.sample import Footprint, MemoryPoint

MIB = 1 << 20
PAGE = 4096
PID = 1 << 30  # above any that a system gives, so that nothing is read of a real process
IDLE = "print(flush=True); input()"

Start: TypeAlias = "Callable[..., subprocess.Popen[str]]"
Script: TypeAlias = Callable[..., list[int]]
MakeLooks: TypeAlias = "Callable[..., Looks]"
both_builds = pytest.mark.parametrize("build", BUILDS)
needs_rollup = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="no smaps_rollup here")


class FakeProcess:
    """What observe asks of a process."""

    def __init__(
        self,
        rss: int = 3 * MIB,
        uss: int = MIB,
        pss: int | None = 2 * MIB,
        looks: int = 10**9,
        pid: int = PID,
        ppid: int = 1,
        command: str = "python",
    ) -> None:
        self.rss, self.uss, self.pss, self.looks = rss, uss, pss, looks
        self.pid, self.parent, self.command = pid, ppid, command
        self.state: str = psutil.STATUS_RUNNING

    def memory_info(self) -> object:
        self.looks -= 1
        if self.looks < 0:
            raise psutil.NoSuchProcess(1)
        return SimpleNamespace(rss=self.rss)

    def memory_full_info(self) -> object:
        figures = {"rss": self.rss, "uss": self.uss} | ({} if self.pss is None else {"pss": self.pss})
        return SimpleNamespace(**figures)

    def status(self) -> str:
        return self.state

    def ppid(self) -> int:
        return self.parent


class LaterProcess(FakeProcess):
    """As psutil 8 has it: another name, without the RSS, and a warning for the old name."""

    def memory_footprint(self) -> object:
        return SimpleNamespace(uss=self.uss, pss=self.pss, swap=0)

    def memory_full_info(self) -> object:
        raise AssertionError("the deprecated name is asked")


class ClosedProcess(FakeProcess):
    """One whose pages the system does not let us see."""

    def memory_full_info(self) -> object:
        raise psutil.AccessDenied(self.pid)


class FakeTime:
    """A clock that a sleep moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Looks:
    """Looks that take `cost_s` each, or what it says of a look's number: the moments at which they began."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cost_s: Callable[[int], float] | float = 0.0) -> None:
        self.time = FakeTime()
        self.began: list[float] = []
        look = memory.memory_point

        def slow(processes: list[psutil.Process], roles: ProcessMap) -> MemoryPoint | None:
            self.began.append(self.time.now)
            self.time.now += cost_s(len(self.began)) if callable(cost_s) else cost_s
            return look(processes, roles)

        monkeypatch.setattr(memory, "memory_point", slow)

    def watched(self, seconds: float, interval_s: float = 0.02, workers: tuple[int, ...] = ()) -> memory.MemorySampler:
        clock = self.time.clock
        known = ProcessMap(main=PID, workers=workers)
        sampler = memory.MemorySampler(known, interval_s, clock=clock, cost_clock=clock)
        sampler.start()
        run_samplers(seconds, [sampler], self.time.clock, self.time.sleep)
        return sampler

    @property
    def gaps(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.began, self.began[1:], strict=False)]


ALONE = ProcessMap(main=PID)


def point_of(*processes: FakeProcess, roles: ProcessMap = ALONE) -> MemoryPoint | None:
    return memory.memory_point(list(processes), roles)


def surely(point: MemoryPoint | None) -> MemoryPoint:
    assert point is not None
    return point


@pytest.fixture
def trees(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Script what the tree is at each time that it is taken; the last stays."""

    def script(*found: list[FakeProcess]) -> list[int]:
        taken: list[int] = []

        def tree(pid: int) -> list[FakeProcess]:
            taken.append(pid)
            return found[min(len(taken), len(found)) - 1]

        monkeypatch.setattr(processes_module, "tree", tree)
        monkeypatch.setattr(proc, "children_of", lambda pids: set())
        return taken

    return script


@pytest.fixture
def looks_at(trees: Script, monkeypatch: pytest.MonkeyPatch) -> MakeLooks:
    """Looks at what the tree is at each time that it is taken: one process, unless others are named."""

    def made(cost_s: Callable[[int], float] | float = 0.0, *found: list[FakeProcess]) -> Looks:
        trees(*(found or ([FakeProcess()],)))
        return Looks(monkeypatch, cost_s)

    return made


# -- looks ---------------------------------------------------------------------------------------------------------


def test_a_look_is_the_sum_over_the_tree() -> None:
    point = surely(point_of(FakeProcess(), FakeProcess(rss=5 * MIB, uss=4 * MIB, pss=3 * MIB)))
    assert (point.rss_bytes, point.uss_bytes, point.pss_bytes, point.processes) == (8 * MIB, 5 * MIB, 5 * MIB, 2)


@pytest.mark.parametrize(
    ("process", "role"),
    [
        (FakeProcess(pid=PID), "main"),
        (FakeProcess(pid=PID + 1), "workers"),
        (FakeProcess(pid=PID + 2), "servers"),
        (FakeProcess(pid=PID + 3, ppid=PID, command=FORKSERVER), "servers"),
        (FakeProcess(pid=PID + 1, ppid=PID + 3, command=FORKSERVER), "workers"),
        (FakeProcess(pid=PID + 4, ppid=PID + 3, command=FORKSERVER), "others"),
        (FakeProcess(pid=PID + 5, ppid=PID), "others"),
    ],
)
def test_each_process_has_its_role(process: FakeProcess, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_map, "runs", lambda _, server: server in process.command)
    point = surely(point_of(process, roles=ProcessMap(main=PID, workers=(PID + 1,), servers={PID + 2: "Manager"})))
    assert list(point.roles) == [role]


def test_a_look_is_the_sum_by_role_too() -> None:
    family = [FakeProcess(), FakeProcess(pid=PID + 1), FakeProcess(pid=PID + 2, uss=2 * MIB), FakeProcess(pid=PID + 3)]
    point = surely(point_of(*family, roles=ProcessMap(main=PID, workers=(PID + 1, PID + 2))))
    assert {role: part.uss_bytes for role, part in point.roles.items()} == {
        "main": MIB,
        "workers": 3 * MIB,
        "others": MIB,
    }
    assert sum(part.rss_bytes for part in point.roles.values()) == point.rss_bytes
    assert sum(part.processes for part in point.roles.values()) == point.processes == 4


def test_pss_is_none_where_one_process_has_none() -> None:
    point = surely(point_of(FakeProcess(), FakeProcess(pid=PID + 1, pss=None)))
    assert (point.uss_bytes, point.pss_bytes) == (2 * MIB, None)
    assert point.roles["main"].pss_bytes == 2 * MIB


def test_psutil_8_is_asked_by_its_own_name() -> None:
    point = surely(point_of(LaterProcess()))
    assert (point.rss_bytes, point.uss_bytes, point.pss_bytes) == (3 * MIB, MIB, 2 * MIB)


def test_what_the_system_hides_is_not_zero() -> None:
    point = surely(point_of(FakeProcess(), ClosedProcess(pid=PID + 1)))
    assert (point.rss_bytes, point.uss_bytes, point.pss_bytes) == (6 * MIB, None, None)


def test_each_figure_is_the_sum_of_the_kernels_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "memory_kib", lambda pid: OF_KERNEL)
    monkeypatch.setattr(proc, "children_of", lambda pids: set())
    point = surely(point_of(FakeProcess()))
    figures = (point.rss_bytes, point.pss_bytes, point.written_bytes, point.uss_bytes)
    assert figures == (100 << 10, 60 << 10, 12 << 10, 19 << 10)


@pytest.mark.parametrize("state", [psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD])
def test_a_look_at_a_process_that_ended_is_dropped_whole(state: str) -> None:
    dying = FakeProcess()
    assert point_of(FakeProcess(), dying) is not None
    dying.state = state
    assert point_of(FakeProcess(), dying) is None
    assert point_of(FakeProcess(), FakeProcess(looks=0)) is None


def test_nothing_to_look_at_is_no_look_of_zero_bytes() -> None:
    assert point_of() is None


def test_the_main_process_is_never_a_look_of_zero_bytes() -> None:
    assert point_of(FakeProcess(uss=0), FakeProcess(pid=PID + 1)) is None
    assert point_of(FakeProcess(), FakeProcess(pid=PID + 1, uss=0)) is not None


@pytest.mark.parametrize(
    ("family", "known", "holds"),
    [
        (proc.Family(0.01, True), {}, False),  # forked, perhaps to run a program
        (proc.Family(0.01, False), {}, True),  # runs one
        (proc.Family(0.2, True), {}, True),  # would run it by now
        (None, {}, True),  # another system
        (proc.Family(0.01, True), {"workers": (PID + 1,)}, True),
        (proc.Family(0.01, True), {"servers": {PID + 1: "Manager"}}, True),
        (proc.Family(0.01, True), {"workers": (PID + 1,), "all_work": True}, False),
    ],
)
def test_a_look_at_a_process_that_may_be_replaced_is_dropped(
    monkeypatch: pytest.MonkeyPatch, family: proc.Family | None, known: dict[str, Any], holds: bool
) -> None:
    monkeypatch.setattr(proc, "family", lambda pid: family if pid == PID + 1 else proc.Family(60.0, False))
    point = point_of(FakeProcess(), FakeProcess(pid=PID + 1), roles=ProcessMap(main=PID, **known))
    assert (point is not None) is holds


OF_KERNEL = {"Rss": 100, "Pss": 60, "Private_Dirty": 10, "Private_Clean": 7, "Private_Hugetlb": 2, "Shared_Dirty": 1}


@pytest.mark.parametrize(
    ("shares", "came", "waited", "holds"),
    [
        ((0, 0), 0.0, True, True),
        ((1, 0), False, False, True),
        ((1, 0), 0.0, False, False),
        ((0, 1), 0.0, False, False),
        ((1, 0), False, True, False),
        ((0, 1), False, True, False),
        ((1, 0), None, False, True),  # it is gone again
        ((1, 0), 60.0, False, True),  # it was there before
    ],
)
def test_a_look_that_shares_with_a_child_that_came_or_went_meanwhile_is_dropped(
    monkeypatch: pytest.MonkeyPatch, shares: tuple[int, int], came: Any, waited: bool, holds: bool
) -> None:
    kernel = {PID: shares[0], PID + 1: shares[1]}
    asked: Counter[int] = Counter()

    def family(pid: int) -> proc.Family | None:
        asked[pid] += 1
        if pid == PID + 2:
            return came if came is None else proc.Family(came, False, 0)
        return proc.Family(60.0, False, waited * (pid == PID and asked[pid] > 1))

    monkeypatch.setattr(proc, "memory_kib", lambda pid: {**OF_KERNEL, "Shared_Dirty": kernel[pid]})
    monkeypatch.setattr(proc, "children_of", lambda pids: set() if came is False else {PID + 2})
    monkeypatch.setattr(proc, "family", family)
    assert (point_of(FakeProcess(), FakeProcess(pid=PID + 1)) is not None) is holds


# -- the pages that forked processes share -----------------------------------------------------------------------------

LOW, HIGH = 1000, 2000  # addresses; a mapping has its bounds, and shared, private and anonymous KiB


@pytest.mark.parametrize(
    ("parents", "own", "kib"),
    [
        ([(LOW, HIGH, 60, 0, 100)], [(LOW, HIGH, 60, 40, 100)], 40),  # it has written to 40 of 100
        ([(LOW, HIGH, 100, 0, 100)], [(LOW, HIGH, 100, 40, 140)], 0),  # it has allocated 40 afresh
        ([(LOW, HIGH, 70, 0, 100)], [(LOW, HIGH, 70, 60, 130)], 30),  # 30 of 60
        ([(LOW, HIGH, 60, 0, 100)], [(LOW, HIGH, 60, 0, 60)], 0),  # it has freed 40
        ([(LOW, HIGH, 0, 100, 100)], [(HIGH, 3000, 0, 100, 100)], 0),  # elsewhere
        ([(LOW, HIGH, 60, 0, 100)], [(LOW, 1500, 30, 20, 50), (1500, HIGH, 30, 20, 50)], 40),  # it was split
        ([(500, 1200, 60, 0, 80), (1200, HIGH, 0, 0, 20)], [(LOW, 3000, 60, 70, 130)], 40),  # it has grown
        ([(0, 9, 0, 0, 9), (LOW, HIGH, 0, 0, 9)], [(0, 9, 0, 9, 9), (LOW, HIGH, 0, 9, 9)], 18),
        ([(LOW, HIGH, 5, 0, 3)], [(LOW, HIGH, 5, 7, 12)], 0),  # the parent has freed what it shared
    ],
)
def test_what_a_forked_process_wrote_to_counts_and_what_it_has_allocated_does_not(
    trees: Script, monkeypatch: pytest.MonkeyPatch, parents: Any, own: Any, kib: int
) -> None:
    trees([FakeProcess(), FakeProcess(pid=PID + 1, ppid=PID)])
    monkeypatch.setattr(proc, "private_mappings", {PID: parents, PID + 1: own}.__getitem__)
    monkeypatch.setattr(proc, "family", lambda pid: proc.Family(60.0, pid != PID))
    point = surely(point_of(FakeProcess()))
    assert memory.with_unshared(point, ALONE).unshared_bytes == kib << 10


def test_each_forked_process_is_compared_with_its_own_parent(trees: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    point, asked = surely(point_of(FakeProcess())), list[int]()
    # A server of the launch that runs a program of its own, its two children, and a child of one of them.
    family = [(PID + 1, PID), (PID + 2, PID + 1), (PID + 3, PID + 1), (PID + 4, PID + 3)]
    trees([FakeProcess(), *(FakeProcess(pid=pid, ppid=ppid) for pid, ppid in family)])

    def mappings(pid: int) -> list[tuple[int, int, int, int, int]]:
        asked.append(pid)
        return [(LOW, HIGH, 0, 1 << (pid - PID), 1000)]

    monkeypatch.setattr(proc, "private_mappings", mappings)
    monkeypatch.setattr(proc, "family", lambda pid: proc.Family(60.0, pid > PID + 1))
    assert memory.with_unshared(point, ALONE).unshared_bytes == (4 + 8 + 16) << 10
    assert sorted(asked) == [PID + 1, PID + 2, PID + 3, PID + 4], "each is read once, and who shares nothing never"


@pytest.mark.parametrize(
    "family",
    [
        None,  # another system
        proc.Family(60.0, False),  # it runs a program of its own
        proc.Family(0.01, True),  # perhaps by vfork, with all memory of its parent
    ],
)
def test_without_a_forked_process_none_is_said(
    trees: Script, monkeypatch: pytest.MonkeyPatch, family: proc.Family | None
) -> None:
    trees([FakeProcess(), FakeProcess(pid=PID + 1, ppid=PID)])
    monkeypatch.setattr(proc, "family", lambda pid: family)
    monkeypatch.setattr(proc, "private_mappings", lambda pid: [(LOW, HIGH, 0, 100, 100)])
    assert memory.with_unshared(surely(point_of(FakeProcess())), ALONE).unshared_bytes is None


@pytest.mark.parametrize("error", [PermissionError(), ProcessLookupError(), psutil.NoSuchProcess(PID)])
def test_of_mappings_that_cannot_be_read_nothing_is_said(
    trees: Script, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refused(pid: int) -> list[tuple[int, int, int, int, int]]:
        raise error

    trees([FakeProcess(), FakeProcess(pid=PID + 1, ppid=PID)])
    monkeypatch.setattr(proc, "family", lambda pid: proc.Family(60.0, pid != PID))
    monkeypatch.setattr(proc, "private_mappings", refused)
    assert memory.with_unshared(surely(point_of(FakeProcess())), ALONE).unshared_bytes is None


@needs_rollup
def test_the_private_mappings_of_a_process_have_what_it_has_written_to() -> None:
    whole, own = proc.memory_kib(os.getpid()), proc.private_mappings(os.getpid())
    assert all(start < stop for start, stop, *_ in own)
    assert sum(private for *_, private, _ in own) == pytest.approx(whole["Private_Dirty"], rel=0.2)


# -- a look at rest ------------------------------------------------------------------------------------------------


class Falling(FakeProcess):
    """One whose memory, or only what is its own of it, shrinks by `step` at each of the first `times` looks."""

    def __init__(self, step: int, times: int, own: bool = False) -> None:
        super().__init__()
        self.step, self.times, self.own = step, times, own

    def memory_info(self) -> object:
        if self.times > 0:
            self.times -= 1
            self.rss -= 0 if self.own else self.step
            self.uss -= self.step
        return super().memory_info()


@pytest.mark.parametrize("own", [False, True])
def test_a_barrier_waits_until_memory_is_at_rest(trees: Script, own: bool) -> None:
    process = Falling(8 * PAGE, 3, own)
    trees([process])
    fake = FakeTime()
    point = memory.barrier_point(ProcessMap(main=PID), sleep=fake.sleep)
    assert point.rss_bytes == 3 * MIB - (0 if own else 24 * PAGE)
    assert point.uss_bytes == MIB - 24 * PAGE
    assert len(fake.slept) == 3  # the third look is the first at rest, the fourth says so


def test_a_page_a_process_is_at_rest(trees: Script) -> None:
    trees([Falling(PAGE, 1000)])
    fake = FakeTime()
    assert memory.barrier_point(ProcessMap(main=PID), sleep=fake.sleep).rss_bytes == 3 * MIB - 2 * PAGE
    assert len(fake.slept) == 1
    trees([Falling(PAGE, 1000), Falling(PAGE, 1000)])
    assert memory.barrier_point(ProcessMap(main=PID), sleep=fake.sleep).rss_bytes == 6 * MIB - 4 * PAGE


def test_a_barrier_that_agrees_with_the_one_before_is_looked_at_once(trees: Script) -> None:
    trees([FakeProcess()])
    before = memory.barrier_point(ProcessMap(main=PID), sleep=FakeTime().sleep)
    for process, slept in ((Falling(PAGE, 1), 0), (Falling(2 * PAGE, 1), 1), (Falling(8 * PAGE, 3), 3)):
        trees([process])
        fake = FakeTime()
        memory.barrier_point(ProcessMap(main=PID), before, sleep=fake.sleep)
        assert len(fake.slept) == slept
    trees([FakeProcess(), FakeProcess()])
    fake = FakeTime()
    memory.barrier_point(ProcessMap(main=PID), before, sleep=fake.sleep)
    assert fake.slept, "another number of processes"
    trees([])
    with pytest.raises(ProcessLookupError, match="of the launch cannot be sampled"):
        memory.barrier_point(ProcessMap(main=PID), before, sleep=FakeTime().sleep)


def test_memory_that_never_rests_is_looked_at_eight_times(trees: Script) -> None:
    trees([Falling(8 * PAGE, 1000)])
    fake = FakeTime()
    assert memory.barrier_point(ProcessMap(main=PID), sleep=fake.sleep).rss_bytes == 3 * MIB - 64 * PAGE
    assert len(fake.slept) == 8


def test_a_barrier_sees_those_that_are_there_in_the_end(trees: Script) -> None:
    trees([FakeProcess(), FakeProcess(pid=PID + 1, looks=0)], [FakeProcess()])
    assert memory.barrier_point(ProcessMap(main=PID), sleep=FakeTime().sleep).processes == 1


def test_a_barrier_of_a_tree_that_is_gone_says_so(trees: Script) -> None:
    trees([])
    with pytest.raises(ProcessLookupError, match="of the launch cannot be sampled"):
        memory.barrier_point(ProcessMap(main=PID), sleep=FakeTime().sleep)


# -- looks over time -----------------------------------------------------------------------------------------------


def test_the_tree_is_taken_once_as_long_as_it_lives(trees: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = trees([FakeProcess(), FakeProcess()], [FakeProcess()])
    points = Looks(monkeypatch).watched(1.0).points
    assert taken == [PID]
    assert {point.processes for point in points} == {2}
    assert len(points) == pytest.approx(50, abs=1)  # 1 s by looks 20 ms apart


def test_a_process_that_ends_costs_one_look(trees: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = trees([FakeProcess(), FakeProcess(looks=3)], [FakeProcess()])
    points = Looks(monkeypatch).watched(1.0).points
    assert taken == [PID, PID]
    assert [point.processes for point in points[:5]] == [2, 2, 2, 1, 1]


@pytest.mark.parametrize(("others", "holds"), [(0, False), (1, True)])
def test_a_look_that_misses_a_worker_is_dropped(looks_at: MakeLooks, others: int, holds: bool) -> None:
    # One that came in a worker's place is as good: pools replace theirs.
    tree = [FakeProcess(), *(FakeProcess(pid=PID + pid) for pid in (1, 2)[: 1 + others])]
    sampler = looks_at(0.0, tree).watched(1.0, workers=(PID + 1, PID + 3))
    assert bool(sampler.points) is holds
    assert bool(sampler.dropped) is not holds


def test_a_tree_that_is_gone_gives_no_look_and_the_watch_ends(looks_at: MakeLooks) -> None:
    looks = looks_at(0.0, [])
    assert looks.watched(1.0).points == []
    assert looks.time.now == pytest.approx(1.0)


def share_of(sampler: memory.MemorySampler) -> float:
    """The share of the time that its looks took."""
    return sampler.spent_s / (sampler.clock() - sampler._began)


def test_a_look_that_is_dropped_is_counted_and_soon_repeated(looks_at: MakeLooks) -> None:
    looks = looks_at(0.001, *[[FakeProcess(looks=0)] for _ in range(6)], [FakeProcess()])
    sampler = looks.watched(1.0)
    assert sampler.dropped == 6
    assert looks.gaps[:6] == pytest.approx([0.001] * 6)  # until there is one sample; then 2 % of the time
    assert len(sampler.points) == 14
    assert share_of(sampler) <= 0.02
    none = looks_at(0.001, [FakeProcess(looks=0)])
    assert not none.watched(10.0).points
    assert none.gaps[: memory._RETRIES] == pytest.approx([0.001] * memory._RETRIES)
    assert none.gaps[memory._RETRIES] > 1


@pytest.mark.parametrize(("cost_s", "apart_s"), [(0.0001, 0.02), (0.001, 0.05), (0.008, 0.4)])
def test_looking_takes_2_percent_of_the_time(looks_at: MakeLooks, cost_s: float, apart_s: float) -> None:
    looks = looks_at(cost_s)
    looks.time.now = 50.0
    sampler = looks.watched(10.0)
    assert share_of(sampler) <= 0.02
    assert looks.gaps[1:] == pytest.approx([apart_s] * (len(looks.gaps) - 1))
    assert len(sampler.points) >= 10.0 / apart_s - 1


def test_a_look_that_gets_dearer_is_taken_more_rarely(looks_at: MakeLooks) -> None:
    looks = looks_at(lambda look: 0.001 * 1.1**look)
    sampler = looks.watched(10.0)
    # A look is reckoned with what the last ones cost: the last look alone can be dearer than that, here by a tenth.
    assert share_of(sampler) <= 0.02 + 0.1 * sampler.cost_s / looks.time.now
    assert all(later > earlier for earlier, later in zip(looks.gaps[1:], looks.gaps[2:], strict=False))
    assert len(sampler.points) > 20


def test_one_dear_look_is_paid_back_by_a_pause(looks_at: MakeLooks) -> None:
    looks = looks_at(lambda look: 0.05 if look == 10 else 0.001)
    sampler = looks.watched(10.0)
    assert share_of(sampler) <= 0.02
    assert looks.gaps[9] > 2.0
    assert looks.gaps[-1] == pytest.approx(0.05)


def test_a_look_costs_what_the_dearest_of_the_last_three_did(looks_at: MakeLooks) -> None:
    sampler = looks_at(lambda look: 0.05 if look == 2 else 0.001).watched(0.0)
    found = []
    for _ in range(5):
        sampler.step()
        found.append(sampler.cost_s)
    assert found == pytest.approx([0.001, 0.05, 0.05, 0.05, 0.001])


@pytest.mark.parametrize("cost_s", [0.001, 0.008, 0.015])
def test_a_hold_as_long_as_needed_has_three_looks_for_2_percent(looks_at: MakeLooks, cost_s: float) -> None:
    sampler = looks_at(cost_s).watched(memory.hold_needed_s(cost_s) * 1.001)
    assert len(sampler.points) in (3, 4)
    assert share_of(sampler) <= 0.02 * 4 / 3


def test_the_longest_hold_has_fewer_looks_and_not_dearer_ones(looks_at: MakeLooks) -> None:
    assert memory.hold_needed_s(0.05) == memory.LONGEST_HOLD_S == 5.0
    sampler = looks_at(0.04).watched(memory.hold_needed_s(0.04))
    assert len(sampler.points) == 2
    assert share_of(sampler) <= 0.02


def test_a_look_costs_what_it_takes_of_the_cpu_however_long_a_busy_machine_makes_it_wait(looks_at: MakeLooks) -> None:
    looks = looks_at(0.008)
    sampler = memory.MemorySampler(ProcessMap(main=PID), clock=looks.time.clock, cost_clock=lambda: looks.time.now / 20)
    sampler.start()
    run_samplers(0.2, [sampler], looks.time.clock, looks.time.sleep)
    assert sampler.cost_s == pytest.approx(0.0004)
    assert len(sampler.points) == 10


def test_one_look_there_is_however_short_the_hold(looks_at: MakeLooks) -> None:
    sampler = looks_at(0.008).watched(0.1)
    assert len(sampler.points) == 1
    assert sampler.cost_s == pytest.approx(0.008)


class Ticking:
    """Another sampler, due every `period_s`."""

    def __init__(self, time: FakeTime, period_s: float, cost_s: float) -> None:
        self.time, self.period_s, self.cost_s = time, period_s, cost_s
        self.next = 0.0
        self.ticks = 0

    @property
    def due_s(self) -> float:
        return self.next - self.time.now

    def step(self) -> None:
        self.next = self.time.now + self.period_s
        self.time.now += self.cost_s
        self.ticks += 1


def test_a_tree_that_grows_is_taken_again(trees: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    main, late = FakeProcess(), FakeProcess(pid=PID + 1)
    trees([main], [main, late])
    taken, tree = [], processes_module.tree

    def seen(pid: int) -> list[psutil.Process]:
        taken.append(pid)
        return tree(pid)

    monkeypatch.setattr(processes_module, "tree", seen)
    children = iter([set(), set(), {PID + 1, PID + 2}])  # of the two that come one is left out, as a tracker is
    monkeypatch.setattr(proc, "children_of", lambda pids: next(children, {PID + 1, PID + 2}))
    fake = FakeTime()
    sampler = memory.MemorySampler(ProcessMap(main=PID), clock=fake.clock, cost_clock=fake.clock)
    sampler.start()
    for _ in range(6):
        sampler.step()
    assert [point.processes for point in sampler.points] == [1, 1, 2, 2, 2, 2]
    assert len(taken) == 2


def test_samplers_share_one_loop(looks_at: MakeLooks) -> None:
    looks = looks_at(0.001)
    sampler = memory.MemorySampler(ProcessMap(main=PID), clock=looks.time.clock, cost_clock=looks.time.clock)
    sampler.start()
    ticking = Ticking(looks.time, 0.005, 0.0001)
    run_samplers(2.0, [sampler, ticking], looks.time.clock, looks.time.sleep)
    assert ticking.ticks == pytest.approx(400, rel=0.05)
    assert len(sampler.points) == pytest.approx(40, abs=3)
    assert looks.time.now == pytest.approx(2.0, abs=0.002)


def test_without_samplers_a_watch_is_a_sleep() -> None:
    fake = FakeTime()
    run_samplers(0.5, [], fake.clock, fake.sleep)
    assert fake.slept == [0.5]
    run_samplers(0.5, [Ticking(fake, 10.0, 0.0)], fake.clock, fake.sleep)
    assert fake.slept == [0.5, 0.5], "nor does it wait for a sample that comes after its end"


def test_what_a_sample_costs_is_cpu_time(trees: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    trees([FakeProcess()])
    monkeypatch.setattr(memory, "tree", processes_module.tree)
    monkeypatch.setattr(time, "thread_time", iter([7.0, 7.25]).__next__)
    assert memory.sample_cost_s(ProcessMap(main=PID)) == 0.25


# -- real processes ------------------------------------------------------------------------------------------------


def told(process: subprocess.Popen[str]) -> str:
    """Let it go on to where it says the next line."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go on\n")
    process.stdin.flush()
    return process.stdout.readline()


def at_rest(process: subprocess.Popen[str], **known: object) -> MemoryPoint:
    return memory.barrier_point(ProcessMap(main=process.pid, **known))  # type: ignore[arg-type]


def eventually(holds: Callable[[], bool], patience_s: float = 10.0) -> bool:
    """Whether it comes to hold."""
    ends = time.monotonic() + patience_s
    while not holds() and time.monotonic() < ends:
        time.sleep(0.01)
    return holds()


@pytest.fixture
def start() -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def begin(
        code: str, mark: str | None = None, python: str = sys.executable, start_new_session: bool = False
    ) -> subprocess.Popen[str]:
        """A Python that has run `code` and printed a line."""
        process = subprocess.Popen(
            [python, "-S", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **({MARK: mark} if mark else {})},
            start_new_session=start_new_session,
        )
        processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

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


@pytest.mark.skipif(not os.path.exists(f"/proc/self/task/{os.getpid()}/children"), reason="no list of children")
def test_the_kernel_tells_the_children_of_processes(start: Start) -> None:
    family = start(parent(False))
    assert eventually(lambda: len(processes_module.tree(family.pid)) == 2)
    _, child = [process.pid for process in processes_module.tree(family.pid)]
    assert children_of([family.pid]) == children_of([family.pid, child]) == {child}
    assert children_of([child]) == set()
    family.kill()
    family.wait()
    assert children_of([family.pid]) is None


@confirmed
def test_the_tree_holds_the_children_and_their_memory(start: Start) -> None:
    alone, family = start(IDLE), start(parent(False))
    assert eventually(lambda: len(processes_module.tree(family.pid)) == 2)
    single, both = processes_module.tree(alone.pid), processes_module.tree(family.pid)
    assert [len(single), len(both)] == [1, 2]
    small = surely(memory.memory_point(single, ProcessMap(main=alone.pid)))
    large = surely(memory.memory_point(both, ProcessMap(main=family.pid)))
    assert {role: part.processes for role, part in large.roles.items()} == {"main": 1, "others": 1}
    assert large.rss_bytes > small.rss_bytes > 0
    assert large.uss_bytes is not None
    assert 0 < large.uss_bytes <= large.rss_bytes


ZOMBIE = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", ""])
print(flush=True); input()
"""


def test_a_child_that_has_ended_but_was_not_waited_for_is_not_in_the_tree(start: Start) -> None:
    family = start(ZOMBIE)
    assert eventually(lambda: [found.status() for found in psutil.Process(family.pid).children()] == ["zombie"])
    assert len(processes_module.tree(family.pid)) == 1
    assert at_rest(family).processes == 1


TOUCH = {
    "mmap": "kept = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)",
    "bytearray": "kept = bytearray(64 << 20)",
}
TOUCHING = """
import mmap
pages = 64 << 8
print(flush=True); input()
{take}
kept[::4096] = b"x" * pages
print(flush=True); input()
{drop}
print(flush=True); input()
"""


@both_builds
@pytest.mark.parametrize("kind", TOUCH)
@needs_rollup
@confirmed
def test_64_mib_touched_are_64_mib(start: Start, executables: dict[str, str], build: str, kind: str) -> None:
    drop = "kept.close()" if kind == "mmap" else "del kept"
    child = start(TOUCHING.format(take=TOUCH[kind], drop=drop), python=executables[build])
    before = at_rest(child)
    told(child)
    after = at_rest(child)
    for field in ("rss_bytes", "uss_bytes", "pss_bytes"):
        assert getattr(after, field) - getattr(before, field) == pytest.approx(64 * MIB, rel=0.03), field
    told(child)
    rest = at_rest(child)
    if kind == "mmap":
        assert rest.rss_bytes == pytest.approx(before.rss_bytes, abs=MIB)


@both_builds
@needs_rollup
@confirmed
def test_looks_at_rest_agree(start: Start, executables: dict[str, str], build: str) -> None:
    child = start(IDLE, python=executables[build])
    looks = [at_rest(child) for _ in range(5)]
    written = [unique(look) for look in looks]
    assert max(written) - min(written) <= PAGE


@both_builds
@needs_rollup
@confirmed
def test_who_else_runs_the_interpreter_makes_no_difference_to_what_was_written(
    start: Start, executables: dict[str, str], build: str
) -> None:
    alone = start(IDLE, python=executables[build])
    before = at_rest(alone)
    others = [start(IDLE, python=executables[build]) for _ in range(2)]
    after = at_rest(alone)
    assert len(others) == 2
    assert unique(after) == pytest.approx(unique(before), abs=PAGE)
    assert (after.uss_bytes or 0) <= (before.uss_bytes or 0) + PAGE
    assert unique(after) <= (after.uss_bytes or 0)
    for process in (alone, *others):  # the next sample is alone again
        process.kill()
        process.wait()


# A third process that shares the pages is there, and does all that the writer does, on a single page.
FORKING = """
import gc, mmap, os
count = 64 << 8
kept = mmap.mmap(-1, count << 12, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
kept[::4096] = b"x" * count
def serve(order, answer, pages):
    while os.read(order, 1):
        for step in range({steps}):
            kept[(step % pages) << 12] = 121
        os.write(answer, b".")
    os._exit(0)
gc.collect()
told = []
for pages in ({steps}, 1):
    order, orders = os.pipe()
    answers, answer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(orders)
        for earlier in told:
            os.close(earlier[1])
        serve(order, answer, pages)
    os.close(order)
    told.append((child, orders, answers))
print(*[child for child, _, _ in told], flush=True)
input()
for _, orders, answers in told:
    os.write(orders, b".")
    os.read(answers, 1)
print(flush=True)
input()
"""


@both_builds
@needs_rollup
@confirmed
def test_what_a_forked_child_writes_moves_from_shared_to_unique(executables: dict[str, str], build: str) -> None:
    written = 16 * MIB
    code = FORKING.format(steps=written // PAGE)

    def look() -> tuple[MemoryPoint, MemoryPoint, MemoryPoint, int]:
        return at_rest(main, workers=(writer,)), one_of(writer), one_of(control), shared_bytes(writer)

    with subprocess.Popen(
        [executables[build], "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as main:
        try:
            assert main.stdout is not None
            writer, control = map(int, main.stdout.readline().split())
            tree_before, writer_before, control_before, shared_before = look()
            told(main)
            tree_after, writer_after, control_after, shared = look()
        finally:
            main.kill()
    own = unique(control_after) - unique(control_before)
    assert 0 <= own < MIB
    few = 16 * PAGE
    assert unique(writer_after) - unique(writer_before) - own == pytest.approx(written, abs=few)
    assert shared_before - shared - own == pytest.approx(written, abs=few)
    assert tree_before.pss_bytes is not None
    assert tree_after.pss_bytes is not None
    assert tree_after.pss_bytes - tree_before.pss_bytes == pytest.approx(written, abs=MIB + 3 * own)
    assert unique(tree_after.roles["workers"]) == unique(writer_after)


def shared_bytes(pid: int) -> int:
    """What a process has written, or was born with, and still shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if line.startswith("Shared_Dirty:"))
    return int(line.split()[1]) * 1024


def one_of(pid: int) -> MemoryPoint:
    return surely(memory.memory_point([psutil.Process(pid)], ProcessMap(main=pid)))


def unique(look: Footprint) -> int:
    assert look.written_bytes is not None
    return look.written_bytes


STARTING = """
import os, subprocess, sys, threading
kept = bytearray(b"x") * (16 << 20)

def work():
    while True:
        subprocess.run(["true"], preexec_fn=PREEXEC)

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
print(flush=True)
input()
"""


@both_builds
@needs_rollup
@pytest.mark.parametrize("preexec", ["None", "int"], ids=["vfork", "fork"])
def test_looks_at_threads_that_start_programs_see_neither_twice_nor_nothing(
    executables: dict[str, str], build: str, preexec: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "FORK_S", 60.0)  # so long a busy machine may keep a fork from its exec
    main = start(
        "import warnings; warnings.simplefilter('ignore')" + STARTING.replace("PREEXEC", preexec),
        python=executables[build],
    )
    sampler = memory.MemorySampler(ProcessMap(main=main.pid), 0.001)
    sampler.start()
    ends = time.monotonic() + 60
    while len(sampler.points) < 30 and time.monotonic() < ends:
        sampler.step()
        time.sleep(0.002)
    seen = sorted(unique(point) for point in sampler.points)
    assert len(seen) >= 10
    assert sampler.dropped
    assert seen[len(seen) // 10] > 16 * MIB
    assert seen[-1 - len(seen) // 10] < 28 * MIB


def test_a_tree_that_is_gone_is_empty(start: Start) -> None:
    process = start(IDLE)
    process.kill()
    process.wait()
    assert processes_module.tree(process.pid) == []


def test_what_left_the_process_group_is_found_by_its_mark_and_ended(
    start: Start,
) -> None:
    mark = next(marks())
    process = start(parent(True), mark, start_new_session=True)
    assert eventually(lambda: len(marked(mark)) == 2)
    (child,) = (found for found in marked(mark) if found.pid != process.pid)
    assert os.getpgid(child.pid) != os.getpgid(process.pid)
    (line,) = (line for line in leftovers(mark, 0.0) if not line.startswith(f"{process.pid}: "))
    assert line.startswith(f"{child.pid}: ")
    assert "sys.stdin.read()" in line
    kill_all(process.pid, mark)
    process.wait()
    assert marked(mark) == []
    assert leftovers(mark) == []


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
def test_only_what_is_not_older_than_we_are_is_asked_for_its_mark(start: Start) -> None:
    mark = next(marks())
    before = may_carry(mark)
    process = start(IDLE, mark, start_new_session=True)
    after = may_carry(mark)
    assert process.pid in set(after) - set(before)
    assert os.getpid() in before
    assert 1 not in before
    process.kill()
    process.wait()
    assert process.pid not in may_carry(mark)


def test_ending_a_launch_that_is_gone_is_no_error(start: Start) -> None:
    mark = next(marks())
    process = start(IDLE, mark, start_new_session=True)
    kill_all(process.pid, mark)
    process.wait()
    kill_all(process.pid, mark)


def test_another_launch_is_left_alone(start: Start) -> None:
    first, second = next(marks()), next(marks())
    mine = start(IDLE, first, start_new_session=True)
    other = start(IDLE, second, start_new_session=True)
    kill_all(mine.pid, first)
    mine.wait()
    assert marked(first) == []
    assert other.poll() is None
    assert eventually(lambda: [found.pid for found in marked(second)] == [other.pid])


def test_multiprocessing_s_own_servers_are_no_leftovers(start: Start) -> None:
    mark = next(marks())
    code = (
        "import multiprocessing.forkserver as f, multiprocessing.resource_tracker as r\n"
        "f.ensure_running(); r.ensure_running(); print(flush=True); input()"
    )
    process = start(code, mark, start_new_session=True)
    # A child that has just been forked shows no environment for a moment.
    assert eventually(lambda: len(marked(mark)) == 3)
    assert len(processes_module.tree(process.pid)) == 2  # the resource tracker is no part of the workload
    process.communicate("\n")
    assert leftovers(mark) == []


def test_marks_are_unlike() -> None:
    made = [next(each) for each in (marks(), marks()) for _ in range(3)]
    assert len(set(made)) == 6
    assert all(str(os.getpid()) in mark for mark in made)
