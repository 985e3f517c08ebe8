"""What a recording keeps of launches, and new launches compared with it."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
from fake_launcher import MIB, MS
from values import FOUR, TWO, entry, held, probed, read, sample_of, timed

from pytest_ftgate.judge import comparisons, metrics
from pytest_ftgate.judge.values import Values
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.sample import Launch, MemoryPoint
from pytest_ftgate.model.verdict import Comparison

NAMES = (*metrics.GATING, Metric.SCALING)
with_stored = partial(comparisons.with_stored, names=NAMES)


def both_sides(numbers: Comparison) -> Any:
    """What may be compared with what is nearly so: both sides."""
    return numbers.new, numbers.reference


# -- with what is stored -------------------------------------------------------------------------------------------


def whole(own_ns: int = 2000, control_ns: int = 1000, uss: int = MIB, share: float = 0.25, count: int = 3) -> Values:
    """What everything was seen of; each launch is a little slower than the one before."""
    orders = range(count)
    single = [timed(order, [own_ns] * 12) for order in orders]
    sample = sample_of(
        [timed(order, [own_ns + 10 * order] * 12) for order in orders],
        FOUR,
        control=[timed(order, [control_ns] * 12) for order in orders],
        memory=[held(order, uss + order) for order in orders],
        locks=[probed(order, share, workers=4) for order in orders],
    )
    return read(sample, one_worker=single)


def without(of: Values, role: str) -> Values:
    kept = tuple(launch for launch in of.sample.all_launches if launch.role != role)
    sample = msgspec.structs.replace(of.sample, all_launches=kept)
    one_worker = () if role == "single" or of.one_worker is None else of.one_worker.sample.launches
    return read(sample, one_worker=one_worker)


class TestStored:
    def test_units_and_tests(self) -> None:
        found = with_stored(whole(), entry(whole()))
        assert {metric: numbers.unit for metric, numbers in found.items()} == {
            Metric.WALL: "ns",
            Metric.TAIL: "ns",
            Metric.USS: "bytes",
            Metric.LOCK_WAIT: "of the time",
            Metric.SCALING: "x",
        }
        assert all(numbers.recordings for numbers in found.values())

    def test_values_are_a_number_a_launch(self) -> None:
        found = with_stored(whole(4000), entry(whole()))
        assert found[Metric.WALL].new == pytest.approx((4000, 4010, 4020))
        assert found[Metric.WALL].reference == pytest.approx((2000, 2010, 2020))
        assert found[Metric.USS].reference == pytest.approx((MIB, MIB + 1, MIB + 2), rel=1e-5)
        assert found[Metric.LOCK_WAIT].new == pytest.approx((0.25,) * 3)
        assert found[Metric.SCALING].new == pytest.approx((4.0, 16000 / 4010, 16000 / 4020))

    def test_recordings_are_kept_apart(self) -> None:
        stored = entry(whole(uss=10, count=2), without(whole(), "memory"), whole(uss=30, count=3))
        uss = with_stored(whole(), stored)[Metric.USS]
        assert uss.recordings == ((10.0, 11.0), (30.0, 31.0, 32.0))
        assert uss.reference == (10.0, 11.0, 30.0, 31.0, 32.0)
        assert [*uss.new] == [MIB, MIB + 1, MIB + 2]
        walls = with_stored(whole(), stored)[Metric.WALL]
        assert [len(each) for each in walls.recordings] == [2, 3, 3]

    @pytest.mark.parametrize(
        ("lacking", "names"),
        [
            ("control", {Metric.WALL, Metric.TAIL}),
            ("memory", {Metric.USS}),
            ("locks", {Metric.LOCK_WAIT}),
            ("single", {Metric.SCALING}),
        ],
    )
    def test_what_is_not_stored_is_left_out_and_what_this_run_lacks_stays(
        self, lacking: str, names: set[Metric]
    ) -> None:
        complete = set(with_stored(whole(), entry(whole())))
        never = with_stored(whole(), entry(without(whole(), lacking)))
        assert complete - set(never) == names
        lost = with_stored(without(whole(), lacking), entry(whole()))
        assert set(lost) == complete
        assert {metric for metric, numbers in lost.items() if not numbers.new} == names
        assert all(numbers.reference for numbers in lost.values())

    def test_a_tail_is_over_the_median_of_the_control(self) -> None:
        own = [timed(0, [1000] * 8 + [3000] * 4), timed(1, [1000] * 9)]
        control = [timed(0, [500] * 8 + [9000] * 4), timed(1, [500] * 9)]
        noted = sample_of(own, control=control)
        found = with_stored(read(noted), entry(sample_of(own, control=control)))[Metric.TAIL]
        assert found.new == found.reference == pytest.approx((3000,))

    def test_memory_is_compared_as_all_sides_have_it(self) -> None:
        point = MemoryPoint(at_ns=0, rss_bytes=90, uss_bytes=60, pss_bytes=60, processes=1, written_bytes=40)
        written = sample_of(memory=[Launch(order=0, hash_seed=1, started_at="", memory=(point,))])
        launched = written.with_launches("time", [timed(0, [2000])])
        plain = launched.with_launches("memory", [held(0, 70)])
        assert both_sides(with_stored(read(written), entry(launched))[Metric.USS]) == (
            (40.0,),
            (40.0,),
        )
        mixed = with_stored(read(written), entry(launched, plain))[Metric.USS]
        assert both_sides(mixed) == ((60.0,), (60.0, 70.0))


class TestOneSpeed:
    """The machine's speed of the day is taken out of what computes, and of nothing else."""

    @staticmethod
    def at(waits: float, slower: float, *, computes: float = MS, workers: int = 1, **fields: Any) -> Values:
        """Launches that wait so many ns and compute, on a machine that computes slower by that factor."""

        def spent(order: int, wall: float, cpu: float) -> Launch:
            made = timed(order, [round(wall)] * 12)
            turns = (msgspec.structs.replace(each, cpu_ns=round(cpu), ops=workers) for each in made.iterations)
            return msgspec.structs.replace(made, iterations=tuple(turns))

        cell = msgspec.structs.replace(TWO, workers=workers)
        busy, control = slower * computes, slower * 2 * MS
        times = [spent(order, waits + busy, workers * busy) for order in range(3)]
        return read(
            sample_of(times, cell, control=[spent(order, control, workers * control) for order in range(3)], **fields)
        )

    @pytest.mark.parametrize("workers", [1, 2])
    @pytest.mark.parametrize(("waits", "computes"), [(0, MS), (4 * MS, MS), (4 * MS, MS // 100)])
    def test_a_wait_is_compared_as_it_is(self, waits: int, computes: int, workers: int) -> None:
        for slower in (0.5, 1.0, 1.3, 2.0):
            now = self.at(waits, slower, computes=computes, workers=workers)
            wall = with_stored(now, entry(self.at(waits, 1.0, computes=computes, workers=workers)))[Metric.WALL]
            assert wall.new == pytest.approx(wall.reference, rel=1e-3), slower
            assert wall.reference == pytest.approx((waits + computes,) * 3, rel=1e-3)

    def test_what_differs_from_day_to_day_is_the_part_that_computes(self) -> None:
        found = {waits: with_stored(self.at(waits, 1.0), entry(self.at(waits, 1.0))) for waits in (0, MS, 99 * MS)}
        assert [each[Metric.WALL].computing for each in found.values()] == pytest.approx([1.0, 0.5, 0.01])
        slept = self.at(99 * MS, 1.0)
        assert comparisons.with_stored(slept, entry(slept), [Metric.CPU])[Metric.CPU].computing == 1.0

    def test_a_wait_for_another_worker_is_what_that_one_does(self) -> None:
        """Two workers in turns at a lock: of three quarters of a time that one of them computes half is a wait."""
        now, before = (self.at(MS, slower, locks=[probed(order, 0.5) for order in range(3)]) for slower in (2.0, 1.0))
        lockless = without(before, "locks")
        assert comparisons.computing([before]) == pytest.approx([1.0])
        assert comparisons.computing([lockless]) == pytest.approx([0.5])
        assert comparisons.computing([now, lockless]) == pytest.approx([2 / 3, 0.5]), (
            "what one side lacks counts for none"
        )

    def test_without_cpu_time_all_of_it_computes(self) -> None:
        stored = entry(self.at(4 * MS, 1.0))
        (recording,) = stored.recordings
        kept = {name: values for name, values in recording.values.items() if name != "cpu/control"}
        bare = msgspec.structs.replace(stored, recordings=(msgspec.structs.replace(recording, values=kept),))
        wall = with_stored(self.at(4 * MS, 2.0), bare)[Metric.WALL]
        assert wall.computing == 1.0
        assert wall.new == pytest.approx((3 * MS,) * 3)
        assert wall.reference == pytest.approx((5 * MS,) * 3)


class TestDays:
    def test_recordings_of_a_day_are_one(self) -> None:
        days = ("2026-05-04T01:00:00+00:00", "2026-05-04T23:00:00+00:00", "2026-05-05T01:30:00+02:00")
        stored = entry(whole(uss=10, count=1), whole(uss=20, count=2), whole(uss=30, count=1), days=days)
        assert with_stored(whole(), stored)[Metric.USS].recordings == ((10.0, 20.0, 21.0, 30.0),), "by UTC"
        later = entry(whole(uss=10, count=1), whole(uss=20, count=1), days=(days[0], "2026-05-05T00:00:00+00:00"))
        assert with_stored(whole(), later)[Metric.USS].recordings == ((10.0,), (20.0,))
