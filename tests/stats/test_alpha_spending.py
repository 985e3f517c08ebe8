"""Looks and their levels: what they spend together, by integration and by simulation."""

from __future__ import annotations

import math
from functools import cache
from itertools import accumulate

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal, norm

from pytest_ftgate.stats import alpha_spending
from pytest_ftgate.stats.alpha_spending import ALPHA_WEIGHTS, BETA, BETA_WEIGHTS, LOOKS

ROWS = 400_000


@cache
def sums() -> NDArray[np.float64]:
    """Sums of standard normal scores, standardised, at the counts of LOOKS: a Brownian motion."""
    steps = np.diff((0, *LOOKS))
    walks = np.random.default_rng(91).standard_normal((ROWS, len(LOOKS)), dtype=np.float32) * np.sqrt(steps)
    return np.asarray(walks.cumsum(axis=1) / np.sqrt(LOOKS), dtype=np.float64)


def crossed(levels: list[float]) -> float:
    """The share of the walks that exceed the limit of any of the first looks."""
    limits = norm.isf(levels)
    return float((sums()[:, : len(levels)] > limits).any(axis=1).mean())


def error_of(probability: float, deviations: float = 3) -> float:
    return deviations * math.sqrt(probability * (1 - probability) / ROWS)


class TestPlan:
    @pytest.mark.parametrize("total", [0.01, 0.01 / 8, 0.04])
    def test_the_joint_error_is_what_is_asked_for(self, total: float) -> None:
        looks = alpha_spending.planned_looks(total, total, at_most=LOOKS[-1])
        assert tuple(look.launches for look in looks) == LOOKS
        assert crossed([look.alpha for look in looks]) == pytest.approx(total, abs=error_of(total))
        assert crossed([look.beta for look in looks]) == pytest.approx(total, abs=error_of(total))

    def test_each_look_spends_its_share(self) -> None:
        looks = alpha_spending.planned_looks(0.04, 0.04, at_most=LOOKS[-1])
        for end in range(1, len(LOOKS) + 1):
            for weights, levels in (
                (ALPHA_WEIGHTS, [look.alpha for look in looks]),
                (BETA_WEIGHTS, [look.beta for look in looks]),
            ):
                share = 0.04 * sum(weights[:end])
                assert crossed(levels[:end]) == pytest.approx(share, abs=error_of(share, 4) + 1e-9)

    def test_two_looks_by_the_bivariate_normal(self) -> None:
        first, second = alpha_spending.planned_looks(0.01, BETA, at_most=3)
        covariance = [[1.0, math.sqrt(2 / 3)], [math.sqrt(2 / 3), 1.0]]
        within = multivariate_normal(cov=covariance).cdf([norm.isf(first.alpha), norm.isf(second.alpha)])
        assert first.alpha == pytest.approx(0.01 * ALPHA_WEIGHTS[0], rel=1e-6)
        assert 1 - within == pytest.approx(0.01, rel=1e-3)

    def test_joint_levels_exceed_those_of_bonferroni(self) -> None:
        """A look that follows others may use part of their errors again: they mostly coincide."""
        looks = alpha_spending.planned_looks(0.00125, BETA, at_most=LOOKS[-1])
        shares = [0.00125 * weight for weight in ALPHA_WEIGHTS]
        assert all(look.alpha >= share * (1 - 1e-6) for look, share in zip(looks, shares, strict=True))
        assert looks[-1].alpha > 1.5 * shares[-1]

    def test_nothing_passes_after_two_pairs(self) -> None:
        for alpha in (0.01, 1e-4):
            first = alpha_spending.planned_looks(alpha, BETA, at_most=80)[0]
            assert (first.launches, first.beta) == (2, 0.0)
            assert 0 < first.alpha < alpha

    @pytest.mark.parametrize("at_most", [3, 5, 7, 8, 21, 40, 79, 80])
    def test_the_levels_of_earlier_looks_do_not_depend_on_the_most(self, at_most: int) -> None:
        """Otherwise an end of time that is not planned would spend more than there is."""
        whole = alpha_spending.planned_looks(0.002, BETA, at_most=200)
        looks = alpha_spending.planned_looks(0.002, BETA, at_most=at_most)
        assert looks[:-1] == tuple(look for look in whole if look.launches < at_most)
        assert looks[-1].launches == at_most

    @pytest.mark.parametrize("at_most", [2, 3, 5, 13, 40])
    def test_the_last_look_spends_what_is_left(self, at_most: int) -> None:
        looks = alpha_spending.planned_looks(0.01, BETA, at_most=at_most)
        assert crossed([look.alpha for look in looks]) == pytest.approx(0.01, abs=error_of(0.01))
        assert crossed([look.beta for look in looks]) == pytest.approx(BETA, abs=error_of(BETA))
        assert alpha_spending.last_look(0.01, BETA, at_most) == looks[-1]

    def test_one_pair_may_use_all(self) -> None:
        (look,) = alpha_spending.planned_looks(0.01, BETA, at_most=1)
        assert look.launches == 1
        assert (look.alpha, look.beta) == pytest.approx((0.01, BETA))

    def test_after_the_last_planned_look_nothing_is_left(self) -> None:
        look = alpha_spending.last_look(0.01, BETA, 2 * LOOKS[-1])
        assert (look.alpha, look.beta) == (0.0, 0.0)

    @pytest.mark.parametrize("alpha", [0.05, 0.01, 1e-3, 1e-5, 1e-7])
    def test_every_look_may_find_something(self, alpha: float) -> None:
        looks = alpha_spending.planned_looks(alpha, BETA, at_most=80)
        assert all(0 < look.alpha < alpha for look in looks)
        assert all(0 < look.beta < BETA for look in looks[1:])

    def test_a_smaller_error_has_smaller_levels(self) -> None:
        loose, strict = (alpha_spending.planned_looks(alpha, alpha, at_most=80) for alpha in (0.01, 0.001))
        for one, other in zip(loose, strict, strict=True):
            assert other.alpha < one.alpha
            assert other.beta <= one.beta

    @pytest.mark.parametrize("at_most", [0, -1])
    def test_nothing_to_look_at(self, at_most: int) -> None:
        for refused in (
            lambda: alpha_spending.planned_looks(0.01, 0.05, at_most=at_most),
            lambda: alpha_spending.last_look(0.01, 0.05, at_most),
        ):
            with pytest.raises(ValueError, match=f"no analysis of {at_most} pairs"):
                refused()

    def test_one_round_of_a_contract_may_pass_and_two_may_break(self) -> None:
        first, second = alpha_spending.planned_looks(0.001, BETA, at_most=80, schedule=alpha_spending.ROUNDS)[:2]
        assert (first.launches, first.alpha, second.launches) == (1, 0.0, 2)
        assert first.beta == pytest.approx(BETA / 4, rel=1e-3)
        assert second.alpha == pytest.approx(0.0005, rel=1e-3)

    @pytest.mark.parametrize("schedule", [alpha_spending.PAIRS, alpha_spending.ROUNDS])
    def test_the_weights_are_whole(self, schedule: alpha_spending.Schedule) -> None:
        assert list(schedule.looks) == sorted(set(schedule.looks))
        for weights in (schedule.alpha, schedule.beta):
            assert len(weights) == len(schedule.looks)
            assert min(weights) >= 0
            assert max(accumulate(weights)) == pytest.approx(1)
