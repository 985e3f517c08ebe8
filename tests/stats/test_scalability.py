"""The Universal Scalability Law fitted to ratios that follow it, that scatter, and that refute it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from pytest_ftgate.kit.values import Interval
from pytest_ftgate.stats import scalability
from pytest_ftgate.stats.scalability import Terms, terms


def law(workers: int, contention: float, coherency: float) -> float:
    return workers / (1 + contention * (workers - 1) + coherency * workers * (workers - 1))


def around(value: float, deviation: float = 0.01) -> Interval:
    """A ratio whose log has this deviation."""
    times = math.exp(1.96 * deviation)
    return Interval(value=value, low=value / times, high=value * times, level=0.95)


counts = st.lists(st.integers(2, 64), min_size=3, max_size=6, unique=True)


@given(counts, st.floats(0, 1), st.floats(0, 0.1))
def test_ratios_that_follow_the_law_give_its_terms(workers: list[int], contention: float, coherency: float) -> None:
    found = terms([(count, around(law(count, contention, coherency))) for count in workers])
    assert found is not None
    assert found.coherency is not None
    for count in range(1, 65):
        assert found.throughput(count) == pytest.approx(law(count, contention, coherency), rel=1e-4)
    for each in (found.contention, found.coherency):
        assert 0 <= each.low <= each.value <= each.high


@given(st.lists(st.tuples(st.floats(0.1, 1), st.floats(0.1, 1), st.floats(-2, 2)), min_size=3, max_size=5))
def test_the_least_squares_are_those_of_scipy(rows: list[tuple[float, float, float]]) -> None:
    columns, values = np.array([row[:2] for row in rows]).T, np.array([row[2] for row in rows])
    if np.linalg.cond(columns) < 1e3:
        found = scalability._least_squares(columns, np.array([values, -values]))
        for own, given_values in zip(found, (values, -values), strict=True):
            assert own == pytest.approx(nnls(columns.T, given_values)[0], abs=1e-6)


@pytest.mark.parametrize(("contention", "coherency"), [(0.05, 0.002), (0.02, 0.01), (0.2, 0.001)])
def test_the_intervals_hold_the_terms(contention: float, coherency: float) -> None:
    rng, held, deviation = random.Random(4), [0, 0], 0.03 / math.sqrt(2)
    for _ in range(200):
        alone = rng.gauss(0, deviation)  # all ratios are to the same launches with one worker
        ratios = [(n, law(n, contention, coherency) * math.exp(alone + rng.gauss(0, deviation))) for n in (2, 4, 8)]
        found = terms([(count, around(ratio, 0.03)) for count, ratio in ratios])
        if found is not None and found.coherency is not None:
            held[0] += found.contention.low <= contention <= found.contention.high
            held[1] += found.coherency.low <= coherency <= found.coherency.high
    assert min(held) > 178  # 95 % of 200, but for three of its deviations


def test_a_step_refutes_the_law() -> None:
    assert terms([(2, around(2.0)), (3, around(3.0)), (4, around(2.0)), (8, around(7.0))]) is None


@pytest.mark.parametrize(
    "points",
    [[], [(2, around(1.8)), (4, around(3.0))], [(2, around(1.8)), (2, around(1.7)), (4, around(3.0))]],
    ids=["none", "two", "one twice"],
)
def test_few_counts_give_none(points: Sequence[tuple[int, Interval]]) -> None:
    assert terms(points) is None


def test_a_ratio_without_an_interval_gives_none() -> None:
    alone = Interval(value=2.0, low=2.0, high=2.0, level=0.0)
    assert terms([(2, alone), (4, around(3.0)), (8, around(4.0))]) is None


@pytest.mark.parametrize("point", [(1, around(1.0)), (4, Interval(value=1.0, low=0.0, high=2.0, level=0.95))])
def test_what_is_no_ratio_of_several_workers_is_refused(point: tuple[int, Interval]) -> None:
    with pytest.raises(ValueError, match="no positive ratios of several workers"):
        terms([point])


def test_the_serial_fraction_alone_is_amdahls_law() -> None:
    assert Terms(contention=around(0.1)).throughput(8) == pytest.approx(1 / (0.1 + 0.9 / 8))
