"""Which numbers of both sides of a pair are compared, and with what standard error."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations_with_replacement
from statistics import median
from typing import Any

import msgspec
import numpy as np
import pytest
from fake_launcher import memory_of
from values import FOUR, held, probed, read, sample_of, timed, windows

from pytest_ftgate.judge import comparisons, metrics
from pytest_ftgate.judge.values import TAIL_OF_CONTROL, USS_WRITTEN, Values
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.sample import Launch, Sample, WorkloadError
from pytest_ftgate.model.verdict import Comparison


def paired(of: Sample | Values, names: Collection[str] = metrics.GATING) -> dict[str, Comparison]:
    return comparisons.paired(of if isinstance(of, Values) else read(of), names)


def both(own: Sequence[Launch], other: Sequence[Launch]) -> dict[str, Comparison]:
    return paired(sample_of(own, reference=sample_of(other)))


def both_sides(numbers: Comparison) -> Any:
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


def rounds_of(seed: int, count: int) -> list[tuple[Launch, Launch]]:
    """Pairs of unlike numbers of turns."""
    rng = random.Random(seed)
    return [drifting(rng, order, rng.randint(8, 16)) for order in range(count)]


def split(rounds: Sequence[tuple[Launch, Launch]]) -> tuple[list[Launch], list[Launch]]:
    return [own for own, _ in rounds], [other for _, other in rounds]


def walls(launch: Launch) -> list[float]:
    return [float(iteration.wall_ns) for iteration in launch.iterations]


# -- paired ----------------------------------------------------------------------------------------------------------


class TestPairs:
    def test_a_round_that_one_side_lacks_is_left_out_of_what_it_lacks_alone(self) -> None:
        own = [timed(order, [2000 + order] * 12) for order in range(8)]
        other = [timed(order, [1000 + order] * 12) for order in range(8) if order != 3]
        memory = [held(order, 100 + order) for order in range(8)]
        reference = sample_of(reversed(other), memory=[held(order, 200 + order) for order in range(8)])
        found = paired(sample_of(own, memory=memory, reference=reference))
        kept = [order for order in range(8) if order != 3]
        assert found[Metric.WALL].new == pytest.approx([2000 + order for order in kept])
        assert found[Metric.WALL].reference == pytest.approx([1000 + order for order in kept])
        assert len(found[Metric.TAIL].new) == 7
        assert found[Metric.USS].new == tuple(100.0 + order for order in range(8))
        assert found[Metric.USS].reference == tuple(200.0 + order for order in range(8))

    def test_units(self) -> None:
        own = [timed(order, [2000] * 12) for order in range(3)]
        sides: dict[str, Any] = {
            "memory": [held(0, 5)],
            "locks": [probed(0, 0.2, workers=4)],
        }
        both_of = sample_of(own, FOUR, reference=sample_of(own, FOUR, **sides), **sides)
        found = paired(read(both_of, one_worker=own, before=own), (*metrics.GATING, Metric.SCALING))
        assert {metric: numbers.unit for metric, numbers in found.items()} == {
            Metric.WALL: "ns",
            Metric.TAIL: "ns",
            Metric.START: "ns",
            Metric.USS: "bytes",
            Metric.LOCK_WAIT: "of the time",
            Metric.SCALING: "x",
        }
        assert not any(numbers.recordings for numbers in found.values())

    def test_without_a_reference(self) -> None:
        own = [timed(order, [2000] * 12) for order in range(3)]
        assert paired(sample_of(own, memory=[held(0, 5)])) == {}
        failed = sample_of(error=WorkloadError(reason="ValueError"))
        assert paired(sample_of(own, memory=[held(0, 5)], reference=failed)) == {}
        assert paired(sample_of(own, reference=sample_of())) == {}

    def test_what_the_reference_never_gave_is_left_out(self) -> None:
        own = [timed(order, [2000] * 12) for order in range(3)]
        here = sample_of(own, memory=[held(0, 5)], locks=[probed(0, 0.2)])
        found = paired(msgspec.structs.replace(here, reference=sample_of(own)))
        assert set(found) == {Metric.WALL, Metric.TAIL, Metric.START}

    def test_what_the_cell_alone_lacks_stays_without_new_values(self) -> None:
        own = [timed(order, [2000] * 12) for order in range(3)]
        there = sample_of(own, memory=[held(0, 5)], locks=[probed(0, 0.2)])
        found = paired(sample_of(own, reference=there))
        lost = {metric for metric, numbers in found.items() if not numbers.new}
        assert lost == {Metric.USS, Metric.LOCK_WAIT}
        assert found[Metric.USS].reference == (5.0,)


class TestTurns:
    def test_a_wall_time_is_the_references_median_times_the_ratio_of_neighbours(self) -> None:
        """Hodges and Lehmann's: the median of the means of all pairs of log-ratios, in ns of one loop."""
        rng = random.Random(5)
        pairs = [drifting(rng, order, iterations=41) for order in range(6)]
        pairs = [tuple(msgspec.structs.replace(side, loops=4) for side in pair) for pair in pairs]  # type: ignore[misc]
        found = both(*split(pairs))[Metric.WALL]
        for (own, other), new, reference in zip(pairs, found.new, found.reference, strict=True):
            logs = [math.log(a / b) for a, b in zip(walls(own), walls(other), strict=True)]
            means = [(a + b) / 2 for a, b in combinations_with_replacement(logs, 2)]
            assert math.log(new / reference) == pytest.approx(median(means))
            assert reference == pytest.approx(median(walls(other)) / 4)

    def test_the_error_of_a_pair_is_what_its_turns_show(self) -> None:
        """About the standard deviation of the log-ratios over the root of their number; other rounds do not count."""
        rng = np.random.default_rng(6)
        pairs = []
        for order, noise in enumerate((0.01, 0.1, 0.3)):
            other = 1e9 * rng.lognormal(0, 0.5, 400)
            own = other * rng.lognormal(0, noise, 400)
            pairs.append(tuple(timed(order, side.round().astype(int).tolist()) for side in (own, other)))
        found = both(*split(pairs))[Metric.WALL]  # type: ignore[arg-type]
        assert found.errors == pytest.approx((0.01 / 20, 0.1 / 20, 0.3 / 20), rel=0.15)
        alone = both(*split(pairs[1:2]))[Metric.WALL]  # type: ignore[arg-type]
        assert alone.errors == found.errors[1:2]

    def test_one_turn_has_no_error_that_is_known(self) -> None:
        assert both([timed(0, [2000])], [timed(0, [1000])])[Metric.WALL].errors == (0.0,)

    def test_of_the_tail_the_error_is_that_of_a_quantile(self) -> None:
        """Of normal values as many times that of their mean as the simulation says."""
        rng = np.random.default_rng(7)
        assert float(np.quantile(rng.normal(size=(20_000, 100)), 0.9, axis=1).std()) * 10 == pytest.approx(
            comparisons.TAIL_ERROR, rel=0.05
        )
        found = both(*split(rounds_of(3, 4)))
        known = zip(found[Metric.TAIL].errors, found[Metric.WALL].errors, strict=False)
        pairs = both(*split([pair for pair in rounds_of(3, 4) if len(pair[0].iterations) >= 10]))
        assert found[Metric.TAIL].errors == pytest.approx(
            tuple(comparisons.TAIL_ERROR * error for error in pairs[Metric.WALL].errors)
        )
        assert all(tail > wall for tail, wall in known)

    def test_of_the_tail_the_reference_grows_by_what_the_wall_times_so_far_did(self) -> None:
        rounds = [([2000 * by] * 12, [1000] * 12) for by in (1, 3, 2)]
        own, other = ([timed(order, side[at]) for order, side in enumerate(rounds)] for at in (0, 1))
        tail = both(own, other)[Metric.TAIL]
        assert tail.wall_growth == pytest.approx((2, 4, 4))
        assert tail.new == pytest.approx((2000, 6000, 4000))
        assert tail.reference == pytest.approx((2000, 4000, 4000))
        faster = both(other, own)[Metric.TAIL]
        assert faster.wall_growth == ()
        assert faster.reference == tail.new
        later = both([other[0], *own[1:]], other)[Metric.TAIL]
        assert later.wall_growth == pytest.approx((1, 3.5, 4))

    def test_of_a_tail_that_gates_alone_it_does_not(self) -> None:
        """What holds the wall time itself must gate, or a body could become slower unseen."""
        own, other = ([timed(0, [ns] * 12)] for ns in (2000, 1000))
        alone = paired(sample_of(own, reference=sample_of(other)), [Metric.TAIL])[Metric.TAIL]
        assert both_sides(alone) == ((2000,), (1000,))

    def test_a_value_never_changes_when_rounds_are_added(self) -> None:
        for seed in range(8):
            rounds = rounds_of(seed, 24)
            whole = both(*split(rounds))
            for count in (2, 7, 23):
                part = both(*split(rounds[:count]))
                for metric in (Metric.WALL, Metric.TAIL):
                    known = len(part[metric].new)
                    assert part[metric].new == whole[metric].new[:known]
                    assert part[metric].reference == whole[metric].reference[:known]
                    assert part[metric].errors == whole[metric].errors[:known]

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
        assert found.unit == "ns"

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
        assert (found.new, found.reference) == ((1500.0,), (2 * 250.0,))  # the body is twice as long

    def test_over_the_control_it_is_that_of_the_launches_that_have_enough_iterations(self) -> None:
        for counts, tails in (((9, 10, 10), {1: 4.0, 2: 4.0}), ((10,), {0: 4.0}), ((9,), {})):
            own = [timed(order, [2000] * count) for order, count in enumerate(counts)]
            sample = sample_of(own, control=[timed(order, [500] * 12) for order in range(3)])
            assert read(sample).by_order(TAIL_OF_CONTROL) == pytest.approx(tails)

    def test_a_window_without_an_operation_does_not_count(self) -> None:
        ten = [1e6] * 10
        assert Metric.TAIL in both([windows(0, ten)], [windows(0, ten)])
        assert Metric.TAIL not in both([windows(0, ten)], [windows(0, [*ten[1:], 0.0])])


