"""Verdicts on pairs: at their boundaries, by hand, and on seeded noise."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from report_by_hand import told
from scipy.stats import t

from pytest_ftgate.judge import comparisons, decide, metrics
from pytest_ftgate.judge.limits import as_costs, worse_by
from pytest_ftgate.kit.values import WIDEST, Interval, Metric
from pytest_ftgate.model.verdict import Basis, Comparison, Decision, Limits, MetricVerdict
from pytest_ftgate.report.reasons import of_cell, of_metric
from pytest_ftgate.stats import alpha_spending, moderated
from pytest_ftgate.stats.alpha_spending import BETA, LOOKS

PAGES = 64 * 4096.0
HYPOTHESES = 8
ALPHA = 0.01 / HYPOTHESES
Values = Sequence[float] | NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]


def looked(new: Values, reference: Values, metric: str = Metric.WALL, **fields: Any) -> Comparison:
    """A comparison of pairs with the default limits of its metric; the floor is that of the table."""
    limits = metrics.row(metric).paired
    limits = limits._replace(**{name: fields.pop(name) for name in limits._fields if name in fields})
    given: dict[str, Any] = {"limits": limits, "alpha": ALPHA, "beta": BETA, **fields}
    sides = (tuple(float(value) for value in side) for side in (new, reference))
    return Comparison(metric=metric, new=next(sides), reference=next(sides), unit="ns", **given)


def constant(ratio: float, count: int, **fields: Any) -> Comparison:
    """Pairs of the same ratio, at a level of their own: only what is stated of the noise speaks."""
    reference = [7.3 * (1 + 0.1 * pair) for pair in range(count)]
    return looked([ratio * value for value in reference], reference, **fields)


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    return rng.normal(size=shape)


def heavy(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Student's t with 3 degrees of freedom, of variance 1."""
    return np.asarray(rng.standard_t(3, shape) / math.sqrt(3), dtype=np.float64)


def series(
    ratio: float,
    count: int = 80,
    *,
    rows: int = 1,
    noise: float = 0.04,
    of: Noise = normal,
    seed: int = 51,
    **fields: Any,
) -> list[Comparison]:
    """Comparisons of so many pairs; the state of the machine, 20 %, hits both sides of a pair alike."""
    rng = np.random.default_rng(seed)
    weather = 2e7 * rng.lognormal(0, 0.2, (rows, count))
    new = ratio * weather * np.exp(noise * of(rng, (rows, count)))
    return [looked(*sides, **fields) for sides in zip(new.tolist(), weather.tolist(), strict=True)]


def verdicts(*args: Any, **fields: Any) -> list[MetricVerdict]:
    return [decide.by_pairs(comparison) for comparison in series(*args, **fields)]


def share_of(decision: Decision, found: Sequence[MetricVerdict]) -> float:
    return sum(verdict.decision is decision for verdict in found) / len(found)


class TestCompare:
    def test_slower_regresses_and_says_how_surely(self) -> None:
        verdict = decide.by_pairs(constant(1.3, 8))
        assert (verdict.decision, verdict.launches) == (Decision.REGRESSED, 5)
        assert verdict.ratio is not None
        assert verdict.ratio.low < 1.3 < verdict.ratio.high
        assert verdict.ratio.value == pytest.approx(1.3)
        assert verdict.ratio.level == 0.95
        assert [verdict.allowed, verdict.effect] == pytest.approx([1.02, 1.05])
        level = alpha_spending.planned_looks(ALPHA, BETA, at_most=80)[3].alpha
        assert of_metric(verdict) == f"+30 % is beyond +2 %: p = {verdict.p_fail:.2g}, limit {level:.2g}"

    def test_faster_improves(self) -> None:
        verdict = decide.by_pairs(constant(0.8, 8))
        assert (verdict.decision, verdict.launches) == (Decision.IMPROVED, 3)
        assert re.match(r"-20 % is below -2 %: p = \S+, limit \S+$", of_metric(verdict))

    def test_the_same_passes_without_a_word(self) -> None:
        verdict = decide.by_pairs(constant(1.0, 8))
        assert (verdict.decision, of_metric(verdict)) == (Decision.PASSED, "")
        assert verdict.launches in LOOKS

    @pytest.mark.parametrize("metric", [Metric.WALL, Metric.TAIL])
    def test_p_values_are_those_of_the_moderated_test(self, metric: str) -> None:
        """Failures are judged at the bound of the metric's own spread, passes at the expected one."""
        rng, (margin, effect, _) = np.random.default_rng(52), metrics.row(metric).paired
        for _ in range(20):
            new, reference, errors = rng.lognormal(0.03, 0.05, 5), rng.lognormal(0, 0.05, 5), rng.uniform(0, 0.05, 5)
            verdict = decide.by_pairs(looked(new, reference, metric, errors=tuple(errors), floor=0.01))
            new, reference, errors = (each[: verdict.launches] for each in (new, reference, errors))
            shifts, spread = np.log(new / reference).tolist(), metrics.row(metric).spread
            scales = [moderated.deviations(shifts, errors.tolist(), by * spread) for by in (1, moderated.BOUND)]
            fail_limit = (1 + margin) * reference + 0.01
            above = np.log(new / fail_limit)
            own = verdict.launches >= decide.FEWEST_TO_FAIL
            assert verdict.p_fail == pytest.approx(moderated.p_above(above.tolist(), scales[1], own=own))
            below = np.log(np.maximum((1 + effect) * reference, fail_limit) / new)
            assert verdict.p_pass == pytest.approx(moderated.p_above(below.tolist(), scales[0]))
            assert verdict.ratio is not None
            assert verdict.ratio.low < verdict.ratio.value < verdict.ratio.high
            scores = (np.array(shifts) - math.log(verdict.ratio.value)) / scales[0]
            assert scores.clip(-moderated.CLIP, moderated.CLIP).sum() == pytest.approx(0, abs=1e-6)

    def test_a_pair_whose_turns_scatter_counts_for_less(self) -> None:
        quiet, wild = (decide.by_pairs(constant(1.12, 4, errors=(error,) * 4)) for error in (0.0, 0.2))
        assert quiet.decision in (Decision.REGRESSED, Decision.SUSPECT)
        assert wild.decision is Decision.INCONCLUSIVE
        assert wild.ruled_out is not None
        assert quiet.ruled_out is not None
        assert wild.ruled_out > 1.5 * quiet.ruled_out

    def test_the_state_of_the_machine_that_both_share_does_not_matter(self) -> None:
        rng = np.random.default_rng(53)
        plain = constant(1.1, 8)
        weather = rng.lognormal(0, 1, 8)
        moved = looked(np.array(plain.new) * weather, np.array(plain.reference) * weather)
        one, other = decide.by_pairs(plain), decide.by_pairs(moved)
        assert one.decision is other.decision is Decision.REGRESSED
        assert one.launches == other.launches
        assert one.p_fail == pytest.approx(other.p_fail)

    def test_the_unit_does_not_matter(self) -> None:
        for comparison in series(1.05, 13, rows=20):
            new, reference = (tuple(1e-9 * value for value in side) for side in (comparison.new, comparison.reference))
            small = decide.by_pairs(msgspec.structs.replace(comparison, new=new, reference=reference))
            large = decide.by_pairs(comparison)
            assert small.decision is large.decision
            assert small.p_fail == pytest.approx(large.p_fail, rel=1e-6)
            assert small.p_pass == pytest.approx(large.p_pass, rel=1e-6)

    def test_exchanging_the_sides_exchanges_worse_and_better(self) -> None:
        """At levels without a pass, at which an improvement is judged as a regression is."""
        seen = set()
        for at, ratio in enumerate((0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.3)):
            for there in series(ratio, 16, rows=8, seed=54 + at, beta=0.0, final=False):
                back = msgspec.structs.replace(there, new=there.reference, reference=there.new)
                one, other = decide.by_pairs(there).decision, decide.by_pairs(back).decision
                seen.add(one)
                assert (one is Decision.REGRESSED) == (other is Decision.IMPROVED)
                assert (one is Decision.IMPROVED) == (other is Decision.REGRESSED)
        assert seen == {Decision.REGRESSED, Decision.IMPROVED, Decision.INCONCLUSIVE}


def test_what_pairs_differ_by_is_rounded_to_twelve_digits_of_the_larger_side() -> None:
    assert decide.pair_differences([1e6 + 1e-7, 1e6 + 3e-6], [1e6, 1e6]) == pytest.approx([0.0, 3e-6])
    assert decide.pair_differences([1e-13, 3e-12], [0.0, 0.0]) == pytest.approx([0.0, 3e-12])


