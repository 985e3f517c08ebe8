"""Looks and their levels: what they spend, what they can reach, and what they promise on simulated pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_ftgate.model import Look, Test
from pytest_ftgate.stats import alpha_spending, rank_tests

TESTS: tuple[Test, ...] = get_args(Test)
ROUNDING = 1 + 1e-12


class TestSpend:
    @pytest.mark.parametrize("test", TESTS)
    @pytest.mark.parametrize("hypotheses", [1, 2, 8, 20, 60, 500, 10_000])
    def test_levels_never_exceed_the_whole(self, test: Test, hypotheses: int) -> None:
        alpha = 0.01 / hypotheses
        for at_most in (*range(1, 14), 20, 33, 40, 64, 80, 81, 100, 150):
            for beta in (0.05, alpha_spending.BETA, 0.05 / hypotheses):
                looks = alpha_spending.spend(alpha, beta, test, at_most=at_most, reference=20)
                assert sum(look.alpha for look in looks) <= alpha * ROUNDING
                assert sum(look.beta for look in looks) <= beta * ROUNDING
                counts = [look.launches for look in looks]
                assert counts == sorted(set(counts))
                assert counts[-1] <= at_most

    @pytest.mark.parametrize("test", TESTS)
    def test_a_level_is_one_that_the_test_can_reach(self, test: Test) -> None:
        for look in alpha_spending.spend(0.01 / 60, 0.04, test, at_most=80, reference=20):
            for level in (look.alpha, look.beta):
                assert level == 0 or level >= rank_tests.least_p(test, look.launches, 20)
                assert level == rank_tests.attainable(test, level, look.launches, 20)

    @pytest.mark.parametrize("test", TESTS)
    @pytest.mark.parametrize("hypotheses", [1, 8, 60, 500])
    def test_nearly_nothing_is_left_over(self, test: Test, hypotheses: int) -> None:
        alpha = 0.01 / hypotheses
        looks = alpha_spending.spend(alpha, 0.04, test, at_most=80, reference=20)
        assert sum(look.alpha for look in looks) >= 0.95 * alpha
        assert sum(look.beta for look in looks) >= 0.95 * 0.04

    def test_six_pairs_may_pass_and_sixteen_may_fail(self) -> None:
        looks = alpha_spending.spend(0.01 / 60, alpha_spending.BETA, "pairs", at_most=80)
        assert looks[0] == Look(launches=6, alpha=0.0, beta=1 / 64)
        assert next(look.launches for look in looks if look.alpha) == 16
        few = alpha_spending.spend(0.01 / 8, alpha_spending.BETA, "pairs", at_most=80)
        assert next(look.launches for look in few if look.alpha) == 13

    def test_what_a_look_cannot_reach_goes_to_the_next(self) -> None:
        looks = {look.launches: look for look in alpha_spending.spend(1e-5, 0.001, "pairs", at_most=20)}
        assert min(look.launches for look in looks.values()) == 13
        assert looks[13].beta > 0.05 * 0.001
        assert looks[20].alpha > 0.9e-5

    def test_the_last_look_is_at_the_most(self) -> None:
        for at_most in (5, 7, 40, 45, 100):
            assert alpha_spending.spend(0.01, 0.04, "pairs", at_most=at_most)[-1].launches == at_most
        assert [look.launches for look in alpha_spending.spend(0.01, 0.04, "pairs", at_most=3)] == [3]

    def test_blocks_are_looked_at_whole(self) -> None:
        for at_most in range(4, 90):
            looks = alpha_spending.spend(0.001, 0.04, "blocks", at_most=at_most)
            assert all(look.launches % rank_tests.BLOCK == 0 for look in looks)
            assert looks[-1].launches == at_most - at_most % rank_tests.BLOCK

    def test_nothing_to_look_at(self) -> None:
        with pytest.raises(ValueError, match="no analysis of 0 launches"):
            alpha_spending.spend(0.01, 0.05, "pairs", at_most=0)

    def test_the_weights_are_whole(self) -> None:
        for weights in (alpha_spending.ALPHA_WEIGHTS, alpha_spending.BETA_WEIGHTS):
            assert len(weights) == len(alpha_spending.LOOKS)
            assert sum(weights) == pytest.approx(1)
            assert min(weights) >= 0


@cache
def tail_of(pairs: int) -> NDArray[np.float64]:
    return np.asarray(rank_tests.null_tail("pairs", pairs))


def p_values(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """`signed_rank` of each row, which has no ties."""
    ranks = np.argsort(np.argsort(np.abs(differences), axis=1), axis=1) + 1
    found: NDArray[np.float64] = tail_of(differences.shape[1])[(ranks * (differences > 0)).sum(axis=1)]
    return found


def walk(logs: NDArray[np.float64], hypotheses: int) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """What becomes of rows of pair log-ratios at a margin of 2 % and an effect of 5 %, and after how many pairs."""
    alpha, margin, effect = 0.01 / hypotheses, math.log(1.02), math.log(1.05)
    decisions, pairs = np.full(len(logs), "undecided"), np.full(len(logs), logs.shape[1])
    for look in alpha_spending.spend(alpha, alpha_spending.BETA, "pairs", at_most=logs.shape[1]):
        seen, live = logs[:, : look.launches], decisions == "undecided"
        fails = live & (p_values(seen - margin) <= look.alpha)
        passes = live & ~fails & (p_values(effect - seen) <= look.beta)
        decisions[fails], decisions[passes] = "failed", "passed"
        pairs[fails | passes] = look.launches
    return decisions, pairs


def heavy(rng: np.random.Generator, rows: int, deviation: float) -> NDArray[np.float64]:
    """Pair log-ratios, every tenth of which scatters three times as far as the others."""
    scale = np.where(rng.random((rows, 80)) < 0.1, 3.0, 1.0) * deviation / math.sqrt(0.9 + 0.1 * 9)
    return np.asarray(scale * rng.normal(size=(rows, 80)), dtype=np.float64)


def normal(rng: np.random.Generator, rows: int, deviation: float) -> NDArray[np.float64]:
    return np.asarray(rng.normal(0, deviation, (rows, 80)), dtype=np.float64)


@pytest.mark.parametrize("noise", [heavy, normal])
@pytest.mark.parametrize(("deviation", "median"), [(0.02, 6), (0.03, 6), (0.04, 10)])
class TestPromises:
    """2000 rows each: the share that is asked for less three standard errors."""

    Noise = Callable[[np.random.Generator, int, float], NDArray[np.float64]]

    def test_unchanged_passes_soon(self, noise: Noise, deviation: float, median: int) -> None:
        decisions, pairs = walk(noise(np.random.default_rng(61), 2000, deviation), 60)
        assert (decisions == "failed").sum() == 0
        assert (decisions == "passed").mean() >= 0.99
        assert np.median(pairs) <= median

    def test_at_the_margin_it_hardly_ever_fails(self, noise: Noise, deviation: float, median: int) -> None:
        del median
        decisions, _ = walk(math.log(1.02) + noise(np.random.default_rng(62), 2000, deviation), 1)
        assert (decisions == "failed").mean() <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / 2000)

    def test_five_percent_is_hardly_ever_missed(self, noise: Noise, deviation: float, median: int) -> None:
        del median
        decisions, _ = walk(math.log(1.05) + noise(np.random.default_rng(63), 2000, deviation), 60)
        assert (decisions == "failed").mean() >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 2000)
        assert (decisions == "passed").mean() <= alpha_spending.BETA

    def test_ten_percent_is_found(self, noise: Noise, deviation: float, median: int) -> None:
        del median
        decisions, pairs = walk(math.log(1.10) + noise(np.random.default_rng(64), 2000, deviation), 60)
        assert (decisions == "failed").mean() >= 0.999
        assert np.median(pairs) <= 20
