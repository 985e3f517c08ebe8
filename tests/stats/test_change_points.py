"""Change points: steps of known place and size, and series without one."""

from __future__ import annotations

import random

import pytest

from pytest_ftgate.stats.change_points import LONGEST, change_points


def noisy(*levels: tuple[int, float], deviation: float = 0.01, seed: int = 1) -> list[float]:
    """So many values of each level, with noise."""
    rng = random.Random(seed)
    return [level + rng.gauss(0.0, deviation) for count, level in levels for _ in range(count)]


@pytest.mark.parametrize(
    ("levels", "found"),
    [
        pytest.param([(9, 1.0), (7, 1.2)], (9,), id="a step"),
        pytest.param([(12, 1.0), (12, 1.2), (12, 1.0)], (12, 24), id="and its return"),
        pytest.param([(15, 1.0), (15, 1.1), (15, 2.0)], (15, 30), id="of unlike size"),
    ],
)
def test_steps_are_found_where_they_are(levels: list[tuple[int, float]], found: tuple[int, ...]) -> None:
    assert change_points(noisy(*levels)) == found


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [1.0, 1.0, 2.0, 2.0], [1.0] * 30])
def test_nothing_is_found_in_what_is_short_or_constant(values: list[float]) -> None:
    assert change_points(values) == ()


def test_one_outlier_is_no_change() -> None:
    values = noisy((20, 1.0))
    values[10] = 5.0
    assert change_points(values) == ()


def test_the_same_seed_finds_the_same() -> None:
    values = noisy((10, 1.0), (10, 1.015), deviation=0.01, seed=4)
    assert change_points(values, seed=3) == change_points(values, seed=3)


def test_of_a_long_series_the_end_is_searched() -> None:
    values = noisy((60, 5.0), (LONGEST - 40, 1.0), (40, 1.2))
    assert change_points(values) == (60 + LONGEST - 40,)


def test_few_unchanged_series_have_a_change() -> None:
    """The level is 1 %: more than six of 100 would come about in less than one of a thousand such tests."""
    found = sum(bool(change_points(noisy((16, 1.0), seed=seed), seed=seed)) for seed in range(100))
    assert found <= 6


def test_the_energy_distance_is_that_of_the_paper() -> None:
    """Against the double sums of its equations 5 and 6, written out."""
    from pytest_ftgate.stats import change_points as module

    values = noisy((6, 1.0), (5, 1.05), deviation=0.05)
    import numpy as np

    def distance(left: list[float], right: list[float]) -> float:
        n, m = len(left), len(right)
        between = 2 / (n * m) * sum(abs(x - y) for x in left for y in right)
        within = [
            2 / (len(part) * (len(part) - 1)) * sum(abs(part[i] - part[j]) for i in range(len(part)) for j in range(i))
            for part in (left, right)
        ]
        return (between - sum(within)) * n * m / (n + m)

    every = {
        (at, end): distance(values[:at], values[at:end])
        for at in range(3, len(values) - 2)
        for end in range(at + 3, len(values) + 1)
    }
    apart, at = module._best(np.asarray(values))
    assert apart == pytest.approx(max(every.values()))
    assert at == max(every, key=lambda place: every[place])[0]
