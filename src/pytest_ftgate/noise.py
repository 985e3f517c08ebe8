"""What else went on while a tandem was measured, and what of it takes the trust out of a verdict.

Sides that take turns see the same machine, so that little of this reaches their ratio. Stored launches saw another
moment: there the candle cancels the machine's speed, but not what steals cores from one side alone.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from .machine import ROOT, cgroup_folders, read_text, usable_cores
from .model import Conditions, Road
from .runner.candle import burn

CALIBRATION_BURNS: Final = 10
"""Times the fixed work is done for one look, the shortest of which counts: about 20 ms together on a quiet core."""


class Limits(NamedTuple):
    """What is too much, each a share but `moved`, the ratio of two times; a verdict stands at the limit itself.

    `others` is that of the usable cores kept busy by others, the rest as in Conditions.
    """

    others: float
    steal: float
    quota: float
    throttles: float
    moved: float


# Measured by benchmarks/verdicts/variates.py. One more busy process on 2 cores (others kept 0.3 to 0.5 cores more
# busy) moved the ratio of a launch to its candle by 10 to 15 %, either way, and the raw time by 13 to 49 %: two workers
# cannot count on a core each then, and which of them waits is not what the candle met. Of a change of the controller's
# own speed the candle left 2 to 25 % in interpreter-bound work, about half in memory-bound work: 1.2x leaves up to 9 %,
# half of it on average over a run. Single looks differ by 2x and more at an unchanged speed: their range says nothing.
STORED: Final = Limits(others=0.25, steal=0.05, quota=0.05, throttles=0, moved=1.2)
"""Where the reference was measured at another time."""
# The two sides of the same launches, equal code, showed no bias at any load, also with a quota that stopped 64 to 100 %
# of the periods. Their noise grows, which the exact test accounts for. Beyond these limits a time is rather that of
# workers which wait for each other to be let run.
TANDEM: Final = Limits(others=math.inf, steal=0.25, quota=0.5, throttles=math.inf, moved=math.inf)
"""Where the sides took turns: what is left is that the workers of an iteration did not run at the same time."""
SAID: Final = Limits(others=0.1, steal=0.01, quota=0.0, throttles=0, moved=1.1)
"""What is worth a line in the report."""


class CpuTimes(NamedTuple):
    """What the usable CPUs did since the machine started, in ticks of the kernel's clock."""

    busy: int
    steal: int
    total: int


class Surroundings:
    """Watches what is not this run: made before a tandem, asked after it; costs nothing in between."""

    def __init__(
        self,
        root: Path = ROOT,
        clock: Callable[[], float] = time.monotonic,
        own_s: Callable[[], float] | None = None,
    ) -> None:
        self.root = root
        self.clock = clock
        self.own_s = own_s or (lambda: own_cpu_s(root))
        self.cpus = usable_cpus()
        self.calibration_ns: list[int] = []
        self.began = clock()
        self.began_own_s = self.latest_own_s = self.own_s()
        self.lost_s = 0.0
        self.began_cpu = cpu_times(root, self.cpus)
        self.began_periods = quota_periods(root)
        self.began_throttles = throttle_counts(root, self.cpus)

    def calibrate(self) -> None:
        """One look at how long a fixed piece of work takes in this process, while nothing of this run is at work."""
        self.calibration_ns.append(calibration_ns())
        self.look()

    def look(self) -> float:
        """CPU time of this run in s. To be called before launches are ended: then it holds what nobody waits for.

        A launch does not wait for multiprocessing's forkserver: with it the time of all its workers is lost. Whatever
        is missing at the next look was lost so.
        """
        own_s = self.own_s()
        self.lost_s += max(0.0, self.latest_own_s - own_s)
        self.latest_own_s = own_s
        return own_s - self.began_own_s + self.lost_s

    def observe(self) -> Conditions:
        """What went on since this was made."""
        span_s = self.clock() - self.began
        cpu = _since(self.began_cpu, cpu_times(self.root, self.cpus))
        own_s = self.look()
        return Conditions(
            span_s=span_s,
            cores=usable_cores(),
            calibration_ns=tuple(self.calibration_ns),
            steal=max(0.0, cpu.steal / cpu.total) if cpu else None,
            others=max(0.0, cpu.busy / _ticks_per_s() - own_s) / span_s if cpu and span_s > 0 else None,
            quota=_stopped(self.began_periods, quota_periods(self.root)),
            throttles=_counted(self.began_throttles, throttle_counts(self.root, self.cpus)),
        )


