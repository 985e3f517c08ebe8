"""Verdicts on scripted launches, at their boundaries, and on seeded noise."""

from __future__ import annotations

import math
import re

import msgspec
import numpy as np
import pytest

from pytest_ftgate import gate, stats
from pytest_ftgate.model import Comparison, Decision, Interval, Metric, MetricVerdict

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


class TestScaling:
    def test_a_fall_regresses_and_reads_as_one(self) -> None:
        verdict = gate.compare(scaling(times(0.8)))
        assert verdict.decision is Decision.REGRESSED
        assert verdict.points is None
        assert verdict.ratio is not None
        assert verdict.ratio.low < verdict.ratio.value < verdict.ratio.high
        assert verdict.ratio.value == pytest.approx(0.8, abs=0.01)
        assert verdict.reason == "-20 % is beyond -2 %; p of at most 0.0005 fails"

    def test_a_rise_improves(self) -> None:
        verdict = gate.compare(scaling(times(1.3)))
        assert verdict.decision is Decision.IMPROVED
        assert verdict.reason.startswith("+30 % is above +2 %: p = 8e-06")

    def test_the_same_passes_without_a_word(self) -> None:
        verdict = gate.compare(scaling(times(1.0)))
        assert (verdict.decision, verdict.reason) == (Decision.PASSED, "")

    @pytest.mark.parametrize(
        ("ratio", "decision"),
        [(1.0, "passed"), (1 / 1.02, "passed"), (1 / 1.021, "regressed"), (1.02, "passed"), (1.021, "improved")],
    )
    def test_without_variance_the_limits_are_sharp(self, ratio: float, decision: str) -> None:
        assert gate.compare(scaling((1.7 * ratio,) * 8, (1.7,) * 12)).decision is Decision(decision)

    def test_is_the_wall_verdict_of_the_inverse(self) -> None:
        rng = np.random.default_rng(41)
        for _ in range(50):
            new, reference = np.exp(rng.normal(rng.normal(0, 0.1), 0.03, 8)), np.exp(rng.normal(0, 0.03, 12))
            ours = gate.compare(scaling(tuple(new), tuple(reference)))
            walls = gate.compare(wall(tuple(1 / new), tuple(1 / reference)))
            assert (ours.decision, ours.p_fail, ours.p_pass) == (walls.decision, walls.p_fail, walls.p_pass)

    def test_a_straddling_interval_reads_from_the_good_side(self) -> None:
        rng = np.random.default_rng(1)
        new, reference = np.exp(rng.normal(-0.05, 0.05, 8)), np.exp(rng.normal(0, 0.05, 12))
        verdict = gate.compare(scaling(tuple(new), tuple(reference)))
        assert verdict.decision is Decision.INCONCLUSIVE
        pattern = r"interval (\S+) % \.\. (\S+) % neither stays above (\S+) % nor lies below -2 %"
        match = re.search(pattern, verdict.reason)
        assert match
        low, high, effect = map(float, match.groups())
        assert low <= effect < -4.8
        assert high >= -2
        assert f"judged at {match[3]} %: the noise hides -4.8 %" in verdict.reason

    def test_no_scaling_at_all_is_an_error(self) -> None:
        assert gate.compare(scaling((1.0, 0.0))).reason == "a new launch gave scaling = 0.0 x: not a positive number"


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
        verdict = gate.compare(share((now,) * 8, (before,) * 12))
        assert verdict.decision is Decision(decision)
        assert verdict.ratio is None
        assert verdict.points is not None
        assert verdict.points.value == pytest.approx(now - before)

    def test_reasons_are_points(self) -> None:
        worse = gate.compare(share((0.22,) * 8, (0.1,) * 12))
        assert worse.reason == "+12 points is beyond +3.5 points; p of at most 0.0005 fails"
        better = gate.compare(share((0.02,) * 8, (0.1,) * 12))
        assert better.reason == "-8 points is below -1.5 points: p = 8e-06, at most 0.0005 counts"
        assert gate.compare(share((0.1,) * 8, (0.1,) * 12)).reason == ""

    def test_the_p_values_are_those_of_the_moved_values(self) -> None:
        rng = np.random.default_rng(42)
        for _ in range(50):
            new = [max(0.0, round(wait, 2)) for wait in rng.normal(0.05, 0.05, 8).tolist()]
            reference = [max(0.0, round(wait, 2)) for wait in rng.normal(0.04, 0.05, 12).tolist()]
            verdict = gate.compare(share(tuple(new), tuple(reference)))
            assert verdict.p_fail == stats.mann_whitney(new, [1.25 * wait + 0.01 for wait in reference])
            limits = [1.5 * wait + 0.02 for wait in reference]
            assert verdict.p_pass == stats.mann_whitney(new, limits, alternative="less")
            differences = np.sort(np.subtract.outer(new, reference).ravel())
            assert verdict.points is not None
            assert verdict.points.value == pytest.approx(np.median(differences))
            assert verdict.points.low in differences
            assert verdict.points.high in differences

    def test_many_zeros_pass_and_ask_for_more_work(self) -> None:
        verdict = gate.compare(share((0.0,) * 6 + (0.001, 0.002), (0.0,) * 9 + (0.004,) * 3))
        assert verdict.decision is Decision.PASSED
        expected = "6 of 8 launches and 9 of 12 stored launches saw no wait: a longer workload would see more of it"
        assert verdict.reason == expected

    def test_waits_in_most_launches_or_in_none_ask_for_nothing(self) -> None:
        for new in ((0.0,) * 8, (0.0,) * 4 + (0.001,) * 4, (0.001,) * 8):
            assert gate.compare(share(new, (0.0,) * 12)).reason == ""

    def test_straddling_says_so_in_points_and_does_not_widen(self) -> None:
        rng = np.random.default_rng(43)
        new, reference = rng.uniform(0.05, 0.3, 8), rng.uniform(0.02, 0.25, 12)
        verdict = gate.compare(share(tuple(new), tuple(reference)))
        assert verdict.decision is Decision.INCONCLUSIVE
        middle = float(np.median(reference))
        match = re.search(r"neither stays below (\S+) points nor lies above (\S+) points; about", verdict.reason)
        assert match
        assert float(match[1]) == pytest.approx(100 * (0.5 * middle + 0.02), abs=0.051)
        assert float(match[2]) == pytest.approx(100 * (0.25 * middle + 0.01), abs=0.051)
        assert "judged at" not in verdict.reason

    def test_too_few_launches_and_rare_waits_are_both_said(self) -> None:
        verdict = gate.compare(share((0.0, 0.0, 0.2), (0.0,) * 8))
        assert verdict.decision is Decision.INCONCLUSIVE
        first, last = verdict.reason.split("; ")[0], verdict.reason.split("; ")[-1]
        assert first == "3 launches against 8 stored cannot reach p <= 0.0005"
        assert last == "2 of 3 launches saw no wait: a longer workload would see more of it"

    @pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
    def test_no_share_is_an_error(self, value: float) -> None:
        verdict = gate.compare(share((0.0, value), (0.1,)))
        assert verdict.decision is Decision.ERROR
        assert f"lock_wait_share = {value} of the workers' time: not a share of 0 or more" in verdict.reason

    @pytest.mark.parametrize(("spread", "passing"), [(0.1, 300), (0.3, 200), (0.6, 0)])
    def test_unchanged_hardly_ever_regresses(self, spread: float, passing: int) -> None:
        rng = np.random.default_rng(44)
        decisions = []
        for _ in range(300):
            waits = 0.15 * rng.lognormal(0, spread, 20)
            decisions.append(gate.compare(share(tuple(waits[:8]), tuple(waits[8:]))).decision)
        assert decisions.count(Decision.REGRESSED) <= 1
        assert decisions.count(Decision.IMPROVED) <= 1
        assert decisions.count(Decision.PASSED) >= passing

    def test_at_the_limit_it_fails_no_more_often_than_alpha(self) -> None:
        rng = np.random.default_rng(45)
        failed = 0
        for _ in range(1000):
            new, reference = 1.25 * rng.gamma(4, 0.02, 8) + 0.01, rng.gamma(4, 0.02, 8)
            comparison = msgspec.structs.replace(share(tuple(new), tuple(reference)), alpha=0.05)
            failed += gate.compare(comparison).decision is Decision.REGRESSED
        assert 20 <= failed <= 50 + 3 * math.sqrt(1000 * 0.05 * 0.95)