class TestRounds:
    def test_memory_and_shares_are_paired_by_their_round(self) -> None:
        own = sample_of(
            memory=[held(2, 31, 31, 31), held(0, 10)], locks=[probed(order, order / 10) for order in (3, 1)]
        )
        other = sample_of(
            memory=[held(order, 100 + order) for order in range(4)],
            locks=[probed(order, order / 20) for order in range(4)],
        )
        found = paired(msgspec.structs.replace(own, reference=other))
        uss = found[Metric.USS]
        assert (uss.new, uss.reference, uss.unit) == ((10.0, 31.0), (100.0, 102.0), "bytes")
        assert found[Metric.USS].errors == pytest.approx((0.0, 0.0), abs=1e-9)
        assert found[Metric.LOCK_WAIT].new == pytest.approx((0.1, 0.3))
        assert found[Metric.LOCK_WAIT].reference == pytest.approx((0.05, 0.15))

    def test_the_scatter_of_memory_samples_counts_by_their_number(self) -> None:
        own = sample_of(memory=[held(0, 30, 33), held(1, 30)])
        other = sample_of(memory=[held(0, 30), held(1, 30)])
        scatter = math.log(1.1) / math.sqrt(2)  # of the one launch with two samples
        found = paired(msgspec.structs.replace(own, reference=other))[Metric.USS]
        expected = [math.sqrt(math.pi / 2) * scatter * math.sqrt(counts) for counts in (1 / 2 + 1, 2)]
        assert found.errors == pytest.approx(expected)
        both_move = sample_of(memory=[held(0, 30, 33), Launch(order=1, hash_seed=1, started_at="")])
        other = sample_of(memory=[held(0, 30, 33), held(1, 30)])
        found = paired(msgspec.structs.replace(both_move, reference=other))[Metric.USS]
        assert found.errors == pytest.approx([math.sqrt(math.pi / 2) * scatter])

    def test_no_wait_at_all_is_a_share(self) -> None:
        locks = [probed(order, 0.0) for order in range(4)]
        found = paired(sample_of(locks=locks, reference=sample_of(locks=locks)))
        assert both_sides(found[Metric.LOCK_WAIT]) == ((0.0,) * 4, (0.0,) * 4)

    def test_a_launch_without_a_figure_is_no_round(self) -> None:
        unknown = Launch(order=0, hash_seed=1, started_at="", memory=memory_of(None))
        own = sample_of(memory=[unknown, held(1, 10)])
        found = paired(msgspec.structs.replace(own, reference=own))
        assert found[Metric.USS].new == (10.0,)
        written = sample_of(memory=[unknown, held(1, 10, written_bytes=7)])
        assert read(written).by_order(USS_WRITTEN) == {1: 7.0}

    def test_a_count_of_nothing_is_compared(self) -> None:
        counted = [
            msgspec.structs.replace(timed(order, [1000] * 4), counters={"inserts": count})
            for order, count in enumerate((0.0, 12.0))
        ]
        found = paired(sample_of(counted, reference=sample_of(counted)), ["counter.inserts"])["counter.inserts"]
        assert found.new == found.reference == (0.0, 3_000_000.0)


