"""Interleaved scripted launches on their own clock: order, isolation, how much is measured, and what goes wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any

import msgspec
import pytest
from fake_launcher import (
    EXECUTORS,
    FREE,
    MIB,
    MS,
    READY,
    TARGETS,
    TEST,
    At,
    Event,
    FakeLauncher,
    Quiet,
    WholeMeasurement,
    failed,
    group_of,
    measurement_of,
    memory_of,
    noisy,
    spec_of,
    steady,
    unsupported,
)

from pytest_ftgate.judge.readers import counter_values
from pytest_ftgate.judge.values import TestValues
from pytest_ftgate.kit.marks import run_mark
from pytest_ftgate.measure import group, time_round
from pytest_ftgate.measure.cell_run import BARE_LOCKS, CellRun, EmptyLaunches
from pytest_ftgate.measure.conditions import ConditionsMonitor
from pytest_ftgate.measure.group import Measurement, StoppingRule
from pytest_ftgate.measure.launch import LAUNCHES, CellUnsupported, LaunchFailed, LaunchRole
from pytest_ftgate.measure.memory_round import (
    BARE_HOLDS,
    BARRIERS,
    DEAR,
    GROWTH_AT_LEAST,
    GROWTH_AT_MOST,
    memory_cost_ns,
)
from pytest_ftgate.measure.round_plan import LEAST_ITERATIONS, PILOT_ITERATIONS, Allowance
from pytest_ftgate.measure.time_round import PROBED_ITERATIONS
from pytest_ftgate.model.sample import EVERYTHING, IN_PAIRS, Need, Sample, Waits, WorkloadError
from pytest_ftgate.model.spec import DeclaredContract, Environment, Executor, Group, Program, Settings
from pytest_ftgate.runner.protocol import BARRIER, CHECK, CHECKED_COLD, COLD, HOLD, MEASURED, WARMUP

ITERATIONS = (COLD, CHECKED_COLD, WARMUP, MEASURED, CHECK)
MOST_PROBED = max(PROBED_ITERATIONS)
MOST_BARRIERS = max(BARRIERS)
THREE = Allowance(launches=3, iterations=4)
ADAPTING = Allowance()
LABELS = ("3.14-threads-w2", "3.14-fork-w2", "3.14-spawn-w2")


class Recorder(Quiet):
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str, int, int, float | None]] = []

    def advance(self, label: str, phase: str, number: int, of: int, left_s: float | None) -> None:
        self.calls.append((label, phase, number, of, left_s))


def run_of(
    launcher: FakeLauncher, group: Group | None = None, *, limits: Allowance = THREE, **more: Any
) -> WholeMeasurement:
    return measurement_of(launcher, group or group_of("threads", "fork", "spawn"), limits, **more)


def measured(launcher: FakeLauncher, *executors: str, limits: Allowance = ADAPTING, **declared: object) -> list[Sample]:
    group = group_of(spec=spec_of(*(executors or ("threads", "fork")), **declared))  # type: ignore[arg-type]
    return run_of(launcher, group, limits=limits).measure()


def rounds(launcher: FakeLauncher) -> dict[int, list[Event]]:
    """The measured iterations of each round."""
    found: dict[int, list[Event]] = defaultdict(list)
    for event in launcher.of(MEASURED):
        found[event.at.order].append(event)
    return dict(found)


# -- order and isolation -------------------------------------------------------------------------------------------


def test_the_seconds_of_each_kind_of_launch_are_counted_once() -> None:
    launcher = FakeLauncher(wall_ns=steady(20 * MS))
    measurement = measurement_of(launcher, group_of("threads"), THREE)
    began_s = launcher.clock()
    measurement.measure()
    took: dict[str, float] = defaultdict(float)
    held = {event.handle for event in launcher.events if event.at.event in {BARRIER, HOLD}}
    for event in launcher.events:
        took["memory" if event.handle in held else LAUNCHES[event.at.side].seconds] += (
            event.ended_ns - event.began_ns
        ) / 1e9
    assert measurement.spent.seconds == pytest.approx(took)
    assert set(took) == {"time", "controls", "locks", "memory"}
    assert sum(took.values()) == pytest.approx(launcher.clock() - began_s)


def test_all_sides_of_a_round_are_started_together() -> None:
    launcher = FakeLauncher()
    run_of(launcher).measure()
    for events in rounds(launcher).values():
        sides = {(event.at.label, event.at.side) for event in events}
        assert sides == {(label, side) for label in LABELS for side in ("own", "control", "locks")}
        assert all(len(event.alive) == 9 for event in events)
    for event in launcher.of(COLD):
        ready = [other for other in launcher.of("ready") if other.handle in event.alive]
        assert all(other.ended_ns <= event.began_ns for other in ready)


def test_cells_are_shuffled_within_each_iteration_and_none_is_left_out() -> None:
    launcher = FakeLauncher()
    run_of(launcher, limits=Allowance(launches=3, iterations=16)).measure()
    orders, controls_first = [], []
    for events in rounds(launcher).values():
        bare = [event for event in events if event.at.side != "locks"]
        for begin in range(0, len(bare), 6):
            iteration = bare[begin : begin + 6]
            assert {event.at.number for event in iteration} == {begin // 6}
            assert len({event.handle for event in iteration}) == 6
            # Each cell next to its control workload: neighbours see the same machine.
            pairs = list(zip(iteration[::2], iteration[1::2], strict=True))
            assert all(one.at.label == other.at.label for one, other in pairs)
            orders.append(tuple(one.at.label for one, _ in pairs))
            controls_first += [one.at.control for one, _ in pairs]
    assert len(orders) == 48
    assert set(orders) == set(permutations(LABELS))
    assert 48 < sum(controls_first) < 96  # of 144


def test_the_lock_probe_takes_the_first_iterations_of_a_round_next_to_the_bare_launch() -> None:
    launcher = FakeLauncher()
    launcher.waited_ns = steady(3 * MS)
    samples = run_of(launcher, limits=Allowance(launches=3, iterations=MOST_PROBED + 3)).measure()
    for sample in samples:
        assert [launch.order for launch in sample.of("locks")] == [0, 1, 2]
        assert {len(launch.iterations) for launch in sample.of("locks")} == {MOST_PROBED}
        assert {len(launch.iterations) for launch in sample.launches} == {MOST_PROBED + 3}
        assert not any(launch.locks for launch in sample.launches)
        waits = [launch.locks for launch in sample.of("locks") if launch.locks]
        assert [(w.ops, w.counted_ops, w.sites[0].total_ns) for w in waits] == [(5, 1, 2 * 5 * 3 * MS)] * 3
    iterations = [event for event in launcher.of(MEASURED) if event.at.number < MOST_PROBED]
    for begin in range(0, len(iterations), 3):
        # The three sides of a cell are neighbours, the probe at either end.
        three = iterations[begin : begin + 3]
        assert len({event.at.label for event in three}) == 1
        assert three[1].at.side != "locks"
    assert not launcher.of(CHECK, side="locks")


def test_an_observed_launch_has_iterations_that_are_long_enough_and_none_is_started_unasked() -> None:
    launcher = FakeLauncher(wall_ns=steady(2 * MS))
    assert not [sample for sample in run_of(launcher).measure() if sample.of("observed")]
    launcher = FakeLauncher(wall_ns=steady(2 * MS))
    for sample in run_of(launcher, paired=True, observers=("beat.py",)).measure():
        for side in (sample, sample.reference):
            assert side is not None
            assert [(each.order, each.loops, len(each.iterations)) for each in side.of("observed")] == [
                (order, 25, THREE.iterations) for order in range(3)
            ]
    assert {request.observers for request in launcher.requests if request.role == "observed"} == {("beat.py",)}
    assert {request.observers for request in launcher.requests if request.role != "observed"} == {()}


def test_a_test_of_one_call_is_observed_in_one_call() -> None:
    group = group_of(spec=spec_of("threads", one_call=True))
    (sample,) = run_of(FakeLauncher(), group, observers=("beat.py",)).measure()
    assert {launch.loops for launch in sample.of("observed")} == {1}


def test_what_is_seen_at_a_glance_needs_no_longer_iterations() -> None:
    (sample,) = run_of(FakeLauncher(), group_of("threads"), observers=("beat.py",), at_a_glance=True).measure()
    (bare,) = run_of(FakeLauncher(), group_of("threads")).measure()
    assert {launch.loops for launch in sample.of("observed")} == {launch.loops for launch in bare.launches}


def test_a_failure_while_it_is_observed_is_named() -> None:
    launcher = FakeLauncher()
    launcher.trouble = lambda at: failed("hung") if at.side == "observed" and at.event == MEASURED else None
    (sample,) = run_of(launcher, group_of("threads"), observers=("beat.py",)).measure()
    assert sample.error is not None
    assert sample.error.reason == "while it was observed: hung"


def test_worker_counts_of_one_executor_are_neighbours() -> None:
    launcher = FakeLauncher(wall_ns=lambda at: (10 if "w1" in at.label else 40) * MS)
    samples = run_of(launcher, of_counts(1, 4)).measure()
    for iteration in chunks([event for event in launcher.of(MEASURED) if event.at.side != "locks"], 8):
        families = [event.at.label.rpartition("-")[0] for event in iteration]
        assert families[:4] == [families[0]] * 4 != families[4:] == [families[4]] * 4
    alone, four = samples[0], samples[2]
    assert (alone.cell.workers, four.cell.workers) == (1, 4)
    assert [launch.order for launch in four.launches] == [launch.order for launch in alone.launches]


def test_another_number_of_workers_may_give_another_result() -> None:
    launcher = FakeLauncher()
    launcher.results = lambda at: ("1",) if "w1" in at.label else ("1; 1; 1; 1",)
    assert [sample.error for sample in run_of(launcher, of_counts(1, 4)).measure()] == [None] * 4


def of_counts(*counts: int) -> Group:
    """Threads and fork at each of these worker counts."""
    groups = [group_of(spec=spec_of("threads", "fork", workers=count)) for count in counts]
    return Group(key="k", spec=groups[0].spec, cells=tuple(cell for group in groups for cell in group.cells))


def of_environments(*words: str) -> Group:
    """Threads with one and four workers in each of these environments."""
    found = []
    for word in words:
        environment = Environment(variables=(("NAME", word),), words=(f"NAME:{word}",))
        for cell in of_counts(1, 4).cells:
            nodeid = f"{cell.nodeid.removesuffix(']')}-NAME:{word}]"
            if cell.executor.kind == "threads":
                found.append(msgspec.structs.replace(cell, nodeid=nodeid, environment=environment))
    return Group(key="k", spec=spec_of("threads"), cells=tuple(found))


def test_environments_are_interleaved_and_each_scales_by_its_own_single_worker() -> None:
    launcher = FakeLauncher()
    test = {each.cell.label: each for each in TestValues(run_of(launcher, of_environments("a", "b")).measure())}
    for word in "ab":
        four, alone = test[f"3.14-threads-w4-NAME:{word}"], test[f"3.14-threads-w1-NAME:{word}"]
        assert (four.one_worker, alone.one_worker) == (alone, None)
    assert {event.at.label for event in rounds(launcher)[0]} == set(test)


def test_another_environment_may_give_another_result_and_has_a_memory_floor_of_its_own() -> None:
    launcher = FakeLauncher()
    launcher.results = lambda at: (at.label.rpartition(":")[2],)
    samples = run_of(launcher, of_environments("a", "b")).measure()
    assert [sample.error for sample in samples] == [None] * 4
    assert len([request for request in launcher.requests if request.role == "empty"]) >= 4


def chunks(events: list[Event], size: int) -> Iterator[list[Event]]:
    return (events[begin : begin + size] for begin in range(0, len(events), size))


def test_memory_is_sampled_in_launches_of_their_own() -> None:
    launcher = FakeLauncher()
    samples = run_of(launcher).measure()
    held = {event.handle for event in launcher.of(HOLD)}
    assert len(held) == 9
    assert not held & {event.handle for event in launcher.of(*ITERATIONS)}
    assert all(event.alive == {event.handle} for event in launcher.of(HOLD, BARRIER))
    assert {event.at.side for event in launcher.of(HOLD)} == {"own"}
    assert {event.at.side for event in launcher.of(BARRIER)} == {"own", "empty"}
    for sample in samples:
        assert [len(launch.barriers) for launch in sample.of("memory")] == [MOST_BARRIERS] * 3
        assert [len(launch.barriers) for launch in sample.of("empty")] == [MOST_BARRIERS]
        assert not any(launch.memory for launch in sample.of("empty"))
        assert [launch.order for launch in sample.of("memory")] == [0, 1, 2]
        assert {point.uss_bytes for launch in sample.of("memory") for point in launch.memory} == {20 * MIB}
        assert not any(launch.memory for launch in sample.launches)
        assert not any(launch.iterations for launch in sample.of("memory"))


@pytest.mark.parametrize(
    ("executor", "reuse", "launches"), [("threads", "fresh", 5), ("fork", "pool", 5), ("fork", "fresh", 0)]
)
@pytest.mark.parametrize("target", TARGETS)
def test_growth_is_shown_where_something_can_grow(executor: str, reuse: str, launches: int, target: str) -> None:
    launcher = FakeLauncher()
    group = group_of(spec=spec_of(executor, reuse=reuse), targets=(target,))
    (sample,) = run_of(launcher, group, limits=Allowance(launches=5, iterations=1)).measure()
    assert len(sample.of("growth")) == launches
    assert len(sample.of("growth_empty")) == min(launches, 1)
    assert {len(launch.barriers) for launch in (*sample.of("growth"), *sample.of("growth_empty"))} <= {GROWTH_AT_MOST}
    assert not any(launch.memory for launch in sample.of("growth"))
    assert {len(launch.barriers) for launch in sample.of("memory")} == {MOST_BARRIERS}
    # Launches of their own only where the allocator must be told to free at once.
    settled = Counter(request.role for request in launcher.requests if request.settled)
    assert settled == (Counter(own=launches, empty=min(launches, 1)) if target == "3.14t" else Counter())


def test_launches_of_an_empty_workload_are_shared_by_all_cells_that_differ_in_nothing_else() -> None:
    launcher = FakeLauncher()
    empty: EmptyLaunches = {}

    def floor_of(count: int, *targets: str) -> list[int]:
        before = len(launcher.handles)
        group = group_of(spec=spec_of("threads", workers=count), targets=targets)
        samples = run_of(launcher, group, empty=empty).measure()
        assert all(len(sample.of("empty")) == len(sample.of("growth_empty")) == 1 for sample in samples)
        started = [request.role for request in launcher.requests[before:] if request.role == "empty"]
        return [len(started), *(launch.barriers[0].ops for sample in samples for launch in sample.of("empty"))]

    assert floor_of(2, "3.14")[0] == 1  # it shows growth too
    assert floor_of(2, "3.14")[0] == 0
    assert floor_of(4, "3.14")[0] == 1
    assert floor_of(4, "3.14", "3.14t")[0] == 2


def test_samples_at_barriers_are_as_many_as_time_allows() -> None:
    found = []
    for wall_ns in (20 * MS, 100 * MS, 1000 * MS):
        launcher = FakeLauncher(wall_ns=steady(wall_ns))
        (sample,) = measured(launcher, "threads", limits=Allowance(launches=1, iterations=1))
        found.append(len(sample.of("growth")[0].barriers))
    assert found == [GROWTH_AT_MOST, 5, GROWTH_AT_LEAST]


def test_sampling_overhead_is_measured_by_holding_it_bare_as_well() -> None:
    launcher = FakeLauncher(wall_ns=steady(2 * MS))
    launcher.watched = steady(1.5)
    (sample,) = measured(launcher, "threads", limits=Allowance(launches=BARE_HOLDS + 2, iterations=1))
    seen = [launch.sampling_cost for launch in sample.of("memory")]
    assert seen[BARE_HOLDS:] == [None, None]
    for cost in seen[:BARE_HOLDS]:
        assert cost is not None
        assert [*cost.bare_ns, *cost.watched_ns] == pytest.approx([2 * MS, 3 * MS])
    assert len(sample.of("empty")) == 1
    launcher.watched = steady(DEAR)
    (sample,) = measured(launcher, "threads", limits=Allowance(launches=BARE_HOLDS, iterations=1))
    cheap = [launch.sampling_cost is not None for launch in sample.of("memory")]
    assert cheap == [True, False, False], "one launch shows that it costs little"
    launcher.watched = steady(0.0)  # no operation ended while it was sampled
    (sample,) = measured(launcher, "threads", limits=Allowance(launches=1, iterations=1))
    assert sample.of("memory")[0].sampling_cost is None


def test_cold_iterations_warm_ups_and_checks_are_kept_apart() -> None:
    launcher = FakeLauncher(wall_ns=lambda at: 90 * MS if at.event != MEASURED else 20 * MS)
    samples = measured(launcher, limits=Allowance(launches=2, iterations=3), warmup=2)
    for sample in samples:
        for launch in sample.launches:
            assert [iteration.wall_ns for iteration in launch.iterations] == [20 * MS] * 3
            assert launch.cold is not None
            assert launch.cold.wall_ns == 90 * MS
    for handle in {event.handle for event in launcher.of(*ITERATIONS)}:
        kinds = [event.at.event for event in launcher.of(*ITERATIONS) if event.handle == handle]
        side = launcher.handles[handle].request.role
        warmups = {"control": [WARMUP], "own": [CHECK, WARMUP], "locks": [WARMUP] * 2}[side]
        last = [CHECK] if side == "own" and launcher.handles[handle].order == 0 else []
        assert kinds == [COLD, *warmups, *[MEASURED] * 3, *last]
    assert all(event.at.loops == 1 for event in launcher.of(COLD, CHECK))


@pytest.mark.parametrize(
    ("declared", "wall_ns", "first", "later"),
    [
        ({}, 20 * MS, (COLD, CHECK, MEASURED, CHECK), (COLD, CHECK, MEASURED)),
        ({"warmup": 0}, 20 * MS, (COLD, MEASURED, CHECK), (COLD, MEASURED, CHECK)),
        # One call is too short a warm-up where an iteration has many.
        ({}, 3_000, (COLD, CHECK, MEASURED, CHECK), (COLD, WARMUP, MEASURED, CHECK)),
        ({"duration_s": 0.2}, MS, (COLD, WARMUP, MEASURED), (COLD, WARMUP, MEASURED)),
        # The cold iteration warms a long body up, and compares its results once it is known to be long.
        ({}, 6_000 * MS, (COLD, CHECK, MEASURED), (CHECKED_COLD, MEASURED)),
        ({"warmup": 1}, 6_000 * MS, (COLD, CHECK, MEASURED), (COLD, CHECK, MEASURED)),
    ],
)
def test_results_are_compared_in_every_launch_and_twice_in_the_first(
    declared: dict[str, object], wall_ns: int, first: tuple[str, ...], later: tuple[str, ...]
) -> None:
    launcher = FakeLauncher(wall_ns=steady(wall_ns))
    measured(launcher, limits=Allowance(launches=2, iterations=1, budget_s=200.0), **declared)
    found = defaultdict(list)
    for event in launcher.of(*ITERATIONS, side="own"):
        found[event.handle].append(event.at.event)
    by_round = [tuple(kinds) for handle, kinds in sorted(found.items())]
    assert by_round == [first] * 2 + [later] * 2


def test_a_long_launch_with_the_lock_probe_has_no_cold_iteration() -> None:
    for wall_ns, kinds in ((20 * MS, [COLD, WARMUP]), (4000 * MS, [WARMUP])):
        launcher = FakeLauncher(wall_ns=steady(wall_ns))
        measured(launcher, "threads", limits=Allowance(launches=1, iterations=1))
        assert [event.at.event for event in launcher.of(COLD, WARMUP, side="locks")] == kinds


def test_a_long_one_is_warmed_up_in_each_round_only_where_what_its_locks_allow_is_asked_for() -> None:
    for contract, warmups in (("lock_ceiling >= 8", 2), ("scaling >= 1.6", 1)):
        launcher = FakeLauncher(wall_ns=steady(4000 * MS))
        contracts = (DeclaredContract(text=contract),)
        measured(launcher, "threads", limits=Allowance(launches=2, iterations=1, budget_s=200.0), contracts=contracts)
        assert len(launcher.of(WARMUP, side="locks")) == warmups


def draws(launcher: FakeLauncher, measurement: Measurement) -> dict[int, set[tuple[int, int]]]:
    """The hash seeds and paddings of each round's launches, filled while they are measured."""
    found: dict[int, set[tuple[int, int]]] = defaultdict(set)
    launcher.on_start = lambda each: found[measurement.plan.rounds].add((each.hash_seed, each.padding))
    return found


