"""The machine's description from a fake /proc and /sys, the fingerprint, and which cores workers may have."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_launcher import group_of, spec_of

from pytest_ftgate.measure import machine
from pytest_ftgate.measure.cell_run import measures
from pytest_ftgate.measure.machine import (
    cpu_model,
    cpu_quota,
    fingerprint,
    governor,
    memory_left_bytes,
    memory_limit_bytes,
    read_machine,
    usable_cores,
)
from pytest_ftgate.model.spec import Cell, Spec

FACTS: dict[str, Any] = {
    "system": "Linux",
    "arch": "x86_64",
    "cpu": "Intel(R) Xeon(R) CPU E5-2673 v4 @ 2.30GHz",
    "cores": 2,
    "kernel": "6.18.44-generic",
    "governor": None,
    "cpu_quota": None,
}


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def test_fingerprint_reads_well() -> None:
    words = fingerprint(**FACTS).split("-")
    assert "-".join(words[:-1]) == "linux-x86_64-intel-xeon-e5-2673-v4-2c"
    assert len(words[-1]) == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"cores": 4},
        {"cpu": "Intel(R) Xeon(R) CPU E5-2673 v4 @ 2.60GHz"},
        {"kernel": "6.19.0"},
        {"governor": "powersave"},
        {"cpu_quota": 1.5},
        {"arch": "aarch64"},
        {"system": "Darwin"},
    ],
)
def test_fingerprint_changes_with_what_changes_figures(changes: dict[str, Any]) -> None:
    assert fingerprint(**{**FACTS, **changes}) != fingerprint(**FACTS)


def test_fingerprint_keeps_over_a_kernel_patch() -> None:
    assert fingerprint(**{**FACTS, "kernel": "6.18.45-custom"}) == fingerprint(**FACTS)


def test_fingerprint_of_an_unknown_cpu_has_a_word_for_it() -> None:
    assert fingerprint(**{**FACTS, "cpu": "CPU"}).startswith("linux-x86_64-cpu-2c-")


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 7763\nprocessor\t: 1\nmodel name\t: AMD EPYC 7763\n", "AMD EPYC 7763"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "ARM 0x41 0xd0c"),
    ],
)
def test_cpu_model(tmp_path: Path, text: str, model: str) -> None:
    put(tmp_path, "proc/cpuinfo", text)
    assert cpu_model(tmp_path) == model


def test_governor(tmp_path: Path) -> None:
    assert governor(tmp_path) is None
    put(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    assert governor(tmp_path) == "performance"
    put(tmp_path, "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n")
    assert governor(tmp_path) == "performance+powersave"


def test_cgroup_v2_takes_the_least_limit_up_to_the_top(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/outer/inner\n")
    put(tmp_path, "sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n")
    put(tmp_path, "sys/fs/cgroup/outer/cpu.max", "150000 100000\n")
    put(tmp_path, "sys/fs/cgroup/outer/inner/memory.max", "1073741824\n")
    put(tmp_path, "sys/fs/cgroup/outer/memory.max", "max\n")
    assert cpu_quota(tmp_path) == 1.5
    assert memory_limit_bytes(tmp_path) == 2**30


def test_cgroup_v2_inside_a_container_shows_its_limit_at_the_top(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/\n")
    put(tmp_path, "sys/fs/cgroup/cpu.max", "50000 100000\n")
    assert cpu_quota(tmp_path) == 0.5


@pytest.mark.parametrize(
    ("used", "unread", "left"), [("700", "", 300), ("700", "inactive_file 150", 450), ("1200", "anon 1", 0)]
)
def test_what_a_cgroup_has_used_is_not_left_of_its_limit(tmp_path: Path, used: str, unread: str, left: int) -> None:
    """Files that the kernel may drop are used as long as nobody needs their memory."""
    put(tmp_path, "proc/self/cgroup", "0::/outer/inner\n")
    put(tmp_path, "sys/fs/cgroup/outer/inner/memory.max", "5000\n")
    put(tmp_path, "sys/fs/cgroup/outer/inner/memory.current", "600\n")
    put(tmp_path, "sys/fs/cgroup/outer/memory.max", "1000\n")
    put(tmp_path, "sys/fs/cgroup/outer/memory.current", f"{used}\n")
    put(tmp_path, "sys/fs/cgroup/outer/memory.stat", f"anon 100\n{unread}\nactive_file 50\n")
    assert memory_left_bytes(tmp_path) == left


def test_cgroup_v1(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
    put(tmp_path, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n")
    assert cpu_quota(tmp_path) == 2.0
    assert memory_limit_bytes(tmp_path) is None
    put(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n")
    assert memory_limit_bytes(tmp_path) == memory_left_bytes(tmp_path) == 4096
    put(tmp_path, "sys/fs/cgroup/memory/memory.usage_in_bytes", "3000\n")
    put(tmp_path, "sys/fs/cgroup/memory/memory.stat", "inactive_file 20\ntotal_inactive_file 1000\n")
    assert memory_left_bytes(tmp_path) == 2096


def test_nothing_to_read_is_no_limit(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert memory_limit_bytes(tmp_path) is None


def test_read_machine_is_stable_and_uses_the_root(tmp_path: Path) -> None:
    put(tmp_path, "proc/cpuinfo", "model name\t: A Very Own CPU\n")
    found = read_machine(tmp_path)
    assert found == read_machine(tmp_path)
    assert found.cpu == "A Very Own CPU"
    assert f"a-very-own-{usable_cores()}c-" in found.fingerprint
    assert read_machine().cores == usable_cores()


# ---- which cores a process may keep busy, and which workers may have for themselves

CPU = "sys/devices/system/cpu/cpu"


def lay(root: Path, *cpus: tuple[int, int, str, int]) -> None:
    """Each CPU with its node, the CPUs of its core, and its top frequency."""
    for cpu, node, core, speed in cpus:
        put(root, f"{CPU}{cpu}/node{node}/cpulist", "0")
        put(root, f"{CPU}{cpu}/topology/thread_siblings_list", f"{core}\n")
        put(root, f"{CPU}{cpu}/cpufreq/cpuinfo_max_freq", f"{speed}\n")


def test_one_cpu_of_each_core(tmp_path: Path) -> None:
    lay(tmp_path, *((cpu, 0, f"{cpu % 4},{cpu % 4 + 4}", 3000) for cpu in range(8)))
    assert machine.separate_cpus(range(8), tmp_path) == [0, 1, 2, 3]
    assert machine.separate_cpus([6, 5, 2], tmp_path) == [2, 5]  # 6 is beside 2


def test_the_node_with_most_of_them(tmp_path: Path) -> None:
    lay(tmp_path, *((cpu, cpu % 2, str(cpu), 3000) for cpu in range(8)))
    assert machine.separate_cpus(range(8), tmp_path) == [0, 2, 4, 6]
    assert machine.separate_cpus([0, 1, 3, 5], tmp_path) == [1, 3, 5]


def test_no_efficiency_cores_but_those_that_boost_a_little_less(tmp_path: Path) -> None:
    lay(tmp_path, *((cpu, 0, str(cpu), speed) for cpu, speed in enumerate([5800, 5500, 5500, 4300, 4300])))
    assert machine.separate_cpus(range(5), tmp_path) == [0, 1, 2]
    assert machine.separate_cpus([3, 4], tmp_path) == [3, 4]  # where there are no others


def test_hybrid_cpus_and_capacities_are_taken_at_their_word(tmp_path: Path) -> None:
    lay(tmp_path, *((cpu, 0, str(cpu), 5000) for cpu in range(6)))
    for cpu, capacity in enumerate([1024, 1024, 400, 400, 1024, 400]):
        put(tmp_path, f"{CPU}{cpu}/cpu_capacity", f"{capacity}\n")
    assert machine.separate_cpus(range(6), tmp_path) == [0, 1, 4]
    put(tmp_path, "sys/devices/cpu_core/cpus", "0-1,3\n")
    assert machine.separate_cpus(range(6), tmp_path) == [0, 1, 3]


def test_a_system_that_says_nothing(tmp_path: Path) -> None:
    assert machine.separate_cpus([3, 1], tmp_path) == [1, 3]
    assert machine.separate_cpus([], tmp_path) == []


# ---- what a cell lacks


@pytest.fixture
def eight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight CPUs on four machine."""
    lay(tmp_path, *((cpu, 0, f"{cpu % 4},{cpu % 4 + 4}", 3000) for cpu in range(8)))
    monkeypatch.setattr(machine, "usable_cores", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    return tmp_path


def cell_of(word: str, workers: int, **declared: Any) -> tuple[Cell, Spec]:
    spec = spec_of(word, workers=workers, **declared)
    return group_of(spec=spec).cells[0], spec


def test_needed_cores(eight: Path) -> None:
    assert machine.available_cores(eight) == 8
    assert machine.cores_lacking(*cell_of("threads", 2), eight) == ""
    assert machine.cores_lacking(*cell_of("threads", 2, min_cores=8), eight) == ""
    said = machine.cores_lacking(*cell_of("threads", 2, min_cores=9), eight)
    assert said == "needs 9 cores, 8 are available to this process"
    put(eight, "sys/fs/cgroup/cpu.max", "150000 100000")
    assert machine.available_cores(eight) == 1
    said = machine.cores_lacking(*cell_of("threads", 2, min_cores=2), eight)
    assert said == "needs 2 cores, 1 is available to this process"


def test_a_core_for_each_worker(eight: Path) -> None:
    assert machine.worker_cpus(eight) == [0, 1, 2, 3]
    assert machine.cores_lacking(*cell_of("threads", 4, pin=True), eight) == ""
    said = machine.cores_lacking(*cell_of("spawn", 5, pin=True), eight)
    assert said.startswith("pin=True needs 5 cores, 4 are available to this process (physical performance cores")
    assert machine.cores_lacking(*cell_of("serial", 5, pin=True), eight) == ""  # one after the other, on one core
    put(eight, "sys/fs/cgroup/cpu.max", "250000 100000")
    assert machine.worker_cpus(eight) == [0, 1]
    assert "needs 3 cores, 2 are" in machine.cores_lacking(*cell_of("threads", 3, pin=True), eight)


def test_a_system_that_pins_nothing(eight: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    assert machine.worker_cpus(eight) == []
    said = machine.cores_lacking(*cell_of("threads", 1, pin=True), eight)
    assert said == "pin=True: this system cannot pin a thread to a core"


def test_workers_that_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "worker_cpus", lambda: [2, 4, 6])
    assert machine.pinned(*cell_of("threads", 2)) == []
    assert machine.pinned(*cell_of("threads", 2, pin=True)) == [2, 4]
    assert machine.pinned(*cell_of("serial", 2, pin=True)) == [2]


def test_the_specs_of_both_differ_in_their_digests() -> None:
    cell, spec = cell_of("threads", 2)
    pinned = msgspec.structs.replace(spec, pin=True)
    assert measures(cell, spec) == ""
    assert measures(cell, pinned) not in ("", measures(cell, msgspec.structs.replace(pinned, packages=("flask",))))
    assert measures(cell, msgspec.structs.replace(spec, min_cores=4)) == ""