class TestNothingToCompare:
    def test_no_reference(self) -> None:
        verdict = decide.by_pairs(looked([1.0], []))
        assert (verdict.decision, of_metric(verdict)) == (Decision.NO_BASELINE, "the reference gave no value")

    @pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
    def test_no_positive_number_is_an_error(self, value: float) -> None:
        for side, comparison in (("new", looked([1, value], [1, 1])), ("reference", looked([1, 1], [1, value]))):
            verdict = decide.by_pairs(comparison)
            assert verdict.decision is Decision.ERROR
            assert of_metric(verdict) == f"a {side} launch gave wall = {value} ns: not a positive number"

    @pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
    def test_no_share_is_an_error(self, value: float) -> None:
        verdict = decide.by_pairs(looked([0.0, value], [0.1, 0.1], Metric.LOCK_WAIT))
        assert verdict.decision is Decision.ERROR
        assert f"lock_wait = {value} ns: not a number of 0 or more" in of_metric(verdict)

    def test_no_new_value_is_an_error(self) -> None:
        verdict = decide.by_pairs(looked([], [1.0]))
        assert (verdict.decision, of_metric(verdict)) == (Decision.ERROR, "no new launch gave a value of wall")


def beyond(count: int, level: float, spread: float) -> float:
    """How far beyond a limit, as a log, pairs of the same ratio must lie, by SciPy."""
    freedom = moderated.PRIOR_FREEDOM + count - 1
    deviation = spread * math.sqrt(moderated.PRIOR_FREEDOM / freedom)
    return float(t.isf(level, freedom)) * deviation / math.sqrt(count)


class TestBoundaries:
    """Just inside and just outside of each limit, at counts whose earlier looks decide nothing."""

    STEP = 1e-6
    SPREAD = metrics.row(Metric.WALL).spread

    @pytest.mark.parametrize(("count", "least"), [(3, 1.02 * (1 + decide.EARLY)), (5, 1.02), (8, 1.02), (20, 1.02)])
    def test_regressed(self, count: int, least: float) -> None:
        level = alpha_spending.last_look(ALPHA, BETA, count).alpha
        limit = math.log(least) + beyond(count, level, moderated.BOUND * self.SPREAD)
        for step, regresses in ((-self.STEP, False), (self.STEP, True)):
            verdict = decide.by_pairs(constant(math.exp(limit + step), count))
            assert (verdict.decision is Decision.REGRESSED) == regresses
            assert verdict.launches == count

    @pytest.mark.parametrize("count", [4, 8, 20])
    def test_passed(self, count: int) -> None:
        level = next(
            look.beta for look in alpha_spending.planned_looks(ALPHA, BETA, at_most=80) if look.launches == count
        )
        limit = math.log(1.05) - beyond(count, level, self.SPREAD)
        for step, passes in ((-self.STEP, True), (self.STEP, False)):
            verdict = decide.by_pairs(constant(math.exp(limit + step), count, final=False))
            assert verdict.decision is (Decision.PASSED if passes else Decision.INCONCLUSIVE)
            assert verdict.launches == count

    @pytest.mark.parametrize("count", [3, 8])
    def test_improved_by_the_margin(self, count: int) -> None:
        level = alpha_spending.last_look(ALPHA, 0.0, count).alpha
        limit = math.log(1.02) + beyond(count, level, moderated.BOUND * self.SPREAD)
        for step, decision in ((self.STEP, Decision.IMPROVED), (-self.STEP, Decision.INCONCLUSIVE)):
            assert decide.by_pairs(constant(math.exp(-limit - step), count, beta=0.0)).decision is decision

    def test_suspect(self) -> None:
        """Between the level of a regression and five times it, where the change is beyond the effect."""
        bound = moderated.BOUND * self.SPREAD
        nearer, farther = (
            math.log(1.02) + beyond(5, level, bound)
            for level in (decide.suspect_level(ALPHA), alpha_spending.last_look(ALPHA, BETA, 5).alpha)
        )
        assert nearer > math.log(1.05)
        for log, decision in (
            (nearer - self.STEP, Decision.INCONCLUSIVE),
            (nearer + self.STEP, Decision.SUSPECT),
            (farther - self.STEP, Decision.SUSPECT),
            (farther + self.STEP, Decision.REGRESSED),
        ):
            assert decide.by_pairs(constant(math.exp(log), 5)).decision is decision

    def test_on_both_limits_at_once_nothing_settles_it(self) -> None:
        verdict = decide.by_pairs(constant(1.05, 80, margin=0.05, effect=0.05))
        assert verdict.decision is Decision.INCONCLUSIVE
        assert verdict.more is None
        assert of_metric(verdict).endswith(
            "more pairs are unlikely to settle it; try a longer workload or a quieter machine"
        )

    def test_at_the_margin_even_eighty_equal_pairs_do_not_fail(self) -> None:
        assert decide.by_pairs(constant(1.02, 80)).decision is Decision.PASSED

    def test_a_floor_moves_the_limits(self) -> None:
        """A millisecond that does not matter is no reason to stay undecided at two."""
        new, reference = [2.4e6] * 8, [2e6] * 8
        assert decide.by_pairs(looked(new, reference, floor=1e6)).decision is Decision.PASSED
        assert decide.by_pairs(looked(new, reference)).decision is Decision.REGRESSED


class TestMemory:
    def test_a_large_share_of_little_memory_does_not_fail(self) -> None:
        stored = [1e6 + 4096.0 * pair for pair in range(8)]
        new = [value + 0.9 * PAGES for value in stored]
        assert decide.by_pairs(looked(new, stored, Metric.USS)).decision is Decision.PASSED
        assert decide.by_pairs(looked(new, stored)).decision is Decision.REGRESSED

    def test_beyond_margin_and_floor_fails(self) -> None:
        stored = [20e6 + 4096.0 * pair for pair in range(8)]
        verdict = decide.by_pairs(looked([value + 8 * 2**20 for value in stored], stored, Metric.USS))
        assert (verdict.decision, verdict.launches) == (Decision.REGRESSED, 5)
        assert "beyond +3.3 %" in of_metric(verdict)

    def test_the_limit_is_the_margin_plus_the_floor(self) -> None:
        limit, count = 1.02 * 20e6 + PAGES, 20
        step = beyond(
            count, alpha_spending.last_look(ALPHA, BETA, count).alpha, moderated.BOUND * metrics.row(Metric.USS).spread
        )
        for log, regresses in ((step - 1e-6, False), (step + 1e-6, True)):
            verdict = decide.by_pairs(looked([limit * math.exp(log)] * count, [20e6] * count, Metric.USS))
            assert (verdict.decision is Decision.REGRESSED) == regresses

    def test_the_same_memory_passes_and_much_less_improves(self) -> None:
        for new, decision in ((20e6, Decision.PASSED), (20e6 - PAGES, Decision.PASSED), (12e6, Decision.IMPROVED)):
            assert decide.by_pairs(looked([new] * 4, [20e6] * 4, Metric.USS)).decision is decision


class TestGains:
    def test_a_fall_regresses_and_reads_as_one(self) -> None:
        verdict = decide.by_pairs(constant(0.7, 8, metric=Metric.SCALING))
        assert verdict.decision is Decision.REGRESSED
        assert verdict.points is None
        assert verdict.ratio is not None
        assert verdict.ratio.low < verdict.ratio.value < verdict.ratio.high
        assert verdict.ratio.value == pytest.approx(0.7)
        assert of_metric(verdict).startswith("-30 % is beyond -2 %: p = ")

    def test_a_rise_improves(self) -> None:
        verdict = decide.by_pairs(constant(1.4, 8, metric=Metric.SCALING))
        assert verdict.decision is Decision.IMPROVED
        assert of_metric(verdict).startswith("+40 % is above +2 %: p = ")

    def test_is_the_verdict_of_the_inverse(self) -> None:
        for comparison in series(1.06, 16, rows=30, noise=0.05):
            new, reference = (tuple(1 / value for value in side) for side in (comparison.new, comparison.reference))
            walls = decide.by_pairs(comparison)
            gain = msgspec.structs.replace(comparison, metric=Metric.SCALING, new=new, reference=reference)
            ours = decide.by_pairs(gain)
            assert (ours.decision, ours.launches, ours.more) == (walls.decision, walls.launches, walls.more)
            assert ours.p_fail == pytest.approx(walls.p_fail, rel=1e-6)
            assert ours.ratio is not None
            assert walls.ratio is not None
            assert ours.ratio.value == pytest.approx(1 / walls.ratio.value)
            assert (ours.ratio.low, ours.ratio.high) == pytest.approx((1 / walls.ratio.high, 1 / walls.ratio.low))

    def test_an_open_one_reads_from_the_good_side(self) -> None:
        verdict = decide.by_pairs(constant(0.95, 4, metric=Metric.SCALING, final=False))
        assert verdict.decision is Decision.INCONCLUSIVE
        ended = decide.by_pairs(constant(0.97, 4, metric=Metric.SCALING))
        assert re.match(r"rules out -\d+(\.\d)? %; ", of_metric(ended))
        assert ended.ruled_out is not None
        assert ended.ruled_out > 0.05

    def test_no_scaling_at_all_is_an_error(self) -> None:
        verdict = decide.by_pairs(looked([1.0, 0.0], [1.0, 1.0], Metric.SCALING))
        assert of_metric(verdict) == "a new launch gave scaling = 0.0 ns: not a positive number"


