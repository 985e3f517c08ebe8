"""The test of pairs by hand, against SciPy, and on seeded noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import toeplitz
from scipy.stats import t

from pytest_ftgate.stats import moderated
from pytest_ftgate.stats.estimators import gini_deviation
from pytest_ftgate.stats.moderated import CLIP, FARTHEST, PRIOR_FREEDOM

Rows = NDArray[np.float64]


def normal(rng: np.random.Generator, rows: int, count: int) -> Rows:
    return np.asarray(rng.normal(size=(rows, count)), dtype=np.float64)


def heavy(rng: np.random.Generator, rows: int, count: int) -> Rows:
    """Student's t with 3 degrees of freedom, of variance 1."""
    return np.asarray(rng.standard_t(3, (rows, count)) / math.sqrt(3), dtype=np.float64)


def p_of(shifts: Rows, spread: float, errors: tuple[float, ...] = ()) -> float:
    return moderated.p_above(shifts.tolist(), moderated.deviations(shifts.tolist(), errors, spread))


class TestDeviations:
    def test_one_pair_has_what_is_stated(self) -> None:
        assert moderated.deviations([0.7], [], 0.04).tolist() == [0.04]
        assert moderated.deviations([0.7], [0.03], 0.04) == pytest.approx([0.05])

    def test_two_pairs_by_hand(self) -> None:
        """Gini's deviation of two values is their distance times sqrt(pi) / 2; it has one degree of freedom of 13."""
        factor = (12 + math.pi / 4 * (0.2 / 0.05) ** 2) / 13
        assert moderated.deviations([0.1, 0.3], [], 0.05) == pytest.approx([0.05 * math.sqrt(factor)] * 2)

    @pytest.mark.parametrize("count", [2, 3, 13, 100])
    def test_equal_pairs_lower_what_is_stated_no_further_than_its_weight(self, count: int) -> None:
        found = moderated.deviations([0.2] * count, [], 0.04)
        assert found == pytest.approx([0.04 * math.sqrt(PRIOR_FREEDOM / (PRIOR_FREEDOM + count - 1))] * count)

    def test_many_pairs_outweigh_what_is_stated(self) -> None:
        shifts = np.random.default_rng(80).normal(0, 0.1, 2000)
        for stated in (0.03, 0.3):
            assert moderated.deviations(shifts.tolist(), [], stated)[0] == pytest.approx(0.1, rel=0.05)

    def test_is_blind_to_where_the_shifts_lie(self) -> None:
        rng = np.random.default_rng(81)
        shifts, errors = rng.normal(0, 0.05, 9), rng.uniform(0.01, 0.05, 9).tolist()
        expected = moderated.deviations(shifts.tolist(), errors, 0.04)
        for moved in (shifts + 7.0, shifts - 0.3, -shifts, 1.0 - shifts):
            assert moderated.deviations(moved.tolist(), errors, 0.04) == pytest.approx(expected)

    def test_a_pair_whose_turns_scatter_counts_for_less(self) -> None:
        """All pairs share the factor; how they differ follows from their own errors."""
        found = moderated.deviations([0.0, 0.1, 0.05], [0.0, 0.03, 0.4], 0.04)
        expected = np.hypot(0.04, [0.0, 0.03, 0.4])
        assert found / expected == pytest.approx([found[0] / 0.04] * 3)
        distances = [0.3, 0.01, 0.01], [0.01, 0.01, 0.3]
        steady, wild = (moderated.p_above(each, found) for each in distances)
        assert steady < wild

    def test_one_wild_pair_of_many_hardly_widens_the_others(self) -> None:
        """By its own error: the factor is that of standardised shifts."""
        shifts = [0.0, 0.02, -0.02, 0.01, 0.5]
        unknown, known = (moderated.deviations(shifts, errors, 0.04)[0] for errors in ([], [0.0] * 4 + [0.5]))
        assert known < 0.04 < 2 * known < unknown

    def test_a_stall_in_one_pair_hides_nothing_that_the_others_show(self) -> None:
        """It lies no farther from them than FARTHEST expected deviations, whatever it took."""
        far, farther = (moderated.deviations([0.0, 0.01, by, -0.01], [], 0.04) for by in (0.05 * FARTHEST, 9.0))
        assert far == pytest.approx(farther)
        assert p_of(np.array([0.7, 0.71, 0.69, 0.7, 9.0, 0.7]), 0.04) < 1e-4
        nearer = moderated.deviations([0.0, 0.01, 0.02 * FARTHEST, -0.01], [], 0.04)
        assert nearer[0] < 0.7 * far[0]

    @pytest.mark.parametrize("spread", [0.0, -0.1, math.nan])
    def test_a_spread_is_positive(self, spread: float) -> None:
        with pytest.raises(ValueError, match="is not positive"):
            moderated.deviations([0.1, 0.2], [], spread)


