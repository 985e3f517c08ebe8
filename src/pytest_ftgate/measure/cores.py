"""How many cores this process may keep busy, which ones workers may have for themselves, and what a cell lacks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ..model import Cell, Spec
from . import machine
from .machine import ROOT, read_text

FAST = 0.8
"""Of the fastest core's speed: slower ones are efficiency cores. Performance cores differ by some percent too."""


def available(root: Path = ROOT) -> int:
    """The cores that this process may keep busy: those of its affinity, and no more than a CPU limit of its cgroups."""
    return _limited(machine.usable_cores(), root)


def for_workers(root: Path = ROOT) -> list[int]:
    """The CPUs of `own_cpus` that this process may use and keep busy at once; none where threads cannot be pinned."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    cpus = own_cpus(os.sched_getaffinity(0), root)
    return cpus[: _limited(len(cpus), root)]


def own_cpus(cpus: Iterable[int], root: Path = ROOT) -> list[int]:
    """One CPU of each performance core of one NUMA node, that with most of them; rising.

    The rule is that of Tools/ftscalingbench in CPython's tree: no hyper-thread beside another, no efficiency core, no
    memory of another node. `root` is the folder of /sys; what it does not say is taken to be the same for all CPUs.
    """
    system = root / "sys/devices/system/cpu"
    fast = _fast(sorted(cpus), root)
    nodes: dict[int, dict[str, int]] = {}
    for cpu in fast:
        folder = system / f"cpu{cpu}"
        core = (read_text(folder / "topology/thread_siblings_list") or str(cpu)).strip()
        nodes.setdefault(_node(folder), {}).setdefault(core, cpu)
    most = max(nodes.values(), key=len, default={})
    return sorted(most.values())


def lacking(cell: Cell, spec: Spec, root: Path = ROOT) -> str:
    """Why a cell cannot have the cores that its test asks for; empty where it can."""
    if spec.needs_cores is not None and (there := available(root)) < spec.needs_cores:
        return f"needs {_cores(spec.needs_cores)}, {there} {_are(there)} available to this process"
    if spec.cpus != "each":
        return ""
    if not hasattr(os, "sched_setaffinity"):
        return "cpus='each': this system cannot pin a thread to a core"
    needed, there = (1 if cell.executor.kind == "serial" else cell.workers), len(for_workers(root))
    if there >= needed:
        return ""
    which = "physical performance cores of one NUMA node, within the CPU limit"
    return f"cpus='each' needs {_cores(needed)}, {there} {_are(there)} available to this process ({which})"


def pinned(cell: Cell, spec: Spec) -> list[int]:
    """The CPU of each worker of a cell; none where its test does not pin them."""
    if spec.cpus != "each":
        return []
    return for_workers()[: 1 if cell.executor.kind == "serial" else cell.workers]


def _limited(cores: int, root: Path) -> int:
    quota = machine.cpu_quota(root)
    return cores if quota is None else min(cores, max(1, int(quota)))


def _fast(cpus: list[int], root: Path) -> list[int]:
    """Those that are no efficiency cores: as Intel's hybrid CPUs list them, else by capacity or top frequency."""
    listed = _listed(read_text(root / "sys/devices/cpu_core/cpus") or "")
    named = [cpu for cpu in cpus if cpu in listed]
    if named:
        return named
    speeds = {cpu: _speed(root / f"sys/devices/system/cpu/cpu{cpu}") for cpu in cpus}
    least = FAST * max(speeds.values(), default=0)
    return [cpu for cpu, speed in speeds.items() if speed >= least]


def _listed(text: str) -> set[int]:
    """The CPUs of a list such as `0-7,16`."""
    ends = [part.split("-") for part in text.strip().split(",") if part]
    return {cpu for end in ends for cpu in range(int(end[0]), int(end[-1]) + 1)}


def _speed(folder: Path) -> int:
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        text = (read_text(folder / name) or "").strip()
        if text.isdigit():
            return int(text)
    return 0


def _node(folder: Path) -> int:
    return min((int(node.name[4:]) for node in folder.glob("node[0-9]*")), default=0)


def _cores(count: int) -> str:
    return f"{count} core{'' if count == 1 else 's'}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