class TestLockWaitShare:
    @pytest.mark.parametrize(
        ("before", "now", "decision"),
        [
            (0.0, 0.0, "passed"),
            (0.0, 0.005, "passed"),
            (0.0, 0.06, "regressed"),
            (0.0, 0.45, "regressed"),
            (0.1, 0.1, "passed"),
            (0.1, 0.4, "regressed"),
            (0.4, 0.1, "improved"),
            (0.06, 0.0, "improved"),
        ],
    )
    def test_what_is_clear_needs_few_launches(self, before: float, now: float, decision: str) -> None:
        """Waits come in convoys: fewer than five pairs fail nothing."""
        verdict = decide.by_pairs(looked([now] * 12, [before] * 12, Metric.LOCK_WAIT))
        assert verdict.decision is Decision(decision)
        assert verdict.launches == 5 if decision == "regressed" else verdict.launches <= 4
        assert verdict.ratio is None
        assert verdict.points is not None
        assert verdict.points.value == pytest.approx(now - before)
        assert verdict.points.low <= verdict.points.value <= verdict.points.high

    def test_the_limits_are_in_points_of_the_share(self) -> None:
        """1.25 of it and a point; a point more is added before the logarithm."""
        count, spread = 20, metrics.row(Metric.LOCK_WAIT).spread
        limit = math.log(1.25 * 0.1 + 0.01 + 0.01)
        step = beyond(count, alpha_spending.last_look(ALPHA, 0.0, count).alpha, moderated.BOUND * spread)
        for log, regresses in ((step - 1e-6, False), (step + 1e-6, True)):
            now = math.exp(limit + log) - 0.01
            verdict = decide.by_pairs(looked([now] * count, [0.1] * count, Metric.LOCK_WAIT, beta=0.0))
            assert (verdict.decision is Decision.REGRESSED) == regresses

    def test_reasons_are_points(self) -> None:
        worse = decide.by_pairs(looked([0.25] * 8, [0.1] * 8, Metric.LOCK_WAIT))
        assert of_metric(worse).startswith("+15 points is beyond +3.5 points: p = ")
        better = decide.by_pairs(looked([0.01] * 8, [0.1] * 8, Metric.LOCK_WAIT))
        assert of_metric(better).startswith("-9 points is below -1.2 points: p = ")
        assert of_metric(decide.by_pairs(looked([0.1] * 8, [0.1] * 8, Metric.LOCK_WAIT))) == ""

    def test_shares_of_mostly_nothing(self) -> None:
        rng = np.random.default_rng(57)
        reference = np.where(rng.random(40) < 0.7, 0.0, 0.004)
        for new, decision in (
            (np.zeros(40), Decision.PASSED),
            (np.where(rng.random(40) < 0.7, 0.0, 0.004), Decision.PASSED),
            (reference + 0.06, Decision.REGRESSED),
        ):
            verdict = decide.by_pairs(looked(new, reference, Metric.LOCK_WAIT))
            assert verdict.decision is decision
            assert verdict.points is not None
            assert verdict.points.value == pytest.approx(np.median(new - reference), abs=0.01)

    def test_many_zeros_pass_and_ask_for_more_work(self) -> None:
        new, reference = (0.0, 0.0, 0.001), (0.004, 0.0, 0.0)
        verdict = decide.by_pairs(looked(new, reference, Metric.LOCK_WAIT))
        assert verdict.decision is Decision.PASSED
        expected = "2 of 3 launches and 2 of 3 reference launches had no waits: use a longer workload"
        assert of_metric(verdict) == expected

    def test_waits_in_most_launches_or_in_none_ask_for_nothing(self) -> None:
        for new in ((0.0, 0.0, 0.0), (0.0, 0.001, 0.002), (0.001, 0.001, 0.001)):
            assert of_metric(decide.by_pairs(looked(new, (0.0,) * 3, Metric.LOCK_WAIT))) == ""

    def test_an_open_one_says_so_in_points(self) -> None:
        verdict = decide.by_pairs(looked((0.12, 0.2, 0.16), (0.1, 0.12, 0.11), Metric.LOCK_WAIT))
        assert verdict.decision is Decision.INCONCLUSIVE
        assert re.match(r"rules out \+12\.1 points; \+7\.5 points needs about \d+ more pairs", of_metric(verdict))

    def test_an_open_one_also_says_that_waits_are_rare(self) -> None:
        verdict = decide.by_pairs(looked((0.0, 0.0, 0.2), (0.0,) * 3, Metric.LOCK_WAIT))
        assert verdict.decision is Decision.INCONCLUSIVE
        assert of_metric(verdict).endswith("; 2 of 3 launches had no waits: use a longer workload")

    @pytest.mark.parametrize("spread", [0.1, 0.2])
    def test_unchanged_waits_pass(self, spread: float) -> None:
        rng = np.random.default_rng(44)
        decisions = []
        for _ in range(100):
            new, reference = 0.15 * rng.lognormal(0, spread / math.sqrt(2), (2, 40))
            decisions.append(decide.by_pairs(looked(new, reference, Metric.LOCK_WAIT)).decision)
        assert set(decisions) <= {Decision.PASSED, Decision.INCONCLUSIVE}
        assert decisions.count(Decision.PASSED) >= 98

    def test_at_the_limit_it_fails_no_more_often_than_alpha(self) -> None:
        rng, failed = np.random.default_rng(45), 0
        for _ in range(400):
            new, reference = 1.25 * rng.gamma(40, 0.002, 8) + 0.01, rng.gamma(40, 0.002, 8)
            comparison = looked(new, reference, Metric.LOCK_WAIT, alpha=0.05)
            failed += decide.by_pairs(comparison).decision is Decision.REGRESSED
        assert failed <= 20 + 3 * math.sqrt(400 * 0.05 * 0.95)


KIB = 1024
GROWS, NOT_AT_ALL = [32 * KIB] * 6, [0.0] * 6


class TestZero:
    """What may be 0 is compared as a difference; what a workload counts as a ratio, with a part of the largest."""

    @pytest.mark.parametrize(
        ("metric", "worse"),
        [("growth", 32 * KIB), ("lock_hold_p95", 2.8e6), ("gil_wait_p95", 5e6), ("errors", 3.0), ("garbage", 500.0)],
    )
    def test_what_was_0_has_become_worse(self, metric: str, worse: float) -> None:
        floor = metrics.row(metric).paired.floor * (1e9 if metrics.row(metric).unit == "time" else 1)
        verdict = decide.by_pairs(looked([worse] * 6, NOT_AT_ALL, metric, floor=floor))
        assert verdict.decision is Decision.REGRESSED
        assert verdict.points is not None
        assert verdict.points.value == pytest.approx(worse)
        assert decide.by_pairs(looked(NOT_AT_ALL, [worse] * 6, metric, floor=floor)).decision is Decision.IMPROVED
        assert decide.by_pairs(looked(NOT_AT_ALL, NOT_AT_ALL, metric, floor=floor)).decision is Decision.PASSED

    def test_it_is_said_in_its_unit(self) -> None:
        verdict = decide.by_pairs(looked(GROWS, NOT_AT_ALL, "growth"))
        assert of_metric(verdict).startswith("+32.0 KiB is beyond +12.0 KiB: p ")

    def test_a_leak_that_grows_by_less_than_its_floor_passes(self) -> None:
        pages = [4.0 * KIB, 8.0 * KIB, 0.0, 4.0 * KIB, 0.0, 4.0 * KIB]
        assert decide.by_pairs(looked(pages, NOT_AT_ALL, "growth")).decision is Decision.PASSED

    def test_a_counter_that_stands_still_has_become_worse_and_one_that_moves_again_better(self) -> None:
        counted = [1000.0, 1010.0, 990.0, 1005.0, 1000.0, 1002.0]
        stopped = decide.by_pairs(looked(NOT_AT_ALL, counted, "counter.inserts"))
        assert (stopped.decision, of_metric(stopped)[:5]) == (Decision.REGRESSED, "-99 %")
        assert decide.by_pairs(looked(counted, NOT_AT_ALL, "counter.inserts")).decision is Decision.IMPROVED
        assert decide.by_pairs(looked(NOT_AT_ALL, NOT_AT_ALL, "counter.inserts")).decision is Decision.PASSED

    def test_a_peak_that_was_0_has_become_worse(self) -> None:
        assert decide.by_pairs(looked([5.0] * 6, NOT_AT_ALL, "peak.depth")).decision is Decision.REGRESSED

    def test_a_zero_in_a_later_pair_changes_no_earlier_look(self) -> None:
        before = looked([2000.0] * 12, [1000.0] * 12, "peak.depth")
        after = looked([*before.new, 0.0], [*before.reference, 0.0], "peak.depth")
        assert decide.by_pairs(after).ratio == decide.by_pairs(before).ratio


