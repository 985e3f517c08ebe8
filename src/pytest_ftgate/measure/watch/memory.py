"""Memory and leftovers of a process tree, seen from outside."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import psutil

from ...model import Footprint, MemoryPoint, Role
from .process_roles import Roles
from .processes import alive, children_of, role_of, tree

LONGEST_HOLD_S = 5.0  # a hold is not made longer than this for the sake of looks
_SMALL_COST = 0.02  # the share of the time that looking at memory may take
_ENOUGH_LOOKS = 6
_PAGE_BYTES = 4096
_LOOKS_AT_REST = 8
_REST_S = 0.005


def memory_point(processes: Iterable[psutil.Process], roles: Roles) -> MemoryPoint | None:
    """RSS, USS and PSS in bytes over `processes` and by role; None when there is none or one of them ended meanwhile.

    A sum without a process that was there a moment ago would be a minimum that means nothing, so such a look
    is dropped whole. Source: Linux's /proc/PID/smaps_rollup; there the part of USS that was written to is told apart:
    another process of the same interpreter makes the USS of an idle CPython 4 MiB less. Elsewhere USS and PSS are
    psutil's; where it may not see them for one process, those of the sum are None.
    """
    processes = list(processes)
    parts: dict[Role, list[Footprint]] = {}
    try:
        for process in processes:
            parts.setdefault(role_of(process, roles), []).append(_footprint(process))
    except psutil.Error:
        return None
    if not processes or not all(map(alive, processes)):
        return None
    whole = _together([each for found in parts.values() for each in found])
    return MemoryPoint(
        at_ns=time.monotonic_ns(),
        rss_bytes=whole.rss_bytes,
        uss_bytes=whole.uss_bytes,
        pss_bytes=whole.pss_bytes,
        processes=whole.processes,
        written_bytes=whole.written_bytes,
        roles={role: _together(found) for role, found in parts.items()},
    )


def _footprint(process: psutil.Process) -> Footprint:
    try:
        kib = _rollup(process.pid)
    except ProcessLookupError as ended:
        raise psutil.NoSuchProcess(process.pid) from ended
    except OSError:
        return _portable(process)
    written = kib["Private_Dirty"] + kib.get("Private_Hugetlb", 0)
    return Footprint(
        rss_bytes=kib["Rss"] << 10,
        uss_bytes=(written + kib["Private_Clean"]) << 10,
        pss_bytes=kib["Pss"] << 10,
        processes=1,
        written_bytes=written << 10,
    )


def _rollup(pid: int) -> dict[str, int]:
    """The figures of Linux's smaps_rollup in KiB: all of one moment. Raises OSError where there are none."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8", errors="replace") as file:
        next(file, "")  # the range of addresses
        found = {name: int(figure.split()[0]) for name, _, figure in (line.partition(":") for line in file)}
    if "Rss" not in found:
        raise ProcessLookupError(f"process {pid} has no memory any more")
    return found


def _portable(process: psutil.Process) -> Footprint:
    rss, uss, pss = process.memory_info().rss, None, None
    # psutil 8 has renamed it; the old name warns there.
    look = getattr(process, "memory_footprint", None) or process.memory_full_info
    with contextlib.suppress(psutil.AccessDenied):
        full = look()
        uss, pss = getattr(full, "uss", None), getattr(full, "pss", None)
    return Footprint(rss_bytes=rss, uss_bytes=uss, pss_bytes=pss, processes=1)


def _together(parts: Sequence[Footprint]) -> Footprint:
    return Footprint(
        rss_bytes=sum(part.rss_bytes for part in parts),
        uss_bytes=_total([part.uss_bytes for part in parts]),
        written_bytes=_total([part.written_bytes for part in parts]),
        pss_bytes=_total([part.pss_bytes for part in parts]),
        processes=len(parts),
    )


