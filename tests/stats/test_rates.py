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
    missed = (1 - level) / 2
    if failures:
        assert binom.sf(failures - 1, trials, found.low) == pytest.approx(missed, rel=1e-6)
    if failures < trials:
        assert binom.cdf(failures, trials, found.high) == pytest.approx(missed, rel=1e-6)


@pytest.mark.parametrize("rate", [0.5, 0.06, 0.02, 0.003])
def test_a_rate_is_missed_by_at_most_half_on_either_side(rate: float) -> None:
    """Whatever is seen: with 58 trials at 5 %, a bound of one side without a failure would miss 5 % above alone."""
    trials = 58
    found = [clopper_pearson(failures, trials) for failures in range(trials + 1)]
    chances = [binom.pmf(failures, trials, rate) for failures in range(trials + 1)]
    assert sum(chance for each, chance in zip(found, chances, strict=True) if each.high < rate) <= 0.025
    assert sum(chance for each, chance in zip(found, chances, strict=True) if each.low > rate) <= 0.025


@pytest.mark.parametrize(("failures", "trials"), [(0, 0), (-1, 5), (6, 5)])
def test_what_cannot_be_counted_is_refused(failures: int, trials: int) -> None:
    with pytest.raises(ValueError, match=f"{failures} failures in {trials} trials"):
        clopper_pearson(failures, trials)