class TestFewPairs:
    def test_one_pair_decides_nothing(self) -> None:
        for ratio in (0.01, 1.0, 1.25, 1000.0):
            for final in (False, True):
                verdict = decide.by_pairs(constant(ratio, 1, final=final))
                assert verdict.decision is Decision.INCONCLUSIVE
                assert verdict.launches == 1
                assert verdict.more is None or verdict.more + 1 in LOOKS

    @pytest.mark.parametrize("hypotheses", [1, 8, 200])
    @pytest.mark.parametrize("ratio", [1.25, 4.0, 1000.0])
    def test_what_one_pair_shows_is_beyond_the_effect_and_two_show_it(self, hypotheses: int, ratio: float) -> None:
        """A launch that was disturbed makes one such pair; beside one that was not it says nothing."""
        alpha = 0.01 / hypotheses
        one, beside = (decide.by_pairs(looked(new, [1.0] * len(new), alpha=alpha)) for new in ([ratio], [ratio, 1.0]))
        assert [one.decision, beside.decision] == [Decision.INCONCLUSIVE] * 2
        assert [one.beyond, beside.beyond] == [True, False]
        assert of_metric(one).startswith("the estimate +")
        if ratio >= 4:
            assert decide.by_pairs(looked([ratio] * 2, [1.0] * 2, alpha=alpha)).decision is Decision.REGRESSED

    def test_two_pairs_decide_what_is_obvious_if_no_more_follow(self) -> None:
        for ratio, decision in (
            (1.5, Decision.SUSPECT),
            (2.5, Decision.REGRESSED),
            (19.0, Decision.REGRESSED),
            (0.5, Decision.IMPROVED),
        ):
            assert decide.by_pairs(constant(ratio, 2)).decision is decision

    @pytest.mark.parametrize("hypotheses", [1, 2, 5, 8, 60])
    @pytest.mark.parametrize("times", [1.5, 10.0, 1000.0])
    @pytest.mark.parametrize("count", [3, 4, 5, 8])
    def test_a_single_disturbed_pair_does_not_fail(self, hypotheses: int, times: float, count: int) -> None:
        """Wherever it comes, beside pairs that lie at the effect."""
        for at in range(count):
            new = [times if pair == at else 1.02 + 0.005 * pair for pair in range(count)]
            for final in (False, True):
                verdict = decide.by_pairs(looked(new, [1.0] * count, alpha=0.01 / hypotheses, final=final))
                assert verdict.decision not in (Decision.REGRESSED, Decision.SUSPECT)

    @pytest.mark.parametrize("hypotheses", [1, 2, 5, 8])
    def test_nor_one_of_two(self, hypotheses: int) -> None:
        for new in ((1.01, 10.0), (1.5, 1.0)):
            verdict = decide.by_pairs(looked(new, [1.0, 1.0], alpha=0.01 / hypotheses))
            assert verdict.decision is Decision.INCONCLUSIVE

    @pytest.mark.parametrize("count", [2, 3, 4])
    @pytest.mark.parametrize("ratio", [1.1, 1.3, 1.6])
    def test_a_disturbed_reference_passes_and_improves_nothing(self, ratio: float, count: int) -> None:
        for at in range(count):
            reference = [50.0 if pair == at else 1.0 for pair in range(count)]
            verdict = decide.by_pairs(looked([ratio] * count, reference, alpha=0.01))
            assert verdict.decision not in (Decision.PASSED, Decision.IMPROVED)
        unchanged = decide.by_pairs(looked([1.0] * 3, [1.0, 50.0, 1.0], alpha=0.01))
        assert unchanged.decision not in (Decision.IMPROVED, Decision.REGRESSED, Decision.SUSPECT)

    def test_a_disturbed_pair_hides_no_obvious_regression(self) -> None:
        for wild in (0.01, 1.0, 100.0):
            verdict = decide.by_pairs(looked([2.0, 2.1, wild, 1.9, 2.0, 2.05], [1.0] * 6))
            assert verdict.decision in (Decision.REGRESSED, Decision.SUSPECT)


class TestSuspect:
    @staticmethod
    def suspected(count: int = 3) -> Comparison:
        """Pairs between the level of a regression and that of a suspect."""
        alpha, spread = 0.01 / 20, moderated.BOUND * metrics.row(Metric.WALL).spread
        limits = [beyond(count, level, spread) for level in (alpha, decide.suspect_level(alpha))]
        return constant(1.02 * math.exp(fmean(limits)), count, alpha=alpha)

    @pytest.mark.parametrize("count", [2, 3])
    def test_time_that_ends_leaves_a_suspect_and_what_would_settle_it(self, count: int) -> None:
        verdict = decide.by_pairs(self.suspected(count))
        assert verdict.decision is Decision.SUSPECT
        level = decide.suspect_level(0.01 / 20)
        assert re.match(r"\+\S+ % is beyond \+2 %: p = ", of_metric(verdict))
        assert f" p = {verdict.p_fail:.2g}, limit {level:.2g}; " in of_metric(verdict)
        assert verdict.more is not None
        assert count + verdict.more in LOOKS
        plural = "" if verdict.more == 1 else "s"
        assert of_metric(verdict).endswith(f"; about {verdict.more} more pair{plural} would settle it")

    def test_while_more_pairs_may_follow_nothing_is_suspect(self) -> None:
        verdict = decide.by_pairs(msgspec.structs.replace(self.suspected(), final=False))
        assert verdict.decision is Decision.INCONCLUSIVE

    @pytest.mark.parametrize(("of_it", "decision"), [(0.99, Decision.SUSPECT), (1.01, Decision.INCONCLUSIVE)])
    def test_within_the_effect_nothing_is_suspect(self, of_it: float, decision: Decision) -> None:
        """Beyond the margin at that level, but no change that was asked for."""
        comparison = self.suspected()
        effect = of_it * comparison.new[0] / comparison.reference[0] - 1
        limits = comparison.limits._replace(effect=effect)
        found = decide.by_pairs(msgspec.structs.replace(comparison, limits=limits))
        assert found.decision is decision
        assert found.p_fail is not None
        assert comparison.alpha < found.p_fail < decide.suspect_level(comparison.alpha)

    def test_an_open_one_says_whether_its_estimate_is_beyond_the_effect(self) -> None:
        """Of little noise: +10 % that few pairs cannot decide is beyond the effect, no change never is."""
        slower, unchanged = (verdicts(ratio, 3, rows=100, noise=0.03) for ratio in (1.1, 1.0))
        assert sum(each.beyond for each in slower) > 0.5 * len(slower)
        assert not any(each.beyond for each in unchanged)
        open_one = next(each for each in slower if each.beyond)
        assert open_one.decision is Decision.INCONCLUSIVE
        assert of_metric(open_one).startswith("the estimate +")

    @pytest.mark.parametrize(
        ("inside", "outside"),
        [
            (constant(1.08, 2), constant(1.12, 2)),
            (constant(1 / 1.08, 2, metric=Metric.SCALING), constant(1 / 1.12, 2, metric=Metric.SCALING)),
            (
                looked([0.13] * 2, [0.08] * 2, metric=Metric.LOCK_WAIT),
                looked([0.16] * 2, [0.08] * 2, metric=Metric.LOCK_WAIT),
            ),
        ],
    )
    def test_beyond_is_beyond_the_effect(self, inside: Comparison, outside: Comparison) -> None:
        assert [decide.by_pairs(each).beyond for each in (inside, outside)] == [False, True]
        assert not decide.by_pairs(msgspec.structs.replace(outside, final=False)).beyond  # more pairs may follow

    def test_what_only_explains_is_not_beyond_without_a_worse_time(self) -> None:
        beyond = [
            MetricVerdict(metric=metric, decision=Decision.INCONCLUSIVE, beyond=True)
            for metric in (Metric.SCALING, Metric.WALL)
        ]
        assert [each.beyond for each in decide.explained(beyond)] == [False, True]
        assert decide.worst_of(beyond).beyond
        worse = msgspec.structs.replace(beyond[1], metric=Metric.TAIL, decision=Decision.REGRESSED, beyond=False)
        assert not decide.worst_of([beyond[0], worse]).beyond

    def test_the_level(self) -> None:
        assert decide.suspect_level(0.001) == 0.005
        assert decide.suspect_level(0.01) == 0.02
        assert decide.suspect_level(0.05) == 0.05

    @pytest.mark.parametrize("of", [normal, heavy])
    @pytest.mark.parametrize("count", [2, 3, 5])
    def test_unchanged_is_seldom_suspect(self, of: Noise, count: int) -> None:
        found = verdicts(1.0, count, rows=400, of=of)
        assert share_of(Decision.SUSPECT, found) + share_of(Decision.REGRESSED, found) <= 0.005

    @pytest.mark.parametrize("ratio", [1.5, 2.0, 20.0])
    def test_an_obvious_regression_never_ends_inconclusive(self, ratio: float) -> None:
        for count in (2, 3, 4):
            found = verdicts(ratio, count, rows=50)
            assert share_of(Decision.REGRESSED, found) + share_of(Decision.SUSPECT, found) == 1


