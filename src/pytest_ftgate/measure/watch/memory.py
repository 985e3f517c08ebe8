"""Memory of a process tree, sampled from outside."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

import msgspec
import psutil

from ...kit import proc, processes
from ...kit.processes import tree
from ...model.sample import Footprint, MemoryPoint, Waits
from ..process_map import ProcessGroup, ProcessMap
from .threads import ThreadSampler

Mapping: TypeAlias = tuple[int, int, int, int, int]
"""See proc.private_mappings."""
FORK_S = 0.1
"""A process that was forked longer ago than this, and runs no program of its own, is not going to."""
LONGEST_HOLD_S = 5.0  # workers are not held longer than this for the sake of samples
_SMALL_COST = 0.02  # the share of the time that sampling memory may take
ENOUGH_SAMPLES = 3
_PAGE_BYTES = 4096
_SAMPLES_AT_REST = 8
_LOOKS_AT_REST = 64
_RETRY_S = 0.001  # until another look, after one that gave no sample
_RETRIES = 128  # whatever they cost, before the first sample
_REST_S = 0.005


def memory_point(live: Iterable[psutil.Process], known: ProcessMap) -> MemoryPoint | None:
    """RSS, USS and PSS in bytes over `live` and by group; None where a sample would mean nothing.

    That is so without a process, and when one ended meanwhile: the sum without it would be a minimum. It is also so
    when one was forked a moment ago, perhaps to run another program: until it does, memory counts twice or not at all.
    The source is Linux's /proc/PID/smaps_rollup, which tells the part of USS that was written to: the rest depends on
    who else runs the same interpreter. Elsewhere it is psutil; a figure that it may not see of one process is None.
    """
    live = list(live)
    pids = {process.pid for process in live}
    before = {pid: proc.family(pid) for pid in pids}
    # 1. Forked lately, and no program run since.
    if any(_is_new(pid, family, known) for pid, family in before.items()):
        return None
    # 2. Each process.
    parts: dict[ProcessGroup, list[Footprint]] = {}
    shares = False
    try:
        for process in live:
            footprint, of_this_one = _footprint(process)
            parts.setdefault(known.group_of(process), []).append(footprint)
            shares = shares or of_this_one
    except psutil.Error:
        return None
    if not live or not all(map(processes.alive, live)):
        return None
    roles: dict[str, Footprint] = {name: _together(group) for name, group in parts.items()}
    if "main" in roles and roles["main"].steadiest_bytes == 0:
        return None
    # 3. Forked meanwhile: there is a new child, or one that was waited for. What a process shares with such a child is
    # its own again once that runs its program.
    if shares:
        now = {pid: proc.family(pid) for pid in before}
        if any(each and (then := before[pid]) and then.waited != each.waited for pid, each in now.items()):
            return None
        new = (proc.children_of(before) or set()) - {*before, *known.workers, *known.servers}
        if any(family is not None and family.age_s < FORK_S for family in map(proc.family, new)):
            return None
    whole = _together([each for group in parts.values() for each in group])
    return MemoryPoint(
        at_ns=time.monotonic_ns(),
        rss_bytes=whole.rss_bytes,
        uss_bytes=whole.uss_bytes,
        pss_bytes=whole.pss_bytes,
        processes=whole.processes,
        written_bytes=whole.written_bytes,
        roles=roles,
    )


def point_of_all(live: Iterable[psutil.Process], known: ProcessMap) -> MemoryPoint | None:
    """As memory_point, of all workers that the launch has named, or as many in their place; else None."""
    point = memory_point(live, known)
    there = sum(point.roles[role].processes for role in ("workers", "others") if role in point.roles) if point else 0
    return point if there >= len(known.workers) else None


def _is_new(pid: int, family: proc.Family | None, known: ProcessMap) -> bool:
    """Whether it may run another program in a moment: workers and servers of the launch do not."""
    lasts = not known.all_work and (pid == known.main or pid in known.workers or pid in known.servers)
    return family is not None and not lasts and family.forked and family.age_s < FORK_S


def with_unshared(point: MemoryPoint, known: ProcessMap) -> MemoryPoint:
    """The sample with the pages of their parents that the forked processes of the tree have made their own, by smaps.

    Pages that a process shares no longer are its own, but no more of a mapping than the parent has in its place: what
    is allocated afresh does not count. What both have allocated there since the fork does. None without a forked
    process, if one ended meanwhile, and where the system has no smaps or does not let us read it.
    """
    mappings, found = functools.cache(proc.private_mappings), []
    live = {process.pid: process for process in processes.tree(known.main)}
    try:
        for pid, process in live.items():
            parent, family = process.ppid(), proc.family(pid)
            # One that has just been forked may still have the memory of its parent, as after vfork.
            if parent in live and family is not None and family.forked and not _is_new(pid, family, known):
                found.append(_unshared_kib(mappings(pid), mappings(parent)))
    except (OSError, psutil.Error):
        return point
    return msgspec.structs.replace(point, unshared_bytes=sum(found) << 10) if found else point


def _unshared_kib(own: Iterable[Mapping], of_parent: Iterable[Mapping]) -> int:
    """Of the mappings of a process and its parent that overlap: one may have been split, or have grown."""
    # Bounds, what is private to the process, and what the parent has there beyond what they share.
    parts = [(start, stop, private, -shared) for start, stop, shared, private, _ in own]
    parts += [(start, stop, 0, anonymous) for start, stop, _, _, anonymous in of_parent]
    total = end = private = beyond = 0
    for start, stop, *kib in sorted(parts):
        if start >= end:
            total += max(0, min(private, beyond))
            private = beyond = 0
        end, private, beyond = max(end, stop), private + kib[0], beyond + kib[1]
    return total + max(0, min(private, beyond))


def _footprint(process: psutil.Process) -> tuple[Footprint, bool]:
    """The memory of a process, and whether it shares what it has written, as far as that is known."""
    try:
        kib = proc.memory_kib(process.pid)
    except ProcessLookupError as ended:
        raise psutil.NoSuchProcess(process.pid) from ended
    except OSError:  # what psutil says on any system
        rss, uss, pss = process.memory_info().rss, None, None
        # psutil 8 has renamed it; the old name warns there.
        read = getattr(process, "memory_footprint", None) or process.memory_full_info
        with contextlib.suppress(psutil.AccessDenied):
            full = read()
            uss, pss = getattr(full, "uss", None), getattr(full, "pss", None)
        return Footprint(rss_bytes=rss, uss_bytes=uss, pss_bytes=pss, processes=1), False
    written = kib["Private_Dirty"] + kib.get("Private_Hugetlb", 0)
    footprint = Footprint(
        rss_bytes=kib["Rss"] << 10,
        uss_bytes=(written + kib["Private_Clean"]) << 10,
        pss_bytes=kib["Pss"] << 10,
        processes=1,
        written_bytes=written << 10,
    )
    return footprint, kib["Shared_Dirty"] > 0


def _together(parts: Sequence[Footprint]) -> Footprint:
    def total(*figures: int | None) -> int | None:
        known = [figure for figure in figures if figure is not None]
        return sum(known) if len(known) == len(figures) else None

    return Footprint(
        rss_bytes=sum(part.rss_bytes for part in parts),
        uss_bytes=total(*(part.uss_bytes for part in parts)),
        written_bytes=total(*(part.written_bytes for part in parts)),
        pss_bytes=total(*(part.pss_bytes for part in parts)),
        processes=len(parts),
    )


def barrier_point(
    known: ProcessMap, before: MemoryPoint | None = None, *, sleep: Callable[[float], None] = time.sleep
) -> MemoryPoint:
    """The memory of a tree at a barrier: samples until two in a row agree within a page per process.

    The stack of a thread that has just ended goes a moment after it was joined; at rest samples agree. The first may
    agree with that of the barrier `before`. After eight samples, without those that were dropped, the last one stands.
    Raises ProcessLookupError when the tree is gone.
    """
    last = before
    taken = 0
    for _ in range(_LOOKS_AT_REST):
        live = processes.tree(known.main)
        point = memory_point(live, known)
        if point is not None and last is not None and point.processes == last.processes:
            figures = (
                (point.rss_bytes, last.rss_bytes),
                (point.steadiest_bytes or 0, last.steadiest_bytes or 0),
            )
            if all(abs(first - second) <= _PAGE_BYTES * point.processes for first, second in figures):
                return point
        last = point or last
        taken += point is not None
        sleep(_REST_S)
        if not live or taken == _SAMPLES_AT_REST:
            break
    if last is None or not taken:
        raise ProcessLookupError(f"process {known.main} of the launch cannot be sampled: it has ended")
    return last


# -- samples over time -------------------------------------------------------------------------------------------------


class MemorySampler:
    """Samples a launch's memory, as often as 2 % of the time allows and at most every `interval_s`.

    A sample is taken as costing what the dearest of the last three did, in CPU time of this thread (`cost_clock`). It
    begins when samples would have taken at most 2 % of the time at its end. So samples become rarer where they cost
    more, and a pause pays an outlier back. The first sample is free of that: without it nothing is known. The highest
    sample is a lower bound of the peak. A look that falls on a process that ends or is being replaced, or that misses a
    worker, gives no sample: it is counted as `dropped`, and the next comes soon.
    """

    def __init__(
        self,
        known: ProcessMap,
        interval_s: float = 0.02,
        *,
        clock: Callable[[], float] = time.monotonic,
        cost_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.known = known
        self.interval_s = interval_s
        self.clock = clock
        self.cost_clock = cost_clock
        self.points: list[MemoryPoint] = []
        self.dropped = 0
        self.spent_s = 0.0
        self._costs: tuple[float, ...] = ()
        self._live: list[psutil.Process] = []
        self._pids: set[int] = set()
        self._began = self._due = 0.0

    def start(self, seconds: float = 0.0) -> None:
        """Begin; of a window of so many `seconds`, an only sample is of its middle, as all of many are on average."""
        self._live = processes.tree(self.known.main)
        self._pids = {process.pid for process in self._live}
        self._began = self.clock()
        self._due = self._began + min(seconds, self.interval_s) / 2

    @property
    def due_s(self) -> float:
        return self._due - self.clock()

    @property
    def cost_s(self) -> float:
        """What a sample costs: the dearest of the last three, in seconds; 0 before the first."""
        return max(self._costs, default=0.0)

    def step(self) -> None:
        began, cost_began = self.clock(), self.cost_clock()
        # The tree is taken again where there is a child that was not there before, be it one that the tree leaves out.
        pids = [process.pid for process in self._live]
        children = proc.children_of(pids)
        changed = proc.on_linux() if children is None else not children <= self._pids
        if changed or not pids:
            self._live = processes.tree(self.known.main)
            self._pids.update(pids, children or ())
        point = point_of_all(self._live, self.known)
        if point is None:
            self.dropped += 1
            self._live = []
        else:
            self.points.append(point)
        cost_s = self.cost_clock() - cost_began
        self._costs = (*self._costs[-2:], cost_s)
        self.spent_s += cost_s
        affordable = self._began + (self.spent_s + self.cost_s) / _SMALL_COST - self.cost_s
        if point is None and not self.points and self.dropped <= _RETRIES:
            affordable = 0.0
        self._due = max(began + (_RETRY_S if point is None else self.interval_s), affordable)


def hold_needed_s(cost_s: float) -> float:
    """How long workers must be sampled for three samples of `cost_s` each to take 2 % of the time.

    Where LONGEST_HOLD_S is not enough there are fewer samples, not dearer ones.
    """
    return min(LONGEST_HOLD_S, ENOUGH_SAMPLES * cost_s / _SMALL_COST)


# Samples of a process tree over time: memory and wait states in one loop, each sampler at its own pace.

SAMPLED = 0.8
"""The part of a held window that is sampled: its middle, when every worker is at work."""


class Sampler(Protocol):
    """Takes samples in one loop with others."""

    @property
    def due_s(self) -> float:
        """Seconds until its next sample; zero or less: now."""
        ...

    def step(self) -> None:
        """One sample."""
        ...


def run_samplers(
    seconds: float,
    samplers: Sequence[Sampler],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    over: Callable[[], bool] = lambda: False,
) -> None:
    """Let `samplers` step whenever they are due, for `seconds` or until what is sampled is `over`."""
    ends = clock() + seconds
    while clock() < ends and not over():
        for sampler in samplers:
            if sampler.due_s <= 0:
                sampler.step()
        rest = min((sampler.due_s for sampler in samplers), default=seconds)
        sleep(max(0.0, min(rest, ends - clock())))


def sample_tree(
    processes: ProcessMap, seconds: float, *, refused: str, over: Callable[[], bool]
) -> tuple[tuple[MemoryPoint, ...], int, Waits]:
    """Memory of a launch, how often a look at it gave no sample, and waits, for `seconds` or until it is `over`.

    The last sample of memory is `with_unshared`: that costs as much again. `refused` is as for ThreadSampler.
    """
    memory, threads = MemorySampler(processes), ThreadSampler(processes, refused=refused)
    memory.start(seconds)
    threads.start()
    run_samplers(seconds, (memory, threads), over=over)
    waits = threads.finish()
    points = *memory.points[:-1], *(with_unshared(each, processes) for each in memory.points[-1:])
    return points, memory.dropped, waits


def sample_cost_s(processes: ProcessMap) -> float:
    """What one sample of a tree's memory costs in s of CPU time, whatever else the machine does."""
    live = tree(processes.main)
    began = time.thread_time()
    memory_point(live, processes)
    return time.thread_time() - began
