"""Decisions from stored recordings: at their limits, on seeded noise, and when there are launches enough."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import t

from pytest_ftgate.judge import decide, metrics, prediction
from pytest_ftgate.judge.decide import MOVED, split_alpha, suspect_level
from pytest_ftgate.judge.limits import effective
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.verdict import Comparison, Decision, Limits, MetricVerdict
from pytest_ftgate.report.reasons import of_metric

STORED = (0.98, 1.01, 1.0, 0.99, 1.02, 1.0, 1.01, 0.985, 1.005, 0.995, 1.015, 0.99)
ALPHA, BETA = 5e-4, 0.04


def of(new: Sequence[float], metric: Metric = Metric.WALL, **fields: float) -> Comparison:
    """New launches with the limits of a screen of times; they only wait, so that days do not differ."""
    limits = Limits(*(fields.pop(name, usual) for name, usual in (("margin", 0.02), ("effect", 0.15), ("floor", 0.0))))
    given: dict[str, Any] = {"limits": limits, "alpha": ALPHA, "beta": BETA, "computing": 0.0, **fields}
    return Comparison(metric=metric, new=tuple(new), reference=(), unit="ns", **given)


def predict(comparison: Comparison, recordings: Sequence[Sequence[float]], moved: float = 0.0) -> MetricVerdict:
    """The decision on the new launches of a comparison from these recordings."""
    stored = tuple(tuple(each) for each in recordings)
    reference = tuple(value for each in stored for value in each)
    return prediction.predict(msgspec.structs.replace(comparison, recordings=stored, reference=reference), moved)


def share(new: Sequence[float]) -> Comparison:
    return of(new, Metric.LOCK_WAIT, margin=0.25, effect=0.5, floor=0.01, computing=1.0)


def times(factor: float, count: int = 8) -> tuple[float, ...]:
    return tuple(factor * value for value in STORED[:count])


def predicted(
    factor: float, recordings: Sequence[Sequence[float]], metric: Metric = Metric.WALL, **fields: float
) -> MetricVerdict:
    return predict(of(times(factor), metric, **fields), recordings)


class TestZero:
    def test_what_was_0_in_all_recordings_is_compared(self) -> None:
        nothing, limits = [[0.0] * 5, [0.0] * 5], metrics.row(Metric.GROWTH).apart._asdict()
        assert predict(of([32 * 1024.0] * 5, Metric.GROWTH, **limits), nothing).decision is Decision.REGRESSED
        assert predict(of([0.0] * 5, Metric.GROWTH, **limits), nothing).decision is Decision.PASSED


class TestLimits:
    def test_only_what_no_recording_would_do_fails_and_what_no_slower_one_would_passes(self) -> None:
        recordings = [times(factor) for factor in (0.97, 1.0, 1.03, 1.01)]
        for factor, decision in (
            (1.0, Decision.PASSED),
            (1.1, Decision.INCONCLUSIVE),
            (1.4, Decision.REGRESSED),
            (0.9, Decision.PASSED),
            (0.65, Decision.IMPROVED),
        ):
            verdict = predicted(factor, recordings)
            assert verdict.decision is decision
            assert verdict.ratio is not None
            assert verdict.ratio.low < factor / 1.0025 < verdict.ratio.high
        assert of_metric(predicted(1.0, recordings)) == ""

    def test_the_reason_says_how_many_and_how_far(self) -> None:
        verdict = predicted(1.08, [STORED, STORED], effect=0.1)
        match = re.fullmatch(
            r"stored figures hardly show so small a change; the figures of 2 days only show a change beyond \+(\S+) %",
            of_metric(verdict),
        )
        assert match
        assert verdict.decision is Decision.INCONCLUSIVE
        assert not verdict.beyond
        beyond = 1 + float(match[1]) / 100
        assert predicted(beyond + 0.01, [STORED, STORED], effect=0.1).decision is Decision.SUSPECT
        assert predicted(beyond - 0.01, [STORED, STORED], effect=0.1).decision is Decision.INCONCLUSIVE

    @pytest.mark.parametrize("factor", [1.0, 1.3])
    def test_it_says_how_many_more_days_decide(self, factor: float) -> None:
        """The days that come differ as they are expected to, and so do not change the spread."""
        new = of(times(factor), computing=1.0, final=True)
        open_one = predict(new, [times(1.0)])
        assert open_one.decision is Decision.INCONCLUSIVE
        match = re.match(
            r"record on (\d+) more days? \(pytest --ftgate-update=all\); the figures of 1 day ", of_metric(open_one)
        )
        assert match
        wall, needed = metrics.row(Metric.WALL), 1 + int(match[1])
        for count in (needed - 1, needed):
            at = np.linspace(-1, 1, count) if count > 1 else np.zeros(1)
            spread = math.hypot(wall.between, wall.day) / (at.std(ddof=1) if count > 1 else 1.0)
            decision = predict(new, [times(float(np.exp(spread * each))) for each in at]).decision
            assert (decision is Decision.INCONCLUSIVE) is (count < needed), count

    @pytest.mark.parametrize("launches", [4, 12])
    def test_where_launches_scatter_it_asks_for_no_more_days(self, launches: int) -> None:
        new = of([2 * value for value in (0.3, 2.5, 1.0, 0.6, 1.0, 3.0, 0.3, 1.0, 0.4, 2.0, 0.3, 1.5)][:launches])
        wild = [(0.5, 1.0, 2.0, 3.0, 0.4)] * 3
        found = predict(new, wild)
        assert found.decision is Decision.INCONCLUSIVE
        more = " or with more launches (--ftgate-test-time)" if launches < prediction.MOST_LAUNCHES else ""
        assert of_metric(found).startswith(
            f"measure on a quieter machine{more}: the launches scatter too much; the figures"
        )
        steady = predict(of([float(np.median(new.new))] * launches), [(1.0,) * 5] * 3)
        assert steady.decision is Decision.REGRESSED

    def test_where_other_work_moves_the_times_it_asks_for_no_more_days(self) -> None:
        """Longer by 35 %, beside processes that leave half of the workers no core."""
        new = of(times(1.35), computing=1.0)
        found = predict(new, [STORED] * 12, 4.0)
        assert found.decision is Decision.INCONCLUSIVE
        assert of_metric(found).startswith(
            "measure on a quieter machine: other work may have moved the times; the figures"
        )
        assert predict(new, [STORED] * 12).decision is Decision.REGRESSED

    def test_one_launch_fails_nothing(self) -> None:
        """Launches of 0.2 ms, with two iterations, of unchanged code: 1.27 to 1.7 times the stored one were seen."""
        for factor in (0.4, 1.0, 1.3, 1.8, 20.0):
            verdict = predict(of([factor], final=True), [[1.0]])
            assert verdict.decision is Decision.INCONCLUSIVE, factor
            assert verdict.beyond is (factor >= 1.3)
            assert "by one launch, which may have been disturbed" in of_metric(verdict)
            assert verdict.ruled_out is None
        alone = predict(of([20.0], final=True), [STORED] * 5)
        assert (alone.decision, alone.beyond) == (Decision.INCONCLUSIVE, True)

    @pytest.mark.parametrize("stored", [[[1.0]], [[1.0] * 5] * 3])
    def test_two_launches_have_to_show_a_failure(self, stored: list[list[float]]) -> None:
        for new, fails in (([1.8] * 2, True), ([1.0, 20.0], False), ([1.7, 1.8, 1.8], True)):
            verdict = predict(of(new, final=True), stored)
            assert (verdict.decision in (Decision.REGRESSED, Decision.SUSPECT)) is fails, new
            assert fails or verdict.beyond

    def test_fewer_than_three_launches_have_a_range(self) -> None:
        for new, level in (([1.1, 1.2], 0.0), ([1.1, 1.15, 1.2], 0.95)):
            verdict = predict(of(new, final=True), [[1.0] * 5] * 3)
            assert verdict.ratio is not None
            assert verdict.ratio.level == level
            inside = verdict.ratio.low == pytest.approx(1.1) and verdict.ratio.high == pytest.approx(1.2)
            assert inside is (level == 0)

    def test_they_are_those_of_the_t_interval_of_the_next(self) -> None:
        """With the prior's weight gone they are the textbook's, with the recording as the unit."""
        centres = np.log([1.0, 1.04, 0.97, 1.02, 1.01])
        prior = prediction.PRIOR_FREEDOM * metrics.row(Metric.WALL).between ** 2
        freedom = prediction.PRIOR_FREEDOM + 4  # launches that agree add nothing
        variance = (prior + ((centres - centres.mean()) ** 2).sum()) / freedom * (1 + 1 / 5)
        recordings = [(float(np.exp(centre)),) * 3 for centre in centres]
        fails, suspect = (
            centres.mean() + math.log(1.02) + t.isf(level, freedom) * math.sqrt(variance)
            for level in (ALPHA, suspect_level(ALPHA))
        )
        passes = centres.mean() + math.log(1.1) - t.isf(BETA, freedom) * math.sqrt(variance)
        for bound, below, above in (
            (fails, Decision.SUSPECT, Decision.REGRESSED),
            (suspect, Decision.INCONCLUSIVE, Decision.SUSPECT),
            (passes, Decision.PASSED, Decision.INCONCLUSIVE),
        ):
            for step, decision in ((-1e-9, below), (1e-9, above)):
                found = predict(of((math.exp(bound + step),) * 5, effect=0.1), recordings)
                assert found.decision is decision
                half = t.isf((1 - decide.INTERVAL_LEVEL) / 2, freedom) * math.sqrt(variance)
                assert found.ratio is not None
                shift = bound + step - centres.mean()
                assert (math.log(found.ratio.low), math.log(found.ratio.high)) == pytest.approx(
                    (shift - half, shift + half)
                )

    def test_more_recordings_see_more(self) -> None:
        few, many = (predicted(1.16, [STORED] * count, effect=0.1).decision for count in (1, 12))
        assert (few, many) == (Decision.SUSPECT, Decision.REGRESSED)

    def test_from_which_change_a_time_fails_is_what_the_manual_says(self) -> None:
        """60 comparisons in a run, days that do not vary, all workers or half of them with their own core."""
        page = (Path(__file__).parents[2] / "docs" / "judging.md").read_text("utf-8")
        alpha = split_alpha(0.01, 60)
        rows = (
            ("a body that waits", 0.0, 0.0),
            ("a body that computes", 1.0, 0.0),
            ("while half of the", 1.0, MOVED * 0.5**2),
        )
        for words, computing, moved in rows:
            (row,) = re.findall(rf"^\| {words}.*", page, re.MULTILINE)
            for count, percent in zip((1, 2, 3, 5, 20), re.findall(r"(\d+) %", row), strict=True):
                for off, fails in ((-0.5, False), (0.5, True)):
                    launches = (1 + (int(percent) + off) / 100,) * 8
                    limits = effective(Metric.WALL, "stored")
                    comparison = msgspec.structs.replace(
                        of(launches), limits=limits, alpha=alpha, beta=BETA, final=True, computing=computing
                    )
                    found = predict(comparison, [(1.0,) * 8] * count, moved).decision
                    assert (found in (Decision.REGRESSED, Decision.SUSPECT)) == fails, (
                        f"{words}: {count} days, {launches[0]}"
                    )

    def test_what_others_moved_widens_the_limits_of_times(self) -> None:
        def at(factor: float, moved: float, metric: Metric = Metric.WALL) -> Decision:
            moves = msgspec.structs.replace(of(times(factor), metric), computing=1.0)
            return predict(moves, [STORED] * 6, moved).decision

        found = [at(1.32, moved) for moved in (0.0, 2.0, 4.0)]
        assert found == [Decision.REGRESSED, Decision.SUSPECT, Decision.INCONCLUSIVE]
        assert [at(1.0, moved) for moved in (0.0, 4.0)] == [Decision.PASSED, Decision.INCONCLUSIVE]
        assert at(1.0, 4.0, Metric.USS) is Decision.PASSED
        waits = [predict(share((0.3,) * 8), [(0.06,) * 8], moved).decision for moved in (0.0, 4.0)]
        assert waits == [Decision.REGRESSED, Decision.INCONCLUSIVE]

    def test_twice_the_time_fails_whatever_the_deviation(self) -> None:
        """Five launches beside other work, and as many recorded."""
        wild = (0.8, 1.1, 1.0, 1.3, 0.9)
        for factor, decision in ((1.0, Decision.INCONCLUSIVE), (1.4, Decision.INCONCLUSIVE), (2.0, Decision.SUSPECT)):
            new = tuple(factor * value for value in wild)
            found = predict(of(new), [wild], 4.0)
            assert found.decision is decision
            if decision is Decision.SUSPECT:
                assert re.fullmatch(
                    r"\+100 % is beyond \+73.4 %, the limit of a likely regression by what is stored of 1 day",
                    of_metric(found),
                )
                assert found.allowed == pytest.approx(1.734)
                assert found.effect == pytest.approx(1.15)
        for few, decision in ((wild[:3], Decision.SUSPECT), ((0.7, 1.0, 1.5), Decision.INCONCLUSIVE)):
            assert predict(of((1.4, 1.9, 1.9, 1.9)), [few], 6.0).decision is decision
        for new, old, decision in (
            ((1.6, 2.0, 2.1, 2.2, 0.9), wild, Decision.SUSPECT),  # one of five does not count, on either side
            ((1.6, 2.0, 2.1, 2.2, 1.8), (0.8, 1.1, 1.0, 3.0, 0.9), Decision.SUSPECT),
            ((1.3, 2.0, 2.2), (0.7, 1.0, 1.3), Decision.INCONCLUSIVE),  # they touch
            ((1.3, 2.0, 2.2), (0.7, 1.0, 1.299), Decision.SUSPECT),
        ):
            assert predict(of(new, final=True), [old], 4.0).decision is decision, new
        overlapping = (0.9, 1.0, 2.0, 2.1, 2.2)
        assert predict(of((1.8, 1.85)), [wild[:3]], 4.0).decision is Decision.INCONCLUSIVE
        assert predict(of(overlapping), [(0.9, 1.0, 2.1, 2.2, 0.9)], 4.0).decision is Decision.INCONCLUSIVE

    def test_what_passes_and_what_is_suspect_never_overlap(self) -> None:
        """An effect that was set wide: what is far from the recordings, but not beyond it, is no failure."""
        wild = (0.8, 1.1, 1.0, 1.3, 0.9)
        for effect in (0.5, 1.0, 3.0, 6.0):
            for factor in (1.2, 1.75, 1.9, 3.0, 5.0):
                found = predict(of([factor * each for each in wild], effect=effect), [wild], 4.0)
                assert found.allowed is not None
                assert found.ratio is not None
                failed = found.decision in (Decision.REGRESSED, Decision.SUSPECT)
                assert failed is (found.ratio.value > found.allowed)
                if found.decision is Decision.SUSPECT:
                    assert found.ratio.value > 1 + effect

    def test_two_launches_that_differ_as_much_as_shares_can_give_limits(self) -> None:
        found = predict(share((0.0,)), [(0.96, 0.0)])
        assert found.decision is Decision.INCONCLUSIVE

    def test_launches_do_not_count_as_recordings(self) -> None:
        once, often = (predicted(1.1, [launches]).ratio for launches in (STORED, STORED * 50))
        assert once is not None
        assert often is not None
        assert (often.low, often.high) == pytest.approx((once.low, once.high), rel=0.01)

    def test_few_launches_that_vary_foretell_little(self) -> None:
        """Of three launches of threads at one lock, an hour before, whose ratios to the control were like these."""
        wild = (0.0012, 0.0009, 0.0012)
        one = predict(of((1.44 * 0.0012,)), [wild])
        assert one.decision is Decision.INCONCLUSIVE
        steady = predict(of((1.44 * 0.0012,) * 2), [(0.0012, 0.00119, 0.00121)])
        assert steady.decision is Decision.REGRESSED

    def test_what_medians_vary_by(self) -> None:
        """As medians of n normal values vary, by simulation."""
        rng = np.random.default_rng(7)
        for n in (9, 25):
            values = rng.normal(0.0, 0.1, (20_000, n))
            told = np.mean([prediction._launch_deviation([run])[0] for run in values[:400]]) / math.sqrt(n)
            assert float(told) == pytest.approx(float(np.median(values, axis=1).std()), rel=0.08)

    def test_recordings_that_differ_decide_less(self) -> None:
        wild = [times(factor) for factor in (0.8, 1.3, 0.9, 1.1)]
        assert predicted(1.4, wild).decision is Decision.INCONCLUSIVE
        assert predicted(1.0, wild).decision is Decision.INCONCLUSIVE

    def test_scaling_and_shares(self) -> None:
        assert predicted(0.6, [STORED] * 3, Metric.SCALING).decision is Decision.REGRESSED
        assert predicted(1.7, [STORED] * 3, Metric.SCALING).decision is Decision.IMPROVED
        quiet: list[tuple[float, ...]] = [(0.0,) * 8, (0.0,) * 8]
        for value, decision in ((0.0, Decision.PASSED), (0.015, Decision.INCONCLUSIVE), (0.2, Decision.REGRESSED)):
            verdict = predict(share((value,) * 8), quiet)
            assert verdict.decision is decision
            assert verdict.points is not None
            assert verdict.points.value == pytest.approx(value)
            assert verdict.ratio is None
        assert predict(share((0.0,) * 8), [(0.3,) * 8] * 3).decision is Decision.IMPROVED

    def test_a_floor_is_no_change(self) -> None:
        assert predicted(1.4, [STORED] * 4, floor=0.0).decision is Decision.REGRESSED
        assert predicted(1.4, [STORED] * 4, floor=0.5).decision is Decision.PASSED

    def test_nothing_stored_and_no_number(self) -> None:
        assert predicted(1.0, []).decision is Decision.NO_BASELINE
        assert predicted(1.0, [(math.nan,)]).decision is Decision.ERROR
        assert predict(of(()), [STORED]).decision is Decision.ERROR


class TestRates:
    """Recordings that differ by as much as the prior expects, of launches with noise of their own."""

    TRIES = 400

    def count(self, change: float, decision: Decision, recordings: int, alpha: float = ALPHA) -> int:
        rng, found = np.random.default_rng(67), 0
        for _ in range(self.TRIES):
            stored = [tuple(np.exp(rng.normal(0, 0.025) + rng.normal(0, 0.05, 8))) for _ in range(recordings)]
            new = tuple((1 + change) * np.exp(rng.normal(0, 0.025) + rng.normal(0, 0.05, 12)))
            for there in range(1, 13):
                verdict = predict(of(new[:there], alpha=alpha, final=there == 12), stored)
                if verdict.more in (None, 0):
                    break
            found += verdict.decision is decision
        return found

    @staticmethod
    def most(rate: float, tries: int) -> float:
        return tries * rate + 3 * math.sqrt(tries * rate)

    @pytest.mark.parametrize("recordings", [1, 4])
    def test_unchanged_hardly_ever_fails(self, recordings: int) -> None:
        assert self.count(0.0, Decision.REGRESSED, recordings, alpha=0.01) <= self.most(0.01, self.TRIES)
        assert self.count(0.0, Decision.SUSPECT, recordings, alpha=0.01) <= self.most(0.01, self.TRIES)

    @pytest.mark.parametrize("recordings", [1, 4])
    def test_the_effect_hardly_ever_passes(self, recordings: int) -> None:
        assert self.count(0.15, Decision.PASSED, recordings) <= self.most(BETA, self.TRIES)

    def test_unchanged_mostly_passes(self) -> None:
        assert self.count(0.0, Decision.PASSED, 4) >= 0.7 * self.TRIES


class TestDays:
    """What computes differs from day to day, also beyond what the control shows; what waits does not."""

    ALPHA = split_alpha(0.01, 60)

    def at(self, factor: float, computing: float, days: Sequence[float] = (1.0,)) -> Decision:
        limits = effective(Metric.WALL, "stored")
        comparison = of(times(factor), alpha=self.ALPHA, margin=limits.margin, effect=limits.effect)
        comparison = msgspec.structs.replace(comparison, computing=computing)
        return predict(comparison, [times(day) for day in days]).decision

    def test_of_one_day_a_sleep_decides_and_a_computation_by_what_is_obvious(self) -> None:
        found = {computing: [self.at(each, computing) for each in (1.0, 1.3, 2.0)] for computing in (0.0, 1.0)}
        assert found == {
            0.0: [Decision.PASSED, Decision.REGRESSED, Decision.REGRESSED],
            1.0: [Decision.INCONCLUSIVE, Decision.INCONCLUSIVE, Decision.SUSPECT],
        }

    def test_a_baseline_learns_from_days_of_its_own(self) -> None:
        near, far = (1.0, 1.01, 0.99, 1.0, 0.995), (1.0, 1.1, 0.9, 1.05, 0.95)
        assert [self.at(each, 1.0, near) for each in (1.0, 1.3)] == [Decision.PASSED, Decision.REGRESSED]
        assert [self.at(each, 1.0, far) for each in (1.0, 1.3)] == [Decision.INCONCLUSIVE, Decision.INCONCLUSIVE]

    @pytest.mark.parametrize("days", [1, 2, 5])
    def test_unchanged_hardly_ever_fails_where_days_lie_a_tenth_apart(self, days: int) -> None:
        """At most 0.25 %: of the recordings of one day as many units, 8 to 15 % failed."""
        rng, failed = np.random.default_rng(41), 0
        for _ in range(1500):
            drawn = (np.exp(rng.normal(0, 0.10) + rng.normal(0, 0.04, 8)) for _ in range(days + 1))
            new, *stored = (tuple(each.tolist()) for each in drawn)
            comparison = msgspec.structs.replace(of(new, alpha=self.ALPHA, margin=0.05), computing=1.0)
            failed += predict(comparison, stored).decision.fails
        assert failed <= 0.0025 * 1500 + 3 * math.sqrt(0.0025 * 1500)


class TestWhen:
    """While launches may follow: one look, when the new ones no longer limit what can be said."""

    def launches(self, noise: float, count: int, centre: float = 1.0) -> tuple[float, ...]:
        return tuple(centre * math.exp(noise * (-1) ** index) for index in range(count))

    def at(self, count: int, noise: float, centre: float = 1.0, final: bool = False) -> MetricVerdict:
        comparison = of(self.launches(noise, count, centre), final=final)
        return predict(comparison, [self.launches(noise, 12)] * 3)

    @pytest.mark.parametrize(("noise", "count"), [(0.001, 5), (0.01, 5), (0.025, 9), (0.2, 12)])
    def test_noise_asks_for_launches(self, noise: float, count: int) -> None:
        for centre in (0.5, 1.0, 1.1, 3.0):
            for there in range(1, count):
                verdict = self.at(there, noise, centre)
                assert verdict.decision is Decision.INCONCLUSIVE
                assert verdict.more
                assert there + verdict.more <= 12
            assert {self.at(more, noise, centre).more for more in range(count, 13)} <= {None, 0}

    def test_at_the_end_what_there_is_decides(self) -> None:
        assert self.at(2, 0.001).more == 3
        assert self.at(2, 0.001, final=True).decision is Decision.PASSED
        assert self.at(2, 0.001, 2.0, final=True).decision is Decision.REGRESSED
        assert self.at(2, 0.001, 1.1, final=True).more == 0