class TestLooks:
    @pytest.mark.parametrize("ratio", [0.9, 1.0, 1.03, 1.05, 1.1])
    def test_a_decision_is_frozen(self, ratio: float) -> None:
        frozen = 0
        for whole in series(ratio, 40, rows=5, seed=59, final=False):
            first = None
            for count in (1, 2, 3, 4, 5, 6, 7, 9, 13, 15, 16, 20, 23, 26, 32, 39, 40):
                part = msgspec.structs.replace(whole, new=whole.new[:count], reference=whole.reference[:count])
                for final in (False, True) if first else (False,):
                    verdict = decide.by_pairs(msgspec.structs.replace(part, final=final))
                    assert first is None or verdict == first
                first = None if verdict.decision is Decision.INCONCLUSIVE else verdict
            if first:
                frozen += 1
                assert first.launches in LOOKS
        assert frozen >= (2 if ratio in (1.03, 1.05) else 5)

    @pytest.mark.parametrize("count", [7, 9])
    def test_between_looks_nothing_is_decided_and_at_the_end_what_is_left_is_spent(self, count: int) -> None:
        level = alpha_spending.last_look(ALPHA, BETA, count).alpha
        log = math.log(1.02) + beyond(count, level, moderated.BOUND * metrics.row(Metric.WALL).spread)
        going_on, ended = (decide.by_pairs(constant(math.exp(log + 1e-6), count, final=each)) for each in (False, True))
        assert going_on.decision is Decision.INCONCLUSIVE
        assert (ended.decision, ended.launches) == (Decision.REGRESSED, count)
        assert of_metric(ended).endswith(f"limit {level:.2g}")

    def test_which_looks_are_due(self) -> None:
        def due(there: int, *, final: bool, at_most: int = 80) -> list[int]:
            return [look.launches for look in decide.due(there, ALPHA, BETA, at_most, final=final)]

        assert due(7, final=False) == [2, 3, 4, 5, 6]
        assert due(7, final=True) == [2, 3, 4, 5, 6, 7]
        assert due(8, final=True) == due(8, final=False) == [2, 3, 4, 5, 6, 8]
        assert due(1, final=True) == due(0, final=True) == due(1, final=False) == []
        assert due(7, final=False, at_most=7) == [2, 3, 4, 5, 6, 7]
        final = [look for look in decide.due(8, ALPHA, BETA, 80, final=True) if look.launches == 8]
        assert final == [alpha_spending.last_look(ALPHA, BETA, 8)]

    def test_no_more_is_advised_than_there_are_looks(self) -> None:
        advised = 0
        for count in (1, 3, 6, 9, 14, 22, 33):
            for ratio in (0.9, 1.0, 1.04, 1.1):
                (comparison,) = series(ratio, count, seed=61, final=False)
                verdict = decide.by_pairs(comparison)
                if verdict.decision is not Decision.INCONCLUSIVE:
                    assert verdict.more is None
                elif verdict.more is not None:
                    advised += 1
                    assert count + verdict.more in LOOKS
                    assert f" about {verdict.more} more pair" in of_metric(verdict)
        assert advised >= 8

    def test_the_advised_number_settles_it(self) -> None:
        """For most of the series whose first pairs say about what is true."""
        settled = tried = 0
        for whole in series(1.10, 80, rows=150, seed=62, final=False):
            early = decide.by_pairs(msgspec.structs.replace(whole, new=whole.new[:4], reference=whole.reference[:4]))
            if early.more is None or early.ratio is None or abs(early.ratio.value - 1.10) > 0.01:
                continue
            count = 4 + early.more
            later = msgspec.structs.replace(whole, new=whole.new[:count], reference=whole.reference[:count])
            tried, settled = tried + 1, settled + (decide.by_pairs(later).decision is not Decision.INCONCLUSIVE)
        assert tried >= 30
        assert settled >= 0.6 * tried

    def test_never_a_nan(self) -> None:
        rng = np.random.default_rng(65)
        for count in (1, 2, 3, 5, 16):
            for new, reference in (
                (np.ones(count), np.ones(count)),
                (np.full(count, 1e-300), np.full(count, 1e300)),
                (np.full(count, 1e300), np.full(count, 1e-300)),
                (rng.integers(1, 3, count).astype(float), rng.integers(1, 3, count).astype(float)),
            ):
                for final in (False, True):
                    verdict = decide.by_pairs(looked(new, reference, final=final))
                    assert verdict.p_fail is not None
                    assert verdict.p_pass is not None
                    assert verdict.ratio is not None
                    assert 0 < verdict.p_fail <= 1
                    assert 0 < verdict.p_pass <= 1
                    assert 0 < verdict.ratio.low <= verdict.ratio.value <= verdict.ratio.high < math.inf
                    assert "nan" not in of_metric(verdict)


@pytest.mark.parametrize("of", [normal, heavy])
class TestPromises:
    """By seeded series: pairs with a noise of 4 %, at eight hypotheses, of at most 80 pairs."""

    def test_obvious_changes_fail_at_once(self, of: Noise) -> None:
        double, quarter = (verdicts(ratio, 12, rows=300, of=of, final=False) for ratio in (2.0, 1.25))
        for found in (double, quarter):
            assert share_of(Decision.REGRESSED, found) == 1
        assert fmean(verdict.launches <= 3 for verdict in double) >= 0.99
        assert fmean(verdict.launches <= 5 for verdict in quarter) >= 0.9

    def test_ten_percent_fails_soon(self, of: Noise) -> None:
        found = verdicts(1.10, rows=200, of=of, seed=71)
        assert share_of(Decision.REGRESSED, found) >= 0.99
        assert median(verdict.launches for verdict in found) <= 13

    def test_unchanged_passes_soon(self, of: Noise) -> None:
        found = verdicts(1.0, rows=300, of=of, seed=72)
        assert share_of(Decision.REGRESSED, found) == share_of(Decision.SUSPECT, found) == 0
        assert share_of(Decision.PASSED, found) >= 0.99
        assert median(verdict.launches for verdict in found) <= 5
        assert fmean(verdict.launches for verdict in found) <= 8

    def test_five_percent_is_hardly_ever_missed(self, of: Noise) -> None:
        found = verdicts(1.05, rows=150, of=of, seed=73)
        assert share_of(Decision.PASSED, found) <= BETA + 3 * math.sqrt(BETA * (1 - BETA) / 150)
        assert share_of(Decision.REGRESSED, found) >= 0.85

    def test_at_the_margin_it_fails_no_more_often_than_alpha(self, of: Noise) -> None:
        found = verdicts(1.02, 20, rows=250, of=of, seed=74, alpha=0.05, beta=0.0)
        assert share_of(Decision.REGRESSED, found) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 250)

    def test_noise_beyond_what_is_stated_raises_no_alarm(self, of: Noise) -> None:
        """Ten percent, more than twice what is stated of a wall time."""
        found = verdicts(1.0, 20, rows=250, of=of, noise=0.10, seed=75)
        failed = share_of(Decision.REGRESSED, found) + share_of(Decision.SUSPECT, found)
        assert failed <= 0.012


