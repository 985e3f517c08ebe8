"""Verdicts on scripted launches, at their boundaries, and on seeded noise."""

from __future__ import annotations

import math
import re

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_ftgate.judge import decide, evidence, power
from pytest_ftgate.model import Comparison, Decision, Interval, Look, Metric, MetricVerdict, Test
from pytest_ftgate.stats import alpha_spending, rank_tests

PAGES = 64 * 4096.0
STORED = (0.98, 1.01, 1.0, 0.99, 1.02, 1.0, 1.01, 0.985, 1.005, 0.995, 1.015, 0.99)


def wall(
    new: tuple[float, ...],
    reference: tuple[float, ...] = STORED,
    *,
    margin: float = 0.02,
    effect: float = 0.05,
    alpha: float = 0.01 / 20,
    beta: float = 0.05 / 20,
) -> Comparison:
    return Comparison(
        metric=Metric.WALL,
        new=new,
        reference=reference,
        unit="x control",
        margin=margin,
        effect=effect,
        alpha=alpha,
        beta=beta,
    )


def uss(new: tuple[float, ...], reference: tuple[float, ...]) -> Comparison:
    return Comparison(
        metric=Metric.USS, new=new, reference=reference, unit="B", margin=0.02, effect=0.10, floor=PAGES, alpha=0.0005
    )


def scaling(new: tuple[float, ...], reference: tuple[float, ...] = STORED) -> Comparison:
    return Comparison(
        metric=Metric.SCALING, new=new, reference=reference, unit="x", margin=0.02, effect=0.05, alpha=5e-4, beta=0.0025
    )


def share(new: tuple[float, ...], reference: tuple[float, ...], *, beta: float = 0.0025) -> Comparison:
    return Comparison(
        metric=Metric.LOCK_WAIT,
        new=new,
        reference=reference,
        unit="of the workers' time",
        margin=0.25,
        effect=0.5,
        floor=0.01,
        alpha=5e-4,
        beta=beta,
    )


def times(factor: float, count: int = 8) -> tuple[float, ...]:
    return tuple(factor * value for value in STORED[:count])


class TestCompare:
    def test_slower_regresses(self) -> None:
        verdict = decide.compare(wall(times(1.3)))
        assert verdict.decision is Decision.REGRESSED
        assert verdict.p_fail == pytest.approx(rank_tests.smallest_p(8, 12))
        assert verdict.ratio is not None
        assert verdict.ratio.low < 1.3 < verdict.ratio.high
        assert verdict.ratio.value == pytest.approx(1.3, abs=0.01)
        assert verdict.ratio.level >= 0.95
        assert verdict.reason == "+30 % is beyond +2 % (needs p <= 0.0005)"

    def test_faster_improves(self) -> None:
        verdict = decide.compare(wall(times(0.8)))
        assert verdict.decision is Decision.IMPROVED
        assert verdict.p_pass is not None
        assert verdict.p_pass <= 0.0025
        assert "below -2 %: p = 8e-06" in verdict.reason

    def test_the_same_passes_without_a_word(self) -> None:
        verdict = decide.compare(wall(times(1.0)))
        assert (verdict.decision, verdict.reason) == (Decision.PASSED, "")

    def test_nothing_stored(self) -> None:
        assert decide.compare(wall(times(1.0), ())).decision is Decision.NO_BASELINE

    @pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
    def test_no_positive_number_is_an_error(self, value: float) -> None:
        for comparison in (wall((1.0, value)), wall(times(1.0), (1.0, value))):
            verdict = decide.compare(comparison)
            assert verdict.decision is Decision.ERROR
            assert f"wall = {value}" in verdict.reason

    def test_no_new_value_is_an_error(self) -> None:
        verdict = decide.compare(wall(()))
        assert (verdict.decision, verdict.reason) == (Decision.ERROR, "no new launch gave a value of wall")

    @pytest.mark.parametrize(
        ("ratio", "decision"),
        [
            (1.0, Decision.PASSED),
            (1.019, Decision.PASSED),
            (1.02, Decision.PASSED),
            (1.021, Decision.REGRESSED),
            (1.049, Decision.REGRESSED),
            (1 / 1.02, Decision.PASSED),
            (1 / 1.021, Decision.IMPROVED),
        ],
    )
    def test_without_variance_the_limits_are_sharp(self, ratio: float, decision: Decision) -> None:
        verdict = decide.compare(wall((7.3 * ratio,) * 8, (7.3,) * 12))
        assert verdict.decision is decision
        assert verdict.p_fail is not None
        assert not math.isnan(verdict.p_fail)

    def test_on_both_limits_at_once_nothing_settles_it(self) -> None:
        verdict = decide.compare(wall((1.05,) * 8, (1.0,) * 12, margin=0.05, effect=0.05))
        assert verdict.decision is Decision.INCONCLUSIVE
        assert "more launches are unlikely to settle it" in verdict.reason

    def test_ties_on_the_fail_limit_do_not_fail(self) -> None:
        new = (1.5,) * 7 + (1.02,)
        assert decide.compare(wall(new, (1.0,) * 4, alpha=0.003)).decision is Decision.INCONCLUSIVE
        new = (1.5,) * 7 + (1.021,)
        assert decide.compare(wall(new, (1.0,) * 4, alpha=0.003)).decision is Decision.REGRESSED

    def test_too_few_launches_says_how_many(self) -> None:
        verdict = decide.compare(wall(times(1.3, 3), STORED[:8]))
        assert verdict.decision is Decision.INCONCLUSIVE
        needed = next(count for count in range(1, 50) if rank_tests.smallest_p(count, 8) <= 0.0005)
        assert verdict.reason == f"3 launches against 8 stored cannot reach p <= 0.0005; {needed} would"
        more = wall(times(1.3, needed), STORED[:8])
        assert decide.compare(more).decision is Decision.REGRESSED

    def test_too_few_stored_asks_for_both_sides(self) -> None:
        verdict = decide.compare(wall(times(1.3, 1), STORED[:1]))
        assert verdict.reason == "1 launch against 1 stored cannot reach p <= 0.0005; 7 on both sides would"
        assert rank_tests.smallest_p(7, 7) <= 0.0005 < rank_tests.smallest_p(6, 6)

    def test_straddling_says_about_how_many(self) -> None:
        rng = np.random.default_rng(1)
        verdict = decide.compare(wall(tuple(np.exp(rng.normal(0.05, 0.04, 8))), tuple(np.exp(rng.normal(0, 0.04, 12)))))
        assert verdict.decision is Decision.INCONCLUSIVE
        match = re.search(r"the interval (\S+) % \.\. (\S+) % is neither below .* nor above \+2 %", verdict.reason)
        assert match
        assert float(match[1]) <= 2
        asked = re.search(r"about (\d+) launches", verdict.reason)
        assert asked
        assert 8 < int(asked[1]) <= power.MOST_LAUNCHES

    def test_the_advised_number_settles_it(self) -> None:
        """What is advised after an inconclusive look decides most of the runs that follow it."""
        rng = np.random.default_rng(2)
        settled = tried = 0
        while tried < 60:
            new, reference = np.exp(rng.normal(0.07, 0.02, 8)), np.exp(rng.normal(0, 0.02, 8))
            asked = re.search(
                r"about (\d+) launches( on both)?", decide.compare(wall(tuple(new), tuple(reference))).reason
            )
            if not asked:
                continue
            count = int(asked[1])
            reference = np.exp(rng.normal(0, 0.02, count)) if asked[2] else reference
            after = decide.compare(wall(tuple(np.exp(rng.normal(0.07, 0.02, count))), tuple(reference)))
            tried, settled = tried + 1, settled + (after.decision is Decision.REGRESSED)
        assert settled >= 0.6 * tried

    def test_the_unit_does_not_matter(self) -> None:
        for factor in (1.0, 1.03, 1.2):
            small = decide.compare(wall(times(factor)))
            large = decide.compare(wall(tuple(1e9 * v for v in times(factor)), tuple(1e9 * v for v in STORED)))
            assert (small.decision, small.p_fail, small.p_pass) == (large.decision, large.p_fail, large.p_pass)