def _total(figures: Sequence[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if len(known) == len(figures) else None


def barrier_point(roles: Roles, *, sleep: Callable[[float], None] = time.sleep) -> MemoryPoint:
    """The memory of a tree that is parked: looks until two in a row agree within a page a process.

    What a thread that has just ended leaves (its stack) goes a moment after it was joined; at rest looks agree. After
    eight looks the last one stands. Raises ProcessLookupError when the tree is gone.
    """
    last: MemoryPoint | None = None
    for _ in range(_LOOKS_AT_REST):
        point = memory_point(tree(roles.main), roles)
        if point is not None and last is not None and _agree(point, last):
            return point
        last = point or last
        sleep(_REST_S)
    if last is None:
        raise ProcessLookupError(f"process {roles.main} of the launch cannot be looked at: it has ended")
    return last


def _agree(one: MemoryPoint, other: MemoryPoint) -> bool:
    figures = [(one.rss_bytes, other.rss_bytes), (one.steadiest_bytes or 0, other.steadiest_bytes or 0)]
    near = all(abs(first - second) <= _PAGE_BYTES * one.processes for first, second in figures)
    return near and one.processes == other.processes


def peak_rss_bytes(pid: int) -> int | None:
    """The highest RSS that a live process had since its `exec`, in bytes; None where the kernel does not keep it.

    Source: VmHWM of Linux's /proc/PID/status, right but for what the kernel counts a CPU at a time (some 32 pages for
    each): a peak among looks is a lower bound instead. There is no such thing for USS and PSS, and no sum over
    processes of it is a peak of the tree: theirs need not coincide. A fork starts with the RSS that it was born with.
    """
    with (
        contextlib.suppress(OSError, ValueError),
        open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file,
    ):
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


# -- looks over time ---------------------------------------------------------------------------------------------------


class Sampler(Protocol):
    """Something that looks again and again, in one loop with others."""

    @property
    def due_s(self) -> float:
        """Seconds until its next look; zero or less: now."""
        ...

    def step(self) -> None:
        """One look."""
        ...


def watch(
    seconds: float,
    samplers: Sequence[Sampler],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    over: Callable[[], bool] = lambda: False,
) -> None:
    """Drive `samplers` for `seconds` or until what is watched is `over`, each whenever due; sleeps in between."""
    ends = clock() + seconds
    while clock() < ends and not over():
        for sampler in samplers:
            if sampler.due_s <= 0:
                sampler.step()
        rest = min((sampler.due_s for sampler in samplers), default=seconds)
        sleep(max(0.0, min(rest, ends - clock())))


class MemoryWatch:
    """Looks at a launch's memory, as often as 2 % of the time allows and at most every `interval_s`.

    A look begins when it would end with at most 2 % of the time so far spent in looks, if it costs what the dearest of
    the last three did: so looks become rarer where they cost more, also in the middle of a watch, and an outlier is
    paid back by a pause. The first look alone is free of that: without it nothing is known. The highest of the looks
    is a lower bound of the peak. The tree is taken at the start, when the workers are all there, and again after a
    look at which one of its processes had ended; where it `grows` meanwhile, also when there are new ones.
    """

    def __init__(
        self,
        roles: Roles,
        interval_s: float = 0.02,
        *,
        grows: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.roles = roles
        self.interval_s = interval_s
        self.grows = grows
        self.clock = clock
        self.points: list[MemoryPoint] = []
        self.spent_s = 0.0
        self._costs: tuple[float, ...] = ()
        self._processes = tree(roles.main)
        self._known = {process.pid for process in self._processes}
        self._began = self._due = clock()

    @property
    def due_s(self) -> float:
        """Seconds until the next look."""
        return self._due - self.clock()

    @property
    def cost_s(self) -> float:
        """What a look costs: the dearest of the last three, in seconds; 0 before the first."""
        return max(self._costs, default=0.0)

    @property
    def share(self) -> float:
        """The share of the time since the start that looking took."""
        return self.spent_s / max(self.clock() - self._began, self.spent_s, 1e-9)

    def step(self) -> None:
        """One look, and the time of the next."""
        began = self.clock()
        if self.grows:
            self._look_for_more()
        point = memory_point(self._processes, self.roles)
        if point is None:
            self._processes = tree(self.roles.main)
        else:
            self.points.append(point)
        cost_s = self.clock() - began
        self._costs = (*self._costs[-2:], cost_s)
        self.spent_s += cost_s
        affordable = self._began + (self.spent_s + self.cost_s) / _SMALL_COST - self.cost_s
        self._due = max(began + self.interval_s, affordable)

    def _look_for_more(self) -> None:
        """Take the tree again where a child has come that was not there before, be it one that is left out of it."""
        pids = [process.pid for process in self._processes]
        children = children_of(pids)
        if children is None or not children <= self._known:
            self._processes = tree(self.roles.main)
            self._known.update(pids, children or ())


def hold_needed_s(cost_s: float, longest_s: float = LONGEST_HOLD_S) -> float:
    """How long workers must be watched for six looks of `cost_s` each to take 2 % of the time; at most `longest_s`.

    Where that is not enough there are fewer looks, not dearer ones.
    """
    return min(longest_s, _ENOUGH_LOOKS * cost_s / _SMALL_COST)