@pytest.mark.parametrize("paired", [False, True])
def test_all_launches_of_a_round_share_one_draw_and_the_next_round_has_another(paired: bool) -> None:
    launcher = FakeLauncher()
    measurement = run_of(
        launcher, group_of("threads", "fork", targets=("3.14", "3.14t")), paired=paired, observers=("beat.py",)
    )
    found = draws(launcher, measurement)
    measurement.measure()
    beside = {("locks", True), ("observed", True)} if paired else {("control", False)}
    assert {(each.role, each.reference) for each in launcher.requests} >= beside | {("own", paired), ("empty", False)}
    assert [len(each) for each in found.values()] == [1, 1, 1]
    assert len(set.union(*found.values())) == 3
    assert all(0 < request.hash_seed < 2**32 and 0 <= request.padding < 4096 for request in launcher.requests)


def test_a_round_draws_the_same_however_many_iterations_came_before() -> None:
    def drawn(iterations: int) -> dict[int, set[tuple[int, int]]]:
        launcher = FakeLauncher()
        measurement = run_of(launcher, limits=Allowance(launches=3, iterations=iterations))
        found = draws(launcher, measurement)
        measurement.measure()
        return found

    assert drawn(2) == drawn(5)


def test_a_seed_repeats_the_order_and_another_does_not() -> None:
    def order(seed: int) -> list[tuple[At, int]]:
        launcher = FakeLauncher(wall_ns=noisy(20 * MS, 0.02, 0.02))
        run_of(launcher, limits=Allowance(), seed=seed).measure()
        return [
            (event.at, launcher.requests[event.handle].hash_seed) for event in launcher.of("ready", *ITERATIONS, HOLD)
        ]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_each_target_is_asked_for_in_its_own_words() -> None:
    launcher = FakeLauncher()
    run_of(launcher, group_of("threads", targets=("3.14", "3.14t"))).measure()
    asked = {(r.cell.target.spec, r.python, r.expect_gil, tuple(r.environment)) for r in launcher.requests}
    assert asked == {("3.14", READY.python, True, ("A",)), ("3.14t", FREE.python, False, ())}
    launcher = FakeLauncher()
    run_of(launcher, group_of("threads", targets=("3.14t",), settings=Settings(gil="on"))).measure()
    assert {request.expect_gil for request in launcher.requests} == {True}