class TestFloor:
    def test_a_large_share_of_little_memory_does_not_fail(self) -> None:
        stored = tuple(1e6 + 4096.0 * i for i in range(12))
        new = tuple(value + 0.9 * PAGES for value in stored[:8])
        assert decide.compare(uss(new, stored)).decision is not Decision.REGRESSED
        assert decide.compare(wall(new, stored)).decision is Decision.REGRESSED

    def test_beyond_margin_and_floor_fails(self) -> None:
        stored = tuple(20e6 + 4096.0 * i for i in range(12))
        verdict = decide.compare(uss(tuple(value + 8 * 2**20 for value in stored[:8]), stored))
        assert verdict.decision is Decision.REGRESSED
        assert "beyond +3.3 %" in verdict.reason

    def test_the_limit_is_the_margin_plus_the_floor(self) -> None:
        stored = (20e6,) * 12
        limit = 1.02 * 20e6 + PAGES
        assert decide.compare(uss((limit + 1,) * 8, stored)).decision is Decision.REGRESSED
        assert decide.compare(uss((limit,) * 8, stored)).decision is Decision.PASSED

    def test_the_same_memory_passes_and_much_less_improves(self) -> None:
        stored = (20e6,) * 12
        assert decide.compare(uss((20e6,) * 8, stored)).decision is Decision.PASSED
        assert decide.compare(uss((20e6 - PAGES,) * 8, stored)).decision is Decision.PASSED
        assert decide.compare(uss((12e6,) * 8, stored)).decision is Decision.IMPROVED


class TestScaling:
    def test_a_fall_regresses_and_reads_as_one(self) -> None:
        verdict = decide.compare(scaling(times(0.8)))
        assert verdict.decision is Decision.REGRESSED
        assert verdict.points is None
        assert verdict.ratio is not None
        assert verdict.ratio.low < verdict.ratio.value < verdict.ratio.high
        assert verdict.ratio.value == pytest.approx(0.8, abs=0.01)
        assert verdict.reason == "-20 % is beyond -2 % (needs p <= 0.0005)"

    def test_a_rise_improves(self) -> None:
        verdict = decide.compare(scaling(times(1.3)))
        assert verdict.decision is Decision.IMPROVED
        assert verdict.reason.startswith("+30 % is above +2 %: p = 8e-06")

    def test_the_same_passes_without_a_word(self) -> None:
        verdict = decide.compare(scaling(times(1.0)))
        assert (verdict.decision, verdict.reason) == (Decision.PASSED, "")

    @pytest.mark.parametrize(
        ("ratio", "decision"),
        [(1.0, "passed"), (1 / 1.02, "passed"), (1 / 1.021, "regressed"), (1.02, "passed"), (1.021, "improved")],
    )
    def test_without_variance_the_limits_are_sharp(self, ratio: float, decision: str) -> None:
        assert decide.compare(scaling((1.7 * ratio,) * 8, (1.7,) * 12)).decision is Decision(decision)

    def test_is_the_wall_verdict_of_the_inverse(self) -> None:
        rng = np.random.default_rng(41)
        for _ in range(50):
            new, reference = np.exp(rng.normal(rng.normal(0, 0.1), 0.03, 8)), np.exp(rng.normal(0, 0.03, 12))
            ours = decide.compare(scaling(tuple(new), tuple(reference)))
            walls = decide.compare(wall(tuple(1 / new), tuple(1 / reference)))
            assert (ours.decision, ours.p_fail, ours.p_pass) == (walls.decision, walls.p_fail, walls.p_pass)

    def test_a_straddling_interval_reads_from_the_good_side(self) -> None:
        rng = np.random.default_rng(1)
        new, reference = np.exp(rng.normal(-0.05, 0.05, 8)), np.exp(rng.normal(0, 0.05, 12))
        verdict = decide.compare(scaling(tuple(new), tuple(reference)))
        assert verdict.decision is Decision.INCONCLUSIVE
        pattern = r"interval (\S+) % \.\. (\S+) % is neither above (\S+) % nor below -2 %"
        match = re.search(pattern, verdict.reason)
        assert match
        low, high, effect = map(float, match.groups())
        assert low <= effect < -4.8
        assert high >= -2
        assert f"judged at {match[3]} %: the noise hides -4.8 %" in verdict.reason

    def test_no_scaling_at_all_is_an_error(self) -> None:
        assert decide.compare(scaling((1.0, 0.0))).reason == "a new launch gave scaling = 0.0 x: not a positive number"


