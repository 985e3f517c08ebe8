"""Loops, iterations and launches from scripted variances and costs."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from fake_launcher import Clock

from pytest_ftgate.measure.round_plan import (
    SPREAD_BETWEEN,
    Allowance,
    OutOfTime,
    RoundPlan,
    calibrated_loops,
    iterations_wanted,
)
from pytest_ftgate.model.spec import Source, Spec

MS = 1e6
COSTS = {"launch_ns": 500 * MS, "iteration_ns": 100 * MS}
AMPLE = math.inf


def noisy(sigma: float, count: int = 40, seed: int = 1) -> list[float]:
    return [float(wall) for wall in 20 * MS * np.exp(np.random.default_rng(seed).normal(0, sigma, count))]


def wanted(
    ratios: list[list[list[float]]], costs: dict[str, Any] = COSTS, budget_ns: float = AMPLE, **more: Any
) -> int:
    return iterations_wanted(ratios, budget_ns, 8, **costs, **more)


class TestIterations:
    def test_no_noise_takes_the_least(self) -> None:
        assert wanted([[[5.0] * 4], [[9.0] * 4]]) == 2
        assert wanted([[[5.0]]], at_least=5) == 5
        assert wanted([[noisy(0.001)]]) == 2

    def test_gives_most_for_its_time(self) -> None:
        """The variance of a launch's value times its cost is least there, with 3 % between launches."""
        sigma = 0.2
        costs = {
            count: (SPREAD_BETWEEN**2 + sigma**2 / count) * (COSTS["launch_ns"] + count * COSTS["iteration_ns"])
            for count in range(1, 60)
        }
        best = min(costs, key=costs.__getitem__)
        assert best == pytest.approx(wanted([[noisy(sigma, 2000)]]), abs=1)

    def test_dear_launches_take_more_and_dear_iterations_fewer(self) -> None:
        dear = {"launch_ns": 4 * COSTS["launch_ns"], "iteration_ns": COSTS["iteration_ns"]}
        long = {"launch_ns": COSTS["launch_ns"], "iteration_ns": 4 * COSTS["iteration_ns"]}
        counts = [wanted([[noisy(0.2)]], costs) for costs in (long, COSTS, dear)]
        assert counts[0] * 4 == pytest.approx(counts[1] * 2, abs=4) == pytest.approx(counts[2], abs=4)

    def test_the_noisiest_side_decides(self) -> None:
        quiet, loud = noisy(0.01), noisy(0.06)
        both, alone = ([[quiet], [loud]], [[loud]])
        assert wanted(both) == wanted(both[::-1]) == wanted(alone) > wanted([[quiet]])

    def test_bounds(self) -> None:
        assert wanted([[noisy(2.0)]]) == 60
        assert wanted([[noisy(0.5)]], at_most=20) == 20

    def test_the_budget_bounds_it(self) -> None:
        # Eight launches of 500 ms + 10 iterations of 100 ms.
        assert wanted([[noisy(0.5)]], budget_ns=8 * 1500 * MS) == 10
        assert wanted([[noisy(0.5)]], budget_ns=8 * 1499 * MS) == 9
        assert wanted([[noisy(0.5)]], budget_ns=1 * MS) == 2

    def test_all_launches_of_a_cell_say_how_noisy_it_is_and_their_levels_do_not(self) -> None:
        calm, loud = noisy(0.1, 40, seed=2), [9 * wall for wall in noisy(0.3, 40, seed=3)]
        counts = [wanted([cell]) for cell in ([calm], [calm, [], [1.0], loud], [loud])]
        assert counts == sorted(set(counts))
        assert wanted([[[5.0, 5.0], [9.0, 9.0]]]) == 2

    def test_launches_that_differ_more_than_assumed_take_fewer_once_there_are_some(self) -> None:
        levels = np.exp(np.random.default_rng(5).normal(0, 0.3, 8))
        differ = [[level * wall for wall in noisy(0.2, 20, seed=seed)] for seed, level in enumerate(levels)]
        alike = [noisy(0.2, 20, seed=seed) for seed in range(8)]
        assert wanted([differ]) < wanted([alike]) / 3
        assert wanted([differ[:3]]) == wanted([alike[:3]])  # too few to tell

    def test_other_launches_take_from_the_budget_and_are_no_part_of_a_launch_s_cost(self) -> None:
        dear = {"launch_ns": COSTS["launch_ns"], "iteration_ns": COSTS["iteration_ns"], "extra_ns": 300 * MS}
        assert wanted([[noisy(0.5)]], dear) == wanted([[noisy(0.5)]])
        assert wanted([[noisy(0.5)]], dear, 8 * 1500 * MS) == 7

    def test_what_a_tail_needs_is_taken_where_it_is_cheap(self) -> None:
        even = [[[5.0] * 4]]
        assert wanted(even, tail=10) == 10
        long = {"launch_ns": 500 * MS, "iteration_ns": 201 * MS}
        assert wanted(even, long, tail=10) == 2
        assert wanted(even, budget_ns=8 * 1000 * MS, tail=10) == 5

    def test_where_no_pair_shows_the_spread_all_that_the_budget_allows(self) -> None:
        assert wanted([], at_most=10) == 10
        assert wanted([], budget_ns=8 * 1000 * MS, at_most=10) == 5

    def test_the_unit_does_not_matter(self) -> None:
        seconds = [wall / 1e9 for wall in noisy(0.03)]
        assert wanted([[seconds]]) == wanted([[noisy(0.03)]])


