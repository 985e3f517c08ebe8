"""The exact tests against SciPy, against enumeration, and against what a level promises."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, combinations_with_replacement, permutations, product

import numpy as np
import pytest
from scipy.stats import binomtest, kendalltau, mannwhitneyu, t, theilslopes, wilcoxon

from pytest_ftgate.model import Test
from pytest_ftgate.stats import rank_tests
from pytest_ftgate.stats.rank_tests import Alternative

SIDES: tuple[Alternative, Alternative] = ("greater", "less")


def enumerated_rank_sum(new: Sequence[float], reference: Sequence[float]) -> float:
    """P(as many wins or more) over every way to rank n + m values without ties."""
    wins = sum(a > b for a in new for b in reference)
    cases = every_number_of_wins(len(new), len(new) + len(reference))
    return sum(case >= wins for case in cases) / len(cases)


@cache
def every_number_of_wins(n: int, total: int) -> tuple[int, ...]:
    everyone = set(range(total))
    return tuple(sum(a > b for a in ranks for b in everyone - set(ranks)) for ranks in combinations(everyone, n))


class TestMannWhitney:
    @pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 5), (8, 12), (12, 8), (30, 25), (60, 60)])
    @pytest.mark.parametrize("side", SIDES)
    def test_agrees_with_scipy_without_ties(self, n: int, m: int, side: Alternative) -> None:
        rng = np.random.default_rng([n, m])
        for shift in (0.0, 0.4, -0.7):
            new, reference = rng.normal(size=n), rng.normal(size=m)
            expected = mannwhitneyu(new, reference + shift, alternative=side, method="exact").pvalue
            assert rank_tests.mann_whitney(new, reference, shift=shift, alternative=side) == pytest.approx(
                expected, rel=1e-12
            )

    @pytest.mark.parametrize(("n", "m"), [(1, 3), (2, 2), (3, 4), (4, 3)])
    def test_agrees_with_enumeration_and_ties_never_help(self, n: int, m: int) -> None:
        for values in product((0.0, 1.0, 2.0), repeat=n + m):
            new, reference = values[:n], values[n:]
            p = rank_tests.mann_whitney(new, reference)
            assert p == pytest.approx(enumerated_rank_sum(new, reference))
            assert rank_tests.mann_whitney([a + 0.02 for a in new], reference) <= p
            assert rank_tests.mann_whitney([a - 0.02 for a in new], reference) == p

    def test_far_tail_of_large_sides_is_exact(self) -> None:
        high, low = [float(i) for i in range(1000, 1200)], [float(i) for i in range(200)]
        p = rank_tests.mann_whitney(high, low)
        assert p == 1 / math.comb(400, 200) == rank_tests.smallest_p(200, 200) > 0
        assert rank_tests.mann_whitney(low, high) == 1.0

    def test_greater_and_less_mirror_each_other(self) -> None:
        rng = np.random.default_rng(5)
        for _ in range(50):
            new, reference = rng.integers(0, 5, 6).astype(float), rng.integers(0, 5, 9).astype(float)
            p = rank_tests.mann_whitney(new, reference, shift=0.5)
            assert p == rank_tests.mann_whitney(-new, -reference, shift=-0.5, alternative="less")
            assert p == rank_tests.mann_whitney(reference, new, shift=-0.5, alternative="less")

    def test_depends_on_order_alone(self) -> None:
        rng = np.random.default_rng(6)
        new, reference = rng.lognormal(0.3, 0.2, 8), rng.lognormal(0.0, 0.2, 12)
        p = rank_tests.mann_whitney(new, reference)
        for scale in (1e-9, 7.0, 1e12):
            assert rank_tests.mann_whitney(new * scale, reference * scale) == p
        assert rank_tests.mann_whitney(np.log(new), np.log(reference)) == p

    def test_zero_variance(self) -> None:
        same = [3.0] * 8
        assert rank_tests.mann_whitney(same, same) == 1.0
        assert rank_tests.mann_whitney(same, same, alternative="less") == 1.0
        assert rank_tests.mann_whitney(same, same, shift=0.05, alternative="less") == rank_tests.smallest_p(8, 8)

    def test_what_rounding_separates_is_a_tie(self) -> None:
        assert rank_tests.mann_whitney([0.1 + 0.2] * 5, [0.3] * 5) == 1.0
        assert rank_tests.mann_whitney([math.log(1.02)] * 5, [0.0] * 5, shift=math.log1p(0.02)) == 1.0

    def test_empty_and_not_finite(self) -> None:
        assert rank_tests.mann_whitney([], [1.0]) == rank_tests.mann_whitney([1.0], []) == 1.0
        with pytest.raises(ValueError, match="finite"):
            rank_tests.mann_whitney([math.nan], [1.0])

    @pytest.mark.parametrize("draw", ["normal", "tied", "constant"])
    def test_rejects_no_more_often_than_alpha(self, draw: str) -> None:
        rng = np.random.default_rng(7)
        make: dict[str, Callable[[int], Sequence[float]]] = {
            "normal": lambda size: rng.normal(size=size).tolist(),
            "tied": lambda size: rng.integers(0, 4, size).astype(float).tolist(),
            "constant": lambda size: [1.0] * size,
        }
        p = np.array([rank_tests.mann_whitney(make[draw](8), make[draw](12)) for _ in range(3000)])
        for alpha in (0.01, 0.05, 0.2):
            rejected = float((p <= alpha).mean())
            assert rejected <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / len(p))
            assert draw != "normal" or rejected > 0.6 * alpha


class TestReach:
    def test_smallest_p(self) -> None:
        assert rank_tests.smallest_p(8, 12) == 1 / 125970
        assert rank_tests.mann_whitney([2.0] * 8, [1.0] * 12) == pytest.approx(rank_tests.smallest_p(8, 12))

    @pytest.mark.parametrize(("n", "m", "alpha"), [(8, 12, 0.0025), (5, 5, 1 / 252), (20, 6, 0.05)])
    def test_critical_fraction(self, n: int, m: int, alpha: float) -> None:
        fraction = rank_tests.critical_fraction(n, m, alpha)
        assert fraction is not None
        tail = rank_tests._rank_sum_tail(*sorted((n, m)))
        assert tail[round(fraction * n * m)] <= alpha < tail[round(fraction * n * m) - 1]

    def test_critical_fraction_out_of_reach(self) -> None:
        assert rank_tests.critical_fraction(3, 3, 0.01) is None
        assert rank_tests.critical_fraction(0, 3, 0.01) is None


class TestSignedRank:
    @pytest.mark.parametrize("n", [1, 2, 6, 15, 40])
    @pytest.mark.parametrize("side", SIDES)
    def test_agrees_with_scipy_without_ties(self, n: int, side: Alternative) -> None:
        rng = np.random.default_rng(n)
        for shift in (0.0, 0.3):
            values = rng.normal(0.2, 1, n)
            expected = wilcoxon(values - shift, alternative=side, method="exact").pvalue
            assert rank_tests.signed_rank(values, shift=shift, alternative=side) == pytest.approx(expected, rel=1e-12)

    def test_ties_and_zeros_never_help(self) -> None:
        """The p-value is the largest over all ways to break what ties."""
        epsilon = (-1e-4, 1e-4)
        for values in product((-2.0, -1.0, 0.0, 1.0), repeat=4):
            p = rank_tests.signed_rank(values)
            broken = [
                rank_tests.signed_rank(
                    [value + e * (1 + i / 9) for i, (value, e) in enumerate(zip(values, noise, strict=True))]
                )
                for noise in product(epsilon, repeat=4)
            ]
            assert p == max(broken)

    def test_zero_variance(self) -> None:
        assert rank_tests.signed_rank([0.0] * 9) == rank_tests.signed_rank([]) == 1.0
        assert rank_tests.signed_rank([0.02] * 9, shift=0.02, alternative="less") == 1.0
        assert rank_tests.signed_rank([0.0] * 9, shift=0.05, alternative="less") == 2**-9

    def test_greater_and_less_mirror_each_other(self) -> None:
        rng = np.random.default_rng(8)
        for _ in range(50):
            values = rng.integers(-4, 5, 10).astype(float)
            p = rank_tests.signed_rank(values, shift=1.0)
            assert p == rank_tests.signed_rank(-values, shift=-1.0, alternative="less")

    def test_rejects_no_more_often_than_alpha(self) -> None:
        rng = np.random.default_rng(9)
        for tied in (False, True):
            p = np.array([rank_tests.signed_rank(np.round(rng.normal(size=10), 0 if tied else 9)) for _ in range(2000)])
            assert float((p <= 0.05).mean()) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / len(p))


def every_block_rank_sum(size: int, blocks: int) -> list[int]:
    """The wins of every way to order `blocks` blocks of `size` against `size` values without ties."""
    of_one = every_number_of_wins(size, 2 * size)
    return [sum(each) for each in product(of_one, repeat=blocks)]


class TestBlockRankSum:
    @pytest.mark.parametrize(("size", "blocks"), [(1, 1), (1, 6), (2, 1), (2, 4), (3, 2), (4, 1), (4, 2)])
    def test_the_null_distribution_is_the_enumerated_one(self, size: int, blocks: int) -> None:
        rng = np.random.default_rng([size, blocks])
        cases = every_block_rank_sum(size, blocks)
        for _ in range(30):
            new, reference = rng.normal(rng.normal(), 1, (2, size * blocks))
            wins = sum(
                int((new[at : at + size, None] > reference[None, at : at + size]).sum())
                for at in range(0, size * blocks, size)
            )
            expected = sum(case >= wins for case in cases) / len(cases)
            assert rank_tests.block_rank_sum(new, reference, size=size) == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("side", SIDES)
    def test_one_block_is_the_rank_sum(self, side: Alternative) -> None:
        rng = np.random.default_rng(11)
        for _ in range(50):
            new, reference = rng.normal(0.3, 1, 4), rng.normal(0, 1, 4)
            expected = mannwhitneyu(new, reference + 0.2, alternative=side, method="exact").pvalue
            p = rank_tests.block_rank_sum(new, reference, shift=0.2, alternative=side)
            assert p == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("side", SIDES)
    def test_blocks_of_one_are_the_sign_test(self, side: Alternative) -> None:
        rng = np.random.default_rng(12)
        new, reference = rng.normal(0.3, 1, (2, 17))
        supports = int((new > reference).sum() if side == "greater" else (new < reference).sum())
        expected = binomtest(supports, 17, alternative="greater").pvalue
        p = rank_tests.block_rank_sum(new, reference, size=1, alternative=side)
        assert p == pytest.approx(expected, rel=1e-12)

    def test_ties_never_help(self) -> None:
        for values in product((0.0, 1.0, 2.0), repeat=8):
            new, reference = values[:4], values[4:]
            cases = every_block_rank_sum(2, 2)
            wins = sum(new[i] > reference[j] for i in range(4) for j in range(4) if i // 2 == j // 2)
            p = rank_tests.block_rank_sum(new, reference, size=2)
            assert p == pytest.approx(sum(case >= wins for case in cases) / len(cases))
            assert rank_tests.block_rank_sum([a + 0.02 for a in new], reference, size=2) <= p

    def test_what_drifts_between_blocks_cancels(self) -> None:
        rng = np.random.default_rng(13)
        new, reference = rng.normal(0.5, 1, 16), rng.normal(0, 1, 16)
        drift = np.repeat([0.0, 100.0, -3.0, 1e4], 4)
        assert rank_tests.block_rank_sum(new + drift, reference + drift) == rank_tests.block_rank_sum(new, reference)

    def test_an_incomplete_block_is_left_out(self) -> None:
        new, reference = [1.0, 2.0, 3.0, 4.0, -9.0, -9.0], [0.0] * 6
        assert rank_tests.block_rank_sum(new, reference) == rank_tests.block_rank_sum(new[:4], reference[:4]) == 1 / 70
        assert rank_tests.block_rank_sum(new[:3], reference[:3]) == rank_tests.block_rank_sum([], []) == 1.0

    def test_greater_and_less_mirror_each_other(self) -> None:
        rng = np.random.default_rng(14)
        for _ in range(50):
            new, reference = rng.integers(0, 5, 9).astype(float), rng.integers(0, 5, 9).astype(float)
            p = rank_tests.block_rank_sum(new, reference, shift=0.5)
            assert p == rank_tests.block_rank_sum(-new, -reference, shift=-0.5, alternative="less")
            assert p == rank_tests.block_rank_sum(reference, new, shift=-0.5, alternative="less")

    def test_zero_variance_and_not_finite(self) -> None:
        same = [3.0] * 12
        assert rank_tests.block_rank_sum(same, same) == rank_tests.block_rank_sum(same, same, alternative="less") == 1.0
        assert rank_tests.block_rank_sum(same, same, shift=0.05, alternative="less") == rank_tests.least_p("blocks", 12)
        with pytest.raises(ValueError, match="finite"):
            rank_tests.block_rank_sum([math.nan] * 4, same)

    def test_rejects_no_more_often_than_alpha(self) -> None:
        rng = np.random.default_rng(15)
        drift = np.repeat(rng.normal(0, 5, (2000, 3)), 4, axis=1)
        new, reference = drift + rng.integers(0, 30, (2000, 12)), drift + rng.integers(0, 30, (2000, 12))
        rejected = sum(rank_tests.block_rank_sum(a, b) <= 0.05 for a, b in zip(new, reference, strict=True))
        assert 50 <= rejected <= 100 + 3 * math.sqrt(2000 * 0.05 * 0.95)


class TestBlockInterval:
    @pytest.mark.parametrize("level", [0.8, 0.95])
    def test_holds_what_the_test_does_not_reject(self, level: float) -> None:
        rng = np.random.default_rng(16)
        for rounds in (4, 8, 14):
            new, reference = rng.normal(0.5, 1, rounds), rng.normal(0, 1, rounds)
            interval = rank_tests.block_interval(new, reference, level)
            assert interval.low <= interval.value <= interval.high
            error, beyond = (1 - level) / 2, 1e-9
            for shift, rejects in ((interval.low, "greater"), (interval.high, "less")):
                step = -beyond if rejects == "greater" else beyond
                side: Alternative = "greater" if rejects == "greater" else "less"
                assert rank_tests.block_rank_sum(new, reference, shift=shift + step, alternative=side) <= error
                assert rank_tests.block_rank_sum(new, reference, shift=shift - step, alternative=side) > error
            assert interval.level >= level

    def test_is_the_median_within_blocks(self) -> None:
        rng = np.random.default_rng(17)
        new, reference = rng.normal(size=(2, 11))
        within = [new[i] - reference[j] for i in range(8) for j in range(8) if i // 4 == j // 4]
        assert rank_tests.block_interval(new, reference, 0.9).value == pytest.approx(np.median(within))

    def test_fewer_rounds_make_one_block(self) -> None:
        interval = rank_tests.block_interval([1.0, 2.0], [0.0, 0.0], 0.95)
        assert (interval.low, interval.value, interval.high) == (1.0, 1.5, 2.0)
        assert interval.level == pytest.approx(1 - 2 / 6)
        with pytest.raises(ValueError, match="both sides"):
            rank_tests.block_interval([], [1.0], 0.95)

    def test_bounds_have_errors_of_their_own(self) -> None:
        rng = np.random.default_rng(18)
        new, reference = rng.normal(0.5, 1, (2, 12))
        low, high, level = rank_tests.block_bounds(new, reference, 0.001, 0.2)
        strict, loose = rank_tests.block_interval(new, reference, 0.998), rank_tests.block_interval(new, reference, 0.6)
        assert (low, high) == (strict.low, loose.high)
        assert 1 - 0.201 <= level < 1

    def test_covers_as_often_as_it_says(self) -> None:
        rng = np.random.default_rng(19)
        drift = np.repeat(rng.normal(0, 3, (1500, 3)), 4, axis=1)
        new, reference = drift + rng.normal(0.7, 1, (1500, 12)), drift + rng.normal(0, 1, (1500, 12))
        found = [rank_tests.block_interval(a, b, 0.9) for a, b in zip(new, reference, strict=True)]
        missed = sum(not interval.low <= 0.7 <= interval.high for interval in found)
        expected = 1500 * (1 - found[0].level)
        assert abs(missed - expected) <= 4 * math.sqrt(expected)


class TestNullTail:
    @pytest.mark.parametrize("n", [0, 1, 3, 4, 7, 12, 40])
    def test_least_is_its_last(self, n: int) -> None:
        cases: tuple[tuple[Test, int], ...] = (("pairs", 0), ("blocks", 0), ("ranks", 5), ("ranks", 0))
        for test, m in cases:
            tail = rank_tests.null_tail(test, n, m)
            assert tail[0] == 1.0
            assert tail[-1] == pytest.approx(rank_tests.least_p(test, n, m), rel=1e-12)
            assert list(tail) == sorted(tail, reverse=True)

    def test_what_the_tests_give_at_best(self) -> None:
        high, low = [float(i) for i in range(20, 32)], [float(i) for i in range(12)]
        assert rank_tests.mann_whitney(high, low) == rank_tests.least_p("ranks", 12, 12)
        assert rank_tests.block_rank_sum(high, low) == rank_tests.least_p("blocks", 12)
        assert rank_tests.signed_rank(high) == rank_tests.least_p("pairs", 12) == 2**-12

    def test_attainable_is_the_largest_below(self) -> None:
        cases: tuple[tuple[Test, int, int], ...] = (("pairs", 9, 0), ("blocks", 9, 0), ("ranks", 6, 7))
        for test, n, m in cases:
            tail = rank_tests.null_tail(test, n, m)
            for level in (0.5, 0.04, 0.003, *tail):
                found = rank_tests.attainable(test, level, n, m)
                assert found == max((p for p in tail if p <= level), default=0.0)
        assert rank_tests.attainable("pairs", 0.01, 6) == 0.0

    @pytest.mark.parametrize("test", ["pairs", "blocks"])
    def test_critical_fraction(self, test: Test) -> None:
        tail = rank_tests.null_tail(test, 12)
        fraction = rank_tests.critical_fraction(12, 0, 0.01, test)
        assert fraction is not None
        wins = round(fraction * (len(tail) - 1))
        assert tail[wins] <= 0.01 < tail[wins - 1]
        assert rank_tests.critical_fraction(3, 0, 0.01, test) is None


class TestHodgesLehmann:
    def test_is_the_median_difference(self) -> None:
        assert rank_tests.hodges_lehmann([5.0, 7.0], [1.0, 2.0, 9.0]) == np.median([4, 3, -4, 6, 5, -2])
        with pytest.raises(ValueError, match="both sides"):
            rank_tests.hodges_lehmann([], [1.0])

    @pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.99])
    def test_interval_holds_what_the_test_does_not_reject(self, level: float) -> None:
        rng = np.random.default_rng(10)
        new, reference = rng.normal(1, 1, 7), rng.normal(0, 1, 9)
        interval = rank_tests.hodges_lehmann_interval(new, reference, level)
        error, step = (1 - level) / 2, 1e-6
        assert rank_tests.mann_whitney(new, reference, shift=interval.low - step) <= error
        assert rank_tests.mann_whitney(new, reference, shift=interval.low + step) > error
        assert rank_tests.mann_whitney(new, reference, shift=interval.high + step, alternative="less") <= error
        assert rank_tests.mann_whitney(new, reference, shift=interval.high - step, alternative="less") > error
        assert interval.low <= interval.value <= interval.high
        assert interval.level >= level

    def test_level_out_of_reach_gives_the_widest_and_says_so(self) -> None:
        interval = rank_tests.hodges_lehmann_interval([1.0, 2.0, 4.0], [0.0, 0.5], 0.99)
        assert (interval.low, interval.high) == (0.5, 4.0)
        assert interval.level == pytest.approx(1 - 2 / math.comb(5, 2))
        alone = rank_tests.hodges_lehmann_interval([3.0], [1.0], 0.95)
        assert (alone.value, alone.low, alone.high, alone.level) == (2.0, 2.0, 2.0, 0.0)

    def test_zero_variance(self) -> None:
        interval = rank_tests.hodges_lehmann_interval([2.0] * 8, [1.0] * 8, 0.95)
        assert (interval.low, interval.value, interval.high) == (1.0, 1.0, 1.0)

    def test_covers_as_often_as_it_says(self) -> None:
        rng = np.random.default_rng(11)
        hits, tries, level = 0, 1500, 0.0
        for _ in range(tries):
            interval = rank_tests.hodges_lehmann_interval(rng.gumbel(0.3, 1, 8), rng.gumbel(0, 1, 10), 0.9)
            hits, level = hits + (interval.low <= 0.3 <= interval.high), interval.level
        assert level >= 0.9
        assert hits / tries == pytest.approx(level, abs=3 * math.sqrt(level * (1 - level) / tries))

    def test_ratio_does_not_depend_on_the_unit(self) -> None:
        rng = np.random.default_rng(12)
        new, reference = np.log(rng.lognormal(0.1, 0.1, 6)), np.log(rng.lognormal(0, 0.1, 6))
        before = rank_tests.hodges_lehmann_interval(new, reference, 0.9)
        after = rank_tests.hodges_lehmann_interval(new + math.log(1e9), reference + math.log(1e9), 0.9)
        assert (after.value, after.low, after.high) == pytest.approx((before.value, before.low, before.high))


class TestLocation:
    def test_is_the_median_of_the_means_of_pairs(self) -> None:
        rng = np.random.default_rng(20)
        for n in (1, 2, 5, 12):
            values = rng.normal(3, 1, n)
            means = [(a + b) / 2 for a, b in combinations_with_replacement(values, 2)]
            assert rank_tests.location(values, 0.9).value == pytest.approx(np.median(means))

    @pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.99])
    def test_interval_holds_what_the_test_does_not_reject(self, level: float) -> None:
        values = np.random.default_rng(21).normal(1, 1, 11)
        interval = rank_tests.location(values, level)
        error, step = (1 - level) / 2, 1e-6
        assert rank_tests.signed_rank(values, shift=interval.low - step) <= error
        assert rank_tests.signed_rank(values, shift=interval.low + step) > error
        assert rank_tests.signed_rank(values, shift=interval.high + step, alternative="less") <= error
        assert rank_tests.signed_rank(values, shift=interval.high - step, alternative="less") > error
        assert interval.low <= interval.value <= interval.high
        assert interval.level >= level

    @pytest.mark.parametrize(("n", "level"), [(1, 0.0), (2, 0.5), (3, 0.75), (5, 0.9375)])
    def test_level_out_of_reach_gives_the_widest_and_says_so(self, n: int, level: float) -> None:
        values = [float(value) for value in range(1, n + 1)]
        interval = rank_tests.location(values, 0.95)
        assert (interval.low, interval.high, interval.level) == (1.0, float(n), level)

    def test_zero_variance(self) -> None:
        interval = rank_tests.location([0.1] * 8, 0.95)
        assert (interval.low, interval.value, interval.high) == (0.1, 0.1, 0.1)

    def test_nothing_and_not_finite(self) -> None:
        for values in ([], [1.0, math.nan]):
            with pytest.raises(ValueError, match="needed"):
                rank_tests.location(values, 0.95)

    def test_covers_as_often_as_it_says(self) -> None:
        rng = np.random.default_rng(22)
        tries = [rank_tests.location(rng.normal(0.3, 1, 9), 0.9) for _ in range(1500)]
        hits = sum(interval.low <= 0.3 <= interval.high for interval in tries)
        level = tries[0].level
        assert level >= 0.9
        assert hits / len(tries) == pytest.approx(level, abs=3 * math.sqrt(level * (1 - level) / len(tries)))


class TestLocationBounds:
    def test_bounds_have_errors_of_their_own(self) -> None:
        values = np.random.default_rng(24).normal(0.5, 1, 14)
        low, high, level = rank_tests.location_bounds(values, 0.001, 0.2)
        assert (low, high) == (rank_tests.location(values, 0.998).low, rank_tests.location(values, 0.6).high)
        assert 1 - 0.201 <= level < 1
        below, above = (rank_tests.signed_rank(values, shift=low + step) for step in (-1e-9, 1e-9))
        assert below <= 0.001 < above
        assert rank_tests.location_bounds([1.0], 0.001, 0.2) == (1.0, 1.0, 0.0)


class TestRatioInterval:
    def test_cancels_the_state_of_the_machine_per_launch_and_iteration(self) -> None:
        rng = np.random.default_rng(23)
        weather = [np.exp(rng.normal(0, 1, 7)) for _ in range(6)]
        interval = rank_tests.ratio_interval([(1.42 * iterations, iterations) for iterations in weather], 0.95)
        assert (interval.low, interval.value, interval.high) == pytest.approx((1.42, 1.42, 1.42))
        assert interval.level == pytest.approx(1 - 2 / 2**6)

    def test_a_launch_is_one_value_however_many_its_iterations(self) -> None:
        one, many = ([2.0], [1.0]), ([3.0] * 50, [1.0] * 50)
        interval = rank_tests.ratio_interval([one, many], 0.95)
        assert (interval.low, interval.high, interval.level) == pytest.approx((2.0, 3.0, 0.5))
        assert interval.value == pytest.approx(math.sqrt(6))

    def test_of_a_single_launch_its_turns_speak(self) -> None:
        interval = rank_tests.ratio_interval([([2.0, 3.0, 4.0, 9.0], [2.0, 2.0, 2.0])], 0.95)
        assert (interval.low, interval.high) == pytest.approx((1.0, 2.0))
        assert interval.level == 0.75

    def test_exchanging_the_sides_inverts_it(self) -> None:
        rng = np.random.default_rng(24)
        launches = [(rng.lognormal(0.3, 0.2, 5), rng.lognormal(0, 0.2, 5)) for _ in range(7)]
        there = rank_tests.ratio_interval(launches, 0.9)
        back = rank_tests.ratio_interval([(other, own) for own, other in launches], 0.9)
        assert (back.value, back.low, back.high) == pytest.approx((1 / there.value, 1 / there.high, 1 / there.low))

    def test_refuses_nothing_and_what_is_not_positive(self) -> None:
        with pytest.raises(ValueError, match="at least one value"):
            rank_tests.ratio_interval([], 0.9)
        with pytest.raises(ValueError, match="no iterations"):
            rank_tests.ratio_interval([([], [])], 0.9)
        with pytest.raises(ValueError, match="positive"):
            rank_tests.ratio_interval([([1.0], [0.0])], 0.9)

    def test_neighbours_stay_paired(self) -> None:
        nan = math.nan
        assert rank_tests.neighbours([1.0, nan, 3.0, 4.0], [5.0, 6.0, nan]) == ((1.0, 4.0), (5.0,))


def enumerated_pairs(sizes: Sequence[int]) -> list[float]:
    """P(at least u pairs of unlike groups ascend), over all orders of that many unlike values."""
    groups = [group for group, size in enumerate(sizes) for _ in range(size)]
    pairs = [(i, j) for i, j in combinations(range(len(groups)), 2) if groups[i] != groups[j]]
    counts = [sum(order[i] < order[j] for i, j in pairs) for order in permutations(range(len(groups)))]
    return [sum(count >= u for count in counts) / len(counts) for u in range(len(pairs) + 1)]


class TestTheilSen:
    @pytest.mark.parametrize("sizes", [(1,), (1, 1), (1, 1, 1, 1, 1), (1, 1, 2), (2, 2, 2), (1, 2, 3), (3, 3)])
    def test_the_null_distribution_is_the_enumerated_one(self, sizes: tuple[int, ...]) -> None:
        assert list(rank_tests._rank_sum_tail(*sizes)) == pytest.approx(enumerated_pairs(sizes))

    @pytest.mark.parametrize("n", [3, 5, 12, 25])
    def test_agrees_with_scipy(self, n: int) -> None:
        rng = np.random.default_rng([30, n])
        xs, ys = np.sort(rng.integers(0, 9, n)).astype(float), rng.normal(0, 1, n)
        xs[-1] += 1
        theirs = theilslopes(ys, xs, alpha=0.9)
        assert rank_tests.theil_sen(xs, ys) == pytest.approx(theirs.slope)
        ours = rank_tests.theil_sen_interval(xs, ys, 0.9)
        assert ours.value == pytest.approx(theirs.slope)
        if n == 25:  # SciPy's is the normal approximation: good enough here to be within a few ordered slopes
            slopes = np.sort(rank_tests._slopes(xs, ys))
            for bound, other in ((ours.low, theirs.low_slope), (ours.high, theirs.high_slope)):
                assert abs(int(np.searchsorted(slopes, bound)) - int(np.searchsorted(slopes, other))) <= 4

    @pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
    def test_interval_holds_what_kendalls_test_does_not_reject(self, level: float) -> None:
        rng = np.random.default_rng(31)
        xs, ys = np.arange(9.0), rng.normal(0, 1, 9).cumsum()
        interval = rank_tests.theil_sen_interval(xs, ys, level)
        step = 1e-6

        def p(slope: float, side: Alternative) -> float:
            return float(kendalltau(xs, ys - slope * xs, method="exact", alternative=side).pvalue)

        error = (1 - level) / 2
        assert p(interval.low - step, "greater") <= error < p(interval.low + step, "greater")
        assert p(interval.high + step, "less") <= error < p(interval.high - step, "less")
        assert interval.level >= level

    def test_the_order_of_the_points_does_not_matter(self) -> None:
        rng = np.random.default_rng(34)
        xs, ys = rng.integers(0, 5, 9).astype(float), rng.normal(0, 1, 9)
        shuffled = rng.permutation(9)
        assert rank_tests.theil_sen([2.0, 1.0, 0.0], [0.0, 1.0, 2.0]) == -1.0
        there, back = (rank_tests.theil_sen_interval(xs[order], ys[order], 0.9) for order in (np.arange(9), shuffled))
        assert there == back

    def test_a_step_of_the_allocator_is_no_growth(self) -> None:
        xs = [8.0 * look for look in range(10)]
        ys = [1e6 + (4e6 if look >= 9 else 0.0) for look in range(10)]
        interval = rank_tests.theil_sen_interval(xs, ys, 0.95)
        assert (interval.low, interval.value) == (0.0, 0.0)

    def test_a_leak_under_noise_is_seen(self) -> None:
        rng = np.random.default_rng(32)
        xs = np.arange(12.0)
        launches = [(xs, 2e7 + 102_400 * xs + 4096 * rng.integers(0, 9, 12)) for _ in range(6)]
        interval = rank_tests.slope_interval(launches, 0.95)
        assert interval.value == pytest.approx(102_400, rel=0.03)
        assert 0 < interval.low < interval.value < interval.high
        assert interval.level == pytest.approx(1 - 2 / 2**6)
        alone = rank_tests.slope_interval(launches[:1], 0.95)
        assert alone == rank_tests.theil_sen_interval(*launches[0], 0.95)
        assert alone.low < 102_400 < alone.high

    def test_zero_variance(self) -> None:
        flat = ([1.0, 2.0, 3.0, 4.0], [5.0] * 4)
        for launches in ([flat], [flat] * 4):
            interval = rank_tests.slope_interval(launches, 0.95)
            assert (interval.low, interval.value, interval.high) == (0.0, 0.0, 0.0)
            assert not math.isnan(interval.level)

    def test_no_slope(self) -> None:
        with pytest.raises(ValueError, match="two points that differ"):
            rank_tests.theil_sen([1.0, 1.0], [1.0, 2.0])
        with pytest.raises(ValueError, match="2 xs and 1 ys"):
            rank_tests.theil_sen([1.0, 2.0], [1.0])
        with pytest.raises(ValueError, match="needed"):
            rank_tests.slope_interval([], 0.95)

    def test_covers_as_often_as_it_says_with_ties(self) -> None:
        rng = np.random.default_rng(33)
        xs = np.array([0.0, 0.0, 1.0, 1.0, 2.0, 3.0])
        tries = [rank_tests.theil_sen_interval(xs, 0.5 * xs + rng.gumbel(0, 1, 6), 0.9) for _ in range(1500)]
        hits = sum(interval.low <= 0.5 <= interval.high for interval in tries)
        level = tries[0].level
        assert level >= 0.9
        assert hits / len(tries) == pytest.approx(level, abs=3 * math.sqrt(level * (1 - level) / len(tries)))


class TestAmdahl:
    @pytest.mark.parametrize("serial", [0.0, 0.05, 0.5, 1.0])
    @pytest.mark.parametrize("workers", [2, 8, 64])
    def test_inverts_the_law(self, serial: float, workers: int) -> None:
        speed_up = 1 / (serial + (1 - serial) / workers)
        assert rank_tests.amdahl(speed_up, workers) == pytest.approx(serial, abs=1e-12)

    def test_better_than_perfect_and_worse_than_none(self) -> None:
        assert rank_tests.amdahl(2.2, 2) < 0
        assert rank_tests.amdahl(0.5, 2) == 3.0

    @pytest.mark.parametrize(("scaling", "workers"), [(1.0, 1), (0.0, 2), (-1.0, 2), (math.nan, 2)])
    def test_no_serial_fraction(self, scaling: float, workers: int) -> None:
        with pytest.raises(ValueError, match="no serial fraction"):
            rank_tests.amdahl(scaling, workers)


class TestEstimators:
    def test_log_interval(self) -> None:
        values = [10.0, 12.0, 9.0, 11.0]
        interval = rank_tests.log_interval(values, 0.95)
        low, high = t.interval(0.95, 3, np.mean(np.log(values)), np.std(np.log(values), ddof=1) / 2)
        assert interval.value == pytest.approx(math.prod(values) ** 0.25)
        assert (interval.low, interval.high, interval.level) == pytest.approx((math.exp(low), math.exp(high), 0.95))

    def test_log_interval_of_one_and_of_equals(self) -> None:
        one = rank_tests.log_interval([5.0])
        assert (one.value, one.low, one.high, one.level) == (5.0, 5.0, 5.0, 0.0)
        equal = rank_tests.log_interval([5.0, 5.0, 5.0])
        assert (equal.low, equal.high) == pytest.approx((5.0, 5.0))

    @pytest.mark.parametrize("values", [[], [1.0, 0.0], [1.0, -2.0], [math.inf, 1.0]])
    def test_log_interval_refuses(self, values: list[float]) -> None:
        with pytest.raises(ValueError, match="needed"):
            rank_tests.log_interval(values)

    def test_floor(self) -> None:
        iterations = [5.0, 1.0, 4.0, 2.0, 3.0]
        assert [rank_tests.floor(iterations, q) for q in (0.0, 0.25, 0.5, 0.125)] == [1.0, 2.0, 3.0, 1.5]

    def test_tail(self) -> None:
        iterations = [float(iteration) for iteration in range(1, 12)]
        assert (rank_tests.tail(iterations), rank_tests.tail(iterations, 1.0), rank_tests.tail([3.0])) == (
            10.0,
            11.0,
            3.0,
        )
        with pytest.raises(ValueError, match="at least one"):
            rank_tests.tail([])

    def test_a_convoy_moves_the_tail_alone(self) -> None:
        other = [1.0] * 20
        own = [1.0] * 17 + [4.0] * 3
        assert (rank_tests.tail(own), rank_tests.tail(other)) == (4.0, 1.0)
        assert rank_tests.iterations_ratio(own, other, 0.25) == 1.0

    def test_gini_deviation(self) -> None:
        rng = np.random.default_rng(13)
        assert rank_tests.gini_deviation(rng.normal(5, 0.3, 20000)) == pytest.approx(0.3, rel=0.03)
        assert rank_tests.gini_deviation([1.0, 4.0]) == pytest.approx(3 * math.sqrt(math.pi) / 2)
        assert rank_tests.gini_deviation([2.0]) == rank_tests.gini_deviation([0.1 + 0.2] * 5) == 0.0

    def test_bonferroni(self) -> None:
        assert rank_tests.bonferroni(0.01, 20) == 0.0005
        assert rank_tests.bonferroni(0.01, 0) == 0.01


class TestIterationsRatio:
    def test_paired_cancels_what_hits_both(self) -> None:
        rng = np.random.default_rng(11)
        weather = np.exp(rng.normal(0, 1, 9))
        assert rank_tests.iterations_ratio(3 * weather, 2 * weather, rank_tests.PAIRED) == pytest.approx(1.5)

    def test_paired_leaves_out_turns_without_a_partner(self) -> None:
        assert rank_tests.iterations_ratio([2.0, 4.0, 9.0], [1.0, 2.0], rank_tests.PAIRED) == pytest.approx(2.0)

    def test_a_quantile_compares_floors(self) -> None:
        assert rank_tests.iterations_ratio([4.0, 8.0], [5.0, 2.0, 3.0], 0.0) == 2.0

    def test_nothing_to_compare(self) -> None:
        with pytest.raises(ValueError, match="no iterations"):
            rank_tests.iterations_ratio([], [1.0], rank_tests.PAIRED)


class TestBlindEstimator:
    def test_disturbed_upwards_apart_takes_a_low_quantile(self) -> None:
        rng = np.random.default_rng(14)
        launches = [tuple(10 * np.exp(rng.exponential(0.5, (2, 40)))) for _ in range(30)]
        found = rank_tests.blind_estimator(launches)
        assert found is not None
        assert found < 0.25

    def test_disturbed_together_takes_pairs(self) -> None:
        rng = np.random.default_rng(15)
        weather = [np.exp(rng.normal(0, 0.5, 40)) for _ in range(30)]
        launches = [(iterations, 3 * iterations * np.exp(rng.normal(0, 0.01, 40))) for iterations in weather]
        assert rank_tests.blind_estimator(launches) is rank_tests.PAIRED

    def test_ties_go_to_the_earlier(self) -> None:
        still = [([2.0] * 8, [1.0] * 8)] * 4
        assert rank_tests.blind_estimator(still) is rank_tests.PAIRED
        assert rank_tests.blind_estimator(still, candidates=(0.1, 0.0)) == 0.1

    def test_too_little_takes_pairs(self) -> None:
        assert rank_tests.blind_estimator([]) is rank_tests.PAIRED
        assert rank_tests.blind_estimator([([1.0, 2.0, 3.0, 9.0], [1.0] * 4)] * 2) is rank_tests.PAIRED
        assert rank_tests.blind_estimator([([1.0, 2.0, 3.0], [1.0] * 3)] * 9) is rank_tests.PAIRED

    def test_does_not_depend_on_the_unit(self) -> None:
        rng = np.random.default_rng(16)
        launches = [(rng.lognormal(0, 0.3, 12), rng.lognormal(0, 0.1, 12)) for _ in range(8)]
        scaled = [(own * 1e9, other * 1e3) for own, other in launches]
        assert rank_tests.blind_estimator(launches) == rank_tests.blind_estimator(scaled)

    def test_exchanging_the_sides_of_any_pair_changes_nothing(self) -> None:
        """The choice says nothing of the signs of the pairs' differences: the signed rank stays exact."""
        rng, chosen = np.random.default_rng(71), set()
        for _ in range(25):
            common = rng.lognormal(0, rng.choice([0.0, 0.3]), (8, 1, 12))
            apart = rng.lognormal(0, rng.choice([0.01, 0.1]), (8, 2, 12))
            convoys = 1 + (rng.random((8, 2, 12)) < rng.choice([0.0, 0.3])) * rng.exponential(1, (8, 2, 12))
            pairs = common * apart * convoys
            estimator = rank_tests.blind_estimator([(new, reference) for new, reference in pairs])
            flipped = [pair[::-1] if flip else pair for pair, flip in zip(pairs, rng.random(8) < 0.5, strict=True)]
            assert rank_tests.blind_estimator([(new, reference) for new, reference in flipped]) == estimator
            for factor in (1.07, 0.5, 1e6):
                slower = [(factor * new, reference) for new, reference in flipped]
                assert rank_tests.blind_estimator(slower) == estimator
            chosen.add(estimator)
        assert len(chosen) >= 3
