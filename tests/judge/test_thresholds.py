"""Thresholds: their texts, their precedence field by field, and what cannot hold together."""

from __future__ import annotations

import math
import random
from typing import Any, get_args

import pytest

from pytest_ftgate.judge import limits as thresholds
from pytest_ftgate.judge import metrics
from pytest_ftgate.judge.limits import ThresholdError, effective, parse, threshold
from pytest_ftgate.kit.values import Metric, Threshold
from pytest_ftgate.model.verdict import BasisKind, Comparison, Limits
from pytest_ftgate.report import reasons

BASES: tuple[BasisKind, ...] = get_args(BasisKind)
KIB = 2.0**10


def of(metric: str, **fields: float) -> Threshold:
    return Threshold(metric=Metric(metric), **fields)


# -- texts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("wall: margin=3%, effect=8%", of("wall", margin=0.03, effect=0.08)),
        ("wall:margin=0.03 effect=.08", of("wall", margin=0.03, effect=0.08)),
        ("  tail : effect = 40 % ", of("tail", effect=0.4)),
        ("wall: floor=1ms", of("wall", floor=0.001)),
        ("wall: floor=20 us,margin=0", of("wall", floor=2e-5, margin=0.0)),
        ("tail: floor=5 µs", of("tail", floor=5e-6)),
        ("uss: floor=1MiB", of("uss", floor=KIB**2)),
        ("uss: floor = 64 KiB margin=1%", of("uss", floor=64 * KIB, margin=0.01)),
        ("uss: floor=1e3 KB", of("uss", floor=1e6)),
        (
            "lock_wait: margin=50% effect=80% floor=2%",
            of("lock_wait", margin=0.5, effect=0.8, floor=0.02),
        ),
        ("lock_wait: floor=0.02", of("lock_wait", floor=0.02)),
        ("scaling: margin=0.1", of("scaling", margin=0.1)),
    ],
)
def test_texts(text: str, found: Threshold) -> None:
    read = parse(text)
    for field in thresholds.FIELDS:
        assert getattr(read, field) == pytest.approx(getattr(found, field))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "",
            "floor=1ms; wall, tail, start, uss, growth, lock_wait and payload gate by default, docs/metrics.md lists",
        ),
        ("wal: margin=3%", "'wal' is not a metric that gates (did you mean 'wall'?)"),
        ("contract: margin=3%", "'contract' is not a metric that gates"),
        ("wall:", "wall is given neither margin, effect nor floor"),
        ("wall: ,", "wall is given neither margin, effect nor floor"),
        ("wall: margn=3%", "'margn' is not a field (did you mean 'margin'?); use margin, effect or floor"),
        ("wall: margin=3% margin=4%", "'margin=4%' is not a field, or is given twice"),
        ("wall: margin=3% and effect=4%", "margin of wall takes a share such as 5% or 0.05, not '3% and'"),
        ("wall: margin", "'margin' is not a field"),
        ("wall: margin=", "'margin=' is not a field"),
        ("wall: margin=-3%", "margin of wall takes a share such as 5% or 0.05, not '-3%'"),
        ("wall: margin=nan", "margin of wall takes a share"),
        ("wall: margin=10", "margin of wall takes a share such as 10% or 0.1, not '10', which is 1000 %"),
        ("wall: margin=3", "margin of wall takes a share such as 3% or 0.03, not '3', which is 300 %"),
        ("wall: margin=1.5", "margin of wall takes a share such as 1.5% or 0.015, not '1.5', which is 150 %"),
        ("wall: effect=1", "effect of wall takes a share such as 1% or 0.01, not '1', which is 100 %"),
        ("wall: margin=1000%", "margin of wall takes a share"),
        ("uss: effect=300", "effect of uss takes a share such as 5% or 0.05, not '300'"),
        ("uss: effect=100", "effect of uss takes a share such as 5% or 0.05, not '100'"),
        ("lock_wait: floor=2", "floor of lock_wait takes a share such as 2% or 0.02, not '2'"),
        ("wall: margin=3ms", "margin of wall takes a share"),
        ("wall: floor=3", "floor of wall takes a time with its unit such as 1ms (ns, us, ms or s), not '3'"),
        ("wall: floor=3MiB", "floor of wall takes a time"),
        ("uss: floor=3", "floor of uss takes a size with its unit such as 1MiB"),
        ("uss: floor=3ms", "floor of uss takes a size"),
        ("uss: floor=1e999B", "floor of uss takes a size"),
        ("lock_wait: floor=3ms", "floor of lock_wait takes a share such as 5% or 0.05, not '3ms'"),
        ("scaling: floor=0.1", "scaling has no floor, because it has no unit: give it a margin and an effect"),
        ("wall: margin=5% effect=5%", "effect 5 % is not above margin 5 %"),
    ],
)
def test_bad_texts_say_what_is_taken(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"^METRIC: margin=3%, effect=8%, floor=1ms; ") as caught:
        parse(text)
    assert problem in str(caught.value)