def test_a_timeout_of_the_test_goes_before_that_of_the_run() -> None:
    launcher = FakeLauncher()
    measured(launcher, limits=Allowance(launches=1, iterations=1, timeout_s=7.0))
    measured(launcher, limits=Allowance(launches=1, iterations=1, timeout_s=7.0), timeout_s=3.0)
    assert [request.timeout_s for request in launcher.requests] == [7.0] * 10 + [3.0] * 10


def test_progress_names_every_cell_and_the_most_that_is_left() -> None:
    listener = Recorder()
    run_of(FakeLauncher(), listener=listener).measure()
    assert {label for label, *_ in listener.calls} == set(LABELS)
    assert {phase for _, phase, *_ in listener.calls} >= {"measuring", "measuring memory of", "warming up"}
    assert {(number, of) for _, _, number, of, _ in listener.calls} == {(1, 3), (2, 3), (3, 3)}
    left_s = [left for *_, left in listener.calls]
    assert left_s == sorted(filter(None, left_s), reverse=True)
    assert left_s[0] == THREE.budget_s


def test_the_number_of_rounds_is_unsaid_while_nobody_knows_it() -> None:
    listener = Recorder()
    run_of(FakeLauncher(), limits=ADAPTING, listener=listener).measure()
    assert {of for _, _, _, of, _ in listener.calls} == {ADAPTING.at_least}
    decided = Recorder()
    needs = iter([EVERYTHING])

    def until(samples: Sequence[Sample]) -> dict[str, frozenset[Need]]:
        return dict.fromkeys((sample.cell.nodeid for sample in samples), next(needs, frozenset()))

    run_of(FakeLauncher(), limits=ADAPTING, listener=decided, stopping_rule=until).measure()
    assert {of for _, _, _, of, _ in decided.calls} == {0}


# -- windows of a duration -----------------------------------------------------------------------------------------


def test_a_duration_is_measured_in_windows() -> None:
    launcher = FakeLauncher(wall_ns=noisy(MS, 0.0, 1.0))
    samples = measured(launcher, duration_s=1.0, warmup=3, reuse="pool", limits=Allowance(launches=2))
    windows = {event.at.window_ns for event in launcher.of(*ITERATIONS)}
    assert windows == {200 * MS}
    assert not launcher.of(CHECK)
    assert len(launcher.of(WARMUP, side="own")) == 2 * 2 * 3  # 2 cells, 2 launches
    assert len(launcher.of(WARMUP, side="control")) == 2 * 2
    for sample in samples:
        assert sample.duration_s == 1.0
        assert all(launch.window_ns == 200 * MS and len(launch.iterations) == 5 for launch in sample.launches)


@pytest.mark.parametrize(
    ("duration_s", "noise", "window_ns", "iterations"),
    [
        *((0.05, 1.0, 50 * MS, 1), (0.2, 1.0, 200 * MS, 1), (0.39, 1.0, 200 * MS, 1), (0.6, 1.0, 200 * MS, 3)),
        (5.0, 0.0, 200 * MS, LEAST_ITERATIONS),  # quiet windows need fewer
    ],
)
def test_windows_fill_the_duration_at_most(duration_s: float, noise: float, window_ns: int, iterations: int) -> None:
    launcher = FakeLauncher(wall_ns=noisy(MS, 0.0, noise))
    samples = measured(launcher, duration_s=duration_s, limits=Allowance(launches=2))
    assert {event.at.window_ns for event in launcher.of(*ITERATIONS)} == {window_ns}
    assert {len(launch.iterations) for sample in samples for launch in sample.launches} == {iterations}


def test_a_window_in_which_nothing_ended_has_no_value_and_stops_nothing() -> None:
    launcher = FakeLauncher(wall_ns=lambda at: 0 if at.event == MEASURED and at.number == 1 else MS)
    samples = measured(launcher, duration_s=2.0, limits=Allowance(launches=2))
    assert [sample.error for sample in samples] == [None, None]
    assert samples[0].launches[0].iterations[1].rate == 0.0


def test_loops_are_no_matter_of_windows() -> None:
    launcher = FakeLauncher(wall_ns=steady(300))
    group = group_of(spec=spec_of("threads", duration_s=1.0))
    samples = run_of(launcher, group, loops=500).measure()
    assert {event.at.loops for event in launcher.of(*ITERATIONS)} == {1}
    assert {launch.loops for launch in samples[0].launches} == {1}


# -- loops ---------------------------------------------------------------------------------------------------------