class TestRefused:
    def test_a_slow_probe_refuses_with_its_figures(self) -> None:
        verdict = gate.refused(Metric.LOCK_WAIT, Interval(value=1.42, low=1.3, high=1.5, level=0.94), 0.25)
        assert verdict is not None
        assert (verdict.metric, verdict.decision) == (Metric.LOCK_WAIT, Decision.INCONCLUSIVE)
        assert verdict.reason.startswith(
            "the lock probe made it 1.42x slower (limit 1.25x, --ftgate-probe-cost): its waits cannot stand"
        )

    def test_noise_and_nothing_refuse_nothing(self) -> None:
        for low in (0.9, 1.2, 1.25):
            assert gate.refused(Metric.LOCK_WAIT, Interval(value=1.42, low=low, high=9.0, level=0.94), 0.25) is None
        assert gate.refused(Metric.USS, None, 0.02) is None

    def test_every_metric_names_what_looked(self) -> None:
        cost = Interval(value=2.0, low=1.9, high=2.1, level=0.95)
        found = {metric: gate.refused(metric, cost, 0.25) for metric in Metric}
        assert all(
            verdict is not None and "2.00x slower (limit 1.25x, --ftgate-probe-cost)" in verdict.reason
            for verdict in found.values()
        )
        memory = found[Metric.USS]
        assert memory is not None
        assert memory.reason.startswith("being watched made it")


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