class TestRuledOut:
    """What a verdict says that it rules out is what decides a pass."""

    NOISE = st.floats(0.001, 0.15)
    CHANGE = st.floats(-0.3, 0.3)
    COUNT = st.integers(1, 12)
    SEED = st.integers(0, 2**32 - 1)
    EFFECT = st.sampled_from((0.03, 0.05, 0.0517, 0.15, 0.5, 1.2))
    METRIC = st.sampled_from((Metric.WALL, Metric.TAIL, Metric.USS, Metric.SCALING, Metric.LOCK_WAIT))

    @staticmethod
    def comparison(metric: str, noise: float, change: float, count: int, seed: int, **fields: Any) -> Comparison:
        rng = np.random.default_rng(seed)
        reference = 0.2 * rng.lognormal(0, 0.1, count)
        new = reference * np.exp(change + noise * rng.normal(size=count))
        return looked(new, reference, metric, **{"margin": 0.02, "floor": 0.0, **fields})

    @pytest.mark.parametrize(
        ("rejected_from", "effect", "expected"),
        [
            (0.07, 0.05, 0.07),
            (0.0001, 0.05, 0.01),
            (0.0517, 0.0517, 0.0517),
            (0.0517, 0.05, 0.06),
            (WIDEST - 1, 0.05, WIDEST - 1),
            (WIDEST - 0.99, 0.05, None),
        ],
    )
    def test_it_is_the_smallest_whole_percent_that_is_rejected_or_the_effect_itself(
        self, rejected_from: float, effect: float, expected: float | None
    ) -> None:
        costs = looked([1.0] * 3, [1.0] * 3, margin=0.0, floor=0.0, effect=effect)
        assert decide.ruled_out(costs, costs.reference, lambda each: each >= rejected_from) == expected

    @given(METRIC, NOISE, CHANGE, COUNT, SEED, EFFECT)
    def test_a_metric_passes_if_and_only_if_its_effect_is_ruled_out(
        self, metric: str, noise: float, change: float, count: int, seed: int, effect: float
    ) -> None:
        comparison = self.comparison(metric, noise, change, count, seed, effect=effect)
        verdict = decide.by_pairs(comparison)
        costs = decide.seen(as_costs(comparison), verdict.launches)
        asked = worse_by(costs, costs.reference, effect)
        if verdict.decision is Decision.PASSED:
            assert verdict.ruled_out is not None
            assert verdict.ruled_out <= asked
        elif verdict.decision in (Decision.INCONCLUSIVE, Decision.SUSPECT):
            assert verdict.ruled_out is None or verdict.ruled_out > asked
        if verdict.ruled_out is not None and verdict.ratio is not None:  # what is seen is never ruled out
            seen = 1 / verdict.ratio.value if metrics.is_gain(metric) else verdict.ratio.value
            assert 1 + verdict.ruled_out > seen
        said = re.search(r"rules out ([+-][\d.]+)", of_metric(verdict))
        assert said is None or verdict.decision is Decision.INCONCLUSIVE
        if said and verdict.ruled_out is not None and not metrics.by_difference(metric):
            worse = 1 + verdict.ruled_out
            change_of = (1 / worse if metrics.is_gain(metric) else worse) - 1
            assert float(said[1]) == pytest.approx(100 * change_of, abs=0.06)

    @given(METRIC, NOISE, CHANGE, COUNT, SEED)
    def test_a_stricter_level_rules_out_less(
        self, metric: str, noise: float, change: float, count: int, seed: int
    ) -> None:
        costs = as_costs(self.comparison(metric, noise, change, count, seed, effect=0.05))
        expected = decide.deviations(costs)

        def ruled_out(level: float) -> float:
            found = decide.ruled_out(costs, costs.reference, lambda each: decide.p_pass(costs, each, expected) <= level)
            return math.inf if found is None else found

        found = [ruled_out(level) for level in (1e-6, 1e-4, 0.01, 0.04, 0.2)]
        assert found == sorted(found, reverse=True)

    def test_it_is_the_smallest_whole_percent(self) -> None:
        verdict = decide.by_pairs(constant(1.0, 4, effect=0.031))
        level, costs = alpha_spending.last_look(ALPHA, BETA, 4).beta, constant(1.0, 4)
        expected = decide.deviations(costs)
        assert verdict.decision is Decision.INCONCLUSIVE
        assert verdict.ruled_out == pytest.approx(round(verdict.ruled_out or 0, 2))
        assert decide.p_pass(costs, verdict.ruled_out or 0, expected) <= level
        assert decide.p_pass(costs, (verdict.ruled_out or 0) - 0.01, expected) > level

    def test_an_open_metric_says_what_it_rules_out_and_what_its_effect_needs(self) -> None:
        verdict = decide.by_pairs(constant(1.0, 2, pair_s=5.0))
        assert (
            of_metric(verdict)
            == f"rules out +6 %; +5 % needs about {verdict.more} more pairs, {5 * (verdict.more or 0)} s"
        )
        worse = decide.by_pairs(constant(1.1, 3, pair_s=60.0))
        assert of_metric(worse) == (
            "the estimate +10 % is worse than the effect +5 %; rules out +16 %; whether it exceeds +2 % shows after "
            f"about {worse.more} more pairs, {worse.more} min"
        )

    def test_one_pair_rules_out_nothing(self) -> None:
        verdict = decide.by_pairs(constant(1.0, 1, effect=0.5))
        assert (verdict.decision, verdict.ruled_out) == (Decision.INCONCLUSIVE, None)
        assert of_metric(verdict) == f"1 pair rules out nothing; +50 % needs about {verdict.more} more pairs"

    def test_noise_never_widens_the_effect(self) -> None:
        """13 % slower in two noisy pairs, with an interval from -26 % to +32 %, passed as `judged at +25 %`."""
        for noise in (0.05, 0.1, 0.2):
            for verdict in verdicts(1.13, 2, rows=200, noise=noise, seed=83):
                assert verdict.decision is not Decision.PASSED or (verdict.ruled_out or 1) <= 0.05
        passed = [share_of(Decision.PASSED, verdicts(1.13, 4, rows=200, noise=noise)) for noise in (0.05, 0.1)]
        assert max(passed) <= BETA