class TestLockWaitShare:
    @pytest.mark.parametrize(
        ("before", "now", "decision"),
        [
            (0.0, 0.0, "passed"),
            (0.0, 0.01, "passed"),
            (0.0, 0.011, "regressed"),
            (0.1, 0.135, "passed"),
            (0.1, 0.1351, "regressed"),
            (0.1, 0.4, "regressed"),
            (0.135, 0.1, "passed"),
            (0.1351, 0.1, "improved"),
            (0.011, 0.0, "improved"),
            (0.01, 0.0, "passed"),
        ],
    )
    def test_without_variance_the_limits_are_sharp(self, before: float, now: float, decision: str) -> None:
        verdict = decide.compare(share((now,) * 8, (before,) * 12))
        assert verdict.decision is Decision(decision)
        assert verdict.ratio is None
        assert verdict.points is not None
        assert verdict.points.value == pytest.approx(now - before)

    def test_reasons_are_points(self) -> None:
        worse = decide.compare(share((0.22,) * 8, (0.1,) * 12))
        assert worse.reason == "+12 points is beyond +3.5 points (needs p <= 0.0005)"
        better = decide.compare(share((0.02,) * 8, (0.1,) * 12))
        assert better.reason == "-8 points is below -1.5 points: p = 8e-06, limit 0.0005"
        assert decide.compare(share((0.1,) * 8, (0.1,) * 12)).reason == ""

    def test_the_p_values_are_those_of_the_moved_values(self) -> None:
        rng = np.random.default_rng(42)
        for _ in range(50):
            new = [max(0.0, round(wait, 2)) for wait in rng.normal(0.05, 0.05, 8).tolist()]
            reference = [max(0.0, round(wait, 2)) for wait in rng.normal(0.04, 0.05, 12).tolist()]
            verdict = decide.compare(share(tuple(new), tuple(reference)))
            assert verdict.p_fail == rank_tests.mann_whitney(new, [1.25 * wait + 0.01 for wait in reference])
            limits = [1.5 * wait + 0.02 for wait in reference]
            assert verdict.p_pass == rank_tests.mann_whitney(new, limits, alternative="less")
            differences = np.sort(np.subtract.outer(new, reference).ravel())
            assert verdict.points is not None
            assert verdict.points.value == pytest.approx(np.median(differences))
            assert verdict.points.low in differences
            assert verdict.points.high in differences

    def test_many_zeros_pass_and_ask_for_more_work(self) -> None:
        verdict = decide.compare(share((0.0,) * 6 + (0.001, 0.002), (0.0,) * 9 + (0.004,) * 3))
        assert verdict.decision is Decision.PASSED
        expected = "6 of 8 launches and 9 of 12 stored launches had no waits: use a longer workload"
        assert verdict.reason == expected

    def test_waits_in_most_launches_or_in_none_ask_for_nothing(self) -> None:
        for new in ((0.0,) * 8, (0.0,) * 4 + (0.001,) * 4, (0.001,) * 8):
            assert decide.compare(share(new, (0.0,) * 12)).reason == ""

    def test_straddling_says_so_in_points_and_does_not_widen(self) -> None:
        rng = np.random.default_rng(43)
        new, reference = rng.uniform(0.05, 0.3, 8), rng.uniform(0.02, 0.25, 12)
        verdict = decide.compare(share(tuple(new), tuple(reference)))
        assert verdict.decision is Decision.INCONCLUSIVE
        middle = float(np.median(reference))
        match = re.search(r"is neither below (\S+) points nor above (\S+) points; about", verdict.reason)
        assert match
        assert float(match[1]) == pytest.approx(100 * (0.5 * middle + 0.02), abs=0.051)
        assert float(match[2]) == pytest.approx(100 * (0.25 * middle + 0.01), abs=0.051)
        assert "judged at" not in verdict.reason

    def test_too_few_launches_and_rare_waits_are_both_said(self) -> None:
        verdict = decide.compare(share((0.0, 0.0, 0.2), (0.0,) * 8))
        assert verdict.decision is Decision.INCONCLUSIVE
        first, last = verdict.reason.split("; ")[0], verdict.reason.split("; ")[-1]
        assert first == "3 launches against 8 stored cannot reach p <= 0.0005"
        assert last == "2 of 3 launches had no waits: use a longer workload"

    @pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
    def test_no_share_is_an_error(self, value: float) -> None:
        verdict = decide.compare(share((0.0, value), (0.1,)))
        assert verdict.decision is Decision.ERROR
        assert f"lock_wait_share = {value} of the workers' time: not a share of 0 or more" in verdict.reason

    @pytest.mark.parametrize(("spread", "passing"), [(0.1, 300), (0.3, 200), (0.6, 0)])
    def test_unchanged_hardly_ever_regresses(self, spread: float, passing: int) -> None:
        rng = np.random.default_rng(44)
        decisions = []
        for _ in range(300):
            waits = 0.15 * rng.lognormal(0, spread, 20)
            decisions.append(decide.compare(share(tuple(waits[:8]), tuple(waits[8:]))).decision)
        assert decisions.count(Decision.REGRESSED) <= 1
        assert decisions.count(Decision.IMPROVED) <= 1
        assert decisions.count(Decision.PASSED) >= passing

    def test_at_the_limit_it_fails_no_more_often_than_alpha(self) -> None:
        rng = np.random.default_rng(45)
        failed = 0
        for _ in range(1000):
            new, reference = 1.25 * rng.gamma(4, 0.02, 8) + 0.01, rng.gamma(4, 0.02, 8)
            comparison = msgspec.structs.replace(share(tuple(new), tuple(reference)), alpha=0.05)
            failed += decide.compare(comparison).decision is Decision.REGRESSED
        assert 20 <= failed <= 50 + 3 * math.sqrt(1000 * 0.05 * 0.95)