def test_numbers_are_in_the_unit_of_the_metric() -> None:
    assert threshold("wall", {"floor": 0.001, "margin": "2%", "effect": None}) == of("wall", floor=0.001, margin=0.02)
    assert threshold("uss", {"floor": 4096}) == of("uss", floor=4096.0)
    assert threshold(Metric.SCALING, {"effect": 0.1}) == of("scaling", effect=0.1)


def test_a_number_from_1_on_needs_its_sign() -> None:
    for value in (1, 3, 3.0, "3", "3 "):
        with pytest.raises(ValueError, match=r"^margin of wall takes a share such as [13]% or 0.0[13], not"):
            threshold("wall", {"margin": value})
    assert threshold("wall", {"margin": "300%", "effect": "400 %"}) == of("wall", margin=3.0, effect=4.0)
    assert threshold("lock_wait", {"floor": 0.99}) == of("lock_wait", floor=0.99)


@pytest.mark.parametrize("value", [True, -1, float("nan"), float("inf"), [1], b"1%", 10**400, "", " ", "1 2"])
def test_other_values_are_none(value: Any) -> None:
    for field in ("margin", "floor"):
        with pytest.raises(ValueError, match=f"^{field} of uss takes"):
            threshold("uss", {field: value})


def test_whatever_the_text_is_it_is_read_or_refused() -> None:
    rng = random.Random(4)
    words = [*metrics.NAMES, *thresholds.FIELDS, *thresholds.TIMES_S, *thresholds.SIZES_BYTES]
    words += [":", "=", ",", " ", "%", "-", ".", "e", "7", "0.5", "1e9", "\n", "µ", "\ud800", "٣"]
    read = 0
    for _ in range(5000):
        text = "".join(rng.choices(words, k=rng.randrange(8)))
        if rng.random() < 0.5:
            text = f"{rng.choice(metrics.NAMES)}: {rng.choice(thresholds.FIELDS)}=.1{text[-3:]}"
        try:
            found = parse(text)
        except ValueError:
            continue
        read += 1
        assert any(getattr(found, field) is not None for field in thresholds.FIELDS)
    assert read > 50


# -- the scale on which a metric is compared -------------------------------------------------------------------------


def of_limits(metric: str, floor: float) -> Comparison:
    return Comparison(metric=metric, new=(), reference=(), unit="", limits=Limits(0.1, 0.2, floor))


@pytest.mark.parametrize(
    ("metric", "floor", "value", "fails", "passes", "worse"),
    [
        ("wall", 0.0, 100.0, 110.0, 120.0, 0.2),
        ("wall", 5.0, 100.0, 115.0, 120.0, 0.2),
        ("wall", 50.0, 100.0, 160.0, 160.0, 0.6),  # the floor is wider than the effect
        ("lock_wait", 0.01, 0.1, 0.12, 0.14, 0.04),
    ],
)
def test_where_a_value_fails_and_where_it_passes(
    metric: str, floor: float, value: float, fails: float, passes: float, worse: float
) -> None:
    costs = of_limits(metric, floor)
    assert thresholds.failing(costs, [value]) == pytest.approx([fails])
    assert thresholds.passing(costs, [value], 0.2) == pytest.approx([passes])
    assert thresholds.worse_by(costs, [value], 0.2) == pytest.approx(worse)


def test_a_share_of_nothing_has_a_logarithm_whatever_its_floor() -> None:
    assert [thresholds.offset(of_limits("lock_wait", floor)) for floor in (0.0, 0.05)] == [0.01, 0.05]
    assert thresholds.offset(of_limits("wall", 5.0)) == 0.0


def test_a_limit_is_shown_as_the_change_of_the_metric() -> None:
    found = [thresholds.allowed(metric, math.log(1.25)) for metric in ("wall", "scaling")]
    assert found == pytest.approx([1.25, 0.8])
    assert thresholds.allowed("lock_wait", 0.04) == 0.04


@pytest.mark.parametrize(
    ("change", "more", "text"),
    [(0.07, 0, "+7 %"), (0.07123, 0, "+7.1 %"), (0.07123, 1, "+7.12 %"), (-0.2, 0, "-20 %"), (-1e-9, 0, "0 %")],
)
def test_a_change_has_the_digits_that_it_needs(change: float, more: int, text: str) -> None:
    assert reasons.change_text("wall", 1 + change, more) == text
    assert reasons.change_text("lock_wait", change, more) == text.removesuffix(" %") + " points"


