"""What of the machine changes figures, and the fingerprint that keys baselines."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from ..kit.text import plural
from ..model.report import Machine
from ..model.spec import Cell, Spec

ROOT: Final = Path("/")
_NO_LIMIT_BYTES: Final = 1 << 60  # cgroup v1 writes a huge number where there is no limit


def read_machine(root: Path = ROOT) -> Machine:
    known: dict[str, Any] = {
        "system": platform.system(),
        "arch": platform.machine(),
        "cpu": cpu_model(root),
        "cores": usable_cores(),
        "kernel": platform.release(),
        "governor": governor(root),
        "cpu_quota": cpu_quota(root),
    }
    return Machine(fingerprint=fingerprint(**known), **known, memory_limit_bytes=memory_limit_bytes(root))


def fingerprint(
    *, system: str, arch: str, cpu: str, cores: int, kernel: str, governor: str | None, cpu_quota: float | None
) -> str:
    """`linux-x86_64-intel-xeon-2c-1a2b3c4d`: readable, the same on machines whose figures can be compared.

    `cores` are those usable, `cpu_quota` is in cores; of the kernel only major.minor counts.
    """
    series = ".".join(re.findall(r"\d+", kernel)[:2])
    quota = "" if cpu_quota is None else f"{cpu_quota:.2f}"
    exact = "\0".join([system, arch, cpu, str(cores), quota, governor or "", series])
    digest = hashlib.sha256(exact.encode()).hexdigest()[:8]
    name = re.sub(r"\((?:r|tm)\)|@.*$|\b(?:cpu|processor|\d+-core)\b", " ", cpu, flags=re.IGNORECASE)
    return "-".join([_slug(system), arch.lower(), _slug(name) or "cpu", f"{cores}c", digest])


def usable_cpus() -> frozenset[int]:
    """The numbers of the CPUs that this process may run on; empty if the platform has no affinity."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has one
    return frozenset(affinity(0)) if affinity else frozenset()


def usable_cores() -> int:
    """The cores that this process may run on (its affinity where there is one)."""
    return len(usable_cpus()) or os.cpu_count() or 1


def cpu_model(root: Path = ROOT) -> str:
    """The CPU's name as the system gives it, `unknown` if it gives none."""
    text = read_text(root / "proc/cpuinfo") or ""
    for key in ("model name", "Model", "Hardware", "cpu model", "Processor"):
        match = re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
        if match:
            return match[1].strip()
    arm = re.findall(r"^CPU (?:implementer|part)\s*:\s*(\S+)$", text, re.MULTILINE)[:2]
    return " ".join(["ARM", *arm]) if arm else platform.processor() or "unknown"


def governor(root: Path = ROOT) -> str | None:
    """The frequency governor of the first core (all of them, joined, if they differ); None if there is none."""
    paths = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))
    named = {text.strip() for path in paths if (text := read_text(path))}
    return "+".join(sorted(named)) or None


def cpu_quota(root: Path = ROOT) -> float | None:
    """The least CPU limit of this process's cgroup and those above it, in cores; None without a limit."""
    limits = []
    for folder in cgroup_folders(root, "cpu"):
        quota, _, period = (read_text(folder / "cpu.max") or "").strip().partition(" ")
        if not quota:
            quota = (read_text(folder / "cpu.cfs_quota_us") or "").strip()
            period = (read_text(folder / "cpu.cfs_period_us") or "").strip()
        if quota.isdigit() and period.isdigit() and int(period):
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def memory_limit_bytes(root: Path = ROOT) -> int | None:
    """The least memory limit of this process's cgroup and those above it; None without a limit."""
    return min((limit for limit, _ in _memory_limits(root)), default=None)


def memory_left_bytes(root: Path = ROOT) -> int | None:
    """What this process's cgroup and those above it leave of their memory limits; None without a limit.

    Files that nobody has read for a while are dropped first: the kernel counts them as used.
    """
    left = []
    for limit, folder in _memory_limits(root):
        used = [(read_text(folder / name) or "").strip() for name in ("memory.current", "memory.usage_in_bytes")]
        taken = max((int(text) for text in used if text.isdigit()), default=0)
        stat = read_text(folder / "memory.stat") or ""  # v1 has it for this cgroup alone, too
        unread = max(map(int, re.findall(r"^(?:total_)?inactive_file (\d+)$", stat, re.MULTILINE)), default=0)
        left.append(max(0, limit - max(0, taken - unread)))
    return min(left, default=None)


