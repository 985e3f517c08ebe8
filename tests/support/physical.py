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

Where one sample tells something of many truths at once and takes half a minute, such as a run of an example with its
contracts, each of them is a claim that is confirmed or refuted by itself (`confirm_each`), and a test may ask for less:
with `decisive=10` one sample that agrees confirms a claim, four that disagree refute it. A sample may also be
Inconclusive, as a whole or of a claim: it counts as a try alone.

A test that is undecided when tries or time run out is skipped, and so is one that is refuted while other processes took
more of the machine than the gate accepts for a regression. The reason of the skip gives the figures.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final, Literal, ParamSpec

import pytest

from pytest_ftgate.judge.decide import UNPAIRED, unfit
from pytest_ftgate.measure.conditions import ConditionsMonitor
from pytest_ftgate.measure.machine import usable_cores
from pytest_ftgate.model.report import Conditions

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


Outcome = AssertionError | Inconclusive | None
"""What a sample tells of a claim: None where it agrees, else why it disagrees or tells nothing."""
Told = Mapping[str, Outcome]
"""What a sample tells of each claim."""


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
    cores: float = 0.0,
    tries: int = TRIES,
    longest_s: float = LONGEST_S,
    clock: Callable[[], float] = time.monotonic,
    monitor: Callable[[], Conditions] | None = None,
) -> None:
    """Call `sample` until what it asserts is confirmed or refuted: `confirm_each` with one claim.

    An AssertionError is a sample that disagrees, Inconclusive one that tells nothing; any other exception ends the
    test.
    """

    confirm_each(
        lambda: {"": outcome(sample)},
        decisive=decisive,
        cores=cores,
        tries=tries,
        longest_s=longest_s,
        clock=clock,
        monitor=monitor,
    )


def outcome(check: Callable[[], object]) -> Outcome:
    """What this sample of one claim, with its asserts, tells of it."""
    try:
        check()
    except (AssertionError, Inconclusive) as error:
        return error
    return None


def confirm_each(
    sample: Callable[[], Told],
    *,
    decisive: int = DECISIVE,
    cores: float = 0.0,
    tries: int = TRIES,
    longest_s: float = LONGEST_S,
    clock: Callable[[], float] = time.monotonic,
    monitor: Callable[[], Conditions] | None = None,
) -> None:
    """Call `sample`, which tells of each claim, until all are confirmed or one is refuted.

    What disagrees tells nothing where fewer than `cores` were free for the sample, whatever took them: where the system
    does not see who does, it does not see either that the machine is busy.

    Fails the test where a claim is refuted. Skips it where `tries` samples or `longest_s` seconds did not decide, and
    where one is refuted on a machine that others kept too busy to tell. `clock` gives seconds, `monitor` what went on
    since the first sample.
    """
    monitor = monitor or ConditionsMonitor().start().observe
    began, taken = clock(), 0
    claims: dict[str, _Claim] = {}
    while taken < tries and clock() - began < longest_s:
        for name, error in (_on_free_cores(sample, cores) if cores else sample()).items():
            claims.setdefault(name, _Claim(decisive)).add(error)
        taken += 1
        judged = {claim.judged for claim in claims.values()}
        if judged == {"confirmed"}:
            return
        if "refuted" in judged:
            break
    conditions = monitor()
    left = {name: claim for name, claim in claims.items() if claim.judged != "confirmed"}
    reason = _reason(left, clock() - began, conditions)
    if unfit(conditions, UNPAIRED) or all(claim.judged == "undecided" for claim in left.values()):
        pytest.skip(reason)
    raise AssertionError(reason)


class _Claim:
    """What the samples so far told of one claim. A claim that is confirmed stays so."""

    def __init__(self, decisive: int) -> None:
        self.decisive = decisive
        self.agreed = 0
        self.disagreements: list[str] = []
        self.untold: list[str] = []
        self.judged: Judged = "undecided"

    def add(self, error: Outcome) -> None:
        if self.judged != "undecided":
            return
        if error is None:
            self.agreed += 1
        elif isinstance(error, Inconclusive):
            self.untold.append(f"inconclusive: {error}")
        else:
            self.disagreements.append(str(error) or type(error).__name__)
        self.judged = judge(self.agreed, len(self.disagreements), self.decisive)


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


def _reason(claims: Mapping[str, _Claim], seconds: float, conditions: Conditions) -> str:
    """The figures behind a failure or a skip: of each claim the samples that did not agree, the same ones once."""
    busy = "unknown" if conditions.others is None else f"{conditions.others:.2f} of {conditions.cores} cores"
    machine = "; ".join(filter(None, (f"other processes took {busy}", unfit(conditions, UNPAIRED))))
    lines = []
    for name, claim in sorted(claims.items(), key=lambda each: each[1].judged != "refuted"):
        others = claim.disagreements + claim.untold
        head = f"{claim.judged}: {claim.agreed} of {claim.agreed + len(others)} samples agreed in {seconds:.1f} s"
        lines.append("; ".join(filter(None, (head, machine, name))))
        texts = [" | ".join(text.splitlines()[:3])[:200] for text in others]
        lines += [f"  {texts.count(text)}x {text}" for text in dict.fromkeys(texts)]
        machine = ""  # said once
    return "\n".join(lines)


def _on_free_cores(sample: Callable[[], Told], least: float) -> Told:
    """A sample, of which what disagrees tells nothing where there were fewer cores before or after it."""
    before = cores_now()
    found = sample()
    cores = min(before, cores_now())
    if cores >= least:
        return found
    why = f"there were {cores:.2f} cores for it"
    return {
        claim: Inconclusive(f"{why}: {error}") if isinstance(error, AssertionError) else error
        for claim, error in found.items()
    }


_COUNTING: Final = """
import sys, time
count, ends = 0, time.perf_counter() + float(sys.argv[1])
while time.perf_counter() < ends: count += 1
print(count, time.process_time())
"""


def cores_now(seconds: float = 0.3) -> float:
    """How many cores' work this machine does for this process now: 2 on two cores that are free.

    It is what as many processes as there are cores count together, over what one counts in a second of CPU time. So
    other work takes from it, seen by this system or not, and two cores that are hyperthreads of one are less than two.
    """
    count, cpu_s = _counted(1, seconds)
    together, _ = _counted(usable_cores(), seconds)
    return together / (seconds * count / cpu_s)


def _counted(processes: int, seconds: float) -> tuple[float, float]:
    words = [sys.executable, "-S", "-c", _COUNTING, str(seconds)]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    said = [process.communicate()[0].split() for process in started]
    return sum(float(count) for count, _ in said), sum(float(cpu_s) for _, cpu_s in said)
