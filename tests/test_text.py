"""Words and figures in text: rounded ones keep the relation of their numbers, and what others wrote is only text."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator

import pytest

from pytest_ftgate.judge import contract_grammar, decide
from pytest_ftgate.kit import units
from pytest_ftgate.kit.text import apart, p_value, plain
from pytest_ftgate.kit.values import Interval, Metric
from pytest_ftgate.model.verdict import Comparison, Decision, Limits
from pytest_ftgate.report.reasons import change_text, of_metric, value_text

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "%": 0.01}


def number_of(text: str) -> float:
    """The number that a text says, in base units."""
    number, _, unit = text.removesuffix(" points").removesuffix("x").replace(",", "").partition(" ")
    return float(number) * UNITS.get(unit, 1)


def close_pairs(least: float, most: float, *, seed: int) -> Iterator[tuple[float, float]]:
    """A limit, often a round one, and a value as close to it as a rounding or as far as a factor."""
    chance = random.Random(seed)
    for _ in range(3000):
        limit = math.exp(chance.uniform(math.log(least), math.log(most)))
        if chance.random() < 0.5:
            limit = float(f"{limit:.{chance.choice((1, 2, 3))}g}")
        distance = 10 ** chance.uniform(-7, 0.5)
        yield limit * (1 + distance) if chance.random() < 0.5 else limit / (1 + distance), limit


def assert_in_order(texts: tuple[str, str], value: float, limit: float) -> None:
    said = tuple(map(number_of, texts))
    assert (said[0] > said[1], said[0] < said[1]) == (value > limit, value < limit), (texts, value, limit)


WRITTEN: dict[str, tuple[float, float, Callable[[float, int], str]]] = {
    "time": (1e-10, 1e4, lambda x, more: value_text(contract_grammar.parse("wall < 2 ms"), x, more)),
    "size": (1e-3, 1e12, lambda x, more: value_text(contract_grammar.parse("uss < 2 MiB"), x, more)),
    "share": (
        1e-5,
        2,
        lambda x, more: value_text(contract_grammar.parse("lock_wait < 2 %"), x, more),
    ),
    "ratio": (1e-3, 1e7, lambda x, more: value_text(contract_grammar.parse("scaling < 2"), x, more)),
    "change": (0.1, 4, lambda x, more: change_text(Metric.WALL, x, more)),
    "gain": (0.1, 4, lambda x, more: change_text(Metric.SCALING, x, more)),
    "points": (1e-4, 3, lambda x, more: change_text(Metric.LOCK_WAIT, x, more)),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_figure_and_its_limit_are_written_in_their_order(kind: str) -> None:
    least, most, written = WRITTEN[kind]
    for value, limit in close_pairs(least, most, seed=len(kind)):
        assert_in_order(apart(value, limit, written), value, limit)


def test_no_more_digits_than_it_takes() -> None:
    written = WRITTEN["time"][2]
    assert apart(1.83e-3, 2e-3, written) == ("1.83 ms", "2 ms")
    assert apart(2.004e-3, 2e-3, written) == ("2.004 ms", "2 ms")
    assert apart(0.9997, 1.0, written) == ("999.7 ms", "1 s") or apart(0.9997, 1.0, written) == ("0.9997 s", "1 s")
    assert apart(2e-3, 2e-3, written) == ("2 ms", "2 ms")
    assert apart(1.0504, 1.05, WRITTEN["change"][2]) == ("+5.04 %", "+5 %")
    assert apart(1.07, 1.05, WRITTEN["change"][2]) == ("+7 %", "+5 %")
    assert apart(math.nan, 1.0, lambda x, more: f"{x:.{more}f}") == ("nan", "1")


def test_a_p_value_within_its_limit_never_looks_larger() -> None:
    for value, limit in close_pairs(1e-12, 0.9, seed=1):
        p, of = p_value(value, limit).removeprefix("p = ").split(", limit ")
        assert (float(p) - float(of)) * (value - limit) >= 0, (value, limit)
        if value >= 0.0001:
            assert units.p_value(value) == f"p = {p}"
    assert p_value(0.01596, 0.016) == "p = 0.016, limit 0.016"


def test_a_slowdown_is_not_written_as_none() -> None:
    assert units.ratio_below(0.98, 1) == "0.98x"
    assert units.ratio_below(0.997, 1) == "0.997x"
    for value, _ in close_pairs(1, 1.0000001, seed=2):
        if value < 1:
            assert number_of(units.ratio_below(value, 1)) < 1


def test_a_probe_s_slowdown_is_written_above_its_limit() -> None:
    for value, limit in close_pairs(1.01, 3, seed=3):
        cost = Interval(value=value, low=value, high=value, level=0.95)
        refused = decide.refused(Metric.LOCK_WAIT, cost, limit - 1)
        assert (refused is not None) == (value > 1 + (limit - 1))
        if refused is not None:
            slowed, most = re.findall(r"(\S+)x", of_metric(refused))[:2]
            assert float(slowed) > float(most), of_metric(refused)


def test_whatever_regresses_or_improves_says_so_in_its_figures() -> None:
    """Decisions on pairs that lie just beyond a limit: no reason may contradict them."""
    chance = random.Random(4)
    counted = 0
    for _ in range(200):
        beyond = 10 ** chance.uniform(-4, -1)
        ratio = chance.choice((1.02 * (1 + beyond), (1 - beyond) / 1.02))
        noise = beyond / 50
        new = tuple(1e6 * ratio * math.exp(chance.gauss(0, noise)) for _ in range(40))
        verdict = decide.by_pairs(
            Comparison(metric=Metric.WALL, new=new, reference=(1e6,) * 40, unit="ns", limits=Limits(0.02, 0.05))
        )
        said = re.match(r"([+-]\S+) % is (beyond|below|above) ([+-]\S+) %: p = (\S+), limit (\S+)", of_metric(verdict))
        if verdict.decision in (Decision.REGRESSED, Decision.IMPROVED):
            assert said is not None
            counted += 1
            change, side, limit, p, of = said.groups()
            assert abs(float(change)) > abs(float(limit)), of_metric(verdict)
            assert float(p) <= float(of), of_metric(verdict)
            assert side == ("beyond" if verdict.decision is Decision.REGRESSED else "below")
    assert counted > 20


def test_one_pair_far_beyond_the_limit_is_beyond_the_effect() -> None:
    verdict = decide.by_pairs(
        Comparison(metric=Metric.WALL, new=(9e6,), reference=(1e6,), unit="ns", limits=Limits(0.02, 0.05), alpha=5e-5)
    )
    assert verdict.decision is Decision.INCONCLUSIVE
    assert verdict.beyond


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred\x9b0m", "red"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x9d0;title\x9cb", "ab"),
        ("a\x1bPq#0;2\x1b\\b\x1b_G1\x1b\\c", "abc"),
        ("a\x1bcb\x1b(0d", "abd"),
        ("half \x1b", "half "),
        ("\x90" * 200_000, ""),
        ("half \x1b]0;never ended", "half 0;never ended"),
        ("bell\x07 back\x08 nul\x00 del\x7f", "bell back nul del"),
        ("one\r\ntwo\x85three\u2028four\u2029five", "one\ntwo\nthree\nfour\nfive"),
        ("over\rwritten\tby\x84\x8d\x9f", "overwritten    by"),
        ("test_\u202egnp.yp\u202c", "test_gnp.yp"),
        ("\u2066isolated\u2069 \u200emarks\u200f\u061c", "isolated marks"),
        ("stray \udc80 byte", "stray \\udc80 byte"),
        ("\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f468\u200d\U0001f4bb", None),
        ("caf\u00e9 \u00b5s \u2026 <b>&amp;", None),
    ],
)
def test_what_others_wrote_is_shown_as_text(hostile: str, shown: str | None) -> None:
    assert plain(hostile) == (hostile if shown is None else shown)
    assert plain(plain(hostile)) == plain(hostile)
