"""How the tests of a run are split: by what they cost, each into one part, whatever their order."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pytest_ftgate.features.shards.part import split

COSTS = st.dictionaries(st.text(max_size=4), st.floats(0, 1e6), max_size=30)


@given(COSTS, st.integers(1, 12), st.randoms(use_true_random=False))
def test_each_test_has_one_part_and_order_does_not_matter(costs: dict[str, float], parts: int, random: Random) -> None:
    of = dict(zip(costs, split(costs, parts), strict=True))
    assert of.keys() == costs.keys()
    assert set(of.values()) <= set(range(1, parts + 1))
    names = list(costs)
    random.shuffle(names)
    shuffled = {name: costs[name] for name in names}
    assert dict(zip(shuffled, split(shuffled, parts), strict=True)) == of


@given(st.integers(0, 40), st.integers(1, 12))
def test_tests_of_the_same_cost_are_spread_evenly(tests: int, parts: int) -> None:
    sizes = Counter(split({str(number): 1.0 for number in range(tests)}, parts))
    assert max(sizes.values(), default=0) - min((sizes[part] for part in range(1, parts + 1)), default=0) <= 1


@given(COSTS, st.integers(1, 12))
def test_no_part_has_much_more_than_the_least_possible(costs: dict[str, float], parts: int) -> None:
    """Graham's bound: 4/3 of the optimum, which is at most twice the greater of these lower bounds of it."""
    loads = dict.fromkeys(range(1, parts + 1), 0.0)
    for part, cost in zip(split(costs, parts), costs.values(), strict=True):
        loads[part] += cost
    least = max(sum(costs.values()) / parts, max(costs.values(), default=0.0))
    assert max(loads.values()) <= 2 * least * (1 + 1e-9)
