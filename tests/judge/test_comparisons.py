"""Which numbers are compared: paired, with stored launches of this machine, and with those of another."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import msgspec
import numpy as np
import pytest
from fake_launcher import memory_of
from values import FOUR, held, probed, sample_of, timed, windows

from pytest_ftgate.judge import comparisons, metrics, per_launch
from pytest_ftgate.judge.comparisons import Numbers
from pytest_ftgate.model import (
    Launch,
    Metric,
    Sample,
    WorkloadError,
)
from pytest_ftgate.stats import alpha_spending, rank_tests


def both(own: Sequence[Launch], other: Sequence[Launch]) -> dict[str, Numbers]:
    return comparisons.paired(sample_of(own, reference=sample_of(other)))


def both_sides(numbers: Numbers) -> Any:
    """What may be compared with what is nearly so: both sides."""
    return numbers.new, numbers.reference


def drifting(rng: random.Random, order: int, iterations: int = 12) -> tuple[Launch, Launch]:
    """Neighbours that share the machine's speed of each turn: compared turn by turn they hardly vary."""
    speeds = [rng.lognormvariate(0, 0.5) for _ in range(iterations)]
    own, other = rng.lognormvariate(0, 0.1), rng.lognormvariate(0, 0.1)
    return tuple(  # type: ignore[return-value]
        timed(order, [round(1e7 * level * speed * rng.lognormvariate(0, 0.02)) for speed in speeds])
        for level in (own, other)
    )


def disturbed(rng: random.Random, order: int, iterations: int = 12) -> tuple[Launch, Launch]:
    """Sides that others disturb now and then, each by itself: their floors hardly vary."""

    def wall(level: float) -> int:
        return round(1e7 * level * (1.0 + max(0.0, rng.normalvariate(0, 1))) * rng.lognormvariate(0, 0.001))

    levels = rng.lognormvariate(0, 0.1), rng.lognormvariate(0, 0.1)
    own, other = (timed(order, [wall(level) for _ in range(iterations)]) for level in levels)
    return own, other


def rounds_of(seed: int, count: int) -> list[tuple[Launch, Launch]]:
    """One of both kinds of pairs, by the seed."""
    rng = random.Random(seed)
    kind = rng.choice((drifting, disturbed))
    return [kind(rng, order, rng.randint(8, 16)) for order in range(count)]


def split(rounds: Sequence[tuple[Launch, Launch]]) -> tuple[list[Launch], list[Launch]]:
    return [own for own, _ in rounds], [other for _, other in rounds]


def estimator_of(rounds: Sequence[tuple[Launch, Launch]]) -> rank_tests.Estimator:
    return rank_tests.blind_estimator(per_launch.paired_values(*split(rounds)))


# -- paired ----------------------------------------------------------------------------------------------------------


class TestPairs:
    def test_a_round_that_one_side_lacks_is_left_out_of_what_it_lacks_alone(self) -> None:
        own = [timed(order, [2000 + order] * 12) for order in range(8)]
        other = [timed(order, [1000 + order] * 12) for order in range(8) if order != 3]
        memory = [held(order, 100 + order) for order in range(8)]
        reference = sample_of(reversed(other), memory=[held(order, 200 + order) for order in range(8)])
        found = comparisons.paired(sample_of(own, memory=memory, reference=reference))
        kept = [order for order in range(8) if order != 3]
        assert found[Metric.WALL].new == pytest.approx([2000 + order for order in kept])
        assert found[Metric.WALL].reference == pytest.approx([1000 + order for order in kept])
        assert len(found[Metric.TAIL].new) == 7
        assert found[Metric.USS].new == tuple(100.0 + order for order in range(8))
        assert found[Metric.USS].reference == tuple(200.0 + order for order in range(8))

    def test_units_and_tests(self) -> None:
        own = [timed(order, [2000] * 12) for order in range(3)]
        sides: dict[str, Any] = {
            "memory": [held(0, 5)],
            "locks": [probed(0, 0.2, workers=4)],
            "single": own,
        }
        found = comparisons.paired(sample_of(own, FOUR, reference=sample_of(own, FOUR, **sides), **sides))
        assert {metric: (numbers.unit, numbers.test) for metric, numbers in found.items()} == {
            Metric.WALL: ("ns", "pairs"),
            Metric.TAIL: ("ns", "pairs"),
            Metric.USS: ("bytes", "blocks"),
            Metric.LOCK_WAIT: ("of the time", "blocks"),
            Metric.SCALING: ("x", "pairs"),
        }
        assert not any(numbers.recordings for numbers in found.values())

    def test_without_a_reference(self) -> None:
        own = [timed(order, [2000] * 12) for order in range(3)]
        assert comparisons.paired(sample_of(own, memory=[held(0, 5)])) == {}
        failed = sample_of(error=WorkloadError(reason="ValueError"))
        assert comparisons.paired(sample_of(own, memory=[held(0, 5)], reference=failed)) == {}
        assert comparisons.paired(sample_of(own, reference=sample_of())) == {}

    def test_what_the_reference_never_gave_is_left_out(self) -> None:
        own = [timed(order, [2000] * 12) for order in range(3)]
        here = sample_of(own, memory=[held(0, 5)], locks=[probed(0, 0.2)])
        found = comparisons.paired(msgspec.structs.replace(here, reference=sample_of(own)))
        assert set(found) == {Metric.WALL, Metric.TAIL}

    def test_what_the_cell_alone_lacks_stays_without_new_values(self) -> None:
        own = [timed(order, [2000] * 12) for order in range(3)]
        there = sample_of(own, memory=[held(0, 5)], locks=[probed(0, 0.2)])
        found = comparisons.paired(sample_of(own, reference=there))
        lost = {metric for metric, numbers in found.items() if not numbers.new}
        assert lost == {Metric.USS, Metric.LOCK_WAIT}
        assert found[Metric.USS].reference == (5.0,)


