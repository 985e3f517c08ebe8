"""CPU time: how it is read and paired, and which verdicts on a wall time it decides."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import msgspec
import pytest
from fake_launcher import MS, spec_of
from values import TWO, entry, read, sample_of, timed, windows

from pytest_ftgate.judge import comparisons, decide, metrics
from pytest_ftgate.judge.judge import ComparedWith, Judge, Policy
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.sample import Iteration, Launch, Sample
from pytest_ftgate.model.spec import Cell, Executor, ExecutorKind
from pytest_ftgate.model.verdict import Comparison, Decision, MetricVerdict
from pytest_ftgate.report import reasons
from pytest_ftgate.stats import alpha_spending

ROUNDS = 16
POLICY = Policy(metrics=metrics.GATING, cli=(), ini=(), alpha=0.01 / 4, beta=alpha_spending.BETA, probe_cost=0.25)
AGAINST = ComparedWith(basis="paired", why="--ftgate-against main", baseline="main", commit="1eb3b87")


def spent(launch: Launch, cpu_of: Callable[[Iteration], float]) -> Launch:
    """The launch whose iterations took that CPU time."""
    replaced = tuple(msgspec.structs.replace(each, cpu_ns=round(cpu_of(each))) for each in launch.iterations)
    return msgspec.structs.replace(launch, iterations=replaced)


# -- how it is read ------------------------------------------------------------------------------------------------


def test_it_is_that_of_one_call_over_all_iterations() -> None:
    first, second = timed(0, [8 * MS, 8 * MS], loops=4), timed(1, [8 * MS, 8 * MS], loops=4)
    ticks = spent(first, lambda each: 10 * MS if each is first.iterations[0] else 0)
    values = read(sample_of([ticks, spent(second, lambda _: 0)]))
    assert values.by_order(Metric.CPU) == {0: 10 * MS / 8}  # a launch without any has no figure


def test_in_windows_it_is_that_of_an_operation() -> None:
    launch = windows(0, [100.0, 100.0])
    both = tuple(msgspec.structs.replace(each, ops=20, cpu_ns=40 * MS) for each in launch.iterations)
    values = read(sample_of([msgspec.structs.replace(launch, iterations=both)]))
    assert values.by_order(Metric.CPU) == {0: 2 * MS}


def test_neighbouring_iterations_are_paired() -> None:
    rng = random.Random(1)
    speeds = [rng.lognormvariate(0, 0.5) for _ in range(12)]
    own, other = (timed(0, [round(level * MS * speed) for speed in speeds]) for level in (11, 10))
    numbers = comparisons.paired(read(sample_of([own], reference=sample_of([other]))), [Metric.CPU])["cpu"]
    assert numbers.new[0] / numbers.reference[0] == pytest.approx(1.1, rel=1e-4)
    assert numbers.errors[0] < 1e-3


def test_a_stored_one_is_scaled_by_the_cpu_time_of_the_control() -> None:
    """Beside other work the wall time of the control grows, its CPU time does not."""
    launch = timed(0, [10 * MS] * 4)
    quiet = sample_of([launch], control=[timed(0, [5 * MS] * 4)])
    busy = sample_of([launch], control=[spent(timed(0, [20 * MS] * 4), lambda _: 5 * MS)])
    numbers = comparisons.with_stored(read(busy), entry(quiet), ["cpu"])
    assert (*numbers["cpu"].new, *numbers["cpu"].reference) == pytest.approx((10 * MS, 10 * MS))


def test_what_was_stored_without_it_is_not_compared() -> None:
    sample = sample_of([timed(0, [10 * MS] * 4)], control=[timed(0, [5 * MS] * 4)])
    stored = entry(sample)
    (recording,) = stored.recordings
    of_before = {name: values for name, values in recording.values.items() if not name.startswith("cpu")}
    before = msgspec.structs.replace(stored, recordings=(msgspec.structs.replace(recording, values=of_before),))
    assert set(comparisons.with_stored(read(sample), before, ["wall", "cpu"])) == {"wall"}


@pytest.mark.parametrize(
    ("kind", "gil", "cores", "expected"),
    [
        ("threads", True, 1.0, 1.0),
        ("threads", False, 1.0, 0.5),
        ("threads", False, 2.0, 1.0),
        ("processes", True, 2.0, 1.0),
        ("tasks", True, 1.0, 1.0),
        ("threads", True, 1.8, 0.0),  # native code lets go of the GIL
    ],
)
def test_how_many_workers_can_run(kind: ExecutorKind, gil: bool, cores: float, expected: float) -> None:
    cell = msgspec.structs.replace(TWO, executor=Executor(kind=kind))
    launch = msgspec.structs.replace(spent(timed(0, [MS] * 8), lambda each: cores * each.wall_ns), gil_enabled=gil)
    assert read(sample_of([launch], cell)).computing == pytest.approx(expected)
    once = msgspec.structs.replace(launch, order=1, gil_enabled=False)
    assert read(sample_of([launch, once], cell)).computing == pytest.approx(expected), "a GIL that one launch had"


def test_the_least_disturbed_iterations_say_whether_it_computes() -> None:
    """Most iterations wait for a core beside other work; what sleeps does so in all of them."""
    walls = [MS] * 10 + [3 * MS] * 90
    disturbed = msgspec.structs.replace(spent(timed(0, walls), lambda _: MS), gil_enabled=True)
    assert read(sample_of([disturbed])).computing == pytest.approx(1.0)
    sleeps = msgspec.structs.replace(spent(timed(0, walls), lambda _: 0.9 * MS), gil_enabled=True)
    assert read(sample_of([sleeps])).computing == pytest.approx(0.9)


def test_a_pool_and_a_program_have_no_known_number() -> None:
    pool = msgspec.structs.replace(TWO, body="executor")
    assert read(sample_of([timed(0, [MS] * 8)], pool)).computing == 0.0


# -- the rule ------------------------------------------------------------------------------------------------------


def comparison(metric: str, change: float, noise: float) -> Comparison:
    """Pairs that scatter by `noise` around a change: exactly, so that a test shows the rule and not a draw."""
    rng = random.Random(metric)
    drawn = [rng.gauss(0, 1) for _ in range(ROUNDS)]
    mean = sum(drawn) / ROUNDS
    scale = noise / math.sqrt(sum((each - mean) ** 2 for each in drawn) / (ROUNDS - 1))
    new = tuple(1e7 * (1 + change) * math.exp(scale * (each - mean)) for each in drawn)
    return Comparison(
        metric=metric, new=new, reference=(1e7,) * ROUNDS, unit="ns", limits=metrics.row(metric).paired, at_most=ROUNDS
    )


def decided(wall: Comparison, cpu: Comparison, computing: float = 1.0) -> MetricVerdict:
    alone = decide.by_pairs(wall)
    assert alone.decision is Decision.INCONCLUSIVE
    return decide.by_cpu(alone, wall, cpu, computing)


NOISY = comparison("wall", 0.01, 0.15)
SAME = comparison("cpu", 0.0, 0.02)


def test_cpu_time_decides_what_wall_time_leaves_open() -> None:
    verdict = decided(NOISY, SAME)
    assert verdict.decision is Decision.PASSED
    assert verdict.ruled_out is not None
    assert verdict.ruled_out <= 0.05
    cpu, wall = reasons.of_metric(verdict).split("; wall alone rules out ")
    assert cpu.startswith("by CPU time, ")
    assert 0.05 < float(wall.strip("+ %")) / 100 <= decide.BROAD
    assert (verdict.ratio, verdict.launches) == (decide.by_pairs(NOISY).ratio, ROUNDS)


def of_two_kinds(many: float, few: float) -> Comparison:
    """Pairs most of which have one ratio, and the others another."""
    count = ROUNDS // 2 + 1
    return msgspec.structs.replace(NOISY, new=(1e7 * many,) * count + (1e7 * few,) * (ROUNDS - count))


@pytest.mark.parametrize(
    ("wall", "cpu", "computing"),
    [
        (NOISY, comparison("cpu", 0.10, 0.02), 1.0),
        (NOISY, comparison("cpu", 0.05, 0.02), 1.0),
        (NOISY, comparison("cpu", 0.04, 0.15), 1.0),
        (NOISY, SAME, 0.94),
        (comparison("wall", 0.06, 0.12), SAME, 1.0),
        (of_two_kinds(1.07, 0.9), SAME, 1.0),
        (of_two_kinds(1.02, 1.2), SAME, 1.0),
        (comparison("wall", 0.01, 0.8), SAME, 1.0),
    ],
    ids=[
        "more work",
        "the effect",
        "noisy too",
        "it waits",
        "beyond the effect",
        "most pairs",
        "the estimate",
        "25 % is possible",
    ],
)
def test_it_stays_open(wall: Comparison, cpu: Comparison, computing: float) -> None:
    verdict = decided(wall, cpu, computing)
    assert verdict == decide.by_pairs(wall)


def test_what_is_decided_stays() -> None:
    for change in (0.5, 0.0, -0.5):
        wall = comparison("wall", change, 0.01)
        alone = decide.by_pairs(wall)
        assert alone.decision is not Decision.INCONCLUSIVE
        assert decide.by_cpu(alone, wall, SAME, 1.0) is alone


def test_a_pair_of_launches_passes_nothing() -> None:
    """Before the first look nothing is decided, however alike they are."""
    wall, cpu = (decide.seen(each, 1) for each in (NOISY, SAME))
    assert decided(wall, cpu).decision is Decision.INCONCLUSIVE


# -- in the judge --------------------------------------------------------------------------------------------------


def side(seed: str, noise: float, cpu: float = 1.0, waits: float = 0.0) -> list[Launch]:
    """Launches under a GIL, whose wall times scatter and whose CPU times hardly do."""
    rng = random.Random(seed)

    def launch(order: int) -> Launch:
        level = rng.lognormvariate(0.5, noise)
        walls = [round(10 * MS * cpu * (1 + waits) * max(1.0, level * rng.lognormvariate(0, 0.2))) for _ in range(19)]
        walls.append(round(10 * MS * cpu * (1 + waits)))  # one that nothing disturbed
        one = spent(timed(order, walls), lambda _: 10 * MS * cpu * rng.lognormvariate(0, 0.005))
        return msgspec.structs.replace(one, gil_enabled=True)

    return [launch(order) for order in range(ROUNDS)]


def verdicts(
    own: Sequence[Launch], other: Sequence[Launch], names: Sequence[str] = (Metric.WALL,), cell: Cell = TWO
) -> dict[str, MetricVerdict]:
    policy = msgspec.structs.replace(POLICY, metrics=tuple(names))
    sample: Sample = sample_of(own, cell, reference=sample_of(other, cell))
    judge = Judge(spec_of("threads"), policy, {cell.nodeid: AGAINST}, ROUNDS)
    return {each.metric: each for each in judge.judged(read(sample), final=True)}


def test_a_body_that_computes_passes_beside_other_work() -> None:
    found = verdicts(side("new", 0.15), side("old", 0.15))["wall"]
    assert found.decision is Decision.PASSED
    assert reasons.of_metric(found).startswith("by CPU time, ")
    own, other = ([spent(each, lambda _: 0) for each in side(seed, 0.15)] for seed in ("new", "old"))
    assert verdicts(own, other)["wall"].decision is Decision.INCONCLUSIVE, "none is known"


@pytest.mark.parametrize(("waits", "waited"), [(0.1, 0.0), (0.1, 0.1), (0.06, 0.04), (0.04, 0.06)])
def test_a_body_that_waits_does_not(waits: float, waited: float) -> None:
    """Whichever side it is."""
    found = verdicts(side("new", 0.15, waits=waits), side("old", 0.15, waits=waited))["wall"]
    assert found.decision is Decision.INCONCLUSIVE
    assert "by CPU time" not in reasons.of_metric(found)


def test_it_fails_where_it_gates() -> None:
    own, other = side("new", 0.15, cpu=1.1), side("old", 0.15)
    assert verdicts(own, other)["wall"].decision is Decision.INCONCLUSIVE
    found = verdicts(own, other, (Metric.WALL, Metric.CPU))
    assert found["cpu"].decision is Decision.REGRESSED
    assert found["cpu"].now == pytest.approx(1.1 * (found["cpu"].was or 0), rel=0.01)
