"""Launches that cannot all be alive together: measured in batches, each cell with what it is paired with."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable

import msgspec
import pytest
from bench import THREADS, Bench
from fake_launcher import (
    MIB,
    MS,
    At,
    FakeLauncher,
    WholeMeasurement,
    group_of,
    measurement_of,
    memory_of,
    noisy,
    spec_of,
    steady,
)

from pytest_ftgate.measure.capacity import (
    BARE_BYTES,
    DESCRIPTORS,
    MEMORY_SHARE,
    SPARE_DESCRIPTORS,
    WORKLOAD_BYTES,
    Capacity,
    Needed,
)
from pytest_ftgate.measure.launchers import guard
from pytest_ftgate.measure.round_plan import LEAST_ITERATIONS, Allowance
from pytest_ftgate.model.spec import Group
from pytest_ftgate.runner.protocol import MEASURED

THREE = Allowance(launches=3, iterations=4)


def group_of_cells(count: int) -> Group:
    """One test of so many cells, each with its own number of workers."""
    one = group_of(spec=spec_of("threads"))
    cells = [
        msgspec.structs.replace(one.cells[0], nodeid=f"{one.spec.nodeid}[3.14-threads-w{workers}]", workers=workers)
        for workers in range(1, count + 1)
    ]
    return Group(key=one.key, spec=one.spec, cells=tuple(cells))


def run_of(
    launcher: FakeLauncher, group: Group, capacity: Capacity, *, paired: bool = False, limits: Allowance = THREE
) -> WholeMeasurement:
    return measurement_of(launcher, group, limits, paired=paired, capacity=capacity)


def test_the_memory_is_what_the_cgroup_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_ftgate.measure.capacity.memory_left_bytes", lambda: 1 << 20)
    assert Capacity.of_this_process().memory_bytes == MEMORY_SHARE * (1 << 20)


@pytest.mark.parametrize("paired", [False, True])
def test_so_few_descriptors_that_the_cells_are_split(paired: bool) -> None:
    launcher, group = FakeLauncher(), group_of_cells(15)
    capacity = Capacity(descriptors=106, opened=15)
    run = run_of(launcher, group, capacity, paired=paired)
    samples = run.measure()
    assert capacity.launches == (106 - 15 - SPARE_DESCRIPTORS) // DESCRIPTORS == 17
    assert max(len(event.alive) for event in launcher.events) <= 17
    for sample in samples:
        assert [launch.order for launch in sample.launches] == [0, 1, 2]
        beside = sample.reference.launches if sample.reference else sample.of("control")
        assert [len(launch.iterations) for launch in (*sample.launches, *beside)] == [4] * 6
    measured = [event for event in launcher.of(MEASURED) if event.at.side != "locks"]
    for own, other in zip(measured[::2], measured[1::2], strict=True):
        assert own.at.label == other.at.label  # still each beside what it is paired with
        assert (own.at.order, own.at.number) == (other.at.order, other.at.number)
    assert "but in up to" in run.split
    assert "106 files (`ulimit -n`)" in run.split


def test_what_is_lacking_is_counted_in_words() -> None:
    one = Capacity(descriptors=SPARE_DESCRIPTORS + DESCRIPTORS)
    assert one.lacking(Needed(launches=2)).endswith("which suffice for 1 launch")


def test_batches_have_other_cells_in_each_round() -> None:
    launcher = FakeLauncher()
    run_of(launcher, group_of_cells(6), Capacity(descriptors=SPARE_DESCRIPTORS + 9 * DESCRIPTORS)).measure()
    together: dict[int, set[frozenset[str]]] = defaultdict(set)
    for event in launcher.of(MEASURED):
        together[event.at.order].add(frozenset(launcher.handles[each].side[0] for each in event.alive))
    assert {len(batch) for batches in together.values() for batch in batches} == {3}
    assert len(set(map(frozenset, together.values()))) > 1


def test_the_pilot_of_a_batch_is_as_long_as_the_whole_round_makes_it() -> None:
    launcher = FakeLauncher(wall_ns=steady(50 * MS))
    capacity = Capacity(descriptors=SPARE_DESCRIPTORS + 9 * DESCRIPTORS)
    samples = run_of(launcher, group_of_cells(6), capacity, limits=Allowance(launches=1, budget_s=1e6)).measure()
    assert {len(sample.launches[0].iterations) for sample in samples} == {LEAST_ITERATIONS}


def test_nothing_is_split_where_all_fits() -> None:
    events = []
    for capacity in (Capacity(), Capacity(descriptors=1024, memory_bytes=1 << 40, opened=20)):
        launcher = FakeLauncher()
        run = run_of(launcher, group_of_cells(6), capacity)
        run.measure()
        events.append(launcher.events)
        assert run.split == ""
    assert events[0] == events[1]


def test_memory_that_a_first_round_showed_decides_on_the_next_ones() -> None:
    launcher, group = FakeLauncher(), group_of_cells(6)
    launcher.memory = lambda _: memory_of(40 * MIB)
    budget = 256 * MIB
    run = run_of(launcher, group, Capacity(memory_bytes=budget))
    alive: Counter[int] = Counter()
    run.measure()
    for event in launcher.of(MEASURED):
        alive[event.at.order] = max(alive[event.at.order], len(event.alive))
    assumed = 2 * (BARE_BYTES + WORKLOAD_BYTES) + BARE_BYTES  # own and with the lock probe, and the control workload
    assert alive[0] == 3 * (budget // assumed) == 3
    assert alive[1] == alive[2] == 3 * (budget // (2 * 40 * MIB + BARE_BYTES)) == 6
    assert "256 MiB, half of the free memory" in run.split


def test_processes_and_threads_are_counted_too() -> None:
    launcher = FakeLauncher()
    run = run_of(launcher, group_of_cells(3), Capacity(tasks=30))  # three launches of 3, 4 and 5 each
    run.measure()
    assert max(len(event.alive) for event in launcher.events) == 6
    assert "30 processes and threads can be started (`ulimit -u`" in run.split


def test_a_cell_that_is_too_large_for_itself_is_measured_alone() -> None:
    launcher = FakeLauncher()
    samples = run_of(launcher, group_of_cells(2), Capacity(memory_bytes=1)).measure()
    assert [len(sample.launches) for sample in samples] == [3, 3]
    assert max(len(event.alive) for event in launcher.events) == 3
    only = run_of(FakeLauncher(), group_of_cells(1), Capacity(memory_bytes=1))
    only.measure()
    assert only.split == ""


@pytest.mark.parametrize("shortest", [1, 2, 3])
def test_loops_are_those_of_the_shortest_cell_whatever_its_batch(shortest: int) -> None:
    def wall(short_ns: float) -> Callable[[At], float]:
        return lambda at: short_ns if at.label == f"3.14-threads-w{shortest}" else 20 * MS

    one = Capacity(descriptors=SPARE_DESCRIPTORS + 3 * DESCRIPTORS)
    found = []
    for capacity in (Capacity(), one):
        launcher = FakeLauncher(wall_ns=wall(1_000.0))
        run = run_of(launcher, group_of_cells(3), capacity)
        run.measure()
        found.append(run.plan.loops)
    assert found[0] == found[1] == 200


def test_the_iterations_are_planned_for_all_cells_together() -> None:
    found = []
    for capacity in (Capacity(), Capacity(descriptors=SPARE_DESCRIPTORS + 3 * DESCRIPTORS)):
        launcher = FakeLauncher(wall_ns=noisy(20 * MS, 0.01, 0.3))
        run = run_of(launcher, group_of_cells(4), capacity, limits=Allowance(launches=3, budget_s=8.0))
        run.step()
        counts = {len(launch.iterations) for sample in run.samples_so_far() for launch in sample.launches}
        found.append((counts, round(run.plan.iteration_ns / MS)))
    assert found[0] == found[1]
    assert len(found[0][0]) == 1


def test_a_real_launch_keeps_no_more_open_than_is_counted_for_it(bench: Bench) -> None:
    bench.write("@ftgate.compare(threads)\ndef test_it(worker): return 1\n")
    guard.ensure()  # it keeps one
    before = len(os.listdir("/dev/fd"))
    for number in range(1, 4):
        bench.start(THREADS).ready()
        assert len(os.listdir("/dev/fd")) - before <= number * DESCRIPTORS