def loops_of(launcher: FakeLauncher) -> set[int]:
    assert {event.at.loops for event in launcher.of(MEASURED, side="control")} == {1}  # it is long enough by itself
    return {event.at.loops for event in launcher.of(MEASURED, side="own")}


def test_loops_are_calibrated_on_the_shortest_side_and_shared() -> None:
    launcher = FakeLauncher(wall_ns=lambda at: 3_000 if at.label == LABELS[0] else MS)
    samples = run_of(launcher).measure()
    assert loops_of(launcher) == {50}  # 50 x 3 us is the first that reaches 0.1 ms
    assert {launch.loops for sample in samples for launch in sample.launches} == {50}
    assert {launch.loops for sample in samples for launch in sample.of("control")} == {1}


@pytest.mark.parametrize(
    ("wall_ns", "declared", "loops"),
    [
        (20 * MS, {}, 1),
        (3_000, {"one_call": True}, 1),  # each has a setup of its own
        (60_000, {"reuse": "fresh"}, 2),
        (60_000, {"reuse": "pool"}, 5),  # 5 x 48 us of work: workers that are kept are not started
    ],
)
def test_an_iteration_has_as_many_loops_as_it_needs(wall_ns: int, declared: dict[str, Any], loops: int) -> None:
    launcher = FakeLauncher(wall_ns=steady(wall_ns))
    measured(launcher, "threads", **declared)
    assert loops_of(launcher) == {loops}
    assert {event.at.loops for event in launcher.of(BARRIER, side="own")} == {loops}


def test_the_coarsest_clock_of_all_sides_counts() -> None:
    launcher = FakeLauncher(wall_ns=steady(MS))
    launcher.resolution_ns = lambda at: 10_000.0 if at.control and at.label == LABELS[1] else 20.0
    run_of(launcher).measure()
    assert loops_of(launcher) == {20}  # 1000 x 10 us, in iterations of 0.9 ms without their join


def test_a_body_that_is_lost_in_the_start_of_its_workers_is_named_before_it_is_measured() -> None:
    def warned(wall_ns: float, joins: float, other: float = 0.1, **declared: object) -> list[str]:
        class Early(Recorder):
            def warn(self, text: str) -> None:
                assert not launcher.of(MEASURED)
                super().warn(text)

        launcher, listener = FakeLauncher(wall_ns=steady(wall_ns)), Early()
        launcher.joins = lambda at: joins if at.label == LABELS[1] else other
        run_of(launcher, group_of(spec=spec_of("threads", "fork", **declared)), listener=listener).measure()  # type: ignore[arg-type]
        return listener.warnings

    for other in (0.1, 0.46):  # the one that loses most is named
        (said,) = warned(75_000, 0.47, other)
        assert said.startswith(f"{TEST}[3.14-fork-w2]: start and join took 94 % of its first iteration, so its time")
    assert warned(75_000, 0.2) == []
    assert warned(75_000, 0.47, reuse="pool") == []
    assert warned(75_000, 0.47, duration_s=1.0, window_s=0.1) == []
    assert warned(75_000, 0.47, role_counts=((("producer", 1), ("writer", 1)),)) == []


def test_loops_of_the_baseline_are_kept() -> None:
    launcher = FakeLauncher(wall_ns=steady(3_000))
    run_of(launcher, loops=7).measure()
    assert loops_of(launcher) == {7}
    assert {event.at.loops for event in launcher.of(WARMUP, side="own")} == {7}


def test_without_a_warm_up_the_cold_iteration_calibrates() -> None:
    launcher = FakeLauncher(wall_ns=lambda at: 30_000 if at.event == COLD else 3_000)
    measured(launcher, "threads", warmup=0, limits=Allowance(launches=2, iterations=3))
    assert not launcher.of(WARMUP, side="own")
    assert len(launcher.of(WARMUP, side="control")) == 2
    assert loops_of(launcher) == {5}  # 5 x 30 us
    launcher.wall_ns = lambda at: 30_000 if at.event == COLD or at.control else 3_000
    launcher.events.clear()
    measured(launcher, "threads", warmup=0, limits=Allowance(launches=2, iterations=3))
    assert loops_of(launcher) == {5}


# -- how much ------------------------------------------------------------------------------------------------------


def counts(samples: list[Sample]) -> tuple[int, int]:
    """Launches, and iterations in the latest ones, which are the same for all cells."""
    launches = {len(sample.launches) for sample in samples} | {len(sample.of("control")) for sample in samples}
    latest = (launches[-1] for sample in samples for launches in (sample.launches, sample.of("control")))
    iterations = {len(launch.iterations) for launch in latest}
    assert len(launches) == len(iterations) == 1
    return launches.pop(), iterations.pop()


AMPLE = Allowance(budget_s=1e6, at_least=5, at_most=30)


def test_without_variance_the_least_is_taken() -> None:
    samples = measured(FakeLauncher(), limits=AMPLE)
    assert counts(samples) == (5, LEAST_ITERATIONS)
    assert {len(sample.launches[0].iterations) for sample in samples} == {PILOT_ITERATIONS}


def test_long_iterations_have_a_shorter_pilot_and_none_for_the_tail_alone() -> None:
    def first_two(wall_ns: int, other_ns: int) -> list[int]:
        limits = Allowance(launches=2, budget_s=1e6, least_iterations=10)
        launcher = FakeLauncher(wall_ns=lambda at: other_ns if at.label == LABELS[1] else wall_ns)
        sample, _ = measured(launcher, limits=limits)
        return [len(launch.iterations) for launch in sample.launches]

    assert first_two(5 * MS, 5 * MS) == [10, 10]
    assert first_two(2000 * MS, 2000 * MS) == [2, 1]
    assert first_two(2000 * MS, 5 * MS) == first_two(5 * MS, 2000 * MS) == [2, 2]


def test_the_costs_of_a_plan_are_the_time_that_passed_and_that_of_the_memory_launches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launcher = FakeLauncher(wall_ns=lambda at: (200 if at.side == "control" else 400) * MS)
    costs, held_ns = list[dict[str, float]](), list[float]()
    measurement = run_of(launcher, group_of("threads", "fork"), limits=ADAPTING, loops=2)
    plan = measurement.plan

    def kept(ratios: object, **each: float) -> None:
        if costs:  # the end of the round plans anew
            return
        passed_ns, iterations_ns = launcher.clock() * 1e9, plan.taken * each["iteration_ns"]
        assert each["launch_ns"] == pytest.approx(passed_ns - plan.extra_ns - iterations_ns)
        assert each["extra_ns"] == pytest.approx(plan.extra_ns + 2e9 + each["launch_ns"] / 3)
        costs.append(each)
        plan.count = plan.taken

    monkeypatch.setattr(plan, "plan_iterations", kept)

    def memory_cost_ns(measurement: Measurement, cell_run: CellRun, wall_ns: float) -> float:
        held_ns.append(wall_ns)
        return 1e9

    monkeypatch.setattr(time_round, "memory_cost_ns", memory_cost_ns)
    assert measurement.step()
    assert held_ns[:2] == [800 * MS] * 2
    found = costs[0]
    assert found["iteration_ns"] == pytest.approx(2 * (800 + 200) * MS)  # two cells with their control workloads
    # Each launch starts in 50 ms, and has a cold iteration and a warm-up; those with the lock probe are extra.
    assert found["launch_ns"] == pytest.approx((4 * 50 + 2 * (400 + 200) + 2 * (800 + 200)) * MS, rel=0.1)


def test_a_plan_is_made_of_the_ratios_to_the_bare_launch_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = FakeLauncher(wall_ns=lambda at: (900 if at.side == "locks" else 20 if at.reference else 40) * MS)
    measurement, planned = run_of(launcher, group_of("threads"), limits=ADAPTING, paired=True), list[Any]()
    monkeypatch.setattr(measurement.plan, "plan_iterations", lambda ratios, **_: planned.append(ratios))
    assert measurement.step()
    assert {ratio for launches in planned[0].values() for ratios in launches for ratio in ratios} == {2.0}


def test_a_pair_of_long_bodies_takes_little_more_than_what_they_need() -> None:
    launcher = FakeLauncher(wall_ns=steady(2000 * MS))
    limits = Allowance(at_least=13, at_most=80, budget_s=60.0, least_iterations=10)
    paired(launcher, stopping_rule=lambda _: {}, limits=limits).measure()
    assert launcher.clock() < 40


def test_a_body_of_five_seconds_has_five_pairs_in_three_minutes() -> None:
    """What an unchanged cell needs; memory and lock wait are decided after two."""
    launcher = FakeLauncher(wall_ns=steady(5000 * MS))
    limits = Allowance(at_least=80, at_most=80, budget_s=180.0, least_iterations=10)

    def rule(samples: Sequence[Sample]) -> dict[str, frozenset[Need]]:
        needs: frozenset[Need] = frozenset({"time"}) if len(samples[0].of("memory")) >= 2 else IN_PAIRS
        return {sample.cell.nodeid: needs for sample in samples}

    (sample,) = paired(launcher, stopping_rule=rule, limits=limits).measure()
    assert len(sample.launches) >= 5
    assert all(launch.cold is not None for launch in sample.launches)
    assert not launcher.of(BARRIER)