class TestPAbove:
    @pytest.mark.parametrize("count", [1, 3, 10])
    def test_is_students_t_of_the_sum(self, count: int) -> None:
        rng = np.random.default_rng([82, count])
        distances, scales = rng.uniform(0.04, 0.06, count), rng.uniform(0.03, 0.05, count)
        statistic = float((distances / scales).sum()) / math.sqrt(count)
        expected = float(t.sf(statistic, PRIOR_FREEDOM + count - 1))
        assert moderated.p_above(distances.tolist(), scales) == pytest.approx(expected, rel=1e-9)

    def test_one_outlier_is_clipped(self) -> None:
        """Also among pairs that it makes scatter: it counts for CLIP of their own deviations."""
        ones = np.ones(4)
        most = moderated.p_above([CLIP, 0.1, 0.2, -0.1], ones, own=False)
        for wild in (CLIP + 1e-9, 10.0, 1e300):
            assert moderated.p_above([wild, 0.1, 0.2, -0.1], ones, own=False) == most
        assert moderated.p_above([CLIP - 0.1, 0.1, 0.2, -0.1], ones, own=False) > most > 0.02
        most = moderated.p_above([10.0, 0.1, 0.2, -0.1], ones)
        assert moderated.p_above([1e300, 0.1, 0.2, -0.1], ones) == most
        assert moderated.p_above([CLIP - 0.1, 0.1, 0.2, -0.1], ones) > most > 0.02

    @pytest.mark.parametrize("count", [2, 3, 4, 5])
    def test_most_pairs_must_lie_above(self, count: int) -> None:
        """Else it is no evidence, however far one lies."""
        for above in range(count + 1):
            distances = [1e9] * above + [-1e-9] * (count - above)
            p = moderated.p_above(distances, np.ones(count))
            assert (p < 0.5) == (above > count / 2)

    def test_no_disturbance_hides_what_the_other_pairs_show(self) -> None:
        assert moderated.p_above([9.0] * 5 + [-1e9], np.ones(6), own=False) < 1e-4
        assert moderated.p_above([9.0] * 5 + [-1e9], np.ones(6)) < 1e-3

    def test_what_scatters_more_than_is_stated_is_tested_by_its_own_deviation(self) -> None:
        """As by Student's own test: the stated deviation, however small, adds nothing to what they show."""
        distances = [3.0, 6.0, 4.0, 7.0]
        times = moderated.scatter(distances, np.ones(4))
        assert times == pytest.approx(14 / 6 * math.sqrt(math.pi) / 2)
        expected = float(t.sf(sum(min(each / times, CLIP) for each in distances) / 2, 3))
        for scale in (1.0, 0.8):
            assert moderated.p_above(distances, scale * np.ones(4)) == pytest.approx(expected, rel=0.05)
        stated = float(t.sf(sum(min(each, CLIP) for each in distances) / 2, PRIOR_FREEDOM + 3))
        assert moderated.p_above(distances, np.ones(4)) > 100 * stated

    def test_not_both_above_and_below(self) -> None:
        rng = np.random.default_rng(83)
        for count in (1, 2, 7):
            distances, scales = 6 * rng.normal(size=count), rng.uniform(0.5, 2, count)
            above, below = sorted(moderated.p_above(each.tolist(), scales) for each in (distances, -distances))
            assert below >= 0.5
            assert above + below == pytest.approx(max(1, below + 0.5 * (above >= 0.5)))
        assert moderated.p_above([0.0] * 3, np.ones(3)) == 0.5

    def test_each_distance_counts_in_its_direction(self) -> None:
        """By the stated deviation: by its own, one that lies far says that they scatter."""
        rng = np.random.default_rng(84)
        for _ in range(50):
            distances = rng.normal(0, 2, 5)
            p = moderated.p_above(distances.tolist(), np.ones(5), own=False)
            further = distances + np.eye(5)[rng.integers(5)] * rng.exponential()
            assert moderated.p_above(further.tolist(), np.ones(5), own=False) <= p

    def test_farther_pairs_say_more(self) -> None:
        rng = np.random.default_rng(84)
        for _ in range(50):
            distances = rng.normal(0, 2, 5)
            p = moderated.p_above(distances.tolist(), np.ones(5))
            further = distances + rng.exponential()
            assert moderated.p_above(further.tolist(), np.ones(5)) <= p

    def test_more_pairs_say_more(self) -> None:
        found = [moderated.p_above([1.0] * count, np.ones(count)) for count in range(1, 20)]
        assert found == sorted(found, reverse=True)
        assert len(set(found)) == len(found)

    def test_correlation_widens(self) -> None:
        found = [moderated.p_above([1.0] * 6, np.ones(6), correlation) for correlation in (0.0, 0.3, 0.6, 0.9)]
        assert found == sorted(found)
        deviation = math.sqrt(float(toeplitz(0.6 ** np.arange(6)).sum()))
        assert found[2] == pytest.approx(float(t.sf(6 / deviation, PRIOR_FREEDOM + 5)))
        against = [moderated.p_above([-1.0] * 6, np.ones(6), correlation) for correlation in (0.0, 0.6)]
        assert against[1] < against[0]

    def test_nothing_says_nothing(self) -> None:
        assert moderated.p_above([], np.empty(0)) == 1.0

    @pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9, 1.0])
    @pytest.mark.parametrize("count", [1, 2, 9])
    def test_variance_of_a_sum(self, count: int, correlation: float) -> None:
        expected = float(toeplitz(correlation ** np.arange(count)).sum())
        assert moderated.variance_of_sum(count, correlation) == pytest.approx(expected)


