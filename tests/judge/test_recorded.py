"""What a recording keeps of launches, and new launches compared with it."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
from fake_launcher import MIB
from values import FOUR, entry, held, probed, read, sample_of, timed

from pytest_ftgate.judge import compare, metrics
from pytest_ftgate.judge.values import Values
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.sample import Launch, MemoryPoint
from pytest_ftgate.model.verdict import Comparison

NAMES = (*metrics.GATING, Metric.SCALING)
with_stored = partial(compare.with_stored, names=NAMES)


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
            Metric.WALL: "x control",
            Metric.TAIL: "x control",
            Metric.USS: "bytes",
            Metric.LOCK_WAIT: "of the time",
            Metric.SCALING: "x",
        }
        assert all(numbers.recordings for numbers in found.values())

    def test_values_are_a_number_a_launch(self) -> None:
        found = with_stored(whole(4000), entry(whole()))
        assert found[Metric.WALL].new == pytest.approx((4.0, 4.01, 4.02))
        assert found[Metric.WALL].reference == pytest.approx((2.0, 2.01, 2.02))
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
        assert found.new == found.reference == (6.0,)

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