def test_noise_within_launches_takes_more_iterations_and_no_more_launches() -> None:
    noises = [noisy(MS, 0.0, within) for within in (0.005, 0.03, 0.6)]
    numbers = [counts(measured(FakeLauncher(wall_ns=noise), limits=AMPLE)) for noise in noises]
    assert {launches for launches, _ in numbers} == {AMPLE.at_least}
    iterations = [each for _, each in numbers]
    assert iterations == sorted(set(iterations))
    assert iterations[-1] > 50


def test_a_slow_steady_cell_has_fewer_iterations_than_a_noisy_one() -> None:
    """Which would take most of a round; where both are short, both have as many."""

    def iterations(slow_ns: int) -> list[int]:
        wall = noisy(5 * MS, 0.0, 0.3)
        launcher = FakeLauncher(wall_ns=lambda at: slow_ns if at.label == LABELS[1] else wall(at))
        samples = paired(launcher, limits=AMPLE, executors=("threads", "fork")).measure()
        return [len(sample.launches[-1].iterations) for sample in samples]

    quick, slow = iterations(400 * MS)
    assert quick > 2 * slow
    quick, slow = iterations(5 * MS)
    assert quick == slow


def test_a_slow_machine_and_its_control_workload_alike_take_no_more() -> None:
    # What slows a cell and its control workload together cancels in the ratio.
    launcher = FakeLauncher(wall_ns=lambda at: MS * (1 + at.order % 3))
    assert counts(measured(launcher, limits=AMPLE)) == (5, LEAST_ITERATIONS)


@pytest.mark.parametrize("budget_s", [30.0, 45.0, 60.0])
def test_the_budget_is_kept(budget_s: float) -> None:
    launcher = FakeLauncher(wall_ns=noisy(40 * MS, 0.2, 0.2))
    samples = measured(launcher, limits=Allowance(budget_s=budget_s, at_least=30))
    launches = len(samples[0].launches)
    assert launches >= 5
    assert min(len(launch.iterations) for sample in samples for launch in sample.launches) >= LEAST_ITERATIONS
    one_round = launcher.clock() / launches
    assert budget_s - 2 * one_round < launcher.clock() < budget_s + one_round


def test_what_only_informs_is_left_out_where_iterations_are_long() -> None:
    launcher = FakeLauncher(wall_ns=steady(1000 * MS))
    samples = measured(launcher, limits=Allowance(budget_s=60.0))
    for sample in samples:
        assert (sample.of("growth"), sample.of("empty")) == ((), ())
        assert {len(launch.iterations) for launch in sample.of("locks")} <= {1, 2}
        assert {len(launch.barriers) for launch in sample.of("memory")} <= {1, 2}
        assert sample.of("memory")[0].sampling_cost is None
    assert len(samples[0].launches) == 3
    assert launcher.clock() < 61

    def slow(what: str) -> Callable[[At], float]:
        return lambda at: 1000 * MS if what in (at.label, at.side) else 5 * MS

    for what in (LABELS[1], "locks"):  # one cell, or the probe
        for sample in measured(FakeLauncher(wall_ns=slow(what)), limits=Allowance(budget_s=60.0)):
            assert {len(launch.iterations) for launch in sample.of("locks")} <= {1, 2}
    short = FakeLauncher(wall_ns=steady(5 * MS))
    sample, _ = measured(short, limits=Allowance(budget_s=40.0))
    assert sample.of("growth")
    assert sample.of("empty")
    assert len(sample.of("locks")[0].iterations) == MOST_PROBED


def test_a_small_budget_gives_two_launches_as_far_as_it_goes() -> None:
    launcher = FakeLauncher(wall_ns=noisy(400 * MS, 0.2, 0.2))
    assert counts(measured(launcher, limits=Allowance(budget_s=25.0))) == (2, LEAST_ITERATIONS)
    assert launcher.clock() < 26


def test_memory_waits_where_two_rounds_of_time_would_not_fit_beside_it() -> None:
    launcher = FakeLauncher(wall_ns=steady(400 * MS))
    sample, _ = measured(launcher, limits=Allowance(budget_s=20.0))
    assert [launch.order for launch in sample.launches] == [0, 1]
    assert 0 not in {launch.order for launch in sample.of("memory")}
    launcher = FakeLauncher(wall_ns=steady(400 * MS))
    measurement = run_of(launcher, group_of("threads", "fork"), limits=Allowance(budget_s=20.0))
    assert measurement.step()
    plan = measurement.plan
    costs_ns = [memory_cost_ns(measurement, each, 400 * MS) for each in measurement.cell_runs]
    starts_ns = plan.round_ns - plan.iteration_ns * plan.taken
    assert plan.omitted_ns == pytest.approx(sum(costs_ns) + starts_ns / 3)


def test_what_memory_launches_will_take_is_what_they_take() -> None:
    launcher = FakeLauncher()
    measurement = run_of(launcher, group_of("threads", targets=("3.14t",)))
    (cell_run,) = measurement.cell_runs
    took_ns = 0
    for _ in range(2):  # the second is held for less, and not unsampled
        will_ns = memory_cost_ns(measurement, cell_run, 20 * MS)
        assert measurement.step()
        before_ns, took_ns = (
            took_ns,
            sum(each.ended_ns - each.began_ns for each in launcher.of(BARRIER, HOLD, side="own")),
        )
        assert took_ns - before_ns == pytest.approx(will_ns)


@pytest.mark.parametrize(
    ("needs", "pair", "holds"),
    [(EVERYTHING, False, 2), (EVERYTHING, True, 1), (frozenset({"time", "memory"}), False, 1)],
)
def test_a_launch_is_also_held_bare_where_what_sampling_costs_is_shown(
    needs: frozenset[Need], pair: bool, holds: int
) -> None:
    launcher = FakeLauncher()
    measurement = run_of(launcher, group_of("threads"), paired=pair, loops=2)
    measurement.cell_runs[0].require(needs)
    assert measurement.step()
    assert set(Counter(event.handle for event in launcher.of(HOLD)).values()) == {holds}
    assert set(launcher.held_calls_ns) == {0.8 * 20 * MS}  # without start and join


@pytest.mark.parametrize(("times", "share"), [(1, 1.0), (4, 2.0), (9, 3.0), (100, 4.0)])
@pytest.mark.parametrize("slower", [False, True], ids=["changed", "reference"])
def test_both_sides_of_a_pair_are_held_for_as_much_work(times: int, share: float, slower: bool) -> None:
    launcher = FakeLauncher(wall_ns=lambda at: (20 * times if at.reference is slower else 20) * MS)
    paired(launcher, limits=Allowance(launches=2, iterations=2)).measure()
    assert [*launcher.held_shares[slower]] == pytest.approx([share])
    assert [*launcher.held_shares[not slower]] == pytest.approx([1 / share])


@pytest.mark.parametrize(
    ("sizes", "waited_s", "shares"),
    [((40, 40), 0.0, {1.0, 1 / 3}), ((40,), 0.0, {1.0}), ((40, 41), 0.0, {1.0}), ((40, 40), 0.01, {1.0})],
    ids=["steady", "a single sample", "varies", "waits"],
)
def test_memory_that_was_steady_needs_one_sample_more_a_launch(
    sizes: Sequence[int], waited_s: float, shares: set[float]
) -> None:
    for pair in (False, True):
        launcher = FakeLauncher()
        launcher.memory = lambda at: tuple(point for each in sizes for point in memory_of(each * MIB, 1))
        launcher.waits = Waits(span_s=1.0, gil_s=waited_s)
        run_of(launcher, group_of("threads"), paired=pair).measure()
        assert launcher.held_shares[False] == ({1.0} if pair else shares)


def test_launches_and_iterations_are_fixed_when_asked_for() -> None:
    for wall_ns in (steady(MS), noisy(MS, 0.3, 0.3)):
        assert counts(measured(FakeLauncher(wall_ns=wall_ns), limits=Allowance(launches=4, iterations=7))) == (4, 7)
    # The time plans nothing of them, and ends them.
    cut = measured(FakeLauncher(), limits=Allowance(launches=400, iterations=7, budget_s=5.0))
    assert 1 < len(cut[0].launches) < 400
    assert [len(launch.iterations) for launch in cut[0].launches[:-1]] == [7] * (len(cut[0].launches) - 1)


@pytest.mark.parametrize(("declared", "taken"), [(1, 1), (2, 2), (3, 3), (6, 6), (60, 60)])
def test_declared_iterations_are_the_most(declared: int, taken: int) -> None:
    launcher = FakeLauncher(wall_ns=noisy(MS, 0.0, 0.9))
    assert counts(measured(launcher, iterations=declared, limits=AMPLE))[1] == taken


def test_the_length_does_not_depend_on_which_side_is_slower() -> None:
    def counted(slower: bool) -> list[int]:
        even = noisy(MS, 0.02, 0.02)
        launcher = FakeLauncher(wall_ns=lambda at: even(at) * (3 if at.reference == slower else 1))
        (sample,) = paired(launcher, limits=AMPLE).measure()
        return [len(launch.iterations) for launch in sample.launches]

    assert counted(True) == counted(False)


# -- what goes wrong -----------------------------------------------------------------------------------------------

MOMENTS = ["start", "ready", COLD, WARMUP, MEASURED, CHECK, "finish"]


