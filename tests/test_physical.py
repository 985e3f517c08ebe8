"""How physical truths are judged: scripted samples, and error rates by exact enumeration."""

from __future__ import annotations

import contextlib
import itertools
from fractions import Fraction

import pytest

import physical
from physical import (
    DECISIVE,
    LEAST_IF_TRUE,
    MOST_IF_FALSE,
    TRIES,
    Inconclusive,
    Told,
    confirm,
    confirm_each,
    confirm_near,
    confirmed,
    cores_now,
    judge,
)
from pytest_ftgate.model.report import Conditions

QUIET = Conditions(span_s=1.0, cores=2, calibration_ns=(), steal=0.0, others=0.1, quota=0.0, throttles=0)
BUSY = Conditions(span_s=1.0, cores=2, calibration_ns=(), steal=0.0, others=0.9, quota=0.0, throttles=0)


class Script:
    """Samples that agree (`y`), disagree (`n`) or tell nothing as scripted, then over and over; each takes 1 s."""

    def __init__(self, answers: str) -> None:
        self.answers = answers
        self.taken = 0

    def __call__(self) -> None:
        self.taken += 1
        answer = self.answers[(self.taken - 1) % len(self.answers)]
        if answer == "?":
            raise Inconclusive("too slow")
        assert answer == "y", f"sample {self.taken % 2} disagrees"

    def clock(self) -> float:
        return float(self.taken)

    def judged(self, conditions: Conditions = QUIET, longest_s: float = 1e9) -> None:
        confirm(self, clock=self.clock, monitor=lambda: conditions, longest_s=longest_s)


@pytest.mark.parametrize(("answers", "taken"), [("y", 2), ("nyyyy", 4), ("ynyy", 4), ("nnnnnyyyyyy", 9), ("?y", 4)])
def test_samples_that_agree_confirm(answers: str, taken: int) -> None:
    script = Script(answers)
    script.judged()
    assert script.taken == taken


@pytest.mark.parametrize(("answers", "taken"), [("n", 8), ("y" + "n" * 30, 12), ("nyyn" + "n" * 30, 17)])
def test_samples_that_disagree_refute(answers: str, taken: int) -> None:
    script = Script(answers)
    with pytest.raises(AssertionError, match=r"^refuted: \d of \d+ samples agreed in \d+.0 s; other .* took 0.10"):
        script.judged()
    assert script.taken == taken


def test_each_disagreement_is_told_once_and_counted() -> None:
    with pytest.raises(AssertionError) as info:
        Script("n").judged()
    lines = str(info.value).splitlines()
    assert [line.strip().partition(" | ")[0] for line in lines[1:]] == [
        "4x sample 1 disagrees",
        "4x sample 0 disagrees",
    ]


def test_a_machine_that_is_too_busy_to_tell_is_a_skip_with_its_figures() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"refuted: 0 of 8 .*; other processes kept 0.9 of 2 cores busy"):
        Script("n").judged(BUSY)
    Script("y").judged(BUSY)


def test_what_neither_tries_nor_time_decide_is_a_skip_with_its_figures() -> None:
    by_tries, by_time = Script("nnny"), Script("n")
    with pytest.raises(pytest.skip.Exception, match=r"undecided: 6 of 24 samples agreed in 24.0 s"):
        by_tries.judged()
    with pytest.raises(pytest.skip.Exception, match=r"undecided: 0 of 5 samples agreed in 5.0 s"):
        by_time.judged(longest_s=5.0)
    assert (by_tries.taken, by_time.taken) == (TRIES, 5)
    with pytest.raises(pytest.skip.Exception, match=r"undecided: 0 of 24 .*\n  24x inconclusive: too slow"):
        Script("?").judged()


def test_what_is_no_disagreement_ends_the_test_at_once() -> None:
    for error in (OSError("no such process"), pytest.fail.Exception("broken")):
        taken: list[int] = []

        def sample(error: BaseException = error, taken: list[int] = taken) -> None:
            taken.append(1)
            raise error

        with pytest.raises(type(error)):
            confirm(sample, monitor=lambda: QUIET)
        assert taken == [1]


def test_the_machine_is_asked_where_no_monitor_is_given() -> None:
    with pytest.raises((AssertionError, pytest.skip.Exception), match=r"refuted: 0 of 8 samples agreed"):
        confirm(Script("n"))


def test_dear_samples_may_decide_sooner_at_a_larger_error() -> None:
    for answers, taken in (("y", 1), ("n", 4)):
        script = Script(answers)
        with contextlib.suppress(AssertionError):
            confirm(script, decisive=10, monitor=lambda: QUIET)
        assert script.taken == taken


def told(answers: str) -> Told:
    """Of the claims a, b ... what so many answers say."""
    by_answer = {"y": None, "n": AssertionError("it does not"), "?": Inconclusive("no figure")}
    return {name: by_answer[answer] for name, answer in zip("abc", answers, strict=False)}