def looked(
    new: NDArray[np.float64],
    reference: NDArray[np.float64],
    *,
    test: Test = "pairs",
    final: bool = False,
    hypotheses: int = 60,
    at_most: int = 40,
) -> Comparison:
    """Wall times of interleaved launches, with the looks of one of so many hypotheses."""
    alpha, beta = decide.split_alpha(0.01, alpha_spending.BETA, hypotheses)
    return Comparison(
        metric=Metric.WALL,
        new=tuple(new),
        reference=tuple(reference),
        unit="ns",
        margin=0.02,
        effect=0.05,
        alpha=alpha,
        beta=beta,
        test=test,
        looks=alpha_spending.spend(alpha, beta, test, at_most=at_most, reference=len(reference)),
        final=final,
    )


def sides(
    rng: np.random.Generator, ratio: float, count: int = 40, *, noise: float = 0.03, weather: float = 0.2
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times in ns of both sides of so many pairs: the weather of a pair hits both."""
    common = 2e7 * rng.lognormal(0, weather, count)
    spread = noise / math.sqrt(2)
    return ratio * common * rng.lognormal(0, spread, count), common * rng.lognormal(0, spread, count)


class TestPairs:
    def test_weather_of_pairs_does_not_matter(self) -> None:
        new, reference = sides(np.random.default_rng(51), 1.1)
        verdict = decide.compare(looked(new, reference))
        assert verdict.decision is Decision.REGRESSED
        assert verdict.ratio is not None
        assert verdict.ratio.low < 1.1 < verdict.ratio.high
        unpaired = decide.compare(looked(new, reference, test="ranks", final=True))
        assert unpaired.decision is Decision.INCONCLUSIVE

    def test_p_values_and_interval_are_those_of_the_signed_rank(self) -> None:
        rng = np.random.default_rng(52)
        for _ in range(30):
            new, reference = sides(rng, 1.03, 12)
            comparison = msgspec.structs.replace(looked(new, reference), looks=(), floor=1e5)
            verdict = decide.compare(comparison)
            moved = np.log(new) - np.log(1.02 * reference + 1e5)
            assert verdict.p_fail == rank_tests.signed_rank(moved)
            expected = rank_tests.location(np.log(new) - np.log(reference), evidence.INTERVAL_LEVEL)
            assert verdict.ratio is not None
            assert math.log(verdict.ratio.low) == pytest.approx(expected.low, abs=1e-9)
            assert math.log(verdict.ratio.value) == pytest.approx(expected.value, abs=1e-9)

    @pytest.mark.parametrize("test", ["pairs", "blocks"])
    @pytest.mark.parametrize(
        ("ratio", "decision"),
        [
            (1.0, Decision.PASSED),
            (1.02, Decision.PASSED),
            (1.021, Decision.REGRESSED),
            (1 / 1.02, Decision.PASSED),
            (1 / 1.021, Decision.IMPROVED),
        ],
    )
    def test_without_variance_the_limits_are_sharp(self, test: Test, ratio: float, decision: Decision) -> None:
        """Rounding is no rank: 1.02 x 7.3 is not above 7.3 by more than 2 %, however it is written."""
        for value in (7.3, 1.0, 2.1e7, 3.3e-4):
            new, reference = np.full(16, value * ratio), np.full(16, value)
            comparison = msgspec.structs.replace(looked(new, reference, test=test), looks=())
            verdict = decide.compare(comparison)
            assert verdict.decision is decision
            assert verdict.p_fail is not None
            assert verdict.p_pass is not None

    def test_the_unit_does_not_matter(self) -> None:
        rng = np.random.default_rng(53)
        for ratio in (0.9, 1.0, 1.03, 1.2):
            new, reference = sides(rng, ratio)
            for test in ("pairs", "blocks", "ranks"):
                small = decide.compare(looked(new, reference, test=test))
                large = decide.compare(looked(1e-9 * new, 1e-9 * reference, test=test))
                assert (small.decision, small.p_fail, small.p_pass) == (large.decision, large.p_fail, large.p_pass)

    @pytest.mark.parametrize("test", ["pairs", "blocks", "ranks"])
    def test_exchanging_the_sides_exchanges_worse_and_better(self, test: Test) -> None:
        rng, seen = np.random.default_rng(54), set()
        for _ in range(60):
            new, reference = sides(rng, math.exp(rng.normal(0, 0.08)), 24, noise=0.02, weather=0.02)
            there = msgspec.structs.replace(looked(new, reference, test=test, hypotheses=1), looks=(), beta=0.0)
            back = msgspec.structs.replace(there, new=there.reference, reference=there.new)
            one, other = decide.compare(there).decision, decide.compare(back).decision
            seen.add(one)
            assert (one is Decision.REGRESSED) == (other is Decision.IMPROVED)
            assert (one is Decision.IMPROVED) == (other is Decision.REGRESSED)
        assert {Decision.REGRESSED, Decision.IMPROVED} <= seen

    def test_scaling_is_the_inverse(self) -> None:
        new, reference = sides(np.random.default_rng(55), 1.1)
        walls = decide.compare(looked(new, reference))
        inverse = msgspec.structs.replace(looked(1 / new, 1 / reference), metric=Metric.SCALING)
        verdict = decide.compare(inverse)
        assert (verdict.decision, verdict.launches) == (walls.decision, walls.launches)
        assert verdict.ratio is not None
        assert walls.ratio is not None
        assert verdict.ratio.value == pytest.approx(1 / walls.ratio.value)

    @pytest.mark.parametrize("metric", [Metric.TAIL, Metric.RATIO])
    def test_tail_and_ratio_are_judged_as_the_time_is(self, metric: Metric) -> None:
        for ratio in (1.0, 1.1):
            comparison = looked(*sides(np.random.default_rng(56), ratio))
            verdict = decide.compare(msgspec.structs.replace(comparison, metric=metric))
            assert msgspec.structs.replace(verdict, metric=Metric.WALL) == decide.compare(comparison)

    @pytest.mark.parametrize("test", ["pairs", "blocks"])
    def test_shares_of_mostly_nothing(self, test: Test) -> None:
        rng = np.random.default_rng(57)
        reference = np.where(rng.random(40) < 0.7, 0.0, 0.004)
        for new, decision in (
            (np.zeros(40), Decision.PASSED),
            (np.where(rng.random(40) < 0.7, 0.0, 0.004), Decision.PASSED),
            (reference + 0.06, Decision.REGRESSED),
        ):
            comparison = msgspec.structs.replace(
                looked(new, reference, test=test), metric=Metric.LOCK_WAIT, margin=0.25, effect=0.5, floor=0.01
            )
            verdict = decide.compare(comparison)
            assert verdict.decision is decision
            assert verdict.points is not None
            assert verdict.points.value == pytest.approx(np.median(new - reference), abs=0.005)

    def test_a_floor_beyond_the_effect_passes_what_does_not_fail(self) -> None:
        """A millisecond that does not matter is no reason to stay undecided at two."""
        comparison = looked(np.full(16, 2.4e6), np.full(16, 2e6))
        assert decide.compare(msgspec.structs.replace(comparison, floor=1e6)).decision is Decision.PASSED
        assert decide.compare(comparison).decision is Decision.REGRESSED

    def test_a_reference_without_a_value_is_named(self) -> None:
        empty, ones = np.empty(0), np.ones(3)
        assert decide.compare(looked(ones, empty)).reason == "the reference gave no value"
        assert "a reference launch gave wall = 0.0" in decide.compare(looked(ones, np.zeros(3))).reason


class TestBlocks:
    def test_p_values_are_those_of_the_block_rank_sum(self) -> None:
        rng = np.random.default_rng(58)
        for count in (8, 13, 16):
            new, reference = sides(rng, 1.02, count)
            verdict = decide.compare(msgspec.structs.replace(looked(new, reference, test="blocks"), looks=()))
            assert verdict.p_fail == rank_tests.block_rank_sum(np.log(new), np.log(1.02 * reference))
            assert verdict.launches == count

    def test_less_than_a_block_decides_nothing(self) -> None:
        for count in (1, 2, 3):
            for final in (False, True):
                comparison = looked(np.full(count, 2.0), np.ones(count), test="blocks", final=final)
                verdict = decide.compare(comparison)
                assert verdict.decision is Decision.INCONCLUSIVE
                assert verdict.p_fail == 1.0
                assert verdict.more is not None
                assert verdict.more + count == 12
                assert f"{count} round" in verdict.reason


class TestLooks:
    @pytest.mark.parametrize("test", ["pairs", "blocks"])
    @pytest.mark.parametrize("ratio", [0.9, 1.0, 1.03, 1.05, 1.1])
    def test_a_decision_is_frozen(self, test: Test, ratio: float) -> None:
        rng, frozen = np.random.default_rng(59), 0
        for _ in range(5):
            new, reference = sides(rng, ratio, weather=0.2 if test == "pairs" else 0.0)
            first, whole = None, looked(new, reference, test=test)
            for count in (3, 4, 6, 7, 9, 13, 15, 16, 20, 23, 26, 32, 39, 40):
                for final in (False, True) if first else (False,):
                    part = looked(new[:count], reference[:count], test=test, final=final)
                    verdict = decide.compare(msgspec.structs.replace(part, looks=whole.looks))
                    assert first is None or verdict == first
                first = verdict if decide.settled(verdict) else None
            if first:
                frozen += 1
                assert first.launches in {look.launches for look in whole.looks}
        assert frozen >= 3

    def test_between_looks_nothing_is_decided(self) -> None:
        new, reference = np.full(40, 1.5), np.ones(40)
        for count in range(1, 16):
            assert decide.compare(looked(new[:count], reference[:count])).decision is Decision.INCONCLUSIVE
        assert decide.compare(looked(new[:16], reference[:16])).decision is Decision.REGRESSED

    def test_at_the_end_what_is_left_is_spent(self) -> None:
        new, reference = np.full(15, 1.5), np.ones(15)
        assert decide.compare(looked(new, reference)).decision is Decision.INCONCLUSIVE
        verdict = decide.compare(looked(new, reference, final=True))
        assert (verdict.decision, verdict.launches) == (Decision.REGRESSED, 15)
        assert verdict.reason.endswith("(needs p <= 0.00017)")

    def test_what_was_spent_is_not_left(self) -> None:
        """13 pairs reach 0.00012: enough of 0.0002, not of what a look before that had a part of."""
        new, reference = np.full(13, 1.5), np.ones(13)
        comparison = msgspec.structs.replace(looked(new, reference, final=True), alpha=2e-4)
        for spent, decision in ((5e-5, Decision.REGRESSED), (1e-4, Decision.INCONCLUSIVE)):
            looks = (Look(launches=6, alpha=spent, beta=0.0), Look(launches=20, alpha=1e-4, beta=0.0))
            assert decide.compare(msgspec.structs.replace(comparison, looks=looks)).decision is decision

    def test_only_the_end_widens(self) -> None:
        rng, widened = np.random.default_rng(60), 0
        for _ in range(20):
            new, reference = sides(rng, 1.0, 10, noise=0.12)
            assert "judged at" not in decide.compare(looked(new, reference)).reason
            ended = decide.compare(looked(new, reference, final=True))
            widened += ended.decision is Decision.PASSED and ended.reason.startswith("judged at +")
            narrow = msgspec.structs.replace(looked(new, reference, final=True), widest=0.05)
            assert "judged at" not in decide.compare(narrow).reason
        assert widened >= 10

    def test_no_more_is_advised_than_there_are_looks(self) -> None:
        rng, advised = np.random.default_rng(61), 0
        for count in (1, 3, 6, 9, 14, 22, 33):
            for ratio in (0.9, 1.0, 1.04, 1.1):
                new, reference = sides(rng, ratio, count, noise=0.04)
                comparison = looked(new, reference)
                verdict = decide.compare(comparison)
                if decide.settled(verdict):
                    assert verdict.more is None
                elif verdict.more is not None:
                    advised += 1
                    assert count + verdict.more in {look.launches for look in comparison.looks}
                    assert f"about {verdict.more} more pair" in verdict.reason
        assert advised >= 8

    def test_the_advised_number_settles_it(self) -> None:
        rng, settled, tried = np.random.default_rng(62), 0, 0
        while tried < 60:
            new, reference = sides(rng, 1.06, 80)
            early = decide.compare(looked(new[:12], reference[:12], at_most=80))
            if early.more is None:
                continue
            count = 12 + early.more
            later = decide.compare(looked(new[:count], reference[:count], at_most=80))
            tried, settled = tried + 1, settled + decide.settled(later)
        assert settled >= 0.6 * tried

    @pytest.mark.parametrize("test", ["pairs", "blocks"])
    def test_unchanged_passes_and_a_tenth_more_fails(self, test: Test) -> None:
        rng = np.random.default_rng(63)
        weather = np.ones(40) if test == "blocks" else rng.lognormal(0, 0.2, 40)
        for ratio, decision in ((1.0, Decision.PASSED), (1.1, Decision.REGRESSED)):
            decisions = []
            for _ in range(60):
                new, reference = weather * rng.lognormal(0, 0.02, (2, 40))
                decisions.append(decide.compare(looked(ratio * new, reference, test=test)).decision)
            assert decisions.count(decision) >= 59

    @pytest.mark.parametrize("test", ["pairs", "blocks"])
    def test_at_the_limit_it_fails_no_more_often_than_alpha(self, test: Test) -> None:
        rng, failed = np.random.default_rng(64), 0
        looks = alpha_spending.spend(0.05, 0.0, test, at_most=16)
        for _ in range(500):
            new, reference = np.exp(rng.normal(0, 0.03, (2, 16)))
            comparison = looked(1.02 * new, reference, test=test, final=True)
            comparison = msgspec.structs.replace(comparison, alpha=0.05, beta=0.0, looks=looks)
            failed += decide.compare(comparison).decision is Decision.REGRESSED
        assert 5 <= failed <= 25 + 3 * math.sqrt(500 * 0.05 * 0.95)

    def test_never_a_nan(self) -> None:
        rng = np.random.default_rng(65)
        for test in ("pairs", "blocks", "ranks"):
            for count in (1, 2, 4, 5, 8, 16):
                for new, reference in (
                    (np.ones(count), np.ones(count)),
                    (np.full(count, 1e-300), np.full(count, 1e300)),
                    (np.full(count, 1e300), np.full(count, 1e-300)),
                    (rng.integers(1, 3, count).astype(float), rng.integers(1, 3, count).astype(float)),
                ):
                    for final in (False, True):
                        verdict = decide.compare(looked(new, reference, test=test, final=final))
                        assert verdict.p_fail is not None
                        assert verdict.p_pass is not None
                        assert verdict.ratio is not None
                        assert 0 < verdict.p_fail <= 1
                        assert 0 < verdict.p_pass <= 1
                        assert 0 < verdict.ratio.low <= verdict.ratio.value <= verdict.ratio.high < math.inf
                        assert "nan" not in verdict.reason


class TestImproved:
    def test_a_clear_gain_need_not_wait_for_alpha(self) -> None:
        verdict = decide.compare(looked(np.full(6, 0.8), np.ones(6)))
        assert (verdict.decision, verdict.launches) == (Decision.IMPROVED, 6)
        assert verdict.reason == "-20 % is below -4.8 %: p = 0.02, limit 0.016"

    def test_a_small_one_passes(self) -> None:
        verdict = decide.compare(looked(np.full(6, 0.96), np.ones(6)))
        assert (verdict.decision, verdict.launches) == (Decision.PASSED, 6)

    def test_unchanged_never_improves(self) -> None:
        rng = np.random.default_rng(66)
        for _ in range(100):
            assert decide.compare(looked(*sides(rng, 1.0))).decision is Decision.PASSED


class TestRequire:
    TEXT = "threads.wall < 0.8 * serial.wall"

    def required(self, values: list[float], *, final: bool = False) -> MetricVerdict:
        alpha, beta = decide.split_alpha(0.01, alpha_spending.BETA, 60)
        looks = alpha_spending.spend(alpha, beta, "pairs", at_most=40)
        return decide.require(values, text=self.TEXT, looks=looks, alpha=alpha, beta=beta, final=final)

    def test_holds_breaks_and_neither(self) -> None:
        for value, decision, launches in (
            (-0.1, Decision.PASSED, 6),
            (0.1, Decision.BROKEN, 16),
            (0.0, Decision.INCONCLUSIVE, 40),
        ):
            verdict = self.required([value] * 40)
            assert (verdict.metric, verdict.contract) == (Metric.CONTRACT, self.TEXT)
            assert (verdict.decision, verdict.launches) == (decision, launches)
        assert self.required([0.1] * 40).reason == "it did not hold in 16 of 16 launches: p = 2e-05, limit 3.1e-05"
        assert self.required([0.0] * 40).reason.startswith("it held in 0 of 40 launches; more launches are unlikely")

    def test_is_the_signed_rank_test(self) -> None:
        rng = np.random.default_rng(68)
        for _ in range(30):
            values = rng.normal(rng.normal(0, 0.1), 0.1, 14)
            verdict = decide.require(list(values), text="", alpha=0.01, beta=0.05)
            assert verdict.p_fail == rank_tests.signed_rank(values)
            assert verdict.p_pass == rank_tests.signed_rank(values, alternative="less")
            opposite = decide.require(list(-values), text="", alpha=0.01, beta=0.05)
            assert (verdict.p_fail, verdict.p_pass) == (opposite.p_pass, opposite.p_fail)

    def test_no_launch_gave_a_value(self) -> None:
        verdict = self.required([])
        assert (verdict.decision, verdict.reason) == (Decision.INCONCLUSIVE, "no launch gave a value")
        assert verdict.contract == self.TEXT

    def test_a_decision_is_frozen(self) -> None:
        rng = np.random.default_rng(69)
        for mean in (-0.1, 0.0, 0.1):
            values, first = rng.normal(mean, 0.08, 40).tolist(), None
            for count in range(1, 41):
                verdict = self.required(values[:count])
                assert first is None or verdict == first
                first = verdict if decide.settled(verdict) else None
            assert (first is not None) == (mean != 0)

    def test_says_how_many_more(self) -> None:
        verdict = self.required([-0.1] * 3)
        assert (verdict.more, verdict.reason) == (
            3,
            "it held in 3 of 3 launches; about 3 more launches would settle it",
        )
        at_the_end = self.required([0.1, 0.12, 0.13, 0.09], final=True)
        assert at_the_end.decision is Decision.INCONCLUSIVE
        assert at_the_end.more == 9
        assert at_the_end.reason == "it held in 0 of 4 launches; 4 launches cannot reach p <= 0.00017; 13 would"

    def test_breaks_no_more_often_than_alpha(self) -> None:
        rng = np.random.default_rng(70)
        looks = alpha_spending.spend(0.05, 0.0, "pairs", at_most=12)
        broken = sum(
            decide.require(list(values), text="", looks=looks, alpha=0.05, beta=0.0).decision is Decision.BROKEN
            for values in rng.standard_t(2, (600, 12))
        )
        assert 5 <= broken <= 30 + 3 * math.sqrt(600 * 0.05 * 0.95)


class TestRefused:
    def test_a_slow_probe_refuses_with_its_figures(self) -> None:
        verdict = decide.refused(Metric.LOCK_WAIT, Interval(value=1.42, low=1.3, high=1.5, level=0.94), 0.25)
        assert verdict is not None
        assert (verdict.metric, verdict.decision) == (Metric.LOCK_WAIT, Decision.INCONCLUSIVE)
        assert verdict.reason.startswith(
            "the lock probe slowed it 1.42x (limit 1.25x, --ftgate-probe-cost): the waits are not the workload's alone"
        )

    def test_noise_and_nothing_refuse_nothing(self) -> None:
        for low in (0.9, 1.2, 1.25):
            assert decide.refused(Metric.LOCK_WAIT, Interval(value=1.42, low=low, high=9.0, level=0.94), 0.25) is None
        assert decide.refused(Metric.USS, None, 0.02) is None

    def test_every_metric_names_what_looked(self) -> None:
        cost = Interval(value=2.0, low=1.9, high=2.1, level=0.95)
        found = {metric: decide.refused(metric, cost, 0.25) for metric in Metric}
        assert all(
            verdict is not None and "slowed it 2.00x (limit 1.25x, --ftgate-probe-cost)" in verdict.reason
            for verdict in found.values()
        )
        memory = found[Metric.USS]
        assert memory is not None
        assert memory.reason.startswith("memory sampling slowed it")


class TestReachableEffect:
    def test_quiet_sides_keep_the_effect(self) -> None:
        assert power.reachable_effect(times(1.0), STORED, 0.05, 0.0025) == 0.05
        assert power.reachable_effect((1.0,) * 8, (1.0,) * 12, 0.05, 0.0025) == 0.05

    def test_widens_by_whole_percents_up_to_the_cap(self) -> None:
        rng = np.random.default_rng(3)
        shape = rng.normal(0, 1, 20)
        widened = [
            power.reachable_effect(np.exp(s * shape[:8]).tolist(), np.exp(s * shape[8:]).tolist(), 0.05, 0.0025)
            for s in (0.01, 0.03, 0.05, 0.07, 0.5)
        ]
        assert widened == sorted(widened)
        assert widened[0] == 0.05
        assert widened[-1] == power.WIDEST_EFFECT
        assert all(100 * effect == pytest.approx(round(100 * effect)) for effect in widened)
        assert 0.05 < widened[1] < widened[2] < 0.25

    def test_is_blind_to_the_difference(self) -> None:
        rng = np.random.default_rng(4)
        new, reference = np.exp(rng.normal(0, 0.04, 8)), np.exp(rng.normal(0, 0.04, 12))
        effects = {
            power.reachable_effect((new * f).tolist(), reference.tolist(), 0.05, 0.0025) for f in (0.5, 1, 1.1, 9)
        }
        assert len(effects) == 1
        assert effects.pop() > 0.05

    def test_too_few_launches_are_not_mended_by_widening(self) -> None:
        assert power.reachable_effect((1.0, 3.0), (1.0, 2.0), 0.05, 0.01) == 0.05
        assert power.reachable_effect((1.0,), (1.0,), 0.05, 0.01) == 0.05

    def test_a_wider_effect_than_the_cap_is_kept(self) -> None:
        assert power.reachable_effect((1.0, 3.0, 2.0, 4.0), (1.0, 3.0, 2.0, 4.0), 0.4, 0.05) == 0.4

    @pytest.mark.parametrize(("sigma", "n", "m"), [(0.04, 8, 12), (0.03, 6, 8), (0.05, 20, 20)])
    def test_gives_an_unchanged_cell_a_fair_chance_and_says_so(self, sigma: float, n: int, m: int) -> None:
        rng = np.random.default_rng([n, m])
        passed = widened = 0
        for _ in range(200):
            sides = tuple(np.exp(rng.normal(0, sigma, n))), tuple(np.exp(rng.normal(0, sigma, m)))
            verdict = decide.compare(wall(*sides))
            passed += verdict.decision is Decision.PASSED
            widened += verdict.reason.startswith("judged at +")
        assert passed >= 0.6 * 200
        assert widened > 20

    def test_the_reason_names_the_widened_effect(self) -> None:
        rng = np.random.default_rng(6)
        new, reference = tuple(np.exp(rng.normal(0, 0.05, 8))), tuple(np.exp(rng.normal(0, 0.05, 12)))
        verdict = decide.compare(wall(new, reference))
        effect = power.reachable_effect(new, reference, 0.05, 0.05 / 20)
        assert verdict.reason.startswith(f"judged at +{100 * effect:.0f} %: the noise hides +5 %")


class TestNoise:
    @pytest.mark.parametrize("sigma", [0.02, 0.04])
    def test_unchanged_hardly_ever_regresses(self, sigma: float) -> None:
        rng = np.random.default_rng(7)
        decisions = [
            decide.compare(wall(*(tuple(np.exp(rng.normal(0, sigma, size))) for size in (8, 12)))).decision
            for _ in range(400)
        ]
        assert decisions.count(Decision.REGRESSED) <= 1
        assert decisions.count(Decision.IMPROVED) <= 1
        assert decisions.count(Decision.PASSED) >= 240

    def test_at_the_limit_it_fails_no_more_often_than_alpha(self) -> None:
        rng = np.random.default_rng(8)
        failed = 0
        for _ in range(1000):
            new, reference = 1.02 * np.exp(rng.normal(0, 0.03, 8)), np.exp(rng.normal(0, 0.03, 8))
            failed += decide.compare(wall(tuple(new), tuple(reference), alpha=0.05)).decision is Decision.REGRESSED
        assert failed <= 50 + 3 * math.sqrt(1000 * 0.05 * 0.95)
        assert failed >= 20

    def test_thirty_percent_always_regresses(self) -> None:
        rng = np.random.default_rng(9)
        for _ in range(300):
            new, reference = 1.3 * np.exp(rng.normal(0, 0.03, 8)), np.exp(rng.normal(0, 0.03, 12))
            assert decide.compare(wall(tuple(new), tuple(reference))).decision is Decision.REGRESSED


def metric(decision: Decision, kind: Metric = Metric.WALL, reason: str = "") -> MetricVerdict:
    return MetricVerdict(metric=kind, decision=decision, reason=reason)


class TestJudge:
    @pytest.mark.parametrize(
        ("decisions", "worst"),
        [
            ("passed passed", "passed"),
            ("passed improved", "improved"),
            ("improved inconclusive", "inconclusive"),
            ("inconclusive regressed", "regressed"),
            ("inconclusive broken", "broken"),
            ("broken regressed", "regressed"),
            ("regressed error", "error"),
            ("passed no_baseline", "passed"),
            ("inconclusive no_baseline", "inconclusive"),
            ("no_baseline no_baseline", "no_baseline"),
            ("no_baseline unsupported", "no_baseline"),
            ("", "no_baseline"),
        ],
    )
    def test_the_worst_decides(self, decisions: str, worst: str) -> None:
        metrics = [metric(Decision[name.upper()]) for name in decisions.split()]
        assert decide.judge(metrics).decision is Decision[worst.upper()]
        assert decide.judge(metrics[::-1]).decision is Decision[worst.upper()]

    def test_every_decision_has_its_place(self) -> None:
        assert [decide.judge([metric(decision)]).decision for decision in Decision] == list(Decision)

    def test_the_reason_is_that_of_what_decided(self) -> None:
        metrics = [
            metric(Decision.REGRESSED, Metric.WALL, "slow"),
            metric(Decision.REGRESSED, Metric.USS, "large"),
            metric(Decision.INCONCLUSIVE, Metric.WALL, "who knows"),
        ]
        verdict = decide.judge(metrics, baseline="baselines/test_x.json", commit="abc")
        assert verdict.reason == "wall: slow; uss: large"
        assert verdict.metrics == tuple(metrics)
        assert (verdict.basis, verdict.why) == ("", "")
        assert (verdict.baseline, verdict.commit) == ("baselines/test_x.json", "abc")

    def test_a_contract_is_named_by_its_text_and_the_road_is_kept(self) -> None:
        broken = MetricVerdict(metric=Metric.CONTRACT, decision=Decision.BROKEN, reason="no", contract="scaling > 1.6")
        verdict = decide.judge([broken], basis="paired", why="asked for")
        assert verdict.reason == "scaling > 1.6: no"
        assert (verdict.basis, verdict.why) == ("paired", "asked for")


def test_split_alpha() -> None:
    assert decide.split_alpha(0.01, 0.05, 20) == (0.0005, 0.05)
    assert decide.split_alpha(0.01, 0.05, 0) == (0.01, 0.05)
