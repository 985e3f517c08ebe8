"""The estimators and their rank intervals against SciPy, against enumeration, and against what a level promises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement, permutations
from typing import Literal

import numpy as np
import pytest
from scipy.stats import kendalltau, t, theilslopes, wilcoxon

from pytest_ftgate.stats import estimators, intervals, speedup

Side = Literal["greater", "less"]


class TestLocation:
    def test_is_the_median_of_the_means_of_pairs(self) -> None:
        rng = np.random.default_rng(20)
        for n in (1, 2, 5, 12):
            values = rng.normal(3, 1, n)
            means = [(a + b) / 2 for a, b in combinations_with_replacement(values, 2)]
            assert intervals.location(values, 0.9).value == pytest.approx(np.median(means))

    @pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.99])
    def test_interval_holds_what_the_test_does_not_reject(self, level: float) -> None:
        values = np.random.default_rng(21).normal(1, 1, 11)
        interval = intervals.location(values, level)
        error, step = (1 - level) / 2, 1e-6

        def p(shift: float, side: Side) -> float:
            return float(wilcoxon(values - shift, alternative=side, method="exact").pvalue)

        assert p(interval.low - step, "greater") <= error < p(interval.low + step, "greater")
        assert p(interval.high + step, "less") <= error < p(interval.high - step, "less")
        assert interval.low <= interval.value <= interval.high
        assert interval.level >= level

    @pytest.mark.parametrize(("n", "level"), [(1, 0.0), (2, 0.0), (4, 0.0), (5, 0.9375)])
    def test_level_out_of_reach_gives_the_widest_or_a_range(self, n: int, level: float) -> None:
        values = [float(value) for value in range(1, n + 1)]
        interval = intervals.location(values, 0.95)
        assert (interval.low, interval.high, interval.level) == (1.0, float(n), level)

    def test_zero_variance(self) -> None:
        interval = intervals.location([0.1] * 8, 0.95)
        assert (interval.low, interval.value, interval.high) == (0.1, 0.1, 0.1)

    def test_nothing_and_not_finite(self) -> None:
        for values in ([], [1.0, math.nan]):
            with pytest.raises(ValueError, match="needed"):
                intervals.location(values, 0.95)

    def test_covers_as_often_as_it_says(self) -> None:
        rng = np.random.default_rng(22)
        tries = [intervals.location(rng.normal(0.3, 1, 9), 0.9) for _ in range(1500)]
        hits = sum(interval.low <= 0.3 <= interval.high for interval in tries)
        level = tries[0].level
        assert level >= 0.9
        assert hits / len(tries) == pytest.approx(level, abs=3 * math.sqrt(level * (1 - level) / len(tries)))


class TestRatioInterval:
    def test_cancels_the_state_of_the_machine_per_launch_and_iteration(self) -> None:
        rng = np.random.default_rng(23)
        weather = [np.exp(rng.normal(0, 1, 7)) for _ in range(6)]
        interval = intervals.ratio_interval([(1.42 * iterations, iterations) for iterations in weather], 0.95)
        assert (interval.low, interval.value, interval.high) == pytest.approx((1.42, 1.42, 1.42))
        assert interval.level == pytest.approx(1 - 2 / 2**6)

    def test_a_launch_is_one_value_however_many_its_iterations(self) -> None:
        one, many = ([2.0], [1.0]), ([3.0] * 50, [1.0] * 50)
        interval = intervals.ratio_interval([one, many], 0.95)
        assert (interval.low, interval.high, interval.level) == pytest.approx((2.0, 3.0, 0.0))
        assert interval.value == pytest.approx(math.sqrt(6))

    def test_turns_of_a_single_launch_carry_no_interval(self) -> None:
        """They leave out what differs between launches."""
        interval = intervals.ratio_interval([([2.0, 3.0, 4.0, 9.0] * 3, [2.0] * 12)], 0.95)
        assert interval.low == interval.value == interval.high
        assert interval.level == 0

    def test_exchanging_the_sides_inverts_it(self) -> None:
        rng = np.random.default_rng(24)
        launches = [(rng.lognormal(0.3, 0.2, 5), rng.lognormal(0, 0.2, 5)) for _ in range(7)]
        there = intervals.ratio_interval(launches, 0.9)
        back = intervals.ratio_interval([(other, own) for own, other in launches], 0.9)
        assert (back.value, back.low, back.high) == pytest.approx((1 / there.value, 1 / there.high, 1 / there.low))

    def test_refuses_nothing_and_what_is_not_positive(self) -> None:
        with pytest.raises(ValueError, match="at least one value"):
            intervals.ratio_interval([], 0.9)
        with pytest.raises(ValueError, match="at least one value"):
            intervals.ratio_interval([([], [])], 0.9)
        with pytest.raises(ValueError, match="positive"):
            intervals.ratio_interval([([1.0], [0.0])], 0.9)

    def test_neighbours_stay_paired(self) -> None:
        nan = math.nan
        assert estimators.neighbours([1.0, nan, 3.0, 4.0], [5.0, 6.0, nan]) == ((1.0, 4.0), (5.0,))


def enumerated_pairs(sizes: Sequence[int]) -> list[float]:
    """P(at least u pairs of unlike groups ascend), over all orders of that many unlike values."""
    groups = [group for group, size in enumerate(sizes) for _ in range(size)]
    pairs = [(i, j) for i, j in combinations(range(len(groups)), 2) if groups[i] != groups[j]]
    counts = [sum(order[i] < order[j] for i, j in pairs) for order in permutations(range(len(groups)))]
    return [sum(count >= u for count in counts) / len(counts) for u in range(len(pairs) + 1)]


class TestTheilSen:
    @pytest.mark.parametrize("sizes", [(1,), (1, 1), (1, 1, 1, 1, 1), (1, 1, 2), (2, 2, 2), (1, 2, 3), (3, 3)])
    def test_the_null_distribution_is_the_enumerated_one(self, sizes: tuple[int, ...]) -> None:
        assert list(intervals._rank_sum_tail(*sizes)) == pytest.approx(enumerated_pairs(sizes))

    @pytest.mark.parametrize("n", [3, 5, 12, 25])
    def test_agrees_with_scipy(self, n: int) -> None:
        rng = np.random.default_rng([30, n])
        xs, ys = np.sort(rng.integers(0, 9, n)).astype(float), rng.normal(0, 1, n)
        xs[-1] += 1
        theirs = theilslopes(ys, xs, alpha=0.9)
        assert estimators.theil_sen(xs, ys) == pytest.approx(theirs.slope)
        ours = intervals.theil_sen_interval(xs, ys, 0.9)
        assert ours.value == pytest.approx(theirs.slope)
        if n == 25:  # SciPy's is the normal approximation: good enough here to be within a few ordered slopes
            slopes = np.sort(estimators.slopes_of(xs, ys))
            for bound, other in ((ours.low, theirs.low_slope), (ours.high, theirs.high_slope)):
                assert abs(int(np.searchsorted(slopes, bound)) - int(np.searchsorted(slopes, other))) <= 4

    @pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
    def test_interval_holds_what_kendalls_test_does_not_reject(self, level: float) -> None:
        rng = np.random.default_rng(31)
        xs, ys = np.arange(9.0), rng.normal(0, 1, 9).cumsum()
        interval = intervals.theil_sen_interval(xs, ys, level)
        step = 1e-6

        def p(slope: float, side: Side) -> float:
            return float(kendalltau(xs, ys - slope * xs, method="exact", alternative=side).pvalue)

        error = (1 - level) / 2
        assert p(interval.low - step, "greater") <= error < p(interval.low + step, "greater")
        assert p(interval.high + step, "less") <= error < p(interval.high - step, "less")
        assert interval.level >= level

    def test_the_order_of_the_points_does_not_matter(self) -> None:
        rng = np.random.default_rng(34)
        xs, ys = rng.integers(0, 5, 9).astype(float), rng.normal(0, 1, 9)
        shuffled = rng.permutation(9)
        assert estimators.theil_sen([2.0, 1.0, 0.0], [0.0, 1.0, 2.0]) == -1.0
        there, back = (intervals.theil_sen_interval(xs[order], ys[order], 0.9) for order in (np.arange(9), shuffled))
        assert there == back

    def test_a_step_of_the_allocator_is_no_growth(self) -> None:
        xs = [8.0 * look for look in range(10)]
        ys = [1e6 + (4e6 if look >= 9 else 0.0) for look in range(10)]
        interval = intervals.theil_sen_interval(xs, ys, 0.95)
        assert (interval.low, interval.value) == (0.0, 0.0)

    def test_a_leak_under_noise_is_seen(self) -> None:
        rng = np.random.default_rng(32)
        xs = np.arange(12.0)
        launches = [(xs, 2e7 + 102_400 * xs + 4096 * rng.integers(0, 9, 12)) for _ in range(6)]
        interval = intervals.slope_interval(launches, 0.95)
        assert interval.value == pytest.approx(102_400, rel=0.03)
        assert 0 < interval.low < interval.value < interval.high
        assert interval.level == pytest.approx(1 - 2 / 2**6)
        alone = intervals.slope_interval(launches[:1], 0.95)
        assert alone == intervals.theil_sen_interval(*launches[0], 0.95)
        assert alone.low < 102_400 < alone.high

    def test_zero_variance(self) -> None:
        flat = ([1.0, 2.0, 3.0, 4.0], [5.0] * 4)
        for launches in ([flat], [flat] * 4):
            interval = intervals.slope_interval(launches, 0.95)
            assert (interval.low, interval.value, interval.high) == (0.0, 0.0, 0.0)
            assert not math.isnan(interval.level)

    def test_no_slope(self) -> None:
        with pytest.raises(ValueError, match="two points that differ"):
            estimators.theil_sen([1.0, 1.0], [1.0, 2.0])
        with pytest.raises(ValueError, match="2 xs and 1 ys"):
            estimators.theil_sen([1.0, 2.0], [1.0])
        with pytest.raises(ValueError, match="needed"):
            intervals.slope_interval([], 0.95)

    def test_covers_as_often_as_it_says_with_ties(self) -> None:
        rng = np.random.default_rng(33)
        xs = np.array([0.0, 0.0, 1.0, 1.0, 2.0, 3.0])
        tries = [intervals.theil_sen_interval(xs, 0.5 * xs + rng.gumbel(0, 1, 6), 0.9) for _ in range(1500)]
        hits = sum(interval.low <= 0.5 <= interval.high for interval in tries)
        level = tries[0].level
        assert level >= 0.9
        assert hits / len(tries) == pytest.approx(level, abs=3 * math.sqrt(level * (1 - level) / len(tries)))


class TestAmdahl:
    @pytest.mark.parametrize("serial", [0.0, 0.05, 0.5, 1.0])
    @pytest.mark.parametrize("workers", [2, 8, 64])
    def test_inverts_the_law(self, serial: float, workers: int) -> None:
        speed_up = 1 / (serial + (1 - serial) / workers)
        assert speedup.amdahl(speed_up, workers) == pytest.approx(serial, abs=1e-12)

    def test_better_than_perfect_and_worse_than_none(self) -> None:
        assert speedup.amdahl(2.2, 2) < 0
        assert speedup.amdahl(0.5, 2) == 3.0

    @pytest.mark.parametrize(("scaling", "workers"), [(1.0, 1), (0.0, 2), (-1.0, 2), (math.nan, 2)])
    def test_no_serial_fraction(self, scaling: float, workers: int) -> None:
        with pytest.raises(ValueError, match="no serial fraction"):
            speedup.amdahl(scaling, workers)


class TestEstimators:
    def test_log_interval(self) -> None:
        values = [10.0, 12.0, 9.0, 11.0]
        interval = intervals.log_interval(values, 0.95)
        low, high = t.interval(0.95, 3, np.mean(np.log(values)), np.std(np.log(values), ddof=1) / 2)
        assert interval.value == pytest.approx(math.prod(values) ** 0.25)
        assert (interval.low, interval.high, interval.level) == pytest.approx((math.exp(low), math.exp(high), 0.95))

    def test_log_interval_of_one_and_of_equals(self) -> None:
        one = intervals.log_interval([5.0])
        assert (one.value, one.low, one.high, one.level) == (5.0, 5.0, 5.0, 0.0)
        two = intervals.log_interval([4.0, 9.0])
        assert (two.low, two.value, two.high, two.level) == pytest.approx((4.0, 6.0, 9.0, 0.0))
        equal = intervals.log_interval([5.0, 5.0, 5.0])
        assert (equal.low, equal.high) == pytest.approx((5.0, 5.0))

    @pytest.mark.parametrize("values", [[], [1.0, 0.0], [1.0, -2.0], [math.inf, 1.0]])
    def test_log_interval_refuses(self, values: list[float]) -> None:
        with pytest.raises(ValueError, match="needed"):
            intervals.log_interval(values)

    def test_floor(self) -> None:
        iterations = [5.0, 1.0, 4.0, 2.0, 3.0]
        assert [estimators.quantile(iterations, q) for q in (0.0, 0.25, 0.5, 0.125)] == [1.0, 2.0, 3.0, 1.5]

    def test_no_iterations_have_no_quantile(self) -> None:
        with pytest.raises(ValueError, match="at least one"):
            estimators.quantile([], 0.9)

    def test_a_convoy_moves_the_tail_alone(self) -> None:
        other = [1.0] * 20
        own = [1.0] * 17 + [4.0] * 3
        assert (estimators.quantile(own, 0.9), estimators.quantile(other, 0.9)) == (4.0, 1.0)
        assert estimators.quantile(own, 0.25) == estimators.quantile(other, 0.25)

    def test_gini_deviation(self) -> None:
        rng = np.random.default_rng(13)
        assert estimators.gini_deviation(rng.normal(5, 0.3, 20000)) == pytest.approx(0.3, rel=0.03)
        assert estimators.gini_deviation([1.0, 4.0]) == pytest.approx(3 * math.sqrt(math.pi) / 2)
        assert estimators.gini_deviation([2.0]) == estimators.gini_deviation([0.1 + 0.2] * 5) == 0.0


class TestIterationsRatio:
    def test_paired_cancels_what_hits_both(self) -> None:
        rng = np.random.default_rng(11)
        weather = np.exp(rng.normal(0, 1, 9))
        assert estimators.iterations_ratio(3 * weather, 2 * weather) == pytest.approx(1.5)

    def test_paired_leaves_out_turns_without_a_partner(self) -> None:
        assert estimators.iterations_ratio([2.0, 4.0, 9.0], [1.0, 2.0]) == pytest.approx(2.0)

    def test_nothing_to_compare(self) -> None:
        with pytest.raises(ValueError, match="at least one value"):
            estimators.iterations_ratio([], [1.0])


class TestRows:
    """Each row is read as if it stood alone, without its NaNs."""

    ROWS = np.array([[3.0, 1.0, 2.0, 9.0], [5.0, math.nan, 4.0, math.nan], [math.nan] * 4, [7.0, 2.0, math.nan, 1.0]])

    @pytest.mark.parametrize("at", [0.0, 0.25, 0.5, 0.9])
    def test_quantiles(self, at: float) -> None:
        known = [row[~np.isnan(row)] for row in self.ROWS]
        wanted = [np.quantile(row, at) if len(row) else math.nan for row in known]
        assert estimators.row_quantiles(self.ROWS, at).tolist() == pytest.approx(wanted, nan_ok=True)
        assert [estimators.quantile(row, at) for row in known if len(row)] == pytest.approx(
            [value for value in wanted if not math.isnan(value)]
        )

    def test_medians(self) -> None:
        assert estimators.row_medians(self.ROWS).tolist() == pytest.approx([2.5, 4.5, math.nan, 2.0], nan_ok=True)
        assert np.isnan(estimators.row_medians(np.empty((2, 0)))).all()

    def test_shifts_of_iterations_in_which_both_sides_have_a_value(self) -> None:
        other = 2 * self.ROWS[[0, 0, 0, 3]][:, :3]
        wanted: list[tuple[float, float]] = []
        for own, beside in zip(self.ROWS[:, :3], other, strict=True):
            logs = [log for log in np.log(own) - np.log(beside) if not math.isnan(log)]
            means = [(a + b) / 2 for a, b in combinations_with_replacement(logs, 2)]
            apart = np.mean([abs(a - b) for a, b in combinations(logs, 2)] or [0.0])
            error = apart * math.sqrt(math.pi) / 2 / math.sqrt(len(logs) or 1)
            wanted += [(np.median(means), error)] if logs else [(math.nan, math.nan)]
        found = estimators.row_shifts(self.ROWS, other)
        for side, expected in zip(found, zip(*wanted, strict=True), strict=True):
            assert side.tolist() == pytest.approx(list(expected), nan_ok=True)


class TestTwoModes:
    def test_by_hand(self) -> None:
        assert estimators.two_modes([1.0, 5.0, 1.2, 5.2, 0.9, 5.1, 1.1, 5.3]) == pytest.approx((1.05, 5.15))

    @pytest.mark.parametrize(
        "values",
        [
            pytest.param([1.0, 5.0, 1.2, 5.2, 0.9, 5.1, 1.1], id="too few"),
            pytest.param([1.0, 1.1, 1.2, 0.9, 1.05, 1.15, 0.95, 9.0], id="one outlier is no mode"),
            pytest.param([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], id="spread evenly"),
            pytest.param([2.0] * 8, id="all alike"),
        ],
    )
    def test_none(self, values: list[float]) -> None:
        assert estimators.two_modes(values) is None

    def test_normal_values_seldom_look_so(self) -> None:
        rows = np.random.default_rng(92).normal(size=(1000, 10))
        assert sum(estimators.two_modes(row.tolist()) is not None for row in rows) <= 25