class TestScatter:
    """Pairs that scatter more than is stated of their metric."""

    def test_they_are_said_to_with_both_modes(self) -> None:
        modes = [11.2e6, 14.0e6]
        new, reference = ([modes[(pair // by) % 2] * (1 + 0.001 * pair) for pair in range(12)] for by in (1, 2))
        verdict = decide.by_pairs(looked(new, reference))
        assert verdict.decision is Decision.INCONCLUSIVE
        said = re.match(
            r"its pairs scatter by (\S+) %, more than is expected: in two modes, (.+?);", of_metric(verdict)
        )
        assert said is not None
        assert float(said[1]) == pytest.approx(100 * np.std(np.log(np.divide(new, reference))), rel=0.3)
        assert said[2] == "11.3 ms and 14.1 ms"

    def test_what_is_compared_by_difference_has_their_unit(self) -> None:
        convoys = [0.01, 0.2, 0.2, 0.01, 0.01, 0.2, 0.01, 0.2], [0.2, 0.01, 0.2, 0.2, 0.01, 0.01, 0.2, 0.01]
        verdict = decide.by_pairs(looked(*convoys, Metric.LOCK_WAIT))
        assert verdict.decision is Decision.INCONCLUSIVE
        assert re.match(r"its pairs scatter by \S+ points, .*: in two modes, 1.0 % and 20.0 %", of_metric(verdict))

    @pytest.mark.parametrize("of", [normal, heavy])
    def test_few_that_scatter_as_is_stated_are_said_to(self, of: Noise) -> None:
        found = verdicts(1.0, 40, rows=300, of=of, noise=metrics.row(Metric.WALL).spread)
        assert sum("scatter" in of_metric(each) for each in found) <= 0.05 * len(found)

    def test_noise_that_nobody_stated_neither_passes_nor_fails(self) -> None:
        """Launches that differ by 14 %: by the weight of the stated deviation 19 % of +6 % passed."""
        for ratio, wrong in ((1.0, Decision.REGRESSED), (1.06, Decision.PASSED)):
            assert share_of(wrong, verdicts(ratio, 20, rows=400, noise=0.2, seed=91)) <= 0.06

    def test_few_launches_in_two_modes_fail_nothing(self) -> None:
        """In each of four pairs the new side may be the slow one by chance; what is larger than modes fails."""
        assert decide.by_pairs(constant(1.4, 4)).decision is Decision.SUSPECT
        assert decide.by_pairs(constant(2.2, 3)).decision is Decision.REGRESSED


class TestImproved:
    """What improves needs the evidence of what regresses."""

    def test_it_is_the_mirror_of_regressed(self) -> None:
        for count in (2, 3, 5, 8):
            for ratio in (1.05, 1.1, 1.15, 1.2, 1.3):
                worse, better = decide.by_pairs(constant(ratio, count)), decide.by_pairs(constant(1 / ratio, count))
                if better.decision is Decision.IMPROVED:
                    assert worse.decision is (Decision.REGRESSED if count >= 5 else Decision.SUSPECT)
                    assert better.p_fail is not None
                elif worse.decision is Decision.REGRESSED:
                    assert better.decision is Decision.PASSED  # at an earlier look

    def test_unchanged_improves_no_more_often_than_alpha(self) -> None:
        assert share_of(Decision.IMPROVED, verdicts(1.0, 20, rows=400, seed=66)) <= 0.005

    @pytest.mark.parametrize("count", [2, 3, 5])
    @pytest.mark.parametrize("turns", [3, 12])
    def test_a_machine_whose_speed_moves_makes_neither(self, turns: int, count: int) -> None:
        """The iterations of both sides take turns while the speed drifts 5.5-fold within a launch, up and down.

        Three iterations show their own scatter poorly, so alpha holds only nearly. By that of a pass 4 % did improve.
        """
        rng, found = np.random.default_rng(84), []
        for _ in range(250):
            pairs = []
            for _ in range(count):
                ends = rng.uniform(0, math.log(5.5), 7)
                ends[rng.integers(7)], ends[rng.integers(7)] = 0.0, math.log(5.5)
                places = np.linspace(0, 6, 2 * turns)
                drift = np.interp(places, np.arange(7), ends) + 0.05 * rng.normal(size=2 * turns)
                sides = [1e7 * np.exp(drift[at::2]) for at in rng.permutation(2)]
                pairs.append(comparisons.neighbour_pair(*(tuple(side.tolist()) for side in sides)))
            new, reference, errors = zip(*(pair[:3] for pair in pairs), strict=True)
            found.append(decide.by_pairs(looked(new, reference, errors=errors)))
        for decision in (Decision.IMPROVED, Decision.REGRESSED):
            assert share_of(decision, found) <= (0.001 if turns == 12 else 0.015)


class TestRequire:
    TEXT = "threads.wall < 0.8 * serial.wall"

    def required(self, values: list[float], *, final: bool = False, correlation: float = 0.0) -> MetricVerdict:
        alpha = decide.split_alpha(0.01, 60)
        return decide.require(
            values, text=self.TEXT, alpha=alpha, beta=BETA, at_most=40, final=final, correlation=correlation
        )

    @pytest.mark.parametrize("correlation", [0.0, 0.6])
    def test_met_or_missed_five_times_over_needs_few_rounds(self, correlation: float) -> None:
        for value, decision in ((-math.log(5), Decision.PASSED), (math.log(5), Decision.BROKEN)):
            verdict = self.required([value] * 40, correlation=correlation)
            assert (verdict.metric, verdict.contract) == (Metric.CONTRACT, self.TEXT)
            assert verdict.decision is decision
            assert verdict.launches <= (6 if correlation and decision is Decision.BROKEN else 3)
        ended = self.required([math.log(5)] * 3, final=True, correlation=correlation)
        assert ended.decision is Decision.BROKEN
        assert self.required([-math.log(5)] * 2, final=True, correlation=correlation).decision is Decision.PASSED

    def test_neither_holds_nor_breaks(self) -> None:
        verdict = self.required([0.0] * 40)
        assert (verdict.decision, verdict.launches) == (Decision.INCONCLUSIVE, 40)
        assert of_metric(verdict).startswith("it held in 0 of 40 rounds; more rounds are unlikely to settle it")

    def test_says_why_it_is_broken(self) -> None:
        verdict = self.required([1.6, 1.5, 1.7, 1.6])
        assert re.fullmatch(
            rf"it did not hold in {verdict.launches} of {verdict.launches} rounds: p = \S+, limit \S+",
            of_metric(verdict),
        )

    def test_is_the_test_of_pairs_against_nothing(self) -> None:
        rng = np.random.default_rng(68)
        for _ in range(30):
            values = rng.normal(rng.normal(0, 0.1), 0.1, 3)
            verdict = decide.require(list(values), text="", alpha=1e-9, beta=1e-9)
            scales = moderated.deviations(values.tolist(), (), decide.CONTRACT_SPREAD)
            assert verdict.p_fail == pytest.approx(moderated.p_above(values.tolist(), scales))
            opposite = decide.require(list(-values), text="", alpha=1e-9, beta=1e-9)
            assert (verdict.p_fail, verdict.p_pass) == pytest.approx((opposite.p_pass, opposite.p_fail))

    def test_no_launch_gave_a_value(self) -> None:
        verdict = self.required([])
        assert (verdict.decision, of_metric(verdict)) == (Decision.INCONCLUSIVE, "no launch gave a value")
        assert verdict.contract == self.TEXT

    def test_a_factor_of_one_and_a_half_passes_in_one_round_and_breaks_in_two(self) -> None:
        step = math.log(1.5)
        assert self.required([-step]).decision is Decision.PASSED
        assert self.required([step]).decision is Decision.INCONCLUSIVE
        assert self.required([step, step]).decision is Decision.BROKEN
        assert self.required([-step, step]).decision is Decision.PASSED  # what is decided stays decided

    def test_figures_that_drift_need_more_rounds(self) -> None:
        for value in (-math.log(1.5), math.log(1.5)):
            assert self.required([value] * 2, correlation=0.6).decision is Decision.INCONCLUSIVE

    def test_contracts_at_the_limit_hardly_ever_break_or_pass(self) -> None:
        """At a spread as large as is assumed; what is decided of a contract that is barely met is an error."""
        rng = np.random.default_rng(72)
        decisions = Counter(
            self.required(rng.normal(0, decide.CONTRACT_SPREAD, 20).tolist()).decision for _ in range(500)
        )
        assert decisions[Decision.BROKEN] == 0
        assert decisions[Decision.PASSED] <= 0.06 * 500

    def test_one_round_breaks_nothing_and_is_beyond_where_it_is_far_out(self) -> None:
        for value, final, beyond in ((0.1, True, False), (2.0, True, True), (2.0, False, False)):
            verdict = self.required([value], final=final)
            assert (verdict.decision, verdict.beyond) == (Decision.INCONCLUSIVE, beyond)
        suspect = self.required([0.25, 0.25, 0.24], final=True)
        assert (suspect.decision, suspect.beyond) == (Decision.SUSPECT, False)

    def test_a_decision_is_frozen(self) -> None:
        rng = np.random.default_rng(69)
        for mean in (-0.1, 0.0, 0.1):
            values, first = rng.normal(mean, 0.08, 40).tolist(), None
            for count in range(1, 41):
                verdict = self.required(values[:count])
                assert first is None or verdict == first
                first = None if verdict.decision is Decision.INCONCLUSIVE else verdict
            assert (first is not None) == (mean != 0)

    def test_time_that_ends_leaves_a_suspect_and_what_would_settle_it(self) -> None:
        values = [0.26, 0.25, 0.24]
        going_on, ended = (self.required(values, final=final) for final in (False, True))
        assert going_on.decision is Decision.INCONCLUSIVE
        assert ended.decision is Decision.SUSPECT
        assert ended.more is not None
        assert 3 + ended.more in LOOKS
        plural = "" if ended.more == 1 else "s"
        assert of_metric(ended) == f"it held in 0 of 3 rounds; about {ended.more} more round{plural} would settle it"

    def test_what_breaks_needs_more_rounds_than_what_holds(self) -> None:
        """A false alarm is to be rarer than a pass that misses something."""
        breaks, holds = (self.required([value] * 2) for value in (0.1, -0.1))
        assert breaks.more is not None
        assert holds.more is not None
        assert breaks.more > holds.more

    def test_correlated_rounds_say_less(self) -> None:
        values = [0.4, 0.41, 0.42, 0.4]
        alone, drifting = (self.required(values, correlation=each) for each in (0.0, 0.6))
        assert alone.decision is Decision.BROKEN
        assert drifting.decision is Decision.INCONCLUSIVE
        assert drifting.more is not None

    @pytest.mark.parametrize("correlation", [0.0, 0.6])
    def test_breaks_no_more_often_than_alpha(self, correlation: float) -> None:
        """At the limit, in rounds whose neighbours are alike, as heavy tails have it."""
        rng, broken = np.random.default_rng(70), 0
        for steps in rng.standard_t(3, (300, 12)) * 0.1 / math.sqrt(3):
            values = [steps[0]]
            for step in steps[1:]:
                values.append(correlation * values[-1] + math.sqrt(1 - correlation**2) * step)
            verdict = decide.require(values, text="", alpha=0.05, beta=0.0, at_most=12, correlation=correlation)
            broken += verdict.decision is Decision.BROKEN
        assert broken <= 15 + 3 * math.sqrt(300 * 0.05 * 0.95)


class TestRefused:
    @pytest.mark.parametrize("level", [decide.COST_LEVEL, 0.94])
    def test_a_slow_probe_refuses_with_its_figures(self, level: float) -> None:
        verdict = decide.refused(Metric.LOCK_WAIT, Interval(value=1.42, low=1.3, high=1.5, level=level), 0.25)
        assert verdict is not None
        assert (verdict.metric, verdict.decision) == (Metric.LOCK_WAIT, Decision.INCONCLUSIVE)
        assert of_metric(verdict).startswith(
            "the lock probe slowed it 1.42x (limit 1.25x, ftgate_probe_cost): the waits are not the workload's alone"
        )

    def test_noise_and_nothing_refuse_nothing(self) -> None:
        for low in (0.9, 1.2, 1.25):
            assert decide.refused(Metric.LOCK_WAIT, Interval(value=1.42, low=low, high=9.0, level=0.94), 0.25) is None
        assert decide.refused(Metric.USS, None, 0.02) is None

    def test_every_metric_names_what_looked(self) -> None:
        cost = Interval(value=2.0, low=1.9, high=2.1, level=0.95)
        found = {metric: decide.refused(metric, cost, 0.25) for metric in Metric}
        assert all(
            verdict is not None and "slowed it 2.00x (limit 1.25x, ftgate_probe_cost)" in of_metric(verdict)
            for verdict in found.values()
        )
        memory = found[Metric.USS]
        assert memory is not None
        assert of_metric(memory).startswith("memory sampling slowed it")


def metric(decision: Decision, kind: str = Metric.WALL, reason: str = "", ratio: float | None = None) -> MetricVerdict:
    """A verdict; of a `ratio` the interval reaches one percent to both sides."""
    interval = None if ratio is None else Interval(value=ratio, low=ratio - 0.01, high=ratio + 0.01, level=0.95)
    return MetricVerdict(metric=kind, decision=decision, reasons=told(reason), ratio=interval)


class TestJudge:
    @pytest.mark.parametrize(
        ("decisions", "worst"),
        [
            ("passed passed", "passed"),
            ("passed unchanged", "unchanged"),
            ("passed improved", "improved"),
            ("improved inconclusive", "inconclusive"),
            ("inconclusive suspect", "suspect"),
            ("suspect broken", "broken"),
            ("suspect regressed", "regressed"),
            ("inconclusive regressed", "regressed"),
            ("inconclusive broken", "broken"),
            ("broken regressed", "regressed"),
            ("regressed error", "regressed"),
            ("suspect error", "suspect"),
            ("error accepted", "error"),
            ("passed no_baseline", "passed"),
            ("inconclusive no_baseline", "inconclusive"),
            ("no_baseline no_baseline", "no_baseline"),
            ("no_baseline unsupported", "no_baseline"),
            ("", "no_baseline"),
        ],
    )
    def test_the_worst_decides(self, decisions: str, worst: str) -> None:
        metrics = [metric(Decision[name.upper()]) for name in decisions.split()]
        assert decide.worst_of(metrics).decision is Decision[worst.upper()]
        assert decide.worst_of(metrics[::-1]).decision is Decision[worst.upper()]

    def test_every_decision_has_its_place(self) -> None:
        of_a_metric = [each for each in Decision if each not in (Decision.XFAILED, Decision.XPASSED)]
        assert [decide.worst_of([metric(decision)]).decision for decision in of_a_metric] == of_a_metric

    def test_the_reason_is_that_of_what_decided(self) -> None:
        metrics = [
            metric(Decision.REGRESSED, Metric.WALL, "slow"),
            metric(Decision.REGRESSED, Metric.USS, "large"),
            metric(Decision.INCONCLUSIVE, Metric.WALL, "who knows"),
        ]
        verdict = decide.worst_of(metrics, Basis(baseline="baselines/test_x.json", commit="abc"))
        assert of_cell(verdict) == "wall: slow; uss: large"
        assert verdict.metrics == tuple(metrics)
        assert (verdict.basis, verdict.why) == ("", "")
        assert (verdict.baseline, verdict.commit) == ("baselines/test_x.json", "abc")

    def test_a_contract_is_named_by_its_text_and_the_road_is_kept(self) -> None:
        broken = MetricVerdict(
            metric=Metric.CONTRACT, decision=Decision.BROKEN, reasons=told("no"), contract="scaling > 1.6"
        )
        verdict = decide.worst_of([broken], Basis(basis="paired", why="asked for"))
        assert of_cell(verdict) == "scaling > 1.6: no"
        assert (verdict.basis, verdict.why) == ("paired", "asked for")


class TestExplained:
    """Figures that are derived from times fail together with the cell's own time alone."""

    FAILING = (Decision.REGRESSED, Decision.SUSPECT)
    DERIVED = tuple(name for name in metrics.NAMES if metrics.row(name).explains)

    def test_which_they_are(self) -> None:
        assert self.DERIVED == (Metric.SCALING, "efficiency", "cores", "process_cores")
        assert not set(self.DERIVED) & set(metrics.GATING)

    @pytest.mark.parametrize("name", DERIVED)
    @pytest.mark.parametrize("decision", FAILING)
    def test_a_cell_whose_time_is_no_worse_passes(self, name: str, decision: Decision) -> None:
        """One worker 37 % faster, two workers unchanged: scaling falls, and nothing got worse."""
        for time in (metric(Decision.PASSED, ratio=1.005), metric(Decision.IMPROVED, ratio=0.8)):
            verdict = decide.worst_of([time, metric(decision, name, "-37 % is beyond -2 %", ratio=0.63)])
            assert verdict.decision is time.decision
            found = verdict.metrics[1]
            assert found.decision is Decision.PASSED
            assert of_metric(found) == "-37 % is beyond -2 %; the cell's own time is not worse"
            assert found.ratio is not None

    @pytest.mark.parametrize("name", DERIVED)
    @pytest.mark.parametrize("decision", FAILING)
    def test_it_fails_with_a_time_that_is_worse(self, name: str, decision: Decision) -> None:
        """Worse by its interval, though noise leaves the time itself undecided: scaling lends its steadiness."""
        for time in (Decision.INCONCLUSIVE, Decision.PASSED, Decision.REGRESSED):
            verdicts = [metric(time, ratio=1.02), metric(decision, name, "fell", ratio=0.9)]
            assert decide.explained(verdicts) == verdicts
        assert decide.worst_of([metric(Decision.INCONCLUSIVE, ratio=1.02), metric(decision, name)]).decision is decision

    @pytest.mark.parametrize("name", DERIVED)
    def test_without_a_known_time_it_is_inconclusive(self, name: str) -> None:
        derived = metric(Decision.REGRESSED, name, "fell", ratio=0.9)
        for others in ([], [metric(Decision.INCONCLUSIVE, ratio=1.0)], [metric(Decision.REGRESSED, Metric.USS)]):
            found = decide.explained([*others, derived])[-1]
            assert (found.decision, of_metric(found)) == (
                Decision.INCONCLUSIVE,
                "fell; no time is known to be worse",
            )

    def test_what_is_measured_itself_fails_alone(self) -> None:
        time = metric(Decision.PASSED, ratio=0.9)
        for name in (Metric.TAIL, Metric.USS, Metric.LOCK_WAIT, "latency_p99", "timer.x", "peak.x", Metric.CONTRACT):
            for decision in (*self.FAILING, Decision.BROKEN):
                assert decide.worst_of([time, metric(decision, name)]).decision is decision

    @pytest.mark.parametrize("name", DERIVED)
    def test_what_does_not_fail_is_kept(self, name: str) -> None:
        for decision in set(Decision) - set(self.FAILING):
            verdicts = [metric(Decision.PASSED, ratio=1.0), metric(decision, name, "as it was", ratio=0.9)]
            assert decide.explained(verdicts) == verdicts

    def test_where_no_time_got_worse_no_run_fails(self) -> None:
        """Whatever the derived figures say, of a time that reads better or equal."""
        rng = np.random.default_rng(78)
        for _ in range(200):
            decision = rng.choice([Decision.PASSED, Decision.IMPROVED, Decision.INCONCLUSIVE])
            times = [metric(Decision(decision), ratio=float(rng.uniform(0.5, 1.0)))]
            derived = [metric(Decision(rng.choice(list(self.FAILING))), str(name)) for name in self.DERIVED]
            assert decide.worst_of([*times, *derived]).decision not in self.FAILING


def test_split_alpha() -> None:
    assert decide.split_alpha(0.01, 20) == 0.0005
    assert decide.split_alpha(0.01, 0) == 0.01


class TestExact:
    """What has one value in all launches of the same code is judged without a test."""

    def judged(self, new: list[float], reference: list[float], *, final: bool = False) -> MetricVerdict:
        given: Any = {"alpha": 0.01, "beta": 0.01, "at_most": 12, "limits": Limits(0.05, 0.1, 256.0), "final": final}
        return decide.by_pairs(
            Comparison(metric="payload", new=tuple(new), reference=tuple(reference), unit="bytes", **given)
        )

    def test_a_pair_passes_and_two_fail(self) -> None:
        assert self.judged([1000.0], [1000.0]).decision is Decision.PASSED
        assert self.judged([1306.0], [1000.0]).decision is Decision.PASSED
        worse = self.judged([1307.0], [1000.0])
        assert (worse.decision, worse.more) == (Decision.INCONCLUSIVE, 1)
        assert self.judged([1307.0], [1000.0], final=True).decision is Decision.SUSPECT
        failed = self.judged([1307.0] * 2, [1000.0] * 2)
        assert failed.decision is Decision.REGRESSED
        assert failed.points == Interval(value=307.0, low=307.0, high=307.0, level=0.0)

    def test_much_less_improves(self) -> None:
        assert self.judged([0.0], [0.0]).decision is Decision.PASSED
        assert self.judged([1000.0], [1305.0]).decision is Decision.PASSED
        assert self.judged([1000.0], [1e6]).decision is Decision.IMPROVED

    def test_a_few_bytes_more_or_less_are_one_value(self) -> None:
        assert self.judged([1000.0, 1009.0], [1000.0, 991.0]).decision is Decision.PASSED
        assert self.judged([5000.0, 5040.0], [1000.0, 991.0]).decision is Decision.REGRESSED

    def test_what_varies_after_all_is_tested(self) -> None:
        varied = self.judged([5000.0, 1000.0], [1000.0, 1000.0])
        assert varied.decision is Decision.INCONCLUSIVE
        assert varied.p_fail is not None
        assert self.judged([5000.0 + each for each in range(6)], [1000.0] * 6).decision is Decision.REGRESSED
