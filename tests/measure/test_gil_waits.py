"""Lengths of single waits for the GIL, against threads whose waits are known."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from gil_by_hand import Draw, Line, constant, exponential, lognormal

from pytest_ftgate.kit.proc import Slices
from pytest_ftgate.measure.watch.gil_waits import Asking, Episodes, Lengths, Wait, estimated_lengths
from pytest_ftgate.stats.histogram import percentile

MS = 1e-3
SECONDS = 5.0


def looked_at(
    lines: Sequence[Line], pause_s: float, rnd: random.Random, burst: int = 0, rest_s: float = 0.0
) -> Episodes:
    """Looks all the time, or `burst` of them at a time with a rest between; the pauses vary as a machine's do."""
    episodes, now, count = Episodes(), 0.0, 0
    while now < SECONDS:
        for thread, life in enumerate(lines):
            state, slices = life.at(now)
            asking = Asking(slices, 0x7F00) if state == "gil" else None
            episodes.see(thread, now, asking, awake=state == "running")
        now += pause_s * rnd.uniform(0.8, 1.3)
        count += 1
        if burst and count % burst == 0:
            episodes.stop()
            now += rest_s
    episodes.stop()
    return episodes


def quantile(found: Lengths, share: float) -> float:
    """In s."""
    whole = sum(found.histogram.values())
    counts = {bucket: round(weight * 1e6) for bucket, weight in found.histogram.items()}
    return percentile(counts, share * (whole + found.unended) / whole) / 1e9


def estimates(lines: Sequence[Line], paces: Sequence[Episodes]) -> tuple[Lengths, list[float]]:
    """What is found, and its median and 95th percentile over the true ones."""
    found = estimated_lengths(pace.waits for pace in paces if pace.clear)
    true = sorted(wait for life in lines for wait in life.waits)
    return found, [quantile(found, share) / true[int(share * len(true))] for share in (0.5, 0.95)]


@pytest.mark.parametrize(
    ("wait", "interval_s"),
    [
        (constant(20 * MS), 5 * MS),
        (exponential(20 * MS), 5 * MS),
        (exponential(8 * MS), 5 * MS),
        (lognormal(10 * MS, 0.7), 1 * MS),
    ],
)
def test_waits_longer_than_the_pause_between_looks_have_their_true_length(wait: Draw, interval_s: float) -> None:
    rnd = random.Random(31)
    lines = [Line(rnd, wait, constant(5 * MS), SECONDS, interval_s) for _ in range(5)]
    found, ratios = estimates(lines, [looked_at(lines, 3 * MS, rnd)])
    assert ratios == pytest.approx([1.0, 1.0], abs=0.15)
    assert quantile(found, 0.5) > found.pause_s
    seen = sum(found.histogram.values()) + found.unended
    assert seen == pytest.approx(sum(len(life.waits) for life in lines), rel=0.2)


@pytest.mark.parametrize(
    ("wait", "run", "interval_s"),
    [
        (constant(0.8 * MS), constant(0.16 * MS), 0.16 * MS),
        (exponential(0.5 * MS), constant(0.16 * MS), 0.16 * MS),
        (lognormal(5 * MS, 1.0), constant(3 * MS), 5 * MS),
        (exponential(5 * MS), exponential(3 * MS), 5 * MS),
    ],
)
def test_bursts_tell_the_short_waits_and_the_other_looks_the_long_ones(
    wait: Draw, run: Draw, interval_s: float
) -> None:
    rnd = random.Random(32)
    lines = [Line(rnd, wait, run, SECONDS, interval_s) for _ in range(5)]
    close = looked_at(lines, 0.2 * MS, rnd, burst=24, rest_s=0.03)
    found, ratios = estimates(lines, [looked_at(lines, 3 * MS, rnd), close])
    assert ratios == pytest.approx([1.0, 1.0], abs=0.25)
    assert found.pause_s < 0.3 * MS


def test_short_waits_that_only_bursts_see_are_not_left_out() -> None:
    """Half of them last 0.3 ms: the other looks meet so few that these alone would say 15 ms, and not know it."""
    rnd = random.Random(36)

    def wait(rnd: random.Random) -> float:
        return 0.3 * MS if rnd.random() < 0.5 else 15 * MS

    lines = [Line(rnd, wait, constant(2 * MS), SECONDS, 5 * MS) for _ in range(5)]
    far, close = looked_at(lines, 3 * MS, rnd), looked_at(lines, 0.1 * MS, rnd, burst=24, rest_s=0.03)
    assert quantile(estimated_lengths([far.waits]), 0.5) > 10 * MS
    found = estimated_lengths([far.waits, close.waits])
    assert quantile(found, 0.4) == pytest.approx(0.3 * MS, abs=0.1 * MS)
    assert quantile(found, 0.95) == pytest.approx(15 * MS, rel=0.2)


def test_quicker_looks_that_find_nothing_short_leave_it_to_those_that_saw_more() -> None:
    rnd = random.Random(37)
    lines = [Line(rnd, constant(20 * MS), constant(5 * MS), SECONDS, 5 * MS) for _ in range(5)]
    far, close = looked_at(lines, 3 * MS, rnd), looked_at(lines, 1 * MS, rnd, burst=48, rest_s=0.03)
    assert estimated_lengths([close.waits, far.waits]) == estimated_lengths([far.waits])