class TestEstimator:
    def test_it_is_chosen_from_the_pairs_of_the_first_look_alone(self) -> None:
        rng = random.Random(3)
        first = [drifting(rng, order, iterations=41) for order in range(alpha_spending.LOOKS[0])]
        later = [disturbed(rng, order, iterations=41) for order in range(len(first), 40)]
        assert estimator_of(first) is rank_tests.PAIRED
        assert estimator_of([*first, *later]) is not rank_tests.PAIRED
        found = both(*split([*first, *later]))[Metric.WALL]
        for pair, new, reference in zip([*first, *later], found.new, found.reference, strict=True):
            walls = [[iteration.wall_ns for iteration in side.iterations] for side in pair]
            assert new / reference == pytest.approx(median(a / b for a, b in zip(*walls, strict=True)))

    def test_a_floor_that_is_chosen_is_that_of_both_sides(self) -> None:
        rng = random.Random(3)
        pairs = [disturbed(rng, order) for order in range(8)]
        chosen = estimator_of(pairs[: alpha_spending.LOOKS[0]])
        assert chosen is not rank_tests.PAIRED
        found = both(*split(pairs))[Metric.WALL]
        for side, values in enumerate((found.new, found.reference)):
            floors = [np.quantile([iteration.wall_ns for iteration in pair[side].iterations], chosen) for pair in pairs]
            assert values == pytest.approx(floors)

    def test_a_value_never_changes_when_rounds_are_added(self) -> None:
        chosen = set()
        for seed in range(16):
            rounds = rounds_of(seed, 24)
            chosen.add(estimator_of(rounds[: alpha_spending.LOOKS[0]]))
            whole = both(*split(rounds))
            for count in (alpha_spending.LOOKS[0], 7, 10, 23):
                part = both(*split(rounds[:count]))
                for metric in (Metric.WALL, Metric.TAIL):
                    known = len(part[metric].new)
                    assert part[metric].new == whole[metric].new[:known]
                    assert part[metric].reference == whole[metric].reference[:known]
        assert rank_tests.PAIRED in chosen
        assert len(chosen) > 2

    def test_exchanging_the_sides_of_any_pair_turns_its_ratio_over_and_no_other(self) -> None:
        for seed in range(16):
            rounds = rounds_of(seed, 12)
            rng = random.Random(seed)
            turned = [rng.random() < 0.5 for _ in rounds]
            exchanged = [pair[::-1] if over else pair for pair, over in zip(rounds, turned, strict=True)]
            before, after = (both(*split(pairs))[Metric.WALL] for pairs in (rounds, exchanged))
            for pair, over in enumerate(turned):
                ratio = before.new[pair] / before.reference[pair]
                expected = 1 / ratio if over else ratio
                assert after.new[pair] / after.reference[pair] == pytest.approx(expected, rel=1e-12)

    def test_turn_by_turn_the_ratio_is_the_median_ratio_in_ns_of_one_loop(self) -> None:
        rng = random.Random(5)
        pairs = [drifting(rng, order, iterations=41) for order in range(8)]
        pairs = [tuple(msgspec.structs.replace(side, loops=4) for side in pair) for pair in pairs]  # type: ignore[misc]
        assert estimator_of(pairs[: alpha_spending.LOOKS[0]]) is rank_tests.PAIRED
        found = both(*split(pairs))[Metric.WALL]
        for (own, other), new, reference in zip(pairs, found.new, found.reference, strict=True):
            walls = [[iteration.wall_ns for iteration in side.iterations] for side in (own, other)]
            assert new / reference == pytest.approx(median(a / b for a, b in zip(*walls, strict=True)))
            assert reference == pytest.approx(median(walls[1]) / 4)

    def test_turns_without_a_neighbour_count_for_nothing(self) -> None:
        own = [timed(order, [2000] * 11 + [9000] * 4) for order in range(2)]
        other = [timed(order, [1000] * 11) for order in range(2)]
        assert both_sides(both(own, other)[Metric.WALL]) == (pytest.approx((2000.0, 2000.0)), (1000.0, 1000.0))