def _memory_limits(root: Path) -> Iterator[tuple[int, Path]]:
    """The memory limits of this process's cgroup and those above it, with their folders."""
    for folder in cgroup_folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = (read_text(folder / name) or "").strip()
            if text.isdigit() and int(text) < _NO_LIMIT_BYTES:
                yield int(text), folder


def cgroup_folders(root: Path, controller: str) -> list[Path]:
    """The folders of this process's cgroup for a controller, v2 and v1, from the innermost to the top."""
    folders: list[Path] = []
    for line in (read_text(root / "proc/self/cgroup") or "0::/").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup"
        top = mount
        if number != "0":
            top = mount / (controllers if (mount / controllers).is_dir() else controller)
        inner = top / path.lstrip("/")
        folders += [inner, *(folder for folder in inner.parents if folder.is_relative_to(top))]
    return folders


def read_text(path: Path) -> str | None:
    """The text of a file of /proc or /sys; None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


# ---- how many cores this process may keep busy, which ones workers may have for themselves, and what a cell lacks.

FAST = 0.8
"""Of the fastest core's speed: slower ones are efficiency cores. Performance cores differ by some percent too."""


def available_cores(root: Path = ROOT) -> int:
    """The cores that this process may keep busy: those of its affinity, and no more than a CPU limit of its cgroups."""
    return _limited(usable_cores(), root)


def worker_cpus(root: Path = ROOT) -> list[int]:
    """Those of `separate_cpus` that this process may keep busy at once; none where threads cannot be pinned."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    cpus = separate_cpus(usable_cpus(), root)
    return cpus[: _limited(len(cpus), root)]


def separate_cpus(cpus: Iterable[int], root: Path = ROOT) -> list[int]:
    """One CPU of each performance core of one NUMA node, that with most of them; rising.

    The rule is that of Tools/ftscalingbench in CPython's tree: no hyper-thread beside another, no efficiency core, no
    memory of another node. `root` is the folder of /sys; what it does not say is taken to be the same for all CPUs.
    """
    system = root / "sys/devices/system/cpu"
    nodes: dict[int, dict[str, int]] = {}
    for cpu in _fast(sorted(cpus), root):
        folder = system / f"cpu{cpu}"
        core = (read_text(folder / "topology/thread_siblings_list") or str(cpu)).strip()
        node = min((int(each.name[4:]) for each in folder.glob("node[0-9]*")), default=0)
        nodes.setdefault(node, {}).setdefault(core, cpu)
    most = max(nodes.values(), key=len, default={})
    return sorted(most.values())


def cores_lacking(cell: Cell, spec: Spec, root: Path = ROOT) -> str:
    """Why a cell cannot have the cores that its test asks for; empty where it can."""
    if spec.min_cores is not None and (there := available_cores(root)) < spec.min_cores:
        return f"needs {plural(spec.min_cores, 'core')}, {plural(there, 'is', 'are')} available to this process"
    if not spec.pin:
        return ""
    if not hasattr(os, "sched_setaffinity"):
        return "pin=True: this system cannot pin a thread to a core"
    needed, there = (1 if cell.executor.kind == "serial" else cell.workers), len(worker_cpus(root))
    if there >= needed:
        return ""
    which = "physical performance cores of one NUMA node, within the CPU limit"
    available_here = f"{plural(there, 'is', 'are')} available to this process ({which})"
    return f"pin=True needs {plural(needed, 'core')}, {available_here}"


def pinned(cell: Cell, spec: Spec) -> list[int]:
    """The CPU of each worker of a cell; none where its test does not pin them."""
    if not spec.pin:
        return []
    return worker_cpus()[: 1 if cell.executor.kind == "serial" else cell.workers]


def _limited(cores: int, root: Path) -> int:
    quota = cpu_quota(root)
    return cores if quota is None else min(cores, max(1, int(quota)))


def _fast(cpus: list[int], root: Path) -> list[int]:
    """Those that are no efficiency cores: as Intel's hybrid CPUs list them, else by capacity or top frequency."""
    text = (read_text(root / "sys/devices/cpu_core/cpus") or "").strip()  # such as `0-7,16`
    ends = [part.split("-") for part in text.split(",") if part]
    if named := [cpu for cpu in cpus if any(int(end[0]) <= cpu <= int(end[-1]) for end in ends)]:
        return named
    speeds: dict[int, int] = {}
    for cpu in cpus:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}"
        texts = ((read_text(folder / name) or "").strip() for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"))
        speeds[cpu] = next((int(text) for text in texts if text.isdigit()), 0)
    least = FAST * max(speeds.values(), default=0)
    return [cpu for cpu, speed in speeds.items() if speed >= least]