def unfit(conditions: Conditions | None, road: Road) -> str:
    """Why a regression found by this road is not to be believed; empty where it is."""
    if conditions is None:
        return ""
    return "; ".join(_beyond(conditions, STORED if road in ("stored", "prediction", "elsewhere") else TANDEM))


def remarks(conditions: Conditions | None, workers: int) -> tuple[str, ...]:
    """Lines on what went on beside a tandem of so many workers, for the report; none where all was quiet."""
    if conditions is None:
        return ()
    found = _beyond(conditions, SAID)
    if 0 < conditions.cores < workers:
        found.append(f"oversubscribed: {workers} workers on {_cores(conditions)}")
    return tuple(found)


def moved(calibration_ns: Sequence[int]) -> float:
    """How many times longer the fixed work took in the last third of the looks than in the first; 1 for fewer than 3.

    The lower quartile of each third is compared: single looks differ by far more, for which no speed need have changed.
    """
    third = len(calibration_ns) // 3
    if not third or min(calibration_ns) <= 0:
        return 1.0
    first, last = sorted(calibration_ns[:third]), sorted(calibration_ns[-third:])
    return last[third // 4] / first[third // 4]


def _beyond(conditions: Conditions, limits: Limits) -> list[str]:
    """What is beyond the limits, a phrase each."""
    found = []
    others, steal, quota, throttles = (conditions.others, conditions.steal, conditions.quota, conditions.throttles)
    if others is not None and others > limits.others * max(1, conditions.cores):
        found.append(f"other processes kept {others:.1f} of {_cores(conditions)} busy")
    if steal is not None and steal > limits.steal:
        found.append(f"the hypervisor gave {steal:.1%} of the cores' time to others")
    if quota is not None and quota > limits.quota:
        found.append(f"the CPU quota stopped the run in {quota:.0%} of its periods")
    if throttles is not None and throttles > limits.throttles:
        found.append(f"the CPU slowed itself {throttles}x because of heat")
    change = moved(conditions.calibration_ns)
    if max(change, 1 / change) > limits.moved:
        found.append(
            f"the machine became {max(change, 1 / change):.2f}x {'slower' if change > 1 else 'faster'} meanwhile"
        )
    return found


def _cores(conditions: Conditions) -> str:
    return f"{conditions.cores} core{'' if conditions.cores == 1 else 's'}"


# -- readers -----------------------------------------------------------------------------------------------------------


def calibration_ns(burns: int = CALIBRATION_BURNS) -> int:
    """The shortest of a few runs of the candle in this process, in ns."""
    times = []
    for _ in range(burns):
        began = time.perf_counter_ns()
        burn()
        times.append(time.perf_counter_ns() - began)
    return min(times)


def usable_cpus() -> frozenset[int]:
    """The numbers of the CPUs that this process may run on; empty where the platform does not tell."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has one
    return frozenset(affinity(0)) if affinity else frozenset()


def cpu_times(root: Path, cpus: Collection[int]) -> CpuTimes | None:
    """The times of these CPUs, of all of them where not each is listed; None without /proc/stat."""
    lines = (line.split() for line in (read_text(root / "proc/stat") or "").splitlines())
    found = {name: _cpu_times(fields) for name, *fields in (line for line in lines if line) if name.startswith("cpu")}
    listed = [found[name] for name in (f"cpu{cpu}" for cpu in cpus) if name in found]
    if not cpus or len(listed) < len(cpus):
        return found.get("cpu")
    return CpuTimes(*map(sum, zip(*listed, strict=True)))


def own_cpu_s(root: Path = ROOT) -> float:
    """CPU time in s of this process, of every descendant that has been waited for, and of those that live.

    A child's time moves from the last part to the second when it is waited for, so that differences stay true. A
    process that nobody waited for, as what is killed together with its parent, is lost.
    """
    live = sum(_ticks_of(fields) for fields in _descendants(root, os.getpid()))
    return sum(os.times()[:4]) + live / _ticks_per_s()


def quota_periods(root: Path) -> dict[str, tuple[int, int]]:
    """Periods and those in which the quota stopped a cgroup, for ours and those above that tell (v2 and v1)."""
    found = {}
    for folder in cgroup_folders(root, "cpu"):
        words = dict(
            re.findall(r"^(nr_periods|nr_throttled) (\d+)$", read_text(folder / "cpu.stat") or "", re.MULTILINE)
        )
        if len(words) == 2:
            found[str(folder)] = int(words["nr_periods"]), int(words["nr_throttled"])
    return found


def throttle_counts(root: Path, cpus: Collection[int]) -> dict[str, int]:
    """How often each usable CPU, and the package that it is part of, slowed itself because of heat."""
    found = {}
    for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/*_throttle_count"):
        text = (read_text(path) or "").strip()
        if text.isdigit() and (not cpus or int(path.parts[-3].removeprefix("cpu")) in cpus):
            found[str(path)] = int(text)
    return found


def _cpu_times(fields: Sequence[str]) -> CpuTimes:
    # user nice system idle iowait irq softirq steal; guests, which follow, are part of user and nice.
    user, nice, system, idle, iowait, irq, softirq, steal = [*map(int, fields[:8]), *[0] * 8][:8]
    busy = user + nice + system + irq + softirq
    return CpuTimes(busy, steal, busy + steal + idle + iowait)


def _since(began: CpuTimes | None, ended: CpuTimes | None) -> CpuTimes | None:
    """The difference; None where either is missing or the clock stood still, as in a sandbox that fakes the file."""
    if began is None or ended is None or ended.total <= began.total:
        return None
    return CpuTimes(*(after - before for before, after in zip(began, ended, strict=True)))


def _stopped(began: dict[str, tuple[int, int]], ended: dict[str, tuple[int, int]]) -> float | None:
    """The share of periods that were stopped, in the cgroup where it is largest; None where none tells."""
    shares = []
    for folder in began.keys() & ended.keys():
        periods, stopped = (after - before for before, after in zip(began[folder], ended[folder], strict=True))
        shares.append(stopped / periods if periods > 0 else 0.0)
    return max(shares, default=None)


def _counted(began: dict[str, int], ended: dict[str, int]) -> int | None:
    """The most that one counter rose: the cores of a package all show that package's."""
    return max((ended[name] - began[name] for name in began.keys() & ended.keys()), default=None)


def _descendants(root: Path, pid: int) -> Iterator[list[str]]:
    """The fields of /proc/PID/stat behind the name, of each living descendant."""
    children: dict[int, list[tuple[int, list[str]]]] = {}
    for name in _entries(root / "proc"):
        # A process may go at any moment; its name may hold anything, spaces and brackets too.
        fields = _stat(f"{root}/proc/{name}/stat").rpartition(")")[2].split()
        if len(fields) > 14:
            children.setdefault(int(fields[1]), []).append((int(name), fields))
    found = children.get(pid, [])
    while found:
        yield from (fields for _, fields in found)
        found = [child for parent, _ in found for child in children.get(parent, [])]


def _stat(path: str) -> str:
    """Read plainly: there are hundreds of these files at each look."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _entries(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.isdecimal()]
    except OSError:
        return []


def _ticks_of(fields: Sequence[str]) -> int:
    """User and system time of a process and of the children that it has waited for."""
    return sum(map(int, fields[11:15]))


def _ticks_per_s() -> int:
    return os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
