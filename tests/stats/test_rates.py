"""The bounds of a rate, against the binomial distribution that defines them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from pytest_ftgate.stats.rates import clopper_pearson


@given(st.data(), st.integers(1, 100_000), st.sampled_from([0.9, 0.95, 0.99]))
def test_an_end_makes_what_was_seen_as_improbable_as_the_level_says(
    data: st.DataObject, trials: int, level: float
) -> None:
    failures = data.draw(st.integers(0, trials))
    found = clopper_pearson(failures, trials, level)
    assert found.low <= found.value <= found.high
    missed = 1 - level if failures in (0, trials) else (1 - level) / 2
    if failures:
        assert binom.sf(failures - 1, trials, found.low) == pytest.approx(missed, rel=1e-6)
    if failures < trials:
        assert binom.cdf(failures, trials, found.high) == pytest.approx(missed, rel=1e-6)


def test_without_a_failure_it_is_the_rule_of_three() -> None:
    found = clopper_pearson(0, 40_900)
    assert (found.value, found.low) == (0, 0)
    assert found.high * 40_900 == pytest.approx(3, rel=0.002)


@pytest.mark.parametrize(("failures", "trials"), [(0, 0), (-1, 5), (6, 5)])
def test_what_cannot_be_counted_is_refused(failures: int, trials: int) -> None:
    with pytest.raises(ValueError, match=f"{failures} failures in {trials} trials"):
        clopper_pearson(failures, trials)
