"""Errors of cells: what was raised, where, how often, and whether the reference has the same. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from ..kit import units
from ..kit.text import COMMIT_DIGITS, plain, plural
from ..model.report import Row
from ..model.sample import MEASURED, WorkloadError, outcomes
from ..stats.rates import clopper_pearson

RAISED = re.compile(r"(?:^|.*[:,] )raised (\w+)(?:: (.*))?", re.DOTALL)
FRAME = re.compile(r'^[ \t]*File "(.+?)", line (\d+), in (.+)$', re.MULTILINE)
CHECKOUT = re.compile(
    r"""(?:(?:^|(?<=["'`]))(?=~?/)[^"'`\n]*?|(?<=[\s(=:,])(?=~?/)[^\s"'`]*?)/\.ftgate/worktrees/[\w.-]+(?P<in_it>/|(?![\w.-]))""",
    re.MULTILINE,
)
"""The folder of a checkout in an error, or what stands before the path of a file in it."""


def error_of(row: Row) -> WorkloadError:
    """Why a cell could not be measured; without an error of its own the reason of its verdict."""
    error = row.error or (row.sample.error if row.sample else None)
    return error or WorkloadError(reason=row.verdict.reason or "it could not be measured")


def exception(error: WorkloadError) -> str:
    """`KeyError: 'missing'`, and of an assert what pytest shows: `assert total == 46`; else the reason in one line."""
    found = RAISED.fullmatch(error.reason)
    if found is None:
        return " ".join(plain(in_project(error.reason)).split())
    kind, text = found[1], in_project(found[2] or "")
    if kind == "AssertionError" and text.startswith("assert "):
        return plain(text)
    return plain(f"{kind}: {text}" if text else kind)


def error_text(error: WorkloadError) -> str:
    """Where it was raised, and the workload's output; an exception that the output ends with is not said before it."""
    where = "" if error.detail.startswith(error.reason) else error.reason
    if RAISED.fullmatch(error.reason) and error.detail:
        where = error.reason.partition("raised ")[0].rstrip()
    return plain(in_project("\n".join(filter(None, [where, error.detail.rstrip()]))))


def origin(error: WorkloadError) -> tuple[str, int] | None:
    """File and line that raised; None where that is unknown."""
    frames = FRAME.findall(error.detail)
    return (in_project(frames[-1][0]), int(frames[-1][1])) if frames else None


def in_project(text: str) -> str:
    """A text whose paths in a checkout are those in the project, from its top: the user's own file has the same."""
    return CHECKOUT.sub(lambda found: "" if found["in_it"] else ".", text)


def whose(row: Row) -> str:
    """Whether the reference has a cell's error, too; empty where the cell is compared with nothing."""
    sample, verdict = row.sample, row.verdict
    if sample is None and row.error is not None and verdict.reason != row.error.reason:
        return verdict.reason  # how often it was seen, on both sides
    reference = sample.reference if sample else None
    if sample is None or sample.error is None or reference is None:
        if not verdict.commit or verdict.basis == "paired" or row.error is None:
            return ""
        at = verdict.commit[:COMMIT_DIGITS]
        return f"it is unknown whether the baseline's commit has this error: --ftgate-against={at} runs both"
    if same_there(row):
        return "the reference has this error, too: this change did not cause it"
    if reference.error is not None:
        return f"the reference has another error: {exception(reference.error)}"
    if reference.unsupported is not None or not reference.begun:
        return f"it is unknown whether the reference has this error: {reference.unsupported or 'it was not run'}"
    if sample.error.launch:
        here = f"1 of {plural(sample.error.launch, 'launch', 'launches')} here, "
        launches = (launch for role in MEASURED for launch in reference.of(role))
        clean = sum(len(each.iterations) + (each.cold is not None) for each in launches)
    else:  # of different results the most frequent one is right
        times = [count for _, count in outcomes(sample.launches)]
        wrong = sum(times) - max(times, default=0)
        here = f"{rate_text(wrong, sum(times))} here, " if wrong else ""
        clean = sum(count for _, count in outcomes(reference.launches))
    bound = f": {rate_text(0, clean)}" if clean else ""
    return f"{here}0 of {plural(reference.begun, 'launch', 'launches')} of the reference had this error{bound}"


def same_there(row: Row) -> bool:
    """Whether its reference failed in the same way: by an exception of the same type out of the same function.

    Lines differ between the sides. Of what is no exception the beginning of the reason counts, without numbers: the
    rest may name processes and lines.
    """

    def kind(error: WorkloadError) -> tuple[object, ...]:
        found, frames = RAISED.fullmatch(error.reason), FRAME.findall(error.detail)
        if found is None:
            return (re.sub(r"\d+", "", re.split("[(;:]", error.reason)[0]),)
        return (found[1], frames[-1][2] if frames else "")

    sample = row.sample
    there = sample.reference.error if sample and sample.reference else None
    if sample is None or sample.error is None or there is None:
        return False
    return kind(sample.error) == kind(there)


def rate_text(failures: int, iterations: int) -> str:
    """`3 in 41,200 iterations (1 in 4,700 to 1 in 66,000 at 95 %)`, `0 in 40,900 iterations (below 1 in 11,000 ...)`.

    The odds are rounded to two digits, outwards. The first iteration alone tells no rate.
    """
    if failures == iterations == 1:
        return "in its first iteration"

    def odds(rate: float, away: Callable[[float], int]) -> str:
        step = 10 ** max(0, math.floor(math.log10(1 / rate)) - 1)
        return f"1 in {away(1 / rate / step) * step:,}"

    found = clopper_pearson(failures, iterations)
    text = f"{failures:,} in {plural(iterations, 'iteration')}".replace(str(iterations), f"{iterations:,}")
    ends = "all" if found.low == 1 else f"below {odds(found.high, math.floor)}"
    if failures:
        ends = f"{odds(found.low, math.ceil)} to {odds(found.high, math.floor)}"
    return f"{text} ({ends} at {units.level(found.level)})"