# -- precedence ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("basis", "metric", "limits"),
    [
        ("paired", "wall", (0.02, 0.05, 0)),
        ("paired", "tail", (0.10, 0.25, 0)),
        ("paired", "scaling", (0.02, 0.05, 0)),
        *[(basis, "wall", (0.05, 0.15, 0)) for basis in ("stored", "")],
        ("stored", "tail", (0.15, 0.40, 0)),
        ("stored", "scaling", (0.05, 0.15, 0)),
        ("paired", "uss", (0.02, 0.05, 64 * 4096)),
        ("stored", "uss", (0.02, 0.10, 64 * 4096)),
        *[(basis, "lock_wait", (0.25, 0.5, 0.01)) for basis in BASES],
    ],
)
def test_defaults_of_the_roads(basis: BasisKind, metric: str, limits: tuple[float, ...]) -> None:
    assert effective(Metric(metric), basis) == limits


PLACES = ("cli", "declared", "ini")


@pytest.mark.parametrize("field", thresholds.FIELDS)
def test_each_field_comes_from_the_first_place_that_says_it(field: str) -> None:
    """From the last place to the first: each beats those behind it, and leaves the other fields alone."""
    given: dict[str, tuple[Threshold, ...]] = {}
    usual = effective(Metric.WALL, "stored")
    for step, place in enumerate(reversed(PLACES)):
        value = {"margin": 0.06, "effect": 0.16, "floor": 0.06}[field] + step / 100
        given[place] = (of("wall", **{field: value}), of("tail", **{field: value + 1}))
        found = effective(Metric.WALL, "stored", **given)
        assert getattr(found, field) == value
        assert [getattr(found, other) for other in thresholds.FIELDS if other != field] == [
            getattr(usual, other) for other in thresholds.FIELDS if other != field
        ]


def test_fields_of_several_places_come_together_and_the_last_of_a_place_holds() -> None:
    found = effective(
        Metric.WALL,
        "paired",
        cli=(of("wall", effect=0.3), of("uss", margin=0.9), of("wall", effect=0.4)),
        declared=(of("wall", margin=0.1, effect=0.2),),
        ini=(of("wall", margin=0.01, effect=0.02, floor=0.001),),
    )
    assert found == Limits(0.1, 0.4, 0.001)


def test_zero_is_a_value() -> None:
    assert effective(Metric.USS, "paired", cli=(of("uss", floor=0.0, margin=0.0),)).floor == 0


def test_an_effect_not_above_its_margin_names_both_and_their_places() -> None:
    with pytest.raises(ThresholdError):
        effective(Metric.WALL, "paired", cli=(of("wall", margin=0.1),), ini=(of("wall", effect=0.1),))
    with pytest.raises(ThresholdError) as caught:
        effective(Metric.WALL, "paired", cli=(of("wall", margin=0.1),), ini=(of("wall", effect=0.08),))
    assert str(caught.value) == (
        "wall: effect 8 % (ini) is not above margin 10 % (command line); set the effect above the margin"
    )


def test_of_margin_and_effect_the_one_that_nobody_gave_makes_room() -> None:
    wider = effective(Metric.WALL, "paired", declared=(of("wall", margin=0.06),))
    assert wider.margin == 0.06
    assert wider.effect == pytest.approx(0.09)
    sharper = effective(Metric.SCALING, "stored", ini=(of("scaling", effect=0.03),))
    assert sharper.margin == pytest.approx(0.01)
    assert sharper.effect == 0.03
    alone = effective(Metric.WALL, "stored", ini=(of("wall", effect=0.30),))
    assert (alone.margin, alone.effect) == (0.05, 0.30)
    assert effective(Metric.WALL, "paired", ini=(of("wall", effect=0.02),)).margin == pytest.approx(0.008)
    assert effective(Metric.WALL, "paired", ini=(of("wall", margin=0.05),)).effect == pytest.approx(0.08)


def test_all_roads_are_checked_at_once() -> None:
    thresholds.check()
    thresholds.check(cli=(of("wall", margin=0.04, effect=0.2), of("uss", margin=0.05)))
    thresholds.check(ini=(of("wall", margin=0.06),))
    with pytest.raises(ThresholdError, match=r"^tail: effect 4 % \(ini\).*margin 6 %"):
        thresholds.check(ini=(of("tail", margin=0.06, effect=0.04),))