class TestCalibration:
    """At the limit the test rejects no more often than its level, by 4000 seeded rows."""

    ROWS = 4000

    @pytest.mark.parametrize("noise", [normal, heavy])
    @pytest.mark.parametrize("count", [3, 5, 13])
    def test_of_noise_as_stated(self, noise: Callable[[np.random.Generator, int, int], Rows], count: int) -> None:
        rows = 0.05 * noise(np.random.default_rng([85, count]), self.ROWS, count)
        found = np.array([p_of(row, 0.05) for row in rows])
        for level in (0.003, 0.02, 0.2):
            share = float((found <= level).mean())
            assert share <= level + 3 * math.sqrt(level * (1 - level) / self.ROWS)
        assert float((found <= 0.2).mean()) >= 0.1  # it is not merely deaf

    def test_of_a_spread_stated_too_low(self) -> None:
        """The pairs correct it: half of the true deviation is stated to little harm, and with thirty pairs to none."""
        few, many = (0.08 * normal(np.random.default_rng([86, count]), self.ROWS, count) for count in (3, 30))
        rejected = [np.mean([p_of(row, 0.04) <= 0.01 for row in rows]) for rows in (few, many)]
        assert rejected[1] <= 0.01 < rejected[0] <= 0.03

    def test_of_pairs_whose_turns_scatter_unalike(self) -> None:
        rng = np.random.default_rng(87)
        errors = (0.01, 0.2, 0.02, 0.1, 0.05)
        rows = normal(rng, self.ROWS, 5) * np.hypot(0.04, errors)
        rejected = float(np.mean([p_of(row, 0.04, errors) <= 0.02 for row in rows]))
        assert rejected <= 0.02 + 3 * math.sqrt(0.02 * 0.98 / self.ROWS)

    def test_of_correlated_rounds(self) -> None:
        """Against the correlation that the test is told, and against none."""
        rng, correlation = np.random.default_rng(88), 0.6
        steps = normal(rng, self.ROWS, 12) * math.sqrt(1 - correlation**2)
        rows = np.empty_like(steps)
        rows[:, 0] = steps[:, 0] / math.sqrt(1 - correlation**2)
        for at in range(1, rows.shape[1]):
            rows[:, at] = correlation * rows[:, at - 1] + steps[:, at]
        told, untold = (
            np.mean([moderated.p_above(row, np.ones(12), each) <= 0.02 for row in rows]) for each in (correlation, 0.0)
        )
        assert told <= 0.02 + 3 * math.sqrt(0.02 * 0.98 / self.ROWS)
        assert untold > 0.08