def at_moment(
    event: str, error: BaseException, *, start: int = 2, side: LaunchRole = "own"
) -> Callable[[At], BaseException | None]:
    """Trouble of the fork cell in its second timing launch (memory launches are started in between)."""

    def trouble(at: At) -> BaseException | None:
        here = at.label == LABELS[1] and at.side == side and at.event == event and at.start == start
        return error if here else None

    return trouble


@pytest.mark.parametrize("event", MOMENTS)
def test_a_cell_that_cannot_be_is_unsupported_and_no_error(event: str) -> None:
    launcher = FakeLauncher()
    launcher.trouble = at_moment(event, unsupported("no start method 'fork'"), start=0)
    threads, fork, _ = run_of(launcher, group_of(spec=spec_of("threads", "fork", "spawn", warmup=2))).measure()
    assert (fork.unsupported, fork.error) == ("no start method 'fork'", None)
    assert len(threads.launches) == 3
    assert not launcher.alive


def test_a_failing_control_workload_is_named() -> None:
    launcher = FakeLauncher()
    launcher.trouble = at_moment(MEASURED, failed("hung"), start=1, side="control")
    threads, fork, _ = run_of(launcher).measure()
    assert fork.error is not None
    assert fork.error.reason == "its control workload hung"
    assert threads.error is None


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (failed("hung"), "with the lock probe: hung"),
        (CellUnsupported("no locks here"), "with the lock probe: unsupported: no locks here"),
    ],
)
@pytest.mark.parametrize("moment", ["start", COLD, MEASURED, "finish"])
def test_a_failure_that_only_the_lock_probe_meets_voids_the_figures_of_locks(
    moment: str, trouble: BaseException, reason: str
) -> None:
    launcher = FakeLauncher()
    launcher.trouble = at_moment(moment, trouble, start=1, side="locks")
    threads, fork, _ = run_of(launcher).measure()
    assert fork.locks_error is not None
    assert fork.locks_error.reason == fork.no_locks == reason
    assert not fork.failed
    assert fork.of("locks") == ()
    assert (len(fork.launches), len(fork.of("memory"))) == (len(threads.launches), len(threads.of("memory")))
    assert [len(launch.iterations) for launch in fork.launches] == [len(each.iterations) for each in threads.launches]
    assert len(threads.of("locks")) == len(threads.launches)
    assert launcher.starts[LABELS[1], "locks", False] == 2  # that of the first round, and the one that failed
    assert not launcher.alive


def test_nothing_is_measured_on_when_every_cell_failed() -> None:
    launcher = FakeLauncher()
    launcher.trouble = lambda at: failed("no") if at.event == COLD and not at.control else None
    samples = run_of(launcher, limits=AMPLE).measure()
    assert all(sample.error for sample in samples)
    assert not launcher.of(MEASURED, HOLD)
    assert len(launcher.handles) == 9
    assert not launcher.alive