def test_waits_that_a_look_seldom_meets_do_not_pass_for_all() -> None:
    """Waits of a tenth of the pause: whoever is seen was met by one look alone, and half are shorter than a pause."""
    rnd = random.Random(33)
    lines = [Line(rnd, exponential(0.3 * MS), constant(2 * MS), SECONDS, 5 * MS) for _ in range(5)]
    found = estimated_lengths([looked_at(lines, 3 * MS, rnd).waits])
    assert quantile(found, 0.5) < found.pause_s


def test_long_waits_are_not_more_frequent_for_being_met_more_often() -> None:
    """Nine of ten last 4 ms, the others 60: the plain median over looks would be 60."""
    rnd = random.Random(34)

    def wait(rnd: random.Random) -> float:
        return 4 * MS if rnd.random() < 0.9 else 60 * MS

    lines = [Line(rnd, wait, constant(2 * MS), SECONDS, 5 * MS, constant(10 * MS)) for _ in range(4)]
    found = estimated_lengths([looked_at(lines, 2 * MS, rnd).waits])
    assert quantile(found, 0.5) == pytest.approx(4 * MS, rel=0.2)
    assert quantile(found, 0.95) == pytest.approx(60 * MS, rel=0.1)


def test_who_runs_shortly_between_two_looks_waits_twice() -> None:
    rnd = random.Random(35)
    lines = [Line(rnd, constant(10 * MS), constant(0.3 * MS), SECONDS, 5 * MS)]
    found = estimated_lengths([looked_at(lines, 2 * MS, rnd).waits])
    assert quantile(found, 0.5) == pytest.approx(10 * MS, rel=0.15)


def see(*looks: tuple[float, int] | str, stacks: Sequence[int] = ()) -> Episodes:
    """Looks in ms: (CPU time in us, wake-ups) of who waits, or what else it does; one each ms from 0."""
    episodes = Episodes()
    for at, look in enumerate(looks):
        stack = stacks[at] if stacks else 1
        asking = None if isinstance(look, str) else Asking(Slices(int(look[0] * 1000), look[1]), stack)
        episodes.see(1, at * MS, asking, awake=look == "running")
    episodes.stop()
    return episodes


def test_asking_again_is_the_same_wait() -> None:
    waited = see("asleep", (0, 0), (20, 1), (20, 1), (60, 3), "asleep").waits
    assert waited == [Wait(pytest.approx(4 * MS), pytest.approx(MS), ended=True)]  # type: ignore[arg-type]
    seen_awake = see("asleep", (0, 0), "running", (20, 1), "asleep").waits
    assert seen_awake == [Wait(pytest.approx(3 * MS), pytest.approx(MS), ended=True)]  # type: ignore[arg-type]


def test_one_that_ran_waits_anew() -> None:
    first, second = see("asleep", (0, 0), (0, 0), (400, 1), "asleep").waits
    assert first.length_s == pytest.approx(1.8 * MS)  # 0.5 before it was seen, and half of the 0.6 that it did not run
    assert second.length_s == pytest.approx(0.8 * MS)
    met = see("asleep", (0, 0), "running", (400, 1), "asleep").waits
    assert [wait.length_s for wait in met] == pytest.approx([MS, MS])


def test_another_place_in_the_program_is_another_wait() -> None:
    assert len(see("asleep", (0, 0), (20, 1), "asleep", stacks=[0, 7, 8, 0]).waits) == 2
    assert (
        len(see("asleep", (0, 0), (20, 1), "asleep", stacks=[0, 0, 8, 0]).waits) == 1
    )  # without a timeout: on its way


def test_what_cannot_be_told_is_neither_end_nor_length() -> None:
    unclear = see("asleep", (0, 0), (130, 9), "asleep")
    assert unclear.waits == [Wait(pytest.approx(0.5 * MS), pytest.approx(MS), ended=False)]  # type: ignore[arg-type]
    assert not unclear.clear


def test_a_wait_under_way_at_the_first_look_is_left_out_but_for_the_longest() -> None:
    seen = see((0, 0), (0, 0), (0, 0), "asleep")
    assert seen.waits == []
    assert seen.longest_s == pytest.approx(2 * MS)


def test_a_thread_that_goes_is_followed_so_far() -> None:
    seen = see("asleep", (0, 0), (0, 0))
    assert [wait.ended for wait in seen.waits] == [False]
    ran = see("asleep", (0, 0), "running")
    assert [wait.ended for wait in ran.waits] == [True]


def test_waits_that_were_not_followed_to_their_end_are_not_forgotten() -> None:
    ended = [Wait(10 * MS, MS, ended=True)] * 60
    cut = [Wait(15 * MS, MS, ended=False)] * 40
    found = estimated_lengths([ended + cut])
    assert found.unended / (found.unended + sum(found.histogram.values())) == pytest.approx(0.4)
    early = [Wait(5 * MS, MS, ended=False)] * 40  # these tell nothing of what comes at 10 ms
    assert estimated_lengths([ended + early]).unended == pytest.approx(0.0)


def test_few_waits_tell_nothing() -> None:
    assert estimated_lengths([[Wait(10 * MS, MS, ended=True)] * 19]) == Lengths({}, 0.0, 0.0)
    assert estimated_lengths([]) == Lengths({}, 0.0, 0.0)