class TestWindows:
    def test_a_turn_without_an_operation_on_either_side_is_left_out_of_both(self) -> None:
        own = [windows(0, [1e6, 0.0, 2e6, 4e6, 9e6])]
        other = [windows(0, [2e6, 5e6, 2e6, 2e6, 0.0])]
        found = both(own, other)[Metric.WALL]
        # 1000, 500 and 250 ns against 500 each.
        assert found.reference == (500.0,)
        assert found.new == pytest.approx((500.0,))
        assert (found.unit, found.test) == ("ns", "pairs")

    def test_a_launch_without_any_is_no_round(self) -> None:
        own = [windows(0, [0.0] * 3), windows(1, [1e6] * 3)]
        other = [windows(0, [1e6] * 3), windows(1, [2e6] * 3)]
        assert both_sides(both(own, other)[Metric.WALL]) == (pytest.approx((1000.0,)), (500.0,))
        assert both_sides(both(own[:1], other[:1])[Metric.WALL]) == ((), (1000.0,))
        assert Metric.WALL not in both(other[:1], own[:1])


class TestTails:
    def test_it_takes_ten_turns_on_both_sides(self) -> None:
        counts = [(12, 12), (9, 12), (10, 10), (12, 9), (11, 10)]
        own = [timed(order, range(1000, 1000 + 10 * mine, 10)) for order, (mine, _) in enumerate(counts)]
        other = [timed(order, range(500, 500 + 10 * its, 10)) for order, (_, its) in enumerate(counts)]
        found = both(own, other)
        # Of the paired iterations alone.
        assert found[Metric.TAIL].new == pytest.approx((1099.0, 1081.0, 1090.0), abs=10)
        assert len(found[Metric.TAIL].reference) == 3
        assert len(found[Metric.WALL].new) == 5

    def test_it_is_the_slow_turns_in_ns(self) -> None:
        own, other = [1000] * 8 + [3000] * 3, [500] * 11
        found = both([timed(0, own, loops=2)], [timed(0, other, loops=2)])[Metric.TAIL]
        assert (found.new, found.reference) == ((1500.0,), (250.0,))

    def test_a_window_without_an_operation_does_not_count(self) -> None:
        ten = [1e6] * 10
        assert Metric.TAIL in both([windows(0, ten)], [windows(0, ten)])
        assert Metric.TAIL not in both([windows(0, ten)], [windows(0, [*ten[1:], 0.0])])


class TestBlocks:
    def test_memory_and_shares_are_paired_by_their_round(self) -> None:
        own = sample_of(
            memory=[held(2, 30, 32, 31), held(0, 10)], locks=[probed(order, order / 10) for order in (3, 1)]
        )
        other = sample_of(
            memory=[held(order, 100 + order) for order in range(4)],
            locks=[probed(order, order / 20) for order in range(4)],
        )
        found = comparisons.paired(msgspec.structs.replace(own, reference=other))
        assert found[Metric.USS][:4] == ((10.0, 31.0), (100.0, 102.0), "bytes", "blocks")
        assert found[Metric.LOCK_WAIT].new == pytest.approx((0.1, 0.3))
        assert found[Metric.LOCK_WAIT].reference == pytest.approx((0.05, 0.15))

    def test_no_wait_at_all_is_a_share(self) -> None:
        locks = [probed(order, 0.0) for order in range(4)]
        found = comparisons.paired(sample_of(locks=locks, reference=sample_of(locks=locks)))
        assert both_sides(found[Metric.LOCK_WAIT]) == ((0.0,) * 4, (0.0,) * 4)

    def test_a_launch_without_a_figure_is_no_round(self) -> None:
        unknown = Launch(order=0, hash_seed=1, started_at="", memory=memory_of(None))
        own = sample_of(memory=[unknown, held(1, 10)])
        found = comparisons.paired(msgspec.structs.replace(own, reference=own))
        assert found[Metric.USS].new == (10.0,)


class TestScaling:
    def scaled(self, single_ns: int, own_ns: int, orders: Iterable[int] = range(3), **fields: Any) -> Sample:
        own = [timed(order, [own_ns + order] * 5) for order in range(3)]
        return sample_of(own, FOUR, single=[timed(order, [single_ns + order] * 5) for order in orders], **fields)

    def test_it_is_compared_as_a_ratio_of_ratios(self) -> None:
        reference = self.scaled(1000, 1000)
        found = comparisons.paired(self.scaled(900, 1800, reference=reference))[Metric.SCALING]
        assert found.reference == pytest.approx((4.0, 4.0, 4.0))
        assert found.new == pytest.approx([4 * (900 + order) / (1800 + order) for order in range(3)])

    def test_it_takes_the_one_worker_launches_of_both_sides(self) -> None:
        assert Metric.SCALING not in comparisons.paired(self.scaled(900, 1800, reference=self.scaled(9, 9, ())))
        assert Metric.SCALING not in comparisons.paired(self.scaled(9, 9, (), reference=self.scaled(900, 1800)))
        found = comparisons.paired(self.scaled(900, 1800, (0, 2), reference=self.scaled(1000, 1000, (1, 2))))
        assert both_sides(found[Metric.SCALING]) == (pytest.approx((4 * 902 / 1802,)), pytest.approx((4.0,)))


def test_every_metric_has_its_kind_of_launch() -> None:
    assert {metrics.row(name).need for name in metrics.GATING} == {"time", "memory", "locks"}
