"""Verdicts on scripted launches, at their boundaries, and on seeded noise."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from pytest_ftgate import gate, stats
from pytest_ftgate.model import Comparison, Decision, Metric, MetricVerdict

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
        unit="x candle",
        margin=margin,
        effect=effect,
        alpha=alpha,
        beta=beta,
    )


def uss(new: tuple[float, ...], reference: tuple[float, ...]) -> Comparison:
    return Comparison(
        metric=Metric.USS, new=new, reference=reference, unit="B", margin=0.02, effect=0.10, floor=PAGES, alpha=0.0005
    )


def times(factor: float, count: int = 8) -> tuple[float, ...]:
    return tuple(factor * value for value in STORED[:count])


class TestCompare:
    def test_slower_regresses(self) -> None:
        verdict = gate.compare(wall(times(1.3)))
        assert verdict.decision is Decision.REGRESSED
        assert verdict.p_fail == pytest.approx(stats.smallest_p(8, 12))
        assert verdict.ratio is not None
        assert verdict.ratio.low < 1.3 < verdict.ratio.high
        assert verdict.ratio.value == pytest.approx(1.3, abs=0.01)
        assert verdict.ratio.level >= 0.95
        assert verdict.reason == "+30 % is beyond +2 %; p of at most 0.0005 fails"

    def test_faster_improves(self) -> None:
        verdict = gate.compare(wall(times(0.8)))
        assert verdict.decision is Decision.IMPROVED
        assert verdict.p_pass is not None
        assert verdict.p_pass <= 0.0025
        assert "below -2 %: p = 8e-06" in verdict.reason

    def test_the_same_passes_without_a_word(self) -> None:
        verdict = gate.compare(wall(times(1.0)))
        assert (verdict.decision, verdict.reason) == (Decision.PASSED, "")

    def test_nothing_stored(self) -> None:
        assert gate.compare(wall(times(1.0), ())).decision is Decision.NO_BASELINE

    @pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
    def test_no_positive_number_is_an_error(self, value: float) -> None:
        for comparison in (wall((1.0, value)), wall(times(1.0), (1.0, value))):
            verdict = gate.compare(comparison)
            assert verdict.decision is Decision.ERROR
            assert f"wall = {value}" in verdict.reason

    def test_no_new_value_is_an_error(self) -> None:
        verdict = gate.compare(wall(()))
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
        verdict = gate.compare(wall((7.3 * ratio,) * 8, (7.3,) * 12))
        assert verdict.decision is decision
        assert verdict.p_fail is not None
        assert not math.isnan(verdict.p_fail)

    def test_on_both_limits_at_once_nothing_settles_it(self) -> None:
        verdict = gate.compare(wall((1.05,) * 8, (1.0,) * 12, margin=0.05, effect=0.05))
        assert verdict.decision is Decision.INCONCLUSIVE
        assert "more launches will hardly settle it" in verdict.reason

    def test_ties_on_the_fail_limit_do_not_fail(self) -> None:
        new = (1.5,) * 7 + (1.02,)
        assert gate.compare(wall(new, (1.0,) * 4, alpha=0.003)).decision is Decision.INCONCLUSIVE
        new = (1.5,) * 7 + (1.021,)
        assert gate.compare(wall(new, (1.0,) * 4, alpha=0.003)).decision is Decision.REGRESSED

    def test_too_few_launches_says_how_many(self) -> None:
        verdict = gate.compare(wall(times(1.3, 3), STORED[:8]))
        assert verdict.decision is Decision.INCONCLUSIVE
        needed = stats.launches_for(0.0005, 8)
        assert verdict.reason == f"3 launches against 8 stored cannot reach p <= 0.0005; {needed} would"
        more = wall(times(1.3, needed), STORED[:8])
        assert gate.compare(more).decision is Decision.REGRESSED

    def test_too_few_stored_asks_for_both_sides(self) -> None:
        verdict = gate.compare(wall(times(1.3, 1), STORED[:1]))
        assert verdict.reason == "1 launch against 1 stored cannot reach p <= 0.0005; 7 on both sides would"
        assert stats.smallest_p(7, 7) <= 0.0005 < stats.smallest_p(6, 6)

    def test_straddling_says_about_how_many(self) -> None:
        rng = np.random.default_rng(1)
        verdict = gate.compare(wall(tuple(np.exp(rng.normal(0.05, 0.04, 8))), tuple(np.exp(rng.normal(0, 0.04, 12)))))
        assert verdict.decision is Decision.INCONCLUSIVE
        match = re.search(
            r"the interval (\S+) % \.\. (\S+) % neither stays below .* nor lies above \+2 %", verdict.reason
        )
        assert match
        assert float(match[1]) <= 2
        asked = re.search(r"about (\d+) launches", verdict.reason)
        assert asked
        assert 8 < int(asked[1]) <= gate.MOST_LAUNCHES

    def test_the_advised_number_settles_it(self) -> None:
        """What is advised after an inconclusive look decides most of the runs that follow it."""
        rng = np.random.default_rng(2)
        settled = tried = 0
        while tried < 60:
            new, reference = np.exp(rng.normal(0.07, 0.02, 8)), np.exp(rng.normal(0, 0.02, 8))
            asked = re.search(
                r"about (\d+) launches( on both)?", gate.compare(wall(tuple(new), tuple(reference))).reason
            )
            if not asked:
                continue
            count = int(asked[1])
            reference = np.exp(rng.normal(0, 0.02, count)) if asked[2] else reference
            after = gate.compare(wall(tuple(np.exp(rng.normal(0.07, 0.02, count))), tuple(reference)))
            tried, settled = tried + 1, settled + (after.decision is Decision.REGRESSED)
        assert settled >= 0.6 * tried

    def test_the_unit_does_not_matter(self) -> None:
        for factor in (1.0, 1.03, 1.2):
            small = gate.compare(wall(times(factor)))
            large = gate.compare(wall(tuple(1e9 * v for v in times(factor)), tuple(1e9 * v for v in STORED)))
            assert (small.decision, small.p_fail, small.p_pass) == (large.decision, large.p_fail, large.p_pass)


class TestFloor:
    def test_a_large_share_of_little_memory_does_not_fail(self) -> None:
        stored = tuple(1e6 + 4096.0 * i for i in range(12))
        new = tuple(value + 0.9 * PAGES for value in stored[:8])
        assert gate.compare(uss(new, stored)).decision is not Decision.REGRESSED
        assert gate.compare(wall(new, stored)).decision is Decision.REGRESSED

    def test_beyond_margin_and_floor_fails(self) -> None:
        stored = tuple(20e6 + 4096.0 * i for i in range(12))
        verdict = gate.compare(uss(tuple(value + 8 * 2**20 for value in stored[:8]), stored))
        assert verdict.decision is Decision.REGRESSED
        assert "beyond +3.3 %" in verdict.reason

    def test_the_limit_is_the_margin_plus_the_floor(self) -> None:
        stored = (20e6,) * 12
        limit = 1.02 * 20e6 + PAGES
        assert gate.compare(uss((limit + 1,) * 8, stored)).decision is Decision.REGRESSED
        assert gate.compare(uss((limit,) * 8, stored)).decision is Decision.PASSED

    def test_the_same_memory_passes_and_much_less_improves(self) -> None:
        stored = (20e6,) * 12
        assert gate.compare(uss((20e6,) * 8, stored)).decision is Decision.PASSED
        assert gate.compare(uss((20e6 - PAGES,) * 8, stored)).decision is Decision.PASSED
        assert gate.compare(uss((12e6,) * 8, stored)).decision is Decision.IMPROVED


class TestReachableEffect:
    def test_quiet_sides_keep_the_effect(self) -> None:
        assert gate.reachable_effect(times(1.0), STORED, 0.05, 0.0025) == 0.05
        assert gate.reachable_effect((1.0,) * 8, (1.0,) * 12, 0.05, 0.0025) == 0.05

    def test_widens_by_whole_percents_up_to_the_cap(self) -> None:
        rng = np.random.default_rng(3)
        shape = rng.normal(0, 1, 20)
        widened = [
            gate.reachable_effect(np.exp(s * shape[:8]).tolist(), np.exp(s * shape[8:]).tolist(), 0.05, 0.0025)
            for s in (0.01, 0.03, 0.05, 0.07, 0.5)
        ]
        assert widened == sorted(widened)
        assert widened[0] == 0.05
        assert widened[-1] == gate.WIDEST_EFFECT
        assert all(100 * effect == pytest.approx(round(100 * effect)) for effect in widened)
        assert 0.05 < widened[1] < widened[2] < 0.25

    def test_is_blind_to_the_difference(self) -> None:
        rng = np.random.default_rng(4)
        new, reference = np.exp(rng.normal(0, 0.04, 8)), np.exp(rng.normal(0, 0.04, 12))
        effects = {
            gate.reachable_effect((new * f).tolist(), reference.tolist(), 0.05, 0.0025) for f in (0.5, 1, 1.1, 9)
        }
        assert len(effects) == 1
        assert effects.pop() > 0.05

    def test_too_few_launches_are_not_mended_by_widening(self) -> None:
        assert gate.reachable_effect((1.0, 3.0), (1.0, 2.0), 0.05, 0.01) == 0.05
        assert gate.reachable_effect((1.0,), (1.0,), 0.05, 0.01) == 0.05

    def test_a_wider_effect_than_the_cap_is_kept(self) -> None:
        assert gate.reachable_effect((1.0, 3.0, 2.0, 4.0), (1.0, 3.0, 2.0, 4.0), 0.4, 0.05) == 0.4

    @pytest.mark.parametrize(("sigma", "n", "m"), [(0.04, 8, 12), (0.03, 6, 8), (0.05, 20, 20)])
    def test_gives_an_unchanged_cell_a_fair_chance_and_says_so(self, sigma: float, n: int, m: int) -> None:
        rng = np.random.default_rng([n, m])
        passed = widened = 0
        for _ in range(200):
            sides = tuple(np.exp(rng.normal(0, sigma, n))), tuple(np.exp(rng.normal(0, sigma, m)))
            verdict = gate.compare(wall(*sides))
            passed += verdict.decision is Decision.PASSED
            widened += verdict.reason.startswith("judged at +")
        assert passed >= 0.6 * 200
        assert widened > 20

    def test_the_reason_names_the_widened_effect(self) -> None:
        rng = np.random.default_rng(6)
        new, reference = tuple(np.exp(rng.normal(0, 0.05, 8))), tuple(np.exp(rng.normal(0, 0.05, 12)))
        verdict = gate.compare(wall(new, reference))
        effect = gate.reachable_effect(new, reference, 0.05, 0.05 / 20)
        assert verdict.reason.startswith(f"judged at +{100 * effect:.0f} %: the noise hides +5 %")


class TestNoise:
    @pytest.mark.parametrize("sigma", [0.02, 0.04])
    def test_unchanged_hardly_ever_regresses(self, sigma: float) -> None:
        rng = np.random.default_rng(7)
        decisions = [
            gate.compare(wall(tuple(np.exp(rng.normal(0, sigma, 8))), tuple(np.exp(rng.normal(0, sigma, 12))))).decision
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
            failed += gate.compare(wall(tuple(new), tuple(reference), alpha=0.05)).decision is Decision.REGRESSED
        assert failed <= 50 + 3 * math.sqrt(1000 * 0.05 * 0.95)
        assert failed >= 20

    def test_thirty_percent_always_regresses(self) -> None:
        rng = np.random.default_rng(9)
        for _ in range(300):
            new, reference = 1.3 * np.exp(rng.normal(0, 0.03, 8)), np.exp(rng.normal(0, 0.03, 12))
            assert gate.compare(wall(tuple(new), tuple(reference))).decision is Decision.REGRESSED


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
        assert gate.judge(metrics).decision is Decision[worst.upper()]
        assert gate.judge(metrics[::-1]).decision is Decision[worst.upper()]

    def test_every_decision_has_its_place(self) -> None:
        assert [gate.judge([metric(decision)]).decision for decision in Decision] == list(Decision)

    def test_the_reason_is_that_of_what_decided(self) -> None:
        metrics = [
            metric(Decision.REGRESSED, Metric.WALL, "slow"),
            metric(Decision.REGRESSED, Metric.USS, "large"),
            metric(Decision.INCONCLUSIVE, Metric.WALL, "who knows"),
        ]
        verdict = gate.judge(metrics, baseline="baselines/test_x.json", commit="abc")
        assert verdict.reason == "wall: slow; uss: large"
        assert verdict.metrics == tuple(metrics)
        assert (verdict.baseline, verdict.commit) == ("baselines/test_x.json", "abc")


def test_split_alpha() -> None:
    assert gate.split_alpha(0.01, 0.05, 20) == (0.0005, 0.0025)
    assert gate.split_alpha(0.01, 0.05, 0) == (0.01, 0.05)
