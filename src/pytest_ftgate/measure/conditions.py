"""The conditions of a measurement: what else the machine did meanwhile.

Interleaved launches see the same machine, so little of this reaches their ratio. Stored launches saw another moment:
there the control workload cancels the machine's speed, but not what takes cores from one side alone.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, NamedTuple, Self

from ..kit.processes import cpu_s
from ..model.report import Conditions
from ..runner.control import burn
from .machine import ROOT, cgroup_folders, read_text, usable_cores, usable_cpus

CALIBRATION_BURNS: Final = 10
"""Runs of the fixed work in one calibration, the shortest of which counts: about 20 ms together on a quiet core."""


class CpuTimes(NamedTuple):
    """What the usable CPUs did since the machine started, in ticks of the kernel's clock."""

    busy: int
    steal: int
    total: int


class ConditionsMonitor:
    """Reads what the machine does besides this run between `start` and `observe`; costs nothing in between."""

    def __init__(
        self,
        root: Path = ROOT,
        clock: Callable[[], float] = time.monotonic,
        own_s: Callable[[], float] | None = None,
    ) -> None:
        self.root = root
        self.clock = clock
        self.own_s = own_s or (lambda: cpu_s(os.getpid()))
        self.calibration_ns: list[int] = []

    def start(self) -> Self:
        """Read the counters from which `observe` takes the difference; returns itself."""
        self.cpus = usable_cpus()
        self.began = self.clock()
        self.began_own_s = self.latest_own_s = self.own_s()
        self.lost_s = 0.0
        self.began_cpu = cpu_times(self.root, self.cpus)
        self.began_periods = quota_periods(self.root)
        self.began_throttles = throttle_counts(self.root, self.cpus)
        return self

    def time_fixed_work(self) -> None:
        """Time a fixed piece of work in this process, while no launch is at work."""
        self.calibration_ns.append(calibration_ns())
        self.sample()

    def sample(self) -> float:
        """CPU time of this run in s. Call it before launches end: then it includes processes that nobody waits for.

        A launch does not wait for multiprocessing's forkserver, so the time of all its workers is lost when it ends.
        What is missing at the next sample was lost so.
        """
        own_s = self.own_s()
        self.lost_s += max(0.0, self.latest_own_s - own_s)
        self.latest_own_s = own_s
        return own_s - self.began_own_s + self.lost_s

    def observe(self) -> Conditions:
        """What went on since `start`."""
        span_s = self.clock() - self.began
        began, ended = self.began_cpu, cpu_times(self.root, self.cpus)
        own_s = self.sample()
        # 1. What took cores; nothing is known if no tick passed, as in a sandbox that fakes the file.
        steal = others = None
        if began is not None and ended is not None and ended.total > began.total:
            steal = max(0.0, (ended.steal - began.steal) / (ended.total - began.total))
            if span_s > 0:
                ticks_per_s = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
                others = max(0.0, (ended.busy - began.busy) / ticks_per_s - own_s) / span_s
        # 2. The share of periods that were stopped, in the cgroup where it is largest.
        periods, shares = quota_periods(self.root), []
        for folder in self.began_periods.keys() & periods.keys():
            passed, stopped = (
                now - then for then, now in zip(self.began_periods[folder], periods[folder], strict=True)
            )
            shares.append(stopped / passed if passed > 0 else 0.0)
        # 3. The most that one counter of heat rose: all cores of a package show the package's counter.
        counts, before = throttle_counts(self.root, self.cpus), self.began_throttles
        return Conditions(
            span_s=span_s,
            cores=usable_cores(),
            calibration_ns=tuple(self.calibration_ns),
            steal=steal,
            others=others,
            quota=max(shares, default=None),
            throttles=max((counts[name] - before[name] for name in before.keys() & counts.keys()), default=None),
        )


# -- readers -----------------------------------------------------------------------------------------------------------


def calibration_ns() -> int:
    """The shortest of a few runs of the control workload in this process, in ns."""
    times = []
    for _ in range(CALIBRATION_BURNS):
        began = time.perf_counter_ns()
        burn()
        times.append(time.perf_counter_ns() - began)
    return min(times)


def cpu_times(root: Path, cpus: Collection[int]) -> CpuTimes | None:
    """The times of these CPUs, or of all CPUs if one is not listed; None without /proc/stat."""
    found = {}
    for name, *fields in filter(None, map(str.split, (read_text(root / "proc/stat") or "").splitlines())):
        if name.startswith("cpu"):
            # Guests, which follow, are part of user and nice.
            user, nice, system, idle, iowait, irq, softirq, steal = [*map(int, fields[:8]), *[0] * 8][:8]
            busy = user + nice + system + irq + softirq
            found[name] = CpuTimes(busy, steal, busy + steal + idle + iowait)
    listed = [found[name] for name in (f"cpu{cpu}" for cpu in cpus) if name in found]
    if not cpus or len(listed) < len(cpus):
        return found.get("cpu")
    return CpuTimes(*map(sum, zip(*listed, strict=True)))


def quota_periods(root: Path) -> dict[str, tuple[int, int]]:
    """All periods and those in which the quota stopped a cgroup, for ours and those above with a quota (v2 and v1)."""
    periods = {}
    for folder in cgroup_folders(root, "cpu"):
        words = dict(
            re.findall(r"^(nr_periods|nr_throttled) (\d+)$", read_text(folder / "cpu.stat") or "", re.MULTILINE)
        )
        if len(words) == 2:
            periods[str(folder)] = int(words["nr_periods"]), int(words["nr_throttled"])
    return periods


def throttle_counts(root: Path, cpus: Collection[int]) -> dict[str, int]:
    """How often each usable CPU, and the package that it is part of, throttled because of heat."""
    found = {}
    for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/*_throttle_count"):
        text = (read_text(path) or "").strip()
        if text.isdigit() and (not cpus or int(path.parts[-3].removeprefix("cpu")) in cpus):
            found[str(path)] = int(text)
    return found