class TestReach:
    @pytest.mark.parametrize(("count", "level"), [(3, 0.02), (4, 0.005), (8, 1e-3), (20, 1e-4)])
    @pytest.mark.parametrize("power", [0.5, 0.8])
    def test_is_found_with_that_chance(self, count: int, level: float, power: float) -> None:
        """By the stated deviation; so, too, where pairs scatter less, and by their own where they scatter more."""
        noise = normal(np.random.default_rng([89, count]), 3000, count)
        stated = noise + moderated.reach(count, level, power)
        found = np.mean([moderated.p_above(row, np.ones(count), own=False) <= level for row in stated])
        assert found == pytest.approx(power, abs=0.03)
        for times, scale, freedom in ((0.5, 1.0, PRIOR_FREEDOM), (1.0, 0.4, 0)):
            rows = times * noise + moderated.reach(count, level, power, prior_freedom=freedom)
            found = np.mean([moderated.p_above(row, scale * np.ones(count)) <= level for row in rows])
            assert power - 0.11 <= found <= power + 0.17

    def test_out_of_reach(self) -> None:
        """Three scores of CLIP make 6.9 at 14 degrees of freedom: a p-value of 3.5e-6."""
        least = float(t.sf(CLIP * math.sqrt(3), PRIOR_FREEDOM + 2))
        assert moderated.reach(3, least * 1.01, 0.8) < math.inf
        assert moderated.reach(3, least * 0.99, 0.8) == math.inf
        assert moderated.p_above([1e9] * 3, np.ones(3)) == pytest.approx(least)
        for level, count in ((0.0, 5), (1.0, 5), (0.01, 0)):
            assert moderated.reach(count, level, 0.8) == math.inf

    def test_more_pairs_reach_smaller_changes_and_correlation_larger_ones(self) -> None:
        found = [moderated.reach(count, 0.001, 0.8) for count in (4, 8, 16, 80)]
        assert found == sorted(found, reverse=True)
        assert moderated.reach(16, 0.001, 0.8, correlation=0.6) > 1.5 * moderated.reach(16, 0.001, 0.8)
        assert moderated.reach(16, 0.6, 0.5) == 0.0

    def test_half_width_is_students(self) -> None:
        for count in (2, 7):
            low, high = t.interval(0.95, PRIOR_FREEDOM + count - 1)
            assert moderated.half_width(count, 0.95) == pytest.approx((high - low) / 2 / math.sqrt(count))


class TestInterval:
    @pytest.mark.parametrize("count", [3, 5, 12])
    @pytest.mark.parametrize("times", [1, 2, 6])
    def test_covers_as_often_as_it_says(self, count: int, times: float) -> None:
        """Also where pairs scatter far more than is stated: the prior may widen an interval, never narrow it."""
        rows, hits = times * 0.05 * normal(np.random.default_rng(90), 1500, count), 0
        for row in rows:
            found = moderated.interval(row.tolist(), moderated.deviations(row.tolist(), (), 0.05), 0.95)
            hits += found.low <= 0 <= found.high
        assert 0.93 <= hits / 1500 <= 0.99

    @pytest.mark.parametrize("step", [0.2, 0.5])
    def test_covers_where_launches_have_two_speeds(self, step: float) -> None:
        rng, hits = np.random.default_rng(91), 0
        for _ in range(1000):
            row = step * (rng.integers(0, 2, 5) - rng.integers(0, 2, 5)) + rng.normal(0, 0.01, 5)
            found = moderated.interval(row.tolist(), moderated.deviations(row.tolist(), (), 0.045), 0.95)
            hits += found.low <= 0 <= found.high
        assert hits >= 930

    def test_its_ends_are_where_the_test_rejects(self) -> None:
        """Whatever the scales of pairs that scatter no more than they say: at an end half of the rest is rejected."""
        rng = np.random.default_rng(92)
        for _ in range(200):
            scales = rng.uniform(0.1, 0.3, 6)
            shifts = rng.uniform(-0.1, 0.1, 6)
            found = moderated.interval(shifts.tolist(), scales, 0.95)
            assert found.low < found.value < found.high
            for beyond in (shifts - found.low, found.high - shifts):
                unbound = np.clip(beyond / scales, -CLIP, CLIP).sum() / math.sqrt(6)
                assert t.sf(unbound, PRIOR_FREEDOM + 5) == pytest.approx(0.025)

    def test_pairs_that_scatter_more_have_students_interval(self) -> None:
        """Of their own deviation and degrees of freedom, without outliers."""
        shifts = [-0.4, -0.1, 0.1, 0.4]
        found = moderated.interval(shifts, np.full(4, 0.1), 0.95)
        half = t.isf(0.025, 3) * gini_deviation(shifts) / 2
        assert (found.low, found.value, found.high) == pytest.approx((-half, 0.0, half), abs=1e-9)

    def test_equal_scales_without_outliers_give_the_mean(self) -> None:
        found = moderated.interval([0.1, 0.2, 0.3], np.full(3, 0.2), 0.95)
        assert found.value == pytest.approx(0.2)
        assert found.high - found.value == pytest.approx(0.2 * moderated.half_width(3, 0.95))
        assert found.value - found.low == pytest.approx(found.high - found.value)

    def test_too_few_pairs_have_a_range(self) -> None:
        """Two rounds of a loop that did not change printed -29.6 % [-44.8, -10.3]."""
        for shifts in ([0.3], [-0.4, -0.3]):
            found = moderated.interval(shifts, moderated.deviations(shifts, (), 0.045), 0.95)
            assert (found.low, found.high, found.level) == (min(shifts), max(shifts), 0.0)
            assert found.value == pytest.approx(sum(shifts) / len(shifts))
