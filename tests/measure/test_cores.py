"""Which cores a process may keep busy and which workers may have for themselves, from a fake /sys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_launcher import group_of, spec_of
from test_machine import put

from pytest_ftgate.measure import machine
from pytest_ftgate.measure import machine as cores
from pytest_ftgate.model.spec import Cell, Spec

CPU = "sys/devices/system/cpu/cpu"


def lay(root: Path, *cpus: tuple[int, int, str, int]) -> None:
    """Each CPU with its node, the CPUs of its core, and its top frequency."""
    for cpu, node, core, speed in cpus:
        put(root, f"{CPU}{cpu}/node{node}/cpulist", "0")
        put(root, f"{CPU}{cpu}/topology/thread_siblings_list", f"{core}\n")
        put(root, f"{CPU}{cpu}/cpufreq/cpuinfo_max_freq", f"{speed}\n")


def test_one_cpu_of_each_core(tmp_path: Path) -> None:
    lay(tmp_path, *((cpu, 0, f"{cpu % 4},{cpu % 4 + 4}", 3000) for cpu in range(8)))
    assert cores.own_cpus(range(8), tmp_path) == [0, 1, 2, 3]
    assert cores.own_cpus([6, 5, 2], tmp_path) == [2, 5]  # 6 is beside 2


def test_the_node_with_most_of_them(tmp_path: Path) -> None:
    lay(tmp_path, *((cpu, cpu % 2, str(cpu), 3000) for cpu in range(8)))
    assert cores.own_cpus(range(8), tmp_path) == [0, 2, 4, 6]
    assert cores.own_cpus([0, 1, 3, 5], tmp_path) == [1, 3, 5]


def test_no_efficiency_cores_but_those_that_boost_a_little_less(tmp_path: Path) -> None:
    lay(tmp_path, *((cpu, 0, str(cpu), speed) for cpu, speed in enumerate([5800, 5500, 5500, 4300, 4300])))
    assert cores.own_cpus(range(5), tmp_path) == [0, 1, 2]
    assert cores.own_cpus([3, 4], tmp_path) == [3, 4]  # where there are no others


def test_hybrid_cpus_and_capacities_are_taken_at_their_word(tmp_path: Path) -> None:
    lay(tmp_path, *((cpu, 0, str(cpu), 5000) for cpu in range(6)))
    for cpu, capacity in enumerate([1024, 1024, 400, 400, 1024, 400]):
        put(tmp_path, f"{CPU}{cpu}/cpu_capacity", f"{capacity}\n")
    assert cores.own_cpus(range(6), tmp_path) == [0, 1, 4]
    put(tmp_path, "sys/devices/cpu_core/cpus", "0-1,3\n")
    assert cores.own_cpus(range(6), tmp_path) == [0, 1, 3]


def test_a_system_that_says_nothing(tmp_path: Path) -> None:
    assert cores.own_cpus([3, 1], tmp_path) == [1, 3]
    assert cores.own_cpus([], tmp_path) == []


# ---- what a cell lacks


@pytest.fixture
def eight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight CPUs on four cores."""
    lay(tmp_path, *((cpu, 0, f"{cpu % 4},{cpu % 4 + 4}", 3000) for cpu in range(8)))
    monkeypatch.setattr(machine, "usable_cores", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None, raising=False)
    return tmp_path


def cell_of(word: str, workers: int, **declared: Any) -> tuple[Cell, Spec]:
    spec = spec_of(word, workers=workers, **declared)
    return group_of(spec=spec).cells[0], spec


def test_needed_cores(eight: Path) -> None:
    assert cores.available(eight) == 8
    assert cores.lacking(*cell_of("threads", 2), eight) == ""
    assert cores.lacking(*cell_of("threads", 2, min_cores=8), eight) == ""
    said = cores.lacking(*cell_of("threads", 2, min_cores=9), eight)
    assert said == "needs 9 cores, 8 are available to this process"
    put(eight, "sys/fs/cgroup/cpu.max", "150000 100000")
    assert cores.available(eight) == 1
    said = cores.lacking(*cell_of("threads", 2, min_cores=2), eight)
    assert said == "needs 2 cores, 1 is available to this process"


def test_a_core_for_each_worker(eight: Path) -> None:
    assert cores.for_workers(eight) == [0, 1, 2, 3]
    assert cores.lacking(*cell_of("threads", 4, pin=True), eight) == ""
    said = cores.lacking(*cell_of("spawn", 5, pin=True), eight)
    assert said.startswith("pin=True needs 5 cores, 4 are available to this process (physical performance cores")
    assert cores.lacking(*cell_of("serial", 5, pin=True), eight) == ""  # one after the other, on one core
    put(eight, "sys/fs/cgroup/cpu.max", "250000 100000")
    assert cores.for_workers(eight) == [0, 1]
    assert "needs 3 cores, 2 are" in cores.lacking(*cell_of("threads", 3, pin=True), eight)


def test_a_system_that_pins_nothing(eight: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    assert cores.for_workers(eight) == []
    said = cores.lacking(*cell_of("threads", 1, pin=True), eight)
    assert said == "pin=True: this system cannot pin a thread to a core"


def test_workers_that_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "for_workers", lambda: [2, 4, 6])
    assert cores.pinned(*cell_of("threads", 2)) == []
    assert cores.pinned(*cell_of("threads", 2, pin=True)) == [2, 4]
    assert cores.pinned(*cell_of("serial", 2, pin=True)) == [2]


def test_the_specs_of_both_differ_in_their_digests() -> None:
    from pytest_ftgate.measure.context import measures

    cell, spec = cell_of("threads", 2)
    pinned = msgspec.structs.replace(spec, pin=True)
    assert measures(cell, spec) == ""
    assert measures(cell, pinned) not in ("", measures(cell, msgspec.structs.replace(pinned, packages=("flask",))))
    assert measures(cell, msgspec.structs.replace(spec, min_cores=4)) == ""