@pytest.mark.parametrize(("samples", "taken"), [("yyy", 1), ("y?y nyn", 2), ("yny nyn nyn", 3), ("??n y?y nyy", 3)])
def test_each_claim_is_confirmed_by_itself_and_stays_so(samples: str, taken: int) -> None:
    script = iter(samples.split())
    count = 0

    def sample() -> Told:
        nonlocal count
        count += 1
        return told(next(script))

    confirm_each(sample, decisive=10, monitor=lambda: QUIET)
    assert count == taken


def test_one_claim_that_is_refuted_fails_and_is_shown_with_those_left_open() -> None:
    script = iter(["yn?", "yn?", "nn?", "nnn"])
    with pytest.raises(AssertionError) as info:
        confirm_each(lambda: told(next(script)), decisive=10, monitor=lambda: QUIET, clock=lambda: 1.0)
    assert str(info.value).splitlines() == [
        "refuted: 0 of 4 samples agreed in 0.0 s; other processes took 0.10 of 2 cores; b",
        "  4x it does not",
        "undecided: 0 of 4 samples agreed in 0.0 s; c",
        "  1x it does not",
        "  3x inconclusive: no figure",
    ]


def test_a_claim_that_is_left_open_is_a_skip() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"^undecided: 0 of 5 .*; b\n  5x inconclusive: no figure$"):
        confirm_each(lambda: told("y?"), tries=5, monitor=lambda: QUIET)


@pytest.mark.parametrize(("cores", "kind"), [(1.9, AssertionError), (1.2, pytest.skip.Exception)])
def test_what_disagrees_without_free_cores_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, cores: float, kind: type[BaseException]
) -> None:
    free = itertools.cycle((2.0, cores))
    monkeypatch.setattr(physical, "cores_now", lambda: next(free))
    with pytest.raises(kind) as info:
        confirm_each(lambda: told("n"), cores=1.5, tries=8, monitor=lambda: QUIET)
    assert ("8x inconclusive: there were 1.20 cores for it: it does not" in str(info.value)) is (cores < 1.5)
    confirm(lambda: None, cores=1.5, monitor=lambda: QUIET)


def test_the_cores_that_this_process_gets_are_more_than_none() -> None:
    assert cores_now(0.01) > 0


def test_a_figure_and_a_whole_test_are_samples_too() -> None:
    figures = iter([0.0, 1.05, 0.96, 0.9, 1.0])
    confirm_near(lambda: next(figures), pytest.approx(1.0, rel=0.101))
    assert list(figures) == [1.0]
    calls: list[tuple[int, str]] = []

    @confirmed
    def test(number: int, *, word: str) -> None:
        calls.append((number, word))

    test(1, word="x")
    assert calls == [(1, "x")] * 2


def outcomes(agrees: Fraction) -> tuple[dict[str, Fraction], Fraction]:
    """The exact probability of each outcome, and the mean number of samples, where a sample agrees so often."""
    under_way = {(0, 0): Fraction(1)}
    found: dict[str, Fraction] = dict.fromkeys(("confirmed", "refuted", "undecided"), Fraction(0))
    samples = Fraction(0)
    for _ in range(TRIES):
        samples += sum(under_way.values())
        after: dict[tuple[int, int], Fraction] = {}
        for (agreed, disagreed), share in under_way.items():
            for tally, chance in (((agreed + 1, disagreed), agrees), ((agreed, disagreed + 1), 1 - agrees)):
                judged = judge(*tally)
                if judged == "undecided":
                    after[tally] = after.get(tally, Fraction(0)) + share * chance
                else:
                    found[judged] += share * chance
        under_way = after
    found["undecided"] = sum(under_way.values(), Fraction(0))
    return found, samples


def test_errors_are_within_what_is_stated() -> None:
    false, _ = outcomes(MOST_IF_FALSE)
    true, _ = outcomes(LEAST_IF_TRUE)
    assert sum(false.values()) == sum(true.values()) == 1
    assert float(false["confirmed"]) == pytest.approx(0.0055, abs=5e-5)
    assert float(true["refuted"]) == pytest.approx(0.0065, abs=5e-5)
    assert max(false["confirmed"], true["refuted"]) < Fraction(1, DECISIVE)
    assert float(false["undecided"]) == pytest.approx(0.011, abs=5e-4)
    assert float(true["undecided"]) == pytest.approx(0.0048, abs=5e-5)


def test_a_clear_truth_needs_few_samples_and_is_never_lost() -> None:
    found, samples = outcomes(Fraction(9, 10))
    assert float(samples) == pytest.approx(2.4, abs=0.05)
    assert found["refuted"] < Fraction(2, 10**8)
    assert found["undecided"] < Fraction(1, 10**11)
    never, samples = outcomes(Fraction(0))
    assert float(never["refuted"]) == 1
    assert float(samples) == 8