@pytest.mark.parametrize("event", [*MOMENTS, HOLD, "kill"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_whatever_is_raised_no_launch_outlives_it(event: str, error: type[BaseException]) -> None:
    launcher = FakeLauncher()
    start = 1 if event in ("start", HOLD) else 0  # a cell's second launch is the one that samples its memory
    launcher.trouble = lambda at: error("here") if (at.event, at.start) == (event, start) else None
    with pytest.raises(error, match="here"):
        run_of(launcher).measure()
    assert launcher.handles
    assert not launcher.alive
    assert all(handle.killed for handle in launcher.handles)


def test_an_interruption_ends_all_launches_at_once_before_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other takes as many times as long as there are launches."""
    launcher, ended = FakeLauncher(), list[tuple[str, int]]()
    launcher.trouble = lambda at: KeyboardInterrupt() if at.event == MEASURED else None
    monkeypatch.setattr(group, "kill_marked", lambda mark: ended.append((mark, len(launcher.alive))))
    with pytest.raises(KeyboardInterrupt):
        run_of(launcher).measure()
    assert ended == [(run_mark(), 9)]
    assert not launcher.alive


def test_every_launch_is_ended_once_all_went_well() -> None:
    launcher = FakeLauncher()
    run_of(launcher).measure()
    ends = Counter((event.handle, event.at.event) for event in launcher.of("finish", "kill"))
    assert ends == Counter({(index, end): 1 for index in range(39) for end in ("finish", "kill")})


def test_a_memory_launch_without_a_sample_is_kept_for_what_it_dropped() -> None:
    launcher = FakeLauncher()
    launcher.memory = lambda at: () if at.label == LABELS[1] and at.start == 3 else memory_of(20 * MIB)
    threads, fork, _ = run_of(launcher).measure()
    assert fork.error is None
    assert [(launch.order, bool(launch.memory)) for launch in fork.of("memory")] == [(0, True), (1, False), (2, True)]
    assert [(launch.order, bool(launch.memory)) for launch in threads.of("memory")] == [(0, True), (1, True), (2, True)]


# -- results -------------------------------------------------------------------------------------------------------


def reasons(launcher: FakeLauncher) -> list[str | None]:
    return [sample.error.reason if sample.error else None for sample in run_of(launcher).measure()]


def test_the_same_results_are_no_error_nor_is_that_of_the_control_workload() -> None:
    launcher = FakeLauncher()
    assert reasons(launcher) == [None, None, None]
    launcher.results = lambda _: ()  # a body with a check, or one that returns nothing
    assert reasons(launcher) == [None, None, None]
    launcher.results = lambda at: ("7",) if at.control else ("42",)
    assert reasons(launcher) == [None, None, None]


@pytest.mark.parametrize("odd", range(3))
def test_the_cell_that_differs_is_the_error(odd: int) -> None:
    launcher = FakeLauncher()
    launcher.results = lambda at: ("41",) if at.label == LABELS[odd] else ("42",)
    samples = run_of(launcher).measure()
    assert [sample.error is not None for sample in samples] == [index == odd for index in range(3)]
    error = samples[odd].error
    assert error is not None
    assert error.reason == "gave another result than the other cells"
    assert "here:      41" in error.detail
    assert "elsewhere: 42" in error.detail
    assert "@test.check" in error.detail


def test_among_equals_the_first_cell_is_right() -> None:
    launcher = FakeLauncher()
    launcher.results = lambda at: (at.label,)
    assert [reason is None for reason in reasons(launcher)] == [True, False, False]


def test_a_result_that_changes_between_iterations_or_launches_is_the_error() -> None:
    for results in (
        lambda at: ("41", "42") if at.label == LABELS[0] and at.order == 2 else ("42",),
        lambda at: (str(at.order),) if at.label == LABELS[0] else ("42",),
    ):
        launcher = FakeLauncher()
        launcher.results = results
        found = reasons(launcher)
        assert found[0] is not None
        assert "different results from one iteration to the next" in found[0]
        assert found[1:] == [None, None]


def test_a_cell_that_failed_has_no_say_in_what_is_right() -> None:
    launcher = FakeLauncher()
    launcher.results = lambda at: ("42",) if at.label == LABELS[2] else ("41",)
    launcher.trouble = lambda at: failed("no") if at.label != LABELS[2] and at.event == "hold" else None
    assert reasons(launcher) == ["no", "no", None]


def test_a_sample_says_what_it_can_be_compared_with() -> None:
    (sample,) = measured(FakeLauncher(), "threads", reuse="pool", limits=Allowance(launches=1, iterations=1))
    assert sample.cell.nodeid == f"{TEST}[3.14-threads-w2]"
    assert (sample.reuse, sample.duration_s, sample.key) == ("pool", None, "build")
    assert sample.launches[0].counters == {"inserts": 1.0}
    assert sample.launches[0].timers["ack"].total_ns == 10
    assert sample.launches[0].gil_enabled


# -- paired with a reference, and until a stopping rule has decided ----------------------------------------------------


def paired(
    launcher: FakeLauncher,
    *,
    stopping_rule: StoppingRule | None = None,
    limits: Allowance = THREE,
    executors: tuple[str, ...] = ("threads",),
) -> WholeMeasurement:
    """Cells that are paired with a reference of their own."""
    group = group_of(*executors)
    old = msgspec.structs.replace(group.spec, source=msgspec.structs.replace(group.spec.source, path="old.py"))
    there = msgspec.structs.replace(READY, python="/opt/reference/bin/python")
    return run_of(launcher, group, limits=limits, stopping_rule=stopping_rule, paired=True, old=old, there=there)


def timed(run: WholeMeasurement) -> list[Sample]:
    """All its rounds, without growth, for which a round has the more time the longer the whole may take."""
    for each in run.cell_runs:
        each.require(IN_PAIRS - {"growth"})
    return run.measure()


@pytest.mark.parametrize("target", TARGETS)
def test_growth_is_measured_of_both_sides_of_a_pair(target: str) -> None:
    launcher = FakeLauncher()
    group = group_of(spec=spec_of("threads"), targets=(target,))
    (sample,) = run_of(launcher, group, limits=THREE, paired=True).measure()
    assert sample.reference is not None
    for side in (sample, sample.reference):
        assert [launch.order for launch in side.of("growth")] == [0, 1, 2]
        assert {len(launch.barriers) for launch in side.of("growth")} == {GROWTH_AT_MOST}
        assert len(side.of("growth_empty")) == 1


def test_a_reference_is_paired_in_every_iteration_and_no_control_workload_runs() -> None:
    launcher = FakeLauncher()
    (sample,) = paired(launcher).measure()
    assert not launcher.of(MEASURED, side="control")
    iterations = [event.at.reference for event in launcher.of(MEASURED, side="own")]
    assert {frozenset(iterations[at : at + 2]) for at in range(0, len(iterations), 2)} == {frozenset({True, False})}
    assert len(set(zip(iterations[::2], iterations[1::2], strict=True))) == 2  # either comes first now and then
    assert sample.reference is not None
    orders = [[launch.order for launch in side.launches] for side in (sample, sample.reference)]
    assert orders == [[0, 1, 2]] * 2
    assert len(sample.of("memory")) == len(sample.reference.of("memory")) == 3
    assert len(sample.of("locks")) == len(sample.reference.of("locks")) == 3
    assert len(sample.of("growth")) == len(sample.reference.of("growth")) == 3
    assert [sample.of("control"), sample.of("empty")] == [(), ()]


@pytest.mark.parametrize("executors", [("threads",), ("threads", "fork", "spawn")])
def test_each_side_of_a_pair_starts_first_in_one_of_two_rounds_and_which_one_is_random(
    executors: tuple[str, ...],
) -> None:
    launcher = FakeLauncher()
    paired(launcher, executors=executors, limits=Allowance(launches=24, iterations=2, budget_s=1e6)).measure()
    timed = {event.handle for event in launcher.of(MEASURED, side="own")}
    for executor in executors:
        started = launcher.of("start", side="own", label=f"3.14-{executor}-w2")
        sides = [event.at.reference for event in started if event.handle in timed]
        first = sides[::2]
        assert len(first) == 24
        assert [one != other for one, other in zip(first[::2], first[1::2], strict=True)] == [True] * 12
        assert set(first[::2]) == {True, False}


def test_a_reference_runs_its_own_code_in_its_own_environment() -> None:
    launcher = FakeLauncher()
    paired(launcher).measure()
    asked = {(request.reference, request.python, request.spec.source.path) for request in launcher.requests}
    assert asked == {(False, READY.python, "test_work.py"), (True, "/opt/reference/bin/python", "old.py")}


def test_a_reference_that_fails_leaves_its_cell_measured() -> None:
    launcher = FakeLauncher()
    launcher.trouble = lambda at: failed("no such function") if at.reference and at.event == "ready" else None
    (sample,) = paired(launcher).measure()
    assert sample.error is None
    assert len(sample.launches) == 3
    assert sample.reference is not None
    assert sample.reference.error is not None
    assert not sample.reference.launches
    assert not [event for event in launcher.of(MEASURED) if event.at.reference]


def test_the_reference_of_a_cell_that_fails_runs_as_often_and_keeps_its_own_error() -> None:
    launcher = FakeLauncher()
    launcher.trouble = lambda at: failed("lost") if (at.event, at.start, at.reference) == (COLD, 4, False) else None
    (sample,) = paired(launcher).measure()
    assert sample.error is not None
    assert (sample.error.launch, sample.begun) == (5, 5)
    assert sample.reference is not None
    assert (sample.reference.error, sample.reference.begun) == (None, 5)

    launcher = FakeLauncher()
    launcher.trouble = lambda at: failed("lost") if at.event in ITERATIONS and at.start >= 2 * at.reference else None
    (sample,) = paired(launcher).measure()
    assert sample.error is not None
    assert sample.reference is not None
    assert sample.reference.error is not None
    assert (sample.error.launch, sample.reference.error.launch) == (1, 3)
    assert not launcher.alive


def test_the_time_that_is_over_leaves_the_reference_alone() -> None:
    launcher = FakeLauncher()
    launcher.trouble = lambda at: failed("slow") if (at.event, at.reference) == ("ready", False) else None
    launcher.startup_ns = lambda at: 0 if at.reference else 60e9
    (sample,) = paired(launcher, limits=Allowance(launches=3, iterations=4, budget_s=10)).measure()
    assert sample.reference is not None
    assert sample.reference.begun <= 1


def test_references_that_disagree_have_the_error_of_their_cells() -> None:
    launcher = FakeLauncher()
    launcher.results = lambda at: ("41",) if "fork" in at.label else ("42",)
    _, fork = paired(launcher, executors=("threads", "fork")).measure()
    assert fork.error is not None
    assert fork.reference is not None
    assert fork.reference.error == fork.error
    launcher.results = lambda at: ("41",) if "fork" in at.label and at.reference else ("42",)
    assert [each.error for each in paired(launcher, executors=("threads", "fork")).measure()] == [None, None]


def test_a_lock_launch_of_the_reference_that_fails_voids_the_comparison_of_locks() -> None:
    launcher = FakeLauncher()
    launcher.trouble = lambda at: failed("hung") if at.reference and (at.side, at.event) == ("locks", COLD) else None
    (sample,) = paired(launcher).measure()
    assert sample.no_locks == "the reference: with the lock probe: hung"
    assert sample.locks_error is None
    assert not sample.failed
    assert sample.reference is not None
    assert [len(sample.launches)] * 2 == [len(sample.reference.launches), 3]
    assert len(sample.of("locks")) <= 1


def test_other_results_of_a_reference_are_no_error() -> None:
    launcher = FakeLauncher()
    launcher.results = lambda at: ("41",) if at.reference else ("42",)
    (sample,) = paired(launcher).measure()
    assert sample.error is None


def test_only_what_a_judge_still_needs_is_measured() -> None:
    launcher = FakeLauncher()
    seen: list[int] = []

    def rule(samples: Sequence[Sample]) -> dict[str, frozenset[Need]]:
        seen.append(len(samples[0].launches))
        threads, fork = (sample.cell.nodeid for sample in samples)
        if len(seen) < 2:
            return {threads: frozenset({"time"}), fork: frozenset({"memory"})}
        return {threads: frozenset({"time"})} if len(seen) < 4 else {}

    run = paired(
        launcher, stopping_rule=rule, limits=Allowance(iterations=4, at_most=40), executors=("threads", "fork")
    )
    threads, fork = run.measure()
    assert seen == [1, 2, 3, 4]
    assert (len(threads.launches), len(threads.of("memory")), len(threads.of("locks"))) == (4, 1, 1)
    assert (len(fork.launches), len(fork.of("memory")), len(fork.of("locks"))) == (1, 2, 1)
    assert fork.reference is not None
    assert len(fork.reference.of("memory")) == 2


def test_a_bare_launch_beside_the_lock_probe_is_not_started_for_ever_once_the_time_is_decided() -> None:
    launcher = FakeLauncher()
    limits = Allowance(at_most=40, at_least=13)

    def rule(samples: Sequence[Sample]) -> dict[str, frozenset[Need]]:
        (sample,) = samples
        return {sample.cell.nodeid: frozenset({"locks"})} if len(sample.of("locks")) < BARE_LOCKS + 3 else {}

    run = paired(launcher, stopping_rule=rule, limits=limits)
    (sample,) = run.measure()
    assert (len(sample.launches), len(sample.of("locks"))) == (BARE_LOCKS, BARE_LOCKS + 3)
    assert sample.reference is not None
    assert len(sample.reference.of("locks")) == BARE_LOCKS + 3
    assert {len(launch.iterations) for launch in sample.of("locks")[BARE_LOCKS:]} == {MOST_PROBED}
    assert run.plan.iteration_ns > 0


def test_time_that_is_granted_takes_the_place_of_the_budget() -> None:
    launcher = FakeLauncher()
    run = paired(
        launcher,
        stopping_rule=lambda samples: {samples[0].cell.nodeid: IN_PAIRS},
        limits=Allowance(iterations=4, at_most=40, budget_s=3.0),
    )
    while run.step():
        pass
    before = run.plan.rounds
    run.grant(10.0, 10.0)
    while run.step():
        pass
    assert run.plan.rounds > before
    assert launcher.clock() < 14


def test_iterations_follow_the_share_and_rounds_the_time_until_the_end() -> None:
    def taken(share_s: float, left_s: float) -> tuple[int, int]:
        launcher = FakeLauncher(wall_ns=noisy(40 * MS, 0.2, 0.2))
        limits = Allowance(at_most=40, at_least=13)
        needs: dict[str, frozenset[Need]] = {THREADS: frozenset({"time"})}
        run = paired(launcher, stopping_rule=lambda _: needs, limits=limits)
        run.grant(share_s, left_s)
        while run.step():
            pass
        (sample,) = run.samples()
        assert launcher.clock() < left_s + 1
        return len(sample.launches), len(sample.launches[0].iterations)

    (few_rounds, few), (rounds, same), (_, more) = taken(20.0, 15.0), taken(20.0, 60.0), taken(400.0, 60.0)
    assert few_rounds < rounds
    assert few == same < more


# -- the end of the time -----------------------------------------------------------------------------------------------

THREADS = f"{TEST}[3.14-threads-w2]"
PACE = 300 * MS


@pytest.mark.parametrize("executors", [("threads",), ("threads", "fork")])
@pytest.mark.parametrize("tenths", range(3, 400, 21))
def test_no_iteration_begins_when_the_time_is_over(tenths: int, executors: tuple[str, ...]) -> None:
    launcher = FakeLauncher(wall_ns=noisy(PACE, 0.1, 0.1))
    limits = Allowance(budget_s=tenths / 10, at_most=40, at_least=13)
    everything = {f"{TEST}[3.14-{name}-w2]": EVERYTHING for name in executors}
    run = paired(launcher, stopping_rule=lambda _: everything, limits=limits, executors=executors)
    samples = run.measure()
    late = [event for event in launcher.events if event.began_ns >= limits.budget_s * 1e9]
    assert {event.at.event for event in late} <= {"finish", "kill"}
    assert launcher.clock() < limits.budget_s + 2 * PACE / 1e9
    assert not launcher.alive
    for sample in samples:
        assert sample.error is None
        assert sample.reference is not None
        for own, other in (
            (sample.launches, sample.reference.launches),
            (sample.of("memory"), sample.reference.of("memory")),
            (sample.of("locks"), sample.reference.of("locks")),
        ):
            assert [launch.order for launch in own] == [launch.order for launch in other]
        assert len(sample.of("locks")) == len(sample.launches)
        for own_launch, reference in zip(sample.launches, sample.reference.launches, strict=True):
            counts = sorted([len(own_launch.iterations), len(reference.iterations)])
            assert run.plan.least <= counts[0] <= counts[1] <= counts[0] + 1
            assert own_launch.loops == reference.loops


@pytest.mark.parametrize("tenths", range(123, 150))
def test_no_iteration_begins_that_would_end_too_late(tenths: int) -> None:
    """What one takes is known once a launch has had its first, or from an earlier launch."""
    launcher, limits = FakeLauncher(wall_ns=steady(PACE)), Allowance(budget_s=tenths / 10, at_most=400)
    (sample,) = paired(launcher, stopping_rule=lambda _: {THREADS: EVERYTHING}, limits=limits).measure()
    assert len(sample.launches) >= 2
    long = [event for event in launcher.events if event.ended_ns - event.began_ns >= PACE]
    assert long
    assert max(event.ended_ns for event in long) <= limits.budget_s * 1e9


def test_a_cold_iteration_that_takes_most_of_the_time_leaves_room_for_others() -> None:
    launcher = FakeLauncher(wall_ns=lambda at: 10_000 * MS if at.event in (COLD, CHECKED_COLD) else 100 * MS)
    times: dict[str, frozenset[Need]] = {THREADS: frozenset({"time"})}
    (sample,) = paired(launcher, stopping_rule=lambda _: times, limits=Allowance(budget_s=25.0)).measure()
    assert len(sample.launches) == 1


def test_a_round_that_the_end_cut_counts_with_all_iterations_and_the_counters_of_these() -> None:
    launcher = FakeLauncher()
    timed(paired(launcher, limits=Allowance(launches=3, iterations=40)))
    near_end = launcher.of(MEASURED, side="own")[-2 * 21]
    launcher = FakeLauncher()
    limits = Allowance(launches=3, iterations=40, budget_s=near_end.ended_ns / 1e9)
    (cut,) = timed(paired(launcher, limits=limits))
    begun = Counter(event.at.reference for event in launcher.of(MEASURED, side="own") if event.at.order == 2)
    assert 2 < min(begun.values()) < max(begun.values()) < 40
    assert cut.reference is not None
    for side, had in ((cut, begun[False]), (cut.reference, begun[True])):
        assert [len(launch.iterations) for launch in side.launches] == [40, 40, had]
        rates = counter_values(side.launches, "inserts").values()  # one an iteration, which takes as long in all
        assert max(rates) == pytest.approx(min(rates))
        assert [launch.order for launch in side.of("memory")] == [0, 1]
    # Two of each launch in the first round, one in the second, and the warm-up of the round that was cut.
    assert len(launcher.of(CHECK)) == 2 * (2 + 1 + 1)


def test_a_round_that_the_end_cut_counts_from_the_least_iterations_on() -> None:
    whole, counted = FakeLauncher(), set()
    timed(paired(whole, limits=Allowance(launches=3, iterations=40)))
    for end in whole.of(MEASURED, side="own")[-2 * 40 : -2 * 35]:
        launcher = FakeLauncher()
        run = paired(launcher, limits=Allowance(launches=3, iterations=40, budget_s=end.ended_ns / 1e9))
        (cut,) = timed(run)
        begun = Counter(event.at.reference for event in launcher.of(MEASURED, side="own") if event.at.order == 2)
        shared = min(begun[True], begun[False])
        assert len(cut.launches) == (3 if shared >= run.plan.least else 2)
        counted.add(shared - run.plan.least)
    assert {-1, 0, 1} <= counted


def test_a_round_that_ends_before_the_lock_probe_has_an_iteration_counts_for_nothing() -> None:
    seen = set()
    for seed in range(4):
        whole, limits = FakeLauncher(), Allowance(launches=2, iterations=1)
        timed(run_of(whole, group_of("threads"), limits=limits, paired=True, seed=seed))
        for end in whole.of(MEASURED)[-4:]:
            cut = msgspec.structs.replace(limits, budget_s=end.ended_ns / 1e9)
            (sample,) = timed(run_of(FakeLauncher(), group_of("threads"), limits=cut, paired=True, seed=seed))
            assert all(launch.iterations for launch in (*sample.launches, *sample.of("locks")))
            seen.add(len(sample.launches))
    assert seen == {1, 2}


def test_a_recording_leaves_out_the_launches_that_no_figure_needs() -> None:
    """The number of rounds stays."""
    run = measurement_of(FakeLauncher(), group_of("threads"), limits=Allowance(launches=3, iterations=2))
    run.figures_rule = lambda samples: {each.cell.nodeid: EVERYTHING - {"locks", "memory"} for each in samples}
    while run.step():
        pass
    (sample,) = run.samples()
    assert [len(sample.of(role)) for role in ("time", "control", "locks", "memory")] == [3, 3, 1, 1]


def test_a_control_workload_is_cut_with_its_cell() -> None:
    launcher = FakeLauncher(wall_ns=steady(PACE))
    limits = Allowance(launches=9, iterations=4, budget_s=30.0)
    (sample,) = measured(launcher, "threads", limits=limits)
    assert len(launcher.of("start", side="own")) > len(sample.launches) >= 2
    assert [len(sample.launches)] * 2 == [len(sample.of("control")), len(sample.of("locks"))]


def test_work_of_others_between_two_rounds_is_not_on_its_account() -> None:
    launcher = FakeLauncher()
    limits = Allowance(iterations=4, at_most=40, budget_s=10.0)
    run = paired(launcher, stopping_rule=lambda samples: {samples[0].cell.nodeid: IN_PAIRS}, limits=limits)
    run.step()
    run.step()  # the first has launches that are made once
    left = run.plan.rounds_wanted
    launcher.clock.ns += 10**12
    run.step()
    assert abs(run.plan.rounds_wanted - left) <= 1


def test_conditions_are_sampled_before_between_and_after_rounds() -> None:
    launcher = FakeLauncher()
    looks: list[int] = []
    seen: list[int] = []

    class Monitor(ConditionsMonitor):
        def time_fixed_work(self) -> None:
            looks.append(len(launcher.of(COLD, side="own")))

        def sample(self) -> float:
            seen.append(len(launcher.alive))
            return 0.0

    run_of(launcher, group_of("threads"), monitor=Monitor()).measure()
    assert looks == [0, 1, 2, 3]
    assert seen  # while what it counts is still there
    assert all(seen)


@pytest.mark.parametrize(("kind", "warmups"), [("server", 2), ("command", 0)])
def test_a_server_is_warmed_up_before_it_is_held_and_a_command_is_another_process_each_time(
    kind: Any, warmups: int
) -> None:
    launcher = FakeLauncher()
    program = Executor(kind=kind, program=Program(name="native", argv=("native",)))
    spec = msgspec.structs.replace(spec_of("threads", warmup=2), executors=(program,))
    assert run_of(launcher, group_of(spec=spec)).step()
    (held,) = {event.handle for event in launcher.of(HOLD)}
    assert len([event for event in launcher.of(WARMUP) if event.handle == held]) == warmups


def test_what_a_program_is_built_in_is_no_part_of_a_round() -> None:
    launcher = FakeLauncher()
    builds = iter([20_000 * MS])
    launcher.startup_ns = lambda at: next(builds, 50 * MS)
    program = Executor(kind="command", program=Program(name="native", argv=("native",), build=("make",)))
    spec = msgspec.structs.replace(spec_of("threads"), executors=(program,))
    run = run_of(launcher, group_of(spec=spec))
    run.step()
    assert next(builds, None) is None
    assert run.plan.round_ns < 20_000 * MS
    assert run.samples()[0].error is None


def test_a_build_that_fails_is_an_error_of_its_cells_alone() -> None:
    launcher = FakeLauncher()
    broken = LaunchFailed(WorkloadError(reason="its build `make` exited with code 2"))
    launcher.trouble = lambda at: broken if "native" in at.label else None
    program = Executor(kind="command", program=Program(name="native", argv=("native",), build=("make",)))
    spec = msgspec.structs.replace(spec_of("threads"), executors=(EXECUTORS["threads"], program))
    threads, native = run_of(launcher, group_of(spec=spec)).measure()
    assert native.error is not None
    assert native.error.reason == broken.error.reason
    assert not native.launches
    assert threads.error is None