class TestScaling:
    Scaled = tuple[int, int, Iterable[int]]
    """Of a side: ns with one worker and with four, and the rounds of the one-worker cell."""

    def compared(self, new: Scaled, reference: Scaled) -> dict[str, Comparison]:
        def side(ns: int, orders: Iterable[int]) -> list[Launch]:
            return [timed(order, [ns + order] * 5) for order in orders]

        own, other = (side(each[1], range(3)) for each in (new, reference))
        single, before = (side(each[0], each[2]) for each in (new, reference))
        of = read(sample_of(own, FOUR, reference=sample_of(other, FOUR)), one_worker=single, before=before)
        return paired(of, [Metric.SCALING])

    def test_it_is_compared_as_a_ratio_of_ratios(self) -> None:
        found = self.compared((900, 1800, range(3)), (1000, 1000, range(3)))[Metric.SCALING]
        assert found.reference == pytest.approx((4.0, 4.0, 4.0))
        assert found.new == pytest.approx([4 * (900 + order) / (1800 + order) for order in range(3)])

    def test_it_takes_the_one_worker_launches_of_both_sides(self) -> None:
        assert Metric.SCALING not in self.compared((900, 1800, range(3)), (9, 9, ()))
        assert Metric.SCALING not in self.compared((9, 9, ()), (900, 1800, range(3)))
        found = self.compared((900, 1800, (0, 2)), (1000, 1000, (1, 2)))
        assert both_sides(found[Metric.SCALING]) == (pytest.approx((4 * 902 / 1802,)), pytest.approx((4.0,)))


def test_every_metric_has_its_kind_of_launch() -> None:
    assert {metrics.row(name).need for name in metrics.GATING} == {"time", "memory", "locks", "observed"}