class TestLoops:
    @pytest.mark.parametrize(
        ("wall_ns", "loops"),
        [
            ([2e7, 5e6], 1),
            ([1e5], 1),
            ([99_999.0], 2),
            ([2e7, 5e4], 2),
            ([49_999.0], 5),
            ([10_001.0], 10),
            ([10_000.0], 10),
            ([9_999.0], 20),
            ([300.0], 500),
            ([101.0], 1000),
            ([], 1),
        ],
    )
    def test_one_two_five(self, wall_ns: list[float], loops: int) -> None:
        assert calibrated_loops(wall_ns, 50.0) == loops

    def test_a_coarse_clock_takes_more(self) -> None:
        assert calibrated_loops([1e6], 15_600_000.0) == 1000
        assert calibrated_loops([1e6], 10_000.0) == 10

    def test_a_value_below_the_clock_counts_as_its_resolution(self) -> None:
        assert calibrated_loops([0.0, 5e6], 1000.0) == calibrated_loops([1000.0], 1000.0) == 1000
        assert calibrated_loops([0.0], 0.0) == 100_000

    def test_always_long_enough(self) -> None:
        for wall in np.geomspace(60, 1e6, 200):
            loops = calibrated_loops([float(wall)], 50.0)
            assert loops * wall >= 100_000
            assert loops == 1 or loops * wall <= 2.5 * 100_000
            assert str(loops).rstrip("0") in {"1", "2", "5"}


def test_launches_whose_latencies_gate_have_windows_enough_for_their_scatter() -> None:
    source = Source(path="test_a.py", line=1, module="test_a", qualname="test_a")
    served = Spec(
        nodeid="", source=source, body="server", executors=(), workers=(1,), reuse="pool", duration_s=6.0, window_s=1.0
    )
    gated = msgspec.structs.replace(served, gated=("latency_p50",))
    assert RoundPlan(served, Allowance(), Clock()).least == 2
    assert RoundPlan(gated, Allowance(), Clock()).least == 4
    assert RoundPlan(msgspec.structs.replace(gated, duration_s=3.0), Allowance(), Clock()).least == 3
    assert RoundPlan(gated, Allowance(iterations=1), Clock()).least == 1


def test_time_that_is_too_short_for_the_next_iteration_is_over() -> None:
    """Else rounds would begin again and again that have no room for it."""
    source = Source(path="test_a.py", line=1, module="test_a", qualname="test_a")
    spec = Spec(nodeid="", source=source, body="worker", executors=(), workers=(1,), reuse="pool")
    clock = Clock()
    plan = RoundPlan(spec, Allowance(budget_s=10.0), clock)
    plan.begin_round()
    clock.ns = 8_000_000_000
    plan.check(1.9e9)
    assert plan.left_s == 2.0
    with pytest.raises(OutOfTime):
        plan.check(2.1e9)
    assert plan.left_s == 0.0
    plan.grant(3.0, 5.0)  # by a run whose tests share its time
    plan.check(2.1e9)
