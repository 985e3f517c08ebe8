"""Judges a physical truth: samples are taken until it is confirmed or refuted at a stated error.

A sample of what a machine does is right or wrong by chance: other processes take the cores. So a test states what one
sample must show, and Wald's sequential probability ratio test decides between two hypotheses on how often it does:

* the truth holds: a sample shows it with a probability of at least `LEAST_IF_TRUE`;
* the truth is false: a sample shows it with a probability of at most `MOST_IF_FALSE`.

Samples that agree multiply the likelihood ratio by 10, others by 10/19. The truth is confirmed where the ratio reaches
`DECISIVE`, and refuted where it falls to 1 / `DECISIVE`: two samples that all agree confirm, eight that all disagree
refute. The exact outcome of at most `TRIES` samples, of which each agrees with probability p:

    p      confirmed   refuted    undecided   samples on average
    0      0           100 %      0           8
    0.05   0.55 %      98.3 %     1.1 %       10
    0.5    98.9 %      0.65 %     0.48 %      6.4
    0.9    100 %       1e-8       3e-14       2.4

Where one sample shows many truths at once and takes half a minute, such as a run of an example in which all of its
contracts hold, a test may ask for less: with `decisive=10` one that agrees confirms, four that disagree refute. A
sample may also raise Inconclusive: it counts as a try alone.

A test that is undecided when tries or time run out is skipped, and so is one that is refuted while other processes took
more of the machine than the gate accepts for a regression. The reason of the skip gives the figures.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Final, Literal, ParamSpec

import pytest

from pytest_ftgate.judge.disturbance import ALONE, unfit
from pytest_ftgate.measure.conditions import ConditionsMonitor
from pytest_ftgate.model import Conditions

LEAST_IF_TRUE: Final = Fraction(1, 2)
MOST_IF_FALSE: Final = Fraction(1, 20)
DECISIVE: Final = 100
"""The likelihood ratio that decides: its reciprocal bounds both errors, however many samples are taken."""
TRIES: Final = 24
LONGEST_S: Final = 120.0

P = ParamSpec("P")
Judged = Literal["confirmed", "refuted", "undecided"]


class Inconclusive(Exception):
    """This sample tells nothing of the truth; the message says why."""


def judge(agreed: int, disagreed: int, decisive: int = DECISIVE) -> Judged:
    """What so many samples that agree with the truth, and so many that do not, say of it."""
    ratio = (LEAST_IF_TRUE / MOST_IF_FALSE) ** agreed * ((1 - LEAST_IF_TRUE) / (1 - MOST_IF_FALSE)) ** disagreed
    if ratio >= decisive:
        return "confirmed"
    return "refuted" if ratio * decisive <= 1 else "undecided"


def confirm(
    sample: Callable[[], object],
    *,
    decisive: int = DECISIVE,
    tries: int = TRIES,
    longest_s: float = LONGEST_S,
    clock: Callable[[], float] = time.monotonic,
    monitor: Callable[[], Conditions] | None = None,
) -> None:
    """Call `sample` until what it asserts is confirmed or refuted.

    An AssertionError is a sample that disagrees, Inconclusive one that tells nothing; any other exception ends the
    test. Fails it where the truth is refuted. Skips it where `tries` samples or `longest_s` seconds did not decide, and
    where it is refuted on a machine that others kept too busy to tell. `clock` gives seconds, `monitor` what went on
    since the first sample.
    """
    monitor = monitor or ConditionsMonitor().start().observe
    began = clock()
    agreed, disagreements, untold, judged = 0, list[str](), list[str](), judge(0, 0)
    while judged == "undecided" and agreed + len(disagreements) + len(untold) < tries and clock() - began < longest_s:
        try:
            sample()
            agreed += 1
        except Inconclusive as error:
            untold.append(f"inconclusive: {error}")
        except AssertionError as error:
            disagreements.append(str(error) or type(error).__name__)
        judged = judge(agreed, len(disagreements), decisive)
    if judged == "confirmed":
        return
    conditions = monitor()
    reason = _reason(judged, agreed, disagreements + untold, clock() - began, conditions)
    if judged == "undecided" or unfit(conditions, ALONE):
        pytest.skip(reason)
    raise AssertionError(reason)


def confirm_near(measure: Callable[[], float], wanted: object) -> None:
    """Confirm that `measure` gives `wanted`, which is a pytest.approx."""

    def sample() -> None:
        value = measure()
        if value != wanted:
            raise AssertionError(f"{value:.6g} is not {wanted}")

    confirm(sample)


def confirmed(test: Callable[P, None]) -> Callable[P, None]:
    """Decorator of a test that is one sample as a whole."""

    @functools.wraps(test)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> None:
        confirm(lambda: test(*args, **kwargs))

    return repeated


def _reason(judged: Judged, agreed: int, others: list[str], seconds: float, conditions: Conditions) -> str:
    """The figures behind a failure or a skip; of each sample that did not agree the first lines, the same ones once."""
    busy = "unknown" if conditions.others is None else f"{conditions.others:.2f} of {conditions.cores} cores"
    tries = agreed + len(others)
    head = f"{judged}: {agreed} of {tries} samples agreed in {seconds:.1f} s; other processes took {busy}"
    lines = ["; ".join(filter(None, (head, unfit(conditions, ALONE))))]
    texts = [" | ".join(text.splitlines()[:3])[:200] for text in others]
    lines += [f"  {texts.count(text)}x {text}" for text in dict.fromkeys(texts)]
    return "\n".join(lines)
