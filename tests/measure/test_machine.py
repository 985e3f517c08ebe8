"""The machine's description from a fake /proc and /sys, and the fingerprint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_ftgate.measure.machine import (
    cpu_model,
    cpu_quota,
    fingerprint,
    governor,
    memory_limit_bytes,
    read_machine,
    usable_cores,
)

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


def test_cgroup_v1(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
    put(tmp_path, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n")
    assert cpu_quota(tmp_path) == 2.0
    assert memory_limit_bytes(tmp_path) is None
    put(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n")
    assert memory_limit_bytes(tmp_path) == 4096


def test_nothing_to_read_is_no_limit(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert memory_limit_bytes(tmp_path) is None


def test_read_machine_is_stable_and_uses_the_root(tmp_path: Path) -> None:
    put(tmp_path, "proc/cpuinfo", "model name\t: A Very Own CPU\n")
    machine = read_machine(tmp_path)
    assert machine == read_machine(tmp_path)
    assert machine.cpu == "A Very Own CPU"
    assert f"a-very-own-{usable_cores()}c-" in machine.fingerprint
    assert read_machine().cores == usable_cores()
